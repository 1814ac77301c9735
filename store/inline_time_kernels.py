# mypy: disallow-untyped-defs=false
"""xsd:dateTime and xsd:date packed into payloads: a day counted from 0001-01-01, seconds, a fraction, a zone."""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit_uncounted
from wukongs.store.payload_kernels import (
    DAY_SECONDS,
    FRACTIONS,
    MICRO_DAY,
    MICRO_DAYS,
    SUBTYPE_DATE_TIME,
    SUBTYPE_DATE_TIME_TENTHS,
    TAG_DECIMAL,
    TENTHS,
    ZONE_NONE,
    ZONE_QUARTERS,
    ZONE_UTC,
    ZONES,
    extend,
    subtyped,
)


@njit_uncounted
def read_digits(data, start, count):
    """Read `count` decimal digits; -1 if there is anything else."""
    value = np.int64(0)
    for i in range(start, start + count):
        digit = np.int64(data[i]) - 48
        if digit < 0 or digit > 9:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@njit_uncounted
def _month_length(year, month):
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@njit_uncounted
def _pack_day(data, start):
    """Return the day YYYY-MM-DD at data[start:start + 10], counted from 0001-01-01; -1 if there is no such day."""
    year = np.int64(read_digits(data, start, 4))
    month = np.int64(read_digits(data, start + 5, 2))
    day = np.int64(read_digits(data, start + 8, 2))
    if data[start + 4] != 45 or data[start + 7] != 45 or year < 1 or month < 1 or month > 12 or day < 1:
        return np.int64(-1)
    if day > _month_length(year, month):
        return np.int64(-1)
    # Count years from March, so that the leap day is the last of its year.
    march_year = year - 1 if month <= 2 else year
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * march_year + march_year // 4 - march_year // 100 + march_year // 400 + day_of_year - 306


@njit_uncounted
def _pack_zone(data, start, stop):
    """Number the time zone data[start:stop]: none, Z, then the quarters of an hour; -1 if it cannot be given back."""
    if start == stop:
        return np.int64(ZONE_NONE)
    if stop - start == 1 and data[start] == 90:
        return np.int64(ZONE_UTC)
    if stop - start != 6 or data[start + 3] != 58 or (data[start] != 43 and data[start] != 45):
        return np.int64(-1)
    hour = np.int64(read_digits(data, start + 1, 2))
    minute = np.int64(read_digits(data, start + 4, 2))
    if hour < 0 or minute < 0 or minute > 45 or minute % 15 != 0:
        return np.int64(-1)
    quarters = hour * 4 + minute // 15
    if data[start] == 45:
        return ZONE_QUARTERS - quarters if 0 < quarters <= 48 else np.int64(-1)
    return ZONE_QUARTERS + quarters if quarters <= 56 else np.int64(-1)


@njit_uncounted
def pack_moment(day, second, digits, fraction, zone):
    """Return the payload of a dateTime: second of its day, a fraction of so many digits; -1 if it has none."""
    if digits == 6:
        if day < MICRO_DAY or day >= MICRO_DAY + MICRO_DAYS:
            return np.int64(-1)
        seconds = (day - MICRO_DAY) * DAY_SECONDS + second
        return extend(TAG_DECIMAL, (seconds * 1_000_000 + fraction) * ZONES + zone)
    seconds = day * DAY_SECONDS + second
    if digits == 1 or digits == 2:
        tenths = fraction if digits == 1 else fraction + 10
        return subtyped(SUBTYPE_DATE_TIME_TENTHS, (seconds * TENTHS + tenths) * ZONES + zone)
    if digits != 0 and digits != 3:
        return np.int64(-1)
    return subtyped(SUBTYPE_DATE_TIME, (seconds * FRACTIONS + (fraction + 1 if digits == 3 else 0)) * ZONES + zone)


@njit_uncounted
def pack_date_time(data, start, stop):
    """Pack YYYY-MM-DDThh:mm:ss, a fraction of 0, 1, 2, 3 or 6 digits, and a zone: return its payload, -1 if it cannot
    be given back."""
    if stop - start < 19 or stop - start > 32:
        return np.int64(-1)
    day = np.int64(_pack_day(data, start))
    hour = np.int64(read_digits(data, start + 11, 2))
    minute = np.int64(read_digits(data, start + 14, 2))
    second = np.int64(read_digits(data, start + 17, 2))
    if day < 0 or data[start + 10] != 84 or data[start + 13] != 58 or data[start + 16] != 58:
        return np.int64(-1)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return np.int64(-1)
    p = start + 19
    digits = np.int64(0)
    fraction = np.int64(0)
    if p < stop and data[p] == 46:
        while p + 1 + digits < stop and 48 <= data[p + 1 + digits] <= 57:
            digits += 1
        if digits == 0 or digits > 6:
            return np.int64(-1)
        fraction = np.int64(read_digits(data, p + 1, digits))
        p += 1 + digits
    zone = np.int64(_pack_zone(data, p, stop))
    if zone < 0:
        return np.int64(-1)
    return pack_moment(day, hour * 3600 + minute * 60 + second, digits, fraction, zone)


@njit_uncounted
def pack_date(data, start, stop):
    if stop - start < 10:
        return np.int64(-1)
    day = np.int64(_pack_day(data, start))
    zone = np.int64(_pack_zone(data, start + 10, stop))
    return day * ZONES + zone if day >= 0 and zone >= 0 else np.int64(-1)
