"""The terms of one query: the ids of its constants, and the terms that its expressions compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from wukongs.csparql.terms import Term
from wukongs.errors import SettingsError
from wukongs.query.limits import CHARACTER_BYTES, OBJECT_BYTES, current
from wukongs.query.terms.arrow_texts import interleaved
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.query.terms.moment import Moment
from wukongs.store.dictionary import join_texts
from wukongs.store.dtypes import CLASH_FIRST, INLINE_MARK, NO_MATCH, BoolArray, Int64Array, UInt8Array
from wukongs.store.encoded import Encoded, TermTable, replace_ids

MANY = 16
"""So many new terms or more are looked up together. Fewer are most often constants that came before."""
IDS_TRIED = 1 << 14
"""With 62 bits the first one is free; with fewer, which are for tests, perhaps none is."""
SHOWN_MAX = 60
FIRST_BYTES_AT_ONCE = 1 << 14
INLINED_MAX = 1 << 14
"""Texts of inlined terms at which they are forgotten between two executions; they have the same ids at any time."""
LOOKED_UP_MAX = 1 << 13
"""Between two looks at the clock."""


class Resolver(Protocol):
    """Tells by which ids the data know terms. A TermRegistry says it in full."""

    def resolve(self, canonical: str, /) -> int:
        """Return the id of a term, NO_MATCH if no data can have it."""

    def resolve_all(self, texts: Sequence[str], /) -> Int64Array:
        """Do the same as resolve, for many terms at once."""


class TermKeeper(Resolver, Protocol):
    """A Resolver that also makes terms known for ever, for updates. A TermRegistry says it in full."""

    def known(self, text: str, /) -> int:
        """Return the id of a term that stored tuples may hold; NO_MATCH for one that none of them can."""

    def known_all(self, texts: Sequence[str], /) -> Int64Array:
        """Do the same as known, for many terms at once."""

    def keep(self, text: str, /) -> int:
        """Make a term known for ever; return its id."""

    def keep_all(self, texts: Sequence[str], /) -> Int64Array:
        """Do the same as keep, for many terms at once."""

    def confirm(self, encoded: Encoded, /) -> tuple[Encoded, Int64Array]:
        """Make the terms of tuples known, and give each the id that is its own."""


FEW_COMPUTED = 4
"""So few computed terms are looked for among the ids of a column. If there are more, the ids are looked up in the
data."""


class DataTexts(Utf8Reader, Protocol):
    """The texts of the data."""

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether its text is at hand; one that is not may still be read."""

    def has(self, terms: TermTable) -> BoolArray:
        """Tell of each term whether its id is known at hand, with this text."""


class ConstantIds:
    """The ids of a query's constants. The given ones are reserved and never change; others are looked up in the
    data."""

    def __init__(self, registry: Resolver, reserved: Mapping[Term, int] | None = None) -> None:
        self._registry = registry
        self._ids = dict(reserved or {})

    def __call__(self, term: Term) -> int:
        found = self._ids.get(term)
        if found is None:
            found = self._ids[term] = self._registry.resolve(term.text)
        return found


class QueryTerms:
    """wukongs.query.binding_table.TermSpace of one execution: terms of the data, and computed ones with their texts.

    moment: the source of NOW() and the random functions; the present moment if none is given."""

    inlines = True

    def __init__(self, registry: Resolver, reader: DataTexts, moment: Moment | None = None) -> None:
        self.moment = moment or Moment.of_now()
        self._registry = registry
        self._reader = self.reader = reader
        self._computed: dict[int, str] = {}
        self._computed_size = [0]
        """The characters of the texts that were given ids; one list for all that share them."""
        self._ids: dict[str, int] = {}

    def renewed(self, reader: DataTexts, moment: Moment | None = None) -> QueryTerms:
        """Return the terms of the next execution of the same query, which has all that were computed before under the
        same ids. reader: the texts as they are then; moment: of that execution, by default the same."""
        found = QueryTerms(self._registry, reader, moment or self.moment)
        if len(self._ids) > 2 * len(self._computed) + INLINED_MAX:
            self._ids = {text: term for text, term in self._ids.items() if term in self._computed}
        found._computed, found._ids, found._computed_size = self._computed, self._ids, self._computed_size
        return found

    def shares_ids(self, other: QueryTerms) -> bool:
        """Whether both give computed terms the same ids: one is `renewed` of the other."""
        return self._computed is other._computed

    @property
    def computed_size(self) -> int:
        """Characters of the texts of all computed terms, and of inlined ones."""
        return self._computed_size[0]

    @property
    def computed_count(self) -> int:
        return len(self._computed)

    @property
    def has_computed(self) -> bool:
        """Whether there are terms that the data may not have."""
        return bool(self._computed)

    def texts(self, ids: Int64Array) -> list[str]:
        if not self._computed:
            return self._reader.texts(ids)
        computed = [self._computed.get(number) for number in ids.tolist()]
        others = np.array([text is None for text in computed], np.bool_)
        read = iter(self._reader.texts(ids[others]))
        return [next(read) if text is None else text for text in computed]

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the texts of ids as UTF-8, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""
        if not self._computed:
            return self._reader.gather(ids)
        # Computed terms are mostly constants that the data have as well.
        if len(self._computed) <= FEW_COMPUTED:
            in_data = np.ones(len(ids), np.bool_)
            for number in list(self._computed):  # another execution of the query may compute more
                rows = np.flatnonzero(ids == number)
                in_data[rows] = self._reader.contains(ids[rows[:1]]) if len(rows) else True
        else:
            in_data = self._reader.contains(ids)
        if in_data.all():
            return self._reader.gather(ids)
        others = np.flatnonzero(~in_data)
        computed = list(map(self._computed.get, ids[others].tolist()))
        if None in computed:
            in_data[[row for row, text in zip(others.tolist(), computed, strict=True) if text is None]] = True
        made = join_texts([text for text in computed if text is not None])
        return made if not in_data.any() else interleaved(in_data, self._reader.gather(ids[in_data]), made)

    def first_bytes(self, ids: Int64Array) -> UInt8Array:
        """Return the first byte of each canonical form, uint8[n]: `<` of an IRI, `_` of a blank node, a quote of a
        literal, `(` of a triple term."""
        found = np.full(len(ids), ord('"'), np.uint8)
        hashed = np.flatnonzero(ids & INLINE_MARK == 0)
        for start in range(0, len(hashed), FIRST_BYTES_AT_ONCE):  # so that few texts are there at once
            some = hashed[start : start + FIRST_BYTES_AT_ONCE]
            text, offsets = self.gather(ids[some])
            found[some] = text[offsets[:-1]]
        return found

    @property
    def computes(self) -> bool:
        """Whether this execution has given out any ids itself."""
        return bool(self._computed)

    def computed(self, ids: Int64Array) -> dict[int, str]:
        """Return the ids among these that this execution has given out itself, with their canonical forms."""
        given = np.array(list(self._computed), np.int64)
        return {term: self._computed[term] for term in given[np.isin(given, ids)].tolist()}

    def ids(self, texts: Sequence[str]) -> Int64Array:
        if not texts:
            return np.empty(0, np.int64)
        known, limits = self._ids, current()
        missing = [text for text in dict.fromkeys(limits.polled(texts)) if text not in known]
        for start in range(0, len(missing), LOOKED_UP_MAX):
            limits.check()
            some = missing[start : start + LOOKED_UP_MAX]
            size = sum(map(len, some))
            limits.keep(OBJECT_BYTES * len(some) + CHARACTER_BYTES * size)
            self._computed_size[0] += size
            if len(some) < MANY:
                found = [self._registry.resolve(text) for text in some]
            else:
                found = self._registry.resolve_all(some).tolist()
            computed = self._computed
            for text, term in zip(some, found, strict=True):
                if term == NO_MATCH or term in computed:
                    self._remember(text, term)
                    continue
                known[text] = term
                if term & INLINE_MARK == 0:
                    computed[term] = text
        return np.fromiter(map(known.__getitem__, texts), np.int64, len(texts))

    def ids_of(self, encoded: Encoded, *columns: Int64Array) -> list[Int64Array]:
        """Return columns of encoded tuples with the ids of their terms. Those that the data have under their hash are
        compared by their bytes, all together; the others are looked up as by ids."""
        terms = encoded.terms
        is_here = self._reader.has(terms)
        if is_here.all() and not len(encoded.clashes):
            return list(columns)
        others = terms.take(np.flatnonzero(~is_here))
        codes = np.concatenate([others.ids, CLASH_FIRST - np.arange(len(encoded.clashes))])
        found = self.ids([*others.texts(), *encoded.clashes.texts()])
        return [replace_ids(column, codes, found) for column in columns]

    def _remember(self, text: str, term: int) -> None:
        if term == NO_MATCH or self._computed.get(term, text) != text:
            # Another term has this one's hash. No data has this term, so any free id will do for it.
            term = self._free_id(text)
        self._ids[text] = term
        if term & INLINE_MARK == 0:
            self._computed[term] = text

    def _free_id(self, text: str) -> int:
        """Return an id that no other term has. Raises SettingsError (none is left)."""
        for first in range(0, IDS_TRIED, MANY):
            current().check()
            tried = self._registry.resolve_all([f"{text}\0{salt}" for salt in range(first, first + MANY)])
            for term in tried.tolist():
                if term != NO_MATCH and term not in self._computed:
                    return int(term)
        shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]} ..."
        raise SettingsError(
            f"no id is free for {shown}, which the query gives or computes: the data or the query have other terms "
            f"under all of {IDS_TRIED} that were tried. hash_bits is too small for so many terms: leave it at 62"
        )
