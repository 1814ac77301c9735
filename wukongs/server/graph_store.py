"""SPARQL 1.1 Graph Store Protocol: `/store?graph=IRI` and `/store?default`; without either, all graphs.

A PUT is one snapshot: readers see the graph as it was or as it has come. The body is kept in a file until all of it is
here, so a connection that breaks has changed nothing.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copyfileobj

from starlette.requests import Request
from starlette.responses import Response

from wukongs.consistency import LATEST, Consistency
from wukongs.csparql.terms import is_reported
from wukongs.engine import Engine
from wukongs.errors import CompactedError, DataError
from wukongs.query.output.results import Result
from wukongs.query.terms.names import plain_iri
from wukongs.server.face import Face, address_of, face_of
from wukongs.server.media import (
    DATASETS,
    DOCUMENTS,
    JSON_LD,
    N_QUADS,
    N_TRIPLES,
    NOTATION3,
    RDF_XML,
    TRIG,
    TURTLE,
    Media,
    base_type,
    choose,
    is_utf8,
    named,
    written,
)
from wukongs.server.requests import (
    SNAPSHOT,
    Refused,
    chunks_of,
    consistency_of,
    in_time,
    one_of,
    query_fields,
    seconds_of,
)
from wukongs.server.sparql import answer
from wukongs.store.hidden_graphs import check_written
from wukongs.store.json_ld_text import Contexts

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MARK = b"\xef\xbb\xbf"
"""How a text in UTF-8 may begin."""
_ONE = "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"
_NAMED = "CONSTRUCT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }"
SNAPSHOTS_TRIED = 5
_Graphs = list[tuple[str | None, Result]]
"""The triples of graphs, each with the graph's name; None: the default graph."""


async def store(request: Request) -> Response:
    face, fields = face_of(request), query_fields(request)
    name, is_default = one_of(fields, "graph"), "default" in fields
    if name is not None and is_default:
        raise Refused(400, "graph and default: expected one of the two")
    graph = None if name is None else _graph_of(name)
    is_all = name is None and not is_default
    if graph is not None and request.method not in ("GET", "HEAD"):
        check_written(graph)
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
    if not _ABSOLUTE.match(name) and not is_reported(name):
        raise Refused(400, f"graph = {name!r}: expected an absolute IRI, such as http://ex.org/g")
    return plain_iri(name)


def _base(graph: str | None, request: Request) -> str:
    """Return what relative IRIs of a body are resolved against: the graph's IRI, or the address without one."""
    return address_of(request) if graph is None or is_reported(graph) else graph


# --- reading ----------------------------------------------------------------------------------------------------------


async def _get(request: Request, face: Face, graph: str | None) -> Response:
    dataset = [] if graph is None else [graph]
    rule, timeout_s = consistency_of(query_fields(request)), _timeout_s(request, face)
    ask = partial(face.engine.query, _ONE, default_graphs=dataset, timeout_s=timeout_s, consistency=rule)
    result = await face.workers.do(request, ask, may_cancel=True)
    if graph is not None and not len(result):
        raise _no_graph(graph)
    return await answer(request, face, result, _timeout_s(request, face))


async def _all(request: Request, face: Face) -> Response:
    """Answer with all graphs at one snapshot, as TriG or N-Quads."""
    accept = request.headers.get("accept")
    media = choose(accept, DATASETS)
    if media is None:
        raise Refused(406, f"Accept: {accept}: expected {' or '.join(one.types[0] for one in DATASETS)} for all graphs")
    rule = consistency_of(query_fields(request))
    at, graphs = await face.workers.do(request, partial(_graphs_at, face.engine, _timeout_s(request, face), rule))
    chunks = in_time(_dataset_chunks(graphs, media), face.engine.settings, _timeout_s(request, face))
    return await face.workers.stream(request, chunks, media.content_type, {SNAPSHOT: str(at), "Vary": "Accept"})


def _graphs_at(engine: Engine, timeout_s: float | None, consistency: Consistency = LATEST) -> tuple[int, _Graphs]:
    """Return a snapshot, and its graphs that have triples. Nothing holds the snapshot while they are read: so another
    one is tried if it is gone meanwhile, and nothing is sent before all are there. Raises CompactedError."""
    gone = 0
    while True:
        at = engine.query("ASK {}", consistency=consistency).snapshot
        try:
            named_then = engine.query("SELECT ?g { GRAPH ?g {} }", timeout_s=timeout_s, at=at).texts()
            graphs: _Graphs = [(None, engine.query(_ONE, timeout_s=timeout_s, at=at))]
            for name in sorted(str(graph) for (graph,) in named_then):
                graphs.append((name, engine.query(_NAMED, {"g": name}, timeout_s=timeout_s, at=at)))
            return at, [(name, result) for name, result in graphs if len(result)]
        except CompactedError:
            gone += 1
            if gone == SNAPSHOTS_TRIED:
                raise


def _dataset_chunks(graphs: _Graphs, media: Media) -> Iterator[bytes]:
    for name, result in graphs:
        if name is None:
            yield from written(result, media)
        elif media is TRIG:
            yield f"{name} {{\n".encode()
            yield from written(result, TURTLE)
            yield b"}\n"
        else:  # a line of N-Triples ends with " .", which stands nowhere else before a line end
            end = f" {name} .\n".encode()
            yield from (part.replace(b" .\n", end) for part in written(result, N_TRIPLES))


def _contexts(face: Face) -> Contexts:
    return Contexts(face.engine.settings.contexts)


def _timeout_s(request: Request, face: Face) -> float | None:
    return face.bounds.timeout_s(seconds_of(query_fields(request)))


def _no_graph(graph: str) -> Refused:
    return Refused(404, f"there is no graph <{graph}>: an empty one counts as none")


# --- writing ----------------------------------------------------------------------------------------------------------


async def _put(request: Request, face: Face, graph: str | None) -> Response:
    is_there = await _is_there(request, face, graph)
    async with _document(request, face, is_one=True) as document:
        target, into = ("DEFAULT", "") if graph is None else (f"GRAPH <{graph}>", f" INTO GRAPH <{graph}>")

        def replace() -> int:
            with document.named_in_errors():
                based = document.with_base(_base(graph, request), _contexts(face))
                return face.engine.update(f"DROP SILENT {target} ; LOAD <{based.as_uri()}>{into}")

        sn = await face.workers.do(request, replace)
    return Response(status_code=204 if is_there else 201, headers={SNAPSHOT: str(sn)})


async def _post(request: Request, face: Face, graph: str | None, *, is_all: bool) -> Response:
    """Add to a graph; or to all of them what quads say. Triples without a graph make a new one."""
    async with _document(request, face, is_one=not is_all) as document:
        location = None
        if is_all and document.media not in (TRIG, N_QUADS):
            graph = f"urn:uuid:{uuid.uuid4()}"
            location = f"{address_of(request)}?graph={graph}"
        is_there = location is None and (is_all or await _is_there(request, face, graph))
        base = location or _base(graph, request)

        def add() -> int:
            with document.named_in_errors():
                if document.media in (JSON_LD, RDF_XML):  # of one graph, and with lines in errors
                    return face.engine.load(document.with_base(base, _contexts(face)), graph, strict=True)
                return face.engine.load(document.path, graph, base=base, format=document.media.name, strict=True)

        sn = await face.workers.do(request, add)
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
async def _document(request: Request, face: Face, *, is_one: bool) -> AsyncIterator[Document]:
    """Keep the body in a file until the block ends. is_one: it is to be one graph. Raises Refused (of no known type, of
    several graphs, too long; no room for it beside others)."""
    content_type = request.headers.get("content-type", "")
    media = named(base_type(content_type), DOCUMENTS)
    expected = [one for one in DOCUMENTS if not is_one or one not in DATASETS]
    if media not in expected or not is_utf8(content_type):
        kinds = ", ".join(one.types[0] for one in expected)
        raise Refused(415, f"Content-Type {content_type!r}: expected one of {kinds}, in UTF-8")
    with tempfile.TemporaryDirectory(prefix="wukongs-") as folder:
        path = Path(folder) / f"body.{media.name}"
        with path.open("wb") as file:
            async for part in chunks_of(request, face.bounds.document_bytes_max):
                face.documents.add(request, len(part))
                await asyncio.to_thread(file.write, part)
        yield Document(path, media)


@dataclass(frozen=True, slots=True)
class Document:
    """A body in a file of its own."""

    path: Path
    media: Media

    @property
    def _based(self) -> Path:
        return self.path.with_name(f"based.{'ttl' if self.media in (TURTLE, NOTATION3) else 'nt'}")

    def with_base(self, base: str, contexts: Contexts) -> Path:
        """Return a file with the same triples for LOAD, which would resolve relative IRIs by the name of the file.

        Raises DataError (JSON-LD or RDF/XML that is malformed, JSON-LD of several graphs)."""
        if self.media is N_TRIPLES:
            return self.path
        if self.media not in (TURTLE, NOTATION3):
            return self._converted(base, contexts)
        with self.path.open("rb") as source, self._based.open("wb") as target:
            mark = source.read(len(_MARK))
            target.write(f"@base <{base}> .\n".encode() + mark.removeprefix(_MARK))
            copyfileobj(source, target)
        return self._based.rename(self._based.with_suffix(f".{self.media.name}"))

    def _converted(self, base: str, contexts: Contexts) -> Path:
        import pyoxigraph

        from wukongs.store.rdf_parser import parse_to_nquads

        try:
            with self.path.open("rb") as source, self._based.open("wb") as target:
                for lines in parse_to_nquads(source, self.media.name, base, contexts, name=str(self.path)):
                    if self.media is JSON_LD:
                        for quad in pyoxigraph.parse(lines, pyoxigraph.RdfFormat.N_QUADS):
                            if quad.graph_name != pyoxigraph.DefaultGraph():
                                found = f"the graph {quad.graph_name}"
                                raise DataError(f"expected the triples of one graph, found {found}", str(self.path))
                    target.write(lines)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or (self._line_of_xml() if self.media is RDF_XML else 0)
            told = error.msg if isinstance(error, SyntaxError) else str(error)
            raise DataError(f"expected {self.media.types[0]}: {told}", str(self.path), line) from None
        return self._based

    def _line_of_xml(self) -> int:
        """Return the line at which this is no XML any more, 0 if it is."""
        from xml.parsers import expat

        with self.path.open("rb") as file:
            try:
                expat.ParserCreate().ParseFile(file)
            except expat.ExpatError as error:
                return error.lineno
        return 0

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Let errors speak of the body, in place of a file that nobody knows and the line that was put before it."""
        try:
            yield
        except DataError as error:
            is_based, line = self._based.name.partition(".")[0] in error.file, error.line
            line -= is_based and self.media in (TURTLE, NOTATION3)
            message = str(error.message)
            for path in self.path.parent.iterdir():
                message = message.replace(path.as_uri(), "the body").replace(str(path), "the body")
            raise DataError(message, "the body" if error.file else "", line) from None
