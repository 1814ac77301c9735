"""A random graph as plain arrays: what the benchmark loads, changes and compares answers with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from wukongs.store.dtypes import Int64Array

TO, VALUE = "<http://e/to>", "<http://e/value>"
INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
COLUMNS = ("subject", "predicate", "object")


def node(number: int) -> str:
    return f"<http://e/n{number}>"


@dataclass
class RandomGraph:
    """Edges between nodes, drawn evenly, and a value for each node. sources, targets : int64[n], edges that there were
    at any time, each pair once; is_there : bool[n]."""

    nodes: int
    sources: Int64Array
    targets: Int64Array
    is_there: np.ndarray
    names: pa.StringArray
    _pairs: Int64Array
    _rng: np.random.Generator
    _added: set[int] = field(default_factory=set)
    _by_source: tuple[Int64Array, Int64Array] | None = field(default=None)

    @staticmethod
    def of(nodes: int, edges: int, seed: int = 1) -> RandomGraph:
        rng = np.random.default_rng(seed)
        known = np.unique(rng.integers(0, nodes * nodes, edges))
        pairs = rng.permutation(known)
        names = pa.array([node(number) for number in range(nodes)], pa.string())
        there = np.ones(len(pairs), np.bool_)
        return RandomGraph(nodes, pairs // nodes, pairs % nodes, there, names, known, rng)

    def edges(self, rows: Int64Array) -> pa.Table:
        """Return edges as a table for Engine.apply, dictionary-encoded."""
        return self._table(self.sources[rows], TO, self.targets[rows])

    def values(self, first: int, end: int) -> pa.Table:
        """Return the values of some nodes as a table for Engine.apply: node n has the integer n."""
        texts = [f'"{number}"^^<{INTEGER}>' for number in range(first, end)]
        subjects = pa.DictionaryArray.from_arrays(pa.array(np.arange(first, end, dtype=np.int32)), self.names)
        return pa.table([subjects, _constant(VALUE, end - first), pa.array(texts)], COLUMNS)

    def _table(self, sources: Int64Array, predicate: str, targets: Int64Array) -> pa.Table:
        ends = [
            pa.DictionaryArray.from_arrays(pa.array(column.astype(np.int32)), self.names)
            for column in (sources, targets)
        ]
        return pa.table([ends[0], _constant(predicate, len(sources)), ends[1]], COLUMNS)

    def changes(self, calls: int, size: int) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield tables of edges that come and that go, `size` together for each call, as many of one as of the other.
        The graph keeps the same number of edges."""
        half = size // 2
        for _ in range(calls):
            gone = self._rng.choice(np.flatnonzero(self.is_there), half, replace=False)
            fresh, first = self._fresh(half), len(self.sources)
            self.sources = np.concatenate([self.sources, fresh // self.nodes])
            self.targets = np.concatenate([self.targets, fresh % self.nodes])
            self.is_there = np.concatenate([self.is_there, np.ones(half, np.bool_)])
            self.is_there[gone] = False
            self._by_source = None
            yield self.edges(np.arange(first, first + half)), self.edges(gone)

    def _fresh(self, count: int) -> Int64Array:
        """Return pairs that were no edge so far."""
        known = self._pairs
        while True:
            drawn = np.unique(self._rng.integers(0, self.nodes * self.nodes, count + 100))
            places = np.minimum(np.searchsorted(known, drawn), len(known) - 1)
            drawn = drawn[(known[places] != drawn) & [pair not in self._added for pair in drawn.tolist()]]
            self._rng.shuffle(drawn)
            if len(drawn) >= count:
                self._added.update(drawn[:count].tolist())
                return np.ascontiguousarray(drawn[:count], np.int64)

    # --- answers ------------------------------------------------------------------------------------------------------

    def neighbours(self, number: int) -> list[int]:
        """Return the distinct targets of a node's edges."""
        if self._by_source is None:
            rows = np.flatnonzero(self.is_there)
            order = rows[np.argsort(self.sources[rows], kind="stable")]
            self._by_source = self.sources[order], self.targets[order]
        sources, targets = self._by_source
        first, end = np.searchsorted(sources, [number, number + 1])
        return list(dict.fromkeys(targets[first:end].tolist()))

    def two_hops(self, number: int) -> Counter[int]:
        return Counter(far for near in self.neighbours(number) for far in self.neighbours(near))

    def is_near(self, first: int, last: int, hops: int) -> bool:
        """Tell whether a path of 1 to so many edges leads from a node to another."""
        reached, edge = set[int](), {first}
        for _ in range(hops):
            edge = {far for near in edge for far in self.neighbours(near)}
            reached |= edge
        return last in reached

    def draw(self, count: int) -> list[int]:
        """Return some nodes, drawn evenly."""
        return self._rng.integers(0, self.nodes, count).tolist()  # type: ignore[no-any-return]


def numbers_of(texts: Sequence[str]) -> list[int]:
    """Return the numbers of nodes by their names."""
    return [int(text[len("<http://e/n") : -1]) for text in texts]


def _constant(term: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([term]))
