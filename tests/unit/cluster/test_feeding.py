"""What writers tell nodes: it comes as it went, and what is wrong in it is named and takes no node down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.cluster.wires import EX, STREAM, encoded, wired
from tests.unit.wire.test_packet_columns import assert_same, sent
from wukongs.cluster import intake
from wukongs.cluster.changes import STAGE
from wukongs.cluster.feeding import FEED, Fed, feds_in, feds_packet, index_of, pieces_in, view_of
from wukongs.cluster.pushing import PUSH
from wukongs.errors import DataError, WukongsError
from wukongs.live.pieces import Open, Piece
from wukongs.store.encoded import Encoded
from wukongs.wire.packet_columns import tuples_packet
from wukongs.wire.packets import Packet

P = "p"
PLACES = np.array([0, 2, 5])


def piece(first: int, number: int, *names: str, places: Any = None) -> Piece:
    rows = encoded(*((name, number * 100) for name in names))
    end = first + (max(1, len(rows)) if places is None else 6)
    timing = np.arange(len(rows)) % 2 == 0
    return Piece(STREAM, P, 4, first, end, 0, number, rows, timing, places)


def fed(*pieces: Piece, **said: Any) -> Fed:
    return Fed(STREAM, P, 4, pieces, **said)


def assert_told(found: Fed, given: Fed) -> None:
    names = ("stream", "partition", "epoch", "end_offset", "complete_ms", "is_last", "is_opening")
    assert [getattr(found, name) for name in names] == [getattr(given, name) for name in names]
    assert_same([one.encoded for one in found.pieces], [one.encoded for one in given.pieces])
    for one, other in zip(found.pieces, given.pieces, strict=True):
        named = ("stream", "partition", "epoch", "first_offset", "end_offset", "batch_number")
        assert [getattr(one, name) for name in named] == [getattr(other, name) for name in named]
        assert one.timing.tolist() == other.timing.tolist()
        assert one.row_places().tolist() == other.row_places().tolist()


@pytest.mark.parametrize(
    "told",
    [
        fed(),
        fed(end_offset=7, complete_ms=-3),
        fed(is_last=True),
        fed(end_offset=0, complete_ms=5, is_last=True),
        fed(piece(0, 1, "a", "b"), piece(2, 3, "c"), end_offset=3, complete_ms=299),
        fed(piece(0, 1, "a", "b", "c", places=PLACES), piece(6, 2), piece(12, 3, "d", places=PLACES[1:2])),
    ],
)
def test_what_a_writer_tells_comes_as_it_went(told: Fed) -> None:
    packet = sent(feds_packet([told], 9, 3))
    assert (packet.kind, index_of(packet), view_of(packet)) == (FEED, 9, 3)
    assert view_of(feds_packet([told], 9)) is None
    (found,) = feds_in(packet)
    assert_told(found, told)


def test_only_who_writes_is_an_opening() -> None:
    assert fed().is_opening
    assert not any(one.is_opening for one in (fed(piece(0, 1, "a")), fed(complete_ms=0), fed(is_last=True)))


def test_many_pieces_are_told_in_parts_and_only_the_last_part_says_that_they_are_complete() -> None:
    pieces = [piece(at, at + 1, "a") for at in range(5)]
    told = fed(*pieces, end_offset=5, complete_ms=499)
    parts = told.parts(2)
    assert [len(part.pieces) for part in parts] == [2, 2, 1]
    assert [part.complete_ms for part in parts] == [None, None, 499]
    assert [one for part in parts for one in part.pieces] == pieces
    (only,) = fed(is_last=True).parts(2)
    assert only.is_last


GOOD = feds_packet([fed(piece(0, 1, "a", "b"), piece(2, 3, "c"), end_offset=3, complete_ms=299)], 0)


@pytest.mark.parametrize(
    ("fields", "arrays", "expected"),
    [
        ({"feds": [3]}, {}, "feed: feds = .3.: expected a list of objects"),
        ({"first_offsets": [0, 3, 4]}, {}, "feed: first_offsets: expected 2 integers, found 3"),
        ({"first_offsets": [0, 3]}, {}, "expected 0 <= first offset < end offset, found 3 and 3"),
        ({"first_offsets": [-1, 2]}, {}, "expected 0 <= first offset < end offset, found -1 and 2"),
        ({"batch_numbers": [0.5, 1]}, {}, "feed: batch_numbers = .*: expected a list of integers"),
        ({"end_offsets": None}, {}, "feed: end_offsets = None: expected a list of integers"),
        ({}, {"timing": np.zeros(2, np.bool_)}, "feed: array timing: expected bool.3., found bool.2."),
        ({}, {"timing": np.zeros(3, np.uint8)}, "feed: array timing: expected bool.3., found uint8.3."),
        ({}, {"places": np.zeros(2, np.int64)}, "feed: array places: expected int64.3., found int64.2."),
        ({}, {"places": np.array([1, 1, 0])}, "feed: expected ascending places in a share"),
        ({}, {"places": np.array([-1, 1, 0])}, "feed: expected ascending places in a share"),
        ({}, {"subjects": np.zeros(4, np.int64)}, "feed: array subjects: expected int64.3., found int64.4."),
    ],
)
def test_what_is_wrong_in_a_message_is_named(fields: dict[str, Any], arrays: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        feds_in(Packet(FEED, {**GOOD.fields, **fields}, {**GOOD.arrays, **arrays}))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stream": None}, "feed: stream = None: expected a text"),
        ({"partition": 3}, "feed: partition = 3: expected a text"),
        ({"epoch": -1}, "feed: epoch = -1: expected an integer"),
        ({"complete_ms": "x"}, "feed: complete_ms = 'x': expected a time"),
        ({"end_offset": None}, "feed: end_offset = None: expected an integer"),
        ({"piece_count": None}, "feed: piece_count = None: expected an integer"),
        ({"piece_count": 3}, "feed: expected 3 pieces, found 2"),
    ],
)
def test_what_is_wrong_in_what_one_writer_says_is_named(fields: dict[str, Any], expected: str) -> None:
    (said,) = GOOD.fields["feds"]
    with pytest.raises(DataError, match=expected):
        feds_in(Packet(FEED, {**GOOD.fields, "feds": [{**said, **fields}]}, GOOD.arrays))


def test_what_several_writers_tell_comes_as_it_went() -> None:
    other = replace(piece(5, 2, "x", "y", places=PLACES[:2]), stream=EX + "other", epoch=9)
    told = [
        fed(piece(0, 1, "a", "b"), piece(2, 3, "c"), end_offset=3, complete_ms=299),
        Fed(EX + "other", P, 9, [other], first_ms=150, late_count=2, dropped_count=1),
        Fed(EX + "third", P, 2, end_offset=7, complete_ms=1000),
    ]
    found = feds_in(sent(feds_packet(told, 9, 3)))
    for one, given in zip(found, told, strict=True):
        assert_told(one, given)
        assert (one.first_ms, one.late_count, one.dropped_count) == (
            given.first_ms,
            given.late_count,
            given.dropped_count,
        )


def test_pieces_without_their_writer_are_refused() -> None:
    with pytest.raises(DataError, match="feed: stream = None: expected a text"):
        pieces_in(GOOD)


STRANGE = [None, True, -1, 1 << 70, 1.5, "x", [], [None], [[1]], [[0, 0, 0]], {}]
ARRAYS = [np.empty(0, np.int64), np.array([-1]), np.array([1 << 62] * 3), np.zeros(3, np.int32), np.zeros(2, np.bool_)]


def torn(packet: Packet) -> Iterator[Packet]:
    """The packet with one field or array that is another, or not there."""

    def without(all_of: Mapping[str, Any], name: str) -> dict[str, Any]:
        return {one: value for one, value in all_of.items() if one != name}

    for name in packet.fields:
        yield Packet(packet.kind, without(packet.fields, name), packet.arrays)
        for value in STRANGE:
            yield Packet(packet.kind, {**packet.fields, name: value}, packet.arrays)
        if name in ("feds", "orders"):
            (said,) = packet.fields[name]
            for part in said:
                for one in (without(said, part), *({**said, part: value} for value in STRANGE)):
                    yield Packet(packet.kind, {**packet.fields, name: [one]}, packet.arrays)
    for name in packet.arrays:
        yield Packet(packet.kind, packet.fields, without(packet.arrays, name))
        for array in ARRAYS:
            yield Packet(packet.kind, packet.fields, {**packet.arrays, name: array})


def test_no_torn_message_of_a_node_ends_in_anything_but_a_named_error_or_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "DECLARED_S", 0.01)
    with wired(1) as wires:
        node, handlers = wires.nodes[0], wires.networks[0].handlers
        node.engine.stream(STREAM, batch_ms=100)
        node.intake.open_partition(Open(STREAM, P, 4))
        tuples, said = encoded(("a", 50), ("b", 60)), {"index": 0, "timeout_s": 0.05}
        chunk = replace(tuples, timestamps=np.empty(0, np.int64))
        good = [
            GOOD,
            feds_packet([fed(piece(0, 1, "a", "b", "c", places=PLACES))], 0, 0),
            tuples_packet(PUSH, [tuples], orders=[{"stream": STREAM, "group_count": 1, "advance_ms": 70}], **said),
            Packet(PUSH, {**said, "orders": [{"stream": STREAM, "group_count": 0, "advance_ms": 5000}]}),
            tuples_packet(STAGE, [chunk], change="c", number=0, goes=False, is_last=False),
        ]
        for packet in good:
            for wrong in torn(packet):
                with suppress(WukongsError):
                    assert handlers[wrong.kind](wrong).kind == wrong.kind
        assert node.host.failure is None
        node.engine.stream(EX + "other", batch_ms=100).push([(f"<{EX}a>", f"<{EX}p>", f"<{EX}b>", 50)])


def order(**said: Any) -> dict[str, Any]:
    return {"stream": STREAM, "group_count": 0, **said}


@pytest.mark.parametrize(
    ("orders", "groups", "expected"),
    [
        ([order()], [], f"push: expected tuples with their times for stream {STREAM}, found none"),
        ([order(group_count=1)], [encoded()], "push: expected tuples with their times"),
        ([order()], [encoded(("a", 5))], "push: expected 0 groups of tuples, found 1"),
        ([order(group_count=2)], [encoded(), encoded()], "push: group_count = 2: expected an integer from 0 to 1"),
        ([order(advance_ms="x")], [], "push: advance_ms = 'x': expected a time"),
        ([order(advance_ms=5), order(advance_ms=6)], [], "push: expected one order for a stream, found more"),
        ([order(stream=None)], [], "push: stream = None: expected a text"),
        ([order(fired_ms=100)], [], "push: a firing without first_ms"),
        ([order(fired_ms=9, first_ms=9, group_count=1)], [encoded(("a", 8))], "expected tuples with the time of one"),
        ("x", [], "push: orders = x: expected a list of objects"),
    ],
)
def test_a_push_that_is_none_is_refused(orders: Any, groups: list[Encoded], expected: str) -> None:
    asked = tuples_packet(PUSH, groups, orders=orders, index=0, timeout_s=1)
    with wired(1) as wires, pytest.raises(DataError, match=expected):
        wires.networks[0].handlers[PUSH](asked)


def test_a_chunk_of_two_groups_is_refused() -> None:
    chunk = replace(encoded(("a", 0)), timestamps=np.empty(0, np.int64))
    with wired(1) as wires, pytest.raises(DataError, match="stage: expected the tuples of one chunk, found 2 groups"):
        wires.networks[0].handlers[STAGE](tuples_packet(STAGE, [chunk, chunk], change="c", number=0, index=0))
