"""A WebSocket: each message of a server is a record (`kind = "websocket"`)."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wukongs.adapters.feeds.contact import (
    CONNECT_S,
    LOOK_S,
    MESSAGE_BYTES_MAX,
    Contact,
    TlsOptions,
    headers_in,
    package,
    refuse_header,
    shown_url,
    texts_in,
    tls_options,
    untrusted,
    url_in,
    url_name,
)
from wukongs.adapters.feeds.feed import Inlet, Kind
from wukongs.adapters.mapping.mapping import Csv
from wukongs.errors import SettingsError
from wukongs.settings.toml_reader import TableReader

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection, connect

_TRY_AGAIN = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class WebSocketOptions:
    """subscribe: sent one after the other once there is a connection; ping_s: after so long without a message the
    server is asked whether it is there, and has as long to answer; ends: whether the source ends when the server
    closes."""

    url: str
    subscribe: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    ping_s: float = 20.0
    tls: TlsOptions | None = None
    ends: bool = False


def _options(reader: TableReader) -> WebSocketOptions:
    return WebSocketOptions(
        url=url_in(reader, ("ws", "wss")),
        subscribe=texts_in(reader, "subscribe"),
        headers=headers_in(reader),
        ping_s=(reader.integer("ping_ms", 20_000, low=1) or 0) / 1000,
        tls=tls_options(reader),
        ends=not reader.flag("follow", True),
    )


class WebSocketReader:
    """A connection that is lost is made again; what the server sent meanwhile is lost.

    All that goes over a connection is read and written by one thread: two that do so over TLS lock each other out now
    and then."""

    def __init__(self, options: WebSocketOptions, csv: Csv | None) -> None:
        refuse_header(csv, "websocket")
        package("websockets.asyncio.client", "websocket")
        self._options = options

    def run(self, inlet: Inlet) -> None:
        from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus, WebSocketException

        options, shown = self._options, shown_url(self._options.url)
        contact = Contact(inlet, shown)
        while not inlet.is_stopped:
            try:
                asyncio.run(self._read(contact, inlet))
                return
            except ConnectionClosedOK as error:
                if options.ends:
                    return
                reason = _said(error)
            except ConnectionClosed as error:
                reason = _said(error)
            except InvalidStatus as error:
                status = error.response.status_code
                if not contact.was_made and 300 <= status < 500 and status not in _TRY_AGAIN:
                    raise SettingsError(f"{shown}: expected a WebSocket, found status {status}") from None
                reason = f"status {status}"
            except ssl.SSLCertVerificationError as error:
                raise untrusted(shown, error) from None
            except (OSError, WebSocketException) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            contact.lost(reason)
            contact.wait()

    async def _read(self, contact: Contact, inlet: Inlet) -> None:
        async with self._connected() as connection:
            contact.made()
            for text in self._options.subscribe:
                await connection.send(text)
            await self._drain(connection, inlet)

    def _connected(self) -> connect:
        from websockets.asyncio.client import connect

        options = self._options
        is_safe = options.url.startswith("wss")
        return connect(
            options.url,
            additional_headers=options.headers,
            ssl=(options.tls or TlsOptions()).context() if is_safe else None,
            open_timeout=CONNECT_S,
            close_timeout=1.0,
            ping_interval=None,  # an answer waits behind the messages that we do not take because the spool is full
            max_size=MESSAGE_BYTES_MAX,
        )

    async def _drain(self, connection: ClientConnection, inlet: Inlet) -> None:
        """Take messages until the inlet is stopped. Raises: ConnectionClosed; TimeoutError (no answer to a ping)."""
        heard_s, answer = time.monotonic(), None
        while not inlet.is_stopped:
            try:
                async with asyncio.timeout(LOOK_S):
                    message = await connection.recv()
            except TimeoutError:
                now_s = time.monotonic()
                if answer is not None and answer.done():
                    heard_s, answer = now_s, None
                elif answer is None and now_s - heard_s >= self._options.ping_s:
                    answer = asyncio.ensure_future(await connection.ping())
                elif answer is not None and now_s - heard_s >= 2 * self._options.ping_s:
                    raise TimeoutError(f"no answer to a ping for {self._options.ping_s:g} s") from None
                continue
            inlet.put(message.encode() if isinstance(message, str) else message)
            heard_s, answer = time.monotonic(), None


def _said(error: Exception) -> str:
    return f"it was closed: {error}"


KIND = Kind(
    options=_options,
    reader=lambda options, csv: WebSocketReader(options, csv),
    name=lambda options: url_name(options.url),
)
