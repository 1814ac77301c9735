"""Groups: registered queries that differ in constants are explored together, and each goes on by itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import cluster
from wukongs.csparql.parser import parse_query
from wukongs.live import injector as injector_module
from wukongs.live.groups import Groups
from wukongs.live.query_templates import template_of
from wukongs.live.stream import Stream

EX, STREAM = "http://ex/", "http://ex/stream"
WINDOW = f"FROM <urn:x-wukongs:default> FROM STREAM <{STREAM}> [RANGE 200ms STEP 100ms]"
FRIENDS = "{ <http://ex/u%d> <http://ex/knows> ?f . ?f <http://ex/posts> ?p }"
USERS = 30


def begin(engine: wukongs.Engine) -> Stream:
    """Each user knows the next three; the stream is there."""
    pairs = ((i, (i + step) % USERS) for i in range(USERS) for step in (1, 2, 3))
    data = "".join(f"<{EX}u{i}> <{EX}knows> <{EX}u{j}> .\n" for i, j in pairs)
    engine.load(io.BytesIO(data.encode()), format="nt")
    return engine.stream(STREAM, timing=True, batch_ms=100)


def register(
    engine: wukongs.Engine, name: str, where: str, head: str = "SELECT ?f ?p", on_result: Callable | None = None
) -> wukongs.ContinuousQuery:
    return engine.register(f"REGISTER QUERY {name} AS {head} {WINDOW} WHERE {where}", on_result)


def push(engine: wukongs.Engine, stream: Stream, end_ms: int) -> None:
    """In each stream batch every third user posts once."""
    for number in range(end_ms // 100):
        posts = range(number % 3, USERS, 3)
        stream.push([(f"<{EX}u{i}>", f"<{EX}posts>", f"<{EX}p{i}n{number}>", number * 100 + 50) for i in posts])
    stream.advance(end_ms)
    engine.settle(60)


def posted(user: int, number: int) -> set[tuple[str, str]]:
    """What those whom a user knows have posted in the stream batch and in the one before it."""
    known = [(user + step) % USERS for step in (1, 2, 3)]
    batches = [one for one in (number - 1, number) if one >= 0]
    return {(f"<{EX}u{i}>", f"<{EX}p{i}n{one}>") for i in known for one in batches if i % 3 == one % 3}


def windows(query: wukongs.ContinuousQuery) -> list[set[tuple[str, ...]]]:
    return [set(map(tuple, window.texts())) for window in query.results(timeout_s=0)]


@pytest.mark.nojit
def test_each_query_gets_its_own_rows() -> None:
    """Two hundred queries, more than are picked at a time, some of them twice."""
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % (n % USERS)) for n in range(200)]
        push(engine, stream, 400)
        for n, query in enumerate(queries):
            assert windows(query) == [posted(n % USERS, number) for number in range(4)]
            assert query.stats()["explored_together"] == 4
        assert "together with those of 199 other queries of the template" in queries[7].explain()


@pytest.mark.nojit
def test_what_stands_over_the_patterns_may_differ() -> None:
    """Columns, DISTINCT, ORDER BY, LIMIT, aggregates, CONSTRUCT; ASK goes alone."""
    heads = {
        "SELECT ?f": FRIENDS,
        "SELECT DISTINCT ?f": FRIENDS,
        "SELECT (COUNT(*) AS ?n)": FRIENDS,
        "SELECT ?p ?f": FRIENDS + " ORDER BY DESC(?p) LIMIT 2",
        "SELECT ?f (STR(?p) AS ?text)": FRIENDS,
        "CONSTRUCT { ?p <http://ex/by> ?f }": FRIENDS,
        "ASK": FRIENDS,
    }
    found = []
    for together in (True, False):
        with wukongs.Engine() as engine, pytest.MonkeyPatch.context() as patch:
            if not together:
                patch.setattr(injector_module, "FIRINGS_MAX", 1)
            stream = begin(engine)
            queries = [
                register(engine, f"q{n}", where % n, head) for n, (head, where) in enumerate([*heads.items()] * 2)
            ]
            push(engine, stream, 300)
            found.append([[_shown(window) for window in query.results(timeout_s=0)] for query in queries])
            counts = [query.stats()["explored_together"] for query in queries]
            assert counts == ([3, 3, 3, 3, 3, 3, 0] * 2 if together else [0] * 14)
    assert found[0] == found[1]


def _shown(window: wukongs.WindowResult) -> object:
    return window.boolean if window.kind == "ask" else sorted(map(tuple, window.texts()))


@pytest.mark.nojit
def test_a_query_that_is_closed_or_paused_by_one_before_it_reports_nothing_more() -> None:
    seen: list[tuple[str, int]] = []
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries: dict[str, wukongs.ContinuousQuery] = {}

        def note(name: str) -> Callable[[wukongs.WindowResult], None]:
            def on_result(window: wukongs.WindowResult) -> None:
                seen.append((name, window.end_ms))
                if (name, window.end_ms) == ("q0", 200):
                    queries["q1"].close()
                    queries["q2"].pause()
                if (name, window.end_ms) == ("q0", 300):
                    queries["q2"].resume()

            return on_result

        for n in range(4):
            queries[f"q{n}"] = register(engine, f"q{n}", FRIENDS % n, on_result=note(f"q{n}"))
        push(engine, stream, 400)
    assert [end_ms for name, end_ms in seen if name == "q1"] == [100]
    # At 300 q2 had been left out when it was resumed: all of a moment is picked at once.
    assert [end_ms for name, end_ms in seen if name == "q2"] == [100, 400]
    assert [end_ms for name, end_ms in seen if name == "q3"] == [100, 200, 300, 400]


@pytest.mark.nojit
def test_a_query_that_is_paused_by_one_before_it_keeps_nothing_in_the_log(tmp_path: Path) -> None:
    queries: list[wukongs.ContinuousQuery] = []

    def pause_the_other(window: wukongs.WindowResult) -> None:
        if window.end_ms == 200:
            queries[1].pause()

    seen: list[int] = []
    with wukongs.Engine(tmp_path / "data") as engine:
        stream = begin(engine)
        queries += [register(engine, "q0", FRIENDS % 0, on_result=pause_the_other)]
        queries += [register(engine, "q1", FRIENDS % 1, on_result=lambda window: seen.append(window.end_ms))]
        push(engine, stream, 600)
        engine.checkpoint()
        durability: Any = engine.stats()["durability"]
        assert durability["oldest_unacknowledged_ms"] is None
    with wukongs.Engine(tmp_path / "data") as engine:
        register(engine, "q1", FRIENDS % 1, on_result=lambda window: seen.append(window.end_ms))
        engine.settle(60)
    assert seen == [100]


@pytest.mark.nojit
def test_a_mistake_of_ours_is_met_by_each_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a group that has failed is not tried at each firing again."""
    explore, tried = Groups._explore, []

    def fail(groups: Groups, *arguments: Any) -> Any:
        tried.append(arguments)
        if len(tried) < 3:
            raise ValueError("a mistake of ours")
        return explore(groups, *arguments)

    monkeypatch.setattr(Groups, "_explore", fail)
    with wukongs.Engine() as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(3)]
        push(engine, stream, 1000)
        for n, query in enumerate(queries):
            assert windows(query) == [posted(n, number) for number in range(10)]
            assert query.stats()["explored_together"] == 2
    assert len(tried) == 4, "after two, and then after four firings alone, of ten"


@pytest.mark.nojit
def test_what_is_too_much_together_is_explored_alone() -> None:
    """Five rows are allowed: each query has at most six in its window, all of them sixty."""
    with wukongs.Engine(settings=wukongs.Settings(rows_max=8)) as engine:
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(USERS)]
        wide = register(engine, "wide", "{ ?u <http://ex/knows> ?f . ?f <http://ex/posts> ?p }")
        push(engine, stream, 200)
        for n, query in enumerate(queries):
            assert windows(query) == [posted(n, number) for number in range(2)]
            assert query.stats()["explored_together"] == 0
        with pytest.raises(wukongs.BudgetExceeded):
            windows(wide)


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("{ <u> <p> ?x }", "{ <v> <p> ?x }", True),
        ("{ <u> <p> ?x }", "{ <u> <p> ?x }", True),
        ("{ ?x <p> 1 }", "{ ?x <p> 'a'@en }", True),
        ("{ <u> <p> ?x }", "{ <u> <q> ?x }", False),
        ("{ <u> <p> ?x }", "{ ?x <p> <u> }", False),
        ("{ <u> <p> ?x }", "{ <u> <p> ?y }", False),
        ("{ <u> <p> ?x FILTER(?x > 1) }", "{ <v> <p> ?x FILTER(?x > 1) }", True),
        ("{ <u> <p> ?x FILTER(?x > 1) }", "{ <u> <p> ?x FILTER(?x > 2) }", False),
        ("{ GRAPH <g> { <u> <p> ?x } }", "{ GRAPH <h> { <u> <p> ?x } }", False),
        ("{ <u> <p> ?x FILTER(RAND() > 0.5) }", "{ <u> <p> ?x FILTER(RAND() > 0.5) }", False),
        ("{ <u> <p> ?x FILTER EXISTS { ?x <q> 1 } }", "{ <u> <p> ?x FILTER EXISTS { ?x <q> 1 } }", False),
        ("{ <u> <p> ?x OPTIONAL { ?x <q> ?y } }", "{ <v> <p> ?x OPTIONAL { ?x <q> ?y } }", False),
        ("{ <u> <p>+ ?x }", "{ <v> <p>+ ?x }", False),
    ],
)
def test_which_queries_have_one_template(one: str, other: str, are_alike: bool) -> None:
    head = f"BASE <{EX}> REGISTER QUERY q AS SELECT ?x {WINDOW} FROM NAMED <g> FROM NAMED <h>"
    first, second = (template_of(parse_query(f"{head} {where}")) for where in (one, other))
    assert (first is not None and second is not None and first.shape == second.shape) is are_alike


@pytest.mark.parametrize("node_count", [2, 3])
def test_a_group_asks_other_nodes_as_one_query_does(node_count: int) -> None:
    with cluster(node_count) as nodes:
        engine = nodes[0].engine
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n) for n in range(20)]
        reach = nodes[0].store.core.reach
        assert reach is not None
        before = reach.traffic.numbers()
        push(engine, stream, 400)
        requests = int((reach.traffic.numbers() - before)[0])
        for n, query in enumerate(queries):
            assert windows(query) == [posted(n, number) for number in range(4)]
            assert query.stats()["explored_together"] == 4
        assert 0 < requests <= 4 * 2 * (node_count - 1), "twice of each other node at each of four moments"
