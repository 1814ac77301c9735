# mypy: disallow-untyped-defs=false
"""Kernels of GROUP BY in programs. Groups are in the order of their first rows.

SUM adds inlined integers and decimals exactly. MIN, MAX and SAMPLE compare terms of one kind by their float64s, where
these are exact, and IRIs, blank nodes and strings by their texts. Groups with other terms, or other aggregates, are
evaluated in Python.
"""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.plan_layout import DONE
from wukongs.query.programs.memo_kernels import mix
from wukongs.query.programs.program_layout import (
    CLASS_OTHER,
    COMPARED_MAX,
    COUNT_DISTINCT,
    COUNT_ROWS,
    FALL_BACK,
    HOST,
    HOSTED,
    MAX,
    MEMO_MISS,
    MIN,
    OPERATION_DATA,
    OPERATION_LEFT,
    OPERATION_MEMO,
    OPERATION_OUT,
    OPERATION_RIGHT,
    PROGRAM_MISSED,
    SAMPLE,
    SUM,
    TABLE_ADDRESS,
    TABLE_COLUMNS,
    TABLE_ROWS,
    TEXT_CLASS,
    TEXT_SIZE,
    TEXT_WIDTH,
)
from wukongs.query.programs.sort_kernels import order_class
from wukongs.query.programs.space_kernels import add_missed_key, slots_for, table_for, take_cells
from wukongs.query.programs.text_kernels import compare_texts, read_text
from wukongs.store.addresses import int64_array, rows_of
from wukongs.store.dtypes import UNBOUND
from wukongs.store.inline_kernels import pack_decimal, pack_integer
from wukongs.store.jit import njit_uncounted
from wukongs.store.value_kernels import EXACT_LIMIT, KIND_DECIMAL, KIND_NONE, exact_part, numeric_value

_SUM_MAX = 4e18
"""Upper bound of sums, checked in float64, so that they fit an int64."""


@njit_uncounted
def number_groups(rows, keys, groups, firsts, slots):
    """Number rows by the cells of their keys; return the number of groups.

    Parameters
    ----------
    rows : int64[n, columns]; keys : int64[k], columns; slots : int64[...], empty (-1), a power of two.
    groups : int64[n]                Written: the group of each row.
    firsts : int64[n]                Written: the first row of each group."""
    size, found = slots.shape[0], np.int64(0)
    for i in range(rows.shape[0]):
        mixed = np.int64(0)
        for k in range(keys.shape[0]):
            mixed = mix(mixed, rows[i, keys[k]])
        at = (mixed ^ (mixed >> 32)) & (size - 1)
        while slots[at] >= 0:
            first, is_equal = firsts[slots[at]], True
            for k in range(keys.shape[0]):
                if rows[first, keys[k]] != rows[i, keys[k]]:
                    is_equal = False
                    break
            if is_equal:
                break
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = found
            firsts[found] = i
            found += 1
        groups[i] = slots[at]
    return found


@njit_uncounted
def count_rows(rows, column, code, groups, seen, out, at):
    """COUNT into a column of the groups. seen : int64[...], empty slots, for COUNT_DISTINCT."""
    for i in range(rows.shape[0]):
        if code == COUNT_ROWS:
            out[groups[i], at] += 1
        elif rows[i, column] != UNBOUND:
            is_new = True
            if code == COUNT_DISTINCT:
                mixed = mix(mix(np.int64(0), groups[i]), rows[i, column])
                slot = (mixed ^ (mixed >> 32)) & (seen.shape[0] - 1)
                while seen[slot] >= 0:
                    if groups[seen[slot]] == groups[i] and rows[seen[slot], column] == rows[i, column]:
                        is_new = False
                        break
                    slot = (slot + 1) & (seen.shape[0] - 1)
                if is_new:
                    seen[slot] = i
            out[groups[i], at] += is_new
    for g in range(out.shape[0]):
        out[g, at] = pack_integer(out[g, at])


@njit_uncounted
def sum_rows(rows, column, groups, scales, kinds, out, at):
    """SUM into a column of the groups. Returns False if the ids do not determine it.

    scales, kinds : int64[n_groups], zeros; kinds are 1 for a decimal, 2 for an error."""
    for i in range(rows.shape[0]):
        g, term = groups[i], rows[i, column]
        if term == UNBOUND:
            kinds[g] = 2
            continue
        kind, numerator, scale = exact_part(term)
        if kind == KIND_NONE:
            return False
        total = out[g, at]
        while scale < scales[g]:
            if abs(float(numerator)) * 10.0 > _SUM_MAX:
                return False
            numerator *= 10
            scale += 1
        while scales[g] < scale:
            if abs(float(total)) * 10.0 > _SUM_MAX:
                return False
            total *= 10
            scales[g] += 1
        if abs(float(numerator)) + abs(float(total)) > _SUM_MAX:
            return False
        out[g, at] = total + numerator
        if kind == KIND_DECIMAL and kinds[g] == 0:
            kinds[g] = 1
    for g in range(out.shape[0]):
        if kinds[g] == 2:
            out[g, at] = UNBOUND
            continue
        out[g, at] = pack_decimal(out[g, at], scales[g]) if kinds[g] == 1 else pack_integer(out[g, at])
        if out[g, at] < 0:
            return False
    return True


@njit_uncounted
def extreme_rows(head, memo, rows, columns, code, groups, is_wrong, out, places):
    """MIN, MAX or SAMPLE into a column of the groups, UNBOUND before.

    Parameters
    ----------
    memo : int                       The address of the memo of computed texts.
    columns, places : int64[1]       The column of the terms; that of the groups.
    is_wrong : int64[n_groups]       Zeros; 1 for a group with an error.

    Returns the number of terms whose texts the memo lacks, -1 if neither ids nor texts determine it, or the arena is
    full."""
    entry = take_cells(head, 2 * TEXT_WIDTH)
    if entry < 0:
        return np.int64(-1)
    other_entry = entry + 8 * TEXT_WIDTH
    text, other_text = int64_array(entry, TEXT_WIDTH), int64_array(other_entry, TEXT_WIDTH)
    missed, compared, read = np.int64(0), np.int64(0), np.int64(UNBOUND)  # read: the term of other_text
    for i in range(rows.shape[0]):
        g, term = groups[i], rows[i, columns[0]]
        best = out[g, places[0]]
        if term == UNBOUND:
            is_wrong[g] = 0 if code == SAMPLE else 1
        elif best == UNBOUND:
            out[g, places[0]] = term
        elif term != best:
            kind, value = numeric_value(term)
            other_kind, other = numeric_value(best)
            known = order_class(kind)
            if known != 0 and known == order_class(other_kind):
                if value == other or not (abs(value) < EXACT_LIMIT and abs(other) < EXACT_LIMIT):
                    return np.int64(-1)
                is_less = value < other
            else:
                before = missed
                if not read_text(head, rows[i], columns, memo, entry):
                    missed = add_missed_key(head, missed, rows[i], columns)
                elif best != read:
                    read = best
                    if not read_text(head, out[g], places, memo, other_entry):
                        read = np.int64(UNBOUND)
                        missed = add_missed_key(head, missed, out[g], places)
                if missed < 0:
                    return missed
                if missed > before:
                    continue
                compared += min(text[TEXT_SIZE], other_text[TEXT_SIZE])
                is_other = text[TEXT_CLASS] == CLASS_OTHER or other_text[TEXT_CLASS] == CLASS_OTHER
                if is_other or compared > COMPARED_MAX:
                    return np.int64(-1)
                is_less = compare_texts(text, other_text) < 0
            if is_less == (code != MAX):
                out[g, places[0]] = term
    for g in range(out.shape[0]):
        if is_wrong[g] == 1:
            out[g, places[0]] = UNBOUND
    return missed


@njit_uncounted
def group_rows(operation, tables, head):
    """Write one row per group: its keys, then its aggregates (GROUP)."""
    left, out = tables[operation[OPERATION_LEFT]], tables[operation[OPERATION_OUT]]
    rows, count = rows_of(left), left[TABLE_ROWS]
    data = int64_array(operation[OPERATION_DATA], 2)
    keys, aggregates = data[0], data[1]
    data = int64_array(operation[OPERATION_DATA], 2 + keys + 2 * aggregates)
    for a in range(aggregates):
        if data[2 + keys + 2 * a] == HOSTED:
            return HOST
    of_rows = take_cells(head, 2 * count)
    slots, size = slots_for(head, count)
    if of_rows < 0 or slots < 0:
        return FALL_BACK
    groups, firsts = int64_array(of_rows, count), int64_array(of_rows + 8 * count, count)
    if operation[OPERATION_RIGHT] >= 0:
        numbers = tables[operation[OPERATION_RIGHT]]
        numbers[TABLE_ADDRESS], numbers[TABLE_ROWS], numbers[TABLE_COLUMNS] = of_rows, count, 1
    found = number_groups(rows, data[2 : 2 + keys], groups, firsts, int64_array(slots, size))
    if keys == 0 and aggregates > 0:
        found = np.int64(1)
    if not table_for(head, out, found, keys + aggregates):
        return FALL_BACK
    target = rows_of(out)
    for g in range(found):
        for k in range(keys):
            target[g, k] = rows[firsts[g], data[2 + k]]
    for a in range(aggregates):
        code, column, at = data[2 + keys + 2 * a], data[3 + keys + 2 * a], keys + a
        for g in range(found):
            target[g, at] = UNBOUND if code in (MIN, MAX, SAMPLE) else 0
        scratch = take_cells(head, 2 * found + 1)
        if scratch < 0:
            return FALL_BACK
        scales, kinds = int64_array(scratch, found), int64_array(scratch + 8 * found, found)
        for g in range(found):
            scales[g] = kinds[g] = 0
        if code == SUM:
            if not sum_rows(rows, column, groups, scales, kinds, target, at):
                return HOST
        elif code in (MIN, MAX, SAMPLE):
            columns, places = data[3 + keys + 2 * a :], int64_array(scratch + 16 * found, 1)
            places[0] = at
            memo = operation[OPERATION_MEMO]
            missed = extreme_rows(head, memo, rows, columns[:1], code, groups, kinds, target, places)
            if missed != 0:
                head[PROGRAM_MISSED] = missed
                return MEMO_MISS if missed > 0 and memo != 0 else HOST
        else:
            seen, seen_size = np.int64(0), np.int64(0)
            if code == COUNT_DISTINCT:
                seen, seen_size = slots_for(head, count)
                if seen < 0:
                    return FALL_BACK
            count_rows(rows, column, code, groups, int64_array(seen, seen_size), target, at)
    return DONE
