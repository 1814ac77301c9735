"""The figures of the pipeline: how long its start takes, how late windows are at the paper's rates, how many tuples go
through at most, what a stall leaves behind, and how fast DataFrames go into a stream. Through Spark and without it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wukongs.bench.harness import Report, WrongAnswer
from wukongs.bench.pipeline.data import record
from wukongs.bench.pipeline.drawn import draw
from wukongs.bench.pipeline.sink import bench_sink
from wukongs.bench.pipeline.start import bench_start
from wukongs.bench.pipeline.streaming import STALL_S, bench_latency, bench_rate, bench_stall

QUESTIONS = ("start", "latency", "rate", "stall", "sink")
STORED, BATCHES = 300_000, 300
STALL_BATCHES = 200
SINK_BATCHES, SINK_ROUNDS = 80, 5


def main(report: Path | None, quick: bool, only: Sequence[str] = ()) -> int:
    """Run it; return the exit status. quick: tiny sizes; only: some of QUESTIONS."""
    wanted = only or QUESTIONS
    unknown = sorted(set(wanted) - set(QUESTIONS))
    if unknown:
        print(f"wukongs: bench pipeline: no question {unknown[0]!r}: {', '.join(QUESTIONS)}", file=sys.stderr)
        return 2
    stored_count, batch_count, divisor = (5_000, 40, 50) if quick else (STORED, BATCHES, 1)
    data = {"source": "our generator", "stored": stored_count, "stream batches": batch_count}
    results = Report("pipeline", data)
    with tempfile.TemporaryDirectory(prefix="wukongs-pipeline-") as name:
        folder = Path(name)
        try:
            if "start" in wanted:
                bench_start(results, folder, 1 if quick else 5, is_warm=quick)
            if set(wanted) - {"start"}:
                recording = record(folder, stored_count, batch_count, divisor)
            if "sink" in wanted:
                bench_sink(results, recording, folder, min(batch_count, SINK_BATCHES), 1 if quick else SINK_ROUNDS)
            runs = bench_latency(results, recording, folder) if "latency" in wanted else {}
            if "rate" in wanted:
                bench_rate(results, recording, folder)
            stalled = bench_stall(results, recording, folder, 1.0 if quick else STALL_S) if "stall" in wanted else {}
        except WrongAnswer as error:
            print(f"wukongs: bench pipeline: {error}", file=sys.stderr)
            return 1
    results.publish(report)
    if report is not None:
        draw(results, runs, stalled, report / "pipeline.png")
    return 0
