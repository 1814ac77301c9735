"""WindowChanges: the rows that windows have inserted and deleted since the firing before.

There are two ways to know them: by the matches of that firing, which are kept (Deltas), and for one pattern over one
window by its slices (SliceChanges).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.query.limits import Limits
from wukongs.query.mechanisms import Mechanism
from wukongs.query.plans.compiled import OUT_CELLS, Columns, CompiledPatterns
from wukongs.query.plans.plan_runner import ADVICE
from wukongs.store.dtypes import Int64Array
from wukongs.store.membership import Membership

Derive = Callable[[Int64Array], Int64Array]
"""Makes of matches, int64[n, variables], the rows to be held: some of them, with more columns behind."""


@dataclass(frozen=True, slots=True)
class Moves:
    """The rows that were inserted and deleted since the firing before.

    inserted, deleted : int64[n, width]
    is_anew: all rows that are held are inserted, and no row of before is held
    number: of the move. All that is made of the rows has to take over all moves, one after the other"""

    inserted: Int64Array
    deleted: Int64Array
    is_anew: bool
    number: int

    def __len__(self) -> int:
        return len(self.inserted) + len(self.deleted)

    @property
    def weights(self) -> Int64Array:
        """1 for each inserted row, then -1 for each deleted one. int64[n]"""
        found: Int64Array = np.ones(len(self), np.int64)
        found[len(self.inserted) :] = -1
        return found


class WindowChanges(ABC):
    """Used by the thread that fires. mechanism: that under which firings are counted that have changed the rows of the
    firing before."""

    mechanism: Mechanism

    def __init__(
        self, whole: CompiledPatterns, tables: Sequence[tuple[Membership, int]], step_ms: int, derived: int = 0
    ) -> None:
        """whole: the patterns, evaluated anew; tables: all that know tuples of windows, with the length of a stream
        batch of each (ms); step_ms: how often the query fires; derived: how many columns the rows have beside those of
        the patterns' variables."""
        self._whole, self._tables, self._step_ms = whole, tables, step_ms
        patterns = whole.wanted.bgp.patterns
        variables = tuple(dict.fromkeys(one for pattern in patterns for one in pattern.variables()))
        self.variables = variables
        """The variables of the first columns of the rows."""
        self._width = len(variables) + derived
        self.count = 0
        """Rows at the last firing."""
        self.ran = 0
        """Firings that have only looked for what has changed."""
        self._held_ms: int | None = None
        """The firing of which the rows are known, None: of none."""
        self._at_ms = 0
        self._goes_on = False
        self._is_known = False
        self._move_count = 0

    @property
    def is_ready(self) -> bool:
        """Whether `move` may be called: it is about to fire, and does not have the rows of that firing yet."""
        return self._is_known

    def stand(self, at_ms: int, *, is_known: bool, goes_on: bool, comes: bool) -> None:
        """Be about to fire. is_known: the tables know all tuples of the windows; goes_on: all that has changed in what
        is read of the stored graph since the firing before is what has come, if it `comes`."""
        self._at_ms, self._is_known = at_ms, is_known
        self._goes_on = goes_on and self._held_ms == at_ms - self._step_ms

    def skip(self) -> None:
        """Take no part in the firing that comes: `move` may not be called until the next `stand`."""
        self._is_known = False

    def forget(self) -> None:
        """Know no rows, and take no part in this firing."""
        self.skip()
        self._held_ms, self.count = None, 0

    def move(self, limits: Callable[[], Limits], derive: Derive | None = None) -> Moves | None:
        """Have the rows of the next firing, once; return those that were inserted and deleted. None if they have to be
        found in another way. Raises as CompiledPatterns.bindings, and what derive raises."""
        goes_on, self._held_ms = self._goes_on and self._is_known, None
        self._move_count += 1
        is_known = self._is_known and not any(table.is_too_large for table, _ in self._tables)  # another reader's stand
        if not is_known:
            self.forget()
            return None
        self._is_known = False
        before_ms = self._at_ms - self._step_ms
        for table, batch_ms in self._tables:
            goes_on = goes_on and table.epoch == before_ms // batch_ms
        self.ran += goes_on
        moves = self._go_on(limits, before_ms, derive) if goes_on else self._begin(limits, derive)
        if moves is None:
            self.forget()
            return None
        self._whole.is_current()  # so that it is known whether it is worth it
        if self.count * self._width > OUT_CELLS:
            bounds = limits()
            bounds.check_rows(self.count, ADVICE, "a basic graph pattern")
            bounds.hold(16 * self.kept_count * self._width)
        self._held_ms = self._at_ms
        return moves

    @property
    @abstractmethod
    def kept_count(self) -> int:
        """The rows that are held."""

    @property
    @abstractmethod
    def kept_bytes(self) -> int:
        """The bytes that they take."""

    @abstractmethod
    def _begin(self, limits: Callable[[], Limits], derive: Derive | None) -> Moves | None:
        """Find all rows anew; None if kernels could not."""

    @abstractmethod
    def _go_on(self, limits: Callable[[], Limits], before_ms: int, derive: Derive | None) -> Moves | None:
        """Find what has changed since the firing before; None if kernels could not."""

    @abstractmethod
    def columns(self, places: Sequence[int]) -> Columns:
        """Return some columns of the rows."""

    @abstractmethod
    def all_rows(self) -> Moves:
        """Return the rows as inserted ones."""
