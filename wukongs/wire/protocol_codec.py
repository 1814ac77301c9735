"""Protocol values <-> plain JSON, as the type hints of wukongs/protocol say: what nodes tell each other, and the
entries of the log on disk.

* A dataclass is an object of its fields; those that have their default are left out. One of a union also says which one
  it is, under "is". A NamedTuple is a list of its fields, an enum its value, a frozenset a list in sorted order.
* A mapping from texts is an object; any other one a list of pairs.
* What comes in is checked by the same hints: a peer may lie. Fields that nobody knows, missing ones, other types,
  numbers beyond 64 bits and repeated members are refused by DataError with their place. Nothing else is checked here:
  what a peer may claim is the protocol's matter.

Each message goes through the functions of compiled_codec.py, which say of a lie only that it is one; the place is found
by walking the hints (`checked`), which takes ten times as long. New fields of the dataclasses, and new messages and
records, need nothing here.
"""

from __future__ import annotations

from typing import Any

from wukongs.errors import DataError
from wukongs.protocol.messages import Message
from wukongs.wire.compiled_codec import INT64_MAX, decoder, encoder
from wukongs.wire.packets import Packet
from wukongs.wire.type_shapes import (
    Choice,
    Distinct,
    Fields,
    Fixed,
    Object,
    OneOf,
    Optional,
    Pairs,
    Plain,
    Sequence,
    shape_of,
)

PROTOCOL = "protocol"
"""The kind of packets that carry one message of the protocol."""


def message_packet(message: Message) -> Packet:
    return Packet(PROTOCOL, encode(message, Message))


def message_in(packet: Packet) -> Message:
    """Return the message that a packet carries. Raises: DataError (what is none)."""
    if packet.kind != PROTOCOL:
        raise DataError(f"expected a packet of kind '{PROTOCOL}', found '{packet.kind}'")
    message: Message = decode(dict(packet.fields), Message, "message")
    return message


def encode(value: Any, kind: Any) -> Any:
    """Return a value of this type (a dataclass, a union of such, ...) as JSON values."""
    return encoder(kind)(value)


def decode(found: Any, kind: Any, place: str) -> Any:
    """Return the value of this type that the JSON values stand for; place: what they are called in errors.

    Raises: DataError."""
    compiled = decoder(kind)
    try:
        return compiled(found)
    except Exception:  # whatever a lie ends in
        return checked(found, kind, place)


def checked(found: Any, kind: Any, place: str) -> Any:
    """Decode as decode does, which takes the short way; this one names the place of the fault."""
    match shape_of(kind):
        case Plain(of, expected):
            if type(found) is not of or (isinstance(found, int) and not -INT64_MAX <= found <= INT64_MAX):
                raise _wrong(place, expected, found)
            return found
        case Sequence(member):
            return tuple(_members(found, member, place))
        case Fixed(kinds, make):
            listed = enumerate(zip(kinds, _list(found, place, len(kinds)), strict=True))
            values = tuple(checked(one, of, f"{place}[{index}]") for index, (of, one) in listed)
            return values if make is None else make(*values)
        case Distinct(member):
            members = _members(found, member, place)
            if len(set(members)) != len(members):
                raise _wrong(place, "different members", found)
            return frozenset(members)
        case Object(of):
            if not isinstance(found, dict):
                raise _wrong(place, "an object", found)
            return {name: checked(one, of, f"{place}[{name!r}]") for name, one in found.items()}
        case Pairs(key, of):
            pairs = [_list(pair, place, 2) for pair in _list(found, place)]
            decoded = {checked(name, key, place): checked(one, of, f"{place}[{name!r}]") for name, one in pairs}
            if len(decoded) != len(pairs):
                raise _wrong(place, "different keys", found)
            return decoded
        case Choice(named):
            if not isinstance(found, str | int) or found not in named:
                raise _wrong(place, f"one of {', '.join(map(repr, named))}", found)
            return named[found]
        case Fields() as known:
            return _dataclass(found, known, place)
        case Optional(of):
            return None if found is None else checked(found, of, place)
        case OneOf(known_kinds):
            name = found.get("is") if isinstance(found, dict) else None
            if not isinstance(name, str) or name not in known_kinds:
                raise _wrong(place, f"an object that is one of {', '.join(known_kinds)}", found)
            return checked({key: one for key, one in found.items() if key != "is"}, known_kinds[name], place)


def _dataclass(found: Any, known: Fields, place: str) -> Any:
    called = known.kind.__name__
    if not isinstance(found, dict):
        raise _wrong(place, f"an object, {called}", found)
    if strange := found.keys() - known.hints.keys():
        raise _wrong(place, f"fields of {called} among {', '.join(known.hints)}", sorted(strange)[0])
    if missing := known.hints.keys() - found.keys() - known.defaults.keys():
        raise _wrong(place, f"{sorted(missing)[0]} of {called}", sorted(found))
    return known.kind(**{name: checked(one, known.hints[name], f"{place}.{name}") for name, one in found.items()})


def _members(found: Any, member: Any, place: str) -> list[Any]:
    return [checked(one, member, f"{place}[{index}]") for index, one in enumerate(_list(found, place))]


def _list(found: Any, place: str, length: int | None = None) -> list[Any]:
    if not isinstance(found, list) or (length is not None and len(found) != length):
        raise _wrong(place, "a list" if length is None else f"a list of {length}", found)
    return found


def _wrong(place: str, expected: str, found: object) -> DataError:
    text = repr(found)
    return DataError(f"{place}: expected {expected}, found {text if len(text) <= 60 else text[:57] + '...'}")
