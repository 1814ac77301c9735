"""Arrow's functions on columns of texts, applied part by part so that a query can end between parts.

The bytes that they make are counted: a column of a long text that many rows share may be larger than any memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.query.limits import current
from wukongs.store.dtypes import BoolArray, Int64Array, UInt8Array

TEXT = pa.large_string()
PART_BYTES = 1 << 20
"""The most text of one call, which nothing can stop. A single text that is longer is taken as a whole."""


def parts_of(array: pa.LargeStringArray, bytes_max: int | None = None) -> Iterator[pa.LargeStringArray]:
    """Cut an array into parts of at most bytes_max (PART_BYTES), offsets included; a longer text is a part alone, and
    so is an empty array. The clock is looked at before each."""
    bytes_max = PART_BYTES if bytes_max is None else bytes_max
    limits = current()
    limits.check()
    if array.nbytes <= bytes_max:
        yield array
        return
    for start, stop in cuts(byte_lengths(array), bytes_max):
        yield array.slice(start, stop - start)


def cuts(sizes: npt.NDArray[np.integer[Any]], bytes_max: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut rows of so many bytes, offsets not included, into (start, stop) of parts as parts_of does."""
    bytes_max = PART_BYTES if bytes_max is None else bytes_max
    ends = np.cumsum(sizes.astype(np.int64) + 8)
    start = 0
    while start < len(ends):
        current().check()
        before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, before + bytes_max, side="right")), start + 1)
        yield start, stop
        start = stop


def byte_lengths(array: pa.LargeStringArray) -> npt.NDArray[np.integer[Any]]:
    """Return how many bytes each text of an array without nulls has."""
    return to_numpy(pc.binary_length(array))


def taken(array: pa.LargeStringArray, places: Int64Array) -> pa.LargeStringArray:
    """Return the texts at these places. Their bytes are held before they are allocated. Raises BudgetExceeded."""
    sizes = byte_lengths(array)[places]
    size = int(sizes.sum()) + 8 * len(places)
    current().hold(size, "a column of texts")
    if size <= PART_BYTES:
        return array.take(pa.array(places))
    return _together([array.take(pa.array(places[start:stop])) for start, stop in cuts(sizes)], size)


def _together(parts: list[pa.Array], size: int) -> pa.Array:
    """Put arrays of so many bytes together, which are copied meanwhile."""
    limits = current()
    limits.hold(size, "a column of texts")
    limits.give_back(size)
    return pa.concat_arrays(parts)


def in_parts(
    work: Callable[[pa.LargeStringArray], pa.Array], array: pa.LargeStringArray, bytes_max: int | None = None
) -> pa.Array:
    """Apply an Arrow function to an array, part by part: see parts_of. The bytes of its outcome are held."""
    parts: list[pa.Array] = []
    size = 0
    for part in parts_of(array, bytes_max):
        parts.append(work(part))
        size += parts[-1].nbytes
        current().hold(parts[-1].nbytes, "a column of texts")
    return parts[0] if len(parts) == 1 else _together(parts, size)


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """Return an Arrow array of numbers or truths, without nulls, as one of numpy."""
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found


def text_array(data: UInt8Array, offsets: Int64Array) -> pa.LargeStringArray:
    """Make an array of texts in UTF-8 that shares these: data[offsets[i]:offsets[i + 1]]."""
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def bytes_of(array: pa.LargeStringArray) -> tuple[UInt8Array, Int64Array]:
    """Return the UTF-8 of the texts: text i is data[offsets[i]:offsets[i + 1]] (uint8[n_bytes], int64[n + 1])."""
    _, offsets, data = array.buffers()
    bounds = np.zeros(1, np.int64)
    if len(array):
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    held = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return held[bounds[0] : bounds[-1]], bounds - bounds[0]


def interleaved(
    is_first: BoolArray, first: tuple[UInt8Array, Int64Array], second: tuple[UInt8Array, Int64Array]
) -> tuple[UInt8Array, Int64Array]:
    """Put two runs of texts, each in the form of bytes_of, into one. is_first : bool[n], whether a row takes its text
    from the first run."""
    order = np.empty(len(is_first), np.int64)
    order[np.concatenate((np.flatnonzero(is_first), np.flatnonzero(~is_first)))] = np.arange(len(is_first))
    text, offsets = bytes_of(taken(pa.concat_arrays([text_array(*first), text_array(*second)]), order))
    return text.copy(), offsets  # kernels are compiled for arrays that can be written
