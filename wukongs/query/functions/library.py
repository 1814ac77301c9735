"""The function library: functions of values by name, one module per topic.

A function takes the values of its arguments, none of them an error, and returns a value or None, which is an error. The
names are those of csparql/functions.py, and IRIs in angle brackets for the casts. What looks at errors (BOUND, IF,
COALESCE, the connectives) and what depends on the moment (NOW, RAND) is in scalar_evaluator.py.
"""

from __future__ import annotations

from collections.abc import Callable

from wukongs.query.functions import casts, numbers, patterns, strings, terms, times
from wukongs.query.terms.values import Value

FUNCTIONS: dict[str, Callable[..., Value | None]] = {
    **terms.FUNCTIONS,
    **strings.FUNCTIONS,
    **patterns.FUNCTIONS,
    **numbers.FUNCTIONS,
    **times.FUNCTIONS,
    **casts.FUNCTIONS,
}
