"""FolderLock: one process, and in it one object, works on a data folder at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from wukongs.errors import StorageError

NAME = "LOCK"


class FolderLock:
    """An flock on a file of the folder; the system gives it back when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises StorageError, naming the process that has it."""
        self._descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            whose = "this process" if holder == str(os.getpid()) else f"process {holder}"
            raise StorageError(
                f"{folder}: in use by {whose}: close it there first; two must never write to one data folder"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back; releasing twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
