"""ViewLog: the reports of a view that some reader has not read yet, and the cursors of its readers.

A report covers the snapshots (after, sn]. Unread reports are never dropped: where they take too much memory, neighbours
are summed. Sums that take too much even so are forgotten, and the cursors that had not read them begin again with a
reset."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from wukongs.csparql.algebra import Query
from wukongs.errors import WukongsError
from wukongs.incremental.zset import ZSet
from wukongs.live.window_log import UnreadBudget
from wukongs.query.terms.query_terms import QueryTerms

REPORT_BYTES = 1024
"""The size of a report beside its columns."""


class Position(NamedTuple):
    """A place in the order of a view's changes.

    sn: all of the stored graph up to this SN.
    minor: all that was bound and unbound before: the version of the arguments, 0 in a view without."""

    sn: int
    minor: int = 0


@dataclass(frozen=True, slots=True)
class LoggedReport:
    """One report, as rows of ids.

    query: the text that it is of, as the view's operators have it.
    after, sn: the positions that it covers: (after, sn].
    rows: the difference of the content, consolidated; where is_whole, the content at sn.
    terms: they have the texts of the ids.
    time_ms: the event time of the stored graph at sn.
    is_whole: RSTREAM, which reports the whole content."""

    query: Query
    after: Position
    sn: Position
    rows: ZSet
    terms: QueryTerms
    time_ms: int | None
    is_whole: bool = False

    @property
    def size_bytes(self) -> int:
        return self.rows.size_bytes + REPORT_BYTES

    def and_then(self, later: LoggedReport) -> LoggedReport:
        """Return the report of both periods."""
        if later.is_whole:
            rows = later.rows
        else:
            earlier = self.rows.renumbered(self.terms, later.terms)
            rows = earlier.plus(later.rows).project(later.rows.variables).consolidated()
        return LoggedReport(later.query, self.after, later.sn, rows, later.terms, later.time_ms, later.is_whole)


@dataclass(slots=True, eq=False)
class ViewCursor:
    """The position of one reader.

    sn: all reports up to this position were read.
    needs_reset: the next report is a reset, whatever was read.
    handed: positions behind sn up to which its reader may have got reports, and may have kept their sum: they stay ends
    of reports.
    is_beginning: its reader got a reset, and has not finished it.
    name: by which it is found after a restart; empty: it ends with its reader.
    noted: of what the log of the data folder says that it may have been handed, the positions behind sn.
    is_noted_begun: the log says that its next report is no reset.
    error: raised to the reader next, in the place of a report.
    turn: held by its one active reader."""

    sn: Position
    needs_reset: bool
    name: str = ""
    handed: set[Position] = field(default_factory=set)
    is_beginning: bool = False
    noted: set[Position] = field(default_factory=set)
    is_noted_begun: bool = False
    error: WukongsError | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, sn: Position) -> None:
        """Note that its reader is about to get a reset at a position."""
        self.sn, self.needs_reset, self.is_beginning = sn, False, True
        self.handed.clear()

    def begin_again(self) -> None:
        self.needs_reset, self.is_beginning = True, False

    def as_json(self) -> list[Any]:
        """Return where it stands, None if its next report is a reset, and the positions behind that its reader may
        have."""
        if self.needs_reset or self.is_beginning:
            return [None, []]
        return [list(self.sn), sorted(map(list, self.handed | self.noted))]


class Quiet(Protocol):
    """Views that move together (quiet_views.py).

    watched: the logs whose readers wait for progress."""

    watched: set[ViewLog]

    def position(self) -> Position:
        """Return where they stand."""


class ViewLog:
    """One log for each view; its lock is that of all unread results (`UnreadBudget`)."""

    def __init__(self, budget: UnreadBudget, unread_bytes_max: int, sn: Position) -> None:
        """sn: the position at which the view begins."""
        self.budget = budget
        self.changed = threading.Condition(budget.lock)
        self._sn = sn
        self._quiet: Quiet | None = None
        """The quiet views, of which its view is one."""
        self._waiting_count = 0
        """Readers that wait for progress."""
        self.is_closed = False
        self.has_left = False
        """Its view goes on at another node, and its readers there."""
        self.is_paused = False
        """The view holds no snapshot: a reset has to wait."""
        self.size_bytes = 0
        self.summed_count = 0
        """Reports that were summed with a neighbour."""
        self.reset_count = 0
        """Cursors that had to begin again."""
        self._bytes_max = unread_bytes_max
        self._reports: list[LoggedReport] = []
        self._cursors: set[ViewCursor] = set()
        self._listeners: set[Callable[[], None]] = set()
        self.on_move: Callable[[ViewCursor], None] = lambda _: None
        """Called with the lock held when a cursor has moved."""
        budget.join(self)

    @property
    def sn(self) -> Position:
        """All reports up to it are there."""
        quiet = self._quiet
        return self._sn if quiet is None else quiet.position()

    # --- the view's side ----------------------------------------------------------------------------------------------

    def put(self, report: LoggedReport | None, sn: Position) -> None:
        """Add the report up to a position. report: None if nothing has changed."""
        with self.changed:
            if report is not None and self.is_read:
                self._reports.append(report)
                self._grow(report.size_bytes)
            self._sn = sn
            if self.size_bytes > self._bytes_max:
                self.drop_oldest()
            self.budget.make_room(self)
            self._wake()

    @property
    def is_read(self) -> bool:
        """Whether some reader gets the next report, and no reset in its place."""
        with self.changed:
            return any(not one.needs_reset for one in self._cursors)

    def begin_again(self, sn: Position, error: WukongsError | None = None) -> None:
        """Have all cursors begin with a reset, at a view that is at a position. error: raised to readers before."""
        with self.changed:
            for cursor in self._cursors:
                cursor.begin_again()
                cursor.error = error or cursor.error
            self._sn = sn
            self._trim()
            self._wake()

    def follow(self, quiet: Quiet) -> None:
        """Stand where quiet views do from now on."""
        with self.changed:
            self._quiet = quiet
            self._watch()

    def follow_no_more(self) -> None:
        """Stand by itself, where the quiet views are now."""
        with self.changed:
            assert self._quiet is not None
            self._sn = self._quiet.position()
            self._quiet.watched.discard(self)
            self._quiet = None

    def _watch(self) -> None:
        """Have readers that wait for progress hear of that of the quiet views. Called with the lock held."""
        if self._quiet is not None:
            if self._waiting_count or self._listeners:
                self._quiet.watched.add(self)
            else:
                self._quiet.watched.discard(self)

    def note_progress(self) -> None:
        """Wake readers: the quiet views, of which its view is one, have moved."""
        with self.changed:
            self._wake()

    def close(self) -> None:
        """Note that no report follows; those that are there can still be read."""
        with self.changed:
            self.is_closed = True
            self.budget.leave(self)
            self._wake()

    def leave(self) -> None:
        """Note that the view goes on at another node: what is not read yet comes there."""
        with self.changed:
            self.has_left = True
            self._grow(-self.size_bytes)
            self._reports = []

    # --- memory: Holder of UnreadBudget -------------------------------------------------------------------------------

    ends_when_full = False

    @property
    def count_held(self) -> int:
        return len(self._reports)

    def end_full(self) -> None:
        raise AssertionError("a view sums its reports")

    def drop_oldest(self) -> None:
        """Sum the reports between the positions of cursors; where that frees nothing, have the cursor that is furthest
        behind begin again. Called with the lock held."""
        before = self.size_bytes
        stops = {sn for one in self._cursors if not one.needs_reset for sn in (one.sn, *one.handed)}
        summed = list[LoggedReport]()
        for report in self._reports:
            if summed and not any(summed[-1].sn <= stop < report.sn for stop in stops):
                last = summed.pop()
                report, self.summed_count = last.and_then(report), self.summed_count + 1
            summed.append(report)
        self._reports = [report for report in summed if len(report.rows) or report.is_whole]
        self._grow(sum(report.size_bytes for report in self._reports) - before)
        readers = [cursor for cursor in self._cursors if not cursor.needs_reset]
        if self.size_bytes > min(self._bytes_max, before // 2) and readers:
            last_sn = min(cursor.sn for cursor in readers)
            for cursor in readers:
                if cursor.sn == last_sn:
                    cursor.begin_again()
                    self.reset_count += 1
            self._trim()

    def _grow(self, change_bytes: int) -> None:
        self.size_bytes += change_bytes
        self.budget.count(self, change_bytes)

    def _trim(self) -> None:
        """Forget the reports that every cursor has read or will not read."""
        needed_sn = min((cursor.sn for cursor in self._cursors if not cursor.needs_reset), default=self.sn)
        kept = [report for report in self._reports if report.sn > needed_sn]
        if len(kept) < len(self._reports):
            self._grow(-sum(report.size_bytes for report in self._reports if report.sn <= needed_sn))
            self._reports = kept

    # --- the readers' side --------------------------------------------------------------------------------------------

    def cursor(self, name: str, *, needs_reset: bool) -> ViewCursor:
        """Return a new cursor, which stands where the log does."""
        with self.changed:
            cursor = ViewCursor(self.sn, needs_reset, name)
            self._cursors.add(cursor)
            return cursor

    @property
    def cursors(self) -> list[ViewCursor]:
        """All cursors. Called with the lock held."""
        return [*self._cursors]

    @property
    def reports(self) -> list[LoggedReport]:
        """The reports that are not read yet. Called with the lock held."""
        return [*self._reports]

    def restore(self, reports: Iterable[LoggedReport], cursors: Iterable[ViewCursor]) -> None:
        """Take what the log of a data folder has: cursors in the place of those that are there, and what they have not
        read up to where the view stands."""
        with self.changed:
            self._cursors = {*cursors}
            self._reports = [*reports]
            self._grow(sum(report.size_bytes for report in self._reports))
            self._trim()

    def drop(self, cursor: ViewCursor) -> None:
        """Forget a cursor that nobody reads by any more."""
        with self.changed:
            self._cursors.discard(cursor)
            self._trim()

    def next_report(self, cursor: ViewCursor) -> LoggedReport | None:
        """Return the next report for a cursor that needs no reset.

        None: there is none. Called with the lock held."""
        found = next((report for report in self._reports if report.sn > cursor.sn), None)
        if found is not None:
            cursor.handed.add(found.sn)
        return found

    def ends_behind(self, cursor: ViewCursor, count: int) -> list[Position]:
        """Return the ends of the next reports for a cursor, some at most. Called with the lock held."""
        return [report.sn for report in self._reports if report.sn > cursor.sn][:count]

    def check(self, cursor: ViewCursor) -> None:
        """Raise the error that waits for a cursor, once; ForkError in a child process. Called with the lock held."""
        if self.budget.failure is not None:
            raise type(self.budget.failure)(str(self.budget.failure))
        error, cursor.error = cursor.error, None
        if error is not None:
            raise error.with_traceback(None)

    def move(self, cursor: ViewCursor, sn: Position) -> None:
        """Note that a cursor has read everything up to a position."""
        with self.changed:
            if not cursor.needs_reset:
                cursor.sn, cursor.is_beginning = max(cursor.sn, sn), False
                cursor.handed = {one for one in cursor.handed if one > cursor.sn}
                cursor.noted = {one for one in cursor.noted if one > cursor.sn}
                self._trim()
                self.on_move(cursor)

    def has_more(self, cursor: ViewCursor, *, progress: bool) -> bool:
        """Tell whether a reader gets something now. Called with the lock held."""
        if cursor.error is not None or self.budget.failure is not None:
            return True
        if cursor.needs_reset:
            return not self.is_paused
        return any(report.sn > cursor.sn for report in self._reports) or (progress and self.sn > cursor.sn)

    def unread_count(self, cursor: ViewCursor) -> int:
        """Return how many reports its reader has not read."""
        with self.changed:
            waiting = sum(report.sn > cursor.sn for report in self._reports)
            return int(not self.is_paused) if cursor.needs_reset else waiting

    def wait(self, cursor: ViewCursor, deadline_s: float | None, *, progress: bool) -> bool:
        """Wait until a reader gets something; return False if it gets nothing: the time has passed, or the log is
        closed. Called with the lock held. deadline_s: time.monotonic()."""
        self._waiting_count += progress
        self._watch()
        try:
            while not self.has_more(cursor, progress=progress):
                left = None if deadline_s is None else deadline_s - time.monotonic()
                if self.is_closed or (left is not None and left <= 0):
                    return False
                self.changed.wait(left)
            return True
        finally:
            self._waiting_count -= progress
            self._watch()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called, with the lock held, when something was put."""
        with self.changed:
            self._listeners.add(listener)
            self._watch()

    def unlisten(self, listener: Callable[[], None]) -> None:
        with self.changed:
            self._listeners.discard(listener)
            self._watch()

    def _wake(self) -> None:
        self.changed.notify_all()
        for listener in list(self._listeners):
            listener()
