# mypy: disallow-untyped-defs=false
"""Kernels of memos: open-addressing tables from keys of term ids to values."""

from __future__ import annotations

import numpy as np

from wukongs.query.programs.program_layout import (
    MEMO_FREE,
    MEMO_HEAD,
    MEMO_KEYS,
    MEMO_PERMANENT,
    MEMO_SLOTS,
    UNKNOWN,
)
from wukongs.store.addresses import int64_array, int64_table
from wukongs.store.jit import njit, njit_uncounted


@njit_uncounted
def mix(mixed, cell):
    """Add a cell to a hash; the low bits of the result are mixed."""
    mixed ^= cell & 0x7FFFFFFFFFFFFFFF
    mixed = ((mixed & 0x7FFFFFFF) * 0x9E3779B1) ^ ((mixed >> 31) * 0x5BD1E995)
    return mixed ^ (mixed >> 29)


@njit_uncounted
def look_up(memo, row, columns, epoch):
    """Return the value of a key, UNKNOWN if the memo has no valid entry.

    Parameters
    ----------
    memo : int                       The address of a memo.
    row, columns : int64[...]        The key is row[columns].
    epoch : int                      The current release epoch."""
    keys = columns.shape[0]
    count = int64_array(memo, MEMO_HEAD)[MEMO_SLOTS]
    slots = int64_table(memo + 8 * MEMO_HEAD, count, keys + 2)
    mixed = np.int64(0)
    for k in range(keys):
        mixed = mix(mixed, row[columns[k]])
    at = (mixed ^ (mixed >> 32)) & (count - 1)
    while slots[at, keys] != MEMO_FREE:
        is_equal = True
        for k in range(keys):
            if slots[at, k] != row[columns[k]]:
                is_equal = False
                break
        if is_equal:
            is_valid = slots[at, keys] == MEMO_PERMANENT or slots[at, keys] == epoch
            return slots[at, keys + 1] if is_valid else np.int64(UNKNOWN)
        at = (at + 1) & (count - 1)
    return np.int64(UNKNOWN)


@njit
def insert_values(memo, keys, epochs, values):
    """Insert values, or overwrite those of keys that are there.

    Parameters
    ----------
    memo : int64[...]                With free slots for all keys.
    keys : int64[n, keys]
    epochs, values : int64[n]

    Returns the number of new keys."""
    count, width = memo[MEMO_SLOTS], memo[MEMO_KEYS]
    slots = memo[MEMO_HEAD:].reshape(count, width + 2)
    new = 0
    for i in range(keys.shape[0]):
        mixed = np.int64(0)
        for k in range(width):
            mixed = mix(mixed, keys[i, k])
        at = (mixed ^ (mixed >> 32)) & (count - 1)
        while slots[at, width] != MEMO_FREE:
            is_equal = True
            for k in range(width):
                if slots[at, k] != keys[i, k]:
                    is_equal = False
                    break
            if is_equal:
                break
            at = (at + 1) & (count - 1)
        if slots[at, width] == MEMO_FREE:
            new += 1
            slots[at, :width] = keys[i]
        slots[at, width] = epochs[i]
        slots[at, width + 1] = values[i]
    return new
