"""A random graph whose edges are inserted and deleted, half of the changes each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

EX = "http://example.org/"
PREFIX = f"PREFIX : <{EX}> "
EDGE = f"<{EX}edge>"
Edge = tuple[int, int]


class Graph:
    """Random edges, and random changes of them."""

    def __init__(self, edges: int, nodes: int, seed: int = 1) -> None:
        self._rng, self._nodes = random.Random(seed), nodes
        self.kinds = [f"{self.node(one)} <{EX}kind> <{EX}k{one % 1000}> .\n" for one in range(0, nodes, 2)]
        self.edges = list({self._new(): None for _ in range(edges)})
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
