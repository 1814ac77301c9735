"""FolderLock: one process, and in it one object, works on a data folder at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from wukongs.errors import StorageError
from wukongs.forks import Lock, note_owner

NAME = "LOCK"


NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The system's errors for a folder or medium that this user may only read."""


class FolderLock:
    """An flock on a file of the folder; the system gives it back when the process ends, however it ends.

    is_read_only: the folder can only be read. Then readers share the lock, and without a file there is none."""

    def __init__(self, folder: Path, may_only_read: bool = False) -> None:
        """Take the lock. may_only_read: a folder that is not writable will do.

        Raises StorageError, naming the process that has it, and OSError."""
        self.is_read_only = False
        self._descriptor = -1
        try:
            self._descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if not may_only_read or error.errno not in NOT_WRITABLE:
                raise
            self.is_read_only = True
            try:
                self._descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if self.is_read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            whose = "this process" if holder == str(os.getpid()) else f"process {holder}"
            raise StorageError(
                f"{folder}: in use by {whose}: close it there first; two must never write to one data folder"
            ) from None
        if not self.is_read_only:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        note_owner(self)

    held_over_forks: tuple[Lock, ...] = ()

    def disown(self) -> None:
        """Hold nothing in a forked child: else the folder would stay in use after the end of its parent."""
        self.release()

    def release(self) -> None:
        """Give the lock back; releasing twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
