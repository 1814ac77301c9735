"""Processes of a cluster that are killed, stopped, started anew or told something else than the others."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import wukongs
from tests.processes import child

EX = "http://ex/"
QUERY = f"""REGISTER QUERY q AS SELECT ?s ?o FROM STREAM <{EX}s> [RANGE 200ms STEP 200ms] WHERE {{ ?s <{EX}p> ?o }}"""
NODE = [sys.executable, "-m", "wukongs", "node", "--config"]
END_S = 60


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Nodes:
    """The files of a cluster, and its processes."""

    def __init__(self, folder: Path, count: int, head: str = "") -> None:
        ports = free_ports(2 * count)
        self.clients = [f"tcp://127.0.0.1:{port}" for port in ports[:count]]
        self.peers = [f"tcp://127.0.0.1:{port}" for port in ports[count:]]
        self.processes: list[subprocess.Popen[str]] = []
        self._folder, self.head = folder, head

    def file(self, number: int, head: str | None = None) -> str:
        lines = [f"number = {number}", (self.head if head is None else head)]
        for clients, peers in zip(self.clients, self.peers, strict=True):
            lines += ["[[node]]", f'clients = "{clients}"', f'peers = "{peers}"']
        file = self._folder / f"node{number}.toml"
        file.write_text("\n".join(lines) + "\n")
        return str(file)

    def said_at_end(self, number: int) -> tuple[int, str]:
        """Return the status of a node that ends, and what it has said to standard error."""
        _, said = self.processes[number].communicate(timeout=END_S)
        return self.processes[number].returncode, said


@contextmanager
def running(folder: Path, count: int, head: str = "") -> Iterator[Nodes]:
    nodes = Nodes(folder, count, head)
    with ExitStack() as stack:
        for number in range(count):
            nodes.processes.append(stack.enter_context(child([*NODE, nodes.file(number)])))
        for number, process in enumerate(nodes.processes):
            assert process.stdout is not None
            assert process.stdout.readline().strip() == nodes.clients[number]
        yield nodes


def triples(name: str, count: int) -> io.BytesIO:
    return io.BytesIO("".join(f"<{EX}{name}{row}> <{EX}l> <{EX}o> .\n" for row in range(count)).encode())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_clients_go_on_at_other_nodes_and_the_lost_one_does_not_come_back(tmp_path: Path, number: int) -> None:
    with running(tmp_path, 3, "replicas = 2") as nodes, ExitStack() as stack:
        addresses = [nodes.clients[2], nodes.clients[0], nodes.clients[1]]
        client = stack.enter_context(wukongs.connect(addresses, silence_s=4))
        client.load(triples("x", 40), format="nt")
        stream = client.stream(EX + "s", batch_ms=100)
        query = client.register(QUERY)
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 1050)])
        stream.advance(2000)
        assert next(iter(query.results(timeout_s=20))).end_ms == 1200
        os.kill(nodes.processes[2].pid, number)

        deadline = time.monotonic() + 30
        while True:
            try:
                assert len(client.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 40
                break
            except wukongs.NodeUnavailable:
                assert time.monotonic() < deadline
        client.load(triples("y", 20), format="nt")
        client.update(f"INSERT DATA {{ <{EX}z> <{EX}l> <{EX}o> }}")
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}c>", 9050)])
        stream.advance(10_000)
        last = [window for window in query.results(timeout_s=3) if window.end_ms == 9200]
        assert [str(row[1]) for row in last[0]] == [EX + "c"]
        assert len(client.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 61

        if number == signal.SIGSTOP:
            os.kill(nodes.processes[2].pid, signal.SIGCONT)
            status, said = nodes.said_at_end(2)
            assert status == 1
            assert "node 2 was taken out of the cluster" in said
        for head, expected in (("replicas = 2", "node 2 is in the cluster already, or was"), ("", "replicas 1")):
            ran = subprocess.run([*NODE, nodes.file(2, head)], capture_output=True, text=True, timeout=END_S)
            assert ran.returncode in (1, 2)
            assert expected in ran.stderr
            assert ran.stdout == ""
        assert len(client.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) == 61
        client.load(triples("w", 5), format="nt")


def test_the_rest_of_a_cluster_says_which_node_has_ended() -> None:
    command = [sys.executable, "-m", "wukongs", "cluster", "--nodes", "2"]
    with child(command) as process:
        assert process.stdout is not None
        addresses = [process.stdout.readline().strip() for _ in range(2)]
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
        pids = {}
        for pid in map(int, found.stdout.split()):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            pids[next(word for word in words if word.endswith(".toml"))[-6]] = pid
        with wukongs.connect(addresses[0], silence_s=2) as client:
            os.kill(pids["1"], signal.SIGKILL)
            assert process.stderr is not None
            assert process.stderr.readline() == "wukongs: node 1 was ended by signal 9\n"
            with pytest.raises(wukongs.NodeUnavailable, match="node 1"):
                client.query("SELECT * { ?s ?p ?o }", timeout_s=2)
            assert client.stats()["node"] == 0
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=END_S)
