# mypy: disallow-untyped-defs=false
"""Kernels of typed Arrow columns: the code of each term, and values that its id holds.

A code is the type code of a literal's datatype (store/inline_kernels.py), or one of those below. Names and types are
the tables DATATYPE_NAMES and DATATYPES of store/term_ids.py.
"""

from __future__ import annotations

import numpy as np

from wukongs.query.output.row_text_kernels import BLANK, IRI, STRING, TYPED, parts_of
from wukongs.store.inline_kernels import TYPE_DATE, TYPE_DATE_TIME, TYPE_STRING, TYPE_UNKNOWN, type_code
from wukongs.store.jit import njit
from wukongs.store.payload_kernels import DAY_SECONDS, EPOCH_DAY, ZONE_NONE, ZONE_QUARTERS, ZONE_UTC, ZONES
from wukongs.store.slot_kernels import copy_bytes
from wukongs.store.unpack_kernels import TYPE_MASK, split_date_time, split_id

CODE_IRI = 20
CODE_BLANK = 21
CODE_OTHER = 22
"""A literal of another datatype or with a language, a triple term, an IRI that begins as a blank node's label does."""
CODE_NULL = 23
CODE_HASHED = 24
"""Its text tells."""
_QUARTER_S = 900


@njit
def id_codes(ids):
    """Return the code of each id, and all codes that occur, a bit each: (codes int8[n], mask int64).

    CODE_HASHED stands for all ids that are not inlined, CODE_NULL for negative ones."""
    codes = np.empty(len(ids), np.int8)
    mask = np.int64(0)
    for i in range(len(ids)):
        if ids[i] < 0:
            code = np.int64(CODE_NULL)
        elif ids[i] & 1 == 0:
            code = np.int64(CODE_HASHED)
        else:
            code, _ = split_id(ids[i])
            code &= TYPE_MASK
        codes[i] = code
        mask |= np.int64(1) << code
    return codes, mask


@njit
def text_codes(text, offsets, names, types):
    """Return the code of each term by its text, and where its body is: an IRI, a label with `_:`, a lexical form.

    text : uint8[any size]; offsets : int64[n + 1], term i in canonical form is text[offsets[i]:offsets[i + 1]].
    Returns (codes int8[n]; starts, stops : int64[n], the places of the bodies in text; mask, the codes that occur)."""
    n = len(offsets) - 1
    codes = np.empty(n, np.int8)
    starts = np.empty(n, np.int64)
    stops = np.empty(n, np.int64)
    mask = np.int64(0)
    for i in range(n):
        kind, start, stop, tail, tail_stop = parts_of(text, offsets[i], offsets[i + 1])
        code = np.int64(CODE_OTHER)
        if kind == IRI:
            if stop - start < 2 or text[start] != 95 or text[start + 1] != 58:
                code = np.int64(CODE_IRI)
        elif kind == BLANK:
            code = np.int64(CODE_BLANK)
            start -= 2
        elif kind == STRING:
            code = np.int64(TYPE_STRING)
        elif kind == TYPED:
            found = type_code(text, tail, tail_stop, names, types)
            if found != TYPE_UNKNOWN:
                code = np.int64(found)
        codes[i] = code
        starts[i] = start
        stops[i] = stop
        mask |= np.int64(1) << code
    return codes, starts, stops, mask


@njit
def put_bodies(text, starts, stops, places, count):
    """Put texts one after the other.

    Parameters
    ----------
    text : uint8[any size]; starts, stops : int64[n], text i is text[starts[i]:stops[i]].
    places : int64[n]               The number that each has among `count`, increasing; the others are empty.

    Returns
    -------
    bodies : uint8[n_bytes]; offsets : int64[count + 1]"""
    offsets = np.zeros(count + 1, np.int64)
    for i in range(len(places)):
        offsets[places[i] + 1] = stops[i] - starts[i]
    for i in range(count):
        offsets[i + 1] += offsets[i]
    bodies = np.empty(offsets[count], np.uint8)
    for i in range(len(places)):
        copy_bytes(text, starts[i], stops[i] - starts[i], bodies, offsets[places[i]])
    return bodies, offsets


@njit
def calendar_values(ids):
    """Return inlined dates and dateTimes as whole numbers.

    ids : int64[n]. Returns (values int64[n], is_zoned bool[n]): the days since 1970-01-01 of dates, as they are
    written; the microseconds since 1970-01-01T00:00:00Z of dateTimes, a time without a zone taken as UTC; 0 for
    others."""
    values = np.zeros(len(ids), np.int64)
    is_zoned = np.zeros(len(ids), np.bool_)
    for i in range(len(ids)):
        if ids[i] < 0 or ids[i] & 1 == 0:
            continue
        code, body = split_id(ids[i])
        if code == TYPE_DATE:
            values[i] = body // ZONES - EPOCH_DAY
            is_zoned[i] = body % ZONES != ZONE_NONE
        elif code & TYPE_MASK == TYPE_DATE_TIME:
            day, second, digits, fraction, zone = split_date_time(code, body)
            if zone > ZONE_UTC:
                second -= (zone - ZONE_QUARTERS) * _QUARTER_S
            for _ in range(digits, 6):
                fraction *= 10
            values[i] = ((day - EPOCH_DAY) * DAY_SECONDS + second) * 1_000_000 + fraction
            is_zoned[i] = zone != ZONE_NONE
    return values, is_zoned


@njit
def scaled(numerators, scales, scale):
    """Return (whether all fit, int64[n]) of numerators[i] / 10 ** scales[i] as numerators over 10 ** scale.

    scales : int8[n], at most `scale`. It fits if int64 holds it."""
    made = numerators.copy()
    for i in range(len(made)):
        for _ in range(scales[i], scale):
            if abs(made[i]) > 922_337_203_685_477_580:
                return False, made
            made[i] *= 10
    return True, made


@njit
def strip_zeros(numerators, scales):
    """Drop zeros at the end of decimals, in place: numerators[i] / 10 ** scales[i], int64[n] and int8[n]."""
    for i in range(len(numerators)):
        while scales[i] > 0 and numerators[i] % 10 == 0:
            numerators[i] //= 10
            scales[i] -= 1
