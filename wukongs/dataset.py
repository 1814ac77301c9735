"""The dataset of one execution: what the default graph and each named graph of a query stand for.

The clause is exact: the default graph is the merge of what FROM and FROM STREAM name, nothing else; FROM NAMED and FROM
NAMED STREAM declare what only GRAPH reaches; without any clause there is the stored graph as it is. Only in a query
with a window may GRAPH <iri> also name what FROM or FROM STREAM declare (decision 0003).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from csparql.algebra import DatasetClause, DefaultGraph, GraphRef, StreamWindow
from csparql.cardinality import Direction
from csparql.terms import Term, Variable, iri
from store.batch import Batch
from store.batch_set import BatchSet
from store.dtypes import DEFAULT_GRAPH_IRI, WINDOW_GRAPH, Int64Array
from store.lookup_kernels import count_degree, count_edges
from wukongs.plan_layout import ALL_NAMED, FROM_DIRECTORY, PART_WIDTH

NAMES_ASKED_MAX = 64
"""Of more named graphs than this, a constant's degree in any of them is taken to be the average one."""
Resolve = Callable[[Term], int]
"""canonical term -> id, NO_MATCH where no data can have it"""


@dataclass(frozen=True, slots=True)
class Part:
    """One place where a pattern is matched: a graph of some batches, and the name that GRAPH ?g reports for it."""

    batches: BatchSet
    graph: int
    name: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where one graph reference is matched; united: a triple may stand in several parts, and counts once."""

    parts: tuple[Part, ...]
    united: bool


def _source(parts: list[Part]) -> Source:
    united = any(not part.batches.disjoint for part in parts) or len(parts) > 1
    return Source(tuple(parts), united)


@dataclass(slots=True)
class Dataset:
    """The sources of one execution, with all batches in one table of descriptors.

    stored: the batches of the stored graph at the snapshot; windows: one per StreamWindow of the clause.
    """

    clause: DatasetClause
    stored: BatchSet
    windows: Mapping[StreamWindow, BatchSet]
    resolve: Resolve
    default_graph: int = field(init=False)
    descriptors: Int64Array = field(init=False)
    _first: dict[int, int] = field(init=False)
    _sources: dict[GraphRef, Source] = field(init=False, default_factory=dict)
    _parts: dict[GraphRef, tuple[Int64Array, bool]] = field(init=False, default_factory=dict)
    _named_graphs: list[int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.default_graph = self.resolve(iri(DEFAULT_GRAPH_IRI))
        sets = {id(batches): batches for batches in (self.stored, *self.windows.values())}
        self._first = {}
        count = 0
        for key, batches in sets.items():
            self._first[key] = count
            count += len(batches.batches)
        self.descriptors = np.concatenate([batches.descriptors for batches in sets.values()])

    def source(self, graph: GraphRef) -> Source:
        """Return where patterns of a graph reference are matched; a variable is any named graph or window."""
        found = self._sources.get(graph)
        if found is None:
            if isinstance(graph, DefaultGraph):
                found = self._default()
            elif isinstance(graph, Variable):
                found = self._any_named()
            else:
                found = self._named(graph)
            self._sources[graph] = found
        return found

    def parts(self, graph: GraphRef) -> tuple[Int64Array, bool]:
        """Return where a graph reference is matched, batch by batch, for the kernel, and whether parts may overlap.

        parts : int64[n, PART_WIDTH]
        """
        found = self._parts.get(graph)
        if found is None:
            source = self.source(graph)
            rows = [
                (self._first[id(part.batches)] + b, part.graph, part.name)
                for part in source.parts
                for b in range(len(part.batches.batches))
            ]
            found = self._parts[graph] = np.array(rows, np.int64).reshape(-1, PART_WIDTH), source.united
        return found

    def named_graphs(self) -> list[int]:
        """Return the ids that GRAPH ?g ranges over: declared names, or every stored named graph without a clause."""
        if self._named_graphs is None:
            if self.clause.is_empty:
                none = np.empty(0, np.int64)
                found = np.unique(np.concatenate([none, *(batch.graphs for batch in self.stored.batches)]))
                self._named_graphs = found[found != self.default_graph].tolist()
            else:
                self._named_graphs = sorted({self.resolve(iri(name)) for name in self.declared_names()})
        return self._named_graphs

    def declared_names(self) -> list[str]:
        """Return the IRIs of FROM NAMED and FROM NAMED STREAM, each once."""
        streams = (window.stream for window in self.clause.windows if window.named)
        return list(dict.fromkeys([*self.clause.named_graphs, *streams]))

    def is_named(self, graph: Term) -> bool:
        """Tell whether GRAPH <iri> {} has a solution."""
        return self.resolve(graph) in self.named_graphs() or bool(self._declared(graph))

    def _stored(self, name: str) -> Part:
        graph = self.resolve(iri(name))
        return Part(self.stored, graph, graph)

    def _window(self, window: StreamWindow) -> Part:
        return Part(self.windows[window], WINDOW_GRAPH, self.resolve(iri(window.stream)))

    def _default(self) -> Source:
        if self.clause.is_empty:
            return _source([Part(self.stored, self.default_graph, self.default_graph)])
        stored = [self._stored(name) for name in dict.fromkeys(self.clause.default_graphs)]
        return _source([*stored, *(self._window(window) for window in self.clause.windows if not window.named)])

    def _any_named(self) -> Source:
        if self.clause.is_empty:
            return _source([Part(self.stored, ALL_NAMED, FROM_DIRECTORY)])
        stored = [self._stored(name) for name in dict.fromkeys(self.clause.named_graphs)]
        return _source([*stored, *(self._window(window) for window in self.clause.windows if window.named)])

    def _named(self, graph: Term) -> Source:
        if self.clause.is_empty:
            name = self.resolve(graph)
            return _source([Part(self.stored, name, name)])
        return _source(self._declared(graph))

    def _declared(self, graph: Term) -> list[Part]:
        name = graph.text[1:-1]
        windows = [window for window in self.clause.windows if window.stream == name]
        parts = [self._window(window) for window in windows if window.named]
        if name in self.clause.named_graphs:
            parts.append(self._stored(name))
        if not parts and self.clause.windows:
            parts = [self._window(window) for window in windows]
            if name in self.clause.default_graphs:
                parts.append(self._stored(name))
        return parts


class DatasetCardinalities:
    """Answers the planner from the arrangements and windows of a dataset (csparql.cardinality.Cardinalities)."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._counts: dict[tuple[GraphRef, Term], tuple[float, float, float]] = {}

    def edges(self, graph: GraphRef, predicate: Term | None) -> float:
        return self._count(graph, predicate)[0]

    def keys(self, graph: GraphRef, predicate: Term | None, direction: Direction) -> float:
        return self._count(graph, predicate)[1 if direction == "out" else 2]

    def degree(self, graph: GraphRef, predicate: Term | None, direction: Direction, vertex: Term) -> float:
        if predicate is None:
            edges, keys_out, keys_in = self._count(graph, None)
            return edges / max(1.0, keys_out if direction == "out" else keys_in)
        total = 0
        ids = self._dataset.resolve(predicate), self._dataset.resolve(vertex)
        for part in self._dataset.source(graph).parts:
            names = self._dataset.named_graphs() if part.graph == ALL_NAMED else [part.graph]
            if len(names) > NAMES_ASKED_MAX:
                edges, *keys = self._count(graph, predicate)
                return edges / max(1.0, keys[0] if direction == "out" else keys[1])
            for name in names:
                total += count_degree(part.batches.descriptors, name, ids[0], 0 if direction == "out" else 1, ids[1])
        return float(total)

    def _count(self, graph: GraphRef, predicate: Term | None) -> tuple[float, float, float]:
        if predicate is None:
            n = float(sum(len(part.batches) for part in self._dataset.source(graph).parts))
            return n, max(1.0, n / 4), max(1.0, n / 2)
        found = self._counts.get((graph, predicate))
        if found is None:
            total = np.zeros(3, np.int64)
            wanted = self._dataset.resolve(predicate)
            for part in self._dataset.source(graph).parts:
                if part.graph == ALL_NAMED:
                    for batch in part.batches.batches:
                        total += _count_named(batch, wanted, self._dataset.default_graph)
                else:
                    total += count_edges(part.batches.descriptors, part.graph, wanted)
            found = self._counts[graph, predicate] = (float(total[0]), float(total[1]), float(total[2]))
        return found


def _count_named(batch: Batch, predicate: int, default_graph: int) -> Int64Array:
    """Return (triples, out keys, in keys) of a predicate in all graphs of a batch but the default one. int64[3]"""
    lo, hi = np.searchsorted(batch.predicates, predicate, "left"), np.searchsorted(batch.predicates, predicate, "right")
    rows = np.arange(lo, hi)[batch.graphs[lo:hi] != default_graph]
    starts = [(side.key_starts[rows], side.key_starts[rows + 1]) for side in (batch.out, batch.in_)]
    first, last = starts[0]
    edges = batch.out.offsets[last].astype(np.int64) - batch.out.offsets[first]
    return np.array([edges.sum(), *((end - start).sum() for start, end in starts)], np.int64)
