"""Plan steps: one exploration move each, and their text form."""

from __future__ import annotations

from dataclasses import dataclass

from csparql.algebra import TriplePattern
from csparql.cardinality import Direction


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Match one pattern, exploring from its subject (out) or its object (in).

    Whether the step scans an index (neither end bound yet), expands (the end it starts from is bound) or checks (both
    are) follows from the constants and from the variables that earlier steps have bound.
    estimated_rows: rows of the binding table after this step.
    """

    pattern: TriplePattern
    direction: Direction
    estimated_rows: float
