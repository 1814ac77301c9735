"""NodeStore: the data side of a node: its share of streams and graph, brought forward to the exposed SNs.

The protocol's thread tells it all decisions, in their order. No call waits for firings or for other nodes. The
injector's thread carries out an exposed SN, in order: the stream batches that end at or before a tick, the firings due
by then, then the records behind the tick, each at exactly its SN. Readers use `core` under its lock, as those of an
embedded engine.

Stream batches go by the protocol's numbers (from 1 on, counted from DeclareStream.first_tick) in calls that carry out
its actions, and by their real numbers (ceil(timestamp_ms / batch_ms)) between nodes; `real_batch` and `protocol_batch`
change one into the other.

Nothing is durable: a node that starts anew begins as one that has lost its disk.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from wukongs.cluster.building import Building
from wukongs.cluster.exposure import Exposure, not_reached
from wukongs.cluster.node_records import NodeRecords
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.node_terms import NodeRegistry, TermClaims
from wukongs.cluster.slice_packets import read_answer, slice_packet, whole_slices
from wukongs.cluster.staging import Staging
from wukongs.cluster.times import ms_of, packed, tick_at, unpacked
from wukongs.csparql.terms import iri
from wukongs.errors import CompactedError, DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.live.absorption import Timeless, settled
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import Core, QueryLog
from wukongs.live.injector import Injector
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.joined_query import JoinedQuery
from wukongs.live.journal import NoJournal
from wukongs.live.pieces import Close, Piece
from wukongs.live.stream_state import StreamState
from wukongs.live.views.runner import Views
from wukongs.protocol.actions import SealBatch
from wukongs.protocol.control import Control
from wukongs.protocol.progress import HeldAnywhere
from wukongs.protocol.records import Record, Sn, Vts
from wukongs.query.reach import Reach
from wukongs.query.terms.names import graph_term
from wukongs.settings import Settings
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.bulk import BulkPlan
from wukongs.store.dtypes import BoolArray
from wukongs.store.encoded import Encoded, TermTable
from wukongs.store.quads import Quads
from wukongs.store.trace import NOTHING_KEPT, Handle
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.packets import Packet
from wukongs.wire.sharding import ShardMap

DELIVERED_S = 0.25
"""How often is looked which windows readers have: all queries are looked through."""
HELD_ENTRIES_MAX = 64
"""Each SN that stays readable is a batch that every read looks into."""
STANDS_MAX = 256
"""SNs, at most, of which a node says that its live views stand there, the newest ones."""


@dataclass(frozen=True, slots=True)
class MissingSlices:
    """Stream batches from <= k <= to (real numbers) of a stream, which this node needs whole."""

    stream: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Held:
    """For the protocol's HeldReads: nobody here reads, or will begin to read, before this SN, or needs slices of stream
    batches that end at or before this tick; delivered: readers of all queries here have their windows up to there, None
    while that is not known; stands: SNs at which live views stand, and their readers."""

    oldest_sn: Sn
    oldest_firing: int
    delivered: int | None
    stands: tuple[Sn, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class StagedCopy:
    """A staged change, for a node that joins. chunks: quads, and whether they go; cleared: the graphs of `read` of
    which each quad goes by name, because the other node may have no such snapshot; awaited: the SN to which this node
    has not come again, and the graphs that are cleared as they are there."""

    chunks: Sequence[tuple[Encoded, bool]]
    read: BatchSet
    cleared: Sequence[int]
    awaited: tuple[int, Sequence[str | None]] | None


@dataclass(frozen=True, slots=True, eq=False)
class ToStore:
    """Quads that go and that come at the ticks at which their stream batches end, in order. to: there may be more
    behind that tick; None: this is all."""

    changes: Mapping[int, tuple[Quads, Quads]]
    to: int | None


class NodeStore:
    """core, injector: those of an embedded engine, but that `exposure` says how far time is. me: this node's number;
    shard_map: of the genesis."""

    def __init__(self, settings: Settings, me: int, shard_map: ShardMap) -> None:
        self.terms = NodeRegistry(settings.hash_bits)
        self.exposure = Exposure(self._drop_shares)
        self.core = Core(settings, NoJournal(), self.terms, self.exposure)
        self.injector = Injector(self.core)
        self.joined = JoinedQueries(self.core, self.injector)
        self.views = Views(self.core, self.injector.callbacks, self.injector.queries, is_of_cluster=True)
        self.me = me
        self.shard_map = shard_map
        self._placed: tuple[object, ShardMap] | None = None
        self._mine = shard_map.shards(me)
        self._left_at: Sn | None = None
        """The SN that was exposed when this node gave up its shards: reads at later ones would miss rows here."""
        self._left_inserted: dict[str, int] = {}
        """By key of a stream, the last stream batch that was inserted then."""
        self._is_alone = shard_map.node_count == 1
        self.lacks_slices = threading.Event()
        """Is set when `missing_slices` may have become longer."""
        self.claims = TermClaims(self.terms)
        self.staging = Staging(settings.load_bytes_max)
        workers = BulkPlan.of(settings.load_bytes_max, settings.load_workers).workers
        self.builders = ThreadPoolExecutor(workers, "wukongs-build")
        self.records = NodeRecords(
            self.core,
            self.terms,
            self.exposure,
            self.joined,
            self.views,
            self.staging,
            me,
            self._ask_for_slices,
            self.builders.submit,
        )
        self._hold: Handle | None = None
        self._stands: dict[int, Handle] = {}
        """Where live views of some node stand."""
        self._oldest_firing: int | None = None if self._is_alone else 0
        self._delivered_now: tuple[int | None, int] = 0, 0
        self._delivered_at_s = float("-inf")
        if not self._is_alone:
            self.core.arrangement.trace.keep_from(0)

    def start(self, reach: Reach | None = None, query_log: QueryLog | None = None) -> None:
        """Begin to seal and to fire. reach: the way of reads to the other nodes, None: there are none; query_log:
        decides on the changes of queries."""
        with self.core.lock:
            self.core.reach, self.core.query_log = reach, query_log
            self.injector.start()

    def begin_views(self) -> None:
        """Begin the live views of this node (NodeRecords.begin_views), after `start`. A second call changes nothing."""
        if not self.records.begins_views:
            with self.core.lock:
                self.records.begin_views()

    def map_of(self, shards: Sequence[Sequence[int]], node_count: int) -> ShardMap:
        """Return the map of the log's shards (Control.shards) among so many nodes. From any thread."""
        known = self._placed
        if known is None or known[0] is not shards or known[1].node_count != node_count:
            known = self._placed = shards, ShardMap.placed(shards, node_count, self.shard_map.split)
        return known[1]

    def place(self, control: Control) -> None:
        """Note which nodes hold which shards."""
        with self.core.lock:
            had_some = self._mine.any()
            self.shard_map = self.map_of(control.shards, len(control.members))
            self._mine = self.shard_map.shards(self.me)
            if had_some and not self._mine.any():
                self._left_at = self.exposure.exposed
                streams = self.records.streams
                self._left_inserted = {key: one.inserted_to or 0 for key, one in streams.items()}

    def check_holds(self, sn: Sn) -> None:
        """Raise NodeUnavailable if this node had given up its shards by an SN."""
        if not self._mine.any() and (self._left_at is None or sn > self._left_at):
            raise NodeUnavailable(f"node {self.me} holds no shards any more: ask again, by the nodes of now")

    @property
    def split_ids(self) -> frozenset[int]:
        """The ids of the split predicates."""
        return frozenset(self.core.registry.resolve(iri(name).text) for name in self.shard_map.split)

    # --- pieces of streams --------------------------------------------------------------------------------------------

    def key_of(self, name: str) -> str:
        """Return the key of the stream that was declared under a name last, by the log; a key, or an unknown name, as
        it is. Pieces and markers name streams by either, everything else by their keys."""
        return self.records.keys.get(name, name)

    def protocol_batch(self, stream: str, number: int) -> int:
        """Return the protocol's number of a stream batch, by its real one. Raises StreamError (an unknown stream)."""
        return number - self._stream(stream).before

    def real_batch(self, stream: str, batch: int) -> int:
        """Return the real number of a stream batch, by the protocol's. Raises as protocol_batch."""
        return batch + self._stream(stream).before

    def check(self, piece: Piece) -> None:
        """Check a piece before it is told to the protocol, and that there is room for it. Raises StreamError."""
        with self.core.lock:
            self._stream(self.key_of(piece.stream)).check_piece(piece)

    def stands_ms(self, stream: str) -> int | None:
        """Return up to where the writer of a stream has promised that nothing more is pushed, as far as this node has
        heard. Raises StreamError (an unknown stream)."""
        return self._stream(self.key_of(stream)).stands_ms

    def room(self, stream: str) -> int:
        """Return how many more tuples of a stream may wait. Raises StreamError (an unknown stream)."""
        with self.core.lock:
            return self._stream(self.key_of(stream)).state.room

    def new_terms(self, encoded: Encoded) -> TermTable:
        """Return the terms that have to be agreed on before these tuples are taken, under their hashes."""
        return self.terms.new(encoded)

    def take(self, piece: Piece) -> None:
        """Keep the rows of a piece for their stream batch (TakePiece)."""
        with self.core.lock:
            self._stream(self.key_of(piece.stream)).keep(piece)

    def take_close(self, message: Close) -> None:
        """Note a marker that was taken: a stream may begin with one, before it has tuples. It may be shown already."""
        with self.core.lock:
            stream = self._stream(self.key_of(message.stream))
            stream.note_close(message)
            if stream.state.first_ms is None:
                stream.come()
                self.injector.wake()

    def count_piped(self, stream: str, carried_count: int) -> None:
        """Note how many tuples of pipelines the stream batches of a stream carry. Raises StreamError (unknown)."""
        with self.core.lock:
            self._stream(self.key_of(stream)).state.piped_carried_count = carried_count

    def take_beginning(self, name: str, first_ms: int, complete_ms: int | None) -> None:
        """Note from when on a stream is there, as its writer says (NodeStream.begin_with)."""
        with self.core.lock:
            stream = self._stream(self.key_of(name))
            if stream.begin_with(first_ms, complete_ms):
                self.injector.wake()

    def seal(self, action: SealBatch) -> bool:
        """Give the rows of all stream batches up to this one their final ids (SealBatch). They are inserted when this
        returns; readers see them when they are exposed."""
        with self.core.lock:
            stream = self._stream(action.stream)
            stream.insert(action.batch + stream.before, self.terms, self._mine)
            self.core.release(stream.shares.shrink(stream.state.slice_bytes_max))
            self.injector.wake()
            if self.missing_slices():
                self._ask_for_slices()
        return True

    def stream(self, name: str) -> StreamState:
        """Return the stream that was declared under a name last. Raises StreamError (unknown; names the known ones)."""
        return self._stream(self.key_of(name)).state

    def inserted_ms(self, state: StreamState) -> int | None:
        """Return up to where a stream is inserted here, though not on all nodes yet. Called with the lock held."""
        return next((one.inserted_ms for one in self.records.streams.values() if one.state is state), None)

    def has_stream(self, name: str) -> bool:
        """Tell whether a stream was declared under a name, or has this key."""
        return self.key_of(name) in self.records.streams

    def _stream(self, stream: str) -> NodeStream:
        state = self.records.streams.get(stream)
        if state is None:
            known = ", ".join(sorted(self.records.streams)) or "none"
            raise StreamError(f"unknown stream {stream}: it has to be declared first. Declared: {known}")
        return state

    def compare_terms(self, table: TermTable) -> BoolArray:
        """Tell of each term whether this node, as a replica of its shard, has this text under its hash, from now on
        and for ever: bool[n]. ids : the hashes of the texts."""
        return self.claims.compare(table)

    # --- loads and updates --------------------------------------------------------------------------------------------

    def stage(
        self,
        change: str,
        number: int,
        chunk: Encoded,
        *,
        goes: bool = False,
        is_last: bool = False,
        into: Sequence[str | None] = (),
    ) -> None:
        """Keep chunk `number` (from 0 on) of this node's share of a change, before its record: quads that come, or that
        go. Those without a graph of their own are of the change's graph. A repeated chunk is passed over; a node
        without a share is given one empty chunk, the last.

        into: its graph (None: the default graph), if it may be built ahead.
        Raises BudgetExceeded (too much is staged)."""

        def build() -> Building:
            graph = self.core.graph_id(None if into[0] is None else graph_term(into[0]))
            return Building(self.core, self.builders, graph, self.injector.wake)

        with self.core.lock:
            self.staging.add(change, number, chunk, goes, is_last, build if into else None)

    def build(self, change: str) -> Building | None:
        """Return what builds a change whose chunks have all arrived, as Staging.finish."""
        with self.core.lock:
            return self.staging.finish(change)

    def wait_for_built(self, change: str, timeout_s: float) -> None:
        """Wait until a change is built, if that is done ahead, or for so long. Raises what building has raised."""
        building = self.build(change)
        if building is not None:
            with suppress(TimeoutError):
                building.built(timeout_s)

    def hold_for(self, change: str, read_sn: int, cleared: Sequence[str | None], timeout_s: float) -> None:
        """Hold the snapshot that an update has read until it is applied, or forgotten.

        cleared: the graphs that it clears (None: the default graph).

        Raises CompactedError (merging has forgotten it), StreamError (this node does not come to it in time)."""
        if packed(self.reached) < read_sn:
            self.wait_for(unpacked(read_sn), timeout_s)
        with self.core.lock:
            held = partial(self.core.arrangement.open, read_sn, f"change {change}", expires=False)
            self.staging.hold(change, held, cleared)

    def staged(self) -> dict[str, StagedCopy]:
        """Return what is staged, for a node that joins. With the lock held."""
        core, found = self.core, dict[str, StagedCopy]()
        self.records.come_to_staged()
        for name, change in self.staging.changes().items():
            graphs = [None if one is None else graph_term(one) for one in change.cleared]
            read = EMPTY if change.read is None else change.read.read()
            awaited = None if change.read_at is None else (change.read_at, change.cleared)
            cleared = [core.graph_id(graph) for graph in graphs]
            found[name] = StagedCopy(list(change.chunks.values()), read, cleared, awaited)
        return found

    def unstage(self, change: str) -> None:
        """Forget what is staged for a change that will have no record."""
        with self.core.lock:
            self.staging.forget(change)

    def age_staged(self, is_silent: bool) -> None:
        """Let go of what never gets a record. is_silent: a member is, so its records may come later."""
        with self.core.lock:
            if is_silent:
                self.staging.renew()
            else:
                self.staging.drop_old()

    def to_store(self, parts: Sequence[tuple[str, int, int]], shards: BoolArray, rows_max: int) -> ToStore:
        """Return what is to be stored of stream batches first <= k <= last of some streams (key, first, last; the
        protocol's numbers), of subjects in these shards. Raises StreamError (an unknown stream), NodeUnavailable (they
        are not here)."""
        by_tick: defaultdict[int, list[Timeless]] = defaultdict(list)
        to = None
        with self.core.lock:
            waiting = list[tuple[int, int, StreamState, int]]()
            for key, first, last in parts:
                stream = self._stream(key)
                if shards.any() and not self._mine.any() and last + stream.before > self._left_inserted.get(key, 0):
                    raise NodeUnavailable(f"node {self.me} holds no shards any more: ask again, by the nodes of now")
                for number, size in stream.to_follow(first, last):
                    waiting.append((tick_at(number * stream.state.batch_ms), number, stream.state, size))
            count, before = 0, None
            for tick, number, state, size in sorted(waiting, key=lambda one: one[:2]):
                if tick != before and count >= rows_max:  # the rest is not looked at, however much waits
                    to = tick - 1
                    break
                count, before = count + size, tick
                part = state.timeless(number)
                rows = np.flatnonzero(shards[shards_of(part.quads[1])])
                if len(rows):
                    by_tick[tick].append(part.take(rows))
        return ToStore({tick: settled(found) for tick, found in by_tick.items()}, to)

    # --- what the log and the stable vector timestamp say -------------------------------------------------------------

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        """Take in a committed record (Apply). Those with an SN take effect when that is exposed; ReEncode at once.

        DeclareStream.payload: the options of a stream as JSON (wukongs.live.declarations.stream_options).
        RegisterQuery.payload, AlterQuery.payload: the fields of a QuerySource, "from_ms" and "is_paused".
        Change.payload: {"change": what it was staged as, "graph": that of quads without one (null: the default graph),
        "cleared": the graphs that are emptied first (null among them: the default graph), "operations": of an update,
        0: it is a load}; graphs by their IRIs; "": it stores nothing."""
        with self.core.lock:
            self.records.apply(index, record, sn)

    def pass_over(self, record: Record) -> None:
        """Note a record that is in what was taken over of other nodes."""
        with self.core.lock:
            self.records.pass_over(record)

    def expose(self, sn: Sn, vts: Vts) -> None:
        """Bring everything forward up to this SN (Expose), as far as it is inserted here; returns at once. vts follows
        from the SN and the records."""
        with self.core.lock:
            self.exposure.expose(sn)
            self.injector.wake()
            if self.missing_slices():
                self._ask_for_slices()

    def stable(self, vts: Vts) -> None:
        """Let windows read what is inserted on every node. vts: the stable vector timestamp, of streams that have
        risen."""
        with self.core.lock:
            for key, batch in vts.items():
                stream = self.records.streams.get(key)
                if stream is not None and (stream.stable_to is None or batch + stream.before > stream.stable_to):
                    stream.stable_to = batch + stream.before
                    stream.come()
            self.injector.wake()
            if self.missing_slices():
                self._ask_for_slices()

    def wait_for_streams(self, vts: Vts, timeout_s: float) -> None:
        """Wait until windows may read the stream batches of a vector timestamp here. Raises as wait_for."""
        deadline = time.monotonic() + timeout_s
        with self.core.lock:
            while behind := self._behind(vts):
                self.core.check_is_open()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise StreamError(
                        f"stream {behind[0]} has not come here as far as it is closed within {timeout_s:g} s: another "
                        "node holds it back; wait longer, or ask another node"
                    )
                self.core.changed.wait(min(left, 0.01))

    def _behind(self, vts: Vts) -> list[str]:
        streams = self.records.streams
        return [key for key, batch in vts.items() if key in streams and not streams[key].has_come(batch)]

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended this store, if one has."""
        return self.core.failure

    def refused(self, index: int) -> WukongsError | None:
        """Return why the record at this index of the log did nothing, if it could not be carried out."""
        with self.core.lock:
            return self.records.refused.get(index)

    def wait_for(self, sn: Sn, timeout_s: float) -> None:
        """Wait until reads see this SN. Raises StreamError (timeout_s passes first), WukongsError (the store is
        closed)."""
        deadline = time.monotonic() + timeout_s
        with self.core.lock:
            while self.exposure.reached < sn:
                self.core.unread.check_may_wait()
                self.core.check_is_open()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise not_reached(sn, self.exposure.reached, timeout_s)
                self.core.changed.wait(left)

    @property
    def reached(self) -> Sn:
        """The newest SN that reads see here. Never waits."""
        return self.exposure.reached

    def query(self, name: str) -> JoinedQuery | ContinuousQuery | None:
        """Return a registered query that runs on this node, or a live view that stands here, which has
        the same calls but for those of windows."""
        with self.core.lock:
            found = self.joined.get(name)
            return cast("JoinedQuery | ContinuousQuery | None", self.views.get(name)) if found is None else found

    # --- slices -------------------------------------------------------------------------------------------------------

    def missing_slices(self) -> list[MissingSlices]:
        """Return what this node needs of other nodes before it can go on."""
        with self.core.lock:
            exposed_ms = ms_of(self.exposure.exposed.tick)
            streams = [stream for stream in self.exposure.streams.values() if stream.is_home]
            found = [(stream.key, stream.missing_at(exposed_ms, is_ahead=True)) for stream in streams]
            return [MissingSlices(stream, *missing) for stream, missing in found if missing is not None]

    def _ask_for_slices(self) -> None:
        if not self._is_alone:
            self.lacks_slices.set()
            return
        for missing in self.missing_slices():
            self.add_slices(missing, [], np.ones(SHARD_COUNT, np.bool_))

    def slice_share(self, stream: str, first: int, last: int, shards: BoolArray) -> Packet:
        """Answer another node: the rows of stream batches first <= k <= last, all inserted here, whose subjects are of
        these shards, with the texts of their terms. Raises StreamError (an unknown stream; not inserted yet), DataError
        (shards that are no bool[1024])."""
        if shards.dtype != np.bool_ or shards.shape != (SHARD_COUNT,):
            raise DataError(f"slices of stream {stream}: expected shards as bool[{SHARD_COUNT}]")
        with self.core.lock:
            state = self._stream(stream)
            if state.inserted_to is None or last > state.inserted_to:
                raise StreamError(
                    f"stream {stream}: stream batches up to {last} were asked for, and are inserted here up to "
                    f"{state.inserted_to}. Ask again later"
                )
            if shards.any() and not self._mine.any() and last > self._left_inserted.get(state.key, 0):
                raise NodeUnavailable(f"node {self.me} holds no shards any more: ask again, by the nodes of now")
            return slice_packet(state, self.terms, first, last, shards)

    def add_slices(self, missing: MissingSlices, answers: Sequence[Packet], mine: BoolArray) -> None:
        """Take the answers of other nodes, which together with this node's own shards (`mine`) are all shards once.

        Raises DataError (a packet that is no such answer, or of another cluster), StreamError (an unknown stream)."""
        stream, first, last = missing.stream, missing.first, missing.last
        facts = self._stream(stream).state
        batch_ms, may_carry = facts.batch_ms, facts.carry_rule is not None
        packets = [self.slice_share(stream, first, last, mine), *answers]
        read = [read_answer(packet, stream, first, last, batch_ms, may_carry=may_carry) for packet in packets]
        slices = whole_slices(read, batch_ms, self.terms)
        latest = [answer.before[1] for answer in read if answer.before[1] is not None]
        with self.core.lock:
            state = self.records.streams.get(stream)
            if state is None or not state.is_home or state.whole_to != first - 1:
                for whole in slices.values():
                    self.core.release(whole.transient_ids)
                return
            before = sum(answer.before[0] for answer in read), max(latest, default=None)
            self.core.release(state.add_whole(last, slices, before))
            self.injector.wake()

    # --- going --------------------------------------------------------------------------------------------------------

    def held(self) -> Held:
        """Return what this node needs to stay in the cluster, for the protocol's next report."""
        core = self.core
        with core.lock:
            own = {self._hold, *self._stands.values()}
            oldest_sn = min([core.sn, *(h.sn for h in core.arrangement.trace.handles() if h not in own)])
            times = [ms_of(self.exposure.shown)]
            homes = [stream for stream in self.exposure.streams.values() if stream.is_home]
            times += [stream.whole_to * stream.state.batch_ms for stream in homes]
            for query in self.injector.queries.values():
                times += query.times.keep_after_ms().values()
            times += [place.needs_ms for place in self.records.coming.values() if place.needs_ms is not None]
            delivered, read_sn = self._delivered()
            stands = tuple(map(unpacked, self.views.stands()[-STANDS_MAX:]))
            return Held(unpacked(min(oldest_sn, read_sn)), tick_at(min(times)), delivered, stands)

    def _delivered(self) -> tuple[int | None, int]:
        """Return the tick up to which readers have windows (None: that is not known while a query is on its way here),
        and the SN from which on the rest reads the stored graph, if as much is held. Queries are not looked through
        each time: what was true stays so, but for those that have come."""
        if (now_s := time.monotonic()) - self._delivered_at_s > DELIVERED_S or self.records.has_come:
            self._delivered_at_s, self.records.has_come = now_s, False
            shown_ms, coming = ms_of(self.exposure.shown), self.records.coming.values()
            all_ms, stored_ms = [shown_ms], list[int]()
            for query in self.injector.queries.values():
                if (ms := query.firings.delivered_ms()) is not None:
                    all_ms.append(ms)
                    if query.windows.reads_stored:
                        stored_ms.append(max(ms, shown_ms - query.times.history_ms) - query.times.period_ms)
            all_ms += [place.after_ms for place in coming if place.after_ms is not None]
            stored_ms += [place.stored_ms for place in coming if place.stored_ms is not None]
            read_sn = packed(Sn(tick_at(min(stored_ms)), 0)) if stored_ms else NOTHING_KEPT
            is_known = not any(place.is_unknown for place in coming)
            self._delivered_now = tick_at(min(all_ms)) if is_known else None, read_sn
        delivered, read_sn = self._delivered_now
        recent = self.core.arrangement.trace.entries()[-HELD_ENTRIES_MAX:]
        return delivered, max(read_sn, recent[0].lower) if recent else read_sn

    def hold(self, held: HeldAnywhere) -> None:
        """Keep the graph readable at the cluster's oldest SN, where live views stand, and at the newest SNs,
        HELD_ENTRIES_MAX of them at least. Keep slices from the cluster's oldest firing (a tick) on. Older ones may go.

        None: no node has said anything. Then a node that is alone holds nothing. Any other node holds what it did
        before, at first everything: `held` always says something, so it will hear of others soon."""
        oldest_sn, oldest_firing, stands = held
        with self.core.lock:
            if oldest_firing is not None or self._is_alone:
                self._oldest_firing = oldest_firing
            self.records.come_to_staged()
            if oldest_sn is not None or self._is_alone:
                self._hold_sn(NOTHING_KEPT if oldest_sn is None else packed(oldest_sn))
            if stands is not None:
                self._hold_stands({packed(sn) for sn in stands})
            self._drop_shares()

    def _hold_stands(self, sns: set[int]) -> None:
        """Keep the SNs at which live views of any node stand, as far as they are exposed here."""
        for sn in self._stands.keys() - sns:
            self._stands.pop(sn).close()
        for sn in sns - self._stands.keys():
            if sn <= self.core.sn:
                with suppress(CompactedError):  # its view begins again
                    self._stands[sn] = self.core.arrangement.trace.open(sn, "the cluster's live views", expires=False)

    def _hold_sn(self, sn: int) -> None:
        trace, held = self.core.arrangement.trace, self._hold
        recent = trace.entries()[-HELD_ENTRIES_MAX:]
        awaited = self.staging.awaited
        kept_from = max(sn, recent[0].lower) if recent else sn
        trace.keep_from(kept_from if awaited is None else min(kept_from, awaited))
        if held is not None and sn <= held.sn:
            return
        self._hold = None
        if sn != NOTHING_KEPT:
            # An SN that was never held may be gone: who reads it is told so.
            with suppress(CompactedError):
                self._hold = trace.open(min(sn, self.core.sn), "the cluster's readers", expires=False)
        if held is not None:
            held.close()

    def _drop_shares(self) -> None:
        for stream in self.records.streams.values():
            state = stream.state
            if state.closed_ms is None:
                continue
            after_ms = state.closed_ms - state.history_ms
            if self._oldest_firing is not None:
                after_ms = min(after_ms, ms_of(self._oldest_firing))
            number = after_ms // state.batch_ms
            number = min(number, stream.whole_to) if stream.is_home else number
            if number > stream.shares.dropped_to:
                self.core.release(stream.shares.drop(number))

    def stats(self) -> Mapping[str, object]:
        """Return counts and sizes (bytes)."""
        core = self.core
        with core.lock:
            return {
                "reached": packed(self.exposure.reached),
                "exposed": packed(self.exposure.exposed),
                "triples": len(core.arrangement),
                "agreed_terms": len(self.claims),
                "staged_changes": len(self.staging),
                "staged_bytes": self.staging.size_bytes,
                "streams": {
                    name: {
                        "waiting_bytes": stream.state.waiting_bytes,
                        "share_bytes": stream.shares.size_bytes,
                        "slice_bytes": stream.state.ring.size_bytes,
                        "is_home": stream.is_home,
                    }
                    for name, stream in self.records.streams.items()
                },
            }

    def fail(self, error: BaseException) -> None:
        """Refuse all reads from now on: nothing is brought forward any more. Counts can still be read."""
        with self.core.lock:
            self.core.failure = self.core.failure or error
            self.core.changed.notify_all()
            queries = list(self.injector.queries.values())
        for query in queries:
            query.fail(self.core.stopped())

    def close(self) -> None:
        """End the injector's thread and what waits for it."""
        with self.core.lock:
            self.core.is_closed = True
            queries = list(self.injector.queries.values())
        self.injector.stop()
        self.views.stop()
        self.builders.shutdown(cancel_futures=True)
        self.core.merger.close()
        for query in queries:
            query.end()
        self.views.end()
