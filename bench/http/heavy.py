"""A server whose threads and processors heavy queries want: how long light readers and windows wait beside them.

Heavy clients of four addresses ask joins with ORDER BY, DISTINCT, GROUP BY and functions on strings, one after the
other. A client of another address asks point queries by the clock; times count from when each was due. Another one
pushes a tuple for each window of 100 ms; a window's time counts from the push that closes it until a subscriber has it.
Both are measured before the heavy ones begin, and beside them. Each answer is checked, by sums that need no engine."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode

from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.http.run import Connection, milliseconds, serving

GROUPS, MEMBERS = 40, 300
"""3,600,000 pairs of one group."""
HEAVY, ADDRESSES, SECONDS, LIGHT_PER_S = 20, 4, 20, 20
WINDOW_MS = 100
STREAM = "http://ex/s"
PAIRS = "?a <http://ex/in> ?g . ?c <http://ex/in> ?g"
KINDS = {
    "ORDER BY": f"SELECT ?a ?c {{ {PAIRS} }} ORDER BY DESC(?c) ?a OFFSET 1000000 LIMIT 3",
    "DISTINCT": f"SELECT (COUNT(*) AS ?n) {{ SELECT DISTINCT ?a ?c {{ {PAIRS} }} }}",
    "GROUP BY": f"SELECT ?a (COUNT(?c) AS ?n) {{ {PAIRS} }} GROUP BY ?a ORDER BY ?a LIMIT 3",
    "strings": f"SELECT (COUNT(*) AS ?n) {{ {PAIRS} FILTER CONTAINS(CONCAT(STR(?a), STR(?c)), '99') }}",
}
REGISTERED = (
    f"REGISTER QUERY q AS SELECT ?x ?g FROM <urn:x-wukongs:default> "
    f"FROM STREAM <{STREAM}> [RANGE {WINDOW_MS}ms STEP {WINDOW_MS}ms] "
    "WHERE { ?x <http://ex/sees> ?y . ?y <http://ex/in> ?g }"
)
POINTS, WINDOWS, HEAVIES = "Point queries, ms from when they were due", "Windows, ms from the push", "Heavy queries, ms"


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run it. quick: small groups. Returns the exit status: 1 for a wrong answer or a lost window."""
    members, seconds = (20, 3) if quick else (MEMBERS, SECONDS)
    results = Report(
        "http-heavy", {"groups": GROUPS, "members": members, "heavy clients": HEAVY, "their addresses": ADDRESSES}
    )
    try:
        with TemporaryDirectory() as folder:
            stored = Path(folder) / "stored.nt"
            stored.write_text(
                "".join(
                    f"<{name(group, one)}> <http://ex/in> <http://ex/g{group}> .\n"
                    for group in range(GROUPS)
                    for one in range(members)
                )
            )
            with serving(stored) as (address, _):
                _run(results, address, members, seconds)
    except (WrongAnswer, RuntimeError, OSError) as error:
        print(f"wukongs: bench http-heavy: {error}", file=sys.stderr)
        return 1
    results.publish(report)
    return 0


def name(group: int, one: int) -> str:
    return f"http://ex/m{group * MEMBERS + one}"


def _run(results: Report, address: str, members: int, seconds: int) -> None:
    told = {"iri": STREAM, "timing": True, "batch_ms": WINDOW_MS}
    client = Client(address, 10)
    client.ask("POST", "/streams", json.dumps(told).encode(), "application/json")
    client.ask("POST", "/queries", REGISTERED.encode(), "application/sparql-query")
    feed = Feed(address, members)
    for beside in (False, True):
        with _heavy(results, address, beside) as kinds:
            if beside:
                time.sleep(1.0)
            light = Light(address, members, seconds)
            light.start()
            waited = feed.run(seconds)
            light.join()
        label = "beside" if beside else "alone"
        results.check(f"point queries that failed, {label}", 0, light.failed)
        results.add(POINTS, {"": label, "queries": len(light.times_s), **milliseconds(light.times_s)})
        results.add(WINDOWS, {"": label, "windows": len(waited), **milliseconds(waited)})
        for kind, times in kinds.items():
            if times:
                results.add(HEAVIES, {"": kind, "queries": len(times), **milliseconds(times)})


class Client(Connection):
    """A client of an address of its own, which waits for long."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__(address, number, 300.0)

    def query(self, text: str) -> list[dict[str, Any]]:
        found = self.ask("GET", "/sparql?" + urlencode({"query": text, "timeout": 200}))
        rows: list[dict[str, Any]] = json.loads(found)["results"]["bindings"]
        return rows


class Light(threading.Thread):
    """Asks for one member's group by the clock. times_s: from when each was due until its answer was read, or until
    the end if it was never asked, because those before it took so long."""

    def __init__(self, address: str, members: int, seconds: int) -> None:
        super().__init__()
        self.times_s: list[float] = []
        self.failed = 0
        self._client, self._members, self._seconds = Client(address, 6), members, seconds

    def run(self) -> None:
        began = time.perf_counter()
        for turn in range(LIGHT_PER_S * self._seconds):
            due = began + turn / LIGHT_PER_S
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            elif -left > self._seconds:
                self.times_s.append(-left)
                continue
            group, one = turn % GROUPS, turn % self._members
            try:
                rows = self._client.query(f"SELECT ?g {{ <{name(group, one)}> <http://ex/in> ?g }}")
                self.failed += [row["g"]["value"] for row in rows] != [f"http://ex/g{group}"]
            except (RuntimeError, OSError):
                self.failed += 1
            self.times_s.append(time.perf_counter() - due)


class Feed:
    """Pushes a tuple for each window, and reads the windows."""

    def __init__(self, address: str, members: int) -> None:
        self._client, self._reader, self._members = Client(address, 7), Client(address, 8), members
        self._number = 0
        self._reader.connection.request("GET", "/queries/q/windows?after=now", headers={"Accept": "text/event-stream"})
        self._lines = iter(self._reader.connection.getresponse().readline, b"")

    def run(self, seconds: int) -> list[float]:
        """Return how long each window took, in seconds. Raises WrongAnswer."""
        waited = list[float]()
        began = time.perf_counter()
        for turn in range(seconds * 1000 // WINDOW_MS):
            if (left := began + turn * WINDOW_MS / 1000 - time.perf_counter()) > 0:
                time.sleep(left)
            elif -left > seconds:
                break
            self._number += 1
            end_ms, group = self._number * WINDOW_MS, self._number % GROUPS
            line = f"<http://ex/x> <http://ex/sees> <{name(group, self._number % self._members)}> . {end_ms}\n"
            sent = time.perf_counter()
            path = f"/streams/{quote(STREAM, '')}?advance_ms={end_ms}"
            self._client.ask("POST", path, line.encode(), "application/n-triples")
            while not (line := next(self._lines).decode()).startswith("data: "):
                pass
            waited.append(time.perf_counter() - sent)
            rows = json.loads(line[6:])["results"]["bindings"]
            if [row["g"]["value"] for row in rows] != [f"http://ex/g{group}"]:
                raise WrongAnswer(f"window {end_ms}: {rows}")
        return waited


@contextmanager
def _heavy(results: Report, address: str, beside: bool) -> Iterator[dict[str, list[float]]]:
    """Ask heavy queries until the block ends; their times by kind."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    failed = list[str]()
    stop = threading.Event()

    def ask(number: int) -> None:
        client, kinds = Client(address, 1 + number % ADDRESSES), [*KINDS]
        turn = number // ADDRESSES
        while not stop.is_set():
            kind, began = kinds[turn % len(kinds)], time.perf_counter()
            try:
                client.query(KINDS[kind])
            except (RuntimeError, OSError) as error:
                failed.append(str(error))
                time.sleep(0.1)
            else:
                times[kind].append(time.perf_counter() - began)
            turn += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(HEAVY if beside else 0)]
    for one in threads:
        one.start()
    try:
        yield times
    finally:
        stop.set()
        for one in threads:
            one.join()
    if failed:
        results.notes.append(f"{len(failed)} heavy queries failed, the first one: {failed[0]}")
