"""Control records: everything that is not stream progress, as values of the majority log.

An entry's place in the log is the order in which all nodes apply it. Records that make a snapshot number (`TICKED`)
also carry the tick that they lie behind, see wukongs/protocol/snapshots.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from wukongs.outcomes import Asked

NO_RULES = "[]"
"""Change.rules while there are none yet, but changes store the tuples of streams as if there were."""
LIVE = "live"
"""The clock group whose event time is the tick of the SN; others move by Advance records."""

Int64 = Annotated[int, Meta(ge=1 - (1 << 63), le=(1 << 63) - 1)]
"""An integer of 64 bits: a peer may send longer ones, which are refused."""


class Tagged(Struct, frozen=True, tag=True, tag_field="is", omit_defaults=True, forbid_unknown_fields=True):
    """One of a union. On the wire it names its class under "is", and leaves out fields that have their default."""


class Sn(NamedTuple):
    """tick: event time of the clock group LIVE, in its unit; minor: counts the ticked records behind it, from 1."""

    tick: Int64
    minor: Int64


Vts = Mapping[str, Int64]
"""Per stream the number of its last stream batch; a stream that is not in it stands at 0, before its first."""


class Voter(NamedTuple):
    """A node and the generation of its disk: a node that loses the disk is another voter, since it has forgotten its
    votes."""

    node: Int64
    disk: Int64


class Position(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A place in some node's log, in Raft's order of logs: terms first. Terms never fall along a log; so whose
    committed log ends at or above the position of a committed entry has this entry."""

    term: Int64
    index: Int64


BEGINNING = Position(0, 0)


class Role(Enum):
    """The role of a node for its shards. OUT: nobody waits for it. JOINING: it claims terms and fetches what it lacks.
    HOLDING: the stable VTS waits for it, too. IN: an in-sync replica, which readers may ask."""

    OUT = "out"
    JOINING = "joining"
    HOLDING = "holding"
    IN = "in"


class Nothing(Tagged, frozen=True):
    """A new leader's first entry, since it may count only entries of its own term."""


class Founded(Tagged, frozen=True):
    """The cluster begins its life: the first of these names it. Nodes that have forgotten everything begin another
    one."""

    life: str


class Voters(Tagged, frozen=True):
    """The voters from here on: one more or one less than before. The record counts as soon as it is held."""

    voters: frozenset[Voter]


class Membership(Tagged, frozen=True):
    """A node's next role. since: the index of the record that made it JOINING (0: from the beginning), so that a
    record about an earlier stay says nothing about this one; ignored when role is JOINING."""

    node: Int64
    disk: Int64
    role: Role
    since: Int64 = 0

    @property
    def tells_of_a_loss(self) -> bool:
        """Whether a node says by it that it has a new disk, with which it has not joined yet."""
        return self.role is Role.OUT and self.disk > 0 and not self.since


class Drain(Tagged, frozen=True):
    """Nodes that are OUT and have never held anything become replicas of a node's shards beside it, each of every
    len(to)-th one (placement.py). Once they are IN, the node is to hold nothing."""

    node: Int64
    to: tuple[Int64, ...]


class Drained(Tagged, frozen=True):
    """A node holds no shards from here on: others are IN in its place. Only leaders say that.

    renews_view: others need its agreement to terms no more, so this begins another view (claims.py). Records of logs
    from before this field do not."""

    node: Int64
    renews_view: bool = False


class AddNode(Tagged, frozen=True):
    """A node that nobody named at the beginning, with the next number: it is a spare one. peers, clients, public_key:
    where the others and clients find it, and its key, if nodes have keys of their own."""

    node: Int64
    peers: str
    clients: str
    public_key: str = ""


def host_of(address: str) -> str:
    """Return the host of an address of the form tcp://host:port."""
    return address.removeprefix("tcp://").rpartition(":")[0].strip("[]")


class RemoveNode(Tagged, frozen=True):
    """A node that is OUT and holds nothing takes no part any more, for ever: its number names no other one."""

    node: Int64


class DeclareStream(Tagged, frozen=True):
    """Other records name the stream by its key: this name; or, if it is declared anew after DropStream, the name, a
    space, and the index of this record. (Names have no spaces.) So records about the old stream do not concern the new
    one.

    Stream batch k >= 1 of the stream ends at tick first_tick + k * batch_ticks of its clock group; it closes by the
    markers of all partitions, these and those that join (OpenPartition): while there is none, nothing closes. payload:
    the host's options for it, as JSON. replaces: the key of the dropped stream that had the name before, if one had; so
    a late repetition of the first proposal declares nothing. is_made: a query makes it: it is late for ever."""

    stream: str
    partitions: tuple[str, ...]
    batch_ticks: Int64 = 1
    group: str = LIVE
    first_tick: Int64 = 0
    payload: str = ""
    replaces: str = ""
    is_made: bool = False


class OpenPartition(Tagged, frozen=True):
    """A source partition joins a stream: from here on stream batches close only by its markers, too. Its writer sends
    only after all nodes have applied this; it sends nothing for stream batches that they have sealed by then
    (sealing.py)."""

    stream: str
    partition: str


class BeginStream(Tagged, frozen=True):
    """The stream has its first tuple or advance. empty_to: nothing of it is in stream batches up to this one, as far as
    the proposer knows.

    It holds ticks back from here on, unless it begins late: a stream batch after `empty_to` ends at or before the tick
    of this record. Then LateJoin records show it, until it has come as far as the ticks. A stream that a query makes
    begins late, and stays so."""

    stream: str
    empty_to: Int64 = 0


class LateJoin(Tagged, frozen=True):
    """From this SN on, reads see the stream batches of a late stream up to this one. If it is the last one that ends at
    or before the tick of this record, the stream is late no more: it holds ticks back from here on. Only leaders say
    that."""

    stream: str
    batch: Int64


class EndStream(Tagged, frozen=True):
    """The stream's last stream batch; it holds nothing back once that is stable. is_cut: of a dropped stream, the last
    one that all in-sync replicas have; from here on the stream is gone. Only leaders say that. partition_count: how
    many partitions are at their end; void if there are more by now. Of a cut: ignored."""

    stream: str
    last_batch: Int64
    is_cut: bool = False
    partition_count: Int64 = 1


class DropStream(Tagged, frozen=True):
    """Nothing is sealed of the stream from here on, and its name is free. An EndStream will tell where it ends."""

    stream: str


class AdvanceGroup(Tagged, frozen=True):
    """From this SN on, reads see the streams of a clock group other than LIVE up to a tick of that group."""

    group: str
    tick: Int64


class RegisterQuery(Tagged, frozen=True):
    """A continuous query, and the nodes that keep slices for it. payload: the host's text and options, as JSON. makes:
    the key of a declared stream that nobody has written to, and that this query makes from here on, if it does."""

    query: str
    streams: tuple[str, ...]
    nodes: tuple[Int64, ...]
    payload: str = ""
    makes: str = ""


class MoveQuery(Tagged, frozen=True):
    """Other nodes keep slices for a query from here on. before: those that have kept them, in order (none: whichever),
    so that of two who move it at the same time one does. come: its nodes are gone, and up to this tick readers have its
    windows: from there on it fires again. None: its nodes are there, and it goes on behind what they have fired."""

    query: str
    nodes: tuple[Int64, ...]
    before: tuple[Int64, ...] = ()
    come: Int64 | None = None


class NameReaders(Tagged, frozen=True):
    """A group of readers of a query has a name, by which its node, and each that comes after it, keeps its windows.
    since: the SN of the registration. stands: of a live view, where they stand, as JSON; it takes the place of what was
    said before. number: of what is said so of the group, from 1, so that a late repetition does not take them back;
    placed: the index of the record that brought the view to the node that says it, so that it says nothing once the
    view goes on at another one."""

    query: str
    group: str
    since: tuple[Int64, Int64]
    stands: str = ""
    number: Int64 = 0
    placed: Int64 = 0


class AlterQuery(Tagged, frozen=True):
    """From this SN on, a query has another text, or is paused, or goes on. It goes by what it was for all firings that
    are due before. streams: of its windows now; payload: all of what it is, as in RegisterQuery. since: the SN of its
    registration (None: whichever); number: of its changes, from 1, so that of two changes at the same time one is void,
    and is made anew over the other.

    bound: of a live view with arguments, as JSON: what is bound or unbound in addition; the payload is empty then, and
    stays what it was, as the streams do. Beside a payload: all changes of the arguments so far, in the place of their
    records. Empty: the arguments stay."""

    query: str
    streams: tuple[str, ...]
    payload: str
    number: Int64 = 1
    since: tuple[Int64, Int64] | None = None
    bound: str = ""


class DropQuery(Tagged, frozen=True):
    """since: the SN of its registration (None: whichever), so that a late repetition does not drop another query that
    was registered under the name meanwhile."""

    query: str
    since: tuple[Int64, Int64] | None = None


class Change(Tagged, frozen=True):
    """A load or an update. (client, number): repeats are applied once; needed: the numbers that the client had
    under way when it asked, none for one that has one at a time (wukongs/outcomes.py). after: of an update, the
    index of the last change that its snapshot had; another change in between makes it void, and it is evaluated
    again. None: a load, which read nothing. view: of the members when it is proposed; void in another one, see
    ReEncode. payload: the host's, JSON; its new terms were agreed on before.

    read: it says all that follows by the rules that hold at this SN, so nothing may have changed the stored graph since
    (decision 0096). None: it does not look at rules, and is void once there are some. rules: those that hold from its
    own SN on, the host's, JSON, "" for none; None: as before. follows: the streams of which it has the tuples that join
    the stored graph, with what follows, up to these stream batches; without payload there are none (followed.py)."""

    client: str
    number: Int64
    payload: str
    after: Int64 | None
    view: Int64
    needed: tuple[Int64, ...] = ()
    read: Sn | None = None
    rules: str | None = None
    follows: tuple[tuple[str, Int64], ...] = ()

    @property
    def asked(self) -> Asked:
        return Asked.of(self.client, self.number, self.needed)


class ReEncode(Tagged, frozen=True):
    """The text's hash stands for another text: it gets an id of its own, for ever.

    view: the one in which a replica refused the text (claims.py). Another one since makes this void: other replicas may
    by now agree to the hash."""

    text: str
    view: Int64


Record = (
    Nothing
    | Founded
    | Voters
    | Membership
    | Drain
    | Drained
    | AddNode
    | RemoveNode
    | DeclareStream
    | OpenPartition
    | BeginStream
    | LateJoin
    | EndStream
    | DropStream
    | AdvanceGroup
    | RegisterQuery
    | MoveQuery
    | NameReaders
    | AlterQuery
    | DropQuery
    | Change
    | ReEncode
)
TICKED = (
    DeclareStream,
    OpenPartition,
    BeginStream,
    LateJoin,
    EndStream,
    DropStream,
    AdvanceGroup,
    RegisterQuery,
    MoveQuery,
    AlterQuery,
    DropQuery,
    Change,
)
"""Records that have an SN."""


def record_key(record: Record) -> Hashable:
    """Return a key that tells a record from others: a change is stamped with a view each time when it is proposed."""
    return (record.client, record.number) if isinstance(record, Change) else record


class Entry(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One place of the majority log. term: the leader's that appended it; tick, leader: of a ticked record, the tick
    that it lies behind, and the leader whose local VTS was no further (snapshots.py); None, None otherwise."""

    term: Int64
    record: Record
    tick: Int64 | None = None
    leader: Voter | None = None
