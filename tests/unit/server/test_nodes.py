"""HTTP at the nodes of a cluster: each answers for all of it, and a query's windows are at the node that runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from tests.clusters import PATIENT, cluster
from tests.unit.server.asking import QUERY, Client, served

pytestmark = pytest.mark.slow

S = "http://ex/s"
TEXT = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"


@pytest.fixture(scope="module")
def clients() -> Iterator[list[Client]]:
    with cluster(2, silence_pulses_max=PATIENT) as nodes, ExitStack() as stack:
        yield [stack.enter_context(served(node.engine)) for node in nodes]


def test_each_node_answers_for_all(clients: list[Client]) -> None:
    first, second = clients
    data = "".join(f"<http://ex/{n}> <http://ex/p> {n} ." for n in range(20))
    answer = first.store("PUT", "http://ex/g", data)
    assert answer.status == 201
    for client in clients:
        assert len(client.store("GET", "http://ex/g", accept="application/n-triples").body.splitlines()) == 20
    at = ("at", str(answer.snapshot))
    count = second.get("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }", ("default-graph-uri", "http://ex/g"), at)
    assert count.values == ["20"]
    assert (
        second.update("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o FILTER(?o > 4) } }").status == 204
    )
    assert first.get("SELECT ?s { GRAPH ?g { ?s ?p ?o } }").values == ["0", "1", "2", "3", "4"]


def test_windows_are_read_where_the_query_runs(clients: list[Client]) -> None:
    first, second = clients
    told = json.dumps({"iri": S, "timing": True, "batch_ms": 100})
    assert first.ask("POST", "/streams", body=told, content_type="application/json").status == 201
    assert first.ask("POST", "/queries", body=TEXT, content_type=QUERY).status == 201
    (one,) = second.ask("GET", "/queries").json
    assert (one["name"], one["node"]) == ("q", 0)
    lines = "".join(f"<http://ex/{n}> <http://ex/p> <http://ex/o> . 500\n" for n in range(20))
    path = f"/streams/{quote(S, '')}?advance_ms=1000"
    assert second.ask("POST", path, body=lines, content_type="text/plain").json == {"pushed": 20}
    (event,) = first.ask("GET", "/queries/q/windows").json["events"]
    assert (event["id"], len(event["data"]["results"]["bindings"])) == (1000, 20)
    elsewhere = second.ask("GET", "/queries/q/windows")
    assert (elsewhere.status, "query q runs at node 0" in elsewhere.text) == (421, True)
    assert "q waits" in second.ask("GET", "/queries/q/why").text
    assert second.ask("DELETE", "/queries/q").status == 204
    assert first.ask("GET", "/queries/q").status == 404
