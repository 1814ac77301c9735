"""Files of N-Triples and N-Quads with a time on every line: `s p o [g] . t_ms`, or `t_ms<TAB>s p o [g] .`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from wukongs.adapters.source import (
    IN_ORDER,
    NO_TIME,
    TEXT_MAX,
    DescribeRow,
    Lateness,
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
from wukongs.adapters.sources.line_starts import map_file, readonly
from wukongs.adapters.sources.sorting import RowOrder, Say, order_of, say_nothing, sort_text
from wukongs.store.dtypes import Int64Array, UInt8Array
from wukongs.store.encoded import Encoded, MalformedLine


@dataclass(frozen=True, slots=True)
class TimestampedFile:
    """path: the file in messages; plain: the file that is read (an unpacked copy of a .gz). A row is a line.

    order : the places that the rows had before they were sorted; None if they are as in the file."""

    path: str
    plain: str
    timestamps: Literal["suffix", "prefix"]
    order: RowOrder | None = None

    @property
    def partition(self) -> str:
        return Path(self.path).name

    @property
    def graphs(self) -> bool:
        """Whether a line may name a graph: not in a file whose name says that it is N-Triples."""
        return Path(self.path.removesuffix(".gz")).suffix.lower() not in (".nt", ".ntriples")

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. Raises: DataError (the file is gone or was changed)."""
        from wukongs.store.encoder import encode_ntriples

        data = read_bytes(self.plain, rows.first_byte, rows.end_byte)
        encoded, bad_lines = encode_ntriples(
            data, scope, timestamps=self.timestamps, graphs=self.graphs, hash_bits=hash_bits, first_line=0
        )
        if _is_plain(data, encoded, rows):
            offsets = np.arange(rows.first_offset, rows.end_offset)
            return Rows(encoded, offsets, [], [], int(encoded.timestamps[-1]))
        starts, times = scan(np.frombuffer(data, np.uint8), 0, self.timestamps, graphs=self.graphs)
        if len(times) != rows.end_offset - rows.first_offset:
            raise changed(self.path)
        describe = RowText(self.path, rows, 1, data, starts, self.order)
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
    lateness: Lateness = IN_ORDER,
) -> Rows:
    """Return the rows of encoded lines. times: of each line, as `scan` found them; first_offset: of the first line;
    lateness: how far a row may lie behind the latest time."""
    offsets = first_offset + np.flatnonzero(times != NO_TIME)
    assert len(offsets) == len(encoded), "the scan and the encoder agree on what is a row"
    malformed = [describe(first_offset + one.line, one.column, one.reason) for one in bad_lines]
    return rows_of(encoded, offsets, malformed, floor_ms, describe, lateness)


@dataclass(frozen=True, slots=True)
class RowText:
    """Finds the text of a row that is set aside. data: the bytes of the rows; starts: where each of them begins in
    it, and the end; first_line: the line of row 0 of the file; order: as that of TimestampedFile."""

    path: str
    rows: RowRange
    first_line: int
    data: bytes
    starts: Int64Array
    order: RowOrder | None = None

    def __call__(self, offset: int, column: int, reason: str) -> SetAside:
        start, stop = self.starts[offset - self.rows.first_offset :][:2].tolist()
        text = self.data[start:stop].rstrip(b"\r\n").decode("utf-8", "replace")[:TEXT_MAX]
        byte, line = self.rows.first_byte + start, self.first_line + offset
        if self.order is not None:
            byte, line = self.order.place(offset)
        return SetAside(self.path, line, column, reason, text, offset, byte)


def prepare_timestamped(
    path: str,
    timestamps: Literal["suffix", "prefix"],
    folder: Path,
    is_sorted: bool = False,
    say: Say = say_nothing,
) -> tuple[TimestampedFile, SourceIndex]:
    """Open a file and index its rows; .gz is unpacked into the folder. is_sorted: the rows are put in order of time.

    Raises: DataError (it cannot be read)."""
    plain = plain_copy(path, folder)
    data = map_file(plain, path)
    first = text_start(data)
    file = TimestampedFile(path, plain, timestamps)
    starts, times = scan(data, first, timestamps, graphs=file.graphs)
    if is_sorted and (order := order_of(times)) is not None:
        plain, starts, row_order = sort_text(data, starts, order, b"\n", path, folder, say)
        file, times = replace(file, plain=plain, order=row_order), times[order]
    return file, SourceIndex(running_max(times), starts)


def scan(
    data: UInt8Array, first: int, timestamps: Literal["suffix", "prefix"], *, graphs: bool
) -> tuple[Int64Array, Int64Array]:
    """Return where each line of data[first:] begins, and the end; and the time of each, NO_TIME where there is none.

    graphs: whether a line may name a graph, as for encode_ntriples."""
    from wukongs.store.encoder import CHARACTER_CLASSES, terms_max
    from wukongs.store.ntriples_kernels import TIME_PREFIX, TIME_SUFFIX

    data = readonly(data)
    count = int(kernels.count_rows(data, first))
    starts, times = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    mode = TIME_SUFFIX if timestamps == "suffix" else TIME_PREFIX
    kernels.scan_rows(data, first, mode, terms_max(graphs), CHARACTER_CLASSES, starts, times)
    return starts, times
