"""store/dictionary.py: id -> text, persistent and counted."""

from __future__ import annotations

import random
import weakref

import numpy as np
import pytest

from tests.oracles.ntriples import XSD
from wukongs.store import dictionary_kernels, dictionary_write_kernels
from wukongs.store.dictionary import Dictionary
from wukongs.store.encoded import TermTable
from wukongs.store.terms import term_id
from wukongs.store.transient_dictionary import TransientDictionary


def table(texts: list[str], ids: list[int] | None = None) -> TermTable:
    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, data)])
    chosen = ids if ids is not None else [term_id(text) for text in texts]
    return TermTable(np.array(chosen, np.int64), offsets, np.frombuffer(b"".join(data), np.uint8))


@pytest.mark.nojit
@pytest.mark.parametrize("kind", [Dictionary, TransientDictionary])
def test_texts_of_what_was_added(kind: type[Dictionary | TransientDictionary]) -> None:
    dictionary = kind()
    texts = ["<http://a>", '"é€😀"@de', '""@en', "_:sx"]
    assert dictionary.add(table(texts)).tolist() == []
    assert dictionary.add(table(texts[::-1])).tolist() == []
    five = f'"5"^^<{XSD}integer>'
    ids = np.array([term_id(text) for text in [*texts, five, texts[0]]])
    assert dictionary.texts(ids) == [*texts, five, texts[0]]
    assert dictionary.texts(ids[:0]) == []
    assert len(dictionary) == 4
    assert dictionary.contains(np.array([ids[0], term_id("<http://b>"), ids[4], -1])).tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert dictionary.text_equals(int(ids[0]), "<http://a>") is True
    assert dictionary.text_equals(int(ids[0]), "<http://b>") is False
    assert dictionary.text_equals(term_id("<http://b>"), "<http://b>") is None


@pytest.mark.nojit
@pytest.mark.parametrize("kind", [Dictionary, TransientDictionary])
@pytest.mark.parametrize("unknown", [1234, -1, 0])
def test_an_unknown_id_is_named(kind: type[Dictionary | TransientDictionary], unknown: int) -> None:
    dictionary = kind()
    dictionary.add(table(["<http://a>"]))
    with pytest.raises(KeyError, match=f"term id {unknown} is unknown to the dictionary"):
        dictionary.texts(np.array([term_id("<http://a>"), unknown]))


@pytest.mark.nojit
@pytest.mark.parametrize("kind", [Dictionary, TransientDictionary])
def test_a_second_text_for_an_id_is_refused(kind: type[Dictionary | TransientDictionary]) -> None:
    dictionary = kind()
    dictionary.add(table(["one", "two"], [10, 20]))
    assert dictionary.add(table(["two", "on", "six", "one"], [20, 10, 60, 11 << 1])).tolist() == [1]
    assert dictionary.texts(np.array([10, 20, 60, 22])) == ["one", "two", "six", "one"]


def test_growth_and_a_view_taken_before() -> None:
    dictionary = Dictionary()
    texts = [f"<http://example.org/some/longer/path/{i}>" for i in range(20_000)]
    dictionary.add(table(texts[:400]))
    early = dictionary.view()
    for start in range(400, len(texts), 700):
        dictionary.add(table(texts[start : start + 700]))
    ids = np.array([term_id(text) for text in texts])
    assert dictionary.texts(ids) == texts
    assert len(early) == 400
    assert early.texts(ids[:400]) == texts[:400]
    assert early.contains(ids[400:]).sum() == 0
    assert 0 < dictionary.size_bytes < 20 * sum(map(len, texts))


@pytest.mark.nojit
def test_entries_are_read_in_their_order_and_make_the_same_dictionary() -> None:
    dictionary = Dictionary()
    texts = [f'"é{i}"' if i % 3 else f"<http://example.org/{i}>" for i in range(50)]
    dictionary.add(table(texts[:20]))
    dictionary.add(table(texts[10:]))
    chunks = [dictionary.entries(start, min(start + 7, 50)) for start in range(0, 50, 7)]
    assert [text for chunk in chunks for text in chunk.texts()] == texts
    assert all(chunk.offsets[0] == 0 for chunk in chunks)
    assert dictionary.entries(50, 50).texts() == []
    again = Dictionary.of(chunks)
    ids = np.array([term_id(text) for text in texts])
    assert again.texts(ids) == texts
    assert again.entries(0, 50).ids.tolist() == ids.tolist()
    assert again.add(table(["<http://another>"])).tolist() == []
    with pytest.raises(IndexError, match=r"entries \[3, 51\) of a dictionary of 50"):
        dictionary.entries(3, 51)
    with pytest.raises(ValueError, match=f"term id {ids[14]} is in the dictionary twice"):
        Dictionary.of([chunks[0], chunks[2], chunks[2]])


def test_ids_that_crowd_together_are_found() -> None:
    """Ids with equal top bits all want the same slot."""
    ids = [(1 << 62) + 2 * i for i in range(3000)]
    dictionary = Dictionary()
    dictionary.add(table([str(i) for i in ids], ids))
    assert dictionary.texts(np.array(ids)) == [str(i) for i in ids]
    last = [2**63 - 2 * i for i in range(1, 50)]
    dictionary.add(table([str(i) for i in last], last))
    assert dictionary.texts(np.array(last)) == [str(i) for i in last]


@pytest.mark.nojit
def test_a_term_lives_as_long_as_it_is_referred_to() -> None:
    dictionary = TransientDictionary()
    one = np.array([10])
    dictionary.add(table(["one"], [10]))
    dictionary.add(table(["one", "two"], [10, 20]))
    dictionary.release(one)
    assert dictionary.texts(one) == ["one"]
    view = dictionary.view()
    dictionary.release(one)
    assert len(dictionary) == 1
    assert dictionary.text_equals(10, "one") is None
    with pytest.raises(KeyError, match="term id 10 is unknown"):
        dictionary.texts(one)
    assert view.texts(one) == ["one"]
    dictionary.add(table(["one"], [10]))
    assert dictionary.texts(one) == ["one"]


@pytest.mark.nojit
def test_the_id_of_a_dead_term_may_pass_to_another_text() -> None:
    dictionary = TransientDictionary()
    dictionary.add(table(["one", "two"], [10, 20]))
    view = dictionary.view()
    dictionary.release(np.array([10]))
    assert dictionary.add(table(["other", "two", "2"], [10, 20, 30])).tolist() == []
    assert dictionary.texts(np.array([10, 20, 30])) == ["other", "two", "2"]
    assert view.texts(np.array([10, 20])) == ["one", "two"]
    dictionary.release(np.array([20, 20]))
    assert len(dictionary) == 2


def test_releasing_too_often_is_our_own_mistake() -> None:
    dictionary = TransientDictionary()
    dictionary.add(table(["one"], [10]))
    with pytest.raises(AssertionError, match="term id 10 released more often than added"):
        dictionary.release(np.array([10, 10]))


def test_a_long_run_is_bounded_in_memory() -> None:
    dictionary = TransientDictionary()
    held: list[np.ndarray] = []
    sizes = []
    for slice_number in range(300):
        texts = [f"<http://example.org/reading/{slice_number}/{i}>" for i in range(1000)]
        terms = table(texts)
        dictionary.add(terms)
        held.append(terms.ids)
        if len(held) > 5:
            dictionary.release(held.pop(0))
        sizes.append(dictionary.size_bytes)
    assert len(dictionary) == 5000
    assert max(sizes[100:]) < 1.1 * max(sizes[50:100])
    assert dictionary.texts(held[0][:2]) == ["<http://example.org/reading/295/0>", "<http://example.org/reading/295/1>"]


def test_no_call_moves_more_than_two_entries_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while the dictionary grows, nor while all of it is replaced, nor while it shrinks."""
    seen: list[int] = []
    entered: list[int] = []
    take_live, enter_slots = dictionary_write_kernels.take_live, dictionary_write_kernels.enter_slots

    def count_taken(start: int, stop: int, *more: object) -> object:
        seen.append(stop - start)
        return take_live(start, stop, *more)

    def count_entered(chunks: object, count: int, *more: object) -> object:
        entered.append(count)
        return enter_slots(chunks, count, *more)

    monkeypatch.setattr(dictionary_write_kernels, "take_live", count_taken)
    monkeypatch.setattr(dictionary_write_kernels, "enter_slots", count_entered)
    dictionary = TransientDictionary()
    held: list[np.ndarray] = []
    moved = 0
    for number in range(260):
        count = 600 if number % 7 else 40
        terms = table([f"<http://example.org/{number}/{i}>" for i in range(count)])
        dictionary.add(terms)
        assert sum(seen) <= 2 * count
        moved += sum(seen)
        seen.clear()
        held.append(terms.ids)
        while len(held) > (80 if number < 200 else 2):
            gone = held.pop(0)
            dictionary.release(gone)
            assert sum(seen) <= 2 * len(gone)
            moved += sum(seen)
            seen.clear()
    assert moved > 50_000
    assert set(entered) == {0}
    ids = np.concatenate(held)
    assert len(dictionary) == len(ids)
    assert dictionary.contains(ids).all()


def test_random_adds_and_releases_equal_a_dict_of_counts() -> None:
    chance = random.Random(5)
    dictionary = TransientDictionary()
    counts: dict[int, int] = {}
    texts: dict[int, str] = {}
    for _ in range(400):
        if chance.random() < 0.55:
            rows = {chance.randrange(1, 400) << 40: chance.choice("abc") * chance.randrange(1, 400) for _ in range(20)}
            refused = dictionary.add(table(list(rows.values()), list(rows)))
            expected = []
            for place, (term, text) in enumerate(rows.items()):
                if counts.get(term, 0) and texts[term] != text:
                    expected.append(place)
                else:
                    counts[term] = counts.get(term, 0) + 1
                    texts[term] = text
            assert refused.tolist() == expected
        elif any(counts.values()):
            term = chance.choice([term for term, count in counts.items() if count])
            counts[term] -= 1
            dictionary.release(np.array([term]))
    live = [term for term, count in counts.items() if count]
    assert len(dictionary) == len(live) > 50
    assert dictionary.texts(np.array(live)) == [texts[term] for term in live]


@pytest.mark.nojit
def test_kernels_equal_their_py_funcs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[object]:
        found: list[object] = []
        for kind in (Dictionary, TransientDictionary):
            dictionary = kind()
            found.append(dictionary.add(table(["one", "two"], [10, 20])).tolist())
            found.append(dictionary.add(table(["one", "2", "three"], [10, 20, 30])).tolist())
            found.append(dictionary.compare(table(["one", "2", "four"], [10, 20, 40])).tolist())
            if isinstance(dictionary, TransientDictionary):
                dictionary.release(np.array([10, 10]))
            found.append(dictionary.contains(np.array([10, 30])).tolist())
            found.append(dictionary.view().texts(np.array([20, 30, term_id(f'"1.5"^^<{XSD}double>')])))
        return found

    compiled = run()
    reading = ("find_entries", "gather_texts", "flag_live")
    writing = ("add_terms", "compare_terms", "release_terms", "enter_slots", "take_over", "take_live")
    for module, names in ((dictionary_kernels, reading), (dictionary_write_kernels, writing)):
        for name in names:
            kernel = getattr(module, name)
            monkeypatch.setattr(module, name, getattr(kernel, "py_func", kernel))
    assert run() == compiled


def test_a_term_is_resolved_in_a_view_that_lives_as_long_as_the_kernel_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kernels get addresses of texts, and run without the GIL: another thread may add terms meanwhile."""
    dictionary = Dictionary()
    dictionary.add(table(["<http://a>"]))
    compare_text = dictionary_write_kernels.compare_text

    def compare_while_others_add(*args: object) -> tuple[int, int]:
        text = weakref.ref(dictionary.view().owners[0][2])
        dictionary.add(table([f"<http://b/{'b' * 10_000}>"]))
        assert dictionary.view().owners[0][2] is not text(), "the texts have moved to a larger array"
        assert text() is not None, "the kernel reads what was freed"
        found: tuple[int, int] = compare_text(*args)
        return found

    monkeypatch.setattr(dictionary_write_kernels, "compare_text", compare_while_others_add)
    assert dictionary.resolve("<http://a>", 62) == (term_id("<http://a>"), True)


def test_entries_with_so_much_text_at_most() -> None:
    """Over the ends of chunks, too: a copy of all that is left may be more than there is room for."""
    texts = [f"<http://{'x' * (number % 7)}{number}>" for number in range(2 * dictionary_kernels.CHUNK_ENTRIES + 9)]
    dictionary = Dictionary()
    dictionary.add(table(texts))
    ends = np.cumsum([0, *map(len, texts)])
    for start in (0, 5, dictionary_kernels.CHUNK_ENTRIES - 1, dictionary_kernels.CHUNK_ENTRIES, len(texts) - 3):
        for room in (0, 1, 40, 300_000, 500_000, 1 << 40):
            expected = int(np.searchsorted(ends, ends[start] + room, "right")) - 1
            assert dictionary.end_within(start, len(texts), room) == max(start + 1, expected)
            assert dictionary.end_within(start, start + 2, room) == max(start + 1, min(expected, start + 2))
