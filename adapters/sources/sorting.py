"""Sorts the records of a file by time, into a copy that is read in its place (`sort = true`).

The times of all records are in memory, as for any file (source.py); their texts are not. A file is read once from its
beginning to its end, and each record is appended to the part of the copy in which it belongs. Then each part, which
fits into memory, is put in order. So the disk is read and written in long pieces, twice.

* Records of one time keep their order. A record without a time stays behind the one before it.
* `RowOrder` keeps the place that each record had, for reports and for `_row`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wukongs.adapters.source import NO_TIME
from wukongs.adapters.sources.line_starts import row_starts
from wukongs.errors import DataError
from wukongs.store.dtypes import Int64Array, UInt8Array

PART_BYTES = 64 << 20
PARTS_MAX = 256
READ_ROWS = 1 << 17
PROGRESS_S = 5.0
Say = Callable[[str], None]


def say_nothing(text: str) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class RowOrder:
    """The places that the rows of a sorted copy had in their file.

    path : of an array int64[n_rows, 4] on disk: row of the file (from 0), byte, line (from 1), byte in the copy."""

    path: str

    @cached_property
    def _places(self) -> Int64Array:
        found: Int64Array = np.load(self.path, mmap_mode="r")
        return found

    def rows(self, first: int, end: int) -> Int64Array:
        """Return the numbers that rows [first, end) have in the file: int64[end - first]."""
        return np.array(self._places[first:end, 0])

    def starts(self, first: int, end: int) -> Int64Array:
        """Return where rows [first, end) begin in the copy: int64[end - first], bytes."""
        return np.array(self._places[first:end, 3])

    def place(self, row: int) -> tuple[int, int]:
        """Return the byte and the line (from 1) of a row in the file."""
        return int(self._places[row, 1]), int(self._places[row, 2])


def order_of(times: Int64Array) -> Int64Array | None:
    """Return the rows in the order of their times, int64[n_rows]; None if they are in it. times : NO_TIME for none."""
    known = np.where(times > NO_TIME, np.arange(len(times)), 0)
    keys = times[np.maximum.accumulate(known)] if len(times) else times
    if np.all(keys[1:] >= keys[:-1]):
        return None
    return np.argsort(keys, kind="stable")


def sort_text(
    data: UInt8Array,
    starts: Int64Array,
    order: Int64Array,
    end_of_row: bytes,
    path: str,
    folder: Path,
    say: Say,
) -> tuple[str, Int64Array, RowOrder]:
    """Write the rows of a text in another order; return the copy, where its rows begin, and the places of before.

    Parameters
    ----------
    data : uint8[n_bytes]           The file.
    starts : int64[n_rows + 1]      Where each row begins, and the end.
    order : int64[n_rows]           The rows, in the order that they are to have.
    end_of_row : bytes              What the last row of the file gets behind it, if it does not end so.
    path : str                      The file, in messages.

    Raises: DataError (the folder has no room).
    """
    sizes = np.diff(starts)
    last = len(sizes) - 1
    tail = b"" if bytes(data[starts[last] : starts[last + 1]]).endswith(end_of_row) else end_of_row
    sizes[last] += len(tail)
    copied = np.concatenate(([0], np.cumsum(sizes[order])))
    progress = _Progress(path, 2 * int(copied[-1]), say)
    part_bytes = max(PART_BYTES, -(-int(copied[-1]) // PARTS_MAX))
    firsts = _parts(copied, part_bytes)
    part_of = np.empty(len(order), np.int64)
    part_of[order] = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    copy = folder / f"{len(list(folder.iterdir()))}-sorted-{Path(path).name.removesuffix('.gz')}"
    try:
        with ExitStack() as stack:
            parts = [stack.enter_context(open(f"{copy}.{part}", "w+b")) for part in range(len(firsts) - 1)]
            for row in range(0, len(order), READ_ROWS):
                end = min(row + READ_ROWS, len(order))
                chunk, bounds = (
                    data[starts[row] : starts[end]].tobytes(),
                    (starts[row : end + 1] - starts[row]).tolist(),
                )
                numbers = part_of[row:end]
                for part in np.unique(numbers).tolist():
                    texts = [chunk[bounds[one] : bounds[one + 1]] for one in np.flatnonzero(numbers == part).tolist()]
                    parts[part].write(b"".join(texts))
                    if part == part_of[last] and end == last + 1:
                        parts[part].write(tail)
                progress.add(len(chunk))
            with copy.open("wb") as file:
                for part, (first, end) in enumerate(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)):
                    parts[part].seek(0)
                    chunk, wanted = parts[part].read(), order[first:end]
                    rows = np.sort(wanted)
                    begins = np.concatenate(([0], np.cumsum(sizes[rows]))).tolist()
                    places = np.searchsorted(rows, wanted).tolist()
                    file.write(b"".join([chunk[begins[one] : begins[one + 1]] for one in places]))
                    parts[part].truncate(0)
                    progress.add(len(chunk))
            _remove([f"{copy}.{part}" for part in range(len(parts))])
        lines = np.searchsorted(row_starts(data), starts[:-1], side="right")  # the line of each row, from 1
        np.save(f"{copy}.npy", np.stack((order, starts[:-1][order], lines[order], copied[:-1]), axis=1))
    except OSError as error:
        raise _no_room(error, path, folder) from None
    return str(copy), copied, RowOrder(f"{copy}.npy")


def sort_parquet(plain: str, order: Int64Array, path: str, folder: Path, say: Say) -> tuple[str, RowOrder]:
    """Write the rows of a Parquet file in another order; return the copy, and the places of before.

    order : int64[n_rows], the rows in the order that they are to have; path : the file, in messages.

    Raises: DataError (the folder has no room, or the file cannot be read)."""
    source = pq.ParquetFile(plain)
    groups = [source.metadata.row_group(number) for number in range(source.metadata.num_row_groups)]
    size_bytes = sum(group.total_byte_size for group in groups)
    progress = _Progress(path, 2 * len(order), say)
    part_count = max(1, min(PARTS_MAX, -(-size_bytes // PART_BYTES)))
    firsts = np.linspace(0, len(order), part_count + 1).astype(np.int64)
    part_of = np.empty(len(order), np.int64)
    part_of[order] = np.repeat(np.arange(part_count), np.diff(firsts))
    copy = folder / f"{len(list(folder.iterdir()))}-sorted-{Path(path).name}"
    names = [f"{copy}.{part}" for part in range(part_count)]
    try:
        with ExitStack() as stack:
            parts = [stack.enter_context(pa.ipc.new_file(name, source.schema_arrow)) for name in names]
            row = 0
            for number, group in enumerate(groups):
                table = source.read_row_group(number)
                numbers = part_of[row : row + group.num_rows]
                for part in np.unique(numbers).tolist():
                    parts[part].write_table(table.take(np.flatnonzero(numbers == part)))
                row += group.num_rows
                progress.add(group.num_rows)
        with pq.ParquetWriter(copy, source.schema_arrow) as file:
            for name, first, end in zip(names, firsts[:-1].tolist(), firsts[1:].tolist(), strict=True):
                wanted = order[first:end]
                with pa.OSFile(name) as part_file:
                    table = pa.ipc.open_file(part_file).read_all()
                file.write_table(table.take(np.searchsorted(np.sort(wanted), wanted)))
                progress.add(end - first)
        _remove(names)
        places = np.stack((order, np.zeros_like(order), order + 1, np.zeros_like(order)), axis=1)
        np.save(f"{copy}.npy", places)
    except pa.ArrowException as error:
        raise DataError(f"cannot be read as Parquet ({error})", path) from None
    except OSError as error:
        raise _no_room(error, path, folder) from None
    return str(copy), RowOrder(f"{copy}.npy")


def _parts(copied: Int64Array, part_bytes: int) -> Int64Array:
    """Return the first row of each part of the copy, and the end. copied : int64[n_rows + 1], bytes before each row."""
    wanted = np.arange(part_bytes, int(copied[-1]), part_bytes)
    cuts = np.searchsorted(copied, wanted)
    return np.unique(np.concatenate(([0], cuts, [len(copied) - 1])))


def _remove(names: list[str]) -> None:
    for name in names:
        Path(name).unlink()


def _no_room(error: OSError, path: str, folder: Path) -> DataError:
    return DataError(
        f"cannot be sorted in {folder} ({error.strerror or error}): twice the size of the file is needed there. TMPDIR "
        "names another place",
        path,
    )


class _Progress:
    """Shows how much of a file is sorted, when that takes long. total: what there is to be added."""

    def __init__(self, path: str, total: int, say: Say) -> None:
        self._path, self._total, self._say = path, max(1, total), say
        self._done, self._shown_s = 0, time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now_s = time.monotonic()
        if now_s - self._shown_s >= PROGRESS_S:
            self._shown_s = now_s
            self._say(f"{self._path}: sorting by time, {min(100, 100 * self._done // self._total)} %")
