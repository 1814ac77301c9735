"""FactSearch: the rules of one stratum, ready to be followed triple by triple in one kernel.

A change of a few triples leads through many rounds of a few triples each. As columns, each round costs some hundred
calls, whatever it finds. Here one call does them all. Rules that are triple patterns alone can be followed so, and
changes of which no triple leads to very many; all else is for rounds of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wukongs.csparql.algebra import TriplePattern
from wukongs.csparql.terms import Term, Variable
from wukongs.rules.fact_kernels import (
    BINDS_OBJECT,
    BINDS_SUBJECT,
    COUNT,
    DONE,
    IS_HELD,
    IS_OPEN,
    LEVELS,
    NEXT,
    OVER_ALLOWED,
    PAUSED,
    STATE_WIDTH,
    VARIABLES,
    WAY,
    begin_facts,
    find_lost,
    find_new,
    mark_standing,
)
from wukongs.rules.program import Rule
from wukongs.rules.ranks import Ranks
from wukongs.rules.rule_plans import RulePlan
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import BoolArray
from wukongs.store.lookup_kernels import count_edges
from wukongs.store.quads import NO_QUADS, Quads, read_of

FACTS_MAX = 1 << 14
"""A search begins with so many triples at most."""
_ROOM = 1 << 16
_ABOVE_ALL = 1 << 62
_PLANNED_FOR = 256
"""After so many uses, or once a graph has half or twice as many triples, steps are put in order anew."""
Pause = Callable[[Rule], None]
"""Is told which rule is at work, and may raise."""


class OverAllowed(Exception):
    """More triples would go than are allowed."""


def is_plain(plan: RulePlan) -> bool:
    """Tell whether a rule is triple patterns alone."""
    rule = plan.rule
    has_more = rule.tables or rule.binds or rule.conditions or rule.absent or rule.aggregation is not None
    has_more = has_more or rule.where is not None
    variables = {variable for pattern in rule.patterns for variable in pattern.variables()}
    return not has_more and 0 < len(rule.patterns) <= LEVELS and len(variables) <= VARIABLES


class Room:
    """Where searches work, one after the other: see fact_kernels."""

    def __init__(self) -> None:
        chains = np.full((3, _ROOM), -1, np.int32), np.empty((3, _ROOM), np.int32)
        self.queue = np.empty((_ROOM, 4), np.int64), *chains
        self.found = np.empty(_ROOM, np.int64)
        self.state = np.zeros(STATE_WIDTH, np.int64)

    def begin(self, quads: Quads, chains: int) -> None:
        begin_facts(self.queue, self.state, chains, *quads)

    def taken(self, first: int) -> Quads:
        """Return the facts from one on."""
        graphs, subjects, predicates, objects = self.queue[0][first : self.state[COUNT]].T.copy()
        return graphs, subjects, predicates, objects


class FactSearch:
    """plans: those of the stratum; settled: these, and those before that may conclude the same. All are plain.

    A search returns None where it gives up; nothing has changed then."""

    def __init__(self, plans: Sequence[RulePlan], settled: Sequence[RulePlan], room: Room) -> None:
        assert all(map(is_plain, settled))
        self._plans, self._settled, self._room = plans, settled, room
        self.may_insert = all(plan.concludes_triples for plan in plans)
        """Whether each of its conclusions can be a triple."""
        self._program: _Ways | None = None
        self._planned_for = self._uses = 0

    def lost(
        self,
        gone: Quads,
        before: BatchSet,
        now: BatchSet,
        stays: Quads,
        ranks: Ranks | None,
        is_recursive: bool,
        allowed: int,
        pause: Pause,
    ) -> Quads | None:
        """Return the inferred triples that go with those that have gone. before, now: the graph as it was, and with the
        changes so far; stays: inferred triples that do not go; ranks: of the stratum, or None; allowed: so many may go,
        -1: any number. Raises OverAllowed."""
        ways, room = self._planned(now), self._room
        room.begin(gone, 1)
        kept = read_of(stays) if len(stays[0]) else EMPTY
        reads = before.descriptors, now.descriptors, kept.descriptors
        tables = ways.patterns, ways.steps, ways.ways, ways.checks
        order = _NO_RANKS if ranks is None else ranks.table()
        options = ranks is not None, is_recursive, len(gone[0]), allowed
        outcome = PAUSED
        while outcome == PAUSED:
            outcome = find_lost(*reads, *tables, room.queue, room.found, room.state, order, *options)
            pause(ways.rules[int(room.state[WAY])])
        if outcome == OVER_ALLOWED:
            raise OverAllowed
        return room.taken(len(gone[0])) if outcome == DONE else None

    def standing(self, quads: Quads, now: BatchSet, ranks: Ranks | None, pause: Pause) -> BoolArray | None:
        """Mark the triples that follow in one step from what there is. bool[n]"""
        ways, room = self._planned(now), self._room
        room.begin(NO_QUADS, 1)
        order, below = (_NO_RANKS, 0) if ranks is None else (ranks.table(), _ABOVE_ALL)
        wanted, stands = np.stack(quads), np.zeros(len(quads[0]), np.bool_)
        tables = ways.patterns, ways.steps, ways.checks
        outcome = PAUSED
        while outcome == PAUSED:
            outcome = mark_standing(
                now.descriptors, *tables, room.queue, room.found, room.state, order, below, wanted, stands
            )
            pause(self._plans[0].rule)
        return stands if outcome == DONE else None

    def new(self, come: Quads, now: BatchSet, ranks: Ranks | None, pause: Pause) -> tuple[Quads, Quads]:
        """Return what follows from triples that have come, in the order in which it does; and those of all these that
        are still to be looked at. now: the graph with those that have come."""
        ways, room = self._planned(now), self._room
        room.begin(come, 0)
        tables, options = (ways.patterns, ways.steps, ways.ways), (ranks is not None, len(come[0]))
        order = _NO_RANKS if ranks is None else ranks.table()
        outcome = PAUSED
        while outcome == PAUSED:
            outcome = find_new(now.descriptors, *tables, room.queue, room.found, room.state, order, *options)
            pause(ways.rules[int(room.state[WAY])])
        return room.taken(len(come[0])), room.taken(int(room.state[NEXT]))

    def _planned(self, read: BatchSet) -> _Ways:
        self._uses += 1
        is_other = not self._planned_for <= 2 * len(read) <= 4 * self._planned_for
        if self._program is None or is_other or self._uses > _PLANNED_FOR:
            self._program = _Ways(self._plans, self._settled, read)
            self._planned_for, self._uses = len(read), 0
        return self._program


_NO_RANKS = np.zeros((1, 4), np.int64), np.zeros(1, np.int64)


class _Ways:
    """The tables of fact_kernels. Each step is one that finds little, as far as that is known by what a read holds."""

    def __init__(self, plans: Sequence[RulePlan], settled: Sequence[RulePlan], read: BatchSet) -> None:
        self._descriptors = read.descriptors
        self._patterns: list[tuple[int, ...]] = []
        self._steps: list[tuple[int, int]] = []
        self._degrees: dict[tuple[int, int], tuple[float, float]] = {}
        self.rules: list[Rule] = []
        ways, checks = [], []
        for plan in settled:
            rule = plan.rule
            names = {v: ~at for at, v in enumerate(dict.fromkeys(v for p in rule.patterns for v in p.variables()))}
            body = [self._pattern(plan, pattern, names) for pattern in rule.patterns]
            head = self._pattern(plan, rule.head, names)
            if plan in plans:
                for at, begin in enumerate(body):
                    ways.append((begin, head, *self._ordered(begin, body[:at] + body[at + 1 :])))
                    self.rules.append(rule)
            checks.append((head, head, *self._ordered(head, body)))
        self.patterns = np.array(self._patterns, np.int64)
        self.steps = np.array(self._steps, np.int64).reshape(-1, 2)
        self.ways, self.checks = np.array(ways, np.int64), np.array(checks, np.int64)
        del self._descriptors  # the batches that they describe may go

    def _pattern(self, plan: RulePlan, pattern: TriplePattern, names: dict[Variable, int]) -> int:
        """Note a pattern; return its number."""
        parts = pattern.subject, pattern.predicate, pattern.object
        ids = (plan.id_of(part) if isinstance(part, Term) else names[part] for part in parts)
        self._patterns.append((plan.graph_of(pattern), *ids))
        return len(self._patterns) - 1

    def _ordered(self, begin: int, others: Sequence[int]) -> tuple[int, int]:
        """Note steps through some patterns, once another one is matched; return where they begin and end."""
        first, left = len(self._steps), list(others)
        bound = {part for part in self._patterns[begin][1:] if part < 0}
        while left:
            _, mode, best = min((*self._cost(self._patterns[one], bound), one) for one in left)
            left.remove(best)
            self._steps.append((best, mode))
            bound |= {part for part in self._patterns[best][1:] if part < 0}
        return first, len(self._steps)

    def _cost(self, pattern: tuple[int, ...], bound: set[int]) -> tuple[float, int]:
        """Return how many values a step would find, about, and its mode."""
        graph, subject, predicate, object_ = pattern
        has_subject, has_object = (part >= 0 or part in bound for part in (subject, object_))
        is_known = predicate >= 0 or predicate in bound
        if not is_known or not (has_subject or has_object):
            return np.inf, IS_OPEN
        if has_subject and has_object:
            return 0.5, IS_HELD
        out, in_ = self._degree(graph, predicate) if predicate >= 0 else (_DEGREE, _DEGREE)
        return (out, BINDS_OBJECT) if has_subject else (in_, BINDS_SUBJECT)

    def _degree(self, graph: int, predicate: int) -> tuple[float, float]:
        found = self._degrees.get((graph, predicate))
        if found is None:
            count, out_keys, in_keys = count_edges(self._descriptors, graph, predicate).tolist()
            found = self._degrees[graph, predicate] = count / max(out_keys, 1), count / max(in_keys, 1)
        return found


_DEGREE = 4.0
"""So many values a key is taken to have, where the predicate is not known yet."""
