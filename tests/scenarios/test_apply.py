"""Engine.apply: tables of triples that go and that come, against a set of quads in plain Python."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import wukongs
from tests.faces import Face
from wukongs import DataError, SettingsError

ALL = "SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
Quad = tuple[str, str, str, str | None]


def table(*quads: tuple[str | None, ...], graph: bool = False) -> pa.Table:
    names = ["subject", "predicate", "object", *(["graph"] if graph else [])]
    return pa.table([pa.array([quad[at] for quad in quads], pa.string()) for at in range(len(names))], names)


def stored(engine: Any) -> set[Quad]:
    return {tuple(row) for row in zip(*engine.query(ALL).arrow().to_pydict().values(), strict=True)}  # type: ignore[misc]


def a(name: str) -> str:
    return f"<http://e/{name}>"


def test_random_changes_leave_what_a_set_has(engine: wukongs.Engine) -> None:
    rng, known = random.Random(1), set[Quad]()
    terms = [a(str(number)) for number in range(6)] + [
        '"1"^^<http://www.w3.org/2001/XMLSchema#integer>',
        '"é"@fr',
        '"a\\"b\\n"',
    ]
    last = 0
    for _ in range(12):

        def some() -> list[Quad]:
            count = rng.randrange(8)
            return [
                (a(rng.choice("xyz")), a(rng.choice("pq")), rng.choice(terms), rng.choice([None, None, a("g")]))
                for _ in range(count)
            ]

        gone, come = some(), some()
        known = (known - set(gone)) | set(come)
        tables = [table(*quads, graph=True) for quads in (come, gone)]
        if rng.random() < 0.5:
            tables = [
                pa.table({n: c.dictionary_encode() for n, c in zip(t.column_names, t.columns, strict=True)})
                for t in tables
            ]
        sn = engine.apply(*tables)
        assert sn > last
        assert stored(engine) == known
        last = sn
    assert engine.stats()["stored_triples"] == len(known)


def test_one_table_is_enough(engine: wukongs.Engine) -> None:
    first = engine.apply(table((a("s"), a("p"), a("o")), (a("s"), a("p"), a("o2"))))
    assert engine.query("ASK {}").snapshot == first
    assert engine.apply(deletes=table((a("s"), a("p"), a("o")), (a("new"), a("p"), a("nowhere")))) == first + 1
    assert stored(engine) == {(a("s"), a("p"), a("o2"), None)}
    both = table((a("s"), a("p"), a("o2")), (a("s"), a("p"), a("o3")))
    engine.apply(both, both)
    assert stored(engine) == {(a("s"), a("p"), a("o2"), None), (a("s"), a("p"), a("o3"), None)}
    assert engine.apply() == engine.query("ASK {}").snapshot


def test_blank_nodes_are_new_or_those_that_were_reported(engine: wukongs.Engine) -> None:
    engine.apply(table(("_:b", a("p"), "_:c"), ("_:b", a("q"), a("o"))))
    ((blank,),) = engine.query("SELECT ?s { ?s <http://e/q> ?o }").texts()
    assert len(engine.query("SELECT ?o { ?s <http://e/p> ?o . ?s <http://e/q> ?x }")) == 1
    engine.apply(table((str(blank), a("r"), "_:b")))
    assert len(engine.query("SELECT * { ?s <http://e/q> ?o ; <http://e/r> ?new FILTER(?new != ?s) }")) == 1
    engine.apply(deletes=table((str(blank), a("q"), a("o")), ("_:b", a("p"), "_:c")))
    assert len(engine.query("SELECT * { ?s <http://e/q> ?o }")) == 0
    assert len(engine.query("SELECT * { ?s <http://e/p> ?o }")) == 1


@pytest.mark.parametrize(
    ("which", "change", "error", "said"),
    [
        (
            "inserts",
            table((a("s"), a("p"), a("o"))).drop_columns("object"),
            DataError,
            "inserts: the table has no column object",
        ),
        (
            "deletes",
            table((a("s"), a("p"), a("o"))).append_column("op", pa.array(["+"])),
            DataError,
            "a column op too many",
        ),
        (
            "inserts",
            [("s", "p", "o")],
            SettingsError,
            "inserts: expected an Arrow table, or a data frame .*, found list",
        ),
        (
            "inserts",
            table((a("s"), a("p"), a("o")), (a("s"), a("p"), "no term")),
            DataError,
            "inserts: row 1, column 'object'",
        ),
        (
            "deletes",
            table((a("s"), a("p"), a("o")), ('"text"', a("p"), a("o"))),
            DataError,
            "deletes: row 1, column 'subject'",
        ),
        ("inserts", table((a("s"), a("p"), None)), DataError, "inserts: row 0, column 'object'"),
        (
            "inserts",
            pa.table({"subject": [1], "predicate": [2], "object": [3]}),
            DataError,
            "inserts: row 0, column 'subject', character 1: a literal cannot be a subject",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_nothing_applied(
    engine: wukongs.Engine, which: str, change: Any, error: type[Exception], said: str
) -> None:
    before = engine.apply(table((a("s"), a("p"), a("o"))))
    other = {"deletes": "inserts", "inserts": "deletes"}[which]
    with pytest.raises(error, match=said):
        engine.apply(**{which: change, other: table((a("s"), a("p"), a("o")))})
    assert stored(engine) == {(a("s"), a("p"), a("o"), None)}
    assert engine.query("ASK {}").snapshot == before


@pytest.mark.faces("durable")
def test_it_is_there_after_a_restart(face: Face) -> None:
    engine = face.open()
    engine.apply(table((a("s"), a("p"), a("o")), (a("s"), a("p"), a("o2"))))
    engine.apply(table((a("t"), a("p"), a("o"))), table((a("s"), a("p"), a("o"))))
    assert stored(face.reopen(engine)) == {(a("s"), a("p"), a("o2"), None), (a("t"), a("p"), a("o"), None)}
