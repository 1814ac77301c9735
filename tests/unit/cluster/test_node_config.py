"""The TOML of `wukongs node`: what it gives, and what is refused, with file, key, expected and found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wukongs.cluster.node_config import HttpConfig, MemberConfig, NodeConfig, TrustFiles, load_node_config
from wukongs.errors import SettingsError
from wukongs.settings import Settings
from wukongs.wire.sharding import SPLIT_PREDICATES

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
TWO = """
number = 1
[[node]]
clients = "tcp://127.0.0.1:7411"
peers = "tcp://127.0.0.1:7511"
[[node]]
clients = "tcp://127.0.0.1:7412"
peers = "tcp://127.0.0.1:7512"
"""
ONE = '[[node]]\nclients = "tcp://127.0.0.1:*"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "node.toml"
    file.write_text(text)
    return file


def loaded(folder: Path, text: str) -> NodeConfig:
    return load_node_config(written(folder, text))


def test_all_keys(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("")
    (tmp_path / "allowed").mkdir()
    text = f"""
    number = 0
    data_dir = "db"
    replicas = 2
    silence_s = 7
    split_predicates = ["http://ex/in", "http://ex/on"]
    listen_clients = "tcp://0.0.0.0:7411"
    listen_peers = "tcp://0.0.0.0:7511"
    [[node]]
    clients = "tcp://10.0.0.1:7411"
    peers = "tcp://10.0.0.1:7511"
    public_key = "{KEY}"
    [[node]]
    clients = "tcp://10.0.0.2:7411"
    peers = "tcp://10.0.0.2:7511"
    public_key = "{KEY}"
    [engine]
    batch_ms = 50
    [trust]
    secret_key_file = "secret"
    allowed_nodes = "allowed"
    allowed_clients = "allowed"
    tokens_file = "secret"
    [http]
    listen = "[::1]:7480"
    tls_cert_file = "secret"
    tls_key_file = "secret"
    cors = ["https://example.org"]
    timeout_s = 5
    """
    first = MemberConfig(clients="tcp://10.0.0.1:7411", peers="tcp://10.0.0.1:7511", public_key=KEY)
    second = MemberConfig(clients="tcp://10.0.0.2:7411", peers="tcp://10.0.0.2:7511", public_key=KEY)
    config = loaded(tmp_path, text)
    assert config == NodeConfig(
        file=str(tmp_path / "node.toml"),
        number=0,
        nodes=(first, second),
        listen_clients="tcp://0.0.0.0:7411",
        listen_peers="tcp://0.0.0.0:7511",
        data_dir=tmp_path / "db",
        replicas=2,
        silence_s=7.0,
        split_predicates=("http://ex/in", "http://ex/on"),
        settings=Settings.from_environment(batch_ms=50),
        trust=TrustFiles(
            secret_key_file=str(tmp_path / "secret"),
            allowed_nodes=str(tmp_path / "allowed"),
            allowed_clients=str(tmp_path / "allowed"),
            tokens_file=str(tmp_path / "secret"),
        ),
        http=HttpConfig(
            host="::1",
            port=7480,
            tls_cert=str(tmp_path / "secret"),
            tls_key=str(tmp_path / "secret"),
            origins=("https://example.org",),
            timeout_s=5.0,
        ),
    )
    assert config.me == first


def test_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, TWO)
    assert (config.listen_clients, config.listen_peers) == ("tcp://127.0.0.1:7412", "tcp://127.0.0.1:7512")
    assert (config.data_dir, config.replicas, config.split_predicates) == (None, 1, SPLIT_PREDICATES)
    assert config.settings == Settings.from_environment()
    assert config.trust == TrustFiles()
    alone = loaded(tmp_path, ONE)
    assert (alone.number, alone.me.peers, alone.listen_peers) == (0, None, None)
    assert loaded(tmp_path, "split_predicates = []\n" + ONE).split_predicates == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "node: expected 1 to 1024 nodes, each under [[node]], found 0"),
        ("number = 2" + TWO.replace("number = 1", ""), "line 1, number: expected an integer from 0 to 1, "),
        ("replicas = 3" + TWO, "line 1, replicas: expected an integer from 1 to 2, since the list has nodes for no"),
        ("replicas = 0" + TWO, "line 1, replicas: expected an integer from 1 to 2"),
        ("silence_s = 0.5\n" + ONE, "line 1, silence_s: expected seconds from 1.0 to 3600, found 0.5"),
        ("nodes = 1\n" + ONE, "line 1, nodes: expected one of the keys"),
        ("[[node]]\n", "line 1, node[0].clients: expected a text, found nothing"),
        ('[[node]]\nclients = "host:1"', "line 2, node[0].clients: expected an address such as tcp://127.0.0.1:7411"),
        ('[[node]]\nclients = "tcp://10.0.0.1:1"', "line 2, node[0].clients: expected a loopback address"),
        ('listen_clients = "tcp://0.0.0.0:1"\n' + ONE, "line 1, listen_clients: expected a loopback address"),
        (ONE + 'peers = "tcp://h:70000"', "line 3, node[0].peers: expected an address such as"),
        (ONE + 'public_key = "short"', "line 3, node[0].public_key: expected a public key of 40 characters"),
        (TWO.replace('peers = "tcp://127.0.0.1:7512"', ""), "node[1].peers: expected an address, since there are"),
        (TWO.replace("7412", "7411"), "node[1]: expected addresses of its own, found 'tcp://127.0.0.1:7411', which"),
        ('split_predicates = ["a b"]\n' + ONE, "line 1, split_predicates: expected an IRI"),
        (ONE + "[engine]\nbatch_ms = 0", "[engine]: batch_ms = 0: expected an integer from 1"),
        (ONE + '[trust]\nsecret_key_file = "none"', "line 4, trust.secret_key_file: expected a file, found"),
        (ONE + '[trust]\nallowed_nodes = "none"', "line 4, trust.allowed_nodes: expected a file or folder, found"),
        (ONE + '[trust]\nallowed_clients = "."', "line 4, trust.allowed_clients: expected secret_key_file beside it"),
        (
            ONE + '[trust]\nsecret_key_file = "node.toml"\nallowed_clients = "."',
            "node[0].public_key: expected the node's public key, since",
        ),
        (
            ONE + '[trust]\nsecret_key_file = "node.toml"',
            "trust.allowed_clients: expected the public keys of those",
        ),
        (
            '[trust]\nsecret_key_file = "node.toml"\nallowed_clients = "."'
            + TWO.replace("number = 1", "").replace("[[node]]", f"[[node]]\npublic_key = '{KEY}'"),
            "trust.allowed_nodes: expected the nodes' public keys, found nothing",
        ),
        (ONE + '[trust]\ntoken_file = "node.toml"', "line 4, trust.token_file: expected one of the keys"),
        (ONE + "[http]\n", "http.listen: expected a text, found nothing"),
        (ONE + '[http]\nlisten = "7480"', "line 4, http.listen: expected host and port, such as 127.0.0.1:7480"),
        (ONE + '[http]\nlisten = "h:70000"', "line 4, http.listen: expected host and port"),
        (ONE + '[http]\nlisten = "h:1"\nport = 1', "line 5, http.port: expected one of the keys"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)) as raised:
        loaded(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path / "node.toml"))


ADDED = '[added]\nclients = "tcp://127.0.0.1:7413"\npeers = "tcp://127.0.0.1:7513"\n'


def test_a_node_that_was_added_names_itself_beside_the_list(tmp_path: Path) -> None:
    config = loaded(tmp_path, TWO.replace("number = 1", "number = 3") + ADDED)
    assert (config.number, len(config.nodes)) == (3, 2)
    assert config.me == MemberConfig(clients="tcp://127.0.0.1:7413", peers="tcp://127.0.0.1:7513")
    assert config.listen_clients == "tcp://127.0.0.1:7413"
    for text, said in (
        (TWO + ADDED, "number: expected an integer from 2 to 1024"),
        (TWO.replace("number = 1", "number = 2"), "number: expected an integer from 0 to 1"),
        (TWO.replace("number = 1", "number = 2") + ADDED.replace("7513", "7512"), "expected addresses of its own"),
        (TWO.replace("number = 1", "number = 2") + ADDED + "other = 1\n", "added.other"),
    ):
        with pytest.raises(SettingsError, match=said):
            loaded(tmp_path, text)
