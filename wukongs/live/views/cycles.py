"""Cycles: what a live view makes must not become part of what it reads, by way of streams, stored graphs, other
registered queries and rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from wukongs.csparql.algebra import DEFAULT, GraphNames, PathPattern, PerGraph, Query, TriplePattern
from wukongs.csparql.terms import Term
from wukongs.csparql.walk import parts_of
from wukongs.errors import StreamError
from wukongs.rules.program import Rule
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI
from wukongs.store.hidden_graphs import view_of


class Place(NamedTuple):
    """A stream or a stored graph, by its IRI."""

    kind: str
    name: str

    def __str__(self) -> str:
        return "the default graph" if self.name == DEFAULT_GRAPH_IRI else f"{self.kind} {self.name}"


ANY_GRAPH = Place("graph", "")
"""Stands for all named graphs."""


class Step(NamedTuple):
    """A maker of triples of others: a registered query, a rule, or a stream that joins a stored graph.

    what: it, in words.
    reads: where its triples are from.
    makes: where they are put."""

    what: str
    reads: Collection[Place]
    makes: Place

    def takes(self, place: Place) -> bool:
        """Tell whether it reads a place."""
        is_named = place.kind == "graph" and place.name != DEFAULT_GRAPH_IRI
        return place in self.reads or (is_named and ANY_GRAPH in self.reads)


def graph(name: str | None) -> Place:
    """Return a stored graph. name: None: the default graph."""
    return Place("graph", DEFAULT_GRAPH_IRI if name is None else name)


def reads_of(query: Query) -> frozenset[Place]:
    """Return the stored graphs that a query reads, and the streams of its windows."""
    clause, found = query.dataset, {Place("stream", window.stream) for window in query.dataset.windows}
    defaults = (DEFAULT_GRAPH_IRI,) if clause.is_empty else clause.default_graphs
    for part in parts_of(query.pattern):
        if not isinstance(part, TriplePattern | PathPattern | GraphNames | PerGraph):
            continue
        if part.graph == DEFAULT:
            names = defaults
        elif isinstance(part.graph, Term):
            names = (part.graph.name,)
        elif clause.named_graphs:
            names = clause.named_graphs
        else:
            found.add(ANY_GRAPH)
            continue
        found.update(graph(shown.graph if (shown := view_of(name)) is not None else name) for name in names)
    return frozenset(found)


def steps_of(rules: Iterable[Rule]) -> list[Step]:
    """Return what rules do. Each graph that a rule concludes into counts as read."""
    return [
        Step(
            f"rule {rule.name}",
            {graph(None if one is None else one.name) for one in rule.graphs()},
            graph(None if rule.into is None else rule.into.name),
        )
        for rule in rules
    ]


def check_no_cycle(view: Step, others: Iterable[Step]) -> None:
    """Raise StreamError if a view would read what is made of its own triples."""
    others = list(others)
    before: dict[Place, tuple[Step, Place | None]] = {view.makes: (view, None)}
    reached = [view.makes]
    for place in reached:
        if view.takes(place):
            raise _cycle(view, place, before)
        for step in others:
            if step.takes(place) and step.makes not in before:
                before[step.makes] = step, place
                reached.append(step.makes)


def _cycle(view: Step, place: Place, before: Mapping[Place, tuple[Step, Place | None]]) -> StreamError:
    told, at = list[str](), place
    while True:
        step, read = before[at]
        told.insert(0, f"{step.what} into {at}")
        if read is None:
            break
        at = read
    return StreamError(
        f"{view.what} would read what is made of its own triples, a cycle: {', '.join(told)}, which it reads. Declare "
        "the stream with timing=True, or with into= another graph; or have the view read other graphs (GRAPH <iri>)"
    )
