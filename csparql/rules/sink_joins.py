"""What is joined to an OPTIONAL may be joined before it, where it can be planned with the patterns that stand there.

Join(LeftJoin(A, B, e), C) = LeftJoin(Join(A, C), B, e) if A binds, in every solution, each variable that C shares with
B or e. Then C adds no binding that B or e could see, and which rows of B fit is settled by A alone.
"""

from __future__ import annotations

from wukongs.csparql.algebra import Join, LeftJoin, Node
from wukongs.csparql.rules.walk import map_children
from wukongs.csparql.scope import NO_VARIABLES, certain_variables, expression_variables, possible_variables


def sink_joins(node: Node) -> Node:
    """Move joins below left joins, wherever that is safe."""
    node = map_children(node, sink_joins)
    if isinstance(node, Join):
        for outer, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(outer, LeftJoin) and _is_safe(outer, other):
                return LeftJoin(sink_joins(Join(outer.left, other)), outer.right, outer.condition)
    return node


def _is_safe(outer: LeftJoin, other: Node) -> bool:
    asked = NO_VARIABLES if outer.condition is None else expression_variables(outer.condition)
    shared = (possible_variables(outer.right) | asked) & possible_variables(other)
    return shared <= certain_variables(outer.left)
