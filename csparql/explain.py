"""EXPLAIN: a query's algebra and plans as an indented text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from wukongs.csparql.algebra import (
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
    GraphVersion,
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
    Service,
    Slice,
    StreamWindow,
    TermOrVariable,
    Timestamp,
    TripleParts,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.cardinality import Cardinalities
from wukongs.csparql.exploration_order import (
    explorable_operands,
    exploration_order,
    exploration_parts,
    is_explorable,
    part_estimate,
)
from wukongs.csparql.paths import format_path
from wukongs.csparql.plan import FilteredBgp, Plan, PlanStep
from wukongs.csparql.planner import plan_filtered
from wukongs.csparql.scope import NO_VARIABLES, certain_variables, exists_patterns, node_expressions, possible_variables
from wukongs.csparql.terms import RDF_TYPE, Term, Variable
from wukongs.csparql.walk import join_operands

_INDENT = "  "
_INFIX = frozenset(("=", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/", "&&", "||"))
_UNITS_MS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))


@dataclass(frozen=True, slots=True)
class Measured:
    """The work of a node, with all below it, in one execution; rows_in: the rows that an exploration starts from."""

    rows: int
    seconds: float
    rows_in: int | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """The traffic of one step with other nodes: the ways it took, requests, and rows and bytes in both directions."""

    ways: tuple[str, ...] = ()
    requests: int = 0
    rows: int = 0
    size: int = 0

    def __add__(self, other: Moved) -> Moved:
        ways = tuple(dict.fromkeys(self.ways + other.ways))
        return Moved(ways, self.requests + other.requests, self.rows + other.rows, self.size + other.size)

    def __str__(self) -> str:
        if not self.requests:
            return " and ".join(self.ways) or "here"
        return f"{' and '.join(self.ways)}: {self.requests} requests, {self.rows} rows, {self.size} bytes"


Ways = Callable[[PlanStep, frozenset[Variable], float], str]
"""(step, variables bound before it, about how many rows) -> how it gets triples of other nodes"""


@dataclass(frozen=True, slots=True)
class Explored:
    """The work of a plan, from so many rows that bind these variables; step_rows: the rows after each step, before its
    filters; moved: what each step moved between nodes, empty where there are no others."""

    plan: Plan
    bound: frozenset[Variable]
    rows_in: int
    step_rows: tuple[int, ...]
    seconds: float
    moved: tuple[Moved, ...] = ()


class Figures(Protocol):
    """Figures of an execution."""

    def measured(self, node: Node) -> Measured | None:
        """Return the figures of a node, None if it was not run, or only as a part of another."""

    def explorations(self, bgp: Bgp) -> Sequence[Explored]:
        """Return each plan that a Bgp was explored by; none if there was no row to start from."""


def explain(
    query: Query, cardinalities: Cardinalities, figures: Figures | None = None, ways: Ways | None = None
) -> str:
    """Show a query as a tree of operators; each Bgp with the steps of its plan, in order. The parts of a join
    come in the order in which they are run.

    figures : of an execution: its actual rows and times stand beside the estimates. ways : where the graph is divided
    among nodes, tells how a step would get the triples of others.
    """
    lines = [_head(query), *_dataset_lines(query.dataset)]
    lines += _Tree(query.dataset, cardinalities, figures, ways).lines(query.pattern, 0)
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


def format_part(part: TriplePattern | PathPattern, dataset: DatasetClause) -> str:
    """Return a pattern, and where it is matched."""
    if isinstance(part, PathPattern):
        return _operator(part, dataset)
    return f"{_format_pattern(part)} {_where(part.graph, dataset)}"


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


@dataclass(frozen=True, slots=True)
class _Tree:
    dataset: DatasetClause
    cardinalities: Cardinalities
    figures: Figures | None
    ways: Ways | None

    def lines(
        self, node: Node, depth: int, bound: frozenset[Variable] = NO_VARIABLES, rows: float = 1.0
    ) -> Iterator[str]:
        """Show a node and what is below it. bound: it is explored from so many rows that bind these variables."""
        filtered = FilteredBgp.of(node)
        if filtered is not None:
            yield from self._filtered(filtered, node, depth, bound, rows)
            return
        pad = _INDENT * depth
        estimated = ""
        if isinstance(node, PathPattern | TripleParts):
            estimated = f"  {format_rows(part_estimate(node, bound, rows, self.cardinalities)[1])}"
        yield pad + _operator(node, self.dataset) + estimated + self._done(node)
        match node:
            case Join():
                yield from self._join(node, depth + 1, bound, rows)
            case LeftJoin():
                yield from self.lines(node.left, depth + 1, bound, rows)
                inner, inner_rows = NO_VARIABLES, 1.0
                if is_explorable(node.right, possible_variables(node.left)):
                    inner, inner_rows = certain_variables(node.left), self._estimate(node.left)
                yield from self.lines(node.right, depth + 1, inner, inner_rows)
            case _:
                for child in _children(node):
                    yield from self.lines(child, depth + 1, bound, rows)
        yield from self._exists_lines(node_expressions(node), depth + 1)

    def _join(self, node: Join, depth: int, bound: frozenset[Variable], rows: float) -> Iterator[str]:
        operands = tuple(join_operands(node))
        explored = explorable_operands(operands, bound)
        for operand in operands:
            if not any(operand is one for one in explored):
                yield from self.lines(operand, depth)
                bound |= certain_variables(operand)
        parts = exploration_parts(explored, bound)
        for part in exploration_order(parts, bound, rows, self.cardinalities):
            yield from self.lines(part, depth, bound, rows)
            rows = part_estimate(part, bound, rows, self.cardinalities)[1]
            bound |= certain_variables(part)

    def _filtered(
        self, filtered: FilteredBgp, node: Node, depth: int, bound: frozenset[Variable], rows: float
    ) -> Iterator[str]:
        pad = _INDENT * depth
        done = () if self.figures is None else self.figures.explorations(filtered.bgp)
        if not done:
            yield pad + _bgp_head(filtered, bound) + self._done(node)
            yield from self._plan(plan_filtered(filtered, bound, self.cardinalities, rows), bound, depth + 1, rows)
        for part in done:
            figures = f"  [from {part.rows_in} rows, {_milliseconds(part.seconds)}]"
            yield pad + _bgp_head(filtered, part.bound) + figures
            yield from self._plan(part.plan, part.bound, depth + 1, part.rows_in, part)
        yield from self._exists_lines(filtered.filters, depth + 1)

    def _plan(
        self, plan: Plan, bound: frozenset[Variable], depth: int, rows: float, done: Explored | None = None
    ) -> Iterator[str]:
        ways = self._foreseen(plan, bound, rows) if done is None else [str(moved) for moved in done.moved] or None
        step_rows = None if done is None else done.step_rows
        for line in _plan_lines(plan, bound, self.dataset, step_rows, ways):
            yield _INDENT * depth + line

    def _foreseen(self, plan: Plan, bound: frozenset[Variable], rows: float) -> list[str] | None:
        if self.ways is None:
            return None
        found = []
        bound = bound.union(variable for variable, _ in plan.constants)
        for step in plan.steps:
            found.append(self.ways(step, bound, rows))
            bound, rows = bound.union(step.pattern.variables()), step.estimated_rows
        return found

    def _exists_lines(self, expressions: Sequence[Expression], depth: int) -> Iterator[str]:
        for exists in (found for expression in expressions for found in exists_patterns(expression)):
            yield _INDENT * depth + format_expression(exists).replace(" {...}", " of")
            yield from self.lines(exists.pattern, depth + 1)

    def _estimate(self, node: Node) -> float:
        """Return the estimated rows of triple patterns, 1 for any other node."""
        filtered = FilteredBgp.of(node)
        steps = () if filtered is None else plan_filtered(filtered, NO_VARIABLES, self.cardinalities).steps
        return steps[-1].estimated_rows if steps else 1.0

    def _done(self, node: Node) -> str:
        found = None if self.figures is None else self.figures.measured(node)
        if found is None:
            return ""
        start = "" if found.rows_in is None else f" from {found.rows_in}"
        return f"  [{found.rows} rows{start}, {_milliseconds(found.seconds)}]"


def _bgp_head(filtered: FilteredBgp, bound: frozenset[Variable]) -> str:
    shared = sorted(map(str, bound & possible_variables(filtered.bgp)))
    kind = f"Bgp of {len(filtered.bgp.patterns)}" if filtered.bgp.patterns else "Unit"
    return " ".join((kind, "from", *shared)) if shared else kind


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Join | LeftJoin | Minus | Union):
        return node.left, node.right
    if isinstance(node, Bgp | PathPattern | TripleParts | Values | GraphNames | Service):
        return ()
    return (node.pattern,)


def _operator(node: Node, dataset: DatasetClause) -> str:
    match node:
        case PathPattern():
            ends = _format_term(node.subject), _format_term(node.object)
            path = format_path(node.path) if node.length is None else f"({format_path(node.path)} AS {node.length})"
            return f"Path {ends[0]} {path} {ends[1]} {_where(node.graph, dataset)}"
        case TripleParts():
            return f"Triple {node.variable} = <<( {' '.join(map(_format_term, node.parts()))} )>>"
        case Values():
            return " ".join(("Values", *map(str, node.variables))) + f": {len(node.rows)} rows"
        case GraphNames():
            return f"GraphNames {node.graph}"
        case Service():
            asked = " ".join(("Service", _format_term(node.endpoint), *map(str, node.variables)))
            return asked + (" (silent)" if node.is_silent else "")
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


def _where(graph: GraphRef, dataset: DatasetClause) -> str:
    if isinstance(graph, GraphVersion):
        return f"{_where(graph.graph, dataset)}, {graph.version}"
    if isinstance(graph, DefaultGraph):
        return "in the stored default graph" if dataset.is_empty else "in the default graph"
    if isinstance(graph, Variable):
        return f"in each graph {graph}"
    for window in dataset.windows:
        if graph.text == f"<{window.name}>":
            return f"in window {graph} {_format_window(window)}"
    return f"in stored graph {graph}"


# --- the steps of a plan ----------------------------------------------------------------------------------------------


def _plan_lines(
    plan: Plan,
    bound: frozenset[Variable],
    dataset: DatasetClause,
    step_rows: Sequence[int] | None = None,
    ways: Sequence[str] | None = None,
) -> Iterator[str]:
    """Show number, kind, direction, pattern, where, estimated rows and, if step_rows tells them, actual ones.

    bound: the variables of the rows to start from; ways: how each step gets triples of other nodes.
    """
    for variable, term in plan.constants:
        yield f"with {variable} = {_format_term(term)}"
    for condition in plan.filters:
        yield f"filter {format_expression(condition)}"
    cells = []
    bound = bound.union(variable for variable, _ in plan.constants)
    for number, step in enumerate(plan.steps, 1):
        kind = step_kind(step.pattern, bound)
        bound = bound.union(step.pattern.variables())
        row = [f"{number}", kind, step.direction, _format_pattern(step.pattern), _where(step.pattern.graph, dataset)]
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
            yield f"{' ' * widths[0]}  filter {format_expression(condition)}"


def step_kind(pattern: TriplePattern, bound: frozenset[Variable]) -> str:
    """Say what a step does, given the variables that are bound before it: scan, expand or check."""
    known = [isinstance(end, Term) or end in bound for end in (pattern.subject, pattern.object)]
    return ("scan", "expand", "check")[sum(known)]


def _format_term(term: TermOrVariable) -> str:
    return "a" if term == RDF_TYPE else str(term)


def format_rows(count: float) -> str:
    """Show an estimate: whole from ten on, else with two digits."""
    return f"~{count:.0f} rows" if count >= 10 or count == int(count) else f"~{count:.2g} rows"


def _format_pattern(pattern: TriplePattern) -> str:
    return " ".join(map(_format_term, (pattern.subject, pattern.predicate, pattern.object)))
