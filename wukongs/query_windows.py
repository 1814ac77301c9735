"""QueryWindows: the windows of one registered query: what they need of the slices, and what a firing reads of them."""

from __future__ import annotations

from dataclasses import dataclass

from csparql.algebra import Query, StreamWindow
from csparql.terms import Term
from store.batch_set import EMPTY, BatchSet
from store.snapshot import tick_sn
from wukongs.core import Core
from wukongs.dataset import Dataset
from wukongs.errors import BudgetExceeded, CompactedError
from wukongs.query_terms import ConstantIds
from wukongs.slice_budget import evicted
from wukongs.slice_filter import ANY_PREDICATE, Predicate
from wukongs.windows import Interval, interval, matched_in

NOTHING_KNOWN = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one firing reads. partial: a window reaches back before what is held; error: it was dropped for want of
    room."""

    dataset: Dataset
    intervals: dict[StreamWindow, Interval]
    partial: bool
    error: BudgetExceeded | None


class QueryWindows:
    """Called with the engine's lock held."""

    def __init__(self, core: Core, query: Query, name: str, constants: ConstantIds) -> None:
        self._core = core
        self._clause = query.dataset
        self._name = name
        self._constants = constants
        self.states = {window.stream: core.stream(window.stream) for window in query.dataset.windows}
        self._reach_ms: dict[str, int] = {}
        for window in query.dataset.windows:
            reach_ms = window.range_ms + window.step_ms
            self._reach_ms[window.stream] = max(reach_ms, self._reach_ms.get(window.stream, reach_ms))
        self.matched: dict[str, set[Predicate]] = {
            stream: {
                constants(pattern.predicate) if isinstance(pattern.predicate, Term) else ANY_PREDICATE
                for pattern in matched_in(query, stream)
            }
            for stream in self.states
        }
        """Stream -> the ids of the predicates that can be matched in its windows, or ANY_PREDICATE."""

    def reach_ms(self, stream: str) -> int:
        """How far before its end a window may begin on a stream, in ms; 0 for a stream that has none."""
        return self._reach_ms.get(stream, 0)

    def keep_after_ms(self, next_ms: int) -> dict[str, int]:
        """Return, per stream, the time up to which no firing from next_ms on needs slices."""
        return {stream: next_ms - reach_ms for stream, reach_ms in self._reach_ms.items()}

    def needs_after(self, next_ms: int | None) -> dict[str, int]:
        """Return, per stream, the stream batch after which the firing at next_ms reads; all if that is not known."""
        found: dict[str, int] = {}
        for window in self._clause.windows:
            after = NOTHING_KNOWN
            if next_ms is not None:
                after = interval(window, self.states[window.stream].batch_ms, next_ms).after
            found[window.stream] = min(after, found.get(window.stream, after))
        return found

    def read(self, at_ms: int) -> Reading:
        """Pick what the firing at a time reads, when everything up to then is sealed."""
        for window in self._clause.windows:
            state = self.states[window.stream]
            state.ring.close(interval(window, state.batch_ms, at_ms).to)
        dataset, intervals = self.dataset(at_ms)
        partial = False
        error = None
        for window, span in intervals.items():
            state = self.states[window.stream]
            missing = [state.ring.lost_to]
            if state.slice_filter is not None:
                missing.append(state.slice_filter.lacks_to(self.matched[window.stream]))
            partial |= any(to is not None and span.after < to for to in missing)
            error = error or evicted(self._name, at_ms, window, span, state)
        return Reading(dataset, intervals, partial, error)

    def dataset(self, at_ms: int) -> tuple[Dataset, dict[StreamWindow, Interval]]:
        """Return the dataset as of a time, of what is held now, and the interval of each window."""
        windows: dict[StreamWindow, BatchSet] = {}
        intervals: dict[StreamWindow, Interval] = {}
        for window in self._clause.windows:
            state = self.states[window.stream]
            span = interval(window, state.batch_ms, at_ms)
            windows[window] = state.ring.window(span.after, span.to)
            intervals[window] = span
        trace = self._core.arrangement.trace
        stored = EMPTY
        if self._clause.default_graphs or self._clause.named_graphs:
            try:
                stored = trace.read(tick_sn(at_ms))
            except CompactedError:
                # Only for a stream that began after the others had passed this time: the oldest that can be read.
                stored = trace.read(trace.since)
        return Dataset(self._clause, stored, windows, self._constants), intervals


def widest_spans(intervals: dict[StreamWindow, Interval]) -> dict[str, tuple[int, int]]:
    """Return stream -> (start_ms, end_ms) of the window of it that reaches back the farthest."""
    widest: dict[str, tuple[int, int]] = {}
    for window, span in intervals.items():
        known = widest.get(window.stream)
        if known is None or span.start_ms < known[0]:
            widest[window.stream] = (span.start_ms, span.end_ms)
    return widest
