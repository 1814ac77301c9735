"""Comunica, unchanged: it finds out by itself that the address is a SPARQL endpoint, and asks, joins and updates."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wukongs
from tests.unit.server.asking import Client, served

pytestmark = pytest.mark.slow
DATA = """PREFIX : <http://ex/> INSERT DATA {
    :a :p 1, 2 . :b :p 3 . GRAPH :g { :b :q "in a graph" } }"""
Asked = Callable[..., str]


@pytest.fixture
def client() -> Iterator[Client]:
    with wukongs.Engine() as engine, served(engine) as client:
        client.update(DATA)
        yield client


@pytest.fixture
def comunica(node_modules: Path, client: Client) -> Asked:
    """Runs its command with this server as the source; gives what it prints."""
    program = node_modules / "@comunica" / "query-sparql" / "bin" / "query.js"

    def ask(*arguments: str) -> str:
        command = ["node", str(program), f"{client.address}/sparql", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return ask


def test_select(comunica: Asked) -> None:
    query = "SELECT ?s ?o { ?s <http://ex/p> ?o FILTER(?o > 1) } ORDER BY ?o"
    assert comunica(query, "-t", "text/csv").split() == ["s,o", "<http://ex/a>,2", "<http://ex/b>,3"]


def test_an_optional_and_a_graph(comunica: Asked) -> None:
    query = "SELECT ?s ?text { ?s <http://ex/p> ?o OPTIONAL { GRAPH ?g { ?s ?q ?text } } }"
    rows = json.loads(comunica(query, "-t", "application/sparql-results+json"))["results"]["bindings"]
    found = sorted((row["s"]["value"], row.get("text", {}).get("value")) for row in rows)
    assert found == [("http://ex/a", None), ("http://ex/a", None), ("http://ex/b", "in a graph")]


def test_ask_and_construct(comunica: Asked) -> None:
    assert comunica("ASK { ?s ?p 3 }") == "true"
    made = comunica(
        "CONSTRUCT { ?o <http://ex/of> ?s } { ?s <http://ex/p> ?n BIND(IRI(CONCAT('http://ex/n', STR(?n))) AS ?o) }"
    )
    assert made.count("<http://ex/of>") == 3


def test_update(comunica: Asked, client: Client) -> None:
    comunica("DELETE { ?s ?p 3 } INSERT { ?s ?p 4 } WHERE { ?s ?p 3 }")
    assert client.get("ASK { <http://ex/b> ?p 4 FILTER NOT EXISTS { <http://ex/b> ?p 3 } }").boolean
