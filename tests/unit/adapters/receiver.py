"""A node for tests: an ingest handler that keeps what it gets, as a node has to: fenced, in order, repeats dropped."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.unit.adapters.helpers import triples_of
from wukongs.errors import StreamError
from wukongs.live.ledger import PartitionLedger
from wukongs.live.pieces import Close, Finish, Open, Piece, check_batch_number
from wukongs.wire.messages import Opened

TimedTriple = tuple[int, tuple[str, str, str]]


@dataclass
class StreamSettings:
    batch_ms: int = 1000
    timing: bool | tuple[str, ...] = ()
    into: str | None = None
    resume: dict[str, int] = field(default_factory=dict)


class RecordingNode:
    """tuples: stream -> what arrived, in order, as (timestamp, triple); timing: stream -> as many flags.

    events: (kind, stream, partition, number), number being complete_ms or the last offset of a piece."""

    def __init__(self, **streams: StreamSettings) -> None:
        self.streams = {f"http://ex/{name}": settings for name, settings in streams.items()}
        self.tuples: dict[str, list[TimedTriple]] = defaultdict(list)
        self.timing: dict[str, list[bool]] = defaultdict(list)
        self.events: list[tuple[str, str, str, int]] = []
        self.repeats = 0
        self.batches: Counter[tuple[str, int]] = Counter()
        self._ledgers: dict[tuple[str, str], PartitionLedger] = {}
        self._lock = threading.Lock()

    def _settings(self, stream: str) -> StreamSettings:
        if stream not in self.streams:
            raise StreamError(f"there is no stream {stream}. Declare it first")
        return self.streams[stream]

    def _ledger(self, stream: str, partition: str) -> PartitionLedger:
        key = stream, partition
        if key not in self._ledgers:
            start = self._settings(stream).resume.get(partition, 0)
            self._ledgers[key] = PartitionLedger(stream, partition, start)
        return self._ledgers[key]

    def open_partition(self, message: Open, /) -> Opened:
        settings = self._settings(message.stream)
        resume = self._ledger(message.stream, message.partition).open(message.epoch)
        self.events.append(("open", message.stream, message.partition, resume))
        return Opened(settings.batch_ms, settings.into, settings.timing, resume, 62)

    def inject(self, piece: Piece, /) -> None:
        check_batch_number(piece, self._settings(piece.stream).batch_ms)
        ledger = self._ledger(piece.stream, piece.partition)
        if not ledger.admit(piece):
            self.repeats += 1
            return
        times = piece.encoded.timestamps.tolist()
        with self._lock:
            self.tuples[piece.stream] += zip(times, triples_of(piece.encoded), strict=True)
            self.timing[piece.stream] += piece.timing.tolist()
        self.batches[piece.stream, piece.batch_number] += len(times)
        self.events.append(("piece", piece.stream, piece.partition, piece.end_offset))
        ledger.taken(piece)

    def close_batches(self, message: Close, /) -> None:
        self._ledger(message.stream, message.partition).close(message)
        self.events.append(("close", message.stream, message.partition, message.complete_ms))

    def finish_partition(self, message: Finish, /) -> None:
        self._ledger(message.stream, message.partition).check_writer(message.epoch)
        self.events.append(("finish", message.stream, message.partition, 0))

    def finished(self) -> set[str]:
        return {partition for kind, _, partition, _ in self.events if kind == "finish"}
