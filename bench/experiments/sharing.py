"""sharing and install (figures 1, 3 and 4 of the paper on shared arrangements): continuous queries over one graph
that changes, with one arrangement for all of them and with one for each.

Edges come in stream batches of 100 ms and join the stored graph. Query number i wants, for those of the window that
lead into its 64th of the nodes, where edges go on to. `shared`: all queries are registered in one engine. `not
shared`: each has an engine with a graph of its own, which gets the same edges. `latency` is from the call that brings
a stream batch until the windows of all queries are there; `memory` what the engines count of the stored graph, terms
and slices; `resident` what the process holds more.

`install` is registering query number N beside those before it, without parsing its text (`parse`); not shared: making
an engine, loading the graph into it, and registering. Answers are compared with plain arrays.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import wukongs
from wukongs import WindowResult
from wukongs.bench.experiments.session import Session
from wukongs.bench.harness import WrongAnswer
from wukongs.bench.interactive.graph import TO, RandomGraph, numbers_of
from wukongs.bench.memory import kept_bytes
from wukongs.bench.peers import WUKONGS
from wukongs.bench.record import say
from wukongs.csparql import parse_query
from wukongs.engine import Engine

if TYPE_CHECKING:
    import pyarrow as pa

SHARING, INSTALL = "sharing", "install"
SHARED, NOT_SHARED = "shared", "not shared"
QUERIES = (SHARED, NOT_SHARED)
CHECKED = "plain arrays"
STREAM, GROUP = "http://e/changes", "<http://e/group>"
GROUPS, BATCH_MS, WINDOW_BATCHES = 64, 100, 10
COUNTS, QUICK_COUNTS = (1, 2, 4, 8, 16, 32, 64), (1, 3)
PLACES, QUICK_PLACES = (1, 10, 100, 1000, 10_000), (1, 10)
NODES, EDGES = 100_000, 640_000
"""The graph of `sharing`, of which 64 have to fit into memory."""
CHANGES = 1000
"""Edges of a stream batch: 10,000 a second."""
WINDOWS = 30
LAST = 10
CHUNK = 500_000
SETTLE_S = 120.0


@dataclass(slots=True)
class Changes:
    """The edges of each stream batch, and all edges by their source."""

    graph: RandomGraph
    size: int
    batches: list[list[tuple[int, int]]] = field(default_factory=list)
    _near: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for source, target in zip(self.graph.sources.tolist(), self.graph.targets.tolist(), strict=True):
            self._near[source].add(target)

    def next_table(self) -> pa.Table:
        """Draw a stream batch; return it as push_many takes it."""
        import pyarrow as pa

        sources, targets = self.graph.draw(self.size), self.graph.draw(self.size)
        self.batches.append(list(zip(sources, targets, strict=True)))
        for source, target in self.batches[-1]:
            self._near[source].add(target)
        ends = [self.graph.names.take(pa.array(column)) for column in (sources, targets)]
        times = pa.array([len(self.batches) * BATCH_MS] * self.size, pa.int64())
        names = ["subject", "predicate", "object", "timestamp_ms"]
        return pa.table([ends[0], pa.array([TO] * self.size), ends[1], times], names)

    def expected(self, group: int) -> list[tuple[int, ...]]:
        """Return the rows of the newest window for a group, sorted."""
        edges = {edge for batch in self.batches[-WINDOW_BATCHES:] for edge in batch if edge[1] % GROUPS == group}
        return sorted((source, near, far) for source, near in edges for far in self._near[near])


@dataclass(slots=True)
class Arrived:
    """The newest window of each query, and when all of a time have come. count: how many queries there are."""

    count: int
    end_ms: int = 0
    at_s: float = 0.0
    windows: dict[int, WindowResult] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _all: threading.Event = field(default_factory=threading.Event)

    def expect(self, end_ms: int) -> None:
        self.end_ms = end_ms
        self.windows.clear()
        self._all.clear()

    def take(self, number: int, window: WindowResult) -> None:
        with self._lock:
            if window.end_ms == self.end_ms:
                self.windows[number] = window
                if len(self.windows) == self.count:
                    self.at_s = time.perf_counter()
                    self._all.set()

    def wait(self) -> float:
        """Return when the last one came (perf_counter). Raises WrongAnswer."""
        if not self._all.wait(SETTLE_S):
            raise WrongAnswer(f"{self.count} windows expected, {len(self.windows)} in the time given")
        return self.at_s


def text_of(number: int) -> str:
    """Return the text that registers query `number`."""
    patterns = f"?near {GROUP} <http://e/g{number % GROUPS}> ; {TO} ?far"
    return (
        f"REGISTER QUERY q{number} AS SELECT ?source ?near ?far FROM <urn:x-wukongs:default> "
        f"FROM NAMED STREAM <{STREAM}> [RANGE 1s STEP {BATCH_MS}ms] "
        f"WHERE {{ GRAPH <{STREAM}> {{ ?source {TO} ?near }} {patterns} }}"
    )


def load(engine: Engine, graph: RandomGraph) -> None:
    """Store the graph and the group of each node, and declare the stream."""
    import pyarrow as pa

    for first in range(0, len(graph.sources), CHUNK):
        engine.apply(graph.edges(np.arange(first, min(first + CHUNK, len(graph.sources)), dtype=np.int64)))
    groups = [f"<http://e/g{number % GROUPS}>" for number in range(graph.nodes)]
    columns = [graph.names, pa.array([GROUP] * graph.nodes), pa.array(groups)]
    engine.apply(pa.table(columns, ["subject", "predicate", "object"]))
    stream = engine.stream(STREAM, batch_ms=BATCH_MS, history_ms=BATCH_MS * WINDOW_BATCHES)
    stream.advance(0)
    engine.settle(SETTLE_S)


# --- sharing ----------------------------------------------------------------------------------------------------------


def run_sharing(session: Session) -> None:
    """Measure each number of queries that is not done, with sharing and without by turns."""
    nodes, edges = (500, 3000) if session.is_quick else (NODES, EDGES)
    session = session.with_case(edges=edges)
    for count in QUICK_COUNTS if session.is_quick else COUNTS:
        case = {**session.case, "queries": count}
        for way in QUERIES:
            if not session.wants(way) or not session.open(SHARING, way, (WUKONGS,), case, "resident"):
                continue
            session.begin(f"{SHARING}: {count} queries, {way}")
            graph = RandomGraph.of(nodes, edges)
            try:
                latency_ms, memory_mb, resident_mb, rows = _with_queries(graph, way, count, session.is_quick)
            except WrongAnswer as error:
                session.record.skipped(SHARING, way, WUKONGS, case, f"answers otherwise: {error}")
                continue
            key, busy = (SHARING, way, WUKONGS, case), session.busy()
            session.record.measured(*key, "latency", latency_ms, rows=rows, checked=CHECKED, busy=busy)
            session.record.measured(*key, "memory", [memory_mb], unit="MB", checked=CHECKED, busy=busy)
            session.record.measured(*key, "resident", [resident_mb], unit="MB", checked=CHECKED, busy=busy)


def _with_queries(graph: RandomGraph, way: str, count: int, is_quick: bool) -> tuple[list[float], float, float, int]:
    """Return the milliseconds of each stream batch, the engines' MB, the MB that the process holds more, and the rows
    of the last windows of all queries."""
    before = kept_bytes()
    changes, arrived = Changes(graph, 30 if is_quick else CHANGES), Arrived(count)
    with _engines(1 if way == SHARED else count) as engines:
        for engine in engines:
            load(engine, graph)
        for number in range(count):
            engine = engines[number % len(engines)]
            engine.register(text_of(number), lambda window, number=number: arrived.take(number, window))  # type: ignore[misc]
        latency_ms = []
        for at in range(WINDOW_BATCHES + (4 if is_quick else WINDOWS)):
            table = changes.next_table()
            arrived.expect((at + 1) * BATCH_MS)
            began = time.perf_counter()
            for engine in engines:
                engine.push_many({STREAM: table}, arrived.end_ms)
            if at >= WINDOW_BATCHES:
                latency_ms.append((arrived.wait() - began) * 1e3)
            else:
                arrived.wait()
        _check(changes, arrived)
        memory = sum(map(_bytes_of, engines))
        return latency_ms, memory / 1e6, (kept_bytes() - before) / 1e6, sum(map(len, arrived.windows.values()))


@contextmanager
def _engines(count: int) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(wukongs.Engine()) for _ in range(count)]


def _check(changes: Changes, arrived: Arrived) -> None:
    """Compare the newest windows with plain arrays. Raises WrongAnswer."""
    for number, window in arrived.windows.items():
        found = sorted(tuple(numbers_of([text or "" for text in row])) for row in window.texts())
        expected = changes.expected(number % GROUPS)
        if found != expected:
            raise WrongAnswer(f"{len(expected)} rows expected ({CHECKED}), {len(found)} found, query {number}")


def _bytes_of(engine: Engine) -> int:
    stats = engine.stats()
    slices = sum(stream["slice_bytes"] for stream in stats["streams"].values())
    return int(stats["stored_bytes"] + stats["term_bytes"] + slices)


# --- install ----------------------------------------------------------------------------------------------------------


def run_install(session: Session, nodes: int, edges: int) -> None:
    """Measure what is not done: query number N of an engine with a graph, and an engine of its own for one."""
    places = QUICK_PLACES if session.is_quick else PLACES
    cases = {place: {**session.case, "queries": place} for place in places}
    shared = [at for at, case in cases.items() if session.open(INSTALL, SHARED, (WUKONGS,), case, "install")]
    alone = session.open(INSTALL, NOT_SHARED, (WUKONGS,), cases[1], "install")
    if not any(session.wants(way) and is_open for way, is_open in ((SHARED, shared), (NOT_SHARED, alone))):
        return
    say(f"{INSTALL}: making a graph of {nodes:,} nodes and {edges:,} edges")
    graph = RandomGraph.of(nodes, edges)
    if session.wants(SHARED) and shared:
        session.begin(f"{INSTALL}: up to {places[-1]:,} queries in one engine")
        _install_shared(session, graph, places, shared)
    if session.wants(NOT_SHARED) and alone:
        session.begin(f"{INSTALL}: a query with a graph of its own")
        took_ms = []
        for repetition in range(session.repeat):
            began = time.perf_counter()
            with wukongs.Engine() as engine:
                load(engine, graph)
                engine.register(text_of(0))
                took_ms.append((time.perf_counter() - began) * 1e3)
            say(f"  repetition {repetition + 1} of {session.repeat}")
        key = (INSTALL, NOT_SHARED, WUKONGS, cases[1])
        session.record.measured(*key, "install", took_ms, checked="the queries of `shared`", busy=session.busy())


def _install_shared(session: Session, graph: RandomGraph, places: Sequence[int], open_: Sequence[int]) -> None:
    parse_ms, install_ms = [], []
    arrived = Arrived(places[-1])
    with wukongs.Engine() as engine:
        load(engine, graph)
        engine.register(text_of(0)).close()  # compiles
        for number in range(places[-1]):
            text = text_of(number)
            began = time.perf_counter()
            parse_query(text)
            parsed = time.perf_counter()
            engine.register(text, lambda window, number=number: arrived.take(number, window))  # type: ignore[misc]
            ended = time.perf_counter()
            parse_ms.append((parsed - began) * 1e3)
            install_ms.append(max(0.0, (ended - parsed) - (parsed - began)) * 1e3)
        busy = session.busy()
        changes = Changes(graph, 30 if session.is_quick else CHANGES)
        arrived.expect(BATCH_MS)
        engine.push_many({STREAM: changes.next_table()}, BATCH_MS)
        arrived.wait()
        arrived.windows = dict(list(arrived.windows.items())[:: max(1, places[-1] // GROUPS)])
        try:
            _check(changes, arrived)
        except WrongAnswer as error:
            for place in open_:
                case = {**session.case, "queries": place}
                session.record.skipped(INSTALL, SHARED, WUKONGS, case, f"answers otherwise: {error}")
            return
    for place in open_:
        key = (INSTALL, SHARED, WUKONGS, {**session.case, "queries": place})
        last = slice(max(0, place - LAST), place)
        session.record.measured(*key, "parse", parse_ms[last], checked=CHECKED, busy=busy)
        session.record.measured(*key, "install", install_ms[last], checked=CHECKED, busy=busy)
