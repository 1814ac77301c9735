"""A server with many connections that do little: subscribers that do not read, connections without a request, senders
and readers that are slow. How long pushes and point queries take beside them, and the server's memory.

Each kind is opened, measured and closed again; the first figures are those of a server with nobody else. A push is a
POST of the tuples of one window, and ends when a subscriber that reads has the whole window."""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlencode, urlsplit

from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.http.heavy import Client
from wukongs.bench.http.run import milliseconds, serving
from wukongs.bench.memory import status_bytes

MB = 1 << 20
STREAM = "http://ex/s"
REGISTERED = f"REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{STREAM}> [RANGE 1s STEP 1s] WHERE {{ ?s ?p ?o }}"
TUPLES, PUSHES, POINTS = 10_000, 20, 200
SUBSCRIBERS, IDLE, SLOW_SENDERS, SLOW_READERS = 500, 2000, 500, 50
TIMES = "Times, ms"
LARGE = "SELECT * { ?a <http://ex/p> ?g . ?b <http://ex/p> ?g } LIMIT 100000"


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run it. quick: few connections and tuples. Returns the exit status: 1 for a wrong answer."""
    share, tuples, pushes = (20, 100, 3) if quick else (1, TUPLES, PUSHES)
    results = Report("http-idle", {"tuples of a window": tuples, "windows": pushes})
    _allow(4 * IDLE)
    try:
        with TemporaryDirectory() as folder:
            stored = Path(folder) / "stored.nt"
            stored.write_text(
                "".join(f"<http://ex/{at}> <http://ex/p> <http://ex/g{at % 20}> .\n" for at in range(2000))
            )
            with serving(stored) as (address, server):
                _run(results, address, server.pid, share, tuples, pushes)
    except (WrongAnswer, RuntimeError, OSError) as error:
        print(f"wukongs: bench http-idle: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def _allow(files: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wished = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wished), hard))


def _run(results: Report, address: str, pid: int, share: int, tuples: int, pushes: int) -> None:
    client = Client(address, 10)
    told = {"iri": STREAM, "timing": True, "batch_ms": 1000}
    client.ask("POST", "/streams", json.dumps(told).encode(), "application/json")
    client.ask("POST", "/queries", REGISTERED.encode(), "application/sparql-query")
    feed = Feed(address, tuples)
    feed.push(3)
    kinds: dict[str, tuple[int, Callable[[int], bytes]]] = {
        "nobody else": (0, lambda _: b""),
        "subscribers that do not read": (SUBSCRIBERS // share, _subscribe("text/event-stream")),
        "connections without a request": (IDLE // share, lambda _: b""),
        "senders of half a request": (
            SLOW_SENDERS // share,
            lambda _: b"POST /sparql HTTP/1.1\r\nHost: localhost\r\nX",
        ),
        "readers of nothing of a large answer": (SLOW_READERS // share, lambda _: _large()),
    }
    for kind, (count, begin) in kinds.items():
        with _opened(address, count, begin):
            time.sleep(1.0 if count else 0.0)
            pushed = feed.push(pushes)
            asked = _points(Client(address, 10))
        results.check(f"windows read, {kind}", pushes, len(pushed))
        results.add(
            TIMES,
            {
                "beside": kind,
                "how many": count,
                "what": "a push",
                **milliseconds(pushed),
                "RSS, MB": status_bytes("VmRSS", pid) // MB,
            },
        )
        results.add(
            TIMES,
            {
                "beside": kind,
                "how many": count,
                "what": "a point query",
                **milliseconds(asked),
                "RSS, MB": status_bytes("VmRSS", pid) // MB,
            },
        )
        time.sleep(1.0)


def _subscribe(kind: str) -> Callable[[int], bytes]:
    def begin(number: int) -> bytes:
        return f"GET /queries/q/windows?after=now HTTP/1.1\r\nHost: localhost\r\nAccept: {kind}\r\n\r\n".encode()

    return begin


def _large() -> bytes:
    return f"GET /sparql?{urlencode({'query': LARGE})} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@contextmanager
def _opened(address: str, count: int, begin: Callable[[int], bytes]) -> Iterator[None]:
    """Open connections, of many addresses, and send how each begins; nothing is read of them."""
    parts, opened = urlsplit(address), list[socket.socket]()
    try:
        for number in range(count):
            source = (f"127.0.1.{1 + number % 200}", 0)
            one = socket.create_connection((parts.hostname or "", parts.port or 0), 30, source)
            opened.append(one)
            one.sendall(begin(number))
        yield
    finally:
        for one in opened:
            with suppress(OSError):
                one.close()


def _points(client: Client) -> list[float]:
    times = list[float]()
    for at in range(POINTS):
        began = time.perf_counter()
        rows = client.query(f"SELECT ?g {{ <http://ex/{at}> <http://ex/p> ?g }}")
        times.append(time.perf_counter() - began)
        if [row["g"]["value"] for row in rows] != [f"http://ex/g{at % 20}"]:
            raise WrongAnswer(f"point query {at}: {rows}")
    return times


class Feed:
    """Pushes windows, and reads each."""

    def __init__(self, address: str, tuples: int) -> None:
        self._address, self._reader, self._tuples, self._window = address, Client(address, 8), tuples, 0
        self._reader.connection.request("GET", "/queries/q/windows?after=now", headers={"Accept": "text/event-stream"})
        self._lines = iter(self._reader.connection.getresponse().readline, b"")

    def push(self, count: int) -> list[float]:
        """Return how long each window took, in seconds. Raises WrongAnswer."""
        client, times = Client(self._address, 7), list[float]()
        for _ in range(count):
            self._window += 1
            end_ms = 1000 * self._window
            line = "<http://ex/%d> <http://ex/p> <http://ex/o> . " + f"{end_ms}\n"
            body = "".join(line % at for at in range(self._tuples)).encode()
            began = time.perf_counter()
            client.ask("POST", f"/streams/{quote(STREAM, '')}?advance_ms={end_ms}", body, "application/n-triples")
            while not (line_read := next(self._lines)).startswith(b"data: "):
                pass
            times.append(time.perf_counter() - began)
            if (rows := line_read.count(b'"s"')) < self._tuples:
                raise WrongAnswer(f"window {end_ms}: {rows} rows")
        return times
