"""Callbacks: the threads that call on_result of an engine's queries, for each query in the order of its windows.

A query has at most one thread at a time, and takes it only while it has windows to report. One thread works for all
queries as long as it gets on. When work has waited for PATIENCE_S and none was begun meanwhile, another thread begins.
So quick calls do not fight for the interpreter, and a slow on_result holds up its own query and no other, and neither
streams nor firings, as long as fewer than THREADS_MAX are slow at once.

The thread that fires gathers the work of queries that are quick, and hands it over together: each hand-over would have
threads wait for each other. It calls an Inline on_result itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wukongs.errors import GapError, WukongsError
from wukongs.live.query_counts import QueryCounts
from wukongs.live.window_log import Cursor
from wukongs.query.output.results import WindowResult

THREADS_MAX = 64
PATIENCE_S = 0.002
GATHERED_S, TAKEN_S = 0.005, 0.010
"""Seconds that gathered work waits at most: until its thread hands it over, and until another thread takes it."""
_BEGIN_S = 0.0005
"""Seconds for which `let_finish` waits at most for work to begin."""
QUICK_CALLS = 32
"""`let_finish` waits as long as so many calls are begun in PATIENCE_S: it gains nothing where they take longer."""
_HURRIED = 100
"""So often `let_finish` waits for no more than that once a call was slow."""
_IDLE_S = 5.0
"""So long a thread waits for more to do before it ends."""
_TURN = 64
"""Windows of one query that are reported before another query has its turn."""
_LOGGED_EVERY_S = 1.0

log = logging.getLogger("wukongs")


@dataclass(frozen=True, slots=True)
class Inline:
    """An on_result that the thread that fires calls itself."""

    function: Callable[[WindowResult], object]

    def __call__(self, window: WindowResult) -> object:
        return self.function(window)


class Callbacks:
    """The threads; they begin when there is something to do."""

    def __init__(self, on_idle: Callable[[], None] = lambda: None) -> None:
        """on_idle: is called by a thread when all is done."""
        self._on_idle = on_idle
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._goes_on = threading.Condition(lock)
        """A thread has begun to work, or has done all that it found."""
        self._hurried = 0
        """So often `let_finish` does not wait until all is done."""
        self._work: deque[Callable[[], None]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle_count = 0
        self._working_count = 0
        self._begun_count = 0
        """Grows with each piece of work that is begun; a count that two threads write at once may be missed."""
        self._worker: threading.Thread | None = None
        """The thread that goes on with what waits; others end with the work that they have begun."""
        self._is_called = False
        """An idle thread was notified and does not run yet: no other one is notified meanwhile."""
        self._is_watched = False
        """A thread looks every PATIENCE_S whether work gets on."""
        self._is_stopped = False
        self._gatherer: int | None = None
        """The thread whose work is gathered; None: no thread's."""
        self._gathered: list[Callable[[], None]] = []
        self._gathered_s = 0.0
        """When the first of it was submitted (perf_counter)."""
        self._inline: deque[Callable[[], None]] = deque()
        """Work that the gathering thread does itself."""

    @property
    def is_busy(self) -> bool:
        with self._changed:
            return bool(self._work or self._working_count or self._gathered or self._inline)

    def gather(self) -> None:
        """Gather the work that this thread submits from now on, until `end_gathering`: it is to call `hand_over`."""
        self._gatherer = threading.get_ident()

    def end_gathering(self) -> None:
        """Hand over what was gathered, and gather no more."""
        self._gatherer = None
        self.hand_over()

    @property
    def has_waited(self) -> bool:
        """Whether gathered work has waited for GATHERED_S."""
        return self._has_gathered_for(GATHERED_S)

    def _has_gathered_for(self, time_s: float) -> bool:
        return bool(self._gathered) and time.perf_counter() - self._gathered_s > time_s

    def hand_over(self) -> None:
        """Hand the gathered work to other threads."""
        if self._gathered:
            with self._changed:
                self._take_gathered()

    def _take_gathered(self) -> None:
        """Called with _changed held."""
        gathered, self._gathered = self._gathered, []
        self._add(gathered)

    def watch(self) -> None:
        """Have another thread take the gathered work after TAKEN_S: this thread may be busy by then."""
        if self._gathered and not self._is_watched:
            with self._changed:
                self._have_watched()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is one of these threads, as an on_result is."""
        return threading.current_thread() in self._threads

    def submit(self, work: Callable[[], None], *, is_inline: bool = False) -> None:
        """Have a thread call a function that raises nothing. is_inline: the gathering thread calls it in `run_inline`,
        if it submits it."""
        if threading.get_ident() == self._gatherer:
            if is_inline:
                self._inline.append(work)
                return
            with self._changed:
                if not self._gathered:
                    self._gathered_s = time.perf_counter()
                self._gathered.append(work)
            return
        with self._changed:
            self._add([work])

    @property
    def has_inline(self) -> bool:
        """Whether there is work for `run_inline`."""
        return bool(self._inline)

    def run_inline(self) -> None:
        """Do the work that this thread does itself. Called without locks."""
        while self._inline:
            self._inline.popleft()()

    def _add(self, work: Sequence[Callable[[], None]]) -> None:
        """Called with _changed held."""
        if not self._is_stopped:
            self._work.extend(work)
            self._have_watched()

    def let_finish(self) -> None:
        """Wait until all work is done, as long as its calls are quick: two threads that need the interpreter and the
        same locks take longer than one after the other. Once they were not, wait only until work has begun for some
        time."""
        with self._changed:
            if self._hurried:
                self._hurried -= 1
                if self._work and not self._working_count:
                    self._goes_on.wait(_BEGIN_S)
                return
            while (self._work or self._working_count) and not self._is_stopped:
                begun = self._begun_count
                is_told = self._goes_on.wait(PATIENCE_S)
                if not is_told and self._begun_count < begun + QUICK_CALLS:
                    self._hurried = _HURRIED
                    return

    def _have_watched(self) -> None:
        """Let a thread look after the work that waits. Called with _changed held."""
        if self._is_called or (self._is_watched and self._working_count):
            return
        self._is_called = True
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
            self._is_called = False
            log.warning("no thread could be started for on_result: it waits for another one")

    def stop(self) -> None:
        """Begin nothing more, and wait for the calls that are under way."""
        with self._changed:
            self._is_stopped = True
            self._work.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while self._begin():
            self._work_on()
            with self._changed:
                self._working_count -= 1
                is_idle = not self._work and not self._working_count
                self._goes_on.notify_all()
            if is_idle:
                self._on_idle()
            with self._changed:
                self._idle_count += 1

    def _work_on(self) -> None:
        """Do what waits, the oldest first, until nothing does, or another thread has begun to. No lock is taken for a
        piece of it."""
        work, own = self._work, threading.current_thread()
        while work and self._worker is own and not self._is_stopped:
            try:
                piece = work.popleft()
            except IndexError:  # another thread has taken it
                return
            self._begun_count += 1
            try:
                piece()
            except BaseException:
                log.exception("on_result: work has failed")

    def _begin(self) -> bool:
        """Wait for work that no other thread gets on with; return False if there was nothing for long. The thread
        counts as idle until then."""
        with self._changed:
            has_watched, begun = False, 0
            while not self._is_stopped:
                self._is_called = False
                if self._has_gathered_for(TAKEN_S):
                    self._take_gathered()
                is_stuck = has_watched and begun == self._begun_count
                if self._work and (is_stuck or not self._working_count):
                    self._idle_count -= 1
                    self._working_count += 1
                    self._worker = threading.current_thread()
                    self._goes_on.notify_all()
                    if len(self._work) > 1:
                        self._have_watched()
                    return True
                has_watched = bool(self._work or self._gathered) and not self._is_watched
                begun = self._begun_count
                self._is_watched |= has_watched
                is_told = self._changed.wait(PATIENCE_S if has_watched else _IDLE_S)
                if has_watched:
                    self._is_watched = False
                elif not is_told and not self._work and not self._gathered:
                    break
            self._idle_count -= 1
            self._threads.discard(threading.current_thread())
            return False


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
        self.is_inline = isinstance(on_result, Inline)
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
            self._callbacks.submit(self._report, is_inline=self.is_inline)

    def _report(self) -> None:
        cursor, taken = self.cursor, None
        for _ in range(_TURN):
            with cursor.log.changed:
                if taken is not None:
                    cursor.confirm(taken)
                taken = None if self._is_closed else cursor.fetch(0)
                if taken is None:
                    self._is_queued = False
                    return
            if isinstance(taken.item, GapError):
                log.warning("%s", taken.item)
            elif not isinstance(taken.item, WukongsError):  # else it was logged and counted when it happened
                self._call(taken.item)
        with cursor.log.changed:
            if taken is not None:
                cursor.confirm(taken)
            self._is_queued = False
            cursor.log.draw()
            self._wake()

    def _call(self, window: WindowResult) -> None:
        try:
            self._on_result(window)
        except BaseException:  # SystemExit ends no thread here
            self._counts.errors += 1
            self._failed.note(window.query, f"window ending at {window.end_ms} ms")
