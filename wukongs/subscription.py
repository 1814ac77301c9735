"""Subscription: the reported windows of one query, waiting to be read."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from wukongs.errors import WukongsError
from wukongs.results import WindowResult


class Subscription:
    """Windows in order of their end. Holds at most results_max of them: then the oldest go, counted."""

    def __init__(self, results_max: int) -> None:
        self._waiting: deque[WindowResult | WukongsError] = deque()
        self._results_max = results_max
        self._changed = threading.Condition()
        self._is_closed = False
        self._listeners: set[Callable[[], None]] = set()
        self.dropped_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: WindowResult | WukongsError) -> None:
        """Add a window, or the error that stands in its place."""
        with self._changed:
            if len(self._waiting) >= self._results_max:
                self._waiting.popleft()
                self.dropped_count += 1
            self._waiting.append(item)
            self._tell()

    def close(self) -> None:
        """Let readers end once they have read what waits."""
        with self._changed:
            self._is_closed = True
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def take(self, timeout_s: float | None) -> WindowResult | None:
        """Return the next window; None once closed and empty, or when timeout_s passes without one.

        Raises the WukongsError that a firing ended in; the windows after it can still be read.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._waiting:
                left = None if deadline is None else deadline - time.monotonic()
                if self._is_closed or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)
            item = self._waiting.popleft()
        if isinstance(item, WukongsError):
            raise item
        return item

    def read(self, timeout_s: float | None) -> Iterator[WindowResult]:
        """Iterate over windows until take() has none."""
        while (window := self.take(timeout_s)) is not None:
            yield window

    async def aread(self, timeout_s: float | None) -> AsyncIterator[WindowResult]:
        """As read, for `async for`. Waits in the event loop, not in a thread: one who is cancelled takes no window."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def listener() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(arrived.set)

        with self._changed:
            self._listeners.add(listener)
        try:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            while True:
                arrived.clear()
                window = self.take(0)
                if window is not None:
                    yield window
                    deadline = None if timeout_s is None else time.monotonic() + timeout_s
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if self._is_ended() or (left is not None and left <= 0):
                    return
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(arrived.wait(), left)
        finally:
            with self._changed:
                self._listeners.discard(listener)

    def _is_ended(self) -> bool:
        with self._changed:
            return self._is_closed and not self._waiting
