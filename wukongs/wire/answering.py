"""Answering: a request that came in is given to a worker, and its answer, or the error it ends in, goes back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.live.header import Frame, MessageError
from wukongs.wire.codec import ANSWER, Header, packet_of, to_frames
from wukongs.wire.descriptors import is_lack
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.refusals import refusal
from wukongs.wire.traffic import WireTraffic
from wukongs.wire.workers import Task, Workers

Answered = TypeVar("Answered")

_log = logging.getLogger(__name__)

Post = Callable[[Sequence[Frame]], object]
"""Sends a message to who has asked; may be called from any thread."""
Reply = Callable[[Packet], None]
"""Sends the answer to a request; called once, from any thread."""
QUICK_BYTES_MAX = 1 << 14
"""A longer request is not quick."""


def unknown_kind(kind: str) -> DataError:
    return DataError(f"no requests of kind '{kind}' are answered here")


class Quick(Protocol):
    """Takes a request in the thread that has received it."""

    def __call__(self, packet: Packet, reply: Reply) -> bool:
        """Tell whether the reply is or will be called; False: the request is left to its handler. Everything else waits
        meanwhile."""


def at_once(answer: Callable[[Packet], Packet | None]) -> Quick:
    """Return what takes a request if there is an answer to it at once."""

    def take(packet: Packet, reply: Reply) -> bool:
        found = answer(packet)
        if found is not None:
            reply(found)
        return found is not None

    return take


class Answerer:
    """handlers: by kind, looked up at each request; workers: which of them answer a kind; quick: tried first, in the
    thread that has received a request, which saves changes of thread. exhausted: called
    with the kind of a request that found no memory, no file descriptor, or no thread at all, and the error: what comes
    next may end in the same way."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        workers: Callable[[str], Workers],
        traffic: WireTraffic,
        quick: Mapping[str, Quick] | None = None,
        exhausted: Callable[[str, WukongsError], object] = lambda kind, error: None,
    ) -> None:
        self._handlers, self._workers, self._traffic = handlers, workers, traffic
        self._quick, self._exhausted = {} if quick is None else quick, exhausted

    def take(
        self, post: Post, header: Header, frames: Sequence[Frame], done: Callable[[], None] = lambda: None
    ) -> None:
        """Have a request answered by a worker, which calls done() before it sends the answer; or refuse it."""
        self._take(post, header, frames, done, Workers.submit)

    def take_here(
        self, post: Post, header: Header, frames: Sequence[Frame], done: Callable[[], None] = lambda: None
    ) -> None:
        """Do the same as take in this thread, which may be kept, if the workers have not enough to do."""
        self._take(post, header, frames, done, Workers.do)

    def _take(
        self,
        post: Post,
        header: Header,
        frames: Sequence[Frame],
        done: Callable[[], None],
        way: Callable[[Workers, Task], bool],
    ) -> None:
        kind = header.kind
        handler = self._handlers.get(kind)
        if handler is None:
            self.refuse(post, header.sequence, "unknown kind", unknown_kind(kind))
        elif kind in self._quick and self._is_taken(post, header, frames, done):
            return
        elif not way(self._workers(kind), lambda: self._answer(post, header, frames, handler, done)):
            busy = NodeUnavailable("the node is busy: as many requests wait as may, or no thread can start. Ask again")
            self.refuse(post, header.sequence, "busy", busy)
            if not self._workers(kind).has_threads:
                self._exhausted(kind, NodeUnavailable("no thread can be started that would answer other nodes"))
        else:
            return
        done()

    def refuse(self, post: Post, sequence: int, reason: str, error: WukongsError) -> None:
        """Count a request that is not taken, and tell the asker, if it can be told from the request."""
        self._traffic.refused(reason)
        if sequence:
            told = refusal(error)
            self.send(post, Packet(told.kind, {**told.fields, "is_stranger": reason == "stranger"}), sequence)

    def _is_taken(self, post: Post, header: Header, frames: Sequence[Frame], done: Callable[[], None]) -> bool:
        """Have a request taken in this thread, if it is quick."""
        if sum(map(len, frames)) > QUICK_BYTES_MAX:
            return False

        replied = threading.Lock()

        def reply(answer: Packet) -> None:
            if replied.acquire(blocking=False):  # what goes wrong in sending is no second answer
                self._traffic.add("requests")
                done()
                self.send(post, answer, header.sequence)

        try:
            packet = packet_of(header, frames)
        except MessageError:
            return False
        taken = self._handle(packet, partial(self._quick[header.kind], reply=reply))
        if isinstance(taken, Packet):
            reply(taken)
        return taken is not False

    def _answer(
        self, post: Post, header: Header, frames: Sequence[Frame], handler: Handler, done: Callable[[], None]
    ) -> None:
        try:
            packet = packet_of(header, frames)
            self._traffic.add("requests")
            answer = self._handle(packet, handler)
        except MessageError as error:
            self._traffic.refused(error.reason)
            answer = refusal(error)
        finally:
            done()
        self.send(post, answer, header.sequence)

    def _handle(self, packet: Packet, handler: Callable[[Packet], Answered]) -> Answered | Packet:
        try:
            return handler(packet)
        except WukongsError as error:
            return refusal(error)
        except MemoryError as error:
            self._exhausted(packet.kind, NodeUnavailable(f"no memory is left to answer '{packet.kind}' of other nodes"))
            return refusal(error)
        except Exception as error:
            if is_lack(error):
                lack = NodeUnavailable(f"no file descriptor is left to answer '{packet.kind}' of other nodes ({error})")
                self._exhausted(packet.kind, lack)
                return refusal(error)
            _log.exception("a request of kind '%s' failed", packet.kind)
            self._traffic.add("failed")
            return refusal(error)

    def send(self, post: Post, answer: Packet, sequence: int) -> None:
        """Send an answer; one that cannot be sent, most often since it is too big, becomes an error."""
        try:
            frames = to_frames(answer, ANSWER, sequence)
        except WukongsError as error:  # an answer that is too big, most of all
            frames = to_frames(refusal(error), ANSWER, sequence)
        self._traffic.sent(frames)
        post(frames)
