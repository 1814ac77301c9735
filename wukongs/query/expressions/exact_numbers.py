"""Inlined integers and decimals, ordered and added exactly without being decoded."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from wukongs.query.terms.values import Kind, Value, computed
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.term_ids import decimal_parts, numeric_values
from wukongs.store.value_kernels import KIND_DECIMAL, KIND_INTEGER

_POWERS = 10 ** np.arange(19)
_SUM_MAX = 2.0**62


def exact_ranks(ids: Int64Array) -> Int64Array | None:
    """Return the rank of each of some distinct ids; equal numbers have one. None if they are not all inlined integers
    and decimals, or if float64 does not tell two of them apart."""
    kinds, values = numeric_values(ids)
    if not len(ids) or not np.isin(kinds, (KIND_INTEGER, KIND_DECIMAL)).all():
        return None
    numerators, scales = decimal_parts(ids)
    while (longer := (scales > 0) & (numerators % 10 == 0)).any():
        numerators, scales = np.where(longer, numerators // 10, numerators), scales - longer
    order = np.argsort(values)
    same = values[order[1:]] == values[order[:-1]]
    differs = (numerators[order[1:]] != numerators[order[:-1]]) | (scales[order[1:]] != scales[order[:-1]])
    return None if (same & differs).any() else np.unique(values, return_inverse=True)[1]


@dataclass(frozen=True, slots=True)
class ExactNumbers:
    """Each number is scaled[i] / 10 ** scale; any sum of `row_count` of them fits an int64."""

    scaled: Int64Array
    scale: int
    is_decimal: BoolArray

    @staticmethod
    def of_ids(ids: Int64Array, row_count: int) -> ExactNumbers | None:
        """Read ids; None if they are not all inlined integers and decimals, or their sums might be too large."""
        kinds, values = numeric_values(ids)
        if not len(ids) or not np.isin(kinds, (KIND_INTEGER, KIND_DECIMAL)).all():
            return None
        numerators, scales = decimal_parts(ids)
        scale = int(scales.max())
        if scales.min() < 0 or float(np.abs(values).max()) * 10.0**scale * row_count > _SUM_MAX:
            return None
        # A factor of more than 10 ** 18 only meets zeros.
        factors = _POWERS[np.minimum(scale - scales, len(_POWERS) - 1)]
        return ExactNumbers(numerators * factors, scale, kinds == KIND_DECIMAL)

    def sums(self, places: Int64Array, offsets: Int64Array) -> list[Value]:
        """Add the numbers at places[offsets[i]:offsets[i + 1]], for each i; no group is empty. A sum is a decimal if
        one of its numbers is."""
        totals = np.add.reduceat(self.scaled[places], offsets[:-1]).tolist()
        are_decimals = np.logical_or.reduceat(self.is_decimal[places], offsets[:-1]).tolist()
        return [
            computed(Kind.DECIMAL, Decimal(total).scaleb(-self.scale))
            if is_decimal
            else computed(Kind.INTEGER, total // 10**self.scale)
            for total, is_decimal in zip(totals, are_decimals, strict=True)
        ]
