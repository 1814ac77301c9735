"""The other files that a mapping reads: to look cells up in them, as keys and values, and to join their records."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyoxigraph as ox

from wukongs.adapters.mapping.json_cells import BadRecord, PathColumns, parse_json
from wukongs.adapters.mapping.json_paths import is_json_path
from wukongs.adapters.mapping.mapping import FILE, ROW, Join, Lookup
from wukongs.adapters.mapping.tables import Table
from wukongs.errors import DataError

_ENDINGS_OF_LINES = (".jsonl", ".ndjson")


def read_lookup(lookup: Lookup) -> tuple[pa.Array, pa.Array]:
    """Return the keys and, beside each, its value: large_string[n]. Of a repeated key the first value counts.

    Raises: DataError (a file that cannot be read; a column that it does not have; a query that will not do)."""
    if lookup.query is None:
        pairs = _csv_pairs(lookup.file, str(lookup.key), str(lookup.value))
    else:
        pairs = _rdf_pairs(lookup.file, lookup.query)
    first: dict[str, str] = {}
    for key, value in pairs:
        first.setdefault(key, value)
    return pa.array(first.keys(), pa.large_string()), pa.array(first.values(), pa.large_string())


def _csv_pairs(path: str, key: str, value: str) -> list[tuple[str, str]]:
    rows = _csv_rows(path, (key, value))
    return [(row[key], row[value]) for row in rows if row[key] is not None and row[value] is not None]


def _csv_rows(path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if any(name not in (rows.fieldnames or ()) for name in columns):
                raise DataError(f"expected the columns {' and '.join(columns)}, found {rows.fieldnames}", path, 1)
            return list(rows)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV ({error})", path) from None


def read_joined(join: Join) -> Table:
    """Return the records of the other file of a join, with the columns that it reads there; empty texts are null.

    Raises: DataError (a file that cannot be read; a column that it does not have)."""
    if join.kind == "json":
        return _json_table(join)
    names = [name for name in join.names_there if name not in (ROW, FILE)]
    rows = _csv_rows(join.file, names)
    table = Table(len(rows), {name: pa.array([row[name] or None for row in rows], pa.large_string()) for name in names})
    _add_made(table, join.file)
    return table


def _json_table(join: Join) -> Table:
    """Read a document, or the lines of a file of these; a document that is an array has that as its only record."""
    path = join.file
    try:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if path.endswith(".gz") else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read as JSON ({error})", path) from None
    is_lines = path.removesuffix(".gz").endswith(_ENDINGS_OF_LINES)
    records = [line for line in text.split("\n") if line.strip()] if is_lines else [text]
    names = [name for name in join.names_there if is_json_path(name)]
    columns = PathColumns(len(records), names, (), (join.iterator,) if join.iterator else ())
    for row, record in enumerate(records):
        try:
            columns.read(row, parse_json(record), is_lines)
        except BadRecord as error:
            raise DataError(error.reason, path, row + 1) from None
    table = Table(len(records), {}, is_typed=True)
    columns.fill(table)
    _add_made(table, path)
    return table


def _add_made(table: Table, path: str) -> None:
    rows = [str(row) for row in range(table.row_count)]
    table.names[ROW] = pa.array(rows, pa.large_string())
    table.names[FILE] = pa.array([Path(path).name] * table.row_count, pa.large_string())


@lru_cache(maxsize=64)
def _rdf_pairs(path: str, query: str) -> list[tuple[str, str]]:
    store = _rdf_store(path)
    try:
        solutions = store.query(query)
    except (SyntaxError, ValueError, OSError) as error:
        raise DataError(f"the query of a lookup does not parse ({error})", path) from None
    if not isinstance(solutions, ox.QuerySolutions) or len(solutions.variables) != 2:
        raise DataError("expected a SELECT query of two variables, a key and its value, as a lookup", path)
    found = []
    for solution in solutions:
        key, value = solution[0], solution[1]
        if key is not None and value is not None:
            found.append((str(getattr(key, "value", key)), str(getattr(value, "value", value))))
    return sorted(found)


@lru_cache(maxsize=4)
def _rdf_store(path: str) -> ox.Store:
    name = path.removesuffix(".gz")
    format_ = ox.RdfFormat.from_extension(name.rpartition(".")[2]) or ox.RdfFormat.TURTLE
    try:
        data = Path(path).read_bytes()
        if path.endswith(".gz"):
            data = gzip.decompress(data)
        store = ox.Store()
        store.bulk_load(data, format=format_)
    except (OSError, EOFError, zlib.error, SyntaxError, ValueError) as error:
        raise DataError(f"cannot be read as RDF ({error})", path) from None
    return store
