"""Doors: who may ask the server, and as which client a request counts.

A page of another site in a user's browser may send requests to a server on loopback, or with a password that the
browser keeps. Three checks refuse them:

* Host is a name of this server: otherwise another name could be made to lead here.
* Origin, where there is one, is this server or one that was allowed by name.
* Sec-Fetch-Site is not `cross-site`, unless that Origin is allowed: an `<img>` sends no Origin. A link may open the
  console, whose page does nothing by itself.

The bounds of a client hold for each address, page and token (`Door.client_of`): a page that may ask cannot use up what
the user's own programs have.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from wukongs.live.grants import ALL, Grant
from wukongs.server import pages
from wukongs.server.face import face_of
from wukongs.server.requests import Client, Refused, problem

HEADERS_OF_ALL = [("X-Content-Type-Options", "nosniff"), ("Cross-Origin-Resource-Policy", "same-origin")]
"""Headers of each HTTP answer: no page of another site can show it, or run it as what it is not. Pages that are allowed
by name ask with CORS, which the second one does not concern."""
_BEARER = "bearer."
_CONSOLE = "/"
_OPEN_PATHS = (_CONSOLE, "/healthz", "/readyz")
"""Paths that need no token, beside the files of the console: they tell nothing but whether the server is well."""
_CROSS_SITE, _SAME_SITE = "cross-site", "same-site"


@dataclass(frozen=True, slots=True)
class Doors:
    """The rules for who is let in. grants: returns what the holder of a token may do, None if it is not known (no
    function: nobody needs a token); hosts: names under
    which this server may be called (None: any, since a token is needed); origins: of pages of other sites, "*" for
    all."""

    grants: Callable[[object], Grant | None] | None = None
    hosts: Collection[str] | None = None
    origins: tuple[str, ...] = ()


class Door:
    """Answers requests that may not ask; notes in the state of others `client`, `grant`, and `stranger`, which tells
    whether their token is known still, with the same grant."""

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app, self._doors = app, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        connection.state.grant = found = self._grant_of(connection)
        connection.state.stranger = partial(self._changed, connection, found)
        connection.state.client = self.client_of(connection)
        refused = self._refused(connection)
        if refused is None:
            try:
                await self._app(scope, receive, send)
            finally:
                face = face_of(connection)
                face.held.release(connection)
                face.documents.release(connection)
        elif scope["type"] == "http":
            await problem(Request(scope, receive), refused)(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).close(1008, str(refused)[:120])

    def client_of(self, request: HTTPConnection) -> Client:
        """Return the client that a request counts for: its address, its page and its token.

        The page is "" for programs and for pages of this server; otherwise an origin that was allowed by name, "*" for
        all others that are allowed, or `same-site` for a page of another port that sends no Origin. So a client gets no
        more room by what it makes up: tokens count where they are checked."""
        address = "" if request.client is None else request.client.host
        token = "" if self._doors.grants is None else _token_of(request) or ""
        return (address, self._page_of(request), token)

    def _page_of(self, request: HTTPConnection) -> str:
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin in self._doors.origins:
            return str(origin)
        if site == _CROSS_SITE or (origin is not None and not _is_own(request, origin)):
            return "*"
        return _SAME_SITE if site == _SAME_SITE else ""

    def _refused(self, request: HTTPConnection) -> Refused | None:
        doors, hosts = self._doors, request.headers.getlist("host")
        if len(hosts) > 1 or (not hosts and request.scope["http_version"] != "1.0"):
            return Refused(400, f"Host: expected it once, found it {len(hosts)} times")
        host = "".join(hosts)
        if doors.hosts is not None and _name_of(host) not in doors.hosts:
            return Refused(421, f"Host {host!r}: this server is {' or '.join(sorted(doors.hosts))}")
        origin = request.headers.get("origin")
        is_allowed = not {origin, "*"}.isdisjoint(doors.origins)
        if not is_allowed and origin is not None and not _is_own(request, origin):
            return Refused(
                403, f"a page of {origin} may not ask this server: allow it by name (--cors), if it is to be"
            )
        if not is_allowed and request.headers.get("sec-fetch-site") == _CROSS_SITE and not _opens_console(request):
            return Refused(
                403,
                "Sec-Fetch-Site: a page of another site may not ask this server without its Origin, nor lead here. Ask "
                "by fetch, from a page that --cors names; or open the console, /",
            )
        path = request.scope["path"]
        is_open = path in _OPEN_PATHS or path.startswith(pages.PREFIX)
        return None if is_open or self._grant_of(request) is not None else _stranger()

    def _grant_of(self, request: HTTPConnection) -> Grant | None:
        """Return what a request may do; None: it names no token that is known."""
        return ALL if self._doors.grants is None else self._doors.grants(_token_of(request))

    def _changed(self, request: HTTPConnection, before: Grant | None) -> Refused | None:
        """Return why a request that was let in may not go on, None if it may."""
        grant = self._grant_of(request)
        if grant is None:
            return _stranger()
        return None if grant == before else Refused(403, "what this token may do has changed meanwhile: ask anew")


def _stranger() -> Refused:
    told = "Authorization: expected Bearer and a token that this server knows, or Basic with it as the password"
    return Refused(401, told, {"WWW-Authenticate": 'Bearer, Basic realm="wukongs"'})


def _opens_console(request: HTTPConnection) -> bool:
    """Tell whether a user follows a link to the console, into a window of its own."""
    headers = request.headers
    return (
        request.scope.get("method") in ("GET", "HEAD")
        and request.scope["path"] == _CONSOLE
        and (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    )


def _is_own(request: HTTPConnection, origin: str) -> bool:
    try:
        return urlsplit(origin).netloc == request.headers.get("host", "")
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """Return a Host without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0].lower()


def _token_of(request: HTTPConnection) -> str | None:
    """Return the token that a request gives. A page of a browser cannot set headers of a socket: it offers the
    subprotocols `wukongs` and `bearer.TOKEN`, the token in base64url without its padding."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    for offered in request.scope.get("subprotocols", ()):
        if offered.startswith(_BEARER):
            told = offered.removeprefix(_BEARER)
            with suppress(ValueError):
                return base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)).decode()
    match scheme.lower():
        case "bearer":
            return given.strip()
        case "basic":
            try:
                return base64.b64decode(given, validate=True).decode().partition(":")[2]
            except ValueError:
                return None
    return None
