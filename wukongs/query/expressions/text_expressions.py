"""Evaluation of the parts of an expression that work on columns of texts (text_column.py): once for each distinct term
of a variable, or for each distinct combination of terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wukongs.csparql.algebra import Call, Expression
from wukongs.csparql.terms import Term, Variable
from wukongs.query.expressions import text_functions as functions
from wukongs.query.expressions import text_truths as truths
from wukongs.query.expressions.frame import Frame
from wukongs.query.expressions.number_columns import EXACT, UNDECIDED, Numbers, compare_columns
from wukongs.query.expressions.scalar_evaluator import variables_of
from wukongs.query.expressions.text_column import Spread, TextColumn
from wukongs.query.expressions.text_numbers import numbers_of_column
from wukongs.query.expressions.truth import Truth
from wukongs.query.rows import numbered
from wukongs.query.terms.values import value_of
from wukongs.store.dtypes import BoolArray, Int64Array

ROWS_MIN = 8
"""Fewer rows are sooner done one by one."""
TERM_CALLS = functions.UNARY.keys() | functions.BINARY.keys() | {"SUBSTR", "REPLACE", "CONCAT"}
"""Functions of strings whose values are terms."""
TRUTH_CALLS = truths.TESTS.keys() | truths.KIND_TESTS | {"REGEX"}
"""Functions of strings and terms that are true or false."""


def term_column(expression: Expression, frame: Frame) -> Spread | None:
    """Return the terms that are an expression's values in all rows; None if it has other parts than variables,
    constants and TERM_CALLS, or no variable at all."""
    is_worth_it = frame.table.length >= ROWS_MIN and variables_of(expression)
    return _term_column(expression, frame) if is_worth_it else None


def _term_column(expression: Expression, frame: Frame) -> Spread | None:
    if isinstance(expression, Variable):
        return frame.texts(expression)
    if isinstance(expression, Term):
        return Spread(TextColumn.of_texts([expression.text]), None)
    if not isinstance(expression, Call) or expression.op not in TERM_CALLS or not expression.arguments:
        return None
    op, arguments = expression.op, expression.arguments
    constants = _constants(arguments[1:]) if op in ("SUBSTR", "REPLACE") else []
    if constants is None:
        return None
    joined = _joined(arguments[:1] if constants else arguments, frame)
    if joined is None:
        return None
    columns, places = joined
    if op in functions.UNARY:
        made = functions.UNARY[op](columns[0])
    elif op in functions.BINARY:
        made = functions.BINARY[op](columns[0], columns[1])
    elif op == "CONCAT":
        made = functions.concat(columns)
    elif op == "SUBSTR":
        values = [value_of(text) for text in constants]
        made = functions.substr(columns[0], values[0], values[1] if len(values) > 1 else None)
    else:
        made = functions.replace(columns[0], functions.constants_of(constants))
    return Spread(made, places)


def _constants(arguments: Sequence[Expression]) -> list[str] | None:
    """Return the canonical forms of constants; None if one is something else."""
    texts = [argument.text for argument in arguments if isinstance(argument, Term)]
    return texts if len(texts) == len(arguments) else None


def _joined(arguments: Sequence[Expression], frame: Frame) -> tuple[list[TextColumn], Int64Array | None] | None:
    """Return columns of the arguments, and the places of the table's rows in them. The columns have the same rows, or
    one row."""
    found = [_term_column(argument, frame) for argument in arguments]
    spreads = [spread for spread in found if spread is not None]
    if len(spreads) < len(found):
        return None
    varying = [spread.places for spread in spreads if spread.places is not None]
    if all(places is varying[0] for places in varying):
        return [spread.column for spread in spreads], varying[0] if varying else None
    numbers, firsts = numbered(varying, frame.table.length)
    columns = [
        spread.column if spread.places is None else spread.column.take(spread.places[firsts]) for spread in spreads
    ]
    return columns, numbers


def _part_test(op: str, arguments: Sequence[Expression], frame: Frame) -> Truth | None:
    """Look for the texts of one variable in those of another, row by row: of distinct pairs there are often as many as
    rows, so they are not looked for."""
    if not all(isinstance(argument, Variable) for argument in arguments) or arguments[0] == arguments[1]:
        return None
    first, second = (frame.texts(argument) for argument in arguments if isinstance(argument, Variable))
    return truths.part_test(op, first, second)


def truth_of(expression: Call, frame: Frame) -> tuple[Truth, BoolArray] | None:
    """Return the truth of one of TRUTH_CALLS or TERM_CALLS in each row, and where it is known; None where term_column
    gives it."""
    op, arguments = expression.op, expression.arguments
    if frame.table.length < ROWS_MIN or not variables_of(expression):
        return None
    if op in truths.TESTS and (by_rows := _part_test(op, arguments, frame)):
        return by_rows, np.ones(frame.table.length, np.bool_)
    if op == "REGEX":
        constants = _constants(arguments[1:])
        joined = None if constants is None else _joined(arguments[:1], frame)
    else:
        constants, joined = None, _joined(arguments if op in TRUTH_CALLS else [expression], frame)
    if joined is None:
        return None
    columns, places = joined
    assert places is not None, expression
    if op in truths.TESTS:
        truth, known = truths.TESTS[op](columns[0], columns[1]), None
    elif op in truths.KIND_TESTS:
        truth, known = truths.kind_test(op, columns[0])
    elif constants is None:
        truth, known = truths.effective_truth(columns[0])
    else:
        pattern, flags, *_ = (*functions.constants_of(constants), "")
        truth, known = truths.regex(columns[0], pattern, flags), None
    return truth.take(places), np.ones(len(places), np.bool_) if known is None else known[places]


def lengths(expression: Expression, frame: Frame) -> Numbers | None:
    """Return the column of numbers that STRLEN gives; None as term_column."""
    found = term_column(expression, frame)
    if found is None:
        return None
    assert found.places is not None, expression
    kinds = np.where(found.column.is_text, EXACT, UNDECIDED).astype(np.uint8)
    return Numbers(functions.lengths(found.column).astype(np.float64), kinds).take(found.places)


def compare(op: str, left: Expression, right: Expression, frame: Frame) -> tuple[Truth, BoolArray] | None:
    """Compare two expressions: (truth by rows, where it is known); None as term_column."""
    is_worth_it = frame.table.length >= ROWS_MIN and (variables_of(left) or variables_of(right))
    joined = _joined((left, right), frame) if is_worth_it else None
    if joined is None:
        return None
    (first, second), places = joined
    assert places is not None, (left, right)
    truth, known = truths.compare_texts(op, first, second)
    if not known.all():
        numbers = numbers_of_column(first), numbers_of_column(second)
        holds, decided = compare_columns(op, *numbers, len(known))
        decided = decided & ~known
        truth = Truth(truth.true | (holds & decided), truth.false | (~holds & decided))
        known = known | decided
    return truth.take(places), known[places]
