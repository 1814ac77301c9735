"""What can be said of a pattern's solutions without evaluating it: which variables they bind, which graphs they saw."""

from __future__ import annotations

from collections.abc import Mapping

from csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    Distinct,
    Expression,
    Extend,
    Filter,
    GraphNames,
    GraphRef,
    Group,
    Join,
    LeftJoin,
    Node,
    OrderBy,
    Project,
    Slice,
    Union,
)
from csparql.terms import Variable

NO_VARIABLES: frozenset[Variable] = frozenset()


def certain_variables(node: Node) -> frozenset[Variable]:
    """Return the variables that every solution binds."""
    match node:
        case Join():
            return certain_variables(node.left) | certain_variables(node.right)
        case LeftJoin():
            return certain_variables(node.left)
        case Union():
            return certain_variables(node.left) & certain_variables(node.right)
        case Group():
            return certain_variables(node.pattern).intersection(node.keys)
        case Project():
            return certain_variables(node.pattern).intersection(node.variables)
        case Filter() | Extend() | Distinct() | OrderBy() | Slice():
            return certain_variables(node.pattern)  # Extend's own variable is unbound where its expression fails
        case _:
            return possible_variables(node)


def possible_variables(node: Node) -> frozenset[Variable]:
    """Return the variables that some solution may bind."""
    match node:
        case Bgp():
            return frozenset(variable for pattern in node.patterns for variable in pattern.variables())
        case GraphNames():
            return frozenset((node.graph,)) if isinstance(node.graph, Variable) else NO_VARIABLES
        case Join() | LeftJoin() | Union():
            return possible_variables(node.left) | possible_variables(node.right)
        case Extend():
            return possible_variables(node.pattern) | {node.variable}
        case Group():
            return frozenset(node.keys).union(variable for variable, _ in node.aggregates)
        case Project():
            return possible_variables(node.pattern).intersection(node.variables)
        case Filter() | Distinct() | OrderBy() | Slice():
            return possible_variables(node.pattern)


def expression_variables(expression: Expression) -> frozenset[Variable]:
    """Return the variables that an expression mentions."""
    match expression:
        case Variable():
            return frozenset((expression,))
        case Call():
            return NO_VARIABLES.union(*map(expression_variables, expression.arguments))
        case Aggregate(argument=argument) if argument is not None:
            return expression_variables(argument)
        case _:
            return NO_VARIABLES


def substitute(expression: Expression, replacements: Mapping[Variable, Variable]) -> Expression:
    """Put other variables in the place of some of an expression's."""
    match expression:
        case Variable():
            return replacements.get(expression, expression)
        case Call():
            return Call(expression.op, tuple(substitute(argument, replacements) for argument in expression.arguments))
        case _:
            return expression


def always_matches_in(node: Node, graph: GraphRef) -> bool:
    """Whether every solution rests on something found in this graph (so that the graph is bound and exists)."""
    match node:
        case Bgp():
            return any(pattern.graph == graph for pattern in node.patterns)
        case GraphNames():
            return node.graph == graph
        case Join():
            return always_matches_in(node.left, graph) or always_matches_in(node.right, graph)
        case Union():
            return always_matches_in(node.left, graph) and always_matches_in(node.right, graph)
        case LeftJoin():
            return always_matches_in(node.left, graph)
        case Filter() | Extend():
            return always_matches_in(node.pattern, graph)
        case _:
            return False
