"""The process of `wukongs node` when the file has several nodes: a ClusterNode, and the socket for its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from wukongs.cluster.adding import added_to
from wukongs.cluster.boot import FIRST_DISK, HELLO, hello_handler, new_boot, next_disk
from wukongs.cluster.cluster_node import KINDS, ClusterNode, ClusterShape
from wukongs.cluster.host import PULSE_S
from wukongs.cluster.node_config import NodeConfig
from wukongs.cluster.node_disk import NodeDisk, NodeFolder, Owner, Recorded
from wukongs.cluster.resuming import can_go_on, scanned
from wukongs.errors import NodeUnavailable
from wukongs.protocol.control import Control
from wukongs.protocol.messages import Incarnation
from wukongs.protocol.records import AddNode, Role, Voter
from wukongs.remote.client import RemoteEngine
from wukongs.remote.service import Service
from wukongs.wire.answering import Quick
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.descriptors import make_room
from wukongs.wire.network import Network
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.trust import Trust

START_S = 240.0
"""How long the other nodes may take to start: the first time, kernels are compiled."""
STARTING_S = 30.0
"""So long nothing may be heard of a node that may still be starting, before the others go on without it."""


class Inside:
    """Clients inside a node, which ask it and the others."""

    def __init__(self, node: ClusterNode, service: Service) -> None:
        self._node, self._service = node, service
        node.serve_clients(service.handlers)

    def client(self) -> RemoteEngine:
        """Return a new client; whoever asks closes it."""
        return self._node.client(self._service.handlers)

    def keep(self, name: str) -> None:
        """Have the last windows of a query kept, if it runs here."""
        self._node.keeping.keep(name)


class ServedNode:
    """address: where it listens for clients; inside: for clients inside this node. Raises SettingsError,
    NodeUnavailable (too few other nodes start)."""

    def __init__(self, config: NodeConfig, when_spare: Callable[[str], object] = lambda _: None) -> None:
        files = config.trust
        peers = Trust(files.secret_key_file, files.allowed_nodes)
        clients = Trust(files.secret_key_file, files.allowed_clients, files.tokens_file)
        members = dict(enumerate(config.nodes)) | {config.number: config.me}
        addresses = {number: member.peers or "" for number, member in members.items()}
        keys = {number: member.public_key for number, member in members.items() if member.public_key}
        if files.cluster_key_file is not None:
            peers = Trust(shared_key_file=files.cluster_key_file)
            keys = {}
        make_room(len(config.nodes) - 1)
        with ExitStack() as stack:
            added = dict[int, AddNode]()
            me, disk = _begun_life(config, peers, addresses, keys, added, stack)
            node = ClusterNode(me, _shape(config), listen_peers(config), config.settings, trust=peers, disk=disk)
            stack.callback(node.close)
            node.backend.ingest_addresses = tuple(member.clients for member in config.nodes)
            node.start(addresses, keys, added)
            service = Service(node.engine, config.settings, node.backend, life=lambda: node.host.node.control.life)
            stack.callback(service.close)
            handlers: dict[str, Handler] = dict.fromkeys(service.handlers, partial(_not_yet, node))
            quick: dict[str, Quick] = {}
            # Pipelines send this node its part while it joins: it is not in sync before it has what the others have.
            self._socket = ClientSocket(
                config.listen_clients,
                handlers,
                node.intake,
                trust=clients,
                quick=quick,
                failed=node.host.fail,
            )
            stack.callback(self._socket.close)
            node.counting.clients_traffic = self._socket.stats
            _wait_until_ready(node, when_spare)
            handlers.update(service.handlers)
            quick.update(service.quick)
            self.inside = Inside(node, service)
            self.address = self._socket.address
            self.listens: Mapping[str, str] = {"clients": self.address, "other nodes": node.address}
            self._trusted: tuple[tuple[Trust, ClientSocket | Network], ...] = (
                (clients, self._socket),
                (peers, node.network),
            )
            self.engine = node.engine
            self._host = node.host
            self._stack = stack.pop_all()

    def on_failure(self, tell: Callable[[BaseException], object]) -> None:
        """Let somebody be told when the node can do nothing any more: the others have taken it out, most of all."""
        self._host.on_failure = tell
        if self._host.failure is not None:
            tell(self._host.failure)

    def reload_trust(self) -> None:
        """Read the files of keys and tokens again. Raises SettingsError (one that will not do: all old ones stay)."""
        gates = [trust.read() for trust, _ in self._trusted]
        for gate, (_, socket) in zip(gates, self._trusted, strict=True):
            gate.check_follows(socket.gate)
        for gate, (_, socket) in zip(gates, self._trusted, strict=True):
            socket.use(gate)

    def close(self) -> None:
        """End clients' sessions, the sockets and the node; may be called again."""
        self._stack.close()


def _wait_until_ready(node: ClusterNode, when_spare: Callable[[str], object]) -> None:
    """Wait until a node serves; a spare one for as long as it holds nothing. when_spare: is called with the address for
    other nodes, once, if it is one. Raises NodeUnavailable."""
    said = list[object]()

    def say() -> None:
        if not said:
            said.append(when_spare(node.address))

    while True:
        try:
            return node.wait_until_ready(START_S, say)
        except NodeUnavailable:
            node.host.check()
            if not node.host.node.is_spare:
                raise


def _not_yet(node: ClusterNode, _: Packet) -> Packet:
    """Refuse a request of a client to a node that does not serve yet. Raises NodeUnavailable."""
    if node.host.node.is_spare:
        raise NodeUnavailable(f"node {node.me.node} is a spare one: it serves once it has taken another node's place")
    raise NodeUnavailable(f"node {node.me.node} is starting: ask again, or another node")


def run(config: NodeConfig, when_spare: Callable[[str], object] = lambda _: None) -> ServedNode:
    """Start one node of a cluster, and return it once it serves. when_spare: is called with its address for other nodes
    if it waits for another one's place. Raises as ServedNode."""
    return ServedNode(config, when_spare)


def listen_peers(config: NodeConfig) -> str:
    """Return where a node listens for the others."""
    assert config.listen_peers is not None, config.file
    return config.listen_peers


def _shape(config: NodeConfig) -> ClusterShape:
    peers = tuple(member.peers or "" for member in config.nodes)
    pulses_max, starting = (
        round(seconds / PULSE_S) for seconds in (config.silence_s, max(config.silence_s, STARTING_S))
    )
    replace_max = max(pulses_max, round(config.replace_s / PULSE_S))
    shape = ClusterShape(len(config.nodes), config.replicas, config.split_predicates, peers, pulses_max, starting)
    return replace(shape, spare_count=config.spares, replace_pulses_max=replace_max)


def _begun_life(
    config: NodeConfig,
    trust: Trust,
    addresses: dict[int, str],
    keys: dict[int, str],
    added: dict[int, AddNode],
    stack: ExitStack,
) -> tuple[Incarnation, NodeDisk | None]:
    """Ask the other nodes whether this one is new, and open its data folder, if it has one, for the life that begins.

    added: gets the nodes that were added, as the others say; stack: gives the folder back. Raises as next_disk,
    NodeFolder and NodeDisk."""
    shape, number = _shape(config), config.number
    if config.data_dir is None:
        return Incarnation(number, _next_disk(config, trust, addresses, keys, added), new_boot()), None
    told = shape.told_of_data(config.settings)
    folder = NodeFolder(config.data_dir, number, told)
    stack.callback(folder.close)
    owner, disk, recorded, mine = folder.owner, None, None, None
    if owner is not None and not owner.is_joining:
        disk = NodeDisk(folder, config.settings.sync_interval_ms)
        recorded = scanned(disk, shape.genesis)
        if recorded is not None:
            addresses, keys = _those_there(recorded.control, addresses, keys)
        goes_on = recorded is None or can_go_on(recorded, Voter(number, owner.disk))
        mine = owner.disk if goes_on else None
    generation = _next_disk(config, trust, addresses, keys, added, recorded, mine)
    if owner is not None and mine is None:
        generation = max(generation, owner.disk + 1)
    boot = new_boot() if owner is None else max(new_boot(), owner.boot + 1)
    is_first = generation == FIRST_DISK and shape.genesis.holds(number)
    is_joining = not is_first if mine is None else generation != mine
    folder.give_to(Owner(number, generation, boot, told, is_joining))
    if disk is None or generation != mine:
        disk = NodeDisk(folder, config.settings.sync_interval_ms)  # there is nothing in it any more
    return Incarnation(number, generation, boot), disk


def _those_there(
    control: Control, addresses: Mapping[int, str], keys: Mapping[int, str]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return where the nodes are that a node's log knows, and their keys."""
    gone = {number for number, member in control.members.items() if member.is_removed}
    there = {number: address for number, address in addresses.items() if number not in gone}
    return _with({one.node: one for one in added_to(control)}, there, keys)


def _with(
    added: Mapping[int, AddNode], addresses: Mapping[int, str], keys: Mapping[int, str]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return addresses and keys with those of nodes that were added; what the file says of a node goes before that."""
    known = {number: one.public_key for number, one in added.items() if one.public_key}
    return {number: one.peers for number, one in added.items()} | dict(addresses), known | dict(keys)


def _next_disk(
    config: NodeConfig,
    trust: Trust,
    addresses: dict[int, str],
    keys: dict[int, str],
    added: dict[int, AddNode],
    recorded: Recorded | None = None,
    mine: int | None = None,
) -> int:
    """Ask the other nodes which generation this node's disk has, and answer them meanwhile. added: gets the nodes that
    were added, as they say; recorded, mine: what its
    data folder says, and which generation that is."""
    told = _shape(config).told(config.settings)
    me = Incarnation(config.number, FIRST_DISK if mine is None else mine, new_boot())
    hello = hello_handler(lambda _: None, told) if recorded is None else _hello_of(recorded, told)

    def not_yet(_: Packet) -> Packet:
        raise NodeUnavailable(f"node {config.number} is starting: ask again")

    handlers: dict[str, Handler] = {**dict.fromkeys(KINDS, not_yet), HELLO: hello}
    network = Network(me, listen_peers(config), handlers, lambda *_: None, trust=trust, open_kinds=(HELLO,))
    try:
        network.join(addresses, keys)
        others = [number for number in addresses if number != config.number]
        return next_disk(network, others, told, START_S, mine=mine, added=added)
    finally:
        network.close()


def _hello_of(recorded: Recorded, told: str) -> Handler:
    """Return the handler of HELLO of a node that has only opened its folder so far."""
    control = recorded.control

    def last_life(number: int) -> Incarnation | None:
        return Incarnation(number, recorded.met[number], 0) if number in recorded.met else None

    return hello_handler(
        last_life,
        told,
        control.is_covered_without,
        is_out=lambda voter: control.role_of(voter) is Role.OUT,
        added=lambda: added_to(control),
    )
