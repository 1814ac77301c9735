"""Live views beside differential dataflow (one worker): the same edges, arguments and changes, in the same run.

Edges of a random graph are inserted and deleted in batches, and arguments are exchanged. Ours are views of one text
with arguments. A time of ours is from the calls of `apply`, `unbind` and `bind` to the columns of the reports, terms
in texts included in the calls; one of theirs from the first update, already parsed, to the last row. The changes of
each batch are compared, row by row by their hashes, before a time is written."""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import wukongs
from wukongs.bench.harness import Report, Row, WrongAnswer, summary
from wukongs.bench.peers import PeerFailed, PeerMissing
from wukongs.bench.peers.dataflow import NAME, VERSION, Change, Dataflow
from wukongs.bench.views.run import EX, PREFIX, SETTLE_S, Graph, Size
from wukongs.errors import WukongsError

TITLE = "A batch of changes, in milliseconds"
VIEWS = {
    "hop": "SELECT ?y { ?a :edge ?y }",
    "two-hops": "SELECT ?z { ?a :edge ?y . ?y :edge ?z }",
    "triangles": "SELECT (COUNT(*) AS ?n) { ?a :edge ?y . ?y :edge ?z . ?z :edge ?a }",
    "paths": "SELECT DISTINCT (1 AS ?is) { { ?a :edge ?b } UNION { ?a :edge ?x . ?x :edge ?b } "
    "UNION { ?a :edge ?x . ?x :edge ?y . ?y :edge ?b } "
    "UNION { ?a :edge ?x . ?x :edge ?y . ?y :edge ?z . ?z :edge ?b } }",
}
"""Of an argument: its neighbours, theirs, its triangles, and whether a path of at most 4 edges leads to ?b."""


@dataclass(frozen=True, slots=True)
class Run:
    """graph: of the edges; arguments: that are bound; batches: how many; edges, exchanged: edges and arguments that
    each of them changes."""

    graph: Size
    arguments: int
    batches: int
    edges: int
    exchanged: int


FULL = Run(Size(6_400_000, 1_000_000, {}, 0), 1000, 100, 1000, 1)
QUICK = Run(Size(2000, 300, {}, 0), 20, 10, 20, 2)


def main(report: Path | None = None, quick: bool = False, only: Sequence[str] = ()) -> int:
    """Run the benchmark. only: names of views. Returns the exit status: 1 for a wrong answer, or no answer."""
    run = QUICK if quick else FULL
    data = {"edges": run.graph.edges, "nodes": run.graph.nodes, "arguments": run.arguments}
    found = Report("views-dataflow", data | {"changes of a batch": run.edges, "peer": f"{NAME} {VERSION}, one worker"})
    try:
        for view in only or VIEWS:
            print(f"bench views-dataflow: {view}", file=sys.stderr, flush=True)
            _measure(found, run, view)
    except (WrongAnswer, PeerMissing, PeerFailed, OSError, WukongsError) as error:
        print(f"wukongs: bench views-dataflow: {error}", file=sys.stderr)
        return 1
    found.publish(report)
    return 0


class Arguments:
    """Arguments that are bound, by number, and random ones in their place."""

    def __init__(self, nodes: int, has_two: bool, seed: int = 2) -> None:
        self._rng, self._nodes, self._has_two = random.Random(seed), nodes, has_two
        self.bound: dict[int, tuple[int, int]] = {}
        self._count = 0

    def insert(self, count: int) -> dict[int, tuple[int, int]]:
        """Draw arguments; return them by their numbers."""
        first, self._count = self._count, self._count + count
        drawn = {
            number: (self._rng.randrange(self._nodes), self._rng.randrange(self._nodes))
            for number in range(first, self._count)
        }
        self.bound |= drawn
        return drawn

    def delete(self, count: int) -> dict[int, tuple[int, int]]:
        """Return the oldest ones, which are bound no longer."""
        oldest = list(self.bound)[:count]
        return {number: self.bound.pop(number) for number in oldest}

    def table(self, arguments: dict[int, tuple[int, int]]) -> list[dict[str, str]]:
        names = ("a", "b") if self._has_two else ("a",)
        return [dict(zip(names, map(Graph.node, pair), strict=False)) for pair in arguments.values()]


def _measure(found: Report, run: Run, view: str) -> None:
    graph, arguments = Graph(run.graph), Arguments(run.graph.nodes, view == "paths")
    peer = Dataflow.start(view)
    try:
        with wukongs.Engine() as engine:
            engine.load(io.BytesIO("".join(graph.lines()).encode()), format="nt")
            given = arguments.insert(run.arguments)
            text = f"{PREFIX}REGISTER QUERY v AS {VIEWS[view]}"
            live: Any = engine.register(text, bindings=arguments.table(given))
            engine.settle(SETTLE_S)
            ours = _change(view, live.results(timeout_s=0))
            theirs = peer.apply([*_edges("e+", graph.edges), *_lines("a+", given)])
            found.check(f"{view}: the content at first", theirs[1:], ours[1:])
            times: dict[str, list[float]] = {"wukongs": [], NAME: []}
            rows = 0
            for number in range(run.batches):
                inserts, deletes = graph.changed(run.edges)
                tables = graph.table(inserts), graph.table(deletes)
                old, new = arguments.delete(run.exchanged), arguments.insert(run.exchanged)
                table = arguments.table(new)
                began_s = time.perf_counter()
                engine.apply(*tables)
                live.unbind(np.array(list(old), np.int64))
                live.bind(table)
                engine.settle(SETTLE_S)
                reports = list(live.results(timeout_s=0))
                for one in reports:
                    one.ids(0, len(one))
                times["wukongs"].append(1e3 * (time.perf_counter() - began_s))
                ours = _change(view, reports)
                theirs = peer.apply(
                    [*_edges("e+", inserts), *_edges("e-", deletes), *_lines("a-", old), *_lines("a+", new)]
                )
                times[NAME].append(theirs.taken_ns / 1e6)
                found.check(f"{view}: the change of batch {number}", theirs[1:], ours[1:])
                rows += theirs.rows
            kept = live.stats()["kept_bytes"]
    finally:
        peer.close()
    for who, values in times.items():
        figures = summary(values)
        row: Row = {"view": view, "engine": who, "p50": figures["median"], "p99": figures["p99"]}
        row |= {"changes/s": 1e3 * len(values) * (run.edges + 2 * run.exchanged) / sum(values)}
        found.add(TITLE, row | {"rows of a change": rows / run.batches, "bytes kept": kept if who == "wukongs" else ""})


def _edges(kind: str, edges: Iterable[tuple[int, int]]) -> Iterator[str]:
    return (f"{kind} {source} {target}\n" for source, target in edges)


def _lines(kind: str, arguments: dict[int, tuple[int, int]]) -> Iterator[str]:
    return (f"{kind} {number} {first} {second}\n" for number, (first, second) in arguments.items())


def _change(view: str, reports: Iterable[Any]) -> Change:
    """Return what reports have changed, as the program says it. A count of 0 is no row there."""
    numbers, values, weights = [], [], []
    for report in reports:
        for (number, value), weight in zip(report.texts(), report.weights.tolist(), strict=True):
            found = _number(value)
            if view != "triangles" or found:
                numbers.append(_number(number))
                values.append(found)
                weights.append(weight)
    keys = np.array([numbers, values], np.uint64)
    distinct, places = np.unique(keys, axis=1, return_inverse=True)
    sums = np.zeros(distinct.shape[1], np.int64)
    np.add.at(sums, places.ravel(), np.array(weights, np.int64))
    changed = np.flatnonzero(sums)
    hashes = _hashes(*distinct[:, changed]) * sums[changed].astype(np.uint64)
    return Change(0, len(changed), int(hashes.sum(dtype=np.uint64)))


def _number(text: str) -> int:
    """Return the number of a node, or of an xsd:integer."""
    return int(text[len(EX) + 2 : -1]) if text.startswith("<") else int(text.split('"')[1])


def _hashes(numbers: NDArray[np.uint64], values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash rows as dd/src/main.rs does."""
    mixed = (numbers * np.uint64(0x9E3779B97F4A7C15)) ^ (values * np.uint64(0xC2B2AE3D27D4EB4F))
    hashes: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return hashes
