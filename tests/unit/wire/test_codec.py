"""Packets as frames: what goes in comes out, and whatever else comes in is refused by what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.errors import (
    BudgetExceeded,
    CompactedError,
    CorruptionError,
    DataError,
    NodeUnavailable,
    QuerySyntaxError,
    UnsupportedFeatureError,
    WukongsError,
)
from wukongs.live.header import HEADER_BYTES_MAX, Frame, MessageError, read_header, write_header
from wukongs.wire import codec
from wukongs.wire.codec import ANSWER, ASK, TELL, packet_of, read_packet_header, to_frames
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import error_in, refusal

TYPES = (np.int64, np.int32, np.uint8, np.bool_)
plain = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
values = st.recursive(
    plain | texts, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=10
)
arrays = st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 1), max_size=20)).map(
    lambda made: np.array(made[1]).astype(made[0])
)
packets = st.builds(
    Packet,
    texts.filter(bool),
    st.dictionaries(texts, values, max_size=4),
    st.dictionaries(texts, arrays, max_size=4),
)
senders = st.none() | texts.filter(bool) | st.tuples(*[st.integers(0, 2**63 - 1)] * 3)


def read(frames: list[Frame]) -> tuple[codec.Header, Packet]:
    header = read_packet_header(frames)
    return header, packet_of(header, frames)


@given(packets, st.sampled_from((ASK, TELL, ANSWER)), st.integers(1, 2**63 - 1), senders, st.none() | texts)
def test_what_goes_in_comes_out(
    packet: Packet, way: str, sequence: int, sender: codec.Sender | None, token: str | None
) -> None:
    header, found = read(to_frames(packet, way, sequence, sender, token))
    assert (header.way, header.sequence, header.sender, header.token) == (way, sequence, sender, token)
    assert (found.kind, found.fields, list(found.arrays)) == (packet.kind, packet.fields, list(packet.arrays))
    for name, array in packet.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].tolist() == array.tolist()


def test_received_arrays_are_fit_for_kernels() -> None:
    """Aligned, writable and their own, wherever in a message they lay; sent ones are not copied."""
    sent = np.arange(100)
    frames = to_frames(Packet("rows", {}, {"ids": sent}), ASK, 1)
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), sent)
    shifted = memoryview(b"x" + bytes(frames[1]))[1:]
    found = read([frames[0], shifted])[1].arrays["ids"]
    assert (found.flags.aligned, found.flags.writeable) == (True, True)
    assert found.tolist() == sent.tolist()


def test_slices_and_strides_are_sent_as_they_read() -> None:
    sent = {"every": np.arange(10)[::2], "back": np.arange(5, dtype=np.int32)[::-1], "none": np.zeros(0, np.bool_)}
    found = read(to_frames(Packet("rows", {}, sent), ASK, 1))[1].arrays
    assert {name: found[name].tolist() for name in found} == {name: sent[name].tolist() for name in sent}


@pytest.mark.parametrize("wrong", [np.zeros(2, np.float64), np.zeros((2, 2), np.int64), np.array(["a"])])
def test_an_array_of_another_type_is_our_own_mistake(wrong: Any) -> None:
    with pytest.raises(AssertionError):
        to_frames(Packet("rows", {}, {"a": wrong}), ASK, 1)


GOOD: dict[str, Any] = {
    "wukongs": 4,
    "way": "ask",
    "kind": "rows",
    "seq": 7,
    "from": [0, 1, 2],
    "fields": {"n": 1},
    "arrays": [["ids", "int64", 2], ["is", "bool", 3]],
}
FRAMES = [np.arange(2).tobytes(), b"\x00\x01\x01"]


def changed(**fields: Any) -> list[Frame]:
    return [json.dumps({**GOOD, **fields}).encode(), *FRAMES]


def test_the_good_message_is_good() -> None:
    assert read(changed())[1].arrays["is"].tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([], "expected a header frame, found no frame"),
        ([b""], "expected a JSON header, found b''"),
        ([b"\xff\xfe"], "expected a JSON header"),
        ([b"[" * 100_000], "expected a JSON header"),
        ([b'{"wukongs":NaN}'], "expected a JSON header"),
        ([b'{"wukongs":4,"kind":"\\ud800"}'], "expected a JSON header"),
        ([b"[1]"], "expected a header with a 'wukongs' version"),
        (changed(wukongs=1), "expected protocol version 4, found 1"),
        (changed(wukongs=True), "expected protocol version 4, found True"),
        (changed(kind=None), "packet: expected a kind, found None"),
        (changed(kind=""), "packet: expected a kind, found ''"),
        (changed(kind="k" * 300), "packet: expected a kind, found 'kkk"),
        (changed(way="shout"), "packet 'rows': expected a way among ask, tell, answer, found 'shout'"),
        (changed(way=["ask"]), "expected a way among"),
        (changed(seq=0), "expected seq to be an integer from 1 on, found 0"),
        (changed(seq=1.5), "expected seq to be an integer from 1 on, found 1.5"),
        (changed(seq=True), "expected seq to be an integer"),
        (changed(seq=2**63), "expected seq to be an integer"),
        (changed(token=5), "expected a token as a text, found another type"),
        (changed(fields=[1]), "expected fields as an object, found [1]"),
        (changed(**{"from": [0, 1]}), "expected a sender as a text or as node, disk, boot, found [0, 1]"),
        (changed(**{"from": [0, 1, -1]}), "expected a sender as a text or"),
        (changed(**{"from": {}}), "expected a sender as a text or"),
        (changed(arrays={"a": 1}), "expected a list of at most 256 arrays"),
        (changed(arrays=[["ids", "int64", 2]]), "expected 1 frames of arrays, found 2"),
        (changed(arrays=[["ids", "int64", 2], "is"]), "expected an array as name, type, length, found 'is'"),
        (changed(arrays=[["ids", "int64", 2], ["is", "object", 3]]), "a type among int64, int32, uint8, bool, found"),
        (changed(arrays=[["ids", "int64", 2], [3, "bool", 3]]), "expected an array's name and a type among"),
        (changed(arrays=[["ids", "int64", 3], ["is", "bool", 3]]), "expected array 'ids' as int64[3], found 16 bytes"),
        (changed(arrays=[["ids", "int64", -2], ["is", "bool", 3]]), "expected array 'ids' as int64[-2]"),
        (changed(arrays=[["ids", "int64", True], ["is", "bool", 3]]), "expected array 'ids' as int64[True]"),
        (changed(arrays=[["is", "int64", 2], ["is", "bool", 3]]), "expected arrays with different names"),
        ([*changed()[:2], b"\x00\x01\x02"], "expected array 'is' of bools as bytes 0 and 1, found 2"),
    ],
)
def test_what_is_wrong_is_said(frames: list[Frame], expected: str) -> None:
    with pytest.raises(DataError) as caught:
        read(frames)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_header_that_is_too_long_is_not_read() -> None:
    with pytest.raises(MessageError, match="expected a header of at most") as caught:
        read_packet_header([b" " * (HEADER_BYTES_MAX + 1)])
    assert caught.value.reason == "oversized"


def test_a_message_that_is_too_big_is_refused_under_its_number() -> None:
    frames = to_frames(Packet("rows", {}, {"ids": np.arange(100)}), ASK, 9)
    with pytest.raises(MessageError, match="expected at most 500 bytes, found") as caught:
        read_packet_header(frames, 500)
    assert (caught.value.reason, caught.value.sequence) == ("oversized", 9)


def test_what_cannot_be_sent_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="bytes of plain fields, at most"):
        write_header({"text": "x" * HEADER_BYTES_MAX})
    with pytest.raises(DataError, match="expected texts of whole characters"):
        to_frames(Packet("query", {"text": "\ud800"}), ASK, 1)
    monkeypatch.setattr(codec, "MESSAGE_BYTES_MAX", 100)
    with pytest.raises(DataError, match="packet 'rows': 1 arrays of 800 bytes, at most 256 of 100 bytes can be sent"):
        to_frames(Packet("rows", {}, {"ids": np.arange(100)}), ASK, 1)


@fuzzed(300)
@given(st.lists(st.binary(max_size=80), max_size=4))
def test_random_frames_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(MessageError):
        read(list(frames))


@fuzzed(300)
@given(st.data())
def test_flipped_and_cut_messages_are_read_or_refused(data: st.DataObject) -> None:
    frames = [bytearray(frame) for frame in changed()]
    for _ in range(data.draw(st.integers(1, 3))):
        frame = frames[data.draw(st.integers(0, len(frames) - 1))]
        if data.draw(st.booleans()):
            del frame[data.draw(st.integers(0, len(frame))) :]
        elif frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        packet = read([bytes(frame) for frame in frames])[1]
    except MessageError:
        return
    assert all(array.ndim == 1 for array in packet.arrays.values())


@pytest.mark.parametrize(
    "error",
    [
        QuerySyntaxError("a variable", "'}'", 3, 9, "traffic.rq", "  }\n  ^", "close it"),
        UnsupportedFeatureError("SERVICE", 1, 2, "load it first"),
        DataError("expected a term", "x.nt", 7),
        CorruptionError("torn", "batch", 4),
        BudgetExceeded("too many rows"),
        CompactedError("gone"),
        WukongsError("something"),
    ],
)
def test_named_errors_cross_over_with_their_fields(error: WukongsError) -> None:
    found = error_in(read(to_frames(refusal(error), ANSWER, 1))[1])
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_a_failure_crosses_over_as_one() -> None:
    found = error_in(refusal(ZeroDivisionError("division by zero")))
    assert type(found) is WukongsError
    assert str(found) == "the node failed: ZeroDivisionError: division by zero. See its log"


def test_an_error_of_a_kind_of_its_own_crosses_over_as_what_it_is_one_of() -> None:
    found = error_in(refusal(MessageError("torn")))
    assert type(found) is DataError
    assert str(found) == "torn"


def test_an_answer_is_no_error() -> None:
    assert error_in(Packet("rows")) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "None: None"),
        ({"error": "system", "message": "rm", "arguments": ["rm"]}, "system: rm"),
        ({"error": "QuerySyntaxError", "message": "m", "arguments": [1]}, "QuerySyntaxError: m"),
        ({"error": "__name__", "message": "m", "arguments": []}, "__name__: m"),
        ({"error": "StreamError", "message": "m", "arguments": {"a": 1}}, "m"),
        ({"error": "StreamError", "message": "m", "arguments": [[]]}, "m"),
        ({"error": ["x"], "message": 7}, "['x']: 7"),
    ],
)
def test_a_refusal_that_makes_no_sense_is_still_an_error(fields: dict[str, Any], expected: str) -> None:
    error = error_in(Packet("refused", fields))
    assert isinstance(error, WukongsError)
    assert str(error) == expected


def test_an_unreachable_node_is_named() -> None:
    found = error_in(refusal(NodeUnavailable("node 1 is busy")))
    assert isinstance(found, NodeUnavailable)


def test_headers_hold_any_text() -> None:
    assert read_header(write_header({"text": 'ä"\\\u0000\n😀'}))["text"] == 'ä"\\\u0000\n😀'
