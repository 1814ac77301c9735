"""The TOML file of `wukongs node`: which node this is, the nodes of its cluster, where it listens, what it keeps.

```toml
number = 0                       # this node, counted from 0 in the order of the list below
data_dir = "db0"                 # relative to the file; left out: in memory
replicas = 2                     # nodes that hold each shard; 1 by default
spares = 0                       # so many of the nodes, the last ones, hold nothing until they take another's place
replace_s = 60.0                 # so long a node may be gone before a spare one takes its place
silence_s = 2.0                  # so long nothing may be heard of a node before the others go on without it
split_predicates = ["http://www.w3.org/1999/02/22-rdf-syntax-ns#type"]
listen_clients = "tcp://0.0.0.0:7411"    # where it listens, if that is another address than the one others use
listen_peers = "tcp://0.0.0.0:7511"

[[node]]                         # one for each node, the same list in the file of every node
clients = "tcp://10.0.0.1:7411"  # where clients and pipelines find it
peers = "tcp://10.0.0.1:7511"    # where the other nodes find it; may be left out if there is no other
public_key = "..."               # needed once [trust] names a secret key

[engine]                         # the options of Settings

[trust]                          # needed for addresses that are not loopback
secret_key_file = "node0.secret"
allowed_nodes = "nodes"          # a file with a public key a line, or a folder of such files
allowed_clients = "clients"
tokens_file = "tokens"           # a client token a line; left out: none is asked for
cluster_key_file = "cluster.secret"    # in the place of allowed_nodes: a secret key that all nodes have for each other

[http]                           # the same engine over HTTP (docs/http.md); left out: not
listen = "127.0.0.1:7480"        # what is not loopback needs tokens_file under [trust]
tls_cert_file = "cert.pem"       # with tls_key_file: https
tls_key_file = "key.pem"
cors = ["https://example.org"]   # origins of pages that may ask; none by default
timeout_s = 60.0                 # no query or update of a request runs longer; left out: what [engine] says

[added]                          # only of a node that `wukongs cluster add` lets in: number is the one that it prints
clients = "tcp://10.0.0.9:7411"  # this node's own, beside the list above as it is in the files of the others
peers = "tcp://10.0.0.9:7511"
```
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wukongs.errors import SettingsError
from wukongs.query.terms.names import graph_term
from wukongs.settings import Settings
from wukongs.settings.toml_reader import TableReader, engine_settings, read_toml
from wukongs.wire.keys import is_key
from wukongs.wire.sharding import SPLIT_PREDICATES
from wukongs.wire.transport import check_address

NODES_MAX = 1024
"""There are so many shards."""
SILENCE_S = 2.0
REPLACE_S = 60.0
REPLACE_MAX_S = 1e9
SILENCE_MIN_S, SILENCE_MAX_S = 1.0, 3600.0
"""A leader that is gone is noticed within 0.8 s, and nobody is to be taken out before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """One node of the list: where clients and the other nodes find it (peers: None in a list of one), and its key."""

    clients: str
    peers: str | None = None
    public_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustFiles:
    """Paths; None: not given. The allowed ones are files with a public key a line, or folders of such files.
    cluster_key_file: a secret key that all nodes have, and need to reach each other; clients have nothing to do with
    it."""

    secret_key_file: str | None = None
    allowed_nodes: str | None = None
    allowed_clients: str | None = None
    tokens_file: str | None = None
    cluster_key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """The [http] of a file. host, port: where it listens; the files are paths."""

    host: str
    port: int
    tls_cert: str | None = None
    tls_key: str | None = None
    origins: tuple[str, ...] = ()
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Everything that one node is told. number: its place in nodes; listen_*: where its sockets are bound; data_dir:
    None: in memory; split_predicates: IRIs of predicates whose in-edges live with their subjects; added: this node, if
    it is not among nodes, since it was added while the cluster ran."""

    file: str
    number: int
    nodes: tuple[MemberConfig, ...]
    listen_clients: str
    listen_peers: str | None = None
    data_dir: Path | None = None
    replicas: int = 1
    silence_s: float = SILENCE_S
    spares: int = 0
    replace_s: float = REPLACE_S
    split_predicates: tuple[str, ...] = SPLIT_PREDICATES
    settings: Settings
    trust: TrustFiles = TrustFiles()
    added: MemberConfig | None = None
    http: HttpConfig | None = None

    @property
    def me(self) -> MemberConfig:
        return self.nodes[self.number] if self.added is None else self.added


def load_node_config(path: str | Path) -> NodeConfig:
    """Read and check the file.

    Raises: SettingsError (a file, key or value that will not do: where, what was expected, what was found)."""
    top = read_toml(path)
    trust = _trust(top.table("trust"))
    is_keyed = trust.secret_key_file is not None
    nodes = top.tables("node", lambda reader: _member(reader, trust))
    if not 1 <= len(nodes) <= NODES_MAX:
        raise top.error("node", f"1 to {NODES_MAX} nodes, each under [[node]]", str(len(nodes)))
    added = _added(top.table("added"), trust) if top.has("added") else None
    if added is None:
        number = _number(top, "number", 0, 0, len(nodes) - 1)
    else:
        number = _number(top, "number", 0, len(nodes), NODES_MAX)
    me = nodes[number] if added is None else added
    listen_peers = _listening(top, "listen_peers", is_keyed or trust.cluster_key_file is not None) or me.peers
    config = NodeConfig(
        file=top.file,
        number=number,
        nodes=nodes,
        listen_clients=_listening(top, "listen_clients", is_keyed) or me.clients,
        listen_peers=listen_peers,
        data_dir=_folder(top),
        replicas=_number(top, "replicas", 1, 1, len(nodes)),
        silence_s=_seconds(top, "silence_s", SILENCE_S, SILENCE_MAX_S),
        spares=_number(top, "spares", 0, 0, len(nodes) - 1),
        replace_s=_seconds(top, "replace_s", REPLACE_S, REPLACE_MAX_S),
        split_predicates=_split_predicates(top),
        settings=engine_settings(top),
        trust=trust,
        added=added,
        http=_http(top.table("http")) if top.has("http") else None,
    )
    top.done()
    if config.settings.tick_ms:
        raise SettingsError(
            f"{top.file}, [engine]: tick_ms = {config.settings.tick_ms}: the ticks of a cluster are the ends of its "
            "stream batches: leave it out, and WUKONGS_TICK_MS unset; a longer batch_ms makes fewer snapshots"
        )
    _check_addresses(config)
    return config


def _number(reader: TableReader, key: str, default: int, low: int, high: int) -> int:
    value = reader.integer(key, default)
    if value is None or not low <= value <= high:
        raise reader.error(key, f"an integer from {low} to {high}, since the list has nodes for no more", repr(value))
    return value


def _seconds(reader: TableReader, key: str, default: float, most: float) -> float:
    value = reader.number(key, default)
    if not SILENCE_MIN_S <= value <= most:
        raise reader.error(key, f"seconds from {SILENCE_MIN_S} to {most:g}", repr(value))
    return value


def _trust(reader: TableReader) -> TrustFiles:
    files = TrustFiles(
        secret_key_file=reader.optional_path("secret_key_file"),
        allowed_nodes=_file_or_folder(reader, "allowed_nodes"),
        allowed_clients=_file_or_folder(reader, "allowed_clients"),
        tokens_file=reader.optional_path("tokens_file"),
        cluster_key_file=reader.optional_path("cluster_key_file"),
    )
    reader.done()
    if files.cluster_key_file is not None and files.allowed_nodes is not None:
        raise reader.error("allowed_nodes", "this, or cluster_key_file, a key that all nodes have", "both")
    for key, path in (("allowed_nodes", files.allowed_nodes), ("allowed_clients", files.allowed_clients)):
        if path is not None and files.secret_key_file is None:
            raise reader.error(key, "secret_key_file beside it: without keys nobody can be told apart", "none")
    if files.secret_key_file is not None and files.allowed_clients is None:
        raise reader.error("allowed_clients", "the public keys of those who may connect", "nothing")
    return files


def _http(reader: TableReader) -> HttpConfig:
    listen = reader.text("listen")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise reader.error("listen", "host and port, such as 127.0.0.1:7480", repr(listen))
    config = HttpConfig(
        host=host.removeprefix("[").removesuffix("]"),
        port=int(port),
        tls_cert=reader.optional_path("tls_cert_file"),
        tls_key=reader.optional_path("tls_key_file"),
        origins=reader.texts("cors"),
        timeout_s=reader.number("timeout_s", 0.0) or None,
    )
    reader.done()
    return config


def _file_or_folder(reader: TableReader, key: str) -> str | None:
    path = reader.optional_place(key)
    if path is not None and not Path(path).exists():
        raise reader.error(key, "a file or folder", f"{path}, which is not there")
    return path


def _folder(reader: TableReader) -> Path | None:
    path = reader.optional_place("data_dir")
    return None if path is None else Path(path)


def _split_predicates(reader: TableReader) -> tuple[str, ...]:
    if not reader.has("split_predicates"):
        return SPLIT_PREDICATES
    return tuple(reader.checked("split_predicates", text, graph_term) for text in reader.texts("split_predicates"))


def _added(reader: TableReader, trust: TrustFiles) -> MemberConfig:
    added = _member(reader, trust)
    reader.done()
    return added


def _member(reader: TableReader, trust: TrustFiles) -> MemberConfig:
    clients, peers = reader.text("clients"), reader.optional_text("peers")
    is_keyed, is_shared = trust.secret_key_file is not None, trust.cluster_key_file is not None
    _check(reader, "clients", clients, is_keyed)
    if peers is not None:
        _check(reader, "peers", peers, is_keyed or is_shared)
    public_key = reader.optional_text("public_key")
    if public_key is not None and not is_key(public_key):
        raise reader.error("public_key", "a public key of 40 characters, as `wukongs keys` prints it", repr(public_key))
    if is_keyed and not is_shared and public_key is None:
        raise reader.error("public_key", "the node's public key, since [trust] names a secret key", "nothing")
    return MemberConfig(clients=clients, peers=peers, public_key=public_key)


def _listening(reader: TableReader, key: str, is_keyed: bool) -> str | None:
    address = reader.optional_text(key)
    if address is not None:
        _check(reader, key, address, is_keyed)
    return address


def _check(reader: TableReader, key: str, address: str, is_keyed: bool) -> None:
    try:
        check_address(address)
    except SettingsError:
        raise reader.error(key, "an address such as tcp://127.0.0.1:7411", repr(address)) from None
    try:
        check_address(address, allow_remote=is_keyed)
    except SettingsError:
        expected = "a loopback address such as tcp://127.0.0.1:7411, or secret_key_file under [trust]"
        raise reader.error(key, expected, repr(address)) from None


def _check_addresses(config: NodeConfig) -> None:
    """Refuse nodes that cannot be found, or are told apart by nothing."""
    seen: dict[str, int] = {}
    for number, node in enumerate((*config.nodes, *(() if config.added is None else (config.added,)))):
        trust = config.trust
        is_listed = trust.allowed_nodes is not None or trust.cluster_key_file is not None
        if trust.secret_key_file and not is_listed and len(config.nodes) > 1:
            raise SettingsError(f"{config.file}, trust.allowed_nodes: expected the nodes' public keys, found nothing")
        if node.peers is None and len(config.nodes) > 1:
            raise SettingsError(f"{config.file}, node[{number}].peers: expected an address, since there are others")
        for address in (node.clients, node.peers):
            if address is None or address.endswith((":0", ":*")):
                continue
            if address in seen:
                raise SettingsError(
                    f"{config.file}, node[{number}]: expected addresses of its own, found {address!r}, which "
                    f"node[{seen[address]}] has as well"
                )
            seen[address] = number
