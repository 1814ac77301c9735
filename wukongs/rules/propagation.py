"""Propagation: what follows from one change of the stored graph, or no longer follows, stratum by stratum.

Each stratum reads what the ones before it have settled, so it runs once:

1. *Delete too much.* The heads that rested on triples that have gone, in the graph as it was, go as well, and in a
   recursive stratum all that rested on those. Explicit triples stay.
2. *Derive again.* Of these, and of explicit triples that have gone, those come back that follow in one step from what
   is left. Only they are asked for, so it costs what has changed, not what there is.
3. *Insert.* From all that has come, the rest follows by semi-naive rounds: each rule runs from the triples that the
   round before has brought.

That is delete and re-derive (Gupta, Mumick and Subrahmanian 1993) over batches. Where few triples change, and all rules
of a stratum are triple patterns alone, each step is one call of a kernel (fact_search.py). A body with OPTIONAL, MINUS
or the like is followed by the operators of live views (followed_bodies.py), in the same rounds. The changes of all
strata merge to one difference, in which a triple that was deleted and inserted again does not show.

A stored graph holds its explicit triples and those that are inferred. Its hidden graph (changing_graph.hidden) holds
the inferred ones that are not explicit, and changes with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from wukongs.csparql.terms import Term
from wukongs.errors import BudgetExceeded
from wukongs.incremental.versions import Change, batch_set
from wukongs.query.limits import Limits
from wukongs.rules.changing_graph import NOTHING, ChangingGraph, Read, gone_of
from wukongs.rules.fact_search import FACTS_MAX, FactSearch, OverAllowed, Room, is_plain
from wukongs.rules.followed_bodies import FollowedBody
from wukongs.rules.program import Program, Rule
from wukongs.rules.ranks import Ranks
from wukongs.rules.reader import SEEDS_MAX, Reader
from wukongs.rules.rule_plans import RulePlan
from wukongs.store.batch import Batch, build_batch
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import BoolArray
from wukongs.store.quads import NO_QUADS, Quads, hidden, is_held, joined, read_of, taken
from wukongs.store.tombstones import Difference

RANKLESS_MIN, RANKLESS_FACTOR = 4096, 32
"""A recursive stratum gets ranks when a deletion would let more triples go than so many, and so many for each triple
that has gone."""

_TRIPLE_BYTES = 32
FORGOTTEN_SHARE_MAX = 0.5
"""Where a change of rules would let more go of what is inferred, all is derived anew."""


@dataclass(frozen=True, slots=True)
class StratumPlan:
    """The plans of the rules of one stratum; earlier: those of strata before that may conclude the same triples.

    joins: the plans whose bodies are one delta join.
    followed: the others.
    concerns: the graphs and predicates (None: any) of the triples that its rules read or conclude."""

    plans: tuple[RulePlan, ...]
    is_recursive: bool
    earlier: tuple[RulePlan, ...]
    search: FactSearch | None
    """Follows changes of a few triples; None: some rule is more than triple patterns."""
    joins: tuple[RulePlan, ...] = field(init=False)
    followed: tuple[RulePlan, ...] = field(init=False)
    concerns: frozenset[tuple[int, int | None]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "joins", tuple(plan for plan in self.plans if plan.followed is None))
        object.__setattr__(self, "followed", tuple(plan for plan in self.plans if plan.followed is not None))
        object.__setattr__(self, "concerns", frozenset(one for plan in self.plans for one in plan.concerns()))

    def is_concerned(self, pairs: frozenset[tuple[int, int]]) -> bool:
        """Return whether a change of triples may change what is concluded. pairs: their graphs and predicates."""
        return any((graph, predicate) in self.concerns or (graph, None) in self.concerns for graph, predicate in pairs)


class Propagation:
    """before: the stored graph as it was; rows_max: so many triples may be derived; ranks: of the strata that have
    some, by number, None: none are made. They are worth nothing after an error. graphs: those into which rules
    conclude, or have concluded.

    at_work: the rule that runs, for whoever asks after an error."""

    def __init__(
        self,
        strata: Sequence[StratumPlan],
        before: Read,
        reader: Reader,
        rows_max: int,
        ranks: dict[int, Ranks] | None,
        graphs: Sequence[int] = (),
    ) -> None:
        self._strata = strata
        self._graphs = graphs
        self._ranks = {} if ranks is None else ranks
        self._graph = ChangingGraph(before, notes=any(stratum.followed for stratum in strata))
        self._before = before
        self._reader = reader
        for stratum in strata:
            for plan in stratum.followed:
                plan.begin(self._graph, reader)
        self._rows_max = rows_max
        self._derived = 0
        self._stays = NO_QUADS
        self._may_rank = ranks is not None and before.divided is None  # else all would be fetched for that
        self.at_work: Rule | None = None

    def follow(self, change: Difference, asserted: Quads) -> Difference:
        """Return a change of explicit triples with all that follows. asserted: the triples that the change makes
        explicit, also those that are there.

        Of the triples that are to go, those that are inferred stay. Raises QueryTimeout, BudgetExceeded."""
        gone = self._explicit(gone_of(change))
        promoted = self._promoted(asserted)
        self._stays = promoted
        for ranks in self._ranks.values():
            ranks.forget(promoted)
        self._graph.change(Difference(change.additions, _batch_or_none(gone)))
        for number in range(len(self._strata)):
            self._run(number)
        return self._outcome(change.additions.triples(), gone, promoted)

    def derive_anew(self, change: Difference, asserted: Quads) -> Difference:
        """Do the same as follow, but forget all that is inferred, and derive all that follows from the explicit
        triples."""
        gone = self._explicit(gone_of(change))
        promoted, forget = self._promoted(asserted), self._before.inferred(self._graphs)
        if len(promoted[0]):
            forget = taken(forget, ~is_held(read_of(promoted), forget))
        self._graph.change(Difference(change.additions, _batch_or_none(joined((gone, forget)))))
        self._ranks.clear()
        for number, stratum in enumerate(self._strata):
            heads = []
            for plan in stratum.plans:
                self.at_work = plan.rule
                heads.append(self._made(plan, plan.all_heads(self._graph, self._reader)))
            front = self._inserted(heads)
            if stratum.is_recursive:
                self._insert(number, front.triples())
        return self._outcome(change.additions.triples(), gone, promoted)

    def follow_rules(
        self, change: Difference, asserted: Quads, dropped: Sequence[RulePlan], added: Collection[str]
    ) -> Difference:
        """Do the same as follow, for other rules than those by which the graph was inferred before. dropped: plans that
        these had; added: the names of rules that are new. The graph is not divided.

        All goes that a dropped rule may have concluded, by the look of it; what follows in other ways comes back. Where
        that is most of what is inferred, all is derived anew, unless the others have concluded more than one change
        may."""
        gone = self._explicit(gone_of(change))
        promoted = self._promoted(asserted)
        forget = self._before.inferred_with((plan.graph, plan.head_predicate) for plan in dropped)
        mine = np.zeros(len(forget[0]), np.bool_)
        for plan in dropped:
            mine |= plan.may_be_heads(forget)
        forget = taken(forget, mine)
        inferred_count = self._before.batches.hidden_count
        others_count = inferred_count - len(forget[0])
        if len(forget[0]) > FORGOTTEN_SHARE_MAX * inferred_count and others_count <= self._rows_max:
            return self.derive_anew(change, asserted)
        if len(promoted[0]):
            forget = taken(forget, ~is_held(read_of(promoted), forget))
        self._stays, self._may_rank = promoted, False
        self._graph.change(Difference(change.additions, _batch_or_none(joined((gone, forget)))))
        for number in range(len(self._strata)):
            self._run(number, added)
        return self._outcome(change.additions.triples(), gone, promoted)

    @property
    def limits(self) -> Limits:
        return self._reader.limits

    # --- one stratum --------------------------------------------------------------------------------------------------

    def _run(self, number: int, added: Collection[str] = ()) -> None:
        """added: names of rules that have concluded nothing yet."""
        stratum = self._strata[number]
        if not (stratum.is_concerned(self._graph.pairs()) or any(plan.rule.name in added for plan in stratum.plans)):
            return
        total = self._graph.difference()
        come, gone = total.additions.triples(), gone_of(total)
        lost = self._overdelete(number, come, gone, total.tombstones)
        if number in self._ranks:
            self._ranks[number].forget(joined((lost, gone)))
        anew = []
        for plan in stratum.plans:
            if plan.rule.name in added:
                self.at_work = plan.rule
                anew.append((plan, plan.all_heads(self._graph, self._reader)))
        restored = self._restored(number, joined([lost, gone]))
        front = self._inserted([*(self._made(*one) for one in anew), restored], number)
        self._insert(number, joined((come, front.triples())), gone)

    def _overdelete(self, number: int, come: Quads, gone: Quads, gone_batch: Batch | None) -> Quads:
        """Let the inferred triples go that rested on what has gone, or on the absence of what has come, unless ranks
        say that they stay. Return these. gone_batch: what has gone.

        One that stays may rest on what has come, and on another one that goes later. So with ranks each round after the
        first looks at the graph as it was just before what the round starts from has gone."""
        found_lost = self._lost_by_fact(number, gone)
        if found_lost is not None:
            return found_lost
        stratum, ranks = self._strata[number], self._ranks.get(number)
        lost, front, over = NO_QUADS, gone, self._before
        allowed = max(RANKLESS_MIN, RANKLESS_FACTOR * len(gone[0]))
        may_rank, is_first = stratum.is_recursive and self._may_rank, bool(stratum.followed) and len(come[0]) > 0
        while len(front[0]) or is_first:
            found, is_first = self._heads_from(stratum, _changes(over, deleted=gone_batch)), False
            for plan in stratum.followed:
                self.at_work = plan.rule
                found.append(plan.lost_heads(self._graph, self._reader))
            front = self._may_go(joined(found))
            if ranks is None and may_rank and len(lost[0]) + len(front[0]) > allowed:
                ranks = self._ranks[number] = self._ranked(number)
            if ranks is not None:
                front, over = taken(front, ~self._stands(number, ranks, front)), self._graph.now
            gone_batch = _batch_or_none(front)
            self._graph.change(Difference(NOTHING.additions, gone_batch))
            lost = joined((lost, front))
            if not stratum.is_recursive:
                break
        return lost

    def _heads_from(self, stratum: StratumPlan, changes: Sequence[Change]) -> list[Quads]:
        """Return the heads that changes of the graph lead to by those rules whose bodies are one delta join."""
        found = []
        for plan in stratum.joins:
            self.at_work = plan.rule
            found += [plan.heads_from(change, self._reader) for change in changes]
        return found

    def _lost_by_fact(self, number: int, gone: Quads) -> Quads | None:
        """Do the same as _overdelete for few triples and plain rules; None: these are not."""
        stratum, search = self._strata[number], self._search(number, gone)
        if search is None or not len(gone[0]):
            return None if search is None else NO_QUADS
        ranks, is_recursive = self._ranks.get(number), stratum.is_recursive
        may_rank = is_recursive and self._may_rank and ranks is None
        allowed = max(RANKLESS_MIN, RANKLESS_FACTOR * len(gone[0])) if may_rank else -1
        reads = self._before.batches, self._graph.now.batches, self._stays
        try:
            lost = search.lost(gone, *reads, ranks, is_recursive, allowed, self._paused)
        except OverAllowed:
            self._ranks[number] = self._ranked(number)
            return self._lost_by_fact(number, gone)
        if lost is not None:
            self._graph.change(Difference(NOTHING.additions, _batch_or_none(lost)))
        return lost

    def _search(self, number: int, front: Quads) -> FactSearch | None:
        """Return what follows few triples of a stratum, if it can."""
        stratum = self._strata[number]
        if stratum.search is None or len(front[0]) > FACTS_MAX or self._before.divided is not None:
            return None
        self.at_work = stratum.plans[0].rule
        return stratum.search

    def _paused(self, rule: Rule) -> None:
        self.at_work = rule
        self._reader.limits.check()

    def _stands(self, number: int, ranks: Ranks, quads: Quads) -> BoolArray:
        """Mark the triples that have a derivation left, of triples with lower ranks. bool[n]"""
        stands = np.zeros(len(quads[0]), np.bool_)
        for plan in self._settled(number):
            self.at_work = plan.rule
            seeds = plan.given_heads(quads)
            if plan.rule.aggregation is not None:
                heads = plan.heads_of(seeds, self._graph.now, self._reader)
                stands |= is_held(read_of(heads), quads)
                continue
            if not seeds.length:
                continue
            for table in self._reader.solve(plan.body, self._graph.now, seeds):
                highest = np.zeros(table.length, np.int64)
                for pattern in plan.rule.patterns:
                    ranks.raise_to(highest, plan.instances(pattern, table))
                heads = plan.instances(plan.rule.head, table)
                stands |= is_held(read_of(taken(heads, highest < ranks.of(heads))), quads)
        return stands

    def _ranked(self, number: int) -> Ranks:
        """Derive a recursive stratum anew as it was, to know in which round each of its triples comes. Those that are
        explicit by now get no rank."""
        stratum, ranks, graph, now = self._strata[number], Ranks(), self._graph, self._graph.now
        inferred = self._before.inferred(self._graphs)
        mine = np.zeros(len(inferred[0]), np.bool_)
        for plan in stratum.plans:
            mine |= plan.may_be_heads(inferred)
        asked = taken(inferred, mine)
        self._graph = ChangingGraph(self._before, notes=True)
        self._graph.change(Difference(NOTHING.additions, _batch_or_none(asked)))
        bodies = [(plan, FollowedBody(plan.node)) for plan in stratum.followed]
        for _, body in bodies:
            body.begin(self._graph, self._reader.new_evaluation())
        front = self._inserted([self._restored(number, asked)])
        while len(front):
            ranks.put(front.triples())
            found = self._heads_from(stratum, _changes(self._graph.now, inserted=front))
            for plan, body in bodies:
                self.at_work = plan.rule
                found.append(plan.made_of(body, body.gained(self._graph), self._reader))
            front = self._inserted([joined(found)])
        self._graph = graph
        assert self._graph.now is now
        ranks.forget(self._stays)
        return ranks

    def _settled(self, number: int) -> tuple[RulePlan, ...]:
        """Return the plans of a stratum and those before it that count: what one rule gives no more another one may
        still give."""
        stratum = self._strata[number]
        return (*stratum.earlier, *stratum.plans)

    def _may_go(self, heads: Quads) -> Quads:
        """Return those of some heads that are inferred and still there, each once."""
        heads = taken(heads, self._graph.now.holds(heads))
        if not len(heads[0]):
            return NO_QUADS
        heads = build_batch(*heads).triples()
        heads = taken(heads, self._is_inferred(heads))
        return taken(heads, ~is_held(read_of(self._stays), heads)) if len(self._stays[0]) else heads

    def _restored(self, number: int, wanted: Quads) -> Quads:
        """Return those of some triples that follow in one step from what there is."""
        if not len(wanted[0]):
            return NO_QUADS
        search = self._search(number, NO_QUADS)
        ranks, now = self._ranks.get(number), self._graph.now.batches
        stands = None if search is None else search.standing(wanted, now, ranks, self._paused)
        if stands is not None:
            return taken(wanted, stands)
        found, among = [], read_of(wanted)
        for plan in self._settled(number):
            self.at_work = plan.rule
            heads = plan.heads_of(plan.given_heads(wanted), self._graph.now, self._reader)
            found.append(taken(heads, is_held(among, heads)))
        return joined(found)

    def _insert(self, number: int, front: Quads, gone: Quads = NO_QUADS) -> None:
        """Derive from what has come, and from the absence of what has gone, until nothing new follows."""
        stratum, new = self._strata[number], None
        while len(front[0]) or len(gone[0]):
            search = self._search(number, front)
            if search is not None and search.may_insert:
                front, gone, new = self._insert_by_fact(search, number, front), NO_QUADS, None
                if not len(front[0]):
                    break
            found = []
            changes = _changes(self._graph.now, inserted=_batch_or_none(front) if new is None else new)
            for plan in stratum.joins:
                self.at_work = plan.rule
                found += [self._made(plan, plan.heads_from(change, self._reader)) for change in changes]
            for plan in stratum.followed:
                self.at_work = plan.rule
                found.append(self._made(plan, plan.gained_heads(self._graph, self._reader)))
            new, gone = self._inserted(found, number), NO_QUADS
            if not stratum.is_recursive:
                break
            front = new.triples()

    def _insert_by_fact(self, search: FactSearch, number: int, front: Quads) -> Quads:
        """Derive from few triples by plain rules; return those that are left for a round of columns."""
        come, rest = search.new(front, self._graph.now.batches, self._ranks.get(number), self._paused)
        self._count_derived(len(come[0]))
        if len(come[0]):
            self._graph.change(Difference(build_batch(*come), None))
            if number in self._ranks:
                self._ranks[number].put(come)
        return rest

    def _made(self, plan: RulePlan, heads: Quads) -> Quads:
        """Note how much a rule has derived that is not there yet; return that, repeats included."""
        self.at_work = plan.rule
        heads = taken(heads, ~self._graph.now.holds(heads))
        self._count_derived(len(heads[0]))
        return heads

    def _count_derived(self, count: int) -> None:
        self._reader.limits.keep(_TRIPLE_BYTES * count)
        self._derived += count
        if self._derived > self._rows_max:
            raise BudgetExceeded(
                f"{self._derived} triples are derived in one change by now, more than rules_rows_max = {self._rows_max}"
            )

    def _inserted(self, found: Sequence[Quads], number: int = -1) -> Batch:
        """Let come those of some heads that are not there; return these. number: of the stratum, if it may have
        ranks."""
        self._reader.limits.check()
        new = self._graph.add(joined(found)).additions
        if number in self._ranks and len(new):
            self._ranks[number].put(new.triples())
        return new

    # --- explicit and inferred ----------------------------------------------------------------------------------------

    def _is_inferred(self, quads: Quads) -> BoolArray:
        return self._before.holds(hidden(quads))

    def _promoted(self, asserted: Quads) -> Quads:
        """Return the inferred triples among some that become explicit, each once."""
        found = taken(asserted, self._is_inferred(asserted))
        return build_batch(*found).triples() if len(found[0]) else NO_QUADS

    def _explicit(self, quads: Quads) -> Quads:
        return taken(quads, ~self._is_inferred(quads)) if len(quads[0]) else quads

    def _outcome(self, come: Quads, gone: Quads, promoted: Quads) -> Difference:
        """Return all that changes, hidden graphs included. come, gone: the explicit triples; promoted: the inferred
        ones that became explicit."""
        total = self._graph.difference()
        all_come, all_gone = total.additions.triples(), gone_of(total)
        new = taken(all_come, ~is_held(read_of(come), all_come)) if len(come[0]) else all_come
        kept = taken(gone, self._graph.now.holds(gone))
        ended = taken(all_gone, self._is_inferred(all_gone))
        marks, unmarked = hidden(joined((new, kept))), hidden(joined((ended, promoted)))
        return Difference(build_batch(*joined((all_come, marks))), _batch_or_none(joined((all_gone, unmarked))))


def _changes(over: Read, inserted: Batch | None = None, deleted: Batch | None = None) -> list[Change]:
    """Return changes of a graph for delta joins, some triples at a time. The graph has the triples: it is the one after
    they are inserted, or before they are deleted."""
    stored = over.stored
    return [
        Change(stored, stored, *((piece, EMPTY) if batch is inserted else (EMPTY, piece)))
        for batch in (inserted, deleted)
        for piece in _pieces(batch)
    ]


def _pieces(batch: Batch | None) -> Iterator[BatchSet]:
    if batch is None or len(batch) <= SEEDS_MAX:
        yield from () if batch is None or not len(batch) else (BatchSet.of((batch,), disjoint=True),)
        return
    quads = batch.triples()
    for start in range(0, len(batch), SEEDS_MAX):
        yield batch_set([column[start : start + SEEDS_MAX] for column in quads])


def stratum_plans(program: Program, plan_of: Callable[[Rule], RulePlan]) -> tuple[StratumPlan, ...]:
    """Return the strata of a program with the plans of their rules."""
    made: list[StratumPlan] = []
    room = Room()
    known: dict[tuple[Term | None, Term | None], list[RulePlan]] = defaultdict(list)
    """The plans so far, by the graph and the predicate of their heads; those of any predicate under None."""
    by_graph: dict[Term | None, list[RulePlan]] = defaultdict(list)
    for stratum in program.strata:
        plans = tuple(map(plan_of, stratum.rules))
        earlier: dict[int, RulePlan] = {}
        for into, predicate in dict.fromkeys(map(_head_key, stratum.rules)):
            same = by_graph[into] if predicate is None else [*known[into, predicate], *known[into, None]]
            earlier.update((id(plan), plan) for plan in same)
        settled = (*earlier.values(), *plans)
        search = FactSearch(plans, settled, room) if all(map(is_plain, settled)) else None
        made.append(StratumPlan(plans, stratum.is_recursive, tuple(earlier.values()), search))
        for plan in plans:
            known[_head_key(plan.rule)].append(plan)
            by_graph[plan.rule.into].append(plan)
    return tuple(made)


def _head_key(rule: Rule) -> tuple[Term | None, Term | None]:
    predicate = rule.head.predicate
    return rule.into, predicate if isinstance(predicate, Term) else None


def _batch_or_none(quads: Quads) -> Batch | None:
    return build_batch(*quads) if len(quads[0]) else None
