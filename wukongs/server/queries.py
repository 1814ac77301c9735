"""Registered queries over HTTP, with their windows or, of live views, their reports: by server-sent events, WebSocket
or long poll.

Every subscriber gets all windows of a query. Each has the end of the window as its id, so one who comes back names the
last id that it has (Last-Event-ID, or `after`) and goes on behind it. With `changes` a window is told as the rows that
have come and gone since the one before. A report of a live view has the id of its place (view_feeds.py).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from wukongs.engine import Engine
from wukongs.errors import StreamError, WukongsError
from wukongs.live.backend import RegisteredQuery, query_from
from wukongs.live.query_group import bindings_text
from wukongs.live.query_source import QuerySource
from wukongs.live.views.live_view import LiveView, is_view
from wukongs.live.views.options import ViewOptions
from wukongs.live.views.view_log import Position
from wukongs.query.output.report_text import report_facts
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.output.view_report import ViewReport
from wukongs.server.events import Event
from wukongs.server.face import Face, face_of
from wukongs.server.feeds import Feed
from wukongs.server.media import ARROW, Media, base_type, choose
from wukongs.server.pace import Pace
from wukongs.server.requests import (
    Fields,
    Refused,
    body_of,
    checked,
    details_of,
    form_of,
    integer,
    integer_of,
    json_of,
    one_of,
    query_fields,
    seconds_of,
    text_of,
)
from wukongs.server.sparql import answer, wished_of
from wukongs.server.view_feeds import ReportId, ViewFeed

EVENTS = Media("events", ("text/event-stream",), "")
POLL = Media("json", ("application/json",), "")
WINDOW = "Wukongs-Window"
"""The header with the end of the window that is answered as Arrow."""
REPORT = "Wukongs-Report"
"""The header with the id of the report that is answered as Arrow, or behind a content: the `after` of what follows."""
ALIVE_S = 15.0
"""A stream of events says so often that it is alive, if nothing else is to be said."""
RETRY_MS = 1000
POLL_S, POLL_MAX_S = 20.0, 300.0
WINDOWS_MAX = 1000
"""Windows in one answer of a long poll, at most."""
SUBPROTOCOL = "wukongs"
"""The subprotocol of sockets, for pages of browsers: they can give a token only as another one beside it (app.py)."""
_TEXTS = ("application/sparql-query", "text/plain", "application/x-csparql")
OPTIONS: Mapping[str, tuple[type[Any], str]] = {
    "base": (str, "an IRI"),
    "output": (str, '"rstream", "istream" or "dstream"'),
    "unread_bytes_max": (int, "bytes"),
    "unread": (str, '"drop" or "end"'),
    "bindings": (list, "a list of objects: variable -> term as N-Triples write it"),
    "graphs": (list, "a list of IRIs: the graphs and streams that the query may read"),
    "snapshot": (bool, "of a live view: whether its readers begin with the whole content"),
    "every_ms": (int, "of a live view: milliseconds that each report covers"),
    "keep": (bool, "of a live view: whether its content is kept in memory"),
    "into": (str, "of a live view: the IRI of the stream that gets the triples of its CONSTRUCT"),
}
_VIEW_OPTIONS = ("snapshot", "every_ms", "keep", "into")
AnyFeed = Feed | ViewFeed


# --- queries ----------------------------------------------------------------------------------------------------------


async def queries(request: Request) -> Response:
    """Answer GET /queries with all registered queries, with `brief` without texts and warnings, for which the data are
    looked through. POST /queries registers one, or finds it registered with the same text."""
    face = face_of(request)
    if request.method in ("GET", "HEAD"):
        told_of = _named_only if "brief" in query_fields(request) else _described
        return JSONResponse(await face.workers.do(request, lambda: [told_of(one) for one in face.engine.queries()]))
    text, options = await _text_of(request, face, (*OPTIONS,))
    query, is_new = await face.workers.do(request, partial(_register, face.engine, text, options))
    told = {"readers": 0}
    if not hasattr(query, "node") and not isinstance(query, LiveView):
        told["readers"] = face.feeds.of(query, is_owner=is_new, is_new=is_new).subscribers.count
    told |= await face.workers.do(request, partial(_described, query))
    place = f"{request.base_url}queries/{quote(query.name, '')}"
    return JSONResponse(told, 201 if is_new else 200, headers={"Location": place})


def _register(engine: Engine, text: str, options: Mapping[str, Any]) -> tuple[RegisteredQuery, bool]:
    """Return a query, and whether it is new: a client that crashed, or another one, goes on with one of the same text.
    Raises as Engine.register; Refused (a query into a stored graph)."""
    into = options.get("into")
    if into is not None and into not in engine.streams():
        raise Refused(
            400,
            f"into = {into!r}: there is no such stream. Into a stored graph a query is a rule: add the "
            "rule by `wukongs rules add`, or by add_rules of an engine or a client",
        )
    try:
        return engine.register(text, **options), True
    except StreamError:
        bindings = options.get("bindings")
        told = {**options, "text": text, "bindings": None if bindings is None else bindings_text(bindings)}
        of_view = {name: told.pop(name) for name in _VIEW_OPTIONS if name in told}
        told["only"] = engine._registering_for(options.get("graphs"))._only
        found = query_from(engine.queries(), QuerySource.of(told))
        if found is None or (isinstance(found, LiveView) and not found.has_options(ViewOptions(**of_view))):
            raise
        return found, False


async def query(request: Request) -> Response:
    """Answer GET with a query and its counts, PUT replaces its text, DELETE closes it."""
    face = face_of(request)
    found = await _named(request, face)
    match request.method:
        case "PUT":
            text, options = await _text_of(request, face, ("base", "output"))
            await face.workers.do(request, partial(face.engine._replace, found, text, **options))
        case "DELETE":
            await face.workers.do(request, found.close)
            return Response(status_code=204)
    told = await face.workers.do(request, lambda: {**_described(found), "stats": found.stats()})
    return JSONResponse(told)


async def bind(request: Request) -> Response:
    """Bind the arguments of the body to a live view; answer with their numbers."""
    view = await _view(request, face := face_of(request))
    table = checked("the body", await json_of(request, face.bounds.body_bytes_max), list, "a list of objects")
    numbers = await face.workers.do(request, partial(view.bind, table))
    return JSONResponse({"numbers": numbers.tolist()})


async def unbind(request: Request) -> Response:
    """Unbind the arguments of the body: their numbers, or their terms."""
    view = await _view(request, face := face_of(request))
    told = "a list of numbers, or of objects"
    table = checked("the body", await json_of(request, face.bounds.body_bytes_max), list, told)
    numbers = await face.workers.do(request, partial(view.unbind, table))
    return JSONResponse({"numbers": numbers.tolist()})


async def pause(request: Request) -> Response:
    found = await _named(request, face := face_of(request))
    await face.workers.do(request, found.pause)
    return Response(status_code=204)


async def resume(request: Request) -> Response:
    found = await _named(request, face := face_of(request))
    await face.workers.do(request, found.resume)
    return Response(status_code=204)


async def why(request: Request) -> Response:
    """Answer with what a query waits for, and what empties it: in words, a fact a line."""
    found = await _named(request, face := face_of(request))
    return PlainTextResponse(await face.workers.do(request, found.why) + "\n")


async def explain(request: Request) -> Response:
    """Answer with the plan of a query; with `analyze` also with what its last firing has done."""
    found = await _named(request, face := face_of(request))
    analyze = "analyze" in query_fields(request)
    return PlainTextResponse(await face.workers.do(request, partial(found.explain, analyze=analyze)) + "\n")


def _described(query: RegisteredQuery) -> dict[str, Any]:
    text = {"text": query.source.text, "is_stream": query.is_stream}
    return {**_named_only(query), **text, "warnings": list(query.warnings())}


def _named_only(query: RegisteredQuery) -> dict[str, Any]:
    known = {name: value for name in ("is_paused", "node") if (value := getattr(query, name, None)) is not None}
    return {"name": query.name, "is_view": is_view(query), **known}


async def _named(request: HTTPConnection, face: Face) -> RegisteredQuery:
    """Return the query that the path names. Raises Refused (there is none)."""
    name = request.path_params["name"]
    found = await asyncio.to_thread(face.engine.queries)
    query = next((one for one in found if one.name == name), None)
    if query is None:
        known = ", ".join(one.name for one in found[:20]) or "none"
        raise Refused(404, f"there is no query named {name}. Registered: {known}{', ...' if len(found) > 20 else ''}")
    return query


async def _view(request: HTTPConnection, face: Face) -> LiveView:
    """Return the live view that the path names, to read it or change its arguments; of another node of the cluster,
    what has its methods for the latter. Raises Refused (there is none)."""
    query = await _named(request, face)
    if not is_view(query):
        raise Refused(409, f"query {query.name} has windows: ask for /queries/{query.name}/windows")
    return cast("LiveView", query)


async def _view_feed_of(request: HTTPConnection, face: Face) -> ViewFeed:
    """Return the feed of the live view that the path names. Raises Refused (there is none; it stands at another node of
    the cluster, and there is no way to that), NodeUnavailable."""
    query: Any = await _named(request, face)
    if not is_view(query) or isinstance(query, LiveView):
        return await face.feeds.of_view(await _view(request, face))
    if not face.feeds.has_others:
        raise Refused(
            421, f"view {query.name} stands at node {query.node}, which has its reports: ask that node for them"
        )
    return await face.feeds.relayed_view(query)


async def _feed_of(request: HTTPConnection, face: Face, *, of_view: bool) -> AnyFeed:
    """Return the feed of the query that the path names. Raises Refused (there is none; another node of the cluster runs
    it, and there is no way to that), NodeUnavailable."""
    if of_view:
        return await _view_feed_of(request, face)
    query = await _named(request, face)
    if is_view(query):
        raise Refused(409, f"query {query.name} is a live view, without windows: ask for /queries/{query.name}/changes")
    node = getattr(query, "node", None)
    if node is None:
        return face.feeds.of(query)
    if not face.feeds.has_others:
        raise Refused(421, f"query {query.name} runs at node {node}, which has its windows: ask that node for them")
    return await face.feeds.relayed(query)


async def _text_of(request: Request, face: Face, options: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the text of a query and what is given beside it. Raises Refused."""
    bytes_max = face.bounds.body_bytes_max
    content_type = request.headers.get("content-type", "")
    match base_type(content_type):
        case "application/json":
            told = checked("the body", await json_of(request, bytes_max), dict, "an object with text, and options")
            unknown = sorted(told.keys() - {"text", *options})
            if unknown:
                raise Refused(400, f"{unknown[0]}: expected text and {', '.join(options)}")
            given = {name: checked(name, told[name], *OPTIONS[name]) for name in options if told.get(name) is not None}
            return checked("text", told.get("text"), str, "the text of a query"), given
        case "application/x-www-form-urlencoded":
            form = await form_of(request, bytes_max)
            text = one_of(form, "query")
            if text is None:
                raise Refused(400, "a form without query: expected the text of a query in it")
            return text, {name: value for name in ("base", "output") if (value := one_of(form, name)) is not None}
        case kind if kind in _TEXTS or not content_type:
            fields = query_fields(request)
            text = await text_of(request, bytes_max)
            return text, {name: value for name in ("base", "output") if (value := one_of(fields, name)) is not None}
    await body_of(request, bytes_max)
    raise Refused(415, f"Content-Type {content_type!r}: expected {_TEXTS[0]} or application/json")


# --- windows ----------------------------------------------------------------------------------------------------------


class Wish(NamedTuple):
    """The wishes of a subscriber.

    after: the id of the last window or report that it has; None: it has none.
    changes: it wants what has changed since the window before.
    goes_on: it knows the window before the first one.
    rows_max: the most rows of a window or report that it wants; None: all.
    progress: it wants to know up to which SN nothing has changed.
    stranger: returns why it may not read any more, if so."""

    after: Any
    changes: bool
    progress: bool
    goes_on: bool
    arrow: bool
    rows_max: int | None
    stranger: Callable[[], Refused | None]

    def events(self, feed: AnyFeed, timeout_s: float | None = None) -> AsyncGenerator[Event[Any] | None, None]:
        """Iterate over its events of a feed, as the feed's `events` does."""
        if isinstance(feed, ViewFeed):
            return feed.events(self.after, self.stranger, timeout_s, progress=self.progress)
        return feed.events(self.after, self.stranger, timeout_s)


async def windows(request: Request) -> Response:
    """Answer with the windows of a query: as events, or those that have come, once some have."""
    return await _events(request, of_view=False)


async def changes(request: Request) -> Response:
    """Answer with the reports of a live view, in the same ways."""
    return await _events(request, of_view=True)


async def content(request: Request) -> Response:
    """Answer with the whole content of a live view, as with the result of a query."""
    face, fields = face_of(request), query_fields(request)
    feed, at = await _view_feed_of(request, face), integer_of(fields, "at")
    view = feed.query
    timeout_s, place, began_s = face.bounds.timeout_s(seconds_of(fields)), feed.newest, time.monotonic()

    def find() -> tuple[Result, Position | None]:
        if at is None:
            return view.content_with_position(timeout_s=timeout_s)
        return view.content(at, timeout_s=timeout_s), None

    found, position = await face.workers.do(request, find, may_cancel=True)
    response = await answer(request, face, found, timeout_s, wished_of(fields), (), time.monotonic() - began_s)
    if position is not None:
        response.headers[REPORT] = str(place._replace(sn=position.sn, minor=position.minor))
    return response


async def _events(request: Request, *, of_view: bool) -> Response:
    face, fields, accept = face_of(request), query_fields(request), request.headers.get("accept")
    wants_events = EVENTS.types[0] in (accept or "")  # else */* would be endless
    media = choose(accept, (EVENTS, POLL, ARROW) if wants_events else (POLL, ARROW))
    if media is None:
        raise Refused(406, f"Accept: {accept}: expected {EVENTS.types[0]}, {POLL.types[0]} or {ARROW.types[0]}")
    feed = await _feed_of(request, face, of_view=of_view)
    wish = await _wish(request, feed)
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"} if media is EVENTS else {}
    if request.method == "HEAD":  # it has no body, so nothing is waited for
        answer = Response(headers=headers, media_type=media.types[0])
        del answer.headers["content-length"]
        return answer
    if media is EVENTS:
        parts = _server_sent(feed, wish, face.feeds.pace)
        return StreamingResponse(parts, headers=headers, media_type=EVENTS.types[0])
    timeout_s = min(POLL_S if (given_s := seconds_of(fields)) is None else given_s, POLL_MAX_S)
    if media is ARROW:
        return await _one_as_arrow(face, request, feed, wish, timeout_s)
    found = await _polled(feed, wish, timeout_s, WINDOWS_MAX)
    telling = Telling(wish)
    told = b",\n".join([await telling.message(event) for event in found])
    last = found[-1].id if found else wish.after
    is_over = feed.is_ended and not (feed.is_cut or found)
    shown = last if last is None or isinstance(last, int) else str(last)
    head = json.dumps({"after": shown, "ended": is_over}).encode()
    return Response(head[:-1] + b', "events": [' + told + b"]}\n", media_type="application/json")


async def _wish(request: HTTPConnection, feed: AnyFeed) -> Wish:
    fields = query_fields(request)
    named, after = request.headers.get("last-event-id"), None
    given = named or one_of(fields, "after")
    if given == "now":
        after = await feed.newest_by_now()
    elif given is not None:
        read = ReportId.read if isinstance(feed, ViewFeed) else integer
        after = read("Last-Event-ID" if named else "parameter after", given)
    changes = _is_on(fields, "changes")
    if changes and isinstance(feed, Feed):
        feed.wants_changes = True
    rows_max = integer_of(fields, "rows_max")
    if rows_max is not None and rows_max < 1:
        raise Refused(400, f"parameter rows_max = {rows_max}: expected at least 1")
    is_arrow = one_of(fields, "format") == ARROW.name
    progress, goes_on = _is_on(fields, "progress"), given not in (None, "now")
    return Wish(after, changes, progress, goes_on, is_arrow, rows_max, request.state.stranger)


def _is_on(fields: Fields, name: str) -> bool:
    return name in fields and one_of(fields, name) not in ("false", "0")


async def _server_sent(feed: AnyFeed, wish: Wish, pace: Pace) -> AsyncIterator[bytes | memoryview]:
    yield f"retry: {RETRY_MS}\n\n".encode()
    telling = Telling(wish)
    try:
        async for event in wish.events(feed, ALIVE_S):
            if event is None:
                yield b": \n\n"
                continue
            async for part in pace.parts((await telling.of(event)).sent):
                yield part
    except Refused as refused:
        yield f"event: error\ndata: {json.dumps(details_of(refused))}\n\n".encode()
        return
    if not feed.is_cut:  # else whoever reads it is to come again
        yield b"event: end\ndata: {}\n\n"


class Telling:
    """Tells a subscriber of events: windows or their first rows, or, once it has one, the changes since."""

    def __init__(self, wish: Wish) -> None:
        self._changes, self._has_before, self._rows_max = wish.changes, wish.goes_on, wish.rows_max

    async def of(self, event: Event[Any]) -> Event[Any]:
        """Return what is told: the event itself, with its first rows, or the changes."""
        is_change = self._changes and self._has_before and event.changes is not None
        if event.kind != "error":  # what comes behind a gap has nothing before it
            self._has_before = event.kind == "window"
        if is_change and event.changes is not None:
            return event.changes
        result, rows_max = event.result, self._rows_max
        if result is None or rows_max is None or len(result) <= rows_max:
            return event
        made = await event.made(("first rows", rows_max), partial(event.first_rows, rows_max))
        assert isinstance(made, Event)
        return made

    async def message(self, event: Event[Any]) -> bytes:
        """Return an event as a JSON object."""
        return _message_text(await self.of(event)).encode()

    async def text(self, event: Event[Any]) -> str:
        """Return the same as text, which all subscribers share."""
        told = await self.of(event)
        made = await told.made("text", partial(_message_text, told))
        assert isinstance(made, str)
        return made


def _message_text(event: Event[Any]) -> str:
    return f'{{"event": "{event.kind}", "id": {event.json_id}, "data": {event.text.decode()}}}'


async def _polled(feed: AnyFeed, wish: Wish, timeout_s: float, count_max: int) -> list[Event[Any]]:
    """Return the events that have come, once there is one; none if timeout_s passes without."""
    found = list[Event[Any]]()
    events = wish.events(feed, timeout_s)
    try:
        async for event in events:
            if event is None:
                break
            found.append(event)
            if len(found) >= count_max or feed.newest is None or event.id >= feed.newest or event.kind == "error":
                break
    finally:
        await events.aclose()
    return found


async def _one_as_arrow(face: Face, request: Request, feed: AnyFeed, wish: Wish, timeout_s: float) -> Response:
    found = await _polled(feed, wish, timeout_s, 1)
    if not found:
        return Response(status_code=204)
    event = found[0]
    name = REPORT if isinstance(feed, ViewFeed) else WINDOW
    if event.result is None:
        status = 200 if event.kind == "progress" else 410
        return Response(event.text, status, {name: str(event.id)}, media_type="application/problem+json")
    body = await event.made("arrow", partial(arrow_bytes, event.result))
    return Response(body, headers={name: str(event.id)}, media_type=ARROW.types[0])


def arrow_bytes(result: WindowResult | ViewReport) -> bytes:
    """Return a window or report as an Arrow IPC stream; its metadata say which one it is."""
    import pyarrow

    table = result.arrow()
    if isinstance(result, ViewReport):
        facts, name = {**report_facts(result), "is_reset": result.is_reset}, "wukongs.report"
    else:
        names, name = ("query", "start_ms", "end_ms", "partial", "snapshot"), "wukongs.window"
        facts = {one: getattr(result, one) for one in names}
    table = table.replace_schema_metadata({name: json.dumps({**facts, "kind": result.kind})})
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


async def live(socket: WebSocket, *, of_view: bool) -> None:
    """Send the windows of a query, or the reports of a view, over a WebSocket: JSON in texts; or with format=arrow each
    of them in a binary message, and other events in a text."""
    face, spoken = face_of(socket), next((one for one in socket.scope["subprotocols"] if one == SUBPROTOCOL), None)
    try:
        feed = await _feed_of(socket, face, of_view=of_view)
        wish = await _wish(socket, feed)
    except (Refused, WukongsError) as error:
        await socket.accept(spoken)
        await _refuse(socket, error)
        return
    await socket.accept(spoken)
    sending = asyncio.ensure_future(_send(socket, feed, wish, face.feeds.pace))
    leaving = asyncio.ensure_future(_until_left(socket))
    await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    for one in (sending, leaving):
        one.cancel()
    await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send(socket: WebSocket, feed: AnyFeed, wish: Wish, pace: Pace) -> None:
    telling = Telling(wish)
    try:
        async for event in wish.events(feed):
            assert event is not None, "no time passes"
            if wish.arrow and event.result is not None:
                table = await event.made("arrow", partial(arrow_bytes, event.result))
                await pace.take(len(table))
                await socket.send_bytes(table)
            else:
                text = await telling.text(event)
                await pace.take(len(text))
                await socket.send_text(text)
    except Refused as refused:
        await _refuse(socket, refused)
        return
    await socket.close(*((1001, "the server ends") if feed.is_cut else (1000, "the query has ended")))


async def _refuse(socket: WebSocket, error: Refused | WukongsError) -> None:
    await socket.send_text(json.dumps({"event": "refused", "data": details_of(error)}))
    await socket.close(1008, str(error).encode()[:120].decode("utf-8", "ignore"))


async def _until_left(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive_text()
    except (WebSocketDisconnect, KeyError):
        return
