"""HeldDistinct: the distinct rows of a projection, kept from firing to firing.

How often each is there is counted, so that only rows that came and went are looked at. A row that came and one that
went cost more than a row that is compared anew: so nothing is kept while a large part of the rows moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.query.counted_rows import CountedRows
from wukongs.store.dtypes import Int64Array

STAY_MIN = 20
"""Distinct rows are kept once so many rows are there for each that came or went, while there are half as many."""


class HeldDistinct:
    """places: the columns that are projected."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = tuple(places)
        self._rows: CountedRows | None = None
        self._number = 0
        """The move that it has taken over."""
        self.came: Int64Array | None = None
        """The rows that are there since the last move, int64[n, n_places]; None if all may be."""
        self.went: Int64Array | None = None
        """Those that are there no more."""

    @property
    def size_bytes(self) -> int:
        return 0 if self._rows is None else self._rows.size_bytes

    def move(self, came: Int64Array, went: Int64Array, held: Int64Array, number: int) -> bool:
        """Take over the rows that came and went; tell whether the distinct ones are kept. held: all rows that are
        there; number: of this move. Raises QueryTimeout, BudgetExceeded."""
        if number == self._number:
            return self._rows is not None
        rows, before, self._rows, self.came, self.went = self._rows, self._number, None, None, None
        self._number = number
        goes_on = rows is not None and before == number - 1
        if STAY_MIN * (len(came) + len(went)) > (2 if goes_on else 1) * len(held):
            return False
        if rows is None or not goes_on:
            rows = CountedRows(len(self.places))
            rows.move(held[:, self.places], np.ones(len(held), np.int64))
        else:
            if rows.is_roomy(len(came)):
                rows.compact()
            weights = np.ones(len(came) + len(went), np.int64)
            weights[len(came) :] = -1
            moved = rows.move(np.concatenate((came[:, self.places], went[:, self.places])), weights)
            self.came = rows.keys[moved.slots[(moved.before == 0) & (moved.after > 0)]]
            self.went = rows.keys[moved.slots[(moved.before > 0) & (moved.after == 0)]]
        self._rows = rows
        return True

    def columns(self) -> tuple[Int64Array, ...]:
        """Return the distinct rows. They are kept."""
        assert self._rows is not None, self.places
        return tuple(np.ascontiguousarray(self._rows.keys[self._rows.slots()].T))
