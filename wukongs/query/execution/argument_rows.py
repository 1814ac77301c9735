"""ArgumentRows: one query asked for many rows of arguments at once, in one evaluation.

Each row gives terms for some of the query's variables. The answer for a row is that of the query with these terms in
the place of the variables (bindings.py). Hidden variables take that place here, and a table binds them:

* Equal rows are one: each distinct row has a number, and the answer of a number is that of all rows that have it.
* The executor is given the table of numbers and terms (exists.py says why that is substitution). The number is a key of
  every join, DISTINCT, GROUP BY and LIMIT, so that it keeps the solutions of the rows apart.
* Most queries have a core: triple patterns without which there is no solution; a UNION has one on each side. Its
  solutions are found first, in one of two ways. Then only the numbers that have some are looked at any more. Of an
  aggregate without GROUP BY one other is, too: all others have the same answer.

The two ways to find the solutions of a core; the plans' estimates choose:

* start: the rows of the table are what the exploration starts from. This is good for few rows.
* probe: the first patterns are explored with the variables left free, until all of them are bound; the index of the
  table then tells whose solutions these are, and the rest is explored from those. This is good for many rows over
  windows with few tuples. Its cost does not grow with the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    PathPattern,
    PerGraph,
    Query,
    Service,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.exploration_order import is_explorable
from wukongs.csparql.plan import FilteredBgp, Plan
from wukongs.csparql.scope import expression_variables, possible_variables
from wukongs.csparql.terms import ARGUMENT_PREFIX, Variable
from wukongs.csparql.walk import join_operands
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.execution.answer import Answer, within
from wukongs.query.execution.bindings import bind, where_clause
from wukongs.query.execution.executor import Executor, Explored
from wukongs.query.execution.exists import children
from wukongs.query.limits import Limits
from wukongs.query.mechanisms import Mechanism, Used
from wukongs.query.operators import operators
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.rows import (
    count_pairs,
    fill_pairs,
    find_rows,
    group_members,
    key_matrix,
    number_rows,
    stable_order,
    taken,
)
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_ids import integer_ids

ARGUMENT = "argument"
"""The name of the first column of an answer: the number of the row that it is for."""
NUMBER = Variable(".number")
_ROWS_MAX = 1 << 62


class RowIndex:
    """The distinct rows of some columns: their numbers, and a hash table that finds them."""

    def __init__(self, columns: Sequence[Int64Array], length: int) -> None:
        keys = key_matrix(columns, length)
        numbers, self.firsts, self._slots = number_rows(keys)
        self.count = len(self.firsts)
        self._keys = np.ascontiguousarray(keys[:, self.firsts])
        self._places = np.arange(self.count, dtype=np.int64)
        self._members = group_members(numbers, self.count)

    @property
    def size_bytes(self) -> int:
        return sum(part.nbytes for part in (self.firsts, self._slots, self._keys, self._places, *self._members))

    def find(self, columns: Sequence[Int64Array], length: int) -> Int64Array:
        """Return the number of each of some rows, -1 for one that is not here."""
        return find_rows(self._keys, self._places, self._slots, key_matrix(columns, length))

    def count_of(self, numbers: Int64Array) -> int:
        """Return how many pairs `rows_of` finds."""
        return int(count_pairs(self._members[0], numbers))

    def rows_of(self, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return (place in `numbers`, row with this number) for each; none for -1. Places rise."""
        offsets, rows = self._members
        return fill_pairs(offsets, rows, numbers, count_pairs(offsets, numbers))


@dataclass(frozen=True, slots=True)
class _Parts:
    """A core in two parts. first: the patterns after which the index is asked; rest: what is explored from there."""

    first: FilteredBgp
    rest: FilteredBgp


class _Core:
    """Triple patterns, with the filters right above them, of a query for rows of arguments. node: these, in the
    algebra; hidden: the variables that the rows bind."""

    def __init__(self, node: Node, hidden: Sequence[Variable]) -> None:
        self.node = node
        filtered = FilteredBgp.of(node)
        assert filtered is not None, node
        self._wanted = filtered
        self._free = FilteredBgp(filtered.bgp)
        bound = possible_variables(filtered.bgp)
        self._joined = tuple(variable for variable in hidden if variable in bound)
        """The hidden variables that the triple patterns bind, too."""
        self._is_whole = len(self._joined) == len(hidden)
        self._parts: dict[tuple[int, ...], _Parts] = {}

    def index(self, given: BindingTable, rows: RowIndex) -> RowIndex:
        """Return the index of the rows by what the patterns bind. given: the numbers and terms of the distinct rows;
        rows: their index."""
        if not self._joined or self._is_whole:
            return rows
        return RowIndex(given.columns_of(self._joined), given.length)

    def explored(
        self, executor: Executor, dataset: Dataset, memo: PlanMemo, given: BindingTable, index: RowIndex, used: Used
    ) -> BindingTable:
        """Return the solutions, with the number and the terms that each is for. used: gets the way that was taken."""
        if not self._joined:
            return executor.match(self._wanted, given)
        started = memo.route(self._wanted, given.variables, given.length, dataset).plan
        free = memo.route(self._free, (), 1, dataset).plan
        if _work(started, given.length) <= _work(free, 1):
            used.add(Mechanism.ROWS_FIRST)
            return executor.match(self._wanted, given)
        used.add(Mechanism.ROWS_PROBED)
        parts = self._cut(free)
        found = executor.match(parts.first, BindingTable.unit())
        numbers = index.find(found.columns_of(self._joined), found.length)
        if self._is_whole:
            places = np.flatnonzero(numbers >= 0)
            rows = taken(numbers, places)
        else:
            places, rows = index.rows_of(numbers)
        others = tuple(variable for variable in given.variables if variable not in self._joined)
        own = (taken(column, rows) for column in given.columns_of(others))
        found = found.take(places)
        table = BindingTable((*others, *found.variables), (*own, *found.columns), found.length)
        return executor.match(parts.rest, table)

    def _cut(self, free: Plan) -> _Parts:
        """Cut the patterns behind the first step of a plan after which all terms of a row are bound."""
        patterns = [step.pattern for step in free.steps]
        ends = range(1, len(patterns) + 1)
        count = next(end for end in ends if possible_variables(Bgp(tuple(patterns[:end]))).issuperset(self._joined))
        key = tuple(map(id, patterns[:count]))
        known = self._parts.get(key)
        if known is None:
            first, rest = Bgp(tuple(patterns[:count])), Bgp(tuple(patterns[count:]))
            bound = possible_variables(first)
            early = tuple(one for one in self._wanted.filters if expression_variables(one) <= bound)
            late = tuple(one for one in self._wanted.filters if one not in early)
            known = self._parts[key] = _Parts(FilteredBgp(first, early), FilteredBgp(rest, late))
        return known


class BoundQuery:
    """A query for rows of arguments, whichever they are. It may be used by several threads."""

    def __init__(self, query: Query, variables: Sequence[Variable]) -> None:
        """variables: of the query's WHERE clause, those that the rows bind."""
        self.hidden = {variable: Variable(f"{ARGUMENT_PREFIX}{at}") for at, variable in enumerate(variables)}
        self.query = bind(query, self.hidden) if variables else query
        """With hidden variables in the place of the given ones."""

    @cached_property
    def cores(self) -> list[_Core]:
        """The cores of the query."""
        return [_Core(node, tuple(self.hidden.values())) for node in _cores_of(self.query.pattern)]

    @cached_property
    def needs_all(self) -> bool:
        """Whether each row may have a solution, whatever is found for the cores."""
        return not self.cores or _has_one_group(where_clause(self.query))

    @cached_property
    def has_rest(self) -> bool:
        """Whether the query has a solution also for a row without a solution of its WHERE clause: the same for each."""
        return not self.needs_all and _has_one_group(self.query.pattern)

    @property
    def arguments(self) -> tuple[Variable, ...]:
        """The number of a row, and its terms; nothing without given terms."""
        return (NUMBER, *self.hidden.values()) if self.hidden else ()

    def given(self, texts: Sequence[str], terms: TermSpace) -> BindingTable:
        """Return one row of arguments as the executor is given it. texts: canonical, in the order of the variables."""
        ids = terms.ids(texts)
        return BindingTable(tuple(self.hidden.values()), tuple(ids[at : at + 1] for at in range(len(ids))), 1)


class ArgumentRows:
    """The rows of arguments of one query. Called by one thread at a time."""

    def __init__(
        self, bound: BoundQuery, columns: Sequence[Int64Array], length: int, numbers: Int64Array | None = None
    ) -> None:
        """columns: the ids of the terms, of `length` rows, in the order of the variables of `bound`.
        numbers : int64[length], rising, of an answer's first column: by default the ids of the integers from 0 on."""
        self.length = length
        self.variables = (ARGUMENT, *bound.query.variables)
        self.bound = bound
        self._rows = RowIndex(columns, length)
        distinct = tuple(column[self._rows.firsts] for column in columns)
        places = np.arange(self._rows.count, dtype=np.int64)
        self._given = BindingTable((NUMBER, *bound.hidden.values()), (places, *distinct), self._rows.count)
        self._ids = integer_ids(np.arange(length, dtype=np.int64)) if numbers is None else numbers
        self._indexes = [core.index(self._given, self._rows) for core in bound.cores]

    @property
    def size_bytes(self) -> int:
        """Bytes of the table and of its indexes, without the texts of its terms."""
        indexes = {id(index): index.size_bytes for index in (self._rows, *self._indexes)}
        return self._given.size_bytes + sum(indexes.values()) + self._ids.nbytes

    def answer(
        self, dataset: Dataset, terms: QueryTerms, limits: Limits, memo: PlanMemo, used: Used | None = None
    ) -> Answer:
        """Return the answers for all rows: the number of the row, then the columns of the query's variables; ordered by
        number, the rows of one number as the query orders them. rows_max counts for each row. used: gets the ways in
        which the solutions of cores were found.

        Raises QueryTimeout, BudgetExceeded."""
        if not self.length:
            return Answer((np.empty(0, np.int64),) * (1 + len(self.bound.query.variables)), 0)
        ways = set() if used is None else used
        bound, limits.rows_max = self.bound, min(limits.rows_max * self.length, _ROWS_MAX)

        def run(explored: Sequence[Explored], given: BindingTable) -> BindingTable:
            executor = Executor(
                dataset, terms, limits, memo, in_order=True, explored=explored, given=given, number=NUMBER
            )
            names = [NUMBER, *(Variable(name) for name in bound.query.variables)]
            return operators.project(executor.run(bound.query.pattern), names)

        with within(limits):
            executor = Executor(dataset, terms, limits, memo, in_order=True)
            found = [
                (core.node, core.explored(executor, dataset, memo, self._given, index, ways))
                for core, index in zip(bound.cores, self._indexes, strict=True)
            ]
            if bound.needs_all:
                return self.expanded(run(found, self._given))
            has_some = np.zeros(self._rows.count, np.bool_)
            for _, table in found:
                has_some[table.column(NUMBER)] = True
            whole = run(found, self._given.take(np.flatnonzero(has_some)))
            others = np.flatnonzero(~has_some)
            if bound.has_rest and len(others):
                nothing = [(node, operators.slice_rows(table, 0, 0)) for node, table in found]
                one = run(nothing, self._given.take(others[:1]))
                whole = operators.union(whole, _repeated(one, others, limits), limits.rows_max)
            return self.expanded(whole)

    @cached_property
    def table(self) -> Int64Array:
        """int64[n, 1 + terms]: the numbers and the terms of the distinct rows."""
        return np.ascontiguousarray(np.stack(self._given.columns, axis=1))

    def count_expanded(self, table: BindingTable) -> int:
        """Return how many rows `expanded` makes of a table."""
        return self._rows.count_of(table.column(NUMBER))

    def expanded(self, table: BindingTable) -> Answer:
        """Give the solutions of each number to all rows that have it, in the order of the rows."""
        places, rows = self._rows.rows_of(table.column(NUMBER))
        if (rows[1:] < rows[:-1]).any():
            order = stable_order([rows])
            places, rows = taken(places, order), taken(rows, order)
        columns = (taken(column, places) for column in table.columns[1:])
        return Answer((taken(self._ids, rows), *columns), len(rows))


def _repeated(table: BindingTable, numbers: Int64Array, limits: Limits) -> BindingTable:
    """Return the solutions of one number for each of these. The first column of the table is the number."""
    limits.hold(table.size_bytes * len(numbers))
    columns = (np.tile(column, len(numbers)) for column in table.columns[1:])
    repeated = np.repeat(numbers, table.length)
    return BindingTable(table.variables, (repeated, *columns), len(repeated))


def _work(plan: Plan, rows: int) -> float:
    """Return how many rows a plan looks at, by its estimates."""
    return rows + sum(step.estimated_rows for step in plan.steps)


def _cores_of(node: Node) -> list[Node]:
    """Return triple patterns, with the filters right above them, such that a node has no solution where none of them
    has one; nothing if no such parts are found."""
    filtered = FilteredBgp.of(node)
    if filtered is not None:
        return [node] if filtered.bgp.patterns else []
    match node:
        case Join():
            operands = join_operands(node)
            cores = [[one] for one in operands if (core := FilteredBgp.of(one)) is not None and core.bgp.patterns]
            cores += [found for one in operands if not is_explorable(one) and (found := _cores_of(one))]
            return max(cores, key=lambda nodes: min(map(_hidden_count, nodes)), default=[])
        case Union():
            left, right = _cores_of(node.left), _cores_of(node.right)
            return [*left, *right] if left and right else []
        case LeftJoin() | Minus():
            return _cores_of(node.left)
        case PerGraph() | Values() | GraphNames() | Service() | PathPattern() | TripleParts() | Bgp():
            return []
        case _:
            return _cores_of(node.pattern)


def _hidden_count(core: Node) -> int:
    return sum(variable.is_argument for variable in possible_variables(core))


def _has_one_group(node: Node) -> bool:
    """Whether a part groups without keys, so that it has a solution where its pattern has none."""
    return (isinstance(node, Group) and not node.keys) or any(map(_has_one_group, children(node)))
