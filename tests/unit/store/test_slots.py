"""The tables of term ids: how far searches run, by counting. A search passes the slots between the first that it looks
at and the one that it finds."""

from __future__ import annotations

import numpy as np
import pytest

from wukongs.store.dictionary import Dictionary, DictionaryView
from wukongs.store.dictionary_kernels import first_slot, id_of
from wukongs.store.dtypes import ID_BITS, Int64Array
from wukongs.store.encoded import TermTable
from wukongs.store.slot_kernels import fill_slots, mix_id, slot_shift
from wukongs.store.transient_dictionary import TransientDictionary

COUNT = 20_000
TRIES_MAX = 40
"""Linear probing of a table four fifths full takes 3 slots for one that is there, and 13 for one that is not."""


def some_ids(order: str) -> Int64Array:
    """Return distinct ids of hashes: at random; in order, the lowest eighth of them, as a table holds them that is
    filled in that order and has come so far; those of one shard; and numbers that are no hashes at all."""
    rng = np.random.default_rng(7)
    ids = np.unique(rng.integers(1, 1 << (ID_BITS - 1), COUNT)) * 2
    if order == "random":
        rng.shuffle(ids)
    elif order == "ascending":
        ids >>= 3
    elif order == "one shard":
        ids >>= 10
    elif order == "consecutive":
        ids = np.arange(1, COUNT + 1) * 2
    return np.unique(ids & ~np.int64(1)) if order != "random" else ids


ORDERS = ["random", "ascending", "one shard", "consecutive"]


def slots_passed(view: DictionaryView) -> Int64Array:
    """Return, for each entry of a dictionary's index, how many slots a search for it passes."""
    slots = view.slots.astype(np.int64)
    taken = np.flatnonzero(slots)
    entries = (slots[taken] & ((1 << view.number_bits) - 1)) - 1
    ids = [id_of.py_func(view.chunks, entry) for entry in entries]
    first = np.array([first_slot.py_func(term, view.slots) for term in ids])
    passed: Int64Array = (taken - first) % len(slots)
    return passed


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", [Dictionary, TransientDictionary])
def test_a_dictionary_does_not_care_in_which_order_ids_come(
    kind: type[Dictionary | TransientDictionary], order: str
) -> None:
    ids = some_ids(order)
    dictionary = kind()
    texts = [b"<%d>" % number for number in range(len(ids))]
    for start in range(0, len(ids), 1000):
        part = slice(start, start + 1000)
        assert not len(dictionary.add(TermTable.of(ids[part], texts[part])))
    passed = slots_passed(dictionary.view())
    assert passed.mean() < TRIES_MAX, passed.mean()


@pytest.mark.parametrize("order", ORDERS)
def test_a_table_of_an_encoder_does_not_care_in_which_order_ids_come(order: str) -> None:
    ids = some_ids(order)
    slots = np.zeros(1 << (2 * len(ids)).bit_length(), np.int32)
    fill_slots(ids, len(ids), slots)
    taken = np.flatnonzero(slots)
    first = np.array([mix_id.py_func(term) >> slot_shift(slots) for term in ids[slots[taken] - 1]])
    passed = (taken - first) % len(slots)
    assert passed.mean() < 4, passed.mean()


@pytest.mark.nojit
def test_mixed_ids_are_the_same_unjitted() -> None:
    ids = [2, (1 << 63) - 2, 1 << 62, 0x1234_5678_9ABC_DEF0]
    with np.errstate(over="raise"):
        plain = getattr(mix_id, "py_func", mix_id)  # un-jitted, the kernel is the plain function
        found = [int(plain(np.int64(term))) for term in ids]
    assert found == [((((term >> 31) ^ (term >> 1)) % 2**32) * 0x61C88647) % 2**32 for term in ids]
