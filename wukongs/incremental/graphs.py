"""Operators over the named graphs themselves: which of them there are, and parts that are evaluated graph by graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.algebra import GraphNames, Node, PathPattern, PerGraph, TriplePattern
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import parts_of
from wukongs.incremental.arranged import Arranged
from wukongs.incremental.interests import Interests
from wukongs.incremental.leaves import DeltaJoin, names_of
from wukongs.incremental.lookups import Operator, Side, noted, stored_at
from wukongs.incremental.sources import StoredGraphs, member_of
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.query.operators import operators as tables
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
    touches, before it and after it. In a view with arguments, for each of these; where they name the graph, for those
    of the touched graphs; and for all graphs of an argument that was bound or unbound.

    node: of whose solutions these are.
    each: the part that is evaluated graph by graph: node itself, or what is joined with the arguments in it.
    elsewhere: tells whether a change concerns the parts of the pattern that read other graphs: then it is evaluated for
    all graphs, and compared with the content, which is kept for that; None: there are no such parts.
    children: nothing, or the operator of the arguments."""

    node: Node
    each: PerGraph
    evaluation: Evaluation
    graphs: StoredGraphs
    elsewhere: Interests | None = None
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    _content: Arranged = field(init=False)

    def __post_init__(self) -> None:
        self._content = Arranged((self.each.graph,))

    @staticmethod
    def of(node: Node, each: PerGraph, evaluation: Evaluation) -> EachGraph:
        """node, each: as the fields."""
        reads = TriplePattern | PathPattern | GraphNames | PerGraph
        others = tuple(one for one in parts_of(each.pattern) if isinstance(one, reads) and one.graph != each.graph)
        elsewhere = Interests(others, evaluation) if others else None
        graphs = StoredGraphs.of(each.graph, evaluation.clause)
        lifted = None if node is each else evaluation.lifted
        bound = None if lifted is None else DeltaJoin.of(lifted.arguments, evaluation)
        return EachGraph(node, each, evaluation, graphs, elsewhere, () if bound is None else (bound,))

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
        found = self._whole(stored)
        if self.keeps:
            self._content = Arranged((self.each.graph,)).plus(found.consolidated())
        return found

    @noted
    def change(self, change: Change) -> ZSet:
        if self.elsewhere is not None and self.elsewhere(change):
            found = self._whole(change.after).plus(self._content.rows().negated())
        else:
            names = self._touched(change)
            asked = _table(self.each.graph, names)
            before = self._content.with_keys(asked) if self.keeps else self._rows(asked, change.before)
            found = self._rows(asked, change.after).plus(before.negated())
            for child in self.children:
                found = found.plus(self._of_bound(child.change(change), names, change))
        found = found.project(names_of(self.node)).consolidated()
        if self.keeps:
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

    def _whole(self, stored: BatchSet) -> ZSet:
        """Return the content."""
        evaluation, names = self.evaluation, names_of(self.node)
        if not self.children:
            return ZSet.of(evaluation.run(self.each, stored)).project(names)
        bound = self.children[0].begin(stored).table
        return ZSet.of(evaluation.run_given(self.each, stored, bound, NUMBER)).project(names)

    def _of_bound(self, arguments: ZSet, names: Int64Array, change: Change) -> ZSet:
        """Return the change that follows from arguments that were bound (+1) and unbound (-1). names: of the graphs
        whose rows are in the change already."""
        found = ZSet.empty(names_of(self.node))
        for sign, stored in ((1, change.after), (-1, change.before)):
            bound = arguments.take(np.flatnonzero(arguments.weights == sign)).table
            if bound.length:
                found = found.plus(ZSet.of(self.evaluation.run_given(self.each, stored, bound, NUMBER), sign))
        return found.take(np.flatnonzero(~np.isin(found.table.column(self.each.graph), names)))

    def _rows(self, asked: BindingTable, stored: BatchSet) -> ZSet:
        """Return the rows of some graphs. A graph that no clause declares has rows only if it exists. asked: the names
        of the graphs."""
        found, each, evaluation = ZSet.empty(names_of(self.node)), self.each, self.evaluation
        if evaluation.clause.is_empty:
            asked = asked.take(np.flatnonzero(evaluation.existing(asked.columns[0], stored)))
        given, number = self._given(asked, stored)
        for at in range(asked.length):
            one = tables.join(asked.take(np.array([at])), given, evaluation.limits.rows_max)
            if one.length:
                found = found.plus(ZSet.of(evaluation.run_given(each.pattern, stored, one, number)))
        return found.project(names_of(self.node))

    def _given(self, asked: BindingTable, stored: BatchSet) -> tuple[BindingTable, Variable | None]:
        """Return the arguments for which some graphs are evaluated, and the variable that tells them apart."""
        lifted = self.evaluation.lifted
        if not self.children or lifted is None:
            return BindingTable.unit(), None
        if self.each.graph in lifted.hidden:
            return self.evaluation.explored(lifted.arguments, asked, stored), NUMBER
        return self.children[0].begin(stored).table if asked.length else BindingTable.empty(), NUMBER
