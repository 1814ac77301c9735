"""Facts and Support: the triples that a row of a registered query rests on, for ContinuousQuery.why(row).

The query's patterns are evaluated anew with the row's terms in their places, over the windows and the stored graph of
the last firing, as far as they are held. Each triple that a pattern has become in a solution is named with the place
where it is: a window, or the stored graph; there, with what it follows from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import cast

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
    Project,
    Query,
    Slice,
    TriplePattern,
    Union,
)
from wukongs.csparql.scope import possible_variables
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.live.core import Core
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import answer
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset, Part
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.reach import ReachedGraph
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.query.terms.shown_texts import shown
from wukongs.rules.changing_graph import Read
from wukongs.rules.derivation import Derivation
from wukongs.store.dtypes import UNBOUND
from wukongs.store.quads import Quads, is_held

SHOWN_MAX = 50
"""So many triples are shown."""
Fact = tuple[int, int, int, int]
"""A triple behind the graph or window that it is in."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The triples that the patterns of a query have become in its solutions over a dataset.

    dataset, terms: of the evaluation.
    sn: of the stored graph in the dataset."""

    core: Core
    dataset: Dataset
    terms: QueryTerms
    sn: int

    def instances(self, pattern: TriplePattern, solutions: BindingTable, number: int) -> Iterator[tuple[Fact, Part]]:
        """Yield the triple that a pattern is in a solution, with each place where it is."""
        subject, predicate, object_ = (
            self.dataset.resolve(part) if isinstance(part, Term) else int(solutions.column(part)[number])
            for part in (pattern.subject, pattern.predicate, pattern.object)
        )
        if UNBOUND in (subject, predicate, object_):
            return
        graph = int(solutions.column(pattern.graph)[number]) if isinstance(pattern.graph, Variable) else None
        for place in self.dataset.source(pattern.graph).parts:
            is_stored = self.is_stored(place)
            if graph is not None and not is_stored and place.name != graph:
                continue
            at = graph if is_stored and graph is not None else place.graph
            quad = np.array([at]), np.array([subject]), np.array([predicate]), np.array([object_])
            if self._is_there(place, quad):
                yield (at, subject, predicate, object_), place

    def _is_there(self, place: Part, quad: Quads) -> bool:
        held = self._stored.holds(quad) if self.is_stored(place) else is_held(place.batches, quad)
        return bool(held[0])

    @property
    def _stored(self) -> Read:
        """The stored graph, which may ask other nodes."""
        return Read(self.dataset.stored, cast("ReachedGraph | None", self.dataset.completion))

    def is_stored(self, place: Part) -> bool:
        """Whether a place is a stored graph, and no window."""
        return place.batches is self.dataset.stored

    def derivation(self, fact: Fact, limits: Limits) -> Derivation:
        """Return a stored triple, with what it follows from by rules."""
        triple = self.terms.texts(np.array(fact[1:], np.int64))
        graph = None
        if fact[0] != self.dataset.default_graph:
            graph = Term(self.terms.texts(np.array(fact[:1], np.int64))[0]).name
        found, query_log = None, self.core.query_log
        inference = self.core.inference if query_log is None else query_log.inference()
        if inference.is_active:
            found = inference.why(inference.plans(), self._stored, self.sn, triple, graph, limits)
        return found or Derivation((triple[0], triple[1], shown(triple[2])), graph, None, (), self.sn)


@dataclass(frozen=True, slots=True)
class Support:
    """facts: over the dataset of the last firing, at at_ms. Picked with the engine's lock held, told without it."""

    query: Query
    facts: Facts
    at_ms: int

    def told(self, row: Mapping[str, str], limits: Limits) -> str:
        """Return the triples of a row, a line each. row: canonical terms by the names of its variables; some of them
        will do. Raises QueryTimeout, BudgetExceeded."""
        where, renamed = _body(self.query.pattern)
        window, dataset, terms = f"the window ending at {self.at_ms} ms", self.facts.dataset, self.facts.terms
        patterns = list(patterns_of(where))
        variables = tuple(sorted(possible_variables(where), key=str))
        given = {renamed.get(Variable(name), Variable(name)): text for name, text in row.items()}
        given = {variable: text for variable, text in given.items() if variable in variables}
        seeds = BindingTable(tuple(given), tuple(terms.ids([text]) for text in given.values()), 1)
        asked = Query("select", Project(where, variables), tuple(one.name for one in variables), (), DatasetClause())
        found = answer(asked, dataset, terms, limits, PlanMemo(), "why", in_order=True, given=seeds)
        if not found.length:
            return f"{window} has no such row, over what is held now"
        solutions = BindingTable(variables, found.columns, found.length)
        facts: dict[tuple[Fact, str], None] = {}
        for number in range(solutions.length):
            for pattern in patterns:
                instances = self.facts.instances(pattern, solutions, number)
                facts |= dict.fromkeys((fact, self._window_of(place)) for fact, place in instances)
                if len(facts) > SHOWN_MAX:
                    break
        lines = [self._line(fact, place, limits) for fact, place in list(facts)[:SHOWN_MAX]]
        more = ["  and more"] if len(facts) > SHOWN_MAX else []
        solved = "" if solutions.length == 1 else f", by {solutions.length} solutions of its patterns"
        return "\n".join([f"the row of {window} rests on{solved}", *lines, *more])

    def _window_of(self, place: Part) -> str:
        """Return where a triple is, in words; nothing for the stored graph."""
        if self.facts.is_stored(place):
            return ""
        windows = self.facts.dataset.windows.items()
        name = next(one.name for one, batches in windows if batches is place.batches)
        return f"in the window of <{name}>"

    def _line(self, fact: Fact, place: str, limits: Limits) -> str:
        if place:
            return f"  {' '.join(map(shown, self.facts.terms.texts(np.array(fact[1:], np.int64))))}   {place}"
        derivation = self.facts.derivation(fact, limits)
        if derivation.is_explicit:
            graph = "" if derivation.graph is None else f" in {iri(derivation.graph)}"
            return f"  {' '.join(derivation.triple)}{graph}   stored"
        return indent(str(derivation), "  ")


def _body(node: Node) -> tuple[Node, dict[Variable, Variable]]:
    """Return the WHERE of a query, below its modifiers and groups; and which of its variables others are names of."""
    renamed: dict[Variable, Variable] = {}
    while True:
        match node:
            case Project() | Distinct() | OrderBy() | Slice() | Group():
                node = node.pattern
            case Extend(pattern=pattern, variable=variable, expression=expression):
                if isinstance(expression, Variable):
                    renamed[variable] = expression
                node = pattern
            case Filter(pattern=Group() as below):
                node = below
            case Filter(pattern=Extend() as above) if _is_grouped(above):
                node = above
            case _:
                return node, renamed


def _is_grouped(node: Node) -> bool:
    while isinstance(node, Extend | Filter):
        node = node.pattern
    return isinstance(node, Group)


def patterns_of(node: Node) -> Iterator[TriplePattern]:
    """Yield the triple patterns that a solution may be made of: not those of NOT EXISTS and MINUS."""
    match node:
        case Bgp(patterns=patterns):
            yield from patterns
        case Join() | LeftJoin() | Union():
            yield from patterns_of(node.left)
            yield from patterns_of(node.right)
        case Minus():
            yield from patterns_of(node.left)
        case Filter() | Extend() | Project() | Distinct() | OrderBy() | Slice() | Group():
            yield from patterns_of(node.pattern)
        case _:
            return
