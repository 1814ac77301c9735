"""Operators over binding tables: the cases worth a name; tests/property/test_operators.py has the rest."""

from __future__ import annotations

import numpy as np
import pytest

from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Call
from wukongs.csparql.terms import XSD, Term, Variable, literal
from wukongs.errors import BudgetExceeded
from wukongs.query.binding_table import BindingTable
from wukongs.query.expressions.expressions import evaluate
from wukongs.query.operators.operators import (
    distinct,
    filter_rows,
    join,
    left_join,
    project,
    slice_each,
    slice_rows,
    union,
    with_column,
)

pytestmark = pytest.mark.nojit

X, Y, Z = Variable("x"), Variable("y"), Variable("z")


def integer(number: int) -> str:
    return literal(str(number), XSD + "integer").text


def test_join_on_shared_variables() -> None:
    space = ListTermSpace()
    left = space.table("x y", [("<a>", "<b>"), ("<a>", "<c>"), ("<d>", "<b>")])
    right = space.table("z y", [("<1>", "<b>"), ("<2>", "<b>"), ("<3>", "<e>")])
    joined = join(left, right)
    assert joined.variables == (X, Y, Z)
    expected = [("<a>", "<b>", "<1>"), ("<a>", "<b>", "<2>"), ("<d>", "<b>", "<1>"), ("<d>", "<b>", "<2>")]
    assert sorted(map(str, space.rows(joined))) == sorted(map(str, expected))


def test_an_unbound_variable_joins_with_anything_and_takes_its_value() -> None:
    space = ListTermSpace()
    left = space.table("x y", [("<a>", None), ("<b>", "<1>")])
    right = space.table("x y", [("<a>", "<2>"), (None, "<1>"), (None, None)])
    rows = {("<a>", "<2>"), ("<a>", "<1>"), ("<a>", None), ("<b>", "<1>")}
    joined = space.rows(join(left, right))
    assert set(joined) == rows
    assert sorted(joined.count(row) for row in rows) == [1, 1, 1, 2]


def test_the_unit_table_is_neutral_and_the_empty_one_absorbs() -> None:
    space = ListTermSpace()
    table = space.table("x", [("<a>",), ("<a>",), (None,)])
    assert space.rows(join(table, BindingTable.unit())) == space.rows(table)
    assert space.rows(join(BindingTable.unit(), table)) == space.rows(table)
    nothing = join(table, BindingTable.empty([Y]))
    assert (nothing.variables, nothing.length) == ((X, Y), 0)


def test_left_join_keeps_what_finds_no_partner_in_its_place() -> None:
    space = ListTermSpace()
    left = space.table("x y", [("<a>", integer(1)), ("<b>", integer(2)), ("<c>", integer(3)), ("<a>", integer(4))])
    right = space.table("x z", [("<a>", integer(9)), ("<a>", integer(3)), ("<c>", integer(1))])
    condition = Call("<", (Y, Z))
    rows = space.rows(left_join(left, right, condition, space))
    assert rows == [
        ("<a>", integer(1), integer(9)),
        ("<a>", integer(1), integer(3)),
        ("<b>", integer(2), None),
        ("<c>", integer(3), None),
        ("<a>", integer(4), integer(9)),
    ]


def test_a_condition_that_is_an_error_finds_no_partner() -> None:
    space = ListTermSpace()
    left, right = space.table("x", [("<a>",)]), space.table("x z", [("<a>", '"text"')])
    assert space.rows(left_join(left, right, Call("<", (Z, Term(integer(1)))), space)) == [("<a>", None)]


def test_column_project_and_slice() -> None:
    space = ListTermSpace()
    table = space.table("x y", [("<a>", integer(1)), ("<b>", '"no"'), ("<c>", integer(3)), ("<d>", None)])
    table = with_column(table, Z, evaluate(Call("+", (Y, Term(integer(1)))), table, space))
    assert space.column(table.column(Z)) == [integer(2), None, integer(4), None]
    large = filter_rows(Call(">", (Z, Term(integer(1)))), table, space)
    assert space.rows(project(large, [Z, Variable("w"), X])) == [(integer(2), None, "<a>"), (integer(4), None, "<c>")]
    assert space.rows(project(slice_rows(table, 1, 2), [X])) == [("<b>",), ("<c>",)]
    assert slice_rows(table, 9, 2).length == 0
    assert slice_rows(table, 3, None).length == 1


def test_the_rows_of_each_number_are_cut_apart() -> None:
    space = ListTermSpace()
    pairs = [("<b>", "<1>"), ("<a>", "<2>"), ("<b>", "<3>"), ("<b>", "<4>"), ("<a>", "<5>"), ("<c>", "<6>")]
    table = space.table("x y", pairs)
    for offset, limit in ((0, 1), (1, 1), (1, None), (0, 0), (5, 2)):
        stop = None if limit is None else offset + limit
        expected = [pair for name in "abc" for pair in [p for p in pairs if p[0] == f"<{name}>"][offset:stop]]
        assert sorted(space.rows(slice_each(table, X, offset, limit))) == sorted(expected)
    assert slice_each(table.take(np.empty(0, np.int64)), X, 0, 1).length == 0


def test_distinct_takes_unbound_for_a_value() -> None:
    space = ListTermSpace()
    table = space.table("x y", [(None, "<a>"), ("<b>", None), (None, "<a>"), ("<b>", None), (None, None)])
    assert space.rows(distinct(table)) == [(None, "<a>"), ("<b>", None), (None, None)]
    assert distinct(BindingTable((), (), 3)).length == 1
    assert distinct(BindingTable((), (), 0)).length == 0


def test_rows_are_counted_before_they_are_made() -> None:
    space = ListTermSpace()
    left = space.table("x", [(f"<{number}>",) for number in range(1000)])
    right = project(space.table("y", [(f"<{number}>",) for number in range(1000)]), [Y])
    advice = "Let its two sides share a variable that both bind, filter each side first, or raise rows_max"
    with pytest.raises(BudgetExceeded) as caught:
        join(left, right, rows_max=999_999)
    assert str(caught.value) == f"join would hold 1000000 rows or more, the limit is rows_max = 999999. {advice}"
    assert join(left, right, rows_max=1_000_000).length == 1_000_000
    with pytest.raises(BudgetExceeded) as caught:
        left_join(left, right, None, space, rows_max=5)
    assert str(caught.value) == f"OPTIONAL would hold 1000000 rows or more, the limit is rows_max = 5. {advice}"
    with pytest.raises(BudgetExceeded) as caught:
        union(left, right, rows_max=1999)
    assert str(caught.value) == f"UNION would hold 2000 rows or more, the limit is rows_max = 1999. {advice}"


def test_a_product_that_no_memory_could_hold_is_refused_at_once() -> None:
    space = ListTermSpace()
    row = space.table("x", [("<a>",)])
    wide = BindingTable((X,), (row.columns[0].repeat(200_000),), 200_000)
    other = BindingTable((Y,), wide.columns, 200_000)
    with pytest.raises(
        BudgetExceeded, match="join would hold 40000000000 rows or more, the limit is rows_max = 50000000"
    ):
        join(wide, other)
