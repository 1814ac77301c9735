# mypy: disallow-untyped-defs=false
"""The kernel that joins two tables of a program, also on variables that some rows leave unbound."""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.plan_layout import DONE
from wukongs.query.programs.memo_kernels import mix
from wukongs.query.programs.program_layout import (
    FALL_BACK,
    OPERATION_COUNT,
    OPERATION_DATA,
    OPERATION_LEFT,
    OPERATION_OUT,
    OPERATION_RIGHT,
    PROGRAM_ARENA,
    PROGRAM_CELLS,
    PROGRAM_USED,
    TABLE_ADDRESS,
    TABLE_COLUMNS,
    TABLE_ROWS,
)
from wukongs.query.programs.space_kernels import slots_for, take_cells
from wukongs.store.addresses import int64_array, int64_table, rows_of
from wukongs.store.dtypes import UNBOUND
from wukongs.store.jit import njit_uncounted

PAIRS_MAX = 1 << 22
"""A join that compares more pairs of rows falls back."""


@njit_uncounted
def find_slot(row, side, rows, keys, slots):
    """Return the slot of a row's keys: it is free (-1), or has a row of the right side with equal keys.

    Parameters
    ----------
    row : int64[columns]; side : int, 0 if it is of the left side, 1 of the right.
    rows : int64[n, columns], the right side; keys : int64[k, 2], columns of both; slots : int64[power of two]."""
    mixed = np.int64(0)
    for k in range(keys.shape[0]):
        mixed = mix(mixed, row[keys[k, side]])
    at = (mixed ^ (mixed >> 32)) & (slots.shape[0] - 1)
    while slots[at] >= 0:
        is_equal = True
        for k in range(keys.shape[0]):
            if rows[slots[at], keys[k, 1]] != row[keys[k, side]]:
                is_equal = False
                break
        if is_equal:
            break
        at = (at + 1) & (slots.shape[0] - 1)
    return at


@njit_uncounted
def are_compatible(one, other, checks):
    """Return whether two rows bind no variable differently. checks : int64[k, 2], columns of both."""
    for k in range(checks.shape[0]):
        cell, partner = one[checks[k, 0]], other[checks[k, 1]]
        if cell != partner and cell != UNBOUND and partner != UNBOUND:
            return False
    return True


@njit_uncounted
def write_pair(one, other, picks, target):
    """Write a pair of rows. picks : int64[columns, 2], the column of each row, -1 for none."""
    for column in range(picks.shape[0]):
        cell = np.int64(UNBOUND)
        if picks[column, 0] >= 0:
            cell = one[picks[column, 0]]
        if cell == UNBOUND and picks[column, 1] >= 0:
            cell = other[picks[column, 1]]
        target[column] = cell


@njit_uncounted
def join_tables(operation, tables, head):
    """Pair compatible rows, in the order of the left side, then of the right (JOIN)."""
    left, right = tables[operation[OPERATION_LEFT]], tables[operation[OPERATION_RIGHT]]
    out, width = tables[operation[OPERATION_OUT]], operation[OPERATION_COUNT]
    out[TABLE_ADDRESS] = head[PROGRAM_ARENA]
    out[TABLE_ROWS] = 0
    out[TABLE_COLUMNS] = width
    if left[TABLE_ROWS] == 0 or right[TABLE_ROWS] == 0:
        return DONE
    head_of_data = int64_array(operation[OPERATION_DATA], 2)
    key_count, check_count = head_of_data[0], head_of_data[1]
    keys = int64_table(operation[OPERATION_DATA] + 16, key_count, 2)
    checks = int64_table(operation[OPERATION_DATA] + 16 * (1 + key_count), check_count, 2)
    picks = int64_table(operation[OPERATION_DATA] + 16 * (1 + key_count + check_count), width, 2)
    rows, found = rows_of(left), rows_of(right)
    chained, (address, size) = take_cells(head, right[TABLE_ROWS]), slots_for(head, right[TABLE_ROWS])
    if chained < 0 or address < 0:
        return FALL_BACK
    behind, slots = int64_array(chained, right[TABLE_ROWS]), int64_array(address, size)
    for i in range(right[TABLE_ROWS] - 1, -1, -1):
        at = find_slot(found[i], 1, found, keys, slots)
        behind[i] = slots[at]
        slots[at] = i
    out[TABLE_ADDRESS] = head[PROGRAM_ARENA] + 8 * head[PROGRAM_USED]
    room = (head[PROGRAM_CELLS] - head[PROGRAM_USED]) // max(1, width)
    target, count, pairs = int64_table(out[TABLE_ADDRESS], room, width), 0, 0
    for i in range(left[TABLE_ROWS]):
        partner = slots[find_slot(rows[i], 0, found, keys, slots)]
        while partner >= 0:
            pairs += 1
            if pairs > PAIRS_MAX:
                return FALL_BACK
            if are_compatible(rows[i], found[partner], checks):
                if count == room:
                    return FALL_BACK
                write_pair(rows[i], found[partner], picks, target[count])
                count += 1
            partner = behind[partner]
    take_cells(head, count * width)
    out[TABLE_ROWS] = count
    return DONE
