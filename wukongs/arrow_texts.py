"""Arrow's functions on columns of texts, applied part by part so that a query can end between parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store.dtypes import Int64Array, UInt8Array
from wukongs.limits import current

TEXT = pa.large_string()
PART_BYTES = 1 << 20
"""So much text is worked on in one call, which nothing can stop; a single text that is longer is taken as a whole."""


def parts_of(array: pa.LargeStringArray, bytes_max: int | None = None) -> Iterator[pa.LargeStringArray]:
    """Cut an array into parts of at most bytes_max (PART_BYTES), offsets included; a longer text is a part alone, and
    so is an empty array. The clock is looked at before each."""
    bytes_max = PART_BYTES if bytes_max is None else bytes_max
    limits = current()
    limits.check()
    if array.nbytes <= bytes_max:
        yield array
        return
    ends = np.cumsum(pc.binary_length(array).to_numpy() + 8)
    start = 0
    while start < len(array):
        limits.check()
        before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, before + bytes_max, side="right")), start + 1)
        yield array.slice(start, stop - start)
        start = stop


def in_parts(
    work: Callable[[pa.LargeStringArray], pa.Array], array: pa.LargeStringArray, bytes_max: int | None = None
) -> pa.Array:
    """Apply an Arrow function to an array, part by part: see parts_of."""
    parts = [work(part) for part in parts_of(array, bytes_max)]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """Return an Arrow array of numbers or truths, without nulls, as one of numpy."""
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found


def bytes_of(array: pa.LargeStringArray) -> tuple[UInt8Array, Int64Array]:
    """Return the UTF-8 of the texts: text i is data[offsets[i]:offsets[i + 1]] (uint8[n_bytes], int64[n + 1])."""
    _, offsets, data = array.buffers()
    bounds = np.zeros(1, np.int64)
    if len(array):
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    held = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return held[bounds[0] : bounds[-1]], bounds - bounds[0]
