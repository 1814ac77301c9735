# mypy: disallow-untyped-defs=false
"""Short numeric, boolean and date-time literals packed into their ids, without loss, and unpacked.

An inlined id is (mixed payload << 1) | 1. The payload has 62 bits, its top two a tag:

    00 xsd:double | 01 xsd:decimal    sign 1, scale 5, mantissa 54      -?digits.digits, or -?digits (scale 31)
    10 xsd:integer                    60 bits, signed                   -?digits
    11                                subtype 5, 55 bits                see the SUBTYPE constants; 16 to 31 are free

The mix is a bijection of the 62-bit integers that spreads equal and near payloads over the whole id range.
A lexical form is packed only if unpacking gives it back to the letter; all others go to the dictionary. Mantissas
stay below 2**53 and scales at 22 or less, so that a value is one division of two exact doubles: correctly rounded,
hence monotone, so a float64 comparison that says "less" is right.

`names` and `types` are the tables DATATYPE_NAMES and DATATYPES of store/term_ids.py: names : uint8[...] holds the
namespace, then the local names; types : int64[n_types, 4] the span of each local name in `names` and the least and
greatest value of the derived integer types. The row number is the type code.
"""

from __future__ import annotations

import numpy as np

from store.jit import njit, njit_inline

NAMESPACE_SIZE = 33
TYPE_UNKNOWN = -1
TYPE_STRING = 0
TYPE_DOUBLE = 1
TYPE_DECIMAL = 2
TYPE_INTEGER = 3
TYPE_FLOAT = 4
TYPE_BOOLEAN = 5
TYPE_DATE_TIME = 6
TYPE_DATE = 7
TYPE_DERIVED = 8
"""Type code of the first derived integer type, whose subtype is 0."""

SUBTYPE_FLOAT = 12
SUBTYPE_BOOLEAN = 13
SUBTYPE_DATE_TIME = 14
SUBTYPE_DATE = 15

_NOT_PACKED = -1
TAG_INTEGER = 2
TAG_OTHER = 3
MANTISSA_BITS = 54
FLOAT_MANTISSA_BITS = 49
SUBTYPE_BITS = 55
SIGNED_60 = 1 << 59
SIGNED_55 = 1 << 54
_SCALE_MAX = 22
SCALE_NO_DOT = 31
FRACTIONS = 1001
ZONES = 107
ZONE_NONE = 0
ZONE_UTC = 1
ZONE_QUARTERS = 50
"""Zone code of +00:00; one more for each quarter of an hour to the east."""
DAY_SECONDS = 86_400
EPOCH_DAY = 719_162
"""Days from 0001-01-01 to 1970-01-01."""

_MASK_62 = np.uint64((1 << 62) - 1)
_MIX_1 = np.uint64(0x1F3D5B79A8C6E425)
_MIX_2 = np.uint64(0x2B7E151628AED2A7)
_UNMIX_1 = np.uint64(pow(0x1F3D5B79A8C6E425, -1, 1 << 62))
_UNMIX_2 = np.uint64(pow(0x2B7E151628AED2A7, -1, 1 << 62))
_SHIFT = np.uint64(31)


@njit
def payload_to_id(payload):
    """Mix a payload (int64, 62 bits) and mark it as inlined. A shift by 31 of 62 bits is its own inverse."""
    x = np.uint64(payload)
    x = ((x ^ (x >> _SHIFT)) * _MIX_1) & _MASK_62
    x = ((x ^ (x >> _SHIFT)) * _MIX_2) & _MASK_62
    x = x ^ (x >> _SHIFT)
    return np.int64((x << np.uint64(1)) | np.uint64(1))


@njit
def id_to_payload(term):
    """Undo payload_to_id."""
    x = np.uint64(term) >> np.uint64(1)
    x = ((x ^ (x >> _SHIFT)) * _UNMIX_2) & _MASK_62
    x = ((x ^ (x >> _SHIFT)) * _UNMIX_1) & _MASK_62
    return np.int64(x ^ (x >> _SHIFT))


@njit_inline
def type_code(data, start, stop, names, types):
    """Return the type code of the datatype IRI data[start:stop] (no brackets), TYPE_UNKNOWN if it has none."""
    size = stop - start - NAMESPACE_SIZE
    if size <= 0:
        return TYPE_UNKNOWN
    for i in range(NAMESPACE_SIZE):
        if data[start + i] != names[i]:
            return TYPE_UNKNOWN
    for code in range(types.shape[0]):
        if types[code, 1] - types[code, 0] != size:
            continue
        i = 0
        while i < size and data[start + NAMESPACE_SIZE + i] == names[types[code, 0] + i]:
            i += 1
        if i == size:
            return code
    return TYPE_UNKNOWN


@njit
def _digits(data, start, count):
    """Read `count` decimal digits; -1 if there is anything else."""
    value = np.int64(0)
    for i in range(start, start + count):
        digit = np.int64(data[i]) - 48
        if digit < 0 or digit > 9:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@njit
def _pack_plain(data, start, stop, mantissa_bits):
    """Pack `-?digits.digits` or `-?digits` into sign, scale, mantissa; -1 for any other form or if it does not fit."""
    p = start
    sign = np.int64(0)
    if p < stop and data[p] == 45:
        sign = np.int64(1)
        p += 1
    if stop - p > 24 or p >= stop:
        return np.int64(-1)
    first = p
    dot = np.int64(-1)
    mantissa = np.int64(0)
    limit = np.int64(1) << min(53, mantissa_bits)
    while p < stop:
        digit = np.int64(data[p]) - 48
        if digit == -2 and dot < 0:
            dot = p
        elif digit < 0 or digit > 9:
            return np.int64(-1)
        else:
            mantissa = mantissa * 10 + digit
            if mantissa >= limit:
                return np.int64(-1)
        p += 1
    whole = (dot if dot >= 0 else stop) - first
    if whole == 0 or (whole > 1 and data[first] == 48):
        return np.int64(-1)
    scale = np.int64(SCALE_NO_DOT)
    if dot >= 0:
        scale = np.int64(stop - dot - 1)
        if scale == 0 or scale > _SCALE_MAX:
            return np.int64(-1)
    return (((sign << 5) | scale) << mantissa_bits) | mantissa


@njit
def _read_integer(data, start, stop, limit):
    """Return (fits, value) of `-?digits` without superfluous zeros, -limit <= value < limit."""
    p = start
    negative = p < stop and data[p] == 45
    if negative:
        p += 1
    count = stop - p
    if count == 0 or count > 18 or (data[p] == 48 and (count > 1 or negative)):
        return False, np.int64(0)
    value = _digits(data, p, count)
    if value < 0 or value > limit or (value == limit and not negative):
        return False, np.int64(0)
    return True, (-value if negative else value)


@njit
def _pack_boolean(data, start, stop):
    """Number the lexical forms false, true, 0, 1 in this order; -1 for any other."""
    size = stop - start
    if size == 1 and (data[start] == 48 or data[start] == 49):
        return np.int64(data[start]) - 46
    if size == 4 and data[start] == 116 and data[start + 1] == 114 and data[start + 2] == 117 and data[stop - 1] == 101:
        return np.int64(1)
    if size == 5 and data[start] == 102 and data[start + 1] == 97 and data[start + 2] == 108:
        return np.int64(0) if data[start + 3] == 115 and data[start + 4] == 101 else np.int64(-1)
    return np.int64(-1)


@njit
def _month_length(year, month):
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@njit
def _pack_day(data, start):
    """Return the day YYYY-MM-DD at data[start:start + 10], counted from 0001-01-01; -1 if there is no such day."""
    year = np.int64(_digits(data, start, 4))
    month = np.int64(_digits(data, start + 5, 2))
    day = np.int64(_digits(data, start + 8, 2))
    if data[start + 4] != 45 or data[start + 7] != 45 or year < 1 or month < 1 or month > 12 or day < 1:
        return np.int64(-1)
    if day > _month_length(year, month):
        return np.int64(-1)
    # Count years from March, so that the leap day is the last of its year.
    march_year = year - 1 if month <= 2 else year
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * march_year + march_year // 4 - march_year // 100 + march_year // 400 + day_of_year - 306


@njit
def _pack_zone(data, start, stop):
    """Number the time zone data[start:stop]: none, Z, then the quarters of an hour; -1 if it cannot be given back."""
    if start == stop:
        return np.int64(ZONE_NONE)
    if stop - start == 1 and data[start] == 90:
        return np.int64(ZONE_UTC)
    if stop - start != 6 or data[start + 3] != 58 or (data[start] != 43 and data[start] != 45):
        return np.int64(-1)
    hour = np.int64(_digits(data, start + 1, 2))
    minute = np.int64(_digits(data, start + 4, 2))
    if hour < 0 or minute < 0 or minute > 45 or minute % 15 != 0:
        return np.int64(-1)
    quarters = hour * 4 + minute // 15
    if data[start] == 45:
        return ZONE_QUARTERS - quarters if 0 < quarters <= 48 else np.int64(-1)
    return ZONE_QUARTERS + quarters if quarters <= 56 else np.int64(-1)


@njit
def _pack_date_time(data, start, stop):
    """Pack YYYY-MM-DDThh:mm:ss, a fraction of none or three digits, and a zone; -1 if it cannot be given back."""
    if stop - start < 19 or stop - start > 29:
        return np.int64(-1)
    day = np.int64(_pack_day(data, start))
    hour = np.int64(_digits(data, start + 11, 2))
    minute = np.int64(_digits(data, start + 14, 2))
    second = np.int64(_digits(data, start + 17, 2))
    if day < 0 or data[start + 10] != 84 or data[start + 13] != 58 or data[start + 16] != 58:
        return np.int64(-1)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return np.int64(-1)
    p = start + 19
    fraction = np.int64(0)
    if p < stop and data[p] == 46:
        if stop - p < 4:
            return np.int64(-1)
        fraction = np.int64(_digits(data, p + 1, 3)) + 1
        if fraction == 0:
            return np.int64(-1)
        p += 4
    zone = np.int64(_pack_zone(data, p, stop))
    if zone < 0:
        return np.int64(-1)
    return ((day * DAY_SECONDS + hour * 3600 + minute * 60 + second) * FRACTIONS + fraction) * ZONES + zone


@njit
def _pack_date(data, start, stop):
    if stop - start < 10:
        return np.int64(-1)
    day = np.int64(_pack_day(data, start))
    zone = np.int64(_pack_zone(data, start + 10, stop))
    return day * ZONES + zone if day >= 0 and zone >= 0 else np.int64(-1)


@njit
def pack_typed(data, start, stop, code, types):
    """Return the inlined id of the lexical form data[start:stop] of the type with this code, -1 if it has none."""
    if code <= TYPE_STRING:
        return np.int64(_NOT_PACKED)
    if code <= TYPE_DECIMAL:
        plain = np.int64(_pack_plain(data, start, stop, MANTISSA_BITS))
        return payload_to_id((np.int64(code - TYPE_DOUBLE) << 60) | plain) if plain >= 0 else np.int64(_NOT_PACKED)
    if code == TYPE_INTEGER:
        fits, value = _read_integer(data, start, stop, SIGNED_60)
        payload = (np.int64(TAG_INTEGER) << 60) | (value & (2 * SIGNED_60 - 1))
        return payload_to_id(payload) if fits else np.int64(_NOT_PACKED)
    body = np.int64(-1)
    if code == TYPE_FLOAT:
        subtype = np.int64(SUBTYPE_FLOAT)
        body = np.int64(_pack_plain(data, start, stop, FLOAT_MANTISSA_BITS))
    elif code == TYPE_BOOLEAN:
        subtype = np.int64(SUBTYPE_BOOLEAN)
        body = np.int64(_pack_boolean(data, start, stop))
    elif code == TYPE_DATE_TIME:
        subtype = np.int64(SUBTYPE_DATE_TIME)
        body = np.int64(_pack_date_time(data, start, stop))
    elif code == TYPE_DATE:
        subtype = np.int64(SUBTYPE_DATE)
        body = np.int64(_pack_date(data, start, stop))
    else:
        subtype = np.int64(code - TYPE_DERIVED)
        fits, value = _read_integer(data, start, stop, SIGNED_55)
        # A value that its type does not have is no number: the dictionary keeps it.
        if fits and types[code, 2] <= value <= types[code, 3]:
            body = value & (2 * SIGNED_55 - 1)
    if body < 0:
        return np.int64(_NOT_PACKED)
    return payload_to_id((np.int64(TAG_OTHER) << 60) | (subtype << SUBTYPE_BITS) | body)


@njit
def pack_literal(data, lex_start, lex_stop, type_start, type_stop, names, types):
    """Return the inlined id of a literal, -1 if it has none.

    data : uint8[...]; the lexical form is data[lex_start:lex_stop], the datatype IRI (no brackets) the other span.
    """
    return pack_typed(data, lex_start, lex_stop, type_code(data, type_start, type_stop, names, types), types)
