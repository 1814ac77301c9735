"""throughput (figures 14 and 15 of the Wukong+S paper): very many registered queries at once, of three and six classes.

L1-L3 have constants that are drawn, with repeats, from all users of the data; L4-L6 have none, so their copies are
alike, and the engine answers those once a window. How often a class comes is the reciprocal of its latency in the
paper. Queries are registered one by one. The streams are pushed as fast as windows are answered, one firing after the
other; the tuples of a firing are there before its clock starts.

`throughput` is all registered queries over the time from the advance that makes them due until all are answered.
`latency` counts from that advance until a window is in on_result, of READ queries of each class. Of the others those
of L4-L6 have an on_result that does nothing, and those of L1-L3 none: large windows that nobody reads are dropped.
`execution` is the engine's own count for the same windows, from due to columns ready; of queries that fire together it
is that of all of them. `register` is one registration, its text parsed.

Answers: the last windows of some queries of each class are compared with pyoxigraph's.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from wukongs import WindowResult
from wukongs.bench.experiments.feed import SETTLE_S, Feed
from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.lsbench.queries import QUERIES as TEXTS
from wukongs.bench.lsbench.queries import BenchQuery
from wukongs.bench.peers import WUKONGS, difference
from wukongs.bench.record import say

EXPERIMENT = "throughput"
SELECTIVE = ("L1", "L2", "L3")
MIXES: Mapping[str, tuple[str, ...]] = {"L1-L3": SELECTIVE, "L1-L6": (*SELECTIVE, "L4", "L5", "L6")}
LATENCY_MS = {"L1": 0.13, "L2": 0.10, "L3": 0.13, "L4": 1.19, "L5": 2.89, "L6": 2.14}
"""Of the paper (Table 2): how often a class comes is the reciprocal."""
REGISTERED: Mapping[str, tuple[int, ...]] = {
    "L1-L3": (100, 1000, 10_000, 100_000),
    "L1-L6": (100, 1000, 10_000),
}
QUICK_REGISTERED = (40, 80)
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
    """What one query's on_result was given: the last window, and when."""

    query: BenchQuery
    user: str
    window: WindowResult | None = None
    at_s: float = 0.0


@dataclass(slots=True)
class _Found:
    """Samples, by class where they are of one query."""

    throughput: list[float] = field(default_factory=list)
    register_ms: list[float] = field(default_factory=list)
    latency_ms: dict[str, list[float]] = field(default_factory=dict)
    execution_ms: dict[str, list[float]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    why: str = ""


def run(session: Session, feed: Feed) -> None:
    """Measure each mix and number of queries that is not done."""
    for mix, classes in MIXES.items():
        for count in QUICK_REGISTERED if session.is_quick else REGISTERED[mix]:
            here = session.with_case(registered=count)
            if session.wants(mix) and here.open(EXPERIMENT, mix, (WUKONGS,), here.case, "throughput"):
                _measure(here, feed, mix, classes, count)


def _measure(session: Session, feed: Feed, mix: str, classes: Sequence[str], count: int) -> None:
    key = (EXPERIMENT, mix, WUKONGS, session.case)
    ticks = QUICK_TICKS if session.is_quick else TICKS * session.repeat
    first_ms = feed.first_ms + (0 if session.is_quick else WARM_UP) * feed.step_ms
    ticks = min(ticks, (feed.last_ms - first_ms) // feed.step_ms)
    if ticks < 1:
        session.record.skipped(*key, feed.too_short or f"the streams are too short: {feed.last_ms} ms")
        return
    session.begin(f"{EXPERIMENT}: {mix}: {count:,} registered queries, {ticks} firings")
    found = _run(session, feed, classes, count, first_ms, first_ms + ticks * feed.step_ms)
    busy = session.busy()
    if found.why:
        session.record.skipped(*key, found.why)
        return
    for name in classes:
        one = (EXPERIMENT, f"{name} of {mix}", WUKONGS, session.case)
        about: dict[str, Any] = {"rows": found.rows[name], "checked": REFERENCE, "busy": busy}
        session.record.measured(*one, "latency", found.latency_ms[name], **about)
        session.record.measured(*one, "execution", found.execution_ms[name], **about)
    about = {"checked": REFERENCE, "busy": busy}
    session.record.measured(*key, "latency", _all(found.latency_ms), **about)
    session.record.measured(*key, "execution", _all(found.execution_ms), **about)
    session.record.measured(*key, "register", found.register_ms, **about)
    session.record.measured(*key, "throughput", found.throughput, unit="queries/s", **about)


def _run(session: Session, feed: Feed, classes: Sequence[str], count: int, first_ms: int, last_ms: int) -> _Found:
    """Register the queries, push streams up to a time, and take firings after first_ms."""
    found = _Found(latency_ms={name: [] for name in classes}, execution_ms={name: [] for name in classes})
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
    with feed.engine() as engine:
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
        gc.collect()
        gc.disable()  # as harness.repeat
        try:
            for end_ms, parts in feed.pushes(0, last_ms):
                if parts:
                    engine.push_many(parts)
                arrived.clear()
                waited[0] = len(everyone)
                began = time.perf_counter()
                engine.push_many(advance, end_ms)
                engine.settle(SETTLE_S)
                answered_s = time.perf_counter()
                is_there = arrived.wait(SETTLE_S)
                found.why = _late(everyone, end_ms) if is_there else f"no windows that end at {end_ms} ms"
                if found.why:
                    return found
                if end_ms > first_ms:
                    found.throughput.append(count / (answered_s - began))
                    for reader in everyone:
                        assert reader.window is not None
                        found.latency_ms[reader.query.name].append((reader.at_s - began) * 1e3)
                        found.execution_ms[reader.query.name].append(reader.window.latency_us / 1e3)
        finally:
            gc.enable()
        found.why = _otherwise(session, feed, readers, last_ms)
    for name, some in readers.items():
        found.rows[name] = round(float(np.median([len(reader.window or ()) for reader in some])))
    return found


def _drop(window: WindowResult) -> None:
    """Be given a window."""


def _all(samples: Mapping[str, list[float]]) -> list[float]:
    return [one for some in samples.values() for one in some]


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
