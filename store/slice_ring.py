"""SliceRing: the recent stream batches of one stream, and the stream index over them.

Each stream batch is a slice: its tuples, timing and timeless, as a small batch of their own with the newest time of
each. Slices merge into aligned blocks of 2, 4, 8, ... stream batches, so that a window of n stream batches is read
through O(log n) blocks, however large the stored graph is (the paper's stream index, 4.2).

Invariants:

* block (level, j) stands for the stream batches j * 2**level ... (j + 1) * 2**level - 1, all closed; it is absent when
  they are all empty, and it is its only child itself when the other child is empty;
* stream batches up to `dropped_to` are gone, whole, and so is every block that holds one of them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import takewhile

import numpy as np

from store.batch import Batch, build_batch
from store.batch_set import BatchSet
from store.dtypes import WINDOW_GRAPH, Int64Array
from store.merge import merge_batches

WINDOWS_REMEMBERED = 64


class SliceRing:
    """The slices of one stream. The owner serialises the calls (one lock); what `window` returns is immutable."""

    def __init__(self) -> None:
        self.closed_to: int | None = None
        """The last closed stream batch: no tuple at or before it will come."""
        self.dropped_to: int | None = None
        self.lost_to: int | None = None
        """The last stream batch with tuples that was dropped."""
        self._newest: int | None = None
        self._levels = 0
        self._blocks: dict[tuple[int, int], Batch] = {}
        self._in_order: list[deque[int]] = [deque()]
        """Per level, the numbers j of its blocks, in order."""
        self._unpaired: list[deque[int]] = [deque()]
        """Per level, the blocks whose parent is not built yet, in order."""
        self._transient_ids: dict[int, Int64Array] = {}
        self._windows: OrderedDict[tuple[int, int], BatchSet] = OrderedDict()

    @property
    def slice_count(self) -> int:
        return len(self._in_order[0])

    @property
    def size_bytes(self) -> int:
        """Bytes of slices and blocks; a block that is its only child counts once."""
        return sum({id(batch): batch.size_bytes for batch in self._blocks.values()}.values())

    def __len__(self) -> int:
        return sum(len(self._blocks[0, j]) for j in self._in_order[0])

    def add(
        self,
        number: int,
        subjects: Int64Array,
        predicates: Int64Array,
        objects: Int64Array,
        times: Int64Array,
        transient_ids: Int64Array,
    ) -> None:
        """Make a slice of the tuples of stream batch `number`, which must be later than all before.

        subjects, predicates, objects : int64[n]; times : int64[n] in ms; transient_ids : int64[m], the terms that only
        live as long as this slice.
        """
        assert self.closed_to is None or number > self.closed_to, (number, self.closed_to)
        if len(subjects) == 0:
            return
        graphs = np.full(len(subjects), WINDOW_GRAPH, np.int64)
        self._blocks[0, number] = build_batch(graphs, subjects, predicates, objects, times)
        self._newest = number
        self._in_order[0].append(number)
        self._unpaired[0].append(number)
        if len(transient_ids):
            self._transient_ids[number] = transient_ids

    def close(self, number: int) -> None:
        """Close all stream batches up to `number`, and build the blocks that are complete now."""
        if self.closed_to is None or number > self.closed_to:
            self.closed_to = number
            self._build_blocks()

    def index_windows(self, batch_count: int) -> None:
        """Keep blocks large enough for windows of this many stream batches, from now on and for the slices kept."""
        levels = batch_count.bit_length() - 1
        if levels > self._levels:
            top = self._levels
            self._levels = levels
            self._in_order += [deque() for _ in range(top, levels)]
            self._unpaired[top:] = [deque(self._in_order[top]), *(deque() for _ in range(top, levels))]
            self._build_blocks()
            self._windows.clear()

    def window(self, after: int, to: int) -> BatchSet:
        """Return the batches that hold what is kept of the stream batches after < k <= to.

        Cost: O(log n) look-ups, n = to - after.
        """
        if self.dropped_to is not None:
            after = max(after, self.dropped_to)
        found = self._windows.get((after, to))
        if found is None:
            found = BatchSet.of(tuple(self._cover(after + 1, to + 1)), disjoint=False)
            if self.closed_to is None or to > self.closed_to:
                return found  # more may come
            self._windows[after, to] = found
            if len(self._windows) > WINDOWS_REMEMBERED:
                self._windows.popitem(last=False)
        return found

    def drop(self, to: int) -> Int64Array:
        """Drop the stream batches up to `to`; return the ids of the terms that lived with them, repeats kept.

        Cost: of what is dropped, not of what stays.
        """
        if self.dropped_to is not None and to <= self.dropped_to:
            return np.empty(0, np.int64)
        self.dropped_to = to
        for level, numbers in enumerate(self._in_order):
            while numbers and numbers[0] << level <= to:
                j = numbers.popleft()
                del self._blocks[level, j]
                if level == 0:
                    self.lost_to = j
            unpaired = self._unpaired[level]
            while unpaired and unpaired[0] << level <= to:
                unpaired.popleft()
        for key in [key for key in self._windows if key[0] < to]:
            del self._windows[key]
        gone = []
        while self._transient_ids and (number := next(iter(self._transient_ids))) <= to:
            gone.append(self._transient_ids.pop(number))
        return np.concatenate(gone) if gone else np.empty(0, np.int64)

    def _cover(self, start: int, end: int) -> list[Batch]:
        """List the blocks of the stream batches start..end - 1; of those that are not closed yet, the slices."""
        if self._newest is None:
            return []
        end = min(end, self._newest + 1)
        complete = start if self.closed_to is None else min(end, self.closed_to + 1)
        batches = []
        while start < complete:
            level = 0
            while level < self._levels and start % (2 << level) == 0 and start + (2 << level) <= complete:
                level += 1
            block = self._blocks.get((level, start >> level))
            if block is not None:
                batches.append(block)
            start += 1 << level
        still_open = takewhile(lambda number: number >= start, reversed(self._in_order[0]))
        return batches + [self._blocks[0, number] for number in still_open if number < end][::-1]

    def _build_blocks(self) -> None:
        if self.closed_to is None:
            return
        for level in range(self._levels):
            unpaired = self._unpaired[level]
            while unpaired and ((unpaired[0] >> 1) + 1) << (level + 1) <= self.closed_to + 1:
                parent = unpaired.popleft() >> 1
                if unpaired and unpaired[0] >> 1 == parent:
                    unpaired.popleft()
                self._build_block(level + 1, parent)

    def _build_block(self, level: int, j: int) -> None:
        first = j << level
        if self.dropped_to is not None and first <= self.dropped_to:
            return
        left = self._blocks.get((level - 1, 2 * j))
        right = self._blocks.get((level - 1, 2 * j + 1))
        block = left if right is None else right if left is None else merge_batches(left, right)
        if block is not None:
            self._blocks[level, j] = block
            self._in_order[level].append(j)
            self._unpaired[level].append(j)
