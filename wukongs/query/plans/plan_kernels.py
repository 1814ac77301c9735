# mypy: disallow-untyped-defs=false
"""The kernels of a conjunctive plan: one nogil call explores all its steps, in chunks; it can stop and resume anywhere.

Tables of partial matches lie between the steps. A step fills the table behind it until the table is full or the step's
input is used up. Then the next step takes over. When it has used up the table, the first step goes on where it stopped.
So memory is bounded by the tables, however many rows the plan makes. Source: the paper, 4.1 and 5 (graph exploration).
"""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.ahead_kernels import fetch_rows_ahead
from wukongs.query.plans.emit_kernels import emit_plain, emit_values, emit_visible, write_match
from wukongs.query.plans.plan_layout import (
    ABSENT,
    ALL_NAMED,
    AT_KEY,
    AT_VALUE,
    BOUND,
    CANCELLED,
    CONSTANT,
    COUNT,
    DIRECTION,
    DONE,
    FUEL,
    FUEL_OF_CHUNK,
    FULL,
    GRAPH,
    GRAPH_KIND,
    HELD,
    HIDING,
    KEY,
    KEY_KIND,
    LEVEL,
    NEED_SPANS,
    NEW,
    NOT_STARTED,
    PART_BATCH,
    PART_GRAPH,
    PARTS_FROM,
    PARTS_TO,
    PASSED,
    PAUSED,
    PREDICATE,
    PREDICATE_KIND,
    PROBED_FROM,
    PROBED_WIDTH,
    ROW,
    RUN,
    SEARCH,
    SPAN_BATCH,
    SPAN_GRAPH,
    SPAN_HI,
    SPAN_HIDDEN,
    SPAN_LO,
    SPAN_PREDICATE,
    SPAN_ROW,
    UNION,
    VALUE,
    VALUE_KIND,
)
from wukongs.query.plans.span_kernels import (
    collect_keys,
    collect_probed,
    collect_values,
    contains_value,
    note_hidden,
    run_end,
)
from wukongs.store.addresses import int64_array, int64_table
from wukongs.store.dtypes import NO_MATCH
from wukongs.store.jit import njit_uncounted
from wukongs.store.layout import NOTHING_HIDDEN, PROBE_WIDTH
from wukongs.store.lookup_kernels import (
    directory_row,
    keys_at,
    keys_count,
    lower_bound,
    value_range,
    values_at,
)
from wukongs.store.tombstone_kernels import next_hiding_key


@njit_uncounted
def known(kind, reference, source, row):
    """Return the value of an operand before the match, -1 if the match has to find it."""
    if kind == CONSTANT:
        return reference
    if kind == BOUND:
        return source[row, reference]
    return np.int64(-1)


@njit_uncounted
def explore(step, parts, part_rows, descriptors, default_graph, source, target, at, spans, state, probes, probed):
    """Run a step whose key is bound: expand to new values, or check a bound one, row by row of the source.

    probes : int64[n, PROBE_WIDTH]
    probed : int64[1 or 0, PROBED_WIDTH]   By which probes keys are looked up; without rows: in the step's parts.
    state : int64[STATE_WIDTH]       Where the step stopped; moved on.
    Returns (rows in target, DONE | FULL | NEED_SPANS); DONE when the source is used up, FULL also when the fuel is.
    """
    resume = state[AT_VALUE : FUEL + 1]
    row = state[ROW]
    fetched = row
    probing = probed.shape[0] > 0 and probed[0, PROBED_FROM] >= 0
    while row < state[COUNT]:
        if state[FUEL] <= 0:
            state[ROW] = row
            return at, FULL
        if row >= fetched and not probing and state[HELD] < 0:
            fetched = fetch_rows_ahead(step, parts, part_rows, descriptors, source, row, state[COUNT], spans)
        key = known(step[KEY_KIND], step[KEY], source, row)
        predicate = known(step[PREDICATE_KIND], step[PREDICATE], source, row)
        wanted = known(step[VALUE_KIND], step[VALUE], source, row)
        graph = known(step[GRAPH_KIND], step[GRAPH], source, row)
        m = state[HELD]
        if m < 0 or step[UNION] == 1:
            if probing:
                m = collect_probed(probes, probed[0], step[DIRECTION], predicate, key, spans)
            else:
                m = collect_values(step, parts, part_rows, descriptors, default_graph, key, predicate, graph, spans)
        if m < 0:
            state[ROW] = row
            return at, NEED_SPANS
        state[HELD] = m
        state[FUEL] = max(1 + m, state[FUEL] - 1 - m)  # so that each chunk moves on as far as it has looked
        run = state[RUN]
        while run < m:
            end = run_end(spans, run, m) if step[UNION] == 1 else run + 1
            if wanted >= 0:
                if contains_value(step, descriptors, spans, run, end, key, wanted):
                    if at == target.shape[0]:
                        state[ROW] = row
                        state[RUN] = run
                        return at, FULL
                    if write_match(
                        step, source, row, target, at, key, spans[run, SPAN_PREDICATE], wanted, spans[run, SPAN_GRAPH]
                    ):
                        at += 1
            else:
                at, complete = emit_values(step, descriptors, spans, run, end, source, row, target, at, key, resume)
                if not complete:
                    state[ROW] = row
                    state[RUN] = run
                    return at, FULL
            state[AT_VALUE] = NOT_STARTED
            run = end
        state[RUN] = 0
        state[HELD] = NOT_STARTED
        row += 1
    state[ROW] = row
    return at, DONE


@njit_uncounted
def scan_keys(step, descriptors, spans, i, source, row, target, at, state):
    """Write every (key, value) of one span of keys, in their order. Returns (rows in target, whether all are
    written)."""
    direction = step[DIRECTION]
    descriptor = descriptors[spans[i, SPAN_BATCH]]
    keys = int64_array(keys_at(descriptor, direction), keys_count(descriptor, direction))
    resume = state[AT_VALUE : FUEL + 1]
    predicate, graph, found = spans[i, SPAN_PREDICATE], spans[i, SPAN_GRAPH], spans[i, SPAN_ROW]
    hiding = np.int64(NOTHING_HIDDEN) if step[HIDING] == 0 else np.int64(-1)
    for k in range(max(spans[i, SPAN_LO], state[AT_KEY]), spans[i, SPAN_HI]):
        if resume[1] <= 0:
            state[AT_KEY] = k
            return at, False
        key = keys[k]
        lo, hi = value_range(descriptor, direction, k)
        if hiding < key:
            hiding = next_hiding_key(descriptor, direction, found, key)
        if hiding != key:
            at, complete = emit_plain(step, descriptor, lo, hi, source, row, target, at, key, predicate, graph, resume)
        else:
            at, complete = emit_visible(
                step, descriptor, found, lo, hi, source, row, target, at, key, predicate, graph, resume
            )
        if not complete:
            state[AT_KEY] = k
            return at, False
        resume[0] = NOT_STARTED
        resume[1] -= 1
    return at, True


@njit_uncounted
def scan_united(step, descriptors, spans, run, end, source, row, target, at, state, value_spans):
    """Write every (key, value) that stands in any of the spans of keys run..end, each once, in order of the ids."""
    direction = step[DIRECTION]
    resume = state[AT_VALUE : FUEL + 1]
    for i in range(run, end):
        keys = int64_array(
            keys_at(descriptors[spans[i, SPAN_BATCH]], direction),
            keys_count(descriptors[spans[i, SPAN_BATCH]], direction),
        )
        spans[i, SPAN_LO] = lower_bound(keys, spans[i, SPAN_LO], spans[i, SPAN_HI], state[AT_KEY])
    while True:
        smallest = np.int64(-1)
        for i in range(run, end):
            if spans[i, SPAN_LO] < spans[i, SPAN_HI]:
                key = int64_array(
                    keys_at(descriptors[spans[i, SPAN_BATCH]], direction),
                    keys_count(descriptors[spans[i, SPAN_BATCH]], direction),
                )[spans[i, SPAN_LO]]
                if smallest < 0 or key < smallest:
                    smallest = key
        if smallest < 0:
            return at, True
        if resume[1] <= 0:
            state[AT_KEY] = smallest
            return at, False
        m = 0
        for i in range(run, end):
            if spans[i, SPAN_LO] < spans[i, SPAN_HI]:
                descriptor = descriptors[spans[i, SPAN_BATCH]]
                if (
                    int64_array(keys_at(descriptor, direction), keys_count(descriptor, direction))[spans[i, SPAN_LO]]
                    == smallest
                ):
                    lo, hi = value_range(descriptor, direction, spans[i, SPAN_LO])
                    value_spans[m, SPAN_BATCH] = spans[i, SPAN_BATCH]
                    value_spans[m, SPAN_PREDICATE] = spans[run, SPAN_PREDICATE]
                    value_spans[m, SPAN_GRAPH] = spans[run, SPAN_GRAPH]
                    value_spans[m, SPAN_LO] = lo
                    value_spans[m, SPAN_HI] = hi
                    value_spans[m, SPAN_ROW] = spans[i, SPAN_ROW]
                    value_spans[m, SPAN_HIDDEN] = NOTHING_HIDDEN
                    spans[i, SPAN_LO] += 1
                    m += 1
        if step[HIDING] == 1:
            note_hidden(step, descriptors, smallest, value_spans, m)
        if m == 1:
            # emit_values goes on after a value where spans are united, after a position in a single one.
            first = value_spans[0, SPAN_LO]
            values = int64_array(values_at(descriptors[value_spans[0, SPAN_BATCH]], direction), value_spans[0, SPAN_HI])
            value_spans[0, SPAN_LO] = lower_bound(values, first, value_spans[0, SPAN_HI], resume[0] + 1)
            resume[0] = NOT_STARTED
            at, complete = emit_values(step, descriptors, value_spans, 0, 1, source, row, target, at, smallest, resume)
            if not complete:
                resume[0] = values[resume[0] + 1] - 1
        else:
            at, complete = emit_values(step, descriptors, value_spans, 0, m, source, row, target, at, smallest, resume)
        if not complete:
            state[AT_KEY] = smallest
            return at, False
        resume[0] = NOT_STARTED
        resume[1] -= end - run


@njit_uncounted
def scan(step, parts, part_rows, descriptors, default_graph, source, target, at, spans, value_spans, state):
    """Run a step neither of whose ends is bound: all keys of the index, for each row of the source.

    Returns (rows in target, DONE | FULL | NEED_SPANS), as explore.
    """
    row = state[ROW]
    while row < state[COUNT]:
        if state[FUEL] <= 0:
            state[ROW] = row
            return at, FULL
        predicate = known(step[PREDICATE_KIND], step[PREDICATE], source, row)
        graph = known(step[GRAPH_KIND], step[GRAPH], source, row)
        m = state[HELD]
        if m < 0 or step[UNION] == 1:
            m = collect_keys(step, parts, part_rows, descriptors, default_graph, predicate, graph, spans)
        if m < 0:
            state[ROW] = row
            return at, NEED_SPANS
        state[HELD] = m
        state[FUEL] = max(1 + m, state[FUEL] - 1 - m)  # so that each chunk moves on as far as it has looked
        run = state[RUN]
        while run < m:
            end = run_end(spans, run, m) if step[UNION] == 1 else run + 1
            if end == run + 1:
                at, complete = scan_keys(step, descriptors, spans, run, source, row, target, at, state)
            else:
                at, complete = scan_united(
                    step, descriptors, spans, run, end, source, row, target, at, state, value_spans
                )
            if not complete:
                state[ROW] = row
                state[RUN] = run
                return at, FULL
            state[AT_KEY] = NOT_STARTED
            state[AT_VALUE] = NOT_STARTED
            run = end
        state[RUN] = 0
        state[HELD] = NOT_STARTED
        row += 1
    state[ROW] = row
    return at, DONE


@njit_uncounted
def resolve_parts(steps, parts, descriptors, part_rows):
    """Find the directory row of every part whose predicate and graph are constant; SEARCH for the others."""
    for s in range(steps.shape[0]):
        for q in range(steps[s, PARTS_FROM], steps[s, PARTS_TO]):
            graph = parts[q, PART_GRAPH]
            if graph == NO_MATCH:
                part_rows[q] = ABSENT
            elif graph != ALL_NAMED and steps[s, PREDICATE_KIND] == CONSTANT:
                part_rows[q] = directory_row(descriptors[parts[q, PART_BATCH]], steps[s, PREDICATE], graph)
            else:
                part_rows[q] = SEARCH


@njit_uncounted
def start_step(state, s, count):
    """Point a step at the beginning of an input table of `count` rows."""
    state[s, ROW] = 0
    state[s, RUN] = 0
    state[s, AT_KEY] = NOT_STARTED
    state[s, AT_VALUE] = NOT_STARTED
    state[s, HELD] = NOT_STARTED
    state[s, COUNT] = count


@njit_uncounted
def run_plan(
    steps, parts, part_rows, descriptors, default_graph, seeds, tables, out, state, spans, value_spans, control
):
    """Run a conjunctive plan from seed rows to the output table.

    Parameters
    ----------
    steps : int64[n_steps, STEP_WIDTH]; parts : int64[n_parts, PART_WIDTH]; part_rows : int64[n_parts], scratch.
    descriptors : int64[n_batches, DESCRIPTOR_WIDTH], of batches that outlive the call.
    default_graph : int              The id of the stored default graph, which ALL_NAMED leaves out.
    seeds : int64[n_seeds, width]    The rows to start from, all columns of the plan wide.
    tables : int64[n_steps - 1, chunk, width]; out : int64[capacity, width]
    state : int64[n_steps + 1, STATE_WIDTH]   start_step(state, 0, n_seeds) and zeros in the last row to begin. PASSED
        counts the rows that each step but the last has made.
    spans : int64[n_steps, n, SPAN_WIDTH]; value_spans : int64[n, SPAN_WIDTH], scratch.
    control : int64[2]               [0] not 0: stop for good; [1]: chunks to work on before a pause, counted down: one
        for each, and one for each FUEL_OF_CHUNK that it takes.

    Returns
    -------
    status : DONE; FULL: take state[n_steps, COUNT] rows from out, set that to 0 and call again; NEED_SPANS: call again
    with more scratch, and NOT_STARTED in state[:n_steps, HELD]; PAUSED: call again; CANCELLED.
    """
    return run_steps(
        steps,
        parts,
        part_rows,
        descriptors,
        default_graph,
        seeds,
        tables,
        out,
        state,
        spans,
        value_spans,
        control,
        int64_table(0, 0, PROBE_WIDTH),
        int64_table(0, 0, PROBED_WIDTH),
    )


@njit_uncounted
def run_steps(
    steps,
    parts,
    part_rows,
    descriptors,
    default_graph,
    seeds,
    tables,
    out,
    state,
    spans,
    value_spans,
    control,
    probes,
    probed,
):
    """Do the same as run_plan. Steps that go by one predicate may look keys up by probes, in place of their parts.

    probes : int64[n_probes, PROBE_WIDTH]
    probed : int64[n_steps, PROBED_WIDTH], or without rows if no step probes.
    """
    n = steps.shape[0]
    resolve_parts(steps, parts, descriptors, part_rows)
    s = state[n, LEVEL]
    while True:
        if control[0] != 0 or control[1] <= 0:
            state[n, LEVEL] = s
            return CANCELLED if control[0] != 0 else PAUSED
        control[1] -= 1
        source = seeds if s == 0 else tables[s - 1]
        target = out if s == n - 1 else tables[s]
        step = steps[s]
        at = state[s + 1, COUNT]
        fuel = state[n, FUEL] if state[n, FUEL] > 0 else np.int64(1 << 60)
        state[s, FUEL] = fuel
        if step[KEY_KIND] == NEW:
            at, status = scan(
                step, parts, part_rows, descriptors, default_graph, source, target, at, spans[s], value_spans, state[s]
            )
        else:
            at, status = explore(
                step,
                parts,
                part_rows,
                descriptors,
                default_graph,
                source,
                target,
                at,
                spans[s],
                state[s],
                probes,
                probed[s : s + 1],
            )
        control[1] -= (fuel - state[s, FUEL]) // FUEL_OF_CHUNK
        if s == n - 1:
            state[n, COUNT] = at
        if status == NEED_SPANS or (status == FULL and s == n - 1 and at == out.shape[0]):
            if s < n - 1:
                state[s + 1, COUNT] = at
            state[n, LEVEL] = s
            return status
        if s < n - 1 and at > 0:
            state[s, PASSED] += at
            s += 1
            start_step(state, s, at)
            if s < n - 1:
                state[s + 1, COUNT] = 0
            continue
        while s >= 0 and state[s, ROW] >= state[s, COUNT]:
            s -= 1
        if s < 0:
            return DONE
        if s < n - 1:
            state[s + 1, COUNT] = 0
