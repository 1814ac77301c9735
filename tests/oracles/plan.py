"""Basic graph patterns by nested loops over sets of triples, written from DESIGN's dataset clause (section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wukongs.csparql.algebra import DatasetClause, DefaultGraph, GraphRef, StreamWindow, TriplePattern
from wukongs.csparql.terms import Term, Variable

Triple = tuple[int, int, int]
Solution = dict[Variable, int]


@dataclass
class PlanModel:
    """stored: graph id -> its triples; windows: what each window holds; ids: canonical form -> id (absent: no match).

    default: the id of the stored default graph.
    """

    clause: DatasetClause
    stored: Mapping[int, set[Triple]]
    windows: Mapping[StreamWindow, set[Triple]]
    ids: Mapping[str, int]
    default: int
    cut_off: int = 4000
    """More solutions than these are not looked for."""
    _cache: dict[GraphRef, list[tuple[int | None, set[Triple]]]] = field(default_factory=dict)

    def solutions(self, patterns: Iterable[TriplePattern], seeds: list[Solution]) -> list[Solution] | None:
        """The bag of solutions that extend the seeds; None if there are more than cut_off on the way."""
        found = seeds
        for pattern in patterns:
            found = [extended for solution in found for extended in self._matches(pattern, solution)]
            if len(found) > self.cut_off:
                return None
        return found

    def _matches(self, pattern: TriplePattern, solution: Solution) -> Iterable[Solution]:
        for name, triples in self._graphs(pattern.graph):
            for triple in triples:
                wanted = list(zip((pattern.subject, pattern.predicate, pattern.object), triple, strict=True))
                if isinstance(pattern.graph, Variable):
                    assert name is not None
                    wanted.append((pattern.graph, name))
                extended = dict(solution)
                if all(
                    self.ids.get(part.text) == value
                    if isinstance(part, Term)
                    else extended.setdefault(part, value) == value
                    for part, value in wanted
                ):
                    yield extended

    def _graphs(self, ref: GraphRef) -> list[tuple[int | None, set[Triple]]]:
        """The graphs that a pattern is matched in, each a set."""
        if ref not in self._cache:
            self._cache[ref] = self._find_graphs(ref)
        return self._cache[ref]

    def _find_graphs(self, ref: GraphRef) -> list[tuple[int | None, set[Triple]]]:
        clause = self.clause
        if clause.is_empty:
            if isinstance(ref, DefaultGraph):
                return [(None, self._graph(self.default))]
            if isinstance(ref, Variable):
                return [(g, triples) for g, triples in self.stored.items() if g != self.default and triples]
            return [(None, self._graph(self.ids.get(ref.text)))]
        if isinstance(ref, DefaultGraph):
            merged = [self._graph(self.ids.get(f"<{name}>")) for name in clause.default_graphs]
            return [(None, set().union(*merged, *(self.windows[w] for w in clause.windows if not w.named)))]
        named: dict[str, set[Triple]] = {}
        for name in clause.named_graphs:
            named[name] = named.get(name, set()) | self._graph(self.ids.get(f"<{name}>"))
        for window in clause.windows:
            if window.named:
                named[window.stream] = named.get(window.stream, set()) | self.windows[window]
        if isinstance(ref, Variable):
            return [(self.ids[f"<{name}>"], triples) for name, triples in named.items() if f"<{name}>" in self.ids]
        name = ref.text[1:-1]
        if name in named:
            return [(None, named[name])]
        found: set[Triple] = set()
        if clause.windows:
            found = found.union(*(self.windows[w] for w in clause.windows if w.stream == name))
            if name in clause.default_graphs:
                found = found | self._graph(self.ids.get(ref.text))
        return [(None, found)]

    def _graph(self, graph: int | None) -> set[Triple]:
        return set() if graph is None else self.stored.get(graph, set())
