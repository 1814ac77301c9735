"""The messages between nodes, as values. Their wire format is defined elsewhere.

Every message may be lost, repeated, late, or out of order. Each names its sender's incarnation, so that messages of an
earlier life of a node are known as such.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wukongs.protocol.control import Control
from wukongs.protocol.records import Entry, Position, Record, Sn, Voter, Vts


class Incarnation(NamedTuple):
    """One life of a node. disk: generation of its disk, higher for a newer one; boot: starts with this disk."""

    node: int
    disk: int
    boot: int

    @property
    def voter(self) -> Voter:
        return Voter(self.node, self.disk)


@dataclass(frozen=True, slots=True)
class RequestVote:
    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class Vote:
    term: int
    is_granted: bool


@dataclass(frozen=True, slots=True)
class Append:
    """Entries that follow index `before`, whose term is before_term; commit: the leader's commit index."""

    term: int
    before: int
    before_term: int
    entries: tuple[Entry, ...]
    commit: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Taken: this node shares the leader's log up to index. Not taken: it may, up to index."""

    term: int
    is_taken: bool
    index: int


@dataclass(frozen=True, slots=True)
class InstallControl:
    """The leader's control state, in place of entries that it has no more; voters: who votes behind these entries."""

    term: int
    control: Control
    voters: frozenset[Voter]


@dataclass(frozen=True, slots=True)
class Propose:
    """Records that a node asks the leader to append."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """One node's progress. counter: rises with each report of an incarnation.

    vts: per stream, the last stream batch that is sealed (and logged) here, with all before it. required: the
    highest log position that this node has ever held: who uses this report has to have committed as much. frozen: the
    dropped streams of which nothing will be added to vts. committed: how far this node has applied the log, whose
    entries are on its disk. oldest_sn: the oldest SN at which readers on this node are or may begin; oldest_firing:
    what they hold; None: nothing."""

    incarnation: Incarnation
    counter: int
    vts: Vts
    required: Position
    oldest_sn: Sn | None = None
    oldest_firing: int | None = None
    frozen: frozenset[str] = frozenset()
    committed: int = 0


@dataclass(frozen=True, slots=True)
class Gossip:
    """The newest report of each node that the sender has heard of."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class FetchState:
    """A joining node asks for terms and data. since: the index of the record that made it join; index: how far who
    answers must have applied the log."""

    since: int
    index: int


@dataclass(frozen=True, slots=True)
class State:
    """One node's data of another node's shards. vts and offsets: as in Kept (state.py); is_in: whether the sender is an
    in-sync replica; payload: the host's terms and data."""

    since: int
    vts: Vts
    offsets: Mapping[str, Mapping[str, int]]
    is_in: bool
    payload: Hashable


Body = RequestVote | Vote | Append | Appended | InstallControl | Propose | Gossip | FetchState | State


@dataclass(frozen=True, slots=True)
class Message:
    sender: Incarnation
    body: Body
