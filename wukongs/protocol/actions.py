"""The actions that a step asks of its host: on sockets, disk, store. The host does them in order. A save is safe on
disk before the next action happens, so nobody hears of a vote or an entry that a crash can take back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wukongs.protocol.control import Control
from wukongs.protocol.messages import Body, State
from wukongs.protocol.records import Entry, Position, Record, Sn, Voter, Vts


@dataclass(frozen=True, slots=True)
class Send:
    node: int
    body: Body


@dataclass(frozen=True, slots=True)
class SaveVote:
    term: int
    vote: Voter | None


@dataclass(frozen=True, slots=True)
class SaveEntries:
    """Put entries behind index `after` of the log on disk, in place of those that are there; high: to be kept beside
    them. The first entry on disk has index 1, or the one behind the control state there."""

    after: int
    entries: tuple[Entry, ...]
    high: Position


@dataclass(frozen=True, slots=True)
class SaveControl:
    """Put a control state on disk in place of all entries up to its index, and of those behind it: `entries`. voters,
    high: to be kept beside it.

    is_jump: this node learns these records from the state alone, without Apply: it is OUT or on its way back, and gets
    their effects by InstallState."""

    control: Control
    voters: frozenset[Voter]
    entries: tuple[Entry, ...]
    high: Position
    is_jump: bool = False


@dataclass(frozen=True, slots=True)
class TakePiece:
    """Keep the rows of an arrived piece for its stream batch. piece: as PieceOffered had it."""

    stream: str
    partition: str
    first_offset: int
    piece: object = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SealBatch:
    """The stream batches after + 1 to batch are whole: insert them (and log them, where data is
    durable), then answer Inserted, for one stream in the order of its stream batches. Most of the range may be empty.
    Rows that the store has already, since an InstallState came in between, are left out; if it has all of them,
    Inserted is answered all the same. The action is dropped if the store has not reached its `after`, or if its stream
    is gone.
    A host without durable data starts each time as one that has lost its disk.

    offsets: per partition, the row behind the last one of these stream batches."""

    stream: str
    after: int
    batch: int
    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AskClaim:
    """Ask each of these nodes (this one may be among them) to agree to the terms of a claim that are of its shards,
    under this view. The host answers ClaimAnswered for each node, or ClaimUnanswered if no answer came. shards: which
    nodes replicate each shard."""

    claim: int
    view: int
    nodes: tuple[int, ...]
    shards: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CompareTerms:
    """Compare the terms of the question with the texts held under their hashes, keep new ones where a restart finds
    them, and say TermsCompared. This may take a while; other events may come meanwhile."""

    question: int
    view: int


@dataclass(frozen=True, slots=True)
class AnswerClaim:
    """Tell the asker the outcome of the comparison, under this view. None: nothing is said about the terms; ask
    again."""

    question: int
    view: int | None


@dataclass(frozen=True, slots=True)
class SettleClaim:
    """All terms of a claim are agreed on, or re-encoded: they may be used, from this view on."""

    claim: int
    view: int


@dataclass(frozen=True, slots=True)
class CollectState:
    """Gather this node's terms and data of another one's shards, all that state.vts covers at least, put it into the
    state as payload, and answer with StateCollected."""

    asker: int
    state: State


@dataclass(frozen=True, slots=True)
class InstallState:
    """Take over the terms and data of other nodes. For a shard of this node with an in-sync replica among them, take
    its terms in place of this node's own; for other shards, add all terms that any of them has. If vts is not empty,
    take their data up to it, with all tuples of streams that are gone and with the effects of earlier records. Drop the
    rows of these streams that were kept for later stream batches: sources send those again. Then say
    StateInstalled, and StateSafe once all is safe on disk."""

    since: int
    states: Mapping[int, State]
    vts: Vts
    offsets: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Apply:
    """An entry is committed and valid. sn: of a ticked record. At a restart all come again that are behind the control
    state on disk.

    If a stream is gone by it (`Stream.gone`), the host drops the stream's batches beyond Stream.last_batch."""

    index: int
    entry: Entry
    sn: Sn | None


@dataclass(frozen=True, slots=True)
class Drop:
    """A record that was handed in will not be appended: it is in the log already, or the state that it rests on has
    changed. An update that has not seen the last one has to be evaluated again."""

    record: Record


@dataclass(frozen=True, slots=True)
class Expose:
    """Reads at up to this SN may begin; vts: the vector timestamp that it stands for."""

    sn: Sn
    vts: Vts


Action = (
    Send
    | SaveVote
    | SaveEntries
    | SaveControl
    | TakePiece
    | SealBatch
    | AskClaim
    | CompareTerms
    | AnswerClaim
    | SettleClaim
    | CollectState
    | InstallState
    | Apply
    | Drop
    | Expose
)
