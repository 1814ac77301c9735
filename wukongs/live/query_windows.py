"""QueryWindows: the windows of one registered query: what they need of the slices, and what a firing reads of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from wukongs.csparql.algebra import Query, StreamWindow, TriplePattern
from wukongs.csparql.terms import Term, Variable, iri
from wukongs.csparql.warnings import STORED, default_predicates, query_warnings
from wukongs.errors import BudgetExceeded
from wukongs.incremental.maintained import Maintained, StoredChange
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.window_join import WindowJoin
from wukongs.live.core import NOT_YET_MS, Core
from wukongs.live.engine_windows import EngineWindow, StoredSince
from wukongs.live.input_versions import InputVersions
from wukongs.live.path_changes import PathWatch
from wukongs.live.reading import dataset_of, terms_of
from wukongs.live.reporting import Extent
from wukongs.live.slice_budget import refused
from wukongs.live.slice_filter import ANY_PREDICATE, Predicate
from wukongs.live.stream_state import FOREVER_MS, StreamState
from wukongs.live.stretch import Places
from wukongs.live.windows import Interval, firing_step, interval, matched_in, matched_in_stored, reads_stored
from wukongs.query.limits import Limits
from wukongs.query.paths.kept_paths import KeptPaths, PathChanges, may_be_kept
from wukongs.query.plans.compiled import FIRING_BYTES_MAX, OUT_CELLS, CompiledPatterns
from wukongs.query.plans.compiled_plans import CompiledPlans
from wukongs.query.plans.dataset import Dataset, Resolve
from wukongs.query.plans.deltas import DeltaClause, Deltas, Kind
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.plans.slice_changes import SliceChanges
from wukongs.query.plans.window_changes import WindowChanges
from wukongs.query.programs.arena import ARENA_CELLS
from wukongs.query.programs.program import Program
from wukongs.query.terms.query_terms import ConstantIds
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import WINDOW_GRAPH
from wukongs.store.lookup_kernels import count_edges
from wukongs.store.membership import Membership
from wukongs.store.snapshot import tick_sn


@dataclass(slots=True)
class Reading:
    """The data that one firing reads.

    dataset: None for a compiled query, which finds it in the table of windows.
    sn: that of the stored graphs; None: it reads none.
    extents: of each window of the clause, in order.
    partial: a window reaches back further than the engine holds.
    error: a window needs what its stream had no room for.
    needs_ms: per stream, the time after which all tuples that it reads have come.
    spans: name -> (start_ms, end_ms), of each stream the window that reaches back the farthest, and of each window that
    has an IRI of its own, its own.
    start_ms: where the earliest begins."""

    dataset: Dataset | None
    sn: int | None
    extents: tuple[Extent, ...]
    partial: bool
    error: BudgetExceeded | None
    needs_ms: dict[str, int]
    spans: dict[str, tuple[int, int]]
    start_ms: int


@dataclass(slots=True)
class Changes:
    """All that a query reads which looks for what has changed. new: the windows of what is new, if plans read them;
    tables: of its members, with the widest window of each; stored: as DeltaClause.stored; since: what was stored since
    the firing before, None if it reads no stored graph; sn: at which the stored graph was read last."""

    deltas: WindowChanges
    new: list[EngineWindow]
    tables: list[tuple[Membership, StreamState, StreamWindow]]
    stored: tuple[Kind, ...]
    since: StoredSince | None
    sn: int | None = None


class QueryWindows:
    """Called with the engine's lock held."""

    def __init__(self, core: Core, query: Query, name: str, constants: ConstantIds) -> None:
        self._core = core
        self._clause = query.dataset
        self._name = name
        self._constants = constants
        self.states = {window.stream: core.stream(window.stream) for window in query.dataset.windows}
        self.reads_stored = reads_stored(query)
        self._timed = [window for window in query.dataset.windows if not window.is_counted]
        self._counted = [window for window in query.dataset.windows if window.is_counted]
        self._reach_ms: dict[str, int] = {}
        for window in self._timed:
            reach_ms = window.range_ms + window.step_ms
            self._reach_ms[window.stream] = max(reach_ms, self._reach_ms.get(window.stream, reach_ms))
        self.matched: dict[str, set[Predicate]] = {
            stream: _predicates_of(matched_in(query, stream), constants) for stream in self.states
        }
        """Stream -> the ids of the predicates that can be matched in its windows, or ANY_PREDICATE."""
        self._stored_predicates = _predicates_of(matched_in_stored(query), constants)
        """Those that can be matched in the stored graphs."""
        stored = self._stored_predicates if self.reads_stored else None
        self._versions = InputVersions(core, query, self._timed, self._counted, self.states, self.matched, stored)
        self.beat: object = self
        """It is equal for windows that are read at the same times, and have the same content."""
        if not self._counted:
            windows = tuple(replace(window, line=0, column=0) for window in self._timed)
            self.beat = self.reads_stored, windows, tuple(self.states.values())
        self._changes: dict[WindowJoin, Changes] = {}
        """The patterns whose matches are kept."""
        self._step_ms = firing_step(query)
        self._shared: list[tuple[StreamWindow, StreamState, EngineWindow | None]] = []
        """The windows with their streams, those of time as all queries share them; from the first firing on."""
        self.is_filtered = any(state.slice_filter is not None for state in self.states.values())
        """Whether what is missing in its windows hangs on what it matches."""
        self._may_change = not self.is_filtered
        """Whether it may be enough to look for what is new."""
        self._paths: PathWatch | None = None
        self._since: StoredSince | None = None
        """The change of the stored graph, for parts that read stored graphs alone."""
        self._since_sn: int | None = None
        """The snapshot number at which these stand."""

    def keep_after_ms(self, next_ms: int) -> dict[str, int]:
        """Return, per stream, the time up to which no firing from next_ms on needs slices."""
        return {stream: next_ms - reach_ms for stream, reach_ms in self._reach_ms.items()}

    def needs_after(self, next_ms: int | None) -> dict[str, int]:
        """Return, per stream, the stream batch after which the firing at next_ms reads; all if that is not known."""
        found: dict[str, int] = {}
        for window in self._timed:
            after = NOT_YET_MS
            if next_ms is not None:
                after = interval(window, self.states[window.stream].batch_ms, next_ms).after
            found[window.stream] = min(after, found.get(window.stream, after))
        return found

    def advice(self, query: Query) -> tuple[str, ...]:
        """Return likely mistakes of the query."""
        return advice(self._core, query, self._constants)

    def next_edge_ms(self, from_ms: int) -> int | None:
        """Return the first end of a stream batch, at or after a time, at which a window that counts moves on; None if
        there is none yet."""
        ends = []
        for window in self._counted:
            state = self.states[window.stream]
            number = state.ring.arrivals.next_edge((from_ms - 1) // state.batch_ms, window.step_triples)
            if number is not None:
                ends.append(number * state.batch_ms)
        return min(ends, default=None)

    def arrivals_needed(self, next_ms: int | None) -> dict[str, int]:
        """Return, per stream with a window that counts, the arrival after which firings from next_ms on read."""
        found: dict[str, int] = {}
        for window in self._counted:
            state = self.states[window.stream]
            after = 0
            if next_ms is not None:  # what has come before is the least that will have come by then
                after, _ = self._counted_span(window, (next_ms - 1) // state.batch_ms)
            found[window.stream] = min(after, found.get(window.stream, after))
        return found

    def arrivals_needed_ms(self, next_ms: int | None) -> dict[str, int]:
        """Return, as arrivals_needed, the times after which these have come; nothing for a stream without arrivals."""
        found = {}
        for stream, after in self.arrivals_needed(next_ms).items():
            state = self.states[stream]
            number = state.ring.arrivals.batch_of(after + 1)
            if number is not None:
                found[stream] = (number - 1) * state.batch_ms
        return found

    def _counted_span(self, window: StreamWindow, number: int) -> tuple[int, int]:
        arrivals = self.states[window.stream].ring.arrivals
        return arrivals.span(number, window.range_triples, window.step_triples)

    def compile(self, query: Query, memo: PlanMemo, *, has_arguments: bool = False) -> CompiledPlans | None:
        """Return the query's plans over the engine's table of windows; None if it needs a dataset at each firing.
        has_arguments: it is asked for rows of arguments."""
        core, settings = self._core, self._core.settings
        is_small = settings.query_bytes_max < FIRING_BYTES_MAX or settings.rows_max < OUT_CELLS
        if self._counted or is_small or core.reach is not None or not CompiledPlans.is_for(query):
            return None
        shared = {window: stands for window, _, stands in self._shared_windows() if stands is not None}
        windows = core.windows.numbered(shared, reads_stored=self.reads_stored)
        workspace = core.windows.workspace
        return CompiledPlans(query, windows, self._constants, memo, workspace, has_arguments=has_arguments)

    def program(
        self,
        query: Query,
        plans: CompiledPlans,
        memo: PlanMemo,
        arguments: tuple[Variable, ...] = (),
        paths: KeptPaths | None = None,
    ) -> Program | None:
        """Return the program of a query that has plans over the table of windows; None if limits are below what a
        program may take, since it does not check them. arguments, paths: as Program has them."""
        core = self._core
        if core.settings.query_bytes_max < 8 * ARENA_CELLS or core.settings.rows_max < ARENA_CELLS:
            return None
        memory = core.windows.workspace, core.windows.arena
        given = query, plans.windows, self._constants, memo, *memory, core.registry, arguments
        return Program(*given, may_host=True, paths=paths)

    def stand(self, at_ms: int, maintained: Maintained, *, is_partial: bool, is_before: bool) -> None:
        """Have the parts of a query whose rows are worth keeping be about to fire at a time.

        is_partial: a window lacks some of its tuples; is_before: as `is_apart_from` has told, tuples that are about to
        join the stored graph at that time match nothing."""
        for part in maintained.parts:
            if part.begin_firing() and self._may_change:
                for join in part.kept:
                    changes = self._changes.get(join) or self._compile_deltas(join)
                    if changes is None:
                        self._may_change = False
                    else:
                        self._changes[join], join.deltas = changes, changes.deltas
                        self._stand(at_ms, changes, is_partial, is_before)
        if maintained.reads_stored:
            maintained.stored = self._stored_change(at_ms, is_before) if self._may_change else None

    def maintained(self, query: Query, plans: CompiledPlans) -> Maintained:
        """Return what keeps rows of a query from firing to firing."""
        evaluation = Evaluation(self._clause, self._constants, terms_of(self._core), Limits())
        return Maintained(query, plans, evaluation, self._delta_clause)

    def _delta_clause(self, join: CompiledPatterns) -> DeltaClause | None:
        step_ms = self._step_ms
        return None if step_ms is None else DeltaClause.of(join.clause, join.wanted, step_ms, self._constants)

    def keep_nothing(self, maintained: Maintained) -> None:
        """Keep no rows: another query keeps the same."""
        if self._changes:
            self._leave(self._changes.values())
            self._leave_stored()
            self._changes = {}
            maintained.forget()

    def _stand(self, at_ms: int, changes: Changes, is_partial: bool, is_before: bool) -> None:
        """Have the deltas of some patterns be about to fire."""
        for new in changes.new:
            new.move(at_ms)
        self._core.windows.write(changes.new, None)
        is_known = not is_partial
        for table, state, window in changes.tables:
            span = interval(window, state.batch_ms, at_ms)
            is_known = table.stand(state.ring, span.after, span.to) and is_known
        goes_on, comes = self._stored_goes_on(changes, at_ms, is_before)
        changes.deltas.stand(at_ms, is_known=is_known, goes_on=goes_on, comes=comes)

    def _stored_change(self, at_ms: int, is_before: bool) -> StoredChange | None:
        """Return the stored graph as a firing reads it, with its change since the firing before."""
        sn, before = self.sn_at(at_ms), self._since_sn
        if sn is None or self._step_ms is None:
            return None
        if self._since is None:
            self._since = self._core.windows.stored_since(self._step_ms)
        if is_before:  # nothing has changed that it matches; what is about to join then has no number of its own
            self._since_sn, stored = tick_sn(at_ms), self._core.arrangement.trace.read(sn)
            return StoredChange(stored, None if before is None else Change(stored, stored, EMPTY, EMPTY))
        self._since_sn, stored = sn, self._since.read(sn)
        if before == sn:
            return StoredChange(stored, Change(stored, stored, EMPTY, EMPTY))
        is_known = before is not None and self._since.has_come_after(before, self._stored_kinds())
        return StoredChange(stored, self._since.change if is_known else None)

    def _stored_kinds(self) -> list[tuple[int | None, int | None]]:
        """Return the predicates that may be matched in stored graphs (None: any), of any graph."""
        return [(one, None) for one in self._stored_predicates]

    def is_apart_from(self, come: frozenset[int], at_ms: int) -> bool:
        """Tell whether nothing of what is read at a time changes when timeless tuples with some predicates join the
        stored graph then, and nothing has since the firing before."""
        if not self.reads_stored:
            return True
        if not come.isdisjoint(self._stored_predicates) or ANY_PREDICATE in self._stored_predicates:
            return False
        if any(state.joined_at(at_ms) >= 0 for state in self.states.values()):
            return False  # what a late stream has brought is read at other snapshot numbers
        touches = self._core.arrangement.trace.touches
        known: list[tuple[int | None, tuple[int | None, int | None]]] = []
        known += [(changes.sn, kind) for changes in self._changes.values() for kind in changes.stored]
        known += [(self._since_sn, kind) for kind in self._stored_kinds()]
        return not any(touches(sn, *kind) for sn, kind in known if sn is not None)

    def _stored_goes_on(self, changes: Changes, at_ms: int, is_before: bool) -> tuple[bool, bool]:
        """Tell whether all that has changed since the firing before in what is read of the stored graph is known to
        deltas, and whether something has come."""
        sn, before, since, trace = self.sn_at(at_ms), changes.sn, changes.since, self._core.arrangement.trace
        if sn is None or since is None:
            return True, False
        if is_before:
            if since.sn is None:
                since.move(sn)
            changes.sn = tick_sn(at_ms)
            return before is not None, False
        since.move(sn)
        changes.sn = sn
        if before is None:
            return False, False
        touched = [kind for kind in changes.stored if trace.touches(before, *kind)]
        if not touched:
            return True, False
        is_any = any(predicate is None for predicate, _ in touched)
        goes_on = not is_any and since.has_come_after(before, changes.stored) and not since.takes(touched)
        return goes_on, goes_on  # else what has come may have gone again

    def _compile_deltas(self, join: WindowJoin) -> Changes | None:
        """Return what finds matches by those of the firing before; None if the windows do not allow it."""
        core, states, step_ms = self._core, self.states, self._step_ms
        found = join.clause or self._delta_clause(join.join)
        if found is None or step_ms is None:
            return None
        if join.is_followed and not join.rows.links and SliceChanges.is_for(found, step_ms):
            return self._slice_changes(join, found, step_ms)
        shared = {window: stands for window, _, stands in self._shared_windows() if stands is not None}
        new = {window: core.windows.shared(window, states[window.stream]) for window in found.new}
        since = core.windows.stored_since(step_ms) if found.stored else None
        widest: dict[tuple[str, int], StreamWindow] = {}
        over_windows = [(member, member.window) for member in found.members if member.window is not None]
        for member, window in sorted(over_windows, key=lambda pair: pair[1].range_ms):
            widest[window.stream, member.predicate] = window
        known = {kind: core.windows.membership(states[kind[0]], step_ms, kind[1]) for kind in widest}
        tables = {member: known[window.stream, member.predicate] for member, window in over_windows}
        windows = core.windows.numbered({**shared, **new}, reads_stored=self.reads_stored)
        if since is not None:
            numbers = {**windows.numbers, **dict.fromkeys(found.since, since.number)}
            windows = replace(windows, numbers=numbers, graphs=found.since)
        batch_ms = {stream: state.batch_ms for stream, state in states.items()}
        derived = len(join.rows.derived)
        deltas = Deltas(found, join.join, windows, tables, batch_ms, step_ms, core.windows.workspace, derived)
        read = [(known[kind], states[kind[0]], window) for kind, window in widest.items()]
        return Changes(deltas, list(new.values()), read, found.stored, since)

    def _slice_changes(self, join: WindowJoin, found: DeltaClause, step_ms: int) -> Changes:
        """Return the same for one pattern over one window of which the change alone is read."""
        (member,) = found.members
        assert member.window is not None, self._name
        state, window = self.states[member.window.stream], member.window
        table = self._core.windows.membership(state, step_ms, member.predicate)

        def extent(at_ms: int) -> tuple[int, int]:
            span = interval(window, state.batch_ms, at_ms)
            return span.after, span.to

        changes = SliceChanges(join.join, table, state.ring, extent, state.batch_ms, step_ms)
        return Changes(changes, [], [(table, state, window)], (), None)

    def may_keep_paths(self, query: Query) -> bool:
        """Tell whether paths of the query may be kept from firing to firing."""
        is_in_cluster = self._core.reach is not None
        is_known = not (is_in_cluster or self._step_ms is None or self._counted or self.is_filtered)
        return is_known and may_be_kept(query.pattern)

    def path_changes(self, at_ms: int, is_wanted: bool) -> PathChanges | None:
        """Return what has changed since the firing before in what is read at a time, None if that is not known.
        is_wanted: it is asked for, and the windows lack nothing."""
        core, step_ms = self._core, self._step_ms
        if not is_wanted:
            self._watch_no_paths()
            return None
        if self._paths is None:
            assert step_ms is not None, self._name
            since = core.windows.stored_since(step_ms) if self.reads_stored else None
            self._paths = PathWatch(self._timed, self.states, core.arrangement, since)
        return self._paths.stand(at_ms, self.sn_at(at_ms))

    def _shared_windows(self) -> list[tuple[StreamWindow, StreamState, EngineWindow | None]]:
        if not self._shared:
            for window in self._clause.windows:
                state = self.states[window.stream]
                stands = None if window.is_counted else self._core.windows.shared(window, state)
                self._shared.append((window, state, stands))
        return self._shared

    def close(self) -> None:
        """Read no window any more. Called with the lock held."""
        self._core.windows.leave(stands for _, _, stands in self._shared if stands is not None)
        self._leave(self._changes.values())
        self._watch_no_paths()
        self._leave_stored()
        self._shared, self._changes = [], {}

    def _leave_stored(self) -> None:
        if self._since is not None:
            self._core.windows.leave([self._since])
            self._since = self._since_sn = None

    def _watch_no_paths(self) -> None:
        if self._paths is not None:
            self._paths.close()
            self._paths = None

    def _leave(self, all_changes: Iterable[Changes | None]) -> None:
        for changes in all_changes:
            if changes is not None:
                since = [] if changes.since is None else [changes.since]
                self._core.windows.leave([*changes.new, *(table for table, _, _ in changes.tables), *since])

    def sn_at(self, at_ms: int) -> int | None:
        """Return the snapshot number that the firing at a time reads; None if it reads no stored graph."""
        if not self.reads_stored:
            return None
        # On a cluster the stored graph may move on between a registration and its record.
        return self._core.arrangement.trace.readable_from(self._core.sn_at(at_ms, self.states.values()))

    def sn_due(self, at_ms: int) -> int | None:
        """Return, as sn_at, the snapshot number that the firing at a time reads once everything up to then is
        sealed."""
        if not self.reads_stored:
            return None
        return self._core.arrangement.trace.readable_from(self._core.sn_due(at_ms, self.states.values()))

    def gone_to_ms(self, at_ms: int) -> int | None:
        """Return up to when no firing from a time on has anything of one of its windows, as its slices are gone; None:
        the firing at that time has some of each. Called when everything up to then is sealed."""
        found: int | None = None
        for window in self._timed:
            state = self.states[window.stream]
            lost_to = state.ring.lost_to
            if lost_to is None or at_ms // window.step_ms * window.step_ms > lost_to * state.batch_ms:
                continue
            found = max(at_ms if found is None else found, lost_to * state.batch_ms)
        for window in self._counted:
            state = self.states[window.stream]
            after, to = self._counted_span(window, at_ms // state.batch_ms)
            if after < to <= state.ring.arrivals.evicted_to:
                found = at_ms if found is None else found
        return found

    def has_lost_of(self, at_ms: int) -> bool:
        """Tell whether slices are gone that the firing at a time has read."""
        for window in self._timed:
            state = self.states[window.stream]
            lost_to = state.ring.lost_to
            if lost_to is not None and lost_to > interval(window, state.batch_ms, at_ms).after:
                return True
        return False

    def same_to_ms(self, at_ms: int, to_ms: int, upper: int) -> int:
        """Implement InputVersions.same_to_ms."""
        return self._versions.same_to_ms(at_ms, to_ms, self.sn_at(at_ms), upper)

    def versions(self, reading: Reading) -> Hashable:
        """Return the versions of its inputs that a firing reads; None: they are not known."""
        return self._versions.of(reading.extents, reading.sn)

    def places(self, at_ms: int) -> Places:
        """Return where the windows lie from a time on, as long as they hold the same."""
        windows = self._clause.windows
        found = [(one, self.states[one.stream].batch_ms, self._counted_place(one, at_ms)) for one in windows]
        return Places(tuple(found))

    def _counted_place(self, window: StreamWindow, at_ms: int) -> Interval | None:
        if not window.is_counted:
            return None
        found = self._counted_window(window, at_ms)[1]
        return None if found.after == found.to else found

    def read(self, at_ms: int, *, is_compiled: bool = False) -> Reading:
        """Pick what the firing at a time reads, when everything up to then is sealed. is_compiled: it is written into
        the engine's table, where it stays until something else is picked."""
        shared = self._shared_windows()
        partial = False
        error = None
        start_ms = FOREVER_MS
        needs_ms: dict[str, int] = {}
        spans: dict[str, tuple[int, int]] = {}
        named: dict[str, tuple[int, int]] = {}
        windows: dict[StreamWindow, BatchSet] = {}
        extents: list[Extent] = []
        for window, state, stands in shared:
            stream, ring = window.stream, state.ring
            if stands is None:
                windows[window], span = self._counted_window(window, at_ms)
                after, to = self._counted_span(window, at_ms // state.batch_ms)
                partial |= after < min(to, ring.arrivals.held_after)
                after = max(after, ring.arrivals.held_after)
                extents.append((after, to) if after < to else None)
            else:
                span = stands.move(at_ms)
                if not is_compiled:
                    windows[window] = stands.batches
                partial |= ring.lost_to is not None and span.after < ring.lost_to
                if state.slice_filter is not None:
                    lacks_to = state.slice_filter.lacks_to(self.matched[stream])
                    partial |= lacks_to is not None and span.after < lacks_to
                extents.append(ring.extent(span.after, span.to))
            if state.refused and error is None:
                error = refused(self._name, at_ms, span, state)
            after_ms = span.after * state.batch_ms
            if stream not in needs_ms or after_ms < needs_ms[stream]:
                needs_ms[stream] = after_ms
            if stream not in spans or span.start_ms < spans[stream][0]:
                spans[stream] = span.start_ms, span.end_ms
            if window.own_name:
                named[window.name] = span.start_ms, span.end_ms
            if span.start_ms < start_ms:
                start_ms = span.start_ms
        dataset, sn = None, self.sn_at(at_ms)
        if is_compiled:
            self._core.windows.write([stands for _, _, stands in shared if stands is not None], sn)
        else:
            dataset = self._dataset(windows, sn)
        return Reading(dataset, sn, tuple(extents), partial, error, needs_ms, spans | named, start_ms)

    def is_of_beat(self, reading: Reading) -> bool:
        """Tell whether what was picked for a compiled query holds for all of its beat."""
        # An error names the query, and a filter goes by its predicates.
        return reading.error is None and not self.is_filtered

    def dataset(self, at_ms: int) -> tuple[Dataset, dict[StreamWindow, Interval]]:
        """Return the dataset as of a time, of what is held now, and the interval of each window."""
        windows: dict[StreamWindow, BatchSet] = {}
        intervals: dict[StreamWindow, Interval] = {}
        for window in self._clause.windows:
            state = self.states[window.stream]
            if window.is_counted:
                windows[window], intervals[window] = self._counted_window(window, at_ms)
                continue
            span = interval(window, state.batch_ms, at_ms)
            windows[window] = state.ring.window(span.after, span.to)
            intervals[window] = span
        sn = self.sn_at(at_ms)
        return self._dataset(windows, sn), intervals

    def _dataset(self, windows: dict[StreamWindow, BatchSet], sn: int | None) -> Dataset:
        if sn is None:
            return Dataset(self._clause, EMPTY, windows, self._constants)
        stored = self._core.arrangement.trace.read(sn)
        return dataset_of(self._core, self._clause, stored, sn, windows, self._constants)

    def _counted_window(self, window: StreamWindow, at_ms: int) -> tuple[BatchSet, Interval]:
        """Return what a window that counts holds at a time, and the times of its first and last arrival: (start_ms,
        end_ms]; it is empty, and stands at the time itself, before there is one."""
        state = self.states[window.stream]
        arrivals, number = state.ring.arrivals, at_ms // state.batch_ms
        found = arrivals.window(*self._counted_span(window, number))
        if found.start_ms is None or found.end_ms is None:
            return found.batches, Interval(at_ms, at_ms, number, number)
        first, last = arrivals.batch_of(found.after + 1), arrivals.batch_of(found.to)
        assert first is not None, found
        assert last is not None, found
        return found.batches, Interval(found.start_ms, found.end_ms, first - 1, last)


def _predicates_of(patterns: Iterable[TriplePattern], constants: ConstantIds) -> set[Predicate]:
    named = (pattern.predicate for pattern in patterns)
    return {constants(one) if isinstance(one, Term) else ANY_PREDICATE for one in named}


def counts_from(
    core: Core, query: Query, closed_ms: Callable[[StreamState], int | None] = attrgetter("closed_ms")
) -> int | None:
    """Return the event time from which a registration counts: the smallest closed time of those of its streams that
    have begun, None if none has. A query that reads stored graphs does not go back behind their clock, unless one of
    its streams is there: then it goes back to what has not joined the stored graph yet, since the snapshots at which
    the rest has joined may be gone.

    closed_ms: how far a stream is closed, once all that is due has been reported. Called with the lock held."""
    states = [core.stream(window.stream) for window in query.dataset.windows]
    begun = [(ms, state) for state in states if (ms := closed_ms(state)) is not None]
    running = [(ms, state) for ms, state in begun if not state.is_ended]
    if not running:
        return max((ms for ms, _ in begun), default=None)
    clock_ms, is_stored = core.progress.settled_clock_ms(core), reads_stored(query)
    late = [state for _, state in running if not (state.counts or state.is_made)]
    if is_stored and not late and clock_ms is not None and clock_ms != FOREVER_MS:
        return max(min(ms for ms, _ in running), clock_ms)
    return min(state.floor(ms) + state.batch_ms - 1 if is_stored and state in late else ms for ms, state in running)


def advice(core: Core, query: Query, resolve: Resolve) -> tuple[str, ...]:
    """Return a sentence for each thing, with its place. Called with the lock held."""
    stored = core.arrangement.trace.read(core.sn)
    graphs = [resolve(iri(name)) for name in query.dataset.default_graphs]

    def is_stored(predicate: Term) -> bool:
        wanted = resolve(predicate)
        return any(count_edges(stored.descriptors, graph, wanted)[0] > 0 for graph in graphs)

    return (*query_warnings(query, is_stored), *_stored_only(core, query, resolve))


def _stored_only(core: Core, query: Query, resolve: Resolve) -> Iterator[str]:
    """Find patterns that only windows can match, although their predicate has come in stored data only.

    Nothing is said while one of the streams has brought nothing: its tuples may still have the predicate."""
    clause = query.dataset
    merged = [window for window in clause.windows if not window.named]
    states = [core.streams[window.stream] for window in merged]
    if not merged or clause.default_graphs or not all(state.ring.slice_count for state in states):
        return
    stored = core.arrangement.trace.read(core.sn)
    for predicate in default_predicates(query):
        wanted = resolve(predicate)
        is_stored = count_edges(stored.descriptors, core.default_graph, wanted)[0] > 0
        if is_stored and not any(_has_brought(state, wanted) for state in states):
            yield (
                f"line {merged[0].line}, column {merged[0].column}: patterns with {predicate} are matched in windows "
                f"only, and so far it has come in stored data only: add FROM {STORED} if that is meant"
            )


def _has_brought(state: StreamState, predicate: int) -> bool:
    ring = state.ring
    assert ring.oldest is not None, state.iri
    assert ring.closed_to is not None, state.iri
    held = ring.window(ring.oldest - 1, ring.closed_to)
    return bool(count_edges(held.descriptors, WINDOW_GRAPH, predicate)[0] > 0)
