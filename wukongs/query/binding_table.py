"""BindingTable: the result of a plan step or an operator, by columns of term ids, one row per partial match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.query.memory import FREE_BYTES
from wukongs.query.rows import filled, taken
from wukongs.query.spill_files import bytes_in_memory
from wukongs.query.terms.moment import Moment
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array


class TermSpace(Protocol):
    """Turns ids into texts, and computed texts into ids, during one execution. The execution has a moment
    (terms/moment.py)."""

    moment: Moment
    inlines: bool
    """Whether ids carry the values of short literals, as those of the store do."""

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical form of each id; ids are terms of the data, inlined literals or results of `ids`."""

    def ids(self, texts: Sequence[str]) -> Int64Array:
        """Return the id of each canonical form; a term that the store has never seen is remembered here."""

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the texts of ids as UTF-8, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""


@dataclass(frozen=True, slots=True)
class BindingTable:
    """columns[i] : int64[length] holds the ids of variables[i], UNBOUND where it has none. Rows may repeat (a bag)."""

    variables: tuple[Variable, ...]
    columns: tuple[Int64Array, ...]
    length: int

    @property
    def size_bytes(self) -> int:
        """The bytes of the columns that are in memory. Small ones are not asked where they are."""
        size = 8 * self.length * len(self.columns)
        return size if size < FREE_BYTES else bytes_in_memory(self.columns)

    @staticmethod
    def unit() -> BindingTable:
        """One row that binds nothing: the neutral element of join."""
        return BindingTable((), (), 1)

    @staticmethod
    def empty(variables: Sequence[Variable] = ()) -> BindingTable:
        return BindingTable(tuple(variables), tuple(np.empty(0, np.int64) for _ in variables), 0)

    def column(self, variable: Variable) -> Int64Array:
        """Return the column of a variable; all UNBOUND where the table has none."""
        if variable in self.variables:
            return self.columns[self.variables.index(variable)]
        return filled(self.length, UNBOUND)

    def columns_of(self, variables: Sequence[Variable]) -> tuple[Int64Array, ...]:
        """Do the same as column, for many variables."""
        own = dict(zip(self.variables, self.columns, strict=True))
        return tuple(own[variable] if variable in own else filled(self.length, UNBOUND) for variable in variables)

    def take(self, rows: Int64Array) -> BindingTable:
        """Return the rows with these numbers, in this order."""
        return BindingTable(self.variables, tuple(taken(column, rows) for column in self.columns), len(rows))
