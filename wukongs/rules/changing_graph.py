"""ChangingGraph: a read of the stored graph, and the changes that are being derived upon it.

Changes lie in layers, each with triples that come and triples that go. A layer is merged with the one below it once
that is at most twice as large and there are some, so there are O(log n) layers. Each triple that comes is not seen
before, and each that goes is; merging cancels the two. So all layers merged are the difference between the graph now
and the graph before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wukongs.incremental.versions import Change, pairs_of
from wukongs.query.reach import ReachedGraph
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import BoolArray
from wukongs.store.quads import NO_QUADS, Quads, graph_quads, hidden, is_held, joined, taken
from wukongs.store.tombstones import Difference, DifferenceMerge

NOTHING = Difference(build_batch(*NO_QUADS), None)
_GROWTH = 2
_LAYERS_MIN = 12
"""So few are read as they are."""


@dataclass(frozen=True, eq=False)
class _Share(BatchSet):
    """A divided graph, by the batches of it that are here. graph: how the rest is asked for."""

    graph: ReachedGraph | None = None


def divided_of(stored: BatchSet) -> ReachedGraph | None:
    """Return how the whole graph is read that a read stands for (Read.stored), None if it is all here."""
    return stored.graph if isinstance(stored, _Share) else None


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A read of the stored graph. divided: of the whole graph, at a node that holds a share of it; then the batches are
    those that are here by now, and it may ask other nodes. None: they hold it whole."""

    _batches: BatchSet
    divided: ReachedGraph | None = None

    @property
    def batches(self) -> BatchSet:
        return self._batches if self.divided is None else self.divided.stored

    @property
    def stored(self) -> BatchSet:
        """The graph as evaluations take it (`divided_of`)."""
        if self.divided is None:
            return self._batches
        here = self.divided.stored
        return _Share(
            here.batches, here.disjoint, here.count, here.tombstones, here.hiding, here.later, graph=self.divided
        )

    def holds(self, quads: Quads) -> BoolArray:
        """Mark the quads that the read sees. bool[n]"""
        if not len(quads[0]):
            return np.empty(0, np.bool_)
        if self.divided is not None:
            self.divided.look_up(quads)
        return is_held(self.batches, quads)

    def with_changes(self, layers: list[Difference]) -> Read:
        """Return the same read with changes on top, the first one below. If it is divided, they become one."""
        if self.divided is None:
            return Read(self._batches.and_changes(layers))
        while len(layers) > 1:
            _merge_last(layers)
        return Read(self._batches, self.divided.with_change(layers[0]))

    def inferred(self, graphs: Iterable[int]) -> Quads:
        """Return all inferred triples, in the graphs that they belong to. graphs: those in which there may be some, if
        the graph is divided."""
        if self.divided is None:
            return inferred_in(self._batches)
        found = [~graph for graph in graphs]
        for graph in found:
            self.divided.fetch_all(None, (graph,))
        return hidden(joined([graph_quads(self.batches, graph) for graph in found]))

    def inferred_with(self, heads: Iterable[tuple[int, int | None]]) -> Quads:
        """Return the inferred triples of some graphs, each with a predicate (None: any). The read is not divided."""
        found = [hidden(graph_quads(self._batches, ~graph, predicate=predicate)) for graph, predicate in set(heads)]
        return joined(found) if len(found) < 2 else build_batch(*joined(found)).triples()


class ChangingGraph:
    """before: the graph as it was. notes: whether `since` may be asked for."""

    def __init__(self, before: Read, *, notes: bool = False) -> None:
        self.before = before
        self._layers: list[Difference] = []
        self._noted: list[Difference] | None = [] if notes else None
        self._since: dict[int, Change] = {}
        self._now: Read | None = before

    @property
    def now(self) -> Read:
        """The graph with all changes so far."""
        if self._now is None:
            self._now = self.before.with_changes(self._layers)
        return self._now

    def change(self, difference: Difference) -> None:
        """Let triples go that are there, and then others come that are not."""
        if not any(difference.counts):
            return
        self._now = None
        self._since.clear()
        self._layers.append(difference)
        if self._noted is not None:
            self._noted.append(difference)
        while len(self._layers) > _LAYERS_MIN and _size(self._layers[-2]) <= _GROWTH * _size(self._layers[-1]):
            _merge_last(self._layers)

    def add(self, quads: Quads) -> Difference:
        """Let those of some quads come that are not there; return these, each once."""
        new = taken(quads, ~self.now.holds(quads))
        if not len(new[0]):
            return NOTHING
        come = Difference(build_batch(*new), None)
        self.change(come)
        return come

    def difference(self) -> Difference:
        """Return all changes so far as one."""
        while len(self._layers) > 1:
            _merge_last(self._layers)
        return self._layers[0] if self._layers else NOTHING

    def pairs(self) -> frozenset[tuple[int, int]]:
        """Return the graph and the predicate of each triple that has changed so far; there may be others."""
        return frozenset(pairs_of(batch for layer in self._layers for batch in layer if batch is not None))

    @property
    def mark(self) -> int:
        """A number for the graph as it is now, for `since`."""
        return 0 if self._noted is None else len(self._noted)

    def since(self, mark: int, before: BatchSet) -> Change:
        """Return all changes since a mark as one; 0: all so far. before: the graph at the mark."""
        found = self._since.get(mark)
        if found is None:
            come, gone = self._changed_since(mark)
            inserted, deleted = (
                EMPTY if batch is None or not len(batch) else BatchSet.of((batch,), disjoint=True)
                for batch in (come, gone)
            )
            found = self._since[mark] = Change(before, self.now.stored, inserted, deleted)
        return found

    def _changed_since(self, mark: int) -> Difference:
        assert self._noted is not None, "notes"
        if mark == 0:
            return self.difference()
        layers = self._noted[mark:]
        while len(layers) > 1:
            _merge_last(layers)
        return layers[0] if layers else NOTHING


def _merge_last(layers: list[Difference]) -> None:
    newer, older = layers.pop(), layers.pop()
    layers.append(DifferenceMerge(older, newer).finish())


def _size(difference: Difference) -> int:
    return sum(difference.counts)


def gone_of(difference: Difference) -> Quads:
    """Return the quads that go."""
    return NO_QUADS if difference.tombstones is None else difference.tombstones.triples()


def inferred_in(read: BatchSet) -> Quads:
    """Return all inferred triples, in the graphs that they belong to."""
    graphs = np.unique(np.concatenate([NO_QUADS[0], *(batch.graphs for batch in read.batches)]))
    return hidden(joined([graph_quads(read, graph) for graph in graphs[graphs < 0].tolist()]))
