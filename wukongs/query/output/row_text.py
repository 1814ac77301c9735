"""Columns of ids become rows of text in one format, by the tables of the format and the calls that use them.

A format's own function says how one term is written; the tables (`Forms`) are made by asking it about each kind of term
and each character of ASCII. Some terms do not fit into the tables: triple terms, base directions, characters that the
format refuses. The function writes them, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from wukongs.errors import DataError
from wukongs.query.output import row_text_kernels as kernels
from wukongs.query.rows import numbered
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.dictionary import join_texts
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array

FEW_CELLS = 64
"""So many are written by one call: a kernel for each part of the work would take longer to be called."""

Cell = Callable[[str], str]
"""Canonical text -> the cell that stands for it."""
Escape = Callable[[str], str]
"""One character -> the text that stands for it; DataError if nothing does."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of terms of one kind. The pieces stand before, between and after their parts; parts: a rule of
    row_text_kernels; body, tail: the escapes of each part's characters, None: no escapes."""

    before: str
    after: str
    body: Escape | None = None
    between: str = ""
    tail: Escape | None = None
    parts: int = kernels.BODY_ALONE
    quoted: bool = False


class Forms:
    """The tables of a format. forms: of IRIs, blank nodes, and literals without a tail, with a datatype, a language."""

    def __init__(self, forms: Sequence[Form]) -> None:
        assert len(forms) == kernels.N_KINDS, len(forms)
        self.pieces, bounds = packed([piece for form in forms for piece in (form.before, form.between, form.after)])
        self.bounds = bounds.reshape(kernels.N_KINDS, 3, 2)
        classes = list(dict.fromkeys(escape for form in forms for escape in (form.body, form.tail)))
        self.rules = np.array(
            [(form.parts, classes.index(form.body), classes.index(form.tail), form.quoted) for form in forms], np.int64
        )
        self.sizes = np.ones((len(classes), 256), np.int64)
        self.escapes = np.zeros((len(classes), 256, kernels.ESCAPE_SIZE_MAX), np.uint8)
        for number, escape in enumerate(classes):
            if escape is not None:
                self._fill(number, escape)

    def _fill(self, number: int, escape: Escape) -> None:
        for byte in range(128):
            try:
                made = escape(chr(byte)).encode()
            except DataError:
                made = b""
            assert len(made) != 1 or made[0] == byte, f"{made!r} for byte {byte}: sizes of 1 stand for the byte itself"
            self.sizes[number, byte] = len(made)
            self.escapes[number, byte, : len(made)] = list(made)

    @property
    def tables(self) -> tuple[UInt8Array, Int64Array, Int64Array, Int64Array, UInt8Array]:
        return self.pieces, self.bounds, self.rules, self.sizes, self.escapes


def packed(texts: Sequence[str]) -> tuple[UInt8Array, Int64Array]:
    """Return texts as UTF-8, and where each of them stands: uint8[n_bytes], int64[n, 2]."""
    parts = [text.encode() for text in texts]
    stops = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = stops - np.array([len(part) for part in parts], np.int64)
    return np.frombuffer(b"".join(parts), np.uint8).copy(), np.stack([starts, stops], axis=1).reshape(-1, 2)


@dataclass(frozen=True)
class RowFormat:
    """The form of rows. term: writes any one term; forms: the same as tables.

    prefixes: the texts before the cells of each column; cell_end: after each cell; opening, between, closing: around a
    row and between its cells; separator: between rows; head, tail: around all; leaves_out: an unbound cell is left out
    together with the texts around it."""

    head: str
    prefixes: Sequence[str]
    term: Cell
    forms: Forms = field(repr=False)
    leaves_out: bool
    cell_end: str
    opening: str
    between: str
    closing: str
    separator: str
    tail: str

    @cached_property
    def _frame(self) -> tuple[UInt8Array, Int64Array, UInt8Array, Int64Array]:
        frame = packed([self.opening, self.between, self.cell_end, self.closing, self.separator])
        return *packed(self.prefixes), *frame

    def rows(self, columns: Sequence[Int64Array], count: int, reader: Utf8Reader) -> UInt8Array:
        """Write some rows, in UTF-8: uint8[n_bytes]. columns[i] : int64[count]. Raises DataError (a character that the
        format cannot hold)."""
        if 0 < count * len(columns) <= FEW_CELLS:
            few = self._few_rows(columns, count, reader)
            if few is not None:
                return few
        places, cells, starts, sizes = self._cells(columns, count, reader)
        written: UInt8Array = kernels.write_rows(places, cells, starts, sizes, *self._frame, self.leaves_out)
        return written

    def _few_rows(self, columns: Sequence[Int64Array], count: int, reader: Utf8Reader) -> UInt8Array | None:
        """Write few rows by one call; None if the tables cannot write a term."""
        cells = np.concatenate(columns).tolist()
        distinct = dict.fromkeys(cells)
        distinct.pop(UNBOUND, None)
        numbers = dict(zip(distinct, range(len(distinct)), strict=True))
        places = np.array([numbers.get(cell, len(numbers)) for cell in cells], np.int64).reshape(len(columns), count)
        text, offsets = reader.gather(np.array(list(numbers), np.int64))
        written, is_whole = kernels.write_few(places, text, offsets, *self.forms.tables, *self._frame, self.leaves_out)
        return written if is_whole else None

    def _cells(
        self, columns: Sequence[Int64Array], count: int, reader: Utf8Reader
    ) -> tuple[Int64Array, UInt8Array, Int64Array, Int64Array]:
        """Write each distinct term once: (number of each cell's term, their texts, where each starts, its size)."""
        flat = np.concatenate(columns) if columns else np.empty(0, np.int64)
        places, firsts = numbered([flat], len(flat))
        distinct = flat[firsts]
        bound = np.flatnonzero(distinct != UNBOUND)
        starts, sizes = np.full(len(distinct), -1, np.int64), np.zeros(len(distinct), np.int64)
        cells, starts[bound], sizes[bound] = _written(distinct[bound], reader, self.forms, self.term)
        return places.reshape(len(columns), count), cells, starts, sizes


def _written(
    ids: Int64Array, reader: Utf8Reader, forms: Forms, term: Cell
) -> tuple[UInt8Array, Int64Array, Int64Array]:
    """Write each term once: their texts, where each starts, its size."""
    cells, ends, odd = _by_tables(ids, reader, forms, term)
    starts = ends[:-1].copy()
    sizes = ends[1:] - starts
    if odd:
        more, places = packed(list(odd.values()))
        rows = list(odd)
        starts[rows], sizes[rows] = len(cells) + places[:, 0], places[:, 1] - places[:, 0]
        cells = np.concatenate((cells, more))
    return cells, starts, sizes


def written_terms(ids: Int64Array, reader: Utf8Reader, forms: Forms, term: Cell) -> tuple[UInt8Array, Int64Array]:
    """Write each term once, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""
    cells, ends, odd = _by_tables(ids, reader, forms, term)
    if not odd:
        return cells, ends
    bounds = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    texts = [odd[row] if row in odd else cells[a:b].tobytes().decode() for row, (a, b) in enumerate(bounds)]
    return join_texts(texts)


def _by_tables(
    ids: Int64Array, reader: Utf8Reader, forms: Forms, term: Cell
) -> tuple[UInt8Array, Int64Array, dict[int, str]]:
    """Write terms by the tables: their texts one after the other, where each starts and the last one ends, and the
    texts of those that do not fit into the tables, by row."""
    text, offsets = reader.gather(ids)
    cells, ends, is_odd = kernels.write_terms(text, offsets, *forms.tables)
    if not is_odd.any():
        return cells, ends, {}
    rows = np.flatnonzero(is_odd)
    bounds = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
    texts = (term(text[start:stop].tobytes().decode()) for start, stop in bounds)
    return cells, ends, dict(zip(rows.tolist(), texts, strict=True))
