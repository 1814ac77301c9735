# mypy: disallow-untyped-defs=false
"""Kernels that build a batch: assign directory rows, group, drop repeats, fences."""

from __future__ import annotations

import numpy as np

from store.jit import njit
from store.layout import FENCE_KEYS_MIN, FENCE_KEYS_PER_BUCKET, NO_FENCE


@njit
def assign_directory(graphs, predicates):
    """Number the distinct (graph, predicate) pairs in order of (predicate, graph).

    Parameters
    ----------
    graphs, predicates : int64[n]

    Returns
    -------
    rows : int32[n]                  The directory row of each tuple.
    directory_graphs, directory_predicates : int64[n_directory], sorted by (predicate, graph).
    counts : int64[n_directory]      Tuples per directory row.
    """
    n = graphs.size
    size = 64
    table = np.full(size, -1, np.int32)
    found_graphs = np.empty(16, np.int64)
    found_predicates = np.empty(16, np.int64)
    counts = np.zeros(16, np.int64)
    found = 0
    rows = np.empty(n, np.int32)
    previous = -1
    for i in range(n):
        g = graphs[i]
        p = predicates[i]
        if previous >= 0 and found_predicates[previous] == p and found_graphs[previous] == g:
            rows[i] = previous
            counts[previous] += 1
            continue
        slot = ((p >> 20) ^ (g >> 33) ^ (p << 3)) & (size - 1)
        while True:
            row = table[slot]
            if row < 0 or (found_predicates[row] == p and found_graphs[row] == g):
                break
            slot = (slot + 1) & (size - 1)
        if row < 0:
            if found == found_graphs.size:
                found_graphs = np.concatenate((found_graphs, found_graphs))
                found_predicates = np.concatenate((found_predicates, found_predicates))
                counts = np.concatenate((counts, np.zeros(found, np.int64)))
            row = found
            found_graphs[row] = g
            found_predicates[row] = p
            counts[row] = 0
            table[slot] = row
            found += 1
            if found * 2 > size:
                size *= 2
                table = np.full(size, -1, np.int32)
                for r in range(found):
                    slot = ((found_predicates[r] >> 20) ^ (found_graphs[r] >> 33) ^ (found_predicates[r] << 3)) & (
                        size - 1
                    )
                    while table[slot] >= 0:
                        slot = (slot + 1) & (size - 1)
                    table[slot] = r
        rows[i] = row
        counts[row] += 1
        previous = row
    by_graph = np.argsort(found_graphs[:found], kind="mergesort")
    order = by_graph[np.argsort(found_predicates[:found][by_graph], kind="mergesort")]
    rank = np.empty(found, np.int32)
    for r in range(found):
        rank[order[r]] = r
    for i in range(n):
        rows[i] = rank[rows[i]]
    return rows, found_graphs[:found][order], found_predicates[:found][order], counts[:found][order]


@njit
def group_rows(rows, counts, first, second, payload):
    """Bring the tuples of each directory row together; return the grouped columns and int64[n_directory + 1] starts."""
    starts = np.zeros(counts.size + 1, np.int64)
    for r in range(counts.size):
        starts[r + 1] = starts[r] + counts[r]
    cursor = starts[:-1].copy()
    carried = payload.size > 0
    grouped_first = np.empty(first.size, np.int64)
    grouped_second = np.empty(first.size, np.int64)
    grouped_payload = np.empty(payload.size, np.int64)
    for i in range(first.size):
        to = cursor[rows[i]]
        cursor[rows[i]] = to + 1
        grouped_first[to] = first[i]
        grouped_second[to] = second[i]
        if carried:
            grouped_payload[to] = payload[i]
    return grouped_first, grouped_second, grouped_payload, starts


@njit
def compress_pairs(first, second, payload, range_starts):
    """Turn sorted pairs into keys with their distinct values; of repeats the largest payload stays.

    Returns
    -------
    key_starts : int64[n_ranges + 1]; keys : int64[n_keys]; offsets : int32[n_keys + 1]; values : int64[n_values];
    payloads : int64[n_values] or int64[0]; value_starts : int64[n_ranges + 1], the values of each range.
    """
    n_ranges = range_starts.size - 1
    carried = payload.size > 0
    n_keys = 0
    n_values = 0
    for r in range(n_ranges):
        for i in range(range_starts[r], range_starts[r + 1]):
            new_key = i == range_starts[r] or first[i] != first[i - 1]
            if new_key:
                n_keys += 1
            if new_key or second[i] != second[i - 1]:
                n_values += 1
    key_starts = np.zeros(n_ranges + 1, np.int64)
    value_starts = np.zeros(n_ranges + 1, np.int64)
    keys = np.empty(n_keys, np.int64)
    offsets = np.zeros(n_keys + 1, np.int32)
    values = np.empty(n_values, np.int64)
    payloads = np.empty(n_values if carried else 0, np.int64)
    k = 0
    v = 0
    for r in range(n_ranges):
        for i in range(range_starts[r], range_starts[r + 1]):
            new_key = i == range_starts[r] or first[i] != first[i - 1]
            if new_key:
                keys[k] = first[i]
                offsets[k] = v
                k += 1
            if new_key or second[i] != second[i - 1]:
                values[v] = second[i]
                if carried:
                    payloads[v] = payload[i]
                v += 1
            elif carried and payload[i] > payloads[v - 1]:
                payloads[v - 1] = payload[i]
        key_starts[r + 1] = k
        value_starts[r + 1] = v
    offsets[n_keys] = n_values
    return key_starts, keys, offsets, values, payloads, value_starts


@njit
def swap_sides(key_starts, keys, offsets, values):
    """List the pairs of one side the other way round: (value, key) per range, not sorted."""
    first = np.empty(values.size, np.int64)
    second = np.empty(values.size, np.int64)
    for k in range(keys.size):
        for v in range(offsets[k], offsets[k + 1]):
            first[v] = values[v]
            second[v] = keys[k]
    return first, second


@njit
def fence_shift(n_keys):
    """How far a key is shifted to its fence bucket, NO_FENCE for a range that is searched whole."""
    if n_keys < FENCE_KEYS_MIN:
        return NO_FENCE
    bits = 3
    while (n_keys // FENCE_KEYS_PER_BUCKET) >> (bits + 1) > 0 and bits < 28:
        bits += 1
    return 63 - bits


@njit
def fill_fence(keys, lo, hi, shift, fence, at):
    """Write the fence of keys[lo:hi] to fence[at:]: entry b is how many of the keys lie in buckets before b."""
    buckets = 1 << (63 - shift)
    b = 0
    for i in range(lo, hi):
        bucket = keys[i] >> shift
        while b <= bucket:
            fence[at + b] = i - lo
            b += 1
    while b <= buckets:
        fence[at + b] = hi - lo
        b += 1


@njit
def build_fences(keys, key_starts):
    """Build the fences of all ranges.

    Returns
    -------
    fence_starts : int64[n_ranges + 1]; fence_shifts : int64[n_ranges]; fences : int32[...], relative to the range.
    """
    n_ranges = key_starts.size - 1
    starts = np.zeros(n_ranges + 1, np.int64)
    shifts = np.empty(n_ranges, np.int64)
    for r in range(n_ranges):
        shift = fence_shift(key_starts[r + 1] - key_starts[r])
        shifts[r] = shift
        starts[r + 1] = starts[r] + (0 if shift == NO_FENCE else (1 << (63 - shift)) + 1)
    fences = np.empty(starts[n_ranges], np.int32)
    for r in range(n_ranges):
        if shifts[r] != NO_FENCE:
            fill_fence(keys, key_starts[r], key_starts[r + 1], shifts[r], fences, starts[r])
    return starts, shifts, fences


@njit
def list_vertices(out_key_starts, out_keys, in_key_starts, in_keys):
    """List (vertex, code) for every key of both sides but inlined literals; code = 2 * directory row + direction."""
    n = out_keys.size
    for i in range(in_keys.size):
        n += 1 - (in_keys[i] & 1)
    vertices = np.empty(n, np.int64)
    codes = np.empty(n, np.int64)
    at = 0
    for r in range(out_key_starts.size - 1):
        for i in range(out_key_starts[r], out_key_starts[r + 1]):
            vertices[at] = out_keys[i]
            codes[at] = 2 * r
            at += 1
    for r in range(in_key_starts.size - 1):
        for i in range(in_key_starts[r], in_key_starts[r + 1]):
            if in_keys[i] & 1 == 0:
                vertices[at] = in_keys[i]
                codes[at] = 2 * r + 1
                at += 1
    return vertices, codes
