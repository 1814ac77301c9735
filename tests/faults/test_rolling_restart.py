"""The nodes of a cluster are restarted one by one while a client writes: no log says that something is lost."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

import wukongs
from tests.faults.test_cluster_processes import END_S, EX, NODE
from tests.faults.test_random_faults import COUNT, Cluster, cluster_in
from tests.fuzz import first_and_rare

ROUNDS = 2


class Writer(threading.Thread):
    """Adds one triple after the other: each is a record of the log, which a node that returns gets piece by piece."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self.addresses, self.is_over, self.written = addresses, threading.Event(), 0

    def run(self) -> None:
        with wukongs.connect(self.addresses) as client:
            while not self.is_over.is_set():
                try:
                    client.update(f"INSERT DATA {{ <{EX}s{self.written}> <{EX}p> <{EX}o> }}", timeout_s=END_S)
                except wukongs.NodeUnavailable:  # a node begins anew in the middle of it: nothing was done
                    continue
                self.written += 1

    def stop(self) -> None:
        self.is_over.set()
        self.join(2 * END_S)
        assert not self.is_alive()


def wait_until_out(cluster: Cluster, number: int) -> None:
    deadline = time.monotonic() + END_S
    with wukongs.connect([one for at, one in enumerate(cluster.nodes.clients) if at != number]) as client:
        while (members := client.stats()["members"])[str(number)] != "out":
            assert time.monotonic() < deadline, members
            time.sleep(0.1)


def logs_of(cluster: Cluster) -> str:
    return "".join((cluster.folder / f"said{number}").read_text() for number in range(COUNT))


@pytest.mark.slow
@pytest.mark.parametrize("has_folders", first_and_rare([True, False]))
def test_a_rolling_restart_logs_no_loss(tmp_path: Path, has_folders: bool) -> None:
    command = [*NODE[:-1], "--log-level", "info", NODE[-1]]
    with cluster_in(tmp_path, command, has_folders=has_folders) as cluster:
        writer = Writer(cluster.nodes.clients)
        writer.start()
        for _ in range(ROUNDS):
            for number in range(COUNT):
                cluster.kill(number, by=signal.SIGTERM)
                if has_folders:  # else a node that starts at once goes on where it was
                    wait_until_out(cluster, number)
                cluster.start(number)
        writer.stop()
        logs = logs_of(cluster)
        assert logs.count("has taken over what the others hold") > 2, "nodes were out and have joined"
        assert "lost" not in logs, logs
        assert "load again" not in logs, logs
        with wukongs.connect(cluster.nodes.clients) as client:
            assert len(client.query(f"SELECT * {{ ?s <{EX}p> ?o }}")) == writer.written > COUNT * ROUNDS
