"""Joins of the parts of a group, as the parser makes them."""

from __future__ import annotations

from wukongs.csparql.algebra import Bgp, Join, Node

UNIT = Bgp(())


def join(left: Node, right: Node) -> Node:
    """Join two patterns; the empty pattern vanishes and neighbouring triple patterns become one Bgp."""
    if left == UNIT:
        return right
    if right == UNIT:
        return left
    if isinstance(right, Bgp):
        if isinstance(left, Bgp):
            return Bgp(left.patterns + right.patterns)
        if isinstance(left, Join) and isinstance(left.right, Bgp):
            return Join(left.left, Bgp(left.right.patterns + right.patterns))
    return Join(left, right)
