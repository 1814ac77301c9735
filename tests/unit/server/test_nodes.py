"""HTTP at the nodes of a cluster: each answers for all of it, and has the windows of any query."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest

from tests.clusters import PATIENT, cluster
from tests.unit.server.asking import QUERY, Client, served
from tests.unit.server.test_bounds import until
from tests.unit.server.test_queries import ARROW, EVENTS, Events, socket
from wukongs.cluster import relaying
from wukongs.cluster.cluster_node import ClusterNode
from wukongs.cluster.node import Inside
from wukongs.errors import NodeUnavailable
from wukongs.remote.service import Service
from wukongs.server.http_server import HttpServer, HttpSettings
from wukongs.server.relays import Relay, Relays
from wukongs.settings import Settings

pytestmark = pytest.mark.slow

S = "http://ex/s"


def text_of(name: str, form: str = "SELECT ?s", stream: str = S) -> str:
    return f"REGISTER QUERY {name} AS {form} FROM STREAM <{stream}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"


def over_http(node: ClusterNode, stack: ExitStack) -> Client:
    service = Service(node.engine, Settings(), node.backend)
    stack.callback(service.close)
    server = HttpServer(node.engine, HttpSettings(port=0), node=Inside(node, service))
    stack.callback(server.close)
    return Client(server.address)


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[ClusterNode]]:
    """Windows are held for whoever comes, however long a busy machine takes until somebody does."""
    with pytest.MonkeyPatch.context() as patched, cluster(2, silence_pulses_max=PATIENT) as nodes:
        patched.setattr(relaying, "KEEP_S", 120.0)
        for node in nodes:
            node.backend.ingest_addresses = ("tcp://first:1", "tcp://second:1")
        yield nodes


@pytest.fixture(scope="module")
def clients(nodes: list[ClusterNode]) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [over_http(node, stack) for node in nodes]


def declare(client: Client, stream: str = S) -> None:
    told = json.dumps({"iri": stream, "timing": True, "batch_ms": 100})
    assert client.ask("POST", "/streams", body=told, content_type="application/json").status in (200, 201)


def fill(client: Client, end: int, stream: str = S) -> None:
    """Let the window with this end, in seconds, have 20 rows."""
    lines = "".join(f"<http://ex/{n}> <http://ex/p> <http://ex/o> . {end * 1000 - 500}\n" for n in range(20))
    path = f"/streams/{quote(stream, '')}?advance_ms={end * 1000}"
    assert client.ask("POST", path, body=lines, content_type="text/plain").json == {"pushed": 20}


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


def test_who_sends_a_snapshot_back_reads_nothing_older_at_any_node(clients: list[Client]) -> None:
    first, second = clients
    ask = "ASK { <http://ex/told> ?p ?o }"
    at = first.update("INSERT DATA { <http://ex/told> <http://ex/p> 1 }").snapshot
    answer = second.get(ask, **{"Wukongs-Snapshot": str(at)})
    assert answer.boolean
    assert answer.snapshot >= at
    late = second.get(ask, ("timeout", "0.2"), **{"Wukongs-Snapshot": str(at + 10**6)})
    assert late.status == 503
    assert second.get(ask, ("consistency", "local"), **{"Wukongs-Snapshot": str(at + 10**6)}).boolean
    assert second.store("GET", "", headers={"Wukongs-Snapshot": str(at)}).status == 200
    wrong = second.get(ask, **{"Wukongs-Snapshot": "new"})
    assert (wrong.status, wrong.text) == (400, "Refused: Wukongs-Snapshot = 'new': expected an integer\n")
    unknown = second.get(ask, ("consistency", "newest"))
    assert (unknown.status, unknown.text) == (400, "Refused: consistency=newest: expected latest or local\n")


def test_each_node_has_the_windows_of_any_query_in_all_ways(clients: list[Client]) -> None:
    first, second = clients
    declare(first)
    assert first.ask("POST", "/queries", body=text_of("q"), content_type=QUERY).status == 201
    (one,) = second.ask("GET", "/queries").json
    assert (one["name"], one["node"]) == ("q", 0)
    again = [client.ask("POST", "/queries", body=text_of("q"), content_type=QUERY).status for client in clients]
    assert again == [200, 200]
    fill(second, 1)
    at_home = first.ask("GET", "/queries/q/windows").json["events"]
    elsewhere = second.ask("GET", "/queries/q/windows").json["events"]
    assert [event["id"] for event in at_home] == [1000]

    def rows(event: dict[str, object]) -> object:
        data = event["data"]
        assert isinstance(data, dict)
        facts = {name: value for name, value in data.items() if name != "results"}
        return facts, sorted(row["s"]["value"] for row in data["results"]["bindings"])

    assert [*map(rows, elsewhere)] == [*map(rows, at_home)]
    fill(first, 2)
    events = Events(second, "/queries/q/windows", **{"Last-Event-ID": "1000"})
    assert [(kind, id) for kind, id, _ in events.take(1)] == [("window", 2000)]
    with socket(second, "/queries/q/windows?after=now") as live:
        fill(second, 3)
        assert json.loads(live.recv(10))["id"] == 3000
    arrow = second.ask("GET", "/queries/q/windows", {"after": "2000"}, accept=ARROW)
    assert (arrow.status, arrow.headers["Wukongs-Window"]) == (200, "3000")
    changes = second.ask("GET", "/queries/q/windows?changes&after=2000&timeout=0.1").json
    assert [event["id"] for event in changes["events"]] == [3000]
    assert "q waits" in second.ask("GET", "/queries/q/why").text
    assert "Project" in second.ask("GET", "/queries/q/explain").text
    for path, paused in (("pause", True), ("resume", False)):
        assert second.ask("POST", f"/queries/q/{path}").status == 204
        assert first.ask("GET", "/queries/q").json["is_paused"] is paused
    replaced = second.ask("PUT", "/queries/q", body=text_of("q", "SELECT ?o"), content_type=QUERY)
    assert replaced.status == 200
    assert second.ask("DELETE", "/queries/q").status == 204
    assert first.ask("GET", "/queries/q").status == 404
    assert [kind for kind, _, _ in events][-1:] == ["end"]


def test_a_late_subscriber_of_another_node_has_the_windows_that_are_held(
    clients: list[Client], nodes: list[ClusterNode]
) -> None:
    """One whose node is gone comes to another one: so those of the last seconds are held for whoever comes."""
    first, second = clients
    stream = "http://ex/late"
    declare(first, stream)
    assert first.ask("POST", "/queries", body=text_of("late", stream=stream), content_type=QUERY).status == 201
    for end in (1, 2, 3):
        fill(first, end, stream)
    assert [event["id"] for event in first.ask("GET", "/queries/late/windows?after=2000").json["events"]] == [3000]
    events = Events(second, "/queries/late/windows", **{"Last-Event-ID": "1000"})
    assert [(kind, id) for kind, id, _ in events.take(2)] == [("window", 2000), ("window", 3000)]
    assert first.ask("DELETE", "/queries/late").status == 204


def test_one_who_has_lost_windows_at_another_node_is_told(clients: list[Client], nodes: list[ClusterNode]) -> None:
    """A reader of the own wire has confirmed them, and they were not kept, since nobody had asked over HTTP."""
    first, second = clients
    stream = "http://ex/lost"
    declare(first, stream)
    query = nodes[0].engine.register(text_of("lost", stream=stream))
    for end in (1, 2, 3):
        fill(first, end, stream)
    results = query.results(10)
    assert [next(results).end_ms, next(results).end_ms] == [1000, 2000]
    results.close()
    events = Events(second, "/queries/lost/windows", **{"Last-Event-ID": "500"})
    (gap, window) = events.take(2)
    assert (gap[:2], window[:2]) == (("gap", 2000), ("window", 3000))
    assert "this server has those behind them only" in gap[2]["detail"]
    query.close()


def test_windows_that_come_before_their_feed_is_there_are_told(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay reads from when it begins, and its feed is made a moment later."""
    begin = Relays.begin

    def begin_slowly(relays: Relays, name: str, is_wanted: Callable[[], bool]) -> Relay | None:
        relay = begin(relays, name, is_wanted)
        assert relay is not None
        until(lambda: relay.has_come)
        return relay

    monkeypatch.setattr(Relays, "begin", begin_slowly)
    first, second = clients
    stream = "http://ex/early"
    declare(first, stream)
    assert first.ask("POST", "/queries", body=text_of("early", stream=stream), content_type=QUERY).status == 201
    for end in (1, 2):
        fill(first, end, stream)
    events = Events(second, "/queries/early/windows")
    assert [(kind, id) for kind, id, _ in events.take(2)] == [("window", 1000), ("window", 2000)]
    assert first.ask("DELETE", "/queries/early").status == 204


def test_many_queries_of_another_node_at_once(clients: list[Client]) -> None:
    first, second = clients
    stream = "http://ex/many"
    declare(first, stream)
    names = [f"many{n}" for n in range(20)]
    for name in names:
        assert first.ask("POST", "/queries", body=text_of(name, stream=stream), content_type=QUERY).status == 201
    found: dict[str, list[int]] = {}

    def read(name: str) -> None:
        events = Events(second, f"/queries/{name}/windows")
        found[name] = [id or 0 for _, id, _ in events.take(5)]
        events.response.close()

    threads = [threading.Thread(target=read, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for end in range(1, 6):
        fill(first, end, stream)
    for thread in threads:
        thread.join(60)
    assert found == {name: [1000, 2000, 3000, 4000, 5000] for name in names}
    for name in names:
        assert second.ask("DELETE", f"/queries/{name}").status == 204


def test_a_query_that_is_not_there(clients: list[Client]) -> None:
    for client in clients:
        assert client.ask("GET", "/queries/none/windows", accept=EVENTS).status == 404


def test_an_engine_without_a_way_to_the_others_says_where_the_windows_are(
    nodes: list[ClusterNode], clients: list[Client]
) -> None:
    stream = "http://ex/alone"
    declare(clients[0], stream)
    assert clients[0].ask("POST", "/queries", body=text_of("alone", stream=stream), content_type=QUERY).status == 201
    with served(nodes[1].engine) as alone:
        answer = alone.ask("GET", "/queries/alone/windows")
        assert (answer.status, "query alone runs at node 0" in answer.text) == (421, True)
    assert clients[0].ask("DELETE", "/queries/alone").status == 204


def report_of(event: Any) -> tuple[str, list[tuple[str, int]]]:
    rows = event["data"]["changes"]
    return event["event"], sorted((one["binding"]["s"]["value"], one["weight"]) for one in rows)


def test_each_node_has_the_reports_of_a_view(nodes: list[ClusterNode], clients: list[Client]) -> None:
    first, second = clients
    text = "REGISTER QUERY v AS SELECT ?s WHERE { ?s <http://ex/of> ?o }"

    def change(client: Client, update: str) -> None:
        assert client.ask("POST", "/sparql", body=update, content_type="application/sparql-update").status in (200, 204)
        nodes[0].engine.settle(60)

    def poll(client: Client, after: str | None) -> tuple[str, list[tuple[str, list[tuple[str, int]]]]]:
        path = "/queries/v/changes?timeout=20" + ("" if after is None else f"&after={after}")
        found = client.ask("GET", path, accept="application/json").json
        return found["after"], [report_of(event) for event in found["events"]]

    change(first, "INSERT DATA { <http://ex/a> <http://ex/of> <http://ex/b> }")
    assert first.ask("POST", "/queries", body=text, content_type=QUERY).status == 201
    told = second.ask("GET", "/queries/v").json
    assert (told["is_view"], told["node"]) == (True, 0)
    places = list[str]()
    for client in clients:
        after, events = poll(client, None)
        assert events == [("reset", [("http://ex/a", 1)])]
        places.append(after)
    change(second, "DELETE DATA { <http://ex/a> <http://ex/of> <http://ex/b> }")
    for client, place in zip(clients, places, strict=True):
        assert poll(client, place)[1] == [("change", [("http://ex/a", -1)])]
    change(first, "INSERT DATA { <http://ex/c> <http://ex/of> 1, 2 }")
    for client in clients:
        csv = client.ask("GET", "/queries/v/content", accept="text/csv")
        assert csv.text.split() == ["s", "http://ex/c", "http://ex/c"]
        after = csv.headers["Wukongs-Report"]
        change(
            client, "INSERT DATA { <http://ex/d> <http://ex/of> 3 } ; DELETE DATA { <http://ex/c> <http://ex/of> 2 }"
        )
        assert poll(client, after)[1] == [("change", [("http://ex/c", -1), ("http://ex/d", 1)])]
        change(
            client, "INSERT DATA { <http://ex/c> <http://ex/of> 2 } ; DELETE DATA { <http://ex/d> <http://ex/of> 3 }"
        )
    after, events = poll(second, None)
    assert events == [("reset", [("http://ex/c", 2)])]
    assert second.ask("POST", "/queries/v/bind", body="[]", content_type="application/json").status == 409
    assert second.ask("GET", "/queries/v/windows").status == 409
    assert second.ask("POST", "/queries/v/pause").status == 204
    assert first.ask("GET", "/queries/v/why").text.startswith("view v is paused")
    assert second.ask("POST", "/queries/v/resume").status == 204
    assert poll(second, after)[1] == [("reset", [("http://ex/c", 2)])]
    assert second.ask("DELETE", "/queries/v").status == 204


def events_at(client: Client, path: str) -> list[Any]:
    answer = client.ask("GET", path, accept="application/json")
    assert answer.status == 200, answer.text
    found: list[Any] = answer.json["events"]
    return found


def test_arguments_of_a_view_are_bound_at_each_node(nodes: list[ClusterNode], clients: list[Client]) -> None:
    second = clients[1]
    nodes[0].engine.update("INSERT DATA { <http://ex/a> <http://ex/of> 1 . <http://ex/b> <http://ex/of> 2 }")
    nodes[0].engine.register(
        "REGISTER QUERY v AS SELECT ?s WHERE { ?s <http://ex/of> ?o }", bindings=[{"s": "<http://ex/a>"}]
    )
    for number, client in enumerate(clients):
        body = json.dumps([{"s": "<http://ex/b>"}])
        assert client.ask("POST", "/queries/v/bind", body=body, content_type="application/json").json == {
            "numbers": [1 + number]
        }
        nodes[0].engine.settle(60)
    for client in clients:
        csv = client.ask("GET", "/queries/v/content", accept="text/csv")
        assert sorted(csv.text.split()) == ["0,http://ex/a", "1,http://ex/b", "2,http://ex/b", "argument,s"]
        after = csv.headers["Wukongs-Report"]
        path = f"/queries/v/changes?timeout=0.3&after={after}"
        assert events_at(client, path) == [], "the content has what was bound"
    assert second.ask("POST", "/queries/v/unbind", body="[2]", content_type="application/json").json == {"numbers": [2]}
    nodes[0].engine.settle(60)
    assert [report_of(event) for event in events_at(second, path.replace("timeout=0.3", "timeout=20"))] == [
        ("change", [("http://ex/b", -1)])
    ]
    refused = second.ask("POST", "/queries/v/unbind", body="[2]", content_type="application/json")
    assert (refused.status, "no argument has the number 2" in refused.text) == (400, True)


def test_reports_of_a_node_that_does_not_answer_are_asked_for_again(
    nodes: list[ClusterNode], clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = nodes[0].engine.register("REGISTER QUERY u AS SELECT ?s WHERE { ?s <http://ex/of> ?o }")

    def lose(relays: Relays, name: str) -> None:
        raise NodeUnavailable("no node answers")

    with monkeypatch.context() as patched:
        patched.setattr(Relays, "view", lose)
        answer = clients[1].ask("GET", "/queries/u/changes", accept="application/json")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert "events" not in answer.json
    assert [event["event"] for event in events_at(clients[1], "/queries/u/changes")] == ["reset"]
    view.close()


def test_a_face_without_a_way_to_other_nodes_says_where_a_view_stands(nodes: list[ClusterNode]) -> None:
    view = nodes[0].engine.register("REGISTER QUERY w AS SELECT ?s WHERE { ?s <http://ex/of> ?o }")
    with served(nodes[1].engine) as client:
        answer = client.ask("GET", "/queries/w/content")
        assert (answer.status, "stands at node 0" in answer.text) == (421, True)
    view.close()
