"""From `wukongs run` to its first acknowledged piece: how long each part takes.

Each run is a fresh process, on a small network that is made here. The processes of a run note the milestones that they
pass (adapters/milestones.py); the clock starts before the process does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from wukongs.adapters.demo import continuous_queries
from wukongs.adapters.lsbench_generator import STREAM_NAMES, STREAM_NAMESPACE, NetworkSettings, generate_network
from wukongs.adapters.milestones import ENVIRONMENT_NAME
from wukongs.bench.harness import Report, summary

PASSED, PARTS = "Start: seconds from the start", "Start: seconds since the milestone before"
FIRST_PIECE = "first acknowledged piece"
MILESTONES = (
    "command line",
    "imports",
    "Java check",
    "streams and queries declared",
    "stored data loaded",
    "JVM up",
    "session",
    "first planner call",
    "first task",
    "first task has its links",
    FIRST_PIECE,
    "end",
)
TIMEOUT_S = 600.0


def bench_start(report: Report, folder: Path, count: int, is_warm: bool) -> None:
    """Add a row for each milestone and each part. is_warm: no run beforehand, which compiles and fills caches."""
    config = write_run(folder)
    if not is_warm:
        start_once(config)
    runs = [start_once(config) for _ in range(count)]
    report.check("milestones of each run", True, all(set(run) == set(MILESTONES) for run in runs))
    for milestone in MILESTONES:
        report.add(PASSED, {"milestone": milestone, **summary([run[milestone] for run in runs])})
    order = sorted(MILESTONES, key=lambda one: summary([run[one] for run in runs])["median"])
    for before, milestone in pairwise(order):
        report.add(PARTS, {"part": milestone, **summary([run[milestone] - run[before] for run in runs])})


def write_run(folder: Path) -> Path:
    """Write the data and the run file; return the file's path."""
    folder = folder / "start"
    network = generate_network(folder, NetworkSettings(users=100, duration_ms=2000, seed=1, friends=10))
    lines = ["[[stored]]", f'file = "{network.stored}"']
    for name in STREAM_NAMES:
        lines += ["[[stream]]", f'iri = "{STREAM_NAMESPACE}{name}"', "batch_ms = 100"]
        lines += ["[stream.source]", 'kind = "timestamped"', f'path = "{network.streams[name]}"']
    for name, text in list(continuous_queries(network.busiest_user).items())[:2]:
        lines += ["[[query]]", f'name = "{name}"', f'text = """{text}"""']
    path = folder / "run.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def start_once(config: Path) -> dict[str, float]:
    """Run it in a fresh process; return the seconds from its start to each milestone."""
    noted = config.parent / "milestones.txt"
    noted.unlink(missing_ok=True)
    command = [sys.executable, "-m", "wukongs", "run", "--plain", str(config)]
    began_s = time.monotonic()
    subprocess.run(
        command,
        env={**os.environ, ENVIRONMENT_NAME: str(noted)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
    )
    found: dict[str, float] = {}
    for line in noted.read_text(encoding="utf-8").splitlines():
        at, milestone = line.split(" ", 1)
        found[milestone] = min(float(at) - began_s, found.get(milestone, TIMEOUT_S))
    return found
