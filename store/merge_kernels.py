# mypy: disallow-untyped-defs=false
"""Kernels that merge two batches in steps of bounded work; their place is kept in an int64 state between steps."""

from __future__ import annotations

import numpy as np

from store.addresses import int64_array
from store.jit import njit
from store.layout import TIMES, TRIPLE_COUNT, VERTEX_COUNT, VERTICES
from store.lookup_kernels import code_at, code_range, key_range, side_keys, side_values, value_range

STATE_WIDTH = 7
"""Directory row, key in a, key in b, value in a, value in b, keys written, values written."""
NOT_STARTED = -1


@njit
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

    Source: shared arrangements, 4.2 (amortised merging).
    """
    r, ka, kb, va, vb, k, v = state[0], state[1], state[2], state[3], state[4], state[5], state[6]
    keys_a = side_keys(a, direction)
    keys_b = side_keys(b, direction)
    values_a = side_values(a, direction, a[TRIPLE_COUNT])
    values_b = side_values(b, direction, b[TRIPLE_COUNT])
    timed = times.size > 0
    times_a = int64_array(a[TIMES], a[TRIPLE_COUNT] if timed else 0)
    times_b = int64_array(b[TIMES], b[TRIPLE_COUNT] if timed else 0)
    while r < rows_a.size and fuel > 0:
        lo_a, hi_a = key_range(a, direction, rows_a[r]) if rows_a[r] >= 0 else (np.int64(0), np.int64(0))
        lo_b, hi_b = key_range(b, direction, rows_b[r]) if rows_b[r] >= 0 else (np.int64(0), np.int64(0))
        if ka == NOT_STARTED:
            ka, kb = lo_a, lo_b
        while (ka < hi_a or kb < hi_b) and fuel > 0:
            from_a = ka < hi_a and (kb >= hi_b or keys_a[ka] <= keys_b[kb])
            from_b = kb < hi_b and (ka >= hi_a or keys_b[kb] <= keys_a[ka])
            start_a, end_a = value_range(a, direction, ka) if from_a else (np.int64(0), np.int64(0))
            start_b, end_b = value_range(b, direction, kb) if from_b else (np.int64(0), np.int64(0))
            if va == NOT_STARTED:
                keys[k] = keys_a[ka] if from_a else keys_b[kb]
                offsets[k] = v
                va, vb = start_a, start_b
            while (va < end_a or vb < end_b) and fuel > 0:
                take_a = va < end_a and (vb >= end_b or values_a[va] <= values_b[vb])
                take_b = vb < end_b and (va >= end_a or values_b[vb] <= values_a[va])
                values[v] = values_a[va] if take_a else values_b[vb]
                if timed:
                    newest_a = times_a[va] if take_a else times_b[vb]
                    newest_b = times_b[vb] if take_b else newest_a
                    times[v] = max(newest_a, newest_b)
                va += 1 if take_a else 0
                vb += 1 if take_b else 0
                v += 1
                fuel -= 1
            if va >= end_a and vb >= end_b:
                ka += 1 if from_a else 0
                kb += 1 if from_b else 0
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


@njit
def merge_vertices(a, b, rank_a, rank_b, vertices, starts, codes, state, fuel):
    """Merge the vertex indexes of two batches, at most about `fuel` codes.

    rank_a, rank_b : int32[...]      The merged directory row of each row of a and of b.
    vertices : int64[...]; starts, codes : int32[...], large enough.
    state : int64[STATE_WIDTH]       state[1], state[2]: vertices read; state[5], state[6]: vertices and codes written.

    Returns the fuel that is left; done when both inputs are read.
    """
    ka, kb, k, v = state[1], state[2], state[5], state[6]
    vertices_a = int64_array(a[VERTICES], a[VERTEX_COUNT])
    vertices_b = int64_array(b[VERTICES], b[VERTEX_COUNT])
    while (ka < vertices_a.size or kb < vertices_b.size) and fuel > 0:
        from_a = ka < vertices_a.size and (kb >= vertices_b.size or vertices_a[ka] <= vertices_b[kb])
        from_b = kb < vertices_b.size and (ka >= vertices_a.size or vertices_b[kb] <= vertices_a[ka])
        vertex = vertices_a[ka] if from_a else vertices_b[kb]
        at_a, end_a = code_range(a, vertex) if from_a else (np.int64(0), np.int64(0))
        at_b, end_b = code_range(b, vertex) if from_b else (np.int64(0), np.int64(0))
        vertices[k] = vertex
        starts[k] = v
        while at_a < end_a or at_b < end_b:
            none = np.int64(1) << 40
            code_a = code_at(a, at_a) if at_a < end_a else none
            code_b = code_at(b, at_b) if at_b < end_b else none
            moved_a = 2 * rank_a[code_a >> 1] + (code_a & 1) if code_a != none else none
            moved_b = 2 * rank_b[code_b >> 1] + (code_b & 1) if code_b != none else none
            codes[v] = min(moved_a, moved_b)
            at_a += 1 if moved_a <= moved_b else 0
            at_b += 1 if moved_b <= moved_a else 0
            v += 1
            fuel -= 1
        ka += 1 if from_a else 0
        kb += 1 if from_b else 0
        k += 1
    starts[k] = v
    state[1], state[2], state[5], state[6] = ka, kb, k, v
    return max(fuel, 0)
