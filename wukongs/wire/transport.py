"""Connections to bound sockets, and the addresses and limits that both sides agree on."""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.forks import fork_error
from wukongs.live.header import Frame
from wukongs.wire.codec import MESSAGE_BYTES_MAX
from wukongs.wire.context import context
from wukongs.wire.trust import Keys

QUEUED_MESSAGES_MAX = 1000
"""The most messages that wait to go out to one peer, and the most of one peer that wait here to be looked at."""
HEARTBEAT_MS, SILENT_MS = 1000, 10_000
"""A connection whose other end does not even answer ZeroMQ's own heartbeats counts as lost."""
RECONNECT_MS, RECONNECT_MS_MAX = 100, 1000
LOOK_MS = 50
"""A caller that waits for an answer looks so often whether the connection is still the one that carried the question.
RECONNECT_MS is longer, so a lost connection cannot be there again between two looks."""
COPIED_BYTES_MAX = 1 << 16
"""Below that, copying a frame takes less time than counting who still needs it."""
JOINED_BYTES_MAX, JOINED_MAX = 1 << 14, 255
"""So many frames of so few bytes together go as one: ZeroMQ encrypts and hands over each frame by itself."""
_JOINED = 1
_AT_ONCE, _AT_ONCE_AND_MORE = 1, 3  # ZeroMQ's DONTWAIT and SNDMORE; its enums are slow

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]*\]|[^:\[\]]+):(?P<port>\d{1,5}|\*)")
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")


def check_address(address: str, *, allow_remote: bool = True) -> str:
    """Return the address if it is tcp://host:port, and on this machine's loopback unless allow_remote.

    Raises: SettingsError (another form, or another machine's reach without allow_remote).
    """
    found = _TCP.fullmatch(address) if isinstance(address, str) else None
    if found is None or (found["port"] != "*" and int(found["port"]) > 65535):
        raise SettingsError(f"address = {address!r}: expected the form tcp://127.0.0.1:7411")
    if not allow_remote and _LOOPBACK.fullmatch(found["host"]) is None:
        raise SettingsError(
            f"address = {address!r}: expected a loopback address such as tcp://127.0.0.1:7411, or keys on both sides, "
            "since there is no telling who listens or connects there. `wukongs keys DIR` makes keys"
        )
    return address


class AskingLine(Protocol):
    """One connection to a node, over which it is asked; used by one thread at a time. pollable: what ZeroMQ can wait
    for news of."""

    address: str
    pollable: Any

    def send(self, frames: Sequence[Frame], wait_ms: int = 0) -> bool:
        """Send a message; False: it is not sent within wait_ms, and this has to be called again with the same one."""

    def receive(self, deadline_s: float) -> list[Frame] | None:
        """Return the next message; None if none comes until the deadline, or within LOOK_MS."""

    def is_connected(self) -> bool:
        """Tell whether the connection is there that carried what was sent last."""

    def close(self) -> None: ...


class DealerChannel:
    """One connection of a pipeline to a node's ingest socket. Not shared by threads.

    Raises: SettingsError (a malformed address).
    """

    def __init__(self, address: str, keys: Keys | None = None) -> None:
        import zmq

        self.address = check_address(address, allow_remote=keys is not None)
        self._pid = os.getpid()
        self._socket = context().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # the link bounds what is under way, by bytes
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        if keys is not None:
            keys.show(self._socket, address)
        self._socket.connect(address)

    def send(self, frames: Sequence[Frame]) -> None:
        """Queue a message; ZeroMQ sends it as soon as the node can be reached."""
        import zmq

        self._check_is_own()
        try:
            self._socket.send_multipart(joined(frames), zmq.NOBLOCK)
        except zmq.Again:
            raise NodeUnavailable(f"{self.address}: the connection takes no more messages") from None

    def receive(self, timeout_s: float) -> list[Frame] | None:
        """Return the next reply, None if none comes within timeout_s seconds."""
        import zmq

        self._check_is_own()
        if not self._socket.poll(max(0, int(timeout_s * 1000))):
            return None
        return parted(self._socket.recv_multipart(zmq.NOBLOCK))

    def close(self) -> None:
        if self._pid == os.getpid():
            self._socket.close()

    def _check_is_own(self) -> None:
        if self._pid != os.getpid():
            raise fork_error("has made this link, which reads its answers: make a new one after the fork")


class Line:
    """One connection to a node, used by one thread at a time; it holds what is sent only while it is connected.

    Raises: SettingsError (a malformed address), NodeUnavailable (the process cannot open one more connection).
    """

    def __init__(self, address: str, keys: Keys | None = None) -> None:
        import zmq

        self.address = check_address(address, allow_remote=keys is not None)
        try:
            self._socket = context().socket(zmq.DEALER)
        except zmq.ZMQError as error:
            raise NodeUnavailable(
                f"{address}: this process cannot open one more connection ({error}). Ask again when it has fewer, or "
                "start it with a higher limit (ulimit -n)"
            ) from error
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        self._socket.setsockopt(zmq.RCVTIMEO, LOOK_MS)
        bound_queues(self._socket)
        if keys is not None:
            keys.show(self._socket, address)
        self.pollable = self._socket
        self._socket.connect(address)

    def send(self, frames: Sequence[Frame], wait_ms: int = 0) -> bool:
        """Send a message, if need be as soon as that is possible; False: within wait_ms it was not."""
        import zmq

        try:
            send_frames(self._socket, joined(frames))
        except zmq.Again:
            return wait_ms > 0 and self._socket.poll(wait_ms, zmq.POLLOUT) != 0 and self.send(frames)
        return True

    def receive(self, deadline_s: float) -> list[Frame] | None:
        """Return the next message; None if none comes until the deadline, or within LOOK_MS."""
        import zmq

        left_ms = milliseconds_left(deadline_s)
        if left_ms < LOOK_MS and not self._socket.poll(max(0, left_ms)):
            return None
        try:
            return parted(receive_frames(self._socket))
        except zmq.Again:
            return None

    def received(self) -> list[Frame] | None:
        """Return the next message if one is there."""
        import zmq

        is_there = self._socket.getsockopt(zmq.EVENTS) & int(zmq.POLLIN)
        return parted(receive_frames(self._socket)) if is_there else None

    def is_connected(self) -> bool:
        import zmq

        return bool(self._socket.getsockopt(zmq.EVENTS) & int(zmq.POLLOUT))

    def close(self) -> None:
        self._socket.close()


def lines_with_news(lines: Sequence[AskingLine], deadline_s: float) -> list[AskingLine]:
    """Return the lines over which a message has come; wait for one until the deadline, but no longer than LOOK_MS."""
    import zmq

    poller = zmq.Poller()
    for line in lines:
        poller.register(line.pollable, zmq.POLLIN)
    ready = dict(poller.poll(max(0, min(LOOK_MS, milliseconds_left(deadline_s)))))
    return [line for line in lines if line.pollable in ready]


def joined(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return a message's frames as one, if they are short: a byte 1, which no header begins with, a byte with their
    number, the length of each as uint32, little endian, and the frames."""
    if not 1 < len(frames) <= JOINED_MAX:
        return frames
    sizes = [len(frame) for frame in frames]
    if sum(sizes) > JOINED_BYTES_MAX:
        return frames
    return (b"".join((struct.pack(f"<BB{len(sizes)}I", _JOINED, len(sizes), *sizes), *frames)),)


def parted(frames: list[Frame]) -> list[Frame]:
    """Return the frames of a message again. One that is wrongly joined stays as it is, and is no header."""
    if len(frames) != 1 or len(frames[0]) < 2 or frames[0][0] != _JOINED:
        return frames
    whole = memoryview(frames[0])
    start = 2 + 4 * whole[1]
    if len(whole) < start:
        return frames
    bounds = list(accumulate(struct.unpack_from(f"<{whole[1]}I", whole, 2), initial=start))
    return [whole[first:last] for first, last in pairwise(bounds)] if bounds[-1] == len(whole) > start else frames


def send_frames(socket: Any, frames: Sequence[Frame]) -> None:
    """Send a message if that is possible at once, without copying its large frames. Raises: zmq.Again, zmq.ZMQError.

    This and receive_frames do what pyzmq's functions for several frames do, in half the time."""
    last = len(frames) - 1
    for place, frame in enumerate(frames):
        socket.send(frame, _AT_ONCE if place == last else _AT_ONCE_AND_MORE, len(frame) < COPIED_BYTES_MAX)


def receive_frames(socket: Any, flags: int = 0) -> list[Frame]:
    """Return the next message. Raises: zmq.Again (none came in the socket's time)."""
    return receive_framed(socket, flags)[0]


def receive_framed(socket: Any, flags: int = 0) -> tuple[list[Frame], Any]:
    """Return the next message, and its last frame as ZeroMQ's, which knows the sender. Raises: as receive_frames."""
    frame = socket.recv(flags, False)
    frames = [frame.buffer]
    while frame.more:
        frame = socket.recv(flags, False)
        frames.append(frame.buffer)
    return frames, frame


def signed_by(frame: Any) -> str:
    """Return the key of the sender of a frame, as the doorkeeper has noted it; "": none."""
    import zmq

    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:  # nobody has noted any
        return ""


def bound_queues(of: Any) -> None:
    import zmq

    of.setsockopt(zmq.SNDHWM, QUEUED_MESSAGES_MAX)
    of.setsockopt(zmq.RCVHWM, QUEUED_MESSAGES_MAX)
    of.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    of.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENT_MS)


def milliseconds_left(deadline_s: float) -> int:
    """Return the milliseconds until a deadline, rounded up: what is left of the last one is waited for, not spun."""
    return -int(-(deadline_s - time.monotonic()) * 1000 // 1)
