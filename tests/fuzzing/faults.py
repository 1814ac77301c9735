"""Known faults of pyoxigraph and rdflib: classes of disagreements that the specification settles against them.

A class is only asked about a query on which the engine agrees with the definitions and the library does not; it says
whether the query has what the fault needs. Each is counted, and described in tests/differential/disagreements.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.fuzzing import answers
from tests.fuzzing.answers import Answer
from tests.fuzzing.definitions import TooBig, by_definition
from tests.fuzzing.readings import READINGS
from tests.fuzzing.trees import Tree, below, operators
from tests.unit.csparql.evaluator import Dataset


@dataclass
class Case:
    """A query on which somebody differs."""

    tree: Tree
    text: str
    kind: str
    ours: Answer
    names: list[str]
    dataset: Dataset
    theirs: Answer | None = None
    refusal: str = ""

    @property
    def is_cut(self) -> bool:
        return bool(operators(self.tree) & {"LIMIT", "OFFSET"})


@dataclass(frozen=True)
class Fault:
    name: str
    explains: Callable[[Case], bool]


def has(root: Tree, *names: str) -> bool:
    return bool(operators(root) & set(names))


def within(root: Tree, outer: Callable[[Tree], bool], inner: Callable[[Tree], bool]) -> bool:
    """Whether a tree that inner holds for stands somewhere inside of one that outer holds for."""
    return any(outer(each) and any(inner(part) for part in below(each) if part is not each) for each in below(root))


def _exists(each: Tree) -> bool:
    return each.operator in ("EXISTS", "NOT EXISTS")


def _operator(*names: str) -> Callable[[Tree], bool]:
    return lambda each: each.operator in names


def _groups_by_variable(case: Case) -> bool:
    """`GROUP BY (?a AS ?k)`."""
    keys = [each for each in below(case.tree) if each.operator == "GROUP BY AS"]
    return any(isinstance(key.parts[1], Tree) and str(key.parts[1]).startswith("?") for key in keys)


def _counts_expression(case: Case) -> bool:
    counts = [each for each in below(case.tree) if each.operator in ("COUNT", "COUNT DISTINCT")]
    return any(isinstance(part, Tree) and len(part.parts) > 1 for each in counts for part in each.parts)


def _in_nothing(case: Case) -> bool:
    return any(e.operator in ("IN", "NOT IN") and str(e).endswith("( ) )") for e in below(case.tree))


def _absent_graph(case: Case) -> bool:
    """`GRAPH <name>` of a graph that is not there."""
    declared = set(re.findall("FROM NAMED (<[^>]*>)", case.text))
    there = set(case.dataset) & (declared if has(case.tree, "FROM", "FROM NAMED") else set(case.dataset))
    return not there >= set(re.findall("GRAPH (<[^>]*>)", case.text))


def _is_reading(name: str, case: Case) -> bool:
    """Whether the library answers as the definitions do with another reading of an operator or function."""
    if case.theirs is None:
        return False
    with READINGS[name]():
        try:
            other = by_definition(case.text, case.kind, case.names, case.dataset)
            return answers.same(case.theirs, other, has(case.tree, "SELECT REDUCED"))
        except TooBig:
            return False


def _empty_path_of_constant(case: Case) -> bool:
    """A path that may have no length, from or to a constant."""
    for each in below(case.tree):
        if each.operator == "PATH" and each.parts and isinstance(each.parts[0], Tree):
            ends = [part for part in each.parts[0].parts if isinstance(part, str)]
            if any(end.startswith("<") for end in ends) and has(each, "path ?", "path *", "nullable sequence"):
                return True
    return False


def _group_without_triples(each: Tree) -> bool:
    is_empty = each.sort == "group" and not any(
        isinstance(p, Tree) and p.operator in _MATCHING and p.parts for p in each.parts
    )
    return is_empty or each.operator in ("SUBQUERY", "MINUS", "EXISTS", "NOT EXISTS", "BIND", "FILTER")


def _filtered_optional(each: Tree) -> bool:
    return each.operator == "OPTIONAL" and has(each, "FILTER")


_MATCHING = ("BGP", "PATH")
_ASSEMBLED = _operator("MINUS", "VALUES", "BIND", "SUBQUERY", "OPTIONAL", "UNION", "GRAPH", "GRAPH ?g", "PATH")

OXIGRAPH: tuple[Fault, ...] = (
    Fault("refuses GROUP BY (?variable AS ?name)", lambda case: bool(case.refusal) and _groups_by_variable(case)),
    Fault("counts equal solutions of | and !() once", lambda case: has(case.tree, "|", "!()")),
    Fault("an empty path from an unknown constant leads nowhere", _empty_path_of_constant),
    Fault("triples of several FROM graphs count twice", lambda case: case.text.count("FROM <") > 1),
    Fault("COUNT of an error is an error", _counts_expression),
    Fault("IN () is an error", _in_nothing),
    Fault("GRAPH of an absent graph is not empty", _absent_graph),
    Fault(
        "GRAPH ?g without triple patterns loses its name; ?g is known in filters and subqueries",
        lambda case: within(case.tree, _operator("GRAPH ?g"), _group_without_triples),
    ),
    Fault(
        "knows the name of GRAPH ?g within its OPTIONAL",
        lambda case: within(case.tree, _operator("GRAPH ?g"), _operator("OPTIONAL")),
    ),
    Fault("joins the row to an EXISTS from the left", lambda case: within(case.tree, _exists, _ASSEMBLED)),
    Fault(
        "a filter of an OPTIONAL inside of another knows the variables around both",
        lambda case: within(case.tree, _operator("OPTIONAL"), _filtered_optional),
    ),
    Fault(
        "COUNT(DISTINCT *) counts blank nodes, and what lies within the sequence of a path",
        lambda case: (
            has(case.tree, "COUNT DISTINCT *") and ("_:" in case.text or "[]" in case.text or has(case.tree, "/"))
        ),
    ),
    *(Fault(name, partial(_is_reading, name)) for name in READINGS),
    Fault("loses the sum of a constant moment and a duration", lambda case: has(case.tree, "TIME +")),
    Fault(
        "open in SPARQL 1.1: the order of literals of different kinds",
        lambda case: case.is_cut or has(case.tree, "MIN", "MAX", "MIN DISTINCT", "MAX DISTINCT"),
    ),
)
RDFLIB: tuple[Fault, ...] = ()
