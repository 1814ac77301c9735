"""Runs `wukongs run` as a user would, and reads what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

WINDOW = re.compile(r"\((-?\d+), (-?\d+)\]")


@dataclass
class RunOutput:
    """windows: (query, end_ms) -> rows reported; rows: those printed, as a bag; asked: (name, when) -> rows."""

    windows: dict[tuple[str, int], int] = field(default_factory=dict)
    rows: dict[tuple[str, int], Counter[tuple[str, ...]]] = field(default_factory=dict)
    asked: dict[tuple[str, str], int] = field(default_factory=dict)
    errors: str = ""


def run_wukongs(config: Path, *options: str, timeout_s: float = 900) -> RunOutput:
    """Run a configuration with plain output. The environment is not activated: only this Python is known."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-m", "wukongs", "run", str(config), "--plain", *options],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found = RunOutput(errors=done.stderr)
    window: tuple[str, int] | None = None
    for line in done.stdout.splitlines():
        cells = line.split("\t")
        if line.startswith("\t") and window is not None:
            found.rows[window][tuple(cells[1:])] += 1
        elif len(cells) == 3 and (bounds := WINDOW.fullmatch(cells[1])):
            window = cells[0], int(bounds[2])
            assert window not in found.windows, f"{window} was reported twice"
            found.windows[window] = _count(cells[2])
            found.rows[window] = Counter()
        elif len(cells) == 3 and cells[1] in ("before", "after"):
            found.asked[cells[0], cells[1]] = _count(cells[2])
    return found


def _count(text: str) -> int:
    number = re.match(r"[\d,]+", text)
    assert number is not None, text
    return int(number[0].replace(",", ""))
