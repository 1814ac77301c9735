"""IngestLink: the writer's side of the ingest protocol, to all nodes at once.

Invariants:

* a piece is kept until its node has acknowledged it, and is sent again when the answer is late (nodes drop repeats);
* the unacknowledged pieces of one node are bounded in bytes: `send` waits (back-pressure);
* Close and Finish are sent only when every piece before them is acknowledged, so no resend can come after its Close;
* a node that says nothing for timeout_s while something is unacknowledged is reported by NodeUnavailable, by address;
* an error that a node names is raised here under the same name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

from wukongs.errors import DataError, NodeUnavailable, SettingsError, StreamError, WukongsError
from wukongs.live.header import Frame
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.wire.messages import Ack, Message, Opened, Place, Refused, from_frames, to_frames
from wukongs.wire.refusals import named_error
from wukongs.wire.sharding import ShardMap, split_piece
from wukongs.wire.transport import DealerChannel
from wukongs.wire.trust import Keys


class Channel(Protocol):
    """Frames to one node and back."""

    def send(self, frames: Sequence[Frame], /) -> None: ...

    def receive(self, timeout_s: float, /) -> list[Frame] | None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Waiting:
    frames: list[Frame]
    size: int
    sent_s: float
    wait_s: float


@dataclass(slots=True)
class _Peer:
    address: str
    channel: Channel
    heard_s: float
    unacknowledged_bytes: int = 0
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    opened: dict[int, Opened] = field(default_factory=dict)


class IngestLink:
    """A writer's connection to the ingest sockets of all nodes. Used by one thread of one process.

    shard_map: how pieces are divided; by default evenly, or as the nodes say to `open`. window_bytes: what may be
    unacknowledged per node; resend_s, timeout_s: seconds. Raises: SettingsError (no address).
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        shard_map: ShardMap | None = None,
        window_bytes: int = 64 << 20,
        resend_s: float = 5.0,
        timeout_s: float = 60.0,
        token: str | None = None,
        keys: Keys | None = None,
        channel: Callable[[str], Channel] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not addresses:
            raise SettingsError("addresses = []: expected the ingest address of every node")
        self.shard_map = ShardMap.even(len(addresses)) if shard_map is None else shard_map
        if self.shard_map.node_count != len(addresses):
            raise SettingsError(f"{len(addresses)} addresses for a shard map of {self.shard_map.node_count} nodes")
        self._clock = clock
        self._window_bytes, self._resend_s, self._timeout_s = window_bytes, resend_s, timeout_s
        self._token = token
        connect = channel or (lambda address: DealerChannel(address, keys))
        self._peers = [_Peer(address, connect(address), clock()) for address in addresses]
        self._sequence = 0
        self.sent_bytes = 0

    def open(self, stream: str, partition: str, epoch: int) -> Opened:
        """Tell every node that this writer begins; return what they agree on, from the lowest resume_offset.

        closed_ms of what is returned: None if some nodes have more rows than others, which they know better.

        Raises: NodeUnavailable; SettingsError (not the addresses of the cluster's nodes, in their order); StreamError
        (nodes that disagree); whatever error a node answers.
        """
        asked = [(peer, self._post(peer, Open(stream, partition, epoch))) for peer in self._peers]
        self.flush()
        answers = [peer.opened.pop(sequence) for peer, sequence in asked]
        settings = {(one.batch_ms, one.into, one.timing, one.hash_bits) for one in answers}
        if len(settings) > 1:
            raise StreamError(
                f"stream {stream}: the nodes disagree on its settings: {settings}. Declare it once for all"
            )
        self._check_places([one.place for one in answers])
        offsets = {one.resume_offset for one in answers}
        closed_ms = max((one.closed_ms for one in answers if one.closed_ms is not None), default=None)
        return replace(answers[0], resume_offset=min(offsets), closed_ms=closed_ms if len(offsets) == 1 else None)

    def _check_places(self, places: Sequence[Place | None]) -> None:
        """Check that these are all nodes of one cluster; from now on pieces are divided as it says."""
        first = places[0]
        if first is None and not any(places):
            return
        expected = [None if first is None else replace(first, node=node) for node in range(len(places))]
        if first is None or first.node_count != len(places) or list(places) != expected:
            found = ", ".join(
                f"{peer.address} is {f'node {place.node} of {place.node_count}' if place else 'no node of a cluster'}"
                for peer, place in zip(self._peers, places, strict=True)
            )
            raise SettingsError(
                f"addresses of {len(places)} nodes: {found}. Expected all nodes of one cluster in the order of their "
                "numbers, as Engine.listen() returns them"
            )
        self.shard_map = ShardMap.of(first)

    def send(self, piece: Piece) -> None:
        """Send each node its share; wait while a node has more than window_bytes unacknowledged.

        Raises: NodeUnavailable; whatever error a node answered, also to an earlier piece.
        """
        for node, share in split_piece(piece, self.shard_map):
            self._post(self._peers[node], share)

    def close_batches(self, stream: str, partition: str, epoch: int, end_offset: int, complete_ms: int) -> None:
        """Wait until all pieces are acknowledged, then tell every node and wait for them. Raises: as send."""
        self._announce(Close(stream, partition, epoch, end_offset, complete_ms))

    def finish(self, stream: str, partition: str, epoch: int) -> None:
        """Tell every node that this partition is at its end. Raises: as send."""
        self._announce(Finish(stream, partition, epoch))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every node has acknowledged everything.

        Raises: NodeUnavailable (after timeout_s in all, or timeout_s of silence); whatever error a node answers.
        """
        deadline = None if timeout_s is None else self._clock() + timeout_s
        while waiting := [peer for peer in self._peers if peer.waiting]:
            if deadline is not None and self._clock() >= deadline:
                raise _unavailable(waiting[0], self._clock() - waiting[0].heard_s)
            self._pump(waiting)

    def close(self) -> None:
        for peer in self._peers:
            peer.channel.close()

    def __enter__(self) -> IngestLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _announce(self, message: Close | Finish) -> None:
        self.flush()
        for peer in self._peers:
            self._post(peer, message)
        self.flush()

    def _post(self, peer: _Peer, message: Message) -> int:
        self._sequence += 1
        frames = to_frames(message, self._sequence, self._token)
        size = sum(len(frame) for frame in frames)
        while peer.waiting and peer.unacknowledged_bytes + size > self._window_bytes:
            self._pump([peer])
        now = self._clock()
        if not peer.waiting:
            peer.heard_s = now
        peer.waiting[self._sequence] = _Waiting(frames, size, now, self._resend_s)
        peer.unacknowledged_bytes += size
        self.sent_bytes += size
        peer.channel.send(frames)
        self._take_replies(peer, 0.0)
        return self._sequence

    def _pump(self, peers: Iterable[_Peer]) -> None:
        """Take replies, send again pieces that wait for too long, give up on a silent node."""
        for peer in peers:
            self._take_replies(peer, 0.05)
            now = self._clock()
            if peer.waiting and now - peer.heard_s >= self._timeout_s:
                raise _unavailable(peer, now - peer.heard_s)
            for one in peer.waiting.values():
                if now - one.sent_s >= one.wait_s:
                    peer.channel.send(one.frames)
                    one.sent_s, one.wait_s = now, one.wait_s * 2

    def _take_replies(self, peer: _Peer, timeout_s: float) -> None:
        frames = peer.channel.receive(timeout_s)
        while frames is not None:
            peer.heard_s = self._clock()
            self._take_reply(peer, frames)
            frames = peer.channel.receive(0.0)

    def _take_reply(self, peer: _Peer, frames: list[Frame]) -> None:
        try:
            reply, sequence = from_frames(frames)
        except DataError as error:
            raise DataError(f"{peer.address}: {error.message}") from None
        if isinstance(reply, Refused) and sequence == 0:  # the node could not even read the message
            self._forget()
            raise error_of(reply, peer.address)
        waited = peer.waiting.pop(sequence, None)
        if waited is None:
            return  # the second answer to something that was sent twice
        peer.unacknowledged_bytes -= waited.size
        if isinstance(reply, Refused):
            self._forget()
            raise error_of(reply, peer.address)
        if isinstance(reply, Opened):
            peer.opened[sequence] = reply
        elif not isinstance(reply, Ack):
            raise DataError(f"{peer.address}: expected an answer, found a message '{type(reply).__name__}'")

    def _forget(self) -> None:
        """Give up the waiting pieces: after a refusal the caller decides anew, from the last acknowledged offset."""
        for peer in self._peers:
            peer.waiting.clear()
            peer.unacknowledged_bytes = 0


def _unavailable(peer: _Peer, silent_s: float) -> NodeUnavailable:
    return NodeUnavailable(
        f"{peer.address}: no answer for {silent_s:.1f} s, {len(peer.waiting)} messages unacknowledged. "
        "Check that the engine listens there; nothing is lost, the pipeline sends again from the last acknowledged row"
    )


def error_of(refused: Refused, address: str = "") -> WukongsError:
    """Return the named error that a node answered, as one that can be raised here."""
    message = f"{address}: {refused.message}" if address else refused.message
    return named_error(refused.error, message, message)
