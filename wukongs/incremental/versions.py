"""Versions: the stored graph at the two ends of a change, what was inserted and deleted between, and how parts of a
query are evaluated over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from wukongs.csparql.algebra import DatasetClause, GraphRef, Node, Values
from wukongs.csparql.terms import Variable
from wukongs.incremental.divided import Share
from wukongs.incremental.lifted import Lifted
from wukongs.incremental.zset import summed
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.executor import Executor
from wukongs.query.limits import Limits
from wukongs.query.paths.reach import PathIndexes
from wukongs.query.plans.dataset import Dataset, Resolve, Source, name_graphs
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.reach import ReachedGraph
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import EMPTY, BatchSet, row_counts
from wukongs.store.dtypes import NO_MATCH, WINDOW_GRAPH, BoolArray, Int64Array
from wukongs.store.hidden_graphs import ARGUMENTS_GRAPH
from wukongs.store.quads import NO_QUADS, Quads, is_held, joined, taken
from wukongs.store.trace import TraceEntry

Holds: TypeAlias = Callable[[Quads], BoolArray]
Made = TypeVar("Made")
NO_VERSIONS: Mapping[GraphRef, Source] = MappingProxyType({})
TRIPLES_MAX = 1 << 14
"""Changes of more triples are not looked through one by one."""


class Member(NamedTuple):
    """One of the stored graphs that are read as one graph.

    graph: its id; below 0 for a hidden graph.
    without: a hidden graph whose triples are left out; all of them are in the graph."""

    graph: int
    without: int | None = None

    @property
    def graphs(self) -> tuple[int, ...]:
        """The ids of all graphs that it depends on."""
        return (self.graph,) if self.without is None else (self.graph, self.without)

    def exists(self, read: BatchSet) -> bool:
        """Tell whether a read sees a triple in it."""
        *left_out, whole = read.counts_of(np.array(sorted(self.graphs), np.int64)).tolist()
        return bool(whole > sum(left_out))

    def held(self, holds: Holds, subjects: Int64Array, predicates: Int64Array, objects: Int64Array) -> BoolArray:
        """Mark the triples that are in it. holds: marks the quads that a read sees. bool[n]"""
        found, *left_out = (
            holds((np.full(len(subjects), graph), subjects, predicates, objects)) for graph in self.graphs
        )
        return found & ~left_out[0] if left_out else found


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the stored graph from one SN to a later one. before, after: the graph at both; inserted, deleted: the
    net difference, as batches: a triple that was inserted and deleted again is in neither."""

    before: BatchSet
    after: BatchSet
    inserted: BatchSet
    deleted: BatchSet
    _united: dict[tuple[Member, ...], tuple[BatchSet, BatchSet]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _known: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(before: BatchSet, after: BatchSet, entries: Iterable[TraceEntry]) -> Change:
        """entries: what the trace has sealed between the two SNs (Trace.between)."""
        return Change.between(before, after, *net_of(entries))

    @staticmethod
    def between(before: BatchSet, after: BatchSet, inserted: Quads, deleted: Quads) -> Change:
        """inserted, deleted: the net difference."""
        return Change(before, after, batch_set(inserted), batch_set(deleted))

    @property
    def is_empty(self) -> bool:
        return not (len(self.inserted) or len(self.deleted))

    @property
    def is_of_stored(self) -> bool:
        """Whether a triple of a stored graph was inserted or deleted, and not of arguments alone."""
        return any((batch.graphs != ARGUMENTS_GRAPH).any() for batch in self.batches)

    def known(self, key: object, make: Callable[[], Made]) -> Made:
        """Return what was found before under a key; find it if there is nothing. All views find the same."""
        if key not in self._known:
            self._known[key] = make()
        found: Made = self._known[key]
        return found

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The graph and the predicate of each triple that was inserted or deleted."""
        return self.known("pairs", lambda: frozenset(pairs_of(self.batches)))

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All batches of what was inserted and of what was deleted."""
        return *self.inserted.batches, *self.deleted.batches

    @property
    def count(self) -> int:
        """The triples that were inserted and those that were deleted."""
        return len(self.inserted) + len(self.deleted)

    @property
    def quads(self) -> Quads:
        """All that was inserted and all that was deleted. Found once for all views."""
        return self.known("quads", lambda: joined([batch.triples() for batch in self.batches]))

    def united(
        self, members: tuple[Member, ...], holds: Callable[[BatchSet, Quads], BoolArray]
    ) -> tuple[BatchSet, BatchSet]:
        """Return the triples that were inserted into the union of some graphs, and those that were deleted from it, all
        under WINDOW_GRAPH. Found once for all views. holds: as Evaluation.holds.

        Cost: each triple that was inserted into a member or deleted from it is looked up in all of them, before the
        change and after it."""
        found = self._united.get(members)
        if found is None:
            graphs = [graph for member in members for graph in member.graphs]
            _, *columns = taken(self.quads, np.isin(self.quads[0], graphs))
            quads = build_batch(np.full(len(columns[0]), WINDOW_GRAPH), *columns).triples()
            was, now = (
                np.logical_or.reduce([member.held(partial(holds, read), *quads[1:]) for member in members])
                for read in (self.before, self.after)
            )
            found = self._united[members] = batch_set(taken(quads, now & ~was)), batch_set(taken(quads, was & ~now))
        return found

    def beside(self, before: BatchSet, after: BatchSet, inserted: BatchSet, deleted: BatchSet) -> Change:
        """Return the change with that of a hidden graph beside the stored ones, whose unions are the same. All as of
        Change."""
        is_same = inserted is self.inserted and deleted is self.deleted
        return Change(before, after, inserted, deleted, self._united, self._known if is_same else {})


def pairs_of(batches: Iterable[Batch]) -> Iterator[tuple[int, int]]:
    """Yield the graph and the predicate of each triple, once for each batch."""
    for batch in batches:
        yield from zip(batch.graphs.tolist(), batch.predicates.tolist(), strict=True)


def batch_set(quads: Sequence[Int64Array]) -> BatchSet:
    """Return a read of distinct quads alone."""
    if not len(quads[0]):
        return EMPTY
    graphs, subjects, predicates, objects = quads
    return BatchSet.of((build_batch(graphs, subjects, predicates, objects),), True)


def count_of(entries: Iterable[TraceEntry], predicates: Int64Array | None) -> int:
    """Return how many triples and tombstones some entries of a trace have. predicates: of these alone; None: of any.

    Cost: one look at the directories."""
    batches = [batch for entry in entries for batch in (entry.batch, entry.tombstones) if batch is not None]
    if predicates is None:
        return sum(map(len, batches))
    return sum(int(row_counts(batch)[np.isin(batch.predicates, predicates)].sum()) for batch in batches)


def net_of(entries: Iterable[TraceEntry], predicates: Int64Array | None = None) -> tuple[Quads, Quads]:
    """Return the quads that some entries of a trace insert, and those that they delete: one that is inserted and
    deleted again is in neither. predicates: of these alone; None: of any."""
    columns: list[Quads] = []
    weights: list[Int64Array] = []
    for entry in entries:
        for batch, weight in ((entry.batch, 1), (entry.tombstones, -1)):
            if batch is None or (predicates is not None and not np.isin(batch.predicates, predicates).any()):
                continue
            quads = batch.triples()
            columns.append(quads if predicates is None else taken(quads, np.isin(quads[2], predicates)))
            weights.append(np.full(len(columns[-1][0]), weight, np.int64))
    if not columns:
        return NO_QUADS, NO_QUADS
    quads = joined(columns)
    firsts, sums = summed(quads, np.concatenate(weights))
    assert np.isin(sums, (-1, 0, 1)).all(), "a stored graph is a set"
    graphs, subjects, predicates, objects = (column[firsts] for column in quads)
    distinct = graphs, subjects, predicates, objects
    return taken(distinct, sums > 0), taken(distinct, sums < 0)


@dataclass(slots=True)
class Evaluation:
    """Evaluates parts of one view.

    clause: the dataset that the query names.
    resolve: term -> id.
    terms: of the view.
    limits: of the execution under way.
    leaf: returns the operator of a part that is a leaf, and None for others; None: all leaves are over stored graphs
    (DeltaJoin). Parts of these alone are looked up there.
    lifted: the query, if it is asked for each of the view's arguments.
    paths: the indexes of paths, which views share.
    span: the SNs of the change under way, or twice that of a content.
    graph_of: returns how the whole graph is read of which a stored graph is this node's share, None if it is all here;
    None: stored graphs are never divided (divided.py).
    keeps_groups: groups keep their counts where they can; else those of a change are evaluated anew from their keys,
    where that can be explored."""

    clause: DatasetClause
    resolve: Resolve
    terms: QueryTerms
    limits: Limits
    leaf: Callable[[Node], Any] | None = None
    lifted: Lifted | None = None
    paths: PathIndexes = field(default_factory=PathIndexes)
    span: tuple[int, int] = (0, 0)
    graph_of: Callable[[BatchSet], ReachedGraph | None] | None = None
    keeps_groups: bool = True
    _memo: PlanMemo = field(default_factory=PlanMemo)
    _datasets: dict[object, Dataset] | None = None
    """Those of the change under way, by what they read."""

    def is_divided(self, *stored: BatchSet) -> bool:
        """Return whether other nodes have a part of one of some stored graphs."""
        return self.graph_of is not None and any(self.graph_of(one) is not None for one in stored)

    def existing(self, graphs: Int64Array, stored: BatchSet) -> BoolArray:
        """Mark the named graphs that have a triple in the whole graph. graphs : int64[n], sorted, each once. bool[n]"""
        divided = None if self.graph_of is None else self.graph_of(stored)
        if divided is None:
            return stored.counts_of(graphs) > 0
        return np.isin(graphs, divided.existing(graphs))

    def dataset(self, stored: BatchSet, versions: Mapping[GraphRef, Source] = NO_VERSIONS) -> Dataset:
        """Return the dataset of a stored graph, beside empty windows: what is in these is in other leaves.

        versions: where graph references at other versions are matched."""
        graph = None if self.graph_of is None else self.graph_of(stored)
        beside = {**versions, **stored.beside} if isinstance(stored, Share) else versions
        windows = dict.fromkeys(self.clause.windows, EMPTY)
        if graph is not None:
            return Dataset(self.clause, graph.stored, windows, self.resolve, completion=graph, versions=beside)
        if self._datasets is None or isinstance(stored, Share):
            return Dataset(self.clause, stored, windows, self.resolve, versions=beside)
        key = id(stored), *((reference, id(source)) for reference, source in versions.items())
        found = self._datasets.get(key)  # it holds what its key has the addresses of
        if found is None:
            found = self._datasets[key] = Dataset(self.clause, stored, windows, self.resolve, versions=versions)
        return found

    @contextmanager
    def of_change(self, before: int, after: int) -> Iterator[None]:
        """Take a change in the block: parts that read the same versions share what is laid out of them. before, after:
        the SNs."""
        self.span, self._datasets = (before, after), {}
        try:
            yield
        finally:
            self._datasets = None  # the versions are to be freed

    def holds(self, stored: BatchSet, quads: Quads) -> BoolArray:
        """Mark the quads that are in a stored graph. bool[n]"""
        graph = None if self.graph_of is None else self.graph_of(stored)
        if graph is None:
            return is_held(stored, quads)
        graph.look_up(taken(quads, quads[0] != NO_MATCH))
        return is_held(graph.stored, quads)

    def run(self, node: Node, stored: BatchSet) -> BindingTable:
        """Return the solutions of a part over the stored graph. Choices are functions of the data alone (in_order)."""
        return self._executor(self.dataset(stored)).run(node)

    def run_over(
        self,
        node: Node,
        stored: BatchSet,
        *known: tuple[Node, BindingTable],
        number: Variable | None = None,
        memo: PlanMemo | None = None,
    ) -> BindingTable:
        """Return the solutions of a part of which some nodes (`leaf`) have solutions that are known already.

        number: LIMIT means the rows that are equal in it.
        memo: of a part that is evaluated more than once."""
        dataset, memo = self.dataset(stored), PlanMemo() if memo is None else memo
        return Executor(dataset, self.terms, self.limits, memo, in_order=True, explored=known, number=number).run(node)

    def run_given(
        self, node: Node, stored: BatchSet, given: BindingTable, number: Variable | None = None
    ) -> BindingTable:
        """Return the solutions of a part for each of some arguments, or for one row of bindings, as EXISTS and GRAPH
        give them to their patterns. given: these; number: the column that tells them apart; None: it is one row."""
        return self._executor(self.dataset(stored), given=given, number=number).run(node)

    def explored(self, node: Node, rows: BindingTable, stored: BatchSet, memo: PlanMemo | None = None) -> BindingTable:
        """Join rows with an explorable part: the cost grows with the rows and what they lead to, not with the graph."""
        return self._executor(self.dataset(stored), memo).explore(node, rows)

    def run_versions(
        self, node: Node, stored: BatchSet, versions: Mapping[GraphRef, Source], memo: PlanMemo
    ) -> BindingTable:
        """Return the solutions of a part, some patterns of which are matched at other versions than the stored
        graph."""
        return self._executor(self.dataset(stored, versions), memo).run(node)

    def _executor(
        self,
        dataset: Dataset,
        memo: PlanMemo | None = None,
        given: BindingTable | None = None,
        number: Variable | None = None,
    ) -> Executor:
        memo = self._memo if memo is None else memo
        name_graphs(self.clause, self.terms)
        return Executor(dataset, self.terms, self.limits, memo, in_order=True, given=given, number=number)


class Above:
    """A part of a query above nodes whose solutions are known. It is made once for the variables that these have, so
    that its plans are kept from change to change.

    make: returns the part above such nodes.
    number: LIMIT means the rows that are equal in it."""

    def __init__(self, make: Callable[..., Node], number: Variable | None = None) -> None:
        self._make, self._number, self._memo = make, number, PlanMemo()
        self._made: dict[tuple[tuple[Variable, ...], ...], tuple[Node, tuple[Node, ...]]] = {}

    def run(self, evaluation: Evaluation, stored: BatchSet, *known: BindingTable) -> BindingTable:
        """Return the solutions. known: those of the nodes below."""
        key = tuple([table.variables for table in known])
        found = self._made.get(key)
        if found is None:
            leaves = tuple(map(leaf, key))
            found = self._made[key] = self._make(*leaves), leaves
        part, leaves = found
        pairs = zip(leaves, known, strict=True)
        return evaluation.run_over(part, stored, *pairs, number=self._number, memo=self._memo)


def leaf(variables: Sequence[Variable] = ()) -> Node:
    """Return a node in the place of solutions that are known. The executor finds it by its identity, and never runs
    it."""
    return Values(tuple(variables), ())
