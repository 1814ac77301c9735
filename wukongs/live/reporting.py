"""Reporter: which firings of a registered query are reported, and what of their rows: REPORT, and R/I/DSTREAM.

A firing whose windows fail REPORT's policies is left out: it is not evaluated, and the next one is compared with the
last that was. Two things are remembered of that one: what its windows held, and (for ISTREAM and DSTREAM) its rows, as
texts, since the terms of a window may be gone when the next one closes. Before the first firing, and after a pause or
a failed firing, nothing is remembered: all windows were empty, and there was no row.

In a data folder the heads of the log's segments carry what is remembered (`progress`). While the log is replayed, a
firing takes the newest of them that is older than itself (`recorded`), so that it does not matter which of the firings
before it can still be evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from wukongs.csparql.algebra import Registration
from wukongs.query.execution.answer import Answer
from wukongs.query.terms.decoding import column_texts
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array

Extent: TypeAlias = tuple[int, int] | None
"""The content of a window, by its first and last stream batch with tuples (or arrivals); None: it is empty. A window
only moves forward, so it holds the same tuples as before exactly when these are the same."""
Row: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Remembered:
    """The extents of the windows at the firing at at_ms, and its rows or triples; `[()]` or `[]` for an ASK."""

    at_ms: int
    extents: tuple[Extent, ...]
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        return {"at_ms": self.at_ms, "extents": self.extents, "rows": self.rows}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Remembered:
        extents = tuple(None if extent is None else (extent[0], extent[1]) for extent in found["extents"])
        return Remembered(found["at_ms"], extents, tuple(tuple(row) for row in found["rows"]))


class Reporter:
    """The reporter of one query. Only `progress` is called by other threads than the injector's."""

    def __init__(self, registration: Registration) -> None:
        self._output = registration.output
        self._policies = registration.report
        self.is_compared = self._output != "rstream" or "content change" in self._policies
        """Whether a firing is compared with the one before it."""
        self.looks_at_contents = self.is_compared or "non-empty content" in self._policies
        """Whether it matters what the windows hold (Extent)."""
        self._remembered: Remembered | None = None
        self.recorded: list[Remembered] = []
        """The memory at some times, by the log that is replayed; in order."""

    def is_wanted(self, at_ms: int, extents: Sequence[Extent]) -> bool:
        """Tell whether the firing at a time is to be evaluated, by what its windows hold: nothing need be said of that
        unless looks_at_contents."""
        if self.recorded:
            self._recall(at_ms)
        if not self.looks_at_contents:
            return True
        if "non-empty content" in self._policies and all(extent is None for extent in extents):
            return False
        if "content change" in self._policies:
            before = self._remembered.extents if self._remembered is not None else ()
            return tuple(extents) != (before or (None,) * len(extents))
        return True

    def compare(self, at_ms: int, extents: Sequence[Extent], found: Answer, terms: QueryTerms) -> Answer:
        """Return what the firing at a time reports of its answer, and remember the answer."""
        if not self.is_compared:
            return found
        before = self._remembered.rows if self._remembered is not None else ()
        rows = () if self._output == "rstream" else _rows(found, terms)
        self._remembered = Remembered(at_ms, tuple(extents), rows)
        if self._output == "istream":
            return _taken(found, rows, _without(rows, before))
        if self._output == "dstream":
            return _gone(found, [before[row] for row in _without(before, rows)], terms)
        return found

    def is_reported(self, found: Answer) -> bool:
        """Tell whether a firing with this answer is reported."""
        is_empty = not (found.length or found.boolean)
        return not (is_empty and "non-empty result" in self._policies)

    def forget(self, at_ms: int) -> None:
        """Begin anew after the firing at a time."""
        if self.is_compared:
            self._remembered = Remembered(at_ms, (), ())

    def progress(self) -> dict[str, Any] | None:
        """Return what is remembered, as JSON. From any thread."""
        found = self._remembered
        return None if found is None else found.as_json()

    def restore(self, progress: dict[str, Any] | None) -> None:
        self._remembered = None if progress is None else Remembered.from_json(progress)

    def _recall(self, at_ms: int) -> None:
        while self.recorded and self.recorded[0].at_ms < at_ms:
            found = self.recorded.pop(0)
            if self._remembered is None or found.at_ms >= self._remembered.at_ms:
                self._remembered = found


def _rows(found: Answer, terms: QueryTerms) -> tuple[Row, ...]:
    if found.boolean is not None:
        return ((),) if found.boolean else ()
    if not found.columns:
        return ((),) * found.length
    return tuple(zip(*(column_texts(column, terms) for column in found.columns), strict=True))


def _without(rows: Sequence[Row], others: Sequence[Row]) -> list[int]:
    """Return the places of the rows that are left when each of the others takes one that is equal away."""
    left = Counter(others)
    kept = []
    for place, row in enumerate(rows):
        if left[row] > 0:
            left[row] -= 1
        else:
            kept.append(place)
    return kept


def _taken(found: Answer, rows: Sequence[Row], places: list[int]) -> Answer:
    if found.boolean is not None:
        return replace(found, boolean=bool(places))
    chosen = np.array(places, np.int64)
    return replace(found, columns=tuple(column[chosen] for column in found.columns), length=len(places))


def _gone(found: Answer, rows: list[Row], terms: QueryTerms) -> Answer:
    """Make an answer of the form of `found` with other rows."""
    if found.boolean is not None:
        return replace(found, boolean=bool(rows))
    columns = tuple(_ids([row[place] for row in rows], terms) for place in range(len(found.columns)))
    return replace(found, columns=columns, length=len(rows))


def _ids(texts: Sequence[str | None], terms: QueryTerms) -> Int64Array:
    column = np.full(len(texts), UNBOUND, np.int64)
    bound = [place for place, text in enumerate(texts) if text is not None]
    column[bound] = terms.ids([text for text in texts if text is not None])
    return column
