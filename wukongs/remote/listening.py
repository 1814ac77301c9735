"""Listening: the thread of a client that asks for the windows of its queries with on_result, and those that call it.

A window is confirmed with the next question for its query, which is not asked before on_result has dealt with it. So a
slow on_result holds up its own query only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.live.callbacks import Callbacks, FailedCalls
from wukongs.query.output.results import WindowResult
from wukongs.remote.connection import Connection, Moved
from wukongs.remote.kinds import POLL_S
from wukongs.remote.query import RemoteQuery, fetch_any

log = logging.getLogger("wukongs")
ERRORS_MAX = 1000
_QUICK_S = 0.01
"""So long the next question waits for a call of on_result, so that it can ask for that query, too."""
_WAIT_BESIDE_S = 0.05
"""So long a question may wait for a window while some on_result is slow."""
_BETWEEN_S = 0.5
_WAIT_S = 0.5
"""So long a query that is new may have to wait for the request for the others."""


class Listened:
    """A query with on_result. Its errors wait for results(), as those of an embedded query do."""

    def __init__(self, query: RemoteQuery, on_result: Callable[[WindowResult], object]) -> None:
        self.query = query
        self.reported = 0
        """Number of the last window that on_result has dealt with, in this session."""
        self.is_busy = False
        """A window of it is being reported."""
        self._failed = FailedCalls()
        self._on_result = on_result
        self._changed = threading.Condition()
        self._errors: deque[WukongsError] = deque(maxlen=ERRORS_MAX)

    def errors(self, timeout_s: float | None) -> Iterator[WindowResult]:
        """Raise the next error that stands in the place of a window; end when timeout_s passes without one, or with
        the query."""
        with self._changed:
            self._changed.wait_for(lambda: self._errors or self.query.is_over, timeout_s)
            if self._errors:
                raise self._errors.popleft()
        yield from ()

    def report(self, item: WindowResult | WukongsError) -> None:
        if isinstance(item, WukongsError):
            self.fail(item)
        else:
            try:
                self._on_result(item)
            except Exception:
                is_window = isinstance(item, WindowResult)
                what = f"window ending at {item.end_ms} ms" if is_window else f"report up to SN {item.snapshot}"
                self._failed.note(item.query, what)
        self.reported = self.query.taken

    def fail(self, error: WukongsError) -> None:
        log.warning("query %s: %s", self.query.name, error)
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Listener:
    """The threads, from the first query on until the connection is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._listened: list[Listened] = []
        """Those that were served last stand last."""
        self._begun = 0
        """How often it has asked."""
        self._idle_since = 0
        """The last of these questions that there was no window for."""
        self._thread: threading.Thread | None = None
        self._callbacks = Callbacks()

    def add(self, query: RemoteQuery, on_result: Callable[[WindowResult], object]) -> Listened:
        """Listen to one more query."""
        listened = Listened(query, on_result)
        with self._changed:
            self._listened.append(listened)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="wukongs-listener", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify_all()
        return listened

    def live(self) -> list[Listened]:
        """Return the queries that are listened to and have not ended."""
        with self._changed:
            return [listened for listened in self._listened if not listened.query.is_over]

    def wait_for(self, listened: Listened, number: int, timeout_s: float | None) -> bool:
        """Wait until on_result has dealt with the window of this number, or no more come; tell whether that is so."""
        if self._callbacks.is_own_thread:
            return True
        with self._changed:
            begun = self._begun
            return self._changed.wait_for(
                lambda: listened.query.is_over or listened.reported >= number or self._idle_since > begun, timeout_s
            )

    def join(self) -> None:
        """Wait for the thread, once the connection is closed."""
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(2 * POLL_S)
        self._callbacks.stop()

    def _run(self) -> None:
        while not self._connection.is_closed:
            live = self._wait_for_any()
            if not live:
                continue
            found = self._fetch(live)
            with self._changed:
                if found is not None:
                    listened, item = found
                    self._listened.remove(listened)
                    self._listened.append(listened)
                    listened.is_busy = True
                    self._callbacks.submit(partial(self._report, listened, item))
                    self._changed.wait_for(partial(_is_free, listened), _QUICK_S)
                elif not any(one.is_busy for one in self._listened):
                    self._idle_since = self._begun
                self._changed.notify_all()
        for listened in self._listened:
            listened.end()

    def _report(self, listened: Listened, item: WindowResult | WukongsError) -> None:
        listened.report(item)
        with self._changed:
            listened.is_busy = False
            self._changed.notify_all()

    def _wait_for_any(self) -> list[Listened]:
        with self._changed:
            for listened in [one for one in self._listened if one.query.is_over]:
                self._listened.remove(listened)
                listened.end()
            if all(one.is_busy for one in self._listened):
                self._changed.wait(POLL_S)
            self._begun += 1
            return [one for one in self._listened if not one.is_busy]

    def _fetch(self, live: list[Listened]) -> tuple[Listened, WindowResult | WukongsError] | None:
        """Ask each node that runs some of the queries in turn."""
        by_node: dict[Connection, dict[RemoteQuery, Listened]] = {}
        for listened in live:
            by_node.setdefault(listened.query.connection, {})[listened.query] = listened
        for connection, by_query in by_node.items():
            try:
                named = [query for query, listened in by_query.items() if self._is_named(listened)]
                is_free = len(named) == len(self._listened)
                found = fetch_any(connection, named, _WAIT_S if is_free else _WAIT_BESIDE_S) if named else None
            except WukongsError as error:
                if not self._connection.is_closed:
                    for listened in by_query.values():
                        listened.fail(error)
                    with self._changed:
                        self._changed.wait(_BETWEEN_S)
                return None
            if found is not None:
                return by_query[found[0]], found[1]
        return None

    def _is_named(self, listened: Listened) -> bool:
        """Have a query named to the session; one that cannot be ends here, and the others go on."""
        try:
            listened.query.number_in(listened.query.connection.joined())
        except Moved:
            return False
        except NodeUnavailable:
            raise
        except WukongsError as error:
            if not self._connection.is_closed:
                listened.fail(error)
            listened.query.note_end()
            return False
        return True


def _is_free(listened: Listened) -> bool:
    return not listened.is_busy
