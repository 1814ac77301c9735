"""AsyncCalls: lets coroutines call an engine, whose methods wait.

Each call runs in a thread of a pool that belongs to the engine object and ends with it, so neither the event loop nor
its own threads are held up. A task that is cancelled goes on at once. Its call ends as soon as it looks at its limits
(wukongs/query/limits.py: Canceller); one that waits for a thread does not begin.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from wukongs.forks import Lock, note_owner
from wukongs.query.limits import Canceller

THREADS_MAX = 32
Answer = TypeVar("Answer")


class AsyncCalls:
    """The pool of one engine object. Used from any thread and any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._cancellers: set[Canceller] = set()
        self.held_over_forks: tuple[Lock, ...] = (self._lock,)
        note_owner(self)

    def disown(self) -> None:
        """Begin anew in a forked child, which has none of the threads."""
        self._pool, self._cancellers = None, set()

    async def do(self, work: Callable[[], Answer]) -> Answer:
        """Return what a function returns that waits, or raise what it raises."""
        canceller = Canceller()

        def called() -> Answer:
            try:
                with canceller:
                    return work()
            finally:
                self._cancellers.discard(canceller)

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS_MAX, "wukongs-async")
            self._cancellers.add(canceller)
            submitted = self._pool.submit(called)
        running = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            canceller.cancel()
            if submitted.cancel():
                self._cancellers.discard(canceller)
            running.add_done_callback(_heard)
            raise

    def end(self) -> None:
        """End the calls that run, with QueryKilled; those that wait find a closed engine. The threads end with them."""
        with self._lock:
            pool, self._pool = self._pool, None
        for canceller in list(self._cancellers):
            canceller.cancel()
        if pool is not None:
            pool.shutdown(wait=False)


def _heard(running: asyncio.Future[Any]) -> None:
    """Take the outcome of a call for which nobody waits."""
    if not running.cancelled():
        running.exception()
