"""Filter(a && b, P) = Filter(a, Filter(b, P)): a row stays only if both are true, whatever errors there are.

A filter with more conjuncts than CONJUNCTS_MAX stays whole: split, it would be as deep as it is long.
"""

from __future__ import annotations

from wukongs.csparql.algebra import Call, Expression, Filter, Node
from wukongs.csparql.rules.walk import map_children

CONJUNCTS_MAX = 100


def split_filters(node: Node) -> Node:
    """Give every conjunct of a filter a filter of its own; the first conjunct becomes the innermost."""
    node = map_children(node, split_filters)
    if not isinstance(node, Filter):
        return node
    pattern = node.pattern
    conditions = conjuncts(node.condition)
    if len(conditions) > CONJUNCTS_MAX:
        return node
    for condition in conditions:
        pattern = Filter(condition, pattern)
    return pattern


def conjuncts(condition: Expression) -> list[Expression]:
    """Return the operands of a tree of &&, from left to right."""
    if isinstance(condition, Call) and condition.op == "&&":
        return [part for argument in condition.arguments for part in conjuncts(argument)]
    return [condition]
