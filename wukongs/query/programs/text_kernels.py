# mypy: disallow-untyped-defs=false
"""Kernels that read and compare the texts of terms: where the dictionaries have them, or a memo of computed terms."""

from __future__ import annotations

import numpy as np

from wukongs.query.programs.memo_kernels import look_up
from wukongs.query.programs.program_layout import (
    CLASS_BLANK,
    CLASS_IRI,
    CLASS_OTHER,
    CLASS_STRING,
    CLASS_UNBOUND,
    DICTIONARIES,
    DICTIONARY_CHUNK_COUNT,
    DICTIONARY_CHUNKS,
    DICTIONARY_ENTRIES,
    DICTIONARY_NUMBER_BITS,
    DICTIONARY_SLOT_COUNT,
    DICTIONARY_SLOTS,
    DICTIONARY_WIDTH,
    PROGRAM_DICTIONARIES,
    PROGRAM_EPOCH,
    PROGRAM_HEAD,
    TEXT_ADDRESS,
    TEXT_CLASS,
    TEXT_INLINED,
    TEXT_SIZE,
    TEXT_TAIL,
    TEXT_WIDTH,
    UNKNOWN,
)
from wukongs.store.addresses import int64_array, int64_table, uint8_array, uint32_array
from wukongs.store.dictionary_kernels import C_TEXT, CHUNK_BITS, CHUNK_WIDTH, search, span_of
from wukongs.store.dtypes import INLINE_MARK, UNBOUND
from wukongs.store.inline_kernels import TYPE_STRING
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.payload_kernels import STRING_SIZE_MAX
from wukongs.store.unpack_kernels import split_id
from wukongs.store.value_kernels import OP_AT_LEAST, OP_AT_MOST, OP_EQUAL, OP_GREATER, OP_LESS, OP_NOT_EQUAL

_QUOTE, _LESS, _UNDERSCORE, _AT, _HYPHEN = 34, 60, 95, 64, 45


@njit_uncounted
def find_text(head, term):
    """Return the address and size of a term's canonical form in one of the dictionaries; (0, 0) if none has it."""
    dictionaries = int64_table(head[PROGRAM_DICTIONARIES], DICTIONARIES, DICTIONARY_WIDTH)
    for d in range(DICTIONARIES):
        if dictionaries[d, DICTIONARY_ENTRIES] == 0:
            continue
        chunks = int64_table(dictionaries[d, DICTIONARY_CHUNKS], dictionaries[d, DICTIONARY_CHUNK_COUNT], CHUNK_WIDTH)
        slots = uint32_array(dictionaries[d, DICTIONARY_SLOTS], dictionaries[d, DICTIONARY_SLOT_COUNT])
        bits, count = dictionaries[d, DICTIONARY_NUMBER_BITS], dictionaries[d, DICTIONARY_ENTRIES]
        entry, _ = search(term, chunks, slots, bits, count)
        if entry >= 0:
            start, size = span_of(chunks, entry)
            return chunks[entry >> CHUNK_BITS, C_TEXT] + start, size
    return np.int64(0), np.int64(0)


@njit_uncounted
def write_class(entry, address, size):
    """Write the entry of a canonical form: its class, the part that is compared first, and the size of the rest."""
    entry[TEXT_CLASS] = CLASS_OTHER
    entry[TEXT_ADDRESS] = address
    entry[TEXT_SIZE] = size
    entry[TEXT_TAIL] = 0
    text = uint8_array(address, size)
    if text[0] == _LESS:
        if text[1] != _LESS:  # else a triple term
            entry[TEXT_CLASS] = CLASS_IRI
            entry[TEXT_ADDRESS] = address + 1
            entry[TEXT_SIZE] = size - 2
    elif text[0] == _UNDERSCORE:
        entry[TEXT_CLASS] = CLASS_BLANK
    elif text[0] == _QUOTE:
        end = size - 1
        while text[end] != _QUOTE:
            if text[end] == _HYPHEN and text[end - 1] == _HYPHEN:  # a base direction
                return
            end -= 1
        if end == size - 1 or text[end + 1] == _AT:
            entry[TEXT_CLASS] = CLASS_STRING
            entry[TEXT_ADDRESS] = address + 1
            entry[TEXT_SIZE] = end - 1
            entry[TEXT_TAIL] = size - end


@njit_uncounted
def read_text(head, row, columns, memo, place):
    """Write the entry of a term.

    Parameters
    ----------
    row, columns : int64[...]        The term is row[columns[0]].
    memo : int                       The address of the memo of computed texts; 0: there is none.
    place : int                      The address of the entry.

    Returns False if the memo lacks the term."""
    term, entry = row[columns[0]], int64_array(place, TEXT_WIDTH)
    if term == UNBOUND:
        entry[TEXT_CLASS] = CLASS_UNBOUND
        entry[TEXT_SIZE] = 0
        entry[TEXT_TAIL] = 0
        return True
    if term > 0 and term & INLINE_MARK == INLINE_MARK:
        code, body = split_id(term)
        entry[TEXT_CLASS] = CLASS_OTHER
        if code == TYPE_STRING:
            address, size = place + 8 * TEXT_INLINED, body >> (7 * STRING_SIZE_MAX)
            text = uint8_array(address, size + 1)
            for i in range(size):
                text[i] = (body >> (7 * i)) & 127
            text[size] = _QUOTE
            entry[TEXT_CLASS] = CLASS_STRING
            entry[TEXT_ADDRESS] = address
            entry[TEXT_SIZE] = size
            entry[TEXT_TAIL] = 1
        return True
    address, size = np.int64(0), np.int64(0)
    if term > 0:
        address, size = find_text(head, term)
    if address == 0:
        block = look_up(memo, row, columns, head[PROGRAM_EPOCH]) if memo != 0 else np.int64(UNKNOWN)
        if block == UNKNOWN:
            return False
        address, size = block + 8, int64_array(block, 1)[0]
    write_class(entry, address, size)
    return True


@njit_uncounted
def compare_bytes(first, size, second, other_size):
    """Compare the bytes at two addresses: below 0, 0 or above 0."""
    one, other = uint8_array(first, size), uint8_array(second, other_size)
    for i in range(min(size, other_size)):
        if one[i] != other[i]:
            return np.int64(one[i]) - np.int64(other[i])
    return size - other_size


@njit_uncounted
def compare_texts(one, other):
    """Compare two entries in the order of ORDER BY: below 0, 0 or above 0."""
    if one[TEXT_CLASS] != other[TEXT_CLASS]:
        return one[TEXT_CLASS] - other[TEXT_CLASS]
    if one[TEXT_CLASS] == CLASS_UNBOUND:
        return np.int64(0)
    found = compare_bytes(one[TEXT_ADDRESS], one[TEXT_SIZE], other[TEXT_ADDRESS], other[TEXT_SIZE])
    if found != 0:
        return found
    first, second = one[TEXT_ADDRESS] + one[TEXT_SIZE], other[TEXT_ADDRESS] + other[TEXT_SIZE]
    return compare_bytes(first, one[TEXT_TAIL], second, other[TEXT_TAIL])


@njit_uncounted
def text_verdict(op, one, other):
    """Compare two entries by an operator: 1 if it holds, 0 if not, -1 if their texts do not determine it. op: an OP
    constant (value_kernels.py)."""
    if one[TEXT_TAIL] > 1 or other[TEXT_TAIL] > 1 or one[TEXT_CLASS] <= 0 or other[TEXT_CLASS] <= 0:
        return -1
    are_strings = one[TEXT_CLASS] == CLASS_STRING and other[TEXT_CLASS] == CLASS_STRING
    if not are_strings and op not in (OP_EQUAL, OP_NOT_EQUAL):
        return -1
    order = compare_texts(one, other)
    if op == OP_EQUAL:
        return 1 if order == 0 else 0
    if op == OP_NOT_EQUAL:
        return 1 if order != 0 else 0
    if op == OP_LESS:
        return 1 if order < 0 else 0
    if op == OP_GREATER:
        return 1 if order > 0 else 0
    if op == OP_AT_MOST:
        return 1 if order <= 0 else 0
    assert op == OP_AT_LEAST
    return 1 if order >= 0 else 0


@njit
def texts_size(program, terms):
    """Return the bytes of the texts that the dictionaries of a program have of some terms, repeats included.

    program : int, its address; terms : int64[n]."""
    head, total = int64_array(program, PROGRAM_HEAD), np.int64(0)
    for i in range(terms.shape[0]):
        if terms[i] > 0 and terms[i] & INLINE_MARK == 0:
            total += find_text(head, terms[i])[1]
    return total
