"""Rebuild an algebra tree from its leaves up; the joins of a chain as a flat list.

A rule that reaches the children of a node also reaches the patterns of EXISTS in its expressions. That keeps answers: a
rule holds for every pattern, so also for the one that the substitution of a row's bindings makes of this one. A rule
rests on which variables are certain, possible or shared, and a variable that becomes a constant leaves all three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.scope import exists_patterns, node_expressions


def map_children(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node with each of its children changed, and the patterns of EXISTS in its own expressions; the very
    same node if none did change."""
    node = _map_exists(node, change)
    match node:
        case Bgp() | PathPattern() | TripleParts() | Values() | GraphNames():
            return node
        case Join() | LeftJoin() | Minus() | Union():
            left, right = change(node.left), change(node.right)
            return node if left is node.left and right is node.right else replace(node, left=left, right=right)
        case _:
            pattern = change(node.pattern)
            return node if pattern is node.pattern else replace(node, pattern=pattern)


def _map_exists(node: Node, change: Callable[[Node], Node]) -> Node:
    if not any(map(exists_patterns, node_expressions(node))):
        return node

    def changed(expression: Expression) -> Expression:
        match expression:
            case Exists():
                return Exists(change(expression.pattern), expression.negated)
            case Call():
                return Call(expression.op, tuple(map(changed, expression.arguments)))
            case Aggregate(argument=argument) if argument is not None:
                return replace(expression, argument=changed(argument))
            case _:
                return expression

    return map_expressions(node, changed)


def map_expressions(node: Node, change: Callable[[Expression], Expression]) -> Node:
    """Return a node that has expressions with each of its own changed; an Aggregate must stay one."""
    match node:
        case Filter():
            return replace(node, condition=change(node.condition))
        case LeftJoin(condition=condition) if condition is not None:
            return replace(node, condition=change(condition))
        case Extend():
            return replace(node, expression=change(node.expression))
        case Group():
            made = tuple((variable, change(aggregate)) for variable, aggregate in node.aggregates)
            return replace(node, aggregates=made)  # type: ignore[arg-type]
        case OrderBy():
            return replace(node, conditions=tuple((change(by), down) for by, down in node.conditions))
    raise AssertionError(node)


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
