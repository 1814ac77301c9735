"""SPARQL 1.1 Update: the operations of a request (Update, section 3), as the parser makes them.

A template is made of triple patterns that name their graph: DEFAULT, an IRI, or a variable. WITH has been put in by the
parser, so DEFAULT in a template means the default graph of the store. Blank nodes are variables with `is_blank`; each
solution (each operation, in DATA) makes new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as Choice

from csparql.algebra import Query, TriplePattern
from csparql.terms import Term

GraphTarget = Term | Choice["DEFAULT", "NAMED", "ALL"]
"""What CLEAR and DROP name: a graph, the default graph, all named graphs, or all graphs."""


@dataclass(frozen=True, slots=True)
class InsertData:
    quads: tuple[TriplePattern, ...]


@dataclass(frozen=True, slots=True)
class DeleteData:
    quads: tuple[TriplePattern, ...]


@dataclass(frozen=True, slots=True)
class Modify:
    """DELETE and INSERT by the solutions of a pattern; DELETE WHERE, too.

    where: a select whose variables are those of the templates; its dataset is what USING says. default_graph: the graph
    of WITH, in which WHERE is matched outside of GRAPH (None: by its dataset)."""

    delete: tuple[TriplePattern, ...]
    insert: tuple[TriplePattern, ...]
    where: Query
    default_graph: Term | None = None


@dataclass(frozen=True, slots=True)
class Clear:
    """CLEAR or, with is_drop, DROP."""

    target: GraphTarget
    silent: bool = False
    is_drop: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    graph: Term
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Transfer:
    """COPY, MOVE or ADD from one graph to another; None is the default graph."""

    kind: Choice["COPY", "MOVE", "ADD"]
    source: Term | None
    destination: Term | None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """document: an IRI without brackets, relative if there was no base; into None: the default graph."""

    document: str
    into: Term | None
    silent: bool = False


Operation = InsertData | DeleteData | Modify | Clear | Create | Transfer | Load


@dataclass(frozen=True, slots=True)
class Update:
    """A parsed request; none of its operations may be applied without the others."""

    operations: tuple[Operation, ...]
