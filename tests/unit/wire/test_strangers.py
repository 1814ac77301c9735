"""Real sockets with keys and tokens: who is not known gets nothing, and is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.unit.wire.conftest import ANY_PORT, Nodes, Raw, echo, wait_until
from tests.unit.wire.pieces import STREAM, make_piece, many
from tests.unit.wire.test_client_socket import Ingest
from wukongs.errors import DataError, NodeUnavailable, SettingsError
from wukongs.live.header import Frame
from wukongs.live.pieces import Open
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.codec import ASK, to_frames
from wukongs.wire.keys import KeyPair, make_keys, read_key_pair
from wukongs.wire.link import IngestLink
from wukongs.wire.messages import to_frames as ingest_frames
from wukongs.wire.packets import Packet
from wukongs.wire.trust import ANY, Keys, Trust

TOKEN = "open-sesame-4711"
SECRET_ANSWER = "what only friends may read"


@dataclass
class Folder:
    """Keys of a node, of a friend on its list, and of a stranger; and a list of tokens."""

    path: Path

    def __post_init__(self) -> None:
        for name in ("node", "friend", "stranger"):
            make_keys(self.path / name)
        (self.path / "allowed").write_text((self.path / "friend" / "key.pub").read_text())
        (self.path / "tokens").write_text(f"{TOKEN}\n")

    def pair(self, name: str) -> KeyPair:
        return read_key_pair(self.path / name / "key.secret")

    def keys(self, name: str, node: str = "node") -> Keys:
        return Keys(self.pair(name), {ANY: self.pair(node).public})

    @property
    def keyed(self) -> Trust:
        return Trust(str(self.path / "node" / "key.secret"), str(self.path / "allowed"))

    @property
    def tokens(self) -> Trust:
        return Trust(tokens_file=str(self.path / "tokens"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("keys"))


def tell(packet: Packet) -> Packet:
    return Packet("told", {"text": SECRET_ANSWER})


@pytest.fixture
def keyed(folder: Folder) -> Iterator[ClientSocket]:
    socket = ClientSocket(ANY_PORT, {"tell": tell}, Ingest(), trust=folder.keyed)
    yield socket
    socket.close()


@pytest.fixture
def tokened(folder: Folder) -> Iterator[ClientSocket]:
    socket = ClientSocket(ANY_PORT, {"tell": tell}, Ingest(), trust=folder.tokens)
    yield socket
    socket.close()


def strangers(socket: ClientSocket) -> int:
    counts: Any = socket.stats()["refused"]
    return int(counts["stranger"])


def ask(socket: ClientSocket, timeout_s: float = 20, **trust: Any) -> Packet:
    channel = ClientChannel(socket.address, **trust)
    try:
        return channel.ask(Packet("tell"), timeout_s)
    finally:
        channel.close()


def test_a_friend_with_keys_is_answered(keyed: ClientSocket, folder: Folder) -> None:
    assert ask(keyed, keys=folder.keys("friend")).fields == {"text": SECRET_ANSWER}
    with IngestLink([keyed.address], keys=folder.keys("friend"), timeout_s=20) as link:
        link.open(STREAM, "part-0", 1)
        link.send(make_piece(many(5)))
        link.flush()
    assert strangers(keyed) == 0


def test_keys_that_are_let_in_change_while_a_socket_is_open(keyed: ClientSocket, folder: Folder) -> None:
    """A key that is gone is not heard any more, also over the connection that is there."""
    before = keyed.gate
    channel = ClientChannel(keyed.address, keys=folder.keys("friend"))
    try:
        assert channel.ask(Packet("tell"), 20).kind == "told"
        keyed.use(replace(before, allowed=frozenset((folder.pair("stranger").public,))))

        def is_counted() -> bool:
            with pytest.raises(NodeUnavailable):
                channel.ask(Packet("tell"), 0.4)
            return strangers(keyed) >= 1

        wait_until(is_counted, "it was counted")
        assert ask(keyed, keys=folder.keys("stranger")).kind == "told"
        with pytest.raises(NodeUnavailable):
            ask(keyed, 0.4, keys=folder.keys("friend"))
        keyed.use(before)
        assert channel.ask(Packet("tell"), 20).kind == "told"
    finally:
        channel.close()
    with pytest.raises(SettingsError, match="needs a restart"):
        keyed.use(replace(before, pair=folder.pair("stranger")))


@pytest.mark.parametrize("who", ["no key", "a key that is not on the list", "the wrong key of the node"])
def test_a_stranger_gets_nothing_and_is_counted(keyed: ClientSocket, folder: Folder, who: str) -> None:
    keys = {
        "no key": None,
        "a key that is not on the list": folder.keys("stranger"),
        "the wrong key of the node": folder.keys("friend", node="stranger"),
    }[who]

    def is_counted() -> bool:
        expected = r"cannot be reached within 0.4 s.*that each side knows the other's key"
        with pytest.raises(NodeUnavailable, match=expected):
            ask(keyed, 0.4, keys=keys)
        return strangers(keyed) >= 1

    wait_until(is_counted, "it was counted")
    assert keyed.stats()["messages_in"] == 0
    assert keyed.stats()["messages_out"] == 0
    assert ask(keyed, keys=folder.keys("friend")).kind == "told"


def test_a_public_key_without_its_secret_is_worth_nothing(keyed: ClientSocket, folder: Folder) -> None:
    claimed = KeyPair(folder.pair("friend").public, folder.pair("stranger").secret)

    def is_counted() -> bool:
        with pytest.raises(NodeUnavailable):
            ask(keyed, 0.4, keys=Keys(claimed, {ANY: folder.pair("node").public}))
        return strangers(keyed) >= 1

    wait_until(is_counted, "it was counted")


def test_plain_sockets_are_not_heard_by_one_with_keys(keyed: ClientSocket) -> None:
    """Nor is what they send kept until somebody with a key comes."""
    raw = Raw(keyed.address)
    for sequence in range(1, 50):
        with suppress(zmq.Again):  # it is refused by now, and has no connection any more
            raw.socket.send_multipart(to_frames(Packet("tell"), ASK, sequence, "stranger"), zmq.NOBLOCK)
    wait_until(lambda: strangers(keyed) >= 1, "it was counted")
    assert not raw.socket.poll(0)
    assert keyed.stats()["messages_in"] == 0
    raw.close()


def test_one_with_keys_does_not_talk_to_a_node_without(folder: Folder) -> None:
    """Else anybody at its address could have what clients send."""
    listening = zmq.Context.instance().socket(zmq.ROUTER)
    listening.setsockopt(zmq.LINGER, 0)
    port = listening.bind_to_random_port("tcp://127.0.0.1")
    channel = ClientChannel(f"tcp://127.0.0.1:{port}", keys=folder.keys("friend"))
    with pytest.raises(NodeUnavailable):
        channel.ask(Packet("tell"), 0.3)
    assert not listening.poll(0)
    channel.close()
    listening.close()


def test_who_names_a_token_is_answered(tokened: ClientSocket) -> None:
    assert ask(tokened, token=TOKEN).fields == {"text": SECRET_ANSWER}
    with IngestLink([tokened.address], token=TOKEN, timeout_s=20) as link:
        link.open(STREAM, "part-0", 1)
        link.send(make_piece(many(5)))
        link.flush()
    assert strangers(tokened) == 0


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], "open-sesame-4712", TOKEN + " "])
def test_who_names_none_or_another_one_learns_nothing(tokened: ClientSocket, token: str | None) -> None:
    with pytest.raises(DataError, match=r"^message: expected a token that this node knows. Ask for one who runs it"):
        ask(tokened, token=token)
    assert strangers(tokened) == 1
    with (
        pytest.raises(DataError, match="expected a token that this node knows"),
        IngestLink([tokened.address], token=token, timeout_s=20) as link,
    ):
        link.open(STREAM, "part-0", 1)
    assert strangers(tokened) == 2
    assert tokened.stats()["requests"] == 0


def test_a_stranger_learns_no_kinds_and_no_streams(tokened: ClientSocket) -> None:
    """Whatever it says that is a message at all, the answer is the same."""
    raw = Raw(tokened.address)
    said: list[list[Frame]] = [
        to_frames(Packet("tell"), ASK, 1, "me"),
        to_frames(Packet("unknown"), ASK, 2, "me"),
        [*to_frames(Packet("tell"), ASK, 3, "me"), b"one frame too many"],
        ingest_frames(Open(STREAM, "p", 1), 4),
    ]
    for number, frames in enumerate(said):
        raw.say(frames)
        answer = b"".join(raw.hear())
        assert b"expected a token that this node knows" in answer
        assert not any(word in answer for word in (b"unknown", b"frame", STREAM.encode(), SECRET_ANSWER.encode()))
        assert strangers(tokened) == number + 1
    raw.close()


def keyed_nodes(nodes: Nodes, folder: Path, listed: tuple[str, ...]) -> None:
    (folder / "allowed").write_text("".join((folder / name / "key.pub").read_text() for name in listed))
    for number in range(3):
        trust = Trust(str(folder / str(number) / "key.secret"), str(folder / "allowed"))
        nodes.start(number, {"echo": echo}, trust=trust)


def test_nodes_with_keys_know_each_other_and_nobody_else(nodes: Nodes, tmp_path: Path) -> None:
    public = {number: make_keys(tmp_path / str(number)) for number in range(3)}
    keyed_nodes(nodes, tmp_path, listed=("0", "1"))
    addresses = {network.me: network.address for network in nodes.all}
    for network in nodes.all:
        network.join(addresses, public)
    assert nodes.all[0].ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}
    assert nodes.all[1].ask([(0, Packet("echo", {"n": 2}))], 20)[0].fields == {"n": 2}
    wait_until(lambda: nodes.all[0].send(1, Packet("n")), "it is told")
    with pytest.raises(NodeUnavailable, match="cannot be reached"):
        nodes.all[2].ask([(1, Packet("echo"))], 0.4)
    assert not nodes.all[2].send(1, Packet("n"))
    wait_until(lambda: nodes.all[1].stats()["refused"]["stranger"] >= 1, "it was counted")  # type: ignore[index]


def test_a_node_that_is_let_in_later_is_heard(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.wire.network.RENEW_S", 0.1)
    public = {number: make_keys(tmp_path / str(number)) for number in range(3)}
    keyed_nodes(nodes, tmp_path, listed=("0", "1"))
    answering, asking = nodes.all[1:]
    asking.join({1: answering.address}, public)
    assert not asking.send(1, Packet("n"))
    wait_until(lambda: answering.stats()["refused"]["stranger"] >= 1, "it is refused")  # type: ignore[index]
    answering.close()
    (tmp_path / "allowed").write_text((tmp_path / "2" / "key.pub").read_text())
    trust = Trust(str(tmp_path / "1" / "key.secret"), str(tmp_path / "allowed"))
    again = nodes.start(1, {"echo": echo}, answering.address, boot=2, trust=trust)
    again.join({2: asking.address}, public)
    wait_until(lambda: asking.send(1, Packet("n")), "it is told")
    assert asking.ask([(1, Packet("echo", {"n": 1}))], 20)[0].fields == {"n": 1}


def test_a_node_with_another_key_than_the_one_that_is_known_is_not_talked_to(nodes: Nodes, tmp_path: Path) -> None:
    public = {number: make_keys(tmp_path / str(number)) for number in range(3)}
    keyed_nodes(nodes, tmp_path, listed=("0", "1", "2"))
    nodes.all[0].join({1: nodes.all[1].address}, {1: public[2]})
    with pytest.raises(NodeUnavailable, match="each side knows the other's key"):
        nodes.all[0].ask([(1, Packet("echo"))], 0.4)
    with pytest.raises(SettingsError, match="expected the node's public key of 40 characters, found none"):
        nodes.all[0].join({1: nodes.all[1].address, 2: nodes.all[2].address}, {1: public[1]})


def test_addresses_beyond_this_machine_need_keys_on_both_sides(folder: Folder, nodes: Nodes) -> None:
    far = "tcp://192.0.2.7:7411"
    expected = r"expected a loopback address such as tcp://127.0.0.1:7411, or keys on both sides"
    with pytest.raises(SettingsError, match=expected):
        ClientSocket(far, {})
    with pytest.raises(SettingsError, match=expected):
        ClientSocket(far, {}, trust=folder.tokens)
    with pytest.raises(SettingsError, match=expected):
        nodes.start(0, address=far)
    with pytest.raises(SettingsError, match=expected):
        ClientChannel(far, TOKEN)
    with pytest.raises(SettingsError, match=expected):
        IngestLink([far], token=TOKEN)
    with pytest.raises(SettingsError, match=expected):
        nodes.start(0).join({1: far})
    # With keys it is ZeroMQ that says no: the address is nobody's here.
    with pytest.raises(SettingsError, match=r"cannot be bound"):
        ClientSocket(far, {}, trust=folder.keyed)
    channel = ClientChannel(far, keys=folder.keys("friend"))
    channel.close()
