"""Agreed terms: the terms that were agreed on lately, so that a node does not ask for them again. Most terms of a
stream come again and again, and a node holds only those of its own share."""

from __future__ import annotations

import threading

import numpy as np

from wukongs.store.dictionary import Dictionary
from wukongs.store.dictionary_write_kernels import EQUAL
from wukongs.store.encoded import TermTable

TERMS_MAX = 1 << 15
"""When there are more, all are forgotten."""
TABLE_MAX = 1 << 12
"""Larger tables, those of loads, are not remembered: most of their terms do not come again, and keeping them takes
longer than asking."""


class AgreedTerms:
    """The terms of one view of the members. An agreement under another view may be gone with a disk. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view = -1
        self._terms = Dictionary()

    def unknown(self, table: TermTable, view: int) -> TermTable:
        """Return the terms that were not agreed on under this view, as far as is remembered. ids: the hashes."""
        with self._lock:
            if view != self._view or not len(self._terms) or not 0 < len(table) <= TABLE_MAX:
                return table
            return table.take(np.flatnonzero(self._terms.compare(table) != EQUAL))

    def add(self, table: TermTable, view: int) -> None:
        """Note that terms were agreed on. If several have one hash, only one is remembered: the log has the others."""
        if not 0 < len(table) <= TABLE_MAX:
            return
        _, firsts = np.unique(table.ids, return_index=True)
        with self._lock:
            if view != self._view or len(self._terms) > TERMS_MAX:
                self._view, self._terms = view, Dictionary()
            self._terms.add(table, firsts)
