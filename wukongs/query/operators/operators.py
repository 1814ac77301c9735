"""The operators of the algebra over binding tables (SPARQL 1.1, section 18.5), by columns.

* Tables are bags; an operator promises no order of rows unless it says so, but the same input gives the same order.
* A variable that is unbound in a row is compatible with anything. Joins therefore sort rows into classes by which
  shared variables they bind: between two classes only the variables that both bind decide; the others cannot clash.
* join, left_join and union count the rows that they would hold before they allocate them; more than rows_max is a
  BudgetExceeded, not a dead process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.algebra import Expression
from wukongs.csparql.terms import Variable
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.expressions.expressions import holds
from wukongs.query.expressions.scalar_evaluator import variables_of
from wukongs.query.limits import current
from wukongs.query.rows import (
    count_pairs,
    fill_pairs,
    find_rows,
    group_members,
    key_matrix,
    number_rows,
    numbered,
    places_of,
    put_together,
    stable_order,
    taken,
)
from wukongs.store.dtypes import UNBOUND, Int64Array

ROWS_MAX = 50_000_000
BLOCK_ROWS = 1 << 16
"""So many pairs of a product, or a few more, are filtered together."""


def join(
    left: BindingTable,
    right: BindingTable,
    rows_max: int = ROWS_MAX,
    keep: Callable[[BindingTable], BindingTable] | None = None,
) -> BindingTable:
    """Merge every pair of compatible rows. keep: a filter; a product is filtered block by block.

    Raises
    ------
    BudgetExceeded      More than rows_max pairs, of a product more than rows_max that the filter keeps."""
    if keep is not None and not set(left.variables) & set(right.variables) and left.length * right.length > BLOCK_ROWS:
        return _filtered_product(left, right, rows_max, keep)
    left_rows, right_rows = _compatible_pairs(left, right, _RowBudget("join", rows_max))
    table = _merged(left, right, left_rows, right_rows, _all_variables(left, right))
    return table if keep is None else keep(table)


def _filtered_product(
    left: BindingTable, right: BindingTable, rows_max: int, keep: Callable[[BindingTable], BindingTable]
) -> BindingTable:
    """Pair some rows of left with all of right at a time, and hold what the filter keeps."""
    limits, mark = current(), current().mark()
    variables, budget, size = _all_variables(left, right), _RowBudget("join", rows_max), 0
    kept: list[BindingTable] = []
    step = max(1, BLOCK_ROWS // max(1, right.length))
    for start in range(0, left.length, step):
        limits.check()
        rows = np.arange(start, min(start + step, left.length))
        left_rows, right_rows = np.repeat(rows, right.length), np.tile(np.arange(right.length), len(rows))
        kept.append(keep(_merged(left, right, left_rows, right_rows, variables)))
        budget.add(kept[-1].length)
        size += kept[-1].size_bytes
        limits.back_to(mark, size)
    columns = zip(*(table.columns for table in kept), strict=True)
    return BindingTable(variables, tuple(map(put_together, columns)), budget.rows)


def join_in_pieces(left: BindingTable, right: BindingTable, rows: int) -> Iterator[BindingTable]:
    """Do the same as join, and yield about so many rows at a time, one table at least; right is hashed. One row of left
    is never cut.

    A piece is held until the next one is asked for."""
    limits, variables = current(), _all_variables(left, right)
    shared = [variable for variable in left.variables if variable in right.variables]
    is_empty = True
    for one, other in itertools.product(_classes(left, shared), _classes(right, shared)):
        agreeing = sorted(one.bound & other.bound, key=lambda variable: variable.name)
        start = limits.mark()
        keys = other.keys(agreeing)
        numbers, firsts, slots = number_rows(keys)
        offsets, members = group_members(numbers, len(firsts))
        found = find_rows(keys, firsts, slots, one.keys(agreeing))
        limits.hold(24 * len(found))
        ends = np.cumsum(np.where(found >= 0, offsets[found + 1] - offsets[found], 0))
        setup, at = limits.mark() - start, 0
        while at < len(found):
            limits.check()
            mark, before = limits.mark(), int(ends[at - 1]) if at else 0
            stop = max(int(np.searchsorted(ends, before + rows, "right")), at + 1)
            pairs = fill_pairs(offsets, members, found[at:stop], int(ends[stop - 1]) - before)
            left_rows, right_rows = one.numbers(pairs[0] + at), other.numbers(pairs[1])
            table, at = _merged(left, right, left_rows, right_rows, variables), stop
            if table.length:
                is_empty, cost = False, limits.mark() - mark
                yield table
                limits.give_back(cost)
        limits.give_back(setup)
    if is_empty:
        yield BindingTable.empty(variables)


def left_join(
    left: BindingTable,
    right: BindingTable,
    condition: Expression | None,
    terms: TermSpace,
    rows_max: int = ROWS_MAX,
) -> BindingTable:
    """Merge compatible rows for which the condition holds; keep each left row that finds none. Left rows stay in order.

    Raises
    ------
    BudgetExceeded      More than rows_max compatible pairs, whatever the condition says."""
    left_rows, right_rows = _compatible_pairs(left, right, _RowBudget("OPTIONAL", rows_max))
    variables = _all_variables(left, right)
    if condition is not None:
        mentioned = variables_of(condition)
        needed = [variable for variable in variables if variable in mentioned]
        chosen = holds(condition, _merged(left, right, left_rows, right_rows, needed), terms)
        pairs = places_of(chosen)
        left_rows, right_rows = taken(left_rows, pairs), taken(right_rows, pairs)
    is_alone = np.ones(left.length, np.bool_)
    is_alone[left_rows] = False
    alone = places_of(is_alone)
    rows = _concatenated(_merged(left, right, left_rows, right_rows, variables), left.take(alone))
    return rows.take(stable_order([put_together([left_rows, alone])]))


def union(left: BindingTable, right: BindingTable, rows_max: int = ROWS_MAX) -> BindingTable:
    """Put the rows of right after those of left; a variable that one side does not have is unbound there.

    Raises
    ------
    BudgetExceeded      More than rows_max rows."""
    _RowBudget("UNION", rows_max).add(left.length + right.length)
    return _concatenated(left, right)


def filter_rows(expression: Expression, table: BindingTable, terms: TermSpace) -> BindingTable:
    """Keep the rows in which the expression holds, in order; an error does not hold."""
    return table.take(places_of(holds(expression, table, terms)))


def minus(left: BindingTable, right: BindingTable, given: Set[Variable] = frozenset()) -> BindingTable:
    """Drop the rows of left that are compatible with a row of right and bind a variable that this one binds, too.

    given : variables that must agree like all others, but do not count as shared (`counted`)."""
    shared = [variable for variable in left.variables if variable in right.variables]
    kept = np.ones(left.length, np.bool_)
    for one, other in itertools.product(_classes(left, shared), _classes(right, shared)):
        variables = sorted(one.bound & other.bound, key=lambda variable: variable.name)
        if counted(variables, given):
            keys = other.keys(variables)
            _, firsts, slots = number_rows(keys)
            found = find_rows(keys, firsts, slots, one.keys(variables))
            kept[one.numbers(places_of(found >= 0))] = False
    return left.take(places_of(kept))


def counted(variables: Sequence[Variable], given: Set[Variable]) -> list[Variable]:
    """Return the variables that MINUS counts as part of a solution: not those given from outside, and neither blank
    nodes nor the hidden variable of a GRAPH block."""
    return [variable for variable in variables if not variable.is_blank and variable not in given]


def by_bound(table: BindingTable, variables: Sequence[Variable]) -> Iterator[BindingTable]:
    """Split rows by which of these variables they leave unbound, and leave these columns out. At least one table."""
    unbound = [table.column(variable) == UNBOUND for variable in variables]
    if not any(mask.any() for mask in unbound):
        yield table
        return
    classes, firsts = numbered([mask.astype(np.int64) for mask in unbound], table.length)
    for number, first in enumerate(firsts.tolist()):
        rows = table.take(places_of(classes == number))
        dropped = {variable for variable, mask in zip(variables, unbound, strict=True) if mask[first]}
        yield project(rows, [variable for variable in rows.variables if variable not in dropped])


def with_column(table: BindingTable, variable: Variable, column: Int64Array) -> BindingTable:
    """Bind a new variable to a column of ids."""
    assert variable not in table.variables, f"{variable} is bound already in {table.variables}"
    return BindingTable((*table.variables, variable), (*table.columns, column), table.length)


def project(table: BindingTable, variables: Sequence[Variable]) -> BindingTable:
    """Keep these variables, in this order; one that the table does not have is unbound everywhere."""
    variables = tuple(variables)
    if variables == table.variables:
        return table
    return BindingTable(variables, table.columns_of(variables), table.length)


def beside(left: BindingTable, found: BindingTable, number: Variable) -> BindingTable:
    """Put the other columns of left beside those of found. number: the column of found that names the row of left; the
    rows are in order, none left out."""
    own = dict(zip(found.variables, found.columns, strict=True))
    rows = own.pop(number)
    is_once = found.length == left.length  # each row of left
    columns = []
    for variable, column in zip(left.variables, left.columns, strict=True):
        of_found = own.pop(variable, None)
        if of_found is None:
            of_found = column if is_once else taken(column, rows)
        columns.append(of_found)
    return BindingTable((*left.variables, *own), (*columns, *own.values()), found.length)


def distinct(table: BindingTable) -> BindingTable:
    """Keep the first of equal rows, in order."""
    _, firsts = numbered(table.columns, table.length)
    return table.take(firsts)


def slice_rows(table: BindingTable, offset: int, limit: int | None) -> BindingTable:
    """Keep the rows from offset on, limit at most."""
    stop = table.length if limit is None else min(table.length, offset + limit)
    start = min(offset, stop)
    columns = tuple(column[start:stop] for column in table.columns)
    if 2 * (stop - start) < table.length:
        columns = tuple(column.copy() for column in columns)  # a view would keep the whole table
    return BindingTable(table.variables, columns, stop - start)


def slice_each(table: BindingTable, number: Variable, offset: int, limit: int | None) -> BindingTable:
    """Do the same as slice_rows for the rows of each number apart, which keep their order."""
    order = stable_order([table.column(number)])
    numbers = taken(table.column(number), order)
    places = np.arange(len(order), dtype=np.int64)
    is_first = np.ones(len(order), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    ranks = places - np.maximum.accumulate(np.where(is_first, places, 0))
    is_kept = ranks >= offset
    if limit is not None:
        is_kept &= ranks < offset + limit
    return table.take(order[is_kept])


def _all_variables(left: BindingTable, right: BindingTable) -> tuple[Variable, ...]:
    return tuple(dict.fromkeys((*left.variables, *right.variables)))


def _concatenated(left: BindingTable, right: BindingTable) -> BindingTable:
    variables = _all_variables(left, right)
    pairs = zip(left.columns_of(variables), right.columns_of(variables), strict=True)
    return BindingTable(variables, tuple(put_together(pair) for pair in pairs), left.length + right.length)


# --- pairs of compatible rows -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _RowBudget:
    """The rows that an operator is about to allocate, and how many it may."""

    operator: str
    rows_max: int
    rows: int = 0

    def add(self, rows: int) -> None:
        """Count rows before they are allocated.

        Raises
        ------
        BudgetExceeded      They are more than rows_max together with those before."""
        self.rows += rows
        if self.rows > self.rows_max:
            raise BudgetExceeded(
                f"{self.operator} would hold {self.rows} rows or more, the limit is rows_max = {self.rows_max}. "
                "Let its two sides share a variable that both bind, filter each side first, or raise rows_max"
            )


@dataclass(frozen=True, slots=True)
class _RowClass:
    """The rows of a table that bind the same shared variables. rows None: all rows."""

    table: BindingTable
    bound: frozenset[Variable]
    rows: Int64Array | None

    def keys(self, variables: Sequence[Variable]) -> Int64Array:
        columns = [self.table.column(variable) for variable in variables]
        if self.rows is None:
            return key_matrix(columns, self.table.length)
        return key_matrix([taken(column, self.rows) for column in columns], len(self.rows))

    def numbers(self, places: Int64Array) -> Int64Array:
        """Return the row numbers in the table of places in this class."""
        return places if self.rows is None else taken(self.rows, places)


def _compatible_pairs(left: BindingTable, right: BindingTable, budget: _RowBudget) -> tuple[Int64Array, Int64Array]:
    """Find all pairs of compatible rows: (left rows, right rows)."""
    shared = [variable for variable in left.variables if variable in right.variables]
    classes = itertools.product(_classes(left, shared), _classes(right, shared))
    pairs = [_equal_pairs(one, other, budget) for one, other in classes]
    if len(pairs) == 1:
        return pairs[0]
    none = np.empty(0, np.int64)
    return put_together([none, *(rows for rows, _ in pairs)]), put_together([none, *(rows for _, rows in pairs)])


def _classes(table: BindingTable, shared: Sequence[Variable]) -> list[_RowClass]:
    partly = [variable for variable in shared if (table.column(variable) == UNBOUND).any()]
    always = frozenset(shared) - frozenset(partly)
    if not partly:
        return [_RowClass(table, always, None)]
    patterns = [(table.column(variable) != UNBOUND).astype(np.int64) for variable in partly]
    numbers, firsts = numbered(patterns, table.length)
    offsets, members = group_members(numbers, len(firsts))
    classes: list[_RowClass] = []
    for number, first in enumerate(firsts.tolist()):
        bound = {variable for variable, pattern in zip(partly, patterns, strict=True) if pattern[first]}
        classes.append(_RowClass(table, always | bound, members[offsets[number] : offsets[number + 1]]))
    return classes


def _equal_pairs(left: _RowClass, right: _RowClass, budget: _RowBudget) -> tuple[Int64Array, Int64Array]:
    """Pair the rows of two classes that agree on the variables that both bind. The smaller class is hashed, the larger
    looks up."""
    variables = sorted(left.bound & right.bound, key=lambda variable: variable.name)
    left_keys, right_keys = left.keys(variables), right.keys(variables)
    if left_keys.shape[1] < right_keys.shape[1]:
        right_places, left_places = _look_up(left_keys, right_keys, budget)
    else:
        left_places, right_places = _look_up(right_keys, left_keys, budget)
    return left.numbers(left_places), right.numbers(right_places)


def _look_up(hashed: Int64Array, lookup: Int64Array, budget: _RowBudget) -> tuple[Int64Array, Int64Array]:
    """Pair equal columns of two key matrices: (places in lookup, places in hashed)."""
    numbers, firsts, slots = number_rows(hashed)
    offsets, members = group_members(numbers, len(firsts))
    found = find_rows(hashed, firsts, slots, lookup)
    pair_count = count_pairs(offsets, found)
    budget.add(pair_count)
    return fill_pairs(offsets, members, found, pair_count)


def _merged(
    left: BindingTable,
    right: BindingTable,
    left_rows: Int64Array,
    right_rows: Int64Array,
    variables: Sequence[Variable],
) -> BindingTable:
    """Merge compatible pairs of rows, for these variables."""
    columns: list[Int64Array] = []
    of_left = dict(zip(left.variables, left.columns, strict=True))
    of_right = dict(zip(right.variables, right.columns, strict=True))
    for variable in variables:
        mine, other = of_left.get(variable), of_right.get(variable)
        if other is None:
            columns.append(taken(of_left[variable], left_rows))
            continue
        if mine is None:
            columns.append(taken(other, right_rows))
            continue
        own = taken(mine, left_rows)
        current().hold(8 * len(own))
        columns.append(np.where(own == UNBOUND, taken(other, right_rows), own))
    return BindingTable(tuple(variables), tuple(columns), len(left_rows))
