"""Term id -> canonical form for the terms that only live in slices, with a count of the references to each.

There are two generations of the dictionary's arrays. Terms are added to the young one. Live entries of the old one move
there in steps, dead entries stay behind, and then the old one is dropped.

* A term that is alive is alive in one generation. Adding one that the old generation has moves it with its references.
* Moving begins when more bytes of the young generation are dead than alive, or when its index is full. Each call that
  adds or releases n references then looks at 2 * n entries, however many there are, and at most that many move.
* The new generation has room for twice the live entries, and for all that the old one had. The old one is empty after
  half as many references as it has entries, so the young one is not full before.
* All entries held are at most about four times the entries that are referred to.
* One writer, many readers. Views never change, like those of a Dictionary: they keep entries that have died since.
  References do change: while a term is moved, all views have it dead. So a reader that finds it dead cannot be sure.
"""

from __future__ import annotations

import numpy as np

from wukongs.store import dictionary_kernels as kernels
from wukongs.store import dictionary_write_kernels as write_kernels
from wukongs.store.dictionary import DictionaryTables, DictionaryView, StatusArray
from wukongs.store.dictionary_kernels import CHUNK_ENTRIES
from wukongs.store.dictionary_write_kernels import (
    ADDED,
    EQUAL,
    N_BYTES,
    N_DEAD,
    N_DEAD_BYTES,
    REFUSED,
    REFUSED_BY_DEAD,
)
from wukongs.store.dtypes import BoolArray, Int64Array
from wukongs.store.encoded import TermTable
from wukongs.store.term_ids import is_inlined

_DEAD_BYTES_MIN = 1 << 16
_STEPS_PER_REFERENCE = 2


class TransientDictionary:
    """The strings of terms that only live in slices, with a count of the references to each."""

    def __init__(self) -> None:
        self._young = DictionaryTables(counted=True)
        self._old: DictionaryTables | None = None
        self._moved_to = 0
        self._publish()

    def __len__(self) -> int:
        old = self._old  # others ask while the writer lets go of it
        return _alive(self._young) + (0 if old is None else _alive(old))

    def add(self, terms: TermTable, rows: Int64Array | None = None) -> Int64Array:
        """Add terms, or those in these rows, or one more reference to those that are there with the same text.

        Returns the rows that were refused, since another text, still referred to, has their id."""
        rows = np.arange(len(terms)) if rows is None else rows
        if self._old is None and self._young.count + len(rows) > self._young.count_max:
            self._begin(len(rows))
        self._step(len(rows))
        refused = [rows[:0]]
        refs = np.ones(len(rows), np.int32)
        if self._old is not None:
            status = np.zeros(len(rows), np.int8)
            refs = write_kernels.take_over(
                terms.ids, terms.offsets, terms.text, rows, *self._old.arrays, self._old.numbers, status
            )
            refused.append(rows[status == REFUSED])
            rows, refs = rows[status != REFUSED], refs[status != REFUSED]
        status = self._young.append(terms, rows, refs)
        refused.append(rows[status == REFUSED])
        blocked = status == REFUSED_BY_DEAD
        if blocked.any():
            # Ids are distinct within a generation: a dead entry has to become old before another text can have its id.
            self._finish()
            self._begin(len(rows))
            self._young.append(terms, rows[blocked], refs[blocked])
        self._publish()
        return np.sort(np.concatenate(refused))

    def release(self, ids: Int64Array) -> None:
        """Give back one reference for each id. A term without any is gone, except for views taken before."""
        left = ids
        for tables in (self._old, self._young):
            if tables is not None:
                left = left[write_kernels.release_terms(left, *tables.arrays, tables.numbers)]
        assert not len(left), f"term id {left[0]} released more often than added"
        dead_bytes = int(self._young.numbers[N_DEAD_BYTES])
        if self._old is None and dead_bytes > max(int(self._young.numbers[N_BYTES]) - dead_bytes, _DEAD_BYTES_MIN):
            self._begin(0)
        self._step(len(ids))
        self._publish()

    def _begin(self, added: int) -> None:
        """Let the young generation become the old one; `added` terms are about to be added."""
        assert self._old is None, "one move at a time"
        self._old, self._moved_to = self._young, 0
        self._young = DictionaryTables(counted=True, room=max(2 * (_alive(self._old) + added), self._old.count))

    def _step(self, references: int) -> None:
        """Move the live ones among the next entries of the old generation; drop that generation when it is empty."""
        if self._old is None:
            return
        stop = min(self._moved_to + _STEPS_PER_REFERENCE * references, self._old.count)
        while self._moved_to < stop and _alive(self._old):
            end = min(stop, self._moved_to // CHUNK_ENTRIES * CHUNK_ENTRIES + CHUNK_ENTRIES)
            *table, refs = write_kernels.take_live(self._moved_to, end, self._old.arrays[0], self._old.numbers)
            self._young.append(TermTable(*table), np.arange(len(refs)), refs)
            self._moved_to = end
        if not _alive(self._old):
            self._old = None

    def _finish(self) -> None:
        if self._old is not None:
            self._step(self._old.count)

    def _publish(self) -> None:
        self._published = self._young.reader(None if self._old is None else self._old.reader())

    def compare(self, terms: TermTable, rows: Int64Array | None = None) -> StatusArray:
        """Say of each of the terms, or of those in these rows, what adding it would do: ADDED, EQUAL, REFUSED, or
        REFUSED_BY_DEAD: adding can make room then."""
        rows = np.arange(len(terms)) if rows is None else rows
        status = self._young.compare(terms, rows)
        if self._old is not None:
            old = self._old.compare(terms, rows)
            alive = (old != ADDED) & (old != REFUSED_BY_DEAD)
            status[alive] = old[alive]
        return status

    def view(self) -> DictionaryView:
        """Return an immutable reader of what is here now."""
        return self._published

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical forms of ids, inlined ones too. Raises KeyError, naming the id, for an unknown one."""
        gone = np.flatnonzero(~self.contains(ids))
        if len(gone):
            raise KeyError(f"term id {ids[gone[0]]} is unknown to the dictionary")
        return self.view().texts(ids)

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here that is referred to; an inlined literal always has."""
        found = is_inlined(ids)
        view: DictionaryView | None = self._published
        while view is not None:
            found |= kernels.flag_live(view.find(ids), view.chunks)
            view = view.older
        return found

    def text_equals(self, term: int, text: str) -> bool | None:
        """Tell whether an id has this text; None if no text with this id is referred to. Only while nobody writes."""
        status = self.glance(term, text)
        return None if status in (ADDED, REFUSED_BY_DEAD) else status == EQUAL

    def glance(self, term: int, text: str) -> int:
        """Say of one id what can be known while the writer is at work. EQUAL, REFUSED: this text, or another one, has
        it; ADDED: none has; REFUSED_BY_DEAD: none that is referred to, unless the writer is just moving it."""
        terms = TermTable.of(np.array([term], np.int64), [text.encode()])
        seen = ADDED
        view: DictionaryView | None = self._published
        while view is not None:
            if len(view) and view.find(terms.ids)[0] >= 0:
                # References change under a reader, so one look has to decide.
                status = int(view.compare(terms)[0])
                if status in (EQUAL, REFUSED):
                    return status
                seen = REFUSED_BY_DEAD
            view = view.older
        return seen

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, room for growth included."""
        old = self._old
        return self._young.size_bytes + (0 if old is None else old.size_bytes)


def _alive(tables: DictionaryTables) -> int:
    return tables.count - int(tables.numbers[N_DEAD])
