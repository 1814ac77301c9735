"""queries: 1 to a million registered queries that differ in a constant, registered from a table and one by one.

Each query wants the posts of one user over a window of 1 s; a stream batch of 100 ms has BATCH_ROWS posts, by users
that are drawn, so the rows are as many for each number of queries. `register` is for all of them, `close` too. `tick`
is sealing a stream batch with all firings; `latency`, of a table, from the advance until on_result has all rows.
`size` is what the process holds more for a query. One by one, one query of READ has an on_result, and windows without
rows are left out.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import wukongs
from wukongs import WindowResult
from wukongs.bench.experiments.session import Session
from wukongs.bench.harness import WrongAnswer
from wukongs.bench.memory import kept_bytes
from wukongs.bench.peers import WUKONGS
from wukongs.bench.store.injection import BATCH_MS
from wukongs.live.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

EXPERIMENT = "queries"
FROM_TABLE, ONE_BY_ONE = "from a table", "one by one"
QUERIES = (FROM_TABLE, ONE_BY_ONE)
COUNTS, QUICK_COUNTS = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000), (1, 200)
ONE_BY_ONE_MAX = 100_000
CHECKED = "the posts that were pushed"
STREAM = "http://e/posts"
TEXT = (
    f"REGISTER QUERY g AS SELECT ?u ?p FROM STREAM <{STREAM}> [RANGE 1s STEP {BATCH_MS}ms] "
    "WHERE { ?u <http://e/posts> ?p }"
)
BATCH_ROWS, WINDOWS = 1000, 100
READ = 1000
WINDOW_BATCHES = 1000 // BATCH_MS
Figures = dict[str, tuple[str, list[float]]]
"""metric -> unit and values."""


@dataclass(slots=True)
class _Read:
    """The last window that on_result was given, and when it was given each."""

    at_s: list[float] = field(default_factory=list)
    last: WindowResult | None = None

    def __call__(self, window: WindowResult) -> None:
        self.at_s.append(time.perf_counter())
        self.last = window


def run(session: Session) -> None:
    """Measure each number of queries that is not done, in both ways."""
    batch_rows, windows = (20, 4) if session.is_quick else (BATCH_ROWS, WINDOWS)
    for count in QUICK_COUNTS if session.is_quick else COUNTS:
        case = {**session.case, "queries": count}
        for way in QUERIES:
            if not session.wants(way) or not session.open(EXPERIMENT, way, (WUKONGS,), case, "tick"):
                continue
            key = (EXPERIMENT, way, WUKONGS, case)
            if way == ONE_BY_ONE and count > ONE_BY_ONE_MAX:
                session.record.skipped(*key, f"not tried: beyond {ONE_BY_ONE_MAX:,} queries come from tables")
                continue
            session.begin(f"{EXPERIMENT}: {count:,}, {way}")
            measure = _from_table if way == FROM_TABLE else _one_by_one
            try:
                found = measure(count, batch_rows, windows)
            except WrongAnswer as error:
                session.record.skipped(*key, f"answers otherwise: {error}")
                continue
            busy = session.busy()
            for metric, (unit, values) in found.items():
                rows = WINDOW_BATCHES * batch_rows
                session.record.measured(*key, metric, values, unit=unit, rows=rows, checked=CHECKED, busy=busy)


def _from_table(count: int, batch_rows: int, window_count: int) -> Figures:
    users = _users(count)
    read, latency_ms, tick_ms = _Read(), [], []
    with wukongs.Engine() as engine:
        stream = _begin(engine)
        engine.register(TEXT, bindings=_users(2)).close()  # compiles the kernels
        before, began = kept_bytes(), time.perf_counter()
        group = engine.register(TEXT, read, bindings=users)
        register_s = time.perf_counter() - began
        size = max(0, kept_bytes() - before) / count
        for took_ms, began, posted in _ticks(engine, stream, users, batch_rows, window_count):
            chosen = posted
            tick_ms.append(took_ms)
            latency_ms.append((read.at_s[-1] - began) * 1e3)
        assert read.last is not None
        found = [int(str(number)) for number, *_ in read.last]
        if found != sorted(chosen.ravel().tolist()):
            raise WrongAnswer(f"{chosen.size} rows expected ({CHECKED}), {len(found)} found, or of other queries")
        close_ms = _took_ms(group.close)
    return {
        "register": ("s", [register_s]),
        "close": ("ms", [close_ms]),
        "size": ("KB", [size / 1e3]),
        "latency": ("ms", latency_ms),
        "tick": ("ms", tick_ms),
    }


def _one_by_one(count: int, batch_rows: int, window_count: int) -> Figures:
    users = _users(count)
    random = np.random.default_rng(2)
    with wukongs.Engine() as engine:
        stream = _begin(engine)
        for user in range(20):
            engine.register(_text(f"first{user}", user)).close()
        reads: dict[int, _Read] = {}
        before, began, queries = kept_bytes(), time.perf_counter(), []
        for user in range(count):
            reader = reads.setdefault(user, _Read()) if user % READ == 0 else None
            queries.append(engine.register(_text(f"q{user}", user), reader))
        register_s = time.perf_counter() - began
        size = max(0, kept_bytes() - before) / count
        tick_ms = []
        for took_ms, _, posted in _ticks(engine, stream, users, batch_rows, window_count):
            chosen = posted
            tick_ms.append(took_ms)
        counts = np.bincount(chosen.ravel(), minlength=count)
        end_ms = (WINDOW_BATCHES + window_count) * BATCH_MS
        looked_at = [user for user in random.choice(count, min(count, 200), replace=False).tolist() if user % READ]
        found = [sum(len(one) for one in queries[user].results(0) if one.end_ms == end_ms) for user in looked_at]
        called = [len(read.last) for read in reads.values() if read.last is not None and read.last.end_ms == end_ms]
        if found != counts[looked_at].tolist() or sum(called) != int(counts[::READ].sum()):
            raise WrongAnswer(f"other rows than {CHECKED} in the windows of some of {len(looked_at)} queries")
        close_ms = _took_ms(*(query.close for query in queries))
    return {
        "register": ("s", [register_s]),
        "close": ("ms", [close_ms]),
        "size": ("KB", [size / 1e3]),
        "tick": ("ms", tick_ms),
    }


def _took_ms(*calls: Callable[[], object]) -> float:
    began = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - began) * 1e3


def _text(name: str, user: int) -> str:
    """Return TEXT for one user."""
    text = TEXT.replace("QUERY g", f"QUERY {name} REPORT NON EMPTY RESULT").replace("SELECT ?u ", "SELECT ")
    return text.replace("?u ", f"<http://e/user{user}> ")


def _begin(engine: wukongs.Engine) -> Stream:
    stream = engine.stream(STREAM, timing=True, batch_ms=BATCH_MS, history_ms=1000)
    stream.advance(0)
    return stream


def _ticks(
    engine: wukongs.Engine, stream: Stream, users: pa.Table, batch_rows: int, window_count: int
) -> Iterator[tuple[float, float, np.ndarray]]:
    """Push stream batches of users that are drawn; yield, once windows are full, what a tick took in ms, when it began
    (perf_counter), and who is in the window : int64[WINDOW_BATCHES, batch_rows]."""
    random = np.random.default_rng(1)
    chosen = np.empty((0, batch_rows), np.int64)
    gc.disable()
    try:
        for number in range(1, WINDOW_BATCHES + window_count + 1):
            chosen = np.vstack((chosen, random.integers(0, users.num_rows, batch_rows)))[-WINDOW_BATCHES:]
            stream.push_arrow(_batch(users, chosen[-1], number))
            began = time.perf_counter()
            stream.advance(number * BATCH_MS)
            engine.settle(60)
            if number > WINDOW_BATCHES:
                yield (time.perf_counter() - began) * 1e3, began, chosen
    finally:
        gc.enable()


def _users(count: int) -> pa.Table:
    import pyarrow as pa

    return pa.table({"u": [f"<http://e/user{number}>" for number in range(count)]})


def _batch(users: pa.Table, chosen: np.ndarray, number: int) -> pa.Table:
    """Return a stream batch in which the chosen users post."""
    import pyarrow as pa

    count = len(chosen)
    return pa.table(
        {
            "subject": users["u"].take(pa.array(chosen)),
            "predicate": ["<http://e/posts>"] * count,
            "object": [f"<http://e/post{number}-{at}>" for at in range(count)],
            "timestamp_ms": pa.array([number * BATCH_MS] * count, pa.int64()),
        }
    )
