"""Facts about a pattern's solutions that need no evaluation: which variables they bind, which graphs they saw, which
triple patterns are linked, whether rows come in an order."""

from __future__ import annotations

from collections.abc import Iterable

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    DatasetClause,
    DefaultGraph,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    GraphRef,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Service,
    Slice,
    Timestamp,
    TripleParts,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.paths import is_nullable
from wukongs.csparql.terms import Term, Variable

NO_VARIABLES: frozenset[Variable] = frozenset()

_RECENT_MAX = 64
_recent: dict[int, tuple[Node, frozenset[Variable]]] = {}


def certain_variables(node: Node) -> frozenset[Variable]:
    """Return the variables that every solution binds."""
    match node:
        case Join():
            return certain_variables(node.left) | certain_variables(node.right)
        case LeftJoin() | Minus():
            return certain_variables(node.left)
        case Values():
            columns = zip(node.variables, zip(*node.rows, strict=True), strict=True) if node.rows else ()
            return frozenset(variable for variable, cells in columns if None not in cells)
        case PerGraph():
            return certain_variables(node.pattern) | {node.graph}
        case Union():
            return certain_variables(node.left) & certain_variables(node.right)
        case Service():
            return NO_VARIABLES
        case Group():
            return certain_variables(node.pattern).intersection(node.keys)
        case Project():
            return certain_variables(node.pattern).intersection(node.variables)
        case Filter() | Extend() | Timestamp() | Distinct() | OrderBy() | Slice():
            return certain_variables(node.pattern)  # Extend's own variable is unbound where its expression fails
        case _:
            return possible_variables(node)


def possible_variables(node: Node) -> frozenset[Variable]:
    """Return the variables that some solution may bind.

    The same node is often asked for again, as the left side of the next: the parser asks at each BIND, rules at each
    join. So the newest answers are kept, by identity, since comparing or hashing a tree takes a walk over it."""
    known = _recent.get(id(node))
    if known is not None and known[0] is node:
        return known[1]
    found = _possible_variables(node)
    if len(_recent) >= _RECENT_MAX:
        _recent.clear()
    _recent[id(node)] = node, found
    return found


def _possible_variables(node: Node) -> frozenset[Variable]:
    match node:
        case Bgp():
            return frozenset(variable for pattern in node.patterns for variable in pattern.variables())
        case PathPattern() | TripleParts():
            return frozenset(node.variables())
        case Values():
            return frozenset(node.variables)
        case Service():
            return frozenset(part for part in (node.endpoint, *node.variables) if isinstance(part, Variable))
        case GraphNames():
            return frozenset((node.graph,)) if isinstance(node.graph, Variable) else NO_VARIABLES
        case Minus():
            return possible_variables(node.left)
        case PerGraph():
            return possible_variables(node.pattern) | {node.graph}
        case Join() | LeftJoin() | Union():
            return possible_variables(node.left) | possible_variables(node.right)
        case Extend() | Timestamp():
            return possible_variables(node.pattern) | {node.variable}
        case Group():
            return frozenset(node.keys).union(variable for variable, _ in node.aggregates)
        case Project():
            return frozenset(node.variables)  # in scope, whether or not the pattern binds them
        case Filter() | Distinct() | OrderBy() | Slice():
            return possible_variables(node.pattern)


def mentioned_variables(node: Node) -> frozenset[Variable]:
    """Return all variables that stand anywhere in a pattern: those of its expressions and of its subqueries too."""
    match node:
        case Join() | Minus() | Union():
            return mentioned_variables(node.left) | mentioned_variables(node.right)
        case LeftJoin():
            sides = mentioned_variables(node.left) | mentioned_variables(node.right)
            return sides.union(*map(expression_variables, node_expressions(node)))
        case Bgp() | PathPattern() | TripleParts() | Values() | GraphNames() | Service():
            return possible_variables(node)
        case _:
            inner = mentioned_variables(node.pattern) | possible_variables(node)
            return inner.union(*map(expression_variables, node_expressions(node)))


def node_expressions(node: Node) -> tuple[Expression, ...]:
    """Return the expressions that stand in a node itself."""
    match node:
        case Filter():
            return (node.condition,)
        case LeftJoin() if node.condition is not None:
            return (node.condition,)
        case Extend():
            return (node.expression,)
        case Group():
            return tuple(aggregate for _, aggregate in node.aggregates)
        case OrderBy():
            return tuple(expression for expression, _ in node.conditions)
        case _:
            return ()


def expression_variables(expression: Expression, within_exists: bool = True) -> frozenset[Variable]:
    """Return the variables that an expression mentions.

    within_exists : count all variables in the pattern of an EXISTS, also those that only the pattern itself binds.
    """
    match expression:
        case Variable():
            return frozenset((expression,))
        case Call():
            parts = (expression_variables(argument, within_exists) for argument in expression.arguments)
            return NO_VARIABLES.union(*parts)
        case Aggregate(argument=argument) if argument is not None:
            return expression_variables(argument, within_exists)
        case Exists() if within_exists:
            return mentioned_variables(expression.pattern)
        case _:
            return NO_VARIABLES


def exists_patterns(expression: Expression) -> tuple[Exists, ...]:
    """Return the EXISTS and NOT EXISTS of an expression, from left to right; those inside of them are not counted."""
    match expression:
        case Exists():
            return (expression,)
        case Call():
            return tuple(found for argument in expression.arguments for found in exists_patterns(argument))
        case Aggregate(argument=argument) if argument is not None:
            return exists_patterns(argument)
        case _:
            return ()


def is_stored(graph: GraphRef, clause: DatasetClause) -> bool:
    """Return whether a graph reference is matched in stored graphs alone, and in no window."""
    match graph:
        case DefaultGraph():
            return all(window.named for window in clause.windows)
        case Variable():
            return not any(window.named for window in clause.windows)
        case Term(name=name):
            return all(window.name != name for window in clause.windows)
    return True


def may_be_bound_first(node: Node, variable: Variable) -> bool:
    """Whether a pattern that is joined to a binding of a variable may as well be matched with the variable bound.

    In a triple pattern it may. The right side of an OPTIONAL is matched without the binding: its rows are compatible or
    not, and only then joined. So the variable has to be bound to the left of it. The same holds for a variable in an
    expression."""
    asked = NO_VARIABLES.union(*map(expression_variables, node_expressions(node)))
    match node:
        case Bgp() | PathPattern() | TripleParts() | Values() | GraphNames() | Service():
            return True
        case Join() | Union():
            return all(may_be_bound_first(side, variable) for side in (node.left, node.right))
        case LeftJoin():
            is_free = variable not in possible_variables(node.right) | asked
            is_free = is_free or variable in certain_variables(node.left)
            return is_free and all(may_be_bound_first(side, variable) for side in (node.left, node.right))
        case Filter():
            is_free = variable not in asked or variable in certain_variables(node.pattern)
            return is_free and may_be_bound_first(node.pattern, variable)
        case _:
            # The parser renames no block with subqueries or MINUS, whatever is in them.
            return variable not in mentioned_variables(node)


def always_matches_in(node: Node, graph: GraphRef) -> bool:
    """Whether every solution rests on something found in this graph (so that the graph is bound and exists)."""
    match node:
        case Bgp():
            return any(pattern.graph == graph for pattern in node.patterns)
        case GraphNames():
            return node.graph == graph
        case PathPattern():
            return node.graph == graph and not is_nullable(node.path)  # a path without length needs no triple
        case Join():
            return always_matches_in(node.left, graph) or always_matches_in(node.right, graph)
        case Union():
            return always_matches_in(node.left, graph) and always_matches_in(node.right, graph)
        case LeftJoin() | Minus():
            return always_matches_in(node.left, graph)
        case Filter() | Extend() | Distinct() | OrderBy() | Slice():
            return always_matches_in(node.pattern, graph)
        case Project():
            is_seen = not isinstance(graph, Variable) or graph in node.variables
            return is_seen and always_matches_in(node.pattern, graph)
        case PerGraph():
            return node.graph == graph
        case _:
            return False  # a path of length zero and a group without keys find something in no graph at all


def components(
    patterns: Iterable[TriplePattern], bound: frozenset[Variable] = NO_VARIABLES
) -> list[tuple[TriplePattern, ...]]:
    """Split triple patterns into groups that share no variables but bound ones. Two such groups make a product, or
    something else links them."""
    groups: list[tuple[set[Variable], list[TriplePattern]]] = []
    for pattern in patterns:
        variables = set(pattern.variables()) - bound
        members: list[TriplePattern] = []
        apart = []
        for group in groups:
            if group[0] & variables:
                variables |= group[0]
                members += group[1]
            else:
                apart.append(group)
        groups = [*apart, (variables, [*members, pattern])]
    return [tuple(members) for _, members in groups]


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
