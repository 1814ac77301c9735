"""Triple patterns in groups that share no variable: between two such groups there is a product, or something else that
links them."""

from __future__ import annotations

from collections.abc import Iterable

from wukongs.csparql.algebra import TriplePattern
from wukongs.csparql.scope import NO_VARIABLES
from wukongs.csparql.terms import Variable


def components(
    patterns: Iterable[TriplePattern], bound: frozenset[Variable] = NO_VARIABLES
) -> list[tuple[TriplePattern, ...]]:
    """Split triple patterns into groups that share no variables but bound ones."""
    groups: list[tuple[set[Variable], list[TriplePattern]]] = []
    for pattern in patterns:
        variables = set(pattern.variables()) - bound
        members: list[TriplePattern] = []
        apart = []
        for group in groups:
            if group[0] & variables:
                variables |= group[0]
                members += group[1]
            else:
                apart.append(group)
        groups = [*apart, (variables, [*members, pattern])]
    return [tuple(members) for _, members in groups]
