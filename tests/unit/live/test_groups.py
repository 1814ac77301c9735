"""Groups: registered queries that differ in constants are explored together, and each goes on by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import cluster
from tests.scenarios.test_groups import EX, FRIENDS, WINDOW, begin, posted, push, register, windows
from wukongs.csparql.parser import parse_query
from wukongs.live import injector as injector_module
from wukongs.live.groups import Groups
from wukongs.live.query_templates import template_of


@pytest.mark.nojit
def test_what_stands_over_the_patterns_may_differ() -> None:
    """Columns, DISTINCT, ORDER BY, LIMIT, aggregates, CONSTRUCT; ASK goes alone. So does the first firing of what the
    executor evaluates: it tells whether matches are worth keeping."""
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
            assert counts == ([3, 3, 2, 2, 2, 2, 0] * 2 if together else [0] * 14)
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
        queries = [register(engine, f"q{n}", f"{FRIENDS % n} ORDER BY ?f ?p") for n in range(3)]
        push(engine, stream, 1100)
        for n, query in enumerate(queries):
            assert windows(query) == [posted(n, number) for number in range(11)]
            assert query.stats()["explored_together"] == 2
    assert len(tried) == 4, "after two, and then after four firings alone, of the ten behind the first"


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


@pytest.mark.parametrize("output", ["QUERY", "ISTREAM", "DSTREAM"])
@pytest.mark.parametrize("node_count", [2, 3])
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
