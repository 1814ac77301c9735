"""Contents whose rows are counted: a row that occurs twice has the count 2. A change costs its own rows alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.incremental.lookups import Operator, noted
from wukongs.incremental.versions import Change
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.counted_rows import CountedRows, Touched
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array


@dataclass(slots=True)
class Counted:
    """Keeps how often each row of the part below is there.

    variables: of the rows.
    is_distinct: it is DISTINCT, which has each row once; else the content of the part below, kept as a whole."""

    variables: tuple[Variable, ...]
    children: tuple[Operator]
    is_distinct: bool = True
    rows: CountedRows = field(init=False)
    touched: int = field(default=0, init=False)
    keeps = True

    def __post_init__(self) -> None:
        self.rows = CountedRows(len(self.variables))

    @property
    def kind(self) -> str:
        return "distinct" if self.is_distinct else "content"

    @property
    def kept_bytes(self) -> int:
        return self.rows.size_bytes

    def forget(self) -> None:
        """Keep nothing until `begin`."""
        self.rows = CountedRows(len(self.variables))

    def begin(self, stored: BatchSet) -> ZSet:
        self.forget()
        self._add(self.children[0].begin(stored))
        return self.content()

    @noted
    def change(self, change: Change) -> ZSet:
        changed = self.children[0].change(change)
        if not self.is_distinct:
            self._add(changed)
            return changed
        if not len(changed):
            return ZSet.empty(self.variables)
        moved = self._add(changed)
        inserted = moved.slots[(moved.before == 0) & (moved.after > 0)]
        deleted = moved.slots[(moved.before > 0) & (moved.after == 0)]
        weights: Int64Array = np.repeat(np.array([1, -1]), [len(inserted), len(deleted)])
        return ZSet(self._table(np.concatenate((inserted, deleted))), weights)

    def content(self) -> ZSet:
        """Return the rows; they stay."""
        slots = self.rows.slots()
        counts = np.ones(len(slots), np.int64) if self.is_distinct else self.rows.counts[slots]
        return ZSet(self._table(slots), counts)

    def solutions(self) -> BindingTable:
        """Return the content as a bag."""
        return self._table(self.rows.slots()) if self.is_distinct else self.content().repeated()

    def _add(self, changed: ZSet) -> Touched:
        columns, weights = changed.table.columns_of(self.variables), changed.weights
        rows: Int64Array = np.stack(columns, axis=1) if columns else np.empty((len(changed), 0), np.int64)
        inserted = int(np.count_nonzero(weights > 0))
        if (weights[:inserted] < 0).any():  # inserted rows have to be first
            order = np.argsort(weights < 0, kind="stable")
            rows, weights = rows[order], weights[order]
        if self.rows.is_roomy(inserted):
            self.rows.compact()
        return self.rows.move(rows, weights)

    def _table(self, slots: Int64Array) -> BindingTable:
        columns = tuple(np.ascontiguousarray(self.rows.keys[slots].T))
        return BindingTable(self.variables, columns, len(slots))
