# mypy: disallow-untyped-defs=false
"""Checksums of the pages of a file."""

from __future__ import annotations

import numpy as np

from wukongs.store.hash_kernels import xxh64
from wukongs.store.jit import njit_uncounted


@njit_uncounted
def hash_pages(data, page_bytes, first, sums):
    """Compute the XXH64 (seed: the page's number) of consecutive pages.

    data : uint8[n_bytes], a file; page_bytes : int, the last page may be shorter; first : int, a page number;
    sums : uint64[n_pages], receives the checksums of pages first, first + 1, ...

    The number is in the seed so that two pages which changed places are seen. Cost: one pass over the pages."""
    for i in range(len(sums)):
        start = (first + i) * page_bytes
        sums[i] = xxh64(data, start, min(start + page_bytes, len(data)), np.uint64(first + i))
