"""Section 18 of SPARQL 1.1 in plain Python: bottom up, solutions as dictionaries, multisets as lists.

Slow and simple on purpose. It is the judge where rdflib and pyoxigraph disagree, and the third opinion elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from tests.oracles import paths
from tests.oracles import query_ast as ast
from tests.oracles.query_ast import Var
from tests.oracles.rdf import Term, Triple, bnode
from tests.oracles.values import (
    ExpressionError,
    Number,
    Undefined,
    calculate,
    compare,
    effective_boolean,
    number,
    order_terms,
    total,
)

Value = Term | Number | bool
Solution = dict[str, Value]
Row = tuple[Value | None, ...]
SOLUTION_LIMIT = 2000


class TooBig(Exception):
    """More solutions than a plain evaluator should make; the example is given up."""


@dataclass
class Dataset:
    """An exact dataset: the default graph and the named graphs, as sets of triples."""

    default: set[Triple] = field(default_factory=set)
    named: dict[Term, set[Triple]] = field(default_factory=dict)


@dataclass
class Evaluator:
    """Evaluates one query over one dataset, in the strict or the open reading of values.py. orders_itself: as there."""

    dataset: Dataset
    strict: bool
    orders_itself: bool = False

    def select(self, query: ast.Query) -> list[Row]:
        """All rows, before ORDER BY, LIMIT and OFFSET, after DISTINCT."""
        solutions = self.group(query.where, self.dataset.default)
        rows = (
            self._grouped(query, solutions) if query.has_aggregate or query.group_by else self._plain(query, solutions)
        )
        return list(dict.fromkeys(rows)) if query.distinct else rows

    def ask(self, query: ast.Query) -> bool:
        return bool(self.group(query.where, self.dataset.default))

    def construct(self, query: ast.Query) -> set[Triple]:
        triples: set[Triple] = set()
        for number_of_row, solution in enumerate(self.group(query.where, self.dataset.default)):
            for pattern in query.template:
                triple = tuple(self._instance(node, solution, number_of_row) for node in pattern)
                subject, predicate, term = triple
                if subject and predicate and term and subject.kind != "literal" and predicate.kind == "iri":
                    triples.add((subject, predicate, term))
        return triples

    @staticmethod
    def _instance(node: ast.Node, solution: Solution, row: int) -> Term | None:
        if isinstance(node, Term):
            return node
        if node.name.startswith("_:"):
            return bnode(f"fresh{row}x{node.name[2:]}")
        value = solution.get(node.name)
        assert value is None or isinstance(value, Term)
        return value

    # patterns

    def group(self, group: ast.Group, graph: set[Triple]) -> list[Solution]:
        """18.2.2.6: elements joined in order, the filters of the group over the whole group."""
        solutions, filters = self._unfiltered(group, graph)
        return [solution for solution in solutions if self._holds(filters, solution)]

    def _unfiltered(self, group: ast.Group, graph: set[Triple]) -> tuple[list[Solution], list[ast.Expression]]:
        solutions: list[Solution] = [{}]
        filters: list[ast.Expression] = []
        for element in group.elements:
            if isinstance(element, ast.Filter):
                filters.append(element.condition)
            elif isinstance(element, ast.Optional):
                solutions = self._left_join(solutions, *self._unfiltered(element.group, graph))
            else:
                solutions = _join(solutions, self._element(element, graph))
            if len(solutions) > SOLUTION_LIMIT:
                raise TooBig
        return solutions, filters

    def _element(self, element: object, graph: set[Triple]) -> list[Solution]:
        match element:
            case ast.Bgp(triples):
                return _match(triples, graph)
            case ast.PathTriple(subject, path, object_):
                return _follow(paths.evaluate(path, subject, object_, graph))
            case ast.Group():
                return self.group(element, graph)
            case ast.Union(groups):
                return [solution for group in groups for solution in self.group(group, graph)]
            case ast.GraphPattern(Term() as name, inner):
                return self.group(inner, self.dataset.named.get(name, set()))
            case ast.GraphPattern(Var(name), inner):
                found: list[Solution] = []
                for each, contents in self.dataset.named.items():
                    found += _join(self.group(inner, contents), [{name: each}])
                return found
        raise AssertionError(f"no meaning for {element!r}")

    def _left_join(self, left: list[Solution], right: list[Solution], filters: list[ast.Expression]) -> list[Solution]:
        result: list[Solution] = []
        for mine in left:
            extended = [merged for merged in _join([mine], right) if self._holds(filters, merged)]
            result += extended or [mine]
            if len(result) > SOLUTION_LIMIT:
                raise TooBig
        return result

    # expressions

    def _holds(self, conditions: list[ast.Expression], solution: Solution) -> bool:
        try:
            return all(effective_boolean(self.value(condition, solution)) for condition in conditions)
        except ExpressionError:
            return False

    def value(self, expression: ast.Expression, solution: Solution) -> Value:
        """The value of an expression. Raises ExpressionError where it has none."""
        match expression:
            case Var(name):
                if name not in solution:
                    raise ExpressionError
                return solution[name]
            case Term():
                return expression
            case ast.Bound(Var(name)):
                return name in solution
            case ast.Compare(operator, left, right):
                values = self.value(left, solution), self.value(right, solution)
                return compare(operator, *values, self.strict, self.orders_itself)
            case ast.Arithmetic(operator, left, right):
                return calculate(operator, self.value(left, solution), self.value(right, solution))
            case ast.Logic("!", (argument,)):
                return not effective_boolean(self.value(argument, solution))
            case ast.Logic(operator, arguments):
                return self._connect(operator == "||", arguments, solution)
        raise AssertionError(f"no value for {expression!r}")

    def _connect(self, winner: bool, arguments: Iterable[ast.Expression], solution: Solution) -> bool:
        """17.2: `true || error` is true, `false && error` is false, in either order."""
        failed = False
        for argument in arguments:
            try:
                if effective_boolean(self.value(argument, solution)) is winner:
                    return winner
            except ExpressionError:
                failed = True
        if failed:
            raise ExpressionError
        return not winner

    # columns

    def _plain(self, query: ast.Query, solutions: list[Solution]) -> list[Row]:
        rows = []
        for solution in solutions:
            known = dict(solution)
            for column in query.columns:
                if column.expression is not None:
                    _set(known, column.var.name, lambda e=column.expression, s=known: self.value(e, s))  # type: ignore[misc]
            rows.append(tuple(known.get(column.var.name) for column in query.columns))
        return rows

    def _grouped(self, query: ast.Query, solutions: list[Solution]) -> list[Row]:
        groups: dict[Row, list[Solution]] = {}
        for solution in solutions:
            groups.setdefault(tuple(solution.get(var.name) for var in query.group_by or ()), []).append(solution)
        if not query.group_by and not groups:
            groups[()] = []
        rows = []
        for key, members in groups.items():
            known = {var.name: value for var, value in zip(query.group_by or (), key, strict=True) if value is not None}
            for column in query.columns:
                if isinstance(column.expression, ast.Aggregate):
                    _set(known, column.var.name, lambda a=column.expression, m=members: self._aggregate(a, m))  # type: ignore[misc]
            rows.append(tuple(known.get(column.var.name) for column in query.columns))
        return rows

    def _aggregate(self, aggregate: ast.Aggregate, members: list[Solution]) -> Value:
        if aggregate.var is None:
            rows = [tuple(sorted(member.items(), key=lambda item: item[0])) for member in members]
            return Number("integer", Fraction(len(set(rows)) if aggregate.distinct else len(rows)))
        name = aggregate.var.name
        values = [member[name] for member in members if name in member]
        if aggregate.function == "COUNT":
            return Number("integer", Fraction(len(set(values)) if aggregate.distinct else len(values)))
        if len(values) < len(members) and self.strict:
            raise ExpressionError  # 18.5.1: an unbound argument is an error; many systems leave it out
        if aggregate.distinct:
            values = list(dict.fromkeys(values))
        if aggregate.function in ("SUM", "AVG"):
            return _sum_or_average(aggregate.function, values)
        return _extreme(aggregate.function, values)


def _sum_or_average(function: str, values: list[Value]) -> Number:
    numbers = [number(value) if not isinstance(value, bool) else None for value in values]
    if any(each is None for each in numbers):
        raise ExpressionError
    added = total([each for each in numbers if each is not None])
    if function == "SUM" or not numbers:
        return added
    return calculate("/", added, Number("integer", Fraction(len(numbers))))


def _extreme(function: str, values: list[Value]) -> Value:
    """MIN or MAX by the order of ORDER BY. Raises Undefined where that order is left open."""
    if not values:
        raise ExpressionError
    best = values[0]
    for value in values[1:]:
        order = order_terms(value, best)
        if order is None:
            raise Undefined(f"{function} of {value!r} and {best!r}")
        if order == (-1 if function == "MIN" else 1):
            best = value
    return best


def _set(known: Solution, name: str, make: Callable[[], Value]) -> None:
    try:
        known[name] = make()
    except ExpressionError:
        known.pop(name, None)


def _join(left: list[Solution], right: list[Solution]) -> list[Solution]:
    joined = []
    for mine in left:
        joined += [mine | theirs for theirs in right if all(mine.get(name, v) == v for name, v in theirs.items())]
        if len(joined) > SOLUTION_LIMIT:
            raise TooBig
    return joined


def _follow(found: list[paths.Solution]) -> list[Solution]:
    if len(found) > SOLUTION_LIMIT:
        raise TooBig
    return [{name: value for name, value in s.items() if not name.startswith("_:")} for s in found]  # type: ignore[misc]


def _match(patterns: Iterable[ast.TriplePattern], graph: set[Triple]) -> list[Solution]:
    """18.3: a basic graph pattern; blank nodes of the query are matched and then forgotten."""
    solutions: list[Solution] = [{}]
    for pattern in patterns:
        found: list[Solution] = []
        for solution in solutions:
            for triple in graph:
                extended = _extend(solution, pattern, triple)
                if extended is not None:
                    found.append(extended)
            if len(found) > SOLUTION_LIMIT:
                raise TooBig
        solutions = found
    return [{name: value for name, value in s.items() if not name.startswith("_:")} for s in solutions]


def _extend(solution: Solution, pattern: ast.TriplePattern, triple: Triple) -> Solution | None:
    extended = dict(solution)
    for node, term in zip(pattern, triple, strict=True):
        if isinstance(node, Term):
            if node != term:
                return None
        elif extended.setdefault(node.name, term) != term:
            return None
    return extended
