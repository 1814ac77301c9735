"""FetchedGraph: the part of a divided graph that one execution has: this node's own batches, and the fetched ones.

Fetched triples are there once, for the whole execution. They are remembered by the question: keys in one direction
under one predicate (or any) in some graphs, or all triples of a predicate there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wukongs.cluster.reads.asking import Asking, Graphs, Triples
from wukongs.query.limits import current
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_layout import ALL_NAMED
from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import IN, OUT, BoolArray, Int64Array
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import Quads, graph_quads, joined
from wukongs.store.tombstones import Difference
from wukongs.wire.assignment import SHARD_COUNT, shards_of

PREDICATES_MAX = 16
"""If rows bind more predicates than these, all triples of their keys are fetched."""


class FetchedGraph:
    """The graph of one execution, at one SN. One thread at a time."""

    def __init__(self, asking: Asking, own: BatchSet, change: Difference | None = None) -> None:
        """own: what this node holds at the SN; change: of which nothing is sealed, read on top of all. A node that
        answers for nothing may hold what others have deleted since."""
        self.asking = asking
        self.assignment = asking.assignment
        self.change = change
        self.base = own if self.assignment.shards(self.assignment.me).any() else EMPTY
        self._fetched: list[Batch] = []
        self._known: dict[tuple[int, int | None, Graphs], Int64Array] = {}
        """By direction, predicate and graphs, the keys whose triples have been fetched, sorted."""
        self._listed: set[tuple[int | None, Graphs]] = set()
        """Predicates and graphs of which all triples have been fetched."""
        self._names: Int64Array | None = None

    @property
    def own(self) -> BatchSet:
        """This node's own batches, with the change on top."""
        return self._read((), self.change)

    @property
    def stored(self) -> BatchSet:
        """All batches that are here by now, with the change on top."""
        return self._read(tuple(self._fetched), self.change)

    @property
    def snapshot(self) -> BatchSet:
        """All batches that are here by now, without the change."""
        return self._read(tuple(self._fetched), None)

    def _read(self, fetched: tuple[Batch, ...], change: Difference | None) -> BatchSet:
        come, gone = change or (None, None)
        return self.base if not fetched and come is None else self.base.followed_by(fetched, come, gone)

    def share_fetched(self, other: FetchedGraph) -> None:
        """Have what another one has fetched, and will."""
        self._fetched, self._known, self._listed = other._fetched, other._known, other._listed

    @property
    def share(self) -> float:
        """The part of all triples that this node holds, about: those with an end of its own. Of split predicates it
        holds less."""
        return 1 - (1 - self.answered) ** 2

    @property
    def answered(self) -> float:
        """Which part of the ids this node answers for."""
        return self.assignment.answered

    def answers_for(self, ids: Int64Array) -> BoolArray:
        """Tell of each id (>= 0) whether this node answers for it."""
        found: BoolArray = self.assignment.of(ids) == self.assignment.me
        return found

    # --- fetching -----------------------------------------------------------------------------------------------------

    def missing(self, keys: Int64Array, direction: int, predicate: int | None, graphs: Graphs) -> Int64Array:
        """Return which of some keys have triples that may not be here, each once, sorted. predicate: None for any."""
        if not self._listed.isdisjoint(((predicate, graphs), (None, graphs))):
            return keys[:0]
        missing = keys[keys >= 0]
        if not self._is_spread(direction, predicate):
            missing = missing[~self.answers_for(missing)]
        missing = np.unique(missing)
        for known in ((direction, predicate, graphs), (direction, None, graphs)):
            if len(missing) and known in self._known:
                missing = np.setdiff1d(missing, self._known[known], assume_unique=True)
        return missing

    def _is_spread(self, direction: int, predicate: int | None) -> bool:
        """Whether the triples of a key may be with any node."""
        return direction == IN and (predicate is None or predicate in self.assignment.split)

    def fetch(
        self, keys: Int64Array, direction: int, predicate: int | None, graphs: Graphs, dataset: Dataset | None = None
    ) -> None:
        """Have all triples of some keys here, and put them into a dataset."""
        missing = self.missing(keys, direction, predicate, graphs)
        if len(missing):
            is_spread = self._is_spread(direction, predicate)
            self._add(self.asking.triples(missing, direction, predicate, graphs, is_spread), dataset)
            place = direction, predicate, graphs
            known = self._known.get(place)
            self._known[place] = missing if known is None else np.union1d(known, missing)

    @property
    def has_fetched_nothing(self) -> bool:
        return not self._known and not self._listed

    def is_listed(self, predicate: int | None, graphs: Graphs) -> bool:
        """Whether all triples of a predicate (None: all there are) are here."""
        return not self._listed.isdisjoint(((predicate, graphs), (None, graphs)))

    def fetch_all(self, predicate: int | None, graphs: Graphs, dataset: Dataset | None = None) -> None:
        """Have all triples of a predicate here, or all there are."""
        if not self.is_listed(predicate, graphs):
            self._add(self.asking.all_triples(predicate, graphs), dataset)
            self._listed.add((predicate, graphs))

    def holds_elsewhere(self, predicate: int, default_graph: int) -> bool:
        """Tell whether another node has a triple of a predicate in any graph."""
        return self.asking.has_any(predicate, (default_graph, ALL_NAMED))

    def _add(self, quads: Quads, dataset: Dataset | None) -> None:
        """Put fetched triples beside those that are here."""
        if not len(quads[0]):
            return
        current().keep(2 * 4 * 8 * len(quads[0]))
        self._fetched.append(build_batch(*quads))
        while len(self._fetched) > 1 and len(self._fetched[-2]) <= 2 * len(self._fetched[-1]):
            last = [self._fetched.pop(), self._fetched.pop()]
            self._fetched.append(build_batch(*joined([batch.triples() for batch in last])))
        if dataset is not None:
            dataset.put_stored(self.stored)

    # --- whole graphs, and changes ------------------------------------------------------------------------------------

    def look_up(self, quads: Quads) -> None:
        """Have those of some quads here that there are. A quad is here already if this node answers for an end of it
        by which it is found."""
        graphs, subjects, predicates, objects = quads
        is_here = self.answers_for(subjects)
        is_here |= self.answers_for(objects) & ~np.isin(predicates, self.asking.split)
        if is_here.all():
            return
        graphs, subjects, predicates = (column[~is_here] for column in (graphs, subjects, predicates))
        for graph in np.unique(graphs).tolist():
            rows = graphs == graph
            some, names = subjects[rows], predicates[rows]
            distinct = np.unique(names).tolist()
            if len(distinct) > PREDICATES_MAX:
                self.fetch(some, OUT, None, (graph,))
                continue
            for predicate in distinct:
                self.fetch(some[names == predicate], OUT, predicate, (graph,))

    def snapshot_for(self, change: GraphChange) -> BatchSet:
        """Return what is here by now, without a change, once it holds all that a change of it rests on."""
        (graphs, subjects, predicates, _), cleared = change.needs()
        for graph in cleared.tolist():
            self.fetch_all(None, (graph,))
        for graph, predicate in np.unique(np.stack((graphs, predicates), axis=1), axis=0).tolist():
            self.fetch(subjects[(graphs == graph) & (predicates == predicate)], OUT, predicate, (graph,))
        return self.snapshot

    def triples(self, graph: int, wanted: BoolArray | None = None) -> Iterator[Triples]:
        """Yield all triples of a graph of the snapshot, each once, some at a time. wanted: as graph_triples."""
        wanted = np.ones(SHARD_COUNT, np.bool_) if wanted is None else wanted
        yield from triples_in(self.base, graph, wanted & self.assignment.shards(self.assignment.me))
        yield from self.asking.graph_triples(graph, wanted)

    def graph_names(self) -> Int64Array:
        """Return the ids of all graphs with a stored triple, sorted."""
        if self._names is None:
            self._names = np.union1d(self.base.graphs, self.asking.graph_names())
            if self.change is not None:
                come, gone = self.change
                touched = [] if gone is None else np.unique(gone.graphs).tolist()
                emptied = [name for name in touched if gone is not None and self._is_emptied(name, gone)]
                self._names = np.union1d(np.setdiff1d(self._names, emptied), come.graphs)
        return self._names

    def existing(self, graphs: Int64Array) -> Int64Array:
        """Return those of some ids of graphs that have a stored triple, sorted. Other nodes are asked about those of
        which nothing is here."""
        if self._names is not None or self.change is not None:
            return np.intersect1d(graphs, self.graph_names())
        here = np.intersect1d(graphs, self.base.graphs)
        left = np.setdiff1d(graphs, here)
        return np.union1d(here, self.asking.graph_names(left)) if len(left) else here

    def _is_emptied(self, graph: int, gone: Batch) -> bool:
        """Whether nothing is left of a graph when some of its triples have gone."""
        self.fetch_all(None, (graph,))
        return len(graph_quads(self.snapshot, graph)[0]) == int((gone.triples()[0] == graph).sum())


def triples_in(stored: BatchSet, graph: int, shards: BoolArray) -> Iterator[Triples]:
    """Yield the triples of a graph whose subjects are in some shards, some at a time. shards : bool[SHARD_COUNT]"""
    for subjects, predicate, objects in stored.triples(graph):
        rows = np.flatnonzero(shards[shards_of(subjects)])
        yield subjects[rows], np.full(len(rows), predicate, np.int64), objects[rows]
