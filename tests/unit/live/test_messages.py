"""Wire messages: there and back unchanged; whatever is wrong with a message is said by name."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.wire.pieces import make_piece, many
from wukongs.errors import DataError, StreamError
from wukongs.live import pieces
from wukongs.live.header import HEADER_BYTES_MAX
from wukongs.live.pieces import Chunk, Close, Finish, Open, Piece, Pushed, check_batch_number, chunk_frames
from wukongs.store.dtypes import CLASH_FIRST
from wukongs.store.encoded import Encoded
from wukongs.wire.messages import Ack, Message, Moved, Opened, Place, Refused, from_frames, sequence_of, to_frames


def _bytes(message: Message, sequence: int = 7) -> list[bytes]:
    return [bytes(frame) for frame in to_frames(message, sequence)]


def _with_header(frames: list[bytes], **changes: Any) -> list[bytes]:
    return [json.dumps({**json.loads(frames[0]), **changes}).encode(), *frames[1:]]


@pytest.mark.parametrize(
    "message",
    [
        Open("http://ex/ö", "a.nt", 12),
        Opened(100, None, ("http://ex/ga",), 5, 62),
        Opened(1000, "http://ex/g", True, 0, 16),
        Opened(1000, None, (), 0, 62),
        Opened(1000, None, False, 0, 62),
        Opened(1000, None, False, 0, 62, -5, Place(1, 3, 2, ("http://ex/type",))),
        Opened(1000, None, False, 0, 62, -5, Place(1, 3, 2, (), 77, (0, 2), ((0, 1), (2,)), ("a",))),
        Close("s", "p", 1, 40, -1),
        Finish("s", "p", 1),
        Ack("s", "p", -1, -1),
        Ack("s", "p", 4, 1, 9),
        Moved(),
        Refused("StreamError", "no such stream"),
    ],
)
def test_plain_messages_come_back_as_they_were(message: Message) -> None:
    assert from_frames(_bytes(message)) == (message, 7)


def _assert_same(found: Message, piece: Piece) -> None:
    assert isinstance(found, Piece)
    for name in ("stream", "partition", "epoch", "first_offset", "end_offset", "piece", "batch_number"):
        assert getattr(found, name) == getattr(piece, name)
    np.testing.assert_array_equal(found.timing, piece.timing)
    _assert_same_tuples(found.encoded, piece.encoded)


def _assert_same_tuples(found: Encoded, sent: Encoded) -> None:
    for name in ("subjects", "predicates", "objects", "graphs", "timestamps", "goes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(sent, name))
    for name in ("terms", "clashes"):
        mine, theirs = getattr(found, name), getattr(sent, name)
        np.testing.assert_array_equal(mine.ids, theirs.ids)
        assert mine.texts() == theirs.texts()


def make_chunk(*args: Any, goes: bool = False, **options: Any) -> Chunk:
    return Chunk(3, replace(make_piece(*args, **options).encoded, timestamps=np.empty(0, np.int64)), goes)


def test_a_piece_comes_back_with_its_columns_texts_and_flags() -> None:
    piece = make_piece([*many(300), ("_:b", "<http://ex/p>", '"5"^^<http://www.w3.org/2001/XMLSchema#int>')])
    found, sequence = from_frames(_bytes(piece, 3))
    assert sequence == 3
    _assert_same(found, piece)


def test_what_comes_back_is_ours_to_write_and_aligned() -> None:
    found, _ = from_frames(_bytes(make_piece(many(10))))
    assert isinstance(found, Piece)
    for array in (found.encoded.subjects, found.encoded.terms.ids, found.encoded.terms.text, found.timing):
        assert array.flags.writeable
        assert array.flags.aligned
        assert array.flags.c_contiguous


def test_an_empty_piece_and_graph_terms_come_back() -> None:
    _assert_same(from_frames(_bytes(make_piece([], end=3)))[0], make_piece([], end=3))
    named = make_piece(many(2), graphs=["<http://ex/g>", None])
    _assert_same(from_frames(_bytes(named))[0], named)


def test_a_share_comes_back_with_the_places_of_its_rows() -> None:
    share = replace(make_piece(many(3), end=9), places=np.array([0, 4, 7]))
    found, _ = from_frames(_bytes(share))
    assert isinstance(found, Piece)
    _assert_same(found, share)
    assert found.row_places().tolist() == [0, 4, 7]
    for places in ([-1, 4, 7], [0, 4, 4], [2, 1, 5]):
        with pytest.raises(DataError, match="expected ascending places in a share"):
            from_frames(_bytes(replace(share, places=np.array(places))))
    with pytest.raises(DataError, match="expected is_share to be a boolean, found 1"):
        from_frames(_with_header(_bytes(share), is_share=1))


def test_retractions_come_back() -> None:
    piece = make_piece(many(3), end=9)
    signs = replace(piece.encoded, goes=np.array([False, True, True]))
    for places in (None, np.array([0, 4, 7])):
        signed = replace(piece, encoded=signs, timing=np.zeros(3, np.bool_), places=places)
        found, _ = from_frames(_bytes(signed))
        _assert_same(found, signed)
    pushed = pieces.from_frames(pieces.pushed_frames(Pushed(signed, 7, 8)))
    assert isinstance(pushed, Pushed)
    _assert_same_tuples(pushed.piece.encoded, signs)
    with pytest.raises(DataError, match="expected retractions of timeless tuples only"):
        from_frames(_bytes(replace(signed, timing=np.array([True, False, True]))))
    with pytest.raises(DataError, match="expected has_signs to be a boolean, found 1"):
        from_frames(_with_header(_bytes(signed), has_signs=1))
    with pytest.raises(DataError, match="expected tuples as an Arrow record batch"):
        from_frames(_with_header(_bytes(piece), has_signs=True))


def test_clashing_terms_travel_with_their_codes() -> None:
    piece = make_piece(many(400), hash_bits=8)
    assert len(piece.encoded.clashes) > 0
    assert piece.encoded.subjects.min() <= CLASH_FIRST
    _assert_same(from_frames(_bytes(piece))[0], piece)


@pytest.mark.parametrize("goes", [True, False])
def test_a_chunk_of_a_load_or_an_update_comes_back(goes: bool) -> None:
    for sent in (make_chunk(many(400), hash_bits=8, goes=goes), make_chunk([], end=1, goes=goes)):
        found = pieces.from_frames(chunk_frames(sent))
        assert isinstance(found, Chunk)
        assert (found.number, found.goes) == (3, goes)
        _assert_same_tuples(found.encoded, sent.encoded)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([], "expected a header frame, found no frame"),
        ([b"\x80\x04garbage"], r"expected a JSON header, found b'\\x80"),
        ([pickle.dumps({"wukongs": 4})], "expected a JSON header"),
        ([b"[" * 100_000], "expected a JSON header"),
        ([b"[1, 2]"], "expected a header with a 'wukongs' version"),
        ([b'{"wukongs": 1, "kind": "open"}'], "expected protocol version 4, found 1. Run the same version"),
        ([b'{"wukongs": 4, "kind": "eval"}'], "expected a kind among open, opened, piece.*found 'eval'"),
        ([b'{"wukongs": 4, "kind": ["open"]}'], "expected a kind among"),
        ([b" " * (HEADER_BYTES_MAX + 1)], "expected a header of at most 16777216 bytes"),
    ],
)
def test_a_foreign_message_is_named(frames: list[bytes], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        from_frames(frames)
    assert sequence_of(frames) == 0


@pytest.mark.parametrize(
    ("message", "changes", "expected"),
    [
        (Open("s", "p", 1), {"seq": None}, "'open': expected seq to be an integer from 0 .* found None"),
        (Open("s", "p", 1), {"stream": 5}, "'open': expected stream to be a text, found 5"),
        (Open("s", "p", 1), {"epoch": True}, "expected epoch to be an integer.*found True"),
        (Open("s", "p", 1), {"epoch": 1 << 63}, "expected epoch to be an integer"),
        (Open("s", "p", 1), {"epoch": -1}, "expected epoch to be an integer from 0"),
        (Close("s", "p", 1, 2, 3), {"complete_ms": 1.5}, "'close': expected complete_ms to be an integer"),
        (Opened(100, None, True, 0, 62), {"batch_ms": 0}, "expected batch_ms > 0 and hash_bits from 1 to 62"),
        (Opened(100, None, True, 0, 62), {"hash_bits": 63}, "expected batch_ms > 0 and hash_bits from 1 to 62"),
        (Opened(100, None, True, 0, 62), {"timing": "all"}, "expected timing to be a boolean or a list of IRIs"),
        (Opened(100, None, True, 0, 62), {"timing": [1]}, "expected timing to be a boolean or a list of IRIs"),
        (Opened(100, None, True, 0, 62), {"into": 3}, "expected into to be a graph IRI or null, found 3"),
        (Opened(100, None, True, 0, 62), {"closed_ms": "0"}, "'opened': expected closed_ms to be an integer"),
        *(
            (Opened(100, None, True, 0, 62), {"place": place}, "expected place to be null or an object with node < ")
            for place in (
                3,
                {"node": 0, "node_count": 2, "replica_count": 1},
                {"node": 2, "node_count": 2, "replica_count": 1, "split": []},
                {"node": 0, "node_count": 2, "replica_count": 0, "split": []},
                {"node": 0, "node_count": 2, "replica_count": 1, "split": [1]},
                {"node": 0, "node_count": 2, "replica_count": 1, "split": [], "index": -1},
                {"node": 0, "node_count": 2, "replica_count": 1, "split": [], "members": [2]},
                {"node": 0, "node_count": 2, "replica_count": 1, "split": [], "members": 1},
                {"node": 0, "node_count": 2, "replica_count": 1, "split": [], "shards": [[0], []]},
                {"node": 0, "node_count": 2, "replica_count": 1, "split": [], "added": "abc"},
                {"node": 0, "node_count": 2, "replica_count": 1, "split": [], "shards": [[True]]},
            )
        ),
        (make_piece(), {"first_offset": 1, "end_offset": 1}, "expected 0 <= first_offset < end_offset"),
        (make_piece(), {"piece": -1}, "piece >= 0, found .* piece = -1"),
        (make_piece(), {"partition": None}, "'piece': expected partition to be a text"),
    ],
)
def test_a_wrong_field_is_named(message: Message, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        from_frames(_with_header(_bytes(message), **changes))


def test_a_wrong_field_of_a_chunk_is_named_and_no_node_takes_one() -> None:
    frames = [bytes(frame) for frame in chunk_frames(make_chunk())]
    with pytest.raises(DataError, match="'chunk': expected number to be an integer from 0"):
        pieces.from_frames(_with_header(frames, number=-1))
    with pytest.raises(DataError, match="'chunk': expected goes to be a boolean, found 1"):
        pieces.from_frames(_with_header(frames, goes=1))
    with pytest.raises(DataError, match=r"expected a kind among open, opened, .*found 'chunk'"):
        from_frames(_with_header(frames, seq=1))


def test_a_plain_message_with_more_frames_is_refused() -> None:
    with pytest.raises(DataError, match="'finish': expected 1 frame, found 2"):
        from_frames([*_bytes(Finish("s", "p", 1)), b"more"])


@pytest.mark.parametrize("whole", [_bytes(make_piece(many(20))), chunk_frames(make_chunk(many(20)))])
def test_every_torn_piece_or_chunk_is_refused_never_misread(whole: list[bytes]) -> None:
    with pytest.raises(DataError, match="expected 4 frames"):
        pieces.from_frames(whole[:3])
    for number in (1, 2):
        for size in range(0, len(whole[number]), 37):
            torn = [*whole]
            torn[number] = whole[number][:size]
            with pytest.raises(DataError, match=r"^message '(piece|chunk)': expected"):
                pieces.from_frames(torn)


@pytest.mark.parametrize(
    "whole", [_bytes(make_piece(many(20), hash_bits=6)), chunk_frames(make_chunk(many(20), hash_bits=6))]
)
def test_flipped_bits_are_refused_or_harmless(whole: list[bytes]) -> None:
    random = np.random.default_rng(5)
    for _ in range(2000):
        torn = [bytearray(frame) for frame in whole]
        frame = torn[int(random.integers(4))]  # header, tuples, terms or clashes
        frame[int(random.integers(len(frame)))] ^= 1 << int(random.integers(8))
        try:
            message = pieces.from_frames([bytes(one) for one in torn])
        except DataError:
            continue
        assert isinstance(message, Piece | Chunk)
        length = len(message.encoded.subjects)
        beside = [message.timing] if isinstance(message, Piece) else []
        assert all(len(column) == length for column in (message.encoded.objects, *beside))
        assert len(message.encoded.terms.texts()) == len(message.encoded.terms)


def _arrow(columns: dict[str, Any]) -> bytes:
    return pa.record_batch(columns).serialize().to_pybytes()  # type: ignore[no-any-return]


def test_lies_in_the_columns_are_named() -> None:
    piece = make_piece(many(3))
    header, tuples, terms, clashes = _bytes(piece)
    encoded = piece.encoded

    def refused(changed: Piece, expected: str) -> None:
        with pytest.raises(DataError, match=expected):
            from_frames(_bytes(changed))

    negative = replace(encoded, objects=np.array([5, -4, 6]))
    refused(replace(piece, encoded=negative), "expected term ids in objects, found -4")
    unbound = replace(encoded, subjects=np.array([-1, 3, 5]))
    refused(replace(piece, encoded=unbound), "expected term ids in subjects, found -1")
    stranger = replace(encoded, objects=np.array([encoded.objects[0], 2, 4]))
    refused(replace(piece, encoded=stranger), "expected the text of every term, found 2 without")
    twice = replace(encoded, terms=encoded.terms.take(np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8])))
    refused(replace(piece, encoded=twice), "expected distinct hash ids in its terms")
    short = _arrow({"a": pa.array([1])})
    with pytest.raises(DataError, match="expected tuples as an Arrow record batch, found:"):
        from_frames([header, short, terms, clashes])
    stream = pa.BufferOutputStream()
    pa.ipc.new_stream(stream, pa.schema([("id", pa.int64())])).close()
    with pytest.raises(DataError, match="expected terms as an Arrow record batch, found:"):
        from_frames([header, tuples, stream.getvalue().to_pybytes(), clashes])
    bytes_for_numbers = _arrow({name: pa.array([1, 2, 3], pa.int8()) for name in "abcde"} | {"f": pa.array([True] * 3)})
    with pytest.raises(DataError, match="expected tuples as an Arrow record batch, found:"):
        from_frames([header, bytes_for_numbers, terms, clashes])
    null = _arrow({"id": pa.array([2], pa.int64()), "text": pa.array([None], pa.large_string())})
    with pytest.raises(DataError, match="expected terms without nulls"):
        from_frames([header, tuples, null, clashes])


def test_text_that_is_no_utf8_is_refused() -> None:
    whole = _bytes(make_piece([("<http://ex/a>", "<http://ex/p>", '"zzzzzzzz"')]))
    assert whole[2].count(b'"zzzzzzzz"') == 1
    torn = [whole[0], whole[1], whole[2].replace(b'"zzzzzzzz"', b'"zzzzzz\xff\xff"'), whole[3]]
    with pytest.raises(DataError, match=r"expected terms as an Arrow record batch, found: .*UTF8"):
        from_frames(torn)


def test_a_tuple_outside_its_stream_batch_is_named() -> None:
    check_batch_number(make_piece(number=10, time=1000), 100)
    for time in (900, 1001):
        with pytest.raises(
            StreamError, match=rf"from {time} to {time} ms do not belong to stream batch 10 \(900 to 1000"
        ):
            check_batch_number(make_piece(number=10, time=time), 100)


def test_an_older_version_is_read_from_a_log_and_refused_from_a_peer() -> None:
    close = Close("s", "p", 1, 40, -1)
    older = _with_header(_bytes(close), wukongs=1)
    assert pieces.from_frames(older, is_trusted=True) == close
    with pytest.raises(DataError, match="expected protocol version 4, found 1"):
        pieces.from_frames(older)
