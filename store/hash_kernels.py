# mypy: disallow-untyped-defs=false
"""XXH64 over bytes, and the term id that is made of it.

A kernel called as py_func gets Python integers from the compiled kernels that it calls, hence the np.uint64() around
results: Python integers would not wrap.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit_inline

# The five primes of XXH64. Every operand below is a uint64: numba would turn uint64 with int64 into float64.
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BITS = np.uint64(64)


@njit_inline
def _rotate(x, by):
    return (x << by) | (x >> (_BITS - by))


@njit_inline
def _half(data, at):
    """Read four bytes, little end first. The index is unsigned, so that numba leaves out its test for negative ones."""
    i = np.uint64(at)
    low = np.uint64(data[i]) | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
    high = np.uint64(data[i + np.uint64(2)]) | (np.uint64(data[i + np.uint64(3)]) << np.uint64(8))
    return low | (high << np.uint64(16))


@njit_inline
def read_word(data, at):
    """Read eight bytes, little end first; LLVM makes one load of it."""
    i = np.uint64(at)
    return (
        np.uint64(data[i])
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[i + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[i + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[i + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[i + np.uint64(7)]) << np.uint64(56))
    )


@njit_inline
def write_word(word, data, at):
    """Write a uint64 as eight bytes, little end first; LLVM makes one store of it."""
    i = np.uint64(at)
    data[i] = word & np.uint64(255)
    data[i + np.uint64(1)] = (word >> np.uint64(8)) & np.uint64(255)
    data[i + np.uint64(2)] = (word >> np.uint64(16)) & np.uint64(255)
    data[i + np.uint64(3)] = (word >> np.uint64(24)) & np.uint64(255)
    data[i + np.uint64(4)] = (word >> np.uint64(32)) & np.uint64(255)
    data[i + np.uint64(5)] = (word >> np.uint64(40)) & np.uint64(255)
    data[i + np.uint64(6)] = (word >> np.uint64(48)) & np.uint64(255)
    data[i + np.uint64(7)] = word >> np.uint64(56)


@njit_inline
def _round(lane, word):
    return np.uint64(_rotate(lane + word * _P2, np.uint64(31))) * _P1


@njit_inline
def _merge(total, lane):
    return (total ^ np.uint64(_round(np.uint64(0), lane))) * _P1 + _P4


@njit_inline
def xxh64(data, start, stop, seed):
    """Hash data[start:stop], a uint8 array, with a uint64 seed.

    Un-jitted, numpy warns of the (wanted) overflow: callers hold np.errstate(over="ignore")."""
    p = start
    if stop - start >= 32:
        a = seed + _P1 + _P2
        b = seed + _P2
        c = seed
        d = seed - _P1
        while p + 32 <= stop:
            a = np.uint64(_round(a, np.uint64(read_word(data, p))))
            b = np.uint64(_round(b, np.uint64(read_word(data, p + 8))))
            c = np.uint64(_round(c, np.uint64(read_word(data, p + 16))))
            d = np.uint64(_round(d, np.uint64(read_word(data, p + 24))))
            p += 32
        h = np.uint64(_rotate(a, np.uint64(1))) + np.uint64(_rotate(b, np.uint64(7)))
        h = h + np.uint64(_rotate(c, np.uint64(12))) + np.uint64(_rotate(d, np.uint64(18)))
        h = np.uint64(_merge(np.uint64(_merge(h, a)), b))
        h = np.uint64(_merge(np.uint64(_merge(h, c)), d))
    else:
        h = seed + _P5
    h = h + np.uint64(stop - start)
    while p + 8 <= stop:
        h = h ^ np.uint64(_round(np.uint64(0), np.uint64(read_word(data, p))))
        h = np.uint64(_rotate(h, np.uint64(27))) * _P1 + _P4
        p += 8
    if p + 4 <= stop:
        h = np.uint64(_rotate(h ^ (np.uint64(_half(data, p)) * _P1), np.uint64(23))) * _P2 + _P3
        p += 4
    while p < stop:
        h = np.uint64(_rotate(h ^ (np.uint64(data[p]) * _P5), np.uint64(11))) * _P1
        p += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@njit_inline
def hash_id(data, start, stop, seed, mask):
    """Return the term id of a canonical form: the bits of its XXH64 that `mask` keeps, shifted right by one.

    mask : uint64, the top hash_bits (at most 62) bits. The id is even; 0 names no term, so a zero hash becomes 2."""
    term = np.int64((np.uint64(xxh64(data, start, stop, seed)) & mask) >> np.uint64(1))
    if term == 0:
        return np.int64(2)
    return term
