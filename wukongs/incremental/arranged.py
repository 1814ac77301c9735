"""Arranged: a collection of rows, indexed by a key, that changes by Z-sets.

Rows are in levels, each sorted by the hash of its key. A change is one more level, and levels of similar size are
merged, as the batches of a trace are. A level never changes, so the collection before a change is read beside the one
after it (shared arrangements, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wukongs.csparql.terms import Variable
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators
from wukongs.store.dtypes import Int64Array

MERGED_RATIO = 2
"""A level is merged with the newer one if it has at most MERGED_RATIO times its rows."""
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_Hashes = npt.NDArray[np.uint64]


def _hashes(columns: Sequence[Int64Array], length: int) -> _Hashes:
    """Return a hash of each row. uint64[length]"""
    found = np.zeros(length, np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            found ^= column.view(np.uint64)
            found *= _PRIME
            found ^= found >> _SHIFT
    return found


@dataclass(frozen=True, slots=True)
class _Level:
    """rows: sorted by the hash of their key; hashes : uint64[len(rows)], these hashes."""

    rows: ZSet
    hashes: _Hashes

    @staticmethod
    def of(rows: ZSet, keys: Sequence[Variable]) -> _Level:
        hashes = _hashes(operators.project(rows.table, tuple(keys)).columns, len(rows))
        order = np.argsort(hashes, kind="stable")
        return _Level(rows.take(order), hashes[order])

    def places(self, hashes: _Hashes) -> Int64Array:
        """Return the places of the rows whose key has one of some hashes."""
        first, behind = self.hashes.searchsorted(hashes, "left"), self.hashes.searchsorted(hashes, "right")
        counts = behind - first
        before = np.cumsum(counts) - counts
        found: Int64Array = np.arange(counts.sum()) + np.repeat(first - before, counts)
        return found


@dataclass(frozen=True, slots=True)
class Arranged:
    """keys: the variables by which rows are found; levels: the oldest, which are the largest, first."""

    keys: tuple[Variable, ...]
    levels: tuple[_Level, ...] = ()

    def plus(self, change: ZSet) -> Arranged:
        """Return the sum."""
        if not len(change):
            return self
        levels = [*self.levels, _Level.of(change, self.keys)]
        while len(levels) > 1 and len(levels[-2].rows) <= MERGED_RATIO * len(levels[-1].rows):
            newer, older = levels.pop(), levels.pop()
            merged = older.rows.plus(newer.rows).consolidated()
            if len(merged):
                levels.append(_Level.of(merged, self.keys))
        return Arranged(self.keys, tuple(levels))

    def rows(self) -> ZSet:
        """Return all rows, consolidated."""
        if not self.levels:
            return ZSet.empty()
        first, *others = (level.rows for level in self.levels)
        return first.plus(*others).consolidated() if others else first

    def with_keys(self, wanted: BindingTable) -> ZSet:
        """Return the rows, consolidated, whose key is that of some row of a table."""
        if not self.keys or not self.levels:
            return self.rows()
        asked = operators.distinct(operators.project(wanted, self.keys))
        hashes = np.unique(_hashes(asked.columns, asked.length))
        first, *others = (level.rows.take(level.places(hashes)) for level in self.levels)
        return first.plus(*others).with_keys(asked, self.keys).consolidated()

    @property
    def size_bytes(self) -> int:
        return sum(level.rows.size_bytes + level.hashes.nbytes for level in self.levels)
