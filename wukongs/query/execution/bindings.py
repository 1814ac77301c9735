"""Puts given terms in the place of a query's variables, or other variables, which rows of arguments bind
(argument_rows.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from wukongs.csparql.algebra import (
    Call,
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    Node,
    OrderBy,
    Project,
    Query,
    Slice,
    TermOrVariable,
    Values,
)
from wukongs.csparql.terms import Term, Variable

_TRUE = Term('"true"^^<http://www.w3.org/2001/XMLSchema#boolean>')


def bind(query: Query, values: Mapping[Variable, TermOrVariable]) -> Query:
    """Return the query with variables of its WHERE clause replaced; SELECT still reports them, with these values. A
    value that is a variable stands for a term that each solution is given."""

    def bound(node: Node) -> Node:
        is_whole, node = node is query.pattern, _replaced(node, values)
        if is_whole and query.form == "ask":
            return node  # nobody sees the values
        for variable, value in values.items():
            node = Extend(node, variable, value)
        return node

    return replace(query, pattern=_changed_below_modifiers(query.pattern, bound, query.form == "select"))


def where_clause(query: Query) -> Node:
    """Return the pattern of a query below its modifiers: the part that bindings reach."""
    found: list[Node] = []

    def note(node: Node) -> Node:
        found.append(node)
        return node

    _changed_below_modifiers(query.pattern, note, query.form == "select")
    return found[0]


def _changed_below_modifiers(node: Node, change: Callable[[Node], Node], in_clause: bool) -> Node:
    """in_clause: whether the query's own SELECT clause is still below. Any other Project belongs to a subquery."""

    def below(node: Node, in_clause: bool = False) -> Node:
        return _changed_below_modifiers(node, change, in_clause)

    match node:
        case Project() | Distinct() if in_clause:
            return replace(node, pattern=below(node.pattern, isinstance(node, Distinct)))
        case Slice() if in_clause or not isinstance(node.pattern, Project | Distinct):
            return replace(node, pattern=below(node.pattern, in_clause))
        case OrderBy():  # above the SELECT clause, where it orders distinct rows
            return replace(node, pattern=below(node.pattern, in_clause))
        case Group():
            return replace(node, pattern=below(node.pattern))
        case Extend() | Filter() if _has_group(node):
            return replace(node, pattern=below(node.pattern))
        case Join() if _has_group(node.left):  # VALUES behind GROUP BY
            return replace(node, left=below(node.left))
    return change(node)


def _has_group(node: Node) -> bool:
    while isinstance(node, Extend | Filter | Join):
        node = node.left if isinstance(node, Join) else node.pattern
    return isinstance(node, Group)


def _replaced(part: Any, values: Mapping[Variable, TermOrVariable]) -> Any:
    """Replace variables all through a part of the algebra. If a query defines such a variable itself, a row stays only
    if the variable has the given value or none (an error leaves it free)."""
    if isinstance(part, Variable):
        return values.get(part, part)
    if isinstance(part, tuple):
        return tuple(_replaced(item, values) for item in part)
    if isinstance(part, Extend) and part.variable in values:
        pattern, expression = _replaced(part.pattern, values), _replaced(part.expression, values)
        agrees = Call("SAMETERM", (expression, values[part.variable]))
        return Filter(Call("COALESCE", (agrees, _TRUE)), pattern)
    if isinstance(part, Extend):
        return replace(part, pattern=_replaced(part.pattern, values), expression=_replaced(part.expression, values))
    if isinstance(part, Project):  # of a subquery: there is nothing left to let out
        kept = tuple(variable for variable in part.variables if variable not in values)
        return Project(_replaced(part.pattern, values), kept)
    if isinstance(part, Group):
        pattern = _replaced(part.pattern, values)
        for key in values.keys() & set(part.keys):
            pattern = Extend(pattern, key, values[key])  # still one group for each key that there is, and not for none
        return Group(pattern, part.keys, _replaced(part.aggregates, values))
    if isinstance(part, Values):
        return _fitting(part, values)
    if is_dataclass(part) and not isinstance(part, type | Term):
        changed = {field.name: _replaced(getattr(part, field.name), values) for field in fields(part)}
        return replace(part, **changed)
    return part


def _fitting(data: Values, values: Mapping[Variable, TermOrVariable]) -> Values:
    """Keep the rows that agree with the values, without the columns of these; where variables are given, the rows are
    joined with them."""
    if any(isinstance(values.get(variable), Variable) for variable in data.variables):
        names = tuple(value if isinstance(value := values.get(v, v), Variable) else v for v in data.variables)
        return Values(names, data.rows)
    kept = [at for at, variable in enumerate(data.variables) if variable not in values]
    rows = [
        tuple(row[at] for at in kept)
        for row in data.rows
        if all(cell in (None, values.get(variable, cell)) for variable, cell in zip(data.variables, row, strict=True))
    ]
    return Values(tuple(data.variables[at] for at in kept), tuple(rows))
