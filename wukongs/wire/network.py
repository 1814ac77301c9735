"""Network: one node's sockets to the other nodes of its cluster. Implements Peers.

* What a node asks, it asks over connections of the asking thread's own (asking.py); what it tells, without an answer,
  goes over one more connection per node, in order.
* What other nodes ask and tell comes in at one bound socket. Requests are answered by workers; what is told is handed
  on in order by the socket's thread, to a callback that has to be quick.
* Every message names its sender's incarnation and a number; what has come once, or from an earlier life, is refused.
* What a node tells may be lost: when the other is away, or takes no more. It is counted, and the protocol repeats.
* All queues are bounded: by messages in the sockets, by requests_max here. Beyond that a request is refused as busy.
* Kinds of requests that wait for other kinds are kept apart from these (`waits`): were all workers of two nodes, or all
  that may ask, taken by requests that wait for each other's answers, none of them would come.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wukongs.errors import NodeUnavailable
from wukongs.live.header import Frame, MessageError
from wukongs.protocol.messages import Incarnation
from wukongs.wire.answering import Answerer, unknown_kind
from wukongs.wire.asking import Asker, Question
from wukongs.wire.bound_socket import BoundSocket
from wukongs.wire.codec import ASK, MESSAGE_BYTES_MAX, TELL, Header, packet_of, read_packet_header, to_frames
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.replays import NodeReplays
from wukongs.wire.traffic import Traffic
from wukongs.wire.transport import Line, check_address
from wukongs.wire.trust import Keys, Trust
from wukongs.wire.workers import Workers

CLOSE_TIMEOUT_S = 5.0
RENEW_S = 2.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Peer:
    """Another node. sequences: of all that goes to it, in whatever way; tells: under its lock, which also keeps what is
    told in the order of its numbers; taken_s: when it last took something (time.monotonic)."""

    address: str
    tells: Line
    taken_s: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)
    sequences: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class Network:
    """me: this life of this node; a second Network of the same one would be taken for a replay. handlers: what answers
    requests, by kind; a request to the node itself is answered in the asking thread while other nodes answer, and its
    deadline is not watched. on_tell(sender, packet): what is told, one at a time.

    trust: the keys, needed where an address is not loopback; nodes need no tokens. quick: kinds of requests that are
    answered by the thread of the socket itself: what they take, everything else waits for. waits: groups of kinds whose
    handlers ask in turn, or wait for who does, but for kinds of groups before their own, or of none, only. Each group
    has workers_max, requests_max and asks_max of its own.

    Raises: SettingsError (an address that is malformed, needs keys, or cannot be bound; files of trust).
    """

    def __init__(
        self,
        me: Incarnation,
        address: str,
        handlers: Mapping[str, Handler],
        on_tell: Callable[[Incarnation, Packet], None],
        *,
        trust: Trust | None = None,
        quick: Collection[str] = (),
        waits: Sequence[Collection[str]] = (),
        workers_max: int = 32,
        requests_max: int = 1024,
        asks_max: int = 64,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._me, self._handlers, self._on_tell = me, handlers, on_tell
        self._message_bytes_max = message_bytes_max
        self.traffic = Traffic()
        self._peers: dict[int, _Peer] = {}
        self._keys: Keys | None = None
        self._replays = NodeReplays()
        self._levels = {kind: level for level, kinds in enumerate(waits, 1) for kind in kinds}
        levels = range(len(waits) + 1)
        self._workers = [
            Workers(f"wukongs-peers-{me.node}.{level}", workers_max, requests_max - workers_max) for level in levels
        ]
        self._gate = (trust or Trust()).read()
        self._askers = [Asker(self._connect, self.traffic, asks_max) for _ in levels]
        self._socket = BoundSocket(
            address,
            self._receive,
            name=f"wukongs-network-{me.node}",
            gate=self._gate,
            refused=lambda: self.traffic.refused("stranger"),
        )
        self._answerer = Answerer(
            handlers, lambda kind: self._workers[self._level(kind)], self.traffic, self._socket.post, quick
        )
        self._socket.start()

    @property
    def me(self) -> int:
        return self._me.node

    @property
    def address(self) -> str:
        """Where other nodes reach this one."""
        return self._socket.address

    def join(self, addresses: Mapping[int, str], public_keys: Mapping[int, str] | None = None) -> None:
        """Say where the other nodes are; may be called again when that changes. Messages of others are not taken.

        public_keys: of the other nodes, if this one has keys. Raises: SettingsError (a malformed address; no key)."""
        others = {node: address for node, address in addresses.items() if node != self.me}
        for address in others.values():
            check_address(address, allow_remote=self._gate.pair is not None)
        if self._gate.pair is not None:
            known_keys = {} if public_keys is None else public_keys
            self._keys = Keys(self._gate.pair, {others[node]: known_keys.get(node, "") for node in others})
        peers = {}
        for node, address in others.items():
            known = self._peers.get(node)
            if known is not None and known.address == address:
                peers[node] = known
            else:
                sequences = itertools.count(1) if known is None else known.sequences
                peers[node] = _Peer(address, self._connect(address), sequences=sequences)
        old, self._peers = self._peers, peers
        for asker in self._askers:
            asker.keep_only({peer.address for peer in peers.values()})
        for node, peer in old.items():
            if peers.get(node) is not peer:
                with peer.lock:
                    peer.tells.close()

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        """Ask nodes at the same time, and return their answers in the order of the questions; see Peers."""
        mine = [place for place, (node, _) in enumerate(asked) if node == self.me]
        others = [place for place, (node, _) in enumerate(asked) if node != self.me]
        answers: dict[int, Packet] = {}

        failed: list[Exception] = []

        def answer_mine() -> None:
            try:
                for place in mine:
                    answers[place] = self._answer_mine(asked[place][1])
            except Exception as error:  # to be raised when the others are done with what they were asked
                failed.append(error)

        if others:
            questions = [self._question(*asked[place]) for place in others]
            asker = self._askers[max(self._level(asked[place][1].kind) for place in others)]
            answers.update(zip(others, asker.ask(questions, timeout_s, answer_mine), strict=True))
        else:
            answer_mine()
        if failed:
            raise failed[0]
        return [answers[place] for place in range(len(asked))]

    def send(self, node: int, packet: Packet) -> bool:
        """Tell a node something; False: it was dropped, since the node is away, unknown, or takes no more."""
        if node == self.me:
            self._on_tell(self._me, packet)
            return True
        peer = self._peers.get(node)
        if peer is None or not self._tell_peer(node, peer, packet):
            self.traffic.add("dropped")
            return False
        return True

    def stats(self) -> dict[str, int | dict[str, int]]:
        """Return the counters of traffic.py."""
        return {**self.traffic.stats(), "undelivered": self._socket.undelivered}

    def close(self) -> None:
        """Stop, and free the address; may be called again. Who waits for an answer gets NodeUnavailable."""
        for asker in self._askers:
            asker.close()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for workers in self._workers:
            workers.close(max(0.0, deadline - time.monotonic()))
        self._socket.close()
        self.join({})

    def _level(self, kind: str) -> int:
        return self._levels.get(kind, 0)

    def _answer_mine(self, packet: Packet) -> Packet:
        handler = self._handlers.get(packet.kind)
        if handler is None:
            raise unknown_kind(packet.kind)
        return handler(packet)

    def _tell_peer(self, node: int, peer: _Peer, packet: Packet) -> bool:
        """Send, and connect anew where nothing has been taken for long: once a node has refused our key, ZeroMQ does
        not come back to it by itself, though it may know the key by now."""
        with peer.lock:
            if self._peers.get(node) is not peer:  # its connection is closed by now
                return False
            frames = to_frames(packet, TELL, next(peer.sequences), self._me)
            now = time.monotonic()
            if peer.tells.send(frames):
                peer.taken_s = now
                self.traffic.told(frames)
                return True
            if now - peer.taken_s > RENEW_S:
                peer.tells.close()
                peer.tells, peer.taken_s = self._connect(peer.address), now
            return False

    def _connect(self, address: str) -> Line:
        return Line(address, self._keys)

    def _question(self, node: int, packet: Packet) -> Question:
        peer = self._peers.get(node)
        if peer is None:
            raise NodeUnavailable(f"node {node}: not in this cluster, whose other nodes are {sorted(self._peers)}")
        sequence = next(peer.sequences)
        name = f"node {node} ({peer.address})"
        return Question(name, peer.address, sequence, to_frames(packet, ASK, sequence, self._me))

    def _receive(self, peer: bytes, frames: list[Frame]) -> None:
        self.traffic.received(frames)
        try:
            header = read_packet_header(frames, self._message_bytes_max)
        except MessageError as error:
            self._answerer.refuse(peer, error.sequence, error.reason, error)
            return
        if header.way == ASK:
            if self._is_admitted(peer, header):
                self._answerer.take(peer, header, frames)
        elif header.way == TELL:
            if self._is_admitted(peer, header):
                self._tell(header, frames)
        else:
            self.traffic.refused("malformed")

    def _is_admitted(self, peer: bytes, header: Header) -> bool:
        """Tell whether a message is from a node of this cluster and comes for the first time; else refuse it."""
        sender = header.sender
        asked = header.sequence if header.way == ASK else 0
        if not isinstance(sender, tuple) or sender[0] not in self._peers:
            stranger = NodeUnavailable(
                f"node {self.me} does not know who asks. Ask again when all nodes know each other"
            )
            self._answerer.refuse(peer, asked, "stranger", stranger)
            return False
        if not self._replays.is_new(sender, header.sequence):
            replayed = MessageError(f"packet '{header.kind}': number {header.sequence} has come before")
            self._answerer.refuse(peer, asked, "replayed", replayed)
            return False
        return True

    def _tell(self, header: Header, frames: Sequence[Frame]) -> None:
        assert isinstance(header.sender, tuple)
        try:
            packet = packet_of(header, frames)
        except MessageError as error:
            self.traffic.refused(error.reason)
            return
        self.traffic.add("told")
        try:
            self._on_tell(Incarnation(*header.sender), packet)
        except Exception:
            _log.exception("what node %d told, '%s', could not be taken", header.sender[0], header.kind)
            self.traffic.add("failed")
