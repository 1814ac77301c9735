"""Terms that this node does not know: their texts, and the ids by which other nodes know texts.

An id is the hash of a text, so nodes agree on ids without asking. Where two texts have one hash, the cluster settles
which of them keeps it, and every node knows the outcome (TermRegistry.exceptions). One case remains: a text that no
data has. Its hash may be that of another text, and only nodes that know the other text can tell. So an unknown text is
asked of the node that answers for the id. If that node does not know it either, all nodes are asked: predicates, names
of graphs and objects of split predicates are known where they stand, which need not be where their own shard is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from wukongs.cluster.reads import requests
from wukongs.cluster.reads.traffic import Owners
from wukongs.errors import DataError, NodeUnavailable
from wukongs.query.limits import OBJECT_BYTES, current
from wukongs.query.terms.arrow_texts import interleaved
from wukongs.store.dictionary import Dictionary, join_texts, split_texts
from wukongs.store.dtypes import CLASH_FIRST, INLINE_MARK, UNBOUND, BoolArray, Int64Array, UInt8Array
from wukongs.store.encoded import Encoded, TermTable, replace_ids
from wukongs.store.term_registry import SETTLED_CHARACTERS_MAX, SETTLED_MAX, TermReader, TermRegistry
from wukongs.wire.assignment import Assignment
from wukongs.wire.packet_columns import count_of, ids_of, texts_in
from wukongs.wire.packets import Packet

ASKED_MAX = 1 << 16
"""So many ids or texts go in one question."""
Question = tuple[int, Int64Array]
"""(node, places of what it is asked)"""


def _of_owners(assignment: Assignment, ids: Int64Array) -> list[Question]:
    """Ask each id of the node that answers for it."""
    owners = assignment.of(ids)
    questions = ((node, np.flatnonzero(owners == node)) for node in assignment.others)
    return [(node, places) for node, places in questions if len(places)]


def _of_all(assignment: Assignment, ids: Int64Array) -> list[Question]:
    """Ask each id of all other nodes."""
    return [(node, np.arange(len(ids))) for node in assignment.others if len(ids)]


_ROUNDS: tuple[Callable[[Assignment, Int64Array], list[Question]], ...] = (_of_owners, _of_all)


class DistantIds:
    """The ids by which the cluster knows texts: wukongs.query.terms.query_terms.TermKeeper."""

    def __init__(self, registry: TermRegistry, owners: Owners, keep_all: Callable[[Sequence[str]], Int64Array]) -> None:
        """keep_all: makes terms known for ever in the whole cluster; see TermRegistry.keep_all."""
        self._registry = registry
        self._owners = owners
        self.keep_all = keep_all
        self._settled: dict[str, int] = {}
        """Texts that another node knows for ever."""

    def resolve(self, canonical: str) -> int:
        """Return the id of a text, as TermRegistry.resolve does. Raises NodeUnavailable."""
        settled = self._settled.get(canonical, self._registry.settled(canonical))
        return int(self.resolve_all([canonical])[0]) if settled is None else settled

    def resolve_all(self, texts: Sequence[str]) -> Int64Array:
        """Return the ids of texts, as TermRegistry.resolve_all does. Raises NodeUnavailable."""
        ids = self._registry.resolve_all(texts)
        hashed = np.flatnonzero((ids >= 0) & (ids & INLINE_MARK == 0))
        unknown = hashed[~self._registry.snapshot_reader().contains(ids[hashed])]
        asked = []
        for row in unknown.tolist():
            known = self._settled.get(texts[row])
            if known is None:
                asked.append(row)
            else:
                ids[row] = known
        for start in range(0, len(asked), ASKED_MAX):
            some = asked[start : start + ASKED_MAX]
            ids[some] = self._ask([texts[row] for row in some], ids[some])
        return ids

    def known(self, text: str) -> int:
        """Return an id that no other term has; NO_MATCH for a term that no stored tuple can hold."""
        return self.resolve(text)

    def known_all(self, texts: Sequence[str]) -> Int64Array:
        """Do the same as known, for many terms at once."""
        return self.resolve_all(texts)

    def keep(self, text: str) -> int:
        """Do the same as keep_all, for one text."""
        return int(self.keep_all([text])[0])

    def confirm(self, encoded: Encoded) -> tuple[Encoded, Int64Array]:
        """Make terms known as TermRegistry.confirm does; all tuples are timeless."""
        terms, clashes = encoded.terms, encoded.clashes
        ids, others = self.keep_all(terms.texts()), self.keep_all(clashes.texts())
        old = np.concatenate((terms.ids, CLASH_FIRST - np.arange(len(others))))
        new = np.concatenate((ids, others))
        names = "graphs", "subjects", "predicates", "objects"
        columns: dict[str, Any] = {name: replace_ids(getattr(encoded, name), old, new) for name in names}
        table = TermTable(
            new,
            np.concatenate((terms.offsets, terms.offsets[-1] + clashes.offsets[1:])),
            np.concatenate((terms.text, clashes.text)),
        )
        return replace(encoded, **columns, terms=table, clashes=TermTable.empty()), np.empty(0, np.int64)

    def _ask(self, texts: Sequence[str], hashes: Int64Array) -> Int64Array:
        """Return by which ids other nodes know texts, NO_MATCH if another text has its hash, else the hash."""
        assignment = self._owners.assignment()
        found = np.full(len(texts), UNBOUND, np.int64)
        for questions_of in _ROUNDS:
            left = np.flatnonzero(found == UNBOUND)
            questions = [(node, left[places]) for node, places in questions_of(assignment, hashes[left])]
            packets = [(node, _resolve_packet([texts[at] for at in places.tolist()])) for node, places in questions]
            for (node, places), answer in zip(questions, self._owners.ask(packets) if packets else (), strict=True):
                ids, lasting = requests.checked(node, answer, partial(requests.known_ids, count=len(places)))
                found[places] = np.where(ids == UNBOUND, found[places], ids)
                self._settle((texts[at], int(found[at])) for at in places[lasting & (ids >= 0)].tolist())
        return np.where(found == UNBOUND, hashes, found)

    def _settle(self, known: Iterable[tuple[str, int]]) -> None:
        for text, term in known:
            if len(text) <= SETTLED_CHARACTERS_MAX:
                if len(self._settled) >= SETTLED_MAX:
                    self._settled.clear()
                self._settled[text] = term


def _resolve_packet(texts: Sequence[str]) -> Packet:
    text, offsets = join_texts(texts)
    return Packet(requests.RESOLVE, {"count": len(texts)}, {"text": text, "offsets": offsets})


class DistantReader:
    """A `Utf8Reader` of this node's texts and those of other nodes, which are kept once they have come. Thread-safe: a
    result holds one."""

    def __init__(self, own: TermReader, owners: Owners) -> None:
        self._own = own
        self._owners = owners
        self._fetched: Dictionary | None = None
        """Made when something is fetched: most results need none."""
        self._learned: list[TermTable] = []
        """Texts that have come with answers, and are not in `_fetched` yet."""
        self._lock = threading.Lock()

    def contains(self, ids: Int64Array) -> BoolArray:
        """Tell of each id whether its text is here by now."""
        found = self._own.contains(ids)
        with self._lock:
            fetched = self._known()
        return found if fetched is None else found | fetched.contains(ids)

    def learn(self, answer: Packet, asked: Sequence[Int64Array]) -> None:
        """Keep the texts that come with an answer, of ids in its columns. Raises DataError."""
        table = _table_of(answer, np.concatenate(asked))
        with self._lock:
            self._learned.append(table)

    def has(self, terms: TermTable) -> BoolArray:
        """Tell of each term whether its id has this text on this node."""
        return self._own.has(terms)

    def texts(self, ids: Int64Array) -> list[str]:
        """Return the canonical forms of ids. Raises NodeUnavailable, also for an id that no node knows."""
        return split_texts(*self.gather(ids))

    def gather(self, ids: Int64Array) -> tuple[UInt8Array, Int64Array]:
        """Return the texts of ids as UTF-8, one after the other: (text uint8[n_bytes], offsets int64[n + 1])."""
        is_own = self._own.contains(ids)
        if is_own.all():
            return self._own.gather(ids)
        others = ids[~is_own]
        with self._lock:
            view = self._fetch(others).view()
        if not is_own.any():
            return view.gather(ids)
        return interleaved(is_own, self._own.gather(ids[is_own]), view.gather(others))

    def _fetch(self, ids: Int64Array) -> Dictionary:
        fetched = self._known()
        if fetched is None:
            fetched = self._fetched = Dictionary()
        asked = np.unique(ids)
        asked = asked[~fetched.contains(asked)]
        if not len(asked):
            return fetched
        assignment = self._owners.assignment()
        for questions_of in _ROUNDS:
            for start in range(0, len(asked), ASKED_MAX):
                some = asked[start : start + ASKED_MAX]
                self._ask([(node, some[places]) for node, places in questions_of(assignment, some)], fetched)
            asked = asked[~fetched.contains(asked)]
        if len(asked):
            raise NodeUnavailable(
                f"no node knows the text of term id {asked[0]} (and {len(asked) - 1} others): what a window held may "
                "be gone by now; else a node that has it is away. Ask again"
            )
        return fetched

    def _known(self) -> Dictionary | None:
        """Return the texts that have come, None: no dictionary is needed yet."""
        for table in self._learned:
            if self._fetched is None:
                self._fetched = Dictionary()
            try:
                _add(self._fetched, table)
            except DataError as error:
                raise NodeUnavailable(f"{error.message}. Check that all nodes run the same version") from error
        self._learned.clear()
        return self._fetched

    def _ask(self, questions: list[Question], into: Dictionary) -> None:
        """Ask nodes for texts until each has come to the end of what it was asked."""
        while questions:
            answers = self._owners.ask([(node, Packet(requests.TEXTS, {}, {"ids": ids})) for node, ids in questions])
            left = []
            for (node, ids), answer in zip(questions, answers, strict=True):
                done = requests.checked(node, answer, partial(self._take, into, asked=ids))
                if done < len(ids):
                    left.append((node, ids[done:]))
            questions = left

    def _take(self, into: Dictionary, answer: Packet, asked: Int64Array) -> int:
        """Keep the texts of an answer; return to how many of the ids it has come. Raises DataError."""
        done = count_of(answer, "done", len(asked))
        if done == 0 and len(asked):
            raise DataError(f"{answer.kind}: texts of no ids")
        _add(into, _table_of(answer, asked))
        return done


def _table_of(answer: Packet, asked: Int64Array) -> TermTable:
    """Return the texts of an answer, which are of some of the ids that were asked for. Raises DataError."""
    ids = ids_of(answer, "ids")
    if not np.isin(ids, asked).all():
        raise DataError(f"{answer.kind}: texts of other ids")
    text, offsets = texts_in(answer, len(ids))
    current().keep(len(text) + OBJECT_BYTES * len(ids))
    return TermTable(ids, offsets, text)


def _add(known: Dictionary, table: TermTable) -> None:
    if len(known.add(table)):
        raise DataError("other nodes know one term id by two texts")
