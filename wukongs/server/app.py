"""The web application: which path is answered by what, and who is let in.

A page of another site in a user's browser may send requests to a server on loopback. It is kept out by two checks: the
request's Host must be a name of this server (else another name could be made to lead here), and its Origin, if it has
one, the same host or one that was allowed by name.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from wukongs.errors import WukongsError
from wukongs.server import pages, queries, streams
from wukongs.server.access import REQUEST_ID, Named
from wukongs.server.face import Face, face_of
from wukongs.server.graph_store import store
from wukongs.server.media import takes_gzip
from wukongs.server.openapi import described
from wukongs.server.requests import ClientGone, Refused, problem, query_fields
from wukongs.server.sparql import SNAPSHOT, WARNING, sparql

_GZIP_MIN_BYTES, _GZIP_LEVEL = 1024, 4
_BEARER = "bearer."
_OPEN_PATHS = ("/", "/healthz", "/readyz")
"""Paths that need no token, beside the files of the console: they tell nothing but whether the server is well."""


@dataclass(frozen=True, slots=True)
class Doors:
    """The rules for who is let in. admits: tells whether a token is known (None: nobody needs one); hosts: names under
    which this server may be called (None: any, since a token is needed); origins: of pages of other sites, "*" for
    all."""

    admits: Callable[[object], bool] | None = None
    hosts: Collection[str] | None = None
    origins: tuple[str, ...] = ()


def make_app(face: Face, doors: Doors) -> Starlette:
    app = Starlette(
        routes=[
            Route("/", pages.page),
            Route(f"{pages.PREFIX}{{rest:path}}", pages.file),
            Route("/sparql", sparql, methods=["GET", "POST"]),
            Route("/store", store, methods=["GET", "PUT", "POST", "DELETE"]),
            Route("/streams", streams.streams, methods=["GET", "POST"]),
            Route("/streams/{rest:path}", _Named("/streams/", _OF_STREAM), methods=_METHODS),
            Route("/queries", queries.queries, methods=["GET", "POST"]),
            Route("/queries/{rest:path}", _Named("/queries/", _OF_QUERY), methods=_METHODS),
            WebSocketRoute("/queries/{rest:path}", _live),
            Route("/stats", _stats),
            Route("/metrics", _metrics),
            Route("/openapi.json", _openapi),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz),
        ],
        middleware=[
            Middleware(Named),
            Middleware(face.metrics.counting),
            *_across(doors.origins),
            Middleware(_Door, doors=doors),
            Middleware(_Packed),
        ],
        exception_handlers={
            Refused: _problem,
            WukongsError: _problem,
            MemoryError: _problem,
            ClientGone: _nobody,
            ClientDisconnect: _nobody,
            HTTPException: _http_problem,
            Exception: _problem,
        },
    )
    app.state.face = face
    return app


# --- paths with names -------------------------------------------------------------------------------------------------

Handler = Callable[[Request], Awaitable[Response]]
_METHODS = ("GET", "PUT", "POST", "DELETE")
_OF_STREAM: Mapping[str, Mapping[str, Handler]] = {
    "": dict.fromkeys(("GET", "POST", "DELETE"), streams.stream),
    "close": {"POST": streams.end},
}
_OF_QUERY: Mapping[str, Mapping[str, Handler]] = {
    "": dict.fromkeys(("GET", "PUT", "DELETE"), queries.query),
    "windows": {"GET": queries.windows},
    "why": {"GET": queries.why},
    "explain": {"GET": queries.explain},
    "pause": {"POST": queries.pause},
    "resume": {"POST": queries.resume},
}


class _Named:
    """Answers what is asked of one stream or query. Its name may be an IRI: percent-encoded, that is one segment of the
    path. As it is, it may be several; then only a last one of `close`, `windows` and so on is not its own."""

    def __init__(self, prefix: str, handlers: Mapping[str, Mapping[str, Handler]]) -> None:
        self._prefix, self._handlers = prefix, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        what = take_name(request, self._prefix, self._handlers)
        methods = self._handlers[what]
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = ", ".join(methods)
            raise HTTPException(405, headers={"Allow": allowed})
        await (await handler(request))(scope, receive, send)


def take_name(request: HTTPConnection, prefix: str, known: Collection[str]) -> str:
    """Put the name that a path has into its parameters; return what is asked of it, "" for itself."""
    path: bytes = request.scope["raw_path"]
    segments = path.decode("latin-1").removeprefix(prefix).split("/")
    is_asked = len(segments) > 1 and segments[-1] != "" and segments[-1] in known  # a name may end with a slash
    what = segments.pop() if is_asked else ""
    request.path_params["name"] = unquote("/".join(segments))
    return what


async def _live(socket: WebSocket) -> None:
    if take_name(socket, "/queries/", _OF_QUERY) == "windows":
        await queries.live(socket)
    else:
        await socket.close(1008, "expected /queries/{name}/windows")


def _across(origins: tuple[str, ...]) -> Iterable[Middleware]:
    if not origins:
        return ()
    names = ("Authorization", "Content-Type", "Content-Encoding", "Last-Event-ID")
    methods = ("GET", "POST", "PUT", "DELETE")
    shown = (SNAPSHOT, WARNING, REQUEST_ID, queries.WINDOW, "Location")
    return (
        Middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=names, expose_headers=shown
        ),
    )


class _Packed(GZipMiddleware):
    """Packs answers for whoever takes gzip; streams of events go as they are."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, _GZIP_MIN_BYTES, _GZIP_LEVEL)
        self._plain = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        takes = scope["type"] == "http" and takes_gzip(HTTPConnection(scope).headers.get("accept-encoding", ""))
        await (super().__call__ if takes else self._plain)(scope, receive, send)


class _Door:
    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app, self._doors = app, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        connection.state.stranger = partial(self._stranger, connection)
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

    def _refused(self, request: HTTPConnection) -> Refused | None:
        doors, host = self._doors, request.headers.get("host", "")
        if doors.hosts is not None and _name_of(host) not in doors.hosts:
            return Refused(421, f"Host {host!r}: this server is {' or '.join(sorted(doors.hosts))}")
        origin = request.headers.get("origin")
        if origin is not None and not ({origin, "*"} & {*doors.origins} or _host_of(origin) == host):
            return Refused(
                403, f"a page of {origin} may not ask this server: allow it by name (--cors), if it is to be"
            )
        path = request.scope["path"]
        is_open = path in _OPEN_PATHS or path.startswith(pages.PREFIX)
        return None if is_open else self._stranger(request)

    def _stranger(self, request: HTTPConnection) -> Refused | None:
        """Return why a request names no token that is known, None if it does, or need not."""
        admits = self._doors.admits
        if admits is None or admits(_token_of(request)):
            return None
        told = "Authorization: expected Bearer and a token that this server knows, or Basic with it as the password"
        return Refused(401, told, {"WWW-Authenticate": 'Bearer, Basic realm="wukongs"'})


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


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


# --- health -----------------------------------------------------------------------------------------------------------


async def _healthz(request: Request) -> Response:
    return Response("ok\n", media_type="text/plain")


async def _openapi(request: Request) -> Response:
    return JSONResponse(described(str(request.base_url).rstrip("/")))


async def _stats(request: Request) -> Response:
    """Answer with the counts of the engine; with `only`, which may be given several times, with these parts of them."""
    face, wished = face_of(request), query_fields(request).getlist("only")
    found = await face.workers.do(request, face.engine.stats)
    return JSONResponse({name: value for name, value in found.items() if not wished or name in wished})


async def _metrics(request: Request) -> Response:
    face = face_of(request)
    body, content_type = await face.workers.do(request, lambda: face.metrics.written(request))
    return Response(body, media_type=content_type)


async def _readyz(request: Request) -> Response:
    """Tell whether the engine answers: a query is asked."""
    face = face_of(request)
    result = await asyncio.to_thread(face.engine.query, "ASK {}", timeout_s=5)  # not behind what others ask
    return Response(json.dumps({"snapshot": result.snapshot}) + "\n", media_type="application/json")


# --- errors -----------------------------------------------------------------------------------------------------------


async def _problem(request: Request, error: Exception) -> Response:
    return problem(request, error)


async def _http_problem(request: Request, error: Any) -> Response:
    """Answer a path or method that is not there."""
    told: str = error.detail
    if error.status_code == 404:
        told = f"there is no {request.url.path} here: see /sparql, /store, /streams, /queries, /stats"
    if error.status_code == 405:
        told = f"{request.method} {request.url.path}: expected {(error.headers or {}).get('Allow', 'another method')}"
    return problem(request, Refused(error.status_code, told, error.headers))


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)
