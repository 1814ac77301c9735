# mypy: disallow-untyped-defs=false
"""A Bloom filter over the keys of a batch, one word a key: a look-up that misses costs one load and no comparison.

words : int64[1 + n], n a power of two: first n - 1, then the bits. A key of a side sets three bits of one word. A key
that was added always passes; of others, about one of a hundred does, at KEYS_PER_WORD keys a word. Descriptors name
the filter by its address, 0: the batch has none, and may have any key (docs/decisions/0049).

A kernel called as py_func gets Python integers from the compiled kernels that it calls, hence the np.uint64() around
results.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int64_array
from wukongs.store.jit import njit, njit_uncounted

KEYS_PER_WORD = 4
KEYS_PER_FUEL = 4
"""So many keys take about as long to add as one merged value."""
_LOW = 0xFFFFFFFF
_FACTOR = 0x5E3779B1
"""Odd, without a pattern, and so small that no product overflows."""
_IN_SIDE = 0x165667B1
_WORD = np.uint64(24)
"""Where the place of the word begins in a hash, and where the first of three places of bits does."""
_BITS = np.uint64(45)
_FIELD = np.uint64(6)
_BIT = np.uint64(63)
_ONE = np.uint64(1)
_NONE = np.uint64(0)


@njit_uncounted
def hash_key(key, direction):
    """Return the hash of a key of one side: uint64, so that numba leaves out its test for negative places."""
    return np.uint64(((key ^ (key >> 32) ^ (direction * _IN_SIDE)) & _LOW) * _FACTOR)


@njit_uncounted
def key_bits(hashed):
    """Return the word with the bits of a hash."""
    first, second, third = hashed >> _BITS, hashed >> (_BITS + _FIELD), hashed >> (_BITS + _FIELD + _FIELD)
    return (_ONE << (first & _BIT)) | (_ONE << (second & _BIT)) | (_ONE << third)


@njit_uncounted
def filter_word_at(filter_at, hashed):
    """Return the address of the word of the filter at an address that a hash is in."""
    mask = np.uint64(int64_array(filter_at, 1)[0])
    return filter_at + 8 * np.int64(_ONE + ((hashed >> _WORD) & mask))


@njit_uncounted
def may_have_key(filter_at, hashed, bits):
    """Tell whether the filter at an address lets a key pass. hashed, bits : uint64, of hash_key and key_bits."""
    if filter_at == 0:
        return True
    mask = np.uint64(int64_array(filter_at, 1)[0])
    place = _ONE + ((hashed >> _WORD) & mask)
    return bits & ~np.uint64(int64_array(filter_at, np.int64(place) + 1)[place]) == _NONE


@njit
def add_keys(words, keys, direction, start, stop):
    """Add keys start..stop of a side to a filter.

    words : int64[1 + n]             Written.
    keys : int64[n]

    Cost: a word a key."""
    mask = np.uint64(words[0])
    for i in range(start, stop):
        hashed = np.uint64(hash_key(keys[i], direction))
        words[_ONE + ((hashed >> _WORD) & mask)] |= np.int64(np.uint64(key_bits(hashed)))
