"""Rewrites of the algebra that keep every answer and make plans cheaper: one per file, applied in this order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wukongs.csparql.algebra import Node, Query
from wukongs.csparql.rules.lift_filters import lift_filters
from wukongs.csparql.rules.merge_bgps import merge_bgps
from wukongs.csparql.rules.push_filters import push_filters
from wukongs.csparql.rules.sink_joins import sink_joins
from wukongs.csparql.rules.split_filters import split_filters

RULES: tuple[Callable[[Node], Node], ...] = (
    sink_joins,  # OPTIONAL comes after what is joined to it, so that more triple patterns are neighbours
    lift_filters,  # a filter of a nested group leaves it, so that its triple patterns can be planned with the others
    merge_bgps,
    split_filters,
    push_filters,
)


def rewrite(query: Query) -> Query:
    """Apply all rules to a query's pattern.

    Raises UnsupportedFeatureError: the query asks for what is grammar and cannot be answered (SERVICE)."""
    if query.refused is not None:
        raise query.refused.with_traceback(None)
    pattern = query.pattern
    for rule in RULES:
        pattern = rule(pattern)
    return replace(query, pattern=pattern)
