# mypy: disallow-untyped-defs=false
"""Kernels that find where the matches of one plan step lie: spans of values, or of keys, over the step's parts."""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.plan_layout import (
    ABSENT,
    ALL_NAMED,
    ANY,
    DIRECTION,
    FROM_DIRECTORY,
    GRAPH_KIND,
    HIDING,
    PART_BATCH,
    PART_GRAPH,
    PART_NAME,
    PARTS_FROM,
    PARTS_TO,
    PROBED_FILTER,
    PROBED_FROM,
    PROBED_SHIFT,
    PROBED_TO,
    SEARCH,
    SPAN_BATCH,
    SPAN_GRAPH,
    SPAN_HI,
    SPAN_HIDDEN,
    SPAN_LO,
    SPAN_PREDICATE,
    SPAN_ROW,
    SPAN_WIDTH,
    UNION,
)
from wukongs.store.addresses import int64_array
from wukongs.store.directory_kernels import code_position, predicate_rows, row_of_graph
from wukongs.store.dtypes import WINDOW_GRAPH
from wukongs.store.jit import njit_uncounted
from wukongs.store.key_filter_kernels import hash_key, key_bits, may_have_key
from wukongs.store.layout import (
    DIRECTORY_SIZE,
    GRAPHS,
    KEY_FILTER,
    NO_FILTER,
    NOTHING_HIDDEN,
    PREDICATES,
    PROBE_BATCH,
    PROBE_KEY_FILTER,
    PROBE_ROW,
    TOMBSTONE_COUNT,
)
from wukongs.store.lookup_kernels import (
    code_at,
    code_range,
    directory_row,
    find_key,
    is_unlisted,
    key_range,
    lower_bound,
    value_range,
    values_at,
)
from wukongs.store.tombstone_kernels import next_hidden
from wukongs.store.window_table_kernels import may_hold, probe_key


@njit_uncounted
def reported_graph(step, part, graph_in_directory, default_graph, wanted_graph):
    """Return the graph id that a match in this directory row reports, -1 if the step does not look there."""
    if part[PART_GRAPH] == ALL_NAMED:
        if graph_in_directory == default_graph or graph_in_directory <= WINDOW_GRAPH:  # below are hidden graphs
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
def graph_asked(part, wanted_graph):
    """Return the one graph whose directory rows a part needs; ALL_NAMED if it is any."""
    return wanted_graph if part[PART_GRAPH] == ALL_NAMED else part[PART_GRAPH]


@njit_uncounted
def add_span(spans, m, graph, predicate, batch, row, lo, hi):
    """Append a span where there is room; return the new count."""
    if m < spans.shape[0]:
        spans[m, SPAN_GRAPH] = graph
        spans[m, SPAN_PREDICATE] = predicate
        spans[m, SPAN_BATCH] = batch
        spans[m, SPAN_LO] = lo
        spans[m, SPAN_HI] = hi
        spans[m, SPAN_ROW] = row
        spans[m, SPAN_HIDDEN] = NOTHING_HIDDEN
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
def note_hidden(step, descriptors, key, spans, m):
    """Note in the first m spans, of a key's values, the first value that tombstones hide."""
    for i in range(m):
        descriptor = descriptors[spans[i, SPAN_BATCH]]
        if descriptor[TOMBSTONE_COUNT] > 0:
            spans[i, SPAN_HIDDEN] = next_hidden(descriptor, step[DIRECTION], spans[i, SPAN_ROW], key, np.int64(0))


@njit_uncounted
def contains_value(step, descriptors, spans, run, end, key, wanted):
    """Tell whether one of the spans run..end of a key's values holds the wanted one, visibly."""
    direction = step[DIRECTION]
    for i in range(run, end):
        hi = spans[i, SPAN_HI]
        descriptor = descriptors[spans[i, SPAN_BATCH]]
        values = int64_array(values_at(descriptor, direction), hi)
        at = lower_bound(values, spans[i, SPAN_LO], hi, wanted)
        if at < hi and values[at] == wanted:
            if spans[i, SPAN_HIDDEN] > wanted:
                return True
            if next_hidden(descriptor, direction, spans[i, SPAN_ROW], key, wanted) != wanted:
                return True
    return False


@njit_uncounted
def pass_hidden(descriptor, direction, span, key):
    """Move the start of a span of a key's values past those that are hidden."""
    values = int64_array(values_at(descriptor, direction), span[SPAN_HI])
    while span[SPAN_LO] < span[SPAN_HI]:
        value = values[span[SPAN_LO]]
        if span[SPAN_HIDDEN] < value:
            span[SPAN_HIDDEN] = next_hidden(descriptor, direction, span[SPAN_ROW], key, value)
        if span[SPAN_HIDDEN] != value:
            break
        span[SPAN_LO] += 1


@njit_uncounted
def add_values(step, descriptors, batch, row, key, predicate, graph, spans, m):
    """Append the values of a key in one directory row, if it has any."""
    position = find_key(descriptors[batch], step[DIRECTION], row, key)
    if position >= 0:
        lo, hi = value_range(descriptors[batch], step[DIRECTION], position)
        m = add_span(spans, m, graph, predicate, batch, row, lo, hi)
    return m


@njit_uncounted
def search_values(step, part, descriptors, default_graph, key, predicate, wanted_graph, spans, m):
    """Append the values of a key in a part whose predicate or graph is not known: through the key's vertex codes.

    Inlined literals, and the vertices of small batches, have no codes: the directory is walked for them. Codes and
    rows of other predicates, and of other graphs where only one is asked for, are jumped over.
    """
    batch = part[PART_BATCH]
    descriptor = descriptors[batch]
    n = descriptor[DIRECTORY_SIZE]
    predicates = int64_array(descriptor[PREDICATES], n)
    graphs = int64_array(descriptor[GRAPHS], n)
    first, last = predicate_rows(descriptor, predicate) if predicate >= 0 else (np.int64(0), np.int64(n))
    only = graph_asked(part, wanted_graph)
    unlisted = is_unlisted(descriptor, key)
    i, end = (first, last) if unlisted else code_range(descriptor, key)
    while i < end:
        code = 2 * i + step[DIRECTION] if unlisted else code_at(descriptor, i)
        row = max(code >> 1, first)
        if row < last and only != ALL_NAMED:
            row = row_of_graph(predicates, graphs, row, last, only)
        if row >= last:
            break
        if row > code >> 1:
            i = row if unlisted else code_position(descriptor, i + 1, end, 2 * row)
            continue
        if code & 1 == step[DIRECTION]:
            graph = reported_graph(step, part, graphs[row], default_graph, wanted_graph)
            if graph >= 0:
                m = add_values(step, descriptors, batch, row, key, predicates[row], graph, spans, m)
        i += 1
    return m


@njit_uncounted
def collect_values(step, parts, part_rows, descriptors, default_graph, key, predicate, wanted_graph, spans):
    """List the spans of values that a key has in the step's parts.

    predicate, wanted_graph : int64  -1 where the match is to find them.
    spans : int64[n, SPAN_WIDTH]     Filled; of a step that unites, sorted by (graph, predicate).

    Returns the count of spans, or -1 if there is no room for them. Cost: a look-up in each part whose
    batch may have the key, and a word of a filter for the others.
    """
    m = 0
    hashed = hash_key(key, step[DIRECTION])
    bits = key_bits(hashed)
    for q in range(step[PARTS_FROM], step[PARTS_TO]):
        part = parts[q]
        row = part_rows[q]
        if row == ABSENT or not may_have_key(descriptors[part[PART_BATCH], KEY_FILTER], hashed, bits):
            continue
        if row == SEARCH and predicate >= 0 and part[PART_GRAPH] != ALL_NAMED:
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
    if step[HIDING] == 1:
        note_hidden(step, descriptors, key, spans, m)
    if step[UNION] == 1 and (predicate < 0 or step[GRAPH_KIND] != ANY):
        sort_spans(spans, m)
    return m


@njit_uncounted
def collect_probed(probes, probed, direction, predicate, key, spans):
    """List the spans of values that a key has, by the probes of a step; else as collect_values.

    probed : int64[PROBED_WIDTH]; key : int64, below 0 for a term that no data can have.
    """
    if key < 0:
        return 0
    if probed[PROBED_SHIFT] != NO_FILTER and not may_hold(probed[PROBED_FILTER], probed[PROBED_SHIFT], key):
        return 0
    m = 0
    hashed = hash_key(key, direction)
    bits = key_bits(hashed)
    for q in range(probed[PROBED_FROM], probed[PROBED_TO]):
        probe = probes[q]
        if not may_have_key(probe[PROBE_KEY_FILTER], hashed, bits):
            continue
        lo, hi = probe_key(probe, key)
        if lo < hi:
            m = add_span(spans, m, np.int64(0), predicate, probe[PROBE_BATCH], probe[PROBE_ROW], lo, hi)
    return m if m <= spans.shape[0] else -1


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
        first, last = np.int64(0), np.int64(n)
        if part_rows[q] >= 0:
            first, last = part_rows[q], part_rows[q] + 1
        elif predicate >= 0:
            first, last = predicate_rows(descriptor, predicate)
        only = graph_asked(part, wanted_graph)
        row = first
        while row < last:
            if only != ALL_NAMED:
                row = row_of_graph(predicates, graphs, row, last, only)
                if row == last:
                    break
            graph = reported_graph(step, part, graphs[row], default_graph, wanted_graph)
            if graph >= 0:
                lo, hi = key_range(descriptor, step[DIRECTION], row)
                m = add_span(spans, m, graph, predicates[row], batch, row, lo, hi)
            row += 1
    if m > spans.shape[0]:
        return -1
    if step[UNION] == 1 and (predicate < 0 or step[GRAPH_KIND] != ANY):
        sort_spans(spans, m)
    return m
