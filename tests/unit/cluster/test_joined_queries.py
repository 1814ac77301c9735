"""Queries of one shape on a cluster fire as one on their node: they come, change, move and end by the log."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, READY_S, cluster, start_again
from tests.engine_helpers import EX, A, at, names, node, windows
from tests.unit.cluster.test_counting import client_of
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.live import joined_queries
from wukongs.live.joined_query import JoinedQuery
from wukongs.protocol import events as ev
from wukongs.protocol.records import MoveQuery

SETTLE_S = 60
STEP = "RANGE 200ms STEP 100ms"


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)


def text(number: int, name: str | None = None, output: str = "QUERY") -> str:
    """Posts of those whom a user knows, who are the next two."""
    where = f"{{ {node(f'u{number}')} {node('knows')} ?f . ?f {node('posts')} ?s }}"
    clause = f"FROM <urn:x-wukongs:default> FROM STREAM <{A}> [{STEP}]"
    return f"REGISTER {output} {name or f'q{number}'} AS SELECT ?s {clause} WHERE {where}"


def begin(nodes: Sequence[ClusterNode], users: int = 10) -> wukongs.Stream:
    pairs = ((one, (one + step) % users) for one in range(users) for step in (1, 2))
    lines = "".join(f"{node(f'u{one}')} {node('knows')} {node(f'u{other}')} .\n" for one, other in pairs)
    nodes[0].engine.load(io.BytesIO(lines.encode()), format="nt")
    nodes[0].engine.stream(A, timing=True, batch_ms=100)
    return nodes[0].backend.declared(A)


def post(nodes: Sequence[ClusterNode], stream: wukongs.Stream, first: int, last: int, users: int = 10) -> None:
    """In stream batch k, u(k mod users) posts pk."""
    for k in range(first, last + 1):
        stream.push([at(f"u{k % users}", k * 100 - 50, "posts", f"p{k}")])
    stream.advance(last * 100)
    nodes[0].engine.settle(SETTLE_S)


def posted(number: int, first: int, last: int, users: int = 10, output: str = "QUERY") -> dict[int, list[str]]:
    """What the query of a user reports in the windows that end with these stream batches."""
    known = {(number + 1) % users, (number + 2) % users}
    before = {"QUERY": (1, 0), "ISTREAM": (0,), "DSTREAM": (2,)}[output]
    shown = {k: [k - n for n in before if k > n and (k - n) % users in known] for k in range(first, last + 1)}
    return {k * 100: sorted(f"p{one}" for one in found) for k, found in shown.items()}


def leads(member: ClusterNode) -> list[Any]:
    with member.store.core.lock:
        return [one for one in member.store.injector.queries.values() if member.store.joined.is_lead(one)]


def in_group(query: Any) -> bool:
    return isinstance(query, JoinedQuery) and query._group is not None


@pytest.mark.parametrize("output", ["QUERY", "ISTREAM", "DSTREAM"])
def test_groups_of_one_shape_on_two_nodes(output: str) -> None:
    """Each node has its own, and all nodes know all queries."""
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = begin(nodes)
        queries = [nodes[1 + n % 2].engine.register(text(n, output=output)) for n in range(10)]
        post(nodes, stream, 1, 5)
        assert [len(leads(member)) for member in nodes] == [0, 1, 1]
        assert [windows(query) for query in queries] == [posted(n, 1, 5, output=output) for n in range(10)]
        for member in nodes:
            stats = member.engine.stats()["queries"]
            assert {name: (one["node"], one["windows"], one["queries"]) for name, one in stats.items()} == {
                f"q{n}": (1 + n % 2, 5, 5) for n in range(10)
            }
            assert sorted(query.name for query in member.engine.queries()) == [f"q{n}" for n in range(10)]
        assert queries[3].stats()["rows"] == sum(map(len, posted(3, 1, 5, output=output).values()))


@pytest.mark.parametrize("output", ["ISTREAM", "DSTREAM"])
def test_a_restart_goes_on_with_what_each_is_compared_with(tmp_path: Path, output: str) -> None:
    """Firings of before cannot be evaluated again: a checkpoint has their rows."""
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        stream = begin(nodes)
        queries = [nodes[1].engine.register(text(n, output=output)) for n in range(10)]
        post(nodes, stream, 1, 5)
        assert [windows(query) for query in queries] == [posted(n, 1, 5, output=output) for n in range(10)]
        for member in nodes:
            assert member.checkpoints is not None
            member.checkpoints.make()
    with cluster(2, 1, silence_pulses_max=PATIENT, folder=tmp_path) as nodes:
        again = [nodes[1].store.query(f"q{n}") for n in range(10)]
        assert all(map(in_group, again))
        assert len(leads(nodes[1])) == 1
        post(nodes, nodes[0].backend.declared(A), 6, 9)
        assert [windows(query) for query in again] == [posted(n, 6, 9, output=output) for n in range(10)]


def test_another_node_pauses_replaces_and_closes_queries_of_a_group() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = begin(nodes)
        queries = [nodes[1].engine.register(text(n)) for n in range(6)]
        post(nodes, stream, 1, 3)
        distant = {query.name: query for query in nodes[2].engine.queries()}
        distant["q0"].pause()
        distant["q1"].replace(text(8, "q1"))
        distant["q2"].close()
        queries[3].resume()
        assert [in_group(query) for query in queries] == [False, False, False, True, True, True]
        with client_of(nodes[0]) as client:
            told = next(one for one in client.queries() if one.name == "q4").explain()
            assert "each firing answers 3 queries of one shape together" in told
        post(nodes, stream, 4, 6)
        distant["q0"].resume()
        post(nodes, stream, 7, 8)
        assert windows(queries[0]) == {**posted(0, 1, 3), **posted(0, 7, 8)}
        assert windows(queries[1]) == {**posted(1, 1, 3), **posted(8, 4, 8)}
        assert windows(queries[2]) == posted(2, 1, 3)
        for n in (3, 4, 5):
            assert windows(queries[n]) == posted(n, 1, 8)
        with pytest.raises(wukongs.StreamError, match="query q2 is closed"):
            queries[2].replace(text(1, "q2"))
        queries[2].pause()
        queries[2].close()


def test_the_name_of_a_closed_query_is_free_and_the_last_one_takes_the_group_with_it() -> None:
    with cluster(2, 1, silence_pulses_max=PATIENT) as nodes:
        stream = begin(nodes)
        queries = [nodes[1].engine.register(text(n)) for n in range(3)]
        post(nodes, stream, 1, 2)
        for query in queries:
            query.close()
        assert [windows(query) for query in queries] == [posted(n, 1, 2) for n in range(3)]
        again = nodes[0].engine.register(text(0))
        post(nodes, stream, 3, 4)
        assert windows(again) == posted(0, 3, 4)
        assert leads(nodes[1]) == []
        nodes[1].host.wait_until(lambda _: not nodes[1].store.records.streams[A].is_home, READY_S, "it is left")
        again.close()
        nodes[0].engine.drop_stream(A)


@pytest.mark.parametrize("is_ahead", [True, False])
def test_a_query_moves_to_a_node_whose_group_stands_elsewhere(is_ahead: bool) -> None:
    """The group there has fired more, or waits for firings: the query has each window of its own once."""
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = begin(nodes)
        if is_ahead:
            there = nodes[2].engine.register(text(5))
        moving = nodes[1].engine.register(text(4))
        post(nodes, stream, 1, 4)
        if not is_ahead:
            there = nodes[2].engine.register(text(5))
        nodes[2].host.carry_out(ev.Submitted(MoveQuery("q4", (2,))), SETTLE_S)
        nodes[0].engine.settle(SETTLE_S)
        moved = nodes[2].store.query("q4")
        assert moved is not None
        assert moving.is_closed
        assert in_group(moved)
        post(nodes, stream, 5, 9)
        assert windows(moving) == posted(4, 1, 4)
        assert windows(moved) == posted(4, 5, 9)
        assert windows(there) == posted(5, 1 if is_ahead else 5, 9)
        assert len(leads(nodes[2])) == 1


def test_a_query_moves_while_it_is_paused_and_joins_nobody() -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        stream = begin(nodes)
        nodes[2].engine.register(text(5))
        moving = nodes[1].engine.register(text(4))
        moving.pause()
        nodes[2].host.carry_out(ev.Submitted(MoveQuery("q4", (2,))), SETTLE_S)
        nodes[0].engine.settle(SETTLE_S)
        moved = nodes[2].store.query("q4")
        assert moved is not None
        post(nodes, stream, 1, 3)
        moved.resume()
        post(nodes, stream, 4, 5)
        assert windows(moved) == posted(4, 4, 5)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["QUERY", "ISTREAM", "DSTREAM"])
def test_queries_of_a_group_run_on_elsewhere_when_their_node_is_gone_and_stay_there(output: str) -> None:
    with cluster(3, 2) as nodes:
        stream = begin(nodes)
        for n in range(5):
            nodes[2].engine.register(text(n, output=output))
        post(nodes, stream, 1, 2)
        nodes[2].close()
        nodes[0].host.wait_until(lambda node: node.control.members[2].role.value == "out", READY_S, "it is out")
        came = start_again(nodes, 2, replica_count=2)
        assert [came.store.query(f"q{n}") for n in range(5)] == [None] * 5
        post(nodes, stream, 3, 5)
        queries = [nodes[0].store.query(f"q{n}") or nodes[1].store.query(f"q{n}") for n in range(5)]
        assert all(map(in_group, queries))
        for n, query in enumerate(queries):
            assert windows(query) == posted(n, 1, 5, output=output)


def test_a_group_is_divided_while_its_queries_are_closed_and_altered() -> None:
    """One of them makes more rows than a query may: the group is halved until it is alone."""
    with cluster(2, 1, wukongs.Settings(query_bytes_max=1 << 20), silence_pulses_max=PATIENT) as nodes:
        stream = begin(nodes)
        many = "".join(f"{node('u13')} {node('knows')} {node(f'z{n}')} .\n" for n in range(60_000))
        nodes[0].engine.load(io.BytesIO(many.encode()), format="nt")
        where = f"{{ <{EX}u%d> {node('knows')} ?f . ?a {node('posts')} ?s }}"
        clause = f"FROM <urn:x-wukongs:default> FROM STREAM <{A}> [{STEP}]"
        queries = [
            nodes[1].engine.register(f"REGISTER QUERY r{n} AS SELECT ?s {clause} WHERE {where % n}")
            for n in (1, 2, 3, 13, 5, 6, 7, 8)
        ]
        failed: list[BaseException] = []

        def alter() -> None:
            try:
                queries[1].close()
                queries[6].pause()
                queries[0].close()
                queries[6].resume()
                queries[7].close()
            except BaseException as error:
                failed.append(error)

        altering = threading.Thread(target=alter)
        altering.start()
        post(nodes, stream, 1, 6)
        altering.join(SETTLE_S)
        post(nodes, stream, 7, 8)
        assert not failed
        with pytest.raises(wukongs.BudgetExceeded):
            windows(queries[3])
        for n in (2, 4, 5):
            found = windows(queries[n])
            assert list(found) == list(range(100, 900, 100)), n
        for n in (0, 1, 7):
            found = windows(queries[n])
            assert list(found) == list(range(100, 100 * len(found) + 1, 100)), n
        assert list(windows(queries[6]))[-2:] == [700, 800]


def test_readers_are_told_that_a_node_has_failed() -> None:
    with cluster(1, 1, silence_pulses_max=PATIENT) as nodes:
        stream = begin(nodes)
        queries = [nodes[0].engine.register(text(n)) for n in range(3)]
        post(nodes, stream, 1, 2)
        reader = queries[0].results(timeout_s=SETTLE_S)
        assert [names(next(reader)) for _ in range(2)] == [["p1"], ["p1", "p2"]]
        nodes[0].store.fail(wukongs.StorageError("the node has failed"))
        for query in queries:
            with pytest.raises(wukongs.WukongsError, match="the node has failed"):
                list(query.results(timeout_s=SETTLE_S))
