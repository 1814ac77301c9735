"""A process with a durable engine, to be killed. It says what was acknowledged, line by line, at once.

    python -m tests.faults.victim

reads a line of JSON per life from standard input: folder, seed, first and count of the operations, and die_at, the
step of the disk at which the life ends itself (0: never). Each life is a fork, so that it begins at once. Lines out:
`pid N`, `done N` (operation N was acknowledged), `window QUERY END_MS ROWS`, at the end of a last life `stored ROWS`
and `named ROWS`, then `over STATUS`. Readers of live views keep their sums in files beside the folder (kept_sums.py):
a life that ends with another status than 0 or -9 may have found one of them wrong.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import wukongs
from tests.faults.kept_sums import KeptSums
from tests.faults.workload import BATCH_MS, EX, LATENESS_MS, QUERIES, STREAMS, TIMING, operation, query_text
from wukongs.store.disk import Disk

SETTINGS = wukongs.Settings(log_segment_bytes=8192, checkpoint_bytes=40_000)


def say(*words: Any) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def rows_of(result: Any) -> str:
    return json.dumps(sorted([str(term) for term in row] for row in result), separators=(",", ":"))


def die_at(step: int) -> None:
    """End this process, as kill -9 does, before step number `step` that it makes on the disk."""
    left = step

    def dying(original: Any) -> Any:
        def method(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if original.__name__ == "write":  # half of it reaches the file
                    data = bytes(arguments[2])
                    original(*arguments[:2], data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        return method

    for name in ("create", "write", "fsync", "rename", "fsync_folder", "unlink", "truncate"):
        setattr(Disk, name, dying(getattr(Disk, name)))


class Victim:
    """One life."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.engine = wukongs.Engine(order["folder"], settings=SETTINGS)
        declared = {iri: self._declare(iri) for iri in STREAMS}
        self.streams = declared
        self.queries = {name: self.engine.register(query_text(name)) for name in QUERIES}
        self.sums = KeptSums(self.engine, Path(order["folder"] + "-kept"))

    def _declare(self, iri: str) -> Any:
        options = {"timing": [TIMING], "batch_ms": BATCH_MS, "history_ms": 300}
        stream = self.engine.stream(iri, **options, lateness_ms=LATENESS_MS[iri])  # type: ignore[arg-type]
        if not self.engine.stats()["streams"][iri]["tuples"]:
            stream.advance(0)
        return stream

    def live(self) -> None:
        first, count = self.order["first"], self.order["count"]
        for number in range(first, first + count):
            self.do(number, is_first=number == first)
            say("done", number)
            self.read()
            self.sums.read(number)
        if self.order["is_last"]:
            for stream in self.streams.values():
                stream.advance((first + count) * 100)
            self.engine.settle(timeout_s=60)
            self.read()
            self.sums.read()
            self.sums.check()
            say("stored", rows_of(self.engine.query("SELECT ?s ?p ?o { ?s ?p ?o }")))
            say("named", rows_of(self.engine.query("SELECT ?g ?s ?p ?o { GRAPH ?g { ?s ?p ?o } }")))
        self.engine.close()

    def do(self, number: int, is_first: bool) -> None:
        what = operation(self.order["seed"], number)
        if what.kind == "push":
            behind = [(triple, what.time_ms - 200) for triple in what.late]
            rows = [(*(f"<{term}>" for term in triple), t) for triple, t in [*what.rows(), *behind]]
            try:
                self.streams[what.stream].push(rows)
            except wukongs.StreamError:
                if not is_first:
                    raise
                # The life before was killed after this was safe, and before it could say so.
            other = self.streams[STREAMS[(number + 1) % 2]]
            other.advance(what.time_ms - 1)
        elif what.kind == "load":
            lines = [" ".join(f"<{term}>" for term in triple) + " .\n" for triple in what.triples]
            self.engine.load(io.BytesIO("".join(lines).encode()), format="nt")
        elif what.kind == "update":
            self.engine.update(what.text())
            self.sums.bind(number)
        else:
            self.engine.checkpoint()

    def read(self) -> None:
        for name, query in self.queries.items():
            for window in query.results(timeout_s=0):
                assert not window.partial, f"{name} at {window.end_ms} is partial"
                say("window", name, window.end_ms, rows_of(window))


def warm_up() -> None:
    """Load the kernels and all modules that a life needs."""
    with tempfile.TemporaryDirectory() as folder:
        order = {"folder": f"{folder}/data", "seed": 0, "first": 1, "count": 40, "is_last": True}
        Victim(order).live()


def main() -> int:
    said = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warm_up()
    os.dup2(said, 1)
    say("ready", EX)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                say("pid", os.getpid())
                if order["die_at"]:
                    die_at(order["die_at"])
                Victim(order).live()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        say("over", os.waitstatus_to_exitcode(status))
    return 0


if __name__ == "__main__":
    sys.exit(main())
