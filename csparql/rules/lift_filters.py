"""A filter on a nested group's triple patterns may be applied after the join, so that the patterns can be merged.

Join(X, Filter(c, P)) = Filter(c, Join(X, P)) if P binds every variable of c in every solution: X cannot change them.
A variable of c that P may leave unbound must stay unseen from X, so the rule leaves such a filter where it is.
"""

from __future__ import annotations

from wukongs.csparql.algebra import Bgp, Filter, Join, Node
from wukongs.csparql.rules.walk import join_all, join_operands, map_children
from wukongs.csparql.scope import certain_variables, expression_variables


def lift_filters(node: Node) -> Node:
    """Lift filters over triple patterns out of chains of joins that have other triple patterns."""
    if not isinstance(node, Join):
        return map_children(node, lift_filters)
    operands = [lift_filters(operand) for operand in join_operands(node)]
    if sum(_is_triples(_below_filters(operand)) for operand in operands) < 2:
        return join_all(operands)
    kept: list[Node] = []
    lifted = []
    for operand in operands:
        while isinstance(operand, Filter) and _is_triples(_below_filters(operand)):
            if not expression_variables(operand.condition) <= certain_variables(operand.pattern):
                break
            lifted.append(operand.condition)
            operand = operand.pattern
        kept.append(operand)
    result = join_all(kept)
    for condition in reversed(lifted):
        result = Filter(condition, result)
    return result


def _below_filters(node: Node) -> Node:
    while isinstance(node, Filter):
        node = node.pattern
    return node


def _is_triples(node: Node) -> bool:
    """Whether merging will make one Bgp of a node."""
    return all(isinstance(operand, Bgp) for operand in join_operands(node))
