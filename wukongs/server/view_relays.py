"""RelayedView: a live view that stands at another node of the cluster, as the feed of this one reads it.

It reads as a client does, in a thread of its own, at the node where the view stands, and goes on at another one when
the view moves. The reports wait here until the feed takes them; when many wait, the view's node is asked for no
more."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.incremental.zset import summed
from wukongs.live.views.view_log import Position, ViewCursor
from wukongs.query.output.results import Result
from wukongs.query.output.view_report import ViewReport
from wukongs.remote.query import RemoteView
from wukongs.store.snapshot import tick_of

log = logging.getLogger("wukongs")
FIRST_S = 5.0
"""So long the first report may take, so that the feed knows where it begins."""
POLL_S, AGAIN_S = 0.5, 0.2
WAITING_MAX = 256


class RelayLog:
    """The reports of a relayed view that wait for its feed.

    sn: where the last one ends.
    is_closed: none follows."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.sn, self.is_closed, self.is_left = Position(0), False, False
        self._waiting: deque[ViewReport | WukongsError] = deque()
        self._listeners: set[Callable[[], None]] = set()

    def put(self, item: ViewReport | WukongsError) -> None:
        """Add the next report, or the error in its place, once there is room."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_left or len(self._waiting) < WAITING_MAX)
            self._waiting.append(item)
            if isinstance(item, ViewReport):
                self.sn = Position(item.snapshot, item.minor)
            self._wake()

    def take(self) -> ViewReport | None:
        """Return the next report, None if there is none. Raises the error in its place."""
        with self.changed:
            item = self._waiting.popleft() if self._waiting else None
            self.changed.notify_all()
        if isinstance(item, WukongsError):
            raise item
        return item

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self._wake()

    def listen(self, listener: Callable[[], None]) -> None:
        with self.changed:
            self._listeners.add(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        with self.changed:
            self._listeners.discard(listener)

    def move(self, cursor: ViewCursor, sn: Position) -> None:
        """Nothing: its feed is the one reader."""

    def drop(self, cursor: ViewCursor) -> None:
        """End the reading."""
        with self.changed:
            self.is_left = True
            self._wake()

    def _wake(self) -> None:
        self.changed.notify_all()
        for listener in [*self._listeners]:
            listener()


class RelayedView:
    """remote: the view, as a client of this node reads it, and nobody else by that client.

    since: tells it from an earlier one of its name.
    begins_whole: new readers begin with a reset."""

    is_paused = False

    def __init__(self, remote: RemoteView, since: object, *, begins_whole: bool) -> None:
        """Raises NodeUnavailable (no node has it now), StreamError (it is closed)."""
        self.name, self.since, self.begins_whole = remote.name, since, begins_whole
        self.log, self._remote = RelayLog(), remote
        first = remote.next(FIRST_S, progress=True)
        if first is None:  # paused
            self.log.sn = Position(int(remote.call("stats")["sn"]))
        elif first.is_reset:
            self.log.sn = Position(first.snapshot, first.minor)
        else:
            self.log.sn = Position(first.after)
        self.cursor = ViewCursor(self.log.sn, needs_reset=False)
        if first is not None and not first.is_reset:
            self.log.put(first)
        threading.Thread(target=self._run, name="wukongs-view-relay", daemon=True).start()

    @property
    def is_closed(self) -> bool:
        return self.log.is_closed

    def _run(self) -> None:
        try:
            while not self.log.is_left:
                try:
                    report = self._remote.next(POLL_S, progress=True)
                except NodeUnavailable as error:  # it moves; a reset follows
                    log.info("view %s of another node: %s", self.name, error)
                    with self.log.changed:
                        self.log.changed.wait_for(lambda: self.log.is_left, AGAIN_S)
                    continue
                except WukongsError as error:
                    self.log.put(error)
                    continue
                if report is not None:
                    self.log.put(report)
                elif self._remote.is_over:
                    return
        finally:
            self.log.close()

    def next_report(self, cursor: ViewCursor, deadline_s: float | None, *, progress: bool = False) -> ViewReport | None:
        """Return the next report that has arrived, None if there is none. Raises the error in its place."""
        return self.log.take()

    def reset(self) -> ViewReport:
        """Return the whole content as a reset. Raises as RemoteView.content."""
        found, minor = self._remote.content_with_minor()
        columns, count = found.ids(0, len(found)), int(bool(found.boolean)) if found.kind == "ask" else len(found)
        firsts, weights = summed(columns, np.ones(count, np.int64))
        return ViewReport(
            found.kind,
            tuple(found.vars),
            tuple(column[firsts] for column in columns),
            found.reader,
            found.snapshot,
            found.boolean,
            weights=weights,
            query=self.name,
            after=found.snapshot,
            time_ms=tick_of(found.snapshot),
            is_reset=True,
            text=self._remote.text,
            minor=minor,
        )

    def content(self, at: int | None = None, *, timeout_s: float | None = None) -> Result:
        """Return the whole content, as LiveView.content."""
        return self._remote.content(at, timeout_s=timeout_s)

    def content_with_position(self, *, timeout_s: float | None = None) -> tuple[Result, Position]:
        """Return the content, and the position that it is of."""
        found, minor = self._remote.content_with_minor(timeout_s=timeout_s)
        return found, Position(found.snapshot, minor)
