# mypy: disallow-untyped-defs=false
"""The dictionary's loops: look up, compare, add, release, gather.

A dictionary is ids : int64[capacity], offsets : int64[capacity + 1], text : uint8[...] and slots : int32[power of two];
entry i < count has the id ids[i] and the text text[offsets[i]:offsets[i + 1]]; slots holds entry numbers + 1, entered
by the top bits of the id and probed one by one. Ids are distinct. Entries are only ever appended, and a slot is written
after all that it leads to, so that a reader that captured an earlier count may go on while a writer adds.

A transient dictionary has refs : int32[capacity] too; the arrays of a persistent one end in an empty refs. An entry
with refs 0 is dead: gone for the writer, still there for readers until the arrays are rebuilt.
"""

from __future__ import annotations

import numpy as np

from store.jit import njit
from store.slot_kernels import same_bytes, slot_shift
from store.unpack_kernels import LITERAL_SIZE_MAX, write_literal

ADDED = 0
EQUAL = 1
REFUSED = 2
REFUSED_BY_DEAD = 3

N_COUNT = 0
N_DEAD_BYTES = 1
N_DEAD = 2


@njit
def find_entry(term, ids, slots, count, shift):
    """Return the entry of an id, -1 if it has none among the first `count`."""
    slot_mask = len(slots) - 1
    slot = term >> shift
    while slots[slot] != 0:
        entry = np.int64(slots[slot]) - 1
        if entry < count and ids[entry] == term:
            return entry
        slot = (slot + 1) & slot_mask
    return np.int64(-1)


@njit
def find_entries(terms, ids, slots, count):
    """Return the entries of many ids, -1 for those that are negative, inlined or unknown."""
    entries = np.full(len(terms), -1, np.int64)
    shift = slot_shift(slots)
    for i in range(len(terms)):
        if terms[i] > 0 and terms[i] & 1 == 0:
            entries[i] = find_entry(terms[i], ids, slots, count, shift)
    return entries


@njit
def compare_terms(new_ids, new_offsets, new_text, ids, offsets, text, slots, refs, count):
    """Say of each new term whether its id is unknown (ADDED, it could be added), held by the same text (EQUAL), by
    another (REFUSED), or by another that is dead (REFUSED_BY_DEAD). Returns int8[n_new]."""
    status = np.zeros(len(new_ids), np.int8)
    shift = slot_shift(slots)
    for i in range(len(new_ids)):
        entry = find_entry(new_ids[i], ids, slots, count, shift)
        if entry < 0:
            continue
        dead = len(refs) > 0 and refs[entry] == 0
        start = new_offsets[i]
        size = new_offsets[i + 1] - start
        if offsets[entry + 1] - offsets[entry] == size and same_bytes(new_text, start, size, text, offsets[entry]):
            status[i] = ADDED if dead else EQUAL
        else:
            status[i] = REFUSED_BY_DEAD if dead else REFUSED
    return status


@njit
def add_terms(new_ids, new_offsets, new_text, ids, offsets, text, slots, refs, numbers):
    """Add the terms whose ids are free; take a reference on each that is then there.

    numbers : int64[3], the counts N_COUNT, N_DEAD_BYTES, N_DEAD. There is room for all new terms. Returns int8[n_new],
    as compare_terms; EQUAL also for the entry that was already there."""
    status = np.zeros(len(new_ids), np.int8)
    slot_mask = len(slots) - 1
    shift = slot_shift(slots)
    for i in range(len(new_ids)):
        term = new_ids[i]
        start = new_offsets[i]
        size = new_offsets[i + 1] - start
        slot = term >> shift
        while slots[slot] != 0 and ids[slots[slot] - 1] != term:
            slot = (slot + 1) & slot_mask
        if slots[slot] == 0:
            entry = numbers[N_COUNT]
            end = offsets[entry]
            for j in range(size):
                text[end + j] = new_text[start + j]
            offsets[entry + 1] = end + size
            ids[entry] = term
            if len(refs) > 0:
                refs[entry] = 1
            slots[slot] = entry + 1
            numbers[N_COUNT] = entry + 1
            continue
        entry = np.int64(slots[slot]) - 1
        same = offsets[entry + 1] - offsets[entry] == size
        same = same and same_bytes(new_text, start, size, text, offsets[entry])
        dead = len(refs) > 0 and refs[entry] == 0
        if not same:
            status[i] = REFUSED_BY_DEAD if dead else REFUSED
            continue
        if dead:
            numbers[N_DEAD_BYTES] -= size
            numbers[N_DEAD] -= 1
        else:
            status[i] = EQUAL
        if len(refs) > 0:
            refs[entry] += 1
    return status


@njit
def release_terms(terms, ids, offsets, slots, refs, numbers):
    """Give back one reference for each id. Returns -1, or the place of the first id that holds none (then stop)."""
    shift = slot_shift(slots)
    for i in range(len(terms)):
        entry = find_entry(terms[i], ids, slots, numbers[N_COUNT], shift)
        if entry < 0 or refs[entry] == 0:
            return i
        refs[entry] -= 1
        if refs[entry] == 0:
            numbers[N_DEAD_BYTES] += offsets[entry + 1] - offsets[entry]
            numbers[N_DEAD] += 1
    return -1


@njit
def copy_live(ids, offsets, text, refs, count, new_ids, new_offsets, new_text, new_refs):
    """Copy the entries that are not dead, in order; return how many. The slots are filled apart."""
    kept = 0
    end = np.int64(0)
    new_offsets[0] = 0
    for entry in range(count):
        if refs[entry] == 0:
            continue
        for j in range(offsets[entry], offsets[entry + 1]):
            new_text[end] = text[j]
            end += 1
        new_ids[kept] = ids[entry]
        new_refs[kept] = refs[entry]
        kept += 1
        new_offsets[kept] = end
    return kept


@njit
def gather_texts(
    terms, names, types, ids, offsets, text, slots, count, more_ids, more_offsets, more_text, more_slots, more_count
):
    """Write the canonical forms of many ids one after the other; inlined ones are unpacked, others looked up in one
    dictionary, then in another.

    terms : int64[n], repeats allowed. Returns (text uint8[n_bytes], offsets int64[n + 1], place of the first id that is
    unknown or -1)."""
    out_offsets = np.zeros(len(terms) + 1, np.int64)
    out = np.empty(48 * len(terms) + LITERAL_SIZE_MAX, np.uint8)
    shift = slot_shift(slots)
    more_shift = slot_shift(more_slots)
    end = np.int64(0)
    for i in range(len(terms)):
        term = terms[i]
        if term <= 0:
            return out[:end], out_offsets, i
        size = np.int64(LITERAL_SIZE_MAX)
        entry = np.int64(-1)
        more_entry = np.int64(-1)
        if term & 1 == 0:
            entry = np.int64(find_entry(term, ids, slots, count, shift))
            if entry >= 0:
                size = offsets[entry + 1] - offsets[entry]
            else:
                more_entry = np.int64(find_entry(term, more_ids, more_slots, more_count, more_shift))
                if more_entry < 0:
                    return out[:end], out_offsets, i
                size = more_offsets[more_entry + 1] - more_offsets[more_entry]
        if end + size > len(out):
            grown = np.empty(2 * len(out) + size, np.uint8)
            grown[:end] = out[:end]
            out = grown
        if term & 1 == 1:
            end = np.int64(write_literal(term, out, end, names, types))
        elif entry >= 0:
            out[end : end + size] = text[offsets[entry] : offsets[entry] + size]
            end += size
        else:
            out[end : end + size] = more_text[more_offsets[more_entry] : more_offsets[more_entry] + size]
            end += size
        out_offsets[i + 1] = end
    return out[:end], out_offsets, -1


@njit
def flag_used(term_ids, slots, column, rows, used):
    """Set used[i] for each term i that stands in the column in a row of `rows`.

    term_ids : int64[n_terms], distinct; slots : their table; column : int64[n]; rows, used : bool[n], bool[n_terms]."""
    shift = slot_shift(slots)
    for i in range(len(column)):
        if rows[i] and column[i] > 0 and column[i] & 1 == 0:
            entry = find_entry(column[i], term_ids, slots, len(term_ids), shift)
            if entry >= 0:
                used[entry] = True
