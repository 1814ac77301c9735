"""The results of one run, read from its folder: `run.json` and `results.jsonl`.

* A key is (experiment, query, engine, case, metric); a later line with the same key takes the place of the earlier one.
* A figure takes the place of an earlier reason why it was not measured.
* A line that is not whole is left out, and said: a run that is killed leaves one. A line that is whole and wrong is
  refused, with its number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wukongs.bench.harness import P99_SAMPLES_MIN, SAMPLES_MIN, bootstrap_medians, interval
from wukongs.errors import WukongsError

OURS = "wukongs"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES = {"bytes": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_MEASURED_SIZES = {*_BYTES, "%"} - {"bytes"}
_PARTS = ("machine", "versions", "data", "settings")
Case = tuple[tuple[str, Any], ...]
Key = tuple[str, str, str, Case, str]


class ResultsError(WukongsError):
    """A folder without the results of a run, or results that cannot be read: what, where, what next."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure: median and 95 % interval (None: not known). values: samples, at most 1000 of `count`."""

    experiment: str
    query: str
    engine: str
    case: Case
    metric: str
    unit: str
    values: tuple[float, ...]
    count: int
    median: float
    low: float | None
    high: float | None
    p99: float | None
    rows: int | None
    checked: str | None
    busy: float | None

    @property
    def key(self) -> Key:
        return self.experiment, self.query, self.engine, self.case, self.metric

    def draws(self, seed: int) -> NDArray[np.float64] | None:
        """Return bootstrapped medians, None if there are too few samples for that."""
        return bootstrap_medians(self.values, seed) if len(self.values) >= SAMPLES_MIN else None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was not measured, and why."""

    experiment: str
    query: str
    engine: str
    case: Case
    why: str


@dataclass(slots=True)
class Results:
    """A run: about is its run.json; notes say what was left out while reading."""

    folder: Path
    about: Mapping[str, Any]
    figures: dict[Key, Figure] = field(default_factory=dict)
    skipped: dict[tuple[str, str, str, Case], Skipped] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return self.about.get("is_complete") is True


@dataclass(frozen=True, slots=True)
class Bounded:
    """A value, such as the ratio of two medians, and its 95 % interval, None where that is not known."""

    value: float
    low: float | None
    high: float | None


def read_results(place: Path) -> Results:
    """Read the results of a run. place: its folder, or the run.json in it. Raises ResultsError."""
    folder = place.parent if place.name == "run.json" and not place.is_dir() else place
    if not folder.is_dir():
        what = "no such folder" if not folder.exists() else "not a folder"
        raise ResultsError(f"{place}: {what}: expected the folder of a run, or the run.json in it")
    found = Results(folder, _read_about(folder / "run.json"))
    path = folder / "results.jsonl"
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}: cannot be read") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    torn = 0
    for number, line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            torn += 1
            found.notes.append(
                f"{path.name}, line {number}, is not whole and was left out: a run that is killed leaves one"
            )
            continue
        try:
            _take(found, row)
        except (KeyError, TypeError, ValueError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ResultsError(
                f"{path}, line {number}: {said}: expected a result as bench/report/README.md has it"
            ) from None
    if lines and torn == len(lines):
        raise ResultsError(f"{path}: none of its {torn} lines is JSON: expected one result in each line")
    return found


def _read_about(path: Path) -> Mapping[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(f"{path.parent}: no run.json in it: expected the folder of a run") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}: expected JSON, as a run writes it") from None
    if not isinstance(about, dict) or about.get("version") != 1:
        version = about.get("version") if isinstance(about, dict) else None
        raise ResultsError(f"{path}: version {version}: expected a run of version 1; measure again with this release")
    for name in _PARTS:
        if not isinstance(about.get(name, {}), dict):
            raise ResultsError(f"{path}: {name} is {about[name]!r}: expected an object, as a run writes it")
    return about


def _take(found: Results, row: Any) -> None:
    """Add a line. Raises KeyError, TypeError, ValueError."""
    if not isinstance(row, dict):
        raise TypeError(f"found {row!r}")
    case = row.get("case") or {}
    if not isinstance(case, dict) or not all(isinstance(value, str | int | float) for value in case.values()):
        raise TypeError(f"case {case!r}")
    experiment, query, engine = _text(row, "experiment"), _text(row, "query"), _text(row, "engine")
    settled: Case = tuple(sorted(case.items()))
    if "skipped" in row:
        found.skipped[experiment, query, engine, settled] = Skipped(
            experiment, query, engine, settled, _text(row, "skipped")
        )
        return
    median = _number(row, "median")
    assert median is not None
    values = tuple(float(value) for value in row.get("values") or ())
    if not all(map(math.isfinite, values)):
        raise ValueError("values that are no numbers")
    rows, checked = row.get("rows"), row.get("checked")
    count = int(row.get("count") or len(values) or 1)
    low, high = (_number(row, name, True) if count >= SAMPLES_MIN else None for name in ("low", "high"))
    figure = Figure(
        experiment,
        query,
        engine,
        settled,
        _text(row, "metric"),
        _text(row, "unit"),
        values,
        count,
        median,
        low,
        high,
        _number(row, "p99", True) if count >= P99_SAMPLES_MIN else None,
        None if rows is None else int(rows),
        str(checked) if checked else None,
        _number(row, "busy", True),
    )
    found.figures.pop(figure.key, None)
    found.figures[figure.key] = figure
    found.skipped.pop((experiment, query, engine, settled), None)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} {value!r}")
    return value


def _number(row: Mapping[str, Any], name: str, may_miss: bool = False) -> float | None:
    value = row.get(name) if may_miss else row[name]
    if value is None and may_miss:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} {value!r}")
    return float(value)


# --- units and ratios -------------------------------------------------------------------------------------------------


def is_time(unit: str) -> bool:
    return unit in _SECONDS


def is_rate(unit: str) -> bool:
    """Tell whether more is better: something a second, or how many times as fast."""
    return unit.endswith("/s") or unit == "times"


def is_count(unit: str) -> bool:
    """Tell whether a unit counts work, which is the same in each run: rows, bytes, probes, but no times, rates, and
    sizes that the system tells."""
    return not (is_time(unit) or is_rate(unit) or unit.endswith("/min") or unit in _MEASURED_SIZES)


def convert(value: float, unit: str, to: str) -> float | None:
    """Return a value in another unit, None if it has none there."""
    if unit == to:
        return value
    for scale in (_SECONDS, _BYTES):
        if unit in scale and to in scale:
            return value * scale[unit] / scale[to]
    return None


def ratio_of(pairs: Sequence[tuple[Figure, Figure]]) -> Bounded | None:
    """Return the first by the second of each pair, their geometric mean if there are several; None for other units, and
    where one of them is zero.

    The interval is bootstrapped where all have samples. A single pair without them may have bounds: then it goes from
    the least quotient of bounds to the greatest."""
    scales = [convert(1.0, other.unit, mine.unit) for mine, other in pairs]
    if not pairs or None in scales or any(mine.median <= 0 or other.median <= 0 for mine, other in pairs):
        return None
    known = [scale for scale in scales if scale is not None]
    quotients = [mine.median / (other.median * scale) for (mine, other), scale in zip(pairs, known, strict=True)]
    value = math.exp(float(np.mean(np.log(quotients))))
    drawn = [(mine.draws(2 * place), other.draws(2 * place + 1)) for place, (mine, other) in enumerate(pairs)]
    logs = [
        np.log(mine) - np.log(other * scale)
        for (mine, other), scale in zip(drawn, known, strict=True)
        if mine is not None and other is not None and mine.min() > 0 and other.min() > 0
    ]
    if len(logs) == len(pairs):
        return Bounded(value, *interval(np.exp(np.mean(logs, axis=0))))
    (mine, other), scale = pairs[0], known[0]
    if len(pairs) == 1 and mine.low and mine.high and other.low and other.high:
        return Bounded(value, mine.low / (other.high * scale), mine.high / (other.low * scale))
    return Bounded(value, None, None)
