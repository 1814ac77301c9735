"""Nodes with data folders that are all killed at once, or one by one, at any moment: what was acknowledged is there."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.faults.test_cluster_processes import NODE, Nodes
from tests.fuzz import SEED, first_and_rare
from tests.processes import child

EX = "http://ex/"
END_S = 60
SMALL = "[engine]\ncheckpoint_bytes = 4000"
"""Checkpoints come every second then."""


class Cluster:
    """Processes with data folders. kill: all at once; start: all again."""

    def __init__(self, folder: Path, count: int, replicas: int, engine: str) -> None:
        self._folder, self._count = folder, count
        self._engine = engine
        self.nodes = Nodes(folder, count, f"replicas = {replicas}")
        self._stack = ExitStack()

    def file(self, number: int) -> str:
        file = self.nodes.file(number, f'{self.nodes.head}\ndata_dir = "data{number}"')
        with Path(file).open("a") as more:
            more.write(self._engine + "\n")
        return file

    def data(self, number: int) -> Path:
        return self._folder / f"data{number}"

    def start(self, *numbers: int) -> None:
        """Start some nodes, all by default, and wait until they serve."""
        numbers = numbers or tuple(range(self._count))
        processes = {number: self._stack.enter_context(child([*NODE, self.file(number)])) for number in numbers}
        for number, process in processes.items():
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            if said != self.nodes.clients[number]:
                for one in processes.values():
                    one.terminate()
                raise AssertionError({at: one.communicate(timeout=END_S)[1] for at, one in processes.items()})
        running = dict(enumerate(self.nodes.processes)) | processes
        self.nodes.processes = [running[number] for number in sorted(running)]

    def kill(self, *numbers: int) -> None:
        processes = [self.nodes.processes[number] for number in numbers or range(self._count)]
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.communicate(timeout=END_S)

    def close(self) -> None:
        self._stack.close()


@contextmanager
def folders(folder: Path, count: int, replicas: int, engine: str = "") -> Iterator[Cluster]:
    made = Cluster(folder, count, replicas, engine)
    try:
        made.start()
        yield made
    finally:
        made.close()


class Writer(threading.Thread):
    """Pushes, updates and loads until the cluster is killed. kept: what was acknowledged; begun: what may be there."""

    def __init__(self, address: str, life: int) -> None:
        super().__init__(daemon=True)
        self.address, self.life = address, life
        self.kept: set[str] = set()
        self.begun: set[str] = set()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with wukongs.connect(self.address, silence_s=5) as client:
                stream = client.stream(f"{EX}s", batch_ms=100)
                at_ms = self.life * 100_000
                for number in range(10_000):
                    name = f"{self.life}-{number}"
                    at_ms += 20
                    self._do(f"a{name}", stream.push, [(f"<{EX}a{name}>", f"<{EX}p>", f'"{number}"', at_ms)])
                    if number % 5 == 0:
                        self._do(f"b{name}", client.update, f"INSERT DATA {{ <{EX}b{name}> <{EX}known> 1 }}")
                    if number % 7 == 0:
                        text = f"<{EX}c{name}> <{EX}known> <{EX}k> .\n".encode()
                        self._do(f"c{name}", client.load, io.BytesIO(text), format="nt")
                    if number % 3 == 0:
                        stream.advance(at_ms)
        except wukongs.WukongsError as error:
            self.error = error

    def _do(self, name: str, call: Callable[..., Any], *given: Any, **named: Any) -> None:
        self.begun.add(name)
        call(*given, **named)
        self.kept.add(name)


def stored(client: Any) -> set[str]:
    rows = client.query("SELECT DISTINCT ?s { ?s ?p ?o }", timeout_s=20)
    return {str(row[0]).removeprefix(EX) for row in rows}


SEEDS = 4
"""Each takes the better part of a minute."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_and_rare(range(SEEDS)))
def test_all_nodes_are_killed_at_once_and_everything_acknowledged_is_there(tmp_path: Path, seed: int) -> None:
    rng = random.Random((SEED or 0) + seed)
    count, replicas = rng.choice([(3, 2), (2, 1), (3, 3)])
    with folders(tmp_path, count, replicas, rng.choice([SMALL, ""])) as made:
        kept: set[str] = set()
        begun: set[str] = set()
        for life in range(1, 4):
            writer = Writer(rng.choice(made.nodes.clients), life)
            writer.start()
            while not writer.kept and writer.is_alive():
                time.sleep(0.05)
            time.sleep(rng.uniform(0.1, 2.5))
            made.kill()
            writer.join(END_S)
            assert not writer.is_alive()
            assert writer.kept, writer.error
            kept |= writer.kept
            begun |= writer.begun
            made.start()
            for address in made.nodes.clients:
                with wukongs.connect(address) as client:
                    if address == made.nodes.clients[0]:
                        client.stream(f"{EX}s", batch_ms=100).advance(life * 100_000 + 99_000)
                        client.settle(END_S)
                    found = stored(client)
                    assert kept <= found <= begun, (sorted(kept - found)[:5], sorted(found - begun)[:5])


@pytest.mark.slow
def test_a_lost_disk_is_filled_again_by_the_others(tmp_path: Path) -> None:
    with folders(tmp_path, 3, 2, SMALL) as made:
        with wukongs.connect(made.nodes.clients[0]) as client:
            client.update("INSERT DATA { " + " ".join(f"<{EX}x{n}> <{EX}p> {n} ." for n in range(200)) + " }")
        for is_whole_cluster in (True, False):
            made.kill(*(() if is_whole_cluster else (1,)))
            shutil.rmtree(made.data(1))
            made.start(*(() if is_whole_cluster else (1,)))
            with wukongs.connect(made.nodes.clients[1]) as client:
                assert len(stored(client)) == 200
        made.kill(0)
        with wukongs.connect(made.nodes.clients[1], silence_s=4) as client:
            deadline = time.monotonic() + END_S
            while True:
                try:
                    assert len(stored(client)) == 200
                    break
                except (wukongs.NodeUnavailable, wukongs.QueryTimeout):
                    assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_node_that_was_taken_out_takes_over_what_it_has_missed(tmp_path: Path) -> None:
    with folders(tmp_path, 3, 2) as made:
        with wukongs.connect(made.nodes.clients[0]) as client:
            client.update(f"INSERT DATA {{ <{EX}x> <{EX}p> 1 }}")
            made.kill(2)
            client.update(f"INSERT DATA {{ <{EX}y> <{EX}p> 1 }}")  # once it is taken out
            made.start(2)
            with wukongs.connect(made.nodes.clients[2]) as back:
                assert stored(back) == {"x", "y"}
        made.kill()
        made.start()
        with wukongs.connect(made.nodes.clients[2]) as client:
            assert stored(client) == {"x", "y"}


STEP_MS = 500
QUERY = f"""REGISTER QUERY q AS SELECT {{}}?s ?k FROM STREAM <{EX}s> [RANGE 1s STEP {STEP_MS}ms]
FROM <urn:x-wukongs:default> WHERE {{{{ ?s <{EX}p> ?n . ?s <{EX}known> ?k }}}}"""


class Reader(threading.Thread):
    """Reads the windows of a group until its node is killed. windows: by their ends, as often as they came."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.windows: list[tuple[int, frozenset[str]]] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with wukongs.connect(self._address, silence_s=3) as client:
                (query,) = (one for one in client.queries() if one.name == "q")
                for window in query.results(timeout_s=3 * END_S, group="readers"):
                    rows = frozenset(str(row[0]).removeprefix(EX) for row in window)
                    self.windows.append((window.end_ms, rows))
        except wukongs.WukongsError as error:
            self.error = error


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize(("seed", "form"), [(0, ""), (1, "ISTREAM "), (2, ""), (3, "DSTREAM ")])
def test_every_window_of_a_named_group_comes_and_if_twice_with_the_same_rows(
    tmp_path: Path, seed: int, form: str
) -> None:
    """The query joins windows with the stored graph, of which each node has a share.

    A push in which all nodes are killed and that its client does not say again may be on some of them only, so windows
    may have its tuple or not (0023)."""
    rng = random.Random((SEED or 0) + seed)
    count, replicas = rng.choice([(3, 2), (2, 1)])
    with folders(tmp_path, count, replicas, rng.choice([SMALL, ""])) as made:
        home = made.nodes.clients[0]
        known = "".join(f"<{EX}a{n}> <{EX}known> <{EX}k{n}> .\n" for n in range(0, 2000, 2)).encode()
        with wukongs.connect(home) as client:
            client.load(io.BytesIO(known), format="nt")
            client.stream(f"{EX}s", timing=True, batch_ms=100)
            client.register(QUERY.format(form))
            next(client.queries()[0].results(timeout_s=0.1, group="readers"), None)
        found: list[tuple[int, frozenset[str]]] = []
        number = 0
        unknown: set[str] = set()
        for life in range(4):
            reader = Reader(home)
            reader.start()
            killer = threading.Timer(rng.uniform(1.0, 4.0), made.kill)
            if life < 3:
                killer.start()
            with wukongs.connect(made.nodes.clients[-1], silence_s=2) as client:
                stream = client.stream(f"{EX}s", timing=True, batch_ms=100)
                try:
                    while number < 600:
                        at_ms = time_of(number)
                        limit_s = 2 if life < 3 else END_S
                        unknown.add(f"a{number}")
                        stream.push([(f"<{EX}a{number}>", f"<{EX}p>", f'"{number}"', at_ms)], timeout_s=limit_s)
                        unknown.discard(f"a{number}")
                        stream.advance(at_ms, timeout_s=limit_s)
                        number += 1
                        time.sleep(0.01)
                    if life == 3:
                        stream.advance(time_of(number) + 2000)
                        client.settle(END_S)
                except wukongs.WukongsError:
                    assert life < 3, "nothing was killed"
            if life < 3:
                killer.join(END_S)
                reader.join(END_S)
                found += reader.windows
                made.start()
                number = resumed(made.nodes.clients[-1], number)
            else:
                deadline, last_ms = time.monotonic() + END_S, (time_of(number) + 1500) // STEP_MS * STEP_MS
                while not reader.windows or reader.windows[-1][0] < last_ms:
                    assert time.monotonic() < deadline, (reader.windows[-1:], reader.error)
                    time.sleep(0.05)
                found += reader.windows
        by_end: dict[int, set[frozenset[str]]] = {}
        for end_ms, rows in found:
            by_end.setdefault(end_ms, set()).add(rows - unknown)
        before: frozenset[str] = frozenset()
        for end_ms in range(STEP_MS, last_ms + 1, STEP_MS):
            kept = {f"a{n}" for n in range(0, number, 2) if end_ms - 1000 < time_of(n) <= end_ms}
            whole = frozenset(kept - unknown)
            wanted = {"": whole, "ISTREAM ": whole - before, "DSTREAM ": before - whole}[form]
            assert by_end.get(end_ms) == {wanted}, (end_ms, by_end.get(end_ms), wanted)
            before = whole


def time_of(number: int) -> int:
    """Return the time of a tuple, by its number."""
    return 25 * (number + 1)


def resumed(address: str, number: int) -> int:
    """Return the number of the first tuple that was not taken. number: of the one whose answer was lost, if one was."""
    with wukongs.connect(address) as client:
        taken = int(client.stats()["streams"][f"{EX}s"]["tuples"])
        assert taken in (number, number + 1), (taken, number)
        return taken
