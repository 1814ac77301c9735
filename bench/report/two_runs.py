"""Two runs beside each other: `wukongs bench compare BEFORE AFTER`.

Times, rates and sizes that the system tells are compared by their ratio and its 95 % interval: a figure has changed if
the interval does not hold 1. Counts of work (rows, bytes, probes) are the same in each run of the same code, so any
difference counts; but for counts that go by the clock, such as messages of the protocol of nodes. `--against` of
`python -m wukongs.bench` is for two checkouts, which it runs by turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal

from wukongs.bench.idle import IDLE_SHARE
from wukongs.bench.record import settled
from wukongs.bench.report.document import LOUD, Document, bounds, number, percent
from wukongs.bench.report.groups import natural, words
from wukongs.bench.report.reading import (
    Bounded,
    Figure,
    Key,
    Results,
    ResultsError,
    is_count,
    is_rate,
    ratio_of,
    read_results,
)

Verdict = Literal["worse", "better", "the same", "open"]
_TITLES = (
    (False, "worse", "Slower, or takes more"),
    (True, "worse", "Counts of work that grew"),
    (False, "better", "Quicker, or takes less"),
    (True, "better", "Counts of work that shrank"),
    (False, "open", "Without an interval: too few samples, zeros, or other units"),
)
_BY_THE_CLOCK = {
    *(("nodes", metric) for metric in ("all messages", "all moved", "messages", "bytes")),
    ("fault-tolerance", "syncs"),
    ("soak", "files"),
}
"""Counts that grow with the time that something takes, such as those with the protocol of nodes in them."""
_ALIKE = ("benchmark", "machine", "versions", "data", "settings")


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of both runs. ratio: after by before (None: there is none); cost: how many times worse it is, 1 or less
    if it is not."""

    before: Figure
    after: Figure
    ratio: Bounded | None
    verdict: Verdict
    cost: float

    @property
    def is_count(self) -> bool:
        """Tell whether it is a count of work, which is the same in each run of the same code."""
        goes_by_the_clock = (self.after.experiment, self.after.metric) in _BY_THE_CLOCK
        return is_count(self.after.unit) and self.before.unit == self.after.unit and not goes_by_the_clock


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that two runs say of each other. only: keys that one of them has."""

    before: Results
    after: Results
    changes: tuple[Change, ...]
    only_before: tuple[Key, ...]
    only_after: tuple[Key, ...]

    def worse_than(self, ratio: float) -> list[Change]:
        """Return what is worse by more than a ratio, beyond its interval."""
        return [change for change in self.changes if change.verdict == "worse" and change.cost > ratio]

    def to_text(self) -> str:
        """Return tables for a terminal."""
        document = Document(f"{self.before.folder} and {self.after.folder}")
        document.say(*_warnings(self.before, self.after))
        other = [(one.before, one.after) for one in self.changes if one.before.rows != one.after.rows]
        if other:
            document.heading(f"{LOUD}Answers with another number of rows: their figures are not of the same work")
            rows = [(*_names(before.key), str(before.rows), str(after.rows)) for before, after in other]
            document.table((*_COLUMNS, "before", "after"), rows)
        for are_counts, verdict, title in _TITLES:
            found = [one for one in self.changes if (one.is_count, one.verdict) == (are_counts, verdict)]
            found.sort(key=lambda one: -one.cost if verdict == "worse" else one.cost)
            if found:
                document.heading(title)
                columns = (*_COLUMNS, "before", "after", "unit", "after / before", "95 % interval", "remark")
                document.table(columns, [_row(one) for one in found])
        same = sum(one.verdict == "the same" for one in self.changes)
        document.say(
            f"The same: {same} of {len(self.changes)} figures. By chance one in twenty that did not change is beyond "
            "its interval."
        )
        for run, other_run, keys in (
            (self.before, self.after, self.only_before),
            (self.after, self.before, self.only_after),
        ):
            if keys:
                document.heading(f"In {run.folder} only")
                document.table((*_COLUMNS, "why"), [(*_names(key), _why(other_run, key)) for key in keys])
        return document.to_text()


_COLUMNS = ("experiment", "query", "engine", "case", "metric")


def compare_runs(before: Path, after: Path) -> Comparison:
    """Read two runs and compare all figures that both have. Raises ResultsError (also if there are none)."""
    first, second = read_results(before), read_results(after)
    keys = sorted({**first.figures, **second.figures}, key=_order)
    shared = [key for key in keys if key in first.figures and key in second.figures]
    if not shared:
        raise ResultsError(
            f"{before} and {after} have no figure in common: compare runs of the same benchmark, queries and cases"
        )
    changes = tuple(change_of(first.figures[key], second.figures[key]) for key in shared)
    only = [tuple(key for key in keys if key not in there.figures) for there in (second, first)]
    return Comparison(first, second, changes, *only)


def change_of(before: Figure, after: Figure) -> Change:
    """Compare a figure with the same one of a later run."""
    ratio = ratio_of([(after, before)])
    unjudged = Change(before, after, ratio, "open", 1.0)
    if unjudged.is_count:
        cost = after.median / before.median if before.median else inf if after.median else 1.0
        verdict: Verdict = "worse" if cost > 1 else "better" if cost < 1 else "the same"
        return Change(before, after, Bounded(cost, None, None) if before.median else None, verdict, cost)
    if ratio is None:
        return unjudged
    cost = 1 / ratio.value if is_rate(after.unit) else ratio.value
    if ratio.low is None or ratio.high is None:
        return Change(before, after, ratio, "open", cost)
    verdict = "the same" if ratio.low <= 1 <= ratio.high else "worse" if cost > 1 else "better"
    return Change(before, after, ratio, verdict, cost)


def _order(key: Key) -> tuple[object, ...]:
    return key[0], natural(key[1]), key[2], natural(words(key[3])), key[4]


def _names(key: Key) -> tuple[str, ...]:
    experiment, query, engine, case, metric = key
    return experiment, query, engine, words(case), metric


def _row(change: Change) -> tuple[str, ...]:
    before, after, ratio = change.before, change.after, change.ratio
    busy = [
        f"{name} {percent(one.busy)}"
        for name, one in (("before", before), ("after", after))
        if one.busy is not None and one.busy > IDLE_SHARE
    ]
    unit = after.unit if before.unit == after.unit else f"{before.unit}, {after.unit}"
    told = ("", "") if ratio is None else (number(ratio.value), bounds(ratio.low, ratio.high))
    remark = f"{LOUD}busy: {', '.join(busy)}" if busy else ""
    return *_names(after.key), number(before.median), number(after.median), unit, *told, remark


def _why(other: Results, key: Key) -> str:
    found = other.skipped.get(key[:4])
    return "" if found is None else f"not measured there: {found.why}"


def _warnings(before: Results, after: Results) -> Iterator[str]:
    for run in (before, after):
        if not run.is_complete:
            yield f"{LOUD}PARTIAL: {run.folder} did not do all that it was to do."
        busy = sum((figure.busy or 0.0) > IDLE_SHARE for figure in run.figures.values())
        if busy:
            yield f"{LOUD}BUSY MACHINE: {busy} of {len(run.figures)} figures of {run.folder}."
        yield from (f"{LOUD}{run.folder}: {note}." for note in run.notes)
    for name in _ALIKE:
        here, there = (settled(run.about.get(name)) for run in (before, after))
        if here != there:
            yield f"{LOUD}The two runs have another {name}: {_difference(here, there)}."


def _difference(before: object, after: object) -> str:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f"{before} and {after}"
    names: Sequence[str] = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return "; ".join(f"{name} {before.get(name)} and {after.get(name)}" for name in names)
