"""Puts given terms in the place of a query's variables (Engine.query's bindings)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from csparql.algebra import Call, Distinct, Extend, Filter, Group, Node, OrderBy, Project, Query, Slice
from csparql.terms import Term, Variable

_TRUE = Term('"true"^^<http://www.w3.org/2001/XMLSchema#boolean>')


def bind(query: Query, terms: Mapping[str, Term]) -> Query:
    """Return the query with variables of its WHERE clause replaced; SELECT still reports them, with these values."""
    values = {Variable(name.lstrip("?$")): term for name, term in terms.items()}
    return replace(query, pattern=_bind_below_modifiers(query.pattern, values))


def _bind_below_modifiers(node: Node, values: Mapping[Variable, Term]) -> Node:
    is_modifier = isinstance(node, Slice | Distinct | Project | OrderBy | Group)
    if is_modifier or (isinstance(node, Extend | Filter) and _has_group(node)):
        return replace(node, pattern=_bind_below_modifiers(node.pattern, values))  # type: ignore[union-attr, arg-type]
    bound: Node = _replaced(node, values)
    for variable, term in values.items():
        bound = Extend(bound, variable, term)
    return bound


def _has_group(node: Node) -> bool:
    while isinstance(node, Extend | Filter):
        node = node.pattern
    return isinstance(node, Group)


def _replaced(part: Any, values: Mapping[Variable, Term]) -> Any:
    """Replace variables all through a part of the algebra. Where a query defines such a variable itself, only rows
    stay in which it comes out as given (or not at all: an error leaves it free)."""
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
    if is_dataclass(part) and not isinstance(part, type | Term):
        changed = {field.name: _replaced(getattr(part, field.name), values) for field in fields(part)}
        return replace(part, **changed)
    return part
