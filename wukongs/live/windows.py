"""Windows: `[RANGE r STEP s]` as intervals of stream batches, and when a query fires."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

from wukongs.csparql.algebra import DefaultGraph, PathPattern, Query, StreamWindow, Timestamp, TriplePattern
from wukongs.csparql.automaton import automaton_of
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import field_names
from wukongs.errors import StreamError
from wukongs.live.stream_state import FOREVER_MS, StreamState


@dataclass(frozen=True, slots=True)
class Interval:
    """The window (start_ms, end_ms]: stream batches after < k <= to."""

    start_ms: int
    end_ms: int
    after: int
    to: int


class Watermark(NamedTuple):
    """The progress of a stream. The fields are those of StreamState.

    first_ms: None also while an earlier tuple may still come."""

    cover_ms: int | None
    closed_ms: int | None
    first_ms: int | None

    @staticmethod
    def of_stream(state: StreamState) -> Watermark:
        """Return the progress of a stream by now."""
        return Watermark(state.cover_ms, state.closed_ms, None if state.may_begin_earlier else state.first_ms)


def interval(window: StreamWindow, batch_ms: int, at_ms: int) -> Interval:
    """Return the latest closing of a window at or before a time: whole stream batches, since both divide evenly."""
    end_ms = at_ms // window.step_ms * window.step_ms
    start_ms = end_ms - window.range_ms
    return Interval(start_ms, end_ms, start_ms // batch_ms, end_ms // batch_ms)


def firing_step(query: Query) -> int | None:
    """Return how often a query fires, in ms: COMPUTED EVERY, or the smallest STEP of its windows of time; None without
    both: then it fires where a window that counts moves on."""
    registration = query.registration
    if registration is not None and registration.computed_every_ms is not None:
        return registration.computed_every_ms
    return min((window.step_ms for window in query.dataset.windows if not window.is_counted), default=None)


def firing_period(step_ms: int | None, states: Iterable[StreamState]) -> int:
    """Return the period at whose multiples a query fires. step_ms: firing_step; None: all its windows count, and it is
    what divides its stream batches. states: its streams."""
    return step_ms or gcd(*(state.batch_ms for state in states))


def makes_stream(query: Query) -> bool:
    """Tell whether a registered query makes a stream of triples: REGISTER STREAM, or RSTREAM, ISTREAM, DSTREAM in its
    place, and CONSTRUCT."""
    registration = query.registration
    return (
        query.form == "construct" and registration is not None and (registration.is_stream or registration.has_operator)
    )


def reads_stored(query: Query) -> bool:
    """Tell whether a query reads stored graphs beside its windows."""
    return bool(query.dataset.default_graphs or query.dataset.named_graphs)


def first_multiple(step_ms: int, time_ms: int, is_strict: bool) -> int:
    """Return the first multiple of step_ms at or after a time (strictly after it, if is_strict)."""
    return (time_ms // step_ms + 1) * step_ms if is_strict else -(-time_ms // step_ms) * step_ms


def first_firing(step_ms: int, states: Collection[StreamState], from_ms: int | None) -> int | None:
    """Find a query's first firing: the first multiple after from_ms, or else the first at or after the earliest first
    tuple or advance of its streams. None: that cannot be told while one of them has not begun.

    states: its streams; from_ms: the time from which it counts by the record of its registration."""
    if from_ms is not None:
        return first_multiple(step_ms, from_ms, is_strict=True)
    if any(state.may_begin_earlier for state in states):
        return None
    first_ms = min((state.first_ms for state in states if state.first_ms is not None), default=None)
    return None if first_ms is None else first_multiple(step_ms, first_ms, is_strict=False)


def covered_ms(step_ms: int, states: Collection[StreamState] | Collection[Watermark]) -> int | None:
    """Return the time up to which a query's own streams have closed all stream batches that its windows hold. None: one
    has not begun. states: its streams, or their watermarks."""
    covers = [state.cover_ms for state in states]
    known = [ms for ms in covers if ms is not None]
    if len(known) < len(covers):
        return None
    if min(known) < FOREVER_MS:
        return min(known)
    last = max((state.closed_ms for state in states if state.closed_ms is not None), default=None)
    return None if last is None else first_multiple(step_ms, last, is_strict=False)


def stored_ms(clock_ms: int | None, states: Collection[StreamState]) -> int | None:
    """Return the time up to which a query that reads stored graphs may fire: the clock has passed it, and its own
    streams have joined the stored graph up to there."""
    joined = [ms for state in states if (ms := state.joined_ms) is not None]
    return None if clock_ms is None or len(joined) < len(states) else min(clock_ms, *joined)


def without_names(closed_ms: Mapping[str, int | None], shown: Collection[str]) -> dict[str, int | None]:
    """Return how far streams are closed (Progress.closed_ms), with the slowest of those that are not to be named in the
    place of all of them."""
    named = {name: ms for name, ms in closed_ms.items() if name in shown}
    others = [ms for name, ms in closed_ms.items() if name not in shown]
    if others:
        known = [ms for ms in others if ms is not None]
        named["another stream"] = min(known) if len(known) == len(others) else None
    return named


def waits_for(
    states: Mapping[str, StreamState], closed_ms: Mapping[str, int | None], next_ms: int | None, is_stored: bool
) -> str:
    """Return, in words, for what a query waits that is not due. states: its streams; closed_ms: of all streams that
    have begun and not ended (Progress.closed_ms); next_ms: its next firing, if that is known; is_stored: whether it
    waits for the clock of the stored graph, and so for all streams."""
    waiting = [name for name, state in states.items() if not (state.is_started or state.is_ended)]
    if waiting:
        return f"waits for the first tuple or advance of {', '.join(sorted(waiting))}"
    if not is_stored:
        closed_ms = {name: ms for name, ms in closed_ms.items() if name in states}
    behind = {name: ms for name, ms in closed_ms.items() if ms is None or next_ms is None or ms < next_ms}
    if behind and next_ms is None:
        return f"waits for STEP more triples on one of {', '.join(sorted(states))}"
    if closed_ms and not behind:
        return f"waits to report the window ending at {next_ms} ms for other nodes, which have not come so far"
    if not behind:
        return "has reported all windows: its streams have ended"
    stand = ", ".join(f"{name} (closed up to {ms} ms)" for name, ms in sorted(behind.items()))
    return f"waits to report the window ending at {next_ms} ms for {stand}"


def check_window(window: StreamWindow, state: StreamState) -> None:
    """Raise StreamError unless RANGE and STEP are multiples of the stream's batch_ms, or count triples."""
    for name, length_ms in (("RANGE", window.range_ms), ("STEP", window.step_ms)):
        if length_ms % state.batch_ms:
            below = length_ms // state.batch_ms * state.batch_ms
            nearest = f"{below} or {below + state.batch_ms}" if below else f"{state.batch_ms}"
            raise StreamError(
                f"query, line {window.line}, column {window.column}: {name} of {length_ms} ms on stream "
                f"{window.stream} is no multiple of its batch_ms = {state.batch_ms}: a window is made of whole stream "
                f"batches. Use {nearest} ms, or declare the stream with a batch_ms that divides {length_ms}"
            )


def matched_in(query: Query, stream: str) -> Iterator[TriplePattern]:
    """Yield the triple patterns of a query that tuples in its windows over a stream can match."""
    own = [window for window in query.dataset.windows if window.stream == stream]
    is_merged = any(not window.named for window in own)
    return _matched_in(query, is_merged, {iri(window.name) for window in own}, bool(own))


def matched_in_stored(query: Query) -> Iterator[TriplePattern]:
    """Yield the triple patterns of a query that triples of the stored graphs which it reads can match. GRAPH <g> also
    reaches a graph that FROM merges (decision 0003)."""
    clause = query.dataset
    names = {iri(name) for name in (*clause.default_graphs, *clause.named_graphs)}
    return _matched_in(query, bool(clause.default_graphs), names, bool(clause.named_graphs))


def _matched_in(
    query: Query, is_in_default: bool, names: Collection[Term], is_ranged_over: bool
) -> Iterator[TriplePattern]:
    """Yield the triple patterns of a query that some data can match. is_in_default: it is part of the default graph;
    names: by which GRAPH reaches it; is_ranged_over: GRAPH with a variable may reach it."""

    def visit(part: Any) -> Iterator[TriplePattern]:
        if isinstance(part, TriplePattern | PathPattern):
            graph = part.graph
            is_named = is_ranged_over if isinstance(graph, Variable) else graph in names
            if is_in_default if isinstance(graph, DefaultGraph) else is_named:
                yield from (part,) if isinstance(part, TriplePattern) else _links_of(part)
        elif isinstance(part, tuple):
            for item in part:
                yield from visit(item)
        elif parts := field_names(type(part)):
            if isinstance(part, Timestamp) and part.everywhere:
                yield from part.patterns
            for name in parts:
                yield from visit(getattr(part, name))

    yield from visit(query.pattern)
    if query.form == "describe":  # which looks at all that is said of a resource
        yield TriplePattern(Variable("s"), Variable("p"), Variable("o"))


def _links_of(path: PathPattern) -> Iterator[TriplePattern]:
    """Yield a pattern for each kind of triple that a walk along a path may use, or that makes a node of the graph."""
    found = automaton_of(path.path)
    if found.is_nullable:
        yield TriplePattern(Variable("s"), Variable("p"), Variable("o"), path.graph)
    for link in found.links():
        yield TriplePattern(Variable("s"), link.predicate or Variable("p"), Variable("o"), path.graph)


def check_clause(query: Query) -> None:
    """Raise StreamError for windows that GRAPH could not tell apart."""
    clause = query.dataset
    for at, window in enumerate(clause.windows):
        place = f"query, line {window.line}, column {window.column}"
        alike = [other for other in clause.windows[:at] if other.name == window.name]
        if window.own_name is None and all(other.own_name is None for other in alike):
            if window.named and any(other.named for other in alike):
                raise StreamError(
                    f"{place}: FROM NAMED STREAM <{window.stream}> stands twice, so GRAPH <{window.stream}> would mean "
                    "two windows. Declare one of them with FROM STREAM, or give them names of their own: FROM NAMED "
                    f"WINDOW <w> ON <{window.stream}>"
                )
        elif alike or window.name in clause.named_graphs:
            what = "two windows" if alike else "a window and a stored graph"
            raise StreamError(f"{place}: <{window.name}> would name {what}: give the window another name")
