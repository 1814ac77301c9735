"""Conditions: filters that a kernel decides by ids alone, right behind the steps of a compiled plan.

A filter is made of conditions if it is a comparison, or some of them under &&, of a variable with a variable or with a
number, date-time or date that its id carries; or a `!=` of a variable and an IRI. The kernel decides what
store/value_kernels.py decides. If it meets a row of which ids do not tell (a string, a number with too many digits),
the executor evaluates the query in its place. An error and false both drop a row, so && needs no third truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.algebra import Call, Expression
from wukongs.csparql.terms import Term, Variable
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans.dataset import Resolve
from wukongs.store.dtypes import NO_MATCH, Int64Array
from wukongs.store.term_ids import OPS, inlined_id, numeric_values
from wukongs.store.value_kernels import (
    KIND_DATE,
    KIND_DATE_LOCAL,
    KIND_DATE_TIME,
    KIND_DATE_TIME_LOCAL,
    KIND_DECIMAL,
    KIND_DOUBLE,
    KIND_INTEGER,
)

_KINDS = (
    *(KIND_INTEGER, KIND_DECIMAL, KIND_DOUBLE),
    *(KIND_DATE_TIME, KIND_DATE_TIME_LOCAL, KIND_DATE, KIND_DATE_LOCAL),
)
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison."""

    op: str
    left: Variable
    right: Variable | Term

    def row(self, columns: Sequence[Variable], resolve: Resolve) -> tuple[int, int, int, int]:
        """Return it as plan_layout says, over rows with these columns."""
        left = columns.index(self.left)
        if isinstance(self.right, Variable):
            return OPS[self.op], left, columns.index(self.right), NO_MATCH
        if self.right.is_iri:
            return layout.IS_OTHER, left, -1, resolve(self.right)
        return OPS[self.op], left, -1, int(inlined_id(self.right.text)[0])  # type: ignore[index]


def conditions_of(filters: Sequence[Expression], bound: frozenset[Variable]) -> tuple[Condition, ...] | None:
    """Return the conditions that filters are made of, None if they are more than that. bound: the variables that all
    rows bind."""
    found: list[Condition] = []
    for expression in filters:
        if not isinstance(expression, Call):
            return None
        if expression.op == "&&":
            parts = conditions_of(expression.arguments, bound)
            if parts is None:
                return None
            found += parts
            continue
        condition = _comparison(expression)
        if condition is None or not bound.issuperset(_variables(condition)):
            return None
        found.append(condition)
    return tuple(found)


def _variables(condition: Condition) -> list[Variable]:
    return [end for end in (condition.left, condition.right) if isinstance(end, Variable)]


def _comparison(call: Call) -> Condition | None:
    if call.op not in _MIRRORED:
        return None
    op, left, right = _sides(call)
    if not isinstance(left, Variable) or not isinstance(right, Variable | Term):
        return None
    return Condition(op, left, right) if isinstance(right, Variable) or _is_decidable(op, right) else None


def _sides(call: Call) -> tuple[str, Expression, Expression]:
    """Return a comparison with a term on the right, if there is one."""
    left, right = call.arguments
    return (_MIRRORED[call.op], right, left) if isinstance(left, Term) else (call.op, left, right)


def compared_with_string(condition: Expression) -> tuple[str, Variable, str] | None:
    """Return the operator, the variable and the text of the string, with quotes, if a condition compares these."""
    if not isinstance(condition, Call) or condition.op not in _MIRRORED:
        return None
    op, left, right = _sides(condition)
    if isinstance(left, Variable) and isinstance(right, Term) and right.text[0] == right.text[-1] == '"':
        return op, left, right.text
    return None


def _is_decidable(op: str, constant: Term) -> bool:
    if constant.is_iri:
        return op == "!="
    number = inlined_id(constant.text)
    return number is not None and int(numeric_values(number)[0][0]) in _KINDS


def table_of(conditions: Sequence[Condition], columns: Sequence[Variable], resolve: Resolve) -> Int64Array:
    """Return conditions for the kernel: int64[n, CONDITION_WIDTH]."""
    rows = [condition.row(columns, resolve) for condition in conditions]
    return np.array(rows, np.int64).reshape(-1, layout.CONDITION_WIDTH)
