"""QueryExplained: what a registered query says of itself: its plan, what it waits for, what a row rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wukongs.csparql.warnings import UnseenNames
from wukongs.errors import StreamError
from wukongs.live.core import Core
from wukongs.live.emptiness import Look, counted
from wukongs.live.firing_times import FiringTimes
from wukongs.live.idleness import idle_told
from wukongs.live.made_streams import MadeStreams
from wukongs.live.readers import Readers
from wukongs.live.reading import explain_over, profiled, terms_of
from wukongs.live.support import Facts, Support
from wukongs.live.unknown_names import unknown_names
from wukongs.live.windows import waits_for, without_names
from wukongs.query.limits import limits_of
from wukongs.query.terms.names import given_terms


class QueryExplained:
    """The explanations of one query. Called without the lock."""

    def __init__(self, core: Core, name: str, made_streams: MadeStreams, times: FiringTimes, readers: Readers) -> None:
        self._core, self._name, self._made_streams = core, name, made_streams
        self._times, self._text, self._readers = times, times.text, readers

    def warnings(self) -> tuple[str, ...]:
        """Implement ContinuousQuery.warnings."""
        with self._core.lock:
            query, told = self._text.query, self._text.windows.advice(self._text.query)
        return (*told, *unknown_names(self._core, query, UnseenNames.of(query)))

    def explain(self, *, analyze: bool) -> str:
        """Implement ContinuousQuery.explain."""
        with self._core.lock:
            at_ms = self._times.next_firing()
            at_ms = at_ms if at_ms is not None else (self._core.sealed_ms or 0)
            dataset, _ = self._text.windows.dataset(at_ms)
            terms = terms_of(self._core)
        limits = limits_of(self._core.settings, None)
        profile = (
            profiled(self._text.query, dataset, terms, limits, self._text.answering.plans, self._name)
            if analyze
            else None
        )
        told = [f"warning: {warning}\n" for warning in self.warnings()]
        if self._text.group is not None:
            told.append(f"{self._text.group.told()}\n")
        told += [f"{line}\n" for line in self._text.answering.lines()]
        return "".join([explain_over(self._text.query, dataset, profile), *told])

    def why(self, row: Mapping[str, Any] | None = None) -> str:
        """Implement ContinuousQuery.why."""
        if row is not None:
            return self._support(given_terms(row))
        with self._core.lock:
            told = [f"{self._name} {self._wait()}"]
            if self._times.is_closed or self._times.is_paused:
                return told[0]
            waits_for_all = self._text.windows.reads_stored and self._text.source.only is None
            waited = self._core.streams if waits_for_all else self._text.states
            told += idle_told(self._core, waited.values())
            told += counted(self._text.states, self._readers.counts, self._readers.log)
            if self._text.group is not None:
                told.append(self._text.group.told())
            at_ms = self._times.next_firing() if self._text.last_ms is None else self._text.last_ms
            look = None if at_ms is None else Look.pick(self._core, self._text.query, self._text.windows, at_ms)
        if look is not None:
            told += look.told()
        return "\n".join(told)

    def _support(self, row: Mapping[str, str]) -> str:
        """Return the triples that a row rests on."""
        core = self._core
        with core.lock:
            if self._text.last_ms is None:
                raise StreamError(f"query {self._name} has reported no window yet, so there is no row to explain")
            core.finish_tick()
            dataset, _ = self._text.windows.dataset(self._text.last_ms)
            support = Support(self._text.query, Facts(core, dataset, terms_of(core), core.sn), self._text.last_ms)
        limits = limits_of(core.settings, None)
        with limits:
            return support.told(row, limits)

    def _wait(self) -> str:
        """Return, in words, what the query waits for. Called with the lock held."""
        if self._times.is_closed or self._times.is_paused:
            return "is closed" if self._times.is_closed else "is paused"
        due = self._times.due()
        if due is not None:
            return f"is about to report the window ending at {due} ms"
        own, streams = self._text.states, self._core.streams
        closed_ms = self._core.progress.closed_ms(self._core)
        closed_ms = {name: ms for name, ms in closed_ms.items() if name in own or not streams[name].is_made}
        if self._text.source.only is not None:
            closed_ms = without_names(closed_ms, {*own, *self._text.source.only})
        told = waits_for(own, closed_ms, self._times.next_firing(), self._text.windows.reads_stored)
        return told + self._made_streams.why(own)
