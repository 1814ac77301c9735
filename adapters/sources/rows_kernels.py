# mypy: disallow-untyped-defs=false
"""Kernels of the line sources: where rows begin and when they happen; prefixed names made into IRIs."""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit
from wukongs.store.ntriples_kernels import FIELDS, find_line_end, read_statement

OK = 0
BAD_FIELDS = 1
BAD_PREFIX = 2
BAD_DOT = 3
BAD_LITERAL = 4
BLANK_ROW = 5

NO_TIME = -(1 << 62)


@njit
def next_row(data, p, end):
    """Return where the row after the one at data[p] begins: behind LF, CRLF or CR."""
    p = find_line_end(data, p, end)
    if p + 1 < end and data[p] == 13 and data[p + 1] == 10:
        p += 1
    return min(p + 1, end)


@njit
def count_rows(data, p):
    """Count the rows of data[p:]; a last one without a line end counts."""
    end = len(data)
    count = 0
    while p < end:
        p = next_row(data, p, end)
        count += 1
    return count


@njit
def scan_rows(data, p, mode, terms_max, classes, starts, times):
    """Find rows and their times, by the encoder's own grammar.

    Parameters
    ----------
    data : uint8[n_bytes]; p : where the first row begins; mode : TIME_SUFFIX or TIME_PREFIX
    terms_max : TRIPLE or QUAD
    classes : uint8[324]            The encoder's character classes.
    starts : int64[n_rows + 1]      Filled: the byte at which each row begins, and the end.
    times : int64[n_rows]           Filled: ms, NO_TIME for a row that is blank, a comment or malformed."""
    end = len(data)
    terms = np.zeros((4, FIELDS), np.int64)
    memo = np.empty(0, np.int32)
    offsets = np.empty(0, np.int64)
    for row in range(len(times)):
        starts[row] = p
        after, _, count, time = read_statement(data, p, end, mode, terms_max, classes, terms, 0, memo, offsets, data)
        times[row] = NO_TIME
        if after >= 0 and count > 0:
            times[row] = time
            p = after
        p = next_row(data, p, end)
    starts[len(times)] = p


@njit
def scan_starts(data, p, starts):
    """Fill starts : int64[n_rows + 1] with the byte at which each row begins, and the end."""
    end = len(data)
    for row in range(len(starts) - 1):
        starts[row] = p
        p = next_row(data, p, end)
    starts[len(starts) - 1] = p


@njit
def read_integers(data, values):
    """Read the integer of each row into values : int64[n_rows]; NO_TIME for a row that is not one integer."""
    end = len(data)
    p = 0
    for row in range(len(values)):
        line_end = find_line_end(data, p, end)
        i = p
        negative = i < line_end and data[i] == 45
        if negative:
            i += 1
        first = i
        value = np.int64(0)
        while i < line_end and i - first < 18 and 48 <= data[i] <= 57:
            value = value * 10 + np.int64(data[i]) - 48
            i += 1
        values[row] = NO_TIME
        if i == line_end and i > first:
            values[row] = -value if negative else value
        p = next_row(data, p, end)


@njit
def _find_prefix(data, p, colon, names, name_offsets):
    """Return the number of the prefix data[p:colon], -1 if there is none such."""
    size = colon - p
    for k in range(len(name_offsets) - 1):
        start = name_offsets[k]
        if name_offsets[k + 1] - start != size:
            continue
        same = True
        for i in range(size):
            if names[start + i] != data[p + i]:
                same = False
                break
        if same:
            return k
    return -1


@njit
def _expand_name(data, p, stop, names, name_offsets, spaces, space_offsets, out, at):
    """Write data[p:stop] (prefixed name, `<iri>` or `_:label`) to out[at:]; return where it ends, -1: bad prefix."""
    if data[p] == 60 or (stop - p > 2 and data[p] == 95 and data[p + 1] == 58):
        for i in range(p, stop):
            out[at] = data[i]
            at += 1
        return at
    colon = p
    while colon < stop and data[colon] != 58:
        colon += 1
    if colon == stop:
        return -1
    k = _find_prefix(data, p, colon, names, name_offsets)
    if k < 0:
        return -1
    out[at] = 60
    at += 1
    for i in range(space_offsets[k], space_offsets[k + 1]):
        out[at] = spaces[i]
        at += 1
    for i in range(colon + 1, stop):
        out[at] = data[i]
        at += 1
    out[at] = 62
    return at + 1


@njit
def expand_prefixed(data, rdf_type, names, name_offsets, spaces, space_offsets, out, status, places):
    """Write LSBench lines (`subject predicate object .`, prefixed names, split at the first two spaces) as N-Triples.

    Parameters
    ----------
    data : uint8[n_bytes]; rdf_type : uint8[...], what the predicate `a` becomes, with its <>
    names, name_offsets, spaces, space_offsets : prefix k is names[name_offsets[k]:name_offsets[k + 1]], and so its IRI.
    out : uint8[...]                Filled: a line per row that is OK. Has to be 4 * (longest IRI + 4) + 16 bytes a row
                                    longer than data.
    status : int8[n_rows]           Filled: OK, BLANK_ROW or what is wrong with a row.
    places : int64[n_rows]          Filled: the byte at which a bad row goes wrong.

    Returns the number of bytes written."""
    end = len(data)
    p = 0
    written = 0
    for row in range(len(status)):
        line_end = find_line_end(data, p, end)
        following = next_row(data, p, end)
        stop = line_end
        while stop > p and (data[stop - 1] == 32 or data[stop - 1] == 9):
            stop -= 1
        code, place, at = _expand_row(data, p, stop, rdf_type, names, name_offsets, spaces, space_offsets, out, written)
        status[row] = code
        places[row] = place
        if code == OK:
            out[at] = 10
            written = at + 1
        p = following
    return written


@njit
def _expand_row(data, p, stop, rdf_type, names, name_offsets, spaces, space_offsets, out, at):
    """Expand one line, without trailing spaces. Returns (code, where it goes wrong, where the written part ends)."""
    if p == stop:
        return BLANK_ROW, p, at
    first = p
    while first < stop and data[first] != 32:
        first += 1
    second = first + 1
    while second < stop and data[second] != 32:
        second += 1
    if first == p or second >= stop - 2 or second == first + 1:
        return BAD_FIELDS, min(second, stop), at
    if data[stop - 1] != 46 or data[stop - 2] != 32:
        return BAD_DOT, stop, at
    last = stop - 2
    at = np.int64(_expand_name(data, p, first, names, name_offsets, spaces, space_offsets, out, at))
    if at < 0:
        return BAD_PREFIX, p, at
    out[at] = 32
    at += 1
    if second - first == 2 and data[first + 1] == 97:
        for i in range(len(rdf_type)):
            out[at] = rdf_type[i]
            at += 1
    else:
        at = np.int64(_expand_name(data, first + 1, second, names, name_offsets, spaces, space_offsets, out, at))
        if at < 0:
            return BAD_PREFIX, first + 1, at
    out[at] = 32
    at += 1
    start = second + 1
    if data[start] != 34:
        at = np.int64(_expand_name(data, start, last, names, name_offsets, spaces, space_offsets, out, at))
        if at < 0:
            return BAD_PREFIX, start, at
    else:
        quote = last - 1
        while quote > start and data[quote] != 34:
            quote -= 1
        if quote == start:
            return BAD_LITERAL, start, at
        for i in range(start, quote + 1):
            out[at] = data[i]
            at += 1
        tail = quote + 1
        if last - tail > 2 and data[tail] == 94 and data[tail + 1] == 94:
            out[at] = 94
            out[at + 1] = 94
            at = np.int64(_expand_name(data, tail + 2, last, names, name_offsets, spaces, space_offsets, out, at + 2))
            if at < 0:
                return BAD_PREFIX, tail + 2, at
        else:
            for i in range(tail, last):
                out[at] = data[i]
                at += 1
    out[at] = 32
    out[at + 1] = 46
    return OK, p, at + 2
