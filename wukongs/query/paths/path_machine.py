"""From a path to the tables of its kernels: links as steps of the plan's kind, the automaton's edges by state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.algebra import GraphRef, PathPattern
from wukongs.csparql.automaton import Automaton, Link, automaton_of
from wukongs.csparql.paths import Inverse, reaches_outside, repeats_on
from wukongs.csparql.terms import Term, Variable
from wukongs.query.paths import path_layout as layout
from wukongs.query.paths.path_layout import Machine, PathSource
from wukongs.query.plans import plan_layout
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.query.plans.lowering import with_parts
from wukongs.query.plans.plan_kernels import resolve_parts
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import NO_MATCH, Int64Array

ANY_LINKS = (Link("out", None, ()), Link("in", None, ()))
"""Any triple, from either end: through these a graph's nodes are found."""


def source_of(links: Sequence[Link], graph: GraphRef, dataset: Dataset) -> PathSource:
    """Point a step for each link at the batches of a graph. A search may meet the same triple in several parts, and
    then finds nothing new; so the parts need not be united."""
    steps = _steps(links, isinstance(graph, Variable), dataset.resolve)
    laid_out, parts = with_parts(LoweredPlan(steps, (graph,) * len(links), (), False), dataset)
    return _source(laid_out.copy(), parts, dataset.descriptors, dataset.default_graph)


@dataclass(slots=True)
class PathPlan:
    """The things about a path pattern that are the same for all executions; kept with the query's plans."""

    pattern: PathPattern
    automata: tuple[Automaton, Automaton] = field(init=False)
    """From the subject, and from the object."""
    repeats_links: bool = field(init=False)
    returns: bool = field(init=False)
    """Whether it is asked from where it leads back to where it began, and circles.py may answer."""
    is_kept: bool = field(init=False)
    """Whether its walks may be kept from firing to firing: not if their links are counted, and not over any graph."""
    _terms: tuple[Term, ...] = field(init=False)
    _meeting: tuple[tuple[int, ...], LoweredPlan, tuple[Machine, Machine]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        pattern = self.pattern
        self.automata = automaton_of(pattern.path), automaton_of(Inverse(pattern.path))
        self.repeats_links = self.automata[0].repeats_links
        is_circle = isinstance(pattern.subject, Variable) and pattern.subject == pattern.object
        has_answer = repeats_on(pattern.path) and not self.automata[0].is_nullable
        self.returns = is_circle and has_answer and pattern.length is None
        is_counted = pattern.length is not None or self.automata[0].steps_max is not None
        self.is_kept = not (is_counted or is_circle or isinstance(pattern.graph, Variable))
        self._terms = tuple(term for link in self.automata[0].links() for term in link.terms())

    def reaches_outside(self, substituted: Collection[Variable]) -> bool:
        """Tell whether it leads from a constant that the graph does not know to itself. substituted: variables that
        stand for a term in each row."""
        pattern = self.pattern
        ends = (
            isinstance(end, Term) or end.is_argument or end in substituted for end in (pattern.subject, pattern.object)
        )
        return reaches_outside(pattern.path, *ends)

    def meeting(self, dataset: Dataset) -> tuple[PathSource, tuple[Machine, Machine]]:
        """Return the links, of a path that repeats them, for two searches that are to meet: along them, and back."""
        ids = tuple(map(dataset.resolve, self._terms))
        kept = self._meeting  # another thread, at another snapshot, may put its own there
        if kept is None or kept[0] != ids:
            links = self.automata[0].links()
            every, graph = (*links, *reversed_links(links)), self.pattern.graph
            steps = _steps(every, isinstance(graph, Variable), dataset.resolve)
            lowered = LoweredPlan(steps, (graph,) * len(every), (), False)
            self._meeting = kept = ids, lowered, link_machines(self.automata[0], dataset)
        _, lowered, machines = kept
        steps, parts = with_parts(lowered, dataset)
        return _source(steps.copy(), parts, dataset.descriptors, dataset.default_graph), machines


def any_links_over(is_named: bool, parts: Int64Array, stored: BatchSet, default_graph: int) -> PathSource:
    """Point ANY_LINKS at parts of the stored graph. is_named: the graph of a triple is asked for.

    parts : int64[n, PART_WIDTH]"""
    steps = _steps(ANY_LINKS, is_named, lambda term: NO_MATCH)
    steps[:, plan_layout.PARTS_TO] = len(parts)
    steps[:, plan_layout.HIDING] = bool(stored.tombstones)
    return _source(steps, parts, stored.descriptors, default_graph)


def _steps(links: Sequence[Link], is_named: bool, resolve: Resolve) -> Int64Array:
    steps = np.zeros((len(links), plan_layout.STEP_WIDTH), np.int64)
    for row, link in zip(steps, links, strict=True):
        row[plan_layout.DIRECTION] = 0 if link.direction == "out" else 1
        row[plan_layout.PREDICATE_KIND] = plan_layout.NEW
        if link.predicate is not None:
            row[plan_layout.PREDICATE_KIND] = plan_layout.CONSTANT
            row[plan_layout.PREDICATE] = resolve(link.predicate)
        row[plan_layout.GRAPH_KIND] = plan_layout.NEW if is_named else plan_layout.ANY
    return steps


def _source(steps: Int64Array, parts: Int64Array, descriptors: Int64Array, default_graph: int) -> PathSource:
    steps[:, plan_layout.UNION] = 0
    part_rows = np.empty(len(parts), np.int64)
    resolve_parts(steps, parts, descriptors, part_rows)
    return PathSource(steps, parts, part_rows, descriptors, default_graph)


def excluded_ids(link: Link, dataset: Dataset) -> Int64Array:
    """Return the ids of the predicates that a link must not have, sorted."""
    ids = {dataset.resolve(term) for term in link.excluded or ()}
    return np.array(sorted(ids - {NO_MATCH}), np.int64)


def machine_of(found: Automaton, dataset: Dataset) -> Machine:
    """Write an automaton whose links are the steps of source_of(found.links(), ...)."""
    several = sum(found.accepting) > 1
    outcome = layout.ENDS if several else layout.IS_RESULT
    outcomes = [outcome if accepts else layout.GOES_ON for accepts in found.accepting]
    if several:
        outcomes.append(layout.IS_RESULT)
    return _machine(found.links(), found.edges, outcomes, dataset, found.steps_max)


def link_machines(found: Automaton, dataset: Dataset) -> tuple[Machine, Machine]:
    """Write the links of an automaton that repeats them for two searches that are to meet: along them, and back, over
    the steps of source_of((*links, *reversed_links(links)), ...)."""
    links = found.links()
    ways = links, reversed_links(links)
    edges = [(*((link, 0) for link in way),) for way in ways]
    every = links + ways[1]
    return (
        _machine(every, edges[:1], [layout.GOES_ON], dataset, found.steps_max),
        _machine(every, edges[1:], [layout.GOES_ON], dataset, found.steps_max),
    )


def pair_machines(found: Automaton, dataset: Dataset) -> tuple[Machine, Machine]:
    """Write an automaton for two searches that are to meet: from its beginning on, and back from where it accepts (over
    the steps of source_of(reversed_links(found.links()), ...)). Neither reports anything."""
    backward: list[list[tuple[Link, int]]] = [[] for _ in found.edges]
    for state, edges in enumerate(found.edges):
        for link, after in edges:
            backward[after].append((link, state))
    outcomes = [layout.GOES_ON] * len(found.edges)
    links = found.links()
    return _machine(links, found.edges, outcomes, dataset), _machine(links, backward, outcomes, dataset)


def reversed_links(links: Iterable[Link]) -> tuple[Link, ...]:
    """Return each link as it is walked from its other end."""
    return tuple(Link("in" if link.direction == "out" else "out", link.predicate, link.excluded) for link in links)


def _machine(
    links: tuple[Link, ...],
    edges_of: Iterable[Iterable[tuple[Link, int]]],
    outcomes: list[int],
    dataset: Dataset,
    steps_max: int | None = None,
) -> Machine:
    excluded = [excluded_ids(link, dataset) for link in links]
    bounds = np.cumsum([0, *map(len, excluded)])
    rows: list[tuple[int, int, int, int]] = []
    starts = [0]
    for edges in edges_of:
        for link, after in edges:
            step = links.index(link)
            rows.append((step, after, int(bounds[step]), int(bounds[step + 1])))
        starts.append(len(rows))
    starts += [len(rows)] * (len(outcomes) + 1 - len(starts))
    return Machine(
        np.array(starts, np.int64),
        np.array(rows, np.int64).reshape(-1, layout.EDGE_WIDTH),
        np.concatenate([np.empty(0, np.int64), *excluded]),
        np.array(outcomes, np.int64),
        -1 if steps_max is None else steps_max,
    )
