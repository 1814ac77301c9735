"""Connections: how many may be open, and how long one may take until TLS is agreed on, and until a request is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from wukongs.wire.descriptors import make_room

HEAD_BYTES_MAX = 1 << 18
"""The most of a head, and of trailers or anything else behind it that is no body."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n%bConnection: close\r\nContent-Length: 0\r\n\r\n"


def bounded(
    connections_max: int, header_s: float, certificates: ssl.SSLContext | None = None
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with bounds: it knows none, so one client could have all descriptors.

    connections_max: those beyond are ended at once; header_s: from when a connection, or a request on it, has begun
    until its head is here; also behind an answer, if something comes that is no new request. Between two requests
    uvicorn's own timeout holds. A head is bounded by HEAD_BYTES_MAX: the parser copies what it has of a header each
    time that more of it comes. certificates: for TLS, with header_s of its own until it is agreed on. It is begun here:
    uvicorn would hear of a connection only behind that, and could not count it."""

    handshakes = set[asyncio.Future[None]]()

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
                headers = (b"%b: %b\r\n" % pair for pair in self.server_state.default_headers)
                self.transport.write(_TOO_LARGE % b"".join(headers))
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

    class Handshake(asyncio.Protocol):
        """A connection that has just come: another one takes its socket over for TLS, and has a Bounded once that is
        agreed on."""

        def __init__(self, **options: Any) -> None:
            self._bounded = Bounded(**options)

        def connection_made(self, transport: Any) -> None:
            try:
                if len(self._bounded.connections) + len(handshakes) < connections_max:
                    shaking = asyncio.ensure_future(self._shake(transport.get_extra_info("socket").dup()))
                    handshakes.add(shaking)
                    shaking.add_done_callback(handshakes.discard)
            finally:
                transport.abort()

        async def _shake(self, connection: socket.socket) -> None:
            with suppress(OSError):  # it fails, or takes too long
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: self._bounded, connection, ssl=certificates, ssl_handshake_timeout=header_s
                )

    return Bounded if certificates is None else Handshake


def most_connections(wished: int) -> int:
    """Return how many connections there may be: as many as are wished, if there are descriptors for them."""
    import resource

    make_room()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(wished, soft - SPARE_DESCRIPTORS))


SPARE_DESCRIPTORS = 200
"""Left for files of the engine and its other sockets."""
