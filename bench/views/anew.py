"""Live views beside the same text asked anew: after each batch of changes of a graph's edges, half of them deletions.

Every view is checked against our engine and against pyoxigraph: the sum of its reports, row by row, before a time is
told. Both are asked over the graph after the last batch."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyoxigraph

import wukongs
from wukongs.bench.experiments.session import Session
from wukongs.bench.peers import WUKONGS
from wukongs.bench.peers.in_process import OXIGRAPH
from wukongs.bench.views.figures import SETTLE_S, Figures, followed, measure
from wukongs.bench.views.graph import EDGE, PREFIX, Graph

EXPERIMENT = "anew"
LATENCY = "up to date"
OURS_ANEW, OXIGRAPH_ANEW = f"{WUKONGS}, asked anew", f"{OXIGRAPH}, asked anew"
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


def run(session: Session) -> None:
    size = QUICK if session.is_quick else FULL
    checked = f"{WUKONGS} and {OXIGRAPH} asked anew"
    for name, text in VIEWS.items():
        case = {"edges": size.edges}
        body = partial(_measure, size=size, text=text)
        measure(session.with_case(**case), EXPERIMENT, name, checked, "kept", body)


def _measure(figures: Figures, size: Size, text: str) -> None:
    graph, peer = Graph(size.edges, size.nodes), pyoxigraph.Store()
    stored = "".join(graph.lines()).encode()
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO(stored), format="nt")
        peer.bulk_load(io.BytesIO(stored), pyoxigraph.RdfFormat.N_TRIPLES)
        began_s = time.perf_counter()
        view: Any = engine.register(f"{PREFIX}REGISTER QUERY v AS {text}", snapshot=False)
        figures.add("install", [1e3 * (time.perf_counter() - began_s)])
        engine.settle(SETTLE_S)
        content = Counter(view.content().texts())
        for count, batches in size.batches.items():
            times: dict[str, list[float]] = {LATENCY: [], "store": [], "change": []}
            for _ in range(batches):
                inserts, deletes = graph.change(count)
                stored_ms, all_ms, [reports] = followed(engine, [view], partial(engine.apply, inserts, deletes))
                times[LATENCY].append(all_ms)
                times["store"].append(stored_ms)
                times["change"].append(view.stats()["last_change_us"] / 1e3)
                for one in reports:
                    for cells, weight in zip(one.texts(), one.weights.tolist(), strict=True):
                        content[cells] += weight
                _apply_to(peer, inserts, deletes)
            for metric, values in times.items():
                figures.add(metric, values, changes=count)
        ours_ms, answer = _timed(lambda: Counter(engine.query(PREFIX + text).texts()), size.anew)
        theirs_ms, theirs = _timed(lambda: _asked(peer, PREFIX + text), size.anew)
        figures.check("the sum of the reports is what the text says anew", True, +content == answer)
        figures.check("and what pyoxigraph says, rows", theirs.total() if theirs == answer else -1, answer.total())
        for count in size.batches:
            figures.add(LATENCY, ours_ms, engine=OURS_ANEW, rows=answer.total(), changes=count)
            figures.add(LATENCY, theirs_ms, engine=OXIGRAPH_ANEW, rows=answer.total(), changes=count)
        figures.add("kept", [view.stats()["kept_bytes"]], "bytes")


def _timed(ask: Callable[[], Counter[Any]], repeats: int) -> tuple[list[float], Counter[Any]]:
    """Return the milliseconds of each answer, and the last one."""
    times, answer = list[float](), Counter[Any]()
    for _ in range(repeats):
        began_s = time.perf_counter()
        answer = ask()
        times.append(1e3 * (time.perf_counter() - began_s))
    return times, answer


def _asked(store: pyoxigraph.Store, text: str) -> Counter[Any]:
    result: Any = store.query(text)
    return Counter(tuple(None if cell is None else str(cell) for cell in row) for row in result)


def _apply_to(store: pyoxigraph.Store, inserts: pa.Table, deletes: pa.Table) -> None:
    for table, change in ((deletes, store.remove), (inserts, store.add)):
        for source, target in zip(table["subject"].to_pylist(), table["object"].to_pylist(), strict=True):
            ends = (pyoxigraph.NamedNode(one[1:-1]) for one in (source, EDGE, target))
            change(pyoxigraph.Quad(*ends))
