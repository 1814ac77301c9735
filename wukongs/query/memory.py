"""MemoryBudget: the bytes that all executions, loads, results and sessions of a process may hold together.

Each of them has a Reservation, which grows before memory is allocated and shrinks after it was freed. There is one
budget for all engines of a process that have the same `memory_bytes_max`; 0, the default, is half of the memory that
the machine, the process's cgroup and its resource limits leave beside the stores (`free_bytes`), LEAST_BYTES at least.

Invariants:

* `reserved_bytes` is the sum of all reservations. It is at most `bytes_max`, unless something was noted that was
  allocated already (`Reservation.note`): results that are handed over, which were reserved as tables before, windows
  that wait for readers, and bodies of requests, which have bounds of their own.
* One-shot queries, loads and results together leave an eighth to updates, firings and rules. So heavy queries do not
  make windows fail.
* An execution's first FREE_BYTES are not reserved: a point query takes no lock. There are as many of them as threads.

**No two wait for each other.** Only queries and loads wait, and a reservation waits only if it is empty, or if it is
the oldest of those that are not. Nothing waits for an empty one, since it holds nothing. Of the others one alone may
wait, the oldest: it waits for younger ones, which do not wait but fail at once, and for results and windows, which wait
for nobody. So there is no circle of waiting. The oldest stays so until it is empty, and only then another one is the
oldest, so at no time two that hold something wait. All waits end after `wait_s`, by name.

No lock of an engine is held during a wait: queries read a snapshot, and loads reserve before they take a lock.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

LEAST_BYTES = 256 << 20
FREE_BYTES = 1 << 20
STEP_BYTES = 1 << 20
"""Reservations grow by multiples of this, so that many small ones take the lock rarely."""
SPARE_BYTES = 4 << 20
"""A reservation that is larger by this than what is held shrinks."""
_LOOK_S = 0.05
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""A larger limit of a cgroup means that there is none."""


class Kind(StrEnum):
    """The kinds of holders of memory, for messages and figures."""

    QUERY = "queries"
    UPDATE = "updates"
    FIRING = "firings"
    RULES = "rules"
    LOAD = "loads"
    RESULT = "results"
    WINDOWS = "unread windows"
    REQUEST = "requests"


_WAITING = frozenset((Kind.QUERY, Kind.LOAD))
_LEAVING = frozenset((Kind.QUERY, Kind.LOAD, Kind.RESULT))
"""Those that leave an eighth to others."""


class MemoryBudget:
    """bytes_max: of all reservations; 0: measured, now and whenever `measure` is called."""

    def __init__(self, bytes_max: int) -> None:
        self._is_measured = not bytes_max
        self.bytes_max = bytes_max
        self.reserved_bytes = 0
        self.peak_bytes = 0
        """The most that was reserved."""
        self.waiting = 0
        """Reservations that wait."""
        self.refused = 0
        """How often one was refused. Queries go on in pieces then, if they can."""
        self.spilled_bytes = 0
        """Bytes of temporary files now."""
        self.spilled_total_bytes = 0
        """Bytes written to temporary files since the beginning."""
        self._by_kind: Counter[Kind] = Counter()
        self._holding: dict[int, None] = {}
        """Tickets of those of _WAITING that are not empty, the oldest first."""
        self._tickets = itertools.count()
        self._changed = threading.Condition()
        self._left: deque[tuple[Kind, int, int]] = deque()
        """The reservations that were collected as garbage, to be subtracted: a destructor takes no lock."""
        self._removed: deque[int] = deque()
        """Bytes of temporary files that were removed, to be subtracted."""
        self.measure()

    def measure(self) -> None:
        """Measure anew how much there is, unless it was given: a store was opened."""
        if self._is_measured:
            with self._changed:
                self._subtract_left()
                self.bytes_max = max(LEAST_BYTES, (free_bytes() + self.reserved_bytes) // 2)

    def stats(self) -> dict[str, int | dict[str, int]]:
        """Return the figures of the budget (bytes; waiting, refused: counts)."""
        with self._changed:
            self._subtract_left()
            return {
                "bytes_max": self.bytes_max,
                "reserved_bytes": self.reserved_bytes,
                "free_bytes": max(0, self.bytes_max - self.reserved_bytes),
                "peak_bytes": self.peak_bytes,
                "held_bytes": {kind.value: size for kind, size in sorted(self._by_kind.items()) if size},
                "waiting": self.waiting,
                "refused": self.refused,
                "spilled_bytes": self.spilled_bytes,
                "spilled_total_bytes": self.spilled_total_bytes,
            }

    def room(self, kind: Kind) -> int:
        """Return how many bytes a reservation of a kind could grow by now."""
        with self._changed:
            self._subtract_left()
            return max(0, self._most(kind) - self.reserved_bytes)

    def told(self) -> str:
        """Return who holds how much, for messages."""
        stats = self.stats()["held_bytes"]
        assert isinstance(stats, dict)
        return ", ".join(f"{kind} {size}" for kind, size in stats.items()) or "nobody anything"

    def note_refused(self) -> None:
        with self._changed:
            self.refused += 1

    def add_spilled(self, size: int, bytes_max: int) -> bool:
        """Count bytes of a temporary file that are about to be written. Return whether all are within bytes_max; if
        not, these do not count."""
        with self._changed:
            self._subtract_left()
            if self.spilled_bytes + size > bytes_max:
                return False
            self.spilled_bytes += size
            self.spilled_total_bytes += size
            return True

    def remove_spilled(self, size: int) -> None:
        """Count bytes of a temporary file no more, whoever holds the lock: also when the last array over it is
        collected."""
        self._removed.append(size)

    def _most(self, kind: Kind) -> int:
        return self.bytes_max - (self.bytes_max >> 3) if kind in _LEAVING else self.bytes_max

    def _subtract_left(self) -> None:
        """With the lock held."""
        while self._removed:
            self.spilled_bytes -= self._removed.popleft()
        while self._left:
            kind, size, ticket = self._left.popleft()
            self._holding.pop(ticket, None)
            self._count(kind, -size)

    def _count(self, kind: Kind, change: int) -> None:
        """With the lock held."""
        self._by_kind[kind] += change
        self.reserved_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.reserved_bytes)
        if change < 0 and self.waiting:
            self._changed.notify_all()

    # --- called by Reservation ----------------------------------------------------------------------------------------

    def _grow(self, one: Reservation, size: int, wait_s: float, check: Callable[[], object]) -> bool:
        until_s = None
        with self._changed:
            while True:
                self._subtract_left()
                if self.reserved_bytes + size <= self._most(one.kind):
                    self._set(one, one.size + size)
                    return True
                now_s = time.monotonic()
                until_s = now_s + wait_s if until_s is None else until_s
                if now_s >= until_s or one.size + size > self._most(one.kind) or not self._may_wait(one):
                    return False
                self.waiting += 1
                try:
                    self._changed.wait(min(_LOOK_S, until_s - now_s))
                finally:
                    self.waiting -= 1
                check()

    def _may_wait(self, one: Reservation) -> bool:
        """With the lock held."""
        return one.kind in _WAITING and (not one.size or next(iter(self._holding)) == one.ticket)

    def _set(self, one: Reservation, size: int) -> None:
        """With the lock held."""
        self._count(one.kind, size - one.size)
        one.size = size
        if one.kind in _WAITING:
            if not size:
                self._holding.pop(one.ticket, None)
            elif one.ticket not in self._holding:
                one.ticket = next(self._tickets)
                self._holding[one.ticket] = None


class Reservation:
    """The bytes that one execution, load, result or session has reserved. Given back when it is collected, at last."""

    __slots__ = ("budget", "kind", "size", "ticket")

    def __init__(self, budget: MemoryBudget, kind: Kind) -> None:
        self.budget, self.kind, self.size, self.ticket = budget, kind, 0, -1

    def grow(self, size: int, wait_s: float = 0.0, check: Callable[[], object] = lambda: None) -> bool:
        """Reserve bytes more; return whether they are. wait_s: how long one that may wait does; check: called meanwhile
        now and then, may raise."""
        return self.budget._grow(self, size, wait_s, check)

    @property
    def may_wait(self) -> bool:
        """Whether it would wait if it found no room now."""
        with self.budget._changed:
            return self.budget._may_wait(self)

    @property
    def size_max(self) -> int:
        """How large it may be now, as others leave it."""
        budget = self.budget
        with budget._changed:
            budget._subtract_left()
            return max(0, budget._most(self.kind) - budget.reserved_bytes + self.size)

    def note(self, size: int) -> None:
        """Be so large from now on, whatever there is: smaller, or of what is allocated already."""
        if size != self.size:
            with self.budget._changed:
                self.budget._set(self, size)

    def hand_over(self, size: int, kind: Kind) -> Reservation:
        """Return a reservation of so many bytes for what stays; this one is empty then."""
        other = Reservation(self.budget, kind)
        with self.budget._changed:
            self.budget._set(self, 0)
            self.budget._set(other, size)
        return other

    def __del__(self) -> None:
        if self.size:
            self.budget._left.append((self.kind, self.size, self.ticket))


# --- the budgets of this process --------------------------------------------------------------------------------------

_budgets: dict[int, MemoryBudget] = {}
_making = threading.Lock()


def budget_of(bytes_max: int) -> MemoryBudget:
    """Return the budget of all engines of this process with that setting (0: measured)."""
    found = _budgets.get(bytes_max)
    if found is None:
        with _making:
            found = _budgets[bytes_max] = _budgets.get(bytes_max) or MemoryBudget(bytes_max)
    return found


def _in_child() -> None:
    global _making
    _budgets.clear()  # what the parent's threads hold is not held here
    _making = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def free_bytes() -> int:
    """Return the bytes that this process could still take: what the machine, its cgroups and its resource limits leave.
    Without any of these files: LEAST_BYTES."""
    left = [_of_machine(), *_of_cgroups(), *_of_limits()]
    return min((one for one in left if one is not None), default=LEAST_BYTES)


def _of_machine() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return _kilobytes(_PROC / "meminfo").get("MemAvailable")
    return None


def _of_limits() -> list[int]:
    """RLIMIT_AS and RLIMIT_DATA, less what is taken of them."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        taken = _kilobytes(_PROC / "self" / "status")
        for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                found.append(max(0, most - taken[name]))
    return found


def _of_cgroups() -> list[int]:
    """The memory limits of this process's cgroup and those above it (version 2, or 1), less what is taken of them."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / "self" / "cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                top, most, taken = _CGROUPS, "memory.max", "memory.current"
            elif "memory" in controllers.split(","):
                top, most, taken = _CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            else:
                continue
            folder = top / path.lstrip("/")
            # In a container the path may be that of the host: then the top is the container's own.
            for place in (folder, *folder.parents):
                with contextlib.suppress(OSError, ValueError):  # "max" is no number
                    limit = int((place / most).read_text())
                    if limit < _NO_LIMIT:
                        # The page cache counts as taken, and is given up when memory lacks.
                        cached = _cached(place)
                        found.append(max(0, limit - max(0, int((place / taken).read_text()) - cached)))
                if place == top:
                    break
    return found


def _cached(place: Path) -> int:
    for line in (place / "memory.stat").read_text().splitlines():
        name, size = line.split()
        if name in ("inactive_file", "total_inactive_file"):
            return int(size)
    return 0


def _kilobytes(file: Path) -> dict[str, int]:
    """Return the sizes of a file of /proc, in bytes."""
    sizes = {}
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            sizes[name] = 1024 * int(rest[:-3])
    return sizes
