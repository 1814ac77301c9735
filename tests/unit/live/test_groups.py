"""Queries that differ in constants, or in what stands above their patterns: each has rows of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import cluster
from tests.fuzz import first_and_slow
from tests.scenarios.test_groups import FRIENDS, begin, posted, push, register, windows
from wukongs.live import joined_queries


@pytest.mark.nojit
def test_what_stands_over_the_patterns_may_differ() -> None:
    """Columns, DISTINCT, ORDER BY, LIMIT, aggregates, CONSTRUCT, ASK: those of one shape fire as one."""
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
    for alone_max in (1, 1 << 30):
        with wukongs.Engine() as engine, pytest.MonkeyPatch.context() as patch:
            patch.setattr(joined_queries, "ALONE_MAX", alone_max)
            stream = begin(engine)
            queries = [
                register(engine, f"q{n}", where % n, head) for n, (head, where) in enumerate([*heads.items()] * 2)
            ]
            push(engine, stream, 300)
            found.append([[_shown(window) for window in query.results(timeout_s=0)] for query in queries])
            counts = [query.stats().get("queries", 0) for query in queries]
            assert counts == [0] * 7 + ([1] * 5 + [0] * 2 if alone_max == 1 else [0] * 7)
    assert found[0] == found[1]


def _shown(window: wukongs.WindowResult) -> object:
    return window.boolean if window.kind == "ask" else sorted(map(tuple, window.texts()))


@pytest.mark.nojit
def test_a_query_that_is_paused_by_another_keeps_nothing_in_the_log(tmp_path: Path) -> None:
    queries: list[wukongs.ContinuousQuery] = []

    def pause_the_other(window: wukongs.WindowResult) -> None:
        if window.end_ms == 100:
            queries[1].pause()

    seen: list[int] = []
    with wukongs.Engine(tmp_path / "data") as engine:
        stream = begin(engine)
        queries += [register(engine, "q0", FRIENDS % 0, on_result=pause_the_other)]
        queries += [register(engine, "q1", FRIENDS % 1, on_result=lambda window: seen.append(window.end_ms))]
        push(engine, stream, 100)
        push(engine, stream, 600, 100)
        engine.checkpoint()
        durability: Any = engine.stats()["durability"]
        assert durability["oldest_unacknowledged_ms"] is None
    with wukongs.Engine(tmp_path / "data") as engine:
        register(engine, "q1", FRIENDS % 1, on_result=lambda window: seen.append(window.end_ms))
        engine.settle(60)
    assert seen == [100]


@pytest.mark.parametrize("output", ["QUERY", "ISTREAM", "DSTREAM"])
@pytest.mark.parametrize("node_count", first_and_slow([2, 3]))
def test_a_group_asks_other_nodes_as_one_query_does(node_count: int, output: str) -> None:
    """The first query of a shape stays alone, so there are two that ask."""
    with cluster(node_count) as nodes:
        engine = nodes[0].engine
        stream = begin(engine)
        queries = [register(engine, f"q{n}", FRIENDS % n, output=output) for n in range(20)]
        reach = nodes[0].store.core.reach
        assert reach is not None
        before = reach.traffic.numbers()
        push(engine, stream, 400)
        requests = int((reach.traffic.numbers() - before)[0])
        for n, query in enumerate(queries):
            held = [posted(n, number) for number in range(4)]
            before, after = [set[tuple[str, str]](), *held], [*held, set[tuple[str, str]]()]
            inserted, deleted = (
                [a - b for a, b in zip(x, y, strict=True)] for x, y in ((after, before), (before, after))
            )
            assert windows(query) == {"QUERY": held, "ISTREAM": inserted[:4], "DSTREAM": deleted[:4]}[output]
            assert query.stats()["explored_together"] == 4 * (n > 0)
        assert 0 < requests <= 2 * 4 * 2 * (node_count - 1), "twice of each other node at each of four moments"
