"""Operators over the named graphs themselves: which of them there are, and parts that are evaluated graph by graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.algebra import GraphNames, PathPattern, PerGraph, TriplePattern
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import parts_of
from wukongs.incremental.arranged import Arranged
from wukongs.incremental.interests import Interests
from wukongs.incremental.leaves import names_of
from wukongs.incremental.lookups import Operator, Side, noted, stored_at
from wukongs.incremental.sources import StoredGraphs, member_of
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, UNBOUND, Int64Array


def _table(graph: Variable, names: Int64Array) -> BindingTable:
    return BindingTable((graph,), (names,), len(names))


@dataclass(slots=True)
class ExistingGraphs:
    """`GRAPH g {}` where the query names no dataset: a graph exists as long as it has a triple. Keeps nothing."""

    node: GraphNames
    evaluation: Evaluation
    graphs: StoredGraphs
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    kind = "graph names"
    keeps = False
    kept_bytes = 0

    @staticmethod
    def of(node: GraphNames, evaluation: Evaluation) -> ExistingGraphs | None:
        """Return the operator; None if the names never change: those that a clause declares, and the default graph,
        which is no named one."""
        clause, graph = evaluation.clause, node.graph
        is_default = isinstance(graph, Term) and graph.name == DEFAULT_GRAPH_IRI
        if not clause.is_empty or is_default:
            return None
        return ExistingGraphs(node, evaluation, StoredGraphs.of(graph, clause))

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.evaluation.run(self.node, stored))

    @noted
    def change(self, change: Change) -> ZSet:
        resolve = self.evaluation.resolve
        touched = self.graphs.touched(change, resolve)
        if not len(touched):
            return ZSet.empty(names_of(self.node))
        if isinstance(self.node.graph, Variable):
            was, now = (self.evaluation.existing(touched, read) for read in (change.before, change.after))
            inserted, deleted = (ZSet.of(_table(self.node.graph, touched[rows])) for rows in (now & ~was, was & ~now))
            return inserted.plus(deleted.negated())
        if self.evaluation.is_divided(change.before, change.after):
            return self.begin(change.after).plus(self.begin(change.before).negated()).consolidated()
        member = member_of(self.node.graph.name, resolve)
        return ZSet.of(BindingTable.unit(), member.exists(change.after) - member.exists(change.before)).consolidated()

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        return rows.joined(self._near(rows.table, change, side))

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        return self._near(keys, change, side).compatible_with(keys)

    def _near(self, rows: BindingTable, change: Change, side: Side) -> ZSet:
        """Return the names that some row of a table may be joined with."""
        graph, stored = self.node.graph, stored_at(change, side)
        if not isinstance(graph, Variable) or graph not in rows.variables or (rows.column(graph) == UNBOUND).any():
            return self.begin(stored)
        asked = np.unique(rows.column(graph))
        asked = asked[self.graphs.reads(asked, self.evaluation.resolve)]
        return ZSet.of(_table(graph, asked[self.evaluation.existing(asked, stored)]))


@dataclass(slots=True)
class EachGraph:
    """`GRAPH ?g { ... }` with a pattern that counts or cuts the rows of a graph: evaluated for the graphs that a change
    touches, before it and after it.

    elsewhere: tells whether a change concerns the parts of the pattern that read other graphs: then it is evaluated for
    all graphs, and compared with the content, which is kept for that; None: there are no such parts."""

    node: PerGraph
    evaluation: Evaluation
    graphs: StoredGraphs
    elsewhere: Interests | None = None
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    _content: Arranged = field(init=False)

    def __post_init__(self) -> None:
        self._content = Arranged((self.node.graph,))

    @staticmethod
    def of(node: PerGraph, evaluation: Evaluation) -> EachGraph:
        reads = TriplePattern | PathPattern | GraphNames | PerGraph
        others = tuple(one for one in parts_of(node.pattern) if isinstance(one, reads) and one.graph != node.graph)
        elsewhere = Interests(others, evaluation) if others else None
        return EachGraph(node, evaluation, StoredGraphs.of(node.graph, evaluation.clause), elsewhere)

    @property
    def kind(self) -> str:
        return "per graph" if self.elsewhere is None else "per graph (and others)"

    @property
    def keeps(self) -> bool:
        return self.elsewhere is not None

    @property
    def kept_bytes(self) -> int:
        return self._content.size_bytes

    def begin(self, stored: BatchSet) -> ZSet:
        found = ZSet.of(self.evaluation.run(self.node, stored))
        if self.keeps:
            self._content = Arranged((self.node.graph,)).plus(found.project(names_of(self.node)).consolidated())
        return found

    @noted
    def change(self, change: Change) -> ZSet:
        if self.elsewhere is None:
            names = self._touched(change)
            before, after = (self._rows(names, read) for read in (change.before, change.after))
            return after.plus(before.negated()).consolidated()
        if self.elsewhere(change):
            before, after = self._content.rows(), ZSet.of(self.evaluation.run(self.node, change.after))
        else:
            names = self._touched(change)
            before = self._content.with_keys(_table(self.node.graph, names))
            after = self._rows(names, change.after)
        found = after.project(names_of(self.node)).plus(before.negated()).consolidated()
        self._content = self._content.plus(found)
        return found

    def _touched(self, change: Change) -> Int64Array:
        """Return the names of the graphs whose rows may have changed."""
        evaluation, names = self.evaluation, self.graphs.names
        touched = self.graphs.touched(change, evaluation.resolve)
        if evaluation.clause.is_empty or names is None:
            return touched
        declared = (name for name in names if np.isin(member_of(name, evaluation.resolve).graphs, touched).any())
        return evaluation.terms.ids([iri(name).text for name in declared])

    def _rows(self, names: Int64Array, stored: BatchSet) -> ZSet:
        """Return the rows of some graphs. A graph that no clause declares has rows only if it exists."""
        found = ZSet.empty(names_of(self.node))
        if self.evaluation.clause.is_empty:
            names = names[self.evaluation.existing(names, stored)]
        for at in range(len(names)):
            given = _table(self.node.graph, names[at : at + 1])
            found = found.plus(ZSet.of(self.evaluation.run_for(self.node.pattern, stored, given)))
        return found.project(names_of(self.node))
