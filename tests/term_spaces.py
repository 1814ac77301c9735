"""A TermSpace for tests: ids are places in a list, and it counts what it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.terms.moment import Moment
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array

Solution = dict[str, str]
"""A solution mapping: variable names to canonical texts; an unbound variable has no entry."""


class ListTermSpace:
    """Ids from 0 in order of appearance."""

    inlines = False

    def __init__(self) -> None:
        self.moment = Moment(0, b"a term space of the tests")
        self._texts: list[str] = []
        self._ids: dict[str, int] = {}
        self.asked: list[list[int]] = []
        """The ids of each call of `texts`."""

    def texts(self, ids: Int64Array) -> list[str]:
        self.asked.append(ids.tolist())
        assert (ids >= 0).all(), ids
        return [self._texts[item] for item in ids.tolist()]

    def ids(self, texts: Sequence[str]) -> Int64Array:
        for text in texts:
            if text not in self._ids:
                self._ids[text] = len(self._texts)
                self._texts.append(text)
        return np.array([self._ids[text] for text in texts], np.int64)

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        assert (ids >= 0).all(), ids
        parts = [self._texts[item].encode() for item in ids.tolist()]
        return np.frombuffer(bytearray(b"".join(parts)), np.uint8), np.cumsum([0, *map(len, parts)])

    def table(self, names: str | Sequence[str], rows: Iterable[Sequence[str | None]]) -> BindingTable:
        """Make a table; names may be 'x y z', and None is an unbound variable."""
        variables = tuple(Variable(name) for name in (names.split() if isinstance(names, str) else names))
        held = list(rows)
        columns = tuple(
            np.array([UNBOUND if (text := row[place]) is None else self.ids([text])[0] for row in held], np.int64)
            for place in range(len(variables))
        )
        return BindingTable(variables, columns, len(held))

    def rows(self, table: BindingTable) -> list[tuple[str | None, ...]]:
        """Return a table's rows as texts, None where unbound."""
        columns = [self.column(column) for column in table.columns]
        return list(zip(*columns, strict=True)) if columns else [()] * table.length

    def column(self, ids: Int64Array) -> list[str | None]:
        return [None if item == UNBOUND else self._texts[item] for item in ids.tolist()]

    def solutions(self, table: BindingTable) -> list[Solution]:
        """Return a table's rows as solution mappings."""
        names = [variable.name for variable in table.variables]
        return [
            {name: text for name, text in zip(names, row, strict=True) if text is not None} for row in self.rows(table)
        ]
