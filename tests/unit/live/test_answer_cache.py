"""Firings that read the same versions of their inputs are evaluated once: of equal queries, and of quiet windows."""

from __future__ import annotations

import random
from typing import Any

import pytest

import wukongs
from tests.engine_helpers import A, node, rows
from wukongs.live import answer_cache, answering, joined_queries
from wukongs.live.answer_cache import AnswerCache, CachedAnswer
from wukongs.live.query_counts import REPEATED
from wukongs.live.query_firings import QueryFirings
from wukongs.query.execution.argument_rows import ArgumentRows

WINDOW = f"FROM STREAM <{A}> [RANGE 300ms STEP 100ms]"
WHERE = f"WHERE {{ ?s {node('p')} ?v . ?v {node('q')} ?w }}"
COUNT = f"REGISTER QUERY %s AS SELECT ?s (COUNT(?w) AS ?n) {WINDOW} {WHERE} GROUP BY ?s"
TEXTS = {
    "grouped": COUNT,
    "by executor": f"REGISTER QUERY %s AS SELECT ?s ?w {WINDOW} {WHERE} ORDER BY ?s",
    "ask": f"REGISTER QUERY %s AS ASK {WINDOW} {WHERE}",
}


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names and times of queries that the executor, or a program, has evaluated."""
    found: list[str] = []
    answer = answering.answer

    def noted(*arguments: object, **options: object) -> object:
        found.append(str(options["scope"]))
        return answer(*arguments, **options)  # type: ignore[arg-type]

    programmed = answering.Answering._programmed

    def noted_program(self: Any, firing: Any, *arguments: Any) -> Any:
        ran = programmed(self, firing, *arguments)
        if ran[0] is not None:
            found.append(f"{self.name}@{firing.at_ms}")
        return ran

    reported = QueryFirings.report_directly

    def noted_direct(self: QueryFirings, firings: Any, cached: CachedAnswer, way: Any, *times: float) -> None:
        if way != REPEATED:
            found.append(f"{self.name}@{firings.at_ms}")
        reported(self, firings, cached, way, *times)

    monkeypatch.setattr(answering, "answer", noted)
    monkeypatch.setattr(answering.Answering, "_programmed", noted_program)
    monkeypatch.setattr(QueryFirings, "report_directly", noted_direct)
    return found


def push(stream: wukongs.Stream, engine: wukongs.Engine, first: int, last: int) -> None:
    """In each stream batch three subjects share an object, which they had in the one before."""
    for number in range(first, last + 1):
        at_ms = 100 * number
        new = [(node(f"s{n}"), node("p"), node(f"v{number - number % 2}"), at_ms) for n in range(3)]
        stream.push([*new, (node(f"v{number - number % 2}"), node("q"), node(f"w{number}"), at_ms)])
        stream.advance(at_ms)
    engine.settle(60)


def shown(query: wukongs.ContinuousQuery) -> list[object]:
    return [
        (window.end_ms, window.boolean if window.kind == "ask" else rows(window))
        for window in query.results(timeout_s=0)
    ]


@pytest.mark.nojit
@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("rows_min", [1e18, 0.0], ids=["anew", "kept"])
def test_equal_queries_are_evaluated_once(
    form: str, rows_min: float, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", rows_min)
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        queries = [engine.register(TEXTS[form].replace(" AS ", "\nAS ") % f"q{n}") for n in range(5)]
        alone = engine.register((TEXTS[form] % "alone").replace("?w", "?x"))
        push(stream, engine, 1, 6)
        assert len(evaluated) == 12
        assert {scope.partition("@")[0] for scope in evaluated} == {"q0", "alone"}
        expected = shown(alone)
        assert len(expected) == 6
        for n, query in enumerate(queries):
            stats = query.stats()
            assert shown(query) == expected
            assert stats["found_by"].get("cached_answer", 0) == (6 if n else 0)
            assert (stats.get("firings_by_deltas", 0) > 0) is (n == 0 and rows_min == 0.0 and form != "ask")


@pytest.mark.nojit
def test_another_goes_on_where_the_first_is_paused_or_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only one holds matches at any time."""
    monkeypatch.setattr("wukongs.query.plans.deltas.ROWS_MIN", 0.0)
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        queries = [engine.register(COUNT % f"q{n}") for n in range(3)]
        push(stream, engine, 1, 4)
        queries[0].pause()
        push(stream, engine, 5, 8)
        assert [query.stats().get("matches_kept", 0) > 0 for query in queries[1:]] == [True, False]
        queries[0].resume()
        push(stream, engine, 9, 12)
        assert sum(query.stats().get("matches_kept", 0) > 0 for query in queries) == 1
        queries[1].close()
        push(stream, engine, 13, 16)
        first, second, third = map(shown, queries)
    assert len(third) == 16
    assert first == [*third[:4], *third[8:]]
    assert second == third[:12]


@pytest.mark.parametrize(
    "text",
    [
        f"REGISTER QUERY %s AS SELECT ?s (RAND() AS ?r) {WINDOW} {WHERE}",
        f"REGISTER ISTREAM %s AS SELECT ?s ?w {WINDOW} {WHERE} ORDER BY ?s",
        f"REGISTER QUERY %s AS CONSTRUCT {{ ?s {node('r')} _:b }} {WINDOW} {WHERE}",
    ],
    ids=["draws values", "compared with the firing before", "makes blank nodes"],
)
def test_what_belongs_to_one_query_is_its_own(text: str, evaluated: list[str]) -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        for n in range(2):
            engine.register(text % f"q{n}")
        push(stream, engine, 1, 3)
    assert len(evaluated) == 6


def test_one_that_fails_is_tried_by_each(evaluated: list[str]) -> None:
    """Each query tells of the limit by its own name."""
    with wukongs.Engine(settings=wukongs.Settings(rows_max=2)) as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        queries = [engine.register(TEXTS["by executor"] % f"q{n}") for n in range(2)]
        push(stream, engine, 1, 1)
        for query in queries:
            with pytest.raises(wukongs.BudgetExceeded, match="rows_max = 2"):
                list(query.results(timeout_s=0))
    assert len(evaluated) == 2


STORED = "FROM <urn:x-wukongs:default>"
QUIET = f"FROM STREAM <{A}> [RANGE 1s STEP 100ms]"


def settled(engine: wukongs.Engine, stream: wukongs.Stream, number: int) -> None:
    stream.advance(100 * number)
    engine.settle(60)


def found_by_cache(query: wukongs.ContinuousQuery) -> int:
    return int(query.stats()["found_by"].get("cached_answer", 0))


@pytest.mark.nojit
def test_a_quiet_window_is_evaluated_once(evaluated: list[str]) -> None:
    """Also what compares each answer with the one before, and what makes a graph, while there is nothing."""
    optional = f"{{ ?s {node('p')} ?v OPTIONAL {{ ?v {node('q')} ?w }} }}"
    heads = {
        "rows": f"REGISTER QUERY rows AS SELECT ?s ?v {QUIET} WHERE {optional}",
        "changes": f"REGISTER ISTREAM changes AS SELECT ?s ?v {QUIET} WHERE {optional}",
        "graph": f"REGISTER QUERY graph AS CONSTRUCT {{ ?s {node('r')} [] }} {QUIET} WHERE {optional}",
    }
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        queries = {name: engine.register(text) for name, text in heads.items()}
        stream.push([(node("s"), node("p"), node("v"), 50)])
        for number in range(1, 21):
            settled(engine, stream, number)
        windows = {name: [len(window) for window in query.results(timeout_s=0)] for name, query in queries.items()}
        counts = [found_by_cache(query) for query in queries.values()]
    assert windows == {"rows": [1] * 10 + [0] * 10, "changes": [1] + [0] * 19, "graph": [1] * 10 + [0] * 10}
    assert counts == [18, 9, 9]
    assert len(evaluated) == 60 - sum(counts)


@pytest.mark.parametrize("way", ["one pattern", "executor"])
def test_only_stored_predicates_that_are_read_have_versions(way: str) -> None:
    pattern = f"?s {node('q')} ?o"
    where = pattern if way == "one pattern" else f"{pattern} OPTIONAL {{ ?o {node('r')} ?x }}"
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        query = engine.register(f"REGISTER QUERY q AS SELECT ?s {QUIET} {STORED} WHERE {{ {where} }}")
        for number in range(1, 13):
            if number % 3 == 0:
                predicate = node("q" if number % 6 == 0 else "other")
                engine.update(f"INSERT DATA {{ {node(f's{number}')} {predicate} 1 }}")
            settled(engine, stream, number)
        assert [len(window) for window in query.results(timeout_s=0)] == [0] * 5 + [1] * 6 + [2]
        assert found_by_cache(query) == 9


@pytest.mark.parametrize(
    "where",
    [
        f"{{ GRAPH ?g {{}} OPTIONAL {{ ?s {node('p')} ?o }} }}",
        f"{{ GRAPH ?g {{ {node('a')} {node('p')}* ?b }} }}",
        "{ GRAPH ?g { ?a ?any ?b } }",
        f"{{ GRAPH ?g {{ ?a {node('p')} ?b OPTIONAL {{ ?b {node('q')} ?c }} }} }}",
        f"{{ ?a {node('p')} ?b MINUS {{ ?b {node('q')} ?c }} }}",
        f"{{ ?a {node('p')}/{node('q')} ?b }}",
        f"{{ ?a {node('p')} ?b FILTER NOT EXISTS {{ ?b {node('q')} ?a }} }}",
        f"{{ SELECT (COUNT(*) AS ?n) WHERE {{ ?a {node('p')} ?b . ?b {node('q')} ?c }} }}",
    ],
)
def test_windows_over_stored_graphs_that_change_are_as_without_a_cache(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for is_cached in (True, False):
        if not is_cached:
            monkeypatch.setattr(AnswerCache, "get", lambda cache, algebra, versions: CachedAnswer(versions))
        found.append([life(where, random.Random(seed), is_cached=is_cached) for seed in range(3)])
    assert found[0] == found[1]
    assert len({str(window) for windows in found[0] for window in windows}) > 1


def life(where: str, rng: random.Random, *, is_cached: bool) -> list[object]:
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        chain = f"{node('a')} {node('p')} {node('b')} . {node('b')} {node('q')} {node('c')}"
        engine.update(f"INSERT DATA {{ {chain} . GRAPH {node('g1')} {{ {chain} }} }}")
        clause = f"{QUIET} {STORED} FROM NAMED {node('g1')} FROM NAMED {node('g2')}"
        query = engine.register(f"REGISTER QUERY q AS SELECT * {clause} WHERE {where}")
        for number in range(1, 30):
            if rng.random() < 0.4:
                ends = [node(rng.choice("abc")) for _ in range(2)]
                triple = f"{ends[0]} {node(rng.choice('ppqqr'))} {ends[1]}"
                graph = rng.choice(["%s", f"GRAPH {node('g1')} {{ %s }}", f"GRAPH {node('g2')} {{ %s }}"])
                engine.update(f"{rng.choice(['INSERT', 'DELETE'])} DATA {{ {graph % triple} }}")
            if rng.random() < 0.1:
                stream.push([(node(rng.choice("abc")), node("p"), node(rng.choice("abc")), 100 * number - 50)])
            settled(engine, stream, number)
        assert (found_by_cache(query) > 3) is is_cached
        return [sorted(rows(window)) for window in query.results(timeout_s=0)]


def test_arguments_are_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that joins a group, or leaves it, is a change of its arguments."""
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)
    expanded, asked = ArgumentRows.expanded, list[int]()

    def noted(rows: ArgumentRows, *arguments: Any) -> Any:
        asked.append(rows.length)
        return expanded(rows, *arguments)

    monkeypatch.setattr(ArgumentRows, "expanded", noted)
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        text = f"REGISTER QUERY %s AS SELECT ?v {QUIET} WHERE {{ %s {node('p')} ?v }}"
        queries = [engine.register(text % (f"q{n}", node(f"s{n}"))) for n in range(3)]
        table = engine.register(text % ("table", "?s"), bindings=[{"s": node("s1")}, {"s": node("s4")}])
        stream.push([(node(f"s{n}"), node("p"), node(f"v{n}"), 50) for n in range(4)])
        for number in range(1, 13):
            if number == 4:
                queries.append(engine.register(text % ("q3", node("s3"))))
            if number == 7:
                queries[0].close()
            settled(engine, stream, number)
        found = [[len(window) for window in query.results(timeout_s=0)] for query in [*queries, table]]
    assert found == [[1] * 6, *[[1] * 10 + [0] * 2] * 2, [1] * 7 + [0] * 2, [1] * 10 + [0] * 2]
    assert sorted(asked) == [2, 2, 3, 3, 3, 4], "each of the two windows once, and after each change of the arguments"


def test_answers_take_a_bounded_room(monkeypatch: pytest.MonkeyPatch, evaluated: list[str]) -> None:
    monkeypatch.setattr(answer_cache, "KEPT_BYTES", 100)
    with wukongs.Engine() as engine:
        stream = engine.stream(A, batch_ms=100, timing=True)
        stream.advance(0)
        query = engine.register(f"REGISTER QUERY q AS SELECT ?s {QUIET} WHERE {{ ?s {node('p')} ?v }} ORDER BY ?s")
        stream.push([(node(f"s{n}"), node("p"), node("v"), 50) for n in range(20)])
        for number in range(1, 5):
            settled(engine, stream, number)
        assert [len(window) for window in query.results(timeout_s=0)] == [20] * 4
    assert len(evaluated) == 4
