"""A server under everything at once: LSBench's five streams at the paper's rates, L1-L3 with a thousand subscribers,
and point queries by the clock. Server, subscribers and the others are processes of their own, on one machine.

Times of point queries count from when they were due, so one that waits for another counts its wait. Windows count from
the moment at which the last advance that they wait for was sent. Every window has to come once to each subscriber, with
the rows that sets and dictionaries give.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from wukongs.bench.continuous.workload import Workload, make_workload
from wukongs.bench.harness import Report, WrongAnswer, summary
from wukongs.bench.lsbench.data import IRI, TIMING
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.store.injection import BATCH_MS

STORED, SECONDS, SUBSCRIBERS, POINTS_PER_S, ASKERS = 300_000, 30, 1000, 200, 8
SMALL = tuple(query for query in QUERIES if query.name in ("L1", "L2", "L3"))
WINDOW, LAST = "1s", [*IRI][-1]
POINTS = f"{POINTS_PER_S} point queries a second, ms from when they were due"
WINDOWS = "Windows of 1 s: from the last advance to a subscriber, ms"
PUSHES = "Pushes of a stream batch of 100 ms, five requests, ms"
WARM_UP = 10
"""Windows that are not measured: kernels are compiled."""


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run it. quick: tiny data and few subscribers. Returns the exit status: 1 for a wrong answer or a lost window."""
    seconds, subscribers, points, divisor = (3, 12, 20, 200) if quick else (SECONDS, SUBSCRIBERS, POINTS_PER_S, 1)
    workload = make_workload(5_000 if quick else STORED, 10 * (seconds + WARM_UP), divisor)
    results = Report("http", workload.describe())
    try:
        with TemporaryDirectory() as folder:
            _run(results, workload, Path(folder), seconds, subscribers, points)
    except (WrongAnswer, RuntimeError, OSError) as error:
        print(f"wukongs: bench http: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def _run(results: Report, workload: Workload, folder: Path, seconds: int, count: int, points: int) -> None:
    stored = folder / "stored.nt"
    stored.write_bytes(workload.data.stored)
    user = workload.posters[0]
    with serving(stored) as (address, server):
        client = Connection(address)
        for name, iri in IRI.items():
            told = {"iri": iri, "timing": name in TIMING, "batch_ms": BATCH_MS}
            client.ask("POST", "/streams", json.dumps(told).encode(), "application/json")
        for query in SMALL:
            text = query.register_text(WINDOW, WINDOW, user, f"p{user[1:]}")
            client.ask("POST", "/queries", text.encode(), "application/sparql-query")
        with _subscribing(address, count, [query.name for query in SMALL]) as reading:
            Asker(address, workload, points / ASKERS, 1, 0).run()  # kernels are loaded
            askers = [Asker(address, workload, points / ASKERS, seconds, number) for number in range(ASKERS)]
            pushed_s, sent = list[float](), dict[str, dict[int, float]]()
            _push(client, workload, 10 * WARM_UP, time.time(), [], {}, 1)
            for asker in askers:
                asker.start()
            cpu_s, began = _cpu_s(server.pid), time.time()
            _push(client, workload, 10 * seconds, began, pushed_s, sent, 10 * WARM_UP + 1)
            for asker in askers:
                asker.join()
            took_s = time.time() - began
            cpu_s = _cpu_s(server.pid) - cpu_s
            time.sleep(1.0)
            came = _ended(reading)
        status = {one["status"] for asker in askers for one in asker.failed}
    ends = sorted(sent["PO"])
    latencies = _checked(results, workload, user, came, ends, sent)
    results.check("point queries that failed", 0, sum(len(asker.failed) for asker in askers) + len(status))
    times = [one for asker in askers for one in asker.times_s]
    results.add(POINTS, {"queries": len(times), **milliseconds(times)})
    for query in SMALL:
        results.add(
            WINDOWS, {"query": query.name, "windows": len(latencies[query.name]), **milliseconds(latencies[query.name])}
        )
    tuples = sum(len(stream) for batch in workload.batches[-10:] for stream in batch.values())
    late = sum(one > BATCH_MS / 1000 for one in pushed_s)
    results.add(PUSHES, {"tuples/s": tuples, "took too long": late, **milliseconds(pushed_s)})
    results.notes.append(f"{count} subscribers; the server used {cpu_s / took_s:.2f} cores")


def _checked(
    results: Report,
    workload: Workload,
    user: str,
    came: Sequence[Mapping[str, Any]],
    ends: Sequence[int],
    sent: Mapping[str, Mapping[int, float]],
) -> dict[str, list[float]]:
    """Compare what has come with what should have; return the latencies by query, in seconds."""
    latencies: dict[str, list[float]] = {query.name: [] for query in SMALL}
    whole = 0
    for one in came:
        last = sent["PO" if one["query"] == "L1" else LAST]  # those that read the stored graph wait for all streams
        measured = [(end, at) for end, at in one["came"] if end in last]
        whole += [end for end, _ in measured] == list(ends) and not one["others"]
        latencies[one["query"]] += [at - last[end] for end, at in measured]
    results.check("subscribers that got each window once, in order", len(came), whole)
    for one in came[: len(SMALL)]:
        rows = sum(len(one["windows"][str(end)]["results"]["bindings"]) for end in ends)
        wanted = sum(len(workload.answer(one["query"], user, end // BATCH_MS)) for end in ends)
        results.check(f"{one['query']}: rows of all windows", wanted, rows)
    return latencies


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, p90, p99 and the most of times, in milliseconds."""
    found = summary([1000 * one for one in seconds])
    return {name: found[name] for name in ("median", "p90", "p99", "max")}


class Connection:
    """One connection to the server, kept alive. number: it is of a client of its own address, 127.0.0.<number>."""

    def __init__(self, address: str, number: int | None = None, timeout_s: float = 60.0) -> None:
        parts, source = urlsplit(address), None if number is None else (f"127.0.0.{number}", 0)
        host = parts.hostname or ""
        self.connection = http.client.HTTPConnection(host, parts.port, timeout_s, source_address=source)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str | None = None) -> bytes:
        """Send a request; return the body of its answer. Raises RuntimeError (an error was answered)."""
        self.connection.request(method, path, body, {} if kind is None else {"Content-Type": kind})
        answer = self.connection.getresponse()
        found = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path[:80]}: {answer.status} {found[:300]!r}")
        return found


class Asker(threading.Thread):
    """Asks point queries by the clock. times_s: from when each was due until its answer was read."""

    def __init__(self, address: str, workload: Workload, per_s: float, seconds: int, number: int) -> None:
        super().__init__()
        self.times_s: list[float] = []
        self.failed: list[dict[str, Any]] = []
        self._connection, self._per_s, self._seconds = Connection(address), per_s, seconds
        self._users, self._number = workload.posters, number

    def run(self) -> None:
        began = time.perf_counter() + self._number / (ASKERS * self._per_s)
        for turn in range(int(self._per_s * self._seconds)):
            due = began + turn / self._per_s
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            user = self._users[(turn * ASKERS + self._number) % len(self._users)]
            query = f"SELECT ?p ?o {{ <http://www.ins.cwi.nl/sib/person/p{user[1:]}> ?p ?o }}"
            try:
                self._connection.ask("GET", "/sparql?" + urlencode({"query": query}))
            except (RuntimeError, OSError) as error:
                self.failed.append({"status": str(error)})
            self.times_s.append(time.perf_counter() - due)


def _push(
    client: Connection,
    workload: Workload,
    count: int,
    began: float,
    took_s: list[float],
    sent: dict[str, dict[int, float]],
    first: int,
) -> None:
    """Push stream batches by the clock. sent: by stream and end of a window, when its advance was sent."""
    for at in range(count):
        number = first + at
        bodies = {name: _arrow(table) for name, table in workload.tables(number).items()}
        left = began + (at + 1) * BATCH_MS / 1000 - time.time()
        if left > 0:
            time.sleep(left)
        start = time.time()
        for name, body in bodies.items():
            if number * BATCH_MS % 1000 == 0:
                sent.setdefault(name, {})[number * BATCH_MS] = time.time()
            path = f"/streams/{quote(IRI[name], '')}?advance_ms={number * BATCH_MS}"
            client.ask("POST", path, body, "application/vnd.apache.arrow.stream")
        took_s.append(time.time() - start)


def _arrow(table: Any) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@contextmanager
def serving(stored: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "wukongs", "serve", "--port", "0", "--data", str(stored)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            if not (address := server.stdout.readline().strip()):
                raise RuntimeError("the server does not start")
            yield address, server
        finally:
            server.terminate()


@contextmanager
def _subscribing(address: str, count: int, queries: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "wukongs.bench.http.subscribers", address, str(count), *queries]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reading:
        assert reading.stdout is not None
        if reading.stdout.readline().strip() != "ready":
            raise RuntimeError("the subscribers do not start")
        try:
            yield reading
        finally:
            reading.kill()


def _ended(reading: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, _ = reading.communicate("", timeout=60)
    found: list[dict[str, Any]] = json.loads(out)
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
