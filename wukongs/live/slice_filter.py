"""SliceFilter: which tuples of a stream enter its slices, for streams declared with index="matching".

A tuple whose predicate no registered query can match in a window of the stream is left out of the slices (the paper's
adaptor discards unrelated tuples); if it is timeless, it joins the stored graph all the same. So a query that comes
later misses what was left out before: its windows that reach back there are marked partial.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from wukongs.store.dtypes import BoolArray, Int64Array

ANY_PREDICATE = None
"""Stands for a query with a variable predicate: it matches any."""
Predicate = int | None


class SliceFilter:
    """The filter of one stream. The owner serialises the calls."""

    def __init__(self) -> None:
        self.discarded_count = 0
        self._discarded_to: int | None = None
        self._lacks_to: dict[Predicate, int | None] = {}
        """Predicate that a registered query matches -> the last stream batch that may lack its tuples; None: none
        does."""
        self._predicates: Int64Array = np.empty(0, np.int64)

    def match(self, wanted: Set[Predicate]) -> None:
        """Keep from now on what the registered queries match: ids of predicates, or ANY_PREDICATE."""
        otherwise = self._lacks_to.get(ANY_PREDICATE, self._discarded_to)
        self._lacks_to = {predicate: self._lacks_to.get(predicate, otherwise) for predicate in wanted}
        self._predicates = np.array([p for p in wanted if p is not ANY_PREDICATE], np.int64)

    def lacks_to(self, matched: Set[Predicate]) -> int | None:
        """Return the last stream batch that may lack tuples which a registered query matches; None if none does."""
        return max((to for p in matched if (to := self._lacks_to[p]) is not None), default=None)

    def keep(self, number: int, predicates: Int64Array) -> BoolArray:
        """Tell which tuples of stream batch `number` enter its slice. bool[n]"""
        if ANY_PREDICATE in self._lacks_to:
            return np.ones(len(predicates), np.bool_)
        kept: BoolArray = np.isin(predicates, self._predicates)
        discarded = len(predicates) - int(kept.sum())
        if discarded:
            self.discarded_count += discarded
            self._discarded_to = number
        return kept
