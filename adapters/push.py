"""The work of a worker on a WorkItem: read, encode, mark timing, cut into stream batches, send, declare complete.

The same item pushed twice sends the same pieces under the same keys (stream, partition, offsets, piece), so a retried
task or a repeated epoch is dropped by the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from wukongs.adapters.bad_records import BadRows, bad_parts
from wukongs.adapters.source import NO_TIME, RowRange, Rows, SetAside, StreamSource
from wukongs.live.pieces import Piece, timing_mask
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import TermCutter
from wukongs.wire.direct_link import DirectLink
from wukongs.wire.link import IngestLink

EXAMPLES_MAX = 20
"""Rows that were set aside and are kept as examples, per item and in a report; all are counted."""


@dataclass(frozen=True, slots=True)
class PartitionSetup:
    """A source partition as its stream wants it. epoch is the writer's fencing epoch; is_last: the end of the source is
    the end of the partition, which then holds nobody back any more.

    cuts : rows at which pieces have to end, ascending: some nodes have what an earlier writer sent before them
    """

    stream: str
    source: StreamSource
    epoch: int
    batch_ms: int
    timing: bool | tuple[str, ...]
    hash_bits: int
    is_last: bool = True
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The work of one partition in one epoch: read and send the chunks, declare complete_ms complete.

    finish: the source is at its end; first_offset: up to where the nodes have its rows. lateness_ms: of a source whose
    times are not known beforehand: then the time that its newest row leaves complete is declared, too, if it is later.
    None: of a replay. carried_count: how many tuples of earlier rows are carried."""

    setup: PartitionSetup
    first_offset: int
    end_offset: int
    chunks: tuple[RowRange, ...]
    complete_ms: int
    finish: bool
    lateness_ms: int | None = None
    carried_count: int = 0


@dataclass(slots=True)
class PushStats:
    """Counts of one pushed item, or of a whole pipeline; seconds of work, sent_bytes on the wire. good_rows: rows that
    gave tuples; newest_ms: the latest time among the rows of the item that move time on or give tuples (NO_TIME: none
    do); sent_offset: up to where the nodes have the rows; waiting: rows of a live source that were there behind these,
    which its planner adds. carried_count: tuples that stream batches carry, of all rows up to the end of the item."""

    stream: str = ""
    partition: str = ""
    finished: bool = False
    end_offset: int = 0
    complete_ms: int = 0
    rows: int = 0
    triples: int = 0
    timing_triples: int = 0
    malformed: int = 0
    backwards: int = 0
    pieces: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0
    examples: list[SetAside] = field(default_factory=list)
    good_rows: int = 0
    newest_ms: int = NO_TIME
    sent_offset: int = 0
    waiting: int = 0
    carried_count: int = 0

    def note(self, rows: Rows) -> None:
        if len(rows.offsets):
            self.good_rows += 1 + int(np.count_nonzero(np.diff(rows.offsets)))
        self.triples += len(rows.encoded)
        self.malformed += len(rows.malformed)
        self.backwards += len(rows.backwards)
        room = EXAMPLES_MAX - len(self.examples)
        self.examples += [*rows.malformed, *rows.backwards][: max(0, room)]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> PushStats:
        return PushStats(**{**value, "examples": [SetAside(**one) for one in value["examples"]]})


def push_item(
    item: WorkItem, link: IngestLink | DirectLink, on_bad: Callable[[BadRows], None] | None = None
) -> PushStats:
    """Send an item's tuples, wait until they are acknowledged, then declare its time complete.

    on_bad is told all rows that are set aside, in parts, as soon as they are read; what it raises ends the work.

    Raises: DataError (a source that cannot be read any more); NodeUnavailable; whatever error a node answers."""
    began, bytes_before = time.perf_counter(), link.sent_bytes
    setup = item.setup
    partition = setup.source.partition
    row_count = sum(chunk.end_offset - chunk.first_offset for chunk in item.chunks)
    stats = PushStats(setup.stream, partition, item.finish, item.end_offset, item.complete_ms, row_count)
    stats.carried_count = item.carried_count
    position = item.first_offset
    first_good: int | None = None
    floor_ms = NO_TIME
    for chunk in item.chunks:
        if item.lateness_ms is not None:
            chunk = replace(chunk, floor_ms=max(chunk.floor_ms, floor_ms))
        rows = setup.source.read(chunk, setup.stream.encode(), setup.hash_bits)
        stats.note(rows)
        floor_ms = rows.newest_ms
        is_moved = floor_ms > chunk.floor_ms  # else it may be the time of no row, but what makes all late before it
        own_ms = floor_ms if is_moved else int(rows.encoded.timestamps.max(initial=NO_TIME))
        stats.newest_ms = max(stats.newest_ms, own_ms)
        if first_good is None and len(rows.offsets):
            first_good = int(rows.offsets[0])
        if on_bad is not None:
            bad = [*rows.malformed, *rows.backwards]
            for part in bad_parts(setup.stream, partition, chunk.first_offset, bad, first_good):
                on_bad(part)
        stats.carried_count += carried_in(rows, setup.batch_ms)
        for piece in pieces_of(setup, rows, position, chunk.end_offset, item.lateness_ms or None):
            link.send(piece)
            stats.pieces += 1
            stats.timing_triples += int(np.count_nonzero(piece.timing))
            position = piece.end_offset
    if item.lateness_ms is not None and stats.newest_ms > NO_TIME:
        stats.complete_ms = max(item.complete_ms, stats.newest_ms - item.lateness_ms - 1)
    if stats.complete_ms > NO_TIME:  # else no row has had a time yet, and the stream has not begun
        link.close_batches(
            setup.stream, partition, setup.epoch, item.end_offset, stats.complete_ms, stats.carried_count
        )
        position = item.end_offset
    stats.sent_offset = position
    if item.finish and setup.is_last:
        link.finish(setup.stream, partition, setup.epoch)
    stats.sent_bytes = link.sent_bytes - bytes_before
    stats.seconds = time.perf_counter() - began
    return stats


def pieces_of(
    setup: PartitionSetup, rows: Rows, first_offset: int, end_offset: int, lateness_ms: int | None = None
) -> Iterator[Piece]:
    """Cut read rows into stream batches: number k holds the timestamps in ((k-1) * batch_ms, k * batch_ms], unless the
    rows have the numbers of the stream batches that hold them.

    The pieces tile [first_offset, end_offset), rows that were set aside included; no tuple at all makes no piece.
    lateness_ms: how far they may lie behind the latest one, None: they are in order. Rows whose times fall make a piece
    of an earlier stream batch behind one of a later one. None crosses one of setup.cuts: a piece there may be empty."""
    encoded, count = rows.encoded, len(rows.encoded)
    if count == 0:
        return
    numbers = -(-encoded.timestamps // setup.batch_ms) if rows.numbers is None else rows.numbers
    cuts = [cut for cut in setup.cuts if first_offset < cut < end_offset]
    turns, cut_at = np.flatnonzero(np.diff(numbers)) + 1, np.searchsorted(rows.offsets, cuts)
    if cuts:
        turns = np.setdiff1d(turns, cut_at)
    stops = [*zip(turns.tolist(), rows.offsets[turns].tolist(), strict=True)]
    stops = sorted([*stops, *zip(cut_at.tolist(), cuts, strict=True)])
    stops = [(0, first_offset), *stops, (count, end_offset)]
    bounds = [stop for stop, _ in stops]
    timing = timing_mask(encoded, setup.timing)
    order = _order_in_pieces(encoded.timestamps, bounds)
    cutter = TermCutter(encoded) if len(bounds) > 2 or order is not None else None
    partition = setup.source.partition
    for (start, first), (stop, end) in pairwise(stops):
        if first == end:
            continue
        places = np.arange(start, stop, dtype=np.int64) if order is None else order[start:stop]
        part = encoded if cutter is None else cutter.cut(places)
        yield Piece(
            stream=setup.stream,
            partition=partition,
            epoch=setup.epoch,
            first_offset=first,
            end_offset=end,
            piece=0,
            batch_number=int(numbers[min(start, count - 1)]),
            encoded=part,
            timing=timing[places],
            lateness_ms=lateness_ms,
        )


def carried_in(rows: Rows, batch_ms: int) -> int:
    """Return how many tuples of rows are carried by a later stream batch than their own."""
    if rows.numbers is None:
        return 0
    return int(np.count_nonzero(rows.encoded.timestamps <= (rows.numbers - 1) * batch_ms))


def _order_in_pieces(times: Int64Array, bounds: Sequence[int]) -> Int64Array | None:
    """Return the order of the tuples in which the times of each piece do not fall; None: they are in it."""
    if not np.any(times[1:] < times[:-1]):
        return None
    pieces = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return np.lexsort((times, pieces))
