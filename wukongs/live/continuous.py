"""A registered query: what it was registered with, its windows, when it fires next, what a firing reads and reports."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.warnings import UnseenNames
from wukongs.errors import BudgetExceeded, StreamError, WukongsError
from wukongs.live.answering import Answering
from wukongs.live.callbacks import Callbacks
from wukongs.live.core import Core
from wukongs.live.emptiness import Look, counted
from wukongs.live.firing import Firing, Picked
from wukongs.live.idleness import idle_told
from wukongs.live.made_streams import Made, MadeStreams
from wukongs.live.query_group import QueryGroup
from wukongs.live.query_templates import Template, constants_of
from wukongs.live.query_windows import QueryWindows, counts_from
from wukongs.live.readers import Readers
from wukongs.live.reading import explain_over, profiled, terms_of
from wukongs.live.reporting import Remembered, Reporter
from wukongs.live.stream_state import FOREVER_MS, StreamState
from wukongs.live.stretch import Stretch
from wukongs.live.support import Facts, Support
from wukongs.live.tracing import LISTENING, Fired
from wukongs.live.unknown_names import unknown_names
from wukongs.live.window_log import LAST_MS, WINDOW_BYTES, Come, Cursor, WindowLog
from wukongs.live.windows import (
    Watermark,
    covered_ms,
    firing_period,
    firing_step,
    first_firing,
    first_multiple,
    makes_stream,
    reads_stored,
    stored_ms,
    waits_for,
    without_names,
)
from wukongs.query.execution.argument_rows import ArgumentRows
from wukongs.query.limits import limits_of
from wukongs.query.output.html import query_html
from wukongs.query.output.results import WindowResult
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.names import given_terms
from wukongs.query.terms.query_terms import ConstantIds
from wukongs.store.dtypes import Int64Array
from wukongs.store.snapshot import tick_sn

log = logging.getLogger("wukongs")


Unread: TypeAlias = Literal["drop", "end"]
UNREAD_BYTES_MAX = 64 << 20
FIRING_POLL_S = 0.002
CHANGE_POLL_S = 0.05
CLOSE_S = 10.0
"""Longest wait of close() for the windows that are due. A query that lags further behind ends without them."""


class QuerySource(NamedTuple):
    """The text of a query, the base of its relative IRIs, and what its firings report; unread_bytes_max: what it may
    hold in windows that are not read yet; unread: whether it then drops the oldest of them, or ends; bindings: of a
    group of queries their table (query_group.bindings_text); only: the graphs and streams that it may read, those of
    who has registered it (None: all)."""

    text: str
    base: str | None = None
    output: Output | None = None
    unread_bytes_max: int = UNREAD_BYTES_MAX
    unread: Unread = "drop"
    bindings: str | None = None
    only: tuple[str, ...] | None = None

    @staticmethod
    def of(fields: Mapping[str, Any]) -> QuerySource:
        """Return the source with these fields; those that are missing have their defaults."""
        found = QuerySource(**{name: fields[name] for name in QuerySource._fields if name in fields})
        return found if found.only is None else found._replace(only=tuple(found.only))


@dataclass(slots=True, eq=False)
class QueryChange:
    """A change of a query that waits until the firings before it have been reported.

    after_ms: the event time after which it counts; None: no firing of the query is known yet.
    make: logs the change with the time after which it counts, and makes it. Called with the lock held.
    is_over: whether make was called.
    error: raised by make."""

    after_ms: int | None
    make: Callable[[int | None], object]
    is_over: bool = False
    error: BaseException | None = None


class Rows(Protocol):
    """The rows of arguments for which a query is asked at once (QueryGroup). references: ids to release when the query
    ends."""

    @property
    def references(self) -> Int64Array: ...
    @property
    def rows(self) -> ArgumentRows: ...
    def had(self, at_ms: int) -> bool:
        """Tell whether no row has a window at a time. Called with the lock held."""

    @property
    def version(self) -> int:
        """It is another one after each change of the rows."""

    def alike_to_ms(self, at_ms: int) -> int:
        """Return up to when firings are for the same rows as the one at a time. Called with the lock held."""

    def untaken_ms(self) -> int | None:
        """Return the end of the oldest window that is held here for its readers. Called with the lock held."""

    def told(self) -> str:
        """Return what EXPLAIN and why() say of it."""

    def divide(self, at_ms: int) -> list[ContinuousQuery]:
        """Return queries that do the firing at a time in parts, since it was too much as a whole, and fire in the place
        of the one that had these rows; none if there are no parts. Called without the lock."""


class Schedule(Protocol):
    """The side of the injector that a registered query calls. callbacks: the threads that call on_result; made: the
    streams that queries make."""

    callbacks: Callbacks
    made: MadeStreams

    def wake(self) -> None:
        """Look again whether something is to be done."""

    def forget(self, query: ContinuousQuery) -> None:
        """Fire a query no more. Called with the lock held."""

    def catch_up(self) -> None:
        """Wait until all that is due has been picked. Called with the lock held."""

    def schedule_changes(self, query: ContinuousQuery) -> None:
        """Let a query make its changes between two firings. Called with the lock held."""

    def moved(self, query: ContinuousQuery) -> None:
        """Note that a query fires next at another time. Called with the lock held."""

    def replaced(self, query: ContinuousQuery, streams: Iterable[str]) -> None:
        """Note that a query has another text. streams: those of its text before. Called with the lock held."""

    def company_of(self, query: ContinuousQuery) -> int:
        """Return how many other queries are explored together with a query. Called from any thread."""


def check_name(query: Query, name: str) -> None:
    """Raise StreamError unless a text registers this name, as the text before does."""
    assert query.registration is not None
    if query.registration.name != name:
        raise StreamError(f"query {name} cannot be replaced by {query.registration.name}: give the text the same name")


def is_over(name: str) -> StreamError:
    """Return the error of a change of a query that is closed."""
    return StreamError(f"query {name} is closed: register the text anew")


def _no_other_text(source: QuerySource) -> Query:
    raise AssertionError(source)


class ContinuousQuery:
    """A registered query, as Engine.register returns it. All its methods may be called from any thread."""

    def __init__(
        self,
        core: Core,
        schedule: Schedule,
        query: Query,
        on_result: Callable[[WindowResult], object] | None,
        source: QuerySource = QuerySource(""),  # noqa: B008
        lsn: int = 0,
        from_ms: int | None = None,
        parse: Callable[[QuerySource], Query] = _no_other_text,
        rows: Rows | None = None,
        readers: Readers | None = None,
    ) -> None:
        """source: what it was registered with; lsn: the record of the log that registered it; from_ms: the event time
        from which it counts (query_windows.counts_from); parse: parses and checks another text, with the lock held;
        rows: what it is asked for, if that is not in its source; readers: those it already has."""
        assert query.registration is not None
        self.name = query.registration.name
        self.lsn = lsn
        self.is_recovered = False
        """It was found in the data folder, and nobody has registered it again yet."""
        self._core = core
        self._schedule = schedule
        self._parse = parse
        if readers is None:
            on_full = self._end_unread if source.unread == "end" else None
            readers = Readers(core, WindowLog(self.name, core.unread, source.unread_bytes_max, on_full), lsn)
        self._readers, self.log, self._counts = readers, readers.log, readers.counts
        self._rows = rows
        self._take_text(query, source)
        self.from_ms = from_ms
        self._next_ms: int | None = None
        """The next firing; of a query without step_ms, the earliest time that it may have. None: not known yet."""
        self.planned: list[tuple[int, dict[str, Any]]] = []
        """Texts and pauses to come, by the log that is replayed: (LSN, what it says), in order."""
        self._record_lsn = 0
        """Planned changes up to this record count once the firings before them were repeated."""
        self._changes: list[QueryChange] = []
        """Changes that wait for the firings before them, in order."""
        self.is_paused = False
        self.is_closed = False
        self.made: Made | None = None
        """The stream that it makes, once another query of this engine reads it, or if it was declared before."""
        self._is_replaced = False
        self._is_firing = False
        """A firing was picked, and has not been reported yet."""
        self._picked_ms = -LAST_MS
        """The last that was picked."""
        if on_result is not None:
            self._readers.call(schedule.callbacks, on_result)

    def _take_text(self, query: Query, source: QuerySource) -> None:
        """Be the query of a text from now on. Called with the lock held."""
        assert query.registration is not None
        self.query = query
        self.source = source
        self.is_stream = makes_stream(query)
        self.step_ms = firing_step(query)
        """None: it fires when one of its windows moves on, at the end of a stream batch."""
        constants = constants_of(query)
        ids, self._references = self._core.registry.reserve([term.text for term in constants])
        known = ConstantIds(self._core.registry, dict(zip(constants, ids.tolist(), strict=True)))
        self.group = self._rows
        """The queries of a table, None for one query."""
        if source.bindings is not None:
            self.group = QueryGroup(self._core.registry, query, source.bindings)
        if self.group is not None:
            self._references = np.concatenate((self._references, self.group.references))
        self.windows = QueryWindows(self._core, query, self.name, known)
        self._states = self.windows.states
        is_held_alone = self.is_stream and self._core.query_log is not None  # by what it makes
        is_own = self.step_ms is None or is_held_alone
        self.beat: object = self.windows if is_own else (self.step_ms, self.windows.beat)
        """It is equal for all queries that are due at the same times, and need the same slices."""
        self.reporter = Reporter(query.registration)
        self._last_ms: int | None = None
        """The last firing of this text."""
        self._steady_to_ms: int | None = None
        """The windows hold the same from the last firing up to there, if that firing may be repeated."""
        is_joined, counts = self._rows is not None, self._counts
        self.answering = Answering(
            self._core, self.name, query, self.windows, self.reporter, counts, self.group, is_joined=is_joined
        )

    @property
    def plans(self) -> PlanMemo:
        """Its plans, for datasets of all sizes."""
        return self.answering.plans

    @property
    def template(self) -> Template | None:
        """The shape that it shares with queries of other constants."""
        return self.answering.template

    def __repr__(self) -> str:
        return f"<ContinuousQuery {self.name}: {self._counts.windows} windows reported>"

    def _repr_html_(self) -> str:
        return query_html("ContinuousQuery", self.name, self.stats, self.source.text)

    # --- results ------------------------------------------------------------------------------------------------------

    def results(self, timeout_s: float | None = None, *, group: str | None = None) -> Iterator[WindowResult]:
        """Iterate over the reported windows, in order, from where the last call stopped. Beside an on_result the first
        call begins with the oldest window held. Ends when the query is closed and all is read, or when
        timeout_s (seconds) pass without a window. Raises the error of a firing that failed, and GapError in the place
        of windows that were dropped unread, or whose slices were gone; iterate again to go on after it.

        group: divide the windows among all who read by this name. The first of them begins with the oldest window
        held. One who ends before it asks for the next window gives its last one back, so each window is read at least
        once; in a data folder also after a restart."""
        return self._readers.results(timeout_s, group)

    def aresults(self, timeout_s: float | None = None, *, group: str | None = None) -> AsyncIterator[WindowResult]:
        """Do the same as results, for `async for`."""
        return self._readers.aresults(timeout_s, group)

    def cursor(self, group: str | None = None) -> Cursor:
        """Return the cursor that results() reads, or that of a group. Raises SettingsError (no name), StorageError."""
        return self._readers.cursor(group)

    @property
    def makes(self) -> str | None:
        """The IRI of the stream that it makes: its name. None: it makes none."""
        return self.name if self.is_stream else None

    def close(self) -> None:
        """End the query. Windows that are due when it is called are still reported, unless that takes longer than 10 s;
        reported windows can still be read. Raises StorageError (it cannot be logged)."""
        if self._core.query_log is not None and not self.is_closed:
            self._core.query_log.catch_up()
        with self._core.lock:
            if self.is_closed:
                return
            if self.made is not None and self._core.query_log is not None:
                self._schedule.catch_up()  # until the other nodes have what it has made
            if not self.change_after_due(self._close_whole, CLOSE_S):
                self._close_whole(None)
        if self._core.query_log is not None:
            self._core.query_log.drop_unread((self.name, *self._states))

    def _close_whole(self, after_ms: int | None) -> None:
        """Close the query, and the stream that it makes. Called with the lock held."""
        if self.is_closed:
            return
        made = self.made
        self._close(after_ms)
        if made is not None:
            made.end()
        for stream in (self.name, *self._states):
            self._schedule.made.drop_unread(stream)

    def _close(self, after_ms: int | None = None) -> None:
        from_ms = self.change_ms(after_ms)
        self._core.journal.commit({"op": "close", "query": self.name, "from_ms": from_ms})
        if self._core.query_log is not None:
            self._core.query_log.close_query(self.name)
        self.end()

    def end(self) -> None:
        """End the query in this engine; in a data folder it stays registered."""
        with self._core.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._schedule.forget(self)
            self.forget_text()
        self._readers.close()

    def forget_text(self) -> None:
        """Give back what the text holds. Called with the lock held."""
        self.windows.close()
        self.answering.forget()
        self._core.registry.release(self._references)

    def fail(self, error: WukongsError) -> None:
        """End the query with an error that its reader is told, after what was reported before."""
        self.log.put(LAST_MS, error)
        self.end()

    def _end_unread(self) -> None:
        """End the query because nobody reads its windows. The replay of a log leaves that to what comes after it."""
        if self._core.replayed_to is None and not self.is_closed:
            error = BudgetExceeded(
                f"query {self.name} has ended: more windows are unread than unread_bytes_max or results_bytes_max "
                'allow, and it was registered with unread="end": register it anew, read faster, or allow more'
            )
            log.warning("%s", error)
            self.log.put(LAST_MS, error)
            with self._core.lock:  # what waits for the log may hold with this record
                if not self.is_closed:
                    self._close()

    def pause(self) -> None:
        """Report nothing until resume; windows that close meanwhile are skipped. Windows that are due when it is called
        are still reported. Raises StorageError."""
        self._set_paused(True)

    def resume(self) -> None:
        """Report again, from the first window on that is not due yet when it is called. Raises StorageError."""
        self._set_paused(False)

    def _set_paused(self, is_paused: bool) -> None:
        if self._core.query_log is not None:
            if not self.is_closed:
                self._core.query_log.pause_query(self.name, is_paused)
            return
        with self._core.lock:
            self.change_after_due(partial(self._log_and_apply, {"op": "pause", "is_paused": is_paused}, None))

    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None:
        """Go on with another text, which has the same name: windows that are due when it is called go by the text
        before, every later one by this one. Readers go on where they are. ISTREAM and DSTREAM begin anew.

        Raises as Engine.register; StreamError (another name; closed), StorageError."""
        if self._core.query_log is not None:
            if self.is_closed:
                raise is_over(self.name)
            self._core.query_log.replace_query(self.name, text, base, output)
            return
        source = self.source._replace(text=text, base=base, output=output)
        with self._core.lock:
            query = self._parse(source)
            check_name(query, self.name)
            start = counts_from(self._core, query, self._schedule.made.settled_closed_ms)
            change = {"op": "replace", **source._asdict(), "start": start}

            def make(after_ms: int | None) -> None:
                self._parse(source)  # a stream may have been dropped meanwhile
                self._log_and_apply(change, query, after_ms)

            if not self.change_after_due(make):
                raise is_over(self.name)

    def alter(self, source: QuerySource, is_paused: bool, start: int | None) -> None:
        """Be what the log of a cluster says from here on. start: the time from which another text counts if nothing has
        fired. Called with the lock held, when everything due has fired. Raises as Engine.register."""
        if source != self.source:
            query = self._parse(source)
            check_name(query, self.name)
            self._log_and_apply({"op": "replace", **source._asdict(), "start": start}, query)
        if is_paused != self.is_paused:
            self._log_and_apply({"op": "pause", "is_paused": is_paused})

    # --- changes between two firings ----------------------------------------------------------------------------------

    def due_to_ms(self) -> int | None:
        """Return the end of the last window that is due or was picked, by what its streams have closed so far; None if
        no firing is known yet. Other threads' progress does not change it. Called with the lock held."""
        next_ms, step_ms = self.settled_next_ms(), self.step_ms or 1
        if next_ms is None:
            return None
        covered = covered_ms(step_ms, self._settled_watermarks())
        if covered is not None and self.windows.reads_stored:
            clock_ms = self._core.progress.settled_clock_ms(self._core)
            covered = None if clock_ms is None else min(covered, clock_ms)
        if covered is None or covered < next_ms:
            return next_ms - step_ms
        return next_ms + (covered - next_ms) // step_ms * step_ms

    def _settled_watermarks(self) -> list[Watermark]:
        return [self._schedule.made.settled_watermark(state) for state in self._states.values()]

    def settled_next_ms(self) -> int | None:
        """Do as Producer.settled_next_ms. Of a query without step_ms: the earliest time that it may have."""
        self.next_firing()
        if self._next_ms is not None:
            return self._next_ms
        watermarks = self._settled_watermarks()
        known = [one.first_ms for one in watermarks if one.first_ms is not None]
        if not known or any(one.first_ms is None and one.cover_ms != FOREVER_MS for one in watermarks):
            return None
        return first_multiple(self.step_ms or 1, min(known), is_strict=False)

    def settled_decided_ms(self) -> tuple[int | None, bool]:
        """Do as Producer.settled_decided_ms."""
        return self.due_to_ms(), all(one.cover_ms == FOREVER_MS for one in self._settled_watermarks())

    def change_after_due(self, make: Callable[[int | None], object], within_s: float | None = None) -> bool:
        """Have the injector make a change between two firings: after all firings that are due now, before any later
        one. Return whether it was made: not if the query or the engine is closed first, or within_s (seconds) pass.

        make: logs the change with the event time after which it counts, and makes it. Called with the lock held, which
        is released while firings are due. Raises what make raises."""
        core = self._core
        if self.is_closed:
            return False
        change = QueryChange(self.due_to_ms(), make)
        self._changes.append(change)
        self._schedule.schedule_changes(self)
        deadline_s = None if within_s is None else time.monotonic() + within_s
        try:
            while not (change.is_over or self.is_closed or core.is_closed or core.failure is not None):
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    break
                core.changed.wait(CHANGE_POLL_S)
        finally:
            if change in self._changes:
                self._changes.remove(change)
        if change.error is not None:
            raise change.error
        return change.is_over

    def make_changes(self, *, is_settled: bool = False) -> bool:
        """Make the changes for which no firing is left that comes before them. Return whether there was one.

        is_settled: nothing is due that can fire. Called with the lock held, by the injector, or by another thread while
        nothing fires for this query."""
        is_any = False
        while self._make_planned(is_settled=is_settled):
            is_any = True
        is_settled &= self.made is None or not self.made.is_full
        while self._changes and not (self._is_firing or self.is_closed):
            change = self._changes[0]
            if not (is_settled or self._has_fired_to(change.after_ms)):
                break
            self._changes.remove(change)
            try:
                change.make(change.after_ms)
            except BaseException as error:
                change.error = error
            change.is_over = is_any = True
        return is_any

    def _has_fired_to(self, after_ms: int | None) -> bool:
        """Tell whether all firings up to a time, None: no firing is known yet, were picked."""
        if after_ms is None:
            return True
        next_ms = self.next_firing()
        if self._next_ms is None or (next_ms is not None and next_ms <= after_ms):
            return False
        if self.step_ms is not None:
            return True
        waiting = [(state.next_slice(), state.batch_ms) for state in self._states.values()]  # their edges are not known
        return all(number is None or number * batch_ms > after_ms for number, batch_ms in waiting)

    @property
    def has_changes(self) -> bool:
        """Whether a change waits for firings before it. Read with the lock held."""
        return bool(self._changes or self.planned)

    def change_ms(self, after_ms: int | None) -> int | None:
        """Return the event time after which a change counts that is made now: after_ms, unless firings before it are
        left; None: no firing is known yet."""
        next_ms = self.next_firing()
        if self._next_ms is not None and after_ms is not None and (next_ms is None or after_ms < next_ms):
            return after_ms
        return None if next_ms is None else next_ms - (self.step_ms or 1)

    def wait_for_firing(self) -> None:
        """Wait until what was picked is reported. Called with the lock held."""
        core = self._core
        while self._is_firing and not self.is_closed and core.failure is None and not core.is_closed:
            core.changed.wait(FIRING_POLL_S)

    def _log_and_apply(self, change: dict[str, Any], query: Query | None = None, after_ms: int | None = None) -> None:
        """Log a change together with the time after which it counts, and make it. query: that of another text;
        after_ms: as in QueryChange."""
        from_ms = self.change_ms(after_ms)
        if query is not None and reads_stored(query) and from_ms is not None and change["start"] is not None:
            from_ms = max(from_ms, change["start"])  # the snapshots of before may be gone
        change = {**change, "query": self.name, "of": self.lsn, "from_ms": from_ms}
        self._core.journal.commit(change)
        self._apply(change)

    def _apply(self, change: Mapping[str, Any]) -> None:
        """Make a change of which the log says from when it counts. Called with the lock held."""
        if change["op"] == "pause":
            self.is_paused = change["is_paused"]
            self.answering.forget()
            return
        source, from_ms = QuerySource.of(change), change["from_ms"]
        before, recorded = list(self._states), self.reporter.recorded
        self.forget_text()
        self._take_text(self._parse(source), source)
        self._is_replaced = True
        if from_ms is None:
            self.from_ms = change["start"]
            self._fire_next(None)
        else:
            self.skip_to(from_ms)
            self.reporter.recorded = [one for one in recorded if one.at_ms > from_ms]
        self._schedule.replaced(self, before)

    def reach_record(self, lsn: int) -> None:
        """Make the planned changes up to a record of the log that is replayed. One with firings before it that the
        replay has not repeated yet is made after these."""
        self._record_lsn = lsn
        self._schedule.schedule_changes(self)

    # --- over the end of a process ------------------------------------------------------------------------------------

    def attach(self, on_result: Callable[[WindowResult], object] | None) -> None:
        """Go on for whoever has registered the query again; what waits is reported first. Called with the lock held."""
        self.is_recovered = False
        if on_result is not None:
            self._readers.call(self._schedule.callbacks, on_result)

    def progress(self) -> dict[str, Any]:
        """Return, as JSON, how far the query has come: what restore_progress takes."""
        return {
            "next_ms": self._next_ms,
            "from_ms": self.from_ms,
            "is_paused": self.is_paused,
            "remembered": self.reporter.progress(),
            **({"source": self.source._asdict()} if self._is_replaced else {}),
        }

    def restore_progress(self, progress: Mapping[str, Any]) -> None:
        """Stand where another one stood."""
        closed = progress.get("closed_at_start", {})  # in logs of before
        self.from_ms = progress.get("from_ms", min(closed.values(), default=None))
        self._fire_next(progress["next_ms"])
        self.is_paused = progress["is_paused"]
        self._is_replaced = "source" in progress
        self.reporter.restore(progress.get("remembered"))

    def restore_cursors(self, found: Mapping[str, Come]) -> None:
        """Let results(), or on_result, and groups of readers go on where they stood."""
        self._readers.restore(found)

    def stats(self) -> dict[str, Any]:
        """Return counts, and medians and 99th percentiles of the last firings in microseconds."""
        self._core.check_is_own()
        return {
            **self._counts.stats(),
            "results_waiting": len(self._readers.own),
            "results_dropped": self.log.dropped_count,
            "results_dropped_to_ms": self.log.dropped_to_ms,
            "unread_bytes": self.log.size_bytes,
            **({} if self.group is None else {"queries": self.group.rows.length}),
            **self.answering.stats(),
        }

    def warnings(self) -> tuple[str, ...]:
        """Return likely mistakes of the query, by its text and by the data so far: a sentence each, if it can with the
        place in the text. They are logged when the query is registered."""
        with self._core.lock:
            query, told = self.query, self.windows.advice(self.query)
        return (*told, *unknown_names(self._core, query, UnseenNames.of(query)))

    def explain(self, *, analyze: bool = False) -> str:
        """Return the plan as text, with the rows that are estimated for the windows as they stand now; and warnings.

        analyze: run the query over these windows too, without reporting anything, and show the actual rows of each step
        and rows and time of each operator. Raises QueryTimeout, BudgetExceeded."""
        with self._core.lock:
            at_ms = self.next_firing()
            at_ms = at_ms if at_ms is not None else (self._core.sealed_ms or 0)
            dataset, _ = self.windows.dataset(at_ms)
            terms = terms_of(self._core)
        limits = limits_of(self._core.settings, None)
        profile = profiled(self.query, dataset, terms, limits, self.answering.plans, self.name) if analyze else None
        told = [f"warning: {warning}\n" for warning in self.warnings()]
        if self.group is not None:
            told.append(f"{self.group.told()}\n")
        told += [f"{line}\n" for line in self.answering.lines()]
        if others := self._schedule.company_of(self):
            told.append(f"each firing is explored together with those of {others} other queries of the template\n")
        return "".join([explain_over(self.query, dataset, profile), *told])

    def why(self, row: Mapping[str, Any] | None = None) -> str:
        """Tell why a row was reported, or without one, what the query waits for.

        row: terms by the names of the variables of a row of the last window, as Stream.push takes them, some or all of
        them: returned are the triples that it rests on, with the windows that they are in, and what stored ones follow
        from. Else, in words, what the query waits for, and then what empties it, a fact a line: rows of the last window
        and after each step, the first pattern without matches, predicates that have not come, late tuples, windows that
        were partial or dropped. For the steps the last firing, or else the next one, is evaluated anew over what is
        held; if that takes too long or too much, it is said in its place. Raises DataError (a term), StreamError (a
        row, and nothing has fired), QueryTimeout, BudgetExceeded."""
        if row is not None:
            return self._support(given_terms(row))
        with self._core.lock:
            told = [f"{self.name} {self._wait()}"]
            if self.is_closed or self.is_paused:
                return told[0]
            waits_for_all = self.windows.reads_stored and self.source.only is None
            waited = self._core.streams if waits_for_all else self._states
            told += idle_told(self._core, waited.values())
            told += counted(self._states, self._counts, self.log)
            if self.group is not None:
                told.append(self.group.told())
            at_ms = self.next_firing() if self._last_ms is None else self._last_ms
            look = None if at_ms is None else Look.pick(self._core, self.query, self.windows, at_ms)
        if look is not None:
            told += look.told()
        return "\n".join(told)

    def _support(self, row: Mapping[str, str]) -> str:
        core = self._core
        with core.lock:
            if self._last_ms is None:
                raise StreamError(f"query {self.name} has reported no window yet, so there is no row to explain")
            core.finish_tick()
            dataset, _ = self.windows.dataset(self._last_ms)
            support = Support(self.query, Facts(core, dataset, terms_of(core), core.sn), self._last_ms)
        limits = limits_of(core.settings, None)
        with limits:
            return support.told(row, limits)

    def _wait(self) -> str:
        """Return, in words, what the query waits for. Called with the lock held."""
        if self.is_closed or self.is_paused:
            return "is closed" if self.is_closed else "is paused"
        due = self.due()
        if due is not None:
            return f"is about to report the window ending at {due} ms"
        own, streams = self._states, self._core.streams
        closed_ms = self._core.progress.closed_ms(self._core)
        closed_ms = {name: ms for name, ms in closed_ms.items() if name in own or not streams[name].is_made}
        if self.source.only is not None:
            closed_ms = without_names(closed_ms, {*own, *self.source.only})
        told = waits_for(own, closed_ms, self.next_firing(), self.windows.reads_stored)
        return told + self._schedule.made.why(own)

    def waits_on(self) -> Collection[str]:
        """Return the streams that have to come further, or to begin, before the query fires next. Called with the lock
        held."""
        if self.is_closed or self.is_paused or self.due() is not None:
            return ()
        not_begun = [name for name, state in self._states.items() if not (state.is_started or state.is_ended)]
        if not_begun:
            return not_begun
        next_ms, asked = self.next_firing(), list(self._states.values())
        if self.windows.reads_stored:
            asked += [state for state in self._core.streams.values() if state.counts]
        covers = {state.iri: state.cover_ms for state in asked}
        return [name for name, ms in covers.items() if ms is None or (next_ms is not None and ms < next_ms)]

    # --- firing, called by the injector -------------------------------------------------------------------------------

    def due(self) -> int | None:
        """Return the time of the next firing if it is covered, None if not. Called with the lock held."""
        next_ms, covered = self.next_firing(), self._covered_ms()
        return None if next_ms is None or covered is None or next_ms > covered else next_ms

    def _make_planned(self, *, is_settled: bool) -> bool:
        """Make the first of the planned changes if no firing is left that comes before it, and its record was reached
        or the query is due. Return whether it has. is_settled: as for make_changes."""
        if not self.planned or self._is_firing:
            return False
        lsn, change = self.planned[0]
        from_ms, next_ms, is_reached = change["from_ms"], self.next_firing(), lsn <= self._record_lsn
        if not is_reached:  # the replay may have fired further than the engine had when it made the change
            covered = self._covered_ms()
            is_due = next_ms is not None and covered is not None and next_ms <= covered
            if from_ms is None or not is_due:
                return False
        if not (is_reached and (from_ms is None or is_settled)) and not self._has_fired_to(from_ms):
            return False
        self.planned.pop(0)
        self._apply(change)
        return True

    def _covered_ms(self) -> int | None:
        """Return the time up to which the query may fire. None: one of its streams has not begun, or what it has
        brought has to be taken first."""
        if self.made is not None and self.made.is_full:
            return None
        states = self._states.values()
        covered = covered_ms(self.step_ms or 1, states)
        if covered is None or not self.windows.reads_stored:
            return covered
        passed = stored_ms(self._core.clock_ms(), states)
        return None if passed is None else min(covered, passed)

    @property
    def next_ms(self) -> int | None:
        """The time before which the query does not fire; None: not known yet. Read with the lock held."""
        return self._next_ms

    @property
    def is_firing(self) -> bool:
        """Whether a firing was picked that is not reported yet. Read with the lock held."""
        return self._is_firing

    @property
    def period_ms(self) -> int:
        """The period at whose multiples it fires: of one whose windows all count, what divides its stream batches."""
        return firing_period(self.step_ms, self._states.values())

    @property
    def history_ms(self) -> int:
        """How long slices of all its streams are kept."""
        return min((state.history_ms for state in self._states.values()), default=0)

    def reads(self, stream_iri: str) -> bool:
        """Tell whether one of its windows is over a stream."""
        return stream_iri in self._states

    def fired_ms(self) -> int | None:
        """Return a time before which all firings were picked, None if it has none yet. Called with the lock held."""
        self.next_firing()
        return None if self._next_ms is None else self._next_ms - 1

    def has_reported(self, to_ms: int) -> bool:
        """Tell whether all its firings up to a time that are due have been reported. Called with the lock held."""
        due_ms = self.due()
        return not (self._is_firing and self._picked_ms <= to_ms) and (due_ms is None or due_ms > to_ms)

    def delivered_ms(self) -> int | None:
        """Return the time up to which its readers have all windows, None if it has not fired yet. Called with the lock
        held."""
        if self._next_ms is None:
            return None
        fired_ms = self._picked_ms if self._is_firing else self._next_ms
        untaken_ms = self._readers.untaken_ms(is_stream=self.is_stream)
        in_group_ms = None if self.group is None else self.group.untaken_ms()
        return min(ms for ms in (fired_ms, untaken_ms, in_group_ms) if ms is not None) - 1

    def decided_ms(self) -> int | None:
        """Do as Producer.decided_ms."""
        if self.is_paused or self.is_closed or self._is_firing:
            return None
        next_ms, states = self.next_firing(), self._states.values()
        covered = covered_ms(self.step_ms or 1, states)
        is_over = covered is None or next_ms is None or next_ms > covered
        if is_over and all(state.is_ended for state in states):
            return FOREVER_MS
        if self._next_ms is None or covered is None or self.step_ms is not None:
            return None if next_ms is None else next_ms - 1
        to_ms = self._covered_ms()  # it fires where an edge moves, and so far none has moved after its last firing
        return to_ms if to_ms is None or next_ms is None else min(to_ms, next_ms - 1)

    def reads_joins_of(self, state: StreamState) -> bool:
        """Tell whether a firing reads the snapshot at which a stream batch of this stream has joined."""
        return self.windows.reads_stored and self.reads(state.iri)

    def fires_before(self, come: frozenset[int], at_ms: int) -> bool:
        """Tell whether the firing at a time has the same answer before and after timeless tuples with some predicates
        join the stored graph. Called with the lock held."""
        self.company()  # so that it is compiled if it can be: others take long, and may wait
        return self.answering.compiled is not None and self.made is None and self.windows.is_apart_from(come, at_ms)

    def reads_sn(self, at_ms: int) -> int:
        """Return the snapshot number that the firing at a time reads once everything up to then is sealed; -1 if it
        reads no stored graph."""
        sn = self.windows.sn_due(at_ms)
        return -1 if sn is None else sn

    def next_firing(self) -> int | None:
        """Return the time of the next firing, None while it cannot be told."""
        if self._next_ms is None:
            first_ms = first_firing(self.step_ms or 1, self._states.values(), self.from_ms)
            if first_ms is not None:
                self._fire_next(first_ms)
        if self._next_ms is None or self.step_ms is not None:
            return self._next_ms
        return self.windows.next_edge_ms(self._next_ms)

    def keep_after_ms(self) -> dict[str, int]:
        """Return, per stream, the time up to which this query needs no slices any more; none while it cannot tell."""
        self.next_firing()
        next_ms = self._next_ms
        if next_ms is None:  # it fires first with the earliest of its streams, of which these are some
            next_ms = min(
                (state.first_ms for state in self._states.values() if state.first_ms is not None), default=None
            )
        return {} if next_ms is None else self.windows.keep_after_ms(next_ms)

    def needs_after(self) -> dict[str, int]:
        """Return, per stream, the stream batch after which the next firing reads; all while it cannot tell."""
        return self.windows.needs_after(self._next_ms)

    def arrivals_needed(self) -> dict[str, int]:
        """Return, per stream with a window that counts, the arrival after which the next firing reads."""
        return self.windows.arrivals_needed(self._next_ms)

    def arrivals_needed_ms(self) -> dict[str, int]:
        """Return, as arrivals_needed, the times after which these have come."""
        return self.windows.arrivals_needed_ms(self._next_ms)

    def skip_to(self, time_ms: int) -> None:
        """Go on with the first firing after a time."""
        self._fire_next(first_multiple(self.step_ms or 1, time_ms, is_strict=True))

    def _fire_next(self, next_ms: int | None) -> None:
        self._next_ms = next_ms
        self._schedule.moved(self)

    def is_skipped(self, at_ms: int) -> bool:
        """Tell whether the firing at a time is left out: the query is paused, or its slices are gone; or the window was
        taken before, no other is compared with it, and the stream that the query makes has what it brings."""
        is_had = self._had_to_ms(at_ms) >= at_ms
        if self.is_paused or (is_had and not self.reporter.is_compared):
            return True
        return self.windows.gone_to_ms(at_ms) is not None

    def _had_to_ms(self, at_ms: int) -> int:
        """Return up to when windows from a time on were taken before, and readers of the stream that the query makes
        have what they bring; a time before that if that one was not."""
        had_ms: int = self._readers.had_ms
        if self.group is not None and self.group.had(at_ms):
            had_ms = max(had_ms, self.group.alike_to_ms(at_ms))
        return had_ms if self.made is None else min(had_ms, self.made.decided_to_ms)

    def leave_out(self, at_ms: int) -> None:
        """Go on after a firing that is skipped, and after those behind it that are, too, or whose slices are gone."""
        gone_ms = None if self.is_paused else self.windows.gone_to_ms(at_ms)
        if gone_ms is not None:
            last_ms = self._lose(at_ms, gone_ms)
        else:
            last_ms = self._last_of(at_ms, FOREVER_MS if self.is_paused else self._had_to_ms(at_ms))
        self.skip_to(last_ms)
        self._steady_to_ms = None
        if self.is_paused or gone_ms is not None:
            self.reporter.forget(last_ms)
        if gone_ms is not None:
            self._decide(last_ms, None)

    def _lose(self, first_ms: int, to_ms: int) -> int:
        """Tell the firings from the first one up to a time as a gap. Return the last of them."""
        step_ms = self.step_ms or 1
        to_ms = self._before_planned(first_ms, to_ms)
        last_ms = to_ms // step_ms * step_ms if self.step_ms is not None else first_ms
        self._counts.over_budget += (last_ms - first_ms) // step_ms + 1
        self.log.lose(first_ms, last_ms, step_ms)
        return last_ms

    def _before_planned(self, first_ms: int, to_ms: int) -> int:
        """Return up to when, at most to_ms, firings from the first one on are before the next change."""
        bounds = [change.after_ms for change in self._changes[:1]] + [one["from_ms"] for _, one in self.planned[:1]]
        return min([to_ms, *(max(first_ms, int(ms)) for ms in bounds if ms is not None)])

    def _last_of(self, first_ms: int, to_ms: int) -> int:
        """Return the last firing that is due up to a time. first_ms: the first, which is due."""
        covered_ms = self._covered_ms()
        if self.step_ms is None or covered_ms is None:
            return first_ms
        to_ms = self._before_planned(first_ms, min(to_ms, covered_ms))
        return max(first_ms, first_ms + (to_ms - first_ms) // self.step_ms * self.step_ms)

    def _stretch_to_ms(self, at_ms: int, picked: Picked) -> int:
        """Return the last of the firings that are done with the one at a time: they are due, and have its answer."""
        to_ms = picked.same_to_ms.get(self.beat)
        if to_ms is None:
            to_ms = self._covered_ms() if self.step_ms is not None else None
            if to_ms is None or to_ms < at_ms + (self.step_ms or 1):
                to_ms = at_ms
            else:
                to_ms = self.windows.same_to_ms(at_ms, to_ms, picked.upper)
            if not self.windows.is_filtered:
                picked.same_to_ms[self.beat] = to_ms
        steady_ms, self._steady_to_ms = self._steady_to_ms, to_ms
        if to_ms == at_ms or self.answering.is_of_moment:
            return at_ms
        # What is compared with the firing before has its answer only if that one has read the same. Triples have blank
        # nodes, and a stream that they make, of their own: they are repeated when there are none.
        is_first = steady_ms is None or steady_ms < at_ms
        if recorded := self.reporter.recorded:  # firings behind one of these are compared with it
            is_first |= recorded[0].at_ms < at_ms
            to_ms = min([to_ms, *(one.at_ms for one in recorded if one.at_ms >= at_ms)])
        if is_first and (self.reporter.is_compared or self.query.form == "construct"):
            return at_ms
        if self.group is not None:
            to_ms = min(to_ms, self.group.alike_to_ms(at_ms))
        return self._last_of(at_ms, to_ms)

    def company(self) -> Hashable:
        """Return what is equal for all queries that are run together when they are due at one time, None if this one
        runs alone. Called with the lock held."""
        return self.answering.company()

    def prepare(self, at_ms: int, picked: Picked) -> Firing | None:
        """Pick the batches that the firing at a time reads. Return None if it is not to be reported.

        picked: with others of the moment. Called with the lock held, when everything up to then is sealed."""
        is_compiled = self.answering.compiled is not None
        reading = picked.readings.get(self.beat) if is_compiled else None
        if reading is None:
            reading = self.windows.read(at_ms, is_compiled=is_compiled)
            if is_compiled and self.windows.is_of_beat(reading):
                picked.readings[self.beat] = reading
        last_ms = at_ms if reading.error is not None else self._stretch_to_ms(at_ms, picked)
        self.skip_to(last_ms)
        self._last_ms = last_ms
        is_alone = last_ms == at_ms
        if not self.reporter.is_wanted(at_ms, reading.extents) and reading.error is None:
            self._counts.not_reported += 1 if is_alone else (last_ms - at_ms) // (self.step_ms or 1) + 1
            self.log.skip(last_ms)
            self._decide(last_ms, None)
            return None
        is_compared, is_stored = self.reporter.is_compared, self.windows.reads_stored
        if is_compared and self.step_ms is not None and self.windows.has_lost_of(at_ms - self.step_ms):
            self.reporter.go_on_no_more()
        self._core.journal.delivery.fired(self.lsn, at_ms, last_ms, reading.needs_ms, is_compared, is_stored)
        self._is_firing, self._picked_ms = True, at_ms
        stretch = None
        if not is_alone:
            stretch = Stretch(at_ms, last_ms, self.step_ms or 1, self.windows.places(at_ms))
        return self.answering.pick(self, at_ms, reading, picked, stretch)

    def stand_behind(self, at_ms: int) -> None:
        """Go on behind a firing that was picked for this query, and is about to be run. Called with the lock held."""
        self.skip_to(at_ms)
        self._last_ms = self._picked_ms = at_ms
        self._is_firing = True

    def go_on_from(self, other: ContinuousQuery, since_ms: int) -> None:
        """Stand where another query stands that has fired for this one. since_ms: its first firing, or a time
        before all. Called with the lock held."""
        next_ms, last_ms = other.next_firing(), other._last_ms
        if next_ms is not None:
            self.skip_to(max(next_ms, since_ms) - (self.step_ms or 1))
        if last_ms is not None and last_ms >= since_ms:
            self._last_ms = last_ms

    def run(self, firing: Firing, due_at_s: float) -> None:
        """Execute a firing and report its window. A window that was taken before is not reported again: only the next
        firing needs it.

        Called without the lock. due_at_s: perf_counter when it was due."""
        try:
            self._run(firing, due_at_s)
        finally:
            self._is_firing = False
        self._core.unread.end_full()

    def _run(self, firing: Firing, due_at_s: float) -> None:
        started_s = time.perf_counter()
        try:
            if firing.reading.error is not None:
                self._counts.over_budget += 1
                raise firing.reading.error
            window = self._execute(firing, due_at_s)
        except WukongsError as error:
            if firing.reading.error is None and self._ran_in_parts(firing, due_at_s):
                return
            log.warning("query %s, window ending at %d ms: %s", self.name, firing.at_ms, error)
            self._put_error(firing, error)
            self._trace(firing, None, due_at_s, started_s, time.perf_counter(), type(error).__name__)
            return
        except Exception as error:
            # A mistake of ours in this query: the others, and the streams, go on without it.
            log.exception("query %s, window ending at %d ms: the firing has failed", self.name, firing.at_ms)
            told = WukongsError(
                f"query {self.name}, window ending at {firing.at_ms} ms: the firing failed with "
                f"{type(error).__name__}: {error}. Its later windows are still reported; see the log"
            )
            told.__cause__ = error.with_traceback(None)  # its frames hold tables
            self._put_error(firing, told)
            return
        last_ms, executed_s = firing.last_ms, time.perf_counter()
        self._decide(last_ms, window)
        had_ms = self._readers.had_ms
        if last_ms <= had_ms:
            return
        count = firing.count_after(had_ms)
        if window is None:
            self._counts.not_reported += count
            self.log.skip(last_ms)
            return
        self._counts.report(window, (executed_s - started_s) * 1e6, last_ms, count)
        self._put(last_ms, window, WINDOW_BYTES + window.size_bytes, firing.stretch)
        self._trace(firing, window, due_at_s, started_s, executed_s)

    def _trace(
        self,
        firing: Firing,
        window: WindowResult | None,
        due_s: float,
        begun_s: float,
        executed_s: float,
        error: str | None = None,
    ) -> None:
        """Tell of a firing, if anybody listens."""
        if LISTENING.to is not None:
            rows, snapshot = (None, None) if window is None else (len(window), window.snapshot)
            count, now_s = firing.count_after(self._readers.had_ms), time.perf_counter()
            times = due_s, begun_s, executed_s, now_s
            LISTENING.to.fired(Fired(self.name, firing.last_ms, count, rows, snapshot, *times, error))

    def _ran_in_parts(self, firing: Firing, due_at_s: float) -> bool:
        """Run a firing that was too much in parts, over the same reading; tell whether there are any."""
        parts = [] if self.group is None else self.group.divide(firing.last_ms)
        for part in parts:
            part.run(replace(firing, query=part, cached=None), due_at_s)
        return bool(parts)

    def _decide(self, at_ms: int, window: WindowResult | None) -> None:
        """Hand what a firing has brought, None: nothing, to the readers of the stream that it makes."""
        if window is not None and window.is_graph and len(window):
            self._steady_to_ms = None
        if self.made is not None:
            self.made.decide(at_ms, window)

    def _put_error(self, firing: Firing, error: WukongsError) -> None:
        last_ms, had_ms = firing.last_ms, self._readers.had_ms
        self._decide(last_ms, None)
        self.reporter.forget(last_ms)
        self._steady_to_ms = None
        if last_ms <= had_ms:
            return
        self._counts.errors += firing.count_after(had_ms)
        self._put(last_ms, error, WINDOW_BYTES, firing.stretch)

    def _put(self, last_ms: int, item: WindowResult | WukongsError, size_bytes: int, stretch: Stretch | None) -> None:
        self._core.journal.delivery.reported(self, last_ms, item, stretch)
        self.log.put(last_ms, item, size_bytes, stretch)

    def remembered(self) -> dict[str, Any] | None:
        """Do as journal.ReportedBy.remembered."""
        return self.reporter.newest() if self.reporter.is_compared else None

    def return_windows(
        self,
        come: Mapping[str, Come],
        windows: Sequence[tuple[int, WindowResult | WukongsError, Stretch | None]],
        remembered: Sequence[Remembered],
    ) -> None:
        """Let windows of before a restart wait for their readers, and go on behind the last of them. Called with the
        lock held, when the query was just registered.

        come: how far groups of readers are; windows: each with the end of its last firing and the firings that it
        stands for; remembered: some firings with which the next ones are compared, in order."""
        self._readers.restore(come)
        for last_ms, item, stretch in windows:
            size_bytes = 0 if isinstance(item, WukongsError) else item.size_bytes
            self.log.put(last_ms, item, WINDOW_BYTES + size_bytes, stretch)
            self._readers.returned_ms = last_ms
        self.reporter.recorded = list(remembered)
        if windows and self.reporter.is_compared and self.made is None:
            self.skip_to(windows[-1][0])

    def _execute(self, firing: Firing, due_at_s: float) -> WindowResult | None:
        """Return what the firing reports, None if REPORT leaves it out."""
        (found, reader), used = self.answering.answer(firing)
        self._counts.count_found(used, firing.count)
        if not self.reporter.is_reported(found):
            return None
        reading = firing.reading
        return WindowResult(
            self.query.form,
            self.query.variables if self.group is None else self.group.rows.variables,
            found.columns,
            reader,
            tick_sn(firing.at_ms),
            found.boolean,
            found.length,
            query=self.name,
            start_ms=reading.start_ms,
            end_ms=firing.at_ms,
            windows=reading.spans,
            partial=reading.partial,
            latency_us=(time.perf_counter() - due_at_s) * 1e6,
            is_stream=self.is_stream,
            text=self.source.text,
        )
