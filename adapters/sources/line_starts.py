"""Files as arrays of bytes, and where their lines begin."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wukongs.adapters.sources import rows_kernels as kernels
from wukongs.errors import DataError
from wukongs.store.dtypes import Int64Array, UInt8Array


def map_file(plain: str, path: str) -> UInt8Array:
    """View a file as uint8[n]. Raises: DataError (it cannot be read)."""
    try:
        size = Path(plain).stat().st_size
        return readonly(np.memmap(plain, np.uint8, "r") if size else np.empty(0, np.uint8))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None


def row_starts(data: bytes | UInt8Array | memoryview, first: int = 0) -> Int64Array:
    """Return the byte at which each line of data[first:] begins, and the end."""
    array = readonly(np.frombuffer(data, np.uint8))
    starts = np.empty(int(kernels.count_rows(array, first)) + 1, np.int64)
    kernels.scan_starts(array, first, starts)
    return starts


def line_at(plain: str, byte: int) -> int:
    """Return the line (from 1) that begins at a byte of a file."""
    head = np.memmap(plain, np.uint8, "r")[:byte] if byte else np.empty(0, np.uint8)
    return int(kernels.count_rows(readonly(head), 0)) + 1


def readonly(array: UInt8Array) -> UInt8Array:
    """Return the array as the kernels are compiled for: a plain one that is not writeable."""
    plain = np.asarray(array).view(np.ndarray)
    plain.flags.writeable = False
    return plain


def line_within(plain: str, byte: int) -> int:
    """Return the line (from 1) in which a byte of a file stands."""
    head = np.memmap(plain, np.uint8, "r")[:byte] if byte else np.empty(0, np.uint8)
    return int(np.count_nonzero(head == ord("\n"))) + 1
