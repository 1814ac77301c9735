"""Term id -> canonical form: the persistent dictionary of the stored graph. See store/transient_dictionary.py as well.

Chunks of entries and an open-addressing id index in arrays; no Python object per term.

* One text per id, for ever: a second text for an id is refused, never stored and never ignored. TermRegistry gives it
  another id.
* One writer, many readers. Readers work on a DictionaryView. A view never changes: entries are only appended behind its
  count, and growing makes new arrays and leaves the old ones to the views that hold them.
* Beside its text an entry costs 12 bytes (id and offset) and 5 to 6.25 bytes of index. The index grows by a quarter, so
  it is half to four fifths full. Text is never copied but for the newest chunk's. While the index grows, the old and
  the new one together stay below 24 bytes an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from wukongs.errors import DataError
from wukongs.store import dictionary_kernels as kernels
from wukongs.store import dictionary_write_kernels as write_kernels
from wukongs.store.dictionary_kernels import CHUNK_BITS, CHUNK_ENTRIES
from wukongs.store.dictionary_write_kernels import ADDED, EQUAL, N_COUNT, NUMBERS, REFUSED
from wukongs.store.dtypes import HASH_SEED, BoolArray, Int32Array, Int64Array, UInt8Array
from wukongs.store.encoded import TermTable
from wukongs.store.jit import wrapping
from wukongs.store.term_ids import DATATYPE_NAMES, DATATYPES, hash_mask, is_inlined, readonly_bytes

UInt32Array = npt.NDArray[np.uint32]
StatusArray = npt.NDArray[np.int8]
_Arrays = tuple[npt.NDArray[Any], ...]

_SLOTS_MIN = 1 << 10
_TEXT_SIZE_MIN = 1 << 12
_TEXT_SIZE_MAX = (1 << 32) - 1
ONE_REF: Int32Array = np.empty(0, np.int32)
"""Stands for one reference to each term."""
_NO_IDS: Int64Array = np.empty(0, np.int64)
_NO_TEXT: UInt8Array = np.empty(0, np.uint8)


def split_texts(text: UInt8Array, offsets: Int64Array) -> list[str]:
    """Return the UTF-8 pieces text[offsets[i]:offsets[i + 1]] as strings."""
    data = text.tobytes()
    bounds = offsets.tolist()
    if data.isascii():
        whole = data.decode("ascii")
        return [whole[start:stop] for start, stop in pairwise(bounds)]
    return [data[start:stop].decode() for start, stop in pairwise(bounds)]


def join_texts(texts: Sequence[str]) -> tuple[UInt8Array, Int64Array]:
    """Return strings as UTF-8 one after the other. split_texts takes them apart."""
    parts = [text.encode() for text in texts]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.frombuffer(b"".join(parts), np.uint8).copy(), offsets


class _Chunk:
    """The arrays of CHUNK_ENTRIES entries: see store/dictionary_kernels.py."""

    __slots__ = ("ids", "offsets", "refs", "text")

    def __init__(self, text_size: int, counted: bool) -> None:
        self.ids: Int64Array = np.empty(CHUNK_ENTRIES, np.int64)
        self.offsets: UInt32Array = np.empty(CHUNK_ENTRIES + 1, np.uint32)
        self.offsets[0] = 0
        self.text: UInt8Array = np.empty(text_size, np.uint8)
        self.refs: Int32Array | None = np.empty(CHUNK_ENTRIES, np.int32) if counted else None

    def arrays(self) -> _Arrays:
        """Return all arrays; they keep the addresses of `row` good."""
        counts = () if self.refs is None else (self.refs,)
        return (self.ids, self.offsets, self.text, *counts)

    def row(self) -> tuple[int, ...]:
        """Return the chunk's row in the table of addresses."""
        refs = 0 if self.refs is None else self.refs.ctypes.data
        return self.ids.ctypes.data, self.offsets.ctypes.data, self.text.ctypes.data, len(self.text), refs


@dataclass(frozen=True, slots=True)
class DictionaryView:
    """A reader's view: the arrays of a dictionary as they were, with the number of its entries.

    older : the view to ask for terms that are not here, if there is one."""

    chunks: Int64Array
    slots: UInt32Array
    number_bits: int
    count: int
    owners: tuple[_Arrays, ...] = field(default=(), repr=False)
    older: DictionaryView | None = None

    def __len__(self) -> int:
        return self.count

    @property
    def arrays(self) -> tuple[Int64Array, UInt32Array, int, int]:
        """The arguments that a kernel reads."""
        return self.chunks, self.slots, self.number_bits, self.count

    def find(self, ids: Int64Array) -> Int64Array:
        """Return the entries of ids, int64[n], -1 for those that are inlined or not here; `older` is not asked."""
        entries: Int64Array = kernels.find_entries(ids, *self.arrays)
        return entries

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text; an inlined literal always has."""
        found: BoolArray = (self.find(ids) >= 0) | is_inlined(ids)
        return found if self.older is None else found | self.older.contains(ids)

    def texts(self, ids: Int64Array, then: DictionaryView | None = None) -> list[str]:
        """Return the canonical forms of ids, looking in `then` for those that are not here.

        Raises KeyError, naming the id, for one that is unknown."""
        return split_texts(*self.gather(ids, then))

    def gather(self, ids: Int64Array, then: DictionaryView | None = None) -> tuple[UInt8Array, Int64Array]:
        """Return the texts of ids as UTF-8, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""
        more = [view for view in (self.older, then, then and then.older) if view is not None]
        assert len(more) <= 2, f"{1 + len(more)} views"
        second, third = (*more, EMPTY_VIEW, EMPTY_VIEW)[:2]
        with wrapping():
            text, offsets, unknown = kernels.gather_texts(
                np.ascontiguousarray(ids), DATATYPE_NAMES, DATATYPES, self.arrays, second.arrays, third.arrays
            )
        if unknown >= 0:
            raise KeyError(f"term id {ids[unknown]} is unknown to the dictionary")
        return text, offsets

    def compare(self, terms: TermTable, rows: Int64Array | None = None) -> StatusArray:
        """Say of each term, or of those in these rows, whether its id is unknown here (ADDED), has this text (EQUAL) or
        another (REFUSED)."""
        rows = np.arange(len(terms)) if rows is None else rows
        status: StatusArray = write_kernels.compare_terms(terms.ids, terms.offsets, terms.text, rows, *self.arrays)
        return status

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if the id is unknown."""
        alone = np.array([term], np.int64)
        if self.find(alone)[0] < 0:
            return None if self.older is None else self.older.text_equals(term, text)
        return bool(self.compare(TermTable.of(alone, [text.encode()]))[0] == EQUAL)


EMPTY_VIEW = DictionaryView(np.zeros((1, kernels.CHUNK_WIDTH), np.int64), np.zeros(1, np.uint32), 1, 0)


class DictionaryTables:
    """The arrays that a writer appends to, and their growth.

    counted : whether references are counted; room : the number of entries for which the index is made at first."""

    def __init__(self, counted: bool, room: int = 0) -> None:
        self._counted = counted
        self.numbers: Int64Array = np.zeros(NUMBERS, np.int64)
        self.chunks: list[_Chunk] = []
        self._rows: Int64Array = np.empty((0, kernels.CHUNK_WIDTH), np.int64)
        self._owners: tuple[_Arrays, ...] = ()
        self._append_chunk()
        self._make_slots(max(_SLOTS_MIN, room * 5 // 4 + 1))

    def _make_slots(self, slot_count: int) -> None:
        assert slot_count < 1 << 31, f"{slot_count} slots: entry numbers have at most 31 bits"
        slots = np.zeros(slot_count, np.uint32)
        self.count_max = slot_count * 4 // 5
        self._number_bits = self.count_max.bit_length()
        write_kernels.enter_slots(self._rows, self.count, slots, self._number_bits)
        self._slots: UInt32Array = slots

    def _append_chunk(self) -> None:
        size = _TEXT_SIZE_MIN
        if self.chunks:
            last = self.chunks[-1]
            size = int(last.offsets[-1])
            last.text = last.text[:size].copy()
            self._note_newest(len(self.chunks) - 1)
        self.chunks.append(_Chunk(min(size + size // 8 + _TEXT_SIZE_MIN, _TEXT_SIZE_MAX), self._counted))
        self._note_newest(len(self.chunks) - 1)

    def _note_newest(self, number: int) -> None:
        """Make tables with new arrays of the newest chunk; the arrays of other chunks stay."""
        newest = self.chunks[number]
        self._rows = np.concatenate((self._rows[:number], np.array([newest.row()], np.int64)))
        self._owners = (*self._owners[:number], newest.arrays())

    def _make_room(self, text_size: int) -> None:
        """Make room for one more entry with text_size bytes, in new arrays where the old ones are too small."""
        count = self.count
        if count == self.count_max:
            self._make_slots(len(self._slots) * 5 // 4)
        if count == len(self.chunks) * CHUNK_ENTRIES:
            self._append_chunk()
        newest = self.chunks[-1]
        used = int(newest.offsets[count % CHUNK_ENTRIES])
        if used + text_size > len(newest.text):
            if used + text_size > _TEXT_SIZE_MAX:
                raise DataError(
                    f"{CHUNK_ENTRIES} terms in a row have more than 4 GiB of text: store large texts elsewhere"
                )
            text = np.empty(min(max(2 * len(newest.text), used + text_size), _TEXT_SIZE_MAX), np.uint8)
            text[:used] = newest.text[:used]
            newest.text = text
            self._note_newest(len(self.chunks) - 1)

    def append(self, terms: TermTable, rows: Int64Array, refs: Int32Array = ONE_REF) -> StatusArray:
        """Add these rows of terms, with these references; return the status of each, see write_kernels.add_terms."""
        status = np.zeros(len(rows), np.int8)
        done = 0
        while True:
            done = write_kernels.add_terms(
                done,
                terms.ids,
                terms.offsets,
                terms.text,
                rows,
                refs,
                self._rows,
                self._slots,
                self._number_bits,
                min(self.count_max, len(self.chunks) * CHUNK_ENTRIES),
                self.numbers,
                status,
            )
            if done == len(rows):
                return status
            row = rows[done]
            self._make_room(int(terms.offsets[row + 1] - terms.offsets[row]))

    def compare(self, terms: TermTable, rows: Int64Array) -> StatusArray:
        """Say of each of these rows of terms what appending it would do."""
        status: StatusArray = write_kernels.compare_terms(
            terms.ids, terms.offsets, terms.text, rows, *self.arrays, self.count
        )
        return status

    def reader(self, older: DictionaryView | None = None) -> DictionaryView:
        """Return a view of what is here now."""
        return DictionaryView(*self.arrays, self.count, self._owners, older)

    @property
    def arrays(self) -> tuple[Int64Array, UInt32Array, int]:
        """The arguments that a kernel reads, but for the count of entries."""
        return self._rows, self._slots, self._number_bits

    @property
    def count(self) -> int:
        """How many entries there are, dead ones included."""
        return int(self.numbers[N_COUNT])

    @property
    def index_bytes(self) -> int:
        """Bytes of the id index."""
        return self._slots.nbytes

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, room for growth included."""
        return self.index_bytes + sum(array.nbytes for arrays in self._owners for array in arrays)


class Dictionary:
    """The strings of the stored graph. Nothing is ever removed. room : the number of terms to make room for at
    first."""

    def __init__(self, room: int = 0) -> None:
        self._tables = DictionaryTables(counted=False, room=room)
        self._published = self._tables.reader()

    def __len__(self) -> int:
        return len(self._published)

    def add(self, terms: TermTable, rows: Int64Array | None = None) -> Int64Array:
        """Add terms, or those in these rows, or confirm that they are there with the same text.

        Returns the rows that were refused, since another text has their id."""
        rows = np.arange(len(terms)) if rows is None else rows
        return rows[self._add(terms, rows) >= REFUSED]

    def _add(self, terms: TermTable, rows: Int64Array) -> StatusArray:
        status = self._tables.append(terms, rows)
        # Readers see what was written: the count last.
        self._published = self._tables.reader()
        return status

    def compare(self, terms: TermTable, rows: Int64Array | None = None) -> StatusArray:
        """Say of each of the terms, or of those in these rows, what adding it would do: ADDED, EQUAL or REFUSED."""
        return self._tables.compare(terms, np.arange(len(terms)) if rows is None else rows)

    @classmethod
    def of(cls, tables: Iterable[TermTable], room: int = 0) -> Dictionary:
        """Return a dictionary with the entries of these tables, numbered in this order. The tables are those that
        `entries` gave.

        room : how many they are, if known. Raises ValueError, with the id, for one that occurs twice."""
        dictionary = cls(room * 6 // 5)
        for terms in tables:
            twice = np.flatnonzero(dictionary._add(terms, np.arange(len(terms))) != ADDED)
            if len(twice):
                raise ValueError(f"term id {terms.ids[twice[0]]} is in the dictionary twice")
        return dictionary

    def end_within(self, start: int, stop: int, text_bytes_max: int) -> int:
        """Return up to where the entries from `start` on, before `stop`, have so much text at most: one entry at least.
        Texts are not read."""
        end, left = start, text_bytes_max
        while end < stop:
            place = end % CHUNK_ENTRIES
            last = min(place + stop - end, CHUNK_ENTRIES)
            bounds = self._tables.chunks[end >> CHUNK_BITS].offsets[place : last + 1].astype(np.int64)
            count = int(np.searchsorted(bounds, bounds[0] + left, "right")) - 1
            end, left = end + count, left - int(bounds[count] - bounds[0])
            if count < last - place:
                break
        return max(end, start + 1)

    def entries(self, start: int, stop: int) -> TermTable:
        """Return the entries [start, stop), numbered in the order in which they were added; offsets begin at 0.

        Raises IndexError if there are not that many."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"entries [{start}, {stop}) of a dictionary of {len(self)}")
        ids, sizes, texts = [_NO_IDS], [_NO_IDS], [_NO_TEXT]
        while start < stop:
            chunk, place = self._tables.chunks[start >> CHUNK_BITS], start % CHUNK_ENTRIES
            end = min(place + stop - start, CHUNK_ENTRIES)
            bounds = chunk.offsets[place : end + 1].astype(np.int64)
            ids.append(chunk.ids[place:end])
            sizes.append(np.diff(bounds))
            texts.append(chunk.text[bounds[0] : bounds[-1]])
            start += end - place
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes))))
        return TermTable(np.concatenate(ids), offsets, np.concatenate(texts))

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical forms of ids, inlined ones too. Raises KeyError, naming the id, for an unknown one."""
        return self.view().texts(ids)

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here; an inlined literal always has."""
        return self.view().contains(ids)

    def resolve(self, text: str, hash_bits: int) -> tuple[int, bool | None]:
        """Return the id of a canonical form by its hash, or inlined, and whether that has this text here; None if it is
        unknown."""
        data = readonly_bytes(text.encode())
        fixed = DATATYPE_NAMES, DATATYPES, np.uint64(HASH_SEED), hash_mask(hash_bits)
        view = self._published  # it keeps the texts that the kernel reads by address, though the writer may replace it
        with wrapping():
            term, status = write_kernels.compare_text(data, *fixed, *view.arrays)
        return int(term), None if status == ADDED else status == EQUAL

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if the id is unknown."""
        return self.view().text_equals(term, text)

    def view(self) -> DictionaryView:
        """Return an immutable reader of what is here now."""
        return self._published

    @property
    def index_bytes(self) -> int:
        """Bytes of the id index."""
        return self._tables.index_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, room for growth included."""
        return self._tables.size_bytes
