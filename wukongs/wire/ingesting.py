"""Ingesting: the messages of pipelines, taken one after the other by a thread of their own.

So each writer's messages are handled in the order of their arrival, and a piece that takes long holds no client back.
Waiting messages are bounded in bytes. At the bound, the socket takes in nothing more until some of them are done, and
ZeroMQ holds the senders back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Protocol

from wukongs.errors import DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.live.header import Frame, MessageError
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.wire.bound_socket import BoundSocket
from wukongs.wire.messages import Ack, Message, Moved, Opened, Refused, from_frames, sequence_of, to_frames
from wukongs.wire.refusals import refusal
from wukongs.wire.traffic import WireTraffic

WAITING_BYTES_MAX = 1 << 30
CLOSE_TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)


class AskAnew(NodeUnavailable):
    """The writer is told that it has Moved."""


class IngestHandler(Protocol):
    """Handles a node's messages. One thread calls it, in the order of arrival of each writer.

    A return means that the message is safe, and is acknowledged. On a cluster it is the view that Ack names. A
    WukongsError is told to the writer, by name; AskAnew as Moved.
    """

    def open_partition(self, message: Open, /) -> Opened: ...

    def inject(self, piece: Piece, /) -> int | None: ...

    def close_batches(self, message: Close, /) -> int | None: ...

    def finish_partition(self, message: Finish, /) -> int | None: ...


class Ingesting:
    """A thread that decodes messages, calls the handler, acknowledges or refuses. Garbage never ends it."""

    def __init__(self, handler: IngestHandler, socket: BoundSocket, traffic: WireTraffic) -> None:
        self._handler, self._socket, self._traffic = handler, socket, traffic
        self._waiting: SimpleQueue[tuple[bytes, list[Frame]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._bytes = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="wukongs-ingest", daemon=True)
        self._thread.start()

    def is_full(self) -> bool:
        return self._bytes >= WAITING_BYTES_MAX

    def take(self, peer: bytes, frames: list[Frame]) -> None:
        with self._lock:
            self._bytes += sum(map(len, frames))
        self._waiting.put((peer, frames))

    def close(self) -> None:
        """Stop after the message that is being handled. Messages without an acknowledgement were not taken."""
        self._is_closing = True
        self._waiting.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            _log.warning("ingest: a message is still being handled after %g s; it is not waited for", CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (one := self._waiting.get()) is not None and not self._is_closing:
            peer, frames = one
            reply, sequence = self._answer(frames)
            with self._lock:
                was_full = self.is_full()
                self._bytes -= sum(map(len, frames))
            answer = to_frames(reply, sequence)
            self._traffic.sent(answer)
            self._socket.post(peer, answer)
            if was_full:
                self._socket.wake()

    def _answer(self, frames: Sequence[Frame]) -> tuple[Message, int]:
        try:
            message, sequence = from_frames(frames)
        except DataError as error:
            self._traffic.refused(error.reason if isinstance(error, MessageError) else "malformed")
            return refused(error), sequence_of(frames)
        except Exception as error:
            return self._failed(error), sequence_of(frames)
        self._traffic.add("ingested")
        try:
            return self._handle(message), sequence
        except AskAnew:
            return Moved(), sequence
        except WukongsError as error:
            return refused(error), sequence
        except Exception as error:
            return self._failed(error), sequence

    def _failed(self, error: Exception) -> Message:
        _log.error("ingest: a message could not be taken", exc_info=error)
        self._traffic.add("failed")
        return refused(error)

    def _handle(self, message: Message) -> Message:
        if isinstance(message, Open):
            return self._handler.open_partition(message)
        if isinstance(message, Piece):
            view = self._handler.inject(message)
            return Ack(message.stream, message.partition, message.end_offset, message.piece, view or 0)
        if isinstance(message, Close):
            view = self._handler.close_batches(message)
            return Ack(message.stream, message.partition, message.end_offset, -1, view or 0)
        if isinstance(message, Finish):
            view = self._handler.finish_partition(message)
            return Ack(message.stream, message.partition, -1, -1, view or 0)
        raise StreamError(f"a node takes open, piece, close and finish, found a message '{type(message).__name__}'")


def refused(error: BaseException) -> Refused:
    """Return the message that tells an error to a pipeline."""
    fields = refusal(error).fields
    return Refused(fields["error"], fields["message"])
