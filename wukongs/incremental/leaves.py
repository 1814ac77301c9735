"""The leaves of a view: basic graph patterns, constants, and parts without a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    DatasetClause,
    Filter,
    GraphNames,
    GraphVersion,
    Node,
    PathPattern,
    PerGraph,
    Service,
    TripleParts,
    TriplePattern,
    WrittenGraph,
)
from wukongs.csparql.scope import exists_patterns, possible_variables
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import parts_of
from wukongs.incremental.lookups import Operator, Side, noted, stored_at
from wukongs.incremental.sources import StoredGraphs, has_triple, may_have_subject, subjects_in
from wukongs.incremental.versions import Change, Evaluation, leaf
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.query.operators import operators as tables
from wukongs.query.plans.dataset import Dataset, Source
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.batch_set import BatchSet

BEFORE, CHANGED = "before", "changed"
"""The versions of a graph reference beside the graph after a change."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How rows are found that a changed triple of one pattern takes part in.

    pattern, graphs: the pattern, and where it is matched.
    part: it is matched among what has changed; those before it over the graph after the change, those behind it over
    the graph before.
    versions: the graph references of `part` at other versions.
    siblings: the patterns of the same subject that are matched over the graph before, with their predicates: a new
    subject has no triple there."""

    pattern: TriplePattern
    graphs: StoredGraphs
    part: Node
    versions: tuple[GraphVersion, ...]
    siblings: tuple[tuple[Term, WrittenGraph], ...]
    memo: PlanMemo = field(default_factory=PlanMemo)


@dataclass(slots=True)
class DeltaJoin:
    """A basic graph pattern over stored graphs, with filters. Keeps nothing."""

    node: Node
    evaluation: Evaluation
    kind: str = "delta join"
    _plans: list[_Plan] = field(default_factory=list)
    children: tuple[Operator, ...] = ()
    touched: int = field(default=0, init=False)
    keeps = False
    kept_bytes = 0

    @staticmethod
    def of(node: Node, evaluation: Evaluation) -> DeltaJoin | None:
        """Return the operator of patterns with the filters right above them; None if it is another part."""
        inner = node
        while isinstance(inner, Filter):
            if exists_patterns(inner.condition):
                return None
            inner = inner.pattern
        if not isinstance(inner, Bgp) or not inner.patterns:
            return None
        plans = [_plan(node, inner, number, evaluation.clause) for number in range(len(inner.patterns))]
        is_named = any(isinstance(plan.graphs.graph, Variable) for plan in plans)
        is_merged = any(plan.graphs.is_merged for plan in plans)
        words = [word for word, is_said in (("named", is_named), ("merged", is_merged)) if is_said]
        kind = f"delta join ({' and '.join(words)} graphs)" if words else "delta join"
        return DeltaJoin(node, evaluation, kind, plans)

    def begin(self, stored: BatchSet) -> ZSet:
        return ZSet.of(self.evaluation.run(self.node, stored))

    @noted
    def change(self, change: Change) -> ZSet:
        if self.evaluation.is_divided(change.before, change.after):
            return self._explored(change)
        evaluation, found = self.evaluation, list[ZSet]()
        before = evaluation.dataset(change.before)
        for plan in self._plans:
            term = plan.pattern.predicate
            predicate = evaluation.resolve(term) if isinstance(term, Term) else None
            for sign, changed in zip((1, -1), plan.graphs.changed(change, evaluation), strict=True):
                if not has_triple(changed, predicate, before.default_graph):
                    continue
                if sign > 0 and predicate is not None and self._is_of_new(plan, changed, predicate, before):
                    continue
                versions = {
                    one: changed if one.version == CHANGED else before.source(one.graph) for one in plan.versions
                }
                rows = evaluation.run_versions(plan.part, change.after, versions, plan.memo)
                if rows.length:
                    found.append(ZSet.of(rows, sign))
        names = names_of(self.node)
        if not found:
            return ZSet.empty(names)
        return found[0].plus(*found[1:]).project(names).consolidated()

    def _explored(self, change: Change) -> ZSet:
        """Return the change where other nodes hold a part of the graph: the matches of what has changed are joined with
        the patterns before at `after`, and then with those behind at `before`; filters come last. The patterns are in
        an order in which each shares a variable with one before it, so that what other nodes hold is looked up."""
        evaluation, found, order = self.evaluation, list[ZSet](), self._order()
        resolve, default_graph = evaluation.resolve, evaluation.dataset(change.before).default_graph
        for place, plan in enumerate(order):
            term = plan.pattern.predicate
            predicate = resolve(term) if isinstance(term, Term) else None
            version = GraphVersion(_written(plan.pattern), CHANGED)
            alone = Bgp((replace(plan.pattern, graph=version),))
            for sign, changed in zip((1, -1), plan.graphs.changed(change, evaluation), strict=True):
                if not has_triple(changed, predicate, default_graph):
                    continue
                rows = evaluation.run_changed(alone, {version: changed}, plan.memo)
                for others, stored in ((order[:place], change.after), (order[place + 1 :], change.before)):
                    if others and rows.length:
                        rows = evaluation.explored(Bgp(tuple(one.pattern for one in others)), rows, stored)
                if rows.length:
                    found.append(ZSet.of(rows, sign))
        names = names_of(self.node)
        if not found:
            return ZSet.empty(names)
        matches = found[0].plus(*found[1:]).consolidated()
        known = leaf(matches.variables)
        part = _with_patterns(self.node, known)
        if part is not known:
            matches = ZSet.of_weighted(evaluation.run_over(part, change.after, (known, matches.weighted())))
        return matches.project(names).consolidated()

    def _order(self) -> list[_Plan]:
        """Return the patterns in an order in which each shares a variable with one before it, if one does."""
        left, order, bound = list(self._plans), list[_Plan](), set[Variable]()
        while left:
            chosen = next((plan for plan in left if bound & possible_variables(Bgp((plan.pattern,)))), left[0])
            left.remove(chosen)
            order.append(chosen)
            bound |= possible_variables(Bgp((chosen.pattern,)))
        return order

    def _is_of_new(self, plan: _Plan, inserted: Source, predicate: int, before: Dataset) -> bool:
        """Return whether a plan finds nothing, since no subject of the inserted triples had a triple of some sibling.
        The rows of new subjects are found by the plan of their last pattern alone."""
        if not plan.siblings:
            return False
        subjects = subjects_in(inserted, predicate)
        return not all(
            may_have_subject(before.source(graph), self.evaluation.resolve(term), subjects)
            for term, graph in plan.siblings
        )


def _plan(node: Node, bgp: Bgp, number: int, clause: DatasetClause) -> _Plan:
    """Lay out the part with one pattern over what has changed."""
    patterns = [
        pattern
        if at < number
        else replace(pattern, graph=GraphVersion(_written(pattern), CHANGED if at == number else BEFORE))
        for at, pattern in enumerate(bgp.patterns)
    ]
    pattern, versions = bgp.patterns[number], (one.graph for one in patterns if isinstance(one.graph, GraphVersion))
    graphs, part = StoredGraphs.of(_written(pattern), clause), _with_patterns(node, Bgp(tuple(patterns)))
    siblings = tuple(
        (one.predicate, _written(one))
        for one in bgp.patterns[number + 1 :]
        if isinstance(one, TriplePattern) and isinstance(one.predicate, Term) and one.subject == pattern.subject
    )
    return _Plan(pattern, graphs, part, tuple(dict.fromkeys(versions)), siblings)


def _with_patterns(node: Node, bgp: Node) -> Node:
    return replace(node, pattern=_with_patterns(node.pattern, bgp)) if isinstance(node, Filter) else bgp


def _written(pattern: TriplePattern | PathPattern) -> WrittenGraph:
    assert not isinstance(pattern.graph, GraphVersion), pattern
    return pattern.graph


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


@dataclass(slots=True)
class Refresh:
    """A part without a rule: evaluated anew when a triple that it may read was inserted or deleted, and compared.

    original: the part that it evaluates: for each argument, if it has children.
    children: nothing, or the arguments.
    before, after: the content at both ends of the change that was taken last."""

    node: Node
    evaluation: Evaluation
    reads: Callable[[Change], bool]
    original: Node
    children: tuple[Operator, ...] = ()
    before: ZSet = field(default_factory=ZSet.empty)
    after: ZSet = field(default_factory=ZSet.empty)
    touched: int = field(default=0, init=False)
    kind = "refresh"
    keeps = True

    @property
    def kept_bytes(self) -> int:
        return self.after.size_bytes

    @staticmethod
    def of(node: Node, evaluation: Evaluation) -> Refresh:
        lifted = evaluation.lifted
        original = None if lifted is None else lifted.original(node)
        if lifted is None or original is None:
            return Refresh(node, evaluation, reads_of(node, evaluation), node)
        arguments = DeltaJoin.of(lifted.arguments, evaluation)
        assert arguments is not None, lifted.arguments
        return Refresh(node, evaluation, reads_of(original, evaluation), original, (arguments,))

    def begin(self, stored: BatchSet) -> ZSet:
        self.before = self.after = self._evaluated(stored)
        return self.after

    def _evaluated(self, stored: BatchSet, given: BindingTable | None = None) -> ZSet:
        """Return the content. given: of these arguments; None: of all that are bound."""
        if self.children and given is None:
            given = self.children[0].begin(stored).table
        if given is None:
            rows = self.evaluation.run(self.node, stored)
        else:
            rows = self.evaluation.run_given(self.original, stored, given, NUMBER)
        return ZSet.of(tables.project(rows, names_of(self.node))).consolidated()

    @noted
    def change(self, change: Change) -> ZSet:
        self.before = self.after
        bound = [child.change(change) for child in self.children]
        if self.reads(change):
            self.after = self._evaluated(change.after)
            return self.after.plus(self.before.negated()).consolidated()
        found = ZSet.empty(names_of(self.node))
        for arguments in bound:
            if len(arguments):
                found = self._of_bound(arguments, change)
                self.after = self.before.plus(found).project(names_of(self.node)).consolidated()
        return found

    def _of_bound(self, arguments: ZSet, change: Change) -> ZSet:
        """Return the change that follows from arguments that were bound (+1) and unbound (-1)."""
        is_new = arguments.weights > 0
        new, gone = (arguments.table.take(np.flatnonzero(chosen)) for chosen in (is_new, ~is_new))
        return self._evaluated(change.after, new).plus(self.before.with_keys(gone, (NUMBER,)).negated()).consolidated()

    def at(self, side: Side) -> ZSet:
        return self.before if side is Side.BEFORE else self.after

    def matching(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        return rows.joined(self.at(side))

    def compatible_with(self, keys: BindingTable, change: Change, side: Side) -> ZSet:
        return self.at(side).compatible_with(keys)


def names_of(node: Node) -> tuple[Variable, ...]:
    """Return the variables of a part's solutions, in a fixed order."""
    return tuple(sorted(possible_variables(node), key=str))


def predicates_of(part: object, clause: DatasetClause) -> frozenset[Term] | None:
    """Return the predicates of all triples whose change may concern a part of a query; None: they may be any."""
    found = set[Term]()
    for one in parts_of(part):
        match one:
            case TriplePattern(predicate=Term() as predicate):
                found.add(predicate)
            case TriplePattern() | PathPattern() | Service() | TripleParts():
                return None
            case GraphNames() | PerGraph() if clause.is_empty:  # which graphs there are
                return None
    return frozenset(found)


def reads_of(part: object, evaluation: Evaluation) -> Callable[[Change], bool]:
    """Return what tells whether a change may concern a part of a query: a triple has changed in a graph that it reads,
    with the predicate of a pattern there."""
    clause = evaluation.clause
    wanted = set[tuple[Term | None, StoredGraphs]]()
    is_any = False
    for one in parts_of(part):
        match one:
            case TriplePattern(predicate=predicate):
                graphs = StoredGraphs.of(_written(one), clause)
                wanted.add((predicate if isinstance(predicate, Term) else None, graphs))
            case PathPattern():
                wanted.add((None, StoredGraphs.of(_written(one), clause)))
            case GraphNames(graph=graph) | PerGraph(graph=graph) if clause.is_empty:
                wanted.add((None, StoredGraphs.of(graph, clause)))  # which graphs there are
            case Service() | TripleParts():
                is_any = True

    def reads(change: Change) -> bool:
        resolve = evaluation.resolve
        return (is_any and change.is_of_stored) or any(
            graphs.is_touched(change, None if predicate is None else resolve(predicate), resolve)
            for predicate, graphs in wanted
        )

    return reads
