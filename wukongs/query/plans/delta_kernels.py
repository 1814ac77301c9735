# mypy: disallow-untyped-defs=false
"""Kernels of Deltas: until when the matches of a query hold, which are new, and which have ended."""

from __future__ import annotations

import numpy as np

from wukongs.query.plans.compiled_kernels import run_call
from wukongs.query.plans.plan_layout import (
    CALL_OUT,
    CALL_PLAN,
    MEMBER_AT_MS,
    MEMBER_BATCH_MS,
    MEMBER_BEFORE,
    MEMBER_COMES,
    MEMBER_GRAPH,
    MEMBER_HEAD,
    MEMBER_IS_SURE,
    MEMBER_LAST_OBJECT,
    MEMBER_LAST_SUBJECT,
    MEMBER_NEWEST,
    MEMBER_OBJECT,
    MEMBER_OBJECT_COLUMN,
    MEMBER_PATTERN,
    MEMBER_PREDICATE,
    MEMBER_RANGE_MS,
    MEMBER_SINCE,
    MEMBER_STORED,
    MEMBER_SUBJECT,
    MEMBER_SUBJECT_COLUMN,
    MEMBER_WINDOWS,
    PLAN_COLUMNS,
    PLAN_HEAD,
)
from wukongs.store.addresses import int64_array, int64_table
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.layout import MEMBERSHIP_EPOCH, MEMBERSHIP_WIDTH, NEVER
from wukongs.store.membership_kernels import may_have_come_again, times_of
from wukongs.store.window_table_kernels import window_holds

ALWAYS = 1 << 62
NO_PLAN = -1


@njit_uncounted
def subject_of(member, rows, r):
    """Return the subject of the tuple that a match has in a window."""
    column = member[MEMBER_SUBJECT_COLUMN]
    return rows[r, column] if column >= 0 else member[MEMBER_SUBJECT]


@njit_uncounted
def object_of(member, rows, r):
    """Return its object."""
    column = member[MEMBER_OBJECT_COLUMN]
    return rows[r, column] if column >= 0 else member[MEMBER_OBJECT]


@njit_uncounted
def end_ms(members, rows, r, plan, before_ms):
    """Return the first closing at which a match has ended: the least over the patterns, of the latest over the windows
    of a pattern. NEVER for a match that the delta plan of a pattern has found although it is there already: all of its
    tuples were there at the firing before, or the plan of an earlier pattern has found it, too, or that of this one is
    not new (what came to the stored graph may stand as it was at an earlier firing).

    plan: NO_PLAN if it is not asked whether the match is there already."""
    least = ALWAYS
    was_there, is_own = True, False
    m = 0
    while m < members.shape[0]:
        pattern = members[m, MEMBER_PATTERN]
        latest = NEVER
        was_held = False
        while m < members.shape[0] and members[m, MEMBER_PATTERN] == pattern:
            member = members[m]
            _look_up(member, rows, r)
            newest, before = member[MEMBER_NEWEST], member[MEMBER_BEFORE]
            m += 1
            if member[MEMBER_HEAD] == 0:
                is_new = newest > before
            else:
                epoch = int64_array(member[MEMBER_HEAD], MEMBERSHIP_WIDTH)[MEMBERSHIP_EPOCH]
                # One that has come and gone in between is not among what is new, and may be stored since long ago.
                is_new = newest > epoch and _left_ms(member, newest) > member[MEMBER_AT_MS]
            if is_new and pattern < plan:
                return NEVER
            is_own = is_own or (is_new and pattern == plan)
            if member[MEMBER_HEAD] == 0:
                if newest == 1:
                    latest = ALWAYS
                was_held = was_held or before == 1
                continue
            if newest != NEVER:
                latest = max(latest, _left_ms(member, newest))
            if before != NEVER and _left_ms(member, before) > before_ms:
                was_held = True
        was_there = was_there and was_held
        least = min(least, latest)
    return NEVER if plan != NO_PLAN and (was_there or not is_own) else least


@njit_uncounted
def _look_up(member, rows, r):
    """Write down when the tuple that a match has in a window has come last. Matches that follow each other share
    some."""
    subject, object_ = subject_of(member, rows, r), object_of(member, rows, r)
    if member[MEMBER_LAST_SUBJECT] != subject or member[MEMBER_LAST_OBJECT] != object_:
        if member[MEMBER_HEAD] == 0:
            is_new = member[MEMBER_COMES] == 1 and _is_in(member, MEMBER_SINCE, subject, object_)
            is_there = is_new or member[MEMBER_IS_SURE] == 1 or _is_in(member, MEMBER_STORED, subject, object_)
            newest, before = np.int64(is_there), np.int64(is_there and not is_new)
        else:
            newest, before = times_of(member[MEMBER_HEAD], subject, object_)
        member[MEMBER_LAST_SUBJECT] = subject
        member[MEMBER_LAST_OBJECT] = object_
        member[MEMBER_NEWEST] = newest
        member[MEMBER_BEFORE] = before


@njit_uncounted
def _is_in(member, column, subject, object_):
    """Tell whether a tuple is in the stored graph, or in what came since the firing before."""
    return window_holds(
        member[MEMBER_WINDOWS], member[column], member[MEMBER_GRAPH], member[MEMBER_PREDICATE], subject, object_
    )


@njit_uncounted
def _left_ms(member, number):
    """Return the first closing at which a window has left a stream batch behind."""
    return number * member[MEMBER_BATCH_MS] + member[MEMBER_RANGE_MS]


@njit_uncounted
def _start(members):
    """Forget what was looked up at another firing."""
    for m in range(members.shape[0]):
        members[m, MEMBER_LAST_SUBJECT] = -1


@njit_uncounted
def _keep(members, rows, columns, plan, before_ms, held, ends, count):
    """Put the matches that a plan has found, and that are new, behind those that are held; return their count then."""
    for r in range(rows.shape[0]):
        for column in range(columns.shape[0]):
            held[count, column] = rows[r, columns[column]]
        ends[count] = end_ms(members, held, count, plan, before_ms)
        if ends[count] != NEVER:
            count += 1
    return count


@njit
def keep(members, rows, columns, plan, before_ms, held, ends, count):
    """Put the matches that a plan has found, and that are new, behind those that are held.

    Parameters
    ----------
    members : int64[n, MEMBER_WIDTH], by their patterns; rows : int64[m, any width], what the plan has found; columns :
        int64[at most width], the column of `rows` for each of the first columns of a match, others stay.
    plan : int                       The pattern whose delta plan it is; NO_PLAN: all matches are new.
    before_ms : int                  The firing before.
    held : int64[k, width], ends : int64[k]: the matches that are held, and when they end; written from `count` on, with
        room for all, and for one more.

    Returns the count of those held then."""
    _start(members)
    return _keep(members, rows, columns, plan, before_ms, held, ends, count)


@njit
def go_on(calls, plans, columns, first, members, before_ms, held, ends, count):
    """Run the delta plans from `first` on, and keep what is new, as `keep` does.

    Parameters
    ----------
    calls : int64[n, CALL_WIDTH]; one without a plan finds nothing.
    plans : int64[n], their patterns; columns : int64[n, at most width], as for `keep`.

    Returns how many plans are done and the count of the matches that are held then. Plans are left if the next one did
    not end with DONE, or has found more than there is room for: it has to be run in another way."""
    _start(members)
    for i in range(first, calls.shape[0]):
        if calls[i, CALL_PLAN] == 0:
            continue
        found = run_call(calls[i])
        if found < 0 or count + found >= ends.shape[0]:
            return i, count
        width = int64_array(calls[i, CALL_PLAN], PLAN_HEAD)[PLAN_COLUMNS]
        rows = int64_table(calls[i, CALL_OUT], found, width)
        count = _keep(members, rows, columns[i], plans[i], before_ms, held, ends, count)
    return calls.shape[0], count


@njit
def drop_ended(members, held, ends, count, at_ms):
    """Drop the matches that have ended by a time; tuples of them may have come again since `ends` was written. They
    change places with others, so that they stand behind those that are held. Returns the count of these."""
    _start(members)
    r = 0
    while r < count:
        if ends[r] <= at_ms and _may_go_on(members, held, r):
            ends[r] = end_ms(members, held, r, NO_PLAN, ALWAYS)
        if ends[r] > at_ms:
            r += 1
            continue
        count -= 1
        ends[r] = ends[count]
        for column in range(held.shape[1]):
            ended = held[r, column]
            held[r, column] = held[count, column]
            held[count, column] = ended
    return count


@njit_uncounted
def _may_go_on(members, rows, r):
    """Tell whether a tuple of a match may have come again, or may have come elsewhere."""
    for m in range(members.shape[0]):
        member = members[m]
        if member[MEMBER_IS_SURE] == 0:
            return True
        if member[MEMBER_HEAD] != 0:
            subject, object_ = subject_of(member, rows, r), object_of(member, rows, r)
            if may_have_come_again(member[MEMBER_HEAD], subject, object_):
                return True
    return False
