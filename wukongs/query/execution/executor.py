"""Executor: runs the algebra of one query over one dataset; basic graph patterns in the kernel, the rest by columns.

Evaluation goes bottom-up as in the SPARQL specification (section 18), with one short cut that keeps the answer: a basic
graph pattern or path that is joined, or optional, is explored from the rows that it is joined to. So its cost grows
with those rows and not with the size of the graph (exploration.py).

Inside of EXISTS and of a GRAPH block that is evaluated graph by graph, some bindings are given from outside
(`exists.py`): every leaf is joined with the table of these. A query that is asked for many rows of arguments at once
(`argument_rows.py`) is evaluated in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Service,
    Slice,
    TermOrVariable,
    Timestamp,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.exploration_order import explorable_operands, is_explorable
from wukongs.csparql.functions import PER_ROW, calls_any
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import (
    certain_variables,
    exists_patterns,
    expression_variables,
    is_ordered,
    mentioned_variables,
    possible_variables,
    stops_early,
)
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import join_operands
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.execution import in_pieces
from wukongs.query.execution.exists import assigned_variables, is_row_by_row, replaced
from wukongs.query.execution.exploration import Exploration, is_row_wise
from wukongs.query.execution.in_pieces import InPieces
from wukongs.query.execution.profile import OPERATOR_NAMES, Profile
from wukongs.query.execution.services import answered
from wukongs.query.execution.timestamps import stamp
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.limits import Limits
from wukongs.query.operators import operators
from wukongs.query.operators.aggregates import group
from wukongs.query.operators.ordering import (
    ALL_ROWS,
    canonical,
    canonical_order,
    columns_by_name,
    first_distinct,
    order_by,
)
from wukongs.query.paths.kept_paths import KeptPaths
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.rows import numbered, places_of, put_together, stable_order
from wukongs.query.terms.values import FALSE, TRUE, text_of
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array

Explored: TypeAlias = tuple[Node, BindingTable]
_ROW = Variable(".row")
_GIVEN = Variable(".given")
_IN_PIECES = frozenset((OrderBy, Distinct, Group))
"""Nodes that are evaluated in pieces if there is no memory, wherever they are."""
_MORE_ROWS = 8
"""While DISTINCT has found too few rows, it next asks for this many times as many rows as before."""


class Executor:
    """One execution. in_order: rows are taken in canonical order wherever the answer depends on their order (LIMIT
    without ORDER BY, the order of equal rows), as firings need; what LIMIT leaves of an ORDER BY, and aggregates, never
    depend on it. profile: notes rows and time of each node. explored: nodes
    whose solutions were found elsewhere, and these. given: arguments to evaluate for, as the module's text says;
    number: the column of given that tells its rows apart, so that groups and LIMIT mean the solutions of one row;
    paths: see Exploration."""

    def __init__(
        self,
        dataset: Dataset,
        terms: TermSpace,
        limits: Limits,
        memo: PlanMemo,
        in_order: bool = False,
        profile: Profile | None = None,
        explored: Sequence[Explored] = (),
        given: BindingTable | None = None,
        number: Variable | None = None,
        paths: KeptPaths | None = None,
    ) -> None:
        self._dataset = dataset
        self._terms = terms
        self._limits = limits
        self._exploration = Exploration(dataset, terms, limits, memo, self.keep, profile, paths)
        self._in_order = in_order
        self._profile = profile
        self._explored = explored
        self._given = BindingTable.unit() if given is None else given
        self._number = number
        self._made_in_pieces: dict[int, BindingTable] = {}
        """The solutions of nodes that were evaluated in pieces, which those above may need again."""

    def explore(self, node: Node, table: BindingTable) -> BindingTable:
        """Join a table with an explorable pattern. Raises as run."""
        return self._exploration.explore(node, table)

    def match(self, wanted: FilteredBgp, table: BindingTable) -> BindingTable:
        """Join a table with triple patterns where filters hold. Raises as run."""
        return self._exploration.match(wanted, table)

    def run(self, node: Node, rows_wanted: int | None = None) -> BindingTable:
        """Return the solutions of a node. rows_wanted: more rows are not needed. Raises what Limits.check raises."""
        limits = self._limits
        limits.check()
        outer, mark = limits.operator, limits.mark()
        limits.operator = OPERATOR_NAMES[type(node)]
        started_s = 0.0 if self._profile is None else time.perf_counter()
        run = self._whole_or_in_pieces if type(node) in _IN_PIECES else self._run
        table = run(node, rows_wanted)
        if self._profile is not None and not isinstance(node, PathPattern):  # exploring takes a path down
            self._profile.ran(node, table.length, time.perf_counter() - started_s)
        limits.back_to(mark, table.size_bytes)
        limits.operator = outer
        return table

    def run_all(self, node: Node, rows_wanted: int | None = None) -> BindingTable:
        """Do the same as run for the node whose solutions are the answer: of any kind, in pieces if there is no memory
        for all."""
        limits, mark = self._limits, self._limits.mark()
        try:
            return self.run(node, rows_wanted)
        except BudgetExceeded:
            if not limits.lacks_bytes or not self._may_be_in_pieces:
                raise
        finally:
            self._made_in_pieces = {}  # they may be long, and this object may live on
        limits.back_to(mark, 0)
        if not in_pieces.is_for(node):
            limits.is_patient = True
            return self.run(node, rows_wanted)
        table = self._in_pieces(node, rows_wanted)
        self._made_in_pieces = {}
        limits.back_to(mark, table.size_bytes)
        return table

    def _whole_or_in_pieces(self, node: Node, rows_wanted: int | None) -> BindingTable:
        """Evaluate a node, again in pieces if there is no memory."""
        if self._made_in_pieces and (known := self._made_in_pieces.get(id(node))) is not None:
            return known
        limits, mark = self._limits, self._limits.mark()
        try:
            return self._run(node, rows_wanted)
        except BudgetExceeded:
            if not limits.lacks_bytes or not self._may_be_in_pieces or not in_pieces.is_for(node):
                raise
        limits.back_to(mark, 0)
        return self._in_pieces(node, rows_wanted)

    def _in_pieces(self, node: Node, rows_wanted: int | None) -> BindingTable:
        limits = self._limits
        limits.lacks_bytes, limits.operator = False, OPERATOR_NAMES[type(node)]
        size, outer, limits.is_patient = in_pieces.work_bytes(limits), limits.is_patient, True
        try:
            with limits.reserving(size):
                made = InPieces(self, self._exploration, self._terms, limits, size).run(node, rows_wanted)
        except BudgetExceeded:
            limits.lacks_bytes = False  # those above would fail here again
            raise
        finally:
            limits.is_patient = outer
        if rows_wanted is None:
            self._made_in_pieces[id(node)] = made
        return made

    @property
    def _may_be_in_pieces(self) -> bool:
        """Whether this is an execution that may write temporary files, and at the moment evaluates for nothing that is
        given."""
        return self._limits.spill_bytes_max > 0 and not self._in_order and self._is_alone

    def _run(self, node: Node, rows_wanted: int | None) -> BindingTable:
        for known, table in self._explored:
            if node is known:
                return table
        rows_max = self._limits.rows_max
        match node:
            case Bgp() | PathPattern() | TripleParts():
                return self._exploration.explore(node, self._given, rows_wanted)
            case Values(variables=variables, rows=rows):
                return operators.join(self._given, self._values(variables, rows), rows_max)
            case GraphNames(graph=graph):
                return operators.join(self._given, self._graph_names(graph), rows_max)
            case Service():
                return self._service(node, self._given)
            case Join():
                return self._join(node)
            case LeftJoin():
                return self._left_join(node)
            case Minus(left=left):
                return self.subtracted(node, self.run(left))
            case Union(left=left, right=right):
                return operators.union(self.run(left), self.run(right), rows_max)
            case Filter(condition=condition, pattern=pattern):
                filtered = FilteredBgp.of(node)
                if filtered is not None and not self._is_above_known(node):
                    return self._exploration.match(filtered, self._given, rows_wanted)
                return self._filtered_join(node) or self.keep(condition, self.run(pattern))
            case Extend():
                return self._extend(node, rows_wanted)
            case Timestamp(pattern=pattern):
                return stamp(node, self.run(pattern, rows_wanted), self._dataset, self._terms)
            case Group():
                return self._group(node)
            case Project(pattern=pattern, variables=variables):
                kept = dict.fromkeys((*variables, *self._given.variables))
                return operators.project(self.run(pattern, rows_wanted), tuple(kept))
            case Distinct(pattern=pattern):
                return self._distinct(pattern, rows_wanted)
            case OrderBy():
                return self._order_by(node, rows_wanted)
            case Slice():
                return self._slice(node)
            case PerGraph():
                return self._per_graph(node)

    def _is_above_known(self, node: Node) -> bool:
        """Tell whether filters stand above a node whose solutions were found elsewhere."""
        while self._explored and isinstance(node, Filter):
            node = node.pattern
            if self._is_known(node):
                return True
        return False

    def _is_known(self, node: Node) -> bool:
        return any(node is known for known, _ in self._explored)

    # --- leaves -------------------------------------------------------------------------------------------------------

    def _values(self, variables: Sequence[Variable], rows: Sequence[Sequence[Term | None]]) -> BindingTable:
        cells = zip(*rows, strict=True) if rows else [()] * len(variables)
        return BindingTable(tuple(variables), tuple(map(self._cells, cells)), len(rows))

    def _cells(self, cells: Sequence[Term | None]) -> Int64Array:
        """Return the ids of terms, UNBOUND in the place of None."""
        column = np.full(len(cells), UNBOUND, np.int64)
        bound = [row for row, cell in enumerate(cells) if cell is not None]
        column[bound] = self._terms.ids([cell.text for cell in cells if cell is not None])
        return column

    def _graph_names(self, graph: TermOrVariable) -> BindingTable:
        if isinstance(graph, Variable):
            names = self._names()
            return BindingTable((graph,), (names,), len(names))
        return BindingTable.unit() if self._dataset.is_named(graph) else BindingTable.empty()

    def _names(self) -> Int64Array:
        # A graph that the clause names need not be in the data: the terms of the query know it all the same.
        declared = [f"<{name}>" for name in self._dataset.declared_names()]
        return self._terms.ids(declared) if declared else self._dataset.named_graphs()

    def _service(self, node: Service, table: BindingTable) -> BindingTable:
        """Join a table with what other endpoints answer."""
        rows_max = self._limits.rows_max
        pairs = answered(node, table, self._terms, self._limits)
        joined = (operators.join(rows, found, rows_max) for rows, found in pairs)
        return reduce(partial(operators.union, rows_max=rows_max), joined)

    # --- operators of two sides ---------------------------------------------------------------------------------------

    def _join(self, node: Join, conditions: tuple[Expression, ...] = ()) -> BindingTable:
        """Join the parts that cannot be explored, the smallest first, and explore the rest from these rows; keep the
        rows that fulfil conditions."""
        operands = join_operands(node)
        known = {id(one) for one, _ in self._explored}
        explorable = explorable_operands(operands, self._given.variables)
        explored = tuple(operand for operand in explorable if id(operand) not in known)
        services = [one for one in operands if isinstance(one, Service) and id(one) not in known]
        later = set(map(id, (*explored, *services)))
        tables = [self.run(operand) for operand in operands if id(operand) not in later]
        if services:  # last, since they are asked for what joins with the rest only
            table = self._exploration.explore_all(explored, self._joined(tables))
            while services:  # one that names its endpoint by a variable after those that may bind it
                bound = (at for at, one in enumerate(services) if _knows_endpoint(one, table))
                table = self._service(services.pop(next(bound, 0)), table)
            return self._kept(conditions, table)
        if explored or not conditions:
            return self._exploration.explore_all(explored, self._joined(tables), conditions)
        *others, last = sorted(tables, key=lambda table: table.length)
        return operators.join(self._joined(others), last, self._limits.rows_max, partial(self._kept, conditions))

    def _kept(self, conditions: tuple[Expression, ...], table: BindingTable) -> BindingTable:
        for condition in conditions:
            table = self.keep(condition, table)
        return table

    def _filtered_join(self, node: Filter) -> BindingTable | None:
        """Join and filter some rows at a time, so that no product is held; None if a filter needs all rows at once, or
        is above something else than a join."""
        conditions, below = [], node.pattern
        conditions.append(node.condition)
        while isinstance(below, Filter):
            conditions.append(below.condition)
            below = below.pattern
        is_known = self._profile is not None or self._is_known(below)
        if not isinstance(below, Join) or is_known or not all(map(is_row_wise, conditions)):
            return None
        return self._join(below, tuple(reversed(conditions)))

    def _joined(self, tables: list[BindingTable]) -> BindingTable:
        """Join tables. The next one is always the smallest of those that share a variable with the tables before."""
        tables = sorted(tables, key=lambda table: table.length) or [self._given]
        table = tables.pop(0)
        while tables:
            bound = frozenset(table.variables)
            near = (at for at, other in enumerate(tables) if not bound.isdisjoint(other.variables))
            table = operators.join(table, tables.pop(next(near, 0)), self._limits.rows_max)
        return table

    def _left_join(self, node: LeftJoin) -> BindingTable:
        return self.left_joined(node, self.run(node.left))

    def left_joined(self, node: LeftJoin, left: BindingTable) -> BindingTable:
        """Return the solutions of an OPTIONAL for rows of its left side."""
        rows_max = self._limits.rows_max
        condition = node.condition
        if not is_explorable(node.right, left.variables) and not (condition is not None and exists_patterns(condition)):
            pairs: Iterable[tuple[BindingTable, BindingTable]]
            if isinstance(node.right, Service) and not self._given.variables:
                pairs = answered(node.right, left, self._terms, self._limits)
            else:
                pairs = [(left, self.run(node.right))]
            parts = (operators.left_join(rows, right, condition, self._terms, rows_max) for rows, right in pairs)
            return reduce(partial(operators.union, rows_max=rows_max), parts)
        # Number the left rows, extend them, and keep those that find nothing. Only what the right side sees goes with
        # the numbers: a hundred OPTIONALs beside each other would copy a hundred columns a hundred times.
        seen = mentioned_variables(node.right).union(self._given.variables)
        if condition is not None:
            seen |= expression_variables(condition)
        draws = condition is not None and calls_any(condition, PER_ROW)
        asked = (
            left if draws else operators.project(left, [variable for variable in left.variables if variable in seen])
        )
        self._limits.hold(8 * left.length)
        numbered_left = operators.with_column(asked, _ROW, np.arange(left.length, dtype=np.int64))
        found = self._extended(node, numbered_left)
        is_alone = np.ones(left.length, np.bool_)
        is_alone[found.column(_ROW)] = False
        rows = operators.union(found, numbered_left.take(places_of(is_alone)), rows_max)
        rows = rows.take(stable_order([rows.column(_ROW)]))
        return operators.beside(left, rows, _ROW)

    def _extended(self, node: LeftJoin, numbered_left: BindingTable) -> BindingTable:
        """Join rows with the right side of an OPTIONAL; keep the pairs that fulfil the condition."""
        condition = node.condition
        if not is_explorable(node.right, numbered_left.variables):
            found = operators.join(numbered_left, self.run(node.right), self._limits.rows_max)
        elif (filtered := FilteredBgp.of(node.right)) is not None:
            asked = () if condition is None else (condition,)
            return self._exploration.match(FilteredBgp(filtered.bgp, (*filtered.filters, *asked)), numbered_left)
        else:
            found = self._exploration.explore_all((node.right,), numbered_left)
        return found if condition is None else self.keep(condition, found)

    def subtracted(self, node: Minus, left: BindingTable) -> BindingTable:
        """Return the rows of the left side of a MINUS that the right side leaves."""
        given = frozenset(self._given.variables)
        names = possible_variables(node.right)
        shared = [variable for variable in left.variables if variable in names or variable in given]
        counted = [variable for variable in operators.counted(shared, given) if variable in names]
        if left.length == 0 or not counted:
            return left
        # Exploring would bind what a solution of the right side leaves unbound, which then would count as shared.
        is_bound = certain_variables(node.right).issuperset(counted)
        is_left = is_bound and is_explorable(node.right, shared)
        if is_left and not any((left.column(v) == UNBOUND).any() for v in shared):
            asked = operators.distinct(operators.project(left, shared))
            right = self._exploration.explore_all((node.right,), asked)
        else:
            right = self.run(node.right)
        return operators.minus(left, right, given)

    def keep(self, condition: Expression, table: BindingTable) -> BindingTable:
        """Return the rows in which a condition is true."""
        table = self._settled(table, [condition])
        return table.take(places_of(self._holds(condition, table)))

    # --- groups, order, parts of the whole ----------------------------------------------------------------------------

    def _extend(self, node: Extend, rows_wanted: int | None) -> BindingTable:
        """Bind one variable after the other. For BNODE(string), a row is the same solution in the whole chain."""
        chain = [node]
        while isinstance(chain[-1].pattern, Extend) and not self._is_known(chain[-1].pattern):
            chain.append(chain[-1].pattern)
        known = frozenset(self._given.variables)  # in EXISTS, the variable of GRAPH ?g may be one of them
        enough = rows_wanted if known.isdisjoint(link.variable for link in chain) else None
        return self.extended(chain, self.run(chain[-1].pattern, enough))

    def extended(self, chain: Sequence[Extend], table: BindingTable) -> BindingTable:
        """Bind the variables of a chain of BINDs, the last one first."""
        known = frozenset(self._given.variables)
        table = self._settled(table, [link.expression for link in chain])
        self._terms.moment.next_solutions()
        for link in reversed(chain):
            if link.variable in known:
                table = self.keep(Call("SAMETERM", (link.variable, link.expression)), table)
                continue
            table = self.valued(link.variable, link.expression, table)
        return table

    def valued(self, variable: Variable, expression: Expression, table: BindingTable) -> BindingTable:
        """Return a table with the column of an expression."""
        (resolved,), seen = self.resolved((expression,), table)
        return operators.with_column(table, variable, evaluate(resolved, seen, self._terms))

    def _settled(self, table: BindingTable, expressions: Sequence[Expression]) -> BindingTable:
        """Put rows in canonical order, if the order shows, for expressions that draw a random value for each."""
        draws = self._in_order and any(calls_any(expression, PER_ROW) for expression in expressions)
        return canonical(table) if draws else table

    def _group(self, node: Group) -> BindingTable:
        table = self.run(node.pattern)
        arguments = [aggregate.argument for _, aggregate in node.aggregates if aggregate.argument is not None]
        resolved, seen = self.resolved(arguments, table)
        rest = iter(resolved)
        made = [(v, a if a.argument is None else replace(a, argument=next(rest))) for v, a in node.aggregates]
        if self._number is not None:
            return self._group_by_row(self._number, seen, node.keys, made)
        grouped = group(seen, node.keys, made, self._terms)
        # What is given is one row here (see is_row_by_row), so it is the same for every group.
        return operators.join(self._given, grouped, self._limits.rows_max) if self._given.variables else grouped

    def _group_by_row(
        self,
        number: Variable,
        table: BindingTable,
        keys: tuple[Variable, ...],
        made: Sequence[tuple[Variable, Aggregate]],
    ) -> BindingTable:
        """Group the solutions of each given row apart. Without keys a row that has no solution has one group, too."""
        grouped = group(table, (number, *keys), made, self._terms)
        if not keys:
            numbers = self._given.column(number)
            left = np.setdiff1d(numbers, grouped.column(number))
            nothing = group(operators.slice_rows(table, 0, 0), (), made, self._terms)
            repeated = operators.join(BindingTable((number,), (left,), len(left)), nothing, self._limits.rows_max)
            grouped = operators.union(grouped, repeated, self._limits.rows_max)
        return operators.join(self._given, grouped, self._limits.rows_max)

    def _distinct(self, pattern: Node, rows_wanted: int | None) -> BindingTable:
        """Ask for more and more rows until enough of them are distinct, where fewer rows are less work."""
        asked = rows_wanted
        if rows_wanted is not None and isinstance(pattern, Project) and isinstance(pattern.pattern, OrderBy):
            is_whole = self._profile is not None or self._is_known(pattern) or self._is_known(pattern.pattern)
            if not is_whole:
                return self._first_distinct(pattern.variables, pattern.pattern, rows_wanted)
        while asked is not None and stops_early(pattern):
            found = self.run(pattern, asked)
            table = operators.distinct(found)
            if table.length >= (rows_wanted or 0) or found.length < asked:
                return table
            asked *= _MORE_ROWS
        is_cut = rows_wanted is not None and is_ordered(pattern)
        return operators.distinct(self.run(pattern, ALL_ROWS if is_cut else None))

    @property
    def _is_alone(self) -> bool:
        """Whether the query is evaluated for nothing that is given."""
        return not (self._given.variables or self._explored) and self._number is None

    def _first_distinct(self, variables: Sequence[Variable], node: OrderBy, rows_wanted: int) -> BindingTable:
        """Return the first distinct rows of some variables in an order."""
        table = self.run(node.pattern)
        expressions, seen = self.resolved([expression for expression, _ in node.conditions], table)
        conditions = [(by, down) for by, (_, down) in zip(expressions, node.conditions, strict=True)]
        kept, ties = tuple(dict.fromkeys((*variables, *self._given.variables))), columns_by_name(table)
        return first_distinct(seen, kept, conditions, self._terms, rows_wanted, ties)

    def _order_by(self, node: OrderBy, rows_wanted: int | None) -> BindingTable:
        table = self.run(node.pattern)
        ties = columns_by_name(table) if self._in_order or rows_wanted is not None else ()
        expressions, seen = self.resolved([expression for expression, _ in node.conditions], table)
        conditions = [(by, down) for by, (_, down) in zip(expressions, node.conditions, strict=True)]
        return operators.project(order_by(seen, conditions, self._terms, rows_wanted, ties), table.variables)

    def _slice(self, node: Slice) -> BindingTable:
        ordered = is_ordered(node.pattern)
        by_row = self._number is not None
        wanted = None if node.limit is None or by_row else node.offset + node.limit
        if ordered:
            table = self.run(node.pattern, ALL_ROWS if wanted is None else wanted)
        elif self._in_order:
            table = self.run(node.pattern)
            table = table.take(canonical_order(table, wanted))
        else:  # whichever rows are found first
            table = self.run(node.pattern, wanted)
        if self._number is not None:
            return operators.slice_each(table, self._number, node.offset, node.limit)
        return operators.slice_rows(table, node.offset, node.limit)

    def _per_graph(self, node: PerGraph) -> BindingTable:
        outer, wanted = self._given, self._names()
        if node.graph in outer.variables:
            wanted = wanted[np.isin(wanted, outer.column(node.graph))]
        table = BindingTable.empty((*outer.variables, node.graph))
        for name in wanted.tolist():
            names = BindingTable((node.graph,), (np.array([name], np.int64),), 1)
            self._given = operators.join(outer, names)
            table = operators.union(table, self.run(node.pattern), self._limits.rows_max)
        self._given = outer
        return table

    # --- EXISTS -------------------------------------------------------------------------------------------------------

    def _holds(self, condition: Expression, table: BindingTable) -> BoolArray:
        """Tell in which rows a condition is true."""
        if isinstance(condition, Exists):
            return self._exists(condition, table)
        (resolved,), seen = self.resolved((condition,), table)
        return holds(resolved, seen, self._terms)

    def resolved(
        self, expressions: Sequence[Expression], table: BindingTable
    ) -> tuple[Sequence[Expression], BindingTable]:
        """Put a column in the place of each EXISTS: (expressions without any, the table with these columns)."""
        columns: dict[Exists, Variable] = {}
        for exists in (found for expression in expressions for found in exists_patterns(expression)):
            if exists not in columns:
                columns[exists] = Variable(f".exists{len(columns) + 1}")
        if not columns:
            return expressions, table
        true_id, false_id = self._terms.ids([text_of(TRUE), text_of(FALSE)]).tolist()
        seen = table
        for exists, variable in columns.items():
            self._limits.hold(8 * table.length)
            seen = operators.with_column(seen, variable, np.where(self._exists(exists, table), true_id, false_id))
        return [replaced(expression, columns) for expression in expressions], seen

    def _exists(self, exists: Exists, table: BindingTable) -> BoolArray:
        """Tell in which rows EXISTS (or NOT EXISTS) is true: once for each distinct binding that the pattern sees."""
        mentioned = mentioned_variables(exists.pattern)
        shared = [variable for variable in table.variables if variable in mentioned]
        places, firsts = numbered([table.column(variable) for variable in shared], table.length)
        bindings = operators.project(table.take(firsts), shared)
        self._limits.hold(8 * bindings.length)
        numbers = operators.with_column(bindings, _GIVEN, np.arange(bindings.length, dtype=np.int64))
        found = np.zeros(bindings.length, np.bool_)
        outer = self._given, self._number, self._exploration.substituted
        self._number = None
        for rows in operators.by_bound(numbers, shared):
            found[self._satisfied(exists.pattern, rows)] = True
        self._given, self._number, self._exploration.substituted = outer
        return found[places] != exists.negated  # type: ignore[no-any-return]

    def _satisfied(self, pattern: Node, bindings: BindingTable) -> Int64Array:
        """Return the numbers of the rows, all bound, for which a pattern has a solution; some of them repeatedly."""
        assigned = assigned_variables(pattern)
        given = operators.project(bindings, [variable for variable in bindings.variables if variable not in assigned])
        self._exploration.substituted = frozenset(given.variables)
        if is_row_by_row(pattern):
            parts: Iterable[BindingTable] = (given.take(np.array([row])) for row in range(given.length))
        else:
            parts = (given,)
        numbers = []
        limits, mark = self._limits, self._limits.mark()
        for self._given in parts:
            solutions = self.run(pattern, 1 if len(bindings.variables) == 1 == given.length else None)
            made = [variable for variable in solutions.variables if variable in assigned]
            if made:  # their values must agree with those of the rows
                agreeing = operators.project(solutions, [_GIVEN, *made])
                solutions = operators.join(bindings, agreeing, limits.rows_max)
            numbers.append(solutions.column(_GIVEN))
            limits.back_to(mark, 8 * len(numbers[-1]))
            mark = limits.mark()
        return put_together(numbers) if numbers else np.empty(0, np.int64)


def _knows_endpoint(service: Service, table: BindingTable) -> bool:
    """Tell whether rows may name the endpoint of a SERVICE."""
    return isinstance(service.endpoint, Term) or service.endpoint in table.variables
