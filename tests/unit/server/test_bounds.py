"""What hostile or unlucky clients do to a server: nothing, beyond their own requests."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow
import pytest
from websockets.sync.client import connect

import wukongs
from tests.scenarios.test_kill import ENDLESS
from tests.unit.server.asking import QUERY, Answer, Client, served
from wukongs.query.limits import scheduler
from wukongs.query.memory import Kind, Reservation, budget_of
from wukongs.server.face import Bounds
from wukongs.server.http_server import HttpServer, HttpSettings

S = "http://ex/s"
TEXT = f"REGISTER QUERY q AS SELECT ?s FROM STREAM <{S}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"


def until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)
    return found


@contextlib.contextmanager
def opened(client: Client, sent: bytes, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Open a connection, from a client of its own, and send something."""
    with socket.create_connection((client.host, client.port), 30, source_address=(host, 0)) as connection:
        connection.sendall(sent)
        yield connection


def endless(client: Client, **headers: str) -> bytes:
    """A query that runs until it is cancelled."""
    told = {"Host": f"127.0.0.1:{client.port}", "Content-Type": QUERY, "Content-Length": len(ENDLESS), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST /sparql HTTP/1.1\r\n{head}\r\n{ENDLESS}".encode()


@pytest.fixture
def one(client: Client, engine: wukongs.Engine) -> Client:
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    return client


# --- a client that asks for much --------------------------------------------------------------------------------------


def test_a_client_whose_queries_run_for_long_leaves_room_for_others(one: Client, engine: wukongs.Engine) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(opened(one, endless(one), "127.0.0.5"))
        until(lambda: len(engine.running()) > scheduler().processors)
        began = time.monotonic()
        for _ in range(5):
            assert one.get("ASK {}").status == 200
            assert one.ask("GET", "/readyz").status == 200
        assert time.monotonic() - began < 20
        assert sum(scheduler().counts) >= 30
    until(lambda: not engine.running())


def test_a_query_whose_client_leaves_is_ended(one: Client, engine: wukongs.Engine) -> None:
    with opened(one, endless(one)):
        until(engine.running)
    until(lambda: not engine.running())
    assert one.get("ASK {}").boolean


def test_too_many_requests_of_one_client_are_refused(engine: wukongs.Engine) -> None:
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    with served(engine, Bounds(per_client_max=3)) as client, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(opened(client, endless(client)))
        until(engine.running)
        until(lambda: len(engine.running()) + scheduler().counts[1] >= 3)
        assert client.get("ASK {}").status == 429
        with opened(client, b"GET /sparql?query=ASK%7B%7D HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.9") as other:
            assert b" 200 OK" in other.recv(100)


def test_a_page_or_token_that_asks_for_much_leaves_others_their_requests(
    engine: wukongs.Engine, tmp_path: Path
) -> None:
    """All of them are at one address: those of a browser and its user, or of a proxy."""
    page, tokens = "https://page.example", ["a-token-of-this-test-0123", "another-token-of-this-test"]
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    file = tmp_path / "tokens"
    file.write_text("\n".join(tokens))
    file.chmod(0o600)
    bounds = Bounds(per_client_max=2)
    own = {"Authorization": f"Bearer {tokens[0]}"}
    cases: list[tuple[str | None, dict[str, str], dict[str, str], list[dict[str, str]]]] = [
        (None, {"Origin": page}, {"Origin": page}, [{}, {"Sec-Fetch-Site": "same-origin"}]),
        (None, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "same-site"}, [{}, {"Origin": page}]),
        (str(file), own, own, [{"Authorization": f"Bearer {tokens[1]}"}, {**own, "Origin": page}]),
        # What a client makes up gives it no more.
        (None, {}, {"Authorization": "Bearer anything", "Sec-Fetch-Site": "none"}, [{"Origin": page}]),
    ]
    for tokens_file, much, refused, others in cases:
        server = HttpServer(engine, HttpSettings(port=0, tokens_file=tokens_file, origins=(page,), bounds=bounds))
        client = Client(server.address)
        try:
            with contextlib.ExitStack() as stack:
                for _ in range(2):
                    stack.enter_context(opened(client, endless(client, **much)))
                until(lambda: len(engine.running()) == 2)
                assert client.get("ASK {}", **refused).status == 429
                assert [client.get("ASK {}", **other).status for other in others] == [200] * len(others)
            until(lambda: not engine.running())
        finally:
            server.close()


def test_pages_that_nobody_has_named_count_as_one(engine: wukongs.Engine) -> None:
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    bounds = Bounds(per_client_max=2)
    server = HttpServer(engine, HttpSettings(port=0, origins=("*",), bounds=bounds))
    client = Client(server.address)
    try:
        with contextlib.ExitStack() as stack:
            for name in "ab":
                stack.enter_context(opened(client, endless(client, Origin=f"https://{name}.example")))
            until(lambda: len(engine.running()) == 2)
            assert client.get("ASK {}", Origin="https://c.example").status == 429
            assert client.get("ASK {}", **{"Sec-Fetch-Site": "cross-site"}).status == 429
            assert client.get("ASK {}").status == 200
    finally:
        server.close()


# --- connections and bodies -------------------------------------------------------------------------------------------


def test_a_request_that_is_not_told_in_time_is_cut(engine: wukongs.Engine) -> None:
    with served(engine, Bounds(header_s=0.3)) as client:
        for sent in (b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"):
            with opened(client, sent) as connection:
                began = time.monotonic()
                while connection.recv(1000):
                    pass
                assert time.monotonic() - began < 20


def test_bytes_behind_an_answer_that_are_no_request_are_cut(engine: wukongs.Engine) -> None:
    """A body that nobody reads any more, and a line end: without a timer the connection would stay for ever."""
    refused = b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    with served(engine, Bounds(header_s=0.3)) as client:
        for sent, more in ((refused, b"a"), (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n")):
            with opened(client, sent) as connection:
                assert connection.recv(1000).startswith(b"HTTP/1.1 ")
                time.sleep(0.05)
                began = time.monotonic()
                with contextlib.suppress(ConnectionError):  # it may be cut before that comes
                    connection.sendall(more)
                    while connection.recv(1000):
                        pass
                assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-query\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nASK\r\n0\r\nX: ",
    ],
    ids=["a header", "a trailer"],
)
def test_a_head_without_end_is_refused(engine: wukongs.Engine, sent: bytes) -> None:
    with served(engine) as client, opened(client, sent) as connection:
        told = b""
        with contextlib.suppress(OSError):
            for _ in range(400):  # 26 MB
                connection.sendall(b"a" * 65_536)
        with contextlib.suppress(OSError):
            told = connection.recv(1000)
        assert not told or b" 431 " in told or b" 400 " in told
        assert client.get("ASK {}").status == 200
        until(lambda: _is_cut(connection))


def _is_cut(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"a")
    except OSError:
        return True
    return False


def test_connections_beyond_the_bound_are_cut(engine: wukongs.Engine) -> None:
    with served(engine, Bounds(connections_max=20)) as client, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(opened(client, b"")) for _ in range(20)]
        with pytest.raises(OSError):
            client.get("ASK {}")
        idle.pop().close()
        until(lambda: _status(client) == 200)


def _status(client: Client) -> int:
    try:
        return client.get("ASK {}").status
    except OSError:
        return 0


def test_bodies_that_are_held_are_bounded_together(engine: wukongs.Engine) -> None:
    body = gzip.compress(b"#" * 1_000_000)
    head = f"POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: {QUERY}\r\nContent-Encoding: gzip\r\n"
    begun = (head + f"Content-Length: {len(body) + 1000}\r\n\r\n").encode() + body[:-20]
    with served(engine, Bounds(bodies_bytes_max=3_500_000)) as client:
        with contextlib.ExitStack() as stack:

            def has_no_room() -> bool:
                stack.enter_context(opened(client, begun))  # each time: while one is looked at, another may be refused
                return _posted(client, body).status == 503

            until(has_no_room)  # there is room for three
            assert client.get("ASK {}").status == 200
        until(lambda: _posted(client, body).status == 400)


def test_documents_that_are_held_are_bounded_together(engine: wukongs.Engine) -> None:
    document = b"#" * 100_000
    head = "PUT /store?default HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/turtle\r\n"
    begun = (head + f"Content-Length: {len(document) + 1}\r\n\r\n").encode() + document
    with served(engine, Bounds(documents_bytes_max=350_000)) as client:
        with contextlib.ExitStack() as stack:

            def refused() -> Answer | None:
                stack.enter_context(opened(client, begun))
                answer = client.store("PUT", "", document)
                return answer if answer.status == 503 else None

            answer = until(refused)  # there is room for three
            assert (answer.headers["Retry-After"], "too much room on disk" in answer.text) == ("1", True)
            until(lambda: client.store("POST", "", b"<http://ex/a> <http://ex/p> 1 .").status == 204)
            assert client.get("ASK { ?s ?p 1 }").boolean
        until(lambda: client.store("PUT", "", document).status == 204)


def _posted(client: Client, body: bytes) -> Answer:
    return client.ask("POST", "/sparql", body=body, content_type=QUERY, headers={"Content-Encoding": "gzip"})


def test_arrow_that_unpacks_to_much_more_is_refused(client: Client, engine: wukongs.Engine) -> None:
    engine.stream(S, batch_ms=100)
    text = ['"' + "x" * 1000 + '"'] * 1000
    table = pyarrow.table({"subject": text, "predicate": text, "object": text, "timestamp_ms": [1] * 1000})
    coded = table.set_column(2, "object", table.column("object").dictionary_encode())
    for sent in (table, coded):
        for compression in ("zstd", "lz4"):
            sink = pyarrow.BufferOutputStream()
            options = pyarrow.ipc.IpcWriteOptions(compression=compression)
            with pyarrow.ipc.new_stream(sink, sent.schema, options=options) as writer:
                writer.write_table(sent)
            path = f"/streams/{S.replace('/', '%2F').replace(':', '%3A')}"
            answer = client.ask("POST", path, body=bytes(sink.getvalue()), content_type=ARROW)
            assert (answer.status, "not compressed" in answer.text) == (400, True)


def test_mutated_arrow_is_no_error_of_the_server(client: Client, engine: wukongs.Engine) -> None:
    engine.stream(S, batch_ms=100, lateness_ms=10**12)
    columns = {"subject": ["<http://ex/a>"], "predicate": ["<http://ex/p>"], "object": ['"x"'], "timestamp_ms": [5]}
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, pyarrow.table(columns).schema) as writer:
        writer.write_table(pyarrow.table(columns))
    whole = bytes(sink.getvalue())
    path = "/streams/http%3A%2F%2Fex%2Fs"
    for at in range(8, len(whole), 3):
        for value in (0, 0x80, 0xFF):
            body = whole[:at] + bytes([value]) + whole[at + 1 :]
            answer = client.ask("POST", path, body=body, content_type=ARROW)
            assert answer.status in (200, 400, 409), (at, value, answer.text)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iri", ["http://ex/\ud800", "\ud800", "http://ex/\x00", "http://ex/\u0007"])
def test_a_stream_has_an_iri(client: Client, engine: wukongs.Engine, iri: str) -> None:
    answer = client.ask("POST", "/streams", body=json.dumps({"iri": iri}), content_type=JSON)
    assert answer.status == 400
    assert engine.streams() == []
    assert client.ask("GET", "/streams").json == []


@pytest.mark.parametrize("place", range(3))
def test_half_a_character_is_refused(client: Client, engine: wukongs.Engine, place: int) -> None:
    engine.stream(S, batch_ms=100)
    row: list[Any] = ["<http://ex/a>", "<http://ex/p>", '"x"', 1]
    row[place] = '"\ud800"'
    answer = client.ask("POST", "/streams/http%3A%2F%2Fex%2Fs", body=json.dumps([row]), content_type=JSON)
    assert answer.status == 400
    text = json.dumps({"text": TEXT + " # \udc00"})
    assert client.ask("POST", "/queries", body=text, content_type=JSON).status == 400


def test_files_of_the_server_are_not_for_clients(client: Client, engine: wukongs.Engine, tmp_path: Any) -> None:
    mine = tmp_path / "mine.ttl"
    told = json.dumps({"iri": S, "on_late": str(mine)})
    answer = client.ask("POST", "/streams", body=told, content_type=JSON)
    assert (answer.status, mine.exists(), engine.streams()) == (400, False, [])
    mine.write_text("<http://ex/a> <http://ex/p> 'secret' .")
    for text in (
        f"LOAD <{mine.as_uri()}>",
        f"load silent <{mine}>",
        f"CLEAR ALL; LOAD <{mine.name}> INTO GRAPH <{S}>",
        f"LO\\u0041D <{mine.as_uri()}>",
        f"\\U0000004cOAD <{mine.as_uri()}>",
    ):
        answer = client.update(text)
        assert (answer.status, "send the document to /store" in answer.text) == (403, True), answer.text
    assert not engine.query("ASK { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }")
    assert client.update("INSERT DATA { <http://ex/a> <http://ex/load> 'LOAD' }").status == 204


def test_an_origin_that_is_none(client: Client) -> None:
    for origin in ("http://[", "http://]/", "\xff", "http://127.0.0.1:x"):
        assert client.ask("GET", "/healthz", headers={"Origin": origin}).status == 403


def test_another_address_of_loopback_is_named_by_itself(engine: wukongs.Engine) -> None:
    server = HttpServer(engine, HttpSettings(host="127.0.0.2", port=0))
    try:
        assert Client(server.address).get("ASK {}").status == 200
    finally:
        server.close()


# --- windows ----------------------------------------------------------------------------------------------------------


def test_now_is_behind_what_waited_when_a_feed_begins(client: Client, engine: wukongs.Engine) -> None:
    stream = engine.stream(S, batch_ms=100)
    engine.register(TEXT)
    stream.push([("<http://ex/a>", "<http://ex/p>", '"x"', 500)])
    stream.advance(3000)
    engine.settle(10)
    told = client.ask("GET", "/queries/q/windows", {"after": "now", "timeout": "0.1"}).json
    assert (told["after"], told["events"]) == (3000, [])


@pytest.mark.parametrize("accept", ["", "*/*", "text/html, */*;q=0.1", "application/*"])
def test_an_endless_answer_is_only_for_those_who_name_it(client: Client, engine: wukongs.Engine, accept: str) -> None:
    engine.stream(S, batch_ms=100)
    engine.register(TEXT)
    answer = client.ask("GET", "/queries/q/windows", {"timeout": "0.1"}, accept=accept)
    assert (answer.status, answer.kind) == (200, JSON)


# --- those who leave, and the end -------------------------------------------------------------------------------------


def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_news(
    client: Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    head = f"PUT /store?default HTTP/1.1\r\nHost: localhost\r\nContent-Type: {QUERY}\r\nContent-Length: 100\r\n\r\nabc"
    for path in (b"/store?default", b"/sparql", b"/queries", b"/streams/x"):
        method = b"PUT" if path.startswith(b"/store") else b"POST"
        with opened(client, head.encode().replace(b"PUT /store?default", method + b" " + path)):
            pass
    until(lambda: client.get("ASK {}").boolean)
    time.sleep(0.1)
    assert (caplog.text, capfd.readouterr().err) == ("", "")


def test_a_server_ends_soon_whatever_goes_on(
    engine: wukongs.Engine, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = engine.stream(S, timing=True, batch_ms=100)
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    before = {thread.name for thread in threading.enumerate()}
    server = HttpServer(engine, HttpSettings(port=0))
    client = Client(server.address)
    client.ask("POST", "/queries", body=TEXT, content_type=QUERY)
    stream.push([(f"<http://ex/{n}>", "<http://ex/p>", '"x"', 500) for n in range(20_000)])
    stream.advance(1000)
    unread = b"GET /queries/q/windows?after=0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    body = b"POST /sparql HTTP/1.1\r\nHost: localhost\r\nContent-Type: x\r\nContent-Length: 100\r\n\r\nabc"
    update = ENDLESS.replace("SELECT ?s", "INSERT { ?s ?p 2 } WHERE", 1) + " ; DELETE WHERE { ?s ?p ?x }"
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        for sent in (unread, unread, body, endless(client), endless(client)):
            stack.enter_context(opened(client, sent))
        stack.enter_context(connect(f"ws://127.0.0.1:{client.port}/queries/q/windows"))
        asked = [
            pool.submit(client.ask, "GET", "/queries/q/windows", {"after": "9000"}, accept="application/json"),
            pool.submit(client.update, update),
        ]
        until(lambda: len(engine.running()) >= 2)
        began = time.monotonic()
        server.close()
        took_s = time.monotonic() - began
        for one in asked:
            with contextlib.suppress(OSError, Exception):
                one.result(10)
    assert took_s < 10, took_s
    until(lambda: not {t.name for t in threading.enumerate() if t.name.startswith("wukongs-")} - before)
    assert not engine.running()
    assert (caplog.text, capfd.readouterr().err) == ("", "")
    assert engine.query("ASK { <http://ex/a> ?p 1 }").boolean, "the update was not applied"


def test_a_socket_that_sends_garbage_ends_alone(client: Client, engine: wukongs.Engine) -> None:
    engine.stream(S, batch_ms=100)
    engine.register(TEXT)
    parts = urlsplit(client.address)
    upgrade = (
        f"GET /queries/q/windows HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with (
        opened(client, upgrade.encode()) as connection,
        connect(client.address.replace("http", "ws", 1) + "/queries/q/windows") as good,
    ):
        assert b" 101 " in connection.recv(1000)
        with contextlib.suppress(OSError):
            connection.sendall(b"\xff" * 100_000)
        stream = engine.declared(S)
        stream.push([("<http://ex/a>", "<http://ex/p>", '"x"', 500)])
        stream.advance(1000)
        assert json.loads(good.recv(timeout=10))["id"] == 1000


def test_a_body_in_parts_that_are_small_is_read(client: Client) -> None:
    parts = io.BytesIO(b"ASK {}").read(1), b"SK", b" {", b"}"
    assert client.ask("POST", "/sparql", body=iter(parts), content_type=QUERY).json["boolean"] is True


def test_queries_that_wait_for_memory_take_no_processor_from_others() -> None:
    query = "SELECT ?b ?d { ?a <http://ex/p> ?b . ?c <http://ex/p> ?d } ORDER BY ?d"
    rows = " ".join(f"<http://ex/n{number}> <http://ex/p> {number} ." for number in range(300))
    with wukongs.Engine(settings={"memory_bytes_max": (61 << 20) + 1}) as engine:
        engine.update(f"INSERT DATA {{ {rows} }}")
        budget = budget_of((61 << 20) + 1)
        taken = Reservation(budget, Kind.QUERY)
        assert taken.grow(52 << 20)
        with served(engine, Bounds()) as client, ThreadPoolExecutor(4) as pool:
            heavy = [pool.submit(client.get, query) for _ in range(4)]
            until(lambda: budget.waiting == 4)
            for _ in range(5):
                assert client.get("ASK { <http://ex/n7> ?p 7 }").status == 200
            assert (budget.waiting, [one.done() for one in heavy]) == (4, [False] * 4)
            taken.note(0)
            assert [one.result(60).status for one in heavy] == [200] * 4
            assert client.get("ASK { <http://ex/n7> ?p 7 }").status == 200
        assert budget.reserved_bytes == 0
