"""ColumnFile: named arrays in one Arrow IPC file, memory-mapped when it is read.

* The file has one row; column i is a fixed-size list that holds all of array i, so arrays differ in type and length and
  each is one piece of the file, at a multiple of 64 bytes. Nameless columns fill the gaps; any reader of Arrow can open
  the file.
* A file is never changed. Its size and the checksum of every page of PAGE_BYTES are kept beside it, in the manifest.
* The size is compared before the file is mapped, since touching a page behind the end of a file kills the process. The
  pages that say where the arrays are, are verified before they are parsed; all others by verify(), which readers of the
  arrays call first (see Batch.source). A page is verified once: if the disk gives it again later, it is trusted.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wukongs.errors import CorruptionError
from wukongs.store.disk import Disk
from wukongs.store.dtypes import UInt8Array
from wukongs.store.page_kernels import hash_pages

PAGE_BYTES = 1 << 20
ALIGNMENT = 64
_CHUNK_PAGES = 64
"""Pages that one thread verifies at a time."""

Columns = Mapping[str, npt.NDArray[Any]]
PageSums = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:
    """The size and checksums that a file must have. size: in bytes; sums : uint64[n_pages], one per page."""

    size: int
    sums: PageSums


def write_columns(disk: Disk, path: Path, columns: Columns) -> Fingerprint:
    """Write one-dimensional arrays to a new file, and see it to the disk. Raises OSError."""
    with disk.create(path) as file:
        batch = _record_batch(columns)
        sink = pa.PythonFile(_Sink(disk, file), "w")
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        disk.fsync(file)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = np.frombuffer(_map(file, size), np.uint8)
    return Fingerprint(size, _sums(data, 0, -(-size // PAGE_BYTES)))


class ColumnFile:
    """One file, open for reading. columns : name -> array, valid as long as somebody holds it."""

    def __init__(self, path: Path, expected: Fingerprint) -> None:
        """Map a file. Raises CorruptionError (missing, of another size, or altered where it lists its arrays)."""
        self.path = path
        self._expected = expected
        self._lock = threading.Lock()
        self._is_verified = False
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != expected.size:
                    raise self._corrupt(f"it has {size} bytes where {expected.size} were written")
                self._map = _map(file, size)
        except FileNotFoundError:
            raise self._corrupt("it is missing") from None
        self._data: UInt8Array = np.frombuffer(self._map, np.uint8)
        self.columns: dict[str, npt.NDArray[Any]] = {}
        # The columns are described at the beginning and at the end, each time in much less than a page.
        page_count = len(expected.sums)
        self._verify_pages(0, min(2, page_count))
        self._verify_pages(max(page_count - 2, 0), page_count)
        self.columns = self._find_columns()

    def verify(self) -> None:
        """Compare every page with its checksum, once. Raises CorruptionError, naming page and column."""
        with self._lock:
            if self._is_verified:
                return
            starts = range(0, len(self._expected.sums), _CHUNK_PAGES)
            stops = [min(start + _CHUNK_PAGES, len(self._expected.sums)) for start in starts]
            if len(stops) == 1:
                self._verify_pages(0, stops[0])
            else:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    list(pool.map(self._verify_pages, starts, stops))
            self._is_verified = True

    def _verify_pages(self, start: int, stop: int) -> None:
        found = _sums(self._data, start, stop)
        wrong = np.flatnonzero(found != self._expected.sums[start:stop])
        if len(wrong):
            page = start + int(wrong[0])
            names = self._columns_at(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
            where = f" (column {', '.join(names)})" if names else ""
            raise self._corrupt(f"page {page} of {len(self._expected.sums)}{where} is not what was written", page)

    def _columns_at(self, start: int, stop: int) -> list[str]:
        base = self._data.ctypes.data
        return [
            name
            for name, array in self.columns.items()
            if array.ctypes.data < base + stop and array.ctypes.data + array.nbytes > base + start
        ]

    def _find_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the file, without a copy. numpy may write to them, but this does not change the file."""
        batch = pa.ipc.open_file(pa.py_buffer(self._data)).get_batch(0)
        found: dict[str, npt.NDArray[Any]] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name:
                dtype, count = np.dtype(column.type.value_type.to_pandas_dtype()), column.type.list_size
                offset = column.values.buffers()[1].address - self._data.ctypes.data if count else 0
                found[name] = np.frombuffer(self._map, dtype, count, offset)
        return found

    def _corrupt(self, what: str, page: int | None = None) -> CorruptionError:
        return CorruptionError(f"{what}. Restore the folder from a backup, or load the data anew", str(self.path), page)


class _Sink:
    """The file object that pyarrow writes to."""

    closed = False

    def __init__(self, disk: Disk, file: BinaryIO) -> None:
        self._disk = disk
        self._file = file

    def write(self, data: Any) -> int:
        self._disk.write(self._file, data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """The opener closes the file."""


def _record_batch(columns: Columns) -> pa.RecordBatch:
    """Put arrays of any lengths into one row, without a copy, such that each begins at a multiple of ALIGNMENT."""
    names, lists = [], []
    for name, array in columns.items():
        assert name, "only what fills a gap has no name"
        assert array.ndim == 1, (name, array.shape)
        gap = -_stored_bytes(array) % ALIGNMENT
        for part, part_name in ((array, name), (np.zeros(gap, np.uint8), "")):
            if part is array or gap:
                names.append(part_name)
                lists.append(_one_list(part))
    batch = pa.RecordBatch.from_arrays(lists, names)
    # Before the first array come the magic, the schema and the description of the batch: metadata fills them up.
    body = sum(map(_stored_bytes, (item.values for item in lists)))
    for fill in range(0, 2 * ALIGNMENT, 8):
        batch = batch.replace_schema_metadata({"fill": " " * fill})
        begin = 8 + batch.schema.serialize().size + pa.ipc.get_record_batch_size(batch) - body
        if begin % ALIGNMENT == 0:
            return batch
    raise AssertionError(f"the arrays begin at {begin} whatever the metadata")


def _stored_bytes(array: npt.NDArray[Any] | pa.Array) -> int:
    """Return the bytes that pyarrow makes of an array: it fills up to a multiple of 8."""
    return -(-int(array.nbytes) // 8) * 8


def _one_list(array: npt.NDArray[Any]) -> pa.Array:
    values = pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [None, pa.py_buffer(array)])
    return pa.Array.from_buffers(pa.list_(values.type, len(array)), 1, [None], children=[values])


def _map(file: BinaryIO, size: int) -> mmap.mmap:
    # Private and writeable: kernels are compiled for writeable arrays, and nothing reaches the file.
    return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)


def _sums(data: UInt8Array, start: int, stop: int) -> PageSums:
    """Return the checksums of pages [start, stop)."""
    sums = np.empty(max(stop - start, 0), np.uint64)
    with np.errstate(over="ignore"):
        hash_pages(data, PAGE_BYTES, start, sums)
    return sums
