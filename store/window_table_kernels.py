# mypy: disallow-untyped-defs=false
"""Kernels that write the probes of a window, and look keys up through one (store/layout.py)."""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int32_array, int64_array, int64_table
from wukongs.store.jit import njit_uncounted
from wukongs.store.layout import (
    ACCESS_COUNT,
    ACCESS_DIRECTION,
    ACCESS_FILTER,
    ACCESS_FIRST,
    ACCESS_GRAPH,
    ACCESS_PREDICATE,
    ACCESS_SHIFT,
    ACCESS_WIDTH,
    DESCRIPTOR_WIDTH,
    DIRECTORY_SIZE,
    FENCE_SHIFTS,
    FENCE_STARTS,
    FENCES,
    FILTER_BITS,
    FILTER_BITS_PER_KEY,
    FILTER_BITS_PER_KEY_MIN,
    FILTER_WORDS,
    HEAD_ACCESS_COUNT,
    HEAD_ACCESSES,
    HEAD_DESCRIPTOR_COUNT,
    HEAD_DESCRIPTORS,
    HEAD_FILTERS,
    HEAD_PROBE_COUNT,
    HEAD_PROBES,
    HEAD_WIDTH,
    HEAD_WINDOW_COUNT,
    HEAD_WINDOWS,
    KEY_FILTER,
    KEYS,
    NO_FENCE,
    NO_FILTER,
    OFFSETS,
    PROBE_BATCH,
    PROBE_FENCE,
    PROBE_KEY_COUNT,
    PROBE_KEY_FILTER,
    PROBE_KEYS,
    PROBE_OFFSETS,
    PROBE_ROW,
    PROBE_SHIFT,
    PROBE_WIDTH,
    SIDE_WIDTH,
    SIDES,
    TOMBSTONE_COUNT,
    WINDOW_COUNT,
    WINDOW_FIRST,
    WINDOW_HIDES,
    WINDOW_OVERLAPS,
    WINDOW_WIDTH,
)
from wukongs.store.lookup_kernels import directory_row, key_range, lower_bound, row_has_edge
from wukongs.store.tombstone_kernels import next_hidden


@njit_uncounted
def write_probe(descriptor, batch, row, direction, probe):
    """Write the probe of one directory row of a batch."""
    side = SIDES + direction * SIDE_WIDTH
    n = descriptor[DIRECTORY_SIZE]
    lo, hi = key_range(descriptor, direction, row)
    probe[PROBE_BATCH] = batch
    probe[PROBE_ROW] = row
    probe[PROBE_KEYS] = descriptor[side + KEYS] + 8 * lo
    probe[PROBE_KEY_COUNT] = hi - lo
    probe[PROBE_OFFSETS] = descriptor[side + OFFSETS] + 4 * lo
    probe[PROBE_SHIFT] = int64_array(descriptor[side + FENCE_SHIFTS], n)[row]
    probe[PROBE_FENCE] = 0
    probe[PROBE_KEY_FILTER] = descriptor[KEY_FILTER]
    if probe[PROBE_SHIFT] != NO_FENCE:
        probe[PROBE_FENCE] = descriptor[side + FENCES] + 4 * int64_array(descriptor[side + FENCE_STARTS], n + 1)[row]


@njit_uncounted
def write_filter(access, probes, words):
    """Write the filter of an access whose probes are written.

    probes : int64[n, PROBE_WIDTH]; words : int64[FILTER_WORDS], its own. Cost: a step for each key."""
    access[ACCESS_SHIFT] = NO_FILTER
    keys_count = 0
    for q in range(probes.shape[0]):
        keys_count += probes[q, PROBE_KEY_COUNT]
    if keys_count * FILTER_BITS_PER_KEY_MIN > 1 << FILTER_BITS:
        return
    bits = 6
    while bits < FILTER_BITS and 1 << bits < keys_count * FILTER_BITS_PER_KEY:
        bits += 1
    access[ACCESS_SHIFT] = 63 - bits
    for word in range((1 << bits) >> 6):
        words[word] = 0
    for q in range(probes.shape[0]):
        keys = int64_array(probes[q, PROBE_KEYS], probes[q, PROBE_KEY_COUNT])
        for i in range(keys.size):
            bit = keys[i] >> (63 - bits)
            words[bit >> 6] |= np.int64(1) << (bit & 63)


@njit_uncounted
def may_hold(filter_at, shift, key):
    """Tell whether the filter of an access lets a key pass; one that the window holds always passes."""
    bit = key >> shift
    return (int64_array(filter_at, (bit >> 6) + 1)[bit >> 6] >> (bit & 63)) & 1 == 1


@njit_uncounted
def write_probes(head, number, wanted):
    """Write the probes and filters of some accesses to a window, for the batches that it has now.

    Parameters
    ----------
    head : int64[HEAD_WIDTH]; number : int, of the window.
    wanted : int64[n]                Numbers of accesses to that window, each with room for all of its batches.

    Cost: a directory look-up for each access and batch, and a step for each key of a filter."""
    window = int64_table(head[HEAD_WINDOWS], head[HEAD_WINDOW_COUNT], WINDOW_WIDTH)[number]
    descriptors = int64_table(head[HEAD_DESCRIPTORS], head[HEAD_DESCRIPTOR_COUNT], DESCRIPTOR_WIDTH)
    accesses = int64_table(head[HEAD_ACCESSES], head[HEAD_ACCESS_COUNT], ACCESS_WIDTH)
    probes = int64_table(head[HEAD_PROBES], head[HEAD_PROBE_COUNT], PROBE_WIDTH)
    for i in range(wanted.size):
        access = accesses[wanted[i]]
        count = 0
        for batch in range(window[WINDOW_FIRST], window[WINDOW_FIRST] + window[WINDOW_COUNT]):
            row = directory_row(descriptors[batch], access[ACCESS_PREDICATE], access[ACCESS_GRAPH])
            if row >= 0:
                probe = probes[access[ACCESS_FIRST] + count]
                write_probe(descriptors[batch], batch, row, access[ACCESS_DIRECTION], probe)
                count += 1
        access[ACCESS_COUNT] = count
        access[ACCESS_FILTER] = head[HEAD_FILTERS] + 8 * FILTER_WORDS * wanted[i]
        own = probes[access[ACCESS_FIRST] : access[ACCESS_FIRST] + count]
        write_filter(access, own, int64_array(access[ACCESS_FILTER], FILTER_WORDS))


@njit_uncounted
def write_window(head, number, first, batches, overlaps, hides, wanted):
    """Write a window and the probes of its accesses.

    Parameters
    ----------
    head : int64[HEAD_WIDTH]; number : int, of the window.
    first : int                      Where its descriptors lie from now on; there is room for them.
    batches : int64[n, DESCRIPTOR_WIDTH]   The descriptors of its batches.
    overlaps, hides : bool           As WINDOW_OVERLAPS and WINDOW_HIDES.
    wanted : int64[m]                The numbers of its accesses, each with room for n probes."""
    window = int64_table(head[HEAD_WINDOWS], head[HEAD_WINDOW_COUNT], WINDOW_WIDTH)[number]
    descriptors = int64_table(head[HEAD_DESCRIPTORS], head[HEAD_DESCRIPTOR_COUNT], DESCRIPTOR_WIDTH)
    window[WINDOW_FIRST] = first
    window[WINDOW_COUNT] = batches.shape[0]
    window[WINDOW_OVERLAPS] = 1 if overlaps else 0
    window[WINDOW_HIDES] = 1 if hides else 0
    for batch in range(batches.shape[0]):
        for column in range(DESCRIPTOR_WIDTH):
            descriptors[first + batch, column] = batches[batch, column]
    write_probes(head, number, wanted)


@njit_uncounted
def append_batch(head, number, descriptor, overlaps, wanted):
    """Write one more batch of a window, behind the others, and its probes. Cost: a step for each key of its own.

    Parameters
    ----------
    head : int64[HEAD_WIDTH]; number : int, of the window, which has room for one more batch.
    descriptor : int64[DESCRIPTOR_WIDTH]
    overlaps : bool                  As WINDOW_OVERLAPS.
    wanted : int64[m]                The numbers of its accesses, each with room for one more probe."""
    window = int64_table(head[HEAD_WINDOWS], head[HEAD_WINDOW_COUNT], WINDOW_WIDTH)[number]
    descriptors = int64_table(head[HEAD_DESCRIPTORS], head[HEAD_DESCRIPTOR_COUNT], DESCRIPTOR_WIDTH)
    accesses = int64_table(head[HEAD_ACCESSES], head[HEAD_ACCESS_COUNT], ACCESS_WIDTH)
    probes = int64_table(head[HEAD_PROBES], head[HEAD_PROBE_COUNT], PROBE_WIDTH)
    batch = window[WINDOW_FIRST] + window[WINDOW_COUNT]
    window[WINDOW_COUNT] += 1
    window[WINDOW_OVERLAPS] = 1 if overlaps else 0
    for column in range(DESCRIPTOR_WIDTH):
        descriptors[batch, column] = descriptor[column]
    for i in range(wanted.size):
        access = accesses[wanted[i]]
        row = directory_row(descriptors[batch], access[ACCESS_PREDICATE], access[ACCESS_GRAPH])
        if row >= 0:
            at = access[ACCESS_FIRST] + access[ACCESS_COUNT]
            write_probe(descriptors[batch], batch, row, access[ACCESS_DIRECTION], probes[at])
            access[ACCESS_COUNT] += 1
            own = probes[access[ACCESS_FIRST] : at + 1]
            widen_filter(access, own, int64_array(access[ACCESS_FILTER], FILTER_WORDS))


@njit_uncounted
def widen_filter(access, probes, words):
    """Let the filter of an access pass the keys of its last probe, too; write it anew if they are too many for it."""
    if access[ACCESS_SHIFT] == NO_FILTER:
        return
    keys_count = 0
    for q in range(probes.shape[0]):
        keys_count += probes[q, PROBE_KEY_COUNT]
    if keys_count * FILTER_BITS_PER_KEY_MIN > np.int64(1) << (63 - access[ACCESS_SHIFT]):
        write_filter(access, probes, words)
        return
    last = probes[probes.shape[0] - 1]
    keys = int64_array(last[PROBE_KEYS], last[PROBE_KEY_COUNT])
    for i in range(keys.size):
        bit = keys[i] >> access[ACCESS_SHIFT]
        words[bit >> 6] |= np.int64(1) << (bit & 63)


@njit_uncounted
def window_holds(at, number, graph, predicate, subject, object_):
    """Tell whether a window holds a triple of a graph, and no tombstone hides it. at: the address of the head.

    Cost: directory, key and value look-ups in each batch."""
    head = int64_array(at, HEAD_WIDTH)
    window = int64_table(head[HEAD_WINDOWS], head[HEAD_WINDOW_COUNT], WINDOW_WIDTH)[number]
    descriptors = int64_table(head[HEAD_DESCRIPTORS], head[HEAD_DESCRIPTOR_COUNT], DESCRIPTOR_WIDTH)
    for batch in range(window[WINDOW_FIRST], window[WINDOW_FIRST] + window[WINDOW_COUNT]):
        row = directory_row(descriptors[batch], predicate, graph)
        if (
            row >= 0
            and row_has_edge(descriptors[batch], row, subject, object_)
            and (
                descriptors[batch, TOMBSTONE_COUNT] == 0
                or next_hidden(descriptors[batch], 0, row, subject, object_) != object_
            )
        ):
            return True
    return False


@njit_uncounted
def probe_key(probe, key):
    """Return the positions [lo, hi) of a key's values on the probe's side; empty if the key is not there."""
    lo = np.int64(0)
    hi = probe[PROBE_KEY_COUNT]
    shift = probe[PROBE_SHIFT]
    if shift != NO_FENCE:
        bucket = key >> shift
        fence = int32_array(probe[PROBE_FENCE], bucket + 2)
        lo = np.int64(fence[bucket])
        hi = np.int64(fence[bucket + 1])
    keys = int64_array(probe[PROBE_KEYS], hi)
    at = lower_bound(keys, lo, hi, key)
    if at < hi and keys[at] == key:
        offsets = int32_array(probe[PROBE_OFFSETS], at + 2)
        return np.int64(offsets[at]), np.int64(offsets[at + 1])
    return np.int64(0), np.int64(0)
