"""Services: the solutions of groups at other SPARQL endpoints (SPARQL 1.1 Federated Query), if the operator allows it.

* The group goes to the endpoint as it is written, with the prefixes around it. All that is known of its variables
  goes with it as VALUES, some hundred rows a request: the endpoint finds only what joins. Variables that are unbound
  somewhere, or bound to blank nodes or triple terms, do not go; the join here has the last word.
* Requests are by POST, one after the other, without proxies, cookies, passwords, and no redirect is followed. Each has
  bounds of time, bytes and rows: those of the query among them. Nothing that comes back is believed to be well-formed.
* SERVICE with a variable asks each endpoint that the rows beside it name, for the rows that name it.
* SILENT makes one solution without bindings of whatever goes wrong: an endpoint that fails, that is not allowed (it is
  not asked) or that a row does not name. A query that has no time or memory left fails all the same.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import numpy as np

from wukongs.csparql.algebra import Service
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Term, Variable, iri, literal
from wukongs.errors import DataError, ServiceError
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.frame import decoded
from wukongs.query.limits import OBJECT_BYTES, Limits
from wukongs.query.operators import operators
from wukongs.query.rows import numbered
from wukongs.query.terms.rdf_terms import from_ntriples, to_ntriples
from wukongs.query.terms.values import Kind, Value, text_of
from wukongs.store.dtypes import UNBOUND

BLOCK_ROWS = 200
"""Rows of VALUES in one request."""
_READ_BYTES = 1 << 16
_WATCH_S = 0.05
_ONE = "wukongs_one"
_ACCEPT = "application/sparql-results+json"
_Row = list[str | None]


def is_allowed(endpoint: str, places: Sequence[str]) -> bool:
    """Tell whether an endpoint is one of some places, or lies in one that ends with a slash."""
    segments = unquote(urlsplit(endpoint).path).replace("\\", "/").split("/")
    is_inside = endpoint.startswith(tuple(place for place in places if place.endswith("/")))
    return endpoint in places or (is_inside and "." not in segments and ".." not in segments)


def answered(
    node: Service, known: BindingTable, terms: TermSpace, limits: Limits
) -> Iterator[tuple[BindingTable, BindingTable]]:
    """Yield pairs of tables: some rows of a table, and the solutions of a SERVICE that may join with them, or more.

    Each row is in one of the pairs. An endpoint that a variable names has a pair of its own.

    Raises
    ------
    ServiceError                    An endpoint is not allowed, fails, or is not named by a row; not with SILENT.
    QueryTimeout, QueryKilled, BudgetExceeded
                                    The query's own limits, SILENT or not."""
    if isinstance(node.endpoint, Term):
        yield known, _solutions(node, node.endpoint.text[1:-1], known, terms, limits)
        return
    variable, columns = node.endpoint, possible_variables(node)
    if known.length == 0:
        yield known, _empty(sorted(columns, key=str))
        return
    column = known.column(variable)
    places, firsts = numbered([column], known.length)
    for number, name in enumerate(decoded(column[firsts], terms)):
        part = known.take(np.flatnonzero(places == number))
        if name is None or name.kind != Kind.IRI:
            if not node.is_silent:
                raise _unnamed(variable, name)
            yield part, BindingTable.unit()
        else:
            yield part, _solutions(node, str(name.data), part, terms, limits)


def _unnamed(variable: Variable, value: Value | None) -> ServiceError:
    """Make the error for a row that names no endpoint."""
    found = "is unbound in a solution" if value is None else f"is {to_ntriples(text_of(value)):.100}, which is no IRI"
    return ServiceError(
        f"SERVICE {variable}: {variable} {found}. Bind it to the IRI of an endpoint beside this SERVICE, in the same "
        "group; SERVICE SILENT goes on without it"
    )


def _empty(columns: Sequence[Variable]) -> BindingTable:
    return BindingTable(tuple(columns), (np.empty(0, np.int64),) * len(columns), 0)


def _solutions(node: Service, endpoint: str, known: BindingTable, terms: TermSpace, limits: Limits) -> BindingTable:
    """Return the solutions at one endpoint that may join with a table, or more. Raises as answered."""
    columns = [part for part in dict.fromkeys(node.variables) if isinstance(part, Variable)]
    if known.length == 0 and is_allowed(endpoint, limits.services):
        return _empty(columns)
    try:
        if not is_allowed(endpoint, limits.services):
            raise ServiceError(
                f"SERVICE <{endpoint}>: the setting service_allowed does not name this endpoint. The operator may add "
                "it, or a place that it lies in, with a slash at the end"
            )
        rows = list[_Row]()
        for names, block in _blocks(node, known, terms, limits):
            rows += _asked(endpoint, _text(node, names, block), node.names, limits)
            limits.check_rows(len(rows), "Let the group say more", f"SERVICE <{endpoint}>")
    except ServiceError:
        if not node.is_silent:
            raise
        limits.check()
        return BindingTable.unit()
    return _table(node, columns, rows, terms)


def _table(node: Service, columns: list[Variable], rows: list[_Row], terms: TermSpace) -> BindingTable:
    """Make a table of the rows, without those that give one variable two terms, or another term than a constant."""
    kept = list[_Row]()
    for row in rows:
        found: dict[Variable | Term, str] = {}
        for part, text in zip(node.variables, row, strict=True):
            wanted = part.text if isinstance(part, Term) else found.get(part, text)
            if text is not None and wanted not in (None, text):
                break
            if text is not None:
                found[part] = text
        else:
            kept.append([found.get(column) for column in columns])
    ids = []
    for at in range(len(columns)):
        column = np.full(len(kept), UNBOUND, np.int64)
        bound = [number for number, row in enumerate(kept) if row[at] is not None]
        column[bound] = terms.ids([text for row in kept if (text := row[at]) is not None])
        ids.append(column)
    return BindingTable(tuple(columns), tuple(ids), len(kept))


# --- what is asked ----------------------------------------------------------------------------------------------------


def _blocks(
    node: Service, known: BindingTable, terms: TermSpace, limits: Limits
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the names and rows of VALUES, as N-Triples, for each request; no names: nothing is known."""
    constants = [
        (name, part.text)
        for name, part in zip(node.names, node.variables, strict=True)
        if isinstance(part, Term) and _is_plain(part.text)
    ]
    shared = [
        (name, part)
        for name, part in zip(node.names, node.variables, strict=True)
        if isinstance(part, Variable) and part in known.variables and not (known.column(part) == UNBOUND).any()
    ]
    distinct = operators.distinct(operators.project(known, list(dict.fromkeys(part for _, part in shared))))
    texts = {part: _texts(distinct, part, terms) for _, part in shared}
    sent = [(name, part) for name, part in shared if all(map(_is_plain, limits.polled(texts[part])))]
    names = [name for name, _ in constants] + [name for name, _ in sent]
    fixed = [to_ntriples(text) for _, text in constants]
    cells = zip(*(texts[part] for _, part in sent), strict=True) if sent else [()]
    rows = [[*fixed, *map(to_ntriples, row)] for row in dict.fromkeys(cells)]
    for start in range(0, len(rows), BLOCK_ROWS):
        yield names, rows[start : start + BLOCK_ROWS]


def _is_plain(text: str) -> bool:
    """Whether a term means the same to the endpoint: no blank node, and no term of a newer RDF."""
    return text.startswith(("<", '"')) and "--" not in text.rpartition('"')[2]


def _texts(table: BindingTable, variable: Variable, terms: TermSpace) -> list[str]:
    text, offsets = terms.gather(table.column(variable))
    whole = text.tobytes()
    return [whole[start:end].decode() for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def _text(node: Service, names: list[str], rows: list[list[str]]) -> str:
    asked = " ".join(f"?{name}" for name in dict.fromkeys(node.names)) or f"(1 AS ?{_ONE})"
    values = ""
    if names:
        lines = "\n".join(f"({' '.join(row)})" for row in rows)
        values = f"VALUES ({' '.join(f'?{name}' for name in names)}) {{\n{lines}\n}}\n"
    return f"{node.prologue}SELECT {asked} WHERE {{\n{values}{node.text}\n}}\n"


# --- how it is asked --------------------------------------------------------------------------------------------------


def _asked(endpoint: str, text: str, names: Sequence[str], limits: Limits) -> list[_Row]:
    """Ask an endpoint once. Raises ServiceError."""
    limits.check()
    timeout_s = limits.within(limits.service_timeout_s)
    parts = urlsplit(endpoint)
    try:
        port = parts.port
    except ValueError:
        raise _failed(endpoint, "its port is none") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise _failed(endpoint, "expected an http or https address, without a password")
    connection = (
        HTTPSConnection(parts.hostname, port, timeout=timeout_s, context=ssl.create_default_context())
        if parts.scheme == "https"
        else HTTPConnection(parts.hostname, port, timeout=timeout_s)
    )
    path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
    headers = {
        "Accept": _ACCEPT,
        "Accept-Encoding": "identity",
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "wukongs",
    }
    try:
        with limits.without_processor(), _watched(connection, limits, timeout_s) as (is_late, sockets):
            try:
                connection.connect()
                sockets.append(connection.sock)
                connection.request("POST", path, urlencode({"query": text}), headers)
                body = _read(endpoint, connection.getresponse(), limits)
            except (OSError, HTTPException, ValueError, ServiceError) as error:
                limits.check()
                if is_late() or isinstance(error, TimeoutError):
                    raise _failed(endpoint, f"no whole answer within {timeout_s:g} s") from None
                if isinstance(error, ServiceError):
                    raise
                raise _failed(endpoint, str(error) or type(error).__name__) from None
            limits.check()
            if is_late():  # what is cut may look like an end
                raise _failed(endpoint, f"no whole answer within {timeout_s:g} s")
    finally:
        connection.close()
    return _rows(endpoint, body, names, limits)


@contextmanager
def _watched(
    connection: HTTPConnection, limits: Limits, timeout_s: float
) -> Iterator[tuple[Callable[[], bool], list[socket.socket]]]:
    """Cut a connection when its time is over, or the query was killed; give what tells whether it was cut, and its
    sockets, which it forgets once its last answer has begun."""
    done, was_cut = threading.Event(), threading.Event()
    deadline = time.monotonic() + timeout_s
    sockets = list[socket.socket]()

    def watch() -> None:
        while not done.wait(_WATCH_S):
            if (found := connection.sock) is not None and found not in sockets:
                sockets.append(found)
            if time.monotonic() > deadline or limits.is_killed:
                was_cut.set()
                for one in sockets:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=watch, name="wukongs-service", daemon=True).start()
    try:
        yield was_cut.is_set, sockets
    finally:
        done.set()


def _read(endpoint: str, response: HTTPResponse, limits: Limits) -> bytes:
    body, bytes_max = bytearray(), limits.service_bytes_max
    while True:
        limits.check()
        part = response.read1(_READ_BYTES)
        limits.hold(2 * len(part), f"the answer of SERVICE <{endpoint}>")
        body += part
        if len(body) > bytes_max:
            raise _failed(endpoint, f"it answers with more than service_bytes_max = {bytes_max} bytes")
        if not part:
            break
    if response.length:
        raise _failed(endpoint, f"its answer is cut short: {response.length} bytes have not come")
    if response.status != 200:
        said = " ".join(body[:300].decode(errors="replace").split())
        raise _failed(endpoint, f"it answers {response.status} {response.reason}: {said}")
    return bytes(body)


def _failed(endpoint: str, why: str) -> ServiceError:
    return ServiceError(f"SERVICE <{endpoint}>: {why}. SERVICE SILENT goes on without it")


# --- what comes back --------------------------------------------------------------------------------------------------


def _rows(endpoint: str, body: bytes, names: Sequence[str], limits: Limits) -> list[_Row]:
    """Return the rows of SPARQL JSON results, in canonical terms. Raises ServiceError."""
    limits.hold(_parsed_bytes(body), f"the answer of SERVICE <{endpoint}>")
    try:
        told = json.loads(body)
        bindings = told["results"]["bindings"]
        if not isinstance(bindings, list):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _failed(endpoint, f"expected SPARQL JSON results, found {body[:60]!r}") from None
    limits.hold(len(bindings) * max(1, len(names)) * OBJECT_BYTES, f"the rows of SERVICE <{endpoint}>")
    limits.check_rows(len(bindings), "Let the group say more", f"SERVICE <{endpoint}>")
    scope, blanks = secrets.token_hex(6), dict[str, str]()
    rows = list[_Row]()
    for found in limits.polled(bindings):
        if not isinstance(found, dict):
            raise _failed(endpoint, f"expected a solution, found {found!r:.60}")
        terms = [found.get(name) for name in names]
        rows.append([None if term is None else _term(endpoint, term, scope, blanks) for term in terms])
    return rows


def _parsed_bytes(body: bytes) -> int:
    """Return about how many bytes of Python objects a JSON text becomes."""
    containers = body.count(b"{") + body.count(b"[")
    values, texts = body.count(b",") + body.count(b":"), body.count(b'"') // 2
    return OBJECT_BYTES * containers + 40 * values + 60 * texts + len(body)


def _term(endpoint: str, term: Any, scope: str, blanks: dict[str, str]) -> str:
    """Return a term in canonical form. A blank node is none of ours, and the same within one answer only."""
    kind, value = (term.get("type"), term.get("value")) if isinstance(term, dict) else (None, None)
    language, datatype = (term.get("xml:lang"), term.get("datatype")) if isinstance(term, dict) else (None, None)
    try:
        if not isinstance(value, str):
            raise DataError("no text")
        match kind:
            case "uri":
                return from_ntriples(iri(value).text)
            case "bnode":
                return blanks.setdefault(value, f"_:service{scope}x{len(blanks)}")
            case "literal" | "typed-literal":
                made = literal(value, datatype, language)
                return from_ntriples(to_ntriples(made.text))
    except (DataError, TypeError, AttributeError, UnicodeError):
        pass
    raise _failed(endpoint, f"expected a term of RDF 1.1, found {term!r:.100}")
