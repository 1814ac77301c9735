"""Whole runs in processes of their own, through Spark and without it: how late windows are at the paper's rates, how
many tuples a second go through at most, and what a stall leaves behind.

A stream batch has arrived when the replay's clock, at speed 1, is at its end; a window is visible when on_result is
given it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wukongs.bench.continuous.workload import rows_of
from wukongs.bench.harness import ROOT, Report, summary
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.pipeline.data import ENGINES, Recording, write_run_file
from wukongs.bench.pipeline.processes import CpuOfTree
from wukongs.bench.pipeline.watched import Notes
from wukongs.bench.store.injection import BATCH_MS

LATENCY = "At the paper's rates: from the arrival of a stream batch's end to its windows, ms"
RATE = "As fast as it goes"
CPU = "CPU of the processes, in cores"
STALL = "After a stall, at the paper's rates"
GOALS_MS = (60, 150)
GOALS_K_PER_S = {"spark": 300, "local": 600}
WARM_UP_SHARE = 0.3
"""The share of the stream batches that compilers and caches get."""
ROWS_PER_EPOCH = 100_000
TIMEOUT_S = 600.0
STALL_S = 3.0
STALLS = ("engine", "readers")


@dataclass(frozen=True, slots=True)
class Run:
    """One run that has ended, and the CPU time of its processes."""

    engine: str
    notes: Notes
    cpu: CpuOfTree

    def delays_ms(self, query: str | None, from_ms: int) -> list[tuple[int, float]]:
        """Return (end, milliseconds from its arrival to on_result) of the windows that end after a time; of all queries
        if query is None."""
        clock_s, clock_ms = self.notes.clock_s, self.notes.clock_ms
        return [
            (end_ms, 1000 * (at_s - clock_s) - (end_ms - clock_ms))
            for name, end_ms, at_s, _ in self.notes.windows
            if end_ms > from_ms and query in (None, name)
        ]

    def visible_s(self, end_ms: int) -> float:
        """Return when all windows with an end were there."""
        return max(at_s for _, end, at_s, _ in self.notes.windows if end == end_ms)


def bench_latency(report: Report, recording: Recording, folder: Path) -> dict[str, Run]:
    """Add a row for each engine and query."""
    from_ms = _warm_ms(recording)
    runs = {}
    for engine in ENGINES:
        runs[engine] = run = run_once(recording, folder, {"engine": engine, "speed": 1.0})
        check_run(report, recording, run)
        for query in (None, *(one.name for one in QUERIES)):
            found = summary([delay for _, delay in run.delays_ms(query, from_ms)])
            row = {"through": engine, "query": query or "all", "p50": found["median"], "p99": found["p99"]}
            report.add(LATENCY, {**row, "max": found["max"], "windows": found["count"]})
        _add_cpu(report, recording, run, "paper's rates", from_ms)
    return runs


def bench_rate(report: Report, recording: Recording, folder: Path) -> dict[str, Run]:
    """Add a row for each engine: tuples a second, from arrival to the windows that hold them."""
    from_ms = _warm_ms(recording)
    runs = {}
    for engine in ENGINES:
        runs[engine] = run = run_once(recording, folder, {"engine": engine, "speed": 0.0})
        check_run(report, recording, run)
        seconds = run.visible_s(recording.end_ms) - run.visible_s(from_ms)
        rows = [rows for _, _, rows in run.notes.epochs]
        row = {"through": engine, "K tuples/s": recording.tuples_in(from_ms, recording.end_ms) / seconds / 1000}
        report.add(RATE, {**row, "goal": GOALS_K_PER_S[engine], "epochs": len(rows), "largest epoch": max(rows)})
        _add_cpu(report, recording, run, "as fast as it goes", from_ms)
    return runs


def bench_stall(report: Report, recording: Recording, folder: Path, stall_s: float) -> dict[tuple[str, str], Run]:
    """Add a row for each engine and what is stopped for some seconds: a node in a process of its own, or the processes
    that read and send. Checked: no epoch is larger than rows_per_epoch."""
    runs = {}
    for engine in ENGINES:
        for stalled in STALLS:
            pipeline: dict[str, str | float] = {"engine": engine, "speed": 1.0, "rows_per_epoch": ROWS_PER_EPOCH}
            with ExitStack() as stack:
                node, address = stack.enter_context(_node(folder))
                stall = _Stall(node if stalled == "engine" else None, recording.end_ms / 4000, stall_s)
                run = run_once(recording, folder, pipeline, address, stall)
            check_run(report, recording, run)
            rows = [rows for _, _, rows in run.notes.epochs]
            report.check(f"{engine}, {stalled} stopped: rows of an epoch in bounds", True, max(rows) <= ROWS_PER_EPOCH)
            runs[engine, stalled] = run
            report.add(STALL, _stall_row(run, stalled, stall))
    return runs


class _Stall:
    """Stops a process for some seconds: the one that is given, or all below the run, with the run itself.

    after_s: seconds of the replay's clock, about."""

    def __init__(self, node: int | None, after_s: float, seconds: float) -> None:
        self._node, self._after_s, self.seconds = node, after_s, seconds
        self.began_s = self.ended_s = 0.0

    def __call__(self, run: int, streams_s: float) -> None:
        time.sleep(max(0.0, streams_s + self._after_s - time.monotonic()))
        stopped = _below(run) if self._node is None else [self._node]
        self.began_s = time.monotonic()
        _signal(stopped, signal.SIGSTOP)
        time.sleep(self.seconds)
        _signal(stopped, signal.SIGCONT)
        self.ended_s = time.monotonic()


def _stall_row(run: Run, stalled: str, stall: _Stall) -> dict[str, object]:
    """Tell how far behind the windows were, and when they were in time again (within the goal of p99)."""
    clock_s, clock_ms = run.notes.clock_s, run.notes.clock_ms
    stall_ms = clock_ms + int(1000 * (stall.began_s - clock_s))
    delays = run.delays_ms(None, stall_ms - BATCH_MS)
    seen = sorted((clock_s + (end_ms - clock_ms + delay) / 1000, delay) for end_ms, delay in delays)
    in_time = (at_s for at_s, delay in seen if at_s > stall.ended_s and delay <= GOALS_MS[1])
    before = [rows for at_s, _, rows in run.notes.epochs if at_s < stall.began_s]
    after = [rows for at_s, _, rows in run.notes.epochs if at_s >= stall.began_s]
    row = {"through": run.engine, "stopped": stalled, "for s": stall.seconds}
    row |= {"rows_per_epoch": ROWS_PER_EPOCH, "largest epoch before": max(before, default=0)}
    row |= {"largest epoch after": max(after, default=0)}
    row |= {"behind at most ms": max((delay for _, delay in delays), default=0.0)}
    return {**row, "in time again after s": next(in_time, stall.ended_s) - stall.ended_s}


def run_once(
    recording: Recording,
    folder: Path,
    pipeline: dict[str, str | float],
    address: str | None = None,
    stall: _Stall | None = None,
) -> Run:
    """Run it in a fresh process. Raises RuntimeError (it fails)."""
    config = write_run_file(folder / "run.toml", recording, pipeline)
    return run_file(config, str(pipeline["engine"]), address, stall)


def run_file(config: Path, engine: str, address: str | None = None, stall: _Stall | None = None) -> Run:
    """Run what a file says in a fresh process. Raises RuntimeError (it fails)."""
    folder = config.parent
    notes = folder / "notes.json"
    notes.unlink(missing_ok=True)
    command = [sys.executable, "-m", "wukongs.bench.pipeline.watched", str(config), str(notes)]
    command += [] if address is None else [address]
    said = folder / "said.txt"
    with said.open("w") as errors, subprocess.Popen(command, cwd=ROOT, stderr=errors, env=_environment()) as process:
        try:
            with CpuOfTree(process.pid) as cpu:
                if stall is not None:
                    threading.Thread(target=_stall_when, args=(stall, process.pid, said), daemon=True).start()
                process.wait(TIMEOUT_S)
        finally:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"a run has ended with status {process.returncode}: {said.read_text()[-2000:]}")
    return Run(engine, Notes.read(notes), cpu)


def _stall_when(stall: _Stall, process: int, said: Path) -> None:
    """Call the stall once the run says that it streams."""
    while Path(f"/proc/{process}").exists():
        if said.read_text().endswith("streaming\n"):
            return stall(process, time.monotonic())
        time.sleep(0.02)
    return None


@contextmanager
def _node(folder: Path) -> Iterator[tuple[int, str]]:
    """Start a node alone, in memory; yield its process and its address."""
    config = folder / "node.toml"
    config.write_text('[[node]]\nclients = "tcp://127.0.0.1:0"\n')
    command = [sys.executable, "-m", "wukongs", "node", "--config", str(config), "--until-stdin-ends"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        try:
            assert process.stdout is not None
            yield process.pid, process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def _below(process: int) -> list[int]:
    """Return a process and all below it, children first."""
    found = []
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        for child in listed.read_text().split():
            found += _below(int(child))
    return [*found, process]


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _warm_ms(recording: Recording) -> int:
    return int(recording.batch_count * WARM_UP_SHARE) * BATCH_MS


def check_run(report: Report, recording: Recording, run: Run) -> None:
    """Compare the number of tuples and of windows, and the newest windows, with the recording."""
    report.check(f"{run.engine}: tuples", recording.tuple_count, run.notes.triples)
    ends = sorted({end_ms for _, end_ms, _, _ in run.notes.windows if end_ms <= recording.end_ms})
    report.check(f"{run.engine}: windows by their ends", recording.batch_count, len(ends))
    report.check(
        f"{run.engine}: windows", recording.batch_count * len(QUERIES), sum(w[1] in ends for w in run.notes.windows)
    )
    for query, end_ms, tsv in run.notes.newest:
        expected = recording.workload.answer(query, recording.user, end_ms // BATCH_MS)
        report.check(f"{run.engine}: {query}, window ending at {end_ms} ms", True, rows_of(tsv) == expected)


def _add_cpu(report: Report, recording: Recording, run: Run, rates: str, from_ms: int) -> None:
    began_s, ended_s = run.visible_s(from_ms), run.visible_s(recording.end_ms)
    spent = run.cpu.between(began_s, ended_s)
    seconds = ended_s - began_s
    row: dict[str, object] = {"through": run.engine, "rates": rates}
    row |= {kind: cpu_s / seconds for kind, cpu_s in spent.items()}
    tuples = recording.tuples_in(from_ms, recording.end_ms)
    report.add(CPU, {**row, "all": sum(spent.values()) / seconds, "us a tuple": 1e6 * sum(spent.values()) / tuples})
