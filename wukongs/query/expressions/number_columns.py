"""Arithmetic and comparisons on whole columns, in float64, wherever that gives exactly the scalar evaluator's answer.

Each number of a column has one of these kinds:

* UNDECIDED: not a number, or one whose exact value is not at hand; the scalar evaluator decides that row;
* EXACT: an integer below 2**53 in absolute value, which float64 holds exactly;
* ROUNDED: a decimal, or a larger integer, as the nearest float64;
* DOUBLE: an xsd:double.

Why the answers are right:

* EXACT op EXACT is exact in float64 if the result is below 2**53: rounding is monotone, so a true result at or beyond
  that limit rounds to one at or beyond it, and is UNDECIDED.
* An operand beside a DOUBLE is promoted to the nearest double, which is the float64 that we hold.
* ROUNDED op ROUNDED or EXACT is decimal arithmetic: UNDECIDED. Two such numbers compare as their float64s do unless
  these are equal, again since rounding is monotone; equal ones are UNDECIDED.
* Division of EXACT numbers gives a decimal: UNDECIDED. xsd:float, rare in data, is UNDECIDED too.
* ABS loses nothing; an EXACT number is its own CEIL, FLOOR and ROUND, a DOUBLE has those of its float64. For ROUNDED
  ones they are UNDECIDED: the decimal 2.4999999999999999999 is the float64 2.5.
* A cast to xsd:double is the nearest float64, which is what we hold; a DOUBLE cast to xsd:integer loses its fraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wukongs.csparql.terms import XSD
from wukongs.query.terms.values import Kind, Value, to_float64
from wukongs.store.dtypes import BoolArray, Int64Array, UInt8Array
from wukongs.store.term_ids import numeric_values
from wukongs.store.value_kernels import EXACT_LIMIT, KIND_DECIMAL, KIND_DOUBLE, KIND_INTEGER

Float64Array = npt.NDArray[np.float64]

UNDECIDED, EXACT, ROUNDED, DOUBLE = 0, 1, 2, 3
_KINDS_OF_IDS = np.full(128, UNDECIDED, np.uint8)
_KINDS_OF_IDS[[KIND_INTEGER, KIND_DECIMAL, KIND_DOUBLE]] = EXACT, ROUNDED, DOUBLE


@dataclass(frozen=True, slots=True)
class Numbers:
    """values : float64[n_rows], or [1] for a constant; kinds : one kind for all rows, or uint8[n_rows]."""

    values: Float64Array
    kinds: int | UInt8Array

    def take(self, rows: Int64Array) -> Numbers:
        """Return the numbers at these places."""
        kinds = self.kinds if isinstance(self.kinds, int) else self.kinds[rows]
        return Numbers(self.values[rows], kinds)


def numbers_of(values: Sequence[Value | None]) -> Numbers:
    """Make the column of some decoded values."""
    known = [value for value in values if value is not None and value.kind == Kind.DOUBLE]
    if values and len(known) == len(values):
        return Numbers(np.array([value.data for value in known], np.float64), DOUBLE)
    pairs = [_number_of(value) for value in values]
    kinds = {kind for kind, _ in pairs}
    column = np.array([number for _, number in pairs], np.float64)
    if len(kinds) == 1:
        return Numbers(column, kinds.pop())
    return Numbers(column, np.array([kind for kind, _ in pairs], np.uint8))


def numbers_of_ids(ids: Int64Array) -> Numbers:
    """Make the column of term ids: inlined values are read off the ids, all others are UNDECIDED."""
    stored_kinds, values = numeric_values(ids)
    kinds = _KINDS_OF_IDS[stored_kinds]
    kinds[(kinds == EXACT) & (np.abs(values) >= EXACT_LIMIT)] = ROUNDED
    values[kinds == ROUNDED] += 0.0  # the decimal -0.0 is zero, which has no sign
    first = int(kinds[0]) if len(kinds) else UNDECIDED
    return Numbers(values, first if (kinds == first).all() else kinds)


def _number_of(value: Value | None) -> tuple[int, float]:
    if value is None or not value.is_numeric or value.kind == Kind.FLOAT:
        return UNDECIDED, 0.0
    number = to_float64(value.number)
    if value.kind == Kind.DOUBLE:
        return DOUBLE, number
    return (EXACT if value.kind == Kind.INTEGER and abs(number) < EXACT_LIMIT else ROUNDED), number


def combine(op: str, left: Numbers, right: Numbers) -> Numbers:
    """Apply + - * / to two columns."""
    with np.errstate(all="ignore"):
        if op == "+":
            values = left.values + right.values
        elif op == "-":
            values = left.values - right.values
        elif op == "*":
            values = left.values * right.values
        else:
            values = left.values / right.values
    if _all_doubles(left) and _all_doubles(right):
        return Numbers(values, DOUBLE)
    first, second = np.asarray(left.kinds, np.uint8), np.asarray(right.kinds, np.uint8)
    is_double = (np.maximum(first, second) == DOUBLE) & (np.minimum(first, second) != UNDECIDED)
    is_exact = (first == EXACT) & (second == EXACT) & (np.abs(values) < EXACT_LIMIT) & (op != "/")
    return _with_kinds(values, is_double, is_exact)


def negate(column: Numbers) -> Numbers:
    """Unary minus: no digit is lost, whatever the kind. Zero minus zero is zero, as integers and decimals want it."""
    values = np.where(np.equal(column.kinds, DOUBLE), -column.values, 0.0 - column.values)
    return Numbers(values, column.kinds)


def changed(op: str, column: Numbers) -> Numbers:
    """Apply a function of CHANGES to a column."""
    kinds = np.asarray(column.kinds, np.uint8)
    with np.errstate(invalid="ignore"):
        values = CHANGES[op](column.values)
    if op == _TO_DOUBLE:
        return Numbers(values, np.where(kinds == UNDECIDED, UNDECIDED, DOUBLE).astype(np.uint8))
    if op == _TO_INTEGER:
        is_exact = (kinds == EXACT) | ((kinds == DOUBLE) & (np.abs(values) < EXACT_LIMIT))
        return _with_kinds(values, np.zeros_like(is_exact), is_exact)
    if op == "ABS":
        return Numbers(values, column.kinds)
    return Numbers(values, np.where(kinds == ROUNDED, UNDECIDED, kinds).astype(np.uint8))


def _round_half_up(values: Float64Array) -> Float64Array:
    """Round as fn:round does; the fraction is exact, where values + 0.5 might not be."""
    below = np.floor(values)
    nearest = np.where(values - below >= 0.5, below + 1.0, below)
    return np.where(nearest == 0.0, np.copysign(nearest, values), nearest)


_TO_DOUBLE, _TO_INTEGER = f"<{XSD}double>", f"<{XSD}integer>"
CHANGES: dict[str, Callable[[Float64Array], Float64Array]] = {
    "ABS": np.abs,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ROUND": _round_half_up,
    _TO_DOUBLE: lambda values: values,
    _TO_INTEGER: np.trunc,
}
"""Functions of one number that are applied to whole columns."""


def _all_doubles(column: Numbers) -> bool:
    return isinstance(column.kinds, int) and column.kinds == DOUBLE


def _with_kinds(values: Float64Array, is_double: BoolArray, is_exact: BoolArray) -> Numbers:
    """Name the kinds of results. An integer zero loses float64's sign, which a later division would show."""
    kinds = np.where(is_double, DOUBLE, np.where(is_exact, EXACT, UNDECIDED)).astype(np.uint8)
    return Numbers(np.where(is_exact, values + 0.0, values), kinds)


def compare_columns(op: str, left: Numbers, right: Numbers, length: int) -> tuple[BoolArray, BoolArray]:
    """Apply = != < > <= >= to two columns.

    Returns
    -------
    truths : bool[length]           Meaningless where undecided.
    decided : bool[length]"""
    truths = np.broadcast_to(COMPARED[op](left.values, right.values), length)
    if _all_doubles(left) and _all_doubles(right):
        return truths, np.ones(length, np.bool_)
    first, second = np.asarray(left.kinds, np.uint8), np.asarray(right.kinds, np.uint8)
    low, high = np.minimum(first, second), np.maximum(first, second)
    decided = (low != UNDECIDED) & ((high != ROUNDED) | (left.values != right.values))
    return truths, np.broadcast_to(decided, length)


COMPARED: dict[str, np.ufunc] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}
