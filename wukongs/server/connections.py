"""Connections: how many may be open, and how long one may take until a request is told."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from wukongs.wire.descriptors import make_room


def bounded(connections_max: int, header_s: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with bounds: it knows none, so one client could have all descriptors.

    connections_max: those beyond are ended at once; header_s: from when a connection, or a request on it, has begun
    until its head is here. Between two requests uvicorn's own timeout holds."""

    class Bounded(HttpToolsProtocol):
        _overdue: asyncio.TimerHandle | None = None

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

        def on_message_begin(self) -> None:
            self._await_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._has_head()
            super().on_headers_complete()

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
