"""store/term_registry.py: one id per term, whatever the hashes do."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.oracles.ntriples import XSD
from wukongs.store import dictionary_kernels, dictionary_write_kernels
from wukongs.store.dtypes import NO_MATCH, UNBOUND
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import encode_columns
from wukongs.store.term_registry import TermRegistry, term_table, with_texts
from wukongs.store.terms import term_id

P = "<http://p>"


def encode(rows: list[tuple[str, str]], hash_bits: int, graphs: list[str | None] | None = None) -> Encoded:
    subjects, objects = [row[0] for row in rows], [row[1] for row in rows]
    return encode_columns(subjects, [P] * len(rows), objects, graphs=graphs, scope=b"s", hash_bits=hash_bits)


def twins(hash_bits: int, count: int) -> list[str]:
    """Return texts that all have one hash id."""
    groups: dict[int, list[str]] = {}
    for number in range(1 << 20):
        text = f"<http://twin/{number}>"
        group = groups.setdefault(term_id(text, hash_bits), [])
        group.append(text)
        if len(group) == count:
            return group
    raise AssertionError("no twins found")


@pytest.mark.nojit
def test_without_collisions_ids_are_hashes() -> None:
    registry = TermRegistry()
    encoded = encode([("<http://a>", "<http://b>"), ("<http://a>", f'"5"^^<{XSD}integer>')], 62)
    confirmed, taken = registry.confirm(encoded)
    assert confirmed is encoded
    assert taken.tolist() == []
    assert registry.texts(confirmed.objects) == ["<http://b>", f'"5"^^<{XSD}integer>']
    for text in ("<http://a>", "<http://never/seen>", f'"5"^^<{XSD}integer>'):
        assert registry.resolve(text) == term_id(text)
    many = [
        "<http://a>",
        "<http://never/seen>",
        f'"5"^^<{XSD}integer>',
        '"été"',
        '"a"@en',
        '"short"',
        '"' + "x" * 99 + '"',
    ]
    assert registry.resolve_all(many).tolist() == [term_id(text) for text in many]
    assert registry.resolve_all([]).tolist() == []


@pytest.mark.nojit
def test_terms_of_timing_tuples_go_with_their_slice() -> None:
    registry = TermRegistry()
    rows = [("<http://a>", "<http://both>"), ("<http://a>", '"a reading"'), ("<http://b>", "<http://both>")]
    encoded = encode(rows, 62, graphs=[None, "<http://g>", None])
    confirmed, taken = registry.confirm(encoded, np.array([False, True, False]))
    assert sorted(registry.texts(taken)) == ['"a reading"', "<http://g>"]
    assert len(registry.persistent) == 4
    again, also_taken = registry.confirm(encode([("<http://b>", '"a reading"')], 62), np.array([True]))
    assert registry.texts(also_taken) == ['"a reading"']
    reader = registry.snapshot_reader()
    registry.release(taken)
    assert registry.texts(again.objects) == ['"a reading"']
    registry.release(also_taken)
    with pytest.raises(KeyError):
        registry.transient.texts(again.objects)
    assert reader.texts(confirmed.objects) == ["<http://both>", '"a reading"', "<http://both>"]


@pytest.mark.nojit
@pytest.mark.parametrize("first_timing", [False, True])
@pytest.mark.parametrize("second_timing", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_two_texts_with_one_hash(first_timing: bool, second_timing: bool, together: bool) -> None:
    registry = TermRegistry(8)
    first, second, third = twins(8, 3)
    rows, timing = [("<http://s>", first), ("<http://s>", second)], [first_timing, second_timing]
    if together:
        confirmed, _ = registry.confirm(encode(rows, 8), np.array(timing))
        ids = confirmed.objects
    else:
        parts = [registry.confirm(encode([row], 8), np.array([t]))[0] for row, t in zip(rows, timing, strict=True)]
        ids = np.concatenate([part.objects for part in parts])
    assert ids[0] == term_id(first, 8)
    assert ids[1] not in (ids[0], NO_MATCH)
    assert registry.texts(ids) == [first, second]
    assert [registry.resolve(text) for text in (first, second, third)] == [*ids.tolist(), NO_MATCH]
    assert registry.resolve_all([third, first, '"x"', second]).tolist() == [NO_MATCH, ids[0], term_id('"x"'), ids[1]]
    again, _ = registry.confirm(encode([("<http://s>", second), ("<http://s>", first)], 8))
    assert again.objects.tolist() == ids[::-1].tolist()


@pytest.mark.nojit
def test_an_exception_outlives_the_text_that_had_the_hash() -> None:
    registry = TermRegistry(8)
    first, second = twins(8, 2)
    _, taken = registry.confirm(encode([("<http://s>", first)], 8), np.array([True]))
    kept, _ = registry.confirm(encode([("<http://s>", second)], 8), np.array([False]))
    registry.release(taken)
    assert registry.resolve(first) == term_id(first, 8)
    assert registry.resolve_all([first, second]).tolist() == [term_id(first, 8), int(kept.objects[0])]
    again, _ = registry.confirm(encode([("<http://s>", second)], 8))
    assert again.objects.tolist() == kept.objects.tolist() == [registry.resolve(second)]


@pytest.mark.nojit
def test_exceptions_are_records_that_another_registry_can_take() -> None:
    first, second, third = twins(8, 3)
    registry = TermRegistry(8)
    registry.confirm(encode([("<http://s>", first)], 8))
    assert registry.exception_records(0) == []
    confirmed, _ = registry.confirm(encode([("<http://s>", second)], 8))
    (made,) = registry.exception_records(0)
    assert made == (int(confirmed.objects[0]), second)
    later, _ = registry.confirm(encode([("<http://s>", third)], 8), np.array([True]))
    assert registry.exception_records(1) == [(int(later.objects[0]), third)]
    restored = TermRegistry(8)
    restored.restore_exceptions(registry.exception_records(0))
    restored.restore_exceptions(registry.exception_records(1))
    assert restored.exception_records(0) == registry.exception_records(0)
    # A text with an exception has it even where its hash is free, and even before any tuple with it has come.
    assert restored.resolve(second) == made[0]
    again, _ = restored.confirm(encode([("<http://s>", third), ("<http://s>", second)], 8))
    assert again.objects.tolist() == [later.objects[0], made[0]]
    with pytest.raises(ValueError, match="already"):
        restored.restore_exceptions([(made[0] + 2, second)])


@pytest.mark.nojit
def test_the_clash_may_be_the_one_that_is_known() -> None:
    registry = TermRegistry(8)
    first, second = twins(8, 2)
    registry.confirm(encode([("<http://s>", first)], 8))
    confirmed, _ = registry.confirm(encode([("<http://s>", second), ("<http://s>", first)], 8))
    assert registry.texts(confirmed.objects) == [second, first]
    assert confirmed.objects[1] == term_id(first, 8)
    assert len(confirmed.clashes) == 0
    assert sorted(confirmed.terms.texts()) == sorted(["<http://s>", P, first, second])


@pytest.mark.nojit
def test_a_reserved_constant_keeps_its_id() -> None:
    registry = TermRegistry(8)
    first, second = twins(8, 2)
    five = f'"5"^^<{XSD}integer>'
    ids, taken = registry.reserve([first, five])
    assert ids.tolist() == [term_id(first, 8), term_id(five)]
    confirmed, _ = registry.confirm(encode([("<http://s>", second), ("<http://s>", first)], 8))
    assert confirmed.objects[1] == ids[0]
    assert registry.texts(confirmed.objects) == [second, first]
    registry.release(taken)
    assert registry.resolve(first) == ids[0]


@pytest.mark.slow
def test_a_hundred_thousand_terms_with_sixteen_bits_equal_a_dict_of_strings() -> None:
    chance = random.Random(11)
    terms = [f"<http://example.org/{i}>" for i in range(60_000)] + [f'"label {i}"@en' for i in range(40_000)]
    subjects = terms[:60_000]
    registry = TermRegistry(16)
    rows: list[tuple[str, str]] = []
    ids: list[np.ndarray] = []
    for start in range(0, len(terms), 10_000):
        batch = [(chance.choice(subjects), text) for text in terms[start : start + 10_000]]
        timing = np.array([chance.random() < 0.4 for _ in batch])
        confirmed, _ = registry.confirm(encode(batch, 16), timing)
        assert registry.texts(confirmed.subjects) == [subject for subject, _ in batch]
        rows += batch
        ids.append(np.stack((confirmed.subjects, confirmed.objects), axis=1))
    assert len(registry.exceptions) > 20_000
    pairs = np.concatenate(ids)
    assert registry.texts(pairs[:, 1].copy()) == [text for _, text in rows]
    by_id: dict[int, str] = {}
    for (subject, text), (subject_id, text_id) in zip(rows, pairs.tolist(), strict=True):
        assert by_id.setdefault(subject_id, subject) == subject
        assert by_id.setdefault(text_id, text) == text
    assert len(by_id) == len({term for row in rows for term in row})
    by_text = {text: term for term, text in by_id.items()}
    for text in chance.sample(terms, 5000):
        assert registry.resolve(text) == by_text[text]
    wanted = chance.choice(rows)[0]
    found = {registry.texts(pairs[row, 1:])[0] for row in np.flatnonzero(pairs[:, 0] == registry.resolve(wanted))}
    assert found == {text for subject, text in rows if subject == wanted}


def test_readers_go_on_while_a_writer_adds() -> None:
    registry = TermRegistry()
    known: list[tuple[np.ndarray, list[str]]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                for ids, texts in known[-3:]:
                    assert registry.texts(ids) == texts
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(150):
            texts = [f"<http://example.org/{number}/{i}>" for i in range(300)]
            confirmed, _ = registry.confirm(encode([("<http://s>", text) for text in texts], 62))
            known.append((confirmed.objects, texts))
    finally:
        done.set()
    for reader in readers:
        reader.join()
    assert failures == []


@contextmanager
def meanwhile(at: int, action: Callable[[], object]) -> Iterator[list[int]]:
    """Do something else once, before or after a kernel of the dictionaries that this thread calls: at the place `at`
    among all these. Yields a list that has as many elements as there were places."""
    places: list[int] = []
    thread, is_at_it = threading.current_thread(), False

    def pass_place() -> None:
        nonlocal is_at_it
        if threading.current_thread() is not thread or is_at_it:
            return
        places.append(len(places))
        if places[-1] == at:
            is_at_it = True
            action()
            is_at_it = False

    def watched(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            pass_place()
            found = kernel(*arguments)
            pass_place()
            return found

        return call

    reading = ("find_entries", "flag_live")
    writing = ("compare_terms", "compare_text", "add_terms", "take_over", "release_terms", "take_live")
    names = [(dictionary_kernels, name) for name in reading] + [(dictionary_write_kernels, name) for name in writing]
    with ExitStack() as stack:
        for module, name in names:
            stack.enter_context(mock.patch.object(module, name, watched(getattr(module, name))))
        yield places


BITS = 24
FIRST, SECOND = twins(BITS, 2)
MOVES = ("all move", "one moves", "it goes")


class Moving:
    """A registry with a constant of a query, FIRST, in a dictionary that is about to get a new generation. SECOND has
    its hash.

    expected: the ids that the two may have at any moment."""

    def __init__(self, how: str) -> None:
        self.how, self.registry = how, TermRegistry(BITS)
        _, self.taken = self.registry.reserve([FIRST])
        self.come(0, 790)
        self.expected = [(FIRST, {term_id(FIRST, BITS)}), (SECOND, {NO_MATCH})]
        if how == "it goes":
            self.expected[1] = SECOND, {NO_MATCH, term_id(SECOND, BITS)}

    def come(self, start: int, stop: int, *others: str) -> None:
        texts = [*others, *(f"<http://example.org/{number}>" for number in range(start, stop))]
        self.registry.confirm(encode([(text, text) for text in texts], BITS), np.ones(len(texts), np.bool_))

    def move(self) -> None:
        """Make terms move to the new generation, all or one of them, or release the constant."""
        if self.how == "it goes":
            self.registry.release(self.taken)
        elif self.how == "all move":
            self.come(1000, 1900)
        else:
            self.come(1000, 1030, FIRST)

    def wrong(self, found: list[int]) -> list[tuple[str, int]]:
        """Return the texts whose ids, in the order of `expected`, are not theirs."""
        return [(text, term) for (text, allowed), term in zip(self.expected, found, strict=True) if term not in allowed]


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("together", [False, True])
def test_a_term_that_moves_while_it_is_resolved_keeps_its_id(how: str, together: bool) -> None:
    at, places = 0, [0]
    while at < len(places):
        moving = Moving(how)
        registry = moving.registry

        def resolve(registry: TermRegistry = registry) -> list[int]:
            if together:
                return list(map(int, registry.resolve_all([FIRST, SECOND])))
            return [registry.resolve(FIRST), registry.resolve(SECOND)]

        def move(moving: Moving = moving) -> None:
            if not moving.registry._lock.locked():  # else another thread would wait
                moving.move()

        with meanwhile(at, move) as places:
            found = resolve()
        assert moving.wrong(found) == [], f"moved at place {at}"
        at += 1
    assert at > 1


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("together", [False, True])
def test_a_term_that_is_resolved_while_it_moves_keeps_its_id(how: str, together: bool) -> None:
    at, places = 0, [0]
    while at < len(places):
        moving, found = Moving(how), list[int]()

        def resolve(moving: Moving = moving, found: list[int] = found) -> None:
            if together:
                found += moving.registry.resolve_all([FIRST, SECOND]).tolist()
            else:
                found += [moving.registry.resolve(FIRST), moving.registry.resolve(SECOND)]

        reader = threading.Thread(target=resolve)

        def read(reader: threading.Thread = reader) -> None:
            reader.start()
            reader.join(0.05)

        with meanwhile(at, read) as places:
            moving.move()
        reader.join(30)
        assert not reader.is_alive()
        assert moving.wrong(found) == [], f"resolved at place {at}"
        at += 1
    assert at > 1


@pytest.mark.parametrize("hash_bits", [62, 12, 4])
def test_many_terms_at_once_are_known_as_one_by_one(hash_bits: int) -> None:
    registry = TermRegistry(hash_bits)
    texts = ["<a>", "_:b", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', '"short"', '""', '"a long one"@en']
    kept = [*texts, *(f"<http://ex/{number}>" for number in range(40))]
    ids = registry.keep_all([*kept, *kept])
    assert ids.tolist() == 2 * [registry.keep(text) for text in kept]
    asked = [*kept, *(f"<http://ex/{number}>" for number in range(30, 120)), '"2.5"', "<a>"]
    assert registry.known_all(asked).tolist() == [registry.known(text) for text in asked]
    assert (registry.known_all(asked)[len(kept) + 10 : -2] == NO_MATCH).all()
    assert registry.known_all([]).tolist() == []


@pytest.mark.nojit
def test_an_id_is_remembered_only_once_it_can_never_change() -> None:
    registry = TermRegistry(16)
    first, second = twins(16, 2)
    hashed = term_id(first, 16)
    assert registry.resolve(second) == hashed  # nobody has it yet
    _, taken = registry.confirm(encode([(first, first)], 16), np.array([True]))
    assert registry.resolve(first) == hashed
    assert registry.resolve(second) == NO_MATCH
    registry.release(taken)
    registry.confirm(encode([(second, second)], 16))
    assert registry.resolve(second) == hashed
    assert registry.resolve(first) == NO_MATCH
    confirmed, _ = registry.confirm(encode([(first, first)], 16))
    assert registry.resolve(first) == int(confirmed.subjects[0]) != hashed
    for text, term in ((first, int(confirmed.subjects[0])), (second, hashed)):
        assert [registry.resolve(text) for _ in range(3)] == [term] * 3


def test_more_constants_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.store.term_registry.SETTLED_MAX", 3)
    registry = TermRegistry()
    names = [f"<http://a/{number}>" for number in range(10)]
    registry.confirm(encode([(name, name) for name in names], 62))
    for _ in range(2):
        assert [registry.resolve(name) for name in names] == list(map(term_id, names))
        assert len(registry._settled) <= 3


def test_the_terms_of_columns_come_once_with_their_texts_and_inlined_literals_have_none() -> None:
    registry = TermRegistry()
    one = f'"1"^^<{XSD}integer>'
    encoded, _ = registry.confirm(encode([("<http://b>", "<http://a>"), ("<http://a>", one), ("<http://b>", one)], 62))
    columns = [encoded.subjects, encoded.objects, np.array([UNBOUND])]
    table = term_table(columns, registry.snapshot_reader().gather)
    assert sorted(table.texts()) == ["<http://a>", "<http://b>"]
    assert table.ids.tolist() == sorted(term_id(text, 62) for text in table.texts())
    graphs = np.full(3, encoded.predicates[0])
    quads = with_texts((graphs, encoded.subjects, graphs, encoded.objects), registry.snapshot_reader().gather)
    assert sorted(quads.terms.texts()) == ["<http://a>", "<http://b>", P]
    assert quads.graphs.tolist() == graphs.tolist()
