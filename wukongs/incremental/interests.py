"""Interests: which changes of the stored graph may concern a query, by graph, predicate and constant end of each of its
patterns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from wukongs.csparql.algebra import GraphNames, PathPattern, PerGraph, Service, TriplePattern
from wukongs.csparql.terms import Term
from wukongs.csparql.walk import parts_of
from wukongs.incremental.sources import StoredGraphs, written_graph
from wukongs.incremental.versions import TRIPLES_MAX, Change, Evaluation

End = Literal["subject", "object", None]


class Key(NamedTuple):
    """The triples that a pattern may match, by ids.

    predicate: None: any.
    end: which end of the triple has to be `term`; None: any triple."""

    predicate: int | None
    end: End = None
    term: int = 0


class _Interest(NamedTuple):
    """A pattern. graphs: in which it is matched; predicate, end, term: as in Key, but terms."""

    graphs: StoredGraphs
    predicate: Term | None
    end: End = None
    term: Term | None = None


class Interests:
    """The interests of the patterns of a part. Called with a change, they return whether the part may have changed: a
    triple has, in a graph that it reads, with the predicate and a constant end of a pattern there."""

    def __init__(self, part: object, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        clause, wanted = evaluation.clause, dict[_Interest, None]()
        self._is_any = False
        for one in parts_of(part):
            match one:
                case TriplePattern(predicate=predicate):
                    known = predicate if isinstance(predicate, Term) else None
                    end, term = _end_of(one)
                    wanted[_Interest(StoredGraphs.of(written_graph(one), clause), known, end, term)] = None
                case PathPattern():
                    wanted[_Interest(StoredGraphs.of(written_graph(one), clause), None)] = None
                case GraphNames(graph=graph) | PerGraph(graph=graph) if clause.is_empty:
                    wanted[_Interest(StoredGraphs.of(graph, clause), None)] = None  # which graphs there are
                case Service():
                    self._is_any = True
        self._wanted = tuple(wanted)

    @property
    def predicates(self) -> frozenset[Term] | None:
        """Those of all triples whose change may concern the part; None: they may be any."""
        found = [one.predicate for one in self._wanted if one.predicate is not None]
        return None if self._is_any or len(found) < len(self._wanted) else frozenset(found)

    def keys(self) -> Iterator[Key]:
        """Iterate over keys, with the ids that constants have now. A change that has no triple of any of them concerns
        the part in nothing."""
        if self._is_any:
            yield Key(None)
        for one in self._wanted:
            yield self._key(one)

    def _key(self, one: _Interest) -> Key:
        resolve = self._evaluation.resolve
        predicate = None if one.predicate is None else resolve(one.predicate)
        return Key(predicate) if one.term is None else Key(predicate, one.end, resolve(one.term))

    def __call__(self, change: Change) -> bool:
        if self._is_any and change.is_of_stored:
            return True
        resolve = self._evaluation.resolve
        for one in self._wanted:
            key = self._key(one)
            if one.graphs.is_touched(change, key.predicate, resolve) and _may_have(change, key):
                return True
        return False


def _may_have(change: Change, key: Key) -> bool:
    """Return whether a triple of a key was inserted or deleted, in whatever graph; of a large change, only whether that
    may be."""
    if key.end is None or change.count > TRIPLES_MAX:
        return True
    _, subjects, predicates, objects = change.quads
    found = (subjects if key.end == "subject" else objects) == key.term
    if key.predicate is not None:
        found &= predicates == key.predicate
    return bool(found.any())


def _end_of(pattern: TriplePattern) -> tuple[End, Term | None]:
    if isinstance(pattern.subject, Term):
        return "subject", pattern.subject
    if isinstance(pattern.object, Term):
        return "object", pattern.object
    return None, None
