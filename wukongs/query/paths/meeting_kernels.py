# mypy: disallow-untyped-defs=false
"""Kernels of the search between two known ends, along walks of any of some links: from both ends, level by level.

After i levels from one end and j from the other, all walks of up to i + j links have been found. So the first walk that
is found is a shortest one. The next level is that of the cheaper end, by the edges of its nodes: from a node with a
million neighbours nothing is followed as long as the other end leads to few.
"""

from __future__ import annotations

import numpy as np

from wukongs.query.paths.path_kernels import begin_next, enter, follow_edges
from wukongs.query.paths.path_layout import (
    COST,
    DEPTH,
    DONE,
    EDGE_STEP,
    EDGES_LEFT,
    HEAD,
    LEVEL_END,
    MET,
    NEED_ROOM,
    NEED_SPANS,
    NOT_STARTED,
    ORIGIN,
    ORIGIN_GRAPH,
    ORIGIN_NODE,
    PAUSED,
    SIDE,
    TAIL,
    VISIT_NODE,
)
from wukongs.query.plans.plan_layout import ANY, CONSTANT, GRAPH_KIND, PREDICATE, PREDICATE_KIND, SPAN_HI, SPAN_LO
from wukongs.query.plans.span_kernels import collect_values
from wukongs.store.jit import njit_uncounted

LOOK_UP_COST = 8
"""The cost of a look-up, in edges."""
COUNTED_MAX = 8
"""The edges of a level with at most so many nodes are counted before they are followed."""


@njit_uncounted
def level_cost(source, machine, origins, visited, spans, place, control):
    """Return what it costs to follow the edges of the next level, -1 if the spans have no room."""
    graph_asked = origins.rows[place[ORIGIN], ORIGIN_GRAPH]
    cost = LOOK_UP_COST * (place[TAIL] - place[HEAD])
    for entry in range(place[HEAD], place[TAIL]):
        for e in range(machine.edges.shape[0]):
            step = source.steps[machine.edges[e, EDGE_STEP]]
            m = collect_values(
                step,
                source.parts,
                source.part_rows,
                source.descriptors,
                source.default_graph,
                visited.pairs[entry, VISIT_NODE],
                step[PREDICATE] if step[PREDICATE_KIND] == CONSTANT else np.int64(-1),
                np.int64(-1) if step[GRAPH_KIND] == ANY else graph_asked,
                spans,
            )
            if m < 0:
                return -1
            control[EDGES_LEFT] -= 1
            for i in range(m):
                cost += spans[i, SPAN_HI] - spans[i, SPAN_LO]
    return cost


@njit_uncounted
def choose_side(source, machines, origins, visited, spans, places, control):
    """Return the side whose next level is cheaper to follow, -1 if the spans have no room."""
    small = 0 if places[0, TAIL] - places[0, HEAD] <= places[1, TAIL] - places[1, HEAD] else 1
    for side in (small, 1 - small):
        count = places[side, TAIL] - places[side, HEAD]
        if count > COUNTED_MAX:
            return small  # so many look-ups cost as much as some edges more
        if places[side, COST] == NOT_STARTED:
            cost = level_cost(source, machines[side], origins[side], visited[side], spans, places[side], control)
            if cost < 0:
                return -1
            places[side, COST] = cost
        if side == small and places[side, COST] <= LOOK_UP_COST * (places[1 - side, TAIL] - places[1 - side, HEAD]):
            return small
    return small if places[small, COST] <= places[1 - small, COST] else 1 - small


@njit_uncounted
def search_pairs(source, machines, origins, visited, found, nothing, spans, places, control):
    """Find the least number of links, at least one, that lead from the one end of each pair to the other.

    Parameters
    ----------
    source : Source                  The steps of both machines.
    machines, origins, visited : (of the first ends, of the last ends) Machine with one state, Origins, Visited.
    found : int64[n_pairs]           The number of links, 0 where there is no such walk; written.
    nothing : int64[1, 2]; spans : int64[n, SPAN_WIDTH], scratch.
    places : int64[2, PLACE_WIDTH]   Where the two searches stand; moved on.
    control : int64[CONTROL_WIDTH]   EDGES_LEFT, SIDE.

    Returns DONE; NEED_ROOM (a larger `visited` of SIDE, filled again); NEED_SPANS (larger `spans`); PAUSED. Call again
    with the same places to go on. Cost: with branching b and distance d about 2 b^(d/2) look-ups, not b^d."""
    steps_max = machines[0].steps_max
    while places[0, ORIGIN] < found.size:
        if places[0, HEAD] == NOT_STARTED:
            for side in range(2):
                place = places[side]
                enter(visited[side], origins[side].rows[place[ORIGIN], ORIGIN_NODE], np.int64(0), place)
                place[HEAD] = 0
                place[DEPTH] = 0
                place[COST] = NOT_STARTED
            control[SIDE] = NOT_STARTED
        status = DONE
        while status == DONE:
            if control[EDGES_LEFT] <= 0:
                return PAUSED
            if control[SIDE] == NOT_STARTED:
                if (
                    places[0, HEAD] == places[0, TAIL]
                    or places[1, HEAD] == places[1, TAIL]
                    or places[0, DEPTH] + places[1, DEPTH] == steps_max
                ):
                    break
                side = choose_side(source, machines, origins, visited, spans, places, control)
                if side < 0:
                    return NEED_SPANS
                control[SIDE] = side
                places[side, LEVEL_END] = places[side, TAIL]
            side = control[SIDE]
            place = places[side]
            if place[HEAD] < place[LEVEL_END]:
                status = follow_edges(
                    source,
                    machines[side],
                    origins[side],
                    visited[side],
                    visited[1 - side],
                    nothing,
                    spans,
                    place,
                    control,
                )
                place[HEAD] += status == DONE
            else:
                place[DEPTH] += 1
                place[COST] = NOT_STARTED
                control[SIDE] = NOT_STARTED
        if status in (NEED_ROOM, NEED_SPANS, PAUSED):
            return status
        found[places[0, ORIGIN]] = places[0, DEPTH] + places[1, DEPTH] + 1 if status == MET else 0
        for side in range(2):
            begin_next(visited[side], places[side])
    return DONE
