# mypy: disallow-untyped-defs=false
"""A kernel that tells which tuples a read holds: from the newest batch to the oldest, many tuples at a time.

The last batch that knows a tuple decides: it is held if that is a batch of triples, and not if it is one of tombstones.
A look-up is four loads that wait for each other (fence, key, offset, value), each a cache miss in a large batch. So
PROBES_AT_A_TIME tuples go through it together, step by step: each step asks for the memory of the next one for all of
them, and the misses overlap.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import fetch_ahead, int32_array, int64_array, int64_table
from wukongs.store.dtypes import OUT
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.key_filter_kernels import filter_word_at, hash_key, key_bits, may_have_key
from wukongs.store.layout import (
    DESCRIPTOR_WIDTH,
    DIRECTORY_SIZE,
    FENCE_SHIFTS,
    FENCE_STARTS,
    FENCES,
    KEY_FILTER,
    KEY_STARTS,
    KEYS,
    NO_FENCE,
    OFFSETS,
    SIDES,
    TOMBSTONE_COUNT,
    TOMBSTONES,
    VALUES,
)
from wukongs.store.lookup_kernels import directory_row, find_key, lower_bound

PROBES_AT_A_TIME = 32
NEAR_WORDS = 1 << 15
"""A filter of fewer words is in the cache soon: nothing is gained by asking for it ahead."""
_OPEN, _HELD, _GONE = 0, 1, 2
_INT64, _INT32 = 8, 4


@njit_uncounted
def _decide(descriptor, verdict, graphs, predicates, subjects, objects, verdicts, probes):
    """Give the tuples of a batch their verdict, if they have none.

    probes : int64[3, PROBES_AT_A_TIME]     Working space: the tuple, and the range where its key, then its object is.
    """
    n_rows = descriptor[DIRECTORY_SIZE]
    starts = int64_array(descriptor[SIDES + KEY_STARTS], n_rows + 1)
    shifts = int64_array(descriptor[SIDES + FENCE_SHIFTS], n_rows)
    fence_starts = int64_array(descriptor[SIDES + FENCE_STARTS], n_rows + 1)
    fences = int32_array(descriptor[SIDES + FENCES], fence_starts[n_rows])
    keys = int64_array(descriptor[SIDES + KEYS], starts[n_rows])
    offsets = int32_array(descriptor[SIDES + OFFSETS], starts[n_rows] + 1)
    key_filter, keys_at = descriptor[KEY_FILTER], descriptor[SIDES + KEYS]
    is_near = key_filter != 0 and int64_array(key_filter, 1)[0] < NEAR_WORDS
    fences_at, offsets_at, values_at = (
        descriptor[SIDES + FENCES],
        descriptor[SIDES + OFFSETS],
        descriptor[SIDES + VALUES],
    )
    tuples, los, his = probes[0], probes[1], probes[2]
    row = np.int64(-1)
    known = -1
    """The tuple that `row` is the directory row of."""
    at = 0
    while at < subjects.size:
        count = 0
        while at < subjects.size and count < PROBES_AT_A_TIME:
            i = at
            at += 1
            if verdicts[i] != _OPEN:
                continue
            if known < 0 or predicates[i] != predicates[known] or graphs[i] != graphs[known]:
                row = directory_row(descriptor, predicates[i], graphs[i])
                known = i
            if row < 0:
                continue
            hashed = hash_key(subjects[i], 0)
            if is_near and not may_have_key(key_filter, hashed, key_bits(hashed)):
                continue
            tuples[count] = i
            los[count] = row
            count += 1
            if key_filter != 0 and not is_near:
                fetch_ahead(filter_word_at(key_filter, hashed))
        kept = 0
        for p in range(count):
            i, row_of = tuples[p], los[p]
            hashed = hash_key(subjects[i], 0)
            if is_near or may_have_key(key_filter, hashed, key_bits(hashed)):
                tuples[kept] = i
                los[kept] = row_of
                kept += 1
                if shifts[row_of] != NO_FENCE:
                    bucket = fence_starts[row_of] + (subjects[i] >> shifts[row_of])
                    fetch_ahead(fences_at + _INT32 * bucket)
        for p in range(kept):
            i, row_of = tuples[p], los[p]
            lo, hi = starts[row_of], starts[row_of + 1]
            if shifts[row_of] != NO_FENCE:
                bucket = fence_starts[row_of] + (subjects[i] >> shifts[row_of])
                hi = lo + fences[bucket + 1]
                lo += fences[bucket]
            los[p], his[p] = lo, hi
            fetch_ahead(keys_at + _INT64 * lo)
        count = kept
        kept = 0
        for p in range(count):
            i = tuples[p]
            place = lower_bound(keys, los[p], his[p], subjects[i])
            if place < his[p] and keys[place] == subjects[i]:
                tuples[kept] = i
                los[kept] = place
                kept += 1
                fetch_ahead(offsets_at + _INT32 * place)
        for p in range(kept):
            los[p], his[p] = np.int64(offsets[los[p]]), np.int64(offsets[los[p] + 1])
            fetch_ahead(values_at + _INT64 * ((los[p] + his[p]) >> 1))
        for p in range(kept):
            i = tuples[p]
            values = int64_array(values_at, his[p])
            found = lower_bound(values, los[p], his[p], objects[i])
            if found < his[p] and values[found] == objects[i]:
                verdicts[i] = verdict


@njit
def mark_held(descriptors, graphs, predicates, subjects, objects):
    """Mark the tuples that a read holds: some batch has them, and no tombstone behind it.

    Parameters
    ----------
    descriptors : int64[n_batches, DESCRIPTOR_WIDTH]      Of a BatchSet: those of one trace share their tombstones.
    graphs, predicates, subjects, objects : int64[n]

    Returns
    -------
    held : bool[n]

    Cost: a look-up in each batch up to the one that decides. Neighbours of one predicate share its directory row."""
    verdicts = np.zeros(subjects.size, np.int8)
    probes = np.empty((3, PROBES_AT_A_TIME), np.int64)
    asked = 0
    for b in range(descriptors.shape[0] - 1, -1, -1):
        behind = descriptors[b, TOMBSTONE_COUNT]
        tombstones = int64_table(descriptors[b, TOMBSTONES], behind, DESCRIPTOR_WIDTH)
        for t in range(behind - asked - 1, -1, -1):
            _decide(tombstones[t], _GONE, graphs, predicates, subjects, objects, verdicts, probes)
        asked = max(asked, behind)
        _decide(descriptors[b], _HELD, graphs, predicates, subjects, objects, verdicts, probes)
    return verdicts == _HELD


@njit
def knows_subject(descriptors, graph, predicate, subjects):
    """Return whether some batch has a triple of one of some subjects in (graph, predicate), be it deleted since or not.

    descriptors : int64[n_batches, DESCRIPTOR_WIDTH]; subjects : int64[n].

    Cost: a look-up of each subject in each batch, up to the first that is found."""
    for b in range(descriptors.shape[0]):
        row = directory_row(descriptors[b], predicate, graph)
        if row < 0:
            continue
        for i in range(subjects.size):
            if find_key(descriptors[b], OUT, row, subjects[i]) >= 0:
                return True
    return False
