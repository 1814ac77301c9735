"""Feed: the windows of one registered query on their way to one client, by a cursor.

A window is told with a number until the client has confirmed it with the request for the next one; so a lost answer is
told again, and a window is acknowledged once its reader has it. One that the client never confirmed waits again for
another reader when the session ends, if others read by the same cursor.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping

from wukongs.errors import GapError, StreamError, WukongsError
from wukongs.live.backend import RegisteredQuery
from wukongs.live.declarations import parse_continuous
from wukongs.live.window_log import LAST_MS, Cursor, LoggedWindow
from wukongs.live.windows import firing_step
from wukongs.remote.columns import Outgoing
from wukongs.remote.view_feeds import ViewFeed


class Feed:
    """The client that has registered a query last goes on with the query's own cursor, readers of a group with the
    group's. Each other client has a cursor of its own, from its first question until its session ends."""

    def __init__(
        self,
        query: RegisteredQuery,
        is_taken: Callable[[int], bool] = lambda _: False,
        *,
        is_owner: bool = True,
        group: str | None = None,
        after_ms: int | None = None,
    ) -> None:
        """is_taken: whether the client has a window with this end already, by what it had before this session;
        is_owner: whether it has registered the query last; group: of the readers that this one belongs to;
        after_ms: the end of the last window that a client with a cursor of its own had in an earlier session."""
        self.query = query
        self._after_ms = after_ms
        self.group = group
        self.is_owner = is_owner
        self._own: Cursor | None = query.cursor(group) if is_owner or group is not None else None
        self.number = 0
        """The number of the last window that was told."""
        self.outgoing: Outgoing | None = None
        """The window that is told, unless an error stands in its place."""
        self._is_taken = is_taken
        self._told: LoggedWindow | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Get every window from now on, and those that are held; by default that begins with the first question."""
        with self._lock:
            assert self._cursor is not None

    def confirm(self, taken: int) -> None:
        """Confirm the window with the number `taken`, and ask for no other."""
        with self._lock:
            if self._told is not None and taken == self.number:
                self._cursor.confirm(self._told)
                self._told = self.outgoing = None

    def next(self, taken: int) -> Outgoing | WukongsError | None:
        """Confirm the window with the number `taken`, or say again what comes after it; return the next one, or the
        error in its place; None if there is none yet."""
        with self._lock:
            if self._told is not None and taken == self.number:
                self._cursor.confirm(self._told)
                self._told = self.outgoing = None
            if self._told is None:
                if taken != self.number:
                    raise StreamError(
                        f"query {self.query.name}: window {taken} was asked to be followed, the last one told is "
                        f"{self.number}: let one reader at a time ask"
                    )
                self._fetch()
            elif taken != self.number - 1:
                raise StreamError(f"query {self.query.name}: window {taken} was not told, but {self.number}")
            if self._told is None:
                return None
            return self._told.item if isinstance(self._told.item, WukongsError) else self.outgoing

    def _fetch(self) -> None:
        cursor = self._cursor
        fetched = cursor.fetch(0)
        while fetched is not None and fetched.end_ms < LAST_MS and self._is_taken(fetched.end_ms):
            cursor.confirm(fetched)
            fetched = cursor.fetch(0)
        if fetched is None:
            return
        if self._is_over:
            cursor.give_back(fetched)
            return
        if isinstance(fetched.item, GapError):
            fetched.reported = self._untaken(fetched.item)
        self._told, self.number = fetched, self.number + 1
        if not isinstance(fetched.item, WukongsError):
            self.outgoing = Outgoing(fetched.item)

    def _untaken(self, lost: GapError) -> GapError:
        """Return a gap without the windows at its beginning that the client has."""
        step_ms = (lost.to_ms - lost.from_ms) // max(lost.count - 1, 1)
        ends = range(lost.from_ms, lost.to_ms + 1, max(step_ms, 1))
        had = bisect_left(ends, True, key=lambda end_ms: not self._is_taken(end_ms))
        if not 0 < had < len(ends):
            return lost
        count = lost.count - had
        return GapError(lost.query, ends[had], lost.to_ms, count, min(lost.gone, count))

    def cede(self) -> None:
        """Leave the query's own cursor to another client that has registered the query, and go on with a new cursor:
        both get each window that was not confirmed so far."""
        with self._lock:
            if not self.is_owner or self._is_over:
                return
            own, self.is_owner = self._cursor, False
            if self._told is not None:
                own.give_back(self._told)
            self._own = own.fork()
            if self._told is not None and self._told.gap is None:  # an error is told once more
                self._told = self._own.fetch(0)

    @property
    def told_ms(self) -> int | None:
        """The end of the window that is told, None if none is."""
        told = self._told
        return None if told is None else told.end_ms

    @property
    def is_ended(self) -> bool:
        """Whether there is no window any more, and none will come."""
        return self._told is None and self._cursor.is_ended()

    def unread(self) -> int:
        """Return the number that the last of the windows that wait will have."""
        with self._lock:  # else one that is fetched might be counted neither there nor here
            return self.number + len(self._cursor)

    def end(self) -> None:
        """Let a window that the client has not confirmed wait for another reader of the cursor, if there may be one."""
        self._is_over = True
        with self._lock:
            if self._told is not None:
                self._cursor.give_back(self._told)
                self._told = self.outgoing = None
            if not self.is_owner and self.group is None and self._own is not None:
                self._own.close()

    @property
    def _cursor(self) -> Cursor:
        if self._own is None:
            step_ms = None if self._after_ms is None else firing_step(parse_continuous(self.query.source))
            if self._after_ms is None or step_ms is None:
                self._own = self.query.log.cursor()
            else:
                self._own = self.query.log.cursor_after(self._after_ms, step_ms)
        return self._own


AnyFeed = Feed | ViewFeed


def next_of(taken: Mapping[AnyFeed, int], wait_s: float) -> tuple[AnyFeed, Outgoing | WukongsError] | None:
    """Return the next window or report of the first feed that has one, as its `next`.

    None: none arrives within wait_s seconds, or all have ended. taken: what is confirmed of each."""
    deadline = time.monotonic() + wait_s
    arrived = threading.Event()
    try:
        for feed in taken:
            feed.query.log.listen(arrived.set)
        while True:
            arrived.clear()
            for feed, number in taken.items():
                item = feed.next(number)
                if item is not None:
                    return feed, item
            left = deadline - time.monotonic()
            if left <= 0 or all(feed.is_ended for feed in taken):
                return None
            arrived.wait(left)
    finally:
        for feed in taken:
            feed.query.log.unlisten(arrived.set)
