# mypy: disallow-untyped-defs=false
"""Kernels of CountedRows: a hash table of rows that come and go, with how often each is there.

A distinct row has a slot in dense arrays as long as it is there, and then stands in an open-addressing index that is at
most half full. Of the arrays that all kernels share:

keys : int64[n_slots, n_columns]    The row of each slot.
counts : int64[n_slots]             How often it is there; 0: the slot is free.
index : int64[power of two]         A slot, or -1.
free : int64[n_slots]               Slots that were used and are free: the first state[FREE].
state : int64[STATE_WIDTH]
"""

from __future__ import annotations

from wukongs.query.rows_kernels import hash_row, rows_equal
from wukongs.store.jit import njit

FREE, USED, TOUCHED, MOVE = range(4)
"""The state: how many slots are in `free`, how many have ever been used, how many rows the move under way has
touched, and the number of that move."""
STATE_WIDTH = 4


@njit
def move_some(rows, weights, start, stop, keys, counts, index, free, state, moves, slots, touched, before):
    """Count some rows.

    Parameters
    ----------
    rows : int64[n, n_columns]
    weights : int64[n]              How much more often each is there; no row is ever there less than never.
    moves : int64[n_slots]          The last move that has touched each slot.
    slots : int64[n]                Written: the slot of each row.
    touched, before : int64[n]      Written from state[TOUCHED] on: distinct slots, and how often their rows were there.

    There are slots and an index for all rows that have weights above 0. Return False if one with a weight below 0 needs
    a slot that is not there. Cost: one probe sequence per row."""
    mask = index.shape[0] - 1
    for row in range(start, stop):
        at = hash_row(rows.T, row) & mask
        while index[at] >= 0 and not rows_equal(keys.T, index[at], rows.T, row):
            at = (at + 1) & mask
        slot = index[at]
        if slot < 0:
            if state[FREE] > 0:
                state[FREE] -= 1
                slot = free[state[FREE]]
            else:
                slot = state[USED]
                if slot == counts.shape[0]:  # the rows are not those that were counted before
                    return False
                state[USED] += 1
            index[at] = slot
            for column in range(rows.shape[1]):
                keys[slot, column] = rows[row, column]
        if moves[slot] != state[MOVE]:
            moves[slot] = state[MOVE]
            touched[state[TOUCHED]] = slot
            before[state[TOUCHED]] = counts[slot]
            state[TOUCHED] += 1
        counts[slot] += weights[row]
        slots[row] = slot
    return True


@njit
def free_gone(touched, keys, counts, index, free, state):
    """Free the touched slots whose rows are there no more; their keys can be read until the next move.

    Rows that stand behind one in the index, and would be nearer to their own places in its stead, move up."""
    mask = index.shape[0] - 1
    for i in range(state[TOUCHED]):
        slot = touched[i]
        if counts[slot] != 0:
            continue
        free[state[FREE]] = slot
        state[FREE] += 1
        hole = hash_row(keys.T, slot) & mask
        while index[hole] != slot:
            hole = (hole + 1) & mask
        at = (hole + 1) & mask
        while index[at] >= 0:
            if (at - hash_row(keys.T, index[at])) & mask >= (at - hole) & mask:
                index[hole] = index[at]
                hole = at
            at = (at + 1) & mask
        index[hole] = -1


@njit
def fill_index(keys, counts, index, used):
    """Enter all rows that are there into an empty index. used: how many slots have ever been used."""
    mask = index.shape[0] - 1
    for slot in range(used):
        if counts[slot] != 0:
            at = hash_row(keys.T, slot) & mask
            while index[at] >= 0:
                at = (at + 1) & mask
            index[at] = slot
