# mypy: disallow-untyped-defs=false
"""The dictionary's loops: look up, compare, add, release, gather.

Entries are numbered in the order in which they were added. 2**CHUNK_BITS of them share a chunk, whose arrays never move
but for the text of the newest one; `chunks` is a table of their addresses, a row of the C constants each:

    ids : int64[2**CHUNK_BITS]; offsets : uint32[2**CHUNK_BITS + 1] into text : uint8[C_TEXT_SIZE];
    refs : int32[2**CHUNK_BITS], references to each entry; address 0 in a dictionary that does not count them.

slots : uint32[any size], linear probing. Ids are uniform, so their top bits say where an id's search begins. A slot is
0, or a tag above the entry number + 1: the number takes `number_bits`, the tag, low bits of the id, has the rest, so
that few slots with another id cost a look at `ids`.

An entry with refs 0 is dead: gone for the writer, still there for readers until the tables are rebuilt.
Ids are distinct. Entries are only ever appended, and a slot is written after all that it leads to, so that a reader
that captured an earlier count may go on while a writer adds.
"""

from __future__ import annotations

import numpy as np

from store.addresses import int32_array, int64_array, uint8_array, uint32_array
from store.jit import njit, njit_inline
from store.slot_kernels import copy_bytes, same_bytes
from store.unpack_kernels import LITERAL_SIZE_MAX, write_literal

CHUNK_BITS = 14
CHUNK_ENTRIES = 1 << CHUNK_BITS
_IN_CHUNK = CHUNK_ENTRIES - 1

C_IDS = 0
C_OFFSETS = 1
C_TEXT = 2
C_TEXT_SIZE = 3
C_REFS = 4
CHUNK_WIDTH = 5

ADDED = 0
EQUAL = 1
REFUSED = 2
REFUSED_BY_DEAD = 3

N_COUNT = 0
N_DEAD_BYTES = 1
N_DEAD = 2
N_BYTES = 3
NUMBERS = 4

_GATHER_BLOCK = 256


@njit_inline
def _id_of(chunks, entry):
    return int64_array(chunks[entry >> CHUNK_BITS, C_IDS], CHUNK_ENTRIES)[entry & _IN_CHUNK]


@njit_inline
def _refs_of(chunks, chunk):
    """View the reference counts of a chunk; empty if they are not counted."""
    address = chunks[chunk, C_REFS]
    return int32_array(address, CHUNK_ENTRIES if address != 0 else 0)


@njit_inline
def _is_dead(chunks, entry):
    return chunks[0, C_REFS] != 0 and _refs_of(chunks, entry >> CHUNK_BITS)[entry & _IN_CHUNK] == 0


@njit_inline
def _span_of(chunks, entry):
    """Return (start, size) of an entry in its chunk's text."""
    offsets = uint32_array(chunks[entry >> CHUNK_BITS, C_OFFSETS], CHUNK_ENTRIES + 1)
    start = np.int64(offsets[entry & _IN_CHUNK])
    return start, np.int64(offsets[(entry & _IN_CHUNK) + 1]) - start


@njit_inline
def _text_of(chunks, entry):
    chunk = entry >> CHUNK_BITS
    return uint8_array(chunks[chunk, C_TEXT], chunks[chunk, C_TEXT_SIZE])


@njit_inline
def _has_text(chunks, entry, text, start, size):
    """Tell whether an entry's text is text[start:start + size]."""
    at, held = _span_of(chunks, entry)
    return held == size and same_bytes(text, start, size, _text_of(chunks, entry), at)


@njit_inline
def _first_slot(term, slots):
    return ((term >> 31) * len(slots)) >> 32


@njit_inline
def _tag(term, number_bits):
    """Return the tag of an id, in its place in a slot."""
    return ((term >> 1) << number_bits) & 0xFFFFFFFF


@njit_inline
def _search(term, chunks, slots, number_bits, count):
    """Return (entry of an id or -1, the slot where the search ended)."""
    numbers = (np.int64(1) << number_bits) - 1
    tag = np.int64(_tag(term, number_bits))
    slot = np.int64(_first_slot(term, slots))
    while True:
        held = np.int64(slots[slot])
        if held == 0:
            return np.int64(-1), slot
        if held & ~numbers == tag:
            entry = (held & numbers) - 1
            if entry < count and _id_of(chunks, entry) == term:
                return entry, slot
        slot += 1
        if slot == len(slots):
            slot = np.int64(0)


@njit
def find_entries(terms, chunks, slots, number_bits, count):
    """Return the entries of many ids, int64[n], -1 for those that are negative, inlined or unknown."""
    entries = np.full(len(terms), -1, np.int64)
    for i in range(len(terms)):
        if terms[i] > 0 and terms[i] & 1 == 0:
            entries[i] = _search(terms[i], chunks, slots, number_bits, count)[0]
    return entries


@njit
def enter_slots(chunks, count, slots, number_bits):
    """Enter the first `count` entries into an empty slot table."""
    for entry in range(count):
        term = np.int64(_id_of(chunks, entry))
        slot = np.int64(_first_slot(term, slots))
        while slots[slot] != 0:
            slot += 1
            if slot == len(slots):
                slot = np.int64(0)
        slots[slot] = _tag(term, number_bits) | (entry + 1)


@njit
def compare_terms(new_ids, new_offsets, new_text, chunks, slots, number_bits, count):
    """Say of each new term whether its id is unknown (ADDED, it could be added), held by the same text (EQUAL), by
    another (REFUSED), or by another that is dead (REFUSED_BY_DEAD). Returns int8[n_new]."""
    status = np.zeros(len(new_ids), np.int8)
    for i in range(len(new_ids)):
        entry, _ = _search(new_ids[i], chunks, slots, number_bits, count)
        if entry < 0:
            continue
        dead = _is_dead(chunks, entry)
        if _has_text(chunks, entry, new_text, new_offsets[i], new_offsets[i + 1] - new_offsets[i]):
            status[i] = ADDED if dead else EQUAL
        else:
            status[i] = REFUSED_BY_DEAD if dead else REFUSED
    return status


@njit
def add_terms(first, new_ids, new_offsets, new_text, new_refs, chunks, slots, number_bits, count_max, numbers, status):
    """Add the terms from `first` on whose ids are free; take references on each that is then there.

    new_refs : int32[n_new], how many references, or empty: one; count_max : entries that there is room for;
    numbers : int64[NUMBERS], the N counts; status : int8[n_new], filled as by compare_terms, EQUAL also for the entry
    that was already there.

    Returns the place of the first term for which there is no room, n_new if there was room for all."""
    for i in range(first, len(new_ids)):
        term = new_ids[i]
        start = new_offsets[i]
        size = new_offsets[i + 1] - start
        refs_taken = new_refs[i] if len(new_refs) > 0 else np.int32(1)
        entry, slot = _search(term, chunks, slots, number_bits, numbers[N_COUNT])
        if entry < 0:
            entry = numbers[N_COUNT]
            if entry == count_max:
                return i
            chunk = entry >> CHUNK_BITS
            place = entry & _IN_CHUNK
            offsets = uint32_array(chunks[chunk, C_OFFSETS], CHUNK_ENTRIES + 1)
            end = np.int64(offsets[place])
            if end + size > chunks[chunk, C_TEXT_SIZE]:
                return i
            copy_bytes(new_text, start, size, _text_of(chunks, entry), end)
            offsets[place + 1] = end + size
            int64_array(chunks[chunk, C_IDS], CHUNK_ENTRIES)[place] = term
            if chunks[0, C_REFS] != 0:
                _refs_of(chunks, chunk)[place] = refs_taken
            slots[slot] = _tag(term, number_bits) | (entry + 1)
            numbers[N_COUNT] = entry + 1
            numbers[N_BYTES] += size
            status[i] = ADDED
            continue
        dead = _is_dead(chunks, entry)
        if not _has_text(chunks, entry, new_text, start, size):
            status[i] = REFUSED_BY_DEAD if dead else REFUSED
            continue
        status[i] = ADDED if dead else EQUAL
        if dead:
            numbers[N_DEAD_BYTES] -= size
            numbers[N_DEAD] -= 1
        if chunks[0, C_REFS] != 0:
            _refs_of(chunks, entry >> CHUNK_BITS)[entry & _IN_CHUNK] += refs_taken
    return len(new_ids)


@njit
def release_terms(terms, chunks, slots, number_bits, numbers):
    """Give back one reference for each id. Returns -1, or the place of the first id that holds none (then stop)."""
    for i in range(len(terms)):
        entry, _ = _search(terms[i], chunks, slots, number_bits, numbers[N_COUNT])
        if entry < 0 or _is_dead(chunks, entry):
            return i
        refs = _refs_of(chunks, entry >> CHUNK_BITS)
        refs[entry & _IN_CHUNK] -= 1
        if refs[entry & _IN_CHUNK] == 0:
            numbers[N_DEAD_BYTES] += _span_of(chunks, entry)[1]
            numbers[N_DEAD] += 1
    return -1


@njit
def flag_live(entries, chunks):
    """Tell of each entry whether it is there (not -1) and not dead. Returns bool[n]."""
    live = np.zeros(len(entries), np.bool_)
    for i in range(len(entries)):
        live[i] = entries[i] >= 0 and not _is_dead(chunks, entries[i])
    return live


@njit
def take_live(ids, offsets, text, refs, count):
    """Copy the first `count` entries of a chunk but for the dead ones, in order.

    Returns (ids int64[n], offsets int64[n + 1], text uint8[n_bytes], refs int32[n])."""
    kept_ids = np.empty(count, np.int64)
    kept_offsets = np.zeros(count + 1, np.int64)
    kept_text = np.empty(np.int64(offsets[count]), np.uint8)
    kept_refs = np.empty(count, np.int32)
    kept = 0
    for entry in range(count):
        if refs[entry] == 0:
            continue
        start = np.int64(offsets[entry])
        size = np.int64(offsets[entry + 1]) - start
        copy_bytes(text, start, size, kept_text, kept_offsets[kept])
        kept_ids[kept] = ids[entry]
        kept_refs[kept] = refs[entry]
        kept_offsets[kept + 1] = kept_offsets[kept] + size
        kept += 1
    return kept_ids[:kept], kept_offsets[: kept + 1], kept_text[: kept_offsets[kept]], kept_refs[:kept]


@njit
def _guess_entries(terms, first, rows, chunks, slots, number_bits, count, entries, held_ids, starts, sizes):
    """Set entries[j] to the entry that terms[first + j] has if tags tell the truth, -1 if it has none or is inlined;
    held_ids[j], starts[j] and sizes[j] to what that entry has.

    Three loops of one distant read each: none waits for the one before it, so the processor does many at a time."""
    numbers = (np.int64(1) << number_bits) - 1
    for j in range(rows):
        term = terms[first + j]
        entries[j] = slots[_first_slot(term, slots)] if term > 0 and term & 1 == 0 else 0
    for j in range(rows):
        held = entries[j]
        if held != 0:
            term = terms[first + j]
            tag = np.int64(_tag(term, number_bits))
            slot = np.int64(_first_slot(term, slots))
            while held != 0 and held & ~numbers != tag:
                slot += 1
                if slot == len(slots):
                    slot = np.int64(0)
                held = np.int64(slots[slot])
        # A writer may have added entries behind those of this reader.
        entries[j] = (held & numbers) - 1 if held & numbers <= count else -1
    for j in range(rows):
        if entries[j] >= 0:
            held_ids[j] = _id_of(chunks, entries[j])
            starts[j], sizes[j] = _span_of(chunks, entries[j])


@njit
def gather_texts(
    terms,
    names,
    types,
    chunks,
    slots,
    number_bits,
    count,
    more_chunks,
    more_slots,
    more_number_bits,
    more_count,
):
    """Write the canonical forms of many ids one after the other; inlined ones are unpacked, others looked up in one
    dictionary, then in another.

    terms : int64[n], repeats allowed. Returns (text uint8[n_bytes], offsets int64[n + 1], place of the first id that is
    unknown or -1)."""
    out_offsets = np.zeros(len(terms) + 1, np.int64)
    out = np.empty(48 * len(terms) + LITERAL_SIZE_MAX, np.uint8)
    entries = np.empty(_GATHER_BLOCK, np.int64)
    held_ids = np.empty(_GATHER_BLOCK, np.int64)
    starts = np.empty(_GATHER_BLOCK, np.int64)
    sizes = np.empty(_GATHER_BLOCK, np.int64)
    is_more = np.zeros(_GATHER_BLOCK, np.bool_)
    end = np.int64(0)
    for block in range(0, len(terms), _GATHER_BLOCK):
        rows = min(_GATHER_BLOCK, len(terms) - block)
        _guess_entries(terms, block, rows, chunks, slots, number_bits, count, entries, held_ids, starts, sizes)
        needed = np.int64(0)
        for j in range(rows):
            term = terms[block + j]
            is_more[j] = False
            if term <= 0:
                return out[:end], out_offsets, block + j
            if term & 1 == 1:
                sizes[j] = LITERAL_SIZE_MAX
            elif entries[j] < 0 or held_ids[j] != term:
                entries[j] = _search(term, chunks, slots, number_bits, count)[0]
                if entries[j] < 0:
                    is_more[j] = True
                    entries[j] = _search(term, more_chunks, more_slots, more_number_bits, more_count)[0]
                    if entries[j] < 0:
                        return out[:end], out_offsets, block + j
                starts[j], sizes[j] = _span_of(more_chunks if is_more[j] else chunks, entries[j])
            needed += sizes[j]
        if end + needed > len(out):
            grown = np.empty(2 * len(out) + needed, np.uint8)
            grown[:end] = out[:end]
            out = grown
        for j in range(rows):
            if entries[j] < 0:
                end = np.int64(write_literal(terms[block + j], out, end, names, types))
            else:
                text = _text_of(more_chunks if is_more[j] else chunks, entries[j])
                copy_bytes(text, starts[j], sizes[j], out, end)
                end += sizes[j]
            out_offsets[block + j + 1] = end
    return out[:end], out_offsets, -1
