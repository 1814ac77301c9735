"""WindowTable: rows of numbers for kernels, written when a window's batches change."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quads import batch_of, spread
from wukongs.store.addresses import int64_table
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.layout import DESCRIPTOR_WIDTH, WINDOW_WIDTH
from wukongs.store.window_table import WindowTable

pytestmark = pytest.mark.nojit


def batches(count: int, rows: int = 1, disjoint: bool = True) -> BatchSet:
    made = [batch_of([(1, spread(9 * at + row), 3, 4) for row in range(rows)]) for at in range(count)]
    return BatchSet.of(tuple(made), disjoint)


def seen(table: WindowTable, number: int) -> tuple[list[list[int]], bool, bool]:
    """Return the descriptors, and whether batches overlap and hide, as a kernel sees them."""
    windows, window_count, descriptors, descriptor_count = table.head.tolist()
    first, count, overlaps, hides = int64_table(windows, window_count, WINDOW_WIDTH)[number].tolist()
    held = int64_table(descriptors, descriptor_count, DESCRIPTOR_WIDTH)
    return held[first : first + count].tolist(), bool(overlaps), bool(hides)


def test_a_window_is_what_was_set_however_the_table_grows() -> None:
    table, address = WindowTable(), None
    wanted: dict[int, BatchSet] = {}
    for at in range(30):
        number = table.add()
        assert address in (None, table.address)
        address = table.address
        wanted[number] = batches(at % 5, disjoint=at % 2 == 0)
        table.set(number, wanted[number])
        again = number // 2
        wanted[again] = batches(1 + at, disjoint=False)
        table.set(again, wanted[again])
    for number, held in wanted.items():
        assert seen(table, number) == (held.descriptors.tolist(), not held.disjoint, False)
        assert table.batches(number) is held


def test_tombstones_are_told() -> None:
    table = WindowTable()
    number = table.add()
    one, other = batch_of([(1, spread(2), 3, 4)]), batch_of([(1, spread(5), 3, 4)])
    table.set(number, BatchSet.of((one, other), True, [None, one]))
    assert seen(table, number)[1:] == (False, True)


def test_the_version_changes_with_the_class_of_a_size_only() -> None:
    table = WindowTable()
    number = table.add()
    told = []
    for rows in (4, 5, 8, 3, 9, 16, 5, 4, 1):
        table.set(number, batches(1, rows))
        told.append(table.version)
    assert np.diff(told).tolist() == [0, 0, 0, 1, 0, 0, 1, 1]


def test_a_number_is_used_again() -> None:
    table = WindowTable()
    first, second = table.add(), table.add()
    table.set(first, batches(3))
    table.remove(first)
    assert table.batches(first) is EMPTY
    assert table.add() == first
    assert seen(table, first) == ([], False, False)
    assert second != first
