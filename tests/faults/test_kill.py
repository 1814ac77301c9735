"""kill -9 at any moment of a durable engine's life: at random times, and before each step that it makes on the disk.
Windows, stored graphs, and the sums that readers of live views keep stay right.

A handful of kills here; `make faults` makes hundreds (WUKONGS_FAULTS=runs, and WUKONGS_FAULTS_SEED for other ones).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.workload import QUERIES, STEP_MS, STREAMS, TIMING, operation
from tests.oracles import update_ast
from tests.oracles.durable import Model

ROOT = Path(__file__).resolve().parents[2]
RUNS = int(os.environ.get("WUKONGS_FAULTS", "2"))
SEED = int(os.environ.get("WUKONGS_FAULTS_SEED", "1"))
LIVES = 5
OPERATIONS = 60


class Zygote:
    """The process from which the victims are forked."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.victim"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.line().startswith("ready")

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.endswith("\n"), f"the victim's parent has gone; last words: {line!r}"
        return line.rstrip("\n")

    def order(self, **order: Any) -> int:
        """Begin a life; return its process id."""
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps(order) + "\n").encode())
        self.process.stdin.flush()
        return int(self.line().removeprefix("pid "))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()


class Watch:
    """The reports of one folder's lives, compared with the model when the last is over."""

    def __init__(self, zygote: Zygote, folder: Path, seed: int) -> None:
        self.zygote = zygote
        self.folder = folder
        self.seed = seed
        self.done = 0
        self.windows: dict[str, dict[int, str]] = {name: {} for name in QUERIES}
        self.last_ms: dict[str, int] = {}
        self.stored: dict[str, str] = {}

    def live(self, lines: int | None, die_at: int, is_last: bool = False) -> None:
        """One life: killed after so many lines, or by itself before a step of the disk, or not at all."""
        self.last_ms = dict.fromkeys(QUERIES, -1)
        count = max(OPERATIONS - self.done, 1) if is_last else OPERATIONS // 2
        pid = self.zygote.order(
            folder=str(self.folder), seed=self.seed, first=self.done + 1, count=count, die_at=die_at, is_last=is_last
        )
        read = 0
        while not (line := self.zygote.line()).startswith("over"):
            self.hear(line)
            read += 1
            if read == lines:
                time.sleep(random.Random(self.seed + read).random() * 0.003)
                os.kill(pid, signal.SIGKILL)
        assert line in ("over 0", "over -9"), f"seed {self.seed}: the life ended with an error of its own, see above"

    def hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "done":
            self.done = int(rest)
        elif word == "window":
            name, end, rows = rest.split(" ", 2)
            end_ms = int(end)
            assert end_ms > self.last_ms[name], f"seed {self.seed}: {name} at {end_ms} after {self.last_ms[name]}"
            self.last_ms[name] = end_ms
            before = self.windows[name].setdefault(end_ms, rows)
            assert before == rows, f"seed {self.seed}: {name} at {end_ms} came again with other rows"
        else:
            assert word in ("stored", "named"), line
            self.stored[word] = rest

    def check(self) -> None:
        model = Model(dict.fromkeys(STREAMS, frozenset({TIMING})))
        updated = update_ast.Store(set())
        for number in range(1, self.done + 1):
            what = operation(self.seed, number)
            if what.kind == "push":
                model.push(what.stream, what.rows())
                model.loaded |= set(what.late)
            elif what.kind == "load":
                model.loaded |= set(what.triples)
            elif what.kind == "update":
                updated.apply(list(what.request))
        quads = [(graph, tuple(term.value for term in triple)) for graph, triple in updated.quads]
        default = model.stored(1 << 60) | {triple for graph, triple in quads if graph is None}
        assert self.stored["stored"] == as_rows(default), f"seed {self.seed}: stored graph"
        named = {(graph.value, *triple) for graph, triple in quads if graph is not None}
        assert self.stored["named"] == as_rows(named), f"seed {self.seed}: named graphs"
        for name, windows in self.windows.items():
            ends = sorted(windows)
            assert ends == list(range(ends[0], ends[-1] + 1, STEP_MS)), f"seed {self.seed}: {name} misses a window"
            assert ends[0] == STEP_MS, f"seed {self.seed}: {name} begins at {ends[0]}"
            assert ends[-1] >= self.done * 40, f"seed {self.seed}: {name} ends at {ends[-1]}"
            for end_ms, rows in windows.items():
                stream, range_ms = QUERIES[name]
                expected = as_rows(model.window(stream, end_ms - range_ms, end_ms))
                assert rows == expected, f"seed {self.seed}: {name} at {end_ms}"


def as_rows(triples: Any) -> str:
    return json.dumps(sorted(map(list, triples)), separators=(",", ":"))


@pytest.mark.parametrize("run", range(RUNS))
def test_nothing_acknowledged_is_lost_whenever_it_is_killed(zygote: Zygote, tmp_path: Path, run: int) -> None:
    seed = SEED * 10_000 + run
    rng = random.Random(seed)
    watch = Watch(zygote, tmp_path / "data", seed)
    for _ in range(LIVES):
        if rng.random() < 0.5:
            watch.live(rng.randrange(1, 60), 0)
        else:
            watch.live(None, rng.randrange(1, 120))
    watch.live(None, 0, is_last=True)
    watch.check()
