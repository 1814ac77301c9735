"""Stretch: firings of one query, one after the other, that read the same versions of its inputs
(docs/decisions/0044-stretches.md).

They are due together, have one answer (answer_cache.py), and are logged once: a window is made for each firing when
somebody reads it. A firing by itself is a stretch of one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from wukongs.csparql.algebra import StreamWindow
from wukongs.live.windows import Interval, interval
from wukongs.query.output.results import WindowResult
from wukongs.store.snapshot import tick_sn


@dataclass(frozen=True, slots=True)
class Places:
    """Where the windows of a query lie at a time: each with the batch_ms of its stream, and, if it counts, with where
    its triples lie; None: it counts and is empty."""

    windows: tuple[tuple[StreamWindow, int, Interval | None], ...]

    def at(self, at_ms: int) -> tuple[int, dict[str, tuple[int, int]]]:
        """Return where the earliest begins, and the spans (query_windows.Reading)."""
        spans: dict[str, tuple[int, int]] = {}
        named: dict[str, tuple[int, int]] = {}
        for window, batch_ms, found in self.windows:
            if window.is_counted:
                place = Interval(at_ms, at_ms, 0, 0) if found is None else found
            else:
                place = interval(window, batch_ms, at_ms)
            if window.stream not in spans or place.start_ms < spans[window.stream][0]:
                spans[window.stream] = place.start_ms, place.end_ms
            if window.own_name:
                named[window.name] = place.start_ms, place.end_ms
        return min(start_ms for start_ms, _ in spans.values()), spans | named


@dataclass(frozen=True, slots=True)
class Stretch:
    """first_ms, last_ms: the first and the last firing; step_ms: one comes so often. places: None for one firing, and
    for firings that have failed."""

    first_ms: int
    last_ms: int
    step_ms: int
    places: Places | None = None

    @property
    def count(self) -> int:
        return (self.last_ms - self.first_ms) // self.step_ms + 1

    def after(self, time_ms: int) -> Stretch:
        """Return the firings that come after a time, of which there is at least one."""
        if time_ms < self.first_ms:
            return self
        return replace(self, first_ms=self.first_ms + ((time_ms - self.first_ms) // self.step_ms + 1) * self.step_ms)

    def window(self, first: WindowResult, at_ms: int) -> WindowResult:
        """Return the window of the firing at a time, by that of another one."""
        if self.places is None or at_ms == first.end_ms:
            return first
        found = copy.copy(first)
        found.snapshot, found.end_ms = tick_sn(at_ms), at_ms
        found.start_ms, found.windows = self.places.at(at_ms)
        return found
