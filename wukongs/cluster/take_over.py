"""Taking over: where a query goes on whose home is gone (docs/decisions/0072-homes-that-are-gone.md).

It fires again from where some reader may lack windows, over the same slices and snapshots, so with the same rows.
Windows of which something is not held any more are not made: their readers are told of a gap.
"""

from __future__ import annotations

from typing import NamedTuple

from wukongs.csparql.algebra import Query, StreamWindow
from wukongs.live.core import NOT_YET_MS, Core
from wukongs.live.reporting import Reporter
from wukongs.live.window_log import Come, Gap
from wukongs.live.windows import firing_step, first_firing, first_multiple, reads_stored

_LOOKS_BACK = ("non-empty content", "content change")
"""Policies by which a firing may be compared with one that is not the one before."""


class Place(NamedTuple):
    """Where a query goes on: after_ms: it fires after this time; come: up to there its readers have its windows, or are
    told that they lack some."""

    after_ms: int
    come: Come


def needs_after_ms(query: Query, since_ms: int) -> int:
    """Return a time up to which firings after another one, and the one before them, need no slices."""
    step_ms = firing_step(query) or 0
    reach_ms = max((one.range_ms + one.step_ms for one in query.dataset.windows if not one.is_counted), default=0)
    return since_ms - reach_ms - step_ms


def place_of(
    core: Core, query: Query, after_ms: int, lacks_ms: int, decided_ms: int | None, begun_ms: int | None, shown_ms: int
) -> Place:
    """Return where a query goes on that fires next after a time. Called with the lock held, when whole slices are here.

    lacks_ms: up to there readers have its windows; decided_ms: up to there readers of what it makes have that;
    begun_ms: it has fired nothing up to there (None: that is not known); shown_ms: what is later is held."""
    registration = query.registration
    assert registration is not None
    firings, is_compared = _Firings(core, query, shown_ms), Reporter(registration).is_compared
    begin_ms = after_ms if decided_ms is None else min(after_ms, decided_ms)
    at_ms = firings.next_whole(begin_ms)
    from_ms = at_ms - 1
    if is_compared and (begun_ms is None or at_ms != firings.next(begun_ms)):
        before_ms = firings.before(from_ms)
        while before_ms is None or not firings.is_whole(before_ms) or firings.next(before_ms) != at_ms:
            before_ms, at_ms = at_ms, firings.next_whole(at_ms)
        from_ms = before_ms - 1
        if any(one in _LOOKS_BACK for one in registration.report):
            from_ms = min(from_ms, firings.first_whole(begun_ms) - 1)
    gap = firings.gap(min(lacks_ms, after_ms), max(at_ms, after_ms + 1))
    return Place(from_ms, Come(max(after_ms, at_ms - 1), gap))


def begun_with_streams(core: Core, query: Query) -> int | None:
    """Return the time behind which a query fires first that was registered before its streams began; None: they have
    not begun yet."""
    states = [core.stream(window.stream) for window in query.dataset.windows]
    first_ms = first_firing(firing_step(query) or 1, states, None)
    return None if first_ms is None else first_ms - 1


class _Firings:
    """The firings of a query, and what is held of them. held_ms: some of what an earlier one reads is gone."""

    def __init__(self, core: Core, query: Query, shown_ms: int) -> None:
        self._core, self._query, self._shown_ms = core, query, shown_ms
        self._step_ms = firing_step(query)
        self._states = {window.stream: core.stream(window.stream) for window in query.dataset.windows}
        self.held_ms = max((self._held_ms(one) for one in query.dataset.windows), default=NOT_YET_MS)

    def _held_ms(self, window: StreamWindow) -> int:
        """Return a time up to which a window of time lacks some of what it has held."""
        state = self._states[window.stream]
        lost_to = state.ring.lost_to
        if window.is_counted or lost_to is None:
            return NOT_YET_MS
        return first_multiple(window.step_ms, lost_to * state.batch_ms + window.range_ms, is_strict=False) - 1

    def next(self, time_ms: int) -> int:
        """Return the first firing after a time; of windows that count, the next end of a stream batch if there is none
        yet."""
        if self._step_ms is not None:
            return first_multiple(self._step_ms, time_ms, is_strict=True)
        ends = []
        for window in self._query.dataset.windows:
            state = self._states[window.stream]
            number = state.ring.arrivals.next_edge(time_ms // state.batch_ms, window.step_triples)
            ends.append((time_ms // state.batch_ms + 1 if number is None else number) * state.batch_ms)
        return min(ends)

    def before(self, time_ms: int) -> int | None:
        """Return the last firing up to a time; None: windows that count do not tell."""
        return None if self._step_ms is None else time_ms // self._step_ms * self._step_ms

    def next_whole(self, time_ms: int) -> int:
        """Return the first firing after a time of which everything is held."""
        at_ms = self.next(max(time_ms, self.held_ms))
        while not self.is_whole(at_ms):
            at_ms = self.next(at_ms)
        return at_ms

    def first_whole(self, begun_ms: int | None) -> int:
        """Return the first firing of which everything is held. begun_ms: there is none up to there."""
        firsts = (state.first_ms for state in self._states.values() if state.first_ms is not None)
        first_ms = min(firsts, default=self._shown_ms) - 1 if begun_ms is None else begun_ms
        return self.next_whole(first_ms)

    def is_whole(self, at_ms: int) -> bool:
        """Tell whether all slices are held that a firing reads, and the stored graph as it was."""
        if at_ms <= self.held_ms:
            return False
        if at_ms > self._shown_ms:
            return True
        for window in self._query.dataset.windows:
            if window.is_counted:
                state = self._states[window.stream]
                arrivals = state.ring.arrivals
                after, to = arrivals.span(at_ms // state.batch_ms, window.range_triples, window.step_triples)
                if after < min(to, arrivals.held_after):
                    return False
        if not reads_stored(self._query):
            return True
        sn = self._core.sn_at(at_ms, self._states.values())
        return self._core.arrangement.trace.readable_from(sn) == sn

    def gap(self, after_ms: int, to_ms: int) -> Gap | None:
        """Return the firings after a time and before another one as a gap, None if there are none."""
        first_ms = last_ms = self.next(after_ms)
        count = 0
        if self._step_ms is not None:
            last_ms = first_multiple(self._step_ms, to_ms, is_strict=False) - self._step_ms
            count = (last_ms - first_ms) // self._step_ms + 1
        else:
            at_ms = first_ms
            while at_ms < to_ms:
                count, last_ms, at_ms = count + 1, at_ms, self.next(at_ms)
        return Gap(first_ms, last_ms, count, count) if count > 0 else None
