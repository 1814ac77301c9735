"""The bodies of rules, evaluated by the incremental core: what a change of the graph makes of their solutions.

A body of triple patterns with FILTER, BIND and VALUES is one delta join (`joined_patterns`): from the triples that a
round of a propagation has inserted or deleted it finds the solutions that have one of them. It keeps nothing.

Any other body (FollowedBody) is a tree of the operators of live views, which moves along the versions of the graph that
a propagation makes: each move gives the solutions that were inserted and those that were deleted. A solution that was
deleted is a derivation that is lost, one that was inserted a new one. Two facts make this right within a recursive
stratum. A solution has all variables of the body, so two derivations of one triple do not cancel each other. And what
OPTIONAL, MINUS, EXISTS, groups and paths read is concluded by strata before, so deletions of the stratum itself only
delete solutions, and its insertions only insert some."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    Project,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.exploration_order import is_explorable
from wukongs.csparql.scope import certain_variables, exists_patterns, node_expressions
from wukongs.csparql.terms import Variable, iri
from wukongs.incremental.interests import Interests
from wukongs.incremental.lookups import Operator, install
from wukongs.incremental.operators import operator_of, operators_of
from wukongs.incremental.versions import Above, Change, Evaluation
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import current
from wukongs.query.operators import operators as tables
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.rules.changing_graph import ChangingGraph
from wukongs.store.batch_set import EMPTY, BatchSet

COMPUTED_MAX = 1 << 16
"""Terms computed, at most; beyond it all that is kept is evaluated anew, with new ids for them."""


@dataclass(slots=True)
class FollowedBody:
    """The solutions of a body, from one version of the graph to the next. Used by the thread that follows changes.

    node: the body; each pattern names its graph.
    is_in_step: what the operators keep is the content at the version that was taken last."""

    node: Node
    is_in_step: bool = False
    _evaluation: Evaluation | None = None
    _top: Operator | None = None
    _reads: Callable[[Change], bool] | None = None
    _at: BatchSet = EMPTY
    _mark: int = 0
    _version: int = 0
    """Stands for an SN: propagations make versions that have none."""
    _gained: ZSet = field(default_factory=ZSet.empty)

    def forget(self) -> None:
        """Keep nothing."""
        self.is_in_step, self._evaluation, self._top, self._gained = False, None, None, ZSet.empty()

    def begin(self, graph: ChangingGraph, fresh: Evaluation) -> None:
        """Be about to follow changes of a graph, which is as it was when the last one was followed. fresh: has the
        constants, terms and limits of the propagation."""
        if self._evaluation is not None and self._evaluation.terms.computed_count > COMPUTED_MAX:
            self.forget()
        evaluation = self._evaluation
        if evaluation is None:
            self._evaluation = fresh
            self._top = operator_of(self.node, fresh)
            self._reads = Interests(self.node, fresh)
        else:
            evaluation.resolve, evaluation.limits = fresh.resolve, fresh.limits
            evaluation.terms = evaluation.terms.renewed(fresh.terms.reader)
        self._at, self._mark, self._gained = graph.now.stored, graph.mark, ZSet.empty()

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the change under way; its terms are those of the solutions."""
        assert self._evaluation is not None, "begin"
        return self._evaluation

    def _evaluate_at_next(self) -> None:
        """Be about to evaluate a content, at another version than all before."""
        self._version += 1
        self.evaluation.span = self._version, self._version

    def content(self, graph: ChangingGraph) -> BindingTable:
        """Return all solutions over a graph as it is now."""
        assert self._top is not None
        self._at, self._mark, self._gained = graph.now.stored, graph.mark, ZSet.empty()
        self._evaluate_at_next()
        mark = self.evaluation.limits.mark()
        found = self._top.begin(self._at).consolidated().table
        self.is_in_step = True
        self._count_kept(mark)
        return found

    def lost(self, graph: ChangingGraph) -> BindingTable:
        """Move to the graph as it is now; return the solutions that were deleted. Those that were inserted, and not
        deleted by a later move, are kept until `gained`."""
        moved = self._moved(graph)
        if len(moved):
            self._gained = self._gained.plus(moved).consolidated() if len(self._gained) else moved
        return _of_sign(moved, -1)

    def gained(self, graph: ChangingGraph) -> BindingTable:
        """Move to the graph as it is now; return the solutions that were inserted, also those that `lost` has kept. One
        that was deleted before and is there again is among them: its head may have been deleted meanwhile."""
        kept, self._gained = self._gained, ZSet.empty()
        moved = self._moved(graph)
        if not len(moved):
            return _of_sign(kept, 1)
        return tables.union(_of_sign(kept, 1), _of_sign(moved, 1), current().rows_max)

    def _moved(self, graph: ChangingGraph) -> ZSet:
        assert self._top is not None
        assert self._reads is not None
        mark = self.evaluation.limits.mark()
        if not self.is_in_step:
            self._evaluate_at_next()
            install(self._top, self._at)
            self.is_in_step = True
        change = graph.since(self._mark, self._at)
        self._at, self._mark = change.after, graph.mark
        if change.is_empty or not self._reads(change):
            return ZSet.empty()
        before, self._version = self._version, self._version + 1
        self.evaluation.span = before, self._version
        found = self._top.change(change)
        self._count_kept(mark)
        return found

    def _count_kept(self, mark: int) -> None:
        """Count what is kept among the bytes that the execution may hold at once; what was held since a mark is given
        back."""
        assert self._top is not None
        limits = self.evaluation.limits
        limits.hold(sum(operator.kept_bytes for _, operator in operators_of(self._top)))
        limits.back_to(mark, 0)


def _of_sign(rows: ZSet, sign: int) -> BindingTable:
    return rows.table.take(np.flatnonzero(sign * rows.weights > 0))


class Part:
    """A body, or its part below a group, to be evaluated for the rows that some of its variables are given.

    node: the body.
    given: the variables that can be given; each solution binds them.
    computes: its solutions may have terms that the data has not."""

    def __init__(self, node: Node, given: tuple[Variable, ...]) -> None:
        self.node, self.given = node, given
        self.computes = not isinstance(node, Bgp)
        self._memo = PlanMemo()
        self._above = Above(lambda known: _joined_below(node, known, known.variables))

    def solutions(self, evaluation: Evaluation, stored: BatchSet, seeds: BindingTable) -> BindingTable:
        """Return the solutions that agree with some of the seeds, which bind variables of `given`."""
        if not seeds.variables:
            return evaluation.run(self.node, stored)
        if is_explorable(self.node, seeds.variables):
            return evaluation.explored(self.node, seeds, stored, self._memo)
        return self._above.run(evaluation, stored, seeds)


def joined_patterns(node: Node) -> Bgp | None:
    """Return the triple patterns of a body that has, beside them, only FILTER, BIND and VALUES; None for another one.
    A solution of such a body is made of one of the patterns, and of nothing else in the graph."""
    match node:
        case Bgp():
            return node if node.patterns else None
        case Filter() | Extend() if not any(map(exists_patterns, node_expressions(node))):
            return joined_patterns(node.pattern)
        case Join(left=Values(), right=other) | Join(left=other, right=Values()):
            return joined_patterns(other)
    return None


def _joined_below(node: Node, known: Node, given: Collection[Variable]) -> Node:
    """Join a part with rows of some of its variables, as deep in it as they can be: from there, few rows are explored.

    Every solution binds these variables, so the join chooses solutions, and that may be done before what a node adds to
    a solution or asks of it."""
    match node:
        case Filter() | Extend() | Distinct() | Project() | Group():
            return replace(node, pattern=_joined_below(node.pattern, known, given))
        case LeftJoin() | Minus():
            return replace(node, left=_joined_below(node.left, known, given))
        case Union():
            left, right = (_joined_below(one, known, given) for one in (node.left, node.right))
            return replace(node, left=left, right=right)
        case Join():
            if certain_variables(node.left).issuperset(given):
                return replace(node, left=_joined_below(node.left, known, given))
            if certain_variables(node.right).issuperset(given):
                return replace(node, right=_joined_below(node.right, known, given))
    return Join(known, node)


Matched = tuple[TriplePattern, Variable | None]
"""A pattern, and a variable that a solution binds if it matches the pattern (None: each does)."""
_MARK = iri("urn:x-wukongs:matched")


def marked(node: Node) -> tuple[Node, tuple[Matched, ...]]:
    """Return a body whose solutions also say what OPTIONALs and branches of UNION have matched; and the patterns of
    which a solution may be made."""
    found = list[Matched]()

    def branch(node: Node) -> Node:
        marker = Variable(f".matched{len(found)}")
        return Extend(visit(node, marker), marker, _MARK)

    def visit(node: Node, marker: Variable | None) -> Node:
        match node:
            case Bgp(patterns=patterns):
                found.extend((pattern, marker) for pattern in patterns)
            case Join():
                return Join(visit(node.left, marker), visit(node.right, marker))
            case LeftJoin():
                return replace(node, left=visit(node.left, marker), right=branch(node.right))
            case Minus():
                return replace(node, left=visit(node.left, marker))
            case Union():
                return Union(branch(node.left), branch(node.right))
            case Filter() | Extend():
                return replace(node, pattern=visit(node.pattern, marker))
        return node

    return visit(node, None), tuple(found)
