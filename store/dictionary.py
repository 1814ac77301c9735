"""Term id -> canonical form: the persistent dictionary of the stored graph, and the transient one of the slices.

Chunks of entries and an open-addressing id index in arrays; no Python object per term.

* One text per id, for ever in a Dictionary, while it is referred to in a TransientDictionary: a second text for an id
  is refused, never stored and never ignored. TermRegistry gives it another id.
* One writer, many readers. Readers work on a DictionaryView. A view never changes: entries are only appended behind its
  count, and growing or rebuilding makes new arrays and leaves the old ones to the views that hold them.
* Beside its text an entry costs 12 bytes (id and offset) and 5 to 6.25 bytes of index: that is kept half to four fifths
  full by growing by a quarter, and text is never copied but for the newest chunk's. The old and the new index together
  stay below 24 bytes an entry as well.
* A TransientDictionary is rebuilt when more of its bytes are dead than alive, so that it holds at most about twice what
  is referred to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from store import dictionary_kernels as kernels
from store.dictionary_kernels import CHUNK_BITS, CHUNK_ENTRIES
from store.dtypes import BoolArray, Int32Array, Int64Array, UInt8Array
from store.encoded import TermTable
from store.term_ids import DATATYPE_NAMES, DATATYPES, is_inlined
from wukongs.errors import DataError

UInt32Array = npt.NDArray[np.uint32]
_Arrays = tuple[npt.NDArray[Any], ...]

_SLOTS_MIN = 1 << 10
_TEXT_SIZE_MIN = 1 << 12
_TEXT_SIZE_MAX = (1 << 32) - 1
_REBUILD_BYTES_MIN = 1 << 16
_ONE_REF: Int32Array = np.empty(0, np.int32)
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
    """What a reader holds: the arrays of a dictionary as they were, with the number of its entries."""

    chunks: Int64Array
    slots: UInt32Array
    number_bits: int
    count: int
    owners: tuple[_Arrays, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return self.count

    def find(self, ids: Int64Array) -> Int64Array:
        """Return the entries of ids, int64[n], -1 for those that are inlined or unknown."""
        entries: Int64Array = kernels.find_entries(ids, self.chunks, self.slots, self.number_bits, self.count)
        return entries

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here; an inlined literal always has."""
        found: BoolArray = (self.find(ids) >= 0) | is_inlined(ids)
        return found

    def texts(self, ids: Int64Array, then: DictionaryView | None = None) -> list[str]:
        """Return the canonical forms of ids, looking in `then` for those that are not here.

        Raises KeyError, naming the id, for one that is unknown."""
        return split_texts(*self.gather(ids, then))

    def gather(self, ids: Int64Array, then: DictionaryView | None = None) -> tuple[UInt8Array, Int64Array]:
        """As texts, but as UTF-8 one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""
        more = then or EMPTY_VIEW
        with np.errstate(over="ignore"):
            text, offsets, unknown = kernels.gather_texts(
                np.ascontiguousarray(ids),
                DATATYPE_NAMES,
                DATATYPES,
                self.chunks,
                self.slots,
                self.number_bits,
                self.count,
                more.chunks,
                more.slots,
                more.number_bits,
                more.count,
            )
        if unknown >= 0:
            raise KeyError(f"term id {ids[unknown]} is unknown to the dictionary")
        return text, offsets

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if the id is unknown."""
        data = text.encode()
        asked = np.array([term], np.int64), np.array([0, len(data)], np.int64), np.frombuffer(data, np.uint8)
        if term <= 0 or term & 1:
            return None
        status = int(kernels.compare_terms(*asked, self.chunks, self.slots, self.number_bits, self.count)[0])
        return None if status == kernels.ADDED else status == kernels.EQUAL


EMPTY_VIEW = DictionaryView(np.zeros((1, kernels.CHUNK_WIDTH), np.int64), np.zeros(1, np.uint32), 1, 0)


class _Tables:
    """The arrays that a writer appends to, and their growth."""

    def __init__(self, counted: bool) -> None:
        self._counted = counted
        self._reset(_SLOTS_MIN)
        self._publish()

    def _reset(self, slot_count: int) -> None:
        self._numbers = np.zeros(kernels.NUMBERS, np.int64)
        self._chunks: list[_Chunk] = []
        self._rows: Int64Array = np.empty((0, kernels.CHUNK_WIDTH), np.int64)
        self._owners: tuple[_Arrays, ...] = ()
        self._append_chunk()
        self._make_slots(slot_count)

    def _make_slots(self, slot_count: int) -> None:
        assert slot_count < 1 << 31, f"{slot_count} slots: entry numbers have at most 31 bits"
        slots = np.zeros(slot_count, np.uint32)
        self._count_max = slot_count * 4 // 5
        self._number_bits = self._count_max.bit_length()
        kernels.enter_slots(self._rows, int(self._numbers[kernels.N_COUNT]), slots, self._number_bits)
        self._slots: UInt32Array = slots

    def _append_chunk(self) -> None:
        size = _TEXT_SIZE_MIN
        if self._chunks:
            last = self._chunks[-1]
            size = int(last.offsets[-1])
            last.text = last.text[:size].copy()
            self._note_newest(len(self._chunks) - 1)
        self._chunks.append(_Chunk(min(size + size // 8 + _TEXT_SIZE_MIN, _TEXT_SIZE_MAX), self._counted))
        self._note_newest(len(self._chunks) - 1)

    def _note_newest(self, number: int) -> None:
        """Make tables with new arrays of the newest chunk; those of the other chunks stay what they were."""
        newest = self._chunks[number]
        self._rows = np.concatenate((self._rows[:number], np.array([newest.row()], np.int64)))
        self._owners = (*self._owners[:number], newest.arrays())

    def _make_room(self, text_size: int) -> None:
        """Make room for one more entry with text_size bytes, in new arrays where the old ones are too small."""
        count = int(self._numbers[kernels.N_COUNT])
        if count == self._count_max:
            self._make_slots(len(self._slots) * 5 // 4)
        if count == len(self._chunks) * CHUNK_ENTRIES:
            self._append_chunk()
        newest = self._chunks[-1]
        used = int(newest.offsets[count % CHUNK_ENTRIES])
        if used + text_size > len(newest.text):
            if used + text_size > _TEXT_SIZE_MAX:
                raise DataError(
                    f"{CHUNK_ENTRIES} terms in a row have more than 4 GiB of text: store large texts elsewhere"
                )
            text = np.empty(min(max(2 * len(newest.text), used + text_size), _TEXT_SIZE_MAX), np.uint8)
            text[:used] = newest.text[:used]
            newest.text = text
            self._note_newest(len(self._chunks) - 1)

    def _append(self, terms: TermTable, refs: Int32Array = _ONE_REF) -> npt.NDArray[np.int8]:
        status = np.zeros(len(terms), np.int8)
        done = 0
        while True:
            done = kernels.add_terms(
                done,
                terms.ids,
                terms.offsets,
                terms.text,
                refs,
                self._rows,
                self._slots,
                self._number_bits,
                min(self._count_max, len(self._chunks) * CHUNK_ENTRIES),
                self._numbers,
                status,
            )
            if done == len(terms):
                break
            self._make_room(int(terms.offsets[done + 1] - terms.offsets[done]))
        return status

    def _add(self, terms: TermTable) -> npt.NDArray[np.int8]:
        status = self._append(terms)
        self._publish()
        return status

    def _publish(self) -> None:
        """Let readers see what was written: the count last."""
        count = int(self._numbers[kernels.N_COUNT])
        self._published = DictionaryView(self._rows, self._slots, self._number_bits, count, self._owners)

    def compare(self, terms: TermTable) -> npt.NDArray[np.int8]:
        """Say of each term what adding it would do: ADDED, EQUAL, REFUSED or REFUSED_BY_DEAD (only transient)."""
        view = self._published
        status: npt.NDArray[np.int8] = kernels.compare_terms(
            terms.ids, terms.offsets, terms.text, view.chunks, view.slots, view.number_bits, view.count
        )
        return status

    def view(self) -> DictionaryView:
        """Return an immutable reader of what is here now."""
        return self._published

    @property
    def index_bytes(self) -> int:
        """Bytes of the id index."""
        return self._slots.nbytes

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, room for growth included."""
        return self.index_bytes + sum(array.nbytes for arrays in self._owners for array in arrays)


class Dictionary(_Tables):
    """The strings of the stored graph. Nothing is ever removed."""

    def __init__(self) -> None:
        super().__init__(counted=False)

    def __len__(self) -> int:
        return len(self.view())

    def add(self, terms: TermTable) -> Int64Array:
        """Add terms, or confirm that they are there with the same text.

        Returns the places in `terms` of those that were refused: another text has their id."""
        return np.flatnonzero(self._add(terms) >= kernels.REFUSED)

    @classmethod
    def of(cls, tables: Iterable[TermTable]) -> Dictionary:
        """Return a dictionary with the entries of these tables, numbered in this order: what `entries` gave.

        Raises ValueError, with the id, for one that occurs twice."""
        dictionary = cls()
        for terms in tables:
            twice = np.flatnonzero(dictionary._add(terms) != kernels.ADDED)
            if len(twice):
                raise ValueError(f"term id {terms.ids[twice[0]]} is in the dictionary twice")
        return dictionary

    def entries(self, start: int, stop: int) -> TermTable:
        """Return the entries [start, stop), numbered in the order in which they were added; offsets begin at 0.

        Raises IndexError if there are not that many."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"entries [{start}, {stop}) of a dictionary of {len(self)}")
        ids, sizes, texts = [_NO_IDS], [_NO_IDS], [_NO_TEXT]
        while start < stop:
            chunk, place = self._chunks[start >> CHUNK_BITS], start % CHUNK_ENTRIES
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

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if the id is unknown."""
        return self.view().text_equals(term, text)


class TransientDictionary(_Tables):
    """The strings of terms that only live in slices, with a count of the references to each."""

    def __init__(self) -> None:
        super().__init__(counted=True)

    def __len__(self) -> int:
        return int(self._numbers[kernels.N_COUNT] - self._numbers[kernels.N_DEAD])

    def add(self, terms: TermTable) -> Int64Array:
        """Add terms, or one more reference to those that are there with the same text.

        Returns the places in `terms` of those that were refused: another text, still referred to, has their id."""
        status = self._add(terms)
        blocked = np.flatnonzero(status == kernels.REFUSED_BY_DEAD)
        if len(blocked):
            # Ids stay distinct in the arrays: what is dead has to leave before another text can have its id.
            self._rebuild()
            status[blocked] = self._add(terms.take(blocked))
        return np.flatnonzero(status >= kernels.REFUSED)

    def release(self, ids: Int64Array) -> None:
        """Give back one reference for each id. A term without any is gone, except for views taken before."""
        bad = kernels.release_terms(ids, self._rows, self._slots, self._number_bits, self._numbers)
        assert bad < 0, f"term id {ids[bad]} released more often than added"
        dead_bytes = int(self._numbers[kernels.N_DEAD_BYTES])
        if dead_bytes > max(int(self._numbers[kernels.N_BYTES]) - dead_bytes, _REBUILD_BYTES_MIN):
            self._rebuild()

    def _rebuild(self) -> None:
        chunks, count = self._chunks, int(self._numbers[kernels.N_COUNT])
        self._reset(max(_SLOTS_MIN, 2 * len(self)))
        for number, chunk in enumerate(chunks):
            held = min(count - number * CHUNK_ENTRIES, CHUNK_ENTRIES)
            *table, refs = kernels.take_live(chunk.ids, chunk.offsets, chunk.text, chunk.refs, held)
            self._append(TermTable(*table), refs)
        self._publish()

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical forms of ids, inlined ones too. Raises KeyError, naming the id, for an unknown one."""
        gone = np.flatnonzero(~self.contains(ids))
        if len(gone):
            raise KeyError(f"term id {ids[gone[0]]} is unknown to the dictionary")
        return self.view().texts(ids)

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here that is referred to; an inlined literal always has."""
        view = self._published
        found: BoolArray = kernels.flag_live(view.find(ids), view.chunks) | is_inlined(ids)
        return found

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if no text with this id is referred to."""
        return self.view().text_equals(term, text) if self.contains(np.array([term], np.int64))[0] else None
