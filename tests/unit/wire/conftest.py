"""Fixtures of the wire's tests: nodes on loopback that know each other, and a way to wait for something."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import zmq

from wukongs.live.header import Frame
from wukongs.protocol.messages import Incarnation
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.codec import ASK, read_packet_header, to_frames
from wukongs.wire.network import INTRODUCE, Network
from wukongs.wire.packets import Handler, Packet

ANY_PORT = "tcp://127.0.0.1:0"


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Look again and again, until it is so; fail with what did not happen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.002)


def echo(packet: Packet) -> Packet:
    return Packet("echo", packet.fields, packet.arrays)


def refused(network: Network | ClientSocket, reason: str) -> int:
    counts = network.stats()["refused"]
    assert isinstance(counts, dict)
    return counts[reason]


class Nodes:
    """Networks that end with the test."""

    def __init__(self) -> None:
        self.all: list[Network] = []
        self.told: dict[int, list[tuple[Incarnation, Packet]]] = {}

    def start(
        self,
        number: int,
        handlers: Mapping[str, Handler] | None = None,
        address: str = ANY_PORT,
        boot: int = 1,
        **options: Any,
    ) -> Network:
        told = self.told.setdefault(number, [])
        network = Network(
            Incarnation(number, 1, boot),
            address,
            {} if handlers is None else handlers,
            lambda sender, packet: told.append((sender, packet)),
            **options,
        )
        self.all.append(network)
        return network

    def join(self, *networks: Network) -> None:
        """Tell each of them where the others are."""
        addresses = {network.me: network.address for network in networks}
        for network in networks:
            network.join(addresses)

    def close(self) -> None:
        for network in self.all:
            network.close()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    made.close()


@pytest.fixture
def pair(nodes: Nodes) -> tuple[Network, Network]:
    """Node 0, which asks, and node 1, which answers `echo`."""
    networks = nodes.start(0), nodes.start(1, {"echo": echo})
    nodes.join(*networks)
    return networks


class Raw:
    """A peer that sends whatever it likes."""

    def __init__(self, address: str) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDTIMEO, 20_000)
        self.socket.connect(address)

    def say(self, frames: list[Frame]) -> None:
        self.socket.send_multipart(frames)

    def introduce(self, life: tuple[int, int, int], sequence: int = 1) -> Packet:
        """Introduce itself as a life of a node; return the answer."""
        self.say(to_frames(Packet(INTRODUCE), ASK, sequence, life))
        header = read_packet_header(self.hear())
        return Packet(header.kind, header.fields)

    def hear(self, timeout_ms: int = 20_000) -> list[bytes]:
        assert self.socket.poll(timeout_ms), "nothing came"
        frames: list[bytes] = self.socket.recv_multipart()
        return frames

    def close(self) -> None:
        self.socket.close()
