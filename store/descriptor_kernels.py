# mypy: disallow-untyped-defs=false
"""The kernel that notes in the descriptor of a batch where its columns lie (store/layout.py)."""

from __future__ import annotations

from wukongs.store.jit import njit
from wukongs.store.layout import (
    CODE_BYTES,
    CODE_STARTS,
    CODES,
    DIRECTORY_SIZE,
    FENCE_SHIFTS,
    FENCE_STARTS,
    FENCES,
    GRAPHS,
    KEY_STARTS,
    KEYS,
    OFFSETS,
    PREDICATES,
    SIDE_WIDTH,
    SIDES,
    TIMES,
    TRIPLE_COUNT,
    VALUES,
    VERTEX_COUNT,
    VERTEX_FENCE,
    VERTICES,
)


@njit
def write_descriptor(
    descriptor,
    graphs,
    predicates,
    out_starts,
    out_keys,
    out_offsets,
    out_values,
    out_fence_starts,
    out_shifts,
    out_fences,
    in_starts,
    in_keys,
    in_offsets,
    in_values,
    in_fence_starts,
    in_shifts,
    in_fences,
    vertices,
    code_starts,
    codes,
    fence,
    times,
):
    """Note where the columns of a batch lie. One call: Python takes a microsecond for each address.

    descriptor : int64[DESCRIPTOR_WIDTH]; written. The other arguments : the arrays of a batch (store/layout.py).
    """
    descriptor[DIRECTORY_SIZE] = graphs.size
    descriptor[GRAPHS] = graphs.ctypes.data
    descriptor[PREDICATES] = predicates.ctypes.data
    descriptor[SIDES + KEY_STARTS] = out_starts.ctypes.data
    descriptor[SIDES + KEYS] = out_keys.ctypes.data
    descriptor[SIDES + OFFSETS] = out_offsets.ctypes.data
    descriptor[SIDES + VALUES] = out_values.ctypes.data
    descriptor[SIDES + FENCE_STARTS] = out_fence_starts.ctypes.data
    descriptor[SIDES + FENCE_SHIFTS] = out_shifts.ctypes.data
    descriptor[SIDES + FENCES] = out_fences.ctypes.data
    in_side = SIDES + SIDE_WIDTH
    descriptor[in_side + KEY_STARTS] = in_starts.ctypes.data
    descriptor[in_side + KEYS] = in_keys.ctypes.data
    descriptor[in_side + OFFSETS] = in_offsets.ctypes.data
    descriptor[in_side + VALUES] = in_values.ctypes.data
    descriptor[in_side + FENCE_STARTS] = in_fence_starts.ctypes.data
    descriptor[in_side + FENCE_SHIFTS] = in_shifts.ctypes.data
    descriptor[in_side + FENCES] = in_fences.ctypes.data
    descriptor[VERTEX_COUNT] = vertices.size
    descriptor[VERTICES] = vertices.ctypes.data
    descriptor[CODE_STARTS] = code_starts.ctypes.data
    descriptor[CODES] = codes.ctypes.data
    descriptor[CODE_BYTES] = codes.itemsize
    descriptor[VERTEX_FENCE] = fence.ctypes.data
    descriptor[TRIPLE_COUNT] = out_values.size
    descriptor[TIMES] = times.ctypes.data if times.size > 0 else 0
