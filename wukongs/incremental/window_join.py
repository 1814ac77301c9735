"""WindowJoin: triple patterns over windows, whose matches are kept with the time at which each ends (Deltas).

Filters and BIND right above the patterns that look at their own row alone are evaluated once for each match, when it is
found, and what they compute is kept with the match: the terms of one that has ended may not be readable any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from wukongs.csparql.algebra import Expression, Extend, Filter, Node
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import exists_patterns, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.incremental.lookups import Operator
from wukongs.incremental.versions import Change
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.limits import Limits
from wukongs.query.operators.operators import with_column
from wukongs.query.plans.compiled import CompiledPatterns
from wukongs.query.plans.deltas import DeltaClause
from wukongs.query.plans.window_changes import Moves, WindowChanges
from wukongs.query.rows import places_of
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array

Link = tuple[Variable | None, Expression]
"""A variable that is bound to an expression's value; None: a filter."""


@dataclass(frozen=True, slots=True)
class RowWise:
    """Patterns, and what is evaluated above them for each row.

    wanted: the patterns, with filters for the estimate of their plan.
    links: from the inside out."""

    wanted: FilteredBgp
    links: tuple[Link, ...] = ()

    @staticmethod
    def of(node: Node) -> RowWise | None:
        """Return triple patterns with filters and BIND above them as such; None for any other node."""
        links, below, wanted = list[Link](), node, FilteredBgp.of(node)
        while isinstance(below, Filter | Extend):
            links.append((None, below.condition) if isinstance(below, Filter) else (below.variable, below.expression))
            below = below.pattern
            wanted = wanted or FilteredBgp.of(below)
        if wanted is None or not possible_variables(wanted.bgp):
            return None
        if any(exists_patterns(expression) for _, expression in links):
            return None
        return RowWise(wanted, tuple(reversed(links)))

    @property
    def derived(self) -> tuple[Variable, ...]:
        """The variables that are bound above the patterns."""
        return tuple(variable for variable, _ in self.links if variable is not None)

    def applied(self, variables: tuple[Variable, ...], matches: Int64Array, terms: TermSpace) -> Int64Array:
        """Return the rows of matches, int64[n, len(variables)], with a column for each derived variable."""
        table = BindingTable(variables, tuple(np.ascontiguousarray(matches.T)), len(matches))
        for variable, expression in self.links:
            if variable is None:
                table = table.take(places_of(holds(expression, table, terms)))
            else:
                table = with_column(table, variable, evaluate(expression, table, terms))
        return np.stack(table.columns, axis=1)


@dataclass(slots=True, eq=False)
class WindowJoin:
    """The operator. Its change is that between two firings.

    node: of the algebra, whose rows it keeps (and columns that are made above for aggregates); None for a query that
    kernels answer alone.
    join: evaluates the patterns anew.
    variables: of the node's rows.
    clause: how the matches are kept, once it is known.
    deltas: knows their changes, from the firing on at which that is worth it."""

    node: Node | None
    rows: RowWise
    join: CompiledPatterns
    variables: tuple[Variable, ...]
    clause: DeltaClause | None = None
    deltas: WindowChanges | None = None
    is_followed: bool = False
    """Whether the operator right above it reads the changes alone."""
    moves: Moves | None = None
    """Those of the firing under way."""
    layout: tuple[Variable, ...] = field(init=False)
    """The variables of the columns that are kept."""
    touched: int = field(default=0, init=False)
    kind = "window join"
    keeps = True
    children: tuple[Operator, ...] = ()

    def __post_init__(self) -> None:
        patterns = self.rows.wanted.bgp.patterns
        bound = (variable for pattern in patterns for variable in pattern.variables())
        self.layout = tuple(dict.fromkeys((*bound, *self.rows.derived)))

    @property
    def is_ready(self) -> bool:
        """Whether its rows can be had at this firing."""
        return self.deltas is not None and self.deltas.is_ready

    @property
    def count(self) -> int:
        return 0 if self.deltas is None else self.deltas.count

    @property
    def keeps_rows(self) -> bool:
        """Whether its rows are at hand without evaluating the patterns."""
        return self.deltas is not None and self.deltas.kept_count == self.deltas.count

    @property
    def kept_bytes(self) -> int:
        return 0 if self.deltas is None else self.deltas.kept_bytes

    def skip(self) -> None:
        """Take no part in the firing that is about to begin, unless it stands at it."""
        if self.deltas is not None:  # it may have been ready at a firing that has failed, or had no need
            self.deltas.skip()

    def forget(self) -> None:
        """Keep no rows."""
        self.moves = None
        if self.deltas is not None:
            self.deltas.forget()

    def advance(self, terms: TermSpace | None, limits: Callable[[], Limits]) -> Moves | None:
        """Change the rows by what has arrived and expired. None: they have to be found in another way.

        terms: of the firing, if expressions are evaluated. Raises QueryTimeout, BudgetExceeded."""
        deltas, self.moves = self.deltas, None
        if deltas is None or not deltas.is_ready:
            return None
        derive = None
        if self.rows.links:
            assert terms is not None, self.rows
            derive = partial(self.rows.applied, deltas.variables, terms=terms)
        moves = self.moves = deltas.move(limits, derive)
        self.touched = 0 if moves is None else len(moves)
        return moves

    def table(self, variables: Sequence[Variable] | None = None) -> BindingTable:
        """Return the rows that are kept, or some of their columns."""
        assert self.deltas is not None, self.rows
        bound = self.layout
        shown = bound if variables is None else tuple(variables)
        return BindingTable(shown, self.deltas.columns([bound.index(one) for one in shown]), self.deltas.count)

    def all_rows(self) -> Moves:
        """Return the rows that are kept, as inserted ones. Their columns are those of `layout`."""
        assert self.deltas is not None, self.rows
        return self.deltas.all_rows()

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.table())

    content = begin

    def change(self, change: Change) -> ZSet:
        assert self.moves is not None, self.rows
        rows = np.concatenate((self.moves.inserted, self.moves.deleted))
        columns = tuple(np.ascontiguousarray(rows.T))
        return ZSet(BindingTable(self.layout, columns, len(rows)), self.moves.weights)
