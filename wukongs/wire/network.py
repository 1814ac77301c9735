"""Network: one node's sockets to the other nodes of its cluster. Implements Peers.

* A node asks over connections of the asking thread's own (asking.py): direct ones (direct.py), once it has been let
  in, and else over ZeroMQ. It tells (without an answer) over one more connection per node, in order.
* Questions and tells of other nodes come in at one bound socket. Workers answer requests; the socket's thread hands
  tells on in order, to a callback that has to be quick.
* Every message names its sender's incarnation and a number; a message that has come once is refused.
* A life of a node is heard once it has introduced itself (INTRODUCE) and was let in, by `admit`; so a stranger, or a
  second process with a node's number, does not shut the node out. A node introduces itself before its first question,
  before its first tell, and again whenever the other says that it does not know it. `open_kinds` are answered to all.
* A tell may be lost: when the other is away, or takes no more. It is counted, and the protocol repeats it.
* All queues are bounded: by messages in the sockets, by requests_max here. Beyond that a request is refused as busy.
* Kinds of requests that wait for other kinds are kept apart from these (`waits`). Otherwise requests that wait for each
  other's answers might take all workers of two nodes, or all threads that may ask, and no answer would come.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from wukongs.errors import DataError, NodeUnavailable, WukongsError
from wukongs.live.header import Frame, MessageError
from wukongs.protocol.messages import Incarnation
from wukongs.wire.answering import Answerer, Post, Quick, unknown_kind
from wukongs.wire.asking import Asker, Question
from wukongs.wire.bound_socket import BoundSocket
from wukongs.wire.codec import ASK, MESSAGE_BYTES_MAX, TELL, Header, Sender, packet_of, read_packet_header, to_frames
from wukongs.wire.descriptors import Lack, is_lack
from wukongs.wire.direct import DIRECT, Way, open_port
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.refusals import error_in
from wukongs.wire.replays import NodeReplays
from wukongs.wire.traffic import WireTraffic
from wukongs.wire.transport import Line, check_address
from wukongs.wire.trust import Gate, Keys, Trust
from wukongs.wire.workers import Workers

CLOSE_TIMEOUT_S = 5.0
RENEW_S = 2.0
INTRODUCE = "introduce"
INTRODUCE_S = 0.1
"""How long after an introduction a node that tells something introduces itself again, if it is still not known."""


Admit: TypeAlias = Callable[[Incarnation, Incarnation | None, Packet], object]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Peer:
    """Another node. sequences: of all that goes to it, in whatever way; tells: under its lock, which also keeps what is
    told in the order of its numbers; taken_s: when it last took something (time.monotonic).

    knows_me: whether it has let in this life of this node, and has not said otherwise since; introduced_s,
    introduction: when that was last asked over `tells`, and the number of the question; refusal: why it does not let
    this life in; way: how it can be asked directly, if it can."""

    address: str
    tells: Line
    way: Way
    taken_s: float = field(default_factory=time.monotonic)
    knows_me: bool = False
    introduced_s: float = -INTRODUCE_S
    introduction: int = 0
    refusal: WukongsError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    sequences: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def know(self, answer: Packet) -> None:
        """Take what it answers to an introduction, or to anything over the line of tells."""
        self.knows_me = answer.kind == INTRODUCE
        self.way.take(answer, self.address)


class Network:
    """me: this life of this node; a second Network of the same one would be taken for a replay. handlers: answer
    requests, by kind; a request to the node itself is answered in the asking thread while other nodes answer, and its
    deadline is not watched. on_tell(sender, packet): is called with each tell, one at a time.

    introduction: the packet with which this node introduces itself; admit(life, known, introduction): raises a
    WukongsError if a life of another node may not be let in; known: the one that was let in before. It is called by the
    thread of the socket. open_kinds: kinds of requests that are answered to any life; failed: called with an error that
    ends the socket; exhausted: see Answerer; also called, with no kind, when this node could open no connection to
    others for a while.

    trust: the keys, needed where an address is not loopback; nodes need no tokens. quick: see Answerer. waits: groups
    of kinds whose handlers ask other nodes themselves, or wait for handlers that do. They may only ask for kinds of
    earlier groups, or of no group. Each group has workers_max, requests_max and asks_max of its own.

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
        introduction: Mapping[str, Any] | None = None,
        admit: Admit = lambda life, known, introduction: None,
        open_kinds: Collection[str] = (),
        failed: Callable[[BaseException], object] = lambda _: None,
        exhausted: Callable[[str, WukongsError], object] = lambda kind, error: None,
        quick: Mapping[str, Quick] | None = None,
        waits: Sequence[Collection[str]] = (),
        workers_max: int = 32,
        requests_max: int = 1024,
        asks_max: int = 64,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._me, self._handlers, self._on_tell = me, handlers, on_tell
        self._message_bytes_max = message_bytes_max
        self.traffic = WireTraffic()
        self._introduction = Packet(INTRODUCE, introduction or {})
        self._admit, self._open_kinds = admit, frozenset(open_kinds)
        self._peers: dict[int, _Peer] = {}
        self._keys: Keys | None = None
        self._replays = NodeReplays()
        self._refused_lives: dict[int, Incarnation] = {}
        self._levels = {kind: level for level, kinds in enumerate(waits, 1) for kind in kinds}
        levels = range(len(waits) + 1)
        self._workers = [
            Workers(f"wukongs-peers-{me.node}.{level}", workers_max, requests_max - workers_max) for level in levels
        ]
        self.gate = (trust or Trust()).read()
        self._exhausted, self._lack = exhausted, Lack()
        self._askers = [Asker(self.traffic, asks_max) for _ in levels]
        self._socket = BoundSocket(
            address,
            self._receive,
            name=f"wukongs-network-{me.node}",
            gate=self.gate,
            refused=lambda: self.traffic.refused("stranger"),
            failed=failed,
        )
        self._answerer = Answerer(
            handlers, lambda kind: self._workers[self._level(kind)], self.traffic, quick, exhausted
        )
        self._direct = open_port(
            self.address,
            self.gate.pair is not None,
            self._is_let_in,
            self._answer_direct,
            partial(exhausted, DIRECT),
            f"wukongs-direct-{me.node}",
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

        public_keys: of the other nodes, if this one has keys that not all have in common. Raises: SettingsError (a
        malformed address; no key)."""
        others = {node: address for node, address in addresses.items() if node != self.me}
        for address in others.values():
            check_address(address, allow_remote=self.gate.pair is not None)
        if self.gate.pair is not None:
            known_keys = {} if public_keys is None else public_keys
            shared = self.gate.pair.public if self.gate.is_shared else ""
            self._keys = Keys(self.gate.pair, {others[node]: known_keys.get(node, shared) for node in others})
        peers = {}
        for node, address in others.items():
            known = self._peers.get(node)
            if known is not None and known.address == address:
                peers[node] = known
            else:
                sequences = itertools.count(1) if known is None else known.sequences
                way = Way(self._me, partial(self.is_connected, node))
                peers[node] = _Peer(address, self._connect(address), way, sequences=sequences)
        old, self._peers = self._peers, peers
        for asker in self._askers:
            asker.keep_only({address for peer in peers.values() for address in _ways_to(peer)})
        for node, peer in old.items():
            if peers.get(node) is not peer:
                with peer.lock:
                    peer.tells.close()

    def ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        """Ask nodes at the same time, and return their answers in the order of the questions; see Peers."""
        deadline = time.monotonic() + timeout_s
        strangers: list[_Peer] = []
        try:
            return self._ask(asked, timeout_s, strangers)
        except NodeUnavailable:
            # A node that was started anew does not know this one, and did nothing: it can be asked again.
            if not strangers or time.monotonic() >= deadline:
                raise
        return self._ask(asked, deadline - time.monotonic(), [])

    def _ask(self, asked: Sequence[tuple[int, Packet]], timeout_s: float, strangers: list[_Peer]) -> list[Packet]:
        """strangers: gets the nodes that do not know this one."""
        begun_s = time.monotonic()
        mine = [place for place, (node, _) in enumerate(asked) if node == self.me]
        others = [place for place, (node, _) in enumerate(asked) if node != self.me]
        answers: dict[int, Packet] = {}

        failed: list[Exception] = []

        def answer_mine() -> None:
            try:
                for place in mine:
                    answers[place] = self._answer_mine(asked[place][1])
            except Exception as error:  # raised when the others are done
                failed.append(error)

        if others:
            asker = self._askers[max(self._level(asked[place][1].kind) for place in others)]
            self._introduce_to(
                [node for node, packet in asked if packet.kind not in self._open_kinds], asker, timeout_s
            )
            questions = [self._question(*asked[place], strangers) for place in others]
            found = asker.ask(questions, timeout_s, answer_mine, begun_s=begun_s)
            answers.update(zip(others, found, strict=True))
        else:
            answer_mine()
        if failed:
            raise failed[0]
        return [answers[place] for place in range(len(asked))]

    def _introduce_to(self, nodes: Sequence[int], asker: Asker, timeout_s: float) -> None:
        """Have those of some nodes let in this life that do not know it. Raises what they answer. Nodes that do and are
        connected are asked for another offer when it is time: one that is away would keep others from being asked."""
        peers = ((node, self._peers.get(node)) for node in nodes)
        found = {
            node: peer
            for node, peer in peers
            if peer and (not peer.knows_me or (peer.way.needs_offer() and self.is_connected(node)))
        }
        if found:
            questions = [self._question(node, self._introduction, []) for node in found]
            for peer, answer in zip(found.values(), asker.ask(questions, timeout_s), strict=True):
                peer.know(answer)

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

    def call(self, function: Callable[[], None]) -> None:
        """Have the thread that takes messages in call a quick function: see BoundSocket."""
        self._socket.call(function)

    def progress(self) -> list[tuple[bool, int]]:
        """Return the progress of the workers of each level (Workers), that of the kinds that wait for nobody first."""
        return [workers.progress for workers in self._workers]

    def is_connected(self, node: int) -> bool:
        """Tell whether there is a connection over which a node is told things."""
        peer = self._peers.get(node)
        if peer is None:
            return False
        with peer.lock:
            return self._peers.get(node) is peer and peer.tells.is_connected()

    def refusals(self) -> dict[int, WukongsError]:
        """Return why nodes do not let in this life of this node, by their numbers."""
        return {node: peer.refusal for node, peer in self._peers.items() if peer.refusal is not None}

    def use(self, gate: Gate) -> None:
        """Let in others from now on. Raises SettingsError (its own key has changed)."""
        gate.check_follows(self.gate)
        is_any_out = bool(self.gate.allowed - gate.allowed)
        self.gate = gate
        self._socket.let_in(gate.allowed)
        if is_any_out and self._direct is not None:
            self._socket.call(self._direct.renew)  # by the thread that makes offers

    def stats(self) -> dict[str, int | dict[str, int]]:
        """Return the counters of traffic.py."""
        return {**self.traffic.stats(), "undelivered": self._socket.undelivered}

    def close(self) -> None:
        """Stop, and free the address; may be called again. A caller that waits for an answer gets NodeUnavailable."""
        for asker in self._askers:
            asker.close()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for workers in self._workers:
            workers.close(max(0.0, deadline - time.monotonic()))
        if self._direct is not None:
            self._direct.close()
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
            now = time.monotonic()
            self._hear_of_me(peer)
            if self._send_introduction(peer, now):
                frames = to_frames(packet, TELL, next(peer.sequences), self._me)
                if peer.tells.send(frames):
                    peer.taken_s = now
                    self.traffic.told(frames)
                    return True
            if now - peer.taken_s > RENEW_S:
                old, peer.taken_s = peer.tells, now
                with suppress(NodeUnavailable):  # for want of descriptors, most of all: the next time, perhaps
                    peer.tells = self._connect(peer.address)
                    old.close()
            return False

    def _send_introduction(self, peer: _Peer, now: float) -> bool:
        """Send the introduction of this life to a node that does not know it yet, and not again within INTRODUCE_S.

        Return whether it is before all that is sent next. The connection may come to be right after a failed
        attempt, and the node refuses what it receives of a life without an introduction."""
        if peer.knows_me or now - peer.introduced_s < INTRODUCE_S:
            return True
        peer.introduction = next(peer.sequences)
        introduction = to_frames(self._introduction, ASK, peer.introduction, self._me)
        if not peer.tells.send(introduction):
            return False
        peer.introduced_s = now
        self.traffic.told(introduction)
        return True

    def _hear_of_me(self, peer: _Peer) -> None:
        """Take what a node has answered over the connection that it is told things by: whether it knows this life."""
        while (frames := peer.tells.received()) is not None:
            self.traffic.received(frames)
            try:
                header = read_packet_header(frames)
            except MessageError:
                continue
            answer = Packet(header.kind, header.fields)
            peer.know(answer)
            if header.sequence == peer.introduction:
                peer.refusal = error_in(answer)

    def _connect(self, address: str) -> Line:
        try:
            line = Line(address, self._keys)
        except NodeUnavailable as error:
            if is_lack(error) and self._lack.is_lasting():
                self._exhausted("", error)
            raise
        self._lack.end()
        return line

    def _is_let_in(self, sender: Sender) -> bool:
        return isinstance(sender, tuple) and sender[0] in self._peers and self._replays.life_of(sender[0]) == sender

    def _answer_direct(self, sender: Sender, frames: list[Frame], post: Post) -> None:
        """Answer what a life of another node asks that was let in. Raises: MessageError (no question of that one)."""
        self.traffic.received(frames)
        try:
            header = read_packet_header(frames, self._message_bytes_max)
        except MessageError as error:
            self._answerer.refuse(post, error.sequence, error.reason, error)
            raise
        if header.way != ASK or header.sender != sender:
            self.traffic.refused("malformed")
            raise MessageError(f"packet '{header.kind}': expected a question of {sender}")
        if self._is_let_in(sender):
            self._answerer.take_here(post, header, frames)
        else:
            self._answerer.refuse(post, header.sequence, "stranger", self._unknown(int(sender[0])))

    def _unknown(self, node: int) -> NodeUnavailable:
        return NodeUnavailable(
            f"node {self.me} does not know this life of node {node}: it has to introduce itself first"
        )

    def _question(self, node: int, packet: Packet, strangers: list[_Peer]) -> Question:
        peer = self._peers.get(node)
        if peer is None:
            raise NodeUnavailable(f"node {node}: not in this cluster, whose other nodes are {sorted(self._peers)}")
        sequence = next(peer.sequences)
        name = f"node {node} ({peer.address})"

        def note_stranger() -> None:
            peer.knows_me, peer.way.offer = False, None
            strangers.append(peer)

        offer = peer.way.offer if packet.kind not in self._open_kinds and packet.kind != INTRODUCE else None
        address = peer.address if offer is None else offer.address
        connect = partial(peer.way.connect, offer, partial(self._connect, peer.address))
        return Question(name, address, connect, sequence, to_frames(packet, ASK, sequence, self._me), note_stranger)

    def _receive(self, peer: bytes, frames: list[Frame]) -> bool:
        self.traffic.received(frames)
        post = partial(self._socket.post, peer)
        try:
            header = read_packet_header(frames, self._message_bytes_max)
        except MessageError as error:
            self._answerer.refuse(post, error.sequence, error.reason, error)
            return False
        if header.way not in (ASK, TELL):
            self.traffic.refused("malformed")
            return False
        if header.way == ASK and header.kind == INTRODUCE:
            return self._let_in(post, header, frames)
        if not self._is_admitted(post, header):
            return False
        if header.way == ASK:
            self._answerer.take(post, header, frames)
        else:
            self._tell(header, frames)
        return True

    def _sender(self, post: Post, header: Header) -> Incarnation | None:
        """Return the life of a node of this cluster that a message is from; None: it is refused."""
        sender = header.sender
        if isinstance(sender, tuple) and sender[0] in self._peers:
            return Incarnation(*sender)
        stranger = NodeUnavailable(f"node {self.me} does not know who asks. Ask again when all nodes know each other")
        self._answerer.refuse(post, header.sequence if header.way == ASK else 0, "stranger", stranger)
        return None

    def _let_in(self, post: Post, header: Header, frames: Sequence[Frame]) -> bool:
        """Answer an introduction: from now on this life of its node is heard, or it is refused. Return whether it was
        let in."""
        sender = self._sender(post, header)
        if sender is None:
            return False
        known = self._replays.life_of(sender.node)
        try:
            if known is not None and sender < known:
                raise NodeUnavailable(f"node {sender.node} was started anew: this is an earlier life of it. End it")
            if sender != known:
                self._admit(sender, known, packet_of(header, frames))
        except WukongsError as error:
            if self._refused_lives.get(sender.node) != sender:  # it will try again and again
                self._refused_lives[sender.node] = sender
                _log.warning("node %d, life %s, is not let in: %s", sender.node, sender[1:], error)
            self._answerer.refuse(post, header.sequence, "stranger", error)
            return False
        self._replays.let_in(sender)
        self.traffic.add("introductions")
        offer = {} if self._direct is None else self._direct.offer(sender)
        self._answerer.send(post, Packet(INTRODUCE, offer), header.sequence)
        return True

    def _is_admitted(self, post: Post, header: Header) -> bool:
        """Tell whether a message is from a life that was let in and comes for the first time; else refuse it."""
        sender = self._sender(post, header)
        if sender is None:
            return False
        if header.way == ASK and header.kind in self._open_kinds:
            return True
        if self._replays.life_of(sender.node) != sender:
            # A tell is answered, too: its sender has to know that nobody listens.
            self._answerer.refuse(post, header.sequence, "stranger", self._unknown(sender.node))
            return False
        if not self._replays.is_new(sender, header.sequence):
            replayed = MessageError(f"packet '{header.kind}': number {header.sequence} has come before")
            self._answerer.refuse(post, header.sequence if header.way == ASK else 0, "replayed", replayed)
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
        except DataError:  # malformed: a peer could fill the log with these
            self.traffic.refused("malformed")
        except Exception:
            _log.exception("what node %d told, '%s', could not be taken", header.sender[0], header.kind)
            self.traffic.add("failed")


def _ways_to(peer: _Peer) -> list[str]:
    return [peer.address] if peer.way.offer is None else [peer.address, peer.way.offer.address]
