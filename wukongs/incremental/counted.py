"""Contents whose rows are counted: a row that occurs twice has the count 2. A change costs its own rows alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.incremental.lookups import Operator, noted
from wukongs.incremental.versions import Change
from wukongs.incremental.window_join import WindowJoin
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.counted_rows import CountedRows, Touched
from wukongs.query.plans.window_changes import Moves
from wukongs.store.batch_set import EMPTY, BatchSet
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
    def count(self) -> int:
        """The distinct rows."""
        return self.rows.count

    @property
    def kept_bytes(self) -> int:
        return self.rows.size_bytes

    def forget(self) -> None:
        """Keep nothing until `begin`."""
        self.rows = CountedRows(len(self.variables))

    def begin(self, stored: BatchSet) -> ZSet:
        self.forget()
        (below,) = self.children
        if isinstance(below, WindowJoin):
            self._add_moves(below, below.all_rows())
        else:
            self._add(below.begin(stored))
        return self.content(stored)

    @noted
    def change(self, change: Change) -> ZSet:
        (below,) = self.children
        if isinstance(below, WindowJoin):
            assert self.is_distinct, self.variables
            assert below.moves is not None, self.variables
            moved = self._add_moves(below, below.moves)
        else:
            changed = below.change(change)
            moved = self._add(changed)
            if not self.is_distinct:
                return changed
        inserted = moved.slots[(moved.before == 0) & (moved.after > 0)]
        deleted = moved.slots[(moved.before > 0) & (moved.after == 0)]
        weights: Int64Array = np.repeat(np.array([1, -1]), [len(inserted), len(deleted)])
        return ZSet(self._table(np.concatenate((inserted, deleted))), weights)

    def content(self, stored: BatchSet) -> ZSet:
        slots = self.rows.slots()
        counts = np.ones(len(slots), np.int64) if self.is_distinct else self.rows.counts[slots]
        return ZSet(self._table(slots), counts)

    def solutions(self) -> BindingTable:
        """Return the content as a bag."""
        return self._table(self.rows.slots()) if self.is_distinct else self.content(EMPTY).repeated()

    def _add_moves(self, below: WindowJoin, moves: Moves) -> Touched:
        places = list(map(below.layout.index, self.variables))
        rows = np.concatenate((moves.inserted[:, places], moves.deleted[:, places]))
        return self._move(rows, moves.weights, len(moves.inserted))

    def _add(self, changed: ZSet) -> Touched:
        columns, weights = changed.table.columns_of(self.variables), changed.weights
        rows: Int64Array = np.stack(columns, axis=1) if columns else np.empty((len(changed), 0), np.int64)
        inserted = int(np.count_nonzero(weights > 0))
        if (weights[:inserted] < 0).any():  # inserted rows have to be first
            order = np.argsort(weights < 0, kind="stable")
            rows, weights = rows[order], weights[order]
        return self._move(rows, weights, inserted)

    def _move(self, rows: Int64Array, weights: Int64Array, inserted: int) -> Touched:
        """Count rows, of which the first `inserted` ones are inserted."""
        if self.rows.is_roomy(inserted):
            self.rows.compact()
        return self.rows.move(rows, weights)

    def _table(self, slots: Int64Array) -> BindingTable:
        columns = tuple(np.ascontiguousarray(self.rows.keys[slots].T))
        return BindingTable(self.variables, columns, len(slots))
