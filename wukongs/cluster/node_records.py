"""NodeRecords: carries out the committed records of the log on a node's store, when their SNs are exposed.

A record may be committed before its SN is exposed. Requests in between, such as pieces of a stream that was just
declared, go by the log: `streams`. Readers go by the exposed records: the streams and queries of core and injector.

A record that cannot be carried out does nothing, on all nodes alike: its proposer did not check it. The error is logged
and kept for the proposer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from wukongs.cluster.building import Building, seal
from wukongs.cluster.cycles import check_cycles, step_of_payload
from wukongs.cluster.deliveries import Returned
from wukongs.cluster.exposure import Due, Exposure
from wukongs.cluster.node_payloads import (
    ChangePayload,
    maker,
    maker_of,
    read_change,
    read_options,
    read_registration,
    stream_made,
    stream_of_view,
    streams_read,
)
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.node_terms import NodeRegistry
from wukongs.cluster.staging import StagedChange, Staging
from wukongs.cluster.take_over import begun_with_streams, needs_after_ms, place_of
from wukongs.cluster.times import ms_of, packed
from wukongs.csparql.algebra import Query
from wukongs.errors import DataError, GapError, StreamError, WukongsError
from wukongs.incremental.arguments import Arguments
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import NOT_YET_MS, Core, columns_of
from wukongs.live.declarations import check_no_cycle, check_windows, make_stream, parse_continuous, register_query
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.joined_query import JoinedQuery
from wukongs.live.made_streams import Made
from wukongs.live.query_source import QuerySource
from wukongs.live.query_windows import counts_from
from wukongs.live.stream_state import StreamState
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.logged_arguments import change_of
from wukongs.live.views.logged_givings import LoggedGivings, is_giving
from wukongs.live.views.named_readers import stand_of
from wukongs.live.views.runner import Views
from wukongs.live.views.view_arguments import ViewArguments
from wukongs.live.views.view_state import Cursor
from wukongs.live.window_log import OWN, Come
from wukongs.live.windows import reads_stored
from wukongs.protocol.records import (
    AlterQuery,
    BeginStream,
    Change,
    DeclareStream,
    DropQuery,
    DropStream,
    EndStream,
    LateJoin,
    MoveQuery,
    NameReaders,
    Record,
    ReEncode,
    RegisterQuery,
    Sn,
)
from wukongs.query.terms.names import graph_term
from wukongs.store.batch import Batch, build_batch
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.hidden_graphs import view_of
from wukongs.store.quads import NO_QUADS, Quads, hidden, is_held, joined, read_of, taken
from wukongs.store.tombstones import Difference
from wukongs.wire.assignment import SHARD_BITS, SHARD_COUNT, shards_of

log = logging.getLogger("wukongs")
REFUSED_MAX = 1024
_FIRST_IDS = np.arange(SHARD_COUNT, dtype=np.int64) << (63 - SHARD_BITS)
"""The least id of each shard."""


def _nothing() -> None:
    return None


def _ready() -> bool:
    return True


def _raising(error: WukongsError) -> Callable[[], None]:
    def refuse() -> None:
        raise error

    return refuse


def by_shard(batch: Batch, is_hidden: bool = False) -> Int64Array:
    """Return how many triples of a batch have their subjects in each shard. int64[1024] is_hidden: those of hidden
    graphs, else of all others.

    Cost: a search for each shard in each row (graph and predicate) of the batch; in one with few keys, a look at each
    key."""
    keys, offsets, starts = batch.out.keys, batch.out.offsets, batch.out.key_starts
    rows = (batch.graphs < 0) == is_hidden
    if not rows.any():
        return np.zeros(SHARD_COUNT, np.int64)
    if len(starts) * SHARD_COUNT > len(keys):
        sizes = np.diff(offsets) * np.repeat(rows, np.diff(starts))
        return np.bincount(shards_of(keys), sizes, SHARD_COUNT).astype(np.int64)
    counts = np.zeros(SHARD_COUNT, np.int64)
    for (first, end), is_counted in zip(pairwise(starts.tolist()), rows.tolist(), strict=True):
        if not is_counted:
            continue
        places = first + np.searchsorted(keys[first:end], _FIRST_IDS)
        counts += np.diff(offsets[np.append(places, end)])
    return counts


def _cycle(name: str) -> StreamError:
    return StreamError(
        f"query {name} would read what is made of its own stream, a cycle, by a query that was registered or changed "
        "at the same time: give it another name"
    )


def _coming(name: str, found: RecordedQuery, is_new: bool, come: int | None) -> Coming:
    """Return what is known of a query on its way here. come: as in MoveQuery. Raises as parse_continuous, DataError."""
    source, from_ms, _, view = read_registration(found.payload, name)
    if view is not None or is_new or come is None:
        return Coming(from_ms if is_new and view is None else None)
    come_ms = ms_of(come) if come else None
    known = [ms for ms in (from_ms, come_ms, found.altered_ms) if ms is not None]
    if not known:
        return Coming(None, NOT_YET_MS)
    after_ms = max(known)
    lacks_ms = come_ms if come_ms is not None and after_ms == found.altered_ms else after_ms
    query = parse_continuous(source)
    needs_ms = needs_after_ms(query, after_ms)
    begun_ms = max((ms for ms in (from_ms, found.altered_ms) if ms is not None), default=None)
    return Coming(after_ms, lacks_ms, begun_ms, needs_ms, needs_ms if reads_stored(query) else None)


def _returning(name: str, found: RecordedQuery, since_ms: int) -> Coming:
    """Return what is known of a query that runs on here. since_ms: it has fired up to there at least; how far its
    readers are is known once it runs. Raises as parse_continuous, DataError."""
    registration = read_registration(found.payload, name)
    if registration.view is not None:
        return Coming(None)
    query = registration.parsed()
    return Coming(None, NOT_YET_MS, needs_ms=needs_after_ms(query, since_ms))


def _cursors_of(found: RecordedQuery, source: QuerySource) -> dict[str, Cursor]:
    """Return where the named readers of a live view stand. source: its text now."""
    cursors = dict[str, Cursor]()
    for name, text in found.stands.items():
        if is_giving(name):
            continue
        with suppress(ValueError, TypeError):  # what no node writes: its reader begins with a reset
            cursors[name] = stand_of(text, source) or [None, []]
    return cursors


def _names(keys: Collection[str]) -> list[str]:
    """Return the names of streams by their keys."""
    return [key.split(" ")[0] for key in keys]


def _dropped_name(state: StreamState) -> str:
    """Return what core.streams has a dropped stream under until it is gone: no name has a space."""
    return f"{state.iri} {state.lsn}"


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query that some node runs, by its record. streams: their keys; altered_ms: of the last change of its text, or
    the end of a pause; groups: of its readers that have a name; bound: the changes of its arguments; stands: where
    the named readers of a live view stand."""

    index: int
    streams: tuple[str, ...]
    payload: str
    altered_ms: int | None = None
    groups: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    stands: Mapping[str, str] = field(default_factory=dict)

    def with_reader(self, record: NameReaders) -> RecordedQuery:
        """Return the query once a reader has a name, or stands further."""
        if record.stands:
            return replace(self, stands={**self.stands, record.group: record.stands})
        return replace(self, groups=(*self.groups, record.group))

    @staticmethod
    def of(told: Sequence[Any]) -> RecordedQuery:
        """Return what `told` has given."""
        index, streams, payload, altered_ms, groups, *of_view = told
        bound, stands = of_view or ((), {})
        return RecordedQuery(index, tuple(streams), payload, altered_ms, tuple(groups), tuple(bound), dict(stands))

    def told(self) -> list[Any]:
        """Return it as JSON."""
        of_view = [self.bound, dict(self.stands)] if self.bound or self.stands else []  # earlier releases have none
        return [self.index, self.streams, self.payload, self.altered_ms, self.groups, *of_view]


@dataclass(frozen=True, slots=True)
class Coming:
    """A query on its way to this node. after_ms: it fires after this time (None: that is not known); lacks_ms: readers
    have its windows up to there, None: its home is not gone; begun_ms: it has nothing to compare with before, None:
    that is not known; needs_ms, stored_ms: it reads slices, and the stored graph, from there on; streams: of its
    windows, their keys."""

    after_ms: int | None
    lacks_ms: int | None = None
    begun_ms: int | None = None
    needs_ms: int | None = None
    stored_ms: int | None = None
    streams: tuple[str, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether its readers may lack windows, and nobody here knows from which on."""
        return self.after_ms is None and self.lacks_ms is not None


def stated(difference: Difference) -> Difference:
    """Return what was stated, of a change with all that follows by rules: what comes and goes is inferred if it does so
    in the hidden graph as well."""
    come, gone = (NO_QUADS if batch is None else batch.triples() for batch in difference)
    parts = [taken(quads, (quads[0] >= 0) & ~is_held(read_of(quads), hidden(quads))) for quads in (come, gone)]
    return Difference(build_batch(*parts[0]), build_batch(*parts[1]) if len(parts[1][0]) else None)


class AppliedUpdates:
    """The updates that were applied here, as all nodes apply them. deleted, inserted: triples that this node held, or
    holds, a copy of, by the shards of their subjects, int64[1024]."""

    def __init__(self) -> None:
        self.requests = 0
        self.operations = 0
        self.deleted, self.inserted = np.zeros(SHARD_COUNT, np.int64), np.zeros(SHARD_COUNT, np.int64)

    def add(self, operations: int, difference: Difference) -> None:
        self.requests += 1
        self.operations += operations
        self.inserted += by_shard(difference.additions)
        if difference.tombstones is not None:
            self.deleted += by_shard(difference.tombstones)


class NodeRecords:
    """Called with the lock held. me: this node; ask_for_slices: called when a home needs slices that are exposed;
    later: has a function called in another thread."""

    def __init__(
        self,
        core: Core,
        terms: NodeRegistry,
        exposure: Exposure,
        joined: JoinedQueries,
        views: Views,
        staging: Staging,
        me: int,
        ask_for_slices: Callable[[], None],
        later: Callable[[Callable[[], object]], object],
    ) -> None:
        self.streams: dict[str, NodeStream] = {}
        """By their keys: all that are not gone by the log."""
        self.keys: dict[str, str] = {}
        """Name of a stream -> key of the one that was declared under it last."""
        self.updated = AppliedUpdates()
        self.refused: dict[int, WukongsError] = {}
        """Index of a record -> why it did nothing."""
        self._core, self._terms, self._exposure = core, terms, exposure
        self._joined, self._injector, self._views = joined, joined.injector, views
        self._staging = staging
        self._me = me
        self._ask_for_slices = ask_for_slices
        self._later = later
        self._registered: dict[str, RecordedQuery] = {}
        self.shown_keys: dict[str, str] = {}
        """Like keys, for the streams whose declaration is exposed."""
        self.returned: Callable[[int], Returned | None] = lambda _: None
        """Gives what a data folder has of a query that is registered again."""
        self.homes: dict[str, tuple[RecordedQuery, tuple[int, ...]]] = {}
        """The queries whose registration is exposed, and the nodes that run them."""
        self.coming: dict[str, Coming] = {}
        """Those that this node is to run, until it does."""
        self.has_come = False
        """One of them has come, or is new, since that was last asked."""
        self.new_views = set[str]()
        """Those that somebody is registering at this node."""
        self.begins_views = False
        """Views begin when their records are carried out."""
        self._noted_views: dict[str, RecordedQuery] = {}
        """Those that are to stand here once `begin_views` is called."""

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        """Take in a committed record; what has an SN takes effect when that is exposed."""
        if isinstance(record, ReEncode):
            self._terms.re_encode(record.text)
        if isinstance(record, NameReaders) and (known := self._registered.get(record.query)) is not None:
            self._registered[record.query] = known.with_reader(record)
            if record.query in self.homes:
                shown, nodes = self.homes[record.query]
                self.homes[record.query] = shown.with_reader(record), nodes
        if sn is not None:
            run, is_ready = self._effect(index, record, sn)
            self._exposure.add_due(Due(sn, lambda: self._try(index, run), is_ready))
            if isinstance(record, Change) and record.after is not None:
                self._staging.forget_void(packed(sn))
            if isinstance(record, Change):
                self._note_followed(record, sn)

    def _try(self, index: int, run: Callable[[], None]) -> None:
        try:
            run()
        except WukongsError as error:
            log.error("record %d of the log: %s", index, error)
            self.refused[index] = error
            while len(self.refused) > REFUSED_MAX:
                del self.refused[min(self.refused)]

    def _effect(self, index: int, record: Record, sn: Sn) -> tuple[Callable[[], None], Callable[[], bool]]:
        """Return what a record does at its SN, and whether it can be done."""
        match record:
            case DeclareStream():
                return self._declare(index, record), _ready
            case BeginStream(stream=name, empty_to=empty_to) if name in self.streams:
                begun = self.streams[name]
                to, counts = begun.begin(sn.tick, empty_to)
                return lambda: begun.begun(self._core, to, packed(sn), counts=counts), _ready
            case LateJoin(stream=name, batch=batch) if name in self.streams:
                return self._join(self.streams[name], batch, sn)
            case EndStream(stream=name, last_batch=last_batch, is_cut=True) if name in self.streams:
                cut = self.streams.pop(name)
                cut.cut(last_batch, ms_of(sn.tick))
                return lambda: self._forget(cut), _ready
            case EndStream(stream=name, last_batch=last_batch) if name in self.streams:
                ending = self.streams[name]
                ending.end_with(last_batch)
                return lambda: ending.end(self._core, self._exposure.exposed_ms(), packed(sn)), _ready
            case DropStream(stream=name) if name in self.streams:
                dropped = self.streams[name]
                if dropped.began_ms is None:
                    del self.streams[name]
                    return lambda: self._forget(dropped), _ready
                return lambda: self._drop(dropped), _ready
            case RegisterQuery(query=name, streams=streams, payload=payload) if self._is_cycle(name, streams, payload):
                return _raising(_cycle(name)), _ready
            case AlterQuery(query=name, streams=streams, payload=payload) if self._is_cycle(name, streams, payload):
                return _raising(_cycle(name)), _ready
            case RegisterQuery(query=name, payload=payload) if (other := self._maker_before(name, payload)) is not None:
                made = stream_made(payload, name)
                return _raising(StreamError(f"stream {made} is made by query {other}: close that one first")), _ready
            case RegisterQuery(query=name, streams=streams, nodes=nodes, payload=payload, makes=makes):
                if makes in self.streams:
                    self.streams[makes].state.is_made = True
                self._registered[name] = RecordedQuery(index, streams, payload)
                return self._run_on(name, nodes, is_new=True)
            case MoveQuery(query=name, nodes=nodes, come=come) if name in self._registered:
                return self._run_on(name, nodes, is_new=False, come=come)
            case AlterQuery(query=name, payload="") if name in self._registered:
                before = self._registered[name]
                self._registered[name] = replace(before, bound=(*before.bound, record.bound))
                return partial(self._change_arguments, name, self._registered[name]), _ready
            case AlterQuery(query=name, streams=streams, payload=payload) if name in self._registered:
                before = self._registered[name]
                bound = (record.bound,) if record.bound else before.bound
                self._registered[name] = replace(
                    before, streams=streams, payload=payload, altered_ms=ms_of(sn.tick), bound=bound
                )
                return self._alter_on_home(name, self._registered[name])
            case DropQuery(query=name):
                return self._drop_query(name), _ready
            case Change(payload=payload) if payload:
                return self._change(payload, sn)
        return _nothing, _ready

    def _is_cycle(self, name: str, streams: Collection[str], payload: str) -> bool:
        """Tell whether a query over some streams would read what is made of its own: by the order of the log, so all
        nodes say the same."""

        def made_of(stream_iri: str) -> list[str]:
            known = self._registered.get(stream_iri)
            return [] if known is None or stream_iri == name else streams_read(known.payload, stream_iri)

        try:
            if maker(payload, name) is not None:
                check_no_cycle(name, _names(streams), made_of)
            if (step := step_of_payload(payload, name)) is not None:
                check_cycles((name, step), self._registered, [stream.state for stream in self.streams.values()])
        except StreamError:
            return True
        except WukongsError:
            pass  # its node says so when it registers it
        return False

    def _maker_before(self, name: str, payload: str) -> str | None:
        """Return which query or live view makes the stream already that another one would make: as _is_cycle."""
        made = stream_made(payload, name)
        return None if made is None else maker_of(made, self._registered)

    def pass_over(self, record: Record) -> None:
        """Forget what came here for a record whose effect was taken over."""
        if isinstance(record, Change):
            with suppress(DataError):
                self._staging.forget(read_change(record.payload).name)

    def restore(
        self,
        sn: Sn,
        streams: Mapping[str, NodeStream],
        keys: Mapping[str, str],
        homes: Mapping[str, tuple[RecordedQuery, tuple[int, ...]]],
    ) -> None:
        """Take over what was exposed at an SN on another node; the records behind it are still to be applied here.

        streams: by their names in core.streams. The queries that this node ran in an earlier life run on."""
        for name, stream in streams.items():
            self._show_stream(name, stream)
            if stream.state.is_made and not stream.state.is_dropped:
                self._injector.made.add(stream.state)
        self.streams = {stream.key: stream for stream in streams.values()}
        self.shown_keys, self.keys, self.homes = dict(keys), dict(keys), dict(homes)
        self._registered = {name: found for name, (found, _) in homes.items()}
        mine = {name: found for name, (found, nodes) in homes.items() if self._me in nodes}
        if mine:
            needed = sorted({key for found in mine.values() for key in found.streams})
            places = {
                name: self._come_later(name, found, partial(_returning, name, found, self._fired_ms(found.streams, sn)))
                for name, found in mine.items()
            }
            needs_ms = [place.needs_ms for place in places.values() if place.needs_ms is not None]

            def run() -> None:
                for name, found in mine.items():
                    self._try(found.index, partial(self._register, name, found, is_new=False))
                    self._has_come_here(name, found, places[name])

            self._exposure.add_due(Due(sn, run, lambda: self._is_home_of(needed, min(needs_ms, default=None))))

    def _fired_ms(self, streams: Collection[str], sn: Sn) -> int:
        """Return a time up to which a query of some streams has fired, if it fires behind an SN next."""
        states = [self.streams[key].state for key in streams if key in self.streams]
        return min([ms_of(sn.tick), *(state.closed_ms for state in states if state.closed_ms is not None)])

    def _come_later(self, name: str, found: RecordedQuery, place: Callable[[], Coming]) -> Coming:
        """Note that a query is on its way here, and return that. place: gives what is known of it; it may raise
        WukongsError."""
        known = Coming(None)
        with suppress(WukongsError):  # else it is said when it is to run
            known = place()
        comes = replace(known, streams=found.streams)
        self.coming[name], self.has_come = comes, True
        self._note_awaited(found.streams)
        return comes

    def _has_come_here(self, name: str, found: RecordedQuery, place: Coming) -> None:
        """Note that a query that was on its way is here, or is not to come any more."""
        if self.coming.get(name) is place:  # else a later record sends it here again
            del self.coming[name]
        self.has_come = True
        self._note_awaited(found.streams)

    def _note_awaited(self, keys: Collection[str]) -> None:
        """Let streams keep the slices that queries on their way here need."""
        for key in keys:
            if key in self.streams:
                coming = (one for one in self.coming.values() if key in one.streams)
                needs_ms = (one.needs_ms for one in coming if one.needs_ms is not None)
                self.streams[key].state.awaited_ms = min(needs_ms, default=None)

    # --- streams ------------------------------------------------------------------------------------------------------

    def _declare(self, index: int, record: DeclareStream) -> Callable[[], None]:
        try:
            options = read_options(self._core.settings, record)
            stream = NodeStream(make_stream(self._core, record.stream, options, index))
        except WukongsError as error:
            return _raising(error)
        name = record.stream
        stream.key = self.keys[name] = f"{name} {index}" if name in self.keys else name
        stream.first_tick = record.first_tick
        self.streams[stream.key] = stream
        stream.state.is_made = record.is_made

        def show() -> None:
            self._core.take_in(stream.state)
            self._exposure.streams[name] = stream
            self.shown_keys[name] = stream.key
            if record.is_made:
                made = self._injector.made.add(stream.state)
                producer = self._injector.queries.get(name)
                if made.producer is not None and producer is not None:
                    made.begin_after(producer.times.fired_ms())

        return show

    def _show_stream(self, name: str, stream: NodeStream) -> None:
        self._core.streams[name], self._exposure.streams[name] = stream.state, stream

    def _hide_stream(self, name: str) -> None:
        del self._core.streams[name], self._exposure.streams[name]

    def _join(self, stream: NodeStream, batch: int, sn: Sn) -> tuple[Callable[[], None], Callable[[], bool]]:
        counts = stream.bring(batch, sn.tick)

        def is_ready() -> bool:
            if stream.missing_at(self._exposure.exposed_ms()):
                self._ask_for_slices()
            return stream.has(batch) or stream.key not in self.streams

        return lambda: stream.join(self._core, batch, packed(sn), counts=counts), is_ready

    def _drop(self, stream: NodeStream) -> None:
        """Free the name of a stream. Its tuples are still sealed, as on other nodes, until it is gone."""
        stream.state.is_dropped = True
        self._injector.made.forget(stream.state.iri)
        self._hide_stream(stream.state.iri)
        self._show_stream(_dropped_name(stream.state), stream)

    def _forget(self, stream: NodeStream) -> None:
        for name in (stream.state.iri, _dropped_name(stream.state)):
            if self._exposure.streams.get(name) is stream:
                self._hide_stream(name)
                self._injector.made.forget(name)
        self._core.release(stream.forget())

    # --- queries ------------------------------------------------------------------------------------------------------

    def _run_on(
        self, name: str, nodes: Collection[int], *, is_new: bool, come: int | None = None
    ) -> tuple[Callable[[], None], Callable[[], bool]]:
        """come: as in MoveQuery."""
        found, place = self._registered[name], Coming(None)
        if self._me in nodes:
            place = self._come_later(name, found, partial(_coming, name, found, is_new, come))

        def run() -> None:
            self._show_home(name, found, tuple(nodes))
            self._made_by(name, found)
            try:
                if self._me in nodes:
                    self._register(name, found, is_new=is_new, lost=place if place.lacks_ms is not None else None)
                else:
                    self._stop(name, found, is_moved=True)
            finally:
                self._has_come_here(name, found, place)

        is_home = partial(self._is_home_of, found.streams, place.needs_ms)
        return run, is_home if self._me in nodes else _ready

    def _made_by(self, name: str, found: RecordedQuery) -> Made | None:
        """Return the stream that a query makes; None: there is none."""
        made = name
        with suppress(WukongsError):  # its node says so
            made = stream_of_view(found.payload, name) or name
        state = self._core.streams.get(made)
        if state is not None and state.is_made and self._injector.made.get(made) is None:
            self._injector.made.add(state)
        return self._injector.made.get(made)

    def _show_home(self, name: str, found: RecordedQuery, nodes: tuple[int, ...]) -> None:
        """Note what a query is by a record that is exposed now. Its readers may have got further since the record
        came."""
        known = self._registered.get(name)
        if known is not None and known.index == found.index:
            found = replace(found, groups=known.groups, stands=known.stands)
        self.homes[name] = found, nodes

    def _is_home_of(self, streams: Collection[str], needs_ms: int | None = None) -> bool:
        """Begin to keep whole slices of some streams; tell whether those that are exposed are here. needs_ms: they are
        needed from there on, if other nodes have them."""
        found, shown_ms = [self.streams[key] for key in streams if key in self.streams], self._exposure.exposed_ms()
        for stream in found:
            if not stream.is_home:
                stream.become_home(needs_ms)
        if any(stream.missing_at(shown_ms, is_ahead=True) for stream in found):
            self._ask_for_slices()
        return all(stream.missing_at(shown_ms) is None for stream in found)

    def _register(self, name: str, found: RecordedQuery, *, is_new: bool, lost: Coming | None = None) -> None:
        """Run a query here. is_new: from the event time that its record says; lost: its home is gone; else it goes on
        from what is shown."""
        if self._joined.get(name) is not None:
            return
        try:
            source, from_ms, is_paused, of_view = read_registration(found.payload, name)
            if of_view is not None:
                self._run_view(name, found)
                return
            query = parse_continuous(source)
            if query.registration is None or query.registration.name != name:
                raise DataError(f"query {name}: its text registers another name")
            check_windows(self._core, query)
            made, came = self._injector.made.get(name), dict[str, Come]()
            if lost is not None and lost.begun_ms is None:
                lost = self._from_first(query, lost)
            if lost is not None and lost.after_ms is not None and lost.lacks_ms is not None:
                decided_ms = None if made is None else made.goes_on_from(None, is_stored=False)
                shown_ms = max([self._exposure.exposed_ms(), *self._closed_of(query)])
                after_ms, lacks_ms = lost.after_ms, lost.lacks_ms
                from_ms, come = place_of(self._core, query, after_ms, lacks_ms, decided_ms, lost.begun_ms, shown_ms)
                came = dict.fromkeys([OWN, *found.groups], come)
                log.warning("query %s goes on here, after %d ms; its home is gone", name, from_ms)
                if come.gap is not None:
                    log.error("%s", GapError(name, *come.gap))
            elif lost is None and not is_new:
                from_ms = counts_from(self._core, query, self._closed_ms)
                if made is not None:
                    from_ms = made.goes_on_from(from_ms, reads_stored(query))
            returned = self.returned(found.index)
            is_alone = is_paused or found.groups or (returned is not None and returned.has_groups)
            running: JoinedQuery | ContinuousQuery | None = None
            if not is_alone:
                remembered = () if returned is None else returned.remembered
                running = self._joined.join(query, source, None, from_ms, found.index, came, remembered=remembered)
            if running is None:
                running = register_query(self._core, self._injector, query, None, source, found.index, from_ms)
                running.times.is_paused = is_paused
                if from_ms is not None and came:
                    running.restore_cursors(came)
                    running.times.skip_to(from_ms)
                if returned is not None:
                    returned.give_to(running)
                else:
                    for group in found.groups if came else ():
                        told = {"op": "cursor", "query": name, "of": found.index, "group": group}
                        self._core.journal.commit({**told, "come": came[group].as_json()})
            running.is_recovered = lost is not None
        finally:
            self._leave(found.streams)

    def _from_first(self, query: Query, lost: Coming) -> Coming:
        """Return what is known of a query that was registered before its streams began: it fires first with them. Its
        home may have said last what readers had before that, which is a time at the beginning of all times."""
        begun_ms = begun_with_streams(self._core, query)
        if begun_ms is None or lost.after_ms is None or lost.lacks_ms is None:
            return replace(lost, after_ms=None)
        after_ms, lacks_ms = max(lost.after_ms, begun_ms), max(lost.lacks_ms, begun_ms)
        return replace(lost, after_ms=after_ms, lacks_ms=lacks_ms, begun_ms=begun_ms)

    def _closed_of(self, query: Query) -> list[int]:
        """Return up to where the streams of a query's windows are closed."""
        states = (self._core.stream(window.stream) for window in query.dataset.windows)
        return [state.closed_ms for state in states if state.closed_ms is not None]

    def _closed_ms(self, state: StreamState) -> int | None:
        """Return up to where a stream is closed, None if no stream batch of it is: its writer has only said that it is
        there, and it counts as one that has not begun."""
        before = {stream.before for stream in self._exposure.streams.values() if stream.state is state}
        is_closed = state.closed_ms is not None and state.closed_ms // state.batch_ms not in before
        return state.closed_ms if is_closed else None

    def _alter_on_home(self, name: str, found: RecordedQuery) -> tuple[Callable[[], None], Callable[[], bool]]:
        """Let a query be what its record says, at the node that runs it by then."""

        def is_ready() -> bool:
            known = self.homes.get(name)
            return known is None or self._me not in known[1] or self._is_home_of(found.streams)

        def run() -> None:
            before, nodes = self.homes.get(name, (found, ()))
            if nodes:
                self._show_home(name, found, nodes)
            if self._me in nodes:
                try:
                    query = self._joined.get(name)
                    view = self._views.get(name)
                    if query is not None:
                        source, from_ms, is_paused, _ = read_registration(found.payload, name)
                        query.alter(source, is_paused, from_ms)
                    elif view is not None:
                        self._later(partial(self._alter_view, name, view))
                finally:
                    self._leave({*before.streams, *found.streams})

        return run, is_ready

    def _drop_query(self, name: str) -> Callable[[], None]:
        registered = self._registered.pop(name, None)

        def drop() -> None:
            self.homes.pop(name, None)
            self._stop(name, registered)
            if registered is not None:
                self._core.journal.delivery.forget(registered.index)

        return drop

    def _stop(self, name: str, registered: RecordedQuery | None, *, is_moved: bool = False) -> None:
        if registered is None:
            return
        self._noted_views.pop(name, None)
        if (view := self._views.get(name)) is not None:
            view.leave(is_moved=is_moved)
        query = self._joined.get(name)
        if query is not None:
            query.end()
        self._leave(registered.streams)  # Also if the query was closed here: it has gone before its record came.

    def _leave(self, streams: Collection[str]) -> None:
        """Keep no whole slices of those of some streams that no query here reads."""
        queries = self._injector.queries.values()
        read = {self._exposure.streams[window.stream] for q in queries for window in q.query.dataset.windows}
        for stream in {self.streams[key] for key in streams if key in self.streams} - read:
            if stream.is_home:
                self._core.release(stream.leave_home())

    # --- live views ---------------------------------------------------------------------------------------------------

    def _run_view(self, name: str, found: RecordedQuery) -> None:
        """Have a live view stand here; before `begin_views` it is noted for that. Its stream has what the log says now,
        which may be more than when the record came."""
        if self._views.get(name) is not None:
            return
        if not self.begins_views:
            self._noted_views[name] = found
            return
        registration = read_registration(found.payload, name)
        query = registration.parsed()
        if query.registration is None or query.registration.name != name or registration.view is None:
            raise DataError(f"view {name}: its text registers another name")
        cursors = _cursors_of(found, registration.alone)
        own, versions = None, dict[int, Arguments]()
        if registration.source.bindings is not None:
            versions_from = min((at[1] for at, _ in cursors.values() if at is not None), default=None)
            own, versions = ViewArguments.of_log(
                self._core, query, registration.source.bindings, found.bound, versions_from
            )
        made = None if registration.view.into is None else self._made_by(name, found)
        if name in self.new_views:
            view = self._views.register(query, registration.source, registration.view, None, own, of=found.index)
            self._injector.made.attach(view)
        else:  # its readers may have had reports of another node, or of another life
            self._views.take_over(
                query,
                registration.source,
                registration.view,
                found.index,
                cursors,
                own,
                versions,
                made,
                LoggedGivings(self.homes.get(name, (found, ()))[0].stands),
                is_paused=registration.is_paused,
            )

    def begin_views(self) -> None:
        """Begin the views that records have sent here so far, and from now on each when its record is carried out: this
        node reads what others hold, and knows what of its log is committed."""
        self.begins_views = True
        noted, self._noted_views = self._noted_views, {}
        for name, found in noted.items():
            if self._me in self.homes.get(name, (found, ()))[1]:
                self._try(found.index, partial(self._run_view, name, self.homes.get(name, (found, ()))[0]))

    def _change_arguments(self, name: str, found: RecordedQuery) -> None:
        """Bind or unbind what the last change of a view's arguments says, at the node where it stands."""
        _, nodes = self.homes.get(name, (found, ()))
        if nodes:
            self._show_home(name, found, nodes)
        view, change = self._views.get(name), change_of(found.bound[-1])
        if view is not None and change is not None:
            view.take_arguments(*change)

    def _alter_view(self, name: str, view: LiveView) -> None:
        """Change a view to what the newest record says. In a thread of its own: the view may move meanwhile."""
        with self._core.lock:
            found = self.homes.get(name)
        if found is None or view.is_closed:
            return
        try:
            registration = read_registration(found[0].payload, name)
            view.alter(registration.source, is_paused=registration.is_paused)
        except WukongsError as error:
            log.error("view %s: %s", name, error)

    # --- loads and updates --------------------------------------------------------------------------------------------

    def _note_followed(self, record: Change, sn: Sn) -> None:
        """Note of which streams changes store the tuples (protocol/followed.py)."""
        if record.rules:
            for stream in self.streams.values():
                if stream.state.timing is not True:
                    stream.begin_to_follow(sn.tick)
        for key, batch in record.follows:
            if key in self.streams:
                self.streams[key].follow(batch)

    def _named(self, chunks: Sequence[Encoded], into: int) -> Quads:
        """Return quads of a change, those that views name in hidden graphs. into: the graph of those without one."""
        core, quads = self._core, columns_of(chunks, into)
        names = np.unique(quads[0])
        for name, text in zip(names.tolist(), core.registry.texts(names), strict=True):
            view = view_of(text[1:-1])
            if view is not None:
                is_there = quads[0] == name
                named = None if view.graph == DEFAULT_GRAPH_IRI else graph_term(view.graph)
                quads = np.where(is_there, ~core.graph_id(named), quads[0]), *quads[1:]
        return quads

    def _store_whole(self, change: ChangePayload, sn: int, gone: Quads, come: Quads) -> None:
        core = self._core
        core.revoke_old_handles()
        core.erase_event_times(joined([gone, come]))
        difference = core.arrangement.apply(sn, gone, come)
        core.arrangement.trace.pay()
        core.pass_to(sn + 1)
        if change.operations:
            self.updated.add(change.operations, stated(difference))

    def come_to_staged(self) -> None:
        """Let staged updates hold what they have read, once this node has come there after a restart."""
        held = partial(self._core.arrangement.open, owner="a staged update", expires=False)
        self._staging.come_to(packed(self._exposure.reached), held)

    def _change(self, payload: str, sn: Sn) -> tuple[Callable[[], None], Callable[[], bool]]:
        try:
            change = read_change(payload)
        except WukongsError as error:
            return _raising(error), _ready
        self._staging.keep(change.name)
        building = self._staging.finish(change.name)
        if building is None:
            return lambda: self._store(change, sn), _ready
        return lambda: self._seal(change, building, sn), building.is_built

    def _seal(self, change: ChangePayload, building: Building, sn: Sn) -> None:
        self.come_to_staged()
        staged = self._staging.take(change.name)
        try:
            self._erase_event_times(change, staged)
            difference = seal(self._core, packed(sn), building.built(), self._later)
            if change.operations:
                self.updated.add(change.operations, difference)
        finally:
            if staged.read is not None:
                staged.read.close()

    def _erase_event_times(self, change: ChangePayload, staged: StagedChange) -> None:
        """Note that a change that was built names triples, and empties graphs."""
        core = self._core
        if core.event_times is None:
            return
        graphs = (change.graph, *change.cleared)
        into, *emptied = (core.graph_id(None if one is None else graph_term(one)) for one in graphs)
        for goes in (True, False):
            for chunk in staged.encoded(goes):
                core.erase_event_times(columns_of([core.registry.confirm(chunk)[0]], into))
        core.erase_event_times(NO_QUADS, emptied)

    def _store(self, change: ChangePayload, sn: Sn) -> None:
        core = self._core
        self.come_to_staged()
        staged = self._staging.take(change.name)
        try:
            graphs = (change.graph, *change.cleared)
            into, *emptied = (core.graph_id(None if one is None else graph_term(one)) for one in graphs)
            deletes, inserts = (
                [core.registry.confirm(chunk)[0] for chunk in staged.encoded(goes)] for goes in (True, False)
            )
            if staged.is_adopted and staged.read is None:
                core.erase_event_times(NO_QUADS, emptied)
                emptied = []  # what these graphs held is among the deletes: other nodes had the last chunk already
            if change.late is not None:
                core.absorb_late(change.late, into, packed(sn), inserts, by_event_time=True)
            elif change.is_whole:
                self._store_whole(change, packed(sn), *(self._named(chunks, into) for chunks in (deletes, inserts)))
            elif change.operations or deletes or emptied:
                difference = core.apply(packed(sn), deletes, inserts, into, emptied, staged.read)
                if change.operations:  # else these are late retractions of a stream
                    self.updated.add(change.operations, difference)
            else:
                core.absorb(packed(sn), inserts, into)
        finally:
            if staged.read is not None:
                staged.read.close()
