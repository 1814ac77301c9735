"""The dataset of one execution: the triples of a query's default graph and of each named graph.

The clause is exact. The default graph is the merge of the graphs and windows of FROM and FROM STREAM, nothing else.
FROM NAMED and FROM NAMED STREAM declare graphs and windows that only GRAPH reaches. Without any clause there is the
stored graph as it is. Only in a query with a window, GRAPH <iri> may also name a graph of FROM or FROM STREAM (decision
0003).

A clause with `only` reads a dataset of these graphs alone, as if there were no others (`restricted`): this is the one
place where graphs are hidden from a token. GRAPH ?g ranges over those of them that have triples, one part each.

A view of a stored graph (store/hidden_graphs.py) has a name as any graph, and is meant by that only. One without what
rules have inferred is read through a set of batches of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from wukongs.csparql.algebra import DatasetClause, DefaultGraph, GraphRef, GraphVersion, Query, StreamWindow
from wukongs.csparql.automaton import Automaton, Link
from wukongs.csparql.explain import Moved
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import parts_of
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.limits import Limits
from wukongs.query.plans.lowered_plan import LoweredPlan, SourceShape
from wukongs.query.plans.plan_layout import ALL_NAMED, FROM_DIRECTORY, PART_WIDTH
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, NO_MATCH, WINDOW_GRAPH, BoolArray, Int64Array
from wukongs.store.hidden_graphs import ARGUMENTS_GRAPH, ARGUMENTS_IRI, view_of

Resolve = Callable[[Term], int]
"""canonical term -> id, NO_MATCH where no data can have it"""
_DEFAULT_NAME = iri(DEFAULT_GRAPH_IRI)


def is_seen(name: str, only: Collection[str] | None) -> bool:
    """Tell whether a graph is among those that may be read (None: all are). A view is seen with its graph."""
    if only is None or name in only:
        return True
    view = view_of(name)
    return view is not None and view.graph in only


def restricted(clause: DatasetClause, only: tuple[str, ...] | None) -> DatasetClause:
    """Return a clause that reads nothing but some graphs (None: any): it loses all other names. A clause that has lost
    all of them reads nothing; one that has named none reads these graphs, as far as they are there."""
    if only is None:
        return clause
    default, named = (
        tuple(name for name in names if is_seen(name, only)) for names in (clause.default_graphs, clause.named_graphs)
    )
    is_lost = not (clause.is_empty or default or named or clause.windows)
    return replace(clause, default_graphs=default, named_graphs=named, only=() if is_lost else only)


def name_graphs(clause: DatasetClause, terms: TermSpace) -> None:
    """Make the graphs that a clause names known to the terms of an execution: GRAPH ?g reports them, and the data need
    not have their names. May ask other nodes."""
    if clause.named_graphs:
        terms.ids([iri(name).text for name in clause.named_graphs])


def reads_explicit(query: Query) -> bool:
    """Tell whether a query names a view of a graph without what rules have inferred. Such a view has batches of its
    own, so compiled plans, which know the stored graph and windows only, are not for the query."""
    terms = (part.text[1:-1] for part in parts_of(query.pattern) if isinstance(part, Term) and part.is_iri)
    views = map(view_of, (*query.dataset.default_graphs, *query.dataset.named_graphs, *terms))
    return any(view is not None and view.is_explicit for view in views)


class Part(NamedTuple):
    """One place where a pattern is matched: a graph of some batches, and the name that GRAPH ?g reports for it."""

    batches: BatchSet
    graph: int
    name: int


class Source(NamedTuple):
    """The parts in which one graph reference is matched. united: a triple may stand in several parts, and counts once;
    size: the triples of all parts' batches, whatever their graph (an estimate if the graph is divided)."""

    parts: tuple[Part, ...]
    united: bool
    size: int

    @property
    def hiding(self) -> bool:
        """Whether tombstones hide triples of some part."""
        return any(part.batches.tombstones for part in self.parts)


class Completion(Protocol):
    """A stored graph at one snapshot, of which this node holds only a share, as one execution reads it.

    A dataset without a completion holds its stored graph whole: that of an embedded engine does, and windows always do.
    With one, the executor says which stored triples it is about to read. The completion then puts the other nodes'
    share of them beside the node's own batches. Kernels need every matching triple to be present; extra triples do no
    harm (decision 0018).

    Every method may ask other nodes. Raises NodeUnavailable and CompactedError, beside the errors of the ordinary
    work."""

    @property
    def own(self) -> BatchSet:
        """The batches of this node: a sample of the graph, for the planner."""

    @property
    def share(self) -> float:
        """The part of the triples that this node holds, about: above 0, at most 1."""

    @property
    def answered(self) -> float:
        """The part of the ids for which this node answers: above 0, at most 1."""

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
        """Do the same as plan_runner.run, over the whole graph."""

    @property
    def moved(self) -> Sequence[Moved]:
        """The traffic between nodes of each step of the last run."""

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

    def fetch_all(self, predicate: int | None, graphs: tuple[int, ...], dataset: Dataset | None = None) -> None:
        """Have all triples of a predicate (None: of any) in some graphs here, and put them into a dataset."""


@dataclass(slots=True)
class Dataset:
    """The sources of one execution, with all batches in one table of descriptors.

    stored: the batches of the stored graph at the snapshot; windows: one per StreamWindow of the clause; with_graph:
    the stored graph that is the default graph if there is no clause (WITH of an update); completion: reads the other
    nodes' share of the stored graph, None if it is all here; graphs: of the windows that stand for a part of the stored
    graph, the graph there; versions: where graph references are matched that are at other versions, or in no stored
    graph of this or another node.
    """

    clause: DatasetClause
    stored: BatchSet
    windows: Mapping[StreamWindow, BatchSet]
    resolve: Resolve
    with_graph: Term | None = None
    completion: Completion | None = None
    graphs: Mapping[StreamWindow, int] = field(default_factory=dict)
    versions: Mapping[GraphRef, Source] = field(default_factory=dict)
    default_graph: int = field(init=False)
    descriptors: Int64Array = field(init=False)
    _first: dict[int, int] = field(init=False)
    _sources: dict[GraphRef, Source] = field(init=False, default_factory=dict)
    _shapes: dict[GraphRef, SourceShape] = field(init=False, default_factory=dict)
    _named_graphs: Int64Array | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.default_graph = self.resolve(_DEFAULT_NAME)
        self._lay_out()

    @property
    def has_batches(self) -> bool:
        """Whether there are triples, as far as it is known."""
        return len(self.descriptors) > 0

    def put_stored(self, stored: BatchSet) -> None:
        """Put other batches, with at least the same triples, in the place of the stored graph's."""
        self.stored = stored
        self._sources.clear()
        self._shapes.clear()
        self._lay_out()

    def _lay_out(self) -> None:
        if not (self.windows or self.versions):
            self._first = {id(self.stored): 0}
            self.descriptors = self.stored.descriptors
            return
        others = (part.batches for source in self.versions.values() for part in source.parts)
        sets = {id(batches): batches for batches in (self.stored, *self.windows.values(), *others)}
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
            stored = self.stored
            found = self._found(graph)
            if self.stored is not stored:  # a view has fetched what it rests on
                found = self._found(graph)
            self._sources[graph] = found
        return found

    def _found(self, graph: GraphRef) -> Source:
        if graph in self.versions:
            return self.versions[graph]
        assert not isinstance(graph, GraphVersion), graph
        if isinstance(graph, DefaultGraph):
            return self._default()
        return self._any_named() if isinstance(graph, Variable) else self._named(graph)

    def shape(self, graph: GraphRef) -> SourceShape:
        """Return the shape of the source of a graph reference."""
        found = self._shapes.get(graph)
        if found is None:
            source = self.source(graph)
            parts = [
                (self._first[id(part.batches)], len(part.batches.batches), part.graph, part.name)
                for part in source.parts
            ]
            found = self._shapes[graph] = SourceShape(source.united, source.hiding, tuple(parts))
        return found

    def parts(self, graph: GraphRef) -> Int64Array:
        """Return where a graph reference is matched, batch by batch, for the kernel.

        parts : int64[n, PART_WIDTH]
        """
        rows = [
            (first + at, graph_id, name)
            for first, count, graph_id, name in self.shape(graph).parts
            for at in range(count)
        ]
        return np.array(rows, np.int64).reshape(-1, PART_WIDTH)

    def named_graphs(self) -> Int64Array:
        """Return the ids that GRAPH ?g ranges over, sorted: declared names, or every stored named graph without a
        clause."""
        if self._named_graphs is None:
            if self.clause.is_empty:
                found = self.stored.graphs if self.completion is None else self.completion.graph_names()
                found = found if self.clause.only is None else np.intersect1d(found, self._seen_graphs())
                self._named_graphs = found[found != self.default_graph]
            else:
                self._named_graphs = np.unique(
                    np.array([self.resolve(iri(name)) for name in self.declared_names()], np.int64)
                )
        return self._named_graphs

    def _seen_graphs(self) -> Int64Array:
        """Return the ids of the named graphs that a clause with `only` may read, sorted, whether they are there or
        not."""
        found = {self.resolve(iri(name)) for name in self.clause.only or ()} - {NO_MATCH, self.default_graph}
        return np.array(sorted(found), np.int64)

    def declared_names(self) -> list[str]:
        """Return the IRIs of FROM NAMED, FROM NAMED STREAM and FROM NAMED WINDOW, each once."""
        windows = (window.name for window in self.clause.windows if window.named)
        return list(dict.fromkeys([*self.clause.named_graphs, *windows]))

    def is_named(self, graph: Term) -> bool:
        """Tell whether GRAPH <iri> {} has a solution."""
        names, wanted = self.named_graphs(), self.resolve(graph)
        if self.clause.is_empty and not is_seen(graph.name, self.clause.only):
            return False
        if self.clause.is_empty and view_of(graph.name) is not None:
            part = self._stored(graph.name)
            if self.completion is not None and part.batches is self.stored and part.graph != NO_MATCH:
                self.completion.fetch_all(None, (part.graph,), self)
                part = self._stored(graph.name)
            return part.batches.has_graph(part.graph)
        at = int(np.searchsorted(names, wanted))
        return (at < len(names) and int(names[at]) == wanted) or bool(self._declared(graph))

    def sample(self, part: Part) -> tuple[BatchSet, float]:
        """Return batches that tell how large a part is, and which share of it they are."""
        if self.completion is None or part.batches is not self.stored:
            return part.batches, 1.0
        return self.completion.own, self.completion.share

    def _source(self, parts: list[Part]) -> Source:
        united = len(parts) > 1 or not all(part.batches.disjoint for part in parts)
        return Source(tuple(parts), united, sum([self._size(part) for part in parts]))

    def _size(self, part: Part) -> int:
        batches, share = self.sample(part)
        return int(batches.count / share)

    def _stored(self, name: str) -> Part:
        named, view = self.resolve(iri(name)), view_of(name)
        if view is None:
            return Part(self.stored, named, named)
        whole = self.resolve(iri(view.graph))
        if self.completion is not None and view.is_explicit and whole != NO_MATCH:
            self.completion.fetch_all(None, (whole,), self)
            self.completion.fetch_all(None, (~whole,), self)
        batches, graph = view.of(self.stored, whole)
        if id(batches) not in self._first:
            self._first[id(batches)] = len(self.descriptors)
            self.descriptors = np.concatenate([self.descriptors, batches.descriptors])
        return Part(batches, graph, named)

    def _window(self, window: StreamWindow) -> Part:
        graph = self.graphs.get(window, WINDOW_GRAPH)
        return Part(self.windows[window], graph, self.resolve(iri(window.name)))

    def window_parts(self) -> list[Part]:
        """Return all windows of the clause."""
        return [self._window(window) for window in self.windows]

    def _default(self) -> Source:
        if self.clause.is_empty:
            term = _DEFAULT_NAME if self.with_graph is None else self.with_graph
            if not is_seen(term.name, self.clause.only):
                return self._source([])
            graph = self.resolve(term)
            return self._source([Part(self.stored, graph, graph)])
        stored = [self._stored(name) for name in dict.fromkeys(self.clause.default_graphs)]
        return self._source([*stored, *(self._window(window) for window in self.clause.windows if not window.named)])

    def _any_named(self) -> Source:
        if self.clause.is_empty and self.clause.only is not None:
            return self._source([Part(self.stored, graph, graph) for graph in self._seen_graphs().tolist()])
        if self.clause.is_empty:
            return self._source([Part(self.stored, ALL_NAMED, FROM_DIRECTORY)])
        stored = [self._stored(name) for name in dict.fromkeys(self.clause.named_graphs)]
        # In order of their ids, which is that of the spans which a step unites.
        stored.sort(key=lambda part: part.name)
        return self._source([*stored, *(self._window(window) for window in self.clause.windows if window.named)])

    def _named(self, graph: Term) -> Source:
        if graph.name == ARGUMENTS_IRI:  # no clause names it, and none leaves it out
            return self._source([Part(self.stored, ARGUMENTS_GRAPH, ARGUMENTS_GRAPH)])
        if self.clause.is_empty:
            return self._source([self._stored(graph.name)] if is_seen(graph.name, self.clause.only) else [])
        return self._source(self._declared(graph))

    def _declared(self, graph: Term) -> list[Part]:
        name = graph.name
        windows = [window for window in self.clause.windows if window.name == name]
        parts = [self._window(window) for window in windows if window.named]
        if name in self.clause.named_graphs:
            parts.append(self._stored(name))
        if not parts and self.clause.windows:
            parts = [self._window(window) for window in windows]
            if name in self.clause.default_graphs:
                parts.append(self._stored(name))
        return parts
