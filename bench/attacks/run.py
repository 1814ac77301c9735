"""Attacks from outside on a server and on a node's port: what was tried, refused and answered, and what it took.

Everything is sent over plain sockets, and nothing of the server's code is used. After each attack a user's own request
has to be answered, and the stored graph has to be what it was. Inputs are harmless: they pass bounds of this server,
and nothing else reads them."""

from __future__ import annotations

import gzip
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlencode, urlsplit

from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.memory import status_bytes

MB = 1 << 20
STORED, GROUPS = 20_000, 40
TABLE = "What was tried, what became of it, and what it took"
COUNT = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"
RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://ex/">'
GROWTH_MAX = 1500
"""MB. An attack after which the server holds more than that beyond its size at the start is a fault."""
HALF_MAX = GROWTH_MAX + os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB // 2
"""MB. Queries may hold half of the machine's memory by default, all together."""


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run all attacks. quick: each a few times. Returns the exit status: 1 if one of them got through."""
    results = Report("attacks", {"stored triples": STORED, "groups": GROUPS})
    try:
        with TemporaryDirectory() as folder:
            with _server(Path(folder)) as server:
                for attack in HTTP:
                    _try(results, server, attack, quick)
            with _node(Path(folder)) as server:
                for attack in NODE:
                    _try(results, server, attack, quick)
    except (WrongAnswer, RuntimeError, OSError) as error:
        print(f"wukongs: bench attacks: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


# --- the server, and how it is asked ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Server:
    """A process that serves. port: of HTTP, or a node's of clients."""

    process: subprocess.Popen[str]
    port: int
    is_http: bool

    def status(self, name: str) -> int:
        """Return a size of its memory in MB: VmRSS, VmHWM."""
        return status_bytes(name, self.process.pid) // MB

    def forget_peak(self) -> None:
        with suppress(OSError):
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def connect(self, number: int = 1, timeout_s: float = 30.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout_s, (f"127.0.0.{number}", 0))

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, number: int = 1
    ) -> tuple[int, bytes]:
        """Send a request; return the status of its answer, 0 if the connection ended without one, and the rest."""
        told = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(body)), "Connection": "close"}
        head = "".join(f"{key}: {value}\r\n" for key, value in {**told, **(headers or {})}.items())
        return self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body, number)

    def send(self, sent: bytes, number: int = 1, timeout_s: float = 60.0) -> tuple[int, bytes]:
        found = bytearray()
        with suppress(OSError), self.connect(number, timeout_s) as one:
            with suppress(ConnectionError):
                one.sendall(sent)
            while part := one.recv(1 << 16):
                found += part
        head, _, rest = bytes(found).partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        return (int(words[1]) if len(words) > 1 and words[1].isdigit() else 0), rest

    def query(self, text: str, number: int = 1, **fields: object) -> tuple[int, bytes]:
        path = "/sparql?" + urlencode({"query": text, **fields})
        return self.ask("GET", path, headers={"Accept": "text/csv"}, number=number)

    def check(self) -> float:
        """Ask as a user; return the seconds. Raises WrongAnswer."""
        began = time.perf_counter()
        if self.is_http:
            status, body = self.query(COUNT, 250)
            if status != 200 or str(STORED).encode() not in body:
                raise WrongAnswer(f"a user's query: {status} {body[:300]!r}")
        else:
            command = [sys.executable, "-m", "wukongs", "query", "--server", f"tcp://127.0.0.1:{self.port}", "ASK {}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode or "true" not in done.stdout.lower():
                raise WrongAnswer(f"a user's query: {done.returncode} {done.stdout} {done.stderr[-300:]}")
        if self.process.poll() is not None:
            raise WrongAnswer(f"the server has ended with {self.process.returncode}")
        return time.perf_counter() - began


@contextmanager
def _process(arguments: list[str], is_http: bool) -> Iterator[Server]:
    command = [sys.executable, "-m", "wukongs", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            port = urlsplit(address).port
            if port is None:
                raise RuntimeError(f"the server does not start: {address!r}")
            yield Server(process, port, is_http)
        finally:
            process.terminate()


@contextmanager
def _server(folder: Path) -> Iterator[Server]:
    stored = folder / "stored.nt"
    lines = (f"<http://ex/m{at}> <http://ex/in> <http://ex/g{at % GROUPS}> .\n" for at in range(STORED))
    stored.write_text("".join(lines))
    with _process(["serve", "--port", "0", "--data", str(stored)], is_http=True) as server:
        yield server


@contextmanager
def _node(folder: Path) -> Iterator[Server]:
    (folder / "node.toml").write_text('[[node]]\nclients = "tcp://127.0.0.1:0"\n')
    with _process(["node", "--config", str(folder / "node.toml")], is_http=False) as server:
        yield server


# --- attacks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attack:
    """what: it is, in a few words; expected: statuses that refuse it (0: the connection was ended); times: how often it
    is done; run: does it once and returns the statuses of its requests."""

    what: str
    expected: AbstractSet[int]
    times: int
    run: Callable[[Server, int], list[int]]
    growth_max: int = GROWTH_MAX


def _try(results: Report, server: Server, attack: Attack, quick: bool) -> None:
    server.check()
    server.forget_peak()
    before, began, slowest = server.status("VmRSS"), time.perf_counter(), 0.0
    statuses = Counter[int]()
    light, stop = list[float](), threading.Event()

    def ask_meanwhile() -> None:
        while not stop.wait(0.1):
            with suppress(WrongAnswer):
                light.append(server.check())
                continue
            light.append(60.0)

    user = threading.Thread(target=ask_meanwhile)
    if server.is_http:
        user.start()
    try:
        for number in range(min(attack.times, 3) if quick else attack.times):
            one = time.perf_counter()
            statuses.update(attack.run(server, number))
            slowest = max(slowest, time.perf_counter() - one)
    finally:
        stop.set()
        if server.is_http:
            user.join()
    others = sorted(statuses.keys() - attack.expected)
    if others:
        raise WrongAnswer(f"{attack.what}: answered {others}, expected {sorted(attack.expected)}")
    peak = server.status("VmHWM")
    if peak - before > attack.growth_max:
        raise WrongAnswer(f"{attack.what}: the server took {peak - before} MB, expected at most {attack.growth_max}")
    took_s = time.perf_counter() - began
    results.check(f"{attack.what}: a user is answered after it", True, server.check() < 30)
    answered = sum(count for status, count in statuses.items() if 200 <= status < 300)
    results.add(
        TABLE,
        {
            "attack": attack.what,
            "requests": statuses.total(),
            "refused": statuses.total() - answered - statuses[0],
            "ended": statuses[0],
            "answered": answered,
            "slowest, s": round(slowest, 2),
            "all, s": round(took_s, 1),
            "a user's slowest, s": round(max(light, default=0.0), 2),
            "RSS more at most, MB": peak - before,
        },
    )


def _asked(**headers: str) -> Callable[[Server, int], list[int]]:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda server, number: [server.ask("GET", "/sparql?query=ASK%7B%7D", b"", told, 2 + number % 4)[0]]


def _put(body: Callable[[int], bytes], kind: str, encoding: str = "identity") -> Callable[[Server, int], list[int]]:
    """Replace a graph by a document that will not do; the graph stays as it was."""

    def run(server: Server, number: int) -> list[int]:
        path = f"/store?graph={quote('http://ex/graph', '')}"
        status, found = server.ask("PUT", path, b"<http://ex/a> <http://ex/b> 1 .", {"Content-Type": "text/turtle"})
        if status not in (200, 201, 204):
            raise WrongAnswer(f"PUT: {status} {found[:300]!r}")
        status = server.ask("PUT", path, body(number), {"Content-Type": kind, "Content-Encoding": encoding})[0]
        if status >= 400 and server.ask("GET", path, b"", {"Accept": LINES})[1].count(b"\n") != 1:
            raise WrongAnswer("a document that will not do has changed the graph")
        server.ask("DELETE", path)
        return [status]

    return run


def _cut_body(server: Server, number: int) -> list[int]:
    """A body that ends before its length, and one whose parts never end."""
    path, body = f"/store?graph={quote('http://ex/cut', '')}", b"<http://ex/a> <http://ex/b> 1 .\n" * 20
    told = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: text/turtle\r\n"
    for head, sent in (
        (f"Content-Length: {2 * len(body)}\r\n", body),
        ("Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n" % (len(body), body)),
    ):
        with server.connect() as one:
            one.sendall((told + head + "\r\n").encode() + sent)
            time.sleep(0.05)
    if server.ask("GET", path)[0] != 404:
        raise WrongAnswer("half a body has made a graph")
    return [0, 0]


def _random_bytes(server: Server, number: int) -> list[int]:
    rng = random.Random(number)
    return [server.send(rng.randbytes(rng.choice((1, 10, 1000, 100_000))), timeout_s=0.3)[0]]


def _large_head(server: Server, number: int) -> list[int]:
    return [server.ask("GET", "/healthz", b"", {"X-Large": "a" * MB})[0]]


def _slow_head(server: Server, number: int) -> list[int]:
    """Heads that never end: as many connections at once."""
    opened = [server.connect() for _ in range(100)]
    for one in opened:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: a")
    deadline = time.monotonic() + 30
    for one in opened:
        one.settimeout(max(0.1, deadline - time.monotonic()))
        with suppress(OSError):
            one.recv(100)
        one.close()
    if time.monotonic() > deadline:
        raise WrongAnswer("a head that does not end is waited for")
    return [0] * len(opened)


def _many_at_once(text: str, fields: Mapping[str, object]) -> Callable[[Server, int], list[int]]:
    """Twenty queries at once, of four addresses."""

    def run(server: Server, number: int) -> list[int]:
        statuses = list[int]()

        def ask(at: int) -> None:
            statuses.append(server.query(text, 2 + at % 4, **fields)[0])

        threads = [threading.Thread(target=ask, args=(at,)) for at in range(20)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return statuses

    return run


def _document(inside: str, declared: str = "") -> bytes:
    return f'<?xml version="1.0"?>{declared}{RDF}{inside}</rdf:RDF>'.encode()


def _post(text: str, **fields: object) -> Callable[[Server, int], list[int]]:
    path, body = "/sparql?" + urlencode(fields), text.encode()
    return lambda server, number: [server.ask("POST", path, body, {"Content-Type": "application/sparql-query"})[0]]


def _cut_document(number: int) -> bytes:
    one = '<rdf:Description rdf:about="http://ex/{}"><e:p>v</e:p></rdf:Description>'
    whole = _document("".join(one.format(at) for at in range(50)))
    return whole[: len(whole) * (1 + number % 9) // 10]


def _entities(number: int) -> bytes:
    """Text 16,384 times as long as what declares it: 32 MB."""
    names = [f'<!ENTITY e0 "{"text" * 500}">']
    names += [f'<!ENTITY e{at} "{f"&e{at - 1};" * 4}">' for at in range(1, 8)]
    used = '<rdf:Description rdf:about="http://ex/a"><e:p>&e7;</e:p></rdf:Description>'
    return _document(used, f"<!DOCTYPE r [{''.join(names)}]>")


def _nested(number: int) -> bytes:
    depth = 20_000
    return (RDF + "<rdf:Description><e:p>" * depth + "</e:p></rdf:Description>" * depth + "</rdf:RDF>").encode()


def _long_literal(number: int) -> bytes:
    return b'<http://ex/a> <http://ex/b> "%b" .' % (b"a" * 17 * MB)


def _packed(number: int) -> bytes:
    return gzip.compress(b" " * 200 * MB)


NESTED = "ASK { FILTER " + "(" * 20_000 + "1" + ")" * 20_000 + " }"
UNION = "SELECT * { " + " UNION ".join(f"{{ ?s ?p {at} }}" for at in range(20_000)) + " }"
ALL_PAIRS = "SELECT * { ?a <http://ex/in> ?g . ?c <http://ex/in> ?h } ORDER BY ?a ?c"
HEAVY = "SELECT (COUNT(*) AS ?n) { SELECT DISTINCT ?a ?c { ?a <http://ex/in> ?g . ?c <http://ex/in> ?g } }"
XML, LINES = "application/rdf+xml", "application/n-triples"
HTTP = (
    Attack("a page of another site (Sec-Fetch-Site)", {403}, 64, _asked(Sec_Fetch_Site="cross-site")),
    Attack("a page of another site (Origin)", {403}, 64, _asked(Origin="https://page.example")),
    Attack("a page of another port (Origin)", {403}, 64, _asked(Origin="http://127.0.0.1:1")),
    Attack("another name leads here (Host)", {421}, 64, _asked(Host="page.example")),
    Attack("random bytes", {0, 400}, 200, _random_bytes),
    Attack("a head of 1 MB", {0, 431}, 20, _large_head),
    Attack("100 heads that never end", {0}, 1, _slow_head),
    Attack("bodies that are cut off", {0}, 20, _cut_body),
    Attack("RDF/XML that is cut off", {400}, 20, _put(_cut_document, XML)),
    Attack("RDF/XML, entities of entities", {400}, 10, _put(_entities, XML)),
    Attack("RDF/XML, 40,000 levels", {400}, 5, _put(_nested, XML)),
    Attack("a literal of 17 MB", {400}, 3, _put(_long_literal, LINES)),
    Attack("200 MB of spaces, packed", {400, 413}, 3, _put(_packed, LINES, "gzip")),
    Attack("20,000 parentheses", {400, 413}, 10, _post(NESTED)),
    Attack("a UNION of 20,000 branches, 2 s", {200, 400, 422, 503}, 3, _post(UNION, timeout=2)),
    Attack("20 ORDER BY of all pairs at once", {422, 503, 507}, 2, _many_at_once(ALL_PAIRS, {"timeout": 20}), HALF_MAX),
    Attack("20 heavy queries at once", {200, 422, 503}, 2, _many_at_once(HEAVY, {"timeout": 20}), HALF_MAX),
)


# --- a node's port ----------------------------------------------------------------------------------------------------

GREETING = b"\xff" + b"\0" * 8 + b"\x7f\3\0" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
BYTES = b"\1" * (1 << 16)
HUGE = b"\x02\0\0\0\0\x3f\xff\xff\xff"
"""The begin of a frame of 1 GiB."""
ONE_OF_MANY = b"\x03\0\0\0\0\0\0\xff\xf7" + BYTES[9:]


def _flood(chunk: bytes, *begins: bytes) -> Callable[[Server, int], list[int]]:
    """Send without end until the connection is ended; at most 1 GiB."""

    def run(server: Server, number: int) -> list[int]:
        sent = 0
        with suppress(OSError), server.connect(timeout_s=0.2) as one:
            for begin in begins:
                one.sendall(begin)
                with suppress(TimeoutError):
                    one.recv(4096)
            one.settimeout(20)
            while sent < 1024 * MB:
                sent += one.send(chunk)
        return [0 if sent < 1024 * MB else 200]

    return run


NODE = (
    Attack("node: random bytes", {0}, 200, _random_bytes, 300),
    Attack("node: bytes without end", {0}, 5, _flood(BYTES), 300),
    Attack("node: a frame without end", {0}, 5, _flood(BYTES, GREETING, READY, HUGE), 300),
    Attack("node: frames without end", {0}, 5, _flood(ONE_OF_MANY, GREETING, READY), 300),
)
