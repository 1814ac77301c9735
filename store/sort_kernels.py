# mypy: disallow-untyped-defs=false
"""Sorting pairs of uniform ids: two radix passes over the top bits, then small sorts inside the buckets.

The first pass makes few buckets, so that each is written as one stream; a bucket then fits into the cache, where the
second pass splits it to a few rows. The kernels below sort_ranges allocate nothing and count no references: they are
called once per bucket, and that would cost more than sorting it.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit, njit_uncounted

INSERTION_MAX = 24
COARSE_BITS = 8
"""Buckets of the first pass: as many streams as the cache and the page tables can follow."""
ONE_PASS_MAX = 1 << 14
"""Ranges up to here fit into the cache, and need no first pass."""
FINE_BITS_MAX = 14
ONE_KEY_MIN = 512
STACK_DEPTH = 64


@njit_uncounted
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


@njit_uncounted
def swap_rows(first, second, payload, i, j):
    """Swap two rows of the three columns."""
    first[i], first[j] = first[j], first[i]
    second[i], second[j] = second[j], second[i]
    if payload.size > 0:
        payload[i], payload[j] = payload[j], payload[i]


@njit_uncounted
def sort_pairs_in_place(first, second, payload, lo, hi, waiting):
    """Quicksort of rows lo..hi by (first, second): the middle row as pivot, the larger half waits on a stack.

    waiting : int64[STACK_DEPTH, 2], scratch.
    """
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


@njit_uncounted
def radix_pass(digits, shift, bits, first, second, payload, lo, hi, to_first, to_second, to_payload, to, ends):
    """Distribute rows lo..hi to rows `to` and on of other columns, in order of `bits` bits of their digits; stable.

    digits : int64[n]                first or second itself; the bits are those from `shift` on.
    ends : int64[> 2**bits]          Scratch; after the call bucket b is rows ends[b - 1] (b = 0: to) .. ends[b].
    """
    mask = (1 << bits) - 1
    for bucket in range(mask + 2):
        ends[bucket] = 0
    for i in range(lo, hi):
        ends[((digits[i] >> shift) & mask) + 1] += 1
    ends[0] = to
    for bucket in range(1, mask + 1):
        ends[bucket] += ends[bucket - 1]
    carried = payload.size > 0
    for i in range(lo, hi):
        bucket = (digits[i] >> shift) & mask
        at = ends[bucket]
        ends[bucket] = at + 1
        to_first[at] = first[i]
        to_second[at] = second[i]
        if carried:
            to_payload[at] = payload[i]


@njit_uncounted
def copy_rows(first, second, payload, lo, hi, to_first, to_second, to_payload, to):
    """Copy rows lo..hi to rows `to` and on of other columns."""
    for i in range(lo, hi):
        to_first[to + i - lo] = first[i]
        to_second[to + i - lo] = second[i]
    if payload.size > 0:
        for i in range(lo, hi):
            to_payload[to + i - lo] = payload[i]


@njit_uncounted
def radix_bits(n):
    """Bits of the last radix pass over n rows: buckets of two to four rows."""
    bits = 1
    while bits < FINE_BITS_MAX and (n >> (bits + 1)) > 0:
        bits += 1
    return bits


@njit_uncounted
def sort_bucket(first, second, payload, lo, hi, spare_first, spare_second, spare_payload, spare, ends, waiting):
    """Sort a bucket that is not small. One of a single key (a type, a country) gets a radix pass over its values.

    The rows `spare` and on of the spare columns, as many as the bucket has, are scratch.
    """
    n = hi - lo
    one_key = n > ONE_KEY_MIN
    if one_key:
        for i in range(lo + 1, hi):
            if first[i] != first[lo]:
                one_key = False
                break
    if not one_key:
        sort_pairs_in_place(first, second, payload, lo, hi, waiting)
        return
    copy_rows(first, second, payload, lo, hi, spare_first, spare_second, spare_payload, spare)
    bits = radix_bits(n)
    radix_pass(
        spare_second,
        63 - bits,
        bits,
        spare_first,
        spare_second,
        spare_payload,
        spare,
        spare + n,
        first,
        second,
        payload,
        lo,
        ends,
    )
    start = lo
    for bucket in range(1 << bits):
        end = ends[bucket]
        if end - start > 1:
            sort_pairs_in_place(first, second, payload, start, end, waiting)
        start = end


@njit_uncounted
def sort_fine(
    spare_first, spare_second, spare_payload, lo, hi, seen, first, second, payload, to, fine_ends, key_ends, waiting
):
    """Sort the spare rows lo..hi, whose keys agree in their top `seen` bits, to rows `to` and on of the columns.

    One insertion sort over all buckets moves no row out of its bucket, and costs no loop for each."""
    bits = radix_bits(hi - lo)
    radix_pass(
        spare_first,
        63 - seen - bits,
        bits,
        spare_first,
        spare_second,
        spare_payload,
        lo,
        hi,
        first,
        second,
        payload,
        to,
        fine_ends,
    )
    start = to
    for bucket in range(1 << bits):
        end = fine_ends[bucket]
        if end - start > INSERTION_MAX:
            sort_bucket(
                first,
                second,
                payload,
                start,
                end,
                spare_first,
                spare_second,
                spare_payload,
                lo + start - to,
                key_ends,
                waiting,
            )
        start = end
    sort_pairs_small(first, second, payload, to, start)


@njit
def sort_ranges(first, second, payload, range_starts):
    """Sort each range of rows by (first, second), in place.

    Parameters
    ----------
    first, second : int64[n]         Ids, uniform in [0, 2**63).
    payload : int64[n] or int64[0]   Moves along with its row.
    range_starts : int64[n_ranges + 1]

    Cost: two distributions and one small sort a row; scratch as large as the widest range. Source: DESIGN, batch
    building.
    """
    widest = 0
    for r in range(range_starts.size - 1):
        widest = max(widest, range_starts[r + 1] - range_starts[r])
    spare_first = np.empty(widest, np.int64)
    spare_second = np.empty(widest, np.int64)
    spare_payload = np.empty(widest if payload.size > 0 else 0, np.int64)
    coarse_ends = np.empty((1 << COARSE_BITS) + 1, np.int64)
    fine_ends = np.empty((1 << radix_bits(widest)) + 1, np.int64)
    key_ends = np.empty((1 << radix_bits(widest)) + 1, np.int64)
    waiting = np.empty((STACK_DEPTH, 2), np.int64)
    for r in range(range_starts.size - 1):
        lo = range_starts[r]
        hi = range_starts[r + 1]
        if hi - lo <= 2 * INSERTION_MAX:
            sort_pairs_small(first, second, payload, lo, hi)
        elif hi - lo <= ONE_PASS_MAX:
            copy_rows(first, second, payload, lo, hi, spare_first, spare_second, spare_payload, 0)
            sort_fine(
                spare_first,
                spare_second,
                spare_payload,
                0,
                hi - lo,
                0,
                first,
                second,
                payload,
                lo,
                fine_ends,
                key_ends,
                waiting,
            )
        else:
            radix_pass(
                first,
                63 - COARSE_BITS,
                COARSE_BITS,
                first,
                second,
                payload,
                lo,
                hi,
                spare_first,
                spare_second,
                spare_payload,
                0,
                coarse_ends,
            )
            start = 0
            for bucket in range(1 << COARSE_BITS):
                end = coarse_ends[bucket]
                if end > start:
                    sort_fine(
                        spare_first,
                        spare_second,
                        spare_payload,
                        start,
                        end,
                        COARSE_BITS,
                        first,
                        second,
                        payload,
                        lo + start,
                        fine_ends,
                        key_ends,
                        waiting,
                    )
                start = end
