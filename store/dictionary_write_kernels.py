# mypy: disallow-untyped-defs=false
"""The dictionary's loops that a writer runs: compare, add, take over, release. The arrays are those of
store/dictionary_kernels.py; there is one writer at a time."""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int64_array, uint32_array
from wukongs.store.dictionary_kernels import (
    BLOCK,
    C_IDS,
    C_OFFSETS,
    C_REFS,
    C_TEXT_SIZE,
    CHUNK_BITS,
    CHUNK_ENTRIES,
    IN_CHUNK,
    entry_tag,
    find_block,
    first_slot,
    has_text,
    id_of,
    is_dead,
    refs_of,
    search,
    span_of,
    text_of,
)
from wukongs.store.jit import njit, njit_inline
from wukongs.store.slot_kernels import copy_bytes
from wukongs.store.term_id_kernels import canonical_id

ADDED = 0
EQUAL = 1
REFUSED = 2
REFUSED_BY_DEAD = 3

N_COUNT = 0
N_DEAD_BYTES = 1
N_DEAD = 2
N_BYTES = 3
NUMBERS = 4


@njit
def enter_slots(chunks, count, slots, number_bits):
    """Enter the first `count` entries into an empty slot table."""
    for entry in range(count):
        term = np.int64(id_of(chunks, entry))
        slot = np.int64(first_slot(term, slots))
        while slots[slot] != 0:
            slot += 1
            if slot == len(slots):
                slot = np.int64(0)
        slots[slot] = entry_tag(term, number_bits) | (entry + 1)


@njit
def compare_terms(new_ids, new_offsets, new_text, rows, chunks, slots, number_bits, count):
    """Say of each of these rows of new terms whether its id is unknown (ADDED, it could be added), held by the same
    text (EQUAL), by another (REFUSED), or by another that is dead (REFUSED_BY_DEAD). Returns int8[n_rows]."""
    status = np.zeros(len(rows), np.int8)
    wanted, entries = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    held_ids, starts, sizes = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for first in range(0, len(rows), BLOCK):
        found = find_block(
            new_ids, rows, first, wanted, chunks, slots, number_bits, count, entries, held_ids, starts, sizes
        )
        for j in range(found):
            if entries[j] >= 0:
                i = rows[first + j]
                dead = is_dead(chunks, entries[j])
                if has_text(chunks, entries[j], new_text, new_offsets[i], new_offsets[i + 1] - new_offsets[i]):
                    status[first + j] = ADDED if dead else EQUAL
                else:
                    status[first + j] = REFUSED_BY_DEAD if dead else REFUSED
    return status


@njit
def compare_text(text, names, types, seed, mask, chunks, slots, number_bits, count):
    """Return the id of one canonical form, and what compare_terms says of it; EQUAL if it is inlined.

    text, names, types, seed, mask : as for canonical_id. Nothing may be dead."""
    term = np.int64(canonical_id(text, 0, len(text), names, types, seed, mask))
    if term & 1 == 1:
        return term, EQUAL
    entry, _ = search(term, chunks, slots, number_bits, count)
    if entry < 0:
        return term, ADDED
    return term, EQUAL if has_text(chunks, entry, text, 0, len(text)) else REFUSED


@njit
def add_terms(
    first, new_ids, new_offsets, new_text, rows, new_refs, chunks, slots, number_bits, count_max, numbers, status
):
    """Add the terms in rows[first:] whose ids are free; take references on each that is then there.

    rows : int64[n_rows], distinct; new_refs : int32[n_rows], how many references, or empty: one;
    count_max : entries that there is room for; numbers : int64[NUMBERS], the N counts;
    status : int8[n_rows], filled as by compare_terms, EQUAL also for the entry that was already there.

    Returns the place of the first row for which there is no room, n_rows if there was room for all."""
    wanted, entries = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    held_ids, starts, sizes = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for block in range(first, len(rows), BLOCK):
        found = find_block(
            new_ids, rows, block, wanted, chunks, slots, number_bits, numbers[N_COUNT], entries, held_ids, starts, sizes
        )
        for j in range(found):
            start = new_offsets[rows[block + j]]
            size = new_offsets[rows[block + j] + 1] - start
            refs_taken = new_refs[block + j] if len(new_refs) > 0 else np.int32(1)
            entry = entries[j]
            if entry < 0:
                entry = numbers[N_COUNT]
                if entry == count_max:
                    return block + j
                chunk = entry >> CHUNK_BITS
                place = entry & IN_CHUNK
                offsets = uint32_array(chunks[chunk, C_OFFSETS], CHUNK_ENTRIES + 1)
                end = np.int64(offsets[place])
                if end + size > chunks[chunk, C_TEXT_SIZE]:
                    return block + j
                copy_bytes(new_text, start, size, text_of(chunks, entry), end)
                offsets[place + 1] = end + size
                int64_array(chunks[chunk, C_IDS], CHUNK_ENTRIES)[place] = wanted[j]
                if chunks[0, C_REFS] != 0:
                    refs_of(chunks, chunk)[place] = refs_taken
                _, slot = search(wanted[j], chunks, slots, number_bits, entry)
                slots[slot] = entry_tag(wanted[j], number_bits) | (entry + 1)
                numbers[N_COUNT] = entry + 1
                numbers[N_BYTES] += size
                status[block + j] = ADDED
                continue
            dead = is_dead(chunks, entry)
            if not has_text(chunks, entry, new_text, start, size):
                status[block + j] = REFUSED_BY_DEAD if dead else REFUSED
                continue
            status[block + j] = ADDED if dead else EQUAL
            if dead:
                numbers[N_DEAD_BYTES] -= size
                numbers[N_DEAD] -= 1
            if chunks[0, C_REFS] != 0:
                refs_of(chunks, entry >> CHUNK_BITS)[entry & IN_CHUNK] += refs_taken
    return len(rows)


@njit_inline
def _bury(chunks, entry, numbers):
    """Set an entry's references to 0."""
    refs_of(chunks, entry >> CHUNK_BITS)[entry & IN_CHUNK] = 0
    numbers[N_DEAD_BYTES] += span_of(chunks, entry)[1]
    numbers[N_DEAD] += 1


@njit
def take_over(new_ids, new_offsets, new_text, rows, chunks, slots, number_bits, numbers, status):
    """Take all references from the entries of these rows of new terms: they die here, to live in another generation.

    status : int8[n_rows], set to REFUSED where another text, not dead, has the id. Returns int32[n_rows], the
    references taken and one more for the new term."""
    refs = np.ones(len(rows), np.int32)
    wanted, entries = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    held_ids, starts, sizes = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for first in range(0, len(rows), BLOCK):
        found = find_block(
            new_ids, rows, first, wanted, chunks, slots, number_bits, numbers[N_COUNT], entries, held_ids, starts, sizes
        )
        for j in range(found):
            entry = entries[j]
            if entry >= 0 and not is_dead(chunks, entry):
                i = rows[first + j]
                if has_text(chunks, entry, new_text, new_offsets[i], new_offsets[i + 1] - new_offsets[i]):
                    refs[first + j] += refs_of(chunks, entry >> CHUNK_BITS)[entry & IN_CHUNK]
                    _bury(chunks, entry, numbers)
                else:
                    status[first + j] = REFUSED
    return refs


@njit
def release_terms(terms, chunks, slots, number_bits, numbers):
    """Give back one reference for each id, in order. Returns bool[n]: those that hold none, or no more."""
    left = np.zeros(len(terms), np.bool_)
    wanted, entries = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    held_ids, starts, sizes = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    rows = np.arange(len(terms))
    for first in range(0, len(terms), BLOCK):
        found = find_block(
            terms, rows, first, wanted, chunks, slots, number_bits, numbers[N_COUNT], entries, held_ids, starts, sizes
        )
        for j in range(found):
            entry = entries[j]
            if entry < 0 or is_dead(chunks, entry):
                left[first + j] = True
                continue
            refs = refs_of(chunks, entry >> CHUNK_BITS)
            refs[entry & IN_CHUNK] -= 1
            if refs[entry & IN_CHUNK] == 0:
                _bury(chunks, entry, numbers)
    return left


@njit
def take_live(start, stop, chunks, numbers):
    """Copy the entries [start, stop), all of one chunk, but for the dead ones, in order; they die here.

    Returns (ids int64[n], offsets int64[n + 1], text uint8[n_bytes], refs int32[n])."""
    chunk = start >> CHUNK_BITS
    ids = int64_array(chunks[chunk, C_IDS], CHUNK_ENTRIES)
    refs = refs_of(chunks, chunk)
    text = text_of(chunks, start)
    kept_ids = np.empty(stop - start, np.int64)
    kept_offsets = np.zeros(stop - start + 1, np.int64)
    last, last_size = span_of(chunks, stop - 1)
    kept_text = np.empty(last + last_size - span_of(chunks, start)[0], np.uint8)
    kept_refs = np.empty(stop - start, np.int32)
    kept = 0
    for entry in range(start, stop):
        place = entry & IN_CHUNK
        if refs[place] == 0:
            continue
        at, size = span_of(chunks, entry)
        copy_bytes(text, at, size, kept_text, kept_offsets[kept])
        kept_ids[kept] = ids[place]
        kept_refs[kept] = refs[place]
        kept_offsets[kept + 1] = kept_offsets[kept] + size
        kept += 1
        _bury(chunks, entry, numbers)
    return kept_ids[:kept], kept_offsets[: kept + 1], kept_text[: kept_offsets[kept]], kept_refs[:kept]
