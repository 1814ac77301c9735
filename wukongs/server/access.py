"""Access: each HTTP request has a name, which its answer tells, and a line of the log when it has been answered.

An error that nothing has named is answered here, outside of all else, so that its answer has the name of the request,
too; the log has its trace under that name. One behind the beginning of an answer cuts that.

The line has no parameters of the address, in which a query or a token may stand.
"""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wukongs.live.tracing import LISTENING, Requested
from wukongs.server.requests import log_failure, problem

log = logging.getLogger("wukongs.access")
REQUEST_ID = "X-Request-Id"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Named:
    """Names requests, as their clients do in X-Request-Id, or at random."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        name = given if _ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = name
        began_s, status = time.perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.accept"):
                status = message.get("status", 101)
                MutableHeaders(scope=message)[REQUEST_ID] = name
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if status or scope["type"] != "http":
                log_failure(HTTPConnection(scope), error)
                raise
            await problem(Request(scope, receive), error)(scope, receive, noting)
        finally:
            if LISTENING.to is not None:
                headers, method = dict(Headers(scope=scope)), scope.get("method", "WEBSOCKET")
                now_s = time.perf_counter()
                told_of = Requested(name, method, scope["path"], status or 500, headers, began_s, now_s)
                LISTENING.to.requested(told_of)
            if log.isEnabledFor(logging.INFO):
                method = scope.get("method", "WEBSOCKET")
                path = scope.get("raw_path", b"").decode("latin-1") or scope["path"]  # no line ends in it
                told = {"request": name, "method": method, "path": path, "status": status or 500}
                told |= {"client": (scope.get("client") or ("",))[0]}
                told["ms"] = round((time.perf_counter() - began_s) * 1000, 1)
                log.info("%s %s %d", method, path, told["status"], extra=told)
