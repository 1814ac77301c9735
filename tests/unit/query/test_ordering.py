"""ORDER BY over all kinds of terms, and canonical row order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Call
from wukongs.csparql.terms import XSD, Term, Variable, literal
from wukongs.query.operators.ordering import canonical_order, order_by, ranks_of
from wukongs.query.terms.value_operators import compare
from wukongs.query.terms.values import value_of

pytestmark = pytest.mark.nojit

X, Y = Variable("x"), Variable("y")


def typed(lexical: str, name: str) -> str:
    return literal(lexical, XSD + name).text


def ordered(texts: Sequence[str | None], is_descending: bool = False) -> list[str | None]:
    space = ListTermSpace()
    table = order_by(space.table("x", [(text,) for text in texts]), [(X, is_descending)], space)
    return space.column(table.column(X))


STRICTLY_INCREASING = [
    None,
    "_:s1",
    "_:s2",
    "<http://e/a>",
    "<http://e/b>",
    typed("NaN", "double"),
    typed("-INF", "double"),
    typed("-3", "integer"),
    typed("0.1", "decimal"),
    typed("0.1000000000000000000001", "decimal"),
    typed("7", "byte"),
    typed("9007199254740992", "integer"),
    typed("9007199254740993", "integer"),
    typed("1" + "0" * 30, "integer"),
    typed("INF", "float"),
    typed("2020-01-01T00:00:00+01:00", "dateTime"),
    typed("2020-01-01T00:00:00", "dateTime"),
    typed("2020-01-01", "date"),
    typed("12:00:00", "time"),
    typed("11:30:00-01:00", "time"),
    typed("---31", "gDay"),
    typed("2020", "gYear"),
    typed("2021Z", "gYear"),
    typed("-P1Y", "duration"),
    typed("P30D", "dayTimeDuration"),
    typed("P1M", "yearMonthDuration"),
    typed("P31D", "duration"),
    typed("false", "boolean"),
    typed("true", "boolean"),
    '""',
    '"a"',
    '"a"@de',
    '"a"@en',
    '"b"',
    '"\uffff"',
    '"\U0001f600"',
    '"y"^^<http://e/t>',
    '"z"^^<http://e/t>',
    typed("abc", "integer"),
]


def test_terms_of_all_kinds() -> None:
    shuffled = list(STRICTLY_INCREASING)
    random.Random(7).shuffle(shuffled)
    assert ordered(shuffled) == STRICTLY_INCREASING
    assert ordered(shuffled, is_descending=True) == STRICTLY_INCREASING[::-1]


def test_the_order_agrees_with_less_than() -> None:
    values = [None if text is None else value_of(text) for text in STRICTLY_INCREASING]
    for lower, upper in itertools.combinations(values, 2):
        if lower is not None and upper is not None:
            assert compare("<", upper, lower) is not True, (lower, upper)


def test_equal_values_keep_their_order_and_leave_it_to_the_next_condition() -> None:
    ones = [typed("1.0", "decimal"), typed("1", "integer"), typed("1", "double"), typed("01", "integer")]
    assert ordered([typed("2", "integer"), *ones]) == [*ones, typed("2", "integer")]
    assert ordered([*ones, typed("2", "integer")], is_descending=True) == [typed("2", "integer"), *ones]
    space = ListTermSpace()
    names = ['"d"', '"a"', '"c"', '"b"']
    table = order_by(space.table("x y", zip(ones, names, strict=True)), [(X, False), (Y, True)], space)
    assert space.column(table.column(Y)) == ['"d"', '"c"', '"b"', '"a"']


def test_a_decimal_and_the_double_that_it_is_promoted_to_are_equal() -> None:
    tenth, nearest = value_of(typed("0.1", "decimal")), value_of(typed("0.1", "double"))
    assert ranks_of([tenth, nearest]) == [1, 1]
    # The double's exact value lies between these two decimals, which are not equal to each other: no order keeps both.
    above = value_of(typed("0.10000000000000001", "decimal"))
    ranks = ranks_of([above, nearest, tenth])
    assert ranks == [2, 1, 1]


def test_order_by_an_expression() -> None:
    space = ListTermSpace()
    table = space.table("x", [(typed(str(number), "integer"),) for number in (3, -1, 2)] + [(None,), ('"a"',)])
    square = Call("*", (X, X))
    result = order_by(table, [(square, True)], space)
    assert space.column(result.column(X)) == [
        *(typed(str(number), "integer") for number in (3, 2, -1)), None, '"a"',
    ]  # fmt: skip
    assert order_by(table, [], space) is table
    assert space.rows(order_by(table, [(Term('"constant"'), False)], space)) == space.rows(table)


def test_canonical_order_goes_by_ids_column_by_column() -> None:
    space = ListTermSpace()
    space.ids(["<0>", "<1>", "<2>"])
    table = space.table("x y", [("<2>", "<0>"), ("<1>", "<2>"), ("<1>", None), ("<1>", "<0>"), (None, "<2>")])
    assert canonical_order(table).tolist() == [4, 2, 3, 1, 0]
    assert canonical_order(space.table("", [(), ()])).tolist() == [0, 1]
