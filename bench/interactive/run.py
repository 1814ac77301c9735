"""interactive (figure 6 of the paper on shared arrangements): look-ups, one hop, two hops and paths on a graph that
changes: one at a time, many at once, beside steady updates.

The graph is random: 1 M nodes, 6.4 M edges and a value for each node (about the smaller one of the paper, section 6).
Each class of question is a prepared query. `execution` is one question, up to where a user has the answer; `at once`
the share of one of many that are asked together; `install` a text that was not seen before, with its first answer;
`latency` one question while edges come and go, from the moment it was due (case `changes_per_s`). Peers are asked
the same before the graph changes, with constants in the text, but for paths of 1 to 4 edges, for which plain SPARQL has
no short form.

Answers are compared with plain arrays, before and after the changes. Half of the changes are deletions, of edges that
are there.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from wukongs import Engine
from wukongs.bench.experiments.session import Guest, Session, guests, in_turn
from wukongs.bench.harness import WrongAnswer
from wukongs.bench.interactive.graph import INTEGER, TO, VALUE, RandomGraph, node, numbers_of
from wukongs.bench.peers import WUKONGS, Rows
from wukongs.bench.record import say
from wukongs.live.prepared_query import PreparedQuery

EXPERIMENT = "interactive"
LOOK_UP = f"SELECT ?value {{ ?node {VALUE} ?value }}"
ONE_HOP = f"SELECT ?near {{ ?node {TO} ?near }}"
TWO_HOPS = f"SELECT ?far {{ ?node {TO} ?near . ?near {TO} ?far }}"
PATH = f"ASK {{ ?node {TO}{{1,4}} ?last }}"
PATHS = f"SELECT ?node {{ ?node {TO}{{1,4}} ?last }}"
CHUNK = 500_000
CLASSES = {"look-up": LOOK_UP, "one hop": ONE_HOP, "two hops": TWO_HOPS, "path": PATH}
GRAPH = "graph"
"""The query of figures that are of the graph as a whole."""
CHECKED = "plain arrays"
RATES = (20_000, 100_000)
PEER_CALLS = 200


def sizes(is_quick: bool) -> dict[str, Any]:
    return {
        "source": "a random graph",
        **dict(zip(("nodes", "edges"), (5_000, 30_000) if is_quick else (1_000_000, 6_400_000), strict=True)),
    }


def measure(session: Session, nodes: int, edges: int) -> None:
    """Measure what is not done. A wrong answer ends the experiment: no figure of wukongs is written after it, and none
    before the first comparison of all classes."""
    queries = [name for name in CLASSES if session.wants(name)]
    of_us = [name for name in queries if session.open(EXPERIMENT, name, (WUKONGS,), _beside_case(session, RATES[-1]))]
    of_peers = {
        name for query in queries for name in session.open(EXPERIMENT, query, tuple(session.makers), session.case)
    }
    if not of_us and not of_peers:
        return
    say(f"{EXPERIMENT}: making a graph of {nodes:,} nodes and {edges:,} edges")
    graph = RandomGraph.of(nodes, edges)
    try:
        if of_peers:
            _ask_peers(session, graph, queries, of_peers)
        if of_us:
            with Engine() as engine:
                _ask_us(session, engine, graph, of_us)
    except WrongAnswer as error:
        for name in of_us:
            for case in (session.case, *(_beside_case(session, rate) for rate in RATES)):
                if session.open(EXPERIMENT, name, (WUKONGS,), case):
                    session.record.skipped(EXPERIMENT, name, WUKONGS, case, f"answers otherwise: {error}")
    finally:
        gc.unfreeze()


def _beside_case(session: Session, rate: int) -> dict[str, Any]:
    return {**session.case, "changes_per_s": rate}


def _ask_us(session: Session, engine: Engine, graph: RandomGraph, queries: list[str]) -> None:
    is_quick = session.is_quick
    session.begin(f"{EXPERIMENT}: loading")
    rates = _load(engine, graph)
    asked = {name: engine.prepare(text) for name, text in CLASSES.items()}
    _check(engine, graph, asked, 20)
    bytes_each = engine.stats()["stored_bytes"] / _stored(engine)
    _write(session, GRAPH, "load", lambda: rates, "edges/s")
    _write(session, GRAPH, "size", lambda: [bytes_each], "bytes")
    gc.collect()
    gc.freeze()
    calls, together = (50, 100) if is_quick else (2000, 10_000)
    for name in queries:
        query, many = asked[name], engine.prepare(PATHS) if name == "path" else asked[name]
        session.begin(f"{EXPERIMENT}: {name}")
        _write(session, name, "install", partial(_install, engine, graph, name), "us")
        _write(session, name, "execution", partial(_one_at_a_time, graph, name, query, calls), "us")
        _write(session, name, "at once", partial(_at_once, graph, name, many, together), "us")
    session.begin(f"{EXPERIMENT}: changes as fast as they go")
    _write(session, GRAPH, "changes", partial(_changes, engine, graph, 4 if is_quick else 40, 10_000), "edges/s")
    _check(engine, graph, asked, 20)
    for rate in RATES:
        beside = session.with_case(changes_per_s=rate)
        if not any(beside.open(EXPERIMENT, name, (WUKONGS,), beside.case) for name in queries):
            continue
        session.begin(f"{EXPERIMENT}: beside {rate:,} changes a second")
        samples, done_per_s = _beside(engine, graph, asked, rate, 1 if is_quick else 20)
        _check(engine, graph, asked, 20)
        _write(beside, GRAPH, "changes", partial(list, [done_per_s]), "edges/s")
        for name in queries:
            _write(beside, name, "latency", partial(list, samples[name]), "ms")


def _write(session: Session, query: str, metric: str, measure: Callable[[], list[float]], unit: str) -> None:
    """Measure something and write it down, if it is not there."""
    key = (EXPERIMENT, query, WUKONGS, session.case, metric)
    if session.record.median(*key) is None:
        values = measure()
        session.record.measured(*key, values, unit=unit, checked=CHECKED, busy=session.busy())


def _ask_peers(session: Session, graph: RandomGraph, queries: list[str], names: set[str]) -> None:
    lines = [
        b"<http://e/n%d> %b <http://e/n%d> .\n" % (one, TO.encode(), other)
        for one, other in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    ]
    lines += [
        b'<http://e/n%d> %b "%d"^^<%b> .\n' % (number, VALUE.encode(), number, INTEGER.encode())
        for number in range(graph.nodes)
    ]
    with guests(session, b"".join(lines), names) as present:
        del lines
        for query in queries:
            if query == "path":
                for name in session.open(EXPERIMENT, query, tuple(present), session.case):
                    why = "plain SPARQL has no path of 1 to 4 edges"
                    session.record.skipped(EXPERIMENT, query, name, session.case, why)
                continue
            open_ = session.open(EXPERIMENT, query, tuple(present), session.case)
            session.begin(f"{EXPERIMENT}: {query}: {', '.join(open_)}")
            asked = {name: present[name] for name in open_}
            took_us = _in_turns(graph, query, asked, 5 if session.is_quick else PEER_CALLS)
            busy = session.busy()
            for name, guest in asked.items():
                key = (EXPERIMENT, query, name, session.case)
                if guest.why:
                    session.record.skipped(*key, guest.why)
                else:
                    session.record.measured(*key, "execution", took_us[name], unit="us", checked=CHECKED, busy=busy)


def _in_turns(graph: RandomGraph, query: str, present: dict[str, Guest], count: int) -> dict[str, list[float]]:
    took_us: dict[str, list[float]] = {name: [] for name in present}
    for guest in present.values():
        guest.why = guest.why if guest.peer is None else ""
    for turn, number in enumerate(graph.draw(count)):
        text = CLASSES[query].replace("?node", node(number))
        for name in in_turn(tuple(present), turn):
            guest = present[name]
            began = time.perf_counter()
            rows = None if guest.why else guest.ask(lambda peer, text=text: peer.select(text))  # type: ignore[misc]
            took_us[name].append((time.perf_counter() - began) * 1e6)
            if rows is not None and _counted(rows) != _expected(graph, query, number):
                expected = sum(_expected(graph, query, number).values())
                told = f"{expected} rows expected ({CHECKED}), {len(rows)} found"
                guest.why = f"answers otherwise: {told}; {query} from {node(number)}"
    return took_us


def _counted(rows: Rows) -> Counter[str]:
    return Counter(row[0] or "" for row in rows)


def _expected(graph: RandomGraph, query: str, number: int) -> Counter[str]:
    if query == "look-up":
        return Counter([f'"{number}"^^<{INTEGER}>'])
    found = Counter(graph.neighbours(number)) if query == "one hop" else graph.two_hops(number)
    return Counter({node(far): count for far, count in found.items()})


def _load(engine: Engine, graph: RandomGraph) -> list[float]:
    """Load the graph; return the edges a second of each part."""
    count, rates = len(graph.sources), []
    for first in range(0, count, CHUNK):
        table = graph.edges(np.arange(first, min(first + CHUNK, count), dtype=np.int64))
        began = time.perf_counter()
        engine.apply(table)
        rates.append(table.num_rows / (time.perf_counter() - began))
    for first in range(0, graph.nodes, CHUNK):
        engine.apply(graph.values(first, min(first + CHUNK, graph.nodes)))
    return rates


def _check(engine: Engine, graph: RandomGraph, asked: dict[str, PreparedQuery], count: int) -> None:
    """Compare some answers with plain arrays. Raises WrongAnswer."""

    def compare(what: str, expected: object, found: object) -> None:
        if expected != found:
            raise WrongAnswer(f"{what}: expected {str(expected)[:200]}, found {str(found)[:200]}")

    for number in graph.draw(count):
        name, hops = node(number), graph.two_hops(number)
        values = [row[0] for row in asked["look-up"](node=name).texts()]
        compare(f"value of {name}", [f'"{number}"^^<{INTEGER}>'], values)
        compare(f"one hop from {name}", sorted(graph.neighbours(number)), sorted(_numbers(asked["one hop"], name)))
        compare(f"two hops from {name}", hops, Counter(_numbers(asked["two hops"], name)))
        for last in [*graph.draw(1), *list(hops)[:1]]:
            found = asked["path"](node=name, last=node(last)).boolean
            compare(f"path from {name} to {node(last)}", graph.is_near(number, last, 4), found)
    compare("triples stored", graph.nodes + int(graph.is_there.sum()), _stored(engine))


def _stored(engine: Engine) -> int:
    return int(engine.stats()["stored_triples"])


def _numbers(query: PreparedQuery, name: str) -> list[int]:
    return numbers_of([row[0] or "" for row in query(node=name).texts()])


def _install(engine: Engine, graph: RandomGraph, name: str) -> list[float]:
    samples = []
    for at, number in enumerate(graph.draw(50)):
        text = CLASSES[name].replace("?near", f"?near{at}").replace("?far", f"?far{at}") + f" # {at}"
        began = time.perf_counter()
        query = engine.prepare(text)
        query(_arguments(name, number, number))
        samples.append(1e6 * (time.perf_counter() - began))
    return samples


def _arguments(name: str, number: int, last: int) -> dict[str, str]:
    return {"node": node(number), "last": node(last)} if name == "path" else {"node": node(number)}


def _answer(name: str, query: PreparedQuery, arguments: dict[str, str]) -> object:
    """Ask, up to where a user has the answer: texts of a look-up, Arrow of hops, a boolean of a path."""
    found = query(arguments)
    if name == "look-up":
        return found.texts()
    return found.boolean if name == "path" else found.arrow(dictionary=True)


def _one_at_a_time(graph: RandomGraph, name: str, query: PreparedQuery, count: int) -> list[float]:
    samples = []
    for number, last in zip(graph.draw(count), graph.draw(count), strict=True):
        arguments = _arguments(name, number, last)
        began = time.perf_counter()
        _answer(name, query, arguments)
        samples.append(1e6 * (time.perf_counter() - began))
    return samples


def _at_once(graph: RandomGraph, name: str, query: PreparedQuery, count: int) -> list[float]:
    """Return the microseconds of one question when so many are asked together."""
    samples = []
    for _ in range(10):
        columns = ("node", "last") if name == "path" else ("node",)
        table = pa.table({column: graph.names.take(pa.array(graph.draw(count))) for column in columns})
        began = time.perf_counter()
        query.many(table)
        samples.append(1e6 * (time.perf_counter() - began) / count)
    return samples


def _changes(engine: Engine, graph: RandomGraph, calls: int, size: int) -> list[float]:
    """Return the edges a second of each call."""
    rates = []
    for come, gone in list(graph.changes(calls, size)):
        began = time.perf_counter()
        engine.apply(come, gone)
        rates.append(size / (time.perf_counter() - began))
    return rates


def _beside(
    engine: Engine, graph: RandomGraph, asked: dict[str, PreparedQuery], rate: int, seconds: int
) -> tuple[dict[str, list[float]], float]:
    """Ask 100 queries a second, of each class in turn, beside changes of `rate` edges a second in 100 calls. Return the
    milliseconds of each class, and how many edges a second have changed."""
    tables = list(graph.changes(100 * seconds, rate // 100))
    began = time.perf_counter()
    failed: list[Exception] = []

    def change() -> None:
        try:
            for at, (come, gone) in enumerate(tables):
                _wait_until(began + at / 100)
                engine.apply(come, gone)
        except Exception as error:
            failed.append(error)

    writer = threading.Thread(target=change)
    writer.start()
    samples: dict[str, list[float]] = {name: [] for name in asked}
    for at, (number, last) in enumerate(zip(graph.draw(100 * seconds), graph.draw(100 * seconds), strict=True)):
        due = began + (at + 0.5) / 100
        _wait_until(due)
        name = list(asked)[at % len(asked)]
        _answer(name, asked[name], _arguments(name, number, last))
        samples[name].append(1e3 * (time.perf_counter() - due))
    writer.join()
    if failed:
        raise failed[0]
    return samples, rate * seconds / (time.perf_counter() - began)


def _wait_until(due: float, clock: Callable[[], float] = time.perf_counter) -> None:
    while (left := due - clock()) > 0:
        time.sleep(left)
