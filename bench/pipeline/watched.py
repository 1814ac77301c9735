"""`wukongs run` of a run file, with notes of what becomes visible when: python -m wukongs.bench.pipeline.watched
CONFIG NOTES [ADDRESS]

NOTES gets a JSON object: when the replay's clock began, each epoch, each window and when on_result was given it, and
the rows of the newest windows. ADDRESS: of a node that is used in place of an engine of this process. All times are
those of the clock that the processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import wukongs
from wukongs.adapters.display import RunProgress
from wukongs.adapters.planner import EpochPlanner, ReplayClock, ReplayPosition
from wukongs.adapters.run import run_config
from wukongs.adapters.run_config import load_run_config
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.output.view_report import ViewReport

KEPT_WINDOWS = 12


@dataclass(slots=True)
class Notes:
    """clock_s: when the replay was at event time clock_ms; epochs: (when, up to which event time, rows); windows:
    (query, end, when, rows); newest: of the last windows (query, end, rows as TSV); lines: the summary."""

    clock_s: float = 0.0
    clock_ms: int = 0
    triples: int = 0
    epochs: list[tuple[float, int, int]] = field(default_factory=list)
    windows: list[tuple[str, int, float, int]] = field(default_factory=list)
    newest: list[tuple[str, int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> Notes:
        return Notes(**json.loads(path.read_text(encoding="utf-8")))


class Watching:
    """The display of the run. Notes windows as they come."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.newest: deque[WindowResult] = deque(maxlen=KEPT_WINDOWS)

    def window(self, window: WindowResult | ViewReport) -> None:
        assert isinstance(window, WindowResult), "its queries have windows"
        self._notes.windows.append((window.query, window.end_ms, time.monotonic(), len(window)))
        self.newest.append(window)

    def phase(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    note = phase

    def asked(self, when: str, name: str, result: Result) -> None: ...

    def start(self, progress: RunProgress) -> None: ...

    def update(self) -> None: ...

    def stop(self) -> None: ...

    def summary(self, progress: RunProgress, lines: Sequence[str]) -> None:
        self._notes.triples = progress.report.triples
        self._notes.lines = list(lines)


def main(config: str, path: str, address: str | None = None) -> int:
    """Run it; return the exit status."""
    notes = Notes()
    display = Watching(notes)
    connect = None if address is None else lambda: wukongs.connect(address)
    with (
        patch.object(ReplayClock, "event_limit_ms", _noting_clock(notes)),
        patch.object(EpochPlanner, "next", _noting_epochs(notes)),
    ):
        status = run_config(load_run_config(Path(config)), display, connect)
    notes.newest = [(window.query, window.end_ms, window.serialize("tsv")) for window in display.newest]
    Path(path).write_text(json.dumps(asdict(notes)), encoding="utf-8")
    return status


def _noting_clock(notes: Notes) -> Any:
    original = ReplayClock.event_limit_ms

    def event_limit_ms(clock: ReplayClock, now_s: float) -> int | None:
        if not notes.clock_s:
            notes.clock_s, notes.clock_ms = now_s, clock._start_ms
        return original(clock, now_s)

    return event_limit_ms


def _noting_epochs(notes: Notes) -> Any:
    original = EpochPlanner.next

    def following(planner: EpochPlanner, position: ReplayPosition, event_limit_ms: int | None = None) -> Any:
        found = original(planner, position, event_limit_ms)
        if found != position:
            notes.epochs.append((time.monotonic(), found.horizon_ms, sum(found.rows) - sum(position.rows)))
        return found

    return following


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
