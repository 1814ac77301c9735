"""NodeStore: the data side of a node: its share of streams and graph, brought forward by what the protocol exposes.

The protocol loop tells it what has been decided, in that order, from one thread; no call waits for firings or for other
nodes. What is exposed is carried out by the injector's thread, in order of SN: the stream batches that end at or before
a tick, the firings due by then, then the records behind the tick, each at exactly its SN. Readers use `core` under its
lock, as those of an embedded engine.

Stream batches go by the protocol's numbers (from 1 on, counted from DeclareStream.first_tick) in calls that carry out
its actions, and by their real numbers (ceil(timestamp_ms / batch_ms)) between nodes; `real_batch` and `protocol_batch`
change one into the other.

Nothing is durable: a node that starts anew begins as one that has lost its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from store.dtypes import BoolArray
from store.encoded import Encoded, TermTable
from wukongs.continuous.continuous import ContinuousQuery
from wukongs.core import Core
from wukongs.injection.injector import Injector
from wukongs.protocol.messages import Term
from wukongs.protocol.records import Record
from wukongs.protocol.snapshots import Sn, Vts
from wukongs.settings import Settings
from wukongs.wire.messages import Close, Piece
from wukongs.wire.packets import Packet
from wukongs.wire.sharding import ShardMap


@dataclass(frozen=True, slots=True)
class MissingSlices:
    """Stream batches from <= k <= to (real numbers) of a stream, which this node needs whole."""

    stream: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Held:
    """For the protocol's Reading: nobody here reads, or will begin to read, before this SN, or needs slices of stream
    batches that end at or before this tick."""

    oldest_sn: Sn
    oldest_firing: int


class NodeStore:
    """core, injector: as those of an embedded engine. me: this node's number; shard_map: of the genesis."""

    core: Core
    injector: Injector

    def __init__(
        self, settings: Settings, me: int, shard_map: ShardMap, *, on_missing: Callable[[], object] = lambda: None
    ) -> None:
        """on_missing: called from any thread, without a lock that this class takes, when `missing_slices` may have
        become longer; must return at once."""
        raise NotImplementedError

    # --- pieces of streams --------------------------------------------------------------------------------------------

    def protocol_batch(self, stream: str, number: int) -> int:
        """Return the protocol's number of a stream batch, by its real one. Raises StreamError (an unknown stream)."""
        raise NotImplementedError

    def real_batch(self, stream: str, batch: int) -> int:
        """Return the real number of a stream batch, by the protocol's. Raises as protocol_batch."""
        raise NotImplementedError

    def check(self, piece: Piece) -> None:
        """Check a piece before it is told to the protocol, and that there is room for it. Raises StreamError."""
        raise NotImplementedError

    def unknown_terms(self, encoded: Encoded) -> frozenset[Term]:
        """Return the terms that this node does not know as confirmed, for the protocol's Piece and Submitted."""
        raise NotImplementedError

    def unknown_texts(self, texts: Sequence[str]) -> frozenset[Term]:
        """As unknown_terms, of canonical forms: the constants of a query to register, the names of graphs."""
        raise NotImplementedError

    def take(self, piece: Piece) -> None:
        """Keep the rows of a piece for their stream batch (TakePiece)."""
        raise NotImplementedError

    def take_close(self, message: Close) -> None:
        """Note a marker that was taken: a stream may begin with one, before it has tuples."""
        raise NotImplementedError

    def seal(self, stream: str, up_to: int) -> None:
        """Give the rows of all stream batches up to this one (the protocol's number) their final ids (SealBatch). They
        are inserted when this returns; readers see them when they are exposed."""
        raise NotImplementedError

    # --- terms --------------------------------------------------------------------------------------------------------

    def compare_terms(self, table: TermTable) -> BoolArray:
        """Tell of each term whether this node, as a replica of its shard, has this text under its hash, from now on
        and for ever: bool[n]. ids : the hashes of the texts."""
        raise NotImplementedError

    def compare_texts(self, texts: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
        """As compare_terms, for CompareTerms: return (equal, clashing)."""
        raise NotImplementedError

    def confirm(self, texts: Iterable[str]) -> None:
        """Note that these texts may be used under their hashes (Confirm)."""
        raise NotImplementedError

    # --- loads and updates --------------------------------------------------------------------------------------------

    def stage(self, change: str, number: int, chunk: Encoded, *, goes: bool = False, is_last: bool = False) -> None:
        """Keep chunk `number` (from 0 on) of this node's share of a change, before its record: quads that come, or that
        go. Those without a graph of their own are of the change's graph. A repeated chunk is passed over; a node
        without a share is given one empty chunk, the last.

        Raises BudgetExceeded (too much is staged)."""
        raise NotImplementedError

    def unstage(self, change: str) -> None:
        """Forget what is staged for a change that will have no record."""
        raise NotImplementedError

    # --- what the log and the stable vector timestamp say -------------------------------------------------------------

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        """Take in a committed record (Apply). Those with an SN take effect when that is exposed. ReEncode at once.

        DeclareStream.payload: the options of a stream as JSON (wukongs.injection.declarations.stream_options).
        RegisterQuery.payload: {"text", "base", "output"}. Change.payload: {"change": what it was staged as, "graph":
        that of quads without one (null: the default graph), "cleared": the graphs that are emptied first (null among
        them: the default graph)}; graphs by their IRIs."""
        raise NotImplementedError

    def expose(self, sn: Sn, vts: Vts) -> None:
        """Bring everything forward up to this SN (Expose); returns at once."""
        raise NotImplementedError

    def wait_for(self, sn: Sn, timeout_s: float | None = None) -> None:
        """Wait until reads see this SN. Raises StreamError (timeout_s passes first; called from on_result, which would
        wait for itself), WukongsError (the store is closed)."""
        raise NotImplementedError

    @property
    def reached(self) -> Sn:
        """The newest SN that reads see here."""
        raise NotImplementedError

    def query(self, name: str) -> ContinuousQuery | None:
        """Return a registered query that runs on this node."""
        raise NotImplementedError

    # --- slices -------------------------------------------------------------------------------------------------------

    def missing_slices(self) -> list[MissingSlices]:
        """Return what this node needs of other nodes before it can go on."""
        raise NotImplementedError

    def slice_share(self, stream: str, first: int, last: int, shards: BoolArray) -> Packet:
        """Answer another node: the rows of stream batches first <= k <= last, all inserted here, whose subjects are of
        these shards, with the texts of their terms. Raises StreamError (an unknown stream; not inserted yet)."""
        raise NotImplementedError

    def add_slices(self, missing: MissingSlices, answers: Sequence[Packet], mine: BoolArray) -> None:
        """Take the answers of other nodes, which together with this node's own shards (`mine`) are all shards once.

        Raises DataError (a packet that is no such answer)."""
        raise NotImplementedError

    # --- going --------------------------------------------------------------------------------------------------------

    def held(self) -> Held:
        """Return what this node needs to stay in the cluster, for the protocol's next report."""
        raise NotImplementedError

    def hold(self, oldest_sn: Sn | None, oldest_firing: int | None) -> None:
        """Keep the graph readable from the cluster's oldest SN on, and slices from its oldest firing (a tick) on; what
        lies before may go. None: as far as this node is concerned, anything may."""
        raise NotImplementedError

    def stats(self) -> Mapping[str, object]:
        """Return counts and sizes (bytes)."""
        raise NotImplementedError

    def close(self) -> None:
        """End the injector's thread and what waits for it."""
        raise NotImplementedError
