"""The protocol through which the planner asks how large things are; the engine answers from the arrangements."""

from __future__ import annotations

from typing import Literal, Protocol

from wukongs.csparql.algebra import GraphRef, TriplePattern
from wukongs.csparql.terms import Term, Variable

Direction = Literal["out", "in"]
"""out: from subject to object; in: from object to subject."""


class Cardinalities(Protocol):
    """Edges and degrees are upper bounds, exact where nothing is deleted or shared between windows; keys are estimated
    where a predicate is spread over several batches. A predicate of None is any predicate."""

    def edges(self, graph: GraphRef, predicate: Term | None) -> float:
        """Triples with this predicate."""

    def keys(self, graph: GraphRef, predicate: Term | None, direction: Direction) -> float:
        """Distinct subjects (out) or objects (in) of this predicate."""

    def degree(self, graph: GraphRef, predicate: Term | None, direction: Direction, vertex: Term) -> float:
        """Triples with this predicate at this very subject (out) or object (in)."""

    def share(self, found: TriplePattern, variable: Variable, asked: TriplePattern) -> float | None:
        """Return the share of the values that one pattern gives a variable which match another pattern (one without
        further variables). It is tried on some of the values; None if there are too few to try."""
