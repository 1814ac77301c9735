# mypy: disallow-untyped-defs=false
"""Canonical forms -> term ids."""

from __future__ import annotations

from store.hash_kernels import hash_id
from store.inline_kernels import pack_literal, pack_string
from store.jit import njit_uncounted


@njit_uncounted
def canonical_ids(data, offsets, names, types, seed, mask, ids):
    """Write the ids of terms: inlined where a literal can be, the hash of the canonical form elsewhere.

    data : uint8[...], term i is data[offsets[i]:offsets[i + 1]]; names, types : DATATYPE_NAMES and DATATYPES; seed,
    mask : as for hash_id; ids : int64[n], filled. Cost: the bytes of the terms."""
    for i in range(len(ids)):
        start = offsets[i]
        stop = offsets[i + 1]
        term = -1
        if stop - start >= 2 and data[start] == 34:
            if data[stop - 1] == 34:
                term = pack_string(data, start + 1, stop - 1)
            elif data[stop - 1] == 62:
                quote = stop - 2
                while data[quote] != 34:
                    quote -= 1
                term = pack_literal(data, start + 1, quote, quote + 4, stop - 1, names, types)
        ids[i] = term if term >= 0 else hash_id(data, start, stop, seed, mask)
