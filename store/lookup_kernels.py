# mypy: disallow-untyped-defs=false
"""Kernels that look things up in a batch through its descriptor."""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int32_array, int64_array, uint16_array
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.key_filter_kernels import hash_key, key_bits, may_have_key
from wukongs.store.layout import (
    CODE_BYTES,
    CODE_STARTS,
    CODES,
    DIRECTORY_SIZE,
    FENCE_SHIFTS,
    FENCE_STARTS,
    FENCES,
    GRAPHS,
    KEY_FILTER,
    KEY_STARTS,
    KEYS,
    NO_FENCE,
    OFFSETS,
    PREDICATES,
    SIDE_WIDTH,
    SIDES,
    TIMES,
    VALUES,
    VERTEX_COUNT,
    VERTEX_FENCE,
    VERTEX_FENCE_SHIFT,
    VERTICES,
)


@njit_uncounted
def lower_bound(values, lo, hi, wanted):
    """Return the first position in sorted values[lo:hi] that is >= wanted."""
    while lo < hi:
        middle = (lo + hi) >> 1
        if values[middle] < wanted:
            lo = middle + 1
        else:
            hi = middle
    return lo


@njit_uncounted
def directory_row(descriptor, predicate, graph):
    """Return the directory row of (graph, predicate), -1 if the batch has none. Cost: log2(directory) comparisons."""
    n = descriptor[DIRECTORY_SIZE]
    predicates = int64_array(descriptor[PREDICATES], n)
    graphs = int64_array(descriptor[GRAPHS], n)
    lo = 0
    hi = n
    while lo < hi:
        middle = (lo + hi) >> 1
        if predicates[middle] < predicate or (predicates[middle] == predicate and graphs[middle] < graph):
            lo = middle + 1
        else:
            hi = middle
    if lo < n and predicates[lo] == predicate and graphs[lo] == graph:
        return lo
    return -1


@njit_uncounted
def key_range(descriptor, direction, row):
    """Return the positions [lo, hi) of a directory row's keys on one side."""
    starts = int64_array(descriptor[SIDES + direction * SIDE_WIDTH + KEY_STARTS], descriptor[DIRECTORY_SIZE] + 1)
    return starts[row], starts[row + 1]


@njit
def side_keys(descriptor, direction):
    """Return all keys of one side. int64[n_keys]"""
    side = SIDES + direction * SIDE_WIDTH
    n = descriptor[DIRECTORY_SIZE]
    return int64_array(descriptor[side + KEYS], int64_array(descriptor[side + KEY_STARTS], n + 1)[n])


@njit
def side_values(descriptor, direction, size):
    """Return the first `size` values of one side. int64[size]"""
    return int64_array(descriptor[SIDES + direction * SIDE_WIDTH + VALUES], size)


@njit_uncounted
def keys_at(descriptor, direction):
    """Return the address of the keys of one side."""
    return descriptor[SIDES + direction * SIDE_WIDTH + KEYS]


@njit_uncounted
def keys_count(descriptor, direction):
    """Return how many keys one side has."""
    n = descriptor[DIRECTORY_SIZE]
    return int64_array(descriptor[SIDES + direction * SIDE_WIDTH + KEY_STARTS], n + 1)[n]


@njit_uncounted
def values_at(descriptor, direction):
    """Return the address of the values of one side."""
    return descriptor[SIDES + direction * SIDE_WIDTH + VALUES]


@njit_uncounted
def lower_key(descriptor, direction, row, key):
    """Return the position of the first key >= `key` among the keys of one side, within one directory row.

    Cost: one fence look-up and one or two comparisons (ids are uniform).
    """
    side = SIDES + direction * SIDE_WIDTH
    n = descriptor[DIRECTORY_SIZE]
    starts = int64_array(descriptor[side + KEY_STARTS], n + 1)
    lo = starts[row]
    hi = starts[row + 1]
    shift = int64_array(descriptor[side + FENCE_SHIFTS], n)[row]
    if shift != NO_FENCE:
        fence_starts = int64_array(descriptor[side + FENCE_STARTS], n + 1)
        fences = int32_array(descriptor[side + FENCES], fence_starts[n])
        bucket = fence_starts[row] + (key >> shift)
        hi = lo + fences[bucket + 1]
        lo += fences[bucket]
    return lower_bound(int64_array(descriptor[side + KEYS], starts[n]), lo, hi, key)


@njit_uncounted
def find_key(descriptor, direction, row, key):
    """Return the position of a key among the keys of one side, within one directory row; -1 if it is not there. Cost:
    as lower_key."""
    at = lower_key(descriptor, direction, row, key)
    end = key_range(descriptor, direction, row)[1]
    if at < end and int64_array(keys_at(descriptor, direction), end)[at] == key:
        return at
    return -1


@njit_uncounted
def value_range(descriptor, direction, position):
    """Return the positions [lo, hi) of the values of the key at a position."""
    offsets = int32_array(descriptor[SIDES + direction * SIDE_WIDTH + OFFSETS], position + 2)
    return np.int64(offsets[position]), np.int64(offsets[position + 1])


@njit_uncounted
def is_unlisted(descriptor, vertex):
    """Tell whether a vertex has no codes although the batch may have it: the directory is walked for it."""
    return vertex & 1 == 1 or descriptor[VERTEX_COUNT] == 0


@njit_uncounted
def code_range(descriptor, vertex):
    """Return the positions [lo, hi) of a vertex's codes (2 * directory row + direction); empty if it is not listed."""
    n = descriptor[VERTEX_COUNT]
    vertices = int64_array(descriptor[VERTICES], n)
    lo = np.int64(0)
    hi = n
    shift = descriptor[VERTEX_FENCE_SHIFT]
    if shift != NO_FENCE:
        fence = int32_array(descriptor[VERTEX_FENCE], (1 << (63 - shift)) + 1)
        lo = np.int64(fence[vertex >> shift])
        hi = np.int64(fence[(vertex >> shift) + 1])
    at = lower_bound(vertices, lo, hi, vertex)
    if at < hi and vertices[at] == vertex:
        starts = int32_array(descriptor[CODE_STARTS], n + 1)
        return np.int64(starts[at]), np.int64(starts[at + 1])
    return np.int64(0), np.int64(0)


@njit_uncounted
def code_at(descriptor, position):
    """Return the code at a position: 16 bits wide, 32 where the directory is large."""
    if descriptor[CODE_BYTES] == 2:
        return np.int64(uint16_array(descriptor[CODES], position + 1)[position])
    return np.int64(int32_array(descriptor[CODES], position + 1)[position])


@njit_uncounted
def edge_position(descriptor, row, subject, object_):
    """Return the position of an edge of a directory row among the values of the out side; -1 if it is not there.

    Cost: key and value look-ups, each logarithmic."""
    position = find_key(descriptor, 0, row, subject)
    if position < 0:
        return np.int64(-1)
    lo, hi = value_range(descriptor, 0, position)
    values = int64_array(values_at(descriptor, 0), hi)
    at = lower_bound(values, lo, hi, object_)
    if at < hi and values[at] == object_:
        return np.int64(at)
    return np.int64(-1)


@njit_uncounted
def row_has_edge(descriptor, row, subject, object_):
    """Tell whether a directory row of a batch holds an edge. Cost: as edge_position."""
    return edge_position(descriptor, row, subject, object_) >= 0


@njit
def count_edges(descriptors, graph, predicate):
    """Return (triples, out keys, in keys) of a (graph, predicate) over batches: sums, so keys are an upper bound."""
    totals = np.zeros(3, np.int64)
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        row = directory_row(descriptor, predicate, graph)
        if row >= 0:
            for direction in range(2):
                lo, hi = key_range(descriptor, direction, row)
                totals[1 + direction] += hi - lo
                if direction == 0 and hi > lo:
                    totals[0] += value_range(descriptor, 0, hi - 1)[1] - value_range(descriptor, 0, lo)[0]
    return totals


@njit
def count_distinct_keys(descriptors, graph, predicate, direction, sample_max):
    """Estimate how many distinct keys a (graph, predicate) has on one side over all batches together.

    A key that stands in c batches counts 1 / c in each of them. Beyond sample_max keys only some are looked at, in each
    batch by its size: ids are hashes, so every n-th key is as good as a random one. Exact up to sample_max keys, and
    for one batch.

    float64. Cost: (sample_max + batches) * batches key look-ups.
    """
    batches = descriptors.shape[0]
    rows = np.full(batches, -1, np.int64)
    total = 0
    holding = 0
    for b in range(batches):
        rows[b] = directory_row(descriptors[b], predicate, graph)
        if rows[b] >= 0:
            lo, hi = key_range(descriptors[b], direction, rows[b])
            total += hi - lo
            holding += hi > lo
    if holding <= 1:
        return float(total)
    stride = (total + sample_max - 1) // sample_max
    distinct = 0.0
    for b in range(batches):
        if rows[b] < 0:
            continue
        lo, hi = key_range(descriptors[b], direction, rows[b])
        keys = side_keys(descriptors[b], direction)
        weight = 0.0
        samples = 0
        for at in range(lo, hi, stride):
            present = 0
            hashed = hash_key(keys[at], direction)
            bits = key_bits(hashed)
            for other in range(batches):
                if rows[other] < 0 or not may_have_key(descriptors[other, KEY_FILTER], hashed, bits):
                    continue
                if find_key(descriptors[other], direction, rows[other], keys[at]) >= 0:
                    present += 1
            weight += 1.0 / present
            samples += 1
        if samples:
            distinct += weight * (hi - lo) / samples
    return distinct


@njit_uncounted
def count_values(descriptor, direction, row, key):
    """Return how many values a key has within one directory row."""
    position = find_key(descriptor, direction, row, key)
    if position < 0:
        return np.int64(0)
    lo, hi = value_range(descriptor, direction, position)
    return hi - lo


@njit
def count_degree(descriptors, graph, predicate, direction, vertex):
    """Return how many values a vertex has under a (graph, predicate), summed over batches."""
    total = 0
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        row = directory_row(descriptor, predicate, graph)
        if row >= 0:
            total += count_values(descriptor, direction, row, vertex)
    return total


@njit
def raise_to_newest(descriptors, graph, subjects, predicates, objects, newest):
    """Raise `newest` to the newest time of each tuple in these batches, which have times.

    Parameters
    ----------
    descriptors : int64[n_batches, DESCRIPTOR_WIDTH]
    subjects, predicates, objects : int64[n_rows]      Any order, repeats allowed; below 0: no term, so no tuple.
    newest : int64[n_rows]                             In ms; changed in place, left where no batch has the tuple.

    Cost: n_rows look-ups in each batch; neighbours of one predicate share its directory row."""
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        row = np.int64(-1)
        for i in range(subjects.size):
            if i == 0 or predicates[i] != predicates[i - 1]:
                row = directory_row(descriptor, predicates[i], graph)
            if row >= 0 and subjects[i] >= 0 and objects[i] >= 0:
                at = edge_position(descriptor, row, subjects[i], objects[i])
                if at >= 0:
                    newest[i] = max(newest[i], int64_array(descriptor[TIMES], at + 1)[at])
