"""What the holder of a token may do over HTTP: each path by each role, and a server as it is for some graphs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import wukongs
from tests.engine_helpers import A as S
from tests.unit.server.asking import QUERY, UPDATE, Answer, Client
from wukongs.server import pages
from wukongs.server.http_server import HttpServer, HttpSettings

ROLES = ("read", "write", "admin")
HOLDERS = {name: f"{name}-is-the-token-of-this-holder" for name in (*ROLES, "g1", "g2", "w1", "old")}
TOKENS = f"""# tokens of this test
{HOLDERS["read"]} read
{HOLDERS["write"]} write   # who pushes
{HOLDERS["admin"]} admin
{HOLDERS["g1"]} read <http://ex/g1> {S}
{HOLDERS["g2"]} admin http://ex/g2 http://ex/s2 default
{HOLDERS["w1"]} write http://ex/g1 {S} http://ex/timed
{HOLDERS["old"]}
"""
FILLED = """PREFIX : <http://ex/> DROP ALL;
INSERT DATA { :d :p 'default' . GRAPH :g1 { :a :p 'one' } GRAPH :g2 { :b :q 'two' } }"""
TTL, JSON = "text/turtle", "application/json"
REGISTER = f"REGISTER QUERY {{}} AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] {{{{ ?s ?p ?o }}}}"


class Holder:
    """Asks with one token."""

    def __init__(self, client: Client, holder: str) -> None:
        self._client, self._headers = client, {"Authorization": f"Bearer {HOLDERS[holder]}"}

    def ask(self, method: str, path: str, *args: object, headers: Mapping[str, str] = {}, **more: object) -> Answer:
        return self._client.ask(method, path, *args, headers={**self._headers, **headers}, **more)  # type: ignore[arg-type]

    def query(self, text: str, **fields: str) -> Answer:
        return self.ask("POST", "/sparql", fields, body=text, content_type=QUERY)

    def update(self, text: str) -> Answer:
        return self.ask("POST", "/sparql", body=text, content_type=UPDATE)

    def register(self, text: str, **options: object) -> Answer:
        return self.ask("POST", "/queries", body=json.dumps({"text": text, **options}), content_type=JSON)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text(TOKENS)
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[tuple[wukongs.Engine, HttpServer]]:
    with wukongs.Engine() as engine:
        server = HttpServer(engine, HttpSettings(port=0, tokens_file=str(file)))
        try:
            yield engine, server
        finally:
            server.close()


@pytest.fixture
def engine(server: tuple[wukongs.Engine, HttpServer]) -> wukongs.Engine:
    """An engine with three graphs, and a stream of its own."""
    engine, _ = server
    for query in engine.queries():
        query.close()
    for stream in engine.streams():
        engine.drop_stream(stream)
    engine.update(FILLED)
    engine.stream(S, batch_ms=1000, timing=True)
    return engine


@pytest.fixture
def holders(engine: wukongs.Engine, server: tuple[wukongs.Engine, HttpServer]) -> Mapping[str, Holder]:
    client = Client(server[1].address)
    return {name: Holder(client, name) for name in HOLDERS}


LINE = "<http://ex/a> <http://ex/p> <http://ex/b> . 100"
MATRIX = [
    ("GET", "/sparql?query=ASK%7B%7D", None, None, "read"),
    ("GET", "/sparql", None, None, "read"),
    ("HEAD", "/sparql?query=ASK%7B%7D", None, None, "read"),
    ("POST", "/sparql", "ASK {}", QUERY, "read"),
    ("POST", "/sparql?explain=plan", "ASK { ?s ?p ?o }", QUERY, "read"),
    ("POST", "/sparql", "query=ASK%7B%7D", "application/x-www-form-urlencoded", "read"),
    ("POST", "/sparql", "INSERT DATA { <http://ex/n> <http://ex/p> 1 }", UPDATE, "write"),
    ("POST", "/sparql", "update=CLEAR+DEFAULT", "application/x-www-form-urlencoded", "write"),
    ("GET", "/store?default", None, None, "read"),
    ("GET", "/store", None, None, "read"),
    ("PUT", "/store?graph=http://ex/g9", "<http://ex/a> <http://ex/p> 1 .", TTL, "write"),
    ("POST", "/store?graph=http://ex/g9", "<http://ex/a> <http://ex/p> 1 .", TTL, "write"),
    ("DELETE", "/store?graph=http://ex/g1", None, None, "write"),
    ("GET", "/streams", None, None, "read"),
    ("GET", f"/streams/{S}", None, None, "read"),
    ("POST", f"/streams/{S}", LINE, "application/n-triples", "write"),
    ("POST", "/streams", json.dumps({"iri": S, "batch_ms": 1000, "timing": True}), JSON, "read"),
    ("POST", "/streams", json.dumps({"iri": "http://ex/more"}), JSON, "admin"),
    ("POST", f"/streams/{S}/close", None, None, "write"),
    ("GET", "/queries", None, None, "read"),
    ("GET", "/queries/q", None, None, "read"),
    ("GET", "/queries/q/why", None, None, "read"),
    ("GET", "/queries/q/explain", None, None, "read"),
    ("GET", "/queries/q/windows?timeout=0.05", None, None, "read"),
    ("GET", "/queries/v/changes?timeout=0.05", None, None, "read"),
    ("GET", "/queries/v/content", None, None, "read"),
    ("POST", "/queries/v/bind", '[{"s": "<http://ex/a>"}]', JSON, "admin"),
    ("POST", "/queries/v/unbind", "[0]", JSON, "admin"),
    ("POST", "/queries/q/pause", None, None, "admin"),
    ("POST", "/queries/q/resume", None, None, "admin"),
    ("PUT", "/queries/q", REGISTER.format("q"), QUERY, "admin"),
    ("POST", "/queries", REGISTER.format("r"), QUERY, "admin"),
    ("DELETE", "/queries/q", None, None, "admin"),
    ("DELETE", f"/streams/{S}", None, None, "admin"),
    ("GET", "/stats", None, None, "read"),
    ("GET", "/metrics", None, None, "read"),
    ("GET", "/openapi.json", None, None, "read"),
]


def described_of(holder: Holder, method: str, path: str) -> dict[str, Any]:
    """Return what /openapi.json says of the answers to a request."""
    names = {f"/streams/{S}": "/streams/{name}", "/queries/q": "/queries/{name}", "/queries/v": "/queries/{name}"}
    path = path.partition("?")[0]
    for name, said in names.items():
        path = path.replace(name, said)
    found = holder.ask("GET", "/openapi.json").json["paths"][path]
    return found["get" if method == "HEAD" else method.lower()]["responses"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("method", "path", "body", "kind", "needed"), MATRIX, ids=lambda one: str(one)[:40])
def test_each_path_needs_its_role(
    engine: wukongs.Engine,
    holders: Mapping[str, Holder],
    method: str,
    path: str,
    body: str | None,
    kind: str | None,
    needed: str,
) -> None:
    query = engine.register(REGISTER.format("q"))
    engine.register("REGISTER QUERY v AS SELECT ?o WHERE { ?s ?p ?o }", bindings=[{"s": "<http://ex/a>"}])
    told = described_of(holders["admin"], method, path)
    for role in ROLES:
        if method == "DELETE" and path.startswith("/streams"):
            query.close()
        answer = holders[role].ask(method, path, body=body, content_type=kind)
        if ROLES.index(role) < ROLES.index(needed):
            assert answer.status == 403
            assert f"needs the role {needed}, this token or key has {role}" in answer.text
            assert needed in told["403"]["description"]
            assert answer.headers["Content-Type"].partition(";")[0] in told["403"]["content"]
        else:
            assert answer.status in (200, 201, 204), answer.text
            assert str(answer.status) in told
            assert answer.headers["Wukongs-Role"] == role
            return


def test_all_paths_are_in_the_matrix() -> None:
    from wukongs.server.openapi import described

    asked = {(method, path.partition("?")[0].replace("/queries/v/", "/queries/q/")) for method, path, *_ in MATRIX}
    told = {
        (method.upper(), path.replace("{name}", S if path.startswith("/streams") else "q"))
        for path, methods in described("")["paths"].items()
        for method in methods
    }
    assert told - asked <= {("GET", "/"), ("GET", "/healthz"), ("GET", "/readyz")}


def test_the_console_of_a_limited_token_asks_nothing_that_is_refused(
    engine: wukongs.Engine, holders: Mapping[str, Holder]
) -> None:
    """What its scripts ask by themselves, without a button that is pressed."""
    engine.register(REGISTER.format("q"), graphs=[S])
    learned = "SELECT ?p (COUNT(*) AS ?n) { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } } GROUP BY ?p"
    by_itself = [
        "sparql?query=ASK%7B%7D",
        "queries?brief",
        "queries/q",
        "queries/q/why",
        "stats",
        "stats?only=streams&only=held_back_by",
        "streams",
    ]
    scripts = "".join(script.read_text("utf-8") for script in pages.FOLDER.glob("*.js"))
    literal = set(re.findall(r'json\("([^"]+)"\)', scripts))
    assert literal
    assert literal <= set(by_itself)
    for holder in ("read", "g1"):
        for path in by_itself:
            assert holders[holder].ask("GET", f"/{path}").status == 200, path
        assert holders[holder].query(learned, timeout="2").status == 200
    queries = holders["g1"].ask("GET", "/stats").json["queries"]
    assert {"windows", "rows", "execution_us_p50", "latency_us_p50", "errors", "results_waiting"} <= queries["q"].keys()


def test_each_refusal_is_described(holders: Mapping[str, Holder], server: tuple[wukongs.Engine, HttpServer]) -> None:
    """A stranger is a 401 where the description has one and nowhere else; what concerns all graphs says so."""
    paths = holders["admin"].ask("GET", "/openapi.json").json["paths"]
    for path, methods in paths.items():
        for method, told in methods.items():
            answer = Client(server[1].address).ask(method.upper(), path.replace("{name}", "q"))
            assert (answer.status == 401) == ("401" in told["responses"]) == ("security" not in told), (method, path)
            limited = holders["g2"].ask(method.upper(), path.replace("{name}", "q"))
            concerns = "without a list of graphs" in told["responses"].get("403", {}).get("description", "")
            assert (limited.status == 403 and "concerns all graphs" in limited.text) == concerns, (method, path)


def test_a_registration_is_described_with_its_options(holders: Mapping[str, Holder], engine: wukongs.Engine) -> None:
    call = holders["admin"].ask("GET", "/openapi.json").json["paths"]["/queries"]["post"]
    schema = call["requestBody"]["content"][JSON]["schema"]
    assert (schema["required"], schema["properties"]["graphs"]["type"]) == (["text"], "array")
    text, given = (
        REGISTER.format("q"),
        {"graphs": [S], "bindings": [{"s": "<http://ex/a>"}], "unread_bytes_max": 1 << 20},
    )
    others = {"base": "http://ex/", "output": "rstream", "unread": "drop"}
    of_views = {"snapshot", "every_ms", "keep", "into"}
    assert given.keys() | others.keys() | of_views | {"text"} == schema["properties"].keys()
    assert holders["admin"].register(text, **given, **others).status == 201


def test_a_token_without_a_role_may_do_all(holders: Mapping[str, Holder], engine: wukongs.Engine) -> None:
    assert holders["old"].register(REGISTER.format("q")).status == 201
    assert holders["old"].ask("DELETE", "/queries/q").status == 204
    assert holders["old"].query("SELECT * { GRAPH ?g { ?s ?p ?o } }").text.count("literal") == 2


def test_a_reader_of_a_graph_has_a_server_of_that_graph(holders: Mapping[str, Holder]) -> None:
    g1 = holders["g1"]
    assert g1.query("SELECT ?g { GRAPH ?g { ?s ?p ?o } }").values == ["g1"]
    assert g1.query("SELECT ?o { ?s ?p ?o }").values == []
    for field in ("default-graph-uri", "named-graph-uri"):
        fields = {field: "http://ex/g2"}
        assert g1.query("SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }", **fields).values == []
    assert g1.ask("GET", "/store?graph=http://ex/g1").status == 200
    assert g1.ask("GET", "/store?graph=http://ex/g2").status == 404
    for answer in (
        g1.ask("GET", "/store"),
        g1.ask("GET", "/sparql"),
        g1.ask("GET", "/stats"),
        g1.ask("GET", "/streams"),
        g1.query("DESCRIBE <http://ex/a> <http://ex/b>"),
        g1.query("SELECT * { GRAPH <http://ex/g22> { ?s <http://ex/qq> ?o } }"),
        g1.query("SELECT * { GRAPH ?g { ?s ?p ?o } }", explain="analyze"),
    ):
        assert answer.status == 200, answer.text
        assert "g2>" not in answer.text + str(answer.headers), answer.text
        assert '"two"' not in answer.text
    assert set(g1.ask("GET", "/stats").json) == {"sn", "streams", "queries"}
    answer = g1.ask("GET", "/metrics")
    assert (answer.status, "metrics concerns all graphs" in answer.text) == (403, True)
    assert "over HTTP" not in g1.update("LOAD <file:///etc/passwd>").text


def test_a_writer_of_a_graph_changes_that_graph_alone(engine: wukongs.Engine, holders: Mapping[str, Holder]) -> None:
    w1 = holders["w1"]
    assert w1.update("INSERT DATA { GRAPH <http://ex/g1> { <http://ex/n> <http://ex/p> 1 } }").status == 204
    triples = '<http://ex/n> <http://ex/p> "2" .'
    assert w1.ask("PUT", "/store?graph=http://ex/g1", body=triples, content_type=TTL).status == 204
    refused = [
        w1.update("INSERT DATA { <http://ex/n> <http://ex/p> 1 }"),
        w1.update("DROP GRAPH <http://ex/g2>"),
        w1.update("INSERT { GRAPH ?g { <http://ex/n> <http://ex/p> 1 } } WHERE { VALUES ?g { <http://ex/g2> } }"),
        w1.ask("PUT", "/store?graph=http://ex/g2", body=triples, content_type=TTL),
        w1.ask("PUT", "/store?default", body=triples, content_type=TTL),
        w1.ask("POST", "/store?graph=http://ex/g2", body=triples, content_type=TTL),
        w1.ask("POST", "/store", body=triples, content_type=TTL),
        w1.ask("POST", "/store", body=f"<http://ex/g2> {{ {triples} }}", content_type="application/trig"),
        w1.ask("POST", "/store", body=triples[:-1] + "<http://ex/g2> .", content_type="application/n-quads"),
    ]
    assert [(answer.status, "not on its list" in answer.text) for answer in refused] == [(403, True)] * len(refused)
    assert w1.ask("DELETE", "/store?graph=http://ex/g2").status == 404
    assert w1.update("CLEAR ALL").status == 204
    found = engine.query("SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }").texts()
    assert sorted(found) == [('"default"',), ('"two"',)]


def test_what_is_pushed_joins_the_graphs_of_the_list(engine: wukongs.Engine, holders: Mapping[str, Holder]) -> None:
    engine.stream("http://ex/timed", batch_ms=1000)  # its tuples join the default graph
    engine.stream("http://ex/s2", batch_ms=1000, timing=True)
    w1, lines = holders["w1"], "application/n-quads"
    assert w1.ask("POST", f"/streams/{S}", body=LINE, content_type="application/n-triples").status == 200
    in_g2 = LINE.replace(" . ", " <http://ex/g2> . ")
    for path, body in (("http://ex/timed", LINE), (S, in_g2), ("http://ex/s2", LINE)):
        answer = w1.ask("POST", f"/streams/{path}", body=body, content_type=lines)
        assert answer.status in (403, 404), answer.text
    assert [one["iri"] for one in w1.ask("GET", "/streams").json] == [S, "http://ex/timed"]
    assert w1.ask("GET", "/streams/http://ex/s2").status == 404


def test_a_query_keeps_the_graphs_of_who_registers_it(engine: wukongs.Engine, holders: Mapping[str, Holder]) -> None:
    engine.stream("http://ex/s2", batch_ms=1000, timing=True)
    joined = "REGISTER QUERY {} AS SELECT ?s ?o FROM STREAM <{}> [RANGE 1s STEP 1s] FROM NAMED <http://ex/g1> "
    joined += "FROM NAMED <http://ex/g2> {{ ?s ?p ?x . GRAPH ?g {{ ?s2 ?q ?o }} }}"
    admin, g1, g2 = holders["admin"], holders["g1"], holders["g2"]
    assert admin.register(joined.format("all", S)).status == 201
    assert admin.register(joined.format("one", S), graphs=["http://ex/g1", S]).status == 201
    assert g2.register(joined.format("two", "http://ex/s2")).status == 201
    for text in (
        joined.format("three", S),
        f"REGISTER STREAM t AS CONSTRUCT {{ ?s ?p ?o }} FROM STREAM <{S}> [RANGE 1s STEP 1s] {{ ?s ?p ?o }}",
    ):
        answer = g2.register(text)
        assert (answer.status, f"may not read <{S}>" in answer.text) == (403, True)
    assert g2.register(joined.format("four", "http://ex/s2"), graphs=["http://ex/g1"]).status == 403
    names = {who: [one["name"] for one in holders[who].ask("GET", "/queries").json] for who in ("admin", "g1", "g2")}
    assert names == {"admin": ["all", "one", "two"], "g1": ["one"], "g2": ["two"]}
    for path in ("/queries/two", "/queries/all/windows?timeout=0.05", "/queries/two/why", "/queries/all/explain"):
        answer = g1.ask("GET", path)
        assert (answer.status, "Registered: one" in answer.text) == (404, True)
    assert g2.ask("DELETE", "/queries/one").status == 404
    for stream in (S, "http://ex/s2"):
        engine.declared(stream).push([("<http://ex/x>", "<http://ex/p>", "<http://ex/y>", 100)])
        engine.declared(stream).advance(1000)
    engine.settle(60)
    rows = {}
    for who, name in (("g1", "one"), ("g2", "two"), ("admin", "all")):
        (event,) = holders[who].ask("GET", f"/queries/{name}/windows").json["events"]
        rows[name] = sorted(row["o"]["value"] for row in event["data"]["results"]["bindings"])
    assert rows == {"one": ["one"], "two": ["two"], "all": ["one", "two"]}
    # another text reads no more than the first one might
    wider = joined.format("one", S).replace("FROM NAMED <http://ex/g1> ", "FROM NAMED <http://ex/g2> ")
    assert admin.ask("PUT", "/queries/one", body=wider, content_type=QUERY).status == 200
    answer = admin.ask("PUT", "/queries/one", body=joined.format("one", "http://ex/s2"), content_type=QUERY)
    assert (answer.status, "may not read <http://ex/s2>" in answer.text) == (403, True)
    engine.declared(S).push([("<http://ex/x>", "<http://ex/p>", "<http://ex/y>", 1100)])
    engine.declared(S).advance(2000)
    engine.settle(60)
    events = g1.ask("GET", "/queries/one/windows").json["events"]
    assert [row for event in events[1:] for row in event["data"]["results"]["bindings"]] == []
    assert [one["iri"] for one in g2.ask("GET", "/streams").json] == ["http://ex/s2"]


def test_a_derived_stream_is_read_by_who_sees_what_it_is_made_of(
    engine: wukongs.Engine, holders: Mapping[str, Holder]
) -> None:
    derived = f"REGISTER STREAM <{{}}> AS CONSTRUCT {{{{ ?s ?p ?o }}}} FROM STREAM <{S}> [RANGE 1s STEP 1s] "
    derived += "{{ ?s ?p ?o }}"
    read = "REGISTER QUERY {} AS SELECT ?s FROM STREAM <{}> [RANGE 1s STEP 1s] {{ ?s ?p ?o }}"
    admin = holders["admin"]
    assert admin.register(derived.format("http://ex/s2")).status == 201  # which is on the list of g2
    assert admin.register(derived.format("http://ex/mine"), graphs=[S]).status == 201
    answer = holders["g2"].register(read.format("q", "http://ex/s2"))
    assert (answer.status, "may not read <http://ex/s2>" in answer.text) == (403, True)
    assert admin.register(read.format("q", "http://ex/mine"), graphs=[S]).status == 201
    assert [one["name"] for one in holders["g1"].ask("GET", "/queries").json] == ["http://ex/mine", "q"]


def test_who_follows_is_let_go_when_its_token_may_do_something_else(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{HOLDERS['read']} read {S}\n{HOLDERS['admin']}\n")
    file.chmod(0o600)
    with ExitStack() as stack:
        engine = stack.enter_context(wukongs.Engine())
        engine.stream(S, batch_ms=1000, timing=True)
        engine._seeing([S]).register(REGISTER.format("q"))
        server = HttpServer(engine, HttpSettings(port=0, tokens_file=str(file)))
        stack.callback(server.close)
        address = server.address.replace("http", "ws", 1) + "/queries/q/windows"
        socket = stack.enter_context(
            connect(address, additional_headers={"Authorization": f"Bearer {HOLDERS['read']}"})
        )
        file.write_text(f"{HOLDERS['read']} read http://ex/g1\n")
        server.reload_trust()
        assert "has changed meanwhile" in str(socket.recv(timeout=30))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)
        with connect(address, additional_headers={"Authorization": f"Bearer {HOLDERS['read']}"}) as again:
            assert "there is no query named q" in str(again.recv(timeout=30))
        file.write_text(f"{HOLDERS['read']} reed\n")
        with pytest.raises(wukongs.SettingsError, match=r"tokens, line 1: expected read, write or admin .*'reed'"):
            server.reload_trust()
