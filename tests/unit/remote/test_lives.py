"""Clients know the node or the cluster again that they were with: one that has forgotten everything is not it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import wukongs
from wukongs.cli.ports import free_ports
from wukongs.cluster.node import ServedNode
from wukongs.cluster.node_config import load_node_config
from wukongs.cluster.serving import ServedEngine

INSERT = "INSERT DATA { <http://ex/a> <http://ex/p> 1 }"
ASK = "ASK { <http://ex/a> ?p ?o }"


@contextmanager
def served(folder: Path, port: int, data_dir: str = "") -> Iterator[str]:
    """One node on its own; data_dir: "": in memory."""
    address, file = f"tcp://127.0.0.1:{port}", folder / "node.toml"
    file.write_text(f'{f"data_dir = {data_dir!r}" if data_dir else ""}\n[[node]]\nclients = "{address}"\n')
    node = ServedEngine(load_node_config(file))
    try:
        yield address
    finally:
        node.close()


@contextmanager
def cluster(folder: Path, ports: list[int]) -> Iterator[list[ServedNode]]:
    members = "".join(
        f'[[node]]\nclients = "tcp://127.0.0.1:{clients}"\npeers = "tcp://127.0.0.1:{peers}"\n'
        for clients, peers in zip(ports[::2], ports[1::2], strict=True)
    )
    files = [folder / f"{number}.toml" for number in range(len(ports) // 2)]
    for number, file in enumerate(files):
        file.write_text(f"number = {number}\nreplicas = 2\n{members}")
    with ThreadPoolExecutor(len(files)) as pool:
        nodes = list(pool.map(lambda file: ServedNode(load_node_config(file)), files))
    try:
        yield nodes
    finally:
        for node in nodes:
            node.close()


def test_a_node_in_memory_that_begins_anew_is_told_from_the_one_before(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with served(tmp_path, port) as address:
        client = wukongs.connect(address)
        client.update(INSERT)
    with client, served(tmp_path, port):
        for _ in range(2):
            with pytest.raises(wukongs.DataLost, match=f"{address}: it has begun anew, or belongs to another cluster"):
                client.query(ASK)
            with pytest.raises(wukongs.DataLost):
                client.update(INSERT)
        with wukongs.connect(address) as another:
            assert not another.query(ASK).boolean, "nothing of what was refused was done"


def test_a_data_folder_is_known_again_and_a_backup_of_it_is_not(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with served(tmp_path, port, "db") as address:
        client = wukongs.connect(address)
        client.update(INSERT)
    with served(tmp_path, port, "db"):
        assert client.query(ASK).boolean
    with wukongs.Engine(tmp_path / "db") as engine:
        engine.backup(tmp_path / "copy")
    with client, served(tmp_path, port, "copy"), pytest.raises(wukongs.DataLost):
        client.query(ASK)


@pytest.mark.slow
def test_a_cluster_is_known_again_until_all_of_its_nodes_have_forgotten(tmp_path: Path) -> None:
    ports = free_ports(4)
    addresses = [f"tcp://127.0.0.1:{port}" for port in ports[::2]]
    with cluster(tmp_path, ports) as nodes:
        client = wukongs.connect(addresses)
        client.update(INSERT)
        nodes[0].close()
        assert client.query(ASK, consistency="local").boolean, "the other node is of the same cluster"
    with client, cluster(tmp_path, ports), pytest.raises(wukongs.DataLost):
        client.query(ASK)
