"""Filters go down to where their variables are bound.

* Filter(c, Join(L, R)) = Join(Filter(c, L), R) if L binds every variable of c in every solution.
* Filter(c, LeftJoin(L, R, e)) = LeftJoin(Filter(c, L), R, e) under the same condition: R adds nothing that c sees.
* Filter(c, Union(L, R)) = Union(Filter(c, L), Filter(c, R)) always.
* Filter(c, Extend(P, v, e)) = Extend(Filter(c, P), v, e) if c does not mention v; and so for a Timestamp.

An expression without variables stays where it is.
"""

from __future__ import annotations

from dataclasses import replace

from csparql.algebra import Expression, Extend, Filter, Join, LeftJoin, Node, Timestamp, Union
from csparql.rules.walk import map_children
from csparql.scope import certain_variables, expression_variables


def push_filters(node: Node) -> Node:
    """Push every filter down as far as the rules above let it."""
    node = map_children(node, push_filters)
    return _pushed(node.condition, node.pattern) if isinstance(node, Filter) else node


def _pushed(condition: Expression, node: Node) -> Node:
    """Apply a condition to a node, as deep inside of it as it may go."""
    mentioned = expression_variables(condition)
    if not mentioned:
        return Filter(condition, node)
    match node:
        case Join() if mentioned <= certain_variables(node.left):
            return Join(_pushed(condition, node.left), node.right)
        case Join() if mentioned <= certain_variables(node.right):
            return Join(node.left, _pushed(condition, node.right))
        case LeftJoin() if mentioned <= certain_variables(node.left):
            return LeftJoin(_pushed(condition, node.left), node.right, node.condition)
        case Union():
            return Union(_pushed(condition, node.left), _pushed(condition, node.right))
        case Extend() if node.variable not in mentioned:
            return Extend(_pushed(condition, node.pattern), node.variable, node.expression)
        case Timestamp() if node.variable not in mentioned:
            return replace(node, pattern=_pushed(condition, node.pattern))
        case Filter():
            inner = _pushed(condition, node.pattern)
            if inner == Filter(condition, node.pattern):
                return Filter(condition, node)
            return Filter(node.condition, inner)
        case _:
            return Filter(condition, node)
