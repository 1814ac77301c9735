"""Deliveries of a node with a data folder: windows that named groups of readers have not read, and how far these are.

A restart brings back the streams as they were, but firings of before cannot all be evaluated again: the other nodes
keep slices and old snapshots only for firings that are still to come. So the windows of a query with a named group are
written down as they are reported (WINDOW), and with each checkpoint those that wait. After a restart they wait again,
and the query goes on behind the last one. A window that was reported and not safe yet fires again, with the same rows.

A query's own readers, without a name, are there as long as their process, and get what fires again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from wukongs.cluster.node_disk import NodeDisk
from wukongs.errors import WukongsError
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.journal import FiredAsOne, ReportedBy
from wukongs.live.reporting import Remembered
from wukongs.live.stretch import Stretch
from wukongs.live.window_log import LAST_MS, OWN, Come, Reported, window_of_report
from wukongs.query.output.results import WindowResult
from wukongs.remote.columns import Incoming, Outgoing, arrays_of
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import error_told, refusal

CURSORS, WINDOW = "cursors", "window"
"""Records: how far groups have come, by query (its record in the majority log) and name; a window."""


class NodeDeliveries:
    """wukongs.live.journal.Deliveries of a node. The injector's thread reports; readers acknowledge from any thread."""

    def __init__(self, disk: NodeDisk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._come: dict[int, dict[str, Come]] = {}
        """Per query with named groups, how far these are."""
        self._news: set[int] = set()
        self._returned: dict[int, Returned] = {}
        """Per query, until it is registered again: what the folder has of it."""

    # --- as Deliveries ------------------------------------------------------------------------------------------------

    def fired(
        self, query_lsn: int, at_ms: int, last_ms: int, needs_ms: Mapping[str, int], is_compared: bool, is_stored: bool
    ) -> None:
        pass

    def reported(self, query: ReportedBy, end_ms: int, item: Reported, stretch: Stretch | None) -> None:
        if self.has_groups(query.lsn):
            self._disk.add(
                window_packet(query.lsn, end_ms, window_of_report(item), stretch, query.remembered()), is_awaited=False
            )

    def acknowledge(self, query_lsn: int, cursor: str, come: Come) -> None:
        with self._lock:
            known = self._come.get(query_lsn)
            if cursor != OWN and known is not None and come != known.get(cursor):
                known[cursor] = come
                self._news.add(query_lsn)

    def gather(self, group: FiredAsOne) -> int:
        return 0

    def hand_on(self, from_lsn: int, to_lsn: int, since_ms: int) -> None:
        pass

    def forget(self, query_lsn: int) -> None:
        with self._lock:
            self._come.pop(query_lsn, None)
            self._returned.pop(query_lsn, None)

    # --- groups of readers --------------------------------------------------------------------------------------------

    def has_groups(self, query_lsn: int) -> bool:
        """Whether windows of a query are written down."""
        return query_lsn in self._come

    def begin(self, query_lsn: int, group: str, come: Come) -> None:
        """Note a new group, and make that safe. Raises StorageError."""
        with self._lock:
            self._come.setdefault(query_lsn, {})[group] = come
        self._disk.add(Packet(CURSORS, {"come": self._told([query_lsn])}))
        self._disk.sync()

    def pulse(self) -> None:
        """Write down what was acknowledged. In the protocol's thread."""
        with self._lock:
            news, self._news = self._news, set()
        if news:
            self._disk.add(Packet(CURSORS, {"come": self._told(news)}), is_awaited=False)

    def _told(self, lsns: Iterable[int]) -> dict[str, Any]:
        with self._lock:
            return {str(lsn): _as_json(self._come[lsn]) for lsn in lsns if lsn in self._come}

    # --- checkpoints and restarts -------------------------------------------------------------------------------------

    def facts(self, queries: Callable[[], Iterable[ReportedBy]]) -> dict[str, Any]:
        """Return, as JSON, what a checkpoint has of groups, and of firings with which the next ones are compared.
        queries: gives those that run."""
        with self._lock:  # those that do not run yet come first: one that runs by now is among the queries
            back = {lsn: (dict(found.come), found.newest()) for lsn, found in self._returned.items()}
        come = {str(lsn): _as_json(groups) for lsn, (groups, _) in back.items()}
        remembered = {str(lsn): newest.as_json() for lsn, (_, newest) in back.items() if newest is not None}
        remembered |= {str(one.lsn): found for one in queries() if (found := one.remembered()) is not None}
        return {"come": come | self._told(list(self._come)), "remembered": remembered}

    def not_returned(self) -> list[Packet]:
        """Return the windows that wait for groups of queries that do not run again yet."""
        with self._lock:
            return [packet for found in self._returned.values() for packet in found.windows.values()]

    def waiting(self, queries: Iterable[ReportedBy]) -> Iterator[Packet]:
        """Yield the windows that wait for groups."""
        for query in queries:
            if self.has_groups(query.lsn):
                for one in query.log.waiting():
                    if one.end_ms < LAST_MS:  # else the query has ended
                        yield window_packet(query.lsn, one.end_ms, one.item, one.stretch)

    def take_in(self, packet: Packet) -> None:
        """Take in a record of the log after a restart."""
        if packet.kind == CURSORS:
            self.restore({**packet.fields, "remembered": {}})
            return
        found, fields = self._returned_of(packet.fields["query"]), packet.fields
        found.windows.setdefault(fields["last_ms"], packet)
        if fields["remembered"] is not None:
            found.remembered.append(Remembered.from_json(fields["remembered"]))

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Take in what a checkpoint has."""
        for lsn, groups in facts["come"].items():
            come = {name: Come.of_json(told) for name, told in groups.items()}
            self._returned_of(int(lsn)).come |= come
        for lsn, found in facts["remembered"].items():
            self._returned_of(int(lsn)).remembered.append(Remembered.from_json(found))

    def _returned_of(self, lsn: int) -> Returned:
        return self._returned.setdefault(lsn, Returned())

    def returned(self, lsn: int) -> Returned | None:
        """Return what the folder has of a query that is registered again, once."""
        with self._lock:
            found = self._returned.pop(lsn, None)
            if found is not None and found.come:
                self._come[lsn] = dict(found.come)
        return found


def _as_json(groups: Mapping[str, Come]) -> dict[str, Any]:
    return {name: come.as_json() for name, come in groups.items()}


class Returned:
    """The part of a folder that is about one query. come: of its groups; remembered: that with which its firings are
    compared, in order; windows: by the end of the last firing."""

    def __init__(self) -> None:
        self.come: dict[str, Come] = {}
        self.remembered: list[Remembered] = []
        self.windows: dict[int, Packet] = {}

    @property
    def has_groups(self) -> bool:
        """Whether it has anything of named groups of readers."""
        return bool(self.come or self.windows)

    def newest(self) -> Remembered | None:
        return max(self.remembered, key=lambda found: found.at_ms, default=None)

    def give_to(self, query: ContinuousQuery) -> None:
        """Let the windows wait in a query that was registered again."""
        windows = [_window_in(packet, query) for _, packet in sorted(self.windows.items())]
        query.return_windows(self.come, windows, sorted(self.remembered, key=lambda found: found.at_ms))


def window_packet(
    lsn: int,
    last_ms: int,
    item: WindowResult | WukongsError,
    stretch: Stretch | None,
    remembered: Mapping[str, Any] | None = None,
) -> Packet:
    """Return the record of a window, or of the error in its place."""
    fields: dict[str, Any] = {"query": lsn, "last_ms": last_ms, "remembered": remembered}
    if stretch is not None:
        fields["first_ms"], fields["step_ms"] = stretch.first_ms, stretch.step_ms
    if isinstance(item, WukongsError):
        return Packet(WINDOW, {**fields, "error": dict(refusal(item).fields)})
    return Packet(WINDOW, {**fields, "head": Outgoing(item).head()}, arrays_of(item, 0, len(item)))


def _window_in(packet: Packet, query: ContinuousQuery) -> tuple[int, WindowResult | WukongsError, Stretch | None]:
    """Return a window: the end of its last firing, itself or the error in its place, and the firings that it stands
    for. Raises DataError."""
    fields, stretch = packet.fields, None
    if "first_ms" in fields:
        first_ms = fields["first_ms"]
        stretch = Stretch(first_ms, fields["last_ms"], fields["step_ms"], query.windows.places(first_ms))
    if "error" in fields:
        return fields["last_ms"], error_told(fields["error"]), stretch
    rows = Incoming(fields["head"], "the log")
    if not rows.is_complete:
        rows.add(packet.arrays)
    found = rows.result()
    assert isinstance(found, WindowResult), fields["head"]
    return fields["last_ms"], found, stretch
