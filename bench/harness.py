"""Parts that all benchmarks share: samples and their percentiles, the machine and the versions, reports as text and
JSON.

A benchmark compiles and warms up first, checks its answers, and only then reports times: Report refuses a table before
a check has passed. Times say what they cost on one machine at one moment; no test asserts them.
"""

from __future__ import annotations

import datetime
import gc
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]
RESAMPLES = 10_000
SAMPLES_MIN = 5
"""Fewer samples than these have no interval."""
P99_SAMPLES_MIN = 100
"""Fewer samples than these have no 99th percentile: it would be the greatest of them."""


class WrongAnswer(Exception):
    """A benchmark got another answer than the data has: its times would be worth nothing."""


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Return median, p90, p99, min, max and the count of samples, in their own unit."""
    array = np.asarray(samples, np.float64)
    if not len(array):
        return {"median": 0.0, "p90": 0.0, "p99": 0.0, "min": 0.0, "max": 0.0, "count": 0}
    p50, p90, p99 = np.percentile(array, (50, 90, 99))
    values = {"median": p50, "p90": p90, "p99": p99, "min": array.min(), "max": array.max()}
    return {**{name: float(value) for name, value in values.items()}, "count": len(array)}


def bootstrap_medians(samples: Sequence[float], seed: int = 0) -> NDArray[np.float64]:
    """Draw the median of RESAMPLES resamples, each of as many values with replacement.

    No resample is made. Its values stand at uniform places of the ordered samples, and the middle one of n uniform
    places has a beta distribution; of an even number, the second is the least of those behind the first.
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    count = len(ordered)
    assert count, "there are no samples"
    random = np.random.default_rng(seed)
    middle = (count + 1) // 2
    first = random.beta(middle, count + 1 - middle, RESAMPLES)
    second = first if count % 2 else first + (1 - first) * random.beta(1, count - middle, RESAMPLES)
    low, high = (ordered[np.minimum((place * count).astype(np.int64), count - 1)] for place in (first, second))
    return (low + high) / 2


def interval(draws: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bounds that hold 95 % of the draws."""
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)


def repeat(
    function: Callable[[], Any], repeats: int, warm_up: int = 1, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Call a function warm_up times unseen, then `repeats` times; return the seconds of each call.

    clock: time.thread_time for work on one thread whose share of a busy core is not to matter. The garbage collector
    is off meanwhile, so that it does not fall on one of the samples.
    """
    for _ in range(warm_up):
        function()
    seconds = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            began = clock()
            function()
            seconds.append(clock() - began)
    finally:
        gc.enable()
    return seconds


def median_cpu_seconds(function: Callable[[], Any], repeats: int, warm_up: int = 1) -> float:
    """Return the median of `repeat` in CPU time of this thread."""
    return summary(repeat(function, repeats, warm_up, time.thread_time))["median"]


def commit() -> str | None:
    """Return the commit of this checkout, with `+` if files differ from it; None if this is none."""
    if not (ROOT / ".git").exists():  # installed, maybe below a repository of the user's
        return None
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=10
        )
        if found.returncode != 0:
            return None
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")


def machine() -> dict[str, Any]:
    """Describe the machine: cpu, cores, memory in GiB, and its load before the benchmark (1 min average)."""
    cpu = platform.processor() or platform.machine()
    memory_gib = None
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
        memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (OSError, ValueError):
        pass
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": memory_gib,
        "system": platform.system(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that times depend on."""
    found = {"python": platform.python_version()}
    for name in ("wukongs", "numba", "numpy", "pyarrow", "pyoxigraph"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@dataclass
class Report:
    """The outcome of one benchmark. data: what it ran on; tables: title -> rows; checks: what was compared."""

    name: str
    data: Mapping[str, Any]
    checks: list[Row] = field(default_factory=list)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(
        default_factory=lambda: {
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
        }
    )

    def check(self, what: str, expected: Any, found: Any) -> None:
        """Compare an answer with what it must be. Raises WrongAnswer."""
        if expected != found:
            raise WrongAnswer(f"{self.name}: {what}: expected {expected}, found {found}. No time is reported")
        self.checks.append({"what": what, "value": found})

    def add(self, title: str, row: Row) -> None:
        """Add a row to a table."""
        assert self.checks, f"{self.name}: {title}: nothing was checked before a time was reported"
        self.tables.setdefault(title, []).append(row)

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(
            {
                "benchmark": self.name,
                **self.environment,
                "data": dict(self.data),
                "checks": self.checks,
                "tables": self.tables,
                "notes": self.notes,
            },
            indent=1,
        )

    def to_text(self) -> str:
        """Return the tables in Markdown."""
        environment, hardware = self.environment, self.environment["machine"]
        head = (
            f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, load before "
            f"{hardware['load_before']}; commit {environment['commit'] or 'none'}; {environment['date']}"
        )
        about = ", ".join(f"{name} {value}" for name, value in self.data.items())
        lines = [f"# {self.name}", "", head, "", f"Data: {about}. Answers checked: {len(self.checks)}.", ""]
        for title, rows in self.tables.items():
            lines += [f"## {title}", "", *markdown_table(rows), ""]
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"

    def publish(self, folder: Path | None) -> None:
        """Print the tables; with a folder, write <name>.json and <name>.md into it too."""
        print(self.to_text(), flush=True)
        self.write(folder)

    def write(self, folder: Path | None) -> None:
        """Write the tables so far, if there is a folder."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self.name}.json").write_text(self.to_json() + "\n", encoding="utf-8")
            (folder / f"{self.name}.md").write_text(self.to_text(), encoding="utf-8")


def markdown_table(rows: Sequence[Row]) -> list[str]:
    """Return rows as the lines of a Markdown table; columns in the order of their first occurrence."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return lines + ["| " + " | ".join(_cell(row.get(name, "")) for name in names) + " |" for row in rows]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
