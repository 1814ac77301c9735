"""Functions on numbers (SPARQL 1.1, 17.4.4): the type stays, but a derived integer type becomes xsd:integer."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np

from wukongs.query.terms.temporal import EXACT
from wukongs.query.terms.values import Number, Value, computed

_HALF = Decimal("0.5")


def absolute(value: Value) -> Value | None:
    if not value.is_numeric:
        return None
    number = value.number
    return computed(value.kind, EXACT.abs(number) if isinstance(number, Decimal) else abs(number))


def ceil(value: Value) -> Value | None:
    return _rounded(value, ROUND_CEILING)


def floor(value: Value) -> Value | None:
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: Value, direction: str) -> Value | None:
    if not value.is_numeric:
        return None
    number: Number = value.number
    if isinstance(number, Decimal):
        number = EXACT.plus(number.to_integral_value(direction))
    elif isinstance(number, float):
        number = float(np.ceil(number) if direction == ROUND_CEILING else np.floor(number))
    return computed(value.kind, number)


def round_half_up(value: Value) -> Value | None:
    """Round to the nearest integer, of two the greater one; a negative float that becomes zero keeps its sign."""
    if not value.is_numeric:
        return None
    number: Number = value.number
    if isinstance(number, Decimal):
        number = EXACT.plus(EXACT.add(number, _HALF).to_integral_value(ROUND_FLOOR))
    elif isinstance(number, float):
        number = round_float(number)
    return computed(value.kind, number)


def round_float(number: float) -> float:
    """Round as fn:round does. The fraction is exact, where number + 0.5 might not be."""
    below = np.floor(number)
    with np.errstate(invalid="ignore"):
        nearest = below + 1.0 if number - below >= 0.5 else below
    return float(np.copysign(nearest, number) if nearest == 0 else nearest)


FUNCTIONS = {"ABS": absolute, "CEIL": ceil, "FLOOR": floor, "ROUND": round_half_up}
