"""Other readings of operators and functions than the engine's, which SPARQL 1.1 allows or which are known of a library.

Under a reading the definitions evaluate a query as that system would: if they give its answer then, the reading is what
the two differ in, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from unittest.mock import patch

import numpy as np

from wukongs.query.expressions import scalar_evaluator
from wukongs.query.terms import values
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
