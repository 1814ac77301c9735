# mypy: disallow-untyped-defs=false
"""Kernels of the search along a path: breadth first over pairs of node and automaton state, each visited once.

The pairs that an origin has led to are one list, in the order of discovery, with an open-addressing table over it.
Pairs before HEAD are finished; pairs from there on are the frontier. An origin is finished before the next one begins,
so memory is bounded by the largest single search. A search may stop anywhere (no room, output full, a pause), also
within the triples of one pair, and goes on there.
"""

from __future__ import annotations

import numpy as np

from wukongs.query.paths.path_layout import (
    ALL_NODES,
    AT_EDGE,
    AT_SPAN,
    AT_TRIPLE,
    DEPTH,
    DONE,
    EDGE_EXCLUDED_FROM,
    EDGE_EXCLUDED_TO,
    EDGE_STATE,
    EDGE_STEP,
    EDGES_LEFT,
    ENDS,
    FOUND,
    FULL,
    HEAD,
    IS_RESULT,
    LEVEL_END,
    MET,
    NEED_ROOM,
    NEED_SPANS,
    NOT_STARTED,
    ORIGIN,
    ORIGIN_GRAPH,
    ORIGIN_NODE,
    ORIGIN_TARGETS_FROM,
    ORIGIN_TARGETS_TO,
    PAUSED,
    TAIL,
    VISIT_NODE,
    VISIT_SLOT,
    VISIT_STATE,
    WRITTEN,
)
from wukongs.query.plans.plan_layout import (
    ANY,
    CONSTANT,
    DIRECTION,
    GRAPH_KIND,
    PREDICATE,
    PREDICATE_KIND,
    SPAN_BATCH,
    SPAN_HI,
    SPAN_HIDDEN,
    SPAN_LO,
    SPAN_PREDICATE,
)
from wukongs.query.plans.span_kernels import collect_values, pass_hidden
from wukongs.store.addresses import int64_array
from wukongs.store.jit import njit_uncounted
from wukongs.store.layout import NOTHING_HIDDEN
from wukongs.store.lookup_kernels import lower_bound, values_at


@njit_uncounted
def slot_of(visited, node, state):
    """Return the slot that holds a pair, or the empty one where it belongs."""
    mask = visited.slots.size - 1
    mixed = node ^ (node >> 31) ^ (state << 7)
    slot = (mixed ^ (mixed >> 13) ^ (mixed >> 1)) & mask
    while visited.slots[slot] >= 0:
        entry = visited.slots[slot]
        if visited.pairs[entry, VISIT_NODE] == node and visited.pairs[entry, VISIT_STATE] == state:
            break
        slot = (slot + 1) & mask
    return slot


@njit_uncounted
def fill_slots_again(visited, start, stop):
    """Enter the pairs from start to stop into a larger table, which has those before them."""
    for entry in range(start, stop):
        slot = slot_of(visited, visited.pairs[entry, VISIT_NODE], visited.pairs[entry, VISIT_STATE])
        visited.slots[slot] = entry
        visited.pairs[entry, VISIT_SLOT] = slot


@njit_uncounted
def enter(visited, node, state, place):
    """Visit a pair; return whether it is new. There must be room."""
    slot = slot_of(visited, node, state)
    if visited.slots[slot] >= 0:
        return False
    entry = place[TAIL]
    visited.slots[slot] = entry
    visited.pairs[entry, VISIT_NODE] = node
    visited.pairs[entry, VISIT_STATE] = state
    visited.pairs[entry, VISIT_SLOT] = slot
    place[TAIL] = entry + 1
    return True


@njit_uncounted
def report(origins, node, out, place):
    """Write a node that an origin leads to, if it is one that is looked for. The output must have room."""
    first = origins.rows[place[ORIGIN], ORIGIN_TARGETS_FROM]
    if first != ALL_NODES:
        last = origins.rows[place[ORIGIN], ORIGIN_TARGETS_TO]
        at = lower_bound(origins.targets, first, last, node)
        if at == last or origins.targets[at] != node:
            return
    out[place[WRITTEN], 0] = place[ORIGIN]
    out[place[WRITTEN], 1] = node
    if out.shape[1] > 2:
        out[place[WRITTEN], 2] = place[DEPTH] + 1
    place[WRITTEN] += 1
    place[FOUND] += 1


@njit_uncounted
def visit(node, state, machine, origins, visited, others, out, place):
    """Visit a node in a state and report it where the path may end. Returns DONE, NEED_ROOM, FULL or MET."""
    room = place[TAIL] + 2
    if room > visited.pairs.shape[0] or 2 * room > visited.slots.size:
        return NEED_ROOM
    if place[WRITTEN] == out.shape[0]:
        return FULL
    if others.slots.size > 0 and others.slots[slot_of(others, node, state)] >= 0:
        return MET
    if not enter(visited, node, state, place):
        return DONE
    outcome = machine.outcomes[state]
    if outcome == IS_RESULT or (outcome == ENDS and enter(visited, node, machine.outcomes.size - 1, place)):
        report(origins, node, out, place)
    return DONE


@njit_uncounted
def is_excluded(machine, edge, predicate):
    """Tell whether an edge's link must not have a predicate."""
    last = edge[EDGE_EXCLUDED_TO]
    at = lower_bound(machine.excluded, edge[EDGE_EXCLUDED_FROM], last, predicate)
    return at < last and machine.excluded[at] == predicate


@njit_uncounted
def follow_edges(source, machine, origins, visited, others, out, spans, place, control):
    """Visit the pairs to which the pair at HEAD has edges. Returns DONE, NEED_ROOM, NEED_SPANS, FULL, PAUSED or MET."""
    node, state = visited.pairs[place[HEAD], VISIT_NODE], visited.pairs[place[HEAD], VISIT_STATE]
    for e in range(machine.edge_starts[state] + place[AT_EDGE], machine.edge_starts[state + 1]):
        edge = machine.edges[e]
        step = source.steps[edge[EDGE_STEP]]
        predicate = step[PREDICATE] if step[PREDICATE_KIND] == CONSTANT else np.int64(-1)
        graph = np.int64(-1) if step[GRAPH_KIND] == ANY else origins.rows[place[ORIGIN], ORIGIN_GRAPH]
        m = collect_values(
            step,
            source.parts,
            source.part_rows,
            source.descriptors,
            source.default_graph,
            node,
            predicate,
            graph,
            spans,
        )
        if m < 0:
            return NEED_SPANS
        first = 0
        if place[AT_TRIPLE] != NOT_STARTED:
            first = place[AT_SPAN]
            spans[first, SPAN_LO] = place[AT_TRIPLE]
        control[EDGES_LEFT] -= 1
        for i in range(first, m):
            if predicate < 0 and is_excluded(machine, edge, spans[i, SPAN_PREDICATE]):
                continue
            descriptor = source.descriptors[spans[i, SPAN_BATCH]]
            values = int64_array(values_at(descriptor, step[DIRECTION]), spans[i, SPAN_HI])
            while True:
                if spans[i, SPAN_HIDDEN] != NOTHING_HIDDEN:
                    pass_hidden(descriptor, step[DIRECTION], spans[i], node)
                if spans[i, SPAN_LO] >= spans[i, SPAN_HI]:
                    break
                value = values[spans[i, SPAN_LO]]
                status = visit(value, edge[EDGE_STATE], machine, origins, visited, others, out, place)
                if status == DONE:
                    spans[i, SPAN_LO] += 1
                    control[EDGES_LEFT] -= 1
                    if control[EDGES_LEFT] <= 0:
                        status = PAUSED
                if status != DONE:
                    place[AT_SPAN] = i
                    place[AT_TRIPLE] = spans[i, SPAN_LO]
                    return status
        place[AT_EDGE] += 1
        place[AT_TRIPLE] = NOT_STARTED
    place[AT_EDGE] = 0
    return DONE


@njit_uncounted
def begin_next(visited, place):
    """Forget what an origin has led to, for the next one."""
    for entry in range(place[TAIL]):
        visited.slots[visited.pairs[entry, VISIT_SLOT]] = -1
    place[TAIL] = 0
    place[HEAD] = NOT_STARTED
    place[AT_EDGE] = 0
    place[AT_TRIPLE] = NOT_STARTED
    place[ORIGIN] += 1


@njit_uncounted
def search_paths(source, machine, origins, visited, others, out, spans, place, control):
    """Search from one origin after the other and write each (origin number, node) that it leads to, once; and with it
    the least number of links that lead there, if `out` has a column for it.

    Parameters
    ----------
    source : Source; machine : Machine; origins : Origins; visited : Visited (path_layout.py).
    others : Visited                 The pairs of a search from the other end; without slots if there is none.
    out : int64[out_capacity, 2 or 3]
    spans : int64[n, SPAN_WIDTH]     Scratch.
    place : int64[PLACE_WIDTH]       Where the search stands; moved on.
    control : int64[at least 1]      EDGES_LEFT.

    Returns DONE; FULL (empty `out`, set WRITTEN to 0); NEED_ROOM (a larger `visited`, filled again); NEED_SPANS (larger
    `spans`); PAUSED; MET (a pair of the other search was found). Call again with the same place to go on.
    Cost: the look-ups of each visited pair's edges and the triples that they find, whatever the graph's size."""
    while place[ORIGIN] < origins.rows.shape[0]:
        if place[HEAD] == NOT_STARTED:
            place[FOUND] = 0
            place[DEPTH] = -1
            node = origins.rows[place[ORIGIN], ORIGIN_NODE]
            status = visit(node, np.int64(0), machine, origins, visited, others, out, place)
            if status in (NEED_ROOM, FULL):
                return status
            place[HEAD] = 0
            place[DEPTH] = 0
            place[LEVEL_END] = place[TAIL]
            if status == MET:
                return status
        first, last = origins.rows[place[ORIGIN], ORIGIN_TARGETS_FROM], origins.rows[place[ORIGIN], ORIGIN_TARGETS_TO]
        while place[HEAD] < place[TAIL] and (first == ALL_NODES or place[FOUND] < last - first):
            if control[EDGES_LEFT] <= 0:
                return PAUSED
            if place[HEAD] == place[LEVEL_END]:
                place[DEPTH] += 1
                place[LEVEL_END] = place[TAIL]
            if place[DEPTH] == machine.steps_max:
                break
            status = follow_edges(source, machine, origins, visited, others, out, spans, place, control)
            if status != DONE:
                return status
            place[HEAD] += 1
        begin_next(visited, place)
    return DONE
