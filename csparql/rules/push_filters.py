"""Filters go down to where their variables are bound.

* Filter(c, Join(L, R)) = Join(Filter(c, L), R) if L binds, in every solution, each variable of c that L or R may bind.
  (One that neither binds is unbound before and after. So are the variables that only the pattern of an EXISTS binds.)
* Filter(c, LeftJoin(L, R, e)) = LeftJoin(Filter(c, L), R, e) under the same condition: R adds nothing that c sees.
* Filter(c, Minus(L, R)) = Minus(Filter(c, L), R) always: both only take rows of L away.
* Filter(c, Project(P, v)) = Project(Filter(c, P), v), since variables that are not projected have names of their own;
  Filter(c, Distinct(P)) = Distinct(Filter(c, P)). So a subquery is filtered inside, but not below what cuts or groups.
* Filter(c, Union(L, R)) = Union(Filter(c, L), Filter(c, R)) always.
* Filter(c, Extend(P, v, e)) = Extend(Filter(c, P), v, e) if c does not mention v; and so for a Timestamp.

An expression without variables stays where it is. So does one above a join that would be asked of triple patterns which
only other parts of the join may link (a path, the parts of a triple term): it would make a product of them.
"""

from __future__ import annotations

from dataclasses import replace

from wukongs.csparql.algebra import (
    Bgp,
    Distinct,
    Expression,
    Extend,
    Filter,
    Join,
    LeftJoin,
    Minus,
    Node,
    Project,
    Timestamp,
    TripleParts,
    Union,
)
from wukongs.csparql.components import components
from wukongs.csparql.rules.walk import map_children
from wukongs.csparql.scope import certain_variables, exists_patterns, expression_variables, possible_variables
from wukongs.csparql.terms import Variable


def push_filters(node: Node) -> Node:
    """Push every filter down as far as the rules above let it."""
    node = map_children(node, push_filters)
    return _pushed(node.condition, node.pattern) if isinstance(node, Filter) else node


def _pushed(condition: Expression, node: Node) -> Node:
    """Apply a condition to a node, as deep inside of it as it may go."""
    mentioned = expression_variables(condition)
    if not mentioned:
        return Filter(condition, node)
    seen = mentioned & possible_variables(node)
    match node:
        case Join() if _takes(node.left, condition, seen):
            return Join(_pushed(condition, node.left), node.right)
        case Join() if _takes(node.right, condition, seen):
            return Join(node.left, _pushed(condition, node.right))
        case LeftJoin() if seen <= certain_variables(node.left):
            return LeftJoin(_pushed(condition, node.left), node.right, node.condition)
        case Minus():
            return Minus(_pushed(condition, node.left), node.right)
        case Project():
            return Project(_pushed(condition, node.pattern), node.variables)
        case Distinct():
            return Distinct(_pushed(condition, node.pattern))
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


def _takes(side: Node, condition: Expression, seen: frozenset[Variable]) -> bool:
    """Tell whether a condition may be asked of one side of a join. seen: those of its variables that the join binds."""
    if not seen <= certain_variables(side) or isinstance(side, TripleParts):
        return False
    while isinstance(side, Filter):
        side = side.pattern
    if not isinstance(side, Bgp) or len(links := components(side.patterns)) < 2:
        return True
    mentioned = expression_variables(condition)
    is_closed = any(mentioned <= possible_variables(Bgp(members)) for members in links)
    return is_closed and not exists_patterns(condition)
