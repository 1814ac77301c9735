"""rate (figure 13 and section 6.4 of the Wukong+S paper): L1-L6 registered together, streams by the clock, faster and
faster until the engine falls behind.

`latency` counts from the moment when a stream batch was due, pushed or not, until the window is in on_result: waiting
in a queue counts. `behind` is how long after its time the last window came; beyond BEHIND_MS the engine has fallen
behind, and greater rates are not tried. `tuples` is what was pushed in a second of the clock. `busy` are the shares of
the time that the engine's threads, and the one that pushes, had a core: the greatest is where it falls behind first.
Three windows of each query are compared with pyoxigraph's. Peers are not fed by the clock: `latency` has them. If some
of L1-L6 were asked for only, these are registered, and the case has their names.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wukongs import WindowResult
from wukongs.bench.experiments.feed import SETTLE_S, Feed
from wukongs.bench.experiments.session import REFERENCE, Session
from wukongs.bench.lsbench.queries import QUERIES
from wukongs.bench.peers import WUKONGS, Rows, as_ntriples, difference
from wukongs.bench.record import say

EXPERIMENT = "rate"
ALL = "all"
"""The query of figures that are of all queries together."""
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BEHIND_MS = 1000.0
LONGEST_MS = 20_000
PARTS = {
    "MainThread": "pushing",
    "wukongs-injector": "sealing and firing",
    "wukongs-merger": "merging",
    "wukongs-on-result": "on_result",
}
"""Threads, by what they do."""
FIRINGS = "of it firings"


def of_queries(session: Session) -> Session:
    """Return the session with the names of the queries that are registered in its case, if they are not all."""
    wanted = [query.name for query in QUERIES if session.wants(query.name)]
    return session if len(wanted) == len(QUERIES) else session.with_case(queries=", ".join(wanted))


class ThreadShares:
    """How long the threads of this process have had a core since this was made. Without /proc there is nothing."""

    def __init__(self) -> None:
        self._began, self._ticks = time.perf_counter(), _thread_ticks()

    def __call__(self) -> dict[str, float]:
        """Return the percent of the time, by what a thread does; of several of a kind the sum."""
        ticks_each = (time.perf_counter() - self._began) * os.sysconf("SC_CLK_TCK")
        found: dict[str, float] = {}
        for (name, number), ticks in _thread_ticks().items():
            if part := PARTS.get(name):
                more = ticks - self._ticks.get((name, number), 0)
                found[part] = found.get(part, 0.0) + 100 * more / ticks_each
        return found


def _thread_ticks() -> dict[tuple[str, int | None], int]:
    """Return the ticks of each thread so far, by its name and its number at the system."""
    found = {}
    for thread in threading.enumerate():
        try:
            text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
        except OSError:
            continue
        found[thread.name, thread.native_id] = sum(map(int, text.rpartition(")")[2].split()[11:13]))
    return found


def run(session: Session, feed_at: Callable[[float], Feed], rates: Sequence[float]) -> None:
    """Measure each rate that is not done, from the least on."""
    session, behind_at = of_queries(session), None
    for rate in sorted(rates):
        case = {**session.case, "rate": rate}
        if session.record.is_done(EXPERIMENT, ALL, WUKONGS, case, "behind"):
            behind = session.record.median(EXPERIMENT, ALL, WUKONGS, case, "behind") or 0.0
        elif behind_at is not None:
            why = f"not tried: the engine fell behind at rate {behind_at:g}{_busiest(session, behind_at)}"
            session.record.skipped(EXPERIMENT, ALL, WUKONGS, case, why)
            continue
        else:
            behind = _run_rate(session, feed_at(rate), case, rate)
        if behind > BEHIND_MS:
            behind_at = rate


def _busiest(session: Session, rate: float) -> str:
    """Return which part was busiest at a rate, in words; nothing if that is not known."""
    case = {**session.case, "rate": rate}
    found = {part: session.record.median(EXPERIMENT, ALL, WUKONGS, case, f"busy: {part}") for part in PARTS.values()}
    known = {part: share for part, share in found.items() if share is not None}
    if not known:
        return ""
    part = max(known, key=lambda one: known[one])
    return f", where {part} had a core {known[part]:.0f} % of the time"


def _run_rate(session: Session, feed: Feed, case: dict[str, Any], rate: float) -> float:
    """Measure one rate; return how far behind its time the last window came, in milliseconds."""
    if feed.too_short:
        session.record.skipped(EXPERIMENT, ALL, WUKONGS, case, feed.too_short)
        return 0.0
    queries = [query for query in feed.queries if session.wants(query.name)]
    last_ms = min(feed.last_ms, LONGEST_MS)
    steps = list(feed.pushes(0, last_ms))
    compared = [steps[len(steps) * part // 4][0] for part in (2, 3)] + [last_ms]
    compared = sorted({end_ms for end_ms in compared if end_ms >= feed.first_ms})
    session.begin(f"{EXPERIMENT}: {rate:g}: {len(steps)} stream batches of {feed.step_ms} ms by the clock")
    came: dict[str, list[tuple[int, float]]] = {query.name: [] for query in queries}
    rows: dict[tuple[str, int], WindowResult] = {}
    done = threading.Event()

    def report(name: str, window: WindowResult) -> None:
        came[name].append((window.end_ms, time.perf_counter()))
        if window.end_ms in compared:
            rows[name, window.end_ms] = window
        if window.end_ms == last_ms and all(times and times[-1][0] == last_ms for times in came.values()):
            done.set()

    with feed.engine() as engine:
        for query in queries:
            engine.register(query.register_text, lambda window, name=query.name: report(name, window))  # type: ignore[misc]
        gc.collect()
        gc.disable()
        try:
            shares_of = ThreadShares()
            began = time.perf_counter()
            for end_ms, parts in steps:
                time.sleep(max(0.0, began + end_ms / 1000 - time.perf_counter()))
                engine.push_many({name: parts.get(name) for name in feed.streams}, end_ms)
            done.wait(SETTLE_S)
            ended, shares = time.perf_counter(), shares_of()
            fired_us = sum(one["execution_us_histogram"]["sum_us"] for one in engine.stats()["queries"].values())
            shares[FIRINGS] = fired_us / 1e4 / (ended - began)
        finally:
            gc.enable()
        found = {key: as_ntriples(window.texts()) for key, window in rows.items()}
    busy = session.busy()
    behind_ms = max(0.0, (ended - began) * 1e3 - last_ms)
    why = _wrong(session, feed, compared, found)
    for query in queries:
        key = (EXPERIMENT, query.name, WUKONGS, case)
        times = [(at_s - began) * 1e3 - end_ms for end_ms, at_s in came[query.name] if end_ms >= feed.first_ms]
        if len(came[query.name]) != len(steps):
            told = f"{len(came[query.name])} windows in the time given, {len(steps)} expected"
            why[query.name] = why.get(query.name) or told
        if why.get(query.name):
            session.record.skipped(*key, why[query.name])
        else:
            count = len(found[query.name, last_ms])
            session.record.measured(*key, "latency", times, rows=count, checked=REFERENCE, busy=busy)
    if any(why.values()):
        session.record.skipped(EXPERIMENT, ALL, WUKONGS, case, next(filter(None, why.values())))
        return behind_ms
    key = (EXPERIMENT, ALL, WUKONGS, case)
    tuples = sum(table.num_rows for _, parts in steps for table in parts.values()) / (ended - began)
    session.record.measured(*key, "tuples", [tuples], unit="tuples/s", checked=REFERENCE, busy=busy)
    for part, share in shares.items():
        session.record.measured(*key, f"busy: {part}", [share], unit="%", checked=REFERENCE, busy=busy)
    session.record.measured(*key, "behind", [behind_ms], checked=REFERENCE, busy=busy)
    if behind_ms > BEHIND_MS:
        told = _busiest(session, rate).removeprefix(", where ")
        say(f"  fell behind: the last window came {behind_ms / 1000:.1f} s after its time. {told}")
    return behind_ms


def _wrong(session: Session, feed: Feed, ends: list[int], found: dict[tuple[str, int], Any]) -> dict[str, str]:
    """Return how answers differ from pyoxigraph's, by query; nothing for those that do not."""
    told: dict[str, str] = {}
    with session.reference(feed.stored) as reference:
        for query in feed.queries:
            for end_ms in ends:
                rows: Rows | None = found.get((query.name, end_ms))
                if rows is not None and query.name not in told:
                    reference.window(feed.window(query, end_ms))
                    differs = difference(reference.select(query.select_text), rows, REFERENCE)
                    if differs is not None:
                        told[query.name] = f"{differs} (window that ends at {end_ms} ms)"
    return told
