"""Connections: how many may be open, and how long one may take until a request is told."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from wukongs.wire.descriptors import make_room

HEAD_BYTES_MAX = 1 << 18
"""The most of a head, and of trailers or anything else behind it that is no body."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def bounded(connections_max: int, header_s: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with bounds: it knows none, so one client could have all descriptors.

    connections_max: those beyond are ended at once; header_s: from when a connection, or a request on it, has begun
    until its head is here; also behind an answer, if something comes that is no new request. Between two requests
    uvicorn's own timeout holds. A head is bounded by HEAD_BYTES_MAX: the parser copies what it has of a header each
    time that more of it comes."""

    class Bounded(HttpToolsProtocol):
        _overdue: asyncio.TimerHandle | None = None
        _untold = 0
        """Bytes since the last part of a request was told."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > connections_max:
                transport.abort()
            else:
                self._await_head()

        def _await_head(self) -> None:
            if self._overdue is None:
                self._overdue = self.loop.call_later(header_s, self.transport.abort)

        def _has_head(self) -> None:
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

        def data_received(self, data: bytes) -> None:
            if self._untold > HEAD_BYTES_MAX:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
            self._untold += len(data)
            super().data_received(data)
            is_answered = self.cycle is None or self.cycle.response_complete
            is_upgraded = self not in self.connections
            if is_answered and not (is_upgraded or self.pipeline or self.timeout_keep_alive_task):
                self._await_head()

        def on_message_begin(self) -> None:
            self._has_head()
            self._await_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._untold = 0
            self._has_head()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._untold = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._untold = 0
            super().on_message_complete()

        def connection_lost(self, error: Exception | None) -> None:
            self._has_head()
            super().connection_lost(error)

    return Bounded


def most_connections(wished: int) -> int:
    """Return how many connections there may be: as many as are wished, if there are descriptors for them."""
    import resource

    make_room()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(wished, soft - SPARE_DESCRIPTORS))


SPARE_DESCRIPTORS = 200
"""Left for files of the engine and its other sockets."""
