"""Feed: the windows of one registered query on their way to one client.

A window is told with a number until the client has confirmed it with the request for the next one; so a lost answer is
told again, and a window is acknowledged once its reader has it. One that the client never confirmed waits again for
another reader when the session ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from wukongs.errors import StreamError, WukongsError
from wukongs.live.backend import RegisteredQuery
from wukongs.live.subscription import FetchedWindow
from wukongs.remote.columns import Outgoing


class Feed:
    """is_taken: whether the client has a window with this end already, by what it had before this session."""

    def __init__(self, query: RegisteredQuery, is_taken: Callable[[int], bool] = lambda _: False) -> None:
        self.query = query
        self.number = 0
        """The number of the last window that was told."""
        self.outgoing: Outgoing | None = None
        """The window that is told, unless an error stands in its place."""
        self._is_taken = is_taken
        self._told: FetchedWindow | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def confirm(self, taken: int) -> None:
        """Confirm the window with the number `taken`, and ask for no other."""
        with self._lock:
            if self._told is not None and taken == self.number:
                self.query.subscription.confirm(self._told)
                self._told = self.outgoing = None

    def next(self, taken: int) -> Outgoing | WukongsError | None:
        """Confirm the window with the number `taken`, or say again what comes after it; return the next one, or the
        error in its place; None if there is none yet."""
        with self._lock:
            if self._told is not None and taken == self.number:
                self.query.subscription.confirm(self._told)
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
        subscription = self.query.subscription
        fetched = subscription.fetch(0)
        while fetched is not None and self._is_taken(fetched.end_ms):
            subscription.confirm(fetched)
            fetched = subscription.fetch(0)
        if fetched is None:
            return
        if self._is_over:
            subscription.give_back(fetched)
            return
        self._told, self.number = fetched, self.number + 1
        if not isinstance(fetched.item, WukongsError):
            self.outgoing = Outgoing(fetched.item)

    @property
    def is_ended(self) -> bool:
        """Whether there is no window any more, and none will come."""
        return self._told is None and self.query.subscription.is_ended()

    def unread(self) -> int:
        """Return the number that the last of the windows that wait will have."""
        return self.number + len(self.query.subscription)

    def end(self) -> None:
        """Let a window that the client has not confirmed wait for another reader."""
        self._is_over = True
        with self._lock:
            if self._told is not None:
                self.query.subscription.give_back(self._told)
                self._told = self.outgoing = None


def next_of(taken: Mapping[Feed, int], wait_s: float) -> tuple[Feed, Outgoing | WukongsError] | None:
    """Return the next window of the first feed that has one, as Feed.next; None if none comes within wait_s seconds, or
    all have ended. taken: what is confirmed of each."""
    deadline = time.monotonic() + wait_s
    arrived = threading.Event()
    try:
        for feed in taken:
            feed.query.subscription.listen(arrived.set)
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
            feed.query.subscription.unlisten(arrived.set)
