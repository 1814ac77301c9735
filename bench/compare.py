"""Two checkouts beside each other: one benchmark, run by turns, with a ratio for each figure.

Times of a shared machine wander by more than most changes gain. So the two are run one after the other, again and
again, each time in the other order; a ratio is taken within each pair, and the median of the ratios is told with the
interval that holds the true median with 95 % or more. A run waits until the machine is idle. If that does not come, it
is marked, and so is the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from wukongs.bench.harness import ROOT, Report, WrongAnswer, summary
from wukongs.bench.idle import wait_until_idle

ROUNDS = 7
IDLE_WAIT_S = 120.0
Figure = tuple[str, str, str]
"""A table's title, the words of the row, and the column."""


class NoFigures(Exception):
    """A run of a benchmark has failed, or has reported nothing that the other checkout reports, too."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """this and other: medians of the runs; ratio: the median of this / other within pairs; low, high: its interval."""

    this: float
    other: float
    ratio: float
    low: float
    high: float


def compare(
    other: Path,
    benchmark: str,
    report: Path | None,
    arguments: Sequence[str] = (),
    rounds: int = ROUNDS,
    idle_wait_s: float = IDLE_WAIT_S,
) -> int:
    """Run a benchmark of this checkout and of another one by turns, and tell the ratios. Return the exit status."""
    checkouts = {"this": ROOT, "other": other.resolve()}
    found: dict[str, list[dict[Figure, float]]] = {"this": [], "other": []}
    answers: dict[str, dict[str, Any]] = {}
    busy_count = 0
    try:
        for name, checkout in checkouts.items():
            print(f"warming up: {name}", file=sys.stderr)
            told = _run(checkout, benchmark, arguments)
            answers[name] = {check["what"]: check["value"] for check in told["checks"]}
        for turn in range(rounds):
            for name in ("this", "other") if turn % 2 == 0 else ("other", "this"):
                busy_count += not wait_until_idle(idle_wait_s)
                print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
                found[name].append(figures(_run(checkouts[name], benchmark, arguments)))
        result = Report(f"compare-{benchmark}", {"rounds": rounds, "runs on a busy machine": busy_count})
        _check_answers(result, answers["this"], answers["other"])
    except (NoFigures, WrongAnswer) as error:
        print(f"wukongs: bench compare: {error}", file=sys.stderr)
        return 1
    for (title, row, column), ratio in ratios(found["this"], found["other"]).items():
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        told = {"figure": f"{row}: {column}", "this": ratio.this, "other": ratio.other}
        result.add(title, {**told, "this / other": f"{ratio.ratio:.3f}", "interval": interval})
    confidence = 100 * confidence_of(rounds, _outside(rounds))
    result.notes.append(f"An interval holds the true median of the ratios with {confidence:.1f} %.")
    if busy_count:
        result.notes.append(f"{busy_count} of {2 * rounds} runs began on a busy machine.")
    result.publish(report)
    return 0


def _check_answers(result: Report, this: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Check that both checkouts have found the same, where both have looked. Raises WrongAnswer, NoFigures."""
    shared = [what for what in this if what in other]
    if not shared:
        raise NoFigures("the two checkouts check no answer in common: their times cannot be compared")
    for what in shared:
        result.check(what, other[what], this[what])


def figures(found: Mapping[str, Any]) -> dict[Figure, float]:
    """Return the figures of a report. A row is named by the cells that are no numbers, or by its place."""
    told = {}
    for title, rows in found["tables"].items():
        for place, row in enumerate(rows):
            words = ", ".join(str(cell) for cell in row.values() if isinstance(cell, str)) or f"row {place + 1}"
            for column, cell in row.items():
                if isinstance(cell, int | float) and not isinstance(cell, bool):
                    told[title, words, column] = float(cell)
    return told


def ratios(this: Sequence[Mapping[Figure, float]], other: Sequence[Mapping[Figure, float]]) -> dict[Figure, Ratio]:
    """Return the ratio of each figure that both checkouts report in all runs, but for those that never differ."""
    shared = [key for key in this[0] if all(key in run for run in (*this, *other))]
    told = {}
    for key in shared:
        pairs = [(mine[key], theirs[key]) for mine, theirs in zip(this, other, strict=True)]
        if all(theirs > 0 for _, theirs in pairs) and any(mine != theirs for mine, theirs in pairs):
            ordered = sorted(mine / theirs for mine, theirs in pairs)
            out = _outside(len(ordered))
            mine, theirs = (summary(side)["median"] for side in zip(*pairs, strict=True))
            told[key] = Ratio(mine, theirs, summary(ordered)["median"], ordered[out], ordered[-1 - out])
    return told


def confidence_of(count: int, outside: int) -> float:
    """Return how likely the median of a distribution lies between the values of `count` independent draws when the
    `outside` least and the `outside` greatest are left out."""
    left_out = sum(comb(count, below) for below in range(outside + 1))
    return 1.0 - left_out / float(1 << (count - 1))


def _outside(count: int) -> int:
    """Return how many values may be left out at each end for an interval of 95 %, none if there are too few."""
    outside = 0
    while confidence_of(count, outside + 1) >= 0.95:
        outside += 1
    return outside


def _run(checkout: Path, benchmark: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the report of one run. Raises NoFigures."""
    python = checkout / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python if python.exists() else sys.executable), "-m", "wukongs.bench", benchmark]
        done = subprocess.run(
            [*command, *arguments, "--report", folder],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        reports = sorted(Path(folder).glob("*.json"))
        if done.returncode != 0 or not reports:
            raise NoFigures(f"{checkout}: {' '.join(command[1:])} ended with {done.returncode}: {done.stderr.strip()}")
        results = Path(folder) / "results.jsonl"
        if results.exists():
            return as_tables(map(json.loads, results.read_text(encoding="utf-8").splitlines()))
        told: dict[str, Any] = json.loads(reports[0].read_text(encoding="utf-8"))
        return told


def as_tables(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the lines of a run as a report has them: medians in tables, rows as what was checked."""
    tables: dict[str, list[dict[str, Any]]] = {}
    checks = {}
    for line in lines:
        if "skipped" not in line:
            words = f"{line['query']}, {line['engine']}, " + ", ".join(f"{a} {b}" for a, b in line["case"].items())
            row = {"figure": words, f"{line['metric']}, {line['unit']}": line["median"]}
            tables.setdefault(line["experiment"], []).append(row)
            checks[f"{line['experiment']}, {words}: rows"] = line["rows"]
    return {"tables": tables, "checks": [{"what": what, "value": rows} for what, rows in checks.items()]}
