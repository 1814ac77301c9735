"""Reach: the way to keys that are not here. An embedded engine has none; a node of a cluster asks the keys' owners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from wukongs.query.plans.dataset import Completion
from wukongs.query.terms.query_terms import DataTexts, TermKeeper
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.graph_change import GraphChange
from wukongs.store.quads import Quads
from wukongs.store.term_registry import TermReader
from wukongs.store.tombstones import Difference
from wukongs.store.trace import TraceEntry


class ReachedGraph(Completion, Protocol):
    """The whole stored graph at one snapshot, as one execution reads it. Raises what a Completion raises."""

    @property
    def stored(self) -> BatchSet:
        """The batches that are here by now."""

    def with_change(self, change: Difference) -> ReachedGraph:
        """Return the same graph with a change on top. The two graphs share the triples that they fetch."""

    def existing(self, graphs: Int64Array) -> Int64Array:
        """Return those of some ids of graphs that have a stored triple, sorted."""

    def holds_elsewhere(self, predicate: int, default_graph: int) -> bool:
        """Tell whether another node has a triple of a predicate in any graph; a row of each is asked for at most."""

    def look_up(self, quads: Quads) -> None:
        """Have those of some quads here that there are."""

    def snapshot_for(self, change: GraphChange) -> BatchSet:
        """Return the batches that are here, without a change, once they hold all triples that the change rests on."""

    def triples(
        self, graph: int, wanted: BoolArray | None = None
    ) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
        """Iterate over all triples of a graph, some at a time: subjects, predicates, objects. int64[n] each

        wanted : bool[number of shards]   Triples with subjects of other shards are left out."""


class Reach(Protocol):
    """The way of this node to other nodes' data."""

    @property
    def ids(self) -> TermKeeper:
        """By which ids the whole cluster knows texts."""

    @property
    def traffic(self) -> Any:
        """The requests of all executions together: .stats() gives counts by name."""

    def graph(self, own: BatchSet, sn: int, texts: DataTexts | None = None) -> ReachedGraph | None:
        """Return how one execution reads the whole graph as of an SN, None if this node holds it whole.

        own: this node's share of it; texts: a `reader` of the execution, which keeps texts that come with answers."""

    def changed(
        self, entries: Sequence[TraceEntry], after_sn: int, sn: int, predicates: Int64Array | None = None
    ) -> tuple[Quads, Quads] | None:
        """Return what was inserted into the whole graph between two SNs, and what was deleted from it; None if that is
        too much to be moved.

        entries: of this node's trace, between the two; predicates: of these alone, None: of any. Raises
        NodeUnavailable, CompactedError (a node has forgotten one of the two)."""

    def reader(self, own: TermReader) -> DataTexts:
        """Return a reader of texts that asks other nodes for texts that are not here."""
