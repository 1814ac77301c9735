# mypy: disallow-untyped-defs=false
"""The kernel of programs: one call runs the operations of a query over tables of one arena.

Each operation allocates its output in the arena. On a memo miss the program stops, and the operation begins again once
the memo has the keys. The arena bounds the memory of all tables together.
"""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.compiled_kernels import run_call
from wukongs.query.plans.plan_layout import (
    CALL_OUT,
    CALL_PLAN,
    CALL_ROOM,
    CALL_SEED_COUNT,
    CALL_SEEDS,
    CALL_WIDTH,
    CONDITION_LEFT,
    CONDITION_OP,
    CONDITION_RIGHT,
    CONDITION_TERM,
    CONDITION_WIDTH,
    DONE,
    IS_OTHER,
    PLAN_COLUMNS,
    PLAN_HEAD,
)
from wukongs.query.programs.group_kernels import group_rows
from wukongs.query.programs.join_kernels import join_tables
from wukongs.query.programs.memo_kernels import look_up
from wukongs.query.programs.program_layout import (
    BESIDE,
    COMPARED_MAX,
    EVALUATE,
    EXPLORE,
    EXTEND,
    FALL_BACK,
    FILTER,
    FOUND_COLUMNS,
    FOUND_FROM,
    FOUND_ROWS,
    FOUND_STATUS,
    GROUP,
    HOST,
    JOIN,
    MEMO_MISS,
    NO_COMPARISON,
    OPERATION_CODE,
    OPERATION_COUNT,
    OPERATION_DATA,
    OPERATION_FLAG,
    OPERATION_LEFT,
    OPERATION_MEMO,
    OPERATION_OUT,
    OPERATION_RIGHT,
    OPERATION_WIDTH,
    PICK_COLUMN,
    PICK_NUMBER,
    PICK_RIGHT,
    PICK_VALUE,
    PICK_WIDTH,
    PROGRAM_ARENA,
    PROGRAM_AT,
    PROGRAM_CELLS,
    PROGRAM_EPOCH,
    PROGRAM_HEAD,
    PROGRAM_MISSED,
    PROGRAM_OPERATIONS,
    PROGRAM_RESULT,
    PROGRAM_TABLES,
    PROGRAM_USED,
    PROJECT,
    SEMIJOIN,
    SORT,
    TABLE_ADDRESS,
    TABLE_COLUMNS,
    TABLE_ROWS,
    TABLE_WIDTH,
    TEXT_ADDRESS,
    TEXT_SIZE,
    TEXT_WIDTH,
    UNION,
    UNKNOWN,
)
from wukongs.query.programs.sort_kernels import sort_rows
from wukongs.query.programs.space_kernels import add_missed_key, table_for, take_cells
from wukongs.query.programs.text_kernels import read_text, text_verdict
from wukongs.store.addresses import int64_array, int64_table, rows_of
from wukongs.store.dtypes import UNBOUND
from wukongs.store.jit import njit_uncounted
from wukongs.store.value_kernels import numeric_value, verdict_of


@njit_uncounted
def explore_rows(operation, tables, head):
    """Run a compiled plan from the rows of a table (EXPLORE)."""
    call = int64_array(operation[OPERATION_DATA], CALL_WIDTH)
    width = int64_array(call[CALL_PLAN], PLAN_HEAD)[PLAN_COLUMNS]
    out = tables[operation[OPERATION_OUT]]
    out[TABLE_ROWS] = 0
    out[TABLE_COLUMNS] = width
    call[CALL_SEED_COUNT] = 0
    if operation[OPERATION_LEFT] >= 0:
        left = tables[operation[OPERATION_LEFT]]
        if left[TABLE_ROWS] == 0:
            return DONE
        call[CALL_SEEDS] = left[TABLE_ADDRESS]
        call[CALL_SEED_COUNT] = left[TABLE_ROWS]
        if left[TABLE_COLUMNS] < width:
            address = take_cells(head, left[TABLE_ROWS] * width)
            if address < 0:
                return FALL_BACK
            source, seeds = rows_of(left), int64_table(address, left[TABLE_ROWS], width)
            for i in range(source.shape[0]):
                for column in range(source.shape[1]):
                    seeds[i, column] = source[i, column]
            call[CALL_SEEDS] = address
    out[TABLE_ADDRESS] = head[PROGRAM_ARENA] + 8 * head[PROGRAM_USED]
    call[CALL_OUT] = out[TABLE_ADDRESS]
    call[CALL_ROOM] = (head[PROGRAM_CELLS] - head[PROGRAM_USED]) // width
    if call[CALL_ROOM] == 0:
        return FALL_BACK
    count = run_call(call)
    if count < 0:
        return FALL_BACK
    out[TABLE_ROWS] = count
    take_cells(head, count * width)
    return DONE


@njit_uncounted
def write_picked(picks, source, i, target, at):
    """Write row `at` of a table from row i of another one."""
    for column in range(picks.shape[0]):
        pick = picks[column, PICK_COLUMN]
        if pick >= 0:
            target[at, column] = source[i, pick]
        elif pick == PICK_NUMBER:
            target[at, column] = i
        else:
            target[at, column] = picks[column, PICK_VALUE]


@njit_uncounted
def project_rows(operation, tables, head):
    """Write a table with other columns (PROJECT)."""
    left, width = tables[operation[OPERATION_LEFT]], operation[OPERATION_COUNT]
    if not table_for(head, tables[operation[OPERATION_OUT]], left[TABLE_ROWS], width):
        return FALL_BACK
    source, target = rows_of(left), rows_of(tables[operation[OPERATION_OUT]])
    picks = int64_table(operation[OPERATION_DATA], width, PICK_WIDTH)
    for i in range(left[TABLE_ROWS]):
        write_picked(picks, source, i, target, i)
    return DONE


@njit_uncounted
def unite_rows(operation, tables, head):
    """Append the rows of one table to those of another one (UNION)."""
    left, right = tables[operation[OPERATION_LEFT]], tables[operation[OPERATION_RIGHT]]
    width, count = operation[OPERATION_COUNT], left[TABLE_ROWS]
    if not table_for(head, tables[operation[OPERATION_OUT]], count + right[TABLE_ROWS], width):
        return FALL_BACK
    target = rows_of(tables[operation[OPERATION_OUT]])
    picks = int64_table(operation[OPERATION_DATA], 2 * width, PICK_WIDTH)
    source = rows_of(left)
    for i in range(count):
        write_picked(picks[:width], source, i, target, i)
    source = rows_of(right)
    for i in range(right[TABLE_ROWS]):
        write_picked(picks[width:], source, i, target, count + i)
    return DONE


@njit_uncounted
def join_beside(operation, tables, head):
    """Join rows with those that carry their number; keep rows without any (BESIDE)."""
    left, right = tables[operation[OPERATION_LEFT]], tables[operation[OPERATION_RIGHT]]
    out, number = tables[operation[OPERATION_OUT]], operation[OPERATION_FLAG]
    rows, found, width = rows_of(left), rows_of(right), out[TABLE_COLUMNS]
    if not table_for(head, out, left[TABLE_ROWS] + right[TABLE_ROWS], width):
        return FALL_BACK
    target = rows_of(out)
    picks = int64_table(operation[OPERATION_DATA], width, PICK_WIDTH)
    at, i = 0, 0
    for r in range(left[TABLE_ROWS]):
        is_alone = i == right[TABLE_ROWS] or found[i, number] != r
        while is_alone or (i < right[TABLE_ROWS] and found[i, number] == r):
            for column in range(width):
                pick = picks[column, PICK_COLUMN]
                if pick >= 0:
                    cell, own = rows[r, pick], picks[column, PICK_VALUE] - 1
                    target[at, column] = found[i, own] if cell == UNBOUND and own >= 0 and not is_alone else cell
                else:
                    target[at, column] = picks[column, PICK_VALUE] if is_alone else found[i, PICK_RIGHT - pick]
            at += 1
            if is_alone:
                break
            i += 1
    out[TABLE_ROWS] = at
    return DONE


@njit_uncounted
def keep_named(operation, tables, head):
    """Keep the rows whose number is in another table, or those whose number is not (SEMIJOIN)."""
    out, right = tables[operation[OPERATION_OUT]], tables[operation[OPERATION_RIGHT]]
    number, is_anti = operation[OPERATION_FLAG], operation[OPERATION_COUNT] == 1
    rows, found, numbers = rows_of(out), rows_of(right), rows_of(tables[operation[OPERATION_LEFT]])
    count = out[TABLE_ROWS]  # numbers are below it
    if count == 0:
        return DONE
    address = take_cells(head, count)
    if address < 0:
        return FALL_BACK
    is_named = int64_array(address, count)
    for r in range(count):
        is_named[r] = 0
    for i in range(right[TABLE_ROWS]):
        is_named[found[i, number]] = 1
    kept = 0
    for r in range(count):
        if (is_named[numbers[r, 0]] == 1) != is_anti:
            move_row(rows, r, kept)
            kept += 1
    out[TABLE_ROWS] = kept
    return DONE


@njit_uncounted
def move_row(rows, source, target):
    """Copy a row of a table to an earlier row."""
    if target < source:
        for column in range(rows.shape[1]):
            rows[target, column] = rows[source, column]


@njit_uncounted
def filter_rows(operation, tables, head):
    """Keep the rows that fulfil a condition (FILTER)."""
    out = tables[operation[OPERATION_OUT]]
    count, keys, memo = out[TABLE_ROWS], operation[OPERATION_COUNT], operation[OPERATION_MEMO]
    data = int64_array(operation[OPERATION_DATA], CONDITION_WIDTH + TEXT_WIDTH + keys)
    op, left, right, term = data[CONDITION_OP], data[CONDITION_LEFT], data[CONDITION_RIGHT], data[CONDITION_TERM]
    columns, rows = data[CONDITION_WIDTH + TEXT_WIDTH :], rows_of(out)
    sides, other_text = data[CONDITION_LEFT : CONDITION_RIGHT + 1], data[CONDITION_WIDTH:]
    texts, address = take_cells(head, 2 * TEXT_WIDTH), take_cells(head, count)
    if texts < 0 or address < 0:
        return FALL_BACK
    verdicts = int64_array(address, count)
    text, right_text = int64_array(texts, TEXT_WIDTH), int64_array(texts + 8 * TEXT_WIDTH, TEXT_WIDTH)
    other_kind, other = numeric_value(term)
    missed, compared = np.int64(0), np.int64(0)
    for i in range(count):
        verdict = np.int64(UNKNOWN)
        if op == IS_OTHER:
            if rows[i, left] >= 0:
                verdict = np.int64(rows[i, left] != term)
        elif op != NO_COMPARISON:
            if right >= 0:
                other_kind, other = numeric_value(rows[i, right])
            kind, value = numeric_value(rows[i, left])
            verdict = np.int64(verdict_of(op, kind, value, other_kind, other))
            if verdict < 0 and (right >= 0 or other_text[TEXT_ADDRESS] != 0):
                is_read = read_text(head, rows[i], sides, 0, texts)
                if right >= 0:
                    is_read &= read_text(head, rows[i], sides[1:], 0, texts + 8 * TEXT_WIDTH)
                    if is_read:
                        compared += min(text[TEXT_SIZE], right_text[TEXT_SIZE])
                        if compared > COMPARED_MAX:
                            return FALL_BACK
                        verdict = np.int64(text_verdict(op, text, right_text))
                elif is_read:
                    verdict = np.int64(text_verdict(op, text, other_text))
        if verdict < 0:
            verdict = look_up(memo, rows[i], columns, head[PROGRAM_EPOCH])
            if verdict == UNKNOWN:
                missed = add_missed_key(head, missed, rows[i], columns)
                if missed < 0:
                    return FALL_BACK
        verdicts[i] = verdict
    if missed > 0:
        head[PROGRAM_MISSED] = missed
        return MEMO_MISS
    kept = 0
    for i in range(count):
        if verdicts[i] == 1:
            move_row(rows, i, kept)
            kept += 1
    out[TABLE_ROWS] = kept
    return DONE


@njit_uncounted
def extend_rows(operation, tables, head):
    """Add a column of values from a memo (EXTEND)."""
    left, out = tables[operation[OPERATION_LEFT]], tables[operation[OPERATION_OUT]]
    count, width, keys = left[TABLE_ROWS], left[TABLE_COLUMNS], operation[OPERATION_COUNT]
    columns = int64_array(operation[OPERATION_DATA], keys)
    if not table_for(head, out, count, width + 1):
        return FALL_BACK
    source, target = rows_of(left), rows_of(out)
    missed = np.int64(0)
    for i in range(count):
        value = look_up(operation[OPERATION_MEMO], source[i], columns, head[PROGRAM_EPOCH])
        if value == UNKNOWN:
            missed = add_missed_key(head, missed, source[i], columns)
            if missed < 0:
                return FALL_BACK
        for column in range(width):
            target[i, column] = source[i, column]
        target[i, width] = value
    if missed > 0:
        head[PROGRAM_MISSED] = missed
        return MEMO_MISS
    return DONE


@njit_uncounted
def run_operation(operation, tables, head):
    """Run one operation. Returns DONE, MEMO_MISS, HOST or FALL_BACK."""
    code = operation[OPERATION_CODE]
    if code == EXPLORE:
        return explore_rows(operation, tables, head)
    if code == BESIDE:
        return join_beside(operation, tables, head)
    if code == SEMIJOIN:
        return keep_named(operation, tables, head)
    if code == UNION:
        return unite_rows(operation, tables, head)
    if code == PROJECT:
        return project_rows(operation, tables, head)
    if code == FILTER:
        return filter_rows(operation, tables, head)
    if code == EXTEND:
        return extend_rows(operation, tables, head)
    if code == GROUP:
        return group_rows(operation, tables, head)
    if code == SORT:
        return sort_rows(operation, tables, head)
    if code == EVALUATE:
        return HOST
    assert code == JOIN
    return join_tables(operation, tables, head)


@njit_uncounted
def keep_result(head, result, begin, found):
    """Move the rows of a result to a cell of the arena before them. Returns the cell behind them, -1 if the arena is
    full: rows that no operation has made may lie outside of it."""
    cells = result[TABLE_ROWS] * result[TABLE_COLUMNS]
    if begin + cells > head[PROGRAM_CELLS]:
        return np.int64(-1)
    found[FOUND_FROM] = begin
    found[FOUND_ROWS] = result[TABLE_ROWS]
    found[FOUND_COLUMNS] = result[TABLE_COLUMNS]
    if cells > 0:
        source, target = int64_array(result[TABLE_ADDRESS], cells), int64_array(head[PROGRAM_ARENA] + 8 * begin, cells)
        for i in range(cells):
            target[i] = source[i]
    return begin + cells


@njit_uncounted
def run_programs(programs, first, epoch, resumes, found):
    """Run programs, alike or not, one after the other; their results lie one behind the other in the arena.

    Parameters
    ----------
    programs : int64[n]              Their addresses. All have the same arena. All that they point at must outlive the
                                     call.
    first : int                      The program to begin with.
    epoch : int                      The current release epoch.
    resumes : int                    1: the program goes on at PROGRAM_AT, where it has stopped.
    found : int64[n, FOUND_WIDTH]    Written: the status and the result of each. After MEMO_MISS: insert the missing
                                     keys, and resume. After HOST: evaluate the operation, and resume behind it.

    Returns the number of the program to go on with, n after the last one. Before that the arena is full: take the
    results, and call again.
    """
    begin = np.int64(0)
    for i in range(first, programs.shape[0]):
        head = int64_array(programs[i], PROGRAM_HEAD)
        if resumes == 0:
            head[PROGRAM_USED] = begin
            head[PROGRAM_AT] = 0
        head[PROGRAM_EPOCH] = epoch
        tables = int64_table(programs[i] + 8 * PROGRAM_HEAD, head[PROGRAM_TABLES], TABLE_WIDTH)
        operations = int64_table(
            programs[i] + 8 * (PROGRAM_HEAD + head[PROGRAM_TABLES] * TABLE_WIDTH),
            head[PROGRAM_OPERATIONS],
            OPERATION_WIDTH,
        )
        status = np.int64(DONE)
        for o in range(head[PROGRAM_AT], head[PROGRAM_OPERATIONS]):
            used = head[PROGRAM_USED]
            status = np.int64(run_operation(operations[o], tables, head))
            if status != DONE:
                head[PROGRAM_AT] = o
                head[PROGRAM_USED] = used
                break
        if status == DONE:
            end = keep_result(head, tables[head[PROGRAM_RESULT]], begin, found[i])
            if end >= 0:
                begin = end
            else:
                status = np.int64(FALL_BACK)
        if status == FALL_BACK and begin > 0:
            return i
        found[i, FOUND_STATUS] = status
    return programs.shape[0]
