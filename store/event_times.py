"""EventTimes: the event time and the sign of the newest tuple of each triple, as long as an older one may still come.

Entries lie in sorted runs, the newest run last. A look-up takes the entry of the newest run that has one.

Invariants:

* a run is sorted by (subject, object, predicate, graph), and has each triple once;
* a run has more than half as many entries as the one before it, or that one has more than twice as many;
* an entry that was erased stands in a newer run as ERASED, until it is merged with the oldest run.

Cost: 40 bytes an entry. A look-up of m triples is O(m * log(n)) comparisons in each of O(log(n)) runs; an entry is
merged O(log(n)) times.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.quads import Quads

ENTRY_BYTES = 40
ABSENT = -(1 << 62)
"""The packed entry of a triple that has none."""
ERASED = ABSENT
_KEYS = 4


def packed(times: Int64Array, goes: BoolArray) -> Int64Array:
    """Return entries as integers that grow with time, int64[n]. times : int64[n] in ms; goes : bool[n], retractions."""
    return 2 * times + ~goes


class EventTimes:
    """The entries of one stored graph. The owner serialises the calls."""

    def __init__(self) -> None:
        self._runs: list[Int64Array] = []
        """int64[5, n] each: subjects, objects, predicates, graphs, packed entries."""
        self._compacted_ms = ABSENT

    @property
    def size_bytes(self) -> int:
        return sum(run.nbytes for run in self._runs)

    def __len__(self) -> int:
        return sum(run.shape[1] for run in self._runs)

    def find(self, quads: Quads) -> Int64Array:
        """Return the packed entry of each triple, int64[n]; ABSENT if it has none."""
        keys = _keys(quads)
        found = np.full(keys.shape[1], ABSENT, np.int64)
        is_open = np.ones(keys.shape[1], np.bool_)
        for run in reversed(self._runs):
            rows = np.flatnonzero(is_open)
            if not len(rows):
                break
            places, is_there = _search(run, keys[:, rows])
            found[rows[is_there]] = run[_KEYS, places[is_there]]
            is_open[rows[is_there]] = False
        return found

    def put(self, quads: Quads, entries: Int64Array) -> None:
        """Set the entries of distinct triples. entries : int64[n], packed."""
        if not len(entries):
            return
        run = np.concatenate([_keys(quads), entries[None, :]])
        self._add(run[:, np.lexsort(run[_KEYS - 1 :: -1])])

    def _add(self, run: Int64Array) -> None:
        self._runs.append(run)
        while len(self._runs) > 1 and self._runs[-2].shape[1] <= 2 * self._runs[-1].shape[1]:
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_merged(older, newer))
        self._tidy()

    def erase(self, quads: Quads) -> None:
        """Erase the entries of triples, repeats allowed."""
        if not self._runs or not len(quads[0]):
            return
        has_entry = self.find(quads) != ABSENT
        if has_entry.any():
            keys = np.unique(_keys(quads)[:, has_entry], axis=1)
            self.put((keys[3], keys[0], keys[2], keys[1]), np.full(keys.shape[1], ERASED, np.int64))

    def erase_graphs(self, graphs: Collection[int]) -> None:
        """Erase the entries of all triples of some graphs."""
        if graphs:
            self._runs = [run[:, ~np.isin(run[3], list(graphs))] for run in self._runs]

    def forget(self, before_ms: int, step_ms: int) -> None:
        """Forget the entries of before a time, if at least step_ms have passed since that was done last."""
        if before_ms - self._compacted_ms >= step_ms:
            self.forget_now(before_ms)

    def forget_now(self, before_ms: int) -> None:
        """Forget the entries of before a time."""
        self._compacted_ms = before_ms
        while len(self._runs) > 1:
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_merged(older, newer))
        self._runs = [run[:, run[_KEYS] >= 2 * before_ms] for run in self._runs]

    def copy(self) -> EventTimes:
        """Return the same entries, which stay as they are. The runs are shared: they never change."""
        other = EventTimes()
        other._runs, other._compacted_ms = list(self._runs), self._compacted_ms
        return other

    def entries(self) -> Int64Array:
        """Return all entries as one run: what `restore` takes. int64[5, n]"""
        whole = np.empty((_KEYS + 1, 0), np.int64)
        for run in self._runs:
            whole = _merged(whole, run)
        return whole[:, whole[_KEYS] != ERASED]

    def restore(self, *parts: Int64Array) -> None:
        """Hold the entries that others have given, of distinct triples: each part as `entries` has returned it, or
        some of its columns."""
        self._runs = []
        for part in sorted((part for part in parts if part.shape[1]), key=lambda part: -part.shape[1]):
            self._add(part)

    def _tidy(self) -> None:
        if len(self._runs) == 1:
            self._runs[0] = self._runs[0][:, self._runs[0][_KEYS] != ERASED]


def is_in_order(entries: Int64Array) -> bool:
    """Tell whether entries have each triple once, in order. entries : int64[5, n]"""
    order = np.lexsort(entries[_KEYS - 1 :: -1])
    keys = entries[:_KEYS]
    return bool((order[1:] > order[:-1]).all() and (keys[:, 1:] != keys[:, :-1]).any(axis=0).all())


def _keys(quads: Quads) -> Int64Array:
    graphs, subjects, predicates, objects = quads
    return np.stack((subjects, objects, predicates, graphs))


def _search(run: Int64Array, keys: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Return where each key stands in a run, int64[n], and whether it is there, bool[n]."""
    low, high = np.zeros(keys.shape[1], np.int64), np.full(keys.shape[1], run.shape[1], np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        is_less, _ = _compare(run, middle, keys)
        is_open = low < high
        low = np.where(is_open & is_less, middle + 1, low)
        high = np.where(is_open & ~is_less, middle, high)
    places = np.minimum(low, run.shape[1] - 1)
    if not run.shape[1]:
        return low, np.zeros(len(low), np.bool_)
    _, is_equal = _compare(run, places, keys)
    return places, is_equal & (low < run.shape[1])


def _compare(run: Int64Array, places: Int64Array, keys: Int64Array) -> tuple[BoolArray, BoolArray]:
    """Tell which keys of a run at some places are less than others, and which are equal. bool[n] each"""
    is_less, is_equal = np.zeros(len(places), np.bool_), np.ones(len(places), np.bool_)
    places = np.minimum(places, max(0, run.shape[1] - 1))
    for own, other in zip(run[:_KEYS], keys, strict=True):
        there = own[places]
        is_less |= is_equal & (there < other)
        is_equal &= there == other
    return is_less, is_equal


def _merged(older: Int64Array, newer: Int64Array) -> Int64Array:
    """Return the entries of two runs as one; of a triple in both, that of the newer one."""
    both = np.concatenate([older, newer], axis=1)
    age = np.repeat([0, 1], [older.shape[1], newer.shape[1]])
    both = both[:, np.lexsort((age, *both[_KEYS - 1 :: -1]))]
    if not both.shape[1]:
        return both
    is_last = np.ones(both.shape[1], np.bool_)
    is_last[:-1] = (both[:_KEYS, 1:] != both[:_KEYS, :-1]).any(axis=0)
    return both[:, is_last]
