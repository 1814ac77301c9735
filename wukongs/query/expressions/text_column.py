"""TextColumn: terms taken apart into columns of bytes, for functions of strings that run on all of them at once.

Ids become bytes in one call (the dictionary's), and stay bytes: nothing is decoded, no Python object is made. Lexical
forms are an Arrow array, so that Arrow's kernels run on them; they are UTF-8, whose order by bytes is that by code
points. Kinds are those of text_kernels.py. A column has a row for each distinct term, or combination of terms;
`places` (see `Spread`) tells which one a row of the binding table has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from wukongs.query.binding_table import TermSpace
from wukongs.query.expressions.text_kernels import BLANK, IRI, NOTHING, STRING, TAGGED, TRIPLE, TYPED, take_apart
from wukongs.query.limits import CHARACTER_BYTES, OBJECT_BYTES, current
from wukongs.query.terms.arrow_texts import taken, text_array
from wukongs.store.dtypes import UNBOUND, BoolArray, Int64Array, UInt8Array

__all__ = ("BLANK", "IRI", "NOTHING", "STRING", "TAGGED", "TRIPLE", "TYPED", "Spread", "TextColumn")

GATHERED_AT_ONCE = 1 << 14
"""Ids; then the clock is looked at."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """kinds : uint8[n]; lexical : Arrow's large_string[n], without nulls, meaningless where the kind is NOTHING;
    tails : int64[n], the place in `names` of a TAGGED term's language or a TYPED term's datatype, 0 for any other."""

    kinds: UInt8Array
    lexical: pa.LargeStringArray
    tails: Int64Array
    names: tuple[str, ...] = ("",)

    def __len__(self) -> int:
        return len(self.kinds)

    @staticmethod
    def of_ids(ids: Int64Array, terms: TermSpace) -> TextColumn:
        """Take the terms with these ids apart, NOTHING for UNBOUND. Their bytes stay held."""
        limits = current()
        texts, sizes = [], [np.zeros(1, np.int64)]
        for start in range(0, len(ids), GATHERED_AT_ONCE):
            limits.check()
            some = ids[start : start + GATHERED_AT_ONCE]
            bound = np.flatnonzero(some != UNBOUND)
            text, offsets = terms.gather(some if len(bound) == len(some) else some[bound])
            limits.hold(3 * len(text) + 40 * len(some), "the texts of a column")
            own_sizes = np.zeros(len(some), np.int64)
            own_sizes[bound] = np.diff(offsets)
            texts.append(text)
            sizes.append(own_sizes)
        whole = texts[0] if len(texts) == 1 else np.concatenate([np.empty(0, np.uint8), *texts])
        kinds, *spans = take_apart(whole, np.cumsum(np.concatenate(sizes)))
        return TextColumn(kinds, text_array(*spans[:2]), *_numbered(text_array(*spans[2:]), kinds))

    @staticmethod
    def of_texts(texts: Sequence[str]) -> TextColumn:
        """Take canonical forms apart."""
        parts = [text.encode() for text in texts]
        offsets = np.cumsum([0, *map(len, parts)])
        kinds, *spans = take_apart(np.frombuffer(bytearray(b"".join(parts)), np.uint8), offsets)
        return TextColumn(kinds, text_array(*spans[:2]), *_numbered(text_array(*spans[2:]), kinds))

    @property
    def is_text(self) -> BoolArray:
        """Whether each term is a string literal, tagged or not. Functions of strings take these only."""
        found: BoolArray = (self.kinds == STRING) | (self.kinds == TAGGED)
        return found

    def like(self, lexical: pa.LargeStringArray) -> TextColumn:
        """Return string literals with other characters, which keep their language tags; errors for all other terms."""
        return replace(self, kinds=np.where(self.is_text, self.kinds, NOTHING).astype(np.uint8), lexical=lexical)

    def take(self, places: Int64Array) -> TextColumn:
        """Return the terms at these places."""
        return TextColumn(self.kinds[places], taken(self.lexical, places), self.tails[places], self.names)

    def tails_in(self, other: TextColumn) -> Int64Array:
        """Return `tails` as places in the names of another column, -1 for names that it has not."""
        if self.names == other.names:
            return self.tails
        places = {name: place for place, name in enumerate(other.names)}
        return np.array([places.get(name, -1) for name in self.names], np.int64)[self.tails]

    def texts(self) -> list[str | None]:
        """Return canonical forms, None for an error."""
        limits = current()
        limits.hold((OBJECT_BYTES + CHARACTER_BYTES) * len(self) + CHARACTER_BYTES * self.lexical.nbytes)
        if (self.kinds == STRING).all():
            return [f'"{lexical}"' for lexical in limits.polled(self.lexical.to_pylist())]
        shapes = [_shapes(name) for name in self.names]
        parts = zip(self.kinds.tolist(), self.tails.tolist(), limits.polled(self.lexical.to_pylist()), strict=True)
        pieces = ((shapes[tail][kind], lexical) for kind, tail, lexical in parts)
        return [None if shape is None else f"{shape[0]}{lexical}{shape[1]}" for shape, lexical in pieces]


def _shapes(name: str) -> tuple[tuple[str, str] | None, ...]:
    """Return the texts before and after the lexical form of each kind of term with this language or datatype."""
    return None, ('"', '"'), ('"', f'"@{name}'), ('"', f'"^^<{name}>'), ("<", ">"), ("", ""), ("", "")


def _numbered(tails: pa.LargeStringArray, kinds: UInt8Array) -> tuple[Int64Array, tuple[str, ...]]:
    """Number distinct tails from 1 on; 0 is that of terms that have none."""
    marked = np.flatnonzero((kinds == TAGGED) | (kinds == TYPED))
    places = np.zeros(len(kinds), np.int64)
    if not len(marked):
        return places, ("",)
    encoded = (tails if len(marked) == len(kinds) else tails.take(pa.array(marked))).dictionary_encode()
    places[marked] = encoded.indices.to_numpy() + 1
    return places, ("", *encoded.dictionary.to_pylist())


@dataclass(frozen=True, slots=True)
class Spread:
    """A column, and the place in it of each row of a binding table. places : int64[n_rows], or None: the column is one
    constant, which all rows have."""

    column: TextColumn
    places: Int64Array | None


# --- columns side by side: of n rows each, or of one row that stands for a constant -----------------------------------


def broadcast(column: TextColumn, length: int) -> TextColumn:
    """Return a column with so many rows."""
    return column if len(column) == length else column.take(np.zeros(length, np.int64))


def rows_together(columns: Sequence[TextColumn]) -> int:
    """Return how many rows some columns have together."""
    return next((len(column) for column in columns if len(column) != 1), 1)


def are_compatible(first: TextColumn, second: TextColumn) -> BoolArray:
    """Tell where two arguments are compatible (SPARQL 1.1, 17.4.3.1.2)."""
    same_tag = (first.kinds == TAGGED) & (second.kinds == TAGGED) & (first.tails == second.tails_in(first))
    found: BoolArray = first.is_text & ((second.kinds == STRING) | same_tag)
    return found


def pairs(first: TextColumn, second: TextColumn) -> list[tuple[str, str]]:
    """Return the lexical forms of two columns as Python's texts."""
    length = rows_together((first, second))
    held = [broadcast(column, length).lexical for column in (first, second)]
    current().hold(2 * OBJECT_BYTES * length + CHARACTER_BYTES * sum(array.nbytes for array in held))
    return list(zip(*(array.to_pylist() for array in held), strict=True))
