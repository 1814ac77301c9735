# mypy: disallow-untyped-defs=false
"""Kernels that look past tombstones, and that take them out of a batch in steps of bounded work.

A triple of a batch is hidden if one of the tombstone batches listed beside its descriptor holds it: those of the
entries after its own (store/tombstones.py says why that is enough).
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int32_array, int64_array
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.key_filter_kernels import hash_key, key_bits, may_have_key
from wukongs.store.layout import (
    CODE_STARTS,
    DESCRIPTOR_WIDTH,
    DIRECTORY_SIZE,
    GRAPHS,
    KEY_FILTER,
    NOTHING_HIDDEN,
    PREDICATES,
    TOMBSTONE_COUNT,
    TOMBSTONES,
    TRIPLE_COUNT,
    VERTEX_COUNT,
    VERTICES,
)
from wukongs.store.lookup_kernels import (
    code_at,
    directory_row,
    find_key,
    key_range,
    keys_at,
    keys_count,
    lower_bound,
    lower_key,
    side_keys,
    side_values,
    value_range,
    values_at,
)

SUBTRACT_STATE_WIDTH = 6
"""Directory row, key, value, tombstone key; keys written, values written."""
NOT_STARTED = -1


@njit_uncounted
def next_hidden(descriptor, direction, row, key, value):
    """Return the smallest value >= `value` that tombstones hide under a key of a directory row of a batch.

    NOTHING_HIDDEN if there is none. Cost: a look-up in each batch of tombstones.
    """
    smallest = np.int64(NOTHING_HIDDEN)
    n = descriptor[DIRECTORY_SIZE]
    predicate = int64_array(descriptor[PREDICATES], n)[row]
    graph = int64_array(descriptor[GRAPHS], n)[row]
    count = descriptor[TOMBSTONE_COUNT]
    table = int64_array(descriptor[TOMBSTONES], count * DESCRIPTOR_WIDTH)
    hashed = hash_key(key, direction)
    bits = key_bits(hashed)
    for t in range(count):
        if not may_have_key(table[t * DESCRIPTOR_WIDTH + KEY_FILTER], hashed, bits):
            continue
        tombstones = table[t * DESCRIPTOR_WIDTH : (t + 1) * DESCRIPTOR_WIDTH]
        found = directory_row(tombstones, predicate, graph)
        position = find_key(tombstones, direction, found, key) if found >= 0 else np.int64(-1)
        if position >= 0:
            lo, hi = value_range(tombstones, direction, position)
            values = int64_array(values_at(tombstones, direction), hi)
            at = lower_bound(values, lo, hi, value)
            if at < hi and values[at] < smallest:
                smallest = values[at]
    return smallest


@njit_uncounted
def next_hiding_key(descriptor, direction, row, key):
    """Return the smallest key >= `key` of which tombstones hide a value in a directory row; else as next_hidden."""
    smallest = np.int64(NOTHING_HIDDEN)
    n = descriptor[DIRECTORY_SIZE]
    predicate = int64_array(descriptor[PREDICATES], n)[row]
    graph = int64_array(descriptor[GRAPHS], n)[row]
    count = descriptor[TOMBSTONE_COUNT]
    table = int64_array(descriptor[TOMBSTONES], count * DESCRIPTOR_WIDTH)
    for t in range(count):
        tombstones = table[t * DESCRIPTOR_WIDTH : (t + 1) * DESCRIPTOR_WIDTH]
        found = directory_row(tombstones, predicate, graph)
        if found >= 0:
            hi = key_range(tombstones, direction, found)[1]
            keys = int64_array(keys_at(tombstones, direction), hi)
            at = lower_key(tombstones, direction, found, key)
            if at < hi and keys[at] < smallest:
                smallest = keys[at]
    return smallest


@njit
def visible_pairs(descriptor, row):
    """Return the subjects and objects of a directory row that no tombstone hides. int64[n], int64[n]"""
    first, last = key_range(descriptor, 0, row)
    keys = side_keys(descriptor, 0)
    values = side_values(descriptor, 0, descriptor[TRIPLE_COUNT])
    size = value_range(descriptor, 0, last - 1)[1] - value_range(descriptor, 0, first)[0]
    subjects = np.empty(size, np.int64)
    objects = np.empty(size, np.int64)
    at = 0
    hiding = np.int64(-1) if descriptor[TOMBSTONE_COUNT] > 0 else np.int64(NOTHING_HIDDEN)
    for k in range(first, last):
        key = keys[k]
        if hiding < key:
            hiding = next_hiding_key(descriptor, 0, row, key)
        hidden = np.int64(-1) if hiding == key else np.int64(NOTHING_HIDDEN)
        lo, hi = value_range(descriptor, 0, k)
        for v in range(lo, hi):
            if hidden < values[v]:
                hidden = next_hidden(descriptor, 0, row, key, values[v])
            if hidden != values[v]:
                subjects[at] = key
                objects[at] = values[v]
                at += 1
    return subjects[:at], objects[:at]


@njit_uncounted
def gallop(values, lo, hi, wanted):
    """Do the same as lower_bound, at the cost of log2 of the distance: for walks through two sorted columns at once."""
    step = 1
    while lo + step < hi and values[lo + step] < wanted:
        lo += step
        step *= 2
    return lower_bound(values, lo, min(hi, lo + step + 1), wanted)


@njit_uncounted
def subtract_side(batch, tombstones, direction, key_starts, keys, offsets, values, state, fuel):
    """Copy one side of a batch without the tombstones, at most `fuel` values; keys with nothing left are dropped.

    Parameters
    ----------
    batch, tombstones : int64[DESCRIPTOR_WIDTH]
    key_starts : int64[n_directory + 1]; keys, values : int64[...]; offsets : int32[...]   The side that is left.
    state : int64[SUBTRACT_STATE_WIDTH]   Where the last step stopped; zeros with NOT_STARTED for keys and value.

    Returns the fuel that is left; done when state[0] is the directory's size. A row may be left without keys.
    Cost: a step for each value of the batch; of the tombstones in between, log2.
    """
    r, ka, va, kt, k, v = state[0], state[1], state[2], state[3], state[4], state[5]
    n = batch[DIRECTORY_SIZE]
    predicates = int64_array(batch[PREDICATES], n)
    graphs = int64_array(batch[GRAPHS], n)
    keys_in = int64_array(keys_at(batch, direction), keys_count(batch, direction))
    values_in = int64_array(values_at(batch, direction), batch[TRIPLE_COUNT])
    hidden_keys = int64_array(keys_at(tombstones, direction), keys_count(tombstones, direction))
    hidden_values = int64_array(values_at(tombstones, direction), tombstones[TRIPLE_COUNT])
    while r < n and fuel > 0:
        hi = key_range(batch, direction, r)[1]
        row = directory_row(tombstones, predicates[r], graphs[r])
        end_t = key_range(tombstones, direction, row)[1] if row >= 0 else np.int64(0)
        if ka == NOT_STARTED:
            ka = key_range(batch, direction, r)[0]
            kt = key_range(tombstones, direction, row)[0] if row >= 0 else np.int64(0)
        while ka < hi and fuel > 0:
            key = keys_in[ka]
            kt = gallop(hidden_keys, kt, end_t, key)
            start, end = value_range(batch, direction, ka)
            lo, until = np.int64(0), np.int64(0)
            if kt < end_t and hidden_keys[kt] == key:
                lo, until = value_range(tombstones, direction, kt)
            if va == NOT_STARTED:
                offsets[k] = v
                va = start
            lo = lower_bound(hidden_values, lo, until, values_in[va])
            stop = min(end, va + fuel)
            fuel -= stop - va
            while va < stop:
                lo = gallop(hidden_values, lo, until, values_in[va])
                if lo >= until or hidden_values[lo] != values_in[va]:
                    values[v] = values_in[va]
                    v += 1
                va += 1
            if va == end:
                if v > offsets[k]:
                    keys[k] = key
                    k += 1
                ka += 1
                va = np.int64(NOT_STARTED)
        if ka == hi:
            r += 1
            key_starts[r] = k
            ka = np.int64(NOT_STARTED)
    if va == NOT_STARTED:
        offsets[k] = v
    state[0], state[1], state[2], state[3], state[4], state[5] = r, ka, va, kt, k, v
    return fuel


@njit_uncounted
def subtract_vertices(batch, tombstones, left, rank, vertices, starts, codes, state, fuel):
    """Copy the vertex index of a batch for what is left of it, at most `fuel` codes.

    left : int64[DESCRIPTOR_WIDTH]   Both sides of the batch without the tombstones.
    rank : int32[n_directory]        The directory row of `left` that each row of the batch has become; -1 for none.
    vertices : int64[...]; starts : int32[...]; codes : uint16[...] or int32[...], large enough.
    state : int64[SUBTRACT_STATE_WIDTH]   state[1]: vertices read; state[2]: codes read of the vertex under way,
                                     NOT_STARTED at first; state[4], state[5]: vertices and codes written.

    Returns the fuel that is left. Only vertices of tombstones need a look at what is left.
    """
    ka, at, k, v = state[1], state[2], state[4], state[5]
    vertices_in = int64_array(batch[VERTICES], batch[VERTEX_COUNT])
    starts_in = int32_array(batch[CODE_STARTS], batch[VERTEX_COUNT] + 1)
    touched = int64_array(tombstones[VERTICES], tombstones[VERTEX_COUNT])
    kt = lower_bound(touched, 0, touched.size, vertices_in[ka]) if ka < vertices_in.size else 0
    while ka < vertices_in.size and fuel > 0:
        vertex = vertices_in[ka]
        kt = gallop(touched, kt, touched.size, vertex)
        is_touched = kt < touched.size and touched[kt] == vertex
        end = np.int64(starts_in[ka + 1])
        if at == NOT_STARTED:
            starts[k] = v
            at = np.int64(starts_in[ka])
        stop = min(end, at + fuel)
        fuel -= stop - at
        while at < stop:
            code = code_at(batch, at)
            row = rank[code >> 1]
            if row >= 0 and (not is_touched or find_key(left, code & 1, row, vertex) >= 0):
                codes[v] = 2 * row + (code & 1)
                v += 1
            at += 1
        if at == end:
            if v > starts[k]:
                vertices[k] = vertex
                k += 1
            ka += 1
            at = np.int64(NOT_STARTED)
    if at == NOT_STARTED:
        starts[k] = v
    state[1], state[2], state[4], state[5] = ka, at, k, v
    return fuel
