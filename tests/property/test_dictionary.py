"""store/dictionary.py and store/transient_dictionary.py against a dict, with ids that many texts want."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.fuzz import fuzzed
from tests.oracles.dictionary import NaiveDictionary
from wukongs.store import dictionary, transient_dictionary
from wukongs.store.dictionary import Dictionary, DictionaryView
from wukongs.store.dictionary_write_kernels import ADDED, EQUAL, REFUSED, REFUSED_BY_DEAD
from wukongs.store.encoded import TermTable
from wukongs.store.terms import hash_id
from wukongs.store.transient_dictionary import TransientDictionary

STATUS = {ADDED: "added", EQUAL: "equal", REFUSED: "refused", REFUSED_BY_DEAD: "added"}
PLACES = st.integers(0, 59)


@cache
def crowded(hash_bits: int) -> list[tuple[int, str]]:
    """Return 60 terms (id, text), most of which share their id with another."""
    groups: dict[int, list[tuple[int, str]]] = {}
    for number in range(4000):
        text = f"<http://example.org/{'x' * (number % 90)}{number}>"
        term = hash_id(text.encode(), hash_bits)
        groups.setdefault(term, []).append((term, text))
    largest = sorted(groups.values(), key=len, reverse=True)
    return [term for group in largest for term in group[:4]][:60]


def table(terms: list[tuple[int, str]]) -> TermTable:
    texts = [text.encode() for _, text in terms]
    offsets = np.cumsum([0, *map(len, texts)])
    data = np.frombuffer(b"".join(texts), np.uint8)
    return TermTable(np.array([term for term, _ in terms], np.int64), offsets, data)


class DictionaryMachine(RuleBasedStateMachine):
    """Small tables, so that a few additions make the index grow, and a few releases make a generation old."""

    hash_bits = 4
    counted = True

    def __init__(self) -> None:
        super().__init__()
        self._patches = [
            patch.object(dictionary, "_SLOTS_MIN", 4),
            patch.object(transient_dictionary, "_DEAD_BYTES_MIN", 100),
        ]
        for each in self._patches:
            each.start()
        self._terms = crowded(self.hash_bits)
        self._dictionary = TransientDictionary() if self.counted else Dictionary()
        self._naive = NaiveDictionary(self.counted)
        self._views: list[tuple[DictionaryView, dict[int, str]]] = []

    def teardown(self) -> None:
        for each in self._patches:
            each.stop()

    @rule(places=st.lists(PLACES, max_size=25), left_out=st.sets(PLACES, max_size=10))
    def add(self, places: list[int], left_out: set[int]) -> None:
        chosen = dict(self._terms[place % len(self._terms)] for place in places)
        terms = list(chosen.items())
        rows = [row for row in range(len(terms)) if row not in left_out]
        asked = [terms[row] for row in rows]
        given = table(terms), np.array(rows, np.int64)
        found = [STATUS[status] for status in self._dictionary.compare(*given).tolist()]
        assert found == [self._naive.would(*term) for term in asked]
        assert self._dictionary.add(*given).tolist() == [rows[place] for place in self._naive.add(asked)]

    @precondition(lambda self: self.counted)
    @rule(data=st.data(), share=st.sampled_from([0.1, 0.5, 1.0]))
    def release(self, data: st.DataObject, share: float) -> None:
        held = data.draw(st.permutations(self._naive.references()))
        gone = held[: round(len(held) * share)]
        self._dictionary.release(np.array(gone, np.int64))
        for term in gone:
            self._naive.release(term)

    @rule()
    def take_view(self) -> None:
        self._views.append((self._dictionary.view(), self._naive.texts()))

    @rule()
    def read_views(self) -> None:
        for view, held in self._views:
            ids = np.array(list(held), np.int64)
            assert view.texts(ids) == list(held.values())
            assert view.contains(ids).all()

    @invariant()
    def same_as_a_dict(self) -> None:
        held = self._naive.texts()
        assert len(self._dictionary) == len(held)
        assert self._dictionary.texts(np.array(list(held), np.int64)) == list(held.values())
        ids = [term for term, _ in self._terms]
        assert self._dictionary.contains(np.array(ids)).tolist() == [term in held for term in ids]
        term, text = self._terms[len(held) % len(self._terms)]
        assert self._dictionary.text_equals(term, text) == (held[term] == text if term in held else None)


class CrowdedDictionaryMachine(DictionaryMachine):
    counted = False


class SparseTransientMachine(DictionaryMachine):
    hash_bits = 16


class SparseDictionaryMachine(DictionaryMachine):
    hash_bits = 16
    counted = False


for machine in (DictionaryMachine, CrowdedDictionaryMachine, SparseTransientMachine, SparseDictionaryMachine):
    machine.TestCase.settings = fuzzed(40 if machine.counted else 15, steps=40)
TestTransientFour = DictionaryMachine.TestCase
TestPersistentFour = CrowdedDictionaryMachine.TestCase
TestTransientSixteen = SparseTransientMachine.TestCase
TestPersistentSixteen = SparseDictionaryMachine.TestCase
