"""CountedRows: rows of ids that come and go, and how often each distinct one is there.

Groups that are kept from firing to firing, the terms that each of them has, and DISTINCT are such bags. A distinct row
has a slot as long as it is there, by which others keep what belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wukongs.query import counted_rows_kernels as kernels
from wukongs.query.limits import current
from wukongs.query.rows import pieces
from wukongs.store.dtypes import Int64Array

SLOTS_MIN = 16
ROOMY = 8
"""So many times as many slots as are needed are too many."""
_CELLS = 5
"""The cells that a slot takes beside its row: a count, a move, a place among the free ones, two of the index."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The effect of a move. of_rows : int64[n_rows], the slot of each row; slots : int64[n], each once; before, after :
    int64[n], how often their rows were and are there. Slots whose rows have gone keep them until the next move."""

    of_rows: Int64Array
    slots: Int64Array
    before: Int64Array
    after: Int64Array


class CountedRows:
    """keys : int64[n_slots, n_columns], counts : int64[n_slots], 0 for a free slot."""

    def __init__(self, column_count: int) -> None:
        self.keys: Int64Array = np.empty((0, column_count), np.int64)
        self.counts: Int64Array = np.empty(0, np.int64)
        self._moves: Int64Array = np.empty(0, np.int64)
        self._free: Int64Array = np.empty(0, np.int64)
        self._index: Int64Array = np.empty(0, np.int64)
        self._state: Int64Array = np.zeros(kernels.STATE_WIDTH, np.int64)

    @property
    def count(self) -> int:
        """Distinct rows."""
        return int(self._state[kernels.USED] - self._state[kernels.FREE])

    @property
    def room(self) -> int:
        """Slots that there are."""
        return len(self.counts)

    @property
    def size_bytes(self) -> int:
        return int(8 * len(self.counts) * (self.keys.shape[1] + _CELLS))

    def slots(self) -> Int64Array:
        """Return the slots of all rows that are there."""
        return np.flatnonzero(self.counts[: self._state[kernels.USED]])

    def move(self, rows: Int64Array, weights: Int64Array) -> Touched:
        """Have rows, int64[n, n_columns], so much more often, less often where a weight is negative: what comes stands
        before what goes. Raises QueryTimeout, BudgetExceeded."""
        limits, length = current(), len(rows)
        if length and not rows.shape[1] and self.count and (moved := self._moved_alone(weights)) is not None:
            return moved
        come = int(np.count_nonzero(weights > 0))
        self._make_room(come if rows.shape[1] else min(come, 1))
        rows = np.ascontiguousarray(rows)
        limits.hold(24 * length)
        slots, touched, before = (np.empty(length, np.int64) for _ in range(3))
        state = self._state
        state[kernels.TOUCHED] = 0
        state[kernels.MOVE] += 1
        table = self.keys, self.counts, self._index, self._free, state
        for start, stop in pieces(length, limits):
            fits = kernels.move_some(rows, weights, start, stop, *table, self._moves, slots, touched, before)
            assert fits, "a row is deleted that is not there"
        kernels.free_gone(touched, *table)
        count = state[kernels.TOUCHED]
        return Touched(slots, touched[:count], before[:count], self.counts[touched[:count]])

    def _moved_alone(self, weights: Int64Array) -> Touched | None:
        """Have the only row without columns so much more often; None if it goes."""
        slots = self.slots()
        before = self.counts[slots]
        after = before + weights.sum()
        if after[0] <= 0:
            return None
        self.counts[slots] = after
        return Touched(np.full(len(weights), slots[0]), slots, before, after)

    def is_roomy(self, more: int) -> bool:
        """Tell whether there is room for far more rows than are there and so many more; `compact` gives it back."""
        return bool(self.room > ROOMY * max(SLOTS_MIN, self.count + more))

    def compact(self) -> Int64Array:
        """Move all rows to the first slots. Return the slots that they had, in order."""
        had = self.slots()
        self.keys, self.counts = self.keys[had], self.counts[had]
        self._moves, self._free = np.zeros(len(had), np.int64), np.empty(len(had), np.int64)
        self._state[:] = 0
        self._state[kernels.USED] = len(had)
        self._fill_index(len(had))
        return had

    def _make_room(self, more: int) -> None:
        """Have slots for so many more rows."""
        wanted = int(self._state[kernels.USED] - self._state[kernels.FREE]) + more
        if wanted > self.room:
            room = max(SLOTS_MIN, 1 << (wanted - 1).bit_length())
            current().expect(8 * (room - self.room) * (self.keys.shape[1] + _CELLS))
            self.keys, self.counts = longer(self.keys, room), longer(self.counts, room)
            self._moves, self._free = longer(self._moves, room), longer(self._free, room)
        if 2 * wanted > len(self._index):
            self._fill_index(wanted)

    def _fill_index(self, count: int) -> None:
        self._index = np.full(1 << (2 * max(SLOTS_MIN, count) - 1).bit_length(), -1, np.int64)
        kernels.fill_index(self.keys, self.counts, self._index, self._state[kernels.USED])


def longer(array: Int64Array, length: int) -> Int64Array:
    """Return an array with zeros behind it."""
    return np.concatenate((array, np.zeros((length - len(array), *array.shape[1:]), np.int64)))
