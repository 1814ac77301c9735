"""Completes what a search along a path may meet: level by level from where it starts, or whole links."""

from __future__ import annotations

import numpy as np

from wukongs.cluster.reads.asking import Graphs
from wukongs.cluster.reads.fetched_graph import FetchedGraph
from wukongs.csparql.algebra import GraphRef
from wukongs.csparql.automaton import Automaton, Link
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import current
from wukongs.query.plans import plan_layout as layout
from wukongs.query.plans import plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowered_plan import LoweredPlan
from wukongs.store.dtypes import IN, OUT, Int64Array

_NODE, _PREDICATE, _END = Variable("n"), Variable("p"), Variable("e")


def follow(
    automaton: Automaton, nodes: Int64Array, graph: GraphRef, stored: Graphs, fetched: FetchedGraph, dataset: Dataset
) -> None:
    """Complete all triples that a search may meet from some nodes: each pair of node and state once, in all stored
    graphs that the search may walk."""
    seen = {0: np.unique(nodes[nodes >= 0])}
    frontier, steps = dict(seen), 0
    while frontier and (automaton.steps_max is None or steps < automaton.steps_max):
        steps += 1
        reached: dict[int, list[Int64Array]] = {}
        for state, some in frontier.items():
            for link, after in automaton.edges[state]:
                reached.setdefault(after, []).append(_ends(link, some, graph, stored, fetched, dataset))
        frontier = {}
        for state, ends in reached.items():
            before = seen.get(state, np.empty(0, np.int64))
            new = np.setdiff1d(np.concatenate(ends), before)
            if len(new):
                current().hold(16 * len(new))
                seen[state], frontier[state] = np.union1d(before, new), new


def _ends(
    link: Link, nodes: Int64Array, graph: GraphRef, stored: Graphs, fetched: FetchedGraph, dataset: Dataset
) -> Int64Array:
    """Return where a link leads from some nodes, once that is complete."""
    predicate = predicate_of(link, dataset)
    if predicate is not None and predicate < 0:
        return np.empty(0, np.int64)
    direction = OUT if link.direction == "out" else IN
    fetched.fetch(nodes, direction, predicate, stored, dataset)
    step = np.zeros((1, layout.STEP_WIDTH), np.int64)
    step[0, layout.DIRECTION] = direction
    step[0, layout.KEY_KIND] = layout.BOUND
    step[0, layout.GRAPH_KIND] = layout.ANY
    step[0, layout.VALUE_KIND], step[0, layout.VALUE] = layout.NEW, 1 if predicate is not None else 2
    if predicate is None:
        step[0, layout.PREDICATE_KIND], step[0, layout.PREDICATE] = layout.NEW, 1
    else:
        step[0, layout.PREDICATE_KIND], step[0, layout.PREDICATE] = layout.CONSTANT, predicate
    names = (_NODE, _END) if predicate is not None else (_NODE, _PREDICATE, _END)
    plan = LoweredPlan(step, (graph,), names, False)
    table = plan_runner.run(plan, BindingTable((_NODE,), (nodes,), len(nodes)), dataset, current())
    ends = table.columns[-1]
    if link.excluded:
        excluded = np.array([dataset.resolve(term) for term in link.excluded], np.int64)
        ends = ends[~np.isin(table.columns[1], excluded)]
    return np.unique(ends)


def predicate_of(link: Link, dataset: Dataset) -> int | None:
    """Return the id of a link's predicate, NO_MATCH if no data can have it; None for a link of any."""
    return None if link.predicate is None else dataset.resolve(link.predicate)
