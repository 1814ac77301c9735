"""Stories of leases: moments that a seed rarely meets. Each raises AssertionError."""

from __future__ import annotations

from functools import partial

from tests.sim.telling import outcome
from wukongs.protocol import leasing
from wukongs.protocol.actions import SaveControl, SaveEntries, SaveVote, Send
from wukongs.protocol.control import THE_FIRST
from wukongs.protocol.events import Event, LeaseAsked, Pulse, Received, Submitted
from wukongs.protocol.log import LogRole
from wukongs.protocol.messages import Append, Body, Incarnation, Message
from wukongs.protocol.node import step
from wukongs.protocol.records import AddNode, DeclareStream, Membership, Role, Sn
from wukongs.protocol.state import Cluster, Kept, boot, with_saved

LEASE_MS = 1000
CLUSTER = Cluster(3, 3, shard_count=3, silence_pulses_max=120, election_pulses=5, lease_ms=LEASE_MS)
ALONE = Cluster(1, 1, shard_count=3, silence_pulses_max=120, election_pulses=5, lease_ms=LEASE_MS)
WRITE = Sn(0, 1)


class Trio:
    """Nodes with one clock, three by default; a message arrives when `deliver` is called. cut: nodes that no message
    leaves or reaches; kept: what the disk of each has."""

    def __init__(self, cluster: Cluster = CLUSTER) -> None:
        self.now_ms = 10_000
        self.cluster = cluster
        self.kept = [Kept() for _ in range(cluster.node_count)]
        self.nodes = [
            leasing.begun(boot(cluster, Incarnation(node, 0, 1), kept), self.now_ms)
            for node, kept in enumerate(self.kept)
        ]
        self.cut = set[int]()
        self.sent: list[tuple[int, int, Body]] = []

    def take(self, number: int, event: Event) -> None:
        self.nodes[number], actions = step(self.nodes[number], event)
        for one in actions:
            if isinstance(one, SaveVote | SaveEntries | SaveControl):
                self.kept[number] = with_saved(self.kept[number], one)
        self.sent += [(number, one.node, one.body) for one in actions if isinstance(one, Send)]

    def deliver(self) -> None:
        while self.sent:
            origin, target, body = self.sent.pop(0)
            if not self.cut.intersection((origin, target)):
                self.take(target, Received(Message(self.nodes[origin].me, body), self.now_ms))

    def start_again(self, number: int) -> None:
        """Begin another life of a node, which has its disk and shows nothing so far."""
        me = self.nodes[number].me._replace(boot=self.nodes[number].me.boot + 1)
        self.nodes[number] = leasing.begun(boot(self.cluster, me, self.kept[number]), self.now_ms)

    def elect(self, number: int) -> None:
        """Make a node the leader: the others heard no leader for long enough, and their own candidacies are lost."""
        for node in sorted(set(range(len(self.nodes))) - {number} - self.cut):
            self.take(node, Pulse(4, 5, self.now_ms))
        self.sent.clear()
        for _ in range(5):
            if self.nodes[number].log.standing is not LogRole.LEADER:
                self.take(number, Pulse(0, 5, self.now_ms))
                self.deliver()
        assert self.nodes[number].log.standing is LogRole.LEADER
        self.take(number, Pulse(0, 1, self.now_ms))
        self.deliver()

    def lead(self, number: int, times: int = 3, after_ms: int = 10) -> None:
        """Pulse at the leader a few times."""
        for _ in range(times):
            self.now_ms += after_ms
            self.take(number, Pulse(0, 1, self.now_ms))
            self.deliver()

    def until_ms(self, number: int) -> float:
        return leasing.holds_until(self.nodes[number])

    def write(self, leader: int) -> None:
        """Commit a record with an SN: WRITE."""
        self.take(leader, Submitted(DeclareStream("s", ("a",))))
        self.deliver()
        assert self.nodes[leader].control.last_sn == WRITE

    def see(self, number: int, sn: Sn) -> None:
        self.nodes[number] = leasing.seeing(self.nodes[number], sn)


def led() -> Trio:
    trio = Trio()
    trio.elect(0)
    trio.lead(0)
    assert all(trio.until_ms(node) > trio.now_ms for node in range(3)), [node.leases for node in trio.nodes]
    return trio


def a_minority_grants_nothing() -> None:
    trio = led()
    trio.cut = {1, 2}
    before_ms = trio.until_ms(0)
    trio.lead(0, 5, 300)
    assert trio.until_ms(0) == before_ms < trio.now_ms


def a_lease_ends_for_its_holder_before_it_does_for_the_leader() -> None:
    trio = led()
    ends = {life.node: end_ms for life, end_ms in trio.nodes[0].leases.runs_out.items()}
    for node in range(3):
        assert trio.until_ms(node) <= ends[node] - LEASE_MS * leasing.DRIFT, (node, ends)


def a_lease_counts_from_its_request() -> None:
    trio = led()
    granted_ms = trio.nodes[0].leases.granted[trio.nodes[1].me]
    trio.lead(0, 1, 400)
    assert trio.until_ms(1) == granted_ms + int(LEASE_MS * (1 - leasing.DRIFT))


def a_node_without_an_acknowledged_write_gets_no_lease() -> None:
    trio = led()
    trio.write(0)
    trio.see(0, WRITE)
    trio.see(2, WRITE)
    before_ms = trio.until_ms(1)
    trio.take(0, LeaseAsked(WRITE, trio.now_ms))
    trio.lead(0, 6, 300)
    assert trio.until_ms(1) <= before_ms + 10 < trio.now_ms < trio.until_ms(2)
    assert leasing.holders(trio.nodes[0], WRITE) == set()
    trio.see(1, WRITE)
    trio.lead(0)
    assert trio.until_ms(1) > trio.now_ms


def a_node_gets_its_first_lease_behind_all_that_is_in_the_log() -> None:
    trio = Trio()
    trio.elect(0)
    trio.cut = {2}
    trio.nodes[0] = leasing.begun(trio.nodes[0], trio.now_ms)  # nothing was asked in its term so far
    trio.lead(0)
    trio.write(0)
    trio.cut = set()
    trio.lead(0, 6, 300)
    assert trio.until_ms(1) > trio.now_ms > trio.until_ms(2)
    trio.see(2, WRITE)
    trio.lead(0)
    assert trio.until_ms(2) > trio.now_ms


def a_new_leader_counts_the_leases_of_the_one_before() -> None:
    trio = led()
    trio.now_ms += 300
    trio.cut = {0}
    trio.elect(1)
    trio.see(1, WRITE)
    trio.lead(1)
    assert 0 in leasing.holders(trio.nodes[1], WRITE)
    assert trio.until_ms(0) > trio.now_ms
    trio.lead(1, 1, int(trio.until_ms(0)) - trio.now_ms)
    trio.lead(1, 1, int(LEASE_MS * leasing.DRIFT) + 1)
    assert 0 not in leasing.holders(trio.nodes[1], WRITE)


def a_voter_that_has_started_again_remembers_nothing() -> None:
    trio = led()
    kept = Kept(term=trio.nodes[1].log.term, vote=trio.nodes[1].log.vote)
    again = leasing.begun(boot(CLUSTER, Incarnation(1, 0, 2), kept), trio.now_ms)
    assert again.leases.promised_ms == trio.now_ms + LEASE_MS


def a_leader_is_believed_once_a_later_round_is_confirmed() -> None:
    trio = led()
    exposure, newest = leasing.Exposure({0}), leasing.Newest()
    said = leasing.leader_says(trio.nodes[0], THE_FIRST)
    for _ in range(3):  # it was perhaps replaced long ago
        exposure.hear(said, range(3))
        newest.hear(said)
    assert exposure.left(trio.nodes[0].control) == {1, 2}
    assert newest.sn is None
    trio.lead(0)
    exposure.hear(leasing.leader_says(trio.nodes[0], THE_FIRST), range(3))
    newest.hear(leasing.leader_says(trio.nodes[0], THE_FIRST))
    assert exposure.left(trio.nodes[0].control) == set()
    assert newest.sn == THE_FIRST


def a_node_is_taken_out_when_its_lease_is_over() -> None:
    trio = led()
    out = Membership(1, 0, Role.OUT)
    trio.cut = {1}
    trio.take(0, Pulse(0, 1, trio.now_ms))
    assert leasing.holds_back(trio.nodes[0], out)
    trio.now_ms += LEASE_MS
    trio.take(0, Pulse(0, 1, trio.now_ms))
    assert not leasing.holds_back(trio.nodes[0], out)


def a_new_leader_grants_nothing_to_whom_lacks_what_is_in_its_log() -> None:
    trio = led()
    trio.write(0)
    trio.lead(0)
    trio.now_ms += 300
    trio.cut = {0}
    trio.elect(1)
    assert trio.nodes[1].leases.floor == WRITE


def a_node_that_is_alone_has_a_lease_once_it_shows_again_what_it_had() -> None:
    trio = Trio(ALONE)
    assert trio.until_ms(0) == 0
    trio.elect(0)
    assert trio.until_ms(0) == float("inf")
    trio.write(0)
    trio.see(0, WRITE)
    trio.start_again(0)
    assert trio.until_ms(0) == 0
    trio.elect(0)
    trio.lead(0)
    assert trio.nodes[0].control.last_sn == WRITE
    assert trio.until_ms(0) == 0
    trio.see(0, WRITE)
    assert trio.until_ms(0) == float("inf")


def a_node_that_has_forgotten_that_others_were_added_has_no_lease() -> None:
    trio = Trio(ALONE)
    trio.cut = {1}
    trio.elect(0)
    trio.take(0, Submitted(AddNode(1, "", "")))
    assert trio.nodes[0].control.nodes == [0, 1]
    trio.start_again(0)
    assert trio.nodes[0].control.nodes == [0]
    assert trio.until_ms(0) == 0
    trio.elect(0)
    assert trio.nodes[0].control.nodes == [0, 1]
    trio.lead(0)
    assert trio.now_ms < trio.until_ms(0) < float("inf")


def a_follower_that_has_started_again_gets_a_lease_once_it_shows_again_what_it_had() -> None:
    trio = led()
    trio.write(0)
    for node in range(3):
        trio.see(node, WRITE)
    trio.lead(0)
    trio.now_ms += 1
    trio.start_again(1)
    trio.take(0, Pulse(0, 1, trio.now_ms))
    assert any(target == 1 and isinstance(body, Append) and body.grant is not None for _, target, body in trio.sent)
    trio.deliver()  # what was granted to the earlier life
    assert trio.until_ms(1) == 0
    trio.lead(0, 6, 300)
    assert trio.nodes[1].control.last_sn == WRITE
    assert trio.until_ms(1) == 0 < trio.now_ms < trio.until_ms(2)
    trio.see(1, WRITE)
    trio.lead(0)
    assert trio.until_ms(1) > trio.now_ms


STORIES = (
    a_minority_grants_nothing,
    a_lease_ends_for_its_holder_before_it_does_for_the_leader,
    a_lease_counts_from_its_request,
    a_node_without_an_acknowledged_write_gets_no_lease,
    a_node_gets_its_first_lease_behind_all_that_is_in_the_log,
    a_new_leader_counts_the_leases_of_the_one_before,
    a_voter_that_has_started_again_remembers_nothing,
    a_leader_is_believed_once_a_later_round_is_confirmed,
    a_node_is_taken_out_when_its_lease_is_over,
    a_new_leader_grants_nothing_to_whom_lacks_what_is_in_its_log,
    a_node_that_is_alone_has_a_lease_once_it_shows_again_what_it_had,
    a_node_that_has_forgotten_that_others_were_added_has_no_lease,
    a_follower_that_has_started_again_gets_a_lease_once_it_shows_again_what_it_had,
)

failure = partial(outcome, STORIES)
