"""FiringTimes: when a registered query fires, and what of its streams it needs until then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from wukongs.live.core import Core
from wukongs.live.made_streams import Made, MadeStreams
from wukongs.live.query_text import QueryText
from wukongs.live.stream_state import FOREVER_MS, StreamState
from wukongs.live.window_log import LAST_MS
from wukongs.live.windows import Watermark, covered_ms, firing_period, first_firing, first_multiple, stored_ms


@dataclass(frozen=True, slots=True)
class OffloadedFiring:
    """A firing in the slow lane: its time, the text of the query there, and functions to call once it is reported."""

    at_ms: int
    text: QueryText
    then: list[Callable[[], object]] = field(default_factory=list)


class FiringTimes:
    """Those of one query. Called with the engine's lock held.

    text: the one that it has now.
    from_ms: the event time from which it counts (query_windows.counts_from).
    next_ms: the next firing; of a query without step_ms, the earliest time that it may have. None: not known yet.
    made: the stream that it makes, once another query of this engine reads it, or if it was declared before.
    is_firing: a firing was picked, and has not been reported yet.
    picked_ms: the last that was picked, the first one that was not reported if there are several.
    offloaded: the firings in the slow lane that were not reported yet, in order."""

    def __init__(
        self, core: Core, made_streams: MadeStreams, text: QueryText, from_ms: int | None, moved: Callable[[], None]
    ) -> None:
        """moved: called when it fires next at another time."""
        self._core, self._made_streams, self._moved = core, made_streams, moved
        self.text = text
        self.from_ms = from_ms
        self.next_ms: int | None = None
        self.made: Made | None = None
        self.is_paused = False
        self.is_closed = False
        self.is_firing = False
        self.picked_ms = -LAST_MS
        self.offloaded: deque[OffloadedFiring] = deque()

    def pick(self, at_ms: int, *, is_offloaded: bool) -> None:
        """Note that the firing at a time was picked. is_offloaded: for the slow lane."""
        if not self.offloaded:
            self.picked_ms = at_ms
        if is_offloaded:
            self.offloaded.append(OffloadedFiring(at_ms, self.text))
        self.is_firing = True

    @property
    def holds_text(self) -> bool:
        """Whether a firing that was picked needs the text of now. Firings in the slow lane have their own."""
        return self.is_firing and not self.offloaded

    def report_offloaded(self) -> None:
        """Note that the first firing in the slow lane was reported."""
        reported = self.offloaded.popleft()
        self.is_firing = bool(self.offloaded)
        if self.offloaded:
            self.picked_ms = self.offloaded[0].at_ms
        for act in reported.then:
            act()

    def do_in_order(self, act: Callable[[], object]) -> None:
        """Call a function once all firings that were picked for the slow lane are reported. It is called with the lock
        held."""
        if self.offloaded:
            self.offloaded[-1].then.append(act)
        else:
            act()

    def due(self) -> int | None:
        """Return the time of the next firing if it is covered, None if not. Called with the lock held."""
        next_ms, covered = self.next_firing(), self.covered_ms()
        return None if next_ms is None or covered is None or next_ms > covered else next_ms

    def covered_ms(self) -> int | None:
        """Return the time up to which the query may fire. None: one of its streams has not begun, or what it has
        brought has to be taken first."""
        if self.made is not None and self.made.is_full:
            return None
        states = self.text.states.values()
        covered = covered_ms(self.text.step_ms or 1, states)
        if covered is None or not self.text.windows.reads_stored:
            return covered
        passed = stored_ms(self._core.clock_ms(), states)
        return None if passed is None else min(covered, passed)

    def next_firing(self) -> int | None:
        """Return the time of the next firing, None while it cannot be told."""
        if self.next_ms is None:
            first_ms = first_firing(self.text.step_ms or 1, self.text.states.values(), self.from_ms)
            if first_ms is not None:
                self.fire_next(first_ms)
        if self.next_ms is None or self.text.step_ms is not None:
            return self.next_ms
        return self.text.windows.next_edge_ms(self.next_ms)

    def skip_to(self, time_ms: int) -> None:
        """Go on with the first firing after a time."""
        self.fire_next(first_multiple(self.text.step_ms or 1, time_ms, is_strict=True))

    def go_on_from(self, other: FiringTimes, since_ms: int) -> None:
        """Stand where another query stands that has fired for this one. since_ms: its first firing, or a time
        before all. Called with the lock held."""
        next_ms, last_ms = other.next_firing(), other.text.last_ms
        if next_ms is not None:
            self.skip_to(max(next_ms, since_ms) - (self.text.step_ms or 1))
        if last_ms is not None and last_ms >= since_ms:
            self.text.last_ms = last_ms

    def fire_next(self, next_ms: int | None) -> None:
        self.next_ms = next_ms
        self._moved()

    def fired_ms(self) -> int | None:
        """Return a time before which all firings were picked, None if it has none yet. Called with the lock held."""
        self.next_firing()
        return None if self.next_ms is None else self.next_ms - 1

    def has_fired_to(self, after_ms: int | None) -> bool:
        """Return whether all firings up to a time, None: no firing is known yet, were picked."""
        if after_ms is None:
            return True
        next_ms = self.next_firing()
        if self.next_ms is None or (next_ms is not None and next_ms <= after_ms):
            return False
        if self.text.step_ms is not None:
            return True
        waiting = [
            (state.next_slice(), state.batch_ms) for state in self.text.states.values()
        ]  # their edges are not known
        return all(number is None or number * batch_ms > after_ms for number, batch_ms in waiting)

    def has_reported(self, to_ms: int) -> bool:
        """Return whether all its firings up to a time that are due have been reported. Called with the lock held."""
        due_ms = self.due()
        return not (self.is_firing and self.picked_ms <= to_ms) and (due_ms is None or due_ms > to_ms)

    def decided_ms(self) -> int | None:
        """Implement Producer.decided_ms."""
        if self.is_paused or self.is_closed or self.is_firing:
            return None
        next_ms, states = self.next_firing(), self.text.states.values()
        covered = covered_ms(self.text.step_ms or 1, states)
        is_over = covered is None or next_ms is None or next_ms > covered
        if is_over and all(state.is_ended for state in states):
            return FOREVER_MS
        if self.next_ms is None or covered is None or self.text.step_ms is not None:
            return None if next_ms is None else next_ms - 1
        to_ms = self.covered_ms()  # it fires where an edge moves, and so far none has moved after its last firing
        return to_ms if to_ms is None or next_ms is None else min(to_ms, next_ms - 1)

    def due_to_ms(self) -> int | None:
        """Return the end of the last window that is due or was picked, by what its streams have closed so far; None if
        no firing is known yet. Other threads' progress does not change it. Called with the lock held."""
        next_ms, step_ms = self.settled_next_ms(), self.text.step_ms or 1
        if next_ms is None:
            return None
        covered = covered_ms(step_ms, self._settled_watermarks())
        if covered is not None and self.text.windows.reads_stored:
            clock_ms = self._core.progress.settled_clock_ms(self._core)
            covered = None if clock_ms is None else min(covered, clock_ms)
        if covered is None or covered < next_ms:
            return next_ms - step_ms
        return next_ms + (covered - next_ms) // step_ms * step_ms

    def _settled_watermarks(self) -> list[Watermark]:
        return [self._made_streams.settled_watermark(state) for state in self.text.states.values()]

    def settled_next_ms(self) -> int | None:
        """Implement Producer.settled_next_ms. Of a query without step_ms: the earliest time that it may have."""
        self.next_firing()
        if self.next_ms is not None:
            return self.next_ms
        watermarks = self._settled_watermarks()
        known = [one.first_ms for one in watermarks if one.first_ms is not None]
        if not known or any(one.first_ms is None and one.cover_ms != FOREVER_MS for one in watermarks):
            return None
        return first_multiple(self.text.step_ms or 1, min(known), is_strict=False)

    def settled_decided_ms(self) -> tuple[int | None, bool]:
        """Implement Producer.settled_decided_ms."""
        return self.due_to_ms(), all(one.cover_ms == FOREVER_MS for one in self._settled_watermarks())

    def change_ms(self, after_ms: int | None) -> int | None:
        """Return the event time after which a change counts that is made now: after_ms, unless firings before it are
        left; None: no firing is known yet."""
        next_ms = self.next_firing()
        if self.next_ms is not None and after_ms is not None and (next_ms is None or after_ms < next_ms):
            return after_ms
        return None if next_ms is None else next_ms - (self.text.step_ms or 1)

    def waits_on(self) -> Collection[str]:
        """Return the streams that have to come further, or to begin, before the query fires next. Called with the lock
        held."""
        if self.is_closed or self.is_paused or self.due() is not None:
            return ()
        not_begun = [name for name, state in self.text.states.items() if not (state.is_started or state.is_ended)]
        if not_begun:
            return not_begun
        next_ms, asked = self.next_firing(), list(self.text.states.values())
        if self.text.windows.reads_stored:
            asked += [state for state in self._core.streams.values() if state.counts]
        covers = {state.iri: state.cover_ms for state in asked}
        return [name for name, ms in covers.items() if ms is None or (next_ms is not None and ms < next_ms)]

    def reads_sn(self, at_ms: int) -> int:
        """Return the snapshot number that the firing at a time reads once everything up to then is sealed; -1 if it
        reads no stored graph."""
        sn = self.text.windows.sn_due(at_ms)
        return -1 if sn is None else sn

    def keep_after_ms(self) -> dict[str, int]:
        """Return, per stream, the time up to which this query needs no slices any more; none while it cannot tell."""
        self.next_firing()
        next_ms = self.next_ms
        if next_ms is None:  # it fires first with the earliest of its streams, of which these are some
            next_ms = min(
                (state.first_ms for state in self.text.states.values() if state.first_ms is not None), default=None
            )
        return {} if next_ms is None else self.text.windows.keep_after_ms(next_ms)

    def needs_after(self) -> dict[str, int]:
        """Return, per stream, the stream batch after which the next firing reads; all while it cannot tell."""
        return self.text.windows.needs_after(self.next_ms)

    def arrivals_needed(self) -> dict[str, int]:
        """Return, per stream with a window that counts, the arrival after which the next firing reads."""
        return self.text.windows.arrivals_needed(self.next_ms)

    def arrivals_needed_ms(self) -> dict[str, int]:
        """Return, as arrivals_needed, the times after which these have come."""
        return self.text.windows.arrivals_needed_ms(self.next_ms)

    @property
    def period_ms(self) -> int:
        """The period at whose multiples it fires: of one whose windows all count, what divides its stream batches."""
        return firing_period(self.text.step_ms, self.text.states.values())

    @property
    def history_ms(self) -> int:
        """How long slices of all its streams are kept."""
        return min((state.history_ms for state in self.text.states.values()), default=0)

    def reads_joins_of(self, state: StreamState) -> bool:
        """Return whether a firing reads the snapshot at which a stream batch of this stream has joined."""
        return self.text.windows.reads_stored and state.iri in self.text.states
