"""An algebra on one line, for tests."""

from __future__ import annotations

from wukongs.csparql.algebra import (
    DEFAULT,
    Bgp,
    Distinct,
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
    PerGraph,
    Project,
    Slice,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.explain import format_expression
from wukongs.csparql.parser import parse_query
from wukongs.csparql.paths import format_path


def algebra_of(text: str) -> str:
    return algebra_text(parse_query(f"ASK {text}").pattern)


def algebra_text(node: Node) -> str:
    """Return an algebra on one line: A, B, ... for patterns by predicate, with their graphs after @."""
    match node:
        case Bgp():
            return f"[{' '.join(map(_pattern_text, node.patterns))}]"
        case PathPattern():
            return f"{_short(node.subject)} {format_path(node.path)} {_short(node.object)}"
        case GraphNames():
            return f"names({_short(node.graph)})"
        case Join():
            return f"({algebra_text(node.left)} * {algebra_text(node.right)})"
        case LeftJoin():
            condition = "" if node.condition is None else f" if {_condition_text(node.condition)}"
            return f"({algebra_text(node.left)} ? {algebra_text(node.right)}{condition})"
        case Minus():
            return f"({algebra_text(node.left)} - {algebra_text(node.right)})"
        case Values():
            return f"values({' '.join(map(str, node.variables))}: {len(node.rows)})"
        case Project():
            return f"project({' '.join(map(_short, node.variables))}, {algebra_text(node.pattern)})"
        case Distinct():
            return f"distinct({algebra_text(node.pattern)})"
        case Group():
            return f"group({' '.join(map(_short, node.keys))}, {algebra_text(node.pattern)})"
        case OrderBy():
            return f"orderby({algebra_text(node.pattern)})"
        case Slice():
            return f"slice({algebra_text(node.pattern)})"
        case PerGraph():
            return f"each({_short(node.graph)}, {algebra_text(node.pattern)})"
        case Union():
            return f"({algebra_text(node.left)} | {algebra_text(node.right)})"
        case Filter():
            return f"filter({_condition_text(node.condition)}, {algebra_text(node.pattern)})"
        case Extend():
            return f"extend({_short(node.variable)}={_condition_text(node.expression)}, {algebra_text(node.pattern)})"
    raise AssertionError(node)


def _pattern_text(pattern: TriplePattern) -> str:
    return str(pattern.predicate).strip("<>") + ("" if pattern.graph == DEFAULT else f"@{_short(pattern.graph)}")


def _condition_text(expression: Expression) -> str:
    if isinstance(expression, Exists):
        return f"{'NOT ' if expression.negated else ''}EXISTS {{{algebra_text(expression.pattern)}}}"
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    return _short(format_expression(expression).replace(f'"1"{integer}', "1"))


def _short(text: object) -> str:
    return str(text).replace("?.graph", "hidden")
