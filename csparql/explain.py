"""EXPLAIN: a query's algebra and plans as an indented text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from csparql.algebra import (
    Aggregate,
    Bgp,
    Call,
    DatasetClause,
    DefaultGraph,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphNames,
    GraphRef,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Query,
    Slice,
    StreamWindow,
    TermOrVariable,
    Timestamp,
    TriplePattern,
    Union,
    Values,
)
from csparql.paths import format_path
from csparql.plan import PlanStep
from csparql.scope import NO_VARIABLES, exists_patterns, node_expressions
from csparql.terms import RDF, Term, Variable

Planner = Callable[[Bgp], tuple[PlanStep, ...]]

_INDENT = "  "
_INFIX = frozenset(("=", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/", "&&", "||"))
_UNITS_MS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))


def explain(query: Query, plans: Planner) -> str:
    """Show a query as a tree of operators; each Bgp with the steps of its plan, in order.

    plans : gives the steps of a Bgp, as the engine would run them.
    """
    lines = [_head(query), *_dataset_lines(query.dataset)]
    lines += _node_lines(query.pattern, 0, query.dataset, plans)
    return "\n".join(lines) + "\n"


def format_expression(expression: Expression) -> str:
    """Return an expression as SPARQL would write it, with all its parentheses."""
    match expression:
        case Call(op=op, arguments=(left, right)) if op in _INFIX:
            return f"({format_expression(left)} {op} {format_expression(right)})"
        case Call(op="!" | "NEGATE" as op, arguments=(argument,)):
            return f"{'-' if op == 'NEGATE' else '!'}{format_expression(argument)}"
        case Call(op="IN" | "NOTIN" as op, arguments=arguments):
            first, *others = map(format_expression, arguments)
            return f"({first} {'NOT IN' if op == 'NOTIN' else 'IN'} ({', '.join(others)}))"
        case Call():
            return f"{expression.op}({', '.join(map(format_expression, expression.arguments))})"
        case Aggregate():
            inside = "*" if expression.argument is None else format_expression(expression.argument)
            separator = f"; SEPARATOR={expression.separator!r}" if expression.name == "GROUP_CONCAT" else ""
            return f"{expression.name}({'DISTINCT ' if expression.distinct else ''}{inside}{separator})"
        case Exists():
            return f"{'NOT ' if expression.negated else ''}EXISTS {{...}}"
        case _:
            return str(expression)


def format_duration(length_ms: int) -> str:
    """Return a length of time in the largest unit that divides it: 10000 is 10s."""
    for unit_ms, unit in _UNITS_MS:
        if length_ms % unit_ms == 0:
            return f"{length_ms // unit_ms}{unit}"
    raise AssertionError(length_ms)


def _head(query: Query) -> str:
    kind = query.form.upper()
    if query.registration is None:
        return kind
    registration = query.registration
    parts = [f"{kind} registered as {'stream ' if registration.is_stream else ''}{registration.name}"]
    if registration.computed_every_ms is not None:
        parts.append(f"computed every {format_duration(registration.computed_every_ms)}")
    if registration.output != "rstream":
        parts.append(registration.output)
    if registration.report:
        parts.append(f"report {', '.join(registration.report)}")
    return " ".join((parts[0], ", ".join(parts[1:]))).rstrip()


def _dataset_lines(dataset: DatasetClause) -> Iterator[str]:
    for graph in dataset.default_graphs:
        yield f"from <{graph}>"
    for graph in dataset.named_graphs:
        yield f"from named <{graph}>"
    for window in dataset.windows:
        on = "stream" if window.own_name is None else f"window <{window.own_name}> on"
        yield f"from {'named ' if window.named else ''}{on} <{window.stream}> {_format_window(window)}"


def _format_window(window: StreamWindow) -> str:
    if window.is_counted:
        step = "tumbling" if window.range_triples == window.step_triples else f"step {window.step_triples}"
        return f"[{window.range_triples} triples {step}]"
    if window.range_ms == window.step_ms:
        return f"[{format_duration(window.range_ms)} tumbling]"
    return f"[{format_duration(window.range_ms)} step {format_duration(window.step_ms)}]"


def _node_lines(node: Node, depth: int, dataset: DatasetClause, plans: Planner) -> Iterator[str]:
    pad = _INDENT * depth
    if isinstance(node, Bgp):
        yield pad + (f"Bgp of {len(node.patterns)}" if node.patterns else "Unit")
        for line in _step_lines(plans(node) if node.patterns else (), dataset):
            yield pad + _INDENT + line
        return
    yield pad + _operator(node, dataset)
    for child in _children(node):
        yield from _node_lines(child, depth + 1, dataset, plans)
    for exists in (found for expression in node_expressions(node) for found in exists_patterns(expression)):
        yield pad + _INDENT + format_expression(exists).replace(" {...}", " of")
        yield from _node_lines(exists.pattern, depth + 2, dataset, plans)


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Join | LeftJoin | Minus | Union):
        return node.left, node.right
    if isinstance(node, Bgp | PathPattern | Values | GraphNames):
        return ()
    return (node.pattern,)


def _operator(node: Node, dataset: DatasetClause) -> str:
    match node:
        case PathPattern():
            return f"Path {_format_term(node.subject)} {format_path(node.path)} {_format_term(node.object)}"
        case Values():
            return " ".join(("Values", *map(str, node.variables))) + f": {len(node.rows)} rows"
        case GraphNames():
            return f"GraphNames {node.graph}"
        case PerGraph():
            return f"PerGraph {node.graph}"
        case LeftJoin():
            return "LeftJoin" if node.condition is None else f"LeftJoin {format_expression(node.condition)}"
        case Filter():
            return f"Filter {format_expression(node.condition)}"
        case Extend():
            return f"Extend {node.variable} := {format_expression(node.expression)}"
        case Timestamp():
            noted = [str(variable) for variable in node.times]
            tuples = [f"{_format_pattern(each)} {_where(each.graph, dataset)}" for each in node.patterns]
            where = "in any window of " if node.everywhere else ""
            return f"Timestamp {node.variable} := newest time {where}{', '.join(tuples + noted)}"
        case Group():
            keys = ", ".join(map(str, node.keys)) or "all rows"
            made = ", ".join(f"{variable} := {format_expression(aggregate)}" for variable, aggregate in node.aggregates)
            return f"Group by {keys}" + (f": {made}" if made else "")
        case Project():
            return " ".join(("Project", *map(str, node.variables)))
        case OrderBy():
            conditions = (f"{format_expression(by)}{' descending' if down else ''}" for by, down in node.conditions)
            return f"OrderBy {', '.join(conditions)}"
        case Slice():
            return f"Slice offset {node.offset}" + ("" if node.limit is None else f" limit {node.limit}")
        case Distinct() | Join() | Minus() | Union() | Bgp():
            return type(node).__name__


def _step_lines(steps: tuple[PlanStep, ...], dataset: DatasetClause) -> Iterator[str]:
    """Show steps as aligned columns: number, kind, direction, pattern, where, estimated rows."""
    cells = []
    bound: frozenset[Variable] = NO_VARIABLES
    for number, step in enumerate(steps, 1):
        kind = step_kind(step.pattern, bound)
        bound = bound.union(step.pattern.variables())
        where = _where(step.pattern.graph, dataset)
        cells.append(
            (f"{number}", kind, step.direction, _format_pattern(step.pattern), where, _rows(step.estimated_rows))
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def step_kind(pattern: TriplePattern, bound: frozenset[Variable]) -> str:
    """Say what a step does, given the variables that are bound before it: scan, expand or check."""
    known = [isinstance(end, Term) or end in bound for end in (pattern.subject, pattern.object)]
    return ("scan", "expand", "check")[sum(known)]


def _format_pattern(pattern: TriplePattern) -> str:
    return " ".join(map(_format_term, (pattern.subject, pattern.predicate, pattern.object)))


def _format_term(term: TermOrVariable) -> str:
    return "a" if term == Term(f"<{RDF}type>") else str(term)


def _where(graph: GraphRef, dataset: DatasetClause) -> str:
    if isinstance(graph, DefaultGraph):
        return "in the stored default graph" if dataset.is_empty else "in the default graph"
    if isinstance(graph, Variable):
        return f"in each graph {graph}"
    for window in dataset.windows:
        if graph.text == f"<{window.name}>":
            return f"in window {graph} {_format_window(window)}"
    return f"in stored graph {graph}"


def _rows(count: float) -> str:
    return f"~{count:.0f} rows" if count >= 10 or count == int(count) else f"~{count:.2g} rows"
