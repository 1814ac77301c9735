"""SERVICE: what other endpoints answer, joined with what is here; those not allowed, that fail, lie or dawdle."""

from __future__ import annotations

import json
import random
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import parse_qs

import pyoxigraph
import pytest

import wukongs
from tests.unit.server.asking import served
from wukongs.query.execution import services

EX = "http://ex/"
REMOTE = f"{EX}remote"
Served = Callable[..., str]


@pytest.fixture(scope="module")
def remote() -> Iterator[tuple[wukongs.Engine, str]]:
    with wukongs.Engine() as engine, served(engine) as client:
        yield engine, f"{client.address}/sparql"


def allowing(*places: str, **options: int) -> wukongs.Engine:
    return wukongs.Engine(settings=wukongs.Settings(service_allowed=places, **options))


PATTERNS = [
    "?s :p ?o SERVICE <AT> { ?o :q ?x }",
    "SERVICE <AT> { ?s :p ?o }",
    "SERVICE <AT> { ?s :p ?o . FILTER(?o != :n3) } ?o :q ?x",
    "?s :p ?o OPTIONAL { SERVICE <AT> { ?o :q ?x OPTIONAL { ?x :p ?y } } }",
    "?s :p ?o OPTIONAL { ?s :q ?y } SERVICE <AT> { ?o :q ?x OPTIONAL { ?x :q ?y } }",
    "?s :p ?o FILTER EXISTS { SERVICE <AT> { ?o :q ?x } }",
    "?s :p ?o FILTER NOT EXISTS { SERVICE <AT> { ?o :p ?s } }",
    "?s :p ?o MINUS { SERVICE <AT> { ?o :q ?x } }",
    "{ ?s :p ?o } UNION { SERVICE <AT> { ?s :q ?o } }",
    "SERVICE <AT> { ?s :p ?o } SERVICE <AT> { ?o :q ?x }",
    "?s :p ?o { SELECT ?o (COUNT(?x) AS ?n) { SERVICE <AT> { ?o :q ?x } } GROUP BY ?o }",
    "?s :p ?o SERVICE <AT> { { SELECT ?o (COUNT(*) AS ?n) { ?o ?p ?x } GROUP BY ?o } }",
    "?s :p :n1 SERVICE <AT> { :n1 :q :n2 }",
    "VALUES (?s ?o) { (UNDEF :n1) (:n2 UNDEF) (:n3 :n4) } SERVICE <AT> { ?s :p ?o }",
    'BIND("a\\"b"@en AS ?l) SERVICE <AT> { BIND(STRLEN(?l) AS ?n) ?s :p :n1 }',
]


@pytest.mark.parametrize("block_rows", [3, 200])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_if_both_were_one_dataset(
    remote: tuple[wukongs.Engine, str], pattern: str, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle has the endpoint's data in a named graph, and another engine evaluates the group there."""
    monkeypatch.setattr(services, "BLOCK_ROWS", block_rows)
    rng = random.Random(repr((pattern, block_rows)))
    there, at = remote
    sides = ["".join(_triples(rng)) for _ in range(2)]
    there.update(f"CLEAR ALL ; INSERT DATA {{ {sides[1]} }}")
    oracle = pyoxigraph.Store()
    oracle.update(f"INSERT DATA {{ {sides[0]} GRAPH <{REMOTE}> {{ {sides[1]} }} }}")
    asked = f"PREFIX : <{EX}> SELECT * {{ {pattern} }}"
    with allowing(at) as engine:
        engine.update(f"INSERT DATA {{ {sides[0]} }}")
        found = engine.query(asked.replace("AT", at))
    expected = oracle.query(asked.replace("AT", REMOTE).replace("SERVICE", "GRAPH"))
    assert isinstance(expected, pyoxigraph.QuerySolutions)
    names = [variable.value for variable in expected.variables]
    by_name = Counter(
        frozenset((name, term.n3()) for name, term in zip(found.vars, row, strict=True) if term is not None)
        for row in found
    )
    wanted = Counter(
        frozenset((name, str(term)) for name in names if (term := row[name]) is not None) for row in expected
    )
    assert by_name == wanted


def _triples(rng: random.Random) -> Iterator[str]:
    for _ in range(25):
        yield f"<{EX}n{rng.randrange(8)}> <{EX}{rng.choice('pq')}> <{EX}n{rng.randrange(8)}> . "


def test_only_what_joins_is_asked_for(remote: tuple[wukongs.Engine, str]) -> None:
    there, at = remote
    rows = "".join(f"<{EX}n{n}> <{EX}q> {n} . " for n in range(2000))
    there.update(f"CLEAR ALL ; INSERT DATA {{ {rows} }}")
    with allowing(at, rows_max=700) as engine:
        engine.update(f"INSERT DATA {{ {''.join(f'<{EX}n{n}> <{EX}p> 1 . ' for n in range(0, 2000, 4))} }}")
        found = engine.query(f"SELECT ?s ?o {{ ?s <{EX}p> 1 SERVICE <{at}> {{ ?s <{EX}q> ?o }} }}")
        assert sorted(int(str(row[1])) for row in found) == [*range(0, 2000, 4)]
        with pytest.raises(wukongs.BudgetExceeded, match="rows_max = 700"):
            engine.query(f"SELECT ?s ?o {{ SERVICE <{at}> {{ ?s <{EX}q> ?o }} }}")
        plan = engine.explain(f"SELECT ?s ?o {{ ?s <{EX}p> 1 SERVICE <{at}> {{ ?s <{EX}q> ?o }} }}")
        assert f"Service <{at}> ?o ?s" in plan


def test_blank_nodes_of_an_endpoint_are_none_of_ours(remote: tuple[wukongs.Engine, str]) -> None:
    there, at = remote
    there.update(f"CLEAR ALL ; INSERT DATA {{ _:a <{EX}q> _:b . _:b <{EX}q> _:b }}")
    with allowing(at) as engine:
        engine.update(f"INSERT DATA {{ _:a <{EX}p> _:b }}")
        rows = list(engine.query(f"SELECT * {{ SERVICE <{at}> {{ ?s <{EX}q> ?o }} }}"))
        assert len({term for row in rows for term in row}) == 2
        assert not list(engine.query(f"SELECT * {{ ?s <{EX}p> ?o SERVICE <{at}> {{ ?s <{EX}q> ?x }} }}"))


# --- endpoints that are not allowed, fail, lie or dawdle --------------------------------------------------------------


@contextmanager
def endpoint(answer: Callable[[bytes], Iterator[bytes]]) -> Iterator[str]:
    """A server that answers each request with some bytes, as they are."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while (line := self.rfile.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            try:
                for part in answer(self.rfile.read(length)):
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                pass

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/sparql"
        server.shutdown()
        thread.join()


def told(body: object, status: str = "200 OK", length: int | None = None) -> Callable[[bytes], Iterator[bytes]]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(text) if length is None else length}\r\n\r\n"
    return lambda _: iter([head.encode() + text])


def endless(part: bytes, pause_s: float = 0) -> Callable[[bytes], Iterator[bytes]]:
    def answer(_: bytes) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n"
        while True:
            yield part
            time.sleep(pause_s)

    return answer


def solution(term: object) -> object:
    return {"head": {"vars": ["s"]}, "results": {"bindings": [{"s": term}]}}


LIES = {
    "no JSON": (told(b'{"results": {"bindings": ['), "expected SPARQL JSON results"),
    "other JSON": (told([1]), "expected SPARQL JSON results"),
    "no rows": (told({"boolean": True}), "expected SPARQL JSON results"),
    "rows that are none": (told({"results": {"bindings": [1]}}), "expected a solution, found 1"),
    "a term that is none": (told(solution("x")), "expected a term of RDF 1.1"),
    "an IRI that is none": (told(solution({"type": "uri", "value": "a> <b"})), "expected a term of RDF 1.1"),
    "half of a pair": (told(solution({"type": "literal", "value": "\ud800"})), "expected a term of RDF 1.1"),
    "a language that is none": (
        told(solution({"type": "literal", "value": "a", "xml:lang": "e n"})),
        "expected a term of RDF 1.1",
    ),
    "a triple": (told(solution({"type": "triple", "value": {}})), "expected a term of RDF 1.1"),
    "an error": (told(b"no\nsuch", "400 Bad Request"), "it answers 400 Bad Request: no such"),
    "a redirect": (told(b"", "302 Found\r\nLocation: http://127.0.0.1:9/"), "it answers 302 Found"),
    "cut short": (told(b"{}", length=10), "IncompleteRead|cut short"),
    "no HTTP": (lambda _: iter([b"hello\r\n\r\n"]), "hello"),
    "an endless body": (endless(b"\r\n" + b" " * 100_000), "more than service_bytes_max = 100000 bytes"),
    "a slow body": (endless(b"\r\n ", 0.02), "no whole answer within 0.5 s"),
    "a slow head": (endless(b"X", 0.02), "no whole answer within 0.5 s"),
    "silence": (lambda _: iter([time.sleep(20) or b""]), "no whole answer within 0.5 s"),
}
DAWDLES = "a slow body", "a slow head", "silence"


@pytest.mark.parametrize("lie", LIES)
def test_an_endpoint_that_lies_or_dawdles(lie: str) -> None:
    answer, expected = LIES[lie]
    timeout_ms = 500 if lie in DAWDLES else 60_000
    with endpoint(answer) as at, allowing(at, service_timeout_ms=timeout_ms, service_bytes_max=100_000) as engine:
        engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> 1 }}")
        query = f"SELECT * {{ ?x <{EX}p> 1 SERVICE %s <{at}> {{ ?s ?p ?o }} }}"
        with pytest.raises(wukongs.ServiceError, match=expected) as caught:
            engine.query(query % "")
        assert str(caught.value).startswith(f"SERVICE <{at}>: ")
        assert [len([term for term in row if term is not None]) for row in engine.query(query % "SILENT")] == [1]


def test_an_endpoint_that_is_not_there() -> None:
    with endpoint(told(b"")) as gone:
        pass
    with allowing(gone) as engine:
        with pytest.raises(wukongs.ServiceError, match="refused"):
            engine.query(f"ASK {{ SERVICE <{gone}> {{ ?s ?p ?o }} }}")
        assert engine.query(f"ASK {{ SERVICE SILENT <{gone}> {{ ?s ?p ?o }} }}").boolean


def test_the_time_of_the_query_counts() -> None:
    with endpoint(endless(b"X", 0.02)) as at, allowing(at) as engine:
        started_s = time.monotonic()
        for silent in ("", "SILENT"):
            with pytest.raises(wukongs.QueryTimeout):
                engine.query(f"ASK {{ SERVICE {silent} <{at}> {{ ?s ?p ?o }} }}", timeout_s=0.3)
        assert time.monotonic() - started_s < 25, "an endpoint has 30 s"


def test_a_query_that_waits_for_an_endpoint_can_be_killed() -> None:
    with endpoint(endless(b"X", 0.02)) as at, allowing(at) as engine, ExitStack() as stack:
        failures = list[BaseException]()

        def ask() -> None:
            try:
                engine.query(f"ASK {{ SERVICE <{at}> {{ ?s ?p ?o }} }}")
            except wukongs.WukongsError as error:
                failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        stack.callback(thread.join, 60)
        deadline = time.monotonic() + 20
        while not engine.running() and time.monotonic() < deadline:
            time.sleep(0.01)
        engine.kill(engine.running()[0].number)
        thread.join(60)
        assert [type(error) for error in failures] == [wukongs.QueryKilled]


@pytest.mark.parametrize(
    ("places", "is_allowed"),
    [
        ((), False),
        (("http://127.0.0.1:1/sparql",), True),
        (("http://127.0.0.1:1/",), True),
        (("http://127.0.0.1:1/spar",), False),
        (("http://127.0.0.1:1/other/", "http://127.0.0.1:1/sparql/"), False),
    ],
)
@pytest.mark.parametrize("silent", ["", "SILENT"])
def test_only_endpoints_that_are_named_are_asked(places: tuple[str, ...], is_allowed: bool, silent: str) -> None:
    with allowing(*places) as engine:
        query = f"ASK {{ SERVICE {silent} <http://127.0.0.1:1/sparql> {{ ?s ?p ?o }} }}"
        if silent:  # SPARQL 1.1 Federated Query, 3: errors are ignored, so there is one solution without bindings
            assert engine.query(query).boolean
            return
        expected = "refused" if is_allowed else "the setting service_allowed does not name this endpoint"
        with pytest.raises(wukongs.ServiceError, match=expected):
            engine.query(query)


def test_an_endpoint_that_is_not_allowed_is_not_asked() -> None:
    """With SILENT it brings one solution without bindings (SPARQL 1.1 Federated Query, 3), and sees nothing of it."""
    asked = list[bytes]()

    def answer(body: bytes) -> Iterator[bytes]:
        asked.append(body)
        return told(solution({"type": "uri", "value": "http://ex/found"}))(body)

    with endpoint(answer) as at, allowing() as engine:
        engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> 1, 2 . <{EX}b> <{EX}at> <{at}> }}")
        for text in (
            f"SELECT ?x ?s {{ ?x <{EX}p> ?o SERVICE SILENT <{at}> {{ ?s ?p ?o }} }}",
            f"SELECT ?x ?s {{ ?x <{EX}p> ?o OPTIONAL {{ SERVICE SILENT <{at}> {{ ?s ?p ?o }} }} }}",
            f"SELECT ?x ?s {{ ?x <{EX}p> ?o . ?y <{EX}at> ?e SERVICE SILENT ?e {{ ?s ?p ?o }} }}",
        ):
            assert engine.query(text).texts() == [(f"<{EX}a>", None)] * 2
        assert len(engine.query(f"SELECT * {{ ?x <{EX}none> ?o SERVICE SILENT <{at}> {{ ?s ?p ?o }} }}")) == 0
    assert not asked


# --- SERVICE with a variable ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other() -> Iterator[tuple[wukongs.Engine, str]]:
    with wukongs.Engine() as engine, served(engine) as client:
        yield engine, f"{client.address}/sparql"


AT_VARIABLES = [  # SERVICE ?e, where each row of ?e is bound to one endpoint or the other
    "?s :p ?o . ?s :at ?e SERVICE ?e { ?o :q ?x }",
    "SERVICE ?e { ?s :p ?o } ?o :at ?e",
    "VALUES ?e { <ONE> <TWO> } SERVICE ?e { ?s :p ?o . ?o :q ?x }",
    "?s :at ?e OPTIONAL { SERVICE ?e { ?s :q ?x } }",
    "?s :at ?e OPTIONAL { SERVICE ?e { ?s :q ?x } FILTER(?x != :n1) }",
    "?s :at ?e FILTER EXISTS { SERVICE ?e { ?s :q ?x } }",
    "?s :at ?e FILTER NOT EXISTS { SERVICE ?e { ?s :q ?x } }",
    "?s :at ?e SERVICE ?e { ?s :p ?o } SERVICE ?e { ?o :q ?x }",
    "{ ?s :at ?e SERVICE ?e { ?s :p ?o } } UNION { VALUES ?e { <ONE> } SERVICE ?e { ?s :q ?o } }",
    "?s :at ?e { SELECT ?e (COUNT(*) AS ?n) { VALUES ?e { <TWO> } SERVICE ?e { ?a :p ?b } } GROUP BY ?e }",
    "BIND(<ONE> AS ?e) SERVICE ?e { ?s :p ?o }",
    "SERVICE <ONE> { ?s :at ?e } SERVICE ?e { ?s :p ?o }",
    "?s :at ?e SERVICE ?e { ?s :at ?e }",
]


@pytest.mark.parametrize("pattern", AT_VARIABLES)
def test_each_row_asks_its_own_endpoint(
    remote: tuple[wukongs.Engine, str], other: tuple[wukongs.Engine, str], pattern: str
) -> None:
    """SPARQL 1.1 Federated Query, 2.4 and 4: as if each endpoint were a named graph of one dataset."""
    rng = random.Random(pattern)
    places = [remote[1], other[1]]
    sides = ["".join(_triples(rng)) + _places(rng, places) for _ in range(3)]
    for (there, _), side in zip((remote, other), sides[1:], strict=True):
        there.update(f"CLEAR ALL ; INSERT DATA {{ {side} }}")
    oracle = pyoxigraph.Store()
    graphs = "".join(f"GRAPH <{at}> {{ {side} }} " for at, side in zip(places, sides[1:], strict=True))
    oracle.update(f"INSERT DATA {{ {sides[0]} {graphs} }}")
    asked = f"PREFIX : <{EX}> SELECT * {{ {pattern} }}".replace("ONE", places[0]).replace("TWO", places[1])
    with allowing(*places) as engine:
        engine.update(f"INSERT DATA {{ {sides[0]} }}")
        found = engine.query(asked)
    expected = oracle.query(asked.replace("SERVICE", "GRAPH"))
    assert isinstance(expected, pyoxigraph.QuerySolutions)
    names = [variable.value for variable in expected.variables]
    by_name = Counter(
        frozenset((name, term.n3()) for name, term in zip(found.vars, row, strict=True) if term is not None)
        for row in found
    )
    assert by_name == Counter(
        frozenset((name, str(term)) for name in names if (term := row[name]) is not None) for row in expected
    )
    assert by_name


def _places(rng: random.Random, places: list[str]) -> str:
    return "".join(f"<{EX}n{number}> <{EX}at> <{rng.choice(places)}> . " for number in range(8))


def test_a_row_that_names_no_endpoint() -> None:
    for row, found in (
        ("UNDEF", "?e is unbound in a solution"),
        ("'text'", '?e is "text", which is no IRI'),
        ("1", "which is no IRI"),
    ):
        text = f"SELECT ?x ?s {{ VALUES (?x ?e) {{ (1 {row}) (2 {row}) }} SERVICE %s ?e {{ ?s ?p ?o }} }}"
        with allowing("http://127.0.0.1:9/") as engine:
            with pytest.raises(wukongs.ServiceError, match=f"SERVICE .e: .*{found[1:]}"):
                engine.query(text % "")
            rows = engine.query(text % "SILENT").texts()
            assert sorted((x or "")[1] for x, _ in rows) == ["1", "2"]
            assert [s for _, s in rows] == [None, None]
            assert len(engine.query((text % "SILENT").replace("SERVICE", "OPTIONAL { SERVICE") + "}")) == 2
    with allowing() as engine:
        with pytest.raises(wukongs.ServiceError, match="unbound"):
            engine.query("SELECT * { SERVICE ?e { ?s ?p ?o } }")
        assert engine.query("SELECT * { SERVICE SILENT ?e { ?s ?p ?o } }").texts() == [(None,) * 4]
        assert engine.query("SELECT * { ?e <http://ex/none> 1 SERVICE ?e { ?s ?p ?o } }").texts() == []


def test_an_endpoint_of_a_row_that_is_not_allowed_or_fails(remote: tuple[wukongs.Engine, str]) -> None:
    there, at = remote
    there.update(f"CLEAR ALL ; INSERT DATA {{ <{EX}a> <{EX}p> 7 }}")
    text = f"SELECT ?e ?v {{ VALUES ?e {{ <{at}> <http://127.0.0.1:9/x> }} SERVICE %s ?e {{ ?s <{EX}p> ?v }} }}"
    with allowing(at) as engine:
        with pytest.raises(wukongs.ServiceError, match=r"SERVICE <http://127.0.0.1:9/x>: the setting service_allowed"):
            engine.query(text % "")
        rows = engine.query(text % "SILENT").texts()
    seven = '"7"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert sorted(rows, key=str) == sorted([(f"<{at}>", seven), ("<http://127.0.0.1:9/x>", None)], key=str)
    with allowing(at, "http://127.0.0.1:9/") as engine, pytest.raises(wukongs.ServiceError, match=r"9/x>: .*refused"):
        engine.query(text % "")


def test_an_endpoint_is_asked_for_its_own_rows_once(remote: tuple[wukongs.Engine, str]) -> None:
    there, at = remote
    there.update(f"CLEAR ALL ; INSERT DATA {{ {''.join(f'<{EX}n{n}> <{EX}q> {n} . ' for n in range(50))} }}")
    asked = list[str]()

    def answer(body: bytes) -> Iterator[bytes]:
        asked.append(parse_qs(body.decode())["query"][0])
        return told({"head": {}, "results": {"bindings": []}})(body)

    with endpoint(answer) as empty, allowing(at, empty) as engine:
        engine.update(
            f"INSERT DATA {{ {''.join(f'<{EX}n{n}> <{EX}at> <{(at, empty)[n % 2]}> . ' for n in range(50))} }}"
        )
        found = engine.query(f"SELECT ?s ?v {{ ?s <{EX}at> ?e SERVICE ?e {{ ?s <{EX}q> ?v }} }}")
        plan = engine.explain(f"SELECT ?s ?v {{ ?s <{EX}at> ?e SERVICE SILENT ?e {{ ?s <{EX}q> ?v }} }}")
    assert sorted(int(str(row[1])) for row in found) == [*range(0, 50, 2)]
    assert len(asked) == 1
    assert asked[0].count(f"(<{EX}n") == 25
    assert "Service ?e ?s ?v (silent)" in plan


def test_a_prepared_query_is_given_its_endpoint(remote: tuple[wukongs.Engine, str]) -> None:
    there, at = remote
    there.update(f"CLEAR ALL ; INSERT DATA {{ <{EX}a> <{EX}p> <{EX}b> }}")
    with allowing(at) as engine:
        query = engine.prepare(f"SELECT ?s ?o {{ SERVICE ?e {{ ?s <{EX}p> ?o }} }}")
        assert query({"e": f"<{at}>"}).texts() == [(f"<{EX}a>", f"<{EX}b>")]
        assert query.many([{"e": f"<{at}>", "s": f"<{EX}{name}>"} for name in "aba"]).num_rows == 2


def test_no_way_out_of_an_allowed_place() -> None:
    with allowing("http://127.0.0.1:1/in/") as engine:
        for path in ("in/../out", "in/%2e%2e/out", "in/..%2Fout"):
            with pytest.raises(wukongs.ServiceError, match="service_allowed"):
                engine.query(f"ASK {{ SERVICE <http://127.0.0.1:1/{path}> {{ ?s ?p ?o }} }}")


def test_environment_proxies_are_not_used(remote: tuple[wukongs.Engine, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
    monkeypatch.delenv("no_proxy", raising=False)
    with allowing(remote[1]) as engine:
        assert engine.query(f"ASK {{ SERVICE <{remote[1]}> {{}} }}").boolean


def test_what_an_endpoint_is_asked() -> None:
    asked = list[str]()

    def answer(body: bytes) -> Iterator[bytes]:
        asked.append(parse_qs(body.decode())["query"][0])
        return told({"head": {}, "results": {"bindings": []}})(body)

    with endpoint(answer) as at, allowing(at) as engine:
        engine.update(f"INSERT DATA {{ <{EX}a> <{EX}p> 1, _:b, 'x'@en, 2 }}")
        engine.query(f"PREFIX : <{EX}> SELECT * {{ ?s :p ?o FILTER(ISNUMERIC(?o)) SERVICE <{at}> {{ ?s :q ?o, ?x }} }}")
        engine.query(f"SELECT * {{ ?s <{EX}p> ?o SERVICE <{at}> {{ ?o ?y ?z # all\n }} }}")
        engine.query(f"SELECT * {{ ?s <{EX}none> ?o SERVICE <{at}> {{ ?o ?y ?z }} }}")
    first, second = asked
    number = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    assert first.splitlines()[:3] == [f"PREFIX : <{EX}>", "SELECT ?o ?s ?x WHERE {", "VALUES (?o ?s) {"]
    assert sorted(first.splitlines()[3:5]) == [f'("{n}"{number} <{EX}a>)' for n in (1, 2)]
    assert "{ ?s :q ?o, ?x }" in first
    assert "VALUES" not in second  # one of the objects is a blank node
    assert "# all\n }" in second
