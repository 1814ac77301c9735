"""CSV rows as observations: one row, one time, some triples, as a CsvMapping declares."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wukongs.adapters.run_config import CsvSource
from wukongs.adapters.source import NO_TIME, RowRange, Rows, SetAside, SourceIndex, plain_copy, read_bytes, running_max
from wukongs.adapters.sources.csv_mapping import (
    RDF_TYPE,
    SSN,
    CsvMapping,
    ValueSpec,
    load_mapping,
    properties_of,
    time_of,
)
from wukongs.adapters.sources.expressions import DivisionByZero, Value, number
from wukongs.errors import DataError
from wukongs.store.dtypes import Int64Array

_TEXT_MAX = 200
Triple = tuple[str, str, str]


class _BadRow(Exception):
    """A row that is set aside: why, and the column (from 1) of its text where it shows."""

    def __init__(self, reason: str, column: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column


@dataclass(frozen=True, slots=True)
class CsvFile:
    """The rows of a CSV file from its mapping's start on; row 0 is the first of these.

    path: the file in messages; plain: the file that is read; first_line is the line of row 0 in it.
    """

    path: str
    plain: str
    sensor: str
    mapping: CsvMapping
    properties: tuple[str, ...]
    first_line: int

    @property
    def partition(self) -> str:
        return Path(self.path).name

    def read(self, rows: RowRange, scope: bytes, hash_bits: int) -> Rows:
        """Read and encode a range. Raises: DataError (the file is gone or was cut)."""
        from wukongs.store.encoder import encode_columns

        raw_rows = _split_rows(read_bytes(self.plain, rows.first_byte, rows.end_byte))
        triples: list[Triple] = []
        times: list[int] = []
        offsets: list[int] = []
        malformed: list[SetAside] = []
        backwards: list[SetAside] = []
        latest = rows.floor_ms
        for offset, raw in zip(range(rows.first_offset, rows.end_offset), raw_rows, strict=True):
            try:
                found = self._triples(offset, raw)
                time = self._time(offset, raw)
            except _BadRow as bad:
                malformed.append(self._set_aside(offset, raw, bad.column, bad.reason))
                continue
            if time < latest:
                backwards.append(self._set_aside(offset, raw, 1, f"its time {time} ms is before {latest} ms"))
                continue
            latest = time
            triples += found
            times += [time] * len(found)
            offsets += [offset] * len(found)
        columns: list[list[str]] = [list(column) for column in zip(*triples, strict=True)] or [[], [], []]
        encoded = encode_columns(
            columns[0], columns[1], columns[2], np.array(times, np.int64), scope=scope, hash_bits=hash_bits
        )
        return Rows(encoded, np.array(offsets, np.int64), malformed, backwards)

    def _set_aside(self, offset: int, raw: bytes, column: int, reason: str) -> SetAside:
        text = raw.decode("utf-8", "backslashreplace")[:_TEXT_MAX]
        return SetAside(self.path, self.first_line + offset, column, reason, text)

    def _time(self, offset: int, raw: bytes) -> int:
        spec = self.mapping.time
        if spec.every_ms is not None:
            return offset * spec.every_ms
        return _row_time(self.mapping, raw)

    def _triples(self, offset: int, raw: bytes) -> list[Triple]:
        """Return the N-Triples terms of a row's observations; none for a row that the mapping skips."""
        fields = _fields(self.mapping, raw)
        if any(fields[column] in values for column, values in self.mapping.skip):
            return []
        numbers = _Numbers(self, fields)
        triples: list[Triple] = []
        for spec, property_ in zip(self.mapping.observations, self.properties, strict=True):
            name = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.sensor}|{self.first_line + offset}|{property_}")
            subject = f"<{_iri(self.mapping.observation.format_map(fields), fields)}{name}>"
            triples.append((subject, f"<{RDF_TYPE}>", f"<{SSN}Observation>"))
            triples.append((subject, f"<{SSN}observedBy>", f"<{self.sensor}>"))
            triples.append((subject, f"<{SSN}observedProperty>", f"<{property_}>"))
            triples += [(subject, f"<{predicate}>", f"<{iri}>") for predicate, iri in spec.extra]
            if spec.value is not None:
                triples.append((subject, f"<{spec.value.predicate}>", numbers.literal(spec.value)))
            if spec.node:
                node = f"_:loc{offset}"
                triples.append((subject, "<http://purl.oclc.org/NET/sao/hasValue>", node))
                triples += [(node, f"<{value.predicate}>", numbers.literal(value)) for value in spec.node]
        return triples


class _Numbers:
    """The numbers of one row's columns and lookups, read when an expression asks for them."""

    def __init__(self, source: CsvFile, fields: dict[str, str]) -> None:
        self._source, self._fields = source, fields

    def literal(self, spec: ValueSpec) -> str:
        values = {name: self._number(name) for name in spec.value.columns}
        try:
            result = spec.value.evaluate(values)
        except DivisionByZero:
            if spec.zero_divisor is None:
                raise _BadRow(f"{spec.value.text} divides by 0") from None
            result = spec.zero_divisor
        except OverflowError:
            raise _BadRow(f"{spec.value.text} is too large") from None
        if spec.datatype.endswith(("#int", "#integer")):
            if result != int(result):
                raise _BadRow(f"{spec.value.text} = {result} is no integer")
            return f'"{int(result)}"^^<{spec.datatype}>'
        return f'"{float(result)!r}"^^<{spec.datatype}>'

    def _number(self, name: str) -> Value:
        if name in self._source.mapping.lookups:
            by, known = self._source.mapping.lookups[name]
            found = known.get(self._fields[by])
            if found is None:
                raise _BadRow(f"no {name} is known for {by} = {self._fields[by]!r}")
            return found
        found = number(self._fields[name])
        if found is None:
            column = self._source.mapping.columns.index(name)
            place = sum(len(self._fields[before]) + 1 for before in self._source.mapping.columns[:column]) + 1
            raise _BadRow(f"expected a number in {name}, found {self._fields[name]!r}", place)
        return found


def _iri(text: str, fields: dict[str, str]) -> str:
    if any(sign <= " " or sign in '<>"{}|\\^`' for sign in text):
        raise _BadRow(f"its fields make no IRI: {text!r}")
    return text


def _split_rows(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _fields(mapping: CsvMapping, raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _BadRow("expected UTF-8", error.start + 1) from None
    if len(mapping.delimiters) == 1:
        try:
            values = next(csv.reader([text], delimiter=mapping.delimiters, strict=True), [])
        except csv.Error as error:
            raise _BadRow(f"expected CSV ({error})") from None
    else:
        for sign in mapping.delimiters[1:]:
            text = text.replace(sign, mapping.delimiters[0])
        values = text.split(mapping.delimiters[0])
    if len(values) != len(mapping.columns):
        raise _BadRow(f"expected {len(mapping.columns)} fields, found {len(values)}", len(text) + 1)
    return dict(zip(mapping.columns, values, strict=True))


def _row_time(mapping: CsvMapping, raw: bytes) -> int:
    column = str(mapping.time.column)
    text = _fields(mapping, raw)[column]
    time = time_of(text)
    if time is None:
        raise _BadRow(f"expected a date and time in {column}, found {text!r}")
    return time


def _line_starts(data: bytes) -> Int64Array:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    return starts if len(data) and not data.endswith(b"\n") else starts[:-1] if len(data) else starts[:0]


def _lines(data: bytes, starts: Int64Array) -> Iterator[bytes]:
    ends = [*starts[1:].tolist(), len(data)]
    for start, end in zip(starts.tolist(), ends, strict=True):
        yield data[start:end].rstrip(b"\r\n")


def prepare_csv(config: CsvSource, folder: Path) -> tuple[CsvFile, SourceIndex]:
    """Open a CSV source and index its rows from the mapping's start on.

    Raises: SettingsError (the mapping, or a property that is not known); DataError (the file, or its header)."""
    mapping = load_mapping(config.mapping)
    plain = plain_copy(config.path, folder)
    data = read_bytes(plain, 0, Path(plain).stat().st_size)
    starts = _line_starts(data)
    if mapping.header:
        header = data[: data.find(b"\n") if b"\n" in data else len(data)].rstrip(b"\r").decode("utf-8-sig", "replace")
        found = next(csv.reader([header], delimiter=mapping.delimiters[0]), [])
        if tuple(found) != mapping.columns:
            expected = mapping.delimiters[0].join(mapping.columns)
            raise DataError(f"expected the header {expected!r}, found {header!r}", config.path, 1)
        starts = starts[1:]
    first = _first_row(mapping, data, starts)
    times = _times(mapping, data, starts[first:])
    index = SourceIndex(running_max(times), np.concatenate([starts[first:], np.array([len(data)], np.int64)]))
    first_line = first + (2 if mapping.header else 1)
    properties = properties_of(mapping, config.sensor)
    source = CsvFile(config.path, plain, config.sensor, mapping, properties, first_line)
    return source, index


def _first_row(mapping: CsvMapping, data: bytes, starts: Int64Array) -> int:
    if mapping.time.start_ms is None:
        return 0
    for row, raw in enumerate(_lines(data, starts)):
        try:
            if _row_time(mapping, raw) >= mapping.time.start_ms:
                return row
        except _BadRow:
            continue
    return len(starts)


def _times(mapping: CsvMapping, data: bytes, starts: Int64Array) -> Int64Array:
    if mapping.time.every_ms is not None:
        return np.arange(len(starts), dtype=np.int64) * mapping.time.every_ms
    times = np.full(len(starts), NO_TIME, np.int64)
    for row, raw in enumerate(_lines(data, starts)):
        try:
            times[row] = _row_time(mapping, raw)
        except _BadRow:
            continue
    return times
