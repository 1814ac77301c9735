# mypy: disallow-untyped-defs=false
"""Kernels of the operators: rows of term ids numbered by content, and the pairs of rows that join on them.

Term ids are uniform (store/dtypes.py), but rows hold other numbers too: places and groups are small, and the bits of
doubles end in zeros. So each column is mixed by multiplication. Halves are multiplied, so that nothing overflows and
un-jitted runs give the same numbers without warnings. Tables are open-addressing, at most half full.

Kernels named `..._some` do a part of the rows, from start to stop, so that long tables can be worked on in pieces
(wukongs/query/rows.py).
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import prefetch
from wukongs.store.dtypes import UNBOUND
from wukongs.store.jit import njit
from wukongs.store.slot_kernels import mix_id

SLOTS_AHEAD = 12
"""So many rows ahead of a row its slot is fetched: a table of many rows is in no cache."""


@njit
def hash_row(keys, row):
    """Hash one row.

    Parameters
    ----------
    keys : int64[n_columns, n_rows]
    row : int

    Returns
    -------
    hash : int                      In [0, 2**63); its low bits are mixed, so that a mask of them is a good slot."""
    mixed = np.int64(0)
    for column in range(keys.shape[0]):
        mixed ^= keys[column, row] & 0x7FFFFFFFFFFFFFFF
        mixed = ((mixed & 0x7FFFFFFF) * 0x9E3779B1) ^ ((mixed >> 31) * 0x5BD1E995)
        mixed ^= mixed >> 29
    return mixed ^ (mixed >> 32)


@njit
def rows_equal(left, left_row, right, right_row):
    """Tell whether two rows hold the same ids. left, right : int64[n_columns, n_rows]."""
    for column in range(left.shape[0]):  # noqa: SIM110 (numba has no generators with all)
        if left[column, left_row] != right[column, right_row]:
            return False
    return True


@njit
def number_some(keys, start, stop, n_distinct, slots, numbers, firsts):
    """Number some rows after those before them: a part of number_rows.

    Parameters
    ----------
    keys, slots, numbers, firsts        As in number_rows; slots is a power of two, empty (-1) before the first rows.
    n_distinct : int                    How many contents the rows before start have.

    Returns
    -------
    n_distinct : int                    How many those before stop have."""
    mask = slots.shape[0] - 1
    for row in range(start, stop):
        if row + SLOTS_AHEAD < stop:
            prefetch(slots, hash_row(keys, row + SLOTS_AHEAD) & mask)
        slot = hash_row(keys, row) & mask
        while slots[slot] >= 0 and not rows_equal(keys, firsts[slots[slot]], keys, row):
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = n_distinct
            firsts[n_distinct] = row
            n_distinct += 1
        numbers[row] = slots[slot]
    return n_distinct


@njit
def number_rows(keys):
    """Number the distinct rows, in the order in which they first occur.

    Parameters
    ----------
    keys : int64[n_columns, n_rows]     UNBOUND is an id like any other. No column at all makes all rows equal.

    Returns
    -------
    numbers : int64[n_rows]             The number of each row's content, from 0.
    firsts : int64[n_distinct]          The first row with each content, strictly increasing.
    slots : int64[power of two]         The hash table: a number, or -1; for find_rows.

    Cost: one probe sequence per row."""
    n_rows = keys.shape[1]
    size = 4
    while size < 2 * n_rows:
        size *= 2
    slots = np.full(size, -1, np.int64)
    numbers = np.empty(n_rows, np.int64)
    firsts = np.empty(n_rows, np.int64)
    n_distinct = number_some(keys, 0, n_rows, 0, slots, numbers, firsts)
    return numbers, firsts[:n_distinct].copy(), slots


@njit
def number_ids(ids):
    """Number distinct ids by first occurrence, as number_rows does for one column.

    Parameters
    ----------
    ids : int64[n]

    Returns
    -------
    numbers : int32[n]
    distinct : int64[n_distinct]
    is_bound : bool                     None is UNBOUND.

    Cost: one probe sequence per id."""
    size = 4
    while size < 2 * len(ids):
        size *= 2
    slots = np.full(size, -1, np.int32)
    numbers = np.empty(len(ids), np.int32)
    distinct = np.empty(len(ids), np.int64)
    n_distinct = 0
    is_bound = True
    for i in range(len(ids)):
        slot = (mix_id(ids[i]) * size) >> 32
        while slots[slot] >= 0 and distinct[slots[slot]] != ids[i]:
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = n_distinct
            distinct[n_distinct] = ids[i]
            n_distinct += 1
            is_bound &= ids[i] != UNBOUND
        numbers[i] = slots[slot]
    return numbers, distinct[:n_distinct], is_bound


@njit
def find_some(keys, firsts, slots, lookup, start, stop, numbers):
    """Find the numbers of some looked-up rows: a part of find_rows."""
    mask = slots.shape[0] - 1
    for row in range(start, stop):
        if row + SLOTS_AHEAD < stop:
            prefetch(slots, hash_row(lookup, row + SLOTS_AHEAD) & mask)
        slot = hash_row(lookup, row) & mask
        while slots[slot] >= 0 and not rows_equal(keys, firsts[slots[slot]], lookup, row):
            slot = (slot + 1) & mask
        numbers[row] = slots[slot]


@njit
def find_rows(keys, firsts, slots, lookup):
    """Find the number that number_rows(keys) gave to each looked-up row.

    Parameters
    ----------
    keys : int64[n_columns, n_rows]
    firsts, slots                       As number_rows(keys) returned them.
    lookup : int64[n_columns, n_lookups]

    Returns
    -------
    numbers : int64[n_lookups]          -1 for a row that keys does not have."""
    numbers = np.empty(lookup.shape[1], np.int64)
    find_some(keys, firsts, slots, lookup, 0, lookup.shape[1], numbers)
    return numbers


@njit
def count_some(numbers, start, stop, offsets):
    """Count some rows into the places after their groups'. numbers : int64[n_rows]; offsets : int64[n_groups + 1]."""
    for row in range(start, stop):
        offsets[numbers[row] + 1] += 1


@njit
def list_some(numbers, start, stop, cursors, members):
    """Write some rows to where their groups' cursors stand, which move on. members : int64[n_rows]."""
    for row in range(start, stop):
        group = numbers[row]
        members[cursors[group]] = row
        cursors[group] += 1


@njit
def group_members(numbers, n_groups):
    """List the rows of each group.

    Parameters
    ----------
    numbers : int64[n_rows]             In [0, n_groups).
    n_groups : int

    Returns
    -------
    offsets : int64[n_groups + 1]       The rows of group g are members[offsets[g]:offsets[g + 1]], increasing.
    members : int64[n_rows]"""
    n_rows = numbers.shape[0]
    offsets = np.zeros(n_groups + 1, np.int64)
    count_some(numbers, 0, n_rows, offsets)
    for group in range(n_groups):
        offsets[group + 1] += offsets[group]
    members = np.empty(n_rows, np.int64)
    list_some(numbers, 0, n_rows, offsets.copy(), members)
    return offsets, members


@njit
def fill_some(offsets, members, lookup_numbers, place, lookup_rows, member_rows, start, stop):
    """Write the pairs from start to stop: a part of fill_pairs. place : int64[2], the looked-up row and how many of its
    pairs are written already; moved on."""
    row, position = place[0], place[1]
    pair = start
    while pair < stop:
        group = lookup_numbers[row]
        if group < 0 or position >= offsets[group + 1] - offsets[group]:
            row += 1
            position = 0
            continue
        lookup_rows[pair] = row
        member_rows[pair] = members[offsets[group] + position]
        position += 1
        pair += 1
    place[0] = row
    place[1] = position


@njit
def count_digits(column, order, shift, mask, start, stop, counts):
    """Count the digits of some rows, in the order so far. A pass of a radix sort is this kernel, then place_by_digit.

    Parameters
    ----------
    column : int64[n_rows]              Not negative.
    order : int64[n_rows]               Row numbers.
    shift, mask : int                   A digit is (column[row] >> shift) & mask.
    counts : int64[mask + 1]            Added to."""
    for place in range(start, stop):
        counts[(column[order[place]] >> shift) & mask] += 1


@njit
def place_by_digit(column, order, shift, mask, start, stop, cursors, target):
    """Move some rows of the order to where the cursors of their digits stand, which move on. target : int64[n_rows]."""
    for place in range(start, stop):
        row = order[place]
        digit = (column[row] >> shift) & mask
        target[cursors[digit]] = row
        cursors[digit] += 1


@njit
def count_pairs(offsets, lookup_numbers):
    """Count the pairs that fill_pairs will write. offsets : int64[n_groups + 1]; lookup_numbers : int64[n_lookups]."""
    total = np.int64(0)
    for row in range(lookup_numbers.shape[0]):
        group = lookup_numbers[row]
        if group >= 0:
            total += offsets[group + 1] - offsets[group]
    return total


@njit
def fill_pairs(offsets, members, lookup_numbers, n_pairs):
    """Pair each looked-up row with all members of its group.

    Parameters
    ----------
    offsets, members                    As group_members returned them.
    lookup_numbers : int64[n_lookups]   -1 where a row has no group.
    n_pairs : int                       As count_pairs returned it.

    Returns
    -------
    lookup_rows : int64[n_pairs]        Not decreasing.
    member_rows : int64[n_pairs]        Increasing for one looked-up row."""
    lookup_rows = np.empty(n_pairs, np.int64)
    member_rows = np.empty(n_pairs, np.int64)
    fill_some(offsets, members, lookup_numbers, np.zeros(2, np.int64), lookup_rows, member_rows, 0, n_pairs)
    return lookup_rows, member_rows
