"""From the algebra of a query to the operations of a program.

Patterns are planned as the executor plans them, and explored from the rows that they join with. Other parts, and
parts that share a variable with rows that may leave it unbound, are evaluated alone and joined. A part without an
operation is hosted, if the program may have such: the executor evaluates it, and the program goes on with its rows.
Paths are hosted, GRAPH blocks that are evaluated graph by graph, NOW, some EXISTS, expressions of many variables.
NotCompiled names the part if that may not be, and the executor evaluates the whole query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    DatasetClause,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    Project,
    Query,
    Service,
    Slice,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.exploration_order import explorable_operands, is_explorable
from wukongs.csparql.functions import OF_MOMENT, calls_any
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import (
    NO_VARIABLES,
    certain_variables,
    exists_patterns,
    expression_variables,
    is_ordered,
    mentioned_variables,
    possible_variables,
)
from wukongs.csparql.terms import XSD, Variable, literal
from wukongs.csparql.walk import join_operands, parts_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.exists import assigned_variables, is_row_by_row
from wukongs.query.operators.aggregates import group
from wukongs.query.operators.ordering import order_by
from wukongs.query.plans import plan_layout
from wukongs.query.plans.compiled import CompiledSteps, Windows, Workspace
from wukongs.query.plans.conditions import compared_with_string, conditions_of
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs import program_layout as layout
from wukongs.query.programs.hosting import Hosting
from wukongs.query.programs.operations import Code, Evaluate, HostedOperation, Memos, NotCompiled, Relation
from wukongs.query.rows import stable_order
from wukongs.store.dtypes import NO_MATCH, UNBOUND, Int64Array
from wukongs.store.term_ids import OPS, integer_ids, term_id

KEYS_MAX = 4
"""The variables that a condition or expression may mention."""
_CODES = {"MIN": layout.MIN, "MAX": layout.MAX, "SAMPLE": layout.SAMPLE}
_ZERO = literal("0", f"{XSD}integer")
ZERO = int(integer_ids(np.zeros(1, np.int64))[0])
_EMPTY = term_id('""')
"""The empty string: GROUP_CONCAT of no rows."""


@dataclass(slots=True)
class Compiler:
    """Compiles one query for the current sizes. Raises NotCompiled."""

    clause: DatasetClause
    windows: Windows
    resolve: Resolve
    plans: PlanMemo
    workspace: Workspace
    memos: Memos
    wanted: dict[tuple[int, ...], FilteredBgp]
    """Filtered patterns by the identities of their parts; the planner knows them by identity."""
    arguments: tuple[Variable, ...] = ()
    """The variables of rows of arguments: their number, from 0, and the hidden ones that they bind. All relations have
    them; they keep the solutions of the rows apart."""
    rows: int = 1
    """How many rows of arguments there are."""
    code: Code = field(default_factory=Code)
    may_host: bool = False
    """Whether the executor may evaluate parts."""
    _hidden: int = 0
    _dataset: Dataset = field(init=False)
    _numbers: dict[int, int] = field(init=False)
    _unit: Relation = field(init=False)
    """The rows of arguments, the first table; one empty row without any."""

    def __post_init__(self) -> None:
        self._dataset, self._numbers = self.windows.dataset(self.clause, self.resolve)
        number = self.code.table(self.rows, len(self.arguments))
        self._unit = Relation(number, self.arguments, frozenset(self.arguments), self.rows)

    def query(self, query: Query) -> tuple[Relation, Int64Array | None]:
        """Compile a query; return its result, and the columns that are shown, None for all of them: the number of the
        row of arguments, if there are any, and the query's variables; of CONSTRUCT all variables."""
        found = self._query(query)
        if self.code.is_hosted:
            raise NotCompiled("no part with an operation")
        return found

    def _query(self, query: Query) -> tuple[Relation, Int64Array | None]:
        if query.form == "describe":
            raise NotCompiled("describe")
        shown = tuple(map(Variable, query.variables))
        if query.form == "select" and isinstance(query.pattern, Project) and not self.arguments:
            relation = self.node(query.pattern.pattern)
            if shown != relation.variables and set(shown) <= set(relation.variables):
                return relation, np.array(list(map(relation.column, shown)), np.int64)
            return self._projected(relation, shown), None
        relation = self.node(query.pattern)
        if query.form == "ask":
            return relation, None
        if query.form == "construct":
            shown = tuple(variable for variable in relation.variables if variable not in self.arguments)
        return self._projected(relation, (*self.arguments[:1], *shown)), None

    def node(self, node: Node) -> Relation:
        """Compile a node of the algebra; return its solutions."""

        def run(_: BindingTable, hosting: Hosting) -> BindingTable:
            return hosting.executor.run(node)

        return self._or_hosted(partial(self._node, node), partial(self._hosted_node, node, self._unit, run))

    def _node(self, node: Node) -> Relation:
        match node:
            case Bgp():
                return self._patterns(node, (), self._unit)
            case Filter():
                filtered = FilteredBgp.of(node)
                if filtered is not None:
                    return self._patterns(filtered.bgp, filtered.filters, self._unit)
                return self._filtered(self.node(node.pattern), node.condition)
            case Join():
                return self._join(node)
            case LeftJoin():
                return self._optional(self.node(node.left), node)
            case Minus():
                return self._minus(node)
            case Union(left=left, right=right):
                return self._union(self.node(left), self.node(right))
            case Values():
                return self._values(node)
            case Extend(pattern=pattern, variable=variable, expression=expression):
                return self._extended(self.node(pattern), variable, expression)
            case Group():
                return self._group(node)
            case Project(pattern=pattern, variables=variables):
                return self._projected(self.node(pattern), (*variables, *self.arguments))
            case Distinct(pattern=pattern) if not is_ordered(pattern):
                return self._distinct(self.node(pattern))
            case OrderBy():
                return self._sorted(self.node(node.pattern), node.conditions)
            case Slice():
                return self._slice(node)
        raise NotCompiled(type(node).__name__)

    # --- parts that the executor evaluates ----------------------------------------------------------------------------

    def _or_hosted(self, compiled: Callable[[], Relation], hosted: Callable[[], Relation]) -> Relation:
        """Return what `compiled` does, or what `hosted` does if a part has no operation."""
        end = self.code.end()
        try:
            return compiled()
        except NotCompiled:
            if not self.may_host:
                raise
            self.code.cut(end)
            return hosted()

    def _hosted(self, operand: Relation, result: Relation, evaluate: Evaluate) -> Relation:
        """Have the executor make a relation."""
        at = len(self.code.operations)
        self.code.add(layout.EVALUATE, result.number, operand.number)
        self.code.hosts[at] = HostedOperation(operand, result, at + 1, evaluate)
        return result

    def _hosted_node(self, node: Node, start: Relation, evaluate: Evaluate) -> Relation:
        """Have the executor join a relation with the solutions of a node."""
        if isinstance(node, Service | TripleParts):
            raise NotCompiled("a part that depends on the others")
        new = possible_variables(node).difference(start.variables)
        variables = *start.variables, *sorted(new, key=lambda variable: variable.name)
        self.code.estimated_cells += start.rows * len(variables)
        number, certain = self.code.table(0, len(variables)), start.certain | certain_variables(node)
        is_by_row = start is self._unit
        return self._hosted(start, Relation(number, variables, certain, start.rows, is_by_row), evaluate)

    # --- patterns -----------------------------------------------------------------------------------------------------

    def _patterns(self, bgp: Bgp, filters: Sequence[Expression], start: Relation) -> Relation:
        """Explore triple patterns from the rows of `start`, with their filters. All rows of `start` bind the variables
        that it shares with the patterns."""
        parts = [part for expression in filters for part in _conjuncts(expression)]
        semijoins = [part for part in parts if exists_patterns(part)]
        wanted = self._wanted(bgp, tuple(part for part in parts if not exists_patterns(part)))
        variables, found = start.variables, possible_variables(bgp)
        route = self.plans.route(wanted, variables, max(1, round(start.rows)), self._dataset)
        relation = start
        if route.plan.constants or route.plan.filters or not route.segments:
            relation = self._picked(start, variables)  # the rows of `start` may be needed once more
            for variable, term in route.plan.constants:
                relation = self._extended(relation, variable, term)
                relation = replace(relation, certain=relation.certain | {variable})
            for expression in route.plan.filters:
                relation = self._filtered(relation, expression)
        certain = start.certain | found
        steps = iter(route.plan.steps)
        for segment in route.segments:
            lowered = segment.lowered
            own = [next(steps) for _ in lowered.steps]
            number = self.code.table(0, max(1, len(lowered.variables)))
            if not lowered.is_void:
                if not CompiledSteps.fits(lowered):
                    raise NotCompiled("too many steps")
                table, space = self.windows.table, self.workspace
                compiled = CompiledSteps(lowered, self._dataset, self._numbers, table, space)
                self.code.explored.append(compiled)
                left = -1 if relation is self._unit and not self.arguments else relation.number
                self.code.add(layout.EXPLORE, number, left, data=compiled.call)
            bound, is_by_row = certain.intersection(lowered.variables), start.is_by_row
            relation = Relation(number, lowered.variables, bound, own[-1].estimated_rows, is_by_row)
            self.code.estimated_cells += relation.rows * len(lowered.variables)
            self.code.estimated_rows += sum(step.estimated_rows for step in own)
            if not lowered.variables:  # the kernel's rows have a column even so
                relation = self._pick(relation, [], (), NO_VARIABLES)
            for expression in segment.filters:
                relation = self._filtered(relation, expression)
        relation = replace(relation, certain=certain)
        for expression in semijoins:
            relation = self._filtered(relation, expression)
        return relation

    def _wanted(self, bgp: Bgp, filters: tuple[Expression, ...]) -> FilteredBgp:
        key = id(bgp), *map(id, filters)
        return self.wanted.setdefault(key, FilteredBgp(bgp, filters))

    def _explored(self, node: Node, start: Relation) -> Relation:
        """Join `start` with an explorable node."""

        def explore(table: BindingTable, hosting: Hosting) -> BindingTable:
            return hosting.executor.explore(node, table)

        return self._or_hosted(
            partial(self._explored_node, node, start), partial(self._hosted_node, node, start, explore)
        )

    def _explored_node(self, node: Node, start: Relation) -> Relation:
        if isinstance(node, PathPattern):
            raise NotCompiled("a path")
        if not start.certain.issuperset(possible_variables(node).intersection(start.variables)):
            return self._joined(start, self._explored(node, self._unit))
        filtered = FilteredBgp.of(node)
        if filtered is not None:
            return self._patterns(filtered.bgp, filtered.filters, start)
        match node:
            case Filter(condition=condition, pattern=pattern):
                return self._filtered(self._explored(pattern, start), condition)
            case Extend(pattern=pattern, variable=variable, expression=expression):
                return self._extended(self._explored(pattern, start), variable, expression)
            case Project(pattern=pattern, variables=variables):
                relation = self._explored(pattern, start)
                kept = [variable for variable in variables if variable in relation.variables]
                return self._projected(relation, tuple(dict.fromkeys((*start.variables, *kept))))
            case Union(left=left, right=right):
                return self._union(self._explored(left, start), self._explored(right, start))
            case Join():
                return self._explored_all(tuple(join_operands(node)), start)
            case LeftJoin():
                return self._optional(self._explored(node.left, start), node)
        raise NotCompiled(type(node).__name__)

    def _explored_all(self, operands: tuple[Node, ...], start: Relation) -> Relation:
        relation = start
        for part in self.plans.order(operands, frozenset(start.variables), max(1, round(start.rows)), self._dataset):
            relation = self._explored(part, relation)
        return relation

    def _join(self, node: Join) -> Relation:
        operands = join_operands(node)
        explored = explorable_operands(operands)
        others = [operand for operand in operands if not any(operand is one for one in explored)]
        start = self._unit
        for other in others:
            start = self.node(other) if start is self._unit else self._joined(start, self.node(other))
        return self._explored_all(explored, start)

    def _joined(self, left: Relation, right: Relation) -> Relation:
        """Join two relations."""
        shared = [variable for variable in left.variables if variable in right.variables]
        keys = [variable for variable in shared if variable in left.certain & right.certain]
        checks = [variable for variable in shared if variable not in keys]
        variables = tuple(dict.fromkeys((*left.variables, *right.variables)))
        pairs = [(left.column(variable), right.column(variable)) for variable in (*keys, *checks)]
        picks = [
            tuple(side.column(variable) if variable in side.variables else -1 for side in (left, right))
            for variable in variables
        ]
        data = np.array([(len(keys), len(checks)), *pairs, *picks], np.int64).ravel()
        number = self.code.table(0, len(variables))
        self.code.add(layout.JOIN, number, left.number, right.number, data, len(variables))
        rows = max(left.rows, right.rows) if keys else left.rows * right.rows
        self.code.estimated_cells += rows * len(variables)
        return Relation(number, variables, left.certain | right.certain, rows, left.is_by_row)

    def _values(self, node: Values) -> Relation:
        """Compile VALUES."""
        cells = np.zeros((len(node.rows), len(node.variables)), np.int64)
        for term in (cell for row in node.rows for cell in row if cell is not None):
            self.resolve(term)  # so that a change of its id is noticed
        self.code.values.append((cells, list(node.rows)))
        number = self.code.table(len(cells), len(node.variables), cells.ctypes.data)
        columns = zip(node.variables, zip(*node.rows, strict=True), strict=True) if node.rows else ()
        certain = frozenset(variable for variable, own in columns if None not in own)
        relation = Relation(number, tuple(node.variables), certain, len(cells))
        return self._joined(self._unit, relation)

    # --- rows beside rows ---------------------------------------------------------------------------------------------

    def _numbered(self, relation: Relation, seen: frozenset[Variable]) -> tuple[Relation, Variable]:
        """Return the columns in `seen`, with a column of row numbers; and its variable."""
        self._hidden += 1
        row = Variable(f".row{self._hidden}")
        kept = tuple(variable for variable in relation.variables if variable in seen)
        picks = [(relation.column(variable), 0) for variable in kept] + [(layout.PICK_NUMBER, 0)]
        found = self._pick(relation, picks, (*kept, row), relation.certain.intersection(kept) | {row})
        return replace(found, is_by_row=True), row

    def _by_row(self, relation: Relation, row: Variable) -> Relation:
        """Sort rows by the numbers of the rows that they were explored from."""
        if relation.is_by_row:
            return relation
        data = np.array([0, 1, 0, -1, -1, relation.column(row)], np.int64)
        number = self.code.table()
        self.code.add(layout.SORT, number, relation.number, data=data)
        return replace(relation, number=number, is_by_row=True)

    def _optional(self, left: Relation, node: LeftJoin) -> Relation:
        """Compile an OPTIONAL for the rows of its left side."""
        condition, right = node.condition, node.right
        mentioned = NO_VARIABLES if condition is None else expression_variables(condition)
        start, row = self._numbered(left, mentioned_variables(right) | mentioned | frozenset(self.arguments))
        filtered, shared = FilteredBgp.of(right), possible_variables(right).intersection(start.variables)
        if start.certain.issuperset(shared) and filtered is not None and is_explorable(right, left.variables):
            conditions = () if condition is None else (condition,)
            found = self._patterns(filtered.bgp, (*filtered.filters, *conditions), start)
        else:
            is_explored = is_explorable(right, left.variables) or _is_explored_optional(right, left)
            found = self._explored(right, start) if is_explored else self._joined(start, self.node(right))
            found = found if condition is None else self._filtered(found, condition)
        found = self._by_row(found, row)
        new = tuple(variable for variable in found.variables if variable not in left.variables and variable != row)
        unbound = shared - left.certain  # where LEFT leaves it unbound, RIGHT may bind it
        picks = [(at, 1 + found.column(own) if own in unbound else 0) for at, own in enumerate(left.variables)]
        picks += [(layout.PICK_RIGHT - found.column(variable), UNBOUND) for variable in new]
        number = self._beside(left, found, picks, row)
        return Relation(number, (*left.variables, *new), left.certain, max(left.rows, found.rows), left.is_by_row)

    def _beside(self, left: Relation, right: Relation, picks: list[tuple[int, int]], row: Variable) -> int:
        """Join with rows that carry the numbers of those on the left; return the number of the table."""
        number = self.code.table(0, len(picks))
        self.code.add(layout.BESIDE, number, left.number, right.number, _table(picks), flag=right.column(row))
        return number

    def _semijoin(self, relation: Relation, pattern: Node, shared: frozenset[Variable], *, is_anti: bool) -> Relation:
        kept, numbers = tuple(variable for variable in relation.variables if variable in shared), self.code.table()
        bindings = self._distinct(relation, kept, numbers)
        start, row = self._numbered(bindings, shared)
        found = self._explored(pattern, start)
        flag = found.column(row)
        self.code.add(layout.SEMIJOIN, relation.number, numbers, found.number, count=int(is_anti), flag=flag)
        return relation

    def _exists(self, relation: Relation, exists: Exists, *, is_anti: bool) -> Relation:
        pattern, mentioned = exists.pattern, mentioned_variables(exists.pattern)
        shared = mentioned.intersection(relation.variables)
        is_open = FilteredBgp.of(pattern) is None and not is_explorable(pattern, shared)
        has_path = any(isinstance(part, PathPattern) for part in parts_of(pattern))  # it depends on what is substituted
        if is_open or has_path or is_row_by_row(pattern) or assigned_variables(pattern):
            raise NotCompiled("EXISTS")
        if not relation.certain.issuperset(shared):
            raise NotCompiled("EXISTS of what may be unbound")
        return self._semijoin(relation, pattern, shared, is_anti=is_anti != exists.negated)

    def _minus(self, node: Minus) -> Relation:
        left = self.node(node.left)

        def subtract(table: BindingTable, hosting: Hosting) -> BindingTable:
            return hosting.executor.subtracted(node, table)

        return self._or_hosted(partial(self._subtracted, left, node.right), partial(self._hosted, left, left, subtract))

    def _subtracted(self, left: Relation, right: Node) -> Relation:
        shared = possible_variables(right).intersection(left.variables)
        if shared.issubset(self.arguments):
            return left
        is_bound = left.certain.issuperset(shared) and certain_variables(right).issuperset(shared)
        is_named = not any(variable.is_blank for variable in shared.difference(self.arguments))
        if not (is_bound and is_named and is_explorable(right, shared)):
            raise NotCompiled("MINUS")
        return self._semijoin(left, right, shared, is_anti=True)

    def _union(self, left: Relation, right: Relation) -> Relation:
        variables = tuple(dict.fromkeys((*left.variables, *right.variables)))
        picks = [_pick_of(relation, variable) for relation in (left, right) for variable in variables]
        number = self.code.table(0, len(variables))
        self.code.add(layout.UNION, number, left.number, right.number, _table(picks), len(variables))
        return Relation(number, variables, left.certain & right.certain, left.rows + right.rows, is_by_row=False)

    # --- conditions and values ----------------------------------------------------------------------------------------

    def _filtered(self, relation: Relation, condition: Expression) -> Relation:
        """Filter a relation in place; no other operation may read it."""
        for part in _conjuncts(condition):
            exists, is_anti = part, False
            while isinstance(exists, Call) and exists.op == "!":
                exists, is_anti = exists.arguments[0], not is_anti
            compiled = partial(self._condition, relation, part)
            if isinstance(exists, Exists):
                compiled = partial(self._exists, relation, exists, is_anti=is_anti)
            relation = self._or_hosted(compiled, partial(self._hosted_filter, relation, part))
        return relation

    def _hosted_filter(self, relation: Relation, condition: Expression) -> Relation:
        return self._hosted(relation, relation, lambda table, hosting: hosting.executor.keep(condition, table))

    def _condition(self, relation: Relation, condition: Expression) -> Relation:
        keys = _keys(relation, condition)
        row: tuple[int, ...] = (layout.NO_COMPARISON, 0, -1, NO_MATCH)
        found = conditions_of([condition], frozenset(relation.variables))
        if found is not None and len(found) == 1 and keys:
            row = found[0].row(relation.variables, self.resolve)
        if found is not None and row[0] == plan_layout.IS_OTHER and row[3] == NO_MATCH:
            row = (layout.NO_COMPARISON, 0, -1, NO_MATCH)
        text = np.zeros(layout.TEXT_WIDTH, np.int64)
        if found is None and (compared := compared_with_string(condition)) is not None and compared[1] in keys:
            op, variable, string = compared
            row = OPS[op], relation.column(variable), -1, NO_MATCH
            lexical = np.frombuffer(string[1:].encode(), np.uint8)  # with the closing quote
            self.code.data.append(lexical)
            text[: layout.TEXT_INLINED] = layout.CLASS_STRING, lexical.ctypes.data, len(lexical) - 1, 1
        memo = self.memos.of(condition, keys, is_condition=True)
        data = np.array([*row, *text, *map(relation.column, keys)], np.int64)
        self.code.add(layout.FILTER, relation.number, data=data, count=len(keys), memo=memo)
        return relation

    def _extended(self, relation: Relation, variable: Variable, expression: Expression) -> Relation:
        """Add a column with the value of an expression."""
        if variable in relation.variables:
            raise NotCompiled("a variable that is bound before")
        certain = relation.certain
        if isinstance(expression, Variable):
            picks = [(at, 0) for at in range(len(relation.variables))] + [_pick_of(relation, expression)]
            certain |= {variable} if expression in relation.certain else NO_VARIABLES
            return self._pick(relation, picks, (*relation.variables, variable), certain)
        number = self.code.table()
        made = replace(relation, number=number, variables=(*relation.variables, variable))
        return self._or_hosted(
            partial(self._extend, relation, made, expression), partial(self._hosted_extend, relation, made, expression)
        )

    def _extend(self, relation: Relation, made: Relation, expression: Expression) -> Relation:
        keys = _keys(relation, expression)
        memo = self.memos.of(expression, keys, is_condition=False)
        data = np.array(list(map(relation.column, keys)), np.int64)
        self.code.add(layout.EXTEND, made.number, relation.number, data=data, count=len(keys), memo=memo)
        return made

    def _hosted_extend(self, relation: Relation, made: Relation, expression: Expression) -> Relation:
        variable = made.variables[-1]
        return self._hosted(relation, made, lambda table, hosting: hosting.executor.valued(variable, expression, table))

    def _column_of(self, relation: Relation, expression: Expression) -> tuple[Relation, Variable]:
        """Return a relation with a column for an expression, and the variable of that column."""
        if isinstance(expression, Variable) and expression in relation.variables:
            return relation, expression
        self._hidden += 1
        variable = Variable(f".hidden{self._hidden}")
        return self._extended(relation, variable, expression), variable

    # --- the whole of rows --------------------------------------------------------------------------------------------

    def _picked(self, relation: Relation, variables: tuple[Variable, ...]) -> Relation:
        picks = [_pick_of(relation, variable) for variable in variables]
        return self._pick(relation, picks, variables, relation.certain.intersection(variables))

    def _pick(
        self,
        relation: Relation,
        picks: list[tuple[int, int]],
        variables: tuple[Variable, ...],
        certain: frozenset[Variable],
    ) -> Relation:
        number = self.code.table(0, len(picks))
        self.code.add(layout.PROJECT, number, relation.number, data=_table(picks), count=len(picks))
        return Relation(number, variables, certain, relation.rows, relation.is_by_row)

    def _projected(self, relation: Relation, variables: tuple[Variable, ...]) -> Relation:
        return relation if variables == relation.variables else self._picked(relation, variables)

    def _distinct(
        self, relation: Relation, variables: tuple[Variable, ...] | None = None, numbers: int = -1
    ) -> Relation:
        """Return the distinct rows of some variables, by default of all. numbers: the table that gets the number of the
        distinct row of each row, -1 for none."""
        variables = relation.variables if variables is None else variables
        number, columns = self.code.table(), map(relation.column, variables)
        data = np.array([len(variables), 0, *columns], np.int64)
        self.code.add(layout.GROUP, number, relation.number, numbers, data)
        certain = relation.certain.intersection(variables)
        return Relation(number, variables, certain, relation.rows, relation.is_by_row)

    def _group(self, node: Group) -> Relation:
        relation = self.node(node.pattern)
        if any(key not in relation.variables for key in node.keys):
            raise NotCompiled("a key that nothing binds")
        if any(aggregate.argument is None and aggregate.distinct for _, aggregate in node.aggregates):
            named = tuple(variable for variable in relation.variables if not variable.is_blank)
            if len(node.aggregates) == 1:
                relation = self._distinct(relation, tuple(dict.fromkeys((*self.arguments, *node.keys, *named))))
            elif not self.may_host:
                raise NotCompiled("COUNT(DISTINCT *) beside other aggregates")
        made: list[tuple[Variable, Aggregate]] = []
        for variable, aggregate in node.aggregates:
            if aggregate.argument is not None:
                relation, argument = self._column_of(relation, aggregate.argument)
                made.append((variable, replace(aggregate, argument=argument)))
            else:
                made.append((variable, aggregate))
        is_alone = len(made) == 1
        pieces = [piece for variable, aggregate in made for piece in _pieces_of(variable, aggregate, is_alone=is_alone)]
        keys, operand, at = (*self.arguments, *node.keys), relation, len(self.code.operations)
        cells = [cell for piece in pieces for cell in (piece.code, piece.column(operand))]
        data = np.array([len(keys), len(pieces), *map(operand.column, keys), *cells], np.int64)
        found = (*keys, *(piece.variable for piece in pieces))
        number = self.code.table(0, len(found))
        self.code.add(layout.GROUP, number, operand.number, data=data, memo=self.memos.texts)
        relation = Relation(number, found, operand.certain.intersection(keys), operand.rows, operand.is_by_row)
        if self.arguments and not node.keys:
            parts = [(piece.variable, piece.aggregate) for piece in pieces]
            self.code.hosts[at] = HostedOperation(
                operand, relation, at + 1, lambda table, hosting: group(table, keys, parts, hosting.terms)
            )
            relation = self._of_each_argument(relation, [piece.of_nothing for piece in pieces])
        for variable, aggregate in made:
            if _is_mean(aggregate):
                relation = self._extended(relation, variable, _mean(variable))
        relation = self._projected(relation, (*keys, *(variable for variable, _ in made)))
        if at not in self.code.hosts:
            behind = len(self.code.operations)
            self.code.hosts[at] = HostedOperation(
                operand, relation, behind, lambda table, hosting: group(table, keys, made, hosting.terms)
            )
        return relation

    def _of_each_argument(self, relation: Relation, of_nothing: list[int]) -> Relation:
        """Add the groups of rows of arguments without solutions to a group of each row of arguments."""
        relation, first = self._by_row(relation, self.arguments[0]), len(self.arguments)
        picks = [(at, 0) for at in range(first)]
        picks += [(layout.PICK_RIGHT - first - at, value) for at, value in enumerate(of_nothing)]
        number = self._beside(self._unit, relation, picks, self.arguments[0])
        return replace(relation, number=number, rows=self.rows)

    def _sorted(self, relation: Relation, conditions: Sequence[tuple[Expression, bool]]) -> Relation:
        """Sort rows; ties are in canonical order: by ids, columns by name."""
        shown = relation.variables
        ties = sorted(shown, key=lambda variable: variable.name)
        columns: list[int] = []
        by: list[tuple[Expression, bool]] = []
        for expression, is_descending in conditions:
            relation, variable = self._column_of(relation, expression)
            columns += relation.column(variable), int(is_descending)
            by.append((variable, is_descending))
        head = [len(conditions), len(ties), 0, -1, self._part_of(relation)]
        data = np.array([*head, *columns, *map(relation.column, ties)], np.int64)
        number, parts = self.code.table(), self.arguments[:1]

        def sort(table: BindingTable, hosting: Hosting) -> BindingTable:
            found = order_by(table, by, hosting.terms, ties=table.columns_of(ties))
            return found.take(stable_order(found.columns_of(parts))) if parts else found

        sorted_rows, at = replace(relation, number=number), len(self.code.operations)
        self.code.add(layout.SORT, number, relation.number, data=data, memo=self.memos.texts)
        self.code.hosts[at] = HostedOperation(relation, sorted_rows, at + 1, sort)
        return self._projected(sorted_rows, shown)

    def _part_of(self, relation: Relation) -> int:
        """Return the column that keeps the rows of arguments apart, -1 without any."""
        return relation.column(self.arguments[0]) if self.arguments else -1

    def _slice(self, node: Slice) -> Relation:
        limit, is_in_order = -1 if node.limit is None else node.limit, is_ordered(node.pattern)
        if not (is_in_order or isinstance(node.pattern, Project | Distinct)):
            raise NotCompiled("LIMIT")
        relation, number = self.node(node.pattern), self.code.table()
        ties = range(0 if is_in_order else len(relation.variables))  # without any, rows keep their order
        data = np.array([0, len(ties), node.offset, limit, self._part_of(relation), *ties], np.int64)
        self.code.add(layout.SORT, number, relation.number, data=data)
        return replace(relation, number=number)


def _is_explored_optional(node: Node, start: Relation) -> bool:
    """Return whether a LeftJoin can be explored from rows: its left side binds all that its right side shares with
    them (well-designed patterns)."""
    if not isinstance(node, LeftJoin):
        return False
    mentioned = mentioned_variables(node.right)
    if node.condition is not None:
        mentioned |= expression_variables(node.condition)
    is_bound = certain_variables(node.left).issuperset(mentioned.intersection(start.variables))
    return is_bound and (is_explorable(node.left, start.variables) or _is_explored_optional(node.left, start))


def _conjuncts(condition: Expression) -> list[Expression]:
    """Split a conjunction."""
    if isinstance(condition, Call) and condition.op == "&&":
        return [part for argument in condition.arguments for part in _conjuncts(argument)]
    return [condition]


def _keys(relation: Relation, expression: Expression) -> tuple[Variable, ...]:
    """Return the columns of a relation that determine the value of an expression."""
    if isinstance(expression, Aggregate) or exists_patterns(expression) or calls_any(expression, OF_MOMENT):
        raise NotCompiled("an expression whose value depends on more than terms")
    mentioned = expression_variables(expression)
    keys = tuple(variable for variable in relation.variables if variable in mentioned)
    if len(keys) > KEYS_MAX:
        raise NotCompiled("an expression of many variables")
    return keys


def _pick_of(relation: Relation, variable: Variable) -> tuple[int, int]:
    """Return the pick of a variable; UNBOUND if the relation lacks it."""
    return (relation.column(variable), 0) if variable in relation.variables else (layout.PICK_TERM, UNBOUND)


def _table(rows: Sequence[tuple[int, int]]) -> Int64Array:
    return np.array(rows, np.int64).reshape(-1, layout.PICK_WIDTH)


@dataclass(frozen=True, slots=True)
class _Piece:
    """An aggregate of the kernel. of_nothing: its value in a group without rows."""

    variable: Variable
    aggregate: Aggregate
    code: int
    of_nothing: int = ZERO

    def column(self, relation: Relation) -> int:
        """Return the column that it reads."""
        argument = self.aggregate.argument
        return relation.column(argument) if isinstance(argument, Variable) else 0


def _is_mean(aggregate: Aggregate) -> bool:
    """Return whether an aggregate is computed of a sum and a count."""
    return aggregate.name == "AVG" and not aggregate.distinct


def _pieces_of(variable: Variable, aggregate: Aggregate, *, is_alone: bool) -> list[_Piece]:
    """Return the aggregates of the kernel that make up an aggregate of a variable. is_alone: there is no other; the
    rows of COUNT(DISTINCT *) are distinct then."""
    name, is_distinct = aggregate.name, aggregate.distinct
    if _is_mean(aggregate):
        total, count = _parts_of_mean(variable)
        return [
            _Piece(total, replace(aggregate, name="SUM"), layout.SUM),
            _Piece(count, replace(aggregate, name="COUNT"), layout.COUNT_TERMS),
        ]
    if name == "COUNT":
        code = layout.COUNT_DISTINCT if is_distinct else layout.COUNT_TERMS
        if aggregate.argument is None:
            code = layout.HOSTED if is_distinct and not is_alone else layout.COUNT_ROWS
        return [_Piece(variable, aggregate, code)]
    if name == "SUM":
        return [_Piece(variable, aggregate, layout.HOSTED if is_distinct else layout.SUM)]
    of_nothing = _EMPTY if name == "GROUP_CONCAT" else ZERO if name == "AVG" else UNBOUND
    return [_Piece(variable, aggregate, _CODES.get(name, layout.HOSTED), of_nothing)]


def _parts_of_mean(variable: Variable) -> tuple[Variable, Variable]:
    return Variable(f"{variable.name}.total"), Variable(f"{variable.name}.count")


def _mean(variable: Variable) -> Expression:
    """Return AVG as an expression over SUM and COUNT. If the count is 0, it is SUM: 0 of no rows, unbound after an
    error."""
    total, count = _parts_of_mean(variable)
    return Call("IF", (Call("=", (count, _ZERO)), total, Call("/", (total, count))))
