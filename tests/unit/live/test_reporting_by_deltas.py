"""ISTREAM and DSTREAM of queries that keep their matches: only rows that came and went become texts."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, node, register_text, rows
from tests.fuzz import first_and_slow
from wukongs.live import reporting
from wukongs.query.terms import decoding

STEP = "RANGE 1s STEP 100ms"
WHERE = f"{{ ?s {node('p')} ?o }}"
TEXT = "a text that is too long for an id "


@pytest.fixture(autouse=True)
def by_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many terms have become texts to be compared, of each column."""
    counts: list[int] = []

    def counting(column: Any, terms: Any) -> list[str | None]:
        counts.append(len(column))
        return decoding.column_texts(column, terms)

    monkeypatch.setattr(reporting, "column_texts", counting)
    return counts


def tuples_at(end_ms: int, count: int) -> list[tuple[str, str, str, int]]:
    """Some come again with each stream batch, the others are new."""
    own = [(node(f"s{end_ms}"), node("p"), f'"{TEXT}{end_ms} {number}"', end_ms) for number in range(count)]
    return [*own, (node("s"), node("p"), f'"{TEXT}{end_ms % 300}"', end_ms)]


def bags(count: int, ends: range) -> dict[int, Counter[tuple[str, ...]]]:
    """Objects in the window that ends at a time, with repeats."""
    of = {end: {(s, o.strip('"')) for s, _, o, _ in tuples_at(end, count)} for end in ends}
    windows = {end: set().union(*(of[at] for at in ends if end - 1000 < at <= end)) for end in ends}
    return {end: Counter((o,) for _, o in found) for end, found in windows.items()}


def expected(output: str, count: int, ends: range) -> dict[int, Counter[tuple[str, ...]]]:
    found, before = {}, Counter[tuple[str, ...]]()
    for end, bag in bags(count, ends).items():
        found[end] = bag - before if output == "istream" else before - bag
        before = bag
    return found


def reported(query: Any) -> dict[int, Counter[tuple[str, ...]]]:
    return {window.end_ms: Counter(rows(window)) for window in query.results(timeout_s=0)}


@pytest.mark.parametrize("output", ["istream", "dstream"])
def test_work_follows_what_is_new(decoded: list[int], output: Any) -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
        stream.advance(0)
        query = engine.register(register_text(STEP, select="?o", where=WHERE), output=output)
        ends = range(100, 3001, 100)
        for end in ends:
            decoded.append(-end)
            stream.push(tuples_at(end, 20))
            stream.advance(end)
            engine.settle(60)
        assert reported(query) == expected(output, 20, ends)
        assert query.stats()["firings_by_deltas"] == 29
    last = decoded[decoded.index(-2000) :]
    assert all(count <= 21 for count in last if count >= 0), "what came, what went"
    assert sum(count for count in last if count >= 0) <= 11 * 2 * 21


@pytest.mark.parametrize("output", ["istream", "dstream"])
@pytest.mark.parametrize("hash_bits", first_and_slow([62, 6]))
def test_pauses_texts_and_restarts_in_between(tmp_path: Path, output: Any, hash_bits: int) -> None:
    settings = wukongs.Settings(hash_bits=hash_bits, log_segment_bytes=2048)
    ends, found = range(100, 4001, 100), dict[int, Counter[tuple[str, ...]]]()
    folder = tmp_path / "0"
    engine = wukongs.Engine(folder, settings=settings)
    stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
    stream.advance(0)
    text = register_text(STEP, select="?o", where=WHERE)
    query = engine.register(text, output=output)
    for end in ends:
        stream.push(tuples_at(end, 3))
        stream.advance(end)
        engine.settle(60)
        if end % 400 == 0:
            found |= reported(query)
        if end % 1000 == 0:
            engine.checkpoint()
        if end % 700 == 0:
            copy = tmp_path / str(end)
            shutil.copytree(folder, copy)
            engine.close()
            folder, engine = copy, wukongs.Engine(copy, settings=settings)
            stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
            query = engine.register(text, output=output)
    found |= reported(query)
    engine.close()
    assert found == expected(output, 3, ends)


def test_a_pause_begins_anew() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        query = engine.register(register_text(STEP, select="?o", where=WHERE), output="istream")
        ends = range(100, 2001, 100)
        for end in ends:
            stream.push(tuples_at(end, 3))
            stream.advance(end)
            engine.settle(60)
            if end in (500, 800):
                (query.pause if end == 500 else query.resume)()
        found = reported(query)
    whole = bags(3, ends)
    assert sorted(found) == [*range(100, 501, 100), *range(900, 2001, 100)]
    assert found[900] == whole[900]
    assert all(found[end] == whole[end] - whole[end - 100] for end in range(1000, 2001, 100))


@pytest.mark.parametrize("head", ["SELECT ?s", "SELECT DISTINCT ?s", "SELECT *"])
@pytest.mark.parametrize("output", ["istream", "dstream"])
def test_rows_that_come_and_go_at_once_are_told_of_as_a_whole(head: str, output: Any) -> None:
    """Subjects whose objects change are equal rows of different matches; what is stored goes at times."""
    text = (
        f"REGISTER QUERY q AS {head} FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 300ms STEP 100ms] "
        f"WHERE {{ GRAPH <{A}> {{ ?s {node('p')} ?o }} ?s {node('known')} ?k }}"
    )
    known = " . ".join(f"{node(f's{n}')} {node('known')} {node('k')}" for n in range(4))
    ends = range(100, 2501, 100)
    with wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ {known} }}")
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        query = engine.register(text, output=output)
        before, wanted, held = Counter[tuple[str, ...]](), {}, dict[int, set[tuple[str, str]]]()
        gone: set[str] = set()
        for end in ends:
            held[end] = {(f"s{n}", f"o{end // 100 * (n + 1) % 7}") for n in range(4) if (end // 100) % (n + 2)}
            stream.push([(node(s), node("p"), node(o), end) for s, o in sorted(held[end])])
            if end in (800, 1500):
                gone.add(f"s{end // 800 - 1}")
                engine.settle(60)
                engine.update(f"DELETE WHERE {{ {node(f's{end // 800 - 1}')} {node('known')} ?k }}")
            stream.advance(end)
            engine.settle(60)
            window = {pair for at, pairs in held.items() if at > end - 300 for pair in pairs if pair[0] not in gone}
            rows_of = [(s, o, "k") if head == "SELECT *" else (s,) for s, o in window]
            now = Counter(set(rows_of) if "DISTINCT" in head else rows_of)
            wanted[end] = now - before if output == "istream" else before - now
            before = now
        order = ("s", "o", "k")
        found = {}
        for result in query.results(timeout_s=0):
            places = [result.vars.index(name) for name in order if name in result.vars]
            found[result.end_ms] = Counter(tuple(row[place] for place in places) for row in rows(result))
    assert found == wanted


SHAPES = {
    "DISTINCT": ("DISTINCT ?o", "", ""),
    "a filter": ("?s ?o", "FILTER(STRLEN(STR(?o)) > 34)", ""),
    "DISTINCT above a filter": ("DISTINCT ?o", "FILTER(STRLEN(STR(?o)) > 34)", ""),
    "BIND": ("?t ?n", "BIND(STRLEN(STR(?o)) AS ?n) BIND(STR(?o) AS ?t)", ""),
    "groups": ("?o (COUNT(?s) AS ?n) (AVG(?w) AS ?a) (MIN(?s) AS ?m)", "", "GROUP BY ?o"),
    "groups with HAVING": ("?o (STR(MAX(?s)) AS ?m)", "", "GROUP BY ?o HAVING(SUM(?w) > 3)"),
    "distinct groups": ("DISTINCT ?n", "", "GROUP BY ?o"),
}


def shaped(shape: str, output: Any, decoded: list[int]) -> dict[int, Counter[tuple[str, ...]]]:
    """Return what is reported; decoded: see the fixture, and -1 before the last windows."""
    head, inner, tail = SHAPES[shape]
    head = head if shape != "distinct groups" else "DISTINCT (COUNT(?s) AS ?n)"
    where = f"{{ ?s {node('p')} ?o . ?s {node('w')} ?w {inner} }} {tail}"
    text = f"REGISTER QUERY q AS SELECT {head} FROM STREAM <{A}> [RANGE 2s STEP 100ms] WHERE {where}"
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
        stream.advance(0)
        query = engine.register(text, output=output)
        for end in range(100, 6001, 100):
            if end == 5000:
                decoded.append(-1)
            triples = []
            for number in range(3 if (end // 100) % 13 else 0):
                one = f'"{TEXT}{(end // 100 * (number + 3)) % 23}"'
                triples.append((node(f"s{(end // 100) % 29}x{number}"), node("p"), one, end))
                weight = f'"{number + end % 700 // 100}"^^<http://www.w3.org/2001/XMLSchema#integer>'
                triples.append((triples[-1][0], node("w"), weight, end))
            stream.push(triples)
            stream.advance(end)
            engine.settle(60)
        return {window.end_ms: Counter(map(tuple, window.texts())) for window in query.results(timeout_s=0)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("output", ["istream", "dstream"])
def test_rows_above_patterns_are_reported_by_what_came_and_went(
    monkeypatch: pytest.MonkeyPatch, decoded: list[int], shape: str, output: Any
) -> None:
    """The same as where all is compared; but for DISTINCT above groups no more than moves becomes texts."""
    monkeypatch.setattr("wukongs.incremental.maintained.STAY_MIN", 1)
    found = shaped(shape, output, decoded)
    counts = decoded[decoded.index(-1) + 1 :]
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 1e18)
    assert found == shaped(shape, output, decoded)
    assert any(found.values())
    if shape != "distinct groups":
        assert counts
        assert max(counts) <= 12


@pytest.mark.parametrize("operator", ["ISTREAM", "DSTREAM"])
@pytest.mark.parametrize(
    "select", ["?s ?o %s { ?s ?p ?o }", "?s (MIN(?o) AS ?n) %s { ?s ?p ?o } GROUP BY ?s"], ids=["rows", "groups"]
)
def test_what_went_may_have_had_to_go_for_want_of_room(operator: str, select: str) -> None:
    """No window to come reads the slice, so it goes first when a stream is full, and its terms with it."""
    select = select.replace("?p", node("p"))
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True, history_ms=0)
        window = f"FROM STREAM <{A}> [RANGE 300ms STEP 100ms]"
        query = engine.register(f"REGISTER {operator} q AS SELECT {select % window}")
        for number in range(1, 7):
            stream.push([(node(f"s{number}n{n}"), node("p"), node(f"o{number}n{n}"), 100 * number) for n in range(40)])
            if number == 6:
                with engine._core.lock:
                    engine._core.drop_slices(engine._core.streams[A], 300)
                    terms = engine._core.registry.transient
                    terms._finish()
                    terms._begin(0)
                    terms._finish()
                    terms._publish()
            stream.advance(100 * number)
            engine.settle(60)
        assert query.stats()["firings_by_deltas"] > 0
        found = {window.end_ms: {row[0] for row in rows(window)} for window in query.results(timeout_s=0)}
    came_in = 6 if operator == "ISTREAM" else 3
    assert found[600] == {f"s{came_in}n{n}" for n in range(40)}
    assert len(found[500]) == 40
