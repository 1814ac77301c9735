"""TupleFilter: finds tuples that the stored graph certainly does not hold, at the cost of one cache line each.

One Bloom filter for the whole trace, not one a batch: a look-up is one line however many batches are live, and merging
never touches it (decision 0010).

Invariants:

* every tuple that was met, added or is to be learnt is in `_lines`, and in `_next` as well once that is complete;
* while `_next` is there, each tuple of `_source` that it lacks comes after `_place`, and tuples met since are in both.

Size: a filter is made with GROWN_BITS a tuple and grown once it is down to FULL_BITS: 1 to 1.5 bytes a triple. It grows
by half, in steps: each tuple met pays for FUEL_PER_TUPLE of the stored ones, so the larger filter is there before a
quarter more tuples have come, and no insert waits for it. Meanwhile both are kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wukongs.store.batch import Batch
from wukongs.store.bloom_kernels import LINE_WORDS, add_batch, find_tuples, meet_tuples
from wukongs.store.dtypes import BoolArray, Int64Array, UInt64Array
from wukongs.store.jit import wrapping
from wukongs.store.quads import Quads

FULL_BITS = 8
GROWN_BITS = 12
FUEL_PER_TUPLE = 4
FIRST_TUPLES = 1 << 14


def _lines_for(tuple_count: int) -> UInt64Array:
    return np.zeros(-(-tuple_count * GROWN_BITS // (64 * LINE_WORDS)) * LINE_WORDS, np.uint64)


class TupleFilter:
    """One writer. It may say that an unknown tuple is known, never the other way round."""

    def __init__(self) -> None:
        self._lines = _lines_for(FIRST_TUPLES)
        self._count = 0
        self._next: UInt64Array | None = None
        self._source: list[Batch] = []
        self._place = np.zeros(3, np.int64)

    @property
    def size_bytes(self) -> int:
        return self._lines.nbytes + (0 if self._next is None else self._next.nbytes)

    def reader(self) -> Callable[[Quads], BoolArray]:
        """Return what tells, of quads, those that may have been added by now: bool[n]. It needs no lock."""
        lines = self._lines

        def may_hold(quads: Quads) -> BoolArray:
            graphs, subjects, predicates, objects = quads
            with wrapping():
                found: BoolArray = find_tuples(lines, graphs, predicates, subjects, objects)
            return found

        return may_hold

    def meet(
        self,
        held: tuple[Batch, ...],
        graphs: Int64Array,
        predicates: Int64Array,
        subjects: Int64Array,
        objects: Int64Array,
    ) -> BoolArray:
        """Add tuples, int64[n] each; return bool[n], False for those that were certainly not there before the call.

        held: the batches that have all triples added so far."""
        self._make_room(held, len(subjects), len(subjects))
        with np.errstate(over="ignore"):
            met: BoolArray = meet_tuples(self._lines, graphs, predicates, subjects, objects)
            if self._next is not None:
                meet_tuples(self._next, graphs, predicates, subjects, objects)
        self._count += len(subjects)
        return met

    def add_part(self, held: tuple[Batch, ...], batch: Batch, place: Int64Array, count: int) -> None:
        """Add the next `count` triples of a batch, one of those held, from a place on, int64[3], zeros at first. It is
        moved on; with place[2] == len(batch) all are there."""
        left = len(batch) - int(place[2])
        count = min(count, left)
        begun = held if place[2] else tuple(other for other in held if other is not batch)
        self._make_room(begun, left, count)
        after = place
        for lines in (self._lines, self._next):
            if lines is not None:
                after = place.copy()
                _add(lines, batch, after, count)
        place[:] = after
        self._count += count

    def learn(self, held: tuple[Batch, ...]) -> None:
        """Assume that any tuple may be there, until the tuples of the batches held have been read by bounded work."""
        self._lines = np.full(LINE_WORDS, ~np.uint64(0))
        self._grow(held, 1)

    def _grow(self, held: tuple[Batch, ...], tuple_count: int) -> None:
        """Begin a filter with room for the tuples held and as many more as are said."""
        self._count = sum(len(batch) for batch in held)
        self._next = _lines_for(self._count + tuple_count)
        self._source = list(held)
        self._place[:] = 0

    def _make_room(self, held: tuple[Batch, ...], tuple_count: int, paying_count: int) -> None:
        """Grow, or go on growing, before this many tuples come. paying_count: those that come now, and pay."""
        newest = self._lines if self._next is None else self._next
        if (self._count + tuple_count) * FULL_BITS > 64 * len(newest):
            self._grow(held, tuple_count)
        if self._next is None:
            return
        fuel = FUEL_PER_TUPLE * paying_count
        while self._source and fuel > 0:
            fuel = _add(self._next, self._source[-1], self._place, fuel)
            if self._place[2] == len(self._source[-1]):
                self._source.pop()
                self._place[:] = 0
        if not self._source:
            self._lines, self._next = self._next, None


def _add(lines: UInt64Array, batch: Batch, place: Int64Array, fuel: int) -> int:
    with np.errstate(over="ignore"):
        return int(add_batch(lines, batch.descriptor, place, fuel))
