# mypy: disallow-untyped-defs=false
"""The kernel of conditions: it keeps the rows of a compiled plan that fulfil them."""

from __future__ import annotations

from wukongs.query.plans.plan_layout import (
    CONDITION_LEFT,
    CONDITION_OP,
    CONDITION_RIGHT,
    CONDITION_TERM,
    IS_OTHER,
)
from wukongs.store.jit import njit_uncounted
from wukongs.store.value_kernels import numeric_value, verdict_of


@njit_uncounted
def keep_rows(rows, count, conditions):
    """Move the rows that fulfil all conditions to the beginning, in their order.

    Parameters
    ----------
    rows : int64[n, width]                       The first `count` are looked at.
    conditions : int64[k, CONDITION_WIDTH]

    Returns how many there are; -1 if ids do not tell of one of the rows whether it fulfils a condition."""
    for c in range(conditions.shape[0]):
        op, left, right = conditions[c, CONDITION_OP], conditions[c, CONDITION_LEFT], conditions[c, CONDITION_RIGHT]
        term = conditions[c, CONDITION_TERM]
        other_kind, other = numeric_value(term)
        kept = 0
        for i in range(count):
            if op == IS_OTHER:
                verdict = 1 if rows[i, left] != term else 0
            else:
                if right >= 0:
                    other_kind, other = numeric_value(rows[i, right])
                kind, value = numeric_value(rows[i, left])
                verdict = verdict_of(op, kind, value, other_kind, other)
            if verdict < 0:
                return -1
            if verdict == 1:
                if kept < i:
                    for column in range(rows.shape[1]):
                        rows[kept, column] = rows[i, column]
                kept += 1
        count = kept
    return count
