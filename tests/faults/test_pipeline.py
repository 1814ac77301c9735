"""Exactly once: a writer and a durable node, each in a process of its own, are killed at random until all is sent.

Afterwards the node holds the triples of the source's text, and each window came once with the rows that the text gives.
A few lives here; `make faults-pipeline RUNS=200 SEED=n` makes more of them.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import wukongs
from tests.processes import child

RUNS = int(os.environ.get("WUKONGS_PIPELINE_RUNS", "2"))
SEED = int(os.environ.get("WUKONGS_FAULTS_SEED", "1"))
LIVES = 8
BATCH_MS = 100
RANGE_MS, STEP_MS = 300, 200
FAST, SLOW = "http://ex/fast", "http://ex/slow"
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?t
FROM STREAM <{FAST}> [RANGE {RANGE_MS}ms STEP {STEP_MS}ms] FROM STREAM <{SLOW}> [RANGE {RANGE_MS}ms STEP {STEP_MS}ms]
WHERE {{ ?s <http://ex/p> ?o . ?t <http://ex/q> ?o }}"""

Row = tuple[int, str, str, str]
"""Time in ms, then the names of subject, predicate and object."""


def made(rng: random.Random, count: int) -> dict[str, list[Row]]:
    """Make rows of both streams, sorted by time; some triples repeat."""
    end_ms = 1000
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


@contextmanager
def node(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a durable node at a port; returns when it answers."""
    file = folder / "node.toml"
    file.write_text(f'data_dir = "data"\n[[node]]\nclients = "tcp://127.0.0.1:{port}"\n')
    with child([sys.executable, "-m", "wukongs", "node", "--config", str(file)]) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip(), process.stderr and process.stderr.read()
        yield process


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


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


def writer(address: str, rows_per_epoch: int, arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "tests.faults.pipeline_writer", address, str(rows_per_epoch), *arguments]


def check(address: str, rows: dict[str, list[Row]]) -> None:
    """Compare what is stored and every window with the source's rows."""
    with wukongs.connect(address) as client:
        client.settle(60)
        stored = sorted(tuple(str(term) for term in row) for row in client.query("SELECT ?s ?p ?o { ?s ?p ?o }"))
        (query,) = client.queries()
        windows = [(one.end_ms, sorted(short(row) for row in one)) for one in query.results(timeout_s=2)]
    assert [bare(row) for row in stored] == sorted(
        {tuple(f"http://ex/{name}" for name in one[1:]) for own in rows.values() for one in own}
    )
    ends = [end for end, _ in windows]
    assert ends == sorted(set(ends))
    known = expected_windows(rows)
    assert {end: found for end, found in windows if end in known} == known


def bare(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(term.strip("<>") for term in row)


def short(row: object) -> tuple[str, ...]:
    return tuple(str(term).strip("<>").removeprefix("http://ex/") for term in row)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_nothing_out_and_nothing_twice(tmp_path: Path) -> None:
    rows = made(random.Random(1), 300)
    arguments, port = write_down(tmp_path, rows), free_port()
    address = f"tcp://127.0.0.1:{port}"
    with node(tmp_path, port):
        declare(address)
        with child(writer(address, 20, arguments)) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "ready\n"
            time.sleep(0.1)
            first.kill()
        subprocess.run(writer(address, 20, arguments), check=True, timeout=120)
        check(address, rows)


@pytest.mark.slow
def test_a_second_writer_locks_the_first_one_out(tmp_path: Path) -> None:
    rows = made(random.Random(2), 1000)
    arguments, port = write_down(tmp_path, rows), free_port()
    address = f"tcp://127.0.0.1:{port}"
    with node(tmp_path, port):
        declare(address)
        with child(writer(address, 1, arguments)) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "ready\n"
            time.sleep(0.1)
            second = subprocess.run(writer(address, 20, arguments), capture_output=True, text=True, timeout=60)
            _, told = first.communicate(timeout=60)
        assert second.returncode == 0, second.stderr
        assert first.returncode == 0 or "locked out by the newer writer" in told
        check(address, rows)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(RUNS))
def test_writer_and_node_are_killed_at_random(tmp_path: Path, run: int) -> None:
    seed = SEED * 10_000 + run
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = made(rng, 1000)
    arguments, port = write_down(tmp_path, rows), free_port()
    address = f"tcp://127.0.0.1:{port}"
    declared = False
    for life in range(LIVES + 1):
        is_last = life == LIVES
        with node(tmp_path, port) as server:
            if not declared:
                declare(address)
                declared = True
            with child(writer(address, rng.choice((1, 20, 200)), arguments)) as sender:
                assert sender.stdout is not None
                sender.stdout.readline()
                if is_last:
                    _, told = sender.communicate(timeout=300)
                    assert sender.returncode == 0, told
                    check(address, rows)
                    return
                victim = rng.choice((server, sender))
                timer = threading.Timer(rng.uniform(0, 0.6), victim.kill)
                timer.start()
                timer.join()
