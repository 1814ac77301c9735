"""Recursive rules beside differential dataflow (one worker): transitive closure and same generation, reachability while
edges come and go, and the closures of one node from prepared queries.

Graphs as in the papers on shared arrangements (section 6.3.1): tree-11, grid-150, gnp of 10,000 nodes and 100,000
edges. Up to 2,000,000,000 triples follow from them bottom-up, so smaller ones are closed. All triples that follow, and
each correction, are compared by the hashes of their rows before a time is written; top-down answers with plain arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

import wukongs
from wukongs.bench.experiments.session import Session
from wukongs.bench.peers import WUKONGS
from wukongs.bench.peers.dataflow import NAME, VERSION
from wukongs.bench.rules.data import EX, Edges, node
from wukongs.bench.views.beside_rules import CORRECTION, Relation, Sides
from wukongs.bench.views.figures import Figures, measure
from wukongs.store.dtypes import Int64Array

EXPERIMENT = "recursion"
TOP_DOWN = "top-down"
P = f"PREFIX : <{EX}> "
TC = f"""{P}
RULE edges: CONSTRUCT {{ ?x :tc ?y }} WHERE {{ ?x :edge ?y }}
RULE closure: CONSTRUCT {{ ?x :tc ?z }} WHERE {{ ?x :tc ?y . ?y :edge ?z }}"""
SG = f"""{P}
RULE siblings: CONSTRUCT {{ ?x :sg ?y }} WHERE {{ ?p :edge ?x . ?p :edge ?y }}
RULE below: CONSTRUCT {{ ?x :sg ?y }} WHERE {{ ?a :edge ?x . ?a :sg ?b . ?b :edge ?y }}"""
REACHED = f"""{P}
RULE starts: CONSTRUCT {{ ?g :reached ?x }} WHERE {{ ?g :start ?x }}
RULE next: CONSTRUCT {{ ?g :reached ?z }} WHERE {{ ?g :reached ?y . ?y :edge ?z }}"""
MAGIC_SG = f"""{P}
RULE asked: CONSTRUCT {{ ?x :above ?x }} WHERE {{ ?x :goal ?x }}
RULE above: CONSTRUCT {{ ?p :above ?p }} WHERE {{ ?x :above ?x . ?p :edge ?x }}
RULE siblings: CONSTRUCT {{ ?x :sg ?y }} WHERE {{ ?x :above ?x . ?p :edge ?x . ?p :edge ?y }}
RULE below: CONSTRUCT {{ ?x :sg ?y }} WHERE {{ ?x :above ?x . ?a :edge ?x . ?a :sg ?b . ?b :edge ?y }}"""
PATHS = {"tc(x,?)": "SELECT ?y { ?x :edge+ ?y }", "tc(?,x)": "SELECT ?y { ?y :edge+ ?x }"}
SG_QUERY = "sg(x,?)"


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of the graphs. reach: nodes, and twice as many edges; batches: how many corrections of each number of
    edges; asked: arguments of each top-down query."""

    tree: tuple[int, int]
    small_tree: tuple[int, int]
    grid: int
    small_grid: int
    gnp: tuple[int, int]
    small_gnp: tuple[int, int]
    reach: int
    batches: dict[int, int]
    asked: int


FULL = Size(
    tree=(11, 71_391),
    small_tree=(7, 2_000),
    grid=150,
    small_grid=60,
    gnp=(10_000, 100_000),
    small_gnp=(1000, 3000),
    reach=500_000,
    batches={2: 50, 200: 50},
    asked=100,
)
QUICK = Size((4, 40), (3, 15), 5, 4, (30, 60), (20, 30), 60, {2: 3, 10: 2}, 3)
TREE, GRID, GNP = "tree-11", "grid-150", "gnp"
SMALL = {TREE: "tree-7", GRID: "grid-60", GNP: "gnp, 1,000 nodes"}
CLOSED: tuple[str, ...] = (
    f"tc, {TREE}",
    f"tc, {SMALL[GRID]}",
    f"tc, {SMALL[GNP]}",
    f"sg, {SMALL[TREE]}",
    f"sg, {GRID}",
)
CLOSED += (f"sg, {SMALL[GNP]}",)
REACH = "reachability"
TOO_MANY = {
    f"tc, {GRID}": "131,675,775 triples follow",
    f"tc, {GNP}": "some 100,000,000 triples follow",
    f"sg, {TREE}": "some 1,000,000,000 triples follow",
    f"sg, {GNP}": "some 100,000,000 triples follow",
}
ASKED = tuple(f"{query}, {graph}" for query in (*PATHS, SG_QUERY) for graph in (TREE, GRID, GNP))
QUERIES = (*CLOSED, REACH, *TOO_MANY, *ASKED)


def run(session: Session) -> None:
    size = QUICK if session.is_quick else FULL
    session.record.about["versions"][NAME] = VERSION
    last = list(size.batches)[-1]
    graphs = graphs_of(size)
    for name in CLOSED:
        kind, _, graph = name.partition(", ")
        rules, relation = (TC, Relation("tc")) if kind == "tc" else (SG, Relation("sg"))
        body = partial(_close, size=size, edges=graphs[graph], rules=rules, relation=relation, view=kind)
        measure(session, EXPERIMENT, name, f"{NAME} {VERSION}", CORRECTION, body, changes=last)
    spare = max(size.reach // 10, last)
    body = partial(
        _close,
        size=size,
        edges=lambda: Edges.random_graph(size.reach, 2 * size.reach, spare),
        rules=REACHED,
        relation=Relation("reached"),
        view="reached",
    )
    measure(session, EXPERIMENT, REACH, f"{NAME} {VERSION}", CORRECTION, body, changes=last)
    for name, why in TOO_MANY.items():
        if session.wants(name) and not session.record.is_done(EXPERIMENT, name, WUKONGS, session.case):
            session.record.skipped(EXPERIMENT, name, WUKONGS, session.case, f"left out: {why}")
    for graph in (TREE, GRID, GNP):
        for query in (*PATHS, SG_QUERY):
            body = partial(_ask, size=size, edges=graphs[graph], query=query)
            measure(session, EXPERIMENT, f"{query}, {graph}", "plain arrays", TOP_DOWN, body)


def graphs_of(size: Size) -> dict[str, Callable[[], Edges]]:
    return {
        TREE: lambda: tree(*size.tree),
        SMALL[TREE]: lambda: tree(*size.small_tree),
        GRID: lambda: grid(size.grid),
        SMALL[GRID]: lambda: grid(size.small_grid),
        GNP: lambda: Edges.random_graph(*size.gnp, 0),
        SMALL[GNP]: lambda: Edges.random_graph(*size.small_gnp, 0),
    }


def tree(height: int, nodes: int) -> Edges:
    """Return a random tree: each level has as many times the nodes of the one above it as the others."""
    growth = float(np.real(max(np.roots([1.0] * height + [1.0 - nodes]), key=np.real)))
    random, levels = np.random.default_rng(23), [0, 1]
    for level in range(1, height + 1):
        levels.append(levels[-1] + max(1, round(growth**level)))
    parents = [random.integers(levels[at - 1], levels[at], levels[at + 1] - levels[at]) for at in range(1, height + 1)]
    sources = np.concatenate(parents)
    return Edges(sources, np.arange(1, len(sources) + 1), np.ones(len(sources), np.bool_), random)


def grid(side: int) -> Edges:
    """Return a grid of side + 1 rows and columns: edges lead to the right, and down."""
    numbers = np.arange((side + 1) ** 2, dtype=np.int64).reshape(side + 1, side + 1)
    ends = ((numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:]))
    sources, targets = (np.concatenate([pair[at].ravel() for pair in ends]) for at in range(2))
    return Edges(sources, targets, np.ones(len(sources), np.bool_), np.random.default_rng(23))


# --- bottom-up, and corrections ---------------------------------------------------------------------------------------


def _close(figures: Figures, size: Size, edges: Callable[[], Edges], rules: str, relation: Relation, view: str) -> None:
    graph = edges()
    with Sides.open([relation], view, may_build=not figures.session.is_quick) as sides:
        there = graph.there()
        second = [(0, 0)] if view == "reached" else []
        starts = pa.table({"subject": [node(0)], "predicate": [f"<{EX}start>"], "object": [node(0)]})
        tables = [graph.table(there), *([starts] if second else [])]
        pairs = list(zip(graph.sources[there].tolist(), graph.targets[there].tolist(), strict=True))
        sides.close_both(figures, rules, tables, pairs, second)
        for count, batches in size.batches.items():
            for come, gone in moves(graph, batches, count):
                sides.correct(figures, _of(graph, come), _of(graph, gone))
            sides.write_corrections(figures, changes=count)


def moves(edges: Edges, batches: int, changes: int) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield places of edges that come and of edges that go, half of the changes each. Those that come have gone before,
    or are spare ones."""
    for _ in range(batches):
        spare = np.flatnonzero(~edges.is_there)
        come = edges.random.choice(spare, min(len(spare), changes // 2), replace=False)
        gone = edges.random.choice(edges.there(), changes // 2, replace=False)
        edges.is_there[come], edges.is_there[gone] = True, False
        yield come, gone


def _of(edges: Edges, places: Int64Array) -> tuple[pa.Table, list[tuple[int, int]]]:
    pairs = zip(edges.sources[places].tolist(), edges.targets[places].tolist(), strict=True)
    return edges.table(places), list(pairs)


# --- top-down ---------------------------------------------------------------------------------------------------------


def _ask(figures: Figures, size: Size, edges: Callable[[], Edges], query: str) -> None:
    random, graph = np.random.default_rng(29), edges()
    nodes = np.unique(np.concatenate([graph.sources, graph.targets]))
    asked = random.choice(nodes, size.asked).tolist()
    forward = _Adjacent.of(graph.sources, graph.targets)
    backward = _Adjacent.of(graph.targets, graph.sources)
    samples, rows = list[float](), 0
    with wukongs.Engine() as engine:
        engine.apply(graph.table(graph.there()))
        if query == SG_QUERY:
            engine.add_rules(MAGIC_SG)
            prepared = engine.prepare(f"{P}SELECT ?y {{ ?x :sg ?y }}")
        else:
            prepared = engine.prepare(P + PATHS[query])
        for number in [asked[0], *asked]:  # the first one compiles
            goal = pa.table({"subject": [node(number)], "predicate": [f"<{EX}goal>"], "object": [node(number)]})
            began_s = time.perf_counter()
            if query == SG_QUERY:
                engine.apply(goal)
            found = prepared(x=node(number)).arrow(dictionary=True)
            samples.append(1e3 * (time.perf_counter() - began_s))
            if query == SG_QUERY:
                engine.apply(None, goal)
            expected = (
                same_generation(forward, backward, number)
                if query == SG_QUERY
                else reached(forward if query == "tc(x,?)" else backward, number)
            )
            figures.check(f"rows of {number}", [node(one) for one in sorted(expected)], _sorted(found.column(0)))
            rows += len(expected)
    figures.add(TOP_DOWN, samples[1:], rows=rows // len(samples))


def _sorted(column: pa.ChunkedArray) -> list[str]:
    return sorted(column.to_pylist(), key=lambda text: int(text[len(EX) + 2 : -1]))


@dataclass(frozen=True, slots=True)
class _Adjacent:
    """starts, ends : of each node its neighbours are ends[starts[node] : starts[node + 1]]."""

    starts: Int64Array
    ends: Int64Array

    @staticmethod
    def of(sources: Int64Array, targets: Int64Array) -> _Adjacent:
        order = np.argsort(sources, kind="stable")
        size = int(max(sources.max(), targets.max())) + 2
        return _Adjacent(np.searchsorted(sources[order], np.arange(size)), targets[order])

    def next(self, nodes: Int64Array) -> Int64Array:
        """Return the distinct neighbours of nodes."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        offsets = np.repeat(self.starts[nodes] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return np.unique(self.ends[offsets])


def reached(adjacent: _Adjacent, start: int) -> set[int]:
    found, frontier = set[int](), np.array([start])
    while len(frontier):
        frontier = np.array([one for one in adjacent.next(frontier).tolist() if one not in found], np.int64)
        found.update(frontier.tolist())
    return found


def same_generation(forward: _Adjacent, backward: _Adjacent, start: int) -> set[int]:
    """Return the nodes that as many edges lead to from an ancestor as lead to `start` from it.

    A round goes one edge further up. Sets of ancestors repeat at some point, and so do those of nodes."""
    found, above, seen = set[int](), np.array([start]), set[tuple[int, ...]]()
    steps = 0
    while len(above := backward.next(above)) and steps < 3 * len(forward.starts):
        steps += 1
        level = above
        for _ in range(steps):
            level = forward.next(level)
        before = len(found)
        found.update(level.tolist())
        key = tuple(above.tolist())
        if key in seen and len(found) == before:
            break
        seen.add(key)
    return found
