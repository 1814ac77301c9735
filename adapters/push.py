"""The work of a worker on a WorkItem: read, encode, mark timing, cut into stream batches, send, declare complete.

The same item pushed twice sends the same pieces under the same keys (stream, partition, offsets, piece), so a retried
task or a repeated epoch is dropped by the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from wukongs.adapters.bad_records import BadRows, bad_parts
from wukongs.adapters.planner import PartitionSetup, WorkItem
from wukongs.adapters.source import Rows, SetAside
from wukongs.live.pieces import Piece, timing_mask
from wukongs.store.encoded import TermCutter
from wukongs.wire.link import IngestLink

EXAMPLES_MAX = 20
"""Rows that were set aside and are kept as examples, per item and in a report; all are counted."""


@dataclass(slots=True)
class PushStats:
    """Counts of one pushed item, or of a whole pipeline; seconds of work, sent_bytes on the wire. good_rows: rows that
    gave tuples."""

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


def push_item(item: WorkItem, link: IngestLink, on_bad: Callable[[BadRows], None] | None = None) -> PushStats:
    """Send an item's tuples, wait until they are acknowledged, then declare its time complete.

    on_bad is told all rows that are set aside, in parts, as soon as they are read; what it raises ends the work.

    Raises: DataError (a source that cannot be read any more); NodeUnavailable; whatever error a node answers."""
    began, bytes_before = time.perf_counter(), link.sent_bytes
    setup = item.setup
    partition = setup.source.partition
    row_count = item.end_offset - item.first_offset
    stats = PushStats(setup.stream, partition, item.finish, item.end_offset, item.complete_ms, row_count)
    position = item.first_offset
    first_good: int | None = None
    for chunk in item.chunks:
        rows = setup.source.read(chunk, setup.stream.encode(), setup.hash_bits)
        stats.note(rows)
        if first_good is None and len(rows.offsets):
            first_good = int(rows.offsets[0])
        if on_bad is not None:
            bad = [*rows.malformed, *rows.backwards]
            for part in bad_parts(setup.stream, partition, chunk.first_offset, bad, first_good):
                on_bad(part)
        for piece in pieces_of(setup, rows, position, chunk.end_offset):
            link.send(piece)
            stats.pieces += 1
            stats.timing_triples += int(np.count_nonzero(piece.timing))
            position = piece.end_offset
    link.close_batches(setup.stream, partition, setup.epoch, item.end_offset, item.complete_ms)
    if item.finish:
        link.finish(setup.stream, partition, setup.epoch)
    stats.sent_bytes = link.sent_bytes - bytes_before
    stats.seconds = time.perf_counter() - began
    return stats


def pieces_of(setup: PartitionSetup, rows: Rows, first_offset: int, end_offset: int) -> Iterator[Piece]:
    """Cut read rows into stream batches: number k holds the timestamps in ((k-1) * batch_ms, k * batch_ms].

    The pieces tile [first_offset, end_offset), rows that were set aside included; no tuple at all makes no piece."""
    encoded, count = rows.encoded, len(rows.encoded)
    if count == 0:
        return
    numbers = -(-encoded.timestamps // setup.batch_ms)
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), count]
    timing = timing_mask(encoded, setup.timing)
    cutter = TermCutter(encoded) if len(bounds) > 2 else None
    partition = setup.source.partition
    for start, stop in pairwise(bounds):
        end = end_offset if stop == count else int(rows.offsets[stop])
        part = encoded if cutter is None else cutter.cut(np.arange(start, stop, dtype=np.int64))
        yield Piece(
            stream=setup.stream,
            partition=partition,
            epoch=setup.epoch,
            first_offset=first_offset,
            end_offset=end,
            piece=0,
            batch_number=int(numbers[start]),
            encoded=part,
            timing=timing[start:stop],
        )
        first_offset = end
