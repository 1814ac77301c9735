"""What a node's form says about its rows: whether they are ordered, and whether fewer of them are less work."""

from __future__ import annotations

from wukongs.csparql.algebra import Bgp, Distinct, Extend, Node, OrderBy, PathPattern, Project

MORE_ROWS = 8
"""So many times the rows asked for before are asked for next, while DISTINCT has found too few."""


def is_ordered(node: Node) -> bool:
    """Tell whether the rows of a node come in the order of an ORDER BY."""
    while isinstance(node, Project | Distinct | Extend):
        node = node.pattern
    return isinstance(node, OrderBy)


def stops_early(node: Node) -> bool:
    """Tell whether a node is done sooner if fewer rows are wanted, and gives the same ones when it is run again."""
    while isinstance(node, Project):
        node = node.pattern
    return isinstance(node, Bgp | PathPattern)
