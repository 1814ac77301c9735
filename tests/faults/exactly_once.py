"""What the tests of exactly once share: a source's rows, a durable node to kill, a reader of windows, and the check."""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import wukongs
from tests.processes import child
from wukongs.errors import NodeUnavailable

BATCH_MS = 100
RANGE_MS, STEP_MS = 300, 200
FAST, SLOW = "http://ex/fast", "http://ex/slow"
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?t
FROM STREAM <{FAST}> [RANGE {RANGE_MS}ms STEP {STEP_MS}ms] FROM STREAM <{SLOW}> [RANGE {RANGE_MS}ms STEP {STEP_MS}ms]
WHERE {{ ?s <http://ex/p> ?o . ?t <http://ex/q> ?o }}"""

Row = tuple[int, str, str, str]
"""Time in ms, then the names of subject, predicate and object."""


def made(rng: random.Random, count: int, end_ms: int = 1000) -> dict[str, list[Row]]:
    """Make rows of both streams, sorted by time; some triples repeat."""
    return {
        iri: sorted(
            (rng.randint(1, end_ms), f"{predicate}{rng.randrange(count)}", predicate, f"o{rng.randrange(40)}")
            for _ in range(size)
        )
        for iri, predicate, size in ((FAST, "p", count), (SLOW, "q", count // 4))
    }


def expected_windows(rows: dict[str, list[Row]]) -> dict[int, list[tuple[str, str]]]:
    """Join the two streams' rows of each window, from their plain values. A window is a set of triples."""
    last = min(-(-one[-1][0] // BATCH_MS) * BATCH_MS for one in rows.values())
    windows = {}
    for end in range(STEP_MS, last + 1, STEP_MS):
        inside = [{(s, o) for time_ms, s, _, o in rows[iri] if end - RANGE_MS < time_ms <= end} for iri in (FAST, SLOW)]
        windows[end] = sorted((s, t) for s, one in inside[0] for t, other in inside[1] if one == other)
    return windows


class Node:
    """A durable node that may be killed, and starts again in the same folder and at the same port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{found.getsockname()[1]}"
        self._file = folder / "node.toml"
        self._file.write_text(f'data_dir = "data"\n[[node]]\nclients = "{self.address}"\n')
        self._stack = ExitStack()
        self.start()

    def start(self) -> None:
        """Start the node; returns when it answers."""
        command = [sys.executable, "-m", "wukongs", "node", "--config", str(self._file)]
        self.process = self._stack.enter_context(child(command))
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip(), self.process.stderr and self.process.stderr.read()

    def kill(self) -> None:
        self.process.kill()
        self._stack.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()


def write_down(folder: Path, rows: dict[str, list[Row]]) -> list[str]:
    """Write each stream's file; return the writer's arguments for them."""
    arguments = []
    for iri, own in rows.items():
        path = folder / f"{iri[-4:]}.nt"
        path.write_text("".join(f"<http://ex/{s}> <http://ex/{p}> <http://ex/{o}> . {t}\n" for t, s, p, o in own))
        arguments += [iri, str(path)]
    return arguments


def declare(address: str) -> None:
    with wukongs.connect(address) as client:
        for iri in (FAST, SLOW):
            client.stream(iri, batch_ms=BATCH_MS)
        client.register(QUERY)


class Reader:
    """Reads the windows of the query in a thread, until it is closed, through all deaths of the node.

    group: reads as one of a group, instead of as the client that has registered the query; silence_s: how long it looks
    for the node before it is told NodeUnavailable, and asks again."""

    def __init__(self, address: str, *, group: str | None = None, silence_s: float = 60.0) -> None:
        self.windows: list[tuple[int, list[tuple[str, ...]]]] = []
        self.error: BaseException | None = None
        self.silences = 0
        self._client = wukongs.connect(address, silence_s=silence_s)
        self._query: Any = self._client.queries()[0] if group else self._client.register(QUERY)
        self._group = group
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._is_closed.is_set():
                try:
                    # A reader of a group is one call: it is told no window twice, the one of the next call may be.
                    for window in self._query.results(0.2 if self._group is None else None, group=self._group):
                        self.windows.append((window.end_ms, sorted(short(row) for row in window)))
                except NodeUnavailable:
                    self.silences += 1
        except BaseException as error:
            self.error = error

    def close(self) -> None:
        self._is_closed.set()
        if self._group is not None:
            self._client.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._client.close()

    def read_all(self, rows: dict[str, list[Row]]) -> list[tuple[int, list[tuple[str, ...]]]]:
        """Wait until the last window that the rows tell of has come; return all that have."""
        deadline = time.monotonic() + 30
        while self.error is None and time.monotonic() < deadline:
            if self.windows and self.windows[-1][0] >= max(expected_windows(rows)):
                break
            time.sleep(0.05)
        time.sleep(0.3)  # for what may come too often
        self.close()
        if self.error is not None:
            raise self.error
        return self.windows


def check(address: str, rows: dict[str, list[Row]], *readers: Reader) -> None:
    """Compare what is stored, and every window that each reader was told, with the source's rows. Without a reader: all
    windows are there still."""
    with wukongs.connect(address) as client:
        client.settle(60)
        stored = sorted(tuple(str(term) for term in row) for row in client.query("SELECT ?s ?p ?o { ?s ?p ?o }"))
        assert [bare(row) for row in stored] == sorted(
            {tuple(f"http://ex/{name}" for name in one[1:]) for own in rows.values() for one in own}
        )
        counts = {iri: client.stats()["streams"][iri]["tuples"] for iri in rows}
        assert counts == {iri: len(own) for iri, own in rows.items()}
        told = [reader.read_all(rows) for reader in readers]
        if not readers:
            (query,) = client.queries()
            told = [[(one.end_ms, sorted(short(row) for row in one)) for one in query.results(timeout_s=2)]]
    known = expected_windows(rows)
    for windows in told:
        ends = [end for end, _ in windows]
        assert ends == sorted(set(ends))
        assert {end: found for end, found in windows if end in known} == known


def bare(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(term.strip("<>") for term in row)


def short(row: object) -> tuple[str, ...]:
    return tuple(str(term).strip("<>").removeprefix("http://ex/") for term in row)  # type: ignore[attr-defined]
