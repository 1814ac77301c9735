"""SPARQL Update in plain Python: requests as trees that print themselves, applied to a dataset of sets (Update, 4).

A graph is there while it has a triple, or since it was made by CREATE earlier in the request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tests.oracles.query_ast import Bgp, Column, GraphPattern, Group, Node, Query, TriplePattern, Var, render
from tests.oracles.rdf import Term, Triple, bnode, ntriples
from tests.oracles.sparql_oracle import Dataset, Evaluator

QuadPattern = tuple[Node | None, TriplePattern]
"""The graph (None: the default graph, or that of WITH) and the triple."""


class NoGraph(Exception):
    """An operation that needs a graph to be there, or not to be there, and it is the other way round."""


@dataclass(frozen=True)
class Data:
    verb: Literal["INSERT", "DELETE"]
    quads: tuple[QuadPattern, ...]


@dataclass(frozen=True)
class Modify:
    """where None: DELETE WHERE, with the quads of delete."""

    delete: tuple[QuadPattern, ...]
    insert: tuple[QuadPattern, ...]
    where: Group | None
    with_graph: Term | None = None
    using: tuple[Term, ...] = ()
    using_named: tuple[Term, ...] = ()


@dataclass(frozen=True)
class Whole:
    """verb: CLEAR, DROP or CREATE; target a graph, DEFAULT, NAMED or ALL."""

    verb: str
    target: Term | str
    silent: bool


@dataclass(frozen=True)
class Transfer:
    """verb: COPY, MOVE or ADD; None is the default graph."""

    verb: str
    source: Term | None
    destination: Term | None
    silent: bool


Operation = Data | Modify | Whole | Transfer


# --- text -------------------------------------------------------------------------------------------------------------


def text_of(operation: Operation) -> str:
    """An operation as SPARQL."""
    match operation:
        case Data(verb, quads):
            return f"{verb} DATA {_braces(quads)}"
        case Modify(delete, _, None):
            return f"DELETE WHERE {_braces(delete)}"
        case Modify(delete, insert, where):
            parts = [f"WITH {render(operation.with_graph)}" if operation.with_graph else ""]
            parts += [f"DELETE {_braces(delete)}"] if delete or not insert else []
            parts += [f"INSERT {_braces(insert)}"] if insert else []
            parts += [f"USING {render(name)}" for name in operation.using]
            parts += [f"USING NAMED {render(name)}" for name in operation.using_named]
            return " ".join([*filter(None, parts), f"WHERE {render(where)}"])
        case Whole(verb, target, silent):
            name = target if isinstance(target, str) else f"GRAPH {ntriples(target)}"
            return f"{verb} {'SILENT ' if silent else ''}{name}"
        case Transfer(verb, source, destination, silent):
            names = [f"GRAPH {ntriples(name)}" if name else "DEFAULT" for name in (source, destination)]
            return f"{verb} {'SILENT ' if silent else ''}{names[0]} TO {names[1]}"


def _braces(quads: tuple[QuadPattern, ...]) -> str:
    parts = []
    for graph, triple in quads:
        text = " ".join(map(render, triple)) + " ."
        parts.append(text if graph is None else f"GRAPH {render(graph)} {{ {text} }}")
    return "{ " + " ".join(parts) + " }"


# --- application ------------------------------------------------------------------------------------------------------

Quads = set[tuple[Term | None, Triple]]


@dataclass
class Store:
    """All quads that are stored; strict: the reading of values.py in which filters are evaluated."""

    quads: Quads
    strict: bool = True
    has_missed: bool = False
    """Whether a silent COPY, MOVE or ADD had no source: there libraries that empty the destination differ."""
    _created: set[Term] = field(default_factory=set)
    _blanks: int = 0

    def apply(self, request: list[Operation]) -> Quads:
        """Return what a request makes of the store, blank nodes of any name. Raises NoGraph, TooBig, Undefined."""
        self._created = set()
        for operation in request:
            try:
                self._apply(operation)
            except NoGraph:
                self.has_missed |= isinstance(operation, Transfer)
                if not getattr(operation, "silent", False):
                    raise
        return self.quads

    def _graph(self, name: Term | None) -> set[Triple]:
        return {triple for graph, triple in self.quads if graph == name}

    def _names(self) -> set[Term]:
        return {graph for graph, _ in self.quads if graph is not None}

    def _need(self, name: Term | None) -> None:
        if name is not None and name not in self._names() | self._created:
            raise NoGraph(name)

    def _apply(self, operation: Operation) -> None:
        match operation:
            case Data(verb, quads):
                made = self._filled(quads, {}, None)
                self.quads = self.quads | made if verb == "INSERT" else self.quads - made
            case Modify():
                self._modify(operation)
            case Whole(verb, target, _):
                self._whole(verb, target)
            case Transfer(verb, source, destination, _):
                if source == destination:
                    return
                self._need(source)
                moved = {(destination, triple) for triple in self._graph(source)}
                if verb != "ADD":
                    self._empty(destination)
                if verb == "MOVE":
                    self._empty(source)
                    self._created.discard(source)  # type: ignore[arg-type]
                self.quads = self.quads | moved

    def _whole(self, verb: str, target: Term | str) -> None:
        if verb == "CREATE":
            assert isinstance(target, Term)
            if target in self._names() | self._created:
                raise NoGraph(target)
            self._created.add(target)
            return
        named: set[Term | None] = {*self._names(), *self._created}
        whole = {"DEFAULT": {None}, "NAMED": named, "ALL": named | {None}}
        if verb == "DROP" and isinstance(target, Term):
            self._need(target)
        for name in whole[target] if isinstance(target, str) else {target}:
            self._empty(name)
            if verb == "DROP":
                self._created.discard(name)  # type: ignore[arg-type]

    def _empty(self, name: Term | None) -> None:
        self.quads = {quad for quad in self.quads if quad[0] != name}

    def _modify(self, operation: Modify) -> None:
        where = operation.where
        if where is None:
            where = Group(tuple(_matched(quad) for quad in operation.delete))
        named = {name: self._graph(name) for name in self._names()}
        dataset = Dataset(self._graph(operation.with_graph), named)
        if operation.using or operation.using_named:
            default = set().union(*(self._graph(name) for name in operation.using))
            dataset = Dataset(default, {name: self._graph(name) for name in operation.using_named})
        parts = [part for graph, triple in (*operation.delete, *operation.insert) for part in (graph, *triple)]
        variables = sorted({part for part in parts if isinstance(part, Var) and not part.name.startswith("_:")})
        query = Query("select", where, tuple(Column(variable) for variable in variables))
        gone: Quads = set()
        come: Quads = set()
        for row in Evaluator(dataset, self.strict).select(query):
            solution = dict(zip(variables, row, strict=True))
            gone |= self._filled(operation.delete, solution, operation.with_graph)
            come |= self._filled(operation.insert, solution, operation.with_graph)
        self.quads = (self.quads - gone) | come

    def _filled(self, quads: tuple[QuadPattern, ...], solution: dict[Var, object], graph: Term | None) -> Quads:
        """The quads of a template for one solution, whose blank nodes are new."""
        self._blanks += 1

        def value(node: Node) -> Term | None:
            if isinstance(node, Term):
                return node
            if node.name.startswith("_:"):
                return bnode(f"{node.name[2:]}n{self._blanks}")
            found = solution.get(node)
            assert found is None or isinstance(found, Term)
            return found

        made: Quads = set()
        for name, triple in quads:
            subject, predicate, term = map(value, triple)
            into = graph if name is None else value(name)
            if subject is None or predicate is None or term is None or (name is not None and into is None):
                continue
            is_right = subject.kind != "literal" and predicate.kind == "iri"
            if is_right and (into is None or into.kind != "literal"):
                made.add((into, (subject, predicate, term)))
        return made


def _matched(quad: QuadPattern) -> Bgp | GraphPattern:
    graph, triple = quad
    return Bgp((triple,)) if graph is None else GraphPattern(graph, Group((Bgp((triple,)),)))
