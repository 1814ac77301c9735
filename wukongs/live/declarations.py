"""Streams and registered queries, made from what their declaration says: by Engine, and again from a data folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.errors import SettingsError, StreamError
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import Core
from wukongs.live.injector import Injector
from wukongs.live.lateness import DROP, OPEN, CarryRule, OnLate, late_option, on_late_option
from wukongs.live.made_streams import MADE
from wukongs.live.query_group import check_group
from wukongs.live.query_source import QuerySource, Unread
from wukongs.live.readers import Readers
from wukongs.live.slice_budget import expected_bytes
from wukongs.live.slice_filter import SliceFilter
from wukongs.live.stream_state import StreamState
from wukongs.live.wall_clock import WALL, IdleAdvance
from wukongs.live.windows import check_clause, check_window, firing_period, firing_step, makes_stream
from wukongs.query.output.results import WindowResult
from wukongs.query.plans.dataset import restricted
from wukongs.query.terms.names import graph_term, positive, written_graph
from wukongs.settings import Settings
from wukongs.store.event_times import EventTimes
from wukongs.store.snapshot import TICK_MAX_MS, TICK_MIN_MS

log = logging.getLogger("wukongs")
EVENT_TIME = "event_time"
"""The `retractions` of a stream whose signs go by event time."""
BATCH_MS_MAX = 1 << 38
"""Some eight years. SNs name times of less than two hundred, and all of a stream batch has to be within."""


def stream_options(
    settings: Settings,
    timing: Sequence[str] | bool = (),
    batch_ms: int | None = None,
    into: str | None = None,
    history_ms: int | None = None,
    slice_bytes_max: int | None = None,
    index: str = "all",
    lateness_ms: int = 0,
    on_late: OnLate = None,
    idle_timeout_ms: int | None = None,
    idle_advance: IdleAdvance | None = None,
    late: str = DROP,
    retractions: str | None = None,
) -> dict[str, Any]:
    """Return the options of a stream as JSON, checked, with the defaults filled in; those of time that it does not use
    are left out. Raises SettingsError, DataError."""
    if index not in ("all", "matching"):
        raise SettingsError(f'index = {index!r}: expected "all" or "matching"')
    if isinstance(timing, str | bytes) or not isinstance(timing, Iterable | bool | None):
        raise SettingsError(f"timing = {timing!r}: expected a list of predicates' IRIs, or True for all tuples")
    slice_bytes_max = settings.slice_bytes_max if slice_bytes_max is None else slice_bytes_max
    options = {
        "timing": timing if isinstance(timing, bool) else [graph_term(text).text for text in timing or ()],
        "batch_ms": positive("batch_ms", settings.batch_ms if batch_ms is None else batch_ms, 1, high=BATCH_MS_MAX),
        "into": None if into is None else written_graph(into).text,
        "history_ms": positive("history_ms", settings.history_ms if history_ms is None else history_ms, 0),
        "slice_bytes_max": positive("slice_bytes_max", slice_bytes_max, 1, "bytes"),
        "index": index,
    }
    of_time = {
        "lateness_ms": positive("lateness_ms", lateness_ms, 0) or None,
        "on_late": on_late_option(on_late),
        "idle_timeout_ms": None if idle_timeout_ms is None else positive("idle_timeout_ms", idle_timeout_ms, 1),
        "idle_advance": _idle_advance(idle_advance, idle_timeout_ms),
        "late": OPEN if late_option(late) == OPEN else None,
        "retractions": _retractions_option(retractions),
    }
    return options | {name: value for name, value in of_time.items() if value is not None}


def _idle_advance(idle_advance: str | None, idle_timeout_ms: int | None) -> str | None:
    if idle_advance not in (None, WALL):
        raise SettingsError(f'idle_advance = {idle_advance!r}: expected "{WALL}", or None')
    if idle_advance is not None and idle_timeout_ms is None:
        raise SettingsError(
            f'idle_advance = "{idle_advance}": expected an idle_timeout_ms beside it, found none: it says after how '
            "long without a tuple the stream is idle"
        )
    return idle_advance


def _retractions_option(retractions: object) -> str | None:
    if retractions not in (None, EVENT_TIME):
        raise SettingsError(f'retractions = {retractions!r}: expected "{EVENT_TIME}", or None')
    return None if retractions is None else EVENT_TIME


def declare_stream(core: Core, stream_iri: str, options: dict[str, Any], lsn: int) -> StreamState:
    """Declare a stream. Called with the lock held."""
    state = make_stream(core, stream_iri, options, lsn)
    core.take_in(state)
    return state


def make_stream(core: Core, stream_iri: str, options: dict[str, Any], lsn: int) -> StreamState:
    """Return the state of a stream with these options, not declared yet. Called with the lock held."""
    timing, into = options["timing"], options["into"]
    if options.get("retractions") == EVENT_TIME and core.event_times is None:
        core.event_times = EventTimes()
    return StreamState(
        stream_iri,
        options["batch_ms"],
        timing if isinstance(timing, bool) else tuple(text[1:-1] for text in timing),
        core.graph_id(None if into is None else graph_term(into)),
        None if into is None else graph_term(into).name,
        options["history_ms"],
        core.settings,
        options["slice_bytes_max"],
        SliceFilter() if options["index"] == "matching" else None,
        lateness_ms=min(options.get("lateness_ms", 0), TICK_MAX_MS - TICK_MIN_MS),  # with more, nothing is late either
        sorts="lateness_ms" in options or "on_late" in options or "late" in options,
        carry_rule=CarryRule(options["batch_ms"], options["history_ms"]) if options.get("late") == OPEN else None,
        idle_timeout_ms=options.get("idle_timeout_ms"),
        idle_advance=options.get("idle_advance"),
        event_times=core.event_times if options.get("retractions") == EVENT_TIME else None,
        active_s=core.now_s(),
        options=options,
        lsn=lsn,
    )


def parse_registered(source: QuerySource) -> Query:
    """Parse a query to register, with windows or without. Raises QuerySyntaxError, UnsupportedFeatureError,
    SettingsError (an option), StreamError (one without a name)."""
    positive("unread_bytes_max", source.unread_bytes_max, 1, "bytes")
    if source.unread not in get_args(Unread):
        raise SettingsError(f"unread = {source.unread!r}: expected one of {', '.join(map(repr, get_args(Unread)))}")
    parsed = parse_query(source.text, source.base)
    query = rewrite(replace(parsed, dataset=restricted(parsed.dataset, source.only)))
    if query.registration is None:
        raise StreamError("expected REGISTER QUERY name AS before the query: its results are reported by that name")
    output = source.output
    if output is None or output == query.registration.output:
        return query
    if output not in get_args(Output):
        raise SettingsError(f"output = {output!r}: expected one of {', '.join(map(repr, get_args(Output)))}")
    if query.registration.has_operator:
        raise SettingsError(
            f"output = {output!r}: query {query.registration.name} itself says {query.registration.output.upper()}: "
            "leave one of them out"
        )
    return replace(query, registration=replace(query.registration, output=output))


def parse_continuous(source: QuerySource) -> Query:
    """Parse a query with windows to register. Raises as parse_registered and check_continuous."""
    query = parse_registered(source)
    check_continuous(query, source)
    return query


def check_continuous(query: Query, source: QuerySource) -> None:
    """Check a query to register. Raises StreamError (one without a window), UnsupportedFeatureError, DataError (its
    bindings)."""
    if not query.dataset.windows:
        assert query.registration is not None
        raise StreamError(
            f"query {query.registration.name} has no FROM STREAM: without a window it is a live view. Give it one, or "
            "close it and register the view"
        )
    check_clause(query)
    if source.bindings is not None:
        check_group(query, source.bindings)


def check_windows(core: Core, query: Query) -> None:
    """Check a query's windows against the streams. Raises StreamError.

    Called with the lock held."""
    for window in query.dataset.windows:
        state = core.stream(window.stream)
        check_window(window, state)
        expected = expected_bytes(state, window)
        if expected > state.slice_bytes_max:
            log.warning(
                "query %s: its window of %s on stream %s would take about %d bytes by what has come lately, "
                "more than slice_bytes_max = %d: windows that do not fit will be partial",
                query.registration.name if query.registration is not None else "",
                f"{window.range_triples} triples" if window.is_counted else f"{window.range_ms} ms",
                state.iri,
                expected,
                state.slice_bytes_max,
            )


def serve_readers(core: Core, injector: Injector, query: Query) -> None:
    """Declare the streams that queries make and that a query is the first to read. Each begins with the firing after
    those that are due by now. Called with the lock held. Raises StreamError, StorageError."""
    for window in query.dataset.windows:
        name, maker = window.stream, injector.queries.get(window.stream)
        if maker is not None and maker.is_stream and name not in core.streams:
            options = options_for_readers(core.settings, maker.times.period_ms)
            check_window(window, make_stream(core, name, options, 0))
            lsn = core.journal.commit({"op": "stream", "stream": name, "options": options})
            injector.made.add(declare_stream(core, name, options, lsn)).begin_after(maker.times.due_to_ms())


def options_for_readers(settings: Settings, period_ms: int) -> dict[str, Any]:
    """Return the options of a stream that is declared for the first reader of what a query makes."""
    return stream_options(settings, True, period_ms, None, None, None, "all") | {MADE: True}


MadeOf = Callable[[str], Collection[str]]
"""Returns the streams that the query reads that makes a stream; none if no query does."""


def made_of(injector: Injector, stream_iri: str) -> Collection[str]:
    """Return the streams that the query of an engine reads that makes a stream; none if no query does."""
    maker = injector.queries.get(stream_iri)
    return maker.windows.states if maker is not None and maker.is_stream else ()


def check_made(core: Core, made_of: MadeOf, query: Query, is_written: Callable[[StreamState], bool]) -> bool:
    """Check that a query can make the stream of its name, if that is there already; return whether the user has
    declared it, and the query is the first to make it. is_written: whether somebody has pushed to a stream. Raises
    StreamError. Called with the lock held."""
    assert query.registration is not None
    name = query.registration.name
    if not makes_stream(query):
        if name in core.streams and core.streams[name].is_made:
            raise StreamError(f"query {name} makes a stream that is read or declared: its text has to be a CONSTRUCT")
        return False
    check_no_cycle(name, [window.stream for window in query.dataset.windows], made_of)
    state = core.streams.get(name)
    if state is None:
        return False
    period_ms = firing_period(firing_step(query), (core.stream(window.stream) for window in query.dataset.windows))
    return check_can_make(name, period_ms, state, is_written)


def check_can_make(name: str, period_ms: int, state: StreamState, is_written: Callable[[StreamState], bool]) -> bool:
    """Check that a query or view can make a stream that is declared; return whether it is the first to make it.
    period_ms: how often it reports. Raises StreamError. Called with the lock held."""
    stream = state.iri
    if state.batch_ms != period_ms:
        there = "read" if MADE in state.options else "declared"
        raise StreamError(
            f"query {name} fires every {period_ms} ms, and the stream that it makes is {there} with batch_ms = "
            f"{state.batch_ms}, which has to be the same: let the query fire every {state.batch_ms} ms, or drop_stream "
            "the stream when nobody reads it"
        )
    if state.is_ended:
        raise StreamError(
            f"stream {stream} has ended with the query that made it: close its readers, then drop_stream it"
        )
    if state.is_made:
        return False
    is_special = state.sorts or state.idle_timeout_ms is not None or state.event_times is not None
    if is_written(state) or is_special:
        who = f"the query {'of that name' if name == stream else name}"
        other = "the query another name" if name == stream else "into= another stream"
        raise StreamError(
            f"stream {stream} is declared, and {who} would make it: that goes with a stream that nobody has pushed to, "
            f"without lateness_ms, late, retractions, on_late and idle_timeout_ms. Give {other}, or drop_stream the "
            "stream"
        )
    return True


def was_pushed(state: StreamState) -> bool:
    """Tell whether somebody has pushed to a stream of an engine."""
    return bool(state.ledgers)


def check_no_cycle(name: str, streams: Iterable[str], made_of: MadeOf) -> None:
    """Raise StreamError for a query over some streams that would read what is made of its own stream."""
    seen: set[str] = set()
    asked = [*streams]
    while asked:
        stream = asked.pop()
        if stream == name:
            raise StreamError(f"query {name} would read what is made of its own stream, a cycle: give it another name")
        if stream not in seen:
            seen.add(stream)
            asked += made_of(stream)


def register_query(
    core: Core,
    injector: Injector,
    query: Query,
    on_result: Callable[[WindowResult], object] | None,
    source: QuerySource,
    lsn: int,
    from_ms: int | None,
    readers: Readers | None = None,
) -> ContinuousQuery:
    """Register a parsed and checked query. from_ms: the event time from which it counts; readers: those it already has.
    Called with the lock held."""

    def parse(another: QuerySource) -> Query:
        parsed = parse_continuous(another)
        if registered.made is not None or registered.name not in core.streams:
            check_made(core, partial(made_of, injector), parsed, was_pushed)
        if core.observer is not None:
            core.observer.check_query(parsed)
        if core.replayed_to is None and core.query_log is None:
            serve_readers(core, injector, parsed)
        check_windows(core, parsed)
        return parsed

    registered = ContinuousQuery(core, injector, query, on_result, source, lsn, from_ms, parse, readers=readers)
    injector.add(registered)
    return registered
