# mypy: disallow-untyped-defs=false
"""Kernels of ORDER BY in programs, and of LIMIT without ORDER BY.

If float64 orders all terms of a condition exactly (numbers or times of one kind), it is the sort key. If all are IRIs,
blank nodes or strings, their texts are compared. Other terms are sorted in Python.
"""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.plan_layout import DONE
from wukongs.query.programs.program_layout import (
    CLASS_OTHER,
    COMPARED_MAX,
    FALL_BACK,
    HOST,
    MEMO_MISS,
    OPERATION_DATA,
    OPERATION_LEFT,
    OPERATION_MEMO,
    OPERATION_OUT,
    PROGRAM_MISSED,
    TABLE_COLUMNS,
    TABLE_ROWS,
    TEXT_CLASS,
    TEXT_SIZE,
    TEXT_WIDTH,
)
from wukongs.query.programs.space_kernels import add_missed_key, table_for, take_cells
from wukongs.query.programs.text_kernels import compare_texts, read_text
from wukongs.store.addresses import float64_array, int64_array, int64_table, rows_of
from wukongs.store.jit import njit_uncounted
from wukongs.store.value_kernels import (
    EXACT_LIMIT,
    KIND_DATE,
    KIND_DATE_LOCAL,
    KIND_DATE_TIME,
    KIND_DATE_TIME_LOCAL,
    KIND_DOUBLE,
    KIND_INTEGER,
    numeric_value,
)


@njit_uncounted
def order_class(kind):
    """Return the class of kinds whose values float64 orders exactly; 0 for any other kind."""
    if kind == KIND_INTEGER:
        return 1
    if kind == KIND_DOUBLE:
        return 2
    if kind in (KIND_DATE_TIME, KIND_DATE_TIME_LOCAL):
        return 3
    if kind in (KIND_DATE, KIND_DATE_LOCAL):
        return 4
    return 0


@njit_uncounted
def read_values(rows, column, keys):
    """Write sort keys from ids. Returns False if float64s do not order the terms."""
    alike = 0
    for i in range(rows.shape[0]):
        kind, value = numeric_value(rows[i, column])
        known = order_class(kind)
        if known == 0 or (i > 0 and known != alike) or not abs(value) < EXACT_LIMIT:
            return False
        alike = known
        keys[i] = value
    return True


@njit_uncounted
def read_texts(head, rows, columns, memo, place):
    """Write the entries of terms at an address; return the number of those that the memo lacks, -1 if texts do not
    order the terms, or the arena is full."""
    entries = int64_table(place, rows.shape[0], TEXT_WIDTH)
    missed = np.int64(0)
    for i in range(rows.shape[0]):
        if not read_text(head, rows[i], columns, memo, place + 8 * TEXT_WIDTH * i):
            missed = add_missed_key(head, missed, rows[i], columns)
            if missed < 0:
                break
        elif entries[i, TEXT_CLASS] == CLASS_OTHER:
            return np.int64(-1)
    return missed


@njit_uncounted
def compared_size(entries):
    """Return about how many bytes a sort of texts compares, if they are alike up to their ends."""
    size, width, passes = np.int64(0), 1, 1
    while width < entries.shape[0]:
        width *= 2
        passes += 1
    for i in range(entries.shape[0]):
        size += entries[i, TEXT_SIZE]
    return size * passes


@njit_uncounted
def is_before(one, other, rows, part, keys, conditions, ties):
    """Return whether a row precedes another one.

    Parameters
    ----------
    part : int                       The column of parts, -1 for none.
    keys : int64[n_conditions]       The addresses of sort keys: float64[n], or entries of texts below 0.
    conditions : int64[n_conditions, 2]; ties : int64[n_ties]."""
    n = rows.shape[0]
    if part >= 0 and rows[one, part] != rows[other, part]:
        return rows[one, part] < rows[other, part]
    for c in range(keys.shape[0]):
        if keys[c] > 0:
            values = float64_array(keys[c], n)
            order = np.int64(values[one] > values[other]) - np.int64(values[one] < values[other])
        else:
            entries = int64_table(-keys[c], n, TEXT_WIDTH)
            order = compare_texts(entries[one], entries[other])
        if order != 0:
            return (order < 0) != (conditions[c, 1] == 1)
    for t in range(ties.shape[0]):
        if rows[one, ties[t]] != rows[other, ties[t]]:
            return rows[one, ties[t]] < rows[other, ties[t]]
    return False


@njit_uncounted
def merge_sort(order, spare, rows, part, keys, conditions, ties):
    """Sort row numbers; stable. Returns 1 if the result is in `spare`, 0 if it is in `order`."""
    n, width, turn = order.shape[0], 1, 0
    while width < n:
        source, target = (order, spare) if turn == 0 else (spare, order)
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for at in range(low, high):
                if i < middle and (
                    j >= high or not is_before(source[j], source[i], rows, part, keys, conditions, ties)
                ):
                    target[at] = source[i]
                    i += 1
                else:
                    target[at] = source[j]
                    j += 1
        width *= 2
        turn = 1 - turn
    return turn


@njit_uncounted
def sort_rows(operation, tables, head):
    """Sort rows, and apply OFFSET and LIMIT (SORT)."""
    left, out = tables[operation[OPERATION_LEFT]], tables[operation[OPERATION_OUT]]
    rows, n = rows_of(left), left[TABLE_ROWS]
    data = int64_array(operation[OPERATION_DATA], 5)
    count, tie_count, offset, limit, part = data[0], data[1], data[2], data[3], data[4]
    conditions = int64_table(operation[OPERATION_DATA] + 8 * 5, count, 2)
    ties = int64_array(operation[OPERATION_DATA] + 8 * (5 + 2 * count), tie_count)
    address = take_cells(head, count + 2 * n)
    if address < 0:
        return FALL_BACK
    keys = int64_array(address, count)
    for c in range(count):
        keys[c] = take_cells(head, n)
        if keys[c] < 0:
            return FALL_BACK
        if not read_values(rows, conditions[c, 0], float64_array(keys[c], n)):
            entries = take_cells(head, TEXT_WIDTH * n)
            if entries < 0:
                return FALL_BACK
            columns, memo = conditions[c, :1], operation[OPERATION_MEMO]
            missed = read_texts(head, rows, columns, memo, entries)
            if missed != 0:
                head[PROGRAM_MISSED] = missed
                return MEMO_MISS if missed > 0 else HOST
            if compared_size(int64_table(entries, n, TEXT_WIDTH)) > COMPARED_MAX:
                return FALL_BACK
            keys[c] = -entries
    order = int64_array(address + 8 * count, n)
    spare = int64_array(address + 8 * (count + n), n)
    for i in range(n):
        order[i] = i
    if merge_sort(order, spare, rows, part, keys, conditions, ties) == 1:
        order = spare
    if not table_for(head, out, n, left[TABLE_COLUMNS]):
        return FALL_BACK
    target, kept, place = rows_of(out), 0, np.int64(0)
    for at in range(n):
        row = order[at]
        if part >= 0 and at > 0 and rows[row, part] != rows[order[at - 1], part]:
            place = np.int64(0)
        if place >= offset and (limit < 0 or place < offset + limit):
            for column in range(rows.shape[1]):
                target[kept, column] = rows[row, column]
            kept += 1
        place += 1
    out[TABLE_ROWS] = kept
    return DONE
