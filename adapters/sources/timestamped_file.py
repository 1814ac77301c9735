"""Files of N-Triples and N-Quads with a time on every line: `s p o [g] . t_ms`, or `t_ms<TAB>s p o [g] .`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from wukongs.adapters.source import (
    NO_TIME,
    TEXT_MAX,
    DescribeRow,
    RowRange,
    Rows,
    SetAside,
    SourceIndex,
    changed,
    plain_copy,
    read_bytes,
    rows_of,
    running_max,
    text_start,
)
from wukongs.adapters.sources import rows_kernels as kernels
from wukongs.errors import DataError
from wukongs.store.dtypes import Int64Array, UInt8Array
from wukongs.store.encoded import Encoded, MalformedLine


@dataclass(frozen=True, slots=True)
class TimestampedFile:
    """path: the file in messages; plain: the file that is read (an unpacked copy of a .gz). A row is a line."""

    path: str
    plain: str
    timestamps: Literal["suffix", "prefix"]

    @property
    def partition(self) -> str:
        return Path(self.path).name

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. Raises: DataError (the file is gone or was changed)."""
        from wukongs.store.encoder import encode_ntriples

        data = read_bytes(self.plain, rows.first_byte, rows.end_byte)
        encoded, bad_lines = encode_ntriples(data, scope, timestamps=self.timestamps, hash_bits=hash_bits, first_line=0)
        if _is_plain(data, encoded, rows):
            offsets = np.arange(rows.first_offset, rows.end_offset)
            return Rows(encoded, offsets, [], [], int(encoded.timestamps[-1]))
        starts, times = scan(np.frombuffer(data, np.uint8), 0, self.timestamps)
        if len(times) != rows.end_offset - rows.first_offset:
            raise changed(self.path)
        describe = RowText(self.path, rows, 1, data, starts)
        return timestamped_rows(encoded, bad_lines, times, rows.first_offset, rows.floor_ms, describe)


def _is_plain(data: bytes, encoded: Encoded, rows: RowRange) -> bool:
    """Tell whether each line has given a tuple and no time runs backwards, as in most ranges: then nobody has to look
    for where the rows begin."""
    count, times = rows.end_offset - rows.first_offset, encoded.timestamps
    if not 0 < len(encoded) == count == data.count(b"\n") + (not data.endswith(b"\n")):
        return False
    return bool(times[0] >= rows.floor_ms and np.all(times[1:] >= times[:-1]))


def timestamped_rows(
    encoded: Encoded,
    bad_lines: Sequence[MalformedLine],
    times: Int64Array,
    first_offset: int,
    floor_ms: int,
    describe: DescribeRow,
    lateness_ms: int = 0,
) -> Rows:
    """Return the rows of encoded lines. times: of each line, as `scan` found them; first_offset: of the first line;
    lateness_ms: how far a row may lie behind the latest time."""
    offsets = first_offset + np.flatnonzero(times != NO_TIME)
    assert len(offsets) == len(encoded), "the scan and the encoder agree on what is a row"
    malformed = [describe(first_offset + one.line, one.column, one.reason) for one in bad_lines]
    return rows_of(encoded, offsets, malformed, floor_ms, describe, lateness_ms)


@dataclass(frozen=True, slots=True)
class RowText:
    """Finds the text of a row that is set aside. data: the bytes of the rows; starts: where each of them begins in
    it, and the end; first_line: the line of row 0 of the file."""

    path: str
    rows: RowRange
    first_line: int
    data: bytes
    starts: Int64Array

    def __call__(self, offset: int, column: int, reason: str) -> SetAside:
        start, stop = self.starts[offset - self.rows.first_offset :][:2].tolist()
        text = self.data[start:stop].rstrip(b"\r\n").decode("utf-8", "replace")[:TEXT_MAX]
        byte = self.rows.first_byte + start
        return SetAside(self.path, self.first_line + offset, column, reason, text, offset, byte)


def prepare_timestamped(
    path: str, timestamps: Literal["suffix", "prefix"], folder: Path
) -> tuple[TimestampedFile, SourceIndex]:
    """Open a file and index its rows; .gz is unpacked into the folder. Raises: DataError (it cannot be read)."""
    plain = plain_copy(path, folder)
    data = map_file(plain, path)
    first = text_start(data)
    starts, times = scan(data, first, timestamps)
    return TimestampedFile(path, plain, timestamps), SourceIndex(running_max(times), starts)


def map_file(plain: str, path: str) -> UInt8Array:
    """View a file as uint8[n]. Raises: DataError (it cannot be read)."""
    try:
        size = Path(plain).stat().st_size
        return readonly(np.memmap(plain, np.uint8, "r") if size else np.empty(0, np.uint8))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from None


def row_starts(data: bytes | UInt8Array | memoryview, first: int = 0) -> Int64Array:
    """Return the byte at which each line of data[first:] begins, and the end."""
    array = readonly(np.frombuffer(data, np.uint8))
    starts = np.empty(int(kernels.count_rows(array, first)) + 1, np.int64)
    kernels.scan_starts(array, first, starts)
    return starts


def line_at(plain: str, byte: int) -> int:
    """Return the line (from 1) that begins at a byte of a file."""
    head = np.memmap(plain, np.uint8, "r")[:byte] if byte else np.empty(0, np.uint8)
    return int(kernels.count_rows(readonly(head), 0)) + 1


def readonly(array: UInt8Array) -> UInt8Array:
    """Return the array as the kernels are compiled for: a plain one that is not writeable."""
    plain = np.asarray(array).view(np.ndarray)
    plain.flags.writeable = False
    return plain


def scan(data: UInt8Array, first: int, timestamps: Literal["suffix", "prefix"]) -> tuple[Int64Array, Int64Array]:
    """Return where each line of data[first:] begins, and the end; and the time of each, NO_TIME where there is none."""
    from wukongs.store.encoder import CHARACTER_CLASSES
    from wukongs.store.ntriples_kernels import TIME_PREFIX, TIME_SUFFIX

    data = readonly(data)
    count = int(kernels.count_rows(data, first))
    starts, times = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    mode = TIME_SUFFIX if timestamps == "suffix" else TIME_PREFIX
    kernels.scan_rows(data, first, mode, CHARACTER_CLASSES, starts, times)
    return starts, times
