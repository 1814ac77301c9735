"""StreamWriter: the one node that writes what clients push to a stream. It gives the tuples their rows, cuts them at
stream batches, and sends every node its share; a push returns when it is safe on all nodes that take part.

Any node finds the writer of a stream by the same rule (`writer_of`), and hands a client's push on to it. When a writer
is gone the next one goes on from the rows that all nodes have, with a newer epoch, which locks the old one out. It
knows by the nodes which pushes count, and lets the client of an unfinished one say it again first (pushes.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from wukongs.cluster.feeding import Fed, feds_packet
from wukongs.cluster.host import Host
from wukongs.cluster.intake import Intake, LockedOut, PartitionAt, pushes_in, standings_in
from wukongs.cluster.members import ask_members, left_s, members_of
from wukongs.cluster.node_store import NodeStore
from wukongs.cluster.pushes import BOUND, TORN, Push, Pushes
from wukongs.errors import NodeUnavailable, OutcomeUnknown, StreamError, WukongsError
from wukongs.live.lateness import judge
from wukongs.live.pieces import Piece, timing_mask
from wukongs.live.stream_state import PUSH_PARTITION, batch_number
from wukongs.outcomes import Asked, Outcomes
from wukongs.protocol.control import Control
from wukongs.protocol.records import Role
from wukongs.protocol.state import Node
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded, TermCutter
from wukongs.wire.packets import Packet, Peers
from wukongs.wire.sharding import split_piece

log = logging.getLogger("wukongs")
Outcome: TypeAlias = Int64Array | WukongsError
"""The result of a call to one stream: the numbers of its late tuples, or an error."""
_NO_ROWS: Int64Array = np.empty(0, np.int64)
AGAIN_S = 20.0
"""So long the client of an unfinished push may take to say it again; others wait."""
TOGETHER_MAX = 1000
"""Pieces in one message: a push may span very many stream batches."""
TOGETHER_BYTES_MAX = 1 << 25
"""Bytes in one message that has what is said to several streams; one stream alone may say more."""


def writer_of(node: Node, stream: str) -> int:
    """Return the node that writes what is pushed to a stream: the same one for all who know the same members."""
    # The highest of a hash per node: a stream whose writer stays keeps it when another node goes.
    return max(sorted(node.control.with_role(Role.IN)), key=lambda member: crc32(f"{member} {stream}".encode()))


def size_of(encoded: Encoded) -> int:
    """Return about how many bytes tuples take in a message."""
    columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs, encoded.timestamps)
    terms = (encoded.terms.ids, encoded.terms.offsets, encoded.terms.text)
    return sum(array.nbytes for array in (*columns, *terms))


class Said(NamedTuple):
    """A call to one stream: its tuples, and the time to which it advances behind them. None: no tuples, no time."""

    encoded: Encoded | None
    advance_ms: int | None = None
    by: Asked | None = None


class Call(NamedTuple):
    """The tuples of a push: all, those that are on time, and the numbers of the others."""

    pushed: Encoded
    on_time: Encoded
    late: Int64Array


class Held(NodeUnavailable):
    """A call that has to wait, since the client of an unfinished push may still say that again."""


class DividedAnew(NodeUnavailable):
    """Shares are of an earlier placement of the shards: they are to be divided anew."""


class Delivery(NamedTuple):
    """A message of a writer to all nodes, and the tuples of the call that it is about, if it has some."""

    writer: StreamWriter
    told: Fed
    call: Call | None = None


Shares: TypeAlias = Mapping[int, Fed]
"""Each node's share of a message."""


@dataclass(eq=False, slots=True)
class Sent:
    """The result of a message. rooms: for how many more tuples of its stream each node has room; error: why the message
    is refused, or not known to be everywhere."""

    rooms: dict[int, int] = field(default_factory=dict)
    error: WukongsError | None = None


class Sender:
    """Sends the nodes what the writers of this node have to say: of several streams in one message, and at once."""

    def __init__(self, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._host, self._store, self._intake, self._peers = host, store, intake, peers

    def agree(self, calls: Sequence[Call], deadline: float) -> int | None:
        """Have the terms of calls agreed on, once for all nodes: else each of them would ask all others about the terms
        of its share. Return the view under which they are (Fed), None for no calls."""
        return self._intake.agree([call.on_time for call in calls], left_s(deadline)) if calls else None

    def send(self, told: Sequence[Shares], deadline: float, view: int | None = None) -> list[Sent]:
        """Send every node its shares of messages, each of another stream, until all members have them or refuse them.
        A node that has some of it already knows that as repeated. view: see feds_packet."""
        found = [Sent() for _ in told]
        for together in self._rounds(told):
            going = [(found[place], parts) for place, parts in together if found[place].error is None]
            try:
                self._ask(going, deadline, view)
            except WukongsError as error:
                for sent, _ in going:
                    sent.error = error
        for sent, shares in zip(found, told, strict=True):
            fed = shares[self._peers.me]
            if sent.error is None and (fed.pieces or fed.complete_ms is not None):  # An end alone begins nothing.
                try:
                    self._wait_until_begun(fed.stream, deadline)
                except WukongsError as error:
                    sent.error = error
        return found

    def _ask(self, going: Sequence[tuple[Sent, Shares]], deadline: float, view: int | None) -> None:
        def asked(control: Control) -> dict[int, Packet]:
            shares = [parts for _, parts in going]
            if any(fed.divided is not control.shards for parts in shares for fed in parts.values() if fed.pieces):
                raise DividedAnew("shards have gone to other nodes meanwhile")
            nodes = control.members
            return {node: feds_packet([parts[node] for parts in shares], control.index, view) for node in nodes}

        for node, answer in ask_members(self._host, self._peers, asked, left_s(deadline)).items():
            for (sent, _), standing in zip(going, standings_in(answer, len(going)), strict=True):
                if isinstance(standing, PartitionAt):
                    sent.rooms[node] = standing.room
                elif sent.error is None:
                    sent.error = standing

    def _rounds(self, told: Sequence[Shares]) -> list[list[tuple[int, Shares]]]:
        """Divide messages, by their places, among as few rounds as their sizes allow. Each is in as many as it needs,
        once in each of them."""
        rounds, pieces, size = list[list[tuple[int, Shares]]](), 0, 0
        for place, shares in enumerate(told):
            in_parts = {node: share.parts(TOGETHER_MAX) for node, share in shares.items()}
            for at in range(len(in_parts[self._peers.me])):
                parts = {node: of_node[at] for node, of_node in in_parts.items()}
                more = len(parts[self._peers.me].pieces)
                more_size = max(sum(size_of(piece.encoded) for piece in part.pieces) for part in parts.values())
                if not rounds or pieces + more > TOGETHER_MAX or size + more_size > TOGETHER_BYTES_MAX:
                    rounds.append([])
                    pieces, size = 0, 0
                rounds[-1].append((place, parts))
                pieces, size = pieces + more, size + more_size
        return rounds

    def _wait_until_begun(self, name: str, deadline: float) -> None:
        """Wait until the log says that the stream has begun: from there on no time passes without it."""

        def has_begun(node: Node) -> bool:
            stream = node.control.stream_named(name)
            return stream is None or stream.began is not None or stream.is_dropped

        if not has_begun(self._host.node):
            self._host.wait_until(has_begun, left_s(deadline), f"the record that stream {name} has begun")


class StreamWriter:
    """One stream's writer. Its calls come one after the other, in order of time.

    A call may end while some nodes only have what it says. That is sent again before anything else, so all nodes take
    the same in the same order."""

    def __init__(self, stream: str, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._stream, self._host, self._store, self._intake, self._peers = stream, host, store, intake, peers
        self._sender = Sender(host, store, intake, peers)
        self._lock = threading.Lock()
        self._epoch = 0
        self._offset = 0
        self._promised_ms: int | None = None
        self._is_closed = False
        self._had_ms: int | None = None
        """The time of the last rows that all nodes have."""
        self._found_to: int | None = None
        """Some nodes have the rows of a firing, up to here, and others lack them."""
        self._room: dict[int, int] = {}
        """Tuples for which each node had room, as it said last: a pipeline may have filled it since."""
        self._pushes = Outcomes()
        """The pushes of clients that all nodes have, as far as they are remembered."""
        self._torn: Push | None = None
        """A push that some nodes have, since its writer has gone in the middle of it."""
        self._torn_until = 0.0
        self._promised_behind: int | None = None
        """Up to where the stream is closed behind that one."""
        self._known: Sequence[Pushes] = ()
        """The pushes that each node knew when it was asked last."""
        self._left: Asked | None = None
        """A push that was torn for good, of which the nodes are told with the next one."""
        self._unfinished: tuple[Fed, Call | None] | None = None
        """The message that some nodes may have had, and, of a push, its tuples."""
        self._active_s = time.monotonic()
        """When the last call was over, or this node became the writer."""
        self._is_idle = False

    @property
    def stream(self) -> str:
        return self._stream

    def push(self, encoded: Encoded, timeout_s: float) -> Int64Array:
        """Add tuples in order of time, but for those that are late: return the numbers of these, which nobody is told
        of. Raises StreamError (nothing of the call was applied), NodeUnavailable (a node is away: it may have been
        applied on the others, and is as soon as there is another call. Say it again: it is applied once)."""
        return _alone(take_together([(self, Said(encoded))], timeout_s))

    def advance(self, time_ms: int, timeout_s: float) -> None:
        """Promise that nothing at or before a time will come. Raises StreamError (no SN can name the time),
        NodeUnavailable (a node is away: it is promised, and the others are told so with the next call)."""
        _alone(take_together([(self, Said(None, time_ms))], timeout_s))

    def judge(self, said: Said, deadline: float) -> tuple[Int64Array, Delivery | None]:
        """Be the writer, finish what the last call could not, and judge a call by where the stream stands. Return the
        numbers of its late tuples, and what all nodes are to be told, if it says anything new. In its turn."""
        known = self._begin(deadline, said.encoded if said.by is None else None)
        if said.by is not None and said.encoded is not None:
            known = self._done(said.by, said.encoded)
        encoded, late = (said.encoded, _NO_ROWS) if known is None else (None, known)
        if encoded is None and said.advance_ms is None:
            return late, None
        bound_ms = self._judged_by(said, deadline)
        self._check_is_open()
        if said.advance_ms is not None:
            self._store.stream(self._stream).check_range(said.advance_ms)
        self._be_active(deadline)
        if encoded is not None:
            found = self._pushed(encoded, said.advance_ms, said.by, bound_ms)
            return (_NO_ROWS if found.call is None else found.call.late), found
        assert said.advance_ms is not None, said
        if self._promised_ms is not None and said.advance_ms <= self._promised_ms:
            return late, None
        told = self._told((), self._offset, said.advance_ms, first_ms=said.advance_ms)
        return late, Delivery(self, told)

    def _done(self, by: Asked, encoded: Encoded) -> Int64Array | None:
        """Return the numbers of the late tuples of a client's push that all nodes have, None for one that they do not
        have. Raises OutcomeUnknown (some have it), StreamError (its client has given it up)."""
        found = self._pushes.of(by)
        if found is None:
            if self._pushes.is_over(by):
                raise StreamError(f"stream {self._stream}: push {by.number} of this client was given up")
            return None
        if TORN in found:
            raise OutcomeUnknown(
                f"stream {self._stream}: its writer went in the middle of this push, which was not said again within "
                f"{AGAIN_S:g} s: some nodes have it, and others do not"
            )
        state = self._store.stream(self._stream)
        lateness_ms = state.lateness_of(PUSH_PARTITION)
        return np.flatnonzero(judge(encoded.timestamps, found.get(BOUND), lateness_ms, state.carry_rule).is_late)

    def _judged_by(self, said: Said, deadline: float) -> int | None:
        """Return by which time a call's tuples are late. A push that some nodes have, and that is said again, is judged
        as it was before, and gets the same rows.

        Raises Held (another call, while that may still come)."""
        torn = self._torn
        if torn is not None:
            if torn.is_by(said.by) and said.encoded is not None:
                self._offset, self._promised_ms = torn.first_offset, torn.promised_ms
                return torn.bound_ms
            if time.monotonic() < self._torn_until:
                raise Held(f"stream {self._stream}: a push is unfinished, and its client may say it again. Try again")
            self._leave_torn(deadline)
        state = self._store.stream(self._stream)
        return state.idle_ms if state.lateness_of(PUSH_PARTITION) is None else self._promised_ms

    def _leave_torn(self, deadline: float) -> None:
        """Go on behind a push that some nodes have, and others never will."""
        torn, self._torn = self._torn, None
        if torn is None:
            return
        self._promised_ms = self._promised_behind
        log.warning("stream %s: its last writer went in the middle of a push: some of it lacks", self._stream)
        self._pushes = self._pushes.noted(torn.by, {TORN: 1}, torn.end_offset)
        self._left = torn.by
        found = self._standings(deadline)
        self._offset = max(standing.offset for standing in found.values())
        self._level(found, deadline)

    def _pushed(self, encoded: Encoded, advance_ms: int | None, by: Asked | None, bound_ms: int | None) -> Delivery:
        state, times = self._store.stream(self._stream), encoded.timestamps
        state.check_timestamps(times, PUSH_PARTITION)
        lateness_ms = state.lateness_of(PUSH_PARTITION)
        verdict = judge(times, bound_ms, lateness_ms, state.carry_rule)
        late, places = np.flatnonzero(verdict.is_late), np.flatnonzero(~verdict.is_late)
        numbers = None if verdict.numbers is None else verdict.numbers[places]
        order = np.argsort(times[places], kind="stable") if numbers is None else np.lexsort((times[places], numbers))
        places, numbers = places[order], None if numbers is None else numbers[order]
        in_time = times[places[~verdict.is_carried[places]]]
        first_ms = int(in_time[0]) if len(in_time) else None
        promised_ms = None if numbers is not None else self._promised_ms  # else its stream batch is open
        if first_ms is not None and promised_ms is not None and first_ms <= promised_ms:
            raise StreamError(
                f"stream {self._stream}: timestamp {first_ms} ms at tuple {places[0]} of the call, but the stream "
                f"already stands at {promised_ms + 1} ms: timestamps must not decrease. Nothing of this call was "
                "applied"
            )
        is_as_pushed = np.array_equal(places, np.arange(len(encoded)))
        on_time = encoded if is_as_pushed else TermCutter(encoded).cut(places)
        newest_ms = int(in_time[-1]) - (lateness_ms or 0) - 1 if len(in_time) else None
        promised = (self._promised_ms, newest_ms, advance_ms)
        complete_ms = max((ms for ms in promised if ms is not None), default=None)
        if first_ms is None and advance_ms is not None and advance_ms == complete_ms:
            first_ms = advance_ms
        told = self._told(self._pieces(on_time, numbers), self._offset + len(on_time), complete_ms, first_ms=first_ms)
        if carried_count := int(verdict.is_carried.sum()):
            counts = told.late_count + carried_count, told.carried_count + carried_count
            told = replace(told, late_count=counts[0], carried_count=counts[1])
        if len(late):
            dropped_count = told.dropped_count + int(timing_mask(encoded, state.timing)[late].sum())
            told = replace(told, late_count=told.late_count + len(late), dropped_count=dropped_count)
        if by is not None:
            push = Push(by, self._offset, self._offset + len(on_time), bound_ms, self._promised_ms)
            told = replace(told, push=push, torn=self._left)
        return Delivery(self, told, Call(encoded, on_time, late))

    def decide(self, at_ms: int, encoded: Encoded | None, timeout_s: float, first_ms: int | None = None) -> None:
        """Take what the firing at a time of the stream's query has brought, None: nothing. It says nothing new if that
        time is decided already. The rows come to all nodes before any of them closes the stream up to it. So the next
        writer and the next home of the query can tell what is decided. first_ms: from when on the stream is there,
        None: from at_ms.

        Raises StreamError (the stream was dropped: it takes nothing more), NodeUnavailable (a node is away, or has no
        room: say it again)."""
        with self.turn(time.monotonic() + timeout_s, timeout_s) as deadline:
            self._begin(deadline)
            if self._is_closed or (self._promised_ms is not None and at_ms <= self._promised_ms):
                return
            self._store.stream(self._stream).check_range(at_ms)
            if self._had_ms != at_ms:
                self._deliver_made(at_ms, encoded, deadline)
            first_ms = at_ms if first_ms is None else first_ms
            self._deliver(self._told((), self._offset, at_ms, first_ms=first_ms), deadline)

    def _deliver_made(self, at_ms: int, encoded: Encoded | None, deadline: float) -> None:
        count = 0 if encoded is None else len(encoded)
        found_to, self._found_to = self._found_to, None
        if found_to is not None and found_to != self._offset + count:
            # The nodes that have rows of this firing have others: a stream batch is a set, and theirs stay in it.
            stands_ms = self._promised_ms if self._promised_ms is not None else 0
            self._send(self._shares(self._told((), found_to, stands_ms)), deadline)
            self._offset = found_to
        if encoded is not None and count:
            told = self._told(self._pieces(encoded), first_ms=at_ms)
            try:
                self._deliver(told, deadline, Call(encoded, encoded, _NO_ROWS))
            except StreamError as error:
                if not self._store.stream(self._stream).is_dropped and self._room_lacks(told):
                    raise NodeUnavailable(str(error)) from error
                raise

    def _room_lacks(self, told: Fed) -> bool:
        shares = self._shares(told)
        counts = {node: sum(len(piece.encoded) for piece in share.pieces) for node, share in shares.items()}
        return any(counts[node] > self._room.get(node, 0) for node in members_of(self._host))

    def finish(self, timeout_s: float) -> None:
        """End what is pushed, and with it the stream if no pipeline's partition goes on. Raises as advance."""
        with self.turn(time.monotonic() + timeout_s, timeout_s) as deadline:
            if self._is_at_end(self._host.node):
                return
            self._begin(deadline)
            self._leave_torn(deadline)
            if not self._is_closed:
                self._deliver(self._told(is_last=True), deadline)
            what = f"the record that stream {self._stream} has ended"
            self._host.wait_until(self._has_ended, left_s(deadline), what)

    def let_idle(self, time_ms: int | None, silent_s: float, deadline: float) -> Delivery | None:
        """Return what closes the stream up to a time, if nothing was brought for silent_s seconds and that says
        anything new. time_ms: None: there is nothing to follow. In its turn. Raises NodeUnavailable, StreamError."""
        if time.monotonic() - self._active_s < silent_s:
            return None
        self._begin(deadline)
        if self._torn is not None or self._is_closed:
            return None
        if time_ms is not None and self._promised_ms is not None and time_ms <= self._promised_ms:
            time_ms = None
        if time_ms is None and self._is_idle:
            return None
        self._is_idle = True
        first_ms = None if time_ms is None else self._store.stream(self._stream).floor(time_ms)
        return Delivery(self, replace(self._told((), self._offset, time_ms, first_ms=first_ms), is_idle=True))

    @contextmanager
    def free_turn(self) -> Iterator[bool]:
        """Be the one call that is under way, unless there is one; tell which. It is no call of a client."""
        is_free = self._lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._lock.release()

    def _be_active(self, deadline: float) -> None:
        """Note that somebody brings something. Other idle streams follow this one from here on."""
        if self._is_idle:
            self._standings(deadline)
            self._is_idle = False

    @contextmanager
    def turn(self, deadline: float, timeout_s: float) -> Iterator[float]:
        """Be the one call that is under way, which has to end by a time; give that. Raises NodeUnavailable."""
        if not self._lock.acquire(timeout=left_s(deadline)):
            raise NodeUnavailable(
                f"stream {self._stream}: another call is under way, for longer than {timeout_s:g} s: a node is away, "
                "or has much to do. Nothing of this call was applied: say it again"
            )
        try:
            yield deadline
        finally:
            self._active_s = time.monotonic()
            self._lock.release()

    def _check_is_open(self) -> None:
        if self._is_closed:
            raise StreamError(f"stream {self._stream} is closed: declare a new one to push more")

    def _has_ended(self, node: Node) -> bool:
        """Tell whether nobody waits for the stream any more, or only for others. One that never began holds nobody
        back."""
        stream, intake = node.control.stream_named(self._stream), node.intakes.get(node.control.key_of(self._stream))
        if self._is_at_end(node) or stream is None or stream.began is None:
            return True
        return intake is not None and intake.last_batch(stream.partitions) is None

    def _is_at_end(self, node: Node) -> bool:
        stream = node.control.stream_named(self._stream)
        return stream is None or stream.last_batch is not None

    def _begin(self, deadline: float, encoded: Encoded | None = None) -> Int64Array | None:
        """Be the writer, and finish what the last call could not. If that was to push the same tuples, return which of
        them are late, else None."""
        self._open(deadline)
        if self._unfinished is None:
            return None
        told, call = self._unfinished
        self._deliver(told, deadline, call)
        return call.late if encoded is not None and call is not None and _is_same(call.pushed, encoded) else None

    def _deliver(self, told: Fed, deadline: float, call: Call | None = None) -> None:
        (error,) = deliver([Delivery(self, told, call)], deadline)
        if error is not None:
            raise error

    def shares(self, told: Fed, deadline: float) -> Shares:
        """Return each node's share of what is told next. Raises StreamError (a node has no room for it)."""
        shares = self._shares(told)
        if self._unfinished is None:
            self._check_room(shares, deadline)
        return shares

    def begin_to_tell(self, told: Fed, call: Call | None) -> None:
        """Note what is told from here on. If some node may have a part of it, it is to be finished first."""
        self._unfinished = told, call
        if not told.pieces and told.complete_ms is not None:
            self._promised_ms = told.complete_ms

    def have_told(self, told: Fed, sent: Sent, deadline: float) -> WukongsError | None:
        """Note what has come of it. Return why it is refused, or is not known to be everywhere."""
        self._room.update(sent.rooms)
        if isinstance(sent.error, StreamError):
            try:
                if self._nobody_has_more(deadline):
                    self._unfinished = None
                    return sent.error
            except WukongsError as error:
                return error
            unfinished = OutcomeUnknown(
                f"stream {self._stream}: some nodes have what was said last, and others refuse it: {sent.error}. Say "
                "it again: it is applied once"
            )
            unfinished.__cause__ = sent.error
            return unfinished
        if sent.error is not None:
            return OutcomeUnknown(str(sent.error)) if type(sent.error) is NodeUnavailable else sent.error
        self._unfinished = None
        if told.push is not None:
            self._pushes = self._pushes.noted(told.push.by, told.push.outcome, told.push.end_offset)
            self._torn = self._left = None
        if told.pieces:
            self._offset, self._had_ms = told.pieces[-1].end_offset, int(told.pieces[-1].encoded.timestamps[-1])
        if told.complete_ms is not None:
            self._offset, self._promised_ms = told.end_offset, told.complete_ms
        if told.is_last:
            self._is_closed = True
        return None

    def _nobody_has_more(self, deadline: float) -> bool:
        """Tell whether no node has rows, or an end, behind what all have; those of a dropped stream are nobody's."""
        control = self._host.node.control
        if not control.takes_in(control.key_of(self._stream)):
            return True
        try:
            standings = self._standings(deadline).values()
            return all(one.offset == self._offset and not one.is_ended for one in standings)
        except StreamError:  # another writer may have come: this one begins anew
            self._epoch = 0
            return False

    def _open(self, deadline: float) -> None:
        """Be the writer of the stream, from the first row that no node has.

        The last writer may have gone in the middle of a push. Then nobody was told that it was taken, and some nodes
        have its rows. They keep them, and the others go on behind them. The same holds for a push that this writer has
        not finished, if there was another writer since."""
        newest = self._intake.newest_epoch(self._stream, PUSH_PARTITION)
        if self._epoch and self._epoch >= newest:
            return
        self._unfinished, self._is_idle = None, False
        try:
            found = self._locked(newest, deadline)
            standings = found.values()
            self._offset, closed = (max(getattr(one, name) for one in standings) for name in ("offset", "closed"))
            state = self._store.stream(self._stream)
            self._had_ms, self._found_to = None, None
            self._know_pushes(standings)
            if state.is_made:
                self._offset, self._found_to = min(one.offset for one in standings), self._offset
            closed_ms = self._store.real_batch(self._store.key_of(self._stream), closed) * state.batch_ms
            self._promised_ms = closed_ms if closed else None
            stands_ms = self._store.stands_ms(self._stream)
            if stands_ms is not None and state.lateness_of(PUSH_PARTITION) is not None:
                self._promised_ms = max(stands_ms, closed_ms) if closed else stands_ms
            self._is_closed = any(standing.is_ended for standing in standings)
            self._promised_behind = self._promised_ms
            if self._torn is not None:
                return
            if not state.is_made and any(standing.offset != self._offset for standing in standings):
                log.warning("stream %s: its last writer went in the middle of a push: some of it lacks", self._stream)
            self._level(found, deadline)
        except BaseException:
            self._epoch = 0
            raise

    def _locked(self, newest: int, deadline: float) -> dict[int, PartitionAt]:
        """Lock earlier writers out, and return how far the nodes are. newest: the epoch of the last writer that this
        node knows. Another node may know of one behind that, whose clock was ahead."""
        while True:
            self._epoch = max(time.time_ns() // 1_000_000, newest + 1)
            try:
                return self._standings(deadline)
            except LockedOut as error:
                if error.newest < self._epoch or left_s(deadline) <= 0:
                    raise
                newest = error.newest

    def _level(self, found: Mapping[int, PartitionAt], deadline: float) -> None:
        """Let all nodes be as far as the one that is furthest; with rows, as far as this writer goes on from."""
        standings = found.values()
        closed = max(standing.closed for standing in standings)
        if len({standing._replace(room=0) for standing in standings}) > 1:
            closed_ms = self._store.real_batch(self._store.key_of(self._stream), closed) * self._batch_ms
            self._send(self._shares(self._told((), self._offset, closed_ms, self._is_closed)), deadline)

    def _know_pushes(self, standings: Collection[PartitionAt]) -> None:
        """Learn of all nodes which pushes count, and whether one is unfinished."""
        offsets = [standing.offset for standing in standings]
        lasts = [known.last for known in self._known if known.last is not None]
        begun = [push for push in lasts if push.first_offset <= min(offsets) < push.end_offset]
        self._torn = next((push for push in begun if push.first_offset < max(offsets)), None)
        self._torn_until, self._left = time.monotonic() + AGAIN_S, None
        self._pushes = Outcomes()
        for known in self._known:
            self._pushes = self._pushes.joined(known.settled(min(offsets)).outcomes)

    @property
    def _batch_ms(self) -> int:
        return self._store.stream(self._stream).batch_ms

    def _standings(self, deadline: float) -> dict[int, PartitionAt]:
        """Ask how far the nodes are; from here on they take nothing of earlier writers."""

        def asked(control: Control) -> dict[int, Packet]:
            return dict.fromkeys(control.members, feds_packet([self._told()], control.index))

        answers = ask_members(self._host, self._peers, asked, left_s(deadline))
        found = dict[int, PartitionAt]()
        self._known = [pushes_in(answer) for answer in answers.values()]
        for node, answer in answers.items():
            (standing,) = standings_in(answer, 1)
            if not isinstance(standing, PartitionAt):
                raise standing
            found[node] = standing
        self._room.update({node: standing.room for node, standing in found.items()})
        return found

    def _check_room(self, shares: Mapping[int, Fed], deadline: float) -> None:
        """Refuse a push that a node would have no room for: some would have it and others not. Raises StreamError."""
        counts = {node: sum(len(piece.encoded) for piece in share.pieces) for node, share in shares.items()}
        for is_last in (False, True):
            full = [node for node in sorted(members_of(self._host)) if counts[node] > self._room.get(node, 0)]
            if not full:
                for node, count in counts.items():
                    self._room[node] = self._room.get(node, 0) - count
                return
            if is_last:
                limit, after = "queued_bytes_max", ""
                if self._store.stream(self._stream).event_times is not None:
                    limit, after = f"{limit} or retraction_bytes_max", ", or declare it with a shorter history_ms"
                raise StreamError(
                    f"stream {self._stream}: {counts[full[0]]} more tuples would exceed {limit} at node "
                    f"{full[0]}, which has room for {self._room.get(full[0], 0)}: another stream holds this one back "
                    f"(see stats()['held_back_by']); advance or close that one, or raise {limit}{after}. Nothing of "
                    "this call was applied"
                )
            self._standings(deadline)

    def _pieces(self, encoded: Encoded, numbers: Int64Array | None = None) -> list[Piece]:
        """Cut tuples, sorted by stream batch and time, at stream batches. numbers : int64[n], the stream batch of each;
        None: that of its timestamp."""
        facts = self._store.stream(self._stream)
        cutter, pieces, lo = TermCutter(encoded), list[Piece](), 0
        ends = encoded.timestamps if numbers is None else numbers * facts.batch_ms
        while lo < len(encoded):
            number = batch_number(int(ends[lo]), facts.batch_ms)
            hi = int(np.searchsorted(ends, number * facts.batch_ms, "right"))
            part = encoded if hi - lo == len(encoded) else cutter.cut(np.arange(lo, hi))
            rows = self._offset + lo, self._offset + hi
            timing = timing_mask(part, facts.timing)
            pieces.append(Piece(self._stream, PUSH_PARTITION, self._epoch, *rows, 0, number, part, timing))
            lo = hi
        return pieces

    def _told(
        self,
        pieces: Sequence[Piece] = (),
        end_offset: int = 0,
        complete_ms: int | None = None,
        is_last: bool = False,
        first_ms: int | None = None,
    ) -> Fed:
        state = self._store.stream(self._stream)
        fed = Fed(self._stream, PUSH_PARTITION, self._epoch, pieces, end_offset, complete_ms, is_last)
        fed = replace(fed, late_count=state.late_count, dropped_count=state.dropped_count)
        return replace(fed, first_ms=first_ms, carried_count=state.carried_count)

    def _send(self, shares: Shares, deadline: float) -> None:
        (sent,) = self._sender.send([shares], deadline)
        while isinstance(sent.error, DividedAnew):
            (sent,) = self._sender.send([self._shares(shares[self._peers.me])], deadline)
        self._room.update(sent.rooms)
        if sent.error is not None:
            raise sent.error

    def _shares(self, told: Fed) -> dict[int, Fed]:
        control = self._host.node.control
        shards, shard_map = control.shards, self._store.map_of(control.shards, len(control.members))
        pieces: dict[int, list[Piece]] = {node: [] for node in range(shard_map.node_count)}
        for piece in told.pieces:
            for node, share in split_piece(piece, shard_map):
                pieces[node].append(share)
        return {node: replace(told, pieces=share, divided=shards) for node, share in pieces.items()}

    def divided(self, told: Fed) -> Shares:
        """Return each node's share by the shards of now."""
        return self._shares(told)

    @property
    def sender(self) -> Sender:
        return self._sender


def take_together(calls: Sequence[tuple[StreamWriter, Said]], timeout_s: float) -> list[Outcome]:
    """Have writers of one node, each of another stream, take calls: one message to each node has what all of them say.
    No stream hangs on what comes of the others. Return as StreamWriter.push: the numbers of late tuples, or the error.

    Raises NodeUnavailable (another call of one of the streams is under way: nothing was applied)."""
    deadline = time.monotonic() + timeout_s
    found, deliveries = list[Outcome](), dict[int, Delivery]()
    with ExitStack() as turns:
        for writer in sorted((writer for writer, _ in calls), key=lambda one: one.stream):  # no two wait in a circle
            turns.enter_context(writer.turn(deadline, timeout_s))
        for place, (writer, said) in enumerate(calls):
            try:
                late, delivery = writer.judge(said, deadline)
            except WukongsError as error:
                found.append(error)
            else:
                found.append(late)
                deliveries |= {} if delivery is None else {place: delivery}
        errors = deliver(list(deliveries.values()), deadline)
        for place, failure in zip(deliveries, errors, strict=True):
            if failure is not None:
                found[place] = failure
    return found


def let_idle_together(
    calls: Sequence[tuple[StreamWriter, int | None, float]], timeout_s: float
) -> dict[str, WukongsError | None]:
    """Close streams that bring nothing, each of another writer of this node: one message to each node has all of them.
    calls: time_ms and silent_s as of StreamWriter.let_idle; a stream with a call under way is left out. Return the
    streams that all nodes were told of, with None, and those of which that has failed, with the error."""
    deadline = time.monotonic() + timeout_s
    found, deliveries = dict[str, WukongsError | None](), list[Delivery]()
    with ExitStack() as turns:
        for writer, time_ms, silent_s in sorted(calls, key=lambda call: call[0].stream):
            with ExitStack() as turn:
                if not turn.enter_context(writer.free_turn()):
                    continue
                try:
                    delivery = writer.let_idle(time_ms, silent_s, deadline)
                except WukongsError as error:
                    found[writer.stream] = error
                    continue
                if delivery is not None:  # else pushes to the stream do not wait for what is told of others
                    deliveries.append(delivery)
                    turns.push(turn.pop_all())
        for delivery, failure in zip(deliveries, deliver(deliveries, deadline), strict=True):
            found[delivery.writer.stream] = failure
    return found


def deliver(deliveries: Sequence[Delivery], deadline: float) -> list[WukongsError | None]:
    """Tell all nodes what calls say, each of another stream and in its turn; it counts from then on. Return what keeps
    one from that; see StreamWriter.push."""
    found: list[WukongsError | None] = [None] * len(deliveries)
    going = dict[int, Shares]()
    for place, (writer, told, _) in enumerate(deliveries):
        try:
            going[place] = writer.shares(told, deadline)
        except WukongsError as error:
            found[place] = error
    if not going:
        return found
    sender = deliveries[0].writer.sender
    try:
        view = sender.agree([call for place in going if (call := deliveries[place].call) is not None], deadline)
    except WukongsError as error:
        return [error if place in going else one for place, one in enumerate(found)]
    for place in going:
        writer, told, call = deliveries[place]
        writer.begin_to_tell(told, call)
    for place, sent in zip(going, sender.send(list(going.values()), deadline, view), strict=True):
        writer, told, _ = deliveries[place]
        while isinstance(sent.error, DividedAnew):
            (sent,) = sender.send([writer.divided(told)], deadline, view)
        found[place] = deliveries[place].writer.have_told(deliveries[place].told, sent, deadline)
    return found


def _alone(outcomes: Sequence[Outcome]) -> Int64Array:
    (outcome,) = outcomes
    if isinstance(outcome, WukongsError):
        raise outcome
    return outcome


def _is_same(one: Encoded, other: Encoded) -> bool:
    names = ("subjects", "predicates", "objects", "graphs", "timestamps", "goes")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names) and (
        one.clashes.texts() == other.clashes.texts()
    )
