"""SPARQL 1.1 Graph Store Protocol: `/store?graph=IRI` and `/store?default`; without either, all graphs.

A PUT is one snapshot: readers see the graph as it was or as it has come. The body is kept in a file until all of it is
here, so a connection that breaks has changed nothing.
"""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from shutil import copyfileobj

from starlette.requests import Request
from starlette.responses import Response

from wukongs.engine import Engine
from wukongs.errors import DataError
from wukongs.query.terms.names import graph_term
from wukongs.server.face import Face, address_of, face_of
from wukongs.server.media import (
    DATASETS,
    DOCUMENTS,
    N_QUADS,
    N_TRIPLES,
    NOTATION3,
    RDF_XML,
    TRIG,
    TURTLE,
    Media,
    base_type,
    choose,
    named,
    written,
)
from wukongs.server.requests import Refused, chunks_of, one_of, query_fields, seconds_of
from wukongs.server.sparql import SNAPSHOT, answer

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ONE = "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"
_NAMED = "CONSTRUCT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }"


async def store(request: Request) -> Response:
    face, is_all, graph = face_of(request), False, None
    fields = query_fields(request)
    name, is_default = one_of(fields, "graph"), "default" in fields
    if name is not None and is_default:
        raise Refused(400, "graph and default: expected one of the two")
    if name is not None:
        graph = _graph_of(name)
    is_all = name is None and not is_default
    match request.method:
        case "GET" | "HEAD":
            return await (_all(request, face) if is_all else _get(request, face, graph))
        case "PUT" if not is_all:
            return await _put(request, face, graph)
        case "POST":
            return await _post(request, face, graph, is_all=is_all)
        case "DELETE" if not is_all:
            return await _delete(request, face, graph)
    raise Refused(400, f"{request.method} of all graphs at once: expected ?graph=IRI or ?default")


def _graph_of(name: str) -> str:
    if not _ABSOLUTE.match(name):
        raise Refused(400, f"graph = {name!r}: expected an absolute IRI, such as http://ex.org/g")
    return graph_term(name).text[1:-1]


# --- reading ----------------------------------------------------------------------------------------------------------


async def _get(request: Request, face: Face, graph: str | None) -> Response:
    dataset = [] if graph is None else [graph]
    ask = partial(face.engine.query, _ONE, default_graphs=dataset, timeout_s=_timeout_s(request, face))
    result = await face.workers.do(request, ask, may_cancel=True)
    if graph is not None and not len(result):
        raise _no_graph(graph)
    return await answer(request, face, result)


async def _all(request: Request, face: Face) -> Response:
    """Answer with all graphs at one snapshot, as TriG or N-Quads."""
    accept = request.headers.get("accept")
    media = choose(accept, DATASETS)
    if media is None:
        raise Refused(406, f"Accept: {accept}: expected {' or '.join(one.types[0] for one in DATASETS)} for all graphs")
    at = (await face.workers.do(request, partial(face.engine.query, "ASK {}"))).snapshot
    chunks = _dataset_chunks(face.engine, media, at, _timeout_s(request, face))
    return await face.workers.stream(request, chunks, media.content_type, {SNAPSHOT: str(at), "Vary": "Accept"})


def _dataset_chunks(engine: Engine, media: Media, at: int, timeout_s: float | None) -> Iterator[bytes]:
    for graph in (None, *engine.graph_names()):
        name = None if graph is None else graph if graph.startswith("_:") else f"<{graph}>"
        text, bindings = (_ONE, {}) if name is None else (_NAMED, {"g": name})
        result = engine.query(text, bindings, timeout_s=timeout_s, at=at)
        if not len(result):
            continue
        if name is None:
            yield from written(result, media)
        elif media is TRIG:
            yield f"{name} {{\n".encode()
            yield from written(result, TURTLE)
            yield b"}\n"
        else:  # a line of N-Triples ends with " .", which stands nowhere else before a line end
            end = f" {name} .\n".encode()
            yield from (part.replace(b" .\n", end) for part in written(result, N_TRIPLES))


def _timeout_s(request: Request, face: Face) -> float | None:
    return face.bounds.timeout_s(seconds_of(query_fields(request)))


def _no_graph(graph: str) -> Refused:
    return Refused(404, f"there is no graph <{graph}>: an empty one counts as none")


# --- writing ----------------------------------------------------------------------------------------------------------


async def _put(request: Request, face: Face, graph: str | None) -> Response:
    is_there = await _is_there(request, face, graph)
    async with _document(request, face) as (path, media):
        if media in (TRIG, N_QUADS):
            raise Refused(415, f"Content-Type {media.types[0]}: expected the triples of one graph")
        base = graph or address_of(request)
        target, into = ("DEFAULT", "") if graph is None else (f"GRAPH <{graph}>", f" INTO GRAPH <{graph}>")
        try:
            based = await face.workers.do(request, partial(_with_base, path, media, base))
            text = f"DROP SILENT {target} ; LOAD <{based.as_uri()}>{into}"
            sn = await face.workers.do(request, partial(face.engine.update, text))
        except DataError as error:
            raise _of_body(error, path) from None
    return Response(status_code=204 if is_there else 201, headers={SNAPSHOT: str(sn)})


async def _post(request: Request, face: Face, graph: str | None, *, is_all: bool) -> Response:
    """Add to a graph; or to all of them what quads say. Triples without a graph make a new one."""
    async with _document(request, face) as (path, media):
        location = None
        if is_all and media not in (TRIG, N_QUADS):
            graph = f"urn:uuid:{uuid.uuid4()}"
            location = f"{address_of(request)}?graph={graph}"
        is_there = location is None and (is_all or await _is_there(request, face, graph))
        load = partial(face.engine.load, path, graph, base=graph or address_of(request), format=media.name, strict=True)
        try:
            sn = await face.workers.do(request, load)
        except DataError as error:
            raise _of_body(error, path) from None
    headers = {SNAPSHOT: str(sn)} | ({} if location is None else {"Location": location})
    return Response(status_code=204 if is_there else 201, headers=headers)


async def _delete(request: Request, face: Face, graph: str | None) -> Response:
    if not await _is_there(request, face, graph):
        assert graph is not None, "the default graph is always there"
        raise _no_graph(graph)
    text = "DROP DEFAULT" if graph is None else f"DROP SILENT GRAPH <{graph}>"
    sn = await face.workers.do(request, partial(face.engine.update, text))
    return Response(status_code=204, headers={SNAPSHOT: str(sn)})


async def _is_there(request: Request, face: Face, graph: str | None) -> bool:
    if graph is None:
        return True
    ask = partial(face.engine.query, "ASK { ?s ?p ?o }", default_graphs=[graph])
    return bool(await face.workers.do(request, ask))


@asynccontextmanager
async def _document(request: Request, face: Face) -> AsyncIterator[tuple[Path, Media]]:
    """Keep the body in a file until the block ends; give its path and format. Raises Refused (of no known type, too
    long)."""
    content_type = request.headers.get("content-type", "")
    media = named(base_type(content_type), DOCUMENTS)
    if media is None:
        kinds = ", ".join(one.types[0] for one in DOCUMENTS)
        raise Refused(415, f"Content-Type {content_type!r}: expected one of {kinds}")
    with tempfile.TemporaryDirectory(prefix="wukongs-") as folder:
        path = Path(folder) / f"body.{media.name}"
        with path.open("wb") as file:
            async for part in chunks_of(request, face.bounds.document_bytes_max):
                file.write(part)
        yield path, media


def _with_base(path: Path, media: Media, base: str) -> Path:
    """Return a file with the same triples for LOAD, which would resolve relative IRIs by the name of the file."""
    based = path.with_stem("based")
    if media is N_TRIPLES:
        return path
    if media in (TURTLE, NOTATION3):
        with path.open("rb") as source, based.open("wb") as target:
            target.write(f"@base <{base}> . ".encode())
            copyfileobj(source, target)
        return based
    import pyoxigraph

    form = pyoxigraph.RdfFormat.RDF_XML if media is RDF_XML else pyoxigraph.RdfFormat.JSON_LD
    based = based.with_suffix(".nt")
    try:
        triples = pyoxigraph.parse(path=path, format=form, base_iri=base)
        pyoxigraph.serialize(triples, based, pyoxigraph.RdfFormat.N_TRIPLES)
    except (SyntaxError, ValueError) as error:
        raise DataError(f"expected {media.types[0]}: {error}", str(path), getattr(error, "lineno", None) or 0) from None
    return based


def _of_body(error: DataError, path: Path) -> DataError:
    """Return an error in a document without the name of the file that nobody knows."""
    message = str(error.message).replace(path.as_uri(), "the body").replace(str(path), "the body")
    return DataError(message, "the body" if error.file else "", error.line)
