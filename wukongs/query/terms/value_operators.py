"""SPARQL's operators on single values (SPARQL 1.1, 17.2 to 17.4): exact and complete, one value at a time.

None is an error everywhere, and so is the value of an unbound variable. Three-valued truth is bool | None.

Decisions where the specification leaves room:

* `=` between literals that are not the same term is decided if both values are known: by value within a value space,
  false across value spaces. It is an error if one side is OPAQUE, since another lexical form or datatype may stand for
  the same value. Language-tagged strings differ from every other term.
* A dateTime without a zone is in UTC, our implicit time zone (XPath). SPARQL's table has no other calendar types. Times
  compare as dateTimes do. Dates have XML Schema's order: with and without a zone they compare if they are more than 14
  hours apart, else it is an error (the W3C's tests want it so).
* gYears, gMonths and so on of one type are ordered by their starts, in UTC where they have no zone; XPath has their =
  alone, XML Schema this order.
* The difference of two dateTimes, dates or times is that of their instants (XPath), in UTC where they have no zone.
* yearMonthDurations and dayTimeDurations are ordered among themselves; all durations have = and != by their months and
  seconds, whatever their types: P0M is PT0S.
* Durations have the arithmetic of XPath (Functions and Operators, 8.4 and 9.7): durations are added to dateTimes, dates
  and times, and taken from them; two of one type are added, subtracted and divided; one is multiplied and divided by a
  number. Beyond that any duration goes with dateTimes and dates (XML Schema 1.1, E.3.3), two durations of other types
  make an xsd:duration, and each has a negative. Months are rounded to whole ones, a half up.
* A float or double beside a duration counts with the shortest digits that read back as it: PT1S * 1.0E-1 is PT0.1S.
* Booleans compare with false < true; simple strings by code points.
* Triple terms are equal if their parts are (one with NaN is not equal to itself), and have no order of their own.
* A language-tagged string, and a boolean or number of ill-typed form, have no effective boolean value: SPARQL 1.1 was
  written for RDF 1.0's plain literals and calls ill-typed forms false, SPARQL 1.2 and its tests make both an error.
* A decimal quotient that ends is exact, up to 1000 digits; any other is rounded half-even to 28 significant digits, or
  more where these would not reach 18 digits behind the point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import TypeVar

import numpy as np

from wukongs.csparql.terms import XSD
from wukongs.errors import BudgetExceeded
from wukongs.query.terms.temporal import EXACT, Duration, shifted
from wukongs.query.terms.values import (
    FALSE,
    TRUE,
    Kind,
    Number,
    Value,
    computed,
    duration_value,
    moment,
    moment_value,
    number_lexical,
    text_of,
    to_float32,
    to_float64,
    value_of,
)
from wukongs.store.canonical import triple_parts

DIGITS_MAX = 10_000
"""The most digits of an integer or decimal that arithmetic makes. Numbers that are squared again and again would take
all time and memory."""
Exact = TypeVar("Exact", int, Decimal)

_ZONE_S_MAX = 14 * 3600
_QUOTIENT_DIGITS = 28
_QUOTIENT_PLACES = 18
_QUOTIENT_DIGITS_MAX = 1000

_Data = Number | str | Duration
_COMPARISONS: dict[str, Callable[[_Data, _Data], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,  # type: ignore[operator]
    ">": lambda left, right: left > right,  # type: ignore[operator]
    "<=": lambda left, right: left <= right,  # type: ignore[operator]
    ">=": lambda left, right: left >= right,  # type: ignore[operator]
}
_ORDERED_KINDS = frozenset((Kind.BOOLEAN, Kind.STRING, Kind.DATETIME, Kind.DATE, Kind.TIME))
_MOMENT_KINDS = frozenset((Kind.DATETIME, Kind.DATE, Kind.TIME))
_ORDERED_DURATIONS = frozenset((XSD + "yearMonthDuration", XSD + "dayTimeDuration"))


def same_term(left: Value, right: Value) -> bool:
    return text_of(left) == text_of(right)


def effective_boolean_value(value: Value | None) -> bool | None:
    """Return the effective boolean value (17.2.2); None where there is none."""
    if value is None:
        return None
    if value.kind == Kind.BOOLEAN:
        return bool(value.data)
    if value.is_numeric:
        return value.data == value.data and value.data != 0
    return value.data != "" if value.kind == Kind.STRING else None


def from_truth(truth: bool | None) -> Value | None:
    return None if truth is None else TRUE if truth else FALSE


# --- comparisons ------------------------------------------------------------------------------------------------------


def compare(op: str, left: Value, right: Value) -> bool | None:
    """Apply = != < > <= >= to two values."""
    if left.is_numeric and right.is_numeric:
        kind = max(left.kind, right.kind)
        return _COMPARISONS[op](promoted(left, kind), promoted(right, kind))
    if left.kind == right.kind and left.kind in _ORDERED_KINDS:
        is_open = left.kind == Kind.DATE and _is_indeterminate(left, right)
        return None if is_open else _COMPARISONS[op](left.data, right.data)
    if op not in ("=", "!="):
        are_ordered = left.kind == right.kind == Kind.DURATION and left.datatype in _ORDERED_DURATIONS
        are_known = left.datatype == right.datatype and (are_ordered or left.kind == right.kind == Kind.GREGORIAN)
        return _COMPARISONS[op](left.data, right.data) if are_known else None
    equal = _known_equal(left, right)
    return equal if equal is None or op == "=" else not equal


def _is_indeterminate(left: Value, right: Value) -> bool:
    """Whether one of two dates has no zone and there are zones in which it is earlier, and others where it is not."""
    has_zone = [value.lexical[-1] == "Z" or value.lexical[-3] == ":" for value in (left, right)]
    return has_zone[0] != has_zone[1] and abs(left.number - right.number) <= _ZONE_S_MAX  # type: ignore[operator]


def _known_equal(left: Value, right: Value) -> bool | None:
    """RDFterm-equal (17.4.1.7) for values that have no common order."""
    if left.kind == right.kind == Kind.TRIPLE:
        return _equal_triples(str(left.data), str(right.data))
    if same_term(left, right):
        return True
    if left.kind == right.kind and (left.kind == Kind.DURATION or _are_of_one_type(left, right)):
        return left.data == right.data
    are_literals = left.is_literal and right.is_literal
    if are_literals and Kind.OPAQUE in (left.kind, right.kind) and Kind.LANG_STRING not in (left.kind, right.kind):
        return None
    return False


def _equal_triples(left: str, right: str) -> bool | None:
    """Whether the parts of two triple terms are equal: an error only where no other part is known to differ."""
    pairs = zip(triple_parts(left), triple_parts(right), strict=True)
    truths = [compare("=", value_of(one), value_of(other)) for one, other in pairs]
    return False if False in truths else None if None in truths else True


def _are_of_one_type(left: Value, right: Value) -> bool:
    return left.kind == Kind.GREGORIAN and left.datatype == right.datatype


def promoted(value: Value, kind: Kind) -> Number:
    """Return the number of a value in a kind at or above its own; integers and decimals stay as they are."""
    if kind == Kind.DOUBLE:
        return to_float64(value.number)
    if kind == Kind.FLOAT:
        return to_float32(value.number)
    return value.number


# --- arithmetic -------------------------------------------------------------------------------------------------------


def arithmetic(op: str, left: Value, right: Value) -> Value | None:
    """Apply + - * / to two values, with numeric type promotion; the quotient of two integers is a decimal. Dates,
    times and durations have the arithmetic that is said above."""
    if not (left.is_numeric and right.is_numeric):
        return _time_arithmetic(op, left, right)
    kind = max(left.kind, right.kind)
    first, second = promoted(left, kind), promoted(right, kind)
    if kind >= Kind.FLOAT:
        result = _float_arithmetic(op, float(first), float(second))
        return computed(kind, to_float32(result) if kind == Kind.FLOAT else result)
    if op == "/":
        return None if second == 0 else computed(Kind.DECIMAL, _bounded(quotient(Decimal(first), Decimal(second))))
    if kind == Kind.INTEGER:
        return computed(kind, _bounded(_integer_arithmetic(op, int(first), int(second))))
    return computed(kind, _bounded(_decimal_arithmetic(op, Decimal(first), Decimal(second))))


def _time_arithmetic(op: str, left: Value, right: Value) -> Value | None:
    """Apply + - * / to two values of which one is no number."""
    if op == "+" and left.kind == Kind.DURATION and right.kind in _MOMENT_KINDS:
        left, right = right, left
    if op == "*" and left.is_numeric:
        left, right = right, left
    if left.kind in _MOMENT_KINDS and op in ("+", "-"):
        if right.kind == Kind.DURATION:
            return _shifted(left, right if op == "+" else negated(right))
        if op == "-" and left.kind == right.kind:
            seconds = EXACT.subtract(Decimal(left.number), Decimal(right.number))
            return duration_value((0, seconds), "dayTimeDuration")
    if left.kind != Kind.DURATION:
        return None
    if right.is_numeric:
        return _scaled(op, left, right) if op in ("*", "/") else None
    if right.kind != Kind.DURATION:
        return None
    if op == "/":
        return _ratio(left, right)
    return duration_sum([left, right if op == "+" else negated(right)]) if op in ("+", "-") else None


def _shifted(value: Value, duration: Value | None) -> Value | None:
    """Add a duration to a dateTime, date or time; a time takes durations without months only."""
    parts = moment(value)
    if parts is None or duration is None or not isinstance(duration.data, tuple):
        return None
    if value.kind == Kind.TIME and duration.datatype == XSD + "yearMonthDuration":
        return None
    found = shifted(parts, duration.data)
    return None if found is None else moment_value(found, value.datatype.removeprefix(XSD))


def duration_sum(values: Sequence[Value | None]) -> Value | None:
    """Add durations, one at least; None if one is no duration, or months and seconds get two signs."""
    months, seconds = 0, Decimal(0)
    for value in values:
        if value is None or not isinstance(value.data, tuple):
            return None
        months, seconds = months + value.data[0], EXACT.add(seconds, value.data[1])
    types = {value.datatype for value in values if value is not None}
    name = types.pop().removeprefix(XSD) if len(types) == 1 else "duration"
    return duration_value((_bounded(months), _bounded(seconds)), name)


def _scaled(op: str, duration: Value, number: Value) -> Value | None:
    """Multiply a yearMonthDuration or dayTimeDuration by a number, or divide it by one."""
    assert isinstance(duration.data, tuple), duration
    factor = _decimal_of(number)
    if duration.datatype not in _ORDERED_DURATIONS or factor is None or not (op == "*" or factor):
        return None
    months, seconds = duration.data
    name = duration.datatype.removeprefix(XSD)
    if not factor.is_finite():
        return duration_value((0, Decimal(0)), name) if op == "/" else None
    if name == "yearMonthDuration":
        exact = Fraction(months) * Fraction(factor) if op == "*" else Fraction(months) / Fraction(factor)
        return duration_value((_bounded(math.floor(exact + Fraction(1, 2))), Decimal(0)), name)
    changed = EXACT.multiply(seconds, factor) if op == "*" else quotient(seconds, factor)
    return duration_value((0, _bounded(EXACT.plus(changed))), name)


def _decimal_of(value: Value) -> Decimal | None:
    """Return a number as a decimal, perhaps an infinite one; None for NaN."""
    number = value.number
    if not isinstance(number, float):
        return Decimal(number)
    return None if number != number else Decimal(number_lexical(value.kind, number).replace("INF", "Infinity"))


def _ratio(left: Value, right: Value) -> Value | None:
    """Divide a yearMonthDuration or dayTimeDuration by another of its type."""
    assert isinstance(left.data, tuple), left
    assert isinstance(right.data, tuple), right
    if left.datatype != right.datatype or left.datatype not in _ORDERED_DURATIONS:
        return None
    place = 0 if left.datatype == XSD + "yearMonthDuration" else 1
    first, second = Decimal(left.data[place]), Decimal(right.data[place])
    return None if second == 0 else computed(Kind.DECIMAL, _bounded(quotient(first, second)))


def _bounded(number: Exact) -> Exact:
    """Return a number that is not too long to go on with."""
    digits = number.bit_length() * 0.302 if isinstance(number, int) else _length(number)
    if digits > DIGITS_MAX:
        raise BudgetExceeded(
            f"arithmetic made a number of more than {DIGITS_MAX} digits: ROUND what is multiplied, or cast it to "
            "xsd:double; this limit is fixed"
        )
    return number


def _length(number: Decimal) -> int:
    """Return how many digits a decimal has as it is written, zeros included."""
    _, digits, exponent = number.as_tuple()
    return len(digits) + abs(exponent) if isinstance(exponent, int) else 0


def _float_arithmetic(op: str, first: float, second: float) -> float:
    """Apply op as IEEE 754 does. A 32-bit result rounded from this one is right: 53 bits are more than 2 * 24 + 1."""
    if op == "+":
        return first + second
    if op == "-":
        return first - second
    if op == "*":
        return first * second
    with np.errstate(all="ignore"):
        return float(np.float64(first) / np.float64(second))


def _integer_arithmetic(op: str, first: int, second: int) -> int:
    if op == "+":
        return first + second
    return first - second if op == "-" else first * second


def _decimal_arithmetic(op: str, first: Decimal, second: Decimal) -> Decimal:
    """Apply op exactly; adding zero to a product takes the sign off zero, which decimals do not have."""
    if op == "+":
        return EXACT.add(first, second)
    return EXACT.subtract(first, second) if op == "-" else EXACT.plus(EXACT.multiply(first, second))


def quotient(first: Decimal, second: Decimal) -> Decimal:
    """Divide two decimals, the second not zero.

    A quotient that ends has at most digits(first) + 4 * digits(second) digits: 1 / 2**k has fewer than k, and 2**k has
    at least 0.3 k.
    """
    digits = len(first.as_tuple().digits) + 4 * len(second.as_tuple().digits)
    exact = Context(prec=min(digits, _QUOTIENT_DIGITS_MAX))
    result = exact.divide(first, second)
    if exact.flags[Inexact]:
        rounded = Context(prec=max(_QUOTIENT_DIGITS, result.adjusted() + 1 + _QUOTIENT_PLACES))
        result = rounded.divide(first, second)
    return EXACT.plus(result)


def negated(value: Value) -> Value | None:
    """Unary minus; the negative of a derived integer type is an xsd:integer. Durations have one, too."""
    if isinstance(value.data, tuple):
        months, seconds = value.data
        return duration_value((-months, EXACT.minus(seconds)), value.datatype.removeprefix(XSD))
    if not value.is_numeric:
        return None
    number = value.number
    return computed(value.kind, EXACT.minus(number) if isinstance(number, Decimal) else -number)
