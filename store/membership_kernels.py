# mypy: disallow-untyped-defs=false
"""Kernels of Membership: a hash table of tuples, with the stream batches that brought them last."""

from __future__ import annotations

import numpy as np

from wukongs.store.addresses import int64_array, int64_table, prefetch
from wukongs.store.dtypes import WINDOW_GRAPH
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.layout import (
    AGAIN_BITS,
    AGAIN_WORDS,
    DESCRIPTOR_WIDTH,
    ENTRY_BEFORE,
    ENTRY_NEWEST,
    ENTRY_OBJECT,
    ENTRY_SUBJECT,
    ENTRY_WIDTH,
    MEMBERSHIP_AGAIN,
    MEMBERSHIP_COUNT,
    MEMBERSHIP_ENTRIES,
    MEMBERSHIP_EPOCH,
    MEMBERSHIP_WAITING,
    MEMBERSHIP_WAITING_COUNT,
    MEMBERSHIP_WIDTH,
    NEVER,
    WAITING_DESCRIPTOR,
    WAITING_NUMBER,
    WAITING_ROW,
    WAITING_WIDTH,
)
from wukongs.store.lookup_kernels import directory_row, key_range, keys_at, row_has_edge, value_range, values_at
from wukongs.store.slot_kernels import mix_id

ENTRIES_AHEAD = 12
"""The entry of a tuple is fetched when this number of tuples precede it: a large table is in no cache."""


@njit_uncounted
def _mixed(subject, object_):
    """Return 32 bits that depend on all bits of both ids; the top ones are the best."""
    return mix_id(subject ^ (mix_id(object_) << 15))


@njit_uncounted
def _again_bit(subject, object_):
    """Return the bit of a tuple among those that tell which have come again."""
    return _mixed(subject, object_) >> (32 - AGAIN_BITS)


@njit_uncounted
def _has_again_bit(again, subject, object_):
    """Return whether a tuple has its bit, which others may share. again : int64[2, AGAIN_WORDS]."""
    bit = _again_bit(subject, object_)
    return ((again[0, bit >> 6] | again[1, bit >> 6]) >> (bit & 63)) & 1 == 1


@njit_uncounted
def entry_of(table, subject, object_):
    """Return the row of a tuple's entry, or of the free one in which it would be.

    table : int64[2 ** n, ENTRY_WIDTH], n < 32, with a free row."""
    last = table.shape[0] - 1
    at = (_mixed(subject, object_) * table.shape[0]) >> 32
    while table[at, ENTRY_NEWEST] != NEVER and (
        table[at, ENTRY_SUBJECT] != subject or table[at, ENTRY_OBJECT] != object_
    ):
        at = (at + 1) & last
    return at


@njit_uncounted
def times_of(at, subject, object_):
    """Return the last stream batch with a tuple, and the last one up to the epoch; NEVER if there is none.

    at: the address of a Membership's head."""
    head = int64_array(at, MEMBERSHIP_WIDTH)
    table = int64_table(head[MEMBERSHIP_ENTRIES], head[MEMBERSHIP_COUNT], ENTRY_WIDTH)
    entry = entry_of(table, subject, object_)
    newest = table[entry, ENTRY_NEWEST]
    before = newest if newest <= head[MEMBERSHIP_EPOCH] else table[entry, ENTRY_BEFORE]
    return max(newest, _waits_in(head, subject, object_)), before


@njit_uncounted
def _waits_in(head, subject, object_):
    """Return the last slice that waits with a tuple, NEVER if none has it."""
    waiting = int64_table(head[MEMBERSHIP_WAITING], head[MEMBERSHIP_WAITING_COUNT], WAITING_WIDTH)
    for i in range(waiting.shape[0] - 1, -1, -1):
        descriptor = int64_array(waiting[i, WAITING_DESCRIPTOR], DESCRIPTOR_WIDTH)
        if row_has_edge(descriptor, waiting[i, WAITING_ROW], subject, object_):
            return waiting[i, WAITING_NUMBER]
    return NEVER


@njit_uncounted
def may_have_come_again(at, subject, object_):
    """Tell whether a tuple may have come again of late: True for each that has.

    at: the address of a Membership's head."""
    head = int64_array(at, MEMBERSHIP_WIDTH)
    again = int64_table(head[MEMBERSHIP_AGAIN], 2, AGAIN_WORDS)
    if _has_again_bit(again, subject, object_):
        return True
    return _waits_in(head, subject, object_) != NEVER


@njit
def count_tuples(descriptor, predicate):
    """Return how many tuples of a predicate a slice has."""
    row = directory_row(descriptor, predicate, WINDOW_GRAPH)
    if row < 0:
        return 0
    lo, hi = key_range(descriptor, 0, row)
    return 0 if lo == hi else value_range(descriptor, 0, hi - 1)[1] - value_range(descriptor, 0, lo)[0]


@njit
def _tuples_of(descriptor, predicate):
    """Return the subjects and objects of a predicate in a slice, int64[n, 2]."""
    row = directory_row(descriptor, predicate, WINDOW_GRAPH)
    rows = np.empty((count_tuples(descriptor, predicate), 2), np.int64)
    if rows.shape[0] == 0:
        return rows
    lo, hi = key_range(descriptor, 0, row)
    begin, end = value_range(descriptor, 0, lo)[0], value_range(descriptor, 0, hi - 1)[1]
    keys, values = int64_array(keys_at(descriptor, 0), hi), int64_array(values_at(descriptor, 0), end)
    for k in range(lo, hi):
        first, last = value_range(descriptor, 0, k)
        for v in range(first, last):
            rows[v - begin, 0] = keys[k]
            rows[v - begin, 1] = values[v]
    return rows


@njit_uncounted
def _fetch_entry(table, subject, object_):
    """Prefetch the entry of a tuple."""
    prefetch(table, ((_mixed(subject, object_) * table.shape[0]) >> 32) * ENTRY_WIDTH)


@njit
def note_slice(table, again, descriptor, predicate, number, epoch):
    """Note the tuples of a predicate in the slice of a stream batch, the newest so far.

    table : int64[2 ** n, ENTRY_WIDTH], with room for all of them; again : int64[AGAIN_WORDS], the bits of those that
    come again. epoch: what came last up to this stream batch is kept as ENTRY_BEFORE.

    Returns the number of new entries, and the last stream batch up to the epoch with each tuple, int64[m]."""
    rows = _tuples_of(descriptor, predicate)
    befores = np.empty(rows.shape[0], np.int64)
    count = 0
    for r in range(rows.shape[0]):
        if r + ENTRIES_AHEAD < rows.shape[0]:
            _fetch_entry(table, rows[r + ENTRIES_AHEAD, 0], rows[r + ENTRIES_AHEAD, 1])
        subject, object_ = rows[r, 0], rows[r, 1]
        at = entry_of(table, subject, object_)
        newest = table[at, ENTRY_NEWEST]
        if newest == NEVER:
            table[at, ENTRY_SUBJECT] = subject
            table[at, ENTRY_OBJECT] = object_
            table[at, ENTRY_BEFORE] = NEVER
            count += 1
        else:
            bit = _again_bit(subject, object_)
            again[bit >> 6] |= np.int64(1) << (bit & 63)
            if newest <= epoch:
                table[at, ENTRY_BEFORE] = newest
        table[at, ENTRY_NEWEST] = number
        befores[r] = table[at, ENTRY_BEFORE]
    return count, befores


@njit
def arrived_in(table, descriptor, predicate, number, after, befores):
    """Return the tuples of a predicate in a slice that are in no slice between `after` and the epoch.

    Parameters
    ----------
    table : int64[2 ** n, ENTRY_WIDTH]     It knows all slices up to this one, and those behind the epoch are new.
    number, after : int                    Stream batches: that of the slice, and one before the epoch.
    befores : int64[n]                     As note_slice has returned it, if no slice behind this one is known; else
                                           empty.

    Returns int64[m, 2]. A tuple that is in a later slice, too, belongs to the last one."""
    rows = _tuples_of(descriptor, predicate)
    count = 0
    for r in range(rows.shape[0]):
        if befores.shape[0] > 0:
            is_new = befores[r] <= after
        else:
            at = entry_of(table, rows[r, 0], rows[r, 1])
            is_new = table[at, ENTRY_NEWEST] == number and table[at, ENTRY_BEFORE] <= after
        if is_new:
            rows[count, 0] = rows[r, 0]
            rows[count, 1] = rows[r, 1]
            count += 1
    return rows[:count]


@njit
def expired_in(table, again, descriptor, predicate, number):
    """Return the tuples of a predicate in a slice that are in no later slice, int64[m, 2].

    table : int64[2 ** n, ENTRY_WIDTH]; again : int64[2, AGAIN_WORDS], the bits of tuples that have come again; number:
    the stream batch of the slice. No slice waits."""
    rows = _tuples_of(descriptor, predicate)
    count = 0
    for r in range(rows.shape[0]):
        subject, object_ = rows[r, 0], rows[r, 1]
        may_be_later = _has_again_bit(again, subject, object_)
        if not may_be_later or table[entry_of(table, subject, object_), ENTRY_NEWEST] <= number:
            rows[count, 0] = subject
            rows[count, 1] = object_
            count += 1
    return rows[:count]


@njit
def drop_entries(table, after):
    """Delete the entries of tuples that did not arrive after a stream batch, in place; return how many are left.

    Each entry is taken out and inserted again, in the order of the table from behind a free one, so that it moves up to
    where deleted ones were."""
    size = table.shape[0]
    start = 0
    while table[start, ENTRY_NEWEST] != NEVER:
        start += 1
    count = 0
    for i in range(start + 1, start + size):
        at = i & (size - 1)
        newest = table[at, ENTRY_NEWEST]
        if newest == NEVER:
            continue
        subject, object_, before = table[at, ENTRY_SUBJECT], table[at, ENTRY_OBJECT], table[at, ENTRY_BEFORE]
        table[at, ENTRY_NEWEST] = NEVER
        if newest > after:
            to = entry_of(table, subject, object_)
            table[to, ENTRY_SUBJECT] = subject
            table[to, ENTRY_OBJECT] = object_
            table[to, ENTRY_BEFORE] = before
            table[to, ENTRY_NEWEST] = newest
            count += 1
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
