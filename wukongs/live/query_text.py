"""QueryText: what a registered query is by its text: its windows, its arguments, how it finds answers and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wukongs.csparql.algebra import Query
from wukongs.live.answering import Answering
from wukongs.live.arguments_input import ArgumentsInput
from wukongs.live.core import Core
from wukongs.live.firing import Firer
from wukongs.live.query_constants import constants_of
from wukongs.live.query_counts import QueryCounts
from wukongs.live.query_group import QueryGroup
from wukongs.live.query_source import QuerySource
from wukongs.live.query_windows import QueryWindows
from wukongs.live.reporting import Reporter
from wukongs.live.stream_state import StreamState
from wukongs.live.windows import firing_step, makes_stream
from wukongs.query.execution.answer import Answer
from wukongs.query.terms.query_terms import ConstantIds


class Rows(Protocol):
    """The rows of arguments for which a query is asked at once, and their windows."""

    @property
    def arguments(self) -> ArgumentsInput: ...
    def had(self, at_ms: int) -> bool:
        """Return whether no row has a window at a time. Called with the lock held."""

    def alike_to_ms(self, at_ms: int) -> int:
        """Return up to when firings are for the same rows as the one at a time. Called with the lock held."""

    def begins_at(self, at_ms: int) -> bool:
        """Return whether some row is asked for the first time at a time, after others. Called with the lock held."""

    def found(self, answer: Answer, at_ms: int) -> Answer:
        """Return what of an answer is compared with the firing before, and reported. at_ms: the last firing that has
        it. Called by the thread that fires."""

    def untaken_ms(self) -> int | None:
        """Return the end of the oldest window that is held here for its readers. Called with the lock held."""

    def told(self) -> str:
        """Return what EXPLAIN and why() say of it."""

    def divide(self, at_ms: int) -> Sequence[Firer]:
        """Return queries that do the firing at a time in parts, since it was too much as a whole, and fire in the place
        of the one that had these rows; none if there are no parts. Called without the lock."""


class QueryText:
    """One text of a query; another one takes its place by `replace`. Made and used with the engine's lock held.

    step_ms: how often it fires; None: when one of its windows moves on, at the end of a stream batch.
    group: the queries of a table, or of one shape; None for one query.
    beat: it is equal for all queries that are due at the same times, and need the same slices.
    last_ms: its last firing.
    steady_to_ms: the windows hold the same from the last firing up to there, if that firing may be repeated."""

    def __init__(self, core: Core, query: Query, source: QuerySource, counts: QueryCounts, rows: Rows | None) -> None:
        """rows: what it is asked for, if that is not in its source."""
        assert query.registration is not None
        name = query.registration.name
        self._core = core
        self.query = query
        self.source = source
        self.is_stream = makes_stream(query)
        self.step_ms = firing_step(query)
        constants = constants_of(query)
        ids, self._references = core.registry.reserve([term.text for term in constants])
        known = ConstantIds(core.registry, dict(zip(constants, ids.tolist(), strict=True)))
        self.group = rows
        if source.bindings is not None:
            self.group = QueryGroup(core, query, source.bindings)
        self.windows = QueryWindows(core, query, name, known)
        is_held_alone = self.is_stream and core.query_log is not None  # by what it makes
        is_own = self.step_ms is None or is_held_alone
        self.beat: object = self.windows if is_own else (self.step_ms, self.windows.beat)
        is_joined = rows is not None
        self.reporter = Reporter(query.registration, is_numbered=is_joined)
        self.last_ms: int | None = None
        self.steady_to_ms: int | None = None
        self.answering = Answering(
            core, name, query, self.windows, self.reporter, counts, self.group, is_joined=is_joined
        )

    @property
    def states(self) -> dict[str, StreamState]:
        """The streams of its windows."""
        return self.windows.states

    def forget(self) -> None:
        """Give back what it holds."""
        self.windows.close()
        self.answering.forget()
        self._core.registry.release(self._references)
        if self.group is not None:
            self.group.arguments.close()
