# mypy: disallow-untyped-defs=false
"""The kernel that finds the nodes of a directed graph that lie on a circle, by one walk over all edges.

Two nodes are on a circle together if each leads to the other: they are in one strongly connected component (R. Tarjan,
Depth-first search and linear graph algorithms, 1972). The walk has a stack of its own and may stop after any edge."""

from __future__ import annotations

import numpy as np

from wukongs.query.paths.path_layout import DONE, EDGES_LEFT, PAUSED
from wukongs.store.jit import njit_uncounted

ROOT = 0
"""Nodes before it have been visited."""
OPEN = 1
"""Nodes on the way from the root to where the walk stands."""
WAITING = 2
"""Visited nodes whose component is not known yet."""
COUNT = 3
WALK_WIDTH = 4

CLOSED = np.iinfo(np.int64).max
"""In the place of a node's number once its component is known: nothing is lower because of it any more."""


@njit_uncounted
def mark_circles(starts, targets, next_edges, numbers, lowest, way, waiting, on_circle, walk, control):
    """Mark the nodes from which a walk of at least one edge leads back to them.

    Parameters
    ----------
    starts : int64[n + 1]; targets : int64[n_edges]   Node i has edges to targets[starts[i]:starts[i + 1]].
    next_edges : int64[n]       The next edge to follow; at first starts[:-1].
    numbers, lowest : int64[n]  In the order of the visits, from 1; 0 at first. lowest: the first waiting node known to
                                be reached.
    way, waiting : int64[n]     Stacks.
    on_circle : bool[n]         Written.
    walk : int64[WALK_WIDTH]    Where the walk stands; 0 at first.
    control : int64[at least 1] EDGES_LEFT.

    Returns DONE, or PAUSED: call again to go on. Cost: each node and edge once."""
    while True:
        if control[EDGES_LEFT] <= 0:
            return PAUSED
        control[EDGES_LEFT] -= 1
        opened = np.int64(-1)
        if walk[OPEN] == 0:
            if walk[ROOT] == numbers.size:
                return DONE
            if numbers[walk[ROOT]] == 0:
                opened = walk[ROOT]
            walk[ROOT] += 1
        else:
            node = way[walk[OPEN] - 1]
            if next_edges[node] < starts[node + 1]:
                target = targets[next_edges[node]]
                next_edges[node] += 1
                if target == node:
                    on_circle[node] = True
                elif numbers[target] == 0:
                    opened = target
                elif numbers[target] < lowest[node]:
                    lowest[node] = numbers[target]
            else:
                walk[OPEN] -= 1
                if walk[OPEN] > 0:
                    before = way[walk[OPEN] - 1]
                    lowest[before] = min(lowest[before], lowest[node])
                if lowest[node] == numbers[node]:
                    is_alone = waiting[walk[WAITING] - 1] == node
                    last = np.int64(-1)
                    while last != node:
                        walk[WAITING] -= 1
                        last = waiting[walk[WAITING]]
                        numbers[last] = CLOSED
                        on_circle[last] = on_circle[last] or not is_alone
        if opened >= 0:
            walk[COUNT] += 1
            numbers[opened] = walk[COUNT]
            lowest[opened] = walk[COUNT]
            way[walk[OPEN]] = opened
            waiting[walk[WAITING]] = opened
            walk[OPEN] += 1
            walk[WAITING] += 1
