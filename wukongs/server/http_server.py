"""HttpServer: the web application on an address, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import uvicorn
import uvloop

from wukongs.engine import Engine
from wukongs.errors import SettingsError
from wukongs.live.grants import Grant
from wukongs.live.views.live_view import LiveView
from wukongs.query.memory import Kind, Reservation, budget_of
from wukongs.server.app import make_app
from wukongs.server.connections import bounded, most_connections
from wukongs.server.doors import HEADERS_OF_ALL, Doors
from wukongs.server.face import Bounds, Face
from wukongs.server.feeds import Feeds
from wukongs.server.metrics import Metrics
from wukongs.server.relays import Node, Relays
from wukongs.server.requests import HeldBytes, Workers
from wukongs.wire.keys import warn_if_others_read
from wukongs.wire.trust import Trust

log = logging.getLogger("wukongs")
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
"""Errors of requests are logged where they are answered; that clients send nonsense or leave is no error."""
UNSENT_BYTES_MAX = 1 << 17
"""The system keeps so much of an answer that cannot be sent yet: clients that do not read cost no more than that."""
STARTS_S, CLOSES_S, LEAVES_S = 10.0, 5, 0.5
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """host, port: the address (port 0: a free one); tokens_file: with the tokens that clients may name; tls_cert,
    tls_key: files of a certificate (with its chain) and its key, in PEM; origins: of pages that may ask."""

    host: str = "127.0.0.1"
    port: int = 7480
    tokens_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    origins: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)


def check(settings: HttpSettings) -> None:
    """Raise the SettingsError with which an HttpServer would refuse these settings now: before data are loaded for
    it."""
    _doors_of(settings, _tokens_of(settings))
    _certificates(settings)
    _bound(settings.host, settings.port).close()


class HttpServer:
    """Serves from its construction until `close`. address: where; owns_queries: nobody else reads the windows of the
    queries that are registered already, so they are not to wait for anybody; node: the one that the engine is of.

    Raises SettingsError (an address that is taken or not ours, not loopback without tokens, files of TLS or tokens)."""

    def __init__(
        self, engine: Engine, settings: HttpSettings, *, owns_queries: bool = False, node: Node | None = None
    ) -> None:
        self._tokens = _tokens_of(settings)
        doors = _doors_of(settings, self._tokens)
        bounds = settings.bounds
        self._workers = Workers(bounds.per_client_max, bounds.waiting_max)
        self._relays = None if node is None else Relays(node)
        self._feeds = Feeds(bounds.feed, self._relays)
        certificates = _certificates(settings)
        bound = _bound(settings.host, settings.port)
        self.port: int = bound.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.address = f"http{'s' if certificates else ''}://{host}:{self.port}"
        reserved = Reservation(budget_of(engine.settings.memory_bytes_max), Kind.REQUEST)
        held = HeldBytes(bounds.bodies_bytes_max, "memory", reserved)
        documents = HeldBytes(bounds.documents_bytes_max, "room on disk")
        face = Face(engine, bounds, self._workers, self._feeds, Metrics(engine, self._feeds), held, documents)
        config = uvicorn.Config(
            make_app(face, doors),
            http=bounded(most_connections(bounds.connections_max), bounds.header_s, certificates),
            ws="websockets-sansio",
            ws_per_message_deflate=False,  # it would pack each window anew for each subscriber
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=HEADERS_OF_ALL,
            proxy_headers=False,
            timeout_graceful_shutdown=CLOSES_S,
        )
        self._server = uvicorn.Server(config)
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bound = bound
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wukongs-http", daemon=True)
        self._thread.start()
        self._wait_for_start()
        if owns_queries and self._loop is not None:
            for query in engine.queries():
                if isinstance(query, LiveView):
                    continue  # its readers begin with its content
                self._loop.call_soon_threadsafe(partial(self._feeds.of, query, is_owner=True))

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_pass_over)
        await self._server.serve(sockets=[self._bound])

    def _leave(self) -> None:
        """Begin to end, in the event loop: what runs is cancelled, and who reads is let go."""
        self._feeds.close()
        self._workers.cancel()
        self._server.should_exit = True
        assert self._loop is not None, "it runs"
        self._loop.call_later(LEAVES_S, self._cut)

    def _cut(self) -> None:
        for connection in list(self._server.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def _wait_for_start(self) -> None:
        for _ in range(int(STARTS_S / 0.01)):
            if self._server.started:
                return
            if self._ended.wait(0.01):
                break
        self.close()
        raise SettingsError(f"{self.address}: the server does not start: {self._failure}")

    def reload_trust(self) -> None:
        """Read the file of tokens again, and end subscriptions whose token is gone. Raises SettingsError (one that will
        not do: the old ones stay)."""
        if self._tokens is not None:
            self._tokens.read()
            self._in_loop(self._feeds.check_readers)

    def _in_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None and not self._ended.is_set():
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """End all connections, those with windows as well; may be called again."""
        self._in_loop(self._leave)
        self._server.should_exit = True
        self._ended.wait(CLOSES_S + 1)
        self._server.force_exit = True
        self._thread.join(CLOSES_S)
        if self._relays is not None:
            self._relays.close()
        self._workers.close()
        with suppress(OSError):
            self._bound.close()


class _Tokens:
    """The tokens of a file, as they were when it was read last. Raises SettingsError."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.read()

    def read(self) -> None:
        self._gate = Trust(tokens_file=self._file).read()

    def grant_of(self, token: object) -> Grant | None:
        return self._gate.grant_of(token)


def _tokens_of(settings: HttpSettings) -> _Tokens | None:
    return None if settings.tokens_file is None else _Tokens(settings.tokens_file)


def _doors_of(settings: HttpSettings, tokens: _Tokens | None) -> Doors:
    is_loopback = settings.host == "localhost" or _is_loopback(settings.host)
    if not is_loopback and tokens is None:
        raise SettingsError(
            f"host = {settings.host!r} is not loopback: whoever reaches it could read and change all. Give a file with "
            "tokens that clients have to name (--tokens FILE), or listen on 127.0.0.1"
        )
    for origin in settings.origins:
        _check_origin(origin)
    if tokens is not None:
        return Doors(tokens.grant_of, None, settings.origins)
    return Doors(None, {*_LOOPBACK, settings.host}, settings.origins)


def _check_origin(origin: str) -> None:
    """Raise SettingsError for an origin that no browser would send: its pages would stay out, and nobody knew why."""
    if origin in ("*", "null"):
        return
    with suppress(ValueError):
        parts = urlsplit(origin)
        is_default = (parts.scheme, parts.port) in (("http", 80), ("https", 443))
        if parts.hostname and not is_default and origin == f"{parts.scheme}://{parts.netloc.lower()}":
            return
    raise SettingsError(
        f"origin {origin!r} (--cors): expected one as browsers send it, in small letters, without a path or the usual "
        "port, such as https://yasgui.org or http://localhost:3000; or * for all"
    )


def _pass_over(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Note what a client has made go wrong in a connection: only that one ends."""
    log.debug("http: %s", context.get("message"), exc_info=context.get("exception"))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # With this protocol, not 0: else asyncio leaves TCP_NODELAY unset, and short answers wait 40 ms for the client.
        bound = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, OverflowError) as error:
        raise SettingsError(f"host = {host!r}, port = {port}: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # connections inherit it
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
        bound.bind(address)
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise SettingsError(f"{host}:{port}: {error.strerror}: give another --port, or 0 for a free one") from None
    return bound


def _certificates(settings: HttpSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise SettingsError("TLS: expected a certificate and its key (--tls-cert, --tls-key), found one of them")
    warn_if_others_read(settings.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"TLS: {settings.tls_cert}, {settings.tls_key}: {error}") from None
    return context
