"""Disks that stop or fail at a chosen step, and what a power cut leaves of what was not seen to the disk."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any, BinaryIO

from wukongs.store.disk import Disk


class Crash(BaseException):
    """The process is gone: nobody handles this."""


class CountingDisk(Disk):
    """steps: the names of the steps done so far. It does not wait for the real disk: no test pulls the plug."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)

    def create(self, path: Path) -> BinaryIO:
        self.step("create")
        return super().create(path)

    def write(self, file: BinaryIO, data: Any) -> None:
        self.step("write")
        super().write(file, data)

    def fsync(self, file: BinaryIO) -> None:
        self.step("fsync")

    def rename(self, old: Path, new: Path) -> None:
        self.step("rename")
        super().rename(old, new)

    def fsync_folder(self, folder: Path) -> None:
        self.step("fsync_folder")

    def unlink(self, path: Path) -> None:
        self.step("unlink")
        super().unlink(path)


class FullDisk(CountingDisk):
    """From step `at` on, `fails` times, a step raises what a full disk raises; removing goes on to work."""

    def __init__(self, at: int, fails: int = 1 << 30) -> None:
        super().__init__()
        self.at = at
        self.fails = fails

    def step(self, name: str) -> None:
        super().step(name)
        if len(self.steps) > self.at and name != "unlink" and self.fails:
            self.fails -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class CrashingDisk(CountingDisk):
    """Stops before step `at`. Bytes count from fsync on, names from fsync_folder on; lose_power takes the rest away."""

    def __init__(self, at: int, rng: random.Random) -> None:
        super().__init__()
        self.at = at
        self.rng = rng
        self._bytes_pending: dict[Path, int] = {}
        """path -> how many of its bytes are safe."""
        self._names_pending: dict[Path, bytes | None] = {}
        """path -> what it held when the folder was last seen to the disk, None: it was not there."""

    def step(self, name: str) -> None:
        if len(self.steps) >= self.at:
            raise Crash(name)
        super().step(name)

    def _note(self, path: Path) -> None:
        self._names_pending.setdefault(path, path.read_bytes() if path.exists() else None)

    def create(self, path: Path) -> BinaryIO:
        self._note(path)
        self._bytes_pending[path] = 0
        return super().create(path)

    def write(self, file: BinaryIO, data: Any) -> None:
        path = Path(str(file.name))
        self._bytes_pending.setdefault(path, path.stat().st_size)
        try:
            super().write(file, data)
        except Crash:
            whole = memoryview(data).cast("B")
            file.write(whole[: self.rng.randint(0, len(whole))])
            raise

    def fsync(self, file: BinaryIO) -> None:
        super().fsync(file)
        self._bytes_pending.pop(Path(str(file.name)), None)

    def rename(self, old: Path, new: Path) -> None:
        self._note(new)
        self._note(old)
        super().rename(old, new)
        assert old not in self._bytes_pending, "renamed before it was on the disk"

    def fsync_folder(self, folder: Path) -> None:
        super().fsync_folder(folder)
        self._names_pending.clear()

    def unlink(self, path: Path) -> None:
        self._note(path)
        super().unlink(path)

    def lose_power(self) -> None:
        """Undo some of what was not seen to the disk: any of the names, any part of the bytes."""
        for path, safe in self._bytes_pending.items():
            if path.exists() and path.stat().st_size > safe:
                os.truncate(path, self.rng.randint(safe, path.stat().st_size))
        for path, before in self._names_pending.items():
            if self.rng.random() < 0.5:
                path.unlink(missing_ok=True)
                if before is not None:
                    path.write_bytes(before)
