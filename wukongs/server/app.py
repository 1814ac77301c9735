"""The web application: which path is answered by what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

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
from wukongs.server.doors import Door, Doors
from wukongs.server.face import Face, face_of, grant_of
from wukongs.server.graph_store import store
from wukongs.server.media import takes_gzip
from wukongs.server.openapi import CALLS, described
from wukongs.server.requests import SNAPSHOT, ClientGone, Refused, problem, query_fields
from wukongs.server.sparql import WARNING, sparql

_GZIP_MIN_BYTES, _GZIP_LEVEL = 1024, 4


def make_app(face: Face, doors: Doors) -> Starlette:
    app = Starlette(
        routes=[
            Route("/", pages.page),
            Route(f"{pages.PREFIX}{{rest:path}}", pages.file),
            _route("/sparql", sparql),
            _route("/store", store),
            _route("/streams", streams.streams),
            Route("/streams/{rest:path}", _Named("/streams/", _OF_STREAM), methods=_METHODS),
            _route("/queries", queries.queries),
            Route("/queries/{rest:path}", _Named("/queries/", _OF_QUERY), methods=_METHODS),
            WebSocketRoute("/queries/{rest:path}", _live),
            _route("/stats", _stats),
            _route("/metrics", _metrics),
            _route("/openapi.json", _openapi),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz),
        ],
        middleware=[
            Middleware(Named),
            Middleware(face.metrics.counting),
            *_across(doors.origins),
            Middleware(Door, doors=doors),
            Middleware(_Packed),
        ],
        exception_handlers={
            Refused: _problem,
            WukongsError: _problem,
            MemoryError: _problem,
            ClientGone: _nobody,
            ClientDisconnect: _nobody,
            HTTPException: _http_problem,
        },
    )
    app.state.face = face
    return app


# --- who may ask what -------------------------------------------------------------------------------------------------

Handler = Callable[[Request], Awaitable[Response]]
_METHODS = ("GET", "PUT", "POST", "DELETE")
ROLE = "Wukongs-Role"
"""The header of an answer with the role of its request's token; the console offers what that may do."""


class _For:
    """Answers requests of those who may make the call (grants.ROLES) that a method of a path stands for, as CALLS says.
    An update to /sparql and the declaration of another stream need more, which is known once their bodies are read."""

    def __init__(self, handler: Handler, path: str) -> None:
        self._handler = handler
        self._calls = {method.upper(): call.call or "" for method, call in CALLS[path].items()}
        self.methods = tuple(self._calls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        grant_of(request).check(self._calls["GET" if request.method == "HEAD" else request.method])
        response = await self._handler(request)
        response.headers[ROLE] = grant_of(request).role.word
        await response(scope, receive, send)


def _route(path: str, handler: Handler) -> Route:
    answering = _For(handler, path)
    return Route(path, answering, methods=answering.methods)


# --- paths with names -------------------------------------------------------------------------------------------------

_OF_STREAM: Mapping[str, _For] = {
    "": _For(streams.stream, "/streams/{name}"),
    "close": _For(streams.end, "/streams/{name}/close"),
}
_OF_QUERY: Mapping[str, _For] = {
    "": _For(queries.query, "/queries/{name}"),
    "windows": _For(queries.windows, "/queries/{name}/windows"),
    "why": _For(queries.why, "/queries/{name}/why"),
    "explain": _For(queries.explain, "/queries/{name}/explain"),
    "pause": _For(queries.pause, "/queries/{name}/pause"),
    "resume": _For(queries.resume, "/queries/{name}/resume"),
    "changes": _For(queries.changes, "/queries/{name}/changes"),
    "content": _For(queries.content, "/queries/{name}/content"),
    "bind": _For(queries.bind, "/queries/{name}/bind"),
    "unbind": _For(queries.unbind, "/queries/{name}/unbind"),
}


class _Named:
    """Answers what is asked of one stream or query. Its name may be an IRI: percent-encoded, that is one segment of the
    path. As it is, it may be several; then only a last one of `close`, `windows` and so on is not its own."""

    def __init__(self, prefix: str, handlers: Mapping[str, _For]) -> None:
        self._prefix, self._handlers = prefix, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        what = take_name(request, self._prefix, self._handlers)
        asked = self._handlers[what]
        if ("GET" if request.method == "HEAD" else request.method) not in asked.methods:
            raise HTTPException(405, headers={"Allow": ", ".join(asked.methods)})
        await asked(scope, receive, send)


def take_name(request: HTTPConnection, prefix: str, known: Collection[str]) -> str:
    """Put the name that a path has into its parameters; return what is asked of it, "" for itself."""
    path: bytes = request.scope["raw_path"]
    segments = path.decode("latin-1").removeprefix(prefix).split("/")
    is_asked = len(segments) > 1 and segments[-1] != "" and segments[-1] in known  # a name may end with a slash
    what = segments.pop() if is_asked else ""
    request.path_params["name"] = unquote("/".join(segments))
    return what


async def _live(socket: WebSocket) -> None:
    asked = take_name(socket, "/queries/", _OF_QUERY)
    if asked in ("windows", "changes"):  # which every role may follow
        await queries.live(socket, of_view=asked == "changes")
    else:
        await socket.close(1008, "expected /queries/{name}/windows, or /changes of a live view")


def _across(origins: tuple[str, ...]) -> Iterable[Middleware]:
    if not origins:
        return ()
    names = ("Authorization", "Content-Type", "Content-Encoding", "Last-Event-ID", SNAPSHOT)
    methods = ("GET", "POST", "PUT", "DELETE")
    shown = (SNAPSHOT, WARNING, REQUEST_ID, ROLE, queries.WINDOW, queries.REPORT, "Location")
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
