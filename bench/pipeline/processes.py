"""The CPU time of the processes of a run, as the system counts it: the JVM, Spark's Python workers, and the rest."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

JVM, WORKERS, ENGINE = "JVM", "Python workers", "engine"
EVERY_S = 0.25


class CpuOfTree:
    """Looks at a process and all below it, from the time it is entered on. name: of the process itself."""

    def __init__(self, process: int, name: str = ENGINE) -> None:
        self._process, self._name = process, name
        self._seen: dict[int, tuple[str, float]] = {}
        self._at_s: list[float] = []
        self._spent: list[dict[str, float]] = []
        self._is_left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-cpu", daemon=True)

    def __enter__(self) -> CpuOfTree:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_left.set()
        self._thread.join()

    def between(self, began_s: float, ended_s: float) -> dict[str, float]:
        """Return the CPU seconds of each kind between two times of time.monotonic."""
        found = {}
        for kind in (JVM, WORKERS, self._name):
            spent = [one.get(kind, 0.0) for one in self._spent]
            before, after = np.interp((began_s, ended_s), self._at_s, spent) if spent else (0.0, 0.0)
            found[kind] = float(after - before)
        return found

    def _run(self) -> None:
        while not self._is_left.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        parents, names, seconds = {}, {}, {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with suppress(OSError):  # it has ended meanwhile
                    head, _, rest = (folder / "stat").read_text().rpartition(")")
                    fields = rest.split()
                    process = int(folder.name)
                    names[process], parents[process] = head.partition("(")[2], int(fields[1])
                    seconds[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for process in seconds:
            kind = self.kind(process, parents, names)
            if kind is not None:
                self._seen[process] = kind, seconds[process]
        totals: dict[str, float] = {}
        for kind, spent in self._seen.values():  # those that have ended, too
            totals[kind] = totals.get(kind, 0.0) + spent
        self._at_s.append(time.monotonic())
        self._spent.append(totals)

    def kind(self, process: int, parents: Mapping[int, int], names: Mapping[int, str]) -> str | None:
        """Return what a process counts as; None if it is not below ours."""
        line = [process]
        while line[-1] != self._process:
            if line[-1] not in parents:
                return None
            line.append(parents[line[-1]])
        is_java = [names[one] == "java" for one in line]
        return JVM if is_java[0] else WORKERS if any(is_java) else self._name
