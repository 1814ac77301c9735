"""What the holder of a token or key may do over ZeroMQ: each call by each role, and an engine for some graphs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import wukongs
from tests.engine_helpers import A as S
from tests.engine_helpers import at
from tests.inside import core_of, ingest_of
from wukongs.errors import AccessError, SettingsError, StreamError
from wukongs.live.grants import ALL, ROLES, Grant, Role, read_grant
from wukongs.remote.calls import _OF_QUERY, _PLAIN, Calls
from wukongs.remote.client import RemoteEngine
from wukongs.remote.service import Service
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.keys import make_keys
from wukongs.wire.link import IngestLink
from wukongs.wire.trust import Trust

NAMES = ("read", "write", "admin", "g1", "w1", "two")
TOKENS = {name: f"{name}-is-the-token-of-this-holder" for name in NAMES}
GRANTS = {
    "read": "read",
    "write": "write",
    "admin": "admin",
    "g1": f"read http://ex/g1 {S}",
    "w1": f"write http://ex/g1 {S}",
    "two": "admin http://ex/g2 http://ex/s2 default",
}
QUERY = f"REGISTER QUERY {{}} AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] {{{{ ?s ?p ?o }}}}"


class Served:
    """An engine behind a socket, with a holder of each grant, known by token or by key."""

    def __init__(self, engine: wukongs.Engine, folder: Path, by: str, stack: ExitStack) -> None:
        self.engine, self._folder, self._by, self._stack = engine, folder, by, stack
        if by == "key":
            make_keys(folder / "node")
            lines = [f"{make_keys(folder / name)} {grant}" for name, grant in GRANTS.items()]
        else:
            lines = [f"{TOKENS[name]} {grant}  # {name}" for name, grant in GRANTS.items()]
        self.file = folder / "holders"
        self.file.write_text("\n".join(lines))
        self.file.chmod(0o600)
        service = Service(engine, core_of(engine).settings)
        stack.callback(service.close)
        self.socket = ClientSocket(
            "tcp://127.0.0.1:0", service.handlers, ingest_of(engine), quick=service.quick, trust=self.trust
        )
        stack.callback(self.socket.close)

    @property
    def trust(self) -> Trust:
        if self._by == "key":
            return Trust(str(self._folder / "node" / "key.secret"), str(self.file))
        return Trust(tokens_file=str(self.file))

    def shown(self, name: str) -> dict[str, Any]:
        if self._by == "key":
            return {"keys": (self._folder / name / "key.secret", self._folder / "node" / "key.pub")}
        return {"token": TOKENS[name]}

    def client(self, name: str) -> RemoteEngine:
        return self._stack.enter_context(wukongs.connect(self.socket.address, **self.shown(name)))


@pytest.fixture(params=["token", "key"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    with wukongs.Engine() as engine, ExitStack() as stack:
        engine.update(
            "PREFIX : <http://ex/> INSERT DATA { :d :p 'd' . GRAPH :g1 { :a :p 'one' } GRAPH :g2 { :b :q 'two' } }"
        )
        engine.stream(S, batch_ms=1000, timing=True)
        yield Served(engine, tmp_path, request.param, stack)


def table(**more: str) -> pyarrow.Table:
    columns = {"subject": "<http://ex/x>", "predicate": "<http://ex/p>", "object": "<http://ex/y>", **more}
    return pyarrow.table({name: [value] for name, value in columns.items()})


READS: dict[str, Callable[[RemoteEngine], Any]] = {
    "query": lambda client: client.query("ASK {}"),
    "query_many": lambda client: client.prepare("SELECT * { ?s ?p ?o }").many([{"s": "<http://ex/a>"}]),
    "explain": lambda client: client.explain("ASK { ?s ?p ?o }"),
    "warnings": lambda client: client.warnings("ASK { ?s ?p ?o }"),
    "graph_names": lambda client: client.graph_names(),
    "streams": lambda client: client.streams(),
    "stats": lambda client: client.stats(),
    "queries": lambda client: [(one.stats(), one.explain(), one.warnings(), one.why()) for one in client.queries()],
    "windows": lambda client: [list(one.results(timeout_s=0)) for one in client.queries()],
    "rules": lambda client: client.rules(),
    "stream": lambda client: client.stream(S, batch_ms=1000, timing=True),
    "settle": lambda client: client.settle(60),
}
WRITES: dict[str, Callable[[RemoteEngine], Any]] = {
    "update": lambda client: client.update("INSERT DATA { GRAPH <http://ex/g1> { <http://ex/n> <http://ex/p> 1 } }"),
    "apply": lambda client: client.apply(table(graph="<http://ex/g1>")),
    "load": lambda client: client.load(io.BytesIO(b"<http://ex/n> <http://ex/p> 2 ."), "http://ex/g1", format="ttl"),
    "push": lambda client: client.stream(S, batch_ms=1000, timing=True).push([at("a", 50)]),
    "advance": lambda client: client.stream(S, batch_ms=1000, timing=True).advance(1000),
    "push_many": lambda client: (client.stream(S, batch_ms=1000, timing=True), client.push_many({S: None}, 2000)),
}
ADMINS: dict[str, Callable[[RemoteEngine], Any]] = {
    "register": lambda client: client.register(QUERY.format("r")),
    "pause": lambda client: client.queries()[0].pause(),
    "resume": lambda client: client.queries()[0].resume(),
    "replace": lambda client: client.queries()[0].replace(QUERY.format("q")),
    "declare": lambda client: client.stream("http://ex/more"),
    "close": lambda client: [one.close() for one in client.queries()],
    "drop_stream": lambda client: client.drop_stream(S),
    "add_rules": lambda client: client.add_rules(
        "RULE r: CONSTRUCT { ?s <http://ex/r> ?o } WHERE { ?s <http://ex/p> ?o }"
    ),
    "drop_rules": lambda client: client.drop_rules("r"),
    "running": lambda client: client.running(),
    "checkpoint": lambda client: client.checkpoint(),
}


def test_each_call_needs_its_role(served: Served) -> None:
    clients = {name: served.client(name) for name in ("read", "write", "admin")}
    served.engine.drop_stream(S)
    stream = clients["admin"].stream(S, batch_ms=1000, timing=True)
    served.engine.register(QUERY.format("q"))
    for calls, roles in ((READS, ("read", "write")), (WRITES, ("write",)), (ADMINS, ())):
        for call in calls.values():
            for role in ("read", "write"):
                if role in roles:
                    call(clients[role])
                else:
                    with pytest.raises(AccessError, match=f"needs the role .* has {role}"):
                        call(clients[role])
    stream.push([at("b", 2050)])
    stream.advance(3000)
    of_stream = ("stream", "push", "advance", "push_many")  # which a client declares once
    for name, call in {**READS, **WRITES, **ADMINS}.items():
        if name not in of_stream:
            call(clients["admin"])


def test_each_call_of_a_client_has_a_role() -> None:
    with wukongs.Engine() as engine:
        calls = Calls(engine, engine.settings)
        known = {*calls._own, *_PLAIN, *(f"query.{name}" for name in _OF_QUERY)}
        assert known | {"load", "apply", "push_many", "stream.push"} <= ROLES.keys()


def test_a_reader_of_a_graph_has_an_engine_of_that_graph(served: Served) -> None:
    reader, writer, two = served.client("g1"), served.client("w1"), served.client("two")
    assert reader.query("SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }").texts() == [('"one"',)]
    assert two.query("SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } } ORDER BY ?o").texts() == [
        ('"d"',),
        ('"two"',),
    ]
    assert (reader.graph_names(), two.graph_names()) == (["http://ex/g1"], ["http://ex/g2"])
    assert (reader.streams(), two.streams()) == ([S], [])
    assert set(reader.stats()["streams"]) == {S}
    many = reader.prepare("SELECT ?o { GRAPH ?g { ?s ?p ?o } }").many([{"s": "<http://ex/a>"}, {"s": "<http://ex/b>"}])
    assert many.num_rows == 1
    for call in (
        lambda: reader.dump("/nowhere/there.nt", "http://ex/g2"),
        lambda: writer.update("CLEAR GRAPH <http://ex/g2>"),
        lambda: writer.update("LOAD <file:///etc/hostname> INTO GRAPH <http://ex/g1>"),
        lambda: writer.apply(table(graph="<http://ex/g2>")),
        lambda: writer.apply(table()),
        lambda: writer.load(io.BytesIO(b"<a:n> <a:p> <a:o> <http://ex/g2> ."), format="nq"),
        lambda: two.stream(S, batch_ms=1000, timing=True),
        lambda: two.stream("http://ex/s2", into="http://ex/g1"),
        lambda: two.register(QUERY.format("q")),
        lambda: two.running(),
        lambda: two.checkpoint(),
        lambda: two.add_rules("RULE r: CONSTRUCT { ?s ?p ?o } WHERE { GRAPH <http://ex/g1> { ?s ?p ?o } }"),
        lambda: writer.stream(S, batch_ms=1000, timing=True).push_arrow(
            table(graph="<http://ex/g2>").append_column("timestamp_ms", [[50]])
        ),
    ):
        with pytest.raises(AccessError):
            call()
    writer.apply(table(graph="<http://ex/g1>"))
    assert two.update("CLEAR ALL") == served.engine.stats()["sn"]
    assert served.engine.graph_names() == ["http://ex/g1"]


def test_a_query_is_read_by_who_sees_its_graphs(served: Served) -> None:
    served.engine.register(QUERY.format("all"))
    text = "REGISTER QUERY some AS SELECT ?s ?o FROM NAMED <http://ex/g1> FROM NAMED <http://ex/g2> "
    text += f"FROM STREAM <{S}> [RANGE 1s STEP 1s] {{ {{ ?s ?p ?o }} UNION "
    text += "{ GRAPH ?g { ?s ?p ?o } } }"  # of stored graphs those of the list alone
    admin = served.client("admin")
    admin.register(text, graphs=[S, "http://ex/g1"])
    again = served.client("admin").register(text, graphs=["http://ex/g1", S, S])
    assert again.name == "some"  # the order of a list is none
    with pytest.raises(StreamError, match="some"):
        served.client("admin").register(text)
    two = served.client("two")
    with pytest.raises(AccessError, match="may not register a query for <http://ex/g1>"):
        two.register(text.replace("some", "other"), graphs=["default", "http://ex/g1"])
    with pytest.raises(AccessError, match=f"may not read <{S}>"):
        admin.register(text.replace("some", "other"), graphs=["http://ex/g1"])
    with pytest.raises(SettingsError, match="graphs = 'http://ex/g1': expected a list of IRIs"):
        admin.register(text.replace("some", "other"), graphs="http://ex/g1")
    two.stream("http://ex/s2", batch_ms=1000, timing=True)
    two.register(QUERY.format("mine").replace(S, "http://ex/s2"))
    names = {name: sorted(one.name for one in served.client(name).queries()) for name in NAMES}
    assert names == {
        "read": ["all", "mine", "some"],
        "write": ["all", "mine", "some"],
        "admin": ["all", "mine", "some"],
        "g1": ["some"],
        "w1": ["some"],
        "two": ["mine"],
    }
    stream = served.client("write").stream(S, batch_ms=1000, timing=True)
    stream.push([at("a", 50)])
    stream.advance(1000)
    (query,) = served.client("g1").queries()
    rows = next(iter(query.results(timeout_s=60))).texts()
    assert sorted(rows) == [("<http://ex/a>", '"one"'), ("<http://ex/a>", "<http://ex/o>")]
    with pytest.raises(AccessError, match="query: close needs the role admin"):
        query.close()


def test_pipelines_push_by_who_may_write_to_all_graphs(served: Served) -> None:
    from wukongs.wire.trust import read_keys

    def opened(name: str) -> None:
        shown = served.shown(name)
        given = {"token": shown.get("token"), "keys": read_keys(*map(str, shown["keys"])) if "keys" in shown else None}
        with IngestLink([served.socket.address], timeout_s=20, **given) as link:
            link.open(S, "part-0", 1)

    opened("write")
    for name, told in (("read", "ingest needs the role write"), ("w1", "ingest concerns all graphs")):
        with pytest.raises(AccessError, match=told):
            opened(name)


def test_another_grant_counts_for_the_next_call(served: Served) -> None:
    client = served.client("w1")
    client.update("INSERT DATA { GRAPH <http://ex/g1> { <http://ex/n> <http://ex/p> 1 } }")
    served.file.write_text(served.file.read_text().replace("write http://ex/g1", "read http://ex/g2"))
    served.socket.use(served.trust.read())
    assert client.query("SELECT ?o { GRAPH ?g { ?s ?p ?o } }").texts() == [('"two"',)]
    with pytest.raises(AccessError, match="needs the role write"):
        client.update("CLEAR ALL")


def test_lines_of_grants() -> None:
    assert read_grant("f", []) == read_grant("f", ["#", "of", "alice"]) == read_grant("f", ["#alice"]) == ALL
    assert read_grant("f", ["admin", "#", "x"]) == ALL
    assert read_grant("f", ["read"]) == Grant(Role.READ)
    graphs = frozenset({"http://ex/g", "urn:x:y", DEFAULT_GRAPH_IRI})
    assert read_grant("f", ["write", "<http://ex/g>", "urn:x:y", "default", "#", "of"]) == Grant(Role.WRITE, graphs)
    for words, told in (
        (["alice"], r"t, line 1: expected read, write or admin .* or # before a comment; found 'alice'"),
        (["Read"], "expected read, write or admin"),
        (["http://ex/g"], "expected read, write or admin"),
        (["read", "of", "alice"], r"expected the IRI of a graph or stream, such as .*, or default; .* found 'of'"),
        (["read", "<http://ex/g"], "expected the IRI of a graph"),
        (["read", "http://ex/g,http://ex/h>"], "expected the IRI of a graph"),
    ):
        with pytest.raises(wukongs.SettingsError, match=told):
            read_grant("t, line 1", words)


def test_who_needs_two_has_what_both_allow() -> None:
    one, two = Grant(Role.READ, frozenset({"a:a", "a:b"})), Grant(Role.ADMIN, frozenset({"a:b", "a:c"}))
    assert one.within(two) == two.within(one) == Grant(Role.READ, frozenset({"a:b"}))
    assert one.within(ALL) == ALL.within(one) == one
