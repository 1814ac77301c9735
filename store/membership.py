"""Membership: which stream batches have brought the tuples of one predicate of a stream last.

A window holds a tuple as long as it reaches back to the last stream batch with it, whatever blocks its slices are in.
So one look-up tells when a match ends, and windows of all sizes share the table (docs/decisions/0043-deltas.md).

Invariants:

* all tuples of the stream batches since < k <= to are there, with the last of these that brought them: in the table,
  or in slices that wait;
* of a tuple that has come behind the epoch, the last stream batch up to the epoch with it is there too;
* slices that wait lie behind the epoch. Large ones wait until the firing is over: few of their tuples are asked for;
* each tuple that has come again after it was noted has its bit in `again` for as long as the widest window reaches, or
  stands in a slice that waits. So a tuple without it has left a window for good when its stream batch has.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.batch import Batch
from wukongs.store.dtypes import WINDOW_GRAPH, Int64Array
from wukongs.store.layout import (
    AGAIN_WORDS,
    ENTRY_NEWEST,
    ENTRY_WIDTH,
    MEMBERSHIP_AGAIN,
    MEMBERSHIP_COUNT,
    MEMBERSHIP_ENTRIES,
    MEMBERSHIP_EPOCH,
    MEMBERSHIP_WAITING,
    MEMBERSHIP_WAITING_COUNT,
    MEMBERSHIP_WIDTH,
    NEVER,
    WAITING_WIDTH,
)
from wukongs.store.lookup_kernels import directory_row
from wukongs.store.membership_kernels import (
    arrived_in,
    copy_entries,
    count_tuples,
    drop_entries,
    expired_in,
    note_slice,
)
from wukongs.store.slice_ring import SliceRing

ENTRIES_MIN = 1 << 10
ENTRIES_MAX = 1 << 23
"""A table with more entries (256 MiB) is not kept: whoever needs it does without."""
WAITING_TUPLES_MIN = 2000
"""Fewer tuples are noted at once: that is faster than looking them up in their slices."""
WAITING_MAX = 4
"""So many slices wait at most."""
CACHE_LINE_CELLS = 8
_NOTHING: Int64Array = np.empty(0, np.int64)


class Membership:
    """The tuples of one predicate of a stream. table : int64[2 ** n, ENTRY_WIDTH]; it is made anew as it grows.
    head : int64[MEMBERSHIP_WIDTH], for kernels; address: its own, for good."""

    def __init__(self, predicate: int) -> None:
        self.predicate = predicate
        self.users = 0
        self.head: Int64Array = np.zeros(MEMBERSHIP_WIDTH, np.int64)
        self.address: int = self.head.ctypes.data
        self._take(_free(ENTRIES_MIN))
        self.since = 0
        self.epoch: int | None = None
        """The stream batch at which it stood before this time. None: nobody has moved it on yet."""
        self.to: int | None = None
        self._count = 0
        self.is_too_large = False
        self._reach = 0
        """The widest window that was asked for, in stream batches."""
        self._again: Int64Array = np.zeros((2, AGAIN_WORDS), np.int64)
        self._again_since = 0
        """The stream batch from which on the bits in the first row of `again` are."""
        self._waiting: list[tuple[int, Batch, int]] = []
        """Slices that wait: their stream batches, and how many tuples of the predicate they have."""
        self._waiting_rows: Int64Array = np.zeros((WAITING_MAX, WAITING_WIDTH), np.int64)
        self._newest: tuple[int, Int64Array] = (0, _NOTHING)
        """The slice that was noted last, with the stream batch up to the epoch that had each of its tuples last."""
        self.head[MEMBERSHIP_AGAIN] = self._again.ctypes.data
        self.head[MEMBERSHIP_WAITING] = self._waiting_rows.ctypes.data

    def stand(self, ring: SliceRing, after: int, to: int) -> bool:
        """Know the stream batches after < k <= to of a stream; return whether it does. It goes on from where it stood,
        or begins anew; it never goes back, since others are ahead. A window with carried tuples it does not know."""
        if ring.holds_carried(after, to):
            return False
        self._reach = max(self._reach, to - after)
        if self.is_too_large or (self.to is not None and to < self.to):
            return False
        if self.to is not None and self.since <= after:
            if to == self.to:
                return True
            self._note()
            first, self.epoch = self.to, self.to
        else:
            self._take(_free(ENTRIES_MIN))
            self._count, self._waiting = 0, []
            self.since, self.epoch, first = after, None, after
        self.to = to
        for number in ring.numbers(first, to):
            batch = ring.slice(number)
            self._waiting.append((number, batch, int(count_tuples(batch.descriptor, self.predicate))))
        count = sum(count for _, _, count in self._waiting)
        if self.epoch is None or len(self._waiting) > WAITING_MAX or count < WAITING_TUPLES_MIN:
            self._note()
        self._write_head()
        return not self.is_too_large

    def note(self) -> None:
        """Note the slices that wait."""
        if self._waiting:
            self._note()
            self._write_head()

    def _note(self) -> None:
        assert self.to is not None, self.predicate
        epoch = self.to if self.epoch is None else self.epoch
        if self.to - self._again_since > 2 * self._reach:
            self._again[1], self._again[0], self._again_since = self._again[0], 0, self.to
        for number, batch, count in self._waiting:
            if not self._make_room(count, epoch - self._reach):
                self.is_too_large = True
                self._take(_free(ENTRIES_MIN))
                break
            new, befores = note_slice(self.table, self._again[0], batch.descriptor, self.predicate, number, epoch)
            self._count += int(new)
            self._newest = number, befores
        self._waiting = []

    def _write_head(self) -> None:
        assert self.to is not None, self.predicate
        self.head[MEMBERSHIP_EPOCH] = self.to if self.epoch is None else self.epoch
        count = 0
        for number, batch, _ in self._waiting:
            row = directory_row(batch.descriptor, self.predicate, WINDOW_GRAPH)
            if row >= 0:
                self._waiting_rows[count] = batch.descriptor.ctypes.data, row, number
                count += 1
        self.head[MEMBERSHIP_WAITING_COUNT] = count

    def _take(self, table: Int64Array) -> None:
        self.table = table
        self.head[MEMBERSHIP_ENTRIES], self.head[MEMBERSHIP_COUNT] = table.ctypes.data, len(table)

    def _make_room(self, count: int, after: int) -> bool:
        """Have room for so many more, at most half of the entries taken; forget those that no window has reached at the
        epoch. Return whether there is room."""
        if 2 * (self._count + count) <= len(self.table):
            return True
        self.since = max(self.since, after)
        kept = int((self.table[:, ENTRY_NEWEST] > after).sum())
        if 3 * (kept + count) <= len(self.table) <= 12 * (kept + count):
            self._count = int(drop_entries(self.table, after))
            return True
        room = max(ENTRIES_MIN, 1 << (4 * (kept + count) - 1).bit_length())
        if room > ENTRIES_MAX:
            return False
        target = _free(room)
        self._count = copy_entries(self.table, target, after)
        self._take(target)
        return True

    # --- the change of a window ---------------------------------------------------------------------------------------

    def arrived(self, ring: SliceRing, after: int, to: int, window_after: int) -> list[Int64Array]:
        """Return the tuples that have arrived in a window since the epoch, a part for each slice. No slice waits.

        after, to: the slices after < k <= to have arrived; window_after: at the epoch the window began behind it.

        Returns subjects and objects, int64[n, 2] each."""
        numbers, found = ring.numbers(after, to), list[Int64Array]()
        for number in numbers:
            is_newest = number == numbers[-1] == self._newest[0]
            befores = self._newest[1] if is_newest else _NOTHING
            found.append(
                arrived_in(self.table, ring.slice(number).descriptor, self.predicate, number, window_after, befores)
            )
        return found

    def expired(self, ring: SliceRing, after: int, to: int) -> list[Int64Array]:
        """Return the tuples of the slices after < k <= to that are in no later slice, as `arrived` does."""
        return [
            expired_in(self.table, self._again, ring.slice(number).descriptor, self.predicate, number)
            for number in ring.numbers(after, to)
        ]


def _free(count: int) -> Int64Array:
    """Return free entries, none of which lies in two cache lines."""
    cells = np.empty(count * ENTRY_WIDTH + CACHE_LINE_CELLS, np.int64)
    first = -(cells.ctypes.data // 8) % CACHE_LINE_CELLS
    table: Int64Array = cells[first : first + count * ENTRY_WIDTH].reshape(count, ENTRY_WIDTH)
    table[:, ENTRY_NEWEST] = NEVER
    return table
