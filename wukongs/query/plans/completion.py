"""Completion: how one execution reads a stored graph of which this node holds only a share.

A dataset without one holds its stored graph whole: the embedded engine, and windows in any case. With one, whoever is
about to read stored triples says first what it will look at, and the completion puts what other nodes hold of that
beside the node's own batches. All that ordinary kernels need is that nothing is missing: what is there besides is as
true. wukongs/sharded/ makes them; docs/decisions/0018-sharded-execution.md says why it is done like this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from wukongs.csparql.algebra import GraphRef
from wukongs.csparql.automaton import Automaton, Link
from wukongs.csparql.explain import Moved
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import BoolArray, Int64Array

if TYPE_CHECKING:
    from wukongs.query.plans.dataset import Dataset
    from wukongs.query.plans.lowering import LoweredPlan


class Completion(Protocol):
    """Of one execution, at one snapshot. Every method may ask other nodes, and raises, beside what the ordinary work
    does, NodeUnavailable and CompactedError."""

    @property
    def own(self) -> BatchSet:
        """What this node holds itself: a sample of the graph, for the planner."""

    @property
    def share(self) -> float:
        """About which part of the triples this node holds, above 0, at most 1."""

    @property
    def answered(self) -> float:
        """Which part of the ids this node answers for, above 0, at most 1."""

    def answers_for(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether this node answers for it. bool[n]"""

    def run(
        self,
        plan: LoweredPlan,
        seeds: BindingTable,
        dataset: Dataset,
        limits: Limits,
        rows_wanted: int | None = None,
        rows_of_steps: list[int] | None = None,
    ) -> BindingTable:
        """As plan_runner.run, over the whole graph."""

    @property
    def moved(self) -> Sequence[Moved]:
        """What each step of the last run moved between nodes."""

    def way(self, dataset: Dataset, step: PlanStep, bound: frozenset[Variable], rows: float) -> str:
        """Return how a step would come to the triples of other nodes, from about so many rows that bind variables."""

    def follow(self, automaton: Automaton, nodes: Int64Array, graph: GraphRef, dataset: Dataset) -> None:
        """Complete all that a search along a path may meet from some nodes."""

    def list_links(self, links: Sequence[Link], graph: GraphRef, dataset: Dataset) -> None:
        """Complete the triples of links, wherever they begin."""

    def graphs_of(
        self, nodes: Int64Array, graphs: Int64Array, graph: GraphRef, dataset: Dataset
    ) -> npt.NDArray[np.int64]:
        """Return (number of the node, graph) for each stored graph that knows a node, as Search.graphs. int64[n, 2]"""

    def graph_names(self) -> Int64Array:
        """Return the ids of all graphs with a stored triple, sorted."""
