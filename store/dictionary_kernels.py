# mypy: disallow-untyped-defs=false
"""The dictionary's arrays, and the loops that read them: look up, gather. Writers: store/dictionary_write_kernels.py.

Entries are numbered in the order in which they were added. 2**CHUNK_BITS of them share a chunk, whose arrays never move
but for the text of the newest one; `chunks` is a table of their addresses, a row of the C constants each:

    ids : int64[2**CHUNK_BITS]; offsets : uint32[2**CHUNK_BITS + 1] into text : uint8[C_TEXT_SIZE];
    refs : int32[2**CHUNK_BITS], references to each entry; address 0 in a dictionary that does not count them.

slots : uint32[any size], linear probing. The mixed id says where a search begins (store/slot_kernels.py). A slot is 0,
or a tag above the entry number + 1: the number takes `number_bits`, the tag, low bits of the id, has the rest, so
that few slots with another id cost a look at `ids`.

An entry with refs 0 is dead: gone for the writer, still there for readers.
Ids are distinct. Entries are only ever appended, and a slot is written after the entry that it leads to, so that a
reader that captured an earlier count may go on while a writer adds.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import fetch_ahead, int32_array, int64_array, uint8_array, uint32_array
from wukongs.store.jit import njit, njit_inline
from wukongs.store.slot_kernels import copy_bytes, mix_id, same_bytes
from wukongs.store.unpack_kernels import LITERAL_SIZE_MAX, write_literal

CHUNK_BITS = 14
CHUNK_ENTRIES = 1 << CHUNK_BITS
IN_CHUNK = CHUNK_ENTRIES - 1

C_IDS = 0
C_OFFSETS = 1
C_TEXT = 2
C_TEXT_SIZE = 3
C_REFS = 4
CHUNK_WIDTH = 5

BLOCK = 256


@njit_inline
def id_of(chunks, entry):
    return int64_array(chunks[entry >> CHUNK_BITS, C_IDS], CHUNK_ENTRIES)[entry & IN_CHUNK]


@njit_inline
def refs_of(chunks, chunk):
    """View the reference counts of a chunk; empty if they are not counted."""
    address = chunks[chunk, C_REFS]
    return int32_array(address, CHUNK_ENTRIES if address != 0 else 0)


@njit_inline
def is_dead(chunks, entry):
    return chunks[0, C_REFS] != 0 and refs_of(chunks, entry >> CHUNK_BITS)[entry & IN_CHUNK] == 0


@njit_inline
def span_of(chunks, entry):
    """Return (start, size) of an entry in its chunk's text."""
    offsets = uint32_array(chunks[entry >> CHUNK_BITS, C_OFFSETS], CHUNK_ENTRIES + 1)
    start = np.int64(offsets[entry & IN_CHUNK])
    return start, np.int64(offsets[(entry & IN_CHUNK) + 1]) - start


@njit_inline
def text_of(chunks, entry):
    chunk = entry >> CHUNK_BITS
    return uint8_array(chunks[chunk, C_TEXT], chunks[chunk, C_TEXT_SIZE])


@njit_inline
def has_text(chunks, entry, text, start, size):
    """Tell whether an entry's text is text[start:start + size]."""
    at, held = span_of(chunks, entry)
    return held == size and same_bytes(text, start, size, text_of(chunks, entry), at)


@njit_inline
def first_slot(term, slots):
    return (mix_id(term) * len(slots)) >> 32


@njit_inline
def entry_tag(term, number_bits):
    """Return the tag of an id, in its place in a slot."""
    return ((term >> 1) << number_bits) & 0xFFFFFFFF


@njit_inline
def search(term, chunks, slots, number_bits, count):
    """Return (entry of an id or -1, the slot where the search ended)."""
    numbers = (np.int64(1) << number_bits) - 1
    tag = np.int64(entry_tag(term, number_bits))
    slot = np.int64(first_slot(term, slots))
    while True:
        held = np.int64(slots[slot])
        if held == 0:
            return np.int64(-1), slot
        if held & ~numbers == tag:
            entry = (held & numbers) - 1
            if entry < count and id_of(chunks, entry) == term:
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
            entries[i] = search(terms[i], chunks, slots, number_bits, count)[0]
    return entries


@njit
def _guess_entries(wanted, rows, chunks, slots, number_bits, count, entries, held_ids, starts, sizes):
    """Set entries[j] to the entry of wanted[j] if its tag does not mislead, -1 if it certainly has none or is inlined.
    Set held_ids[j], starts[j] and sizes[j] to the id, text start and text size of that entry; for j < rows <= BLOCK.

    Three loops of one distant read each: none waits for the one before it, so the processor does many at a time. The
    texts are fetched ahead."""
    numbers = (np.int64(1) << number_bits) - 1
    for j in range(rows):
        term = wanted[j]
        entries[j] = slots[first_slot(term, slots)] if term > 0 and term & 1 == 0 else 0
    for j in range(rows):
        held = entries[j]
        if held != 0:
            tag = np.int64(entry_tag(wanted[j], number_bits))
            slot = np.int64(first_slot(wanted[j], slots))
            # A writer may have added entries behind those of this reader.
            while held != 0 and (held & ~numbers != tag or held & numbers > count):
                slot += 1
                if slot == len(slots):
                    slot = np.int64(0)
                held = np.int64(slots[slot])
        entries[j] = (held & numbers) - 1
    for j in range(rows):
        if entries[j] >= 0:
            held_ids[j] = id_of(chunks, entries[j])
            starts[j], sizes[j] = span_of(chunks, entries[j])
            fetch_ahead(np.int64(chunks[entries[j] >> CHUNK_BITS, C_TEXT]) + starts[j])


@njit
def find_block(ids, rows, first, wanted, chunks, slots, number_bits, count, entries, held_ids, starts, sizes):
    """Set entries[j] to the entry of ids[rows[first + j]], -1 if it has none, for the block of rows from `first` on.

    wanted, held_ids, starts, sizes : scratch, int64[BLOCK]. Returns how many rows the block has."""
    found = min(BLOCK, len(rows) - first)
    for j in range(found):
        wanted[j] = ids[rows[first + j]]
    _guess_entries(wanted, found, chunks, slots, number_bits, count, entries, held_ids, starts, sizes)
    for j in range(found):
        if entries[j] >= 0 and held_ids[j] != wanted[j]:
            entries[j] = search(wanted[j], chunks, slots, number_bits, count)[0]
    return found


@njit
def flag_live(entries, chunks):
    """Tell of each entry whether it is there (not -1) and not dead. Returns bool[n]."""
    live = np.zeros(len(entries), np.bool_)
    for i in range(len(entries)):
        live[i] = entries[i] >= 0 and not is_dead(chunks, entries[i])
    return live


@njit
def gather_texts(terms, names, types, first, second, third):
    """Write the canonical forms of many ids one after the other; inlined ones are unpacked, others looked up in three
    dictionaries, each given as (chunks, slots, number_bits, count), one after the other.

    terms : int64[n], repeats allowed. Returns (text uint8[n_bytes], offsets int64[n + 1], place of the first id that is
    unknown or -1)."""
    out_offsets = np.zeros(len(terms) + 1, np.int64)
    out = np.empty(48 * len(terms) + LITERAL_SIZE_MAX, np.uint8)
    entries = np.empty(BLOCK, np.int64)
    held_ids = np.empty(BLOCK, np.int64)
    starts = np.empty(BLOCK, np.int64)
    sizes = np.empty(BLOCK, np.int64)
    where = np.zeros(BLOCK, np.int8)
    chunks, slots, number_bits, count = first
    end = np.int64(0)
    for block in range(0, len(terms), BLOCK):
        rows = min(BLOCK, len(terms) - block)
        _guess_entries(
            terms[block : block + rows], rows, chunks, slots, number_bits, count, entries, held_ids, starts, sizes
        )
        needed = np.int64(0)
        for j in range(rows):
            term = terms[block + j]
            where[j] = 0
            if term <= 0:
                return out[:end], out_offsets, block + j
            if term & 1 == 1:
                sizes[j] = LITERAL_SIZE_MAX
            elif entries[j] < 0 or held_ids[j] != term:
                entries[j], where[j], starts[j], sizes[j] = _search_all(term, first, second, third)
                if entries[j] < 0:
                    return out[:end], out_offsets, block + j
            needed += sizes[j]
        if end + needed > len(out):
            grown = np.empty(2 * len(out) + needed, np.uint8)
            grown[:end] = out[:end]
            out = grown
        for j in range(rows):
            if entries[j] < 0:
                end = np.int64(write_literal(terms[block + j], out, end, names, types))
            else:
                if where[j] == 0:
                    copy_bytes(text_of(chunks, entries[j]), starts[j], sizes[j], out, end)
                elif where[j] == 1:
                    copy_bytes(text_of(second[0], entries[j]), starts[j], sizes[j], out, end)
                else:
                    copy_bytes(text_of(third[0], entries[j]), starts[j], sizes[j], out, end)
                end += sizes[j]
            out_offsets[block + j + 1] = end
    return out[:end], out_offsets, -1


@njit
def _search_all(term, first, second, third):
    """Return (entry of an id or -1, number of the dictionary that has it, start and size of its text)."""
    number = 0
    for chunks, slots, number_bits, count in (first, second, third):
        entry, _ = search(term, chunks, slots, number_bits, count)
        if entry >= 0:
            start, size = span_of(chunks, entry)
            return entry, number, start, size
        number += 1
    return np.int64(-1), number, np.int64(0), np.int64(0)
