"""Several nodes of a cluster in one process: a machine that goes leaves its place to another one beside that one's own,
and both are started, killed and started again as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import wukongs
from tests.faults.test_cluster_processes import END_S, EX, NODE, QUERY, Nodes, triples
from tests.processes import child

CLUSTER = [sys.executable, "-m", "wukongs", "cluster"]


class Machines:
    """Processes with one node or several each, with data folders."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.nodes = Nodes(folder, 3, added=1)
        self.added = self.nodes.clients[3], self.nodes.peers[3]

    def file(self, number: int) -> str:
        return self.nodes.file(number, f'replicas = 2\ndata_dir = "data{number}"')

    def begin(self, *numbers: int) -> subprocess.Popen[str]:
        files = [self.file(number) for number in numbers]
        process: subprocess.Popen[str] = self._stack.enter_context(child([*NODE, *files]))
        return process

    def told(self, process: subprocess.Popen[str], count: int) -> list[str]:
        """The first lines of `count` nodes that serve."""
        assert process.stdout is not None
        return [process.stdout.readline().strip() for _ in range(4 * count)][::4]

    def run(self, *arguments: str) -> str:
        command = [*CLUSTER, *arguments, "--server", self.nodes.clients[0]]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=END_S).stdout.strip()


def seen(address: str) -> int:
    with wukongs.connect(address, silence_s=END_S) as client:
        return len(client.query(f"SELECT * {{ ?s <{EX}l> ?o }}", timeout_s=END_S))


@pytest.mark.slow
def test_three_machines_become_two_without_a_spare_one(tmp_path: Path) -> None:
    with ExitStack() as stack:
        machines = Machines(tmp_path, stack)
        first, *others = (machines.begin(number) for number in range(3))
        for number, process in enumerate((first, *others)):
            assert machines.told(process, 1) == [machines.nodes.clients[number]]
        with wukongs.connect(machines.nodes.clients[:2], silence_s=END_S) as client:
            client.load(triples("x", 300), format="nt")
            stream = client.stream(EX + "s", batch_ms=100)
            query = client.register(QUERY)
            assert machines.run("add", "--clients", machines.added[0], "--peers", machines.added[1]) == "3"
            second = machines.begin(3)  # on the machine of node 0
            machines.run("drain", "2", "--to", "3")
            assert machines.told(second, 1) == [machines.added[0]]
            others[1].send_signal(signal.SIGTERM)
            assert others[1].wait(END_S) == 0
            machines.run("remove", "2")
            stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 1050)])
            stream.advance(2000)
            assert [w.end_ms for w in query.results(timeout_s=10) if len(w)] == [1200]
        for process in (first, second):
            process.send_signal(signal.SIGTERM)
        for process in (first, second):
            assert process.wait(END_S) == 0
        both = machines.begin(0, 3)
        assert sorted(machines.told(both, 2)) == sorted((machines.nodes.clients[0], machines.added[0]))
        assert seen(machines.added[0]) == seen(machines.nodes.clients[1]) == 300

        os.kill(both.pid, signal.SIGKILL)  # with two of three nodes
        both.wait(END_S)
        again = machines.begin(0, 3)
        assert sorted(machines.told(again, 2)) == sorted((machines.nodes.clients[0], machines.added[0]))
        assert [seen(address) for address in (*machines.nodes.clients[:2], machines.added[0])] == [300] * 3
        again.send_signal(signal.SIGINT)
        assert again.wait(END_S) == 130
