"""How far the planner's estimates are from the rows that the steps made: the q-error of each step of S1-S6 and others.

The q-error of a step is max(estimated / actual, actual / estimated), both taken as at least one row: 1 is exact.
"""

from __future__ import annotations

import re

import wukongs
from bench.harness import Report
from bench.oneshot.queries import OTHER_QUERIES, S_QUERIES

TITLE = "Estimated and actual rows of plan steps"
_STEP = re.compile(r"^ +(\d+)  (\w+) .*  ~(\S+) rows +(\d+) rows$", re.MULTILINE)


def bench_estimates(report: Report, engine: wukongs.Engine, constants: dict[str, str]) -> None:
    """Run each query with analyze and add its steps; report.checks already compares the answers."""
    errors = []
    for query in (*S_QUERIES, *OTHER_QUERIES):
        try:
            text = engine.explain(query.text(constants), analyze=True)
        except wukongs.UnsupportedFeatureError:
            continue  # named in a note where the answers are compared
        for number, kind, estimated, actual in _STEP.findall(text):
            error = q_error(float(estimated), int(actual))
            errors.append(error)
            row = {"query": query.name, "step": int(number), "kind": kind, "estimated": float(estimated)}
            report.add(TITLE, {**row, "actual": int(actual), "q-error": error})
    errors.sort()
    report.notes.append(
        f"q-error of {len(errors)} steps: median {errors[len(errors) // 2]:.2g}, largest {errors[-1]:.3g}, "
        f"{sum(error <= 2 for error in errors)} within a factor of 2. Estimates under LIMIT are of the whole answer."
    )


def q_error(estimated: float, actual: float) -> float:
    """Return how many times an estimate is too large or too small; fewer than one row count as one."""
    estimated, actual = max(estimated, 1.0), max(actual, 1.0)
    return max(estimated / actual, actual / estimated)
