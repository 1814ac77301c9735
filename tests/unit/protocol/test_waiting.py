"""Whether anybody waits for a node's next pulse, and that time is counted alike however often it pulses."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from wukongs.protocol import gossip
from wukongs.protocol.actions import Apply, SealBatch, Send
from wukongs.protocol.events import Event, Inserted, Marker, PieceOffered, Pulse, Received, Submitted
from wukongs.protocol.leading import has_voters_to_change
from wukongs.protocol.log import LogRole
from wukongs.protocol.messages import Append, Appended, Body, Gossip, Incarnation, Message
from wukongs.protocol.node import step
from wukongs.protocol.records import DeclareStream, DropQuery, DropStream, Membership, Record, Role, Voter
from wukongs.protocol.state import Cluster, Kept, Node, boot
from wukongs.protocol.waiting import is_waited_for


class Together:
    """Nodes whose messages all arrive, at once and in order. said: of what kind, since it was emptied last."""

    def __init__(self, count: int, **options: int) -> None:
        cluster = Cluster(count, **options)
        self.nodes: list[Node] = [boot(cluster, Incarnation(number, 0, 1), Kept()) for number in range(count)]
        self.said: Counter[type[Body]] = Counter()
        self.applied: list[set[Record]] = [set() for _ in range(count)]
        self.draws = random.Random(1)

    def tell(self, number: int, *events: Event) -> None:
        waiting = [(number, event) for event in events]
        while waiting:
            at, event = waiting.pop(0)
            self.nodes[at], actions = step(self.nodes[at], event)
            for action in actions:
                match action:
                    case Send(node=other, body=body):
                        self.said[type(body)] += 1
                        waiting.append((other, Received(Message(self.nodes[at].me, body))))
                    case SealBatch(stream=stream, batch=batch):
                        waiting.append((at, Inserted(stream, batch)))
                    case Apply(entry=entry):
                        self.applied[at].add(entry.record)

    def pulse(self, elapsed: int = 1) -> None:
        for number in range(len(self.nodes)):
            self.tell(number, Pulse(self.draws.getrandbits(40), elapsed))

    def until_quiet(self) -> None:
        for _ in range(60):
            self.pulse()
            if not any(map(is_waited_for, self.nodes)):
                return
        raise AssertionError([node.me.node for node in self.nodes if is_waited_for(node)])

    @property
    def leader(self) -> int:
        (found,) = [n for n, node in enumerate(self.nodes) if node.log.standing is LogRole.LEADER]
        return found


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_a_cluster_in_which_nothing_happens_is_not_waited_for(count: int) -> None:
    cluster = Together(count)
    assert is_waited_for(cluster.nodes[0])  # there is no leader yet
    cluster.until_quiet()
    for _ in range(30):
        cluster.pulse(2)
        assert not any(map(is_waited_for, cluster.nodes))


def test_a_record_is_waited_for_until_it_is_committed() -> None:
    cluster = Together(3)
    cluster.until_quiet()
    asker = (cluster.leader + 1) % 3
    node, _ = step(cluster.nodes[asker], Submitted(DropQuery("q")))
    assert is_waited_for(node) == bool(node.pending)
    declared = DeclareStream("s", ("p",))
    node, sent = step(cluster.nodes[asker], Submitted(declared))
    assert is_waited_for(node)
    (proposed,) = [one for one in sent if isinstance(one, Send)]
    leader, _ = step(cluster.nodes[cluster.leader], Received(Message(node.me, proposed.body)))
    assert is_waited_for(leader)
    cluster.tell(asker, Submitted(declared))
    assert not any(map(is_waited_for, cluster.nodes))


@pytest.mark.parametrize("count", [2, 7])
def test_what_a_node_has_inserted_is_waited_for_until_it_has_told(count: int) -> None:
    cluster = Together(count)
    cluster.until_quiet()
    cluster.tell(0, Submitted(DeclareStream("s", ("p",), 10)), Submitted(DeclareStream("t", ("p",), 10)))
    for key in ("s", "t"):
        for number in range(count):
            cluster.tell(number, Marker(key, "p", 1, 1, 0))
        assert is_waited_for(cluster.nodes[0])  # its beginning is asked for with the next pulse
    cluster.until_quiet()
    assert not is_waited_for(cluster.nodes[1])
    cluster.tell(1, PieceOffered("s", "p", 1, 2, 0, 5))
    assert not is_waited_for(cluster.nodes[1])
    cluster.tell(1, Marker("s", "p", 1, 2, 5))  # the other stream holds the tick, so this is told with the next pulse
    assert is_waited_for(cluster.nodes[1])
    cluster.tell(1, Pulse(0 + 1 * (count - 1) + 2 * (count - 1) ** 2))
    assert not is_waited_for(cluster.nodes[1])
    told = [node.me.node for node in cluster.nodes if node.progress.usable[1].vts["s"] == 2]
    assert len(told) == min(count, 1 + gossip.GOSSIP_NODES)
    passing_on = [node.me.node for node in cluster.nodes if is_waited_for(node)]
    assert passing_on == [number for number in told if number != 1 and count > 1 + gossip.GOSSIP_NODES]


def test_a_dropped_stream_is_waited_for_until_it_is_gone() -> None:
    cluster = Together(3)
    cluster.until_quiet()
    cluster.tell(0, Submitted(DeclareStream("s", ("p",), 10)))
    for number in range(3):
        cluster.tell(number, Marker("s", "p", 1, 1, 0))
    cluster.until_quiet()
    cluster.tell(0, Submitted(DropStream("s")))
    assert is_waited_for(cluster.nodes[cluster.leader])
    cluster.until_quiet()
    assert not list(cluster.nodes[0].control.live_streams)


@pytest.mark.parametrize("elapsed", [1, 2, 4])
def test_a_leader_is_missed_as_soon_however_often_a_follower_pulses(elapsed: int) -> None:
    cluster = Together(3, election_pulses=12, quiet_pulses=4)
    cluster.until_quiet()
    leader = cluster.leader
    follower = cluster.nodes[(leader + 1) % 3]
    follower = replace(follower, log=replace(follower.log, silence=0))
    pulses = 0
    while follower.log.standing is LogRole.FOLLOWER:
        follower, _ = step(follower, Pulse(0, elapsed))
        pulses += elapsed
    assert pulses == 12


@pytest.mark.parametrize("elapsed", [1, 4])
def test_a_silent_node_is_taken_out_as_soon_however_often_the_leader_pulses(elapsed: int) -> None:
    cluster = Together(3, replica_count=2, silence_pulses_max=40, election_pulses=12, quiet_pulses=4)
    cluster.until_quiet()
    leader = cluster.nodes[cluster.leader]
    before, pulses = leader.log.last, 0
    while leader.log.last == before:
        leader, _ = step(leader, Pulse(0, elapsed))
        pulses += elapsed
    assert 40 < pulses <= 40 + 2 * elapsed


def test_a_new_life_is_not_taken_out_for_the_silence_of_the_one_before() -> None:
    cluster = Together(4, replica_count=2, silence_pulses_max=40, election_pulses=12, quiet_pulses=4)
    cluster.until_quiet()
    lost = (cluster.leader + 1) % 4

    def pulse_without_it(count: int) -> bool:
        """Tell whether it was taken out."""
        for _ in range(count):
            for number in {0, 1, 2, 3} - {lost}:
                cluster.tell(number, Pulse(cluster.draws.getrandbits(40), 1))
        return cluster.nodes[cluster.leader].control.members[lost].role is Role.OUT

    assert not pulse_without_it(38)
    cluster.tell(cluster.leader, Submitted(Membership(lost, 1, Role.JOINING)))
    assert not pulse_without_it(38), "its own silence begins when it has asked to join"
    assert pulse_without_it(6)


def test_a_leader_is_waited_for_until_a_lost_disk_does_not_vote() -> None:
    cluster = Together(4, replica_count=2)
    cluster.until_quiet()
    leader = cluster.leader
    lost = (leader + 1) % 4
    cluster.nodes[lost] = boot(cluster.nodes[lost].cluster, Incarnation(lost, 1, 1), Kept())
    joining = Membership(lost, 1, Role.JOINING)
    cluster.tell((leader + 2) % 4, Submitted(joining))
    assert cluster.nodes[leader].control.members[lost].disk == 1
    assert Voter(lost, 0) in cluster.nodes[leader].log.voters
    assert has_voters_to_change(cluster.nodes[leader].log, cluster.nodes[leader].control)
    assert is_waited_for(cluster.nodes[leader])
    cluster.tell(leader, Pulse(0))
    assert not has_voters_to_change(cluster.nodes[leader].log, cluster.nodes[leader].control)
    assert Voter(lost, 0) not in cluster.nodes[leader].log.voters


def test_a_quiet_cluster_says_less() -> None:
    said = []
    for elapsed in (1, 5):
        cluster = Together(4, election_pulses=20, quiet_pulses=5)
        cluster.until_quiet()
        cluster.said.clear()
        for _ in range(300 // elapsed):
            cluster.pulse(elapsed)
        said.append(cluster.said)
    often, seldom = said
    assert often[Append] == often[Appended] == 5 * seldom[Append] == 5 * seldom[Appended] > 0
    assert 0 < seldom[Gossip] < often[Gossip]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_all_nodes_hear_of_a_commit_at_once_and_once(count: int) -> None:
    cluster = Together(count)
    cluster.until_quiet()
    cluster.said.clear()
    record = DeclareStream("s", ("p",))
    cluster.tell((cluster.leader + 1) % count, Submitted(record))
    assert all(record in applied for applied in cluster.applied)
    assert cluster.said[Append] == cluster.said[Appended] == 2 * (count - 1)
