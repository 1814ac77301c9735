"""Limits: the time, rows of a table and bytes of memory that one execution of a query may take, and has taken.

There is one Limits for each execution. `with limits:` makes it the current one of its thread. All code that works for
the query below (kernels in pieces, loops, functions that make texts) asks `current()`. So code that never mentions
limits is still bounded if the functions that it calls check them.

How bytes are counted (docs/decisions/0014-budgets.md):

* An operator holds bytes before it allocates them (`hold`). That counts tables, hash tables, sort orders, visited
  pairs, and Python objects by their average size (OBJECT_BYTES).
* When an operator is done (`leave`), it gives back all that it held but for its table. Texts that the whole execution
  keeps (`keep`) stay held. So `held` counts the live bytes, or a little more; it never grows with how often operators
  run.
* Held bytes are reserved in the budget that all executions share (wukongs/query/memory.py), in steps, beyond the
  first FREE_BYTES, and given back when the outermost `with` of an execution ends.

An execution that shares the processors with others is a task of the scheduler (wukongs/query/scheduler.py): it may be
paused where it checks its limits.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wukongs.csparql.clock import ask_at_looks
from wukongs.errors import BudgetExceeded, QueryKilled, QueryTimeout, SettingsError
from wukongs.query.memory import FREE_BYTES, SPARE_BYTES, STEP_BYTES, Kind, MemoryBudget, Reservation, budget_of
from wukongs.query.scheduler import Scheduler, Task
from wukongs.settings import Settings

ITEMS_PER_CHECK = 1024
"""So many steps of a loop in Python are done between two looks at the clock."""
OBJECT_BYTES = 200
"""The bytes that a decoded term takes in Python beside its characters, lists and dictionaries that hold it included."""
CHARACTER_BYTES = 4
"""The bytes that a character of a new text takes while the text, its canonical form and its UTF-8 live together."""

Item = TypeVar("Item")


@dataclass(slots=True)
class Limits:
    """rows_max: rows of one table; deadline_s: time.monotonic() at which the time ends, timeout_s after the start;
    bytes_max: bytes that may be held at once. None: no limit. budget: of all executions, in which what is held
    is reserved, None: it is not; kind: of execution; wait_s: how long it may wait for others to give back."""

    rows_max: int = 50_000_000
    deadline_s: float | None = None
    timeout_s: float | None = None
    bytes_max: int | None = None
    held: int = field(default=0, init=False)
    """Bytes."""
    kept: int = field(default=0, init=False)
    """Bytes of `held` that stay until the execution ends."""
    peak: int = field(default=0, init=False)
    """The most that was held so far, in bytes."""
    operator: str = field(default="the query", init=False)
    """The part of the query that runs, for messages."""
    services: tuple[str, ...] = ()
    """The endpoints that SERVICE may ask, and places of such."""
    service_timeout_s: float = 30.0
    """How long it waits for one answer."""
    service_bytes_max: int = 1 << 26
    """How long that may be."""
    budget: MemoryBudget | None = None
    kind: Kind = Kind.QUERY
    wait_s: float = 0.0
    spill_bytes_max: int = 0
    """Bytes of all temporary files that tables beyond the budget may be written to. If there may be some, memory is
    waited for only once the execution is patient."""
    is_patient: bool = field(default=False, init=False)
    """Whether it waits for memory: it holds little, and works in pieces."""
    lacks_bytes: bool = field(default=False, init=False)
    """Whether the last BudgetExceeded was for want of bytes: then temporary files may help."""
    is_killed: bool = field(default=False, init=False)
    task: Task | None = field(default=None, init=False)
    """Its task of the scheduler; None if it never waits for a processor."""
    _reservation: Reservation | None = field(default=None, init=False)
    """Made when it is needed first."""
    _granted: int = field(default=sys.maxsize, init=False)
    """Bytes that may be held without another reservation."""
    _floor: int = field(default=0, init=False)
    """Bytes that stay granted, whatever is held."""
    _outer: list[Limits] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.budget is not None:
            self._granted = FREE_BYTES

    def __enter__(self) -> Limits:
        if self.task is not None and not self._outer:
            scheduler().start(self.task, self._check_time)
        self._outer.append(_OWN.limits)
        _OWN.limits = self
        return self

    def __exit__(self, *_: object) -> None:
        _OWN.limits = self._outer.pop()
        if self._reservation is not None and not self._outer:
            self._reservation.note(0)
            self._granted = FREE_BYTES
        if self.task is not None and not self._outer:
            scheduler().stop(self.task)

    # --- time ---------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Pause while other tasks should run. Raise QueryTimeout after the deadline, QueryKilled once it is killed."""
        if self.task is not None and scheduler().has_to_pause(self.task):
            scheduler().pause(self.task, self._check_time)
        self._check_time()

    @contextlib.contextmanager
    def without_processor(self) -> Iterator[None]:
        """Wait in the block, for another server or for memory: other tasks run meanwhile."""
        task, self.task = self.task, None
        if task is None:
            yield
            return
        scheduler().stop(task)
        try:
            yield
        finally:
            scheduler().start(task, lambda: None)
            self.task = task

    def _check_time(self) -> None:
        if self.deadline_s is not None and time.monotonic() > self.deadline_s:
            if self.is_killed:
                raise QueryKilled(f"the query was killed, at last in {self.operator}: somebody has asked for that")
            raise QueryTimeout(
                f"the query ran longer than timeout_s = {self.timeout_s:g}, at last in {self.operator}: give it more "
                "time (timeout_s, or query_timeout_s of the engine), or make it narrower"
            )

    def kill(self) -> None:
        """Have the execution end as soon as it looks at the clock; called from another thread."""
        self.is_killed, self.deadline_s = True, 0.0

    def within(self, timeout_s: float) -> float:
        """Return how long a step may wait, in seconds: so long, but not beyond the deadline; a moment at least."""
        if self.deadline_s is None:
            return timeout_s
        return min(timeout_s, max(0.001, self.deadline_s - time.monotonic()))

    def polled(self, items: Sequence[Item]) -> Iterator[Item]:
        """Iterate, looking at the clock now and then."""
        for start in range(0, len(items), ITEMS_PER_CHECK):
            self.check()
            yield from items[start : start + ITEMS_PER_CHECK]

    # --- memory -------------------------------------------------------------------------------------------------------

    def expect(self, size: int, what: str = "") -> None:
        """Raise BudgetExceeded if so many bytes more would be too many. what: the thing to make, if not the operator's
        table."""
        if self.bytes_max is not None and self.held + size > self.bytes_max:
            self.lacks_bytes = True
            raise BudgetExceeded(
                f"{what or self.operator} would take {size} bytes beside {self.held} that the query holds, more than "
                f"query_bytes_max = {self.bytes_max}: let patterns share variables, filter earlier, ask for less at a "
                "time, or raise query_bytes_max"
            )

    def hold(self, size: int, what: str = "") -> None:
        """Count bytes that are about to be allocated. Raises BudgetExceeded, as expect."""
        if self.bytes_max is not None and self.held + size > self.bytes_max:
            self.expect(size, what)
        if self.held + size > self._granted:
            self._reserve(self.held + size, what)
        self.held += size
        if self.held > self.peak:
            self.peak = self.held

    def give_back(self, size: int) -> None:
        """Count bytes that were freed."""
        self.held -= size
        if self.held + SPARE_BYTES < self._granted:
            self._release()

    def keep(self, size: int) -> None:
        """Hold bytes until the execution ends. Raises BudgetExceeded."""
        self.hold(size)
        self.kept += size

    def mark(self) -> int:
        """Return the bytes that the operators under way hold, for back_to and leave."""
        return self.held - self.kept

    def back_to(self, mark: int, table_bytes: int) -> None:
        """Give back all that was held since a mark, but for a table."""
        self.held = self.kept + mark + table_bytes
        if self.held > self._granted:
            self._reserve(self.held, "")
        elif self.held + SPARE_BYTES < self._granted:
            self._release()
        if self.held > self.peak:
            self.peak = self.held

    @property
    def room(self) -> int:
        """How many bytes could be held now beside those that are."""
        left = sys.maxsize if self.bytes_max is None else self.bytes_max - self.held
        if self.budget is None:
            return left
        return max(0, min(left, self._granted - self.held + self.budget.room(self.kind)))

    @contextlib.contextmanager
    def reserving(self, size: int) -> Iterator[None]:
        """Reserve bytes for what is held inside, so that it finds them. Reserved bytes that nothing holds are given
        back before, since only an empty reservation waits. Raises BudgetExceeded."""
        self._release()
        self.hold(size)
        self.held -= size
        outer, self._floor = self._floor, max(self._floor, self.held + size)
        try:
            yield
        finally:
            self._floor = outer

    def hand_over(self, size_of: Callable[[], int], kind: Kind = Kind.RESULT) -> Reservation | None:
        """Give back all but the bytes of what stays, a result unless kind says another. Return their reservation; None:
        it needs none."""
        one = self._reservation
        if one is None or not one.size:
            return None
        size, self._granted = size_of(), FREE_BYTES
        if size > FREE_BYTES:
            return one.hand_over(size, kind)
        one.note(0)
        return None

    def _reserve(self, size: int, what: str) -> None:
        """Have so many bytes granted. Raises BudgetExceeded, QueryKilled."""
        budget, one = self.budget, self._reservation
        assert budget is not None, size
        if one is None:
            one = self._reservation = Reservation(budget, self.kind)
        wanted = -(-(size - FREE_BYTES) // STEP_BYTES) * STEP_BYTES - one.size
        is_granted = one.grow(wanted)
        is_waiting = self.wait_s > 0 and (self.is_patient or not self.spill_bytes_max)
        if not is_granted and is_waiting and one.may_wait:
            with self.without_processor():
                is_granted = one.grow(wanted, self.within(self.wait_s), self._check_is_alive)
        if not is_granted:
            self.lacks_bytes = True
            budget.note_refused()
            raise BudgetExceeded(
                f"{what or self.operator} would take {size - self.held} bytes beside {self.held} that this one of the "
                f"{one.kind} holds, and memory_bytes_max = {budget.bytes_max} for all together leaves no room "
                f"(held: {budget.told()}): ask again when others have ended, filter earlier, ask for less at a time, "
                "free results that are not needed any more, or raise memory_bytes_max"
            )
        self._granted = one.size + FREE_BYTES

    def _check_is_alive(self) -> None:
        if self.is_killed:
            self.check()

    def _release(self) -> None:
        """Give back what is granted beyond what is held."""
        one = self._reservation
        if one is not None and one.size:
            needed = max(self.held, self._floor)
            size = max(0, -(-(needed - FREE_BYTES) // STEP_BYTES) * STEP_BYTES)
            if size < one.size:
                one.note(size)
                self._granted = size + FREE_BYTES

    # --- rows ---------------------------------------------------------------------------------------------------------

    def check_rows(self, rows: int, advice: str, what: str = "") -> None:
        """Raise BudgetExceeded if a table would have so many rows. advice: what to do, beside raising the limit."""
        if rows > self.rows_max:
            raise BudgetExceeded(
                f"{what or self.operator} would hold {rows} rows or more, the limit is rows_max = {self.rows_max}. "
                f"{advice}, or raise rows_max"
            )


class Canceller:
    """Ends the executions of its own thread from another one: `with canceller:` around the call, `cancel()` elsewhere.

    It has them killed as Engine.kill does, also those that begin later. client: the one that they are for."""

    def __init__(self, client: object = None) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._limits: list[Limits] = []
        self._is_cancelled = False

    def __enter__(self) -> Canceller:
        _OWN.canceller = self
        return self

    def __exit__(self, *_: object) -> None:
        _OWN.canceller = None

    def watch(self, limits: Limits) -> None:
        with self._lock:
            self._limits.append(limits)
            if self._is_cancelled:
                limits.kill()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            for limits in self._limits:
                limits.kill()


def is_lack_of_memory(error: BaseException | None) -> bool:
    """Whether a MemoryError is behind an error. If one comes while numba boxes a kernel's result, Python raises
    SystemError from it."""
    while isinstance(error, SystemError):
        error = error.__cause__ or error.__context__
    return isinstance(error, MemoryError)


@contextlib.contextmanager
def named_lack_of_memory(describe: Callable[[], str]) -> Iterator[None]:
    """Raise BudgetExceeded in the place of a MemoryError. describe(): the thing that found none, for the message."""
    try:
        yield
    except (MemoryError, SystemError) as error:
        if not is_lack_of_memory(error):
            raise
        raise BudgetExceeded(
            f"{describe()}: make it narrower, or end other work; query_bytes_max says what a query may take"
        ) from error


class _Current(threading.local):
    def __init__(self) -> None:
        self.limits = self.none = Limits()
        self.canceller: Canceller | None = None


_OWN = _Current()


class _Processors:
    """The scheduler of this process; another one in a forked child, where nothing runs yet."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        self.scheduler = Scheduler(len(usable))


_PROCESSORS = _Processors()


def scheduler() -> Scheduler:
    """Return the scheduler of this process."""
    return _PROCESSORS.scheduler


def current() -> Limits:
    """Return the limits of the execution that this thread works for; without one, limits that only bound rows."""
    return _OWN.limits


def is_bound() -> bool:
    """Return whether this thread works for an execution with limits, or for a request that may be cancelled."""
    return _OWN.limits is not _OWN.none or _OWN.canceller is not None


ask_at_looks(lambda: _OWN.limits.check())


def check_seconds(timeout_s: object) -> None:
    """Raise SettingsError for a timeout that is neither None nor a number."""
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and timeout_s == timeout_s
    if timeout_s is not None and not is_number:
        raise SettingsError(f"timeout_s = {timeout_s!r:.100}: expected seconds, as 2.5, or None")


def waiting(timeout_s: float | None) -> contextlib.AbstractContextManager[object]:
    """Return a context in which all waits for other nodes together take no longer than so many seconds (Limits.within);
    None: each as long as it may."""
    check_seconds(timeout_s)
    if timeout_s is None:
        return contextlib.nullcontext()
    return Limits(deadline_s=time.monotonic() + timeout_s, timeout_s=timeout_s)


def limits_of(
    settings: Settings, timeout_s: float | None, started_s: float | None = None, kind: Kind = Kind.QUERY
) -> Limits:
    """Return the limits of one execution. timeout_s: 0 or less for none, None for query_timeout_s of the settings;
    started_s: time.monotonic() at which it began, by default now; kind: of execution, which says whether it waits for
    memory."""
    check_seconds(timeout_s)
    given_s = settings.query_timeout_s if timeout_s is None else timeout_s
    began_s = time.monotonic() if started_s is None else started_s
    limits = Limits(
        settings.rows_max, bytes_max=settings.query_bytes_max, budget=budget_of(settings.memory_bytes_max), kind=kind
    )
    limits.wait_s, limits.spill_bytes_max = settings.memory_wait_ms / 1000, settings.spill_bytes_max
    limits.services, limits.service_bytes_max = settings.service_allowed, settings.service_bytes_max
    limits.service_timeout_s = settings.service_timeout_ms / 1000
    if given_s > 0:
        limits.deadline_s, limits.timeout_s = began_s + given_s, given_s
    return watched(limits)


def scheduled(limits: Limits, used_s: float = 0.0) -> Limits:
    """Return limits whose execution shares the processors. used_s: how long parts before it have run.

    Not for code that holds locks that others need: a paused execution would keep them."""
    canceller = _OWN.canceller
    limits.task = Task(None if canceller is None else canceller.client, used_s)
    return limits


def watched(limits: Limits) -> Limits:
    """Return limits that are killed once the Canceller of this thread is, if it has one."""
    if _OWN.canceller is not None:
        _OWN.canceller.watch(limits)
    return limits
