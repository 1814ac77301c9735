"""Support: the triples that a row of a registered query rests on, for ContinuousQuery.why(row).

The query's patterns are evaluated anew with the row's terms in their places, over the windows and the stored graph of
the last firing, as far as they are held. Each triple that a pattern has become in a solution is named with the place
where it is: a window, or the stored graph; there, with what it follows from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import indent

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
from wukongs.csparql.terms import Term, Variable
from wukongs.live.core import Core
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import answer
from wukongs.query.limits import Limits
from wukongs.query.plans.dataset import Dataset, Part
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.query.terms.shown_texts import shown
from wukongs.rules.changing_graph import Read
from wukongs.rules.derivation import Derivation
from wukongs.store.dtypes import UNBOUND
from wukongs.store.quads import is_held

SHOWN_MAX = 50
"""So many triples are shown."""
Fact = tuple[int, int, int, int]
"""A triple behind the graph or window that it is in."""


@dataclass(frozen=True, slots=True)
class Support:
    """dataset: of the last firing, at at_ms; terms: of it. Picked with the engine's lock held, told without it."""

    core: Core
    query: Query
    dataset: Dataset
    terms: QueryTerms
    at_ms: int
    sn: int

    def told(self, row: Mapping[str, str], limits: Limits) -> str:
        """Return the triples of a row, a line each. row: canonical terms by the names of its variables; some of them
        will do. Raises QueryTimeout, BudgetExceeded."""
        where, renamed = _body(self.query.pattern)
        window = f"the window ending at {self.at_ms} ms"
        patterns = list(_patterns(where))
        variables = tuple(sorted(possible_variables(where), key=str))
        given = {renamed.get(Variable(name), Variable(name)): text for name, text in row.items()}
        given = {variable: text for variable, text in given.items() if variable in variables}
        seeds = BindingTable(tuple(given), tuple(self.terms.ids([text]) for text in given.values()), 1)
        asked = Query("select", Project(where, variables), tuple(one.name for one in variables), (), DatasetClause())
        found = answer(asked, self.dataset, self.terms, limits, PlanMemo(), "why", in_order=True, given=seeds)
        if not found.length:
            return f"{window} has no such row, over what is held now"
        solutions = BindingTable(variables, found.columns, found.length)
        facts: dict[tuple[Fact, str], None] = {}
        for number in range(solutions.length):
            for pattern in patterns:
                facts |= dict.fromkeys(self._instances(pattern, solutions, number))
                if len(facts) > SHOWN_MAX:
                    break
        lines = [self._line(fact, place, limits) for fact, place in list(facts)[:SHOWN_MAX]]
        more = ["  and more"] if len(facts) > SHOWN_MAX else []
        solved = "" if solutions.length == 1 else f", by {solutions.length} solutions of its patterns"
        return "\n".join([f"the row of {window} rests on{solved}", *lines, *more])

    def _instances(self, pattern: TriplePattern, solutions: BindingTable, number: int) -> Iterator[tuple[Fact, str]]:
        """Yield the triple that a pattern is in a solution, with each place where it is."""
        subject, predicate, object_ = (
            self.dataset.resolve(part) if isinstance(part, Term) else int(solutions.column(part)[number])
            for part in (pattern.subject, pattern.predicate, pattern.object)
        )
        if UNBOUND in (subject, predicate, object_):
            return
        graph = int(solutions.column(pattern.graph)[number]) if isinstance(pattern.graph, Variable) else None
        for place in self.dataset.source(pattern.graph).parts:
            is_stored = place.batches is self.dataset.stored
            if graph is not None and not is_stored and place.name != graph:
                continue
            at = graph if is_stored and graph is not None else place.graph
            quad = np.array([at]), np.array([subject]), np.array([predicate]), np.array([object_])
            if (is_stored and self.core.reach is not None) or is_held(place.batches, quad)[0]:
                yield (at, subject, predicate, object_), "" if is_stored else self._window_of(place)

    def _window_of(self, place: Part) -> str:
        name = next(one.name for one, batches in self.dataset.windows.items() if batches is place.batches)
        return f"in the window of <{name}>"

    def _line(self, fact: Fact, place: str, limits: Limits) -> str:
        triple = self.terms.texts(np.array(fact[1:], np.int64))
        written = " ".join(map(shown, triple))
        if place:
            return f"  {written}   {place}"
        graph = None if fact[0] == self.dataset.default_graph else self.terms.texts(np.array(fact[:1], np.int64))[0]
        derivation = self._derivation(triple, None if graph is None else Term(graph).name, limits)
        if derivation is None or derivation.is_explicit:
            return f"  {written}{'' if graph is None else f' in {graph}'}   stored"
        return indent(str(derivation), "  ")

    def _derivation(self, triple: list[str], graph: str | None, limits: Limits) -> Derivation | None:
        inference = self.core.inference
        if not inference.is_active:
            return None
        return inference.why(inference.plans(), Read(self.dataset.stored), self.sn, triple, graph, limits)


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


def _patterns(node: Node) -> Iterator[TriplePattern]:
    """Yield the triple patterns that a solution may be made of: not those of NOT EXISTS and MINUS."""
    match node:
        case Bgp(patterns=patterns):
            yield from patterns
        case Join() | LeftJoin() | Union():
            yield from _patterns(node.left)
            yield from _patterns(node.right)
        case Minus():
            yield from _patterns(node.left)
        case Filter() | Extend() | Project() | Distinct() | OrderBy() | Slice() | Group():
            yield from _patterns(node.pattern)
        case _:
            return
