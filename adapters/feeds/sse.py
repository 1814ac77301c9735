"""Server-sent events over HTTP (`kind = "sse"`): each event is a message.

The id of the last event is kept with it in the spool, so a reader that starts again asks for what follows that one, as
browsers do: a server that knows ids repeats nothing and leaves nothing out.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from wukongs.adapters.feeds.contact import (
    CONNECT_S,
    LOOK_S,
    MESSAGE_BYTES_MAX,
    Contact,
    TlsOptions,
    headers_in,
    keep_alive,
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
from wukongs.adapters.source import BYTE_ORDER_MARK
from wukongs.errors import DataError, SettingsError
from wukongs.settings.toml_reader import TableReader

READ_BYTES = 1 << 16
REDIRECTS_MAX = 10
RETRY_MS_MAX, RETRY_DIGITS = 3_600_000, 10
"""A server may let us wait for an hour at most before the next try."""
MEDIA_TYPE = "text/event-stream"
LAST_ID = "id"
_MOVED = (301, 302, 303, 307, 308)
_TRY_AGAIN = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class SseOptions:
    """events: the names of those to take, () for all; ends: whether the end of the answer is the end of the source."""

    url: str
    events: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    tls: TlsOptions | None = None
    ends: bool = False


def _options(reader: TableReader) -> SseOptions:
    return SseOptions(
        url=url_in(reader, ("http", "https")),
        events=texts_in(reader, "events"),
        headers=headers_in(reader),
        tls=tls_options(reader),
        ends=not reader.flag("follow", True),
    )


@dataclass(frozen=True, slots=True)
class Event:
    """last_id: what to ask for after this event."""

    name: str
    data: bytes
    last_id: str


class EventParser:
    """Bytes of one answer, in any pieces, become events. last_id, retry_ms: what the server said last."""

    def __init__(self, last_id: str) -> None:
        self.last_id = last_id
        self.retry_ms: int | None = None
        self._rest = bytearray()
        self._is_first = True
        self._is_after_return = False
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def take(self, data: bytes) -> list[Event]:
        """Return the events that end in these bytes. Raises: DataError (one that does not end)."""
        if self._is_after_return and data:
            data, self._is_after_return = data.removeprefix(b"\n"), False
        self._rest += data
        if self._is_first:
            if BYTE_ORDER_MARK.startswith(self._rest) and self._rest != BYTE_ORDER_MARK:
                return []
            self._rest, self._is_first = self._rest.removeprefix(BYTE_ORDER_MARK), False
        found: list[Event] = []
        if b"\n" in data or b"\r" in data:
            *lines, rest = bytes(self._rest).splitlines(keepends=True)
            if rest.endswith((b"\n", b"\r")):
                self._is_after_return = rest.endswith(b"\r")
                lines, rest = [*lines, rest], b""
            self._rest = bytearray(rest)
            events = (self._line(line.rstrip(b"\r\n")) for line in lines)
            found = [event for event in events if event is not None]
        if len(self._rest) + self._data_bytes > MESSAGE_BYTES_MAX:
            raise DataError(f"expected events of up to {MESSAGE_BYTES_MAX >> 20} MiB, found a longer one")
        return found

    def _line(self, line: bytes) -> Event | None:
        if not line:
            name, data = self._name, self._data
            self._name, self._data, self._data_bytes = "", [], 0
            return Event(name or "message", b"\n".join(data), self.last_id) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry_ms = min(int(value[:RETRY_DIGITS]), RETRY_MS_MAX)
        return None


class _Refused(Exception):
    """The server says no, and will say so again."""


class _Ended(Exception):
    """The server says that there will be no more."""


class SseReader:
    def __init__(self, options: SseOptions, csv: Csv | None) -> None:
        refuse_header(csv, "sse")
        self._options = options
        self._socket: socket.socket | None = None
        self._is_done = False

    def run(self, inlet: Inlet) -> None:
        stopper = threading.Thread(target=self._stop, args=(inlet,), name="wukongs-sse-stop", daemon=True)
        stopper.start()
        try:
            self._follow(inlet)
        finally:
            self._is_done = True
            stopper.join()

    def _stop(self, inlet: Inlet) -> None:
        """Once the inlet is stopped, end the connection: a read that waits returns then."""
        while not self._is_done and not inlet.wait(LOOK_S):
            pass
        while not self._is_done:
            if (connection := self._socket) is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
            threading.Event().wait(LOOK_S)

    def _follow(self, inlet: Inlet) -> None:
        options, shown = self._options, shown_url(self._options.url)
        contact = Contact(inlet, shown)
        last_id = str(inlet.state.get(LAST_ID, ""))
        retry_s: float | None = None
        while not inlet.is_stopped:
            is_usual = False
            try:
                with self._answer(last_id) as answer:
                    contact.made()
                    parser = EventParser(last_id)
                    try:
                        while not inlet.is_stopped and (data := answer.read1(READ_BYTES)):
                            self._put(parser.take(data), inlet)
                    finally:
                        last_id = parser.last_id
                        retry_s = retry_s if parser.retry_ms is None else parser.retry_ms / 1000
                if options.ends:
                    return
                reason, is_usual = "the answer ended", True
            except _Ended:
                return
            except _Refused as error:
                if not contact.was_made and not inlet.is_stopped:
                    raise SettingsError(f"{shown}: expected events ({MEDIA_TYPE}), found {error}") from None
                reason = str(error)
            except DataError as error:
                reason = str(error)
            except ssl.SSLCertVerificationError as error:
                raise untrusted(shown, error) from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            finally:
                self._socket = None
            contact.lost(reason, is_usual)
            contact.wait(retry_s)

    def _put(self, events: list[Event], inlet: Inlet) -> None:
        for event in events:
            if not self._options.events or event.name in self._options.events:
                inlet.put(
                    event.data,
                    {"_event": event.name, "_id": event.last_id or None},
                    {LAST_ID: event.last_id or None},
                )

    def _answer(self, last_id: str) -> http.client.HTTPResponse:
        """Ask, and go where the server sends us. Raises: OSError, HTTPException, ValueError, _Refused, _Ended."""
        url = self._options.url
        for _ in range(REDIRECTS_MAX):
            answer = self._ask(url, last_id)
            where = answer.headers.get("Location")
            if answer.status not in _MOVED or where is None:
                break
            answer.close()
            before, url = urlsplit(url), urljoin(url, where)
            after = urlsplit(url)
            is_downgraded = before.scheme == "https" and after.scheme == "http"
            if after.scheme not in ("http", "https") or not after.hostname or is_downgraded:
                raise _Refused(f"status {answer.status}, which leads to {shown_url(url)}")
        status = f"status {answer.status} {answer.reason}".rstrip()
        if answer.status == 204:
            raise _Ended
        if 400 <= answer.status < 500 and answer.status not in _TRY_AGAIN:
            raise _Refused(status)
        if answer.status != 200:
            raise ConnectionError(status)
        if answer.headers.get_content_type() != MEDIA_TYPE:
            raise _Refused(f"{answer.headers.get_content_type()}")
        return answer

    def _ask(self, url: str, last_id: str) -> http.client.HTTPResponse:
        parts, options = urlsplit(url), self._options
        assert parts.hostname is not None, url
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = (options.tls or TlsOptions()).context()
            connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=CONNECT_S, context=context)
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=CONNECT_S)
        connection.connect()
        made = self._socket = connection.sock
        made.settimeout(None)  # a server may keep its answer until there is an event
        keep_alive(made)
        headers = {"Accept": MEDIA_TYPE, "Cache-Control": "no-cache"}
        if urlsplit(url)[:2] == urlsplit(options.url)[:2]:  # elsewhere they are nobody's business
            headers |= dict(options.headers)
        connection.putrequest("GET", parts._replace(scheme="", netloc="", fragment="").geturl() or "/")
        for name, text in headers.items():
            connection.putheader(name, text)
        if last_id:
            connection.putheader("Last-Event-ID", last_id.encode())
        connection.endheaders()
        return connection.getresponse()


KIND = Kind(
    options=_options,
    reader=lambda options, csv: SseReader(options, csv),
    name=lambda options: url_name(options.url),
)
