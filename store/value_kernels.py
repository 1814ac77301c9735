# mypy: disallow-untyped-defs=false
"""The values of inlined literals: numbers, truth values and times as float64, numbers as exact decimals."""

from __future__ import annotations

import numpy as np

from wukongs.store.inline_kernels import (
    TYPE_BOOLEAN,
    TYPE_DATE,
    TYPE_DATE_TIME,
    TYPE_DECIMAL,
    TYPE_DERIVED,
    TYPE_DOUBLE,
    TYPE_FLOAT,
    TYPE_INTEGER,
    TYPE_STRING,
)
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.payload_kernels import (
    DAY_SECONDS,
    EPOCH_DAY,
    FLOAT_MANTISSA_BITS,
    MANTISSA_BITS,
    ZONE_NONE,
    ZONE_QUARTERS,
    ZONE_UTC,
    ZONES,
)
from wukongs.store.unpack_kernels import (
    FORM_EXPONENT,
    TYPE_MASK,
    split_date_time,
    split_exponent,
    split_id,
    split_plain,
)

KIND_NONE = 0
"""Not an inlined number, truth value or time: ask for its text."""
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

OP_EQUAL, OP_NOT_EQUAL, OP_LESS, OP_GREATER, OP_AT_MOST, OP_AT_LEAST = range(6)
EXACT_LIMIT = 2.0**53
"""Integers below it are float64s."""
_QUARTER_MS = 900_000
_ZONE_MS_MAX = 14 * 3_600_000
"""No zone is further from UTC. Dates with and without a zone that are nearer cannot be compared."""


@njit_uncounted
def _split_number(code, form, body):
    """Return (negative, mantissa, power of ten) of a decimal, double or float."""
    if form == FORM_EXPONENT:
        negative, mantissa, digits, _, exponent = split_exponent(code, body)
        return negative, mantissa, exponent - (digits - 1)
    negative, scale, mantissa, _ = split_plain(body, FLOAT_MANTISSA_BITS if code == TYPE_FLOAT else MANTISSA_BITS)
    return negative, mantissa, -scale


@njit_uncounted
def _zone_ms(zone):
    return (zone - ZONE_QUARTERS) * _QUARTER_MS if zone > ZONE_UTC else np.int64(0)


@njit_uncounted
def _product_error(left, right, product):
    """Return left * right - product exactly, product being the nearest double: Dekker's product of halves."""
    split = 134_217_729.0  # 2 ** 27 + 1
    left_high = left * split - (left * split - left)
    right_high = right * split - (right * split - right)
    left_low = left - left_high
    right_low = right - right_high
    return ((left_high * right_high - product) + left_high * right_low + left_low * right_high) + left_low * right_low


@njit_uncounted
def _to_single(value, mantissa, power, exponent):
    """Round a product (exponent > 0) or quotient of mantissa and power to a 32-bit float. value: the nearest double.

    A double that lies midway between two floats may be rounded already: then the rest decides."""
    single = np.float64(np.float32(value))
    other = value + (value - single)
    if other == single or np.float64(np.float32(other)) != other:
        return single
    if exponent > 0:
        rest = _product_error(mantissa, power, value)
    else:
        product = value * power
        rest = (mantissa - product) - _product_error(value, power, product)
    if rest == 0:
        return single
    return max(single, other) if rest > 0 else min(single, other)


@njit_uncounted
def numeric_value(term):
    """Return the kind and the value of one id, as numeric_values does."""
    if term < 0 or term & 1 == 0:
        return KIND_NONE, np.nan
    code, body = split_id(term)
    form = code - (code & TYPE_MASK)
    code &= TYPE_MASK
    if code == TYPE_STRING:
        return KIND_NONE, np.nan
    if code == TYPE_INTEGER or code >= TYPE_DERIVED:
        return KIND_INTEGER, np.float64(body)
    if code == TYPE_BOOLEAN:
        return KIND_BOOLEAN, np.float64(body & 1)
    if code == TYPE_DATE_TIME:
        day, second, digits, fraction, zone = split_date_time(code + form, body)
        ms = (day - EPOCH_DAY) * (DAY_SECONDS * 1000) + second * 1000 - _zone_ms(zone)
        for _ in range(digits, 3):
            fraction *= 10
        value = np.float64(ms * 1000 + fraction) / 1000.0 if digits == 6 else np.float64(ms + fraction)
        return (KIND_DATE_TIME if zone != ZONE_NONE else KIND_DATE_TIME_LOCAL), value
    if code == TYPE_DATE:
        zone = body % ZONES
        value = np.float64((body // ZONES - EPOCH_DAY) * (DAY_SECONDS * 1000) - _zone_ms(zone))
        return (KIND_DATE if zone != ZONE_NONE else KIND_DATE_LOCAL), value
    negative, mantissa, exponent = _split_number(code, form, body)
    power = 1.0
    for _ in range(abs(exponent)):
        power *= 10.0
    value = np.float64(mantissa) * power if exponent > 0 else np.float64(mantissa) / power
    if code == TYPE_FLOAT:
        value = _to_single(value, np.float64(mantissa), power, exponent)
    if negative:
        value = -value
    if code == TYPE_FLOAT:
        return KIND_FLOAT, value
    return (KIND_DOUBLE if code == TYPE_DOUBLE else KIND_DECIMAL), value


@njit
def numeric_values(ids):
    """Return the kind and the value of each id.

    ids : int64[n], any term ids. Returns (kind int8[n], a KIND constant; value float64[n]): numbers as the nearest
    float64 (xsd:float: rounded once more, to 24 bits), booleans 0 and 1, times in ms since 1970 UTC; NaN for
    KIND_NONE. Exact but for integers of 2**53 and more, decimals and microseconds, which are correctly rounded."""
    kinds = np.zeros(len(ids), np.int8)
    values = np.full(len(ids), np.nan, np.float64)
    for i in range(len(ids)):
        kinds[i], values[i] = numeric_value(ids[i])
    return kinds, values


@njit_uncounted
def _is_decided(kind, value, other_kind, other):
    """Tell whether two values compare as their float64s do."""
    if kind >= KIND_DATE_TIME or other_kind >= KIND_DATE_TIME:
        if kind == other_kind or (kind < KIND_DATE and other_kind < KIND_DATE):
            return kind >= KIND_DATE_TIME and other_kind >= KIND_DATE_TIME
        return kind >= KIND_DATE and other_kind >= KIND_DATE and abs(value - other) > _ZONE_MS_MAX
    for one in (kind, other_kind):
        if one != KIND_INTEGER and one != KIND_DECIMAL and one != KIND_DOUBLE:
            return False
    if kind == KIND_DOUBLE or other_kind == KIND_DOUBLE or value != other:
        return True
    return kind == KIND_INTEGER and other_kind == KIND_INTEGER and abs(value) < EXACT_LIMIT


@njit_uncounted
def verdict_of(op, kind, value, other_kind, other):
    """Compare two values: 1 if it holds, 0 if it does not, -1 if their float64s do not tell. op: an OP constant.

    An operand beside a double is promoted to a double. Rounding is monotone, so integers and decimals compare as their
    float64s do unless these are equal and one of them may be rounded. The float64s of two times are equal only if the
    times are: those with microseconds are near enough to 1970."""
    if not _is_decided(kind, value, other_kind, other):
        return -1
    if op == OP_EQUAL:
        return 1 if value == other else 0
    if op == OP_NOT_EQUAL:
        return 1 if value != other else 0
    if op == OP_LESS:
        return 1 if value < other else 0
    if op == OP_GREATER:
        return 1 if value > other else 0
    if op == OP_AT_MOST:
        return 1 if value <= other else 0
    return 1 if value >= other else 0


@njit
def compare_values(op, left, right, verdicts):
    """Compare inlined numbers, date-times or dates, where their float64s decide it.

    Parameters
    ----------
    op : int                        An OP constant.
    left, right : int64[n], or [1]  Any term ids; one is compared with all.
    verdicts : int8[n]              Written, as verdict_of says."""
    first_kind, first = numeric_value(left[0])
    second_kind, second = numeric_value(right[0])
    for i in range(len(verdicts)):
        if i > 0 and len(left) > 1:
            first_kind, first = numeric_value(left[i])
        if i > 0 and len(right) > 1:
            second_kind, second = numeric_value(right[i])
        verdicts[i] = verdict_of(op, first_kind, first, second_kind, second)


@njit
def decimal_parts(ids):
    """Return each inlined integer, decimal, float or double as an exact decimal: numerator / 10 ** scale.

    ids : int64[n]. Returns (numerator int64[n], scale int8[n]); scale -1 for all other ids, and for numerators of 2**63
    and more."""
    numerators = np.zeros(len(ids), np.int64)
    scales = np.full(len(ids), -1, np.int8)
    for i in range(len(ids)):
        if ids[i] < 0 or ids[i] & 1 == 0:
            continue
        code, body = split_id(ids[i])
        form = code - (code & TYPE_MASK)
        code &= TYPE_MASK
        if code == TYPE_INTEGER or code >= TYPE_DERIVED:
            numerators[i] = body
            scales[i] = 0
        elif code != TYPE_STRING and code < TYPE_BOOLEAN:
            negative, mantissa, exponent = _split_number(code, form, body)
            while exponent > 0 and mantissa < (np.int64(1) << 62) // 10:
                mantissa *= 10
                exponent -= 1
            if exponent <= 0:
                numerators[i] = -mantissa if negative else mantissa
                scales[i] = -exponent
    return numerators, scales


@njit_uncounted
def exact_part(term):
    """Return the kind of an id, and the number exactly if it is an inlined integer or decimal: numerator / 10 **
    scale. The kind is KIND_NONE for all other ids."""
    if term >= 0 and term & 1 == 1:
        code, body = split_id(term)
        if code == TYPE_INTEGER or TYPE_DERIVED <= code <= TYPE_MASK:
            return KIND_INTEGER, body, np.int64(0)
        if code == TYPE_DECIMAL:
            negative, mantissa, exponent = _split_number(code, np.int64(0), body)
            return KIND_DECIMAL, (-mantissa if negative else mantissa), -exponent
    return KIND_NONE, np.int64(0), np.int64(0)
