"""FollowedBody: the body of a rule that is no list of patterns, as operators of the incremental core.

A list is evaluated from changed triples (rule_plans.py). Other bodies are trees of the operators of live views, which
move along the versions of the graph that a propagation makes: each move gives the solutions that were inserted and
those that were deleted. A solution that was deleted is a derivation that is lost, one that was inserted a new one.

Two facts make this right within a recursive stratum. A solution has all variables of the body, so two derivations of
one triple do not cancel each other. And what OPTIONAL, MINUS, EXISTS, groups and paths read is concluded by strata
before, so deletions of the stratum itself only delete solutions, and its insertions only insert some."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    DatasetClause,
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
)
from wukongs.csparql.scope import certain_variables
from wukongs.csparql.terms import Variable, iri
from wukongs.incremental.interests import Interests
from wukongs.incremental.lookups import Operator, install
from wukongs.incremental.operators import operator_of, operators_of
from wukongs.incremental.versions import Change, Evaluation, leaf
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits, current
from wukongs.query.operators import operators as tables
from wukongs.query.plans.dataset import Resolve
from wukongs.query.terms.query_terms import QueryTerms
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

    def begin(self, before: BatchSet, resolve: Resolve, terms: QueryTerms, limits: Limits) -> None:
        """Be about to follow a change of a graph, which is as it was when the last one was followed."""
        if self._evaluation is not None and self._evaluation.terms.computed_count > COMPUTED_MAX:
            self.forget()
        evaluation = self._evaluation
        if evaluation is None:
            self._evaluation = Evaluation(DatasetClause(), resolve, terms, limits)
            self._top = operator_of(self.node, self._evaluation)
            self._reads = Interests(self.node, self._evaluation)
        else:
            evaluation.resolve, evaluation.limits = resolve, limits
            evaluation.terms = evaluation.terms.renewed(terms.reader)
        self._at, self._mark, self._gained = before, 0, ZSet.empty()

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
        self._at, self._mark, self._gained = graph.now.batches, graph.mark, ZSet.empty()
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
        self._gained = self._gained.plus(moved).consolidated()
        return _of_sign(moved, -1)

    def gained(self, graph: ChangingGraph) -> BindingTable:
        """Move to the graph as it is now; return the solutions that were inserted, also those that `lost` has kept. One
        that was deleted before and is there again is among them: its head may have been deleted meanwhile."""
        kept, self._gained = self._gained, ZSet.empty()
        return tables.union(_of_sign(kept, 1), _of_sign(self._moved(graph), 1), current().rows_max)

    def _moved(self, graph: ChangingGraph) -> ZSet:
        assert self._top is not None
        assert self._reads is not None
        mark = self.evaluation.limits.mark()
        if not self.is_in_step:
            self._evaluate_at_next()
            install(self._top, self._at)
            self.is_in_step = True
        difference = graph.since(self._mark)
        inserted, deleted = (
            EMPTY if batch is None or not len(batch) else BatchSet.of((batch,), disjoint=True) for batch in difference
        )
        change = Change(self._at, graph.now.batches, inserted, deleted)
        self._at, self._mark = change.after, graph.mark
        if change.is_empty or not self._reads(change):
            return ZSet.empty()
        before, self._version = self._version, self._version + 1
        self.evaluation.span = before, self._version
        found = self._top.change(change).consolidated()
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


@dataclass(frozen=True, slots=True)
class Part:
    """A body, or its part below a group, to be evaluated for the rows that some of its variables are given.

    given: those that can be; each solution binds them."""

    node: Node
    given: tuple[Variable, ...]

    def solutions(self, evaluation: Evaluation, stored: BatchSet, seeds: BindingTable) -> BindingTable:
        """Return the solutions that agree with some of the seeds, which bind variables of `given`."""
        if not seeds.variables:
            return evaluation.run(self.node, stored)
        known = leaf(seeds.variables)
        return evaluation.run_over(_joined_below(self.node, known, seeds.variables), stored, (known, seeds))


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
