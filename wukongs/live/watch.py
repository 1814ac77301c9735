"""Watch: the thread that looks at the clock of the machine: for streams that bring nothing (idleness.py), and for those
that hold others back (standing.py)."""

from __future__ import annotations

import logging
import threading

from wukongs.errors import StorageError
from wukongs.live.core import Core
from wukongs.live.idleness import enter, follow_wall_clock, left_s
from wukongs.live.injector import Injector
from wukongs.live.standing import Standing
from wukongs.live.wall_clock import Rounds

LOOK_EVERY_S = 2.5
"""The longest time between two looks."""
LOOK_AT_MOST_EVERY_S = 0.01
log = logging.getLogger("wukongs")


class Watch:
    """One per engine; its thread starts with the first stream and ends with the engine."""

    def __init__(self, core: Core, injector: Injector) -> None:
        self._core, self._injector = core, injector
        self._standing = Standing(core, injector.queries.values)
        self._rounds = Rounds()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look at once, and go on. Called with the lock held."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="wukongs-watch", daemon=True)
            thread.start()  # raises if the process may have no more threads: the next call tries again
            self._thread = thread
        self._news.set()

    def stop(self) -> None:
        """End the thread. Called without the lock, after the engine was marked closed."""
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._core.is_closed:
            self._news.wait(self.look())
            self._news.clear()

    def look(self) -> float:
        """Do what is due by now; return how many seconds there are until the next look."""
        core = self._core
        with core.lock:
            if core.is_closed or core.failure is not None:
                return LOOK_EVERY_S
            now_s = core.now_s()
            for state in list(core.streams.values()):
                if left_s(state, now_s) <= 0:
                    self._let_idle(state.iri, now_s)
            self._standing.look(now_s)
            next_s = self._follow_wall_clock()
            left = min((left_s(state, now_s) for state in core.streams.values()), default=LOOK_EVERY_S)
        return min(max(min(left, next_s), LOOK_AT_MOST_EVERY_S), LOOK_EVERY_S)

    def _follow_wall_clock(self) -> float:
        """Return in how many seconds the streams that follow the wall clock are due again."""
        try:
            next_s, has_moved = follow_wall_clock(self._core, self._rounds)
        except StorageError as error:
            log.warning("idle streams cannot follow the wall clock: %s", error)
            return LOOK_EVERY_S
        if has_moved:
            self._injector.wake()
        return next_s

    def _let_idle(self, stream_iri: str, now_s: float) -> None:
        state = self._core.streams[stream_iri]
        try:
            enter(self._core, state)
        except StorageError as error:
            state.active_s = now_s
            log.warning("stream %s brings nothing, and cannot be made idle: %s", stream_iri, error)
        else:
            self._injector.wake()
