"""SlowLane: a thread that runs the firings of slow queries, so that those of others are not late.

A firing is picked in the order of event time like any other, with the batches and the snapshot that it reads. So its
answer does not depend on when it runs. Firings of one query run in their order.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from wukongs.live.core import Core
from wukongs.live.firing import Firer, Firing

log = logging.getLogger("wukongs")
POLL_S = 0.05
WAITING_MAX = 64
"""Firings that wait, at most: beyond it the engine waits for the lane. They hold the batches that they read."""


class SlowLane:
    """The lane of one engine. Its thread starts with the first firing, and ends with the engine."""

    def __init__(self, core: Core, wake: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        """Parameters:

        wake       Called with the lock held after each firing: something may have waited for it.
        fail       Called with an error that is a defect of ours."""
        self._core, self._wake, self._fail = core, wake, fail
        self._waiting: deque[tuple[Firing, float]] = deque()
        """Firings that were not reported yet; the first one may be running."""
        self._news = threading.Condition(core.lock)
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a firing was not reported yet."""
        return bool(self._waiting)

    @property
    def room(self) -> int:
        """For how many firings `put` does not wait."""
        return WAITING_MAX - len(self._waiting)

    def put(self, firing: Firing, due_at_s: float) -> None:
        """Have a firing run. Waits for room, called without the lock.

        firing     One for which is_offloaded holds.
        due_at_s   The perf_counter at which it was due."""
        core = self._core
        with core.lock:
            while self.room <= 0 and not self._is_over:
                core.changed.wait()
            if self._is_over:
                return
            self._waiting.append((firing, due_at_s))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="wukongs-slow-lane", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError:
                    log.warning("no thread could be started for slow queries: the thread that fires runs them")
            self._news.notify()
        if self._thread is None:
            self._run_first()

    @property
    def _is_over(self) -> bool:
        return self._core.is_closed or self._core.failure is not None

    def wait(self) -> None:
        """Wait until a firing was reported, or for POLL_S. Called without the lock."""
        with self._core.lock:
            if self._waiting:
                self._core.changed.wait(POLL_S)

    @property
    def queries(self) -> set[Firer]:
        """The queries with firings that were not reported yet. Read with the lock held."""
        return {one.query for one, _ in self._waiting}

    def stop(self) -> None:
        """End the thread; drop what waits. Called without the lock, after the engine was marked closed."""
        with self._core.lock:
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        core = self._core
        while True:
            with core.lock:
                while not (self._waiting or self._is_over):
                    self._news.wait()
                if self._is_over:
                    self._waiting.clear()
                    return
            self._run_first()

    def _run_first(self) -> None:
        """Run the first firing that waits, and report its window. Called without the lock."""
        core, (firing, due_at_s) = self._core, self._waiting[0]
        try:
            if not firing.query.is_closed:
                firing.query.run(firing, due_at_s)
        except BaseException as error:
            self._fail(error)
        with core.lock:
            self._waiting.popleft()
            firing.query.note_offloaded()
            core.changed.notify_all()
            self._wake()
