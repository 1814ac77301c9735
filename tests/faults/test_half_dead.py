"""Nodes that lack something, or that strangers beset: they serve, or they end by name, and the others go on. No node is
heard of for ever without answering."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import wukongs
from tests.faults.test_cluster_processes import EX, Nodes, running
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
