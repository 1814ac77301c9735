"""Rows to triples, by columns: each triple map of a mapping is evaluated over all rows of a table at once.

A table is read as texts; an empty cell is null, a list is an Arrow list. A triple map makes a column of lines; the
lines of all triple maps are put in the order of their rows. A row in which something is wrong makes no triple at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping as Names
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.adapters.mapping.arrow_cells import lists_of, without_empty
from wukongs.adapters.mapping.expressions import DivisionByZero, Value, number
from wukongs.adapters.mapping.iterations import Iterations, Joined, iteration_lines
from wukongs.adapters.mapping.json_paths import is_json_path, key_of
from wukongs.adapters.mapping.lookups import read_lookup
from wukongs.adapters.mapping.mapping import ROW, Computed, Condition, Join, Mapping, TripleMap
from wukongs.adapters.mapping.numbers import NumberFormat
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.templates import TermMap
from wukongs.adapters.mapping.terms import blame_cells, shown, term_texts
from wukongs.adapters.mapping.times import NO_TIME, event_times_of, iso_texts, stamp_texts, times_of
from wukongs.adapters.source import ahead_of_clock
from wukongs.query.terms.arrow_texts import TEXT, bytes_of, text_array
from wukongs.store.dtypes import BoolArray, Int64Array, UInt8Array


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """N-Triples and N-Quads lines. text: uint8[n_bytes]; rows : int64[n_lines], ascending, the row of each."""

    text: UInt8Array
    rows: Int64Array

    def cut(self, kept: Int64Array) -> Lines:
        """Return the lines at these places."""
        ends = np.flatnonzero(self.text == 10) + 1
        lines = text_array(self.text, np.concatenate([np.zeros(1, np.int64), ends]))
        return Lines(bytes_of(lines.take(pa.array(kept)))[0], self.rows[kept])


class Mapper:
    """Evaluates one mapping over tables of one source. constants: texts by name that the source gives to each row."""

    def __init__(self, mapping: Mapping, constants: Names[str, str]) -> None:
        """Raises: DataError (a lookup's file)."""
        self._mapping, self._constants = mapping, dict(constants)
        self._lookups = {lookup.name: read_lookup(lookup) for lookup in mapping.lookups}
        joins = dict.fromkeys(triple.object for triple in mapping.triples if isinstance(triple.object, Join))
        self._joins = {join: Joined(join) for join in joins}

    def times(
        self,
        table: Table,
        first_row: int,
        floor_ms: int = NO_TIME,
        lateness_ms: int = 0,
        bounds: Int64Array | None = None,
    ) -> Int64Array:
        """Return the time of each row, NO_TIME for one that has none, or one that is not believed.

        floor_ms: the latest time of all rows before; lateness_ms: how far a row may lie behind the latest one; bounds :
        int64[n_rows], the latest time that each may have."""
        spec = self._mapping.time
        assert spec is not None, self._mapping.file
        if spec.every_ms is not None:
            return table.numbered(first_row) * spec.every_ms
        if spec.start_ms is not None:  # no row before it counts, so it is a time before all that do
            floor_ms = max(floor_ms, spec.start_ms)
        cells, _ = _single(table.names[str(spec.column)])
        times = event_times_of(cells, spec.format, floor_ms, lateness_ms, bounds)
        if bounds is not None:
            for row in np.flatnonzero(times > bounds).tolist():
                table.ahead[row] = ahead_of_clock(int(times[row]), int(bounds[row]))
                times[row] = NO_TIME
        return times

    def lines(self, table: Table, first_row: int | Int64Array, times: Int64Array) -> tuple[Lines, BoolArray]:
        """Return the lines of all rows but bad ones, and which rows pass the mapping's conditions on their own cells.
        The others are not looked at: they are no bad rows. times: of the rows; first_row: its number in its file."""
        mapping = self._mapping
        rows = _Rows(table, mapping, self._constants, first_row)
        wanted = self._wanted(rows)
        self._blame_times(table, np.flatnonzero((times == NO_TIME) & wanted))
        for lookup in mapping.lookups:
            keys, values = self._lookups[lookup.name]
            rows.add(lookup.name, values.take(pc.index_in(rows.cells(lookup.by), keys)))
        for computed in mapping.computed:
            rows.add(computed.name, _computed(rows, computed, wanted))
        passing = rows.passing(mapping.conditions)
        parts: list[pa.Array] = []
        places: list[Int64Array] = []
        count = len(mapping.triples)
        for place, triple in enumerate(mapping.triples):
            if triple.iterator is None:
                lines, of_rows = _lines(rows, triple, passing)
            else:
                lines, of_rows = iteration_lines(triple, rows.iterations(triple.iterator), rows, self._joins)
            parts.append(lines)
            places.append(of_rows * count + place)
        key = np.concatenate(places)
        bad = np.array([*table.bad, *table.blank], np.int64)
        order = np.argsort(key, kind="stable")
        of_rows = key[order] // count
        if len(bad):
            kept = ~np.isin(of_rows, bad)
            order, of_rows = order[kept], of_rows[kept]
        text = pa.concat_arrays(parts).take(pa.array(order))
        return Lines(bytes_of(text)[0], of_rows), wanted

    def _wanted(self, rows: _Rows) -> BoolArray:
        made = {*(one.name for one in self._mapping.computed), *(one.name for one in self._mapping.lookups)}
        found = rows.passing(tuple(one for one in self._mapping.conditions if one.column not in made))
        return np.ones(rows.table.row_count, bool) if found is None else found

    def _blame_times(self, table: Table, rows: Int64Array) -> None:
        if not len(rows):
            return
        spec = self._mapping.time
        assert spec is not None, self._mapping.file
        column = str(spec.column)
        cells, lengths = _single(table.names[column].take(pa.array(rows)))
        times = times_of(cells, spec.format).tolist()
        for row, cell, length, time in zip(rows.tolist(), cells, lengths.tolist(), times, strict=True):
            if row in table.ahead:
                table.blame(row, column, table.ahead[row])
            if length > 1:
                table.blame(row, column, f"expected one value in {column}, found {length}")
            expected = spec.format if time == NO_TIME else f"{spec.format} in 1935 to 2109"
            table.blame(row, column, f"expected {expected} in {column}, found {shown(cell.as_py())}")


class _Rows:
    """A table with the columns that a mapping adds, empty cells made null."""

    def __init__(self, table: Table, mapping: Mapping, constants: Names[str, str], first_row: int | Int64Array) -> None:
        self.table = table
        self._empty = pa.array(mapping.empty, TEXT)
        self._cells: dict[str, pa.Array] = {}
        self._beside = {*constants, ROW}
        self._iterations: dict[str, Iterations] = {}
        self._number, self._numbers = mapping.number, dict(mapping.numbers)
        split = dict(mapping.split)
        for name in mapping.columns:
            if name in table.names:
                cells = table.names[name]
                is_stamp = not (_is_list(cells) or pa.types.is_large_string(cells.type))
                cells = without_empty(stamp_texts(cells) if is_stamp else cells, self._empty)
                if name in split and not _is_list(cells):
                    cells = self._split(cells, split[name])
                self._cells[name] = cells
        for name, text in constants.items():
            self.add(name, pa.repeat(pa.scalar(text, TEXT), table.row_count))
        numbers = table.numbered(first_row) if isinstance(first_row, int) else first_row
        self.add(ROW, pa.array(numbers).cast(TEXT))

    def _split(self, cells: pa.Array, sign: str) -> pa.Array:
        lists = pc.split_pattern(cells, sign)
        return lists_of(lists, without_empty(pc.utf8_trim_whitespace(lists.flatten().cast(TEXT)), self._empty))

    def iterations(self, iterator: str) -> Iterations:
        """Return the iterations of the rows under an iterator."""
        if iterator not in self._iterations:
            self._iterations[iterator] = Iterations(self.table, iterator, self._cell_or_constant)
        return self._iterations[iterator]

    def _cell_or_constant(self, name: str) -> pa.Array:
        """Return a column. A JSON path of one key is that of a cell, too, which the source has beside its records."""
        beside = key_of(name) if is_json_path(name) else None
        return self._cells[name if beside is None or beside not in self._beside else beside]

    def add(self, name: str, cells: pa.Array) -> None:
        self._cells[name] = cells

    def number_format(self, name: str) -> NumberFormat | None:
        """Return how numbers are written in a column, None for plainly."""
        if name in self._numbers:
            return self._numbers[name]
        return None if self.table.is_typed or name not in self.table.names else self._number

    def cells(self, name: str) -> pa.Array:
        """Return a column of single cells; a row that has a list there is a bad one."""
        cells = self._cells[name]
        if not _is_list(cells):
            return cells
        singles, lengths = _single(cells)
        for row in np.flatnonzero(lengths > 1).tolist():
            self.table.blame(row, name, f"expected one value in {name}, found {lengths[row]}")
        return singles

    def elements(self, names: tuple[str, ...]) -> tuple[dict[str, pa.Array], Int64Array | None]:
        """Return the columns side by side, and the row of each entry. Lists count element by element, in parallel, and
        single cells are repeated; None: without a list, entries are rows."""
        lists = [name for name in names if _is_list(self._cells[name])]
        if not lists:
            return {name: self._cells[name] for name in names}, None
        lengths = [self._lengths(name) for name in lists]
        is_empty = np.min(lengths, axis=0) == 0
        uneven = (np.max(lengths, axis=0) != lengths[0]) | (np.min(lengths, axis=0) != lengths[0])
        uneven &= ~is_empty
        for row in np.flatnonzero(uneven).tolist():
            found = " and ".join(f"{length[row]} in {name}" for name, length in zip(lists, lengths, strict=True))
            self.table.blame(row, lists[1], f"expected lists of one length, found {found}")
        is_read = ~(uneven | is_empty)
        even = pa.array(is_read)
        parents = np.repeat(np.arange(self.table.row_count, dtype=np.int64), np.where(is_read, lengths[0], 0))
        entries = {}
        for name in names:
            cells = self._cells[name]
            entries[name] = cells.filter(even).flatten() if name in lists else cells.take(pa.array(parents))
        return entries, parents

    def is_empty(self, name: str) -> BoolArray:
        """Return which rows have nothing in a column."""
        cells = self._cells[name]
        return self._lengths(name) == 0 if _is_list(cells) else np.asarray(pc.is_null(cells))

    def _lengths(self, name: str) -> Int64Array:
        return np.asarray(pc.fill_null(pc.list_value_length(self._cells[name]), 0)).astype(np.int64)

    def passing(self, conditions: tuple[Condition, ...]) -> BoolArray | None:
        """Return which rows pass all conditions; None without conditions."""
        if not conditions:
            return None
        passing = np.ones(self.table.row_count, bool)
        for one in conditions:
            if one.values is None:
                found = ~self.is_empty(one.column)
            else:
                cells = pc.fill_null(self.cells(one.column), "")
                found = np.asarray(pc.is_in(cells, pa.array(one.values, TEXT)))
            passing &= found ^ one.is_negated
        return passing


def _lines(rows: _Rows, triple: TripleMap, passing: BoolArray | None) -> tuple[pa.Array, Int64Array]:
    """Return the lines of one triple map, and their rows."""
    names = tuple(dict.fromkeys(name for term in triple.terms for name in term.names))
    cells, parents = rows.elements(names)
    count = rows.table.row_count if parents is None else len(parents)
    of_rows = np.arange(count, dtype=np.int64) if parents is None else parents
    own = rows.passing(triple.conditions)
    if own is not None:
        passing = own if passing is None else passing & own
    wanted = np.ones(count, bool) if passing is None else passing[of_rows]
    if triple.if_empty == "bad":
        for name in names:
            empty = np.flatnonzero(rows.is_empty(name) & (True if passing is None else passing))
            empty = np.concatenate([empty, of_rows[np.asarray(pc.is_null(cells[name])) & wanted]])
            for row in empty.tolist():
                rows.table.blame(row, name, f"expected a value in {name}, found nothing")
    for name in names:  # a triple that is left out is not checked
        wanted = wanted & np.asarray(pc.is_valid(cells[name]))
    terms = [term for term in triple.terms if isinstance(term, TermMap)]
    texts = [term_texts(term, cells, rows, of_rows, wanted) for term in terms]
    lines = pc.binary_join_element_wise(*texts, pa.scalar(".\n", TEXT), pa.scalar(" ", TEXT))
    if not isinstance(lines, pa.Array):
        lines = pa.repeat(lines, count)
    return (lines, of_rows) if wanted.all() else (lines.filter(pa.array(wanted)), of_rows[wanted])


def _computed(rows: _Rows, computed: Computed, wanted: BoolArray) -> pa.Array:
    if computed.time is not None:
        cells = rows.cells(computed.time)
        times = times_of(cells, computed.format)
        for row in np.flatnonzero((times == NO_TIME) & np.asarray(pc.is_valid(cells)) & wanted).tolist():
            reason = f"expected {computed.format} in {computed.time}, found {shown(cells[row].as_py())}"
            rows.table.blame(row, computed.time, reason)
        return iso_texts(times)
    assert computed.number is not None, computed
    names = computed.number.columns
    columns = [rows.cells(name) for name in names]
    for cells in columns:
        wanted = wanted & np.asarray(pc.is_valid(cells))
    texts = [_plain(rows, name, cells, wanted).to_pylist() for name, cells in zip(names, columns, strict=True)]
    found: list[str | None] = []
    for row in range(rows.table.row_count):
        cells_of_row = [column[row] for column in texts]
        is_left_out = not wanted[row] or None in cells_of_row
        found.append(None if is_left_out else _evaluated(rows.table, row, computed, names, cells_of_row))
    return pa.array(found, TEXT)


def _plain(rows: _Rows, name: str, cells: pa.Array, wanted: BoolArray) -> pa.Array:
    """Return the cells of a column with their numbers in plain form; a row with none is a bad one."""
    format = rows.number_format(name)
    if format is None:
        return cells
    plain = format.plain(pc.utf8_trim_whitespace(cells))
    every = np.arange(len(cells), dtype=np.int64)
    blame_cells(cells, pc.is_valid(plain), f"a number with {format}", name, rows.table, every, wanted)
    return plain


def _evaluated(table: Table, row: int, computed: Computed, names: tuple[str, ...], texts: list[str]) -> str | None:
    assert computed.number is not None, computed
    values: dict[str, Value] = {}
    for name, text in zip(names, texts, strict=True):
        value = number(text)
        if value is None:
            table.blame(row, name, f"expected a number in {name}, found {shown(text)}")
            return None
        values[name] = value
    try:
        result = computed.number.evaluate(values)
        if isinstance(result, float) and not math.isfinite(result):
            raise OverflowError
        if computed.type == "integer" and result != int(result):
            table.blame(row, None, f"{computed.number.text} = {result} is no integer")
            return None
        return _written(result, computed)
    except DivisionByZero:
        if computed.zero_divisor is None:
            table.blame(row, None, f"{computed.number.text} divides by 0")
            return None
        result = computed.zero_divisor
        return repr(float(result)) if computed.type == "double" else str(result)
    except (OverflowError, ValueError):  # ValueError: more digits than Python writes
        table.blame(row, None, f"{computed.number.text} is too large")
        return None


def _written(result: Value, computed: Computed) -> str:
    if computed.type == "double":
        return repr(float(result))
    if computed.type == "decimal" and isinstance(result, float):
        return np.format_float_positional(result, trim="-")
    return str(int(result)) if computed.type == "integer" else repr(result)


def _is_list(cells: pa.Array) -> bool:
    return bool(pa.types.is_large_list(cells.type))


def _single(cells: pa.Array) -> tuple[pa.Array, Int64Array]:
    """Return the only cell of each row, null for a row with none or several, and how many it has."""
    if not _is_list(cells):
        return cells, np.asarray(pc.is_valid(cells)).astype(np.int64)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(cells), 0)).astype(np.int64)
    return pc.list_element(pc.if_else(pa.array(lengths == 1), cells, pa.scalar([None], cells.type)), 0), lengths
