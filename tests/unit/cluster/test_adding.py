"""A node meets those that the log has added, lets them in, and meets those no more that were removed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import PATIENT, added_node, cluster
from tests.unit.protocol.test_placement import after
from wukongs.cluster import adding
from wukongs.cluster.adding import Meeting
from wukongs.cluster.boot import hello_handler
from wukongs.errors import NodeUnavailable
from wukongs.protocol.control import genesis
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import AddNode, Membership, RemoveNode, Role
from wukongs.protocol.state import Cluster, Kept, boot
from wukongs.wire.keys import make_keys, read_key_pair
from wukongs.wire.packets import Packet
from wukongs.wire.trust import Gate

ADDRESSES = {0: "tcp://a:1", 1: "tcp://b:1"}
SHAPE = "nodes 2, replicas 2"


class FakeNetwork:
    """Notes whom it is to reach, by which key, and whom it lets in."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.joined: list[tuple[Mapping[int, str], Mapping[int, str]]] = []
        self.me, self.asked = 0, list[int]()
        self.added: list[AddNode] = []
        """The nodes that were added, as node 1 says."""

    def join(self, addresses: Mapping[int, str], keys: Mapping[int, str]) -> None:
        self.joined.append((dict(addresses), dict(keys)))

    def use(self, gate: Gate) -> None:
        self.gate = gate

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        ((node, packet),) = asked
        self.asked.append(node)
        if node != 1:
            raise NodeUnavailable(f"node {node} is not there")
        return [hello_handler(lambda _: None, SHAPE, added=lambda: self.added)(packet)]


def test_nodes_are_met_once_and_left_when_they_are_removed() -> None:
    network: Any = FakeNetwork(Gate())
    meeting = Meeting(network, SHAPE)
    control = genesis(2, 2, 8)
    meeting.begin(ADDRESSES, None, control, {})
    control = after(control, AddNode(2, "tcp://c:1", "tcp://c:2"))
    for _ in range(3):
        meeting.meet(control)
    control = after(control, RemoveNode(2))
    meeting.meet(control)
    control = after(control, Membership(0, 0, Role.OUT))
    meeting.meet(control)
    assert [sorted(addresses) for addresses, _ in network.joined] == [[0, 1], [0, 1, 2], [0, 1]]
    assert network.joined[1][0][2] == "tcp://c:1"


@pytest.mark.parametrize("is_shared", [True, False])
def test_added_nodes_are_reached_and_let_in_by_their_keys(tmp_path: Path, is_shared: bool) -> None:
    make_keys(tmp_path)
    (secret,) = tmp_path.glob("*secret*")
    pair = read_key_pair(str(secret))
    theirs = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    network: Any = FakeNetwork(Gate(pair, frozenset({pair.public}), is_shared=is_shared))
    meeting = Meeting(network, SHAPE)
    meeting.begin(ADDRESSES, {} if is_shared else dict.fromkeys(ADDRESSES, pair.public), genesis(2, 2, 8), {})
    control = after(genesis(2, 2, 8), AddNode(2, "tcp://c:1", "tcp://c:2", "" if is_shared else theirs))
    meeting.meet(control)
    own = {} if is_shared else {0: pair.public, 1: pair.public, 2: theirs}
    allowed = {pair.public} if is_shared else {pair.public, theirs}
    assert network.joined[-1][1] == own, "of those that have other keys"
    assert network.gate.allowed == allowed
    network.gate = Gate(pair, frozenset({pair.public}), is_shared=is_shared)  # the files were read again
    meeting.meet(control)
    assert network.gate.allowed == allowed
    meeting.meet(after(control, RemoveNode(2)))
    assert sorted(network.joined[-1][0]) == [0, 1]
    learned = {2: AddNode(2, "tcp://c:1", "tcp://c:2", "" if is_shared else theirs)}
    network.gate = Gate(pair, frozenset({pair.public}), is_shared=is_shared)
    begun = Meeting(network, SHAPE)  # others have told it as it started: the added node may lead, and send it the log
    begun.begin(ADDRESSES, {} if is_shared else dict.fromkeys(ADDRESSES, pair.public), genesis(2, 2, 8), learned)
    assert (network.joined[-1][1], network.gate.allowed) == (own, allowed)


def test_a_node_that_hears_of_no_leader_asks_which_nodes_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The added one may lead, and nobody else sends the log."""
    monkeypatch.setattr(adding, "LEADERLESS_S", 0.0)
    network: Any = FakeNetwork(Gate())
    meeting, alone = Meeting(network, SHAPE), boot(Cluster(3, 2), Incarnation(0, 0, 1), Kept())
    led = replace(alone, log=replace(alone.log, leader=1))
    meeting.begin({**ADDRESSES, 2: "tcp://c:1"}, None, alone.control, {})
    for _ in range(10):
        meeting.pulse(led)
    assert network.asked == []
    network.added = [AddNode(3, "tcp://d:1", "tcp://d:2")]
    deadline = time.monotonic() + 60
    while len(network.joined) < 2:
        meeting.pulse(alone)
        assert time.monotonic() < deadline
    meeting.close()
    assert set(network.asked) == {1, 2}
    assert [sorted(addresses) for addresses, _ in network.joined] == [[0, 1, 2], [0, 1, 2, 3]]
    assert network.joined[-1][0][3] == "tcp://d:1"
    known = after(alone.control, network.added[0])
    for control in (known, after(known, RemoveNode(3))):
        meeting.meet(control)
    assert sorted(network.joined[-1][0]) == [0, 1, 2], "the log says later that it is gone"


@pytest.mark.slow
def test_a_node_that_is_sent_no_log_meets_a_node_that_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "LEADERLESS_S", 0.2)
    clients = "tcp://127.0.0.1:9"
    with cluster(3, 2, silence_pulses_max=PATIENT) as nodes:
        leader = nodes[0].host.wait_until(lambda node: node.log.leader is not None, 60, "a leader").log.leader
        cut_off = next(
            node for node in nodes[1:] if node.me.node != leader
        )  # a leader would go on to say that it leads
        monkeypatch.setattr(cut_off.host, "receive", lambda message: None)
        with added_node(nodes, 2, clients) as new:
            assert nodes[0].engine.add_node(clients, new.address) == 3
            deadline = time.monotonic() + 60
            while not cut_off.network.is_connected(3):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert 3 not in cut_off.host.node.control.members
            monkeypatch.undo()
            cut_off.host.wait_until(lambda node: 3 in node.control.members, 60, "the record that adds node 3")
