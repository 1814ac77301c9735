"""Views: moves the live views of an engine from snapshot to snapshot, by a thread of its own.

An update or a load wakes it and does not wait for it; `settle` does. Views at the same SN share its handle, and the
change from there is computed once."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from wukongs.csparql.algebra import Query
from wukongs.csparql.terms import Term
from wukongs.errors import CompactedError, StreamError, WukongsError
from wukongs.incremental.arguments import Arguments
from wukongs.incremental.versions import Change
from wukongs.live.callbacks import Callbacks
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import Core
from wukongs.live.declarations import parse_registered
from wukongs.live.journal import DataFolder
from wukongs.live.made_streams import Made
from wukongs.live.query_source import QuerySource
from wukongs.live.reading import ids_of
from wukongs.live.views.caller import OnReport
from wukongs.live.views.cycles import Place, Step, check_no_cycle, graph, reads_of, steps_of
from wukongs.live.views.following_view import Stop
from wukongs.live.views.kept_views import given_of, reports_of, restore_given, restored_arguments, states_of, way_of
from wukongs.live.views.live_view import LiveView
from wukongs.live.views.logged_givings import LoggedGivings
from wukongs.live.views.named_readers import NamedReaders
from wukongs.live.views.options import ViewOptions
from wukongs.live.views.quiet_views import QuietViews
from wukongs.live.views.snapshots import Snapshot, Snapshots
from wukongs.live.views.view_arguments import ViewArguments
from wukongs.live.views.view_journal import ViewJournal
from wukongs.live.views.view_log import Position
from wukongs.live.views.view_state import CALLED, OWN, Cursor, ViewState, digest
from wukongs.live.windows import makes_stream
from wukongs.query.limits import check_seconds
from wukongs.query.reach import Reach
from wukongs.query.terms.query_terms import DataTexts
from wukongs.rules.program import Rule
from wukongs.store.snapshot import tick_of

log = logging.getLogger("wukongs")
SMALL_CHANGE = 1 << 14
"""Quads of a change that views follow in any case."""


def is_large(change: int, before: int) -> bool:
    """Return whether evaluating two contents is less work than following a change. Both in quads, inserted and deleted;
    before: those of the graph before the change."""
    return change > max(SMALL_CHANGE, before)


def _logged(core: Core, folder: DataFolder, news: dict[int, Any]) -> Callable[[], object]:
    """Have the log of a data folder say how far readers have got. Return what waits for it."""
    lsn = folder.note_positions(news)
    return partial(core.journal.wait, lsn) if lsn else _nothing


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class _Step:
    """The next move of one view.

    to: the snapshot, held for the view.
    change: computes the change of the graph up to there; it returns None if that is not kept.
    time_ms: the event time there."""

    view: LiveView
    to: Snapshot
    change: Callable[[], Change | None]
    time_ms: int | None


class Views:
    """Called with the engine's lock held, but for `settle` and `stop`."""

    def __init__(
        self,
        core: Core,
        callbacks: Callbacks,
        queries: Mapping[str, ContinuousQuery],
        folder: DataFolder | None = None,
        *,
        is_of_cluster: bool = False,
    ) -> None:
        """queries: those with windows, by name. folder: has the views, too. is_of_cluster: the log of a cluster has
        them, and where their named readers stand."""
        self._core, self._callbacks, self._queries = core, callbacks, queries
        self._is_of_cluster = is_of_cluster
        self._views: dict[str, LiveView] = {}
        self._snapshots = Snapshots(core)
        self._named = NamedReaders(core, self._snapshots, self._views)
        self._journal = None if folder is None else ViewJournal(core, partial(_logged, core, folder))
        self._readers = ViewJournal(core, self._named.log, self._named.forget) if is_of_cluster else self._journal
        self._quiet = QuietViews[LiveView](core, self._snapshots)
        self._changes: dict[tuple[int, int], Callable[[], Change | None]] = {}
        """Those of one round, by their SNs. Used by the thread."""
        self._news = threading.Condition(core.lock)
        self._thread: threading.Thread | None = None
        self._count = 0
        """Views that were registered."""
        self._is_stopped = False
        self._is_by_wall = False
        """Periods end by wall time: no stream has closed anything yet."""

    def __len__(self) -> int:
        return len(self._views)

    def get(self, name: str) -> LiveView | None:
        return self._views.get(name)

    def stands(self) -> list[int]:
        """Return the SNs that views hold, in order."""
        return self._snapshots.sns

    def registered(self) -> list[LiveView]:
        return list(self._views.values())

    def register(
        self,
        query: Query,
        source: QuerySource,
        options: ViewOptions,
        on_result: OnReport | None,
        arguments: ViewArguments | None = None,
        *,
        makes: bool = False,
        of: int = 0,
    ) -> LiveView:
        """Register a view at the newest SN. Its thread builds what it keeps. arguments: of the view, if it has some.
        makes: the stream that it makes had no maker before. of: its record in the log of a cluster."""
        core, table = self._core, digest(source.bindings)
        core.finish_tick()
        snapshot = self._snapshots.newest()
        try:
            self._check_cycle(query, options)
            if self._journal is not None:
                of = self._log(query, source, options, arguments, has_callback=on_result is not None, makes=makes)
            view = self._made(query, source, options, snapshot, arguments, of, table)
        except BaseException:
            self._snapshots.release(snapshot)
            if of and self._journal is not None:  # no memory, or an interrupt
                self._journal.change(of, "close")
            raise
        if view.given is not None and self._is_of_cluster:
            view.given.logged = LoggedGivings({})
        self._begin(view)
        if on_result is not None:
            view.call(on_result)
        return view

    def _log(
        self,
        query: Query,
        source: QuerySource,
        options: ViewOptions,
        arguments: ViewArguments | None,
        *,
        has_callback: bool,
        makes: bool,
    ) -> int:
        """Log a view that is about to be registered; return its record. Raises StorageError."""
        assert self._journal is not None
        assert query.registration is not None
        at = [self._core.sn, 0 if arguments is None else arguments.at.version]
        begins_whole = options.snapshot and (source.output or query.registration.output) != "dstream"
        cursor = [None if begins_whole else at, []]
        state = {
            "name": query.registration.name,
            "source": {name: value for name, value in source._asdict().items() if name != "bindings"},
            "options": options._asdict(),
            "at": at,
            "table": digest(source.bindings),
            "names": None if arguments is None else list(arguments.names),
            "cursors": {OWN: cursor, **({CALLED: cursor} if has_callback else {})},
            "bound": [[1, "bind", source.bindings]] if arguments is not None and arguments.at.version else [],
            "given": None if options.into is None else {} if options.snapshot else {"at": at},
        }
        return self._journal.register(state, makes=makes)

    def _made(
        self,
        query: Query,
        source: QuerySource,
        options: ViewOptions,
        snapshot: Snapshot,
        arguments: ViewArguments | None,
        of: int,
        table: str | None,
    ) -> LiveView:
        return LiveView(
            self._core,
            self._snapshots,
            self._callbacks,
            query,
            source,
            options,
            snapshot,
            self._forget,
            self._check_cycle,
            arguments,
            self._journal,
            of,
            table,
            self._readers,
        )

    def _begin(self, view: LiveView) -> None:
        """Have a view follow the stored graph from now on."""
        core = self._core
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="wukongs-views", daemon=True)
            thread.start()  # raises if the process may have no more threads: the next call tries again
            self._thread = thread
        self._views[view.name] = view
        self._count += 1
        view.number = self._count
        self._quiet.awake[view] = None
        core.observer = self
        self._is_by_wall = core.sealed_ms is None
        view.end_period(self._clock_ms(), None)
        self._news.notify_all()

    # --- data folders -------------------------------------------------------------------------------------------------

    def take_news(self) -> dict[int, Any]:
        """Implement ViewRecords.take_news, for the log."""
        return {} if self._journal is None else self._journal.take_news()

    def states(self) -> Callable[[], list[dict[str, Any]]]:
        """Implement ViewRecords.states, for a checkpoint."""
        return states_of(self._core, self._views.values())

    def restore(self, folder: DataFolder, made_of: Callable[[str], Made | None]) -> None:
        """Go on with the views of a data folder. made_of: returns the stream of an IRI that is made by others. Raises
        StorageError."""
        for state in folder.views.states.values():
            self._restore(state, made_of)
        folder.views.release()
        folder.keep_views(self)

    def _restore(self, state: ViewState, made_of: Callable[[str], Made | None]) -> None:
        core, options = self._core, ViewOptions(**state.options)
        source = QuerySource.of(state.source)
        query, own, versions = parse_registered(source), None, dict[int, Arguments]()
        if state.names is not None:
            own = ViewArguments(core, query, state.names)
            versions = restored_arguments(own, state, core.registry)
        self._stand(state, query, source, own, versions, None if options.into is None else made_of(options.into))

    def take_over(
        self,
        query: Query,
        source: QuerySource,
        options: ViewOptions,
        of: int,
        cursors: Mapping[str, Cursor],
        own: ViewArguments | None,
        versions: Mapping[int, Arguments],
        made: Made | None,
        givings: LoggedGivings,
        *,
        is_paused: bool,
    ) -> LiveView:
        """Go on with a view of another node of the cluster, or of an earlier life of this one. of: its record; cursors:
        of its named readers; own: its arguments; versions: these at each version that a reader may stand at; made: the
        stream that it makes; givings: what that was given."""
        starts = [at for at, _ in cursors.values() if at is not None]
        at = min(starts, default=[self._core.sn, 0 if own is None else own.newest.version])
        assert query.registration is not None
        state = ViewState(
            of,
            query.registration.name,
            source._asdict(),
            options._asdict(),
            at,
            digest(source.bindings),
            cursors=dict(cursors),
            is_paused=is_paused,
        )
        self._core.finish_tick()
        view = self._stand(state, query, source, own, versions, made)
        view.begins_again = True
        if view.given is not None:
            view.take_givings(givings)
        return view

    def _stand(
        self,
        state: ViewState,
        query: Query,
        source: QuerySource,
        own: ViewArguments | None,
        versions: Mapping[int, Arguments],
        made: Made | None,
    ) -> LiveView:
        """Have a view go on where it stood."""
        core, options = self._core, ViewOptions(**state.options)
        given = given_of(state, made)
        held = {
            position: snapshot for position in state.positions() if (snapshot := self._held(position, versions, own))
        }
        newest = Position(core.sn, 0 if own is None else own.newest.version)
        anchor = Position(*given["at"]) if given is not None and "at" in given and not state.is_paused else None
        try:
            way = way_of(state, held.__contains__, anchor, newest)
            start = way.start or newest
            if own is not None:
                own.stand_at(versions[start.minor])
            snapshot = self._snapshots.newest() if way.start is None else self._snapshots.hold(held[start])
            view = self._made(query, source, options, snapshot, own, state.of, state.table)
            view.is_recovered = True
            if state.is_paused:
                view.begin_paused()
            if given is not None:
                restore_given(view, given)
            stops = [
                Stop(self._snapshots.hold(held[one]), versions[one.minor] if own is not None else None)
                for one in way.stops
            ]
            view.go_on(reports_of(view, state) if way.start == state.position else (), way.cursors, stops)
        finally:
            for snapshot in held.values():
                self._snapshots.release(snapshot)
        if made is not None:
            made.producer, view.made = view, made
        self._begin(view)
        if core.sealed_ms is not None:
            view.end_period_now(core.sealed_ms)
        return view

    def _held(
        self, position: Position, versions: Mapping[int, Arguments], own: ViewArguments | None
    ) -> Snapshot | None:
        """Hold the version of the stored graph at a position; None: a view cannot stand there."""
        if position.sn > self._core.sn or (own is not None and position.minor not in versions):
            return None
        try:
            return self._snapshots.at(position.sn)
        except CompactedError:
            return None

    # --- streams that views make --------------------------------------------------------------------------------------

    @property
    def makers(self) -> list[LiveView]:
        """The views that make streams."""
        return [view for view in self._views.values() if view.makes is not None]

    def _others(self, rules: Iterable[Rule]) -> list[Step]:
        """Return all that makes triples of others."""
        found = [view.step for view in self.makers] + steps_of(rules)
        for query in self._queries.values():
            if query.makes is not None:
                found.append(Step(f"query {query.name}", reads_of(query.query), Place("stream", query.makes)))
        for state in self._core.streams.values():
            if state.timing is not True:
                found.append(Step(f"stream {state.iri}", {Place("stream", state.iri)}, graph(state.into_iri)))
        return found

    def _check_cycle(self, query: Query, options: ViewOptions) -> None:
        """Check a view's text. Raises StreamError."""
        if options.into is not None:
            assert query.registration is not None
            step = Step(f"view {query.registration.name}", reads_of(query), Place("stream", options.into))
            check_no_cycle(step, self._others(self._core.inference.ruleset.program.rules))

    def check_rules(self, rules: Iterable[Rule]) -> None:
        """Raise StreamError if by other rules a view would read what is made of its own triples."""
        if makers := self.makers:
            others = self._others(rules)
            for view in makers:
                check_no_cycle(view.step, others)

    def check_query(self, query: Query) -> None:
        """Do the same for one more query with windows."""
        if (makers := self.makers) and makes_stream(query):
            assert query.registration is not None
            name = query.registration.name
            others = self._others(self._core.inference.ruleset.program.rules)
            for view in makers:
                check_no_cycle(view.step, [*others, Step(f"query {name}", reads_of(query), Place("stream", name))])

    def _forget(self, view: LiveView) -> None:
        if self._views.get(view.name) is view:
            view.awake()
            del self._views[view.name], self._quiet.awake[view]
            if self._readers is not None:
                self._readers.forget(view.of)
            if not self._views:
                self._core.observer = None
            self._news.notify_all()

    # --- what the core reports ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Note that the stored graph has a newer SN. Views that are too far behind begin again at it: the thread may be
        at another view, or at one of them."""
        if self._snapshots.note_newer():
            for view in self._views.values():
                view.bound_lag()
            self._named.bound_lag()
        self._news.notify_all()

    def pass_time(self, time_ms: int) -> None:
        """Note that what is sealed next comes after an event time, and nothing before has come later. The first one
        begins periods of event time in the place of those of wall time."""
        is_first, self._is_by_wall = self._is_by_wall, False
        self._end_periods(time_ms, None if is_first else self._snapshots)

    def _end_periods(self, time_ms: int, snapshots: Snapshots | None) -> None:
        for view in self._quiet.awake:
            if view.every_ms is not None:
                view.end_period(time_ms, snapshots)

    def _follows_wall(self, view: LiveView) -> bool:
        """Return whether a view's periods end by wall time, as long as no stream has closed anything. Those of a view
        that makes a stream do not if event time is still to begin: its stream would stand at wall time for good."""
        if view.every_ms is None:
            return False
        states = self._core.streams.values()
        return view.makes is None or all(state.is_made or state.is_ended for state in states)

    def next_period_ms(self) -> int | None:
        """Return the event time at which the next period of a view ends."""
        return min((view.period_end_ms for view in self._quiet.awake if view.every_ms is not None), default=None)

    def _clock_ms(self) -> int:
        """Return the event time of the stored graph; without streams, that of the wall clock."""
        sealed_ms = self._core.sealed_ms
        return self._core.wall_ms() if sealed_ms is None else sealed_ms

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                self._move_quiet()
                steps, reader = self._next_steps()
                for step in steps:
                    step.view.advance(step.to, step.change, reader, step.time_ms)
                self._rest()
        except BaseException as error:
            with self._core.lock:
                self._core.failure = error
                self._core.changed.notify_all()
            log.exception("the thread of the live views has failed")
            for view in self.registered():
                view.log.close()

    def _wait(self) -> bool:
        """Wait until a view is behind; return False if the engine is closed."""
        core = self._core
        with core.lock:
            while not (self._is_stopped or core.is_closed or core.failure is not None):
                core.finish_tick()
                if core.sealed_ms is None:
                    for view in filter(self._follows_wall, self._quiet.awake):
                        view.end_period(core.wall_ms(), self._snapshots)
                if self._quiet.is_behind(core.sn) or any(view.is_due(core.sn) for view in self._quiet.awake):
                    return True
                self._news.wait(self._wait_s())
            return False

    def _move_quiet(self) -> None:
        """Move the quiet views to the newest snapshot. Views that the change may concern and that share nothing are
        awake from now on, and move by themselves."""
        quiet, core = self._quiet, self._core
        with core.lock:
            before = quiet.snapshot
            if before is None or not quiet.is_behind(core.sn):
                return
            to = self._snapshots.newest()
            compute = self._change(self._snapshots.hold(before), to)
            reader = core.registry.snapshot_reader()
        change = None
        try:
            try:
                change = compute()
            except WukongsError as error:  # of another node; each view finds its own
                log.debug("the change from SN %d to SN %d: %s", before.sn, to.sn, error)
            with core.lock:
                views, groups = quiet.concerned(change)
                for view in views:
                    quiet.give(view)
                for group in groups:
                    quiet.prepare(group)
            moved = [(group, group.advance(before, to, change, reader)) for group in groups]
            with core.lock:
                for group, shares in moved:
                    if shares is None:
                        quiet.part(group)
                    else:
                        shares.put(before, to)
                if quiet.snapshot is before:
                    quiet.move(to)
                else:  # all are awake
                    self._snapshots.release(to)
                core.changed.notify_all()
        finally:
            with core.lock:
                self._snapshots.release(before)

    def _rest(self) -> None:
        """End a round: views that are complete are quiet from now on."""
        self._changes.clear()
        with self._core.lock:
            for view in [one for one in self._quiet.awake if one.may_be_quiet]:
                self._quiet.take(view)
            self._core.changed.notify_all()

    def _wait_s(self) -> float | None:
        """Return how long until a period of wall time ends, or a view that has failed is tried again."""
        waits = [retry_s for view in self._quiet.awake if (retry_s := view.retry_s or 0.0) > 0]
        if self._core.sealed_ms is None:
            ends_ms = [view.period_end_ms for view in self._quiet.awake if self._follows_wall(view)]
            waits += [(end_ms - self._core.wall_ms()) / 1000 for end_ms in ends_ms]
        return max(0.0, min(waits)) if waits else None

    def _next_steps(self) -> tuple[list[_Step], DataTexts]:
        """Return (a step for each view that is awake and behind, the texts of the stored terms)."""
        core = self._core
        with core.lock:
            steps = list[_Step]()
            for view in sorted(self._quiet.awake, key=lambda view: view.number):
                due = view.due(core.sn)
                if due is not None:
                    to = due.snapshot or self._snapshots.newest()
                    change = self._change(view.snapshot, to)
                    steps.append(_Step(view, to, change, tick_of(to.sn) if due.time_ms is None else due.time_ms))
                    view.begin_move(to)
            reader = core.registry.snapshot_reader()
            return steps, reader if core.reach is None else core.reach.reader(reader)

    def _change(self, after: Snapshot, to: Snapshot) -> Callable[[], Change | None]:
        """Return what computes the change between two snapshots, once a round, when it is asked for."""
        known = self._changes.get((after.sn, to.sn))
        if known is None:
            known = self._changes[after.sn, to.sn] = self._computed(after, to)
        return known

    def _computed(self, after: Snapshot, to: Snapshot) -> Callable[[], Change | None]:
        reach = self._core.reach
        find = self._change_here(after, to) if reach is None else self._change_of_all(after, to, reach)
        known = list[Change | WukongsError | None]()

        def compute() -> Change | None:
            if not known:
                try:
                    known.append(find())
                except WukongsError as error:  # of another node
                    known.append(error)
            if isinstance(known[0], WukongsError):
                raise known[0]
            return known[0]

        return compute

    def _change_here(self, after: Snapshot, to: Snapshot) -> Callable[[], Change | None]:
        trace = self._core.arrangement.trace
        entries = trace.between(after.sn, to.sn)
        if entries is None:  # too large for the trace to keep as sealed; handles keep both SNs apart
            with contextlib.suppress(CompactedError):
                entries = trace.merged_between(after.sn, to.sn)
        if entries is None or is_large(sum(map(len, entries)), sum(map(len, after.stored.batches))):
            return lambda: None
        return lambda: Change.of(after.stored, to.stored, entries)

    def _change_of_all(self, after: Snapshot, to: Snapshot, reach: Reach) -> Callable[[], Change | None]:
        """Return what finds the change over all nodes of a cluster, for the predicates that some view reads. This node
        holds both snapshots, so its trace has all that lies between."""
        core = self._core
        entries = core.arrangement.trace.merged_between(after.sn, to.sn)
        read = [view.predicates for view in self._views.values()]
        named = None if None in read else frozenset[Term]().union(*(some for some in read if some is not None))

        def find() -> Change | None:
            ids = None if named is None else ids_of(core).resolve_all(sorted(term.text for term in named))
            found = reach.changed(entries, after.sn, to.sn, ids)
            return None if found is None else Change.between(after.stored, to.stored, *found)

        return find

    # --- waiting and ending -------------------------------------------------------------------------------------------

    def settle(self, timeout_s: float | None) -> None:
        """Wait until all views are at the SN that is the newest now, or have failed there; views with a period at its
        last end. Called without the lock. Raises StreamError when timeout_s passes first."""
        check_seconds(timeout_s)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        core = self._core
        with core.lock:
            core.finish_tick()
            sn = core.sn
            while not core.is_closed and core.failure is None and (behind := self._behind(sn)):
                left = None if deadline_s is None else deadline_s - time.monotonic()
                if left is not None and left <= 0:
                    raise StreamError(f"settle: views {', '.join(behind)} are not at SN {sn} after {timeout_s} s")
                core.changed.wait(left)
            core.check_is_open()

    def _behind(self, sn: int) -> list[str]:
        """Return the names of the views that have to move to be at an SN."""
        behind = [view.name for view in self._quiet.awake if view.is_behind(sn)]
        return behind + self._quiet.names() if self._quiet.is_behind(sn) else behind

    def stop(self) -> None:
        """End the thread. Called without the lock."""
        with self._core.lock:
            self._is_stopped = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join()

    def end(self) -> None:
        """End all views, once a last checkpoint has what they are. Called without the lock."""
        for view in list(self._views.values()):
            view.end()
