"""The figures of a run as tables and pictures need them: by experiment and metric, in one unit, in order.

Geometric means are added, and published figures find the line that they stand beside.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wukongs.bench.harness import interval
from wukongs.bench.published import EXPERIMENTS, GEOMETRIC_MEAN, P99, PUBLISHED, SETS, Published
from wukongs.bench.report.document import number
from wukongs.bench.report.reading import OURS, Case, Figure, Results, convert, is_time

USUAL: Mapping[str, float | str] = {"rate": 1.0, "nodes": 1.0}
"""The case of a published figure that does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: a figure, or the geometric mean of several (members)."""

    query: str
    engine: str
    case: Case
    members: tuple[Figure, ...]
    median: float
    low: float | None
    high: float | None
    p99: float | None

    @property
    def busy(self) -> float:
        return max((member.busy or 0.0 for member in self.members), default=0.0)


@dataclass(frozen=True, slots=True)
class Group:
    """All lines of one metric of an experiment, in one unit."""

    experiment: str
    metric: str
    unit: str
    lines: tuple[Line, ...]

    @property
    def cases(self) -> list[Case]:
        return sorted({line.case for line in self.lines}, key=case_key)

    def of(self, query: str, case: Case, engine: str = OURS) -> Line | None:
        return next((one for one in self.lines if (one.query, one.case, one.engine) == (query, case, engine)), None)

    def main_case(self) -> Case:
        """Return the case with most lines; of several the one at the usual rate, and of these the largest."""
        count = {case: sum(line.case == case for line in self.lines) for case in self.cases}
        return max(self.cases, key=lambda case: (count[case], has(case, USUAL), size_of(case)))


def groups_of(results: Results) -> list[Group]:
    """Return the figures of a run by experiment and metric: those of the papers first, in their order."""
    found: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in results.figures.values():
        for (experiment, metric, unit), members in found.items():
            scale = convert(1.0, figure.unit, unit)
            if (experiment, metric) == (figure.experiment, figure.metric) and scale is not None:
                members.append(_scaled(figure, scale, unit))
                break
        else:
            found[figure.experiment, figure.metric, figure.unit] = [figure]
    order = [*EXPERIMENTS, *(key[0] for key in found)]
    keys = sorted(found, key=lambda key: order.index(key[0]))
    return [Group(*key, tuple(_lines(found[key]))) for key in keys]


def _scaled(figure: Figure, scale: float, unit: str) -> Figure:
    def moved(value: float | None) -> float | None:
        return None if value is None else value * scale

    return replace(
        figure,
        unit=unit,
        values=tuple(value * scale for value in figure.values),
        median=figure.median * scale,
        low=moved(figure.low),
        high=moved(figure.high),
        p99=moved(figure.p99),
    )


def _lines(figures: Sequence[Figure]) -> Iterator[Line]:
    def place(figure: Figure) -> tuple[Any, ...]:
        return natural(figure.query), case_key(figure.case), figure.engine != OURS, natural(figure.engine)

    ordered = sorted(figures, key=place)
    for one in ordered:
        yield Line(one.query, one.engine, one.case, (one,), one.median, one.low, one.high, one.p99)
    if not ordered or not is_time(ordered[0].unit):
        return
    for case, engine in dict.fromkeys((one.case, one.engine) for one in ordered):
        queries = {one.query: one for one in ordered if (one.case, one.engine) == (case, engine)}
        for names in SETS:
            members = tuple(queries[name] for name in names if name in queries)
            if len(members) == len(names) and all(one.median > 0 for one in members):
                yield _geometric_mean(engine, case, members)
                break


def _geometric_mean(engine: str, case: Case, members: tuple[Figure, ...]) -> Line:
    value = math.exp(float(np.mean([math.log(one.median) for one in members])))
    drawn = [one.draws(place) for place, one in enumerate(members)]
    logs = [np.log(draws) for draws in drawn if draws is not None and draws.min() > 0]
    low, high = interval(np.exp(np.mean(logs, axis=0))) if len(logs) == len(members) else (None, None)
    return Line(GEOMETRIC_MEAN, engine, case, members, value, low, high, None)


def published_beside(group: Group) -> list[tuple[Line, Published]]:
    """Return each published figure with the line of ours that it stands beside: of those whose case fits, the one with
    most data."""
    found = []
    for figure in PUBLISHED:
        if figure.experiment == group.experiment and figure.metric.removesuffix(P99) == group.metric:
            fitting = [
                line
                for line in group.lines
                if (line.engine, line.query) == (OURS, figure.query) and has(line.case, {**USUAL, **figure.case})
            ]
            if fitting:
                found.append((max(fitting, key=lambda line: size_of(line.case)), figure))
    return found


def has(case: Case, wanted: Mapping[str, float | str]) -> bool:
    """Tell whether a case has these values, where it has the names at all."""
    return all(dict(case).get(name, value) == value for name, value in wanted.items())


def size_of(case: Case) -> tuple[float, ...]:
    return tuple(float(value) for _, value in case if isinstance(value, int | float))


def natural(text: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key by which L2 stands before L10, and the geometric mean last."""
    parts = re.findall(r"\d+|\D+", text)
    key = tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)
    return ((True, text == GEOMETRIC_MEAN, ""), *key)


def case_key(case: Case) -> tuple[tuple[str, bool, float, str], ...]:
    return tuple(
        (name, isinstance(value, str), 0.0 if isinstance(value, str) else float(value), str(value))
        for name, value in case
    )


def words(case: Case) -> str:
    shown = ((name, value if isinstance(value, str | bool) else number(value)) for name, value in case)
    return ", ".join(f"{name} {value}" for name, value in shown)


def title_of(group: Group) -> str:
    return f"{group.experiment}: {group.metric}, {group.unit}"
