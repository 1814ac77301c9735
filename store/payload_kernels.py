# mypy: disallow-untyped-defs=false
"""The 62 bits of an inlined literal: the meaning of the bits, and the mix that spreads them over all ids.

An inlined id is (mixed payload << 1) | 1. The payload has 62 bits, its top two a tag:

    00 xsd:double | 01 xsd:decimal    sign 1, scale 5, 0, mantissa 53   -?digits.digits, or -?digits (scale 31)
    00                                6 bits, 1, 53 bits                xsd:double with an exponent
    01                                6 bits, 1, 53 bits                xsd:dateTime with microseconds
    10 xsd:integer                    60 bits, signed                   -?digits
    11                                subtype 5, 55 bits                see the SUBTYPE constants; 19 to 31 are free

Subtypes 0 to 11 are the derived integer types, in the order of store/term_ids.py. The mix is a bijection of the 62-bit
integers that spreads equal and near payloads over the whole id range. Bounds: docs/decisions/0007-inlined-literals.md.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit_inline, njit_uncounted

SUBTYPE_FLOAT = 12
SUBTYPE_BOOLEAN = 13
SUBTYPE_DATE_TIME = 14
SUBTYPE_DATE = 15
SUBTYPE_STRING = 16
SUBTYPE_FLOAT_EXPONENT = 17
SUBTYPE_DATE_TIME_TENTHS = 18

EXTENDED_BIT = 53
"""Set in a payload of tag 00 or 01 that is not a plain number."""
STRING_SIZE_MAX = 7
EXPONENT_LEAST = -22
EXPONENTS = 59
EXPONENT_STYLES = 4
"""E5, e+05, e5, E+05 in this order: the odd ones write a sign always and two digits."""
DOUBLE_DIGITS_BOUND = 10**15
"""A mantissa is below it; DIGITS_BOUND itself stands for 0.0."""
FLOAT_DIGITS_BOUND = 10**13
MICRO_DAY = 711_857
"""1950-01-01, the first day whose times are inlined with microseconds; MICRO_DAYS later they end."""
MICRO_DAYS = 62_000
TENTHS = 110
"""Fractions of one digit and of two."""

TAG_DOUBLE = 0
TAG_DECIMAL = 1
TAG_INTEGER = 2
TAG_OTHER = 3
MANTISSA_BITS = 54
FLOAT_MANTISSA_BITS = 49
SUBTYPE_BITS = 55
SIGNED_60 = 1 << 59
SIGNED_55 = 1 << 54
SCALE_MAX = 22
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


@njit_uncounted
def payload_to_id(payload):
    """Mix a payload (int64, 62 bits) and mark it as inlined. A shift by 31 of 62 bits is its own inverse."""
    x = np.uint64(payload)
    x = ((x ^ (x >> _SHIFT)) * _MIX_1) & _MASK_62
    x = ((x ^ (x >> _SHIFT)) * _MIX_2) & _MASK_62
    x = x ^ (x >> _SHIFT)
    return np.int64((x << np.uint64(1)) | np.uint64(1))


@njit_uncounted
def id_to_payload(term):
    """Undo payload_to_id."""
    x = np.uint64(term) >> np.uint64(1)
    x = ((x ^ (x >> _SHIFT)) * _UNMIX_2) & _MASK_62
    x = ((x ^ (x >> _SHIFT)) * _UNMIX_1) & _MASK_62
    return np.int64(x ^ (x >> _SHIFT))


@njit_inline
def subtyped(subtype, body):
    """Return the payload of a subtype's 55 bits."""
    return (np.int64(TAG_OTHER) << 60) | (np.int64(subtype) << SUBTYPE_BITS) | body


@njit_inline
def extend(tag, body):
    """Return the payload of tag 00 or 01 that holds 59 bits beside the extended bit."""
    low = body & ((np.int64(1) << EXTENDED_BIT) - 1)
    high = body >> EXTENDED_BIT
    return (np.int64(tag) << 60) | (high << (EXTENDED_BIT + 1)) | (np.int64(1) << EXTENDED_BIT) | low
