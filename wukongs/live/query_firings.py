"""QueryFirings: the firings of a registered query: what each reads is picked, it is run, and its window is reported."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Protocol

from wukongs.csparql.algebra import Query
from wukongs.errors import WukongsError
from wukongs.live.answer_cache import CachedAnswer
from wukongs.live.core import Core
from wukongs.live.firing import Firing, Picked
from wukongs.live.firing_times import FiringTimes
from wukongs.live.query_changes import QueryChanges
from wukongs.live.query_counts import REPEATED, Way
from wukongs.live.query_text import QueryText
from wukongs.live.query_windows import QueryWindows, Reading
from wukongs.live.readers import Readers
from wukongs.live.reading import terms_of
from wukongs.live.stream_state import FOREVER_MS
from wukongs.live.stretch import Stretch
from wukongs.live.tracing import LISTENING, Fired
from wukongs.live.window_log import WINDOW_BYTES, LazyWindow, Reported
from wukongs.query.execution.answer import Answer
from wukongs.query.output.results import WindowResult
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.query.programs.program import Program
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.query.terms.moment import Moment
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import Int64Array
from wukongs.store.snapshot import tick_sn
from wukongs.store.term_ids import HASH_BITS
from wukongs.store.term_registry import TermReader

log = logging.getLogger("wukongs")
QUICK_US = 5000.0
"""A firing of less microseconds may come before windows of others are handed over."""
SLOW_US, SLOW_COUNT = 50_000.0, 2
"""A query is slow once this number of its firings, one after the other, took more than these microseconds."""


class DirectWindows(Protocol):
    """The windows of direct firings at one time (joint_firings.DirectFirings)."""

    at_ms: int
    reading: Reading
    reader: TermReader
    latency_us: float


@dataclass(frozen=True, slots=True, eq=False)
class DirectWindow(LazyWindow):
    """The window of a direct firing."""

    firings: DirectWindows
    text: QueryText
    found: Answer
    reader: Utf8Reader

    def make_window(self) -> WindowResult:
        """Implement LazyWindow.make_window."""
        return window_of(
            self.text, self.found, self.reader, self.firings.at_ms, self.firings.reading, self.firings.latency_us
        )


def window_of(
    text: QueryText, found: Answer, reader: Utf8Reader, at_ms: int, reading: Reading, latency_us: float
) -> WindowResult:
    """Return the window of a firing. found, reader: its answer, and what reads its terms."""
    return WindowResult(
        text.query.form,
        text.query.variables if text.group is None else text.group.arguments.rows.variables,
        found.columns,
        reader,
        tick_sn(at_ms),
        found.boolean,
        found.length,
        query=text.answering.name,
        start_ms=reading.start_ms,
        end_ms=at_ms,
        windows=reading.spans,
        partial=reading.partial,
        latency_us=latency_us,
        is_stream=text.is_stream,
        text=text.source.text,
    )


class QueryFirings:
    """Those of one query (firing.Firer, journal.ReportedBy)."""

    def __init__(
        self, core: Core, name: str, lsn: int, times: FiringTimes, changes: QueryChanges, readers: Readers
    ) -> None:
        """lsn: the record of the log that registered the query."""
        self.name, self.lsn = name, lsn
        self._core, self._times, self._changes, self._readers = core, times, changes, readers
        self.log, self._counts = readers.log, readers.counts
        self._took_us = inf
        """How long the last firing took, whatever came of it."""
        self._slow_count = 0
        """The number of the last firings, one after the other, that were slow and depend on their inputs alone."""

    @property
    def _text(self) -> QueryText:
        return self._times.text

    @property
    def query(self) -> Query:
        return self._text.query

    @property
    def windows(self) -> QueryWindows:
        return self._text.windows

    @property
    def plans(self) -> PlanMemo:
        """Its plans, for datasets of all sizes."""
        return self._text.answering.plans

    @property
    def is_closed(self) -> bool:
        return self._times.is_closed

    @property
    def is_quick(self) -> bool:
        """Implement Firer.is_quick."""
        return self._took_us < QUICK_US

    @property
    def may_be_offloaded(self) -> bool:
        """Whether its firings may run in the slow lane: they are its own, and nobody waits for them. Called with the
        lock held."""
        core, times, text = self._core, self._times, self._times.text
        is_alone = times.made is None and text.step_ms is not None and not self._readers.is_inline
        is_own = core.query_log is None and core.replayed_to is None
        has_ids = core.registry.hash_bits == HASH_BITS  # with fewer, released ids become those of others
        return is_alone and is_own and has_ids and text.answering.may_be_offloaded

    @property
    def waits_for_lane(self) -> bool:
        """Implement Firer.waits_for_lane."""
        return bool(self._times.offloaded) and not self.may_be_offloaded and self._times.due() is not None

    @property
    def is_offloaded(self) -> bool:
        """Whether its next firing runs in the slow lane. Called with the lock held."""
        return bool(self._times.offloaded) or (self._slow_count >= SLOW_COUNT and self.may_be_offloaded)

    def is_skipped(self, at_ms: int) -> bool:
        """Return whether the firing at a time is left out: the query is paused, or about to end, or its slices are
        gone; or the window was taken before, no other is compared with it, and the stream that the query makes has what
        it brings."""
        if self._times.offloaded and self._changes.ends_before(at_ms):
            return True
        is_had = self._had_to_ms(at_ms) >= at_ms
        if self._times.is_paused or (is_had and not self._text.reporter.is_compared):
            return True
        return self._text.windows.gone_to_ms(at_ms) is not None

    def _had_to_ms(self, at_ms: int) -> int:
        """Return up to when windows from a time on were taken before, and readers of the stream that the query makes
        have what they bring; a time before that if that one was not."""
        had_ms: int = self._readers.had_ms
        if self._text.group is not None and self._text.group.had(at_ms):
            had_ms = max(had_ms, self._text.group.alike_to_ms(at_ms))
        return had_ms if self._times.made is None else min(had_ms, self._times.made.decided_to_ms)

    def leave_out(self, at_ms: int) -> None:
        """Go on after a firing that is skipped, and after those behind it that are, too, or whose slices are gone."""
        gone_ms = None if self._times.is_paused else self._text.windows.gone_to_ms(at_ms)
        if gone_ms is not None:
            last_ms = self._lose(at_ms, gone_ms)
        else:
            last_ms = self._last_of(at_ms, FOREVER_MS if self._times.is_paused else self._had_to_ms(at_ms))
        self._times.skip_to(last_ms)
        self._text.steady_to_ms = None
        if self._times.is_paused or gone_ms is not None:
            self._text.reporter.forget(last_ms)
        if gone_ms is not None:
            self._decide(last_ms, None)

    def _lose(self, first_ms: int, to_ms: int) -> int:
        """Report the firings from the first one up to a time as a gap. Return the last of them."""
        step_ms = self._text.step_ms or 1
        to_ms = self._changes.before(first_ms, to_ms)
        last_ms = to_ms // step_ms * step_ms if self._text.step_ms is not None else first_ms
        self._counts.over_budget += (last_ms - first_ms) // step_ms + 1
        self._times.do_in_order(partial(self.log.lose, first_ms, last_ms, step_ms))
        return last_ms

    def _last_of(self, first_ms: int, to_ms: int) -> int:
        """Return the last firing that is due up to a time. first_ms: the first, which is due."""
        covered_ms = self._times.covered_ms()
        if self._text.step_ms is None or covered_ms is None:
            return first_ms
        to_ms = self._changes.before(first_ms, min(to_ms, covered_ms))
        return max(first_ms, first_ms + (to_ms - first_ms) // self._text.step_ms * self._text.step_ms)

    def _stretch_to_ms(self, at_ms: int, picked: Picked) -> int:
        """Return the last of the firings that are done with the one at a time: they are due, and have its answer."""
        to_ms = picked.same_to_ms.get(self._text.beat)
        if to_ms is None:
            to_ms = self._times.covered_ms() if self._text.step_ms is not None else None
            if to_ms is None or to_ms < at_ms + (self._text.step_ms or 1):
                to_ms = at_ms
            else:
                to_ms = self._text.windows.same_to_ms(at_ms, to_ms, picked.upper)
            if not self._text.windows.is_filtered:
                picked.same_to_ms[self._text.beat] = to_ms
        steady_ms, self._text.steady_to_ms = self._text.steady_to_ms, to_ms
        if to_ms == at_ms or self._text.answering.is_of_moment:
            return at_ms
        # What is compared with the firing before has its answer only if that one has read the same. Triples have blank
        # nodes, and a stream that they make, of their own: they are repeated when there are none.
        is_first = steady_ms is None or steady_ms < at_ms
        if recorded := self._text.reporter.recorded:  # firings behind one of these are compared with it
            is_first |= recorded[0].at_ms < at_ms
            to_ms = min([to_ms, *(one.at_ms for one in recorded if one.at_ms >= at_ms)])
        if self._text.group is not None:
            is_first |= self._text.group.begins_at(at_ms)
        if is_first and (self._text.reporter.is_compared or self._text.query.form == "construct"):
            return at_ms
        if self._text.group is not None:
            to_ms = min(to_ms, self._text.group.alike_to_ms(at_ms))
        return self._last_of(at_ms, to_ms)

    def company(self) -> Hashable:
        """Return what is equal for all queries that are run together when they are due at one time, None if this one
        runs alone. Called with the lock held."""
        return self._text.answering.company()

    def fires_before(self, come: frozenset[int], at_ms: int) -> bool:
        """Return whether the firing at a time has the same answer before and after timeless tuples with some predicates
        join the stored graph. Called with the lock held."""
        self.company()  # so that it is compiled if it can be: others take long, and may wait
        return (
            self._text.answering.compiled is not None
            and not self.is_offloaded
            and self._times.made is None
            and self._text.windows.is_apart_from(come, at_ms)
        )

    def prepare(self, at_ms: int, picked: Picked) -> Firing | None:
        """Pick the batches that the firing at a time reads. Return None if it is not to be reported.

        picked: with others of the moment. Called with the lock held, when everything up to then is sealed."""
        is_offloaded = self.is_offloaded
        is_compiled = self._text.answering.compiled is not None and not is_offloaded
        reading = picked.readings.get(self._text.beat) if is_compiled else None
        if reading is None:
            reading = self._text.windows.read(at_ms, is_compiled=is_compiled)
            if is_compiled and self._text.windows.is_of_beat(reading):
                picked.readings[self._text.beat] = reading
        last_ms = at_ms if reading.error is not None else self._stretch_to_ms(at_ms, picked)
        self._times.skip_to(last_ms)
        self._text.last_ms = last_ms
        is_alone = last_ms == at_ms
        if not self._text.reporter.is_wanted(at_ms, reading.extents) and reading.error is None:
            self._counts.not_reported += 1 if is_alone else (last_ms - at_ms) // (self._text.step_ms or 1) + 1
            self._times.do_in_order(partial(self.log.skip, last_ms))
            self._decide(last_ms, None)
            return None
        is_compared, is_stored = self._text.reporter.is_compared, self._text.windows.reads_stored
        if (
            is_compared
            and self._text.step_ms is not None
            and self._text.windows.has_lost_of(at_ms - self._text.step_ms)
        ):
            self._text.reporter.go_on_no_more()
        self._core.journal.delivery.fired(self.lsn, at_ms, last_ms, reading.needs_ms, is_compared, is_stored)
        self._times.pick(at_ms, is_offloaded=is_offloaded)
        stretch = None
        if not is_alone:
            stretch = Stretch(at_ms, last_ms, self._text.step_ms or 1, self._text.windows.places(at_ms))
        if is_offloaded:
            return self._text.answering.pick_offloaded(self, at_ms, reading, picked, stretch)
        return self._text.answering.pick(self, at_ms, reading, picked, stretch)

    # --- direct firings (joint_firings.py) ----------------------------------------------------------------------------

    @property
    def is_direct(self) -> bool:
        """Whether the next firing can be a direct one. Called with the lock held."""
        return self._times.text.answering.is_direct and not (self._times.is_paused or self._times.offloaded)

    def is_alone(self, at_ms: int, picked: Picked) -> bool:
        """Return whether the slices of a direct firing are held, and no later firing that is due has its answer.

        All queries of a schedule class (beat) have the same result. Called with the lock held."""
        return self.windows.gone_to_ms(at_ms) is None and self._stretch_to_ms(at_ms, picked) == at_ms

    def pick_directly(
        self, at_ms: int, next_ms: int, reading: Reading, versions: Hashable
    ) -> tuple[CachedAnswer, Program | None]:
        """Pick the direct firing at a time. Return its answer, and the program that finds it.

        The program is None if the answer is known, or another firing finds it. Called with the lock held.

        next_ms    The time of the next firing.
        versions   The versions of its inputs, if it reads no stored graph."""
        times, text = self._times, self._times.text
        text.last_ms = times.picked_ms = at_ms
        times.next_ms, times.is_firing = next_ms, True
        if reading.sn is not None:
            versions = text.windows.versions(reading)
        self._core.journal.delivery.fired(self.lsn, at_ms, at_ms, reading.needs_ms, False, reading.sn is not None)
        return text.answering.pick_directly(versions)

    def terms_of(self, program: Program, rows: Int64Array, firings: DirectWindows) -> QueryTerms | None:
        """Return the terms of the rows of a program at a direct firing; None: the data have all of them.

        rows : int64[columns, n]"""
        reader, at_ms = firings.reader, firings.at_ms
        return program.result(rows, lambda: terms_of(self._core, reader, Moment.of_firing(self.name, at_ms))).terms

    def report_directly(
        self, firings: DirectWindows, cached: CachedAnswer, way: Way, execution_us: float, latency_us: float
    ) -> None:
        """Report the window of a direct firing.

        firings   The direct firings at the time.
        cached    Its answer.
        way       How the answer was found.
        execution_us, latency_us   Its times, in microseconds."""
        assert cached.answered is not None, self.name
        (found, reader), at_ms = cached.answered, firings.at_ms
        size_bytes, is_partial = WINDOW_BYTES, firings.reading.partial
        for column in found.columns:
            size_bytes += column.nbytes
        counts = self._counts
        counts.direct[way] += 1
        if way == REPEATED and cached.by != self.name:
            counts.explored_together += 1
        counts.report(found.length, latency_us, execution_us, at_ms, is_partial=is_partial)
        self._put(at_ms, DirectWindow(firings, self._times.text, found, reader), size_bytes, None)
        self._times.is_firing, self._took_us = False, execution_us

    def firing_of(
        self, at_ms: int, reading: Reading, reader: TermReader, cached: CachedAnswer, *, is_repeated: bool
    ) -> Firing:
        """Return the ordinary firing in the place of a direct one whose program was not run."""
        answering = self._text.answering
        firing = Firing(self, at_ms, reading, reader, answering.compiled)
        firing.program, firing.cached, firing.is_repeated = answering.program, cached, is_repeated
        return firing

    def stand_behind(self, at_ms: int) -> None:
        """Go on behind a firing that was picked for this query, and is about to be run. Called with the lock held."""
        self._times.skip_to(at_ms)
        self._text.last_ms = self._times.picked_ms = at_ms
        self._times.is_firing = True

    def _text_of(self, firing: Firing) -> QueryText:
        """Return the text of a firing that is run."""
        return self._times.offloaded[0].text if firing.is_offloaded else self._text

    def run(self, firing: Firing, due_at_s: float) -> None:
        """Execute a firing and report its window. A window that was taken before is not reported again: only the next
        firing needs it.

        Called without the lock. due_at_s: perf_counter when it was due."""
        started_s = time.perf_counter()
        try:
            self._run(firing, due_at_s)
        finally:
            if not firing.is_offloaded:
                self._times.is_firing = False
            self._took_us = firing.joint_us + (time.perf_counter() - started_s) * 1e6
            if not firing.is_repeated:
                is_slow = self._took_us > SLOW_US and (firing.is_offloaded or self._text.answering.was_evaluated_whole)
                self._slow_count = self._slow_count + 1 if is_slow else 0
        self._core.unread.end_full()

    def note_offloaded(self) -> None:
        """Implement Firer.note_offloaded."""
        self._times.report_offloaded()

    def _run(self, firing: Firing, due_at_s: float) -> None:
        started_s = time.perf_counter()
        try:
            if firing.reading.error is not None:
                self._counts.over_budget += 1
                raise firing.reading.error
            window = self._execute(firing, due_at_s)
        except WukongsError as error:
            if firing.reading.error is None and self._ran_in_parts(firing, due_at_s):
                return
            log.warning("query %s, window ending at %d ms: %s", self.name, firing.at_ms, error)
            self._put_error(firing, error)
            self._trace(firing, None, due_at_s, started_s, time.perf_counter(), type(error).__name__)
            return
        except Exception as error:
            # A mistake of ours in this query: the others, and the streams, go on without it.
            log.exception("query %s, window ending at %d ms: the firing has failed", self.name, firing.at_ms)
            told = WukongsError(
                f"query {self.name}, window ending at {firing.at_ms} ms: the firing failed with "
                f"{type(error).__name__}: {error}. Its later windows are still reported; see the log"
            )
            told.__cause__ = error.with_traceback(None)  # its frames hold tables
            self._put_error(firing, told)
            return
        last_ms, executed_s = firing.last_ms, time.perf_counter()
        self._decide(last_ms, window)
        had_ms = self._readers.had_ms
        if last_ms <= had_ms:
            return
        count = firing.count_after(had_ms)
        if window is None:
            self._counts.not_reported += count
            self.log.skip(last_ms)
            return
        execution_us = firing.joint_us + (executed_s - started_s) * 1e6
        is_partial = window.partial
        self._counts.report(len(window), window.latency_us, execution_us, last_ms, count, is_partial=is_partial)
        self._put(last_ms, window, WINDOW_BYTES + window.size_bytes, firing.stretch)
        self._trace(firing, window, due_at_s, started_s, executed_s)

    def _trace(
        self,
        firing: Firing,
        window: WindowResult | None,
        due_s: float,
        begun_s: float,
        executed_s: float,
        error: str | None = None,
    ) -> None:
        """Report a firing, if there is a listener."""
        if LISTENING.to is not None:
            rows, snapshot = (None, None) if window is None else (len(window), window.snapshot)
            count, now_s = firing.count_after(self._readers.had_ms), time.perf_counter()
            times = due_s, begun_s, executed_s, now_s
            LISTENING.to.fired(Fired(self.name, firing.last_ms, count, rows, snapshot, *times, error))

    def _ran_in_parts(self, firing: Firing, due_at_s: float) -> bool:
        """Run a firing that was too much in parts, over the same reading; tell whether there are any."""
        parts = [] if self._text.group is None else self._text.group.divide(firing.last_ms)
        for part in parts:
            part.run(replace(firing, query=part, cached=None), due_at_s)
        return bool(parts)

    def _decide(self, at_ms: int, window: WindowResult | None) -> None:
        """Hand what a firing has brought, None: nothing, to the readers of the stream that it makes."""
        if window is not None and window.is_graph and len(window):
            self._text.steady_to_ms = None
        if self._times.made is not None:
            self._times.made.decide(at_ms, window)

    def _put_error(self, firing: Firing, error: WukongsError) -> None:
        last_ms, had_ms = firing.last_ms, self._readers.had_ms
        self._decide(last_ms, None)
        text = self._text_of(firing)
        text.reporter.forget(last_ms)
        text.steady_to_ms = None
        if last_ms <= had_ms:
            return
        self._counts.errors += firing.count_after(had_ms)
        self._put(last_ms, error, WINDOW_BYTES, firing.stretch)

    def _put(self, last_ms: int, item: Reported, size_bytes: int, stretch: Stretch | None) -> None:
        self._core.journal.delivery.reported(self, last_ms, item, stretch)
        self.log.put(last_ms, item, size_bytes, stretch)

    def delivered_ms(self) -> int | None:
        """Return the time up to which its readers have all windows, None if it has not fired yet. Called with the lock
        held."""
        if self._times.next_ms is None:
            return None
        fired_ms = self._times.picked_ms if self._times.is_firing else self._times.next_ms
        untaken_ms = self._readers.untaken_ms(is_stream=self._text.is_stream)
        in_group_ms = None if self._text.group is None else self._text.group.untaken_ms()
        return min(ms for ms in (fired_ms, untaken_ms, in_group_ms) if ms is not None) - 1

    def remembered(self) -> dict[str, Any] | None:
        """Implement journal.ReportedBy.remembered."""
        return self._text.reporter.newest() if self._text.reporter.is_compared else None

    def _execute(self, firing: Firing, due_at_s: float) -> WindowResult | None:
        """Return what the firing reports, None if REPORT leaves it out."""
        text = self._text_of(firing)
        answer = text.answering.answer_offloaded if firing.is_offloaded else text.answering.answer
        (found, reader), used = answer(firing)
        self._counts.count_found(used, firing.count)
        if not text.reporter.is_reported(found):
            return None
        latency_us = (time.perf_counter() - due_at_s) * 1e6
        return window_of(text, found, reader, firing.at_ms, firing.reading, latency_us)
