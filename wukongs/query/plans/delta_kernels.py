# mypy: disallow-untyped-defs=false
"""Kernels of Deltas: until when the matches of a query hold, which are new, and which have ended."""

from __future__ import annotations

from wukongs.query.plans.plan_layout import (
    MEMBER_BATCH_MS,
    MEMBER_COUNT,
    MEMBER_EPOCH,
    MEMBER_OBJECT,
    MEMBER_OBJECT_COLUMN,
    MEMBER_PATTERN,
    MEMBER_RANGE_MS,
    MEMBER_SUBJECT,
    MEMBER_SUBJECT_COLUMN,
    MEMBER_TABLE,
)
from wukongs.store.addresses import int64_table
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.layout import ENTRY_BEFORE, ENTRY_NEWEST, ENTRY_WIDTH, NEVER
from wukongs.store.membership_kernels import entry_of

ALWAYS = 1 << 62


@njit_uncounted
def ends_ms(members, rows, r):
    """Return the first closing at which a match has ended: the least over the patterns, of the latest over the windows
    of a pattern."""
    least = ALWAYS
    m = 0
    while m < members.shape[0]:
        pattern = members[m, MEMBER_PATTERN]
        latest = NEVER
        while m < members.shape[0] and members[m, MEMBER_PATTERN] == pattern:
            member = members[m]
            newest, _ = _times_of(member, rows, r)
            if newest != NEVER:
                latest = max(latest, _left_ms(member, newest))
            m += 1
        least = min(least, latest)
    return least


@njit_uncounted
def _left_ms(member, number):
    """Return the first closing at which a window has left a stream batch behind."""
    return number * member[MEMBER_BATCH_MS] + member[MEMBER_RANGE_MS]


@njit_uncounted
def _times_of(member, rows, r):
    """Return ENTRY_NEWEST and ENTRY_BEFORE of the tuple that a match has in a window."""
    table = int64_table(member[MEMBER_TABLE], member[MEMBER_COUNT], ENTRY_WIDTH)
    subject, object_ = member[MEMBER_SUBJECT], member[MEMBER_OBJECT]
    if member[MEMBER_SUBJECT_COLUMN] >= 0:
        subject = rows[r, member[MEMBER_SUBJECT_COLUMN]]
    if member[MEMBER_OBJECT_COLUMN] >= 0:
        object_ = rows[r, member[MEMBER_OBJECT_COLUMN]]
    at = entry_of(table, subject, object_)
    return table[at, ENTRY_NEWEST], table[at, ENTRY_BEFORE]


@njit_uncounted
def is_known(members, rows, r, plan, before_ms):
    """Tell whether a match that the delta plan of a pattern has found is there already: all of its tuples were there at
    the firing before, or the plan of an earlier pattern has found it, too."""
    was_there = True
    m = 0
    while m < members.shape[0]:
        pattern = members[m, MEMBER_PATTERN]
        was_held = False
        while m < members.shape[0] and members[m, MEMBER_PATTERN] == pattern:
            member = members[m]
            newest, before = _times_of(member, rows, r)
            if newest > member[MEMBER_EPOCH]:
                if pattern < plan:
                    return True
            else:
                before = newest
            if before != NEVER and _left_ms(member, before) > before_ms:
                was_held = True
            m += 1
        was_there = was_there and was_held
    return was_there


@njit
def keep_new(members, rows, plan, before_ms, held, ends, count):
    """Put the matches that a delta plan has found, and that are new, behind those that are held.

    Parameters
    ----------
    members : int64[n, MEMBER_WIDTH], by their patterns; rows : int64[m, width], what the plan of pattern `plan` found.
    before_ms : int                  The firing before.
    held : int64[k, width], ends : int64[k]: the matches that are held, and when they end; written from `count` on.

    Returns the count of those held then."""
    for r in range(rows.shape[0]):
        if not is_known(members, rows, r, plan, before_ms):
            for column in range(rows.shape[1]):
                held[count, column] = rows[r, column]
            ends[count] = ends_ms(members, rows, r)
            count += 1
    return count


@njit
def keep_all(members, rows, held, ends):
    """Hold these matches, and nothing else: as keep_new."""
    for r in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            held[r, column] = rows[r, column]
        ends[r] = ends_ms(members, rows, r)
    return rows.shape[0]


@njit
def drop_ended(members, held, ends, count, at_ms):
    """Drop the matches that have ended by a time; tuples of them may have come again since `ends` was written. Others
    take their places. Returns the count of those held then."""
    r = 0
    while r < count:
        if ends[r] <= at_ms:
            ends[r] = ends_ms(members, held, r)
        if ends[r] > at_ms:
            r += 1
            continue
        count -= 1
        ends[r] = ends[count]
        for column in range(held.shape[1]):
            held[r, column] = held[count, column]
    return count
