# mypy: disallow-untyped-defs=false
"""Lexical forms of integers and decimals of any length as numbers in limbs."""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit

LIMB = 1_000_000_000
"""The base of the limbs; any sum of 2**32 limbs fits an int64."""
LIMB_DIGITS = 9
LIMBS_MAX = 12


@njit
def decimal_limbs(text, offsets, is_decimal):
    """Read xsd:integers and xsd:decimals.

    text : uint8[n_bytes]; offsets : int64[n + 1]; is_decimal : bool[n].

    Returns
    -------
    limbs : int64[n_limbs, n]           Number i is the sum of limbs[k, i] * LIMB ** k, over 10 ** scale; all limbs of a
                                        negative number are negative or 0.
    scale : int                         -1 if a form is ill-typed, or needs more than LIMBS_MAX limbs."""
    n = len(offsets) - 1
    scale = np.int64(0)
    whole = np.int64(1)
    for i in range(n):
        first, stop = offsets[i], offsets[i + 1]
        if first < stop and (text[first] == 43 or text[first] == 45):
            first += 1
        point = stop
        for p in range(first, stop):
            if text[p] == 46 and point == stop and is_decimal[i]:
                point = p
            elif text[p] < 48 or text[p] > 57:
                return np.zeros((1, n), np.int64), np.int64(-1)
        digits = stop - first - (1 if point < stop else 0)
        if digits == 0:
            return np.zeros((1, n), np.int64), np.int64(-1)
        scale = max(scale, stop - point - 1)
        whole = max(whole, point - first)
    n_limbs = (scale + whole + LIMB_DIGITS - 1) // LIMB_DIGITS
    if n_limbs > LIMBS_MAX:
        return np.zeros((1, n), np.int64), np.int64(-1)
    limbs = np.zeros((n_limbs, n), np.int64)
    for i in range(n):
        first, stop = offsets[i], offsets[i + 1]
        negative = text[first] == 45
        point = stop
        for p in range(first, stop):
            if text[p] == 46:
                point = p
        place = scale - max(stop - point - 1, 0)
        factor = np.int64(1)
        for _ in range(place % LIMB_DIGITS):
            factor *= 10
        for p in range(stop - 1, first - 1, -1):
            if text[p] < 48:
                continue
            digit = np.int64(text[p]) - 48
            limbs[place // LIMB_DIGITS, i] += (-digit if negative else digit) * factor
            place += 1
            factor = np.int64(1) if place % LIMB_DIGITS == 0 else factor * 10
    return limbs, scale
