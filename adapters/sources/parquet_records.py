"""Rows of Parquet files as columns of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wukongs.adapters.mapping.arrow_cells import (
    cells_of,
    column_name,
    columns_in,
    datatype_of,
    node_counts,
    top_column,
)
from wukongs.adapters.mapping.json_paths import column_of
from wukongs.adapters.mapping.tables import Table
from wukongs.errors import DataError
from wukongs.query.terms.arrow_texts import TEXT
from wukongs.store.dtypes import Int64Array


@dataclass(frozen=True, slots=True)
class ParquetRecords:
    """Reads rows of a file by their numbers, a row group at a time."""

    path: str

    def columns(self) -> tuple[str, ...]:
        """The columns that there are, fields of structs by their paths. Raises: DataError (no Parquet)."""
        return tuple(name for name, _ in columns_in(_opened(self.path).schema_arrow))

    def row_count(self) -> int:
        return int(_opened(self.path).metadata.num_rows)

    def table(
        self, first: int, end: int, wanted: tuple[str, ...], raw: str | None = None, iterators: Sequence[str] = ()
    ) -> Table:
        """Read rows [first, end). raw: a column whose timestamps are left as such; iterators: JSON paths of lists whose
        elements are counted.

        Raises: DataError (a file that cannot be read); SettingsError (a column that has no texts)."""
        fields = dict(columns_in(_opened(self.path).schema_arrow))
        names = tuple(name for name in wanted if column_name(name, fields) in fields)
        lists = tuple(column_of(one).removesuffix("[]") for one in iterators)
        counts: dict[str, list[Int64Array]] = {one: [np.zeros(0, np.int64)] for one in iterators}
        parts: dict[str, list[pa.Array]] = {name: [] for name in names}
        metadata = _opened(self.path).metadata
        group_ends = list(accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)))
        for group, group_end in enumerate(group_ends):
            group_first = group_end - metadata.row_group(group).num_rows
            if group_end <= first or group_first >= end:
                continue
            table = _group(self.path, group, (*names, *lists))
            low, high = max(first, group_first) - group_first, min(end, group_end) - group_first
            for name in names:
                parts[name].append(cells_of(table.slice(low, high - low), name, self.path, name == raw))
            for one in iterators:
                counts[one].append(node_counts(table.slice(low, high - low), one, self.path))
        columns = {}
        for name, arrays in parts.items():
            kind = arrays[0].type if arrays else TEXT
            columns[name] = pa.concat_arrays(arrays) if arrays else pa.array([], kind)
        types: dict[str, pa.Array | str] = {name: datatype_of(fields[column_name(name, fields)]) for name in names}
        iterations = {one: np.concatenate(found) for one, found in counts.items()}
        return Table(end - first, columns, is_typed=True, types=types, iterations=iterations)


@lru_cache(maxsize=8)
def _opened(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot be read as Parquet ({error})", path) from None


@lru_cache(maxsize=1)
def _group(path: str, group: int, names: tuple[str, ...]) -> pa.Table:
    """Return a row group; the last one is kept, since several ranges lie in it."""
    try:
        tops = [top_column(name, _opened(path).schema_arrow.names) for name in names]
        return _opened(path).read_row_group(group, columns=list(dict.fromkeys(tops)))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot be read as Parquet ({error})", path) from None
