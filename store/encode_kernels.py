# mypy: disallow-untyped-defs=false
"""Terms as spans of a buffer -> canonical form -> id, and the table of the distinct terms met.

The tables grow outside. A kernel that meets a full table returns which one it is; its state is at the start of the line
(or term) to be done again. The caller makes room and calls it again.

Invariants of the term table: text[offsets[i]:offsets[i + 1]] is the canonical form of entry i, ids[i] its hash id,
values[i] its value in the columns: the id, or CLASH_FIRST - k if it is the k-th entry whose id another text of this
table had first. slots is an open-addressing table of entry numbers + 1, at most half full, entered by the mixed id
(store/slot_kernels.py). memo : int32[power of two], entry numbers + 1 of IRIs by another hash, which is cheap: an IRI
that has been read and checked before is not read and checked again, see store/memo_kernels.py.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.canonical_kernels import SCOPE_SIZE_MAX, write_slow
from wukongs.store.dtypes import CLASH_FIRST, UNBOUND
from wukongs.store.hash_kernels import hash_id
from wukongs.store.inline_kernels import TYPE_STRING, pack_string, pack_typed, type_code
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.ntriples_kernels import (
    BLANK,
    E_AFTER_TERM,
    E_LANGUAGE_TYPE,
    E_NULL,
    F_ESCAPED,
    F_KIND,
    F_LEX_STOP,
    F_MEMO,
    F_START,
    F_STOP,
    F_TAIL,
    F_TAIL_START,
    F_TAIL_STOP,
    FIELDS,
    IRI,
    KNOWN,
    LITERAL,
    ROLE_GRAPH,
    SAME,
    TAIL_DATATYPE,
    TAIL_NONE,
    find_line_end,
    has_language_type,
    read_statement,
    read_term,
)
from wukongs.store.slot_kernels import copy_bytes, mix_id, same_bytes, slot_shift

DONE = 0
FULL_TERMS = 1
FULL_TEXT = 2
FULL_ROWS = 3
FULL_MALFORMED = 4
FAILED = 5

S_POSITION = 0
S_LINE = 1
S_ROWS = 2
S_TERMS = 3
S_CLASHES = 4
S_MALFORMED = 5
S_ERROR = 6
S_ERROR_AT = 7
S_TEXT_NEEDED = 8
STATE_SIZE = 9

BLOCK_ROWS = 16


@njit_uncounted
def intern_terms(
    data, fields, count, found, names, types, scope_prefix, seed, mask, text, offsets, ids, values, slots, memo, state
):
    """Write to found[i] the value of the term fields[i] in the columns, i < count; enter new terms into the table.

    An inlined id, a hash id, the code of a clash, or UNBOUND for kind 0. All tables have room for `count` terms."""
    slot_mask = len(slots) - 1
    shift = slot_shift(slots)
    for i in range(count):
        kind = fields[i, F_KIND]
        if kind == 0:
            found[i] = UNBOUND
            continue
        start = fields[i, F_START]
        if kind == KNOWN:
            found[i] = values[start]
            continue
        if kind == SAME:
            found[i] = found[i - 4]
            continue
        stop = fields[i, F_STOP]
        ready = kind != BLANK and fields[i, F_ESCAPED] == 0
        code = np.int64(-1)
        if kind == LITERAL and fields[i, F_TAIL] == TAIL_DATATYPE:
            code = np.int64(type_code(data, fields[i, F_TAIL_START], fields[i, F_TAIL_STOP], names, types))
            if ready and code > TYPE_STRING:
                packed = np.int64(pack_typed(data, start + 1, fields[i, F_LEX_STOP], code, types))
                if packed >= 0:
                    found[i] = packed
                    continue
            ready = ready and code != TYPE_STRING
        if kind == LITERAL and ready and fields[i, F_TAIL] == TAIL_NONE:
            packed = np.int64(pack_string(data, start + 1, stop - 1))
            if packed >= 0:
                found[i] = packed
                continue
        entry = state[S_TERMS]
        end = offsets[entry]
        if ready:
            term = np.int64(hash_id(data, start, stop, seed, mask))
        else:
            start = end
            stop, packed = write_slow(data, fields, i, code, names, types, scope_prefix, text, start)
            if packed >= 0:
                found[i] = packed
                continue
            term = np.int64(hash_id(text, start, stop, seed, mask))
        size = stop - start
        slot = mix_id(term) >> shift
        clash = False
        known = np.int64(-1)
        while known < 0 and slots[slot] != 0:
            other = np.int64(slots[slot]) - 1
            if ids[other] == term:
                at = offsets[other]
                same = offsets[other + 1] - at == size
                if same and ready:
                    same = same_bytes(data, start, size, text, at)
                elif same:
                    same = same_bytes(text, start, size, text, at)
                if same:
                    known = other
                clash = True
            slot = (slot + 1) & slot_mask
        if kind == IRI and ready and fields[i, F_MEMO] >= 0:
            memo[fields[i, F_MEMO]] = (known if known >= 0 else entry) + 1
        if known >= 0:
            found[i] = values[known]
            continue
        if ready:
            copy_bytes(data, start, size, text, end)
        offsets[entry + 1] = end + size
        ids[entry] = term
        values[entry] = term
        if clash:
            values[entry] = CLASH_FIRST - state[S_CLASHES]
            state[S_CLASHES] += 1
        slots[slot] = entry + 1
        state[S_TERMS] = entry + 1
        found[i] = values[entry]


@njit_uncounted
def encode_lines(
    data,
    times,
    terms_max,
    classes,
    names,
    types,
    scope_prefix,
    seed,
    mask,
    columns,
    malformed,
    fields,
    found,
    block_times,
    text,
    offsets,
    ids,
    values,
    slots,
    memo,
    state,
):
    """Encode the lines of data from state[S_POSITION] on, a block of lines at a time.

    data : uint8[n]; times : NO_TIMES, TIME_SUFFIX or TIME_PREFIX; terms_max : TRIPLE or QUAD; columns :
    int64[5, rows], subjects, predicates, objects, graphs (UNBOUND where there is none) and times, filled from
    state[S_ROWS] on; malformed : int64[m, 5], rows of (line number, start, end, error position, error code); fields :
    int64[4 * BLOCK_ROWS, FIELDS], found : int64[4 * BLOCK_ROWS] and block_times : int64[BLOCK_ROWS] are scratch; the
    rest as in the module's text.

    Returns DONE, or the code of the table that is full."""
    end = len(data)
    p = state[S_POSITION]
    while p < end:
        line = state[S_LINE]
        bad = state[S_MALFORMED]
        rows = 0
        while p < end and rows < BLOCK_ROWS:
            after, at, count, time = read_statement(
                data, p, end, times, terms_max, classes, fields, 4 * rows, memo, offsets, text
            )
            if after < 0:
                if bad >= malformed.shape[0]:
                    return FULL_MALFORMED
                malformed[bad, 0] = line
                malformed[bad, 1] = p
                malformed[bad, 3] = at
                malformed[bad, 4] = -after
                after = find_line_end(data, at, end)
                malformed[bad, 2] = after
                bad += 1
            elif count > 0:
                if count == 3:
                    fields[4 * rows + 3, F_KIND] = 0
                block_times[rows] = time
                rows += 1
            p = after + 1
            if p < end and data[after] == 13 and data[p] == 10:
                p += 1
            line += 1
        row = state[S_ROWS]
        if row + rows > columns.shape[1]:
            return FULL_ROWS
        if state[S_TERMS] + 4 * rows > len(slots) >> 1:
            return FULL_TERMS
        state[S_TEXT_NEEDED] = offsets[state[S_TERMS]] + (p - state[S_POSITION]) + 4 * rows * SCOPE_SIZE_MAX
        if state[S_TEXT_NEEDED] > len(text):
            return FULL_TEXT
        intern_terms(
            data,
            fields,
            4 * rows,
            found,
            names,
            types,
            scope_prefix,
            seed,
            mask,
            text,
            offsets,
            ids,
            values,
            slots,
            memo,
            state,
        )
        for i in range(rows):
            for role in range(4):
                columns[role, row + i] = found[4 * i + role]
            columns[4, row + i] = block_times[i]
        state[S_ROWS] = row + rows
        state[S_MALFORMED] = bad
        state[S_LINE] = line
        state[S_POSITION] = p
    return DONE


@njit_uncounted
def encode_terms(
    data,
    starts,
    stops,
    valid,
    role,
    classes,
    names,
    types,
    scope_prefix,
    seed,
    mask,
    column,
    fields,
    text,
    offsets,
    ids,
    values,
    slots,
    memo,
    state,
):
    """Encode terms that stand one by one, from term state[S_POSITION] on, into column[state[S_ROWS] + term number].

    data : uint8[...]; starts, stops : int64[n], term i is data[starts[i]:stops[i]]; valid : bool[n], or empty if no
    term is missing; role : a ROLE constant. Returns DONE, the code of the full table, or FAILED with state[S_ERROR],
    S_ERROR_AT."""
    count = len(starts)
    while state[S_POSITION] < count:
        first = state[S_POSITION]
        size = min(count - first, 4 * BLOCK_ROWS)
        text_size = np.int64(0)
        for j in range(size):
            i = first + j
            text_size += stops[i] - starts[i]
            if len(valid) > 0 and not valid[i]:
                fields[j, F_KIND] = 0
                if role == ROLE_GRAPH:
                    continue
                after, at = -E_NULL, starts[i]
            else:
                after, at = read_term(data, starts[i], stops[i], role, classes, fields, j, memo, offsets, text)
                if after >= 0 and after < stops[i]:
                    after, at = -E_AFTER_TERM, after
                if after >= 0 and has_language_type(data, classes, fields, j):
                    after, at = -E_LANGUAGE_TYPE, fields[j, F_TAIL_START] - 1
            if after < 0:
                state[S_POSITION] = i
                state[S_ERROR] = -after
                state[S_ERROR_AT] = at - starts[i]
                return FAILED
        if state[S_TERMS] + size > len(slots) >> 1:
            return FULL_TERMS
        state[S_TEXT_NEEDED] = offsets[state[S_TERMS]] + text_size + size * SCOPE_SIZE_MAX
        if state[S_TEXT_NEEDED] > len(text):
            return FULL_TEXT
        found = column[state[S_ROWS] + first : state[S_ROWS] + first + size]
        intern_terms(
            data,
            fields,
            size,
            found,
            names,
            types,
            scope_prefix,
            seed,
            mask,
            text,
            offsets,
            ids,
            values,
            slots,
            memo,
            state,
        )
        state[S_POSITION] = first + size
    return DONE


@njit
def find_terms(data, p, times, terms_max, classes, bounds, row_times, bad):
    """Find where the terms of each statement stand, line by line from data[p] on, up to the first malformed line.

    data : uint8[n]; times, terms_max : as for encode_lines; bounds : int64[4, 2, rows], filled with where subject,
    predicate, object and graph begin and end, 0 and 0 for no graph; row_times : int64[rows], filled; bad : int64[5], a
    row of `malformed` as encode_lines fills it, lines from 1.

    Returns the number of statements; -1 if a line is malformed."""
    end = len(data)
    fields = np.zeros((4, FIELDS), np.int64)
    memo = np.empty(0, np.int32)
    offsets = np.empty(0, np.int64)
    rows = 0
    line = 1
    while p < end:
        after, at, count, time = read_statement(data, p, end, times, terms_max, classes, fields, 0, memo, offsets, data)
        if after < 0:
            bad[0] = line
            bad[1] = p
            bad[2] = find_line_end(data, at, end)
            bad[3] = at
            bad[4] = -after
            return -1
        for role in range(4 if count > 0 else 0):
            bounds[role, 0, rows] = fields[role, F_START] if role < count else 0
            bounds[role, 1, rows] = fields[role, F_STOP] if role < count else 0
        if count > 0:
            row_times[rows] = time
            rows += 1
        p = after + 1
        if p < end and data[after] == 13 and data[p] == 10:
            p += 1
        line += 1
    return rows
