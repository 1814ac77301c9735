"""A cluster that has lost its majority says so: which nodes are silent, and what is to be done."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import wukongs
from tests.clusters import PATIENT, cluster
from tests.unit.cluster.test_counting import client_of
from wukongs.cluster import boot, counting
from wukongs.cluster.boot import FIRST_DISK, HELLO, new_boot, next_disk
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.counting import COUNTS
from wukongs.errors import NodeUnavailable, StreamError, WukongsError
from wukongs.live.stream import Stream
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.state import Node
from wukongs.wire.network import Network
from wukongs.wire.packets import Packet

STREAM = "http://ex/s"
QUERY = f"""REGISTER QUERY q AS SELECT ?s FROM STREAM <{STREAM}> [RANGE 1s STEP 1s] WHERE {{ ?s <http://ex/q> ?o }}"""
INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/%d> }"


@pytest.fixture(scope="module")
def rest() -> Iterator[ClusterNode]:
    """What is left of three nodes once two are silent."""
    with cluster(3, 2) as nodes:
        nodes[0].engine.update(INSERT % 1)
        nodes[0].engine.stream(STREAM, batch_ms=100).push([("<e:s>", "<e:p>", "<e:o>", 50)])
        for node in nodes[1:]:
            node.close()
        deadline = time.monotonic() + 60
        while nodes[0].host.node.silent_members != [1, 2]:
            assert time.monotonic() < deadline, nodes[0].host.node.watch
            time.sleep(0.01)
        yield nodes[0]


@pytest.fixture
def stream(rest: ClusterNode) -> Stream:
    return rest.engine._streams[STREAM]


@pytest.mark.slow
def test_silent_nodes_are_not_said_to_be_in(rest: ClusterNode) -> None:
    stats = rest.engine.stats()
    assert stats["members"] == {"0": "in", "1": "silent", "2": "silent"}
    assert stats["silent_nodes"] == [1, 2]


@pytest.mark.slow
def test_what_needs_the_log_names_the_silent_nodes_and_says_what_to_do(rest: ClusterNode) -> None:
    said = "nothing is heard of nodes 1, 2, and the rest is no majority: start enough of them again"
    with pytest.raises(NodeUnavailable, match=said):
        rest.host.wait_until(lambda node: False, 0.05, "a miracle")


DEADLINE_S = 0.9
CALLS: dict[str, Callable[[wukongs.Engine, Stream], object]] = {
    "update": lambda engine, _: engine.update(INSERT % 2, timeout_s=DEADLINE_S),
    "load": lambda engine, _: engine.load(io.BytesIO(b"<e:new> <e:p> 1 .\n"), format="ttl", timeout_s=DEADLINE_S),
    "push": lambda _, stream: stream.push([("<e:new>", "<e:p>", "<e:o>", 100)], timeout_s=DEADLINE_S),
    "push_many": lambda engine, _: engine.push_many(
        {STREAM: [("<e:new>", "<e:p>", "<e:o>", 100)]}, timeout_s=DEADLINE_S
    ),
    "advance": lambda _, stream: stream.advance(1000, timeout_s=DEADLINE_S),
    "stream": lambda engine, _: engine.stream("http://ex/t", batch_ms=100, timeout_s=DEADLINE_S),
    "register": lambda engine, _: engine.register(QUERY, timeout_s=DEADLINE_S),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_ends_by_its_own_deadline(
    rest: ClusterNode, stream: Stream, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    ask = Network.ask

    def noting(self: Network, asked: object, timeout_s: float) -> object:
        waited.append(timeout_s)
        return ask(self, asked, timeout_s)  # type: ignore[arg-type]

    monkeypatch.setattr(Network, "ask", noting)
    until = rest.host.wait_until

    def noting_too(holds: Callable[[Node], bool], timeout_s: float, what: str) -> Node:
        waited.append(timeout_s)
        return until(holds, timeout_s, what)

    submit = rest.host.submit

    def noting_submitted(event: Any, timeout_s: float) -> object:
        waited.append(timeout_s)
        return submit(event, timeout_s)

    monkeypatch.setattr(rest.host, "wait_until", noting_too)
    monkeypatch.setattr(rest.host, "submit", noting_submitted)
    with pytest.raises(NodeUnavailable, match=r"nodes? [12]"):
        CALLS[call](rest.engine, stream)
    assert waited, "nobody was asked or waited for"
    assert max(waited) <= DEADLINE_S


def test_settling_says_who_is_missing(rest: ClusterNode) -> None:
    said = "not settled within timeout_s = 0.3: .*nothing is heard of nodes 1, 2, and the rest is no majority"
    with pytest.raises(StreamError, match=said):
        rest.engine.settle(timeout_s=0.3)
    with client_of(rest) as client, pytest.raises(StreamError, match=said):
        client.settle(timeout_s=0.3)


@pytest.mark.parametrize("call", ["stream", "register"])
def test_a_client_is_told_who_is_missing_by_its_deadline(rest: ClusterNode, call: str) -> None:
    with client_of(rest) as client, pytest.raises(NodeUnavailable, match=r"within 0\.\d+ s: .*nodes? 1"):
        CALLS[call](client, None)  # type: ignore[arg-type]


def test_the_counts_wait_for_no_node_that_has_just_died(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        nodes[0].engine.update(INSERT % 1)
        asked: list[set[int]] = []
        ask = Network.ask

        def noting(self: Network, questions: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
            if self is nodes[0].network and questions[0][1].kind == COUNTS:
                asked.append({node for node, _ in questions})
            return ask(self, questions, timeout_s)

        monkeypatch.setattr(Network, "ask", noting)
        nodes[2].close()
        deadline = time.monotonic() + 60
        while nodes[0].network.is_connected(2):
            assert time.monotonic() < deadline, "the connection is still there"
            time.sleep(0.001)
        stats = nodes[0].engine.stats()
        assert asked == [{0, 1}]
        assert stats["members"] == {"0": "in", "1": "in", "2": "silent"}
        assert stats["silent_nodes"] == [2]
        assert stats["stored_triples"] == 1


def test_the_counts_go_without_a_node_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "ASK_S", 0.2)
    monkeypatch.setattr(counting, "ROUND_S", 0.1)
    may_go_on = threading.Event()
    with cluster(2) as nodes:
        nodes[1].network._handlers[COUNTS] = lambda _: Packet(COUNTS, {"n": may_go_on.wait(60)})  # type: ignore[index]
        stats = nodes[0].engine.stats()
        assert stats["silent_nodes"] == [1]
        assert stats["members"] == {"0": "in", "1": "silent"}
        may_go_on.set()


def test_a_node_that_starts_says_whom_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(boot, "SAY_S", 0.01)
    me = Incarnation(1, FIRST_DISK, new_boot())
    network = Network(me, "tcp://127.0.0.1:*", {}, lambda *_: None, open_kinds=(HELLO,))
    try:
        network.join({0: "tcp://127.0.0.1:9", 2: "tcp://127.0.0.1:9"})
        with caplog.at_level(logging.WARNING, "wukongs"), pytest.raises(NodeUnavailable, match="0 of 2 other nodes"):
            next_disk(network, [0, 2], "nodes 3", 0.5)
    finally:
        network.close()
    assert "node 1 waits for 1 of the nodes that do not answer: 0, 2" in caplog.messages


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ends"), [("stage", True), ("query", False)])
def test_a_node_that_has_no_memory_for_changes_ends_and_the_others_go_on(kind: str, ends: bool) -> None:
    def fail(_: Packet) -> Packet:
        raise MemoryError

    with cluster(3, 2) as nodes:
        nodes[0].engine.update(INSERT % 1)
        network = nodes[1].network
        network._handlers[kind] = fail  # type: ignore[index]
        with pytest.raises(WukongsError, match="too little memory"):
            nodes[0].network.ask([(1, Packet(kind))], 30)
        if not ends:
            assert nodes[1].host.failure is None
            return
        deadline = time.monotonic() + 60
        while nodes[1].host.failure is None:
            assert time.monotonic() < deadline, "it goes on"
            time.sleep(0.01)
        assert "no memory is left to answer 'stage'" in str(nodes[1].host.failure)
        nodes[1].close()  # as its process does
        nodes[0].engine.update(INSERT % 2, timeout_s=60)
        assert nodes[0].engine.stats()["members"]["1"] in ("out", "silent")
