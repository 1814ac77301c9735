"""RemoteStream: a stream of an engine in another process; Stream's methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.errors import SettingsError
from wukongs.live.stream import TABLE_COLUMNS, Pushable, Time, columns_of, table_of_tuples, time_ms_of
from wukongs.query.output.html import facts_table
from wukongs.query.terms.python_terms import is_table
from wukongs.remote.connection import Connection, Joined, answer_limit
from wukongs.store.dtypes import UInt8Array

if TYPE_CHECKING:
    import pyarrow


_NEWER = ("idle_advance", "late", "retractions")
"""Options that nodes of earlier releases leave out; a node names those that it knows."""


class RemoteStream:
    """Tuples in. All methods may be called from any thread; calls of one stream are taken one after the other."""

    def __init__(self, connection: Connection, options: Mapping[str, Any], timeout_s: float | None = None) -> None:
        """Declare the stream. options, timeout_s: what RemoteEngine.stream was called with."""
        self._connection = connection
        self._options = options
        asked = {**options, "timeout_s": timeout_s}
        limit_s = answer_limit(timeout_s)
        answer, joined = connection.call("stream", asked, is_write=True, is_known=True, limit_s=limit_s)
        declared = answer.fields["value"]
        self.iri: str = declared["iri"]
        self.batch_ms: int = declared["batch_ms"]
        self._number: tuple[Joined, int] = joined, declared["stream"]
        for name in _NEWER:
            if options.get(name) is not None and name not in declared.get("takes", ()):
                raise SettingsError(
                    f"stream {self.iri}: {name} = {options[name]!r}: the node is of an earlier release that does not "
                    "know this option, and has declared the stream without it. drop_stream it, and upgrade the node"
                )

    def __repr__(self) -> str:
        return f"<RemoteStream {self.iri}>"

    def _repr_html_(self) -> str:
        return facts_table(f"RemoteStream {self.iri}", lambda: {"batch_ms": self.batch_ms})

    def push(self, tuples: Iterable[tuple[Any, Any, Any, Time]], *, timeout_s: float | None = None) -> int:
        """Do the same as Stream.push; the tuples count once, however often they have to be sent. Also raises
        NodeUnavailable, and OutcomeUnknown if it is not known whether they were taken."""
        return self._push(_tuples_table(self.iri, tuples), timeout_s)

    def push_arrow(self, table: pyarrow.Table, *, timeout_s: float | None = None) -> int:
        """Do the same as Stream.push_arrow; also NodeUnavailable, as push."""
        return self._push(table_of_tuples(self.iri, table), timeout_s)

    def advance(self, timestamp_ms: Time, *, timeout_s: float | None = None) -> None:
        """Do the same as Stream.advance."""
        time_ms = time_ms_of(self.iri, timestamp_ms)
        self._call("stream.advance", {"timestamp_ms": time_ms}, timeout_s=timeout_s)

    def close(self) -> None:
        """Do the same as Stream.close."""
        if not self._connection.is_closed:
            self._call("stream.close", {})

    def _push(self, table: pyarrow.Table | None, timeout_s: float | None) -> int:
        return 0 if table is None else int(self._call("stream.push", {}, {"table": stream_bytes(table)}, timeout_s))

    def _call(
        self,
        method: str,
        args: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        args = {**args, "timeout_s": timeout_s}
        answer, _ = self._connection.call(
            method,
            lambda joined: {**args, "stream": self.number_in(joined)},
            arrays,
            is_write=True,
            is_known=True,
            limit_s=answer_limit(timeout_s),
        )
        return answer.fields.get("value")

    def name_again(self, joined: Joined) -> None:
        """Declare the stream in a session that does not have it, unless it was dropped."""
        self.number_in(joined)

    def number_in(self, joined: Joined) -> int:
        """Return how a session calls the stream; a new one has to be told of it."""
        known, number = self._number
        if known.token != joined.token:
            answer, joined = self._connection.call("stream", {**self._options, "is_again": True})
            number = answer.fields["value"]["stream"]
            self._number = joined, number
        return number


def table_bytes(stream_iri: str, pushed: Pushable) -> UInt8Array | None:
    """Return what is pushed to a stream as an Arrow IPC stream, None for nothing. Raises DataError, StreamError."""
    if pushed is None:
        return None
    table = table_of_tuples(stream_iri, pushed) if is_table(pushed) else _tuples_table(stream_iri, pushed)
    return None if table is None else stream_bytes(table)


def _tuples_table(stream_iri: str, tuples: Iterable[tuple[Any, Any, Any, Time]]) -> pyarrow.Table | None:
    import pyarrow as pa

    columns = columns_of(stream_iri, tuples)
    if columns is None:
        return None
    *terms, times = columns
    return pa.table([*(pa.array(column, pa.large_string()) for column in terms), pa.array(times)], list(TABLE_COLUMNS))


def stream_bytes(table: pyarrow.Table) -> UInt8Array:
    """Return a table as an Arrow IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(sink.getvalue(), np.uint8)
