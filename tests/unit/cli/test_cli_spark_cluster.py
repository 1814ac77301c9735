"""`wukongs cluster --spark`, without Spark: what is refused, and which files nodes get."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.conftest import Ran
from wukongs.adapters.spark import session
from wukongs.cli import cluster
from wukongs.cli.spark_cluster import files_of_nodes, hosts_of_nodes
from wukongs.cluster.node_config import load_node_config
from wukongs.errors import SettingsError
from wukongs.wire.keys import make_keys

SPARK = ("--spark", "spark://host:7077", "--base-port", "7411")


def test_each_node_has_the_host_that_was_named() -> None:
    assert hosts_of_nodes(["b", "a", "a"], None, False) == ["a", "a", "b"]
    assert hosts_of_nodes(["b", "a", "a"], ["a", "b", "a"], True) == ["a", "b", "a"]
    assert hosts_of_nodes(["a", "a"], None, True) == ["a", "a"]
    with pytest.raises(SettingsError, match=r"--hosts a,b,c: Spark has given executors at a, a, b$"):
        hosts_of_nodes(["b", "a", "a"], ["a", "b", "c"], False)
    with pytest.raises(SettingsError, match=r"--data-dir: name each node's host, .*: --hosts a,b$"):
        hosts_of_nodes(["b", "a"], None, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--spark", "spark://host:7077"), "--spark: name the ports too"),
        ((*SPARK, "--restore", "x"), "--spark: start the cluster, then fill it"),
        ((*SPARK, "--hosts", "a,b"), "--hosts: expected 3 hosts, one for each node, found 2"),
        (("--hosts", "a,b,c"), "--hosts and --keys are for --spark"),
        (("--keys", "x"), "--hosts and --keys are for --spark"),
    ],
)
def test_options_that_do_not_fit(ran: Ran, arguments: tuple[str, ...], message: str) -> None:
    status, _, said = ran("cluster", "--nodes", "3", *arguments)
    assert status == 2
    assert message in said


@pytest.mark.spark
def test_a_master_that_is_not_there_is_named(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark itself tries for a minute, and says so over many lines."""

    def fails(_: object) -> None:
        raise RuntimeError("all masters are unresponsive")

    monkeypatch.setattr(session, "is_plain", lambda: False)  # so that no JVM is started
    monkeypatch.setattr(session.StartingSession, "_started", fails)
    status, out, said = ran("cluster", "--nodes", "3", *SPARK)
    assert (status, out) == (2, "")
    assert said == "wukongs: spark://host:7077: Spark does not start there: is it a master that runs?\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7", "node7", "fd00::7"])
def test_a_node_gets_its_file_and_its_keys(tmp_path: Path, host: str) -> None:
    options = cluster.make_parser().parse_args(
        ["--nodes", "3", "--replicas", "2", "--spares", "1", "--data-dir", "/data", *SPARK]
    )
    options.nodes += options.spares
    hosts = [host] * 4
    if host != "127.0.0.1":
        with pytest.raises(SettingsError, match="addresses that are not loopback need keys"):
            files_of_nodes(hosts, options, cluster.file_of_node)
        options.keys = tmp_path / "keys"
        with pytest.raises(SettingsError, match=r"--keys .*key.secret cannot be read"):
            files_of_nodes(hosts, options, cluster.file_of_node)
        make_keys(options.keys)
    addresses, files = files_of_nodes(hosts, options, cluster.file_of_node)
    written = f"[{host}]" if ":" in host else host
    assert addresses == [f"tcp://{written}:{port}" for port in range(7411, 7415)]
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in files[number].items():
            (folder / name).write_text(text)
        config = load_node_config(folder / "node.toml")
        assert (config.number, config.replicas, config.spares) == (number, 2, 1)
        assert config.data_dir == Path(f"/data/node{number}")
        assert [node.clients for node in config.nodes] == addresses
        assert [node.peers for node in config.nodes] == [f"tcp://{written}:{port}" for port in range(7415, 7419)]
    assert len({one["cluster.secret"] for one in files}) == 1
