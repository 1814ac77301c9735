"""Views over HTTP: they are read by their names, and writing them is an error of the request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.inferred import infer
from tests.unit.server.asking import Client, served
from wukongs import Engine

pytestmark = pytest.mark.slow
INFERRED, EXPLICIT = "urn:x-wukongs:inferred", "urn:x-wukongs:explicit"
LINE = "<http://ex/x> <http://ex/p> <http://ex/y> .\n"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Engine() as engine:
        engine.update("INSERT DATA { <http://ex/a> <http://ex/p> <http://ex/b> }")
        infer(engine, [("<http://ex/a>", "<http://ex/p>", "<http://ex/c>")])
        with served(engine) as found:
            yield found


def test_views_are_read(client: Client) -> None:
    query = "SELECT ?o { ?s ?p ?o }"
    assert client.get(query).values == ["b", "c"]
    assert client.get(query, ("default-graph-uri", EXPLICIT)).values == ["b"]
    assert client.get(query, ("default-graph-uri", INFERRED)).values == ["c"]
    assert client.store("GET", INFERRED, accept="application/n-triples").text.count("\n") == 1
    assert client.get("SELECT ?g { GRAPH ?g { ?s ?p ?o } }").values == []


@pytest.mark.parametrize("view", [INFERRED, EXPLICIT, f"{INFERRED}:http://ex/g"])
def test_views_are_not_written(client: Client, view: str) -> None:
    message = f"<{view}> cannot be written"
    for method, body in (("PUT", LINE), ("POST", LINE), ("DELETE", None)):
        answer = client.store(method, view, body=body, content_type="application/n-triples")
        assert (answer.status, message in answer.text) == (400, True), answer.text
    answer = client.update(f"CLEAR GRAPH <{view}>")
    assert (answer.status, message in answer.text) == (400, True), answer.text
    assert client.get("SELECT ?o { ?s ?p ?o }").values == ["b", "c"]
