"""The protocol through which the planner asks how large things are; the engine answers from the arrangements."""

from __future__ import annotations

from typing import Literal, Protocol

from csparql.algebra import GraphRef
from csparql.terms import Term

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
