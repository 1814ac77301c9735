"""Versions: the stored graph at the two ends of a change, what was inserted and deleted between, and how parts of a
query are evaluated over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.algebra import DatasetClause, Node, StreamWindow, Values
from wukongs.csparql.terms import Variable
from wukongs.incremental.lifted import Lifted
from wukongs.incremental.zset import summed
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.executor import Executor
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.hidden_graphs import ARGUMENTS_GRAPH
from wukongs.store.trace import TraceEntry


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the stored graph from one SN to a later one. before, after: the graph at both; inserted, deleted: the
    net difference, as batches: a triple that was inserted and deleted again is in neither."""

    before: BatchSet
    after: BatchSet
    inserted: BatchSet
    deleted: BatchSet

    @staticmethod
    def of(before: BatchSet, after: BatchSet, entries: Iterable[TraceEntry]) -> Change:
        """entries: what the trace has sealed between the two SNs (Trace.between)."""
        columns: list[tuple[Int64Array, ...]] = []
        weights: list[Int64Array] = []
        for entry in entries:
            for batch, weight in ((entry.batch, 1), (entry.tombstones, -1)):
                if batch is not None and len(batch):
                    columns.append(batch.triples())
                    weights.append(np.full(len(columns[-1][0]), weight, np.int64))
        if not columns:
            return Change(before, after, EMPTY, EMPTY)
        quads = [np.concatenate(column) for column in zip(*columns, strict=True)]
        firsts, sums = summed(quads, np.concatenate(weights))
        assert np.isin(sums, (-1, 0, 1)).all(), "a stored graph is a set"
        parts = (_batch_set([column[firsts[sums == sign]] for column in quads]) for sign in (1, -1))
        return Change(before, after, *parts)

    @property
    def is_empty(self) -> bool:
        return not (len(self.inserted) or len(self.deleted))

    def touches(self, predicate: int | None, graph: int | None) -> bool:
        """Tell whether a triple of a graph (None: of any stored one) with a predicate (None: any) was inserted or
        deleted."""
        for part in (self.inserted, self.deleted):
            for batch in part.batches:
                graphs = batch.graphs[batch.graphs != ARGUMENTS_GRAPH].tolist() if graph is None else [graph]
                if any(batch.has_row(predicate, one) for one in graphs):
                    return True
        return False


def _batch_set(quads: Sequence[Int64Array]) -> BatchSet:
    if not len(quads[0]):
        return EMPTY
    graphs, subjects, predicates, objects = quads
    return BatchSet.of((build_batch(graphs, subjects, predicates, objects),), True)


@dataclass(slots=True)
class Evaluation:
    """Evaluates parts of one view. clause: the dataset that the query names; resolve: term -> id; terms: of the view;
    limits: of the execution under way; lifted: the query, if it is asked for each of the view's arguments."""

    clause: DatasetClause
    resolve: Resolve
    terms: QueryTerms
    limits: Limits
    lifted: Lifted | None = None
    _memo: PlanMemo = field(default_factory=PlanMemo)

    def dataset(self, stored: BatchSet) -> Dataset:
        return Dataset(self.clause, stored, {}, self.resolve)

    def run(self, node: Node, stored: BatchSet) -> BindingTable:
        """Return the solutions of a part over the stored graph. Choices are functions of the data alone (in_order)."""
        return self._executor(self.dataset(stored)).run(node)

    def run_over(
        self, node: Node, stored: BatchSet, *known: tuple[Node, BindingTable], number: Variable | None = None
    ) -> BindingTable:
        """Return the solutions of a part of which some nodes (`leaf`) have solutions that are known already. number:
        LIMIT means the rows that are equal in it."""
        dataset, memo = self.dataset(stored), PlanMemo()
        return Executor(dataset, self.terms, self.limits, memo, in_order=True, explored=known, number=number).run(node)

    def run_given(self, node: Node, stored: BatchSet, given: BindingTable, number: Variable) -> BindingTable:
        """Return the solutions of a part for each of some arguments. given: these; number: the column that tells them
        apart."""
        dataset = self.dataset(stored)
        return Executor(dataset, self.terms, self.limits, self._memo, True, given=given, number=number).run(node)

    def explored(self, node: Node, rows: BindingTable, stored: BatchSet) -> BindingTable:
        """Join rows with an explorable part: the cost grows with the rows and what they lead to, not with the graph."""
        return self._executor(self.dataset(stored)).explore(node, rows)

    def run_among(
        self,
        node: Node,
        clause: DatasetClause,
        stored: BatchSet,
        windows: Mapping[StreamWindow, BatchSet],
        graphs: Mapping[StreamWindow, int],
        memo: PlanMemo,
    ) -> BindingTable:
        """Return the solutions of a part over the stored graph and other batches, which the windows of a clause
        name."""
        dataset = Dataset(clause, stored, windows, self.resolve, graphs=graphs)
        return self._executor(dataset, memo).run(node)

    def _executor(self, dataset: Dataset, memo: PlanMemo | None = None) -> Executor:
        return Executor(dataset, self.terms, self.limits, self._memo if memo is None else memo, in_order=True)


def leaf(variables: Sequence[Variable] = ()) -> Node:
    """Return a node in the place of solutions that are known. The executor finds it by its identity, and never runs
    it."""
    return Values(tuple(variables), ())
