"""Caller: calls an on_result with the reports of a live view."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from wukongs.errors import NodeUnavailable, StorageError, WukongsError
from wukongs.live.callbacks import Callbacks, FailedCalls
from wukongs.live.views.view_log import Position, ViewCursor, ViewLog
from wukongs.query.output.view_report import ViewReport

OnReport = Callable[[Any], object]
REPORTS_AT_ONCE = 64
"""Reports of one view for which on_result is called before another view has its turn."""
WAIT_S = 0.2
"""A report that cannot be had waits so long."""


class Reported(Protocol):
    """A live view. log: its reports."""

    log: ViewLog

    def next_report(self, cursor: ViewCursor, deadline_s: float | None) -> ViewReport | None: ...

    def count_error(self) -> None: ...


def end_of(report: ViewReport) -> Position:
    """Return the position up to which a report leads."""
    return Position(report.snapshot, report.minor)


class Caller:
    """Calls one on_result with the reports of a cursor, by the threads of an engine's callbacks."""

    def __init__(self, view: Reported, cursor: ViewCursor, on_result: OnReport, callbacks: Callbacks) -> None:
        self._view, self._cursor, self._on_result, self._callbacks = view, cursor, on_result, callbacks
        self._is_queued = False
        self._failed = FailedCalls()
        view.log.listen(self._wake)
        with view.log.changed:
            self._wake()

    def _wake(self) -> None:
        """Called with the log's lock held."""
        if not self._is_queued and self._view.log.has_more(self._cursor, progress=False):
            self._is_queued = True
            self._callbacks.submit(self._report)

    def _report(self) -> None:
        for _ in range(REPORTS_AT_ONCE):
            try:
                report = self._view.next_report(self._cursor, 0.0)
            except (StorageError, NodeUnavailable):  # the log is not written now, or another node does not answer
                time.sleep(WAIT_S)
                break
            except WukongsError:  # it was logged and counted when it happened
                continue
            if report is None:
                break
            try:
                self._on_result(report)
            except Exception:
                self._view.count_error()
                self._failed.note(report.query, f"report up to SN {report.snapshot}")
            self._view.log.move(self._cursor, end_of(report))
        with self._view.log.changed:
            self._is_queued = False
            self._wake()
