"""latency and citybench (tables 2, 3 and 9 of the Wukong+S paper): each continuous query alone, over all streams.

wukongs: `latency` counts from the call that lets the streams advance until the window, its columns ready, is in
on_result; `execution` is what the firing takes by its own count, without picking its windows. Tuples are pushed before.
A peer keeps the stored triples and is given the same windows one after the other: `latency` is loading the window's
triples and answering, `execution` answering alone, up to rows of N-Triples terms. It gets the windows that end with a
whole second, in a drawn order, for about PEER_S; wukongs runs all windows.

Answers: pyoxigraph's rows of those windows are what every engine is compared with, in the first repetition row by row,
in the others by count.
"""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wukongs import WindowResult
from wukongs.bench.experiments.feed import SETTLE_S, Feed, WindowQuery
from wukongs.bench.experiments.session import PEER_S, REFERENCE, Guest, Session, guests, in_turn
from wukongs.bench.peers import WUKONGS, Peer, Rows, as_ntriples, difference
from wukongs.bench.record import say

COMPARED_MAX = 26
QUICK_S = 1.0


@dataclass(slots=True)
class Measured:
    """Milliseconds, by metric, and rows of each window that counts. why: the first wrong answer."""

    latency_ms: list[float] = field(default_factory=list)
    execution_ms: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    why: str = ""


def run(session: Session, feed: Feed, experiment: str = "latency") -> None:
    """Measure every query that was asked for and is not done. experiment: its name in the results."""
    wanted = {
        query.name: session.open(experiment, query.name, (WUKONGS, *session.makers), session.case, "execution")
        for query in (*feed.queries, *feed.others)
        if session.wants(query.name)
    }
    engines = {engine for names in wanted.values() for engine in names}
    if feed.too_short:
        for name, names in wanted.items():
            for engine in names:
                session.record.skipped(experiment, name, engine, session.case, feed.too_short)
        return
    if not engines:
        return
    with session.reference(feed.stored) as reference, guests(session, feed.stored, engines) as present:
        for query in (*feed.queries, *feed.others):
            if wanted.get(query.name):
                _run_query(session, experiment, feed, query, reference, wanted[query.name], present)


def _run_query(
    session: Session,
    experiment: str,
    feed: Feed,
    query: WindowQuery,
    reference: Peer,
    engines: tuple[str, ...],
    present: dict[str, Guest],
) -> None:
    answers = _reference_answers(feed, query, reference)
    ends = np.random.default_rng(2).permutation(sorted(answers)).tolist()
    asked = {name: present[name] for name in engines if name != WUKONGS}
    for name, guest in asked.items():
        if guest.peer is None:
            session.record.skipped(experiment, query.name, name, session.case, guest.why)
    measured = {name: Measured() for name in engines if name == WUKONGS or asked[name].peer is not None}
    for guest in asked.values():
        guest.why = "" if guest.peer is not None else guest.why
    session.begin(f"{experiment}: {query.name}: {', '.join(measured)}")
    if WUKONGS in measured:
        run_ours(feed, query, Measured(), min(feed.last_ms, feed.first_ms + 10 * feed.step_ms), {})  # compiles kernels
    for guest in asked.values():
        if guest.peer is not None:
            _run_peer(feed, query, guest, Measured(), ends[:1], answers, 0.0)  # as it is warm from then on
    for repetition in range(session.repeat):
        for name in in_turn(tuple(measured), repetition):
            found = measured[name]
            if name == WUKONGS:
                if not found.why:
                    run_ours(feed, query, found, feed.last_ms, answers, compares_rows=repetition == 0)
            elif not asked[name].why and not found.why:
                budget_s = (QUICK_S if session.is_quick else PEER_S) / session.repeat
                _run_peer(feed, query, asked[name], found, ends, answers, budget_s)
        say(f"  repetition {repetition + 1} of {session.repeat}")
    ours = measured.get(WUKONGS)
    if ours is None and REFERENCE in measured:
        ours = Measured()
        run_ours(feed, query, ours, feed.last_ms, answers, compares_rows=True)
    if REFERENCE in measured and ours is not None and ours.why:
        measured[REFERENCE].why = f"answers otherwise than {WUKONGS}, and no other engine decides"
    for name, found in measured.items():
        found.why = found.why or (asked[name].why if name in asked else "")
    _write_down(session, experiment, feed, query.name, measured)


def _write_down(session: Session, experiment: str, feed: Feed, query: str, measured: dict[str, Measured]) -> None:
    busy = session.busy()
    for name, found in measured.items():
        key = (experiment, query, name, session.case)
        if found.why:
            session.record.skipped(*key, found.why)
            continue
        checked = WUKONGS if name == REFERENCE else REFERENCE
        if name == WUKONGS and any(known == query for known, _ in feed.expected):
            checked += " and counts of the data"
        about: dict[str, Any] = {"rows": int(np.median(found.rows)), "checked": checked, "busy": busy}
        session.record.measured(*key, "latency", found.latency_ms, **about)
        session.record.measured(*key, "execution", found.execution_ms, **about)


def _reference_answers(feed: Feed, query: WindowQuery, reference: Peer) -> dict[int, Rows]:
    """Return the rows of the windows that are compared, by their end."""
    step_ms = max(feed.step_ms, 1000)
    ends = [end for end in range(feed.first_ms, feed.last_ms + 1, step_ms) if end >= feed.range_ms]
    if len(ends) > COMPARED_MAX:
        ends = [ends[place] for place in np.linspace(0, len(ends) - 1, COMPARED_MAX).astype(np.int64).tolist()]
    answers = {}
    for end_ms in ends:
        reference.window(feed.window(query, end_ms))
        answers[end_ms] = reference.select(query.select_text)
    return answers


def _run_peer(
    feed: Feed,
    query: WindowQuery,
    guest: Guest,
    found: Measured,
    ends: list[int],
    answers: dict[int, Rows],
    budget_s: float,
) -> None:
    """Give a peer windows until its time is over, three at least."""
    spent_s = 0.0
    for place, end_ms in enumerate(ends):
        if spent_s > budget_s and place >= 3:
            return
        graphs = feed.window(query, end_ms)
        began = time.perf_counter()
        guest.ask(lambda peer, graphs=graphs: peer.window(graphs))  # type: ignore[misc]
        loaded = time.perf_counter()
        rows = guest.ask(lambda peer: peer.select(query.select_text)) if not guest.why else None
        ended = time.perf_counter()
        if rows is None:
            return
        spent_s += ended - began
        found.why = _otherwise(end_ms, answers[end_ms], rows)
        if found.why:
            return
        found.latency_ms.append((ended - began) * 1e3)
        found.execution_ms.append((ended - loaded) * 1e3)
        found.rows.append(len(rows))


def _otherwise(end_ms: int, expected: Rows, rows: Rows) -> str:
    told = difference(expected, rows, REFERENCE)
    return "" if told is None else f"{told} (window that ends at {end_ms} ms)"


def run_ours(
    feed: Feed,
    query: WindowQuery,
    found: Measured,
    last_ms: int,
    answers: dict[int, Rows],
    compares_rows: bool = False,
) -> None:
    """Push all streams up to a time, one firing after the other, and add its windows."""
    arrived = threading.Event()
    got: list[tuple[float, WindowResult]] = []

    def on_result(window: WindowResult) -> None:
        got.append((time.perf_counter(), window))
        arrived.set()

    compared: list[tuple[int, Rows, int]] = []
    with feed.engine() as engine:
        registered = engine.register(query.register_text, on_result)
        advance = dict.fromkeys(feed.streams)
        execution_us = 0.0
        gc.collect()
        gc.disable()  # as harness.repeat: a full collection would fall on one of the samples
        try:
            for end_ms, parts in feed.pushes(0, last_ms):
                if parts:
                    engine.push_many(parts)
                arrived.clear()
                began = time.perf_counter()
                engine.push_many(advance, end_ms)
                is_there = arrived.wait(SETTLE_S)
                engine.settle(SETTLE_S)
                if not is_there or len(got) != 1 or got[0][1].end_ms != end_ms:
                    ends = ", ".join(str(window.end_ms) for _, window in got) or "none"
                    found.why = f"answers otherwise: one window that ends at {end_ms} ms expected, found: {ends}"
                    return
                at_s, window = got.pop()
                total_us = registered.stats()["execution_us_histogram"]["sum_us"]
                took_us, execution_us = total_us - execution_us, total_us
                if end_ms < feed.first_ms:
                    continue
                found.latency_ms.append((at_s - began) * 1e3)
                found.execution_ms.append(took_us / 1e3)
                found.rows.append(len(window))
                if end_ms in answers:
                    compared.append((end_ms, as_ntriples(window.texts()) if compares_rows else [], len(window)))
                expected = feed.expected.get((query.name, end_ms))
                if expected is not None and expected != len(window):
                    found.why = (
                        f"answers otherwise: {expected} rows expected (README of the data), {len(window)} found "
                        f"(window that ends at {end_ms} ms)"
                    )
                    return
        finally:
            gc.enable()
    for end_ms, rows, count in compared:
        if compares_rows:
            found.why = found.why or _otherwise(end_ms, answers[end_ms], rows)
        elif count != len(answers[end_ms]) and not found.why:
            found.why = (
                f"answers otherwise: {len(answers[end_ms])} rows expected ({REFERENCE}), {count} found "
                f"(window that ends at {end_ms} ms)"
            )
