# mypy: disallow-untyped-defs=false
"""Kernels of HeldGroups: what a move of rows changes of counts, sums and terms, by the slots of their groups.

Terms are rows (slot of a group, term) of CountedRows, called entries here. The entries of a group are a list, so that
all of them can be looked through: heads[group] is the first, nexts and lasts are the one behind and the one before it;
-1 for none.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.dtypes import UNBOUND
from wukongs.store.inline_kernels import pack_decimal, pack_integer
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.value_kernels import KIND_DECIMAL, KIND_NONE, exact_part

NOT_INLINED = -2
"""In the place of the id of a result that no id can hold."""
BOUND = np.int64(1) << 53
"""A decimal's digits are a number below it, or no id can hold it."""
QUOTIENT_DIGITS, QUOTIENT_PLACES = 28, 18
"""The digits of a quotient without an end, and at least how many of them stand behind the point."""
MEAN_SIZE_MAX = 160
"""Longer than any mean: 19 digits, and behind the point 22 zeros, 19 for a count, 62 digits."""


@njit
def count_bound(ids, weights, slots, counts):
    """Count the rows that have a term. ids, weights, slots : int64[n]; counts : int64[n_slots]."""
    for i in range(ids.shape[0]):
        if ids[i] != UNBOUND:
            counts[slots[i]] += weights[i]


# --- sums -------------------------------------------------------------------------------------------------------------


@njit
def read_exact(ids, kinds, numerators, scales):
    """Read inlined integers and decimals: numerator / 10 ** scale; KIND_NONE for other ids.

    ids, kinds, numerators, scales : int64[n]. Returns the greatest scale, and how many ids are others."""
    greatest, others = np.int64(0), np.int64(0)
    for i in range(ids.shape[0]):
        kinds[i], numerators[i], scales[i] = exact_part(ids[i])
        greatest = max(greatest, scales[i])
        if kinds[i] == KIND_NONE:
            others += 1
    return greatest, others


@njit
def sum_size(numerators, scales, scale):
    """Return about the sum of the absolute values of numbers, each times 10 ** scale, as a float64."""
    size = 0.0
    for i in range(numerators.shape[0]):
        size += abs(float(numerators[i])) * 10.0 ** (scale - scales[i])
    return size


@njit
def count_kinds(kinds, weights, slots, decimals, errors):
    """Count decimals, and terms that are no numbers. decimals, errors : int64[n_slots]."""
    for i in range(kinds.shape[0]):
        if kinds[i] == KIND_DECIMAL:
            decimals[slots[i]] += weights[i]
        elif kinds[i] == KIND_NONE:
            errors[slots[i]] += weights[i]


@njit
def add_exact(numerators, scales, weights, slots, scale, totals):
    """Add numbers to totals[i] / 10 ** scale. totals : int64[n_slots], which no sum leaves. Returns the greatest
    absolute value that a total has had."""
    greatest = np.int64(0)
    for i in range(numerators.shape[0]):
        number = numerators[i]
        if number != 0:
            for _ in range(scale - scales[i]):
                number *= 10
            totals[slots[i]] += weights[i] * number
            greatest = max(greatest, abs(totals[slots[i]]))
    return greatest


@njit
def sum_ids(totals, scale, decimals, errors, slots):
    """Return the ids of sums: UNBOUND where a term is no number. slots : int64[n], of the others as in `add_exact`."""
    ids = np.empty(slots.shape[0], np.int64)
    for i in range(slots.shape[0]):
        slot = slots[i]
        if errors[slot] != 0:
            ids[i] = UNBOUND
            continue
        if decimals[slot] != 0:
            found = pack_decimal(totals[slot], scale)
        else:
            number = totals[slot]
            for _ in range(scale):
                number //= 10
            found = pack_integer(number)
        ids[i] = found if found >= 0 else NOT_INLINED
    return ids


@njit_uncounted
def _greatest_divisor(one, other):
    """Return the greatest divisor that two numbers share. other : above 0"""
    while other != 0:
        one, other = other, one % other
    return one


@njit_uncounted
def _quotient_id(total, scale, count):
    """Return the id of total / 10 ** scale / count, NOT_INLINED if it has none."""
    while scale > 0 and total % 10 == 0:
        total //= 10
        scale -= 1
    shared = _greatest_divisor(abs(total), count)
    total //= shared
    count //= shared
    # The quotient ends if nothing but twos and fives is left of the count.
    while count % 10 == 0:
        count //= 10
        scale += 1
    factor = np.int64(5) if count % 2 == 0 else np.int64(2)
    while abs(total) < BOUND and count % (10 // factor) == 0:
        count //= 10 // factor
        total *= factor
        scale += 1
    found = pack_decimal(total, scale) if count == 1 and abs(total) < BOUND else np.int64(-1)
    return found if found >= 0 else np.int64(NOT_INLINED)


@njit
def mean_ids(totals, scale, counts, errors, slots):
    """Return the ids of means as `sum_ids` does. counts : int64[n_slots], the numbers of each sum, at least one."""
    ids = np.empty(slots.shape[0], np.int64)
    for i in range(slots.shape[0]):
        slot = slots[i]
        ids[i] = UNBOUND if errors[slot] != 0 else _quotient_id(totals[slot], scale, counts[slot])
    return ids


@njit_uncounted
def _digits_of(number, divisor, is_ending, scale, digits):
    """Write the digits of number / divisor, both above 0: all if it ends, else those that value_operators.quotient
    keeps of number / divisor / 10 ** scale, rounded.

    Returns (how many, the power of ten of the first one)."""
    whole, rest = number // divisor, number % divisor
    count = 0
    power = -1
    unit = np.int64(1)
    while whole // unit >= 10:
        unit *= 10
    while whole > 0 and unit > 0:
        digits[count] = whole // unit % 10
        unit //= 10
        count += 1
        power += 1
    kept = QUOTIENT_DIGITS if count == 0 else max(QUOTIENT_DIGITS, power - scale + 1 + QUOTIENT_PLACES)
    while rest != 0 and (is_ending or count < kept):
        rest *= 10
        digit = rest // divisor
        rest %= divisor
        if count == 0 and digit == 0:
            power -= 1
            continue
        digits[count] = digit
        count += 1
    if 2 * rest > divisor:  # it has no end, so it is never just half
        at = count - 1
        while at >= 0 and digits[at] == 9:
            digits[at] = 0
            at -= 1
        if at < 0:
            digits[0] = 1
            power += 1
        else:
            digits[at] += 1
    while digits[count - 1] == 0:
        count -= 1
    return count, power


@njit
def write_means(totals, scale, counts, slots):
    """Write the canonical lexical forms of means, none of them 0, each with a line feed behind it.

    Parameters as of `mean_ids`. Returns uint8[n_bytes]."""
    text = np.empty(slots.shape[0] * MEAN_SIZE_MAX, np.uint8)
    digits = np.empty(MEAN_SIZE_MAX, np.int64)
    at = 0
    for i in range(slots.shape[0]):
        total, count = totals[slots[i]], counts[slots[i]]
        if total < 0:
            text[at] = 45
            at += 1
        shared = _greatest_divisor(abs(total), count)
        divisor = count // shared
        left = divisor
        for factor in (2, 5):
            while left % factor == 0:
                left //= factor
        size, power = _digits_of(abs(total) // shared, divisor, left == 1, scale, digits)
        power -= scale
        if power < 0:
            text[at] = 48
            text[at + 1] = 46
            at += 2
            for _ in range(-power - 1):
                text[at] = 48
                at += 1
        for place in range(max(size, power + 1)):
            if place == power + 1 and power >= 0:
                text[at] = 46
                at += 1
            text[at] = 48 + (digits[place] if place < size else 0)
            at += 1
        text[at] = 10
        at += 1
    return text[:at].copy()


# --- terms ------------------------------------------------------------------------------------------------------------


@njit
def count_terms(keys, touched, before, after, distinct, unbound, changed):
    """Count the terms that groups have more and have less.

    Parameters
    ----------
    keys : int64[n_entries, 1 + n_columns]      The slot of a group, and a term of it, or a row of terms.
    touched, before, after : int64[n]           Entries, and how often they were and are there.
    distinct, unbound : int64[n_slots]          Counted: entries of each group, and those whose first cell is UNBOUND.
    changed : int64[2, n]                       Written: entries that have come, and 1; that have gone, and -1.

    Returns how many have changed."""
    count = 0
    for i in range(touched.shape[0]):
        sign = np.int64(after[i] > 0) - np.int64(before[i] > 0)
        if sign != 0:
            entry = touched[i]
            distinct[keys[entry, 0]] += sign
            if keys.shape[1] > 1 and keys[entry, 1] == UNBOUND:
                unbound[keys[entry, 0]] += sign
            changed[0, count] = entry
            changed[1, count] = sign
            count += 1
    return count


@njit
def link(keys, entries, signs, heads, nexts, lasts):
    """Put entries that have come (1) in the lists of their groups, and take those that have gone (-1) out."""
    for i in range(entries.shape[0]):
        entry = entries[i]
        group = keys[entry, 0]
        if signs[i] > 0:
            head = heads[group]
            nexts[entry] = head
            lasts[entry] = -1
            if head >= 0:
                lasts[head] = entry
            heads[group] = entry
        else:
            before, behind = lasts[entry], nexts[entry]
            if before >= 0:
                nexts[before] = behind
            else:
                heads[group] = behind
            if behind >= 0:
                lasts[behind] = before


@njit
def candidates(keys, entries, signs, heads, nexts, distinct, results, skips):
    """List, for each group whose best term may be another one, the terms among which it is.

    These are the best one before and what has come; all terms, if that one has gone or there was none.

    Parameters
    ----------
    entries, signs : int64[n]           Those that have changed, as `link` has taken them.
    results : int64[n_slots]            The best term of each group before, UNBOUND if it has none.
    skips : int64[n_slots]              Groups with another number than 0 have no best term.

    Returns
    -------
    groups : int64[n_groups]            Slots of these groups.
    ids, numbers : int64[n_terms]       The terms, and the places of their groups among `groups`."""
    places = np.full(heads.shape[0], -1, np.int64)
    groups = np.empty(entries.shape[0], np.int64)
    is_whole = np.zeros(entries.shape[0], np.bool_)
    count, size = 0, entries.shape[0]
    for i in range(entries.shape[0]):
        group = keys[entries[i], 0]
        is_gone = signs[i] < 0 and keys[entries[i], 1] == results[group]
        if signs[i] < 0 and not is_gone:
            continue
        if places[group] < 0:
            places[group] = count
            groups[count] = group
            is_whole[count] = results[group] == UNBOUND
            count += 1
        if is_gone:
            is_whole[places[group]] = True
    for place in range(count):
        size += distinct[groups[place]] if is_whole[place] else 1
    ids, numbers = np.empty(size, np.int64), np.empty(size, np.int64)
    size = 0
    for place in range(count):
        group = groups[place]
        if skips[group] != 0:
            continue
        if not is_whole[place]:
            ids[size] = results[group]
            numbers[size] = place
            size += 1
            continue
        entry = heads[group]
        while entry >= 0:
            if keys[entry, 1] != UNBOUND:
                ids[size] = keys[entry, 1]
                numbers[size] = place
                size += 1
            entry = nexts[entry]
    for i in range(entries.shape[0]):
        group = keys[entries[i], 0]
        if signs[i] > 0 and not is_whole[places[group]] and skips[group] == 0 and keys[entries[i], 1] != UNBOUND:
            ids[size] = keys[entries[i], 1]
            numbers[size] = places[group]
            size += 1
    return groups[:count].copy(), ids[:size].copy(), numbers[:size].copy()
