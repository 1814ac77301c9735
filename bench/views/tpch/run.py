"""The 22 queries of TPC-H as live views over rows as triples: all at once, then each alone, then asked anew.

Rows arrive in turn over all tables, orders are deleted with their lines. Contents are compared with DuckDB's answers at
checkpoints before a time is written: decimals exactly, quotients to 12 digits. Each query is then asked anew over the
rows that have arrived by then: of our engine, of DuckDB, and of pyoxigraph, which is given up after some seconds."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import wukongs
from wukongs.bench.experiments.session import Session
from wukongs.bench.peers import WUKONGS, PeerFailed, PeerMissing, TooSlow
from wukongs.bench.peers.in_process import OXIGRAPH
from wukongs.bench.published import GEOMETRIC_MEAN, TPCH_QUERIES
from wukongs.bench.record import MISSING, say
from wukongs.bench.views.anew import LATENCY, OURS_ANEW, OXIGRAPH_ANEW
from wukongs.bench.views.figures import SETTLE_S, Figures, followed, measure
from wukongs.bench.views.tpch.answers import Content, Rows, difference, of_sparql, of_sql, register
from wukongs.bench.views.tpch.oxigraph import Apart
from wukongs.bench.views.tpch.tables import Agenda, Tables, generate, read, texts, write_ntriples

EXPERIMENT = "tpch"
ALL = "all 22"
DUCKDB_ANEW = "DuckDB, asked anew"
QUERIES = (ALL, *TPCH_QUERIES)
RATE, FASTER = "triples", "times as fast as asked anew"


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
    """scale: of the tables; all: what all views at once follow; alone: what each view alone follows then; anew_s: how
    long pyoxigraph may take for one answer."""

    scale: float
    all: tuple[Phase, ...]
    alone: tuple[Phase, ...]
    anew_s: float


FULL = Size(
    0.1,
    (Phase(100_000, None, 1, 0.7), Phase(1000, 100, 10), Phase(1, 200, 50)),
    (Phase(1000, 5, 5), Phase(1, 30, 30)),
    20.0,
)
QUICK = Size(
    0.001,
    (Phase(2000, None, 1, 0.5), Phase(100, 6, 3), Phase(1, 4, 4)),
    (Phase(20, 2, 2), Phase(1, 2, 2)),
    20.0,
)


def size_of(is_quick: bool) -> Size:
    return QUICK if is_quick else FULL


class DuckDB:
    """Answers the queries in SQL over the rows that are there. Raises PeerMissing."""

    def __init__(self) -> None:
        try:
            import duckdb
        except ImportError:
            raise PeerMissing("DuckDB: pip install 'wukongs[tpch]'") from None
        self.version = duckdb.__version__
        self._connection = duckdb.connect()

    def hold(self, tables: Iterator[tuple[str, Any]]) -> None:
        """Answer over these tables from now on."""
        for name, table in tables:
            self._connection.register("arrived", table)
            self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM arrived")

    def rows(self, sql: str) -> Rows:
        return of_sql(self._connection.execute(sql).fetchall())


class Stream:
    """One engine, the rows that arrive in it, and the views that follow."""

    def __init__(self, engine: wukongs.Engine, duckdb: DuckDB, tables: Tables, scale: float) -> None:
        self.engine = engine
        self.agenda, self.duckdb = Agenda(tables), duckdb
        self.asked = {name: texts(int(name[1:]), scale) for name in TPCH_QUERIES}
        self.views: dict[str, Any] = {}
        self.contents: dict[str, Content] = {}

    def register(self, name: str) -> float:
        """Register a view; return the milliseconds that it took."""
        began_s = time.perf_counter()
        self.views[name] = register(self.engine, name, self.asked[name][0])
        taken_ms = 1e3 * (time.perf_counter() - began_s)
        self.contents[name] = Content(self.views[name])
        return taken_ms

    def close(self) -> None:
        """Close all views."""
        self.contents.clear()
        while self.views:
            self.views.popitem()[1].close()

    def fill(self, rows: int) -> None:
        """Let rows arrive that no view is to follow, until so many have."""
        while (left := rows - self.agenda.taken) > 0:
            self.engine.apply(*self.agenda.changes(self.agenda.take(min(left, 100_000))))

    def step(self, count: int) -> dict[str, float]:
        """Apply the next rows; return the triples and the times in milliseconds."""
        changes = self.agenda.changes(self.agenda.take(count))
        triples = sum(len(one) for one in changes if one is not None)
        stored_ms, all_ms, reports = followed(
            self.engine, list(self.views.values()), partial(self.engine.apply, *changes)
        )
        for content, one in zip(self.contents.values(), reports, strict=True):
            content.add(one)
        change_ms = sum(view.stats()["last_change_us"] for view in self.views.values()) / 1e3
        after_ms = all_ms - stored_ms
        return {
            "triples": float(triples),
            "store": stored_ms,
            "latency": all_ms,
            "change": change_ms,
            # A move may begin, or even end, before apply returns.
            LATENCY: max(after_ms, change_ms) if any(reports) else after_ms,
        }

    def check(self, figures: Figures, what: str) -> None:
        """Compare all contents with DuckDB's answers. Raises WrongAnswer."""
        self.duckdb.hold(self.agenda.live_tables())
        for name, content in self.contents.items():
            figures.check(f"{what}: {name}", None, difference(content.rows(), self.answer(name)))

    def answer(self, name: str) -> Rows:
        """Return DuckDB's answer over the rows of the last check."""
        return self.duckdb.rows(self.asked[name][1])

    def follow(self, figures: Figures, phase: Phase) -> Iterator[dict[str, float]]:
        """Iterate over the batches of a phase, with their triples and times. Raises WrongAnswer."""
        batches = phase.batches
        if batches is None:
            batches = -(-int(phase.share * len(self.agenda)) // phase.rows)
        for number in range(1, batches + 1):
            yield self.step(phase.rows)
            if not number % phase.checked_each or number == batches:
                self.check(figures, f"batch {number} of {phase.rows} rows")


def run(session: Session, data: Path | None = None) -> None:
    """data: a folder of parquet files of the full size."""
    size = size_of(session.is_quick)
    session = session.with_case(scale=size.scale)
    try:
        duckdb = DuckDB()
        tables = generate(size.scale) if data is None else read(data)
    except PeerMissing as error:
        session.record.skipped(EXPERIMENT, ALL, WUKONGS, session.case, f"{MISSING}{error}")
        return
    session.record.about["versions"]["duckdb"] = duckdb.version
    checked = f"DuckDB {duckdb.version}"
    with wukongs.Engine() as engine:
        stream = Stream(engine, duckdb, tables, size.scale)
        filled = int(size.all[0].share * len(stream.agenda))
        last = size.all[-1].rows
        body = partial(_all_at_once, stream=stream, phases=size.all)
        measure(session, EXPERIMENT, ALL, checked, RATE, body, batch=last)
        stream.close()
        stream.fill(filled)
        for name in TPCH_QUERIES:
            body = partial(_alone, stream=stream, phases=size.alone)
            measure(session, EXPERIMENT, name, checked, LATENCY, body, batch=size.alone[-1].rows)
            stream.close()
        _ask_anew(session, stream, size)
    _tell_ratios(session, size)


def _all_at_once(figures: Figures, stream: Stream, phases: Sequence[Phase]) -> None:
    for name in TPCH_QUERIES:
        stream.register(name)
    for phase in phases:
        say(f"  batches of {phase.rows:,} rows")
        steps = list(stream.follow(figures, phase))
        for metric in ("store", "change", "latency"):
            figures.add(metric, [one[metric] for one in steps], batch=phase.rows)
        rates = [1e3 * one["triples"] / one["latency"] for one in steps]
        figures.add(RATE, rates, "triples/s", batch=phase.rows)


def _alone(figures: Figures, stream: Stream, phases: Sequence[Phase]) -> None:
    registered_ms = stream.register(figures.query)
    stream.engine.settle(SETTLE_S)
    view = stream.views[figures.query]
    stream.contents[figures.query].add(list(view.results(timeout_s=0)))
    figures.add("install", [registered_ms])
    for phase in phases:
        steps = list(stream.follow(figures, phase))
        for metric in ("store", "change", LATENCY):
            figures.add(metric, [one[metric] for one in steps], batch=phase.rows)
    figures.add("kept", [view.stats()["kept_bytes"]], "bytes")


# --- asked anew -------------------------------------------------------------------------------------------------------


def _ask_anew(session: Session, stream: Stream, size: Size) -> None:
    """Ask each query anew over the rows that are there: as the views of the batches of 1,000 rows would be."""
    case = {**session.case, "batch": size.alone[0].rows}
    names = [
        name
        for name in TPCH_QUERIES
        if session.wants(name)
        and not all(
            session.record.is_done(EXPERIMENT, name, who, case) for who in (OURS_ANEW, DUCKDB_ANEW, OXIGRAPH_ANEW)
        )
    ]
    if not names:
        return
    session.begin(f"{EXPERIMENT}: asked anew; loading {OXIGRAPH}")
    stream.duckdb.hold(stream.agenda.live_tables())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.nt"
        write_ntriples(stream.agenda.live_tables(), path)
        theirs = Apart.start(path, size.anew_s)
        path.unlink()
        try:
            for name in names:
                session.begin(f"{EXPERIMENT}: {name}, asked anew")
                _ask_one_anew(session, stream, theirs, name, size.anew_s, case)
        finally:
            theirs.close()


def _ask_one_anew(
    session: Session, stream: Stream, theirs: Apart, name: str, anew_s: float, case: dict[str, Any]
) -> None:
    text = stream.asked[name][0]

    def ask_ours() -> tuple[float, Rows]:
        began_s = time.perf_counter()
        found = stream.engine.query(text).texts()
        return 1e3 * (time.perf_counter() - began_s), of_sparql(found)

    def ask_duckdb() -> tuple[float, Rows]:
        began_s = time.perf_counter()
        rows = stream.answer(name)
        return 1e3 * (time.perf_counter() - began_s), rows

    def ask_theirs() -> tuple[float, Rows]:
        taken_ms, rows = theirs.ask(text)
        return taken_ms, of_sparql(rows)

    expected = stream.answer(name)
    for who, ask, times in ((OURS_ANEW, ask_ours, 3), (DUCKDB_ANEW, ask_duckdb, 3), (OXIGRAPH_ANEW, ask_theirs, 1)):
        if session.record.is_done(EXPERIMENT, name, who, case):
            continue
        key = (EXPERIMENT, name, who, case)
        samples, why, count = list[float](), None, 0
        try:
            for _ in range(times):
                taken_ms, rows = ask()
                samples.append(taken_ms)
                why, count = difference(rows, expected), rows.total()
                if why is not None:
                    why = f"answers otherwise than DuckDB: {why}"
                    break
        except TooSlow:
            why = f"too slow: more than {anew_s:g} s for one answer"
        except PeerFailed as error:
            why = f"failed: {error}"
        if why is None:
            checked = f"DuckDB {stream.duckdb.version}"
            session.record.measured(*key, LATENCY, samples, rows=count, checked=checked, busy=session.busy())
        else:
            session.record.skipped(*key, why)


def _tell_ratios(session: Session, size: Size) -> None:
    """Write the geometric mean of how many times as fast the views are as asking anew. One that was given up counts as
    if it had taken just as long as it was given; one with another answer, or none, is left out."""
    case = {**session.case, "batch": size.alone[0].rows}
    record = session.record
    for who in (OURS_ANEW, DUCKDB_ANEW, OXIGRAPH_ANEW):
        ratios = list[float]()
        for name in TPCH_QUERIES:
            ours = record.median(EXPERIMENT, name, WUKONGS, case, LATENCY)
            anew = record.median(EXPERIMENT, name, who, case, LATENCY)
            if anew is None and "too slow" in record.why_skipped(EXPERIMENT, name, who, case):
                anew = 1e3 * size.anew_s
            if ours and anew:
                ratios.append(anew / ours)
        if ratios and not session.queries:
            mean = math.exp(float(np.mean(np.log(ratios))))
            told = {**case, "asked": who.partition(",")[0]}
            if record.is_done(EXPERIMENT, GEOMETRIC_MEAN, WUKONGS, told):
                continue
            key = (EXPERIMENT, GEOMETRIC_MEAN, WUKONGS, told, FASTER)
            record.measured(*key, [mean], unit="times", rows=len(ratios), checked="DuckDB")
