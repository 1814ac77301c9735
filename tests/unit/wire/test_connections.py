"""Strangers that open connections, or send bytes without end before they have shown who they are: they take neither the
descriptors nor the memory of a node, and those that have the key are answered all the while."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.unit.wire.conftest import ANY_PORT, Nodes, echo, wait_until
from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.wire import bound_socket, connections, descriptors
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.connections import FIRST_BYTES_MAX, Connections
from wukongs.wire.keys import make_keys, read_key_pair
from wukongs.wire.packets import Packet
from wukongs.wire.trust import ANY, Keys, Trust

MB = 1 << 20
CUT_OFF = FIRST_BYTES_MAX + 100 * MB
"""A connection that is cut takes less: so much until the thread that cuts it has its turn, on a busy machine too."""
LONG_MS = 60_000


def greeting(mechanism: bytes) -> bytes:
    return b"\xff" + b"\0" * 8 + b"\x7f\3\0" + mechanism.ljust(20, b"\0") + b"\0" * 32


HUGE_COMMAND = b"\x06" + struct.pack(">Q", (1 << 30) - 1)
HUGE_FRAME = b"\x02" + struct.pack(">Q", (1 << 30) - 1)
ONE_OF_MANY = b"\x03" + struct.pack(">Q", (1 << 16) - 9)
"""The begin of a frame that another one of the same message follows: 65,536 bytes with it."""
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


class Strangers:
    """Plain TCP connections to an address."""

    def __init__(self, address: str) -> None:
        self._to = ("127.0.0.1", int(address.rsplit(":", 1)[1]))
        self.all: list[socket.socket] = []

    def connect(self, count: int = 1) -> socket.socket:
        for _ in range(count):
            self.all.append(socket.create_connection(self._to, 20))
        return self.all[-1]

    def left(self) -> int:
        """Return how many are still connected."""
        return sum(is_open(one) for one in self.all)

    def send(self, *begins: bytes, chunk: bytes = b"\1" * (1 << 16)) -> int:
        """Send without end; return how many bytes were taken before the connection ended, at most 1 GiB. Behind each
        begin the other side's answer is waited for."""
        one, sent = self.connect(), 0
        one.settimeout(0.2)
        with contextlib.suppress(OSError):
            for begin in begins:
                one.sendall(begin)
                with contextlib.suppress(TimeoutError):
                    one.recv(4096)
            one.settimeout(20)
            while sent < 1 << 30:
                sent += one.send(chunk)
        return sent

    def close(self) -> None:
        for one in self.all:
            one.close()


def is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    make_keys(tmp_path)
    pair = read_key_pair(tmp_path / "key.secret")
    return Keys(pair, {ANY: pair.public})


@pytest.fixture(params=["keys", "no keys"])
def has_keys(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "keys")


@pytest.fixture
def no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_socket, "HANDSHAKE_MS", LONG_MS)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, no_time_limit: None) -> None:
    monkeypatch.setattr(connections, "UNPROVEN_MAX", 8)


@pytest.fixture
def served(tmp_path: Path, keys: Keys, has_keys: bool) -> Iterator[Callable[[], tuple[ClientSocket, ClientChannel]]]:
    with contextlib.ExitStack() as stack:

        def start() -> tuple[ClientSocket, ClientChannel]:
            trust = Trust(shared_key_file=str(tmp_path / "key.secret")) if has_keys else Trust()
            clients = ClientSocket(ANY_PORT, {"echo": echo}, trust=trust)
            stack.callback(clients.close)
            channel = ClientChannel(clients.address, keys=keys if has_keys else None)
            stack.callback(channel.close)
            return clients, channel

        yield start


Served = Callable[[], tuple[ClientSocket, ClientChannel]]


def is_answered(channel: ClientChannel) -> bool:
    return channel.ask(Packet("echo", {"n": 1}), 20).fields == {"n": 1}


@pytest.mark.usefixtures("few")
def test_silent_connections_are_bounded_and_friends_are_answered(served: Served) -> None:
    clients, before = served()
    assert is_answered(before)
    strangers = Strangers(clients.address)
    strangers.connect(100)
    wait_until(lambda: strangers.left() <= 8, "the others are shut")
    assert is_answered(before)
    strangers.connect(100)
    _, later = served()
    assert is_answered(later)
    wait_until(lambda: strangers.left() <= 8, "the others are shut")
    assert strangers.left() > 0
    strangers.close()


def test_a_silent_connection_is_let_go_in_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_socket, "HANDSHAKE_MS", 50)
    clients, friend = served()
    strangers = Strangers(clients.address)
    strangers.connect(3)
    wait_until(lambda: strangers.left() == 0, "they are let go")
    assert is_answered(friend)
    strangers.close()


@pytest.mark.usefixtures("no_time_limit")
def test_bytes_without_end_in_the_place_of_a_handshake_are_cut_off(served: Served, has_keys: bool) -> None:
    clients, friend = served()
    strangers = Strangers(clients.address)
    assert strangers.send() < CUT_OFF  # a version of ZeroMQ's without a greeting: messages that never end
    if has_keys:
        assert strangers.send(chunk=b"\xff" * (1 << 16)) < CUT_OFF
        assert strangers.send(greeting(b"CURVE"), HUGE_COMMAND) < CUT_OFF
    else:
        # ZeroMQ's own check, before a byte is kept: that version has no handshake. The system's buffers take some MB.
        assert strangers.send() < 16 * MB
    assert is_answered(friend)
    strangers.close()


@pytest.mark.parametrize("tokens", [False, True])
def test_a_first_message_without_end_is_cut_off(tmp_path: Path, tokens: bool) -> None:
    """Where there are no keys, anybody on the machine gets through the handshake."""
    (tmp_path / "tokens").write_text("a-token-of-this-test\n")
    (tmp_path / "tokens").chmod(0o600)
    trust = Trust(tokens_file=str(tmp_path / "tokens")) if tokens else Trust()
    clients = ClientSocket(ANY_PORT, {"echo": echo}, trust=trust)
    friend = ClientChannel(clients.address, token="a-token-of-this-test" if tokens else None)
    strangers, many = Strangers(clients.address), ONE_OF_MANY + b"\1" * ((1 << 16) - 9)
    try:
        assert is_answered(friend)
        assert strangers.send(greeting(b"NULL"), READY, HUGE_FRAME) < CUT_OFF
        assert strangers.send(greeting(b"NULL"), READY, chunk=many) < CUT_OFF
        assert is_answered(friend)
        assert clients._socket._connections.shut == 2
    finally:
        strangers.close()
        friend.close()
        clients.close()


def test_first_messages_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNPROVEN_SUM_BYTES_MAX", 4 * MB)
    clients = ClientSocket(ANY_PORT, {"echo": echo})
    friend, strangers = ClientChannel(clients.address), Strangers(clients.address)
    try:
        for _ in range(5):
            one = strangers.connect()
            one.settimeout(0.1)
            for begin in (greeting(b"NULL"), READY):
                one.sendall(begin)
                with contextlib.suppress(TimeoutError):
                    one.recv(4096)
            one.settimeout(20)
            with contextlib.suppress(OSError):  # those before are cut first, then this one
                one.sendall(HUGE_FRAME + b"\1" * MB)
        wait_until(lambda: clients._socket._connections.shut >= 1, "one is cut")
        assert strangers.left() >= 2
        assert is_answered(friend)
    finally:
        strangers.close()
        friend.close()
        clients.close()


@pytest.mark.usefixtures("few")
def test_what_a_friend_sends_first_may_be_large(served: Served) -> None:
    for _ in range(3):
        _, friend = served()
        sent = np.arange(4 * MB, dtype=np.int64)
        assert np.array_equal(friend.ask(Packet("echo", {}, {"a": sent}), 60).arrays["a"], sent)


@pytest.mark.usefixtures("few")
def test_friends_may_be_more_than_strangers(served: Served) -> None:
    clients, _ = served()
    friends = [served()[1] for _ in range(30)]
    for friend in [*friends, *friends]:
        assert is_answered(friend)
    assert clients.address


def test_all_connections_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_socket, "connections_max", lambda: 3)
    clients = ClientSocket(ANY_PORT, {"echo": echo})
    friends = [ClientChannel(clients.address) for _ in range(3)]
    one_more = ClientChannel(clients.address)
    for channel in (*friends, one_more):
        channel._is_offered = True  # it asks over one connection only: others would come and go all the time
    for friend in friends:
        assert is_answered(friend)
    known = clients._socket._connections
    wait_until(lambda: len(known) == 3 and known.are_all_proven, "they are known")
    with pytest.raises(NodeUnavailable):
        one_more.ask(Packet("echo"), 0.5)
    for friend in friends:
        assert is_answered(friend)
    friends.pop().close()
    wait_until(lambda: len(known) < 3, "one is gone")
    assert is_answered(one_more)
    for friend in [*friends, one_more]:
        friend.close()
    clients.close()


@pytest.mark.usefixtures("few")
def test_nodes_hear_each_other_while_strangers_connect(nodes: Nodes) -> None:
    pair = nodes.start(0), nodes.start(1, {"echo": echo})
    nodes.join(*pair)
    strangers = Strangers(pair[1].address)
    for round_ in range(20):
        strangers.connect(20)
        assert pair[0].ask([(1, Packet("echo", {"n": round_}))], 20)[0].fields == {"n": round_}
    wait_until(lambda: strangers.left() <= 8, "the others are shut")
    strangers.close()


def test_a_socket_closes_while_strangers_are_connected(served: Served) -> None:
    clients, _ = served()
    strangers = Strangers(clients.address)
    strangers.connect(200)
    clients.close()
    strangers.close()


def test_no_descriptor_for_another_connection_ends_it_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def pass_by(s: float) -> None:
        nonlocal now_s
        now_s += s

    monkeypatch.setattr(descriptors, "time", SimpleNamespace(monotonic=lambda: now_s))
    of_a_socket = Connections(has_keys=True, connections_max=10)
    of_a_socket.refused(errno.ECONNABORTED)
    of_a_socket.refused(errno.ECONNABORTED)
    of_a_socket.refused(errno.EMFILE)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        of_a_socket.opened(one.fileno())  # there are some again
    of_a_socket.refused(errno.EMFILE)
    pass_by(1.2)
    of_a_socket.refused(errno.EMFILE)  # again, after a while without any
    pass_by(0.6)
    of_a_socket.refused(errno.EMFILE)
    pass_by(0.6)
    with pytest.raises(NodeUnavailable, match=r"no file descriptor left for one more connection: .*ulimit -n"):
        of_a_socket.refused(errno.EMFILE)


class Limit:
    """The limit of open files, as a process might have it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.soft, self.hard = soft, hard
        monkeypatch.setattr(resource, "getrlimit", lambda _: (self.soft, self.hard))
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, _: int, limits: tuple[int, int]) -> None:
        assert limits[1] == self.hard
        self.soft = limits[0]


@pytest.mark.parametrize(
    ("soft", "hard", "at_most", "after"),
    [
        (1024, 4096, descriptors.WISHED, 4096),
        (1024, resource.RLIM_INFINITY, descriptors.WISHED, descriptors.WISHED),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, descriptors.WISHED, resource.RLIM_INFINITY),
        (1024, 4096, descriptors.NEEDED, 1024),
        (256, 4096, descriptors.NEEDED, descriptors.NEEDED),
    ],
)
def test_the_soft_limit_is_raised(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, at_most: int, after: int
) -> None:
    limit = Limit(monkeypatch, soft, hard)
    descriptors.make_room(at_most=at_most)
    assert limit.soft == after


def test_a_hard_limit_that_is_too_low_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Limit(monkeypatch, 256, 600)
    descriptors.make_room()
    with pytest.raises(SettingsError, match=r"ulimit -n = 600: expected 768 open files or more, .* and 2 other nodes"):
        descriptors.make_room(2)
    Limit(monkeypatch, 200, 300)
    with pytest.raises(SettingsError, match=r"ulimit -n = 300: expected 512 open files or more, .*hard limit is 300"):
        ClientSocket(ANY_PORT, {})
