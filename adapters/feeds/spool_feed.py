"""SpoolFeed: a source that cannot be read again, through a spool: a thread reads it, workers read the spool."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.adapters.feeds.decoder import Decoder
from wukongs.adapters.feeds.feed import Look, Reader, Waits
from wukongs.adapters.feeds.spool import FULL_WAIT_S, NO_BOUND, Frame, Spool, read_range
from wukongs.adapters.source import RowRange, Rows, StreamSource
from wukongs.adapters.sources.line_starts import row_starts
from wukongs.errors import StorageError

FRAME_BYTES = 1 << 20
"""Messages that wait are written together, up to so many bytes; more than eight times as many have to wait."""
ENDS_S = 5.0
"""So long a reader may take to end."""


@dataclass(frozen=True)
class SpoolSource:
    """The workers' side: rows are records of a spool in a folder that they can read."""

    folder: Path
    decoder: Decoder

    @property
    def partition(self) -> str:
        return self.decoder.partition

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. Raises: DataError (the spool is gone or altered)."""
        return self.decoder.rows(list(read_range(self.folder, rows)), rows.floor_ms, scope, hash_bits)


@dataclass(slots=True)
class _Put:
    message: bytes
    cells: dict[str, str | None]
    state: dict[str, Any] | None
    then: Callable[[], None] | None


class SpoolFeed:
    """A reader's source partition; the reader begins with `begin`. say: shows a line to the user."""

    def __init__(
        self,
        stream: str,
        reader: Reader,
        spool: Spool,
        decoder: Decoder,
        waits: Waits,
        say: Callable[[str], None],
    ) -> None:
        self.stream, self.waits = stream, waits
        self.source: StreamSource = SpoolSource(spool.folder, decoder)
        self.is_heard = True
        self._reader, self._spool, self._say = reader, spool, say
        self._name = f"{stream}, {decoder.partition}"
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._puts: list[_Put] = []
        self._put_bytes = 0
        self._is_writing = threading.Lock()
        self._error: BaseException | None = None
        self._is_read = self._is_done = False
        self._time_ms = 0
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"wukongs-{name}", daemon=True)
            for name, work in (("reader", self._read), ("spool", self._write_puts))
        ]

    # --- as a feed ----------------------------------------------------------------------------------------------------

    def begin(self, row: int, had: Sequence[int] = ()) -> int:
        had_row = max((row, *had))
        row = had_row if had_row > self._spool.end_row else row
        if row > self._spool.end_row:  # a new spool, or one that has lost what the nodes have
            self._spool.skip_to(row)
        self._spool.release(row)  # else a full spool would wait for work that nobody has
        for thread in self._threads:
            thread.start()
        if row < self._spool.first_row and row:
            self._say(f"{self._name}: rows {row:,} to {self._spool.first_row - 1:,} are not in the spool any more")
        return max(row, self._spool.first_row)

    def look(self) -> Look:
        if self._error is not None:
            raise self._error
        is_open = not self._is_done  # asked first: what came before it ended is then among the rows
        return Look(self._spool.end_row, is_open, self.is_heard)

    def ranges(self, first: int, end: int, floor_ms: int) -> Sequence[RowRange]:
        return self._spool.ranges(first, end, floor_ms)

    def release(self, row: int) -> None:
        self._spool.release(row)

    def close(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        deadline = time.monotonic() + ENDS_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._is_writing:  # a reader that has not ended meanwhile writes nothing any more
            self._spool.close()

    # --- as an inlet --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Mapping[str, Any]:
        return self._spool.state

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def wait(self, seconds: float) -> bool:
        return self._stopped.wait(seconds)

    def say(self, text: str) -> None:
        self._say(f"{self._name}: {text}")

    def lines(
        self,
        data: bytes,
        state: dict[str, Any] | None = None,
        *,
        file: str = "",
        line: int = 0,
        byte: int = 0,
        columns: Sequence[str] = (),
    ) -> None:
        lengths = np.diff(row_starts(data))
        now_ms, latest_ms = self._arrival()
        frame = Frame(0, now_ms, lengths, data, file, line, byte, tuple(columns), latest_ms=latest_ms)
        self._write(frame, state)

    def put(
        self,
        message: bytes,
        cells: dict[str, str | None] | None = None,
        state: dict[str, Any] | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        with self._changed:
            while self._put_bytes > 8 * FRAME_BYTES and not self.is_stopped:
                self._changed.wait(FULL_WAIT_S)
            self._puts.append(_Put(message, cells or {}, state, then))
            self._put_bytes += len(message)
            self._changed.notify_all()

    # --- its threads --------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = self._error or error

    def _read(self) -> None:
        try:
            self._reader.run(self)
        finally:
            with self._changed:
                self._is_read = True
                self._changed.notify_all()

    def _write_puts(self) -> None:
        """Write the messages that wait, all that came during one write with the next one."""
        while True:
            with self._changed:
                while not self._puts and not self._is_read and not self.is_stopped:
                    self._changed.wait()
                puts, self._puts = self._puts, []
                self._put_bytes = 0
                self._changed.notify_all()
                if not puts:
                    break
            names = {name for put in puts for name in put.cells}
            cells = {name: [put.cells.get(name) for put in puts] for name in names}
            lengths = np.array([len(put.message) for put in puts], np.int64)
            data = b"".join(put.message for put in puts)
            changes = {name: value for put in puts for name, value in (put.state or {}).items()}
            now_ms, latest_ms = self._arrival()
            if self._write(Frame(0, now_ms, lengths, data, cells=cells, latest_ms=latest_ms), changes or None):
                for put in puts:
                    if put.then is not None:
                        put.then()
        self._is_done = True

    def _write(self, frame: Frame, state: dict[str, Any] | None) -> bool:
        """Append to the spool; wait for room, in it and on the disk. Tell whether it is there: not if the feed was
        stopped before."""
        is_said = False
        while not self._spool.wait_for_room(FULL_WAIT_S):
            if self.is_stopped:
                return False
        while not self.is_stopped:
            with self._is_writing:
                if self.is_stopped:
                    return False
                try:
                    self._spool.append(frame, state)
                    return True
                except StorageError as error:
                    if not self._spool.may_recover:
                        raise
                    reason = str(error)
            if not is_said:
                self.say(reason)
                is_said = True
            self.wait(FULL_WAIT_S)
        return False

    def _arrival(self) -> tuple[int, int]:
        """Return when records come, which never runs backwards in one spool, and the latest event time that they may
        have, by the wall clock itself."""
        clock_ms = time.time_ns() // 1_000_000
        self._time_ms = max(self._time_ms, self._spool.time_ms, clock_ms)
        jump_max_ms = self.waits.jump_max_ms
        return self._time_ms, clock_ms + jump_max_ms if jump_max_ms else NO_BOUND
