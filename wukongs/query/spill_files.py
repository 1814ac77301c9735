"""ColumnFiles: the columns of a table for which there is no memory, each in a temporary file.

The files have no names: they are removed as they are made, so nothing of them is left behind, however the process
ends, and nobody else can open them. Written bytes are counted in the budget of the process, within spill_bytes_max.

Finished columns are mapped: arrays like all others, whose pages the system reads and drops as it likes. They do not
count as memory that is held. A file is only written by `write`, so a full disk is an error and no signal; it is removed
with the last array over it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy as np

from wukongs.errors import BudgetExceeded
from wukongs.query.limits import Limits
from wukongs.store.dtypes import Int64Array

_MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY = ("tmpfs", "ramfs")


def spill_folder() -> str:
    """Return the folder for temporary files: that of TMPDIR, else the usual one, but no folder in memory if another is
    there."""
    usual = tempfile.gettempdir()
    if "TMPDIR" in os.environ or not _is_in_memory(usual):
        return usual
    other = "/var/tmp"
    return other if os.access(other, os.W_OK) and not _is_in_memory(other) else usual


def _is_in_memory(folder: str) -> bool:
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = ("", "")
        for line in _MOUNTS.read_text().splitlines():
            before, _, after = line.partition(" - ")
            place = before.split()[4]
            inside = folder == place or folder.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(found[0]):
                found = place, after.split()[0]
        return found[1] in _IN_MEMORY
    return False


class ColumnFiles:
    """width: of the table. A context manager: files that were not mapped by its end are removed."""

    def __init__(self, width: int, limits: Limits) -> None:
        """Raises BudgetExceeded (no file can be made)."""
        self.width = width
        self.length = 0
        self._limits = limits
        assert limits.budget is not None
        self._budget = limits.budget
        self._files: list[FileIO] = []
        self._folder = spill_folder()
        try:
            for _ in range(width):
                file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115 (closed by close)
                self._files.append(file)
        except OSError as error:
            self.close()
            raise self._failed(error) from error

    def __enter__(self) -> ColumnFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the files that were not mapped."""
        if self._files:
            for file in self._files:
                file.close()
            self._budget.remove_spilled(8 * self.length * len(self._files))
            self._files = []

    def append(self, columns: Sequence[Int64Array], length: int) -> None:
        """Write more rows. Raises BudgetExceeded (spill_bytes_max, a full disk)."""
        size = 8 * length * len(self._files)
        limits = self._limits
        if not self._budget.add_spilled(size, limits.spill_bytes_max):
            raise BudgetExceeded(
                f"{limits.operator} finds no memory and would write {size} bytes to temporary files beside "
                f"{self._budget.spilled_bytes} that are written, more than spill_bytes_max = {limits.spill_bytes_max}: "
                "filter earlier, ask for less at a time, ask again when others have ended, or raise spill_bytes_max"
            )
        self.length += length
        try:
            for file, column in zip(self._files, columns, strict=True):
                left = np.ascontiguousarray(column).view(np.uint8).data
                while len(left):
                    left = left[file.write(left) :]
        except OSError as error:
            raise self._failed(error) from error

    def read(self, start: int, stop: int) -> list[Int64Array]:
        """Return the columns of the rows [start, stop), as new arrays, which are held before."""
        size = 8 * (stop - start)
        self._limits.hold(size * len(self._files))
        return [np.frombuffer(bytearray(os.pread(one.fileno(), size, 8 * start)), np.int64) for one in self._files]

    def mapped(self) -> tuple[Int64Array, ...]:
        """Return all columns; the files live as long as these. Nothing can be appended or read then."""
        columns = tuple(map(self._mapped, self._files))
        self._files = []
        return columns

    def _mapped(self, file: FileIO) -> Int64Array:
        size = 8 * self.length
        with file:
            if not size:
                return np.empty(0, np.int64)
            # Writable, though nobody writes: kernels are not compiled again for arrays that are not.
            pages = mmap.mmap(file.fileno(), size)
        weakref.finalize(pages, self._budget.remove_spilled, size)
        return np.frombuffer(pages, np.int64)

    def _failed(self, error: OSError) -> BudgetExceeded:
        return BudgetExceeded(
            f"{self._limits.operator} finds no memory, and temporary files in {self._folder} cannot be written "
            f"({error.strerror}): make room there, name another folder by TMPDIR, or ask for less at a time"
        )


def pages_of(column: Int64Array) -> mmap.mmap | None:
    """Return the mapped file that a column is part of, None if it is in memory."""
    base: object = column.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def bytes_in_memory(columns: Sequence[Int64Array]) -> int:
    """Return the bytes of columns that are not in files."""
    return sum([column.nbytes for column in columns if column.base is None or pages_of(column) is None])


def let_pages_go(columns: Sequence[Int64Array]) -> None:
    """Have the system drop what it has read of mapped columns: it is read again if need be."""
    for column in columns:
        pages = pages_of(column)
        if pages is not None:
            pages.madvise(mmap.MADV_DONTNEED)
