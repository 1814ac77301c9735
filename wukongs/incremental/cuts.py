"""Cut: LIMIT and OFFSET."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import Distinct, Extend, Node, OrderBy, Project, Slice
from wukongs.csparql.scope import exists_patterns, is_ordered, node_expressions
from wukongs.csparql.terms import Variable
from wukongs.incremental.arranged import Arranged
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import Kept, Whole, noted
from wukongs.incremental.versions import Change, Evaluation, leaf
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators as tables
from wukongs.query.rows import numbered, stable_order
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.term_ids import is_inlined

MARGIN, MARGIN_OF_EACH = 64, 32
"""The first rows are kept: those that LIMIT leaves, and MARGIN more, of each argument MARGIN_OF_EACH more. No other row
is read until so many of them were deleted."""


@dataclass(slots=True)
class Cut:
    """LIMIT and OFFSET, in the order of ORDER BY and then in canonical order.

    children: the rows below the ORDER BY: kept, with `keys`; else any whose content can be had.
    keys: the number of the argument, in a view with arguments: the rows of each are cut apart. Else none.
    _first: the first rows below, of each key; equal ones add up.
    _longer: the keys that have others behind these.
    _content: the rows that are left, if there are no keys."""

    node: Slice
    children: tuple[Whole]
    evaluation: Evaluation
    keys: tuple[Variable, ...] = ()
    touched: int = field(default=0, init=False)
    _first: Arranged = field(init=False)
    _longer: set[int] = field(default_factory=set, init=False)
    _content: BindingTable = field(default_factory=BindingTable.unit, init=False)
    kind = "top-k"
    keeps = True

    def __post_init__(self) -> None:
        self._first = Arranged(self.keys)

    @property
    def kept_bytes(self) -> int:
        content = 0 if self.keys else self._content.size_bytes
        return self._first.size_bytes + 64 * len(self._longer) + content

    @property
    def wanted(self) -> int | None:
        """How many of the first rows decide; None: all of them."""
        node: Node = self.node.pattern
        while isinstance(node, Project | Extend | Distinct):
            if isinstance(node, Distinct) and is_ordered(node):
                return None  # equal rows count once, however many are left out before
            node = node.pattern
        return None if self.node.limit is None else self.node.offset + self.node.limit

    @property
    def is_of_numbers(self) -> bool:
        """Whether the first rows are ordered by numbers that their ids carry, before all else."""
        ordering = ordering_of(self.node)
        first = None if ordering is None else ordering.conditions[0][0]
        rows = self._first.rows().table
        return isinstance(first, Variable) and first in rows.variables and bool(is_inlined(rows.column(first)).all())

    def forget(self) -> None:
        """Keep nothing until `begin`."""
        self._first, self._longer = Arranged(self.keys), set()

    def begin(self, stored: BatchSet) -> ZSet:
        return self._begun(self.children[0].begin(stored), stored)

    def resume(self, stored: BatchSet) -> ZSet:
        """Begin with the content below, which has followed a change."""
        return self._begun(self.children[0].content(stored), stored)

    def _begun(self, below: ZSet, stored: BatchSet) -> ZSet:
        self.forget()
        rows = self._ordered_ones(below)
        if self.wanted is not None:
            rows = self._first_of(rows, stored)
            self._first = self._first.plus(rows)
        self._content = self._cut(rows, stored)
        found = ZSet.of(self._content).consolidated()
        if self.keys:
            self._content = BindingTable.unit()
        return found

    @noted
    def change(self, change: Change) -> ZSet:
        (below,) = self.children
        changed = self._ordered_ones(below.change(change))
        if not len(changed):
            return ZSet.empty(names_of(self.node))
        if self.wanted is None:
            assert isinstance(below, Kept), self.node
            before, after = (self._ordered_ones(one.with_keys(changed.table)) for one in (below.before, below.after))
        else:
            before = self._first.with_keys(changed.table)
            after = self._moved(before, changed, change.after)
            moved = after.plus(before.negated()).consolidated()
            if not len(moved):
                return ZSet.empty(names_of(self.node))
            self._first = self._first.plus(moved)
        now = self._cut(after, change.after)
        was = self._cut(before, change.before) if self.keys else self._content
        if not self.keys:
            self._content = now
        return ZSet.of(now).plus(ZSet.of(was, -1)).consolidated()

    def solutions(self) -> BindingTable:
        """Return the rows that are left, in order, where there are no keys."""
        return self._content

    def _ordered_ones(self, rows: ZSet) -> ZSet:
        """Return rows with the columns that decide their order, consolidated."""
        return rows.project(variables_below(self.node)).consolidated()

    def _cut(self, rows: ZSet, stored: BatchSet) -> BindingTable:
        """Return the rows that are left of the first ones."""
        ordered = rows.repeated()
        known, number = leaf(ordered.variables), self.keys[0] if self.keys else None
        part = above_cut(self.node, known)
        return self.evaluation.run_over(part, stored, (known, ordered), number=number)

    # --- the first rows -----------------------------------------------------------------------------------------------

    def _moved(self, first: ZSet, changed: ZSet, stored: BatchSet) -> ZSet:
        """Return the first rows of some keys after a change. first: those before it."""
        deleted, inserted = (changed.take(np.flatnonzero(sign * changed.weights > 0)) for sign in (-1, 1))
        left = _positive(first.plus(deleted))
        # Rows that are no more are not ordered: of windows, their terms may be gone.
        found = self._first_of(left.plus(inserted).consolidated(), stored, left)
        lacking = self._lacking(found, changed)
        if not len(lacking):
            return found
        refilled = self._rows_of(lacking, stored)
        kept = np.flatnonzero(~np.isin(self._keys_of(found), lacking))
        self._longer.difference_update(lacking.tolist())
        return found.take(kept).plus(self._first_of(refilled, stored))

    def _lacking(self, first: ZSet, changed: ZSet) -> Int64Array:
        """Return the keys of a change of which fewer rows are here than decide, though there are more."""
        assert self.wanted is not None, self.node
        asked = np.unique(self._keys_of(changed))
        asked = asked[np.isin(asked, [*self._longer])]
        counts = np.zeros(len(asked), np.int64)
        own = self._keys_of(first)
        rows = np.flatnonzero(np.isin(own, asked))
        np.add.at(counts, np.searchsorted(asked, own[rows]), first.weights[rows])
        return asked[counts < self.wanted]

    def _rows_of(self, keys: Int64Array, stored: BatchSet) -> ZSet:
        """Return all rows below of some keys, after the change."""
        (below,) = self.children
        if not self.keys:
            return self._ordered_ones(below.content(stored))
        assert isinstance(below, Kept), self.node
        return self._ordered_ones(below.after.with_keys(BindingTable(self.keys, (keys,), len(keys))))

    def _first_of(self, rows: ZSet, stored: BatchSet, known: ZSet | None = None) -> ZSet:
        """Return the first rows of each key, if there are more than are kept.

        rows: consolidated.
        known: some of them. Rows behind the last one of these are left out where there are others that are not here,
        and may be before them."""
        wanted, margin = self.wanted, MARGIN_OF_EACH if self.keys else MARGIN
        assert wanted is not None, self.node
        if not len(rows):
            return rows
        most = wanted + (margin if known is None else 2 * margin)
        rows = self._in_order(rows, stored, None if self.keys else most + 1)
        keys = self._keys_of(rows)
        if known is not None and self._longer:
            places = _last_places(keys, _is_among(rows, known))
            rows = rows.take(np.flatnonzero(~np.isin(keys, [*self._longer]) | (np.arange(len(rows)) <= places)))
            keys = self._keys_of(rows)
        _, firsts, of = np.unique(keys, return_index=True, return_inverse=True)
        totals = np.bincount(of, rows.weights, len(firsts))
        before = np.cumsum(rows.weights) - rows.weights  # the rows before one, equal ones repeated
        before -= before[firsts][of]
        is_long = totals > most
        self._longer.update(keys[firsts[is_long]].tolist())
        return rows.take(np.flatnonzero(~is_long[of] | (before < wanted + margin)))

    def _in_order(self, rows: ZSet, stored: BatchSet, limit: int | None) -> ZSet:
        """Return distinct rows in the order in which they are cut, those of one key beside each other. limit: more rows
        are not needed; None: all are."""
        known, ordering = leaf(rows.variables), ordering_of(self.node)
        part = Slice(known if ordering is None else replace(ordering, pattern=known), 0, limit)
        ordered = tables.project(self.evaluation.run_over(part, stored, (known, rows.table)), rows.variables)
        places, _ = numbered(tables.union(rows.table, ordered).columns, len(rows) + ordered.length)
        place_of = np.empty(len(rows), np.int64)
        place_of[places[: len(rows)]] = np.arange(len(rows))
        rows = rows.take(place_of[places[len(rows) :]])
        return rows.take(stable_order([rows.table.column(self.keys[0])])) if self.keys else rows

    def _keys_of(self, rows: ZSet) -> Int64Array:
        return rows.table.column(self.keys[0]) if self.keys else np.zeros(len(rows), np.int64)


def _positive(rows: ZSet) -> ZSet:
    found = rows.consolidated()
    return found.take(np.flatnonzero(found.weights > 0))


def _is_among(rows: ZSet, others: ZSet) -> BoolArray:
    """Mark the rows that are among others. bool[len(rows)]"""
    both = tables.union(tables.project(others.table, rows.variables), rows.table)
    numbers, _ = numbered(both.columns, both.length)
    return np.isin(numbers[len(others) :], numbers[: len(others)])


def _last_places(keys: Int64Array, is_known: BoolArray) -> Int64Array:
    """Return, for each row, the place of the last known one of its key; -1 if there is none."""
    distinct, of = np.unique(keys, return_inverse=True)
    last = np.full(len(distinct), -1, np.int64)
    places = np.flatnonzero(is_known)
    np.maximum.at(last, of[places], places)
    return last[of]


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
