# mypy: disallow-untyped-defs=false
"""Sorting pairs of uniform ids: a radix pass over the top bits, then small sorts inside the buckets."""

from __future__ import annotations

import numpy as np

from store.jit import njit

INSERTION_MAX = 24
RADIX_BITS_MAX = 16


@njit
def sort_pairs_small(first, second, payload, lo, hi):
    """Insertion sort of rows lo..hi by (first, second); payload moves along where it is not empty."""
    carried = payload.size > 0
    for i in range(lo + 1, hi):
        a = first[i]
        b = second[i]
        c = payload[i] if carried else np.int64(0)
        j = i - 1
        while j >= lo and (first[j] > a or (first[j] == a and second[j] > b)):
            first[j + 1] = first[j]
            second[j + 1] = second[j]
            if carried:
                payload[j + 1] = payload[j]
            j -= 1
        first[j + 1] = a
        second[j + 1] = b
        if carried:
            payload[j + 1] = c


@njit
def swap_rows(first, second, payload, i, j):
    """Swap two rows of the three columns."""
    first[i], first[j] = first[j], first[i]
    second[i], second[j] = second[j], second[i]
    if payload.size > 0:
        payload[i], payload[j] = payload[j], payload[i]


@njit
def sort_pairs_in_place(first, second, payload, lo, hi):
    """Quicksort of rows lo..hi by (first, second): the middle row as pivot, the larger half waits on a stack."""
    waiting = np.empty((64, 2), np.int64)
    depth = 0
    while True:
        while hi - lo > INSERTION_MAX:
            middle = (lo + hi) // 2
            a = first[middle]
            b = second[middle]
            i = lo
            j = hi - 1
            while i <= j:
                while first[i] < a or (first[i] == a and second[i] < b):
                    i += 1
                while first[j] > a or (first[j] == a and second[j] > b):
                    j -= 1
                if i <= j:
                    swap_rows(first, second, payload, i, j)
                    i += 1
                    j -= 1
            if j + 1 - lo < hi - i:
                waiting[depth, 0] = i
                waiting[depth, 1] = hi
                hi = j + 1
            else:
                waiting[depth, 0] = lo
                waiting[depth, 1] = j + 1
                lo = i
            depth += 1
        sort_pairs_small(first, second, payload, lo, hi)
        if depth == 0:
            return
        depth -= 1
        lo = waiting[depth, 0]
        hi = waiting[depth, 1]


@njit
def radix_pass(digits, first, second, payload, lo, hi, bits, spare_first, spare_second, spare_payload):
    """Distribute rows lo..hi by the top `bits` of digits (first or second itself); return the bucket starts."""
    shift = 63 - bits
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(lo, hi):
        starts[(digits[i] >> shift) + 1] += 1
    for bucket in range(1 << bits):
        starts[bucket + 1] += starts[bucket]
    cursor = starts[: 1 << bits].copy()
    carried = payload.size > 0
    for i in range(lo, hi):
        bucket = digits[i] >> shift
        to = cursor[bucket]
        cursor[bucket] = to + 1
        spare_first[to] = first[i]
        spare_second[to] = second[i]
        if carried:
            spare_payload[to] = payload[i]
    n = hi - lo
    first[lo:hi] = spare_first[:n]
    second[lo:hi] = spare_second[:n]
    if carried:
        payload[lo:hi] = spare_payload[:n]
    return starts


@njit
def radix_bits(n):
    """Bits of the radix pass for n rows: buckets of about eight rows."""
    bits = 1
    while bits < RADIX_BITS_MAX and (n >> (bits + 3)) > 0:
        bits += 1
    return bits


@njit
def sort_bucket(first, second, payload, lo, hi, spare_first, spare_second, spare_payload):
    """Sort one bucket. A large one with a single key (a type, a country) gets a radix pass over its values."""
    n = hi - lo
    if n <= INSERTION_MAX:
        sort_pairs_small(first, second, payload, lo, hi)
        return
    one_key = n > 512
    if one_key:
        for i in range(lo + 1, hi):
            if first[i] != first[lo]:
                one_key = False
                break
    if not one_key:
        sort_pairs_in_place(first, second, payload, lo, hi)
        return
    starts = radix_pass(second, first, second, payload, lo, hi, radix_bits(n), spare_first, spare_second, spare_payload)
    for bucket in range(starts.size - 1):
        sort_pairs_in_place(first, second, payload, lo + starts[bucket], lo + starts[bucket + 1])


@njit
def sort_ranges(first, second, payload, range_starts):
    """Sort each range of rows by (first, second), in place.

    Parameters
    ----------
    first, second : int64[n]         Ids, uniform in [0, 2**63).
    payload : int64[n] or int64[0]   Moves along with its row.
    range_starts : int64[n_ranges + 1]

    Cost: about one distribution and one small sort a row. Source: DESIGN, batch building.
    """
    widest = 0
    for r in range(range_starts.size - 1):
        widest = max(widest, range_starts[r + 1] - range_starts[r])
    spare_first = np.empty(widest, np.int64)
    spare_second = np.empty(widest, np.int64)
    spare_payload = np.empty(widest if payload.size > 0 else 0, np.int64)
    for r in range(range_starts.size - 1):
        lo = range_starts[r]
        hi = range_starts[r + 1]
        if hi - lo <= 2 * INSERTION_MAX:
            sort_pairs_small(first, second, payload, lo, hi)
            continue
        starts = radix_pass(
            first, first, second, payload, lo, hi, radix_bits(hi - lo), spare_first, spare_second, spare_payload
        )
        for bucket in range(starts.size - 1):
            if starts[bucket + 1] - starts[bucket] > 1:
                sort_bucket(
                    first,
                    second,
                    payload,
                    lo + starts[bucket],
                    lo + starts[bucket + 1],
                    spare_first,
                    spare_second,
                    spare_payload,
                )
