"""Exactly once: a writer and a durable node, each in a process of its own, are killed at random until all is sent.

Afterwards the node holds the triples of the source's text, and each window came once with the rows that the text gives.
A few lives here; `make faults-pipeline RUNS=200 SEED=n` makes more of them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.exactly_once import Node, Reader, check, declare, made, write_down
from tests.fuzz import rare
from tests.processes import child

RUNS = int(os.environ.get("WUKONGS_PIPELINE_RUNS", "2"))
SEED = int(os.environ.get("WUKONGS_FAULTS_SEED", "1"))
LIVES = 8


def writer(address: str, rows_per_epoch: int, arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "tests.faults.pipeline_writer", address, str(rows_per_epoch), *arguments]


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_nothing_out_and_nothing_twice(tmp_path: Path) -> None:
    rows = made(random.Random(1), 300)
    arguments = write_down(tmp_path, rows)
    with Node(tmp_path) as server:
        address = server.address
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
    arguments = write_down(tmp_path, rows)
    with Node(tmp_path) as server:
        address = server.address
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
@pytest.mark.parametrize("run", [rare(0), *range(1, RUNS)])
def test_writer_and_node_are_killed_at_random(tmp_path: Path, run: int) -> None:
    """Every other life has a reader from its beginning; without one, all windows are there at the end."""
    seed = SEED * 10_000 + run
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = made(rng, 1000)
    arguments = write_down(tmp_path, rows)
    with Node(tmp_path) as server, ExitStack() as stack:
        declare(server.address)
        readers = [Reader(server.address)] if run % 2 else []
        for reader in readers:
            stack.callback(reader.close)
        for _ in range(LIVES):
            with child(writer(server.address, rng.choice((1, 20, 200)), arguments)) as sender:
                assert sender.stdout is not None
                sender.stdout.readline()
                victim = rng.choice((server.process, sender))
                time.sleep(rng.uniform(0, 0.6))
                victim.kill()
            server.kill()
            server.start()
        last = writer(server.address, rng.choice((1, 20, 200)), arguments)
        done = subprocess.run(last, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        check(server.address, rows, *readers)


@pytest.mark.slow
def test_readers_are_told_each_window_once_while_the_node_dies(tmp_path: Path) -> None:
    """One is told that the node is away, and asks again; the other is a reader of a group, and waits."""
    rng = random.Random(3)
    rows = made(rng, 1000, end_ms=4000)
    arguments = write_down(tmp_path, rows)
    with Node(tmp_path) as server:
        declare(server.address)
        readers = [Reader(server.address, silence_s=0.3), Reader(server.address, group="g")]
        try:
            with child(writer(server.address, 20, arguments)) as sender:
                for _ in range(LIVES):
                    time.sleep(rng.uniform(0.05, 0.5))
                    server.kill()
                    time.sleep(rng.uniform(0, 0.3))
                    server.start()
                _, told = sender.communicate(timeout=300)
                assert sender.returncode == 0, told
            check(server.address, rows, *readers)
        finally:
            for reader in readers:
                reader.close()
