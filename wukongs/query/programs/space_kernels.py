# mypy: disallow-untyped-defs=false
"""Kernels that allocate cells of a program's arena, for tables and hash tables."""

from __future__ import annotations

import numpy as np

from wukongs.query.programs.program_layout import (
    PROGRAM_ARENA,
    PROGRAM_CELLS,
    PROGRAM_MISSED_AT,
    PROGRAM_USED,
    TABLE_ADDRESS,
    TABLE_COLUMNS,
    TABLE_ROWS,
)
from wukongs.store.addresses import int64_array
from wukongs.store.jit import njit_uncounted


@njit_uncounted
def take_cells(head, cells):
    """Allocate cells of the arena; return their address, -1 if it is full."""
    used = head[PROGRAM_USED]
    if used + cells > head[PROGRAM_CELLS]:
        return np.int64(-1)
    head[PROGRAM_USED] = used + cells
    return head[PROGRAM_ARENA] + 8 * used


@njit_uncounted
def table_for(head, table, rows, columns):
    """Allocate a table, and write its entry. Returns False if the arena is full."""
    address = take_cells(head, rows * columns)
    table[TABLE_ADDRESS] = address
    table[TABLE_ROWS] = rows
    table[TABLE_COLUMNS] = columns
    return address >= 0


@njit_uncounted
def slots_for(head, count):
    """Allocate the slots of a hash table for `count` entries, all -1.

    Returns their address, -1 if the arena is full, and their number: a power of two, at least twice the entries."""
    size = np.int64(8)
    while size < 2 * count:
        size *= 2
    address = take_cells(head, size)
    if address >= 0:
        slots = int64_array(address, size)
        for i in range(size):
            slots[i] = -1
    return address, size


@njit_uncounted
def add_missed_key(head, missed, row, columns):
    """Append a missing key, row[columns]; return the number of missing keys, -1 if the arena is full."""
    address = take_cells(head, columns.shape[0])
    if address < 0:
        return np.int64(-1)
    if missed == 0:
        head[PROGRAM_MISSED_AT] = address
    cells = int64_array(address, columns.shape[0])
    for k in range(columns.shape[0]):
        cells[k] = row[columns[k]]
    return missed + 1
