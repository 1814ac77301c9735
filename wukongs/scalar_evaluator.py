"""Evaluation of an expression for one solution: the definition of our semantics, which the columnar paths repeat.

None is an error or an unbound variable; see wukongs/value_operators.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from csparql.algebra import Aggregate, Call, Exists, Expression
from csparql.terms import Term, Variable
from wukongs.value_operators import (
    arithmetic,
    compare,
    effective_boolean_value,
    from_truth,
    negated,
    same_term,
)
from wukongs.values import Kind, Value, iri, string, value_of

Row = Mapping[Variable, Value | None]

COMPARISONS = frozenset(("=", "!=", "<", ">", "<=", ">="))
ARITHMETIC = frozenset(("+", "-", "*", "/"))


def value_in(expression: Expression, row: Row) -> Value | None:
    """Evaluate an expression in one solution; None if it is an error or an unbound variable."""
    if isinstance(expression, Term):
        return value_of(expression.text)
    if isinstance(expression, Variable):
        return row.get(expression)
    assert not isinstance(expression, Aggregate), f"{expression} outside of a Group"
    assert not isinstance(expression, Exists), "the executor puts a column in the place of EXISTS"
    op = expression.op
    if op in _LAZY:
        return _LAZY[op](expression.arguments, row)
    values = [value_in(argument, row) for argument in expression.arguments]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if op in COMPARISONS:
        return from_truth(compare(op, *known))
    if op in ARITHMETIC:
        return arithmetic(op, *known)
    return _STRICT[op](*known)


def variables_of(expression: Expression) -> frozenset[Variable]:
    """Return the variables that an expression mentions."""
    if isinstance(expression, Variable):
        return frozenset((expression,))
    if isinstance(expression, Call):
        return frozenset().union(*(variables_of(argument) for argument in expression.arguments))
    return frozenset()


# --- functions whose arguments may be errors --------------------------------------------------------------------------

Arguments = tuple[Expression, ...]


def _truth(expression: Expression, row: Row) -> bool | None:
    return effective_boolean_value(value_in(expression, row))


def _and(arguments: Arguments, row: Row) -> Value | None:
    truths = [_truth(argument, row) for argument in arguments]
    return from_truth(False if False in truths else None if None in truths else True)


def _or(arguments: Arguments, row: Row) -> Value | None:
    truths = [_truth(argument, row) for argument in arguments]
    return from_truth(True if True in truths else None if None in truths else False)


def _not(arguments: Arguments, row: Row) -> Value | None:
    truth = _truth(arguments[0], row)
    return from_truth(None if truth is None else not truth)


def _membership(arguments: Arguments, row: Row) -> bool | None:
    """`x IN (a, b)` is `x = a || x = b`; with an empty list it is false, whatever x is."""
    member = value_in(arguments[0], row)
    truths: set[bool | None] = set()
    for argument in arguments[1:]:
        element = value_in(argument, row)
        truths.add(None if member is None or element is None else compare("=", member, element))
    return True if True in truths else None if None in truths else False


def _in(arguments: Arguments, row: Row) -> Value | None:
    return from_truth(_membership(arguments, row))


def _not_in(arguments: Arguments, row: Row) -> Value | None:
    truth = _membership(arguments, row)
    return from_truth(None if truth is None else not truth)


def _bound(arguments: Arguments, row: Row) -> Value | None:
    return from_truth(value_in(arguments[0], row) is not None)


def _if(arguments: Arguments, row: Row) -> Value | None:
    truth = _truth(arguments[0], row)
    return None if truth is None else value_in(arguments[1 if truth else 2], row)


def _coalesce(arguments: Arguments, row: Row) -> Value | None:
    values = (value_in(argument, row) for argument in arguments)
    return next((value for value in values if value is not None), None)


_LAZY: dict[str, Callable[[Arguments, Row], Value | None]] = {
    "&&": _and,
    "||": _or,
    "!": _not,
    "IN": _in,
    "NOTIN": _not_in,
    "BOUND": _bound,
    "IF": _if,
    "COALESCE": _coalesce,
}


# --- functions of values ----------------------------------------------------------------------------------------------


def _str(value: Value) -> Value | None:
    return None if value.kind == Kind.BLANK else string(value.lexical)


def _lang(value: Value) -> Value | None:
    return string(value.language) if value.is_literal else None


def _datatype(value: Value) -> Value | None:
    return iri(value.datatype) if value.is_literal else None


KIND_TESTS: dict[str, Callable[[Value], bool]] = {
    "ISIRI": lambda value: value.kind == Kind.IRI,
    "ISBLANK": lambda value: value.kind == Kind.BLANK,
    "ISLITERAL": lambda value: value.is_literal,
    "ISNUMERIC": lambda value: value.is_numeric,
}


def _kind_test(test: Callable[[Value], bool]) -> Callable[..., Value | None]:
    return lambda value: from_truth(test(value))


_STRICT: dict[str, Callable[..., Value | None]] = {
    "NEGATE": negated,
    "SAMETERM": lambda left, right: from_truth(same_term(left, right)),
    "STR": _str,
    "LANG": _lang,
    "DATATYPE": _datatype,
    **{name: _kind_test(test) for name, test in KIND_TESTS.items()},
}
