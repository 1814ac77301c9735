"""Tables, which sources hand to mappings: rows as columns of text, the faults found in them, and where these are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from wukongs.store.dtypes import Int64Array


@dataclass(slots=True)
class Table:
    """Rows of a source as columns. names: column -> texts (large_string) or lists of texts, one entry a row.

    bad: row -> the column (from 1) of its text and why it could not be read; faults found later are added.
    blank: rows without a record: empty lines. is_typed: the source tells numbers from texts. numbers :
    int64[row_count], ascending, the number of each row, where they do not follow each other.
    types: column -> the datatype's IRI of each text, in lists as these are, or one IRI for all.
    iterations: JSON path of an iterator -> int64[row_count], the number of nodes that it selects in each row."""

    row_count: int
    names: dict[str, pa.Array]
    bad: dict[int, tuple[int, str]] = field(default_factory=dict)
    blank: frozenset[int] = frozenset()
    places: Callable[[int, str], int] = lambda row, name: 1
    """Tells where a cell begins in its row's text (from 1)."""
    is_typed: bool = False
    numbers: Int64Array | None = None
    types: dict[str, pa.Array | str] = field(default_factory=dict)
    iterations: dict[str, Int64Array] = field(default_factory=dict)
    ahead: dict[int, str] = field(default_factory=dict)
    """Rows whose time is not believed, and why."""

    def numbered(self, first_row: int) -> Int64Array:
        """Return the number of each row, from first_row on."""
        if self.numbers is not None:
            return self.numbers
        return first_row + np.arange(self.row_count, dtype=np.int64)

    def blame(self, row: int, name: str | None, reason: str) -> None:
        """Note what is wrong with a row; the first fault counts."""
        if row not in self.bad and row not in self.blank:
            self.bad[row] = (1 if name is None else self.places(row, name), reason)
