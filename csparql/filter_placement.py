"""Placement of filters between the steps of a plan; filters that only put a constant into the patterns.

A filter may be applied as soon as the variables that it shares with the patterns are bound. A stop between two steps
costs about as much as some hundred rows, and a look at a value costs more than passing a row on. So a filter goes to
the earliest place where it spares the later steps enough rows to pay for that, else behind the last step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from wukongs.csparql.algebra import Bgp, Call, Expression, TermOrVariable, graph_variable
from wukongs.csparql.functions import PER_ROW, calls_any
from wukongs.csparql.plan import FilteredBgp, Plan, PlanStep
from wukongs.csparql.scope import expression_variables
from wukongs.csparql.terms import Term, Variable

SPLIT_ROWS = 300.0
"""Cost of a stop between two steps, in rows."""
FILTER_ROWS = 30.0
"""Cost of asking a condition of one row, in rows."""
_SHARES = {"=": 0.1, "SAMETERM": 0.1, "!=": 0.9, "<": 0.3, ">": 0.3, "<=": 0.3, ">=": 0.3}
_SHARE = 0.5
_KINDS = {"ISIRI": 0.9, "ISBLANK": 0.1, "ISLITERAL": 0.01, "ISNUMERIC": 0.01, "ISTRIPLE": 0.01}
"""The shares of the subjects of triples that are of a kind: none is a literal."""


def pinned(wanted: FilteredBgp, bound: frozenset[Variable]) -> tuple[FilteredBgp, dict[Variable, Term]]:
    """Put constants in the place of variables that a filter says to be equal to one; return the rest to explore.

    Only where equal values are the same term: IRIs, strings and strings with a language tag (SPARQL 1.1, 17.4.1.7), and
    with sameTerm. Not for a variable that is bound before, nor for that of a graph: GRAPH <g> reads a graph that FROM
    declares.
    """
    patterns = wanted.bgp.patterns
    graphs = {graph_variable(pattern.graph) for pattern in patterns}
    free = {variable for pattern in patterns for variable in pattern.variables()} - bound - graphs
    constants: dict[Variable, Term] = {}
    filters = []
    for condition in wanted.filters:
        found = _equality(condition)
        if found is not None and found[0] in free and found[0] not in constants:
            constants[found[0]] = found[1]
        else:
            filters.append(condition)
    if not constants:
        return wanted, constants
    changed = tuple(
        replace(
            pattern,
            subject=_pin(pattern.subject, constants),
            predicate=_pin(pattern.predicate, constants),
            object=_pin(pattern.object, constants),
        )
        for pattern in patterns
    )
    return FilteredBgp(Bgp(changed), tuple(filters)), constants


def _pin(part: Term | Variable, constants: dict[Variable, Term]) -> Term | Variable:
    return constants.get(part, part) if isinstance(part, Variable) else part


def _equality(condition: Expression) -> tuple[Variable, Term] | None:
    """Return (variable, term) of a condition that holds exactly for the rows that bind the variable to that term."""
    if not (isinstance(condition, Call) and condition.op in ("=", "SAMETERM") and len(condition.arguments) == 2):
        return None
    one, other = condition.arguments
    if isinstance(one, Term):
        one, other = other, one
    if not (isinstance(one, Variable) and isinstance(other, Term)):
        return None
    is_same_term = condition.op == "SAMETERM" or other.is_iri or not (other.text.endswith(">") or other.is_triple)
    return (one, other) if is_same_term else None


def place_filters(
    steps: Sequence[PlanStep], filters: Sequence[Expression], bound: frozenset[Variable], bound_rows: float
) -> Plan:
    """Put filters between steps. bound: the variables that each of the bound_rows rows before the first step binds."""
    known = [bound]
    for step in steps:
        known.append(known[-1].union(step.pattern.variables()))
    rows = [max(bound_rows, 1.0), *(step.estimated_rows for step in steps)]
    placed: list[list[Expression]] = [[] for _ in rows]
    subjects = {step.pattern.subject for step in steps if isinstance(step.pattern.subject, Variable)}
    for condition in filters:
        waits_for = expression_variables(condition) & known[-1]
        earliest = next(at for at, variables in enumerate(known) if waits_for <= variables)
        share = _share(condition, subjects)
        at = len(steps) if calls_any(condition, PER_ROW) else _place(rows, earliest, share)
        placed[at].append(condition)
        if at < len(steps):
            rows[at + 1 :] = [count * share for count in rows[at + 1 :]]
    made = tuple(
        replace(step, estimated_rows=count, filters=tuple(conditions))
        for step, count, conditions in zip(steps, rows[1:], placed[1:], strict=True)
    )
    return Plan(made, tuple(placed[0]))


def _place(rows: Sequence[float], earliest: int, share: float) -> int:
    """Return after how many steps a filter that leaves this share of the rows costs least."""
    last = len(rows) - 1
    best, best_cost = last, FILTER_ROWS * rows[last]
    for at in range(earliest, last):
        later = sum(rows[at:last]) + sum(rows[at + 1 :])
        cost = FILTER_ROWS * rows[at] + SPLIT_ROWS - (1 - share) * later
        if cost < best_cost:
            best, best_cost = at, cost
    return best


def _share(condition: Expression, subjects: Collection[TermOrVariable]) -> float:
    """Guess which share of the rows a condition lets pass. subjects: the variables that are subjects of triples."""
    if not isinstance(condition, Call):
        return _SHARE
    match condition.op, condition.arguments:
        case "&&", parts:
            found = 1.0
            for part in parts:
                found *= _share(part, subjects)
            return found
        case "||", parts:
            return min(1.0, sum(_share(part, subjects) for part in parts))
        case "!", (part,):
            return 1.0 - _share(part, subjects)
        case "IN", parts:
            return min(1.0, _SHARES["="] * (len(parts) - 1))
        case op, (Variable() as part,) if part in subjects and op in _KINDS:
            return _KINDS[op]
        case op, _:
            return _SHARES.get(op, _SHARE)
