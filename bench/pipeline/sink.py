"""DataFrames into a stream, `df.write.format("wukongs")`: rows a second, as triple columns and as N-Triples text, by
turns. A write has ended when all its rows are safe in the engine and their time is closed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import wukongs
from wukongs.bench.harness import Report, summary
from wukongs.bench.pipeline.data import Recording
from wukongs.bench.pipeline.processes import CpuOfTree
from wukongs.bench.store.injection import BATCH_MS

if TYPE_CHECKING:
    import pyarrow as pa

SINK = "DataFrames into a stream"
GOAL_K_PER_S = 200
TRIPLES, TEXT = "triple columns", "N-Triples text"
STREAM = "http://ex/frames"
FILES = 4
TASKS = 2


def bench_sink(report: Report, recording: Recording, folder: Path, batch_count: int, rounds: int) -> None:
    """Add a row for each kind of columns. batch_count: stream batches of a DataFrame; rounds: writes that count, after
    one that does not."""
    from wukongs.adapters.spark import WukongsDataSource
    from wukongs.adapters.spark.session import start_session, stop_session

    count = _write_parquet(recording, folder, batch_count)
    spark = start_session(TASKS)
    try:
        spark.dataSource.register(WukongsDataSource)
        with wukongs.Engine() as engine, CpuOfTree(os.getpid()) as cpu:
            stream = engine.stream(STREAM, batch_ms=BATCH_MS, history_ms=1000)
            options = {"address": engine.listen(), "stream": STREAM, "advance": "all", "partitions": "8"}
            times: dict[str, list[tuple[float, float]]] = {TRIPLES: [], TEXT: []}
            for number in range(rounds + 1):
                for turn, (columns, spans) in enumerate(times.items()):
                    frame = spark.read.parquet(str(folder / columns.replace(" ", "-")))
                    later_ms = (2 * number + turn) * batch_count * BATCH_MS
                    frame = frame.withColumn("time", frame["time"] + later_ms)
                    began_s = time.monotonic()
                    frame.write.format("wukongs").options(**options).mode("append").save()
                    if number:
                        spans.append((began_s, time.monotonic()))
            engine.settle(60)
            taken = engine.stats()["streams"][STREAM]["tuples"]
            report.check("rows that the stream has taken", 2 * (rounds + 1) * count, taken)
            stream.close()
            time.sleep(1.0)  # for the last look at the processes
    finally:
        stop_session(spark)
    for columns, spans in times.items():
        seconds = [ended_s - began_s for began_s, ended_s in spans]
        rates = summary([count / 1000 / one for one in seconds])
        row: dict[str, Any] = {"columns": columns, "rows": count, "K rows/s": rates["median"], "min": rates["min"]}
        row |= {"max": rates["max"], "goal": GOAL_K_PER_S}
        spent: dict[str, float] = {}
        for span in spans:
            for kind, cpu_s in cpu.between(*span).items():
                spent[kind] = spent.get(kind, 0.0) + cpu_s
        report.add(SINK, {**row, **{f"{kind}, cores": one / sum(seconds) for kind, one in spent.items()}})


def _write_parquet(recording: Recording, folder: Path, batch_count: int) -> int:
    """Write the tuples of all streams, by stream batches, in both kinds of columns; return their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [table for number in range(1, batch_count + 1) for table in recording.workload.tables(number).values()]
    table = pa.concat_tables(tables)
    whole = {TRIPLES: table.rename_columns(["subject", "predicate", "object", "time"]), TEXT: _as_text(table)}
    for columns, one in whole.items():
        place = folder / columns.replace(" ", "-")
        place.mkdir()
        bounds = np.linspace(0, len(one), FILES + 1).astype(int).tolist()
        for number in range(FILES):
            part = one.slice(bounds[number], bounds[number + 1] - bounds[number])
            pq.write_table(part, place / f"part-{number}.parquet")
    return len(table)


def _as_text(table: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = [table[name] for name in ("subject", "predicate", "object")]
    lines = pc.binary_join_element_wise(*parts, pa.scalar("."), " ")
    return pa.table({"value": lines, "time": table["timestamp_ms"]})
