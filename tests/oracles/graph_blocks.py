"""Random patterns with GRAPH blocks that mention their own variable, and what section 18 of SPARQL 1.1 makes of them.

A pattern is a tuple of parts, a part a tuple that begins with its kind. Terms are texts, variables begin with `?`.
eval(D(G), Graph(var, P)) is the union over the names g of Join(eval(D(D[g]), P), {var -> g}), 18.6: within P the
variable is one like all others.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

GRAPHS = ("<g:1>", "<g:2>", "<g:3>")
TERMS = (*GRAPHS, "<x:1>", "<x:2>")
PREDICATES = ("<p:1>", "<p:2>")
VARIABLES = ("?g", "?a", "?b")
PATH = "<p:1>*"
SOLUTIONS_MAX = 3000

Part = tuple[Any, ...]
Pattern = tuple[Part, ...]
Triple = tuple[str, str, str]
Dataset = Mapping[str, set[Triple]]
"""Graphs by name; the default graph has the name ""."""
Solution = dict[str, str]


class NoOpinion(Exception):
    """A pattern that is refused, too large, or whose meaning section 18 leaves open."""


# --- to make ----------------------------------------------------------------------------------------------------------


def random_dataset(rng: random.Random) -> dict[str, set[Triple]]:
    def triple() -> Triple:
        return rng.choice(TERMS), rng.choice(PREDICATES), rng.choice(TERMS)

    return {name: {triple() for _ in range(rng.randint(1, 6))} for name in ("", *GRAPHS)}


def random_pattern(rng: random.Random) -> Pattern:
    """Return GRAPH ?g { ... }, sometimes beside a triple pattern."""
    parts: list[Part] = [("graph", "?g", _group(rng, 2))]
    if rng.random() < 0.5:
        parts.insert(rng.randint(0, 1), _triple(rng))
    return tuple(parts)


def _node(rng: random.Random) -> str:
    return rng.choice(VARIABLES) if rng.random() < 0.65 else rng.choice(TERMS)


def _triple(rng: random.Random) -> Part:
    return "triple", _node(rng), rng.choice(PREDICATES), _node(rng)


def _group(rng: random.Random, depth: int) -> Pattern:
    leaves = ["triple", "triple", "triple", "path", "filter", "bind", "values"]
    inner = ["optional", "optional", "minus", "group", "exists", "union", "select", "graph"]
    parts: list[Part] = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(leaves + inner if depth else leaves)
        if kind == "triple":
            parts.append(_triple(rng))
        elif kind == "path":
            parts.append((kind, _node(rng), _node(rng)))
        elif kind == "filter":
            parts.append((kind, rng.choice(("=", "!=", "BOUND", "!BOUND")), rng.choice(VARIABLES), _node(rng)))
        elif kind == "bind":
            parts.append((kind, _node(rng), rng.choice(VARIABLES)))
        elif kind == "values":
            parts.append((kind, rng.choice(VARIABLES), tuple(rng.sample(TERMS, 2))))
        elif kind == "exists":
            parts.append((kind, rng.choice(("", "NOT ")), tuple(_triple(rng) for _ in range(rng.randint(1, 2)))))
        elif kind == "union":
            parts.append((kind, _group(rng, depth - 1), _group(rng, depth - 1)))
        elif kind == "select":
            named = tuple(sorted(rng.sample(VARIABLES, rng.randint(1, 2))))
            parts.append((kind, rng.choice(("", "DISTINCT ")), named, _group(rng, depth - 1)))
        elif kind == "graph":
            parts.append((kind, rng.choice((*VARIABLES, *GRAPHS)), _group(rng, depth - 1)))
        else:
            parts.append((kind, _group(rng, depth - 1)))
    return tuple(parts)


def render(pattern: Pattern) -> str:
    return " ".join(map(_render, pattern))


def _render(part: Part) -> str:
    match part:
        case "triple", subject, predicate, term:
            return f"{subject} {predicate} {term} ."
        case "path", subject, term:
            return f"{subject} {PATH} {term} ."
        case "filter", ("BOUND" | "!BOUND") as asked, variable, _:
            return f"FILTER({asked}({variable}))"
        case "filter", operator, variable, other:
            return f"FILTER({variable} {operator} {other})"
        case "bind", node, variable:
            return f"BIND({node} AS {variable})"
        case "values", variable, terms:
            return f"VALUES {variable} {{ {' '.join(terms)} }}"
        case "exists", negation, inner:
            return f"FILTER {negation}EXISTS {{ {render(inner)} }}"
        case "union", left, right:
            return f"{{ {render(left)} }} UNION {{ {render(right)} }}"
        case "select", distinct, named, inner:
            return f"{{ SELECT {distinct}{' '.join(named)} {{ {render(inner)} }} }}"
        case "graph", name, inner:
            return f"GRAPH {name} {{ {render(inner)} }}"
        case "group", inner:
            return f"{{ {render(inner)} }}"
    return f"{part[0].upper()} {{ {render(part[1])} }}"


# --- to evaluate ------------------------------------------------------------------------------------------------------


def solutions(pattern: Pattern, dataset: Dataset) -> list[Solution]:
    """Return the multiset of solutions. Raises NoOpinion."""
    return _solutions(pattern, "", dataset)


def _solutions(pattern: Pattern, graph: str, dataset: Dataset) -> list[Solution]:
    found, conditions = _unfiltered(pattern, graph, dataset)
    return [row for row in found if all(_holds(each, row, graph, dataset) for each in conditions)]


def _unfiltered(pattern: Pattern, graph: str, dataset: Dataset) -> tuple[list[Solution], list[Part]]:
    rows: list[Solution] = [{}]
    conditions: list[Part] = []
    used: set[str] = set()
    for part in pattern:
        if part[0] in ("filter", "exists"):
            conditions.append(part)
        elif part[0] == "optional":
            right, asked = _unfiltered(part[1], graph, dataset)
            joined = []
            for row in rows:
                more = [one for one in _join([row], right) if all(_holds(each, one, graph, dataset) for each in asked)]
                joined += more or [row]
            rows = joined
        elif part[0] == "minus":
            gone = _solutions(part[1], graph, dataset)
            rows = [row for row in rows if not any(_fits(row, one) and row.keys() & one.keys() for one in gone)]
        elif part[0] == "bind":
            _, node, variable = part
            if variable in used:
                raise NoOpinion("BIND of a variable that the group has used")
            rows = [row if (term := _value(node, row)) is None else {**row, variable: term} for row in rows]
        else:
            rows = _join(rows, _element(part, graph, dataset))
        used |= _in_scope(part)
        if len(rows) > SOLUTIONS_MAX:
            raise NoOpinion("too many solutions")
    return rows, conditions


def _element(part: Part, graph: str, dataset: Dataset) -> list[Solution]:
    match part:
        case "triple", *nodes:
            return [row for triple in dataset[graph] if (row := _matched(nodes, triple)) is not None]
        case "path", subject, term:
            return _follow(subject, term, dataset[graph])
        case "values", variable, terms:
            return [{variable: term} for term in terms]
        case "group", inner:
            return _solutions(inner, graph, dataset)
        case "union", left, right:
            return _solutions(left, graph, dataset) + _solutions(right, graph, dataset)
        case "select", distinct, named, inner:
            rows = [{name: row[name] for name in named if name in row} for row in _solutions(inner, graph, dataset)]
            return [dict(row) for row in {tuple(row.items()) for row in rows}] if distinct else rows
        case "graph", name, inner if name.startswith("?"):
            tables = [_join(_solutions(inner, each, dataset), [{name: each}]) for each in GRAPHS if dataset[each]]
            return [row for table in tables for row in table]
        case "graph", name, inner:
            return _solutions(inner, name, dataset) if dataset[name] else []
    raise AssertionError(part)


def _matched(nodes: list[str], triple: Triple) -> Solution | None:
    row: Solution = {}
    for node, term in zip(nodes, triple, strict=True):
        if (row.setdefault(node, term) if node.startswith("?") else node) != term:
            return None
    return row


def _follow(subject: str, term: str, triples: set[Triple]) -> list[Solution]:
    """18.4: a path without length leads from each node of the graph, and from each term of the pattern, to itself."""
    nodes = {node for triple in triples for node in (triple[0], triple[2])}
    nodes |= {node for node in (subject, term) if not node.startswith("?")}
    found = []
    for start in nodes:
        reached, waiting = {start}, [start]
        while waiting:
            at = waiting.pop()
            near = {o for s, p, o in triples if s == at and p == PATH[:-1]} - reached
            reached |= near
            waiting += near
        rows = [_matched([subject, "", term], (start, "", end)) for end in reached]
        found += [{name: node for name, node in row.items() if name} for row in rows if row is not None]
    return found


def _fits(left: Solution, right: Solution) -> bool:
    return all(right.get(name, term) == term for name, term in left.items())


def _join(left: list[Solution], right: list[Solution]) -> list[Solution]:
    return [{**one, **other} for one in left for other in right if _fits(one, other)]


def _value(node: str, row: Solution) -> str | None:
    return row.get(node) if node.startswith("?") else node


def _holds(condition: Part, row: Solution, graph: str, dataset: Dataset) -> bool:
    match condition:
        case "filter", "BOUND", variable, _:
            return variable in row
        case "filter", "!BOUND", variable, _:
            return variable not in row
        case "filter", operator, variable, other:
            left, right = _value(variable, row), _value(other, row)
            return left is not None and right is not None and (left == right) == (operator == "=")
        case "exists", negation, inner:
            put = tuple((kind, *(row.get(node, node) for node in nodes)) for kind, *nodes in inner)
            return bool(_solutions(put, graph, dataset)) != bool(negation)
    raise AssertionError(condition)


def _in_scope(part: Part) -> set[str]:
    """18.2.1: the variables that are in scope behind a part of a group."""
    match part:
        case (("filter" | "exists" | "minus"), *_):
            return set()
        case (("triple" | "path"), *nodes):
            return {node for node in nodes if node.startswith("?")}
        case "bind", _, variable:
            return {variable}
        case "values", variable, _:
            return {variable}
        case "select", _, named, _:
            return set(named)
        case "graph", name, inner:
            return ({name} if name.startswith("?") else set()).union(*map(_in_scope, inner))
        case _, *patterns:
            return set().union(*(_in_scope(each) for pattern in patterns for each in pattern))
    raise AssertionError(part)
