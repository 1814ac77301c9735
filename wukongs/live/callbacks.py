"""Callbacks: the threads that call on_result of an engine's queries, for each query in the order of its windows.

A query has at most one thread at a time, and takes it only while it has windows to report. One thread works for all
queries as long as it gets on. When work has waited for PATIENCE_S and none was begun meanwhile, another thread begins.
So quick calls do not fight for the interpreter, and a slow on_result holds up its own query and no other, and neither
streams nor firings, as long as fewer than THREADS_MAX are slow at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from wukongs.errors import GapError, WukongsError
from wukongs.live.query_counts import QueryCounts
from wukongs.live.window_log import Cursor
from wukongs.query.output.results import WindowResult

THREADS_MAX = 64
PATIENCE_S = 0.002
_BEGIN_S = 0.0005
"""So long `let_begin` waits at most."""
_IDLE_S = 5.0
"""So long a thread waits for more to do before it ends."""
_TURN = 64
"""Windows of one query that are reported before another query has its turn."""
_LOGGED_EVERY_S = 1.0

log = logging.getLogger("wukongs")


class Callbacks:
    """The threads; they begin when there is something to do."""

    def __init__(self, on_idle: Callable[[], None] = lambda: None) -> None:
        """on_idle: is called by a thread when all is done."""
        self._on_idle = on_idle
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._begun = threading.Condition(lock)
        """Work that has waited was begun."""
        self._work: deque[Callable[[], None]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle_count = 0
        self._working_count = 0
        self._begun_count = 0
        self._is_watched = False
        """A thread looks every PATIENCE_S whether work gets on."""
        self._under_way = 0
        self._is_stopped = False

    @property
    def is_busy(self) -> bool:
        return self._under_way > 0

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is one of these threads, as an on_result is."""
        return threading.current_thread() in self._threads

    def submit(self, work: Callable[[], None]) -> None:
        """Have a thread call a function that raises nothing."""
        with self._changed:
            if self._is_stopped:
                return
            self._under_way += 1
            self._work.append(work)
            self._have_watched()

    def let_begin(self) -> None:
        """Let work begin that waits. The thread that was told of it needs the interpreter, which a caller that goes on
        would keep from it for longer than the call takes."""
        with self._changed:
            if self._work and not self._working_count:
                self._begun.wait(_BEGIN_S)

    def _have_watched(self) -> None:
        """Let a thread look after the work that waits. Called with _changed held."""
        if self._is_watched:
            return
        if self._idle_count:
            self._changed.notify()
        elif len(self._threads) < THREADS_MAX:
            self._start_one()

    def _start_one(self) -> None:
        """Start a thread. Called with _changed held."""
        thread = threading.Thread(target=self._run, name="wukongs-on-result", daemon=True)
        self._threads.add(thread)
        self._idle_count += 1
        try:
            thread.start()
        except RuntimeError:  # the process may have no more threads: another one does it, or one that starts later
            self._threads.remove(thread)
            self._idle_count -= 1
            log.warning("no thread could be started for on_result: it waits for another one")

    def stop(self) -> None:
        """Begin nothing more, and wait for the calls that are under way."""
        with self._changed:
            self._is_stopped = True
            self._under_way -= len(self._work)
            self._work.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        work = self._wait()
        while work is not None:
            work()
            with self._changed:
                self._working_count -= 1
                self._idle_count += 1
                self._under_way -= 1
                is_idle = not self._under_way
                work = self._begin() if self._work and not self._is_stopped else None
            if is_idle:
                self._on_idle()
            work = work or self._wait()

    def _wait(self) -> Callable[[], None] | None:
        """Return what to do next, None if there was nothing for long. Its thread counts as idle until then."""
        with self._changed:
            has_watched, begun = False, 0
            while not self._is_stopped:
                is_stuck = has_watched and begun == self._begun_count
                if self._work and (is_stuck or not self._working_count):
                    return self._begin()
                has_watched, begun = bool(self._work) and not self._is_watched, self._begun_count
                self._is_watched |= has_watched
                is_told = self._changed.wait(PATIENCE_S if has_watched else _IDLE_S)
                if has_watched:
                    self._is_watched = False
                elif not is_told and not self._work:
                    break
            self._idle_count -= 1
            self._threads.discard(threading.current_thread())
            return None

    def _begin(self) -> Callable[[], None]:
        """Take the work that has waited longest."""
        self._idle_count -= 1
        self._working_count += 1
        self._begun_count += 1
        self._begun.notify()
        work = self._work.popleft()
        if self._work:
            self._have_watched()
        return work


class FailedCalls:
    """Logs the calls of one on_result that have raised: at most once a second, with how many there were."""

    def __init__(self) -> None:
        self._count = 0
        self._logged_s = -_LOGGED_EVERY_S

    def note(self, query: str, what: str) -> None:
        """Note that a call of a query has raised. what: the window or the report. Called while the error is handled."""
        self._count += 1
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOGGED_EVERY_S:
            times = "" if self._count == 1 else f", the last of {self._count} such calls"
            log.exception("query %s: on_result failed for the %s%s", query, what, times)
            self._logged_s, self._count = now_s, 0


class Caller:
    """Calls one on_result with the windows of a cursor. A window is confirmed when the call has returned or raised."""

    def __init__(
        self,
        callbacks: Callbacks,
        cursor: Cursor,
        on_result: Callable[[WindowResult], object],
        counts: QueryCounts,
    ) -> None:
        self.cursor = cursor
        self._callbacks, self._on_result, self._counts = callbacks, on_result, counts
        self._is_queued = False
        self._is_closed = False
        self._failed = FailedCalls()
        cursor.log.listen(self._wake)
        with cursor.log.changed:
            cursor.log.draw()
            self._wake()

    def close(self) -> None:
        """Begin no call any more."""
        with self.cursor.log.changed:
            self._is_closed = True
            self.cursor.log.unlisten(self._wake)

    def _wake(self) -> None:
        """Called with the log's lock held."""
        if not self._is_queued and not self._is_closed and self.cursor.has_more:
            self._is_queued = True
            self._callbacks.submit(self._report)

    def _report(self) -> None:
        for _ in range(_TURN):
            taken = None if self._is_closed else self.cursor.fetch(0)
            if taken is None:
                break
            if isinstance(taken.item, GapError):
                log.warning("%s", taken.item)
            elif not isinstance(taken.item, WukongsError):  # else it was logged and counted when it happened
                self._call(taken.item)
            self.cursor.confirm(taken)
        with self.cursor.log.changed:
            self._is_queued = False
            self.cursor.log.draw()
            self._wake()

    def _call(self, window: WindowResult) -> None:
        try:
            self._on_result(window)
        except Exception:
            self._counts.errors += 1
            self._failed.note(window.query, f"window ending at {window.end_ms} ms")
