# mypy: disallow-untyped-defs=false
"""Parts of inlined date-times and dates, and the time between two of them, read off their ids."""

from __future__ import annotations

import numpy as np

from wukongs.store.inline_kernels import TYPE_DATE, TYPE_DATE_TIME, pack_decimal, pack_integer
from wukongs.store.inline_time_kernels import pack_moment
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.payload_kernels import (
    DAY_SECONDS,
    SUBTYPE_DATE,
    ZONE_QUARTERS,
    ZONE_UTC,
    ZONES,
    payload_to_id,
    subtyped,
)
from wukongs.store.unpack_kernels import TYPE_MASK, split_date_time, split_day, split_id, write_digits, write_zone

PART_YEAR, PART_MONTH, PART_DAY, PART_HOURS, PART_MINUTES, PART_SECONDS = range(6)
PART_ZONE = 6
"""The code of the zone, ZONE_NONE without one."""
PART_DATE, PART_DATE_TIME = 7, 8
"""The id of the xsd:date or xsd:dateTime that a cast makes, in its canonical form."""
PART_TIME = 9
"""The time of day as one number: microseconds * ZONES + the code of the zone, Z for +00:00."""

MICROS = 1_000_000
_LEXICAL_SIZE_MAX = 48
"""No time of day and no duration that is written here is longer, in bytes."""
_QUARTER_S = 900


@njit_uncounted
def _split_moment(term):
    """Return (type code, day, second of the day, digits of the fraction, fraction, zone) of an id; TYPE_DATE_TIME or
    TYPE_DATE, whose time is midnight, else -1."""
    if term >= 0 and term & 1 == 1:
        code, body = split_id(term)
        if code == TYPE_DATE:
            return code, body // ZONES, np.int64(0), np.int64(0), np.int64(0), body % ZONES
        if code & TYPE_MASK == TYPE_DATE_TIME:
            day, second, digits, fraction, zone = split_date_time(code, body)
            return np.int64(TYPE_DATE_TIME), day, second, np.int64(digits), np.int64(fraction), zone
    return np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)


@njit_uncounted
def _micros(fraction, digits):
    for _ in range(digits, 6):
        fraction *= 10
    return fraction


@njit_uncounted
def _time_part(term, part):
    code, day, second, digits, fraction, zone = _split_moment(term)
    if code < 0:
        return np.int64(-1)
    if part == PART_ZONE:
        return zone
    canonical_zone = np.int64(ZONE_UTC) if zone == ZONE_QUARTERS else zone
    if part == PART_DATE:
        return payload_to_id(subtyped(SUBTYPE_DATE, day * ZONES + canonical_zone))
    if part <= PART_DAY:
        year, month, month_day = split_day(day)
        return pack_integer(year if part == PART_YEAR else month if part == PART_MONTH else month_day)
    if part == PART_DATE_TIME:
        while digits > 0 and fraction % 10 == 0:
            fraction //= 10
            digits -= 1
        payload = pack_moment(day, second, digits, fraction, canonical_zone)
        return payload_to_id(payload) if payload >= 0 else np.int64(-1)
    if code != TYPE_DATE_TIME:
        return np.int64(-1)
    if part == PART_TIME:
        return (second * MICROS + _micros(fraction, digits)) * ZONES + canonical_zone
    if part == PART_HOURS:
        return pack_integer(second // 3600)
    if part == PART_MINUTES:
        return pack_integer(second // 60 % 60)
    scaled = second % 60
    for _ in range(digits):
        scaled *= 10
    return pack_decimal(scaled + fraction, digits)


@njit
def time_parts(ids, part):
    """Return a part of each inlined dateTime and date: int64[n], -1 for all other ids and where ids cannot tell.

    ids : int64[n], any term ids. part : a PART constant. The parts from year to seconds are ids of numbers."""
    found = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        found[i] = _time_part(ids[i], part)
    return found


@njit_uncounted
def _instant(day, second, digits, fraction, zone):
    """Return the microseconds from 0001-01-01T00:00:00Z; without a zone, UTC is taken."""
    east = (zone - ZONE_QUARTERS) * _QUARTER_S if zone > ZONE_UTC else np.int64(0)
    return (day * DAY_SECONDS + second - east) * MICROS + _micros(fraction, digits)


@njit
def time_differences(left, right):
    """Return the microseconds from right to left in each row, and whether both are inlined dateTimes, or both dates.

    left, right : int64[n], any term ids. Returns (micros int64[n], is_known bool[n])."""
    micros = np.zeros(len(left), np.int64)
    is_known = np.zeros(len(left), np.bool_)
    for i in range(len(left)):
        code, day, second, digits, fraction, zone = _split_moment(left[i])
        other_code, other_day, other_second, other_digits, other_fraction, other_zone = _split_moment(right[i])
        if code >= 0 and code == other_code:
            first = _instant(day, second, digits, fraction, zone)
            micros[i] = first - _instant(other_day, other_second, other_digits, other_fraction, other_zone)
            is_known[i] = True
    return micros, is_known


@njit_uncounted
def _write_fraction(out, at, micros):
    """Write a fraction of a second without zeros at its end, with its point; nothing for zero."""
    if micros == 0:
        return at
    digits = 6
    while micros % 10 == 0:
        micros //= 10
        digits -= 1
    out[at] = 46
    return np.int64(write_digits(out, at + 1, micros, digits))


@njit
def write_times(numbers):
    """Write times of day as xsd:time has them canonically, one after the other.

    numbers : int64[n], as PART_TIME gives them. Returns (text uint8[n_bytes], offsets int64[n + 1])."""
    out = np.empty(_LEXICAL_SIZE_MAX * len(numbers), np.uint8)
    offsets = np.zeros(len(numbers) + 1, np.int64)
    at = np.int64(0)
    for i in range(len(numbers)):
        micros = numbers[i] // ZONES
        second = micros // MICROS
        write_digits(out, at, second // 3600, 2)
        out[at + 2] = 58
        write_digits(out, at + 3, second // 60 % 60, 2)
        out[at + 5] = 58
        write_digits(out, at + 6, second % 60, 2)
        at = np.int64(_write_fraction(out, at + 8, micros % MICROS))
        at = np.int64(write_zone(out, at, numbers[i] % ZONES))
        offsets[i + 1] = at
    return out[:at], offsets


@njit
def write_durations(micros):
    """Write durations as xsd:dayTimeDuration has them canonically, one after the other.

    micros : int64[n]. Returns (text uint8[n_bytes], offsets int64[n + 1])."""
    out = np.empty(_LEXICAL_SIZE_MAX * len(micros), np.uint8)
    offsets = np.zeros(len(micros) + 1, np.int64)
    at = np.int64(0)
    for i in range(len(micros)):
        left = abs(micros[i])
        second = left // MICROS
        if micros[i] < 0:
            out[at] = 45
            at += 1
        out[at] = 80
        at += 1
        if second >= DAY_SECONDS:
            at = np.int64(write_digits(out, at, second // DAY_SECONDS, 1))
            out[at] = 68
            at += 1
        if left == 0 or left % (DAY_SECONDS * MICROS) != 0:
            out[at] = 84
            at += 1
        if second // 3600 % 24 != 0:
            at = np.int64(write_digits(out, at, second // 3600 % 24, 1))
            out[at] = 72
            at += 1
        if second // 60 % 60 != 0:
            at = np.int64(write_digits(out, at, second // 60 % 60, 1))
            out[at] = 77
            at += 1
        if left == 0 or left % (60 * MICROS) != 0:
            at = np.int64(write_digits(out, at, second % 60, 1))
            at = np.int64(_write_fraction(out, at, left % MICROS))
            out[at] = 83
            at += 1
        offsets[i + 1] = at
    return out[:at], offsets
