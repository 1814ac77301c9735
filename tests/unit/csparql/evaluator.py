"""The algebra, evaluated as its definitions say, over graphs that are sets of triples. For tests: slow and plain.

Terms are canonical forms. Expressions: = and != compare text, and the boolean operators, BOUND, SAMETERM and EXISTS are
those of SPARQL; None is an error. COUNT is the only aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.oracles import operators
from tests.oracles.operators import Solution
from tests.unit.csparql.substitution import substituted
from wukongs.csparql.algebra import (
    Bgp,
    Call,
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
    PerGraph,
    Project,
    TriplePattern,
    Union,
    Values,
)
from wukongs.csparql.terms import Term, Variable

Triple = tuple[str, str, str]
Dataset = Mapping[str, set[Triple]]
"""Graphs by canonical name; the default graph is under "" and is no named graph."""


def evaluate(node: Node, dataset: Dataset) -> list[Solution]:
    """Return the multiset of solutions of a pattern."""
    match node:
        case Bgp():
            solutions: list[Solution] = [{}]
            for pattern in node.patterns:
                solutions = operators.join(solutions, match_pattern(pattern, dataset))
            return solutions
        case GraphNames(graph=Variable(name=name)):
            return [{name: graph} for graph in dataset if graph]
        case GraphNames(graph=Term(text=text)):
            return [{}] if text in dataset else []
        case Join():
            return operators.join(evaluate(node.left, dataset), evaluate(node.right, dataset))
        case LeftJoin():
            condition = _condition(node.condition, dataset)
            return operators.left_join(evaluate(node.left, dataset), evaluate(node.right, dataset), condition)
        case Union():
            return operators.union(evaluate(node.left, dataset), evaluate(node.right, dataset))
        case Filter():
            return operators.filtered(_condition(node.condition, dataset), evaluate(node.pattern, dataset))
        case Extend():
            expression = node.expression
            return operators.extend(
                evaluate(node.pattern, dataset), node.variable.name, lambda row: value(expression, row, dataset)
            )
        case Project():
            return operators.project(evaluate(node.pattern, dataset), [variable.name for variable in node.variables])
        case Distinct():
            return operators.distinct(evaluate(node.pattern, dataset))
        case Minus():
            return minus(evaluate(node.left, dataset), evaluate(node.right, dataset))
        case Values():
            names = [variable.name for variable in node.variables]
            rows = (zip(names, row, strict=True) for row in node.rows)
            return [{name: cell.text for name, cell in row if cell is not None} for row in rows]
        case Group():
            return _grouped(node, evaluate(node.pattern, dataset), dataset)
        case PerGraph(graph=graph, pattern=pattern):
            tables = ((name, evaluate(substituted(pattern, {graph.name: name}), dataset)) for name in dataset if name)
            return [{**solution, graph.name: name} for name, table in tables for solution in table]
    raise AssertionError(node)


def minus(left: list[Solution], right: list[Solution]) -> list[Solution]:
    """Minus: without what is compatible with a solution that shares a variable; hidden variables are none."""

    def removes(other: Solution, one: Solution) -> bool:
        shared = {name for name in one.keys() & other.keys() if not name.startswith(".")}
        return bool(shared) and operators.compatible(one, other)

    return [one for one in left if not any(removes(other, one) for other in right)]


def _grouped(node: Group, solutions: list[Solution], dataset: Dataset) -> list[Solution]:
    found = []
    for key, members in operators.group(solutions, [key.name for key in node.keys]):
        solution = dict(key)
        for variable, aggregate in node.aggregates:
            assert aggregate.name == "COUNT", aggregate
            argument = aggregate.argument
            if argument is None:
                named = [{n: t for n, t in member.items() if not n.startswith(".")} for member in members]
                count = operators.count(named, None, aggregate.distinct)
            else:
                terms = [term for member in members if (term := value(argument, member, dataset)) is not None]
                count = len(set(terms)) if aggregate.distinct else len(terms)
            solution[variable.name] = f'"{count}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        found.append(solution)
    return found


def match_pattern(pattern: TriplePattern, dataset: Dataset) -> list[Solution]:
    """Return the solutions of one triple pattern in its graph, or in each named graph."""
    solutions = []
    for graph in _graphs(pattern.graph, dataset):
        for triple in dataset.get(graph, ()):
            solution: Solution = {}
            parts = (pattern.subject, pattern.predicate, pattern.object, pattern.graph)
            for part, text in zip(parts, (*triple, graph), strict=True):
                if isinstance(part, Term):
                    if part.text != text:
                        break
                elif isinstance(part, Variable) and solution.setdefault(part.name, text) != text:
                    break
            else:
                solutions.append(solution)
    return solutions


def _graphs(graph: GraphRef, dataset: Dataset) -> list[str]:
    if isinstance(graph, DefaultGraph):
        return [""]
    return [graph.text] if isinstance(graph, Term) else [name for name in dataset if name]


def _condition(condition: Expression | None, dataset: Dataset) -> Callable[[Solution], bool | None]:
    if condition is None:
        return lambda _: True
    kept = condition
    return lambda row: truth(kept, row, dataset)


def truth(expression: Expression, row: Solution, dataset: Dataset) -> bool | None:
    """Return the effective boolean value of an expression; None is an error."""
    if isinstance(expression, Exists):
        solutions = evaluate(substituted(expression.pattern, row), dataset)
        return any(operators.compatible(solution, row) for solution in solutions) != expression.negated
    if not isinstance(expression, Call):
        text = value(expression, row, dataset)
        return None if text is None else {'"true"': True, '"false"': False}.get(text.partition("^^")[0])
    if expression.op in ("&&", "||"):
        left, right = (truth(argument, row, dataset) for argument in expression.arguments)
        decisive = expression.op == "||"
        if decisive in (left, right):
            return decisive
        return None if None in (left, right) else not decisive
    if expression.op == "!":
        inner = truth(expression.arguments[0], row, dataset)
        return None if inner is None else not inner
    if expression.op == "BOUND":
        (variable,) = expression.arguments
        return isinstance(variable, Term) or str(variable)[1:] in row
    if expression.op == "ISIRI":
        text = value(expression.arguments[0], row, dataset)
        return None if text is None else text.startswith("<")
    left_text, right_text = (value(argument, row, dataset) for argument in expression.arguments)
    if left_text is None or right_text is None:
        return None
    if expression.op == "!=":
        return left_text != right_text
    assert expression.op in ("=", "SAMETERM"), expression.op
    return left_text == right_text


def value(expression: Expression, row: Solution, dataset: Dataset) -> str | None:
    """Return the term that an expression makes; None is an error."""
    match expression:
        case Variable():
            return row.get(expression.name)
        case Term():
            return expression.text
        case Call() | Exists():
            known = truth(expression, row, dataset)
            return None if known is None else f'"{str(known).lower()}"^^<http://www.w3.org/2001/XMLSchema#boolean>'
    raise AssertionError(expression)
