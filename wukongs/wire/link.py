"""IngestLink: the writer's side of the ingest protocol, to all nodes at once.

Invariants:

* a piece is kept until its nodes have acknowledged it, and is sent again when the answer is late (nodes drop repeats);
* the unacknowledged pieces of one node are bounded in bytes: `send` waits (back-pressure);
* Close and Finish are sent only when every piece before them is acknowledged, so no resend can come after its Close;
* a node that takes nothing for timeout_s while something is unacknowledged is reported by NodeUnavailable, by address;
* an error that a node names is raised here under the same name.

In a cluster, pieces go to the members, divided as the newest Place says. All nodes are asked anew for it once one says
that others take part by now (Ack.view), or that it does not take things as they stand (Moved), or is silent for long.
Then what is kept is divided and sent anew. Pieces that all members of a Place have acknowledged as such are safe, also
if others join: these take over what a member had before it knew of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

from wukongs.errors import DataError, NodeUnavailable, SettingsError, StreamError, WukongsError
from wukongs.live.header import Frame
from wukongs.live.pieces import Close, Finish, Open, Piece
from wukongs.wire.messages import Ack, Message, Moved, Opened, Place, Refused, from_frames, newest_close, to_frames
from wukongs.wire.refusals import named_error
from wukongs.wire.sharding import ShardMap, split_piece
from wukongs.wire.transport import DealerChannel
from wukongs.wire.trust import Keys

ASK_S, MOVED_S = 1.0, 0.1
"""Nodes are asked so often for their place, and those that are on their way."""


class Channel(Protocol):
    """Frames to one node and back."""

    def send(self, frames: Sequence[Frame], /) -> None: ...

    def receive(self, timeout_s: float, /) -> list[Frame] | None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Kept:
    """A whole piece, and how many nodes have yet to acknowledge their shares."""

    piece: Piece
    left: int = 0


@dataclass(slots=True)
class _Waiting:
    frames: list[Frame]
    size: int
    sent_s: float
    wait_s: float
    is_open: bool
    kept: int | None


@dataclass(slots=True)
class _Peer:
    """owes_s: since when it has taken nothing of what it was sent, None: it owes no answer; refused: its last one."""

    address: str
    channel: Channel
    owes_s: float | None = None
    refused: Refused | None = None
    unacknowledged_bytes: int = 0
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    opened: Opened | None = None

    def forget(self) -> None:
        self.waiting.clear()
        self.unacknowledged_bytes = 0
        self.owes_s = self.refused = None


class IngestLink:
    """A writer's connection to the ingest sockets of all nodes. Used by one thread of one process.

    place: how the cluster divides pieces, as another link has learned it; `open` learns it, too. window_bytes: what may
    be unacknowledged per node; resend_s, timeout_s: seconds. Raises: SettingsError (no address).
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        place: Place | None = None,
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
        self._clock = clock
        self._window_bytes, self._resend_s, self._timeout_s = window_bytes, resend_s, timeout_s
        self._token = token
        connect = channel or (lambda address: DealerChannel(address, keys))
        self._connect = lambda address: _Peer(address, connect(address))
        self._peers = [self._connect(address) for address in addresses]
        self._kept: dict[int, _Kept] = {}
        self._is_stale = False
        self._sequence = 0
        self.sent_bytes = 0
        self._use(place)

    def open(self, stream: str, partition: str, epoch: int) -> Opened:
        """Tell every node that this writer begins; return what they agree on, from the lowest resume_offset.

        closed_ms of what is returned: None if some nodes have more rows than others, which they know better. last_close
        is the newest one: all nodes have the rows before it, and it was at all nodes before later rows were sent.

        Raises: NodeUnavailable; SettingsError (not the addresses of the cluster's nodes, in their order); StreamError
        (nodes that disagree); whatever error a node answers.
        """
        self.flush()
        answers = list(self._ask(Open(stream, partition, epoch)).values())
        settings = {(one.batch_ms, one.into, one.timing, one.hash_bits) for one in answers}
        if len(settings) > 1:
            raise StreamError(
                f"stream {stream}: the nodes disagree on its settings: {settings}. Declare it once for all"
            )
        offsets = {one.resume_offset for one in answers}
        closed_ms = max((one.closed_ms for one in answers if one.closed_ms is not None), default=None)
        opened = replace(answers[0], resume_offset=min(offsets), closed_ms=closed_ms if len(offsets) == 1 else None)
        last_close = newest_close(one.last_close for one in answers)
        return replace(opened, place=self._place, last_close=last_close, offsets=tuple(sorted(offsets)))

    def send(self, piece: Piece) -> None:
        """Send each node its share; wait while a node has more than window_bytes unacknowledged.

        Raises: NodeUnavailable; whatever error a node answered, also to an earlier piece.
        """
        if self._is_stale:
            self._ask_anew([one.piece for one in self._kept.values()])
        self._sequence += 1
        self._kept[self._sequence] = _Kept(piece)
        self._give(self._sequence)

    def close_batches(
        self, stream: str, partition: str, epoch: int, end_offset: int, complete_ms: int, carried_count: int = 0
    ) -> None:
        """Wait until all pieces are acknowledged, then send a Close to every node and wait. Raises: as send."""
        self._announce(Close(stream, partition, epoch, end_offset, complete_ms, carried_count))

    def finish(self, stream: str, partition: str, epoch: int) -> None:
        """Tell every node that this partition is at its end. Raises: as send."""
        self._announce(Finish(stream, partition, epoch))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every node has acknowledged everything.

        Raises: NodeUnavailable (after timeout_s in all, or timeout_s of silence); whatever error a node answers.
        """
        deadline = None if timeout_s is None else self._clock() + timeout_s
        while not self._is_acknowledged(deadline):
            self._ask_anew([one.piece for one in self._kept.values()])

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
        while True:
            for node in self._members:
                self._post(self._peers[node], message)
            if self._is_acknowledged():
                return
            self._ask_anew([message])

    def _is_acknowledged(self, deadline: float | None = None) -> bool:
        """Wait until everything is acknowledged (True), or nodes are to be asked anew."""
        while waiting := [peer for peer in self._peers if peer.waiting]:
            if self._is_stale:
                break
            if deadline is not None and self._clock() >= deadline:
                raise self._unavailable(waiting[0])
            self._pump(waiting)
        return not self._is_stale

    # --- the place ----------------------------------------------------------------------------------------------------

    def _use(self, place: Place | None) -> None:
        """Divide pieces so from now on. Raises SettingsError (a cluster of other nodes)."""
        if place is not None:
            self._meet(place)
            if place.node_count != len(self._peers):
                raise SettingsError(f"{len(self._peers)} addresses for a cluster of {place.node_count} nodes")
        self._place = place
        self._members = _members(place, len(self._peers))
        self._map = ShardMap.even(len(self._peers)) if place is None else ShardMap.of(place)

    def _meet(self, place: Place) -> None:
        """Connect to the nodes that were added since the addresses were given."""
        lacking = min(len(place.added), place.node_count - len(self._peers))
        self._peers += [self._connect(address) for address in place.added[len(place.added) - max(0, lacking) :]]

    def _ask(self, message: Open) -> dict[int, Opened]:
        """Return what the members answer, by what the newest of the answers says, and divide pieces as it says. Others
        may be members meanwhile, so all are asked again and again. Nothing else may be under way."""
        for peer in self._peers:
            peer.opened = None
        while True:
            self._is_stale = False
            for peer in self._peers:
                if not peer.waiting:
                    self._post(peer, message)
            ends_s = self._clock() + ASK_S
            while (found := self._answers()) is None and self._clock() < ends_s:
                for peer in self._peers:
                    if peer.waiting or peer.opened is None:
                        self._take_replies(peer, 0.05)
                        self._resend(peer)
                if self._is_stale:
                    ends_s = min(ends_s, self._clock() + MOVED_S)
            if found is not None:
                for peer in self._peers:
                    peer.forget()
                self._is_stale = False
                return found

    def _answers(self) -> dict[int, Opened] | None:
        """Return the answers of all members, None if some are to come. Raises NodeUnavailable, SettingsError."""
        opened = {node: peer.opened for node, peer in enumerate(self._peers) if peer.opened is not None}
        newest = max((one.place for one in opened.values() if one.place is not None), key=_index, default=None)
        if newest is not None:
            self._check_places(opened, newest)
            self._meet(newest)
        members = _members(newest, len(self._peers))
        missing = [peer for peer in (self._peers[node] for node in members) if peer.opened is None]
        for peer in missing:
            self._check_answers(peer)
        if missing:
            return None
        self._use(newest)
        return {node: opened[node] for node in members}

    def _check_places(self, opened: Mapping[int, Opened], newest: Place) -> None:
        """Check that these are nodes of one cluster."""
        count = len(self._peers)
        for node, one in opened.items():
            place = one.place
            if place is None or place.node != node or place.node_count - len(place.added) > count:
                break
            if place.index == newest.index and place != replace(newest, node=node):
                break
        else:
            return
        places = [(self._peers[node].address, one.place) for node, one in opened.items()]
        found = ", ".join(
            f"{address} is {f'node {place.node} of {place.node_count}' if place else 'no node of a cluster'}"
            for address, place in places
        )
        raise SettingsError(
            f"addresses of {count} nodes: {found}. Expected all nodes of one cluster in the order of their "
            "numbers, as Engine.listen() returns them"
        )

    def _ask_anew(self, messages: Iterable[Piece | Close | Finish]) -> None:
        """Ask for the place by opening what these messages belong to, then send again what some members lack."""
        writers = dict.fromkeys(Open(one.stream, one.partition, one.epoch) for one in messages)
        while self._is_stale:
            for peer in self._peers:
                peer.waiting.clear()
                peer.unacknowledged_bytes = 0
            had = {
                (writer, node): opened.resume_offset for writer in writers for node, opened in self._ask(writer).items()
            }
            for number in list(self._kept):
                self._give(number, had)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _give(self, number: int, had: Mapping[tuple[Open, int], int] | None = None) -> None:
        """Send members their shares of a piece that is kept, but those of which it is known that they have them."""
        kept = self._kept[number]
        piece, writer = kept.piece, Open(kept.piece.stream, kept.piece.partition, kept.piece.epoch)
        lacking = {node for node in self._members if had is None or had.get((writer, node), 0) < piece.end_offset}
        kept.left = len(lacking)
        if not lacking:
            del self._kept[number]
            return
        index = None if self._place is None else self._place.index
        for node, share in split_piece(piece, self._map):
            if node in lacking:
                self._post(self._peers[node], replace(share, index=index), number)

    def _post(self, peer: _Peer, message: Message, kept: int | None = None) -> None:
        """kept: the number of the piece that it is a share of; it is sent later if nodes are to be asked anew."""
        self._sequence += 1
        frames = to_frames(message, self._sequence, self._token)
        size = sum(len(frame) for frame in frames)
        while peer.waiting and peer.unacknowledged_bytes + size > self._window_bytes and not self._is_stale:
            self._pump([peer])
        if self._is_stale and kept is not None:
            return
        now = self._clock()
        if peer.owes_s is None:
            peer.owes_s = now
        peer.waiting[self._sequence] = _Waiting(frames, size, now, self._resend_s, isinstance(message, Open), kept)
        peer.unacknowledged_bytes += size
        self.sent_bytes += size
        peer.channel.send(frames)
        self._take_replies(peer, 0.0)

    def _pump(self, peers: Iterable[_Peer]) -> None:
        """Take replies, send again what waits for too long, give up on a silent node."""
        for peer in peers:
            self._take_replies(peer, 0.05)
            self._check_answers(peer)
            self._resend(peer)

    def _resend(self, peer: _Peer) -> None:
        """Send again what waits for too long. In a cluster the nodes are asked first: it may be one no more."""
        now = self._clock()
        for one in peer.waiting.values():
            if now - one.sent_s < one.wait_s:
                continue
            if self._place is None or one.is_open:
                peer.channel.send(one.frames)
                one.sent_s, one.wait_s = now, one.wait_s * 2
            else:
                self._is_stale = True

    def _check_answers(self, peer: _Peer) -> None:
        """Raise NodeUnavailable if a node takes nothing for too long."""
        if peer.owes_s is not None and self._clock() - peer.owes_s >= self._timeout_s:
            raise self._unavailable(peer)

    def _unavailable(self, peer: _Peer) -> WukongsError:
        if peer.refused is not None:
            return error_of(peer.refused, peer.address)
        silent_s = 0.0 if peer.owes_s is None else self._clock() - peer.owes_s
        return NodeUnavailable(
            f"{peer.address}: no answer for {silent_s:.1f} s, {len(peer.waiting)} messages unacknowledged. Check that "
            "the engine listens there; nothing is lost, the pipeline sends again from the last acknowledged row"
        )

    def _take_replies(self, peer: _Peer, timeout_s: float) -> None:
        frames = peer.channel.receive(timeout_s)
        while frames is not None:
            self._take_reply(peer, frames)
            frames = peer.channel.receive(0.0)

    def _take_reply(self, peer: _Peer, frames: list[Frame]) -> None:
        try:
            reply, sequence = from_frames(frames)
        except DataError as error:
            raise DataError(f"{peer.address}: {error.message}") from None
        waited = peer.waiting.pop(sequence, None)
        if isinstance(reply, Refused) and (waited is not None or sequence == 0):  # 0: it could not even be read
            if self._place is None or reply.error != NodeUnavailable.__name__:
                self._forget()
                raise error_of(reply, peer.address)
            peer.refused, self._is_stale = reply, True
        if waited is None:
            return  # the second answer to something that was sent twice
        peer.unacknowledged_bytes -= waited.size
        if isinstance(reply, Moved):
            self._is_stale = True
        elif isinstance(reply, Opened):
            peer.opened = reply
        elif isinstance(reply, Ack):
            self._acknowledge(reply, waited)
        elif not isinstance(reply, Refused):
            raise DataError(f"{peer.address}: expected an answer, found a message '{type(reply).__name__}'")
        if isinstance(reply, Opened | Ack):
            peer.owes_s, peer.refused = self._clock() if peer.waiting else None, None

    def _acknowledge(self, ack: Ack, waited: _Waiting) -> None:
        if self._place is not None and ack.view > self._place.index:
            self._is_stale = True
        elif waited.kept is not None:
            kept = self._kept[waited.kept]
            kept.left -= 1
            if not kept.left:
                del self._kept[waited.kept]

    def _forget(self) -> None:
        """Give up what waits: after a refusal the caller decides anew, from the last acknowledged offset."""
        self._kept.clear()
        self._is_stale = False
        for peer in self._peers:
            peer.forget()


def _members(place: Place | None, count: int) -> Sequence[int]:
    """Return the nodes that take pieces, of so many."""
    return range(count) if place is None or not place.members else place.members


def _index(place: Place) -> int:
    return place.index


def error_of(refused: Refused, address: str = "") -> WukongsError:
    """Return the named error that a node answered, as one that can be raised here."""
    message = f"{address}: {refused.message}" if address else refused.message
    return named_error(refused.error, message, message)
