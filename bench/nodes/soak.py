"""A long run of a cluster: three nodes with data folders and two replicas, LSBench's five streams in real time.

Does anything grow? Each ten seconds the memory, threads, descriptors and CPU of each node, its folder, the latency of
windows and of one-shot queries, and how far the pace is behind are written down. Stream batches come again after a
while, so what is absorbed is there already, and the stored graph stays as it is.

Every window has to come once, and those of some places of the workload with the rows that it has.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wukongs import WindowResult
from wukongs.bench.continuous.firing import text_of
from wukongs.bench.continuous.workload import Workload, make_workload, rows_of
from wukongs.bench.harness import Report, Row, WrongAnswer, summary
from wukongs.bench.lsbench.data import IRI, TIMING
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.memory import resident_bytes
from wukongs.bench.nodes.engines import Bench, cpu_s_of, processes
from wukongs.bench.scale.queries import one_shot_queries
from wukongs.bench.store.injection import BATCH_MS, RATES
from wukongs.errors import WukongsError
from wukongs.live.usage import folder_usage

NODES, REPLICAS = 3, 2
RATE = 50_000
STORED = 300_000
BATCHES = 600
SAMPLE_S = 10.0
READ_S = 60.0
ASKED = ("S1", "S2", "S3", "S5")
QUARTER = 4
OVER_TIME = "Over time"
FLAT = "First and last quarter"
OpenSoak = Callable[[int, Sequence[str]], AbstractContextManager[Bench]]


@dataclass(slots=True)
class Reader:
    """The windows of one query as a client gets them. due_s: stream batch -> perf_counter when it was to be whole;
    wanted: place in the workload -> rows, which are looked at once each time round."""

    workload: Workload
    due_s: Mapping[int, float]
    wanted: Mapping[int, list[tuple[bytes, ...]]]
    came: int = 0
    latency_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    checked: int = 0

    def __call__(self, window: WindowResult) -> None:
        now_s, number = time.perf_counter(), window.end_ms // BATCH_MS
        if number != self.came + 1 or window.partial:
            self.wrong.append(f"window {number} behind {self.came}, partial: {window.partial}")
        self.came = number
        self.latency_s.append(now_s - self.due_s[number])
        place = (number - 1) % len(self.workload.batches) + 1
        if place in self.wanted:
            self.checked += 1
            if rows_of(window.serialize("tsv")) != self.wanted[place]:
                self.wrong.append(f"window {number}: other rows than stream batch {place} gives")


def main(
    report: Path | None = None,
    quick: bool = False,
    minutes: float | None = None,
    rate: int | None = None,
    open_cluster: OpenSoak = processes,
) -> int:
    """Run it. quick: tiny data; minutes: how long, 60 if not given; rate: tuples a second, of all streams together.

    Returns the exit status: 1 for a wrong answer or a cluster that does not start, after one line on standard error.
    Ctrl-C ends the run, and what it has found is told."""
    divisor = sum(RATES.values()) / (rate or (500 if quick else RATE))
    workload = make_workload(5_000 if quick else STORED, 30 if quick else BATCHES, divisor)
    found = Report("nodes-soak", {**workload.describe(), "nodes": NODES, "replicas": REPLICAS, "sync": "each call"})
    try:
        with TemporaryDirectory() as data:
            options = ("--replicas", str(REPLICAS), "--data-dir", data)
            with open_cluster(NODES, options) as bench, _lines(report) as note:
                run = Soak(found, bench, workload, Path(data), note)
                run.run((minutes or 60) * 60, 0.5 if quick else SAMPLE_S)
    except (WrongAnswer, OSError, RuntimeError, WukongsError) as error:
        print(f"wukongs: bench nodes-soak: {error}", file=sys.stderr)
        return 1
    found.publish(report)
    if report is not None:
        plot(found, report / f"{found.name}.png")
    return 0


@contextmanager
def _lines(folder: Path | None) -> Iterator[Callable[[Row], object]]:
    """Give what writes a row down at once, as a line of JSON."""
    if folder is None:
        yield lambda row: None
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "nodes-soak.jsonl").open("w", encoding="utf-8") as file:

        def note(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        yield note


@dataclass(slots=True)
class Soak:
    """One run. folder: of the nodes' data; note: writes a sample down at once; due_s: as Reader has it."""

    found: Report
    bench: Bench
    workload: Workload
    folder: Path
    note: Callable[[Row], object]
    due_s: dict[int, float] = field(default_factory=dict)
    readers: dict[str, Reader] = field(default_factory=dict)
    asked_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def run(self, seconds: float, sample_s: float) -> None:
        self._prepare()
        ends = threading.Event()
        asker = threading.Thread(target=self._ask, args=(ends,))
        asker.start()
        try:
            self._feed(seconds, sample_s)
        except KeyboardInterrupt:
            self.found.notes.append("ended by Ctrl-C")
        finally:
            ends.set()
            asker.join()
        self._check()
        _summarize(self.found)

    def _prepare(self) -> None:
        clients, user, batches = self.bench.nodes, self.workload.posters[0], self.workload.batches
        clients[0].load(io.BytesIO(self.workload.data.stored), format="nt")
        for name, iri in IRI.items():
            clients[0].stream(iri, timing=name in TIMING, batch_ms=BATCH_MS, history_ms=1000)
        clients[0].push_many(dict.fromkeys(IRI.values()), 0)
        places = range(10, len(batches), max(1, len(batches) // 10))
        for place, query in enumerate(2 * QUERIES):
            name = f"{query.name}_{place // len(QUERIES)}"
            wanted = {at: self.workload.answer(query.name, user, at) for at in places}
            self.readers[name] = Reader(self.workload, self.due_s, wanted)
            clients[place % len(clients)].register(text_of(query, user, name), self.readers[name])
        self.found.check("queries are registered", len(self.readers), len(clients[0].stats()["queries"]))

    def _feed(self, seconds: float, sample_s: float) -> None:
        """Push a stream batch each 100 ms, and write a row down now and then; go on until each query has had a window
        that is compared."""
        began_s, sampled_s, number, late_s = time.perf_counter(), 0.0, 0, 0.0
        spent = {pid: cpu_s_of(pid) for pid in self.bench.pids}
        size = sum(len(stream) for stream in self.workload.batches[0].values())
        least = max(min(reader.wanted) for reader in self.readers.values())
        while (passed_s := time.perf_counter() - began_s) < seconds or number < least:
            number += 1
            tables = {IRI[name]: table for name, table in self.workload.tables(number).items()}
            self.due_s[number] = began_s + number * BATCH_MS / 1000
            left_s = self.due_s[number] - time.perf_counter()
            if left_s > 0:
                time.sleep(left_s)
            late_s = max(late_s, -left_s)
            self.bench.engine.push_many(tables, number * BATCH_MS)
            if passed_s - sampled_s >= sample_s:
                row: Row = {"minute": passed_s / 60, "behind s": late_s, "K tuples/s": number * size / passed_s / 1e3}
                row |= self._sample(spent, passed_s - sampled_s)
                self.found.add(OVER_TIME, row)
                self.note(row)
                sampled_s, late_s = passed_s, 0.0
                print(f"\r{passed_s / 60:.1f} of {seconds / 60:g} minutes", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    def _sample(self, spent: dict[int, float], since_s: float) -> Row:
        """Return what the nodes take now, and the latencies since the last sample. spent: CPU seconds by then."""
        row: Row = {}
        for node, pid in enumerate(self.bench.pids):
            before_s, spent[pid] = spent[pid], cpu_s_of(pid)
            row |= {
                f"node {node} MB": resident_bytes(pid) / 1e6,
                f"node {node} descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                f"node {node} threads": len(os.listdir(f"/proc/{pid}/task")),
                f"node {node} CPU, cores": (spent[pid] - before_s) / since_s,
            }
        row["folders MB"] = folder_usage(self.folder)["folder_bytes"] / 1e6
        row["files"] = sum(len(names) for _, _, names in os.walk(self.folder))
        windows = [one for reader in self.readers.values() for one in _taken(reader.latency_s)]
        for title, samples in (("window", windows), ("one-shot", _taken(self.asked_s))):
            of_all = summary(samples)
            row |= {f"{title} ms p50": of_all["median"] * 1e3, f"{title} ms p99": of_all["p99"] * 1e3}
        least = min(reader.came for reader in self.readers.values())
        for old in [number for number in self.due_s if number < least - 1]:
            del self.due_s[old]
        return row

    def _ask(self, ends: threading.Event) -> None:
        """Ask one-shot queries by turns, four times a second."""
        user = int(self.workload.posters[0][1:])
        texts = itertools.cycle([text for name, text in one_shot_queries(user, 1).items() if name in ASKED])
        while not ends.wait(0.25):
            began_s = time.perf_counter()
            try:
                self.bench.nodes[-1].query(next(texts))
            except WukongsError as error:
                self.errors.append(str(error))
            self.asked_s.append(time.perf_counter() - began_s)

    def _check(self) -> None:
        """Compare what has come, once it has all come."""
        last, deadline_s = max(self.due_s), time.perf_counter() + READ_S
        while any(one.came < last for one in self.readers.values()) and time.perf_counter() < deadline_s:
            time.sleep(0.1)
        for name, reader in self.readers.items():
            self.found.check(f"{name}: windows, each once and with its rows", [], reader.wrong[:3])
            self.found.check(f"{name}: the last window", last, reader.came)
        self.found.check("windows were compared", True, all(reader.checked for reader in self.readers.values()))
        self.found.check("errors of one-shot queries", [], self.errors[:3])
        compared = sum(reader.checked for reader in self.readers.values())
        self.found.notes.append(f"{last} windows of {len(self.readers)} queries, {compared} compared")


def _taken(samples: list[float]) -> list[float]:
    """Take what is in a list that another thread appends to."""
    found = samples[:]
    del samples[: len(found)]
    return found


def _summarize(found: Report) -> None:
    rows = found.tables.get(OVER_TIME, [])
    parts = max(1, len(rows) // QUARTER)
    columns = defaultdict[str, list[float]](list)
    for row in rows:
        for name, value in row.items():
            columns[name].append(value)
    for name, values in columns.items():
        if name != "minute":
            first, last = summary(values[:parts])["median"], summary(values[-parts:])["median"]
            found.add(FLAT, {"what": name, "first quarter": first, "last quarter": last, "most": max(values)})


def plot(found: Report, path: Path) -> None:
    """Draw what was sampled over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = found.tables[OVER_TIME]
    minutes = [row["minute"] for row in rows]
    figure, axes = plt.subplots(2, 3, figsize=(14, 7), layout="constrained")
    memory, handles, cpu, window, folders, pace = axes.flat

    def draw(axis: Any, *names: str) -> None:
        for name in names:
            axis.plot(minutes, [row[name] for row in rows], label=name, linewidth=1)
        axis.legend(fontsize="x-small", framealpha=0.6, ncols=2)

    of_nodes = partial(_of_nodes, rows[0])
    draw(memory, *of_nodes("MB"))
    memory.set(title="resident memory of each node", ylabel="MB", ylim=(0, None))
    draw(handles, *of_nodes("descriptors"), *of_nodes("threads"))
    handles.set(title="open descriptors and threads", ylim=(0, None))
    draw(cpu, *of_nodes("CPU, cores"))
    cpu.set(title="CPU of each node", ylabel="cores", ylim=(0, None))
    draw(window, "window ms p50", "window ms p99", "one-shot ms p50", "one-shot ms p99")
    window.set(title="due time to rows at the client; one-shot queries", ylabel="ms", yscale="log")
    draw(folders, "folders MB", "files")
    folders.set(title="data folders of all nodes: MB, files", ylim=(0, None))
    draw(pace, "K tuples/s", "behind s")
    pace.set(title="pace: thousand tuples a second; seconds behind", ylim=(0, None))
    for axis in axes.flat:
        axis.set_xlabel("minutes")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _of_nodes(row: Row, what: str) -> list[str]:
    return [name for name in row if name.startswith("node ") and name.endswith(f" {what}")]
