"""Turns: which thread does the work of an engine, one at a time: its own thread, or one that has brought news.

A thread that pushes or advances does the work itself if nobody is at it, the turns before were short, and it may be
kept from its own work (`help`): to wake another thread takes longer than a small tick. It leaves the rest to the
engine's thread after HELP_S. Larger ticks are the engine's thread's, so the next ones can be encoded meanwhile.
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

HELP_S = 0.001
"""Turns that took less are done by who has brought the news; it leaves to the engine's thread what takes longer."""

TUPLES_MAX = 100
"""So does a tick for which more tuples of a stream wait."""
STACK_MIN = 400
"""Frames that a turn may need."""
LONG_S = 10 * HELP_S
"""How long a turn of which nothing is known is taken to last, and one that took longer."""
DECAY = 0.9
"""A turn counts so much less with each shorter one: of many streams, the last one to advance closes a tick."""
REST_S = 0.05
"""While others do short turns, the engine's thread uses idle time so often."""


class Turns:
    """Those of one engine."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._work: Callable[[float], bool]
        self._rest: Callable[[], float | None]
        self._failed: Callable[[BaseException], None]
        self._drop_calls()
        self._news = threading.Condition(core.lock)
        """The engine's thread has something to do."""
        self._has_news = False
        self.news_at_s = 0.0
        """When the news came that are worked on (perf_counter)."""
        self._is_taken = False
        """A thread is at work."""
        self._taker: int | None = None
        """The last thread that was, or is."""
        self._helper: int | None = None
        """The thread that will call `help`."""
        self._is_untold = False
        """Nobody was told of the news, as that thread is about to do the work."""
        self._took_s = LONG_S
        """How long turns have taken lately."""
        self._helped_s = -inf
        """When the last turn of another thread than the engine's has ended."""
        self._is_asleep = False
        """The engine's thread waits for news, however long that takes."""
        self._has_failed = False
        self._thread: threading.Thread | None = None

    # --- called with the lock held ------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether there is work to do, or under way."""
        return self._has_news or self._is_taken

    def start(
        self,
        work: Callable[[float], bool],
        rest: Callable[[], float | None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Start the engine's thread, once.

        work     Is called without the lock, by one thread at a time, and does what is due until a time
                 (perf_counter); returns whether that is all.
        rest     Is called with the lock held, in the engine's thread, when there is nothing to do; returns after how
                 many seconds to call it again, None: no more.
        failed   Is called with the error of `work`, which is a mistake of ours."""
        if self._thread is None:
            self._work, self._rest, self._failed = work, rest, failed
            thread = threading.Thread(target=self._run, name="wukongs-injector", daemon=True)
            thread.start()  # raises if the process may have no more threads: the next call tries again
            self._thread = thread

    def wake(self) -> None:
        """Note that there is news."""
        if self._has_news:
            if self._helper != threading.get_ident():
                self.tell()  # whoever has handed in may have been interrupted
            return
        self._has_news, self.news_at_s = True, time.perf_counter()
        if self._helper == threading.get_ident():
            self._is_untold = True
        elif not self._is_taken:  # whoever is at work looks again
            self._news.notify()

    def rouse(self) -> None:
        """Have the engine's thread use idle time."""
        if not self._is_taken:
            self._news.notify()

    def hand_in(self) -> None:
        """Note that the calling thread is about to bring news, and will call `help`."""
        self._helper = threading.get_ident()

    def tell(self) -> None:
        """Let the engine's thread do what a thread has handed in: the caller waits for it, with the lock held."""
        self._helper = None
        if self._is_untold:
            self._is_untold = False
            self._news.notify()

    # --- called without it --------------------------------------------------------------------------------------------

    def help(self) -> None:
        """Do the work of which the calling thread has brought the news, or tell the engine's thread of it: also if a
        caller of it holds the lock."""
        if self._helper != threading.get_ident():
            return
        if not self._is_untold:
            self._helper = None
            return
        try:
            if self._core.lock._is_owned():  # type: ignore[attr-defined]
                self.tell()
            else:
                self._help()
        except BaseException:
            with self._core.lock:
                self.tell()
            raise

    def _help(self) -> None:
        with DeferredInterrupt() as is_safe:
            with self._core.lock:
                if self._helper != threading.get_ident():
                    return
                if not (is_safe and self._is_untold and self._may_help()):
                    self.tell()
                    return
                self._helper, self._is_untold = None, False
                self._take()
            self._turn(time.perf_counter() + HELP_S)

    def stop(self) -> None:
        """End the thread, and wait for the turn that is under way. Called after the engine was marked closed."""
        with self._core.lock:
            self._core.changed.notify_all()
            self._news.notify()
        if self._thread is not None:
            self._thread.join()
        with self._core.lock:
            while self._is_taken and self._taker != threading.get_ident():
                self._core.changed.wait()
        self._drop_calls()

    def _drop_calls(self) -> None:
        """Call nothing more: what is called may hold this object, and an engine that nobody has goes at once."""
        self._work, self._rest, self._failed = (lambda _: True), (lambda: None), (lambda _: None)

    def _may_help(self) -> bool:
        """Return whether the calling thread may do the work, and that looks short. Called with the lock held."""
        core = self._core
        if self._thread is None or core.query_log is not None or core.is_closed or self._has_failed:
            return False
        if not self._has_news or self._is_taken or self._took_s >= HELP_S or _works_for_another():
            return False
        large_bytes = TUPLES_MAX * FRAGMENT_BYTES_PER_TUPLE
        return not any(state.waiting_bytes > large_bytes for state in core.streams.values())

    def _take(self) -> None:
        self._has_news, self._is_taken, self._taker = False, True, threading.get_ident()

    def _turn(self, until_s: float) -> None:
        """Do the work. until_s: as `work` has it."""
        began_s, is_done = time.perf_counter(), True
        try:
            is_done = self._work(until_s)
        except BaseException as error:
            self._has_failed = True
            self._failed(error)
        finally:
            with self._core.lock:
                ended_s = time.perf_counter()
                self._took_s, self._is_taken = max(min(ended_s - began_s, LONG_S), DECAY * self._took_s), False
                self._helped_s = -inf if until_s == inf else ended_s
                self._has_news |= not is_done
                self._core.changed.notify_all()
                if self._has_news or self._is_asleep:
                    self._news.notify()

    def _run(self) -> None:
        while self._wait():
            self._turn(inf)

    def _wait(self) -> bool:
        """Wait for news; return False at the end of the engine."""
        with self._core.lock:
            while not (self._core.is_closed or self._has_failed):
                now_s = time.perf_counter()
                is_untold = self._is_untold and now_s - self.news_at_s < HELP_S
                if self._has_news and not (self._is_taken or is_untold):
                    self._is_untold = False
                    self._take()
                    return True
                wait_s = None if self._is_taken else HELP_S if is_untold else self._rest()
                if wait_s is not None and now_s - self._helped_s < REST_S:
                    wait_s = max(wait_s, REST_S)
                self._is_asleep = wait_s is None
                self._news.wait(wait_s)
                self._is_asleep = False
            return False


def _works_for_another() -> bool:
    """Return whether the calling thread works for a client, under limits, or in an event loop, or has little of its
    stack left: what it does then is not its own, or would meet errors that are not its own."""
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
