"""Term id -> canonical form: the persistent dictionary of the stored graph, and the transient one of the slices.

Byte arena, offsets and an open-addressing id index in arrays; no Python object per term.

* One text per id, for ever in a Dictionary, while it is referred to in a TransientDictionary: a second text for an id
  is refused, never stored and never ignored. TermRegistry gives it another id.
* One writer, many readers. Readers work on a DictionaryView. A view never changes: entries are only appended behind its
  count, and growing or rebuilding makes new arrays and leaves the old ones to the views that hold them.
* Growth doubles, so that adding costs O(bytes) amortised. A TransientDictionary is rebuilt when more of its bytes are
  dead than alive, so that it holds at most about twice what is referred to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from store import dictionary_kernels as kernels
from store.dtypes import BoolArray, Int32Array, Int64Array, UInt8Array
from store.encoded import TermTable
from store.slot_kernels import fill_slots
from store.term_ids import DATATYPE_NAMES, DATATYPES, is_inlined

_FIRST_SLOT_BITS = 10
_REBUILD_BYTES_MIN = 1 << 16
_NO_REFS: Int32Array = np.empty(0, np.int32)


def split_texts(text: UInt8Array, offsets: Int64Array) -> list[str]:
    """Return the UTF-8 pieces text[offsets[i]:offsets[i + 1]] as strings."""
    data = text.tobytes()
    bounds = offsets.tolist()
    if data.isascii():
        whole = data.decode("ascii")
        return [whole[start:stop] for start, stop in pairwise(bounds)]
    return [data[start:stop].decode() for start, stop in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class DictionaryView:
    """What a reader holds: the arrays of a dictionary as they were, with the number of its entries."""

    ids: Int64Array
    offsets: Int64Array
    text: UInt8Array
    slots: Int32Array
    count: int

    def __len__(self) -> int:
        return self.count

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here; an inlined literal always has."""
        found: BoolArray = kernels.find_entries(ids, self.ids, self.slots, self.count) >= 0
        return found | is_inlined(ids)

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
                self.ids,
                self.offsets,
                self.text,
                self.slots,
                self.count,
                more.ids,
                more.offsets,
                more.text,
                more.slots,
                more.count,
            )
        if unknown >= 0:
            raise KeyError(f"term id {ids[unknown]} is unknown to the dictionary")
        return text, offsets

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if the id is unknown."""
        entry = int(kernels.find_entries(np.array([term], np.int64), self.ids, self.slots, self.count)[0])
        if entry < 0:
            return None
        return self.text[self.offsets[entry] : self.offsets[entry + 1]].tobytes() == text.encode()


EMPTY_VIEW = DictionaryView(
    np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.uint8), np.zeros(1, np.int32), 0
)


class _Tables:
    """The arrays that a writer appends to, and their growth."""

    def __init__(self, counted: bool) -> None:
        self._counted = counted
        self._numbers = np.zeros(3, np.int64)
        self._allocate(1 << _FIRST_SLOT_BITS, 1 << 15)
        self._offsets[0] = 0
        self._publish()

    def _allocate(self, slot_count: int, text_size: int) -> None:
        assert slot_count <= 1 << 32, f"{slot_count} slots: entry numbers are int32"
        capacity = slot_count // 2
        self._ids: Int64Array = np.empty(capacity, np.int64)
        self._offsets: Int64Array = np.empty(capacity + 1, np.int64)
        self._text: UInt8Array = np.empty(text_size, np.uint8)
        self._slots: Int32Array = np.zeros(slot_count, np.int32)
        self._refs: Int32Array = np.zeros(capacity, np.int32) if self._counted else _NO_REFS

    def _reserve(self, terms: TermTable) -> None:
        """Make room for all terms of a table, in new arrays where the old ones are too small."""
        count = int(self._numbers[kernels.N_COUNT])
        used = int(self._offsets[count])
        if used + len(terms.text) > len(self._text):
            text = np.empty(max(2 * len(self._text), used + len(terms.text)), np.uint8)
            text[:used] = self._text[:used]
            self._text = text
        if count + len(terms) > len(self._ids):
            ids, offsets, text, refs = self._ids, self._offsets, self._text, self._refs
            self._allocate(1 << (2 * (count + len(terms)) - 1).bit_length(), 0)
            self._ids[:count], self._offsets[: count + 1], self._text = ids[:count], offsets[: count + 1], text
            self._refs[:count] = refs[:count]
            fill_slots(self._ids, count, self._slots)

    def _add(self, terms: TermTable) -> npt.NDArray[np.int8]:
        self._reserve(terms)
        status: npt.NDArray[np.int8] = kernels.add_terms(
            terms.ids,
            terms.offsets,
            terms.text,
            self._ids,
            self._offsets,
            self._text,
            self._slots,
            self._refs,
            self._numbers,
        )
        self._publish()
        return status

    def _publish(self) -> None:
        """Let readers see what was written: the count last."""
        count = int(self._numbers[kernels.N_COUNT])
        view = DictionaryView(self._ids, self._offsets, self._text, self._slots, count)
        self._published = view, self._refs

    def compare(self, terms: TermTable) -> npt.NDArray[np.int8]:
        """Say of each term what adding it would do: ADDED, EQUAL, REFUSED or REFUSED_BY_DEAD (only transient)."""
        status: npt.NDArray[np.int8] = kernels.compare_terms(
            terms.ids,
            terms.offsets,
            terms.text,
            self._ids,
            self._offsets,
            self._text,
            self._slots,
            self._refs,
            int(self._numbers[kernels.N_COUNT]),
        )
        return status

    def view(self) -> DictionaryView:
        """Return an immutable reader of what is here now."""
        return self._published[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, room for growth included."""
        arrays = (self._ids, self._offsets, self._text, self._slots, self._refs)
        return sum(array.nbytes for array in arrays)


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
        view = self.view()
        if not 0 <= start <= stop <= len(view):
            raise IndexError(f"entries [{start}, {stop}) of a dictionary of {len(view)}")
        offsets = view.offsets[start : stop + 1]
        return TermTable(view.ids[start:stop], offsets - offsets[0], view.text[offsets[0] : offsets[-1]])

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
        bad = kernels.release_terms(ids, self._ids, self._offsets, self._slots, self._refs, self._numbers)
        assert bad < 0, f"term id {ids[bad]} released more often than added"
        dead_bytes = int(self._numbers[kernels.N_DEAD_BYTES])
        all_bytes = int(self._offsets[self._numbers[kernels.N_COUNT]])
        if dead_bytes > max(all_bytes - dead_bytes, _REBUILD_BYTES_MIN):
            self._rebuild()

    def _rebuild(self) -> None:
        ids, offsets, text, refs = self._ids, self._offsets, self._text, self._refs
        count = int(self._numbers[kernels.N_COUNT])
        live_bytes = int(offsets[count] - self._numbers[kernels.N_DEAD_BYTES])
        slot_count = max(1 << _FIRST_SLOT_BITS, 1 << (3 * len(self)).bit_length())
        self._allocate(slot_count, live_bytes + live_bytes // 2 + _REBUILD_BYTES_MIN)
        kept = kernels.copy_live(ids, offsets, text, refs, count, self._ids, self._offsets, self._text, self._refs)
        self._numbers[:] = (kept, 0, 0)
        fill_slots(self._ids, kept, self._slots)
        self._publish()

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical forms of ids, inlined ones too. Raises KeyError, naming the id, for an unknown one."""
        gone = np.flatnonzero(~self.contains(ids))
        if len(gone):
            raise KeyError(f"term id {ids[gone[0]]} is unknown to the dictionary")
        return self.view().texts(ids)

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here that is referred to; an inlined literal always has."""
        view, refs = self._published
        entries = kernels.find_entries(ids, view.ids, view.slots, view.count)
        found: BoolArray = ((entries >= 0) & (refs[entries] > 0)) | is_inlined(ids)
        return found

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if no text with this id is referred to."""
        if not self.contains(np.array([term], np.int64))[0]:
            return None
        return self.view().text_equals(term, text)
