"""Upload: a file that a client sends in parts, as the binary file object that an engine reads; bounded both ways.

* A client is told to wait while BUFFER_BYTES are unread; a reader waits for a part at most SILENT_S.
* A malformed line is told to the client before the load can end, so that an error in the client's callback still stops
  the load: until the file has been read to its end a few may wait, after that each is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.remote.kinds import FULL, MORE, OVER, PART_BYTES, SILENT_S
from wukongs.store.encoded import MalformedLine

BUFFER_BYTES = 8 * PART_BYTES
UNTOLD_MAX = 1000


class Upload:
    """name: the file's name in errors. The threads that serve the client put parts; another thread reads them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._buffer = bytearray()
        self._next_index = 0
        self._is_whole = False
        self._is_read = False
        self._is_over = False
        self._failure: WukongsError | None = None
        self._untold: list[tuple[str, MalformedLine]] = []
        self._told = 0
        """How many malformed lines the client has."""

    def put(self, index: int, part: bytes, is_last: bool, wait_s: float) -> str:
        """Take the next part; one that was taken before changes nothing. Return more, full (nothing was taken), or over
        (the load has ended)."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not self._is_over and index == self._next_index and len(self._buffer) >= BUFFER_BYTES:
                left = deadline - time.monotonic()
                if left <= 0 or self._untold:
                    return FULL
                self._changed.wait(left)
            if self._is_over:
                return OVER
            if index > self._next_index:
                raise DataError(f"{self.name}: part {index} has come, expected part {self._next_index}")
            if index == self._next_index and not self._is_whole:
                self._buffer += part
                self._is_whole = is_last
                self._next_index += 1
                self._changed.notify_all()
            return MORE

    def wait(self, wait_s: float) -> str:
        """Wait until the load has ended, or there is a malformed line to tell."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or bool(self._untold), wait_s)
            return OVER if self._is_over and not self._untold else MORE

    def untold(self, told: int) -> tuple[int, list[tuple[str, MalformedLine]]]:
        """Note that the client has so many malformed lines; return the number of the first of those that it has not,
        and these."""
        with self._changed:
            fresh = max(0, min(told - self._told, len(self._untold)))
            del self._untold[:fresh]
            self._told += fresh
            self._changed.notify_all()
            return self._told, list(self._untold)

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes, none at the end. Raises NodeUnavailable (the client is silent, or has left)."""
        with self._changed:
            self._wait(lambda: bool(self._buffer) or self._is_whole, "the next part of the file")
            count = len(self._buffer) if size < 0 else min(size, len(self._buffer))
            part = bytes(self._buffer[:count])
            del self._buffer[:count]
            self._is_read = self._is_whole and not self._buffer
            self._changed.notify_all()
            return part

    def report(self, file: str, line: MalformedLine) -> None:
        """Have the client told of a malformed line. Raises as read."""
        with self._changed:
            self._untold.append((file, line))
            self._changed.notify_all()
            self._wait(lambda: len(self._untold) < (1 if self._is_read else UNTOLD_MAX), "word of malformed lines")

    def cancel(self, error: WukongsError) -> None:
        """Let the reader fail with an error."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def end(self) -> None:
        """Note that nobody reads any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _wait(self, is_there: Callable[[], Any], what: str) -> None:
        if not self._changed.wait_for(lambda: self._failure is not None or is_there(), SILENT_S):
            raise NodeUnavailable(f"{self.name}: the client has sent nothing for {SILENT_S:g} s, expected {what}")
        if self._failure is not None:
            raise self._failure
