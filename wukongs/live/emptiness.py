"""Emptiness: what empties a registered query, in sentences: a fact each, for ContinuousQuery.why().

A `Look` is picked with the engine's lock held, as a firing's reading is. It is told without the lock: the query is
evaluated anew, for at most LOOK_S seconds, with a plan memo of its own, so firings go on beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wukongs.csparql.algebra import Bgp, Join, LeftJoin, Minus, Node, PathPattern, Query, TriplePattern, Union
from wukongs.csparql.explain import format_expression, format_part
from wukongs.csparql.plan import PlanStep
from wukongs.csparql.terms import Term
from wukongs.csparql.warnings import triple_patterns
from wukongs.errors import QueryTimeout, WukongsError
from wukongs.live.core import Core
from wukongs.live.query_counts import QueryCounts
from wukongs.live.query_windows import QueryWindows
from wukongs.live.reading import profiled, terms_of
from wukongs.live.stream_state import StreamState
from wukongs.live.window_log import WindowLog
from wukongs.query.execution.profile import Profile
from wukongs.query.limits import Limits, limits_of
from wukongs.query.plans.dataset import Dataset
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.reach import Reach
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.settings import Settings
from wukongs.store.batch_set import BatchSet
from wukongs.store.directory_kernels import count_named_edges
from wukongs.store.dtypes import WINDOW_GRAPH
from wukongs.store.lookup_kernels import count_edges

LOOK_S = 5.0
"""An evaluation for why() may take so long, or query_timeout_s if that is less."""


@dataclass(frozen=True, slots=True)
class Look:
    """The data that a query reads at a time, picked at one moment. held: all slices of its streams; stored: this
    node's part of the stored graph now, at an SN; reach: the way to the rest, None: there is none."""

    query: Query
    at_ms: int
    dataset: Dataset
    held: tuple[BatchSet, ...]
    stored: BatchSet
    terms: QueryTerms
    settings: Settings
    sn: int
    reach: Reach | None

    @staticmethod
    def pick(core: Core, query: Query, windows: QueryWindows, at_ms: int) -> Look:
        """Called with the lock held."""
        core.finish_tick()
        dataset, _ = windows.dataset(at_ms)
        held = (*map(_slices, windows.states.values()), *dataset.windows.values())
        stored = core.arrangement.trace.read(core.sn)
        return Look(query, at_ms, dataset, held, stored, terms_of(core), core.settings, core.sn, core.reach)

    def told(self) -> Iterator[str]:
        """Yield the facts that an evaluation tells. Called without the lock; raises nothing that a query raises."""
        given_s = self.settings.query_timeout_s
        limits = limits_of(self.settings, min(LOOK_S, given_s) if given_s > 0 else LOOK_S)
        if self.query.dataset.only is None:  # all graphs are looked through
            yield from self._unseen_predicates(limits)
        window = f"the window ending at {self.at_ms} ms"
        try:
            profile = profiled(self.query, self.dataset, self.terms, limits, PlanMemo(), f"why {self.at_ms}")
        except QueryTimeout:
            yield f"{window} could not be evaluated anew within {limits.timeout_s:g} s"
            return
        except WukongsError as error:
            yield f"{window} could not be evaluated anew: {error}"
            return
        measured = profile.measured(self.query.pattern)
        rows = "" if measured is None else f": its patterns and filters give {measured.rows} rows"
        yield f"{window} was evaluated anew, over what is held now{rows}"
        yield from self._steps(profile)
        if measured is not None and not measured.rows:
            yield self._first_empty(profile)

    def _unseen_predicates(self, limits: Limits) -> Iterator[str]:
        found = dict.fromkeys(pattern.predicate for pattern in triple_patterns(self.query))
        for predicate in found:
            if not isinstance(predicate, Term) or self._is_held(self.dataset.resolve(predicate)):
                continue
            try:
                if self._is_elsewhere(self.dataset.resolve(predicate), limits):
                    continue
            except WukongsError as error:
                yield f"no data on this node has predicate {predicate} so far; other nodes could not be asked: {error}"
                continue
            yield (
                f"no data has predicate {predicate} so far: neither the stored graph nor the slices of the query's "
                "streams"
            )

    def _is_elsewhere(self, predicate: int, limits: Limits) -> bool:
        whole = None if self.reach is None else self.reach.graph(self.stored, self.sn)
        if whole is None or predicate < 0:
            return False
        with limits:
            return whole.holds_elsewhere(predicate, self.dataset.default_graph)

    def _is_held(self, predicate: int) -> bool:
        default, stored = self.dataset.default_graph, self.stored.descriptors
        return (
            any(count_edges(batches.descriptors, WINDOW_GRAPH, predicate)[0] > 0 for batches in self.held)
            or count_edges(stored, default, predicate)[0] > 0
            or count_named_edges(stored, default, predicate)[0] > 0
        )

    def _steps(self, profile: Profile) -> Iterator[str]:
        number = 0
        for explorations in profile.plans.values():
            for explored in explorations:
                for step, rows in zip(explored.plan.steps, explored.step_rows, strict=True):
                    number += 1
                    yield f"step {number}, {self._shown(step.pattern)}{_filters(step)}: {rows} rows"

    def _first_empty(self, profile: Profile) -> str:
        """Tell the first pattern that has to match and does not, in the order of the evaluation."""
        needed = dict.fromkeys(_needed(self.query.pattern))
        for bgp, explorations in profile.plans.items():
            if not needed.keys() >= set(bgp.patterns):
                continue
            for explored in explorations:
                came, before = explored.rows_in, None
                for step, rows in zip(explored.plan.steps, explored.step_rows, strict=True):
                    if not rows and came:
                        if before is not None and before.filters:
                            return f"no row passes{_filters(before)} and then matches {self._shown(step.pattern)}"
                        return f"the first pattern without matches is {self._shown(step.pattern)}"
                    came, before = rows, step
        for part in needed:
            measured = profile.measured(part) if isinstance(part, PathPattern) else None
            if measured is not None and not measured.rows:
                return f"the first pattern without matches is {self._shown(part)}"
        return "each pattern has matches: a filter, or a join of them, leaves no row"

    def _shown(self, part: TriplePattern | PathPattern) -> str:
        return format_part(part, self.query.dataset)


def counted(states: dict[str, StreamState], counts: QueryCounts, log: WindowLog) -> Iterator[str]:
    """Yield the facts that counts tell: late tuples, and windows that were partial, dropped or failed. Counts
    of zero are not told. Called with the engine's lock held."""
    if counts.last_ms is not None:
        yield f"the last window reported, ending at {counts.last_ms} ms, has {counts.last_rows} rows"
    for name, state in sorted(states.items()):
        if state.all_late_count:
            carried_count = state.all_carried_count
            carried = f"{carried_count} of them joined later windows, " if carried_count else ""
            dropped = f"{state.dropped_count} of them were dropped"
            yield f"stream {name}: {state.all_late_count} tuples came late, {carried}{dropped}"
    if counts.partial:
        yield f"{counts.partial} windows were partial, the last of them ended at {counts.partial_ms} ms"
    if counts.over_budget:
        yield f"{counts.over_budget} windows were not made: their slices were gone"
    if counts.not_reported:
        yield f"{counts.not_reported} windows were left out, as REPORT says"
    if counts.errors:
        yield f"{counts.errors} errors were counted, of firings and of on_result"
    if log.dropped_count:
        yield f"{log.dropped_count} windows were dropped unread, up to the one ending at {log.dropped_to_ms} ms"


def _slices(state: StreamState) -> BatchSet:
    ring = state.ring
    oldest, closed_to = ring.oldest, ring.closed_to
    return ring.window(0, 0) if oldest is None or closed_to is None else ring.window(oldest - 1, closed_to)


def _needed(node: Node) -> Iterator[TriplePattern | PathPattern]:
    """Yield the patterns without whose matches a node has no row, in order; those of one side of a UNION are none."""
    match node:
        case Bgp():
            yield from node.patterns
        case PathPattern():
            yield node
        case Join():
            yield from _needed(node.left)
            yield from _needed(node.right)
        case LeftJoin() | Minus():
            yield from _needed(node.left)
        case Union():
            pass
        case _ if (inner := getattr(node, "pattern", None)) is not None:
            yield from _needed(inner)


def _filters(step: PlanStep) -> str:
    return "".join(f" filter {format_expression(condition)}" for condition in step.filters)
