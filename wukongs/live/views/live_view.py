"""LiveView: a registered query over stored graphs, whose answer follows them; what its users hold."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from wukongs.csparql.algebra import Output, Query
from wukongs.errors import CompactedError, SettingsError, StreamError
from wukongs.incremental.divided import DividedReads
from wukongs.incremental.versions import Evaluation
from wukongs.live.argument_tables import Arguments as Table
from wukongs.live.argument_tables import table_text
from wukongs.live.core import QueryLog
from wukongs.live.declarations import parse_registered
from wukongs.live.query_group import check_arguments
from wukongs.live.query_source import QuerySource
from wukongs.live.reading import ask, reading, terms_of
from wukongs.live.support import Facts
from wukongs.live.views.caller import Caller, OnReport
from wukongs.live.views.following_view import (
    RECORD_S,
    FollowingView,
    Period,
    Stop,
    columns_of,
)
from wukongs.live.views.logged_arguments import change_text
from wukongs.live.views.options import ViewOptions, check_period, check_view, is_rule
from wukongs.live.views.row_support import (
    TRIPLE_NAMES,
    RowSearch,
    RowSupport,
    given_row,
    is_partial,
    no_such_row,
)
from wukongs.live.views.view_arguments import Numbers, ViewArguments, answer_each
from wukongs.live.views.view_log import LoggedReport, Position, ViewCursor
from wukongs.live.views.view_state import CALLED, digest
from wukongs.query.execution.answer import within
from wukongs.query.execution.argument_rows import ARGUMENT, NUMBER
from wukongs.query.limits import Limits, limits_of, scheduled
from wukongs.query.output.results import Result
from wukongs.query.output.view_report import ViewReport
from wukongs.query.plans.plan_memo import PlanMemo
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import decimal_parts

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("wukongs")


class LiveView(FollowingView):
    """A registered query without a window, as its users hold it: reports, content, arguments, changes of the view."""

    # --- reading ------------------------------------------------------------------------------------------------------

    def results(
        self, timeout_s: float | None = None, *, group: str | None = None, progress: bool = False
    ) -> Iterator[ViewReport]:
        """Iterate over reports, each the change since the one before; end when the view is closed, or timeout_s passes
        without one.

        group: a named cursor of several readers: one reads, others stand by. progress: also get a report without rows
        when the view is complete up to a later SN and nothing has changed. Raises the error that a change ended in;
        the next report is a reset."""
        return self.view_readers.results(timeout_s, group, progress=progress)

    def aresults(
        self, timeout_s: float | None = None, *, group: str | None = None, progress: bool = False
    ) -> AsyncIterator[ViewReport]:
        """Return results() for `async for`: it waits in the event loop."""
        return self.view_readers.aresults(timeout_s, group, progress=progress)

    def cursor(self, group: str | None) -> ViewCursor:
        """Return the cursor of a group, or the view's own."""
        return self.view_readers.of_group(group)

    def new_cursor(self, *, needs_reset: bool) -> ViewCursor:
        """Return a cursor of its own for one more reader, who drops it (`log.drop`). No restart finds it."""
        with self._core.lock:  # the log stands where the view does
            return self.log.cursor("", needs_reset=needs_reset)

    def next_report(self, cursor: ViewCursor, deadline_s: float | None, *, progress: bool = False) -> ViewReport | None:
        """Return the next report of a cursor, None if there is none in time. deadline_s: time.monotonic()."""
        return self.view_readers.next_report(cursor, deadline_s, progress=progress)

    def reset(self) -> ViewReport:
        """Return the whole content as a reset. Raises QueryTimeout, BudgetExceeded, StreamError (closed or paused)."""
        whole = self.whole()
        return self.rendered(whole, whole.after)

    def call(self, on_result: OnReport) -> None:
        """Have a thread of the engine call a function with each report, in order."""
        Caller(self, self.view_readers.cursor(CALLED), on_result, self._callbacks)

    def content(self, at: int | None = None, *, timeout_s: float | None = None) -> Result:
        """Return the whole content, a multiset, at the SN up to which the view is complete.

        at: another SN, as Engine.query has it, for the arguments at which the view stands. Raises QueryTimeout,
        BudgetExceeded, CompactedError (at), StreamError (the view is closed)."""
        if at is not None:
            limits = scheduled(limits_of(self._core.settings, timeout_s))
            if self.arguments is not None:
                return self._content_at(self.arguments, at, limits)
            return ask(self._core, self.query, PlanMemo(), limits, f"view {self.name}", at, text=self.source.text)[0]
        return self.content_with_position(timeout_s=timeout_s)[0]

    def content_with_position(self, *, timeout_s: float | None = None) -> tuple[Result, Position]:
        """Return the content, and the position that it is of. Raises as content."""
        whole = self.whole(timeout_s=timeout_s)
        query = whole.query
        table = whole.rows.repeated()
        boolean = table.length > 0 if query.form == "ask" else None
        found = Result(
            query.form,
            columns_of(query),
            table.columns,
            whole.terms,
            whole.sn.sn,
            boolean,
            table.length,
            text=self.source.text,
        )
        return found, whole.sn

    def _content_at(self, arguments: ViewArguments, at: int, limits: Limits) -> Result:
        with self._core.lock:
            query, lifted, bound, text = self._view.query, arguments.lifted, arguments.at, self.source.text
        with reading(self._core, query.dataset, limits, f"view {self.name}", at) as read, limits:
            found = answer_each(lifted, bound, read.dataset, read.terms, limits)
        return Result("select", columns_of(query), found.columns, read.terms, read.sn, None, found.length, text=text)

    # --- arguments ----------------------------------------------------------------------------------------------------

    def bind(self, arguments: Table) -> Int64Array:
        """Bind arguments: the text is also asked with the terms of each row in the place of variables. Return their
        numbers; their rows are in a report, with weight +1.

        arguments: a table with the columns of `register(bindings=)`, or a list of dictionaries. Equal rows are separate
        arguments. Raises SettingsError (other columns), DataError (a term that is none, a missing one), StreamError
        (closed, or registered without bindings)."""
        own = self._own_arguments("bind")
        table = own.checked(arguments, "bind")
        if (query_log := self._log_of_cluster()) is not None:
            return query_log.change_arguments(self.name, table, partial(self._binding, own, table))
        rows = own.rows(table)
        with self._core.lock:
            self._check_is_open()
            if self.journal is not None and rows.length:
                self.journal.change(self.of, "bind", version=own.newest.version + 1, arguments=table_text(table))
            numbers = own.bind(rows)
            self._wake()
        return numbers

    def unbind(self, arguments: Table | Numbers) -> Int64Array:
        """Unbind arguments; return their numbers. Their rows are in a report, with weight -1; numbers are never used
        again.

        arguments: numbers, or rows as bind takes them, each of which is the oldest equal one. Raises DataError for one
        that is not bound (none is unbound then); else as bind."""
        own = self._own_arguments("unbind")
        if (query_log := self._log_of_cluster()) is not None:
            table = own.table(arguments)
            return query_log.change_arguments(self.name, table, partial(self._unbinding, own, table, arguments))
        rows = own.wanted(arguments)
        with self._core.lock:
            self._check_is_open()
            if not rows.length:
                return np.empty(0, np.int64)
            chosen = own.unbinding(rows)
            if self.journal is not None:
                numbers = decimal_parts(chosen.column(NUMBER))[0].tolist()
                self.journal.change(self.of, "unbind", version=own.newest.version + 1, arguments=numbers)
            unbound = own.unbind(chosen)
            self._wake()
        return unbound

    def _binding(self, own: ViewArguments, table: pyarrow.Table) -> tuple[str, Int64Array]:
        """Return the text of what is to be bound next, and its numbers. No text: it is nothing."""
        self._check_is_open()
        numbers = own.newest.next_number + np.arange(table.num_rows)
        return change_text("bind", table) if len(numbers) else "", numbers

    def _unbinding(
        self, own: ViewArguments, table: pyarrow.Table | None, arguments: Table | Numbers
    ) -> tuple[str, Int64Array]:
        """Return the text of what is to be unbound next, and its numbers. table: as rows of terms; None: numbers."""
        self._check_is_open()
        rows = own.wanted(arguments if table is None else table)
        numbers = np.sort(decimal_parts(own.unbinding(rows).column(NUMBER))[0])
        return change_text("unbind", numbers.tolist()) if len(numbers) else "", numbers

    def take_arguments(self, what: str, arguments: Any) -> None:
        """Bind or unbind what the log of a cluster says. Called with the engine's lock held."""
        if self.arguments is not None and not self.is_closed:
            self.arguments.take(what, arguments)
            self._wake()

    def _own_arguments(self, call: str) -> ViewArguments:
        if self.arguments is None:
            raise StreamError(f"{call}: view {self.name} has no arguments: register it with bindings=")
        return self.arguments

    # --- what it says of itself ---------------------------------------------------------------------------------------

    def explain(self, *, analyze: bool = False) -> str:
        """Return its operators as text. analyze: also the rows of the last change, and the bytes kept, of each."""
        with self._core.lock:
            shared, own = self.shared, self.arguments
            if shared is not None:
                return shared.explain(analyze=analyze)
        operators = self._view.explain(analyze=analyze)
        return operators if own is None else f"for each of {own.at.count} arguments\n{operators}"

    def stats(self) -> dict[str, Any]:
        """Return counts, sizes (bytes) and times (microseconds) as JSON."""
        shared = self.shared
        kept_bytes = self._view.kept_bytes if shared is None else shared.size_bytes // max(1, len(shared.members))
        return {
            "kind": "view",
            "into": self.makes,
            "sn": self.sn,
            "is_paused": self.is_paused,
            "is_built": not self.is_anew,
            **self._counts,
            "unread_reports": self.log.count_held,
            "unread_bytes": self.log.size_bytes,
            "reports_summed": self.log.summed_count,
            "resets_for_memory": self.log.reset_count,
            "kept_bytes": kept_bytes + (0 if self.given is None else self.given.size_bytes),
            "arguments": 0 if self.arguments is None else self.arguments.newest.count,
            "arguments_bytes": 0 if self.arguments is None else self.arguments.newest.size_bytes,
            "computed_terms": self._terms.computed_count,
            "last_change_us": round(self._last_us, 1),
        }

    @overload
    def why(self, row: None = None) -> str: ...

    @overload
    def why(self, row: Mapping[str, Any] | Sequence[Any]) -> RowSupport: ...

    def why(self, row: Mapping[str, Any] | Sequence[Any] | None = None) -> str | RowSupport:
        """Say what the view waits for, and whether it was too far behind; of a row, which triples it rests on, down to
        explicit ones (print() shows a tree).

        row: terms by the names of columns, some or all of them (None: unbound), or all in order, as reports have them;
        of a CONSTRUCT, subject, predicate and object. Raises DataError (a term that is none; the content has no such
        row), SettingsError (no such column), StreamError (closed, paused), QueryTimeout, BudgetExceeded."""
        if row is not None:
            return self._support(row)
        return f"{self._state()}; {self._lagged}" if self._lagged else self._state()

    def _state(self) -> str:
        newest = self._core.sn
        if self.is_closed:
            return f"view {self.name} is closed"
        if self.is_paused:
            return f"view {self.name} is paused at SN {self.sn}: resume() has it go on, with a reset"
        if self._waits_for:
            return f"view {self.name} stands at SN {self.sn}, and waits for other nodes: {self._waits_for}"
        if self._failed_at_sn is not None:
            return f"view {self.name} failed at SN {self._failed_at_sn}, and begins again with the next change"
        if self.is_anew:
            return f"view {self.name} is being built at SN {self.sn}"
        if self.every_ms is not None:
            stands_ms = None if self.made is None else self.made.decided_to_ms
            is_late = stands_ms is not None and stands_ms >= self.period_end_ms
            later = f"; the stream that it makes stands at {stands_ms} ms, and gets nothing before" if is_late else ""
            return f"view {self.name} stands at SN {self.sn}; its period ends at {self.period_end_ms} ms{later}"
        if self.sn < newest:
            return f"view {self.name} stands at SN {self.sn}, and the stored graph at SN {newest}"
        if self._has_moved_on(newest):
            return f"view {self.name} stands at SN {self.sn}; arguments were bound or unbound since"
        return f"view {self.name} is complete up to SN {self.sn}, the newest"

    def _support(self, row: Mapping[str, Any] | Sequence[Any]) -> RowSupport:
        core, arguments = self._core, self.arguments
        with core.lock:
            snapshot, view, terms = self._held(), self._view, terms_of(core)
            bound = None if arguments is None else arguments.at
        try:
            query, lifted = view.query, view.evaluation.lifted
            given = given_row(row, TRIPLE_NAMES if query.form == "construct" else columns_of(query), self.name)
            if lifted is not None and given.get(ARGUMENT) is None:
                raise SettingsError(f"row: expected the number of an argument in {ARGUMENT!r}, found {row!r:.200}")
            limits = scheduled(limits_of(core.settings, None))
            with within(limits):
                graph_of = None if core.reach is None else DividedReads(core.reach)
                evaluation = Evaluation(query.dataset, self._ids(), terms, limits, graph_of=graph_of)
                facts = Facts(core, evaluation.dataset(snapshot.stored), terms, snapshot.sn)
                ids = {name: UNBOUND if text is None else int(terms.ids([text])[0]) for name, text in given.items()}
                argument, is_bound = None, True
                if arguments is not None and lifted is not None and bound is not None:
                    query = lifted.bound.query
                    argument = arguments.one(bound, ids.pop(ARGUMENT))
                    is_bound = argument.length > 0
                search = RowSearch(query, evaluation, facts, snapshot.stored, self.name, argument)
                found = search.find(ids) if is_bound else None
        except CompactedError as error:
            raise self._forgotten(snapshot) from error
        finally:
            with core.lock:
                self._snapshots.release(snapshot)
        if found is None:
            raise no_such_row(given, self.name, snapshot.sn)
        return RowSupport(self.name, given, found[0], snapshot.sn, found[1], is_partial(query))

    def warnings(self) -> tuple[str, ...]:
        """Return likely mistakes: none are looked for."""
        return ()

    def has_options(self, options: ViewOptions) -> bool:
        """Return whether it was registered with some options, and without arguments."""
        return self.options == options and self.arguments is None

    # --- changes of the view ------------------------------------------------------------------------------------------

    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None:
        """Follow another text from now on, under the same name; the next report is a reset. Raises as
        Engine.register."""
        source = self.source._replace(text=text, base=base, output=output)
        query = self._checked(source)
        if (query_log := self._log_of_cluster()) is not None:
            query_log.replace_query(self.name, text, base, output)
            self._wait_until_changed(text=text, base=base, output=output)
        else:
            self._follow(source, query)

    def _checked(self, source: QuerySource) -> Query:
        """Return another text, parsed. Raises as Engine.register."""
        query = parse_registered(source)
        if query.dataset.windows:
            raise StreamError(f"view {self.name}: the other text has a window: close the view, and register it")
        check_view(query, source, self.options)
        if self.arguments is not None:
            check_arguments(query, self.arguments.names)
        assert query.registration is not None
        if query.registration.name != self.name:
            raise StreamError(f"view {self.name}: the other text is registered as {query.registration.name}")
        if self.makes is not None and not is_rule(query, source, self.options, (self.makes,)):
            check_period(self.name, self.options.every_ms or query.registration.computed_every_ms, self.every_ms)
        return query

    def _follow(self, source: QuerySource, query: Query) -> None:
        with self._turn, self._core.lock:
            self._check_is_open()
            self._check_is_restored()
            self._check_cycle(query, self.options)
            self.awake()
            if self.journal is not None:
                fields = {"text": source.text, "base": source.base, "output": source.output}
                self.journal.change(self.of, "replace", **fields, given=self._written_given())
            if self.given is not None:
                self.given.at = None
            self.source = source
            if self.arguments is not None:
                self.arguments.put_query(query)
            self._keep_period()
            self._void_move()
            self._lay_out(query)
            self._failures, self._failed_at_sn, self._retry_at_s = 0, None, None
            self.log.begin_again(self.position)
            self._wake()

    def pause(self) -> None:
        """Stop moving, and hold no snapshot back, until resume()."""
        if (query_log := self._log_of_cluster()) is not None:
            query_log.pause_query(self.name, True)
            self._wait_until_changed(is_paused=True)
        else:
            self._pause()

    def _pause(self) -> None:
        with self._turn, self._core.lock:
            self._check_is_open()
            if not self.is_paused:
                self._check_is_restored()
                if self.journal is not None:
                    self.journal.change(self.of, "pause", given=self._written_given())
                self.awake()
                self._void_move()
                self._lay_out(self.query)
                self._give_back()
                self.is_paused = self.log.is_paused = True
                self.view_readers.release()

    def _written_given(self) -> dict[str, Any] | None:
        return None if self.given is None else self.given.written()

    def resume(self) -> None:
        """Move again after a pause: the next report is a reset."""
        if (query_log := self._log_of_cluster()) is not None:
            query_log.pause_query(self.name, False)
            self._wait_until_changed(is_paused=False)
        else:
            self._resume()

    def _resume(self) -> None:
        with self._turn, self._core.lock:
            self._check_is_open()
            if self.is_paused:
                if self.journal is not None:
                    self.journal.change(self.of, "resume")
                self._own = self._snapshots.newest()
                if self.arguments is not None:
                    self._next_arguments = self.arguments.newest
                    self.arguments.stand_at(self._next_arguments)
                self._lay_out(self.query)
                self.is_paused = self.log.is_paused = False
                self.log.begin_again(self.position)
                self._wake()

    def has_changed(
        self,
        text: str | None = None,
        base: str | None = None,
        output: Output | None = None,
        is_paused: bool | None = None,
    ) -> bool:
        """Return whether it is as a change of it says: its text, and whether it is paused. None: the change was not of
        that."""
        is_text = text is None or self.source == self.source._replace(text=text, base=base, output=output)
        return is_text and is_paused in (None, self.is_paused)

    def alter(self, source: QuerySource, *, is_paused: bool) -> None:
        """Be what the log of a cluster says. Called without the engine's lock. Raises as replace."""
        source = source._replace(bindings=None)
        if source != self.source:
            self._follow(source, self._checked(source))
        if is_paused != self.is_paused:
            if is_paused:
                self._pause()
            else:
                self._resume()

    def _log_of_cluster(self) -> QueryLog | None:
        """Return what decides on the changes of the view, None if that is this engine. Raises StreamError (closed)."""
        query_log = self._core.query_log
        if query_log is not None:
            with self._core.lock:
                self._check_is_open()
        return query_log

    def _wait_until_changed(self, **change: Any) -> None:
        """Wait until the view is as a record of the log says, unless another record is carried out first. change: the
        options of has_changed."""
        deadline_s = time.monotonic() + RECORD_S
        while not (self.has_changed(**change) or self.is_closed or time.monotonic() >= deadline_s):
            time.sleep(0.005)

    def _check_is_restored(self) -> None:
        if self._is_restoring:
            raise StreamError(
                f"view {self.name} does not yet stand where the stream that it makes does: settle() first"
            )

    def close(self) -> None:
        """End the view; unread reports can still be read. Closing twice is allowed."""
        with self._core.lock:
            if not self.is_closed:
                self._core.check_is_own()
                if self.journal is not None:
                    self.journal.change(self.of, "close")
                    self.journal.forget(self.of)
                if self._core.query_log is not None:
                    self._core.query_log.close_query(self.name)
                self._forget(self)
                self.end()
                if self.made is not None:
                    self.made.end()
                    self.made.producer = None

    def leave(self, *, is_moved: bool) -> None:
        """End here, as a record of the log of a cluster says. is_moved: it goes on at another node. Called with the
        engine's lock held."""
        self._forget(self)
        if is_moved:
            self.has_moved = True
            self.log.leave()
            if self.made is not None:
                self.made.leave()
        self.end()

    def end(self) -> None:
        """End with the engine. It gives back what it holds."""
        with self._core.lock:
            if not self.is_closed:
                self._give_back()
                self.is_closed = True
                self._core.registry.release(self._references)
                self.log.close()

    # --- data folders -------------------------------------------------------------------------------------------------

    def is_of(self, source: QuerySource, options: ViewOptions) -> bool:
        """Return whether it is what somebody would register anew."""
        is_alike = self.source == source._replace(bindings=None) and self.table == digest(source.bindings)
        return is_alike and self.options == options

    def go_on(self, reports: Sequence[LoggedReport], cursors: Sequence[ViewCursor], stops: Sequence[Stop]) -> None:
        """Go on as the data folder has it, before the first move. stops: held for the view."""
        self._stops.extend(stops)
        self.view_readers.restore(reports, cursors)

    def begin_paused(self) -> None:
        """Be paused, as resume() expects it. Called before the first move."""
        self._give_back()
        self.is_paused = self.log.is_paused = True

    def end_period_now(self, time_ms: int) -> None:
        """End a period that event time has passed before the engine was opened."""
        if self.every_ms is not None and not self.is_paused:
            arguments = None if self.arguments is None else self.arguments.newest
            end_ms = time_ms // self.every_ms * self.every_ms
            self._periods.append(Period(end_ms, self._snapshots.newest(), self._core.now_s(), arguments))

    def count_error(self) -> None:
        """Note that an on_result has failed."""
        self._counts["errors"] += 1

    def __repr__(self) -> str:
        return f"<LiveView {self.name}, SN {self.sn}>"


def is_view(query: object) -> bool:
    """Return whether a registered query is a live view, of this engine or of another node of the cluster."""
    return isinstance(query, LiveView) or getattr(query, "is_view", False) is True
