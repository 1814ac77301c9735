# mypy: disallow-untyped-defs=false
"""Terms as spans of a buffer -> canonical form -> id, and the table of the distinct terms met.

The tables grow outside: a kernel that meets a full one returns which it is, with its state at the start of the line
(or term) to be done again, and is called again after the caller has made room.

Invariants of the term table: text[offsets[i]:offsets[i + 1]] is the canonical form of entry i, ids[i] its hash id,
values[i] what stands for it in the columns: the id, or CLASH_FIRST - k if it is the k-th entry whose id another text
of this table had first. slots is an open-addressing table of entry numbers + 1, at most half full, entered by the top
bits of the id: ids are uniform, so these are as good as a hash.
"""

from __future__ import annotations

import numpy as np

from store.dtypes import CLASH_FIRST, UNBOUND
from store.hash_kernels import hash_id
from store.inline_kernels import TYPE_STRING, pack_typed, type_code
from store.jit import njit, njit_inline
from store.ntriples_kernels import (
    BLANK,
    E_AFTER_TERM,
    E_NULL,
    F_ESCAPED,
    F_KIND,
    F_LEX_STOP,
    F_START,
    F_STOP,
    F_TAIL,
    F_TAIL_START,
    F_TAIL_STOP,
    FIELDS,
    IRI,
    LITERAL,
    ROLE_GRAPH,
    TAIL_DATATYPE,
    TAIL_LANGUAGE,
    find_line_end,
    read_statement,
    read_term,
)
from store.slot_kernels import same_bytes, slot_shift
from store.unicode_kernels import read_escape, write_utf8

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

BLOCK_ROWS = 256
SCOPE_SIZE_MAX = 32
"""A canonical form is at most this much longer than its N-Triples form: the scope of a blank node."""


@njit_inline
def _write_decoded(data, start, stop, out, at):
    """Copy data[start:stop] to out[at:] with its escapes decoded; return where it ends. The escapes are valid."""
    i = start
    while i < stop:
        if data[i] != 92:
            out[at] = data[i]
            at += 1
            i += 1
            continue
        kind = data[i + 1]
        if kind == 117 or kind == 85:
            point, i = read_escape(data, i, stop)
            at = np.int64(write_utf8(out, at, point))
            continue
        if kind == 116:
            out[at] = 9
        elif kind == 98:
            out[at] = 8
        elif kind == 110:
            out[at] = 10
        elif kind == 114:
            out[at] = 13
        elif kind == 102:
            out[at] = 12
        else:
            out[at] = kind
        at += 1
        i += 2
    return at


@njit_inline
def _write_canonical(data, fields, row, is_string, scope_prefix, out, at):
    """Write the canonical form of a term at out[at:]; return where it ends.

    The term is fields[row]; scope_prefix : uint8[20], what a blank node's label gets in place of `_:`."""
    start = fields[row, F_START]
    stop = fields[row, F_STOP]
    if fields[row, F_KIND] == BLANK:
        for i in range(len(scope_prefix)):
            out[at + i] = scope_prefix[i]
        at += len(scope_prefix)
        for i in range(start + 2, stop):
            out[at] = data[i]
            at += 1
        return at
    if fields[row, F_KIND] == IRI:
        return _write_decoded(data, start, stop, out, at)
    at = np.int64(_write_decoded(data, start, fields[row, F_LEX_STOP], out, at))
    out[at] = 34
    at += 1
    if fields[row, F_TAIL] == TAIL_LANGUAGE:
        out[at] = 64
        at += 1
        for i in range(fields[row, F_TAIL_START], fields[row, F_TAIL_STOP]):
            byte = data[i]
            out[at] = byte + 32 if 65 <= byte <= 90 else byte
            at += 1
    elif fields[row, F_TAIL] == TAIL_DATATYPE and not is_string:
        out[at] = 94
        out[at + 1] = 94
        at = np.int64(_write_decoded(data, fields[row, F_TAIL_START] - 1, fields[row, F_TAIL_STOP] + 1, out, at + 2))
    return at


@njit_inline
def _write_slow(data, fields, row, code, names, types, scope_prefix, text, start):
    """Write the canonical form of a term that is not in it as it stands to text[start:].

    Returns (where it ends, inlined id or -1): an escape may have hidden a form that can be inlined, or xsd:string."""
    stop = np.int64(_write_canonical(data, fields, row, code == TYPE_STRING, scope_prefix, text, start))
    if fields[row, F_KIND] == LITERAL and text[stop - 1] == 62:
        quote = stop - 1
        while text[quote] != 34:
            quote -= 1
        code = np.int64(type_code(text, quote + 4, stop - 1, names, types))
        if code == TYPE_STRING:
            return quote + 1, np.int64(-1)
        return stop, np.int64(pack_typed(text, start + 1, quote, code, types))
    return stop, np.int64(-1)


@njit
def intern_terms(
    data, fields, count, found, names, types, scope_prefix, seed, mask, text, offsets, ids, values, slots, state
):
    """Write to found[i] what stands in the columns for the term fields[i], i < count; enter new terms into the table.

    An inlined id, a hash id, the code of a clash, or UNBOUND for kind 0. All tables have room for `count` terms."""
    slot_mask = len(slots) - 1
    shift = slot_shift(slots)
    for i in range(count):
        kind = fields[i, F_KIND]
        if kind == 0:
            found[i] = UNBOUND
            continue
        start = fields[i, F_START]
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
        entry = state[S_TERMS]
        end = offsets[entry]
        if ready:
            term = np.int64(hash_id(data, start, stop, seed, mask))
        else:
            start = end
            stop, packed = _write_slow(data, fields, i, code, names, types, scope_prefix, text, start)
            if packed >= 0:
                found[i] = packed
                continue
            term = np.int64(hash_id(text, start, stop, seed, mask))
        size = stop - start
        slot = term >> shift
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
        if known >= 0:
            found[i] = values[known]
            continue
        if ready:
            for j in range(size):
                text[end + j] = data[start + j]
        offsets[entry + 1] = end + size
        ids[entry] = term
        values[entry] = term
        if clash:
            values[entry] = CLASH_FIRST - state[S_CLASHES]
            state[S_CLASHES] += 1
        slots[slot] = entry + 1
        state[S_TERMS] = entry + 1
        found[i] = values[entry]


@njit
def encode_lines(
    data,
    times,
    classes,
    names,
    types,
    scope_prefix,
    seed,
    mask,
    columns,
    malformed,
    text,
    offsets,
    ids,
    values,
    slots,
    state,
):
    """Encode the lines of data from state[S_POSITION] on, a block of lines at a time.

    data : uint8[n]; times : NO_TIMES, TIME_SUFFIX or TIME_PREFIX; columns : int64[5, rows], subjects, predicates,
    objects, graphs (UNBOUND where there is none) and times, filled from state[S_ROWS] on; malformed : int64[m, 5],
    rows of (line number, start, end, error position, error code); the rest as in the module's text.

    Returns DONE or what is full."""
    fields = np.zeros((4 * BLOCK_ROWS, FIELDS), np.int64)
    found = np.empty(4 * BLOCK_ROWS, np.int64)
    block_times = np.empty(BLOCK_ROWS, np.int64)
    end = len(data)
    p = state[S_POSITION]
    while p < end:
        line = state[S_LINE]
        bad = state[S_MALFORMED]
        rows = 0
        while p < end and rows < BLOCK_ROWS:
            after, at, count, time = read_statement(data, p, end, times, classes, fields, 4 * rows)
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


@njit
def encode_terms(
    data,
    starts,
    valid,
    role,
    classes,
    names,
    types,
    scope_prefix,
    seed,
    mask,
    column,
    text,
    offsets,
    ids,
    values,
    slots,
    state,
):
    """Encode terms that stand one by one, from term state[S_POSITION] on, into column[state[S_ROWS] + term number].

    data : uint8[...]; starts : int64[n + 1], term i is data[starts[i]:starts[i + 1]]; valid : bool[n], or empty if no
    term is missing; role : a ROLE constant. Returns DONE, what is full, or FAILED with state[S_ERROR], S_ERROR_AT."""
    count = len(starts) - 1
    fields = np.zeros((min(count, 4 * BLOCK_ROWS), FIELDS), np.int64)
    while state[S_POSITION] < count:
        first = state[S_POSITION]
        size = min(count - first, 4 * BLOCK_ROWS)
        for j in range(size):
            i = first + j
            if len(valid) > 0 and not valid[i]:
                fields[j, F_KIND] = 0
                if role == ROLE_GRAPH:
                    continue
                after, at = -E_NULL, starts[i]
            else:
                after, at = read_term(data, starts[i], starts[i + 1], role, classes, fields, j)
                if after >= 0 and after < starts[i + 1]:
                    after, at = -E_AFTER_TERM, after
            if after < 0:
                state[S_POSITION] = i
                state[S_ERROR] = -after
                state[S_ERROR_AT] = at - starts[i]
                return FAILED
        if state[S_TERMS] + size > len(slots) >> 1:
            return FULL_TERMS
        state[S_TEXT_NEEDED] = offsets[state[S_TERMS]] + starts[first + size] - starts[first] + size * SCOPE_SIZE_MAX
        if state[S_TEXT_NEEDED] > len(text):
            return FULL_TEXT
        found = column[state[S_ROWS] + first : state[S_ROWS] + first + size]
        intern_terms(
            data, fields, size, found, names, types, scope_prefix, seed, mask, text, offsets, ids, values, slots, state
        )
        state[S_POSITION] = first + size
    return DONE
