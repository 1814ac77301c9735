"""A key that all nodes of a cluster have: who lacks it cannot reach their peer ports, and is counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import wukongs
from wukongs.cli.ports import free_ports
from wukongs.cluster.boot import HELLO, new_boot
from wukongs.cluster.node import ServedNode
from wukongs.cluster.node_config import NodeConfig, load_node_config
from wukongs.errors import NodeUnavailable
from wukongs.protocol.messages import Incarnation
from wukongs.wire.keys import SECRET_FILE, make_keys, read_key_pair
from wukongs.wire.network import Network
from wukongs.wire.packets import Packet
from wukongs.wire.trust import Trust

NODES = 2


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeConfig]:
    """The first node of a cluster that runs, with a key."""
    folder = tmp_path_factory.mktemp("cluster")
    make_keys(folder)
    ports = free_ports(2 * NODES)
    members = "".join(
        f'[[node]]\nclients = "tcp://127.0.0.1:{clients}"\npeers = "tcp://127.0.0.1:{peers}"\n'
        for clients, peers in zip(ports[:NODES], ports[NODES:], strict=True)
    )
    for number in range(NODES):
        text = f'number = {number}\nreplicas = 2\n{members}[trust]\ncluster_key_file = "{SECRET_FILE}"\n'
        (folder / f"node{number}.toml").write_text(text)
    configs = [load_node_config(folder / f"node{number}.toml") for number in range(NODES)]
    with ThreadPoolExecutor(NODES) as pool:
        nodes = list(pool.map(ServedNode, configs))
    try:
        yield configs[0]
    finally:
        for node in nodes:
            node.close()


@pytest.fixture
def client(config: NodeConfig) -> Iterator[wukongs.RemoteEngine]:
    with wukongs.connect(config.me.clients) as found:
        yield found


def strangers(client: wukongs.RemoteEngine) -> int:
    return int(client.stats()["this_node"]["network"]["refused"]["stranger"])


@pytest.mark.parametrize("has_key", [False, True], ids=["without a key", "with a key of its own"])
def test_who_has_not_the_key_of_the_cluster_changes_nothing_and_is_counted(
    config: NodeConfig, client: wukongs.RemoteEngine, tmp_path: Path, has_key: bool
) -> None:
    before = strangers(client)
    trust, keys = Trust(), None
    if has_key:
        make_keys(tmp_path)
        trust = Trust(shared_key_file=str(tmp_path / SECRET_FILE))
        assert config.trust.cluster_key_file is not None
        keys = {0: read_key_pair(config.trust.cluster_key_file).public}
    life = Incarnation(1, new_boot(), new_boot())
    stranger = Network(life, "tcp://127.0.0.1:*", {}, lambda *_: None, trust=trust, introduction={"shape": ""})
    try:
        stranger.join({0: config.me.peers or ""}, keys)
        for kind in (HELLO, "introduce", "take"):
            with pytest.raises(NodeUnavailable):
                stranger.ask([(0, Packet(kind))], 1.0)
            stranger.send(0, Packet(kind))
    finally:
        stranger.close()
    deadline = time.monotonic() + 60
    while strangers(client) == before:
        assert time.monotonic() < deadline, "nobody was counted"
    client.update(f"INSERT DATA {{ <http://ex/{has_key}> <http://ex/p> 1 }}")
    assert client.query(f"ASK {{ <http://ex/{has_key}> ?p ?o }}").boolean
    while (members := client.stats()["members"]) != {"0": "in", "1": "in"}:  # one that is busy is silent for a moment
        assert "out" not in members.values()
        assert time.monotonic() < deadline, members


def test_nodes_of_a_cluster_have_one_key_or_a_list(tmp_path: Path) -> None:
    make_keys(tmp_path)
    file = tmp_path / "node.toml"
    text = '[[node]]\nclients = "tcp://127.0.0.1:7411"\n[trust]\ncluster_key_file = "key.secret"\nallowed_nodes = "."\n'
    file.write_text(text + 'secret_key_file = "key.secret"\nallowed_clients = "."\n')
    with pytest.raises(
        wukongs.SettingsError, match=r"trust\.allowed_nodes: expected this, or cluster_key_file, .* both"
    ):
        load_node_config(file)
