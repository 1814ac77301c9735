# mypy: disallow-untyped-defs=false
"""The encoder's memo: IRIs that were read a moment ago are recognised, eight bytes at a time, and not checked again."""

from __future__ import annotations

import numpy as np

from wukongs.store.hash_kernels import read_word
from wukongs.store.jit import njit_inline
from wukongs.store.slot_kernels import same_bytes

_MEMO_FACTOR = np.uint64(0x9FB21C651E98DF25)
_MEMO_IRI_SIZE_MAX = 256
_CLOSING = np.uint64(0x3E3E3E3E3E3E3E3E)
_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)


@njit_inline
def find_known(data, p, end, memo, offsets, text):
    """Look up the IRI whose `<` is data[p] among those met before, without looking at single bytes.

    memo : int32[power of two], entry numbers + 1 by a hash of the IRI, the last that came; offsets, text: the entries'
    texts. An IRI that equals one that was read before is well formed.

    Returns (position behind `>`, entry or -1, place in the memo; -1 if the IRI is long, or close to the end)."""
    limit = min(end, p + _MEMO_IRI_SIZE_MAX)
    i = p
    h = np.uint64(0)
    while i + 8 <= limit:
        word = np.uint64(read_word(data, i))
        # The lowest bit of `hit` is the top bit of the first byte that is `>`.
        x = word ^ _CLOSING
        hit = (x - _ONES) & ~x & _TOPS
        if hit != 0:
            before = ((hit & (~hit + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
            h = (h ^ (word & before)) * _MEMO_FACTOR
            size = i - p + 1 + np.int64(((before & _ONES) * _ONES) >> np.uint64(56))
            place = np.int64(h >> np.uint64(40)) & (len(memo) - 1)
            entry = np.int64(memo[place]) - 1
            same = entry >= 0 and offsets[entry + 1] - offsets[entry] == size
            if same and same_bytes(data, p, size, text, offsets[entry]):
                return p + size, entry, place
            return p + size, np.int64(-1), place
        h = (h ^ word) * _MEMO_FACTOR
        h ^= h >> np.uint64(32)
        i += 8
    return p, np.int64(-1), np.int64(-1)
