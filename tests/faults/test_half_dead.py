"""Nodes that lack something, or that strangers beset: they serve, or they end by name, and the others go on. No node is
heard of for ever without answering."""

from __future__ import annotations

import io
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import wukongs
from tests.faults.test_cluster_processes import EX, Nodes, running
from tests.fuzz import first_and_rare
from tests.unit.wire.test_connections import Strangers
from wukongs.wire.connections import UNPROVEN_MAX
from wukongs.wire.keys import SECRET_FILE, make_keys

WAIT_S = 60


def keyed(folder: Path) -> str:
    """Return the head of the nodes' files: they have a key in common, and two of them hold each shard."""
    make_keys(folder)
    return f'replicas = 2\n[trust]\ncluster_key_file = "{SECRET_FILE}"'


def descriptors(nodes: Nodes, number: int) -> int:
    return len(os.listdir(f"/proc/{nodes.processes[number].pid}/fd"))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.1)


@pytest.mark.slow
def test_connections_of_strangers_keep_nobody_from_a_node(tmp_path: Path) -> None:
    with running(tmp_path, 3, keyed(tmp_path)) as nodes, wukongs.connect(nodes.clients[0]) as engine:
        engine.update(f"INSERT DATA {{ <{EX}a> <{EX}l> <{EX}b> }}")
        before = descriptors(nodes, 1)
        for address in (nodes.peers[1], nodes.clients[1]):
            strangers = Strangers(address)
            for round_ in range(3):
                strangers.connect(200)
                engine.update(f"INSERT DATA {{ <{EX}{address}{round_}> <{EX}l> <{EX}b> }}", timeout_s=WAIT_S)
            wait_until(lambda: descriptors(nodes, 1) < before + UNPROVEN_MAX + 100, "the others are shut")
            with wukongs.connect(nodes.clients[1]) as new:
                assert len(new.query(f"SELECT * {{ ?s <{EX}l> ?o }}")) in (4, 7)
            strangers.close()
        assert Strangers(nodes.peers[1]).send() < 100 << 20
        assert [process.poll() for process in nodes.processes] == [None] * 3


@pytest.mark.slow
@pytest.mark.parametrize("more", first_and_rare([3, 0, 8]))
def test_a_node_that_runs_out_of_descriptors_ends_by_name_or_serves(tmp_path: Path, more: int) -> None:
    """more: so many files may be open beside those that are, when the limit comes."""
    with running(tmp_path, 3, keyed(tmp_path)) as nodes, wukongs.connect(nodes.clients[0]) as engine:
        stream = engine.stream(EX + "s", batch_ms=100)
        engine.update(f"INSERT DATA {{ <{EX}a> <{EX}l> <{EX}b> }}")
        limit = descriptors(nodes, 1) + more
        resource.prlimit(nodes.processes[1].pid, resource.RLIMIT_NOFILE, (limit, limit))

        def read(_: int) -> None:
            try:
                engine.query(f"SELECT * {{ ?s <{EX}l> ?o . ?o ?p ?x }}", timeout_s=5)
            except wukongs.WukongsError:
                return  # it was refused

        with ThreadPoolExecutor(20) as threads:
            list(threads.map(read, range(40)))
        for number in range(2):
            lines = "".join(f"<{EX}x{row}> <{EX}l> <{EX}o{number}> .\n" for row in range(2000))
            try:
                engine.load(io.BytesIO(lines.encode()), format="nt", timeout_s=WAIT_S)
            except wukongs.WukongsError:
                assert nodes.processes[1].wait(WAIT_S) != 0
        engine.update(f"INSERT DATA {{ <{EX}c> <{EX}l> <{EX}d> }}", timeout_s=WAIT_S)
        stream.push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}o>", 50)], timeout_s=WAIT_S)
        for address in (nodes.clients[0], nodes.clients[2]):
            with wukongs.connect(address) as new:
                assert len(new.query(f"SELECT * {{ <{EX}c> <{EX}l> ?o }}", timeout_s=WAIT_S)) == 1
        if nodes.processes[1].poll() is not None:
            status, said = nodes.said_at_end(1)
            assert status == 1
            assert "ulimit -n" in said
