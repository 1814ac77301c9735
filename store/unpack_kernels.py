# mypy: disallow-untyped-defs=false
"""Inlined ids back into text; the layout is that of store/payload_kernels.py."""

from __future__ import annotations

import numpy as np

from wukongs.store.inline_kernels import (
    NAMESPACE_SIZE,
    TYPE_BOOLEAN,
    TYPE_DATE,
    TYPE_DATE_TIME,
    TYPE_DERIVED,
    TYPE_DOUBLE,
    TYPE_FLOAT,
    TYPE_INTEGER,
    TYPE_STRING,
)
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.payload_kernels import (
    DAY_SECONDS,
    DOUBLE_DIGITS_BOUND,
    EXPONENT_LEAST,
    EXPONENT_STYLES,
    EXPONENTS,
    EXTENDED_BIT,
    FLOAT_DIGITS_BOUND,
    FLOAT_MANTISSA_BITS,
    FRACTIONS,
    MANTISSA_BITS,
    MICRO_DAY,
    SCALE_NO_DOT,
    SIGNED_55,
    SIGNED_60,
    STRING_SIZE_MAX,
    SUBTYPE_BITS,
    SUBTYPE_BOOLEAN,
    SUBTYPE_DATE,
    SUBTYPE_DATE_TIME,
    SUBTYPE_DATE_TIME_TENTHS,
    SUBTYPE_FLOAT,
    SUBTYPE_FLOAT_EXPONENT,
    SUBTYPE_STRING,
    TAG_INTEGER,
    TAG_OTHER,
    TENTHS,
    ZONE_NONE,
    ZONE_QUARTERS,
    ZONE_UTC,
    ZONES,
    id_to_payload,
)
from wukongs.store.slot_kernels import copy_bytes

LITERAL_SIZE_MAX = 112
"""No inlined literal has a longer canonical form, in bytes."""

FORM_EXPONENT = 32
"""Added to the type code by split_id: a double or float with an exponent."""
FORM_TENTHS = 64
"""A dateTime with one or two digits of a second's fraction."""
FORM_MICROS = 96
"""A dateTime with six."""
TYPE_MASK = 31


@njit_uncounted
def split_id(term):
    """Return (type code plus form, body) of an inlined id; form 0 is the usual one of its type."""
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
        if subtype == SUBTYPE_STRING:
            return np.int64(TYPE_STRING), body
        if subtype == SUBTYPE_FLOAT_EXPONENT:
            return np.int64(TYPE_FLOAT + FORM_EXPONENT), body
        if subtype == SUBTYPE_DATE_TIME_TENTHS:
            return np.int64(TYPE_DATE_TIME + FORM_TENTHS), body
        return subtype + TYPE_DERIVED, body - 2 * SIGNED_55 if body >= SIGNED_55 else body
    body = payload & (2 * SIGNED_60 - 1)
    if tag == TAG_INTEGER:
        return np.int64(TYPE_INTEGER), body - 2 * SIGNED_60 if body >= SIGNED_60 else body
    if (body >> EXTENDED_BIT) & 1:
        low = body & ((np.int64(1) << EXTENDED_BIT) - 1)
        form = TYPE_DOUBLE + FORM_EXPONENT if tag == 0 else TYPE_DATE_TIME + FORM_MICROS
        return np.int64(form), ((body >> (EXTENDED_BIT + 1)) << EXTENDED_BIT) | low
    return tag + TYPE_DOUBLE, body


@njit_uncounted
def split_exponent(code, body):
    """Return (negative, mantissa, digits, style, exponent) of a number with an exponent."""
    negative = body & 1 != 0
    exponent = (body >> 1) % EXPONENTS + EXPONENT_LEAST
    style = (body >> 1) // EXPONENTS % EXPONENT_STYLES
    mantissa = (body >> 1) // EXPONENTS // EXPONENT_STYLES
    if mantissa == (FLOAT_DIGITS_BOUND if code == TYPE_FLOAT else DOUBLE_DIGITS_BOUND):
        return negative, np.int64(0), np.int64(2), style, exponent
    digits = np.int64(1)
    bound = np.int64(10)
    while mantissa >= bound:
        digits += 1
        bound *= 10
    return negative, mantissa, digits, style, exponent


@njit_uncounted
def split_date_time(code, body):
    """Return (day, second of the day, digits of the fraction, fraction, zone) of a dateTime."""
    zone = body % ZONES
    rest = body // ZONES
    if code == TYPE_DATE_TIME + FORM_MICROS:
        seconds = rest // 1_000_000
        return seconds // DAY_SECONDS + MICRO_DAY, seconds % DAY_SECONDS, 6, rest % 1_000_000, zone
    if code == TYPE_DATE_TIME + FORM_TENTHS:
        seconds = rest // TENTHS
        fraction = rest % TENTHS
        digits = 1 if fraction < 10 else 2
        return seconds // DAY_SECONDS, seconds % DAY_SECONDS, digits, fraction - (10 if digits == 2 else 0), zone
    seconds = rest // FRACTIONS
    fraction = rest % FRACTIONS
    digits = 0 if fraction == 0 else 3
    return seconds // DAY_SECONDS, seconds % DAY_SECONDS, digits, max(fraction - 1, 0), zone


@njit_uncounted
def split_plain(body, mantissa_bits):
    """Return (negative, scale, mantissa, has a dot) of a plain number."""
    mantissa = body & ((np.int64(1) << mantissa_bits) - 1)
    scale = (body >> mantissa_bits) & 31
    negative = (body >> (mantissa_bits + 5)) != 0
    if scale == SCALE_NO_DOT:
        return negative, np.int64(0), mantissa, False
    return negative, scale, mantissa, True


@njit_uncounted
def split_day(day):
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


@njit_uncounted
def write_digits(out, at, value, width):
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


@njit_uncounted
def _write_plain(out, at, body, mantissa_bits):
    negative, scale, mantissa, has_dot = split_plain(body, mantissa_bits)
    if negative:
        out[at] = 45
        at += 1
    end = np.int64(write_digits(out, at, mantissa, scale + 1))
    if not has_dot:
        return end
    for i in range(end, end - scale, -1):
        out[i] = out[i - 1]
    out[end - scale] = 46
    return end + 1


@njit_uncounted
def _write_integer(out, at, value):
    if value < 0:
        out[at] = 45
        return write_digits(out, at + 1, -value, 1)
    return write_digits(out, at, value, 1)


@njit_uncounted
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


@njit_uncounted
def _write_day(out, at, value):
    year, month, day = split_day(value)
    write_digits(out, at, year, 4)
    out[at + 4] = 45
    write_digits(out, at + 5, month, 2)
    out[at + 7] = 45
    write_digits(out, at + 8, day, 2)
    return at + 10


@njit_uncounted
def write_zone(out, at, zone):
    if zone == ZONE_NONE:
        return at
    if zone == ZONE_UTC:
        out[at] = 90
        return at + 1
    quarters = zone - ZONE_QUARTERS
    out[at] = 43 if quarters >= 0 else 45
    quarters = abs(quarters)
    write_digits(out, at + 1, quarters // 4, 2)
    out[at + 3] = 58
    write_digits(out, at + 4, quarters % 4 * 15, 2)
    return at + 6


@njit_uncounted
def _write_date_time(out, at, code, body):
    day, second, digits, fraction, zone = split_date_time(code, body)
    at = np.int64(_write_day(out, at, day))
    out[at] = 84
    write_digits(out, at + 1, second // 3600, 2)
    out[at + 3] = 58
    write_digits(out, at + 4, second // 60 % 60, 2)
    out[at + 6] = 58
    write_digits(out, at + 7, second % 60, 2)
    at += 9
    if digits > 0:
        out[at] = 46
        at = np.int64(write_digits(out, at + 1, fraction, digits))
    return write_zone(out, at, zone)


@njit_uncounted
def _write_exponent(out, at, code, body):
    negative, mantissa, digits, style, exponent = split_exponent(code, body)
    if negative:
        out[at] = 45
        at += 1
    # The digits one place to the right; the first of them then goes before the dot.
    end = np.int64(write_digits(out, at + 1, mantissa, digits))
    out[at] = out[at + 1]
    out[at + 1] = 46
    at = end if digits > 1 else at + 1
    out[at] = 101 if style == 1 or style == 2 else 69
    at += 1
    full = style & 1 == 1
    if full or exponent < 0:
        out[at] = 45 if exponent < 0 else 43
        at += 1
    return write_digits(out, at, abs(exponent), 2 if full else 1)


@njit_uncounted
def write_literal(term, out, at, names, types):
    """Write the canonical form of an inlined id at out[at:]; return where it ends, at most LITERAL_SIZE_MAX later."""
    code, body = split_id(term)
    form = code - (code & TYPE_MASK)
    code &= TYPE_MASK
    out[at] = 34
    at += 1
    if code == TYPE_STRING:
        size = body >> (7 * STRING_SIZE_MAX)
        for i in range(size):
            out[at + i] = (body >> (7 * i)) & 127
        out[at + size] = 34
        return at + size + 1
    if code == TYPE_INTEGER or code >= TYPE_DERIVED:
        at = _write_integer(out, at, body)
    elif code == TYPE_BOOLEAN:
        at = _write_boolean(out, at, body)
    elif code == TYPE_DATE_TIME:
        at = _write_date_time(out, at, code + form, body)
    elif code == TYPE_DATE:
        at = write_zone(out, _write_day(out, at, body // ZONES), body % ZONES)
    elif form == FORM_EXPONENT:
        at = _write_exponent(out, at, code, body)
    else:
        at = _write_plain(out, at, body, FLOAT_MANTISSA_BITS if code == TYPE_FLOAT else MANTISSA_BITS)
    out[at] = 34
    out[at + 1] = 94
    out[at + 2] = 94
    out[at + 3] = 60
    at += 4
    copy_bytes(names, 0, NAMESPACE_SIZE, out, at)
    at += NAMESPACE_SIZE
    size = types[code, 1] - types[code, 0]
    copy_bytes(names, types[code, 0], size, out, at)
    at += size
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
