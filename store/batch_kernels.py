# mypy: disallow-untyped-defs=false
"""Kernels that build a batch: assign directory rows, group, drop repeats, fences."""

from __future__ import annotations

import numpy as np

from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.layout import FENCE_DENSE_MAX, FENCE_KEYS_MIN, NO_FENCE
from wukongs.store.lookup_kernels import lower_bound

FENCE_ENTRIES_PER_FUEL = 4
"""Entries and keys of a fence that take as long as one merged value."""


@njit_uncounted
def directory_slot(predicate, graph, slots):
    """Return where the search for a directory row begins in a hash table of `slots` slots, a power of two."""
    return ((predicate >> 1) ^ (predicate >> 32) ^ (graph >> 3) ^ (graph >> 34)) & (slots - 1)


@njit_uncounted
def number_rows(graphs, predicates, start, rows, table, found_graphs, found_predicates, counts, found):
    """Number the distinct (graph, predicate) pairs of tuples start and on, in order of their first occurrence.

    Stops where the table has no room for another. Returns (the tuple it stopped at, distinct pairs).
    """
    row = -1
    for i in range(start, graphs.size):
        g = graphs[i]
        p = predicates[i]
        if row < 0 or found_predicates[row] != p or found_graphs[row] != g:
            slot = directory_slot(p, g, table.size)
            row = table[slot]
            while row >= 0 and (found_predicates[row] != p or found_graphs[row] != g):
                slot = (slot + 1) & (table.size - 1)
                row = table[slot]
            if row < 0:
                if found == found_graphs.size:
                    return i, found
                row = found
                found_graphs[row] = g
                found_predicates[row] = p
                counts[row] = 0
                table[slot] = row
                found += 1
        rows[i] = row
        counts[row] += 1
    return graphs.size, found


@njit
def assign_directory(graphs, predicates):
    """Number the distinct (graph, predicate) pairs in order of (predicate, graph).

    Parameters
    ----------
    graphs, predicates : int64[n]

    Returns
    -------
    rows : int32[n]                  The directory row of each tuple.
    directory_graphs, directory_predicates : int64[n_directory], sorted by (predicate, graph).
    counts : int64[n_directory]      Tuples per directory row.

    Cost: a look-up in a small hash table a tuple, and two passes.
    """
    rows = np.empty(graphs.size, np.int32)
    room = 32
    found_graphs = np.empty(room, np.int64)
    found_predicates = np.empty(room, np.int64)
    counts = np.zeros(room, np.int64)
    table = np.full(2 * room, -1, np.int32)
    done, found = number_rows(graphs, predicates, 0, rows, table, found_graphs, found_predicates, counts, 0)
    while done < graphs.size:
        found_graphs = np.concatenate((found_graphs, np.empty(3 * room, np.int64)))
        found_predicates = np.concatenate((found_predicates, np.empty(3 * room, np.int64)))
        counts = np.concatenate((counts, np.zeros(3 * room, np.int64)))
        room *= 4
        table = np.full(2 * room, -1, np.int32)
        for r in range(found):
            slot = directory_slot(found_predicates[r], found_graphs[r], table.size)
            while table[slot] >= 0:
                slot = (slot + 1) & (table.size - 1)
            table[slot] = r
        done, found = number_rows(graphs, predicates, done, rows, table, found_graphs, found_predicates, counts, found)
    by_graph = np.argsort(found_graphs[:found], kind="mergesort")
    order = by_graph[np.argsort(found_predicates[:found][by_graph], kind="mergesort")]
    rank = np.empty(found, np.int32)
    for r in range(found):
        rank[order[r]] = r
    for i in range(rows.size):
        rows[i] = rank[rows[i]]
    return rows, found_graphs[:found][order], found_predicates[:found][order], counts[:found][order]


@njit
def group_rows(rows, counts, first, second, payload):
    """Bring the tuples of each directory row together; return the grouped columns and int64[n_directory + 1] starts."""
    starts = np.zeros(counts.size + 1, np.int64)
    for r in range(counts.size):
        starts[r + 1] = starts[r] + counts[r]
    cursor = starts[:-1].copy()
    carried = payload.size > 0
    grouped_first = np.empty(first.size, np.int64)
    grouped_second = np.empty(first.size, np.int64)
    grouped_payload = np.empty(payload.size, np.int64)
    for i in range(first.size):
        to = cursor[rows[i]]
        cursor[rows[i]] = to + 1
        grouped_first[to] = first[i]
        grouped_second[to] = second[i]
        if carried:
            grouped_payload[to] = payload[i]
    return grouped_first, grouped_second, grouped_payload, starts


@njit
def compress_pairs(first, second, payload, range_starts):
    """Turn sorted pairs into keys with their distinct values; of repeats the largest payload stays.

    Returns
    -------
    key_starts : int64[n_ranges + 1]; keys : int64[n_keys]; offsets : int32[n_keys + 1]; values : int64[n_values];
    payloads : int64[n_values] or int64[0]; value_starts : int64[n_ranges + 1], the values of each range.
    """
    n_ranges = range_starts.size - 1
    n_keys = 0
    n_values = 0
    for r in range(n_ranges):
        lo = range_starts[r]
        hi = range_starts[r + 1]
        if lo < hi:
            n_keys += 1
            n_values += 1
        for i in range(lo + 1, hi):
            n_keys += first[i] != first[i - 1]
            n_values += (first[i] != first[i - 1]) | (second[i] != second[i - 1])
    key_starts = np.zeros(n_ranges + 1, np.int64)
    value_starts = np.zeros(n_ranges + 1, np.int64)
    keys = np.empty(n_keys, np.int64)
    offsets = np.empty(n_keys + 1, np.int32)
    values = np.empty(n_values, np.int64)
    payloads = np.empty(n_values if payload.size > 0 else 0, np.int64)
    write_pairs(first, second, payload, range_starts, key_starts, keys, offsets, values, payloads, value_starts)
    return key_starts, keys, offsets, values, payloads, value_starts


@njit_uncounted
def write_pairs(first, second, payload, range_starts, key_starts, keys, offsets, values, payloads, value_starts):
    """Fill the arrays that compress_pairs has counted. Nearly without branches: whether a key is new is random."""
    carried = payload.size > 0
    k = -1
    v = -1
    for r in range(range_starts.size - 1):
        for i in range(range_starts[r], range_starts[r + 1]):
            new_key = i == range_starts[r] or first[i] != first[i - 1]
            new_value = new_key | (second[i] != second[i - 1])
            v += new_value
            if new_key:
                k += 1
                keys[k] = first[i]
                offsets[k] = v
            values[v] = second[i]
            if carried:
                payloads[v] = payload[i] if new_value else max(payloads[v], payload[i])
        key_starts[r + 1] = k + 1
        value_starts[r + 1] = v + 1
    offsets[k + 1] = v + 1


@njit
def swap_sides(key_starts, keys, offsets, values):
    """List the pairs of one side the other way round: (value, key) per range, not sorted."""
    first = np.empty(values.size, np.int64)
    second = np.empty(values.size, np.int64)
    for k in range(keys.size):
        for v in range(offsets[k], offsets[k + 1]):
            first[v] = values[v]
            second[v] = keys[k]
    return first, second


@njit
def fence_shift(n_keys):
    """How far a key is shifted to its fence bucket, NO_FENCE for a range that is searched whole."""
    if n_keys < FENCE_KEYS_MIN:
        return NO_FENCE
    buckets_max = n_keys if n_keys <= FENCE_DENSE_MAX else n_keys // 2
    bits = 3
    while buckets_max >> (bits + 1) > 0 and bits < 28:
        bits += 1
    return 63 - bits


@njit
def plan_fences(key_starts):
    """Choose the fences of all ranges. Returns fence_starts : int64[n_ranges + 1], fence_shifts : int64[n_ranges]."""
    n_ranges = key_starts.size - 1
    starts = np.zeros(n_ranges + 1, np.int64)
    shifts = np.empty(n_ranges, np.int64)
    for r in range(n_ranges):
        shift = fence_shift(key_starts[r + 1] - key_starts[r])
        shifts[r] = shift
        starts[r + 1] = starts[r] + (0 if shift == NO_FENCE else (1 << (63 - shift)) + 1)
    return starts, shifts


@njit_uncounted
def fill_fences(keys, key_starts, fence_starts, fence_shifts, fences, state, fuel):
    """Write the fences of all ranges, at most about FENCE_ENTRIES_PER_FUEL * fuel entries and keys.

    Entry b of the fence of a range is how many of its keys lie in the buckets before b.

    Parameters
    ----------
    keys : int64[n_keys]; key_starts, fence_starts : int64[n_ranges + 1]; fence_shifts : int64[n_ranges]
    fences : int32[fence_starts[n_ranges]]
    state : int64[3]                 Where the last call stopped: range, key and entry of fences; zeros at first.

    Returns
    -------
    fuel : int64                     The rest; done when state[0] == n_ranges.
    """
    r, i, at = state[0], state[1], state[2]
    budget = min(fuel, np.int64(1) << 56) * FENCE_ENTRIES_PER_FUEL
    work = budget
    while r < fence_shifts.size and work > 0:
        lo = key_starts[r]
        hi = key_starts[r + 1]
        shift = fence_shifts[r]
        if shift == NO_FENCE:
            i = hi
        first = fence_starts[r]
        end = fence_starts[r + 1]
        while i < hi and work > 0:
            entry = first + (keys[i] >> shift)
            while at <= entry and work > 0:
                fences[at] = i - lo
                at += 1
                work -= 1
            if at > entry:
                i += 1
                work -= 1
        while i == hi and at < end and work > 0:
            fences[at] = hi - lo
            at += 1
            work -= 1
        if i == hi and at == end:
            r += 1
            work -= 1
    state[0], state[1], state[2] = r, i, at
    return fuel - (budget - max(work, 0) + FENCE_ENTRIES_PER_FUEL - 1) // FENCE_ENTRIES_PER_FUEL


@njit
def build_fences(keys, key_starts):
    """Build the fences of all ranges.

    Returns
    -------
    fence_starts : int64[n_ranges + 1]; fence_shifts : int64[n_ranges]; fences : int32[...], relative to the range.
    """
    starts, shifts = plan_fences(key_starts)
    fences = np.empty(starts[starts.size - 1], np.int32)
    fill_fences(keys, key_starts, starts, shifts, fences, np.zeros(3, np.int64), np.int64(1) << 56)
    return starts, shifts, fences


@njit
def count_vertices_below(limit, out_key_starts, out_keys, in_key_starts, in_keys):
    """Count the distinct keys below a limit, inlined literals of the in side left out. Cost: a sort of these keys."""
    size = 0
    for starts, keys in ((out_key_starts, out_keys), (in_key_starts, in_keys)):
        for r in range(starts.size - 1):
            size += lower_bound(keys, starts[r], starts[r + 1], limit) - starts[r]
    found = np.empty(size, np.int64)
    at = 0
    for direction, starts, keys in ((0, out_key_starts, out_keys), (1, in_key_starts, in_keys)):
        for r in range(starts.size - 1):
            i = starts[r]
            while i < starts[r + 1] and keys[i] < limit:
                if direction == 0 or keys[i] & 1 == 0:
                    found[at] = keys[i]
                    at += 1
                i += 1
    found = np.sort(found[:at])
    count = min(at, 1)
    for i in range(1, at):
        count += found[i] != found[i - 1]
    return count


@njit
def list_vertices(out_key_starts, out_keys, in_key_starts, in_keys):
    """List (vertex, code) for every key of both sides but inlined literals; code = 2 * directory row + direction."""
    n = out_keys.size
    for i in range(in_keys.size):
        n += 1 - (in_keys[i] & 1)
    vertices = np.empty(n, np.int64)
    codes = np.empty(n, np.int64)
    at = 0
    for r in range(out_key_starts.size - 1):
        for i in range(out_key_starts[r], out_key_starts[r + 1]):
            vertices[at] = out_keys[i]
            codes[at] = 2 * r
            at += 1
    for r in range(in_key_starts.size - 1):
        for i in range(in_key_starts[r], in_key_starts[r + 1]):
            if in_keys[i] & 1 == 0:
                vertices[at] = in_keys[i]
                codes[at] = 2 * r + 1
                at += 1
    return vertices, codes
