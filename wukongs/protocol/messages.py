"""The messages between nodes, as values. wukongs/wire/protocol_codec.py reads their hints to write and read them.

Every message may be lost, repeated, late, or out of order. Each names its sender's incarnation, so that messages of an
earlier life of a node are known as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from wukongs.protocol.control import Control
from wukongs.protocol.records import Entry, Int64, Position, Record, Sn, Tagged, Voter, Vts


class Incarnation(NamedTuple):
    """One life of a node. disk: generation of its disk, higher for a newer one; boot: starts with this disk."""

    node: Int64
    disk: Int64
    boot: Int64

    @property
    def voter(self) -> Voter:
        return Voter(self.node, self.disk)


class Delivered(NamedTuple):
    """known: the index of the log."""

    tick: Int64
    known: Int64


class RequestVote(Tagged, frozen=True):
    term: Int64
    last_index: Int64
    last_term: Int64


class Vote(Tagged, frozen=True):
    """left_ms: how long leases of earlier leaders may run, as far as this voter knows (leases.py)."""

    term: Int64
    is_granted: bool
    left_ms: Int64 | None = None


class Grant(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The part of an Append that is about leases (leases.py). round: the leader's newest one; lease_ms: how long a
    lease is; asked_ms: the granted request of the receiver, by the receiver's clock."""

    round: Int64
    lease_ms: Int64
    asked_ms: Int64 | None = None


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """A node asks for a lease. round: the leader's that it answers; at_ms: the time on its own clock; seen: the newest
    SN that reads see there."""

    round: Int64
    at_ms: Int64
    seen: Sn


class Append(Tagged, frozen=True):
    """Entries that follow index `before`, whose term is before_term; commit: the leader's commit index."""

    term: Int64
    before: Int64
    before_term: Int64
    entries: tuple[Entry, ...]
    commit: Int64
    grant: Grant | None = None


class Appended(Tagged, frozen=True):
    """Taken: this node shares the leader's log up to index. Not taken: it may, up to index."""

    term: Int64
    is_taken: bool
    index: Int64
    request: Request | None = None


class InstallControl(Tagged, frozen=True):
    """The leader's control state, in place of entries that it has no more; voters: the voters behind these entries."""

    term: Int64
    control: Control
    voters: frozenset[Voter]


class Propose(Tagged, frozen=True):
    """Records that a node asks the leader to append."""

    records: tuple[Record, ...]


class Report(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One node's progress. counter: rises with each report of an incarnation.

    vts: per stream, the last stream batch that is sealed (and logged) here, with all before it. since: 0 for a report
    that is whole; else the counter of a whole one of this incarnation, and vts has only what differs from that one,
    which names no other streams (progress.hear, gossip.shortened). required: the highest
    log position that this node has ever held; a node that uses this report must have committed as much. frozen: the
    dropped streams whose place in vts is final. committed: how far this node has applied the log; these entries are on
    its disk. oldest_sn: the oldest SN at which readers on this node are or may begin; oldest_firing: the oldest firing
    that they hold, None: none. delivered: up to this tick, readers have the windows of all queries that run here by the
    log up to this index. stands: SNs at which live views of this node stand, or their readers: also those between the
    oldest and the newest ones stay readable on all nodes."""

    incarnation: Incarnation
    counter: Int64
    vts: Vts
    required: Position
    oldest_sn: Sn | None = None
    oldest_firing: Int64 | None = None
    delivered: Delivered | None = None
    frozen: frozenset[str] = frozenset()
    committed: Int64 = 0
    since: Int64 = 0
    stands: tuple[Sn, ...] = ()


class Gossip(Tagged, frozen=True):
    """The newest reports that the sender has heard of. lacks: nodes of which a report has come that is not whole, while
    the sender lacks the whole one that it builds on: both are to be sent."""

    reports: tuple[Report, ...]
    lacks: tuple[Int64, ...] = ()


class FetchState(Tagged, frozen=True):
    """A joining node asks for terms and data. since: the index of the record that made it join; index: a node that
    answers must have applied the log up to here."""

    since: Int64
    index: Int64


class State(Tagged, frozen=True):
    """One node's data of another node's shards. vts and offsets: as in Kept (state.py); is_in: whether the sender is an
    in-sync replica; payload: the host's terms and data."""

    since: Int64
    vts: Vts
    offsets: Mapping[str, Mapping[str, Int64]]
    is_in: bool
    payload: str | None


Body = RequestVote | Vote | Append | Appended | InstallControl | Propose | Gossip | FetchState | State


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    sender: Incarnation
    body: Body
