# mypy: disallow-untyped-defs=false
"""Kernels that write the matches of one plan step into the table behind it. They stop when that is full, or when they
are out of fuel. A triple that does not match takes fuel, too."""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.plan_layout import (
    DIRECTION,
    GRAPH,
    GRAPH_KIND,
    KEY,
    KEY_KIND,
    NEW,
    PREDICATE,
    PREDICATE_KIND,
    SAME,
    SPAN_BATCH,
    SPAN_GRAPH,
    SPAN_HI,
    SPAN_HIDDEN,
    SPAN_LO,
    SPAN_PREDICATE,
    SPAN_ROW,
    VALUE,
    VALUE_KIND,
)
from wukongs.query.plans.span_kernels import pass_hidden
from wukongs.store.addresses import int64_array
from wukongs.store.jit import njit_uncounted
from wukongs.store.layout import NOTHING_HIDDEN
from wukongs.store.lookup_kernels import lower_bound, values_at
from wukongs.store.tombstone_kernels import next_hidden


@njit_uncounted
def write_match(step, source, row, target, at, key, predicate, value, graph):
    """Write one match as row `at` of the target; return False (the row is void) if a repeated variable disagrees."""
    for column in range(source.shape[1]):
        target[at, column] = source[row, column]
    if step[KEY_KIND] == NEW:
        target[at, step[KEY]] = key
    if step[PREDICATE_KIND] == NEW:
        target[at, step[PREDICATE]] = predicate
    elif step[PREDICATE_KIND] == SAME and target[at, step[PREDICATE]] != predicate:
        return False
    if step[VALUE_KIND] == NEW:
        target[at, step[VALUE]] = value
    elif step[VALUE_KIND] == SAME and target[at, step[VALUE]] != value:
        return False
    if step[GRAPH_KIND] == NEW:
        target[at, step[GRAPH]] = graph
    elif step[GRAPH_KIND] == SAME and target[at, step[GRAPH]] != graph:
        return False
    return True


@njit_uncounted
def emit_plain(step, descriptor, lo, hi, source, row, target, at, key, predicate, graph, resume):
    """Write a match for each of the values lo..hi of one side. resume, result: as emit_values."""
    values = int64_array(values_at(descriptor, step[DIRECTION]), hi)
    first = max(lo, resume[0] + 1)
    last = min(hi, first + max(resume[1], 0))
    for v in range(first, last):
        if at == target.shape[0]:
            resume[0] = v - 1
            return at, False
        if write_match(step, source, row, target, at, key, predicate, values[v], graph):
            at += 1
    resume[1] -= last - first
    resume[0] = last - 1
    return at, last >= hi


@njit_uncounted
def emit_visible(step, descriptor, directory_row, lo, hi, source, row, target, at, key, predicate, graph, resume):
    """Do the same as emit_plain where tombstones hide some of the values."""
    direction = step[DIRECTION]
    values = int64_array(values_at(descriptor, direction), hi)
    hidden = np.int64(-1)
    first = max(lo, resume[0] + 1)
    last = min(hi, first + max(resume[1], 0))
    for v in range(first, last):
        if hidden < values[v]:
            hidden = next_hidden(descriptor, direction, directory_row, key, values[v])
        if hidden == values[v]:
            continue
        if at == target.shape[0]:
            resume[0] = v - 1
            return at, False
        if write_match(step, source, row, target, at, key, predicate, values[v], graph):
            at += 1
    resume[1] -= last - first
    resume[0] = last - 1
    return at, last >= hi


@njit_uncounted
def emit_values(step, descriptors, spans, run, end, source, row, target, at, key, resume):
    """Write a match for each value of the spans run..end, each value once.

    resume : int64[2]                The value (several spans) or position (one span) to go on after, -1 to begin; fuel.
    Returns (rows in target, whether all values are looked at); else the place is in resume.
    """
    direction = step[DIRECTION]
    predicate = spans[run, SPAN_PREDICATE]
    graph = spans[run, SPAN_GRAPH]
    capacity = target.shape[0]
    if end == run + 1:
        descriptor = descriptors[spans[run, SPAN_BATCH]]
        lo, hi = spans[run, SPAN_LO], spans[run, SPAN_HI]
        if spans[run, SPAN_HIDDEN] == NOTHING_HIDDEN:
            return emit_plain(step, descriptor, lo, hi, source, row, target, at, key, predicate, graph, resume)
        found = spans[run, SPAN_ROW]
        return emit_visible(step, descriptor, found, lo, hi, source, row, target, at, key, predicate, graph, resume)
    for i in range(run, end):
        values = int64_array(values_at(descriptors[spans[i, SPAN_BATCH]], direction), spans[i, SPAN_HI])
        spans[i, SPAN_LO] = lower_bound(values, spans[i, SPAN_LO], spans[i, SPAN_HI], resume[0] + 1)
        if spans[i, SPAN_HIDDEN] != NOTHING_HIDDEN:
            pass_hidden(descriptors[spans[i, SPAN_BATCH]], direction, spans[i], key)
    while True:
        smallest = np.int64(-1)
        for i in range(run, end):
            if spans[i, SPAN_LO] < spans[i, SPAN_HI]:
                values = int64_array(values_at(descriptors[spans[i, SPAN_BATCH]], direction), spans[i, SPAN_HI])
                value = values[spans[i, SPAN_LO]]
                if smallest < 0 or value < smallest:
                    smallest = value
        if smallest < 0:
            return at, True
        if at == capacity or resume[1] <= 0:
            resume[0] = smallest - 1
            return at, False
        for i in range(run, end):
            if spans[i, SPAN_LO] < spans[i, SPAN_HI]:
                values = int64_array(values_at(descriptors[spans[i, SPAN_BATCH]], direction), spans[i, SPAN_HI])
                if values[spans[i, SPAN_LO]] == smallest:
                    spans[i, SPAN_LO] += 1
                    if spans[i, SPAN_HIDDEN] != NOTHING_HIDDEN:
                        pass_hidden(descriptors[spans[i, SPAN_BATCH]], direction, spans[i], key)
        if write_match(step, source, row, target, at, key, predicate, smallest, graph):
            at += 1
        resume[1] -= end - run
