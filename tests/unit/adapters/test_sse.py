"""Server-sent events from a real HTTP server: each event once, whatever the connection and both sides do."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.adapters.spooled import Spooled, spooled
from tests.unit.wire.conftest import wait_until
from wukongs.adapters.feeds import sse
from wukongs.adapters.feeds.sse import EventParser, SseOptions, SseReader
from wukongs.cli.ports import free_ports
from wukongs.errors import DataError, SettingsError


class Events:
    """The events of a server, numbered, to each client from the one after its Last-Event-ID on.

    cut_at: connections end after so many events each; is_open: more may come."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.cut_at = 1 << 30
        self.is_open = True
        self.asked: list[dict[str, str]] = []
        self.head = b""
        self.status = 200
        self.media_type = "text/event-stream; charset=utf-8"
        self.location: str | None = None
        self.stopped = threading.Event()


def text_of(number: int) -> bytes:
    name = f"event: kind{number % 2}\n" if number % 3 else ""
    return f"{name}id: {number}\ndata: line {number}\ndata:  and é\n\n".encode()


def message(number: int) -> tuple[str, dict[str, str | None]]:
    name = f"kind{number % 2}" if number % 3 else "message"
    return f"line {number}\n and é", {"_event": name, "_id": str(number)}


@contextmanager
def serving(events: Events, port: int = 0, protocol: str = "HTTP/1.1") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_GET(self) -> None:
            events.asked.append(dict(self.headers.items()) | {"path": self.path})
            self.send_response(events.status if self.path != "/moved" else 307)
            if self.path == "/moved" and events.location:
                self.send_header("Location", events.location)
            if events.status != 200 or self.path == "/moved":
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_header("Content-Type", events.media_type)
            is_chunked = protocol == "HTTP/1.1"
            if is_chunked:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._send(is_chunked)

        def _send(self, is_chunked: bool) -> None:
            begin = int(self.headers.get("Last-Event-ID", -1)) + 1
            at = begin
            self._write(events.head, is_chunked)
            while not events.stopped.is_set() and at - begin < events.cut_at:
                if at < events.count:
                    self._write(text_of(at), is_chunked)
                    at += 1
                elif events.is_open:
                    events.stopped.wait(0.005)
                else:
                    break
            if is_chunked:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def _write(self, data: bytes, is_chunked: bool) -> None:
            if data:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if is_chunked else data)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    events.stopped.clear()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        events.stopped.set()
        thread.join()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.adapters.feeds.contact.RETRY_S", (0.02,))


Reading = Callable[..., Spooled]


def options(base: str, path: str = "/events", **others: object) -> SseOptions:
    return SseOptions(base + path, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
def test_events_arrive_with_their_cells_and_as_they_come(tmp_path: Path, protocol: str) -> None:
    events = Events(5)
    with (
        serving(events, protocol=protocol) as base,
        spooled(tmp_path / "spool", SseReader(options(base, headers=(("X-Key", "k 1"),)), None)) as one,
    ):
        assert one.wait_for(5) == [message(number) for number in range(5)]
        events.count = 6
        one.wait_for(6)
        assert not one.is_ended
        assert events.asked[0]["X-Key"] == "k 1"
        assert events.asked[0]["Accept"] == "text/event-stream"
    assert one.said == []


def test_a_connection_that_ends_is_made_again_behind_the_last_event(tmp_path: Path) -> None:
    events = Events(40)
    events.cut_at = 7
    with serving(events) as base, spooled(tmp_path / "spool", SseReader(options(base), None)) as one:
        assert one.wait_for(40) == [message(number) for number in range(40)]
        assert [asked.get("Last-Event-ID") for asked in events.asked[:3]] == [None, "6", "13"]
    assert one.said == []


def test_a_server_that_goes_away_and_comes_back_is_said_once(tmp_path: Path) -> None:
    events, (port,) = Events(5), free_ports(1)
    base = f"http://127.0.0.1:{port}"
    with spooled(tmp_path / "spool", SseReader(options(base), None)) as one:
        one.wait_until_said("trying again")
        assert not one.feed.look().is_heard
        with serving(events, port):
            one.wait_for(5)
            assert one.feed.look().is_heard
        wait_until(lambda: len(one.said) == 3, "the loss to be said")
        assert not one.feed.look().is_heard
        events.count = 8
        with serving(events, port):
            assert one.wait_for(8) == [message(number) for number in range(8)]
    begins = ["no connection", "connected to", "no connection", "connected to"]
    assert [" ".join(text.split()[2:4]) for text in one.said] == begins
    assert one.said[-1].endswith(" again")


def test_a_reader_that_starts_again_asks_for_what_follows(tmp_path: Path) -> None:
    events = Events()
    with serving(events) as base:
        for life, count in enumerate((4, 4, 9)):
            events.count = count
            with spooled(tmp_path / "spool", SseReader(options(base), None)) as one:
                assert one.wait_for(count) == [message(number) for number in range(count)]
                wait_until(lambda life=life: len(events.asked) > life, "a question")  # type: ignore[misc]
    assert [asked.get("Last-Event-ID") for asked in events.asked] == [None, "3", "3"]


def test_only_events_of_these_names_are_taken(tmp_path: Path) -> None:
    events = Events(30)
    with (
        serving(events) as base,
        spooled(tmp_path / "spool", SseReader(options(base, events=("kind1", "message")), None)) as one,
    ):
        expected = [message(number) for number in range(30) if message(number)[1]["_event"] != "kind0"]
        assert one.wait_for(len(expected)) == expected


def test_no_content_ends_it(tmp_path: Path) -> None:
    events = Events(3)
    events.cut_at = 3
    with serving(events) as base, spooled(tmp_path / "spool", SseReader(options(base), None)) as one:
        one.wait_for(3)
        events.status = 204
        wait_until(lambda: one.is_ended, "the end")
        assert len(one.messages()) == 3


def test_without_follow_the_end_of_the_answer_ends_it(tmp_path: Path) -> None:
    events = Events(3)
    events.is_open = False
    with serving(events) as base, spooled(tmp_path / "spool", SseReader(options(base, ends=True), None)) as one:
        wait_until(lambda: one.is_ended, "the end")
        assert len(one.messages()) == 3
    assert (len(events.asked), one.said) == (1, [])


def test_the_server_says_how_long_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    wait = sse.Contact.wait
    monkeypatch.setattr(sse.Contact, "wait", lambda self, asked: (waits.append(asked), wait(self, asked)))
    events = Events(3)
    events.cut_at, events.head = 1, b"retry: 30\n\n"
    with serving(events) as base, spooled(tmp_path / "spool", SseReader(options(base), None)) as one:
        one.wait_for(3)
    assert set(waits) == {0.03}


def test_it_goes_where_the_server_sends_it(tmp_path: Path) -> None:
    events, others = Events(), Events(2)
    with serving(others) as there, serving(events) as base:
        events.location = f"{there}/new?a=b"
        reader = SseReader(options(base, "/moved", headers=(("Authorization", "secret"),)), None)
        with spooled(tmp_path / "spool", reader) as one:
            one.wait_for(2)
    assert events.asked[0]["Authorization"] == "secret"
    assert others.asked[0]["path"] == "/new?a=b"
    assert "Authorization" not in others.asked[0]


@pytest.mark.parametrize(
    ("status", "media_type", "found"),
    [(404, "", "status 404"), (401, "", "status 401"), (200, "text/html", "found text/html")],
)
def test_what_sends_no_events_is_an_error_that_keeps_secrets(
    tmp_path: Path, status: int, media_type: str, found: str
) -> None:
    events = Events(2)
    events.status, events.media_type = status, media_type
    with serving(events) as base, spooled(tmp_path / "s", SseReader(options(base, "/e?key=secret"), None)) as one:
        with pytest.raises(SettingsError, match=f"{base}/e: expected events .*{found}") as error:
            wait_until(lambda: not one.feed.look().is_open, "the error")
        assert "secret" not in str(error.value)


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    events = Events(2)
    events.status = 503
    with serving(events) as base, spooled(tmp_path / "spool", SseReader(options(base), None)) as one:
        one.wait_until_said("status 503")
        events.status = 200
        one.wait_for(2)


def test_a_slow_spool_pauses_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.adapters.feeds.spool_feed.FRAME_BYTES", 1000)
    events, sent = Events(200_000), 0
    with (
        serving(events) as base,
        spooled(tmp_path / "spool", SseReader(options(base, "/e"), None), bytes_max=1000) as one,
    ):
        wait_until(lambda: one.spool.waiting_bytes >= 1000, "a full spool")
        wait_until(lambda: one.feed._put_bytes > 8000, "the reader to wait")
        held = one.feed._put_bytes
        assert not one.feed._stopped.wait(0.2)
        assert one.feed._put_bytes == held
        while sent < 2000:
            one.feed.release(one.spool.end_row)
            wait_until(lambda sent=sent: one.spool.end_row > sent, "more")  # type: ignore[misc]
            sent = one.spool.end_row
        assert one.messages()[-5:] == [message(number) for number in range(one.spool.end_row)][-5:]


def test_a_reader_that_waits_for_an_event_ends_at_once(tmp_path: Path) -> None:
    events = Events()
    with serving(events) as base:
        with spooled(tmp_path / "spool", SseReader(options(base), None)) as one:
            wait_until(lambda: len(events.asked) == 1, "a connection")
            threads = list(one.feed._threads)
        assert not any(thread.is_alive() for thread in threads)


def test_events_are_the_same_however_their_bytes_are_cut() -> None:
    stream = (
        b"\xef\xbb\xbf: hello\r\ndata: a\r\n\r\nevent: n\rdata:b\rdata\rdata:  c\r\rid: 1\ndata: d\n\nid: 2\n\n"
        b"data:e\nid\nretry: x\nretry: 12\nother: 1\n\nid: a\0b\ndata: f\xff\n\nevent: lost\n\ndata: g\n\ndata: cut"
    )
    expected = [
        ("message", b"a", ""),
        ("n", b"b\n\n c", ""),
        ("message", b"d", "1"),
        ("message", b"e", ""),
        ("message", b"f\xff", ""),
        ("message", b"g", ""),
    ]
    rng = random.Random(1)
    for round in range(300):
        parser, at, found = EventParser(""), 0, []
        while at < len(stream):
            size = 1 if round == 0 else rng.randint(1, 60)
            found += parser.take(stream[at : at + size])
            at += size
        assert [(event.name, event.data, event.last_id) for event in found] == expected
        assert parser.retry_ms == 12


@pytest.mark.parametrize("digits", [20, 5000])
def test_a_server_lets_us_wait_for_an_hour_at_most(digits: int) -> None:
    parser = EventParser("")
    parser.take(b"retry: " + b"9" * digits + b"\n\n")
    assert parser.retry_ms == 3_600_000


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MESSAGE_BYTES_MAX", 1000)
    for line in (b"data: x\n", b"x"):
        parser = EventParser("")
        for _ in range(1000 // len(line)):
            assert parser.take(line) == []
        with pytest.raises(DataError, match="found a longer one"):
            parser.take(b"data: " + 1000 * b"x")
