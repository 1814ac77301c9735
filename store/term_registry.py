"""TermRegistry: which id each term really has.

Ids are hashes, so two texts may want the same one (about 1e-3 of a chance at 100 M terms). The first to be confirmed
keeps it; the other gets an exception: the first free hash with another seed, in all 62 bits.

* An exception is for ever: it names its text even after all tuples with it have gone, so that ids never change meaning.
* A text with an exception is never stored under its hash again, even if that id has become free.
* Persistent and transient dictionary never hold different texts under one id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from wukongs.store.dictionary import Dictionary, DictionaryView
from wukongs.store.dictionary_write_kernels import ADDED, EQUAL, REFUSED, REFUSED_BY_DEAD
from wukongs.store.dtypes import (
    CLASH_FIRST,
    HASH_SEED,
    INLINE_MARK,
    NO_MATCH,
    UNBOUND,
    BoolArray,
    Int64Array,
    UInt8Array,
)
from wukongs.store.encoded import Encoded, TermTable, replace_ids
from wukongs.store.encoder import encode_texts
from wukongs.store.quads import Quads
from wukongs.store.slot_kernels import fill_slots, flag_used
from wukongs.store.term_ids import HASH_BITS, hash_id, is_inlined, term_id, term_ids
from wukongs.store.transient_dictionary import TransientDictionary

_QUADS_AT_A_TIME = 1 << 17

_COLUMNS = ("subjects", "predicates", "objects", "graphs")
SETTLED_MAX = 1 << 14
SETTLED_CHARACTERS_MAX = 256
"""Texts that are asked for again and again are constants of queries: few, and short."""


@dataclass(frozen=True, slots=True)
class TermReader:
    """The strings as they were when it was taken; a result holds one."""

    persistent: DictionaryView
    transient: DictionaryView

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical forms of ids. Raises KeyError, naming the id, for one that was unknown."""
        return self.persistent.texts(ids, self.transient)

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the texts of ids as UTF-8, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""
        return self.persistent.gather(ids, self.transient)

    def has(self, terms: TermTable) -> BoolArray:
        """Tell of each term whether its id has this text here. bool[n]"""
        found: BoolArray = self.persistent.compare(terms) == EQUAL
        for view in (self.persistent.older, self.transient, self.transient.older):
            if view is not None and len(view) and not found.all():
                rest = np.flatnonzero(~found)
                found[rest] = view.compare(terms, rest) == EQUAL
        return found

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether it has a text here; an inlined literal always has."""
        found: BoolArray = self.persistent.contains(ids) | self.transient.contains(ids)
        return found


def _one_term(term: int, text: str) -> TermTable:
    return TermTable.of(np.array([term], np.int64), [text.encode()])


class TermRegistry:
    """The dictionaries of one store, and the exceptions to the rule that an id is a hash. Thread-safe."""

    def __init__(self, hash_bits: int = HASH_BITS) -> None:
        self.hash_bits = hash_bits
        self.persistent = Dictionary()
        self.transient = TransientDictionary()
        self.exceptions: dict[str, int] = {}
        """canonical form -> id; append-only."""
        self._exception_ids: set[int] = set()
        self._exception_hashes = np.empty(0, np.int64)
        self._settled: dict[str, int] = {}
        """Texts that were resolved, and whose id can never become another."""
        self.release_count = 0
        """Calls of `release` with ids. After one, an id may be that of another term."""
        self._lock = threading.Lock()

    def confirm(self, encoded: Encoded, timing: BoolArray | None = None) -> tuple[Encoded, Int64Array]:
        """Make the terms of encoded tuples known, and give each the id that is its own.

        timing : bool[n], which tuples only live in windows (None: none does). Terms that stand in no other tuple enter
        the transient dictionary. Returns the tuples with their final ids, and the ids on which a reference was taken:
        release them when the slice goes."""
        with self._lock:
            terms = encoded.terms
            stays, clash_stays = self._find_timeless(encoded, timing)
            special = np.isin(terms.ids, self._exception_hashes) if self.exceptions else np.zeros(len(terms), np.bool_)
            rest = np.flatnonzero(~special)
            refused, taken = self._add(terms, rest, stays)
            odd = np.concatenate((np.flatnonzero(special), refused))
            if not len(odd) and not len(encoded.clashes):
                return encoded, taken
            return self._confirm_odd(encoded, odd, stays, clash_stays, taken)

    def _find_timeless(self, encoded: Encoded, timing: BoolArray | None) -> tuple[BoolArray, BoolArray]:
        """Tell which terms, and which clashes, stand in a timeless tuple."""
        stays = np.zeros(len(encoded.terms), np.bool_)
        clash_stays = np.zeros(len(encoded.clashes), np.bool_)
        if timing is None or not timing.any():
            return ~stays, ~clash_stays
        if timing.all():
            return stays, clash_stays
        slots = np.zeros(1 << (2 * len(stays)).bit_length(), np.int32)
        fill_slots(encoded.terms.ids, len(stays), slots)
        timeless = ~timing
        for name in _COLUMNS:
            column = getattr(encoded, name)
            flag_used(encoded.terms.ids, slots, column, timeless, stays)
            if len(clash_stays):
                codes = column[timeless & (column <= CLASH_FIRST)]
                clash_stays[CLASH_FIRST - codes] = True
        return stays, clash_stays

    def _add(self, terms: TermTable, rows: Int64Array, stays: BoolArray) -> tuple[Int64Array, Int64Array]:
        """Add these rows of the terms where they belong. Returns (the rows that were refused, transient ids taken)."""
        if not len(self.transient) and stays.all():
            return self.persistent.add(terms, rows), np.empty(0, np.int64)
        status = self.persistent.compare(terms, rows)
        refused = [rows[status == REFUSED]]
        fresh = rows[status == ADDED]
        lasting, passing = fresh[stays[fresh]], fresh[~stays[fresh]]
        taken = np.empty(0, np.int64)
        if len(lasting):
            if len(self.transient):
                clear = self.transient.compare(terms, lasting) != REFUSED
                refused.append(lasting[~clear])
                lasting = lasting[clear]
            refused.append(self.persistent.add(terms, lasting))
        if len(passing):
            refused.append(self.transient.add(terms, passing))
            taken = terms.ids[passing[~np.isin(passing, refused[-1])] if len(refused[-1]) else passing]
        return np.concatenate(refused), taken

    def _confirm_odd(
        self, encoded: Encoded, odd: Int64Array, stays: BoolArray, clash_stays: BoolArray, taken: Int64Array
    ) -> tuple[Encoded, Int64Array]:
        """Place the terms that met another text at their id one by one, and put their final ids into the columns."""
        terms, clashes = encoded.terms, encoded.clashes
        also_taken: list[int] = []
        ids = terms.ids.copy()
        renamed: dict[int, int] = {}
        for row, text in zip(odd.tolist(), terms.take(odd).texts(), strict=True):
            ids[row] = self._place(int(ids[row]), text, bool(stays[row]), also_taken)
            renamed[int(terms.ids[row])] = int(ids[row])
        clash_ids = clashes.ids.copy()
        for k, text in enumerate(clashes.texts()):
            clash_ids[k] = self._place(int(clash_ids[k]), text, bool(clash_stays[k]), also_taken)
            renamed[CLASH_FIRST - k] = int(clash_ids[k])
        table = TermTable(
            np.concatenate((ids, clash_ids)),
            np.concatenate((terms.offsets, terms.offsets[-1] + clashes.offsets[1:])),
            np.concatenate((terms.text, clashes.text)),
        )
        old, new = np.array(list(renamed), np.int64), np.array(list(renamed.values()), np.int64)
        columns: dict[str, Any] = {name: replace_ids(getattr(encoded, name), old, new) for name in _COLUMNS}
        confirmed = replace(encoded, **columns, terms=table, clashes=TermTable.empty())
        return confirmed, np.concatenate((taken, np.array(also_taken, np.int64)))

    def _place(self, hashed: int, text: str, stays: bool, taken: list[int]) -> int:
        """Return the id that is this text's own, its exception made if need be, and add it where it belongs."""
        term = self._known_id(hashed, text)
        if term == NO_MATCH:
            term = self._make_exception(hashed, text)
        one = _one_term(term, text)
        if stays:
            refused = self.persistent.add(one)
        elif self.persistent.compare(one)[0] == EQUAL:
            return term
        else:
            refused = self.transient.add(one)
            taken.append(term)
        assert not len(refused), f"id {term} of {text!r} was said to be free"
        return term

    def _known_id(self, hashed: int, text: str) -> int:
        """Return the id of a text: its exception; its hash if that is free or its own; NO_MATCH if another has it."""
        if text in self.exceptions:
            return self.exceptions[text]
        for dictionary in (self.persistent, self.transient):
            same = dictionary.text_equals(hashed, text)
            if same is not None:
                return hashed if same else NO_MATCH
        return hashed

    def _make_exception(self, hashed: int, text: str) -> int:
        seed = HASH_SEED + 1
        term = hash_id(text.encode(), HASH_BITS, seed)
        while term in self._exception_ids or self._is_held(term):
            seed += 1
            term = hash_id(text.encode(), HASH_BITS, seed)
        self._record_exception(term, text, hashed)
        return term

    def _record_exception(self, term: int, text: str, hashed: int) -> None:
        self._exception_ids.add(term)
        self._exception_hashes = np.append(self._exception_hashes, hashed)
        self.exceptions[text] = term

    def exception_records(self, start: int) -> list[tuple[int, str]]:
        """Return the exceptions from number `start` on, as (id, canonical form), in the order in which they were made.

        A log has to hold those that a stream batch's confirm made before the stream batch is acknowledged."""
        with self._lock:
            return [(term, text) for text, term in islice(self.exceptions.items(), start, None)]

    def restore_exceptions(self, records: Iterable[tuple[int, str]]) -> None:
        """Take exceptions from a log, before the terms that have them. Known ones are passed over.

        Raises ValueError for one that contradicts what is known."""
        with self._lock:
            for term, text in records:
                known = self.exceptions.get(text)
                if known is None and term not in self._exception_ids:
                    self._record_exception(term, text, hash_id(text.encode(), self.hash_bits))
                elif known != term:
                    raise ValueError(f"exception {term} of {text!r}: another one is known already")

    def restore(self, persistent: Dictionary, exceptions: Iterable[tuple[int, str]]) -> None:
        """Take the content of another registry with these hash_bits. This one knows only terms with which the other
        began."""
        assert not len(self.persistent), len(self.persistent)
        self.restore_exceptions(exceptions)
        self.persistent = persistent

    def _is_held(self, term: int) -> bool:
        alone = np.array([term], np.int64)
        return bool(self.persistent.contains(alone)[0] or self.transient.contains(alone)[0])

    def release(self, ids: Int64Array) -> None:
        """Give back the references that confirm or reserve took."""
        with self._lock:
            self.release_count += len(ids) > 0
            self.transient.release(ids)

    def reserve(self, texts: Sequence[str]) -> tuple[Int64Array, Int64Array]:
        """Make terms known that no tuple may hold yet, such as the constants of a registered query, so that their ids
        stay theirs. Returns (ids, those on which a reference was taken)."""
        ids = np.array([term_id(text, self.hash_bits) for text in texts], np.int64)
        taken: list[int] = []
        with self._lock:
            # Most are of stored tuples, or inlined; these take no reference.
            stored = self.persistent.compare(TermTable.of(ids, [text.encode() for text in texts])) == EQUAL
            for at in np.flatnonzero(~(stored | is_inlined(ids))).tolist():
                ids[at] = self._place(int(ids[at]), texts[at], False, taken)
        return ids, np.array(taken, np.int64)

    def keep(self, text: str) -> int:
        """Make a term that stored tuples may hold, such as the name of their graph, known for ever; return its id."""
        with self._lock:
            return self._place(term_id(text, self.hash_bits), text, True, [])

    def keep_all(self, texts: Sequence[str]) -> Int64Array:
        """Do the same as keep, for many terms at once."""
        return self.confirm(encode_texts(texts, self.hash_bits))[0].subjects

    def known(self, text: str) -> int:
        """Return the id of a term that stored tuples may hold; NO_MATCH for one that none of them can."""
        term = self.resolve(text)
        is_known = term == NO_MATCH or term & INLINE_MARK or self.persistent.text_equals(term, text)
        return term if is_known else NO_MATCH

    def known_all(self, texts: Sequence[str]) -> Int64Array:
        """Do the same as known, for many terms at once."""
        encoded = encode_texts(texts, self.hash_bits)
        ids = encoded.subjects.copy()
        with self._lock:
            is_same = self.persistent.compare(encoded.terms) == EQUAL
            if self.exceptions:
                is_same &= ~np.isin(encoded.terms.ids, self._exception_hashes)
        is_sure = is_inlined(ids) | np.isin(ids, encoded.terms.ids[is_same])
        for row in np.flatnonzero(~is_sure).tolist():
            ids[row] = self.known(texts[row])
        return ids

    def resolve(self, canonical: str) -> int:
        """Return the id under which the data know a term, or would know it; NO_MATCH if another text has its hash and
        no tuple with this one was ever confirmed."""
        found = self._settled.get(canonical)
        if found is None:
            found, is_settled = self._resolve(canonical)
            if is_settled:
                self._settle(canonical, found)
        return found

    def settled(self, canonical: str) -> int | None:
        """Return the id of a term if it can never become another: it is inlined, has an exception, or is in the
        persistent dictionary."""
        found = self._settled.get(canonical)
        if found is None:
            term, is_settled = self._resolve(canonical)
            if is_settled:
                found = self._settle(canonical, term)
        return found

    def _settle(self, canonical: str, term: int) -> int:
        if len(canonical) <= SETTLED_CHARACTERS_MAX:
            if len(self._settled) >= SETTLED_MAX:
                self._settled.clear()
            self._settled[canonical] = term
        return term

    def _resolve(self, canonical: str) -> tuple[int, bool]:
        """Return what resolve does, and whether it is settled. A hash that nobody has, or only a transient term, may
        become another text's: that is looked up each time."""
        term, same = self.persistent.resolve(canonical, self.hash_bits)
        exception = self.exceptions.get(canonical)
        if exception is not None:
            return exception, True
        if same is None:
            return NO_MATCH if self._has_another(term, canonical) else term, False
        return (term, True) if same else (NO_MATCH, False)

    def _has_another(self, term: int, text: str) -> bool:
        """Tell whether the transient dictionary has another text than this one under an id. The lock is free.

        It is waited for only where a term may be on its way between two generations."""
        status = self.transient.glance(term, text)
        if status == REFUSED_BY_DEAD:
            with self._lock:
                status = self.transient.glance(term, text)
        return status == REFUSED

    def resolve_all(self, texts: Sequence[str]) -> Int64Array:
        """Do the same as resolve, for many terms at once."""
        ids = term_ids(texts, self.hash_bits)
        hashed = np.flatnonzero(ids & INLINE_MARK == 0)
        asked = TermTable.of(ids[hashed], [texts[row].encode() for row in hashed.tolist()])
        doubtful = self.persistent.view().compare(asked) != EQUAL
        doubtful &= self.persistent.contains(asked.ids) | self.transient.view().contains(asked.ids)
        if self.exceptions:
            doubtful |= np.isin(asked.ids, self._exception_hashes)
        for row in hashed[doubtful].tolist():
            ids[row], _ = self._resolve(texts[row])
        return ids

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical forms of ids; one that was released may still be there.

        Raises KeyError, naming the id, for an unknown one."""
        return self.snapshot_reader().texts(ids)

    def snapshot_reader(self) -> TermReader:
        """Return the strings as they are now; strings that are released later stay readable through it."""
        return TermReader(self.persistent.view(), self.transient.view())

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays of both dictionaries."""
        return self.persistent.size_bytes + self.transient.size_bytes


Gather = Callable[[Int64Array], tuple[UInt8Array, Int64Array]]
"""Gives the texts of ids, as TermReader.gather does."""


def distinct_terms(columns: Sequence[Int64Array]) -> Int64Array:
    """Return the distinct ids in some columns, sorted, but for inlined literals."""
    ids = np.concatenate(columns)
    ids = np.sort(ids[~is_inlined(ids)])
    is_first = np.ones(len(ids), np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=is_first[1:])
    return ids[is_first]


def term_table(columns: Sequence[Int64Array], gather: Gather) -> TermTable:
    """Return the distinct terms of some columns of ids, sorted, with their texts; inlined literals have none."""
    ids = distinct_terms(columns)
    ids = ids[ids >= 0]
    text, offsets = gather(ids)
    return TermTable(ids, offsets, text)


def with_texts(quads: Quads, gather: Gather) -> Encoded:
    """Return quads with the texts of their terms, all of them in their graphs."""
    graphs, subjects, predicates, objects = quads
    return Encoded(subjects, predicates, objects, graphs, np.empty(0, np.int64), term_table(quads, gather))


def encode_quads(registry: TermRegistry, quads: Quads, default_graph: int) -> Iterator[Encoded]:
    """Yield stored quads in chunks that another registry could confirm: with the texts of their terms, under the hashes
    before any exception. Quads of the default graph have no graph term."""
    exceptions = np.array([term for term, _ in registry.exception_records(0)], np.int64)
    reader = registry.snapshot_reader()
    for first in range(0, len(quads[0]), _QUADS_AT_A_TIME):
        columns = [column[first : first + _QUADS_AT_A_TIME] for column in quads]
        columns[0] = np.where(columns[0] == default_graph, UNBOUND, columns[0])
        table = term_table(columns, reader.gather)
        is_special = np.isin(table.ids, exceptions)
        special = table.take(np.flatnonzero(is_special))
        hashes = [hash_id(text.encode(), registry.hash_bits) for text in special.texts()]
        clashes = TermTable(np.array(hashes, np.int64), special.offsets, special.text)
        codes = CLASH_FIRST - np.arange(len(special))
        graphs, subjects, predicates, objects = (replace_ids(column, special.ids, codes) for column in columns)
        terms = table.take(np.flatnonzero(~is_special)) if len(special) else table
        yield Encoded(subjects, predicates, objects, graphs, np.empty(0, np.int64), terms, clashes)
