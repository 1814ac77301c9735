# mypy: disallow-untyped-defs=false
"""Kernels that find where the matches of one plan step lie: spans of values, or of keys, over the step's parts."""

from __future__ import annotations

import numpy as np

from store.addresses import int64_array
from store.dtypes import WINDOW_GRAPH
from store.jit import njit_uncounted
from store.layout import DIRECTORY_SIZE, GRAPHS, PREDICATES
from store.lookup_kernels import (
    code_at,
    code_range,
    directory_row,
    find_key,
    key_range,
    lower_bound,
    value_range,
    values_at,
)
from wukongs.plan_layout import (
    ABSENT,
    ALL_NAMED,
    ANY,
    DIRECTION,
    FROM_DIRECTORY,
    GRAPH_KIND,
    PART_BATCH,
    PART_GRAPH,
    PART_NAME,
    PARTS_FROM,
    PARTS_TO,
    SEARCH,
    SPAN_BATCH,
    SPAN_GRAPH,
    SPAN_HI,
    SPAN_LO,
    SPAN_PREDICATE,
    SPAN_WIDTH,
    UNION,
)


@njit_uncounted
def reported_graph(step, part, graph_in_directory, default_graph, wanted_graph):
    """Return the graph id that a match in this directory row reports, -1 if the step does not look there."""
    if part[PART_GRAPH] == ALL_NAMED:
        if graph_in_directory in (default_graph, WINDOW_GRAPH):
            return np.int64(-1)
    elif part[PART_GRAPH] != graph_in_directory:
        return np.int64(-1)
    if step[GRAPH_KIND] == ANY:
        return np.int64(0)
    graph = graph_in_directory if part[PART_NAME] == FROM_DIRECTORY else part[PART_NAME]
    if wanted_graph >= 0 and graph != wanted_graph:
        return np.int64(-1)
    return graph


@njit_uncounted
def add_span(spans, m, graph, predicate, batch, lo, hi):
    """Append a span where there is room; return the new count."""
    if m < spans.shape[0]:
        spans[m, SPAN_GRAPH] = graph
        spans[m, SPAN_PREDICATE] = predicate
        spans[m, SPAN_BATCH] = batch
        spans[m, SPAN_LO] = lo
        spans[m, SPAN_HI] = hi
    return m + 1


@njit_uncounted
def sort_spans(spans, m):
    """Insertion sort by (graph, predicate), so that the spans of one run lie together."""
    for i in range(1, m):
        j = i - 1
        while j >= 0 and (
            spans[j, SPAN_GRAPH] > spans[j + 1, SPAN_GRAPH]
            or (
                spans[j, SPAN_GRAPH] == spans[j + 1, SPAN_GRAPH]
                and spans[j, SPAN_PREDICATE] > spans[j + 1, SPAN_PREDICATE]
            )
        ):
            for c in range(SPAN_WIDTH):
                spans[j, c], spans[j + 1, c] = spans[j + 1, c], spans[j, c]
            j -= 1


@njit_uncounted
def run_end(spans, run, m):
    """Return where the run of spans with one graph and one predicate ends that begins at `run`."""
    end = run + 1
    while (
        end < m
        and spans[end, SPAN_PREDICATE] == spans[run, SPAN_PREDICATE]
        and spans[end, SPAN_GRAPH] == spans[run, SPAN_GRAPH]
    ):
        end += 1
    return end


@njit_uncounted
def contains_value(step, descriptors, spans, run, end, wanted):
    """Tell whether one of the spans run..end of values holds the wanted one."""
    for i in range(run, end):
        hi = spans[i, SPAN_HI]
        values = int64_array(values_at(descriptors[spans[i, SPAN_BATCH]], step[DIRECTION]), hi)
        at = lower_bound(values, spans[i, SPAN_LO], hi, wanted)
        if at < hi and values[at] == wanted:
            return True
    return False


@njit_uncounted
def add_values(step, descriptors, batch, row, key, predicate, graph, spans, m):
    """Append the values of a key in one directory row, if it has any."""
    position = find_key(descriptors[batch], step[DIRECTION], row, key)
    if position >= 0:
        lo, hi = value_range(descriptors[batch], step[DIRECTION], position)
        m = add_span(spans, m, graph, predicate, batch, lo, hi)
    return m


@njit_uncounted
def search_values(step, part, descriptors, default_graph, key, predicate, wanted_graph, spans, m):
    """Append the values of a key in a part whose predicate or graph is not known: through the key's vertex codes.

    An inlined literal has no codes: for it the directory is walked.
    """
    batch = part[PART_BATCH]
    descriptor = descriptors[batch]
    n = descriptor[DIRECTORY_SIZE]
    predicates = int64_array(descriptor[PREDICATES], n)
    graphs = int64_array(descriptor[GRAPHS], n)
    inlined = key & 1 == 1
    lo, hi = (np.int64(0), np.int64(n)) if inlined else code_range(descriptor, key)
    for i in range(lo, hi):
        code = 2 * i + step[DIRECTION] if inlined else code_at(descriptor, i)
        row = code >> 1
        if code & 1 == step[DIRECTION] and (predicate < 0 or predicates[row] == predicate):
            graph = reported_graph(step, part, graphs[row], default_graph, wanted_graph)
            if graph >= 0:
                m = add_values(step, descriptors, batch, row, key, predicates[row], graph, spans, m)
    return m


@njit_uncounted
def collect_values(step, parts, part_rows, descriptors, default_graph, key, predicate, wanted_graph, spans):
    """List the spans of values that a key has in the step's parts.

    predicate, wanted_graph : int64  -1 where the match is to find them.
    spans : int64[n, SPAN_WIDTH]     Filled; of a step that unites, sorted by (graph, predicate).

    Returns the count of spans, or -1 if there is no room for them. Cost: a look-up in each part.
    """
    m = 0
    for q in range(step[PARTS_FROM], step[PARTS_TO]):
        part = parts[q]
        row = part_rows[q]
        if row == ABSENT:
            continue
        if row == SEARCH and predicate >= 0 and part[PART_GRAPH] >= 0:
            row = directory_row(descriptors[part[PART_BATCH]], predicate, part[PART_GRAPH])
            if row == ABSENT:
                continue
        if row >= 0:
            graph = reported_graph(step, part, part[PART_GRAPH], default_graph, wanted_graph)
            if graph >= 0:
                m = add_values(step, descriptors, part[PART_BATCH], row, key, predicate, graph, spans, m)
        else:
            m = search_values(step, part, descriptors, default_graph, key, predicate, wanted_graph, spans, m)
    if m > spans.shape[0]:
        return -1
    if step[UNION] == 1 and (predicate < 0 or step[GRAPH_KIND] != ANY):
        sort_spans(spans, m)
    return m


@njit_uncounted
def collect_keys(step, parts, part_rows, descriptors, default_graph, predicate, wanted_graph, spans):
    """List the spans of keys of every directory row that the step looks at; else as collect_values."""
    m = 0
    for q in range(step[PARTS_FROM], step[PARTS_TO]):
        part = parts[q]
        if part_rows[q] == ABSENT:
            continue
        batch = part[PART_BATCH]
        descriptor = descriptors[batch]
        n = descriptor[DIRECTORY_SIZE]
        predicates = int64_array(descriptor[PREDICATES], n)
        graphs = int64_array(descriptor[GRAPHS], n)
        first = np.int64(0)
        last = np.int64(n)
        if part_rows[q] >= 0:
            first = part_rows[q]
            last = first + 1
        elif predicate >= 0:
            first = lower_bound(predicates, 0, n, predicate)
            last = lower_bound(predicates, first, n, predicate + 1)
        for row in range(first, last):
            graph = reported_graph(step, part, graphs[row], default_graph, wanted_graph)
            if graph >= 0:
                lo, hi = key_range(descriptor, step[DIRECTION], row)
                m = add_span(spans, m, graph, predicates[row], batch, lo, hi)
    if m > spans.shape[0]:
        return -1
    if step[UNION] == 1 and (predicate < 0 or step[GRAPH_KIND] != ANY):
        sort_spans(spans, m)
    return m
