"""BoundSocket: a ROUTER socket at an address, and the one thread that uses it."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from wukongs.errors import SettingsError
from wukongs.live.header import Frame
from wukongs.wire.codec import MESSAGE_BYTES_MAX
from wukongs.wire.connections import HANDSHAKE_MS, LOOK_MS, Connections
from wukongs.wire.context import begin_sending
from wukongs.wire.descriptors import NEEDED, connections_max, make_room
from wukongs.wire.transport import (
    bound_queues,
    check_address,
    joined,
    milliseconds_left,
    parted,
    receive_framed,
    send_frames,
    signed_by,
)
from wukongs.wire.trust import Gate

UNBIND_TIMEOUT_S = 1.0
BACKLOG = 1024
"""Connections that the system keeps until ZeroMQ takes them; the system may allow fewer."""
EVENTS_AT_ONCE = 100
"""So many events of connections are taken before messages have their turn again."""
_VERSION = b"1.0"
_EVENT = struct.Struct("=HI")
_log = logging.getLogger(__name__)


class Doorkeeper:
    """Answers ZeroMQ's question whether a peer that connects is let in (ZAP 1.0): by its key, with CURVE; without keys
    each one is. allowed: the keys; None: the socket has none.

    ZeroMQ then refuses version 1.0 of its protocol, which has no handshake and thus no bounds. There is one per
    context. The thread of the context's bound socket uses it, and has to call `answer` when asked."""

    def __init__(self, context: Any, allowed: frozenset[str] | None) -> None:
        import zmq

        self.allowed = allowed
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> None:
        """Answer one question."""
        import zmq
        from zmq.utils import z85

        try:
            request = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        version, number, mechanism, credentials = request[0], request[1], request[5], request[6:]
        key = b""
        if self.allowed is None:
            is_let_in = (version, mechanism, len(credentials)) == (_VERSION, b"NULL", 0)
        elif (version, mechanism, len(credentials)) == (_VERSION, b"CURVE", 1):
            key = z85.encode(credentials[0])
            is_let_in = key.decode() in self.allowed
        else:
            is_let_in = False
        status, text = (b"200", b"OK") if is_let_in else (b"400", b"not let in")
        self.socket.send_multipart([_VERSION, number, status, text, key if is_let_in else b"", b""])


class BoundSocket:
    """Hands on received messages, and sends messages that any thread posts.

    receive(peer, frames) runs in that thread and has to be quick; it returns whether the message was let in, which
    proves its connection (connections.py). An error of it is logged. gate: the keys that peers
    need; refused: called for each peer that could not prove its key (connections.py bounds what peers can take before
    that). can_read: while it is False, nothing more is taken
    in, and ZeroMQ holds the senders back; wake() has it asked again. failed: called once, in that thread, if an error
    ends it: nobody answers at the address then.
    Raises: SettingsError (an address that is malformed, needs keys, or cannot be bound; this process may open too few
    files).
    """

    def __init__(
        self,
        address: str,
        receive: Callable[[bytes, list[Frame]], bool],
        *,
        name: str,
        gate: Gate | None = None,
        refused: Callable[[], None] = lambda: None,
        can_read: Callable[[], bool] = lambda: True,
        failed: Callable[[BaseException], object] = lambda _: None,
    ) -> None:
        import zmq

        self._receive, self._can_read, self._refused, self._failed = receive, can_read, refused, failed
        gate = Gate() if gate is None else gate
        check_address(address, allow_remote=gate.pair is not None)
        make_room(at_most=NEEDED)
        begin_sending()
        self._context = zmq.Context()  # a doorkeeper answers for all of one
        self._door = Doorkeeper(self._context, None if gate.pair is None else gate.allowed)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._socket.setsockopt(zmq.BACKLOG, BACKLOG)
        bound_queues(self._socket)
        gate.guard(self._socket)
        self._connections = Connections(gate.pair is not None, connections_max())
        self._events = self._watch_events()
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._close_sockets()
            raise SettingsError(
                f"address = {address!r}: cannot be bound ({error}). Use port 0 for a free one"
            ) from None
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.undelivered = 0
        self._outgoing: deque[tuple[bytes, Sequence[Frame]]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._is_rung = self._is_closing = False
        self._has_changed_keys = bool(gate.limited)
        self.key = ""
        """The key of the peer whose message `receive` has, where it is looked at: keys have changed, or some are
        limited."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to take messages. This is a step of its own, so that `receive` may use this object."""
        self._thread.start()

    def post(self, peer: bytes, frames: Sequence[Frame]) -> None:
        """Have a message sent to a peer that was heard; dropped and counted when it is gone, or takes no more."""
        self._outgoing.append((peer, frames))
        if threading.get_ident() != self._thread.ident:  # which looks by itself
            self.wake()

    def call(self, function: Callable[[], None]) -> None:
        """Have the thread call a quick function between two messages: that it does says that it moves."""
        self._calls.append(function)
        self.wake()

    def let_in(self, allowed: frozenset[str]) -> None:
        """Let in these keys from now on. Messages of others over connections that are there are dropped."""
        if self._door.allowed is not None:
            self._door.allowed, self._has_changed_keys = allowed, True

    def wake(self) -> None:
        """Have the thread look for news."""
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
            self._close_sockets()
        self._bell.close()
        self._rung.close()

    def _ring(self) -> None:
        try:
            self._bell.send(b"\0")
        except (BlockingIOError, OSError):  # full: the thread will see it; closed: there is no thread any more
            return

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            self._failed(error)
            _log.exception("%s: the socket has failed", self._thread.name)
        finally:
            self._send_all()
            self._free_address()

    def _serve(self) -> None:
        import zmq

        reading, resting = zmq.Poller(), zmq.Poller()
        for poller in (reading, resting):
            poller.register(self._rung, zmq.POLLIN)
            poller.register(self._events, zmq.POLLIN)
            poller.register(self._door.socket, zmq.POLLIN)
        reading.register(self._socket, zmq.POLLIN)
        rung = self._rung.fileno()
        while not self._is_closing:
            wait_ms = None if self._connections.are_all_proven else LOOK_MS
            ready = dict((reading if self._can_read() else resting).poll(wait_ms))
            if rung in ready:
                self._rung.recv(4096)
                self._is_rung = False  # before looking: a thread that posts after this rings again
            if self._socket in ready:
                self._take_in()
            if self._events in ready:
                self._take_events()
            self._connections.look()
            while self._calls:
                self._calls.popleft()()
            if self._door.socket in ready:
                self._door.answer()
            self._send_all()

    def _take_in(self) -> None:
        import zmq

        (peer, *frames), last = receive_framed(self._socket)
        if self._has_changed_keys:
            self.key = signed_by(last)
            if self._door.allowed is not None and self.key not in self._door.allowed:
                self._refused()
                return
        try:
            if self._receive(bytes(peer), parted(frames)) and not self._connections.are_all_proven:
                self._connections.proven(last.get(zmq.SRCFD))
        except Exception:
            _log.exception("%s: what came in could not be handled", self._thread.name)

    def _send_all(self) -> None:
        import zmq

        while self._outgoing:
            peer, frames = self._outgoing.popleft()
            try:
                send_frames(self._socket, [peer, *joined(frames)])
            except zmq.ZMQError:
                self.undelivered += 1

    def _watch_events(self) -> Any:
        """Return the socket that tells what becomes of connections, and of the address."""
        import zmq

        unproven = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        of_connections = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_ACCEPT_FAILED
        address = f"inproc://{id(self)}"
        self._socket.monitor(address, zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | unproven | of_connections)
        events = self._context.socket(zmq.PAIR)
        events.setsockopt(zmq.LINGER, 0)
        events.setsockopt(zmq.RCVHWM, 1)  # beside the 1,000 that the other side has by default
        events.connect(address)
        return events

    def _take_events(self) -> None:
        """Take some events. Raises NodeUnavailable: nobody can connect here any more."""
        import zmq

        for _ in range(EVENTS_AT_ONCE):
            if not self._events.getsockopt(zmq.EVENTS) & int(zmq.POLLIN):
                return
            event, value = self._next_event()
            if event == zmq.EVENT_ACCEPTED:
                self._connections.opened(value)
            elif event == zmq.EVENT_DISCONNECTED:
                self._connections.closed(value)
            elif event == zmq.EVENT_ACCEPT_FAILED:
                self._connections.refused(value)
            elif event != zmq.EVENT_CLOSED:
                self._refused()

    def _next_event(self) -> tuple[int, int]:
        """Return the next event, and its value: a descriptor or an errno."""
        event, value = _EVENT.unpack(self._events.recv_multipart()[0])
        return event, value

    def _free_address(self) -> None:
        """Close all when the address is free: ZeroMQ lets go of it in a thread of its own, and says so."""
        import zmq

        self._socket.unbind(self.address)
        deadline_s = time.monotonic() + UNBIND_TIMEOUT_S
        while self._events.poll(max(0, milliseconds_left(deadline_s))) and self._next_event()[0] != zmq.EVENT_CLOSED:
            pass
        while self._events.poll(0):  # while ZeroMQ waits for room for an event, nothing of it can be closed
            self._next_event()
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._socket.monitor(None, 0)
        self._context.destroy(linger=0)
