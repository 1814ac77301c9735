"""QueryChanges: changes of a registered query, each made between two firings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wukongs.live.core import Core
from wukongs.live.firing_times import FiringTimes

FIRING_POLL_S = 0.002
CHANGE_POLL_S = 0.05


@dataclass(slots=True, eq=False)
class QueryChange:
    """A change of a query that waits until the firings before it have been reported.

    after_ms: the event time after which it counts; None: no firing of the query is known yet.
    make: logs the change with the time after which it counts, and makes it. Called with the lock held.
    is_last: it ends the query, so the firings before it are to be reported, and none behind it.
    is_over: whether make was called.
    error: raised by make."""

    after_ms: int | None
    make: Callable[[int | None], object]
    is_last: bool = False
    is_over: bool = False
    error: BaseException | None = None


class QueryChanges:
    """Those of one query. Called with the engine's lock held.

    planned: texts and pauses to come, by the log that is replayed: (LSN, what it says), in order."""

    def __init__(
        self,
        core: Core,
        times: FiringTimes,
        schedule: Callable[[], None],
        apply: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """schedule: lets the query make its changes between two firings; apply: makes a planned one."""
        self._core, self._times, self._schedule, self._apply = core, times, schedule, apply
        self.planned: list[tuple[int, dict[str, Any]]] = []
        self._record_lsn = 0
        """Planned changes up to this record count once the firings before them were repeated."""
        self._waiting: list[QueryChange] = []
        """Changes that wait for the firings before them, in order."""

    def make_after_due(
        self, make: Callable[[int | None], object], within_s: float | None = None, *, is_last: bool = False
    ) -> bool:
        """Have the injector make a change between two firings: after all firings that are due now, before any later
        one. Return whether it was made: not if the query or the engine is closed first, or within_s (seconds) pass.

        make: logs the change with the event time after which it counts, and makes it. Called with the lock held, which
        is released while firings are due. is_last: as in QueryChange. Raises what make raises, and StreamError
        (UnreadBudget.check_may_wait)."""
        core = self._core
        if self._times.is_closed:
            return False
        core.unread.check_may_wait()
        change = QueryChange(self._times.due_to_ms(), make, is_last)
        self._waiting.append(change)
        self._schedule()
        deadline_s = None if within_s is None else time.monotonic() + within_s
        try:
            while not (change.is_over or self._times.is_closed or core.is_closed or core.failure is not None):
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    break
                core.changed.wait(CHANGE_POLL_S)
        finally:
            if change in self._waiting:
                self._waiting.remove(change)
        if change.error is not None:
            raise change.error
        return change.is_over

    def make(self, *, is_settled: bool = False) -> bool:
        """Make the changes for which no firing is left that comes before them. Return whether there was one.

        is_settled: nothing is due that can fire. Called with the lock held, by the injector, or by another thread while
        nothing fires for this query."""
        is_made = False
        while self._make_planned(is_settled=is_settled):
            is_made = True
        is_settled &= self._times.made is None or not self._times.made.is_full
        while self._waiting and not (self._times.holds_text or self._times.is_closed):
            change = self._waiting[0]
            if not (is_settled or self._times.has_fired_to(change.after_ms)):
                break
            if change.is_last and self._times.is_firing:
                break
            self._waiting.remove(change)
            try:
                change.make(change.after_ms)
            except BaseException as error:
                change.error = error
            change.is_over = is_made = True
        return is_made

    def _make_planned(self, *, is_settled: bool) -> bool:
        """Make the first of the planned changes if no firing is left that comes before it, and its record was reached
        or the query is due. Return whether it has. is_settled: as for make_changes."""
        if not self.planned or self._times.holds_text:
            return False
        lsn, change = self.planned[0]
        from_ms, next_ms, is_reached = change["from_ms"], self._times.next_firing(), lsn <= self._record_lsn
        if not is_reached:  # the replay may have fired further than the engine had when it made the change
            covered = self._times.covered_ms()
            is_due = next_ms is not None and covered is not None and next_ms <= covered
            if from_ms is None or not is_due:
                return False
        if not (is_reached and (from_ms is None or is_settled)) and not self._times.has_fired_to(from_ms):
            return False
        self.planned.pop(0)
        self._apply(change)
        return True

    def ends_before(self, at_ms: int) -> bool:
        """Return whether the query ends before the firing at a time. Read with the lock held."""
        return any(one.is_last and one.after_ms is not None and one.after_ms < at_ms for one in self._waiting)

    @property
    def is_any(self) -> bool:
        """Whether a change waits for firings before it. Read with the lock held."""
        return bool(self._waiting or self.planned)

    def reach_record(self, lsn: int) -> None:
        """Make the planned changes up to a record of the log that is replayed. One with firings before it that the
        replay has not repeated yet is made after these."""
        self._record_lsn = lsn
        self._schedule()

    def wait_for_firing(self) -> None:
        """Wait until what was picked is reported. Called with the lock held."""
        core = self._core
        core.unread.check_may_wait()
        while self._times.is_firing and not self._times.is_closed and core.failure is None and not core.is_closed:
            core.changed.wait(FIRING_POLL_S)

    def before(self, first_ms: int, to_ms: int) -> int:
        """Return up to when, at most to_ms, firings from the first one on are before the next change."""
        bounds = [change.after_ms for change in self._waiting[:1]] + [one["from_ms"] for _, one in self.planned[:1]]
        return min([to_ms, *(max(first_ms, int(ms)) for ms in bounds if ms is not None)])
