"""Messages of a real WebSocket server: each becomes a record, and a connection that is lost is made again."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from tests.unit.adapters.spooled import certificate, spooled
from tests.unit.wire.conftest import wait_until
from wukongs.adapters.feeds.contact import TlsOptions
from wukongs.adapters.feeds.websocket import WebSocketOptions, WebSocketReader
from wukongs.adapters.mapping.mapping import Csv
from wukongs.cli.ports import free_ports
from wukongs.errors import SettingsError

Handler = Callable[[ServerConnection], None]


@contextmanager
def serving(handler: Handler, port: int = 0, **options: object) -> Iterator[str]:
    """Let a server listen; at the end its connections are closed."""
    connections: list[ServerConnection] = []

    def handle(connection: ServerConnection) -> None:
        connections.append(connection)
        handler(connection)

    with serve(handle, "127.0.0.1", port, **options) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws{'s' if 'ssl' in options else ''}://127.0.0.1:{_port(server)}"
        finally:
            server.shutdown()
            thread.join()
            for one in connections:
                one.close(1001)


def _port(server: Server) -> int:
    port: int = server.socket.getsockname()[1]
    return port


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.adapters.feeds.contact.RETRY_S", (0.02,))


def reader(base: str, **options: object) -> WebSocketReader:
    return WebSocketReader(WebSocketOptions(base + "/feed", **options), None)  # type: ignore[arg-type]


def stay(connection: ServerConnection) -> None:
    """Keep a connection open until the client closes it."""
    try:
        while True:
            connection.recv()
    except ConnectionClosed:
        pass


def test_messages_arrive_after_what_was_asked_for(tmp_path: Path) -> None:
    asked: list[object] = []

    def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        asked.append((connection.request.path, connection.request.headers["X-Key"]))
        asked.extend(connection.recv() for _ in range(2))
        for number in range(100):
            connection.send(f"text {number} é" if number % 2 else f"bytes {number}".encode())
        connection.send(["in ", "parts"])
        stay(connection)

    with serving(handle) as base:
        options = {"subscribe": ("one", "two"), "headers": (("X-Key", "k"),)}
        with spooled(tmp_path / "spool", reader(base, **options)) as one:
            found = one.wait_for(101)
            assert not one.is_ended
    assert [text for text, _ in found] == [
        *(f"text {number} é" if number % 2 else f"bytes {number}" for number in range(100)),
        "in parts",
    ]
    assert asked == [("/feed", "k"), "one", "two"]
    assert one.said == []


def test_a_server_that_goes_away_and_comes_back_is_asked_again(tmp_path: Path) -> None:
    asked: list[object] = []

    def handle(connection: ServerConnection) -> None:
        asked.append(connection.recv())
        connection.send(f"message {len(asked)}")
        stay(connection)

    (port,) = free_ports(1)
    base = f"ws://127.0.0.1:{port}"
    with spooled(tmp_path / "spool", reader(base, subscribe=("please",))) as one:
        for life in range(3):
            wait_until(lambda life=life: len(one.said) == 2 * life + 1, "the loss to be said")  # type: ignore[misc]
            assert not one.feed.look().is_heard
            with serving(handle, port):
                one.wait_for(life + 1)
                assert one.feed.look().is_heard
        assert one.texts() == ["message 1", "message 2", "message 3"]
    assert asked == ["please"] * 3
    assert all("trying again" in text for text in one.said[::2])
    assert [text.split(": ")[1].split()[0] for text in one.said[1::2]] == ["connected"] * 3


def test_a_server_that_does_not_answer_a_ping_is_lost(tmp_path: Path) -> None:
    mute = threading.Event()
    lives: list[int] = []

    def handle(connection: ServerConnection) -> None:
        lives.append(len(lives))
        connection.send(f"life {len(lives)}")
        if len(lives) == 1:
            connection.protocol.receive_data = lambda data: None  # type: ignore[method-assign]
            mute.wait(20)
        else:
            stay(connection)

    with serving(handle) as base, spooled(tmp_path / "spool", reader(base, ping_s=1.0)) as one:
        assert [text for text, _ in one.wait_for(2)] == ["life 1", "life 2"]
        mute.set()
        assert not one.feed._stopped.wait(3)  # the second life answers
        assert len(lives) == 2
    assert "no answer to a ping for 1 s" in one.said[0]


def test_without_follow_the_server_ends_it(tmp_path: Path) -> None:
    def handle(connection: ServerConnection) -> None:
        for number in range(1000):
            connection.send(str(number))

    with serving(handle) as base, spooled(tmp_path / "spool", reader(base, ends=True)) as one:
        wait_until(lambda: one.is_ended, "the end")
        assert one.texts() == [str(number) for number in range(1000)]


def test_a_slow_spool_pauses_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.adapters.feeds.spool_feed.FRAME_BYTES", 10_000)
    sent: list[int] = []

    def handle(connection: ServerConnection) -> None:
        try:
            for number in range(3000):
                connection.send(f"{number:10000}")
                sent.append(number)
            stay(connection)
        except ConnectionClosed:
            pass

    with (
        serving(handle, compression=None) as base,
        spooled(tmp_path / "spool", reader(base, ping_s=1.0), bytes_max=10_000) as one,
    ):
        wait_until(lambda: one.spool.waiting_bytes >= 10_000, "a full spool")
        held = -1
        while held != len(sent):
            held = len(sent)
            one.feed._stopped.wait(0.3)
        one.feed._stopped.wait(2.5)  # longer than an answer to a ping may take
        assert held == len(sent) < 3000
        end = 0
        while end < 3000:
            end = one.spool.end_row
            one.feed.release(end)
            one.feed._stopped.wait(0.001)
            one.feed.look()
        assert one.spool.end_row == 3000
    assert one.said == [], "a pause is no loss"


@pytest.mark.parametrize("status", [HTTPStatus.NOT_FOUND, HTTPStatus.UNAUTHORIZED])
def test_a_refusal_is_an_error_that_keeps_secrets(tmp_path: Path, status: HTTPStatus) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(status, "no\n")

    with serving(stay, process_request=refuse) as base:
        asked = WebSocketReader(WebSocketOptions(f"{base}/feed?key=secret"), None)
        reason = f"{base}/feed: expected a WebSocket, found status {status.value}$"
        with spooled(tmp_path / "spool", asked) as one, pytest.raises(SettingsError, match=reason):
            wait_until(lambda: not one.feed.look().is_open, "the error")


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    busy = [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS]

    def refuse(connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(busy.pop(), "later\n") if busy else None

    def handle(connection: ServerConnection) -> None:
        connection.send("here")
        stay(connection)

    with serving(handle, process_request=refuse) as base, spooled(tmp_path / "spool", reader(base)) as one:
        one.wait_for(1)
    assert "status 429" in one.said[0]


def test_a_reader_that_waits_for_a_message_ends_at_once(tmp_path: Path) -> None:
    with serving(stay) as base:
        with spooled(tmp_path / "spool", reader(base)) as one:
            wait_until(lambda: one.feed.is_heard, "a connection")
            threads = list(one.feed._threads)
        assert not any(thread.is_alive() for thread in threads)


def test_a_certificate_is_checked(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def handle(connection: ServerConnection) -> None:
        connection.send("safe")
        stay(connection)

    with serving(handle, ssl=context) as base:
        with spooled(tmp_path / "one", reader(base, tls=TlsOptions(cert))) as one:
            assert one.wait_for(1) == [("safe", {})]
        reason = r"its certificate is not trusted .* as ca_file"
        with spooled(tmp_path / "other", reader(base)) as one, pytest.raises(SettingsError, match=reason):
            wait_until(lambda: not one.feed.look().is_open, "the error")


def test_messages_of_csv_need_names_for_their_columns() -> None:
    with pytest.raises(SettingsError, match="messages of CSV have no header"):
        WebSocketReader(WebSocketOptions("ws://h/"), Csv())
    WebSocketReader(WebSocketOptions("ws://h/"), Csv(header=False, columns=("a",)))
