"""Subscription: the reported windows of one query, waiting to be read."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from wukongs.errors import WukongsError
from wukongs.query.output.results import WindowResult


@dataclass(slots=True, eq=False)
class FetchedWindow:
    """A window, or the error in its place. through_ms: the last firing after it for which nothing is reported."""

    end_ms: int
    item: WindowResult | WukongsError
    through_ms: int

    @property
    def window(self) -> WindowResult:
        assert not isinstance(self.item, WukongsError)
        return self.item


class Subscription:
    """Windows in order of their end. Holds at most results_max of them: then the oldest go, counted.

    acknowledge: called with the end of a window once its reader has asked for the next one, or it has gone unread."""

    def __init__(self, results_max: int, acknowledge: Callable[[int], None] = lambda _: None) -> None:
        self._waiting: deque[FetchedWindow] = deque()
        self._last: FetchedWindow | None = None
        """The newest window, until it is acknowledged."""
        self._fetched: list[FetchedWindow] = []
        """Windows that were fetched and are not confirmed, also those that wait again."""
        self._through_ms: int | None = None
        """Up to where windows were confirmed; acknowledged is what comes before all of those in _fetched."""
        self._acknowledge = acknowledge
        self._results_max = results_max
        self._changed = threading.Condition()
        self._is_closed = False
        self._listeners: set[Callable[[], None]] = set()
        self.dropped_count = 0
        self.dropped_to_ms: int | None = None
        """The end of the last window that has gone unread."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, end_ms: int, item: WindowResult | WukongsError) -> None:
        """Add the window with this end, or the error that stands in its place."""
        with self._changed:
            if len(self._waiting) >= self._results_max:
                dropped = self._waiting.popleft()
                self.dropped_to_ms = dropped.end_ms
                self.dropped_count += 1
                self.confirm(dropped)
            self._last = FetchedWindow(end_ms, item, end_ms)
            self._waiting.append(self._last)
            self._tell()

    def skip(self, end_ms: int) -> None:
        """Note that nothing is reported for the firing with this end: it counts as taken when all before it is."""
        with self._changed:
            if self._last is None:
                self._acknowledge(end_ms)
            else:
                self._last.through_ms = end_ms

    def fetch(self, timeout_s: float | None) -> FetchedWindow | None:
        """Return the next window, or the error in its place, for `confirm` or `give_back`; None as take."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._waiting:
                left = None if deadline is None else deadline - time.monotonic()
                if self._is_closed or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)
            fetched = self._waiting.popleft()
            if fetched not in self._fetched:
                self._fetched.append(fetched)
            return fetched

    def give_back(self, window: FetchedWindow) -> None:
        """Let a window that was fetched wait again, for whoever asks next."""
        with self._changed:
            later = (place for place, waiting in enumerate(self._waiting) if waiting.end_ms > window.end_ms)
            self._waiting.insert(next(later, len(self._waiting)), window)
            self._tell()

    def confirm(self, window: FetchedWindow) -> None:
        """Acknowledge a window that was fetched, once all that were fetched before it are confirmed as well."""
        with self._changed:
            self.abandon(window)
            through_ms = window.through_ms
            self._through_ms = through_ms if self._through_ms is None else max(self._through_ms, through_ms)
            earliest_ms = min((one.end_ms for one in self._fetched), default=None)
            self._acknowledge(self._through_ms if earliest_ms is None else min(self._through_ms, earliest_ms - 1))
            if self._last is window:
                self._last = None

    def abandon(self, window: FetchedWindow) -> None:
        """Note that nobody will confirm a window: it counts as taken when a later one does."""
        with self._changed:
            if window in self._fetched:
                self._fetched.remove(window)

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
        """Return the next window, which is acknowledged with that; None once closed and empty, or when timeout_s
        passes without one.

        Raises the WukongsError that a firing ended in; the windows after it can still be read.
        """
        taken = self._take(timeout_s)
        if taken is None:
            return None
        self.confirm(taken)
        return taken.window

    def _take(self, timeout_s: float | None) -> FetchedWindow | None:
        """Do the same as take, without acknowledging the window."""
        taken = self.fetch(timeout_s)
        if taken is not None and isinstance(taken.item, WukongsError):
            self.confirm(taken)
            raise taken.item
        return taken

    def read(self, timeout_s: float | None) -> Iterator[WindowResult]:
        """Iterate over windows until take() has none."""
        while (taken := self._take(timeout_s)) is not None:
            try:
                yield taken.window
            except GeneratorExit:
                self.abandon(taken)
                raise
            self.confirm(taken)

    async def aread(self, timeout_s: float | None) -> AsyncIterator[WindowResult]:
        """Do the same as read, for `async for`. It waits in the event loop, not in a thread: a cancelled reader takes
        no window."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def listener() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(arrived.set)

        self.listen(listener)
        try:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            while True:
                arrived.clear()
                taken = self._take(0)
                if taken is not None:
                    try:
                        yield taken.window
                    except GeneratorExit:
                        self.abandon(taken)
                        raise
                    self.confirm(taken)
                    deadline = None if timeout_s is None else time.monotonic() + timeout_s
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if self.is_ended() or (left is not None and left <= 0):
                    return
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(arrived.wait(), left)
        finally:
            self.unlisten(listener)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called whenever a window comes, or the last one has; whoever brings it waits for that."""
        with self._changed:
            self._listeners.add(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        with self._changed:
            self._listeners.discard(listener)

    def is_ended(self) -> bool:
        with self._changed:
            return self._is_closed and not self._waiting
