"""The steps of a plan as lines of text: aligned columns, with the filters between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wukongs.csparql.algebra import Expression, GraphRef, TermOrVariable, TriplePattern
from wukongs.csparql.plan import Plan
from wukongs.csparql.terms import RDF, Term, Variable


def plan_lines(
    plan: Plan,
    bound: frozenset[Variable],
    where: Callable[[GraphRef], str],
    format_condition: Callable[[Expression], str],
    step_rows: Sequence[int] | None = None,
    ways: Sequence[str] | None = None,
) -> Iterator[str]:
    """Show number, kind, direction, pattern, where, estimated rows and, if step_rows tells them, actual ones.

    bound: the variables of the rows to start from; ways: how each step comes to triples of other nodes.
    """
    for variable, term in plan.constants:
        yield f"with {variable} = {format_term(term)}"
    for condition in plan.filters:
        yield f"filter {format_condition(condition)}"
    cells = []
    bound = bound.union(variable for variable, _ in plan.constants)
    for number, step in enumerate(plan.steps, 1):
        kind = step_kind(step.pattern, bound)
        bound = bound.union(step.pattern.variables())
        row = [f"{number}", kind, step.direction, format_pattern(step.pattern), where(step.pattern.graph)]
        row.append(format_rows(step.estimated_rows))
        if step_rows is not None:
            row.append(f"{step_rows[number - 1]} rows")
        if ways is not None:
            row.append(ways[number - 1])
        cells.append(row)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for step, row in zip(plan.steps, cells, strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for condition in step.filters:
            yield f"{' ' * widths[0]}  filter {format_condition(condition)}"


def step_kind(pattern: TriplePattern, bound: frozenset[Variable]) -> str:
    """Say what a step does, given the variables that are bound before it: scan, expand or check."""
    known = [isinstance(end, Term) or end in bound for end in (pattern.subject, pattern.object)]
    return ("scan", "expand", "check")[sum(known)]


def format_term(term: TermOrVariable) -> str:
    return "a" if term == Term(f"<{RDF}type>") else str(term)


def format_rows(count: float) -> str:
    """Show an estimate: whole from ten on, else with two digits."""
    return f"~{count:.0f} rows" if count >= 10 or count == int(count) else f"~{count:.2g} rows"


def format_pattern(pattern: TriplePattern) -> str:
    return " ".join(map(format_term, (pattern.subject, pattern.predicate, pattern.object)))
