"""ContinuousQuery: a registered query: its windows, when it fires next, and what it has reported."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from csparql.algebra import Query, StreamWindow
from csparql.explain import explain
from csparql.planner import plan_bgp
from csparql.terms import Term, iri
from store.batch_set import EMPTY, BatchSet
from store.dtypes import DEFAULT_GRAPH_IRI
from store.snapshot import tick_sn
from store.term_registry import TermReader
from wukongs.answer import Answer, answer
from wukongs.core import Core
from wukongs.dataset import Dataset, DatasetCardinalities
from wukongs.errors import BudgetExceeded, CompactedError, WukongsError
from wukongs.plan_memo import PlanMemo
from wukongs.plan_runner import Limits
from wukongs.query_terms import ConstantIds, QueryTerms
from wukongs.results import WindowResult
from wukongs.slice_budget import evicted
from wukongs.slice_filter import ANY_PREDICATE, Predicate
from wukongs.subscription import Subscription
from wukongs.windows import Interval, firing_step, first_multiple, interval, matched_in

if TYPE_CHECKING:
    from wukongs.injector import Injector

TIMES_REMEMBERED = 10_000
NOTHING_KNOWN = -(1 << 62)
log = logging.getLogger("wukongs")


class ContinuousQuery:
    """A registered query, as Engine.register returns it. All its methods may be called from any thread."""

    def __init__(
        self, core: Core, injector: Injector, query: Query, on_result: Callable[[WindowResult], object] | None
    ) -> None:
        assert query.registration is not None
        self.name = query.registration.name
        self.query = query
        self.step_ms = firing_step(query)
        self._core = core
        self._injector = injector
        self._on_result = on_result
        self._subscription = Subscription(core.settings.results_max)
        constants = constants_of(query)
        ids, self._references = core.registry.reserve([term.text for term in constants])
        self._constants = ConstantIds(core.registry, dict(zip(constants, ids.tolist(), strict=True)))
        self._memo = PlanMemo()
        self._answer_to_nothing: Answer | None = None
        """What the query answers when all its windows are empty and it reads nothing else, if that has no row."""
        self._states = {window.stream: core.stream(window.stream) for window in query.dataset.windows}
        self._closed_at_start = {s: at for s, state in self._states.items() if (at := state.closed_ms) is not None}
        self._reach_ms: dict[str, int] = {}
        for window in query.dataset.windows:
            reach_ms = window.range_ms + window.step_ms
            self._reach_ms[window.stream] = max(reach_ms, self._reach_ms.get(window.stream, reach_ms))
        self.matched: dict[str, set[Predicate]] = {
            stream: {
                self._constants(pattern.predicate) if isinstance(pattern.predicate, Term) else ANY_PREDICATE
                for pattern in matched_in(query, stream)
            }
            for stream in self._states
        }
        """Stream -> the ids of the predicates that can be matched in its windows, or ANY_PREDICATE."""
        self._next_ms: int | None = None
        self._is_paused = False
        self.is_closed = False
        self._window_count = 0
        self._row_count = 0
        self._error_count = 0
        self._over_budget_count = 0
        self._last_rows = 0
        self._execution_us: deque[float] = deque(maxlen=TIMES_REMEMBERED)
        self._latency_us: deque[float] = deque(maxlen=TIMES_REMEMBERED)

    def __repr__(self) -> str:
        return f"<ContinuousQuery {self.name}: {self._window_count} windows reported>"

    # --- results ------------------------------------------------------------------------------------------------------

    def results(self, timeout_s: float | None = None) -> Iterator[WindowResult]:
        """Iterate over the reported windows, in order. Ends when the query is closed and all is read, or when
        timeout_s (seconds) pass without a window. Raises the error of a firing that failed; iterate again to go on
        after it."""
        return self._subscription.read(timeout_s)

    def aresults(self, timeout_s: float | None = None) -> AsyncIterator[WindowResult]:
        """As results, for `async for`."""
        return self._subscription.aread(timeout_s)

    def close(self) -> None:
        """End the query. What it has reported can still be read."""
        with self._core.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._injector.forget(self)
            self._core.registry.release(self._references)
        self._subscription.close()

    def fail(self, error: WukongsError) -> None:
        """End the query with an error that its reader is told, after what was reported before."""
        self._subscription.put(error)
        self.close()

    def pause(self) -> None:
        """Report nothing until resume; windows that close meanwhile are skipped."""
        self._is_paused = True

    def resume(self) -> None:
        """Report again, from the next window on."""
        self._is_paused = False

    def stats(self) -> dict[str, Any]:
        """Return counts, and medians and 99th percentiles of the last firings in microseconds."""
        return {
            "windows": self._window_count,
            "rows": self._row_count,
            "last_rows": self._last_rows,
            "errors": self._error_count,
            "over_budget": self._over_budget_count,
            "results_waiting": len(self._subscription),
            "results_dropped": self._subscription.dropped_count,
            "plans_made": self._memo.planned_count,
            "execution_us_p50": _percentile(self._execution_us, 50),
            "execution_us_p99": _percentile(self._execution_us, 99),
            "latency_us_p50": _percentile(self._latency_us, 50),
            "latency_us_p99": _percentile(self._latency_us, 99),
        }

    def explain(self) -> str:
        """Return the plan as text, with the rows that are estimated for the windows as they stand now."""
        with self._core.lock:
            at_ms = self._next_ms if self._next_ms is not None else (self._core.sealed_ms or 0)
            dataset, _ = self._dataset(at_ms)
        return explain_over(self.query, dataset)

    def why(self) -> str:
        """Return, in words, what the query waits for."""
        with self._core.lock:
            if self.is_closed or self._is_paused:
                return f"{self.name} is {'closed' if self.is_closed else 'paused'}"
            waiting = [s for s, state in self._states.items() if not (state.is_started or state.is_ended)]
            if waiting:
                return f"{self.name} waits for the first tuple or advance of {', '.join(sorted(waiting))}"
            due = self.due()
            if due is not None:
                return f"{self.name} is about to report the window ending at {due} ms"
            behind = {
                state.iri: state.closed_ms
                for state in self._core.streams.values()
                if state.is_started and not state.is_ended
                if state.closed_ms is None or self._next_ms is None or state.closed_ms < self._next_ms
            }
            if not behind:
                return f"{self.name} has reported all windows: its streams have ended"
            stand = ", ".join(f"{name} (closed up to {ms} ms)" for name, ms in sorted(behind.items()))
            return f"{self.name} waits to report the window ending at {self._next_ms} ms for {stand}"

    # --- firing, called by the injector -------------------------------------------------------------------------------

    def due(self) -> int | None:
        """Return the time of the next firing if it is covered, None if not. Called with the lock held."""
        if self._next_ms is None:
            self._next_ms = self._first_firing()
        covered = self._covered_ms()
        if self._next_ms is None or covered is None or self._next_ms > covered:
            return None
        return self._next_ms

    def keep_after_ms(self) -> dict[str, int]:
        """Return, per stream, the time up to which this query needs no slices any more; none while it cannot tell."""
        if self._next_ms is None:
            self._next_ms = self._first_firing()
        if self._next_ms is None:
            return {}
        return {stream: self._next_ms - reach_ms for stream, reach_ms in self._reach_ms.items()}

    def needs_after(self) -> dict[str, int]:
        """Return, per stream, the stream batch after which the next firing reads; all while it cannot tell."""
        found: dict[str, int] = {}
        for window in self.query.dataset.windows:
            after = NOTHING_KNOWN
            if self._next_ms is not None:
                after = interval(window, self._states[window.stream].batch_ms, self._next_ms).after
            found[window.stream] = min(after, found.get(window.stream, after))
        return found

    def skip_to(self, time_ms: int) -> None:
        """Go on with the first firing after a time."""
        self._next_ms = first_multiple(self.step_ms, time_ms, is_strict=True)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def prepare(self, at_ms: int) -> Firing:
        """Pick what the firing at a time reads. Called with the lock held, when everything up to then is sealed."""
        for window in self.query.dataset.windows:
            state = self._states[window.stream]
            state.ring.close(interval(window, state.batch_ms, at_ms).to)
        dataset, intervals = self._dataset(at_ms)
        partial = False
        error = None
        for window, span in intervals.items():
            state = self._states[window.stream]
            missing = [state.ring.lost_to]
            if state.slice_filter is not None:
                missing.append(state.slice_filter.lacks_to(self.matched[window.stream]))
            partial |= any(to is not None and span.after < to for to in missing)
            error = error or evicted(self.name, at_ms, window, span, state)
        self.skip_to(at_ms)
        return Firing(self, at_ms, dataset, intervals, partial, self._core.registry.snapshot_reader(), error)

    def run(self, firing: Firing, due_at_s: float) -> None:
        """Execute a firing and report its window. Called without the lock. due_at_s: perf_counter when it was due."""
        started_s = time.perf_counter()
        try:
            if firing.error is not None:
                self._over_budget_count += 1
                raise firing.error
            window = self._execute(firing, due_at_s)
        except WukongsError as error:
            log.warning("query %s, window ending at %d ms: %s", self.name, firing.at_ms, error)
            self._put_error(error)
            return
        except Exception as error:
            # A mistake of ours in this query: the others, and the streams, go on without it.
            log.exception("query %s, window ending at %d ms: the firing has failed", self.name, firing.at_ms)
            told = WukongsError(
                f"query {self.name}, window ending at {firing.at_ms} ms: the firing failed with "
                f"{type(error).__name__}: {error}. Its later windows are still reported; see the log"
            )
            told.__cause__ = error.with_traceback(None)  # its frames hold tables
            self._put_error(told)
            return
        self._execution_us.append((time.perf_counter() - started_s) * 1e6)
        self._latency_us.append(window.latency_us)
        self._window_count += 1
        self._last_rows = len(window)
        self._row_count += len(window)
        if self._on_result is None:
            self._subscription.put(window)
            return
        try:
            self._on_result(window)
        except Exception:
            self._error_count += 1
            log.exception("query %s: on_result failed for the window ending at %d ms", self.name, firing.at_ms)

    def _put_error(self, error: WukongsError) -> None:
        self._error_count += 1
        self._subscription.put(error)

    def _execute(self, firing: Firing, due_at_s: float) -> WindowResult:
        terms = QueryTerms(self._core.registry, firing.reader)
        clause = self.query.dataset
        is_empty = not (len(firing.dataset.descriptors) or clause.default_graphs or clause.named_graphs)
        found = self._answer_to_nothing if is_empty else None
        if found is None:
            found = answer(
                self.query,
                firing.dataset,
                terms,
                Limits(self._core.settings.rows_max),
                self._memo,
                scope=f"{self.name}@{firing.at_ms}",
                in_order=True,
            )
            if is_empty and not found.length and not found.triples:
                self._answer_to_nothing = found  # without a row there is nothing in it that could be of another time
        widest: dict[str, tuple[int, int]] = {}
        for window, span in firing.intervals.items():
            known = widest.get(window.stream)
            if known is None or span.start_ms < known[0]:
                widest[window.stream] = (span.start_ms, span.end_ms)
        return WindowResult(
            self.query.form,
            self.query.variables,
            found.columns,
            terms,
            tick_sn(firing.at_ms),
            found.boolean,
            found.triples,
            found.length,
            query=self.name,
            start_ms=min(start_ms for start_ms, _ in widest.values()),
            end_ms=firing.at_ms,
            windows=widest,
            partial=firing.partial,
            latency_us=(time.perf_counter() - due_at_s) * 1e6,
        )

    def _first_firing(self) -> int | None:
        """Find the first firing: the first multiple after the query's stable time at registration; of streams that
        began later, the first at or after their first tuple or advance. None while one has not begun."""
        since = [state.first_ms for s, state in self._states.items() if s not in self._closed_at_start]
        begun = [ms for ms in since if ms is not None]
        if any(state.closed_ms is None and not state.is_ended for state in self._states.values()):
            return None  # not begun, or another source partition may still bring an earlier first tuple
        closed = list(self._closed_at_start.values())
        firsts = []
        if closed:
            firsts.append(first_multiple(self.step_ms, min(closed), is_strict=True))
        if begun:
            firsts.append(first_multiple(self.step_ms, min(begun), is_strict=False))
        return max(firsts, default=None)

    def _covered_ms(self) -> int | None:
        """Return the time up to which firings are covered by all of the query's streams and by the engine."""
        stable = self._core.stable_ms()
        if stable is None:
            return None
        running = [state.closed_ms for state in self._states.values() if not state.is_ended]
        if any(ms is None for ms in running):
            return None
        if running:
            return min(stable, *(ms for ms in running if ms is not None))
        last = max((state.closed_ms for state in self._states.values() if state.closed_ms is not None), default=None)
        return None if last is None else min(stable, first_multiple(self.step_ms, last, is_strict=False))

    def _dataset(self, at_ms: int) -> tuple[Dataset, dict[StreamWindow, Interval]]:
        windows: dict[StreamWindow, BatchSet] = {}
        intervals: dict[StreamWindow, Interval] = {}
        for window in self.query.dataset.windows:
            state = self._states[window.stream]
            span = interval(window, state.batch_ms, at_ms)
            windows[window] = state.ring.window(span.after, span.to)
            intervals[window] = span
        clause = self.query.dataset
        trace = self._core.arrangement.trace
        stored = EMPTY
        if clause.default_graphs or clause.named_graphs:
            try:
                stored = trace.read(tick_sn(at_ms))
            except CompactedError:
                # Only for a stream that began after the others had passed this time: the oldest that can be read.
                stored = trace.read(trace.since)
        return Dataset(clause, stored, windows, self._constants), intervals


@dataclass(frozen=True, slots=True, eq=False)
class Firing:
    """What one firing reads, picked at one moment; error: why it cannot be reported."""

    query: ContinuousQuery
    at_ms: int
    dataset: Dataset
    intervals: dict[StreamWindow, Interval]
    partial: bool
    reader: TermReader
    error: BudgetExceeded | None = None


def constants_of(query: Query) -> list[Term]:
    """Return the terms whose ids a query needs, whatever the data holds: of its patterns, graphs and streams."""
    clause = query.dataset
    names = [DEFAULT_GRAPH_IRI, *clause.default_graphs, *clause.named_graphs, *(w.stream for w in clause.windows)]
    found = dict.fromkeys(iri(name) for name in names)

    def visit(part: Any) -> None:
        if isinstance(part, Term):
            found[part] = None
        elif isinstance(part, tuple):
            for item in part:
                visit(item)
        elif is_dataclass(part):
            for field in fields(part):
                visit(getattr(part, field.name))

    visit(query.pattern)
    return list(found)


def explain_over(query: Query, dataset: Dataset) -> str:
    """Return the text of a query's plan over a dataset."""
    cardinalities = DatasetCardinalities(dataset)
    return explain(query, lambda bgp: plan_bgp(bgp, frozenset(), cardinalities))


def _percentile(times_us: deque[float], percent: float) -> float:
    return float(np.percentile(list(times_us), percent)) if times_us else 0.0
