# mypy: disallow-untyped-defs=false
"""Open addressing for term ids, with linear probing; slots hold entry numbers + 1.

Ids are hashes, but they need not come at random: many come in ascending order, and on a node they lie in the node's
shards, which are ranges of ids. If slots were numbered by the top bits, one end of a table would be full while the rest
is empty, and a search would run through all of that end. So a slot is numbered by bits mixed from all of an id, which
do not depend on order and shard.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.hash_kernels import read_word, write_word
from wukongs.store.jit import njit, njit_inline


@njit_inline
def mix_id(term):
    """Return 32 bits, int64, that depend on all bits of a term id; the top ones are the best.

    No product leaves 63 bits, so that it is the same un-jitted. The factor is odd, 2**32 over the golden ratio."""
    return ((((term >> 31) ^ (term >> 1)) & 0xFFFFFFFF) * 0x61C88647) & 0xFFFFFFFF


@njit
def slot_shift(slots):
    """Return by how much to shift a mixed id so that its top bits number the slots, a power of two."""
    shift = np.int64(32)
    size = len(slots)
    while size > 1:
        size >>= 1
        shift -= 1
    return shift


@njit
def fill_slots(ids, count, slots):
    """Enter ids[:count] into an empty slot table, in order: entry numbers + 1."""
    slot_mask = len(slots) - 1
    shift = slot_shift(slots)
    for entry in range(count):
        slot = mix_id(ids[entry]) >> shift
        while slots[slot] != 0:
            slot = (slot + 1) & slot_mask
        slots[slot] = entry + 1


@njit
def flag_used(term_ids, slots, column, rows, used):
    """Set used[i] for each term i that stands in the column in a row of `rows`.

    term_ids : int64[n_terms], distinct; slots : their table; column : int64[n]; rows, used : bool[n], bool[n_terms]."""
    slot_mask = len(slots) - 1
    shift = slot_shift(slots)
    for i in range(len(column)):
        if rows[i] and column[i] > 0 and column[i] & 1 == 0:
            slot = mix_id(column[i]) >> shift
            while slots[slot] != 0:
                entry = np.int64(slots[slot]) - 1
                if term_ids[entry] == column[i]:
                    used[entry] = True
                    break
                slot = (slot + 1) & slot_mask


@njit
def find_ids(term_ids, slots, column, found):
    """Set found[i] to the first entry of the id column[i], -1 for one that is not in the table.

    term_ids : int64[n_terms]; slots : their table; column, found : int64[n]."""
    slot_mask = len(slots) - 1
    shift = slot_shift(slots)
    for i in range(len(column)):
        found[i] = -1
        slot = mix_id(column[i]) >> shift
        while slots[slot] != 0:
            entry = np.int64(slots[slot]) - 1
            if term_ids[entry] == column[i]:
                found[i] = entry
                break
            slot = (slot + 1) & slot_mask


@njit_inline
def copy_bytes(data, start, size, out, at):
    """Copy data[start:start + size] to out[at:], eight bytes at a time."""
    i = np.int64(0)
    while i + 8 <= size:
        write_word(read_word(data, start + i), out, at + i)
        i += 8
    while i < size:
        out[at + i] = data[start + i]
        i += 1


@njit
def take_texts(text, offsets, rows, taken_offsets, taken):
    """Copy the texts with these numbers behind one another.

    text : uint8[n_bytes]; offsets : int64[n + 1]; rows : int64[m]; taken_offsets : int64[m + 1], where each goes;
    taken : uint8[taken_offsets[m]], written."""
    for i in range(len(rows)):
        start = offsets[rows[i]]
        copy_bytes(text, start, offsets[rows[i] + 1] - start, taken, taken_offsets[i])


@njit_inline
def same_bytes(data, start, size, text, at):
    """Tell whether data[start:start + size] and text[at:at + size] are equal."""
    i = np.int64(0)
    while i + 8 <= size:
        if read_word(data, start + i) != read_word(text, at + i):
            return False
        i += 8
    while i < size:
        if data[start + i] != text[at + i]:
            return False
        i += 1
    return True
