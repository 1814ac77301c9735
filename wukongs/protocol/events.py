"""The events of a node, as its host tells them: time, messages, rows, and outcomes of its actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wukongs.protocol.actions import SaveControl, SaveEntries, SaveVote
from wukongs.protocol.messages import Delivered, Message, State
from wukongs.protocol.records import Record, Sn, Vts


@dataclass(frozen=True, slots=True)
class Pulse:
    """A moment has passed. draw: a random integer >= 0; elapsed: how many pulses long it was since the last one, 1 as
    long as this node has something to say (waiting.py), else up to Cluster.quiet_pulses.

    A host that was held up gives no larger number: messages of others still wait to be heard.

    at_ms: the time on the host's clock, which never falls, before the event is taken in."""

    draw: int
    elapsed: int = 1
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """at_ms: the time on the host's clock, between the arrival of the message and the event."""

    message: Message
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class PieceOffered:
    """Rows [first_offset, end_offset) of a source partition, all of one stream batch, from the writer with this
    fencing epoch. view: the one under which its new terms are agreed on, by a claim of the node that cut the piece;
    None: it has no new terms.

    after: None where the stream batches of the partition's pieces never fall. Else a piece may go back to any stream
    batch that is not closed, and nothing of the partition is in stream batches up to this one.

    piece: what TakePiece hands on to the store, unseen by the protocol; None: the store has the rows already, or they
    were set aside by the writer."""

    stream: str
    partition: str
    epoch: int
    batch: int
    first_offset: int
    end_offset: int
    view: int | None = None
    piece: object = field(default=None, compare=False, repr=False)
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """All rows before end_offset were sent, and later ones belong to stream batches after `batch`.

    is_last: nothing follows; the stream batch of the last piece is closed as well. first_offset: where the piece or
    marker before it ended, if rows [first_offset, end_offset) were set aside and came as no piece; None: end_offset."""

    stream: str
    partition: str
    epoch: int
    batch: int
    end_offset: int
    is_last: bool = False
    first_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Inserted:
    """Answers SealBatch: the stream's batches up to this one are in the store (and, where data is durable, on disk with
    their terms)."""

    stream: str
    batch: int


@dataclass(frozen=True, slots=True)
class ClaimBegun:
    """The host has a table of terms that are new here, of these shards, which are to be agreed on. claim: a number that
    no other claim of this life has; SettleClaim will name it."""

    claim: int
    shards: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    """Answers AskClaim: these nodes have compared the terms under its view. refused: the texts whose hash stands for
    another text at one of them."""

    claim: int
    view: int
    nodes: frozenset[int]
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClaimUnanswered:
    """Answers AskClaim: these nodes have not answered, or not under its view."""

    claim: int
    view: int
    nodes: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClaimGivenUp:
    """Nobody waits for a claim any more."""

    claim: int


@dataclass(frozen=True, slots=True)
class ClaimReceived:
    """A node asks this one to agree to terms, under a view. question: a number that no other question to this life has;
    AnswerClaim will name it."""

    question: int
    view: int


@dataclass(frozen=True, slots=True)
class TermsCompared:
    """Answers CompareTerms: the new terms are kept, where a restart finds them."""

    question: int
    view: int


@dataclass(frozen=True, slots=True)
class StateCollected:
    """Answers CollectState; state: with its payload."""

    asker: int
    state: State


@dataclass(frozen=True, slots=True)
class Fetched:
    """The host has fetched what a node can before it joins, or gives that up."""


@dataclass(frozen=True, slots=True)
class StateInstalled:
    """Answers InstallState. is_safe: whether a restart finds it; else StateSafe says when."""

    since: int
    vts: Vts
    offsets: Mapping[str, Mapping[str, int]]
    is_safe: bool = True


@dataclass(frozen=True, slots=True)
class StateSafe:
    """A restart finds what this node has taken over of others. since: as in InstallState."""

    since: int


@dataclass(frozen=True, slots=True)
class Submitted:
    """A client of this node asks for a control record. The new terms of a Change are agreed on before."""

    record: Record


@dataclass(frozen=True, slots=True)
class Settled:
    """The effects of the records up to this index are in the host's data, where a restart finds them: these records
    need not come again. A host that never says so keeps the whole log."""

    index: int


@dataclass(frozen=True, slots=True)
class HeldReads:
    """The oldest SN and firing that this node's readers hold, for the next reports. None: nothing is held. delivered,
    stands: as in Report."""

    oldest_sn: Sn | None
    oldest_firing: int | None
    delivered: Delivered | None = None
    stands: tuple[Sn, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseAsked:
    """A write with this SN is to be acknowledged without the nodes that have not exposed it: a leader grants these no
    lease from now on (leasing.holders). at_ms: as in Pulse."""

    sn: Sn
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class SavedBefore:
    """A node that goes through its earlier life again, before it takes part, has come to where that saved something."""

    action: SaveVote | SaveEntries | SaveControl


Event = (
    Pulse
    | Received
    | PieceOffered
    | Marker
    | Inserted
    | ClaimBegun
    | ClaimAnswered
    | ClaimUnanswered
    | ClaimGivenUp
    | ClaimReceived
    | TermsCompared
    | StateCollected
    | Fetched
    | StateInstalled
    | StateSafe
    | Submitted
    | Settled
    | HeldReads
    | LeaseAsked
    | SavedBefore
)
