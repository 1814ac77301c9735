"""DistantQuery: a registered query that runs on another node of the cluster, and the answers to those who call it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from wukongs.csparql.algebra import Output
from wukongs.errors import DataError, NodeUnavailable, OutcomeUnknown, StreamError
from wukongs.live.argument_tables import Arguments, given_arguments, told_arguments
from wukongs.live.backend import RegisteredQuery
from wukongs.live.core import QueryLog
from wukongs.live.query_source import QuerySource
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.options import ViewOptions
from wukongs.live.views.row_support import RowSupport, told_row
from wukongs.live.window_log import Cursor, UnreadBudget, WindowLog
from wukongs.query.output.html import query_html
from wukongs.query.output.results import WindowResult
from wukongs.query.terms.names import given_terms
from wukongs.store.dtypes import Int64Array
from wukongs.wire.packets import Packet, Peers

OF_QUERY = "query"
_ARGUMENTS = ("bind", "unbind")
_METHODS = ("explain", "stats", "why", "warnings", "close", "has_changed", *_ARGUMENTS)
_OPTIONS = {
    "explain": ("analyze",),
    "why": ("row",),
    "has_changed": ("text", "base", "output", "is_paused"),
    **dict.fromkeys(_ARGUMENTS, ("table", "numbers")),
}
_OF_VIEWS = ("has_changed", *_ARGUMENTS)
ASK_S, FOLLOW_S = 60.0, 2.0


class DistantQuery:
    """Has the methods of ContinuousQuery, but no windows: these are read at its node.

    query_log: takes its changes; node: its number; address: where clients find it; since: tells it from an earlier
    query of this name; changes: how many it has had; view: the options of a live view, None: it has windows. Methods
    raise NodeUnavailable (its node is away) and StreamError (it is not there any more)."""

    def __init__(
        self,
        peers: Peers,
        query_log: QueryLog,
        name: str,
        node: int,
        address: str | None,
        source: QuerySource,
        is_stream: bool,
        since: object,
        changes: int,
        *,
        view: ViewOptions | None = None,
    ) -> None:
        self.name, self.node, self.since = name, node, since
        self.source, self.is_stream, self.changes, self.view = source, is_stream, changes, view
        self.address = address
        self.is_closed = False
        self._peers, self._query_log = peers, query_log
        self.log = WindowLog(name, UnreadBudget(1), 1)
        """For clients' feeds: says where the windows are, and ends."""
        self._cursor = self.log.cursor()
        self.log.put(0, self._elsewhere())
        self.log.close()

    def __repr__(self) -> str:
        return f"<DistantQuery {self.name} at node {self.node}>"

    def _repr_html_(self) -> str:
        return query_html("ContinuousQuery", self.name, self.stats, self.source.text)

    @property
    def is_view(self) -> bool:
        return self.view is not None

    @property
    def text(self) -> str:
        return self.source.text

    def results(self, timeout_s: float | None = None, *, group: str | None = None) -> Iterator[WindowResult]:
        """Raises StreamError: the windows of a query are read at its node."""
        raise self._elsewhere()

    def aresults(self, timeout_s: float | None = None, *, group: str | None = None) -> AsyncIterator[WindowResult]:
        """Raises StreamError, like results."""
        raise self._elsewhere()

    def cursor(self, group: str | None = None) -> Cursor:
        """Return the cursor of all readers here: it holds the error that says where the windows are."""
        return self._cursor

    def explain(self, *, analyze: bool = False) -> str:
        return str(self._call("explain", analyze=analyze))

    def stats(self) -> dict[str, Any]:
        return {**self._call("stats"), "node": self.node}

    def why(self, row: Any = None) -> Any:
        """See LiveView.why, and ContinuousQuery.why."""
        if row is None or not self.is_view:
            return str(self._call("why", **({} if row is None else {"row": given_terms(row)})))
        return RowSupport.from_json(self._call("why", row=told_row(row)))

    def warnings(self) -> tuple[str, ...]:
        return tuple(self._call("warnings"))

    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None:
        """Does not need its node, as pause and resume: the log says so, and its node follows."""
        self._query_log.replace_query(self.name, text, base, output)
        self._wait_until_changed(text=text, base=base, output=output)

    def pause(self) -> None:
        self._query_log.pause_query(self.name, True)
        self._wait_until_changed(is_paused=True)

    def resume(self) -> None:
        self._query_log.pause_query(self.name, False)
        self._wait_until_changed(is_paused=False)

    def _wait_until_changed(self, **change: Any) -> None:
        """Wait, but not for long, until a live view has followed the record: it does so between two moves. change: the
        options of LiveView.has_changed."""
        deadline_s = time.monotonic() + (FOLLOW_S if self.is_view else 0.0)
        with suppress(NodeUnavailable, StreamError, DataError):  # DataError: a node of an earlier version
            while time.monotonic() < deadline_s and not self._call("has_changed", **change):
                time.sleep(0.01)

    def bind(self, arguments: Arguments) -> Int64Array:
        """See LiveView.bind. Raises StreamError (a query with windows) and OutcomeUnknown (no answer), too."""
        return self._change_arguments("bind", arguments)

    def unbind(self, arguments: Arguments | Sequence[int] | Int64Array) -> Int64Array:
        """See LiveView.unbind. Raises as bind."""
        return self._change_arguments("unbind", arguments)

    def _change_arguments(self, method: str, arguments: Any) -> Int64Array:
        if not self.is_view:
            raise StreamError(f"{method}: query {self.name} has windows: register it anew with other bindings")
        told = told_arguments(arguments, method)
        try:
            return np.array(self._call(method, **told), np.int64)
        except OutcomeUnknown:
            raise
        except NodeUnavailable as error:
            raise OutcomeUnknown(f"{method}: {error}. It may still be done") from error

    def close(self) -> None:
        if not self.is_closed:
            self._call("close")
            self.is_closed = True

    def _call(self, method: str, **options: Any) -> Any:
        fields = {"query": self.name, "method": method, "options": options}
        return self._peers.ask([(self.node, Packet(OF_QUERY, fields))], ASK_S)[0].fields.get("value")

    def _elsewhere(self) -> StreamError:
        at = "" if self.address is None else f" ({self.address})"
        return StreamError(
            f"query {self.name} runs at node {self.node}{at}, which keeps its windows: connect to that node to read "
            "them, or register another query here"
        )


def query_handler(query_of: Callable[[str], RegisteredQuery | None]) -> Callable[[Packet], Packet]:
    """Return the handler of OF_QUERY. query_of: a query that runs here, by its name."""

    def answer(packet: Packet) -> Packet:
        name, method, options = (packet.fields.get(field) for field in ("query", "method", "options"))
        if not isinstance(name, str) or method not in _METHODS or not isinstance(options, dict):
            raise DataError(f"{OF_QUERY}: expected query, method and options, found {dict(packet.fields)!r:.200}")
        if options.keys() - set(_OPTIONS.get(str(method), ())):
            raise DataError(f"{OF_QUERY}: {method} has no options {sorted(options)}")
        query = query_of(name)
        if query is None:
            raise StreamError(f"query {name} does not run here: it was closed, or has moved")
        if method in _OF_VIEWS and not isinstance(query, LiveView):
            raise StreamError(f"{method}: query {name} has windows")
        if method not in _ARGUMENTS:
            value = getattr(query, str(method))(**options)
            return Packet(OF_QUERY, {"value": value.as_json() if isinstance(value, RowSupport) else value})
        return Packet(OF_QUERY, {"value": getattr(query, str(method))(given_arguments(options, method)).tolist()})

    return answer
