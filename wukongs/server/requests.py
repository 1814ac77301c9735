"""Requests: their parameters and bodies, the threads that work for them, and the errors that they are answered with.

The event loop never calls the engine itself: what may take long is done by `Workers`, a bounded pool of threads, of
which each client has a bounded number. A query whose client disconnects is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send

from wukongs.consistency import LATEST, LOCAL, Consistency, reading_from
from wukongs.errors import (
    AccessError,
    BudgetExceeded,
    CompactedError,
    NodeUnavailable,
    QueryKilled,
    QueryTimeout,
    ServiceError,
    StorageError,
    StreamError,
    UpdateError,
    WukongsError,
)
from wukongs.query.limits import Canceller, limits_of, named_lack_of_memory, scheduled, watched
from wukongs.query.memory import STEP_BYTES, Reservation
from wukongs.server.media import is_utf8
from wukongs.settings import Settings
from wukongs.store.encoded import NOT_UTF8

log = logging.getLogger("wukongs")
SNAPSHOT = "Wukongs-Snapshot"
"""The header of an answer with the SN that a query has read, or that an update has made. A client that sends it back
reads nothing older, at whatever node."""
Answer = TypeVar("Answer")

_STATUS: Mapping[type[BaseException], int] = {
    AccessError: 403,
    UpdateError: 409,
    StreamError: 409,
    CompactedError: 410,
    BudgetExceeded: 422,
    QueryTimeout: 503,
    QueryKilled: 503,
    NodeUnavailable: 503,
    ServiceError: 502,
    StorageError: 507,
}
"""Errors of the engine that are not 400, the status of what is wrong in the request itself."""
PAUSE_S, SLOWEST_BYTES_PER_S = 20.0, 1024
"""A body may pause for so long, and may not be slower than this."""
LIGHT_BYTES = 1 << 16
"""A longer text is not read in the event loop."""
PART_BYTES = 1 << 16
"""An answer is written in parts of this size, or a little more."""
TAKEN_S = 60.0
"""A client takes a part within this time, or its answer is cut: until then its result is held."""
_PLACE = ("line", "column", "expected", "found", "suggestion", "excerpt", "feature", "advice", "file")
"""Fields of errors that say where, and what was expected."""
Fields: TypeAlias = ImmutableMultiDict[str, str]
Client: TypeAlias = tuple[str, str, str]
"""A client, for its bounds: address, page and token, as Door.client_of has them."""


class Refused(Exception):
    """A request that is answered with an error. headers: of the answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


# --- errors -----------------------------------------------------------------------------------------------------------


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, MemoryError):
        return 503
    if not isinstance(error, WukongsError):
        return 500
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)


def details_of(error: BaseException) -> dict[str, Any]:
    """Return what is wrong, as the JSON of RFC 9457; errors of the engine have their fields beside it."""
    status, is_ours = status_of(error), isinstance(error, Refused | WukongsError)
    title = type(error).__name__ if isinstance(error, WukongsError) else "Refused" if is_ours else "Error"
    message = str(error) if is_ours else "the server has failed in this request: its log says how, under the request id"
    told: dict[str, Any] = {"title": title, "status": status, "detail": message}
    if isinstance(error, WukongsError):
        told |= {name: getattr(error, name) for name in _PLACE if getattr(error, name, None)}
        if error.outcome != WukongsError.outcome:
            told["outcome"] = error.outcome
    return told


def problem(request: Request, error: BaseException) -> Response:
    """Answer with an error: as JSON for whoever takes JSON by name, else as text with the place underlined."""
    told = details_of(error)
    if not isinstance(error, Refused | WukongsError):
        log_failure(request, error)
        told["request"] = request.state.request_id
        told["detail"] += f" {request.state.request_id}"
    headers = dict(getattr(error, "headers", None) or {})
    if told["status"] == 503:
        headers.setdefault("Retry-After", "1")
    if "json" in request.headers.get("accept", ""):
        return Response(json.dumps(told) + "\n", told["status"], headers=headers, media_type="application/problem+json")
    text = "\n".join(filter(None, (f"{told['title']}: {told['detail']}", told.get("excerpt")))) + "\n"
    return Response(text.encode(errors="replace"), told["status"], headers=headers, media_type="text/plain")


def log_failure(request: HTTPConnection, error: BaseException) -> None:
    """Log an error that nobody foresaw, or that has cut an answer: its trace, under the id of the request."""
    method, name = request.scope.get("method", "WEBSOCKET"), request.scope["state"].get("request_id")
    log.error("request %s: %s %s", name, method, request.url.path, exc_info=error, extra={"request": name})


# --- parameters and bodies --------------------------------------------------------------------------------------------


def one_of(fields: Fields, name: str) -> str | None:
    """Return a parameter that may be given once. Raises Refused."""
    found = fields.getlist(name)
    if len(found) > 1:
        raise Refused(400, f"parameter {name}: expected one value, found {len(found)}")
    return found[0] if found else None


def seconds_of(fields: Fields, name: str = "timeout") -> float | None:
    """Return a parameter in seconds. Raises Refused."""
    given = one_of(fields, name)
    if given is None:
        return None
    with suppress(ValueError):
        if 0 < float(given) < 1e9:
            return float(given)
    raise Refused(400, f"parameter {name} = {given!r}: expected seconds, as 2.5")


def consistency_of(fields: Fields) -> Consistency:
    """Return the rule for a read. Raises Refused."""
    given = one_of(fields, "consistency")
    if given is not None and given not in (LATEST, LOCAL):
        raise Refused(400, f"consistency={given}: expected {LATEST} or {LOCAL}")
    return LOCAL if given == LOCAL else LATEST


def integer_of(fields: Fields, name: str) -> int | None:
    """Return a parameter that is an integer. Raises Refused."""
    given = one_of(fields, name)
    return None if given is None else integer(f"parameter {name}", given)


def integer(name: str, given: str) -> int:
    """Return what is given for a parameter or header as an integer. Raises Refused."""
    with suppress(ValueError):
        if -(1 << 63) <= int(given) < 1 << 63:
            return int(given)
    raise Refused(400, f"{name} = {given!r}: expected an integer")


def query_fields(request: HTTPConnection) -> Fields:
    """Return the parameters of the address. Raises Refused (no UTF-8)."""
    return form_fields(request.scope["query_string"].decode("latin-1"))


def form_fields(text: str) -> Fields:
    """Return the fields of a form. Raises Refused (no UTF-8)."""
    return ImmutableMultiDict(_pairs(text))


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=1000)
    except UnicodeDecodeError as error:
        raise Refused(400, f"parameters: expected UTF-8, percent-encoded: {error}") from None
    except ValueError as error:
        raise Refused(400, f"parameters: {error}") from None


def _too_long(bytes_max: int) -> Refused:
    return Refused(413, f"the body is longer than {bytes_max} bytes: send less at a time")


async def chunks_of(request: Request, bytes_max: int) -> AsyncIterator[bytes]:
    """Iterate over the body, unpacked if it is gzip. Raises Refused (it is longer, packed or not; it is malformed)."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise Refused(415, f"Content-Encoding {encoding!r}: expected gzip or none", {"Accept-Encoding": "gzip"})
    unpacker = None if encoding == "identity" else _Unpacker()
    length, packed_length, began_s = 0, 0, time.monotonic()
    coming = request.stream()
    while True:
        try:
            packed = await asyncio.wait_for(anext(coming), PAUSE_S)
        except StopAsyncIteration:
            break
        except TimeoutError:
            packed = None
        packed_length += len(packed or b"")
        if packed_length > bytes_max:
            raise _too_long(bytes_max)
        if packed is None or time.monotonic() - began_s > PAUSE_S + packed_length / SLOWEST_BYTES_PER_S:
            raise Refused(408, "the body comes too slowly: send it again", {"Connection": "close"})
        parts = iter((packed,)) if unpacker is None else unpacker.unpack(packed)
        while (part := await _next_of(parts, is_long=unpacker is not None)) is not None:
            length += len(part)
            if length > bytes_max:
                raise _too_long(bytes_max)
            yield part
    if unpacker is not None:
        unpacker.end()


async def _next_of(parts: Iterator[bytes], *, is_long: bool) -> bytes | None:
    """Return the next part, None behind the last; in a thread if it takes long."""
    return await asyncio.to_thread(next, parts, None) if is_long else next(parts, None)


class _Unpacker:
    """Unpacks gzip, of one part or several behind each other (RFC 1952, 2.2). Raises Refused (it is malformed)."""

    def __init__(self) -> None:
        self._part = zlib.decompressobj(31)

    def unpack(self, packed: bytes) -> Iterator[bytes]:
        while packed:
            if self._part.eof:
                self._part = zlib.decompressobj(31)
            try:
                yield self._part.decompress(packed, 1 << 20)
            except zlib.error as error:
                raise Refused(400, f"the body is no gzip, as its Content-Encoding says: {error}") from None
            packed = self._part.unused_data if self._part.eof else self._part.unconsumed_tail

    def end(self) -> None:
        if not self._part.eof:
            raise Refused(400, "the body ends in the middle of its gzip data: send it again")


async def body_of(request: Request, bytes_max: int) -> bytes:
    """Return the whole body. Raises as chunks_of."""
    with suppress(ValueError):
        if int(request.headers.get("content-length", "0")) > bytes_max:
            raise _too_long(bytes_max)
    held: HeldBytes = request.app.state.face.held
    parts = list[bytes]()
    async for part in chunks_of(request, bytes_max):
        held.add(request, len(part))
        parts.append(part)
    return b"".join(parts)


class HeldBytes:
    """The bytes of all bodies that are held at one place: those of a request until it is answered."""

    def __init__(self, bytes_max: int, place: str, reservation: Reservation | None = None) -> None:
        """reservation: of these bytes, in the budget that they share with queries, if they are in memory."""
        self._bytes_max, self._place = bytes_max, place
        self._reservation = reservation
        self._held = 0

    def add(self, request: Request, size: int) -> None:
        """Raises Refused (there are too many)."""
        if self._held + size > self._bytes_max:
            raise Refused(503, f"the bodies of all requests take too much {self._place}: try again later")
        self._count(size)
        state = request.scope["state"]
        state[self] = state.get(self, 0) + size

    def release(self, request: HTTPConnection) -> None:
        """Note that a request is answered."""
        self._count(-request.scope["state"].pop(self, 0))

    def _count(self, change: int) -> None:
        self._held += change
        if self._reservation is not None:
            self._reservation.note(self._held // STEP_BYTES * STEP_BYTES)


async def text_of(request: Request, bytes_max: int) -> str:
    """Return the body as text. Raises as chunks_of; Refused (no UTF-8)."""
    if not is_utf8(content_type := request.headers.get("content-type", "")):
        raise Refused(415, f"Content-Type {content_type!r}: expected charset UTF-8")
    try:
        return await _light_or_apart(bytes.decode, await body_of(request, bytes_max))
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body, {not_utf8(error)}") from None


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return the line and the byte at which a body is not UTF-8."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"line {line}: {NOT_UTF8}: byte 0x{error.object[error.start]:02X}"


async def json_of(request: Request, bytes_max: int) -> Any:
    """Return the body as JSON. Raises as text_of; Refused (no JSON: line and column)."""
    try:
        return await _light_or_apart(loaded, await text_of(request, bytes_max))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from None


def loaded(text: str | bytes) -> Any:
    """Return what is told in JSON. Raises ValueError (none, or half of a surrogate pair in it), RecursionError."""
    told = json.loads(text)
    escape = "\\ud" if isinstance(text, str) else b"\\ud"
    if escape in text.lower():  # type: ignore[operator]
        json.dumps(told, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return told


async def _light_or_apart(function: Callable[[Any], Answer], given: Any) -> Answer:
    """Call a function, in a thread if what it is given is large."""
    return await asyncio.to_thread(function, given) if len(given) > LIGHT_BYTES else function(given)


async def form_of(request: Request, bytes_max: int) -> Fields:
    """Return the fields of a form that is the body. Raises as text_of."""
    return await _light_or_apart(form_fields, await text_of(request, bytes_max))


# --- work -------------------------------------------------------------------------------------------------------------


class Workers:
    """The threads that call the engine, one for each request that is under way. per_client_max, waiting_max: as in
    face.Bounds. The scheduler (query/scheduler.py) decides which of their queries run."""

    def __init__(self, per_client_max: int, waiting_max: int) -> None:
        self._pool = ThreadPoolExecutor(waiting_max, "wukongs-http")
        self._per_client_max, self._waiting_max = per_client_max, waiting_max
        self._busy: Counter[Client] = Counter()
        """The requests of each client that are under way."""
        self._cancellers: set[Canceller] = set()
        self._is_ending = False

    async def do(self, request: Request, work: Callable[[], Answer], *, may_cancel: bool = False) -> Answer:
        """Call a function in a thread; return what it returns. may_cancel: the body has been read; if the client goes,
        its queries are ended and ClientGone is raised. Raises what it raises; Refused (too much at once)."""
        client: Client = request.state.client
        if self._busy[client] >= self._per_client_max:
            raise Refused(429, f"{self._busy[client]} requests of this client run: wait for some", {"Retry-After": "1"})
        if self._busy.total() >= self._waiting_max:
            raise Refused(503, f"{self._busy.total()} requests run or wait: try again later")
        return await self._do(request, client, work, may_cancel=may_cancel)

    async def _do(
        self, request: Request, client: Client, work: Callable[[], Answer], *, may_cancel: bool = False
    ) -> Answer:
        """Do as `do`, for a client that may ask for more."""
        told = request.headers.get(SNAPSHOT)
        told_sn = None if told is None else integer(SNAPSHOT, told)
        if self._is_ending:
            raise Refused(503, "the server ends")
        canceller = Canceller(client)
        running = asyncio.wrap_future(self._pool.submit(_called_by, canceller, told_sn, work))
        self._busy[client] += 1
        self._cancellers.add(canceller)
        running.add_done_callback(lambda _: self._cancellers.discard(canceller))
        running.add_done_callback(lambda _: _count_down(self._busy, client))
        if not may_cancel:
            return await asyncio.shield(running)
        gone = asyncio.ensure_future(_until_gone(request))
        try:
            await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise ClientGone
            return running.result()
        except BaseException:
            if not running.done():
                canceller.cancel()
                running.add_done_callback(_heard)
            raise
        finally:
            gone.cancel()

    def cancel(self) -> None:
        """End the queries and updates that run, and begin no others. Called in the event loop."""
        self._is_ending = True
        for canceller in list(self._cancellers):
            canceller.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def stream(
        self, request: Request, chunks: Iterator[bytes], media_type: str, headers: Mapping[str, str]
    ) -> Response:
        """Answer with chunks, made in a thread as the client takes them: some at a time, the first ones at once. So an
        error in them is told, and an answer that is short goes in one piece. An answer that has begun counts as a
        request that runs, and its later parts are not refused."""
        some = partial(_some_of, chunks)
        first = await self.do(request, some)
        if len(first) < PART_BYTES:
            return Response(first, headers=dict(headers), media_type=media_type)

        client: Client = request.state.client

        async def body() -> AsyncGenerator[bytes]:
            part = first
            while part:
                self._busy[client] += 1
                try:
                    yield part
                finally:
                    _count_down(self._busy, client)
                part = await self._do(request, client, some)

        return _Parts(body(), headers=dict(headers), media_type=media_type)


class _Parts(StreamingResponse):
    """An answer in parts, which is cut if its client does not take them."""

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            await asyncio.wait_for(send(message), TAKEN_S)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            log.info("an answer is cut: its client has taken nothing of it for %g s", TAKEN_S)
        finally:
            await self.body_iterator.aclose()  # type: ignore[attr-defined]


def in_time(
    chunks: Iterable[bytes], settings: Settings, timeout_s: float | None, took_s: float = 0.0
) -> Iterator[bytes]:
    """Iterate over the chunks of an answer, made within the limits of its query. The time in which the client takes
    them does not count.

    timeout_s: of the query, as Engine.query has it; took_s: how much of it is over. Raises QueryTimeout, QueryKilled,
    BudgetExceeded."""
    limits = scheduled(limits_of(settings, timeout_s), took_s)
    limits.operator = "the writing of its answer"
    left_s = None if limits.timeout_s is None else limits.timeout_s - took_s
    iterator = iter(chunks)
    while True:
        began_s = time.monotonic()
        limits.held = limits.kept = 0  # what a chunk has taken is free again
        limits.deadline_s = None if left_s is None else began_s + left_s
        with watched(limits):
            chunk = next(iterator, None)
        if chunk is None:
            return
        if left_s is not None:
            left_s -= time.monotonic() - began_s
        yield chunk


def _some_of(chunks: Iterator[bytes]) -> bytes:
    """Return the next chunks, joined: PART_BYTES at least, if there are so many."""
    parts, length = list[bytes](), 0
    for part in chunks:
        parts.append(part)
        length += len(part)
        if length >= PART_BYTES:
            break
    return b"".join(parts)


def _count_down(counts: Counter[Client], name: Client) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _called_by(canceller: Canceller, told_sn: int | None, work: Callable[[], Answer]) -> Answer:
    """Raises what the work raises; BudgetExceeded where the process has no memory. told_sn: as reading_from has it."""
    with canceller, reading_from(told_sn), named_lack_of_memory(lambda: "the request found no memory in this process"):
        return work()


def _heard(running: asyncio.Future[Any]) -> None:
    """Take the outcome of work that nobody waits for."""
    if not running.cancelled():
        running.exception()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def checked(name: str, value: object, kind: type[Answer], told: str) -> Answer:
    """Return a field of a JSON body. Raises Refused."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Refused(400, f"{name} = {json.dumps(value)[:100]}: expected {told}")
    return value
