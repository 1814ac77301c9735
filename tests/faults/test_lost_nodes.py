"""Nodes of a cluster that go: those that are left answer rightly, or say by name which node is missing.

In one process, where a node that is closed is gone for the others at once, as if it was killed."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from wukongs.cluster import changes, claims, cluster_backend, homes, pushing, settling
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.writing import writer_of
from wukongs.protocol import events as ev
from wukongs.protocol.records import Membership, Role
from wukongs.settings import Settings

EX = "http://ex/"
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 200ms STEP 200ms] WHERE {{ ?s <{EX}p> ?o }}"""
OUT_S = 60.0
T = TypeVar("T")


def lines(name: str, count: int) -> io.BytesIO:
    return io.BytesIO("".join(f"<{EX}{name}{row}> <{EX}l> <{EX}o{row % 7}> .\n" for row in range(count)).encode())


def tuples(name: str, *times: int) -> list[tuple[str, str, str, int]]:
    return [(f"<{EX}{name}>", f"<{EX}p>", f"<{EX}o{time_ms}>", time_ms) for time_ms in times]


def wait_until_out(node: ClusterNode, other: int) -> None:
    node.host.wait_until(lambda state: state.control.members[other].role is Role.OUT, OUT_S, f"node {other} to be out")


def in_time(call: Callable[[], T]) -> T:
    """Call until there is no NodeUnavailable any more."""
    deadline = time.monotonic() + OUT_S
    while True:
        try:
            return call()
        except wukongs.NodeUnavailable:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("lost", [0, *(pytest.param(lost, marks=pytest.mark.slow) for lost in (1, 2))])
@pytest.mark.slow
def test_the_others_go_on_with_all_data_when_each_shard_has_another_node(lost: int) -> None:
    with cluster(3, 2) as nodes:
        left = [node for node in nodes if node.me.node != lost]
        gone, first, second = nodes[lost].engine, left[0].engine, left[1].engine
        gone.load(lines("x", 50), format="nt")
        gone.stream(EX + "s", batch_ms=100)
        query = gone.register(QUERY)
        stream = nodes[lost].backend.declared(EX + "s")
        stream.push(tuples("a", 1050))
        stream.advance(2000)
        assert next(iter(query.results(timeout_s=20))).end_ms == 1200
        nodes[lost].close()
        stream = left[0].backend.declared(EX + "s")
        in_time(lambda: stream.push(tuples("b", 3050)))
        in_time(lambda: second.load(lines("y", 30), format="nt"))
        in_time(lambda: first.update(f"INSERT DATA {{ <{EX}u> <{EX}l> <{EX}v> }}"))
        left[0].host.wait_until(lambda node: lost not in node.control.queries["q"].nodes, 20, "the query to move")
        (home,) = left[0].host.node.control.queries["q"].nodes
        query = nodes[home].engine.register(QUERY)
        stream.push(tuples("c", 3150, 3250))
        stream.advance(4000)
        first.settle(20)
        windows = {window.end_ms: sorted(str(row[1]) for row in window) for window in query.results(timeout_s=0)}
        assert windows[3200] == [f"{EX}o3050", f"{EX}o3150"]
        assert windows[3400] == [f"{EX}o3250"]
        for engine in (first, second):
            assert len(engine.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 81
            assert len(engine.query(f"SELECT * {{ ?s <{EX}p> ?o }}")) == 4
        assert first.stats()["members"][str(lost)] == "out"


@pytest.mark.slow
def test_without_replicas_every_call_ends_with_the_name_of_the_node_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with cluster(3, 1) as nodes:
        first, gone = nodes[0].engine, nodes[2].engine
        first.load(lines("x", 50), format="nt")
        stream = first.stream(EX + "s", batch_ms=100)
        query = first.register(QUERY)
        gone.stream(EX + "t", batch_ms=100)
        gone.register(QUERY.replace("QUERY q", "QUERY r"))
        for module, name in (
            (changes, "TIMEOUT_S"),
            (claims, "TIMEOUT_S"),
            (cluster_backend, "RECORD_S"),
            (pushing, "PUSH_S"),
            (homes, "OUT_S"),
            (settling, "ASK_S"),
        ):
            monkeypatch.setattr(module, name, 1.5)
        nodes[2].close()
        calls: dict[str, Callable[[], object]] = {
            "query": lambda: first.query("SELECT * { ?s ?p ?o }", timeout_s=1.5),
            "load": lambda: first.load(lines("y", 50), format="nt"),
            "update": lambda: first.update(f"INSERT {{ ?s <{EX}m> ?o }} WHERE {{ ?s <{EX}l> ?o }}", timeout_s=1.5),
            "push": lambda: stream.push(tuples("a", 1050)),
            "settle": lambda: first.settle(),
            "register": lambda: first.register(QUERY.replace("QUERY q", "QUERY r")),
        }
        for name, call in calls.items():
            started_s = time.monotonic()
            with pytest.raises(wukongs.NodeUnavailable, match="node 2"):
                call()
            assert time.monotonic() - started_s < 25, name
        assert next(iter(query.results(timeout_s=0.1)), None) is None
        assert first.stats()["members"]["2"] == "silent"


def test_a_node_that_was_taken_out_ends_and_says_so() -> None:
    told: list[BaseException] = []
    with cluster(3, 2) as nodes:
        nodes[2].host.on_failure = told.append
        engine = nodes[2].engine
        engine.stream(EX + "s", batch_ms=100)
        query = engine.register(QUERY)
        control = nodes[0].host.node.control
        out = Membership(2, 0, Role.OUT, control.members[2].since)
        leader = nodes[0].host.wait_until(lambda node: node.log.leader is not None, 20, "a leader").log.leader
        assert leader is not None
        nodes[leader if leader != 2 else 0].host.submit(ev.Submitted(out), 10)
        nodes[2].host._thread.join(10)
        said = "node 2 was taken out of the cluster"
        assert said in str(told[0])
        for call in (
            lambda: engine.query("ASK { ?s ?p ?o }"),
            lambda: engine.update(f"INSERT DATA {{ <{EX}u> <{EX}l> <{EX}v> }}"),
            lambda: engine.load(lines("y", 3), format="nt"),
            lambda: nodes[2].backend.declared(EX + "s").push(tuples("a", 1050)),
            lambda: engine.register(QUERY),
            lambda: next(query.results(timeout_s=5)),
        ):
            with pytest.raises(wukongs.NodeUnavailable, match=said):
                call()
        assert engine.stats()["node"] == 2
        wait_until_out(nodes[0], 2)
        assert [node.engine.stats()["taken_out"] for node in nodes[:2]] == [{"2": 1}] * 2
        nodes[0].engine.load(lines("z", 20), format="nt")
        assert nodes[0].host.node.control.members[2].role is Role.OUT, "it has not asked to come back"


def test_a_push_that_a_node_has_no_room_for_is_refused_on_all() -> None:
    with cluster(2, settings=Settings(queued_bytes_max=8000), silence_pulses_max=PATIENT) as nodes:
        first, second = (node.engine for node in nodes)
        stream, other = first.stream(EX + "s", batch_ms=100), second.stream(EX + "o", batch_ms=100)
        other.push(tuples("a", 1000))
        other.advance(1000)
        stream.push(tuples("a", 1050))
        taken = 1
        said = ""
        while not said:
            try:
                taken += stream.push(tuples("a", *range(1100 + taken, 1110 + taken)))
            except wukongs.StreamError as error:
                said = str(error)
        assert "would exceed queued_bytes_max at node" in said
        assert "Nothing of this call was applied" in said
        assert taken > 100
        other.close()
        in_time(lambda: first.settle(20))
        stream.push(tuples("a", 300_000))
        stream.close()
        first.settle(20)
        for engine in (first, second):
            assert len(engine.query(f"SELECT * {{ <{EX}a> <{EX}p> ?o }}")) == taken + 2


def test_a_load_that_does_not_fit_is_refused_and_nothing_of_it_is_kept() -> None:
    with cluster(2, settings=Settings(load_bytes_max=1 << 20), silence_pulses_max=PATIENT) as nodes:
        engine = nodes[0].engine
        engine.load(lines("x", 20), format="nt")
        with pytest.raises(wukongs.BudgetExceeded, match="load_bytes_max"):
            nodes[1].engine.load(lines("y", 50_000), format="nt")
        assert all(node.store.stats()["staged_changes"] == 0 for node in nodes)
        assert len(engine.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 20


def test_a_push_that_was_cut_off_is_applied_once_when_it_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer reaches one node and not the other; the next call finishes it first."""
    with cluster(2, silence_pulses_max=PATIENT) as nodes:
        writer = next(node for node in nodes if writer_of(node.host.node, EX + "s") == node.me.node)
        other = next(node for node in nodes if node is not writer)
        stream = writer.engine.stream(EX + "s", batch_ms=100)
        stream.push(tuples("a", 1000))
        answer, fails = other.intake.answer, [True]

        def failing(packet: object) -> object:
            if fails.pop() if fails else False:
                raise wukongs.StreamError("as if it was lost")
            return answer(packet)  # type: ignore[arg-type]

        monkeypatch.setitem(other.network._handlers, "feed", failing)  # type: ignore[arg-type]
        with pytest.raises(wukongs.NodeUnavailable, match="as if it was lost"):
            stream.push(tuples("b", 1000))
        stream.push(tuples("b", 1000))
        stream.push(tuples("c", 1000))
        stream.close()
        writer.engine.settle(20)
        for node in nodes:
            counted = node.engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}")
            assert sorted(str(row[0]) for row in counted) == [EX + "a", EX + "b", EX + "c"]


@pytest.mark.slow
@pytest.mark.parametrize("loses_leader", [False, True])
def test_a_write_waits_little_longer_than_a_lease_when_a_node_is_lost(loses_leader: bool) -> None:
    """The goal is a lease (1.9 s) and 200 ms; a busy machine takes longer."""
    took_s = list[float]()
    for _ in range(5):
        with cluster(3, 3) as nodes:
            nodes[0].engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> 1 }}")
            leader = nodes[0].host.node.log.leader
            assert leader is not None
            lost = leader if loses_leader else (leader + 1) % 3
            left = [node for node in nodes if node.me.node != lost]
            nodes[lost].close()
            began_s = time.monotonic()
            left[0].engine.update(f"INSERT DATA {{ <{EX}b> <{EX}p> 1 }}")
            took_s.append(time.monotonic() - began_s)
            lease_s = left[0].host.node.cluster.lease_ms / 1000
            for node in left:
                assert len(node.engine.query(f"SELECT ?s {{ ?s <{EX}p> 1 }}")) == 2
    print(
        f"a lease is {lease_s:g} s; a write that meets a lost node takes {[round(one, 2) for one in sorted(took_s)]} s"
    )
    assert max(took_s) < 2 * lease_s
