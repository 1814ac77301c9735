"""The order in which the parts of a chain of joins are explored, each from the rows of those before it.

A part is explorable if its solutions that join with given rows can be found from these rows: triple patterns, paths,
triple terms and their parts, and filters, unions, BINDs and plain subqueries of such parts. A chain's triple patterns
are no single Bgp any more: patterns that share no variable are parts of their own, and a path, union or triple term
that links them may come in between. At each turn the part is taken that reads and leaves the fewest rows. Rows that are
left count for more while triple terms are still to be tied to their parts, row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import NamedTuple

from wukongs.csparql.algebra import (
    Bgp,
    Expression,
    Extend,
    Filter,
    GraphRef,
    Join,
    Node,
    PathPattern,
    Project,
    TermOrVariable,
    TripleParts,
    Union,
)
from wukongs.csparql.automaton import Automaton, Link, automaton_of
from wukongs.csparql.cardinality import Cardinalities
from wukongs.csparql.functions import PER_ROW, calls_any
from wukongs.csparql.paths import Inverse, is_nullable
from wukongs.csparql.plan import FilteredBgp
from wukongs.csparql.planner import plan_bgp, plan_filtered
from wukongs.csparql.scope import (
    NO_VARIABLES,
    certain_variables,
    components,
    exists_patterns,
    expression_variables,
    possible_variables,
)
from wukongs.csparql.terms import Term, Variable
from wukongs.csparql.walk import join_operands

_LINKED_SHARE = 0.5
"""The share of pairs of bound ends that a path links: a guess."""
_TRIPLE_ROWS = 30.0
"""Cost of putting one triple term together or pulling it apart, in rows."""
_PART_SHARES = (0.1, 0.5, 0.1)
"""The shares of the triple terms that have a given subject, predicate, object: guesses."""
_ROWS_MAX = 1e100
"""Estimates of hundreds of parts stay numbers that can be divided."""
ESTIMATED_ANEW_MAX = 20
"""Up to so many parts are all estimated anew at each turn."""


class _Explorable(NamedTuple):
    """The variables of an explorable node: those that every solution binds by a match, those that BIND makes, and all
    that a solution may bind by a match."""

    certain: frozenset[Variable]
    made: frozenset[Variable]
    possible: frozenset[Variable]


def is_explorable(node: Node, bound: Collection[Variable] = ()) -> bool:
    """Tell whether a node can be explored from rows that are to be joined with it and may bind some variables.

    Join(T, Extend(P, v, e)) = Extend(Join(T, P), v, e) if e mentions only variables that P binds in each solution or
    makes itself, if its value is the same for equal bindings, and if the rows of T do not bind v, with which its value
    would be compared."""
    found = _explorable(node)
    return found is not None and found.made.isdisjoint(bound) and not (bound and _is_apart(node, found, bound))


def explorable_operands(operands: Sequence[Node], bound: Collection[Variable] = ()) -> tuple[Node, ...]:
    """Return those operands of joins that can be explored from rows of the others. bound: variables of other rows that
    are joined to them."""
    found = list(map(_explorable, operands))
    others = Counter(variable for operand in operands for variable in possible_variables(operand))
    return tuple(
        operand
        for operand, variables in zip(operands, found, strict=True)
        if variables is not None
        and variables.made.isdisjoint(bound)
        and all(others[variable] == 1 for variable in variables.made)
        and not _is_apart(operand, variables, (*bound, *(each for each, count in others.items() if count > 1)))
    )


def _is_apart(node: Node, variables: _Explorable, bound: Collection[Variable]) -> bool:
    """Tell whether a node is a subquery that shares no variable with the rows around it: it is found once, and not for
    each of them."""
    return isinstance(node, Project) and variables.possible.isdisjoint(bound)


def _explorable(node: Node) -> _Explorable | None:
    match node:
        case Bgp() | PathPattern() | TripleParts():
            bound = possible_variables(node)
            return _Explorable(bound, NO_VARIABLES, bound)
        case Filter(pattern=pattern):
            # The filter sees only variables that the pattern binds, so it may as well come after the join.
            below = _explorable(pattern)
            return below if below is not None and _is_closed(node.condition, below) else None
        case Extend(pattern=pattern, variable=variable, expression=expression):
            below = _explorable(pattern)
            if below is None or not _is_closed(expression, below) or calls_any(expression, PER_ROW):
                return None
            return below._replace(made=below.made | {variable})
        case Project():
            # The variables that a subquery does not let out have names of their own, so no other rows bind them.
            below, seen = _explorable(node.pattern), frozenset(node.variables)
            return None if below is None else _Explorable(*(variables & seen for variables in below))
        case Union() | Join():
            left, right = _explorable(node.left), _explorable(node.right)
            if left is None or right is None:
                return None
            made, possible = left.made | right.made, left.possible | right.possible
            if isinstance(node, Union):
                return _Explorable(left.certain & right.certain, made, possible)
            is_apart = left.made.isdisjoint(right.made | right.possible) and right.made.isdisjoint(left.possible)
            return _Explorable(left.certain | right.certain, made, possible) if is_apart else None
        case _:
            return None


def _is_closed(expression: Expression, below: _Explorable) -> bool:
    return expression_variables(expression) <= below.certain | below.made and not exists_patterns(expression)


def exploration_parts(operands: Iterable[Node], bound: frozenset[Variable]) -> tuple[Node, ...]:
    """Return explorable operands of joins as parts to put in order. bound: the variables of the rows before them."""
    parts = [part for operand in operands for part in join_operands(operand)]
    if len(parts) < 2:
        return tuple(parts)
    return tuple(piece for part in parts for piece in _pieces(part, bound))


def graphs_of(node: Node) -> frozenset[GraphRef]:
    """Return the graphs that an explorable node is matched in."""
    match node:
        case Bgp(patterns=patterns):
            return frozenset(pattern.graph for pattern in patterns)
        case PathPattern(graph=graph):
            return frozenset((graph,))
        case TripleParts():
            return frozenset()
        case Filter(pattern=pattern) | Extend(pattern=pattern) | Project(pattern=pattern):
            return graphs_of(pattern)
        case Union() | Join():
            return graphs_of(node.left) | graphs_of(node.right)
    raise AssertionError(f"{type(node).__name__} cannot be explored")


def exploration_order(
    parts: Sequence[Node], bound: frozenset[Variable], rows: float, cardinalities: Cardinalities
) -> tuple[Node, ...]:
    """Put parts in the order in which they are to be explored from `rows` rows that bind `bound`.

    If there are many parts, a part is estimated anew only if one of its variables has been bound since. The others are
    taken to read and leave as many rows for each row as before.
    """
    left, ordered = list(parts), []
    estimates: list[tuple[float, float]] = []
    newly = certain = bound

    def estimate(part: Node) -> tuple[float, float]:
        # A triple term is tied to its parts where each row binds it, or all of these.
        return part_estimate(part, certain if isinstance(part, TripleParts) else bound, rows, cardinalities)

    estimated_at = rows
    while len(left) > 1:
        if not estimates or len(left) <= ESTIMATED_ANEW_MAX:
            estimates = list(map(estimate, left))
        else:
            grown = rows / estimated_at
            estimates = [
                estimate(part) if not newly.isdisjoint(possible_variables(part)) else (read * grown, left_rows * grown)
                for part, (read, left_rows) in zip(left, estimates, strict=True)
            ]
        estimated_at = rows
        waiting = sum(isinstance(part, TripleParts) for part in left)
        weights = [1.0 + _TRIPLE_ROWS * (waiting - isinstance(part, TripleParts)) for part in left]
        at = min(range(len(left)), key=lambda index: estimates[index][0] + weights[index] * estimates[index][1])
        rows = min(max(estimates.pop(at)[1], 1 / _ROWS_MAX), _ROWS_MAX)
        ordered.append(left.pop(at))
        newly = possible_variables(ordered[-1]) - bound
        bound |= newly
        certain |= certain_variables(ordered[-1])
    return (*ordered, *left)


def _pieces(part: Node, bound: frozenset[Variable]) -> list[Node]:
    """Split triple patterns, with the filters above them, into groups that share no variable but bound ones. Other
    nodes, and patterns that a filter links, are not split."""
    filtered = FilteredBgp.of(part)
    if filtered is None:
        return [part]
    pieces: list[Node] = [Bgp(patterns) for patterns in components(filtered.bgp.patterns, bound)]
    if len(pieces) == 1:
        return [part]
    for condition in filtered.filters:
        asked = expression_variables(condition)
        at = next((at for at, piece in enumerate(pieces) if asked <= possible_variables(piece)), None)
        if at is None:
            return [part]
        pieces[at] = Filter(condition, pieces[at])
    return pieces


# --- estimates --------------------------------------------------------------------------------------------------------


def part_estimate(
    node: Node, bound: frozenset[Variable], rows: float, cardinalities: Cardinalities
) -> tuple[float, float]:
    """Return (rows read, rows left) of exploring a node from rows."""
    match node:
        case Bgp():
            steps = plan_bgp(node, bound, cardinalities, rows)
            return sum(step.estimated_rows for step in steps), steps[-1].estimated_rows if steps else rows
        case PathPattern():
            return path_estimate(node, bound, rows, cardinalities)
        case TripleParts():
            return _parts_estimate(node, bound, rows)
        case Extend() | Project():
            return part_estimate(node.pattern, bound, rows, cardinalities)
        case Filter():
            filtered = FilteredBgp.of(node)
            if filtered is None:
                return part_estimate(node.pattern, bound, rows, cardinalities)
            made = plan_filtered(filtered, bound, cardinalities, rows).steps
            return sum(step.estimated_rows for step in made), made[-1].estimated_rows if made else rows
        case Union():
            left, right = (
                part_estimate(node.left, bound, rows, cardinalities),
                part_estimate(node.right, bound, rows, cardinalities),
            )
            return left[0] + right[0], left[1] + right[1]
        case Join():
            read, left_rows = part_estimate(node.left, bound, rows, cardinalities)
            more, rows = part_estimate(node.right, bound | possible_variables(node.left), left_rows, cardinalities)
            return read + more, rows
    raise AssertionError(f"{type(node).__name__} cannot be explored")


def path_estimate(
    node: PathPattern, bound: frozenset[Variable], rows: float, cardinalities: Cardinalities
) -> tuple[float, float]:
    """Return (rows read, rows left) of searching a path from rows that bind `bound`."""

    def is_known(end: TermOrVariable) -> bool:
        return isinstance(end, Term) or end in bound

    ways = ((node.subject, automaton_of(node.path)), (node.object, automaton_of(Inverse(node.path))))
    reached = [_reached(found, end, node.graph, cardinalities) for end, found in ways]
    known = [is_known(end) for end, _ in ways]
    if all(known):
        return rows * min(reached), rows * _LINKED_SHARE
    if any(known):
        found = rows * reached[known.index(True)]
        return found, found
    starts = sum(cardinalities.keys(node.graph, link.predicate, link.direction) for link in ways[0][1].first_links())
    if is_nullable(node.path):
        starts += cardinalities.keys(node.graph, None, "out") + cardinalities.keys(node.graph, None, "in")
    read = starts * reached[0]
    return read, rows * (starts if node.subject == node.object else read)


def _parts_estimate(node: TripleParts, bound: frozenset[Variable], rows: float) -> tuple[float, float]:
    """Return (rows read, rows left) of tying a triple term to its parts; infinity while neither is bound."""
    known = [isinstance(part, Term) or part in bound for part in node.parts()]
    if node.variable in bound:
        left = rows
        for share, is_known in zip(_PART_SHARES, known, strict=True):
            left *= share if is_known else 1.0
        return rows * _TRIPLE_ROWS, left
    return (rows * _TRIPLE_ROWS, rows) if all(known) else (inf, inf)


def _reached(found: Automaton, end: TermOrVariable, graph: GraphRef, cardinalities: Cardinalities) -> float:
    """Guess how many nodes a walk leads to from one end: as many as three links lead to, at most all that there are."""
    links, steps = found.links(), 3 if found.steps_max is None else min(found.steps_max, 3)
    growth = sum(_degree(link, graph, cardinalities) for link in links)
    begins = sum(
        cardinalities.degree(graph, link.predicate, link.direction, end)
        if isinstance(end, Term) and link.predicate is not None
        else _degree(link, graph, cardinalities)
        for link in found.first_links()
    )
    there = sum(cardinalities.keys(graph, link.predicate, "in" if link.direction == "out" else "out") for link in links)
    return 1.0 + min(begins * sum(growth**step for step in range(steps)), there)


def _degree(link: Link, graph: GraphRef, cardinalities: Cardinalities) -> float:
    return cardinalities.edges(graph, link.predicate) / max(
        1.0, cardinalities.keys(graph, link.predicate, link.direction)
    )
