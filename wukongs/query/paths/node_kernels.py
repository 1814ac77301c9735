# mypy: disallow-untyped-defs=false
"""Kernels that list the nodes of a graph (the subjects and objects of its triples) and find the graphs of a node."""

from __future__ import annotations

import numpy as np

from wukongs.query.paths.path_layout import DONE, FULL, NEED_SPANS, ORIGIN, PAUSED, WRITTEN
from wukongs.query.plans.plan_layout import (
    DIRECTION,
    HIDING,
    SPAN_BATCH,
    SPAN_GRAPH,
    SPAN_HI,
    SPAN_HIDDEN,
    SPAN_LO,
    SPAN_ROW,
)
from wukongs.query.plans.span_kernels import collect_values, pass_hidden
from wukongs.store.addresses import int64_array
from wukongs.store.jit import njit_uncounted
from wukongs.store.layout import NOTHING_HIDDEN
from wukongs.store.lookup_kernels import keys_at, keys_count, value_range, values_at
from wukongs.store.tombstone_kernels import next_hidden, next_hiding_key


@njit_uncounted
def find_graphs(source, nodes, graphs, only_one, out, spans, place, control):
    """Find the graphs in which each node stands as the subject or object of a triple that is seen.

    Parameters
    ----------
    source : Source                  Its first two steps look at any predicate, one in each direction.
    nodes, graphs : int64[n]         A graph is -1 where it is to be found.
    only_one : bool                  One graph for each node is enough.
    out : int64[capacity, 2]         (number of the node, graph); written. A graph may come more than once.
    spans, place, control            As search_paths takes them; place[ORIGIN] is the next node.

    Returns DONE, FULL, NEED_SPANS or PAUSED, as search_paths. Cost: two look-ups for each node.
    """
    while place[ORIGIN] < nodes.size:
        if control[0] <= 0:
            return PAUSED
        at = place[ORIGIN]
        written = place[WRITTEN]
        for s in range(2):
            step = source.steps[s]
            m = collect_values(
                step,
                source.parts,
                source.part_rows,
                source.descriptors,
                source.default_graph,
                nodes[at],
                np.int64(-1),
                graphs[at],
                spans,
            )
            if m < 0:
                return NEED_SPANS
            control[0] -= m + 1
            for i in range(m):
                if spans[i, SPAN_HIDDEN] != NOTHING_HIDDEN:
                    pass_hidden(source.descriptors[spans[i, SPAN_BATCH]], step[DIRECTION], spans[i], nodes[at])
                if spans[i, SPAN_LO] == spans[i, SPAN_HI] or (only_one and written > place[WRITTEN]):
                    continue
                if written == out.shape[0]:
                    return FULL
                out[written, 0] = at
                out[written, 1] = spans[i, SPAN_GRAPH]
                written += 1
        place[WRITTEN] = written
        place[ORIGIN] = at + 1
    return DONE


@njit_uncounted
def has_visible_value(descriptor, direction, row, position, key):
    """Tell whether tombstones leave a value of the key at a position."""
    lo, hi = value_range(descriptor, direction, position)
    values = int64_array(values_at(descriptor, direction), hi)
    for v in range(lo, hi):  # noqa: SIM110 (numba has no generators with any)
        if next_hidden(descriptor, direction, row, key, values[v]) != values[v]:
            return True
    return False


@njit_uncounted
def fill_keys(step, descriptors, span, out, written):
    """Write (graph, key) for each key of a span of keys that has a triple which is seen; return the new count.

    out : int64[at least as many more as the span has, 2].
    """
    direction = step[DIRECTION]
    descriptor = descriptors[span[SPAN_BATCH]]
    keys = int64_array(keys_at(descriptor, direction), keys_count(descriptor, direction))
    hiding = np.int64(NOTHING_HIDDEN) if step[HIDING] == 0 else np.int64(-1)
    for k in range(span[SPAN_LO], span[SPAN_HI]):
        key = keys[k]
        if hiding < key:
            hiding = next_hiding_key(descriptor, direction, span[SPAN_ROW], key)
        if hiding == key and not has_visible_value(descriptor, direction, span[SPAN_ROW], k, key):
            continue
        out[written, 0] = span[SPAN_GRAPH]
        out[written, 1] = key
        written += 1
    return written
