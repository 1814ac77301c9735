"""InputVersions: which versions of its inputs the firings of a query read, and up to when these are the same.

* A window moves forward only, so its version is where the tuples that it holds begin and end (reporting.Extent).
* The version of what is read of stored graphs is an SN at which it was the same (answer_cache.StoredVersions).

Firings with equal versions have one answer (answer_cache.py). If they are due already, they are one firing
(stretch.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from wukongs.csparql.algebra import GraphNames, PathPattern, PerGraph, Query, StreamWindow, TripleParts
from wukongs.csparql.walk import parts_of
from wukongs.live.core import Core
from wukongs.live.reporting import Extent
from wukongs.live.slice_filter import ANY_PREDICATE, Predicate
from wukongs.live.stream_state import StreamState
from wukongs.live.windows import interval
from wukongs.store.snapshot import tick_of

READS_MORE = GraphNames | PathPattern | PerGraph | TripleParts
"""Nodes that read stored graphs in other ways than by the predicates of triple patterns."""


class InputVersions:
    """Those of one query. Called with the engine's lock held.

    timed, counted: its windows.
    matched: stream -> predicates that can be matched in its windows.
    stored: those that can be matched in stored graphs; None: it reads none."""

    def __init__(
        self,
        core: Core,
        query: Query,
        timed: Sequence[StreamWindow],
        counted: Sequence[StreamWindow],
        states: Mapping[str, StreamState],
        matched: Mapping[str, set[Predicate]],
        stored: set[Predicate] | None,
    ) -> None:
        self._core, self._timed, self._counted, self._states, self._matched = core, timed, counted, states, matched
        reads_more = any(isinstance(part, READS_MORE) for part in parts_of(query.pattern))
        is_any = reads_more or (stored is not None and ANY_PREDICATE in stored)
        predicates = None if stored is None else frozenset([ANY_PREDICATE] if is_any else stored)
        self._predicates: frozenset[Predicate] | None = predicates

    def of(self, extents: Sequence[Extent], sn: int | None) -> Hashable:
        """Return the versions that a firing reads; None: they are not known. sn: at which it reads stored graphs."""
        if self._predicates is None or sn is None:
            return extents, None
        if self._core.reach is not None:
            return None  # what other nodes store is not known here
        return extents, self._core.answers.stored.at(self._predicates, sn)

    def same_to_ms(self, at_ms: int, to_ms: int, sn: int | None, upper: int) -> int:
        """Return up to when, at most to_ms, firings read the same versions as the one at a time, below a snapshot
        number. to_ms: the query is covered up to there; sn: at which that one reads stored graphs. Called when
        everything up to at_ms is sealed."""
        edges: list[int] = []
        for window in self._timed:
            state = self._states[window.stream]
            ring, batch_ms = state.ring, state.batch_ms
            span = interval(window, batch_ms, at_ms)
            if any(last > span.after for _, last in state.refused):
                return at_ms
            held = ring.extent(span.after, span.to)
            lacks_to = None if state.slice_filter is None else state.slice_filter.lacks_to(self._matched[window.stream])
            behind = (None if held is None else held[0], ring.lost_to, lacks_to)
            edges += [
                _leaves_ms(window, batch_ms, number) for number in behind if number is not None and number > span.after
            ]
            ahead = (ring.next_after(span.to), state.next_waiting)
            edges += [_enters_ms(window, batch_ms, number) for number in ahead if number is not None]
        for window in self._counted:
            state = self._states[window.stream]
            ahead = (state.ring.arrivals.next_edge(at_ms // state.batch_ms, 1), state.next_waiting)
            edges += [number * state.batch_ms for number in ahead if number is not None]
        to_ms = _before(edges, to_ms)
        if sn is not None and to_ms > at_ms:
            to_ms = self._stored_same_to_ms(at_ms, to_ms, sn, upper)
        return max(at_ms, to_ms)

    def _stored_same_to_ms(self, at_ms: int, to_ms: int, sn: int, upper: int) -> int:
        """Return up to when, at most to_ms, firings read the stored graphs as the one at a time does."""
        core = self._core
        if core.reach is not None or any(state.joined_at(at_ms) >= 0 for state in self._states.values()):
            return at_ms
        changes = [entry.lower for entry in core.arrangement.trace.entries() if entry.lower > sn]
        changed_ms = tick_of(min([*changes, upper]) - 1)
        if changed_ms is None:
            return at_ms
        joins = [
            number * state.batch_ms for state in core.streams.values() if (number := state.next_joining) is not None
        ]
        return _before(joins, min(to_ms, core.progress.exposed_ms(), changed_ms))


def _leaves_ms(window: StreamWindow, batch_ms: int, number: int) -> int:
    """Return the first time at which a window has left a stream batch behind."""
    return _closing(window, number * batch_ms + window.range_ms)


def _enters_ms(window: StreamWindow, batch_ms: int, number: int) -> int:
    """Return the first time at which a window that has not reached a stream batch holds it."""
    return _closing(window, number * batch_ms)


def _closing(window: StreamWindow, time_ms: int) -> int:
    return -(-time_ms // window.step_ms) * window.step_ms


def _before(times_ms: Iterable[int], otherwise_ms: int) -> int:
    """Return the last time before all of some times, at most another one."""
    return min(otherwise_ms, min(times_ms, default=otherwise_ms + 1) - 1)
