"""Raw HTTP requests: what is sent is what a test says, and nothing is added or followed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import wukongs
from wukongs.server.face import Bounds
from wukongs.server.http_server import HttpServer, HttpSettings

FORM, QUERY, UPDATE = "application/x-www-form-urlencoded", "application/sparql-query", "application/sparql-update"
JSON, XML = "application/sparql-results+json", "application/sparql-results+xml"
Pairs = Sequence[tuple[str, str]] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def kind(self) -> str:
        """The media type, without its parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def snapshot(self) -> int:
        return int(self.headers["Wukongs-Snapshot"])

    @property
    def values(self) -> list[str]:
        """The bound values of a JSON result, sorted, IRIs without http://ex/."""
        assert self.status == 200, self.text
        rows = self.json["results"]["bindings"]
        return sorted(term["value"].removeprefix("http://ex/") for row in rows for term in row.values())

    @property
    def boolean(self) -> bool:
        assert self.status == 200, self.text
        found = self.json["boolean"]
        assert isinstance(found, bool)
        return found


class Client:
    """Asks one server, with a new connection for each request."""

    def __init__(self, address: str) -> None:
        self.address = address
        parts = urlsplit(address)
        self.host, self.port = parts.hostname or "", parts.port or 80

    def ask(
        self,
        method: str,
        path: str,
        fields: Pairs = (),
        *,
        body: bytes | str | Iterable[bytes] | None = None,
        content_type: str | None = None,
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request. fields: go into the address; body: an iterable of bytes is sent in chunks."""
        pairs = urlencode(fields)
        sent = {"Content-Type": content_type, "Accept": accept, **(headers or {})}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            connection.request(
                method,
                path + ("?" * bool(pairs)) + pairs,
                body.encode() if isinstance(body, str) else body,
                {name: value for name, value in sent.items() if value is not None},
            )
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, query: str, *more: tuple[str, str], accept: str | None = None, **headers: str) -> Answer:
        """Send a query by GET."""
        return self.ask("GET", "/sparql", [("query", query), *more], accept=accept, headers=headers)

    def form(self, *fields: tuple[str, str], accept: str | None = None, **headers: str) -> Answer:
        """Send a form to /sparql."""
        body = urlencode(fields)
        return self.ask("POST", "/sparql", body=body, content_type=FORM, accept=accept, headers=headers)

    def direct(self, text: str, *fields: tuple[str, str], kind: str = QUERY, accept: str | None = None) -> Answer:
        """Send a query or an update as the body itself."""
        return self.ask("POST", "/sparql", fields, body=text, content_type=kind, accept=accept)

    def windows(self, name: str, count: int, **fields: str) -> list[Any]:
        """Return the events of a query: those that have come are answered, so it is asked until there are so many."""
        found: list[Any] = []
        while len(found) < count:
            told = self.ask("GET", f"/queries/{name}/windows", fields).json
            assert told["events"], f"expected {count} events, found {found}"
            found += told["events"]
            fields["after"] = str(told["after"])
        return found

    def update(self, text: str, *fields: tuple[str, str]) -> Answer:
        return self.direct(text, *fields, kind=UPDATE)

    def store(
        self,
        method: str,
        graph: str | None = None,
        body: bytes | str | Iterable[bytes] | None = None,
        content_type: str | None = "text/turtle",
        *,
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask /store for a graph; "" for the default graph; None for all."""
        path = "/store" if graph is None else "/store?default" if graph == "" else f"/store?graph={quote(graph, '')}"
        kind = None if body is None else content_type
        return self.ask(method, path, body=body, content_type=kind, accept=accept, headers=headers)


@contextmanager
def served(engine: wukongs.Engine, bounds: Bounds | None = None) -> Iterator[Client]:
    """Serve an engine at a free port of loopback."""
    server = HttpServer(engine, HttpSettings(port=0, bounds=bounds or Bounds()))
    try:
        yield Client(server.address)
    finally:
        server.close()
