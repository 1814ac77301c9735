# mypy: disallow-untyped-defs=false
"""Canonical forms -> term ids."""

from __future__ import annotations

from wukongs.store.hash_kernels import hash_id
from wukongs.store.inline_kernels import pack_literal, pack_string
from wukongs.store.jit import njit_inline, njit_uncounted


@njit_inline
def canonical_id(data, start, stop, names, types, seed, mask):
    """Return the id of the term data[start:stop]: inlined where a literal can be, the hash of its canonical form else.

    data : uint8[...]; names, types : DATATYPE_NAMES and DATATYPES; seed, mask : as for hash_id."""
    if stop - start >= 2 and data[start] == 34:
        term = -1
        if data[stop - 1] == 34:
            term = pack_string(data, start + 1, stop - 1)
        elif data[stop - 1] == 62:
            quote = stop - 2
            while data[quote] != 34:
                quote -= 1
            term = pack_literal(data, start + 1, quote, quote + 4, stop - 1, names, types)
        if term >= 0:
            return term
    return hash_id(data, start, stop, seed, mask)


@njit_uncounted
def canonical_ids(data, offsets, names, types, seed, mask, ids):
    """Write the ids of terms; term i is data[offsets[i]:offsets[i + 1]].

    data, names, types, seed, mask : as for canonical_id; offsets : int64[n + 1]; ids : int64[n], filled.
    Cost: the bytes of the terms."""
    for i in range(len(ids)):
        ids[i] = canonical_id(data, offsets[i], offsets[i + 1], names, types, seed, mask)
