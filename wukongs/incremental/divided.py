"""A stored graph that is divided among the nodes of a cluster, as a view at one of them reads it at some snapshots.

A `Share` stands for the whole graph at its SN wherever the operators take a stored graph: what it lacks is asked of the
other nodes (query/reach.py). So all operators read both ends of a change without knowing who holds what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wukongs.csparql.algebra import GraphRef
from wukongs.incremental.lifted import ARGUMENTS
from wukongs.query.plans.dataset import Part, Source
from wukongs.query.reach import Reach, ReachedGraph
from wukongs.query.terms.query_terms import DataTexts
from wukongs.store.batch import Batch
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.hidden_graphs import ARGUMENTS_GRAPH


@dataclass(frozen=True, eq=False)
class Share(BatchSet):
    """The part of the stored graph that this node holds.

    sn: the snapshot.
    arguments: those of the view. They stand here alone, so they are a read of their own, as a window is. None: the view
    has none."""

    sn: int = 0
    arguments: BatchSet | None = None

    @staticmethod
    def at(sn: int, read: BatchSet) -> Share:
        """Return a read as the share at an SN; each has an identity of its own, also where nothing was stored here in
        between."""
        return Share(
            read.batches, read.disjoint, read.count, read.tombstones, read.hiding, read.later, read.goes_on, sn=sn
        )

    def and_changes(self, changes: Sequence[tuple[Batch, Batch | None]]) -> BatchSet:
        """Return this share with the changes of arguments behind it."""
        return replace(self, arguments=(self.arguments or EMPTY).and_changes(changes))

    @property
    def beside(self) -> dict[GraphRef, Source]:
        """Where patterns of arguments are matched."""
        found = self.arguments
        if found is None:
            return {}
        return {ARGUMENTS: Source((Part(found, ARGUMENTS_GRAPH, ARGUMENTS_GRAPH),), not found.disjoint, found.count)}


class DividedReads:
    """The divided graphs of one execution after the other. One thread at a time."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._texts: DataTexts | None = None
        self._graphs: dict[int, tuple[Share, ReachedGraph | None]] = {}

    def begin(self, texts: DataTexts | None) -> None:
        """Begin an execution, with the nodes that are there now. texts: keeps those that arrive with answers."""
        self._texts = texts
        self.forget()

    def forget(self) -> None:
        """Give back what was fetched."""
        self._graphs.clear()

    def __call__(self, stored: BatchSet) -> ReachedGraph | None:
        """Return how the whole graph is read, None if it is all here."""
        assert isinstance(stored, Share), "a view on a cluster reads shares"
        known = self._graphs.get(id(stored))
        if known is None:
            known = self._graphs[id(stored)] = stored, self._reach.graph(stored, stored.sn, self._texts)
        return known[1]
