"""Integers and decimals, ordered and added exactly without being decoded."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from wukongs.csparql.terms import XSD
from wukongs.query.binding_table import TermSpace
from wukongs.query.expressions.exact_kernels import LIMB, decimal_limbs
from wukongs.query.expressions.text_column import TYPED, TextColumn
from wukongs.query.expressions.text_numbers import PROBED
from wukongs.query.terms.arrow_texts import bytes_of
from wukongs.query.terms.temporal import EXACT
from wukongs.query.terms.values import Kind, Value, computed
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array
from wukongs.store.term_ids import decimal_parts, numeric_values
from wukongs.store.value_kernels import KIND_DECIMAL, KIND_INTEGER, KIND_NONE

_POWERS = 10 ** np.arange(19)
_SUM_MAX = 2.0**62
_HALF = 1 << 31
_ROWS_MAX = 1 << 31
EXACT_TYPES = (XSD + "integer", XSD + "decimal")


def exact_ranks(ids: Int64Array, terms: TermSpace) -> Int64Array | None:
    """Return the rank of each of some distinct ids; equal numbers have one. None where ExactNumbers has none."""
    exact = ExactNumbers.of_ids(ids, 1, terms)
    if exact is None:
        return None
    # The limbs of one number have one sign, so numbers are in the order of their limbs, the greatest first.
    order = np.lexsort(exact.limbs)
    is_new = (np.diff(exact.limbs[:, order]) != 0).any(axis=0)
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.append(0, np.cumsum(is_new))
    return ranks


@dataclass(frozen=True, slots=True)
class ExactNumbers:
    """Each number is the sum of limbs[k][i] * base ** k, divided by 10 ** scale. limbs : int64[n_limbs, n]; any sum of
    the limbs of one place fits an int64."""

    limbs: Int64Array
    base: int
    scale: int
    is_decimal: BoolArray

    @staticmethod
    def of_ids(ids: Int64Array, row_count: int, terms: TermSpace) -> ExactNumbers | None:
        """Read distinct ids, of which row_count rows are added; None if they are not all xsd:integers, derived integers
        and xsd:decimals, or a number is too long."""
        kinds, values = numeric_values(ids)
        if not len(ids) or row_count > _ROWS_MAX or not np.isin(kinds, (KIND_INTEGER, KIND_DECIMAL, KIND_NONE)).all():
            return None
        if (kinds == KIND_NONE).any():
            return ExactNumbers._of_texts(ids, kinds, terms)
        numerators, scales = decimal_parts(ids)
        scale = int(scales.max())
        most = float(np.abs(values).max()) * 10.0**scale
        if scales.min() < 0 or most > _SUM_MAX:
            return ExactNumbers._of_texts(ids, kinds, terms)
        # A factor of more than 10 ** 18 only meets zeros.
        scaled = numerators * _POWERS[np.minimum(scale - scales, len(_POWERS) - 1)]
        if most * row_count > _SUM_MAX:
            return ExactNumbers(np.stack([scaled & (_HALF - 1), scaled >> 31]), _HALF, scale, kinds == KIND_DECIMAL)
        return ExactNumbers(scaled[np.newaxis], 1, scale, kinds == KIND_DECIMAL)

    @staticmethod
    def _of_texts(ids: Int64Array, kinds: npt.NDArray[np.int8], terms: TermSpace) -> ExactNumbers | None:
        """Read the lexical forms, where ids alone do not tell the numbers."""
        if (ids == UNBOUND).any():
            return None
        hashed = np.flatnonzero(kinds == KIND_NONE)
        if len(hashed) > PROBED and not _are_exact(TextColumn.of_ids(ids[hashed[:PROBED]], terms)).all():
            return None
        column = TextColumn.of_ids(ids, terms)
        if not (_are_exact(column) | (kinds != KIND_NONE)).all():
            return None
        text, offsets = bytes_of(column.lexical)
        is_decimal = np.array([name == XSD + "decimal" for name in column.names], np.bool_)[column.tails]
        limbs, scale = decimal_limbs(text.copy(), offsets, is_decimal)
        return None if scale < 0 else ExactNumbers(limbs, LIMB, int(scale), is_decimal)

    def sums(self, places: Int64Array, offsets: Int64Array) -> list[Value]:
        """Add the numbers at places[offsets[i]:offsets[i + 1]], for each i; no group is empty. A sum is a decimal if
        one of its numbers is."""
        totals = [0] * (len(offsets) - 1)
        for limb in self.limbs[::-1]:
            parts = np.add.reduceat(limb[places], offsets[:-1]).tolist()
            totals = [total * self.base + part for total, part in zip(totals, parts, strict=True)]
        are_decimals = np.logical_or.reduceat(self.is_decimal[places], offsets[:-1]).tolist()
        return [
            computed(Kind.DECIMAL, EXACT.scaleb(Decimal(total), -self.scale))
            if is_decimal
            else computed(Kind.INTEGER, total // 10**self.scale)
            for total, is_decimal in zip(totals, are_decimals, strict=True)
        ]


def _are_exact(column: TextColumn) -> BoolArray:
    """Tell which terms are xsd:integers and xsd:decimals by their datatypes."""
    found: BoolArray = (column.kinds == TYPED) & np.isin(column.names, EXACT_TYPES)[column.tails]
    return found
