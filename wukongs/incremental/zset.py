"""ZSet: rows of term ids with integer weights; a collection, or the difference of two.

A collection has weights above 0: a row of weight 2 occurs twice. A difference has a weight below 0 for rows that were
deleted. Sums, differences and joins of Z-sets follow from those of their weights (DBSP, Budiu and others, VLDB 2023,
section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import current
from wukongs.query.operators import operators
from wukongs.query.rows import numbered
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array

WEIGHT = Variable(".weight")
"""The variable that has the weights while an operator runs over rows; no query can name it."""
_OTHER_WEIGHT = Variable(".weight of the other side")


def summed(columns: Sequence[Int64Array], weights: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return (the first row of each distinct one, the sum of its weights)."""
    numbers, firsts = numbered(columns, len(weights))
    sums = np.zeros(len(firsts), np.int64)
    np.add.at(sums, numbers, weights)
    return firsts, sums


@dataclass(frozen=True, slots=True)
class ZSet:
    """table: the rows; weights : int64[table.length]. The same row may occur in several places; `consolidated` has each
    once, and none of weight 0."""

    table: BindingTable
    weights: Int64Array

    @staticmethod
    def of(table: BindingTable, weight: int = 1) -> ZSet:
        """Return rows of one weight each."""
        return ZSet(table, np.full(table.length, weight, np.int64))

    @staticmethod
    def empty(variables: Sequence[Variable] = ()) -> ZSet:
        return ZSet.of(BindingTable.empty(variables))

    @staticmethod
    def of_weighted(table: BindingTable) -> ZSet:
        """Do the reverse of `weighted`, also after an operator has dropped, repeated or extended rows."""
        others = tuple(variable for variable in table.variables if variable != WEIGHT)
        return ZSet(operators.project(table, others), table.column(WEIGHT))

    def __len__(self) -> int:
        return self.table.length

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.table.variables

    @property
    def size_bytes(self) -> int:
        return self.table.size_bytes + self.weights.nbytes

    def weighted(self) -> BindingTable:
        """Return the rows with their weights as one more column, WEIGHT."""
        return operators.with_column(self.table, WEIGHT, self.weights)

    def negated(self) -> ZSet:
        return ZSet(self.table, -self.weights)

    def take(self, rows: Int64Array) -> ZSet:
        return ZSet(self.table.take(rows), self.weights[rows])

    def project(self, variables: Sequence[Variable]) -> ZSet:
        return ZSet(operators.project(self.table, tuple(variables)), self.weights)

    def plus(self, *others: ZSet) -> ZSet:
        """Return the sum, not consolidated."""
        found = self
        for other in others:
            if not len(other) and found.table.length and set(found.variables).issuperset(other.variables):
                continue
            table = operators.union(found.table, other.table, current().rows_max)
            found = ZSet(table, np.concatenate((found.weights, other.weights)))
        return found

    def consolidated(self) -> ZSet:
        """Return each row once with the sum of its weights, and none whose sum is 0."""
        if not len(self):
            return self
        firsts, sums = summed(self.table.columns, self.weights)
        kept = np.flatnonzero(sums)
        return ZSet(self.table.take(firsts[kept]), sums[kept])

    def distinct(self) -> ZSet:
        """Return each row of a collection once, with weight 1."""
        return ZSet.of(self.consolidated().table)

    def repeated(self) -> BindingTable:
        """Return the rows of a collection as a bag: a row of weight 2 occurs twice."""
        assert not len(self) or self.weights.min() > 0, "a collection"
        return self.table.take(np.repeat(np.arange(len(self)), self.weights))

    def joined(self, other: ZSet) -> ZSet:
        """Return the join: compatible rows merged, their weights multiplied."""
        right = operators.with_column(other.table, _OTHER_WEIGHT, other.weights)
        table = operators.join(self.weighted(), right, current().rows_max)
        weights = table.column(WEIGHT) * table.column(_OTHER_WEIGHT)
        rest = tuple(variable for variable in table.variables if variable not in (WEIGHT, _OTHER_WEIGHT))
        return ZSet(operators.project(table, rest), weights)

    def with_keys(self, rows: BindingTable, keys: Sequence[Variable]) -> ZSet:
        """Return the rows that are equal to some row of a table in some variables; each keeps its weight."""
        wanted = operators.distinct(operators.project(rows, tuple(keys)))
        both = operators.union(wanted, operators.project(self.table, tuple(keys)), current().rows_max)
        places, _ = numbered(both.columns, both.length)
        is_wanted = np.isin(places[wanted.length :], places[: wanted.length])
        return self.take(np.flatnonzero(is_wanted))

    def renumbered(self, terms: QueryTerms, others: QueryTerms) -> ZSet:
        """Return the same rows with the ids that other terms have for them."""
        if terms.shares_ids(others):
            return self
        columns = list[Int64Array]()
        for column in self.table.columns:
            places, firsts = numbered([column], len(column))
            ids = column[firsts]
            bound = np.flatnonzero(ids != UNBOUND)
            ids[bound] = others.ids(terms.texts(ids[bound]))
            columns.append(ids[places])
        return ZSet(BindingTable(self.variables, tuple(columns), len(self)), self.weights)

    def compatible_with(self, keys: BindingTable) -> ZSet:
        """Return the rows that are compatible with some row of a table; each keeps its weight."""
        shared = [variable for variable in self.variables if variable in keys.variables]
        places = Variable(".place")
        own = operators.project(self.table, tuple(shared))
        numbered_rows = operators.with_column(own, places, np.arange(len(self), dtype=np.int64))
        asked = operators.distinct(operators.project(keys, tuple(shared)))
        found = operators.join(numbered_rows, asked, current().rows_max).column(places)
        return self.take(np.unique(found))
