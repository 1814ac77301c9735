"""Workers: threads that answer requests. Their number is bounded, and so is that of the waiting requests. A thread
that has had nothing to do for a while ends, but for the last one: another one might not start.

A thread that cannot start, for want of memory or of threads, is not counted: a later task tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

IDLE_S = 10.0
"""After so long without a task a thread ends."""
Task = Callable[[], None]

_log = logging.getLogger(__name__)


class Workers:
    """At most threads_max threads, started as they are needed, and waiting_max tasks that wait for one of them.

    The threads are daemons: one that is stuck does not hold up the end of the process."""

    def __init__(self, name: str, threads_max: int, waiting_max: int) -> None:
        self._name, self._threads_max, self._unfinished_max = name, threads_max, threads_max + waiting_max
        self._lock = threading.Lock()
        self._is_left = threading.Condition(self._lock)
        self._here: list[threading.Thread] = []
        """The threads of others that are at a task."""
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._started = 0
        self._unfinished = 0
        self._finished = 0
        self._is_closed = False

    def submit(self, task: Task) -> bool:
        """Have a task done by some thread; False: there is too much to do already, or no thread to do it."""
        with self._lock:
            if self._is_closed or self._unfinished >= self._unfinished_max:
                return False
            if self._unfinished >= len(self._threads) < self._threads_max:
                self._start_thread()
            if not self._threads:
                return False
            self._tasks.put(task)
            self._unfinished += 1
        return True

    def do(self, task: Task) -> bool:
        """Do a task in the calling thread, or if threads_max tasks are under way, wait until a thread has done it.
        False: there is too much to do already, or no thread to do it."""
        with self._lock:
            is_done_here = not self._is_closed and self._unfinished < self._threads_max
            if is_done_here:
                self._unfinished += 1
                self._here.append(threading.current_thread())
        if is_done_here:
            try:
                task()
            finally:
                with self._lock:
                    self._unfinished -= 1
                    self._finished += 1
                    self._here.remove(threading.current_thread())
                    self._is_left.notify_all()
            return True
        is_done = threading.Event()

        def do_and_say() -> None:
            try:
                task()
            finally:
                is_done.set()

        return self.submit(do_and_say) and is_done.wait()

    @property
    def has_threads(self) -> bool:
        """Whether there is any thread that does tasks."""
        return bool(self._threads)

    @property
    def progress(self) -> tuple[bool, int]:
        """Whether tasks wait, or all threads that may be are at one; and how many tasks are done."""
        with self._lock:
            return self._unfinished >= self._threads_max, self._finished

    def close(self, timeout_s: float) -> bool:
        """Take no more tasks and wait for those that are under way; tell whether all ended within timeout_s seconds."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for _ in self._threads:
                    self._tasks.put(None)
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            is_left = self._is_left.wait_for(
                lambda: all(thread is threading.current_thread() for thread in self._here),
                max(0.0, deadline - time.monotonic()),
            )
        return is_left and not any(thread.is_alive() for thread in threads if thread is not threading.current_thread())

    def _start_thread(self) -> None:
        """Start one more thread, if the process may have one more."""
        thread = threading.Thread(target=self._run, name=f"{self._name}-{self._started}", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            _log.warning("%s: %d threads, one more cannot start: %s", self._name, len(self._threads), error)
            return
        self._threads.append(thread)
        self._started += 1

    def _next(self) -> Task | None:
        """Return the next task; None: this thread is to end."""
        while True:
            try:
                return self._tasks.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._tasks.empty() and len(self._threads) > 1:  # else one has come in this moment
                        self._threads.remove(threading.current_thread())
                        return None

    def _run(self) -> None:
        try:
            while (task := self._next()) is not None:
                try:
                    task()
                except Exception:
                    _log.exception("%s: a task failed", self._name)
                finally:
                    with self._lock:
                        self._unfinished -= 1
                        self._finished += 1
        except BaseException:
            with self._lock:  # another thread can take its place
                self._threads.remove(threading.current_thread())
            raise
