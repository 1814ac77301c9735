"""CityBench: C1-C11 of examples/citybench, each alone, over the RDF streams of the data; latency per window."""

from __future__ import annotations

import gzip
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import wukongs
from wukongs.bench.harness import ROOT, Report, WrongAnswer, summary
from wukongs.bench.lsbench.data import StreamData

QUERY_FOLDER = ROOT / "examples" / "citybench"
NAMESPACE = "http://www.insight-centre.org/dataset/SampleEventService#"
STORED = ("SensorRepository.n3.gz", "AarhusCulturalEvents.n3.gz")
EXPECTED = {"C1": 9, "C3": 9, "C4": 297, "C5": 297, "C6": 9, "C7": 9, "C8": 9, "C10": 243, "C11": 9}
"""Rows of every window that ends at 3 s ... 289 s, from the README of the data."""
PAPER_MS = {
    "C1": 0.24,
    "C2": 0.37,
    "C3": 0.26,
    "C4": 0.98,
    "C5": 0.94,
    "C6": 0.26,
    "C7": 0.24,
    "C8": 0.27,
    "C9": 1.15,
    "C10": 0.78,
    "C11": 0.16,
}
FIRST_MS, LAST_MS, STEP_MS, RANGE_MS = 3000, 289_000, 1000, 3000
ORACLE_MS = 10_000


@dataclass(frozen=True, slots=True)
class CityData:
    folder: Path
    stored: tuple[Path, ...]

    def stream(self, name: str) -> StreamData:
        """Read a stream of `t_ms<TAB>triple` lines, up to LAST_MS."""
        rows = gzip.decompress((self.folder / "rdf_streams" / f"{name}.tsv.gz").read_bytes()).splitlines()
        parts = [row.split(b"\t", 1) for row in rows]
        times = np.array([part[0] for part in parts], np.int64)
        count = int(np.searchsorted(times, LAST_MS, side="right"))
        return StreamData(b"".join(part[1] + b"\n" for part in parts[:count]), times[:count])


def main(report: Path | None = None, data: Path | None = None, quick: bool = False) -> int:
    """Run all queries; quick: every fourth query over the first 12 s. Returns 1 after an error line."""
    folder = data or ROOT.parent / "shared" / "data" / "citybench"
    queries = sorted(QUERY_FOLDER.glob("C*.rq"), key=lambda path: int(path.stem[1:]))
    if not folder.is_dir() or not queries:
        what = f"no data in {folder}: give its folder with --data" if queries else f"no C*.rq in {QUERY_FOLDER}"
        print(f"wukongs: bench citybench: {what}", file=sys.stderr)
        return 1
    city = CityData(folder, tuple(folder / "stored" / name for name in STORED))
    results = Report("citybench", {"source": folder.name, "stored": ", ".join(STORED)})
    last_ms = ORACLE_MS + 2000 if quick else LAST_MS
    queries = queries[::4] if quick else queries
    try:
        for path in queries:
            _bench_query(results, city, path.stem, path.read_text(encoding="utf-8"), last_ms)
    except (WrongAnswer, OSError, ValueError) as error:
        print(f"wukongs: bench citybench: {error}", file=sys.stderr)
        return 1
    rows = next(iter(results.tables.values()))
    mean = {name: float(np.exp(np.mean(np.log([row[name] for row in rows])))) for name in list(rows[0])[3:]}
    results.add(next(iter(results.tables)), {"query": "geometric mean", **mean})
    results.publish(report)
    return 0


def _bench_query(report: Report, city: CityData, name: str, text: str, last_ms: int) -> None:
    streams = {stream: city.stream(stream) for stream in dict.fromkeys(re.findall(r"STREAM :(\w+)", text))}
    _run(city, text, streams, FIRST_MS + 5000)  # compiles the kernels
    rows, stats, latency_us = _run(city, text, streams, last_ms)
    if name in EXPECTED:
        report.check(f"{name}, rows of every window (README of the data)", [EXPECTED[name]], sorted(set(rows.values())))
    oracle = _oracle_rows(city, text, streams, ORACLE_MS)
    report.check(f"{name}, rows of the window ending at {ORACLE_MS} ms (pyoxigraph)", oracle, rows[ORACLE_MS])
    latency = summary(latency_us)
    row = {
        "query": name,
        "latency p50": latency["median"],
        "latency p99": latency["p99"],
        "windows": len(rows),
        "rows": rows[ORACLE_MS],
        "execution p50": stats["execution_us_p50"],
        "execution p99": stats["execution_us_p99"],
        "paper": PAPER_MS[name] * 1000,
    }
    report.add("C1-C11: windows of 3 s every second, microseconds", row)


def _run(
    city: CityData, text: str, streams: dict[str, StreamData], last_ms: int
) -> tuple[dict[int, int], dict[str, float], list[float]]:
    """Return rows by window end in ms, the query's stats, and latencies in microseconds."""
    with wukongs.Engine() as engine:
        for path in city.stored:
            engine.load(path, format="ttl")
        for name in streams:
            engine.stream(NAMESPACE + name, timing=True, batch_ms=STEP_MS)
        tables = {name: data.table() for name, data in streams.items()}
        query = engine.register(text)
        done = dict.fromkeys(streams, 0)
        for end_ms in range(0, last_ms + 1, STEP_MS):
            parts = {}
            for name, data in streams.items():
                stop = int(np.searchsorted(data.times, end_ms, side="right"))
                parts[NAMESPACE + name] = tables[name].slice(done[name], stop - done[name])
                done[name] = stop
            engine.push_many(parts, end_ms)
            engine.settle(60)
        windows = [window for window in query.results(timeout_s=0) if window.end_ms >= FIRST_MS]
        return {w.end_ms: len(w) for w in windows}, query.stats(), [w.latency_us for w in windows]


def _oracle_rows(city: CityData, text: str, streams: dict[str, StreamData], end_ms: int) -> int:
    """Count the rows of one window with pyoxigraph: windows are named graphs, the stored graph is the default one."""
    import pyoxigraph as ox

    store = ox.Store()
    if "FROM <" in text:
        for path in city.stored:
            store.load(gzip.decompress(path.read_bytes()), format=ox.RdfFormat.TURTLE)
    for name, data in streams.items():
        start, stop = np.searchsorted(data.times, (end_ms - RANGE_MS, end_ms), side="right").tolist()
        lines = b"".join(line + b"\n" for line in data.lines.split(b"\n")[start:stop])
        store.load(lines, format=ox.RdfFormat.N_TRIPLES, to_graph=ox.NamedNode(NAMESPACE + name))
    plain = re.sub(r"(?m)^(FROM|REGISTER) .*$", "", text)
    solutions = store.query(plain)
    assert isinstance(solutions, ox.QuerySolutions)
    return sum(1 for _ in solutions)
