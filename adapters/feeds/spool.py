"""Spool: records that cannot be had a second time, kept in the order in which they came until the nodes are safe.

A log (wukongs.store.wal) in a folder. A frame holds records that came together: a JSON header, the length of each, and
their bytes one after the other. Each segment begins with a head: the number of its first record, and how far the
source was read. So what the source said last is known from any segment on, and old segments can go.

Invariants:

* records are numbered from 0, without gaps; `append` returns once they are as safe as the spool makes them;
* the state that a source gives with its records (texts and numbers by name, of which it says what has changed) is kept
  together with them: after a restart either both are there or neither is, so a source that reads on from its state
  neither loses nor repeats a record;
* one process at a time has a spool open to append to it; any process may read ranges of it.
"""

from __future__ import annotations

import bisect
import fcntl
import json
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.adapters.source import RowRange, read_bytes
from wukongs.errors import CorruptionError, SettingsError, StorageError
from wukongs.store.disk import FOLDER_MODE, Disk
from wukongs.store.dtypes import Int64Array
from wukongs.store.wal import RECORD_HEADER_BYTES, SEGMENT_HEAD_BYTES, WriteAheadLog, records_in

_HEAD, _FRAME = 1, 2
"""Kinds of records of the log."""
_SIZES = struct.Struct("<II")
SEGMENT_BYTES = 64 << 20
LOCK = "spool.lock"
FULL_WAIT_S = 1.0
NO_BOUND = 1 << 62
"""An event time behind all others, ms."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Records that came together. lengths : int32[n]; data: their bytes.

    time_ms: when they came; file, line, byte: where the first of them stood ("" and 0: in no file; a record is a line
    there); columns: the names of their fields, where a header says them; cells: what belongs to each message beside its
    bytes, name -> one text each.

    latest_ms: the latest event time that a record of it may have, as decided when it came (None: not decided yet,
    NO_BOUND: any time).

    rows : int64[n], ascending, the number of each record, where they do not follow each other; times : int64[n], when
    each came, in place of time_ms. A spool keeps neither."""

    first_row: int
    time_ms: int
    lengths: np.ndarray
    data: memoryview | bytes
    file: str = ""
    line: int = 0
    byte: int = 0
    columns: tuple[str, ...] = ()
    cells: dict[str, list[str | None]] = field(default_factory=dict)
    rows: Int64Array | None = None
    times: Int64Array | None = None
    latest_ms: int | None = None

    @property
    def numbers(self) -> Int64Array:
        """The number of each record."""
        return np.arange(self.first_row, self.end_row, dtype=np.int64) if self.rows is None else self.rows

    @property
    def end_row(self) -> int:
        return self.first_row + len(self.lengths)

    def payload(self, state: dict[str, Any] | None) -> list[bytes | memoryview]:
        header: dict[str, Any] = {"row": self.first_row, "time": self.time_ms}
        if self.file:
            header |= {"file": self.file, "line": self.line, "byte": self.byte}
        if self.columns:
            header["columns"] = self.columns
        if self.cells:
            header["cells"] = self.cells
        if self.latest_ms is not None:
            header["latest"] = self.latest_ms
        if state is not None:
            header["state"] = state
        text = json.dumps(header).encode()
        lengths = self.lengths.astype("<i4").tobytes()
        return [_SIZES.pack(len(text), len(self.lengths)), text, lengths, self.data]


def _frame_in(payload: memoryview) -> tuple[Frame, dict[str, Any] | None]:
    """Return a frame, and the state of the source that came with it."""
    size, count = _SIZES.unpack_from(payload)
    at = _SIZES.size + size
    header = json.loads(bytes(payload[_SIZES.size : at]))
    lengths = np.frombuffer(payload[at : at + 4 * count], "<i4")
    frame = Frame(
        header["row"],
        header["time"],
        lengths,
        payload[at + 4 * count :],
        header.get("file", ""),
        header.get("line", 0),
        header.get("byte", 0),
        tuple(header.get("columns", ())),
        header.get("cells", {}),
        latest_ms=header.get("latest"),
    )
    return frame, header.get("state")


@dataclass(frozen=True, slots=True)
class _Stored:
    """Where a frame lies: in bytes [begin, end) of a segment."""

    segment: int
    begin: int
    end: int
    count: int
    columns: tuple[str, ...]

    def is_like(self, other: _Stored) -> bool:
        return (self.segment, self.columns) == (other.segment, other.columns)


class Spool:
    """The spool of one source partition in a folder of its own; made by the first use.

    sync_interval_ms: 0 makes each append safe from power loss before it returns; n > 0 syncs at most once in n ms, so
    that an append is safe from the end of the process only. bytes_max: how much may wait for the nodes; an append waits
    beyond that.

    Raises: SettingsError (another process has it open); CorruptionError, StorageError."""

    def __init__(
        self, folder: Path, sync_interval_ms: int = 0, bytes_max: int = 4 << 30, disk: Disk | None = None
    ) -> None:
        self.folder = folder
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._firsts: list[int] = []
        self._frames: list[_Stored] = []
        self._heads: dict[int, int] = {}
        """Segment -> the number of its first record, ascending."""
        self._waiting_bytes = 0
        self._waiting_from = 0
        """The place of the first frame that the nodes do not have whole."""
        self.state: dict[str, Any] = {}
        """How far the source is read, as it has said."""
        self.first_row = self.end_row = 0
        """Records [first_row, end_row) are here."""
        self.time_ms = 0
        """When the newest of them came."""
        try:
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StorageError(f"{folder}: the spool cannot be opened ({error.strerror})") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SettingsError(f"spool {folder}: another process has it open. Stop that one first") from None
        self._log = WriteAheadLog(folder / "log", sync_interval_ms, disk)
        self._recover()

    def _recover(self) -> None:
        segments = self._log.segments()
        segment, at = 0, 0
        for record in self._log.read(segments[0] if segments else 1):
            if record.kind == _HEAD:
                head = json.loads(bytes(record.payload))
                segment, at, self.state = record.lsn, SEGMENT_HEAD_BYTES, head["state"]
                self._heads[segment] = head["row"]
                if not self._frames:
                    self.first_row = head["row"]
                self.end_row = head["row"]
            begin, at = at, at + RECORD_HEADER_BYTES + len(record.payload)
            if record.kind == _FRAME:
                frame, state = _frame_in(record.payload)
                self._say(state)
                self._note(frame, _Stored(segment, begin, at, len(frame.lengths), frame.columns))
        self._begin_segment()

    def _begin_segment(self) -> None:
        head = json.dumps({"row": self.end_row, "state": self.state}).encode()
        segment = self._log.begin(_HEAD, [head], 0)
        with self._changed:
            self._heads[segment] = self.end_row

    def _note(self, frame: Frame, stored: _Stored) -> None:
        self._firsts.append(frame.first_row)
        self._frames.append(stored)
        self._waiting_bytes += stored.end - stored.begin
        self.end_row = frame.end_row
        self.time_ms = max(self.time_ms, frame.time_ms)

    def _say(self, changes: dict[str, Any] | None) -> None:
        for name, value in (changes or {}).items():
            if value is None:
                self.state.pop(name, None)
            else:
                self.state[name] = value

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the records that the nodes are not known to have."""
        return self._waiting_bytes

    @property
    def may_recover(self) -> bool:
        """Whether an append that failed may be tried again: the disk is full, and nothing else is wrong."""
        return self._log.failure is None

    def append(self, frame: Frame, state: dict[str, Any] | None = None) -> None:
        """Add records (frame.first_row does not count), and what has changed in the state of the source: values by
        name, None for what is gone. One thread at a time calls this.

        Raises StorageError; the records are not in the spool then. If the disk is full it may be called again."""
        frame = replace(frame, first_row=self.end_row)
        if self._log.segment_bytes >= SEGMENT_BYTES:
            self._begin_segment()
        begin = SEGMENT_HEAD_BYTES + self._log.segment_bytes
        self._log.commit(_FRAME, frame.payload(state), 0)
        with self._changed:
            end = SEGMENT_HEAD_BYTES + self._log.segment_bytes
            segment = next(reversed(self._heads))
            self._note(frame, _Stored(segment, begin, end, len(frame.lengths), frame.columns))
            self._say(state)

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait until less than bytes_max waits for the nodes; tell whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting_bytes < self._bytes_max, timeout_s)

    def ranges(self, first: int, end: int, floor_ms: int) -> list[RowRange]:
        """Return where records [first, end) lie: a range for each segment, and for each kind of columns."""
        with self._changed:
            at = bisect.bisect_right(self._firsts, first) - 1
            found: list[RowRange] = []
            while first < end:
                one = self._frames[at]
                if not one.count:  # a change of the state alone
                    at += 1
                    continue
                stop, last = first, one.begin
                while at < len(self._frames) and stop < end and self._frames[at].is_like(one):
                    stop, last = min(end, self._firsts[at] + self._frames[at].count), self._frames[at].end
                    at += 1
                found.append(RowRange(first, stop, one.begin, last, floor_ms, f"{one.segment:020d}.log"))
                first = stop
            return found

    def skip_to(self, row: int) -> None:
        """Number the next record `row`, which lies behind all that are here: the nodes have those, and more."""
        assert row > self.end_row, (row, self.end_row)
        self.end_row = row
        self._begin_segment()
        self.release(row)

    def release(self, row: int) -> None:
        """Let go of all records before this one, which are safe at the nodes. A segment goes once all of it may."""
        with self._changed:
            while self._waiting_from < len(self._frames):
                stored = self._frames[self._waiting_from]
                if self._firsts[self._waiting_from] + stored.count > row:
                    break
                self._waiting_bytes -= stored.end - stored.begin
                self._waiting_from += 1
            self._changed.notify_all()
            kept = max((segment for segment, head in self._heads.items() if head <= row), default=0)
            gone = [segment for segment in self._heads if segment < kept]
            if not gone:
                return
            for segment in gone:
                del self._heads[segment]
            self.first_row = self._heads[kept]
            dropped = bisect.bisect_left(self._frames, kept, key=lambda one: one.segment)
            self._waiting_from -= dropped
            del self._firsts[:dropped], self._frames[:dropped]
        self._log.trim(kept)

    def close(self) -> None:
        self._log.close()
        os.close(self._lock)


def read_range(folder: Path, rows: RowRange) -> Iterator[Frame]:
    """Yield the frames of a range, cut to its records. Raises: DataError (the spool is gone); CorruptionError."""
    path = folder / "log" / rows.file
    try:
        for record in records_in(memoryview(read_bytes(str(path), rows.first_byte, rows.end_byte))):
            frame, _ = _frame_in(record.payload)
            yield _cut(frame, rows.first_offset, rows.end_offset)
    except CorruptionError as error:
        raise CorruptionError(error.message, str(path)) from None


def _cut(frame: Frame, first: int, end: int) -> Frame:
    """Return the records of a frame that lie in rows [first, end)."""
    if first <= frame.first_row and frame.end_row <= end:
        return frame
    low, high = max(0, first - frame.first_row), min(len(frame.lengths), end - frame.first_row)
    ends = starts_of(frame.lengths)
    skipped = int(ends[low])
    return Frame(
        frame.first_row + low,
        frame.time_ms,
        frame.lengths[low:high],
        frame.data[skipped : int(ends[high])],
        frame.file,
        frame.line + low,
        frame.byte + skipped,
        frame.columns,
        {name: texts[low:high] for name, texts in frame.cells.items()},
        latest_ms=frame.latest_ms,
    )


def starts_of(lengths: np.ndarray | Sequence[int]) -> Int64Array:
    """Return where each record begins, and the end: int64[n + 1]."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
