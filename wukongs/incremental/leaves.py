"""The leaves of a view: basic graph patterns, constants, and parts without a rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from wukongs.csparql.algebra import (
    Bgp,
    DatasetClause,
    DefaultGraph,
    Filter,
    GraphVersion,
    Node,
    PathPattern,
    PerGraph,
    TriplePattern,
    WrittenGraph,
)
from wukongs.csparql.scope import exists_patterns, is_stored, possible_variables
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import map_children, parts_of
from wukongs.incremental.lookups import Operator, Side, noted, stored_at
from wukongs.incremental.sources import (
    StoredGraphs,
    has_triple,
    matches_in,
    may_have_subject,
    subjects_in,
    written_graph,
)
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators as tables
from wukongs.query.plans.dataset import Source
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.batch_set import BatchSet

_CHANGED = "changed"
"""The version of a graph reference that has what a change has inserted, or what it has deleted."""
FEW_TRIPLES = 1 << 10
"""A pattern by itself is compared with all triples of a change up to this size."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the rows are found that a changed triple of one pattern takes part in.

    predicate: that of the pattern; None: a variable.
    graphs: where the pattern is matched.
    part: the pattern is matched among what has changed, all others in the graph.
    changed: the graph reference of the pattern there.
    alone: the pattern, if it is the whole part.
    siblings: the patterns behind it with the same subject, with their predicates: these find the rows of a new subject,
    which has no triple of theirs in the graph before."""

    predicate: Term | None
    graphs: StoredGraphs
    part: Node
    changed: GraphVersion
    alone: TriplePattern | None
    siblings: tuple[tuple[Term, WrittenGraph], ...]
    memo: PlanMemo = field(default_factory=PlanMemo)


@dataclass(slots=True)
class DeltaJoin:
    """A basic graph pattern over stored graphs, with filters. Keeps nothing.

    A row says which triple each pattern has matched. So a change deletes the rows of the graph before it that have a
    deleted triple, and inserts the rows of the graph after it that have an inserted one. For each pattern there is a
    plan that begins with what has changed, and explores the rest in that graph."""

    node: Node
    evaluation: Evaluation
    kind: str = "delta join"
    _plans: list[_Plan] = field(default_factory=list)
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    _names: tuple[Variable, ...] = field(init=False)
    keeps = False
    kept_bytes = 0

    def __post_init__(self) -> None:
        self._names = names_of(self.node)

    @staticmethod
    def of(node: Node, evaluation: Evaluation) -> DeltaJoin | None:
        """Return the operator of patterns with the filters right above them; None if it is another part."""
        inner = node
        while isinstance(inner, Filter):
            if exists_patterns(inner.condition):
                return None
            inner = inner.pattern
        return DeltaJoin.around(inner, node, evaluation) if isinstance(inner, Bgp) and inner.patterns else None

    @staticmethod
    def around(bgp: Bgp, node: Node, evaluation: Evaluation) -> DeltaJoin:
        """Return the operator of patterns that stand in a part whose rows are made of theirs, one by one."""
        plans = [_plan(node, bgp, number, evaluation.clause) for number in range(len(bgp.patterns))]
        is_named = any(isinstance(plan.graphs.graph, Variable) for plan in plans)
        is_merged = any(plan.graphs.is_merged for plan in plans)
        words = [word for word, is_said in (("named", is_named), ("merged", is_merged)) if is_said]
        kind = f"delta join ({' and '.join(words)} graphs)" if words else "delta join"
        return DeltaJoin(node, evaluation, kind, plans)

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.evaluation.run(self.node, stored))

    @noted
    def change(self, change: Change) -> ZSet:
        names, found = self._names, {1: list[BindingTable](), -1: list[BindingTable]()}
        for sign, rows in self.found(change):
            found[sign].append(tables.project(rows, names))
        signed = [ZSet.of(self._each_once(rows), sign) for sign, rows in found.items() if rows]
        return signed[0].plus(*signed[1:]) if signed else ZSet.empty(names)

    def _each_once(self, found: list[BindingTable]) -> BindingTable:
        """Put tables together: a row with several changed triples is in several of them."""
        rows_max = self.evaluation.limits.rows_max
        return found[0] if len(found) == 1 else tables.distinct(reduce(partial(tables.union, rows_max=rows_max), found))

    def found(self, change: Change) -> Iterator[tuple[int, BindingTable]]:
        """Yield the rows that a change inserts (1) and deletes (-1), plan by plan; a row may occur in several tables,
        and has any order of columns."""
        evaluation, resolve = self.evaluation, self.evaluation.resolve
        for plan in self._plans:
            predicate = None if plan.predicate is None else resolve(plan.predicate)
            if not plan.graphs.is_touched(change, predicate, resolve):
                continue
            for sign, changed in zip((1, -1), plan.graphs.changed(change, evaluation), strict=True):
                if not has_triple(changed, predicate, change):
                    continue
                if sign > 0 and predicate is not None and self._is_of_new(plan, changed, predicate, change):
                    continue
                stored = change.after if sign > 0 else change.before
                rows = None
                if plan.alone is not None and change.count <= FEW_TRIPLES:
                    rows = matches_in(plan.alone, changed, change, resolve)
                if rows is None:
                    rows = evaluation.run_versions(plan.part, stored, {plan.changed: changed}, plan.memo)
                if rows.length:
                    yield sign, rows

    def _is_of_new(self, plan: _Plan, inserted: Source, predicate: int, change: Change) -> bool:
        """Return whether all rows of a plan are found by the plan of a sibling, too: no subject of the inserted triples
        had a triple of that."""
        if not plan.siblings or self.evaluation.is_divided(change.before):
            return False
        return not all(self._may_have_had(inserted, predicate, term, graph, change) for term, graph in plan.siblings)

    def _may_have_had(self, inserted: Source, predicate: int, term: Term, graph: WrittenGraph, change: Change) -> bool:
        """Return whether a subject of the inserted triples with a predicate may have had a triple of another one."""

        def find() -> bool:
            key = "subjects", id(inserted), predicate
            subjects = change.known(key, lambda: subjects_in(inserted, predicate))
            return may_have_subject(self.evaluation.dataset(change.before).source(graph), other, subjects)

        other, clause = self.evaluation.resolve(term), self.evaluation.clause
        if not (isinstance(graph, DefaultGraph) and clause.is_empty and clause.only is None):
            return find()
        return change.known(("had", id(inserted), predicate, other), find)


def _plan(node: Node, bgp: Bgp, number: int, clause: DatasetClause) -> _Plan:
    """Lay out the part with one pattern over what has changed."""
    pattern = bgp.patterns[number]
    changed = GraphVersion(written_graph(pattern), _CHANGED)
    patterns = (*bgp.patterns[:number], replace(pattern, graph=changed), *bgp.patterns[number + 1 :])
    siblings = tuple(
        (one.predicate, written_graph(one))
        for one in bgp.patterns[number + 1 :]
        if isinstance(one.predicate, Term) and one.subject == pattern.subject
    )
    predicate = pattern.predicate if isinstance(pattern.predicate, Term) else None
    graphs = StoredGraphs.of(written_graph(pattern), clause)
    alone = pattern if node is bgp and len(patterns) == 1 else None
    return _Plan(predicate, graphs, _replaced(node, bgp, Bgp(patterns)), changed, alone, siblings)


def _replaced(node: Node, old: Node, new: Node) -> Node:
    """Return a part with another one in the place of one below it."""
    return new if node is old else map_children(node, lambda child: _replaced(child, old, new))


@dataclass(slots=True)
class Constant:
    """VALUES, or the one empty solution: it never changes."""

    node: Node
    evaluation: Evaluation
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    kind = "constant"
    keeps = False
    kept_bytes = 0

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.evaluation.run(self.node, stored))

    @noted
    def change(self, change: Change) -> ZSet:
        return ZSet.empty(names_of(self.node))

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        return rows.joined(self.begin(stored_at(change, side)))

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        return self.begin(stored_at(change, side)).compatible_with(keys)


def names_of(node: Node) -> tuple[Variable, ...]:
    """Return the variables of a part's solutions, in a fixed order."""
    return tuple(sorted(possible_variables(node), key=str))


def is_of_stored(part: object, clause: DatasetClause) -> bool:
    """Return whether a part of a query reads stored graphs alone, and no window."""
    reads = TriplePattern | PathPattern | PerGraph
    return all(is_stored(one.graph, clause) for one in parts_of(part) if isinstance(one, reads))
