"""The meaning of expressions: errors and unbound variables, promotion, equality of terms that are no numbers."""

from __future__ import annotations

import pytest

from tests.term_spaces import ListTermSpace
from wukongs.csparql.algebra import Call, Expression
from wukongs.csparql.terms import XSD, Term, Variable, literal
from wukongs.query.expressions.expressions import evaluate, holds

pytestmark = pytest.mark.nojit

X, Y = Variable("x"), Variable("y")


def typed(lexical: str, name: str) -> str:
    return literal(lexical, XSD + name).text


def integer(number: int) -> str:
    return typed(str(number), "integer")


def boolean(value: bool) -> str:
    return typed("true" if value else "false", "boolean")


TRUE, FALSE = Term(boolean(True)), Term(boolean(False))
ERROR = Call("+", (Term('"a"'), TRUE))


def value(expression: Expression, **row: str) -> str | None:
    """Evaluate in one row; variables without a value are not in the table."""
    space = ListTermSpace()
    return space.column(evaluate(expression, space.table(list(row), [list(row.values())]), space))[0]


def apply(op: str, *texts: str) -> str | None:
    """Apply an operator to constants, and to variables with these values: both have to agree."""
    names = "abcd"[: len(texts)]
    by_constants = value(Call(op, tuple(Term(text) for text in texts)))
    arguments = tuple(Variable(name) for name in names)
    by_variables = value(Call(op, arguments), **dict(zip(names, texts, strict=True)))
    assert by_constants == by_variables
    return by_constants


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("+", integer(1), integer(2), integer(3)),
        ("-", typed("1", "int"), typed("5", "byte"), integer(-4)),
        ("*", integer(2**40), integer(2**40), integer(2**80)),
        ("/", integer(5), integer(2), typed("2.5", "decimal")),
        ("/", integer(6), integer(3), typed("2", "decimal")),
        ("/", integer(1), integer(2**70), typed(format(1 / 2**70, ".70f").rstrip("0"), "decimal")),
        ("/", integer(1), integer(3), typed("0." + "3" * 28, "decimal")),
        ("/", integer(10**30), integer(7), typed(f"{10**30 // 7}.142857142857142857", "decimal")),
        ("/", integer(1), integer(0), None),
        ("/", typed("1.5", "decimal"), integer(0), None),
        ("/", typed("1", "double"), integer(0), typed("INF", "double")),
        ("/", typed("-1", "float"), integer(0), typed("-INF", "float")),
        ("/", typed("0", "double"), typed("0", "double"), typed("NaN", "double")),
        ("+", integer(1), typed("0.5", "decimal"), typed("1.5", "decimal")),
        ("+", typed("0.1", "decimal"), typed("0.2", "decimal"), typed("0.3", "decimal")),
        ("*", typed("0.1", "float"), typed("3", "decimal"), typed("3.0E-1", "float")),
        ("+", typed("0.1", "double"), typed("0.2", "decimal"), typed("3.0000000000000004E-1", "double")),
        ("+", typed("0.5", "float"), typed("1", "double"), typed("1.5E0", "double")),
        ("*", integer(0), integer(-1), integer(0)),
        ("*", typed("0", "double"), integer(-1), typed("-0.0E0", "double")),
        ("+", '"a"', integer(1), None),
        ("+", typed("abc", "integer"), integer(1), None),
        ("-", typed("2020-01-02", "date"), typed("2020-01-01", "date"), typed("P1D", "dayTimeDuration")),
        ("-", typed("2020-01-02", "date"), typed("2020-01-01T00:00:00", "dateTime"), None),
        ("+", typed("2020-01-02", "date"), typed("2020-01-01", "date"), None),
        ("-", typed("2020", "gYear"), typed("2019", "gYear"), None),
    ],
)
def test_arithmetic(op: str, left: str, right: str, expected: str | None) -> None:
    assert apply(op, left, right) == expected


def test_an_integer_zero_has_no_sign() -> None:
    zero = Call("*", (Variable("a"), Term(integer(0))))
    row = {"a": integer(-1)}
    assert value(Call("/", (Term(typed("1", "double")), zero)), **row) == typed("INF", "double")
    negative = Call("NEGATE", (zero,))
    assert value(Call("/", (Term(typed("1", "double")), negative)), **row) == typed("INF", "double")


def test_unary_minus() -> None:
    assert apply("NEGATE", typed("7", "byte")) == integer(-7)
    assert apply("NEGATE", typed("-2.50", "decimal")) == typed("2.5", "decimal")
    assert apply("NEGATE", '"7"') is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (integer(1), typed("01.0", "decimal"), True),
        (integer(2**53), integer(2**53 + 1), False),
        (typed("9007199254740992", "double"), integer(2**53 + 1), True),
        (typed("0.1", "decimal"), typed("0.1", "double"), True),
        (typed("0.1", "decimal"), typed("0.1", "float"), True),
        (typed("0.1", "float"), typed("0.1", "double"), False),
        (typed("NaN", "double"), typed("NaN", "double"), False),
        (typed("0.0", "double"), typed("-0.0", "double"), True),
        ('"a"', '"a"', True),
        ('"a"', '"b"', False),
        ('"a"', '"a"@en', False),
        ('"a"@en', '"a"@fr', False),
        ('"1"', integer(1), False),
        (typed("1", "boolean"), boolean(True), True),
        (boolean(True), integer(1), False),
        (typed("2020-01-01T00:00:00", "dateTime"), typed("2020-01-01T01:00:00+01:00", "dateTime"), True),
        (typed("2020-01-01Z", "date"), typed("2020-01-01-00:00", "date"), True),
        (typed("2020-01-01", "date"), typed("2020-01-01Z", "date"), None),
        (typed("2020-01-01", "date"), typed("2020-01-02Z", "date"), False),
        (typed("2020-01-01", "date"), typed("2020-01-02+14:00", "date"), None),
        (typed("12:00:00Z", "time"), typed("13:00:00+01:00", "time"), True),
        (typed("24:00:00", "time"), typed("00:00:00", "time"), True),
        (typed("P1Y", "duration"), typed("P12M", "yearMonthDuration"), True),
        (typed("P1D", "duration"), typed("PT24H", "dayTimeDuration"), True),
        (typed("P1M", "duration"), typed("P30D", "duration"), False),
        (typed("2020", "gYear"), typed("2020Z", "gYear"), True),
        (typed("2020", "gYear"), typed("2020-01", "gYearMonth"), False),
        (typed("--02-29", "gMonthDay"), typed("--03-01", "gMonthDay"), False),
        (typed("2020-01-01", "date"), typed("2020-01-01T00:00:00", "dateTime"), False),
        ("<http://e/a>", "<http://e/a>", True),
        ("<http://e/a>", "<http://e/b>", False),
        ("<http://e/a>", '"http://e/a"', False),
        ('"x"^^<http://e/t>', '"x"^^<http://e/t>', True),
        ('"x"^^<http://e/t>', '"y"^^<http://e/t>', None),
        ('"x"^^<http://e/t>', '"x"', None),
        ('"x"^^<http://e/t>', integer(1), None),
        ('"x"^^<http://e/t>', '"x"@en', False),
        ('"x"^^<http://e/t>', "<http://e/a>", False),
        (typed("abc", "integer"), typed("abc", "integer"), True),
        (typed("abc", "integer"), typed("abd", "integer"), None),
        (typed("abc", "integer"), integer(1), None),
    ],
)
def test_equality(left: str, right: str, expected: bool | None) -> None:
    result = None if expected is None else boolean(expected)
    opposite = None if expected is None else boolean(not expected)
    assert (apply("=", left, right), apply("=", right, left)) == (result, result)
    assert (apply("!=", left, right), apply("!=", right, left)) == (opposite, opposite)


@pytest.mark.parametrize(
    ("left", "right", "is_less"),
    [
        (integer(2), integer(10), True),
        (typed("0.1", "decimal"), typed("0.1000000000000000001", "decimal"), True),
        (integer(2**53), integer(2**53 + 1), True),
        (integer(1), typed("NaN", "double"), False),
        (typed("NaN", "double"), integer(1), False),
        ('"a"', '"ab"', True),
        ('"Z"', '"a"', True),
        ('"\uffff"', '"\U0001f600"', True),
        (boolean(False), boolean(True), True),
        (typed("2020-01-01T00:00:00+01:00", "dateTime"), typed("2020-01-01T00:00:00Z", "dateTime"), True),
        (typed("2020-01-01", "date"), typed("2020-01-02", "date"), True),
        (typed("2020-01-01", "date"), typed("2020-01-01Z", "date"), None),
        (typed("2020-01-01", "date"), typed("2020-01-02Z", "date"), True),
        (typed("08:00:00+09:00", "time"), typed("17:00:00-06:00", "time"), True),
        (typed("P1Y", "yearMonthDuration"), typed("P13M", "yearMonthDuration"), True),
        (typed("PT1H", "dayTimeDuration"), typed("PT3600.5S", "dayTimeDuration"), True),
        (typed("P1Y", "duration"), typed("P2Y", "duration"), None),
        (typed("P1Y", "yearMonthDuration"), typed("P1D", "dayTimeDuration"), None),
        (typed("2020", "gYear"), typed("2021", "gYear"), True),
        (typed("2020Z", "gYear"), typed("2020", "gYear"), False),
        (typed("-0002", "gYear"), typed("0000", "gYear"), True),
        (typed("2020-09", "gYearMonth"), typed("2020-10", "gYearMonth"), True),
        (typed("--09-30", "gMonthDay"), typed("--10-01", "gMonthDay"), True),
        (typed("--02", "gMonth"), typed("--01", "gMonth"), False),
        (typed("---02+14:00", "gDay"), typed("---02Z", "gDay"), True),
        (typed("2020", "gYear"), typed("2021-01", "gYearMonth"), None),
        ('"a"@en', '"b"@en', None),
        ("<http://e/a>", "<http://e/b>", None),
        (integer(1), '"2"', None),
        ('"x"^^<http://e/t>', '"x"^^<http://e/t>', None),
    ],
)
def test_less_than(left: str, right: str, is_less: bool | None) -> None:
    result = None if is_less is None else boolean(is_less)
    assert apply("<", left, right) == result
    assert apply(">", right, left) == result


def test_three_valued_connectives() -> None:
    names: dict[bool | None, Expression] = {True: TRUE, False: FALSE, None: ERROR}
    for left in names:
        for right in names:
            both = False if False in (left, right) else None if None in (left, right) else True
            either = True if True in (left, right) else None if None in (left, right) else False
            for op, expected in (("&&", both), ("||", either)):
                result = value(Call(op, (names[left], names[right])))
                assert result == (None if expected is None else boolean(expected)), (op, left, right)
    assert value(Call("!", (ERROR,))) is None
    assert value(Call("!", (FALSE,))) == boolean(True)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        (boolean(True), True),
        (typed("0", "boolean"), False),
        (integer(-1), True),
        (typed("0.00", "decimal"), False),
        (typed("NaN", "double"), False),
        (typed("0.1", "float"), True),
        ('""', False),
        ('"false"', True),
        ('"a"@en', None),
        ('""@en', None),
        (typed("abc", "integer"), None),
        (typed("yes", "boolean"), None),
        (typed("2020-01-01", "date"), None),
        ("<http://e/a>", None),
    ],
)
def test_effective_boolean_value(text: str, truth: bool | None) -> None:
    space = ListTermSpace()
    table = space.table("x", [[text]])
    assert holds(X, table, space).tolist() == [truth is True]
    assert holds(Call("!", (X,)), table, space).tolist() == [truth is False]
    assert holds(Term(text), table, space).tolist() == [truth is True]


def test_in_and_not_in() -> None:
    one, two = Term(integer(1)), Term(integer(2))
    assert value(Call("IN", (X, two, one)), x=typed("1.0", "decimal")) == boolean(True)
    assert value(Call("IN", (X, ERROR, one)), x=integer(1)) == boolean(True)
    assert value(Call("IN", (X, ERROR, two)), x=integer(1)) is None
    assert value(Call("NOTIN", (X, ERROR, two)), x=integer(1)) is None
    assert value(Call("NOTIN", (X, two)), x=integer(1)) == boolean(True)
    assert value(Call("IN", (X, two))) is None
    assert value(Call("IN", (X,)), x=integer(1)) == boolean(False)


def test_a_member_without_a_value_is_in_no_list_and_out_of_none() -> None:
    """SPARQL 1.1, 17.4.1.9 and 17.2: an unbound or failed argument is an error, for an empty list too."""
    for op in ("IN", "NOTIN"):
        assert value(Call(op, (ERROR,))) is None
        assert value(Call(op, (X,))) is None
        assert value(Call("&&", (Call(op, (ERROR,)), FALSE))) == boolean(False)
    space = ListTermSpace()
    table = space.table("x y", [[f'"{number}"', None if number % 2 else integer(number)] for number in range(20)])
    assert holds(Call("IN", (Y,)), table, space).tolist() == [False] * 20
    assert holds(Call("NOTIN", (Y,)), table, space).tolist() == [number % 2 == 0 for number in range(20)]
    assert holds(Call("!", (Call("IN", (Y,)),)), table, space).tolist() == [number % 2 == 0 for number in range(20)]
    assert holds(Call("NOTIN", (Call("+", (X, Y)),)), table, space).tolist() == [False] * 20


def test_functions_of_terms() -> None:
    assert apply("STR", typed("01", "integer")) == '"01"'
    assert apply("STR", "<http://e/a>") == '"http://e/a"'
    assert apply("STR", "_:s1") is None
    assert apply("LANG", '"a"@en-gb') == '"en-GB"'
    assert apply("LANG", integer(1)) == '""'
    assert apply("LANG", "<http://e/a>") is None
    assert apply("DATATYPE", '"a"') == f"<{XSD}string>"
    assert apply("DATATYPE", '"a"@en') == "<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>"
    assert apply("DATATYPE", typed("abc", "integer")) == f"<{XSD}integer>"
    assert apply("DATATYPE", "_:s1") is None
    assert apply("ISNUMERIC", typed("1", "byte")) == boolean(True)
    assert apply("ISNUMERIC", typed("abc", "integer")) == boolean(False)
    assert apply("ISBLANK", "_:s1") == boolean(True)
    assert apply("ISIRI", '"a"') == boolean(False)
    assert apply("ISLITERAL", '"a"@en') == boolean(True)
    assert apply("SAMETERM", integer(1), typed("01", "integer")) == boolean(False)
    assert apply("SAMETERM", '"a"', '"a"') == boolean(True)


def test_unbound_variables() -> None:
    assert value(X) is None
    assert value(Call("BOUND", (X,))) == boolean(False)
    assert value(Call("BOUND", (X,)), x="<a>") == boolean(True)
    for call in (Call("=", (X, X)), Call("SAMETERM", (X, X)), Call("ISIRI", (X,)), Call("+", (X, X))):
        assert value(call) is None
    assert value(Call("COALESCE", (X, ERROR, Term('"z"')))) == '"z"'
    assert value(Call("COALESCE", (X, Y))) is None
    assert value(Call("IF", (Call("BOUND", (X,)), X, Term('"none"')))) == '"none"'
    assert value(Call("IF", (X, TRUE, FALSE))) is None


def test_only_values_that_matter_are_decoded_and_only_once() -> None:
    space = ListTermSpace()
    table = space.table("x y", [("<a>", "<b>"), ("<b>", "<b>"), ("<a>", None)])
    bound_and_other = Call("&&", (Call("BOUND", (Y,)), Call("!", (Call("SAMETERM", (X, Y)),))))
    assert holds(bound_and_other, table, space).tolist() == [True, False, False]
    assert space.asked == []
    different = Call("!=", (X, Y))
    assert holds(Call("||", (different, different)), table, space).tolist() == [True, False, False]
    assert [sorted(ids) for ids in space.asked] == [[0, 1]]


def test_an_empty_table_and_a_table_without_variables() -> None:
    space = ListTermSpace()
    empty = space.table("x y", [])
    sum_of_both = Call("+", (X, Y))
    assert evaluate(sum_of_both, empty, space).tolist() == []
    assert holds(Call("<", (sum_of_both, Term(integer(1)))), empty, space).tolist() == []
    assert value(Call("+", (Term(integer(1)), Term(integer(1))))) == integer(2)
