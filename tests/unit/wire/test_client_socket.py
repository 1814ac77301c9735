"""The address for clients and pipelines: packets and streams at one socket, and nobody holds another one back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tests.unit.wire.conftest import ANY_PORT, Raw, echo, wait_until
from tests.unit.wire.pieces import STREAM, make_piece, many
from wukongs.errors import DataError, NodeUnavailable, QuerySyntaxError, SettingsError
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.wire import ingesting
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.codec import ASK, TELL, read_packet_header, to_frames
from wukongs.wire.link import IngestLink
from wukongs.wire.messages import Opened, Refused, from_frames
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import error_in


class Ingest:
    """Takes everything; pieces only while it may."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.pieces: list[int] = []

    def open_partition(self, message: Open, /) -> Opened:
        return Opened(100, None, True, 0, 62)

    def inject(self, piece: Piece, /) -> None:
        assert self.may_go_on.wait(20)
        self.pieces.append(len(piece.encoded))

    def close_batches(self, message: Close, /) -> None: ...

    def finish_partition(self, message: Finish, /) -> None: ...


class Waiting:
    """A handler that answers when it is let go."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.asked = 0

    def __call__(self, packet: Packet) -> Packet:
        self.asked += 1
        assert self.may_go_on.wait(20)
        return Packet("waited")


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    handler = Waiting()
    yield handler
    handler.may_go_on.set()


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    handler = Ingest()
    yield handler
    handler.may_go_on.set()


def fail(packet: Packet) -> Packet:
    raise QuerySyntaxError("a variable", "'}'", 3, 9, "q.rq", "  }\n  ^", "close it")


@pytest.fixture
def socket(waiting: Waiting, ingest: Ingest) -> Iterator[ClientSocket]:
    handlers = {"echo": echo, "wait": waiting, "fail": fail}
    one = ClientSocket(ANY_PORT, handlers, ingest, per_client_max=3, requests_max=5)
    yield one
    waiting.may_go_on.set()
    ingest.may_go_on.set()
    one.close()


@pytest.fixture
def channel(socket: ClientSocket) -> Iterator[ClientChannel]:
    one = ClientChannel(socket.address)
    yield one
    one.close()


def refused(socket: ClientSocket, reason: str) -> int:
    counts: Any = socket.stats()["refused"]
    return int(counts[reason])


class Asking:
    """Asks in a thread; keeps the answer, or the error."""

    def __init__(self, channel: ClientChannel, packet: Packet) -> None:
        self.answer: Packet | Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(channel, packet))
        self._thread.start()

    def _run(self, channel: ClientChannel, packet: Packet) -> None:
        try:
            self.answer = channel.ask(packet, 20)
        except Exception as error:
            self.answer = error

    def join(self) -> Packet | Exception | None:
        self._thread.join(20)
        return self.answer


def test_a_client_asks_and_errors_cross_over_with_their_place(channel: ClientChannel) -> None:
    answer = channel.ask(Packet("echo", {"text": "ä"}, {"ids": np.arange(5)}), 20)
    assert (answer.fields, answer.arrays["ids"].tolist()) == ({"text": "ä"}, [0, 1, 2, 3, 4])
    with pytest.raises(QuerySyntaxError) as caught:
        channel.ask(Packet("fail"), 20)
    assert (caught.value.line, caught.value.column, caught.value.source) == (3, 9, "q.rq")
    assert caught.value.suggestion == "close it"
    with pytest.raises(DataError, match="no requests of kind 'eval' are answered here"):
        channel.ask(Packet("eval"), 20)


def test_one_who_waits_holds_nobody_back(channel: ClientChannel, socket: ClientSocket, waiting: Waiting) -> None:
    polls = [Asking(channel, Packet("wait")) for _ in range(2)]
    wait_until(lambda: waiting.asked == 2, "both wait")
    assert channel.ask(Packet("echo", {"n": 1}), 20).fields == {"n": 1}
    waiting.may_go_on.set()
    assert [poll.join().kind for poll in polls] == ["waited", "waited"]  # type: ignore[union-attr]


def test_a_client_with_too_many_requests_is_refused_and_another_one_is_not(
    channel: ClientChannel, socket: ClientSocket, waiting: Waiting
) -> None:
    polls = [Asking(channel, Packet("wait")) for _ in range(3)]
    wait_until(lambda: waiting.asked == 3, "all wait")
    with pytest.raises(NodeUnavailable, match="3 requests of this client are under way, more are not taken"):
        channel.ask(Packet("echo"), 20)
    other = ClientChannel(socket.address)
    assert other.ask(Packet("echo", {"n": 1}), 20).fields == {"n": 1}
    more = [Asking(other, Packet("wait")) for _ in range(2)]
    wait_until(lambda: waiting.asked == 5, "as many as may")
    with pytest.raises(NodeUnavailable, match="the node is busy"):
        other.ask(Packet("echo"), 20)
    assert refused(socket, "busy") == 2
    waiting.may_go_on.set()
    assert all(isinstance(poll.join(), Packet) for poll in (*polls, *more))

    def has_room() -> bool:  # a worker may still be on its way out
        with suppress(NodeUnavailable):
            return channel.ask(Packet("echo"), 20).kind == "echo"
        return False

    wait_until(has_room, "there is room again")
    other.close()


def test_streams_and_packets_come_in_at_one_address(
    channel: ClientChannel, socket: ClientSocket, ingest: Ingest
) -> None:
    """A piece that takes long holds its writer back, and no client."""
    ingest.may_go_on.clear()
    with IngestLink([socket.address], timeout_s=20) as link:
        link.open(STREAM, "part-0", 1)
        link.send(make_piece(many(5)))
        assert channel.ask(Packet("echo", {"n": 1}), 20).fields == {"n": 1}
        ingest.may_go_on.set()
        link.flush()
    assert ingest.pieces == [5]


def test_a_socket_with_too_much_to_ingest_takes_in_no_more_until_it_is_done(
    socket: ClientSocket, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "WAITING_BYTES_MAX", 1000)
    ingest.may_go_on.clear()
    with IngestLink([socket.address], timeout_s=20) as link:
        link.open(STREAM, "part-0", 1)
        for count in range(1, 41):
            link.send(make_piece(many(count)))
        wait_until(lambda: int(socket.stats()["messages_in"]) >= 2, "the first piece is there")  # type: ignore[arg-type]
        assert int(socket.stats()["messages_in"]) < 10  # type: ignore[arg-type]
        ingest.may_go_on.set()
        link.flush()
    assert ingest.pieces == list(range(1, 41))


def test_a_piece_that_is_too_big_is_counted_and_refused(ingest: Ingest) -> None:
    socket = ClientSocket(ANY_PORT, {}, ingest, message_bytes_max=1500)
    with IngestLink([socket.address], timeout_s=20) as link:
        link.open(STREAM, "part-0", 1)

        def write() -> None:
            link.send(make_piece(many(100)))
            link.flush()

        with pytest.raises(DataError, match="expected at most 1500 bytes, found"):
            write()
    assert (refused(socket, "oversized"), ingest.pieces) == (1, [])
    socket.close()


def test_an_address_without_streams_refuses_them() -> None:
    socket = ClientSocket(ANY_PORT, {"echo": echo})
    with (
        IngestLink([socket.address], timeout_s=20) as link,
        pytest.raises(DataError, match="streams are not taken at this address"),
    ):
        link.open(STREAM, "part-0", 1)
    assert refused(socket, "unknown kind") == 1
    socket.close()
    socket.close()


def test_what_may_not_come_is_counted_and_refused(socket: ClientSocket, channel: ClientChannel) -> None:
    raw = Raw(socket.address)
    cases = [
        ("malformed", to_frames(Packet("echo"), TELL, 1, "me"), "expected a question of a client with a name"),
        ("malformed", to_frames(Packet("echo"), ASK, 2), "expected a question of a client with a name"),
        ("malformed", to_frames(Packet("echo"), ASK, 3, (0, 1, 1)), "expected a question of a client with a name"),
        ("malformed", [*to_frames(Packet("echo"), ASK, 4, "me"), b"x"], "expected 0 frames of arrays, found 1"),
    ]
    for number, (reason, frames, expected) in enumerate(cases):
        raw.say(frames)
        header = read_packet_header(raw.hear())
        assert expected in str(error_in(Packet(header.kind, header.fields)))
        assert refused(socket, reason) == number + 1
    raw.say(to_frames(Packet("echo"), ASK, 9, "me"))
    assert read_packet_header(raw.hear()).kind == "echo"
    raw.say(to_frames(Packet("echo"), ASK, 9, "me"))
    header = read_packet_header(raw.hear())
    assert "number 9 has come before" in str(error_in(Packet(header.kind, header.fields)))
    assert refused(socket, "replayed") == 1
    raw.say([b""])
    assert isinstance(from_frames(raw.hear())[0], Refused)
    raw.close()
    assert channel.ask(Packet("echo"), 20).kind == "echo"


def test_a_client_finds_a_restarted_node(waiting: Waiting) -> None:
    socket = ClientSocket(ANY_PORT, {"echo": echo, "wait": waiting})
    channel = ClientChannel(socket.address)
    assert channel.ask(Packet("echo"), 20).kind == "echo"
    socket.close()
    with pytest.raises(NodeUnavailable, match=r"cannot be reached within 0.2 s|the connection was lost"):
        channel.ask(Packet("echo"), 0.2)
    again = ClientSocket(socket.address, {"echo": echo})
    assert channel.ask(Packet("echo", {"n": 2}), 20).fields == {"n": 2}
    channel.close()
    with pytest.raises(NodeUnavailable, match="this side is closed"):
        channel.ask(Packet("echo"), 1)
    again.close()


def test_a_malformed_address_is_refused() -> None:
    with pytest.raises(SettingsError, match="expected the form"):
        ClientChannel("localhost:7411")
