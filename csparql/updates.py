"""SPARQL 1.1 Update: the operations of a request (Update, section 3), as the parser makes them.

A template is made of triple patterns that name their graph: DEFAULT, an IRI, or a variable. WITH has been put in by the
parser, so DEFAULT in a template means the default graph of the store. Blank nodes are variables with `is_blank`; each
solution (each operation, in DATA) makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal as Choice

from wukongs.csparql.algebra import DEFAULT, DatasetClause, DefaultGraph, GraphRef, GraphVersion, Query, TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.errors import UpdateError

GraphTarget = Term | Choice["DEFAULT", "NAMED", "ALL"]
"""The target of CLEAR and DROP: a graph, the default graph, all named graphs, or all graphs."""


@dataclass(frozen=True, slots=True)
class DataColumns:
    """Many quads, by columns of places in `terms` (canonical forms, and blank nodes); graph -1 is the default graph."""

    terms: tuple[str | Variable, ...]
    graphs: Sequence[int]
    subjects: Sequence[int]
    predicates: Sequence[int]
    objects: Sequence[int]

    def quads(self) -> Iterator[TriplePattern]:
        """Iterate over the same quads one by one."""
        terms = [Term(term) if isinstance(term, str) else term for term in self.terms]
        for graph, *triple in zip(self.graphs, self.subjects, self.predicates, self.objects, strict=True):
            subject, predicate, object_ = (terms[place] for place in triple)
            yield TriplePattern(subject, predicate, object_, DEFAULT if graph < 0 else terms[graph])


def in_columns(quads: Sequence[TriplePattern]) -> DataColumns:
    """Return quads of terms and blank nodes by columns."""
    terms: dict[str | Variable, int] = {}

    def place(part: GraphRef) -> int:
        if isinstance(part, DefaultGraph):
            return -1
        assert not isinstance(part, GraphVersion), part
        return terms.setdefault(part.text if isinstance(part, Term) else part, len(terms))

    graphs, subjects, predicates, objects = (
        [place(getattr(quad, name)) for quad in quads] for name in ("graph", "subject", "predicate", "object")
    )
    return DataColumns(tuple(terms), graphs, subjects, predicates, objects)


@dataclass(frozen=True, slots=True)
class InsertData:
    """columns: the quads of a long block that are plain ones; quads: all others."""

    quads: tuple[TriplePattern, ...]
    columns: tuple[DataColumns, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteData:
    """Like InsertData, for quads that go."""

    quads: tuple[TriplePattern, ...]
    columns: tuple[DataColumns, ...] = ()


@dataclass(frozen=True, slots=True)
class Modify:
    """DELETE and INSERT by the solutions of a pattern; DELETE WHERE, too.

    where: a select whose variables are those of the templates; its dataset is that of USING. default_graph: the graph
    of WITH, in which WHERE is matched outside of GRAPH (None: its dataset decides)."""

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


def using(update: Update, dataset: DatasetClause) -> Update:
    """Return the request with a dataset for all its patterns, as if each operation said USING (SPARQL 1.1 Protocol,
    2.2.3). Raises UpdateError if an operation has a dataset of its own."""

    def with_dataset(operation: Operation) -> Operation:
        if not isinstance(operation, Modify):
            return operation
        if operation.default_graph is not None or not operation.where.dataset.is_empty:
            raise UpdateError(
                "the dataset is given beside the update (using-graph-uri), which says USING or WITH itself: expected "
                "one of the two"
            )
        return replace(operation, where=replace(operation.where, dataset=dataset))

    return Update(tuple(map(with_dataset, update.operations)))
