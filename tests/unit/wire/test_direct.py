"""Direct connections: over which nodes ask once they know each other, and what strangers can do at that port."""

from __future__ import annotations

import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.wire.conftest import ANY_PORT, Nodes, echo, refused, wait_until
from wukongs.errors import DataError, NodeUnavailable
from wukongs.live.header import Frame, MessageError
from wukongs.protocol.messages import Incarnation
from wukongs.wire import client_channel, client_socket, direct
from wukongs.wire.answering import Post, Reply
from wukongs.wire.asking import Question
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.codec import ANSWER, ASK, TELL, Sender, to_frames
from wukongs.wire.direct import DIRECT, DirectLine, DirectPort, Offer, _Answers, _Messages, offer_in
from wukongs.wire.keys import make_keys
from wukongs.wire.network import INTRODUCE, Network
from wukongs.wire.packets import Packet
from wukongs.wire.transport import Line
from wukongs.wire.trust import Trust, read_keys

MARK = b"a mark that is easy to find"
ASKER = Incarnation(0, 1, 1)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is given the time that a direct connection takes: else ZeroMQ would be the way."""
    monkeypatch.setattr(direct, "REACH_DIRECT_S", 20.0)
    monkeypatch.setattr(direct, "HANDSHAKE_S", 20.0)
    monkeypatch.setattr(client_channel, "OFFER_S", 20.0)


def marked() -> Packet:
    return Packet("echo", {}, {"mark": np.frombuffer(MARK, np.uint8)})


def offers(asker: Network) -> list[Offer]:
    return [peer.way.offer for peer in asker._peers.values() if peer.way.offer is not None]


def direct_lines(asker: Network) -> list[DirectLine]:
    return [
        line for pool in asker._askers for lines in pool._idle.values() for line in lines if type(line) is DirectLine
    ]


@pytest.fixture(params=["keys", "no keys"])
def pair(nodes: Nodes, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Network, Network]:
    """Node 0, which asks, and node 1, which answers `echo`."""
    trust, keys = None, None
    if request.param == "keys":
        public = make_keys(tmp_path)
        trust, keys = Trust(shared_key_file=str(tmp_path / "key.secret")), {0: public, 1: public}
    made = nodes.start(0, trust=trust), nodes.start(1, {"echo": echo}, trust=trust)
    for one in made:
        one.join({other.me: other.address for other in made}, keys)
    return made


class Between:
    """Something between two sides of a connection, which keeps what goes through it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.seen = bytearray()
        self.is_passing = threading.Event()
        self.is_passing.set()
        self._ends: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in self._ends:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                other = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [one, other]
                for ends in ((one, other), (other, one)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while some := one.recv(1 << 16):
                self.seen += some
                self.is_passing.wait()
                other.sendall(some)
            other.shutdown(socket.SHUT_WR)


@pytest.fixture
def between(pair: tuple[Network, Network]) -> Iterator[Between]:
    """Between node 0, which does not notice, and the direct port of node 1."""
    asker, _ = pair
    asker.ask([(1, marked())], 20)
    (offer,) = offers(asker)
    made = Between(offer.port)
    for line in direct_lines(asker):
        line.close()
    for pool in asker._askers:
        pool.keep_only(set())
    asker._peers[1].way.offer = offer._replace(port=made.port)
    yield made
    made.close()


def test_a_node_asks_directly_once_it_is_let_in(pair: tuple[Network, Network]) -> None:
    asker, answering = pair
    for number in range(3):
        (answer,) = asker.ask([(1, Packet("echo", {"number": number}))], 20)
        assert answer.fields == {"number": number}
    assert len(direct_lines(asker)) == 1
    assert answering.stats()["introductions"] == 1
    assert len(answering._direct._connections) == 1


def test_with_keys_nothing_of_it_can_be_read_on_the_way(pair: tuple[Network, Network], between: Between) -> None:
    asker, _ = pair
    (answer,) = asker.ask([(1, marked())], 20)
    assert bytes(answer.arrays["mark"]) == MARK
    assert len(between.seen) > 2 * len(MARK)
    assert (MARK in between.seen) == (asker.gate.pair is None)


def test_another_one_at_the_port_is_not_asked(tmp_path: Path) -> None:
    answered: list[Sender] = []

    def answer(sender: Sender, frames: list[Frame], post: Post) -> None:
        answered.append(sender)
        post(frames)

    ports = [DirectPort("127.0.0.1", True, lambda life: True, answer, lambda error: None, "test") for _ in range(2)]
    for port in ports:
        port.start()
    one, other = (offer_in(Packet(INTRODUCE, port.offer(ASKER)), "tcp://127.0.0.1:1") for port in ports)
    assert one is not None
    assert other is not None
    with pytest.raises(NodeUnavailable, match="certificate verify failed"):
        DirectLine(one._replace(port=other.port, secret=other.secret), ASKER, lambda: True)
    with pytest.raises(NodeUnavailable, match="does not take what it has offered"):
        DirectLine(one._replace(secret=other.secret), ASKER, lambda: True)
    with pytest.raises(NodeUnavailable, match="does not take what it has offered"):
        DirectLine(one, Incarnation(0, 1, 2), lambda: True)  # the secret is of one life
    line = DirectLine(one, ASKER, lambda: True)
    line.close()
    assert answered == []
    for port in ports:
        port.close()
        port.close()


def test_a_certificate_is_read_once_for_all_connections_to_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = list[str]()
    load = ssl.SSLContext.load_verify_locations

    def note(context: ssl.SSLContext, *, cadata: str) -> None:
        read.append(cadata)
        load(context, cadata=cadata)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", note)
    for _ in range(2):
        port = DirectPort("127.0.0.1", True, lambda sender: True, lambda *_: None, print, "test")
        port.start()
        offer = offer_in(Packet(DIRECT, port.offer("a client")), "tcp://127.0.0.1:1")
        assert offer is not None
        lines = [DirectLine(offer, "a client", lambda: True) for _ in range(3)]
        for line in lines:
            line.close()
        port.close()
        assert read.count(str(offer.certificate)) == 1
    assert len(read) == 2


def test_a_life_that_is_not_let_in_has_no_use_of_a_secret(pair: tuple[Network, Network]) -> None:
    asker, answering = pair
    asker.ask([(1, marked())], 20)
    (offer,) = offers(asker)
    stranger = Incarnation(7, 1, 1)
    secret = answering._direct._secret_of(stranger)
    with pytest.raises(NodeUnavailable, match="does not take what it has offered"):
        DirectLine(offer._replace(secret=secret), stranger, lambda: True)


def test_a_line_of_an_earlier_life_is_not_answered(pair: tuple[Network, Network]) -> None:
    asker, answering = pair
    asker.ask([(1, marked())], 20)
    answering._replays.let_in(Incarnation(0, 1, 2))
    with pytest.raises(NodeUnavailable, match="started anew"):
        asker.ask([(1, marked())], 20)
    assert refused(answering, "stranger") == 2


def test_what_cannot_be_reached_directly_is_asked_over_zeromq(
    pair: tuple[Network, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "OFFERED_AGAIN_S", 600.0)
    asker, answering = pair
    way = asker._peers[1].way
    wait_until(lambda: asker.is_connected(1), "an offer can be asked for")
    answering._direct.close()
    before, began_s = answering.stats()["introductions"], time.monotonic()
    for round_ in (1, 2):
        for _ in range(3):
            assert asker.ask([(1, marked())], 20)[0].kind == "echo"
        assert direct_lines(asker) == []
        assert answering.stats()["introductions"] == before + round_
        assert way.failures == round_
        again_s = way._offered_again_s - round_ * direct.OFFERED_AGAIN_S  # twice as long each time
        assert began_s <= again_s <= time.monotonic()
        way._offered_again_s = time.monotonic()  # as if that time had passed


@pytest.mark.parametrize("is_there", [True, False])
def test_an_offer_that_is_gone_when_it_is_needed_is_of_no_harm(pair: tuple[Network, Network], is_there: bool) -> None:
    asker, answering = pair
    asker.ask([(1, marked())], 20)
    for pool in asker._askers:
        pool.keep_only(set())
    if not is_there:
        answering._direct.close()
    question = asker._question(1, marked(), [])
    asker._peers[1].way.offer = None
    assert question.address.startswith("direct://")
    assert asker._askers[0].ask([question], 20)[0].kind == "echo"
    assert asker._peers[1].way.failures == 0


def test_a_port_that_takes_connections_and_says_nothing_holds_up_one_question_shortly(
    pair: tuple[Network, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "OFFERED_AGAIN_S", 600.0)
    asker, _ = pair
    asker.ask([(1, marked())], 20)
    monkeypatch.setattr(direct, "REACH_DIRECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        for pool in asker._askers:
            pool.keep_only(set())
        (offer,) = offers(asker)
        asker._peers[1].way.offer = offer._replace(port=mute.getsockname()[1])
        began = time.monotonic()
        assert asker.ask([(1, marked())], 60)[0].kind == "echo"
        assert asker.ask([(1, marked())], 60)[0].kind == "echo"
        assert time.monotonic() - began < 20
    assert asker._peers[1].way.failures == 1


@pytest.mark.parametrize("answers", [None, [b"noise"], to_frames(Packet("echo"), ANSWER, 1)])
def test_another_program_at_the_port_is_not_asked_if_it_answers(answers: list[Frame] | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            one, _ = listening.accept()
            with one, suppress(OSError):
                while some := one.recv(1 << 16):
                    one.sendall(some if answers is None else framed(answers))

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(NodeUnavailable, match="does not take what it has offered"):
            DirectLine(Offer("127.0.0.1", listening.getsockname()[1], SECRET, None), ASKER, lambda: True)


def test_who_gives_an_answer_does_not_wait_for_one_who_does_not_read() -> None:
    one, other = socket.socketpair()
    one.settimeout(0.01)
    with suppress(TimeoutError):
        _Messages(one).write([bytes(1 << 24)])
    one.settimeout(20)
    answers = _Answers(_Messages(one))
    giving = threading.Thread(target=answers.take, args=([b"short"],), daemon=True)
    giving.start()
    giving.join(20)
    assert not giving.is_alive()
    waiting = threading.Thread(target=answers.wait, daemon=True)
    waiting.start()
    other.settimeout(20)
    got = bytearray()
    while not got.endswith(framed([b"short"])):
        some = other.recv(1 << 20)
        assert some, "the answer does not come"
        got += some
    waiting.join(20)
    assert not waiting.is_alive()
    one.close()
    other.close()


def test_long_messages_go_over_in_pieces_both_ways(pair: tuple[Network, Network], between: Between) -> None:
    asker, _ = pair
    long = np.random.default_rng(1).integers(0, 1 << 60, 1 << 20)
    packet = Packet("echo", {"text": "x" * 70_000}, {"none": long[:0], "long": long, "few": long[:3]})
    asker.ask([(1, marked())], 20)
    between.is_passing.clear()  # the other side takes only what fits into the system's buffers
    threading.Timer(0.3, between.is_passing.set).start()
    (answer,) = asker.ask([(1, packet)], 20)
    assert answer.fields == packet.fields
    assert {name: array.tolist() for name, array in answer.arrays.items()} == {
        name: array.tolist() for name, array in packet.arrays.items()
    }
    assert len(direct_lines(asker)) == 1


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_answer_that_comes_byte_by_byte_is_waited_for_until_the_deadline_only(is_closed: bool) -> None:
    answering = ClientSocket(ANY_PORT, {"echo": echo})
    channel = ClientChannel(answering.address)
    for _ in range(2):
        channel.ask(marked(), 20)
    (line,) = lines_of(channel)
    one, other = socket.socketpair()
    one.settimeout(0.05)
    line._messages.connection.close()
    line._messages, line.pollable = _Messages(one), one.fileno()

    def trickle() -> None:
        with suppress(OSError):
            other.recv(1 << 16)
            for byte in framed([bytes(3000)]):
                other.send(bytes([byte]))
                time.sleep(0.02)

    threading.Thread(target=trickle, daemon=True).start()
    if is_closed:
        threading.Timer(0.3, channel.close).start()
    began = time.monotonic()
    with pytest.raises(NodeUnavailable, match="closed" if is_closed else "no answer within"):
        channel.ask(marked(), 60 if is_closed else 0.3)
    assert time.monotonic() - began < 15
    other.close()
    channel.close()
    answering.close()


def test_a_question_that_is_taken_bit_by_bit_is_sent_until_a_given_time_only() -> None:
    one, other = socket.socketpair()
    one.settimeout(0.05)

    def take() -> None:
        while other.recv(1 << 16):
            time.sleep(0.02)

    threading.Thread(target=take, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        _Messages(one).write([bytes(1 << 27)], began + 0.2)
    assert time.monotonic() - began < 20
    one.close()


def test_a_connection_that_ends_under_a_question_is_named_and_the_next_one_is_new(
    pair: tuple[Network, Network], between: Between
) -> None:
    asker, _ = pair
    failed: list[NodeUnavailable] = []

    def ask() -> None:
        with suppress(NodeUnavailable):
            asker.ask([(1, marked())], 20)
            return
        failed.append(NodeUnavailable("lost"))

    asking = threading.Thread(target=ask)
    asker.ask([(1, marked())], 20)
    between.is_passing.clear()
    before = len(between.seen)
    asking.start()
    wait_until(lambda: len(between.seen) > before, "the question is under way")
    between.close()
    between.is_passing.set()
    asking.join(20)
    assert len(failed) == 1
    assert asker.ask([(1, marked())], 20)[0].kind == "echo"  # over ZeroMQ, since nobody is at that port


def test_a_node_that_is_not_heard_over_zeromq_is_not_waited_for(
    pair: tuple[Network, Network], between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, _ = pair
    asker.ask([(1, marked())], 20)
    monkeypatch.setattr(direct, "UNHEARD_S", 0.2)
    between.is_passing.clear()
    monkeypatch.setattr(asker, "is_connected", lambda node: False)
    for line in direct_lines(asker):
        line._is_heard = lambda: False
    began = time.monotonic()
    with pytest.raises(NodeUnavailable, match="the connection was lost before the answer came"):
        asker.ask([(1, marked())], 20)
    assert time.monotonic() - began < 10
    between.is_passing.set()


def test_an_idle_line_that_the_other_side_has_ended_is_not_used(pair: tuple[Network, Network]) -> None:
    asker, answering = pair
    asker.ask([(1, marked())], 20)
    (line,) = direct_lines(asker)
    with answering._direct._lock:
        answering._direct._end_all()
    wait_until(lambda: not line.is_connected(), "it is known that the line has ended")
    assert asker.ask([(1, marked())], 20)[0].kind == "echo"
    assert len(direct_lines(asker)) == 1
    assert direct_lines(asker) != [line]


def test_an_idle_line_is_given_up_before_the_other_side_does(
    pair: tuple[Network, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, _ = pair
    asker.ask([(1, marked())], 20)
    (line,) = direct_lines(asker)
    assert line.is_connected()
    monkeypatch.setattr(direct, "IDLE_S", 0.0)
    assert not line.is_connected()


def test_the_other_side_lets_go_of_an_idle_connection(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    asker, answering = nodes.start(0), nodes.start(1, {"echo": echo})
    nodes.join(asker, answering)
    asker.ask([(1, marked())], 20)
    assert len(answering._direct._connections) == 1
    monkeypatch.setattr(direct, "IDLE_S", 0.2)
    line = DirectLine(offers(asker)[0], ASKER, lambda: True)  # one more, which is taken: it is idle from now on
    wait_until(lambda: len(answering._direct._connections) == 1, "the connection is let go of")
    assert line._messages.has_news(20_000)
    line.close()


def test_a_key_that_is_taken_off_the_list_ends_the_connections(nodes: Nodes, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(2)]
    public = [make_keys(folder) for folder in folders]
    allowed = tmp_path / "allowed"
    allowed.write_text("".join(f"{key}\n" for key in public))
    trusts = [Trust(str(folder / "key.secret"), str(allowed)) for folder in folders]
    asker, answering = nodes.start(0, trust=trusts[0]), nodes.start(1, {"echo": echo}, trust=trusts[1])
    for one in (asker, answering):
        one.join({0: asker.address, 1: answering.address}, dict(enumerate(public)))
    asker.ask([(1, marked())], 20)
    (line,) = direct_lines(asker)
    answering.use(trusts[1].read())  # nothing has changed
    assert line.is_connected()
    allowed.write_text(f"{public[1]}\n")
    answering.use(trusts[1].read())
    wait_until(lambda: not line.is_connected(), "the connection is ended")
    with pytest.raises(NodeUnavailable):
        asker.ask([(1, marked())], 1)
    allowed.write_text("".join(f"{key}\n" for key in public))
    answering.use(trusts[1].read())
    assert asker.ask([(1, marked())], 20)[0].kind == "echo"


# --- strangers at the port --------------------------------------------------------------------------------------------


def framed(frames: Sequence[Frame]) -> bytes:
    sizes = [len(frame) for frame in frames]
    return struct.pack(f"<II{len(sizes)}I", 4 + 4 * len(sizes) + sum(sizes), len(sizes), *sizes) + b"".join(frames)


def is_ended(connection: socket.socket) -> bool:
    """Tell whether the other side ends a connection, within ten seconds."""
    connection.settimeout(10)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.fixture
def open_port(nodes: Nodes) -> tuple[Network, Network, int]:
    """Two nodes without keys, and the direct port of the second."""
    asker, answering = nodes.start(0), nodes.start(1, {"echo": echo})
    nodes.join(asker, answering)
    asker.ask([(1, marked())], 20)
    return asker, answering, offers(asker)[0].port


SECRET = "0" * 64
STRANGE = {
    "noise": bytes(range(256)),
    "a web browser": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "an endless message": struct.pack("<I", (1 << 32) - 1),
    "a message of nothing": struct.pack("<I", 0),
    "a message that is too short": struct.pack("<II", 4, 3),
    "frames that are longer": struct.pack("<III", 8, 1, 1 << 31),
    "no frame": struct.pack("<II", 4, 0),
    "no header": framed([b"{}"]),
    "no secret": framed(to_frames(Packet(DIRECT), ASK, 1, ASKER)),
    "a wrong secret": framed(to_frames(Packet(DIRECT), ASK, 1, ASKER, SECRET)),
    "a secret of half a character": framed(to_frames(Packet(DIRECT), ASK, 1, ASKER, SECRET)).replace(
        SECRET.encode(), b"\\ud800" + SECRET.encode()[6:]
    ),
    "a client": framed(to_frames(Packet(DIRECT), ASK, 1, "somebody", SECRET)),
    "a question at once": framed(to_frames(marked(), ASK, 1, ASKER)),
    "much before the secret": framed([bytes(8192)]),
}


@pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)
def test_who_does_not_say_the_secret_is_shut(open_port: tuple[Network, Network, int], said: bytes) -> None:
    asker, answering, port = open_port
    before = answering.stats()["requests"]
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(said)
        assert is_ended(stranger)
    assert answering.stats()["requests"] == before
    assert asker.ask([(1, marked())], 20)[0].kind == "echo"
    wait_until(lambda: len(answering._direct._connections) == 1, "nothing is left of the stranger")


def test_who_says_nothing_is_shut_and_keeps_no_place(
    open_port: tuple[Network, Network, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "HANDSHAKE_S", 0.5)
    monkeypatch.setattr(direct, "UNPROVEN_MAX", 3)
    asker, answering, port = open_port
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
    began = time.monotonic()
    assert all(map(is_ended, strangers))
    assert time.monotonic() - began < 15
    for stranger in strangers:
        stranger.close()
    wait_until(lambda: len(answering._direct._connections) == 1, "nothing is left of the strangers")
    for pool in asker._askers:
        pool.keep_only(set())
    monkeypatch.setattr(direct, "HANDSHAKE_S", 20.0)
    assert asker.ask([(1, marked())], 20)[0].kind == "echo"
    assert len(direct_lines(asker)) == 1


def test_who_says_its_first_message_byte_by_byte_is_shut_in_the_same_time(
    open_port: tuple[Network, Network, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "HANDSHAKE_S", 0.3)
    _, answering, port = open_port
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as stranger, suppress(OSError):
        for byte in framed([bytes(200)]):
            stranger.sendall(bytes([byte]))
            time.sleep(0.1)
    assert time.monotonic() - began < 10
    wait_until(lambda: len(answering._direct._connections) == 1, "nothing is left of the stranger")


def test_one_node_has_a_bounded_number_of_connections(
    open_port: tuple[Network, Network, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "CONNECTIONS_MAX", 3)
    asker, _, _ = open_port
    (offer,) = offers(asker)
    lines = [DirectLine(offer, ASKER, lambda: True) for _ in range(2)]  # beside the one that is there
    with pytest.raises(NodeUnavailable, match="does not take what it has offered"):
        DirectLine(offer, ASKER, lambda: True)
    for line in lines:
        line.close()


def test_a_port_has_a_bounded_number_of_connections_and_others_ask_over_zeromq() -> None:
    answering = ClientSocket(ANY_PORT, {"echo": echo})
    answering._direct._connections_max = 2
    channels = [ClientChannel(answering.address) for _ in range(3)]
    for channel in channels * 2:
        assert channel.ask(marked(), 20).kind == "echo"
    assert [len(lines_of(channel)) for channel in channels] == [1, 1, 0]
    for channel in channels:
        channel.close()
    answering.close()


@pytest.mark.parametrize(
    "frames",
    [
        to_frames(marked(), TELL, 7, ASKER),
        to_frames(marked(), ASK, 7, Incarnation(2, 1, 1)),
        to_frames(marked(), ASK, 7, "somebody"),
    ],
    ids=["a tell", "another node", "a client"],
)
def test_who_says_anything_but_its_own_questions_is_shut(
    open_port: tuple[Network, Network, int], frames: list[Frame]
) -> None:
    asker, answering, _ = open_port
    (line,) = direct_lines(asker)
    assert line.send(frames)
    wait_until(lambda: line.receive(time.monotonic() + 1) is None and not line.is_connected(), "it is shut")
    assert refused(answering, "malformed") == 1
    assert asker.ask([(1, marked())], 20)[0].kind == "echo"


def test_a_message_takes_no_memory_before_it_comes() -> None:
    one, other = socket.socketpair()
    other.settimeout(0.05)
    receiving = _Messages(other)
    one.sendall(struct.pack("<I", 1 << 30) + bytes(200_000))
    with pytest.raises(TimeoutError):
        receiving.read(1 << 30)
    assert len(receiving._into) < 1_000_000
    one.close()
    other.close()


@pytest.mark.parametrize("seed", range(5))
def test_damaged_messages_of_a_node_end_no_more_than_its_connection(
    open_port: tuple[Network, Network, int], seed: int
) -> None:
    asker, answering, _ = open_port
    draw = random.Random(seed)
    right = framed(to_frames(marked(), ASK, 7, ASKER))
    for _ in range(20):
        line = DirectLine(offers(asker)[0], ASKER, lambda: True)
        damaged = bytearray(right)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        with suppress(OSError):
            line._messages.connection.sendall(damaged[: draw.randint(1, len(damaged))])
        line._messages.connection.settimeout(0.05)
        with suppress(OSError, EOFError, MessageError):
            line._messages.read(1 << 20)
        line.close()
    assert asker.ask([(1, marked())], 20)[0].kind == "echo"
    wait_until(lambda: len(answering._direct._connections) == 1, "nothing is left of them")


# --- clients ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file with two tokens that are let in."""
    file = tmp_path / "tokens"
    file.write_text("a-token-of-somebody\na-token-of-another-one\n")
    return file


def lines_of(channel: ClientChannel) -> list[DirectLine]:
    return [line for lines in channel._asker._idle.values() for line in lines if isinstance(line, DirectLine)]


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_client_asks_directly_from_its_second_question_on(tmp_path: Path, has_keys: bool) -> None:
    trust, keys = None, None
    if has_keys:
        make_keys(tmp_path)
        secret, public = str(tmp_path / "key.secret"), str(tmp_path / "key.pub")
        trust, keys = Trust(secret, public), read_keys(secret, public)
    answering = ClientSocket(ANY_PORT, {"echo": echo}, trust=trust)
    channel = ClientChannel(answering.address, keys=keys)
    assert channel.ask(marked(), 20).kind == "echo"
    assert lines_of(channel) == []
    for number in range(3):
        assert channel.ask(Packet("echo", {"n": number}, marked().arrays), 20).fields == {"n": number}
    assert len(lines_of(channel)) == 1
    assert answering.stats()["requests"] == 4
    channel.close()
    wait_until(lambda: not answering._direct._connections, "the connections are closed")
    answering.close()


def test_a_client_of_an_earlier_version_of_nodes_asks_over_zeromq(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = ClientSocket(ANY_PORT, {"echo": echo})
    monkeypatch.setattr(client_socket, "DIRECT", "never asked for")
    channel = ClientChannel(answering.address)
    for number in range(3):
        assert channel.ask(Packet("echo", {"n": number}), 20).fields == {"n": number}
    assert lines_of(channel) == []
    assert answering.stats()["refused"]["unknown kind"] == 1
    channel.close()
    answering.close()


def test_a_client_finds_a_node_again_that_was_started_anew() -> None:
    answering = ClientSocket(ANY_PORT, {"echo": echo})
    channel = ClientChannel(answering.address)
    for _ in range(2):
        channel.ask(marked(), 20)
    answering.close()
    again = ClientSocket(answering.address, {"echo": echo})
    for _ in range(2):
        assert channel.ask(marked(), 20).kind == "echo"
    channel.close()
    again.close()


def test_a_client_does_not_wait_for_a_node_that_is_not_heard_over_zeromq(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def wait(packet: Packet) -> Packet:
        begun.set()
        go_on.wait(20)
        return packet

    answering = ClientSocket(ANY_PORT, {"echo": echo, "wait": wait})
    channel = ClientChannel(answering.address)
    for _ in range(2):
        channel.ask(marked(), 20)
    wait_until(channel._is_heard, "the node is heard")
    monkeypatch.setattr(direct, "UNHEARD_S", 0.2)
    failed: list[NodeUnavailable] = []

    def ask() -> None:
        try:
            channel.ask(Packet("wait"), 20)
        except NodeUnavailable as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(20)
    asking.join(1)
    assert asking.is_alive()  # however long it takes, while the node is heard
    answering._socket.close()
    asking.join(15)
    assert [str(error).partition(": ")[2][:24] for error in failed] == ["the connection was lost "]
    go_on.set()
    channel.close()
    answering.close()


def test_asking_for_an_offer_takes_of_the_time_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, times = threading.Event(), list[tuple[float, float]]()
    answering = ClientSocket(ANY_PORT, {"echo": echo})
    channel = ClientChannel(answering.address)
    channel.ask(marked(), 20)
    ask = channel._asker.ask

    def noted(questions: Any, timeout_s: float, *, begun_s: float) -> list[Packet]:
        times.append((begun_s, timeout_s))
        return ask(questions, timeout_s, begun_s=begun_s)

    monkeypatch.setattr(channel._asker, "ask", noted)
    answering._socket.call(partial(wait_until, go_on.is_set, "it goes on"))
    with pytest.raises(NodeUnavailable):
        channel.ask(marked(), 2)
    (begun_s, _), _ = times
    assert times == [(begun_s, 1.0), (begun_s, 2)], "both count from the begin of the question"
    go_on.set()
    channel.close()
    answering.close()


def test_a_port_that_fails_again_and_again_leaves_no_connections_behind(
    pair: tuple[Network, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "OFFERED_AGAIN_S", 0.0)
    asker, answering = pair
    wait_until(lambda: asker.is_connected(1), "an offer can be asked for")
    answering._direct.close()
    for _ in range(8):
        assert asker.ask([(1, marked())], 20)[0].kind == "echo"
    assert asker._peers[1].way.failures >= 4
    assert max(len(lines) for pool in asker._askers for lines in pool._idle.values()) == 1


def test_nothing_is_kept_of_the_connections_to_a_node_that_was_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "OFFERED_AGAIN_S", 0.0)
    answering = ClientSocket(ANY_PORT, {"echo": echo})
    channel = ClientChannel(answering.address)
    for _ in range(4):
        for _ in range(4):
            channel.ask(marked(), 20)
        assert len(lines_of(channel)) == 1
        waiting = [channel._asker._borrow(channel_question(channel)) for _ in range(3)]
        for line in waiting:
            channel._asker._give_back(channel_question(channel), line, True)
        assert len(lines_of(channel)) == 3
        answering.close()
        answering = ClientSocket(answering.address, {"echo": echo})
    for _ in range(4):
        channel.ask(marked(), 20)
    assert len(lines_of(channel)) == 1
    assert len(channel._asker._idle) <= 2
    channel.close()
    answering.close()


def channel_question(channel: ClientChannel) -> Question:
    offer = channel._way.offer
    assert offer is not None
    connect = partial(channel._way.connect, offer, partial(Line, channel.address, channel._keys))
    return Question(channel.address, offer.address, connect, 1, [])


@pytest.mark.parametrize("is_direct", [False, True])
def test_a_request_that_is_under_way_is_answered_before_the_node_is_closed(
    monkeypatch: pytest.MonkeyPatch, is_direct: bool
) -> None:
    monkeypatch.setattr(client_socket, "CLOSE_TIMEOUT_S", 20.0)
    go_on, begun = threading.Event(), threading.Event()

    def wait(packet: Packet) -> Packet:
        begun.set()
        go_on.wait(20)
        return packet

    answering = ClientSocket(ANY_PORT, {"echo": echo, "wait": wait})
    channel = ClientChannel(answering.address)
    for _ in range(2 * is_direct):
        channel.ask(marked(), 20)
    assert len(lines_of(channel)) == is_direct
    answers: list[Packet] = []
    asking = threading.Thread(target=lambda: answers.append(channel.ask(Packet("wait"), 20)))
    if not is_direct:
        channel._is_offered = True
    stayed = list[float]()

    def stay(seconds: float) -> None:
        stayed.append(seconds)
        asking.join(20)  # the client takes its answer in this time, however busy the machine is

    monkeypatch.setattr(client_socket, "time", SimpleNamespace(sleep=stay))
    asking.start()
    assert begun.wait(20)
    closing = threading.Thread(target=answering.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(20)
    asking.join(20)
    assert [answer.kind for answer in answers] == ["wait"]
    assert stayed == [client_socket.LAST_ANSWERS_S]
    channel.close()


def test_a_token_that_is_not_known_any_more_is_of_no_use_over_a_direct_connection(tokens: Path) -> None:
    answering = ClientSocket(ANY_PORT, {"echo": echo}, trust=Trust(tokens_file=str(tokens)))
    channel = ClientChannel(answering.address, "a-token-of-somebody")
    for _ in range(2):
        channel.ask(marked(), 20)
    tokens.write_text("a-token-of-another-one\n")
    answering.use(Trust(tokens_file=str(tokens)).read())
    with pytest.raises(DataError, match="expected a token that this node knows"):
        channel.ask(marked(), 20)
    assert answering.stats()["refused"]["stranger"] == 1
    channel.close()
    answering.close()


def test_the_requests_of_a_client_are_bounded_however_it_asks() -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def wait(packet: Packet) -> Packet:
        begun.release()
        go_on.wait(20)
        return packet

    answering = ClientSocket(ANY_PORT, {"echo": echo, "wait": wait}, per_client_max=2)
    channel = ClientChannel(answering.address)
    channel.ask(marked(), 20)
    waiting = [threading.Thread(target=channel.ask, args=(Packet("wait"), 20)) for _ in range(2)]
    for one in waiting:
        one.start()
    for _ in waiting:
        assert begun.acquire(timeout=20)
    with pytest.raises(NodeUnavailable, match="2 requests of this client are under way"):
        channel.ask(marked(), 20)
    go_on.set()
    for one in waiting:
        one.join(20)
    assert channel.ask(marked(), 20).kind == "echo"
    channel.close()
    answering.close()


@pytest.mark.parametrize("size", [10, 1 << 14, 1 << 20])
def test_an_answer_that_another_thread_gives_is_sent_whatever_its_size(size: int) -> None:
    def quick(packet: Packet, reply: Reply) -> bool:
        threading.Timer(0.02, reply, (Packet("echo", {}, {"long": np.arange(size)}),)).start()
        return True

    answering = ClientSocket(ANY_PORT, {"echo": echo}, quick={"echo": quick})
    channel = ClientChannel(answering.address)
    for _ in range(4):
        assert len(channel.ask(Packet("echo"), 20).arrays["long"]) == size
    assert len(lines_of(channel)) == 1
    channel.close()
    answering.close()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (to_frames(marked(), TELL, 7, "somebody"), "malformed"),
        (to_frames(marked(), ASK, 7, "another"), "malformed"),
        (to_frames(marked(), ASK, 7, ASKER), "malformed"),
        ([b"{}"], "malformed"),
        ([b'{"wukongs":1,"way":"ask","kind":"echo","seq":7,"from":"somebody"}'], "wrong version"),
    ],
)
def test_what_is_no_question_of_the_client_is_refused(frames: list[Frame], reason: str) -> None:
    answering = ClientSocket(ANY_PORT, {"echo": echo})
    offer = offer_in(Packet("", answering._direct.offer("somebody")), answering.address)
    assert offer is not None
    line = DirectLine(offer, "somebody", lambda: True)
    assert line.send(frames)
    wait_until(lambda: refused(answering, reason) == 1, "it is refused")
    assert answering.stats()["requests"] == 0
    line.close()
    answering.close()


@pytest.mark.parametrize(
    "told",
    [
        None,
        "x",
        {},
        {"port": "1", "secret": "x", "certificate": None},
        {"port": 1, "secret": 2, "certificate": None},
        {"port": 1, "secret": "x", "certificate": "\u00e9"},
    ],
)
def test_an_offer_that_is_none_is_not_taken(told: object) -> None:
    assert offer_in(Packet(INTRODUCE, {DIRECT: told}), "tcp://127.0.0.1:1") is None
    assert offer_in(Packet(INTRODUCE), "tcp://127.0.0.1:1") is None


def test_an_offer_is_for_the_host_at_which_the_node_is_reached() -> None:
    told = {"port": 7, "secret": "x", "certificate": None}
    hosts = {
        "tcp://127.0.0.1:7411": "127.0.0.1",
        "tcp://[::1]:7411": "::1",
        "tcp://node-1.example:7411": "node-1.example",
    }
    for address, host in hosts.items():
        offer = offer_in(Packet(INTRODUCE, {DIRECT: told}), address)
        assert offer is not None
        assert (offer.host, offer.port) == (host, 7)


@pytest.mark.parametrize("seed", range(20))
def test_messages_come_as_they_were_sent_however_they_are_cut(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([0, 1, draw.randrange(300), draw.randrange(200_000)]) for _ in range(draw.randint(1, 9))]
    frames = [draw.randbytes(size) for size in sizes]
    one, other = socket.socketpair()
    one.settimeout(0.01)
    other.settimeout(0.01)
    sending, receiving = _Messages(one), _Messages(other)
    is_sent, read = False, None
    while read is None:
        if not is_sent:
            with suppress(TimeoutError):
                sending.write(frames)
                is_sent = True
        with suppress(TimeoutError):
            read = receiving.read(1 << 30)
    assert [bytes(frame) for frame in read] == frames
    one.close()
    other.close()
