# mypy: disallow-untyped-defs=false
"""The alternatives to a fence: hash tables over the keys of one directory row."""

from __future__ import annotations

from wukongs.store.jit import njit_uncounted
from wukongs.store.slot_kernels import mix_id, slot_shift


@njit_uncounted
def count_in_positions(keys, slots, probes):
    """Look probes up in a table of entry numbers + 1 (store.slot_kernels.fill_slots); return how many are there."""
    shift = slot_shift(slots)
    mask = slots.size - 1
    found = 0
    for i in range(probes.size):
        slot = mix_id(probes[i]) >> shift
        while slots[slot] != 0:
            if keys[slots[slot] - 1] == probes[i]:
                found += 1
                break
            slot = (slot + 1) & mask
    return found


@njit_uncounted
def fill_pairs(keys, slots):
    """Enter keys and their positions into a table of (key, position) slots; key 0 marks a free one."""
    shift = slot_shift(slots)
    mask = len(slots) - 1
    for position in range(keys.size):
        slot = mix_id(keys[position]) >> shift
        while slots[slot, 0] != 0:
            slot = (slot + 1) & mask
        slots[slot, 0] = keys[position]
        slots[slot, 1] = position


@njit_uncounted
def count_in_pairs(slots, probes):
    """Look probes up in a table of (key, position) slots; return how many are there."""
    shift = slot_shift(slots)
    mask = len(slots) - 1
    found = 0
    for i in range(probes.size):
        slot = mix_id(probes[i]) >> shift
        while slots[slot, 0] != 0:
            if slots[slot, 0] == probes[i]:
                found += 1
                break
            slot = (slot + 1) & mask
    return found
