"""The other files that a mapping looks cells up in, as keys and values."""

from __future__ import annotations

import csv
import gzip
import zlib
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyoxigraph as ox

from wukongs.adapters.mapping.mapping import Lookup
from wukongs.errors import DataError


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
    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in (key, value) if name not in (rows.fieldnames or ())]
            if missing:
                raise DataError(f"expected the columns {key} and {value}, found {rows.fieldnames}", path, 1)
            return [(row[key], row[value]) for row in rows if row[key] is not None and row[value] is not None]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV ({error})", path) from None


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
