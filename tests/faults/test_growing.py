"""Clusters that grow, shrink and have their nodes killed meanwhile: with each kind of trust every node comes back, and
answers what it did; at once, and when the records of the change are everywhere."""

from __future__ import annotations

import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.faults.test_cluster_processes import END_S, EX, NODE, Nodes, triples
from tests.fuzz import first_and_rare
from tests.processes import child
from wukongs.wire.keys import PUBLIC_FILE, SECRET_FILE, make_keys

COUNT = 3
TOKEN = "t" * 32
LATER_S = 3.0
"""By then each node has applied what was decided before."""


class Growing:
    """Three nodes with data folders, and one that is added. trust: none, one key that all nodes have, or own keys."""

    def __init__(self, folder: Path, stack: ExitStack, trust: str) -> None:
        self._folder, self._stack, self._trust = folder, stack, trust
        self.keys = [make_keys(folder / f"node{number}") for number in range(COUNT + 1)] if trust == "own" else []
        if trust == "own":
            (folder / "nodes").write_text("".join(f"{key}\n" for key in self.keys[:COUNT]))
            (folder / "clients").write_text(f"{make_keys(folder / 'client')}\n")
            (folder / "tokens").write_text(f"{TOKEN}\n")
        elif trust == "shared":
            make_keys(folder / "all")
        self.nodes = Nodes(folder, COUNT, keys=self.keys, added=1)
        self.clients, self.peers = self.nodes.clients, self.nodes.peers
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.count = 0

    def file(self, number: int) -> str:
        head = f'replicas = 2\ndata_dir = "data{number}"\nsilence_s = 2'
        shared = f'\n[trust]\ncluster_key_file = "all/{SECRET_FILE}"' if self._trust == "shared" else ""
        return self.nodes.file(number, head + shared)

    def begin(self, *numbers: int) -> None:
        for number in numbers:
            self.processes[number] = self._stack.enter_context(child([*NODE, self.file(number)]))

    def wait(self, *numbers: int) -> None:
        """Wait until nodes serve. One that the others take out while it starts is started again, as supervisors do."""
        for number in numbers:
            while (said := self._said(number)) != self.clients[number]:
                _, errors = self.processes[number].communicate(timeout=END_S)
                assert "was taken out of the cluster" in errors, (number, said, errors)
                self.begin(number)

    def _said(self, number: int) -> str:
        """Return the first line of a node, empty if it ends without one."""
        process = self.processes[number]
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], END_S)[0], f"node {number} waits for something"
        return str(process.stdout.readline()).strip()

    def end(self, number: int, how: signal.Signals) -> None:
        self.processes[number].send_signal(how)
        self.processes[number].communicate(timeout=END_S)

    def connect(self, number: int) -> wukongs.RemoteEngine:
        if not self.keys:
            return wukongs.connect(self.clients[number], silence_s=END_S)
        keys = self._folder / "client" / SECRET_FILE, self._folder / f"node{number}" / PUBLIC_FILE
        return wukongs.connect(self.clients[number], token=TOKEN, keys=keys, silence_s=END_S)

    def until(self, number: int, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the stats of a node once something holds of them."""
        deadline = time.monotonic() + END_S
        with self.connect(number) as client:
            while not holds(stats := client.stats()):
                assert time.monotonic() < deadline, stats
                time.sleep(0.1)
        return stats

    def check(self, *numbers: int) -> None:
        """Write at the first of these nodes, and read at all."""
        with self.connect(numbers[0]) as client:
            client.update(f"INSERT DATA {{ <{EX}more{self.count}> <{EX}l> <{EX}o> }}", timeout_s=END_S)
        self.count += 1
        for number in numbers:
            with self.connect(number) as client:
                assert len(client.query(f"SELECT ?s {{ ?s <{EX}l> ?o }}", timeout_s=END_S)) == self.count, number

    def kill_each(self, *numbers: int) -> None:
        """Kill these nodes, one after the other; each comes back before the next one goes."""
        for number in numbers:
            self.end(number, signal.SIGKILL)
            self.begin(number)
            self.wait(number)
            self.check(number, *numbers)


WAYS = [(trust, pause_s) for trust in ("own", "none", "shared") for pause_s in (0.0, LATER_S)]


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize(("trust", "pause_s"), WAYS)
def test_each_node_comes_back_while_a_cluster_grows_and_shrinks(tmp_path: Path, trust: str, pause_s: float) -> None:
    with ExitStack() as stack:
        of = Growing(tmp_path, stack, trust)
        of.begin(0, 1, 2)
        of.wait(0, 1, 2)
        with of.connect(1) as client:
            client.load(triples("x", 100), format="nt")
            of.count = 100
            of.begin(3)
            assert client.add_node(of.clients[3], of.peers[3], of.keys[3] if of.keys else "") == 3
        time.sleep(pause_s)
        of.kill_each(0, 1, 2)
        with of.connect(1) as client:
            client.drain(0, timeout_s=END_S)
        time.sleep(pause_s)
        of.wait(3)
        of.end(0, signal.SIGTERM)
        time.sleep(pause_s)
        of.kill_each(1, 2, 3)
        with of.connect(1) as client:
            client.remove_node(0, timeout_s=END_S)
        time.sleep(pause_s)
        of.kill_each(2, 3, 1)
        for number in (1, 2, 3):
            of.end(number, signal.SIGKILL)
        of.begin(3, 1, 2)
        of.wait(1, 2, 3)
        of.check(3, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("trust", first_and_rare(["own", "none", "shared"]))
def test_a_node_that_was_paused_while_another_was_added_begins_anew_beside_that_one(tmp_path: Path, trust: str) -> None:
    """The added node leads by then, and sends the log to a node that does not know it."""
    with ExitStack() as stack:
        of = Growing(tmp_path, stack, trust)
        of.begin(0, 1, 2)
        of.wait(0, 1, 2)
        leads = int(of.until(0, lambda stats: stats["leader"] is not None)["leader"])
        paused, drained = (number for number in range(COUNT) if number != leads)
        with of.connect(leads) as client:
            client.load(triples("x", 100), format="nt")
            of.count = 100
            of.processes[paused].send_signal(signal.SIGSTOP)
            of.begin(3)
            assert client.add_node(of.clients[3], of.peers[3], of.keys[3] if of.keys else "") == 3
            client.drain(drained, timeout_s=END_S)
        of.wait(3)
        of.until(3, lambda stats: stats["voters"] == sorted([leads, paused, 3]))
        of.end(drained, signal.SIGTERM)
        while of.until(3, lambda stats: stats["leader"] is not None)["leader"] != 3:
            of.processes[leads].send_signal(signal.SIGSTOP)
            time.sleep(0.8)  # node 3 stands for election; for longer, and the other one would end itself
            of.processes[leads].send_signal(signal.SIGCONT)
            time.sleep(0.2)
        of.processes[paused].send_signal(signal.SIGCONT)
        _, errors = of.processes[paused].communicate(timeout=END_S)
        assert f"node {paused}" in errors, "it is out, and ends, so that it begins anew with what the others hold"
        of.begin(paused)
        of.wait(paused)
        of.check(paused, leads, 3)
