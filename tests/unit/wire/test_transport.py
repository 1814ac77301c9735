"""The ingest socket: acknowledges what was taken, refuses by name, survives garbage, stays on this machine."""

from __future__ import annotations

import logging
import multiprocessing
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import zmq

from tests.unit.wire.pieces import STREAM, make_piece, many
from wukongs.errors import SettingsError, StreamError
from wukongs.live.header import MessageError, read_header
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.wire.client_socket import ClientSocket
from wukongs.wire.link import IngestLink
from wukongs.wire.messages import Ack, Message, Opened, Refused, from_frames, to_frames
from wukongs.wire.transport import JOINED_BYTES_MAX, DealerChannel, check_address, joined, parted


@dataclass
class Handler:
    error: Exception | None = None
    seen: list[Message] = field(default_factory=list)

    def _note(self, message: Message) -> None:
        if self.error is not None:
            raise self.error
        self.seen.append(message)

    def open_partition(self, message: Open, /) -> Opened:
        self._note(message)
        return Opened(100, None, True, 0, 62)

    def inject(self, piece: Piece, /) -> None:
        self._note(piece)

    def close_batches(self, message: Close, /) -> None:
        self._note(message)

    def finish_partition(self, message: Finish, /) -> None:
        self._note(message)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def ingest(handler: Handler) -> Iterator[ClientSocket]:
    socket = ClientSocket("tcp://127.0.0.1:0", {}, handler)
    yield socket
    socket.close()


@pytest.fixture
def channel(ingest: ClientSocket) -> Iterator[DealerChannel]:
    one = DealerChannel(ingest.address)
    yield one
    one.close()


def _ask(channel: DealerChannel, frames: list[bytes]) -> tuple[Message, int]:
    channel.send(frames)
    reply = channel.receive(10)
    assert reply is not None, "no answer"
    return from_frames(reply)


def test_messages_reach_the_handler_and_are_acknowledged(channel: DealerChannel, handler: Handler) -> None:
    messages: list[Message] = [
        Open(STREAM, "part-0", 1),
        make_piece(many(5)),
        Close(STREAM, "part-0", 1, 5, 1000),
        Finish(STREAM, "part-0", 1),
    ]
    answers = [_ask(channel, to_frames(message, 10 + n)) for n, message in enumerate(messages)]  # type: ignore[arg-type]
    assert [sequence for _, sequence in answers] == [10, 11, 12, 13]
    assert [answer for answer, _ in answers] == [
        Opened(100, None, True, 0, 62),
        Ack(STREAM, "part-0", 5, 0),
        Ack(STREAM, "part-0", 5, -1),
        Ack(STREAM, "part-0", -1, -1),
    ]
    assert [type(one) for one in handler.seen] == [Open, Piece, Close, Finish]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([b""], "expected a JSON header"),
        ([b"\x00\xff", b"x" * 1000], "expected a JSON header"),
        ([b'{"wukongs":9,"kind":"piece","seq":4}'], "expected protocol version 4, found 9"),
        ([b'{"wukongs":4,"kind":"piece","seq":4}', b"a", b"b"], "expected 4 frames"),
        ([b'{"wukongs":4,"kind":"piece","seq":4}', b"a", b"b", b"c"], "expected tuples as an Arrow record batch"),
    ],
)
def test_garbage_is_refused_and_the_socket_goes_on(channel: DealerChannel, frames: list[bytes], expected: str) -> None:
    answer, _ = _ask(channel, frames)
    assert isinstance(answer, Refused)
    assert answer.error == "DataError"
    assert expected in answer.message
    assert _ask(channel, to_frames(Open(STREAM, "p", 1), 2)) == (Opened(100, None, True, 0, 62), 2)  # type: ignore[arg-type]


def test_a_message_that_is_no_request_is_refused(channel: DealerChannel) -> None:
    answer, sequence = _ask(channel, to_frames(Ack("s", "p", 1, 1), 8))  # type: ignore[arg-type]
    assert answer == Refused("StreamError", "a node takes open, piece, close and finish, found a message 'Ack'")
    assert sequence == 8


def test_an_error_of_the_handler_is_told_by_name(channel: DealerChannel, handler: Handler) -> None:
    handler.error = StreamError("there is no stream http://ex/s. Declare it first")
    answer, sequence = _ask(channel, to_frames(make_piece(), 5))  # type: ignore[arg-type]
    assert (answer, sequence) == (Refused("StreamError", "there is no stream http://ex/s. Declare it first"), 5)


def test_a_failure_of_the_handler_is_logged_and_told(
    channel: DealerChannel, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    handler.error = ZeroDivisionError("division by zero")
    with caplog.at_level(logging.ERROR):
        answer, _ = _ask(channel, to_frames(make_piece(), 5))  # type: ignore[arg-type]
    expected = "the node failed: ZeroDivisionError: division by zero. See its log"
    assert answer == Refused("WukongsError", expected)
    assert "Traceback" in caplog.text


def test_only_loopback_unless_allowed(handler: Handler) -> None:
    for address in ("tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.168.1.4:7411", "tcp://[::]:0", "tcp://example.org:1"):
        with pytest.raises(SettingsError, match=r"expected a loopback address.*or keys on both sides"):
            ClientSocket(address, {}, handler)


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:7411", "udp://127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:70000"]
)
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match=r"expected the form tcp://127.0.0.1:7411"):
        check_address(address)


def test_a_taken_address_is_refused_and_a_closed_one_is_free(handler: Handler, ingest: ClientSocket) -> None:
    with pytest.raises(SettingsError, match=r"cannot be bound.*Use port 0 for a free one"):
        ClientSocket(ingest.address, {}, handler)
    ingest.close()
    ingest.close()
    again = ClientSocket(ingest.address, {}, handler)
    again.close()


def _send_from_a_child(address: str) -> None:
    with IngestLink([address], timeout_s=10) as link:
        link.send(make_piece(many(4)))
        link.flush()


def test_a_forked_child_gets_a_context_of_its_own(ingest: ClientSocket, handler: Handler) -> None:
    with IngestLink([ingest.address]) as link:
        link.send(make_piece(many(2)))
        link.flush()
        child = multiprocessing.get_context("fork").Process(target=_send_from_a_child, args=(ingest.address,))
        child.start()
        child.join(20)
        assert child.exitcode == 0
        link.send(make_piece(many(3)))
        link.flush()
    assert [len(one.encoded) for one in handler.seen if isinstance(one, Piece)] == [2, 4, 3]


def test_a_peer_that_speaks_no_zeromq_is_ignored(ingest: ClientSocket, channel: DealerChannel) -> None:
    import socket

    host, port = ingest.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
        assert _ask(channel, to_frames(Open(STREAM, "p", 1), 2))[1] == 2  # type: ignore[arg-type]
    assert zmq.zmq_version_info() >= (4, 0)


def test_sockets_come_and_go(handler: Handler) -> None:
    """The name of a closed socket's wake-up channel may still be taken while the next one begins."""
    for _ in range(200):
        ClientSocket("tcp://127.0.0.1:0", {}, handler).close()


@pytest.mark.parametrize(
    "frames", [[b"{}"], [b"{}", b""], [b"{}", b"abc", bytes(700)], [b"{}", *[bytes((n,)) for n in range(200)]]]
)
def test_short_frames_go_as_one_and_come_apart_again(frames: list[bytes]) -> None:
    sent = joined(frames)
    assert len(sent) == 1
    assert [bytes(frame) for frame in parted(list(sent))] == frames


@pytest.mark.parametrize("frames", [[b"{}", bytes(JOINED_BYTES_MAX)], [b"{}"] * 256])
def test_long_frames_and_many_go_as_they_are(frames: list[bytes]) -> None:
    assert joined(frames) is frames


def test_what_is_wrongly_joined_stays_a_frame_that_is_no_header() -> None:
    (whole,) = joined([b"{}", b"abc"])
    rng = random.Random(7)
    wrong = [bytes(whole)[:size] for size in range(len(whole))] + [bytes(whole) + b"x", b"\x01\x00", b"\x01\xff\x00"]
    for _ in range(300):
        noise = bytearray(bytes(whole))
        noise[rng.randrange(1, 10)] ^= rng.randrange(1, 256)
        wrong.append(bytes(noise))
    for frame in wrong:
        found = parted([frame])
        if len(found) == 1 and found[0] == frame:
            with pytest.raises(MessageError):
                read_header(frame)
        else:
            assert b"".join(map(bytes, found)) == b"{}abc"
