"""Paths of registered queries over a forest that changes slowly, stored and in a sliding window: walks that are kept
from firing to firing beside walks that are searched anew, in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wukongs import Engine
from wukongs.bench.harness import Report, summary
from wukongs.bench.rules.data import EDGE, EX, node
from wukongs.store.dtypes import Int64Array

PATHS = "Paths of registered queries over a forest, ms a firing"
STREAM = f"{EX}edges"
TREES = 10
STEP_MS = 1000
WARM_UP = 5
"""The first firings search, and then begin to keep."""


@dataclass(slots=True)
class Forest:
    """Trees of about the same size; each node but the roots has an edge from its parent, which has a lower number.

    parents : int64[n], -1 for the roots, which are the first nodes."""

    parents: Int64Array
    random: np.random.Generator

    @staticmethod
    def of_edges(count: int) -> Forest:
        random = np.random.default_rng(97)
        trees = min(TREES, count)
        numbers = np.arange(trees + count)
        parents = random.integers(0, np.maximum(numbers, 1))
        parents[:trees] = -1
        return Forest(parents, random)

    def moved(self, count: int) -> tuple[list[str], list[str]]:
        """Give some nodes other parents; return the edges that go and those that come, as triples."""
        trees = int((self.parents < 0).sum())
        nodes = self.random.choice(np.arange(trees, len(self.parents)), count, replace=False)
        gone = [self.edge(one) for one in nodes.tolist()]
        self.parents[nodes] = self.random.integers(0, nodes)
        return gone, [self.edge(one) for one in nodes.tolist()]

    def edge(self, child: int) -> str:
        return " ".join(self.triple(child))

    def triple(self, child: int) -> tuple[str, str, str]:
        return node(int(self.parents[child])), EDGE, node(child)

    def counts(self) -> tuple[int, int]:
        """Return how many nodes there are below all nodes, and how many below the first root."""
        depths, roots = np.zeros(len(self.parents), np.int64), np.arange(len(self.parents))
        for child, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                depths[child], roots[child] = depths[parent] + 1, roots[parent]
        return int(depths.sum()), int((roots == 0).sum()) - 1


def bench_paths(report: Report, edges: int, firings: int, changes: int, window_steps: int) -> None:
    """Add a row for each path, over stored triples and over a window. changes: edges that go and edges that come in
    each step of the stored forest; window_steps: in how many steps the window turns over."""
    with Engine() as engine:
        forest = Forest.of_edges(edges)
        stream = engine.stream(STREAM, timing=True, batch_ms=STEP_MS)
        there = [forest.triple(child) for child in np.flatnonzero(forest.parents >= 0).tolist()]
        engine.update(f"INSERT DATA {{ {' . '.join(map(' '.join, there))} }}")
        stream.advance(STEP_MS)
        engine.settle(600)
        _measure(report, engine, "stored", _stored(engine, stream, forest, changes), firings)
    with Engine() as engine:
        forest = Forest.of_edges(edges)
        stream = engine.stream(STREAM, timing=True, batch_ms=STEP_MS)
        steps = _sliding(stream, forest, window_steps)
        for _ in range(window_steps):
            next(steps)
        _measure(report, engine, f"window of {window_steps} steps", steps, firings, window_steps)


def _stored(engine: Any, stream: Any, forest: Forest, changes: int) -> Iterator[tuple[int, int]]:
    """Change the stored forest and move time on, step by step; yield what is to be counted then."""
    now_ms = STEP_MS
    while True:
        gone, come = forest.moved(min(changes, len(forest.parents) // 4))
        engine.update(f"DELETE DATA {{ {' . '.join(gone)} }} ; INSERT DATA {{ {' . '.join(come)} }}")
        now_ms += STEP_MS
        stream.advance(now_ms)
        yield forest.counts()


def _sliding(stream: Any, forest: Forest, window_steps: int) -> Iterator[tuple[int, int]]:
    """Push a share of the edges in each step, those that leave the window with other parents."""
    children = forest.random.permutation(np.flatnonzero(forest.parents >= 0))
    parts, now_ms, is_first = np.array_split(children, window_steps), 0, True
    while True:
        for part in parts:
            if not is_first:
                forest.parents[part] = forest.random.integers(0, part)
            now_ms += STEP_MS
            stream.push([(*forest.triple(child), now_ms) for child in part.tolist()])
            stream.advance(now_ms)
            yield (0, 0) if is_first else forest.counts()
        is_first = False


def _measure(
    report: Report, engine: Any, place: str, steps: Iterator[tuple[int, int]], firings: int, window_steps: int = 1
) -> None:
    """Register each path twice, and let one of both search anew."""
    window = f"[RANGE {window_steps * STEP_MS}ms STEP {STEP_MS}ms]"
    clause = f"FROM STREAM <{STREAM}> {window}"
    if place == "stored":
        clause = f"FROM NAMED STREAM <{STREAM}> {window} FROM <urn:x-wukongs:default>"
    patterns = {f"?x {EDGE}+ ?y": 0, f"{node(0)} {EDGE}+ ?y": 1}
    queries = []
    for number, pattern in enumerate(patterns):
        pair = []
        for way in ("kept", "searched"):
            text = f"REGISTER QUERY {way}{number} AS SELECT (COUNT(*) AS ?n) {clause} WHERE {{ {pattern} }}"
            query = engine.register(text)
            if way == "searched":
                query.windows.may_keep_paths = lambda _: False
            pair.append(query)
        queries.append(pair)
    samples: list[list[list[float]]] = [[[], []] for _ in queries]
    last: Sequence[int] = (0, 0)
    for _ in range(WARM_UP + firings):
        last = next(steps)
        engine.settle(600)
        for number, (pattern, which) in enumerate(patterns.items()):
            for at, query in enumerate(queries[number]):
                [found] = list(query.results(timeout_s=0))
                [[count]] = found
                report.check(f"{place}, {pattern}", last[which], int(str(count)))
                samples[number][at].append(query.stats()["execution_us_histogram"]["sum_us"])
    for number, (pattern, which) in enumerate(patterns.items()):
        took = [summary((np.diff(one)[WARM_UP - 1 :] / 1e3).tolist()) for one in samples[number]]
        stats = queries[number][0].stats()
        row = {"graph": place, "path": pattern.replace(EX, ""), "rows": last[which]}
        row |= {"searched p50": took[1]["median"], "searched p99": took[1]["p99"]}
        row |= {"kept p50": took[0]["median"], "kept p99": took[0]["p99"]}
        report.add(PATHS, {**row, "kept MB": stats["walks_bytes"] / 1e6, "moved on": stats["moves_of_paths"]})
