"""Results on their way: chunks of rows as columns of ids, with a table of the distinct texts that these need.

* A chunk has at most CHUNK_CELLS cells and about CHUNK_BYTES of text (one row may have more): a result of any length
  crosses in messages of bounded size, and each side holds it once, as its columns.
* Inlined ids carry their text themselves, so the table is without them.
* Columns of another process are checked before anything reads them: an id without text, a text that is no UTF-8 or an
  inlined id that no literal has is a DataError, and never a wrong term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from wukongs.errors import BudgetExceeded, DataError
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.output.view_report import ViewReport
from wukongs.query.terms.arrow_texts import text_array
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.dictionary import EMPTY_VIEW, Dictionary, split_texts
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array, UInt8Array
from wukongs.store.encoded import TermTable
from wukongs.store.term_ids import is_inlined, is_literal_id
from wukongs.wire.packets import Array

CHUNK_CELLS = 1 << 17
CHUNK_BYTES = 4 << 20
_FIRST_CELLS = 1 << 12
_KINDS = ("select", "ask", "construct", "describe")


# --- the sender -------------------------------------------------------------------------------------------------------


class Outgoing:
    """A result that is read in chunks, from the first row on; each chunk may be asked for again."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self._cells = _FIRST_CELLS

    def head(self) -> dict[str, Any]:
        """Return all but the rows."""
        result = self.result
        fields: dict[str, Any] = {
            "form": result.kind,
            "vars": result.vars,
            "rows": len(result),
            "boolean": result.boolean,
            "snapshot": result.snapshot,
        }
        if isinstance(result, WindowResult):
            names = ("query", "start_ms", "end_ms", "windows", "partial", "latency_us", "is_stream")
            fields["window"] = {name: getattr(result, name) for name in names}
        if isinstance(result, ViewReport):
            fields["report"] = {name: getattr(result, name) for name in _REPORT_TYPES}
        return fields

    def chunk(self, start: int) -> dict[str, Array]:
        """Return the arrays of the rows from `start` on, as many as make a chunk.

        The first one is small; where texts are short the next ones grow."""
        width = max(1, self.result.width)
        while True:
            stop = min(len(self.result), start + max(1, self._cells // width))
            arrays = arrays_of(self.result, start, stop)
            size = len(arrays["text"])
            if size <= CHUNK_BYTES or stop - start <= 1:
                if 2 * size <= CHUNK_BYTES:
                    self._cells = min(2 * self._cells, CHUNK_CELLS)
                return arrays
            self._cells = max(1, (stop - start) * width // 2)


def arrays_of(result: Result, start: int, stop: int) -> dict[str, Array]:
    """Return the arrays of some rows of a result: what Incoming.add takes."""
    columns = result.ids(start, stop)
    ids = _without_text(columns)
    text, offsets = result.reader.gather(ids) if len(ids) else (_NO_TEXT, _NO_OFFSETS)
    arrays: dict[str, Array] = {f"column {place}": column for place, column in enumerate(columns)}
    if isinstance(result, ViewReport):
        arrays["weights"] = result.weights[start:stop]
    return {**arrays, "ids": ids, "offsets": offsets, "text": text}


_NO_TEXT = np.empty(0, np.uint8)
_NO_OFFSETS = np.zeros(1, np.int64)


def _without_text(columns: Sequence[Int64Array]) -> Int64Array:
    """Return the distinct ids of columns that carry no text themselves, in ascending order."""
    if not columns:
        return np.empty(0, np.int64)
    found: Int64Array = np.concatenate(columns)
    found = found[(found != UNBOUND) & ~is_inlined(found)]
    found.sort()
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = found[1:] != found[:-1]
    distinct: Int64Array = found[is_first]
    return distinct


# --- the receiver -----------------------------------------------------------------------------------------------------


class ColumnsReader:
    """A Utf8Reader over the texts of one chunk. ids: ascending."""

    def __init__(self, terms: TermTable) -> None:
        self._terms = terms

    def texts(self, ids: Int64Array) -> list[str]:
        return split_texts(*self.gather(ids))

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        inlined = is_inlined(ids)
        if inlined.all():
            return EMPTY_VIEW.gather(ids)
        held = self._terms.take(np.searchsorted(self._terms.ids, ids[~inlined]))
        if not inlined.any():
            return held.text, held.offsets
        text, offsets = EMPTY_VIEW.gather(ids[inlined])
        both = TermTable(
            np.concatenate((held.ids, ids[inlined])),
            np.concatenate((held.offsets, offsets[1:] + held.offsets[-1])),
            np.concatenate((held.text, text)),
        )
        order = np.empty(len(ids), np.int64)
        order[np.concatenate((np.flatnonzero(~inlined), np.flatnonzero(inlined)))] = np.arange(len(ids))
        found = both.take(order)
        return found.text, found.offsets

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here, or carries it."""
        known = self._terms.ids
        if not len(known):
            return is_inlined(ids)
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        found: BoolArray = is_inlined(ids) | (known[places] == ids)
        return found


class Incoming:
    """A result that comes in chunks. Raises DataError for a head that is none."""

    def __init__(self, head: Mapping[str, Any], origin: str) -> None:
        """origin: the sender, for messages."""
        self._origin = origin
        self._head = head
        self._check_head()
        self._rows: int = head["rows"]
        self._width = 3 if head["form"] in ("construct", "describe") else len(head["vars"])
        self.missing_from = 0
        """The first row that has not come yet."""
        self._columns: list[Int64Array] | None = None
        self._weights = list[Int64Array]()
        """The weights of a report, by chunks."""
        self._dictionary: Dictionary | None = None
        self._reader: Utf8Reader = ColumnsReader(TermTable.empty())

    @property
    def is_complete(self) -> bool:
        return self._width == 0 or self.missing_from == self._rows

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Take the next chunk. Raises DataError (columns that do not fit, texts that are missing or broken)."""
        columns = [self._column(arrays, place) for place in range(self._width)]
        count = len(columns[0]) if columns else 0
        if any(len(column) != count for column in columns) or count > self._rows - self.missing_from:
            sizes = ", ".join(str(len(column)) for column in columns)
            raise self._wrong(f"columns of one length, at most {self._rows - self.missing_from}", f"lengths {sizes}")
        if not count and not self.is_complete:
            raise self._wrong(f"rows from {self.missing_from} on", "none")
        terms = self._terms(arrays)
        self._check_ids(columns, terms)
        if self._head.get("report") is not None:
            weights = self._array(arrays, "weights")
            if len(weights) != (count if self._width else self._rows):
                raise self._wrong(f"{count if self._width else self._rows} weights", str(len(weights)))
            self._weights.append(weights)
        self._keep(columns, terms, count)
        self.missing_from += count

    def result(self, text: str = "") -> Result:
        """Return the result, once it is complete. text: of its query, if that is known here."""
        columns = tuple(self._columns or [np.empty(0, np.int64)] * self._width)
        head, window, report = self._head, self._head.get("window"), self._head.get("report")
        names = tuple(head["vars"])
        if report is not None:
            weights = np.concatenate([np.empty(0, np.int64), *self._weights])
            shown = (head["form"], names, columns, self._reader, head["snapshot"], head.get("boolean"))
            return ViewReport(*shown, weights=weights, **report, text=text)
        given = (head["form"], names, columns, self._reader, head["snapshot"], head.get("boolean"), self._rows)
        if window is None:
            return Result(*given, text=text)
        windows = {stream: (bounds[0], bounds[1]) for stream, bounds in window["windows"].items()}
        return WindowResult(*given, **{**window, "windows": windows}, text=text)

    def _keep(self, columns: list[Int64Array], terms: TermTable, count: int) -> None:
        if self._columns is None and count == self._rows:  # all of it: most results
            self._columns, self._reader = columns, ColumnsReader(terms)
            return
        if self._columns is None or self._dictionary is None:
            self._dictionary = Dictionary()
            try:
                self._columns = [np.empty(self._rows, np.int64) for _ in range(self._width)]
            except (MemoryError, ValueError):
                raise BudgetExceeded(
                    f"{self._origin}: the result has {self._rows} rows, for which this process has no memory: ask for "
                    "less at a time"
                ) from None
        for column, part in zip(self._columns, columns, strict=True):
            column[self.missing_from : self.missing_from + count] = part
        if len(self._dictionary.add(terms)):
            raise self._wrong("one text for each id", "another one for an id that came before")
        self._reader = self._dictionary.view()

    def _column(self, arrays: Mapping[str, Array], place: int) -> Int64Array:
        return self._array(arrays, f"column {place}")

    def _array(self, arrays: Mapping[str, Array], name: str) -> Int64Array:
        found = arrays.get(name)
        if found is None or found.dtype != np.int64:
            raise self._wrong(f"an array {name!r} of int64", "none" if found is None else str(found.dtype))
        return found  # type: ignore[return-value]

    def _terms(self, arrays: Mapping[str, Array]) -> TermTable:
        ids, offsets = self._array(arrays, "ids"), self._array(arrays, "offsets")
        text = arrays.get("text")
        if text is None or text.dtype != np.uint8:
            raise self._wrong("an array 'text' of uint8", "none" if text is None else str(text.dtype))
        is_framed = len(offsets) == len(ids) + 1 and offsets[0] == 0 and offsets[-1] == len(text)
        if not is_framed or (offsets[1:] <= offsets[:-1]).any():
            raise self._wrong("offsets that cut the text into one part for each id", "others")
        if (ids[1:] <= ids[:-1]).any() or (len(ids) and (ids[0] <= 0 or is_inlined(ids).any())):
            raise self._wrong("ids of texts that ascend", "others")
        try:
            text_array(text, offsets).validate(full=True)  # type: ignore[arg-type]
        except pa.ArrowInvalid:
            raise self._wrong("texts in UTF-8", "others") from None
        return TermTable(ids, offsets, text)  # type: ignore[arg-type]

    def _check_ids(self, columns: Sequence[Int64Array], terms: TermTable) -> None:
        here = ColumnsReader(terms)
        for column in columns:
            bound = column[column != UNBOUND]
            held = here.contains(bound)
            if not held.all():
                raise self._wrong("a text for each id", f"none for {bound[~held][0]}")
            inlined = bound[is_inlined(bound)]
            if not is_literal_id(inlined).all():
                raise self._wrong("ids of literals", f"{inlined[~is_literal_id(inlined)][0]}")

    def _check_head(self) -> None:
        head = self._head
        rows, names, boolean, window = head.get("rows"), head.get("vars"), head.get("boolean"), head.get("window")
        is_count = type(rows) is int and 0 <= rows < 1 << 62 and type(head.get("snapshot")) is int
        is_named = isinstance(names, list) and all(isinstance(name, str) for name in names)
        has_boolean = boolean is None or isinstance(boolean, bool)
        is_window = (window is None or _is_window(window)) and _is_report(head.get("report"))
        if head.get("form") not in _KINDS or not (is_count and is_named and has_boolean and is_window):
            raise self._wrong("the head of a result", "something else")

    def _wrong(self, expected: str, found: str) -> DataError:
        return DataError(f"{self._origin}: a result is not what it should be: expected {expected}, found {found}")


def _is_window(window: object) -> bool:
    """Tell whether this is the head that Outgoing.head gives a window."""
    if not isinstance(window, dict) or set(window) != _WINDOW_TYPES.keys():
        return False
    if not all(isinstance(window[name], kind) for name, kind in _WINDOW_TYPES.items()):
        return False
    return all(
        isinstance(bounds, list | tuple) and len(bounds) == 2 and all(type(bound) is int for bound in bounds)
        for bounds in window["windows"].values()
    )


def _is_report(report: object) -> bool:
    """Return whether this is none, or the head that Outgoing.head gives a report."""
    if report is None:
        return True
    if not isinstance(report, dict) or set(report) != _REPORT_TYPES.keys():
        return False
    return all(isinstance(report[name], kind) for name, kind in _REPORT_TYPES.items())


_REPORT_TYPES: dict[str, type | tuple[type, ...]] = {
    "query": str,
    "after": int,
    "minor": int,
    "time_ms": (int, type(None)),
    "is_reset": bool,
}
_WINDOW_TYPES: dict[str, type | tuple[type, ...]] = {
    "query": str,
    "start_ms": int,
    "end_ms": int,
    "windows": dict,
    "partial": bool,
    "latency_us": (int, float),
    "is_stream": bool,
}
