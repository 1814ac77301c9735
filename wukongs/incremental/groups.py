"""Grouped: GROUP BY whose aggregates are kept, so that a change costs its own rows, however large its groups are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from wukongs.csparql.algebra import Expression, Extend, Group, Node
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Variable
from wukongs.incremental.arranged import Arranged
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import Kept, Operator, noted
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.window_join import WindowJoin
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.operators.aggregates import group
from wukongs.query.operators.held_groups import HeldGroups
from wukongs.query.plans.window_changes import Moves
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array


class Anew(Operator, Protocol):
    """Evaluates the groups of a change anew from the rows below, which are kept."""

    def difference(self, changed: ZSet, change: Change) -> ZSet:
        """Return the change of the groups after the rows below have changed."""


_ARGUMENT = ".argument "


def is_argument(variable: Variable) -> bool:
    """Tell whether a variable was made for an argument of an aggregate."""
    return variable.name.startswith(_ARGUMENT)


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows that kept groups are made of.

    node: of which all aggregates can be kept.
    arguments: the variable of each aggregate's argument, None for COUNT(*).
    computed: the variables that are made for arguments that are expressions, with these.
    named: the variables that COUNT(DISTINCT *) tells rows apart by.
    variables: all that keys and aggregates read."""

    node: Group
    arguments: tuple[Variable | None, ...]
    computed: tuple[tuple[Variable, Expression], ...]
    named: tuple[Variable, ...]
    variables: tuple[Variable, ...]

    @staticmethod
    def of(node: Group) -> GroupRows | None:
        """None if the aggregates cannot be kept."""
        aggregates, known = [aggregate for _, aggregate in node.aggregates], possible_variables(node.pattern)
        if not aggregates or not HeldGroups.is_for(aggregates) or not known.issuperset(node.keys):
            return None
        arguments, computed = list[Variable | None](), list[tuple[Variable, Expression]]()
        for place, aggregate in enumerate(aggregates):
            argument = aggregate.argument
            if argument is not None and not (isinstance(argument, Variable) and argument in known):
                computed.append((Variable(f"{_ARGUMENT}{place}"), argument))
                argument = computed[-1][0]
            arguments.append(argument)
        named = tuple(sorted((one for one in known if not one.is_blank), key=str))
        counts_rows = any(aggregate.argument is None and aggregate.distinct for aggregate in aggregates)
        read = (*node.keys, *(one for one in arguments if one is not None), *(named if counts_rows else ()))
        return GroupRows(node, tuple(arguments), tuple(computed), named, tuple(dict.fromkeys(read)))

    def groups(self, variables: Sequence[Variable]) -> HeldGroups:
        """Return groups of no row yet. variables: the columns of their rows, all that are read among them."""
        aggregates, place = [aggregate for _, aggregate in self.node.aggregates], list(variables).index
        columns = [
            (place(name),) if name is not None else tuple(map(place, self.named)) if aggregate.distinct else ()
            for name, aggregate in zip(self.arguments, aggregates, strict=True)
        ]
        return HeldGroups(list(map(place, self.node.keys)), aggregates, columns)

    def table(self, columns: tuple[Int64Array, ...], terms: TermSpace) -> BindingTable:
        """Return groups, as HeldGroups has them, as solutions. Without keys there is one, also of no row."""
        if not self.node.keys and not len(columns[0]):
            return group(BindingTable.empty(self.variables), (), self.node.aggregates, terms)
        variables = (*self.node.keys, *(variable for variable, _ in self.node.aggregates))
        return BindingTable(variables, columns, len(columns[0]))


@dataclass(slots=True)
class Grouped:
    """Groups of kept aggregates (HeldGroups): counts, exact sums, and the terms for MIN, MAX, SAMPLE and DISTINCT.

    rows: those below.
    layout: the variables of the columns of which `groups` are made.
    anew: makes the operator that evaluates the groups of a change from the rows below, which takes over where an
    aggregate cannot be kept exactly (sums of doubles)."""

    node: Group
    children: tuple[Operator]
    evaluation: Evaluation
    rows: GroupRows
    layout: tuple[Variable, ...]
    groups: HeldGroups
    anew: Callable[[Kept], Anew]
    touched: int = field(default=0, init=False)
    _anew: Anew | None = field(default=None, init=False)
    _moves: int = field(default=0, init=False)
    kind = "groups"
    keeps = True

    @staticmethod
    def of(
        node: Group,
        evaluation: Evaluation,
        operator_of: Callable[[Node, Evaluation], Operator],
        anew: Callable[[Kept], Anew],
    ) -> Grouped | None:
        """Return the operator of a group without EXISTS; None if its aggregates cannot be kept."""
        rows = GroupRows.of(node)
        if rows is None:
            return None
        below = node.pattern
        for name, expression in rows.computed:
            below = Extend(below, name, expression)
        child = operator_of(below, evaluation)
        layout = child.layout if isinstance(child, WindowJoin) else rows.variables
        return Grouped(node, (child,), evaluation, rows, layout, rows.groups(layout), anew)

    @property
    def count(self) -> int:
        return self.groups.count

    @property
    def kept_bytes(self) -> int:
        return 0 if self._anew is not None else self.groups.size_bytes

    def forget(self) -> None:
        """Keep nothing until `begin`."""
        self.groups.clear()

    def begin(self, stored: BatchSet) -> ZSet:
        if self._anew is None:
            (below,) = self.children
            if isinstance(below, WindowJoin):
                rows = below.all_rows()
                moves = self._numbered(rows.inserted, rows.deleted, is_anew=True)
            else:
                moves = self._moved(below.begin(stored).consolidated(), is_anew=True)
            if self.groups.move(moves, self.evaluation.terms):
                return self.content(stored)
            self._go_on_anew()
        assert self._anew is not None
        return self._anew.begin(stored)

    @noted
    def change(self, change: Change) -> ZSet:
        if self._anew is not None:
            return self._anew.change(change)
        (below,) = self.children
        changed = below.change(change)
        if not len(changed):
            return ZSet.empty(names_of(self.node))
        if self.groups.move(self._moved(changed, is_anew=False), self.evaluation.terms, notes_before=True):
            after, before = map(ZSet.of, self.last_rows())
            return after.plus(before.negated()).consolidated()
        kept = self._go_on_anew()
        kept.after = Arranged(kept.keys).plus(below.begin(change.after).consolidated())
        kept.before = kept.after.plus(changed.negated())
        assert self._anew is not None
        return self._anew.difference(changed, change)

    def follow(self, change: Change, *, notes_before: bool) -> bool:
        """Change the groups; tell whether that can be done exactly, else they are of no use any more. notes_before:
        `last_rows` is asked for."""
        (below,) = self.children
        if isinstance(below, WindowJoin):
            assert below.moves is not None, self.node
            moves = self._numbered(below.moves.inserted, below.moves.deleted, is_anew=False)
        else:
            moves = self._moved(below.change(change), is_anew=False)
        is_kept = self.groups.move(moves, self.evaluation.terms, notes_before)
        self.touched = self.groups.touched
        return is_kept

    def last_rows(self) -> tuple[BindingTable, BindingTable]:
        """Return the groups that the last change has touched, as they are after it and as they were before it."""
        assert self.groups.rows_before is not None, self.node
        terms = self.evaluation.terms
        return self.rows.table(self.groups.rows_after(terms), terms), self.rows.table(self.groups.rows_before, terms)

    def content(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.solutions())

    def solutions(self) -> BindingTable:
        """Return the groups, as long as they are kept exactly."""
        return self.rows.table(self.groups.columns(self.evaluation.terms), self.evaluation.terms)

    def _go_on_anew(self) -> Kept:
        """Have the rows below kept from now on, and groups evaluated from them."""
        kept = Kept(self.children[0], self.node.keys)
        self._anew, self.children = self.anew(kept), (kept,)
        return kept

    def _moved(self, rows: ZSet, *, is_anew: bool) -> Moves:
        """Return rows as those that were inserted and deleted."""
        columns, weights = rows.table.columns_of(self.layout), rows.weights
        matrix: Int64Array = np.stack(columns, axis=1) if columns else np.empty((len(rows), 0), np.int64)
        if len(weights) and np.abs(weights).max() > 1:
            matrix, weights = np.repeat(matrix, np.abs(weights), axis=0), np.repeat(weights, np.abs(weights))
        return self._numbered(matrix[weights > 0], matrix[weights < 0], is_anew=is_anew)

    def _numbered(self, inserted: Int64Array, deleted: Int64Array, *, is_anew: bool) -> Moves:
        self._moves += 1
        return Moves(inserted, deleted, is_anew, self._moves)
