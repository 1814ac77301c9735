"""Files of records (CSV, TSV, JSON, Parquet) through a mapping: a record is a row, with time and triples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from wukongs.adapters.mapping.arrow_cells import column_name
from wukongs.adapters.mapping.mapping import FILE, Csv, Mapping
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.triples import Mapper
from wukongs.adapters.run_config import RecordSource
from wukongs.adapters.source import (
    NO_TIME,
    RowRange,
    Rows,
    SourceIndex,
    changed,
    plain_copy,
    read_bytes,
    running_max,
    text_start,
)
from wukongs.adapters.sources import rows_kernels
from wukongs.adapters.sources.csv_records import CsvRecords, read_header
from wukongs.adapters.sources.json_records import JsonRecords, find_element_starts, read_document, split_elements
from wukongs.adapters.sources.line_starts import line_at, line_within, map_file, row_starts
from wukongs.adapters.sources.mapped_rows import Made, Place, Read, make_triples
from wukongs.adapters.sources.parquet_records import ParquetRecords
from wukongs.adapters.sources.sorting import RowOrder, Say, order_of, say_nothing, sort_parquet, sort_text
from wukongs.errors import SettingsError
from wukongs.store.dtypes import Int64Array, UInt8Array

_INDEXED_BYTES = 1 << 24
_INDEXED_ROWS = 1 << 18

Records = CsvRecords | JsonRecords | ParquetRecords


@dataclass(frozen=True)
class RecordFile:
    """path: the file in messages; plain: the file that is read. Row 0 is the record first_record of the file, at line
    first_line of it. has_long_records: some take more than a line.

    order : the places that the records had before they were sorted; None if they are as in the file."""

    path: str
    plain: str
    mapping: Mapping
    constants: tuple[tuple[str, str], ...]
    records: Records
    first_record: int
    first_line: int
    has_long_records: bool
    order: RowOrder | None = None

    @property
    def partition(self) -> str:
        return Path(self.path).name

    @cached_property
    def mapper(self) -> Mapper:
        return Mapper(self.mapping, {**dict(self.constants), FILE: self.partition})

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. Raises: DataError (the file is gone or was changed)."""
        return self.make(rows, scope, hash_bits).reported()

    def make(self, rows: RowRange, scope: bytes, hash_bits: int) -> Made:
        """Make the triples of a range. Raises: DataError (the file is gone or was changed)."""
        first, end = rows.first_offset + self.first_record, rows.end_offset + self.first_record
        first_row = first if self.order is None else self.order.rows(first, end)
        return make_triples(self.mapper, self._read(rows), first_row, rows.floor_ms, scope, hash_bits)

    def _read(self, rows: RowRange) -> Read:
        names, count = self.mapping.columns, rows.end_offset - rows.first_offset
        if isinstance(self.records, ParquetRecords):
            time = self.mapping.time.column if self.mapping.time else None
            first = rows.first_offset + self.first_record
            table = self.records.table(first, first + count, names, time, self.mapping.iterators)

            def row_of(row: int) -> Place:
                line = first + row + 1 if self.order is None else self.order.place(first + row)[1]
                return Place(self.path, line, rows.first_offset + row, None, _shown_row(table, row))

            return Read(table, rows.first_offset, row_of)
        data = read_bytes(self.plain, rows.first_byte, rows.end_byte)
        starts: Int64Array
        if isinstance(self.records, CsvRecords):
            table, starts = self.records.table(data, count, names, self.path)
        else:
            starts = row_starts(data) if self.records.is_lines else find_element_starts(data)
            if len(starts) - 1 != count:
                raise changed(self.path)
            is_lines = self.records.is_lines
            texts = [data[a:b] for a, b in pairwise(starts.tolist())] if is_lines else split_elements(data, starts)
            table = self.records.table(texts, names, self.mapping.typed, self.mapping.iterators)

        @cache
        def line_starts() -> tuple[int, Int64Array]:
            return line_at(self.plain, rows.first_byte), row_starts(data)

        is_document = isinstance(self.records, JsonRecords) and not self.records.is_lines

        def line_of(row: int) -> int:
            if is_document:  # its records begin anywhere in a line
                return line_within(self.plain, rows.first_byte + int(starts[row]))
            if not self.has_long_records:
                return self.first_line + rows.first_offset + row
            first, of_lines = line_starts()
            return first + int(np.searchsorted(of_lines, starts[row]))

        def place_of(row: int) -> Place:
            piece = data[starts[row] : starts[row + 1]]
            piece = piece.rstrip().removesuffix(b",") if is_document else piece.rstrip(b"\r\n")
            text = piece.decode("utf-8", "backslashreplace")
            if self.order is not None:
                byte, line = self.order.place(rows.first_offset + self.first_record + row)
            else:
                byte, line = rows.first_byte + int(starts[row]), line_of(row)
            return Place(self.path, line, rows.first_offset + row, byte, text)

        return Read(table, rows.first_offset, place_of)

    def unseen(self, made: Made) -> list[str]:
        """Return the columns that are empty in all rows of a range."""
        empty = {None, *self.mapping.empty}
        return [name for name, cells in made.read.table.names.items() if empty.issuperset(_values(cells))]


def prepare_records(
    config: RecordSource, path: str, folder: Path, head_bytes: int | None = None, say: Say = say_nothing
) -> tuple[RecordFile, SourceIndex]:
    """Open a file and index its records; .gz is unpacked into the folder. head_bytes: only its beginning, of texts;
    say: shows a line of progress.

    Raises: SettingsError (a mapping that does not fit the file); DataError (a file that cannot be read)."""
    mapping = config.mapping
    if mapping.time is None:
        raise SettingsError(
            f"{mapping.file}: expected a [time] (when a record happens), found none. Add it, or `time` to the source"
        )
    if config.kind == "parquet":
        return _prepare_parquet(config, path, folder, say)
    plain = plain_copy(path, folder, None if config.kind == "json" else head_bytes)
    data = map_file(plain, path)
    records: CsvRecords | JsonRecords
    if config.kind == "json":
        records, starts = read_document(data.tobytes(), path, mapping.records)
        source = RecordFile(path, plain, mapping, config.constants, records, 0, 1, True)
        return _opened(config, source, data, starts, b",", folder, say)
    first_byte, first_line = 0, 1
    if config.kind == "jsonl":
        records = JsonRecords(is_lines=True)
        first_byte = text_start(data)
        starts = row_starts(data, first_byte)
    else:
        csv = mapping.csv or Csv(delimiters="\t" if config.kind == "tsv" else ",")
        columns, first_byte = read_header(csv, data, path)
        _check_columns(config, columns, path)
        first_line = 2 if csv.header else 1
        records = CsvRecords(csv, columns)
        starts = records.starts(data, first_byte)
    has_long_records = int(rows_kernels.count_rows(data, first_byte)) != len(starts) - 1
    source = RecordFile(path, plain, mapping, config.constants, records, 0, first_line, has_long_records)
    return _opened(config, source, data, starts, b"\n", folder, say)


def _opened(
    config: RecordSource,
    source: RecordFile,
    data: UInt8Array,
    starts: Int64Array,
    end_of_row: bytes,
    folder: Path,
    say: Say,
) -> tuple[RecordFile, SourceIndex]:
    """Index the records of a text that begin at these bytes, in order of time if that is asked for."""
    times = _times(source, starts)
    if config.is_sorted and (order := order_of(times)) is not None:
        plain, starts, row_order = sort_text(data, starts, order, end_of_row, source.path, folder, say)
        source, times = replace(source, plain=plain, order=row_order), times[order]
    return _begun(source, starts, times)


def _prepare_parquet(config: RecordSource, path: str, folder: Path, say: Say) -> tuple[RecordFile, SourceIndex]:
    plain = plain_copy(path, folder)
    records = ParquetRecords(plain)
    _check_columns(config, records.columns(), path)
    source = RecordFile(path, plain, config.mapping, config.constants, records, 0, 1, False)
    starts = np.zeros(records.row_count() + 1, np.int64)
    times = _times(source, starts)
    if config.is_sorted and (order := order_of(times)) is not None:
        plain, row_order = sort_parquet(plain, order, path, folder, say)
        source = replace(source, plain=plain, records=ParquetRecords(plain), order=row_order)
        times = times[order]
    return _begun(source, starts, times)


def _begun(source: RecordFile, starts: Int64Array, times: Int64Array) -> tuple[RecordFile, SourceIndex]:
    """Leave out the records before the mapping's start."""
    spec = source.mapping.time
    assert spec is not None, source
    first = 0
    if spec.start_ms is not None:
        after = np.flatnonzero(times >= spec.start_ms)
        first = int(after[0]) if len(after) else len(times)
    if spec.every_ms is not None:
        times = np.arange(len(times) - first, dtype=np.int64) * spec.every_ms
    else:
        times = times[first:]
    source = replace(source, first_record=first, first_line=source.first_line + first)
    return source, SourceIndex(running_max(times), starts[first:])


def _times(source: RecordFile, starts: Int64Array) -> Int64Array:
    """Return the time of each record by its column, NO_TIME where it has none."""
    spec = source.mapping.time
    assert spec is not None, source
    count = len(starts) - 1
    if spec.column is None:
        return np.zeros(count, np.int64)
    only = replace(
        source.mapping, triples=(), conditions=(), computed=(), lookups=(), time=replace(spec, every_ms=None)
    )
    reader = replace(source, mapping=only, constants=())
    found = [np.empty(0, np.int64)]
    row, newest_ms = 0, NO_TIME
    while row < count:
        end = int(np.searchsorted(starts, starts[row] + _INDEXED_BYTES, side="right")) - 1
        end = min(max(end, row + 1), row + _INDEXED_ROWS, count)
        read = reader._read(RowRange(row, end, int(starts[row]), int(starts[end]), NO_TIME))
        found.append(reader.mapper.times(read.table, row, newest_ms))
        newest_ms = max(newest_ms, int(found[-1].max(initial=NO_TIME)))
        row = end
    return np.concatenate(found)


def _check_columns(config: RecordSource, columns: tuple[str, ...], path: str) -> None:
    """Raises: SettingsError (a mapping that names a column which is not there, or is there twice)."""
    constants = [name for name, _ in config.constants]
    for name in config.mapping.columns:
        if columns.count(name) > 1:
            raise SettingsError(f"{config.mapping.file}: expected one column {name!r} in {path}, found several")
        if column_name(name, columns) not in columns and name not in constants:
            near = get_close_matches(name, columns, 1)
            raise SettingsError(
                f"{config.mapping.file}: expected a column {name!r} in {path}, found {', '.join(columns)}"
                + (f". Did you mean {near[0]!r}?" if near else "")
            )


def _values(cells: pa.Array) -> set[object]:
    while pa.types.is_large_list(cells.type):
        cells = cells.flatten()
    return set(cells.to_pylist())


def _shown_row(table: Table, row: int) -> str:
    return ", ".join(f"{name}={cells[row].as_py()}" for name, cells in table.names.items())
