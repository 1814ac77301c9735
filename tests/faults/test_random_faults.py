"""Random faults at the processes of a cluster with data folders, under pushes, updates and loads: nothing that was
acknowledged is lost, no window is missing, one that comes twice comes with equal rows, and registers, counters and sets
are linearizable (a history that is not is kept in build/histories).

A handful here; `make faults-cluster FAULTS=200` makes as many as one likes, SEED=n the same ones again;
`make faults-minutes MINUTES=5` as many as come in that time.
"""

from __future__ import annotations

import io
import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.faults.histories import History
from tests.faults.partitions import Partitions, found_at, listens_at, random_cut
from tests.faults.test_cluster_processes import END_S, EX, NODE, Nodes
from tests.fuzz import SEED
from tests.processes import child

FAULTS = int(os.environ.get("WUKONGS_CLUSTER_FAULTS", "5"))
MINUTES = float(os.environ.get("WUKONGS_CLUSTER_MINUTES", "0"))
"""If it is not 0, faults come for so long, however many."""
COUNT = 3
STEP_MS = 500
RANGE_MS = 1000
TUPLE_MS = 20
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
WITH_A_CLOCK = [sys.executable, "-m", "tests.faults.node_with_a_clock"]
_CLIENTS = itertools.count()
ENGINE = "[engine]\ncheckpoint_bytes = 100000"
QUERY = f"""REGISTER QUERY q AS SELECT ?s FROM STREAM <{EX}s> [RANGE {RANGE_MS}ms STEP {STEP_MS}ms]
WHERE {{ ?s <{EX}p> ?n }}"""


class Cluster:
    """Three processes, two replicas, a data folder each. What they say goes to files. command: by which a node starts,
    but for its file; None: with clocks that can be set, and proxies between the nodes. has_folders: False: all nodes
    keep everything in memory."""

    def __init__(self, folder: Path, command: Sequence[str] | None = NODE, *, has_folders: bool = True) -> None:
        self.folder = folder
        self.command = command
        self.has_folders = has_folders
        self.nodes = Nodes(folder, COUNT, "replicas = 2")
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.partitions: Partitions | None = None
        self.told_kept: set[str] = set()
        """Updates of clients that are gone that were acknowledged; told_begun: with those that may be there."""
        self.told_begun: set[str] = set()
        if command is None:
            self.ports = [int(address.rpartition(":")[2]) for address in self.nodes.peers]
            self.nodes.peers = [found_at(number, port) for number, port in enumerate(self.ports)]
            for number in range(COUNT):
                self.clock(number).write_text("0")
            self.partitions = Partitions(COUNT, lambda: {n: one.pid for n, one in self.processes.items()})

    def clock(self, number: int) -> Path:
        """The file that says by how many seconds a node's clock is wrong."""
        return self.folder / f"clock{number}"

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        if self.partitions is not None:
            self.partitions.close()

    def start(self, *numbers: int) -> None:
        """Start nodes that do not run, and wait until they serve. One that ends instead is told of, but for one that
        the others were taking out at that moment: who runs it starts it once more."""
        begins = {}
        for number in numbers:
            head = f'{self.nodes.head}\ndata_dir = "data{number}"' if self.has_folders else self.nodes.head
            command = self.command
            if command is None:
                head += f'\nlisten_peers = "{listens_at(number, self.ports[number])}"'
                command = [*WITH_A_CLOCK, str(self.clock(number)), "node", "--config"]
            file = self.nodes.file(number, head)
            with Path(file).open("a") as more:
                more.write(ENGINE + "\n")
            with (self.folder / f"said{number}").open("a") as said:
                begins[number] = said.tell()
                process = subprocess.Popen(
                    [*command, file], stdout=subprocess.PIPE, stderr=said, text=True, cwd=ROOT, env=ENVIRONMENT
                )
                self.processes[number] = process
        for number in numbers:
            process = self.processes[number]
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            said_now = (self.folder / f"said{number}").read_text()[begins[number] :]
            if address or "was taken out of the cluster" not in said_now:
                assert address == self.nodes.clients[number], (number, address, self.said(number))

    def kill(self, *numbers: int, by: int = signal.SIGKILL) -> None:
        for number in numbers:
            os.kill(self.processes[number].pid, by)
        for number in numbers:
            self.processes[number].wait(END_S)

    def heal(self) -> None:
        """Start what has ended, and wait until all nodes are in."""
        deadline = time.monotonic() + 2 * END_S
        while True:
            self.start(*(number for number, process in self.processes.items() if process.poll() is not None))
            try:
                with wukongs.connect(self.nodes.clients, silence_s=10) as client:
                    members = client.stats()["members"]
                if all(members[str(number)] == "in" for number in range(COUNT)):
                    return
            except wukongs.WukongsError as error:
                members = error
            assert time.monotonic() < deadline, (members, [self.said(number) for number in range(COUNT)])
            time.sleep(0.2)

    def log(self, number: int) -> Path:
        return max((self.folder / f"data{number}").rglob("*.log"), key=lambda path: path.name)

    def said(self, number: int) -> str:
        return (self.folder / f"said{number}").read_text()[-2000:]


@contextmanager
def cluster_in(folder: Path, command: Sequence[str] | None = NODE, *, has_folders: bool = True) -> Iterator[Cluster]:
    made = Cluster(folder, command, has_folders=has_folders)
    try:
        made.start(*range(COUNT))
        yield made
    finally:
        made.close()


# --- faults -----------------------------------------------------------------------------------------------------------


def _kill(cluster: Cluster, rng: random.Random) -> None:
    numbers = rng.choice([[rng.randrange(COUNT)], [rng.randrange(COUNT)], rng.sample(range(COUNT), 2), range(COUNT)])
    cluster.kill(*numbers)
    time.sleep(rng.choice((0, 0.5, 5)))


def _stop(cluster: Cluster, rng: random.Random) -> None:
    """For a moment, or for so long that the others take the node out."""
    process = cluster.processes[rng.randrange(COUNT)]
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(rng.choice((0.2, 1, 6)))
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(1)


def _tear(cluster: Cluster, rng: random.Random) -> None:
    """A write that the kill has torn, at the end of the log."""
    number = rng.randrange(COUNT)
    cluster.kill(number)
    with cluster.log(number).open("ab") as log:
        log.write(rng.randbytes(rng.choice((1, 7, 40, 3000))))


def _limit(kind: int, room: Callable[[Cluster, int], int]) -> Callable[[Cluster, random.Random], None]:
    """Give a node little more of something than it has, for a while."""

    def fault(cluster: Cluster, rng: random.Random) -> None:
        number = rng.randrange(COUNT)
        process = cluster.processes[number]
        before = resource.prlimit(process.pid, kind)
        resource.prlimit(process.pid, kind, (room(cluster, number), before[1]))
        time.sleep(3)
        if process.poll() is None:
            resource.prlimit(process.pid, kind, before)
            time.sleep(1)

    return fault


def _files(cluster: Cluster, number: int) -> int:
    return len(os.listdir(f"/proc/{cluster.processes[number].pid}/fd")) + 2


def _memory(cluster: Cluster, number: int) -> int:
    pages = int(Path(f"/proc/{cluster.processes[number].pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize() + (8 << 20)


def _log_bytes(cluster: Cluster, number: int) -> int:
    return cluster.log(number).stat().st_size + 2000


def _part(cluster: Cluster, rng: random.Random) -> None:
    """For a moment, or for so long that a node is taken out."""
    assert cluster.partitions is not None
    print(random_cut(cluster.partitions, COUNT, rng), flush=True)
    time.sleep(rng.choice((0.3, 1.5, 6)))
    cluster.partitions.heal()
    time.sleep(1)


def _set_clock(cluster: Cluster, rng: random.Random) -> None:
    """While the node runs; it may be killed and find another time when it starts again."""
    number = rng.randrange(COUNT)
    cluster.clock(number).write_text(str(rng.choice((-86_400.0, -3600.0, -1.0, 0.0, 5.0, 7200.0, 1e6))))
    if rng.random() < 0.5:
        cluster.kill(number)


def _kill_client(cluster: Cluster, rng: random.Random) -> None:
    """A client that updates, and says what was acknowledged."""
    name = f"d{next(_CLIENTS)}_"
    command = [sys.executable, "-m", "tests.faults.update_client", name, *cluster.nodes.clients]
    with child(command, cwd=ROOT, env=ENVIRONMENT) as client:
        time.sleep(rng.uniform(1.5, 4))
        client.kill()
        said = client.communicate(timeout=END_S)[0].splitlines()
    acknowledged = {line for line in said if line.startswith(name)}
    cluster.told_kept |= acknowledged
    cluster.told_begun |= acknowledged | {f"{name}{len(acknowledged)}"}


FAULTS_OF = {
    "partition": _part,
    "clock": _set_clock,
    "killed client": _kill_client,
    "kill": _kill,
    "stop": _stop,
    "torn write": _tear,
    "full disk": _limit(resource.RLIMIT_FSIZE, _log_bytes),
    "no descriptors": _limit(resource.RLIMIT_NOFILE, _files),
    "no memory": _limit(resource.RLIMIT_AS, _memory),
}


# --- clients ----------------------------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Pushes, updates and loads until it is to stop. kept: what was acknowledged; begun: what may be there."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self._addresses = addresses
        self.is_over = threading.Event()
        self.kept: set[str] = set()
        self.begun: set[str] = set()
        self.number = 0
        self.errors: list[wukongs.WukongsError] = []

    def run(self) -> None:
        with wukongs.connect(self._addresses, silence_s=END_S) as client:
            stream = client.stream(f"{EX}s", batch_ms=100)
            while not self.is_over.is_set():
                self.number += 1
                number, at_ms = self.number, TUPLE_MS * self.number
                self._do(f"a{number}", stream.push, [(f"<{EX}a{number}>", f"<{EX}p>", f'"{number}"', at_ms)])
                if number % 5 == 0:
                    self._do(f"b{number}", client.update, f"INSERT DATA {{ <{EX}b{number}> <{EX}k> 1 }}")
                if number % 7 == 0:
                    text = f"<{EX}c{number}> <{EX}k> <{EX}k> .\n".encode()
                    self._do(f"c{number}", client.load, io.BytesIO(text), format="nt")
                self._try(stream.advance, at_ms)
                time.sleep(0.02)

    def _do(self, name: str, call: Callable[..., Any], *given: Any, **named: Any) -> None:
        self.begun.add(name)
        if self._try(call, *given, **named):
            self.kept.add(name)

    def _try(self, call: Callable[..., Any], *given: Any, **named: Any) -> bool:
        try:
            call(*given, **named, timeout_s=END_S)
        except wukongs.WukongsError as error:
            self.errors.append(error)
            return False
        return True


class Reader(threading.Thread):
    """Reads the windows of a group until it is to stop; each as often as it comes."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self._addresses = addresses
        self.is_over = threading.Event()
        self.windows: dict[int, list[frozenset[str]]] = {}
        self.gaps: list[wukongs.GapError] = []

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with wukongs.connect(self._addresses, silence_s=10) as client:
                    (query,) = client.queries()
                    while not self.is_over.is_set():
                        self._read(query)
            except wukongs.GapError as gap:
                self.gaps.append(gap)
            except (wukongs.WukongsError, ValueError):  # no node, or none that knows the query yet
                time.sleep(0.2)

    def _read(self, query: Any) -> None:
        for window in query.results(timeout_s=2, group="readers"):
            rows = frozenset(str(row[0]).removeprefix(EX) for row in window)
            self.windows.setdefault(window.end_ms, []).append(rows)


def stored(address: str) -> set[str]:
    deadline = time.monotonic() + END_S
    while True:
        try:
            with wukongs.connect(address) as client:
                rows = client.query("SELECT DISTINCT ?s { ?s ?p ?o }", timeout_s=20)
                return {str(row[0]).removeprefix(EX) for row in rows if ":" not in str(row[0]).removeprefix(EX)}
        except wukongs.WukongsError:
            if time.monotonic() > deadline:
                raise


def check(cluster: Cluster, writer: Writer, reader: Reader) -> None:
    found = [stored(address) for address in cluster.nodes.clients]
    kept, begun = writer.kept | cluster.told_kept, writer.begun | cluster.told_begun
    for one in found:
        assert kept <= one <= begun, (sorted(kept - one)[:5], sorted(one - begun)[:5])
        assert one == found[0], sorted(one ^ found[0])[:5]
    last_ms = (TUPLE_MS * writer.number + RANGE_MS) // STEP_MS * STEP_MS
    deadline = time.monotonic() + END_S
    while last_ms not in reader.windows:
        assert time.monotonic() < deadline, (last_ms, sorted(reader.windows)[-3:], reader.gaps)
        time.sleep(0.1)
    assert not reader.gaps
    taken = {TUPLE_MS * int(name[1:]): name for name in found[0] if name[0] == "a"}
    for end_ms in range(STEP_MS, last_ms + 1, STEP_MS):
        wanted = frozenset(name for ms, name in taken.items() if end_ms - RANGE_MS < ms <= end_ms)
        came = set(reader.windows.get(end_ms, [] if wanted else [wanted]))
        assert came == {wanted}, (end_ms, [sorted(one ^ wanted) for one in came])


@pytest.mark.slow
@pytest.mark.rare
def test_random_faults_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    seed = int(os.environ.get("WUKONGS_FAULTS_SEED", SEED or 0))
    rng = random.Random(seed)
    with cluster_in(tmp_path, None) as cluster:
        with wukongs.connect(cluster.nodes.clients) as client:
            client.stream(f"{EX}s", batch_ms=100)
            query = client.register(QUERY)
            next(query.results(timeout_s=0.1, group="readers"), None)
        writer, reader = Writer(cluster.nodes.clients), Reader(cluster.nodes.clients)
        history = History(cluster.nodes.clients, seed=seed)
        for thread in (writer, reader):
            thread.start()
        history.begin()
        until_s = time.monotonic() + 60 * MINUTES
        for number in itertools.count():
            if time.monotonic() > until_s if MINUTES else number == FAULTS:
                break
            time.sleep(rng.uniform(0.2, 1.5))
            name = rng.choice(list(FAULTS_OF))
            print(f"fault {number} of seed {seed}: {name}, after {writer.number} tuples", flush=True)
            FAULTS_OF[name](cluster, rng)
            cluster.heal()
        before = len(writer.kept)
        deadline = time.monotonic() + 2 * END_S
        while len(writer.kept) < before + 20:
            assert time.monotonic() < deadline, writer.errors[-3:]
            time.sleep(0.1)
        history.end()
        print(history.check(f"seed-{seed}"), flush=True)
        writer.is_over.set()
        writer.join(2 * END_S)
        assert not writer.is_alive()
        with wukongs.connect(cluster.nodes.clients) as client:
            client.stream(f"{EX}s", batch_ms=100).advance(TUPLE_MS * writer.number + 2 * RANGE_MS)
            client.settle(END_S)
        check(cluster, writer, reader)
        reader.is_over.set()
        reader.join(END_S)
