"""All Bgps of a chain of joins are one Bgp: join is associative and commutative."""

from __future__ import annotations

from wukongs.csparql.algebra import Bgp, Join, Node, TriplePattern
from wukongs.csparql.rules.walk import join_all, join_operands, map_children


def merge_bgps(node: Node) -> Node:
    """Merge the Bgps of every chain of joins; the merged one stands where the first stood."""
    if not isinstance(node, Join):
        return map_children(node, merge_bgps)
    patterns: list[TriplePattern] = []
    others: list[Node] = []
    place: int | None = None
    for operand in join_operands(node):
        if isinstance(operand, Bgp):
            patterns.extend(operand.patterns)
            place = len(others) if place is None else place
        else:
            others.append(merge_bgps(operand))
    if place is not None and (patterns or not others):
        others.insert(place, Bgp(tuple(patterns)))
    return join_all(others)
