"""The nodes that a path leads back to: `?x path ?x`, by one walk over all triples of its links.

That is the answer if a walk of the path behind another one is a walk of the path, too, as it is for `+` and `{n,}`.
Then a node is an answer if and only if it lies on a circle of such walks. The circles are sought in a graph of pairs of
node and state. One more state, `between`, is that of a node at which one walk ends and the next one begins. So a circle
of walks is a circle through a pair of a node and `between`.

A search from each node costs n times as much where circles are long or there are none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from wukongs.csparql.algebra import PathPattern, TriplePattern
from wukongs.csparql.automaton import Automaton, Link
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Variable
from wukongs.query.binding_table import BindingTable
from wukongs.query.limits import Limits
from wukongs.query.paths import path_layout as layout
from wukongs.query.paths.circle_kernels import WALK_WIDTH, mark_circles
from wukongs.query.paths.path_machine import excluded_ids
from wukongs.query.paths.path_search import EDGES_PER_CALL
from wukongs.query.plans import plan_runner
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.lowering import lower
from wukongs.query.rows import group_members, numbered, put_together, taken
from wukongs.store.dtypes import BoolArray, Int64Array

_FROM, _PREDICATE, _TO = Variable("from"), Variable("predicate"), Variable("to")


def returning_nodes(
    pattern: PathPattern, automaton: Automaton, dataset: Dataset, limits: Limits
) -> tuple[Int64Array, Int64Array | None]:
    """Return the nodes that a path leads back to, each once in each graph, and the graphs if the pattern has a variable
    for them. Raises QueryTimeout, BudgetExceeded."""
    links = automaton.links()
    ends = [_ends(link, pattern, dataset, limits) for link in links]
    nodes = put_together([column for found in ends for column in found[:2]])
    named = isinstance(pattern.graph, Variable)
    graphs = put_together([found[2] for found in ends for _ in range(2)]) if named else None
    places, firsts = numbered((nodes,) if graphs is None else (nodes, graphs), len(nodes))
    bounds = np.cumsum([0, *(len(column) for found in ends for column in found[:2])])
    parts = [places[start:stop] for start, stop in pairwise(bounds)]
    edges = {link: (parts[2 * at], parts[2 * at + 1]) for at, link in enumerate(links)}
    moves, states = _moves(automaton)
    sources = put_together([edges[link][0] * states + before for before, link, _ in moves])
    targets = put_together([edges[link][1] * states + after for _, link, after in moves])
    limits.hold(8 * (len(sources) + len(targets)))
    is_on = _on_circle(sources, targets, len(firsts) * states, limits)
    found = firsts[np.flatnonzero(is_on[states - 1 :: states])]
    return nodes[found], None if graphs is None else graphs[found]


def _moves(automaton: Automaton) -> tuple[list[tuple[int, Link, int]], int]:
    """Return (state, link, next state) of all moves, and the number of states; the last one is `between`."""
    if automaton.repeats_links:
        return [(0, link, 0) for link in automaton.links()], 1
    between = len(automaton.edges)
    moves = []
    for state, edges in enumerate((*automaton.edges, automaton.edges[0])):
        for link, after in edges:
            moves.append((state, link, after))
            if automaton.accepting[after]:
                moves.append((state, link, between))
    return moves, between + 1


def _ends(link: Link, pattern: PathPattern, dataset: Dataset, limits: Limits) -> tuple[Int64Array, ...]:
    """Return where a link begins and ends, and its graph if the pattern has a variable for it, for each triple."""
    triple = TriplePattern(_FROM, _PREDICATE if link.predicate is None else link.predicate, _TO, pattern.graph)
    plan = lower([PlanStep(triple, "out", 0.0)], (), dataset)
    table = plan_runner.run(plan, BindingTable.unit(), dataset, limits)
    excluded = excluded_ids(link, dataset)
    if len(excluded):
        table = table.take(np.flatnonzero(~np.isin(table.column(_PREDICATE), excluded)))
    ends = (_FROM, _TO) if link.direction == "out" else (_TO, _FROM)
    graph = (pattern.graph,) if isinstance(pattern.graph, Variable) else ()
    return table.columns_of((*ends, *graph))


def _on_circle(sources: Int64Array, targets: Int64Array, count: int, limits: Limits) -> BoolArray:
    """Tell of each node of a graph with these edges whether it lies on a circle."""
    starts, members = group_members(sources, count)
    targets = taken(targets, members)
    limits.hold(8 * 5 * count)
    on_circle = np.zeros(count, np.bool_)
    next_edges, numbers, lowest = starts[:-1].copy(), np.zeros(count, np.int64), np.zeros(count, np.int64)
    way, waiting = np.empty(count, np.int64), np.empty(count, np.int64)
    walk, control = np.zeros(WALK_WIDTH, np.int64), np.zeros(1, np.int64)
    status = layout.PAUSED
    while status != layout.DONE:
        control[layout.EDGES_LEFT] = EDGES_PER_CALL
        status = mark_circles(starts, targets, next_edges, numbers, lowest, way, waiting, on_circle, walk, control)
        limits.check()
    return on_circle
