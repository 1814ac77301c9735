"""The small query language of the random tests: a syntax tree that prints itself as SPARQL.

A node of a pattern is a `Term` or a `Var`; a `Var` whose name starts with `_:` is a blank node of the query, a variable
that nobody can name. Random tests make trees, so that the plain evaluator needs no parser of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from tests.oracles import paths
from tests.oracles.paths import Var
from tests.oracles.rdf import Term, ntriples

Node = Term | Var
TriplePattern = tuple[Node, Node, Node]


@dataclass(frozen=True)
class Compare:
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Arithmetic:
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Logic:
    """operator is '&&' or '||' with two arguments, '!' with one."""

    operator: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Bound:
    var: Var


@dataclass(frozen=True)
class Aggregate:
    """var None: COUNT(*)."""

    function: str
    distinct: bool
    var: Var | None


Expression = Var | Term | Compare | Arithmetic | Logic | Bound | Aggregate


@dataclass(frozen=True)
class Bgp:
    triples: tuple[TriplePattern, ...]


@dataclass(frozen=True)
class PathTriple:
    """A triple with a property path (tests/oracles/paths.py) in the place of its predicate."""

    subject: Node
    path: paths.Path
    object: Node


@dataclass(frozen=True)
class Optional:
    group: Group


@dataclass(frozen=True)
class Union:
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class GraphPattern:
    name: Node
    group: Group


@dataclass(frozen=True)
class Filter:
    condition: Expression


Element = "Bgp | PathTriple | Optional | Union | GraphPattern | Filter | Group"


@dataclass(frozen=True)
class Group:
    elements: tuple[Bgp | PathTriple | Optional | Union | GraphPattern | Filter | Group, ...]


@dataclass(frozen=True)
class Column:
    """One column of SELECT: a variable, or (expression AS var)."""

    var: Var
    expression: Expression | None = None


@dataclass(frozen=True)
class Query:
    """kind: 'select', 'ask' or 'construct'. group_by None: not grouped (but an aggregate groups all rows into one)."""

    kind: str
    where: Group
    columns: tuple[Column, ...] = ()
    distinct: bool = False
    group_by: tuple[Var, ...] | None = None
    order_by: tuple[tuple[Var, bool], ...] = ()
    limit: int | None = None
    offset: int = 0
    template: tuple[TriplePattern, ...] = ()

    @property
    def reads_default_graph(self) -> bool:
        """Whether some pattern stands outside of GRAPH."""
        return _reads_default(self.where)

    @property
    def has_aggregate(self) -> bool:
        return any(isinstance(column.expression, Aggregate) for column in self.columns)

    def text(self, dataset: str = "") -> str:
        """The query as SPARQL, with the lines of `dataset` between its head and its WHERE."""
        lines = [self._head(), dataset, f"WHERE {render(self.where)}"]
        if self.group_by:
            lines.append("GROUP BY " + " ".join(render(var) for var in self.group_by))
        if self.order_by:
            lines.append(
                "ORDER BY " + " ".join(f"{'DESC' if down else 'ASC'}({render(v)})" for v, down in self.order_by)
            )
        if self.limit is not None:
            lines.append(f"LIMIT {self.limit}")
        if self.offset:
            lines.append(f"OFFSET {self.offset}")
        return "\n".join(line for line in lines if line)

    def _head(self) -> str:
        if self.kind == "ask":
            return "ASK"
        if self.kind == "construct":
            return "CONSTRUCT " + render(Group((Bgp(self.template),)))
        shown = [
            f"({render(c.expression)} AS {render(c.var)})" if c.expression else render(c.var) for c in self.columns
        ]
        return "SELECT " + ("DISTINCT " if self.distinct else "") + " ".join(shown)


def nodes(tree: object) -> Iterator[object]:
    """All nodes of a tree, itself included."""
    yield tree
    if isinstance(tree, tuple):
        below = tree
    else:
        below = tuple(getattr(tree, each.name) for each in fields(tree)) if is_dataclass(tree) else ()
    for part in below:
        yield from nodes(part)


def path_triples(tree: object) -> Iterator[PathTriple]:
    """All triples with a path of a tree."""
    return (node for node in nodes(tree) if isinstance(node, PathTriple))


def render(node: object) -> str:
    """Any node of the tree as SPARQL text."""
    match node:
        case Var(name):
            return name if name.startswith("_:") else f"?{name}"
        case Term():
            return ntriples(node)
        case Compare(operator, left, right) | Arithmetic(operator, left, right):
            return f"({render(left)} {operator} {render(right)})"
        case Logic("!", (argument,)):
            return f"(! {render(argument)})"
        case Logic(operator, arguments):
            return "(" + f" {operator} ".join(map(render, arguments)) + ")"
        case Bound(var):
            return f"bound({render(var)})"
        case Aggregate(function, distinct, var):
            return f"{function}({'DISTINCT ' if distinct else ''}{render(var) if var else '*'})"
        case Bgp(triples):
            return " ".join(" ".join(map(render, triple)) + " ." for triple in triples)
        case PathTriple(subject, path, object_):
            return f"{render(subject)} {paths.text(path, render)} {render(object_)} ."
        case Optional(group):
            return f"OPTIONAL {render(group)}"
        case Union(groups):
            return " UNION ".join(map(render, groups))
        case GraphPattern(name, group):
            return f"GRAPH {render(name)} {render(group)}"
        case Filter(condition):
            return f"FILTER ({render(condition)})"
        case Group(elements):
            return "{ " + " ".join(map(render, elements)) + " }"
    raise AssertionError(f"no text for {node!r}")


def _reads_default(group: Group) -> bool:
    for element in group.elements:
        inner: tuple[Group, ...] = ()
        match element:
            case Bgp(triples=triples) if triples:
                return True
            case PathTriple():
                return True
            case Optional():
                inner = (element.group,)
            case Group():
                inner = (element,)
            case Union():
                inner = element.groups
        if any(map(_reads_default, inner)):
            return True
    return False
