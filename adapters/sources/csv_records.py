"""Records of CSV and TSV as columns of text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from wukongs.adapters.mapping.mapping import Csv
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.source import changed, text_start
from wukongs.adapters.sources import csv_kernels as kernels
from wukongs.errors import DataError
from wukongs.query.terms.arrow_texts import TEXT
from wukongs.store.dtypes import Int64Array, UInt8Array

_FAULTS = {
    kernels.BAD_QUOTE: "expected the end of the field after a closing quote",
    kernels.OPEN_QUOTE: "expected CSV, found a quote that is not closed",
    kernels.SECOND_RECORD: "expected one record in a message, found another line",
}
_UNKNOWN = np.empty(0, np.int64)


@dataclass(frozen=True)
class CsvRecords:
    """Reads records. columns: those of the file, in order."""

    csv: Csv
    columns: tuple[str, ...]

    @cached_property
    def classes(self) -> UInt8Array:
        return _classes(self.csv)

    def starts(self, data: UInt8Array, first_byte: int) -> Int64Array:
        """Return where each record of data[first_byte:] begins, and the end."""
        room = max(16, (len(data) - first_byte) // 32)
        while True:
            starts = np.empty(room + 1, np.int64)
            count = int(kernels.find_records(data, first_byte, self.classes, starts))
            if count <= room:
                return starts[: count + 1].copy()
            room = count

    def table(
        self, data: bytes, row_count: int, wanted: tuple[str, ...], path: str, bounds: Int64Array | None = None
    ) -> tuple[Table, Int64Array]:
        """Read the records of a range; return where each begins, too, and the end. bounds: as the kernel has them.

        Raises: DataError (there are not row_count of them any more)."""
        array = np.frombuffer(data, np.uint8)
        names = [name for name in self.columns if name in wanted]
        where = np.array([names.index(name) if name in names else -1 for name in self.columns], np.int64)
        shape = len(names), row_count
        begins, ends, has_quotes = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
        starts, counts, places = (np.zeros(row_count, np.int64) for _ in range(3))
        status = np.zeros(row_count, np.uint8)
        found = kernels.read_records(
            array,
            _UNKNOWN if bounds is None else bounds,
            self.classes,
            where,
            starts,
            begins,
            ends,
            has_quotes,
            counts,
            status,
            places,
        )
        if found != row_count:
            raise changed(path)
        bad: dict[int, tuple[int, str]] = {}
        width = len(self.columns)
        blank = status == kernels.BLANK
        for row in np.flatnonzero((status > kernels.BLANK) | (~blank & (counts != width))).tolist():
            line = data[starts[row] : starts[row + 1] if row + 1 < row_count else len(data)].rstrip(b"\r\n")
            if status[row] in _FAULTS:
                column = len(data[starts[row] : places[row]].decode("utf-8", "replace")) + 1
                bad[row] = column, _FAULTS[int(status[row])]
            else:
                bad[row] = len(line.decode("utf-8", "replace")) + 1, f"expected {width} fields, found {counts[row]}"
        columns: dict[str, pa.Array] = {}
        missing = (status != kernels.OK) | (counts != width)
        quote = ord(self.csv.quote) if self.csv.quote else 0
        for place, name in enumerate(names):
            columns[name] = _column(array, begins[place], ends[place], has_quotes[place], quote, missing)

        def place_of(row: int, name: str) -> int:
            if name not in names:
                return 1
            return len(data[starts[row] : begins[names.index(name), row]].decode("utf-8", "replace")) + 1

        table = Table(row_count, columns, bad, frozenset(np.flatnonzero(blank).tolist()), place_of)
        _check_utf8(table, names)
        return table, np.append(starts, len(data))


def read_header(csv: Csv, data: UInt8Array, path: str) -> tuple[tuple[str, ...], int]:
    """Return the names of the columns and where the records begin. Raises: DataError (no header that can be read)."""
    first = text_start(data)
    if not csv.header:
        return csv.columns, first
    room = 1 << 14
    begins, ends, has_quotes = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(room, bool)
    wanted = np.arange(room, dtype=np.int64)
    after, count, status, _ = kernels.read_record(
        data, first, len(data), _classes(csv), wanted, begins, ends, has_quotes
    )
    if status != kernels.OK:
        reason = _FAULTS.get(int(status), "found an empty line")
        raise DataError(f"expected a header with the names of the columns: {reason}", path, 1)
    names = []
    for begin, end in zip(begins[:count].tolist(), ends[:count].tolist(), strict=True):
        try:
            name = data[begin:end].tobytes().decode("utf-8")
        except UnicodeDecodeError:
            raise DataError("expected a header in UTF-8", path, 1) from None
        names.append((name.replace(csv.quote * 2, csv.quote) if csv.quote else name).strip())
    return tuple(names), int(after)


def _classes(csv: Csv) -> UInt8Array:
    classes = np.zeros(256, np.uint8)
    classes[[10, 13]] = kernels.LINE_END
    for sign in csv.delimiters:
        classes[ord(sign)] = kernels.DELIMITER
    if csv.quote:
        classes[ord(csv.quote)] = kernels.QUOTE
    return classes


def _column(
    data: UInt8Array, begins: Int64Array, ends: Int64Array, has_quotes: np.ndarray, quote: int, missing: np.ndarray
) -> pa.Array:
    """Return fields as texts, unchecked; null for a row that has none."""
    out = np.empty(int(np.sum(ends - begins)), np.uint8)
    offsets = np.empty(len(begins) + 1, np.int64)
    kernels.gather_fields(data, begins, ends, has_quotes, quote, out, offsets)
    valid = pa.array(~missing).buffers()[1] if missing.any() else None
    return pa.Array.from_buffers(TEXT, len(begins), [valid, pa.py_buffer(offsets), pa.py_buffer(out)])


def _check_utf8(table: Table, names: list[str]) -> None:
    """Make rows bad whose wanted fields are no UTF-8, and these fields null."""
    for name in names:
        cells = table.names[name]
        try:
            cells.validate(full=True)
            continue
        except pa.ArrowInvalid:
            pass
        texts = cells.cast(pa.large_binary()).to_pylist()
        for row, text in enumerate(texts):
            try:
                texts[row] = None if text is None else text.decode("utf-8")
            except UnicodeDecodeError as error:
                texts[row] = None
                table.bad.setdefault(row, (table.places(row, name) + error.start, "expected UTF-8"))
        table.names[name] = pa.array(texts, TEXT)
