"""SliceShares: a node's part of the recent stream batches of one stream, for nodes that need them whole.

The rows are those whose subjects lie in shards that this node replicates. Each shard is asked of one node, so the
answers of all nodes are the stream batch, each row once.

* Rows stay from the insertion of their stream batch until `drop`; so do the terms that only they need.
* Each shard's number of rows so far stays, and so does the last stream batch with rows that was dropped. A node that
  begins late to need whole slices has to know how many arrivals there were before, and whether a window lacks some.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.wire.assignment import SHARD_COUNT, shards_of

NEVER, FOREVER = -(1 << 62), 1 << 62
_BYTES_PER_ROW = 40
_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ShareRows:
    """Rows of one piece. Columns : int64[n]; places: in the whole piece, whose rows begin at first_offset;
    transient_ids: references to terms."""

    partition: str
    first_offset: int
    subjects: Int64Array
    predicates: Int64Array
    objects: Int64Array
    timestamps: Int64Array
    places: Int64Array
    transient_ids: Int64Array

    def take(self, rows: BoolArray, transient_ids: Int64Array = _NO_IDS) -> ShareRows:
        """Return some of the rows, with these references."""
        subjects, predicates, objects, timestamps, places = (
            column[rows] for column in (self.subjects, self.predicates, self.objects, self.timestamps, self.places)
        )
        return ShareRows(
            self.partition, self.first_offset, subjects, predicates, objects, timestamps, places, transient_ids
        )


class SliceShares:
    """The shares of one stream. The owner serialises the calls."""

    def __init__(self) -> None:
        self.row_count = 0
        self.dropped_to = NEVER
        self._rows: OrderedDict[int, list[ShareRows]] = OrderedDict()
        self._counts = np.zeros(SHARD_COUNT, np.int64)
        """Per shard, the rows that have come so far."""
        self._dropped_last = np.full(SHARD_COUNT, NEVER, np.int64)

    @property
    def size_bytes(self) -> int:
        return self.row_count * _BYTES_PER_ROW

    def add(self, number: int, rows: ShareRows) -> None:
        """Add rows of a stream batch, no earlier than those before."""
        assert number > self.dropped_to, (number, self.dropped_to)
        self._rows.setdefault(number, []).append(rows)
        np.add.at(self._counts, shards_of(rows.subjects), 1)
        self.row_count += len(rows.subjects)

    @property
    def counts(self) -> Int64Array:
        """How many rows have come so far, by the shards of their subjects. int64[1024]"""
        return self._counts

    def share(self, first: int, last: int, shards: BoolArray) -> list[tuple[int, ShareRows]]:
        """Return what is held of stream batches first <= k <= last, with k, of subjects in these shards: bool[1024]."""
        parts = self._parts(first, last)
        held = [(number, part.take(shards[shards_of(part.subjects)])) for number, part in parts]
        return [(number, part) for number, part in held if len(part.subjects)]

    def before(self, first: int, shards: BoolArray) -> tuple[int, int | None]:
        """Return how many rows of these shards came in stream batches before `first`, and the last one with some.

        Those that were dropped count as well, wherever they were: an answer lacks them."""
        later = sum(int(shards[shards_of(part.subjects)].sum()) for _, part in self._parts(first, FOREVER))
        count = int(self._counts[shards].sum()) - later
        for number, parts in reversed(self._rows.items()):
            if number < first and any(shards[shards_of(part.subjects)].any() for part in parts):
                return count, number
        last = int(self._dropped_last[shards].max(initial=NEVER))
        return count, None if last == NEVER else last

    def held(self, shards: BoolArray) -> tuple[list[tuple[int, ShareRows]], Int64Array, Int64Array]:
        """Return the rows of these shards with their stream batches, oldest first; per shard, how many have come so
        far, and the last stream batch with some that was dropped (int64[1024], 0 and NEVER for other shards)."""
        every = ((number, part) for number, parts in self._rows.items() for part in parts)
        rows = [(number, part.take(shards[shards_of(part.subjects)])) for number, part in every]
        counts, dropped = np.where(shards, self._counts, 0), np.where(shards, self._dropped_last, NEVER)
        return [(number, part) for number, part in rows if len(part.subjects)], counts, dropped

    def restore(
        self, rows: Mapping[int, Sequence[ShareRows]], counts: Int64Array, dropped_last: Int64Array, dropped_to: int
    ) -> Int64Array:
        """Take what others held of the shards that are this node's, as `held` gave it; return as drop."""
        assert not self._rows, "restored over rows"
        for number, parts in sorted(rows.items()):
            for part in parts:
                self.add(number, part)
        self._counts, self._dropped_last = counts, dropped_last
        return self.drop(dropped_to)

    def _parts(self, first: int, last: int) -> Iterator[tuple[int, ShareRows]]:
        for number, parts in reversed(self._rows.items()):
            if number < first:
                return
            if number <= last:
                yield from ((number, part) for part in parts)

    def shrink(self, bytes_max: int) -> Int64Array:
        """Drop the oldest stream batches for want of room; return as drop."""
        gone = [_NO_IDS]
        while self.size_bytes > bytes_max:
            gone.append(self.drop(next(iter(self._rows))))
        return np.concatenate(gone)

    def drop(self, to: int) -> Int64Array:
        """Drop the stream batches up to `to`; return the references to terms that they had."""
        if to <= self.dropped_to:
            return _NO_IDS
        self.dropped_to = to
        gone = [_NO_IDS]
        while self._rows and next(iter(self._rows)) <= to:
            number, parts = self._rows.popitem(last=False)
            for part in parts:
                shards = shards_of(part.subjects)
                self._dropped_last[shards] = np.maximum(self._dropped_last[shards], number)
                self.row_count -= len(part.subjects)
                gone.append(part.transient_ids)
        return np.concatenate(gone)
