"""InPieces: evaluates what finds no memory as a whole: some rows at a time feed the next operator.

The executor tries the usual way first, which is faster. If that ends for want of bytes, the operator is evaluated here:
the pieces of its pattern are sorted, made distinct, grouped or gathered by temporary files (operators/external.py), and
its result is a table in files. Work is done within `work_bytes`, which are reserved before: a sixteenth of the budget.
So several such queries run beside each other, and the others wait, holding nothing.

Triple patterns run in pieces, joins by pieces of one side, and filters, BIND, projections, OPTIONAL, MINUS and UNION
row by row. All other operators below are evaluated as a whole: they may be in files already. A join with paths, or with
patterns that cannot run in pieces, is tried with fewer and fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from wukongs.csparql.algebra import (
    Aggregate,
    Distinct,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    Project,
    Service,
    TripleParts,
    Union,
)
from wukongs.csparql.exploration_order import explorable_operands, is_explorable
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import exists_patterns, is_ordered, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import join_operands
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.execution.exploration import Exploration
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.limits import Limits
from wukongs.query.operators import external, operators
from wukongs.query.operators.external import Pieces
from wukongs.query.operators.ordering import ALL_ROWS
from wukongs.store.dtypes import Int64Array

WORK_BYTES_LEAST, WORK_BYTES_MAX = 4 << 20, 128 << 20
_ROW_BYTES = 1024
"""So many bytes of `work_bytes` are for each row of a piece."""
_ROW_BY_ROW = (LeftJoin, Minus, Union, Filter, Extend, Join)
_ROWS_LEAST, _ROWS_MAX = 256, 1 << 16


class Evaluator(Protocol):
    """The executor, as far as it is asked from here."""

    def run(self, node: Node, rows_wanted: int | None = None) -> BindingTable: ...

    def resolved(
        self, expressions: Sequence[Expression], table: BindingTable
    ) -> tuple[Sequence[Expression], BindingTable]: ...

    def keep(self, condition: Expression, table: BindingTable) -> BindingTable: ...

    def extended(self, chain: Sequence[Extend], table: BindingTable) -> BindingTable: ...

    def left_joined(self, node: LeftJoin, left: BindingTable) -> BindingTable: ...


def work_bytes(limits: Limits) -> int:
    """Return how many bytes an evaluation in pieces reserves."""
    assert limits.budget is not None
    wanted = min(WORK_BYTES_MAX, max(WORK_BYTES_LEAST, limits.budget.bytes_max // 16))
    return wanted if limits.bytes_max is None else min(wanted, limits.bytes_max // 4)


def is_for(node: Node) -> bool:
    """Tell whether a node can be evaluated in pieces. Groups whose aggregates need all rows at once cannot."""
    match node:
        case OrderBy() | Distinct() | Join() | Filter() | Extend() | Project() | Union() | LeftJoin() | Minus():
            return True
        case Group(keys=keys, aggregates=aggregates):
            arguments = [one.argument for _, one in aggregates if one.argument is not None]
            return (bool(keys) or external.counts_and_bests(aggregates)) and not any(map(exists_patterns, arguments))
    return FilteredBgp.of(node) is not None


class InPieces:
    """One evaluation in pieces. size: work_bytes, which are reserved."""

    def __init__(
        self, evaluator: Evaluator, exploration: Exploration, terms: TermSpace, limits: Limits, size: int
    ) -> None:
        self._evaluator, self._exploration = evaluator, exploration
        self._terms, self._limits, self._size = terms, limits, size
        self._rows = max(_ROWS_LEAST, min(_ROWS_MAX, size // _ROW_BYTES))

    def run(self, node: Node, rows_wanted: int | None = None) -> BindingTable:
        """Return the solutions of a node, in files if they are many. rows_wanted: more rows are not needed. Raises
        BudgetExceeded."""
        terms, limits, size = self._terms, self._limits, self._size
        match node:
            case OrderBy(pattern=pattern, conditions=conditions):
                expressions = [expression for expression, _ in conditions]

                def keys_of(piece: BindingTable) -> list[Int64Array]:
                    resolved, seen = self._evaluator.resolved(expressions, piece)
                    return [evaluate(expression, seen, terms) for expression in resolved]

                descending = [is_descending for _, is_descending in conditions]
                pieces = self._pieces(pattern)
                return external.sorted_rows(pieces, keys_of, descending, terms, limits, size, rows_wanted)
            case Distinct(pattern=pattern):
                return external.distinct_rows(self._pieces(pattern), is_ordered(pattern), limits, size)
            case Group(pattern=pattern, keys=keys, aggregates=aggregates):
                return self._grouped(pattern, keys, aggregates)
        return external.gathered(self._pieces(node), limits)

    def _grouped(
        self, pattern: Node, keys: Sequence[Variable], aggregates: Sequence[tuple[Variable, Aggregate]]
    ) -> BindingTable:
        if external.counts_and_bests(aggregates):
            pieces = self._pieces(pattern)
            found = external.grouped_by_parts(pieces, keys, aggregates, self._terms, self._limits, self._size)
            if found is not None:
                return found
        return external.grouped(self._pieces(pattern), keys, aggregates, self._terms, self._limits, self._size)

    # --- pieces -------------------------------------------------------------------------------------------------------

    def _pieces(self, node: Node) -> Pieces:
        """Yield the solutions of a node, all pieces with the same columns: plans may have others for other rows."""
        variables = tuple(sorted(possible_variables(node), key=lambda variable: variable.name))
        for piece in self._made(node):
            yield operators.project(piece, variables)

    def _made(self, node: Node) -> Pieces:
        filtered = FilteredBgp.of(node)
        if filtered is not None:
            if self._can_stream(filtered):
                return self._exploration.match_in_pieces(filtered, BindingTable.unit(), self._rows)
            return self._cut(self._evaluator.run(node))
        match node:
            case Filter(condition=condition, pattern=pattern):
                return self._each(pattern, lambda piece: self._evaluator.keep(condition, piece))
            case Project(pattern=pattern, variables=variables):
                names = tuple(dict.fromkeys(variables))
                return self._each(pattern, lambda piece: operators.project(piece, names))
            case Extend():
                chain = [node]
                while isinstance(chain[-1].pattern, Extend):
                    chain.append(chain[-1].pattern)
                return self._each(chain[-1].pattern, lambda piece: self._evaluator.extended(chain, piece))
            case LeftJoin(left=left, right=right, condition=on):
                if is_explorable(right, possible_variables(left)):
                    return self._each(left, lambda piece: self._evaluator.left_joined(node, piece))
                if not isinstance(right, Service) and (on is None or not exists_patterns(on)):
                    other, terms, rows_max = self._evaluator.run(right), self._terms, self._limits.rows_max
                    return self._each(left, lambda piece: operators.left_join(piece, other, on, terms, rows_max))
            case Minus(left=left, right=right):
                taken = self._evaluator.run(right)
                return self._each(left, lambda piece: operators.minus(piece, taken))
            case Union(left=left, right=right):
                return self._union(left, right)
            case Join() if not any(isinstance(operand, Service) for operand in join_operands(node)):
                return self._join(node)
            case OrderBy():
                return self._cut(self._evaluator.run(node, ALL_ROWS))  # what is above may leave some of the rows out
        return self._cut(self._evaluator.run(node))

    def _cut(self, table: BindingTable) -> Pieces:
        for start in range(0, max(1, table.length), self._rows):
            columns = tuple(column[start : start + self._rows] for column in table.columns)
            yield BindingTable(table.variables, columns, min(self._rows, table.length - start))

    def _each(self, pattern: Node, make: Callable[[BindingTable], BindingTable]) -> Pieces:
        limits = self._limits
        for piece in self._pieces(pattern):
            mark = limits.mark()
            made = make(piece)
            cost = limits.mark() - mark
            yield made
            limits.give_back(cost)

    def _union(self, left: Node, right: Node) -> Pieces:
        yield from self._pieces(left)
        yield from self._pieces(right)

    def _join(self, node: Join) -> Pieces:
        operands = join_operands(node)
        explored = tuple(explorable_operands(operands, ()))
        known = set(map(id, explored))
        sides = [operand for operand in operands if id(operand) not in known]
        if not sides:
            yield from self._explored(BindingTable.unit(), explored)
            return
        # One side is never whole: one that is long before anything makes it short, else the longest.
        long = next((side for side in sides if isinstance(side, _ROW_BY_ROW)), None)
        tables = sorted(
            (self._evaluator.run(side) for side in sides if side is not long), key=lambda table: table.length
        )
        pieces = self._cut(tables.pop()) if long is None else self._pieces(long)
        if tables:
            table = tables[0]
            for other in tables[1:]:
                table = operators.join(table, other, self._limits.rows_max)
            pieces = self._joined(pieces, table)
        for piece in pieces:
            yield from self._explored(piece, explored)

    def _joined(self, pieces: Pieces, table: BindingTable) -> Pieces:
        for piece in pieces:
            yield from operators.join_in_pieces(piece, table, self._rows)

    def _explored(self, table: BindingTable, operands: tuple[Node, ...]) -> Pieces:
        """Join a table with what can be explored: triple patterns in pieces, all else from so few rows at a time that
        the result fits."""
        if not operands or not table.length:
            yield table  # without rows, the columns do not matter
            return
        first, *others = self._exploration.ordered(operands, table)
        part: tuple[Node, ...] = (first,)
        rest = tuple(others)
        if any(isinstance(operand, TripleParts) for operand in operands):  # the order depends on what a row binds
            part, rest = operands, ()
        filtered = FilteredBgp.of(part[0])
        if filtered is not None and len(part) == 1 and self._can_stream(filtered):
            for found in self._exploration.match_in_pieces(filtered, table, self._rows):
                yield from self._explored(found, rest)
            return
        at, rows = 0, self._rows
        while at < table.length:
            columns = tuple(column[at : at + rows] for column in table.columns)
            some = BindingTable(table.variables, columns, min(rows, table.length - at))
            made, cost = self._tried(part, some)
            if made is None:
                rows = max(1, rows // 4)
                continue
            at += some.length
            yield from self._explored(made, rest)
            self._limits.give_back(cost)

    def _can_stream(self, wanted: FilteredBgp) -> bool:
        return bool(wanted.bgp.patterns) and self._exploration.dataset.completion is None

    def _tried(self, operands: tuple[Node, ...], some: BindingTable) -> tuple[BindingTable | None, int]:
        """Return the join and what it holds; None if it would take too much of work_bytes, and fewer rows can be
        tried."""
        limits, mark = self._limits, self._limits.mark()
        outer = limits.bytes_max
        if some.length > 1:
            limits.bytes_max = min(limits.held + self._size // 2, outer or limits.held + self._size)
        try:
            found = self._exploration.explore_all(operands, some)
        except BudgetExceeded:
            if not limits.lacks_bytes or some.length <= 1:
                raise
            found = None
        finally:
            limits.bytes_max = outer
        if found is None:
            limits.lacks_bytes = False
            limits.back_to(mark, 0)
        return found, limits.mark() - mark
