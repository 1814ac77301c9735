"""RemoteQuery and RemoteView: a registered query or live view of an engine in another process.

Windows are fetched one at a time, numbered; the next request confirms the last window. One that was fetched for a
reader who went away meanwhile is kept for the next reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

from wukongs.csparql.algebra import Output
from wukongs.csparql.tokens import check_text
from wukongs.errors import DataError, GapError, NodeUnavailable, WukongsError
from wukongs.live.argument_tables import Arguments, told_arguments
from wukongs.live.window_log import LAST_MS
from wukongs.query.limits import check_seconds
from wukongs.query.output.html import query_html
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.output.view_report import ViewReport
from wukongs.query.terms.names import given_terms
from wukongs.remote.connection import Connection, Joined, Moved, SessionLost, answer_limit, raise_failure
from wukongs.remote.kinds import NONE, POLL_S, WINDOW
from wukongs.remote.receiving import receive_result
from wukongs.store.dtypes import Int64Array
from wukongs.wire.packets import Packet

if TYPE_CHECKING:
    from wukongs.live.views.row_support import RowSupport

_BETWEEN_S = 0.02
REPEATS_MAX = 3
"""How often a content is asked for anew whose rows stopped."""
_HAD_MAX = 1000
"""Windows that one reader of a group remembers."""


Item = TypeVar("Item", bound=WindowResult | ViewReport)


class RemoteReader(Generic[Item]):
    """A registered query with its windows, or a live view with its reports, and the place of this client in them."""

    def __init__(
        self,
        connection: Connection,
        joined: Joined,
        described: Mapping[str, Any],
        again: tuple[str, Mapping[str, Any]],
        *,
        is_of_group: bool = False,
    ) -> None:
        """described: what the node says of it; again: the call that names it to a new session; is_of_group: it is one
        reader of a group."""
        self.name: str = described["name"]
        self.text: str = again[1].get("text") or described.get("text", "")
        """The text that it was registered with, or that replaced it."""
        self.is_stream: bool = described["is_stream"]
        self.connection = self._main = connection
        """To the node that runs it, as far as is known."""
        self._again = again
        self.readers: int = described.get("readers", 1)
        """How many clients had registered it when this one did, this one too. Each gets every window. A client that
        crashed counts for a minute; stats() has the number of now."""
        self._life: str = described["life"]
        self._number: tuple[Joined, int] = joined, described.get("query", -1)
        self._is_new = "at" in described
        """No session has it yet."""
        self._fetching = threading.Lock()
        self.taken = 0
        """Number of the last window of this session that has come."""
        self.taken_ms: int | None = None
        """The end of the last window that has come, or of the error in its place."""
        self._had: deque[int] | None = deque(maxlen=_HAD_MAX) if is_of_group else None
        """The ends of the windows of a group that have come to this reader."""
        self._kept: deque[Item | WukongsError] = deque()
        """Windows that have come, and nobody has read."""
        self._is_ended = self._is_closed = False
        self.errors: Callable[[float | None], Iterator[Item]] | None = None
        """How results() reads of a query with on_result: it raises the errors of firings, one at a time."""
        if self._is_new:
            self.connection = self._main.beside(described["at"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _repr_html_(self) -> str:
        return query_html(type(self).__name__, self.name, self.stats)

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self, timeout_s: float | None, group: str | None, *, progress: bool = False) -> Iterator[Item]:
        self.connection.check_is_own()
        if group is not None:
            reader = self._reader(group)
            try:
                while (window := reader.next(timeout_s, progress=progress)) is not None:
                    yield window
            except GeneratorExit:
                reader.leave()
                raise
            reader.confirm()
            reader.leave()
            return
        if self.errors is not None:
            yield from self.errors(timeout_s)
            return
        while (window := self.next(timeout_s, progress=progress)) is not None:
            yield window

    def _reader(self, group: str) -> RemoteReader[Item]:
        """Return one more reader of a group."""
        told = {"name": self.name, "group": group}
        answer, joined = self._main.call("attach", told)
        return RemoteReader[Item](self._main, joined, answer.fields["value"], ("attach", told), is_of_group=True)

    def leave(self) -> None:
        """End this reader of a group: a window that was not confirmed goes to another one."""
        with contextlib.suppress(WukongsError):
            if not self.connection.is_closed:
                self.call("leave")

    async def _aresults(
        self, timeout_s: float | None, group: str | None, *, progress: bool = False
    ) -> AsyncIterator[Item]:
        if group is not None:
            reader = await asyncio.to_thread(self._reader, group)
            try:
                async for window in reader._aresults(timeout_s, None, progress=progress):
                    yield window
            except (GeneratorExit, asyncio.CancelledError):
                reader.leave()
                raise
            await asyncio.to_thread(reader.confirm)
            await asyncio.to_thread(reader.leave)
            return
        check_seconds(timeout_s)
        left_s = timeout_s
        while True:
            began_s, fetched = time.monotonic(), list[Item]()
            wait_s = POLL_S if left_s is None else min(POLL_S, left_s)

            def fetch(into: list[Item] = fetched, wait_s: float = wait_s) -> None:
                window = self.next(wait_s, progress=progress)
                if window is not None:
                    into.append(window)

            work = asyncio.get_running_loop().run_in_executor(None, fetch)
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                work.add_done_callback(lambda _, found=fetched: self._kept.extendleft(found))  # type: ignore[misc]
                raise
            if fetched:
                yield fetched[0]
                left_s = timeout_s
                continue
            if left_s is not None:
                left_s -= time.monotonic() - began_s
            if self.is_over or (left_s is not None and left_s <= 0):
                return

    def next(self, timeout_s: float | None, *, progress: bool = False) -> Item | None:
        """Return the next window; None once the query is closed and all is read, when timeout_s passes without one, or
        when the connection is closed. Raises the error of a firing that failed; NodeUnavailable."""
        self.connection.check_is_own()
        check_seconds(timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._fetching.acquire(timeout=-1 if left is None else left):
                return None
            try:
                item = (
                    self._kept.popleft()
                    if self._kept
                    else self._fetch(min(POLL_S, POLL_S if left is None else left), progress=progress)
                )
            finally:
                self._fetching.release()
            if isinstance(item, WukongsError):
                raise item
            if item is not None:
                return item
            if self._is_ended or self.connection.is_closed or (left is not None and left <= 0):
                return None

    def _fetch(self, wait_s: float, *, progress: bool) -> Item | WukongsError | None:
        """Ask for the next window; None if none comes within wait_s. Raises NodeUnavailable."""
        try:
            found = fetch_any(self.connection, [self], wait_s, progress=progress)
        except WukongsError:
            if self.connection.is_closed:
                return None
            raise
        if found is None:
            return None
        if self._had is not None and isinstance(found[1], WindowResult):
            if found[1].end_ms in self._had:
                return None
            self._had.append(found[1].end_ms)
        item: Item | WukongsError = found[1]
        return item

    def note(self, item: Item | WukongsError, end_ms: object) -> None:
        """Note that the next window of this session has come. end_ms: where it ends, if the node says it."""
        self.taken += 1
        if isinstance(item, WindowResult):
            self.taken_ms = item.end_ms
        elif isinstance(item, GapError):
            self.taken_ms = item.to_ms
        elif type(end_ms) is int and end_ms < LAST_MS:
            self.taken_ms = end_ms

    def note_end(self) -> None:
        """Note that there is no window any more."""
        self._is_ended = True

    def confirm(self) -> None:
        """Say that the last window was read, without asking for the next: else it waits for another reader when the
        connection is closed."""
        if self.connection.is_closed:
            return
        joined = self.connection.joined()
        with self._fetching, contextlib.suppress(SessionLost):
            if self._number[0].token == joined.token:
                asked = {"queries": [[self._number[1], self.taken]], "wait_s": None}
                raise_failure(self.connection.ask(joined, WINDOW, asked), joined.address)

    # --- the query ----------------------------------------------------------------------------------------------------

    def explain(self, *, analyze: bool = False) -> str:
        """Do the same as ContinuousQuery.explain."""
        return str(self.call("explain", analyze=analyze))

    def stats(self) -> dict[str, Any]:
        """Do the same as ContinuousQuery.stats."""
        return dict(self.call("stats"))

    def warnings(self) -> tuple[str, ...]:
        """Do the same as ContinuousQuery.warnings."""
        return tuple(self.call("warnings"))

    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None:
        """Do the same as ContinuousQuery.replace."""
        check_text(text, base)
        self.call("replace", is_write=True, text=str(text), base=None if base is None else str(base), output=output)
        self.text = str(text)
        method, args = self._again
        if method == "register":
            self._again = method, {**args, "text": str(text), "base": base, "output": output}

    def pause(self) -> None:
        """Do the same as ContinuousQuery.pause."""
        self.call("pause")

    def resume(self) -> None:
        """Do the same as ContinuousQuery.resume."""
        self.call("resume")

    def close(self) -> None:
        """Do the same as ContinuousQuery.close."""
        if not self.connection.is_closed:
            self.call("close")
            self._is_closed = True

    @property
    def is_over(self) -> bool:
        """Whether there is no window to read any more, and none will come."""
        return self._is_ended or self.connection.is_closed

    def call(self, method: str, *, is_write: bool = False, **args: Any) -> Any:
        while True:
            with contextlib.suppress(Moved):
                answer, _ = self.connection.call(
                    f"query.{method}", lambda joined: {**args, "query": self.number_in(joined)}, is_write=is_write
                )
                return answer.fields.get("value")

    def name_again(self, joined: Joined) -> None:
        """Register the query in a session that does not have it, unless it was closed, or is read at another node."""
        if not self._is_closed and not self._is_ended and self.connection is self._main:
            with contextlib.suppress(Moved):
                self.number_in(joined)

    def find(self) -> None:
        """Have the node that runs it know that this client reads it."""
        while True:
            with contextlib.suppress(Moved):
                self.number_in(self.connection.joined())
                return

    def number_in(self, joined: Joined) -> int:
        """Return how a session calls the query; a new one has to be told of it, and of the last window taken. Raises
        Moved."""
        known, number = self._number
        if known.token != joined.token:
            method, args = ("attach", {"name": self.name}) if self._is_closed else self._again
            told = {**args, "is_again": not self._is_new, "taken_ms": self.taken_ms, "life": self._life}
            answer, joined = self.connection.call(method, told)
            described = answer.fields["value"]
            if (at := described.get("at")) is not None:
                time.sleep(_BETWEEN_S)
                self.connection = self._main.beside(at)
                raise Moved(at)
            number, self._life, self.taken, self._is_new = described["query"], described["life"], 0, False
            self.readers = described.get("readers", self.readers)
            self._number = joined, number
        return number


class RemoteQuery(RemoteReader[WindowResult]):
    """A registered query, as RemoteEngine.register and queries return it. Methods may be called from any thread."""

    def results(self, timeout_s: float | None = None, *, group: str | None = None) -> Iterator[WindowResult]:
        """See ContinuousQuery.results; also ends when the connection is closed. Raises NodeUnavailable,
        too. A query that this client has not registered begins with the oldest window that its node holds. A reader of
        a group is told no window twice."""
        return self._results(timeout_s, group)

    def aresults(self, timeout_s: float | None = None, *, group: str | None = None) -> AsyncIterator[WindowResult]:
        """See results, for `async for`. Waits in a thread, which ends within POLL_S after its reader was
        cancelled; a window that comes meanwhile is kept for the next one."""
        return self._aresults(timeout_s, group)

    def why(self, row: Mapping[str, Any] | None = None) -> str:
        """See ContinuousQuery.why."""
        args: dict[str, Any] = {} if row is None else {"row": given_terms(row)}
        return str(self.call("why", **args))


class RemoteView(RemoteReader[ViewReport]):
    """A live view, as RemoteEngine.register and queries return it. Methods may be called from any thread.

    A client has a cursor of its own, which begins as that of each reader. It begins again with a reset when the node
    has lost the client's session."""

    def results(
        self, timeout_s: float | None = None, *, group: str | None = None, progress: bool = False
    ) -> Iterator[ViewReport]:
        """See LiveView.results; also ends when the connection is closed. Raises NodeUnavailable, too."""
        return self._results(timeout_s, group, progress=progress)

    def aresults(
        self, timeout_s: float | None = None, *, group: str | None = None, progress: bool = False
    ) -> AsyncIterator[ViewReport]:
        """See results, for `async for`. Waits in a thread, which ends within POLL_S after its reader was
        cancelled; a report that arrives meanwhile is kept for the next one."""
        return self._aresults(timeout_s, group, progress=progress)

    def content(self, at: int | None = None, *, timeout_s: float | None = None) -> Result:
        """See LiveView.content; the whole content is here when it returns."""
        return self._content(at, timeout_s)[0]

    def content_with_minor(self, *, timeout_s: float | None = None) -> tuple[Result, int]:
        """Return the content, and how many changes of the arguments it has, as ViewReport.minor."""
        return self._content(None, timeout_s)

    def _content(self, at: int | None, timeout_s: float | None) -> tuple[Result, int]:
        asked, limit_s = {"at": at, "timeout_s": timeout_s}, answer_limit(timeout_s)
        lost = ""
        for _ in range(REPEATS_MAX):
            try:
                answer, joined = self.connection.call(
                    "query.content", lambda joined: {**asked, "query": self.number_in(joined)}, limit_s=limit_s
                )
                source = {"result": answer.fields.get("result")}
                found = receive_result(self.connection, joined, answer, source, self.text)
                return found, answer.fields.get("minor", 0)
            except (Moved, SessionLost) as error:
                lost = str(error)
        raise NodeUnavailable(f"the content of view {self.name} has stopped {REPEATS_MAX} times, at last: {lost}")

    def bind(self, arguments: Arguments) -> Int64Array:
        """See LiveView.bind."""
        return np.array(self.call("bind", is_write=True, **told_arguments(arguments, "bind")), np.int64)

    def unbind(self, arguments: Arguments | Sequence[int] | Int64Array) -> Int64Array:
        """See LiveView.unbind."""
        return np.array(self.call("unbind", is_write=True, **told_arguments(arguments, "unbind")), np.int64)

    @overload
    def why(self, row: None = None) -> str: ...

    @overload
    def why(self, row: Mapping[str, Any] | Sequence[Any]) -> RowSupport: ...

    def why(self, row: Mapping[str, Any] | Sequence[Any] | None = None) -> str | RowSupport:
        """See LiveView.why."""
        from wukongs.live.views.row_support import RowSupport, told_row

        if row is None:
            return str(self.call("why"))
        return RowSupport.from_json(self.call("why", row=told_row(row)))


Reader = TypeVar("Reader", bound=RemoteReader[Any])


def fetch_any(
    connection: Connection, queries: Sequence[Reader], wait_s: float, *, progress: bool = False
) -> tuple[Reader, Any] | None:
    """Return the next window or report of the first of these queries that has one, or the error in its place.

    None: none arrives within wait_s seconds, or the session was lost: ask again. The last ones of all these queries are
    confirmed with that. progress: reports of live views without rows, too. Raises NodeUnavailable, DataError (a node
    that lies)."""
    try:
        joined = connection.joined()
        numbers = {query.number_in(joined): query for query in queries}
        asked = [[number, query.taken] for number, query in numbers.items()]
        with_progress = {"progress": [*numbers]} if progress else {}
        answer = connection.ask(joined, WINDOW, {"queries": asked, "wait_s": wait_s, **with_progress})
        if answer.kind == NONE:
            for number in answer.fields.get("ended", []):
                numbers[number].note_end()
            return None
        if "number" not in answer.fields:  # not of a window, but of the question
            raise_failure(answer, joined.address)
        query = numbers.get(answer.fields.get("query"))  # type: ignore[arg-type]
        if query is None or answer.fields.get("number") != query.taken + 1:
            raise DataError(f"{joined.address}: expected the next window of a query, found {answer.fields!r:.200}")
        item = _item_of(connection, joined, answer, query.text)
        query.note(item, answer.fields.get("end_ms"))
        return query, item
    except (SessionLost, Moved):
        return None


def _item_of(
    connection: Connection, joined: Joined, answer: Packet, text: str
) -> WindowResult | ViewReport | WukongsError:
    try:
        raise_failure(answer, joined.address)
    except WukongsError as error:
        return error
    except (TypeError, ValueError) as error:
        return WukongsError(f"{joined.address}: {error}")
    window = receive_result(connection, joined, answer, {"query": answer.fields["query"]}, text, keep=True)
    if not isinstance(window, WindowResult | ViewReport):
        raise DataError(f"{joined.address}: expected a window or report, found a {window.kind}")
    return window
