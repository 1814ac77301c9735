"""Maintained: the rows of a registered query's windows, changed from firing to firing instead of evaluated anew.

A window that moves on by a step keeps most of its tuples. Matches of triple patterns are kept with the time at which
each ends (window_join.py), so a change costs the tuples that have arrived and expired. The operators of live views
follow it: groups, DISTINCT, and where few rows change, joins, OPTIONAL, MINUS, EXISTS and UNION (operators.py). The
executor evaluates the rest from their content. ISTREAM and DSTREAM need no more than the change, if the rest is linear:
filters, BIND, projections.

Beside patterns over windows stand parts that read stored graphs alone, such as an OPTIONAL that looks names up. These
are those of live views, which keep nothing of triple patterns, and follow the change of the stored graph between the
SNs of two firings. LIMIT keeps the first rows in order (cuts.py), also of groups and of distinct rows where these are
many.

An error leaves a part out of step: its patterns are evaluated anew at the next firing, or what is above them begins
anew with all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from operator import not_
from typing import NamedTuple, TypeAlias, TypeGuard, cast

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
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Query,
    Service,
    Slice,
    TripleParts,
    Union,
)
from wukongs.csparql.exploration_order import explorable_operands, is_explorable
from wukongs.csparql.functions import depends_on_moment
from wukongs.csparql.scope import exists_patterns, is_stored, node_expressions, possible_variables
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import join_operands, parts_of
from wukongs.errors import BudgetExceeded
from wukongs.incremental.counted import Counted
from wukongs.incremental.cuts import Cut, below_cut, has_exists
from wukongs.incremental.groups import Anew, Grouped, is_argument
from wukongs.incremental.leaves import DeltaJoin, is_of_stored, names_of
from wukongs.incremental.lookups import Kept, Operator, Whole
from wukongs.incremental.operators import NoOperator, operator_lines, operator_of, operators_of
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.window_join import RowWise, WindowJoin
from wukongs.incremental.zset import ZSet
from wukongs.query.binding_table import BindingTable, TermSpace
from wukongs.query.execution.answer import within
from wukongs.query.expressions.expressions import evaluate, holds
from wukongs.query.limits import Limits, current
from wukongs.query.mechanisms import Mechanism, Used
from wukongs.query.operators import operators as tables
from wukongs.query.plans.compiled import CompiledPatterns
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.deltas import DeltaClause, is_worth_it
from wukongs.query.plans.window_changes import Moves
from wukongs.query.refusals import Refusals
from wukongs.query.rows import places_of
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.batch_set import EMPTY, BatchSet

PARTS_MAX = 8
"""Rows are kept of at most this number of parts of a query."""
CUT_MIN = 5_000
"""The first rows of LIMIT are kept if so many rows are below, while there are half as many."""
CUT_NUMBERS_MIN = 80_000
"""In the place of CUT_MIN for groups and distinct rows in the order of numbers: the first ones are soon found among
all, which are kept."""
STAY_MIN = 20
"""Rows are followed by DISTINCT and by joins once there are so many for each that was inserted or deleted, while there
are half as many: a row that is followed costs more than one that is evaluated with all others."""
JOINED_MIN, COMPARED_MIN = 20_000, 2_000
"""Joins, OPTIONAL and MINUS follow the change of so many rows, while there are half as many; for ISTREAM and DSTREAM,
which else compare the texts of all rows, of fewer."""
MARKED_MIN = 40_000
"""In the place of JOINED_MIN where rows are marked by EXISTS, and not grouped: anew, EXISTS is asked once for each
distinct binding."""
COMPUTED_MIN = 1 << 14
"""When so many terms were computed, and twice as many as all rows needed the last time, all begins anew."""
WIDE = 8
"""A part is wide if its leaves have so many times the rows that the executor begins with."""

Linear: TypeAlias = Filter | Extend | Project
Difference: TypeAlias = tuple[BindingTable, BindingTable]
"""Rows that were inserted and deleted since the firing before. A row may be among both."""
_NOTHING = Change(EMPTY, EMPTY, EMPTY, EMPTY)
_FOLLOWED = frozenset(
    (
        *("window join", "linear", "union", "join", "flag", "mark", "distinct", "content", "groups", "reduce", "kept"),
        *("constant", "top-k", "explored"),
    )
)
"""The kinds of operators that read nothing but the rows below them, or stored graphs; beside those of DeltaJoin."""
_JOINS = frozenset(("join", "flag", "mark", "reduce"))
_OF_STORED = ("delta join", "per graph", "search")
"""How the kinds of operators begin that follow the change of stored graphs."""


@dataclass(frozen=True, slots=True)
class Known:
    """The solutions of a node at a firing. node: None for a query that kernels answer alone; change: None if all may
    have changed; used: the mechanisms that have found them."""

    node: Node | None
    table: BindingTable
    change: Difference | None
    used: Used


class StoredChange(NamedTuple):
    """The stored graph as a firing reads it, and its change since the firing before; None: that is not known."""

    stored: BatchSet
    change: Change | None


class NotKept(Exception):
    """Groups cannot be kept exactly. Only this module sees this error."""


def _not_kept(_: Kept) -> Anew:
    raise NotKept


_MECHANISMS = {
    "groups": Mechanism.GROUPS,
    "distinct": Mechanism.DISTINCT,
    "content": Mechanism.JOINS,
    "top-k": Mechanism.LIMITS,
}


@dataclass(slots=True, eq=False)
class Part:
    """A part of a query whose rows are kept.

    node: of the algebra; None for a query that kernels answer alone.
    top: the operator that has its rows.
    joins: the leaves below it.
    alone: those of them whose rows the executor would find without other rows."""

    node: Node | None
    top: WindowJoin | Grouped | Counted | Cut
    joins: tuple[WindowJoin, ...]
    alone: tuple[WindowJoin, ...]
    cut: Cut | None = None
    """LIMIT above the rows of `top`, which are groups or distinct ones."""
    estimated_rows: float = 0.0
    """The rows of all steps of the plans that evaluate the patterns of `alone` anew."""
    is_split: bool = False
    """Whether patterns below it are kept that the executor does not find by themselves (see _split)."""
    is_wide: bool = False
    """Whether the leaves have many more rows than the executor would look at: then only those of `alone` are kept."""
    _is_in_step: bool = False
    """Whether what is above the leaves has followed their last change."""
    _is_cut_in_step: bool = False
    """Whether LIMIT has, too."""
    _is_of_numbers: bool = False
    """Whether it was seen to go by the order of numbers."""
    _refusals: Refusals = field(default_factory=Refusals)
    _refusals_above: Refusals = field(default_factory=Refusals)
    _kinds: frozenset[str] = field(init=False)
    """The kinds of operators from the top down."""
    reads_stored: bool = field(init=False)
    """Whether a part of it reads stored graphs alone."""
    _searches: bool = field(init=False)
    """Whether that has a path."""

    def __post_init__(self) -> None:
        if isinstance(self.top, Grouped | Counted) and self.top.kind != "content":
            for join in self.joins:
                join.is_followed = self.top.children == (join,)
        self._kinds = frozenset(operator.kind for _, operator in operators_of(self.top))
        self.reads_stored = any(kind.startswith(_OF_STORED) for kind in self._kinds)
        self._searches = any(kind.startswith("search") for kind in self._kinds)

    @property
    def kept(self) -> tuple[WindowJoin, ...]:
        """The leaves whose rows are kept."""
        return self.alone if self.is_wide else self.joins

    @property
    def is_ready(self) -> bool:
        """Whether its rows can be had at this firing."""
        return all(join.is_ready for join in self.kept)

    @property
    def kept_bytes(self) -> int:
        return sum(one.kept_bytes for _, one in operators_of(self.shown))

    @property
    def shown(self) -> Operator:
        """The operator whose rows the last firing has used."""
        return self.cut if self.cut is not None and self._is_cut_in_step else self.top

    def begin_firing(self) -> bool:
        """Be about to fire; tell whether rows are to be kept at this firing, if they can be."""
        for join in self.joins:
            join.skip()
        self._refusals_above.passed()
        if not self._refusals.passed():
            return False
        if self.is_split and self.estimated_rows < JOINED_MIN:
            return False
        return is_worth_it(self.estimated_rows)

    def fall_behind(self) -> None:
        """Note that what is above the leaves has not followed them."""
        self._is_in_step = False

    def forget(self) -> None:
        """Keep nothing."""
        self._is_in_step = self._is_cut_in_step = self._is_of_numbers = False
        for _, operator in operators_of(self.cut or self.top):
            if isinstance(operator, WindowJoin | Counted | Cut | Grouped | Kept):
                operator.forget()

    def advance(
        self,
        terms: TermSpace | None,
        limits: Callable[[], Limits],
        stored: StoredChange | None = None,
        *,
        wants_change: bool,
    ) -> list[Known]:
        """Change the rows by what has arrived and expired; return them, or those of the patterns below. None of them:
        they are to be evaluated anew. terms: None if nothing is evaluated; stored: what it reads of the stored graphs.
        Raises QueryTimeout."""
        is_in_step, self._is_in_step = self._is_in_step, False
        if not self.is_ready:
            return []
        try:
            for join in self.kept:
                if join.advance(terms, limits) is None:
                    self.forget()
                    return []
            if self.node is None:  # no other estimate is made while its rows are maintained
                self.estimated_rows = self.joins[0].join.estimated_rows
            if not self.reads_stored:
                stored = StoredChange(EMPTY, _NOTHING)
            found = None
            if not self.is_wide and stored is not None:
                found = self._followed(stored, is_in_step=is_in_step, wants_change=wants_change)
            if self.cut is not None and not self._is_cut_in_step:
                self.cut.forget()
        except (BudgetExceeded, MemoryError):  # evaluating it anew may need less
            self._refusals.add()
            self.forget()
            return []
        if found is not None:
            self._is_in_step = True
            return [found]
        if self.is_split or not all(join.keeps_rows for join in self.alone):
            return []
        rows = [_of_join(join, wants_change=wants_change) for join in self.alone]
        if self.node is None:  # DISTINCT
            rows = [replace(one, table=tables.distinct(one.table), change=None) for one in rows]
        return rows

    def _followed(self, stored: StoredChange, *, is_in_step: bool, wants_change: bool) -> Known | None:
        """Return the rows of the part; None if they are not worth following, or cannot be."""
        top = self.top
        if isinstance(top, WindowJoin):
            return _of_join(top, wants_change=wants_change)
        moves = [join.moves for join in self.joins if join.moves is not None]
        of_stored = stored.change
        goes_on = is_in_step and of_stored is not None and not any(one.is_anew for one in moves)
        is_cut, self._is_cut_in_step = self._is_cut_in_step and goes_on, False
        if self._refusals_above.left or not self._is_worth_following(moves, goes_on=goes_on, wants_change=wants_change):
            return None
        if is_cut and self.cut is not None and self._is_worth_cutting(moves, goes_on=True):
            top = self.cut
        difference, used = None, _ways(self.joins)
        try:
            if not goes_on or of_stored is None:
                top.begin(stored.stored)
            elif isinstance(top, Counted | Cut):
                change = top.change(of_stored)
                difference = _difference(change) if wants_change else None
            elif not top.follow(of_stored, notes_before=wants_change):
                raise NotKept
            elif wants_change and top.node.keys:
                difference = top.last_rows()
            if goes_on:
                used |= {_MECHANISMS[top.kind], _MECHANISMS[self.top.kind]}
                used |= {Mechanism.SEARCHED} if self._searches else set()
            if self.cut is not None and top is not self.cut and self._is_worth_cutting(moves, goes_on=False):
                self.cut.resume(stored.stored)
                self._is_of_numbers = self.cut.is_of_numbers
                top, difference = self.cut, None
        except NotKept:
            self._refusals_above.add()
            return None
        self._is_cut_in_step = top is self.cut
        current().hold(top.kept_bytes + (self.top.kept_bytes if top is self.cut else 0))
        return Known(top.node if isinstance(top, Cut) else self.node, top.solutions(), difference, used)

    def _is_worth_following(self, moves: Sequence[Moves], *, goes_on: bool, wants_change: bool) -> bool:
        """Tell whether what is above the leaves follows their change."""
        rows = (2 if goes_on else 1) * sum(join.count for join in self.alone)
        kinds = self._kinds
        if kinds & _JOINS:
            least = MARKED_MIN if "mark" in kinds and "groups" not in kinds else JOINED_MIN
            if rows < (COMPARED_MIN if wants_change else least):
                return False
        elif "groups" in kinds:
            return True
        elif "top-k" in kinds and rows < CUT_MIN:
            return False
        elif "content" in kinds and not wants_change:
            return False  # all is linear
        return STAY_MIN * sum(map(len, moves)) <= rows

    def _is_worth_cutting(self, moves: Sequence[Moves], *, goes_on: bool) -> bool:
        """Tell whether LIMIT follows the change of the groups or distinct rows, as many as these are."""
        assert isinstance(self.top, Grouped | Counted), self.node
        rows = (2 if goes_on else 1) * self.top.count
        return rows >= (CUT_NUMBERS_MIN if self._is_of_numbers else CUT_MIN) and STAY_MIN * sum(map(len, moves)) <= rows


def _of_join(join: WindowJoin, *, wants_change: bool) -> Known:
    """Return the rows of patterns."""
    assert join.moves is not None, join.rows
    shown = join.variables
    change = None
    if wants_change and not join.moves.is_anew:
        change = _difference(join.change(_NOTHING).project(shown))
    return Known(join.node, join.table(shown), change, _ways((join,)))


def _ways(joins: Sequence[WindowJoin]) -> Used:
    moved = [(join.deltas, join.moves) for join in joins if join.deltas is not None and join.moves is not None]
    return {Mechanism.BINDINGS_ANEW if moves.is_anew else deltas.mechanism for deltas, moves in moved}


def _difference(change: ZSet) -> Difference:
    """Return the rows of a change that were inserted and deleted, each as often as its weight says."""
    inserted, deleted = (one.take(np.flatnonzero(one.weights > 0)).repeated() for one in (change, change.negated()))
    return inserted, deleted


class Maintained:
    """The parts of one query. Used by the thread that fires, while the table of windows is unchanged.

    evaluation: of what is above the patterns.
    clause_of: returns how the matches of patterns are kept, None if they cannot be."""

    def __init__(
        self,
        query: Query,
        plans: CompiledPlans,
        evaluation: Evaluation,
        clause_of: Callable[[CompiledPatterns], DeltaClause | None],
    ) -> None:
        self._query, self._plans, self._evaluation, self._clause_of = query, plans, evaluation, clause_of
        self._terms: QueryTerms | None = None
        self._computed_max = COMPUTED_MIN
        self._is_new = True
        """Whether the terms have those of one firing only."""
        self.parts: list[Part] = []
        self.stored: StoredChange | None = None
        """The stored graphs as parts read them at the firing that it stands at; None: they are not known."""
        self._is_estimated = plans.whole is not None
        """Whether it is known what evaluating the parts anew takes."""
        self._estimated_at: list[int] | None = None
        """The sizes of the windows for which it was estimated last."""
        if plans.whole is not None:
            variables = tuple(dict.fromkeys(plans.whole.variables))
            join = WindowJoin(None, RowWise(plans.whole.wanted), plans.whole, variables)
            top = Counted(variables, (join,)) if plans.is_distinct else join
            self.parts = [Part(None, top, (join,), (join,))]

    @property
    def is_ready(self) -> bool:
        """Whether rows of a part can be had at this firing."""
        return any(part.is_ready for part in self.parts)

    @property
    def reads_stored(self) -> bool:
        """Whether a part reads stored graphs alone somewhere."""
        return any(part.reads_stored for part in self.parts)

    @property
    def keeps_rows(self) -> bool:
        """Whether rows of the firing before are kept."""
        return any(join.count for part in self.parts for join in part.joins)

    @property
    def is_at_rest(self) -> bool:
        """Whether no rows are maintained, and by the estimates none will be."""
        return not any(part.reads_stored or part.kept_bytes or is_worth_it(part.estimated_rows) for part in self.parts)

    def estimate(self, explored: float | None = None) -> None:
        """Find the parts, and estimate what evaluating them anew takes, over what the windows have now: again when a
        size has changed by a factor. explored: rows of all steps of the plan of the query, if they are known."""
        whole = self._plans.whole
        if whole is not None:
            if explored is None:
                whole.is_current()
                explored = whole.estimated_rows
            self.parts[0].estimated_rows = explored
            return
        sizes = self._plans.sizes
        if sizes is not None and sizes == self._estimated_at:
            return
        if not (self._is_estimated or self._query.form == "ask" or depends_on_moment(self._query.pattern)):
            self.parts = list(islice(self._parts_in(self._query.pattern), PARTS_MAX))
        self._is_estimated = True
        for part in self.parts:
            rows = {join: self._plans.estimated_rows(join.rows.wanted) for join in part.joins}
            part.estimated_rows = sum(rows[join] for join in part.alone)
            is_wide = sum(rows.values()) > WIDE * part.estimated_rows
            if is_wide != part.is_wide:
                part.forget()
                part.is_wide = is_wide
        self._estimated_at = sizes

    def fall_behind(self) -> None:
        """Take no part in a firing."""
        self.stored = None
        for part in self.parts:
            part.fall_behind()

    def advance(self, terms: QueryTerms | None, limits: Callable[[], Limits], *, wants_change: bool) -> list[Known]:
        """Change the rows of all parts whose rows can be had; return them. terms: as `renewed` returns them, None for
        a query that kernels answer alone. Raises QueryTimeout."""
        found, stored = list[Known](), self.stored
        if not self.is_ready:
            self.fall_behind()
            return found
        self.stored = None
        if terms is None and not self._plans.is_distinct:
            for part in self.parts:
                found += part.advance(None, limits, wants_change=wants_change)
            return found
        own = limits()
        with within(own):
            if terms is not None:
                self._evaluation.terms, self._evaluation.limits = terms, own
            for part in self.parts:
                found += part.advance(terms, lambda: own, stored, wants_change=wants_change)
        return found

    def renewed(self, terms: QueryTerms) -> QueryTerms:
        """Return the terms of a firing, which have what was computed at firings before under the same ids."""
        known = self._terms
        if known is None:
            self._terms = terms
            return terms
        if self._is_new:
            self._computed_max, self._is_new = max(COMPUTED_MIN, 2 * known.computed_count), False
        if known.computed_count > self._computed_max:
            for part in self.parts:
                part.forget()
            self._terms, self._is_new = terms, True
            return terms
        self._terms = known.renewed(terms.reader)
        self._terms.moment = terms.moment
        return self._terms

    def change(self, known: Sequence[Known], terms: TermSpace) -> Difference | None:
        """Return the change of the whole query by those of its parts; None if it needs more than these."""
        if len(known) != 1 or len(self.parts) != 1 or known[0].change is None or self._query.form != "select":
            return None
        nodes = self._linear_above(known[0].node)
        if nodes is None:
            return None
        inserted, deleted = known[0].change
        for node in nodes:
            inserted, deleted = _applied(node, inserted, terms), _applied(node, deleted, terms)
        return inserted, deleted

    def _linear_above(self, below: Node | None) -> Sequence[Linear] | None:
        """Return the nodes above a part, from the inside out; None if one of them is not linear."""
        if below is None:
            return () if len(self._plans.modifiers) == self._plans.is_distinct else None
        node, found = self._query.pattern, list[Linear]()
        while node is not below:
            if not _is_linear(node):
                return None
            found.insert(0, node)
            node = node.pattern
        return found

    def lines(self) -> list[str]:
        """Return the operators of the parts whose rows are kept, a line each. From any thread."""
        kept = [part for part in self.parts if any(join.count for join in part.joins)]
        return [f"kept: {line}" for part in kept for line in operator_lines(part.shown)]

    def forget(self) -> None:
        """Keep nothing."""
        for part in self.parts:
            part.forget()
            for join in part.joins:
                join.deltas = None

    def stats(self) -> dict[str, int]:
        """Return counts and sizes (bytes), nothing if no rows are kept. From any thread."""
        deltas = [join.deltas for part in self.parts for join in part.joins if join.deltas is not None]
        if not deltas:
            return {}
        return {
            "firings_by_deltas": sum(one.ran for one in deltas),
            "matches_kept": sum(one.kept_count for one in deltas),
            "matches_bytes": sum(part.kept_bytes for part in self.parts),
        }

    # --- the parts of a query -----------------------------------------------------------------------------------------

    def _parts_in(self, node: Node) -> Iterator[Part]:
        part = self._part_of(node)
        if part is not None:
            yield part
            return
        for below in _evaluated_alone(node):
            yield from self._parts_in(below)

    def _part_of(self, node: Node) -> Part | None:
        """Return what keeps the rows of a node; None if that cannot be, or only those of a part below it."""
        if RowWise.of(node) is not None:
            join = self._join_of(node)
            if join is not None:
                return Part(node, join, (join,), (join,))
        elif not _may_be_followed(node):
            return None
        if isinstance(node, Slice) and (reduced := _reduced_below(node)) is not None:
            return self._cut_part(node, reduced)
        if any(self._reads_otherwise(one) for one in parts_of(node)):
            return None
        joins, clause, split = list[WindowJoin](), self._evaluation.clause, list[int]()

        def leaf(part: Node) -> Operator | None:
            if is_of_stored(part, clause):
                return DeltaJoin.of(part, self._evaluation)
            join = self._join_of(part)
            if join is None and (apart := _split(part, clause)) is not None:
                first = len(joins)
                found = operator_of(apart, self._evaluation)
                split.extend(id(one.node) for one in joins[first:])
                return found
            joins.extend([] if join is None else [join])
            return join

        self._evaluation.leaf = leaf
        top: Operator | None
        try:
            if isinstance(node, Slice):
                top = _cut_of(node, self._evaluation)
            elif isinstance(node, Group):
                top = Grouped.of(node, self._evaluation, operator_of, _not_kept)
            elif isinstance(node, Distinct) and (rows := _projected_rows(node)) is not None:
                below = leaf(rows)
                top = None if below is None else Counted(names_of(node), (below,))
            else:
                top = operator_of(node, self._evaluation)
        except NoOperator:
            return None
        if top is None or not joins or not all(map(_is_followed, operators_of(top))):
            return None
        if not isinstance(top, Grouped | Counted | Cut):
            top = Counted(names_of(node), (top,), is_distinct=False)
        alone = set(map(id, _found_alone(node)))
        alone.update(split)
        alone_joins = tuple(join for join in joins if id(join.node) in alone)
        return Part(node, top, tuple(joins), alone_joins, is_split=bool(split))

    def _cut_part(self, node: Slice, reduced: Group | Distinct) -> Part | None:
        """Return what keeps the rows of groups or of DISTINCT, and the first of them that LIMIT leaves."""
        part = self._part_of(reduced)
        if part is None:
            return None
        self._evaluation.leaf = lambda one: part.top if one is reduced else None
        cut = Cut(node, (cast("Whole", operator_of(below_cut(node), self._evaluation)),), self._evaluation)
        part.cut = None if cut.wanted is None else cut
        return part

    def _reads_otherwise(self, node: object) -> bool:
        """Return whether a node reads graphs in a way that no operator beside windows follows."""
        if isinstance(node, PerGraph | PathPattern):
            return not is_stored(node.graph, self._evaluation.clause)
        if isinstance(node, LeftJoin) and node.condition is not None and exists_patterns(node.condition):
            return True  # EXISTS may read windows
        return isinstance(node, Service | TripleParts)

    def _join_of(self, node: Node) -> WindowJoin | None:
        """Return what keeps the matches of patterns; None if it is another node, or they cannot be kept."""
        rows = RowWise.of(node)
        if rows is None:
            return None
        join = self._plans.matches_of(rows.wanted.bgp)
        clause = self._clause_of(join)
        while isinstance(node, Extend) and is_argument(node.variable):
            node = node.pattern
        return None if clause is None else WindowJoin(node, rows, join, names_of(node), clause)


def _split(node: Node, clause: DatasetClause) -> Node | None:
    """Return patterns over windows with some over any stored graph (GRAPH ?g) as a join of both; None for other
    nodes."""
    if isinstance(node, Filter) and not exists_patterns(node.condition):
        below = _split(node.pattern, clause)
        return None if below is None else replace(node, pattern=below)
    if not isinstance(node, Bgp):
        return None
    is_open = [isinstance(one.graph, Variable) and is_stored(one.graph, clause) for one in node.patterns]
    parts = (tuple(compress(node.patterns, chosen)) for chosen in (map(not_, is_open), is_open))
    windows, stored = map(Bgp, parts)
    return Join(windows, stored) if windows.patterns and stored.patterns else None


def _is_followed(found: tuple[int, Operator]) -> bool:
    """Return whether an operator, with its depth, has what it needs in a firing."""
    kind = found[1].kind
    return kind in _FOLLOWED or kind.startswith(_OF_STORED)


def _cut_of(node: Slice, evaluation: Evaluation) -> Cut | None:
    """Return the operator of LIMIT above rows of patterns and joins."""
    below = operator_of(below_cut(node), evaluation)
    cut = Cut(node, (below if isinstance(below, WindowJoin) else Kept(below),), evaluation)
    return None if cut.wanted is None else cut


def _reduced_below(node: Slice) -> Group | Distinct | None:
    """Return groups or DISTINCT below LIMIT, with nothing but filters, BIND and projections in between: their rows may
    be few beside those that they are made of, so they are followed without LIMIT, too."""
    below = below_cut(node)
    while _is_linear(below):
        below = below.pattern
    return below if isinstance(below, Group | Distinct) else None


def _is_linear(node: Node) -> TypeGuard[Linear]:
    return isinstance(node, Filter | Extend | Project) and not any(map(exists_patterns, node_expressions(node)))


def _may_be_followed(node: Node) -> bool:
    """Tell whether all that the executor would do with the rows below a node may be worth following."""
    if isinstance(node, Group | Distinct):
        return True
    below, has_flag = below_cut(node) if isinstance(node, Slice) else node, False
    while isinstance(below, Filter | Extend | Project):
        has_flag = has_flag or not _is_linear(below)
        below = below.pattern
    if isinstance(below, Group | Distinct) and (has_flag or not isinstance(node, Slice)):
        return False  # there are few of these to ask EXISTS of, and they are followed by themselves
    if isinstance(node, Slice):
        return not has_exists(node)
    return has_flag or isinstance(below, Join | LeftJoin | Minus | Union)


def _projected_rows(node: Distinct) -> Node | None:
    """Return the patterns, with what is right above them, of which DISTINCT has some columns; None if it is above
    another part, or has a variable that nothing binds."""
    if not isinstance(node.pattern, Project) or RowWise.of(node.pattern.pattern) is None:
        return None
    below = node.pattern.pattern
    return below if possible_variables(below).issuperset(node.pattern.variables) else None


def _evaluated_alone(node: Node) -> Iterator[Node]:
    """Iterate over the nodes right below one that the executor evaluates without the rows of others."""
    match node:
        case Filter(pattern=pattern) | Extend(pattern=pattern) | Project(pattern=pattern) | Distinct(pattern=pattern):
            yield pattern
        case Group(pattern=pattern) | OrderBy(pattern=pattern) | Slice(pattern=pattern):
            yield pattern
        case Union(left=left, right=right):
            yield from (left, right)
        case LeftJoin(left=left, right=right):
            yield from (left,) if is_explorable(right, possible_variables(left)) else (left, right)
        case Minus(left=left):
            yield left
        case Join():
            operands = join_operands(node)
            explored = explorable_operands(operands)
            others = [operand for operand in operands if not any(operand is one for one in explored)]
            yield from others or [operand for operand in operands if RowWise.of(operand) is not None][:1]


def _found_alone(node: Node) -> Iterator[Node]:
    """Iterate over the patterns, with what is right above them, whose rows the executor finds without other rows."""
    if RowWise.of(node) is not None:
        yield node
        return
    for below in _evaluated_alone(node):
        yield from _found_alone(below)


def _applied(node: Linear, table: BindingTable, terms: TermSpace) -> BindingTable:
    match node:
        case Project(variables=variables):
            return tables.project(table, tuple(dict.fromkeys(variables)))
        case Filter(condition=condition):
            return table.take(places_of(holds(condition, table, terms)))
        case Extend(variable=variable, expression=expression):
            return tables.with_column(table, variable, evaluate(expression, table, terms))
