"""Injector: the thread that moves time on: it seals stream batches in order of time, and fires the queries due.

At the end of stream batches, slices come first. Then fire the queries that match none of the tuples which join the
stored graph at that time; these join it next, and the other queries fire. Merges that seals leave are done when
everything due has fired, so no firing waits for them. Plans are renewed between two moments.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from math import inf
from typing import ParamSpec
from weakref import WeakMethod

from wukongs.errors import StreamError
from wukongs.live.beats import Beat, Beats
from wukongs.live.callbacks import Callbacks
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import NOT_YET_MS, Core
from wukongs.live.firing import Firing, Picked
from wukongs.live.joint_firings import FIRINGS_MAX, DirectFirings, DueFirings, run_jointly
from wukongs.live.made_streams import MadeStreams
from wukongs.live.slice_budget import collect
from wukongs.live.slice_filter import Predicate
from wukongs.live.slow_lane import SlowLane
from wukongs.live.stream_state import FOREVER_MS, FRAGMENT_BYTES_PER_TUPLE, StreamState
from wukongs.live.tracing import LISTENING
from wukongs.live.work_loop import WorkLoop
from wukongs.query.limits import check_seconds, scheduler
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.settings import take_turns_quickly
from wukongs.store.snapshot import tick_sn

log = logging.getLogger("wukongs")
CATCH_UP_POLL_S = 0.002
UPPER_MAX = 1 << 63
IDLE_FUEL = 4096
"""Values merged at a time, of each merge, while nothing else is to do: tens of microseconds with the lock held."""
IDLE_PAUSE_S = 0.0005
AHEAD_PAUSE_S = 0.00005
"""Between two streams of which something is prepared: others get the lock."""
AHEAD_MIN = 100
"""Least number of tuples that wait in a stream for the slice to be built before its stream batch is closed."""
QUIET_S = 1.0
"""When nothing has come for so long, the stored graph is merged further than seals have to pay for."""
SEALS_BETWEEN_DROPS = 64
"""While there is a backlog, slices are dropped as often as this, so that it is never held in slices as a whole."""

_Given = ParamSpec("_Given")


class Due:
    """Queries that were found due at one time, and have not fired yet, in order. company: these by what they are run
    together with (QueryFirings.company)."""

    def __init__(self, queries: Iterable[ContinuousQuery] = ()) -> None:
        self.queries = deque(queries)
        self.company: defaultdict[Hashable, deque[ContinuousQuery]] = defaultdict(deque)
        for query in self.queries:
            if (company := query.firings.company()) is not None:
                self.company[company].append(query)

    def next(self, is_due: Callable[[ContinuousQuery], bool]) -> ContinuousQuery | None:
        """Return the first that is due still, None if there is none; those before it are forgotten."""
        while self.queries:
            if is_due(self.queries[0]):
                return self.queries[0]
            self.queries.popleft()
        return None


class Injector:
    """One per engine; its thread starts with the first stream and ends with the engine."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._queries: dict[str, ContinuousQuery] = {}
        self.made = MadeStreams(core, self._queries, _weakly(self.wake))
        self._beats = Beats()
        self._ready = Due()
        """Queries found due at one time, _ready_ms, that have not fired yet."""
        self._first: Due | None = None
        """Those of them that fire before tuples join the stored graph at that time; None: it was not asked who does."""
        self.callbacks = Callbacks(partial(_on_result_done, core))
        self._ready_ms = FOREVER_MS
        self._ready_clock_ms: int | None = None
        """The clock when they were found: once it has moved on, others may be due earlier."""
        self._alone: set[frozenset[StreamState]] = set()
        """The streams of each query over windows alone."""
        self._counts_only = False
        """Whether some query fires by what has arrived, and not by time."""
        self._seals = 0
        self._loop = WorkLoop(core)
        self._lane = SlowLane(core, _weakly(self.wake), _weakly(self._fail))
        self._step_count = 0
        self._left: DueFirings | None = None
        """Firings that a caller's turn has picked and left to the engine's thread."""
        self._idle_stage = 0
        """The next stage of `_use_idle_time`."""
        self._changing: dict[ContinuousQuery, None] = {}
        """Queries with changes that wait for the firings before them."""
        self._stale: list[PlanMemo] = []
        """Plans of queries that have fired by plans for other sizes."""

    @property
    def queries(self) -> dict[str, ContinuousQuery]:
        """The registered queries by name; read with the lock held."""
        return self._queries

    @property
    def is_on_result(self) -> bool:
        """Whether the caller is a thread of the engine, as on_result is."""
        return self.callbacks.is_own_thread

    def start(self) -> None:
        """Start the thread, once. Called with the lock held."""
        take_turns_quickly()
        self._loop.start(self._work, self._use_idle_time, self._fail)

    def start_with_news(self) -> None:
        """Start the thread over streams that are there already."""
        with self._core.lock:
            self.start()
            self.wake()

    def add(self, query: ContinuousQuery) -> None:
        """Register a query. Called with the lock held."""
        self._queries[query.name] = query
        self.made.attach(query)
        self._beats.add(query)
        self._serve_windows(query.windows.states)
        self.wake()

    def replaced(self, query: ContinuousQuery, streams: Iterable[str]) -> None:
        """Serve the windows of a query's new text. streams: those of its text before. Called with the lock held."""
        self._beats.moved(query)
        self._serve_windows({*streams, *query.windows.states})
        self._find_anew()  # it may be due earlier than those that were found
        self.wake()

    def schedule_changes(self, query: ContinuousQuery) -> None:
        """Let a query make its changes between two firings: now, if none is left that comes before them. Called with
        the lock held."""
        self._changing[query] = None
        self._make_changes([query])
        self.wake()

    def _make_changes(self, queries: Iterable[ContinuousQuery], *, is_settled: bool = False) -> bool:
        """Let queries make the changes for which no firing is left that comes before them. Return whether there was
        one. is_settled: as for QueryChanges.make."""
        is_any = False
        for query in list(queries):
            is_any |= query.changes.make(is_settled=is_settled)
            if query.is_closed or not query.changes.is_any:
                self._changing.pop(query, None)
        if is_any:
            self._core.changed.notify_all()
        return is_any

    def moved(self, query: ContinuousQuery) -> None:
        """Note that a query fires next at another time. Called with the lock held."""
        self._beats.moved(query)

    def forget(self, query: ContinuousQuery) -> None:
        """Take a query out. Called with the lock held."""
        if self._queries.get(query.name) is query:
            del self._queries[query.name]
            self.made.leave(query)
            self._beats.remove(query)
            self._serve_windows(query.windows.states)
            self.wake()

    def _serve_windows(self, streams: Iterable[str]) -> None:
        """Keep, of the streams of a query that has come or gone, the blocks and tuples that registered queries need."""
        readers = list(self._beats.earliest())
        self._alone = {frozenset(one.windows.states.values()) for one in readers if not one.windows.reads_stored}
        self._counts_only = any(one.text.step_ms is None for one in readers)
        windows = [window for one in readers for window in one.query.dataset.windows]
        for name in streams:
            state = self._core.streams.get(name)
            if state is not None:
                widest_ms = max((window.range_ms for window in windows if window.stream == name), default=0)
                state.ring.index_windows(widest_ms // state.batch_ms)
                if any(window.is_counted and window.stream == name for window in windows):
                    state.ring.arrivals.keep()
                else:
                    self._core.release(state.ring.forget_arrivals())
                if state.slice_filter is not None:
                    matched = [other.windows.matched.get(name, set()) for other in self._queries.values()]
                    state.slice_filter.match(set[Predicate]().union(*matched))

    def wake(self) -> None:
        """Say that something has come. Called with the lock held."""
        self._loop.wake()

    def prepare_ahead(self, state: StreamState) -> None:
        """Have the engine's thread begin the next slice of a stream, if enough tuples wait. Called with the lock
        held."""
        if state.waiting_bytes >= AHEAD_MIN * FRAGMENT_BYTES_PER_TUPLE:
            self._idle_stage = 0
            self._loop.notify_idle()

    def submit(self) -> None:
        """Record that the calling thread submits news, and is going to call `run_submitted`.

        Called with the lock held."""
        if not self.is_on_result:
            self._loop.submit()

    def run_submitted(self) -> None:
        """Run the turn that the calling thread has submitted, if it is short. Called without the lock."""
        self._loop.run_submitted()

    @property
    def progress(self) -> tuple[bool, int]:
        """Whether there is work to do, and how often the thread has turned to some."""
        return self._loop.is_busy or self._lane.is_busy, self._step_count

    def settle(self, timeout_s: float | None) -> None:
        """Wait until all closed stream batches are visible and all due windows are reported.

        Raises StreamError when timeout_s (seconds) passes first, or when called from on_result; WukongsError when the
        engine is closed, before or meanwhile.
        """
        if self.is_on_result:
            raise StreamError("settle() called from on_result would wait for itself: call it from another thread")
        self._core.unread.check_may_wait()
        check_seconds(timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._core.lock:
            self._loop.notify()
            while self._is_unsettled() and self._core.failure is None and not self._core.is_closed:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise not_settled(timeout_s)
                self._core.changed.wait(left)
            self._core.check_is_open()

    def _is_unsettled(self) -> bool:
        return self._loop.is_busy or self._lane.is_busy or self.callbacks.is_busy or self.made.is_sending

    def catch_up(self, *, is_ahead: bool = False) -> None:
        """Wait until everything that is stable now is sealed, and until the firings due by then have picked their
        batches. is_ahead: also until stream batches ahead of the clock are slices that queries over windows alone need.

        So no earlier firing sees a load that comes after an advance. Nor does one of those that may come before the
        tuples of their time, which join the stored graph now. Called with the lock held."""
        core = self._core
        # Until a stream that has been late joins by its record, the clock stands at that: behind what is stable.
        self._wait_while(lambda: core.progress.is_behind(core))
        target_ms = core.clock_ms()
        if target_ms is None:
            return
        to_ms = max([target_ms, *self._ahead_ms().values()]) if is_ahead else target_ms
        self._wait_while(lambda: self._is_behind(to_ms))
        core.check_is_open()
        core.move_to(target_ms)
        core.finish_tick()  # a later moment may have begun meanwhile: the SN of what comes next is behind it

    def let_fire(self, state: StreamState) -> None:
        """Wait until the queries over a stream that are due, or will be once late streams have joined the stored graph,
        have picked what they read. Called with the lock held."""
        core = self._core
        self._wait_while(lambda: core.progress.is_behind(core) or self._is_any_due(state))

    def _wait_while(self, holds: Callable[[], bool]) -> None:
        core = self._core
        self._loop.notify()
        while not core.is_closed and core.failure is None and holds():
            core.unread.check_may_wait()
            core.changed.wait(CATCH_UP_POLL_S)

    def _is_any_due(self, state: StreamState) -> bool:
        readers = (beat for beat in self._beats if any(one.reads(state.iri) for one in beat.earliest()))
        return any(beat.due() is not None for beat in readers)

    def _is_behind(self, target_ms: int) -> bool:
        end_ms = self._core.next_end(self._ahead_ms())
        due = [at_ms for beat in self._beats if (at_ms := beat.due()) is not None]
        is_sealed = end_ms is None or end_ms > target_ms
        is_due = any(at_ms <= target_ms for at_ms in due)
        return not is_sealed or is_due or self._core.progress.is_behind(self._core) or self.made.is_behind

    def stop(self) -> None:
        """End the thread. Called without the lock, after the engine was marked closed."""
        self._loop.stop()
        self._lane.stop()
        self.callbacks.stop()

    def _work(self, until_s: float) -> bool:
        """Run what is due, as WorkLoop calls it."""
        self._idle_stage = 0
        self.callbacks.gather()
        try:
            with scheduler().urgent():
                return self._run_due(until_s)
        finally:
            self.callbacks.end_gathering()

    def _fail(self, error: BaseException) -> None:
        """Stop the engine with an error, which ends all queries."""
        with self._core.lock:
            self._core.failure = error
        log.exception("the injector has failed")
        for query in list(self._queries.values()):
            query.fail(self._core.stopped())

    def _run_due(self, until_s: float) -> bool:
        """Seal and fire until nothing is due, or until a time (perf_counter). Return whether all is done.

        With such a time, slow queries are left to the engine's thread."""
        while not self._core.is_closed:
            self._step_count += 1
            firings, is_done, self._left = self._left, False, None
            if firings is None:
                with self._core.lock:
                    waits = any(query.waits_for_lane for query in self._lane.queries)
                    if not waits:
                        firings, is_done = self._step()
                if waits:
                    if until_s < inf:
                        return False
                    self.callbacks.hand_over()
                    self._lane.wait()
                    continue
            self._call_inline()
            if firings is not None and until_s < inf and not firings.are_quick_with(self._lane.room):
                self._left = firings
                return False
            if firings is not None:
                count = len(firings)
                self._fire(firings, self._loop.news_at_s)
                if len(self._ready.queries) <= count:  # no other is due at this time
                    self.callbacks.hand_over()
                    self.callbacks.let_finish()
                    self._renew()
            else:
                self._renew()  # all that was due has been reported
                if is_done:
                    return True
            if time.perf_counter() > until_s:
                return False
        return True

    def _use_idle_time(self) -> float | None:
        """Prepare the next tick, then merge, as WorkLoop calls it."""
        if self._idle_stage == 0:
            if self._core.prepare_ahead():
                return AHEAD_PAUSE_S
            self._idle_stage = 1
            return IDLE_PAUSE_S
        if self._idle_stage == 1:
            self._core.windows.look_ahead()
            self._idle_stage = 2
        return self._merge()

    def replay(self, upper: int = UPPER_MAX) -> None:
        """Seal and fire as far as the stored graph had come at `upper`, and no further.

        The replay of a log calls this in place of the thread, with the lock held."""
        is_done = False
        while not is_done:
            firings, is_done = self._step(upper)
            if firings is not None:
                self._fire(firings, time.perf_counter())
            self._renew()

    def _fire(self, due: DueFirings, due_at_s: float) -> None:
        """Run the firings of queries that are run together, at one time."""
        firings: Sequence[Firing] = due.others
        if len(due) > 1 or due.direct:
            firings = run_jointly(due, self._core.answers, due_at_s, self._call_inline)
            self._core.unread.end_full()
        for firing in firings:
            query = firing.query
            if query.is_closed:
                continue
            if firing.is_offloaded:
                if self._lane.room <= 0:
                    self.callbacks.hand_over()
                self._lane.put(firing, due_at_s)
                continue
            if not (query.is_quick or firing.rows is not None):
                self.callbacks.hand_over()
            elif self.callbacks.has_waited:
                self.callbacks.hand_over()
                self.callbacks.let_finish()
            self.callbacks.watch()  # should it take long all the same
            query.run(firing, due_at_s)
            self._call_inline()
            if query.plans.is_stale:
                self._stale.append(query.plans)

    def _call_inline(self) -> None:
        """Call the on_result of queries that this thread calls itself."""
        if self.callbacks.has_inline:
            unread = self._core.unread
            unread.inline_thread = threading.get_ident()
            try:
                self.callbacks.run_inline()
            finally:
                unread.inline_thread = None

    def _renew(self) -> None:
        while self._stale:
            self._stale.pop().renew()

    def _step(self, upper: int = UPPER_MAX) -> tuple[DueFirings | None, bool]:
        """Seal the stream batches that end next, or pick the next firing, with others that are run together with it.
        Return the firings, if there are any, and whether nothing is left that moves the stored graph to at most
        `upper`.

        Called with the lock held. Between two steps others get the lock, however long the backlog is."""
        self._make_changes(self._changing)
        core, clock_ms, ahead_ms = self._core, self._core.clock_ms(), self._ahead_ms()
        end_ms = core.next_end(ahead_ms)
        query = self._next_due(upper)
        if end_ms is not None and (query is None or end_ms <= self._ready_ms):
            is_ticked = (
                clock_ms is not None and (NOT_YET_MS if core.sealed_ms is None else core.sealed_ms) < end_ms <= clock_ms
            )
            if is_ticked and core.sn_of(end_ms) >= upper:  # what is behind the sealed time becomes slices only
                return None, True
            core.slice(end_ms, ahead_ms)
            if self._counts_only:
                self._make_changes(self._changing)
                self._find_anew()  # what has come may have made one of them due before those
            self._keep_budgets()
            if is_ticked and (first := self._due_first(end_ms, upper)) is not None:
                core.open_ms = end_ms
                return self._picked(*first, upper), False
            was_fired = core.open_ms == end_ms  # so queries know its SN, and what comes behind it is another entry
            core.seal(end_ms, None if was_fired else self._unread_to_ms(upper))
            self._seals += 1
            if self._seals % SEALS_BETWEEN_DROPS == 0:
                self._drop_slices()
            query = self._next_due(upper)
            if query is None or self._ready_ms > end_ms:
                return None, False
            # Nothing that is sealed later belongs to it.
        if query is not None:
            if clock_ms is not None and self._ready_ms <= clock_ms and tick_sn(self._ready_ms) < upper:
                core.move_to(self._ready_ms)
            core.progress.before_firings(core, self._ready_ms)
            return self._picked(query, self._ready, upper), False
        if clock_ms is not None:
            time_ms = min(clock_ms, core.progress.exposed_ms())
            if tick_sn(time_ms) < upper:
                core.move_to(time_ms)
        self._drop_slices()
        self._keep_budgets()  # what counting windows have read takes room, too
        is_more = core.progress.go_on(core) or self.made.go_on()
        is_whole = core.replayed_to is None or upper == UPPER_MAX
        return None, not (is_more or (is_whole and self._make_changes(self._changing, is_settled=True)))

    def _ahead_ms(self) -> dict[str, int]:
        """Return, per stream, the time up to which queries over windows alone can fire, and need slices."""
        found: dict[str, int] = {}
        for states in self._alone:
            covered = min((state.cover_ms for state in states if state.cover_ms is not None), default=None)
            if covered is not None and all(state.cover_ms is not None for state in states):
                for state in states:
                    found[state.iri] = max(covered, found.get(state.iri, covered))
        return found

    def _unread_to_ms(self, upper: int) -> int | None:
        """Return a time before which no firing reads the stored graph as it is at a time that the clock has passed;
        None: that is not known."""
        core, query = self._core, self._next_due(upper)
        clock_ms = core.clock_ms()
        if core.replayed_to is not None or core.reach is not None or self._counts_only or clock_ms is None:
            return None
        period_ms = None if core.observer is None else core.observer.next_period_ms()
        fires_ms = FOREVER_MS if query is None else self._ready_ms
        return min(clock_ms, core.progress.exposed_ms(), fires_ms, FOREVER_MS if period_ms is None else period_ms)

    def _due_first(self, end_ms: int, upper: int) -> tuple[ContinuousQuery, Due] | None:
        """Return a query that is due at a time at which tuples are about to join the stored graph, and matches none of
        them, with the others of this kind. It may fire before, with the same answer (decision 0047)."""
        core = self._core
        if core.replayed_to is not None or core.reach is not None or tick_sn(end_ms) < core.upper:
            return None
        if core.inference.is_active or self._next_due(upper) is None or self._ready_ms != end_ms:
            return None
        if self._first is None:
            come = core.joining_predicates(end_ms)
            self._first = Due(
                query for query in self._ready.queries if come and query.firings.fires_before(come, end_ms)
            )
        query = self._first.next(self._is_due)
        return None if query is None else (query, self._first)

    def _picked(self, query: ContinuousQuery, due: Due, upper: int) -> DueFirings | None:
        """Pick what a query reads that is due at _ready_ms, and others that are run together with it, if they are not
        skipped. All of them read the same snapshot. With each, the firings behind it that have its answer are picked
        (wukongs.live.stretch), as far as they read below `upper`."""
        at_ms, company = self._ready_ms, [query]
        if (key := query.firings.company()) is not None:
            waiting, beats, sn = due.company[key], {query.text.beat}, query.windows.sn_at(at_ms)
            while waiting and len(company) < FIRINGS_MAX:
                other = waiting.popleft()
                if other is query or not self._is_due(other):
                    continue
                if other.text.beat not in beats:
                    other_sn = other.windows.sn_at(at_ms)
                    if None not in (sn, other_sn) and sn != other_sn:
                        waiting.appendleft(other)
                        break
                    beats.add(other.text.beat)
                    sn = other_sn if sn is None else sn
                company.append(other)
        is_before = self._core.open_ms == at_ms
        picked, found = Picked(self._core.registry.snapshot_reader(), upper, is_before), DueFirings()
        direct, others = defaultdict[object, list[ContinuousQuery]](list), list[ContinuousQuery]()
        is_traced = LISTENING.to is not None
        for each in company:
            (others if is_traced or not each.firings.is_direct else direct[each.text.beat]).append(each)
        for queries in direct.values():
            firings = self._picked_directly(queries, at_ms, picked)
            if firings is None:
                others += queries
            else:
                found.direct.append(firings)
        for each in others:
            if each.firings.is_skipped(at_ms):
                each.firings.leave_out(at_ms)
            elif (firing := each.firings.prepare(at_ms, picked)) is not None:
                found.others.append(firing)
        last_ms = max((each.last_ms for each in found.others if each.query.windows.reads_stored), default=at_ms)
        if last_ms > at_ms and self._core.query_log is None:
            self._core.move_to(last_ms)  # whatever is stored from now on is behind all of them
        return found if found.direct or found.others else None

    def _picked_directly(self, queries: Sequence[ContinuousQuery], at_ms: int, picked: Picked) -> DirectFirings | None:
        """Pick the direct firings of queries of one beat at a time; None if they are to be picked one by one."""
        first, beat = queries[0], queries[0].text.beat
        step_ms = first.text.step_ms
        assert step_ms is not None, first.name
        assert isinstance(beat, Beat), first.name
        reading = first.windows.read(at_ms, is_compiled=True)
        if not first.windows.is_of_beat(reading):
            return None
        picked.readings[beat] = reading
        if not first.firings.is_alone(at_ms, picked):
            return None
        next_ms, firings = at_ms + step_ms, [query.firings for query in queries]
        found = DirectFirings.pick(firings, at_ms, next_ms, reading, picked.reader)
        self._beats.advance(beat, queries, at_ms, next_ms)
        return found

    def _is_due(self, query: ContinuousQuery) -> bool:
        if self._queries.get(query.name) is not query:
            return False
        return (query.times.due() if query.text.step_ms is None else query.times.next_ms) == self._ready_ms

    def _keep_budgets(self) -> None:
        """Make room in the streams whose slices take more than they may."""
        for state in self._core.moving:
            if state.ring.size_bytes > state.slice_bytes_max:
                needs = [query.times.needs_after() for query in self._beats.earliest()]
                collect(self._core, state, min((n[state.iri] for n in needs if state.iri in n), default=None))

    def _merge(self) -> float | None:
        """Use idle time for merges; return after how many seconds to go on, None if there is no more to do. Called with
        the lock held."""
        is_more = self._core.merge(IDLE_FUEL)
        self._keep_budgets()  # blocks take room, too
        if is_more:
            return IDLE_PAUSE_S
        quiet_in_s = self._loop.news_at_s + QUIET_S - time.perf_counter()
        if quiet_in_s <= 0 and self._core.merge_further(IDLE_FUEL):
            return IDLE_PAUSE_S
        self._core.windows.tidy()
        return quiet_in_s if quiet_in_s > 0 else None

    def _next_due(self, upper: int) -> ContinuousQuery | None:
        """Return a query that is due at the earliest time, _ready_ms, at which one is that reads below `upper`.

        All beats are asked once per time and stand of the clock, not once per firing.
        """
        if (clock_ms := self._core.clock_ms()) != self._ready_clock_ms:
            self._find_anew()
            self._ready_clock_ms = clock_ms
        if (query := self._ready.next(self._is_due)) is not None:
            return query
        due: dict[int, list[Beat]] = defaultdict(list)
        for beat in self._beats:
            if (at_ms := beat.due()) is not None and (upper == UPPER_MAX or beat.reads_sn(at_ms) < upper):
                due[at_ms].append(beat)
        if not due:
            return None
        self._ready_ms = min(due)
        self._ready = Due(query for beat in due[self._ready_ms] for query in beat.waiting[beat.first_ms])
        self._first = None
        return self._ready.queries[0]

    def _find_anew(self) -> None:
        """Ask again who is due."""
        self._ready, self._first = Due(), None

    def _drop_slices(self) -> None:
        """Drop the slices that are older than history_ms and that no registered window needs any more, and the arrivals
        and records of late streams that none needs."""
        for state in self._core.streams.values():
            if len(state.joins) > 1:
                readers = [one for one in self._beats.earliest() if one.times.reads_joins_of(state)]
                nexts = [NOT_YET_MS if one.times.next_ms is None else one.times.next_ms for one in readers]
                state.forget_joins(min(nexts, default=FOREVER_MS))
        for state, keep_after_ms in self.keep_after_ms():
            self._core.drop_slices(state, keep_after_ms)
        arrivals: dict[str, int] = {}
        for query in self._beats.earliest():
            for stream, after in query.times.arrivals_needed().items():
                arrivals[stream] = min(after, arrivals.get(stream, after))
        for stream, after in arrivals.items():
            self._core.release(self._core.streams[stream].ring.drop_arrivals(after))

    def keep_after_ms(self) -> list[tuple[StreamState, int]]:
        """Return, per stream that has closed something, the time up to which its slices are neither recent nor needed
        by a registered query. Called with the lock held."""
        core = self._core
        needed: dict[str, int] = {}
        for query in self._beats.earliest():
            for stream, keep_after_ms in query.times.keep_after_ms().items():
                needed[stream] = min(keep_after_ms, needed.get(stream, keep_after_ms))
        found = []
        for state in core.moving:
            stands_ms = state.sliced_ms()
            if stands_ms is not None:
                if state.is_ended and core.sealed_ms is not None:
                    stands_ms = max(stands_ms, core.sealed_ms)  # it gets no older by itself
                keep_after_ms = stands_ms - state.history_ms
                if state.awaited_ms is not None:
                    keep_after_ms = min(keep_after_ms, state.awaited_ms)
                found.append((state, min(keep_after_ms, needed.get(state.iri, keep_after_ms))))
        return found


def _weakly(method: Callable[_Given, None]) -> Callable[_Given, None]:
    """Return a function that calls a method as long as its object lives, and does not keep it alive: in a circle, the
    graph of an engine would wait for garbage collection."""
    held = WeakMethod(method)

    def call(*given: _Given.args, **named: _Given.kwargs) -> None:
        found = held()
        if found is not None:
            found(*given, **named)

    return call


def _on_result_done(core: Core) -> None:
    with core.lock:
        core.changed.notify_all()


def not_settled(timeout_s: float | None, why: object = None) -> StreamError:
    """Return the error of a wait that was too short. timeout_s: None if something else has ended it; why: what it
    waited for, if that is known."""
    within = "before the wait was given up" if timeout_s is None else f"within timeout_s = {timeout_s:g}"
    return StreamError(f"not settled {within}: {why or 'give it more time'}")
