"""WorkLoop: its turns seal and fire. One thread at a time runs one: the engine's, or the caller of push or advance.

Waking another thread takes longer than a small tick. So a caller that closes a tick submits it and runs the turn
itself, if no other thread has one and recent turns were short. A turn that gets long is left to the engine's thread.
Large ticks go to that thread at once: the caller can encode the next stream batch meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from math import inf

from wukongs.consistency import told_sn
from wukongs.live.core import Core
from wukongs.live.deferred_interrupt import DeferredInterrupt
from wukongs.live.stream_state import FRAGMENT_BYTES_PER_TUPLE
from wukongs.outcomes import asked
from wukongs.query.limits import is_bound

CALLER_MAX_S = 0.001
"""Longest turn of a caller, in seconds. A caller runs one only while recent turns were shorter."""
TUPLES_MAX = 100
"""A tick is large if more tuples of a stream wait for it."""
STACK_MIN = 400
"""Stack frames that a turn may need."""
TURN_MAX_S = 10 * CALLER_MAX_S
"""Longer turns count as this long, and the first one is expected to take it."""
DECAY = 0.9
"""Factor by which the expected time falls with each shorter turn. The last of many streams to advance closes a tick."""
IDLE_INTERVAL_S = 0.05
"""Interval at which the engine's thread uses idle time while callers run the turns."""


class WorkLoop:
    """That of one engine."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._work: Callable[[float], bool]
        self._use_idle_time: Callable[[], float | None]
        self._fail: Callable[[BaseException], None]
        self._drop_callables()
        self._news = threading.Condition(core.lock)
        """Notified when the engine's thread has a turn to run, or idle time to use."""
        self._has_news = False
        self.news_at_s = 0.0
        """The arrival of the news of the current turn (perf_counter)."""
        self._is_owned = False
        """Whether a thread runs a turn."""
        self._owner: int | None = None
        """The identifier of the last thread that ran one."""
        self._submitter: int | None = None
        """The thread that is about to call `run_submitted`."""
        self._is_pending = False
        """Whether news wait for that thread, and no other one was notified."""
        self._expected_s = TURN_MAX_S
        """The time of a turn, by recent ones."""
        self._caller_ended_s = -inf
        """The end of the last turn of a caller (perf_counter); -inf if the last turn was the engine's thread's."""
        self._is_asleep = False
        """Whether the engine's thread waits without a timeout."""
        self._has_failed = False
        self._thread: threading.Thread | None = None

    # --- called with the lock held ------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a turn is due or under way."""
        return self._has_news or self._is_owned

    def start(
        self,
        work: Callable[[float], bool],
        use_idle_time: Callable[[], float | None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Start the engine's thread, once.

        work           Runs what is due, called without the lock by one thread at a time. Takes the perf_counter after
                       which it stops; returns whether all is done.
        use_idle_time  Called with the lock held by the engine's thread when nothing is due. Returns the seconds until
                       its next call; None: nothing is left.
        fail           Called with an error of `work`, which is a defect of ours."""
        if self._thread is None:
            self._work, self._use_idle_time, self._fail = work, use_idle_time, fail
            thread = threading.Thread(target=self._run, name="wukongs-injector", daemon=True)
            thread.start()  # raises if the process may have no more threads: the next call tries again
            self._thread = thread

    def wake(self) -> None:
        """Record news, for which a turn is due."""
        if self._has_news:
            if self._submitter != threading.get_ident():
                self.notify()  # the submitter may have been interrupted
            return
        self._has_news, self.news_at_s = True, time.perf_counter()
        if self._submitter == threading.get_ident():
            self._is_pending = True
        elif not self._is_owned:  # the owner looks for news before it ends
            self._news.notify()

    def notify_idle(self) -> None:
        """Have the engine's thread use idle time."""
        if not self._is_owned:
            self._news.notify()

    def submit(self) -> None:
        """Record that the calling thread submits news, and is going to call `run_submitted`."""
        self._submitter = threading.get_ident()

    def notify(self) -> None:
        """Notify the engine's thread of a turn that a caller has submitted."""
        self._submitter = None
        if self._is_pending:
            self._is_pending = False
            self._news.notify()

    # --- called without it --------------------------------------------------------------------------------------------

    def run_submitted(self) -> None:
        """Run the turn that the calling thread has submitted, or notify the engine's thread.

        The latter also if a caller of it holds the lock."""
        if self._submitter != threading.get_ident():
            return
        if not self._is_pending:
            self._submitter = None
            return
        try:
            if self._core.lock._is_owned():  # type: ignore[attr-defined]
                self.notify()
            else:
                self._run_in_caller()
        except BaseException:
            with self._core.lock:
                self.notify()
            raise

    def _run_in_caller(self) -> None:
        with DeferredInterrupt() as is_safe:
            with self._core.lock:
                if self._submitter != threading.get_ident():
                    return
                if not (is_safe and self._is_pending and self._is_for_caller()):
                    self.notify()
                    return
                self._submitter, self._is_pending = None, False
                self._own()
            self._run_turn(time.perf_counter() + CALLER_MAX_S)

    def stop(self) -> None:
        """End the engine's thread, and wait for a caller's turn. Called after the engine was marked closed."""
        with self._core.lock:
            self._core.changed.notify_all()
            self._news.notify()
        if self._thread is not None:
            self._thread.join()
        with self._core.lock:
            while self._is_owned and self._owner != threading.get_ident():
                self._core.changed.wait()
        self._drop_callables()

    def _drop_callables(self) -> None:
        """Hold no callables, whose object may hold this one: an engine is freed without garbage collection."""
        self._work, self._use_idle_time, self._fail = (lambda _: True), (lambda: None), (lambda _: None)

    def _is_for_caller(self) -> bool:
        """Return whether the calling thread may run the turn, and it is expected to be short. Called with the lock
        held."""
        core = self._core
        if self._thread is None or core.query_log is not None or core.is_closed or self._has_failed:
            return False
        if not self._has_news or self._is_owned or self._expected_s >= CALLER_MAX_S or _is_in_context():
            return False
        large_bytes = TUPLES_MAX * FRAGMENT_BYTES_PER_TUPLE
        return not any(state.waiting_bytes > large_bytes for state in core.streams.values())

    def _own(self) -> None:
        self._has_news, self._is_owned, self._owner = False, True, threading.get_ident()

    def _run_turn(self, until_s: float) -> None:
        """Run a turn that the calling thread owns. until_s: the perf_counter after which it stops; inf: never."""
        began_s, is_done = time.perf_counter(), True
        try:
            is_done = self._work(until_s)
        except BaseException as error:
            self._has_failed = True
            self._fail(error)
        finally:
            with self._core.lock:
                ended_s = time.perf_counter()
                self._expected_s = max(min(ended_s - began_s, TURN_MAX_S), DECAY * self._expected_s)
                self._caller_ended_s = -inf if until_s == inf else ended_s
                self._is_owned = False
                self._has_news |= not is_done
                self._core.changed.notify_all()
                if self._has_news or self._is_asleep:
                    self._news.notify()

    def _run(self) -> None:
        while self._wait():
            self._run_turn(inf)

    def _wait(self) -> bool:
        """Wait for a turn of the engine's thread, and own it. Return False when the engine has ended."""
        with self._core.lock:
            while not (self._core.is_closed or self._has_failed):
                now_s = time.perf_counter()
                is_pending = self._is_pending and now_s - self.news_at_s < CALLER_MAX_S
                if self._has_news and not (self._is_owned or is_pending):
                    self._is_pending = False
                    self._own()
                    return True
                wait_s = None if self._is_owned else CALLER_MAX_S if is_pending else self._use_idle_time()
                if wait_s is not None and now_s - self._caller_ended_s < IDLE_INTERVAL_S:
                    wait_s = max(wait_s, IDLE_INTERVAL_S)
                self._is_asleep = wait_s is None
                self._news.wait(wait_s)
                self._is_asleep = False
            return False


def _is_in_context() -> bool:
    """Return whether the calling thread has a context that a turn must not run in.

    It serves a request of a client, has limits or an event loop, or has used most of its stack."""
    if asked() is not None or told_sn() is not None or is_bound():
        return True
    try:
        sys._getframe(max(0, sys.getrecursionlimit() - STACK_MIN))
    except ValueError:
        pass
    else:
        return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
