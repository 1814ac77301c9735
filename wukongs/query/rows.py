"""Rows of binding tables, however many: numbered by content, found, grouped, paired, ordered, taken, put together.

DISTINCT, GROUP BY, joins, ORDER BY and the evaluation of expressions share these functions. They take long tables in
pieces of STEP_ROWS rows, look at the clock before each piece, and hold bytes before they allocate them
(wukongs/query/limits.py). Short tables take one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from wukongs.query import rows_kernels as kernels
from wukongs.query.limits import Limits, current
from wukongs.store.dtypes import BoolArray, Int64Array

PIECE_ROWS = 1 << 16
"""Tables of more rows are taken in pieces."""
STEP_ROWS = 1 << 14
"""The rows of a piece: at most about 2 ms, so that a tick need not wait for long (decision 0123)."""
DIGIT_BITS = 11
"""The bits of one pass of the radix sort that orders long tables."""

Array = TypeVar("Array", Int64Array, BoolArray)
Keys = npt.NDArray[np.int64]
"""int64[n_columns, n_rows]"""


def pieces(length: int, limits: Limits) -> Iterator[tuple[int, int]]:
    """Iterate over (start, stop) of pieces of rows, looking at the clock before each."""
    for start in range(0, length, STEP_ROWS):
        limits.check()
        yield start, min(length, start + STEP_ROWS)


# --- columns ----------------------------------------------------------------------------------------------------------


def filled(length: int, value: int) -> Int64Array:
    """Return a new column of one value."""
    limits = current()
    limits.hold(8 * length)
    if length <= PIECE_ROWS:
        return np.full(length, value, np.int64)
    column = np.empty(length, np.int64)
    for start, stop in pieces(length, limits):
        column[start:stop] = value
    return column


def taken(column: Int64Array, rows: Int64Array) -> Int64Array:
    """Return the values of some rows, in their order."""
    limits = current()
    limits.hold(8 * len(rows))
    if len(rows) <= PIECE_ROWS:
        return column[rows]
    found = np.empty(len(rows), np.int64)
    for start, stop in pieces(len(rows), limits):
        found[start:stop] = column[rows[start:stop]]
    return found


def put_together(columns: Sequence[Int64Array]) -> Int64Array:
    """Return columns one after the other, as a new one."""
    length = sum(map(len, columns))
    limits = current()
    limits.hold(8 * length)
    if length <= PIECE_ROWS:
        return np.concatenate(columns)
    whole = np.empty(length, np.int64)
    at = 0
    for column in columns:
        for start, stop in pieces(len(column), limits):
            whole[at + start : at + stop] = column[start:stop]
        at += len(column)
    return whole


def key_matrix(columns: Sequence[Int64Array], length: int) -> Keys:
    """Copy columns into one int64[n_columns, length], as the kernels want them; there may be none."""
    limits = current()
    limits.hold(8 * length * len(columns))
    if length <= PIECE_ROWS:
        return np.array(columns, dtype=np.int64).reshape(len(columns), length)
    keys = np.empty((len(columns), length), np.int64)
    for place, column in enumerate(columns):
        for start, stop in pieces(length, limits):
            keys[place, start:stop] = column[start:stop]
    return keys


def places_of(mask: BoolArray) -> Int64Array:
    """Return the numbers of the rows where a mask is true."""
    current().hold(8 * int(np.count_nonzero(mask)))
    return np.flatnonzero(mask)


# --- rows by content --------------------------------------------------------------------------------------------------


def numbered(columns: Sequence[Int64Array], length: int) -> tuple[Int64Array, Int64Array]:
    """Number distinct rows by first occurrence: (number of each row, first row of each number)."""
    limits = current()
    before = limits.held
    numbers, firsts = number_rows(key_matrix(columns, length))[:2]  # neither keys nor slots live on
    if 2 * len(firsts) < length:
        firsts = firsts.copy()  # a view would keep room for a number for each row
    limits.give_back(limits.held - before - 8 * (len(numbers) + len(firsts)))
    return numbers, firsts


def number_rows(keys: Keys) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Run `rows_kernels.number_rows` piece by piece, so that limits are checked."""
    limits, length = current(), keys.shape[1]
    if length <= PIECE_ROWS:
        limits.hold(48 * length)
        return kernels.number_rows(keys)  # type: ignore[no-any-return]
    slots = filled(1 << (2 * length - 1).bit_length(), -1)
    limits.hold(16 * length)
    numbers, firsts = np.empty(length, np.int64), np.empty(length, np.int64)
    n_distinct = 0
    for start, stop in pieces(length, limits):
        n_distinct = kernels.number_some(keys, start, stop, n_distinct, slots, numbers, firsts)
    return numbers, firsts[:n_distinct], slots


def find_rows(keys: Keys, firsts: Int64Array, slots: Int64Array, lookup: Keys) -> Int64Array:
    """Run `rows_kernels.find_rows` piece by piece, so that limits are checked."""
    limits, length = current(), lookup.shape[1]
    limits.hold(8 * length)
    numbers = np.empty(length, np.int64)
    for start, stop in pieces(length, limits):
        kernels.find_some(keys, firsts, slots, lookup, start, stop, numbers)
    return numbers


def group_members(numbers: Int64Array, n_groups: int) -> tuple[Int64Array, Int64Array]:
    """Run `rows_kernels.group_members` piece by piece, so that limits are checked."""
    limits, length = current(), len(numbers)
    limits.hold(16 * n_groups + 8 * length)
    if length <= PIECE_ROWS:
        return kernels.group_members(numbers, n_groups)  # type: ignore[no-any-return]
    offsets, members = np.zeros(n_groups + 1, np.int64), np.empty(length, np.int64)
    for start, stop in pieces(length, limits):
        kernels.count_some(numbers, start, stop, offsets)
    np.cumsum(offsets, out=offsets)
    cursors = offsets.copy()
    for start, stop in pieces(length, limits):
        kernels.list_some(numbers, start, stop, cursors, members)
    return offsets, members


def count_pairs(offsets: Int64Array, found: Int64Array) -> int:
    """Run `rows_kernels.count_pairs` piece by piece, so that limits are checked."""
    return sum(int(kernels.count_pairs(offsets, found[start:stop])) for start, stop in pieces(len(found), current()))


def fill_pairs(
    offsets: Int64Array, members: Int64Array, found: Int64Array, pair_count: int
) -> tuple[Int64Array, Int64Array]:
    """Run `rows_kernels.fill_pairs` piece by piece, so that limits are checked."""
    limits = current()
    limits.hold(16 * pair_count)
    place = np.zeros(2, np.int64)
    rows, others = np.empty(pair_count, np.int64), np.empty(pair_count, np.int64)
    for start, stop in pieces(pair_count, limits):
        kernels.fill_some(offsets, members, found, place, rows, others, start, stop)
    return rows, others


# --- order ------------------------------------------------------------------------------------------------------------


def stable_order(columns: Sequence[Int64Array]) -> Int64Array:
    """Return the numbers of the rows in the order of their columns, the first one first; equal rows keep their order.

    At least one column. Long tables are sorted digit by digit, from the last one of the last column on."""
    limits, length = current(), len(columns[0])
    limits.hold(16 * length)
    if length <= PIECE_ROWS:
        order: Int64Array = np.lexsort(columns[::-1])
        return order
    limits.hold(16 * length)  # `raised`, and one that is being made
    order, target = np.arange(length, dtype=np.int64), np.empty(length, np.int64)
    mask = (1 << DIGIT_BITS) - 1
    for column in columns[::-1]:
        limits.check()
        lowest = int(column.min())
        raised = column - lowest  # no term id and no rank is so far from another that this overflows
        for shift in range(0, int(raised.max()).bit_length(), DIGIT_BITS):
            counts = np.zeros(mask + 1, np.int64)
            for start, stop in pieces(length, limits):
                kernels.count_digits(raised, order, shift, mask, start, stop, counts)
            cursors = np.cumsum(counts) - counts
            for start, stop in pieces(length, limits):
                kernels.place_by_digit(raised, order, shift, mask, start, stop, cursors, target)
            order, target = target, order
    del target, raised
    limits.give_back(24 * length)
    return order


def distinct_rows(*columns: Int64Array) -> Keys:
    """Return the distinct rows of columns, sorted by the first column, then the second, and so on.

    rows : int64[n, n_columns]"""
    if len(columns[0]) == 1:
        return np.stack(columns, axis=1)
    limits, length = current(), len(columns[0])
    order = stable_order(columns)
    limits.hold(16 * length * len(columns))  # all rows in order, and the distinct ones
    rows = np.stack([taken(column, order) for column in columns], axis=1)
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[is_new]
