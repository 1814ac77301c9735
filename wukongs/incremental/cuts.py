"""Cut: LIMIT and OFFSET."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import Distinct, Extend, Node, OrderBy, Project, Slice
from wukongs.csparql.scope import exists_patterns, is_ordered, node_expressions
from wukongs.csparql.terms import Variable
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import Kept, noted
from wukongs.incremental.versions import Change, Evaluation, leaf
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators as tables
from wukongs.query.rows import numbered
from wukongs.store.batch_set import BatchSet

MARGIN = 256
"""The first rows are kept in order: those that LIMIT leaves, and MARGIN more. No other row is read until MARGIN of them
were deleted."""


@dataclass(slots=True)
class Cut:
    """LIMIT and OFFSET, in the order of ORDER BY and then in canonical order.

    children: the rows below the ORDER BY, kept.
    content: the rows that are left.
    _first: the first rows below, in order; equal ones repeat. _is_all: there are no others."""

    node: Slice
    children: tuple[Kept]
    evaluation: Evaluation
    content: ZSet = field(default_factory=ZSet.empty)
    touched: int = field(default=0, init=False)
    _first: BindingTable = field(default_factory=BindingTable.unit, init=False)
    _is_all: bool = field(default=False, init=False)
    kind = "top-k"
    keeps = True

    @property
    def kept_bytes(self) -> int:
        return self.content.size_bytes + self._first.size_bytes

    @property
    def _wanted(self) -> int | None:
        """How many of the first rows decide; None: all of them."""
        node: Node = self.node.pattern
        while isinstance(node, Project | Extend | Distinct):
            if isinstance(node, Distinct) and is_ordered(node):
                return None  # equal rows count once, however many are left out before
            node = node.pattern
        return None if self.node.limit is None else self.node.offset + self.node.limit

    def begin(self, stored: BatchSet) -> ZSet:
        self._fill(self.children[0].begin(stored), stored)
        self.content = self._cut(stored)
        return self.content

    def _fill(self, rows: ZSet, stored: BatchSet) -> None:
        """Take the first ones of all rows."""
        wanted, ordered = self._wanted, self._in_order(rows.project(variables_below(self.node)).repeated(), stored)
        count = ordered.length if wanted is None else min(wanted + MARGIN, ordered.length)
        self._first, self._is_all = tables.slice_rows(ordered, 0, count), count == ordered.length

    def _in_order(self, rows: BindingTable, stored: BatchSet) -> BindingTable:
        known = leaf(rows.variables)
        ordering = ordering_of(self.node)
        part: Node = Slice(known, 0, None) if ordering is None else replace(ordering, pattern=known)
        return tables.project(self.evaluation.run_over(part, stored, (known, rows)), rows.variables)

    def _cut(self, stored: BatchSet) -> ZSet:
        known = leaf(self._first.variables)
        part = above_cut(self.node, known)
        return ZSet.of(self.evaluation.run_over(part, stored, (known, self._first))).consolidated()

    @noted
    def change(self, change: Change) -> ZSet:
        (below,) = self.children
        changed = below.change(change)
        if not len(changed):
            return ZSet.empty(names_of(self.node))
        wanted = self._wanted
        if wanted is None or not self._moved(changed, wanted, change.after):
            self._fill(below.after.rows(), change.after)
        before, self.content = self.content, self._cut(change.after)
        return self.content.plus(before.negated()).consolidated()

    def _moved(self, changed: ZSet, wanted: int, stored: BatchSet) -> bool:
        """Have the first rows follow a change; return whether enough are left."""
        first = self._first
        inserted = changed.take(np.flatnonzero(changed.weights > 0)).project(first.variables).repeated()
        deleted = changed.take(np.flatnonzero(changed.weights < 0)).project(first.variables)
        if inserted.length:
            both = self._in_order(tables.union(first, inserted), stored)
            if not self._is_all:  # what lies behind the last one may lie behind others that are not here
                both = tables.slice_rows(both, 0, _last_of(first, both) + 1 if first.length else 0)
            first = both
        if len(deleted):
            first = _without(first, deleted)
        if first.length > wanted + 2 * MARGIN:
            first, self._is_all = tables.slice_rows(first, 0, wanted + MARGIN), False
        self._first = first
        return self._is_all or first.length >= wanted


def _last_of(first: BindingTable, rows: BindingTable) -> int:
    """Return the last place of the last one of some rows among rows that have it."""
    last = first.length - 1
    is_equal = np.ones(rows.length, np.bool_)
    for variable in first.variables:
        is_equal &= rows.column(variable) == first.column(variable)[last]
    return int(np.flatnonzero(is_equal)[-1])


def _without(rows: BindingTable, deleted: ZSet) -> BindingTable:
    """Return rows in their order without some, as often as these are deleted, if they are there."""
    both = tables.union(deleted.table, rows)
    numbers, _ = numbered(both.columns, both.length)
    left = np.zeros(both.length, np.int64)
    np.add.at(left, numbers[: len(deleted)], -deleted.weights)
    keeps = np.ones(rows.length, np.bool_)
    for place in np.flatnonzero(left[numbers[len(deleted) :]]).tolist():
        number = numbers[len(deleted) + place]
        if left[number]:
            left[number] -= 1
            keeps[place] = False
    return rows.take(np.flatnonzero(keeps))


def ordering_of(node: Slice) -> OrderBy | None:
    """Return the ORDER BY that decides what LIMIT cuts, if there is one."""
    inner = node.pattern
    while is_ordered(inner) and not isinstance(inner, OrderBy):
        inner = inner.pattern  # type: ignore[union-attr]
    return inner if isinstance(inner, OrderBy) else None


def below_cut(node: Slice) -> Node:
    """Return the part whose rows LIMIT cuts: below the ORDER BY that decides, if there is one."""
    ordering = ordering_of(node)
    return node.pattern if ordering is None else ordering.pattern


def variables_below(node: Slice) -> tuple[Variable, ...]:
    """Return the variables of the rows below, also where there is none, in the order that canonical order goes by."""
    below = below_cut(node)
    while isinstance(below, Distinct):
        below = below.pattern
    return tuple(dict.fromkeys(below.variables)) if isinstance(below, Project) else names_of(below)


def has_exists(node: Slice) -> bool:
    """Whether what is above below_cut has EXISTS, and so may change when no row below does."""
    inner, end = node.pattern, below_cut(node)
    while inner is not end:
        if any(map(exists_patterns, node_expressions(inner))):
            return True
        inner = inner.pattern  # type: ignore[union-attr]
    return False


def above_cut(node: Node, known: Node) -> Node:
    """Return what is above below_cut, with another part in its place."""
    if isinstance(node, OrderBy) or (isinstance(node, Slice) and not is_ordered(node.pattern)):
        return replace(node, pattern=known)
    return replace(node, pattern=above_cut(node.pattern, known))  # type: ignore[arg-type, union-attr]
