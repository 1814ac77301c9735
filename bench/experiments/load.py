"""load: stored triples, from N-Triples in memory until they can be asked. Each engine is made anew in each repetition,
and that counts."""

from __future__ import annotations

import time

from wukongs.bench.experiments.feed import Feed
from wukongs.bench.experiments.session import Guest, Session, in_turn
from wukongs.bench.peers import WUKONGS, Rows, difference
from wukongs.bench.peers.in_process import Wukongs
from wukongs.bench.record import say

EXPERIMENT = "load"
QUERY = "stored"
COUNT = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"


def run(session: Session, feed: Feed) -> None:
    """Measure what is not done. Triples are counted with each engine's own query."""
    if not session.wants(QUERY):
        return
    engines = session.open(EXPERIMENT, QUERY, (WUKONGS, *session.makers), session.case)
    if not engines:
        return
    lines = len(set(feed.stored.splitlines()))
    expected: Rows = [(f'"{lines}"^^<http://www.w3.org/2001/XMLSchema#integer>',)]
    makers = {WUKONGS: Wukongs, **{name: kind.make for name, kind in session.makers.items()}}
    guests = {name: Guest(name) for name in engines}
    times_s: dict[str, list[float]] = {name: [] for name in engines}
    session.begin(f"{EXPERIMENT}: {lines:,} triples: {', '.join(engines)}")
    for repetition in range(session.repeat + 1):  # the first compiles, and does not count
        for name in in_turn(engines, repetition):
            guest = guests[name]
            if guest.why:
                continue
            began = time.perf_counter()
            guest.begin(makers[name], feed.stored)
            took_s = time.perf_counter() - began
            found = guest.ask(lambda peer: peer.select(COUNT))
            if found is not None:
                guest.why = difference(expected, found, "distinct lines") or ""
                if repetition:
                    times_s[name].append(took_s)
            if guest.peer is not None:
                guest.peer.close()
                guest.peer = None
        say(f"  repetition {repetition} of {session.repeat}")
    busy = session.busy()
    for name in engines:
        key = (EXPERIMENT, QUERY, name, session.case)
        if guests[name].why:
            session.record.skipped(*key, guests[name].why)
        else:
            rates = [lines / took for took in times_s[name]]
            session.record.measured(
                *key, "load", rates, unit="triples/s", rows=lines, checked="count of the data", busy=busy
            )
