"""The algebra, evaluated as its definitions say, over graphs that are sets of triples. For tests: slow and plain.

Terms are canonical forms. Expressions: = and != compare text, < compares integers, and the boolean operators, BOUND,
SAMETERM, IF and COALESCE are those of SPARQL; None is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from csparql.algebra import (
    Bgp,
    Call,
    DefaultGraph,
    Distinct,
    Expression,
    Extend,
    Filter,
    GraphNames,
    GraphRef,
    Join,
    LeftJoin,
    Node,
    Project,
    TriplePattern,
    Union,
)
from csparql.terms import Term, Variable
from tests.oracles import operators
from tests.oracles.operators import Solution

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
            condition = _condition(node.condition)
            return operators.left_join(evaluate(node.left, dataset), evaluate(node.right, dataset), condition)
        case Union():
            return operators.union(evaluate(node.left, dataset), evaluate(node.right, dataset))
        case Filter():
            return operators.filtered(_condition(node.condition), evaluate(node.pattern, dataset))
        case Extend():
            expression = node.expression
            return operators.extend(
                evaluate(node.pattern, dataset), node.variable.name, lambda row: value(expression, row)
            )
        case Project():
            return operators.project(evaluate(node.pattern, dataset), [variable.name for variable in node.variables])
        case Distinct():
            return operators.distinct(evaluate(node.pattern, dataset))
    raise AssertionError(node)


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


def _condition(condition: Expression | None) -> Callable[[Solution], bool | None]:
    if condition is None:
        return lambda _: True
    kept = condition
    return lambda row: truth(kept, row)


def truth(expression: Expression, row: Solution) -> bool | None:
    """Return the effective boolean value of an expression; None is an error."""
    if not isinstance(expression, Call):
        text = value(expression, row)
        return None if text is None else {'"true"': True, '"false"': False}.get(text.partition("^^")[0])
    if expression.op in ("&&", "||"):
        left, right = (truth(argument, row) for argument in expression.arguments)
        decisive = expression.op == "||"
        if decisive in (left, right):
            return decisive
        return None if None in (left, right) else not decisive
    if expression.op == "!":
        inner = truth(expression.arguments[0], row)
        return None if inner is None else not inner
    if expression.op == "BOUND":
        (variable,) = expression.arguments
        assert isinstance(variable, Variable)
        return variable.name in row
    left_text, right_text = (value(argument, row) for argument in expression.arguments)
    if left_text is None or right_text is None:
        return None
    if expression.op == "!=":
        return left_text != right_text
    assert expression.op in ("=", "SAMETERM"), expression.op
    return left_text == right_text


def value(expression: Expression, row: Solution) -> str | None:
    """Return the term that an expression makes; None is an error."""
    match expression:
        case Variable():
            return row.get(expression.name)
        case Term():
            return expression.text
        case Call():
            known = truth(expression, row)
            return None if known is None else f'"{str(known).lower()}"^^<http://www.w3.org/2001/XMLSchema#boolean>'
    raise AssertionError(expression)
