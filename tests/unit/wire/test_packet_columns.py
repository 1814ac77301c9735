"""Fields, texts and tuples in packets: they come as they went, or what is wrong is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.wire.pieces import make_piece, many
from wukongs.errors import DataError
from wukongs.store.dtypes import CLASH_FIRST
from wukongs.store.encoded import Encoded, TermTable
from wukongs.wire.codec import ASK, packet_of, read_packet_header, to_frames
from wukongs.wire.packet_columns import (
    numbers_of,
    term_arrays,
    terms_in,
    text_of,
    texts_in,
    time_of,
    tuples_in,
    tuples_packet,
)
from wukongs.wire.packets import Packet

INT64_MAX = (1 << 63) - 1


def sent(packet: Packet) -> Packet:
    """The packet as the other side has it."""
    frames = [bytes(frame) for frame in to_frames(packet, ASK, 1)]
    return packet_of(read_packet_header(frames), frames)


def tuples(count: int, hash_bits: int = 62, time: int | None = 7) -> Encoded:
    encoded = make_piece(many(count), hash_bits=hash_bits).encoded
    times = np.empty(0, np.int64) if time is None else np.full(count, time)
    return replace(encoded, timestamps=times)


def texts(encoded: Encoded) -> tuple[list[str], list[str]]:
    return encoded.terms.texts(), encoded.clashes.texts()


def assert_same(found: Sequence[Encoded], given: Sequence[Encoded]) -> None:
    assert len(found) == len(given)
    for one, other in zip(found, given, strict=True):
        for name in ("subjects", "predicates", "objects", "graphs", "timestamps", "goes"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
        assert one.terms.ids.tolist() == other.terms.ids.tolist()
        assert one.clashes.ids.tolist() == other.clashes.ids.tolist()
        assert texts(one) == texts(other)


@pytest.mark.parametrize("time", [None, -5])
def test_groups_of_tuples_come_as_they_went(time: int | None) -> None:
    """Each with its own terms: one hash may stand for two texts."""
    groups = [tuples(40, 6, time), tuples(0, time=time), tuples(3, time=time), tuples(9, 4, time)]
    assert len(groups[0].clashes), "some texts clash"
    assert groups[0].subjects.min() <= CLASH_FIRST
    packet = sent(tuples_packet("x", groups, more=1))
    assert packet.fields["more"] == 1
    assert_same(tuples_in(packet), groups)
    for some in ([groups[2]], []):
        assert_same(tuples_in(sent(tuples_packet("x", some))), some)


def test_groups_of_which_some_have_retractions_come_as_they_went() -> None:
    groups = [tuples(2), replace(tuples(3), goes=np.array([False, True, False])), tuples(0)]
    packet = sent(tuples_packet("x", groups))
    assert_same(tuples_in(packet), groups)
    assert "goes" not in tuples_packet("x", [groups[0]]).arrays
    for wrong in (np.zeros(4, np.bool_), np.zeros(5, np.int64)):
        with pytest.raises(DataError, match="array goes: expected bool"):
            tuples_in(Packet("x", packet.fields, {**packet.arrays, "goes": wrong}))


def test_what_is_sent_is_no_part_of_what_stays() -> None:
    group = tuples(2)
    (found,) = tuples_in(tuples_packet("x", [group]))
    assert found.subjects.flags.writeable
    assert not np.shares_memory(found.subjects, group.subjects)
    assert not np.shares_memory(found.terms.text, group.terms.text)


GOOD = tuples_packet("x", [tuples(2), tuples(1)])


@pytest.mark.parametrize(
    ("fields", "arrays", "expected"),
    [
        ({"sizes": 7}, {}, "x: sizes = 7: expected the numbers of rows, terms and clashes"),
        ({"sizes": [[1, 2]]}, {}, "expected the numbers of rows, terms and clashes"),
        ({"sizes": [[1, 2, -1]]}, {}, "expected the numbers of rows, terms and clashes"),
        ({"sizes": [[True, 2, 1]]}, {}, "expected the numbers of rows, terms and clashes"),
        ({"sizes": [[2, 5, 0]]}, {}, "array subjects: expected int64.2., found int64.3."),
        ({"sizes": [[1 << 80, 5, 0]]}, {}, "array subjects: expected int64"),
        ({"sizes": [[3, 5, 0]]}, {}, "sizes of 5 terms and 0 clashes, found 9 and 0"),
        ({"sizes": [[3, 9, 1]]}, {}, "sizes of 9 terms and 1 clashes, found 9 and 0"),
        ({"sizes": [[2, 4, 0], [1, 5, 0]]}, {}, "expected the text of every term, found . without"),
        ({}, {"graphs": np.zeros(3, np.int32)}, "array graphs: expected int64.3., found int32.3."),
        ({}, {"timestamps": np.zeros(2, np.int64)}, "array timestamps: expected int64.3., found int64.2."),
        ({}, {"objects": np.array([1, -9, 1])}, "x: expected term ids in objects, found -9"),
        ({}, {"term_text": np.zeros(3, np.int64)}, "array term_text: expected uint8.n., found int64.3."),
        ({}, {"term_offsets": np.zeros(10, np.int64)}, "term_offsets do not divide"),
        ({}, {"clash_ids": np.zeros(1, np.int64)}, "array clash_text: expected uint8.n., found none"),
    ],
)
def test_wrong_tuples_are_named(fields: dict[str, Any], arrays: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        tuples_in(Packet("x", {**GOOD.fields, **fields}, {**GOOD.arrays, **arrays}))


@pytest.mark.parametrize("name", sorted(GOOD.arrays))
def test_a_missing_array_is_named(name: str) -> None:
    arrays = {one: array for one, array in GOOD.arrays.items() if one != name}
    if name == "timestamps":
        assert [len(group.timestamps) for group in tuples_in(Packet("x", GOOD.fields, arrays))] == [0, 0]
    else:
        with pytest.raises(DataError, match=f"array {name}: expected .*, found none"):
            tuples_in(Packet("x", GOOD.fields, arrays))


def test_flipped_bits_are_named_or_harmless() -> None:
    random, good = np.random.default_rng(5), tuples_packet("x", [tuples(20, 5), tuples(3)])
    names = sorted(good.arrays)
    for _ in range(2000):
        name = names[int(random.integers(len(names)))]
        torn = good.arrays[name].copy()
        torn.view(np.uint8)[int(random.integers(torn.nbytes))] ^= 1 << int(random.integers(8))
        try:
            found = tuples_in(Packet("x", good.fields, {**good.arrays, name: torn}))
        except DataError:
            continue
        assert [len(group) for group in found] == [20, 3]
        assert [len(texts(group)[0]) for group in found] == [len(group.terms) for group in found]


@pytest.mark.parametrize(
    "offsets", [[0, INT64_MAX, 100 - INT64_MAX, 6], [0, 5, 3, 6], [-1, 1, 2, 6], [0, 1, 2, 5], [0, 1, 6]]
)
def test_offsets_that_divide_nothing_are_refused(offsets: list[int]) -> None:
    """Of the first ones, each difference overflows to a number that is not negative."""
    text = np.frombuffer(b"abcdef", np.uint8)
    arrays = {"ids": np.array([4, 8, 12]), "offsets": np.array(offsets), "text": text}
    with pytest.raises(DataError):
        terms_in(Packet("x", {}, arrays), "")
    assert not TermTable(*arrays.values()).is_divided


def test_texts_are_whole_characters() -> None:
    text = np.frombuffer("aé".encode(), np.uint8)
    good = {"offsets": np.array([0, 1, 3]), "text": text}
    assert texts_in(Packet("x", {}, good), 2)[0].tobytes().decode() == "aé"
    for changed, expected in (
        ({"offsets": np.array([0, 2, 3])}, "a text begins within a character"),
        ({"text": np.array([97, 255, 98], np.uint8)}, "the text is no UTF-8"),
    ):
        with pytest.raises(DataError, match=expected):
            texts_in(Packet("x", {}, {**good, **changed}), 2)


def test_a_field_of_another_kind_is_named() -> None:
    for read, value, expected in (
        (lambda packet: text_of(packet, "a"), 5, "x: a = 5: expected a text"),
        (lambda packet: time_of(packet, "a"), 1.5, "x: a = 1.5: expected a time in milliseconds"),
        (lambda packet: time_of(packet, "a"), 1 << 63, "expected a time in milliseconds"),
        (lambda packet: numbers_of(packet, "a", 1), "b", "x: a = b: expected a list of integers"),
        (lambda packet: numbers_of(packet, "a", 1), [True], "expected a list of integers"),
        (lambda packet: numbers_of(packet, "a", 1), [1 << 63], "expected a list of integers"),
        (lambda packet: numbers_of(packet, "a", 1), [1, 2], "x: a: expected 1 integers, found 2"),
    ):
        with pytest.raises(DataError, match=expected):
            read(Packet("x", {"a": value}))
    assert time_of(Packet("x", {"a": -5}), "a") == -5


def test_tables_of_terms_are_joined_and_parted() -> None:
    tables = [TermTable.of(np.array([1, 2]), [b"a", b"bc"]), TermTable.empty(), TermTable.of(np.array([1]), [b"def"])]
    joined = TermTable.joined(tables)
    assert (joined.ids.tolist(), joined.texts()) == ([1, 2, 1], ["a", "bc", "def"])
    assert joined.is_divided
    assert joined.part(1, 3).texts() == ["bc", "def"]
    assert joined.part(1, 3).is_divided
    assert len(joined.part(3, 3)) == len(TermTable.joined([])) == 0
    assert sorted(term_arrays(joined, "")) == ["ids", "offsets", "text"]
