"""The planner: orders the triple patterns of a Bgp into plan steps, over stored graphs and windows together.

Cost is counted in rows: those that a step probes with and those that it produces. Sizes come from the arrangements, so
a constant's degree is exact. For joins we make the usual assumptions: values are spread evenly, and the smaller of two
sets of values is contained in the larger (estimates.py).

* Patterns that share no variable (apart from those bound before) fall into components. Only components make a Cartesian
  product, and the one that multiplies rows least for its cost comes first.
* Filters are placed between the steps once these have an order (filter_placement.py).
* Within a component the order is the cheapest one that needs no product: found exactly (dynamic programming over
  subsets, join_order.py) up to `EXACT_PATTERNS_MAX` patterns, else greedily from several starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wukongs.csparql.algebra import Bgp, TermOrVariable, TriplePattern, graph_variable
from wukongs.csparql.cardinality import Cardinalities
from wukongs.csparql.estimates import Sizes, after, direction, measure, start_state
from wukongs.csparql.filter_placement import pinned, place_filters
from wukongs.csparql.join_order import EXACT_PATTERNS_MAX, best_order
from wukongs.csparql.plan import FilteredBgp, Plan, PlanStep
from wukongs.csparql.terms import Term, Variable

__all__ = ["EXACT_PATTERNS_MAX", "plan_bgp", "plan_filtered"]


def plan_filtered(
    wanted: FilteredBgp, bound: frozenset[Variable], cardinalities: Cardinalities, bound_rows: float = 1.0
) -> Plan:
    """Plan triple patterns with the filters above them. bound, bound_rows: as plan_bgp."""
    wanted, constants = pinned(wanted, bound)
    bound = bound.union(constants)
    steps = plan_bgp(wanted.bgp, bound, cardinalities, bound_rows)
    return replace(place_filters(steps, wanted.filters, bound, bound_rows), constants=tuple(constants.items()))


def plan_bgp(
    bgp: Bgp, bound: frozenset[Variable], cardinalities: Cardinalities, bound_rows: float = 1.0
) -> tuple[PlanStep, ...]:
    """Order a Bgp's patterns and choose the direction of each.

    bound : the variables that the table already binds in each of its bound_rows rows.
    """
    numbers: dict[Variable, int] = {variable: at for at, variable in enumerate(sorted(bound, key=str))}
    for pattern in bgp.patterns:
        for variable in pattern.variables():
            numbers.setdefault(variable, len(numbers))
    sizes = [measure(pattern, numbers, cardinalities) for pattern in bgp.patterns]
    sizes = _with_shares(bgp.patterns, sizes, cardinalities)
    start = start_state(len(bound), len(numbers), bound_rows)
    ranked = []
    for component in _components(sizes, start.bound):
        found = best_order([sizes[index] for index in component], start)
        order = tuple(component[at] for at in found.order)
        variables = _union(sizes, component)
        is_product = bool(variables) and not variables & start.bound
        rank = (found.rows / start.rows - 1.0) / found.cost
        ranked.append((is_product, rank, order))
    steps: list[PlanStep] = []
    state = start
    for _, _, order in sorted(ranked):
        for index in order:
            chosen = direction(sizes[index], state)
            state = after(state, sizes[index])
            steps.append(PlanStep(bgp.patterns[index], chosen, state.rows))
    return tuple(steps)


def _with_shares(
    patterns: Sequence[TriplePattern], sizes: Sequence[Sizes], cardinalities: Cardinalities
) -> list[Sizes]:
    """Note, for each check of a class, which share of the values of the smallest other pattern passes it.

    The classes of a predicate's values are not independent of the predicate: all values are of one class, or a quarter
    is.
    """

    def least(index: int) -> float:
        end = min(sizes[index].edges, sizes[index].subjects, sizes[index].objects)
        return end if any(isinstance(part, Term) for part in _ends(patterns[index])) else sizes[index].edges

    found = list(sizes)
    for index, asked in enumerate(patterns):
        if sizes[index].of_class:
            others = (
                at
                for at, other in enumerate(patterns)
                if asked.subject in _ends(other) and not sizes[at].of_class and _is_listed(other)
            )
            nearest = min(others, key=least, default=None)
            if nearest is not None:
                assert isinstance(asked.subject, Variable)
                found[index] = replace(sizes[index], share=cardinalities.share(patterns[nearest], asked.subject, asked))
    return found


def _is_listed(pattern: TriplePattern) -> bool:
    """Whether all triples that a pattern meets match it, so that a few matches are found soon."""
    is_one_graph = graph_variable(pattern.graph) is None
    return is_one_graph and isinstance(pattern.predicate, Term) and pattern.subject != pattern.object


def _ends(pattern: TriplePattern) -> tuple[TermOrVariable, TermOrVariable]:
    return pattern.subject, pattern.object


def _components(sizes: Sequence[Sizes], bound: int) -> list[list[int]]:
    """Group pattern numbers so that two groups share no variable but bound ones."""
    components: list[tuple[int, list[int]]] = []
    for index, size in enumerate(sizes):
        variables = size.variables & ~bound
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


def _union(sizes: Sequence[Sizes], component: Sequence[int]) -> int:
    variables = 0
    for index in component:
        variables |= sizes[index].variables
    return variables
