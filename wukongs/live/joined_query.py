"""JoinedQuery: a registered query that fires with others of its shape, as those who have registered it have it.

It leaves its group, and goes on alone from the next window, when it is paused or replaced."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from wukongs.csparql.algebra import Output
from wukongs.live.continuous import CLOSE_S, ContinuousQuery
from wukongs.live.core import Core, QueryLog
from wukongs.live.declarations import parse_continuous, register_query
from wukongs.live.injector import Injector
from wukongs.live.joined_group import COUNTS, JoinedGroup
from wukongs.live.joined_windows import JoinedWindows
from wukongs.live.query_source import QuerySource, is_over
from wukongs.live.readers import Readers
from wukongs.live.reporting import ONE
from wukongs.live.window_log import Cursor, WindowLog
from wukongs.query.output.html import query_html
from wukongs.query.output.results import WindowResult

_NO_COUNTS: Mapping[str, int] = dict.fromkeys(COUNTS, 0)


class JoinedQuery:
    """It has the methods of ContinuousQuery, and is one again once it has left its group. All its methods may be called
    from any thread.

    windows: those that it takes from its group.
    fires_ms: its first firing, which is earlier than its first window if that is compared with it."""

    is_stream = False

    __slots__ = (
        "_alone",
        "_core",
        "_counts",
        "_group",
        "_injector",
        "_is_closed",
        "_members",
        "fires_ms",
        "is_recovered",
        "windows",
    )

    def __init__(
        self,
        core: Core,
        injector: Injector,
        members: MutableMapping[str, JoinedQuery],
        windows: JoinedWindows,
        fires_ms: int,
    ) -> None:
        """members: the queries that are in a group, by name; it leaves them."""
        self._core, self._injector, self._members = core, injector, members
        self.windows, self.fires_ms = windows, fires_ms
        self.is_recovered = False
        """It was found in the data folder, and nobody has registered it again yet."""
        self._is_closed = False
        self._group: JoinedGroup | None = None
        self._alone: ContinuousQuery | None = None
        self._counts: Mapping[str, int] = _NO_COUNTS
        """Those with which it has left its group."""

    @property
    def name(self) -> str:
        return self.windows.name

    @property
    def lsn(self) -> int:
        """The record of the log that registered it."""
        return self.windows.lsn

    @property
    def source(self) -> QuerySource:
        return self.windows.source

    def __repr__(self) -> str:
        return f"<JoinedQuery {self.name}>" if self._alone is None else repr(self._alone)

    def _repr_html_(self) -> str:
        return query_html("ContinuousQuery", self.name, self.stats, self.source.text)

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def readers(self) -> Readers:
        return self.windows.readers

    @property
    def log(self) -> WindowLog:
        return self.windows.readers.log

    def results(self, timeout_s: float | None = None, *, group: str | None = None) -> Iterator[WindowResult]:
        """Do as ContinuousQuery.results."""
        return self.cursor(group).read(timeout_s, is_shared=group is not None)

    def aresults(self, timeout_s: float | None = None, *, group: str | None = None) -> AsyncIterator[WindowResult]:
        """Do as ContinuousQuery.aresults."""
        return self.cursor(group).aread(timeout_s, is_shared=group is not None)

    def cursor(self, group: str | None = None) -> Cursor:
        """Do as ContinuousQuery.cursor."""
        if group is not None and self._core.journal.keeps_windows:
            return self.alone().cursor(group)
        return self.readers.cursor(group)

    def stats(self) -> dict[str, Any]:
        """Do as ContinuousQuery.stats; times are those of the group."""
        with self._core.lock:
            group = self._group
            if self._alone is not None:
                return self._alone.stats()
            with self._core.unread.lock:
                counts = dict(self._counts) if group is None else group.counts_of(self.windows.number)
                told: dict[str, int] = (
                    {} if group is None else {"explored_together": counts["windows"], "queries": len(group.members)}
                )
                if group is not None and not self.windows.is_read:
                    return group.stats() | counts | told | {"results_waiting": self.windows.waiting_count()}
                readers, log = self.readers, self.log
                found = {
                    "results_waiting": len(readers.own),
                    "results_dropped": log.dropped_count,
                    "results_dropped_to_ms": log.dropped_to_ms,
                    "unread_bytes": log.size_bytes,
                }
                counts = counts | {"errors": counts["errors"] + readers.counts.errors}
                if group is None:
                    return readers.counts.stats() | counts | found | {"plans_made": 0}
                return group.stats() | counts | told | found

    # --- what it would do alone ---------------------------------------------------------------------------------------

    def warnings(self) -> tuple[str, ...]:
        """Do as ContinuousQuery.warnings."""
        with self._as_alone() as query:
            return query.warnings()

    def explain(self, *, analyze: bool = False) -> str:
        """Do as ContinuousQuery.explain, with the plan that it would have alone."""
        with self._as_alone() as query:
            return query.explain(analyze=analyze) + self._told()

    def why(self, row: Mapping[str, Any] | None = None) -> str:
        """Do as ContinuousQuery.why."""
        if self.is_closed:
            return f"{self.name} is closed"
        with self._as_alone() as query:
            if row is not None:
                return query.why(row)
            return f"{query.why()}\n{self._told()}".rstrip("\n")

    def _told(self) -> str:
        group = self._group
        return "" if group is None else f"{group.told()}\n"

    @contextmanager
    def _as_alone(self) -> Iterator[ContinuousQuery]:
        """Yield the query as it is alone, or as it would be: then it stands where its group stands, and never fires.
        Raises StreamError (closed)."""
        core = self._core
        with core.lock:
            if self._alone is None and (self._is_closed or self._group is None):
                raise is_over(self.name)
            query = self._alone
            if query is None:
                assert self._group is not None
                lead = self._group.lead
                with core.unread.lock:
                    readers = self.readers
                parsed, from_ms = parse_continuous(self.source), lead.times.from_ms
                query = ContinuousQuery(core, self._injector, parsed, None, self.source, 0, from_ms, readers=readers)
                query.times.go_on_from(lead.times, self.fires_ms)
        try:
            yield query
        finally:
            if query is not self._alone:
                with core.lock:
                    query.text.forget()

    # --- what is done alone -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Do as ContinuousQuery.pause."""
        if not self.is_closed and (query_log := self._query_log()) is not None:
            query_log.pause_query(self.name, True)
        elif not self.is_closed:
            self.alone().pause()

    def resume(self) -> None:
        """Do as ContinuousQuery.resume. It is not paused in a group."""
        if self._alone is not None:
            self._alone.resume()

    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None:
        """Do as ContinuousQuery.replace."""
        if not self.is_closed and (query_log := self._query_log()) is not None:
            query_log.replace_query(self.name, text, base, output)
        else:
            self.alone().replace(text, base, output)

    def _query_log(self) -> QueryLog | None:
        """Return the log that decides on its changes; they come back from it, through alter."""
        return self._core.query_log

    def alter(self, source: QuerySource, is_paused: bool, start: int | None) -> None:
        """Do as ContinuousQuery.alter."""
        if source != self.source or is_paused:
            self.alone().alter(source, is_paused, start)

    def alone(self) -> ContinuousQuery:
        """Leave the group: go on alone from the next window on, with the same readers. Raises StreamError (closed)."""
        core = self._core
        with core.lock:
            while self._alone is None:
                if self._is_closed or self._group is None:
                    raise is_over(self.name)
                core.check_is_open()  # else no firing is waited for, and nobody would end the query
                group, lead, number = self._group, self._group.lead, self.windows.number
                if lead.is_firing:
                    lead.changes.wait_for_firing()
                    continue
                with core.unread.lock:
                    readers = self.readers
                    readers.log.detach()
                del self._members[self.name]
                query, from_ms = parse_continuous(self.source), lead.times.from_ms
                alone = register_query(core, self._injector, query, None, self.source, self.lsn, from_ms, readers)
                alone.is_recovered = self.is_recovered
                alone.times.go_on_from(lead.times, self.fires_ms)
                lead.text.reporter.hand_over(number, alone.text.reporter, ONE)
                core.journal.delivery.hand_on(lead.lsn, self.lsn, self.fires_ms)
                with core.unread.lock:
                    readers.counts.take_over(**group.counts_of(number))
                    group.remove(number)
                self._alone, self._group = alone, None
            return self._alone

    @property
    def is_closed(self) -> bool:
        return self._is_closed if self._alone is None else self._alone.is_closed

    def close(self) -> None:
        """Do as ContinuousQuery.close."""
        core, query_log, deadline_s = self._core, self._query_log(), time.monotonic() + CLOSE_S
        if query_log is not None and not self.is_closed:
            query_log.catch_up()
        with core.lock:
            group = self._group
            while (own := self._group) is not None and self._alone is None and not (self._is_closed or core.is_closed):
                left_s = deadline_s - time.monotonic()  # the lead of a group ends when the group is divided
                if left_s <= 0 or core.failure is not None:
                    self._close(own, None)
                else:
                    own.lead.changes.make_after_due(partial(self._close, own), left_s)
            alone = self._alone
        if alone is not None:
            alone.close()
        elif group is not None and query_log is not None:
            query_log.drop_unread([*group.streams])

    def _close(self, group: JoinedGroup, after_ms: int | None) -> None:
        """Leave a group and end. after_ms: as in QueryChange. Called with the engine's lock held."""
        if self._group is not group or self._is_closed:
            return
        core, from_ms = self._core, group.lead.times.change_ms(after_ms)
        core.journal.commit({"op": "close", "query": self.name, "from_ms": from_ms})
        if (query_log := self._query_log()) is not None:
            query_log.close_query(self.name)
        self.end()
        for stream in group.streams:
            self._injector.made.drop_unread(stream)

    def end(self) -> None:
        """Do as ContinuousQuery.end. Called with the engine's lock held, while it is in a group."""
        group, number = self._group, self.windows.number
        assert group is not None, self.name
        del self._members[self.name]
        with self._core.unread.lock:
            self.windows.leave()
            self._group, self._counts = None, group.counts_of(number)
            group.remove(number)
            self._is_closed = True
            self.windows.close()

    # --- over the end of a process ------------------------------------------------------------------------------------

    def attach(self, on_result: Callable[[WindowResult], object] | None) -> None:
        """Do as ContinuousQuery.attach."""
        self.is_recovered = False
        if on_result is not None:
            self.readers.call(self._injector.callbacks, on_result)

    def progress(self) -> tuple[int | None, int | None]:
        """Return its next firing, None if that is not known yet, and the event time from which it counts."""
        assert self._group is not None, self.name
        lead = self._group.lead
        next_ms = lead.times.next_firing()
        return next_ms if next_ms is None else max(next_ms, self.fires_ms), lead.times.from_ms

    def remembered(self) -> dict[str, Any] | None:
        """Implement journal.ReportedBy.remembered."""
        group = self._group
        if group is None or not group.is_compared:
            return None
        return group.lead.text.reporter.newest(self.windows.number)

    # --- as a member of its group -------------------------------------------------------------------------------------

    def stand(self, group: JoinedGroup, number: int) -> None:
        """Do as Member.stand. Called with both locks held."""
        self._group = group
        self.windows.stand(group.blocks, number)
