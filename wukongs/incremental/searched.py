"""Paths whose walks are not kept: searched again from the nodes whose walks a change concerns.

Walks from a node stay the same unless one of them has an edge that was inserted or deleted. The part of such a walk
before its first changed edge is in the graph before the change and after it. So a search from the changed edges back,
in the graph before, finds all nodes that are concerned; the path is evaluated from these at both ends of the change.
From a constant end it is evaluated if that leads to a changed edge, and otherwise not. That needs nothing but the
graph: it holds for lengths, for paths over any graph, for circles and for very long paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from wukongs.csparql.algebra import GraphVersion, PathPattern
from wukongs.csparql.automaton import Link, automaton_of
from wukongs.csparql.paths import Alternative, Inverse, NegatedSet, OneOrMore, Path, is_nullable
from wukongs.csparql.terms import Term, Variable
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import Operator, noted
from wukongs.incremental.sources import StoredGraphs, is_named
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators as tables
from wukongs.query.paths.path_machine import excluded_ids, reversed_links
from wukongs.query.plans.dataset import Source
from wukongs.query.plans.plan_layout import ALL_NAMED
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import Int64Array
from wukongs.store.tombstone_kernels import visible_pairs

_ORIGIN, _END, _GRAPH = Variable(".origin"), Variable(".end"), Variable(".graph")


@dataclass(slots=True)
class Searched:
    """The solutions of a path. Keeps nothing.

    graphs: in which it is matched.
    way: 0: walks begin at its subject; 1: at its object, which is a constant.
    links: of which its walks are made."""

    node: PathPattern
    evaluation: Evaluation
    graphs: StoredGraphs
    way: int
    links: tuple[Link, ...]
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    keeps = False
    kept_bytes = 0

    @staticmethod
    def of(node: PathPattern, evaluation: Evaluation) -> Searched:
        assert not isinstance(node.graph, GraphVersion), node
        way = int(isinstance(node.subject, Variable) and isinstance(node.object, Term))
        links = automaton_of(node.path).links()
        graphs = StoredGraphs.of(node.graph, evaluation.clause)
        return Searched(node, evaluation, graphs, way, reversed_links(links) if way else links)

    @property
    def kind(self) -> str:
        return "search (from a constant)" if isinstance(self.origin, Term) else "search"

    @property
    def origin(self) -> Term | Variable:
        """The end at which walks begin."""
        return self.node.object if self.way else self.node.subject

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(tables.project(self.evaluation.run(self.node, stored), names_of(self.node)))

    @noted
    def change(self, change: Change) -> ZSet:
        origins = self._concerned(change)
        if not origins.length:
            return ZSet.empty(names_of(self.node))
        before, after = (self._from(origins, read) for read in (change.before, change.after))
        return after.plus(before.negated()).consolidated()

    def _from(self, origins: BindingTable, stored: BatchSet) -> ZSet:
        """Return the solutions from some nodes."""
        return ZSet.of(tables.project(self.evaluation.explored(self.node, origins, stored), names_of(self.node)))

    def _concerned(self, change: Change) -> BindingTable:
        """Return the nodes, with their graphs if the path is over any graph, from which solutions may have changed. A
        constant is left out: there is a row for each graph, or one, if it is concerned."""
        node, evaluation, origin = self.node, self.evaluation, self.origin
        edges, ends = self._changed(change)
        found = edges
        if edges.length:
            graph = _GRAPH if isinstance(node.graph, Variable) else node.graph
            begin = origin if isinstance(origin, Term) else _ORIGIN
            back = PathPattern(begin, OneOrMore(_any_of(self.links)), _END, graph)
            asked = BindingTable((_END, *edges.variables[1:]), edges.columns, edges.length)
            led = evaluation.explored(back, asked, change.before)
            if isinstance(origin, Term):
                led = tables.with_column(led, _ORIGIN, np.full(led.length, evaluation.resolve(origin), np.int64))
            found = tables.union(found, tables.project(led, edges.variables))
        found = tables.union(found, ends)
        columns = dict(zip(found.variables, found.columns, strict=True))
        kept = np.ones(found.length, np.bool_)
        bound: dict[Variable, Int64Array] = {}
        if isinstance(origin, Term):
            kept &= columns[_ORIGIN] == evaluation.resolve(origin)
        else:
            bound[origin] = columns[_ORIGIN]
        if isinstance(node.graph, Variable):
            kept &= bound.setdefault(node.graph, columns[_GRAPH]) == columns[_GRAPH]
        table = BindingTable(tuple(bound), tuple(bound.values()), found.length)
        return tables.distinct(table.take(np.flatnonzero(kept)))

    def _changed(self, change: Change) -> tuple[BindingTable, BindingTable]:
        """Return the nodes at which changed edges begin, and all nodes of changed triples if the path may have no
        length; each with its graph, if the path is over any graph. A constant is led to itself in each graph that
        there is."""
        evaluation, is_open = self.evaluation, isinstance(self.node.graph, Variable)
        dataset, nullable = evaluation.dataset(change.after), is_nullable(self.node.path)
        excluded = [excluded_ids(link, dataset) for link in self.links]
        edges, ends = list[tuple[Int64Array, int]](), list[tuple[Int64Array, int]]()
        for source in self.graphs.changed(change, evaluation):
            for name, predicate, pairs in _pairs_of(source, dataset.default_graph):
                for link, without in zip(self.links, excluded, strict=True):
                    named = None if link.predicate is None else evaluation.resolve(link.predicate)
                    if predicate == named if named is not None else predicate not in without:
                        edges.append((pairs[0 if link.direction == "out" else 1], name))
                if nullable and is_open and isinstance(self.origin, Term):
                    ends.append((np.array([evaluation.resolve(self.origin)], np.int64), name))
                elif nullable:
                    ends += [(nodes, name) for nodes in pairs]
        return _table(edges, is_open=is_open), _table(ends, is_open=is_open)


def _table(found: list[tuple[Int64Array, int]], *, is_open: bool) -> BindingTable:
    """Return distinct nodes, with their graphs if these are asked for."""
    nodes = np.concatenate([np.empty(0, np.int64), *(one for one, _ in found)])
    names = np.repeat(np.array([name for _, name in found], np.int64), [len(one) for one, _ in found])
    columns = (nodes, names) if is_open else (nodes,)
    return tables.distinct(BindingTable((_ORIGIN, _GRAPH)[: len(columns)], columns, len(nodes)))


def _pairs_of(source: Source, default_graph: int) -> Iterator[tuple[int, int, tuple[Int64Array, Int64Array]]]:
    """Iterate over (graph, predicate, (subjects, objects)) of the triples of a source."""
    for part in source.parts:
        for batch in part.batches.batches:
            is_any = part.graph == ALL_NAMED
            chosen = is_named(batch.graphs, default_graph) if is_any else batch.graphs == part.graph
            for row in np.flatnonzero(chosen).tolist():
                name = int(batch.graphs[row]) if is_any else part.name
                yield name, int(batch.predicates[row]), visible_pairs(batch.descriptor, row)


def _any_of(links: tuple[Link, ...]) -> Path:
    """Return the path of one link."""
    return reduce(Alternative, map(_path_of, links))


def _path_of(link: Link) -> Path:
    if link.predicate is None:
        excluded = link.excluded or ()
        return NegatedSet(excluded, None) if link.direction == "out" else NegatedSet(None, excluded)
    return link.predicate if link.direction == "out" else Inverse(link.predicate)
