# mypy: disallow-untyped-defs=false
"""Kernels that go through a directory of many graphs without looking at graphs that cannot match.

The directory is sorted by (predicate, graph): the rows of a predicate lie together, and those of one graph are found by
jumping from predicate to predicate. A vertex's codes have the order of the directory. Hidden graphs have negative ids:
their rows are the first of a predicate's, and no named graph is one of them.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int64_array
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.layout import DIRECTORY_SIZE, GRAPHS, PREDICATES
from wukongs.store.lookup_kernels import (
    code_at,
    code_range,
    count_values,
    directory_row,
    is_unlisted,
    key_range,
    lower_bound,
    value_range,
)

NEAR_ROWS = 8
"""So many rows are looked at one by one before a jump."""


@njit_uncounted
def predicate_rows(descriptor, predicate):
    """Return the directory rows [first, last) of a predicate, of any graph."""
    n = descriptor[DIRECTORY_SIZE]
    predicates = int64_array(descriptor[PREDICATES], n)
    first = lower_bound(predicates, np.int64(0), n, predicate)
    return first, lower_bound(predicates, first, n, predicate + 1)


@njit_uncounted
def named_rows(descriptor, predicate):
    """Return the directory rows [first, last) of a predicate, of any graph but hidden ones."""
    first, last = predicate_rows(descriptor, predicate)
    graphs = int64_array(descriptor[GRAPHS], descriptor[DIRECTORY_SIZE])
    if first < last and graphs[first] < 0:
        first = lower_bound(graphs, first, last, 0)
    return first, last


@njit_uncounted
def row_of_graph(predicates, graphs, row, last, graph):
    """Return the first directory row in [row, last) of a graph, `last` if there is none.

    Cost: log2(directory) comparisons for each predicate that is passed, whatever the number of graphs.
    """
    near = row + NEAR_ROWS
    while row < last and graphs[row] != graph:
        if row < near:
            row += 1
            continue
        end = lower_bound(predicates, row, last, predicates[row] + 1)
        row = lower_bound(graphs, row, end, graph)
        if row < end and graphs[row] != graph:
            row = end
    return row


@njit_uncounted
def unnamed_row(predicates, graphs, row, last, default_graph):
    """Return the first directory row in [row, last) of the default graph or of a hidden graph, `last` if there is none.
    Cost: as row_of_graph."""
    near = row + NEAR_ROWS
    while row < last and graphs[row] != default_graph and graphs[row] >= 0:
        if row < near:
            row += 1
            continue
        end = lower_bound(predicates, row, last, predicates[row] + 1)
        row = lower_bound(graphs, row, end, default_graph)
        if row < end and graphs[row] != default_graph:
            row = end
    return row


@njit_uncounted
def code_position(descriptor, lo, hi, code):
    """Return the first position in [lo, hi) of a vertex's codes that is >= code."""
    while lo < hi:
        middle = (lo + hi) >> 1
        if code_at(descriptor, middle) < code:
            lo = middle + 1
        else:
            hi = middle
    return lo


@njit
def count_named_edges(descriptors, default_graph, predicate):
    """Return (triples, out keys, in keys) of a predicate in all named graphs, summed over batches.

    int64[3]. Cost: logarithmic in the directory of each batch: the rows of a predicate lie together.
    """
    totals = np.zeros(3, np.int64)
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        first, last = named_rows(descriptor, predicate)
        if first == last:
            continue
        excluded = directory_row(descriptor, predicate, default_graph)
        for direction in range(2):
            lo = key_range(descriptor, direction, first)[0]
            hi = key_range(descriptor, direction, last - 1)[1]
            without_lo, without_hi = key_range(descriptor, direction, excluded) if excluded >= 0 else (hi, hi)
            totals[1 + direction] += (hi - lo) - (without_hi - without_lo)
            if direction == 0:
                totals[0] += value_range(descriptor, 0, hi - 1)[1] - value_range(descriptor, 0, lo)[0]
                if excluded >= 0:
                    totals[0] -= value_range(descriptor, 0, without_hi - 1)[1]
                    totals[0] += value_range(descriptor, 0, without_lo)[0]
    return totals


@njit
def count_named_degree(descriptors, default_graph, predicate, direction, vertex, asked_max):
    """Return how many values a vertex has under a predicate in all named graphs, summed over batches.

    If a vertex has more rows than asked_max in a batch, so many are looked up, evenly spread, and stand for all (a
    float). Cost: asked_max look-ups in each batch at most.
    """
    total = 0.0
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        first, last = named_rows(descriptor, predicate)
        excluded = directory_row(descriptor, predicate, default_graph)
        unlisted = is_unlisted(descriptor, vertex)
        lo, hi = first, last
        if not unlisted:
            lo, hi = code_range(descriptor, vertex)
            lo = code_position(descriptor, lo, hi, 2 * first)
            hi = code_position(descriptor, lo, hi, 2 * last)
        asked = min(hi - lo, asked_max)
        found = 0
        for i in range(asked):
            at = lo + i * (hi - lo) // asked
            code = 2 * at + direction if unlisted else code_at(descriptor, at)
            if code & 1 != direction or code >> 1 == excluded:
                continue
            found += count_values(descriptor, direction, code >> 1, vertex)
        if asked > 0:
            total += found * ((hi - lo) / asked)
    return total


@njit_uncounted
def add_row_counts(descriptor, row, last, sign, totals):
    """Add (triples, out keys, in keys) of the directory rows [row, last), times sign, to int64[3]."""
    for direction in range(2):
        lo = key_range(descriptor, direction, row)[0]
        hi = key_range(descriptor, direction, last - 1)[1]
        totals[1 + direction] += sign * (hi - lo)
        if direction == 0 and hi > lo:
            totals[0] += sign * (value_range(descriptor, 0, hi - 1)[1] - value_range(descriptor, 0, lo)[0])


@njit
def count_graph(descriptors, graph, default_graph):
    """Return (triples, out keys, in keys) of a graph (-1: of all named ones), summed over batches.

    int64[3]. A key counts once for each of its predicates. Cost: log2(directory) for each predicate and batch.
    """
    totals = np.zeros(3, np.int64)
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        n = descriptor[DIRECTORY_SIZE]
        if n == 0:
            continue
        predicates = int64_array(descriptor[PREDICATES], n)
        graphs = int64_array(descriptor[GRAPHS], n)
        if graph == -1:
            add_row_counts(descriptor, np.int64(0), n, 1, totals)
            row = unnamed_row(predicates, graphs, np.int64(0), n, default_graph)
            while row < n:
                add_row_counts(descriptor, row, row + 1, -1, totals)
                row = unnamed_row(predicates, graphs, row + 1, n, default_graph)
            continue
        row = row_of_graph(predicates, graphs, np.int64(0), n, graph)
        while row < n:
            add_row_counts(descriptor, row, row + 1, 1, totals)
            row = row_of_graph(predicates, graphs, row + 1, n, graph)
    return totals


@njit
def count_vertex_edges(descriptors, graph, default_graph, direction, vertex, asked_max):
    """Return how many values a vertex has under all predicates of a graph (-1: of all named ones), summed over batches.

    If a vertex has more directory rows than asked_max in a batch, so many are looked up, evenly spread, and stand for
    all (a float). A vertex without codes is looked up in all rows. Cost: asked_max look-ups in each
    batch.
    """
    total = 0.0
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        graphs = int64_array(descriptor[GRAPHS], descriptor[DIRECTORY_SIZE])
        unlisted = is_unlisted(descriptor, vertex)
        lo, hi = np.int64(0), np.int64(descriptor[DIRECTORY_SIZE])
        if not unlisted:
            lo, hi = code_range(descriptor, vertex)
        asked = min(hi - lo, asked_max)
        found = 0
        for i in range(asked):
            at = lo + i * (hi - lo) // asked
            code = 2 * at + direction if unlisted else code_at(descriptor, at)
            held_in = graphs[code >> 1]
            is_asked = (held_in >= 0 and held_in != default_graph) if graph == -1 else held_in == graph
            if code & 1 != direction or not is_asked:
                continue
            found += count_values(descriptor, direction, code >> 1, vertex)
        if asked > 0:
            total += found * ((hi - lo) / asked)
    return total
