"""Evaluation of an expression for one solution: the definition of our semantics, which the columnar paths repeat.

None is an error or an unbound variable; see value_operators.py. A function that nobody knows is an error too
(SPARQL 1.1, 17.6), and one warning in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache

from wukongs.csparql.algebra import Aggregate, Call, Exists, Expression
from wukongs.csparql.terms import Term, Variable
from wukongs.query.functions import casts, numbers, patterns, strings, terms, times
from wukongs.query.functions.casts import FUNCTIONS as CASTS
from wukongs.query.terms.moment import RowSource
from wukongs.query.terms.value_operators import arithmetic, compare, effective_boolean_value, from_truth, negated
from wukongs.query.terms.values import Value, value_of

FUNCTIONS: dict[str, Callable[..., Value | None]] = {
    **terms.FUNCTIONS,
    **strings.FUNCTIONS,
    **patterns.FUNCTIONS,
    **numbers.FUNCTIONS,
    **times.FUNCTIONS,
    **casts.FUNCTIONS,
}
"""The functions of values by name (csparql/functions.py), casts by IRIs in angle brackets. A function takes values,
none of them an error, and returns a value, or None for an error. Functions that look at errors or at the moment stand
below."""

log = logging.getLogger("wukongs")

Row = Mapping[Variable, Value | None]

COMPARISONS = frozenset(("=", "!=", "<", ">", "<=", ">="))
ARITHMETIC = frozenset(("+", "-", "*", "/"))


def value_in(expression: Expression, row: Row, source: RowSource | None = None) -> Value | None:
    """Evaluate an expression in one solution; None if it is an error or an unbound variable.

    source : the values of NOW, RAND, UUID, STRUUID and BNODE. Other functions do not ask it.
    """
    if isinstance(expression, Term):
        return value_of(expression.text)
    if isinstance(expression, Variable):
        return row.get(expression)
    assert not isinstance(expression, Aggregate), f"{expression} outside of a Group"
    assert not isinstance(expression, Exists), "the executor puts a column in the place of EXISTS"
    op = expression.op
    if op in _LAZY:
        return _LAZY[op](expression.arguments, row, source)
    values = [value_in(argument, row, source) for argument in expression.arguments]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if op in COMPARISONS:
        return from_truth(compare(op, *known))
    if op in ARITHMETIC:
        return arithmetic(op, *known)
    if op == "NEGATE":
        return negated(*known)
    if op in OF_MOMENT:
        assert source is not None, f"{op} without a moment"
        return OF_MOMENT[op](source, *known)
    if op.startswith("<"):
        return _called_by_iri(op, known)
    return FUNCTIONS[op](*known)


OF_MOMENT: dict[str, Callable[..., Value | None]] = {
    "NOW": lambda source: source.moment.now(),
    "RAND": RowSource.number,
    "UUID": RowSource.uuid,
    "STRUUID": RowSource.uuid_text,
    "BNODE": RowSource.blank,
}


def _called_by_iri(name: str, values: list[Value]) -> Value | None:
    if name not in CASTS:
        _warn_of_unknown(name)
        return None
    return CASTS[name](values[0]) if len(values) == 1 else None


@lru_cache(maxsize=256)
def _warn_of_unknown(name: str) -> None:
    """Once for each name, as long as there are not too many."""
    log.warning("there is no function %s: each call of it is an error, so it gives no value", name)


def variables_of(expression: Expression) -> frozenset[Variable]:
    """Return the variables that an expression mentions."""
    if isinstance(expression, Variable):
        return frozenset((expression,))
    if isinstance(expression, Call):
        return frozenset().union(*(variables_of(argument) for argument in expression.arguments))
    return frozenset()


# --- functions whose arguments may be errors --------------------------------------------------------------------------

Arguments = tuple[Expression, ...]


def _truth(expression: Expression, row: Row, source: RowSource | None) -> bool | None:
    return effective_boolean_value(value_in(expression, row, source))


def _and(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    truths = [_truth(argument, row, source) for argument in arguments]
    return from_truth(False if False in truths else None if None in truths else True)


def _or(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    truths = [_truth(argument, row, source) for argument in arguments]
    return from_truth(True if True in truths else None if None in truths else False)


def _not(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    truth = _truth(arguments[0], row, source)
    return from_truth(None if truth is None else not truth)


def _membership(arguments: Arguments, row: Row, source: RowSource | None) -> bool | None:
    """Evaluate `x IN (a, b)`, which is `x = a || x = b`. An x without a value is an error, for an empty list too."""
    member = value_in(arguments[0], row, source)
    if member is None:
        return None
    truths: set[bool | None] = set()
    for argument in arguments[1:]:
        element = value_in(argument, row, source)
        truths.add(None if element is None else compare("=", member, element))
    return True if True in truths else None if None in truths else False


def _in(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    return from_truth(_membership(arguments, row, source))


def _not_in(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    truth = _membership(arguments, row, source)
    return from_truth(None if truth is None else not truth)


def _bound(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    return from_truth(value_in(arguments[0], row, source) is not None)


def _if(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    truth = _truth(arguments[0], row, source)
    return None if truth is None else value_in(arguments[1 if truth else 2], row, source)


def _coalesce(arguments: Arguments, row: Row, source: RowSource | None) -> Value | None:
    values = (value_in(argument, row, source) for argument in arguments)
    return next((value for value in values if value is not None), None)


_LAZY: dict[str, Callable[[Arguments, Row, RowSource | None], Value | None]] = {
    "&&": _and,
    "||": _or,
    "!": _not,
    "IN": _in,
    "NOTIN": _not_in,
    "BOUND": _bound,
    "IF": _if,
    "COALESCE": _coalesce,
}
