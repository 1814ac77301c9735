# mypy: disallow-untyped-defs=false
"""The values of inlined literals: numbers, truth values and times as float64, numbers as exact decimals."""

from __future__ import annotations

import numpy as np

from wukongs.store.inline_kernels import (
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

_QUARTER_MS = 900_000


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


@njit
def numeric_values(ids):
    """Return the kind and the value of each id.

    ids : int64[n], any term ids. Returns (kind int8[n], a KIND constant; value float64[n]): numbers as the nearest
    float64 (xsd:float: rounded once more, to 24 bits), booleans 0 and 1, times in ms since 1970 UTC; NaN for
    KIND_NONE. Exact but for integers of 2**53 and more, decimals and microseconds, which are correctly rounded."""
    kinds = np.zeros(len(ids), np.int8)
    values = np.full(len(ids), np.nan, np.float64)
    for i in range(len(ids)):
        if ids[i] < 0 or ids[i] & 1 == 0:
            continue
        code, body = split_id(ids[i])
        form = code - (code & TYPE_MASK)
        code &= TYPE_MASK
        if code == TYPE_STRING:
            continue
        if code == TYPE_INTEGER or code >= TYPE_DERIVED:
            kinds[i] = KIND_INTEGER
            values[i] = np.float64(body)
        elif code == TYPE_BOOLEAN:
            kinds[i] = KIND_BOOLEAN
            values[i] = np.float64(body & 1)
        elif code == TYPE_DATE_TIME:
            day, second, digits, fraction, zone = split_date_time(code + form, body)
            ms = (day - EPOCH_DAY) * (DAY_SECONDS * 1000) + second * 1000 - _zone_ms(zone)
            for _ in range(digits, 3):
                fraction *= 10
            kinds[i] = KIND_DATE_TIME if zone != ZONE_NONE else KIND_DATE_TIME_LOCAL
            values[i] = np.float64(ms * 1000 + fraction) / 1000.0 if digits == 6 else np.float64(ms + fraction)
        elif code == TYPE_DATE:
            zone = body % ZONES
            kinds[i] = KIND_DATE if zone != ZONE_NONE else KIND_DATE_LOCAL
            values[i] = np.float64((body // ZONES - EPOCH_DAY) * (DAY_SECONDS * 1000) - _zone_ms(zone))
        else:
            negative, mantissa, exponent = _split_number(code, form, body)
            power = 1.0
            for _ in range(abs(exponent)):
                power *= 10.0
            value = np.float64(mantissa) * power if exponent > 0 else np.float64(mantissa) / power
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
