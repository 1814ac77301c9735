"""SliceRing: the recent stream batches of one stream, and the stream index over them.

Each stream batch is a slice: its own tuples, timing and timeless, as a small batch of their own with the newest time of
each. A window of n stream batches is read through O(log n) blocks of slices (store/block_index.py), however large the
stored graph is.

Invariants:

* stream batches come in order and are whole when they come: adding one closes it and all before;
* stream batches up to `dropped_to` are gone, whole, and so is every block that holds one of them;
* blocks are no longer than the widest indexed window needs;
* a slice is built when it is read first, or in idle time: until then its tuples wait in columns. Idle time builds the
  next one ahead, before it comes: it serves if no more tuples have come by then;
* tuples that a stream batch carries (store/carried_tuples.py) are in no slice and no block: each window adds those that
  it holds as one more batch;
* the terms that came with a stream batch are held as long as its slice, and as the arrivals of it or of an earlier one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from itertools import islice

import numpy as np

from wukongs.store.arrival_sequence import ArrivalSequence
from wukongs.store.batch import Batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.block_index import BlockIndex, Timed, build_slice, bytes_at_most, copy_count
from wukongs.store.carried_tuples import CarriedTuples
from wukongs.store.dtypes import BoolArray, Int64Array

WINDOWS_REMEMBERED = 64


class SliceRing:
    """The slices of one stream. The owner serialises the calls (one lock); what `window` returns is immutable."""

    def __init__(self) -> None:
        self.closed_to: int | None = None
        """The last closed stream batch: no tuple at or before it will come."""
        self.dropped_to: int | None = None
        self.lost_to: int | None = None
        """The last stream batch with tuples that was dropped."""
        self.arrivals = ArrivalSequence()
        """The arrivals that counted windows read: add to it before `add`, and drop by `drop_arrivals`."""
        self._blocks = BlockIndex()
        self._carried: CarriedTuples | None = None
        """None: no stream batch has carried a tuple so far."""
        self._transient: OrderedDict[int, tuple[Int64Array, int]] = OrderedDict()
        """Stream batch -> the terms that only live as long as it does, and the bytes of their texts."""
        self._transient_bytes = 0
        self._windows: OrderedDict[tuple[int, int], BatchSet] = OrderedDict()
        self._ahead: tuple[int, int, Batch] | None = None
        """A slice that was built ahead: its stream batch, of how many tuples it was built, and the slice."""

    @property
    def slice_count(self) -> int:
        return len(self._blocks.slice_numbers)

    @property
    def oldest(self) -> int | None:
        """The oldest stream batch with tuples that is held, also if another one has carried them."""
        oldest = self._blocks.slice_numbers[0] if self.slice_count else None
        carried = None if self._carried is None else self._carried.oldest
        return carried if oldest is None else oldest if carried is None else min(oldest, carried)

    @property
    def oldest_held(self) -> int | None:
        """The oldest stream batch that still has anything here: tuples, arrivals, or terms that came with it."""
        firsts = (self.oldest, self.arrivals.oldest, next(iter(self._transient), None))
        return min((number for number in firsts if number is not None), default=None)

    @property
    def size_bytes(self) -> int:
        """Bytes of slices, blocks and arrivals, of slices that wait and merges under way at most, and of the texts of
        transient terms as given."""
        carried_bytes = 0 if self._carried is None else self._carried.size_bytes
        held_bytes = self._blocks.size_bytes + self.arrivals.size_bytes + carried_bytes
        return held_bytes + self._transient_bytes + self._ahead_bytes

    @property
    def _ahead_bytes(self) -> int:
        return 0 if self._ahead is None else self._ahead[2].size_bytes

    @property
    def copy_count(self) -> int:
        """How often a tuple is held when all blocks are built: in its slice, and in blocks of every second level."""
        return copy_count(self._blocks.widest)

    def extent(self, after: int, to: int) -> tuple[int, int] | None:
        """Return the first and the last stream batch after < k <= to with tuples; None if there is none. A carried
        tuple counts in its own stream batch and in the one that carries it: the window changes with both."""
        numbers = self._blocks.slice_numbers
        first, end = bisect_right(numbers, after), bisect_right(numbers, to)
        found = (numbers[first], numbers[end - 1]) if first < end else None
        carried = None if self._carried is None else self._carried.extent(after, to)
        if found is None or carried is None:
            return carried if found is None else found
        return min(found[0], carried[0]), max(found[1], carried[1])

    def numbers(self, after: int, to: int) -> list[int]:
        """Return the stream batches after < k <= to with tuples that are held."""
        numbers = self._blocks.slice_numbers
        return list(islice(numbers, bisect_right(numbers, after), bisect_right(numbers, to)))

    def slice(self, number: int) -> Batch:
        """Return the slice of a stream batch with tuples that is held."""
        return self._blocks.slice(number)

    def next_after(self, number: int) -> int | None:
        """Return the first stream batch after `number` that has or carries tuples and is held; None if there is
        none."""
        numbers = self._blocks.slice_numbers
        place = bisect_right(numbers, number)
        found = numbers[place] if place < len(numbers) else None
        carrying = None if self._carried is None else self._carried.next_after(number)
        return carrying if found is None else found if carrying is None else min(found, carrying)

    def holds_carried(self, after: int, to: int) -> bool:
        """Tell whether the window of the stream batches after < k <= to holds carried tuples: then its slices are not
        all that it holds."""
        return self._carried is not None and self._carried.any_in(after, to)

    def __len__(self) -> int:
        carried_count = 0 if self._carried is None else len(self._carried)
        return carried_count + sum(len(self._blocks.slice(number)) for number in self._blocks.slice_numbers)

    def carry(self, number: int, own: Int64Array, tuples: Timed) -> None:
        """Hold the tuples that stream batch `number` carries: before `add` closes it. own : int64[n], the stream
        batches of their timestamps, before `number`. No tuple is kept whose own stream batch was dropped."""
        if self.dropped_to is not None and (is_lost := own <= self.dropped_to).any():
            self._lose(int(own[is_lost].max()))
            own, tuples = own[~is_lost], _rows(tuples, ~is_lost)
        if len(own):
            self._carried = self._carried or CarriedTuples()
            self._carried.add(number, own, tuples)

    def _lose(self, number: int) -> None:
        self.lost_to = number if self.lost_to is None else max(number, self.lost_to)

    def add(
        self,
        number: int,
        subjects: Int64Array,
        predicates: Int64Array,
        objects: Int64Array,
        times: Int64Array,
        transient_ids: Int64Array,
        transient_bytes: int = 0,
    ) -> None:
        """Make a slice of the tuples of stream batch `number`, which must be later than all before; close up to it.

        subjects, predicates, objects : int64[n]; times : int64[n] in ms; transient_ids : int64[m], the terms that only
        live as long as this slice; transient_bytes: the bytes of their texts. n may be 0 while m is not. Of a stream
        batch that was dropped before it came, no tuple is kept.
        """
        assert self.closed_to is None or number > self.closed_to, (number, self.closed_to)
        if len(transient_ids):
            self._transient[number] = transient_ids, transient_bytes
            self._transient_bytes += transient_bytes
        if len(subjects) and self.dropped_to is not None and number <= self.dropped_to:
            self.lost_to = number  # nobody needed it when it had not come yet
        elif len(subjects):
            columns = _own(subjects), _own(predicates), _own(objects), _own(times)
            is_whole = self.count_ahead(number) == len(subjects)
            self._blocks.put(number, columns, self._ahead[2] if self._ahead is not None and is_whole else None)
        self._ahead = None
        self.close(number)

    @property
    def is_read(self) -> bool:
        """Whether windows read the slices."""
        return self._blocks.widest > 0

    def count_ahead(self, number: int) -> int:
        """Return of how many tuples the slice of a stream batch was built ahead, 0 if it was not."""
        return 0 if self._ahead is None or self._ahead[0] != number else self._ahead[1]

    def build_ahead(self, number: int, tuples: Timed) -> None:
        """Build the slice of a stream batch that has not come yet, of all its tuples so far. They are the first that
        `add` will be given."""
        self._ahead = number, len(tuples[0]), build_slice(tuples)

    def has_room_ahead(self, count: int, size_bytes_max: int) -> bool:
        """Tell whether a slice of so many tuples may be built ahead: what is held stays within a size with it."""
        return self.size_bytes - self._ahead_bytes + bytes_at_most(count) <= size_bytes_max

    def forget_ahead(self) -> None:
        """Give up the slice that was built ahead."""
        self._ahead = None

    def close(self, number: int) -> None:
        """Close all stream batches up to `number`; pay for the merging of blocks, and begin the blocks that are
        complete now."""
        if self.closed_to is None or number > self.closed_to:
            self.closed_to = number
            self._blocks.close(number)

    def index_windows(self, batch_count: int) -> None:
        """Keep blocks for windows of up to this many stream batches, from now on and for the slices kept.

        The longest blocks are at most half as long as the window. Blocks of slices that are kept already are built by
        and by. Longer blocks are dropped.
        """
        if self._blocks.index_windows(batch_count):
            self._windows.clear()

    def build_slices(self) -> None:
        """Build the slices that wait, so that size_bytes does not overestimate them."""
        self._blocks.build_slices()

    def work(self, fuel: int) -> bool:
        """Build a slice that waits, or merge about `fuel` values of blocks before later stream batches pay for it.
        Return whether more is left."""
        return self._blocks.work(fuel)

    def window(self, after: int, to: int) -> BatchSet:
        """Return the batches that hold the kept part of the stream batches after < k <= to.

        Cost: O(log n) look-ups, n = to - after. At most 5 * log2(n) batches if windows of n >= 2 are indexed, and one
        more if the same window without its last stream batch was asked for before.
        """
        if self.dropped_to is not None:
            after = max(after, self.dropped_to)
        found = self._windows.get((after, to))
        if found is None:
            before = self._windows.get((after, to - 1))
            carried = None if self._carried is None else self._carried.window(after, to)
            if before is None or before.goes_on is not None or carried is not None:
                others = () if carried is None else (carried,)
                found = BatchSet.of((*self._blocks.cover(after + 1, to + 1), *others), disjoint=False)
            else:
                last = self._blocks.slice_if_held(to)
                found = before if last is None else before.and_then(last, disjoint=False)
            if self.closed_to is None or to > self.closed_to:
                return found  # more may come
            self._windows[after, to] = found
            if len(self._windows) > WINDOWS_REMEMBERED:
                self._windows.popitem(last=False)
        return found

    def drop(self, to: int) -> Int64Array:
        """Drop the stream batches up to `to`; return the ids of the terms that went with them, repeats kept.

        Cost: that of the dropped slices only.
        """
        if self.dropped_to is not None and to <= self.dropped_to:
            return np.empty(0, np.int64)
        self.dropped_to = to
        lost_to = self._blocks.drop(to)
        self.lost_to = self.lost_to if lost_to is None else lost_to
        if self._carried is not None and (lost_to := self._carried.drop(to)) is not None:
            self._lose(lost_to)
        for key in [key for key in self._windows if key[0] < to]:
            del self._windows[key]
        return self._take_transient()

    def drop_arrivals(self, to: int) -> Int64Array:
        """Drop the stream batches that have no arrival after number `to` from the arrivals. Returns the same as
        `drop`."""
        self.arrivals.drop(to)
        return self._take_transient()

    def evict_arrivals(self, number: int) -> Int64Array:
        """Drop the arrivals up to stream batch `number` for want of room; return as `drop`."""
        self.arrivals.evict(number)
        return self._take_transient()

    def forget_arrivals(self) -> Int64Array:
        """Keep no arrivals any more; return as `drop`."""
        self.arrivals.forget()
        return self._take_transient()

    def _take_transient(self) -> Int64Array:
        """Take out the terms that nothing which is held refers to."""
        gone = [np.empty(0, np.int64)]
        if self.dropped_to is not None:
            kept_from = self.arrivals.oldest
            to = self.dropped_to if kept_from is None else min(self.dropped_to, kept_from - 1)
            while self._transient and next(iter(self._transient)) <= to:
                _, (ids, size_bytes) = self._transient.popitem(last=False)
                self._transient_bytes -= size_bytes
                gone.append(ids)
        return np.concatenate(gone)


def _rows(tuples: Timed, mask: BoolArray) -> Timed:
    return tuples[0][mask], tuples[1][mask], tuples[2][mask], tuples[3][mask]


def _own(column: Int64Array) -> Int64Array:
    """Return a column that keeps no much larger array alive, such as that of a push of many stream batches."""
    base = column.base
    is_most = isinstance(base, np.ndarray) and base.nbytes <= 2 * column.nbytes
    return column if base is None or is_most else column.copy()
