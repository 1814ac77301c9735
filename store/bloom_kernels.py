# mypy: disallow-untyped-defs=false
"""A Bloom filter over stored tuples in lines of 64 bytes: a look-up touches one line (one cache miss).

lines : uint64[n_lines * LINE_WORDS]. The hash of a tuple names its line and BITS_PER_TUPLE bits in it. A tuple that was
added is always found; how often another is found too depends on how full the lines are: 0.5 % at 12 bits a tuple, 2.5 %
at 8. Source: Putze, Sanders, Singler, Cache-, hash- and space-efficient Bloom filters (blocked filters).
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int64_array, prefetch
from wukongs.store.jit import njit, njit_inline
from wukongs.store.layout import DIRECTORY_SIZE, GRAPHS, PREDICATES, TRIPLE_COUNT
from wukongs.store.lookup_kernels import key_range, side_keys, side_values, value_range

LINE_WORDS = 8
BITS_PER_TUPLE = 5
LINES_AHEAD = 16
"""So many lines are on their way from memory at a time; more would push each other out of the buffers for misses."""

# Odd constants without a pattern. Every operand below is a uint64: numba would turn uint64 with int64 into float64.
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_HALF = np.uint64(32)
_POSITION = np.uint64(511)
_WORD = np.uint64(6)
_BIT = np.uint64(63)
_FIELD = np.uint64(9)
_LAST_FIELD = np.uint64(64 - 9)
_ONE = np.uint64(1)


@njit_inline
def _hash_tuple(graph, predicate, subject, object_):
    place = (np.uint64(graph) * _P3) ^ ((np.uint64(predicate) * _P4) >> _HALF)
    h = (np.uint64(subject) * _P1) ^ ((np.uint64(object_) * _P2) >> _HALF) ^ (np.uint64(object_) * _P4) ^ place
    h = (h ^ (h >> _HALF)) * _P2
    return h ^ (h >> _HALF)


@njit_inline
def _first_word(n_lines, h):
    return ((h >> _HALF) * n_lines >> _HALF) * np.uint64(LINE_WORDS)


@njit_inline
def _meet(lines, n_lines, h):
    """Tell whether all bits of a hash are set, and set them."""
    first = _first_word(n_lines, h)
    bits = h * _P3
    found = _ONE
    for _ in range(BITS_PER_TUPLE):
        at = bits >> _LAST_FIELD
        bits = bits << _FIELD
        word = first + (at >> _WORD)
        shift = at & _BIT
        found &= lines[word] >> shift
        lines[word] |= _ONE << shift
    return found == _ONE


@njit
def meet_tuples(lines, graphs, predicates, subjects, objects):
    """Add tuples to a filter; tell which of them it may have held before.

    Parameters
    ----------
    lines : uint64[n_lines * LINE_WORDS]               Written.
    graphs, predicates, subjects, objects : int64[n]

    Returns
    -------
    met : bool[n]      False: certainly not added before. A repeat within the call may be True.

    Cost: one cache line a tuple, fetched while those before it are worked on. Un-jitted, numpy warns of the (wanted)
    overflow: callers hold np.errstate."""
    met = np.empty(subjects.size, np.bool_)
    n_lines = np.uint64(lines.size // LINE_WORDS)
    hashes = np.empty(subjects.size, np.uint64)
    for i in range(subjects.size):
        hashes[i] = _hash_tuple(graphs[i], predicates[i], subjects[i], objects[i])
    for i in range(min(LINES_AHEAD, hashes.size)):
        prefetch(lines, np.int64(_first_word(n_lines, hashes[i])))
    for i in range(hashes.size):
        if i + LINES_AHEAD < hashes.size:
            prefetch(lines, np.int64(_first_word(n_lines, hashes[i + LINES_AHEAD])))
        met[i] = _meet(lines, n_lines, hashes[i])
    return met


@njit_inline
def _holds(lines, n_lines, h):
    """Tell whether all bits of a hash are set."""
    first = _first_word(n_lines, h)
    bits = h * _P3
    found = _ONE
    for _ in range(BITS_PER_TUPLE):
        at = bits >> _LAST_FIELD
        bits = bits << _FIELD
        found &= lines[first + (at >> _WORD)] >> (at & _BIT)
    return found == _ONE


@njit
def find_tuples(lines, graphs, predicates, subjects, objects):
    """Tell which tuples a filter may hold, as meet_tuples, but leave it as it is. bool[n]"""
    met = np.empty(subjects.size, np.bool_)
    n_lines = np.uint64(lines.size // LINE_WORDS)
    for i in range(subjects.size):
        met[i] = _holds(lines, n_lines, _hash_tuple(graphs[i], predicates[i], subjects[i], objects[i]))
    return met


@njit
def add_batch(lines, descriptor, place, fuel):
    """Add the triples of a batch to a filter, at most `fuel` of them, in the order of the out side.

    Parameters
    ----------
    lines : uint64[n_lines * LINE_WORDS]               Written.
    descriptor : int64[DESCRIPTOR_WIDTH]
    place : int64[3]   Directory row, key and value that come next; zeros at first. Moved on.
    fuel : int64

    Returns
    -------
    fuel : int64       What is left; the batch is done when place[2] is its count of triples."""
    n_rows = descriptor[DIRECTORY_SIZE]
    graphs = int64_array(descriptor[GRAPHS], n_rows)
    predicates = int64_array(descriptor[PREDICATES], n_rows)
    keys = side_keys(descriptor, 0)
    values = side_values(descriptor, 0, descriptor[TRIPLE_COUNT])
    n_lines = np.uint64(lines.size // LINE_WORDS)
    row, key, value = place[0], place[1], place[2]
    while fuel > 0 and value < values.size:
        if key == key_range(descriptor, 0, row)[1]:
            row += 1
            continue
        stop = min(value_range(descriptor, 0, key)[1], value + fuel)
        fuel -= stop - value
        while value < stop:
            _meet(lines, n_lines, np.uint64(_hash_tuple(graphs[row], predicates[row], keys[key], values[value])))
            value += 1
        if value == value_range(descriptor, 0, key)[1]:
            key += 1
    place[0], place[1], place[2] = row, key, value
    return fuel
