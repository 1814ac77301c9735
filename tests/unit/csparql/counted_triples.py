"""Cardinalities counted from an explicit list of triples: what the planner asks, answered exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wukongs.csparql.algebra import DEFAULT, GraphRef, TriplePattern
from wukongs.csparql.cardinality import Direction
from wukongs.csparql.terms import Term, Variable

Triple = tuple[str, str, str]


class CountedTriples:
    """Graphs as lists of triples whose parts are canonical forms."""

    def __init__(self, graphs: Mapping[GraphRef, Sequence[Triple]]) -> None:
        self.graphs = {graph: sorted(set(triples)) for graph, triples in graphs.items()}
        self._by_predicate: dict[tuple[GraphRef, str], list[Triple]] = {}
        for graph, triples in self.graphs.items():
            for triple in triples:
                self._by_predicate.setdefault((graph, triple[1]), []).append(triple)

    @staticmethod
    def of_default(triples: Sequence[Triple]) -> CountedTriples:
        return CountedTriples({DEFAULT: triples})

    def triples(self, graph: GraphRef, predicate: Term | None) -> Iterator[Triple]:
        names = [name for name in self.graphs if name != DEFAULT] if isinstance(graph, Variable) else [graph]
        for name in names:
            if predicate is None:
                yield from self.graphs.get(name, ())
            else:
                yield from self._by_predicate.get((name, predicate.text), ())

    def edges(self, graph: GraphRef, predicate: Term | None) -> float:
        return float(sum(1 for _ in self.triples(graph, predicate)))

    def keys(self, graph: GraphRef, predicate: Term | None, direction: Direction) -> float:
        end = 0 if direction == "out" else 2
        return float(len({triple[end] for triple in self.triples(graph, predicate)}))

    def degree(self, graph: GraphRef, predicate: Term | None, direction: Direction, vertex: Term) -> float:
        end = 0 if direction == "out" else 2
        return float(sum(1 for triple in self.triples(graph, predicate) if triple[end] == vertex.text))

    def share(self, found: TriplePattern, variable: Variable, asked: TriplePattern) -> float | None:
        ends = [found.subject, found.object]
        predicate = found.predicate if isinstance(found.predicate, Term) else None
        values = {
            pair[ends.index(variable)]
            for subject, _, object_ in self.triples(found.graph, predicate)
            for pair in [(subject, object_)]
            if all(isinstance(end, Variable) or end.text == part for end, part in zip(ends, pair, strict=True))
        }
        assert isinstance(asked.predicate, Term)
        assert isinstance(asked.object, Term)
        kept = {s for s, _, o in self.triples(asked.graph, asked.predicate) if o == asked.object.text}
        return max(len(values & kept), 0.5) / len(values) if values else None
