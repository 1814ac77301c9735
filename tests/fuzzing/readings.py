"""Other readings of operators and functions than the engine's, which SPARQL 1.1 allows or which are known of a library.

Under a reading the definitions evaluate a query as that system would: if they give its answer then, the reading is what
the two differ in, and nothing else.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.fuzzing import definitions
from wukongs.query.expressions import scalar_evaluator
from wukongs.query.terms import value_operators, values
from wukongs.query.terms.temporal import DateTime, shifted
from wukongs.query.terms.value_operators import arithmetic, compare
from wukongs.query.terms.values import Kind, Value, string, text_of


def _compare_more(op: str, left: Value, right: Value) -> bool | None:
    """17.3.1 allows more comparisons: of language-tagged strings of one language, and of any term with itself."""
    known = compare(op, left, right)
    if known is None and text_of(left) == text_of(right):
        return op in ("<=", ">=")
    tagged = left.kind == right.kind == Kind.LANG_STRING and left.language == right.language
    return compare(op, string(left.lexical), string(right.lexical)) if known is None and tagged else known


def _compare_without_zone(op: str, left: Value, right: Value) -> bool | None:
    """XML Schema leaves open which is earlier, where a zone of up to 14 hours would decide."""
    if left.kind == right.kind == Kind.DATETIME and _has_zone(left) != _has_zone(right):
        assert isinstance(left.data, int | float | Decimal)
        assert isinstance(right.data, int | float | Decimal)
        if abs(left.data - right.data) <= 14 * 3600:  # type: ignore[operator]
            return None
    return compare(op, left, right)


def _has_zone(value: Value) -> bool:
    return re.search(r"(Z|[+-][0-9]{2}:[0-9]{2})$", value.lexical) is not None


def _divide_zero(op: str, left: Value, right: Value) -> Value | None:
    """No number comes of 0 divided by a decimal with a fraction."""
    if op == "/" and left.kind <= Kind.DECIMAL and right.kind == Kind.DECIMAL and left.data == 0 and right.number % 1:
        return None
    return arithmetic(op, left, right)


def _less_time(op: str, left: Value, right: Value) -> Value | None:
    """No product or quotient of a duration; a difference of two moments only if both have a zone, or none has."""
    kinds = {left.kind, right.kind}
    if Kind.DURATION in kinds and op in ("*", "/"):
        return None
    if kinds <= _MOMENTS and len(kinds) == 1 and _has_zone(left) != _has_zone(right):
        return None
    return arithmetic(op, left, right)


def _durations_in_part(op: str, left: Value, right: Value) -> bool | None:
    """XML Schema's order of durations: one is less if it is after each of four starts (1.1, 3.3.6.1)."""
    if op in ("=", "!=") or not (left.kind == right.kind == Kind.DURATION):
        return compare(op, left, right)
    ends = [[shifted(start, side.data) for start in _STARTS] for side in (left, right)]  # type: ignore[arg-type]
    found = {_SIGNS[op](one.instant(), other.instant()) for one, other in zip(*ends, strict=True) if one and other}
    return found.pop() if len(found) == 1 else None


_MOMENTS = {Kind.DATETIME, Kind.DATE, Kind.TIME}
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_STARTS = [
    DateTime(year, month, 1, 0, 0, Decimal(0), 0) for year, month in ((1696, 9), (1697, 2), (1903, 3), (1903, 7))
]


def _lower_tag(value: Value) -> Value | None:
    """A language tag in lower case, which is what RDF 1.1 compares; RFC 5646 recommends en-GB."""
    return string(value.language.partition("--")[0]) if value.is_literal else None


def _plain_digits(number: float | np.float32) -> str:
    """Digits without an exponent."""
    text = str(number)
    return text if text in ("nan", "inf", "-inf") else format(Decimal(text).normalize(), "f")


def _of_text(cast: Callable[[Value], Value | None]) -> Callable[[Value], Value | None]:
    return lambda value: cast(string(value.lexical) if value.kind in (Kind.LANG_STRING, Kind.OPAQUE) else value)


def _comparing(made: Callable[[str, Value, Value], bool | None]) -> Callable[[], ExitStack]:
    return lambda: _patched(patch.object(scalar_evaluator, "compare", made))


def _patched(*patches: object) -> ExitStack:
    stack = ExitStack()
    for each in patches:
        stack.enter_context(each)  # type: ignore[arg-type]
    return stack


_CASTS = {name: _of_text(cast) for name, cast in scalar_evaluator.CASTS.items()}

READINGS: dict[str, Callable[[], ExitStack]] = {
    "reading: < compares language-tagged strings, and any term with itself": _comparing(_compare_more),
    "reading: a dateTime without zone has no fixed order to one with it": _comparing(_compare_without_zone),
    "reading: less arithmetic of times and durations, more comparisons of durations": lambda: _patched(
        patch.object(scalar_evaluator, "arithmetic", _less_time),
        patch.object(value_operators, "arithmetic", _less_time),
        patch.object(scalar_evaluator, "compare", _durations_in_part),
        patch.object(definitions, "sum_of_durations", lambda values: None),
    ),
    "reading: LANG gives lower case": lambda: _patched(patch.dict(scalar_evaluator.FUNCTIONS, LANG=_lower_tag)),
    "reading: 0 divided by a decimal with a fraction is an error": lambda: _patched(
        patch.object(scalar_evaluator, "arithmetic", _divide_zero)
    ),
    "reading: computed doubles are written without exponent": lambda: _patched(
        patch.object(values, "_float_lexical", _plain_digits), patch.object(values, "_double_lexical", _plain_digits)
    ),
    "reading: language-tagged strings and ill-typed literals can be cast": lambda: _patched(
        patch.dict(scalar_evaluator.CASTS, _CASTS)
    ),
}
