"""A node returns while a pipeline sends: it takes what the pipeline closes before it serves, so neither waits for the
other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import wukongs
from tests.unit.cluster.test_pipelines import QUERY, STORED, S, Writer
from tests.unit.remote.test_lives import cluster
from wukongs.cli.ports import free_ports
from wukongs.cluster import node
from wukongs.cluster.installing import Taken
from wukongs.cluster.joining import Joiner
from wukongs.cluster.node_config import load_node_config
from wukongs.errors import NodeUnavailable
from wukongs.wire.link import IngestLink

RETURN_S = 30.0


def wait_for_role(client: wukongs.RemoteEngine, number: int, role: str) -> None:
    deadline = time.monotonic() + RETURN_S
    while (members := client.stats()["members"])[str(number)] != role:
        assert time.monotonic() < deadline, members
        time.sleep(0.05)


@pytest.mark.slow
def test_a_node_takes_what_a_run_closes_while_it_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run closes stream batches at the others once they have given the node their data, and before it serves."""
    monkeypatch.setattr(node, "START_S", RETURN_S)
    has_data, goes_on, fetch = threading.Event(), threading.Event(), Joiner._fetch_last

    def fetched(joiner: Joiner) -> Taken:
        taken = fetch(joiner)
        has_data.set()
        assert goes_on.wait(RETURN_S)
        return taken

    ports = free_ports(6)
    addresses = [f"tcp://127.0.0.1:{port}" for port in ports[::2]]
    with ExitStack() as stack:
        nodes = stack.enter_context(cluster(tmp_path, ports))
        client = stack.enter_context(wukongs.connect(addresses[0]))
        client.stream(S, batch_ms=100)
        query = client.register(QUERY)
        windows = iter(query.results(timeout_s=RETURN_S))
        link = stack.enter_context(IngestLink(addresses, resend_s=0.5))
        writer = Writer(link, "p")
        writer.send(1, ("a", "b"))
        writer.close(2)
        nodes.pop(1).close()
        wait_for_role(client, 1, "out")
        writer.send(3, ("c", "d"))
        writer.close(3)
        writer.send(20, ("e", "f"))
        link.flush()
        monkeypatch.setattr(Joiner, "_fetch_last", fetched)
        pool = stack.enter_context(ThreadPoolExecutor(2))
        back = pool.submit(node.ServedNode, load_node_config(tmp_path / "1.toml"))
        assert has_data.wait(RETURN_S)
        closed = pool.submit(writer.close, 20)
        found = {}
        while 2000 not in found:
            window = next(windows)
            found[window.end_ms] = len(window)
        with pytest.raises(NodeUnavailable, match="node 1 is starting: ask again, or another node"):
            wukongs.connect(addresses[1], silence_s=1)
        goes_on.set()
        nodes.append(back.result(2 * RETURN_S))
        closed.result(RETURN_S)
        assert {end_ms: count for end_ms, count in found.items() if count} == {
            100: 1, 200: 1, 300: 1, 400: 1, 2000: 1
        }  # fmt: skip
        wait_for_role(client, 1, "in")
        with wukongs.connect(addresses[1]) as returned:
            returned.settle(RETURN_S)
            assert len(returned.query(STORED)) == 3
