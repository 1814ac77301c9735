"""Disk: every change that is made to a data folder, one method for one step.

Nothing else in the store writes, renames or removes files, so a test that stops or fails a Disk after k steps, for all
k, has seen every point at which a process or a machine can stop.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from wukongs.errors import StorageError

FOLDER_MODE = 0o700
"""The mode of a data folder that is made here; one that is there keeps its own."""
_WRITE_BYTES_MAX = 1 << 30
"""Linux writes at most 2 GiB in one call."""


class Disk:
    """The steps themselves. All of them raise OSError; see storage_errors."""

    def create(self, path: Path) -> BinaryIO:
        """Make an empty file, in place of any file of that name, and open it for writing without a buffer."""
        return path.open("wb", buffering=0)

    def write(self, file: BinaryIO, data: Any) -> None:
        """Append a buffer."""
        rest = memoryview(data).cast("B")
        while len(rest):
            rest = rest[file.write(rest[:_WRITE_BYTES_MAX]) :]

    def fsync(self, file: BinaryIO) -> None:
        """Return when all writes to a file are on the disk."""
        os.fsync(file.fileno())

    def sync(self, path: Path) -> None:
        """Return when all that was written to a file is on the disk, whoever has written it."""
        with path.open("rb") as file:
            os.fsync(file.fileno())

    def make_folder(self, folder: Path) -> None:
        """Make a folder, and those above it, which nobody else may enter; return when the names of all that were not
        there are on the disk."""
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in (*reversed(missing[1:]), folder):
            path.mkdir(FOLDER_MODE, exist_ok=True)
        for path in missing:
            self.fsync_folder(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        """Put a file in the place of another, at once."""
        os.replace(old, new)

    def fsync_folder(self, folder: Path) -> None:
        """Return when the names in a folder are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to its first `size` bytes; return when that is on the disk."""
        with path.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def cut_back(self, file: BinaryIO, size: int) -> None:
        """Cut an open file to its first `size` bytes; writing goes on there."""
        file.truncate(size)
        file.seek(size)

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is not there is no error."""
        path.unlink(missing_ok=True)


@contextmanager
def storage_errors(what: str, advice: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the work (`what`), the system's reason, and `advice`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {error.strerror or error}. {advice}") from error
