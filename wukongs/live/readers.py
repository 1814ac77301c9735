"""Readers: who reads the reported windows of one query: whoever holds its handle, its on_result, named groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from wukongs.errors import SettingsError
from wukongs.live.callbacks import Callbacks, Caller
from wukongs.live.core import Core
from wukongs.live.query_counts import QueryCounts
from wukongs.live.window_log import LAST_MS, OWN, Come, Cursor, WindowLog
from wukongs.query.output.results import WindowResult


class Readers:
    """lsn: the record of the log that registered the query. All methods may be called from any thread."""

    def __init__(self, core: Core, log: WindowLog, lsn: int) -> None:
        self.log = log
        self.counts = QueryCounts()
        self._core, self._lsn = core, lsn
        self.own = self._durable_cursor(OWN, None)
        """The cursor of results(), or of on_result if there is one."""
        self._groups: dict[str, Cursor] = {}
        """Named cursors, each of a group of readers."""
        self._results: Cursor | None = None
        """The cursor of results() beside an on_result."""
        self._caller: Caller | None = None
        self.returned_ms = -LAST_MS
        """Windows up to there were reported before a restart, and have waited since."""

    def results(self, timeout_s: float | None, group: str | None) -> Iterator[WindowResult]:
        """Do as ContinuousQuery.results."""
        return self.cursor(group).read(timeout_s, is_shared=group is not None)

    def aresults(self, timeout_s: float | None, group: str | None) -> AsyncIterator[WindowResult]:
        """Do as ContinuousQuery.aresults."""
        return self.cursor(group).aread(timeout_s, is_shared=group is not None)

    def cursor(self, group: str | None = None) -> Cursor:
        """Return the cursor that results() reads, or that of a group. Raises SettingsError (no name), StorageError."""
        if group is not None:
            return self._group(group)
        with self.log.changed:
            if self._caller is None:
                return self.own
            if self._results is None:
                self._results = self.log.cursor()
            return self._results

    def _group(self, name: str) -> Cursor:
        if not isinstance(name, str) or name == OWN:
            raise SettingsError(f"group = {name!r}: expected the name of a group of readers")
        with self._core.lock:
            found = self._groups.get(name)
            if found is None:
                with self.log.changed:
                    self.log.draw()
                    come = self.log.come_of_new(self.had_ms)
                    found = self._durable_cursor(name, come)
                try:
                    if not self.log.is_closed:
                        change = {"op": "cursor", "query": self.log.query, "of": self._lsn, "group": name}
                        self._core.journal.commit({**change, "come": [come.through_ms]})
                        if self._core.query_log is not None:
                            self._core.query_log.name_readers(self.log.query, name)
                except BaseException:
                    found.close()
                    raise
                self._groups[name] = found
            return found

    def call(self, callbacks: Callbacks, on_result: Callable[[WindowResult], object]) -> None:
        """Have a function called with each window from now on, and with those that wait."""
        self._caller = Caller(callbacks, self.own, on_result, self.counts)

    def restore(self, found: Mapping[str, Come]) -> None:
        """Let results(), or on_result, and groups of readers go on where they stood."""
        for name, come in found.items():
            if name == OWN:
                self.own.close()
                self.own = self._durable_cursor(OWN, come)
            else:
                self._groups[name] = self._durable_cursor(name, come)

    @property
    def is_inline(self) -> bool:
        """Whether the thread that fires calls on_result itself."""
        return self._caller is not None and self._caller.is_inline

    @property
    def had_ms(self) -> int:
        """The time up to which all have read the windows before a restart, or have them."""
        had_ms = self.own.had_ms
        if self._groups:
            had_ms = min(had_ms, *(cursor.had_ms for cursor in self._groups.values()))
        return max(had_ms, self.returned_ms)

    def untaken_ms(self, *, is_stream: bool) -> int | None:
        """Return the end of the oldest window that some reader may not have, None if there is none. is_stream: what the
        query makes is read by others. Where all is read by these, or by groups, nobody may ever ask for the rest."""
        is_unused = not self.own.is_asked and (is_stream or bool(self._groups))
        return self.log.untaken_ms(self.own if is_unused else None)

    def close(self) -> None:
        """End the log: nobody is called any more, and what waits can still be read."""
        if self._caller is not None:
            self._caller.close()
        self.log.close()

    def _durable_cursor(self, name: str, come: Come | None) -> Cursor:
        return self.log.cursor(come, lambda come: self._core.journal.delivery.acknowledge(self._lsn, name, come))
