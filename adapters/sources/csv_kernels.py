# mypy: disallow-untyped-defs=false
"""Kernels of CSV: where records begin and fields lie, and fields as one column of text.

A record that is not well formed ends with its line, so that one stray quote spoils one line and not the file.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit

OK = 0
BLANK = 1
BAD_QUOTE = 2
OPEN_QUOTE = 3
SECOND_RECORD = 4

PLAIN = 0
DELIMITER = 1
QUOTE = 2
LINE_END = 3

QUOTED_BYTES_MAX = 1 << 20
"""A quoted field that does not end within so many bytes is one whose quote was never closed."""


@njit
def read_record(data, p, end, classes, wanted, begins, ends, has_quotes):
    """Read the record at data[p]; note where the wanted fields lie.

    Parameters
    ----------
    data : uint8[n_bytes]; p, end : where the record begins, and the data ends
    classes : uint8[256]        PLAIN, DELIMITER, QUOTE or LINE_END per byte.
    wanted : int64[n_fields]    Where field k goes in the next three; -1: nowhere. More fields are counted only.
    begins, ends : int64[n_wanted]; has_quotes : bool[n_wanted]      Filled. A field inside of quotes lies without them;
                                has_quotes: two quotes in it stand for one.

    Returns (where the next record begins, how many fields this one has, status, where it goes wrong)."""
    i = p
    count = 0
    status = OK
    place = p
    while True:
        begin = i
        doubled = False
        if i < end and classes[data[i]] == QUOTE:
            quote = data[i]
            i += 1
            begin = i
            last = min(end, begin + QUOTED_BYTES_MAX)
            while i < last:
                if data[i] == quote:
                    if i + 1 < end and data[i + 1] == quote:
                        doubled = True
                        i += 1
                    else:
                        break
                i += 1
            if i >= last:
                status, place = OPEN_QUOTE, begin - 1
                break
            stop = i
            i += 1
            if i < end and classes[data[i]] != DELIMITER and classes[data[i]] != LINE_END:
                status, place = BAD_QUOTE, i
                break
        else:
            while i < end and classes[data[i]] != DELIMITER and classes[data[i]] != LINE_END:
                i += 1
            stop = i
        if count < len(wanted) and wanted[count] >= 0:
            begins[wanted[count]] = begin
            ends[wanted[count]] = stop
            has_quotes[wanted[count]] = doubled
        count += 1
        if i >= end or classes[data[i]] == LINE_END:
            break
        i += 1
    if status != OK:
        i = p
        while i < end and classes[data[i]] != LINE_END:
            i += 1
    elif i == p:
        status = BLANK
    if i + 1 < end and data[i] == 13 and data[i + 1] == 10:
        i += 1
    return min(i + 1, end), count, status, place


@njit
def find_records(data, p, classes, starts):
    """Fill starts : int64[...] with the byte at which each record of data[p:] begins, and the end, as far as it has
    room. Returns how many records there are."""
    nowhere = np.empty(0, np.int64)
    no_flags = np.empty(0, np.bool_)
    end = len(data)
    count = 0
    while p < end:
        if count < len(starts):
            starts[count] = p
        count += 1
        p, _, _, _ = read_record(data, p, end, classes, nowhere, nowhere, nowhere, no_flags)
    if count < len(starts):
        starts[count] = p
    return count


@njit
def read_records(data, bounds, classes, wanted, starts, begins, ends, has_quotes, counts, status, places):
    """Read all records of data; see read_record.

    Parameters
    ----------
    bounds : int64[n_rows + 1]      Record k is data[bounds[k]:bounds[k + 1]], blank lines behind it left out; empty:
                                    they follow each other.
    starts : int64[n_rows]; counts : int64[n_rows]; status : uint8[n_rows]; places : int64[n_rows]      Filled.
    begins, ends : int64[n_wanted, n_rows]; has_quotes : bool[n_wanted, n_rows]     Filled; 0 for a missing field.

    Returns how many records there are; no more than n_rows are read."""
    width = len(begins)
    begin, stop = np.zeros(width, np.int64), np.zeros(width, np.int64)
    doubled = np.zeros(width, np.bool_)
    end = len(data)
    is_bounded = len(bounds) > 0
    p = 0
    row = 0
    while (is_bounded or p < end) and row < len(starts):
        begin[:] = 0
        stop[:] = 0
        doubled[:] = False
        if is_bounded:
            p, end = bounds[row], bounds[row + 1]
        starts[row] = p
        p, counts[row], status[row], places[row] = read_record(data, p, end, classes, wanted, begin, stop, doubled)
        while is_bounded and p < end and classes[data[p]] == LINE_END:
            p += 1
        if is_bounded and p < end:
            status[row], places[row] = SECOND_RECORD, p
        for k in range(width):
            begins[k, row] = begin[k]
            ends[k, row] = stop[k]
            has_quotes[k, row] = doubled[k]
        row += 1
    return row if is_bounded or p >= end else row + 1


@njit
def gather_fields(data, begins, ends, has_quotes, quote, out, offsets):
    """Copy fields one behind the other; two quotes become one where a field has such.

    begins, ends : int64[n]; has_quotes : bool[n]; out : uint8[sum of lengths]; offsets : int64[n + 1]      Filled."""
    at = 0
    offsets[0] = 0
    for row in range(len(begins)):
        i = begins[row]
        stop = ends[row]
        if has_quotes[row]:
            while i < stop:
                out[at] = data[i]
                at += 1
                i += 2 if data[i] == quote and i + 1 < stop and data[i + 1] == quote else 1
        else:
            for j in range(i, stop):
                out[at] = data[j]
                at += 1
        offsets[row + 1] = at
