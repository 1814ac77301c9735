"""Merger: the merges that updates and loads owe, and those of quiet time, outside of the engine's lock."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable

from wukongs.store.trace import Trace

STEP_FUEL = 1 << 15
"""So much a step: a seal that comes meanwhile waits for one."""
QUIET_S = 1.0
"""After so long without an update, batches are merged that no seal has to pay for."""
QUIET_FUEL = 4096
QUIET_PAUSE_S = 0.0005
FAILED = "merging stored batches has failed; the next update begins it anew"

log = logging.getLogger("wukongs")


class Merger:
    """A thread pays debts while the next update is read and evaluated, and ends when there is no more to merge. A merge
    works on batches that never change, so only its outcome needs the lock. No method is called with the lock held."""

    def __init__(self, lock: threading.RLock, trace: Trace, on_merged: Callable[[], None]) -> None:
        """on_merged: a method that lets go of batches that were merged; called with the lock held, as long as somebody
        else holds its object: the thread does not keep an engine that nobody has any more."""
        self._lock, self._trace, self._on_merged = lock, trace, weakref.WeakMethod(on_merged)
        self._news = threading.Condition()
        self._owed = 0
        self._owed_at_s = 0.0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def owe(self, row_count: int) -> None:
        """Take over what a seal of so many triples and tombstones owes; a little is paid at once."""
        with self._news:
            self._owed += self._trace.owed(row_count)
            self._owed_at_s = time.monotonic()
            is_small = self._owed <= STEP_FUEL
            if self._thread is None and not self._is_closed:
                self._begin()
            elif not is_small:
                self._news.notify()
        if is_small:
            self._try_to_pay()

    def catch_up(self) -> None:
        """Return when all that is owed is paid: before the next seal, so that there are never many batches."""
        while self._try_to_pay():
            pass

    def close(self) -> None:
        """End the thread; what it has not merged is left."""
        with self._news:
            self._is_closed = True
            self._owed = 0
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="wukongs-merger", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads, or the interpreter ends
            log.warning("no thread to merge stored batches, the next update does it: %s", error)
        else:
            self._thread = thread

    def _try_to_pay(self) -> bool:
        """Do the same as _pay_some. A merge that fails is no error of the update: that is stored, or will be."""
        try:
            return self._pay_some()
        except Exception:
            log.exception(FAILED)
            return False

    def _pay_some(self) -> bool:
        """Return whether anything was owed."""
        with self._news:
            fuel = min(self._owed, STEP_FUEL) if self._trace.is_merging() else 0
            self._owed = self._owed - fuel if fuel else 0
        if fuel:
            self._trace.work_apart(fuel)
            with self._lock:
                if self._trace.put_in_place():
                    self._tell()
        return fuel > 0

    def _tell(self) -> None:
        on_merged = self._on_merged()
        if on_merged is not None:
            on_merged()

    def _run(self) -> None:
        try:
            while self._pay_some() or self._wait_for_more() or self._merge_further():
                pass
        except Exception:
            with self._news:
                self._thread = None
            log.exception(FAILED)

    def _wait_for_more(self) -> bool:
        """Wait until something is owed or all is quiet; return whether something is owed."""
        with self._news:
            while not self._owed and not self._is_closed:
                left_s = self._owed_at_s + QUIET_S - time.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(left_s)
            return self._owed > 0

    def _merge_further(self) -> bool:
        """Do a step of the merges of quiet time; return whether there are more."""
        with self._lock:
            is_more = not self._is_closed and self._trace.merge_further(QUIET_FUEL)
            self._tell()
        if is_more:
            time.sleep(QUIET_PAUSE_S)
            return True
        with self._news:
            if self._owed and not self._is_closed:
                return True
            self._thread = None
        return False
