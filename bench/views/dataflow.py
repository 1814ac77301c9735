"""Live views beside differential dataflow (one worker): the same edges, arguments and changes, in the same run.

Edges of a random graph are inserted and deleted in batches, and arguments are exchanged. Ours are views of one text
with arguments: each alone, and all at once, also in larger batches. A time of ours is from the calls of `apply`,
`unbind` and `bind` to the columns of the reports, terms in texts included in the calls; one of theirs from the first
update, already parsed, to the last row. The changes of each batch are compared, row by row by their hashes, before a
time is written."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import wukongs
from wukongs.bench.experiments.session import Session
from wukongs.bench.peers import WUKONGS
from wukongs.bench.peers.dataflow import NAME, VERSION, Change, Dataflow, numbers_of
from wukongs.bench.record import say
from wukongs.bench.views.figures import SETTLE_S, Figures, followed, measure
from wukongs.bench.views.graph import PREFIX, Graph

EXPERIMENT = "dataflow"
ALL = "all four"
LATENCY, RATE = "latency", "changes"
VIEWS = {
    "hop": "SELECT ?y { ?a :edge ?y }",
    "two-hops": "SELECT ?z { ?a :edge ?y . ?y :edge ?z }",
    "triangles": "SELECT (COUNT(*) AS ?n) { ?a :edge ?y . ?y :edge ?z . ?z :edge ?a }",
    "paths": "SELECT DISTINCT (1 AS ?is) { { ?a :edge ?b } UNION { ?a :edge ?x . ?x :edge ?b } "
    "UNION { ?a :edge ?x . ?x :edge ?y . ?y :edge ?b } "
    "UNION { ?a :edge ?x . ?x :edge ?y . ?y :edge ?z . ?z :edge ?b } }",
}
"""The neighbours of an argument; theirs; its triangles; whether a path of at most 4 edges leads from it to ?b."""


QUERIES = (*VIEWS, ALL)


@dataclass(frozen=True, slots=True)
class Size:
    """edges, nodes: of the graph; arguments: that are bound; batches: how many of each number of edges; exchanged:
    arguments of each batch."""

    edges: int
    nodes: int
    arguments: int
    batches: dict[int, int]
    exchanged: int


FULL = Size(6_400_000, 1_000_000, 1000, {1000: 100, 10_000: 20, 100_000: 5}, 1)
QUICK = Size(2000, 300, 20, {20: 5, 40: 2}, 2)


def run(session: Session) -> None:
    size = QUICK if session.is_quick else FULL
    session = session.with_case(edges=size.edges)
    session.record.about["versions"][NAME] = VERSION
    if all(not session.wants(one) or _is_done(session, size, one) for one in QUERIES):
        return
    say(f"{EXPERIMENT}: making a graph of {size.nodes:,} nodes and {size.edges:,} edges")
    graph = Graph(size.edges, size.nodes)
    with wukongs.Engine() as engine:
        engine.load(io.BytesIO("".join(graph.lines()).encode()), format="nt")
        for name in QUERIES:
            views, batches = ([name], dict(list(size.batches.items())[:1])) if name != ALL else ([*VIEWS], size.batches)
            body = partial(_measure, size=size, engine=engine, graph=graph, views=views, batches=batches)
            case = {"batch": list(batches)[-1]}
            measure(session, EXPERIMENT, name, f"{NAME} {VERSION}", RATE, body, **case)


def _is_done(session: Session, size: Size, name: str) -> bool:
    last = list(size.batches)[-1 if name == ALL else 0]
    return not session.open(EXPERIMENT, name, (WUKONGS,), {**session.case, "batch": last}, RATE)


class Arguments:
    """Arguments that are bound, by number, and random ones in their place."""

    def __init__(self, nodes: int, seed: int = 2) -> None:
        self._rng, self._nodes = random.Random(seed), nodes
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

    @staticmethod
    def table(arguments: dict[int, tuple[int, int]], view: str) -> list[dict[str, str]]:
        names = ("a", "b") if view == "paths" else ("a",)
        return [dict(zip(names, map(Graph.node, pair), strict=False)) for pair in arguments.values()]


def _measure(
    figures: Figures, size: Size, engine: wukongs.Engine, graph: Graph, views: Sequence[str], batches: dict[int, int]
) -> None:
    arguments = Arguments(size.nodes)
    peer = Dataflow.start(*views, may_build=not figures.session.is_quick)
    registered = list[Any]()
    try:
        given = arguments.insert(size.arguments)
        for view in views:
            text = f"{PREFIX}REGISTER QUERY v{len(registered)} AS {VIEWS[view]}"
            registered.append(engine.register(text, bindings=arguments.table(given, view)))
        engine.settle(SETTLE_S)
        ours = [_change(name, view.results(timeout_s=0)) for name, view in zip(views, registered, strict=True)]
        _, theirs = peer.apply([*_edges("e+", graph.edges), *_lines("a+", given)])
        figures.check("the content at first", theirs, ours)
        for count, times in batches.items():
            samples: dict[str, list[float]] = {WUKONGS: [], NAME: []}
            rows, changed = 0, list[int]()
            for number in range(times):
                inserts, deletes = graph.changed(count)
                tables = graph.table(inserts), graph.table(deletes)
                exchanged = min(size.exchanged * count // next(iter(size.batches)), size.arguments)
                old, new = arguments.delete(exchanged), arguments.insert(exchanged)
                bound = [arguments.table(new, view) for view in views]

                def change(tables: Any = tables, old: Any = old, bound: Any = bound) -> None:
                    engine.apply(*tables)
                    for live, table in zip(registered, bound, strict=True):
                        live.unbind(np.array(list(old), np.int64))
                        live.bind(table)

                _, ours_ms, reports = followed(engine, registered, change)
                found = [_change(name, one) for name, one in zip(views, reports, strict=True)]
                theirs_ms, theirs = peer.apply(
                    [*_edges("e+", inserts), *_edges("e-", deletes), *_lines("a-", old), *_lines("a+", new)]
                )
                figures.check(f"the change of batch {number} of {count} edges", theirs, found)
                samples[WUKONGS].append(ours_ms)
                samples[NAME].append(theirs_ms)
                rows += sum(one.rows for one in theirs)
                changed.append(len(inserts) + len(deletes) + 2 * exchanged)
            for who, values in samples.items():
                figures.add(LATENCY, values, engine=who, rows=rows // times, batch=count)
                rates = [1e3 * one / taken for one, taken in zip(changed, values, strict=True)]
                figures.add(RATE, rates, "changes/s", engine=who, batch=count)
        kept = sum(view.stats()["kept_bytes"] for view in registered)
        figures.add("kept", [kept], "bytes", batch=next(iter(batches)))
    finally:
        for view in registered:
            view.close()
        peer.close()


def _edges(kind: str, edges: Iterable[tuple[int, int]]) -> Iterator[str]:
    return (f"{kind} {source} {target}\n" for source, target in edges)


def _lines(kind: str, arguments: dict[int, tuple[int, int]]) -> Iterator[str]:
    return (f"{kind} {number} {first} {second}\n" for number, (first, second) in arguments.items())


def _change(view: str, reports: Iterable[Any]) -> Change:
    """Return what reports have changed, as the program says it. A count of 0 is no row there."""
    tables = [report.arrow(dictionary=True) for report in reports]
    if not tables:
        return Change(0, 0)
    columns = [np.concatenate([numbers_of(one.column(place)) for one in tables]) for place in range(2)]
    weights = np.concatenate([one.column("weight").to_numpy() for one in tables])
    counted = columns[1] > 0 if view == "triangles" else slice(None)
    return Change.of(columns[0][counted], columns[1][counted], weights[counted])
