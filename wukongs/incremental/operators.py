"""The operators of a view above its leaves, and the tree of them.

All operators of a view move together: `change` returns the difference of two contents as a Z-set and moves what the
operator keeps. A content is kept only where a rule needs it (lookups.py: Kept). Others are looked up in the stored
graph itself, which all views share: a part that can be explored from given rows is (csparql/exploration_order.py).

The rules, with d for the change of a part, f for its content before and t for its content after the change:

* basic graph pattern (DeltaJoin): the rows at t with an inserted triple, minus the rows at f with a deleted one; for
  each pattern i they are explored from d of i (delta queries; shared arrangements, section 5.3). d of a default graph
  of several graphs is that of their union.
* filter, extend, project, union: linear, so the operator is applied to d.
* join: d(L) * t(R) + f(L) * d(R).
* OPTIONAL, MINUS, over windows also EXISTS, which takes rows or marks them (Flag): d(L) extended by t(R), and the rows
  of f(L) that are compatible with a row of d(R), extended by t(R) minus extended by f(R).
* DISTINCT (Counted): how often each row is there follows d; rows whose count leaves or becomes 0 are the change.
* groups (Grouped): counts, sums and terms of each group follow the rows in d.
* groups whose aggregates cannot be kept exactly (Reduce): those of the rows in d are evaluated anew, before and after.
* graph names (ExistingGraphs): the graphs in d that have a triple at only one of f and t.
* GRAPH ?g over a part that counts or cuts rows (EachGraph): the graphs in d are evaluated anew, before and after.
* triple patterns over windows (WindowJoin): matches end with the first of their tuples.
* paths (Reached): the pairs that changed edges begin or end, from the origins that are asked for (iterate.py).
* other paths between variables (Searched): from the nodes that lead to changed edges, before and after (searched.py).
* LIMIT (Cut): rows in d are inserted among the first ones, of all or of each argument; others are behind them.
* a group without keys in such a view (EachArgument): an argument without a group has that of no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import cast

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Slice,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.exploration_order import is_explorable
from wukongs.csparql.paths import is_nullable
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.rules import exists_bound
from wukongs.csparql.scope import (
    NO_VARIABLES,
    certain_variables,
    exists_patterns,
    expression_variables,
    node_expressions,
    possible_variables,
)
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import join_operands
from wukongs.incremental.counted import Counted
from wukongs.incremental.cuts import Cut, below_cut
from wukongs.incremental.graphs import EachGraph, ExistingGraphs
from wukongs.incremental.groups import Grouped
from wukongs.incremental.interests import Interests
from wukongs.incremental.iterate import Reached, asked_by, paths_last, with_ties
from wukongs.incremental.leaves import Constant, DeltaJoin, is_of_stored, names_of
from wukongs.incremental.lookups import Explored, Kept, LookUp, Operator, Side, Whole, install, noted, stored_at
from wukongs.incremental.searched import Searched
from wukongs.incremental.versions import Above, Change, Evaluation
from wukongs.incremental.zset import WEIGHT, ZSet
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.argument_rows import NUMBER
from wukongs.query.limits import current
from wukongs.query.operators import operators as tables
from wukongs.query.operators.aggregates import group
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.rows import places_of
from wukongs.query.terms.values import FALSE, TRUE, text_of
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import UNBOUND, BoolArray

_ROW = Variable(".row of the left side")
FEW_ROWS = 256
"""Up to this many rows are explored from one by one; above it, rows with equal bindings are explored from once."""


def _applied(names: Sequence[Variable], above: Above, rows: ZSet, evaluation: Evaluation, stored: BatchSet) -> ZSet:
    """Return rows after a filter or BIND, with their weights. names: of their variables then."""
    if not len(rows):
        return ZSet.empty(names)
    return ZSet.of_weighted(above.run(evaluation, stored, rows.weighted()))


def _over(node: Filter | Extend | Project | Group) -> Above:
    """Return a node above other solutions."""
    return Above(lambda known: replace(node, pattern=known))


@dataclass(slots=True)
class Linear:
    """Filters and BINDs above each other, a projection, or a join with the parts of a triple term: applied to the rows
    of the change, whatever the rest is. Keeps nothing.

    nodes: from the top one down."""

    nodes: tuple[Filter | Extend | Project | Join, ...]
    children: tuple[Operator, ...]
    evaluation: Evaluation
    touched: int = field(default=0, init=False)
    _above: Above = field(init=False)
    _names: tuple[Variable, ...] = field(init=False)
    kind = "linear"
    keeps = False
    kept_bytes = 0

    def __post_init__(self) -> None:
        self._above, self._names = Above(self._over), names_of(self.nodes[0])

    @staticmethod
    def of(node: Filter | Extend | Project, evaluation: Evaluation) -> Linear:
        """Return the operator of a part, together with those below it that are applied with it."""
        below = operator_of(node.pattern, evaluation)
        is_row_wise = not isinstance(node, Project)
        if is_row_wise and isinstance(below, Linear) and isinstance(below.nodes[0], Filter | Extend):
            return Linear((node, *below.nodes), below.children, evaluation)
        return Linear((node,), (below,), evaluation)

    def _over(self, known: Node) -> Node:
        return reduce(lambda below, node: replace(node, pattern=below), reversed(self.nodes), known)

    def _applied(self, rows: ZSet, stored: BatchSet) -> ZSet:
        [top, *_] = self.nodes
        if isinstance(top, Project):
            return rows.project(tuple(dict.fromkeys(top.variables)))
        if isinstance(top, Join):
            if not len(rows):
                return ZSet.empty(self._names)
            return ZSet.of_weighted(self.evaluation.explored(top.right, rows.weighted(), stored))
        return _applied(self._names, self._above, rows, self.evaluation, stored)

    def begin(self, stored: BatchSet) -> ZSet:
        return self._applied(self.children[0].begin(stored), stored)

    def content(self, stored: BatchSet) -> ZSet:
        below = cast("Whole", self.children[0])
        return self._applied(below.content(stored), stored)

    @noted
    def change(self, change: Change) -> ZSet:
        found = self._applied(self.children[0].change(change), change.after)
        is_project = isinstance(self.nodes[0], Project)
        return found.consolidated() if is_project else found  # others keep distinct rows distinct


@dataclass(slots=True)
class Sum:
    """UNION."""

    node: Union
    children: tuple[Operator, ...]
    touched: int = field(default=0, init=False)
    kind = "union"
    keeps = False
    kept_bytes = 0

    def begin(self, stored: BatchSet) -> ZSet:
        left, right = (child.begin(stored) for child in self.children)
        return left.plus(right)

    @noted
    def change(self, change: Change) -> ZSet:
        left, right = (child.change(change) for child in self.children)
        return left.plus(right).consolidated()


@dataclass(slots=True)
class Joined:
    """The join of two parts that are not one basic graph pattern. Each side is explored, or keeps its content."""

    node: Join
    children: tuple[LookUp, LookUp]
    touched: int = field(default=0, init=False)
    kind = "join"
    keeps = False
    kept_bytes = 0

    def begin(self, stored: BatchSet) -> ZSet:
        left, right = _contents(*self.children, stored)
        return left.joined(right)

    @noted
    def change(self, change: Change) -> ZSet:
        left, right = self.children
        of_left, of_right = left.change(change), right.change(change)
        found = ZSet.empty(names_of(self.node))
        if len(of_left):
            found = right.matching(of_left, change, Side.AFTER)
        if len(of_right):
            found = found.plus(left.matching(of_right, change, Side.BEFORE))
        return found.consolidated()


@dataclass(slots=True)
class Deciding:
    """The patterns of the EXISTS in an expression: which rows these may decide otherwise about after a change.

    patterns: the operators of all of them, if they are triple patterns and paths with filters, without these filters:
    the EXISTS decide otherwise for rows that are compatible with a change of theirs. None: for any row, when a triple
    was inserted or deleted that one of them may read.
    reads: tells whether one may."""

    patterns: tuple[Operator, ...]
    reads: Callable[[Change], bool]

    @staticmethod
    def of(
        expression: Expression,
        evaluation: Evaluation,
        bound: frozenset[Variable] = NO_VARIABLES,
        *,
        is_flag: bool = False,
    ) -> Deciding:
        """bound: variables that each row binds; the walks of paths are kept from these, which takes asked_by. is_flag:
        as Existing has it."""
        patterns = tuple(one.pattern for one in exists_patterns(expression))
        reads, found = Interests(patterns, evaluation), list[Operator]()
        for pattern in patterns:
            while not is_flag and isinstance(pattern, Filter) and not exists_patterns(pattern.condition):
                pattern = pattern.pattern
            if not is_flag and not all(_has_partners(part, evaluation) for part in join_operands(pattern)):
                return Deciding((), reads)
            asked = bound & possible_variables(pattern)
            found.append(Reached.of(pattern, evaluation, asked) or operator_of(pattern, evaluation))
        return Deciding(tuple(found), reads)

    def install(self, stored: BatchSet) -> None:
        for pattern in self.patterns:
            install(pattern, stored)

    def change(self, change: Change) -> ZSet:
        """Return rows with which those are compatible that are decided about otherwise."""
        if not self.patterns:
            return ZSet.of(BindingTable.unit() if self.reads(change) else BindingTable.empty())
        first, *others = (pattern.change(change) for pattern in self.patterns)
        return first.plus(*others)


@dataclass(slots=True)
class Flag:
    """OPTIONAL, MINUS, or a filter or BIND that is one EXISTS: rows of the left side, by whether they have partners on
    the right. Both sides are explored, or keep their content.

    deciding: the EXISTS in the condition of an OPTIONAL: these decide otherwise for rows that are compatible with what
    they decide for.
    conditions: filters inside of EXISTS that mention variables of the left side."""

    node: LeftJoin | Minus | Filter | Extend
    sides: tuple[LookUp, LookUp]
    evaluation: Evaluation
    deciding: Deciding | None = None
    conditions: tuple[Expression, ...] = ()
    touched: int = field(default=0, init=False)
    _above: Above = field(init=False)
    keeps = False
    kept_bytes = 0

    def __post_init__(self) -> None:
        self._above = Above(self._over)

    def _over(self, left: Node, right: Node) -> Node:
        if isinstance(self.node, LeftJoin):
            return LeftJoin(left, right, self.node.condition)
        pairs: Node = Join(left, right)
        for condition in self.conditions:
            pairs = Filter(condition, pairs)
        return pairs

    @property
    def kind(self) -> str:
        name = "mark" if isinstance(self.node, Extend) else "flag"
        return name if self.deciding is None else f"{name} (with exists)"

    @property
    def children(self) -> tuple[Operator, ...]:
        return self.sides if self.deciding is None else (*self.sides, *self.deciding.patterns)

    def begin(self, stored: BatchSet) -> ZSet:
        found = self._extended(*_contents(*self.sides, stored), stored)
        if self.deciding is not None:
            self.deciding.install(stored)
        return found

    @noted
    def change(self, change: Change) -> ZSet:
        left, right = self.sides
        of_left, of_right = left.change(change), right.change(change)
        if self.deciding is not None:
            of_right = of_right.plus(self.deciding.change(change))
        found = ZSet.empty(names_of(self.node))
        if len(of_left):
            found = self._at(of_left, change, Side.AFTER)
        if len(of_right) and len(touched := left.compatible_with(of_right.table, change, Side.BEFORE)):
            after, before = (self._at(touched, change, side) for side in (Side.AFTER, Side.BEFORE))
            found = found.plus(after, before.negated())
        return found.consolidated()

    def _at(self, rows: ZSet, change: Change, side: Side) -> ZSet:
        """Return what rows of the left side become with the content of the right one at an end of the change."""
        right = self.sides[1].compatible_with(rows.table, change, side)
        return self._extended(rows, right, stored_at(change, side))

    def _extended(self, left: ZSet, right: ZSet, stored: BatchSet) -> ZSet:
        rows = tables.with_column(left.table, _ROW, np.arange(len(left), dtype=np.int64))
        partners = right.consolidated()
        if isinstance(self.node, Minus):
            return left.take(tables.minus(rows, partners.table).column(_ROW))
        if isinstance(self.node, Filter | Extend):
            return self._existing(self.node, left, rows, partners, stored)
        pairs = self._above.run(self.evaluation, stored, rows, partners.weighted())
        weights = pairs.column(WEIGHT)
        weights = np.where(weights == UNBOUND, 1, weights)  # a row without a partner
        own = tuple(variable for variable in pairs.variables if variable not in (WEIGHT, _ROW))
        return ZSet(tables.project(pairs, own), weights * left.weights[pairs.column(_ROW)])

    def _existing(
        self, node: Filter | Extend, left: ZSet, rows: BindingTable, partners: ZSet, stored: BatchSet
    ) -> ZSet:
        """Take the rows for which EXISTS is true, or mark all by what it is. rows: those of `left`, numbered."""
        [exists] = node_expressions(node)
        assert isinstance(exists, Exists), node
        if self.conditions:
            pairs = self._above.run(self.evaluation, stored, rows, partners.table)
        else:
            shared = [variable for variable in left.variables if variable in partners.variables]
            asked = tables.distinct(tables.project(partners.table, shared))
            pairs = tables.join(tables.project(rows, (*shared, _ROW)), asked, current().rows_max)
        is_true = np.full(len(left), exists.negated)
        is_true[pairs.column(_ROW)] = not exists.negated
        if isinstance(node, Filter):
            return left.take(places_of(is_true))
        true_id, false_id = self.evaluation.terms.ids([text_of(TRUE), text_of(FALSE)]).tolist()
        return ZSet(tables.with_column(left.table, node.variable, np.where(is_true, true_id, false_id)), left.weights)


@dataclass(slots=True)
class Existing:
    """A filter or BIND with EXISTS: applied to the change of the part below; and to its rows about which an EXISTS may
    decide otherwise than before, at both ends of the change.

    is_flag: it is a filter of one EXISTS, and a row has a solution of its pattern exactly if it is compatible with one;
    so it has one after those that are compatible with it were inserted, and had one before they were deleted."""

    node: Filter | Extend
    below: LookUp
    deciding: Deciding
    evaluation: Evaluation
    is_flag: bool = False
    _memo: PlanMemo = field(default_factory=PlanMemo)
    touched: int = field(default=0, init=False)
    _above: Above = field(init=False)
    kind = "exists"
    keeps = False
    kept_bytes = 0

    def __post_init__(self) -> None:
        self._above = _over(self.node)

    @property
    def children(self) -> tuple[Operator, ...]:
        return self.below, *self.deciding.patterns

    @staticmethod
    def of(node: Filter | Extend, evaluation: Evaluation) -> Existing:
        [expression], pattern = node_expressions(node), node.pattern
        is_flag = isinstance(expression, Exists) and isinstance(node, Filter) and _is_plain(expression.pattern)
        deciding = Deciding.of(expression, evaluation, certain_variables(pattern), is_flag=is_flag)
        if not deciding.patterns:
            return Existing(node, Kept(operator_of(pattern, evaluation)), deciding, evaluation)
        first, *others = exists_patterns(expression)
        below = _looked_up(pattern, Bgp(()) if others else first.pattern, evaluation)
        for partner in deciding.patterns:
            below = asked_by(below, partner)
        return Existing(node, below, deciding, evaluation, is_flag)

    def _applied(self, rows: ZSet, stored: BatchSet) -> ZSet:
        if self.is_flag and 0 < len(rows) <= FEW_ROWS:
            return self._flagged(rows, stored)
        return _applied(names_of(self.node), self._above, rows, self.evaluation, stored)

    def _flagged(self, rows: ZSet, stored: BatchSet) -> ZSet:
        """Apply the filter where it is a flag: explore its pattern from the rows themselves."""
        assert isinstance(self.node, Filter), self.node
        assert isinstance(self.node.condition, Exists), self.node
        exists, evaluation = self.node.condition, self.evaluation
        mentioned = possible_variables(exists.pattern)
        shared = [variable for variable in rows.variables if variable in mentioned]
        numbers = np.arange(len(rows), dtype=np.int64)
        seeds = tables.with_column(tables.project(rows.table, shared), _ROW, numbers)
        found = evaluation.explored(exists.pattern, seeds, stored, self._memo)
        is_kept = np.full(len(rows), exists.negated)
        is_kept[found.column(_ROW)] = not exists.negated
        return rows.take(places_of(is_kept))

    def begin(self, stored: BatchSet) -> ZSet:
        found = self._applied(self.below.begin(stored), stored)
        self.deciding.install(stored)
        return found

    @noted
    def change(self, change: Change) -> ZSet:
        found = self._applied(self.below.change(change), change.after)
        changed = self.deciding.change(change)
        if not len(changed):
            return found
        rows = self.below.compatible_with(changed.table, change, Side.BEFORE)
        if not len(rows):
            return found
        after, before = (self._at(rows, changed, change, side) for side in (Side.AFTER, Side.BEFORE))
        return found.plus(after, before.negated()).consolidated()

    def _at(self, rows: ZSet, changed: ZSet, change: Change, side: Side) -> ZSet:
        """Return what rows below become at an end of the change. changed: the change of the partners with which they
        are compatible."""
        if self.is_flag and not (changed.weights * (1 if side is Side.AFTER else -1) < 0).any():
            assert isinstance(self.node, Filter), self.node
            assert isinstance(self.node.condition, Exists), self.node
            return ZSet.empty(rows.variables) if self.node.condition.negated else rows
        return self._applied(rows, stored_at(change, side))


@dataclass(slots=True)
class Reduce:
    """Groups: those of the rows that have changed are evaluated anew from the rows below, which are kept or explored
    from the keys. Without keys there is one group, always."""

    node: Group
    children: tuple[Kept | Explored]
    evaluation: Evaluation
    touched: int = field(default=0, init=False)
    _above: Above = field(init=False)
    kind = "reduce"
    keeps = False
    kept_bytes = 0

    def __post_init__(self) -> None:
        self._above = _over(self.node)

    def begin(self, stored: BatchSet) -> ZSet:
        return self._reduced(self.children[0].begin(stored).consolidated(), stored)

    @noted
    def change(self, change: Change) -> ZSet:
        return self.difference(self.children[0].change(change), change)

    def difference(self, changed: ZSet, change: Change) -> ZSet:
        """Return the change after the rows below have changed."""
        (below,) = self.children
        if not len(changed):
            return ZSet.empty(names_of(self.node))
        rows = below.with_keys(changed.table, change, Side.AFTER)
        rows_before = rows.plus(changed.negated()).consolidated()  # all that has changed is in these groups
        before, after = self._reduced(rows_before, change.before), self._reduced(rows, change.after)
        return after.plus(before.negated()).consolidated()

    def _reduced(self, rows: ZSet, stored: BatchSet) -> ZSet:
        if self.node.keys and not len(rows):
            return ZSet.empty(names_of(self.node))
        return ZSet.of(self._above.run(self.evaluation, stored, rows.repeated()))


@dataclass(slots=True)
class EachArgument:
    """A group without keys, for each argument: one that has no rows below has a group as well. Keeps nothing: a group
    that was inserted or deleted is in the change.

    children: the groups of the arguments that have rows; the arguments."""

    node: Group
    children: tuple[Operator, Operator]
    evaluation: Evaluation
    touched: int = field(default=0, init=False)
    kind = "each argument"
    keeps = False
    kept_bytes = 0

    def begin(self, stored: BatchSet) -> ZSet:
        groups, arguments = (child.begin(stored) for child in self.children)
        return groups.plus(self._empty(arguments, ~_is_in(arguments, groups)))

    @noted
    def change(self, change: Change) -> ZSet:
        groups, arguments = (child.change(change) for child in self.children)
        inserted, deleted = (groups.take(np.flatnonzero(sign * groups.weights > 0)) for sign in (1, -1))
        is_bound = arguments.weights > 0
        had_no_group = ~np.where(is_bound, _is_in(arguments, inserted), _is_in(arguments, deleted))
        emptied, filled = (
            one.take(np.flatnonzero(~(_is_in(one, other) | _is_in(one, arguments))))
            for one, other in ((deleted, inserted), (inserted, deleted))
        )
        changed = emptied.negated().plus(filled.negated())
        found = groups.plus(self._empty(arguments, had_no_group), self._empty(changed, np.ones(len(changed), np.bool_)))
        return found.consolidated()

    def _empty(self, arguments: ZSet, chosen: BoolArray) -> ZSet:
        """Return the groups of no rows of some arguments."""
        rows, variables = arguments.take(np.flatnonzero(chosen)), self.node.keys
        nothing = group(BindingTable.empty(), (), self.node.aggregates, self.evaluation.terms)
        columns = (np.repeat(column, len(rows)) for column in nothing.columns)
        own = rows.project(variables).table.columns
        return ZSet(BindingTable((*variables, *nothing.variables), (*own, *columns), len(rows)), rows.weights)


def _is_in(rows: ZSet, others: ZSet) -> BoolArray:
    """Tell which rows have the number of an argument that some of the others have. bool[len(rows)]"""
    return np.isin(rows.table.column(NUMBER), others.table.column(NUMBER))


# --- the tree ---------------------------------------------------------------------------------------------------------


class NoOperator(Exception):
    """A part cannot be followed. Beside windows alone: patterns whose matches cannot be kept."""


def operator_of(node: Node, evaluation: Evaluation) -> Operator:
    """Return the operators of a part of a query, the top one of them. Raises NoOperator."""
    joined = DeltaJoin.of(node, evaluation) if evaluation.leaf is None else evaluation.leaf(node)
    if joined is not None:
        return joined
    lifted = evaluation.lifted
    original = None if lifted is None else lifted.original(node)
    if isinstance(original, PerGraph):
        return EachGraph.of(node, original, evaluation)
    match node:
        case Values() | Bgp(patterns=()):
            return Constant(node, evaluation)
        case Filter() | Extend() if any(map(exists_patterns, node_expressions(node))):
            return Existing.of(node, evaluation) if evaluation.leaf is None else _flag_of(node, evaluation)
        case Filter() | Extend() | Project():
            return Linear.of(node, evaluation)
        case Union(left=left, right=right):
            return Sum(node, (operator_of(left, evaluation), operator_of(right, evaluation)))
        case PathPattern():
            return (Reached.of(node, evaluation) if evaluation.leaf is None else None) or Searched.of(node, evaluation)
        case Join():
            is_whole = (lambda one: False) if lifted is None else lifted.is_leaf
            ordered = with_ties(paths_last(node, evaluation, is_whole), is_whole)
            if isinstance(ordered.right, TripleParts):
                return Linear((ordered,), (operator_of(ordered.left, evaluation),), evaluation)
            return Joined(ordered, _sides(ordered.left, ordered.right, evaluation))
        case LeftJoin(left=left, right=right, condition=condition):
            deciding = None
            if condition is not None and exists_patterns(condition):
                deciding = Deciding.of(condition, evaluation)
            return Flag(node, _sides(left, right, evaluation), evaluation, deciding)
        case Minus(left=left, right=right):
            return Flag(node, _sides(left, right, evaluation), evaluation)
        case Distinct(pattern=pattern):
            return Counted(names_of(pattern), (operator_of(pattern, evaluation),))
        case Group(keys=keys, pattern=pattern):
            if not evaluation.keeps_groups and keys and is_explorable(pattern):
                explored = Explored(pattern, operator_of(pattern, evaluation), evaluation, keys)
                return Reduce(node, (explored,), evaluation)
            groups: Operator | None = Grouped.of(
                node, evaluation, operator_of, lambda kept: Reduce(node, (kept,), evaluation)
            )
            if groups is None:
                groups = Reduce(node, (Kept(operator_of(pattern, evaluation), keys),), evaluation)
            if lifted is not None and isinstance(original, Group) and not original.keys:
                return EachArgument(node, (groups, operator_of(lifted.arguments, evaluation)), evaluation)
            return groups
        case GraphNames():
            return ExistingGraphs.of(node, evaluation) or Constant(node, evaluation)
        case PerGraph():
            return EachGraph.of(node, node, evaluation)
        case OrderBy(pattern=pattern):
            return operator_of(pattern, evaluation)  # a collection has no order
        case Slice():
            keys = () if original is None else (NUMBER,)
            return Cut(node, (Kept(operator_of(below_cut(node), evaluation), keys),), evaluation, keys)
    raise NoOperator(type(node).__name__)


def _has_partners(node: Node, evaluation: Evaluation) -> bool:
    """Return whether the rows for which a part of an EXISTS has other solutions are compatible with its change."""
    if isinstance(node, PathPattern):
        return evaluation.leaf is None
    return isinstance(node, Bgp) and bool(node.patterns)


def _flag_of(node: Filter | Extend, evaluation: Evaluation) -> Operator:
    """Return the operators of a filter or BIND with EXISTS beside windows: it is a flag if it is one EXISTS; else the
    expression stands above rows that are marked by each."""
    [expression], left = node_expressions(node), node.pattern
    if not isinstance(expression, Exists):
        found, marked = exists_bound(node, left)
        return operator_of(Project(replace(found, pattern=marked), names_of(node)), evaluation)  # type: ignore[arg-type]
    decided = _partners(expression.pattern)
    if decided is None:
        raise NoOperator("an EXISTS that may read windows")
    right, conditions = decided
    sides = _looked_up(left, right, evaluation), _looked_up(right, left, evaluation)
    return Flag(node, sides, evaluation, conditions=conditions)


def _partners(pattern: Node) -> tuple[Node, tuple[Expression, ...]] | None:
    """Return a part, and conditions, such that the pattern of an EXISTS has a solution for a row exactly if the part
    has one that is compatible with it and fulfils these together with it; None if there is none.

    So it is for triple patterns and paths, with joins and filters: where all that they bind is bound by a match, a
    variable may as well be compared as be replaced by a term. A path without a length leads from any term to itself,
    if the term is put into it, so it has no such part."""
    match pattern:
        case Bgp(patterns=patterns):
            return (pattern, ()) if patterns else None
        case PathPattern(path=path, length=None):
            return None if is_nullable(path) else (pattern, ())
        case Filter(condition=condition) if not exists_patterns(condition):
            below = _partners(pattern.pattern)
            if below is None or not expression_variables(condition) <= certain_variables(below[0]):
                return below if below is None else (below[0], (*below[1], condition))
            return Filter(condition, below[0]), below[1]
        case Join():
            left, right = _partners(pattern.left), _partners(pattern.right)
            if left is not None and right is not None:
                return Join(left[0], right[0]), (*left[1], *right[1])
    return None


def _is_plain(pattern: Node) -> bool:
    """Tell whether the pattern of an EXISTS has a solution for a row exactly if it has one that is compatible with it:
    triple patterns, with filters that mention their variables alone."""
    decided = _partners(pattern)
    return FilteredBgp.of(pattern) is not None and decided is not None and not decided[1]


def _sides(left: Node, right: Node, evaluation: Evaluation) -> tuple[LookUp, LookUp]:
    """Return the operators of two parts whose rows are looked up in each other. A path on the right is followed from
    what the left one binds."""
    found, bound = _looked_up(left, right, evaluation), certain_variables(left) & possible_variables(right)
    reached = Reached.of(right, evaluation, bound) if evaluation.leaf is None else None
    if reached is None:
        return found, _looked_up(right, left, evaluation)
    return asked_by(found, reached), Explored(right, reached, evaluation)


def _looked_up(node: Node, other: Node, evaluation: Evaluation) -> LookUp:
    """Return the operators of a part that rows of another part are looked up in."""
    found = operator_of(node, evaluation)
    if isinstance(found, Constant | ExistingGraphs):
        return found
    if is_of_stored(node, evaluation.clause) and is_explorable(node, possible_variables(other)):
        return Explored(node, found, evaluation)
    shared = certain_variables(node) & possible_variables(other)
    return Kept(found, tuple(sorted(shared, key=str)))


def _contents(left: LookUp, right: LookUp, stored: BatchSet) -> tuple[ZSet, ZSet]:
    """Return the contents of two sides. Beside windows, a stored graph on the right is looked up for the rows of the
    left side: these begin anew more often, and are few beside it."""
    rows = left.begin(stored)
    if isinstance(right, Explored) and right.evaluation.leaf is not None:
        return rows, right.compatible_with(rows.table, Change(stored, stored, EMPTY, EMPTY), Side.AFTER)
    return rows, right.begin(stored)


def operators_of(top: Operator) -> Iterator[tuple[int, Operator]]:
    """Iterate over the operators from the top one down, with their depth."""

    def below(operator: Operator, depth: int) -> Iterator[tuple[int, Operator]]:
        yield depth, operator
        for child in operator.children:
            yield from below(child, depth + 1)

    return below(top, 0)


def operator_lines(top: Operator, *, analyze: bool = True) -> list[str]:
    """Return the operators as text, a line each. analyze: with the bytes that each keeps, and the rows of its last
    change."""
    lines = list[str]()
    for depth, operator in operators_of(top):
        figures = f": {operator.touched} rows changed last, {operator.kept_bytes} bytes kept" if analyze else ""
        lines.append(f"{'  ' * depth}{operator.kind}{figures}")
    return lines
