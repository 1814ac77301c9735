# mypy: disallow-untyped-defs=false
"""Kernels of a forest of walks: a tree for each origin, of the pairs of node and automaton state that it leads to.

A pair that an origin leads to is an *entry*, with the entry before it on one walk as its parent. So an entry stands for
as long as all links up to its root do, and when a link goes, those entries may go that have it on the way to their
root, and no others.

An entry is found by origin, node and state (chains by `by_key`), and with all others of its node and state (lists by
`by_place`). Entries that have gone are a list of free ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wukongs.query.paths.path_kernels import is_excluded
from wukongs.query.paths.path_layout import DONE, EDGE_STATE, EDGE_STEP, MET, NEED_ROOM, NEED_SPANS, PAUSED
from wukongs.query.plans.plan_layout import (
    CONSTANT,
    DIRECTION,
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
from wukongs.store.dtypes import Int32Array, Int64Array
from wukongs.store.jit import njit_uncounted
from wukongs.store.layout import NOTHING_HIDDEN
from wukongs.store.lookup_kernels import values_at

# An entry: int32[ENTRY_WIDTH].
ORIGIN = 0
"""The number of the origin."""
STATE = 1
PARENT = 2
"""The entry before it on its walk; IS_ROOT, IS_FREE."""
MARK = 3
"""1: it may go."""
CHAIN = 4
"""The next entry of the same slot of by_key; of a free one the next free one."""
NEXT = 5
PREVIOUS = 6
"""Its neighbours in the same slot of by_place."""
ENTRY_WIDTH = 7
IS_ROOT = -1
IS_FREE = -2
NOTHING = -1

# The control: int64[FOREST_CONTROL_WIDTH].
USED = 0
"""Entries so far, free ones included."""
FIRST_FREE = 1
COUNT = 2
"""Entries that are not free."""
HEAD = 3
"""The place in the queue at which to go on,"""
TAIL = 4
"""and its end."""
AT = 5
"""The row of the input at which to go on."""
TRIPLES_LEFT = 6
"""How many triples the kernel may still look at before it comes up for air."""
FOREST_CONTROL_WIDTH = 7

# What following the links of an entry does with those that it leads to.
MARKS = 0
"""Marks and queues those whose parent it is."""
ADOPTS = 1
"""Becomes the parent of those that are marked, which are queued, and no longer marked."""
ADDS = 2
"""Adds and queues those that are missing."""
IS_ADOPTED = 3
"""Walks back, and gets the first entry that is not marked for its parent."""


class Trees(NamedTuple):
    """nodes : int64[capacity]; entries : int32[capacity, ENTRY_WIDTH]; by_key, by_place : int32[power of two], the
    first entry of each chain and list, NOTHING where there is none; queue : int32[capacity]; control :
    int64[FOREST_CONTROL_WIDTH]."""

    nodes: Int64Array
    entries: Int32Array
    by_key: Int32Array
    by_place: Int32Array
    queue: Int32Array
    control: Int64Array


@njit_uncounted
def place_of(trees, node, state):
    """Return the slot of by_place for a node and a state."""
    mixed = node ^ (node >> 31) ^ (np.int64(state) << 7)
    return (mixed ^ (mixed >> 13) ^ (mixed >> 1)) & (trees.by_place.size - 1)


@njit_uncounted
def key_of(trees, origin, node, state):
    """Return the slot of by_key for an entry."""
    mixed = node ^ (node >> 31) ^ (np.int64(state) << 7) ^ (np.int64(origin) * np.int64(40503))
    return (mixed ^ (mixed >> 15) ^ (mixed >> 1)) & (trees.by_key.size - 1)


@njit_uncounted
def find(trees, origin, node, state):
    """Return the entry of an origin, a node and a state, NOTHING if there is none."""
    entry = trees.by_key[key_of(trees, origin, node, state)]
    while entry != NOTHING:
        row = trees.entries[entry]
        if trees.nodes[entry] == node and row[ORIGIN] == origin and row[STATE] == state:
            break
        entry = row[CHAIN]
    return np.int64(entry)


@njit_uncounted
def file_entry(trees, entry):
    """Put an entry into its chain and its list."""
    row, node = trees.entries[entry], trees.nodes[entry]
    slot = key_of(trees, row[ORIGIN], node, row[STATE])
    row[CHAIN] = trees.by_key[slot]
    trees.by_key[slot] = entry
    slot = place_of(trees, node, row[STATE])
    row[NEXT], row[PREVIOUS] = trees.by_place[slot], NOTHING
    if row[NEXT] != NOTHING:
        trees.entries[row[NEXT], PREVIOUS] = entry
    trees.by_place[slot] = entry


@njit_uncounted
def file_again(trees):
    """File all entries in larger tables, which are empty."""
    for entry in range(trees.control[USED]):
        if trees.entries[entry, PARENT] != IS_FREE:
            file_entry(trees, entry)


@njit_uncounted
def has_room(trees):
    """Tell whether one more entry fits."""
    return trees.control[FIRST_FREE] != NOTHING or trees.control[USED] < trees.nodes.size


@njit_uncounted
def add(trees, origin, node, state, parent):
    """Add an entry that is missing, and queue it. There must be room."""
    control = trees.control
    entry = control[FIRST_FREE]
    if entry != NOTHING:
        control[FIRST_FREE] = trees.entries[entry, CHAIN]
    else:
        entry = control[USED]
        control[USED] += 1
    trees.nodes[entry] = node
    row = trees.entries[entry]
    row[ORIGIN], row[STATE], row[PARENT], row[MARK] = origin, state, parent, 0
    file_entry(trees, entry)
    control[COUNT] += 1
    trees.queue[control[TAIL]] = entry
    control[TAIL] += 1


@njit_uncounted
def take_out(trees, entry):
    """Free an entry."""
    row, control = trees.entries[entry], trees.control
    slot = key_of(trees, row[ORIGIN], trees.nodes[entry], row[STATE])
    before = trees.by_key[slot]
    if before == entry:
        trees.by_key[slot] = row[CHAIN]
    else:
        while trees.entries[before, CHAIN] != entry:
            before = trees.entries[before, CHAIN]
        trees.entries[before, CHAIN] = row[CHAIN]
    if row[NEXT] != NOTHING:
        trees.entries[row[NEXT], PREVIOUS] = row[PREVIOUS]
    if row[PREVIOUS] != NOTHING:
        trees.entries[row[PREVIOUS], NEXT] = row[NEXT]
    else:
        trees.by_place[place_of(trees, trees.nodes[entry], row[STATE])] = row[NEXT]
    row[PARENT], row[MARK], row[CHAIN] = IS_FREE, 0, control[FIRST_FREE]
    control[FIRST_FREE] = entry
    control[COUNT] -= 1


@njit_uncounted
def meet(trees, entry, node, state, queue, what):
    """Do what following a link of an entry does with where it leads to. Returns DONE, NEED_ROOM or MET."""
    found = find(trees, trees.entries[entry, ORIGIN], node, state)
    if what == ADDS:
        if found == NOTHING:
            if not has_room(trees):
                return NEED_ROOM
            add(trees, trees.entries[entry, ORIGIN], node, state, entry)
        return DONE
    if found == NOTHING:
        return DONE
    row = trees.entries[found]
    if what == IS_ADOPTED:
        if row[MARK] == 1:
            return DONE
        trees.entries[entry, PARENT], trees.entries[entry, MARK] = found, 0
        return MET
    if what == MARKS:
        if row[MARK] == 1 or row[PARENT] != entry:
            return DONE
        row[MARK] = 1
    else:
        if row[MARK] == 0:
            return DONE
        row[PARENT], row[MARK] = entry, 0
    queue[trees.control[TAIL]] = found
    trees.control[TAIL] += 1
    return DONE


@njit_uncounted
def follow(source, machine, trees, entry, queue, spans, what):
    """Follow all links of an entry. Returns DONE, MET, NEED_ROOM or NEED_SPANS; after the last two it is to be followed
    again from the start, which does no harm."""
    node, state = trees.nodes[entry], trees.entries[entry, STATE]
    for e in range(machine.edge_starts[state], machine.edge_starts[state + 1]):
        edge = machine.edges[e]
        step = source.steps[edge[EDGE_STEP]]
        predicate = step[PREDICATE] if step[PREDICATE_KIND] == CONSTANT else np.int64(-1)
        m = collect_values(
            step,
            source.parts,
            source.part_rows,
            source.descriptors,
            source.default_graph,
            node,
            predicate,
            np.int64(-1),
            spans,
        )
        if m < 0:
            return NEED_SPANS
        trees.control[TRIPLES_LEFT] -= 1
        for i in range(m):
            if predicate < 0 and is_excluded(machine, edge, spans[i, SPAN_PREDICATE]):
                continue
            descriptor = source.descriptors[spans[i, SPAN_BATCH]]
            values = int64_array(values_at(descriptor, step[DIRECTION]), spans[i, SPAN_HI])
            while True:
                if spans[i, SPAN_HIDDEN] != NOTHING_HIDDEN:
                    pass_hidden(descriptor, step[DIRECTION], spans[i], node)
                if spans[i, SPAN_LO] >= spans[i, SPAN_HI]:
                    break
                status = meet(trees, entry, values[spans[i, SPAN_LO]], edge[EDGE_STATE], queue, what)
                if status != DONE:
                    return status
                spans[i, SPAN_LO] += 1
                trees.control[TRIPLES_LEFT] -= 1
    return DONE


@njit_uncounted
def follow_queue(source, machine, trees, queue, spans, what):
    """Follow the links of all entries from HEAD on, and of those that are queued meanwhile.

    Parameters
    ----------
    source : PathSource; machine : Machine   The links, along the path.
    trees : Trees
    queue : int32[n]                  Entries; HEAD and TAIL are its own. For ADDS that of the trees.
    spans : int64[n, SPAN_WIDTH]      Scratch.
    what : int                        MARKS, ADOPTS or ADDS.

    Returns DONE; NEED_ROOM (larger trees, filed again); NEED_SPANS (larger spans); PAUSED. Call again to go on.
    Cost: that of the links of the queued entries."""
    control = trees.control
    while control[HEAD] < control[TAIL]:
        if control[TRIPLES_LEFT] <= 0:
            return PAUSED
        status = follow(source, machine, trees, np.int64(queue[control[HEAD]]), queue, spans, what)
        if status != DONE:
            return status
        control[HEAD] += 1
    return DONE


@njit_uncounted
def adopt(source, machine, trees, restored, spans):
    """Look back from each marked entry of the queue for one that stands, and make that its parent; write those for
    which there is one into `restored`, up to TAIL. machine: the links, back along the path.

    Returns DONE, NEED_SPANS or PAUSED, as follow_queue. AT: the entry of the queue to go on with, HEAD: their end."""
    control = trees.control
    while control[AT] < control[HEAD]:
        if control[TRIPLES_LEFT] <= 0:
            return PAUSED
        entry = np.int64(trees.queue[control[AT]])
        status = follow(source, machine, trees, entry, restored, spans, np.int64(IS_ADOPTED))
        if status == NEED_SPANS:
            return status
        if status == MET:
            restored[control[TAIL]] = entry
            control[TAIL] += 1
        control[AT] += 1
    return DONE


@njit_uncounted
def fits(source, machine, edge, predicate):
    """Tell whether an edge's link has a predicate."""
    step = source.steps[edge[EDGE_STEP]]
    if step[PREDICATE_KIND] == CONSTANT:
        return step[PREDICATE] == predicate
    return not is_excluded(machine, edge, predicate)


@njit_uncounted
def mark_behind(source, machine, trees, subjects, predicates, objects):
    """Mark and queue the entries that have come to their parents by triples that may have gone.

    subjects, predicates, objects : int64[n]. Returns DONE or PAUSED; AT: the triple to go on with. Cost: a look at each
    entry of the nodes that the triples lead to."""
    control = trees.control
    while control[AT] < subjects.size:
        if control[TRIPLES_LEFT] <= 0:
            return PAUSED
        at = control[AT]
        for state in range(machine.edge_starts.size - 1):
            for e in range(machine.edge_starts[state], machine.edge_starts[state + 1]):
                edge = machine.edges[e]
                if not fits(source, machine, edge, predicates[at]):
                    continue
                is_out = source.steps[edge[EDGE_STEP], DIRECTION] == 0
                start = subjects[at] if is_out else objects[at]
                end = objects[at] if is_out else subjects[at]
                entry = trees.by_place[place_of(trees, end, edge[EDGE_STATE])]
                while entry != NOTHING:
                    row = trees.entries[entry]
                    parent = row[PARENT]
                    if (
                        trees.nodes[entry] == end
                        and row[STATE] == edge[EDGE_STATE]
                        and parent >= 0
                        and row[MARK] == 0
                        and trees.nodes[parent] == start
                        and trees.entries[parent, STATE] == state
                    ):
                        row[MARK] = 1
                        trees.queue[control[TAIL]] = entry
                        control[TAIL] += 1
                    control[TRIPLES_LEFT] -= 1
                    entry = row[NEXT]
        control[AT] += 1
    return DONE


@njit_uncounted
def take_out_marked(trees):
    """Free the entries of the queue that are still marked. Returns how many these are."""
    count = 0
    for at in range(trees.control[HEAD]):
        entry = trees.queue[at]
        if trees.entries[entry, MARK] == 1:
            take_out(trees, entry)
            count += 1
    return count


@njit_uncounted
def add_behind(source, machine, trees, subjects, predicates, objects):
    """Add and queue the entries to which triples that have come lead.

    subjects, predicates, objects : int64[n], all of them in the source. Returns DONE, PAUSED, or NEED_ROOM (larger
    trees, filed again); AT: the triple to go on with. Cost: a look-up for each entry of the nodes that they begin
    at."""
    control = trees.control
    while control[AT] < subjects.size:
        if control[TRIPLES_LEFT] <= 0:
            return PAUSED
        at = control[AT]
        for state in range(machine.edge_starts.size - 1):
            for e in range(machine.edge_starts[state], machine.edge_starts[state + 1]):
                edge = machine.edges[e]
                if not fits(source, machine, edge, predicates[at]):
                    continue
                is_out = source.steps[edge[EDGE_STEP], DIRECTION] == 0
                start = subjects[at] if is_out else objects[at]
                end = objects[at] if is_out else subjects[at]
                entry = np.int64(trees.by_place[place_of(trees, start, np.int64(state))])
                while entry != NOTHING:
                    row = trees.entries[entry]
                    is_there = trees.nodes[entry] == start and row[STATE] == state
                    if is_there and find(trees, row[ORIGIN], end, edge[EDGE_STATE]) == NOTHING:
                        if not has_room(trees):
                            return NEED_ROOM
                        add(trees, row[ORIGIN], end, edge[EDGE_STATE], entry)
                    control[TRIPLES_LEFT] -= 1
                    entry = np.int64(row[NEXT])
        control[AT] += 1
    return DONE


@njit_uncounted
def add_roots(trees, origins, numbers):
    """Add and queue the root of each origin from AT on. origins : int64[n] nodes; numbers : int64[n]. Returns DONE or
    NEED_ROOM."""
    control = trees.control
    while control[AT] < origins.size:
        if not has_room(trees):
            return NEED_ROOM
        add(trees, numbers[control[AT]], origins[control[AT]], np.int64(0), np.int64(IS_ROOT))
        control[AT] += 1
    return DONE


@njit_uncounted
def take_out_trees(trees, leaves):
    """Free all entries of some origins. leaves : bool[n_origins]."""
    for entry in range(trees.control[USED]):
        row = trees.entries[entry]
        if row[PARENT] != IS_FREE and leaves[row[ORIGIN]]:
            take_out(trees, entry)


@njit_uncounted
def write_ends(trees, accepting, wanted, origins, with_own, starts, ends):
    """Write (origin, node) for each entry at which a walk of the path may end.

    accepting : bool[n_states]; wanted : bool[n_origins], of whom they are asked for; origins : int64[n_origins] nodes;
    with_own: also those that lead from a node to itself; starts, ends : int64[COUNT at least], written. Returns how
    many these are: as often as there are accepting states."""
    m = 0
    for entry in range(trees.control[USED]):
        row = trees.entries[entry]
        if row[PARENT] == IS_FREE or not accepting[row[STATE]] or not wanted[row[ORIGIN]]:
            continue
        origin = origins[row[ORIGIN]]
        if with_own or origin != trees.nodes[entry]:
            starts[m], ends[m] = origin, trees.nodes[entry]
            m += 1
    return m


@njit_uncounted
def count_ends(trees, accepting, numbers, nodes, counts):
    """Write the number of states in which a walk from an origin may end at a node. accepting : bool[n_states];
    numbers : int64[n], of the origins; nodes : int64[n]; counts : int64[n], written, 0 before."""
    for at in range(numbers.size):
        for state in range(accepting.size):
            if accepting[state] and find(trees, numbers[at], nodes[at], np.int64(state)) != NOTHING:
                counts[at] += 1
