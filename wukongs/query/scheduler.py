"""Scheduler: which of the executions that ask for processors run now, and which wait.

An execution (a Task) runs in its thread. It is paused only where it checks its limits (Limits.check), which kernels do
every few milliseconds, and runs again once the scheduler picks it. The rules:

* A task has a level, by the time that it has used: LEVELS_S. That is processor time, or CLOCK_SHARE of the time by the
  clock if it is more. A task of the lowest level is new. (By the clock alone, a short query that others keep from a
  processor for 20 ms rises, and waits behind long ones. By processor time alone, tasks that wait for another process
  stay new, and keep new ones out.)
* At most `processors` tasks run. New tasks may start beyond that, up to twice as many: short queries do not wait for
  long kernels. While more than `processors` run, a task that is not new is paused at its next check.
* A task is paused if one of a lower level waits. When it rises to a level, those that wait on that level run first. On
  the highest level tasks alternate, each for SLICE_S.
* Of the tasks that wait, the scheduler picks one of the lowest level; among these one of the client with the fewest
  running tasks; among these one of the client that has used the least time lately (halved every HALF_S); of
  that client the one that has been on its level longest. So of twenty equal tasks the first ones end early, few are
  half done and hold memory, and a client with little work does not wait behind all work of others.
* Work that is urgent (`urgent`: from a push to the delivery of its windows) never waits. While there is some, each
  task that is not new is paused at its next check. At most PRECEDENCE of the time is spent so: URGENT_S at once. Beyond
  that, urgent work counts as one running task; one other runs beside it in any case.

Every task runs again:

* Once a task has waited for AGED_S it is picked first for AGED_SLICE_S, whatever runs; one such task at a time.
* A task that has not checked for SILENT_S does not count as running. It may wait for a lock, or for another server. So
  tasks never wait in a circle.

Source: multilevel feedback, as operating systems schedule processes (Corbato and others, 1962). The decision is
docs/decisions/0123-time-slices.md.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import exp2
from typing import NamedTuple

LEVELS_S = (0.02, 0.2, 2.0, 20.0)
"""A task rises to the next level once it has used so much time."""
CLOCK_SHARE = 0.25
"""The share of the time by the clock that a running task uses at least."""
SLICE_S = 5.0
"""How much time a task of the highest level uses before it is paused for another one."""
AGED_S, AGED_SLICE_S = 2.0, 0.05
"""How long a task waits at most before it runs again, if no other one has waited longer; and how long it then runs."""
HALF_S = 1.0
"""The time that a client used so long ago counts half."""
CLIENTS_MAX = 1024
"""Clients whose use is remembered; beyond it the half that has used the least is forgotten."""
SILENT_S = 0.5
"""A task that has not checked for so long does not count as running."""
PRECEDENCE, URGENT_S = 0.2, 0.05
"""The share of time for which tasks are paused for urgent work at most, and for how long at once, in seconds."""
POLL_S = 0.25
"""How often a waiting task checks whether its query was killed."""


@dataclass(slots=True, eq=False)
class Task:
    """One execution. client: the one that it is for, if that is known; used_s: the time that it has used, in seconds,
    up to its current time slice."""

    client: object = None
    used_s: float = 0.0
    began_s: float = field(default=0.0, init=False)
    """When it began to run, or to wait."""
    slice_s: float = field(default=0.0, init=False)
    """The processor time of its thread when its time slice began."""
    rose_s: float = field(default=0.0, init=False)
    """When it rose to its level."""
    checked_s: float = field(default=0.0, init=False)
    """When it last checked."""
    is_aged: bool = field(default=False, init=False)
    """Whether it was picked because it had waited long."""
    picked: threading.Event | None = field(default=None, init=False)
    """Set once it is picked; None while it has not waited yet."""

    def level(self, used_s: float = 0.0) -> int:
        """Return its level. used_s: in its time slice, in seconds."""
        return bisect_right(LEVELS_S, self.used_s + used_s)


class _Use(NamedTuple):
    """The time that a client has used lately, in seconds, as it counted at at_s."""

    used_s: float
    at_s: float

    def now(self, now: float) -> float:
        return self.used_s * exp2((self.at_s - now) / HALF_S)


class Scheduler:
    """processors: as many tasks run at a time; clock: seconds, monotonic; processor_time: of the calling thread, in
    seconds. Used from any thread, but for one task always from the same."""

    def __init__(
        self,
        processors: int,
        clock: Callable[[], float] = time.monotonic,
        processor_time: Callable[[], float] = time.thread_time,
    ) -> None:
        assert processors > 0, processors
        self.processors, self._clock, self._processor_time = processors, clock, processor_time
        self._lock = threading.Lock()
        self._running: set[Task] = set()
        self._waiting: list[Task] = []
        self._clients: Counter[object] = Counter()
        """The running tasks of each client."""
        self._uses: dict[object, _Use] = {}
        self._urgent = 0
        """Parts of urgent work that are under way."""
        self._urgent_s = clock()
        """When the first of them began, or, if there are none, when the last one ended."""
        self._precedence_s = URGENT_S
        """For how long from then on tasks may be paused for urgent work."""
        self.pauses = 0
        """How often a running task was paused."""

    @property
    def counts(self) -> tuple[int, int]:
        """The tasks that run, and those that wait."""
        return len(self._running), len(self._waiting)

    def start(self, task: Task, check: Callable[[], object]) -> None:
        """Let a task run, or wait until it may. check: raises an error if it should not wait any more."""
        with self._lock:
            task.rose_s = self._clock()
            self._wait_for(task)
        try:
            self._await(task, check)
        except BaseException:
            self.stop(task)
            raise

    def stop(self, task: Task) -> None:
        """End a task that runs."""
        with self._lock:
            self._leave(task)

    def has_to_pause(self, task: Task) -> bool:
        """Note that a running task checks; return whether `pause` may have to pause it. Needs no lock."""
        task.checked_s = self._clock()
        if not self._waiting and not self._urgent and len(self._running) <= self.processors:
            return False
        return task.used_s + self._slice_used_s(task) >= LEVELS_S[0]

    def pause(self, task: Task, check: Callable[[], object]) -> None:
        """Pause a running task if others should run before it, and return when it runs again. check: as for start. If
        that raises, the task still counts as running, until `stop`."""
        with self._lock:
            if not self._is_over(task):
                return
            self.pauses += 1
            self._leave(task, is_paused=True)
        self._await(task, check)

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Run the block as urgent work: tasks make room for it."""
        with self._lock:
            self._urgent += 1
            if self._urgent == 1:
                now = self._clock()
                self._precedence_s = min(URGENT_S, self._precedence_s + PRECEDENCE * (now - self._urgent_s))
                self._urgent_s = now
        try:
            yield
        finally:
            with self._lock:
                self._urgent -= 1
                if not self._urgent:
                    now = self._clock()
                    self._precedence_s = max(0.0, self._precedence_s - (now - self._urgent_s))
                    self._urgent_s = now
                if self._waiting:
                    self._pick()

    def _slice_used_s(self, task: Task) -> float:
        """Return the time that a running task has used since its time slice began."""
        return max(self._processor_time() - task.slice_s, CLOCK_SHARE * (self._clock() - task.began_s))

    def _has_run_enough(self, task: Task, used_s: float) -> bool:
        """Tell whether a task of the same level may run before it."""
        return task.level(used_s) > task.level() or (used_s >= SLICE_S and task.level() == len(LEVELS_S))

    # --- with the lock held -------------------------------------------------------------------------------------------

    def _is_over(self, task: Task) -> bool:
        now, used_s = self._clock(), self._slice_used_s(task)
        if task.is_aged:
            return now - task.began_s >= AGED_SLICE_S
        level = task.level(used_s)
        if level > 0 and (self._has_precedence(now) or self._busy(now) > self._room()):
            return True
        level_max = level if self._has_run_enough(task, used_s) else level - 1
        return any(one.level() <= level_max for one in self._waiting)

    def _busy(self, now: float) -> int:
        return sum(now - one.checked_s < SILENT_S for one in self._running)

    def _room(self, factor: int = 1) -> int:
        """Return how many tasks may run, one at least: urgent work counts as one. factor: of the processors."""
        return max(1, factor * self.processors - (self._urgent > 0))

    def _has_precedence(self, now: float) -> bool:
        """Tell whether there is urgent work for which tasks that are not new wait."""
        return self._urgent > 0 and now - self._urgent_s < self._precedence_s

    def _leave(self, task: Task, *, is_paused: bool = False) -> None:
        now, level = self._clock(), task.level()
        used_s = self._slice_used_s(task)
        task.used_s += used_s
        self._uses[task.client] = _Use(self._lately(task.client, now) + used_s, now)
        if len(self._uses) > CLIENTS_MAX:
            ordered = sorted(self._uses, key=lambda client: self._lately(client, now))
            self._uses = {client: self._uses[client] for client in ordered[CLIENTS_MAX // 2 :]}
        if task.level() > level:
            task.rose_s = now
        task.is_aged = False
        self._running.discard(task)
        self._clients[task.client] -= 1
        if not self._clients[task.client]:
            del self._clients[task.client]
        if is_paused:
            self._wait_for(task)
        elif self._waiting:
            self._pick()

    def _wait_for(self, task: Task) -> None:
        task.began_s = self._clock()
        if not self._waiting and self._has_room(task, task.began_s):
            self._run(task, task.began_s)
            return
        task.picked = threading.Event()
        self._waiting.append(task)
        self._pick()

    def _has_room(self, task: Task, now: float) -> bool:
        if task.level() > 0 and self._has_precedence(now):
            return False
        return self._busy(now) < self._room(2 if task.level() == 0 else 1)

    def _run(self, task: Task, now: float) -> None:
        task.began_s = task.checked_s = now
        self._running.add(task)
        self._clients[task.client] += 1

    def _pick(self) -> None:
        """Let those that wait run, as far as there is room."""
        now = self._clock()
        while self._waiting:
            task = min(self._waiting, key=lambda one: self._order(one, now))
            if not self._has_room(task, now):
                task = min(self._waiting, key=lambda one: one.began_s)
                if now - task.began_s < AGED_S or any(one.is_aged for one in self._running):
                    return
                task.is_aged = True
            self._waiting.remove(task)
            self._run(task, now)
            if task.picked is not None:
                task.picked.set()

    def _order(self, task: Task, now: float) -> tuple[int, int, float, float]:
        """Return what says which waiting task is picked first: the smallest."""
        return task.level(), self._clients[task.client], self._lately(task.client, now), task.rose_s

    def _lately(self, client: object, now: float) -> float:
        use = self._uses.get(client)
        return 0.0 if use is None else use.now(now)

    # --- without it ---------------------------------------------------------------------------------------------------

    def _await(self, task: Task, check: Callable[[], object]) -> None:
        try:
            self._wait_until_picked(task, check)
        finally:
            task.slice_s = self._processor_time()

    def _wait_until_picked(self, task: Task, check: Callable[[], object]) -> None:
        if task in self._running:
            return
        assert task.picked is not None
        try:
            while not task.picked.wait(URGENT_S if self._urgent else POLL_S):
                check()
                with self._lock:
                    self._pick()  # those that run may have fallen silent, or precedence has ended
        except BaseException:
            with self._lock:
                if task in self._waiting:
                    self._waiting.remove(task)
                    self._run(task, self._clock())
            raise
