"""Arithmetic of integers and decimals on whole columns: exact, with numerators of 64 bits over powers of ten.

A row is known where both operands are, and no numerator on the way is INT64_SAFE or more: then the result is that of
the scalar evaluator. All other rows are left to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wukongs.csparql.terms import XSD
from wukongs.query.binding_table import TermSpace
from wukongs.query.expressions.exact_kernels import LIMB, decimal_limbs
from wukongs.query.expressions.exact_numbers import EXACT_TYPES
from wukongs.query.expressions.text_column import TYPED, TextColumn
from wukongs.query.rows import numbered
from wukongs.query.terms.arrow_texts import bytes_of
from wukongs.store.dtypes import NO_MATCH, UNBOUND, BoolArray, Int64Array
from wukongs.store.term_ids import decimal_ids, decimal_parts, integer_ids, numeric_values
from wukongs.store.value_kernels import KIND_DECIMAL, KIND_INTEGER, KIND_NONE

INT64_SAFE = 2.0**62
"""Integers whose float64 is less fit an int64, and so do sums of two."""
OPS = frozenset(("+", "-", "*", "NEGATE"))
_POWERS = 10 ** np.arange(19)


@dataclass(frozen=True, slots=True)
class ExactColumn:
    """Number i is numerators[i] / 10 ** scales[i], an xsd:decimal or an xsd:integer, where it is known."""

    numerators: Int64Array
    scales: Int64Array
    is_decimal: BoolArray
    is_known: BoolArray

    @staticmethod
    def of_ids(ids: Int64Array, terms: TermSpace) -> ExactColumn:
        """Read ids: not known are decimals and derived integers that ids do not carry, and all integers that they do
        not carry if one of them is ill-typed or INT64_SAFE or more."""
        kinds, _ = numeric_values(ids)
        numerators, scales = decimal_parts(ids)
        is_decimal = kinds == KIND_DECIMAL
        is_known = (kinds == KIND_INTEGER) | (is_decimal & (scales >= 0))
        hashed = np.flatnonzero((kinds == KIND_NONE) & (ids != UNBOUND))
        if len(hashed):
            numerators[hashed], is_known[hashed] = _hashed_integers(ids[hashed], terms)
        return ExactColumn(numerators, np.maximum(scales, 0).astype(np.int64), is_decimal, is_known)

    def negated(self) -> ExactColumn:
        return ExactColumn(-self.numerators, self.scales, self.is_decimal, self.is_known)

    def combined(self, op: str, other: ExactColumn) -> ExactColumn:
        """Apply + - or *."""
        is_known, is_decimal = self.is_known & other.is_known, self.is_decimal | other.is_decimal
        if op == "*":
            numbers, scales = self.numerators * other.numerators, self.scales + other.scales
            is_known &= np.abs(self.numerators.astype(np.float64) * other.numerators) < INT64_SAFE
            return ExactColumn(numbers, scales, is_decimal, is_known)
        scales = np.maximum(self.scales, other.scales)
        (left, is_left), (right, is_right) = self._over(scales), other._over(scales)
        numbers = left + right if op == "+" else left - right
        return ExactColumn(
            numbers,
            scales,
            is_decimal,
            is_known & is_left & is_right & (np.abs(numbers.astype(np.float64)) < INT64_SAFE),
        )

    def _over(self, scales: Int64Array) -> tuple[Int64Array, BoolArray]:
        """Return the numerators over greater powers of ten, and where they are right."""
        places = scales - self.scales
        factors = _POWERS[np.minimum(places, len(_POWERS) - 1)]
        is_right = (places < len(_POWERS)) & (np.abs(self.numerators.astype(np.float64) * factors) < INT64_SAFE)
        return self.numerators * factors, is_right

    def ids(self, terms: TermSpace) -> tuple[Int64Array, BoolArray]:
        """Return the ids of the numbers, and where they are known: not those of decimals that ids do not carry."""
        ids = np.full(len(self.numerators), NO_MATCH, np.int64)
        decimals, integers = (np.flatnonzero(self.is_known & one) for one in (self.is_decimal, ~self.is_decimal))
        ids[decimals] = decimal_ids(self.numerators[decimals], self.scales[decimals])
        ids[integers] = _integer_ids(self.numerators[integers], terms)
        return ids, self.is_known & (ids >= 0)


def _hashed_integers(ids: Int64Array, terms: TermSpace) -> tuple[Int64Array, BoolArray]:
    """Return the xsd:integers among terms that ids do not carry, and where they are known."""
    places, firsts = numbered([ids], len(ids))
    values, is_known = np.zeros(len(firsts), np.int64), np.zeros(len(firsts), np.bool_)
    column = TextColumn.of_ids(ids[firsts], terms)
    wanted = np.flatnonzero((column.kinds == TYPED) & np.isin(column.names, EXACT_TYPES[:1])[column.tails])
    text, offsets = bytes_of(column.take(wanted).lexical)
    limbs, scale = decimal_limbs(text.copy(), offsets, np.zeros(len(wanted), np.bool_))
    if scale < 0 or len(limbs) > 3:
        return values[places], is_known[places]
    is_short = np.abs(sum(limb * float(LIMB) ** place for place, limb in enumerate(limbs))) < INT64_SAFE
    for limb in limbs[::-1]:
        values[wanted] = np.where(is_short, values[wanted] * LIMB + limb, 0)
    is_known[wanted] = is_short
    return values[places], is_known[places]


def _integer_ids(numbers: Int64Array, terms: TermSpace) -> Int64Array:
    """Return the ids of xsd:integers."""
    ids = integer_ids(numbers)
    rows = np.flatnonzero(ids < 0)
    if len(rows):
        places, firsts = numbered([numbers[rows]], len(rows))
        texts = [f'"{number}"^^<{XSD}integer>' for number in numbers[rows[firsts]].tolist()]
        ids[rows] = terms.ids(texts)[places]
    return ids
