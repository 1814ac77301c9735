"""Sources of stream tuples: rows with offsets, indexed by event time once, read by ranges as often as needed.

A source is one source partition of one stream. Its rows are numbered from 0; a row gives any number of tuples of one
time. The planner sees only the times of the rows (SourceIndex). A reader gets a RowRange, and may get the same one
again. A row that cannot be read, or whose time runs backwards, is set aside and reported; it raises no error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from wukongs.errors import DataError
from wukongs.live.lateness import CarryRule
from wukongs.store.dtypes import Int64Array, UInt8Array
from wukongs.store.encoded import Encoded, TermCutter

NO_TIME = -(1 << 62)
"""Stands for the time of a row that has none, and for the time before the first row."""
TEXT_MAX = 4096
"""So many characters of a row that is set aside are kept."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows [first_offset, end_offset) of a source partition, which lie in bytes [first_byte, end_byte) of its file, or
    of the one that `file` says, where it has several.

    floor_ms is the latest time of all rows before (NO_TIME: none): an earlier time runs backwards.
    """

    first_offset: int
    end_offset: int
    first_byte: int
    end_byte: int
    floor_ms: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A row that was not sent: file, line and column (from 1), why, and its text (the beginning of it).

    row: its number in the source partition; byte: where it begins in the (unpacked) file; time_ms: of a row whose time
    runs backwards. None: not known."""

    file: str
    line: int
    column: int
    reason: str
    text: str
    row: int | None = None
    byte: int | None = None
    time_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, column {self.column}: {self.reason}: {self.text[:_SHOWN_CHARACTERS]}"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The content of a range: tuples in the order of their rows, the row of each, and the rows that were set aside.

    Their times do not decrease, unless the source lets them come late. offsets : int64[len(encoded)], ascending.
    malformed: rows that cannot be read; backwards: rows whose time runs backwards. newest_ms: the latest time of all
    rows up to the end of the range (NO_TIME: none).
    """

    encoded: Encoded
    offsets: Int64Array
    malformed: list[SetAside]
    backwards: list[SetAside]
    newest_ms: int = NO_TIME
    numbers: Int64Array | None = None
    """The stream batch that holds each tuple, int64[len(encoded)]; None: that of its timestamp."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far behind the latest time of its source a row may lie.

    lateness_ms : so far it is on time
    rule : how stream batches carry rows that are later; None: they are set aside
    """

    lateness_ms: int = 0
    rule: CarryRule | None = None

    def earliest_ms(self, latest: Int64Array) -> Int64Array:
        """Return the earliest time that is not set aside, int64[n] in ms. latest : int64[n], the latest time of the
        rows up to and with each row."""
        if self.rule is None:
            return latest - self.lateness_ms
        return self.rule.oldest_ms(self._closed(self.rule, latest) * self.rule.batch_ms)

    def numbers(self, times: Int64Array, latest: Int64Array) -> Int64Array | None:
        """Return the stream batch that holds each row, int64[n]; None: that of its time. times, latest : int64[n] in
        ms."""
        return None if self.rule is None else self.rule.numbers(times, self._closed(self.rule, latest))

    def _closed(self, rule: CarryRule, latest: Int64Array) -> Int64Array:
        """Return the last closed stream batch when each row arrives, int64[n]."""
        return (latest - (self.lateness_ms + 1)) // rule.batch_ms


IN_ORDER = Lateness()


@dataclass(frozen=True, slots=True, eq=False)
class SourceIndex:
    """times : int64[n_rows], the latest time of the rows up to and with this one (so it never decreases);
    starts : int64[n_rows + 1], the byte at which each row begins, and the end."""

    times: Int64Array
    starts: Int64Array

    def __len__(self) -> int:
        return len(self.times)

    def range(self, first: int, end: int) -> RowRange:
        """Return rows [first, end)."""
        floor = int(self.times[first - 1]) if first > 0 else NO_TIME
        return RowRange(first, end, int(self.starts[first]), int(self.starts[end]), floor)

    def rows_until(self, time_ms: int) -> int:
        """Return the number of leading rows at or before a time."""
        return int(np.searchsorted(self.times, time_ms, side="right"))


class StreamSource(Protocol):
    """One source partition. Sources travel to the workers of a pipeline, so they are small and can be pickled."""

    @property
    def partition(self) -> str:
        """Its name, unique within its stream, the same in every run."""

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. scope: where blank node labels are valid (the stream's IRI).

        Raises: DataError (the file is gone or was changed)."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSource:
    """A source that is ready to be read, with its index."""

    stream: str
    source: StreamSource
    index: SourceIndex


def text_start(data: bytes | memoryview | UInt8Array) -> int:
    """Return where the text of a file begins: behind its byte order mark, if it has one."""
    return len(BYTE_ORDER_MARK) if bytes(data[:3]) == BYTE_ORDER_MARK else 0


def running_max(times: Int64Array) -> Int64Array:
    """Return, per row, the latest time so far; rows before the first known time get that one, 0 if there is none."""
    latest = np.maximum.accumulate(times)
    known = latest[latest > NO_TIME]
    latest[latest <= NO_TIME] = known[0] if len(known) else 0
    return latest


def plain_copy(path: str, folder: Path, head_bytes: int | None = None) -> str:
    """Return the path of a file that can be read by byte range: the file itself, or an unpacked copy in the folder.

    head_bytes: a copy of so much of its beginning, up to the end of a line, in place of a longer file.

    Raises: DataError (a file that cannot be read or unpacked)."""
    import gzip
    import shutil
    import zlib

    is_packed = path.endswith(".gz")
    if not is_packed and head_bytes is None:
        return path
    copy = folder / f"{len(list(folder.iterdir()))}-{Path(path).name.removesuffix('.gz')}"
    try:
        with gzip.open(path, "rb") if is_packed else open(path, "rb") as packed, copy.open("wb") as plain:
            if head_bytes is None:
                shutil.copyfileobj(packed, plain, 1 << 20)
            else:
                head = packed.read(head_bytes + 1)
                plain.write(head if len(head) <= head_bytes else head[: head.rfind(b"\n") + 1])
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be unpacked ({error}). Check that it is a whole gzip file", path) from None
    return str(copy)


def read_bytes(path: str, first: int, end: int) -> bytes:
    """Read bytes [first, end) of a file. Raises: DataError (not there, or shorter than that)."""
    try:
        with open(path, "rb") as file:
            file.seek(first)
            data = file.read(end - first)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None
    if len(data) != end - first:
        raise DataError(
            f"expected {end} bytes, found {first + len(data)}: the file was cut while it was replayed", path
        )
    return data


def changed(path: str) -> DataError:
    """Return the error of a file that has other rows than when it was indexed."""
    return DataError("this file was changed while it was replayed. Replay a file that nobody writes", path)


class DescribeRow(Protocol):
    """Makes the report of a row that is set aside: its offset, the column (from 1) and the reason."""

    def __call__(self, offset: int, column: int, reason: str, /) -> SetAside: ...


def ahead_of_clock(time_ms: int, latest_ms: int) -> str:
    """Say why a record is set aside whose time is ahead of the wall clock. latest_ms: the latest time that would do."""
    return (
        f"its time {time_ms} ms is ahead of the clock: when it came no time after {latest_ms} ms was believed "
        "(jump_max_ms)"
    )


def rows_of(
    encoded: Encoded,
    offsets: Int64Array,
    malformed: list[SetAside],
    floor_ms: int,
    describe: DescribeRow,
    lateness: Lateness = IN_ORDER,
) -> Rows:
    """Return the rows without the tuples whose time runs backwards, which are set aside: those that lie too far before
    the latest time so far."""
    times = encoded.timestamps
    if not len(times):
        return Rows(encoded, offsets, malformed, [], floor_ms)
    latest = np.maximum(np.maximum.accumulate(times), floor_ms)
    newest = int(latest[-1])
    earliest, numbers = lateness.earliest_ms(latest), lateness.numbers(times, latest)
    late = np.flatnonzero(times < earliest)
    if not len(late):
        return Rows(encoded, offsets, malformed, [], newest, numbers)
    backwards = [
        replace(
            describe(int(offsets[row]), 1, f"its time {times[row]} ms is before {earliest[row]} ms"),
            time_ms=int(times[row]),
        )
        for row in late.tolist()
    ]
    kept = np.flatnonzero(times >= earliest)
    numbers = None if numbers is None else numbers[kept]
    return Rows(TermCutter(encoded).cut(kept), offsets[kept], malformed, backwards, newest, numbers)
