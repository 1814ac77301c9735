"""Ids to texts, however many: in pieces, with what they take counted and the clock looked at (wukongs/limits.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from store.dtypes import UNBOUND, Int64Array
from wukongs.limits import OBJECT_BYTES, current
from wukongs.rows import numbered, pieces

PIECE_IDS = 4096
CELL_BYTES = 48
"""What a cell of a column takes as a list: the pointer to its text, and its place as a number for a while."""


class TextReader(Protocol):
    """Where ids become texts."""

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical form of each id; UNBOUND is never asked."""


def texts_of(ids: Int64Array, terms: TextReader) -> Iterator[str | None]:
    """Iterate over the canonical forms of distinct ids, None for UNBOUND. What they take stays held."""
    limits = current()
    for start in range(0, len(ids), PIECE_IDS):
        limits.check()
        piece = ids[start : start + PIECE_IDS]
        bound = piece != UNBOUND
        found = terms.texts(piece[bound]) if bound.any() else []
        limits.hold(OBJECT_BYTES * len(piece) + sum(map(len, found)), "decoding the terms of a column")
        if len(found) == len(piece):
            yield from found
        else:
            texts = iter(found)
            yield from (next(texts) if is_bound else None for is_bound in bound.tolist())


def column_texts(column: Int64Array, terms: TextReader) -> list[str | None]:
    """Return the canonical text of each id of a column, None for UNBOUND."""
    limits = current()
    places, firsts = numbered([column], len(column))
    known = list(texts_of(column[firsts], terms))
    limits.hold(CELL_BYTES * len(column), "a column of texts")
    cells: list[str | None] = []
    for start, stop in pieces(len(column), limits):
        cells += [known[place] for place in places[start:stop].tolist()]
    return cells
