"""ViewReaders: hands the reports of a live view to its readers, each by a cursor."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Protocol

from wukongs.errors import StreamError
from wukongs.live.core import Core
from wukongs.live.views.caller import end_of
from wukongs.live.views.view_journal import ViewJournal
from wukongs.live.views.view_log import LoggedReport, Position, ViewCursor, ViewLog
from wukongs.live.views.view_state import OWN, named
from wukongs.query.limits import check_seconds
from wukongs.query.output.view_report import ViewReport

TURN_POLL_S = 0.01
"""Interval at which a reader in an event loop tries to become the active one of its cursor."""


class Readable(Protocol):
    """A live view. of: the record that registered it, 0: it is in no data folder."""

    log: ViewLog
    of: int
    is_closed: bool
    is_paused: bool

    @property
    def begins_whole(self) -> bool:
        """Whether new cursors begin with a reset."""

    def whole(self, cursor: ViewCursor) -> LoggedReport:
        """Return the content, from which a cursor goes on. Raises StreamError (closed or paused)."""

    def quiet(self, after: Position, sn: Position) -> LoggedReport:
        """Return the report that nothing has changed between two positions."""

    def rendered(self, logged: LoggedReport, after: Position) -> ViewReport: ...


class ViewReaders:
    """The readers of one view."""

    def __init__(self, core: Core, view: Readable, journal: ViewJournal | None) -> None:
        self._core, self._view, self._journal, self.log = core, view, journal, view.log
        self._cursors = {OWN: self.log.cursor(OWN, needs_reset=view.begins_whole)}
        """Those that outlive their readers, by name."""
        if journal is not None:
            self.log.on_move = partial(journal.note, view.of, self.log)

    def restore(self, reports: Iterable[LoggedReport], cursors: Iterable[ViewCursor]) -> None:
        """Have the cursors of a data folder, with the reports that they have not read."""
        self._cursors = {cursor.name: cursor for cursor in cursors}
        if OWN not in self._cursors:
            self._cursors[OWN] = self.log.cursor(OWN, needs_reset=True)
        self.log.restore(reports, self._cursors.values())

    def release(self) -> None:
        """Give back what the positions of readers hold: all begin with a reset. Called with the engine's lock held."""
        if self._journal is not None:
            self._journal.release(self._view.of)

    def results(self, timeout_s: float | None, group: str | None, *, progress: bool) -> Iterator[ViewReport]:
        """See LiveView.results."""
        check_seconds(timeout_s)
        cursor = self.of_group(group)
        return self._read(cursor, timeout_s, progress=progress, is_shared=group is not None)

    async def aresults(
        self, timeout_s: float | None, group: str | None, *, progress: bool
    ) -> AsyncIterator[ViewReport]:
        """See LiveView.aresults."""
        check_seconds(timeout_s)
        cursor, loop, arrived = self.of_group(group), asyncio.get_running_loop(), asyncio.Event()

        def listener() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(arrived.set)

        self.log.listen(listener)
        is_reading = False
        try:
            deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
            while not (is_reading := cursor.turn.acquire(blocking=False)):
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    return
                await asyncio.sleep(TURN_POLL_S)
            while True:
                arrived.clear()
                while (report := await self._anext(cursor, progress=progress)) is not None:
                    try:
                        yield report
                    except GeneratorExit:
                        self._leave(cursor, report, is_shared=group is not None)
                        raise
                    self.log.move(cursor, end_of(report))
                if self.log.is_closed:
                    return
                try:
                    await asyncio.wait_for(arrived.wait(), timeout_s)
                except TimeoutError:
                    return
        finally:
            self.log.unlisten(listener)
            if is_reading:
                cursor.turn.release()

    async def _anext(self, cursor: ViewCursor, *, progress: bool) -> ViewReport | None:
        """Return what next_report gives now; a reset is evaluated, and the disk waited for, by another
        thread."""
        if cursor.needs_reset or self._journal is not None:
            return await asyncio.to_thread(self.next_report, cursor, 0.0, progress=progress)
        return self.next_report(cursor, 0.0, progress=progress)

    def of_group(self, group: str | None) -> ViewCursor:
        """Return the cursor of a group, or the view's own."""
        return self.cursor(OWN if group is None else named(group))

    def cursor(self, name: str) -> ViewCursor:
        """Return a cursor, which begins now if there is none of that name."""
        with self._core.lock:  # the log stands where the view does
            cursor = self._cursors.get(name)
            if cursor is None:
                cursor = self._cursors[name] = self.log.cursor(name, needs_reset=self._view.begins_whole)
                if self._journal is not None:
                    self._journal.note_begin(self._view.of, self.log, cursor)
            return cursor

    def _read(
        self, cursor: ViewCursor, timeout_s: float | None, *, progress: bool, is_shared: bool
    ) -> Iterator[ViewReport]:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        if not cursor.turn.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0)):
            return
        try:
            while (report := self.next_report(cursor, deadline_s, progress=progress)) is not None:
                try:
                    yield report
                except GeneratorExit:
                    self._leave(cursor, report, is_shared=is_shared)
                    raise
                self.log.move(cursor, end_of(report))
                deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        finally:
            cursor.turn.release()

    def _leave(self, cursor: ViewCursor, report: ViewReport, *, is_shared: bool) -> None:
        """End the reading of a cursor at a report. is_shared: the next reader gets this report again."""
        if not is_shared:
            self.log.move(cursor, end_of(report))
        elif report.is_reset:
            with self.log.changed:
                cursor.begin_again()

    def next_report(self, cursor: ViewCursor, deadline_s: float | None, *, progress: bool = False) -> ViewReport | None:
        """Return the next report of a cursor, None if there is none in time. deadline_s: time.monotonic()."""
        with self.log.changed:
            if not self.log.wait(cursor, deadline_s, progress=progress):
                return None
            self.log.check(cursor)
            if not cursor.needs_reset:
                logged = self.log.next_report(cursor)
                after = cursor.sn
                if logged is None:
                    return self._view.rendered(self._view.quiet(after, self.log.sn), after)
            else:
                logged = None
        if logged is None:
            try:
                logged = self._view.whole(cursor)
            except StreamError:
                if self._view.is_closed or self._view.is_paused:
                    return None
                raise
            after = logged.after
        return self._view.rendered(logged, after) if self._note_handed(cursor, logged.sn) else None

    def _note_handed(self, cursor: ViewCursor, end: Position) -> bool:
        """Have the log of the data folder, or of the cluster, say what a reader is about to get. Return False if it is
        not to get it here. Raises StorageError, NodeUnavailable."""
        if self._view.is_closed:
            return not self.log.has_left
        if self._journal is None or not cursor.name:
            return True
        try:
            self._journal.hand_out(self._view.of, self.log, cursor, end)
        except BaseException:
            with self.log.changed:
                if cursor.is_beginning:
                    cursor.begin_again()
            raise
        return True
