"""Both sockets under a flood of broken, forged and repeated messages: each is answered or dropped, and counted; the
node goes on, and who behaves is served all the while."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.wire.conftest import ANY_PORT, Nodes, Raw, echo, wait_until
from tests.unit.wire.pieces import STREAM, make_piece, many
from tests.unit.wire.test_client_socket import Ingest
from wukongs.live.pieces import Close, Finish, Open
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.codec import ANSWER, ASK, TELL, to_frames
from wukongs.wire.keys import make_keys
from wukongs.wire.messages import Ack
from wukongs.wire.messages import to_frames as ingest_frames
from wukongs.wire.network import INTRODUCE
from wukongs.wire.packets import Packet
from wukongs.wire.transport import joined
from wukongs.wire.trust import Trust, read_keys

COUNT = 3000
BYTES_MAX = 50_000
PIECES = [
    ingest_frames(message, 5)
    for message in (
        Open(STREAM, "part-0", 1),
        make_piece(many(3)),
        Close(STREAM, "part-0", 1, 5, 1000),
        Finish(STREAM, "part-0", 1),
        Ack(STREAM, "part-0", 5, 0),
    )
]
LIES = (None, True, -1, 0, 2**63, 10**400, 1e308, "", "ä" * 50, [], {}, [[]], [["ids", "int64", 2**60]], [9, 9, 9])


class Fuzz:
    """Messages that are nearly good, from a seed. sender: what a good one would have there."""

    def __init__(self, seed: int, sender: Any) -> None:
        self._random = random.Random(seed)
        self._sender = sender
        self._sequence = 10**6  # far from those of the good client
        self._said: list[list[bytes]] = []

    def message(self) -> list[bytes]:
        frames = self._good() if self._random.random() < 0.9 or not self._said else self._random.choice(self._said)
        ways = (self._flip, self._cut, self._frames, self._junk, self._lie, self._grow, self._join)
        for _ in range(self._random.choice((0, 1, 1, 2, 5))):
            frames = self._random.choice(ways)(frames or [b""])
        if len(self._said) < 50:
            self._said.append(frames)
        return frames or [b""]

    def _good(self) -> list[bytes]:
        if self._random.random() < 0.3:
            return [bytes(frame) for frame in self._random.choice(PIECES)]
        self._sequence += self._random.choice((0, 1, 1, 1, 50))
        arrays: dict[str, Any] = {"ids": np.arange(self._random.randrange(9)), "is": np.ones(3, np.bool_)}
        packet = Packet(self._random.choice(("echo", "echo", "eval", "refused")), {"n": [1, {"a": "ä"}]}, arrays)
        way = self._random.choice((ASK, ASK, ASK, TELL, ANSWER))
        return [bytes(frame) for frame in to_frames(packet, way, self._sequence, self._sender)]

    def _flip(self, frames: list[bytes]) -> list[bytes]:
        index = self._random.randrange(len(frames))
        changed = bytearray(frames[index])
        for _ in range(self._random.choice((1, 1, 3, 20)) if changed else 0):
            changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        return [*frames[:index], bytes(changed), *frames[index + 1 :]]

    def _cut(self, frames: list[bytes]) -> list[bytes]:
        index = self._random.randrange(len(frames))
        kept = self._random.randrange(len(frames[index]) + 1)
        return [*frames[:index], frames[index][:kept], *frames[index + 1 :]]

    def _frames(self, frames: list[bytes]) -> list[bytes]:
        others = (frames[1:], frames[:-1], [*frames, b""], frames * 2, frames[::-1], frames * 100)
        return self._random.choice(others)[:300]

    def _junk(self, frames: list[bytes]) -> list[bytes]:
        return [self._random.randbytes(self._random.randrange(200)) for _ in range(self._random.randrange(1, 5))]

    def _lie(self, frames: list[bytes]) -> list[bytes]:
        """Say something else of what comes."""
        try:
            header = json.loads(frames[0])
        except ValueError:
            return frames
        if not isinstance(header, dict):
            return frames
        header[self._random.choice([*header, "wukongs", "token", "from"])] = self._random.choice(LIES)
        return [json.dumps(header).encode(), *frames[1:]]

    def _join(self, frames: list[bytes]) -> list[bytes]:
        return [bytes(frame) for frame in joined(frames)]

    def _grow(self, frames: list[bytes]) -> list[bytes]:
        return [*frames, bytes(BYTES_MAX)] if self._random.random() < 0.2 else frames


def flood(address: str, fuzz: Fuzz, good: Callable[[], None], taken: Callable[[], int]) -> None:
    """Say COUNT messages; now and then somebody who behaves asks."""
    raw = Raw(address)
    before = taken()
    for number in range(COUNT):
        raw.say(list(fuzz.message()))
        if number % 100 == 0:
            good()
        while raw.socket.poll(0):
            raw.hear()
    wait_until(lambda: taken() - before >= COUNT, "all have come")
    good()
    raw.close()


def count(stats: dict[str, int | dict[str, int]], *names: str) -> int:
    refused: Any = stats["refused"]
    return sum(refused.values()) + sum(int(stats[name]) for name in names)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_flooded_node_serves_its_cluster(nodes: Nodes, seed: int) -> None:
    asking, network = nodes.start(0), nodes.start(1, {"echo": echo}, message_bytes_max=BYTES_MAX)
    nodes.join(asking, network)
    asked = 0

    def good() -> None:
        nonlocal asked
        asked += 1
        assert asking.ask([(1, Packet("echo", {"n": asked}))], 20)[0].fields == {"n": asked}

    fuzz = Fuzz(seed, (2, 1, 1))
    network.join({0: asking.address, 2: "tcp://127.0.0.1:9"})  # the liar is a node that is known
    liar = Raw(network.address)
    assert liar.introduce((2, 1, 1)).kind == INTRODUCE
    liar.close()
    asked += 1  # the node that asks introduces itself, too
    good()
    flood(network.address, fuzz, good, lambda: int(network.stats()["messages_in"]) - asked)  # type: ignore[arg-type]
    wait_until(
        lambda: count(network.stats(), "requests", "introductions", "told") == network.stats()["messages_in"],
        "each is counted",
    )
    reasons: Any = network.stats()["refused"]
    assert all(reasons[reason] for reason in reasons if reason not in ("busy",)), reasons
    assert network.stats()["failed"] == 0


@pytest.mark.parametrize("seed", [3, 4])
def test_a_flooded_client_socket_serves_its_clients(seed: int) -> None:
    ingest = Ingest()
    clients = ClientSocket(ANY_PORT, {"echo": echo}, ingest, message_bytes_max=BYTES_MAX)
    channel = ClientChannel(clients.address)
    asked = 0

    def good() -> None:
        nonlocal asked
        asked += 1
        assert channel.ask(Packet("echo", {"n": asked}), 20).fields == {"n": asked}

    fuzz = Fuzz(seed, "the same name each time")
    flood(clients.address, fuzz, good, lambda: int(clients.stats()["messages_in"]) - asked)  # type: ignore[arg-type]
    wait_until(
        lambda: count(clients.stats(), "requests", "ingested", "introductions") == clients.stats()["messages_in"],
        "all counted",
    )
    reasons: Any = clients.stats()["refused"]
    assert all(reasons[reason] for reason in reasons if reason not in ("busy", "stranger")), reasons
    assert clients.stats()["failed"] == 0
    assert ingest.pieces, "some messages of pipelines were good"
    channel.close()
    clients.close()


def zmtp(mechanism: bytes = b"NULL") -> bytes:
    return b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
        b"\xff" * 5000,
        zmtp()[:30],
        zmtp(b"CURVE") + b"\x04\xc8" + bytes(200),
        zmtp() + bytes(1000),
        zmtp() + READY + b"\x02" + (1 << 40).to_bytes(8, "big"),  # a frame of a terabyte
        zmtp() + READY + b"\x03" + (1 << 62).to_bytes(8, "big") + bytes(1000),
        zmtp() + READY + b"\x01\x00" * 500,  # frames of a message that never ends
    ],
)
def test_bytes_that_are_no_messages_harm_nobody(said: bytes, has_keys: bool, tmp_path: Path) -> None:
    trust, keys = None, None
    if has_keys:
        make_keys(tmp_path)
        secret, public = str(tmp_path / "key.secret"), str(tmp_path / "key.pub")
        trust, keys = Trust(secret, public), read_keys(secret, public)
    clients = ClientSocket(ANY_PORT, {"echo": echo}, trust=trust)
    channel = ClientChannel(clients.address, keys=keys)
    host, port = clients.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(said)
        assert channel.ask(Packet("echo", {"n": 1}), 20).fields == {"n": 1}
    assert channel.ask(Packet("echo", {"n": 2}), 20).fields == {"n": 2}
    channel.close()
    clients.close()
    stats = clients.stats()
    reasons: Any = stats["refused"]
    # Two questions, and one for a way to ask directly.
    # What looks like messages of ZeroMQ's first version is taken for such, of garbage, but never where there are keys.
    assert stats["messages_in"] == 3 + (0 if has_keys else reasons["malformed"])
    assert stats["requests"] == 2
