"""Arena: the memory of a thread's programs."""

from __future__ import annotations

import numpy as np

from wukongs.query.programs import program_layout as layout
from wukongs.store.dictionary import EMPTY_VIEW
from wukongs.store.dtypes import Int64Array
from wukongs.store.term_registry import TermReader

ARENA_CELLS = 1 << 18
"""Ids that all tables of a program have room for together."""


class Arena:
    """The tables of one run, and where the dictionaries have the texts of terms."""

    def __init__(self, cells: int = ARENA_CELLS) -> None:
        self.cells: Int64Array = np.empty(cells, np.int64)
        self.address: int = self.cells.ctypes.data
        self._reader = TermReader(EMPTY_VIEW, EMPTY_VIEW)
        """It keeps the texts that kernels read by address."""
        self._dictionaries: Int64Array = np.zeros((layout.DICTIONARIES, layout.DICTIONARY_WIDTH), np.int64)
        self.dictionaries_address: int = self._dictionaries.ctypes.data

    def __len__(self) -> int:
        return len(self.cells)

    def at(self, address: int, count: int) -> Int64Array:
        """View ids of the arena."""
        begin = (address - self.address) // 8
        return self.cells[begin : begin + count]

    def read_by(self, reader: TermReader) -> None:
        """Read texts of terms as they are by a reader."""
        known, transient = self._reader, reader.transient
        if reader.persistent is known.persistent and transient is known.transient:
            return
        assert reader.persistent.older is None, "texts of more dictionaries"
        views = reader.persistent, transient, transient.older or EMPTY_VIEW
        self._dictionaries[:] = [
            (chunks.ctypes.data, len(chunks), slots.ctypes.data, len(slots), number_bits, count)
            for chunks, slots, number_bits, count in (view.arrays for view in views)
        ]
        self._reader = reader
