"""Delivery: which windows of an engine with a data folder somebody has taken, and which would have to come again.

A window counts as taken (acknowledged) by a cursor once on_result has returned, once the results() iterator was asked
for the next one, or once it was dropped unread for want of room; and by the query once its own cursor and all named
ones have taken it. A handle on the stored graph keeps the snapshot of the oldest
firing without acknowledgement readable. A checkpoint may go up to that snapshot.

Queries that fire as one have their firings noted once, under a number of their own. They are asked up to when all have
taken their windows; only those that were read acknowledge anything.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from wukongs.live.core import Core
from wukongs.live.journal import FiredAsOne, ReportedBy
from wukongs.live.stretch import Stretch
from wukongs.live.window_log import OWN, Come, Reported
from wukongs.store.trace import Handle


@dataclass(frozen=True, slots=True)
class Fired:
    """A firing, and those behind it, up to end_ms, that have read the same: the window's end, the SN that it stands at,
    and the record of the log that came next; needs_ms: per stream, the time after which all that it read had come."""

    begin_ms: int
    end_ms: int
    sn: int
    lsn: int
    needs_ms: Mapping[str, int]


class Delivery:
    """The Deliveries of a data folder. Queries that fire as one have a number below 0."""

    def __init__(self, core: Core, needs: Callable[[bool], int]) -> None:
        """needs: returns the record before which the log has to begin, for what fires now to come again, by whether its
        query reads stored graphs."""
        self.come: dict[int, dict[str, Come]] = {}
        """Per query, how far its cursors have come, by name."""
        self._core, self._needs = core, needs
        self._fired: dict[int, deque[Fired]] = {}
        self._together: dict[int, FiredAsOne] = {}
        self._gathered = 0
        self._compared: set[int] = set()
        self._held: Handle | None = None
        self._news: set[int] = set()
        self._news_lock = threading.Lock()

    def fired(
        self, query_lsn: int, at_ms: int, last_ms: int, needs_ms: Mapping[str, int], is_compared: bool, is_stored: bool
    ) -> None:
        """Do as Deliveries.fired."""
        if is_compared:
            self._compared.add(query_lsn)
        fired = Fired(at_ms, last_ms, self._core.upper - 1, self._needs(is_stored), needs_ms)
        self._fired.setdefault(query_lsn, deque()).append(fired)
        if self._held is None:
            self._hold(fired.sn)

    def reported(self, query: ReportedBy, end_ms: int, item: Reported, stretch: Stretch | None) -> None:
        """Do nothing: it fires again."""

    def gather(self, group: FiredAsOne) -> int:
        """Do as Deliveries.gather."""
        self._gathered += 1
        self._together[-self._gathered] = group
        return -self._gathered

    def hand_on(self, from_lsn: int, to_lsn: int, since_ms: int) -> None:
        """Do as Deliveries.hand_on."""
        fired = self._fired.get(from_lsn, ())
        self._fired[to_lsn] = deque(each for each in fired if each.end_ms >= since_ms)
        if from_lsn in self._compared:
            self._compared.add(to_lsn)

    def acknowledge(self, query_lsn: int, cursor: str, come: Come) -> None:
        """Do as Deliveries.acknowledge."""
        with self._news_lock:
            known = self.come.setdefault(query_lsn, {})
            before = known.get(cursor)
            if before is None or (come.through_ms >= before.through_ms and come != before):
                known[cursor] = come
                self._news.add(query_lsn)

    def restore(self, found: Mapping[Any, Any]) -> None:
        """Note how far cursors had come, according to a checkpoint or a record of the log, as as_json gives it; older
        folders have only the time of the own cursor."""
        with self._news_lock:
            for lsn, cursors in found.items():
                known = self.come.setdefault(int(lsn), {})
                for name, told in (cursors if isinstance(cursors, dict) else {OWN: [cursors]}).items():
                    come = Come.of_json(told)
                    if name not in known or come.through_ms >= known[name].through_ms:
                        known[name] = come

    def as_json(self, lsns: Collection[int]) -> dict[int, dict[str, list[int]]]:
        """Return how far the cursors of queries have come."""
        with self._news_lock:
            return {
                lsn: {name: come.as_json() for name, come in cursors.items()}
                for lsn, cursors in self.come.items()
                if lsn in lsns
            }

    def take_news(self) -> dict[int, dict[str, list[int]]]:
        """Return what was acknowledged since the last call."""
        if not self._news:
            return {}
        with self._news_lock:
            news = self._news.copy()
            self._news.clear()
        return self.as_json(news)

    def _taken_ms(self, query_lsn: int) -> int | None:
        """Return the time up to which all cursors have taken a query's windows, or those of queries that fire as
        one."""
        if (group := self._together.get(query_lsn)) is not None:
            return group.taken_ms(self._taken_ms)
        with self._news_lock:
            cursors = self.come.get(query_lsn, {})
            return min(come.through_ms for come in cursors.values()) if OWN in cursors else None

    def forget(self, query_lsn: int) -> None:
        """Do as Deliveries.forget."""
        self._fired.pop(query_lsn, None)
        self._together.pop(query_lsn, None)
        self._compared.discard(query_lsn)

    def oldest_of(self, query_lsn: int) -> Fired | None:
        """Return the oldest firing of a query that is not acknowledged, or the one that it is compared with; None if
        all are acknowledged."""
        fired = self._fired.get(query_lsn)
        taken_ms = self._taken_ms(query_lsn)
        if not fired or taken_ms is None:
            return fired[0] if fired else None
        spare = 1 if query_lsn in self._compared else 0
        while len(fired) > spare and fired[spare].end_ms <= taken_ms:
            fired.popleft()
        return fired[0] if len(fired) > spare or (fired and fired[0].end_ms > taken_ms) else None

    def needs_ms(self, query_lsn: int) -> dict[str, int]:
        """Return, per stream, the time after which all had come that firings of a query read which are not
        acknowledged. A later one may need what is older: another text reaches back further, or reads other streams."""
        found: dict[str, int] = {}
        if self.oldest_of(query_lsn) is not None:
            for fired in self._fired[query_lsn]:
                for stream, after_ms in fired.needs_ms.items():
                    found[stream] = min(after_ms, found.get(stream, after_ms))
        return found

    def oldest(self) -> tuple[Fired | None, int]:
        """Return the firing without acknowledgement for which the log has to reach back the furthest (None: there is
        none), and the oldest SN at which one stands, which another may do; the newest SN without any. Let the stored
        graph merge up to there."""
        found = [fired for lsn in self._fired if (fired := self.oldest_of(lsn)) is not None]
        if not found:
            if self._held is not None:
                self._held.close()
                self._held = None
            return None, self._core.arrangement.trace.upper - 1
        sn = min(fired.sn for fired in found)
        self._hold(sn)
        return min(found, key=lambda fired: (fired.lsn, fired.end_ms)), sn

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
