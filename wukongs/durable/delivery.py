"""Delivery: which windows of an engine with a data folder somebody has taken, and which would have to come again.

A window counts as taken (acknowledged) once on_result has returned, once the results() iterator was asked for the next
one, or once it was dropped unread for want of room. A handle on the stored graph keeps the snapshot of the oldest
firing without acknowledgement readable. A checkpoint may go up to that snapshot.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from wukongs.live.core import Core
from wukongs.store.trace import Handle


@dataclass(frozen=True, slots=True)
class Fired:
    """A firing: the window's end, the SN that it stands at, and the record of the log that came next; needs_ms: per
    stream, the time after which all that it read had come."""

    end_ms: int
    sn: int
    lsn: int
    needs_ms: Mapping[str, int]


class Delivery:
    """Queries are named by their LSN. Called with the engine's lock held, except for acknowledge."""

    def __init__(self, core: Core) -> None:
        self.acknowledged: dict[int, int] = {}
        """Per query, the end of the last window that was taken."""
        self._core = core
        self._fired: dict[int, deque[Fired]] = {}
        self._compared: set[int] = set()
        self._held: Handle | None = None
        self._news: set[int] = set()
        self._news_lock = threading.Lock()

    def fired(
        self, query_lsn: int, at_ms: int, lsn: int, needs_ms: Mapping[str, int], is_compared: bool = False
    ) -> None:
        """Note a firing. lsn: the next record of the log. is_compared: the next firing is compared with this one, so
        this one is evaluated again if that one is."""
        if is_compared:
            self._compared.add(query_lsn)
        fired = Fired(at_ms, self._core.upper - 1, lsn, needs_ms)
        self._fired.setdefault(query_lsn, deque()).append(fired)
        if self._held is None:
            self._hold(fired.sn)

    def acknowledge(self, query_lsn: int, end_ms: int) -> None:
        """Note that the windows of a query up to a time were taken. From any thread."""
        with self._news_lock:
            if end_ms > self.acknowledged.get(query_lsn, end_ms - 1):
                self.acknowledged[query_lsn] = end_ms
                self._news.add(query_lsn)

    def restore(self, acknowledged: dict[int, int]) -> None:
        """Note what was acknowledged before, according to a checkpoint or a record of the log."""
        for query_lsn, end_ms in acknowledged.items():
            self.acknowledged[query_lsn] = max(end_ms, self.acknowledged.get(query_lsn, end_ms))

    def take_news(self) -> dict[int, int]:
        """Return what was acknowledged since the last call."""
        if not self._news:
            return {}
        with self._news_lock:
            news = {lsn: self.acknowledged[lsn] for lsn in self._news if lsn in self.acknowledged}
            self._news.clear()
        return news

    def forget(self, query_lsn: int) -> None:
        """Forget the firings of a query that was closed."""
        self._fired.pop(query_lsn, None)
        self._compared.discard(query_lsn)

    def oldest_of(self, query_lsn: int) -> Fired | None:
        """Return the oldest firing of a query that is not acknowledged, or the one that it is compared with; None if
        all are acknowledged."""
        fired = self._fired.get(query_lsn)
        taken_ms = self.acknowledged.get(query_lsn)
        if not fired or taken_ms is None:
            return fired[0] if fired else None
        spare = 1 if query_lsn in self._compared else 0
        while len(fired) > spare and fired[spare].end_ms <= taken_ms:
            fired.popleft()
        return fired[0] if len(fired) > spare or (fired and fired[0].end_ms > taken_ms) else None

    def oldest(self) -> Fired | None:
        """Return the oldest firing that is not acknowledged, and let the stored graph merge up to there."""
        found = [fired for lsn in self._fired if (fired := self.oldest_of(lsn)) is not None]
        oldest = min(found, key=lambda fired: fired.lsn, default=None)
        if oldest is not None:
            self._hold(oldest.sn)
        elif self._held is not None:
            self._held.close()
            self._held = None
        return oldest

    def boundary(self, sn: int) -> int:
        """Return the latest SN up to `sn` at which the stored graph can be read."""
        entries = self._core.arrangement.trace.entries()
        return min([sn, *(entry.lower - 1 for entry in entries if entry.lower <= sn < entry.upper - 1)])

    def _hold(self, sn: int) -> None:
        boundary = self.boundary(sn)
        if self._held is None or boundary > self._held.sn:
            opened = self._core.arrangement.open(boundary, "windows nobody has taken yet", expires=False)
            held, self._held = self._held, opened
            if held is not None:
                held.close()
