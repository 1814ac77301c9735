"""RemoteQuery: a registered query of an engine in another process; ContinuousQuery's methods.

Windows are fetched one at a time, numbered; the next request confirms the last window. One that was fetched for a
reader who went away meanwhile is kept for the next reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.output.results import WindowResult
from wukongs.remote.connection import Connection, Joined, SessionLost, raise_failure
from wukongs.remote.kinds import ENDED, FAILED, NONE, POLL_S, WINDOW
from wukongs.remote.receiving import receive_result

log = logging.getLogger("wukongs")
ERRORS_MAX = 1000
_BETWEEN_S = 0.5


class RemoteQuery:
    """A registered query, as RemoteEngine.register and queries return it. Methods may be called from any thread."""

    def __init__(
        self, connection: Connection, joined: Joined, described: Mapping[str, Any], again: tuple[str, Mapping[str, Any]]
    ) -> None:
        """described: what the node says of it; again: the call that names it to a new session."""
        self.name: str = described["name"]
        self.is_stream: bool = described["is_stream"]
        self._connection = connection
        self._again = again
        self._life: str = described["life"]
        self._number: tuple[Joined, int] = joined, described["query"]
        self._fetching = threading.Lock()
        self.taken = 0
        """Number of the last window of this session that has come."""
        self._taken_ms: int | None = None
        self._kept: deque[WindowResult | WukongsError] = deque()
        """Windows that have come, and nobody has read."""
        self._is_ended = self._is_closed = False
        self.listener: Listener | None = None

    def __repr__(self) -> str:
        return f"<RemoteQuery {self.name}>"

    # --- results ------------------------------------------------------------------------------------------------------

    def results(self, timeout_s: float | None = None) -> Iterator[WindowResult]:
        """As ContinuousQuery.results: also ends when the connection is closed. Raises NodeUnavailable, too."""
        if self.listener is not None:
            yield from self.listener.errors(timeout_s)
            return
        while (window := self.next(timeout_s)) is not None:
            yield window

    async def aresults(self, timeout_s: float | None = None) -> AsyncIterator[WindowResult]:
        """As results, for `async for`. Waits in a thread; a window that comes after its reader was cancelled is kept
        for the next one."""
        while True:
            fetched: list[WindowResult] = []

            def fetch(into: list[WindowResult] = fetched) -> None:
                window = self.next(timeout_s)
                if window is not None:
                    into.append(window)

            work = asyncio.get_running_loop().run_in_executor(None, fetch)
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                work.add_done_callback(lambda _, found=fetched: self._kept.extendleft(found))  # type: ignore[misc]
                raise
            if not fetched:
                return
            yield fetched[0]

    def next(self, timeout_s: float | None) -> WindowResult | None:
        """Return the next window; None once the query is closed and all is read, when timeout_s passes without one, or
        when the connection is closed. Raises the error of a firing that failed; NodeUnavailable."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._fetching.acquire(timeout=-1 if left is None else left):
                return None
            try:
                item = (
                    self._kept.popleft() if self._kept else self._fetch(min(POLL_S, POLL_S if left is None else left))
                )
            finally:
                self._fetching.release()
            if isinstance(item, WukongsError):
                raise item
            if item is not None:
                return item
            if self._is_ended or self._connection.is_closed or (left is not None and left <= 0):
                return None

    def _fetch(self, wait_s: float) -> WindowResult | WukongsError | None:
        """Ask for the next window; None if none comes within wait_s. Raises NodeUnavailable."""
        try:
            joined = self._connection.joined()
            number = self._in(joined)
            asked = {"query": number, "taken": self.taken, "wait_s": wait_s}
            answer = self._connection.ask(joined, WINDOW, asked)
            if answer.kind in (NONE, ENDED):
                self._is_ended = answer.kind == ENDED
                return None
            item: WindowResult | WukongsError
            if answer.kind == FAILED:
                if "number" not in answer.fields:  # not of a window, but of the question
                    raise_failure(answer, joined.address)
                item = _error_in(answer, joined.address)
            else:
                window = receive_result(self._connection, joined, answer, {"query": number}, keep=True)
                if not isinstance(window, WindowResult):
                    raise DataError(f"{joined.address}: expected a window, found a {window.kind}")
                item, self._taken_ms = window, window.end_ms
            if answer.fields.get("number") != self.taken + 1:
                raise DataError(
                    f"{joined.address}: expected window {self.taken + 1}, found {answer.fields.get('number')!r}"
                )
            self.taken += 1
            return item
        except SessionLost:
            return None
        except WukongsError:
            if self._connection.is_closed:
                return None
            raise

    def confirm(self) -> None:
        """Say that the last window was read, without asking for the next: else it waits for another reader when the
        connection is closed."""
        joined = self._connection.joined()
        with self._fetching, contextlib.suppress(SessionLost):
            if self._number[0].token == joined.token:
                asked = {"query": self._number[1], "taken": self.taken, "wait_s": None}
                raise_failure(self._connection.ask(joined, WINDOW, asked), joined.address)

    # --- the query ----------------------------------------------------------------------------------------------------

    def explain(self, *, analyze: bool = False) -> str:
        """As ContinuousQuery.explain."""
        return str(self.call("explain", analyze=analyze))

    def stats(self) -> dict[str, Any]:
        """As ContinuousQuery.stats."""
        return dict(self.call("stats"))

    def why(self) -> str:
        """As ContinuousQuery.why."""
        return str(self.call("why"))

    def warnings(self) -> tuple[str, ...]:
        """As ContinuousQuery.warnings."""
        return tuple(self.call("warnings"))

    def pause(self) -> None:
        """As ContinuousQuery.pause."""
        self.call("pause")

    def resume(self) -> None:
        """As ContinuousQuery.resume."""
        self.call("resume")

    def close(self) -> None:
        """As ContinuousQuery.close."""
        if not self._connection.is_closed:
            self.call("close")
            self._is_closed = True

    @property
    def is_over(self) -> bool:
        """Whether there is no window to read any more, and none will come."""
        return self._is_ended or self._connection.is_closed

    def call(self, method: str, **args: Any) -> Any:
        answer, _ = self._connection.call(f"query.{method}", lambda joined: {**args, "query": self._in(joined)})
        return answer.fields.get("value")

    def name_again(self, joined: Joined) -> None:
        """Register the query in a session that does not have it, unless it was closed."""
        if not self._is_closed and not self._is_ended:
            self._in(joined)

    def _in(self, joined: Joined) -> int:
        """Return how a session calls the query; a new one has to be told of it, and of the last window taken."""
        known, number = self._number
        if known.token != joined.token:
            method, args = ("attach", {"name": self.name}) if self._is_closed else self._again
            told = {**args, "is_again": True, "taken_ms": self._taken_ms, "life": self._life}
            answer, joined = self._connection.call(method, told)
            described = answer.fields["value"]
            number, self._life, self.taken = described["query"], described["life"], 0
            self._number = joined, number
        return number


class Listener:
    """Calls on_result with each window of a query, in order, in a thread of its own."""

    def __init__(self, query: RemoteQuery, on_result: Callable[[WindowResult], object]) -> None:
        self._query, self._on_result = query, on_result
        self._changed = threading.Condition()
        self._errors: deque[WukongsError] = deque(maxlen=ERRORS_MAX)
        self._begun = 0
        """How many windows were asked for."""
        self._idle_since = 0
        """The last of these questions that there was no window for."""
        self._reported = 0
        """Number of the last window that on_result has dealt with."""
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"wukongs-{query.name}", daemon=True)
        self._thread.start()

    def errors(self, timeout_s: float | None) -> Iterator[WindowResult]:
        """Raise the next error that stands in the place of a window; end when timeout_s passes without one, or with
        the query. on_result has the windows."""
        with self._changed:
            self._changed.wait_for(lambda: self._errors or self._is_over, timeout_s)
            if self._errors:
                raise self._errors.popleft()
        yield from ()

    def wait_for(self, number: int, timeout_s: float | None) -> bool:
        """Wait until on_result has dealt with the window of this number, or no more come; tell whether that is so."""
        if threading.current_thread() is self._thread:
            return True
        with self._changed:
            begun = self._begun
            return self._changed.wait_for(
                lambda: self._is_over or self._reported >= number or self._idle_since > begun, timeout_s
            )

    def join(self) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join(POLL_S)

    def _run(self) -> None:
        while not self._query.is_over:
            with self._changed:
                self._begun += 1
            window = self._next()
            if window is not None:
                self._call(window)
            with self._changed:
                self._reported = self._query.taken
                if window is None:
                    self._idle_since = self._begun
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _next(self) -> WindowResult | None:
        try:
            return self._query.next(POLL_S)
        except WukongsError as error:
            log.warning("query %s: %s", self._query.name, error)
            with self._changed:
                self._errors.append(error)
            if isinstance(error, NodeUnavailable):
                time.sleep(_BETWEEN_S)
            return None

    def _call(self, window: WindowResult) -> None:
        try:
            self._on_result(window)
        except Exception:
            log.exception("query %s: on_result failed for the window ending at %d ms", window.query, window.end_ms)


def _error_in(answer: Any, address: str) -> WukongsError:
    try:
        raise_failure(answer, address)
    except WukongsError as error:
        return error
    except (TypeError, ValueError) as error:
        return WukongsError(f"{address}: {error}")
    raise AssertionError(answer)
