"""Installing: makes the store of a node that joins stand where its donors' stood, at one SN and one set of inserted
stream batches (collecting.py). The answers of other nodes are checked before anything is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wukongs.cluster.collecting import (
    AGREED,
    COUNTS,
    END,
    ENTRY_COLUMNS,
    EVENT_TIMES,
    FRAGMENT_COLUMNS,
    HEAD,
    LATE_COLUMNS,
    PIECES,
    QUAD_COLUMNS,
    SHARE_COLUMNS,
    SHARES,
    STAGED,
    STATE,
    TRIPLES,
    WAITING,
)
from wukongs.cluster.feeding import pieces_in
from wukongs.cluster.node_payloads import declaration, read_options
from wukongs.cluster.node_records import RecordedQuery
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.node_stream import NodeStream
from wukongs.cluster.slice_shares import NEVER, ShareRows
from wukongs.cluster.times import packed, unpacked
from wukongs.errors import DataError, NodeUnavailable
from wukongs.live.declarations import make_stream
from wukongs.live.pieces import Piece
from wukongs.protocol import events as ev
from wukongs.protocol.records import Sn
from wukongs.protocol.state import Node
from wukongs.store.batch import build_batch, with_key_filter
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded, TermTable, signs
from wukongs.store.event_times import EventTimes, is_in_order
from wukongs.store.quads import Quads, joined
from wukongs.store.term_registry import distinct_terms
from wukongs.store.tombstones import Difference
from wukongs.store.trace import TraceEntry
from wukongs.wire.assignment import SHARD_COUNT, shards_of
from wukongs.wire.packet_columns import terms_in, tuples_in
from wukongs.wire.packets import Packet

_NOTHING: Int64Array = np.empty(0, np.int64)


@dataclass(slots=True)
class StreamTaken:
    """The donors' data of one stream. inserted_to: the stream batch up to which all of them have inserted it;
    pieces: of those that are not exposed; waiting: inserted and not exposed, with stream batch and partition; shares:
    by stream batch, with the texts of their terms; counts, dropped, late_signs: per shard."""

    inserted_to: int | None
    pieces: list[Piece] = field(default_factory=list)
    waiting: list[tuple[int, str, Encoded]] = field(default_factory=list)
    shares: dict[int, list[tuple[ShareRows, TermTable]]] = field(default_factory=dict)
    counts: Int64Array = field(default_factory=lambda: np.zeros(SHARD_COUNT, np.int64))
    dropped: Int64Array = field(default_factory=lambda: np.full(SHARD_COUNT, NEVER, np.int64))
    late_signs: Int64Array = field(default_factory=lambda: np.zeros((2, SHARD_COUNT), np.int64))


class Taken:
    """The data that has come from the donors so far."""

    def __init__(self) -> None:
        self.heads: list[Mapping[str, Any]] = []
        self.terms: list[TermTable] = []
        self.agreed: list[TermTable] = []
        self.quads: list[Quads] = []
        self.gone: list[Quads] = []
        """Triples of a base that have been deleted since; some may have come again, and be among `quads`."""
        self.row_count = 0
        self.streams: dict[str, StreamTaken] = {}
        self.event_times: list[Int64Array] = []
        """Parts of EventTimes.entries; empty: there is and was no stream whose signs go by them."""
        self.staged: dict[str, list[tuple[Encoded, bool]]] = {}
        self.awaited: dict[str, tuple[int, list[str | None]]] = {}

    def add(self, packet: Packet) -> bool:
        """Take in a packet of a donor; tell whether it was its last. Raises DataError."""
        part = packet.fields.get("part")
        handler = _PARTS.get(part) if packet.kind == STATE and isinstance(part, str) else None
        if handler is None:
            raise DataError(f"{STATE}: expected a part of a node's state, found '{packet.kind}', {part!r}")
        try:
            handler(self, packet)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(f"{STATE}, {part}: {type(error).__name__}: {error}") from error
        return part == END

    @property
    def sn(self) -> Sn:
        """Where the donors stand. Raises DataError (they do not agree)."""
        found = {head["sn"] for head in self.heads}
        if len(found) != 1:
            raise DataError(f"{STATE}: expected one SN of all donors, found {sorted(found)}")
        return unpacked(found.pop())

    def _head(self, packet: Packet) -> None:
        _check(packet.fields, _HEAD, HEAD)
        for facts in packet.fields["streams"]:
            _check(facts, _FACTS, "a stream")
            inserted = facts["standing"]["inserted_to"]
            stream = self.streams.setdefault(facts["standing"]["key"], StreamTaken(inserted))
            if inserted is None or stream.inserted_to is None:
                stream.inserted_to = None
            else:
                stream.inserted_to = min(inserted, stream.inserted_to)
        self.heads.append(packet.fields)

    def _end(self, _: Packet) -> None:
        pass

    def _agreed(self, packet: Packet) -> None:
        self.agreed.append(terms_in(packet))
        self.row_count += len(self.agreed[-1])

    def _triples(self, packet: Packet) -> None:
        graphs, subjects, predicates, objects = _columns(packet, QUAD_COLUMNS)
        quads = self.gone if packet.fields.get("goes") else self.quads
        quads.append((graphs, subjects, predicates, objects))
        self.terms.append(terms_in(packet))
        self.row_count += len(graphs)

    def _stream(self, packet: Packet) -> StreamTaken:
        return self.streams[packet.fields["stream"]]

    def _counts(self, packet: Packet) -> None:
        stream = self._stream(packet)
        counts, dropped = _columns(packet, ("counts", "dropped"), SHARD_COUNT)
        stream.counts = stream.counts + counts
        stream.dropped = np.maximum(stream.dropped, dropped)
        if LATE_COLUMNS[0] in packet.arrays:
            stream.late_signs = stream.late_signs + np.stack(_columns(packet, LATE_COLUMNS, SHARD_COUNT))

    def _shares(self, packet: Packet) -> None:
        stream = self._stream(packet)
        columns = _columns(packet, SHARE_COLUMNS)
        numbers, partitions, firsts = (_list(packet, name) for name in ("numbers", "partitions", "first_offsets"))
        terms = terms_in(packet)
        for at, (lo, hi) in enumerate(_bounds(packet, len(columns[0]))):
            subjects, predicates, objects, times, places = (column[lo:hi] for column in columns)
            rows = subjects, predicates, objects
            part = ShareRows(partitions[at], firsts[at], *rows, times, places, _NOTHING)
            stream.shares.setdefault(numbers[at], []).append((part, _used(terms, rows)))

    def _waiting(self, packet: Packet) -> None:
        stream = self._stream(packet)
        graphs, subjects, predicates, objects, times, goes = _columns(packet, FRAGMENT_COLUMNS)
        numbers, partitions = _list(packet, "numbers"), _list(packet, "partitions")
        for at, (lo, hi) in enumerate(_bounds(packet, len(graphs))):
            rows = slice(lo, hi)
            encoded = Encoded(
                subjects[rows],
                predicates[rows],
                objects[rows],
                graphs[rows],
                times[rows],
                TermTable.empty(),
                goes=signs(goes[rows] != 0),
            )
            stream.waiting.append((numbers[at], partitions[at], encoded))
        self.terms.append(terms_in(packet))

    def _pieces(self, packet: Packet) -> None:
        self._stream(packet).pieces += pieces_in(packet)

    def _event_times(self, packet: Packet) -> None:
        entries = np.stack(_columns(packet, ENTRY_COLUMNS))
        if not is_in_order(entries):
            raise DataError(f"{STATE}, {EVENT_TIMES}: expected each triple once, in order")
        self.event_times.append(entries)

    def _staged(self, packet: Packet) -> None:
        change, awaited = str(packet.fields.get("change")), packet.fields.get("awaited")
        if awaited is not None:
            self.awaited[change] = int(awaited[0]), list(awaited[1])
        chunks = self.staged.setdefault(change, [])
        chunks += [(chunk, bool(packet.fields.get("goes"))) for chunk in tuples_in(packet, writes_views=True)]


_PARTS = {
    HEAD: Taken._head,
    TRIPLES: Taken._triples,
    AGREED: Taken._agreed,
    COUNTS: Taken._counts,
    SHARES: Taken._shares,
    WAITING: Taken._waiting,
    PIECES: Taken._pieces,
    EVENT_TIMES: Taken._event_times,
    STAGED: Taken._staged,
    END: Taken._end,
}


_HEAD = {"sn": int, "index": int, "streams": list, "keys": dict, "homes": dict, "exceptions": list, "intakes": dict}
_FACTS = {
    "name": str,
    "iri": str,
    "lsn": int,
    "batch_ms": int,
    "payload": str,
    "shares_dropped_to": int,
    "standing": dict,
}


def _check(fields: Any, kinds: Mapping[str, type], what: str) -> None:
    """Raise DataError unless there are fields of these types."""
    if not isinstance(fields, Mapping) or not all(type(fields.get(name)) is kind for name, kind in kinds.items()):
        raise DataError(f"{STATE}, {what}: expected {', '.join(kinds)}, found {str(fields)[:200]}")


def _columns(packet: Packet, names: Sequence[str], length: int | None = None) -> list[Int64Array]:
    found: list[Any] = [packet.arrays.get(name) for name in names]
    lengths = {len(column) if column is not None and column.dtype == np.int64 else None for column in found}
    if len(lengths) != 1 or None in lengths or length not in (None, *lengths):
        raise DataError(f"{STATE}, {packet.fields.get('part')}: expected {', '.join(names)} of one length")
    return found


def _list(packet: Packet, name: str) -> list[Any]:
    found = packet.fields.get(name)
    if not isinstance(found, list) or len(found) != len(packet.fields.get("sizes", ())):
        raise DataError(f"{STATE}, {packet.fields.get('part')}: expected {name} for each part of the rows")
    return found


def _bounds(packet: Packet, count: int) -> list[tuple[int, int]]:
    sizes = _list(packet, "sizes")
    if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) != count:
        raise DataError(f"{STATE}, {packet.fields.get('part')}: expected sizes of {count} rows together")
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    return [(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _used(terms: TermTable, columns: Sequence[Int64Array]) -> TermTable:
    """Return the terms that stand in some columns. Raises DataError (one has no text)."""
    ids = distinct_terms(columns)
    rows = np.searchsorted(terms.ids, ids)
    if len(ids) and (rows[-1] >= len(terms) or not np.array_equal(terms.ids[rows], ids)):
        raise DataError(f"{STATE}, {SHARES}: expected the texts of all terms")
    return terms.take(rows)


def take_terms(store: NodeStore, taken: Taken) -> None:
    """Take over the terms that have come. They stay, whatever becomes of this: the cluster has agreed on them.

    Raises DataError (another text has one of their ids here)."""
    exceptions = max((head["exceptions"] for head in taken.heads), key=len)
    registry = store.terms
    try:
        registry.restore_exceptions((int(term), str(text)) for term, text in exceptions)
    except ValueError as error:
        raise DataError(f"{STATE}: {error}") from error
    for table in taken.terms:
        registry.take_over(table)
    for table in taken.agreed:
        store.claims.take_over(table)
    taken.terms, taken.agreed = [], []


def prepare(store: NodeStore, taken: Taken) -> Difference:
    """Take over the terms, and build what has come, and gone, of the stored graph. This takes long, and nobody reads it
    before `install`. Raises DataError (as take_terms)."""
    take_terms(store, taken)
    quads, gone = net(joined(taken.quads), joined(taken.gone))
    return Difference(build_batch(*quads), with_key_filter(build_batch(*gone)) if len(gone[0]) else None)


def net(quads: Quads, gone: Quads) -> tuple[Quads, Quads]:
    """Return which quads are there at the end and not at the beginning, and the other way round. quads, gone: those
    that come and those that go in between, each of them in turns."""
    if not len(gone[0]):
        return quads, gone
    columns = joined([quads, gone])
    order = np.lexsort(columns)
    ordered = np.stack(columns)[:, order]
    firsts = np.flatnonzero(np.concatenate([[True], (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)]))
    sums = np.add.reduceat(np.where(order < len(quads[0]), 1, -1), firsts)
    distinct = [column[order[firsts]] for column in columns]
    come, go = ([column[sums == sign] for column in distinct] for sign in (1, -1))
    return (come[0], come[1], come[2], come[3]), (go[0], go[1], go[2], go[3])


def entries_of(differences: Sequence[Difference], sn: int) -> list[TraceEntry]:
    """Return the entries of a trace that has the sum of differences at an SN. A read at an older SN is told that this
    node does not have it."""
    found = [one for one in differences if any(one.counts)]
    # The last entry spans all SNs before, and those of the others are below any that is read.
    spans = [*((place - len(found), place - len(found) + 1) for place in range(1, len(found))), (0, sn + 1)]
    return [
        TraceEntry(one.additions, *span, tombstones=one.tombstones) for one, span in zip(found, spans, strict=False)
    ]


def install(store: NodeStore, taken: Taken, entries: Sequence[TraceEntry]) -> None:
    """Let the store stand at the SN of its donors. Called by the protocol's thread, before anything else happens here.
    entries: of the trace of the stored graph.

    Raises NodeUnavailable (it stands somewhere already), DataError (donors that do not agree), SettingsError (a
    stream's options)."""
    core, sn = store.core, taken.sn
    with core.lock:
        if len(core.arrangement) or core.streams or store.exposure.shown:
            raise NodeUnavailable(f"node {store.me} was told anew to take over what others have: start it again")
        core.arrangement.trace.restore(entries, packed(sn) + 1)
        head = taken.heads[0]
        streams: dict[str, NodeStream] = {}
        for facts in head["streams"]:
            key = facts["standing"]["key"]
            dropped_to = max(one["shares_dropped_to"] for h in taken.heads for one in h["streams"] if _is(one, key))
            streams[facts["name"]] = _stream(store, facts, taken.streams[key], dropped_to)
        if taken.event_times:
            core.event_times = core.event_times or EventTimes()
            core.event_times.restore(*taken.event_times)
        homes = {name: (RecordedQuery.of(told), tuple(nodes)) for name, (*told, nodes) in head["homes"].items()}
        store.records.restore(sn, streams, head["keys"], homes)
        for change, chunks in taken.staged.items():
            store.staging.adopt(change, chunks)
            if change in taken.awaited:
                store.staging.hold_at(change, *taken.awaited[change])
        store.exposure.show(sn.tick)
        store.exposure.come_to(core, sn)
        store.exposure.exposed = sn


def take_pieces(store: NodeStore, taken: Taken) -> None:
    """Keep the pieces that all donors have, and that are not inserted yet."""
    for key, stream in taken.streams.items():
        known = standings(taken, key)
        for piece in stream.pieces:
            is_inserted = stream.inserted_to is not None and piece.batch_number <= stream.inserted_to
            if not is_inserted and piece.partition in known and piece.end_offset <= known[piece.partition].offset:
                store.take(piece)


def _is(facts: Mapping[str, Any], key: str) -> bool:
    return bool(facts["standing"]["key"] == key)


def _stream(store: NodeStore, facts: Mapping[str, Any], taken: StreamTaken, dropped_to: int) -> NodeStream:
    core, standing = store.core, facts["standing"]
    record = declaration(facts["iri"], facts["batch_ms"], standing["first_tick"], facts["payload"])
    options = read_options(core.settings, record)
    stream = NodeStream(make_stream(core, facts["iri"], options, facts["lsn"]), first_tick=record.first_tick)
    # What only some of the donors have inserted is inserted here from its pieces, when all of it has come.
    last = stream.before if taken.inserted_to is None else taken.inserted_to
    for number, partition, rows in taken.waiting:
        if number <= last:
            numbers = None if stream.state.carry_rule is None else np.full(len(rows), number, np.int64)
            stream.state.take(rows, np.zeros(len(rows), np.bool_), _NOTHING, partition, numbers)
    stream.restore({**standing, "inserted_to": taken.inserted_to})
    shares = {
        number: [replace(part, transient_ids=store.terms.borrow(terms)) for part, terms in parts]
        for number, parts in taken.shares.items()
        if number <= last
    }
    later = [part.subjects for number, parts in taken.shares.items() if number > last for part, _ in parts]
    counts = taken.counts - np.bincount(shards_of(np.concatenate([_NOTHING, *later])), minlength=SHARD_COUNT)
    core.release(stream.shares.restore(shares, counts, taken.dropped, min(dropped_to, last)))
    stream.late_signs = taken.late_signs
    return stream


@dataclass(frozen=True, slots=True)
class DonorsAt:
    """How far a stream's partition is on all donors, behind what is inserted on all of them: from row `first` on, the
    rows behind the last of each stream batch in order (sealing.Partition.ends)."""

    offset: int
    closed: int
    is_ended: bool
    epoch: int
    empty_to: int
    first: int
    ends: tuple[tuple[int, int], ...]


def standings(taken: Taken, stream: str) -> dict[str, DonorsAt]:
    """Return, for each partition of a stream that all donors know, what all of them have."""
    intakes = [head["intakes"][stream] for head in taken.heads if stream in head["intakes"]]
    if len(intakes) < len(taken.heads):
        return {}
    last = min(intakes, key=lambda intake: intake["inserted"])  # knows all ends behind what all have inserted
    found: dict[str, DonorsAt] = {}
    for name in set[str].intersection(*(set(intake["partitions"]) for intake in intakes)):
        known = (one["partitions"][name] for one in intakes)
        offset, closed, is_ended, epoch, empty_to, _ = min(known, key=lambda one: one[:3])
        offset = _whole_to(taken.streams[stream].pieces, name, offset)
        first = last["offsets"].get(name, 0)
        ends, at = [], first
        for batch, end in last["partitions"][name][5]:
            if at < offset:
                at = min(end, offset)
                ends.append((batch, at))
        found[name] = DonorsAt(offset, closed, is_ended, epoch, empty_to, first, tuple(ends))
    return found


def _whole_to(pieces: Sequence[Piece], partition: str, offset: int) -> int:
    """Return the last row up to `offset` that lies within no donor's piece: donors may have the same rows in other
    pieces, of two writers."""
    spans = [(piece.first_offset, piece.end_offset) for piece in pieces if piece.partition == partition]
    while crossing := [first for first, end in spans if first < offset < end]:
        offset = min(crossing)
    return offset


def events_of(since: int, taken: Taken, node: Node, *, is_safe: bool = True) -> Iterator[ev.Event]:
    """Return the events of an installation for the protocol: the inserted stream batches, then the pieces of later
    ones, as if they had come here. Their rows are in the store by then. is_safe: as in StateInstalled."""
    inserted: dict[str, int] = {}
    offsets: dict[str, dict[str, int]] = {}
    for stream in node.control.live_streams:
        intakes = [head["intakes"].get(stream.key, _NO_INTAKE) for head in taken.heads]
        last = min(intakes, key=lambda intake: intake["inserted"])
        if last["inserted"]:
            inserted[stream.key], offsets[stream.key] = last["inserted"], last["offsets"]
    yield ev.StateInstalled(since, inserted, offsets, is_safe)
    for key in taken.streams:
        for name, known in sorted(standings(taken, key).items()):
            at = known.first
            for batch, end in known.ends:
                yield ev.PieceOffered(key, name, known.epoch, batch, at, end, after=known.empty_to)
                at = end
            if known.closed > inserted.get(key, 0) or known.is_ended:
                yield ev.Marker(key, name, known.epoch, known.closed, at, known.is_ended)


_NO_INTAKE: dict[str, Any] = {"inserted": 0, "offsets": {}}
