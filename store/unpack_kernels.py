# mypy: disallow-untyped-defs=false
"""Inlined ids back into text and into numbers; the layout is that of store/inline_kernels.py."""

from __future__ import annotations

import numpy as np

from store.inline_kernels import (
    DAY_SECONDS,
    EPOCH_DAY,
    FLOAT_MANTISSA_BITS,
    FRACTIONS,
    MANTISSA_BITS,
    NAMESPACE_SIZE,
    SCALE_NO_DOT,
    SIGNED_55,
    SIGNED_60,
    SUBTYPE_BITS,
    SUBTYPE_BOOLEAN,
    SUBTYPE_DATE,
    SUBTYPE_DATE_TIME,
    SUBTYPE_FLOAT,
    TAG_INTEGER,
    TAG_OTHER,
    TYPE_BOOLEAN,
    TYPE_DATE,
    TYPE_DATE_TIME,
    TYPE_DERIVED,
    TYPE_DOUBLE,
    TYPE_FLOAT,
    TYPE_INTEGER,
    ZONE_NONE,
    ZONE_QUARTERS,
    ZONE_UTC,
    ZONES,
    id_to_payload,
)
from store.jit import njit

LITERAL_SIZE_MAX = 112
"""No inlined literal has a longer canonical form, in bytes."""

KIND_NONE = 0
"""Not an inlined literal: ask the dictionary."""
KIND_INTEGER = 1
KIND_DECIMAL = 2
KIND_FLOAT = 3
KIND_DOUBLE = 4
KIND_BOOLEAN = 5
KIND_DATE_TIME = 6
KIND_DATE_TIME_LOCAL = 7
"""A dateTime without a zone; its value takes it as UTC."""
KIND_DATE = 8
KIND_DATE_LOCAL = 9

_FRACTION_BASE = FRACTIONS * ZONES
_DAY_BASE = DAY_SECONDS * _FRACTION_BASE
_QUARTER_MS = 900_000


@njit
def _split(term):
    """Return (type code, body) of an inlined id."""
    payload = np.int64(id_to_payload(term))
    tag = payload >> 60
    if tag == TAG_OTHER:
        subtype = (payload >> SUBTYPE_BITS) & 31
        body = payload & (2 * SIGNED_55 - 1)
        if subtype == SUBTYPE_FLOAT:
            return np.int64(TYPE_FLOAT), body
        if subtype == SUBTYPE_BOOLEAN:
            return np.int64(TYPE_BOOLEAN), body
        if subtype == SUBTYPE_DATE_TIME:
            return np.int64(TYPE_DATE_TIME), body
        if subtype == SUBTYPE_DATE:
            return np.int64(TYPE_DATE), body
        return subtype + TYPE_DERIVED, body - 2 * SIGNED_55 if body >= SIGNED_55 else body
    body = payload & (2 * SIGNED_60 - 1)
    if tag == TAG_INTEGER:
        return np.int64(TYPE_INTEGER), body - 2 * SIGNED_60 if body >= SIGNED_60 else body
    return tag + TYPE_DOUBLE, body


@njit
def _split_plain(body, mantissa_bits):
    """Return (negative, scale, mantissa, has a dot) of a plain number."""
    mantissa = body & ((np.int64(1) << mantissa_bits) - 1)
    scale = (body >> mantissa_bits) & 31
    negative = (body >> (mantissa_bits + 5)) != 0
    if scale == SCALE_NO_DOT:
        return negative, np.int64(0), mantissa, False
    return negative, scale, mantissa, True


@njit
def _split_day(day):
    """Return (year, month, day of month) of a day counted from 0001-01-01."""
    since_march = day + 306
    era = since_march // 146_097
    day_of_era = since_march % 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    return year, month, day_of_year - (153 * march_month + 2) // 5 + 1


@njit
def _write_digits(out, at, value, width):
    """Write a number >= 0 with at least `width` digits at out[at:]; return where it ends."""
    size = np.int64(1)
    bound = np.int64(10)
    while size < 18 and value >= bound:
        size += 1
        bound *= 10
    size = max(size, np.int64(width))
    for i in range(at + size - 1, at - 1, -1):
        out[i] = 48 + value % 10
        value //= 10
    return at + size


@njit
def _write_plain(out, at, body, mantissa_bits):
    negative, scale, mantissa, has_dot = _split_plain(body, mantissa_bits)
    if negative:
        out[at] = 45
        at += 1
    end = np.int64(_write_digits(out, at, mantissa, scale + 1))
    if not has_dot:
        return end
    for i in range(end, end - scale, -1):
        out[i] = out[i - 1]
    out[end - scale] = 46
    return end + 1


@njit
def _write_integer(out, at, value):
    if value < 0:
        out[at] = 45
        return _write_digits(out, at + 1, -value, 1)
    return _write_digits(out, at, value, 1)


@njit
def _write_boolean(out, at, body):
    if body >= 2:
        out[at] = 46 + body
        return at + 1
    # "true" or "fals" as a little-endian word, then the "e" that false has more.
    word = np.int64(0x65757274) if body == 1 else np.int64(0x736C6166)
    for i in range(4):
        out[at + i] = (word >> (8 * i)) & 255
    if body == 0:
        out[at + 4] = 101
        return at + 5
    return at + 4


@njit
def _write_day(out, at, value):
    year, month, day = _split_day(value)
    _write_digits(out, at, year, 4)
    out[at + 4] = 45
    _write_digits(out, at + 5, month, 2)
    out[at + 7] = 45
    _write_digits(out, at + 8, day, 2)
    return at + 10


@njit
def _write_zone(out, at, zone):
    if zone == ZONE_NONE:
        return at
    if zone == ZONE_UTC:
        out[at] = 90
        return at + 1
    quarters = zone - ZONE_QUARTERS
    out[at] = 43 if quarters >= 0 else 45
    quarters = abs(quarters)
    _write_digits(out, at + 1, quarters // 4, 2)
    out[at + 3] = 58
    _write_digits(out, at + 4, quarters % 4 * 15, 2)
    return at + 6


@njit
def _write_date_time(out, at, body):
    at = np.int64(_write_day(out, at, body // _DAY_BASE))
    second = body % _DAY_BASE // _FRACTION_BASE
    out[at] = 84
    _write_digits(out, at + 1, second // 3600, 2)
    out[at + 3] = 58
    _write_digits(out, at + 4, second // 60 % 60, 2)
    out[at + 6] = 58
    _write_digits(out, at + 7, second % 60, 2)
    at += 9
    fraction = body % _FRACTION_BASE // ZONES
    if fraction > 0:
        out[at] = 46
        at = np.int64(_write_digits(out, at + 1, fraction - 1, 3))
    return _write_zone(out, at, body % ZONES)


@njit
def write_literal(term, out, at, names, types):
    """Write the canonical form of an inlined id at out[at:]; return where it ends, at most LITERAL_SIZE_MAX later."""
    code, body = _split(term)
    out[at] = 34
    at += 1
    if code == TYPE_INTEGER or code >= TYPE_DERIVED:
        at = _write_integer(out, at, body)
    elif code == TYPE_BOOLEAN:
        at = _write_boolean(out, at, body)
    elif code == TYPE_DATE_TIME:
        at = _write_date_time(out, at, body)
    elif code == TYPE_DATE:
        at = _write_zone(out, _write_day(out, at, body // ZONES), body % ZONES)
    else:
        at = _write_plain(out, at, body, FLOAT_MANTISSA_BITS if code == TYPE_FLOAT else MANTISSA_BITS)
    out[at] = 34
    out[at + 1] = 94
    out[at + 2] = 94
    out[at + 3] = 60
    at += 4
    for i in range(NAMESPACE_SIZE):
        out[at + i] = names[i]
    at += NAMESPACE_SIZE
    for i in range(types[code, 0], types[code, 1]):
        out[at] = names[i]
        at += 1
    out[at] = 62
    return at + 1


@njit
def unpack(ids, names, types):
    """Write the canonical forms of inlined ids one after the other.

    ids : int64[n], all inlined. Returns (text uint8[n_bytes], offsets int64[n + 1])."""
    offsets = np.zeros(len(ids) + 1, np.int64)
    text = np.empty(64 * len(ids) + LITERAL_SIZE_MAX, np.uint8)
    end = 0
    for i in range(len(ids)):
        if end + LITERAL_SIZE_MAX > len(text):
            grown = np.empty(2 * len(text), np.uint8)
            grown[:end] = text[:end]
            text = grown
        end = write_literal(ids[i], text, end, names, types)
        offsets[i + 1] = end
    return text[:end], offsets


@njit
def _zone_ms(zone):
    return (zone - ZONE_QUARTERS) * _QUARTER_MS if zone > ZONE_UTC else np.int64(0)


@njit
def numeric_values(ids):
    """Return the kind and the value of each id.

    ids : int64[n], any term ids. Returns (kind int8[n], a KIND constant; value float64[n]): numbers as the nearest
    float64 (xsd:float: rounded once more, to 24 bits), booleans 0 and 1, times in ms since 1970 UTC; NaN for
    KIND_NONE. Exact but for integers of 2**53 and more and decimals, which are correctly rounded."""
    kinds = np.zeros(len(ids), np.int8)
    values = np.full(len(ids), np.nan, np.float64)
    for i in range(len(ids)):
        if ids[i] < 0 or ids[i] & 1 == 0:
            continue
        code, body = _split(ids[i])
        if code == TYPE_INTEGER or code >= TYPE_DERIVED:
            kinds[i] = KIND_INTEGER
            values[i] = np.float64(body)
        elif code == TYPE_BOOLEAN:
            kinds[i] = KIND_BOOLEAN
            values[i] = np.float64(body & 1)
        elif code == TYPE_DATE_TIME:
            zone = body % ZONES
            day_ms = (body // _DAY_BASE - EPOCH_DAY) * (DAY_SECONDS * 1000)
            second_ms = body % _DAY_BASE // _FRACTION_BASE * 1000 + max(body % _FRACTION_BASE // ZONES - 1, 0)
            kinds[i] = KIND_DATE_TIME if zone != ZONE_NONE else KIND_DATE_TIME_LOCAL
            values[i] = np.float64(day_ms + second_ms - _zone_ms(zone))
        elif code == TYPE_DATE:
            zone = body % ZONES
            kinds[i] = KIND_DATE if zone != ZONE_NONE else KIND_DATE_LOCAL
            values[i] = np.float64((body // ZONES - EPOCH_DAY) * (DAY_SECONDS * 1000) - _zone_ms(zone))
        else:
            bits = FLOAT_MANTISSA_BITS if code == TYPE_FLOAT else MANTISSA_BITS
            negative, scale, mantissa, _ = _split_plain(body, bits)
            power = 1.0
            for _ in range(scale):
                power *= 10.0
            value = np.float64(mantissa) / power
            if code == TYPE_FLOAT:
                value = np.float64(np.float32(value))
                kinds[i] = KIND_FLOAT
            else:
                kinds[i] = KIND_DOUBLE if code == TYPE_DOUBLE else KIND_DECIMAL
            values[i] = -value if negative else value
    return kinds, values


@njit
def decimal_parts(ids):
    """Return each inlined integer, decimal, float or double as an exact decimal: numerator / 10 ** scale.

    ids : int64[n]. Returns (numerator int64[n], scale int8[n]); scale -1 for all other ids."""
    numerators = np.zeros(len(ids), np.int64)
    scales = np.full(len(ids), -1, np.int8)
    for i in range(len(ids)):
        if ids[i] < 0 or ids[i] & 1 == 0:
            continue
        code, body = _split(ids[i])
        if code == TYPE_INTEGER or code >= TYPE_DERIVED:
            numerators[i] = body
            scales[i] = 0
        elif code < TYPE_BOOLEAN:
            bits = FLOAT_MANTISSA_BITS if code == TYPE_FLOAT else MANTISSA_BITS
            negative, scale, mantissa, _ = _split_plain(body, bits)
            numerators[i] = -mantissa if negative else mantissa
            scales[i] = scale
    return numerators, scales
