"""Data whose closures are known by counting: a tree of classes with instances, a forest, a random graph, a chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from wukongs.store.dtypes import Int64Array

EX = "http://bench.example/"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
EDGE, REACHED, START = f"<{EX}edge>", f"<{EX}reached>", f"<{EX}n0>"
BRANCHES = 4

CLOSURE = f"RULE closure: CONSTRUCT {{ ?x {EDGE} ?z }} WHERE {{ ?x {EDGE} ?y . ?y {EDGE} ?z }}"
REACHABILITY = (
    f"RULE first: CONSTRUCT {{ {START} {REACHED} ?y }} WHERE {{ {START} {EDGE} ?y }}\n"
    f"RULE next: CONSTRUCT {{ {START} {REACHED} ?z }} WHERE {{ {START} {REACHED} ?y . ?y {EDGE} ?z }}"
)


def node(number: int) -> str:
    return f"<{EX}n{number}>"


def class_name(number: int) -> str:
    return f"<{EX}C{number}>"


@dataclass(frozen=True, slots=True)
class ClassTree:
    """Classes in a tree, class 0 its root; each instance has the type of one leaf, and one value.

    The value's property has a domain, so each instance gets one more type, which is no class of the tree."""

    depth: int
    instances: int

    @staticmethod
    def of_triples(triples: int) -> ClassTree:
        """Return a tree with about so many triples."""
        depth = 5 if triples >= 10_000 else 2
        return ClassTree(depth, max(1, (triples - _nodes_of(depth)) // 2))

    @property
    def classes(self) -> int:
        return _nodes_of(self.depth)

    @property
    def triple_count(self) -> int:
        return self.classes - 1 + 1 + 2 * self.instances

    @property
    def type_count(self) -> int:
        """Types of instances that are inferred: the classes above its leaf, and the domain."""
        return self.instances * (self.depth + 1)

    @property
    def subclass_count(self) -> int:
        """Triples of rdfs:subClassOf that are inferred: each class and those above its parent."""
        return sum(BRANCHES**level * (level - 1) for level in range(1, self.depth + 1))

    def lines(self) -> bytes:
        """Return the triples as N-Triples."""
        above = "".join(
            f"{class_name(number)} <{RDFS}subClassOf> {class_name((number - 1) // BRANCHES)} .\n"
            for number in range(1, self.classes)
        )
        first_leaf, leaves = _nodes_of(self.depth - 1), BRANCHES**self.depth
        domain = f"<{EX}value> <{RDFS}domain> <{EX}Measured> .\n"
        instances = "".join(
            f"{node(number)} {TYPE} {class_name(first_leaf + number % leaves)} .\n"
            f'{node(number)} <{EX}value> "{number}" .\n'
            for number in range(self.instances)
        )
        return (above + domain + instances).encode()


def _nodes_of(depth: int) -> int:
    count: int = (BRANCHES ** (depth + 1) - 1) // (BRANCHES - 1)
    return count


@dataclass(slots=True)
class Edges:
    """Edges between numbered nodes, no pair twice. spare: those that come next, in the place of others.

    sources, targets : int64[n]; is_there : bool[n]."""

    sources: Int64Array
    targets: Int64Array
    is_there: np.ndarray[tuple[int], np.dtype[np.bool_]]
    random: np.random.Generator

    @staticmethod
    def forest(count: int, spare: int, depth: int = 4) -> Edges:
        """Return trees of this depth: each node has one edge, to a node one level above it."""
        random = np.random.default_rng(19)
        total = count + spare
        # Columns of depth + 1 nodes. A node's parent is above it, in the same column or a neighbouring one.
        columns = -(-total // depth)
        number = np.arange(total, dtype=np.int64)
        column, level = number // depth, number % depth
        parents = (column // 2 * 2 + random.integers(0, 2, total)) % columns
        sources = column * (depth + 1) + level
        targets = parents * (depth + 1) + level + 1
        return Edges._of(sources, targets, spare, random)

    @staticmethod
    def random_graph(nodes: int, count: int, spare: int) -> Edges:
        """Return edges between random nodes, with some from node 0."""
        random = np.random.default_rng(19)
        from_first = np.arange(1, min(nodes, 20), dtype=np.int64)
        drawn = random.integers(0, nodes * nodes, (count + spare) * 5 // 4 + 16)
        pairs = np.unique(np.concatenate([from_first, drawn]))
        pairs = random.permutation(pairs)[: count + spare]
        return Edges._of(pairs // nodes, pairs % nodes, spare, random)

    @staticmethod
    def chain(count: int) -> Edges:
        numbers = np.arange(count, dtype=np.int64)
        return Edges(numbers, numbers + 1, np.ones(count, np.bool_), np.random.default_rng(19))

    @staticmethod
    def _of(sources: Int64Array, targets: Int64Array, spare: int, random: np.random.Generator) -> Edges:
        is_there = np.ones(len(sources), np.bool_)
        is_there[random.permutation(len(sources))[:spare]] = False
        return Edges(sources, targets, is_there, random)

    def table(self, at: Int64Array) -> pa.Table:
        """Return these edges as Engine.apply takes them."""
        predicate = pa.array([EDGE] * len(at), pa.string())
        return pa.table(
            {
                "subject": pa.array([node(number) for number in self.sources[at].tolist()], pa.string()),
                "predicate": predicate,
                "object": pa.array([node(number) for number in self.targets[at].tolist()], pa.string()),
            }
        )

    def there(self) -> Int64Array:
        return np.flatnonzero(self.is_there)

    def changes(self, rounds: int, changes: int) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield, per round, edges that come and edges that go, half of the changes each."""
        for _ in range(rounds):
            come = self.random.choice(np.flatnonzero(~self.is_there), changes // 2, replace=False)
            gone = self.random.choice(self.there(), changes // 2, replace=False)
            self.is_there[come], self.is_there[gone] = True, False
            yield self.table(come), self.table(gone)

    def reached_count(self) -> int:
        """Return to how many nodes there is a way from node 0; to itself if there is a cycle."""
        sources, targets = self.sources[self.is_there], self.targets[self.is_there]
        order = np.argsort(sources, kind="stable")
        sources, targets = sources[order], targets[order]
        size = int(max(sources.max(initial=0), targets.max(initial=0))) + 1
        starts = np.searchsorted(sources, np.arange(size + 1))
        is_reached = np.zeros(size, np.bool_)
        frontier = np.zeros(1, np.int64)
        while len(frontier):
            counts = starts[frontier + 1] - starts[frontier]
            offsets = np.repeat(starts[frontier] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
            found = np.unique(targets[offsets])
            frontier = found[~is_reached[found]]
            is_reached[frontier] = True
        return int(is_reached.sum())

    def closure_count(self) -> int:
        """Return the number of pairs with a way from one to the other; for graphs of short ways only."""
        near: dict[int, list[int]] = {}
        for source, target in zip(
            self.sources[self.is_there].tolist(), self.targets[self.is_there].tolist(), strict=True
        ):
            near.setdefault(source, []).append(target)
        count = 0
        for first in near:
            found: set[int] = set()
            waiting = list(near[first])
            while waiting:
                number = waiting.pop()
                if number not in found:
                    found.add(number)
                    waiting += near.get(number, ())
            count += len(found)
        return count
