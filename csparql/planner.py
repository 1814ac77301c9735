"""The planner: orders the triple patterns of a Bgp into plan steps, over stored graphs and windows together.

Cost is counted in rows: those that a step probes with and those that it produces. Sizes come from the arrangements, so
a constant's degree is exact; for what is joined, the usual assumptions stand in: values are spread evenly, and of two
sets of values the smaller is contained in the larger.

* Patterns that share no variable (apart from those bound before) fall into components; only between components is there
  a Cartesian product, and the one that multiplies rows least for its cost comes first.
* Within a component the order is the cheapest one that needs no product: found exactly (dynamic programming over
  subsets) up to `EXACT_PATTERNS_MAX` patterns, else greedily from several starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from csparql.algebra import Bgp, TriplePattern
from csparql.cardinality import Cardinalities, Direction
from csparql.plan import PlanStep
from csparql.terms import Term, Variable

EXACT_PATTERNS_MAX = 8
GREEDY_STARTS_MAX = 8

_COUNT_MIN = 1.0
"""A range that is empty now counts as one edge: a registered query's windows fill after it is planned."""
_DEGREE_MIN = 0.01
"""A constant without edges is the best place to start, and still lets the steps after it be compared."""
_BOUND_LABEL_SHARE = 0.1
"""Which share of the candidates fits a predicate or graph variable that is already bound: a guess."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """A pattern's counts. Degrees are those of its constant ends, else averages over the keys."""

    pattern: TriplePattern
    edges: float
    keys_out: float
    keys_in: float
    degree_out: float
    degree_in: float


@dataclass(frozen=True, slots=True)
class _State:
    """What holds after some steps: rows of the binding table, cost so far, distinct values of each bound variable."""

    rows: float
    cost: float
    distinct: dict[Variable, float]
    order: tuple[int, ...]


def plan_bgp(
    bgp: Bgp, bound: frozenset[Variable], cardinalities: Cardinalities, bound_rows: float = 1.0
) -> tuple[PlanStep, ...]:
    """Order a Bgp's patterns and choose the direction of each.

    bound : the variables that the table already binds in each of its bound_rows rows.
    """
    sizes = [_measure(pattern, cardinalities) for pattern in bgp.patterns]
    start = _State(max(bound_rows, _COUNT_MIN), 0.0, dict.fromkeys(bound, max(bound_rows, _COUNT_MIN)), ())
    ranked = []
    for component in _components(bgp.patterns, bound):
        best = _best_order(sizes, component, start)
        variables = {variable for index in component for variable in bgp.patterns[index].variables()}
        is_product = bool(variables) and not variables & bound
        rank = (best.rows / start.rows - 1.0) / best.cost
        ranked.append((is_product, rank, best.order))
    steps: list[PlanStep] = []
    state = start
    for _, _, order in sorted(ranked):
        for index in order:
            direction = _direction(sizes[index], state)
            state = _after(state, sizes[index], index)
            steps.append(PlanStep(bgp.patterns[index], direction, state.rows))
    return tuple(steps)


def _measure(pattern: TriplePattern, cardinalities: Cardinalities) -> _Sizes:
    graph = pattern.graph
    predicate = pattern.predicate if isinstance(pattern.predicate, Term) else None
    edges = max(cardinalities.edges(graph, predicate), _COUNT_MIN)
    keys_out = max(cardinalities.keys(graph, predicate, "out"), _COUNT_MIN)
    keys_in = max(cardinalities.keys(graph, predicate, "in"), _COUNT_MIN)
    degree_out, degree_in = edges / keys_out, edges / keys_in
    if isinstance(pattern.subject, Term):
        degree_out = max(cardinalities.degree(graph, predicate, "out", pattern.subject), _DEGREE_MIN)
    if isinstance(pattern.object, Term):
        degree_in = max(cardinalities.degree(graph, predicate, "in", pattern.object), _DEGREE_MIN)
    return _Sizes(pattern, edges, keys_out, keys_in, degree_out, degree_in)


def _components(patterns: Sequence[TriplePattern], bound: frozenset[Variable]) -> list[list[int]]:
    """Group pattern numbers so that two groups share no variable but bound ones."""
    components: list[tuple[set[Variable], list[int]]] = []
    for index, pattern in enumerate(patterns):
        variables = set(pattern.variables()) - bound
        members = [index]
        apart = []
        for component in components:
            if component[0] & variables:
                variables |= component[0]
                members = component[1] + members
            else:
                apart.append(component)
        components = [*apart, (variables, members)]
    return [sorted(members) for _, members in components]


# --- the search for an order ------------------------------------------------------------------------------------------


def _best_order(sizes: Sequence[_Sizes], component: Sequence[int], start: _State) -> _State:
    if len(component) <= EXACT_PATTERNS_MAX:
        return _exact_order(sizes, component, start)
    firsts = sorted(_choices(sizes, component, start), key=lambda index: _greed(_after(start, sizes[index], index)))
    orders = (_greedy_order(sizes, component, start, first) for first in firsts[:GREEDY_STARTS_MAX])
    return min(orders, key=lambda state: state.cost)


def _exact_order(sizes: Sequence[_Sizes], component: Sequence[int], start: _State) -> _State:
    """Keep, for each subset of the patterns, the cheapest order that joins just these."""
    level: dict[frozenset[int], _State] = {frozenset(): start}
    for _ in component:
        following: dict[frozenset[int], _State] = {}
        for done, state in level.items():
            for index in _choices(sizes, [index for index in component if index not in done], state):
                after = _after(state, sizes[index], index)
                subset = done | {index}
                known = following.get(subset)
                if known is None or after.cost < known.cost:
                    following[subset] = after
        level = following
    (best,) = level.values()
    return best


def _greedy_order(sizes: Sequence[_Sizes], component: Sequence[int], start: _State, first: int) -> _State:
    """From a given first pattern on, always take the one that leaves the fewest rows."""
    state = _after(start, sizes[first], first)
    left = [index for index in component if index != first]
    while left:
        options = (_after(state, sizes[index], index) for index in _choices(sizes, left, state))
        state = min(options, key=_greed)
        left.remove(state.order[-1])
    return state


def _greed(state: _State) -> tuple[float, float]:
    return state.rows, state.cost


def _choices(sizes: Sequence[_Sizes], left: Iterable[int], state: _State) -> list[int]:
    """Return those of the patterns left that share a variable with the table; all of them if none does."""
    left = list(left)
    joined = [
        index for index in left if any(variable in state.distinct for variable in sizes[index].pattern.variables())
    ]
    return joined or left


# --- the estimate of one step -----------------------------------------------------------------------------------------


def _direction(sizes: _Sizes, state: _State) -> Direction:
    subject_known, object_known = _known_ends(sizes.pattern, state)
    if subject_known and object_known:
        return "in" if sizes.degree_in < sizes.degree_out else "out"
    if subject_known or object_known:
        return "out" if subject_known else "in"
    return "in" if sizes.keys_in < sizes.keys_out else "out"


def _known_ends(pattern: TriplePattern, state: _State) -> tuple[bool, bool]:
    subject_known = isinstance(pattern.subject, Term) or pattern.subject in state.distinct
    object_known = isinstance(pattern.object, Term) or pattern.object in state.distinct
    return subject_known, object_known


def _after(state: _State, sizes: _Sizes, index: int) -> _State:
    """Return the state after matching a pattern: candidates are what the step reads, rows what stays of them."""
    pattern, rows = sizes.pattern, state.rows
    subject_known, object_known = _known_ends(pattern, state)
    from_subject = _fanout(sizes.degree_out, sizes.edges, sizes.keys_out, pattern.subject, state)
    from_object = _fanout(sizes.degree_in, sizes.edges, sizes.keys_in, pattern.object, state)
    if subject_known and object_known:
        candidates = min(from_subject * from_object / sizes.edges, from_subject, from_object)
        if isinstance(pattern.predicate, Term) and not isinstance(pattern.graph, Variable):
            candidates = min(candidates, 1.0)
    elif subject_known:
        candidates = from_subject
    elif object_known:
        candidates = from_object
    else:
        candidates = sizes.edges
    kept = candidates
    if pattern.subject == pattern.object and not subject_known:
        kept /= max(sizes.keys_out, sizes.keys_in)
    for label in (pattern.predicate, pattern.graph):
        if isinstance(label, Variable) and label in state.distinct:
            kept *= _BOUND_LABEL_SHARE
    rows_after = rows * kept
    distinct = _distinct_after(state, sizes, rows_after)
    return _State(rows_after, state.cost + rows + rows * candidates, distinct, (*state.order, index))


def _fanout(degree: float, edges: float, keys: float, end: Term | Variable, state: _State) -> float:
    """Return the matches per row from one end: a constant's degree, or what a join on the variable gives on average."""
    if isinstance(end, Term):
        return degree
    if end not in state.distinct:
        return edges
    return edges / max(keys, min(state.distinct[end], state.rows))


def _distinct_after(state: _State, sizes: _Sizes, rows_after: float) -> dict[Variable, float]:
    """Bound the distinct values of the pattern's variables: no more than its keys, nor its edges at a constant end."""
    pattern = sizes.pattern
    subjects = sizes.degree_in if isinstance(pattern.object, Term) else sizes.keys_out
    objects = sizes.degree_out if isinstance(pattern.subject, Term) else sizes.keys_in
    distinct = dict(state.distinct)
    for part, values in ((pattern.subject, subjects), (pattern.object, objects)):
        if isinstance(part, Variable):
            distinct[part] = min(distinct.get(part, values), values)
    for label in (pattern.predicate, pattern.graph):
        if isinstance(label, Variable) and label not in distinct:
            distinct[label] = max(rows_after, _COUNT_MIN)
    return distinct
