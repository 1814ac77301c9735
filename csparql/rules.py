"""Rewrites of the algebra that keep every answer and make plans cheaper. RULES has them in the order in which they
apply.

A rule holds for every pattern, also for one inside of EXISTS, and also after a row's bindings are put into it. walk.py
takes the rules to all parts of a pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from wukongs.csparql.algebra import (
    UNIT,
    Bgp,
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    Project,
    Query,
    Slice,
    Timestamp,
    TripleParts,
    TriplePattern,
    Union,
)
from wukongs.csparql.paths import OneOrMore, Path, Repeated, ZeroOrMore, ZeroOrOne, is_link, repeated
from wukongs.csparql.scope import (
    NO_VARIABLES,
    certain_variables,
    components,
    exists_patterns,
    expression_variables,
    node_expressions,
    possible_variables,
)
from wukongs.csparql.terms import Variable
from wukongs.csparql.walk import (
    join_all,
    join_operands,
    map_arguments,
    map_children,
    map_expressions,
    parts_of,
    per_row_function,
)

CONJUNCTS_MAX = 100
_EXISTS = ".exists "
"""The prefix of the names of variables in the place of EXISTS; no query can name them."""

_ChainPart = TriplePattern | PathPattern


def rewrite(query: Query) -> Query:
    """Apply all rules to a query's pattern.

    Raises UnsupportedFeatureError: the query uses a feature of the grammar that cannot be answered there (SERVICE in a
    continuous query)."""
    if query.refused is not None:
        raise query.refused.with_traceback(None)
    pattern = shorten_chains(query)
    for rule in RULES:
        pattern = rule(pattern)
    return replace(query, pattern=pattern)


# --- chains become paths with bounds ----------------------------------------------------------------------------------


def shorten_chains(query: Query) -> Node:
    """Make one path of a chain such as `:p/:p?/:p?`, where nobody counts its walks: `:p{1,3}`.

    The parser makes joins of a chain, which count each walk. That shows neither in ASK without OFFSET nor below
    DISTINCT. With a link that is no option in it, no node leads to itself by no link, so constants that the graph does
    not know are the same to both. The node between two parts has to be a blank node of these two alone."""
    whole, is_counted = query.pattern, False
    while isinstance(whole, Slice):
        is_counted = is_counted or whole.offset > 0
        whole = whole.pattern
    is_set = isinstance(whole, Distinct) or (query.form == "ask" and not is_counted)
    if not is_set or per_row_function(query.pattern) is not None:
        return query.pattern
    blanks = Counter(part for part in parts_of(query.pattern) if isinstance(part, Variable) and part.is_blank)
    between = {blank for blank, count in blanks.items() if count == 2}
    if not between:
        return query.pattern

    def shortened(node: Node) -> Node:
        match node:
            case Join():
                return _with_paths(list(map(shortened, join_operands(node))), between)
            case LeftJoin() | Minus() | Union():
                return replace(node, left=shortened(node.left), right=shortened(node.right))
            case Project() | Filter() | Extend() | Distinct() | OrderBy():
                return replace(node, pattern=shortened(node.pattern))
            case Slice() if node is query.pattern:
                return replace(node, pattern=shortened(node.pattern))
            case _:
                return node

    return shortened(query.pattern)


def _with_paths(operands: list[Node], between: set[Variable]) -> Node:
    """Join operands, with paths in the place of chains."""
    paths: list[TriplePattern | PathPattern] = [node for node in operands if isinstance(node, PathPattern)]
    triples = [triple for node in operands if isinstance(node, Bgp) for triple in node.patterns]
    parts = [part for part in (*paths, *triples) if _link_bounds(part) is not None]
    left = parts
    while (found := _first_chain(left, between)) is not None:
        first, second, whole = found
        left = [whole, *(part for part in left if part is not first and part is not second)]
    gone = {id(part) for part in parts} - {id(part) for part in left}
    kept: list[Node] = []
    for node in operands:
        if isinstance(node, Bgp):
            node = Bgp(tuple(triple for triple in node.patterns if id(triple) not in gone))
        if id(node) not in gone and node != UNIT:
            kept.append(node)
    return join_all([*kept, *(part for part in left if isinstance(part, PathPattern) and part not in paths)])


def _first_chain(parts: list[_ChainPart], between: set[Variable]) -> tuple[_ChainPart, _ChainPart, PathPattern] | None:
    for first in parts:
        for second in parts:
            if first is not second and first.object in between and first.object == second.subject:
                whole = _one_path(first, second)
                if whole is not None:
                    return first, second, whole
    return None


def _link_bounds(part: _ChainPart) -> tuple[Path, int, int | None] | None:
    """Return (link, least, greatest number of times) of a link, or of one that is repeated from 0 or 1 times on."""
    if isinstance(part, TriplePattern):
        return None if isinstance(part.predicate, Variable) else (part.predicate, 1, 1)
    match part.path if part.length is None else None:
        case ZeroOrOne(path=link) if is_link(link):
            return link, 0, 1
        case ZeroOrMore(path=link) if is_link(link):
            return link, 0, None
        case OneOrMore(path=link) if is_link(link):
            return link, 1, None
        case Repeated(path=link, low=0 | 1 as low, high=high) if is_link(link):
            return link, low, high
    return None


def _one_path(first: _ChainPart, second: _ChainPart) -> PathPattern | None:
    """Return the path that two parts of a chain make, None if that is not one link repeated from once on."""
    one, other = _link_bounds(first), _link_bounds(second)
    if one is None or other is None or one[0] != other[0] or first.graph != second.graph or one[1] + other[1] != 1:
        return None
    high = None if one[2] is None or other[2] is None else one[2] + other[2]
    return PathPattern(first.subject, repeated(one[0], 1, high), second.object, first.graph)


# --- joins sink below OPTIONAL ----------------------------------------------------------------------------------------


def sink_joins(node: Node) -> Node:
    """Move a pattern that is joined to an OPTIONAL before it, if it can be planned with the patterns there.

    Join(LeftJoin(A, B, e), C) = LeftJoin(Join(A, C), B, e) if A binds, in every solution, each variable that C shares
    with B or e. Then C adds no binding that B or e could see, and A alone decides which rows of B fit."""
    node = map_children(node, sink_joins)
    if isinstance(node, Join):
        for outer, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(outer, LeftJoin) and _may_sink(outer, other):
                return LeftJoin(sink_joins(Join(outer.left, other)), outer.right, outer.condition)
    return node


def _may_sink(outer: LeftJoin, other: Node) -> bool:
    asked = NO_VARIABLES if outer.condition is None else expression_variables(outer.condition)
    shared = (possible_variables(outer.right) | asked) & possible_variables(other)
    return shared <= certain_variables(outer.left)


# --- filters leave nested groups --------------------------------------------------------------------------------------


def lift_filters(node: Node) -> Node:
    """Apply filters of nested triple patterns after the join, so that the patterns can be merged.

    Join(X, Filter(c, P)) = Filter(c, Join(X, P)) if P binds every variable of c in every solution: X cannot change
    them. X must not see a variable of c that P may leave unbound, so such a filter stays where it is."""
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


# --- triple patterns become one Bgp -----------------------------------------------------------------------------------


def merge_bgps(node: Node) -> Node:
    """Merge the Bgps of every chain of joins; the merged one stands where the first stood.

    Join is associative and commutative."""
    if not isinstance(node, Join):
        return map_children(node, merge_bgps)
    patterns: list[TriplePattern] = []
    others: list[Node] = []
    place: int | None = None
    for operand in join_operands(node):
        if isinstance(operand, Bgp):
            patterns.extend(operand.patterns)
            place = len(others) if place is None else place
        else:
            others.append(merge_bgps(operand))
    if place is not None and (patterns or not others):
        others.insert(place, Bgp(tuple(patterns)))
    return join_all(others)


# --- conjuncts become filters -----------------------------------------------------------------------------------------


def split_filters(node: Node) -> Node:
    """Give every conjunct of a filter a filter of its own; the first conjunct becomes the innermost.

    Filter(a && b, P) = Filter(a, Filter(b, P)): a row stays only if both are true, whatever errors there are. A filter
    with more conjuncts than CONJUNCTS_MAX stays whole: split, it would be as deep as it is long."""
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


# --- filters go down --------------------------------------------------------------------------------------------------


def push_filters(node: Node) -> Node:
    """Push filters down to where their variables are bound.

    * Filter(c, Join(L, R)) = Join(Filter(c, L), R) if L binds, in every solution, each variable of c that L or R may
      bind. (A variable that neither binds is unbound before and after. So are the variables that only the pattern of an
      EXISTS binds.)
    * Filter(c, LeftJoin(L, R, e)) = LeftJoin(Filter(c, L), R, e) under the same condition: R adds nothing that c sees.
    * Filter(c, Minus(L, R)) = Minus(Filter(c, L), R) always: both only take rows of L away.
    * Filter(c, Project(P, v)) = Project(Filter(c, P), v), since variables that are not projected have names of their
      own; Filter(c, Distinct(P)) = Distinct(Filter(c, P)). So a subquery is filtered inside, but not below a LIMIT or a
      group.
    * Filter(c, Union(L, R)) = Union(Filter(c, L), Filter(c, R)) always.
    * Filter(c, Extend(P, v, e)) = Extend(Filter(c, P), v, e) if c does not mention v; and so for a Timestamp.

    An expression without variables stays where it is. So does an expression above a join if it would be applied to
    triple patterns that only other parts of the join may link (a path, the parts of a triple term): the patterns would
    make a product.
    """
    node = map_children(node, push_filters)
    return _pushed(node.condition, node.pattern) if isinstance(node, Filter) else node


def _pushed(condition: Expression, node: Node) -> Node:
    """Apply a condition to a node, as deep inside of it as it may go."""
    mentioned = expression_variables(condition)
    if not mentioned:
        return Filter(condition, node)
    seen = mentioned & possible_variables(node)
    match node:
        case Join() if _takes_filter(node.left, condition, seen):
            return Join(_pushed(condition, node.left), node.right)
        case Join() if _takes_filter(node.right, condition, seen):
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


def _takes_filter(side: Node, condition: Expression, seen: frozenset[Variable]) -> bool:
    """Tell whether a condition may be applied to one side of a join. seen: its variables that the join binds."""
    if not seen <= certain_variables(side) or isinstance(side, TripleParts):
        return False
    while isinstance(side, Filter):
        side = side.pattern
    if not isinstance(side, Bgp) or len(links := components(side.patterns)) < 2:
        return True
    mentioned = expression_variables(condition)
    is_closed = any(mentioned <= possible_variables(Bgp(members)) for members in links)
    return is_closed and not exists_patterns(condition)


# --- EXISTS below groups and ORDER BY ---------------------------------------------------------------------------------


def exists_below(node: Node) -> Node:
    """Have BIND make a variable, below a group or an order, of each EXISTS in it: EXISTS has no error, and sees the
    same rows there. So EXISTS stands in BIND, filters and the conditions of OPTIONAL alone."""
    node = map_children(node, exists_below)
    if not isinstance(node, Group | OrderBy):
        return node
    found, bound = exists_bound(node, node.pattern)
    if found is node:
        return node
    shown = tuple(sorted(possible_variables(node.pattern), key=str))
    below = replace(found, pattern=bound)  # type: ignore[arg-type]
    return Project(below, shown) if isinstance(node, OrderBy) else below


def exists_bound(node: Node, pattern: Node) -> tuple[Node, Node]:
    """Return a node with a variable in the place of each EXISTS in its expressions, and the part below it with BIND of
    these; the very same ones if there is none."""
    if not any(map(exists_patterns, node_expressions(node))):
        return node, pattern
    made = dict[Exists, Variable]()
    within = sum(isinstance(part, Extend) and part.variable.name.startswith(_EXISTS) for part in parts_of(node))

    def named(expression: Expression) -> Expression:
        if isinstance(expression, Exists):
            return made.setdefault(expression, Variable(f"{_EXISTS}{within + len(made)}"))
        return map_arguments(expression, named)

    found = map_expressions(node, named)
    for exists, variable in made.items():
        pattern = Extend(pattern, variable, exists)
    return found, pattern


# --- DISTINCT below ORDER BY ------------------------------------------------------------------------------------------


def distinct_first(node: Node) -> Node:
    """Order distinct rows, in the place of all rows, below a LIMIT: Distinct(Project(OrderBy(P, c), v)) =
    OrderBy(Distinct(Project(P, v)), c) if c mentions variables of v alone.

    Equal rows have equal places in the order. Fewer rows are ordered then, and what LIMIT cuts are the rows themselves:
    their change is known where that of the rows below DISTINCT is (incremental/cuts.py)."""
    node = map_children(node, distinct_first)
    match node:
        case Slice(pattern=Distinct(pattern=Project(pattern=OrderBy() as ordering, variables=variables))):
            mentioned = NO_VARIABLES.union(*(expression_variables(one) for one, _ in ordering.conditions))
            if mentioned <= {*variables} and per_row_function(ordering.conditions) is None:
                below = Distinct(Project(ordering.pattern, variables))
                return replace(node, pattern=replace(ordering, pattern=below))
    return node


RULES: tuple[Callable[[Node], Node], ...] = (
    sink_joins,  # OPTIONAL comes after the patterns joined to it, so that more triple patterns are neighbours
    lift_filters,  # a filter of a nested group leaves it, so that its triple patterns can be planned with the others
    merge_bgps,
    split_filters,
    push_filters,
    exists_below,
    distinct_first,
)
