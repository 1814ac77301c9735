# mypy: disallow-untyped-defs=false
"""Short numeric, boolean and date-time literals, and short strings, packed into their ids without loss.

The layout is that of store/payload_kernels.py; date-times are in store/inline_time_kernels.py. A lexical form is packed
only if unpacking gives it back to the letter; all others go to the dictionary. Mantissas stay below 2**53 and powers of
ten at 22 or less, so that a value is one product or quotient of two exact doubles: correctly rounded, hence monotone,
so a float64 comparison that says "less" is right. Bounds: docs/decisions/0007-inlined-literals.md.

`names` and `types` are the tables DATATYPE_NAMES and DATATYPES of store/term_ids.py: names : uint8[...] holds the
namespace, then the local names; types : int64[n_types, 4] the span of each local name in `names` and the least and
greatest value of the derived integer types. The row number is the type code.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.inline_time_kernels import pack_date, pack_date_time, read_digits
from wukongs.store.jit import njit, njit_inline, njit_uncounted
from wukongs.store.payload_kernels import (
    DOUBLE_DIGITS_BOUND,
    EXPONENT_LEAST,
    EXPONENT_STYLES,
    EXPONENTS,
    FLOAT_DIGITS_BOUND,
    FLOAT_MANTISSA_BITS,
    MANTISSA_BITS,
    SCALE_MAX,
    SCALE_NO_DOT,
    SIGNED_55,
    SIGNED_60,
    STRING_SIZE_MAX,
    SUBTYPE_BOOLEAN,
    SUBTYPE_DATE,
    SUBTYPE_FLOAT,
    SUBTYPE_FLOAT_EXPONENT,
    SUBTYPE_STRING,
    TAG_DECIMAL,
    TAG_DOUBLE,
    TAG_INTEGER,
    extend,
    payload_to_id,
    subtyped,
)
from wukongs.store.slot_kernels import same_bytes

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


@njit_inline
def type_code(data, start, stop, names, types):
    """Return the type code of the datatype IRI data[start:stop] (no brackets), TYPE_UNKNOWN if it has none."""
    size = stop - start - NAMESPACE_SIZE
    if size <= 0:
        return TYPE_UNKNOWN
    if not same_bytes(data, start, NAMESPACE_SIZE, names, 0):
        return TYPE_UNKNOWN
    for code in range(types.shape[0]):
        if types[code, 1] - types[code, 0] != size:
            continue
        if same_bytes(data, start + NAMESPACE_SIZE, size, names, types[code, 0]):
            return code
    return TYPE_UNKNOWN


@njit_uncounted
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
        if scale == 0 or scale > SCALE_MAX:
            return np.int64(-1)
    return (((sign << 5) | scale) << mantissa_bits) | mantissa


@njit_uncounted
def _read_exponent(data, p, stop):
    """Read `E` or `e` and the exponent at data[p:stop] in one of the EXPONENT_STYLES.

    Returns (style, exponent); style -1 for anything else."""
    lower = data[p] == 101
    i = p + 1
    negative = i < stop and data[i] == 45
    signed = negative or (i < stop and data[i] == 43)
    if signed:
        i += 1
    size = stop - i
    if (data[p] != 69 and not lower) or size < 1 or size > 2:
        return np.int64(-1), np.int64(0)
    value = np.int64(read_digits(data, i, size))
    bare = (size == 1 or value >= 10) and (not signed or (negative and value > 0))
    full = signed and size == 2 and (not negative or value > 0)
    if value < 0 or not (bare or full):
        return np.int64(-1), np.int64(0)
    style = (2 if lower else 0) if bare else (1 if lower else 3)
    return np.int64(style), (-value if negative else value)


@njit_uncounted
def _pack_exponent(data, start, stop, digits_bound):
    """Pack `-?d.digits` or `-?d` with an exponent; -1 for any other form or if it does not fit.

    The first digit is not 0 but for 0 and 0.0; the value is a mantissa below 2**53 times or over at most 10**22."""
    p = start
    sign = np.int64(0)
    if p < stop and data[p] == 45:
        sign = np.int64(1)
        p += 1
    if p >= stop or data[p] < 48 or data[p] > 57:
        return np.int64(-1)
    first = np.int64(data[p]) - 48
    mantissa = first
    count = np.int64(1)
    p += 1
    if p < stop and data[p] == 46:
        p += 1
        while p < stop and 48 <= data[p] <= 57 and count < 17:
            mantissa = mantissa * 10 + np.int64(data[p]) - 48
            count += 1
            p += 1
        if count == 1:
            return np.int64(-1)
    if p >= stop or mantissa >= digits_bound or (first == 0 and (mantissa != 0 or count > 2)):
        return np.int64(-1)
    style, exponent = _read_exponent(data, p, stop)
    power = exponent - (count - 1)
    if style < 0 or power < EXPONENT_LEAST or power > SCALE_MAX or exponent < EXPONENT_LEAST:
        return np.int64(-1)
    if first == 0 and count == 2:
        mantissa = np.int64(digits_bound)
    return ((mantissa * EXPONENT_STYLES + style) * EXPONENTS + exponent - EXPONENT_LEAST) * 2 + sign


@njit_inline
def pack_string(data, start, stop):
    """Return the inlined id of the plain string data[start:stop], -1 if it is long or not ASCII."""
    size = stop - start
    if size > STRING_SIZE_MAX:
        return np.int64(-1)
    body = np.int64(0)
    for i in range(size):
        byte = np.int64(data[start + i])
        if byte >= 128:
            return np.int64(-1)
        body |= byte << (7 * i)
    return np.int64(payload_to_id(subtyped(SUBTYPE_STRING, (size << (7 * STRING_SIZE_MAX)) | body)))


@njit_uncounted
def _read_integer(data, start, stop, limit):
    """Return (fits, value) of `-?digits` without superfluous zeros, -limit <= value < limit."""
    p = start
    negative = p < stop and data[p] == 45
    if negative:
        p += 1
    count = stop - p
    if count == 0 or count > 18 or (data[p] == 48 and (count > 1 or negative)):
        return False, np.int64(0)
    value = read_digits(data, p, count)
    if value < 0 or value > limit or (value == limit and not negative):
        return False, np.int64(0)
    return True, (-value if negative else value)


@njit_uncounted
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


@njit_uncounted
def _pack_subtype(data, start, stop, code, types):
    """Return the payload of a type that has a subtype of its own, -1 if the form does not fit."""
    body = np.int64(-1)
    if code == TYPE_FLOAT:
        subtype = np.int64(SUBTYPE_FLOAT)
        body = np.int64(_pack_plain(data, start, stop, FLOAT_MANTISSA_BITS))
        if body < 0:
            subtype = np.int64(SUBTYPE_FLOAT_EXPONENT)
            body = np.int64(_pack_exponent(data, start, stop, FLOAT_DIGITS_BOUND))
    elif code == TYPE_BOOLEAN:
        subtype = np.int64(SUBTYPE_BOOLEAN)
        body = np.int64(_pack_boolean(data, start, stop))
    elif code == TYPE_DATE:
        subtype = np.int64(SUBTYPE_DATE)
        body = np.int64(pack_date(data, start, stop))
    else:
        subtype = np.int64(code - TYPE_DERIVED)
        fits, value = _read_integer(data, start, stop, SIGNED_55)
        # A value that its type does not have is no number: the dictionary keeps it.
        if fits and types[code, 2] <= value <= types[code, 3]:
            body = value & (2 * SIGNED_55 - 1)
    return subtyped(subtype, body) if body >= 0 else body


@njit_uncounted
def pack_typed(data, start, stop, code, types):
    """Return the inlined id of the lexical form data[start:stop] of the type with this code, -1 if it has none."""
    if code <= TYPE_STRING:
        return np.int64(-1)
    if code == TYPE_DATE_TIME:
        payload = np.int64(pack_date_time(data, start, stop))
    elif code <= TYPE_DECIMAL:
        payload = np.int64(_pack_plain(data, start, stop, MANTISSA_BITS))
        if payload >= 0:
            payload |= np.int64(code - TYPE_DOUBLE) << 60
        elif code == TYPE_DOUBLE:
            body = np.int64(_pack_exponent(data, start, stop, DOUBLE_DIGITS_BOUND))
            payload = np.int64(extend(TAG_DOUBLE, body)) if body >= 0 else body
    elif code == TYPE_INTEGER:
        fits, value = _read_integer(data, start, stop, SIGNED_60)
        payload = (np.int64(TAG_INTEGER) << 60) | (value & (2 * SIGNED_60 - 1)) if fits else np.int64(-1)
    else:
        payload = np.int64(_pack_subtype(data, start, stop, code, types))
    return payload_to_id(payload) if payload >= 0 else np.int64(-1)


@njit_uncounted
def pack_literal(data, lex_start, lex_stop, type_start, type_stop, names, types):
    """Return the inlined id of a literal, -1 if it has none.

    data : uint8[...]; the lexical form is data[lex_start:lex_stop], the datatype IRI (no brackets) the other span.
    """
    return pack_typed(data, lex_start, lex_stop, type_code(data, type_start, type_stop, names, types), types)


@njit_uncounted
def pack_integer(number):
    """Return the inlined id of an xsd:integer in its canonical form, -1 if it has none."""
    if number < -SIGNED_60 or number >= SIGNED_60:
        return np.int64(-1)
    return np.int64(payload_to_id((np.int64(TAG_INTEGER) << 60) | (number & (2 * SIGNED_60 - 1))))


@njit_uncounted
def pack_decimal(numerator, scale):
    """Return the inlined id of the xsd:decimal numerator / 10 ** scale in its canonical form, -1 if it has none."""
    while scale > 0 and numerator % 10 == 0:
        numerator //= 10
        scale -= 1
    sign = np.int64(1) if numerator < 0 else np.int64(0)
    mantissa = abs(numerator)
    if mantissa >= np.int64(1) << 53 or scale > SCALE_MAX:
        return np.int64(-1)
    style = scale if scale > 0 else np.int64(SCALE_NO_DOT)
    payload = (((sign << 5) | style) << MANTISSA_BITS) | mantissa
    return np.int64(payload_to_id((np.int64(TAG_DECIMAL) << 60) | payload))


@njit
def integer_ids(numbers):
    """Return the inlined ids of xsd:integers; -1 for those that have none. numbers : int64[n]"""
    ids = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        ids[i] = pack_integer(numbers[i])
    return ids


@njit
def decimal_ids(numerators, scales):
    """Return the inlined ids of xsd:decimals; -1 for those that have none. numerators, scales : int64[n]; number i is
    numerators[i] / 10 ** scales[i]."""
    ids = np.empty(len(numerators), np.int64)
    for i in range(len(numerators)):
        ids[i] = pack_decimal(numerators[i], scales[i])
    return ids
