"""Nodes of a cluster in one process without sockets: what they ask each other are calls, and a test decides which of
them are lost, refused or answered by somebody else. So a bad moment is one line, and comes each time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from tests.clusters import PATIENT, patience
from wukongs.cluster import cluster_node, members
from wukongs.cluster.boot import KNOWS
from wukongs.cluster.cluster_node import ClusterNode, ClusterShape
from wukongs.cluster.writing import StreamWriter, writer_of
from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.protocol.messages import Incarnation
from wukongs.settings import Settings
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_columns
from wukongs.store.term_ids import HASH_BITS
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.trust import Gate

EX = "http://ex/"
STREAM = EX + "s"
PULSE_S = 0.005
WAIT_S = 60.0


def until(holds: Callable[[], object]) -> None:
    """Wait for something that nodes do by themselves, as taking in what another one has said."""
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s, "it does not come"
        time.sleep(0.002)


def encoded(*tuples: tuple[str, int], hash_bits: int = HASH_BITS) -> Encoded:
    """Tuples <name> <p> <o-name> at a time, for a stream."""
    names = [name for name, _ in tuples]
    return encode_columns(
        [f"<{EX}{name}>" for name in names],
        [f"<{EX}p>"] * len(names),
        [f"<{EX}o-{name}>" for name in names],
        timestamps=[time_ms for _, time_ms in tuples],
        scope=b"",
        hash_bits=hash_bits,
    )


@dataclass
class Fault:
    """What comes of requests of a kind to a node: an error, or an answer. is_done: the node does what is asked all the
    same. count: of how many requests."""

    kind: str
    to: int
    outcome: WukongsError | Packet
    is_done: bool = False
    count: int = 1 << 30


@dataclass
class Wires:
    nodes: list[ClusterNode] = field(default_factory=list)
    networks: dict[int, Network] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[tuple[int, int, Packet]] = field(default_factory=list)
    """(who asks, who is asked, what), in order."""
    before: Callable[[int, Packet], object] = lambda *_: None
    """Is called before a node answers."""
    is_cut: bool = False
    """Whether what nodes tell each other, without an answer, is lost."""
    cut: set[int] = field(default_factory=set)
    """Nodes that neither reach others nor are reached."""
    deaf: set[int] = field(default_factory=set)
    """Nodes that receive requests alone."""

    def lose(self, kind: str, to: int, is_done: bool = False, count: int = 1 << 30) -> Fault:
        """Let requests be lost, or their answers."""
        fault = Fault(kind, to, NodeUnavailable(f"node {to}: the connection was lost"), is_done, count)
        self.faults.append(fault)
        return fault

    def refuse(self, kind: str, to: int, error: WukongsError, count: int = 1 << 30) -> Fault:
        fault = Fault(kind, to, error, count=count)
        self.faults.append(fault)
        return fault

    def deliver(self, asker: int, node: int, packet: Packet) -> Packet:
        self.asked.append((asker, node, packet))
        self.before(node, packet)
        if asker != node and self.cut.intersection((asker, node)):
            raise NodeUnavailable(f"node {node}: the connection was lost")
        fault = next((one for one in self.faults if (one.kind, one.to) == (packet.kind, node) and one.count), None)
        if fault is not None:
            fault.count -= 1
            if fault.is_done:
                self.networks[node].handlers[packet.kind](packet)
            if isinstance(fault.outcome, Packet):
                return fault.outcome
            raise fault.outcome
        return self.networks[node].handlers[packet.kind](packet)

    def kinds(self) -> list[tuple[str, int]]:
        """What was asked of whom so far, and forget it."""
        found = [(packet.kind, node) for _, node, packet in self.asked]
        self.asked.clear()
        return found

    def writer(self, stream: str = STREAM) -> tuple[ClusterNode, StreamWriter]:
        """The node that writes a stream, and its writer."""
        node = self.nodes[writer_of(self.nodes[0].host.node, stream)]
        return node, node.backend._sink._writers.writer(stream)


class Network:
    """Stands for wukongs.wire.network.Network."""

    def __init__(self, wires: Wires, me: Incarnation, handlers: Mapping[str, Handler], on_tell: Any) -> None:
        self._wires, self._me, self.handlers, self._on_tell = wires, me, handlers, on_tell
        self.address, self.gate = f"node {me.node}", Gate()
        wires.networks[me.node] = self

    @property
    def me(self) -> int:
        return self._me.node

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        """All are asked, also if one does not answer."""
        answers: list[Packet] = []
        errors: list[WukongsError] = []
        for node, packet in asked:
            try:
                answers.append(self._wires.deliver(self.me, node, packet))
            except WukongsError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def send(self, node: int, packet: Packet) -> bool:
        wires = self._wires
        if not wires.is_cut and not wires.cut.intersection((self.me, node)) and node not in wires.deaf:
            wires.networks[node]._on_tell(self._me, packet)
        return not wires.is_cut

    def is_connected(self, node: int) -> bool:
        return not self._wires.is_cut

    def join(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def stats(self) -> dict[str, int]:
        return {}

    def call(self, function: Callable[[], None]) -> None:
        function()

    def progress(self) -> list[tuple[bool, int]]:
        return [(False, 0)]


@contextmanager
def wired(node_count: int, replica_count: int = 1, settings: Settings | None = None) -> Iterator[Wires]:
    """Give the nodes of a new cluster, all of them ready. None is ever taken out for being silent."""
    wires = Wires()
    with ExitStack() as stack:
        stack.enter_context(patience())
        stack.enter_context(
            patch.object(
                cluster_node,
                "Network",
                lambda me, _, handlers, on_tell, **options: Network(wires, me, handlers, on_tell),
            )
        )
        stack.enter_context(patch.object(cluster_node, "SILENCE_PULSES_MAX", 1 << 30))
        stack.enter_context(patch.object(members, "RETRY_S", 0.0005))
        for number in range(node_count):
            me, shape = Incarnation(number, 0, 1), ClusterShape(node_count, replica_count, silence_pulses_max=PATIENT)
            node = ClusterNode(me, shape, "", settings or Settings(), pulse_s=PULSE_S)
            stack.callback(node.close)
            wires.nodes.append(node)
        for node in wires.nodes:
            node._knows = {number: frozenset(KNOWS) for number in range(node_count)}  # nobody introduces itself here
            node.start({})
        for node in wires.nodes:
            node.wait_until_ready(WAIT_S)
        yield wires
