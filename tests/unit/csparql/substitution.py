"""EXISTS as section 18.6 defines it: a solution's terms put in the place of a pattern's variables. For tests."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from tests.oracles.operators import Solution
from wukongs.csparql.algebra import Call, Extend, Filter, Group, Node, Project, Values
from wukongs.csparql.terms import Term, Variable
from wukongs.query.execution.exists import names_graph


def substituted(pattern: Node, solution: Solution) -> Node:
    """Return a pattern with the bindings of a solution in it.

    Where no term can stand, a variable goes: from a projection, and from VALUES with the rows that say otherwise. A
    variable that the pattern itself assigns stays, to be compared with the solution afterwards.
    """
    assigned = _assigned(pattern)
    terms = {Variable(name): Term(text) for name, text in solution.items() if Variable(name) not in assigned}
    changed: Node = _visit(pattern, terms)
    return changed


def _visit(part: Any, terms: dict[Variable, Term]) -> Any:
    if isinstance(part, Variable):
        return terms.get(part, part)
    if isinstance(part, tuple):
        return tuple(_visit(item, terms) for item in part)
    if isinstance(part, Extend) and part.variable in terms:  # GRAPH ?g
        return Filter(Call("SAMETERM", (terms[part.variable], part.expression)), _visit(part.pattern, terms))
    if isinstance(part, Project):
        return Project(_visit(part.pattern, terms), tuple(v for v in part.variables if v not in terms))
    if isinstance(part, Group):
        # A key that is a term is the same in every row; the group is still one for each row there is, and not for none.
        keyed = part.pattern
        for key in part.keys:
            if key in terms:
                keyed = Extend(keyed, Variable(f"{key.name}.key"), terms[key])
        keys = tuple(Variable(f"{key.name}.key") if key in terms else key for key in part.keys)
        return Group(_visit(keyed, terms), keys, _visit(part.aggregates, terms))
    if isinstance(part, Values):
        kept = [at for at, variable in enumerate(part.variables) if variable not in terms]
        rows = [
            tuple(row[at] for at in kept)
            for row in part.rows
            if all(cell is None or terms.get(v, cell) == cell for v, cell in zip(part.variables, row, strict=True))
        ]
        return Values(tuple(part.variables[at] for at in kept), tuple(rows))
    if is_dataclass(part) and not isinstance(part, type | Term):
        return replace(part, **{each.name: _visit(getattr(part, each.name), terms) for each in fields(part)})
    return part


def _assigned(part: Any) -> set[Variable]:
    if isinstance(part, tuple):
        return set().union(*map(_assigned, part))
    if not is_dataclass(part) or isinstance(part, type):
        return set()
    found = set().union(*(_assigned(getattr(part, each.name)) for each in fields(part)))
    if isinstance(part, Extend) and not names_graph(part):
        found.add(part.variable)
    if isinstance(part, Group):
        found |= {variable for variable, _ in part.aggregates}
    return found
