"""Registered queries that are equal but for their names are evaluated once, and one of them keeps the matches."""

from __future__ import annotations

import pytest

import wukongs
from tests.engine_helpers import A, node, rows
from wukongs.live import answering

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
    """The scopes in which the executor has evaluated queries: their names and times."""
    found: list[str] = []
    answer = answering.answer

    def noted(*arguments: object, **options: object) -> object:
        found.append(str(options["scope"]))
        return answer(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(answering, "answer", noted)
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
            assert stats["explored_together"] == (6 if n else 0)
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
