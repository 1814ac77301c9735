"""Sockets: the one place with ZeroMQ. A bound socket with its thread, and connections to such sockets."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from wukongs.errors import NodeUnavailable, SettingsError
from wukongs.wire.codec import MESSAGE_BYTES_MAX
from wukongs.wire.header import Frame

UNBIND_TIMEOUT_MS = 1000
QUEUED_MESSAGES_MAX = 1000
"""What waits for one peer on its way out, and what of one peer waits here to be looked at."""
HEARTBEAT_MS, SILENT_MS = 1000, 10_000
"""A connection whose other end does not even answer ZeroMQ's own heartbeats counts as lost."""
RECONNECT_MS, RECONNECT_MS_MAX = 100, 1000
LOOK_MS = 50
"""How often one who waits for an answer looks whether the connection still is the one that the question went over: more
often than a lost connection can be there again (RECONNECT_MS)."""
_AT_ONCE_MAX = 64

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]*\]|[^:\[\]]+):(?P<port>\d{1,5}|\*)")
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")

_log = logging.getLogger(__name__)
_contexts: dict[int, Any] = {}


def _context() -> Any:
    """Return this process's ZeroMQ context: one must not live on across a fork."""
    import zmq

    if os.getpid() not in _contexts:
        _contexts[os.getpid()] = zmq.Context()
    return _contexts[os.getpid()]


def check_address(address: str, *, allow_remote: bool = True) -> str:
    """Return the address if it is tcp://host:port, and on this machine's loopback unless allow_remote.

    Raises: SettingsError (another form, or another machine's reach without allow_remote).
    """
    found = _TCP.fullmatch(address)
    if found is None or (found["port"] != "*" and int(found["port"]) > 65535):
        raise SettingsError(f"address = {address!r}: expected the form tcp://127.0.0.1:7411")
    if not allow_remote and _LOOPBACK.fullmatch(found["host"]) is None:
        raise SettingsError(
            f"address = {address!r}: expected a loopback address such as tcp://127.0.0.1:7411, since whoever reaches "
            "the ingest socket can write; sockets for other machines are not built yet"
        )
    return address


class BoundSocket:
    """A ROUTER socket and the one thread that uses it: hands on what comes in, sends what is posted by any thread.

    receive(peer, frames) runs in that thread and has to be quick; what it raises is logged. can_read: while it is
    False, nothing more is taken in, and ZeroMQ holds the senders back; wake() has it asked again.
    Raises: SettingsError (an address that is malformed, not loopback, or cannot be bound).
    """

    def __init__(
        self,
        address: str,
        receive: Callable[[bytes, list[Frame]], None],
        *,
        name: str,
        allow_remote: bool = False,
        can_read: Callable[[], bool] = lambda: True,
    ) -> None:
        import zmq

        self._receive, self._can_read = receive, can_read
        self._socket = _context().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        _bound_queues(self._socket)
        try:
            self._socket.bind(check_address(address, allow_remote=allow_remote))
        except zmq.ZMQError as error:
            self._socket.close()
            raise SettingsError(
                f"address = {address!r}: cannot be bound ({error}). Use port 0 for a free one"
            ) from None
        except SettingsError:
            self._socket.close()
            raise
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.undelivered = 0
        self._outgoing: deque[tuple[bytes, Sequence[Frame]]] = deque()
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._is_rung = self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to take what comes in; it is a step of its own so that `receive` may use this object."""
        self._thread.start()

    def post(self, peer: bytes, frames: Sequence[Frame]) -> None:
        """Have a message sent to a peer that was heard; dropped and counted when it is gone, or takes no more."""
        self._outgoing.append((peer, frames))
        self.wake()

    def wake(self) -> None:
        """Have the thread look at what is new."""
        if self._is_rung or self._is_closing:  # once is enough until the thread has seen it
            return
        self._is_rung = True
        self._ring()

    def close(self) -> None:
        """Stop the thread and free the address; may be called again."""
        self._is_closing = True
        if self._thread.is_alive():
            self._ring()
            self._thread.join()
        elif not self._socket.closed:  # never started
            self._socket.close()
        self._bell.close()
        self._rung.close()

    def _ring(self) -> None:
        try:
            self._bell.send(b"\0")
        except (BlockingIOError, OSError):  # full: the thread will see it; closed: there is no thread any more
            return

    def _run(self) -> None:
        import zmq

        reading, resting = zmq.Poller(), zmq.Poller()
        for poller in (reading, resting):
            poller.register(self._rung, zmq.POLLIN)
        reading.register(self._socket, zmq.POLLIN)
        rung = self._rung.fileno()
        try:
            while not self._is_closing:
                ready = dict((reading if self._can_read() else resting).poll())
                if rung in ready:
                    self._rung.recv(4096)
                    self._is_rung = False  # before looking: who posts after this look rings again
                self._send_all()
                if self._socket in ready:
                    self._take_in()
        finally:
            self._send_all()
            self._free_address()

    def _take_in(self) -> None:
        """Take in what is there; but now and then it is time to send."""
        import zmq

        for _ in range(_AT_ONCE_MAX):
            try:
                peer, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                self._receive(peer.bytes, [frame.buffer for frame in frames])
            except Exception:
                _log.exception("%s: what came in could not be handled", self._thread.name)
            if self._outgoing or not self._can_read():
                return

    def _send_all(self) -> None:
        import zmq

        while self._outgoing:
            peer, frames = self._outgoing.popleft()
            try:
                self._socket.send_multipart([peer, *frames], zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                self.undelivered += 1

    def _free_address(self) -> None:
        """Close the socket when its address is free: ZeroMQ lets go of it in a thread of its own, and says so."""
        import zmq

        closed = self._socket.get_monitor_socket(zmq.EVENT_CLOSED)
        self._socket.unbind(self.address)
        closed.poll(UNBIND_TIMEOUT_MS)
        self._socket.disable_monitor()
        self._socket.close()


class DealerChannel:
    """One connection of a pipeline to a node's ingest socket. Not shared by threads, and not across a fork.

    Raises: SettingsError (a malformed address).
    """

    def __init__(self, address: str) -> None:
        import zmq

        self.address = check_address(address)
        self._pid = os.getpid()
        self._socket = _context().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # the link bounds what is under way, by bytes
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.connect(address)

    def send(self, frames: Sequence[Frame]) -> None:
        """Queue a message; ZeroMQ sends it as soon as the node can be reached."""
        import zmq

        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            raise NodeUnavailable(f"{self.address}: the connection takes no more messages") from None

    def receive(self, timeout_s: float) -> list[Frame] | None:
        """Return the next reply, None if none comes within timeout_s seconds."""
        import zmq

        if not self._socket.poll(max(0, int(timeout_s * 1000))):
            return None
        frames: list[Frame] = self._socket.recv_multipart(zmq.NOBLOCK)
        return frames

    def close(self) -> None:
        if self._pid == os.getpid():
            self._socket.close()


class Line:
    """One connection to a node, used by one thread at a time; it holds what is sent only while it is connected."""

    def __init__(self, address: str) -> None:
        import zmq

        self.address = check_address(address)
        self._socket = _context().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        _bound_queues(self._socket)
        self._socket.connect(address)

    def send(self, frames: Sequence[Frame], deadline_s: float = 0.0) -> bool:
        """Send a message as soon as that is possible; False: until deadline_s (time.monotonic) it was not."""
        import zmq

        while True:
            try:
                self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
                return True
            except zmq.Again:
                left_ms = _left_ms(deadline_s)
                if left_ms <= 0:
                    return False
                self._socket.poll(left_ms, zmq.POLLOUT)

    def receive(self, timeout_ms: int = 0) -> list[Frame] | None:
        """Return the next message, None if none comes within timeout_ms."""
        import zmq

        if timeout_ms > 0 and not self._socket.poll(timeout_ms):
            return None
        try:
            return [frame.buffer for frame in self._socket.recv_multipart(zmq.NOBLOCK, copy=False)]
        except zmq.Again:
            return None

    def is_connected(self) -> bool:
        import zmq

        return bool(self._socket.getsockopt(zmq.EVENTS) & zmq.POLLOUT)

    def close(self) -> None:
        self._socket.close()


def wait_for_any(lines: Sequence[Line], deadline_s: float) -> None:
    """Wait until a message has come over one of the lines, but no longer than LOOK_MS, or than until the deadline."""
    import zmq

    timeout_ms = max(0, min(LOOK_MS, _left_ms(deadline_s)))
    if len(lines) == 1:
        lines[0]._socket.poll(timeout_ms)
        return
    poller = zmq.Poller()
    for line in lines:
        poller.register(line._socket, zmq.POLLIN)
    poller.poll(timeout_ms)


def _bound_queues(of: Any) -> None:
    import zmq

    of.setsockopt(zmq.SNDHWM, QUEUED_MESSAGES_MAX)
    of.setsockopt(zmq.RCVHWM, QUEUED_MESSAGES_MAX)
    of.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    of.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENT_MS)


def _left_ms(deadline_s: float) -> int:
    """Return the milliseconds until a deadline, rounded up: what is left of the last one is waited for, not spun."""
    return -int(-(deadline_s - time.monotonic()) * 1000 // 1) if deadline_s else 0
