# mypy: disallow-untyped-defs=false
"""Loops around the project's kernels, compiled, so that a benchmark does not measure Python."""

from __future__ import annotations

from wukongs.query.plans.plan_kernels import run_plan, start_step
from wukongs.query.plans.plan_layout import COUNT, FULL, STATE_WIDTH
from wukongs.store.jit import njit
from wukongs.store.key_filter_kernels import hash_key, key_bits, may_have_key
from wukongs.store.layout import KEY_FILTER
from wukongs.store.lookup_kernels import find_key


@njit
def run_group(
    steps, parts, part_rows, descriptors, default_graph, seeds, tables, out, state, spans, value_spans, control
):
    """Run a plan for all seed rows at once, as one group of queries; return the rows."""
    n = steps.shape[0]
    total = 0
    for s in range(n + 1):
        for c in range(STATE_WIDTH):
            state[s, c] = 0
    start_step(state, 0, seeds.shape[0])
    status = FULL
    while status == FULL:
        control[1] = 1 << 40
        status = run_plan(
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
        )
        total += state[n, COUNT]
        state[n, COUNT] = 0
    return total


@njit
def run_each(
    steps, parts, part_rows, descriptors, default_graph, seeds, tables, out, state, spans, value_spans, control
):
    """Run a plan once for each seed row alone, as so many single queries; return the rows of all of them."""
    total = 0
    for i in range(seeds.shape[0]):
        seed = seeds[i : i + 1]
        total += run_group(
            steps, parts, part_rows, descriptors, default_graph, seed, tables, out, state, spans, value_spans, control
        )
    return total


@njit
def count_found(descriptor, direction, row, probes):
    """Look every probe up among the keys of one directory row; return how many are there."""
    found = 0
    for i in range(probes.size):
        if find_key(descriptor, direction, row, probes[i]) >= 0:
            found += 1
    return found


@njit
def count_passing(descriptor, direction, probes):
    """Ask the key filter of a batch for every probe; return how many may be there."""
    passing = 0
    for i in range(probes.size):
        hashed = hash_key(probes[i], direction)
        if may_have_key(descriptor[KEY_FILTER], hashed, key_bits(hashed)):
            passing += 1
    return passing
