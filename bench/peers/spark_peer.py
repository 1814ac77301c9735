"""Spark as a peer: `python -m wukongs.bench.peers.spark_peer` speaks the JSON lines of README.md.

Each window is a table of its own, joined by Spark SQL with the cached table of stored triples: windows come in a drawn
order, and time in Structured Streaming only goes forward, so that what comes out of order would be dropped as late.
The session is that of our pipeline, on all cores, with more memory and Java's own compiler.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from wukongs.adapters.spark.session import StartingSession
from wukongs.bench.peers import Rows
from wukongs.bench.peers.lines import answer_lines, split_triples
from wukongs.bench.peers.spark_sql import NOTHING, STORED, to_sql
from wukongs.csparql.parser import parse_query

SETTINGS = {"spark.driver.memory": "6g", "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}


class Spark:
    """stored is cached, sorted by predicate: Spark then skips the parts of other predicates."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tables: dict[str, str] = {}
        self._frame("").createOrReplaceTempView(NOTHING)

    def load(self, path: Path) -> None:
        cores = self._session.sparkContext.defaultParallelism
        frame = self._frame(path.read_text("utf-8")).repartition(cores).sortWithinPartitions("p", "s").cache()
        frame.count()
        frame.createOrReplaceTempView(STORED)

    def window(self, graphs: Mapping[str, str]) -> None:
        self._tables = {}
        for number, (name, lines) in enumerate(graphs.items()):
            self._tables[name] = f"window_{number}"
            self._frame(lines).createOrReplaceTempView(f"window_{number}")

    def select(self, text: str) -> Rows:
        found = self._session.sql(to_sql(parse_query(text), self._tables)).toArrow()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def _frame(self, lines: str) -> Any:
        columns = list(zip(*split_triples(lines), strict=True)) or [(), (), ()]
        table = pa.table({name: pa.array(column, pa.string()) for name, column in zip("spo", columns, strict=True)})
        return self._session.createDataFrame(table)


def main() -> None:
    starting = StartingSession(os.cpu_count() or 1, settings=SETTINGS)
    try:
        answer_lines("spark", importlib.metadata.version("pyspark"), Spark(starting.session()))
    finally:
        starting.close()


if __name__ == "__main__":
    main()
