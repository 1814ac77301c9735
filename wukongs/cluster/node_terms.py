"""The terms of a node: the texts that it holds under their ids, and those that it has agreed to as a replica.

* An embedded registry decides by itself which of two texts with one hash gets another id. On a node the log decides
  that. Before a text is used here, all replicas of its hash's shard have agreed to it under its hash, or a record has
  re-encoded it. So under one hash there is one text in the whole cluster.
* A re-encoded text's id is a function of the records before its own, so all nodes give it the same. It lies in the
  shard of the hash, because senders of tuples go by hashes. Another text's hash may be this id, by a chance of 52 bits.
  Replicas refuse such a text, so it can only have been agreed on before.
* A replica keeps the texts that it has agreed to for ever, in a dictionary of its own: they may stand in no tuple here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wukongs.errors import DataError
from wukongs.store.dictionary import Dictionary
from wukongs.store.dictionary_write_kernels import EQUAL
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, HASH_SEED, BoolArray, Int64Array
from wukongs.store.encoded import Encoded, TermTable
from wukongs.store.encoder import encode_texts
from wukongs.store.term_ids import HASH_BITS, hash_id
from wukongs.store.term_registry import TermRegistry
from wukongs.wire.assignment import SHARD_BITS, SHARD_COUNT, shards_of

_COUNTED_AT_A_TIME = 1 << 16
_READ_AT_A_TIME = 1 << 18
_IN_SHARD = (1 << (63 - SHARD_BITS)) - 1


def exception_id(text: str, hash_bits: int, used: set[int]) -> int:
    """Return the id of a re-encoded text. used: those of the texts that were re-encoded before it."""
    data = text.encode()
    hashed = hash_id(data, hash_bits, HASH_SEED)
    seed = HASH_SEED + 1
    while True:
        term = (hashed & ~_IN_SHARD) | (hash_id(data, HASH_BITS, seed) & _IN_SHARD)
        if term not in used and term not in (0, hashed):
            return term
        seed += 1


class NodeRegistry(TermRegistry):
    """The registry of a node. Thread-safe, as an embedded one."""

    def re_encode(self, text: str) -> None:
        """Give a text the id that a record of the log has decided on."""
        with self._lock:
            if text not in self.exceptions:
                hashed = hash_id(text.encode(), self.hash_bits)
                self._record_exception(exception_id(text, self.hash_bits, self._exception_ids), text, hashed)

    def new(self, encoded: Encoded) -> TermTable:
        """Return the terms of encoded tuples that this node neither holds nor knows as re-encoded, under their hashes.
        Clashing terms are among them."""
        clashes = encoded.clashes
        with self._lock:
            terms = encoded.terms.take(np.flatnonzero(~self._holds(encoded.terms)))
            if len(clashes):
                terms = TermTable.joined([terms, clashes])  # of those that clash, one may be held
                terms = terms.take(np.flatnonzero([not self._has(text) for text in terms.texts()]))
        if self.exceptions:
            terms = terms.take(np.flatnonzero([text not in self.exceptions for text in terms.texts()]))
        return terms

    def re_encoded_hashes(self) -> Int64Array:
        """Return the hashes of the texts that were re-encoded."""
        return self._exception_hashes

    def _holds(self, terms: TermTable) -> BoolArray:
        held: BoolArray = self.persistent.compare(terms) == EQUAL
        rest = np.flatnonzero(~held)
        if len(rest) and len(self.transient):
            held[rest] = self.transient.compare(terms, rest) == EQUAL
        return held

    def _has(self, text: str) -> bool:
        term = hash_id(text.encode(), self.hash_bits)
        return bool(self.persistent.text_equals(term, text) or self.transient.text_equals(term, text))

    def not_stored(self, terms: TermTable) -> TermTable:
        """Return the terms that no stored triple has."""
        with self._lock:
            return terms.take(np.flatnonzero(self.persistent.compare(terms) != EQUAL))

    def stored(self, shards: BoolArray) -> Iterator[TermTable]:
        """Return the terms of stored triples that stand under their hashes, of these shards. bool[1024]"""
        count, exceptions = len(self.persistent), np.fromiter(self._exception_ids, np.int64)
        for first in range(0, count, _READ_AT_A_TIME):
            table = self.persistent.entries(first, min(first + _READ_AT_A_TIME, count))
            yield table.take(np.flatnonzero(shards[shards_of(table.ids)] & ~np.isin(table.ids, exceptions)))

    def borrow(self, terms: TermTable) -> Int64Array:
        """Hold texts under their final ids, as other nodes have them; return the ids on which a reference was taken.

        Raises DataError (another text has such an id: then one of the nodes is wrong); then nothing was taken."""
        with self._lock:
            rows = np.flatnonzero(self.persistent.compare(terms) != EQUAL)
            refused = rows[self.persistent.contains(terms.ids[rows])]
            if not len(refused):
                refused = self.transient.add(terms, rows)
                taken = terms.ids[rows[~np.isin(rows, refused)]]
                if not len(refused):
                    return taken
                self.transient.release(taken)
            raise _other_text(terms, int(refused[0]))

    def take_over(self, terms: TermTable) -> None:
        """Hold texts for ever under their ids, as other nodes have them. Raises DataError (another text has one)."""
        with self._lock:
            refused = self.persistent.add(terms)
        if len(refused):
            raise _other_text(terms, int(refused[0]))

    def _make_exception(self, hashed: int, text: str) -> int:
        raise AssertionError(f"{text!r} is used, but its hash {hashed} is another text's and no record re-encoded it")


def _other_text(terms: TermTable, row: int) -> DataError:
    text = terms.take(np.array([row])).texts()[0]
    return DataError(
        f"term id {terms.ids[row]} is {text!r} on another node, and another text here: the nodes do not belong to one "
        "cluster, or one of them has started with data of another one"
    )


class TermClaims:
    """The texts that this node has agreed to as a replica. Called by one thread."""

    def __init__(self, registry: NodeRegistry) -> None:
        self._registry = registry
        self._agreed = Dictionary()
        self._by_shard, self._counted = np.zeros(SHARD_COUNT, np.int64), 0
        """How many of the first entries lie in which shard."""
        self._agreed.add(encode_texts([f"<{DEFAULT_GRAPH_IRI}>"], registry.hash_bits).terms)

    def __len__(self) -> int:
        return len(self._agreed)

    def counts_by_shard(self) -> Int64Array:
        """Return how many texts were agreed to, by the shards of their hashes. int64[1024]"""
        end, start = len(self._agreed), self._counted
        for first in range(start, end, _COUNTED_AT_A_TIME):
            stop = min(first + _COUNTED_AT_A_TIME, end)
            self._by_shard += np.bincount(shards_of(self._agreed.entries(first, stop).ids), minlength=SHARD_COUNT)
        self._counted = end
        return self._by_shard.copy()

    def agreed(self, first: int, end: int, shards: BoolArray) -> TermTable:
        """Return what was agreed to, of hashes in these shards, among the entries [first, end)."""
        table = self._agreed.entries(first, end)
        return table.take(np.flatnonzero(shards[shards_of(table.ids)]))

    def take_over(self, table: TermTable) -> None:
        """Agree to what another replica has agreed to; of two texts under one hash the first stays."""
        self._agreed.add(table)

    def compare(self, table: TermTable) -> BoolArray:
        """Tell of each text whether it stands under its hash here, from now on and for ever: bool[n].

        ids : the hashes, repeats allowed."""
        free = np.ones(len(table), np.bool_)
        exceptions = self._registry.exceptions
        if exceptions:
            free &= ~np.isin(table.ids, np.fromiter(exceptions.values(), np.int64))
            doubtful = np.flatnonzero(np.isin(table.ids, self._registry.re_encoded_hashes()))
            texts = table.take(doubtful).texts()
            free[doubtful] &= np.fromiter((text not in exceptions for text in texts), np.bool_, len(texts))
        rows = np.flatnonzero(free)
        while len(rows):  # a dictionary takes each id once in a call
            _, firsts = np.unique(table.ids[rows], return_index=True)
            free[self._agreed.add(table, rows[firsts])] = False
            rows = np.delete(rows, firsts)
        return free
