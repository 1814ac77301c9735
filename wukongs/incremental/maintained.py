"""Maintained: the rows of a registered query's windows, changed from firing to firing instead of evaluated anew.

A window that moves on by a step keeps most of what it holds. A part of the query keeps the matches of its triple
patterns with the time at which each ends (Deltas), so a change costs what has arrived and what has expired:

* filters and BIND right above the patterns are evaluated for new matches alone (row_wise.py);
* groups and DISTINCT above them follow the rows that were inserted and deleted (groups.py, distinct_rows.py);
* what stands above the parts is evaluated by the executor from their rows. ISTREAM and DSTREAM need no more than the
  change, if all of it is linear: filters, BIND, projections.

An error leaves a part out of step: its patterns are evaluated anew at the next firing, or what is above them is made
anew of all rows. A part that cannot be kept as a whole (sums of doubles, computed texts) is kept as far as it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    Project,
    Query,
    Slice,
    Union,
)
from wukongs.csparql.exploration_order import explorable_operands, is_explorable
from wukongs.csparql.functions import depends_on_moment
from wukongs.csparql.scope import exists_patterns, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import join_operands
from wukongs.errors import BudgetExceeded
from wukongs.incremental.distinct_rows import DistinctRows, is_worth_counting
from wukongs.incremental.groups import GroupRows
from wukongs.incremental.row_wise import RowWise, TermsNotKept
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.execution.answer import within
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.limits import Limits
from wukongs.query.mechanisms import Mechanism, Used
from wukongs.query.operators import operators
from wukongs.query.operators.held_groups import HeldGroups
from wukongs.query.plans.compiled import CompiledQuery
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.deltas import Deltas, Moves, is_worth_it
from wukongs.query.rows import places_of
from wukongs.store.dtypes import Int64Array

REFUSED_FIRINGS, REFUSED_FIRINGS_MAX = 16, 1 << 14
"""After so many firings it is tried again to keep rows that could not be kept."""
PARTS_MAX = 8
"""Rows are kept of so many parts of a query."""

Linear: TypeAlias = Filter | Extend | Project
Difference: TypeAlias = tuple[BindingTable, BindingTable]
"""Rows that were inserted and deleted since the firing before. A row may be among both."""


@dataclass(frozen=True, slots=True)
class Level:
    """A node of the algebra whose rows can be kept.

    node: None for a query that kernels answer alone.
    rows: the rows that are kept.
    groups: that are made of them, if the node is a group.
    projected: the variables of the node's rows; None: all that the rows bind.
    is_distinct: whether each of these is there once."""

    node: Node | None
    rows: RowWise
    groups: GroupRows | None = None
    projected: tuple[Variable, ...] | None = None
    is_distinct: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows of a level at a firing. change: None if all may have changed; used: the mechanisms that have found
    them."""

    node: Node | None
    table: BindingTable
    change: Difference | None
    used: Used


@dataclass(slots=True, eq=False)
class Part:
    """A part of a query, kept at one of its levels.

    levels: the first is what is kept at best.
    compile: compiles the patterns of a level.
    deltas: keeps the matches of these, from the firing on at which that is worth it.
    estimated_rows: of all steps of the plan that evaluates them anew."""

    levels: tuple[Level, ...]
    compile: Callable[[RowWise], CompiledQuery]
    join: CompiledQuery = field(init=False)
    """The patterns, evaluated anew."""
    deltas: Deltas | None = None
    estimated_rows: float = 0.0
    _groups: HeldGroups | None = None
    _distinct: DistinctRows | None = None
    _is_in_step: bool = False
    """Whether what is made of the rows has followed their last change."""
    _refused_for: int = 0
    _refusals: int = 0

    def __post_init__(self) -> None:
        self.join = self.compile(self.level.rows)

    @property
    def level(self) -> Level:
        return self.levels[0]

    @property
    def is_ready(self) -> bool:
        """Whether its rows can be had at this firing."""
        return self.deltas is not None and self.deltas.is_ready

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in (self._groups, self._distinct) if one is not None)

    def begin_firing(self) -> bool:
        """Be about to fire; tell whether rows are to be kept at this firing, if they can be."""
        if self.deltas is not None:  # it may have been ready at a firing that has failed, or had no need
            self.deltas.skip()
        if self._refused_for:
            self._refused_for -= 1
            return False
        return is_worth_it(self.estimated_rows if self.level.node is not None else self.join.estimated_rows)

    def forget(self) -> None:
        """Keep nothing."""
        self.deltas, self._groups, self._distinct = None, None, None

    def refuse(self) -> None:
        """Keep nothing for some firings, each time for twice as many as before."""
        self._refused_for = min(REFUSED_FIRINGS << self._refusals, REFUSED_FIRINGS_MAX)
        self._refusals += 1
        if self.deltas is not None:
            self.deltas.forget()
        self._groups, self._distinct = None, None

    def _lower(self) -> None:
        """Keep less from the next firing on: rows of the next level."""
        if len(self.levels) == 1:
            self.refuse()
            return
        self.levels = self.levels[1:]
        self.join = self.compile(self.level.rows)
        self.forget()

    def advance(self, terms: TermSpace | None, limits: Callable[[], Limits], *, wants_change: bool) -> Kept | None:
        """Change the rows by what has arrived and expired; return them. None: they are to be evaluated anew.

        terms: those of the firing, if expressions are evaluated. Raises QueryTimeout."""
        deltas = self.deltas
        if deltas is None or not deltas.is_ready:
            return None
        is_in_step, self._is_in_step = self._is_in_step, False
        try:
            moves = deltas.move(limits, self._derive(deltas, terms))
            if moves is None:
                return None
            kept = self._made(deltas, moves, terms, is_in_step=is_in_step, wants_change=wants_change)
        except (BudgetExceeded, MemoryError):  # evaluating it anew may need less
            self.refuse()
            return None
        except TermsNotKept:
            self._lower()
            return None
        if kept is None:
            self._lower()
            return None
        self._is_in_step = True
        kept.used.add(Mechanism.BINDINGS_ANEW if moves.is_anew else Mechanism.BINDINGS)
        return kept

    def _derive(self, deltas: Deltas, terms: TermSpace | None) -> Callable[[Int64Array], Int64Array] | None:
        if not self.level.rows.links:
            return None
        assert terms is not None, self.level
        return partial(self.level.rows.applied, deltas.variables, terms=terms)

    def _made(
        self, deltas: Deltas, moves: Moves, terms: TermSpace | None, *, is_in_step: bool, wants_change: bool
    ) -> Kept | None:
        """Return the level's rows; None if they cannot be made of the rows that are kept."""
        level, bound = self.level, (*deltas.variables, *self.level.rows.derived)
        goes_on = is_in_step and not moves.is_anew
        if level.groups is not None:
            assert terms is not None, level
            return self._grouped(level, level.groups, deltas, moves, bound, terms, goes_on, wants_change)
        shown = bound if level.projected is None else tuple(dict.fromkeys(level.projected))
        places = list(map(bound.index, shown))
        if level.is_distinct and (kept := self._counted(level, deltas, moves, shown, places, goes_on=goes_on)):
            return kept
        table = BindingTable(shown, deltas.columns(places), deltas.count)
        if level.is_distinct:
            return Kept(level.node, operators.distinct(table), None, set())
        change = None
        if wants_change and not moves.is_anew:
            change = _table(shown, moves.inserted[:, places].T), _table(shown, moves.deleted[:, places].T)
        return Kept(level.node, table, change, set())

    def _grouped(
        self,
        level: Level,
        rows: GroupRows,
        deltas: Deltas,
        moves: Moves,
        bound: Sequence[Variable],
        terms: TermSpace,
        goes_on: bool,
        wants_change: bool,
    ) -> Kept | None:
        groups = self._groups
        if groups is None or not goes_on:
            groups, moves = rows.groups(bound), deltas.all_rows()
        self._groups = groups
        if not groups.move(moves, terms, wants_change):
            return None
        table = rows.table(groups.columns(terms), terms)
        change = None
        if wants_change and groups.rows_before is not None and rows.node.keys:
            change = (
                rows.table(groups.rows_after(terms), terms),
                rows.table(groups.rows_before, terms),
            )
        return Kept(level.node, table, change, set() if moves.is_anew else {Mechanism.GROUPS})

    def _counted(
        self,
        level: Level,
        deltas: Deltas,
        moves: Moves,
        shown: tuple[Variable, ...],
        places: list[int],
        *,
        goes_on: bool,
    ) -> Kept | None:
        """Return the distinct rows, if they are worth counting."""
        distinct, self._distinct = self._distinct, None
        goes_on &= distinct is not None
        if not is_worth_counting(len(moves.inserted) + len(moves.deleted), deltas.count, are_counted=goes_on):
            return None
        if distinct is None or not goes_on:
            distinct, moves = DistinctRows(len(places)), deltas.all_rows()
        weights: Int64Array = np.ones(len(moves.inserted) + len(moves.deleted), np.int64)
        weights[len(moves.inserted) :] = -1
        changed = distinct.move(np.concatenate((moves.inserted[:, places], moves.deleted[:, places])), weights)
        self._distinct = distinct
        inserted, deleted = (_table(shown, rows.T) for rows in changed)
        change, used = ((inserted, deleted), {Mechanism.DISTINCT}) if goes_on else (None, set[Mechanism]())
        columns = distinct.columns()
        return Kept(level.node, BindingTable(shown, columns, len(columns[0])), change, used)


class Maintained:
    """The parts of one query. Used by the thread that fires, while the table of windows is unchanged."""

    def __init__(self, query: Query, plans: CompiledPlans) -> None:
        self._query, self._plans = query, plans
        self.is_estimated = plans.whole is not None
        """Whether it is known what evaluating the parts anew takes."""
        whole = plans.whole
        if whole is not None:
            self.parts = [
                Part((Level(None, RowWise(whole.wanted), None, whole.variables, plans.is_distinct),), lambda _: whole)
            ]
            return
        found = [] if query.form == "ask" or depends_on_moment(query.pattern) else list(_parts_in(query.pattern))
        self.parts = [Part(levels, self._compiled) for levels in found[:PARTS_MAX]]

    def _compiled(self, rows: RowWise) -> CompiledQuery:
        return self._plans.matches_of(rows.wanted.bgp)

    @property
    def is_ready(self) -> bool:
        """Whether rows of a part can be had at this firing."""
        return any(part.is_ready for part in self.parts)

    def estimate(self) -> None:
        """Estimate what evaluating the parts anew takes, over what the windows have now."""
        self.is_estimated = True
        if self._plans.whole is None:
            for part in self.parts:
                route = self._plans.route(part.level.rows.wanted, (), 1)
                part.estimated_rows = sum(step.estimated_rows for step in route.plan.steps)

    def advance(self, terms: TermSpace | None, limits: Callable[[], Limits], *, wants_change: bool) -> list[Kept]:
        """Change the rows of all parts whose rows can be had; return them. Raises QueryTimeout."""
        if terms is None and not self._plans.is_distinct:
            found = [part.advance(None, limits, wants_change=wants_change) for part in self.parts]
        else:
            own = limits()
            with within(own):
                found = [part.advance(terms, lambda: own, wants_change=wants_change) for part in self.parts]
        return [kept for kept in found if kept is not None]

    def change(self, kept: Sequence[Kept], terms: TermSpace) -> Difference | None:
        """Return the change of the whole query by those of its parts; None if it needs more than these."""
        if len(kept) != 1 or len(self.parts) != 1 or kept[0].change is None or self._query.form != "select":
            return None
        inserted, deleted = kept[0].change
        for node in self._linear_above(kept[0].node):
            if node is None:
                return None
            inserted, deleted = _applied(node, inserted, terms), _applied(node, deleted, terms)
        return inserted, deleted

    def _linear_above(self, below: Node | None) -> Iterator[Linear | None]:
        """Iterate over the nodes above a part, from the inside out; None for what is not linear."""
        node, found = self._query.pattern, list[Linear | None]()
        if below is None:
            modifiers = self._plans.modifiers
            yield from [None] if len(modifiers) > self._plans.is_distinct else []
            return
        while node is not below:
            match node:
                case Project(pattern=pattern):
                    found.append(node)
                case Filter(condition=expression, pattern=pattern) | Extend(expression=expression, pattern=pattern):
                    found.append(None if exists_patterns(expression) else node)
                case _:
                    yield None
                    return
            node = pattern
        yield from reversed(found)

    def forget(self) -> None:
        """Keep nothing."""
        for part in self.parts:
            part.forget()

    def stats(self) -> dict[str, int]:
        """Return the sums of Deltas.stats, nothing if no rows are kept. From any thread."""
        sums = dict[str, int]()
        for part in list(self.parts):
            deltas = part.deltas
            if deltas is not None:
                found = deltas.stats()
                found["matches_bytes"] += part.size_bytes
                sums = {name: sums.get(name, 0) + count for name, count in found.items()}
        return sums


def _applied(node: Linear, table: BindingTable, terms: TermSpace) -> BindingTable:
    match node:
        case Project(variables=variables):
            return operators.project(table, tuple(dict.fromkeys(variables)))
        case Filter(condition=condition):
            return table.take(places_of(holds(condition, table, terms)))
        case Extend(variable=variable, expression=expression):
            return operators.with_column(table, variable, evaluate(expression, table, terms))


def _table(variables: tuple[Variable, ...], columns: Int64Array) -> BindingTable:
    return BindingTable(variables, tuple(map(np.ascontiguousarray, columns)), columns.shape[1])


# --- the parts of a query ---------------------------------------------------------------------------------------------


def _parts_in(node: Node) -> Iterator[tuple[Level, ...]]:
    """Find the parts of a query that the executor evaluates from nothing, each with its levels."""
    if levels := tuple(_levels_of(node)):
        yield levels
        return
    match node:
        case Filter(pattern=pattern) | Extend(pattern=pattern) | Project(pattern=pattern) | Distinct(pattern=pattern):
            yield from _parts_in(pattern)
        case Group(pattern=pattern) | OrderBy(pattern=pattern) | Slice(pattern=pattern):
            yield from _parts_in(pattern)
        case Union(left=left, right=right):
            yield from _parts_in(left)
            yield from _parts_in(right)
        case LeftJoin(left=left, right=right):
            yield from _parts_in(left)
            if not is_explorable(right, possible_variables(left)):
                yield from _parts_in(right)
        case Minus(left=left):
            yield from _parts_in(left)
        case Join():
            yield from _parts_of_join(node)


def _parts_of_join(node: Join) -> Iterator[tuple[Level, ...]]:
    operands = join_operands(node)
    explored = explorable_operands(operands)
    for operand in operands:
        if not any(operand is one for one in explored):
            yield from _parts_in(operand)
    if len(explored) == len(operands):  # the executor begins with one of them
        for operand in operands:
            if levels := tuple(level for level in _levels_of(operand) if level.node is operand):
                yield levels
                return


def _levels_of(node: Node) -> Iterator[Level]:
    """Find the levels at which a node can be kept, the whole of it first."""
    below = node
    if isinstance(node, Group) and (groups := GroupRows.of(node)) is not None:
        below = node.pattern
        if (rows := RowWise.of(below, groups.computed)) is not None:
            yield Level(node, rows, groups)
    elif isinstance(node, Distinct) and isinstance(node.pattern, Project):
        variables, below = node.pattern.variables, node.pattern.pattern
        rows = RowWise.of(below)
        if rows is not None and variables and possible_variables(below).issuperset(variables):
            yield Level(node, rows, None, tuple(variables), is_distinct=True)
    while isinstance(below, Filter | Extend | Bgp):
        rows = RowWise.of(below)
        if rows is not None:
            yield Level(below, rows)
            if all(variable is None for variable, _ in rows.links):
                return  # filters can always be kept
        if isinstance(below, Bgp):
            return
        below = below.pattern
