"""ViewFeed: the reports of one live view on their way to one client, by a cursor.

It has the methods of a Feed. A report is sent with a number until the client has confirmed it with the request for the
next one. A client has a cursor of its own for a session; in the next session it begins with a reset. Readers of a group
share the cursor of the group, and one of them reads at a time."""

from __future__ import annotations

import threading

from wukongs.errors import StreamError, WukongsError
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.view_log import Position
from wukongs.query.output.view_report import ViewReport
from wukongs.remote.columns import Outgoing


class ViewFeed:
    """query: the view. group: of the readers that this one belongs to; None: it has a cursor of its own."""

    is_owner = False

    def __init__(self, view: LiveView, *, group: str | None = None, is_again: bool = False) -> None:
        """is_again: the client has had reports in an earlier session."""
        self.query, self.group = view, group
        self.number = 0
        """The number of the last report that was sent."""
        self.outgoing: Outgoing | None = None
        """The report that is sent, unless an error stands in its place."""
        self.wants_progress = False
        """Reports without rows are sent, too."""
        self._cursor = (
            view.new_cursor(needs_reset=is_again or view.begins_whole) if group is None else view.cursor(group)
        )
        self._sent: ViewReport | WukongsError | None = None
        self._is_reading = False
        """It is the active reader of its cursor."""
        self._is_over = False
        self._lock = threading.Lock()

    def confirm(self, taken: int) -> None:
        """Confirm the report with the number `taken`."""
        with self._lock:
            self._confirm(taken)

    def _confirm(self, taken: int) -> None:
        if self._sent is None or taken != self.number:
            return
        if isinstance(self._sent, ViewReport):
            self.query.log.move(self._cursor, Position(self._sent.snapshot, self._sent.minor))
        self._sent = self.outgoing = None

    def next(self, taken: int) -> Outgoing | WukongsError | None:
        """Confirm the report with the number `taken`; return the next one, or the error in its place.

        None: there is none yet."""
        with self._lock:
            self._confirm(taken)
            if self._sent is None:
                if taken != self.number:
                    raise StreamError(
                        f"view {self.query.name}: report {taken} was asked to be followed, the last one sent is "
                        f"{self.number}: let one reader at a time ask"
                    )
                self._fetch()
            elif taken != self.number - 1:
                raise StreamError(f"view {self.query.name}: report {taken} was not sent, but {self.number}")
            return self._sent if isinstance(self._sent, WukongsError) else self.outgoing

    def _fetch(self) -> None:
        if self._is_over or not self._is_active():
            return
        try:
            self._sent = self.query.next_report(self._cursor, 0.0, progress=self.wants_progress)
        except WukongsError as error:
            self._sent = error
        if self._sent is not None:
            self.number += 1
            self.outgoing = Outgoing(self._sent) if isinstance(self._sent, ViewReport) else None

    def _is_active(self) -> bool:
        """Return whether no other reader of the cursor is active, and this one is from now on."""
        if self.group is not None and not self._is_reading:
            self._is_reading = self._cursor.turn.acquire(blocking=False)
        return self.group is None or self._is_reading

    @property
    def told_ms(self) -> None:
        """Reports have no window end."""

    @property
    def is_ended(self) -> bool:
        """Whether there is no report any more, and none follows."""
        log = self.query.log
        with log.changed:
            return log.is_closed and self._sent is None and not log.has_more(self._cursor, progress=False)

    def unread(self) -> int:
        """Return the number that the last of the reports that wait will have."""
        with self._lock:
            waiting = self.query.log.unread_count(self._cursor)
            is_counted = isinstance(self._sent, ViewReport) and not self._sent.is_reset and not self._sent.is_progress
            return self.number + max(0, waiting - is_counted)

    def end(self) -> None:
        """End the reading: another reader of the group gets what was not confirmed."""
        self._is_over = True
        with self._lock:
            if self.group is None:
                self.query.log.drop(self._cursor)
                return
            if isinstance(self._sent, ViewReport) and self._sent.is_reset:
                with self.query.log.changed:
                    self._cursor.begin_again()
            self._sent = self.outgoing = None
            if self._is_reading:
                self._cursor.turn.release()
                self._is_reading = False
