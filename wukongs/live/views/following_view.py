"""FollowingView: a live view as it follows the stored graph: where it stands, where it goes next, how it moves."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.terms import Term, Variable
from wukongs.errors import CompactedError, NodeUnavailable, StreamError, WukongsError
from wukongs.incremental.arguments import Arguments, with_arguments
from wukongs.incremental.divided import DividedReads
from wukongs.incremental.interests import Key
from wukongs.incremental.lookups import Operator, keeps_any
from wukongs.incremental.templates import TRIPLE
from wukongs.incremental.versions import Change, Evaluation
from wukongs.incremental.view import View
from wukongs.incremental.zset import ZSet
from wukongs.live.callbacks import Callbacks
from wukongs.live.core import NOT_YET_MS, Core
from wukongs.live.made_streams import Made
from wukongs.live.query_constants import constants_of
from wukongs.live.query_shapes import Shape, shape_of
from wukongs.live.query_source import QuerySource
from wukongs.live.reading import dataset_of, ids_of, terms_of
from wukongs.live.views.cycles import Place, Step, reads_of
from wukongs.live.views.given import Given, MakesByPeriods
from wukongs.live.views.logged_givings import LoggedGivings
from wukongs.live.views.options import ViewOptions
from wukongs.live.views.quiet_views import QuietViews
from wukongs.live.views.shared_views import SharedViews, may_share
from wukongs.live.views.snapshots import Snapshot, Snapshots
from wukongs.live.views.view_arguments import ViewArguments, answer_each
from wukongs.live.views.view_journal import ViewJournal
from wukongs.live.views.view_log import LoggedReport, Position, ViewCursor, ViewLog
from wukongs.live.views.view_readers import ViewReaders
from wukongs.live.views.written_rows import read, written
from wukongs.query.binding_table import BindingTable
from wukongs.query.execution.answer import Answer, answer, within
from wukongs.query.execution.argument_rows import ARGUMENT, NUMBER
from wukongs.query.limits import Limits, limits_of, scheduled
from wukongs.query.memory import Kind
from wukongs.query.output.view_report import ViewReport
from wukongs.query.plans.dataset import name_graphs
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.terms.query_terms import ConstantIds, DataTexts, QueryTerms
from wukongs.store.batch_set import EMPTY, BatchSet
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.snapshot import tick_of

log = logging.getLogger("wukongs")
PERIODS_MAX = 64
"""Periods that wait for a slow view; beyond it, the next one is longer."""
COMPUTED_MIN = 1 << 14
"""Computed terms that a view may have before it forgets those that it needs no more."""
RETRY_MAX_S = 60.0
PUT_OFF_S, PUT_OFF_MAX_S = 0.05, 2.0
"""A view on a cluster is tried again after so long when another node did not answer, and at the most."""
NO_SN = -1
RECORD_S = 10.0
"""A change of a view on a cluster waits so long until its record is carried out."""
_OF_OTHER_NODES = (NodeUnavailable, CompactedError)


class Due(NamedTuple):
    """Where a view goes next.

    snapshot: None: the newest.
    time_ms: the end of the period; None: there is none."""

    snapshot: Snapshot | None
    time_ms: int | None


class Period(NamedTuple):
    """A period that has ended, and is not reported yet.

    end_ms: its end.
    snapshot: the graph there, held for the view.
    since_s: when it ended, by the engine's clock.
    arguments: those that were bound there; None: the view has none."""

    end_ms: int
    snapshot: Snapshot
    since_s: float
    arguments: Arguments | None


class Stop(NamedTuple):
    """A position where a view that was found in a data folder stops on its way.

    snapshot: the graph there, held for the view.
    arguments: those that were bound there; None: the view has none."""

    snapshot: Snapshot
    arguments: Arguments | None


class FollowingView(MakesByPeriods):
    """A registered query without a window. Its content at a snapshot is the answer of its text there, as a multiset; a
    report is the difference of two contents.

    snapshot, due, begin_move, bound_lag, end_period, is_behind: for whoever moves views, with the engine's lock held.
    """

    is_stream = False

    def __init__(
        self,
        core: Core,
        snapshots: Snapshots,
        callbacks: Callbacks,
        query: Query,
        source: QuerySource,
        options: ViewOptions,
        snapshot: Snapshot,
        forget: Callable[[Any], None],
        check_cycle: Callable[[Query, ViewOptions], None],
        arguments: ViewArguments | None = None,
        journal: ViewJournal | None = None,
        of: int = 0,
        table: str | None = None,
        readers: ViewJournal | None = None,
    ) -> None:
        """snapshot: held for the view, which gives it back. forget: called when it is closed. check_cycle: raises
        StreamError if a text would read what is made of its own triples. arguments: None: it is registered without
        bindings. journal: None: the engine has no data folder, or only reads it; of: the record that registered the
        view; table: the digest of its first table of arguments; readers: of the positions of its readers, None: nothing
        keeps them. Called with the engine's lock held."""
        assert query.registration is not None
        self.name, self.source = query.registration.name, source._replace(bindings=None)
        self._own: Snapshot | None = snapshot
        """Held for it alone; None: it is quiet."""
        self._quiet: QuietViews[Any] | None = None
        self._core, self._snapshots, self._callbacks, self._forget = core, snapshots, callbacks, forget
        self.options, self._check_cycle = options, check_cycle
        self.journal, self.of, self.table = journal, of, table
        self.begins_again = False
        """It stood at another node before, or in an earlier life of this one: all readers begin with a reset."""
        self.is_recovered = False
        """It was found in the data folder, or has moved to this node, and nobody has registered it since."""
        self.number = 0
        """Views move in the order of their numbers."""
        self._turn = threading.Lock()
        """Held while the view moves, or its text is replaced."""
        self.arguments = arguments
        self.made: Made | None = None
        self.given = Given(options.snapshot) if options.into is not None else None
        """The sum of what the stream has got."""
        self._base_logged: Callable[[], object] | None = None
        """Waits until the log of a cluster has what counts as given from the beginning; None: no need."""
        self.has_moved = False
        """It goes on at another node."""
        self._references: Int64Array = np.empty(0, np.int64)
        """To the constants of the text, whose ids stay theirs."""
        self._lay_out(query)
        self.log = ViewLog(core.unread, source.unread_bytes_max, self.position)
        self.view_readers = ViewReaders(core, self, readers)
        self._stops: deque[Stop] = deque()
        self._is_stopping = False
        """The move under way is to one of them."""
        self._periods: deque[Period] = deque()
        self._next_arguments: Arguments | None = None
        """Those to which the move under way leads."""
        self.period_end_ms = 0
        """The event time at which the period under way ends."""
        self.is_paused = self.is_closed = False
        self.is_moving = False
        """The thread that moves views is at this one."""
        self._to: Snapshot | None = None
        """Where it moves, held; None: it does not, or the move is void."""
        self._limits: Limits | None = None
        """Those of the move under way."""
        self._moves_over: Period | None = None
        """The period that the move under way is over; None: it is over none."""
        self._lagged = ""
        """How it was too far behind last, in words."""
        self._failed_at_sn: int | None = None
        self._failures = 0
        self._retry_at_s: float | None = None
        self._put_off_count, self._waits_for = 0, ""
        """How often a move in turn was put off by another node, and why it was last."""
        self._has_begun = False
        """The operators take the change of the move under way, or have taken it."""
        self._counts = {"reports": 0, "rows": 0, "errors": 0, "rebuilt": 0, "resets_for_lag": 0}
        self._last_us = 0.0

    def _lay_out(self, query: Query) -> None:
        """Make the operators of a text. They have nothing yet: is_anew."""
        assert query.registration is not None
        assert self._quiet is None, "it is where others look for its text"
        registration = query.registration
        self.query = query
        constants = constants_of(query)
        references, registry = self._references, self._core.registry
        ids, self._references = registry.reserve([term.text for term in constants])
        registry.release(references)
        self._known = self._core.reserved | dict(zip(constants, ids.tolist(), strict=True))
        self.every_ms = self.options.every_ms or registration.computed_every_ms
        output = self.source.output or (registration.output if registration.has_operator else None)
        self.output: Output | None = output
        self.is_anew = True
        """The operators have kept nothing yet: they are built before the next change."""
        self._make_view()
        self.shape = self._shape_of(query)
        self.group: SharedViews[Any] | None = None

    def _shape_of(self, query: Query) -> Shape | None:
        """Return the shape of a text by which it moves with others; None: it moves by itself."""
        is_plain = self.every_ms is None and self.arguments is None and self.given is None and not self._keeps
        if not is_plain or self._core.reach is not None or self._view.takes_each:
            return None
        shape = shape_of(query)
        return shape if shape is not None and may_share(shape) else None

    def _make_view(self) -> None:
        core, stood, arguments = self._core, self.snapshot, self.arguments
        self._terms = terms_of(core)
        lifted = None if arguments is None else arguments.lifted
        self._reads = None if core.reach is None else DividedReads(core.reach)
        evaluation = Evaluation(
            self.query.dataset,
            self._ids(),
            self._terms,
            Limits(),
            lifted=lifted,
            paths=core.paths,
            graph_of=self._reads,
        )
        query, stored = self.query if lifted is None else lifted.query, self._with_arguments(stood.stored)
        self._view = View(query, evaluation, stood.sn, stored, self.name, self._keeps)
        self._computed_max = COMPUTED_MIN

    def _ids(self) -> ConstantIds:
        return ConstantIds(ids_of(self._core), self._known) if self.arguments is None else self.arguments.ids()

    def _with_arguments(self, stored: BatchSet, arguments: Arguments | None = None) -> BatchSet:
        """Return a stored graph as the operators read it. arguments: of the view; None: those at which it stands."""
        if self.arguments is None:
            return stored
        return (arguments or self.arguments.at).over(stored)

    @property
    def begins_whole(self) -> bool:
        """Whether a new reader begins with a reset."""
        return self.begins_again or (self.options.snapshot and self.output != "dstream")

    @property
    def terms(self) -> QueryTerms:
        """They have the texts of its rows."""
        return self._terms

    @property
    def operators_query(self) -> Query:
        """The text that its operators follow."""
        return self._view.query

    @property
    def row_variables(self) -> tuple[Variable, ...]:
        """The variables of its rows."""
        return self._view.variables

    @property
    def moves_to(self) -> Snapshot | None:
        """Where it moves, None: it does not."""
        return self._to

    @property
    def _is_restoring(self) -> bool:
        """Whether it has not passed yet what the stream that it makes had got before the engine was opened."""
        return self.given is not None and self.given.until is not None

    @property
    def _keeps(self) -> bool:
        """Whether the content is kept."""
        return self.options.keep or self.output == "rstream"

    @property
    def operators(self) -> Operator:
        """The top one of its operators."""
        return self._view.top

    @property
    def predicates(self) -> frozenset[Term] | None:
        """Those of all triples whose change may concern it; None: they may be any."""
        return self._view.interests.predicates

    @property
    def makes(self) -> str | None:
        """The IRI of the stream that it makes, None: it makes none."""
        return self.options.into

    @property
    def step(self) -> Step:
        """The view as one that makes triples of others."""
        assert self.makes is not None
        return Step(f"view {self.name}", reads_of(self.query), Place("stream", self.makes))

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of its content, held."""
        if self._own is not None:
            return self._own
        assert self._quiet is not None
        assert self._quiet.snapshot is not None
        return self._quiet.snapshot

    @property
    def sn(self) -> int:
        """The SN of its content."""
        return self.snapshot.sn

    @property
    def position(self) -> Position:
        """The position of its content."""
        return Position(self.snapshot.sn, 0 if self.arguments is None else self.arguments.at.version)

    # --- quiet: QuietViews calls these --------------------------------------------------------------------------------

    @property
    def may_be_quiet(self) -> bool:
        """Whether nothing has it move but a change that concerns it."""
        is_plain = self.every_ms is None and self.arguments is None and self.given is None
        is_steady = not (self.is_closed or self.is_paused or self.is_moving or self.is_anew or self._stops)
        return is_plain and is_steady and self._failed_at_sn is None and not self._view.takes_each

    @property
    def constant_ids(self) -> Mapping[Term, int]:
        """The ids of all constants of its text, reserved as long as it is registered."""
        return self._known

    @property
    def shared(self) -> SharedViews[Any] | None:
        """The views with which it moves; None: it moves by itself."""
        return None if self._quiet is None else self._quiet.shared(self)

    def keys(self) -> Iterator[Key]:
        """Iterate over what triples concern it."""
        return self._view.interests.keys()

    def begin_quiet(self, quiet: QuietViews[Any]) -> None:
        self._quiet, self._own = quiet, None
        self._view.stored = EMPTY  # those of old snapshots are to be freed
        self.log.follow(quiet)

    def begin_shared(self) -> None:
        if keeps_any(self._view.top):
            self._make_view()
            self._view.stored = EMPTY

    def put_share(self, found: ZSet, terms: QueryTerms, before: Snapshot, to: Snapshot, taken_us: float) -> None:
        """Report what has changed up to a snapshot, as those have found it with which it moves."""
        view = self._view
        rows = ZSet(BindingTable(view.variables, found.table.columns, len(found)), found.weights)
        shown, end = _shown(rows, self.output), Position(to.sn)
        self._last_us = taken_us
        if len(shown):
            self._report(
                LoggedReport(view.query, Position(before.sn), end, shown, terms, tick_of(to.sn)), end, is_reset=False
            )

    def end_quiet(self, snapshot: Snapshot, *, is_shared: bool) -> None:
        self.log.follow_no_more()
        self._own, self._quiet = snapshot, None
        self._view.sn, self._view.stored = snapshot.sn, snapshot.stored
        self.is_anew = is_shared and keeps_any(self._view.top)

    def awake(self) -> None:
        """Be awake before something else than a change of the stored graph has an effect."""
        if self._quiet is not None:
            self._quiet.give(self)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of its columns."""
        return columns_of(self._view.query)

    def _may_begin_again(self, failed_at_sn: int, sn: int) -> bool:
        """Whether something has changed since the view has failed."""
        arguments, failed = self.arguments, self._next_arguments
        is_bound = arguments is not None and failed is not None and failed.version < arguments.newest.version
        return failed_at_sn < sn or is_bound or self._is_restoring

    def _has_moved_on(self, sn: int) -> bool:
        """Whether the stored graph is at a later SN, or arguments were bound or unbound since."""
        arguments = self.arguments
        return self.sn < sn or (arguments is not None and arguments.at.version < arguments.newest.version)

    # --- where it goes ------------------------------------------------------------------------------------------------

    def due(self, sn: int) -> Due | None:
        """Return where it goes next; None: nowhere now. sn: the newest."""
        if self.is_paused or self.is_closed or self._is_giving or (self.retry_s or 0.0) > 0:
            return None
        arguments = self.arguments
        if self._failed_at_sn is not None and not self._may_begin_again(self._failed_at_sn, sn):
            return None
        self._next_arguments, self._is_stopping = None if arguments is None else arguments.newest, False
        if self._failed_at_sn is not None and not self._is_restoring:
            return Due(None, None)
        if self.is_anew:
            self._next_arguments = None if arguments is None else arguments.at
            return Due(self._snapshots.hold(self.snapshot), None)
        if self._stops:
            stop, self._is_stopping = self._stops.popleft(), True
            self._next_arguments = stop.arguments
            return Due(stop.snapshot, None)
        if self._periods:
            period = self._periods.popleft()
            self._moves_over, self._next_arguments = period, period.arguments
            return Due(period.snapshot, period.end_ms)
        return Due(None, None) if self.every_ms is None and self._has_moved_on(sn) else None

    def is_behind(self, sn: int) -> bool:
        """Return whether it has to move to be at an SN."""
        if self.is_paused or self.is_closed:
            return False
        if self.is_moving or self._is_giving:
            return True
        if self._failed_at_sn is not None:
            is_put_off = self._failed_at_sn == NO_SN
            return is_put_off or (self._may_begin_again(self._failed_at_sn, sn) and (self.retry_s or 0.0) <= 0)
        return bool(self._periods or self._stops) or self.is_anew or (self.every_ms is None and self._has_moved_on(sn))

    def is_due(self, sn: int) -> bool:
        """Return whether it can move now, to be at an SN."""
        return not self._is_giving and (self.retry_s or 0.0) <= 0 and self.is_behind(sn)

    @property
    def _is_giving(self) -> bool:
        """Whether the other nodes do not have yet what the last period has given: until then it does not move."""
        return self.made is not None and self.made.is_sending

    @property
    def retry_s(self) -> float | None:
        """Seconds until it is evaluated again after an error; None: it has not failed."""
        return None if self._retry_at_s is None else self._retry_at_s - time.monotonic()

    def end_period(self, time_ms: int, snapshots: Snapshots | None) -> None:
        """End the period under way if event time has reached its end. snapshots: None where the first period begins."""
        every_ms = self.every_ms
        if every_ms is None or (snapshots is not None and time_ms < self.period_end_ms):
            return
        end_ms = time_ms // every_ms * every_ms
        if snapshots is not None and not (self.is_paused or self.is_closed):
            if len(self._periods) >= PERIODS_MAX:
                snapshots.release(self._periods.pop().snapshot)
            arguments = None if self.arguments is None else self.arguments.newest
            self._periods.append(Period(end_ms, snapshots.newest(), self._core.now_s(), arguments))
        self.period_end_ms = end_ms + every_ms

    def begin_move(self, to: Snapshot) -> None:
        """Note that the thread that moves views is going to move it to a snapshot, which is held for the view."""
        self.is_moving, self._to = True, to

    def bound_lag(self) -> None:
        """Begin again at the newest SN if it is behind by view_lag_max, and give back the versions that it holds; a
        move under way ends without effect."""
        if self.is_paused or self.is_closed or self._stops or self._is_restoring:
            return
        since_s = self.snapshot.passed_at_s
        if self.every_ms is not None:
            first = self._moves_over if self.is_moving or not self._periods else self._periods[0]
            since_s = None if first is None else first.since_s
        lag = self._snapshots.lag(self.snapshot, since_s)
        if lag is None:
            return
        self._lagged = f"it was {lag}, at SN {self.sn}, and began again at SN {self._core.sn}"
        log.warning("view %s: %s", self.name, self._lagged)
        newest = self._snapshots.newest()
        self._give_back()
        self._own = newest
        self.is_anew = True
        self._void_move()
        self._counts["resets_for_lag"] += 1
        self.log.begin_again(self.position)

    def _keep_period(self) -> None:
        """Have the period again whose move is void: it is to be reported, though nothing changes behind it."""
        if self._to is not None and (period := self._moves_over) is not None:
            self._periods.appendleft(period._replace(snapshot=self._snapshots.hold(period.snapshot)))

    def _void_move(self) -> None:
        """Have the move that is under way, or prepared, end without effect: the view is built anew after it."""
        if self._to is not None:
            self._snapshots.release(self._to)
            self._to = None
            if self._limits is not None:
                self._limits.kill()

    def advance(
        self, to: Snapshot, change: Callable[[], Change | None], reader: DataTexts, time_ms: int | None
    ) -> None:
        """Move to a snapshot, which is held for the view, and report what has changed. Called by the thread that moves
        views, without the engine's lock. change: computes that of the graph; it returns None if that is not known."""
        began_s = time.monotonic()
        with self._turn:
            error, report, is_reset = None, None, self._failures > 0
            is_done = self.is_closed or self.is_paused or self._to is None
            try:
                if not is_done:
                    report = self._moved(to, change, reader, time_ms)
            except WukongsError as caught:
                error = caught
            except Exception as caught:
                log.exception("view %s has failed", self.name)
                error = WukongsError(f"view {self.name} has failed: {type(caught).__name__}: {caught}")
            with self._core.lock:
                is_void = self._to is None
                self.is_moving, self._to, self._limits, self._moves_over = False, None, None, None
                if is_void:  # what the operators keep is of no use, and the snapshot is given back
                    self.is_anew = True
                elif is_done or self.is_closed:
                    self._snapshots.release(to)
                elif error is not None and self._core.reach is not None and isinstance(error, _OF_OTHER_NODES):
                    self._put_off(error, to)
                elif error is not None:
                    self._fail(error, to)
                else:
                    self._stand_at(to)
                    self._failed_at_sn, self._failures, self._retry_at_s = None, 0, None
                    self._put_off_count, self._waits_for = 0, ""
                    self._report(report, self.position, is_reset=is_reset)
                    self._last_us = 1e6 * (time.monotonic() - began_s)

    def _report(self, report: LoggedReport | None, position: Position, *, is_reset: bool) -> None:
        if is_reset:
            self.log.begin_again(position)
            return
        self.log.put(report, position)
        if report is not None:
            self._counts["reports"] += 1
            self._counts["rows"] += len(report.rows)

    def _stand_at(self, snapshot: Snapshot) -> None:
        """Take a snapshot, which is held for the view, in the place of the one before."""
        before, self._own = self.snapshot, snapshot
        self._snapshots.release(before)
        if self.arguments is not None and self._next_arguments is not None:
            self.arguments.stand_at(self._next_arguments)

    def _fail(self, error: WukongsError, to: Snapshot) -> None:
        """Begin again at the next SN, but not soon if that has failed before; readers get the error."""
        self._counts["errors"] += 1
        self.is_anew, self._failed_at_sn, self._failures = True, to.sn, self._failures + 1
        self._retry_at_s = time.monotonic() + min(RETRY_MAX_S, 2.0 ** (self._failures - 1))
        if self._is_restoring and self._is_stopping:
            self._stops.appendleft(Stop(to, self._next_arguments))
        else:
            self._snapshots.release(to)
        if not self._is_restoring:
            self._give_back_ahead()
        self.log.begin_again(self.position, error)
        log.warning("view %s: %s", self.name, error)

    def _put_off(self, error: WukongsError, to: Snapshot) -> None:
        """Go on later: another node did not answer, or has forgotten an SN. A view that had begun to move begins again
        at the newest SN then, and so do its readers."""
        self._snapshots.release(to)
        self._put_off_count, self._waits_for = self._put_off_count + 1, str(error)
        self._retry_at_s = time.monotonic() + min(PUT_OFF_MAX_S, PUT_OFF_S * 2 ** min(self._put_off_count, 10))
        if self._has_begun or isinstance(error, CompactedError):
            self.begin_anew()
        log.info("view %s waits: %s", self.name, error)

    def begin_anew(self) -> None:
        """Begin again at the newest SN, as soon as it can be. Called with the engine's lock held."""
        self.awake()
        self.is_anew, self._failed_at_sn, self._failures = True, NO_SN, self._failures + 1
        self._give_back_ahead()
        self.log.begin_again(self.position)

    def _moved(
        self, to: Snapshot, change: Callable[[], Change | None], reader: DataTexts, time_ms: int | None
    ) -> LoggedReport | None:
        """Return what has changed up to a snapshot, None if nothing has. Raises WukongsError; nothing is kept then."""
        limits = self._limits = scheduled(limits_of(self._core.settings, None, kind=Kind.FIRING))
        self._has_begun = False
        try:
            with within(limits):
                return self._moved_within(limits, to, change, reader, time_ms)
        finally:
            if self._reads is not None:
                self._reads.forget()

    def _moved_within(
        self,
        limits: Limits,
        to: Snapshot,
        change: Callable[[], Change | None],
        reader: DataTexts,
        time_ms: int | None,
    ) -> LoggedReport | None:
        view, arguments, after = self._view, self._next_arguments, self.position
        position = Position(to.sn, 0 if arguments is None else arguments.version)
        if self.is_anew:
            self._build(to, limits, reader)
            self.is_anew = False
            return None
        self._renew(limits, reader)
        stored = self._with_arguments(to.stored, arguments)
        known = self._whole_change(change, to, stored)
        self._has_begun = True
        found = view.advance_anew(to.sn, stored) if known is None else view.advance(to.sn, known)
        is_whole = self.output == "rstream"
        shown = view.content() if is_whole else _shown(found, self.output)
        report = LoggedReport(view.query, after, position, shown, self._terms, time_ms, is_whole)
        if self._reads is not None and self.log.is_read:
            with contextlib.suppress(NodeUnavailable):  # readers ask again
                fetch_texts(shown, self._terms)
        if self.given is not None and self._is_stopping:
            with self._core.lock:
                self.given.stop(found, self._terms, position)
        elif self.given is not None and self.made is not None:
            self._end_given(self.given, self.made, report, found)
        if self._terms.computed_count > self._computed_max:
            self._forget_terms(to, limits, reader)
        return report if len(found) and (is_whole or len(shown)) else None

    def _whole_change(self, change: Callable[[], Change | None], to: Snapshot, stored: BatchSet) -> Change | None:
        """Return the change of the stored graph and the arguments up to a snapshot; None if the first is not known.
        stored: the graph there, with the arguments."""
        before = self._view.stored
        known = Change(before, stored, EMPTY, EMPTY) if to.sn == self._view.sn else change()
        if self.arguments is None or self._next_arguments is None or known is None:
            return known
        return with_arguments(known, before, stored, self.arguments.change_to(self._next_arguments))

    def _end_given(self, given: Given, made: Made, report: LoggedReport, found: ZSet) -> None:
        """Put into the stream what a period has changed, if that is nothing the news that it has ended."""
        assert report.time_ms is not None, "the end of a period"
        change = given.change(found, self._terms)
        with self._core.lock:
            decided_ms, is_by_wall = made.decided_to_ms, self._core.sealed_ms is None
            is_late = report.time_ms <= decided_ms
            if decided_ms == NOT_YET_MS and is_by_wall and not len(change):  # nothing yet: it is not to stand anywhere
                given.give(change, report.sn)
                return
        if report.time_ms == decided_ms:  # the view goes on after a restart, or at another node
            given.owe(change)
            return
        if is_late:  # its periods were of wall time before some stream has closed anything
            if not given.is_late:
                log.warning(
                    "view %s: the stream that it makes stands at %d ms, by wall time, and event time is at %d ms: it "
                    "gets nothing before. Declare a stream of event time before the view",
                    *(self.name, decided_ms, report.time_ms),
                )
            given.is_late = True
            given.owe(change)
            return
        given.is_late = False
        pushed = self.rendered(replace(report, rows=change), report.after) if len(change) else None
        if given.logged is not None:
            self._give_by_log(given, given.logged, made, report, change, pushed)
            return
        if self.journal is not None and pushed is not None:
            with self._core.lock:
                self.journal.note_giving(self.of, report.time_ms, report.sn)
                given.to = report.time_ms, report.sn
        made.decide(report.time_ms, pushed)
        with self._core.lock:
            given.to = None
            if made.state.has_refused(report.time_ms):  # it found no room
                given.owe(change)
            else:
                given.give(change, report.sn)

    def _give_by_log(
        self,
        given: Given,
        logged: LoggedGivings,
        made: Made,
        report: LoggedReport,
        change: ZSet,
        pushed: ViewReport | None,
    ) -> None:
        """Put into the stream what a period has changed, once the log of the cluster has it."""
        assert report.time_ms is not None, "the end of a period"
        rows = written(change, self._terms) if len(change) else None
        records = logged.next(report.time_ms, rows, given.written_rows)
        with self._core.lock:
            if not self.has_moved:  # else the stream's queue is for the view that may come back
                made.decide(report.time_ms, pushed, partial(self._log_givings, records))
            given.give(change, report.sn)

    def _log_givings(self, records: Sequence[tuple[str, str]]) -> None:
        """Wait until the log of the cluster has some records of what is given. Raises NodeUnavailable."""
        if self._base_logged is not None:
            self._base_logged()
            self._base_logged = None  # a later sum takes its place
        for name, text in records:
            self._log_giving(name, text)()

    def _log_giving(self, name: str, text: str) -> Callable[[], object]:
        query_log = self._core.query_log
        assert query_log is not None, "on a cluster"
        with self._core.lock:
            if self.has_moved:
                raise NodeUnavailable(f"view {self.name} has moved to another node")
            return query_log.note_reader(self.name, name, text)

    def take_givings(self, logged: LoggedGivings) -> None:
        """Go on with what the log of a cluster has of what was given, and give the last change again. Called with the
        engine's lock held, before the first move."""
        assert self.given is not None
        self.given.logged = logged
        if logged.is_begun:
            ids, sums = self._terms.ids, ZSet.empty(TRIPLE)
            for rows in logged.rows:
                sums = sums.plus(read(rows, TRIPLE, ids))
            self.given.restore(sums.consolidated(), self._terms)
        last = logged.last
        if last is not None and last.end_ms is not None and self.made is not None:
            pushed = None
            if last.rows is not None:
                change, at = read(last.rows, TRIPLE, self._terms.ids), self.position
                pushed = self.rendered(LoggedReport(self._view.query, at, at, change, self._terms, last.end_ms), at)
            self.made.decide(last.end_ms, pushed)

    def _renew(self, limits: Limits, reader: DataTexts) -> None:
        """Give the operators the ids, terms and limits of the execution under way."""
        self._terms = self._terms.renewed(reader)
        evaluation = self._view.evaluation
        evaluation.resolve, evaluation.terms, evaluation.limits = self._ids(), self._terms, limits
        if self._reads is not None:
            self._reads.begin(reader)

    def _build(self, to: Snapshot, limits: Limits, reader: DataTexts) -> None:
        """Evaluate at a snapshot what the operators keep."""
        self._view.sn, self._view.stored = to.sn, self._with_arguments(to.stored, self._next_arguments)
        self._renew(limits, reader)
        if self.given is None:
            self._view.install()
        else:
            content, logged = self._view.begin(), self.given.logged
            with self._core.lock:
                self.given.begin_again(content, self._terms, Position(to.sn))
            if logged is not None and not (logged.is_begun or self.given.begins_whole):
                self._base_logged = self._log_giving(*logged.begin(self.given.written_rows()))

    def _forget_terms(self, to: Snapshot, limits: Limits, reader: DataTexts) -> None:
        """Evaluate what the operators keep with new ids for computed terms: those that are not needed are gone."""
        self._make_view()
        self._build(to, limits, reader)
        self._computed_max = max(COMPUTED_MIN, 2 * self._terms.computed_count)
        self._counts["rebuilt"] += 1

    def rendered(self, logged: LoggedReport, after: Position) -> ViewReport:
        query, weights = logged.query, logged.rows.weights
        is_answered = query.form == "ask" and (logged.is_whole or len(weights))
        return ViewReport(
            query.form,
            columns_of(query),
            logged.rows.table.columns,
            logged.terms,
            logged.sn.sn,
            bool((weights > 0).any()) if is_answered else None,
            weights=weights,
            query=self.name,
            after=after.sn,
            time_ms=logged.time_ms,
            is_reset=logged.is_whole,
            text=self.source.text,
            minor=logged.sn.minor,
        )

    def _check_is_open(self) -> None:
        self._core.check_is_open()
        if self.is_closed:
            raise StreamError(f"view {self.name} is closed: register it again")

    def _give_back(self) -> None:
        """Give back the snapshots that it holds."""
        self.awake()
        self._give_back_ahead()
        if not self.is_paused:
            self._snapshots.release(self.snapshot)

    def _give_back_ahead(self) -> None:
        while self._periods:
            self._snapshots.release(self._periods.pop().snapshot)
        while self._stops:
            self._snapshots.release(self._stops.pop().snapshot)

    def _wake(self) -> None:
        if self._core.observer is not None:
            self._core.observer.wake()

    # --- content: Readable of its readers -----------------------------------------------------------------------------

    def quiet(self, after: Position, sn: Position) -> LoggedReport:
        """Return the report that nothing has changed between two positions."""
        view = self._view
        return LoggedReport(view.query, after, sn, ZSet.empty(view.variables), self._terms, tick_of(sn.sn))

    def whole(self, cursor: ViewCursor | None = None, timeout_s: float | None = None) -> LoggedReport:
        """Return the content at the SN of the view. cursor: its next report begins there. Raises QueryTimeout,
        BudgetExceeded, StreamError (closed or paused)."""
        core = self._core
        with self._turn if self._keeps else contextlib.nullcontext():
            with core.lock:
                snapshot, view, position = self._held(), self._view, self.position
                arguments = None if self.arguments is None else self.arguments.at
                after = position if cursor is None else min(cursor.sn, position)
                if cursor is not None:
                    with self.log.changed:
                        cursor.begin(position)
            try:
                if self._keeps and not self.is_anew:
                    rows, terms = view.content(), self._terms
                else:
                    rows, terms = self._evaluated(view, snapshot, arguments, timeout_s)
                if core.reach is not None:
                    fetch_texts(rows, terms)
            except BaseException as error:
                if cursor is not None:
                    with self.log.changed:
                        cursor.begin_again()
                if isinstance(error, CompactedError) and core.reach is not None:
                    raise self._forgotten(snapshot) from error
                raise
            finally:
                with core.lock:
                    self._snapshots.release(snapshot)
        return LoggedReport(view.query, after, position, rows, terms, tick_of(snapshot.sn), is_whole=True)

    def _forgotten(self, snapshot: Snapshot) -> NodeUnavailable:
        """Begin again, since another node cannot read a snapshot any more; return the error for who has asked."""
        with self._core.lock:
            self.begin_anew()
            self._wake()
        return NodeUnavailable(
            f"view {self.name}: a node has forgotten SN {snapshot.sn}, so it begins again: ask again"
        )

    def _evaluated(
        self, view: View, snapshot: Snapshot, arguments: Arguments | None, timeout_s: float | None
    ) -> tuple[ZSet, QueryTerms]:
        """Return the content at a snapshot, evaluated anew. arguments: those that were bound there."""
        core = self._core
        with core.lock:
            terms = terms_of(core)
        limits = scheduled(limits_of(core.settings, timeout_s))
        dataset = dataset_of(core, view.query.dataset, snapshot.stored, snapshot.sn, terms=terms)
        name_graphs(view.query.dataset, terms)
        lifted = view.evaluation.lifted
        if lifted is not None and arguments is not None:
            found = answer_each(lifted, arguments, dataset, terms, limits)
        else:
            found = answer(view.query, dataset, terms, limits, PlanMemo(), self.name, in_order=True, by_solution=True)
        with within(limits):
            return _rows_of(found, view.variables).consolidated(), terms

    def _held(self) -> Snapshot:
        """Hold the snapshot of its content. Called with the engine's lock held."""
        self._check_is_open()
        if self.is_paused:
            raise StreamError(f"view {self.name} is paused, and holds no content: resume() it first")
        return self._snapshots.hold(self.snapshot)


def columns_of(query: Query) -> tuple[str, ...]:
    """Return the names of the columns of a view. query: that of its operators."""
    return tuple(ARGUMENT if name == NUMBER.name else name for name in query.variables)


def _shown(found: ZSet, output: Output | None) -> ZSet:
    """Return what a report holds of a difference: of ISTREAM the inserts, of DSTREAM the deletes."""
    if output not in ("istream", "dstream"):
        return found
    return found.take(np.flatnonzero(found.weights > 0 if output == "istream" else found.weights < 0))


def fetch_texts(rows: ZSet, terms: QueryTerms) -> None:
    """Have the texts of some rows here, so that their reader needs no other node. Raises NodeUnavailable."""
    for column in rows.table.columns:
        ids = np.unique(column)
        terms.gather(ids[ids != UNBOUND])


def _rows_of(found: Answer, variables: tuple[Variable, ...]) -> ZSet:
    """Return an answer as a Z-set."""
    if found.boolean is not None:
        return ZSet.of(BindingTable((), (), int(found.boolean)))
    return ZSet.of(BindingTable(variables, tuple(found.columns), found.length))
