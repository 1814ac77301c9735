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

A reporter serves one query, which has the number 0, or queries that fire as one (joined_queries.py), each with a number
of its own. The rows of each number are compared with those of this number: a query that joins is compared with nothing.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from wukongs.csparql.algebra import Registration
from wukongs.query.execution.answer import Answer
from wukongs.query.terms.decoding import column_texts
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import UNBOUND, Int64Array
from wukongs.store.term_ids import decimal_parts, integer_ids

Extent: TypeAlias = tuple[int, int] | None
"""The content of a window, by its first and last stream batch with tuples (or arrivals); None: it is empty. A window
only moves forward, so it holds the same tuples as before exactly when these are the same."""
Row: TypeAlias = tuple[str | None, ...]
ONE = 0
"""The number of a query that fires by itself."""
_NO_ROWS: Counter[Row] = Counter()


@dataclass(slots=True)
class Remembered:
    """The extents of the windows at the firing at at_ms, and its rows.

    rows: by the number of the query that they are for, how often it had each row or triple; () once or never for ASK.
    is_whole: it is all that the firing has found, nothing was forgotten or told by a log."""

    at_ms: int
    extents: tuple[Extent, ...]
    rows: dict[int, Counter[Row]]
    is_whole: bool = False

    def rows_of(self, number: int) -> Counter[Row]:
        """Return the rows of a query."""
        return self.rows.get(number, _NO_ROWS)

    def as_json(self, number: int = ONE) -> dict[str, Any]:
        """Return what is remembered of one query."""
        return {"at_ms": self.at_ms, "extents": self.extents, "rows": list(self.rows_of(number).elements())}

    def of_one(self, number: int, to_number: int) -> Remembered:
        """Return what is remembered of one query, under another number."""
        return Remembered(self.at_ms, self.extents, {to_number: Counter(self.rows_of(number))})

    @staticmethod
    def from_json(found: dict[str, Any]) -> Remembered:
        extents = tuple(None if extent is None else (extent[0], extent[1]) for extent in found["extents"])
        return Remembered(found["at_ms"], extents, {ONE: Counter(tuple(row) for row in found["rows"])})


class Reporter:
    """The reporter of one query, or of queries that fire as one. Only `progress` is called by other threads than the
    injector's."""

    def __init__(self, registration: Registration, *, is_numbered: bool = False) -> None:
        """is_numbered: the first column of each answer has the number of the query that a row is for, rising."""
        self._is_numbered = is_numbered
        self._output = registration.output
        self._policies = registration.report
        self.is_compared = self._output != "rstream" or "content change" in self._policies
        """Whether a firing is compared with the one before it."""
        self.looks_at_contents = self.is_compared or "non-empty content" in self._policies
        """Whether it matters what the windows hold (Extent)."""
        self.leaves_out = "non-empty result" in self._policies
        """Whether a firing without rows is left out."""
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
        before = self._remembered.rows if self._remembered is not None else {}
        rows, parts = () if self._output == "rstream" else self._rows(found, terms), self._parts(found)
        after = {number: Counter(rows[lo:hi]) for number, lo, hi in parts}
        if self._output == "istream":
            places = (lo + at for n, lo, hi in parts for at in _without(rows[lo:hi], before.get(n, _NO_ROWS)))
            found = _taken(found, [*places])
        elif self._output == "dstream":
            gone = ((n, row) for n, own in before.items() for row in (own - after.get(n, _NO_ROWS)).elements())
            found = self._gone(found, [*gone], terms)
        # Parts of a group whose firing has failed are compared with what was before it.
        self._remembered = Remembered(at_ms, tuple(extents), after, is_whole=True)
        return found

    def _rows(self, found: Answer, terms: QueryTerms) -> tuple[Row, ...]:
        if not self._is_numbered:
            return _rows(found, terms)
        return _rows(replace(found, columns=found.columns[1:]), terms)

    def _parts(self, found: Answer) -> list[tuple[int, int, int]]:
        """Return the number of each query that has rows, and where its rows begin and end."""
        if not self._is_numbered:
            return [(ONE, 0, found.length if found.boolean is None else int(found.boolean))]
        if not found.length:
            return []
        numbers = decimal_parts(found.columns[0])[0]
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), found.length]
        return [(int(numbers[lo]), lo, hi) for lo, hi in pairwise(bounds)]

    def _gone(self, found: Answer, rows: list[tuple[int, Row]], terms: QueryTerms) -> Answer:
        """Return rows of before as an answer of the form of `found`. rows: the number of its query, and each row."""
        if not self._is_numbered:
            return _gone(found, [row for _, row in rows], terms)
        rows.sort(key=lambda one: one[0])
        numbers = integer_ids(np.array([number for number, _ in rows], np.int64))
        others = _gone(replace(found, columns=found.columns[1:]), [row for _, row in rows], terms)
        return replace(others, columns=(numbers, *others.columns))

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
            own = found.rows.setdefault(ONE, Counter())
            own.update(more)
            for row in less:
                own[row] -= 1
                if not own[row]:
                    del own[row]
        if self._output == "istream":
            return _taken(came, _without(more, Counter(less)))
        return _taken(went, _without(less, Counter(more)))

    def is_reported(self, found: Answer) -> bool:
        """Tell whether a firing with this answer is reported."""
        is_empty = not (found.length or found.boolean)
        return not (is_empty and self.leaves_out)

    def forget(self, at_ms: int) -> None:
        """Begin anew after the firing at a time."""
        if self.is_compared:
            self._remembered = Remembered(at_ms, (), {})

    def progress(self, number: int = ONE) -> dict[str, Any] | None:
        """Return what is remembered of a query, as JSON. From any thread."""
        with self._lock:
            found = self._remembered
            return None if found is None else found.as_json(number)

    def newest(self, number: int = ONE) -> dict[str, Any] | None:
        """Return, as JSON, what the next firing of a query is compared with: after a restart the log has told it, and
        no firing has taken it yet. From any thread."""
        told = [one for one in self.recorded if number in one.rows][-1:]
        return told[0].as_json(number) if told else self.progress(number)

    def restore(self, progress: dict[str, Any] | None) -> None:
        self._remembered = None if progress is None else Remembered.from_json(progress)

    def _recall(self, at_ms: int) -> None:
        while self.recorded and self.recorded[0].at_ms < at_ms:
            self._take(self.recorded.pop(0))

    def _take(self, found: Remembered) -> None:
        """Remember what another firing has found of some queries, unless it is older than what is remembered."""
        before = self._remembered
        if before is None or found.at_ms >= before.at_ms:
            with self._lock:
                rows = {} if before is None else before.rows
                rows.update(found.rows)
                self._remembered = Remembered(found.at_ms, found.extents, rows)

    # --- queries that join and leave ----------------------------------------------------------------------------------

    def hand_over(self, number: int, other: Reporter, to_number: int) -> None:
        """Have another reporter go on with what is remembered of a query, under another number."""
        if self._remembered is not None:
            other._take(self._remembered.of_one(number, to_number))
        other.record(to_number, [one.of_one(number, ONE) for one in self.recorded if number in one.rows])

    def record(self, number: int, recorded: Iterable[Remembered]) -> None:
        """Note what a log says that was remembered of a query at some times."""
        for one in recorded:
            insort(self.recorded, one.of_one(ONE, number), key=lambda found: found.at_ms)

    def progress_of(self, numbers: Iterable[int]) -> tuple[int, dict[int, list[Row]]] | None:
        """Return what is remembered of some queries: the time of the firing, and the rows of each that has some. Called
        with the engine's lock held."""
        with self._lock:
            found = self._remembered
            if found is None:
                return None
            return found.at_ms, {n: [*found.rows[n].elements()] for n in numbers if n in found.rows}


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
