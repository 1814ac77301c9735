"""The 22 queries of TPC-H as live views: the sum of their reports beside SQL, while rows are inserted, deleted, and
inserted again."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyoxigraph
import pytest

import wukongs
from tests.tpch_rows import Asked, random_tables, rounded
from wukongs.bench.peers import PeerFailed, TooSlow
from wukongs.bench.published import TPCH_QUERIES
from wukongs.bench.views.tpch.answers import Content, register
from wukongs.bench.views.tpch.oxigraph import Apart
from wukongs.bench.views.tpch.tables import Tables, texts, triples, write_ntriples

SCALE = 0.001
NUMBERS = range(1, 23)


def _check(seed: int, numbers: range, steps: int, orders: int) -> set[int]:
    """Insert nearly all rows, then change random ones; compare all views at first and after each step. Returns the
    queries whose answer has changed."""
    rng, tables = random.Random(seed), random_tables(seed, orders)
    places = [(name, place) for name, table in tables.items() for place in range(len(table))]
    live = {name: np.zeros(len(table), np.bool_) for name, table in tables.items()}
    asked = {number: texts(number, SCALE) for number in numbers}
    seen = {number: set[frozenset[object]]() for number in numbers}
    with wukongs.Engine() as engine:
        views = {number: Content(register(engine, f"Q{number}", text)) for number, (text, _) in asked.items()}
        for step in range(steps):
            count = (0, len(places))[step] if step < 2 else rng.choice((1, 2, 7, 40))
            drawn = rng.sample(places, min(count, len(places)))
            inserts = {(name, place) for name, place in drawn if not live[name][place] and rng.random() < 0.9}
            chosen = inserts | {(name, place) for name, place in drawn if live[name][place] and rng.random() < 0.3}
            engine.apply(_triples(tables, inserts), _triples(tables, chosen - inserts))
            for name, place in chosen:
                live[name][place] = not live[name][place]
            engine.settle(60)
            sqlite = Asked({name: table.filter(pa.array(live[name])) for name, table in tables.items()})
            for number, (_, sql) in asked.items():
                views[number].add(views[number].take())
                expected = sqlite.rows(sql)
                assert rounded(views[number].rows().elements()) == expected, (seed, step, number)
                seen[number].add(frozenset(expected.items()))
    return {number for number, answers in seen.items() if len(answers) > 1}


def _triples(tables: Tables, rows: set[tuple[str, int]]) -> pa.Table | None:
    found = [
        triples(name, table.take(places))
        for name, table in tables.items()
        if (places := sorted(place for one, place in rows if one == name))
    ]
    if not found:
        return None
    return pa.table([pa.concat_arrays(one) for one in zip(*found, strict=True)], ["subject", "predicate", "object"])


def test_views_follow_changed_rows() -> None:
    assert len(_check(2, NUMBERS, 3, 30)) > 12


@pytest.mark.slow
def test_views_follow_many_changed_rows() -> None:
    changed = set[int]().union(*(_check(seed, NUMBERS, 31, 60) for seed in range(4)))
    assert changed == set(NUMBERS)


def test_tables_are_written_as_the_triples_that_views_follow(tmp_path: Path) -> None:
    tables = random_tables(3, 20)
    write_ntriples(tables.items(), tmp_path / "rows.nt")
    lines = sorted((tmp_path / "rows.nt").read_text(encoding="utf-8").splitlines())
    columns = [triples(name, table) for name, table in tables.items()]
    wanted = [
        f"{s} {p} {o} ." for one in columns for s, p, o in zip(*(cells.to_pylist() for cells in one), strict=True)
    ]
    assert lines == sorted(wanted)
    store = pyoxigraph.Store()
    store.bulk_load(path=tmp_path / "rows.nt", format=pyoxigraph.RdfFormat.N_TRIPLES)
    assert len(store) == len(lines)


def test_pyoxigraph_is_given_up_and_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.nt"
    path.write_text("".join(f"<http://e/{one}> <http://e/p> <http://e/{one + 1}> .\n" for one in range(300)))
    peer = Apart.start(path, 2.0)
    try:
        for _ in range(2):
            taken_ms, rows = peer.ask("SELECT ?o { <http://e/0> <http://e/p> ?o }")
            assert rows == [("<http://e/1>",)]
            assert 0 < taken_ms < 2000
            with pytest.raises(TooSlow):
                peer.ask("SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(?a = ?l) }")
            with pytest.raises(PeerFailed, match="SyntaxError"):
                peer.ask("SELECT")
    finally:
        peer.close()
    assert peer.process.returncode == 0
    with pytest.raises(PeerFailed, match="did not load"):
        Apart.start(tmp_path / "none.nt", 2.0)


def test_numbers_below_queries_are_all_there() -> None:
    assert [f"Q{number}" for number in NUMBERS] == list(TPCH_QUERIES)
