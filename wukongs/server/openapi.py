"""The description of the paths for tools, by OpenAPI 3.1: /openapi.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wukongs import __version__
from wukongs.live.grants import OF_ALL_GRAPHS, ROLES, Role
from wukongs.server.media import ARROW, DOCUMENTS, GRAPHS, ROWS
from wukongs.server.queries import OPTIONS

_ROW_TYPES = [media.types[0] for media in ROWS]
_GRAPH_TYPES = [media.types[0] for media in GRAPHS]
_DOCUMENT_TYPES = [media.types[0] for media in DOCUMENTS]
_JSON, _TEXT, _QUERY = "application/json", "text/plain", "application/sparql-query"
_KINDS = {str: "string", int: "integer", bool: "boolean", list: "array"}
_FORM = "application/x-www-form-urlencoded"
_TEXTS: Mapping[str, tuple[str, str]] = {
    "query": ("string", "the query; percent-encoded"),
    "update": ("string", "the update; percent-encoded"),
    "default-graph-uri": ("array", "IRIs, in the place of FROM"),
    "named-graph-uri": ("array", "IRIs, in the place of FROM NAMED"),
    "using-graph-uri": ("array", "IRIs, as USING of each operation"),
    "using-named-graph-uri": ("array", "IRIs, as USING NAMED of each operation"),
    "timeout": ("number", "seconds"),
    "at": ("integer", "a snapshot number"),
    "consistency": ("string", "latest, or local: what this node has, though it may be cut off"),
    "format": ("string", "json, xml, csv, tsv, arrow, table, ttl, nt, rdf, jsonld, trig or nq"),
    "graph": ("string", "the IRI of a graph"),
    "default": ("boolean", "the default graph"),
    "advance_ms": ("integer", "then nothing at or before this time comes any more"),
    "after": ("string", "the id of the last window or report that the client has, or now"),
    "changes": ("boolean", "windows are told as the rows that have come and gone"),
    "progress": ("boolean", "also events that a view is complete up to a later SN, and nothing has changed"),
    "rows_max": ("integer", "of a window or report with more rows the first ones are told, and row_count"),
    "brief": ("boolean", "names only, and whether they are paused"),
    "only": ("array", "these parts"),
    "analyze": ("boolean", "run it, and show rows and times"),
    "explain": ("string", "plan, or analyze to run it: the plan as text, in the place of the result"),
    "base": ("string", "the IRI that relative ones are resolved by"),
    "output": ("string", "rstream, istream or dstream"),
}


class Call(NamedTuple):
    """One method of one path.

    call: its name among the calls that need a role (grants.ROLES); None: it needs no token.
    takes: media types of its body.
    answers: by status, what it means, and media types.
    more: what needs another role than the call.
    body: the options that a body of JSON may have, by their types and meanings."""

    call: str | None
    summary: str
    parameters: Sequence[str] = ()
    takes: Sequence[str] = ()
    answers: Mapping[int, tuple[str, Sequence[str]]] = {204: ("done", ())}
    more: str = ""
    body: Mapping[str, tuple[type[Any], str]] = {}


_RESULT = {
    200: ("the result; the header Wukongs-Snapshot has the snapshot", [*_ROW_TYPES, *_GRAPH_TYPES]),
    502: ("SERVICE: an endpoint is not allowed, or does not answer well", [_TEXT]),
}
_GRAPH = {200: ("the graph", _GRAPH_TYPES), 404: ("there is no such graph", [_TEXT])}
_MADE = {201: ("the graph was made", ()), 204: ("it was there", ())}
_DATASET = ("default-graph-uri", "named-graph-uri", "timeout", "at", "consistency", "format", "explain")
_WINDOWS = {
    200: ("windows: events, or those that have come", ["text/event-stream", _JSON, ARROW.types[0]]),
    204: ("Arrow: no window in time", ()),
    421: ("another node runs the query, and this server has no way to it", [_TEXT]),
    503: ("the node that runs the query is away, and no other one has taken it over yet", [_TEXT]),
}
CALLS: Mapping[str, Mapping[str, Call]] = {
    "/sparql": {
        "get": Call("query", "answer a query, or without one describe the service", ("query", *_DATASET), (), _RESULT),
        "post": Call(
            "query",
            "answer a query, or apply an update",
            (*_DATASET, "using-graph-uri", "using-named-graph-uri"),
            (_FORM, _QUERY, "application/sparql-update"),
            {**_RESULT, 204: ("the update was applied; the header Wukongs-Snapshot has its snapshot", ())},
            more="an update needs write",
        ),
    },
    "/store": {
        "get": Call("query", "a graph, or all graphs", ("graph", "default", "timeout", "consistency"), (), _GRAPH),
        "put": Call("update", "replace a graph at one snapshot", ("graph", "default"), _DOCUMENT_TYPES, _MADE),
        "post": Call("load", "add to a graph, or make a new one", ("graph", "default"), _DOCUMENT_TYPES, _MADE),
        "delete": Call("update", "delete a graph", ("graph", "default")),
    },
    "/streams": {
        "get": Call("streams", "all streams with their counts", answers={200: ("streams", [_JSON])}),
        "post": Call(
            "stream",
            "declare a stream",
            (),
            (_JSON,),
            {201: ("declared", [_JSON]), 200: ("it was", [_JSON])},
            more="one that is not there needs admin",
        ),
    },
    "/streams/{name}": {
        "get": Call("streams", "a stream with its counts", answers={200: ("the stream", [_JSON])}),
        "post": Call(
            "stream.push",
            "push tuples, and let the stream advance",
            ("advance_ms", "timeout"),
            (_TEXT, "application/n-triples", "application/n-quads", _JSON, ARROW.types[0]),
            {200: ("how many were pushed", [_JSON])},
        ),
        "delete": Call("drop_stream", "drop a stream"),
    },
    "/streams/{name}/close": {"post": Call("stream.close", "end a stream: nothing more comes")},
    "/queries": {
        "get": Call("queries", "all registered queries", ("brief",), answers={200: ("queries", [_JSON])}),
        "post": Call(
            "register",
            "register a query",
            ("base", "output"),
            (_QUERY, _JSON, _FORM),
            {201: ("registered", [_JSON]), 200: ("it was, with the same text", [_JSON])},
            body=OPTIONS,
        ),
    },
    "/queries/{name}": {
        "get": Call("query.stats", "a query with its counts", answers={200: ("the query", [_JSON])}),
        "put": Call(
            "query.replace",
            "replace its text",
            ("base", "output"),
            (_QUERY, _JSON, _FORM),
            {200: ("replaced", [_JSON])},
        ),
        "delete": Call("query.close", "close a query"),
    },
    "/queries/{name}/windows": {
        "get": Call(
            "query.windows",
            "its windows, as they come",
            ("after", "changes", "rows_max", "timeout", "format"),
            (),
            _WINDOWS,
        )
    },
    "/queries/{name}/changes": {
        "get": Call(
            "query.changes",
            "the reports of a live view, as its content changes",
            ("after", "progress", "rows_max", "timeout", "format"),
            (),
            {
                200: ("reports: events, or those that there are", ["text/event-stream", _JSON, ARROW.types[0]]),
                204: ("Arrow: no report in time", ()),
                409: ("the query has windows", [_TEXT]),
            },
        )
    },
    "/queries/{name}/content": {
        "get": Call(
            "query.content",
            "the whole content of a live view; the header Wukongs-Report has the `after` of the changes behind it",
            ("at", "timeout", "format"),
            (),
            _RESULT,
        )
    },
    "/queries/{name}/bind": {
        "post": Call("query.bind", "bind arguments to a live view", (), (_JSON,), {200: ("their numbers", [_JSON])})
    },
    "/queries/{name}/unbind": {
        "post": Call("query.unbind", "unbind arguments", (), (_JSON,), {200: ("their numbers", [_JSON])})
    },
    "/queries/{name}/why": {"get": Call("query.why", "what it waits for", answers={200: ("in words", [_TEXT])})},
    "/queries/{name}/explain": {
        "get": Call("query.explain", "its plan", ("analyze",), (), {200: ("the plan", [_TEXT])})
    },
    "/queries/{name}/pause": {"post": Call("query.pause", "pause a query")},
    "/queries/{name}/resume": {"post": Call("query.resume", "let it go on")},
    "/": {"get": Call(None, "the console", answers={200: ("a page for people", ["text/html"])})},
    "/stats": {
        "get": Call("stats", "counts and sizes, as Engine.stats", ("only",), answers={200: ("the counts", [_JSON])})
    },
    "/metrics": {"get": Call("metrics", "metrics for Prometheus", answers={200: ("metrics", [_TEXT])})},
    "/healthz": {"get": Call(None, "whether the process serves", answers={200: ("it does", [_TEXT])})},
    "/readyz": {"get": Call(None, "whether the engine answers", answers={200: ("it does", [_JSON])})},
    "/openapi.json": {"get": Call("describe", "this description", answers={200: ("the description", [_JSON])})},
}


def described(address: str) -> dict[str, Any]:
    """Return the description. address: of the server."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "wukongs",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": address}],
        "paths": {
            path: {method: _operation(path, method, call) for method, call in calls.items()}
            for path, calls in CALLS.items()
        },
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": _TOKEN},
                "basic": {"type": "http", "scheme": "basic", "description": f"the password is {_TOKEN}"},
            },
        },
        "security": [{}, {"bearer": []}, {"basic": []}],
    }


_TOKEN = (
    "a token of the server's file. Its role is read, write or admin. If it has a list of graphs and streams, a query "
    "reads these alone, and whatever names or writes another one is a 403"
)
_PROBLEM = {
    "type": "object",
    "required": ["title", "status", "detail"],
    "properties": {
        "title": {"type": "string", "description": "the class of the error"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what is wrong, where, and what next"},
        "line": {"type": "integer"},
        "column": {"type": "integer"},
        "expected": {"type": "string"},
        "found": {"type": "string"},
        "suggestion": {"type": "string"},
        "excerpt": {"type": "string", "description": "the line, underlined"},
        "outcome": {"enum": ["partly applied", "not known"], "description": "of a change; left out: not applied"},
    },
}


def _operation(path: str, method: str, call: Call) -> dict[str, Any]:
    words = [word for word in path.replace("{name}", "one").replace(".", "/").split("/") if word]
    told: dict[str, Any] = {"summary": call.summary, "operationId": "_".join([method, *words])}
    parameters = [_parameter(name) for name in call.parameters]
    if "{name}" in path:
        what = "the IRI of the stream" if path.startswith("/streams") else "the name of the query"
        schema = {"type": "string"}
        parameters.insert(0, {"name": "name", "in": "path", "required": True, "description": what, "schema": schema})
    if parameters:
        told["parameters"] = parameters
    if call.takes:
        json = {"schema": _schema(call.body)} if call.body else {}
        told["requestBody"] = {"content": {kind: json if kind == _JSON else {} for kind in call.takes}}
    told["responses"] = {str(status): _answer(*answer) for status, answer in call.answers.items()}
    if call.call is None:
        told["security"] = [{}]
    else:
        told["responses"] |= {"401": _error("there is no token, or one that the server does not know")}
        told["responses"] |= {"403": _error(_refusal(call, call.call))}
    told["responses"] |= {"default": _error("an error")}
    return told


def _refusal(call: Call, name: str) -> str:
    """Return when a token is refused."""
    role, more = ROLES.get(name, Role.ADMIN).word, f" ({call.more})" if call.more else ""
    if name in OF_ALL_GRAPHS:
        return f"AccessError: this needs a token of the role {role}, without a list of graphs"
    return (
        f"AccessError: this needs a token of the role {role}{more}, and each graph or stream on its list, if it has one"
    )


def _error(told: str) -> dict[str, Any]:
    kinds = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}, _TEXT: {}}
    return {"description": told, "content": kinds}


def _schema(options: Mapping[str, tuple[type[Any], str]]) -> dict[str, Any]:
    """Return the schema of a text with options."""
    told = {name: {"type": _KINDS[kind], "description": what} for name, (kind, what) in options.items()}
    return {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, **told}}


def _parameter(name: str) -> dict[str, Any]:
    kind, told = _TEXTS[name]
    schema: dict[str, Any] = {"type": kind, "items": {"type": "string"}} if kind == "array" else {"type": kind}
    return {"name": name, "in": "query", "description": told, "schema": schema}


def _answer(told: str, kinds: Sequence[str]) -> dict[str, Any]:
    return (
        {"description": told, "content": {kind: {} for kind in dict.fromkeys(kinds)}}
        if kinds
        else {"description": told}
    )
