"""csparql: query text to algebra to plan. Pure Python; no arrays, no sockets.

`parse_query` reads SPARQL and C-SPARQL into the algebra, `rewrite` applies the rules of `csparql.rules`, `plan_bgp`
orders the triple patterns of a `Bgp` into plan steps, `explain` shows the result as text.
"""

from __future__ import annotations

from csparql.algebra import Query
from csparql.cardinality import Cardinalities
from csparql.explain import explain
from csparql.parser import parse_query
from csparql.plan import PlanStep
from csparql.planner import plan_bgp
from csparql.rules import rewrite

__all__ = ["Cardinalities", "PlanStep", "Query", "explain", "parse_query", "plan_bgp", "rewrite"]
