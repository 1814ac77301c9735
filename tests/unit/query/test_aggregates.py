"""Aggregates: empty groups, errors, promotion, and answers that do not depend on the order of rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Aggregate, Call, Expression
from wukongs.csparql.terms import XSD, Term, Variable, literal
from wukongs.query.operators.aggregates import group

pytestmark = pytest.mark.nojit

X, Y, R = Variable("x"), Variable("y"), Variable("r")
NAMES = ["COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT"]


def typed(lexical: str, name: str) -> str:
    return literal(lexical, XSD + name).text


def integers(*numbers: int) -> list[str]:
    return [typed(str(number), "integer") for number in numbers]


def of_all(name: str, texts: Sequence[str | None], is_distinct: bool = False, argument: Expression = X) -> str | None:
    """Aggregate one column as a single group."""
    space = ListTermSpace()
    table = space.table("x", [(text,) for text in texts])
    grouped = group(table, (), [(R, Aggregate(name, argument, is_distinct, ", "))], space)
    assert (grouped.variables, grouped.length) == ((R,), 1)
    return space.rows(grouped)[0][0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("COUNT", typed("0", "integer")),
        ("SUM", typed("0", "integer")),
        ("AVG", typed("0", "integer")),
        ("MIN", None),
        ("MAX", None),
        ("SAMPLE", None),
        ("GROUP_CONCAT", '""'),
    ],
)
def test_no_rows(name: str, expected: str | None) -> None:
    assert of_all(name, []) == expected


def test_no_rows_with_keys_are_no_groups() -> None:
    space = ListTermSpace()
    grouped = group(space.table("x y", []), (Y,), [(R, Aggregate("COUNT", None))], space)
    assert (grouped.variables, grouped.length) == ((Y, R), 0)


@pytest.mark.parametrize(
    ("texts", "total", "average"),
    [
        (integers(1, 2, 4), typed("7", "integer"), typed("2." + "3" * 27, "decimal")),
        (integers(2**63, 2**63), typed(str(2**64), "integer"), typed(str(2**63), "decimal")),
        ([typed("0.1", "decimal")] * 10, typed("1", "decimal"), typed("0.1", "decimal")),
        ([*integers(1), typed("0.5", "decimal")], typed("1.5", "decimal"), typed("0.75", "decimal")),
        ([*integers(1), typed("0.5", "float")], typed("1.5E0", "float"), typed("7.5E-1", "float")),
        ([typed("0.1", "double")] * 10, typed("1.0E0", "double"), typed("1.0E-1", "double")),
        ([typed("0.5", "float"), typed("0.25", "double")], typed("7.5E-1", "double"), typed("3.75E-1", "double")),
        ([typed("INF", "double"), *integers(1)], typed("INF", "double"), typed("INF", "double")),
        ([typed("INF", "double"), typed("-INF", "double")], typed("NaN", "double"), typed("NaN", "double")),
        ([typed("1e308", "double")] * 2, typed("INF", "double"), typed("INF", "double")),
    ],
)
def test_sum_and_avg(texts: list[str], total: str, average: str) -> None:
    assert of_all("SUM", texts) == total
    assert of_all("AVG", texts) == average


def test_sums_of_doubles_do_not_depend_on_the_order_of_rows() -> None:
    texts = [typed(lexical, "double") for lexical in ("1e16", "1", "-1e16", "1e-3", "3")]
    assert {of_all("SUM", order) for order in itertools.permutations(texts)} == {typed("4.001E0", "double")}


def test_distinct_values() -> None:
    texts = [*integers(1, 1, 2), typed("01", "integer"), typed("1.0", "decimal")]
    assert of_all("COUNT", texts, is_distinct=True) == typed("4", "integer")
    assert of_all("SUM", texts, is_distinct=True) == typed("5", "decimal")
    assert of_all("GROUP_CONCAT", texts, is_distinct=True) == '"01, 1, 1.0, 2"'


def test_rows_with_an_error() -> None:
    texts = [*integers(3), None, *integers(1)]
    assert [of_all(name, texts) for name in NAMES] == [
        typed("2", "integer"), *[None] * 4, *integers(1), None,
    ]  # fmt: skip
    assert [of_all(name, [*integers(3), "_:b"]) for name in ("SUM", "AVG", "GROUP_CONCAT")] == [None] * 3
    protected = Call("COALESCE", (X, Term(typed("0", "integer"))))
    assert of_all("SUM", texts, argument=protected) == typed("4", "integer")
    assert of_all("COUNT", ['"a"', *integers(1)], argument=Call("+", (X, X))) == typed("1", "integer")


def test_extremes_follow_the_order_of_order_by() -> None:
    texts = ['"b"', *integers(10, 9), "<http://e/z>", typed("9.5", "decimal"), "_:b", '"a"']
    for order in (texts, texts[::-1]):
        assert of_all("MIN", order) == "_:b"
        assert of_all("MAX", order) == '"b"'
    assert of_all("MIN", texts[1:5]) == "<http://e/z>"
    assert of_all("MAX", texts[1:5]) == typed("10", "integer")
    same = [typed("1.0", "decimal"), *integers(1), typed("1", "double")]
    assert {of_all("MIN", order) for order in itertools.permutations(same)} == {min(same)}
    assert {of_all("MAX", order) for order in itertools.permutations(same)} == {min(same)}


def test_group_concat_joins_in_the_order_of_order_by() -> None:
    texts = ['"b"', *integers(10, 9), "<http://e/a>", '"a"@en']
    joined = {of_all("GROUP_CONCAT", order) for order in itertools.permutations(texts)}
    assert joined == {'"http://e/a, 9, 10, a, b"'}


def test_groups_with_unbound_keys() -> None:
    space = ListTermSpace()
    rows = [("<a>", *integers(1)), (None, *integers(2)), ("<a>", None), (None, *integers(5))]
    aggregates = [
        (R, Aggregate("COUNT", X)),
        (Variable("s"), Aggregate("SUM", X)),
        (Variable("n"), Aggregate("COUNT", None)),
    ]
    grouped = group(space.table("y x", rows), (Y,), aggregates, space)
    assert space.rows(grouped) == [
        ("<a>", *integers(1), None, *integers(2)),
        (None, *integers(2), *integers(7), *integers(2)),
    ]


def test_count_of_distinct_solutions_leaves_blank_nodes_of_the_pattern_out() -> None:
    space = ListTermSpace()
    table = space.table(["x", ".b0"], [("<a>", "<1>"), ("<a>", "<2>"), ("<b>", "<1>")])
    grouped = group(table, (), [(R, Aggregate("COUNT", None, True)), (Y, Aggregate("COUNT", None))], space)
    assert space.rows(grouped) == [(*integers(2), *integers(3))]
