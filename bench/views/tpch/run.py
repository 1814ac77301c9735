"""The 22 queries of TPC-H as live views over rows as triples: all at once, then each alone.

Rows arrive in turn over all tables, orders are deleted with their lines. A time is from the call of `apply` to the
columns of the reports, in milliseconds; `store` is that of `apply` itself, `change` that of the views. Contents are
compared with DuckDB's answers at checkpoints before a time is written: decimals exactly, quotients to 12 digits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import wukongs
from wukongs.bench.harness import Report, Row, WrongAnswer, repeat, summary
from wukongs.bench.peers import PeerMissing
from wukongs.bench.views.tpch.answers import Content, Rows, difference, of_sql, register
from wukongs.bench.views.tpch.tables import NUMBERS, Agenda, Tables, generate, read, texts
from wukongs.errors import WukongsError

SETTLE_S = 3600.0
ALL, ALONE = "All 22 views at once, in milliseconds", "Each view alone, in milliseconds"


@dataclass(frozen=True, slots=True)
class Phase:
    """batches: None: until `share` of all rows have arrived. checked_each: contents are compared after each of as many
    batches."""

    rows: int
    batches: int | None
    checked_each: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Size:
    """scale: of the tables; all: what all views at once follow; alone: what each view alone follows then."""

    scale: float
    all: tuple[Phase, ...]
    alone: tuple[Phase, ...]


FULL = Size(
    0.1, (Phase(100_000, None, 1, 0.7), Phase(1000, 100, 10), Phase(1, 200, 50)), (Phase(1000, 5, 5), Phase(1, 30, 30))
)
QUICK = Size(0.001, (Phase(2000, None, 1, 0.5), Phase(100, 6, 3), Phase(1, 4, 4)), (Phase(20, 2, 2), Phase(1, 2, 2)))


class DuckDB:
    """Answers the queries in SQL over the rows that are there. Raises PeerMissing."""

    def __init__(self) -> None:
        try:
            import duckdb
        except ImportError:
            raise PeerMissing("duckdb is not here: pip install 'wukongs[tpch]'") from None
        self.version = duckdb.__version__
        self._connection = duckdb.connect()

    def hold(self, tables: Iterator[tuple[str, Any]]) -> None:
        """Answer over these tables from now on."""
        for name, table in tables:
            self._connection.register("arrived", table)
            self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM arrived")

    def rows(self, sql: str) -> Rows:
        return of_sql(self._connection.execute(sql).fetchall())


class Run:
    """One engine, the stream of rows, and the views that follow."""

    def __init__(self, found: Report, engine: wukongs.Engine, duckdb: DuckDB, tables: Tables, scale: float) -> None:
        self.found, self.engine = found, engine
        self.agenda, self.duckdb = Agenda(tables), duckdb
        self.asked = {number: texts(number, scale) for number in NUMBERS}
        self.views: dict[int, Any] = {}
        self.contents: dict[int, Content] = {}

    def register(self, number: int) -> float:
        """Register a view; return the milliseconds that it took."""
        began_s = time.perf_counter()
        self.views[number] = register(self.engine, number, self.asked[number][0])
        taken_ms = 1e3 * (time.perf_counter() - began_s)
        self.contents[number] = Content(self.views[number])
        return taken_ms

    def close(self, number: int) -> None:
        self.contents.pop(number)
        self.views.pop(number).close()

    def step(self, count: int) -> dict[str, float]:
        """Apply the next rows; return the triples and the times in milliseconds."""
        inserts, deletes = self.agenda.changes(self.agenda.take(count))
        triples = sum(len(one) for one in (inserts, deletes) if one is not None)
        began_s = time.perf_counter()
        self.engine.apply(inserts, deletes)
        stored_s = time.perf_counter()
        self.engine.settle(SETTLE_S)
        reports = {number: content.take() for number, content in self.contents.items()}
        ended_s = time.perf_counter()
        for number, one in reports.items():
            self.contents[number].add(one)
        return {
            "triples": float(triples),
            "store": 1e3 * (stored_s - began_s),
            "from apply to report": 1e3 * (ended_s - began_s),
            "change": sum(view.stats()["last_change_us"] for view in self.views.values()) / 1e3,
        }

    def check(self, what: str) -> None:
        """Compare all contents with DuckDB's answers. Raises WrongAnswer."""
        self.duckdb.hold(self.agenda.live_tables())
        for number, content in self.contents.items():
            found = difference(content.rows(), self.answer(number))
            self.found.check(f"{what}: query {number} beside DuckDB", None, found)

    def answer(self, number: int) -> Rows:
        """Return DuckDB's answer over the rows of the last check."""
        return self.duckdb.rows(self.asked[number][1])

    def follow(self, phase: Phase, what: str) -> Iterator[dict[str, float]]:
        """Iterate over the batches of a phase, with their triples and times. Raises WrongAnswer."""
        batches = phase.batches
        if batches is None:
            batches = -(-int(phase.share * len(self.agenda)) // phase.rows)
        for number in range(1, batches + 1):
            yield self.step(phase.rows)
            if not number % phase.checked_each or number == batches:
                self.check(f"{what}, batch {number} of {phase.rows} rows")


def main(report: Path | None = None, data: Path | None = None, quick: bool = False, only: Sequence[str] = ()) -> int:
    """Run the benchmark. data: a folder of parquet files of the full size; only: numbers of queries. Returns the exit
    status: 1 for a wrong answer, or no answer."""
    size = QUICK if quick else FULL
    try:
        numbers = [int(one) for one in only] or list(NUMBERS)
        duckdb = DuckDB()
        tables = generate(size.scale) if data is None else read(data)
        rows = sum(map(len, tables.values()))
        found = Report("views-tpch", {"scale": size.scale, "rows": rows, "peer": f"DuckDB {duckdb.version}"})
        with wukongs.Engine() as engine:
            run = Run(found, engine, duckdb, tables, size.scale)
            _all_at_once(run, size.all, numbers)
            _each_alone(run, size.alone, numbers)
    except (WrongAnswer, PeerMissing, OSError, WukongsError) as error:
        print(f"wukongs: bench views-tpch: {error}", file=sys.stderr)
        return 1
    found.publish(report)
    return 0


def _all_at_once(run: Run, phases: Sequence[Phase], numbers: Sequence[int]) -> None:
    for number in numbers:
        run.register(number)
    rows = list[Row]()
    for phase in phases:
        print(f"bench views-tpch: all at once, batches of {phase.rows:,} rows", file=sys.stderr, flush=True)
        steps = list(run.follow(phase, "all at once"))
        seconds = sum(step["from apply to report"] for step in steps) / 1e3
        row: Row = {
            "rows": phase.rows,
            "batches": len(steps),
            "triples/s": sum(one["triples"] for one in steps) / seconds,
        }
        rows.append(row | _times(steps, ("median", "p99")))
    for row in rows:
        run.found.add(ALL, row)
    for number in numbers:
        run.close(number)


def _each_alone(run: Run, phases: Sequence[Phase], numbers: Sequence[int]) -> None:
    rows = list[Row]()
    for number in numbers:
        print(f"bench views-tpch: query {number}", file=sys.stderr, flush=True)
        registered_ms = run.register(number)
        run.engine.settle(SETTLE_S)
        for phase in phases:
            steps = list(run.follow(phase, "alone"))
            row: Row = {"query": number, "rows": phase.rows} | _times(steps, ("median",))
            rows.append(row | {"change / store": row["change, median"] / row["store, median"]})
        view, text = run.views[number], run.asked[number][0]
        asked = (
            ("ours", partial(lambda text: run.engine.query(text).texts(), text)),
            ("DuckDB", partial(run.answer, number)),
        )
        figures: Row = {f"{who} anew": 1e3 * summary(repeat(ask, 1))["median"] for who, ask in asked}
        figures |= {"registered in": registered_ms, "bytes kept": view.stats()["kept_bytes"]}
        figures["refresh"] = view.explain().count("refresh")
        for row in rows[-len(phases) :]:
            row |= figures
        run.close(number)
    for row in rows:
        run.found.add(ALONE, row)


def _times(steps: Sequence[dict[str, float]], which: Sequence[str]) -> Row:
    return {
        f"{what}, {one}": summary([step[what] for step in steps])[one]
        for what in ("store", "change", "from apply to report")
        for one in which
    }
