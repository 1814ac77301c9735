"""CarriedTuples: the tuples of one stream that came after their own stream batch was closed.

A later stream batch carries each of them, so the windows that end at or after it hold the tuple, if they reach back to
its own stream batch (docs/decisions/0114-late-tuples-in-open-windows.md).

Invariants:

* a tuple's own stream batch is before the one that carries it;
* carrying stream batches come in order, each once; its tuples are sorted by their own stream batch;
* a tuple is dropped with its own stream batch, since no window reaches back to it any more.

Cost: 40 bytes a tuple. A window sorts the carried tuples that it holds into one batch, when it is first read.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from wukongs.store.batch import Batch
from wukongs.store.block_index import Timed, build_slice
from wukongs.store.dtypes import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """The tuples that one stream batch carries.

    number : the stream batch that carries them
    own : int64[n], their own stream batches, not decreasing
    columns : subjects, predicates, objects, times in ms, int64[n] each
    """

    number: int
    own: Int64Array
    columns: Timed

    @property
    def size_bytes(self) -> int:
        return self.own.nbytes + sum(column.nbytes for column in self.columns)

    def after(self, number: int) -> Load | None:
        """Return the tuples whose own stream batch is after `number`, as views; None if there are none."""
        first = int(np.searchsorted(self.own, number, "right"))
        if first == 0:
            return self
        if first == len(self.own):
            return None
        subjects, predicates, objects, times = (column[first:] for column in self.columns)
        return Load(self.number, self.own[first:], (subjects, predicates, objects, times))

    def copy(self) -> Load:
        """Return the same tuples in arrays of their own."""
        subjects, predicates, objects, times = (column.copy() for column in self.columns)
        return Load(self.number, self.own.copy(), (subjects, predicates, objects, times))


class CarriedTuples:
    """The carried tuples of one stream that are held. The owner serialises the calls."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.oldest: int | None = None
        """The first own stream batch of a tuple that is held."""
        self._loads: list[Load] = []

    def __len__(self) -> int:
        return sum(len(load.own) for load in self._loads)

    def add(self, number: int, own: Int64Array, columns: Timed) -> None:
        """Hold the tuples that stream batch `number` carries, at least one. The parameters are those of Load, in any
        order of the tuples."""
        order = np.lexsort((columns[3], own))
        subjects, predicates, objects, times = (column[order] for column in columns)
        self._loads.append(Load(number, own[order], (subjects, predicates, objects, times)))
        self._count()

    def drop(self, to: int) -> int | None:
        """Drop the tuples whose own stream batch is at most `to`; return the last of these stream batches, None if no
        tuple was dropped."""
        if self.oldest is None or self.oldest > to:
            return None
        last = self.oldest
        kept = list[Load]()
        for load in self._loads:
            rest = load.after(to)
            if rest is not load:
                count = len(load.own) - (0 if rest is None else len(rest.own))
                last = max(last, int(load.own[count - 1]))
            if rest is not None:
                kept.append(load if rest is load else rest.copy())
        self._loads = kept
        self._count()
        return last

    def _count(self) -> None:
        self.size_bytes = sum(load.size_bytes for load in self._loads)
        self.oldest = min((int(load.own[0]) for load in self._loads), default=None)

    def _held_by(self, after: int, to: int) -> list[Load]:
        """Return the tuples that the window of the stream batches after < k <= to holds."""
        loads = self._loads[: bisect_right(self._loads, to, key=lambda load: load.number)]
        return [held for load in loads if (held := load.after(after)) is not None]

    def any_in(self, after: int, to: int) -> bool:
        """Tell whether the window of the stream batches after < k <= to holds a carried tuple."""
        return any(load.number <= to and load.own[-1] > after for load in self._loads)

    def extent(self, after: int, to: int) -> tuple[int, int] | None:
        """Return the first own stream batch and the last carrying one of the tuples that a window holds; None if it
        holds none."""
        held = self._held_by(after, to)
        return (min(int(load.own[0]) for load in held), held[-1].number) if held else None

    def next_after(self, number: int) -> int | None:
        """Return the first stream batch after `number` that carries tuples; None if there is none."""
        return next((load.number for load in self._loads if load.number > number), None)

    def window(self, after: int, to: int) -> Batch | None:
        """Return the carried tuples of the window of the stream batches after < k <= to; None if it holds none."""
        held = self._held_by(after, to)
        if not held:
            return None
        subjects, predicates, objects, times = (np.concatenate([load.columns[at] for load in held]) for at in range(4))
        return build_slice((subjects, predicates, objects, times))
