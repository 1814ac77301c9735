"""DistinctRows: how often each row of a collection is there, so that DISTINCT costs the rows of a change alone."""

from __future__ import annotations

import numpy as np

from wukongs.query.counted_rows import CountedRows
from wukongs.store.dtypes import Int64Array

STAY_MIN = 20
"""Rows are counted once so many are there for each that was inserted or deleted, while there are half as many: a row
that is counted costs more than one that is compared with all others."""


def is_worth_counting(changed: int, rows: int, *, are_counted: bool) -> bool:
    """Tell whether to count rows. changed: those of the change; rows: all; are_counted: they were, before it."""
    return STAY_MIN * changed <= (2 if are_counted else 1) * rows


class DistinctRows:
    """width: the columns of the rows. After an error it is of no use any more."""

    def __init__(self, width: int) -> None:
        self._rows = CountedRows(width)

    @property
    def size_bytes(self) -> int:
        return self._rows.size_bytes

    def move(self, rows: Int64Array, weights: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Add a Z-set; return the distinct rows that are there since then, and those that are not any more.

        rows : int64[n, width]
        weights : int64[n], those above 0 first

        Raises QueryTimeout, BudgetExceeded."""
        if self._rows.is_roomy(int(np.count_nonzero(weights > 0))):
            self._rows.compact()
        moved = self._rows.move(rows, weights)
        is_inserted, is_deleted = (moved.before == 0) & (moved.after > 0), (moved.before > 0) & (moved.after == 0)
        return self._rows.keys[moved.slots[is_inserted]], self._rows.keys[moved.slots[is_deleted]]

    def columns(self) -> tuple[Int64Array, ...]:
        """Return the distinct rows, by columns."""
        return tuple(np.ascontiguousarray(self._rows.keys[self._rows.slots()].T))
