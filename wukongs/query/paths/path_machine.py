"""From a path to the tables of its kernels: links as steps of the plan's kind, the automaton's edges by state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wukongs.csparql.algebra import GraphRef
from wukongs.csparql.automaton import Automaton, Link
from wukongs.csparql.terms import Variable
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
    return _machine(found.links(), found.edges, outcomes, dataset)


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
    )
