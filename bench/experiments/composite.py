"""composite (tables 2 to 4 of the Wukong+S paper): L1-L3 by a stream processor and a store side by side.

Spark Structured Streaming, on this machine, keeps the windows of the posts: 1 s every 100 ms, as an aggregation that it
gives out when a window closes. Each stream batch is a file of triples as columns; rows that say how far time has come
stand at its end, since Spark closes a window by later tuples, and has none without tuples. For each window the part
about the stored graph is asked of a one-shot store, first pyoxigraph, then wukongs, and joined with the window's rows.
L4-L6 are left out, as in the paper's table 4: they join streams, and a stream with itself.

`latency` counts from the moment when the last file of a window is there until its rows are; of wukongs as in the
experiment latency. `execution` is Spark's own count of the runs that take the file in and close the window, and the
store's part; of wukongs that of the firing. Files come one after the other, each when the window before is answered.

Answers: pyoxigraph's, over the same windows as named graphs. Without Java or pyspark only wukongs is measured.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from wukongs.bench.experiments.feed import Feed, WindowQuery
from wukongs.bench.experiments.latency import Measured, run_ours
from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.lsbench.data import IRI, LsbenchData
from wukongs.bench.peers import WUKONGS, Peer, Rows, difference
from wukongs.bench.peers.in_process import Oxigraph, Wukongs
from wukongs.bench.record import MISSING
from wukongs.errors import WukongsError

if TYPE_CHECKING:
    import pyarrow as pa

EXPERIMENT = "composite"
STORES: Mapping[str, Callable[[], Peer]] = {"Spark + pyoxigraph": Oxigraph, "Spark + wukongs": Wukongs}
WINDOWS, QUICK_WINDOWS = 10, 2
"""Windows of a repetition."""
COMPARED = 5
WAIT_S = 120.0
TASKS = 2
MARK = ""
"""The subject of the rows that say how far time has come."""
SIOC, SIB = "http://rdfs.org/sioc/ns#", "http://www.ins.cwi.nl/sib"
_TRIPLE = ("subject", "predicate", "object")
CREATOR = f"<{SIOC}creator_of>"


@dataclass(frozen=True, slots=True)
class _Plan:
    """A query in two parts. condition: of the stream's triples, in SQL; stored: the question to the store, whose rows
    have the subjects that count, empty where there is none; rows: of the triples of a window and these subjects."""

    condition: str
    stored: str
    rows: Callable[[Rows, set[str | None]], Rows]


def _plans(data: LsbenchData) -> dict[str, _Plan]:
    account = f"?user <{SIOC}account_of> <{SIB}/person/{data.person}>"
    friend = f"{account} . ?user <http://xmlns.com/foaf/0.1/knows> ?friend"
    is_post = f"predicate = '{CREATOR}'"
    return {
        "L1": _Plan(f"subject = '<{SIB}/user/{data.user}>'", "", lambda window, _: [(p, o) for _s, p, o in window]),
        "L2": _Plan(
            is_post,
            f"SELECT ?user {{ {account} }}",
            lambda window, who: [(post,) for user, _, post in window if user in who],
        ),
        "L3": _Plan(
            is_post,
            f"SELECT ?friend {{ {friend} }}",
            lambda window, who: [(user, post) for user, _, post in window if user in who],
        ),
    }


@dataclass(slots=True)
class _Window:
    """One window that Spark has closed. batch: the number of the run that gave it out."""

    triples: Rows
    batch: int
    at_s: float


@dataclass(slots=True)
class _Closed:
    """The windows that Spark has given out, by their ends."""

    windows: dict[int, _Window] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, frame: Any, batch: int) -> None:
        """Be given the windows that a run has closed."""
        found: dict[int, Rows] = {}
        for end_ms, *triple in frame.collect():
            rows = found.setdefault(end_ms, [])
            if triple[0] != MARK:
                rows.append(tuple(triple))
        with self.changed:
            for end_ms, rows in found.items():
                self.windows[end_ms] = _Window(rows, batch, time.perf_counter())
            self.changed.notify_all()

    def wait(self, end_ms: int, running: Any) -> _Window:
        """Return a window. Raises TimeoutError (it does not come), and what Spark has failed with."""
        deadline = time.monotonic() + WAIT_S
        with self.changed:
            while end_ms not in self.windows:
                self.changed.wait(0.5)
                if (error := running.exception()) is not None:
                    raise error
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no window that ends at {end_ms} ms within {WAIT_S:g} s")
            return self.windows[end_ms]


def run(session: Session, data: LsbenchData, feed: Feed) -> None:
    """Measure each query that is not done."""
    plans = _plans(data)
    engines = (WUKONGS, *STORES)
    wanted = {
        query.name: session.open(EXPERIMENT, query.name, engines, session.case, "execution")
        for query in feed.queries
        if query.name in plans and session.wants(query.name)
    }
    wanted = {name: names for name, names in wanted.items() if names}
    windows = QUICK_WINDOWS if session.is_quick else WINDOWS * session.repeat
    last_ms = min(feed.last_ms, feed.first_ms + windows * feed.step_ms)
    if not wanted or feed.too_short:
        for name, names in wanted.items():
            for engine in names:
                session.record.skipped(EXPERIMENT, name, engine, session.case, feed.too_short)
        return
    spark, why = None, ""
    if any(set(names) & set(STORES) for names in wanted.values()):
        spark, why = _start()
    try:
        for query in feed.queries:
            if query.name in wanted:
                session.begin(f"{EXPERIMENT}: {query.name}: {', '.join(wanted[query.name])}")
                answers = _answers(session, feed, query, last_ms)
                found = {}
                if WUKONGS in wanted[query.name]:
                    found[WUKONGS] = Measured()
                    run_ours(feed, query, found[WUKONGS], last_ms, answers, compares_rows=True)
                if spark is not None:
                    found |= _run_spark(spark, feed, query, plans[query.name], last_ms, answers)
                else:
                    found |= {name: Measured(why=why) for name in STORES}
                _write_down(session, query.name, wanted[query.name], found)
    finally:
        if spark is not None:
            from wukongs.adapters.spark.session import stop_session

            stop_session(spark)


def _start() -> tuple[Any, str]:
    """Start Spark; where it is not there, return why."""
    if find_spec("pyspark") is None:
        return None, f"{MISSING}Spark: pip install pyspark"
    from wukongs.adapters.spark.session import start_session

    try:
        spark = start_session(TASKS)
    except WukongsError as error:
        return None, f"{MISSING}Spark: {error}"
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")  # else a window waits for the next file
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))
    return spark, ""


def _answers(session: Session, feed: Feed, query: WindowQuery, last_ms: int) -> dict[int, Rows]:
    """Return pyoxigraph's rows of the windows that are compared."""
    ends = np.linspace(feed.first_ms, last_ms, COMPARED).astype(np.int64) // feed.step_ms * feed.step_ms
    answers = {}
    with session.reference(feed.stored) as reference:
        for end_ms in sorted(set(ends.tolist())):
            reference.window(feed.window(query, end_ms))
            answers[end_ms] = reference.select(query.select_text)
    return answers


def _run_spark(
    spark: Any, feed: Feed, query: WindowQuery, plan: _Plan, last_ms: int, answers: Mapping[int, Rows]
) -> dict[str, Measured]:
    """Run one query over the posts, with each store by its side."""
    found = {name: Measured() for name in STORES}
    stores = {name: make() for name, make in STORES.items()}
    try:
        for store in stores.values():
            store.load(feed.stored)
            if plan.stored:
                store.select(plan.stored)  # compiles
        with TemporaryDirectory(prefix="wukongs-composite-") as name:
            _stream(spark, feed, plan, last_ms, answers, Path(name), stores, found)
    except Exception as error:  # of the JVM, of any kind
        told = f"failed: {str(error).splitlines()[0]}"
        for one in found.values():
            one.why = one.why or told
    finally:
        for store in stores.values():
            store.close()
    return found


def _stream(
    spark: Any,
    feed: Feed,
    plan: _Plan,
    last_ms: int,
    answers: Mapping[int, Rows],
    folder: Path,
    stores: Mapping[str, Peer],
    found: Mapping[str, Measured],
) -> None:
    import pyarrow.parquet as pq

    watched, made = folder / "watched", folder / "made"
    watched.mkdir()
    made.mkdir()
    steps = list(feed.pushes(0, last_ms, (IRI["PO"],)))
    for end_ms, parts in steps:
        pq.write_table(_with_marks(parts.get(IRI["PO"]), end_ms - feed.step_ms, end_ms), made / f"{end_ms:09}.parquet")
    posts = (
        spark.readStream.schema("subject string, predicate string, object string, time timestamp")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(watched))
        .withWatermark("time", "0 seconds")
    )
    posts.createOrReplaceTempView("posts")
    triple = ", ".join(_TRIPLE)
    frame = spark.sql(
        f"SELECT unix_millis(window.end) AS end, {triple} FROM posts WHERE ({plan.condition}) OR subject = '{MARK}' "
        f"GROUP BY window(time, '{feed.range_ms} milliseconds', '{feed.step_ms} milliseconds'), {triple}"
    )
    closed = _Closed()
    began: dict[int, float] = {}
    parts_ms: dict[str, dict[int, float]] = {name: {} for name in stores}
    running = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(closed.take)
        .start()
    )
    try:
        for end_ms, _ in steps:
            began[end_ms] = time.perf_counter()
            os.rename(made / f"{end_ms:09}.parquet", watched / f"{end_ms:09}.parquet")
            window = closed.wait(end_ms, running)
            if end_ms < feed.first_ms:
                continue
            for name, store in stores.items():
                asked = time.perf_counter()
                who = {row[0] for row in store.select(plan.stored)} if plan.stored else set()
                rows = plan.rows(window.triples, who)
                one, took_s = found[name], time.perf_counter() - asked
                parts_ms[name][end_ms] = took_s * 1e3
                one.latency_ms.append((window.at_s - began[end_ms] + took_s) * 1e3)
                one.rows.append(len(rows))
                if end_ms in answers and not one.why:
                    told = difference(answers[end_ms], rows, REFERENCE)
                    one.why = f"{told} (window that ends at {end_ms} ms)" if told else ""
    finally:
        running.stop()
    runs = {one["batchId"]: one["durationMs"].get("triggerExecution", 0) for one in running.recentProgress}
    for name, one in found.items():
        for end_ms, store_ms in parts_ms[name].items():
            batch = closed.windows[end_ms].batch
            one.execution_ms.append(runs.get(batch - 1, 0) + runs.get(batch, 0) + store_ms)


def _with_marks(table: pa.Table | None, *marks_ms: int) -> pa.Table:
    """Return the tuples of a step as Spark reads them, with marks at its beginning and end. Spark's windows hold their
    beginning, not their end: all times are a millisecond less, but for the marks."""
    import pyarrow as pa

    times = np.append([] if table is None else table["timestamp_ms"].to_numpy() - 1, marks_ms).astype(np.int64)
    columns: list[Any] = []
    for name in _TRIPLE:
        texts = pa.array([], pa.string()) if table is None else table[name].combine_chunks().cast(pa.string())
        columns.append(pa.concat_arrays([texts, pa.array([MARK] * len(marks_ms))]))
    return pa.table([*columns, pa.array(times * 1000, pa.timestamp("us", "UTC"))], [*_TRIPLE, "time"])


def _write_down(session: Session, query: str, engines: Sequence[str], found: Mapping[str, Measured]) -> None:
    busy = session.busy()
    for name in engines:
        one, key = found[name], (EXPERIMENT, query, name, session.case)
        if one.why:
            session.record.skipped(*key, one.why)
            continue
        about: dict[str, Any] = {"rows": int(np.median(one.rows)), "checked": REFERENCE, "busy": busy}
        session.record.measured(*key, "latency", one.latency_ms, **about)
        session.record.measured(*key, "execution", one.execution_ms, **about)
