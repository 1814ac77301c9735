"""A mix of very many registered queries over the streams of a feed: drawn, registered one by one, fired, checked.

L1-L3 have constants that are drawn, with repeats, from all users of the data; L4-L6 have none, so their copies are
alike, and the engine answers those once a window. How often a class comes is the reciprocal of its latency in the
paper. The streams are pushed as fast as windows are answered, one firing after the other; the tuples of a firing are
there before its clock starts. The last windows of some queries of each class are compared with pyoxigraph's.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import wukongs
from wukongs import WindowResult
from wukongs.bench.experiments.feed import SETTLE_S, Feed
from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.lsbench.queries import QUERIES as TEXTS
from wukongs.bench.lsbench.queries import BenchQuery
from wukongs.bench.peers import difference
from wukongs.bench.record import say

SELECTIVE = ("L1", "L2", "L3")
LATENCY_MS = {"L1": 0.13, "L2": 0.10, "L3": 0.13, "L4": 1.19, "L5": 2.89, "L6": 2.14}
"""Those of the paper (Table 2): how often a class comes is the reciprocal."""
READ = 50
"""Queries of each class whose windows are timed, at most."""
CHECKED = 5
"""Queries of each class whose rows are compared."""
TICKS, QUICK_TICKS, WARM_UP = 20, 3, 5
"""Firings of a repetition; those before that compile and fill caches, once windows are full."""
OnResult = Callable[[WindowResult], None]
_ACCOUNT = re.compile(rb"(?m)^<http://www\.ins\.cwi\.nl/sib/user/u(\d+)> <http://rdfs\.org/sioc/ns#account_of> ")


@dataclass(slots=True)
class _Reader:
    """The last window that one query's on_result was given, and when."""

    query: BenchQuery
    user: str
    window: WindowResult | None = None
    at_s: float = 0.0


@dataclass(slots=True)
class Found:
    """Samples, by class where they are of one query. push_ms: of the tuples of a firing; before: the
    engine's counts of durability once all is registered."""

    throughput: list[float] = field(default_factory=list)
    push_ms: list[float] = field(default_factory=list)
    register_ms: list[float] = field(default_factory=list)
    latency_ms: dict[str, list[float]] = field(default_factory=dict)
    execution_ms: dict[str, list[float]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    before: Mapping[str, float] = field(default_factory=dict)
    why: str = ""

    @property
    def all_latency_ms(self) -> list[float]:
        return [one for some in self.latency_ms.values() for one in some]

    @property
    def all_execution_ms(self) -> list[float]:
        return [one for some in self.execution_ms.values() for one in some]


def firings_of(session: Session, feed: Feed, ticks: int) -> tuple[int, int]:
    """Return the time after which firings count, once windows are full and all is warm, and that of the last of
    `ticks`, or of as many as the streams have."""
    first_ms = feed.first_ms + (0 if session.is_quick else WARM_UP) * feed.step_ms
    return first_ms, first_ms + min(ticks, (feed.last_ms - first_ms) // feed.step_ms) * feed.step_ms


def run_mix(
    session: Session,
    feed: Feed,
    classes: Sequence[str],
    count: int,
    firings: tuple[int, int],
    data_dir: Path | None = None,
    at_end: Callable[[wukongs.Engine], None] = lambda engine: None,
    **settings: int,
) -> Found:
    """Register the queries, push streams, and take the firings after one time up to another.

    data_dir, settings: of the engine; at_end: is called before it is closed, if all answers are right."""
    first_ms, last_ms = firings
    found = Found(latency_ms={name: [] for name in classes}, execution_ms={name: [] for name in classes})
    arrived, waited = threading.Event(), [0]
    lock = threading.Lock()

    def read(reader: _Reader, window: WindowResult) -> None:
        reader.at_s, reader.window = time.perf_counter(), window
        with lock:
            waited[0] -= 1
            if not waited[0]:
                arrived.set()

    readers: dict[str, list[_Reader]] = {name: [] for name in classes}
    advance = dict.fromkeys(feed.streams)
    with feed.engine(data_dir=data_dir, settings=settings) as engine:
        for number, (query, user) in enumerate(_drawn(feed, classes, count)):
            reader = _Reader(query, user) if len(readers[query.name]) < READ else None
            if reader is not None:
                readers[query.name].append(reader)
            on_result: OnResult | None = None if query.name in SELECTIVE else _drop
            if reader is not None:
                on_result = partial(read, reader)
            began = time.perf_counter()
            engine.register(_text(feed, query, user, f"q{number}"), on_result)
            found.register_ms.append((time.perf_counter() - began) * 1e3)
        everyone = [reader for some in readers.values() for reader in some]
        say(f"  registered in {sum(found.register_ms) / 1e3:.1f} s")
        found.before = engine.stats()["durability"]
        gc.collect()
        gc.disable()  # as harness.repeat
        try:
            for end_ms, parts in feed.pushes(0, last_ms):
                arrived.clear()
                waited[0] = len(everyone)
                pushed = time.perf_counter()
                if parts:
                    engine.push_many(parts)
                began = time.perf_counter()
                engine.push_many(advance, end_ms)
                engine.settle(SETTLE_S)
                answered_s = time.perf_counter()
                is_there = arrived.wait(SETTLE_S)
                found.why = _late(everyone, end_ms) if is_there else f"no windows that end at {end_ms} ms"
                if found.why:
                    return found
                if end_ms > first_ms:
                    found.push_ms.append((began - pushed) * 1e3)
                    found.throughput.append(count / (answered_s - began))
                    for reader in everyone:
                        assert reader.window is not None
                        found.latency_ms[reader.query.name].append((reader.at_s - began) * 1e3)
                        found.execution_ms[reader.query.name].append(reader.window.latency_us / 1e3)
        finally:
            gc.enable()
        found.why = _otherwise(session, feed, readers, last_ms)
        if not found.why:
            at_end(engine)
    for name, some in readers.items():
        found.rows[name] = round(float(np.median([len(reader.window or ()) for reader in some])))
    return found


def _drop(window: WindowResult) -> None:
    """Be given a window."""


def _drawn(feed: Feed, classes: Sequence[str], count: int) -> Iterator[tuple[BenchQuery, str]]:
    """Yield queries with their users, classes evenly spread in their proportions; the same in each run."""
    users = sorted(set(_ACCOUNT.findall(feed.stored)))
    chosen = np.random.default_rng(3).integers(0, len(users), count)
    by_name = {query.name: query for query in TEXTS}
    came = dict.fromkeys(classes, 0)
    for at in chosen.tolist():
        name = min(classes, key=lambda one: (came[one] > 0, (came[one] + 1) * LATENCY_MS[one]))  # one of each first
        came[name] += 1
        yield by_name[name], f"u{users[at].decode()}"


def _text(feed: Feed, query: BenchQuery, user: str, name: str) -> str:
    text = query.register_text(f"{feed.range_ms}ms", f"{feed.step_ms}ms", user, f"p{user[1:]}")
    return text.replace(f"REGISTER QUERY {query.name} ", f"REGISTER QUERY {name} ", 1)


def _late(readers: Sequence[_Reader], end_ms: int) -> str:
    for reader in readers:
        if reader.window is None or reader.window.end_ms != end_ms:
            ended = "none" if reader.window is None else reader.window.end_ms
            return f"answers otherwise: {reader.query.name}: window that ends at {end_ms} ms expected, found: {ended}"
    return ""


def _otherwise(session: Session, feed: Feed, readers: Mapping[str, Sequence[_Reader]], end_ms: int) -> str:
    """Compare the last windows of some queries with pyoxigraph's; return the first difference."""
    with session.reference(feed.stored) as reference:
        by_name = {query.name: query for query in feed.queries}
        for name, some in readers.items():
            reference.window(feed.window(by_name[name], end_ms))
            fullest = sorted(some, key=lambda reader: -len(reader.window or ()))
            for reader in fullest[: CHECKED - 1] + fullest[-1:]:
                assert reader.window is not None
                expected = reference.select(reader.query.select_text(reader.user, f"p{reader.user[1:]}"))
                differs = difference(expected, list(reader.window.texts()), REFERENCE)
                if differs is not None:
                    return f"{differs} ({name} for {reader.user}, window that ends at {end_ms} ms)"
    return ""
