"""A client repeats what it does not know the outcome of: each change counts once, whenever nodes are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import wukongs
from tests.faults.test_cluster_processes import NODE, running
from tests.faults.test_power_loss import SMALL, folders
from tests.processes import child
from wukongs.cli.ports import free_ports
from wukongs.remote.client import RemoteEngine
from wukongs.remote.stream import RemoteStream

EX = "http://ex/"
COUNT = "SELECT ?n { <http://ex/c> <http://ex/n> ?n }"
ADD = """DELETE { <http://ex/c> <http://ex/n> ?n } INSERT { <http://ex/c> <http://ex/n> ?m }
WHERE { <http://ex/c> <http://ex/n> ?n BIND(?n + 1 AS ?m) }"""


class Served:
    """One node with a data folder, at an address that stays, started again whenever it was killed."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.address = f"tcp://127.0.0.1:{port}"
        self._file = folder / "node.toml"
        self._file.write_text(f'data_dir = "data"\n[[node]]\nclients = "{self.address}"\n')
        self._process = self._start()
        self._rng = random.Random(7)

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "wukongs", "node", "--config", str(self._file)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip() == self.address
        return process

    def die(self, count: int, seconds: float) -> None:
        """Kill it again and again, at least `count` times and for `seconds`."""
        until_s = time.monotonic() + seconds
        while count > 0 or time.monotonic() < until_s:
            time.sleep(self._rng.uniform(0.2, 1.5))
            self._process.kill()
            self._process.wait()
            count -= 1
            self._process = self._start()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def at_once(*works: Callable[[], object]) -> None:
    """Do works at the same time; raise the first error of one."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def changing(
    client: RemoteEngine, stream: RemoteStream, done: Counter[str], is_over: threading.Event
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what adds one, and what pushes three tuples, until it is over; done counts how often."""
    counting = threading.Lock()

    def add() -> None:
        while not is_over.is_set():
            client.update(ADD, timeout_s=240)
            with counting:
                done["update"] += 1

    def push() -> None:
        while not is_over.is_set():
            at = done["push"]
            tuples = [(f"<{EX}s{at}-{row}>", f"<{EX}p>", f"<{EX}o>", 10 * at + 2) for row in range(3)]
            assert stream.push(tuples, timeout_s=240) == 3
            done["push"] += 1

    return add, push


def check_counts(client: RemoteEngine, stream: RemoteStream, done: Counter[str]) -> None:
    stream.advance(10 * done["push"] + 1000)
    client.settle(60)
    assert [int(str(row[0].toPython())) for row in client.query(COUNT)] == [done["update"]]
    (found,) = client.query(f"SELECT (COUNT(*) AS ?n) {{ ?s <{EX}p> ?o }}")
    assert int(found[0].toPython()) == 3 * done["push"]
    assert client.stats()["streams"][EX + "s"]["tuples"] == 3 * done["push"]
    print(dict(done))


@pytest.mark.slow
def test_changes_count_once_over_kills_of_a_served_engine(tmp_path: Path) -> None:
    """Updates that add one, and tuples that are alike: doing one of them twice, or not at all, shows in the counts."""
    with Served(tmp_path) as node, wukongs.connect(node.address, silence_s=120) as client:
        client.update(f"INSERT DATA {{ <{EX}c> <{EX}n> 0 }}")
        stream = client.stream(EX + "s", batch_ms=100)
        done = Counter[str]()
        is_over = threading.Event()

        def kill() -> None:
            try:
                node.die(4, 20.0)
            finally:
                is_over.set()

        add, push = changing(client, stream, done, is_over)
        at_once(add, add, push, kill)
        check_counts(client, stream, done)


@pytest.mark.slow
@pytest.mark.rare
def test_changes_count_once_over_the_deaths_of_a_cluster_s_nodes(tmp_path: Path) -> None:
    """Nodes of three go, one after the other, and come back: the one that the client is with, or another one."""
    rng = random.Random(11)
    with running(tmp_path, 3, "replicas = 2\nsilence_s = 1.0") as nodes, ExitStack() as stack:
        client = stack.enter_context(wukongs.connect(nodes.clients, silence_s=4))
        client.update(f"INSERT DATA {{ <{EX}c> <{EX}n> 0 }}")
        stream = client.stream(EX + "s", batch_ms=100)
        stream.advance(1)
        done = Counter[str]()
        is_over = threading.Event()

        def kill() -> None:
            try:
                for _ in range(3):
                    time.sleep(rng.uniform(1, 3))
                    number = rng.randrange(3)
                    nodes.processes[number].kill()
                    nodes.processes[number].wait()
                    time.sleep(rng.uniform(2, 4))
                    nodes.processes[number] = stack.enter_context(child([*NODE, nodes.file(number)]))
                    out = nodes.processes[number].stdout
                    assert out is not None
                    said = out.readline().strip()
                    assert said == nodes.clients[number], nodes.said_at_end(number)
                time.sleep(1)
            finally:
                is_over.set()

        at_once(*changing(client, stream, done, is_over), kill)
        check_counts(client, stream, done)


@pytest.mark.slow
def test_changes_count_once_when_all_nodes_with_folders_are_killed_at_once(tmp_path: Path) -> None:
    """The small checkpoints cut the log again and again."""
    rng = random.Random(5)
    with folders(tmp_path, 2, 2, SMALL) as cluster, ExitStack() as stack:
        client = stack.enter_context(wukongs.connect(cluster.nodes.clients, silence_s=20))
        client.update(f"INSERT DATA {{ <{EX}c> <{EX}n> 0 }}")
        stream = client.stream(EX + "s", batch_ms=100)
        done = Counter[str]()
        is_over = threading.Event()

        def kill() -> None:
            try:
                for _ in range(3):
                    time.sleep(rng.uniform(1, 3))
                    cluster.kill()
                    cluster.start()
                time.sleep(1)
            finally:
                is_over.set()

        at_once(*changing(client, stream, done, is_over), kill)
        check_counts(client, stream, done)
