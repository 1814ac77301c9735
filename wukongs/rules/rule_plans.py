"""RulePlan: the queries by which one rule is evaluated, from all data or from what has changed.

A derivation that is new uses a triple that is new. So there is one *way* for each triple pattern of the body: the
pattern is matched with the changed triples alone, in columns, and the rest of the body is explored from these rows. A
NOT EXISTS has a way for each of its patterns, too: from there the whole body is explored, to see what its change has
let in or shut out. The *check* explores the body from given heads, and so tells which of these still follow.

A body that is no list has no ways: followed_bodies.py follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.algebra import (
    Bgp,
    DatasetClause,
    Exists,
    Extend,
    Filter,
    Group,
    Join,
    Node,
    Project,
    Query,
    TriplePattern,
)
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.scope import certain_variables, expression_variables
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.walk import parts_of
from wukongs.incremental.versions import Evaluation
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import answer
from wukongs.query.limits import Limits
from wukongs.query.operators import operators
from wukongs.query.plans import plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.rows import filled
from wukongs.query.terms.query_terms import ConstantIds, QueryTerms, TermKeeper
from wukongs.rules.changing_graph import ChangingGraph, Read
from wukongs.rules.followed_bodies import FollowedBody, Matched, Part, marked
from wukongs.rules.program import Rule, reads_of
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, INLINE_MARK, UNBOUND, BoolArray, Int64Array
from wukongs.store.quads import NO_QUADS, Quads, joined, taken

SEEDS_MAX = 1 << 18
"""So many rows are explored together, so that the tables between stay small."""
_CLAUSE = DatasetClause()


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A query over stored graphs, and what it selects. patterns: all that it asks, if it is triple patterns alone."""

    query: Query
    variables: tuple[Variable, ...]
    patterns: FilteredBgp | None


class Reader:
    """Evaluates bodies over reads of the stored graph, within the limits of one propagation. keeper: knows the ids of
    terms, and makes new ones known; terms: makes those of one evaluation."""

    def __init__(
        self, keeper: TermKeeper, terms: Callable[[], QueryTerms], default_graph: int, memo: PlanMemo, limits: Limits
    ) -> None:
        self.constants = ConstantIds(keeper, {iri(DEFAULT_GRAPH_IRI): default_graph})
        self._memo = memo
        self._keeper = keeper
        self.terms = terms
        self.limits = limits
        self._kept: dict[Term | None, tuple[Read, Dataset]] = {}

    def solve(
        self, question: Question | Part, over: Read, into: Term | None, seeds: BindingTable
    ) -> Iterator[BindingTable]:
        """Yield the solutions of a query that agree with some of the seeds, in tables. Raises QueryTimeout,
        BudgetExceeded."""
        if isinstance(question, Part):
            terms, mark = self.terms(), self.limits.mark()
            evaluation = Evaluation(_CLAUSE, self.constants, terms, self.limits)
            yield self.known(question.solutions(evaluation, over.batches, seeds), terms)
            self.limits.back_to(mark, 0)
            return
        known, dataset = self._kept.get(into, (None, None))
        if dataset is None or known is not over or over.divided is not None:  # more may have been fetched since
            dataset = Dataset(_CLAUSE, over.batches, {}, self.constants, into, over.divided)
            self._kept[into] = over, dataset
        query, names, limits = question.query, question.variables, self.limits
        mark = limits.mark()
        for start in range(0, seeds.length, SEEDS_MAX):
            part = (
                seeds
                if seeds.length <= SEEDS_MAX
                else seeds.take(np.arange(start, min(seeds.length, start + SEEDS_MAX)))
            )
            table = self._explored(question, dataset, part)
            if table is None:
                terms = self.terms()
                found = answer(query, dataset, terms, limits, self._memo, "", given=part)
                table = self.known(BindingTable(names, found.columns, found.length), terms)
            yield table
            limits.back_to(mark, 0)  # by then it has become triples

    def _explored(self, question: Question, dataset: Dataset, seeds: BindingTable) -> BindingTable | None:
        """Return the solutions of triple patterns without anything around them: rounds with few rows are made of this.
        None: the question has more."""
        wanted = question.patterns
        if wanted is None or not wanted.bgp.patterns:
            return None if wanted is None else seeds
        route = self._memo.route(wanted, seeds.variables, seeds.length, dataset)
        if route.plan.constants:
            return None
        table = seeds
        run = plan_runner.run if dataset.completion is None else dataset.completion.run
        for segment in route.segments:
            table = (
                run(segment.lowered, table, dataset, self.limits)
                if table.length
                else BindingTable.empty(segment.lowered.variables)
            )
        return table

    def known(self, table: BindingTable, terms: QueryTerms) -> BindingTable:
        """Make the terms that expressions have computed known for ever."""
        if not terms.has_computed:
            return table
        columns = tuple(_kept_terms(column, terms, self._keeper) for column in table.columns)
        return BindingTable(table.variables, columns, table.length)


def _kept_terms(column: Int64Array, terms: QueryTerms, keeper: TermKeeper) -> Int64Array:
    distinct, places = np.unique(column, return_inverse=True)
    hashed = np.flatnonzero((distinct >= 0) & (distinct & INLINE_MARK == 0))
    distinct[hashed] = keeper.keep_all(terms.texts(distinct[hashed]))
    kept: Int64Array = distinct[places]
    return kept


@dataclass(frozen=True, slots=True)
class Way:
    """From changed triples that match a pattern, by these of its variables, to the heads that a query gives."""

    pattern: TriplePattern
    seeds: tuple[Variable, ...]
    question: Question


class RulePlan:
    """rule: the rule; graph: the id of the graph that it reads and concludes into."""

    def __init__(self, rule: Rule, keeper: TermKeeper, default_graph: int) -> None:
        self.rule = rule
        self._ids: dict[Term, int] = {}
        self.graph = default_graph if rule.into is None else keeper.keep(rule.into.text)
        self._bound = frozenset(variable for pattern in rule.patterns for variable in pattern.variables())
        self._bound |= frozenset(variable for table in rule.tables for variable in table.variables)
        parts = [part for pattern, _, _ in reads_of(rule) for part in parts_of(pattern)]
        for part in (*parts, *parts_of((rule.head, rule.where))):
            if isinstance(part, Term):
                self._ids[part] = keeper.keep(part.text)
        self.followed: FollowedBody | None = None
        """Follows a body that is no list; None: it is one."""
        self.heads: Question | Part
        """The heads; of an aggregation for given keys."""
        self.body: Question | Part
        """All variables of the body, before it is grouped."""
        self.matched: tuple[Matched, ...] = tuple((pattern, None) for pattern in rule.patterns)
        """The parts that a solution of the body is made of."""
        self.groups: Question | Part
        """The heads of an aggregation, with the keys of their groups."""
        self.ways = self.shut_out = self.let_in = list[Way]()
        self._subject_may_be_literal = not self._is_node(rule.head.subject)
        self._predicate_may_be_other = not self._is_predicate(rule.head.predicate)
        if rule.where is not None:
            self._plan_part(rule.where)
        else:
            self._plan_list()

    def _plan_part(self, where: Node) -> None:
        certain = certain_variables(where)
        self.followed = FollowedBody(where)
        self._given = self.keys = tuple(v for v in self.rule.head.variables() if v in certain)
        self.heads = self.groups = Part(where, self._given)
        below = where
        if self.rule.aggregation is not None:
            below = next(part for part in parts_of(where) if isinstance(part, Group)).pattern
            self.keys = tuple(v for v in self.rule.aggregation.keys if v in certain_variables(below))
        below, self.matched = marked(below)
        self.body = Part(below, self.keys)

    def _plan_list(self) -> None:
        rule = self.rule
        wanted = rule.head.variables() if rule.aggregation is None else rule.aggregation.keys
        self.ways = [
            Way(pattern, pattern.variables(), _select(_body(rule, _without(rule.patterns, at)), wanted))
            for at, pattern in enumerate(rule.patterns)
        ]
        self.whole = _select(_body(rule, rule.patterns), wanted)
        anyway = _select(_body(rule, rule.patterns, absent=()), wanted)
        negated = [one for found in rule.absent for one in absent_patterns(found)]
        self.shut_out = [Way(one, self._shared(one), anyway) for one in negated]
        """From triples that match a NOT EXISTS to the heads that may follow no more."""
        self.let_in = [Way(one, self._shared(one), self.whole) for one in negated]
        """From triples that matched a NOT EXISTS to the heads that may follow now."""
        self.heads = self.whole if rule.aggregation is None else _select(_grouped(rule), rule.head.variables())
        self.body = _select(_body(rule, rule.patterns), _all_variables(rule))
        self.groups = self.heads
        if rule.aggregation is not None:
            self.groups = _select(_grouped(rule), tuple(dict.fromkeys((*wanted, *rule.head.variables()))))
        self.keys = () if rule.aggregation is None else tuple(v for v in wanted if v in self._bound)
        """The keys of groups but for those that a BIND computes, which cannot be given."""
        self._given = tuple(
            v for v in rule.head.variables() if v in (self._bound if rule.aggregation is None else self.keys)
        )

    def _shared(self, pattern: TriplePattern) -> tuple[Variable, ...]:
        return tuple(variable for variable in pattern.variables() if variable in self._bound)

    def _is_node(self, part: Term | Variable) -> bool:
        is_subject = any(part in (pattern.subject, pattern.predicate) for pattern in self.rule.patterns)
        return isinstance(part, Term) or is_subject

    def _is_predicate(self, part: Term | Variable) -> bool:
        return isinstance(part, Term) or any(part == pattern.predicate for pattern in self.rule.patterns)

    @property
    def concludes_triples(self) -> bool:
        """Whether no head can have a literal as its subject, or another term than an IRI as its predicate."""
        return not (self._subject_may_be_literal or self._predicate_may_be_other)

    @property
    def head_predicate(self) -> int | None:
        """The id of the predicate of its conclusions, None: any."""
        predicate = self.rule.head.predicate
        return self._ids[predicate] if isinstance(predicate, Term) else None

    def id_of(self, term: Term) -> int:
        """Return the id of a term of the rule."""
        return self._ids[term]

    def graph_of(self, pattern: TriplePattern) -> int:
        return self._ids[pattern.graph] if isinstance(pattern.graph, Term) else self.graph

    # --- from triples to rows -----------------------------------------------------------------------------------------

    def match(self, pattern: TriplePattern, quads: Quads, seeds: tuple[Variable, ...]) -> BindingTable:
        """Return the distinct bindings of some variables of a pattern by the quads that match it."""
        is_match, columns = self._matches(pattern, quads)
        rows = np.flatnonzero(is_match)
        if not seeds:
            return BindingTable.unit() if len(rows) else BindingTable.empty()
        found = BindingTable(seeds, tuple(columns[variable][rows] for variable in seeds), len(rows))
        return found if len(seeds) == len(columns) else operators.distinct(found)

    def _matches(self, pattern: TriplePattern, quads: Quads) -> tuple[BoolArray, dict[Variable, Int64Array]]:
        """Mark the quads that match a pattern, bool[n]; return also where its variables are."""
        is_match = np.asarray(quads[0] == self.graph_of(pattern))
        columns: dict[Variable, Int64Array] = {}
        parts = pattern.subject, pattern.predicate, pattern.object
        for part, column in zip(parts, quads[1:], strict=True):
            if isinstance(part, Term):
                is_match &= column == self._ids[part]
            elif part in columns:
                is_match &= column == columns[part]
            else:
                columns[part] = column
        return is_match, columns

    def may_be_heads(self, quads: Quads) -> BoolArray:
        """Mark the quads that match the head. bool[n]"""
        return self._matches(self.rule.head, quads)[0]

    def given_heads(self, quads: Quads) -> BindingTable:
        """Return the distinct bindings by which the check begins, for quads that may be heads."""
        return self.match(self.rule.head, quads, self._given)

    def made(self, table: BindingTable, reader: Reader) -> Quads:
        """Return the heads of rows, repeats included; those that are no triples are left out."""
        quads = self.instances(self.rule.head, table)
        wanted = np.ones(table.length, np.bool_)
        for column in quads[1:]:
            wanted &= column != UNBOUND
        if self._subject_may_be_literal:
            wanted &= _begins_with(quads[1], b"<_", reader)
        if self._predicate_may_be_other:
            wanted &= _begins_with(quads[2], b"<", reader)
        return taken(quads, wanted)

    def instances(self, pattern: TriplePattern, table: BindingTable) -> Quads:
        """Return the triple that a pattern becomes in each row."""
        subjects, predicates, objects = (
            filled(table.length, self._ids[part]) if isinstance(part, Term) else table.column(part)
            for part in (pattern.subject, pattern.predicate, pattern.object)
        )
        return filled(table.length, self.graph_of(pattern)), subjects, predicates, objects

    # --- from changes to heads ----------------------------------------------------------------------------------------

    def from_changes(self, ways: Sequence[Way], quads: Quads, over: Read, reader: Reader) -> Quads:
        """Return the heads, or the keys of groups as heads would need them, that ways lead to from changed quads."""
        return joined([self.made(table, reader) for table in self.rows_from(ways, quads, over, reader)])

    def rows_from(self, ways: Sequence[Way], quads: Quads, over: Read, reader: Reader) -> Iterator[BindingTable]:
        for way in ways:
            seeds = self.match(way.pattern, quads, way.seeds)
            if seeds.length:
                yield from reader.solve(way.question, over, self.rule.into, seeds)

    def touched(self, come: Quads, gone: Quads, before: Read, now: Read, reader: Reader) -> BindingTable:
        """Return the distinct keys of the groups of an aggregation that changes may have altered, but for keys that a
        BIND computes."""
        ways = (*self.ways, *self.shut_out)
        tables = [
            table
            for quads in (come, gone)
            for over in (now, before)
            for table in self.rows_from(ways, quads, over, reader)
        ]
        if not self.keys:
            return BindingTable.unit() if any(table.length for table in tables) else BindingTable.empty()
        found = BindingTable.empty(self.keys)
        for table in tables:
            found = operators.union(found, operators.project(table, self.keys), reader.limits.rows_max)
        return operators.distinct(found)

    def heads_of(self, seeds: BindingTable, over: Read, reader: Reader) -> Quads:
        """Return the heads that follow in one step and agree with some rows."""
        if not seeds.length:
            return NO_QUADS
        return joined([self.made(table, reader) for table in reader.solve(self.heads, over, self.rule.into, seeds)])

    # --- a body that is no list ---------------------------------------------------------------------------------------

    def begin(self, before: Read, reader: Reader) -> None:
        """Be about to follow a change."""
        if self.followed is not None:
            self.followed.begin(before.batches, reader.constants, reader.terms(), reader.limits)

    def forget(self) -> None:
        """Keep nothing from one change to the next."""
        if self.followed is not None:
            self.followed.forget()

    def all_heads(self, graph: ChangingGraph, reader: Reader) -> Quads:
        """Return the heads that follow in one step from a graph as it is now."""
        if self.followed is None:
            return self.heads_of(BindingTable.unit(), graph.now, reader)
        return self._made_of(self.followed, self.followed.content(graph), reader)

    def lost_heads(self, graph: ChangingGraph, reader: Reader) -> Quads:
        """Return the heads that have lost a derivation since they were asked for last."""
        assert self.followed is not None
        return self._made_of(self.followed, self.followed.lost(graph), reader)

    def gained_heads(self, graph: ChangingGraph, reader: Reader) -> Quads:
        """Return the heads that have a derivation more, by all changes until now."""
        assert self.followed is not None
        return self._made_of(self.followed, self.followed.gained(graph), reader)

    def _made_of(self, followed: FollowedBody, rows: BindingTable, reader: Reader) -> Quads:
        if not rows.length:
            return NO_QUADS
        return self.made(reader.known(rows, followed.evaluation.terms), reader)


def _all_variables(rule: Rule) -> tuple[Variable, ...]:
    inside = [variable for pattern in rule.patterns for variable in pattern.variables()]
    inside += [variable for table in rule.tables for variable in table.variables]
    return tuple(dict.fromkeys([*inside, *(variable for variable, _ in rule.binds)]))


def absent_patterns(found: Exists) -> tuple[TriplePattern, ...]:
    """Return the triple patterns of a NOT EXISTS."""
    node = found.pattern
    while isinstance(node, Filter):
        node = node.pattern
    assert isinstance(node, Bgp), node
    return node.patterns


def _without(patterns: tuple[TriplePattern, ...], at: int) -> tuple[TriplePattern, ...]:
    return (*patterns[:at], *patterns[at + 1 :])


def _body(rule: Rule, patterns: tuple[TriplePattern, ...], absent: Sequence[Exists] | None = None) -> Node:
    node: Node = Bgp(patterns)
    for table in rule.tables:
        node = Join(table, node)
    assigned = frozenset(variable for variable, _ in rule.binds)
    late = [one for one in rule.conditions if expression_variables(one) & assigned]
    for condition in rule.conditions:
        if condition not in late:
            node = Filter(condition, node)
    for variable, expression in rule.binds:
        node = Extend(node, variable, expression)
    for condition in (*late, *(rule.absent if absent is None else absent)):
        node = Filter(condition, node)
    return node


def _grouped(rule: Rule) -> Node:
    assert rule.aggregation is not None
    node: Node = Group(_body(rule, rule.patterns), rule.aggregation.keys, rule.aggregation.aggregates)
    for variable, expression in rule.aggregation.binds:
        node = Extend(node, variable, expression)
    for condition in rule.aggregation.conditions:
        node = Filter(condition, node)
    return node


def _select(node: Node, wanted: tuple[Variable, ...]) -> Question:
    query = Query("select", Project(node, wanted), tuple(variable.name for variable in wanted), (), _CLAUSE)
    return Question(query, wanted, FilteredBgp(node) if isinstance(node, Bgp) else None)


def _begins_with(column: Int64Array, bytes_: bytes, reader: Reader) -> BoolArray:
    """Tell of terms whether their texts begin with one of some bytes."""
    distinct, places = np.unique(column, return_inverse=True)
    firsts = reader.terms().first_bytes(distinct)
    kept: BoolArray = np.isin(firsts, list(bytes_))[places]
    return kept
