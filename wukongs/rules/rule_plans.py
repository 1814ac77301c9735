"""RulePlan: how one rule is followed and asked: its body in the incremental core, and the triples that solutions make.

From a change of the graph follow heads that may have lost a derivation, and heads that have a new one
(followed_bodies.py). The *check* asks the body from given heads, and so finds which of these still follow.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wukongs.csparql.algebra import Group, TriplePattern
from wukongs.csparql.scope import certain_variables
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import parts_of
from wukongs.incremental.leaves import DeltaJoin
from wukongs.incremental.versions import Change
from wukongs.query.binding_table import BindingTable
from wukongs.query.operators import operators
from wukongs.query.rows import filled
from wukongs.query.terms.query_terms import TermKeeper
from wukongs.rules.changing_graph import ChangingGraph, Read
from wukongs.rules.followed_bodies import FollowedBody, Part, joined_patterns, marked
from wukongs.rules.program import Rule, body_of, reads_of
from wukongs.rules.reader import Reader
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array
from wukongs.store.quads import NO_QUADS, Quads, joined, taken


class RulePlan:
    """rule: the rule.
    graph: the id of the graph that it concludes into.
    node: its body.
    followed: follows the body along the versions of the graph; None: the body is one delta join.
    heads: the body, from variables of the head.
    keys: those of the groups of an aggregation that can be given.
    body: the body, of an aggregation what is grouped, from the keys, with marks (`marked`).
    matched: the patterns that a solution of `body` may be made of."""

    def __init__(self, rule: Rule, keeper: TermKeeper, default_graph: int) -> None:
        self.rule = rule
        self._ids: dict[Term, int] = {}
        self.graph = default_graph if rule.into is None else keeper.keep(rule.into.text)
        parts = [part for pattern, _, _ in reads_of(rule) for part in parts_of(pattern)]
        self.node = node = body_of(rule)
        for part in (*parts, *parts_of((rule.head, node))):
            if isinstance(part, Term):
                self._ids[part] = keeper.keep(part.text)
        self._patterns = joined_patterns(node)
        self._delta: DeltaJoin | None = None
        self._reader: Reader | None = None
        self.followed = FollowedBody(node) if self._patterns is None else None
        certain = certain_variables(node)
        self.keys = tuple(variable for variable in rule.head.variables() if variable in certain)
        self.heads, below = Part(node, self.keys), node
        if rule.aggregation is not None:
            below = next(part for part in parts_of(node) if isinstance(part, Group)).pattern
            self.keys = tuple(v for v in rule.aggregation.keys if v in certain_variables(below))
        below, self.matched = marked(below)
        self.body = Part(below, self.keys)
        self._subject_may_be_literal = not self._is_node(rule.head.subject)
        self._predicate_may_be_other = not self._is_predicate(rule.head.predicate)

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

    def concerns(self) -> Iterator[tuple[int, int | None]]:
        """Yield the graph and the predicate (None: any) of the triples that it reads or concludes."""
        for pattern in (self.rule.head, *(pattern for pattern, _, _ in reads_of(self.rule))):
            predicate = pattern.predicate
            graph = self.graph if pattern is self.rule.head else self.graph_of(pattern)
            yield graph, self._ids[predicate] if isinstance(predicate, Term) else None

    # --- triples and rows ---------------------------------------------------------------------------------------------

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
        is_match, columns = self._matches(self.rule.head, quads)
        rows, given = np.flatnonzero(is_match), self.heads.given
        if not given:
            return BindingTable.unit() if len(rows) else BindingTable.empty()
        found = BindingTable(given, tuple(columns[variable][rows] for variable in given), len(rows))
        return found if len(given) == len(columns) else operators.distinct(found)

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

    # --- heads --------------------------------------------------------------------------------------------------------

    def heads_of(self, seeds: BindingTable, over: Read, reader: Reader) -> Quads:
        """Return the heads that follow in one step and agree with some rows."""
        if not seeds.length:
            return NO_QUADS
        return joined([self.made(table, reader) for table in reader.solve(self.heads, over, seeds)])

    def heads_from(self, change: Change, reader: Reader) -> Quads:
        """Return the heads of the solutions that a change inserts or deletes, repeats included. Only for a body that is
        one delta join."""
        assert self._patterns is not None
        if self._reader is not reader:
            evaluation = reader.new_evaluation() if self.heads.computes else reader.evaluation
            if self._delta is None:
                self._delta = DeltaJoin.around(self._patterns, self.node, evaluation)
            self._delta.evaluation, self._reader = evaluation, reader
        assert self._delta is not None
        mark, found, terms = reader.limits.mark(), list[Quads](), self._delta.evaluation.terms
        for _, rows in self._delta.found(change):
            found.append(self.made(reader.known(rows, terms), reader))
            reader.limits.back_to(mark, 0)  # by then it has become triples
        return joined(found)

    def begin(self, graph: ChangingGraph, reader: Reader) -> None:
        """Be about to follow changes of a graph."""
        if self.followed is not None:
            self.followed.begin(graph, reader.new_evaluation())

    def forget(self) -> None:
        """Keep nothing from one change to the next."""
        if self.followed is not None:
            self.followed.forget()

    def all_heads(self, graph: ChangingGraph, reader: Reader) -> Quads:
        """Return the heads that follow in one step from a graph as it is now."""
        if self.followed is None:
            return self.heads_of(BindingTable.unit(), graph.now, reader)
        return self.made_of(self.followed, self.followed.content(graph), reader)

    def lost_heads(self, graph: ChangingGraph, reader: Reader) -> Quads:
        """Return the heads that have lost a derivation since they were asked for last."""
        assert self.followed is not None
        return self.made_of(self.followed, self.followed.lost(graph), reader)

    def gained_heads(self, graph: ChangingGraph, reader: Reader) -> Quads:
        """Return the heads that have a derivation more, by all changes until now."""
        assert self.followed is not None
        return self.made_of(self.followed, self.followed.gained(graph), reader)

    def made_of(self, followed: FollowedBody, rows: BindingTable, reader: Reader) -> Quads:
        """Return the heads of some solutions of a body that was followed, repeats included."""
        if not rows.length:
            return NO_QUADS
        return self.made(reader.known(rows, followed.evaluation.terms), reader)


def _begins_with(column: Int64Array, bytes_: bytes, reader: Reader) -> BoolArray:
    """Tell of terms whether their texts begin with one of some bytes."""
    distinct, places = np.unique(column, return_inverse=True)
    firsts = reader.terms().first_bytes(distinct)
    kept: BoolArray = np.isin(firsts, list(bytes_))[places]
    return kept
