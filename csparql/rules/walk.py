"""Rebuild an algebra tree from its leaves up; the joins of a chain as a flat list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from csparql.algebra import Bgp, GraphNames, Join, LeftJoin, Node, Union


def map_children(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node with each of its children changed; the very same node if none did."""
    match node:
        case Bgp() | GraphNames():
            return node
        case Join() | LeftJoin() | Union():
            left, right = change(node.left), change(node.right)
            return node if left is node.left and right is node.right else replace(node, left=left, right=right)
        case _:
            pattern = change(node.pattern)
            return node if pattern is node.pattern else replace(node, pattern=pattern)


def join_operands(node: Node) -> list[Node]:
    """Return what a chain of joins joins, from left to right."""
    if isinstance(node, Join):
        return [*join_operands(node.left), *join_operands(node.right)]
    return [node]


def join_all(operands: list[Node]) -> Node:
    """Join a list from left to right; at least one."""
    node = operands[0]
    for operand in operands[1:]:
        node = Join(node, operand)
    return node
