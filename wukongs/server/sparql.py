"""SPARQL 1.1 Protocol: queries and updates at one address, and the description of the service.

Where the protocol says it: the three ways to send a query (2.1), the two to send an update (2.2), datasets as
parameters (2.1.4, 2.2.3), statuses (2.1.7). Beside it: `timeout` in seconds, `format` by name for those who cannot set
Accept, `at` for an older snapshot, `consistency` for what a node has that may be cut off. Unknown parameters are passed
over: clients send some for other engines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from wukongs.live.update_documents import check_loads
from wukongs.query.execution.prepared import TEXT_CHARACTERS_MAX
from wukongs.query.output.results import Result
from wukongs.server.face import Face, address_of, face_of, grant_of
from wukongs.server.media import (
    DOCUMENTS,
    GRAPHS,
    JSON_LD,
    N_TRIPLES,
    RDF_XML,
    ROWS,
    TURTLE,
    Media,
    base_type,
    choose,
    converted,
    named,
    written,
)
from wukongs.server.requests import (
    SNAPSHOT,
    Fields,
    Refused,
    body_of,
    consistency_of,
    form_of,
    in_time,
    integer_of,
    one_of,
    query_fields,
    seconds_of,
    text_of,
)

WARNING = "Wukongs-Warning"
"""The header with likely mistakes of a query: WARNING_MAX characters, and what says that there are more."""
WARNING_MAX = 2000
FORM, QUERY, UPDATE = "application/x-www-form-urlencoded", "application/sparql-query", "application/sparql-update"
_EXPLAINED = ("plan", "analyze")
_OFFERED = (*ROWS, *GRAPHS)
_DESCRIBED = (TURTLE, N_TRIPLES, RDF_XML, JSON_LD)
_FORMATS = "http://www.w3.org/ns/formats/"


class Operation(NamedTuple):
    """A query or an update, with the parameters beside it."""

    is_update: bool
    text: str
    fields: Fields


async def sparql(request: Request) -> Response:
    """Answer a query or an update; or a GET without either with the description of the service."""
    face = face_of(request)
    if request.method in ("GET", "HEAD") and not {"query", "update"} & {*(fields := query_fields(request))}:
        return await _describe(request, face, fields)
    operation = await _operation(request, face)
    grant_of(request).check("update" if operation.is_update else "query")
    if "explain" in operation.fields:
        return await _explain(request, face, operation)
    if operation.is_update:
        return await _update(request, face, operation)
    return await _query(request, face, operation)


async def _operation(request: Request, face: Face) -> Operation:
    fields = query_fields(request)
    if request.method in ("GET", "HEAD"):
        if "update" in fields:
            raise Refused(400, "an update by GET: expected POST, since a GET may be repeated or answered by a cache")
        return Operation(False, one_of(fields, "query") or "", fields)
    content_type = request.headers.get("content-type", "")
    match base_type(content_type):
        case "application/x-www-form-urlencoded":
            form = await form_of(request, face.bounds.body_bytes_max)
            query, update = one_of(form, "query"), one_of(form, "update")
            if (query is None) == (update is None):
                raise Refused(
                    400,
                    f"a form with {'neither query nor' if query is None else 'query and'} update: expected one of them",
                )
            both = ImmutableMultiDict([*fields.multi_items(), *form.multi_items()])
            return Operation(query is None, (query if update is None else update) or "", both)
        case "application/sparql-query":
            return Operation(False, await text_of(request, face.bounds.body_bytes_max), fields)
        case "application/sparql-update":
            return Operation(True, await text_of(request, face.bounds.body_bytes_max), fields)
    await body_of(request, face.bounds.body_bytes_max)
    raise Refused(415, f"Content-Type {content_type!r}: expected {QUERY}, {UPDATE} or {FORM}")


async def _explain(request: Request, face: Face, operation: Operation) -> Response:
    """Answer with the plan of a query, as text; with `analyze` the query runs, and the plan has its rows and times."""
    kind = one_of(operation.fields, "explain")
    if kind not in _EXPLAINED or operation.is_update:
        raise Refused(400, f"explain={kind}: expected {' or '.join(_EXPLAINED)}, of a query")
    if "at" in operation.fields:
        raise Refused(400, "explain and at: expected one of the two, since a plan is of the graph as it is now")
    explain = partial(
        face.engine.explain,
        operation.text,
        address_of(request),
        analyze=kind == _EXPLAINED[1],
        timeout_s=face.bounds.timeout_s(seconds_of(operation.fields)),
        default_graphs=operation.fields.getlist("default-graph-uri"),
        named_graphs=operation.fields.getlist("named-graph-uri"),
    )
    return PlainTextResponse(await face.workers.do(request, explain, may_cancel=True) + "\n")


async def _query(request: Request, face: Face, operation: Operation) -> Response:
    fields, accept = operation.fields, request.headers.get("accept")
    wished = wished_of(fields)
    if wished is None and choose(accept, _OFFERED) is None:
        raise _not_acceptable(accept, _OFFERED)
    base, timeout_s, at = address_of(request), face.bounds.timeout_s(seconds_of(fields)), integer_of(fields, "at")
    default, among = fields.getlist("default-graph-uri"), fields.getlist("named-graph-uri")
    rule = consistency_of(fields)

    def ask() -> tuple[Result, tuple[str, ...], float]:
        engine, text, began_s = face.engine, operation.text, time.monotonic()
        graphs: dict[str, Any] = {"default_graphs": default, "named_graphs": among}
        result = engine.query(text, base=base, timeout_s=timeout_s, at=at, **graphs, consistency=rule)
        if len(text) > TEXT_CHARACTERS_MAX:  # it would be parsed again
            return result, (), time.monotonic() - began_s
        warnings = engine.warnings(text, base, **graphs)
        return result, warnings, time.monotonic() - began_s

    result, warnings, took_s = await face.workers.do(request, ask, may_cancel=True)
    return await answer(request, face, result, timeout_s, wished, warnings, took_s)


async def answer(
    request: Request,
    face: Face,
    result: Result,
    timeout_s: float | None,
    wished: Media | None = None,
    warnings: Sequence[str] = (),
    took_s: float = 0.0,
) -> Response:
    """Answer with a result, in the format that is wished, or that Accept prefers. timeout_s: of the query, of which
    took_s are over. Raises Refused (none of them), QueryTimeout."""
    offered = GRAPHS if result.is_graph else ROWS
    accept = request.headers.get("accept")
    alike = (one for one in offered if wished is not None and {*one.types} & {*wished.types})
    media = next(alike, None) or choose(accept, offered)
    if media is None:
        raise _not_acceptable(accept, offered)
    headers = {SNAPSHOT: str(result.snapshot), "Vary": "Accept"}
    if warnings:
        headers[WARNING] = _shortened(_in_header("; ".join(warnings)))
    chunks = in_time(_written(result, media), face.engine.settings, timeout_s, took_s)
    return await face.workers.stream(request, chunks, media.content_type, headers)


def _written(result: Result, media: Media) -> Iterator[bytes]:
    """Iterate over the bytes of a result. Raises Refused for what the format cannot hold."""
    from wukongs.server.rdf_xml import NotWritable

    try:
        yield from written(result, media)
    except NotWritable as error:
        raise Refused(406, str(error)) from None


def _in_header(text: str) -> str:
    """Return a text as a header may have it: in ASCII, with escapes for the rest. An IRI may hold U+007F."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in plain)


def _shortened(text: str) -> str:
    """Proxies and clients refuse answers with long headers."""
    return text if len(text) <= WARNING_MAX else f"{text[:WARNING_MAX]} ... (and more)"


async def _update(request: Request, face: Face, operation: Operation) -> Response:
    fields, base = operation.fields, address_of(request)
    timeout_s = face.bounds.timeout_s(seconds_of(fields))

    def update() -> int:
        check_loads(operation.text, base, face.engine.settings)
        return face.engine.update(
            operation.text,
            base=base,
            timeout_s=timeout_s,
            default_graphs=fields.getlist("using-graph-uri"),
            named_graphs=fields.getlist("using-named-graph-uri"),
        )

    snapshot = await face.workers.do(request, update)
    return Response(status_code=204, headers={SNAPSHOT: str(snapshot)})


def wished_of(fields: Fields) -> Media | None:
    """Return the format of a result that the parameters name."""
    return _wished(fields, _OFFERED)


def _wished(fields: Fields, offered: Sequence[Media]) -> Media | None:
    """Return the first format that the parameters name: some clients name it several times, in several ways."""
    found = (named(name, offered) for key in ("format", "output") for name in fields.getlist(key))
    return next((media for media in found if media is not None), None)


def _not_acceptable(accept: str | None, offered: tuple[Media, ...]) -> Refused:
    kinds = ", ".join(dict.fromkeys(media.types[0] for media in offered))
    return Refused(406, f"Accept: {accept}: expected one of {kinds}")


# --- the description of the service -----------------------------------------------------------------------------------

_NAMES: Mapping[str, str] = {
    "json": "SPARQL_Results_JSON",
    "xml": "SPARQL_Results_XML",
    "csv": "SPARQL_Results_CSV",
    "tsv": "SPARQL_Results_TSV",
    "ttl": "Turtle",
    "nt": "N-Triples",
    "rdf": "RDF_XML",
    "jsonld": "JSON-LD",
    "n3": "N3",
    "trig": "TriG",
    "nq": "N-Quads",
}


async def _describe(request: Request, face: Face, fields: Fields) -> Response:
    accept = request.headers.get("accept")
    media = _wished(fields, _DESCRIBED) or choose(accept, _DESCRIBED) or TURTLE
    graphs = await face.workers.do(request, face.engine.graph_names)
    text = description(address_of(request), graphs).encode()
    body = text if media is TURTLE else converted(text, media)
    return Response(body, headers={"Vary": "Accept"}, media_type=media.content_type)


def description(endpoint: str, graphs: list[str]) -> str:
    """Return what the service says of itself, in Turtle (SPARQL 1.1 Service Description)."""
    results = ", ".join(f"<{_FORMATS}{_NAMES[media.name]}>" for media in _OFFERED if media.name in _NAMES)
    inputs = ", ".join(f"<{_FORMATS}{_NAMES[media.name]}>" for media in DOCUMENTS)
    stored = "".join(f" ;\n        sd:namedGraph [ sd:name <{name}> ]" for name in graphs if ":" in name[2:])
    return f"""@prefix sd: <http://www.w3.org/ns/sparql-service-description#> .

<{endpoint}> a sd:Service ;
    sd:endpoint <{endpoint}> ;
    sd:supportedLanguage sd:SPARQL10Query, sd:SPARQL11Query, sd:SPARQL11Update ;
    sd:resultFormat {results} ;
    sd:inputFormat {inputs} ;
    sd:defaultDataset [ a sd:Dataset ;
        sd:defaultGraph [ a sd:Graph ]{stored} ] .
"""
