"""Collecting: what a node's store holds of the shards of a node that joins, at one SN and one set of inserted stream
batches, and the packets in which it goes there.

All that is collected is immutable, or was copied with the store's lock held: packets are made of it later, one by one,
while the store goes on. A tuple is in the answer of one donor only: of the one that is asked for its subject's shard,
if the joining node is to hold that, else of the one that is asked for its object's.

Most of it is the stored graph and the agreed terms. A node fetches these before it joins, at any SN (`collect_stored`),
and later only what has changed since (Base).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from wukongs.cluster.feeding import pieces_packet
from wukongs.cluster.node_store import NodeStore, StagedCopy
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.node_terms import TermClaims
from wukongs.cluster.slice_shares import ShareRows
from wukongs.cluster.times import packed
from wukongs.errors import NodeUnavailable
from wukongs.live.pieces import Piece
from wukongs.live.stream_state import Fragment
from wukongs.protocol.records import Sn
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import Encoded, TermCutter, signs_of
from wukongs.store.event_times import EventTimes
from wukongs.store.quads import Quads, joined
from wukongs.store.term_registry import TermReader, term_table, with_texts
from wukongs.store.trace import TraceEntry
from wukongs.wire.assignment import shards_of
from wukongs.wire.packet_columns import term_arrays, tuples_packet
from wukongs.wire.packets import Array, Packet
from wukongs.wire.sharding import ShardMap, ends_of

STATE = "state"
HEAD, TRIPLES, AGREED, EVENT_TIMES, STAGED, END = "head", "triples", "agreed", "event_times", "staged", "end"
WAITING, PIECES, COUNTS, SHARES = "waiting", "pieces", "counts", "shares"
"""The parts: those of the store, and those of each stream."""
ROWS_MAX = 1 << 18
"""Rows, or texts, of one packet: about as many."""
SHARE_COLUMNS = ("subjects", "predicates", "objects", "timestamps", "places")
FRAGMENT_COLUMNS = ("graphs", "subjects", "predicates", "objects", "timestamps", "goes")
"""goes : 0 or 1."""
ENTRY_COLUMNS = ("subjects", "objects", "predicates", "graphs", "entries")
"""The rows of EventTimes.entries."""
LATE_COLUMNS = ("late_signs", "dropped_signs")
"""The rows of NodeStream.late_signs."""
QUAD_COLUMNS = ("graphs", "subjects", "predicates", "objects")


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The question to one donor. node: the one that joins; mine: the shards that it is to hold; asked: those of them
    that this donor is asked for. bool[1024]"""

    node: int
    shard_map: ShardMap
    split_ids: frozenset[int]
    mine: BoolArray
    asked: BoolArray

    def of_rows(self, subjects: Int64Array, predicates: Int64Array, objects: Int64Array) -> BoolArray:
        """Tell which rows go there. bool[n]"""
        is_whole = ~np.isin(predicates, list(self.split_ids))
        return self._of(shards_of(subjects), shards_of(objects), is_whole)

    def of_tuples(self, encoded: Encoded, timing: BoolArray | None = None) -> BoolArray:
        """Do the same as of_rows for tuples as they have come; timing tuples go by their subjects. bool[n]"""
        of_subject, of_object, is_whole = ends_of(encoded, self.shard_map)
        return self._of(of_subject, of_object, is_whole if timing is None else is_whole & ~timing)

    def _of(self, of_subject: Int64Array, of_object: Int64Array, is_whole: BoolArray) -> BoolArray:
        found: BoolArray = self.asked[of_subject] | (self.asked[of_object] & ~self.mine[of_subject] & is_whole)
        return found


@dataclass(frozen=True, slots=True)
class Base:
    """The part that a node has had of a donor before: the stored triples at an SN, and so many of the agreed terms. A
    handle keeps that SN apart from later ones."""

    sn: int
    agreed_count: int


NO_BASE = Base(-1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class StreamPart:
    """The data of one stream. facts: as JSON; dropped: per shard, the last stream batch with rows that was dropped;
    late_signs: as in NodeStream."""

    facts: Mapping[str, Any]
    waiting: Sequence[tuple[int, Fragment]]
    pieces: Sequence[Piece]
    shares: Sequence[tuple[int, ShareRows]]
    counts: Int64Array
    dropped: Int64Array
    late_signs: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """head: what stands in a few lines of JSON; entries: of the trace of the stored graph, and what is read there;
    agreed_count: entries of `claims` that belong to it; base: what the other node has of it already."""

    wanted: Wanted
    base: Base
    head: Mapping[str, Any]
    entries: Sequence[TraceEntry]
    stored: BatchSet
    reader: TermReader
    claims: TermClaims
    agreed_count: int
    streams: Sequence[StreamPart]
    staged: Mapping[str, StagedCopy]
    event_times: EventTimes | None = None
    """Those of triples, if there is or was a stream whose signs go by them."""

    def packets(self) -> Iterator[Packet]:
        """Return everything, in packets of bounded size; the last one says so."""
        yield Packet(STATE, {"part": HEAD, **self.head})
        yield from self._agreed()
        yield from self._triples()
        yield from self.waiting()
        yield Packet(STATE, {"part": END})

    def waiting(self) -> Iterator[Packet]:
        """Return what is neither in the stored graph nor among the agreed terms."""
        if self.event_times is not None:
            yield from self._of_event_times(self.event_times.entries())
        for stream in self.streams:
            yield from self._of_stream(stream)
        for change, staged in self.staged.items():
            yield from self._of_change(change, staged)

    def _agreed(self) -> Iterator[Packet]:
        for first in range(self.base.agreed_count, self.agreed_count, ROWS_MAX):
            table = self.claims.agreed(first, min(first + ROWS_MAX, self.agreed_count), self.wanted.asked)
            yield Packet(STATE, {"part": AGREED}, term_arrays(table))

    def _triples(self) -> Iterator[Packet]:
        if self.base is NO_BASE:
            yield from self._triples_of(self.stored, goes=False)
            return
        for entry in self.entries:
            if entry.lower > self.base.sn:
                if entry.tombstones is not None:
                    yield from self._triples_of(BatchSet.of((entry.tombstones,), disjoint=True), goes=True)
                yield from self._triples_of(BatchSet.of((entry.batch,), disjoint=True), goes=False)

    def _triples_of(self, read: BatchSet, goes: bool) -> Iterator[Packet]:
        for parts in self._quads(read, read.all_graphs.tolist()):
            yield self._rows({"part": TRIPLES, "goes": goes}, QUAD_COLUMNS, parts)

    def _quads(self, stored: BatchSet, graphs: Sequence[int]) -> Iterator[list[Quads]]:
        """Yield the wanted triples of some graphs, about ROWS_MAX at a time."""
        waiting: list[Quads] = []
        count = 0
        for graph in graphs:
            for subjects, predicate, objects in stored.triples(graph):
                for first in range(0, len(subjects), ROWS_MAX):
                    ends = subjects[first : first + ROWS_MAX], objects[first : first + ROWS_MAX]
                    rows = np.flatnonzero(self.wanted.of_rows(ends[0], np.full(len(ends[0]), predicate), ends[1]))
                    alike = (np.full(len(rows), graph), np.full(len(rows), predicate))
                    waiting.append((alike[0], ends[0][rows], alike[1], ends[1][rows]))
                    count += len(rows)
                    if count >= ROWS_MAX:
                        yield waiting
                        waiting, count = [], 0
        if count:
            yield waiting

    def _rows(
        self, fields: Mapping[str, Any], names: Sequence[str], parts: Sequence[Sequence[Int64Array]], terms: int = 4
    ) -> Packet:
        """Return rows with the texts of the terms in their first columns."""
        joined = dict(zip(names, (np.concatenate(column) for column in zip(*parts, strict=True)), strict=True))
        table = term_table([joined[name] for name in names[:terms]], self.reader.gather)
        return Packet(STATE, fields, {**joined, **term_arrays(table)})

    def _of_event_times(self, entries: Int64Array) -> Iterator[Packet]:
        """Ids of terms are the same on all nodes, so their texts are not needed."""
        subjects, objects, predicates = entries[:3]
        entries = entries[:, self.wanted.of_rows(subjects, predicates, objects)]
        for first in range(0, max(1, entries.shape[1]), ROWS_MAX):
            columns = zip(ENTRY_COLUMNS, entries[:, first : first + ROWS_MAX], strict=True)
            yield Packet(STATE, {"part": EVENT_TIMES}, {name: np.ascontiguousarray(one) for name, one in columns})

    def _of_stream(self, stream: StreamPart) -> Iterator[Packet]:
        key = stream.facts["standing"]["key"]
        counts: dict[str, Array] = {"counts": stream.counts, "dropped": stream.dropped}
        if stream.late_signs.any():
            counts |= dict(zip(LATE_COLUMNS, stream.late_signs, strict=True))
        yield Packet(STATE, {"part": COUNTS, "stream": key}, counts)
        for parts in _bounded(stream.shares, lambda part: len(part[1].subjects)):
            rows = [tuple(getattr(part, name) for name in SHARE_COLUMNS) for _, part in parts]
            fields = {
                "part": SHARES,
                "stream": key,
                "numbers": [number for number, _ in parts],
                "sizes": [len(part.subjects) for _, part in parts],
                "partitions": [part.partition for _, part in parts],
                "first_offsets": [part.first_offset for _, part in parts],
            }
            yield self._rows(fields, SHARE_COLUMNS, rows, 3)
        for waiting in _bounded(stream.waiting, lambda part: len(part[1].subjects)):
            yield self._waiting(key, waiting)
        for (partition, epoch), of_writer in groupby(sorted(stream.pieces, key=_writer), _writer):
            for pieces in _bounded(list(of_writer), lambda piece: len(piece.encoded)):
                fields = {"part": PIECES, "stream": key, "partition": partition, "epoch": epoch}
                yield pieces_packet(STATE, [self._share(piece) for piece in pieces], **fields)

    def _waiting(self, key: str, parts: Sequence[tuple[int, Fragment]]) -> Packet:
        rows, sizes = [], []
        for _, part in parts:
            chosen = self.wanted.of_rows(part.subjects, part.predicates, part.objects) & ~part.timing
            goes = signs_of(part.goes, len(chosen)).astype(np.int64)
            rows.append((*(getattr(part, name)[chosen] for name in FRAGMENT_COLUMNS[:-1]), goes[chosen]))
            sizes.append(int(chosen.sum()))
        fields = {
            "part": WAITING,
            "stream": key,
            "numbers": [number for number, _ in parts],
            "sizes": sizes,
            "partitions": [part.partition for _, part in parts],
        }
        return self._rows(fields, FRAGMENT_COLUMNS, rows)

    def _share(self, piece: Piece) -> Piece:
        rows = np.flatnonzero(self.wanted.of_tuples(piece.encoded, piece.timing))
        encoded, places = TermCutter(piece.encoded).cut(rows), piece.row_places()[rows]
        return replace(piece, encoded=encoded, timing=piece.timing[rows], places=places)

    def _of_change(self, change: str, staged: StagedCopy) -> Iterator[Packet]:
        yield Packet(STATE, {"part": STAGED, "change": change, "awaited": staged.awaited})
        for chunk, goes in staged.chunks:
            rows = np.flatnonzero(self.wanted.of_tuples(chunk))
            if len(rows):
                yield _staged(change, TermCutter(chunk).cut(rows), goes)
        for parts in self._quads(staged.read, staged.cleared):
            yield _staged(change, with_texts(joined(parts), self.reader.gather), True)


def _staged(change: str, chunk: Encoded, goes: bool) -> Packet:
    return tuples_packet(STATE, [chunk], part=STAGED, change=change, goes=goes)


def _writer(piece: Piece) -> tuple[str, int]:
    return piece.partition, piece.epoch


def _bounded(parts: Sequence[Any], size_of: Any) -> Iterator[list[Any]]:
    """Put parts together to groups of about ROWS_MAX rows, in order."""
    group, size = [], 0
    for part in parts:
        group.append(part)
        size += size_of(part) + 1
        if size >= ROWS_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group


def collect_stored(store: NodeStore, wanted: Wanted, base: Base, sn: int, head: Mapping[str, Any]) -> Collected:
    """Collect the stored triples at an SN, and the agreed terms. head: the facts that are told. With the lock held.

    Raises CompactedError (merging has forgotten the SN), NodeUnavailable (it has merged beyond that of the base)."""
    core = store.core
    entries = core.arrangement.trace.entries()
    if base is not NO_BASE and any(one.lower <= base.sn < one.upper - 1 for one in entries):
        raise NodeUnavailable(f"node {store.me} has not held SN {base.sn}: ask it for everything")
    return Collected(
        wanted,
        base,
        {"sn": sn, "exceptions": core.registry.exception_records(0), **head},
        entries,
        core.arrangement.trace.read(sn),
        core.registry.snapshot_reader(),
        store.claims,
        len(store.claims),
        (),
        {},
    )


def collect(store: NodeStore, wanted: Wanted, sn: Sn, head: Mapping[str, Any], base: Base = NO_BASE) -> Collected:
    """Collect the data of a store at an SN; the store has been kept from going on behind it. head: further facts.

    Called by the protocol's thread, so that no piece comes in between. Raises NodeUnavailable (it does not stand there,
    or no longer)."""
    core, records, exposure = store.core, store.records, store.exposure
    with core.lock:
        if exposure.reached != sn or exposure.shown != sn.tick:
            raise NodeUnavailable(f"node {store.me} stands at SN {packed(exposure.reached)}, not at {packed(sn)}")
        streams = [_part(wanted, name, stream) for name, stream in exposure.streams.items()]
        facts = {
            **head,
            "streams": [part.facts for part in streams],
            "keys": dict(records.shown_keys),
            "homes": {name: [*found.told(), nodes] for name, (found, nodes) in records.homes.items()},
        }
        stored = collect_stored(store, wanted, base, packed(sn), facts)
        event_times = None if core.event_times is None else core.event_times.copy()
        return replace(stored, streams=streams, staged=store.staged(), event_times=event_times)


def _part(wanted: Wanted, name: str, stream: NodeStream) -> StreamPart:
    shares, counts, dropped = stream.shares.held(wanted.asked)
    state = stream.state
    facts = {
        "name": name,
        "iri": state.iri,
        "lsn": state.lsn,
        "batch_ms": state.batch_ms,
        "payload": json.dumps(state.options),
        "shares_dropped_to": stream.shares.dropped_to,
        "standing": stream.standing(),
    }
    late_signs = np.where(wanted.asked, stream.late_signs, 0)
    return StreamPart(facts, state.waiting(), stream.kept_pieces(), shares, counts, dropped, late_signs)
