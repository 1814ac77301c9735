"""csparql: query text to algebra to plan. Pure Python; no arrays, no sockets.

`parse_query` reads SPARQL and C-SPARQL into the algebra, `parse_update` SPARQL Update. `rewrite` applies the rules of
rules.py, `plan_bgp` orders the triple patterns of a `Bgp` into plan steps, `explain` shows the result as text.
"""

from __future__ import annotations

from wukongs.csparql.algebra import Query
from wukongs.csparql.cardinality import Cardinalities
from wukongs.csparql.explain import explain
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.planner import plan_bgp
from wukongs.csparql.rules import rewrite
from wukongs.csparql.updates import Update

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
