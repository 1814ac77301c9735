"""Reporter: which firings of a registered query are reported, and what of their rows: REPORT, and R/I/DSTREAM.

A firing whose windows fail REPORT's policies is left out: it is not evaluated, and the next one is compared with the
last that was. Two things are remembered of that one: what its windows held, and (for ISTREAM and DSTREAM) its rows, as
texts, since the terms of a window may be gone when the next one closes. Before the first firing, and after a pause or
a failed firing, nothing is remembered: all windows were empty, and there was no row.

A query that keeps its matches (query/plans/deltas.py) says which rows came and went since the firing before. Only these
are made texts then (`go_on`): the slices that a firing reads are held until the next one has run. If they had to go
before, for want of room, the whole answer is compared (`go_on_no_more`).

In a data folder the heads of the log's segments carry what is remembered (`progress`). While the log is replayed, a
firing takes the newest of them that is older than itself (`recorded`), so that it does not matter which of the firings
before it can still be evaluated.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
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


@dataclass(slots=True)
class Remembered:
    """The extents of the windows at the firing at at_ms, and how often it had each row or triple; () once or never for
    an ASK. is_whole: it is all that the firing has found, nothing was forgotten or told by a log."""

    at_ms: int
    extents: tuple[Extent, ...]
    rows: Counter[Row]
    is_whole: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"at_ms": self.at_ms, "extents": self.extents, "rows": list(self.rows.elements())}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Remembered:
        extents = tuple(None if extent is None else (extent[0], extent[1]) for extent in found["extents"])
        return Remembered(found["at_ms"], extents, Counter(tuple(row) for row in found["rows"]))


class Reporter:
    """The reporter of one query. Only `progress` is called by other threads than the injector's."""

    def __init__(self, registration: Registration) -> None:
        self._output = registration.output
        self._policies = registration.report
        self.is_compared = self._output != "rstream" or "content change" in self._policies
        """Whether a firing is compared with the one before it."""
        self.looks_at_contents = self.is_compared or "non-empty content" in self._policies
        """Whether it matters what the windows hold (Extent)."""
        self._lock = threading.Lock()
        """Held while what is remembered is changed, and while it is written down."""
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
        before = self._remembered.rows if self._remembered is not None else Counter[Row]()
        rows = () if self._output == "rstream" else _rows(found, terms)
        self._remembered = Remembered(at_ms, tuple(extents), Counter(rows), is_whole=True)
        if self._output == "istream":
            return _taken(found, _without(rows, before))
        if self._output == "dstream":
            return _gone(found, [*(before - self._remembered.rows).elements()], terms)
        return found

    def follows(self, before_ms: int) -> bool:
        """Tell whether rows that came and went since a firing are all that `go_on` needs."""
        found = self._remembered
        is_operator = self._output != "rstream"
        return is_operator and found is not None and found.is_whole and found.at_ms == before_ms

    def go_on_no_more(self) -> None:
        """Have the next firing compared as a whole: the terms of what went cannot be read any more."""
        if self._remembered is not None:
            self._remembered.is_whole = False

    def go_on(self, at_ms: int, extents: Sequence[Extent], came: Answer, went: Answer, terms: QueryTerms) -> Answer:
        """Do as `compare`, by what the firing at a time has more and what it has less than the one before."""
        found = self._remembered
        assert found is not None, at_ms
        more, less = _rows(came, terms), _rows(went, terms)
        with self._lock:
            found.at_ms, found.extents = at_ms, tuple(extents)
            found.rows.update(more)
            for row in less:
                found.rows[row] -= 1
                if not found.rows[row]:
                    del found.rows[row]
        if self._output == "istream":
            return _taken(came, _without(more, Counter(less)))
        return _taken(went, _without(less, Counter(more)))

    def is_reported(self, found: Answer) -> bool:
        """Tell whether a firing with this answer is reported."""
        is_empty = not (found.length or found.boolean)
        return not (is_empty and "non-empty result" in self._policies)

    def forget(self, at_ms: int) -> None:
        """Begin anew after the firing at a time."""
        if self.is_compared:
            self._remembered = Remembered(at_ms, (), Counter())

    def progress(self) -> dict[str, Any] | None:
        """Return what is remembered, as JSON. From any thread."""
        with self._lock:
            found = self._remembered
            return None if found is None else found.as_json()

    def newest(self) -> dict[str, Any] | None:
        """Return, as JSON, what the next firing is compared with: after a restart the log has told it, and no firing
        has taken it yet. From any thread."""
        told = self.recorded[-1:]
        return told[0].as_json() if told else self.progress()

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


def _without(rows: Iterable[Row], others: Counter[Row]) -> list[int]:
    """Return the places of the rows that are left when each of the others takes one that is equal away."""
    left = others.copy()
    kept = []
    for place, row in enumerate(rows):
        if left[row] > 0:
            left[row] -= 1
        else:
            kept.append(place)
    return kept


def _taken(found: Answer, places: list[int]) -> Answer:
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
