"""SliceChanges: the rows of one pattern over one window that were inserted and deleted, by the window's slices.

A tuple comes into a window with the first slice that has it, and goes with the last one. Membership knows the last one,
so nothing is kept: the rows of slices that come are inserted unless the window had them at the firing before, and those
of slices that go are deleted unless they have come again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.errors import BudgetExceeded
from wukongs.query.limits import Limits
from wukongs.query.mechanisms import Mechanism
from wukongs.query.plans.compiled import Columns, CompiledPatterns
from wukongs.query.plans.deltas import DeltaClause
from wukongs.query.plans.window_changes import Derive, Moves, WindowChanges
from wukongs.store.dtypes import Int64Array
from wukongs.store.membership import Membership
from wukongs.store.slice_ring import SliceRing

Extent = Callable[[int], tuple[int, int]]
"""Returns the stream batches after < k <= to of the window at a time (ms)."""


class SliceChanges(WindowChanges):
    """The changes of one pattern.

    table: what knows the tuples of the pattern's predicate; ring: the slices of its stream; extent: of the window;
    batch_ms: the length of a stream batch."""

    mechanism = Mechanism.SLICES

    def __init__(
        self,
        whole: CompiledPatterns,
        table: Membership,
        ring: SliceRing,
        extent: Extent,
        batch_ms: int,
        step_ms: int,
    ) -> None:
        super().__init__(whole, [(table, batch_ms)], step_ms)
        self._table, self._ring, self._extent = table, ring, extent
        self._limits: Callable[[], Limits] = Limits
        self._moves: Moves | None = None
        """Those of the last firing, if they are all rows."""

    @staticmethod
    def is_for(found: DeltaClause, step_ms: int) -> bool:
        """Return whether there is one pattern of two variables, over one window that reaches back over two steps.
        Filters are not looked at."""
        if len(found.members) != 1:
            return False
        (member,) = found.members
        ends = member.pattern.subject, member.pattern.object
        is_open = all(isinstance(end, Variable) for end in ends) and ends[0] != ends[1]
        return is_open and member.is_sure and member.window is not None and member.window.range_ms >= 2 * step_ms

    @property
    def kept_count(self) -> int:
        return 0

    @property
    def kept_bytes(self) -> int:
        return 0 if self._moves is None else self._moves.inserted.nbytes

    def forget(self) -> None:
        super().forget()
        self._moves = None

    def columns(self, places: Sequence[int]) -> Columns:
        rows = self.all_rows().inserted
        return tuple([np.ascontiguousarray(rows[:, place]) for place in places])

    def all_rows(self) -> Moves:
        """Return the rows as inserted ones. Raises BudgetExceeded if kernels cannot evaluate the pattern."""
        found = self._begin(self._limits, None) if self._moves is None else self._moves
        if found is None:
            raise BudgetExceeded("kernels cannot evaluate the pattern: the executor does it")
        return found

    def _begin(self, limits: Callable[[], Limits], derive: Derive | None) -> Moves | None:
        assert derive is None, self.variables
        self._limits = limits
        found = self._whole.bindings(self.variables, limits)
        if found is None:
            return None
        rows = np.stack(found, axis=1) if len(found[0]) else np.empty((0, self._width), np.int64)
        self.count = len(rows)
        self._moves = Moves(rows, rows[:0], is_anew=True, number=self._move_count)
        return self._moves

    def _go_on(self, limits: Callable[[], Limits], before_ms: int, derive: Derive | None) -> Moves | None:
        assert derive is None, self.variables
        self._limits, self._moves = limits, None
        (before_after, before_to), (after, to) = self._extent(before_ms), self._extent(self._at_ms)
        if self._ring.dropped_to is not None and self._ring.dropped_to > before_after:
            return self._begin(limits, None)  # nobody knows what has gone with them
        self._table.note()
        if self._table.is_too_large:
            return None
        inserted = _put_together(self._table.arrived(self._ring, before_to, to, before_after))
        deleted = _put_together(self._table.expired(self._ring, before_after, after))
        self.count += len(inserted) - len(deleted)
        return Moves(inserted, deleted, is_anew=False, number=self._move_count)


def _put_together(parts: Sequence[Int64Array]) -> Int64Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0, 2), np.int64)
