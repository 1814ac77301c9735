"""Properties of patterns and expressions that EXISTS needs to know (SPARQL 1.1, 18.6: exists by substitution).

EXISTS P asks, for a row, whether P has a solution after the row's bindings have been put in the place of P's variables.
The executor gives those bindings to P as a table instead, all distinct ones at once, each with a number: the leaves of
P (triple patterns, VALUES, GRAPH) are joined with it. The answers are the same:

* A leaf joined with a row has the solutions that the substituted leaf has, with the row's bindings beside them; equal
  numbers keep the rows apart in every join above.
* Expressions above see the bindings where substitution would have put terms.
* MINUS looks for variables that both sides bind, and a substituted variable is none: given ones do not count.
* A variable that P itself assigns (BIND, SELECT ... AS) cannot be replaced by a term. It is not given; the value that P
  assigns must agree with the row in the end.
* The variable of a GRAPH block is not assigned, though the parser may name the block's graph by an Extend. It is given,
  and rows whose graph is another one go.

A part that counts or cuts rows (a group, LIMIT) means the rows of one substitution. So a pattern with such a part is
evaluated once for each distinct binding.
"""

from __future__ import annotations

from wukongs.csparql.algebra import (
    Bgp,
    Call,
    Exists,
    Expression,
    Extend,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    PathPattern,
    PerGraph,
    Service,
    Slice,
    Timestamp,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.scope import NO_VARIABLES
from wukongs.csparql.terms import Variable


def children(node: Node) -> tuple[Node, ...]:
    """Return the patterns right below a node; those inside of EXISTS do not count."""
    if isinstance(node, Join | LeftJoin | Minus | Union):
        return node.left, node.right
    if isinstance(node, Bgp | PathPattern | TripleParts | Values | GraphNames | Service):
        return ()
    return (node.pattern,)


def names_graph(node: Extend) -> bool:
    """Whether a node gives the variable of GRAPH ?g the graph of its block."""
    return isinstance(node.expression, Variable) and node.expression.is_graph


def assigned_variables(node: Node) -> frozenset[Variable]:
    """Return the variables that a pattern makes values for."""
    own: frozenset[Variable] = NO_VARIABLES
    if isinstance(node, Timestamp) or (isinstance(node, Extend) and not names_graph(node)):
        own = frozenset((node.variable,))
    elif isinstance(node, Group):
        own = frozenset(variable for variable, _ in node.aggregates)
    return own.union(*map(assigned_variables, children(node)))


def is_row_by_row(node: Node) -> bool:
    """Whether a pattern counts or cuts rows, so that it means the rows of one substitution."""
    return isinstance(node, Group | Slice | PerGraph) or any(map(is_row_by_row, children(node)))


def replaced(expression: Expression, columns: dict[Exists, Variable]) -> Expression:
    """Put a column's variable in the place of each EXISTS of an expression."""
    match expression:
        case Exists():
            return columns[expression]
        case Call():
            return Call(expression.op, tuple(replaced(argument, columns) for argument in expression.arguments))
        case _:
            return expression
