"""Estimates: how many rows a plan step reads and leaves, from the sizes of its pattern's parts.

A state holds, for each variable, at most how many distinct values it has so far. Variables are numbered, and sets of
them are the bits of an integer, because the search for an order makes thousands of these states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from wukongs.csparql.algebra import TriplePattern, graph_variable
from wukongs.csparql.cardinality import Cardinalities, Direction
from wukongs.csparql.terms import RDF_TYPE, Term, Variable

_COUNT_MIN = 1.0
"""A range that is empty now counts as one edge: a registered query's windows fill after it is planned."""
_DEGREE_MIN = 0.01
"""A constant without edges is the best place to start, and still lets the steps after it be compared."""
_BOUND_LABEL_SHARE = 0.1
"""The share of the candidates that fits a predicate or graph variable that is already bound: a guess."""
_CONSTANT = -1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The counts of a pattern. Degrees are those of its constant ends, else averages over the keys.

    subject, object, predicate, graph: the numbers of their variables, -1 for a constant; variables: their bits;
    subjects, objects: the most distinct values that a match gives each end; of_class: the pattern asks a variable for a
    given rdf:type; share: of the values that another pattern gives the variable, the share that is known to have the
    type.
    """

    edges: float
    keys_out: float
    keys_in: float
    degree_out: float
    degree_in: float
    subject: int
    object: int
    predicate: int
    graph: int
    variables: int
    subjects: float
    objects: float
    of_class: bool
    share: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """The state after some steps: rows of the binding table, cost so far, the bits of the bound variables, and how
    many distinct values each variable has at most (infinity for one that is not bound)."""

    rows: float
    cost: float
    bound: int
    distinct: list[float]


def measure(pattern: TriplePattern, numbers: Mapping[Variable, int], cardinalities: Cardinalities) -> Sizes:
    """Ask for the sizes of a pattern's parts."""
    graph = pattern.graph
    predicate = pattern.predicate if isinstance(pattern.predicate, Term) else None
    edges = max(cardinalities.edges(graph, predicate), _COUNT_MIN)
    keys_out = max(cardinalities.keys(graph, predicate, "out"), _COUNT_MIN)
    keys_in = max(cardinalities.keys(graph, predicate, "in"), _COUNT_MIN)
    degree_out, degree_in = edges / keys_out, edges / keys_in
    subjects, objects = keys_out, keys_in
    if isinstance(pattern.subject, Term):
        degree_out = objects = max(cardinalities.degree(graph, predicate, "out", pattern.subject), _DEGREE_MIN)
    if isinstance(pattern.object, Term):
        degree_in = subjects = max(cardinalities.degree(graph, predicate, "in", pattern.object), _DEGREE_MIN)
    subject, label, object_, place = (
        numbers[part] if isinstance(part, Variable) else _CONSTANT
        for part in (pattern.subject, pattern.predicate, pattern.object, graph_variable(graph))
    )
    variables = 0
    for number in (subject, label, object_, place):
        if number >= 0:
            variables |= 1 << number
    return Sizes(
        edges,
        keys_out,
        keys_in,
        degree_out,
        degree_in,
        subject,
        object_,
        label,
        place,
        variables,
        subjects,
        objects,
        predicate == RDF_TYPE and isinstance(pattern.object, Term) and subject >= 0 and place < 0,
    )


def start_state(bound_count: int, variable_count: int, bound_rows: float) -> State:
    """Return the state of a table of bound_rows rows, which bind the variables with the numbers below bound_count."""
    rows = max(bound_rows, _COUNT_MIN)
    return State(rows, 0.0, (1 << bound_count) - 1, [rows] * bound_count + [inf] * (variable_count - bound_count))


def direction(sizes: Sizes, state: State) -> Direction:
    """Choose the end from which to explore: the one that is known, or the one that leads to fewer rows."""
    subject_known = sizes.subject < 0 or bool(state.bound >> sizes.subject & 1)
    object_known = sizes.object < 0 or bool(state.bound >> sizes.object & 1)
    if subject_known and object_known:
        return "in" if sizes.degree_in < sizes.degree_out else "out"
    if subject_known or object_known:
        return "out" if subject_known else "in"
    return "in" if sizes.keys_in < sizes.keys_out else "out"


def rows_and_cost(state: State, sizes: Sizes) -> tuple[float, float]:
    """Return the rows after matching a pattern, and the cost so far. The step reads candidates, and keeps some."""
    rows, bound, distinct = state.rows, state.bound, state.distinct
    subject, object_ = sizes.subject, sizes.object
    subject_known, object_known = subject < 0 or bound >> subject & 1, object_ < 0 or bound >> object_ & 1
    from_subject = from_object = sizes.edges
    if subject < 0:
        from_subject = sizes.degree_out
    elif subject_known:
        from_subject /= max(sizes.keys_out, min(distinct[subject], rows))
    if object_ < 0:
        from_object = sizes.degree_in
    elif object_known:
        from_object /= max(sizes.keys_in, min(distinct[object_], rows))
    if subject_known and object_known:
        candidates = min(from_subject * from_object / sizes.edges, from_subject, from_object)
        if sizes.share is not None:
            candidates = sizes.share
        elif sizes.of_class:
            # What is asked for its class is most often of it: as if the fewer values lay in the other ones.
            candidates = sizes.degree_in / max(sizes.degree_in, min(distinct[subject], rows))
        if sizes.predicate < 0 and sizes.graph < 0:
            candidates = min(candidates, 1.0)
    elif subject_known:
        candidates = from_subject
    else:
        candidates = from_object
    kept = candidates
    if subject == object_ and not subject_known:
        kept /= max(sizes.keys_out, sizes.keys_in)
    if sizes.predicate >= 0 and bound >> sizes.predicate & 1:
        kept *= _BOUND_LABEL_SHARE
    if sizes.graph >= 0 and bound >> sizes.graph & 1:
        kept *= _BOUND_LABEL_SHARE
    return rows * kept, state.cost + rows + rows * candidates


def joined(state: State, sizes: Sizes, rows: float, cost: float) -> State:
    """Return the state after a pattern; rows_and_cost gave its rows and cost.

    A variable has no more distinct values than its end of the pattern has keys, nor than a constant at the other end
    has edges.
    """
    distinct = state.distinct.copy()
    if sizes.subject >= 0:
        distinct[sizes.subject] = min(distinct[sizes.subject], sizes.subjects)
    if sizes.object >= 0:
        distinct[sizes.object] = min(distinct[sizes.object], sizes.objects)
    for label in (sizes.predicate, sizes.graph):
        if label >= 0 and distinct[label] == inf:
            distinct[label] = max(rows, _COUNT_MIN)
    return State(rows, cost, state.bound | sizes.variables, distinct)


def after(state: State, sizes: Sizes) -> State:
    """Return the state after matching a pattern."""
    return joined(state, sizes, *rows_and_cost(state, sizes))
