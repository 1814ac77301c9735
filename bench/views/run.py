"""Live views beside the same text asked anew: after each batch of changes of a graph's edges, half of them deletions.

A time is from the call of `apply` to the columns of the view's report; `store` is the time of `apply` itself, `change`
that of the view. `anew` is the same query over the graph after the batch, asked of our engine and of
pyoxigraph. Every view is checked against both: the sum of its reports, row by row, before a time is told.
"""

from __future__ import annotations

import io
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyoxigraph

import wukongs
from wukongs.bench.harness import Report, WrongAnswer, summary
from wukongs.errors import WukongsError

EX = "http://example.org/"
PREFIX = f"PREFIX : <{EX}> "
EDGE = f"<{EX}edge>"
SETTLE_S = 600.0
TITLE = "From apply to the report, in microseconds"
VIEWS = {
    "one hop": "SELECT ?x ?y { ?x :edge ?y }",
    "two hops": "SELECT ?x ?z { ?x :edge ?y . ?y :edge ?z }",
    "triangles, counted": "SELECT (COUNT(*) AS ?n) { ?x :edge ?y . ?y :edge ?z . ?z :edge ?x }",
    "degrees": "SELECT ?x (COUNT(*) AS ?n) { ?x :edge ?y } GROUP BY ?x",
    "edges by kind": "SELECT ?k (COUNT(*) AS ?n) { ?x :edge ?y . ?y :kind ?k } GROUP BY ?k",
    "targets": "SELECT DISTINCT ?y { ?x :edge ?y }",
    "OPTIONAL": "SELECT ?x ?k { ?x :edge ?y OPTIONAL { ?y :kind ?k } }",
    "NOT EXISTS": "SELECT ?x ?y { ?x :edge ?y FILTER NOT EXISTS { ?y :edge ?x } }",
    "LIMIT 10": "SELECT ?x ?y { ?x :edge ?y } ORDER BY ?x ?y LIMIT 10",
    "reachable": "SELECT ?y { :n0 :edge+ ?y }",
}


@dataclass(frozen=True, slots=True)
class Size:
    """edges: stored; nodes: that they join; batches: how many of each of the sizes; anew: how often a text is asked."""

    edges: int
    nodes: int
    batches: dict[int, int]
    anew: int


FULL = Size(1_000_000, 200_000, {1: 100, 1000: 30}, 3)
QUICK = Size(300, 60, {1: 3, 20: 2}, 1)
Edge = tuple[int, int]


class Graph:
    """Random edges, and random changes of them."""

    def __init__(self, size: Size, seed: int = 1) -> None:
        self._rng, self._nodes = random.Random(seed), size.nodes
        self.kinds = [f"{self.node(one)} <{EX}kind> <{EX}k{one % 1000}> .\n" for one in range(0, size.nodes, 2)]
        self.edges = list({self._new(): None for _ in range(size.edges)})
        self._places = {edge: place for place, edge in enumerate(self.edges)}

    @staticmethod
    def node(number: int) -> str:
        return f"<{EX}n{number}>"

    def _new(self) -> Edge:
        return self._rng.randrange(self._nodes), self._rng.randrange(self._nodes)

    def lines(self) -> Iterator[str]:
        yield from self.kinds
        for source, target in self.edges:
            yield f"{self.node(source)} {EDGE} {self.node(target)} .\n"

    def change(self, count: int) -> tuple[pa.Table, pa.Table]:
        """Insert and delete edges; return both as tables."""
        inserts, deletes = self.changed(count)
        return self.table(inserts), self.table(deletes)

    def changed(self, count: int) -> tuple[list[Edge], list[Edge]]:
        """Insert and delete edges; return the net change. An edge that was inserted and deleted is in neither."""
        inserts, deletes = list[Edge](), list[Edge]()
        for number in range(count):
            if number % 2 != self._rng.randrange(2) or len(self.edges) < 10:
                if (edge := self._new()) not in self._places:
                    self._places[edge] = len(self.edges)
                    self.edges.append(edge)
                    inserts.append(edge)
            else:
                place = self._rng.randrange(len(self.edges))
                edge, last = self.edges[place], self.edges[-1]
                self.edges[place], self._places[last] = last, place
                self.edges.pop()
                del self._places[edge]
                deletes.append(edge)
        net = Counter(inserts)
        net.subtract(deletes)
        return [edge for edge, sign in net.items() if sign > 0], [edge for edge, sign in net.items() if sign < 0]

    @staticmethod
    def table(edges: list[Edge]) -> pa.Table:
        sources, targets = ([Graph.node(edge[end]) for edge in edges] for end in (0, 1))
        columns = [sources, [EDGE] * len(edges), targets]
        return pa.table([pa.array(one, pa.string()) for one in columns], ["subject", "predicate", "object"])


def main(report: Path | None = None, quick: bool = False) -> int:
    """Run the benchmark. quick: a tiny graph. Returns the exit status: 1 for a wrong answer, or no answer."""
    size = QUICK if quick else FULL
    found = Report("views", {"edges": size.edges, "nodes": size.nodes, "peer": f"pyoxigraph {pyoxigraph.__version__}"})
    try:
        for name, text in VIEWS.items():
            print(f"bench views: {name}", file=sys.stderr, flush=True)
            _measure(found, size, name, text)
    except (WrongAnswer, OSError, WukongsError) as error:
        print(f"wukongs: bench views: {error}", file=sys.stderr)
        return 1
    found.publish(report)
    return 0


def _measure(found: Report, size: Size, name: str, text: str) -> None:
    graph, peer = Graph(size), pyoxigraph.Store()
    stored = "".join(graph.lines()).encode()
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(stored), format="nt")
        peer.bulk_load(io.BytesIO(stored), pyoxigraph.RdfFormat.N_TRIPLES)
        began_s = time.perf_counter()
        view: Any = engine.register(f"{PREFIX}REGISTER QUERY v AS {text}", snapshot=False)
        registered_us = 1e6 * (time.perf_counter() - began_s)
        engine.settle(SETTLE_S)
        content = Counter(view.content().texts())
        rows = list[dict[str, Any]]()
        for count, batches in size.batches.items():
            times: dict[str, list[float]] = {"from apply to report": [], "store": [], "change": []}
            for _ in range(batches):
                inserts, deletes = graph.change(count)
                began_s = time.perf_counter()
                engine.apply(inserts, deletes)
                stored_s = time.perf_counter()
                engine.settle(SETTLE_S)
                reports = list(view.results(timeout_s=0))
                for one in reports:
                    one.ids(0, len(one))
                ended_s = time.perf_counter()
                times["from apply to report"].append(1e6 * (ended_s - began_s))
                times["store"].append(1e6 * (stored_s - began_s))
                times["change"].append(view.stats()["last_change_us"])
                for one in reports:
                    for cells, weight in zip(one.texts(), one.weights.tolist(), strict=True):
                        content[cells] += weight
                _apply_to(peer, inserts, deletes)
            row: dict[str, Any] = {"view": name, "changes": count}
            for what, values in times.items():
                row |= {f"{what}, p50": summary(values)["median"], f"{what}, p99": summary(values)["p99"]}
            rows.append(row)
        anew_us, answer = _timed(lambda: Counter(engine.query(PREFIX + text).texts()), size.anew)
        peer_us, theirs = _timed(lambda: _asked(peer, PREFIX + text), size.anew)
        found.check(f"{name}: the sum of its reports is what the text says anew", True, +content == answer)
        found.check(
            f"{name}: and what pyoxigraph says, rows", theirs.total() if theirs == answer else -1, answer.total()
        )
        kept = view.stats()["kept_bytes"]
        for row in rows:
            asked = {"anew": anew_us, "pyoxigraph anew": peer_us, "registered in": registered_us, "bytes kept": kept}
            found.add(TITLE, row | asked)


def _timed(ask: Any, repeats: int) -> tuple[float, Counter[Any]]:
    times = list[float]()
    for _ in range(repeats):
        began_s = time.perf_counter()
        answer = ask()
        times.append(1e6 * (time.perf_counter() - began_s))
    return summary(times)["median"], answer


def _asked(store: pyoxigraph.Store, text: str) -> Counter[Any]:
    result: Any = store.query(text)
    return Counter(tuple(None if cell is None else str(cell) for cell in row) for row in result)


def _apply_to(store: pyoxigraph.Store, inserts: pa.Table, deletes: pa.Table) -> None:
    for table, change in ((deletes, store.remove), (inserts, store.add)):
        for source, target in zip(table["subject"].to_pylist(), table["object"].to_pylist(), strict=True):
            ends = (pyoxigraph.NamedNode(one[1:-1]) for one in (source, EDGE, target))
            change(pyoxigraph.Quad(*ends))
