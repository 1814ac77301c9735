"""Streams over HTTP: declared, listed, pushed to, ended and dropped.

Tuples are safe when their POST is answered, as after `Stream.push`: in a data folder they survive the end of the
machine.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from wukongs.engine import Engine
from wukongs.errors import DataError, StreamError
from wukongs.live.declarations import stream_options
from wukongs.live.grants import Grant
from wukongs.live.lateness import COUNT
from wukongs.live.stream import EXTRA_COLUMNS, TABLE_COLUMNS, Stream
from wukongs.query.limits import scheduler
from wukongs.query.terms.names import plain_iri
from wukongs.server.face import face_of, grant_of
from wukongs.server.media import ARROW, base_type
from wukongs.server.requests import (
    Refused,
    body_of,
    checked,
    integer_of,
    json_of,
    loaded,
    not_utf8,
    query_fields,
    seconds_of,
)
from wukongs.store.encoder import columns_of_lines

_OPTIONS: Mapping[str, tuple[type[Any], str]] = {
    "batch_ms": (int, "milliseconds"),
    "into": (str, "the IRI of a graph"),
    "history_ms": (int, "milliseconds"),
    "slice_bytes_max": (int, "bytes"),
    "index": (str, '"all" or "matching"'),
    "lateness_ms": (int, "milliseconds"),
    "on_late": (str, '"count"'),
    "idle_timeout_ms": (int, "milliseconds"),
    "idle_advance": (str, '"wall"'),
    "late": (str, '"drop" or "open"'),
    "retractions": (str, '"event_time"'),
}
LINES = ("application/n-triples", "application/n-quads", "text/plain")


async def streams(request: Request) -> Response:
    """Answer GET /streams with all streams and their counts, POST /streams declares one."""
    face = face_of(request)
    if request.method in ("GET", "HEAD"):
        found = await face.workers.do(request, face.engine.stats)
        return JSONResponse([{"iri": iri, **facts} for iri, facts in found["streams"].items()])
    told = await json_of(request, face.bounds.body_bytes_max)
    iri, options = _declaration(told)
    stream, is_new = await face.workers.do(request, partial(_declared, face.engine, grant_of(request), iri, options))
    place = f"{request.base_url}streams/{quote(stream.iri, '')}"
    return JSONResponse(_described(stream), 201 if is_new else 200, headers={"Location": place})


async def stream(request: Request) -> Response:
    """Answer GET with a stream, POST pushes to it and lets it advance, DELETE drops it."""
    face, iri = face_of(request), plain_iri(request.path_params["name"])
    match request.method:
        case "DELETE":
            await face.workers.do(request, partial(face.engine.drop_stream, iri))
            return Response(status_code=204)
        case "POST":
            return await _push(request, iri)
    found = await face.workers.do(request, partial(_known, face.engine, iri))
    counts = (await face.workers.do(request, face.engine.stats))["streams"].get(found.iri, {})
    return JSONResponse({**_described(found), **counts})


async def end(request: Request) -> Response:
    """Answer POST /streams/{iri}/close: nothing more comes."""
    face, iri = face_of(request), plain_iri(request.path_params["name"])
    found = await face.workers.do(request, partial(_known, face.engine, iri))
    await face.workers.do(request, found.close)
    return Response(status_code=204)


def _declaration(told: object) -> tuple[str, dict[str, Any]]:
    given = checked("the body", told, dict, "an object with iri, and options of a stream")
    iri = checked("iri", given.get("iri"), str, "the IRI of the stream")
    unknown = sorted(given.keys() - _OPTIONS.keys() - {"iri", "timing"})
    if unknown:
        raise Refused(400, f"{unknown[0]}: expected options {', '.join(('timing', *_OPTIONS))}")
    options = {name: checked(name, given[name], *_OPTIONS[name]) for name in _OPTIONS if given.get(name) is not None}
    if options.get("on_late", COUNT) != COUNT:
        raise Refused(400, 'on_late: expected "count": files of this machine are not for clients over HTTP')
    timing = given.get("timing", False)
    if not isinstance(timing, bool):
        timing = [
            checked("timing", one, str, "IRIs") for one in checked("timing", timing, list, "true or a list of IRIs")
        ]
    return iri, {"timing": timing, **options}


def _declared(engine: Engine, grant: Grant, iri: str, options: Mapping[str, Any]) -> tuple[Stream, bool]:
    """Declare a stream; or return one that has been declared with the same options. Raises AccessError."""
    try:
        if not grant.may("declare") and plain_iri(iri) in engine.streams():
            raise StreamError(f"stream {iri} is declared already, with other options")
        grant.check("declare")
        return engine.stream(iri, **options), True
    except StreamError:
        name = plain_iri(iri)
        if name not in engine.streams():
            raise
        known = engine.declared(name)
        if known.options != stream_options(engine.settings, **options):
            raise
        return known, False


def _known(engine: Engine, iri: str) -> Stream:
    if iri not in engine.streams():
        known = ", ".join(sorted(engine.streams())) or "none"
        raise Refused(404, f"there is no stream {iri}: declare it by POST /streams. Declared: {known}")
    return engine.declared(iri)


def _described(stream: Stream) -> dict[str, Any]:
    told = {"iri": stream.iri, **stream.options}
    if not isinstance(told["timing"], bool):
        told["timing"] = [plain_iri(iri) for iri in told["timing"]]
    if told["into"] is not None:
        told["into"] = plain_iri(told["into"])
    return told


# --- tuples -----------------------------------------------------------------------------------------------------------


async def _push(request: Request, iri: str) -> Response:
    face, fields = face_of(request), query_fields(request)
    advance_ms, timeout_s = integer_of(fields, "advance_ms"), seconds_of(fields)
    body = await body_of(request, face.bounds.body_bytes_max)
    content_type = request.headers.get("content-type", "")
    read = _reader_of(base_type(content_type), content_type) if body else lambda _: None

    def push() -> dict[str, Any]:
        found, pushed, count = _known(face.engine, iri), read(body), 0
        if pushed is not None:
            face.engine._check_pushed(found, pushed)
            try:
                count = found.push_arrow(pushed, timeout_s=timeout_s)
            except ValueError as error:  # no UTF-8 in a column, most of all
                raise DataError(f"expected terms as N-Triples write them: {error}", "the body") from None
        if advance_ms is not None:
            found.advance(advance_ms, timeout_s=timeout_s)
        return {"pushed": count}

    with scheduler().urgent():
        return JSONResponse(await face.workers.do(request, push))


def _reader_of(kind: str, content_type: str) -> Callable[[bytes], Any]:
    """Return what makes a table of a body."""
    if kind in LINES:
        return partial(read_lines, graphs=kind != LINES[0])
    if kind == "application/json":
        return read_json
    if kind in ARROW.types:
        return read_arrow
    raise Refused(
        415,
        f"Content-Type {content_type!r}: expected application/n-triples (lines `s p o . t_ms`), application/json or "
        f"{ARROW.types[0]}",
    )


def read_lines(body: bytes, *, graphs: bool = True) -> Any:
    """Return a table of lines of N-Quads, or with graphs=False of N-Triples, each with a time behind its dot.

    Raises DataError (line)."""
    import pyarrow
    import pyarrow.compute as pc

    (*terms, graph), times = columns_of_lines(body, timestamps="suffix", graphs=graphs, name="the body")
    columns = dict(zip(TABLE_COLUMNS, (*terms, pyarrow.array(times)), strict=True))
    if pc.any(pc.not_equal(graph, "")).as_py():
        columns["graph"] = pc.if_else(pc.equal(graph, ""), None, graph)
    return pyarrow.table(columns)


def read_json(body: bytes) -> Any:
    """Return a table of a JSON list of [subject, predicate, object, timestamp_ms], or of objects with these names and
    graph and op, if wanted. Raises DataError (the place in the list)."""
    import pyarrow

    try:
        told = loaded(body)
    except UnicodeDecodeError as error:
        raise DataError(f"expected JSON: {not_utf8(error)}", "the body") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected JSON: {error}", "the body") from None
    if not isinstance(told, list):
        raise DataError(f"expected a list of tuples, found {type(told).__name__}", "the body")
    columns: dict[str, list[Any]] = {name: [] for name in (*TABLE_COLUMNS, "graph", "op")}
    for at, one in enumerate(told):
        row = (
            dict(zip(TABLE_COLUMNS, one, strict=False))
            if isinstance(one, list) and len(one) == len(TABLE_COLUMNS)
            else one
        )
        if not isinstance(row, dict) or not row.keys() >= {*TABLE_COLUMNS} or not row.keys() <= columns.keys():
            shown = json.dumps(one)[:80]
            raise DataError(
                f"tuple {at}: expected {', '.join(TABLE_COLUMNS)} (and graph, op), found {shown}", "the body"
            )
        for name, column in columns.items():
            value, is_time = row.get(name), name == "timestamp_ms"
            if value is not None and (isinstance(value, bool) or not isinstance(value, int if is_time else str)):
                expected = "an integer, in milliseconds" if is_time else "a term as N-Triples write it"
                raise DataError(f"tuple {at}, {name}: expected {expected}, found {value!r:.80}", "the body")
            column.append(value)
    if not any(one is not None for one in columns["graph"]):
        del columns["graph"]
    if any(one is not None for one in columns["op"]):
        columns["op"] = ["+" if one is None else one for one in columns["op"]]
    else:
        del columns["op"]
    try:
        kinds = {name: pyarrow.int64() if name == "timestamp_ms" else pyarrow.string() for name in columns}
        return pyarrow.table({name: pyarrow.array(column, kinds[name]) for name, column in columns.items()})
    except (pyarrow.ArrowException, OverflowError) as error:
        raise DataError(f"expected times as integers of 64 bits, in milliseconds: {error}", "the body") from None


def read_arrow(body: bytes) -> Any:
    """Return the table of an Arrow IPC stream. Raises DataError."""
    import pyarrow

    try:
        if any(map(_is_compressed, pyarrow.ipc.MessageReader.open_stream(body))):
            raise DataError("expected Arrow that is not compressed; Content-Encoding: gzip is read", "the body")
        table = pyarrow.ipc.open_stream(body).read_all()
        table.validate(full=True)
        kinds = dict(zip(table.column_names, table.schema.types, strict=True))
    except (pyarrow.ArrowException, OSError, ValueError, struct.error) as error:
        raise DataError(f"expected an Arrow IPC stream: {error}", "the body") from None
    for name, kind in kinds.items():
        told = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        is_text = pyarrow.types.is_string(told) or pyarrow.types.is_large_string(told)
        if name in (*TABLE_COLUMNS, *EXTRA_COLUMNS) and not (
            pyarrow.types.is_integer(kind) if name == TABLE_COLUMNS[-1] else is_text
        ):
            raise DataError(f"column {name!r}: expected strings, or integers for times, found {kind}", "the body")
    return table


def _is_compressed(message: Any) -> bool:
    """Whether the buffers of an Arrow message are compressed: a few bytes of it could stand for gigabytes.

    The metadata are a flatbuffer: Message(version, header type, header, ...), RecordBatch(length, nodes, buffers,
    compression), DictionaryBatch(id, RecordBatch)."""
    told = bytes(message.metadata)

    def field(table: int, number: int) -> int | None:
        """Return where a field of the table lies."""
        vtable = table - struct.unpack_from("<i", told, table)[0]
        place = 4 + 2 * number
        if place >= struct.unpack_from("<H", told, vtable)[0]:
            return None
        at = int(struct.unpack_from("<H", told, vtable + place)[0])
        return table + at if at else None

    def table_at(place: int) -> int:
        return place + int(struct.unpack_from("<I", told, place)[0])

    header = field(table_at(0), 2)
    if message.type not in ("record batch", "dictionary") or header is None:
        return False
    batch = table_at(header)
    if message.type == "dictionary":
        inner = field(batch, 1)
        if inner is None:
            return False
        batch = table_at(inner)
    return field(batch, 3) is not None
