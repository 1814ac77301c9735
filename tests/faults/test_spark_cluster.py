"""`wukongs cluster --spark`: a standalone master with two workers keeps three nodes running; they are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import wukongs
from tests.faults.test_cluster_processes import END_S, EX
from tests.faults.test_spark_lives import wait_until
from tests.processes import child
from tests.unit.adapters.test_spark_standalone import standalone
from wukongs.adapters.spark.nodes import SparkNodes
from wukongs.cli.ports import FREE_PORTS
from wukongs.errors import NodeUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COUNT = 3
TUPLES = 30
START_S = 200.0


def node_processes(folder: Path) -> dict[int, int]:
    """Return the processes of the nodes below a folder, by the numbers of the nodes."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            words = (place / "cmdline").read_text().split("\0")
            where = Path(os.readlink(place / "cwd"))
            if "node.toml" in words and where.is_relative_to(folder):
                number = (where / "node.toml").read_text().splitlines()[0].split(" = ")[1]
                found[int(number)] = int(place.name)
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_of(pid: int) -> int:
    """Return the JVM among a process's ancestors."""
    while "java" not in os.readlink(f"/proc/{pid}/exe"):
        pid = parent(pid)
    return pid


def base_port() -> int:
    """Return a port that is free as the ports behind it are, so many as the nodes need. Until they listen there, Spark
    takes half a minute: so no port that a cluster of another test would be given meanwhile."""
    while True:
        port = random.randrange(5000, min(FREE_PORTS) - 2 * COUNT)
        with suppress(OSError), ExitStack() as stack:
            for other in range(port, port + 2 * COUNT):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", other))
            return port


def in_again(addresses: list[str]) -> Callable[[], bool]:
    def check() -> bool:
        with suppress(wukongs.WukongsError), wukongs.connect(addresses, silence_s=5) as client:
            return set(client.stats()["members"].values()) == {"in"}
        return False

    return check


def stored(address: str) -> int:
    with wukongs.connect(address, silence_s=END_S) as client:
        return len(client.query(f"SELECT ?s {{ ?s <{EX}p> ?o }}", timeout_s=END_S))


def test_a_killed_node_is_brought_back_by_spark_and_the_others_are_left_alone(tmp_path: Path) -> None:
    port = base_port()
    command = [sys.executable, "-m", "wukongs", "cluster", "--nodes", str(COUNT), "--replicas", "2"]
    command += ["--base-port", str(port), "--data-dir", str(tmp_path / "data")]
    with standalone(tmp_path, (2, 1)) as master, child([*command, "--spark", master]) as process:
        assert process.stdout is not None
        too_late = threading.Timer(START_S, process.terminate)
        too_late.start()
        addresses = [process.stdout.readline().strip() for _ in range(COUNT)]
        too_late.cancel()
        if not all(addresses):
            logs = [file.read_text("utf-8", "replace")[-2000:] for file in tmp_path.glob("work*/**/stderr")]
            raise AssertionError("\n".join([process.communicate(timeout=END_S)[1], *logs]))
        assert addresses == [f"tcp://127.0.0.1:{port + number}" for number in range(COUNT)]
        first = node_processes(tmp_path)
        assert sorted(first) == list(range(COUNT))
        executors = {number: executor_of(pid) for number, pid in first.items()}
        assert len(set(executors.values())) == COUNT
        with wukongs.connect(addresses) as client:
            triples = " ".join(f"<{EX}s{number}> <{EX}p> {number} ." for number in range(TUPLES))
            client.update(f"INSERT DATA {{ {triples} }}")

        os.kill(first[1], signal.SIGKILL)
        wait_until(lambda: node_processes(tmp_path).get(1, first[1]) != first[1])
        wait_until(in_again(addresses))
        second = node_processes(tmp_path)
        assert (second[0], second[2]) == (first[0], first[2])
        assert executor_of(second[1]) == executors[1]
        assert stored(addresses[1]) == TUPLES

        os.kill(executors[2], signal.SIGKILL)
        wait_until(lambda: 2 not in node_processes(tmp_path))  # with its task
        shutil.rmtree(tmp_path / "data" / "node2", ignore_errors=True)
        wait_until(lambda: 2 in node_processes(tmp_path))
        wait_until(in_again(addresses))
        third = node_processes(tmp_path)
        assert (third[0], third[1]) == (second[0], second[1])
        assert executor_of(third[2]) != executors[2]
        assert stored(addresses[2]) == TUPLES

        process.terminate()
        _, said = process.communicate(timeout=END_S)
        assert process.returncode == 0, said
        wait_until(lambda: not node_processes(tmp_path))
    assert "Traceback" not in said


def test_sparks_driver_is_no_place_for_a_node() -> None:
    """It was counted, and sometimes got a node for which there was no executor: the others waited for it for ever."""
    with SparkNodes("local[1]", 1) as nodes, pytest.raises(NodeUnavailable, match="Spark has given 0 executors"):
        nodes.hosts(15.0, threading.Event())
