"""Protocol values as JSON: all messages and records come back as they went, and lies are refused by their place."""

from __future__ import annotations

import json
import types
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.fuzz import fuzzed
from wukongs.errors import DataError
from wukongs.protocol import messages, records
from wukongs.protocol.control import Control, genesis
from wukongs.protocol.messages import Append, Gossip, Grant, Incarnation, Message, Report, Request, Vote
from wukongs.protocol.records import Entry, Membership, Nothing, Position, Sn, Tagged, Voter, Voters
from wukongs.wire.codec import TELL, packet_of, read_packet_header, to_frames
from wukongs.wire.packets import Packet
from wukongs.wire.protocol_codec import decode, encode, message_in, message_packet

ints = st.integers(-(2**63) + 1, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type; written without the codec, so that a type which it cannot do is found here."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is type(None):
        return st.none()
    if kind in (str, Hashable):
        return texts
    if kind is bool:
        return st.booleans()
    if kind is int:
        return ints
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(one) for one in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is frozenset:
        return st.frozensets(values_of(arguments[0]), max_size=3)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    return st.builds(kind, *[values_of(hint) for hint in get_type_hints(kind).values()])


bodies = get_args(messages.Body)
kinds = [*bodies, *get_args(records.Record), Entry]


def test_all_that_nodes_say_is_covered() -> None:
    """Every Struct of messages.py is a body, or held by one; every record is in the union."""
    for module, known in (
        (messages, {*bodies, Message, Report, Grant, Request}),
        (records, {*get_args(records.Record), Entry, Position}),
    ):
        here = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
        made = {one for one in here if issubclass(one, Struct)} - {Tagged}
        assert made <= known


@pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)
def test_each_comes_back_as_it_went(kind: Any) -> None:
    @fuzzed(40)
    @given(values_of(kind))
    def check(value: Any) -> None:
        raw = json.dumps(encode(value))
        assert decode(json.loads(raw), kind, "value") == value

    check()


@fuzzed(60)
@given(values_of(Message))
def test_messages_cross_over_as_packets(message: Message) -> None:
    frames = to_frames(message_packet(message), TELL, 1)
    assert message_in(packet_of(read_packet_header(frames), frames)) == message


@fuzzed(120)
@given(st.sampled_from(bodies), st.data())
def test_a_changed_message_is_another_one_or_is_refused(kind: Any, data: st.DataObject) -> None:
    """A decoded value has the right types throughout: encoding it again gives the same bytes."""
    found = json.loads(json.dumps(encode(data.draw(values_of(kind)))))
    junk = st.none() | st.booleans() | st.integers() | texts | st.lists(st.integers(), max_size=2) | st.just({})
    place: Any = found
    for _ in range(3):
        if isinstance(place, dict) and place:
            key = data.draw(st.sampled_from(sorted(place)))
        elif isinstance(place, list) and place:
            key = data.draw(st.integers(0, len(place) - 1))
        else:
            break
        if data.draw(st.booleans()):
            place[key] = data.draw(junk)
            break
        place = place[key]
    try:
        value = decode(found, kind, "value")
    except DataError:
        return
    assert decode(json.loads(json.dumps(encode(value))), kind, "again") == value


ME = Incarnation(1, 2, 3)


def test_the_form_is_plain() -> None:
    append = Append(
        3, 1, 2, (Entry(2, Voters(frozenset({Voter(1, 0), Voter(0, 5)})), None, None), Entry(3, Nothing())), 1
    )
    assert json.loads(json.dumps(message_packet(Message(ME, append)).fields)) == {
        "sender": [1, 2, 3],
        "body": {
            "is": "Append",
            "term": 3,
            "before": 1,
            "before_term": 2,
            "entries": [
                {"term": 2, "record": {"is": "Voters", "voters": [[0, 5], [1, 0]]}},
                {"term": 3, "record": {"is": "Nothing"}},
            ],
            "commit": 1,
        },
    }
    report = Report(ME, 7, {"http://ex/s": 5}, Position(1, 4), Sn(3, 1))
    assert json.loads(json.dumps(encode(Gossip((report,))))) == {
        "is": "Gossip",
        "reports": [
            {
                "incarnation": [1, 2, 3],
                "counter": 7,
                "vts": {"http://ex/s": 5},
                "required": {"term": 1, "index": 4},
                "oldest_sn": [3, 1],
            }
        ],
    }


@pytest.mark.parametrize(
    ("kind", "found", "expected"),
    [
        (Vote, [1], "m: Expected `object`, got `array`"),
        (Vote, {"is": "Vote", "term": 1}, "m: Object missing required field `is_granted`"),
        (Vote, {"is": "Vote", "term": 1, "is_granted": True, "x": 1}, "m: Object contains unknown field `x`"),
        (Vote, {"is": "Vote", "term": 1, "is_granted": 1}, "Expected `bool`, got `int` - at `$.is_granted`"),
        (Vote, {"is": "Vote", "term": True, "is_granted": True}, "Expected `int`, got `bool` - at `$.term`"),
        (
            Vote,
            {"is": "Vote", "term": 2**63, "is_granted": True},
            "Expected `int` <= 9223372036854775807 - at `$.term`",
        ),
        (Vote, {"is": "Vote", "term": -(2**63), "is_granted": True}, "Expected `int` >= -9223372036854775807"),
        (
            Vote,
            {"is": "Vote", "term": 9**99, "is_granted": True},
            "Expected `int` <= 9223372036854775807 - at `$.term`",
        ),
        (Vote, {"is": "Vote", "term": 1.0, "is_granted": True}, "Expected `int`, got `float` - at `$.term`"),
        (Voters, {"is": "Voters", "voters": [[0]]}, "Expected `array` of length 2, got 1 - at `$.voters[0]`"),
        (Voters, {"is": "Voters", "voters": {}}, "Expected `array`, got `object` - at `$.voters`"),
        (
            Membership,
            {"is": "Membership", "node": 1, "disk": 0, "role": "king"},
            "Invalid enum value 'king' - at `$.role`",
        ),
        (
            Membership,
            {"is": "Membership", "node": 1, "disk": 0, "role": []},
            "Expected `str`, got `array` - at `$.role`",
        ),
        (Entry, {"term": 1, "record": {"is": "Exec"}}, "Invalid value 'Exec' - at `$.record.is`"),
        (Entry, {"term": 1, "record": {"is": ["Nothing"]}}, "at `$.record.is`"),
        (Entry, {"term": 1, "record": {}}, "Object missing required field `is` - at `$.record`"),
        (Entry, {"term": 1, "record": None}, "Expected `object`, got `null` - at `$.record`"),
        (Message, {"sender": [1, 2, 3], "body": {"is": "Entry"}}, "Invalid value 'Entry' - at `$.body.is`"),
        (Message, {"sender": [1, 2], "body": {"is": "Vote"}}, "Expected `array` of length 3, got 2 - at `$.sender`"),
    ],
)
def test_a_lie_is_refused_by_its_place(kind: Any, found: Any, expected: str) -> None:
    with pytest.raises(DataError) as caught:
        decode(found, kind, "m")
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_packet_of_another_kind_is_no_message() -> None:
    with pytest.raises(DataError, match="expected a packet of kind 'protocol', found 'rows'"):
        message_in(Packet("rows"))


def test_keys_that_are_numbers_are_texts_on_the_wire() -> None:
    told = encode(genesis(2, 1, 4))
    assert told["members"].keys() == {"0", "1"}
    assert decode(json.loads(json.dumps(told)), Control, "m") == genesis(2, 1, 4)
    told["members"]["one"] = told["members"].pop("1")
    with pytest.raises(DataError, match=r"m: Expected `int`, got `str` - at `key` in `\$.members`"):
        decode(told, Control, "m")


def test_fields_with_their_default_may_be_left_out() -> None:
    entry = Entry(4, Nothing())
    assert "tick" not in encode(entry)
    assert decode(encode(entry), Entry, "m") == entry
