"""Sources: the stored graphs in which the patterns of a view are matched, and what a change inserts and deletes there.

A default graph of several graphs is a set: a triple that two of them have is there once. So its change is that of the
union, and not the sum of its graphs' changes (Change.united)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from wukongs.csparql.algebra import (
    DatasetClause,
    DefaultGraph,
    GraphVersion,
    PathPattern,
    TriplePattern,
    WrittenGraph,
)
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.incremental.versions import Change, Evaluation, Member, pairs_of
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import current
from wukongs.query.operators import operators
from wukongs.query.plans.dataset import Part, Resolve, Source, is_seen
from wukongs.query.plans.plan_layout import ALL_NAMED, FROM_DIRECTORY
from wukongs.store.batch import Batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, NO_MATCH, WINDOW_GRAPH, BoolArray, Int64Array
from wukongs.store.held_kernels import knows_subject
from wukongs.store.hidden_graphs import ARGUMENTS_IRI, View, view_of
from wukongs.store.quads import Quads, joined


@dataclass(frozen=True, slots=True)
class StoredGraphs:
    """The stored graphs of one graph reference, as Dataset.source finds them.

    graph: the reference.
    names: the graphs and views of graphs; None: every named graph that there is."""

    graph: WrittenGraph
    names: tuple[str, ...] | None

    @staticmethod
    def of(graph: WrittenGraph, clause: DatasetClause) -> StoredGraphs:
        is_given = not clause.is_empty
        if isinstance(graph, Variable):
            if is_given or clause.only is None:
                return StoredGraphs(graph, tuple(dict.fromkeys(clause.named_graphs)) if is_given else None)
            seen = (name for name in clause.only if name != DEFAULT_GRAPH_IRI and view_of(name) is None)
            return StoredGraphs(graph, tuple(seen))
        if is_given and isinstance(graph, DefaultGraph):
            return StoredGraphs(graph, tuple(dict.fromkeys(clause.default_graphs)))
        name = graph.name if isinstance(graph, Term) else DEFAULT_GRAPH_IRI
        is_read = name in clause.named_graphs if is_given else is_seen(name, clause.only)
        is_read = is_read or bool(clause.windows and name in clause.default_graphs)  # as Dataset._declared has it
        if name == ARGUMENTS_IRI:  # as Dataset.source has it: no clause names it, and none leaves it out
            is_read = True
        return StoredGraphs(graph, (name,) if is_read else ())

    @property
    def is_merged(self) -> bool:
        """Whether they are read as one graph, which is the union of several."""
        return not isinstance(self.graph, Variable) and self.names is not None and len(self.names) > 1

    def reads(self, graphs: Int64Array, resolve: Resolve) -> BoolArray:
        """Mark those ids of graphs whose triples are read, of hidden graphs too. bool[n]"""
        if self.names is None:
            return is_named(graphs, resolve(iri(DEFAULT_GRAPH_IRI)))
        read = [graph for name in self.names for graph in member_of(name, resolve).graphs]
        return graphs == read[0] if len(read) == 1 else np.isin(graphs, read)

    def touched(self, change: Change, resolve: Resolve) -> Int64Array:
        """Return the ids of the graphs read in which a triple was inserted or deleted, sorted, each once."""
        graphs = np.unique(np.concatenate([np.empty(0, np.int64), *(batch.graphs for batch in change.batches)]))
        return graphs[self.reads(graphs, resolve)]

    def is_touched(self, change: Change, predicate: int | None, resolve: Resolve) -> bool:
        """Tell whether a triple with a predicate (None: any) was inserted or deleted in them."""
        if predicate is None or self.names is None:
            return any(_marked(batch, predicate, self.reads(batch.graphs, resolve)).any() for batch in change.batches)
        pairs = change.pairs
        return any((graph, predicate) in pairs for name in self.names for graph in member_of(name, resolve).graphs)

    def changed(self, change: Change, evaluation: Evaluation) -> tuple[Source, Source]:
        """Return where patterns are matched among what a change has inserted, and among what it has deleted."""
        return change.known(self, lambda: self._changed(change, evaluation))

    def _changed(self, change: Change, evaluation: Evaluation) -> tuple[Source, Source]:
        if self.names is None:
            pairs = [_parts(change.inserted, change.deleted, ALL_NAMED, FROM_DIRECTORY)]
        else:
            groups = [(name,) for name in self.names] if isinstance(self.graph, Variable) else [self.names]
            pairs = [self._changed_in(group, change, evaluation) for group in groups if group]
            pairs.sort(key=lambda pair: pair[0].name)  # in the order of the spans which a step unites
        inserted, deleted = ([pair[at] for pair in pairs] for at in (0, 1))
        return _source(inserted), _source(deleted)

    def _changed_in(self, group: tuple[str, ...], change: Change, evaluation: Evaluation) -> tuple[Part, Part]:
        """Return what was inserted into the union of some graphs, and what was deleted from it."""
        resolve = evaluation.resolve
        members, name = [member_of(one, resolve) for one in group], resolve(iri(group[0]))
        if len(members) == 1 and members[0].without is None:
            return _parts(change.inserted, change.deleted, members[0].graph, name)
        return _parts(*change.united(tuple(members), evaluation.holds), WINDOW_GRAPH, name)


def _parts(inserted: BatchSet, deleted: BatchSet, graph: int, name: int) -> tuple[Part, Part]:
    return Part(inserted, graph, name), Part(deleted, graph, name)


def _source(parts: list[Part]) -> Source:
    return Source(tuple(parts), len(parts) > 1, sum(len(part.batches) for part in parts))


def member_of(name: str, resolve: Resolve) -> Member:
    """Return the ids by which a graph is read, or a view of one."""
    view, term = _found_under(name)
    graph = resolve(term)
    if view is None or graph == NO_MATCH:
        return Member(graph)
    return Member(graph, ~graph) if view.is_explicit else Member(~graph)


@lru_cache(maxsize=1 << 12)
def _found_under(name: str) -> tuple[View | None, Term]:
    """Return the view that a name stands for, if it is one, and the graph in which its triples are."""
    view = view_of(name)
    return view, iri(name if view is None else view.graph)


def written_graph(pattern: TriplePattern | PathPattern) -> WrittenGraph:
    """Return the graph reference of a pattern of a query."""
    assert not isinstance(pattern.graph, GraphVersion), pattern
    return pattern.graph


def has_triple(source: Source, predicate: int | None, change: Change) -> bool:
    """Tell whether some part of a source of a change may have a triple with a predicate (None: any)."""

    def found(part: Part) -> bool:
        batches = part.batches.batches
        pairs = change.known(("pairs", id(part.batches)), lambda: frozenset(pairs_of(batches)))
        if predicate is not None and part.graph != ALL_NAMED:
            return (part.graph, predicate) in pairs
        return any(part.graph in (graph, ALL_NAMED) and predicate in (one, None) for graph, one in pairs)

    return any(map(found, source.parts))


def matches_in(pattern: TriplePattern, source: Source, change: Change, resolve: Resolve) -> BindingTable | None:
    """Return the solutions of a pattern in a source of a change, by comparing it with each triple; None for a source of
    any named graph."""
    found: BindingTable | None = None
    for part in source.parts:
        if part.graph == ALL_NAMED:
            return None
        quads = change.known(("quads", id(part.batches)), partial(_quads_of, part.batches))
        rows, columns = quads[0] == part.graph, dict[Variable, Int64Array]()
        if isinstance(pattern.graph, Variable):
            columns[pattern.graph] = np.full(len(rows), part.name, np.int64)
        for end, column in zip((pattern.subject, pattern.predicate, pattern.object), quads[1:], strict=True):
            if isinstance(end, Term):
                rows = rows & (column == resolve(end))
            elif (other := columns.setdefault(end, column)) is not column:
                rows = rows & (column == other)
        places = np.flatnonzero(rows)
        table = BindingTable(tuple(columns), tuple(column[places] for column in columns.values()), len(places))
        found = table if found is None else operators.union(found, table, current().rows_max)
    return found


def _quads_of(stored: BatchSet) -> Quads:
    return joined([batch.triples() for batch in stored.batches])


def subjects_in(source: Source, predicate: int) -> Int64Array:
    """Return the subjects of the triples of a source with a predicate, as often as they occur; of a source of any named
    graph those in other graphs, too. int64[n]"""
    found = [np.empty(0, np.int64)]
    for part in source.parts:
        if part.graph == ALL_NAMED:
            _, subjects, predicates, _ = _quads_of(part.batches)
            found.append(subjects[predicates == predicate])
        else:
            found += [subjects for subjects, _, _ in part.batches.pairs(part.graph, predicate)]
    return np.concatenate(found)


def may_have_subject(source: Source, predicate: int, subjects: Int64Array) -> bool:
    """Return whether some part of a source may have a triple of one of some subjects with a predicate: it has one, or
    has had one."""
    return any(
        part.graph == ALL_NAMED or knows_subject(part.batches.descriptors, part.graph, predicate, subjects)
        for part in source.parts
    )


def is_named(graphs: Int64Array, default_graph: int) -> BoolArray:
    """Mark the ids of named graphs: neither that of the default graph nor those of hidden graphs. bool[n]"""
    return (graphs > WINDOW_GRAPH) & (graphs != default_graph)  # type: ignore[no-any-return]


def _marked(batch: Batch, predicate: int | None, rows: BoolArray) -> BoolArray:
    """Return those of some directory rows of a batch that have a predicate (None: any)."""
    return rows if predicate is None else rows & (batch.predicates == predicate)
