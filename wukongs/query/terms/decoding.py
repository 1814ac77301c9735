"""Ids to texts, however many: in pieces, with their bytes counted and the clock looked at (limits.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from wukongs.query.limits import OBJECT_BYTES, current
from wukongs.query.rows import numbered, pieces
from wukongs.query.terms.rdf_terms import iris_of, terms_of
from wukongs.store.dictionary import split_texts
from wukongs.store.dtypes import UNBOUND, Int64Array, UInt8Array

if TYPE_CHECKING:
    from rdflib.term import IdentifiedNode, Literal

PIECE_IDS = 4096
RUN_MIN = 16
"""Terms are read in runs of IRIs and of others, if these are so long on average: IRIs together become rdflib terms
several times faster."""
CELL_BYTES = 48
"""The bytes that a cell of a column takes in a list: the pointer to its text, and its place as a number for a while."""


class TextReader(Protocol):
    """Turns ids into texts."""

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical form of each id; UNBOUND is never asked."""


class Utf8Reader(TextReader, Protocol):
    """Where ids become texts, or UTF-8 in one array."""

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the texts of ids as UTF-8, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""


def texts_of(ids: Int64Array, terms: TextReader) -> Iterator[str | None]:
    """Iterate over the canonical forms of distinct ids, None for UNBOUND. Their bytes stay held."""
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


def terms_of_ids(ids: Int64Array, terms: Utf8Reader) -> list[IdentifiedNode | Literal]:
    """Return the rdflib term of each id; UNBOUND is never asked. Raises as rdf_terms.terms_of."""
    if len(ids) < 2 * RUN_MIN:
        return terms_of(terms.texts(ids))
    text, offsets = terms.gather(ids)
    is_iri = text[offsets[:-1]] == ord("<")
    ends = [*(np.flatnonzero(is_iri[1:] != is_iri[:-1]) + 1).tolist(), len(ids)]
    if len(ends) * RUN_MIN > len(ids):
        return terms_of(split_texts(text, offsets))
    made: list[IdentifiedNode | Literal] = []
    start = 0
    for end in ends:
        some = text[offsets[start] : offsets[end]]
        run = iris_of(some.tobytes(), end - start) if is_iri[start] else None
        made += terms_of(split_texts(some, offsets[start : end + 1] - offsets[start])) if run is None else run
        start = end
    return made
