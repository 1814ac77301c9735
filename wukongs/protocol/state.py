"""The state of one node's protocol, as a value, and how it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wukongs.protocol import log as raft
from wukongs.protocol import sealing
from wukongs.protocol.actions import SaveControl, SaveEntries, SaveVote
from wukongs.protocol.claims import Claim
from wukongs.protocol.control import Control, genesis
from wukongs.protocol.events import HeldReads
from wukongs.protocol.gossip import Talk
from wukongs.protocol.leases import Leases
from wukongs.protocol.membership import Stay, Watch
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.placement import machines_of
from wukongs.protocol.progress import Progress
from wukongs.protocol.records import BEGINNING, Entry, Position, Record, Role, Sn, Voter, Vts
from wukongs.protocol.sealing import StreamIntake


@dataclass(frozen=True, slots=True)
class Cluster:
    """The settings that all nodes get at their first start. voter_count: how many of the nodes vote in the majority
    log; silence_pulses_max: a leader that hears nothing new of a node for longer proposes to take it out, or for longer
    than starting_pulses_max (None: the same) if it has heard nothing of it yet;
    log_entries_max: a longer log is cut as soon as may be. spare_count: so many of the nodes, the last ones, hold
    nothing at first; replace_pulses_max: one of them takes the place of a node that is out and not heard for longer
    (None: it does not), one on another machine than the other replicas if there is one; hosts: those of the nodes of
    the beginning, as far as they are known.

    election_pulses: a node that hears no leader for so long, or up to twice as long, stands for election; quiet_pulses:
    the most pulses that a node waits for its next one while nobody waits for it (Pulse), less than half of
    election_pulses. lease_ms: how long a node may answer reads after it was last granted that (leases.py), less than
    what silence_pulses_max take; 0: it always may."""

    node_count: int
    replica_count: int = 1
    shard_count: int = 1024
    voter_count: int = 5
    silence_pulses_max: int = 50
    log_entries_max: int = 1024
    election_pulses: int = raft.ELECTION_PULSES
    quiet_pulses: int = 1
    starting_pulses_max: int | None = None
    spare_count: int = 0
    replace_pulses_max: int | None = None
    hosts: tuple[str, ...] = ()
    lease_ms: int = 0

    def __post_init__(self) -> None:
        assert 0 < 2 * self.quiet_pulses < self.election_pulses, (self.quiet_pulses, self.election_pulses)

    @property
    def genesis(self) -> Control:
        """The control state before the first record."""
        return genesis(self.node_count, self.replica_count, self.shard_count, self.spare_count)

    @property
    def first_voters(self) -> frozenset[Voter]:
        return frozenset(Voter(node, 0) for node in range(min(self.voter_count, self.node_count - self.spare_count)))


@dataclass(frozen=True, slots=True)
class Kept:
    """The state on a node's disk. vts, offsets: per stream the last inserted stream batch, and per partition the row
    behind it; the other fields: the log, as SaveVote, SaveEntries and SaveControl left it."""

    term: int = 0
    vote: Voter | None = None
    entries: tuple[Entry, ...] = ()
    high: Position = BEGINNING
    control: Control | None = None
    voters: frozenset[Voter] = frozenset()
    vts: Vts = field(default_factory=dict)
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def with_saved(kept: Kept, action: SaveVote | SaveEntries | SaveControl) -> Kept:
    """Return what a disk has kept once it has carried out an action."""
    match action:
        case SaveVote(term=term, vote=vote):
            return replace(kept, term=term, vote=vote)
        case SaveEntries(after=after, entries=entries, high=high):
            base = kept.control.index if kept.control else 0
            return replace(kept, entries=kept.entries[: after - base] + entries, high=high)
        case SaveControl(control=control, voters=voters, entries=entries, high=high):
            return replace(kept, control=control, voters=voters, entries=entries, high=high)


@dataclass(frozen=True, slots=True)
class Node:
    """claims: by number, those of this node that are under way. pending: records that clients here wait for, in order.
    counter: of reports. settled: up to where the host needs no records again; to_cut: the control state at which the
    log is cut next. is_fetching: the host fetches data while this node is out, which does not ask to join meanwhile.

    heard: the newest incarnation of each node; refused: counts of what was refused, by reason."""

    cluster: Cluster
    me: Incarnation
    log: raft.Log
    control: Control
    progress: Progress = field(default_factory=Progress)
    intakes: Mapping[str, StreamIntake] = field(default_factory=dict)
    claims: Mapping[int, Claim] = field(default_factory=dict)
    stay: Stay = field(default_factory=Stay)
    is_fetching: bool = False
    watch: Watch = field(default_factory=Watch)
    pending: tuple[Record, ...] = ()
    talk: Talk = field(default_factory=Talk)
    counter: int = 0
    settled: int = 0
    to_cut: Control | None = None
    reading: HeldReads = field(default_factory=lambda: HeldReads(None, None))
    exposed: Sn | None = None
    heard: Mapping[int, Incarnation] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    leases: Leases = field(default_factory=Leases)

    @property
    def silent_members(self) -> list[int]:
        """The nodes that everybody waits for, of which nothing was heard for so long that they are to be taken out."""
        members = self.control.with_role(Role.IN, Role.HOLDING, Role.JOINING)
        return [node for node in self.overdue if node in members]

    @property
    def overdue(self) -> list[int]:
        """The nodes of which nothing was heard for too long."""
        pulses_max, starting = self.cluster.silence_pulses_max, self.cluster.starting_pulses_max
        return self.watch.overdue(pulses_max, pulses_max if starting is None else starting)

    @property
    def lost_and_heard(self) -> tuple[list[int], list[int]]:
        """The nodes that were silent for so long that a spare one is to take their place, and those that are heard."""
        lost_after, silent_after = self.cluster.replace_pulses_max, self.cluster.silence_pulses_max
        if lost_after is None:
            return [], []
        silences = {node: self.watch.silence_of(node) for node in self.control.nodes}
        return (
            [node for node, pulses in silences.items() if pulses > lost_after],
            [node for node, pulses in silences.items() if pulses <= silent_after],
        )

    @property
    def machines(self) -> dict[int, str]:
        """The machines of the nodes, by their numbers."""
        return machines_of(self.control, self.cluster.hosts)

    @property
    def role(self) -> Role:
        """This node's role, as far as it knows the log."""
        return self.control.role_of(self.me.voter)

    @property
    def is_spare(self) -> bool:
        """Whether nobody waits for this node: it is OUT, and holds nothing."""
        return self.role is Role.OUT and not self.control.holds(self.me.node)

    @property
    def vts(self) -> Vts:
        """The local VTS."""
        return sealing.local_vts(self.intakes)

    def counting(self, reason: str) -> Node:
        """Return this node with one more refusal of this kind."""
        return replace(self, refused={**self.refused, reason: self.refused.get(reason, 0) + 1})


def boot(cluster: Cluster, me: Incarnation, kept: Kept) -> Node:
    """Return a node that starts with what its disk has kept (nothing at first, and after the disk is lost)."""
    log = raft.open_log(
        me.voter,
        cluster.node_count,
        cluster.first_voters,
        term=kept.term,
        vote=kept.vote,
        entries=kept.entries,
        high=kept.high,
        control=kept.control,
        voters=kept.voters,
        election_pulses=cluster.election_pulses,
    )
    intakes = {stream: sealing.opened_at(batch, kept.offsets[stream]) for stream, batch in kept.vts.items()}
    control = kept.control or cluster.genesis
    stay = Stay(control.member(me.node).since, control.index)
    return Node(cluster, me, log, control, intakes=intakes, stay=stay, settled=control.index)
