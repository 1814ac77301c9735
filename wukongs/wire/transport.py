"""Sockets: the one place with ZeroMQ. The ingest socket of a node, and the channel that a pipeline opens to it."""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from wukongs.errors import NodeUnavailable, SettingsError, StreamError, WukongsError
from wukongs.wire.messages import (
    Ack,
    Close,
    Finish,
    Frame,
    Message,
    Open,
    Opened,
    Piece,
    Refused,
    from_frames,
    sequence_of,
    to_frames,
)

MESSAGE_BYTES_MAX = 1 << 30
UNBIND_TIMEOUT_MS = 1000
_TCP = re.compile(r"tcp://(?P<host>\[[^\]]*\]|[^:\[\]]+):(?P<port>\d{1,5}|\*)")
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")

_log = logging.getLogger(__name__)
_contexts: dict[int, Any] = {}
_BELLS = itertools.count()


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


class IngestHandler(Protocol):
    """What a node does with what arrives. Called by one thread, in the order of arrival of each writer.

    A return means that the message is safe, and is acknowledged. A WukongsError is told to the writer, by name.
    """

    def open_partition(self, message: Open, /) -> Opened: ...

    def inject(self, piece: Piece, /) -> None: ...

    def close_batches(self, message: Close, /) -> None: ...

    def finish_partition(self, message: Finish, /) -> None: ...


class IngestSocket:
    """A thread with a bound ROUTER socket: decodes messages, calls the handler, acknowledges or refuses.

    Garbage, another version or a torn message is refused and never ends the thread.
    Raises: SettingsError (an address that is malformed, not loopback, or cannot be bound).
    """

    def __init__(self, address: str, handler: IngestHandler, *, allow_remote: bool = False) -> None:
        import zmq

        self._handler = handler
        self._socket = _context().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
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
        bell = f"inproc://bell-{next(_BELLS)}"  # id(self) would come again before ZeroMQ has let the name go
        self._bell = _context().socket(zmq.PAIR)
        self._bell.bind(bell)
        self._thread = threading.Thread(target=self._run, args=(bell,), name="wukongs-ingest", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and free the address; may be called again. What was not acknowledged was not taken."""
        if self._bell.closed:
            return
        if self._thread.is_alive():
            self._bell.send(b"")
            self._thread.join()
        self._bell.close(0)

    def _run(self, bell_address: str) -> None:
        import zmq

        bell = _context().socket(zmq.PAIR)
        bell.connect(bell_address)
        poller = zmq.Poller()
        poller.register(bell, zmq.POLLIN)
        poller.register(self._socket, zmq.POLLIN)
        try:
            while bell not in dict(poller.poll()):
                self._serve_one()
        finally:
            self._free_address()
            bell.close(0)

    def _free_address(self) -> None:
        """Close the socket when its address is free: ZeroMQ lets go of it in a thread of its own, and says so."""
        import zmq

        closed = self._socket.get_monitor_socket(zmq.EVENT_CLOSED)
        self._socket.unbind(self.address)
        closed.poll(UNBIND_TIMEOUT_MS)
        self._socket.disable_monitor()
        self._socket.close()

    def _serve_one(self) -> None:
        import zmq

        try:
            identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        reply, sequence = self._answer(frames)
        try:
            self._socket.send_multipart([identity, *to_frames(reply, sequence)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            _log.warning("ingest: a reply could not be sent: %s", error)

    def _answer(self, frames: Sequence[Frame]) -> tuple[Message, int]:
        sequence = 0
        try:
            message, sequence = from_frames(frames)
            return self._handle(message), sequence
        except WukongsError as error:
            return Refused(type(error).__name__, str(error)), max(sequence, sequence_of(frames))
        except Exception as error:
            _log.exception("ingest: the handler failed")
            return Refused("WukongsError", f"the node failed: {type(error).__name__}: {error}. See its log"), sequence

    def _handle(self, message: Message) -> Message:
        if isinstance(message, Open):
            return self._handler.open_partition(message)
        if isinstance(message, Piece):
            self._handler.inject(message)
            return Ack(message.stream, message.partition, message.end_offset, message.piece)
        if isinstance(message, Close):
            self._handler.close_batches(message)
            return Ack(message.stream, message.partition, message.end_offset, -1)
        if isinstance(message, Finish):
            self._handler.finish_partition(message)
            return Ack(message.stream, message.partition, -1, -1)
        raise StreamError(f"a node takes open, piece, close and finish, found a message '{type(message).__name__}'")


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
