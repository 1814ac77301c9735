"""one-shot and one-shot-with-streams (table 8 of the Wukong+S paper): S1-S6 over stored triples and what streams added.

one-shot: the streams that join the stored graph were pushed before (wukongs) or are loaded with it (peers); nothing
moves. `execution` is the time from the text of a query to all its rows as N-Triples terms. Engines take turns.

one-shot-with-streams: wukongs only, with L1-L6 registered. In turns the streams flow at the rate of the replay, by the
clock, and are silent; case `streams` says which. Other engines have no streams of their own.

Answers are pyoxigraph's over the same triples: before, and with streams once more at the end.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import wukongs
from wukongs.bench.experiments.feed import SETTLE_S, Feed
from wukongs.bench.experiments.session import REFERENCE, Guest, Session, guests, in_turn
from wukongs.bench.peers import WUKONGS, Peer, Rows, difference
from wukongs.bench.peers.in_process import Wukongs
from wukongs.bench.record import say

EXPERIMENT, WITH_STREAMS = "one-shot", "one-shot-with-streams"
CALLS, TURN_S = 20, 1.0
"""How often one engine is asked one question in a repetition, unless that takes longer than TURN_S."""
WITH_STREAMS_S = 2.0
"""How long one turn with streams lasts."""


def run(session: Session, feed: Feed, texts: Mapping[str, str]) -> None:
    """Measure every query that was asked for and is not done. texts: S1-S6."""
    wanted = {
        name: session.open(EXPERIMENT, name, (WUKONGS, *session.makers), session.case)
        for name in texts
        if session.wants(name)
    }
    engines = {engine for names in wanted.values() for engine in names}
    if not engines:
        return
    say(f"{EXPERIMENT}: loading, and pushing {feed.last_ms / 1000:g} s of streams")
    triples = _absorbed(feed, feed.last_ms)
    with (
        session.reference(triples) as reference,
        guests(session, triples, engines) as present,
        feed.engine(_joining(feed)) as engine,
    ):
        for end_ms, parts in feed.pushes(0, feed.last_ms, _joining(feed)):
            engine.push_many({name: parts.get(name) for name in _joining(feed)}, end_ms)
        engine.settle(SETTLE_S)
        present[WUKONGS] = Guest(WUKONGS, Wukongs(engine))
        for name, names in wanted.items():
            if names:
                _run_query(session, name, texts[name], reference.select(texts[name]), names, present)
        del present[WUKONGS]  # the engine is closed with its block


def _joining(feed: Feed) -> tuple[str, ...]:
    """Return the streams whose triples join the stored graph."""
    return tuple(name for name in feed.streams if name not in feed.timing)


def _absorbed(feed: Feed, end_ms: int) -> bytes:
    """Return the stored triples, and those that the streams have added up to a time."""
    return b"".join([feed.stored, *(feed.streams[name].between(-1, end_ms) for name in _joining(feed))])


def _run_query(
    session: Session, name: str, text: str, expected: Rows, engines: tuple[str, ...], present: Mapping[str, Guest]
) -> None:
    session.begin(f"{EXPERIMENT}: {name}: {', '.join(engines)}")
    why: dict[str, str] = {}
    for engine in dict.fromkeys((WUKONGS, *engines)):
        guest = present[engine]
        guest.why = guest.why if guest.peer is None else ""
        rows = guest.ask(lambda peer: peer.select(text))  # compiles, fills caches, and is not timed
        why[engine] = guest.why if rows is None else difference(expected, rows, REFERENCE) or ""
    took_ms: dict[str, list[float]] = {engine: [] for engine in engines}
    asked = tuple(engine for engine in engines if not why[engine])
    for repetition in range(session.repeat):
        for engine in in_turn(asked, repetition):
            _ask(present[engine], text, took_ms[engine], 2 if session.is_quick else CALLS)
            why[engine] = why[engine] or present[engine].why
    if why[WUKONGS] and REFERENCE in engines:
        why[REFERENCE] = f"answers otherwise than {WUKONGS}, and no other engine decides"
    busy = session.busy()
    for engine in engines:
        key = (EXPERIMENT, name, engine, session.case)
        if why[engine]:
            session.record.skipped(*key, why[engine])
        else:
            checked = WUKONGS if engine == REFERENCE else REFERENCE
            session.record.measured(*key, "execution", took_ms[engine], rows=len(expected), checked=checked, busy=busy)


def _ask(guest: Guest, text: str, took_ms: list[float], calls: int) -> None:
    gc.collect()  # which may take longer than the turn, beside a peer with millions of objects
    gc.disable()
    until = time.perf_counter() + TURN_S
    try:
        for _ in range(calls):
            began = time.perf_counter()
            if guest.ask(lambda peer: peer.select(text)) is None:
                return
            ended = time.perf_counter()
            took_ms.append((ended - began) * 1e3)
            if ended > until:
                return
    finally:
        gc.enable()


def run_with_streams(session: Session, feed: Feed, texts: Mapping[str, str]) -> None:
    """Measure every query that was asked for and is not done, with streams and without by turns."""
    cases = {way: {**session.case, "streams": way} for way in ("off", "on")}
    wanted = [
        name
        for name in texts
        if session.wants(name) and any(session.open(WITH_STREAMS, name, (WUKONGS,), case) for case in cases.values())
    ]
    if not wanted:
        return
    for peer_name in session.makers:
        for name in wanted:
            if session.open(WITH_STREAMS, name, (peer_name,), cases["on"]):
                told = "it has no streams of its own: see one-shot"
                session.record.skipped(WITH_STREAMS, name, peer_name, cases["on"], told)
    steps = (feed.last_ms - feed.first_ms) // feed.step_ms // (2 * session.repeat)
    turn_steps = min(steps, int(WITH_STREAMS_S * 1000) // feed.step_ms)
    if turn_steps < 1:
        for name in wanted:
            told = f"the streams are too short for {session.repeat} repetitions: give fewer, or longer data"
            session.record.skipped(WITH_STREAMS, name, WUKONGS, cases["on"], told)
        return
    end_ms = feed.last_ms - session.repeat * turn_steps * feed.step_ms
    end_ms = end_ms // feed.step_ms * feed.step_ms
    session.begin(
        f"{WITH_STREAMS}: {', '.join(wanted)}: {session.repeat} turns of {turn_steps * feed.step_ms / 1000:g} s"
    )
    took_ms: dict[str, dict[str, list[float]]] = {way: {name: [] for name in wanted} for way in cases}
    why = dict.fromkeys(wanted, "")
    counts = dict.fromkeys(wanted, 0)
    with feed.engine() as engine:
        peer = Wukongs(engine)
        for query in feed.queries:
            engine.register(query.register_text, lambda window: None)
        for at_ms, parts in feed.pushes(0, end_ms):
            engine.push_many({name: parts.get(name) for name in feed.streams}, at_ms)
        engine.settle(SETTLE_S)
        _check(session, feed, end_ms, peer, texts, why, counts)
        for repetition in range(session.repeat):
            _ask_in_turn(peer, texts, took_ms["off"], turn_steps * feed.step_ms / 1000)
            before_ms, end_ms = end_ms, end_ms + turn_steps * feed.step_ms
            with _flowing(engine, feed, before_ms, end_ms):
                _ask_in_turn(peer, texts, took_ms["on"], turn_steps * feed.step_ms / 1000)
            engine.settle(SETTLE_S)
            say(f"  repetition {repetition + 1} of {session.repeat}")
        _check(session, feed, end_ms, peer, texts, why, counts)
    busy = session.busy()
    for way, case in cases.items():
        for name in wanted:
            key = (WITH_STREAMS, name, WUKONGS, case)
            if why[name]:
                session.record.skipped(*key, why[name])
            else:
                about = {"rows": counts[name], "checked": REFERENCE, "busy": busy}
                session.record.measured(*key, "execution", took_ms[way][name], **about)  # type: ignore[arg-type]


def _check(
    session: Session,
    feed: Feed,
    end_ms: int,
    peer: Peer,
    texts: Mapping[str, str],
    why: dict[str, str],
    counts: dict[str, int],
) -> None:
    """Compare all answers with pyoxigraph's over the triples up to a time."""
    with session.reference(_absorbed(feed, end_ms)) as reference:
        for name in why:
            rows = peer.select(texts[name])
            counts[name] = len(rows)
            why[name] = why[name] or difference(reference.select(texts[name]), rows, REFERENCE) or ""


def _ask_in_turn(peer: Peer, texts: Mapping[str, str], took_ms: dict[str, list[float]], seconds: float) -> None:
    """Ask one query after the other until the time is over, each once at least."""
    until = time.perf_counter() + seconds
    is_first = True
    while is_first or time.perf_counter() < until:
        is_first = False
        for name, times in took_ms.items():
            began = time.perf_counter()
            peer.select(texts[name])
            times.append((time.perf_counter() - began) * 1e3)


@contextmanager
def _flowing(engine: wukongs.Engine, feed: Feed, start_ms: int, end_ms: int) -> Iterator[None]:
    """Push streams by the clock, from one time to another; at the end wait for the last."""
    failed: list[BaseException] = []
    stopped = threading.Event()

    def push() -> None:
        try:
            began = time.perf_counter()
            for at_ms, parts in feed.pushes(start_ms, end_ms):
                if not stopped.is_set():
                    stopped.wait(max(0.0, began + (at_ms - start_ms) / 1000 - time.perf_counter()))
                engine.push_many({name: parts.get(name) for name in feed.streams}, at_ms)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=push)
    thread.start()
    try:
        yield
    finally:
        stopped.set()  # what is left comes at once: the next turn begins where this one ends
        thread.join()
    if failed:
        raise failed[0]
