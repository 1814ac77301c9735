"""Control records: everything that is not stream progress, as values of the majority log.

An entry's place in the log is the order in which all nodes apply it. Records that make a snapshot number (`TICKED`)
also carry the tick that they lie behind, see wukongs/protocol/snapshots.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

LIVE = "live"
"""The clock group whose event time is the tick of the SN; others move by Advance records."""


class Sn(NamedTuple):
    """tick: event time of the clock group LIVE, in its unit; minor: counts the ticked records behind it, from 1."""

    tick: int
    minor: int


Vts = Mapping[str, int]
"""Per stream the number of its last stream batch; a stream that is not in it stands at 0, before its first."""


class Voter(NamedTuple):
    """A node and the generation of its disk: who loses the disk is another voter, since it has forgotten its votes."""

    node: int
    disk: int


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in some node's log, in Raft's order of logs: terms first. Terms never fall along a log; so whose
    committed log ends at or above the position of a committed entry has this entry."""

    term: int
    index: int


BEGINNING = Position(0, 0)


class Role(Enum):
    """The role of a node for its shards. OUT: nobody waits for it. JOINING: it claims terms and fetches what it lacks.
    HOLDING: the stable VTS waits for it, too. IN: an in-sync replica, which readers may ask."""

    OUT = "out"
    JOINING = "joining"
    HOLDING = "holding"
    IN = "in"


@dataclass(frozen=True, slots=True)
class Nothing:
    """A new leader's first entry, since it may count only entries of its own term."""


@dataclass(frozen=True, slots=True)
class Voters:
    """The voters from here on: one more or one less than before. The record counts as soon as it is held."""

    voters: frozenset[Voter]


@dataclass(frozen=True, slots=True)
class Membership:
    """A node's next role. since: the index of the record that made it JOINING (0: from the beginning), so that a
    record about an earlier stay says nothing about this one; ignored when role is JOINING."""

    node: int
    disk: int
    role: Role
    since: int = 0


@dataclass(frozen=True, slots=True)
class DeclareStream:
    """All else names the stream by its key: this name, or, for one that is declared anew after DropStream, the name, a
    space, and the index of this record. (Names have no spaces.) So what is said of the old one is not said of the new.

    Stream batch k >= 1 of the stream ends at tick first_tick + k * batch_ticks of its clock group; it closes by the
    markers of all partitions, these and those that join (OpenPartition): while there is none, nothing closes. payload:
    the host's options for it, as JSON. replaces: the key of the dropped stream that had the name before, if one had; so
    a late repetition of the first proposal declares nothing."""

    stream: str
    partitions: tuple[str, ...]
    batch_ticks: int = 1
    group: str = LIVE
    first_tick: int = 0
    payload: str = ""
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """A source partition joins a stream: from here on stream batches close only by its markers, too. Its writer sends
    only after all nodes have applied this; what they have sealed by then is over (sealing.py)."""

    stream: str
    partition: str


@dataclass(frozen=True, slots=True)
class BeginStream:
    """The stream has its first tuple or advance: it holds ticks back from here on."""

    stream: str


@dataclass(frozen=True, slots=True)
class EndStream:
    """The stream's last stream batch; it holds nothing back once that is stable. is_cut: of a dropped stream, the last
    one that all in-sync replicas have; from here on the stream is gone. Only leaders say that. partition_count: how
    many partitions are at their end; void if there are more by now. Of a cut: ignored."""

    stream: str
    last_batch: int
    is_cut: bool = False
    partition_count: int = 1


@dataclass(frozen=True, slots=True)
class DropStream:
    """Nothing is sealed of the stream from here on, and its name is free. An EndStream will tell where it ends."""

    stream: str


@dataclass(frozen=True, slots=True)
class AdvanceGroup:
    """From this SN on, reads see the streams of a clock group other than LIVE up to a tick of that group."""

    group: str
    tick: int


@dataclass(frozen=True, slots=True)
class RegisterQuery:
    """A continuous query, and the nodes that keep slices for it. payload: the host's text and options, as JSON."""

    query: str
    streams: tuple[str, ...]
    nodes: tuple[int, ...]
    payload: str = ""


@dataclass(frozen=True, slots=True)
class MoveQuery:
    """Other nodes keep slices for a query from here on; its node may be gone. before: those that have kept them, in
    order (none: whichever), so that of two who move it at the same time one does."""

    query: str
    nodes: tuple[int, ...]
    before: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DropQuery:
    """since: the SN of its registration (None: whichever), so that a late repetition does not drop another query that
    was registered under the name meanwhile."""

    query: str
    since: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A load or an update. (client, number): repeats are applied once. after: of an update, the index of the last
    change that its snapshot had; another change in between makes it void, and it is evaluated again. None: a load,
    which read nothing. view: of the members when it is proposed; void in another one, see ReEncode. payload: the
    host's, JSON; its new terms were agreed on before."""

    client: str
    number: int
    payload: str
    after: int | None
    view: int


@dataclass(frozen=True, slots=True)
class ReEncode:
    """The text's hash stands for another text: it gets an id of its own, for ever.

    view: the index of the last membership record when a replica refused the text. Another one since makes this void:
    other replicas may by now agree to the hash."""

    text: str
    view: int


Record = (
    Nothing
    | Voters
    | Membership
    | DeclareStream
    | OpenPartition
    | BeginStream
    | EndStream
    | DropStream
    | AdvanceGroup
    | RegisterQuery
    | MoveQuery
    | DropQuery
    | Change
    | ReEncode
)
TICKED = (
    DeclareStream,
    OpenPartition,
    BeginStream,
    EndStream,
    DropStream,
    AdvanceGroup,
    RegisterQuery,
    MoveQuery,
    DropQuery,
    Change,
)
"""Records that have an SN."""


def record_key(record: Record) -> Hashable:
    """Return what tells a record from others: a change is stamped with a view each time when it is proposed."""
    return (record.client, record.number) if isinstance(record, Change) else record


@dataclass(frozen=True, slots=True)
class Entry:
    """One place of the majority log. term: the leader's that appended it; tick, leader: of a ticked record, the tick
    that it lies behind, and the leader whose local VTS was no further (snapshots.py); None, None otherwise."""

    term: int
    record: Record
    tick: int | None = None
    leader: Voter | None = None
