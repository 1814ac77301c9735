"""JoinedQueries: registered queries of one shape, which fire as one (docs/decisions/0042-groups-at-registration.md).

The queries of a shape (query_shapes.py) are a relation: a row of constants for each. One ContinuousQuery, the lead, is
asked for all rows of it (query/execution/argument_rows.py); it has one plan, one due time and one reading of windows.
Each of its windows is a block: the rows of all queries, in the order of their numbers. A query takes its part of a
block out when somebody reads, and is told at once only where somebody waits. So a query that nobody looks at costs
nothing at a firing.

A query leaves its group, and goes on alone from the next window, when it is paused or replaced. A group
whose firing exceeds its limits is divided, and each half does the firing anew, until what is too much is alone.

In a data folder each registration is a record of its own; groups are derived from these, also when the log is replayed.
The journal notes a firing of the group once (Deliveries.gather). Queries that are not read acknowledge nothing: a
checkpoint asks how far they have come (JoinedQueries.come_unread).

Which groups there are, and who is in them, is guarded by the engine's lock; blocks and who waits for them by the lock
of the window logs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import replaced
from wukongs.errors import BudgetExceeded, WukongsError
from wukongs.live.continuous import CLOSE_S, ContinuousQuery
from wukongs.live.core import Core, QueryLog
from wukongs.live.declarations import parse_continuous, register_query
from wukongs.live.firing import Firer
from wukongs.live.injector import Injector
from wukongs.live.joined_blocks import Block, Blocks
from wukongs.live.journal import ReportedBy
from wukongs.live.query_shapes import Shape, hole, shape_of
from wukongs.live.query_source import QuerySource, is_over
from wukongs.live.readers import Readers
from wukongs.live.reporting import ONE, Remembered, Row
from wukongs.live.stream_state import StreamState
from wukongs.live.window_log import (
    LAST_MS,
    OWN,
    WINDOW_BYTES,
    Come,
    Cursor,
    Gap,
    LoggedWindow,
    WindowLog,
)
from wukongs.live.windows import firing_step, first_firing, first_multiple
from wukongs.query.execution.answer import Answer
from wukongs.query.execution.argument_rows import ArgumentRows, BoundQuery
from wukongs.query.limits import limits_of
from wukongs.query.output.html import query_html
from wukongs.query.output.results import WindowResult
from wukongs.store.dtypes import BoolArray, Int64Array

ALONE_MAX = 8
"""So many queries of a shape stay alone: a few are quicker by compiled plans of their own."""
ALONE_IN_CLUSTER_MAX = 1
"""The same at a node of a cluster, where each query that is alone asks the other nodes."""
GROUP_MAX = 1 << 16
"""Queries of one group. Its table is made anew when one comes or goes."""
SWEPT_MIN = 256
COUNTS = ("windows", "rows", "errors", "not_reported", "last_rows")
"""The counts of each query (QueryCounts); errors: of firings."""
_GONE_MS = np.iinfo(np.int64).max
"""The first firing of a query that has left."""
_NO_IDS = np.empty(0, np.int64)
_NOT_READ: Mapping[str, Come] = {}
Array = TypeVar("Array", Int64Array, BoolArray)
_ADVICE = "Let its patterns share variables, or start from a constant"


class JoinedGroup:
    """The queries of one shape that fire as one: what the lead is asked for (query_text.Rows). Their numbers are places
    in the arrays below, and rise in the order in which they have come."""

    references = _NO_IDS
    """The references of constants are released one by one."""

    def __init__(
        self,
        core: Core,
        injector: Injector,
        shape: Shape,
        ids: Int64Array,
        name: str,
        from_ms: int | None,
        before: tuple[Blocks, ...] = (),
    ) -> None:
        """ids: of the constants of the shape, which are those of some query; name: of the lead; from_ms: the event time
        from which the first query counts; before: blocks of a group that was divided, with windows of its queries.
        Called with the lock held."""
        registration = shape.query.registration
        assert registration is not None
        self._core, self._injector, self._query = core, injector, shape.query
        self.is_compared = registration.output != "rstream"
        """Whether a window has the rows that were inserted or deleted since the firing before."""
        self.members: list[JoinedQuery | None] = []
        self.count = 0
        """Members that are still there."""
        self._ids: Int64Array = np.zeros((16, len(shape.constants)), np.int64)
        self._is_taken: BoolArray = np.zeros(self._ids.shape, np.bool_)
        """Whether a reference was taken on a constant's id."""
        self._counts: Int64Array = np.zeros((16, len(COUNTS)), np.int64)
        """COUNTS of each."""
        self._since_ms: Int64Array = np.zeros(16, np.int64)
        """The first window of each, _GONE_MS of those that have left."""
        self._fires_ms: Int64Array = np.zeros(16, np.int64)
        """The first firing of each, with which the first window may be compared, _GONE_MS of those that have left."""
        self._over: tuple[int, dict[int, int]] = 0, {}
        """The last firing, and queries that have more rows there than they may, with the numbers of rows."""
        self._first, self._first_ids = shape.constants, ids
        self._rows: ArgumentRows | None = None
        self.version = 0
        """Implement query_text.Rows.version."""
        self._stats: tuple[int, dict[str, Any]] | None = None
        """Those of the lead, and how many blocks there were then."""
        self.watched: dict[int, JoinedQuery] = {}
        """Queries for whose windows somebody waits."""
        is_silent = "non-empty result" in registration.report
        self.blocks, self._before = Blocks(is_silent, core.unread), before
        asked = replace(shape.query, registration=replace(registration, name=name, report=()))
        lsn = core.journal.delivery.gather(self)
        self.lead = ContinuousQuery(core, injector, asked, None, QuerySource(""), lsn, from_ms, rows=self)
        self.lead.cursor().close()  # it would acknowledge what only the lead has taken
        self._cursor = self.lead.log.cursor()
        self.lead.log.listen(self._take)

    # --- who is in it; called with the engine's lock held -------------------------------------------------------------

    def can_join(self, first_ms: int | None) -> bool:
        """Tell whether a query that fires first at a time has no window before the next one of this group. None: it is
        not known yet."""
        if len(self.members) >= GROUP_MAX or self.lead.is_closed:
            return False
        next_ms = self.lead.times.next_firing()
        return next_ms is None if first_ms is None else next_ms is not None and first_ms >= next_ms

    def add(self, member: JoinedQuery, ids: Int64Array, is_taken: BoolArray, counts: Mapping[str, int]) -> None:
        """counts: those that it has from before."""
        number = len(self.members)
        with self._core.unread.lock:
            if number == len(self._ids):
                self._ids, self._is_taken = _twice(self._ids), _twice(self._is_taken)
                self._counts = _twice(self._counts)
                self._since_ms, self._fires_ms = _twice(self._since_ms), _twice(self._fires_ms)
            self._ids[number], self._is_taken[number] = ids, is_taken
            self._counts[number] = [counts[name] for name in COUNTS]
            self._since_ms[number], self._fires_ms[number] = member.since_ms, member.fires_ms
            self._rows, self.version = None, self.version + 1
            self.members.append(member)
            self.count += 1
            member.stand(self, number)

    def remove(self, number: int) -> None:
        """Ask for a query no more, which has taken what it will take. The last one takes the lead with it. Called with
        both locks held."""
        self.members[number] = None
        self._since_ms[number] = self._fires_ms[number] = _GONE_MS
        self.count -= 1
        self._rows, self.version = None, self.version + 1
        self.watched.pop(number, None)
        self._core.registry.release(self._ids[number][self._is_taken[number]])
        if not self.count:
            self._end_lead()

    def _end_lead(self) -> None:
        self.lead.log.unlisten(self._take)
        self.lead.end()
        self.blocks.end_here()
        self._core.journal.delivery.forget(self.lead.lsn)

    @property
    def streams(self) -> set[str]:
        """The streams of its windows."""
        return {window.stream for window in self._query.dataset.windows}

    def stats(self) -> dict[str, Any]:
        """Return those of the lead."""
        if self._stats is None or self._stats[0] != self.blocks.end:
            self._stats = self.blocks.end, self.lead.stats()
        return self._stats[1]

    # --- what the lead asks -------------------------------------------------------------------------------------------

    @property
    def rows(self) -> ArgumentRows:
        """The table of constants. A column that is the same for all is put into the query, where it guides the plan."""
        with self._core.lock:
            if self._rows is None:
                found = [number for number, member in enumerate(self.members) if member is not None]
                numbers = np.array(found or [0], np.int64)  # all may have gone while the lead fires
                ids = self._ids[numbers]
                is_fixed = (ids == self._first_ids).all(axis=0)
                if is_fixed.all():
                    is_fixed[-1] = False
                fixed: dict[Variable, Term] = {hole(at): self._first[at] for at in np.flatnonzero(is_fixed).tolist()}
                query = replace(self._query, pattern=replaced(self._query.pattern, fixed))
                columns = {hole(at): np.ascontiguousarray(ids[:, at]) for at in np.flatnonzero(~is_fixed).tolist()}
                bound = BoundQuery(query, tuple(columns))
                self._rows = ArgumentRows(bound, list(columns.values()), len(numbers), numbers)
            return self._rows

    def had(self, at_ms: int) -> bool:
        """Implement query_text.Rows.had."""
        return not self._has_begun(at_ms).any()

    def taken_ms(self, taken_of: Callable[[int], int | None]) -> int:
        """Do as journal.FiredAsOne.taken_ms."""
        with self._core.unread.lock:
            last_ms = self.blocks.last_ms  # a later firing may be picked, and not reported yet
            found = [-LAST_MS if last_ms is None else last_ms]
            for member in self.members:
                if member is not None and member.is_read:
                    if self.blocks.is_silent:
                        member.draw()  # it may have no rows for long
                    taken_ms = taken_of(member.lsn)
                    found.append(max(member.since_ms - 1, -LAST_MS if taken_ms is None else taken_ms))
            found += [ms - 1 for blocks in (*self._before, self.blocks) if (ms := blocks.untaken_ms()) is not None]
            return min(found)

    def alike_to_ms(self, at_ms: int) -> int:
        """Implement query_text.Rows.alike_to_ms; until another query has its first firing, or window."""
        firsts = np.concatenate([of_each[: len(self.members)] for of_each in (self._since_ms, self._fires_ms)])
        return int(np.min(firsts[firsts > at_ms], initial=_GONE_MS)) - 1

    def begins_at(self, at_ms: int) -> bool:
        """Implement query_text.Rows.begins_at."""
        return bool((self._fires_ms[: len(self.members)] == at_ms).any())

    def found(self, answer: Answer, at_ms: int) -> Answer:
        """Implement query_text.Rows.found: without queries that fire later, and without those that have more rows than
        they may, which are noted."""
        numbers = answer.columns[0]
        counts = np.bincount(numbers, minlength=len(self._fires_ms))
        is_asked, is_over = self._fires_ms[: len(counts)] <= at_ms, counts > self._core.settings.rows_max
        self._over = at_ms, dict(zip(np.flatnonzero(is_over).tolist(), counts[is_over].tolist(), strict=True))
        if (is_kept := (is_asked & ~is_over)[numbers]).all():
            return answer
        return replace(answer, columns=tuple(one[is_kept] for one in answer.columns), length=int(is_kept.sum()))

    def remembered(self) -> tuple[int, list[int], dict[int, list[Row]]] | None:
        """Return what the next firing is compared with: the time of the last one, the LSNs of all queries, and the rows
        of those that have some. None: there is nothing."""
        found = {number: one for number, one in enumerate(self.members) if one is not None}
        told = self.lead.text.reporter.progress_of(found) if self.is_compared else None
        if told is None:
            return None
        at_ms, rows = told
        return at_ms, [one.lsn for one in found.values()], {found[n].lsn: own for n, own in rows.items()}

    def untaken_ms(self) -> int | None:
        """Implement query_text.Rows.untaken_ms."""
        with self._core.unread.lock:
            found = [ms for blocks in (*self._before, self.blocks) if (ms := blocks.untaken_ms()) is not None]
            read = (one for one in self.members if one is not None and one.is_read)
            found += [ms for one in read if (ms := one.readers.untaken_ms(is_stream=False)) is not None]
            return min(found, default=None)

    def told(self) -> str:
        """Implement query_text.Rows.told."""
        return f"each firing answers {self.count} queries of one shape together"

    def divide(self, at_ms: int) -> Sequence[Firer]:
        """Implement query_text.Rows.divide."""
        with self._core.lock:
            members = [member for member in self.members if member is not None]
            if len(members) < 2 or self.lead.is_closed:
                return []
            half, leads = len(members) // 2, []
            for number, part in enumerate((members[:half], members[half:])):
                name = f"{self.lead.name}, part {number}" if len(part) > 1 else f"{part[0].name} in a group of its own"
                shape, before = Shape(self._query, self._first), (*self._before, self.blocks)
                group = JoinedGroup(
                    self._core, self._injector, shape, self._first_ids, name, self.lead.times.from_ms, before
                )
                group.lead.firings.stand_behind(at_ms)
                self._core.journal.delivery.hand_on(self.lead.lsn, group.lead.lsn, -LAST_MS)
                for member in part:
                    at = member.number
                    group.add(member, self._ids[at], self._is_taken[at], self.counts_of(at))
                    self.lead.text.reporter.hand_over(at, group.lead.text.reporter, member.number)
                self._injector.add(group.lead)
                leads.append(group.lead.firings)
            with self._core.unread.lock:
                self._end_lead()
            return leads

    # --- windows; called with the lock of the logs held ---------------------------------------------------------------

    def _take(self) -> None:
        """Take what the lead has reported."""
        while (taken := self._cursor.fetch(0, is_whole=True)) is not None:
            self._add(taken)
            self._cursor.confirm(taken)
        if self.lead.log.is_closed:
            for member in filter(None, self.members):
                member.close_log()

    def _add(self, taken: LoggedWindow) -> None:
        has_begun = self._has_begun(taken.end_ms)
        block = Block(taken.end_ms, taken.item, taken.gap, taken.stretch, _NO_IDS, int(has_begun.sum()))
        told: Iterable[int] = list(self.watched)
        if isinstance(taken.item, WindowResult):
            (numbers, *_) = taken.item.ids(0, len(taken.item)) if len(taken.item) else (_NO_IDS,)
            block.numbers = numbers
            counts = np.bincount(numbers, minlength=len(self.members))
            is_over = counts > self._core.settings.rows_max
            block.over = dict(zip(np.flatnonzero(is_over).tolist(), counts[is_over].tolist(), strict=True))
            if self.is_compared and self._over[0] == taken.end_ms:
                block.over = self._over[1]
            self._count(has_begun, counts, taken.count, list(block.over))
            if self.blocks.is_silent:
                counts[list(block.over)] = 1
                found = np.flatnonzero((counts > 0) & has_begun).tolist()
                block.left, block.taken = len(found), np.flatnonzero((counts > 0) & ~has_begun).tolist()
                told = [number for number in found if number in self.watched]
        elif taken.gap is None and taken.end_ms < LAST_MS:
            self._counts[: len(self.members), COUNTS.index("errors")] += has_begun * taken.count
        self.blocks.add(block)
        for number in told:
            if (member := self.watched.get(number)) is not None:
                member.draw()

    def _has_begun(self, end_ms: int) -> BoolArray:
        """Tell of each query whether it is there and has the window with this end."""
        has_begun: BoolArray = self._since_ms[: len(self.members)] <= end_ms
        return has_begun

    def _count(self, has_begun: BoolArray, rows: Int64Array, count: int, over: list[int]) -> None:
        """Count windows that are alike. has_begun : bool[members]; rows : int64[members], how many rows of each of them
        a query has; count: how many they are; over: queries that have more rows than they may."""
        is_error = np.zeros(len(rows), np.bool_)
        is_error[over] = has_begun[over]
        is_told = has_begun & ~is_error & ((rows > 0) | (not self.blocks.is_silent))
        windows, all_rows, errors, not_reported, last_rows = self._counts[: len(rows)].T
        windows += is_told * count
        all_rows += rows * is_told * count
        errors += is_error * count
        not_reported += (has_begun & ~is_error & ~is_told) * count
        last_rows[is_told] = rows[is_told]

    def counts_of(self, number: int) -> dict[str, int]:
        """Return the COUNTS of a query."""
        return dict(zip(COUNTS, self._counts[number].tolist(), strict=True))


def _twice(array: Array) -> Array:
    """Return an array with room for twice as many."""
    return np.concatenate([array, np.zeros_like(array)])


class JoinedQuery:
    """A registered query that fires with others of its shape. It has the methods of ContinuousQuery, and is one again
    once it has left its group. All its methods may be called from any thread."""

    is_stream = False

    __slots__ = (
        "_alone",
        "_before",
        "_came",
        "_come_ms",
        "_counts",
        "_group",
        "_is_closed",
        "_joined",
        "_place",
        "_readers",
        "_step_ms",
        "_vars",
        "fires_ms",
        "is_recovered",
        "lsn",
        "name",
        "number",
        "since_ms",
        "source",
    )

    def __init__(
        self,
        joined: JoinedQueries,
        name: str,
        source: QuerySource,
        variables: tuple[str, ...],
        since_ms: int,
        step_ms: int,
        lsn: int,
        came: Mapping[str, Come],
        fires_ms: int,
    ) -> None:
        """since_ms: its first window, -LAST_MS if that is the first of its group; step_ms: how often it fires; lsn: the
        record of the log that registered it; came: how far its cursors had come before a restart, by name; fires_ms:
        its first firing, which is earlier than its first window if that is compared with it."""
        self.name, self.source, self.lsn = name, source, lsn
        self.is_recovered = False
        """It was found in the data folder, and nobody has registered it again yet."""
        self.number = -1
        self._is_closed = False
        self._joined, self._vars, self._step_ms = joined, variables, step_ms
        self.since_ms, self.fires_ms = since_ms, fires_ms
        self._group: JoinedGroup | None = None
        self._alone: ContinuousQuery | None = None
        self._readers: Readers | None = None
        self._came = came
        self._place = 0
        self._before: tuple[tuple[Blocks, int, int], ...] = ()
        """Blocks of groups that were divided: with the number it had there, and from which place on it has to take."""
        self._come_ms: int | None = None
        """The last firing that was taken."""
        self._counts = dict.fromkeys(COUNTS, 0)
        """Those with which it has left its group."""

    def __repr__(self) -> str:
        return f"<JoinedQuery {self.name}>" if self._alone is None else repr(self._alone)

    def _repr_html_(self) -> str:
        return query_html("ContinuousQuery", self.name, self.stats, self.source.text)

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def readers(self) -> Readers:
        with self._joined.core.unread.lock:
            if self._readers is None:
                core, source = self._joined.core, self.source
                log = WindowLog(self.name, core.unread, source.unread_bytes_max, source=self)
                readers = Readers(core, log, self.lsn)
                readers.restore(self._came)
                self._readers = readers
                self.draw()  # from now on it acknowledges by itself, and that begins with what it has not to take
                if self._is_closed:
                    log.close()
            return self._readers

    @property
    def log(self) -> WindowLog:
        return self.readers.log

    def results(self, timeout_s: float | None = None, *, group: str | None = None) -> Iterator[WindowResult]:
        """Do as ContinuousQuery.results."""
        return self.cursor(group).read(timeout_s, is_shared=group is not None)

    def aresults(self, timeout_s: float | None = None, *, group: str | None = None) -> AsyncIterator[WindowResult]:
        """Do as ContinuousQuery.aresults."""
        return self.cursor(group).aread(timeout_s, is_shared=group is not None)

    def cursor(self, group: str | None = None) -> Cursor:
        """Do as ContinuousQuery.cursor."""
        if group is not None and self._joined.core.journal.keeps_windows:
            return self.alone().cursor(group)
        return self.readers.cursor(group)

    def stats(self) -> dict[str, Any]:
        """Do as ContinuousQuery.stats; times are those of the group."""
        with self._joined.core.lock:
            group = self._group
            if self._alone is not None:
                return self._alone.stats()
            with self._joined.core.unread.lock:
                if group is not None and self._readers is None:
                    counts = group.counts_of(self.number)
                    places = self._places()
                    waiting = sum(blocks.count_for(number, place, self.since_ms) for blocks, number, place in places)
                    come, told = self._begins()
                    waiting += (come is not None and come.gap is not None) - told
                    return group.stats() | counts | self._of_group(group, counts) | {"results_waiting": waiting}
                readers, log = self.readers, self.log
                found = {
                    "results_waiting": len(readers.own),
                    "results_dropped": log.dropped_count,
                    "results_dropped_to_ms": log.dropped_to_ms,
                    "unread_bytes": log.size_bytes,
                }
                counts = self._counts if group is None else group.counts_of(self.number)
                counts = counts | {"errors": counts["errors"] + readers.counts.errors}
                if group is None:
                    return readers.counts.stats() | counts | found | {"plans_made": 0}
                return group.stats() | counts | self._of_group(group, counts) | found

    @staticmethod
    def _of_group(group: JoinedGroup, counts: Mapping[str, int]) -> dict[str, int]:
        return {"explored_together": counts["windows"], "queries": group.count}

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
        core, injector = self._joined.core, self._joined.injector
        with core.lock:
            if self._alone is None and (self._is_closed or self._group is None):
                raise is_over(self.name)
            query = self._alone
            if query is None:
                assert self._group is not None
                lead = self._group.lead
                with core.unread.lock:
                    readers = self.readers
                parsed = parse_continuous(self.source)
                query = ContinuousQuery(
                    core, injector, parsed, None, self.source, 0, lead.times.from_ms, readers=readers
                )
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
        return self._joined.core.query_log

    def alter(self, source: QuerySource, is_paused: bool, start: int | None) -> None:
        """Do as ContinuousQuery.alter."""
        if source != self.source or is_paused:
            self.alone().alter(source, is_paused, start)

    def alone(self) -> ContinuousQuery:
        """Leave the group: go on alone from the next window on, with the same readers. Raises StreamError (closed)."""
        core = self._joined.core
        with core.lock:
            while self._alone is None:
                if self._is_closed or self._group is None:
                    raise is_over(self.name)
                core.check_is_open()  # else no firing is waited for, and nobody would end the query
                group, lead = self._group, self._group.lead
                if lead.is_firing:
                    lead.changes.wait_for_firing()
                    continue
                with core.unread.lock:
                    readers = self.readers
                    readers.log.detach()
                self._joined.forget(self)
                injector, query = self._joined.injector, parse_continuous(self.source)
                alone = register_query(core, injector, query, None, self.source, self.lsn, lead.times.from_ms, readers)
                alone.is_recovered = self.is_recovered
                alone.times.go_on_from(lead.times, self.fires_ms)
                lead.text.reporter.hand_over(self.number, alone.text.reporter, ONE)
                core.journal.delivery.hand_on(lead.lsn, self.lsn, self.fires_ms)
                with core.unread.lock:
                    counts = group.counts_of(self.number)
                    readers.counts.take_over(**counts)
                    group.remove(self.number)
                self._alone, self._group = alone, None
            return self._alone

    @property
    def is_closed(self) -> bool:
        return self._is_closed if self._alone is None else self._alone.is_closed

    def close(self) -> None:
        """Do as ContinuousQuery.close."""
        core, query_log, deadline_s = self._joined.core, self._query_log(), time.monotonic() + CLOSE_S
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
        core, from_ms = self._joined.core, group.lead.times.change_ms(after_ms)
        core.journal.commit({"op": "close", "query": self.name, "from_ms": from_ms})
        if (query_log := self._query_log()) is not None:
            query_log.close_query(self.name)
        self.end()
        for stream in group.streams:
            self._joined.injector.made.drop_unread(stream)

    def end(self) -> None:
        """Do as ContinuousQuery.end. Called with the engine's lock held, while it is in a group."""
        group, number = self._group, self.number
        assert group is not None, self.name
        self._joined.forget(self)
        with self._joined.core.unread.lock:
            places = self._places()
            self._before = tuple((blocks.rest(n, place, self.since_ms), n, place) for blocks, n, place in places)
            self._group, self._counts = None, group.counts_of(number)
            group.remove(number)
            self.close_log()

    # --- over the end of a process ------------------------------------------------------------------------------------

    def attach(self, on_result: Callable[[WindowResult], object] | None) -> None:
        """Do as ContinuousQuery.attach."""
        self.is_recovered = False
        if on_result is not None:
            self.readers.call(self._joined.injector.callbacks, on_result)

    @property
    def is_read(self) -> bool:
        """Whether somebody has asked for its windows since the engine was opened: then it acknowledges them itself."""
        return self._readers is not None

    def progress(self) -> tuple[int | None, int | None]:
        """Return its next firing, None if that is not known yet, and the event time from which it counts."""
        assert self._group is not None, self.name
        lead = self._group.lead
        next_ms = lead.times.next_firing()
        return next_ms if next_ms is None else max(next_ms, self.fires_ms), lead.times.from_ms

    def remembered(self) -> dict[str, Any] | None:
        """Implement journal.ReportedBy.remembered."""
        group = self._group
        return None if group is None or not group.is_compared else group.lead.text.reporter.newest(self.number)

    @property
    def place(self) -> Hashable:
        """A value that is equal for all that have come equally far while nobody reads them; None: it is not known to be
        equal for any other. Read with the lock of the logs held."""
        group = self._group
        if group is None or self._before or self.number in group.blocks.dropped:
            return None
        return group, self._place, self.since_ms, self._came.get(OWN)

    def come(self) -> Come | None:
        """Return how far it has come while nobody reads it: before the first window that is there for it. None: nothing
        was fired. Called with the lock of the logs held."""
        come, _ = self._begins()
        return come

    def _begins(self) -> tuple[Come | None, int]:
        """Return the same, and how many blocks are gaps before that window."""
        came, come_ms = self._came.get(OWN), self._come_ms
        gaps = [] if came is None or came.gap is None else [came.gap]
        through_ms, told = None if came is None else came.through_ms, 0
        for blocks, number, place in self._places():
            if (lost := self._lost(blocks, number, place, come_ms)) is not None:
                gaps.append(lost)
            for _, block in blocks.held_from(place):
                if self.since_ms <= block.end_ms < LAST_MS:
                    if block.gap is None:
                        through_ms = max(block.begin_ms - 1, self.since_ms - 1 if through_ms is None else through_ms)
                        return Come(through_ms, Gap.joined(gaps) if gaps else None), told
                    gaps.append(self._gone_in(block))
                    told += 1
            if place < blocks.end and blocks.last_ms is not None:
                come_ms = blocks.last_ms
                through_ms = come_ms if through_ms is None else max(come_ms, through_ms)
        if through_ms is None:
            return None, told
        return Come(through_ms, Gap.joined(gaps) if gaps else None), told

    # --- windows; called with the lock of the logs held ---------------------------------------------------------------

    def _places(self) -> tuple[tuple[Blocks, int, int], ...]:
        """Return the blocks from which it has to take, with its number there, and from which place on."""
        group = self._group
        return self._before if group is None else (*self._before, (group.blocks, self.number, self._place))

    def stand(self, group: JoinedGroup, number: int) -> None:
        """Have a number in a group from its next block on. Also called with the engine's lock held."""
        if (before := self._group) is not None:
            self._before = (*self._before, (before.blocks, self.number, self._place))
            if self.number in before.watched:
                group.watched[number] = self
        self._group, self.number, self._place = group, number, group.blocks.end

    def watch(self, is_watched: bool) -> None:
        """Do as window_log.Source.watch."""
        if self._group is not None:
            if is_watched:
                self._group.watched[self.number] = self
            else:
                self._group.watched.pop(self.number, None)

    def draw(self) -> None:
        """Do as window_log.Source.draw."""
        readers = self._readers
        if readers is None:
            return
        places, self._before = self._places(), ()
        if self._group is not None:
            self._place = self._group.blocks.end
        for blocks, number, place in places:
            self._draw(readers, blocks, number, place)

    def _draw(self, readers: Readers, blocks: Blocks, number: int, place: int) -> None:
        """Put the windows of some blocks, from a place on, into the log, and gaps in the place of what was dropped."""
        if place >= blocks.end:
            return
        last_ms, held = blocks.last_ms, list(blocks.held_from(place))
        if (lost := self._lost(blocks, number, place, self._come_ms)) is not None:
            readers.log.lack(lost)
            blocks.dropped.pop(number, None)
        for at, block in held:
            if block.end_ms >= self.since_ms and blocks.concerns(block, number):
                blocks.done(at, block, number)
                if blocks.is_silent and block.begin_ms < LAST_MS:
                    readers.log.skip(block.begin_ms - self._step_ms)
                self._put(readers, block, number)
        if last_ms is not None:
            if blocks.is_silent and last_ms >= self.since_ms:
                readers.log.skip(last_ms)
            self._come_ms = last_ms

    def _lost(self, blocks: Blocks, number: int, place: int, come_ms: int | None) -> Gap | None:
        """Return the windows of some blocks, from a place on, that were dropped before it has taken them. come_ms: the
        last firing before that it has taken, or lost."""
        if blocks.is_silent:
            return blocks.dropped.get(number)
        first_ms, to_ms = blocks.first_ms, blocks.last_ms
        at, block = next(blocks.held_from(place), (blocks.end, None))
        if first_ms is None or to_ms is None or at <= place:
            return None
        before_ms = (first_ms if self.since_ms == -LAST_MS else self.since_ms) - self._step_ms
        come_ms = before_ms if come_ms is None else max(come_ms, before_ms)
        if block is not None:
            to_ms = min(block.begin_ms - self._step_ms, to_ms)
        return None if come_ms >= to_ms else Gap(come_ms + self._step_ms, to_ms, (to_ms - come_ms) // self._step_ms)

    def _gone_in(self, block: Block) -> Gap:
        """Return what it has lost by a block that is a gap."""
        first_ms = max(block.begin_ms, self.since_ms)
        count = (block.end_ms - first_ms) // self._step_ms + 1
        return Gap(first_ms, block.end_ms, count, count)

    def _put(self, readers: Readers, block: Block, number: int) -> None:
        whole = block.item
        if block.gap is not None:
            gap = self._gone_in(block)
            readers.log.lose(gap.from_ms, gap.to_ms, self._step_ms)
            return
        if isinstance(whole, WukongsError):
            readers.log.put(block.end_ms, whole, stretch=block.stretch)
            return
        lo, hi = block.rows_of(number)
        if number in block.over:
            try:
                limits_of(self._joined.core.settings, None).check_rows(
                    block.over[number], _ADVICE, f"query {self.name}"
                )
            except BudgetExceeded as error:
                readers.log.put(block.end_ms, error, stretch=block.stretch)
                return
        window = WindowResult(
            "select",
            self._vars,
            tuple(column.copy() for column in whole.ids(lo, hi)[1:]),
            whole.reader,
            whole.snapshot,
            length=hi - lo,
            query=self.name,
            start_ms=whole.start_ms,
            end_ms=whole.end_ms,
            windows=whole.windows,
            partial=whole.partial,
            latency_us=whole.latency_us,
            text=self.source.text,
        )
        readers.counts.report(window, whole.latency_us, block.end_ms, block.count)
        readers.log.put(block.end_ms, window, WINDOW_BYTES + window.size_bytes, block.stretch)

    def close_log(self) -> None:
        """Let readers end once they have read what is there."""
        self._is_closed = True
        if self._readers is not None:
            self.draw()
            self._readers.close()


class JoinedQueries:
    """The groups of one engine, and who is in them. Called with the engine's lock held."""

    def __init__(self, core: Core, injector: Injector) -> None:
        self.core, self.injector = core, injector
        self.members: dict[str, JoinedQuery] = {}
        """By name; without those that have left their groups."""
        self._alone: dict[Query, set[str]] = {}
        """Shape -> the queries of it that were left alone, being few."""
        self._groups: dict[Query, JoinedGroup] = {}
        """Shape -> the newest group."""
        self._made = 0
        self._swept_at = SWEPT_MIN
        """With so many shapes, those without a query are forgotten."""

    @staticmethod
    def is_lead(query: ContinuousQuery) -> bool:
        """Tell whether a query is asked for a group, and was registered by nobody."""
        return isinstance(query.text.group, JoinedGroup)

    def join(
        self,
        query: Query,
        source: QuerySource,
        on_result: Callable[[WindowResult], object] | None,
        from_ms: int | None,
        lsn: int = 0,
        came: Mapping[str, Come] | None = None,
        next_ms: int | None = None,
        remembered: Iterable[Remembered] = (),
    ) -> JoinedQuery | None:
        """Register a query in a group of its shape; None if it is to be registered alone. from_ms: the event time from
        which it counts; lsn: the record of the log that registered it; came, next_ms: how far its cursors, and it, had
        come before a restart; remembered: what its firings had to be compared with at some times before."""
        registration = query.registration
        assert registration is not None
        shape = None if source != QuerySource(source.text, source.base, source.output) else shape_of(query)
        if shape is None:
            return None
        if len(self._alone) + len(self._groups) >= self._swept_at:
            self._sweep()
        name, group = registration.name, self._groups.get(shape.query)
        if group is None:
            alone = self._alone.setdefault(shape.query, set())
            alone_max = ALONE_MAX if self.core.reach is None else min(ALONE_MAX, ALONE_IN_CLUSTER_MAX)
            if len(alone) >= alone_max:
                alone.intersection_update(self.injector.queries)
            if len(alone) < alone_max:
                alone.add(name)
                return None
        states: list[StreamState] = [self.core.stream(window.stream) for window in query.dataset.windows]
        step_ms = firing_step(query)
        assert step_ms is not None, name
        first_ms = first_firing(step_ms, states, from_ms) if next_ms is None else next_ms
        ids, taken = self.core.registry.reserve([term.text for term in shape.constants])
        if group is None or not group.can_join(first_ms):
            self._made += 1
            lead = f"group {self._made} of queries like {name}"
            group = self._groups[shape.query] = JoinedGroup(self.core, self.injector, shape, ids, lead, from_ms)
            if first_ms is not None:
                group.lead.times.skip_to(first_ms - step_ms)
            self.injector.add(group.lead)
        since_ms = fires_ms = -LAST_MS if first_ms is None else first_ms
        came = came or _NOT_READ
        if (had_ms := min((come.through_ms for come in came.values()), default=-LAST_MS)) > -LAST_MS and OWN in came:
            since_ms = max(since_ms, first_multiple(step_ms, had_ms, is_strict=True))
        if not group.is_compared:
            fires_ms = since_ms
        member = JoinedQuery(self, name, source, query.variables, since_ms, step_ms, lsn, came, fires_ms)
        group.add(member, ids, np.isin(ids, taken), dict.fromkeys(COUNTS, 0))
        group.lead.text.reporter.record(member.number, remembered)
        self.members[name] = member
        if on_result is not None:
            member.readers.call(self.injector.callbacks, on_result)
        elif not {OWN}.issuperset(came):
            _ = member.readers  # groups of readers hold windows as well
        return member

    def get(self, name: str) -> JoinedQuery | ContinuousQuery | None:
        """Return a registered query, None if there is none of this name."""
        return self.members.get(name) or self.injector.queries.get(name)

    def find(self, name: str) -> JoinedQuery | ContinuousQuery:
        """Return a registered query."""
        return self.members.get(name) or self.injector.queries[name]

    def registered(self) -> list[JoinedQuery | ContinuousQuery]:
        """Return all registered queries."""
        alone = (one for one in self.injector.queries.values() if not self.is_lead(one))
        return [*alone, *self.members.values()]

    # --- for checkpoints ----------------------------------------------------------------------------------------------

    def reporters(self) -> list[ReportedBy]:
        """Return all registered queries as those that report windows."""
        alone = (one.firings for one in self.injector.queries.values() if not self.is_lead(one))
        return [*alone, *self.members.values()]

    def progress(self) -> list[tuple[int | None, int | None, list[int]]]:
        """Return where queries stand: their next firing, the event time from which they count, and the LSNs of all of
        whom that is true."""
        found: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)
        for member in self.members.values():
            found[member.progress()].append(member.lsn)
        return [(*place, lsns) for place, lsns in found.items()]

    def remembered(self) -> list[tuple[int, list[int], dict[int, list[Row]]]]:
        """Return what the next firings of groups are compared with, as JoinedGroup.remembered has it."""
        leads = [one.text.group for one in self.injector.queries.values()]
        groups = [one.remembered() for one in leads if isinstance(one, JoinedGroup)]
        return [found for found in groups if found is not None]

    def come_unread(self) -> list[tuple[list[int], list[int]]]:
        """Return how far those have come that nobody has read since the engine was opened: a Come as a list, and the
        LSNs of all of whom it is true."""
        found: defaultdict[Come, list[int]] = defaultdict(list)
        known: dict[Hashable, Come | None] = {}
        with self.core.unread.lock:
            for member in self.members.values():
                if member.is_read:
                    continue
                place = member.place
                if place is None or place not in known:
                    known[place] = member.come()
                if (come := known[place]) is not None:
                    found[come].append(member.lsn)
        return [([come.through_ms, *(come.gap or ())], lsns) for come, lsns in found.items()]

    def _sweep(self) -> None:
        """Forget shapes of which no query is left."""
        self._groups = {shape: group for shape, group in self._groups.items() if not group.lead.is_closed}
        queries = self.injector.queries.keys()
        self._alone = {shape: names for shape, names in self._alone.items() if not names.isdisjoint(queries)}
        self._swept_at = max(SWEPT_MIN, 2 * (len(self._alone) + len(self._groups)))

    def named(self, query: str) -> str:
        """Name those who have registered a query, if it is a lead."""
        group = self.injector.queries[query].text.group
        if not isinstance(group, JoinedGroup):
            return query
        first = next(member.name for member in group.members if member is not None)
        return first if group.count == 1 else f"{first} and {group.count - 1} queries of its shape"

    def forget(self, member: JoinedQuery) -> None:
        """Know a query no more: it leaves its group."""
        del self.members[member.name]
