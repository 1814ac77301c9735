"""StreamWriter: the one node that writes what clients push to a stream. It gives the tuples their rows, cuts them at
stream batches, and sends every node its share; a push returns when it is safe on all nodes that take part.

Any node finds the writer of a stream by the same rule (`writer_of`), and hands a client's push on to it. When a writer
is gone the next one goes on from the rows that all nodes have, with a newer epoch, which locks the old one out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from wukongs.cluster.feeding import Fed, index_of
from wukongs.cluster.host import Host
from wukongs.cluster.intake import LOG_S, Intake, PartitionAt, standing_in
from wukongs.cluster.members import ask_members, await_word, left_s, members_of
from wukongs.cluster.node_store import NodeStore
from wukongs.errors import DataError, NodeUnavailable, StreamError, WukongsError
from wukongs.live.core import Core
from wukongs.live.lateness import late_mask
from wukongs.live.pieces import Piece, timing_mask
from wukongs.live.stream import Calls, Taken, partly_taken
from wukongs.live.stream_state import PUSH_PARTITION, StreamState, batch_number
from wukongs.protocol.records import Role
from wukongs.protocol.state import Node
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded, TermCutter
from wukongs.wire.packet_columns import column_of, count_of, text_of, time_of, timeout_of, tuples_in, tuples_packet
from wukongs.wire.packets import Packet, Peers
from wukongs.wire.sharding import split_piece

log = logging.getLogger("wukongs")
ToWriter: TypeAlias = "Callable[[StreamWriter, float], Int64Array | None]"
_NO_ROWS: Int64Array = np.empty(0, np.int64)
PUSH = "push"
RETRY_S = 0.05
TELL_S = 2.0
"""How much longer than the writer who has asked it waits, to hear which node it has waited for."""
TOGETHER_MAX = 1000
"""Pieces in one message: a push may span very many stream batches."""


def writer_of(node: Node, stream: str) -> int:
    """Return the node that writes what is pushed to a stream: the same one for all who know the same members."""
    # The highest of a hash per node: a stream whose writer stays keeps it when another node goes.
    return max(sorted(node.control.with_role(Role.IN)), key=lambda member: crc32(f"{member} {stream}".encode()))


class Call(NamedTuple):
    """The tuples of a push: all, those that are on time, and the numbers of the others."""

    pushed: Encoded
    on_time: Encoded
    late: Int64Array


class StreamWriter:
    """One stream's writer. Its calls come one after the other, in order of time.

    A call may end while some nodes only have what it says. That is sent again before anything else, so all nodes take
    the same in the same order."""

    def __init__(self, stream: str, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._stream, self._host, self._store, self._intake, self._peers = stream, host, store, intake, peers
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
        self._unfinished: tuple[Fed, Call | None] | None = None
        """The message that some nodes may have had, and, of a push, its tuples."""
        self._active_s = time.monotonic()
        """When the last call was over, or this node became the writer."""
        self._is_idle = False

    def push(self, encoded: Encoded, timeout_s: float) -> Int64Array:
        """Add tuples in order of time, but for those that are late: return the numbers of these, which nobody is told
        of. Raises StreamError (nothing of the call was applied), NodeUnavailable (a node is away: it may have been
        applied on the others, and is as soon as there is another call. Say it again: it is applied once)."""
        with self._turn(timeout_s) as deadline:
            late = self._begin(deadline, encoded)
            if late is None:
                self._check_is_open()
                self._be_active(deadline)
                late = self._push(encoded, deadline)
            return late

    def _push(self, encoded: Encoded, deadline: float) -> Int64Array:
        """Judge a call by where the stream stands, and deliver what is on time."""
        state, times = self._store.stream(self._stream), encoded.timestamps
        state.check_timestamps(times, PUSH_PARTITION)
        lateness_ms = state.lateness_of(PUSH_PARTITION)
        is_late = late_mask(times, state.idle_ms if lateness_ms is None else self._promised_ms, lateness_ms)
        late, places = np.flatnonzero(is_late), np.flatnonzero(~is_late)
        places = places[np.argsort(times[places], kind="stable")]
        first_ms = int(times[places[0]]) if len(places) else None
        if first_ms is not None and self._promised_ms is not None and first_ms <= self._promised_ms:
            raise StreamError(
                f"stream {self._stream}: timestamp {first_ms} ms at tuple {places[0]} of the call, but the stream "
                f"already stands at {self._promised_ms + 1} ms: timestamps must not decrease. Nothing of this call was "
                "applied"
            )
        is_as_pushed = np.array_equal(places, np.arange(len(encoded)))
        on_time = encoded if is_as_pushed else TermCutter(encoded).cut(places)
        complete_ms = self._promised_ms
        if len(places):
            newest_ms = int(on_time.timestamps[-1]) - (lateness_ms or 0) - 1
            complete_ms = newest_ms if complete_ms is None else max(newest_ms, complete_ms)
        told = self._told(self._pieces(on_time), self._offset + len(on_time), complete_ms, first_ms=first_ms)
        if len(late):
            dropped_count = told.dropped_count + int(timing_mask(encoded, state.timing)[late].sum())
            told = replace(told, late_count=told.late_count + len(late), dropped_count=dropped_count)
        self._deliver(told, deadline, Call(encoded, on_time, late))
        return late

    def decide(self, at_ms: int, encoded: Encoded | None, timeout_s: float, first_ms: int | None = None) -> None:
        """Take what the firing at a time of the stream's query has brought, None: nothing. It says nothing new if that
        time is decided already. The rows come to all nodes before any of them closes the stream up to it. So the next
        writer and the next home of the query can tell what is decided. first_ms: from when on the stream is there,
        None: from at_ms.

        Raises StreamError (the stream was dropped: it takes nothing more), NodeUnavailable (a node is away, or has no
        room: say it again)."""
        with self._turn(timeout_s) as deadline:
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

    def advance(self, time_ms: int, timeout_s: float) -> None:
        """Promise that nothing at or before a time will come. Raises StreamError (no SN can name the time),
        NodeUnavailable (a node is away: it is promised, and the others are told so with the next call)."""
        with self._turn(timeout_s) as deadline:
            self._begin(deadline)
            self._check_is_open()
            self._store.stream(self._stream).check_range(time_ms)
            self._be_active(deadline)
            if self._promised_ms is None or time_ms > self._promised_ms:
                self._deliver(self._told((), self._offset, time_ms, first_ms=time_ms), deadline)

    def finish(self, timeout_s: float) -> None:
        """End what is pushed, and with it the stream if no pipeline's partition goes on. Raises as advance."""
        with self._turn(timeout_s) as deadline:
            if self._is_at_end(self._host.node):
                return
            self._begin(deadline)
            if not self._is_closed:
                self._deliver(self._told(is_last=True), deadline)
            what = f"the record that stream {self._stream} has ended"
            self._host.wait_until(self._has_ended, left_s(deadline), what)

    def let_idle(self, time_ms: int | None, silent_s: float, timeout_s: float) -> None:
        """Close the stream up to a time, if nothing was brought for silent_s seconds. None: there is nothing to follow.
        Raises NodeUnavailable, StreamError."""
        if not self._lock.acquire(blocking=False):
            return  # A call is under way.
        try:
            deadline = time.monotonic() + timeout_s
            if time.monotonic() - self._active_s < silent_s:
                return
            self._begin(deadline)
            if time_ms is not None and self._promised_ms is not None and time_ms <= self._promised_ms:
                time_ms = None
            if not self._is_closed and (time_ms is not None or not self._is_idle):
                self._is_idle = True
                first_ms = None if time_ms is None else self._store.stream(self._stream).floor(time_ms)
                self._deliver(replace(self._told((), self._offset, time_ms, first_ms=first_ms), is_idle=True), deadline)
        finally:
            self._lock.release()

    def _be_active(self, deadline: float) -> None:
        """Note that somebody brings something. Other idle streams follow this one from here on."""
        if self._is_idle:
            self._standings(deadline)
            self._is_idle = False

    @contextmanager
    def _turn(self, timeout_s: float) -> Iterator[float]:
        """Be the one call that is under way; give the time by which it has to end. Raises NodeUnavailable."""
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
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
        """Tell all nodes what a call says; it counts from then on. If some node may have a part of it, it is to be
        finished first."""
        shares = self._shares(told)
        if self._unfinished is None:
            self._check_room(shares, deadline)
        # Once for all nodes: else each of them would ask all others about the terms of its share.
        view = None if call is None else self._intake.agree(call.on_time, left_s(deadline))
        self._unfinished = told, call
        if call is None and told.complete_ms is not None:
            self._promised_ms = told.complete_ms
        try:
            self._send(shares, deadline, view)
        except StreamError as error:
            if self._nobody_has_more(deadline):
                self._unfinished = None
                raise
            raise NodeUnavailable(
                f"stream {self._stream}: some nodes have what was said last, and others refuse it: {error}. Say it "
                "again: it is applied once"
            ) from error
        self._unfinished = None
        if told.pieces:
            self._offset, self._had_ms = told.pieces[-1].end_offset, int(told.pieces[-1].encoded.timestamps[-1])
        if told.complete_ms is not None:
            self._offset, self._promised_ms = told.end_offset, told.complete_ms
        if told.is_last:
            self._is_closed = True

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
        self._epoch, self._unfinished = max(time.time_ns() // 1_000_000, newest + 1), None
        self._is_idle = False
        try:
            standings = self._standings(deadline).values()
            self._offset, closed = (max(getattr(one, name) for one in standings) for name in ("offset", "closed"))
            state = self._store.stream(self._stream)
            self._had_ms, self._found_to = None, None
            if state.is_made:
                self._offset, self._found_to = min(one.offset for one in standings), self._offset
            closed_ms = self._store.real_batch(self._store.key_of(self._stream), closed) * state.batch_ms
            self._promised_ms = closed_ms if closed else None
            stands_ms = self._store.stands_ms(self._stream)
            if stands_ms is not None and state.lateness_of(PUSH_PARTITION) is not None:
                self._promised_ms = max(stands_ms, closed_ms) if closed else stands_ms
            self._is_closed = any(standing.is_ended for standing in standings)
            if not state.is_made and any(standing.offset != self._offset for standing in standings):
                log.warning("stream %s: its last writer went in the middle of a push: some of it lacks", self._stream)
            if len({standing._replace(room=0) for standing in standings}) > 1:
                self._send(self._shares(self._told((), self._offset, closed_ms, self._is_closed)), deadline)
        except BaseException:
            self._epoch = 0
            raise

    def _standings(self, deadline: float) -> dict[int, PartitionAt]:
        """Ask how far the nodes are; from here on they take nothing of earlier writers."""
        asked, nodes = self._told().packet(self._index), range(self._store.shard_map.node_count)
        answers = ask_members(self._host, self._peers, dict.fromkeys(nodes, asked), left_s(deadline))
        found = {node: standing_in(answer) for node, answer in answers.items()}
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
                raise StreamError(
                    f"stream {self._stream}: {counts[full[0]]} more tuples would exceed queued_bytes_max at node "
                    f"{full[0]}, which has room for {self._room.get(full[0], 0)}: another stream holds this one back "
                    "(see stats()['held_back_by']); advance or close that one, or raise queued_bytes_max. Nothing of "
                    "this call was applied"
                )
            self._standings(deadline)

    @property
    def _index(self) -> int:
        return self._host.node.control.index

    def _pieces(self, encoded: Encoded) -> list[Piece]:
        """Cut tuples, sorted by time, at stream batches."""
        facts = self._store.stream(self._stream)
        cutter, pieces, lo = TermCutter(encoded), list[Piece](), 0
        while lo < len(encoded):
            number = batch_number(int(encoded.timestamps[lo]), facts.batch_ms)
            hi = int(np.searchsorted(encoded.timestamps, number * facts.batch_ms, "right"))
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
        return replace(fed, first_ms=first_ms, late_count=state.late_count, dropped_count=state.dropped_count)

    def _send(self, shares: Mapping[int, Fed], deadline: float, view: int | None = None) -> None:
        """Send every node its share of a message, until all members have it. A node that has some of it already knows
        that as repeated. view: see Fed.packet."""
        in_parts = {node: share.parts(TOGETHER_MAX) for node, share in shares.items()}
        for at in range(len(in_parts[self._peers.me])):
            asked = {node: parts[at].packet(self._index, view) for node, parts in in_parts.items()}
            answers = ask_members(self._host, self._peers, asked, left_s(deadline))
            self._room.update({node: standing_in(answer).room for node, answer in answers.items()})
        told = shares[self._peers.me]
        if told.pieces or told.complete_ms is not None:
            self._wait_until_begun(deadline)  # An end alone begins nothing.

    def _shares(self, told: Fed) -> dict[int, Fed]:
        shard_map = self._store.shard_map
        pieces: dict[int, list[Piece]] = {node: [] for node in range(shard_map.node_count)}
        for piece in told.pieces:
            for node, share in split_piece(piece, shard_map):
                pieces[node].append(share)
        return {node: replace(told, pieces=share) for node, share in pieces.items()}

    def _wait_until_begun(self, deadline: float) -> None:
        """Wait until the log says that the stream has begun: from there on no time passes without it."""

        def has_begun(node: Node) -> bool:
            stream = node.control.stream_named(self._stream)
            return stream is None or stream.began is not None or stream.is_dropped

        if not has_begun(self._host.node):
            self._host.wait_until(has_begun, left_s(deadline), f"the record that stream {self._stream} has begun")


def _is_same(one: Encoded, other: Encoded) -> bool:
    names = ("subjects", "predicates", "objects", "graphs", "timestamps")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names) and (
        one.clashes.texts() == other.clashes.texts()
    )


def _pushed(packet: Packet) -> ToWriter:
    """Return the call of the writer that a packet asks for. Raises DataError."""
    if "fired_ms" in packet.fields:
        fired_ms, made = time_of(packet, "fired_ms"), tuples_in(packet)
        if len(made) > 1 or any(not np.array_equal(one.timestamps, np.full(len(one), fired_ms)) for one in made):
            raise DataError(f"{PUSH}: expected tuples with the time of one firing, found others")
        first_ms = time_of(packet, "first_ms")
        return lambda writer, timeout_s: writer.decide(fired_ms, made[0] if made else None, timeout_s, first_ms)
    if packet.fields.get("is_last") is True:
        return StreamWriter.finish
    if "complete_ms" in packet.fields:
        time_ms = time_of(packet, "complete_ms")
        return lambda writer, timeout_s: writer.advance(time_ms, timeout_s)
    groups = tuples_in(packet)
    if len(groups) != 1 or not 0 < len(groups[0]) == len(groups[0].timestamps):
        raise DataError(f"{PUSH}: expected tuples with their times, found {len(groups)} groups of tuples")
    return lambda writer, timeout_s: writer.push(groups[0], timeout_s)


class Writers:
    """The writers of one node, and the way to those on others."""

    def __init__(self, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._host, self._store, self._intake, self._peers = host, store, intake, peers
        self._writers: dict[str, StreamWriter] = {}
        self._lock = threading.Lock()

    def push(self, stream: str, encoded: Encoded, timeout_s: float) -> Int64Array:
        """Add tuples to a stream, wherever its writer is; return the numbers of those that are late. Raises as
        StreamWriter.push."""
        return self._at_writer(stream, {}, lambda writer, left: writer.push(encoded, left), timeout_s, [encoded])

    def advance(self, stream: str, time_ms: int, timeout_s: float) -> None:
        told = {"complete_ms": time_ms}
        self._at_writer(stream, told, lambda writer, left: writer.advance(time_ms, left), timeout_s)

    def decide(self, stream: str, at_ms: int, encoded: Encoded | None, first_ms: int, timeout_s: float) -> None:
        """Tell the writer of a stream what a firing of its query has brought. Raises as StreamWriter.decide."""
        made = [] if encoded is None else [encoded]
        do: ToWriter = lambda writer, left: writer.decide(at_ms, encoded, left, first_ms)  # noqa: E731
        self._at_writer(stream, {"fired_ms": at_ms, "first_ms": first_ms}, do, timeout_s, made)

    def finish(self, stream: str, timeout_s: float) -> None:
        self._at_writer(stream, {"is_last": True}, StreamWriter.finish, timeout_s)

    def answer(self, packet: Packet) -> Packet:
        """Handler of PUSH: what another node's client pushes; the answer names the writer, if another node is it."""
        stream, index, timeout_s = text_of(packet, "stream"), index_of(packet), timeout_of(packet)
        do = _pushed(packet)
        self._host.wait_for_record(index, LOG_S)
        at = writer_of(self._host.node, stream)
        if at != self._peers.me:
            return Packet(PUSH, {"writer": at})
        late = do(self.writer(stream), timeout_s)
        return Packet(PUSH) if late is None else Packet(PUSH, {"late_count": len(late)}, {"late": late})

    def _at_writer(
        self,
        stream: str,
        told: Mapping[str, Any],
        do: ToWriter,
        timeout_s: float,
        pushed: Sequence[Encoded] = (),
    ) -> Int64Array:
        """Call the writer of a stream if it is here, else tell its node the same. Return which tuples are late."""
        deadline = time.monotonic() + timeout_s
        while True:
            at = writer_of(self._host.node, stream)
            if at == self._peers.me:
                late = do(self.writer(stream), left_s(deadline))
                return _NO_ROWS if late is None else late
            # Whether a node that goes in the middle of it has done it is not known: who was silent before is not asked.
            await_word(self._host, at, left_s(deadline))
            if writer_of(self._host.node, stream) == at:
                seconds = left_s(deadline)
                fields = {"stream": stream, "index": self._host.node.control.index, "timeout_s": seconds, **told}
                (answer,) = self._peers.ask([(at, tuples_packet(PUSH, pushed, **fields))], seconds + TELL_S)
                if "writer" not in answer.fields:
                    return _NO_ROWS if "fired_ms" in told else _late_in(answer, sum(map(len, pushed)))
                if time.monotonic() >= deadline:
                    raise NodeUnavailable(
                        f"stream {stream}: the nodes did not agree within {timeout_s:g} s who writes it"
                    )
                time.sleep(RETRY_S)  # until both know of the same members

    def writer(self, stream: str) -> StreamWriter:
        """Return the writer at this node, whether it is the one that all nodes know or not."""
        control = self._host.node.control
        key = control.key_of(stream)  # another one may have been declared under the name
        with self._lock:
            writer = self._writers.get(key)
            if writer is None:
                self._writers = {known: one for known, one in self._writers.items() if control.takes_in(known)}
                writer = self._writers[key] = StreamWriter(stream, self._host, self._store, self._intake, self._peers)
            return writer


def _late_in(answer: Packet, count: int) -> Int64Array:
    """Return the numbers of the late tuples of a push of so many. Raises DataError."""
    if not count:
        return _NO_ROWS
    late: Int64Array = column_of(answer, "late", np.int64, count_of(answer, "late_count"))
    if len(late) and (late[0] < 0 or late[-1] >= count or (late[1:] <= late[:-1]).any()):
        raise DataError(f"{PUSH}: expected the ascending numbers of late tuples, of {count}, found others")
    return late


PUSH_S = 60.0
"""How long the nodes may take to have what was pushed."""


class ClusterSink:
    """See wukongs.live.stream.Sink: what it takes is safe on all nodes. Raises also NodeUnavailable.

    store: adds late tuples to the stored graph, those without a graph of their own to the one that is named."""

    def __init__(self, core: Core, writers: Writers, store: Callable[[Encoded, str | None], object]) -> None:
        self._core, self._writers, self._store = core, writers, store

    def take_all(self, calls: Calls, advance_ms: int | None = None) -> Taken:
        """One stream after the other: each writer judges its own. If one refuses, the error names the streams that have
        their tuples already. If it refuses to advance, streams before it have advanced."""
        for state, _ in calls:
            self._check_is_open(state)
        late, taken = list[Int64Array](), list[str]()
        try:
            for state, encoded in calls:
                late.append(self._take(state, encoded) if encoded is not None and len(encoded) else _NO_ROWS)
                taken += [state.iri] if encoded is not None and len(encoded) else []
            if advance_ms is not None:
                for state, _ in calls:
                    self._writers.advance(state.iri, advance_ms, PUSH_S)
        except WukongsError as error:
            return late, partly_taken(error, taken)
        return late, None

    def _take(self, state: StreamState, encoded: Encoded) -> Int64Array:
        late = self._writers.push(state.iri, encoded, PUSH_S)
        timeless = late[~timing_mask(encoded, state.timing)[late]]
        if len(timeless):
            quads = replace(TermCutter(encoded).cut(timeless), timestamps=_NO_ROWS)
            try:
                self._store(quads, state.into_iri)
            except WukongsError as error:
                raise NodeUnavailable(
                    f"stream {state.iri}: the tuples that are on time were taken; {len(timeless)} late ones may not be "
                    f"in the stored graph: load them. {error}"
                ) from error
        return late

    def end(self, state: StreamState) -> None:
        """A stream that pipelines feed as well goes on until they are at their end."""
        if state.is_made:
            self._check_is_open(state)
        if not (state.is_ended or state.is_dropped or self._core.is_closed):
            self._writers.finish(state.iri, PUSH_S)

    def _check_is_open(self, state: StreamState) -> None:
        with self._core.lock:
            self._core.check_is_open()
            state.check_is_open()
