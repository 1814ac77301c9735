"""Rebuild an algebra tree from its leaves up; put variables in the place of others; the joins of a chain as a list.

A rule that reaches the children of a node also reaches the patterns of EXISTS in its expressions. That keeps answers. A
rule holds for every pattern, so it also holds for the pattern after a row's bindings are put into it: a rule rests on
which variables are certain, possible or shared, and a variable that becomes a constant leaves all three sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from wukongs.csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    Service,
    TermOrVariable,
    TripleParts,
    Union,
    Values,
)
from wukongs.csparql.clock import look
from wukongs.csparql.functions import PER_ROW
from wukongs.csparql.scope import exists_patterns, node_expressions
from wukongs.csparql.terms import Term, Variable

Part = TypeVar("Part")


def map_children(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node with each of its children changed, and the patterns of EXISTS in its own expressions; the very
    same node if none did change."""
    look()
    node = _map_exists(node, change)
    match node:
        case Bgp() | PathPattern() | TripleParts() | Values() | GraphNames() | Service():
            return node
        case Join() | LeftJoin() | Minus() | Union():
            left, right = change(node.left), change(node.right)
            return node if left is node.left and right is node.right else replace(node, left=left, right=right)
        case _:
            pattern = change(node.pattern)
            return node if pattern is node.pattern else replace(node, pattern=pattern)


def _map_exists(node: Node, change: Callable[[Node], Node]) -> Node:
    if not any(map(exists_patterns, node_expressions(node))):
        return node

    def changed(expression: Expression) -> Expression:
        if isinstance(expression, Exists):
            return Exists(change(expression.pattern), expression.negated)
        return map_arguments(expression, changed)

    return map_expressions(node, changed)


def map_expressions(node: Node, change: Callable[[Expression], Expression]) -> Node:
    """Return a node that has expressions with each of its own changed; an Aggregate must stay one."""
    match node:
        case Filter():
            return replace(node, condition=change(node.condition))
        case LeftJoin(condition=condition) if condition is not None:
            return replace(node, condition=change(condition))
        case Extend():
            return replace(node, expression=change(node.expression))
        case Group():
            made = tuple((variable, change(aggregate)) for variable, aggregate in node.aggregates)
            return replace(node, aggregates=made)  # type: ignore[arg-type]
        case OrderBy():
            return replace(node, conditions=tuple((change(by), down) for by, down in node.conditions))
    raise AssertionError(node)


def map_arguments(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return an expression with each of its arguments changed; the patterns of EXISTS stay as they are."""
    match expression:
        case Call():
            return Call(expression.op, tuple(map(change, expression.arguments)))
        case Aggregate(argument=argument) if argument is not None:
            return replace(expression, argument=change(argument))
        case _:
            return expression


def substitute(expression: Expression, replacements: Mapping[Variable, Variable]) -> Expression:
    """Put other variables in the place of some of an expression's; the patterns of EXISTS stay as they are."""
    if isinstance(expression, Variable):
        return replacements.get(expression, expression)
    return map_arguments(expression, lambda argument: substitute(argument, replacements))


def replaced(part: Part, values: Mapping[Variable, TermOrVariable]) -> Part:
    """Put terms, or other variables, in the place of variables, wherever these stand in a part of the algebra."""

    def visit(part: Any) -> Any:
        if isinstance(part, Variable):
            return values.get(part, part)
        if isinstance(part, tuple):
            return tuple(map(visit, part))
        if names := field_names(type(part)):
            return replace(part, **{name: visit(getattr(part, name)) for name in names})
        return part

    changed: Part = visit(part)
    return changed


_FIELDS: dict[type, tuple[str, ...] | None] = {}


def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the parts that a part of this kind is made of: none of a term, None for what is no part of
    the algebra."""
    if kind not in _FIELDS:
        names = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None
        _FIELDS[kind] = () if issubclass(kind, Term) else names
    return _FIELDS[kind]


def parts_of(part: Any) -> Iterator[Any]:
    """Yield a part of the algebra and all that it is made of, each thing before what is in it."""
    if isinstance(part, tuple):
        for item in part:
            yield from parts_of(item)
    elif isinstance(part, Term | Variable):
        yield part
    elif (names := field_names(type(part))) is not None:
        yield part
        for name in names:
            yield from parts_of(getattr(part, name))


def join_operands(node: Node) -> list[Node]:
    """Return the operands of a chain of joins, from left to right."""
    if isinstance(node, Join):
        return [*join_operands(node.left), *join_operands(node.right)]
    return [node]


def join_all(operands: list[Node]) -> Node:
    """Join a list from left to right; at least one."""
    node = operands[0]
    for operand in operands[1:]:
        node = Join(node, operand)
    return node


def per_row_function(node: object) -> str | None:
    """Return the name of a function in a tree that draws a value for each row, such as RAND; None if there is none."""
    ops = (getattr(part, "op", None) for part in parts_of(node))
    return next((op for op in ops if isinstance(op, str) and op in PER_ROW), None)
