"""ArrivalSequence: the tuples of one stream in the order of their arrival, repeats included, for windows that count.

An arrival's number is its place in the whole life of the stream, from 1 on, whether or not it is held: so a window that
ends with arrival e is the same for every query, live, late or replayed.

Invariants:

* stream batches come in order and whole; within one, the owner gives the order (timestamp, source partition, offset),
  and behind these the tuples that it carries (store/carried_tuples.py);
* the arrivals held_after < number <= count are held, in whole stream batches: earlier ones were dropped, or came when
  no window counted;
* nothing is held unless `is_kept`; `count` goes on all the same.

Cost: 32 bytes an arrival, and the batches of the windows that were read last; a window of n arrivals is sorted into a
batch once, when it is first read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from wukongs.store.batch import build_batch
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import WINDOW_GRAPH, Int64Array

WINDOWS_REMEMBERED = 8
_COMPACTED_FROM = 64


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of one stream batch, in order. Columns : int64[n]; times in ms."""

    subjects: Int64Array
    predicates: Int64Array
    objects: Int64Array
    times: Int64Array

    def columns(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        return self.subjects, self.predicates, self.objects, self.times

    @property
    def size_bytes(self) -> int:
        return sum(column.nbytes for column in self.columns())


@dataclass(frozen=True, slots=True)
class CountedWindow:
    """The arrivals after < number <= to; start_ms: the earliest one's time - 1, end_ms: the latest one's (None: there
    is no arrival in it)."""

    after: int
    to: int
    batches: BatchSet
    start_ms: int | None
    end_ms: int | None

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches.batches)


class ArrivalSequence:
    """The arrivals of one stream. The owner serialises the calls (one lock); what `window` returns is immutable."""

    def __init__(self) -> None:
        self.count = 0
        """The arrivals so far, held or not."""
        self.is_kept = False
        self.held_after = 0
        self.began_after = 0
        """When `is_kept` began, so many had come."""
        self.evicted_to = 0
        """The last arrival that was dropped for want of room."""
        self.size_bytes = 0
        """Bytes of arrivals and of the windows that are remembered."""
        self._numbers: list[int] = []
        """The stream batches held, in order; entries before _first are gone."""
        self._ends: list[int] = []
        """The number of the last arrival of each."""
        self._arrivals: list[Arrivals | None] = []
        self._first = 0
        self._windows: OrderedDict[tuple[int, int], CountedWindow] = OrderedDict()

    def __len__(self) -> int:
        """How many arrivals are held."""
        return self.count - self.held_after if self.is_kept else 0

    @property
    def oldest(self) -> int | None:
        """The oldest stream batch of which arrivals are held."""
        return self._numbers[self._first] if self._first < len(self._numbers) else None

    def keep(self) -> None:
        """Keep the arrivals from now on."""
        if not self.is_kept:
            self.is_kept = True
            self.held_after = self.began_after = self.count

    def forget(self) -> None:
        """Keep nothing any more, and drop the held arrivals."""
        self.drop(self.count)
        self.is_kept = False
        self.held_after = self.count

    def restore(self, count: int, began_after: int | None) -> None:
        """Go on where another sequence stood. count: arrivals that had come, none of which is held; began_after: how
        many had come when it began to keep them (None: it kept none)."""
        assert self.oldest is None, "restored over arrivals"
        self.count = self.held_after = count
        self.is_kept = began_after is not None
        self.began_after = count if began_after is None else began_after

    def skip(self, count: int) -> None:
        """Note arrivals, before all that are held, that nobody needs any more."""
        assert self.oldest is None, "arrivals before those that are held"
        self.count += count
        self.held_after = self.count

    def add(
        self, number: int, subjects: Int64Array, predicates: Int64Array, objects: Int64Array, times: Int64Array
    ) -> None:
        """Add the arrivals of stream batch `number`, later than all before, in order. Columns : int64[n]; n >= 1."""
        self.count += len(subjects)
        if not self.is_kept or self.count <= self.began_after:
            self.held_after = self.count
            return
        # Copies, where a column is a part of a larger one that would stay with it.
        parts = (part if part.base is None else part.copy() for part in (subjects, predicates, objects, times))
        added = Arrivals(*parts)
        self._numbers.append(number)
        self._ends.append(self.count)
        self._arrivals.append(added)
        self.size_bytes += added.size_bytes

    def count_at(self, number: int) -> int:
        """Return how many arrivals had come by the end of a stream batch. Before the oldest held one, it is that before
        all held."""
        at = bisect_right(self._numbers, number, self._first)
        return self._ends[at - 1] if at > self._first else self.held_after

    def batch_of(self, arrival: int) -> int | None:
        """Return the stream batch of an arrival, the oldest held if it came before; None if it has not come."""
        if arrival > self.count or self.oldest is None:
            return None
        return self._numbers[bisect_left(self._ends, arrival, self._first)]

    def next_edge(self, after: int, step: int) -> int | None:
        """Return the first stream batch after `after` in which the number of arrivals passes a multiple of step; None
        if there is none yet."""
        return self.batch_of((self.count_at(after) // step + 1) * step)

    def span(self, number: int, count: int, step: int) -> tuple[int, int]:
        """Return the arrivals (after, to) of a window of `count` arrivals at the end of a stream batch."""
        to = self.count_at(number) // step * step
        return max(0, to - count), to

    def window(self, after: int, to: int) -> CountedWindow:
        """Return the held arrivals among after < k <= to, as a set with the newest time of each tuple.

        Cost: a sort of the window; nothing if it was read lately."""
        held = min(max(after, self.held_after), to)
        found = self._windows.get((held, to))
        if found is None:
            found = self._windows[held, to] = self._build(held, to)
            self.size_bytes += found.size_bytes
            if len(self._windows) > WINDOWS_REMEMBERED:
                self.size_bytes -= self._windows.popitem(last=False)[1].size_bytes
        return found

    def _build(self, after: int, to: int) -> CountedWindow:
        if after >= to:
            return CountedWindow(after, to, EMPTY, None, None)
        lo = bisect_left(self._ends, after + 1, self._first)
        hi = bisect_left(self._ends, to, self._first) + 1
        start = self._ends[lo - 1] if lo > self._first else self.held_after
        parts = [arrivals.columns() for arrivals in self._arrivals[lo:hi] if arrivals is not None]
        columns = [np.concatenate(column)[after - start : to - start] for column in zip(*parts, strict=True)]
        subjects, predicates, objects, times = columns
        graphs = np.full(len(subjects), WINDOW_GRAPH, np.int64)
        batch = build_batch(graphs, subjects, predicates, objects, times)
        return CountedWindow(after, to, BatchSet.of((batch,), disjoint=True), int(times.min()) - 1, int(times.max()))

    def drop(self, to: int) -> None:
        """Drop the stream batches that have no arrival after number `to`. Cost: that of the dropped arrivals,
        amortised."""
        first = self._first
        while first < len(self._ends) and self._ends[first] <= to:
            arrivals = self._arrivals[first]
            assert arrivals is not None, first
            self.size_bytes -= arrivals.size_bytes
            self.held_after = self._ends[first]
            self._arrivals[first] = None
            first += 1
        if first == self._first:
            return
        self._first = first
        if first >= max(_COMPACTED_FROM, len(self._ends) // 2):
            for entries in (self._numbers, self._ends, self._arrivals):
                del entries[:first]
            self._first = 0
        for key in [key for key in self._windows if key[0] < to]:
            self.size_bytes -= self._windows.pop(key).size_bytes

    def evict(self, number: int) -> None:
        """Drop the arrivals up to stream batch `number` for want of room."""
        to = self.count_at(number)
        if to > self.held_after:
            self.evicted_to = to
            self.drop(to)
