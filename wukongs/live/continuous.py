"""A registered query, as those who have registered it have it.

It is composed of what it is by its text (query_text.py), when it fires (firing_times.py), changes between two firings
(query_changes.py), its firings (query_firings.py), and who reads its windows (readers.py).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from weakref import ref

from wukongs.csparql.algebra import Output, Query
from wukongs.errors import BudgetExceeded, WukongsError
from wukongs.live.callbacks import Callbacks
from wukongs.live.core import Core
from wukongs.live.firing_times import FiringTimes
from wukongs.live.made_streams import Made, MadeStreams
from wukongs.live.query_changes import QueryChanges
from wukongs.live.query_explained import QueryExplained
from wukongs.live.query_firings import QueryFirings
from wukongs.live.query_source import QuerySource, check_name, is_over
from wukongs.live.query_text import QueryText, Rows
from wukongs.live.query_windows import QueryWindows, counts_from
from wukongs.live.readers import Readers
from wukongs.live.reporting import Remembered
from wukongs.live.stretch import Stretch
from wukongs.live.window_log import LAST_MS, WINDOW_BYTES, Come, Cursor, WindowLog
from wukongs.live.windows import reads_stored
from wukongs.query.output.html import query_html
from wukongs.query.output.results import WindowResult

log = logging.getLogger("wukongs")
CLOSE_S = 10.0
"""Longest wait of close() for the windows that are due. A query that lags further behind ends without them."""


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


def _no_other_text(source: QuerySource) -> Query:
    raise AssertionError(source)


def _weakly(query: ContinuousQuery, method: Callable[..., None]) -> Callable[..., None]:
    """Return a function that calls a method with a query as long as that lives, and does not keep it alive."""
    own = ref(query)

    def call(*arguments: object) -> None:
        found = own()
        if found is not None:
            method(found, *arguments)

    return call


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
        self._core, self._schedule, self._parse, self._rows = core, schedule, parse, rows
        if readers is None:
            on_full = self._end_unread if source.unread == "end" else None
            readers = Readers(core, WindowLog(self.name, core.unread, source.unread_bytes_max, on_full), lsn)
        self._readers, self.log, self._counts = readers, readers.log, readers.counts
        text = QueryText(core, query, source, self._counts, rows)
        self.times = FiringTimes(core, schedule.made, text, from_ms, _weakly(self, schedule.moved))
        apply = _weakly(self, ContinuousQuery._apply)
        self.changes = QueryChanges(core, self.times, _weakly(self, schedule.schedule_changes), apply)
        self.firings = QueryFirings(core, self.name, lsn, self.times, self.changes, readers)
        self._is_replaced = False
        if on_result is not None:
            self._readers.call(schedule.callbacks, on_result)

    @property
    def text(self) -> QueryText:
        """The text that it has now."""
        return self.times.text

    @property
    def query(self) -> Query:
        return self.times.text.query

    @property
    def source(self) -> QuerySource:
        return self.times.text.source

    @property
    def windows(self) -> QueryWindows:
        return self.times.text.windows

    @property
    def is_stream(self) -> bool:
        """Whether it makes a stream."""
        return self.times.text.is_stream

    @property
    def is_paused(self) -> bool:
        return self.times.is_paused

    @property
    def is_closed(self) -> bool:
        return self.times.is_closed

    @property
    def is_firing(self) -> bool:
        """Implement Producer.is_firing."""
        return self.times.is_firing

    @property
    def made(self) -> Made | None:
        """Implement Producer.made."""
        return self.times.made

    @made.setter
    def made(self, made: Made | None) -> None:
        self.times.made = made

    def __repr__(self) -> str:
        return f"<ContinuousQuery {self.name}: {self._counts.windows} windows reported>"

    def _repr_html_(self) -> str:
        return query_html("ContinuousQuery", self.name, self.stats, self.text.source.text)

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
        return self.name if self.text.is_stream else None

    def close(self) -> None:
        """End the query. Windows that are due when it is called are still reported, unless that takes longer than 10 s;
        reported windows can still be read. Raises StorageError (it cannot be logged)."""
        if self._core.query_log is not None and not self.times.is_closed:
            self._core.query_log.catch_up()
        with self._core.lock:
            if self.times.is_closed:
                return
            if self.times.made is not None and self._core.query_log is not None:
                self._schedule.catch_up()  # until the other nodes have what it has made
            if not self.changes.make_after_due(self._close_whole, CLOSE_S, is_last=True):
                self._close_whole(None)
        if self._core.query_log is not None:
            self._core.query_log.drop_unread((self.name, *self.text.states))

    def _close_whole(self, after_ms: int | None) -> None:
        """Close the query, and the stream that it makes. Called with the lock held."""
        if self.times.is_closed:
            return
        made = self.times.made
        self._close(after_ms)
        if made is not None:
            made.end()
        for stream in (self.name, *self.text.states):
            self._schedule.made.drop_unread(stream)

    def _close(self, after_ms: int | None = None) -> None:
        from_ms = self.times.change_ms(after_ms)
        self._core.journal.commit({"op": "close", "query": self.name, "from_ms": from_ms})
        if self._core.query_log is not None:
            self._core.query_log.close_query(self.name)
        self.end()

    def end(self) -> None:
        """End the query in this engine; in a data folder it stays registered."""
        with self._core.lock:
            if self.times.is_closed:
                return
            self.times.is_closed = True
            self._schedule.forget(self)
            self.text.forget()
        self._readers.close()

    def fail(self, error: WukongsError) -> None:
        """End the query with an error that its reader is told, after what was reported before."""
        self.log.put(LAST_MS, error)
        self.end()

    def _end_unread(self) -> None:
        """End the query because nobody reads its windows. The replay of a log leaves that to what comes after it."""
        if self._core.replayed_to is None and not self.times.is_closed:
            error = BudgetExceeded(
                f"query {self.name} has ended: more windows are unread than unread_bytes_max or results_bytes_max "
                'allow, and it was registered with unread="end": register it anew, read faster, or allow more'
            )
            log.warning("%s", error)
            self.log.put(LAST_MS, error)
            with self._core.lock:  # what waits for the log may hold with this record
                if not self.times.is_closed:
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
            if not self.times.is_closed:
                self._core.query_log.pause_query(self.name, is_paused)
            return
        with self._core.lock:
            self.changes.make_after_due(partial(self._log_and_apply, {"op": "pause", "is_paused": is_paused}, None))

    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None:
        """Go on with another text, which has the same name: windows that are due when it is called go by the text
        before, every later one by this one. Readers go on where they are. ISTREAM and DSTREAM begin anew.

        Raises as Engine.register; StreamError (another name; closed), StorageError."""
        if self._core.query_log is not None:
            if self.times.is_closed:
                raise is_over(self.name)
            self._core.query_log.replace_query(self.name, text, base, output)
            return
        source = self.text.source._replace(text=text, base=base, output=output)
        with self._core.lock:
            query = self._parse(source)
            check_name(query, self.name)
            start = counts_from(self._core, query, self._schedule.made.settled_closed_ms)
            change = {"op": "replace", **source._asdict(), "start": start}

            def make(after_ms: int | None) -> None:
                self._parse(source)  # a stream may have been dropped meanwhile
                self._log_and_apply(change, query, after_ms)

            if not self.changes.make_after_due(make):
                raise is_over(self.name)

    def alter(self, source: QuerySource, is_paused: bool, start: int | None) -> None:
        """Be what the log of a cluster says from here on. start: the time from which another text counts if nothing has
        fired. Called with the lock held, when everything due has fired. Raises as Engine.register."""
        if source != self.text.source:
            query = self._parse(source)
            check_name(query, self.name)
            self._log_and_apply({"op": "replace", **source._asdict(), "start": start}, query)
        if is_paused != self.times.is_paused:
            self._log_and_apply({"op": "pause", "is_paused": is_paused})

    def _log_and_apply(self, change: dict[str, Any], query: Query | None = None, after_ms: int | None = None) -> None:
        """Log a change together with the time after which it counts, and make it. query: that of another text;
        after_ms: as in QueryChange."""
        from_ms = self.times.change_ms(after_ms)
        if query is not None and reads_stored(query) and from_ms is not None and change["start"] is not None:
            from_ms = max(from_ms, change["start"])  # the snapshots of before may be gone
        change = {**change, "query": self.name, "of": self.lsn, "from_ms": from_ms}
        self._core.journal.commit(change)
        self._apply(change)

    def _apply(self, change: Mapping[str, Any]) -> None:
        """Make a change of which the log says from when it counts. Called with the lock held."""
        if change["op"] == "pause":
            self.times.is_paused = change["is_paused"]
            self.text.answering.forget()
            return
        source, from_ms = QuerySource.of(change), change["from_ms"]
        before, recorded = list(self.text.states), self.text.reporter.recorded
        self.text.forget()
        self.times.text = QueryText(self._core, self._parse(source), source, self._counts, self._rows)
        self._is_replaced = True
        if from_ms is None:
            self.times.from_ms = change["start"]
            self.times.fire_next(None)
        else:
            self.times.skip_to(from_ms)
            self.text.reporter.recorded = [one for one in recorded if one.at_ms > from_ms]
        self._schedule.replaced(self, before)

    # --- over the end of a process ------------------------------------------------------------------------------------

    def attach(self, on_result: Callable[[WindowResult], object] | None) -> None:
        """Go on for whoever has registered the query again; what waits is reported first. Called with the lock held."""
        self.is_recovered = False
        if on_result is not None:
            self._readers.call(self._schedule.callbacks, on_result)

    def progress(self) -> dict[str, Any]:
        """Return, as JSON, how far the query has come: what restore_progress takes."""
        return {
            "next_ms": self.times.next_ms,
            "from_ms": self.times.from_ms,
            "is_paused": self.times.is_paused,
            "remembered": self.text.reporter.progress(),
            **({"source": self.text.source._asdict()} if self._is_replaced else {}),
        }

    def restore_progress(self, progress: Mapping[str, Any]) -> None:
        """Stand where another one stood."""
        closed = progress.get("closed_at_start", {})  # in logs of before
        self.times.from_ms = progress.get("from_ms", min(closed.values(), default=None))
        self.times.fire_next(progress["next_ms"])
        self.times.is_paused = progress["is_paused"]
        self._is_replaced = "source" in progress
        self.text.reporter.restore(progress.get("remembered"))

    def restore_cursors(self, found: Mapping[str, Come]) -> None:
        """Let results(), or on_result, and groups of readers go on where they stood."""
        self._readers.restore(found)

    def return_windows(
        self,
        come: Mapping[str, Come],
        windows: Sequence[tuple[int, WindowResult | WukongsError, Stretch | None]],
        remembered: Sequence[Remembered],
    ) -> None:
        """Queue the windows of before a restart for their readers, and continue behind the last of them. Called with
        the lock held, when the query was just registered.

        come: how far groups of readers are; windows: each with the end of its last firing and the firings that it
        stands for; remembered: some firings with which the next ones are compared, in order."""
        self._readers.restore(come)
        for last_ms, item, stretch in windows:
            size_bytes = 0 if isinstance(item, WukongsError) else item.size_bytes
            self.log.put(last_ms, item, WINDOW_BYTES + size_bytes, stretch)
            self._readers.returned_ms = last_ms
        self.text.reporter.recorded = list(remembered)
        if windows and self.text.reporter.is_compared and self.times.made is None:
            self.times.skip_to(windows[-1][0])

    # --- what it says -------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return counts, and medians and 99th percentiles of the last firings in microseconds."""
        self._core.check_is_own()
        return {
            **self._counts.stats(),
            "firings_waiting": len(self.times.offloaded),
            "results_waiting": len(self._readers.own),
            "results_dropped": self.log.dropped_count,
            "results_dropped_to_ms": self.log.dropped_to_ms,
            "unread_bytes": self.log.size_bytes,
            **({} if self.text.group is None else {"queries": self.text.group.arguments.count}),
            **self.text.answering.stats(),
        }

    def warnings(self) -> tuple[str, ...]:
        """Return likely mistakes of the query, by its text and by the data so far: a sentence each, if it can with the
        place in the text. They are logged when the query is registered."""
        return self._explained().warnings()

    def explain(self, *, analyze: bool = False) -> str:
        """Return the plan as text, with the rows that are estimated for the windows as they stand now; and warnings.

        analyze: run the query over these windows too, without reporting anything, and show the actual rows of each step
        and rows and time of each operator. Raises QueryTimeout, BudgetExceeded."""
        return self._explained().explain(analyze=analyze)

    def why(self, row: Mapping[str, Any] | None = None) -> str:
        """Tell why a row was reported, or without one, what the query waits for.

        row: terms by the names of the variables of a row of the last window, as Stream.push takes them, some or all of
        them: returned are the triples that it rests on, with the windows that they are in, and what stored ones follow
        from. Else, in words, what the query waits for, and then what empties it, a fact a line: rows of the last window
        and after each step, the first pattern without matches, predicates that have not come, late tuples, windows that
        were partial or dropped. For the steps the last firing, or else the next one, is evaluated anew over what is
        held; if that takes too long or too much, it is said in its place. Raises DataError (a term), StreamError (a
        row, and nothing has fired), QueryTimeout, BudgetExceeded."""
        return self._explained().why(row)

    def _explained(self) -> QueryExplained:
        return QueryExplained(self._core, self.name, self._schedule.made, self.times, self._readers)

    # --- where it stands; called with the lock held -------------------------------------------------------------------

    def reads(self, stream_iri: str) -> bool:
        """Tell whether one of its windows is over a stream."""
        return stream_iri in self.text.states

    def decided_ms(self) -> int | None:
        """Do as Producer.decided_ms."""
        return self.times.decided_ms()

    def settled_decided_ms(self) -> tuple[int | None, bool]:
        """Implement Producer.settled_decided_ms."""
        return self.times.settled_decided_ms()

    def settled_next_ms(self) -> int | None:
        """Implement Producer.settled_next_ms."""
        return self.times.settled_next_ms()
