"""A node that writes streams goes in the middle of push_many: what was said to be taken is there, nothing twice."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.clusters import cluster
from tests.faults.test_cluster_processes import running
from tests.fuzz import SEED, first_and_slow

EX = "http://ex/"
STREAMS = [f"{EX}s{number}" for number in range(8)]
"""So many that each of three nodes writes some."""
CALLS = 30
END_S = 60.0
Tuples = list[tuple[str, str, str, int]]


def tuples(stream: str, call: int) -> Tuples:
    name = f"{stream.removeprefix(EX)}-{call}"
    return [(f"<{EX}{name}-{row}>", f"<{EX}p>", f"<{stream}>", call * 100 + 50 + row) for row in range(3)]


def push_all(engine: Any, lose: Callable[[], object], at_call: int) -> set[str]:
    """Make all calls, and let a node be lost beside one of them; return the subjects that were said to be taken. What
    may have been taken is said again, as a client would."""
    taken: set[str] = set()
    for call in range(1, CALLS):
        losing = threading.Thread(target=lose)
        if call == at_call:
            losing.start()
        said: dict[str, Tuples | None] = {stream: tuples(stream, call) for stream in STREAMS}
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            try:
                engine.push_many(said, call * 100 + 100)
            except (wukongs.NodeUnavailable, wukongs.StreamError) as error:
                named = re.search("The tuples of this call for (.*?) were taken", str(error))
                safe = named[1].split(", ") if named else []
                taken |= subjects(said, safe)
                stands = re.findall(r"stream (\S+): timestamp \d+ ms at tuple 0 of the call, but", str(error))
                said |= dict.fromkeys([*safe, *stands])  # a writer that has gone had sent these to some nodes at least
                time.sleep(0.02)
            else:
                taken |= subjects(said, STREAMS)
                break
        else:
            raise AssertionError(f"call {call} came to no end within {END_S:g} s")
        if call == at_call:
            losing.join()
    return taken


def subjects(said: Mapping[str, Tuples | None], streams: list[str]) -> set[str]:
    return {row[0][1:-1] for stream in streams for row in said[stream] or ()}


def check(engine: Any, taken: set[str]) -> None:
    engine.settle(END_S)
    found = [str(row[0]) for row in engine.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}")]
    said = {row[0][1:-1] for call in range(1, CALLS) for stream in STREAMS for row in tuples(stream, call)}
    assert taken <= set(found) <= said
    assert len(said - taken) <= 3 * len(STREAMS), "only one call was cut off"
    streams = engine.stats()["streams"]
    assert {streams[name]["closed_ms"] for name in STREAMS} == {CALLS * 100}
    for stream in STREAMS:
        rows = engine.query(f"SELECT ?s {{ ?s <{EX}p> <{stream}> }}")
        assert streams[stream]["tuples"] == len(rows), f"{stream}: some tuples were taken twice"


def declare(engine: Any) -> None:
    for stream in STREAMS:
        engine.stream(stream, batch_ms=100)


@pytest.mark.parametrize("lost", first_and_slow([1, 2]))
@pytest.mark.slow
def test_a_writer_that_goes_in_the_middle_of_push_many(lost: int) -> None:
    rng = random.Random((SEED or 0) + lost)
    with cluster(3, 2) as nodes:
        engine = nodes[0].engine
        declare(engine)

        def lose() -> None:
            time.sleep(rng.random() * 0.03)
            nodes[lost].close()

        check(engine, push_all(engine, lose, rng.randrange(5, 25)))


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
def test_a_writer_that_is_killed_in_the_middle_of_push_many(tmp_path: Path, lost: int) -> None:
    rng = random.Random((SEED or 0) + 10 + lost)
    with running(tmp_path, 3, "replicas = 2") as nodes, wukongs.connect(nodes.clients[0]) as client:
        declare(client)

        def lose() -> None:
            time.sleep(rng.random() * 0.03)
            os.kill(nodes.processes[lost].pid, signal.SIGKILL)

        check(client, push_all(client, lose, rng.randrange(5, 25)))
