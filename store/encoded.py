"""Encoded tuples with the strings of their terms. The encoder makes them, and they travel to the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from wukongs.store.dtypes import CLASH_FIRST, BoolArray, Int64Array, UInt8Array
from wukongs.store.slot_kernels import fill_slots, find_ids, take_texts

SHOWN_MAX = 200
"""Characters of a text that messages show."""


@dataclass(frozen=True, slots=True)
class TermTable:
    """Terms with their canonical forms: term i is ids[i], its UTF-8 text is text[offsets[i]:offsets[i + 1]].

    ids : int64[n], distinct, no inlined literals; offsets : int64[n + 1]; text : uint8[n_bytes].
    """

    ids: Int64Array
    offsets: Int64Array
    text: UInt8Array

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, ids: Int64Array, texts: Sequence[bytes]) -> TermTable:
        """Return the terms with these ids and canonical forms in UTF-8."""
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
        return cls(ids, offsets, np.frombuffer(b"".join(texts), np.uint8))

    @property
    def is_divided(self) -> bool:
        """Whether the offsets divide the text among the terms. Kernels trust the offsets, so columns from others are
        checked."""
        offsets = self.offsets
        is_framed = len(offsets) == len(self) + 1 and offsets[0] == 0 and offsets[-1] == len(self.text)
        return bool(is_framed and (offsets[1:] >= offsets[:-1]).all())  # a difference may overflow

    def find(self, text: str) -> int | None:
        """Return the number of the term with this text, None if there is none."""
        wanted, data = text.encode(), self.text.tobytes()
        at = data.find(wanted)
        while at >= 0:
            row = int(np.searchsorted(self.offsets, at))
            if self.offsets[row] == at and self.offsets[row + 1] == at + len(wanted):
                return row
            at = data.find(wanted, at + 1)
        return None

    def take(self, rows: Int64Array) -> TermTable:
        """Return the terms with these numbers, in this order."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.offsets[rows + 1] - self.offsets[rows], out=offsets[1:])
        text = np.empty(offsets[-1], np.uint8)
        take_texts(self.text, self.offsets, rows, offsets, text)
        return TermTable(self.ids[rows], offsets, text)

    def part(self, first: int, end: int) -> TermTable:
        """Return the terms with numbers first <= i < end; no array is copied but the offsets."""
        offsets = self.offsets[first : end + 1]
        return TermTable(self.ids[first:end], offsets - offsets[0], self.text[offsets[0] : offsets[-1]])

    @classmethod
    def joined(cls, tables: Sequence[TermTable]) -> TermTable:
        """Return the terms of tables one after the other. A term of several tables is there as often."""
        starts = accumulate((len(table.text) for table in tables), initial=0)
        ends = [table.offsets[1:] + start for table, start in zip(tables, starts, strict=False)]
        offsets: Int64Array = np.concatenate([np.zeros(1, np.int64), *ends])
        ids = np.concatenate([np.empty(0, np.int64), *(table.ids for table in tables)])
        return cls(ids, offsets, np.concatenate([np.empty(0, np.uint8), *(table.text for table in tables)]))

    def texts(self) -> list[str]:
        """Return the canonical forms as strings."""
        bounds = self.offsets.tolist()
        data = self.text.tobytes()
        return [data[start:stop].decode() for start, stop in pairwise(bounds)]

    @staticmethod
    def empty() -> TermTable:
        return TermTable(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.uint8))


NO_SIGNS: BoolArray = np.empty(0, np.bool_)
"""The signs of tuples that all come."""


def signs(goes: BoolArray) -> BoolArray:
    """Return which tuples go, as Encoded.goes: empty if none does."""
    return goes if goes.any() else NO_SIGNS


def signs_of(goes: BoolArray, count: int) -> BoolArray:
    """Return the signs of so many tuples, one for each."""
    return goes if len(goes) else np.zeros(count, np.bool_)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Tuples as columns of term ids, in the order in which they came, and the table of their distinct terms.

    subjects, predicates, objects : int64[n]; graphs : int64[n], UNBOUND where the tuple has no graph term of its own;
    timestamps : int64[n] in milliseconds, or empty for data without time;
    terms : the distinct terms but for inlined literals;
    clashes : terms whose id another text in `terms` had first. The columns hold CLASH_FIRST - k for clashes term k,
    until TermRegistry.confirm has given it an id of its own. `clashes` stays with tuples that are cut or sent.
    goes : bool[n], which tuples are retractions: triples that the stored graph loses; empty if none is (see signs).
    """

    subjects: Int64Array
    predicates: Int64Array
    objects: Int64Array
    graphs: Int64Array
    timestamps: Int64Array
    terms: TermTable
    clashes: TermTable = field(default_factory=TermTable.empty)
    goes: BoolArray = field(default_factory=lambda: NO_SIGNS)

    def __len__(self) -> int:
        return len(self.subjects)

    def codes_of(self, texts: Sequence[str]) -> Int64Array:
        """Return the values in the columns of the terms with these canonical forms, none of them an inlined literal. A
        term that stands nowhere has no value. Texts are compared, not ids: two texts may want one id."""
        found = []
        for text in texts:
            row, clash = self.terms.find(text), self.clashes.find(text)
            if row is not None:
                found.append(int(self.terms.ids[row]))
            elif clash is not None:
                found.append(CLASH_FIRST - clash)
        return np.array(found, np.int64)


def replace_ids(column: Int64Array, old: Int64Array, new: Int64Array) -> Int64Array:
    """Return a column in which new[i] stands wherever old[i] stood; `old` are distinct."""
    if not len(old):
        return column
    order = np.argsort(old)
    places = np.minimum(np.searchsorted(old, column, sorter=order), len(old) - 1)
    found = order[places]
    return np.where(old[found] == column, new[found], column)


class TermRows:
    """Finds the terms of a table by their ids. ids : int64[n]"""

    def __init__(self, ids: Int64Array) -> None:
        self._ids = ids
        self._slots = np.zeros(1 << (2 * len(ids)).bit_length(), np.int32)
        fill_slots(ids, len(ids), self._slots)

    def of(self, column: Int64Array) -> Int64Array:
        """Return the number of the first term with each id, -1 for an id without text there (inlined, unbound)."""
        found = np.empty(len(column), np.int64)
        find_ids(self._ids, self._slots, column, found)
        return found


class TermCutter:
    """Cuts rows out of encoded tuples, each cut with just the texts that its rows need.

    The clashes, which are next to never there, go along whole: the codes in the columns count them.
    """

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        terms = TermRows(encoded.terms.ids)
        columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs)
        self._places = [terms.of(column) for column in columns]

    def cut(self, rows: Int64Array) -> Encoded:
        """Return the rows with these numbers, in this order."""
        encoded, term_count = self._encoded, len(self._encoded.terms)
        used = np.zeros(term_count + 1, np.bool_)
        for places in self._places:
            used[places[rows]] = True  # that of -1 is the last one
        terms = encoded.terms.take(np.flatnonzero(used[:term_count]))
        times = encoded.timestamps[rows] if len(encoded.timestamps) else encoded.timestamps
        return Encoded(
            encoded.subjects[rows],
            encoded.predicates[rows],
            encoded.objects[rows],
            encoded.graphs[rows],
            times,
            terms,
            encoded.clashes,
            signs(encoded.goes[rows]) if len(encoded.goes) else NO_SIGNS,
        )


NOT_UTF8 = "this is not valid UTF-8"


def utf8_fault(data: bytes) -> tuple[int, str] | None:
    """Return the place of the first byte that is not UTF-8 and the reason for a message; None if there is none."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start, f"{NOT_UTF8}: byte 0x{data[error.start]:02X}"
    return None


def cut(text: str) -> str:
    """Return a text, or the beginning of a long one, for a message."""
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


@dataclass(frozen=True, slots=True)
class MalformedLine:
    """A line that was set aside: its number (from 1), the column (from 1) where reading failed, why, and its text."""

    line: int
    column: int
    reason: str
    text: str

    @property
    def shown(self) -> str:
        """Its text as messages have it."""
        return cut(self.text)
