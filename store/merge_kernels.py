# mypy: disallow-untyped-defs=false
"""Kernels that merge two batches in steps of bounded work; their place is kept in an int64 state between steps.

One unit of fuel pays for about one merged value: a directory row, a value of a side or a code of a vertex.
"""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int32_array, int64_array
from wukongs.store.jit import njit_inline, njit_uncounted
from wukongs.store.layout import (
    CODE_STARTS,
    DIRECTORY_SIZE,
    GRAPHS,
    OFFSETS,
    PREDICATES,
    SIDE_WIDTH,
    SIDES,
    TIMES,
    TRIPLE_COUNT,
    VERTEX_COUNT,
    VERTICES,
)
from wukongs.store.lookup_kernels import code_at, key_range, keys_at, keys_count, values_at

STATE_WIDTH = 7
"""The columns of a state: directory row, key in a, key in b, value in a, value in b, keys written, values written."""
NOT_STARTED = -1
NO_HEAD = 2**63 - 1
"""More than each vertex: inlined literals are odd."""


@njit_uncounted
def merge_directories(a, b, graphs, predicates, rows_a, rows_b, rank_a, rank_b, state, fuel):
    """Merge the directories of two batches, at most `fuel` rows.

    Parameters
    ----------
    a, b : int64[DESCRIPTOR_WIDTH]
    graphs, predicates : int64[...]; rows_a, rows_b : int32[...]    The merged directory, large enough, and the row of a
                                     and of b that each of its rows comes from; -1 for none.
    rank_a, rank_b : int32[...]      The merged row of each row of a and of b.
    state : int64[STATE_WIDTH]       state[1], state[2]: rows read; state[0]: rows written.

    Returns the fuel that is left; done when both inputs are read.
    """
    r, ra, rb = state[0], state[1], state[2]
    n_a, n_b = a[DIRECTORY_SIZE], b[DIRECTORY_SIZE]
    graphs_a, graphs_b = int64_array(a[GRAPHS], n_a), int64_array(b[GRAPHS], n_b)
    predicates_a, predicates_b = int64_array(a[PREDICATES], n_a), int64_array(b[PREDICATES], n_b)
    while (ra < n_a or rb < n_b) and fuel > 0:
        order = 0
        if ra == n_a or rb == n_b:
            order = 1 if ra == n_a else -1
        elif predicates_a[ra] != predicates_b[rb]:
            order = -1 if predicates_a[ra] < predicates_b[rb] else 1
        elif graphs_a[ra] != graphs_b[rb]:
            order = -1 if graphs_a[ra] < graphs_b[rb] else 1
        graphs[r] = graphs_a[ra] if order <= 0 else graphs_b[rb]
        predicates[r] = predicates_a[ra] if order <= 0 else predicates_b[rb]
        rows_a[r] = -1
        rows_b[r] = -1
        if order <= 0:
            rows_a[r] = ra
            rank_a[ra] = r
            ra += 1
        if order >= 0:
            rows_b[r] = rb
            rank_b[rb] = r
            rb += 1
        r += 1
        fuel -= 1
    state[0], state[1], state[2] = r, ra, rb
    return fuel


@njit_uncounted
def copy_values(address, at, n, to, v):
    """Copy n values from position `at` behind an address to to[v:v + n]. Most often it is one: that needs no loop."""
    source = int64_array(address, at + n)
    if n > 0:
        to[v] = source[at]
    for i in range(1, n):
        to[v + i] = source[at + i]


@njit_uncounted
def merge_side(a, b, direction, rows_a, rows_b, key_starts, keys, offsets, values, times, state, fuel):
    """Merge one side of two batches, at most `fuel` values; equal triples become one, with the newer time.

    Parameters
    ----------
    a, b : int64[DESCRIPTOR_WIDTH]
    rows_a, rows_b : int32[n_rows]   The row of a and of b that each merged directory row comes from; -1 for none.
    key_starts, keys, offsets, values, times    The merged side, large enough; times empty where none are kept.
    state : int64[STATE_WIDTH]       Where the last step stopped; zeros with NOT_STARTED for keys and values at first.

    Returns
    -------
    fuel : int64                     What is left; the side is done when state[0] == n_rows.

    Cost: a comparison a value where both batches have the key, else a copy. Source: shared arrangements, 4.2
    (amortised merging).
    """
    r, ka, kb, va, vb, k, v = state[0], state[1], state[2], state[3], state[4], state[5], state[6]
    side = SIDES + direction * SIDE_WIDTH
    keys_a = int64_array(keys_at(a, direction), keys_count(a, direction))
    keys_b = int64_array(keys_at(b, direction), keys_count(b, direction))
    offsets_a = int32_array(a[side + OFFSETS], keys_a.size + 1)
    offsets_b = int32_array(b[side + OFFSETS], keys_b.size + 1)
    values_at_a, values_at_b = values_at(a, direction), values_at(b, direction)
    values_a = int64_array(values_at_a, a[TRIPLE_COUNT])
    values_b = int64_array(values_at_b, b[TRIPLE_COUNT])
    timed = times.size > 0
    times_a = int64_array(a[TIMES], a[TRIPLE_COUNT] if timed else 0)
    times_b = int64_array(b[TIMES], b[TRIPLE_COUNT] if timed else 0)
    key_starts[0] = 0
    while r < rows_a.size and fuel > 0:
        lo_a, hi_a = key_range(a, direction, rows_a[r]) if rows_a[r] >= 0 else (np.int64(0), np.int64(0))
        lo_b, hi_b = key_range(b, direction, rows_b[r]) if rows_b[r] >= 0 else (np.int64(0), np.int64(0))
        if ka == NOT_STARTED:
            ka, kb = lo_a, lo_b
        while (ka < hi_a or kb < hi_b) and fuel > 0:
            key_a = keys_a[ka] if ka < hi_a else keys_b[kb]
            key_b = keys_b[kb] if kb < hi_b else key_a
            from_a = (ka < hi_a) & (key_a <= key_b)
            from_b = (kb < hi_b) & (key_b <= key_a)
            if va == NOT_STARTED:
                keys[k] = min(key_a, key_b)
                offsets[k] = v
                va = np.int64(offsets_a[ka]) if from_a else np.int64(0)
                vb = np.int64(offsets_b[kb]) if from_b else np.int64(0)
            end_a = np.int64(offsets_a[ka + 1]) if from_a else np.int64(0)
            end_b = np.int64(offsets_b[kb + 1]) if from_b else np.int64(0)
            if from_a and from_b:
                while va < end_a and vb < end_b and fuel > 0:
                    value_a = values_a[va]
                    value_b = values_b[vb]
                    values[v] = min(value_a, value_b)
                    if timed:
                        newest_a = times_a[va] if value_a <= value_b else times_b[vb]
                        newest_b = times_b[vb] if value_b <= value_a else times_a[va]
                        times[v] = max(newest_a, newest_b)
                    va += value_a <= value_b
                    vb += value_b <= value_a
                    v += 1
                    fuel -= 1
            if (va == end_a) != (vb == end_b):
                # One batch has the rest of the values. Which one is random: chosen without a branch.
                rest_a = va < end_a
                at = va if rest_a else vb
                n = min((end_a if rest_a else end_b) - at, fuel)
                copy_values(values_at_a if rest_a else values_at_b, at, n, values, v)
                if timed:
                    copy_values(a[TIMES] if rest_a else b[TIMES], at, n, times, v)
                va += n if rest_a else 0
                vb += 0 if rest_a else n
                v += n
                fuel -= n
            if va == end_a and vb == end_b:
                ka += from_a
                kb += from_b
                k += 1
                va = np.int64(NOT_STARTED)
                vb = np.int64(NOT_STARTED)
        if ka >= hi_a and kb >= hi_b:
            r += 1
            key_starts[r] = k
            ka = np.int64(NOT_STARTED)
            kb = np.int64(NOT_STARTED)
    if va == NOT_STARTED:
        offsets[k] = v
    state[0], state[1], state[2], state[3], state[4], state[5], state[6] = r, ka, kb, va, vb, k, v
    return fuel


@njit_uncounted
def merge_vertices(a, b, rank_a, rank_b, vertices, starts, codes, state, fuel):
    """Merge the vertex indexes of two batches, at most about `fuel` codes.

    rank_a, rank_b : int32[...]      The merged directory row of each row of a and of b.
    vertices : int64[...]; starts : int32[...]; codes : uint16[...] or int32[...], large enough.
    state : int64[STATE_WIDTH]       state[1], state[2]: vertices read; state[3], state[4]: codes read of the vertex
                                     under way, NOT_STARTED at first; state[5], state[6]: vertices and codes written.

    Returns the fuel that is left; done when both inputs are read.
    """
    ka, kb, at_a, at_b, k, v = state[1], state[2], state[3], state[4], state[5], state[6]
    n_a, n_b = a[VERTEX_COUNT], b[VERTEX_COUNT]
    vertices_a, vertices_b = int64_array(a[VERTICES], n_a), int64_array(b[VERTICES], n_b)
    starts_a, starts_b = int32_array(a[CODE_STARTS], n_a + 1), int32_array(b[CODE_STARTS], n_b + 1)
    none = np.int64(1) << 40
    while (ka < n_a or kb < n_b) and fuel > 0:
        from_a = ka < n_a and (kb >= n_b or vertices_a[ka] <= vertices_b[kb])
        from_b = kb < n_b and (ka >= n_a or vertices_b[kb] <= vertices_a[ka])
        end_a = np.int64(starts_a[ka + 1]) if from_a else np.int64(0)
        end_b = np.int64(starts_b[kb + 1]) if from_b else np.int64(0)
        if at_a == NOT_STARTED:
            vertices[k] = vertices_a[ka] if from_a else vertices_b[kb]
            starts[k] = v
            at_a = np.int64(starts_a[ka]) if from_a else np.int64(0)
            at_b = np.int64(starts_b[kb]) if from_b else np.int64(0)
        while (at_a < end_a or at_b < end_b) and fuel > 0:
            code_a = code_at(a, at_a) if at_a < end_a else none
            code_b = code_at(b, at_b) if at_b < end_b else none
            moved_a = 2 * rank_a[code_a >> 1] + (code_a & 1) if code_a != none else none
            moved_b = 2 * rank_b[code_b >> 1] + (code_b & 1) if code_b != none else none
            codes[v] = min(moved_a, moved_b)
            at_a += moved_a <= moved_b
            at_b += moved_b <= moved_a
            v += 1
            fuel -= 1
        if at_a == end_a and at_b == end_b:
            ka += from_a
            kb += from_b
            k += 1
            at_a = np.int64(NOT_STARTED)
            at_b = np.int64(NOT_STARTED)
    if at_a == NOT_STARTED:
        starts[k] = v
    state[1], state[2], state[3], state[4], state[5], state[6] = ka, kb, at_a, at_b, k, v
    return fuel


@njit_inline
def _head(keys, direction, at, end):
    """Return the next key of a directory row that is listed, and its place; NO_HEAD behind the last one."""
    while direction == 1 and at < end and keys[at] & 1 == 1:
        at += 1
    return (keys[at] if at < end else np.int64(NO_HEAD)), at


@njit_uncounted
def merge_keys(batch, places, heads, ends, vertices, starts, codes, state, fuel):
    """Merge the keys of all directory rows of a batch, of both sides, into a vertex index; at most about `fuel` codes.

    Parameters
    ----------
    batch : int64[DESCRIPTOR_WIDTH]
    places : int64[2 * n_directory]  The next key of each code (2 * directory row + direction); its first one at first.
    heads, ends : int64[2 * n_directory]    Room for the keys at these places, and for where those of each code end.
    vertices : int64[...]; starts : int32[...]; codes : uint16[...] or int32[...], large enough.
    state : int64[3]                 Vertices and codes written, and 1 once that is all.

    Returns
    -------
    fuel : int64                     What is left. Inlined literals, which are not listed, are passed for nothing.

    Cost: a comparison for each code of the batch a vertex, so it is for few directory rows.
    """
    k, v = state[0], state[1]
    outs = int64_array(keys_at(batch, 0), keys_count(batch, 0))
    ins = int64_array(keys_at(batch, 1), keys_count(batch, 1))
    for code in range(places.size):
        ends[code] = key_range(batch, code & 1, code >> 1)[1]
        keys = ins if code & 1 else outs
        heads[code], places[code] = _head(keys, code & 1, places[code], ends[code])
    starts[k] = v
    while state[2] == 0 and fuel > 0:
        vertex = np.int64(NO_HEAD)
        for code in range(places.size):
            vertex = min(vertex, heads[code])
        if vertex == NO_HEAD:
            state[2] = 1
            break
        vertices[k] = vertex
        for code in range(places.size):
            if heads[code] == vertex:
                codes[v] = code
                keys = ins if code & 1 else outs
                heads[code], places[code] = _head(keys, code & 1, places[code] + 1, ends[code])
                v += 1
                fuel -= 1
        k += 1
        starts[k] = v
    state[0], state[1] = k, v
    return max(fuel, np.int64(0))
