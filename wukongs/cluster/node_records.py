"""NodeRecords: carries out the committed records of the log on a node's store, when their SNs are exposed.

A record may be committed before its SN is exposed. Requests in between, such as pieces of a stream that was just
declared, go by the log: `streams`. Readers go by the exposed records: the streams and queries of core and injector.

A record that cannot be carried out does nothing, on all nodes alike: its proposer did not check it. The error is logged
and kept for the proposer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from wukongs.cluster.deliveries import Returned
from wukongs.cluster.exposure import Due, Exposure
from wukongs.cluster.node_payloads import (
    ChangePayload,
    maker,
    read_change,
    read_options,
    read_registration,
    streams_read,
)
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.node_terms import NodeRegistry
from wukongs.cluster.staging import Staging
from wukongs.cluster.times import ms_of, packed
from wukongs.errors import DataError, StreamError, WukongsError
from wukongs.live.core import Core
from wukongs.live.declarations import check_no_cycle, check_windows, make_stream, parse_continuous, register_query
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.query_windows import counts_from
from wukongs.live.stream_state import StreamState
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
    Record,
    ReEncode,
    RegisterQuery,
    Sn,
)
from wukongs.query.terms.names import graph_term
from wukongs.store.batch import Batch
from wukongs.store.dtypes import Int64Array
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


def by_shard(batch: Batch) -> Int64Array:
    """Return how many triples of a batch have their subjects in each shard. int64[1024]

    Cost: a search for each shard in each row (graph and predicate) of the batch; in one with few keys, a look at each
    key."""
    keys, offsets, starts = batch.out.keys, batch.out.offsets, batch.out.key_starts
    if len(starts) * SHARD_COUNT > len(keys):
        return np.bincount(shards_of(keys), np.diff(offsets), SHARD_COUNT).astype(np.int64)
    counts = np.zeros(SHARD_COUNT, np.int64)
    for first, end in pairwise(starts.tolist()):
        places = first + np.searchsorted(keys[first:end], _FIRST_IDS)
        counts += np.diff(offsets[np.append(places, end)])
    return counts


def _cycle(name: str) -> StreamError:
    return StreamError(
        f"query {name} would read what is made of its own stream, a cycle, by a query that was registered or changed "
        "at the same time: give it another name"
    )


def _names(keys: Collection[str]) -> list[str]:
    """Return the names of streams by their keys."""
    return [key.split(" ")[0] for key in keys]


def _dropped_name(state: StreamState) -> str:
    """Return what core.streams has a dropped stream under until it is gone: no name has a space."""
    return f"{state.iri} {state.lsn}"


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query that some node runs, by its record. streams: their keys."""

    index: int
    streams: tuple[str, ...]
    payload: str


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
    """Called with the lock held. me: this node; ask_for_slices: called when a home needs slices that are exposed."""

    def __init__(
        self,
        core: Core,
        terms: NodeRegistry,
        exposure: Exposure,
        joined: JoinedQueries,
        staging: Staging,
        me: int,
        ask_for_slices: Callable[[], None],
    ) -> None:
        self.streams: dict[str, NodeStream] = {}
        """By their keys: all that are not gone by the log."""
        self.keys: dict[str, str] = {}
        """Name of a stream -> key of the one that was declared under it last."""
        self.updated = AppliedUpdates()
        self.refused: dict[int, WukongsError] = {}
        """Index of a record -> why it did nothing."""
        self._core, self._terms, self._exposure = core, terms, exposure
        self._joined, self._injector = joined, joined.injector
        self._staging = staging
        self._me = me
        self._ask_for_slices = ask_for_slices
        self._registered: dict[str, RecordedQuery] = {}
        self.shown_keys: dict[str, str] = {}
        """Like keys, for the streams whose declaration is exposed."""
        self.returned: Callable[[int], Returned | None] = lambda _: None
        """Gives what a data folder has of a query that is registered again."""
        self.homes: dict[str, tuple[RecordedQuery, tuple[int, ...]]] = {}
        """The queries whose registration is exposed, and the nodes that run them."""

    def apply(self, index: int, record: Record, sn: Sn | None) -> None:
        """Take in a committed record; what has an SN takes effect when that is exposed."""
        if isinstance(record, ReEncode):
            self._terms.re_encode(record.text)
        if sn is not None:
            run, is_ready = self._effect(index, record, sn)
            self._exposure.add_due(Due(sn, lambda: self._try(index, run), is_ready))
            if isinstance(record, Change) and record.after is not None:
                self._staging.forget_void(packed(sn))

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
            case RegisterQuery(query=name, streams=streams, nodes=nodes, payload=payload, makes=makes):
                if makes in self.streams:
                    self.streams[makes].state.is_made = True
                self._registered[name] = RecordedQuery(index, streams, payload)
                return self._run_on(name, nodes, is_new=True)
            case MoveQuery(query=name, nodes=nodes) if name in self._registered:
                return self._run_on(name, nodes, is_new=False)
            case AlterQuery(query=name, streams=streams, payload=payload) if name in self._registered:
                self._registered[name] = replace(self._registered[name], streams=streams, payload=payload)
                return self._alter_on_home(name, self._registered[name])
            case DropQuery(query=name):
                return self._drop_query(name), _ready
            case Change(payload=payload):
                return self._change(payload, sn), _ready
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
        except StreamError:
            return True
        except WukongsError:
            pass  # its node says so when it registers it
        return False

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

            def run() -> None:
                for name, found in mine.items():
                    self._try(found.index, partial(self._register, name, found, is_new=False))

            self._exposure.add_due(Due(sn, run, lambda: self._is_home_of(needed)))

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
            self._show_stream(name, stream)
            self.shown_keys[name] = stream.key
            if record.is_made:
                made = self._injector.made.add(stream.state)
                producer = self._injector.queries.get(name)
                if made.producer is not None and producer is not None:
                    made.begin_after(producer.fired_ms())

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
        self, name: str, nodes: Collection[int], *, is_new: bool
    ) -> tuple[Callable[[], None], Callable[[], bool]]:
        found = self._registered[name]

        def run() -> None:
            self.homes[name] = found, tuple(nodes)
            state = self._core.streams.get(name)
            if state is not None and state.is_made and self._injector.made.get(name) is None:
                self._injector.made.add(state)
            if self._me in nodes:
                self._register(name, found, is_new=is_new)
            else:
                self._stop(name, found)

        return run, (lambda: self._is_home_of(found.streams)) if self._me in nodes else _ready

    def _is_home_of(self, streams: Collection[str]) -> bool:
        """Begin to keep whole slices of some streams; tell whether those that are exposed are here."""
        found, shown_ms = [self.streams[key] for key in streams if key in self.streams], self._exposure.exposed_ms()
        for stream in found:
            if not stream.is_home:
                stream.become_home()
        if any(stream.missing_at(shown_ms, is_ahead=True) for stream in found):
            self._ask_for_slices()
        return all(stream.missing_at(shown_ms) is None for stream in found)

    def _register(self, name: str, found: RecordedQuery, *, is_new: bool) -> None:
        """Run a query here. is_new: from the event time that its record says; else it goes on from what is shown."""
        if self._joined.get(name) is not None:
            return
        try:
            source, from_ms, is_paused = read_registration(found.payload, name)
            query = parse_continuous(source)
            if query.registration is None or query.registration.name != name:
                raise DataError(f"query {name}: its text registers another name")
            check_windows(self._core, query)
            if not is_new:
                from_ms = counts_from(self._core, query, self._closed_ms)
                if (made := self._injector.made.get(name)) is not None:
                    from_ms = made.goes_on_from(from_ms, reads_stored(query))
            returned = self.returned(found.index)
            if is_paused or returned or self._joined.join(query, source, None, from_ms, found.index) is None:
                alone = register_query(self._core, self._injector, query, None, source, found.index, from_ms)
                alone.is_paused = is_paused
                if returned is not None:
                    returned.give_to(alone)
        finally:
            self._leave(found.streams)

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
                self.homes[name] = found, nodes
            if self._me in nodes:
                try:
                    query = self._joined.get(name)
                    if query is not None:
                        source, from_ms, is_paused = read_registration(found.payload, name)
                        query.alter(source, is_paused, from_ms)
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

    def _stop(self, name: str, registered: RecordedQuery | None) -> None:
        if registered is None:
            return
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

    # --- loads and updates --------------------------------------------------------------------------------------------

    def come_to_staged(self) -> None:
        """Let staged updates hold what they have read, once this node has come there after a restart."""
        held = partial(self._core.arrangement.open, owner="a staged update", expires=False)
        self._staging.come_to(packed(self._exposure.reached), held)

    def _change(self, payload: str, sn: Sn) -> Callable[[], None]:
        try:
            change = read_change(payload)
        except WukongsError as error:
            return _raising(error)
        self._staging.keep(change.name)
        return lambda: self._store(change, sn)

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
                emptied = []  # what these graphs held is among the deletes: other nodes had the last chunk already
            if change.operations or deletes or emptied:
                difference = core.apply(packed(sn), deletes, inserts, into, emptied, staged.read)
                if change.operations:  # else these are late retractions of a stream
                    self.updated.add(change.operations, difference)
            else:
                core.absorb(packed(sn), inserts, into)
        finally:
            if staged.read is not None:
                staged.read.close()
