"""Look-ups, one hop, two hops and paths on a graph that changes: one at a time, many at once, beside steady updates.

The graph is random: 1 M nodes, 6.4 M edges and a value for each node (about the smaller one of the paper on shared
arrangements, section 6). Each class of question is a prepared query. Answers are compared with plain arrays, before and
after the changes. Half of the changes are deletions, of edges that are there.
"""

from __future__ import annotations

import gc
import json
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from wukongs import Engine
from wukongs.bench.harness import Report, WrongAnswer, summary
from wukongs.bench.interactive.graph import INTEGER, TO, VALUE, RandomGraph, node, numbers_of
from wukongs.live.prepared_query import PreparedQuery

LOOK_UP = f"SELECT ?value {{ ?node {VALUE} ?value }}"
ONE_HOP = f"SELECT ?near {{ ?node {TO} ?near }}"
TWO_HOPS = f"SELECT ?far {{ ?node {TO} ?near . ?near {TO} ?far }}"
PATH = f"ASK {{ ?node {TO}{{1,4}} ?last }}"
PATHS = f"SELECT ?node {{ ?node {TO}{{1,4}} ?last }}"
CHUNK = 500_000
LOADED, INSTALLED = "Loaded by Engine.apply", "A text that was not seen before: prepared and answered once, us"
ALONE, AT_ONCE = "One at a time, us", "Many at once by PreparedQuery.many, dictionary-encoded"
CHANGED, BESIDE = "Changes as fast as they go", "Latency beside steady changes, 100 queries/s, ms"


def main(report: Path | None = None, quick: bool = False, peer: str | None = None) -> int:
    """Run the benchmark; return the exit status, 1 for a wrong answer or a peer that fails. peer: see _add_peer."""
    nodes, edges, seconds = (5_000, 30_000, 1) if quick else (1_000_000, 6_400_000, 20)
    results = Report("interactive", {"nodes": nodes, "edges": edges})
    try:
        with Engine() as engine:
            graph = RandomGraph.of(nodes, edges)
            _load(results, engine, graph)
            asked = {name: engine.prepare(text) for name, text in _CLASSES.items()}
            _check(results, engine, graph, asked, 20)
            _install(results, engine, graph)
            gc.collect()
            gc.freeze()
            _one_at_a_time(results, graph, asked, 50 if quick else 2000)
            _at_once(results, graph, {**asked, "path <= 4": engine.prepare(PATHS)}, 100 if quick else 10_000)
            _changes(results, engine, graph, 4 if quick else 40, 10_000)
            _check(results, engine, graph, asked, 20)
            for rate in (20_000, 100_000):
                _beside(results, engine, graph, asked, rate, seconds)
            _check(results, engine, graph, asked, 20)
        if peer is not None:
            _add_peer(results, peer, nodes, edges)
    except (WrongAnswer, PeerFailed) as error:
        print(f"wukongs: bench interactive: {error}", file=sys.stderr)
        return 1
    finally:
        gc.unfreeze()
    results.publish(report)
    return 0


_CLASSES = {"look-up": LOOK_UP, "one hop": ONE_HOP, "two hops": TWO_HOPS, "path <= 4": PATH}


def _load(results: Report, engine: Engine, graph: RandomGraph) -> None:
    count, seconds = len(graph.sources), 0.0
    for first in range(0, count, CHUNK):
        table = graph.edges(_rows(first, min(first + CHUNK, count)))
        began = time.perf_counter()
        engine.apply(table)
        seconds += time.perf_counter() - began
    for first in range(0, graph.nodes, CHUNK):
        engine.apply(graph.values(first, min(first + CHUNK, graph.nodes)))
    results.check("triples stored", count + graph.nodes, _stored(engine))
    size = engine.stats()["stored_bytes"] / (count + graph.nodes)
    row = {"edges": count, "edges/s": count / seconds, "bytes a triple": size}
    results.add(LOADED, row)


def _rows(first: int, end: int) -> Any:
    import numpy as np

    return np.arange(first, end, dtype=np.int64)


def _check(results: Report, engine: Engine, graph: RandomGraph, asked: dict[str, PreparedQuery], count: int) -> None:
    for number in graph.draw(count):
        name, hops = node(number), graph.two_hops(number)
        values = [row[0] for row in asked["look-up"](node=name).texts()]
        results.check(f"value of {name}", [f'"{number}"^^<{INTEGER}>'], values)
        results.check(
            f"one hop from {name}", sorted(graph.neighbours(number)), sorted(_numbers(asked["one hop"], name))
        )
        results.check(f"two hops from {name}", hops, Counter(_numbers(asked["two hops"], name)))
        for last in [*graph.draw(1), *list(hops)[:1]]:
            found = asked["path <= 4"](node=name, last=node(last)).boolean
            results.check(f"path from {name} to {node(last)}", graph.is_near(number, last, 4), found)
    del results.checks[1:]
    stored = graph.nodes + int(graph.is_there.sum())
    results.check("triples stored; answers for some nodes as plain arrays give them", stored, _stored(engine))


def _stored(engine: Engine) -> int:
    return int(engine.stats()["stored_triples"])


def _numbers(query: PreparedQuery, name: str) -> list[int]:
    return numbers_of([row[0] or "" for row in query(node=name).texts()])


def _install(results: Report, engine: Engine, graph: RandomGraph) -> None:
    for name, text in _CLASSES.items():
        samples = []
        for at, number in enumerate(graph.draw(50)):
            began = time.perf_counter()
            query = engine.prepare(text.replace("?near", f"?near{at}").replace("?far", f"?far{at}") + f" # {at}")
            query(_arguments(name, number, number))
            samples.append(1e6 * (time.perf_counter() - began))
        results.add(INSTALLED, {"class": name, **summary(samples)})


def _arguments(name: str, number: int, last: int) -> dict[str, str]:
    return {"node": node(number), "last": node(last)} if name == "path <= 4" else {"node": node(number)}


def _answer(name: str, query: PreparedQuery, arguments: dict[str, str]) -> object:
    """Ask, up to where a user has the answer: texts of a look-up, Arrow of hops, a boolean of a path."""
    found = query(arguments)
    if name == "look-up":
        return found.texts()
    return found.boolean if name == "path <= 4" else found.arrow(dictionary=True)


def _one_at_a_time(results: Report, graph: RandomGraph, asked: dict[str, PreparedQuery], count: int) -> None:
    for name, query in asked.items():
        samples = []
        for number, last in zip(graph.draw(count), graph.draw(count), strict=True):
            arguments = _arguments(name, number, last)
            began = time.perf_counter()
            _answer(name, query, arguments)
            samples.append(1e6 * (time.perf_counter() - began))
        results.add(ALONE, {"class": name, **summary(samples)})


def _at_once(results: Report, graph: RandomGraph, asked: dict[str, PreparedQuery], count: int) -> None:
    for name, query in asked.items():
        samples, rows = [], 0
        for _ in range(10):
            columns = ("node", "last") if name == "path <= 4" else ("node",)
            table = pa.table({column: graph.names.take(pa.array(graph.draw(count))) for column in columns})
            began = time.perf_counter()
            rows += query.many(table).num_rows
            samples.append(time.perf_counter() - began)
        median = summary(samples)["median"]
        row = {"class": name, "at once": count, "ms": 1e3 * median, "per second": count / median, "rows": rows // 10}
        results.add(AT_ONCE, row)


def _changes(results: Report, engine: Engine, graph: RandomGraph, calls: int, size: int) -> None:
    tables, samples = list(graph.changes(calls, size)), []
    for come, gone in tables:
        began = time.perf_counter()
        engine.apply(come, gone)
        samples.append(time.perf_counter() - began)
    row = {"calls": calls, "edges a call": size, "edges/s": calls * size / sum(samples)}
    results.add(CHANGED, {**row, "ms median": 1e3 * summary(samples)["median"], "ms max": 1e3 * max(samples)})


def _beside(
    results: Report, engine: Engine, graph: RandomGraph, asked: dict[str, PreparedQuery], rate: int, seconds: int
) -> None:
    """Ask 100 queries a second, of each class in turn, beside changes of `rate` edges a second in 100 calls."""
    tables = list(graph.changes(100 * seconds, rate // 100))
    late = list[float]()
    began = time.perf_counter()

    def change() -> None:
        for at, (come, gone) in enumerate(tables):
            _wait_until(began + at / 100)
            engine.apply(come, gone)
            late.append(time.perf_counter() - began - at / 100)

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
    took = time.perf_counter() - began
    for name, found in samples.items():
        row = {"changes/s": rate, "class": name, **summary(found)}
        results.add(BESIDE, {**row, "done/s": rate * seconds / took, "last change late, ms": 1e3 * late[-1]})


class PeerFailed(Exception):
    """The command of another engine failed, or printed what is no figure of this benchmark."""


def _add_peer(results: Report, command: str, nodes: int, edges: int) -> None:
    """Run another engine's command with `--nodes N --edges M` behind it, and set its figures beside ours: each line
    that it prints is a JSON object with the title of one of the tables (`table`), its own name (`engine`) and the
    columns of a row."""
    words = [*shlex.split(command), "--nodes", str(nodes), "--edges", str(edges)]
    try:
        ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError) as error:
        raise PeerFailed(f"--peer: {error}") from None
    for number, line in enumerate(ran.stdout.splitlines(), 1):
        try:
            row = json.loads(line)
            title, engine = row.pop("table"), row.pop("engine")
        except (ValueError, AttributeError, KeyError):
            raise PeerFailed(
                f"--peer: line {number}: expected a JSON object with table and engine, found {line[:100]!r}"
            ) from None
        if title not in results.tables:
            titles = ", ".join(map(repr, results.tables))
            raise PeerFailed(f"--peer: line {number}: there is no table {title!r}: expected one of {titles}")
        results.add(title, {"class": "", **row, "engine": engine})


def _wait_until(due: float, clock: Callable[[], float] = time.perf_counter) -> None:
    while (left := due - clock()) > 0:
        time.sleep(left)
