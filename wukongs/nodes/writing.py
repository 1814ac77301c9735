"""StreamWriter: the one node that writes what clients push to a stream. It gives the tuples their rows, cuts them at
stream batches, and sends every node its share; a push returns when it is safe on all nodes that take part.

Any node finds the writer of a stream by the same rule (`writer_of`), and hands a client's push on to it. When a writer
is gone the next one goes on from the rows that all nodes have, with a newer epoch, which locks the old one out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from store.encoded import Encoded
from wukongs.errors import DataError, NodeUnavailable, StreamError
from wukongs.nodes.feeding import index_of, packed, unpacked
from wukongs.nodes.host import Host
from wukongs.nodes.intake import LOG_S, Intake
from wukongs.nodes.node_store import NodeStore
from wukongs.protocol.records import Role
from wukongs.protocol.state import Node
from wukongs.streams.stream_state import PUSH_PARTITION, batch_number
from wukongs.wire.messages import Close, Finish, Message, Open, Opened, Piece, timing_mask
from wukongs.wire.packets import Packet, Peers
from wukongs.wire.sharding import TermCutter, split_piece

PUSH = "push"
RETRY_S = 0.05
TOGETHER_MAX = 1000
"""Messages in one packet: a push may span very many stream batches."""


def writer_of(node: Node, stream: str) -> int:
    """Return the node that writes what is pushed to a stream: the same one for all who know the same members."""
    members = sorted(node.control.with_role(Role.IN))
    return members[crc32(stream.encode()) % len(members)]


class StreamWriter:
    """One stream's writer. Its calls come one after the other, in order of time."""

    def __init__(self, stream: str, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._stream, self._host, self._store, self._intake, self._peers = stream, host, store, intake, peers
        self._lock = threading.Lock()
        self._epoch = 0
        self._offset = 0
        self._promised_ms: int | None = None
        self._is_closed = False

    def push(self, encoded: Encoded, timeout_s: float) -> None:
        """Add tuples in order of time. Raises StreamError (nothing of the call was applied), NodeUnavailable (a node is
        away: it may have been applied on the others; say it again)."""
        with self._lock:
            self._open(timeout_s)
            times = encoded.timestamps
            self._store.stream(self._stream).check_timestamps(times, PUSH_PARTITION)
            if self._promised_ms is not None and int(times[0]) <= self._promised_ms:
                raise StreamError(
                    f"stream {self._stream}: timestamp {times[0]} ms at tuple 0 of the call, but the stream already "
                    f"stands at {self._promised_ms + 1} ms: timestamps must not decrease. Nothing of this call was "
                    "applied"
                )
            pieces = self._pieces(encoded)
            promised_ms = int(times[-1]) - 1
            self._send([*pieces, self._close(promised_ms, pieces[-1].end_offset)], timeout_s)
            self._offset = pieces[-1].end_offset
            self._promised_ms = promised_ms

    def advance(self, time_ms: int, timeout_s: float) -> None:
        """Promise that nothing at or before a time will come."""
        with self._lock:
            self._open(timeout_s)
            if self._promised_ms is None or time_ms > self._promised_ms:
                self._send([self._close(time_ms, self._offset)], timeout_s)
                self._promised_ms = time_ms

    def finish(self, timeout_s: float) -> None:
        """End the stream."""
        with self._lock:
            if not self._is_closed:
                self._open(timeout_s)
                self._send([Finish(self._stream, PUSH_PARTITION, self._epoch)], timeout_s)
                self._is_closed = True
                self._host.wait_until(self._has_ended, timeout_s, f"the record that stream {self._stream} has ended")

    def _has_ended(self, node: Node) -> bool:
        """Tell whether nobody waits for the stream any more. One that never began holds nobody back."""
        stream = node.control.streams.get(node.control.keys.get(self._stream, ""))
        return stream is None or stream.began is None or stream.last_batch is not None

    def _open(self, timeout_s: float) -> None:
        """Be the writer: of all nodes, from the row that all have."""
        if self._epoch:
            return
        epoch = time.time_ns() // 1_000_000
        message = Open(self._stream, PUSH_PARTITION, epoch)
        offsets = set()
        for answer in self._ask([(node, packed([message], self._index)) for node in self._members()], timeout_s):
            (opened,) = unpacked(answer)
            if not isinstance(opened, Opened):
                raise DataError(f"expected a node's place in stream {self._stream}, found {type(opened).__name__}")
            offsets.add(opened.resume_offset)
        self._offset, self._promised_ms = min(offsets), self._closed_ms()
        self._epoch = epoch

    @property
    def _index(self) -> int:
        return self._host.node.control.index

    def _closed_ms(self) -> int | None:
        """Return the time up to which earlier writers have closed the stream."""
        node = self._host.node
        intake = node.intakes.get(node.control.keys.get(self._stream, self._stream))
        closed = intake.partitions[PUSH_PARTITION].closed if intake and PUSH_PARTITION in intake.partitions else 0
        state = self._store.stream(self._stream)
        return (closed + state.shift) * state.batch_ms if closed else None

    def _members(self) -> list[int]:
        return sorted(self._host.node.control.with_role(Role.IN, Role.HOLDING, Role.JOINING))

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

    def _close(self, complete_ms: int, end_offset: int) -> Close:
        return Close(self._stream, PUSH_PARTITION, self._epoch, end_offset, complete_ms)

    def _send(self, messages: Sequence[Message], timeout_s: float) -> None:
        """Send every node its share of some messages, in order, until all that take part have them."""
        shard_map = self._store.shard_map
        shares: dict[int, list[Message]] = {node: [] for node in range(shard_map.node_count)}
        for message in messages:
            if isinstance(message, Piece):
                for node, share in split_piece(message, shard_map):
                    shares[node].append(share)
            else:
                for share_of_node in shares.values():
                    share_of_node.append(message)
        deadline = time.monotonic() + timeout_s
        waiting = set(self._members())
        while waiting:
            try:
                for start in range(0, len(messages), TOGETHER_MAX):
                    some = slice(start, start + TOGETHER_MAX)
                    asked = [(node, packed(shares[node][some], self._index)) for node in sorted(waiting)]
                    self._ask(asked, deadline - time.monotonic())
                self._wait_until_begun(deadline)
                return
            except NodeUnavailable:  # one of them: what the others have they will know as repeated
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_S)
            waiting &= set(self._members())

    def _wait_until_begun(self, deadline: float) -> None:
        """Wait until the log says that the stream has begun: from there on no time passes without it."""

        def has_begun(node: Node) -> bool:
            stream = node.control.streams.get(node.control.keys.get(self._stream, ""))
            return stream is None or stream.began is not None or stream.is_dropped

        if not has_begun(self._host.node):
            left_s = max(0.001, deadline - time.monotonic())
            self._host.wait_until(has_begun, left_s, f"the record that stream {self._stream} has begun")

    def _ask(self, asked: list[tuple[int, Packet]], timeout_s: float) -> list[Packet]:
        return self._peers.ask(asked, max(0.001, timeout_s))


class Writers:
    """The writers of one node, and the way to those on others."""

    def __init__(self, host: Host, store: NodeStore, intake: Intake, peers: Peers) -> None:
        self._host, self._store, self._intake, self._peers = host, store, intake, peers
        self._writers: dict[str, StreamWriter] = {}
        self._lock = threading.Lock()

    def push(self, stream: str, encoded: Encoded, timeout_s: float) -> None:
        """Add tuples to a stream, wherever its writer is. Raises as StreamWriter.push."""
        piece = Piece(stream, PUSH_PARTITION, 0, 0, len(encoded), 0, 0, encoded, np.zeros(len(encoded), np.bool_))
        self._at_writer(stream, piece, lambda writer: writer.push(encoded, timeout_s), timeout_s)

    def advance(self, stream: str, time_ms: int, timeout_s: float) -> None:
        message = Close(stream, PUSH_PARTITION, 0, 0, time_ms)
        self._at_writer(stream, message, lambda writer: writer.advance(time_ms, timeout_s), timeout_s)

    def finish(self, stream: str, timeout_s: float) -> None:
        message = Finish(stream, PUSH_PARTITION, 0)
        self._at_writer(stream, message, lambda writer: writer.finish(timeout_s), timeout_s)

    def answer(self, packet: Packet) -> Packet:
        """Handler of PUSH: what another node's client pushes. Raises NodeUnavailable (another node writes now)."""
        index = index_of(packet)
        self._host.wait_until(lambda node: node.control.index >= index, LOG_S, f"record {index} of the log")
        for message in unpacked(packet):
            stream = getattr(message, "stream", "")
            at = writer_of(self._host.node, stream)
            if at != self._peers.me:
                raise NodeUnavailable(f"node {self._peers.me}: node {at} writes what is pushed to {stream}: ask it")
            writer, timeout_s = self._writer(stream), float(packet.fields.get("timeout_s", 30.0))
            if isinstance(message, Piece):
                writer.push(message.encoded, timeout_s)
            elif isinstance(message, Close):
                writer.advance(message.complete_ms, timeout_s)
            elif isinstance(message, Finish):
                writer.finish(timeout_s)
        return Packet(PUSH)

    def forget(self, stream: str) -> None:
        """The stream was dropped."""
        with self._lock:
            self._writers.pop(stream, None)

    def _at_writer(self, stream: str, message: Message, do: Callable[[StreamWriter], None], timeout_s: float) -> None:
        at = writer_of(self._host.node, stream)
        if at == self._peers.me:
            do(self._writer(stream))
            return
        made = packed([message], self._host.node.control.index)
        fields = {**made.fields, "timeout_s": timeout_s}
        self._peers.ask([(at, Packet(PUSH, fields, made.arrays))], timeout_s)

    def _writer(self, stream: str) -> StreamWriter:
        with self._lock:
            writer = self._writers.get(stream)
            if writer is None:
                writer = self._writers[stream] = StreamWriter(
                    stream, self._host, self._store, self._intake, self._peers
                )
            return writer
