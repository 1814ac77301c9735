# mypy: disallow-untyped-defs=false
"""A kernel that has memory fetched before a step reads it.

A look-up in a large batch is a chain of loads (fence, key, offset, value), each a cache miss that waits for the one
before. For some rows of the source together, the misses overlap: each link of the chain is asked for in all of them
before the next one is. Nothing comes of it but time; the step then looks up as ever.
"""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.plan_layout import (
    ABSENT,
    BOUND,
    DIRECTION,
    KEY,
    KEY_KIND,
    PART_BATCH,
    PARTS_FROM,
    PARTS_TO,
)
from wukongs.store.addresses import fetch_ahead, int32_array, int64_array
from wukongs.store.jit import njit_uncounted
from wukongs.store.key_filter_kernels import filter_word_at, hash_key
from wukongs.store.layout import (
    DIRECTORY_SIZE,
    FENCE_SHIFTS,
    FENCE_STARTS,
    FENCES,
    KEY_FILTER,
    KEY_STARTS,
    KEYS,
    NO_FENCE,
    OFFSETS,
    SIDE_WIDTH,
    SIDES,
    VALUES,
)
from wukongs.store.lookup_kernels import lower_bound

ROWS_AHEAD = 16
"""So many misses at a time; more would wait for each other."""
ROWS_MIN = 4
KEYS_MIN = 1 << 12
"""A range of fewer keys is in the cache soon."""
_INT64, _INT32 = 8, 4


@njit_uncounted
def fetch_rows_ahead(step, parts, part_rows, descriptors, source, first, count, places):
    """Have fetched what the keys of the rows `first` and on lead to, in the large batches of a step.

    places : int64[n, >= 2]      Scratch: the range where a key is, then where its values are; ROWS_AHEAD rows at most.

    Returns up to which row that was done."""
    end = min(count, first + min(ROWS_AHEAD, places.shape[0]))
    if step[KEY_KIND] != BOUND or end - first < ROWS_MIN:
        return end
    side = SIDES + step[DIRECTION] * SIDE_WIDTH
    for q in range(step[PARTS_FROM], step[PARTS_TO]):
        row = part_rows[q]
        if row <= ABSENT:
            continue
        descriptor = descriptors[parts[q, PART_BATCH]]
        starts = int64_array(descriptor[side + KEY_STARTS], descriptor[DIRECTORY_SIZE] + 1)
        shift = int64_array(descriptor[side + FENCE_SHIFTS], descriptor[DIRECTORY_SIZE])[row]
        if starts[row + 1] - starts[row] < KEYS_MIN or shift == NO_FENCE:
            continue
        if descriptor[KEY_FILTER] != 0:
            for r in range(first, end):
                hashed = hash_key(source[r, step[KEY]], step[DIRECTION])
                fetch_ahead(filter_word_at(descriptor[KEY_FILTER], hashed))
            continue
        fence = int64_array(descriptor[side + FENCE_STARTS], descriptor[DIRECTORY_SIZE] + 1)[row]
        fences_at, keys_at, offsets_at = (
            descriptor[side + FENCES] + _INT32 * fence,
            descriptor[side + KEYS],
            descriptor[side + OFFSETS],
        )
        for r in range(first, end):
            fetch_ahead(fences_at + _INT32 * (max(source[r, step[KEY]], 0) >> shift))
        for r in range(first, end):
            bucket = max(source[r, step[KEY]], 0) >> shift
            fences = int32_array(fences_at, bucket + 2)
            places[r - first, 0] = starts[row] + fences[bucket]
            places[r - first, 1] = starts[row] + fences[bucket + 1]
            fetch_ahead(keys_at + _INT64 * places[r - first, 0])
        for r in range(first, end):
            keys = int64_array(keys_at, places[r - first, 1])
            place = lower_bound(keys, places[r - first, 0], places[r - first, 1], source[r, step[KEY]])
            places[r - first, 0] = place
            fetch_ahead(offsets_at + _INT32 * place)
        for r in range(first, end):
            place = places[r - first, 0]
            if place < places[r - first, 1]:
                value = np.int64(int32_array(offsets_at, place + 1)[place])
                fetch_ahead(descriptor[side + VALUES] + _INT64 * value)
    return end
