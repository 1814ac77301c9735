"""The rows of a DataFrame's tasks through a mapping: they become lines of N-Quads with times. Knows nothing of Spark.

A row that the mapping cannot read is an error that names its column: a DataFrame has no file of dead letters, and it
can be filtered before it is written. The mapping's files are read where the FrameMapping is made; it travels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.adapters.mapping.arrow_cells import (
    cells_of,
    check_text,
    column_name,
    columns_in,
    datatype_of,
    node_counts,
    top_column,
)
from wukongs.adapters.mapping.json_paths import column_of
from wukongs.adapters.mapping.mapping import FILE, ROW, Join, Mapping, mapping_in
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.templates import Kind, TermMap
from wukongs.adapters.mapping.triples import Mapper
from wukongs.adapters.run_config import mapping_of
from wukongs.adapters.sink import TEXT_COLUMN, times_of
from wukongs.errors import DataError, SettingsError
from wukongs.query.terms.arrow_texts import text_array
from wukongs.settings.toml_reader import parse_toml

TIME_COLUMN = "time"
_PLACE = "the DataFrame"
_ROW_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True, eq=False)
class FrameMapping:
    """mapper: of the mapping; columns: those of the DataFrame that are read; has_time: rows have times, by [time] or by
    the column time; types: the datatype's IRI of each column that the mapping names."""

    mapping: Mapping
    mapper: Mapper
    columns: tuple[str, ...]
    has_time: bool
    types: dict[str, str]

    def rows(self, table: pa.Table) -> pa.Table:
        """Return the triples of a task's rows as lines, and the time of each (int64, ms).

        Raises: DataError (a row that the mapping cannot read)."""
        spec, count = self.mapping.time, len(table)
        raw = spec.column if spec is not None else None
        cells = {name: cells_of(table, name, _PLACE, name == raw) for name in self.mapping.columns}
        types: dict[str, pa.Array | str] = {name: self.types[name] for name in self.mapping.typed if name in self.types}
        iterations = {one: node_counts(table, one, _PLACE) for one in self.mapping.iterators}
        read = Table(count, cells, is_typed=True, types=types, iterations=iterations)
        if not self.has_time:
            times = np.zeros(count, np.int64)
        elif spec is None:
            times = times_of(table[TIME_COLUMN]).to_numpy()
        else:
            times = self.mapper.times(read, 0)
        lines, _ = self.mapper.lines(read, 0, times)
        if read.bad:
            row, (_, reason) = min(read.bad.items())
            shown = ", ".join(f"{name}={values[row].as_py()}" for name, values in cells.items())
            raise DataError(f"{reason}, in the row {shown[:_ROW_SHOWN_MAX]}")
        ends = np.flatnonzero(lines.text == 10) + 1
        texts = pc.utf8_rtrim(text_array(lines.text, np.concatenate([np.zeros(1, np.int64), ends])), "\n")
        found = pa.table({TEXT_COLUMN: texts, TIME_COLUMN: times[lines.rows]})
        if self.has_time and spec is not None and spec.start_ms is not None:
            return found.filter(pc.greater_equal(found[TIME_COLUMN], spec.start_ms))
        return found


def frame_mapping(given: str, schema: pa.Schema, has_time: bool) -> FrameMapping:
    """Return the mapping that an option gives, as the path of a file or as its text, for a DataFrame of this schema.

    Raises: SettingsError (a mapping that does not go with the columns, or with DataFrames); DataError (a lookup)."""
    mapping = _mapping(given)
    mapping = mapping if has_time else replace(mapping, time=None)
    _check(mapping, schema, has_time)
    lists = [column_of(one).removesuffix("[]") for one in mapping.iterators]
    names = [*mapping.columns, *lists, *([TIME_COLUMN] if has_time and mapping.time is None else [])]
    columns = tuple(dict.fromkeys(top_column(name, schema.names) for name in names))
    fields = dict(columns_in(schema))
    types = {name: datatype_of(fields[column_name(name, fields)]) for name in mapping.columns}
    return FrameMapping(mapping, Mapper(mapping, {}), columns, has_time, types)


def _mapping(given: str) -> Mapping:
    if "\n" not in given:
        return mapping_of(given, ())
    reader = parse_toml(given, "option 'mapping'")
    mapping = mapping_in(reader)
    reader.done()
    return mapping


def _check(mapping: Mapping, schema: pa.Schema, has_time: bool) -> None:
    columns = columns_in(schema)
    names, types = [name for name, _ in columns], dict(columns)
    shown = ", ".join(names) or "none"
    for name in (column_name(name, types) for name in mapping.columns):
        if name not in types:
            near = get_close_matches(name, names, 1)
            advice = f". Did you mean {near[0]!r}?" if near else ""
            raise SettingsError(
                f"{mapping.file}, column {name!r}: the DataFrame has no such column, only {shown}{advice}"
            )
        if names.count(name) > 1:
            raise SettingsError(f"{mapping.file}, column {name!r}: the DataFrame has several of this name")
        check_text(types[name], name, f"{mapping.file}, {_PLACE}")
    for name, _ in mapping.numbers:
        if name in types and not _is_text(types[name]):
            raise SettingsError(
                f"{mapping.file}, column {name!r}: [number.column] is about texts; the DataFrame has {types[name]}"
            )
    if {ROW, FILE} & set(mapping.names):
        raise SettingsError(f"{mapping.file}: {{{ROW}}} and {{{FILE}}} are of files; the rows of a DataFrame have none")
    if not has_time:
        if any(_kind(term) == "blank" for triple in mapping.triples for term in triple.terms):
            raise SettingsError(
                f"{mapping.file}: blank nodes cannot be written to the stored graph, since each task would make nodes "
                "of its own. Give them IRIs"
            )
    elif mapping.time is None:
        kind = types.get(TIME_COLUMN)
        if kind is None or not (pa.types.is_timestamp(kind) or kind in (pa.int64(), pa.int32())):
            raise SettingsError(
                f"{mapping.file}: expected a [time] (when a row happens), or a column 'time' of type timestamp, or "
                f"bigint or int in ms; found {shown}"
            )
    elif mapping.time.format.ambiguous == "infer":
        raise SettingsError(
            f"{mapping.file}, time.ambiguous: the rows of a DataFrame have no order to infer from: first or second"
        )
    elif mapping.time.every_ms is not None:
        raise SettingsError(f"{mapping.file}, time.every_ms: the rows of a DataFrame have no numbers. Name a column")


def _kind(term: TermMap | Join) -> Kind:
    return term.kind_of_term if isinstance(term, Join) else term.kind


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
