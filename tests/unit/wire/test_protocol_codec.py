"""Protocol values as JSON: all messages and records come back as they went, and lies are refused by their place."""

from __future__ import annotations

import json
import types
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.errors import DataError
from wukongs.protocol import messages, records
from wukongs.protocol.messages import Append, Gossip, Incarnation, Message, Report, Vote
from wukongs.protocol.records import Change, Entry, Membership, Nothing, Position, Role, Sn, Voter, Voters
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
    """Every dataclass of messages.py is a body, or held by one; every record is in the union."""
    for module, known in (
        (messages, {*bodies, Message, Report}),
        (records, {*get_args(records.Record), Entry, Position}),
    ):
        here = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
        made = {one for one in here if is_dataclass(one)}
        assert made <= known


@pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)
def test_each_comes_back_as_it_went(kind: Any) -> None:
    @fuzzed(40)
    @given(values_of(kind))
    def check(value: Any) -> None:
        raw = json.dumps(encode(value, kind))
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
    found = json.loads(json.dumps(encode(data.draw(values_of(kind)), kind)))
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
    assert decode(json.loads(json.dumps(encode(value, kind))), kind, "again") == value


ME = Incarnation(1, 2, 3)


def test_the_form_is_plain() -> None:
    append = Append(
        3, 1, 2, (Entry(2, Voters(frozenset({Voter(1, 0), Voter(0, 5)})), None, None), Entry(3, Nothing())), 1
    )
    assert message_packet(Message(ME, append)).fields == {
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
    assert encode(Gossip((report,)), Gossip) == {
        "reports": [
            {
                "incarnation": [1, 2, 3],
                "counter": 7,
                "vts": {"http://ex/s": 5},
                "required": {"term": 1, "index": 4},
                "oldest_sn": [3, 1],
            }
        ]
    }


@pytest.mark.parametrize(
    ("kind", "found", "expected"),
    [
        (Vote, [1], "expected an object, Vote, found [1]"),
        (Vote, {"term": 1}, "expected is_granted of Vote, found ['term']"),
        (Vote, {"term": 1, "is_granted": True, "x": 1}, "expected fields of Vote among term, is_granted, found 'x'"),
        (Vote, {"term": 1, "is_granted": 1}, "m.is_granted: expected true or false, found 1"),
        (Vote, {"term": True, "is_granted": True}, "m.term: expected an integer of 64 bits, found True"),
        (Vote, {"term": 2**63, "is_granted": True}, "m.term: expected an integer of 64 bits"),
        (Vote, {"term": 1.0, "is_granted": True}, "m.term: expected an integer of 64 bits, found 1.0"),
        (Voters, {"voters": [[0, 1], [0, 1]]}, "m.voters: expected different members"),
        (Voters, {"voters": [[0]]}, "m.voters[0]: expected a list of 2, found [0]"),
        (Voters, {"voters": {}}, "m.voters: expected a list, found {}"),
        (
            Membership,
            {"node": 1, "disk": 0, "role": "king"},
            "m.role: expected one of 'out', 'joining', 'holding', 'in'",
        ),
        (Membership, {"node": 1, "disk": 0, "role": []}, "m.role: expected one of"),
        (Entry, {"term": 1, "record": {"is": "Exec"}}, "m.record: expected an object that is one of Nothing, Voters"),
        (Entry, {"term": 1, "record": {"is": ["Nothing"]}}, "m.record: expected an object that is one of"),
        (Entry, {"term": 1, "record": None}, "m.record: expected an object that is one of"),
        (messages.State, {"since": 1, "vts": {"s": "x"}, "offsets": {}, "is_in": True, "payload": ""}, "m.vts['s']: "),
        (messages.State, {"since": 1, "vts": [], "offsets": {}, "is_in": True, "payload": ""}, "expected an object"),
        (Message, {"sender": [1, 2, 3], "body": {"is": "Entry"}}, "m.body: expected an object that is one of"),
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


class Place(NamedTuple):
    stream: str
    batch: int


@dataclass(frozen=True)
class Held:
    by_place: Mapping[Place, tuple[int, str]]
    roles: tuple[Role | None, ...] = ()
    more: Mapping[int, frozenset[str]] = field(default_factory=dict)


def test_mappings_from_anything_are_pairs() -> None:
    held = Held({Place("s", 1): (2, "x"), Place("t", 1): (3, "y")}, (Role.IN, None), {5: frozenset({"b", "a"})})
    made = json.loads(json.dumps(encode(held, Held)))
    assert made["by_place"] == [[["s", 1], [2, "x"]], [["t", 1], [3, "y"]]]
    assert made["more"] == [[5, ["a", "b"]]]
    assert decode(made, Held, "held") == held
    made["more"] *= 2
    with pytest.raises(DataError, match=r"held.more: expected different keys"):
        decode(made, Held, "held")


def test_a_type_without_a_wire_form_is_our_own_mistake() -> None:
    with pytest.raises(TypeError, match="no wire form for"):
        encode(1.0, float)


def test_fields_with_their_default_may_be_left_out() -> None:
    assert decode({"client": "c", "number": 1, "payload": "{}", "after": None, "view": 0}, Change, "m").after is None
    entry = Entry(4, Nothing())
    assert "tick" not in encode(entry, Entry)
    assert {field.name for field in fields(Entry)} > set(encode(entry, Entry))
