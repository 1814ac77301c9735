"""ClientSocket: the address of a node that pipelines and clients talk to.

A pipeline's messages (messages.py) go to the ingest handler, in order. A client's packets go to handlers by their kind,
each in a thread of its own, so that one which waits for a result holds nobody back. Clients ask over direct connections
(direct.py), once they have asked for a way to do so. One client has at most
PER_CLIENT_MAX requests under way, all together REQUESTS_MAX; beyond that a request is refused as busy.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from wukongs.errors import AccessError, NodeUnavailable
from wukongs.live.header import Frame, MessageError, read_header
from wukongs.wire.answering import Answerer, Post, Quick
from wukongs.wire.bound_socket import BoundSocket
from wukongs.wire.codec import ASK, MESSAGE_BYTES_MAX, Header, Sender, check_size, packet_header, sequence_in
from wukongs.wire.direct import DIRECT, open_port
from wukongs.wire.ingesting import IngestHandler, Ingesting, refused
from wukongs.wire.messages import sequence_of, to_frames
from wukongs.wire.packets import Handler, Packet
from wukongs.wire.replays import ClientReplays
from wukongs.wire.traffic import WireTraffic
from wukongs.wire.trust import Gate, Trust
from wukongs.wire.workers import Workers

PER_CLIENT_MAX = 32
REQUESTS_MAX = 256
CLOSE_TIMEOUT_S = 5.0
LAST_ANSWERS_S = 0.25
"""Connections stay so long behind the last answers: ZeroMQ drops, with a connection, an answer that has come but that
the client has not yet taken."""
_TOKEN_NEEDED = "message: expected a token that this node knows. Ask for one who runs it"


class ClientSocket:
    """handlers: answer packets, by kind; ingest: takes the messages of pipelines, None: nobody does. trust: files of
    keys and tokens, or what they say. quick: see Answerer. failed: called, from any thread, with an error that
    ends the socket.

    Garbage, another version or a torn message is refused and never ends a thread.
    Raises: SettingsError (an address that is malformed, needs keys, or cannot be bound; files of trust).
    """

    def __init__(
        self,
        address: str,
        handlers: Mapping[str, Handler],
        ingest: IngestHandler | None = None,
        *,
        trust: Trust | Gate | None = None,
        quick: Mapping[str, Quick] | None = None,
        per_client_max: int = PER_CLIENT_MAX,
        requests_max: int = REQUESTS_MAX,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        failed: Callable[[BaseException], object] = lambda _: None,
    ) -> None:
        self._per_client_max, self._message_bytes_max = per_client_max, message_bytes_max
        self.traffic = WireTraffic()
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        self._replays = ClientReplays()
        self.gate = trust if isinstance(trust, Gate) else (trust or Trust()).read()
        self._socket = BoundSocket(
            address,
            self._receive,
            name="wukongs-clients",
            gate=self.gate,
            refused=lambda: self.traffic.refused("stranger"),
            can_read=self._can_read,
            failed=failed,
        )
        self._ingesting = None if ingest is None else Ingesting(ingest, self._socket, self.traffic)
        self._workers = Workers("wukongs-client", requests_max, 0)
        self._answerer = Answerer(handlers, lambda _: self._workers, self.traffic, quick)
        self._direct = open_port(
            self.address,
            self.gate.pair is not None,
            lambda sender: isinstance(sender, str),
            self._answer_direct,
            failed,
            "wukongs-direct",
        )
        self._socket.start()

    @property
    def address(self) -> str:
        return self._socket.address

    def use(self, gate: Gate) -> None:
        """Let in others from now on. Raises SettingsError (its own key has changed)."""
        gate.check_follows(self.gate)
        is_any_out = bool(self.gate.allowed - gate.allowed) or self.gate.limited != gate.limited
        self.gate = gate
        self._socket.let_in(gate.allowed)
        if is_any_out and self._direct is not None:
            self._socket.call(self._direct.renew)  # by the thread that makes offers

    def stats(self) -> dict[str, int | dict[str, int]]:
        """Return the counters of traffic.py."""
        return {**self.traffic.stats(), "undelivered": self._socket.undelivered}

    def close(self) -> None:
        """Stop and free the address; may be called again. Messages without an acknowledgement were not taken."""
        if self._ingesting is not None:
            self._ingesting.close()
        is_asked = bool(self._under_way)
        self._workers.close(CLOSE_TIMEOUT_S)
        if self._direct is not None:
            self._direct.close()
        if is_asked:
            time.sleep(LAST_ANSWERS_S)
        self._socket.close()

    def _can_read(self) -> bool:
        return self._ingesting is None or not self._ingesting.is_full()

    def _receive(self, peer: bytes, frames: list[Frame]) -> bool:
        self.traffic.received(frames)
        post = partial(self._socket.post, peer)
        try:
            raw = read_header(frames[0] if frames else b"")
            grant = self.gate.grant_of(raw.get("token"), self._socket.key)
            if grant is None:
                raise MessageError(_TOKEN_NEEDED, "stranger", sequence_in(raw) if "way" in raw else 0)
            if "way" in raw:
                header = packet_header(raw, frames, self._message_bytes_max)._replace(grant=grant)
                client = _client_of(header)
                if not self._replays.is_new(client, header.sequence):
                    message = f"packet '{header.kind}': number {header.sequence} has come before"
                    raise MessageError(message, "replayed", header.sequence)
                if header.kind == DIRECT:
                    self.traffic.add("introductions")
                    # Nobody asks there for the key of a connection, so a client with a limited one stays here.
                    is_offered = self._direct is not None and self._socket.key not in self.gate.limited
                    offer = self._direct.offer(client) if self._direct is not None and is_offered else {}
                    self._answerer.send(post, Packet(DIRECT, offer), header.sequence)
                else:
                    self._take(client, post, header, frames, self._answerer.take)
            elif self._ingesting is not None:
                check_size(frames, self._message_bytes_max)
                try:
                    grant.check("ingest")
                except AccessError as error:
                    self.traffic.refused("stranger")
                    post(to_frames(refused(error), sequence_of(frames)))
                else:
                    self._ingesting.take(peer, frames)
            else:
                raise MessageError("message: streams are not taken at this address", "unknown kind")
        except MessageError as error:
            if error.sequence:
                self._answerer.refuse(post, error.sequence, error.reason, error)
            else:  # nobody's question: a message of a pipeline, or garbage
                self.traffic.refused(error.reason)
                answer = to_frames(refused(error), 0)
                self.traffic.sent(answer)
                post(answer)
            return error.reason == "replayed"
        return True

    def _answer_direct(self, sender: Sender, frames: list[Frame], post: Post) -> None:
        """Answer what a client asks over a connection of its own. Raises: MessageError (no question of that one)."""
        self.traffic.received(frames)
        try:
            raw = read_header(frames[0])
            grant = self.gate.grant_of(raw.get("token"))
            if grant is None:
                raise MessageError(_TOKEN_NEEDED, "stranger", sequence_in(raw))
            header = packet_header(raw, frames, self._message_bytes_max)._replace(grant=grant)
            if _client_of(header) != sender:
                raise MessageError(f"packet '{header.kind}': expected a question of another client")
            self._take(str(sender), post, header, frames, self._answerer.take_here)
        except MessageError as error:
            if not error.sequence:
                self.traffic.refused(error.reason)
                raise
            self._answerer.refuse(post, error.sequence, error.reason, error)

    def _take(self, client: str, post: Post, header: Header, frames: list[Frame], take: Callable[..., None]) -> None:
        with self._lock:
            is_free = self._under_way[client] < self._per_client_max
            if is_free:
                self._under_way[client] += 1
        if is_free:
            take(post, header, frames, lambda: self._leave(client))
        else:
            message = f"{self._per_client_max} requests of this client are under way, more are not taken. Ask again"
            self._answerer.refuse(post, header.sequence, "busy", NodeUnavailable(message))

    def _leave(self, client: str) -> None:
        with self._lock:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]


def _client_of(header: Header) -> str:
    """Return the name of the client that asks. Raises MessageError."""
    if header.way != ASK or not isinstance(header.sender, str):
        message = f"packet '{header.kind}': expected a question of a client with a name, found '{header.way}'"
        raise MessageError(message, sequence=header.sequence)
    return header.sender
