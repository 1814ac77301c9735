"""ScratchFolder: a temporary folder that a killed process leaves behind only until the next one is made.

A process holds a lock on each of its folders. The system lets go of the lock when the process ends, however it ends.
Making a folder removes those that nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_PREFIX = "wukongs-scratch-"


class ScratchFolder:
    """A new folder of this process, until it is closed. kind: a word in its name."""

    def __init__(self, kind: str) -> None:
        for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_if_left(old)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
            with suppress(FileNotFoundError):  # who has found it before it was locked has removed it
                self._lock = os.open(self.path, os.O_RDONLY)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if self.path.exists():
                    return
                os.close(self._lock)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):  # gone meanwhile, held by its process, or another user's
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
