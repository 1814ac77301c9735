"""Who is let in: Host and Origin on loopback, tokens elsewhere, TLS; and addresses that cannot be served."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.asyncio.client import connect as asyncio_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

import wukongs
from tests.scenarios.test_kill import until
from tests.unit.server.asking import QUERY, UPDATE, Answer, Client
from wukongs.server.connections import HEAD_BYTES_MAX
from wukongs.server.face import Bounds
from wukongs.server.http_server import HttpServer, HttpSettings

TOKEN, ANOTHER = "a-token-of-this-test-0123456789", "another-token-of-this-test-0123456789"
ELSEWHERE = "https://elsewhere.example"
INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> 1 }"


def update(client: Client, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.ask("POST", "/sparql", body=INSERT, content_type=UPDATE, headers=named)


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    file = tmp_path / "tokens"
    file.write_text(f"{ANOTHER}\n{TOKEN}\n")
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def guarded(engine: wukongs.Engine, tokens: str) -> Iterator[Client]:
    server = HttpServer(engine, HttpSettings(port=0, tokens_file=tokens))
    yield Client(server.address)
    server.close()


# --- loopback ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "LOCALHOST:80", "[::1]:7480"])
def test_names_of_loopback_lead_here(client: Client, host: str) -> None:
    assert update(client, Host=host).status == 204


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1"])
def test_a_name_that_somebody_made_lead_here_is_refused(client: Client, engine: wukongs.Engine, host: str) -> None:
    answer = update(client, Host=host)
    assert (answer.status, "this server is 127.0.0.1 or [::1] or localhost" in answer.text) == (421, True)
    assert not engine.query("ASK { ?s ?p ?o }")


@pytest.mark.parametrize("origin", [ELSEWHERE, "null", "http://localhost.evil.example", "http://127.0.0.1:1"])
def test_pages_of_other_sites_are_refused(client: Client, engine: wukongs.Engine, origin: str) -> None:
    answer = update(client, Origin=origin)
    assert (answer.status, f"a page of {origin} may not ask" in answer.text) == (403, True)
    assert not engine.query("ASK { ?s ?p ?o }")
    address = client.address.replace("http", "ws", 1) + "/queries/q/windows"
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        connect(address, additional_headers={"Origin": origin}).recv()


def test_a_page_of_this_server_may_ask(client: Client) -> None:
    assert update(client, Origin=client.address).status == 204


def test_origins_that_are_allowed_by_name(engine: wukongs.Engine) -> None:
    server = HttpServer(engine, HttpSettings(port=0, origins=(ELSEWHERE,)))
    try:
        client = Client(server.address)
        asked = {"Origin": ELSEWHERE, "Access-Control-Request-Method": "POST"}
        before = client.ask("OPTIONS", "/sparql", headers=asked)
        assert before.headers["Access-Control-Allow-Origin"] == ELSEWHERE
        answer = update(client, Origin=ELSEWHERE)
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, ELSEWHERE)
        assert "Wukongs-Snapshot" in answer.headers["Access-Control-Expose-Headers"]
        assert update(client, Origin="https://other.example").status == 403
    finally:
        server.close()


@pytest.mark.parametrize(
    "origin", [f"{ELSEWHERE}/", f"{ELSEWHERE}:443", "elsewhere.example", "https://Elsewhere.example", "", "http://x:y"]
)
def test_an_origin_that_no_browser_sends_is_refused(engine: wukongs.Engine, origin: str) -> None:
    with pytest.raises(wukongs.SettingsError, match="expected one as browsers send it"):
        HttpServer(engine, HttpSettings(port=0, origins=(origin,)))


def test_without_origins_nothing_is_said_of_them(client: Client) -> None:
    answer = client.get("ASK {}")
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


CROSS_SITE = {"Sec-Fetch-Site": "cross-site"}
IMAGE = {**CROSS_SITE, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LINK = {**CROSS_SITE, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FRAME = {**LINK, "Sec-Fetch-Dest": "iframe"}
ASKED = "/sparql?query=ASK%7B%7D"


def test_what_a_page_of_another_site_loads_without_an_origin_is_refused(client: Client) -> None:
    for path in (ASKED, "/stats", "/queries/q/windows", "/healthz", "/console/main.js", "/nothing"):
        for headers in (CROSS_SITE, IMAGE, LINK, FRAME):
            answer = client.ask("GET", path, headers=headers)
            assert (answer.status, "a page of another site may not ask" in answer.text) == (403, True), (path, headers)


def test_a_socket_of_a_page_of_another_site_is_refused(client: Client) -> None:
    address = client.address.replace("http", "ws", 1) + "/queries/q/windows"
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        connect(address, additional_headers=CROSS_SITE).recv()


def test_pages_of_this_site_and_users_may_ask(client: Client) -> None:
    for site in ("same-origin", "same-site", "none"):
        assert client.ask("GET", ASKED, headers={"Sec-Fetch-Site": site}).status == 200


def test_a_link_of_another_site_opens_the_console_alone(client: Client) -> None:
    assert client.ask("GET", "/", headers=LINK).status == 200
    assert [client.ask("GET", "/", headers=headers).status for headers in (FRAME, IMAGE, CROSS_SITE)] == [403] * 3
    assert client.ask("POST", "/", headers=LINK).status == 403


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ((ELSEWHERE,), ELSEWHERE, 200),
        ((ELSEWHERE,), None, 403),
        ((ELSEWHERE,), "https://other.example", 403),
        (("*",), None, 200),
        (("*",), "https://other.example", 200),
    ],
)
def test_pages_of_other_sites_that_are_allowed(
    engine: wukongs.Engine, origins: tuple[str, ...], origin: str | None, status: int
) -> None:
    server = HttpServer(engine, HttpSettings(port=0, origins=origins))
    try:
        headers = CROSS_SITE if origin is None else {**CROSS_SITE, "Origin": origin}
        assert Client(server.address).ask("GET", ASKED, headers=headers).status == status
    finally:
        server.close()


def test_a_password_that_a_browser_keeps_is_of_no_use_to_pages_of_other_sites(guarded: Client) -> None:
    known = {"Authorization": basic(TOKEN)}
    assert guarded.ask("GET", ASKED, headers=known).status == 200
    assert guarded.ask("GET", ASKED, headers={**known, **IMAGE}).status == 403


def raw(client: Client, *parts: str) -> str:
    """Return the answer to a request as it is written here, in parts that are read one by one."""
    with socket.create_connection((client.host, client.port), 30) as connection:
        for number, part in enumerate(parts):
            time.sleep(0.1 * bool(number))
            connection.sendall(part.encode())
        return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()


@pytest.mark.parametrize("hosts", [["localhost", "localhost"], ["localhost", "evil.example"], []])
def test_a_request_has_one_host(client: Client, guarded: Client, hosts: list[str]) -> None:
    lines = [f"GET {ASKED} HTTP/1.1", *(f"Host: {host}" for host in hosts), f"Authorization: Bearer {TOKEN}"]
    for one in (client, guarded):
        answer = raw(one, "\r\n".join([*lines, "Connection: close", "", ""]))
        assert answer.startswith("HTTP/1.1 400 "), answer
        assert f"Host: expected it once, found it {len(hosts)} times" in answer


def test_each_answer_is_kept_from_pages_of_other_sites(
    client: Client, guarded: Client, engine: wukongs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.update("INSERT DATA { <http://ex/a> <http://ex/p> 1 }")
    many = "SELECT * { VALUES ?x { " + "1 " * 20_000 + "} }"
    script = client.ask("GET", "/console/main.js")
    again = {"If-None-Match": script.headers["ETag"]}
    answers = [
        (200, script),
        (304, client.ask("GET", "/console/main.js", headers=again)),
        (200, client.ask("GET", "/")),
        (200, client.get("ASK {}")),
        (200, client.direct(many)),
        (200, client.ask("GET", "/healthz")),
        (204, update(client)),
        (400, client.direct("SELEC")),
        (401, guarded.get("ASK {}")),
        (403, client.get("ASK {}", **IMAGE)),
        (404, client.ask("GET", "/nothing")),
        (405, client.ask("PUT", "/sparql")),
        (421, client.get("ASK {}", Host="evil.example")),
    ]
    monkeypatch.setattr(type(engine), "stats", lambda _: 1 // 0)
    answers.append((500, client.ask("GET", "/stats")))
    for status, answer in answers:
        assert answer.status == status
        assert answer.headers.get_all("X-Content-Type-Options") == ["nosniff"], status
        assert answer.headers.get_all("Cross-Origin-Resource-Policy") == ["same-origin"], status
    long_head = "GET / HTTP/1.1\r\nHost: localhost\r\nX: ".ljust(HEAD_BYTES_MAX + 1, "a")
    for status, parts in ((400, ["nonsense\r\n\r\n"]), (431, [long_head, "a"])):
        told = raw(client, *parts).lower()
        assert told.startswith(f"http/1.1 {status} "), told
        assert "x-content-type-options: nosniff\r\ncross-origin-resource-policy: same-origin\r\n" in told


def test_events_are_kept_from_pages_of_other_sites(client: Client, engine: wukongs.Engine) -> None:
    engine.stream("http://ex/s", timing=True, batch_ms=100)
    text = "REGISTER QUERY q AS SELECT ?s FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }"
    client.ask("POST", "/queries", body=text, content_type=QUERY)
    asked = Request(f"{client.address}/queries/q/windows", headers={"Accept": "text/event-stream"})
    with urlopen(asked, timeout=30) as events:
        assert events.headers["X-Content-Type-Options"] == "nosniff"
        assert events.headers["Cross-Origin-Resource-Policy"] == "same-origin"


# --- tokens -----------------------------------------------------------------------------------------------------------


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic(TOKEN)])
def test_a_known_token_is_let_in(guarded: Client, given: str) -> None:
    assert update(guarded, Authorization=given).status == 204
    assert update(guarded, Authorization=given, Host="any.example").status == 204


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", f"Bearer {TOKEN}x", f"Token {TOKEN}", basic(""), "Basic !", "Basic \xff"]
)
@pytest.mark.parametrize("path", ["/sparql?query=ASK{}", "/queries/q/why", "/nothing"])
def test_without_a_token_nothing_is_told(guarded: Client, given: str | None, path: str) -> None:
    answer = guarded.ask("GET", path, headers={} if given is None else {"Authorization": given})
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Bearer, Basic realm="wukongs"')


def test_health_needs_no_token(guarded: Client, engine: wukongs.Engine) -> None:
    assert guarded.ask("GET", "/healthz").text == "ok\n"
    assert guarded.ask("GET", "/readyz").json == {"snapshot": 0}
    engine.close()
    assert guarded.ask("GET", "/healthz").status == 200
    assert guarded.ask("GET", "/readyz").status >= 400


def test_a_socket_needs_a_token_too(guarded: Client) -> None:
    address = guarded.address.replace("http", "ws", 1) + "/queries/q/windows"
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        connect(address).recv()
    with connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as connection:
        assert json.loads(connection.recv())["data"]["status"] == 404


def test_a_page_gives_a_socket_its_token_as_a_subprotocol(guarded: Client) -> None:
    address = guarded.address.replace("http", "ws", 1) + "/queries/q/windows"
    for token in (TOKEN + "x", "", "\xff"):
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            connect(address, subprotocols=offered(token)).recv()
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        connect(address, subprotocols=[Subprotocol("wukongs"), Subprotocol("bearer.!")]).recv()
    with connect(address, subprotocols=offered(TOKEN)) as connection:
        assert json.loads(connection.recv())["data"]["status"] == 404
        assert connection.subprotocol == "wukongs"


def offered(token: str) -> list[Subprotocol]:
    told = base64.urlsafe_b64encode(token.encode("latin-1")).decode().rstrip("=")
    return [Subprotocol("wukongs"), Subprotocol(f"bearer.{told}")]


def test_those_whose_token_is_gone_get_no_more_windows(engine: wukongs.Engine, tokens: str) -> None:
    server = HttpServer(engine, HttpSettings(port=0, tokens_file=tokens))
    client, path = Client(server.address), "/queries/q/windows"
    stream = engine.stream("http://ex/s", timing=True, batch_ms=100)
    text = "REGISTER QUERY q AS SELECT ?s FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?s ?p ?o }"
    mine, other = ({"Authorization": f"Bearer {token}"} for token in (TOKEN, ANOTHER))
    try:
        assert client.ask("POST", "/queries", body=text, content_type=QUERY, headers=mine).status == 201
        with (
            ThreadPoolExecutor(1) as pool,
            urlopen(Request(server.address + path, headers={"Accept": "text/event-stream", **mine})) as events,
            connect(server.address.replace("http", "ws", 1) + path, additional_headers=mine) as live,
            connect(server.address.replace("http", "ws", 1) + path, additional_headers=other) as stays,
        ):
            stream.push([("<http://ex/a>", "<http://ex/p>", '"x"', 500)])
            stream.advance(1000)
            assert [json.loads(one.recv(10))["id"] for one in (live, stays)] == [1000, 1000]
            assert [events.readline() for _ in range(4)][2] == b"id: 1000\n"
            fields = {"after": "1000", "timeout": "60"}
            poll = pool.submit(client.ask, "GET", path, fields, accept="application/json", headers=mine)
            until(lambda: b"\nwukongs_feed_subscribers 4.0\n" in client.ask("GET", "/metrics", headers=other).body)
            Path(tokens).write_text(ANOTHER)
            server.reload_trust()
            told = json.loads(live.recv(10))
            assert (told["event"], told["data"]["status"]) == ("refused", 401)
            with pytest.raises(ConnectionClosed) as closed:
                live.recv(10)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, "Authorization: expected" in closed.value.rcvd.reason) == (1008, True)
            event, data = events.read().decode().strip().splitlines()[-2:]
            assert (event, json.loads(data.removeprefix("data: "))["status"]) == ("event: error", 401)
            assert poll.result(10).status == 401
            stream.advance(2000)
            assert json.loads(stays.recv(10))["id"] == 2000
    finally:
        server.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_that_is_not_loopback_needs_tokens(engine: wukongs.Engine, host: str) -> None:
    with pytest.raises(
        wukongs.SettingsError, match=r"is not loopback: .* \(--tokens FILE\), or listen on 127\.0\.0\.1"
    ):
        HttpServer(engine, HttpSettings(host=host, port=0))


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, plain))
    return str(cert_file), str(key_file)


def test_https(engine: wukongs.Engine, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    server = HttpServer(engine, HttpSettings(host="localhost", port=0, tls_cert=cert, tls_key=key))
    try:
        assert server.address == f"https://localhost:{server.port}"
        known = ssl.create_default_context(cafile=cert)
        with urlopen(Request(server.address + "/sparql?query=ASK%7B%7D"), context=known, timeout=10) as answer:
            assert json.load(answer)["boolean"] is True

        async def first_event() -> object:
            # The client of threads reads and writes one TLS connection at a time, and then waits for ever now and then.
            address = f"wss://localhost:{server.port}/queries/q/windows"
            async with asyncio_connect(address, ssl=known, open_timeout=60) as connection:
                return json.loads(await connection.recv())["event"]

        assert asyncio.run(first_event()) == "refused"
    finally:
        server.close()


@pytest.mark.parametrize(("header_s", "is_overdue"), [(60.0, False), (0.3, True)])
def test_handshakes_count_as_connections_and_end_in_time(
    engine: wukongs.Engine, certificate: tuple[str, str], header_s: float, is_overdue: bool
) -> None:
    cert, key = certificate
    bounds = Bounds(connections_max=16, header_s=header_s)
    server = HttpServer(engine, HttpSettings(host="localhost", port=0, tls_cert=cert, tls_key=key, bounds=bounds))
    known, address = ssl.create_default_context(cafile=cert), ("localhost", server.port)

    def answers() -> bool:
        with suppress(OSError), urlopen(server.address + "/healthz", context=known, timeout=10) as answer:
            return bool(answer.read() == b"ok\n")
        return False

    try:
        with ExitStack() as stack:
            begun = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(16)]
            begun[1].sendall(b"\x16\x03\x01\x02\x00\x01")  # a handshake, as far as it goes
            if is_overdue:
                assert [one.recv(1) for one in begun] == [b""] * 16
                assert answers()
            else:
                until(lambda: not answers())
                begun.pop().close()
                until(answers)
    finally:
        server.close()


def test_a_key_of_tls_that_everybody_can_read_is_warned_of(
    engine: wukongs.Engine, certificate: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate
    for mode, count in ((0o600, 0), (0o644, 1)):
        Path(key).chmod(mode)
        HttpServer(engine, HttpSettings(port=0, tls_cert=cert, tls_key=key)).close()
        assert caplog.text.count(f"{key}: everybody on this machine can read this file") == count


def test_half_of_tls_and_files_that_are_none(
    engine: wukongs.Engine, certificate: tuple[str, str], tmp_path: Path
) -> None:
    cert, key = certificate
    with pytest.raises(wukongs.SettingsError, match="expected a certificate and its key"):
        HttpServer(engine, HttpSettings(port=0, tls_cert=cert))
    with pytest.raises(wukongs.SettingsError, match=r"TLS: .*cert\.pem, .*nothing"):
        HttpServer(engine, HttpSettings(port=0, tls_cert=cert, tls_key=str(tmp_path / "nothing")))
    with pytest.raises(wukongs.SettingsError, match="TLS: "):
        HttpServer(engine, HttpSettings(port=0, tls_cert=key, tls_key=cert))


def test_a_port_that_is_taken(engine: wukongs.Engine, client: Client) -> None:
    with pytest.raises(wukongs.SettingsError, match=f"127.0.0.1:{client.port}: Address already in use: give another"):
        HttpServer(engine, HttpSettings(port=client.port))
