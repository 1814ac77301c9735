# mypy: disallow-untyped-defs=false
"""Kernels of Membership: a hash table of tuples, with the stream batches that brought them last."""

from __future__ import annotations

from wukongs.store.addresses import int64_array
from wukongs.store.dtypes import WINDOW_GRAPH
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.layout import ENTRY_BEFORE, ENTRY_NEWEST, ENTRY_OBJECT, ENTRY_SUBJECT, NEVER
from wukongs.store.lookup_kernels import directory_row, key_range, keys_at, value_range, values_at
from wukongs.store.slot_kernels import mix_id


@njit_uncounted
def entry_of(table, subject, object_):
    """Return the row of a tuple's entry, or of the free one in which it would be.

    table : int64[2 ** n, ENTRY_WIDTH], n < 32, with a free row."""
    last = table.shape[0] - 1
    at = (mix_id(subject ^ (mix_id(object_) << 15)) * table.shape[0]) >> 32
    while table[at, ENTRY_NEWEST] != NEVER and (
        table[at, ENTRY_SUBJECT] != subject or table[at, ENTRY_OBJECT] != object_
    ):
        at = (at + 1) & last
    return at


@njit
def count_tuples(descriptor, predicate):
    """Return how many tuples of a predicate a slice has."""
    row = directory_row(descriptor, predicate, WINDOW_GRAPH)
    if row < 0:
        return 0
    lo, hi = key_range(descriptor, 0, row)
    return 0 if lo == hi else value_range(descriptor, 0, hi - 1)[1] - value_range(descriptor, 0, lo)[0]


@njit
def note_slice(table, descriptor, predicate, number, epoch):
    """Note the tuples of a predicate in the slice of a stream batch, the newest so far.

    table : int64[2 ** n, ENTRY_WIDTH], with room for all of them. epoch: what came last up to this stream batch is kept
    as ENTRY_BEFORE. Returns how many have come for the first time."""
    row = directory_row(descriptor, predicate, WINDOW_GRAPH)
    if row < 0:
        return 0
    lo, hi = key_range(descriptor, 0, row)
    if lo == hi:
        return 0
    keys = int64_array(keys_at(descriptor, 0), hi)
    values = int64_array(values_at(descriptor, 0), value_range(descriptor, 0, hi - 1)[1])
    count = 0
    for k in range(lo, hi):
        first, end = value_range(descriptor, 0, k)
        for v in range(first, end):
            at = entry_of(table, keys[k], values[v])
            newest = table[at, ENTRY_NEWEST]
            if newest == NEVER:
                table[at, ENTRY_SUBJECT] = keys[k]
                table[at, ENTRY_OBJECT] = values[v]
                table[at, ENTRY_BEFORE] = NEVER
                count += 1
            elif newest <= epoch:
                table[at, ENTRY_BEFORE] = newest
            table[at, ENTRY_NEWEST] = number
    return count


@njit
def copy_entries(table, target, after):
    """Copy the entries of tuples that have come after a stream batch to an empty table; return how many."""
    count = 0
    for i in range(table.shape[0]):
        if table[i, ENTRY_NEWEST] > after:
            at = entry_of(target, table[i, ENTRY_SUBJECT], table[i, ENTRY_OBJECT])
            for column in range(table.shape[1]):
                target[at, column] = table[i, column]
            count += 1
    return count
