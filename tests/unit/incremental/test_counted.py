"""Counted rows: DISTINCT, and contents that are kept as a whole, beside sets and counters of Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from tests.fuzz import SEED
from wukongs.csparql.terms import Variable
from wukongs.incremental.counted import Counted
from wukongs.incremental.lookups import Operator
from wukongs.incremental.versions import Change
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import Int64Array

X, Y = Variable("x"), Variable("y")
NOTHING = Change(EMPTY, EMPTY, EMPTY, EMPTY)
Row = tuple[int, ...]


@dataclass
class Given:
    """An operator whose content and changes are given."""

    rows: ZSet
    children: tuple[Operator, ...] = ()
    touched: int = 0
    kind = "given"
    keeps = False
    kept_bytes = 0

    def begin(self, stored: BatchSet) -> ZSet:
        return self.rows

    def change(self, change: Change) -> ZSet:
        return self.rows


def zset(rows: Int64Array, weights: Int64Array) -> ZSet:
    return ZSet(BindingTable((Y, X), tuple(np.ascontiguousarray(rows.T)), len(rows)), weights)


def counter(found: ZSet) -> Counter[Row]:
    counts = Counter[Row]()
    columns = found.project((X, Y)).table.columns
    for *row, weight in zip(*(column.tolist() for column in columns), found.weights.tolist(), strict=True):
        counts[tuple(row)] += weight
    return Counter({row: count for row, count in counts.items() if count})


@pytest.mark.nojit
@pytest.mark.parametrize("is_distinct", [True, False])
def test_counted_rows_follow_their_changes(is_distinct: bool) -> None:
    rng = np.random.default_rng(SEED or 0)
    below = Given(ZSet.empty((X, Y)))
    counted = Counted((X, Y), (below,), is_distinct)
    held: Int64Array = np.empty((0, 2), np.int64)
    total = Counter[Row]()
    for at in range(200):
        inserted = rng.integers(0, rng.choice([3, 9]), (rng.integers(0, 9), 2))
        goes = rng.random(len(held)) < rng.choice([0.0, 0.1, 0.9], p=[0.4, 0.5, 0.1])
        deleted, held = held[goes], np.concatenate((held[~goes], inserted))
        order = rng.permutation(len(inserted) + len(deleted))
        weights = np.repeat(np.array([1, -1]), [len(inserted), len(deleted)])
        below.rows = zset(np.concatenate((inserted, deleted))[order], weights[order])
        if at % 50 == 0:
            below.rows = zset(held, np.ones(len(held), np.int64))
            total = counter(counted.begin(EMPTY))
        else:
            total.update(counter(counted.change(NOTHING)))
        expected = Counter((x, y) for y, x in held.tolist())
        expected = Counter(dict.fromkeys(expected, 1)) if is_distinct else expected
        assert counter(counted.content(EMPTY)) == expected
        assert Counter({row: count for row, count in total.items() if count}) == expected
    counted.forget()
    assert not len(counted.content(EMPTY))
