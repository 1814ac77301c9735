"""Merger: the merges that updates and loads owe (store/trace.py), outside of the engine's lock."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from wukongs.store.trace import Trace

STEP_FUEL = 1 << 15
"""So much a step: a seal that comes meanwhile waits for one."""


class Merger:
    """Small debts are paid at once, others by a thread, while the next update is read and evaluated. A merge works on
    batches that never change, so only its outcome needs the lock."""

    def __init__(self, lock: threading.RLock, trace: Trace) -> None:
        self._lock, self._trace = lock, trace
        self._worker = ThreadPoolExecutor(1, "wukongs-merger")
        self._paying: Future[None] | None = None
        self._is_closed = False

    def owe(self, row_count: int) -> None:
        """Let a thread pay what a seal of so many triples and tombstones owes. Called without the lock, as all methods;
        by one thread at a time, as catch_up."""
        if self._trace.owed(row_count) <= STEP_FUEL:
            self.pay(row_count)
        else:
            self._paying = self._worker.submit(self.pay, row_count)

    def catch_up(self) -> None:
        """Return when all that is owed is paid: before the next seal, so that there are never many batches. Raises what
        a merge has raised."""
        paying, self._paying = self._paying, None
        if paying is not None:
            paying.result()

    def pay(self, row_count: int) -> None:
        """Pay what a seal of so many triples and tombstones owes."""
        fuel = self._trace.owed(row_count)
        while fuel > 0 and self._trace.is_merging() and not self._is_closed:
            self._trace.work_apart(min(fuel, STEP_FUEL))
            with self._lock:
                self._trace.put_in_place()
            fuel -= STEP_FUEL

    def close(self) -> None:
        """End the thread; what it was to pay after this step of its work is left."""
        self._is_closed = True
        self._worker.shutdown(cancel_futures=True)
