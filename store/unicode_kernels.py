# mypy: disallow-untyped-defs=false
"""UTF-8, the escapes of N-Triples, and which characters beyond ASCII a blank node label may have."""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit_inline, njit_uncounted


@njit_uncounted
def read_utf8(data, p, end):
    """Decode one character of two to four bytes at data[p]. Returns (code point, next position), -1 if it is not UTF-8:
    cut short, overlong, a surrogate, or beyond U+10FFFF."""
    first = np.int64(data[p])
    if first < 0xC2 or first > 0xF4:
        return np.int64(-1), p
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if p + size > end:
        return np.int64(-1), p
    point = first & (0x7F >> size)
    for i in range(p + 1, p + size):
        byte = np.int64(data[i])
        if byte & 0xC0 != 0x80:
            return np.int64(-1), p
        point = (point << 6) | (byte & 0x3F)
    if (size == 3 and point < 0x800) or (size == 4 and point < 0x10000) or point > 0x10FFFF:
        return np.int64(-1), p
    if 0xD800 <= point <= 0xDFFF:
        return np.int64(-1), p
    return point, p + size


@njit_inline
def write_utf8(out, at, point):
    """Write a code point at out[at:]; return where it ends."""
    if point < 0x80:
        out[at] = point
        return at + 1
    if point < 0x800:
        out[at] = 0xC0 | (point >> 6)
        out[at + 1] = 0x80 | (point & 0x3F)
        return at + 2
    if point < 0x10000:
        out[at] = 0xE0 | (point >> 12)
        out[at + 1] = 0x80 | ((point >> 6) & 0x3F)
        out[at + 2] = 0x80 | (point & 0x3F)
        return at + 3
    out[at] = 0xF0 | (point >> 18)
    out[at + 1] = 0x80 | ((point >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((point >> 6) & 0x3F)
    out[at + 3] = 0x80 | (point & 0x3F)
    return at + 4


@njit_uncounted
def read_escape(data, p, end):
    r"""Decode the \u or \U escape at data[p]. Returns (code point, next position), -1 if it is none."""
    if p + 1 >= end:
        return np.int64(-1), p
    size = 4 if data[p + 1] == 117 else 8 if data[p + 1] == 85 else 0
    if size == 0 or p + 2 + size > end:
        return np.int64(-1), p
    point = np.int64(0)
    for i in range(p + 2, p + 2 + size):
        digit = np.int64(data[i])
        if 48 <= digit <= 57:
            digit -= 48
        elif 65 <= digit <= 70:
            digit -= 55
        elif 97 <= digit <= 102:
            digit -= 87
        else:
            return np.int64(-1), p
        point = (point << 4) | digit
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        return np.int64(-1), p
    return point, p + 2 + size


@njit_uncounted
def is_in_label(point, first):
    """Tell whether a character beyond ASCII may stand in (or begin) a blank node label: PN_CHARS, PN_CHARS_U."""
    if point < 0x2000:
        if point == 0xB7 or 0x300 <= point < 0x370:
            return not first
        return point >= 0xC0 and point != 0xD7 and point != 0xF7 and point != 0x37E
    if point < 0x3001:
        if point == 0x203F or point == 0x2040:
            return not first
        return 0x200C <= point <= 0x200D or 0x2070 <= point <= 0x218F or 0x2C00 <= point <= 0x2FEF
    if point < 0x10000:
        return point <= 0xD7FF or 0xF900 <= point <= 0xFDCF or 0xFDF0 <= point <= 0xFFFD
    return point <= 0xEFFFF
