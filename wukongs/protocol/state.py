"""What one node's protocol knows, as a value, and how it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wukongs.protocol import log as raft
from wukongs.protocol import sealing
from wukongs.protocol.control import Control, genesis
from wukongs.protocol.events import Reading
from wukongs.protocol.gossip import Talk
from wukongs.protocol.membership import Stay, Watch
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.progress import Progress
from wukongs.protocol.records import BEGINNING, Entry, Position, Record, Role, Sn, Voter, Vts
from wukongs.protocol.sealing import Intake
from wukongs.protocol.terms import Terms


@dataclass(frozen=True, slots=True)
class Cluster:
    """What all nodes are told at their first start. voter_count: how many of the nodes vote in the majority log;
    silence_pulses_max: a leader that hears nothing new of a node for longer proposes to take it out; log_entries_max: a
    longer log is cut as soon as may be.

    election_pulses: who hears no leader for so long, or up to twice as long, stands for election; quiet_pulses: how
    long a node waits at most with its next pulse while nobody waits for it (Pulse), less than half of that."""

    node_count: int
    replica_count: int = 1
    shard_count: int = 1024
    voter_count: int = 5
    silence_pulses_max: int = 50
    log_entries_max: int = 1024
    election_pulses: int = raft.ELECTION_PULSES
    quiet_pulses: int = 1

    def __post_init__(self) -> None:
        assert 0 < 2 * self.quiet_pulses < self.election_pulses, (self.quiet_pulses, self.election_pulses)

    @property
    def first_voters(self) -> frozenset[Voter]:
        return frozenset(Voter(node, 0) for node in range(min(self.voter_count, self.node_count)))


@dataclass(frozen=True, slots=True)
class Kept:
    """What is on a node's disk. vts, offsets: per stream the last inserted stream batch, and per partition the row
    behind it; the others: of the log, as SaveVote, SaveEntries and SaveControl left them."""

    term: int = 0
    vote: Voter | None = None
    entries: tuple[Entry, ...] = ()
    high: Position = BEGINNING
    control: Control | None = None
    voters: frozenset[Voter] = frozenset()
    vts: Vts = field(default_factory=dict)
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """pending: records that clients here wait for, with the texts that wait for confirmation. counter: of reports.
    settled: up to where the host needs no records again; to_cut: the control state at which the log is cut next.

    heard: the newest incarnation of each node; refused: counts of what was refused, by reason."""

    cluster: Cluster
    me: Incarnation
    log: raft.Log
    control: Control
    progress: Progress = field(default_factory=Progress)
    intakes: Mapping[str, Intake] = field(default_factory=dict)
    terms: Terms = field(default_factory=Terms)
    stay: Stay = field(default_factory=Stay)
    watch: Watch = field(default_factory=Watch)
    pending: Mapping[Record, frozenset[str]] = field(default_factory=dict)
    talk: Talk = field(default_factory=Talk)
    counter: int = 0
    settled: int = 0
    to_cut: Control | None = None
    reading: Reading = field(default_factory=lambda: Reading(None, None))
    exposed: Sn | None = None
    heard: Mapping[int, Incarnation] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def role(self) -> Role:
        """This node's role, as far as it knows the log."""
        return self.control.role_of(self.me.voter)

    @property
    def vts(self) -> Vts:
        """The local VTS."""
        return sealing.local_vts(self.intakes)

    def counting(self, reason: str) -> Node:
        """Return this node with one more refusal of this kind."""
        return replace(self, refused={**self.refused, reason: self.refused.get(reason, 0) + 1})

    def can_serve(self, vts: Vts, index: int) -> bool:
        """Whether this node may answer for its shards at an SN that stands for this VTS and the log up to an index.

        Who asks may not know yet that this node has lost its disk; the VTS does not tell that its terms are gone."""
        streams = self.control.streams
        is_gone = {stream for stream in vts if stream in streams and streams[stream].gone is not None}
        has_all = all(self.vts.get(stream, 0) >= batch for stream, batch in vts.items() if stream not in is_gone)
        return self.role is Role.IN and self.control.index >= index and has_all


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
    control = kept.control or genesis(cluster.node_count, cluster.replica_count, cluster.shard_count)
    stay = Stay(control.members[me.node].since, control.index)
    terms = Terms(control.view)
    return Node(cluster, me, log, control, intakes=intakes, terms=terms, stay=stay, settled=control.index)
