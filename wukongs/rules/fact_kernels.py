# mypy: disallow_untyped_defs=False
"""Kernels that derive fact by fact: what a few triples that come or go bring, or take away, by rules that are triple
patterns alone.

A *way* leads from a triple that matches one pattern of a rule, by steps, to a triple that another pattern becomes. A
step is a triple pattern that by then has its predicate bound, and its subject or its object: so it is a look-up of one
key, which binds at most one variable more.

Shapes, the same in all kernels:

patterns : int64[n, PATTERN_WIDTH]   graph; then subject, predicate, object: an id, or ~v for variable v.
steps : int64[n, 2]                  A pattern, and its mode.
ways : int64[n, 4]                   The pattern that begins, the one that is concluded, the first step, the end.
queue : (facts, heads, nexts)
    facts : int64[m, 4]              Triples: graph, subject, predicate, object.
    heads : int32[3, m]              The newest fact of each chain, -1: none. Chain 0 is of a triple, 1 of its subject
                                     with predicate and graph, 2 of its object with them.
    nexts : int32[3, m]              The next older fact of a chain.
trail : (bound, levels, found)       Where a search is.
    bound : int64[VARIABLES]         The ids of variables.
    levels : int64[LEVELS, 2]        For each step the next of its values in `found`, and their end.
    found : int64[b]                 Values that steps have found and that are not tried yet, one step above the other.
order : (slots, ranks)               The table of rank_kernels.
state : int64[STATE_WIDTH]           See below.

All steps of a search are done for one triple before the next one. Work is counted, and kernels pause between two
triples; where one triple alone needs too much they give up, and nothing is lost but that time.
"""

from __future__ import annotations

import numpy as np

from wukongs.rules.rank_kernels import slot_of
from wukongs.store.addresses import int64_array, int64_table
from wukongs.store.jit import njit, njit_uncounted
from wukongs.store.key_filter_kernels import hash_key, key_bits, may_have_key
from wukongs.store.layout import DESCRIPTOR_WIDTH, KEY_FILTER, TOMBSTONE_COUNT, TOMBSTONES
from wukongs.store.lookup_kernels import directory_row, find_key, row_has_edge, value_range, values_at
from wukongs.store.slot_kernels import mix_id

PATTERN_WIDTH = 4
IS_HELD, BINDS_OBJECT, BINDS_SUBJECT, IS_OPEN = 0, 1, 2, 3
"""The modes of a step. IS_OPEN: neither subject nor object is bound, or not the predicate; the kernels give up."""
LEVELS = VARIABLES = 16
DONE, PAUSED, GIVEN_UP, OVER_ALLOWED = 0, 1, 2, 3
NEXT, COUNT, WORK, WAY, DEPTH, ENTERS, STATE_WIDTH = 0, 1, 2, 3, 4, 5, 6
"""The places of a state: the next fact of the queue; how many there are; work done; the last way that was gone; of the
search that runs the step where it is, and whether it comes there from below."""
NEITHER, THERE, GONE = 0, 1, 2
"""The role of the facts in a search: they mean nothing, are there too, are gone."""
WORK_MAX = 1 << 18
"""Look-ups in batches and values after which a kernel pauses; that are some milliseconds."""
_GIVE_UP = 4
"""A triple that needs so many times as much is given up."""


# --- one triple in batches --------------------------------------------------------------------------------------------


@njit_uncounted
def _has(descriptor, graph, subject, predicate, object_, hashed, bits):
    if not may_have_key(descriptor[KEY_FILTER], hashed, bits):
        return False
    row = directory_row(descriptor, predicate, graph)
    return row >= 0 and row_has_edge(descriptor, row, subject, object_)


@njit_uncounted
def is_seen(descriptors, graph, subject, predicate, object_):
    """Tell whether a read holds a triple, as mark_held does for many."""
    hashed = hash_key(subject, 0)
    bits = key_bits(hashed)
    asked = 0
    for b in range(descriptors.shape[0] - 1, -1, -1):
        behind = descriptors[b, TOMBSTONE_COUNT]
        if behind > asked:
            tombstones = int64_table(descriptors[b, TOMBSTONES], behind, DESCRIPTOR_WIDTH)
            for t in range(behind - asked - 1, -1, -1):
                if _has(tombstones[t], graph, subject, predicate, object_, hashed, bits):
                    return False
            asked = behind
        if _has(descriptors[b], graph, subject, predicate, object_, hashed, bits):
            return True
    return False


@njit_uncounted
def _is_buried(descriptor, graph, subject, predicate, object_):
    """Tell whether a tombstone beside a batch hides a triple of it."""
    behind = descriptor[TOMBSTONE_COUNT]
    if behind == 0:
        return False
    hashed = hash_key(subject, 0)
    bits = key_bits(hashed)
    tombstones = int64_table(descriptor[TOMBSTONES], behind, DESCRIPTOR_WIDTH)
    is_buried = False
    for t in range(behind):
        is_buried = is_buried or _has(tombstones[t], graph, subject, predicate, object_, hashed, bits)
    return is_buried


@njit_uncounted
def _put_values(descriptors, graph, predicate, direction, key, found, at):
    """Put the values of a key that a read sees into `found` from `at` on; return where they end, -1: no room."""
    hashed = hash_key(key, direction)
    bits = key_bits(hashed)
    for b in range(descriptors.shape[0]):
        descriptor = descriptors[b]
        if not may_have_key(descriptor[KEY_FILTER], hashed, bits):
            continue
        row = directory_row(descriptor, predicate, graph)
        if row < 0:
            continue
        place = find_key(descriptor, direction, row, key)
        if place < 0:
            continue
        lo, hi = value_range(descriptor, direction, place)
        if at + hi - lo > found.size:
            return -1
        values = int64_array(values_at(descriptor, direction), hi)
        for v in range(lo, hi):
            subject, object_ = (key, values[v]) if direction == 0 else (values[v], key)
            if not _is_buried(descriptor, graph, subject, predicate, object_):
                found[at] = values[v]
                at += 1
    return at


# --- facts ------------------------------------------------------------------------------------------------------------


@njit_uncounted
def _chain(kind, graph, subject, predicate, object_, size):
    mixed = mix_id(predicate ^ ~graph) << 7
    if kind != 2:
        mixed ^= mix_id(subject)
    if kind != 1:
        mixed ^= mix_id(object_) << 15
    return (mix_id(mixed << 1) * size) >> 32


@njit_uncounted
def _is_fact(queue, graph, subject, predicate, object_):
    """Tell whether a triple is among the facts of chain 0."""
    facts, heads, nexts = queue
    at = np.int64(heads[0, _chain(0, graph, subject, predicate, object_, heads.shape[1])])
    while at >= 0:
        if facts[at, 1] == subject and facts[at, 3] == object_ and facts[at, 2] == predicate and facts[at, 0] == graph:
            return True
        at = np.int64(nexts[0, at])
    return False


@njit_uncounted
def _put_fact(queue, kinds, state, graph, subject, predicate, object_):
    """Put a triple behind the others, and into the chains below `kinds`."""
    facts, heads, nexts = queue
    at = state[COUNT]
    facts[at, 0], facts[at, 1], facts[at, 2], facts[at, 3] = graph, subject, predicate, object_
    for kind in range(kinds):
        chain = _chain(kind, graph, subject, predicate, object_, heads.shape[1])
        nexts[kind, at] = heads[kind, chain]
        heads[kind, chain] = at
    state[COUNT] = at + 1


@njit
def begin_facts(queue, state, kinds, graphs, subjects, predicates, objects):
    """Forget the facts of the last use, and begin with others. kinds: into the chains below they go."""
    facts, heads, _ = queue
    for at in range(state[COUNT]):
        for kind in range(3):
            chain = _chain(kind, facts[at, 0], facts[at, 1], facts[at, 2], facts[at, 3], heads.shape[1])
            heads[kind, chain] = -1
    state[:] = 0
    for at in range(len(graphs)):
        _put_fact(queue, kinds, state, graphs[at], subjects[at], predicates[at], objects[at])


# --- a search ---------------------------------------------------------------------------------------------------------


@njit_uncounted
def _part(part, bound):
    return part if part >= 0 else bound[~part]


@njit_uncounted
def _triple(pattern, bound):
    """Return the triple that a pattern becomes."""
    return pattern[0], _part(pattern[1], bound), _part(pattern[2], bound), _part(pattern[3], bound)


@njit_uncounted
def _matches(pattern, bound, graph, subject, predicate, object_):
    """Tell whether a triple matches a pattern, and bind its variables by it."""
    if pattern[0] != graph or (pattern[1] >= 0 and pattern[1] != subject):
        return False
    if (pattern[2] >= 0 and pattern[2] != predicate) or (pattern[3] >= 0 and pattern[3] != object_):
        return False
    if pattern[1] < 0:
        bound[~pattern[1]] = subject
    if pattern[2] < 0:
        if pattern[2] == pattern[1] and predicate != subject:
            return False
        bound[~pattern[2]] = predicate
    if pattern[3] < 0:
        if (pattern[3] == pattern[1] and object_ != subject) or (pattern[3] == pattern[2] and object_ != predicate):
            return False
        bound[~pattern[3]] = object_
    return True


@njit_uncounted
def _found_of_step(read, pattern, mode, trail, start, queue, role, order, below):
    """Put what a step may bind into `found` from `start` on; return where that ends, -1: no room."""
    bound, _, found = trail
    facts, heads, nexts = queue
    slots, ranks = order
    graph, subject, predicate, object_ = _triple(pattern, bound)
    if start == found.size:
        return np.int64(-1)
    if mode == IS_HELD:
        found[start] = 0
        if role != NEITHER and _is_fact(queue, graph, subject, predicate, object_):
            return start + np.int64(role == THERE)
        if below > 0:
            rank = ranks[slot_of(slots, ranks, graph, subject, predicate, object_)]
            if rank > 0:
                return start + np.int64(rank < below)
        return start + np.int64(is_seen(read, graph, subject, predicate, object_))
    direction = 0 if mode == BINDS_OBJECT else 1
    key = subject if direction == 0 else object_
    end = np.int64(_put_values(read, graph, predicate, direction, key, found, start))
    if role != THERE or end < 0:
        return end
    kind = 1 + direction
    at = np.int64(heads[kind, _chain(kind, graph, key, predicate, key, heads.shape[1])])
    while at >= 0:
        if facts[at, 1 + 2 * direction] == key and facts[at, 2] == predicate and facts[at, 0] == graph:
            if end == found.size:
                return np.int64(-1)
            found[end] = facts[at, 3 - 2 * direction]
            end += 1
        at = np.int64(nexts[kind, at])
    return end


@njit_uncounted
def _next_solution(read, patterns, steps, way, trail, state, queue, role, order, below):
    """Go on with a search to its next solution, which is then in `bound`. Return 1; 0: there is none; -1: it takes too
    much. The search begins with state[DEPTH] = 0, state[ENTERS] = 1.

    role: of the facts. below: each triple has a lower rank, or none; 0: nobody knows of ranks. A triple with a rank is
    there, unless it is one of the facts that are gone."""
    bound, levels, found = trail
    slots, ranks = order
    first, count = way[2], way[3] - way[2]
    depth = state[DEPTH]
    enters = state[ENTERS] == 1
    while depth >= 0:
        if enters:
            if depth == count:
                state[DEPTH] = depth - 1
                state[ENTERS] = 0
                return 1
            pattern, mode = patterns[steps[first + depth, 0]], steps[first + depth, 1]
            if mode == IS_OPEN:
                return -1
            start = np.int64(0) if depth == 0 else levels[depth - 1, 1]
            stop = _found_of_step(read, pattern, mode, trail, start, queue, role, order, below)
            if stop < 0:
                return -1
            state[WORK] += read.shape[0] + stop - start
            if state[WORK] > _GIVE_UP * WORK_MAX:
                return -1
            levels[depth, 0], levels[depth, 1] = start, stop
            enters = False
        elif levels[depth, 0] < levels[depth, 1]:
            value = found[levels[depth, 0]]
            levels[depth, 0] += 1
            pattern, mode = patterns[steps[first + depth, 0]], steps[first + depth, 1]
            if mode == BINDS_OBJECT:
                bound[~pattern[3]] = value
            elif mode == BINDS_SUBJECT:
                bound[~pattern[1]] = value
            if role == GONE and mode != IS_HELD:
                graph, subject, predicate, object_ = _triple(pattern, bound)
                if _is_fact(queue, graph, subject, predicate, object_):
                    continue
                if below > 0 and ranks[slot_of(slots, ranks, graph, subject, predicate, object_)] >= below:
                    continue
            depth += 1
            enters = True
        else:
            depth -= 1
    state[DEPTH] = -1
    state[ENTERS] = 0
    return 0


@njit_uncounted
def _stands(read, patterns, steps, checks, trail, state, queue, order, below, graph, subject, predicate, object_):
    """Tell whether a triple has a derivation left, from triples that are not among the facts and have lower ranks (0:
    any). -1: that takes too much."""
    for c in range(checks.shape[0]):
        if _matches(patterns[checks[c, 0]], trail[0], graph, subject, predicate, object_):
            state[DEPTH], state[ENTERS] = 0, 1
            outcome = _next_solution(read, patterns, steps, checks[c], trail, state, queue, GONE, order, below)
            if outcome != 0:
                return outcome
    return 0


@njit_uncounted
def _may_go(before, now, stays, graph, subject, predicate, object_):
    """Tell whether a triple is inferred and there, and may go."""
    return (
        is_seen(before, ~graph, subject, predicate, object_)
        and is_seen(now, graph, subject, predicate, object_)
        and not is_seen(stays, graph, subject, predicate, object_)
    )


# --- kernels ----------------------------------------------------------------------------------------------------------


@njit
def mark_standing(read, patterns, steps, checks, queue, found, state, order, below, quads, stands):
    """Mark which of some triples follow in one step, from row state[NEXT] on. Return DONE, PAUSED or GIVEN_UP.

    read : descriptors; checks : ways from heads; below : above all ranks, 0: there are none; quads : int64[4, q];
    stands : bool[q], written. No facts are in the queue."""
    trail = np.zeros(VARIABLES, np.int64), np.zeros((LEVELS, 2), np.int64), found
    state[WORK] = 0
    while state[NEXT] < quads.shape[1]:
        if state[WORK] > WORK_MAX:
            return PAUSED
        graph, subject, predicate, object_ = quads[:, state[NEXT]]
        outcome = _stands(
            read, patterns, steps, checks, trail, state, queue, order, below, graph, subject, predicate, object_
        )
        if outcome < 0:
            return GIVEN_UP
        stands[state[NEXT]] = outcome == 1
        state[NEXT] += 1
    return DONE


@njit
def find_lost(
    before,
    now,
    stays,
    patterns,
    steps,
    ways,
    checks,
    queue,
    found,
    state,
    order,
    has_ranks,
    is_recursive,
    initial,
    allowed,
):
    """Put the inferred triples behind the facts that go with those, of which the first `initial` have gone. Return
    DONE, PAUSED, GIVEN_UP or OVER_ALLOWED (more than `allowed`).

    From an initial fact the search goes through the graph as it was, from others through the graph as it is now, in
    which these still are: a triple that stands may stand on what has come, or on what goes later, and then it is looked
    at again.

    before, now, stays : descriptors of reads: the graph as it was, the same with the changes so far (none of the facts
        behind the initial ones has gone there), and of triples that do not go.
    checks : ways from heads. They are asked, if the stratum has ranks or is not recursive, whether a triple stands. A
        triple with a rank is inferred, there, and may go."""
    trail = np.zeros(VARIABLES, np.int64), np.zeros((LEVELS, 2), np.int64), found
    inner = np.zeros(VARIABLES, np.int64), np.zeros((LEVELS, 2), np.int64), np.empty(found.size, np.int64)
    search = np.zeros(STATE_WIDTH, np.int64)
    facts, slots, ranks = queue[0], order[0], order[1]
    state[WORK] = 0
    while state[NEXT] < (state[COUNT] if is_recursive else initial):
        if state[WORK] > WORK_MAX:
            return PAUSED
        at = state[NEXT]
        read = before if at < initial else now
        search[WORK] = 0
        for w in range(ways.shape[0]):
            if not _matches(patterns[ways[w, 0]], trail[0], facts[at, 0], facts[at, 1], facts[at, 2], facts[at, 3]):
                continue
            state[WAY] = w
            search[DEPTH], search[ENTERS] = 0, 1
            while True:
                outcome = _next_solution(read, patterns, steps, ways[w], trail, search, queue, NEITHER, order, 0)
                if outcome < 0:
                    return GIVEN_UP
                if outcome == 0:
                    break
                graph, subject, predicate, object_ = _triple(patterns[ways[w, 1]], trail[0])
                search[WORK] += 1
                if _is_fact(queue, graph, subject, predicate, object_):
                    continue
                rank = ranks[slot_of(slots, ranks, graph, subject, predicate, object_)] if has_ranks else np.int64(0)
                if rank <= 0 and not _may_go(before, now, stays, graph, subject, predicate, object_):
                    continue
                if rank > 0 or not is_recursive:
                    outcome = _stands(
                        now,
                        patterns,
                        steps,
                        checks,
                        inner,
                        state,
                        queue,
                        order,
                        rank,
                        graph,
                        subject,
                        predicate,
                        object_,
                    )
                    if outcome < 0:
                        return GIVEN_UP
                    if outcome == 1:
                        continue
                if state[COUNT] == facts.shape[0]:
                    return GIVEN_UP
                _put_fact(queue, 1, state, graph, subject, predicate, object_)
                if allowed >= 0 and state[COUNT] - initial > allowed:
                    return OVER_ALLOWED
        state[WORK] += search[WORK]
        state[NEXT] += 1
    return DONE


@njit
def find_new(now, patterns, steps, ways, queue, found, state, order, has_ranks, initial):
    """Put all triples behind the facts that follow from the first `initial` of them, which a read sees already. Return
    DONE, PAUSED or GIVEN_UP; then the facts from state[NEXT] on are not looked at yet, or not to their end.

    Only the others are in chains."""
    trail = np.zeros(VARIABLES, np.int64), np.zeros((LEVELS, 2), np.int64), found
    search = np.zeros(STATE_WIDTH, np.int64)
    facts, slots, ranks = queue[0], order[0], order[1]
    state[WORK] = 0
    while state[NEXT] < state[COUNT]:
        if state[WORK] > WORK_MAX:
            return PAUSED
        at = state[NEXT]
        search[WORK] = 0
        for w in range(ways.shape[0]):
            if not _matches(patterns[ways[w, 0]], trail[0], facts[at, 0], facts[at, 1], facts[at, 2], facts[at, 3]):
                continue
            state[WAY] = w
            search[DEPTH], search[ENTERS] = 0, 1
            while True:
                outcome = _next_solution(now, patterns, steps, ways[w], trail, search, queue, THERE, order, 0)
                if outcome < 0:
                    return GIVEN_UP
                if outcome == 0:
                    break
                graph, subject, predicate, object_ = _triple(patterns[ways[w, 1]], trail[0])
                search[WORK] += now.shape[0]
                if _is_fact(queue, graph, subject, predicate, object_):
                    continue
                if has_ranks and ranks[slot_of(slots, ranks, graph, subject, predicate, object_)] > 0:
                    continue
                if is_seen(now, graph, subject, predicate, object_):
                    continue
                if state[COUNT] == facts.shape[0]:
                    return GIVEN_UP
                _put_fact(queue, 3, state, graph, subject, predicate, object_)
        state[WORK] += search[WORK]
        state[NEXT] += 1
    return DONE
