"""Paths of registered queries that follow what changes: when they do, when they are searched, what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

import wukongs
from wukongs.query.paths import kept_paths, reach

S = "http://e/s"
DEFAULT = "FROM <urn:x-wukongs:default>"
STORED = f"FROM NAMED STREAM <{S}> [RANGE 100ms STEP 100ms] {DEFAULT}"
COUNT = 3000
"""Links of a chain: a search from its first node finds enough to keep the walks."""


def node(number: int) -> str:
    return f"<http://e/{number}>"


def link(start: int, end: int | None = None, predicate: str = "p") -> str:
    return f"{node(start)} <http://e/{predicate}> {node(start + 1 if end is None else end)}"


class Lived:
    """An engine whose stored graph is a chain of links, and a stream that moves time on."""

    def __init__(self, engine: wukongs.Engine, count: int = COUNT) -> None:
        self.engine: Any = engine
        self.stream = engine.stream(S, timing=True, batch_ms=100)
        self.at_ms = 0
        if count:
            self.insert(*map(link, range(count)))

    def insert(self, *triples: str) -> None:
        self.engine.update(f"INSERT DATA {{ {' . '.join(triples)} }}")

    def delete(self, *triples: str) -> None:
        self.engine.update(f"DELETE DATA {{ {' . '.join(triples)} }}")

    def register(self, where: str, clause: str = STORED, name: str = "q") -> Any:
        select = f"PREFIX : <http://e/> REGISTER QUERY {name} AS SELECT *"
        return self.engine.register(f"{select} {clause} WHERE {{ {where} }}")

    def fire(self, query: Any, times: int = 1) -> int:
        """Fire a query; return the rows of the last window."""
        for _ in range(times):
            self.at_ms += 100
            self.stream.advance(self.at_ms)
            self.engine.settle(60)
        return [len(window) for window in query.results(timeout_s=0)][-1]


def told(query: Any) -> str:
    [line] = [line for line in query.explain().splitlines() if line.startswith("path ")]
    return str(line)


def test_walks_from_a_constant_follow_loads_and_deletions() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        query = lived.register(f"{node(0)} :p+ ?y")
        assert lived.fire(query, 3) == COUNT
        assert query.stats()["paths_kept"] == 1
        assert query.stats()["walks_kept"] == COUNT + 1
        assert query.stats()["walks_bytes"] > 40 * COUNT
        lived.delete(link(2500))
        assert lived.fire(query) == 2500
        lived.insert(link(5, 2501))
        assert lived.fire(query) == COUNT
        assert query.stats()["moves_of_paths"] == 2
        assert told(query) == f"path <c> <http://e/p>+ ?y: {COUNT + 1} walks are kept, and were moved on 2 times"


def test_a_change_costs_what_it_changes() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        query = lived.register(f"{node(0)} :p+ ?y")
        lived.fire(query, 3)
        [path] = query.text.answering._paths._known.values()
        before = path.looked_at
        lived.delete(link(COUNT - 1))
        assert lived.fire(query) == COUNT - 1
        lived.insert(link(COUNT - 1))
        assert lived.fire(query) == COUNT
        assert path.looked_at - before < 50


def test_queries_share_the_walks_over_the_stored_graph() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        queries = [lived.register(f"{node(at)} :p+ ?y", name=f"q{at}") for at in range(3)]
        for _ in range(3):
            lived.fire(queries[0])
        assert [len(list(query.results(timeout_s=0))[-1]) for query in queries[1:]] == [COUNT - 1, COUNT - 2]
        paths = [path for query in queries for path in query.text.answering._paths._known.values()]
        assert len({id(path._index) for path in paths}) == 1
        assert [query.stats()["walks_kept"] for query in queries] == [3 * COUNT] * 3, "each origin is one, too"
        lived.delete(link(2500))
        assert lived.fire(queries[0]) == 2500
        assert [len(list(query.results(timeout_s=0))[-1]) for query in queries[1:]] == [2499, 2498]
        assert paths[0]._index.moved_count == 1, "it was moved once"
        assert [query.stats()["moves_of_paths"] for query in queries] == [1] * 3


def test_in_circles_nothing_stands_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "WORK_MIN", 10 * COUNT)
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        lived.insert(link(COUNT, 500), link(2500, 10))
        query = lived.register(f"{node(0)} :p* ?y")
        assert lived.fire(query, 3) == COUNT + 1
        lived.delete(link(700))
        assert lived.fire(query) == 701
        lived.insert(link(3, 2400))
        assert lived.fire(query) == 701 + COUNT + 1 - 2400
        lived.delete(link(3, 2400), link(0))
        assert lived.fire(query) == 1
        assert query.stats()["paths_kept"] == 1
        assert query.stats()["moves_of_paths"] == 3


def test_a_search_that_finds_little_stays_one() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine, 100)
        query = lived.register(f"{node(0)} :p+ ?y")
        assert lived.fire(query, 4) == 100
        assert query.stats()["paths_kept"] == 0
        reason = f"searched at each firing, since a search finds fewer than {kept_paths.ROWS_MIN} rows"
        assert told(query) == f"path <c> <http://e/p>+ ?y: {reason}"
        assert engine._core.arrangement.trace.watchers == set()


def test_paths_that_stop_early_or_count_are_searched_and_say_nothing() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        query = lived.register(f"{node(0)} (:p+ AS ?n) ?y")
        assert lived.fire(query, 3) == COUNT
        assert "paths_kept" not in query.stats()
        assert "path " not in query.explain().replace("Path ", "")


@pytest.mark.parametrize("steps", [1, 30])
def test_a_window_that_turns_over_is_searched(steps: int) -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine, 0)
        query = lived.register(f"{node(0)} :p+ ?y", f"FROM STREAM <{S}> [RANGE {100 * steps}ms STEP 100ms]")
        size = COUNT // steps
        for at in range(steps + 5):
            first = at % steps * size
            links = (link(number).split() for number in range(first, first + size))
            lived.stream.push([(*one, lived.at_ms + 1) for one in links])
            rows = lived.fire(query)
            assert rows == min(COUNT, (at + 1) * size)
        assert query.stats()["paths_kept"] == (steps > 1)
        if steps == 1:
            assert told(query).endswith("searched at each firing, since much of the graph has changed at once")


def test_walks_that_take_too_much_room_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "BYTES_MAX", 100_000)
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        query = lived.register(f"{node(0)} :p+ ?y")
        assert lived.fire(query, 5) == COUNT
        assert told(query).endswith("searched at each firing, since more than 100000 bytes would be kept")
        assert query.stats()["errors"] == query.stats()["walks_bytes"] == 0


def test_a_change_that_takes_as_much_as_a_search_goes_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "WORK_MIN", -COUNT)
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        query = lived.register(f"{node(0)} :p+ ?y")
        lived.fire(query, 3)
        lived.delete(link(0))
        lived.insert(link(0, 2))
        assert lived.fire(query) == COUNT - 1
        assert told(query).endswith("searched at each firing, since a change took as much as to search anew")
        assert lived.fire(query, 6) == COUNT - 1
        assert query.stats()["paths_kept"] == 1, "it is tried again"


def test_only_walks_from_the_nodes_that_a_join_binds_are_kept() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        lived.insert(link(-1, 10, "asks"), link(-1, 20, "asks"))
        query = lived.register("?s :asks ?x . ?x :p+ ?y")
        assert lived.fire(query, 3) == 2 * COUNT - 30
        assert query.stats()["walks_kept"] == 2 * COUNT - 30 + 2
        lived.delete(link(-1, 20, "asks"))
        lived.insert(link(-1, 40, "asks"))
        assert lived.fire(query) == 2 * COUNT - 50
        assert query.stats()["paths_kept"] == 1


def test_many_ends_that_a_constant_may_lead_to_share_its_walks() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        lived.insert(*(link(-1, number, "asks") for number in range(1, 2 * COUNT, 10)))
        query = lived.register(f"?s :asks ?y . {node(0)} :p+ ?y")
        assert lived.fire(query, 3) == COUNT // 10
        assert query.stats()["paths_kept"] == 1
        lived.delete(link(1000))
        assert lived.fire(query) == 100


def test_what_rules_infer_is_followed_too() -> None:
    with wukongs.Engine() as engine:
        engine.add_rules("RULE back: CONSTRUCT { ?x <http://e/p> ?y } WHERE { ?y <http://e/q> ?x }")
        lived = Lived(engine, 0)
        lived.insert(*(link(number + 1, number, "q") for number in range(COUNT)))
        query = lived.register(f"{node(0)} :p+ ?y")
        assert lived.fire(query, 3) == COUNT
        lived.delete(link(2501, 2500, "q"))
        assert lived.fire(query) == 2500
        assert query.stats()["moves_of_paths"] == 1
        assert engine.query("SELECT ?g { GRAPH ?g { ?s ?p ?o } }").texts() == []


def test_a_query_that_ends_or_gets_another_text_watches_no_more() -> None:
    with wukongs.Engine() as engine:
        lived = Lived(engine)
        query = lived.register(f"{node(0)} :p+ ?y")
        lived.fire(query, 3)
        text = f"PREFIX : <http://e/> REGISTER QUERY q AS SELECT * {STORED} WHERE {{ {node(1)} :p+ ?y }}"
        query.replace(text)
        assert query.stats().get("walks_kept", 0) == 0
        assert lived.fire(query, 3) == COUNT - 1
        assert query.stats()["walks_kept"] == COUNT
        query.close()
        lived.stream.advance(lived.at_ms + 100)
        engine.settle(60)
        with engine._core.lock:
            engine._core.windows.tidy()
        assert engine._core.arrangement.trace.watchers == set()


def test_the_limits_of_rows_are_those_of_a_search() -> None:
    """The walks are more than the rows: each root is one."""
    with wukongs.Engine(settings=wukongs.Settings(rows_max=COUNT)) as engine:
        lived = Lived(engine)
        query = lived.register(f"{node(0)} :p+ ?y")
        assert lived.fire(query, 4) == COUNT
        assert query.stats()["errors"] == 0
        assert query.stats()["paths_kept"] == 1
