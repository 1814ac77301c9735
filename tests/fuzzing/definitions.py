"""Queries evaluated as section 18 defines them, to settle disagreements: the whole algebra, slow and plain.

Three things are the engine's: the parser's algebra, the value of an expression without EXISTS for one solution (the
scalar evaluator), and the order of values. Everything that moves solutions is written here and in tests/oracles.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

from tests.fuzzing import answers
from tests.fuzzing.answers import Answer, Rows
from tests.oracles import operators, paths
from tests.oracles.operators import Solution
from tests.unit.csparql import evaluator
from tests.unit.csparql.evaluator import Dataset, minus
from tests.unit.csparql.substitution import substituted
from wukongs.csparql import paths as syntax
from wukongs.csparql.algebra import (
    Aggregate,
    Call,
    DatasetClause,
    DefaultGraph,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
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
    TriplePattern,
    Union,
)
from wukongs.csparql.parser import parse_query
from wukongs.csparql.terms import Term, Variable
from wukongs.query.expressions.scalar_evaluator import value_in
from wukongs.query.operators.ordering import sort_key
from wukongs.query.terms import value_operators
from wukongs.query.terms.moment import Moment
from wukongs.query.terms.value_operators import effective_boolean_value
from wukongs.query.terms.values import FALSE, TRUE, Kind, Value, computed, duration_value, string, text_of, value_of

PAIRS_MAX = 400_000
DEFAULT_NAME = "urn:x-wukongs:default"


class TooBig(Exception):
    """A join of more pairs than a plain evaluation should try."""


def dataset_of(clause: DatasetClause, dataset: Dataset) -> dict[str, set[evaluator.Triple]]:
    """Return the dataset that a dataset clause describes: a graph that it names is there, if only as an empty one."""
    if clause.is_empty:
        return {name: set(triples) for name, triples in dataset.items()}
    names = ["" if name == DEFAULT_NAME else f"<{name}>" for name in clause.default_graphs]
    described = {"": set().union(*(dataset.get(name, set()) for name in names))}
    named = [f"<{name}>" for name in clause.named_graphs]
    return described | {name: set(dataset.get(name, ())) for name in named}


def by_definition(text: str, kind: str, names: Sequence[str], dataset: Dataset) -> Answer:
    """Answer a query; names: the columns. Raises TooBig."""
    query = parse_query(text)
    solutions = Definitions(dataset_of(query.dataset, dataset)).evaluate(query.pattern)
    if kind == "ask":
        return bool(solutions)
    return constructed(query, solutions) if kind == "construct" else answers.of_solutions(solutions, names)


def constructed(query: Query, solutions: list[dict[str, str]]) -> Rows:
    """The triples that a template makes of solutions."""
    made: set[tuple[answers.Cell, ...]] = set()

    def text(part: Term | Variable, row: int, solution: dict[str, str]) -> str | None:
        if isinstance(part, Term):
            return part.text
        return f"_:{part.name[1:]}row{row}" if part.is_blank else solution.get(part.name)

    def fill(pattern: TriplePattern, row: int, solution: dict[str, str]) -> None:
        parts = [text(part, row, solution) for part in (pattern.subject, pattern.predicate, pattern.object)]
        known = [part for part in parts if part is not None]
        if len(known) == 3 and not known[0].startswith('"') and known[1].startswith("<"):
            made.add(tuple(map(answers.cell_of_text, known)))

    for row, solution in enumerate(solutions):
        for pattern in query.template:
            fill(pattern, row, solution)
    return list(made)


class Definitions:
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.moment = Moment.of_now()
        self.draws = 0

    def evaluate(self, node: Node) -> list[Solution]:
        match node:
            case Join() | LeftJoin() | Union() | Minus():
                return self._of_two(node)
            case Filter():
                return [row for row in self.evaluate(node.pattern) if self.truth(node.condition, row)]
            case Extend():
                rows = self.evaluate(node.pattern)
                return operators.extend(rows, node.variable.name, lambda row: self.text(node.expression, row))
            case Project():
                return operators.project(self.evaluate(node.pattern), [variable.name for variable in node.variables])
            case Distinct():
                return operators.distinct(self.evaluate(node.pattern))
            case Group():
                return self._grouped(node)
            case OrderBy():
                return self._ordered(node)
            case Slice():
                return operators.slice_rows(self.evaluate(node.pattern), node.offset, node.limit)
            case PathPattern():
                return self._path(node)
            case PerGraph(graph=graph, pattern=pattern):
                found = []
                for name in filter(None, self.dataset):
                    rows = self.evaluate(substituted(pattern, {graph.name: name}))
                    found += [{**row, graph.name: name} for row in rows if row.get(graph.name, name) == name]
                return found
        return evaluator.evaluate(node, self.dataset)

    def _of_two(self, node: Join | LeftJoin | Union | Minus) -> list[Solution]:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if isinstance(node, Union):
            return operators.union(left, right)
        if len(left) * len(right) > PAIRS_MAX:
            raise TooBig
        if isinstance(node, Join):
            return operators.join(left, right)
        if isinstance(node, Minus):
            return minus(left, right)
        condition = node.condition
        return operators.left_join(left, right, lambda row: condition is None or self.truth(condition, row))

    # --- expressions --------------------------------------------------------------------------------------------------

    def value(self, expression: Expression, row: Solution) -> Value | None:
        plain = self._without_exists(expression, row)
        self.draws += 1
        source = self.moment.row(self.draws, 0)
        return value_in(plain, {Variable(name): value_of(text) for name, text in row.items()}, source)

    def text(self, expression: Expression, row: Solution) -> str | None:
        value = self.value(expression, row)
        return None if value is None else text_of(value)

    def truth(self, expression: Expression, row: Solution) -> bool:
        return effective_boolean_value(self.value(expression, row)) is True

    def _without_exists(self, expression: Expression, row: Solution) -> Expression:
        """Put its truth in the place of each EXISTS: whether the pattern has a solution with the row's terms in it."""
        if isinstance(expression, Exists):
            rows = self.evaluate(substituted(expression.pattern, row))
            found = any(operators.compatible(each, row) for each in rows)
            return Term(text_of(TRUE if found != expression.negated else FALSE))
        if isinstance(expression, Call):
            return Call(expression.op, tuple(self._without_exists(each, row) for each in expression.arguments))
        return expression

    # --- groups and order ---------------------------------------------------------------------------------------------

    def _grouped(self, node: Group) -> list[Solution]:
        found = []
        for key, members in operators.group(self.evaluate(node.pattern), [key.name for key in node.keys]):
            solution = dict(key)
            for variable, aggregate in node.aggregates:
                value = self._aggregate(aggregate, members)
                if value is not None:
                    solution[variable.name] = text_of(value)
            found.append(solution)
        return found

    def _aggregate(self, aggregate: Aggregate, members: list[Solution]) -> Value | None:
        if aggregate.argument is None:
            named = [{n: t for n, t in member.items() if not n.startswith(".")} for member in members]
            return computed(Kind.INTEGER, operators.count(named, None, aggregate.distinct))
        texts = [self.text(aggregate.argument, member) for member in members]
        if aggregate.distinct:
            texts = list(dict.fromkeys(texts))
        known = [value_of(text) for text in texts if text is not None]
        if aggregate.name == "COUNT":
            return computed(Kind.INTEGER, len(known))
        if aggregate.name == "SAMPLE":
            return min(known, key=lambda value: (sort_key(value), text_of(value)), default=None)
        if len(known) < len(texts):
            return None
        return _of_known(aggregate, known)

    def _ordered(self, node: OrderBy) -> list[Solution]:
        def sign(one: Solution, other: Solution) -> int:
            for expression, is_descending in node.conditions:
                keys = [sort_key(self.value(expression, row)) for row in (one, other)]
                if keys[0] != keys[1]:
                    return -1 if (keys[0] < keys[1]) != is_descending else 1
            return 0

        return sorted(self.evaluate(node.pattern), key=cmp_to_key(sign))

    # --- paths --------------------------------------------------------------------------------------------------------

    def _path(self, node: PathPattern) -> list[Solution]:
        ends = [paths.Var(end.name) if isinstance(end, Variable) else end.text for end in (node.subject, node.object)]
        found = []
        for graph in self._graphs(node):
            for solution in paths.evaluate(_path_of(node.path), ends[0], ends[1], self.dataset.get(graph, set())):
                row = {name: str(term) for name, term in solution.items()}
                if isinstance(node.graph, Variable) and row.setdefault(node.graph.name, graph) != graph:
                    continue
                found.append(row)
        return found

    def _graphs(self, node: PathPattern) -> list[str]:
        if isinstance(node.graph, DefaultGraph):
            return [""]
        names = [name for name in self.dataset if name]
        return [n for n in names if n == node.graph.text] if isinstance(node.graph, Term) else names


def _of_known(aggregate: Aggregate, values: Sequence[Value]) -> Value | None:
    """SUM, AVG, MIN, MAX and GROUP_CONCAT of values without an error."""
    if aggregate.name in ("MIN", "MAX"):
        ordered = sorted(values, key=lambda value: (sort_key(value), text_of(value)))
        return ordered[0 if aggregate.name == "MIN" else -1] if ordered else None
    if aggregate.name == "GROUP_CONCAT":
        return None if any(v.kind == Kind.BLANK for v in values) else string(
            aggregate.separator.join(value.lexical for value in values)
        )  # fmt: skip
    total: Value | None = computed(Kind.INTEGER, 0)
    if values and all(value.kind == Kind.DURATION for value in values):
        total = sum_of_durations(values)
    else:
        for value in values:
            total = None if total is None else value_operators.arithmetic("+", total, value)
    if aggregate.name == "SUM" or total is None or not values:
        return total
    return value_operators.arithmetic("/", total, computed(Kind.INTEGER, len(values)))


def sum_of_durations(values: Sequence[Value]) -> Value | None:
    """The months and the seconds, each by themselves; durations of several types make an xsd:duration."""
    durations = [value.data for value in values if isinstance(value.data, tuple)]
    types = {value.datatype.rpartition("#")[2] for value in values}
    parts = sum(months for months, _ in durations), sum((seconds for _, seconds in durations), Decimal(0))
    return duration_value(parts, types.pop() if len(types) == 1 else "duration")


def _path_of(path: syntax.Path) -> Any:
    """A path as tests/oracles/paths.py has it."""
    match path:
        case Term():
            return "link", path.text
        case syntax.NegatedSet():
            sides = (path.forward, path.inverse)
            return "!", *(None if side is None else tuple(term.text for term in side) for side in sides)
        case syntax.PathSequence():
            return "/", _path_of(path.first), _path_of(path.second)
        case syntax.Alternative():
            return "|", _path_of(path.first), _path_of(path.second)
        case syntax.Repeated(low=low, high=high):
            return "{", _path_of(path.path), low, high
    kind = {syntax.Inverse: "^", syntax.ZeroOrOne: "?", syntax.ZeroOrMore: "*", syntax.OneOrMore: "+"}[type(path)]
    return kind, _path_of(path.path)
