"""Engine.prepare: plans are kept, names and terms are checked, and nodes answer as an engine does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import rdflib

import wukongs
from tests.unit.remote.served import connected, served
from wukongs import BudgetExceeded, DataError, QuerySyntaxError, SettingsError, StreamError, UnsupportedFeatureError
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.batch import build_batch

KNOWS = "SELECT ?o { ?s <http://e/knows> ?o }"
DATA = "".join(f"<http://e/{s}> <http://e/knows> <http://e/{o}> .\n" for s, o in ["ab", "ac", "bc", "ca"])


@pytest.fixture(params=["engine", "node"])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    with wukongs.Engine() as own:
        own.load(io.BytesIO(DATA.encode()), format="nt")
        if request.param == "engine":
            yield own
            return
        with served(own) as (_, wire), connected(wire) as client:
            yield client


def texts(result: wukongs.Result) -> list[str]:
    return sorted(str(row[0]).rsplit("/", 1)[1] for row in result)


def test_terms_are_given_by_name_or_as_a_mapping(engine: Any) -> None:
    prepared = engine.prepare(KNOWS)
    assert prepared.variables == ["o", "s"]
    assert texts(prepared(s="<http://e/a>")) == ["b", "c"]
    assert texts(prepared({"?s": rdflib.URIRef("http://e/b")})) == ["c"]
    assert texts(prepared()) == ["a", "b", "c", "c"]
    assert texts(prepared({"s": "<http://e/b>"}, timeout_s=60)) == ["c"]
    assert len(prepared(s="<http://e/nobody>")) == 0
    assert texts(prepared(s="<http://e/a>", o="<http://e/c>")) == ["c"]


def test_many_rows_are_one_arrow_table(engine: Any) -> None:
    prepared = engine.prepare(KNOWS)
    table = pa.table({"s": ["<http://e/c>", "<http://e/nobody>", "<http://e/a>", "<http://e/c>"]})
    found = prepared.many(table)
    assert found.schema.field("argument").type == pa.int64()
    assert pa.types.is_dictionary(found.schema.field("o").type)
    rows = set(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert rows == {(0, "<http://e/a>"), (2, "<http://e/b>"), (2, "<http://e/c>"), (3, "<http://e/a>")}
    assert prepared.many([{"s": rdflib.URIRef("http://e/b")}]).to_pylist() == [{"argument": 0, "o": "<http://e/c>"}]
    encoded = pa.table({"s": table.column("s").dictionary_encode()})
    assert prepared.many(encoded).equals(found)
    for nothing in (table.slice(0, 0), [], ()):
        assert prepared.many(nothing).schema == found.schema
        assert list(prepared.batches(nothing)) == []
    assert [part.num_rows for part in prepared.batches(table, rows=3)] == [3, 1]
    assert [part.column("argument").to_pylist() for part in prepared.batches(table, rows=3)][1] == [3]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ([{"x": "<http://e/a>"}], SettingsError, r"\?x is no variable of the query, which has: \?o, \?s"),
        ([{"s": "<http://e/a>"}, {}], DataError, "row 1, column 's': a value is missing"),
        ([{"s": "<http://e/a>"}, {"s": "no term"}], DataError, "row 1"),
        (pa.table({"s": [[1], [2]]}), DataError, "column 's': expected "),
        ({"s": "<http://e/a>"}, SettingsError, "expected an Arrow table,.* or a list of dictionaries"),
        ("<http://e/a>", SettingsError, "expected an Arrow table,.* or a list of dictionaries"),
        (None, SettingsError, "expected an Arrow table,.* or a list of dictionaries"),
        (iter([{"s": "<http://e/a>"}]), SettingsError, "expected an Arrow table,.* or a list of dictionaries"),
        (pa.table([pa.array(["<http://e/a>"])] * 2, ["s", "?s"]), SettingsError, "'s' is there twice"),
        (pa.table({}), SettingsError, "a column"),
    ],
)
def test_arguments_that_are_none_are_refused_by_row_and_column(
    engine: Any, arguments: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        engine.prepare(KNOWS).many(arguments)


@pytest.mark.parametrize(
    ("arguments", "terms", "error", "said"),
    [
        ({"s": "no term"}, {}, DataError, r"^\?s: expected a term as N-Triples writes it"),
        ({}, {"s": r'"\uD800"'}, DataError, r"^\?s: character 2: this is not a valid escape"),
        ({}, {"s": [1]}, DataError, r"^\?s: expected an N-Triples string, an int, "),
        ({"s": "<http://e/a>"}, {"s": "<http://e/b>"}, SettingsError, r"\?s is given twice"),
        ({"?s": "<http://e/a>", "$s": "<http://e/b>"}, {}, SettingsError, r"\?s is given twice"),
        ({1: "<http://e/a>"}, {}, SettingsError, r"\?1 is no variable"),
        (["s"], {}, SettingsError, "expected a dictionary: variable -> term, found list"),
    ],
)
def test_terms_that_are_none_are_refused_by_name(
    engine: Any, arguments: Any, terms: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        engine.prepare(KNOWS)(arguments, **terms)
    if not terms and error is DataError:
        with pytest.raises(error, match=said):
            engine.query(KNOWS, bindings=arguments)


def test_blank_nodes_and_relative_iris_are_found_among_others(engine: Any) -> None:
    engine.update("INSERT DATA { <rel> <http://e/knows> <../up?a:b> . _:b <http://e/knows> 7 }")
    prepared = engine.prepare("SELECT ?s ?o { ?s <http://e/knows> ?o FILTER(!STRSTARTS(STR(?o), 'http')) }")
    (blank,) = {row[0] for row in prepared().texts()} - {"<rel>"}
    terms = ["<http://e/b>", blank, "<rel>", '"text"', "<../>", "_:none", "<rel>", "<#none>"]
    found = prepared.many(pa.table({"s": terms}))
    assert [len(prepared(s=term)) for term in terms] == [found["argument"].to_pylist().count(n) for n in range(8)]
    assert found["s"].to_pylist() == [blank, "<rel>", "<rel>"]
    for bad, said in (("<http://e/ >", "cannot stand in an IRI"), ("_:-", "expected"), ("<a b>", "expected")):
        with pytest.raises(DataError, match=f"row 2, column 's'.*{said}"):
            prepared.many(pa.table({"s": [blank, "<rel>", bad, "<http://e/c>"]}))


def test_what_cannot_be_prepared_is_refused_at_once(engine: Any) -> None:
    with pytest.raises(QuerySyntaxError):
        engine.prepare("SELECT ?o { ?s ")
    with pytest.raises(StreamError, match="give it to"):
        engine.prepare("REGISTER QUERY q AS SELECT ?s FROM STREAM <http://e/s> [RANGE 1s STEP 1s] { ?s ?p ?o }")
    with pytest.raises(SettingsError, match=r"\?t is no variable"):
        engine.prepare(KNOWS)(t="<http://e/a>")
    with pytest.raises(DataError):
        engine.prepare(KNOWS)(s="no term")
    for text in ("ASK { ?s ?p ?o }", "SELECT (RAND() AS ?r) { ?s ?p ?o }"):
        with pytest.raises(UnsupportedFeatureError, match="many rows"):
            engine.prepare(text).many([{"s": "<http://e/a>"}])
    with pytest.raises(SettingsError, match="argument"):
        engine.prepare("SELECT ?argument { ?argument ?p ?o }").many([{"o": "<http://e/a>"}])
    with pytest.raises(SettingsError, match="rows = 0"):
        engine.prepare(KNOWS).batches([{"s": "<http://e/a>"}], rows=0)


def test_other_forms_answer_one_row(engine: Any) -> None:
    assert engine.prepare("ASK { ?s <http://e/knows> ?o }")(s="<http://e/a>", o="<http://e/b>").boolean
    assert not engine.prepare("ASK { ?s <http://e/knows> ?o }")(s="<http://e/b>", o="<http://e/b>").boolean
    made = engine.prepare("CONSTRUCT { ?o <http://e/of> ?s } WHERE { ?s <http://e/knows> ?o }")(s="<http://e/b>")
    assert made.triples() == [("<http://e/c>", "<http://e/of>", "<http://e/b>")]
    described = engine.prepare("DESCRIBE ?s { ?s ?p ?o }")(s="<http://e/b>").triples()
    assert described == [("<http://e/b>", "<http://e/knows>", "<http://e/c>")]


def test_it_reads_what_there_is_now_or_was(engine: Any) -> None:
    prepared = engine.prepare(KNOWS)
    before = prepared(s="<http://e/b>").snapshot
    engine.update("INSERT DATA { <http://e/b> <http://e/knows> <http://e/x> }")
    assert texts(prepared(s="<http://e/b>")) == ["c", "x"]
    assert prepared.many([{"s": "<http://e/b>"}]).num_rows == 2
    assert prepared(s="<http://e/b>").snapshot > before


def test_plans_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PlanMemo] = []
    monkeypatch.setattr(PlanMemo, "__init__", _noting(made))
    with wukongs.Engine() as own:
        own.load(io.BytesIO(DATA.encode()), format="nt")
        prepared = own.prepare(KNOWS)
        for name in "abcabc":
            prepared(s=f"<http://e/{name}>")
            own.query(KNOWS, bindings={"s": f"<http://e/{name}>", "unknown": "<http://e/a>"})
        prepared.many([{"s": f"<http://e/{name}>"} for name in "abc"])
    assert len(made) == 2, "those of the text, and those of ?s"
    assert sum(memo.planned_count for memo in made) <= 4, "of one row, of many, and with ?s left free"


def test_a_look_up_runs_no_executor_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with wukongs.Engine() as own:
        own.load(io.BytesIO(DATA.encode()), format="nt")
        look_up, other = own.prepare(KNOWS), own.prepare("DESCRIBE ?s")
        monkeypatch.setattr("wukongs.engine.ask", lambda *_, **__: pytest.fail("the usual way"))
        assert texts(look_up(s="<http://e/a>")) == ["b", "c"]
        assert len(look_up(s="<http://e/nobody>")) == 0
        with pytest.raises(pytest.fail.Exception, match="the usual way"):
            other(s="<http://e/a>")
        assert not own.stats()["handles"]
        with own._core.lock:
            own._core.arrangement.trace.seal(own._core.next_sn, build_batch(*(np.arange(9) for _ in range(4))))
            own._core.arrangement.trace.merge_all()
            own._core.windows.tidy()
            held = own._core.windows.now.table.batches(0).batches
            assert held == own._core.arrangement.trace.read(own._core.sn).batches
            assert len(held) == 1


def test_limits_hold_for_many_rows_that_are_alike() -> None:
    """A program finds 3,000 solutions once, and 250 rows have them."""
    facts = "".join(f"<http://e/a> <http://e/knows> <http://e/{at}> .\n" for at in range(3000))
    rows = [{"s": "<http://e/a>"}] * 250
    for size, is_enough in ((4 << 20, False), (64 << 20, True)):
        with wukongs.Engine(settings=wukongs.Settings(query_bytes_max=size)) as engine:
            engine.load(io.BytesIO(facts.encode()), format="nt")
            prepared = engine.prepare(KNOWS)
            assert prepared.many(rows[:2]).num_rows == 6000
            if is_enough:
                assert prepared.answer_many(rows).reservation is not None
                assert prepared.many(rows).num_rows == 750_000
            else:
                with pytest.raises(BudgetExceeded, match="query_bytes_max"):
                    prepared.many(rows)


def test_rows_max_holds_for_a_look_up_too() -> None:
    with wukongs.Engine(settings=wukongs.Settings(rows_max=2)) as own:
        own.load(io.BytesIO(DATA.encode()), format="nt")
        own.update("INSERT DATA { <http://e/c> <http://e/knows> <http://e/b>, <http://e/d> }")
        prepared = own.prepare(KNOWS)
        assert texts(prepared(s="<http://e/a>")) == ["b", "c"]
        with pytest.raises(BudgetExceeded, match="rows_max = 2"):
            prepared(s="<http://e/c>")


@pytest.mark.parametrize("given", ["s", "p", "o", "g"])
def test_a_term_that_clashes_with_one_of_the_data_matches_nothing(given: str) -> None:
    with wukongs.Engine(settings=wukongs.Settings(hash_bits=2)) as own:
        own.update("INSERT DATA { GRAPH <http://e/g> { <http://e/a> <http://e/knows> <http://e/b> } }")
        prepared = own.prepare("SELECT ?s ?p ?o { GRAPH ?g { ?s ?p ?o } }")
        assert len(prepared()) == 1
        assert not any(len(prepared({given: f"<http://e/none{number}>"})) for number in range(20))


def _noting(made: list[PlanMemo]) -> Any:
    init = PlanMemo.__init__

    def noted(self: PlanMemo, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        made.append(self)

    return noted
