"""Many queries at a tick, of one shape and of as many shapes as queries, with what they share and without."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations, islice
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

import wukongs
from wukongs.bench.harness import Report, summary
from wukongs.bench.store.injection import BATCH_MS
from wukongs.live import injector, joined_queries, joint_firings
from wukongs.query.programs import program

if TYPE_CHECKING:
    import pyarrow as pa

SHARING = "Queries of one shape and of many, two patterns over a window of 1 s; calls of a kernel a tick"
STREAM = "http://e/events"
USERS = 500
WINDOW_BATCHES = 1000 // BATCH_MS
CHECKED = 30
Event = tuple[int, int, int]
"""A tuple: user, predicate, thing."""


@dataclass(frozen=True, slots=True)
class Way:
    """queries : the predicates of the first and second pattern, and the user of the first, of each; alone_max: as
    joined_queries.ALONE_MAX; together_max: programs of one call, as joint_firings.FIRINGS_MAX."""

    name: str
    queries: Sequence[tuple[int, int, int]]
    alone_max: int
    together_max: int = joint_firings.FIRINGS_MAX


def bench_sharing(report: Report, query_count: int, batch_rows: int, window_count: int) -> None:
    """Add a row for each way to run `query_count` queries. batch_rows: tuples of a stream batch."""
    predicates = next(n for n in range(2, query_count + 2) if n * (n - 1) // 2 >= query_count)
    pairs = islice(combinations(range(predicates), 2), query_count)
    many = [(first, second, at % USERS) for at, (first, second) in enumerate(pairs)]
    one = [(0, 1, at % USERS) for at in range(query_count)]
    alone = query_count + 1
    for way in (
        Way("a shape each, one call for each", many, alone, together_max=1),
        Way("a shape each", many, alone),
        Way("one shape, one call for each", one, alone, together_max=1),
        Way("one shape", one, alone),
        Way("one shape, a group from registration on", one, joined_queries.ALONE_MAX),
    ):
        _bench(report, way, predicates, batch_rows, window_count)


def _bench(report: Report, way: Way, predicates: int, batch_rows: int, window_count: int) -> None:
    random = np.random.default_rng(3)
    window: list[list[Event]] = []
    tick_ms, calls = [], []
    with _shared_as(way) as counted, wukongs.Engine() as engine:
        stream = engine.stream(STREAM, timing=True, batch_ms=BATCH_MS, history_ms=1000)
        stream.advance(0)
        queries = [engine.register(_text(f"q{at}", *query)) for at, query in enumerate(way.queries)]
        gc.collect()
        gc.disable()
        try:
            for number in range(1, WINDOW_BATCHES + window_count + 1):
                drawn = random.integers(0, (USERS, predicates, USERS // 4), (batch_rows, 3)).tolist()
                window = [*window, [(user, predicate, thing) for user, predicate, thing in drawn]][-WINDOW_BATCHES:]
                stream.push_arrow(_table(window[-1], number))
                counted.clear()
                began = time.perf_counter()
                stream.advance(number * BATCH_MS)
                engine.settle(120)
                if number > WINDOW_BATCHES:
                    tick_ms.append((time.perf_counter() - began) * 1e3)
                    calls.append(len(counted))
        finally:
            gc.enable()
        held = {event for batch in window for event in batch}
        for at in range(0, len(queries), -(-len(queries) // CHECKED)):
            *_, last = queries[at].results(timeout_s=0)
            found = sorted((str(thing), str(user)) for thing, user in last)
            report.check(f"{way.name}, rows of query {at}", _expected(held, *way.queries[at]), found)
    tick = summary(tick_ms)
    report.add(
        SHARING,
        {
            "way": way.name,
            "queries": len(queries),
            "kernel calls": summary(calls)["median"],
            "tick p50 ms": tick["median"],
            "tick p99 ms": tick["p99"],
            "us a query": tick["median"] * 1e3 / len(queries),
        },
    )


@contextmanager
def _shared_as(way: Way) -> Iterator[list[str]]:
    """Let queries share what a way says; note the calls of kernels that run plans."""
    counted: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(patch.object(joined_queries, "ALONE_MAX", way.alone_max))
        stack.enter_context(patch.object(injector, "FIRINGS_MAX", way.together_max))
        stack.enter_context(patch.object(program, "run_programs", _noting(counted, vars(program)["run_programs"])))
        yield counted


def _noting(counted: list[str], kernel: object) -> object:
    assert callable(kernel)

    def run(*arguments: object) -> object:
        counted.append("run_programs")
        return kernel(*arguments)

    return run


def _text(name: str, first: int, second: int, user: int) -> str:
    patterns = f"<http://e/user{user}> <http://e/p{first}> ?thing . ?who <http://e/p{second}> ?thing"
    size = f"[RANGE 1s STEP {BATCH_MS}ms]"
    return f"REGISTER QUERY {name} AS SELECT ?thing ?who FROM STREAM <{STREAM}> {size} WHERE {{ {patterns} }}"


def _expected(held: set[Event], first: int, second: int, user: int) -> list[tuple[str, str]]:
    things = {thing for who, predicate, thing in held if (who, predicate) == (user, first)}
    return sorted(
        (f"http://e/thing{thing}", f"http://e/user{who}")
        for who, predicate, thing in held
        if predicate == second and thing in things
    )


def _table(events: Sequence[Event], number: int) -> pa.Table:
    import pyarrow as pa

    return pa.table(
        {
            "subject": [f"<http://e/user{user}>" for user, _, _ in events],
            "predicate": [f"<http://e/p{predicate}>" for _, predicate, _ in events],
            "object": [f"<http://e/thing{thing}>" for _, _, thing in events],
            "timestamp_ms": pa.array([number * BATCH_MS] * len(events), pa.int64()),
        }
    )
