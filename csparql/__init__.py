"""csparql: query text to algebra to plan. Pure Python; no arrays, no sockets.

`parse_query` reads SPARQL and C-SPARQL into the algebra, `parse_update` SPARQL Update; `rewrite` applies the rules of
`csparql.rules`, `plan_bgp` orders the triple patterns of a `Bgp` into plan steps, `explain` shows the result as text.
"""

from __future__ import annotations

from csparql.algebra import Query
from csparql.cardinality import Cardinalities
from csparql.explain import explain
from csparql.parser import parse_query
from csparql.parser_update import parse_update
from csparql.plan import PlanStep
from csparql.planner import plan_bgp
from csparql.rules import rewrite
from csparql.updates import Update

__all__ = [
    "Cardinalities",
    "PlanStep",
    "Query",
    "Update",
    "explain",
    "parse_query",
    "parse_update",
    "plan_bgp",
    "rewrite",
]
