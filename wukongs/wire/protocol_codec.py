"""Protocol values <-> plain JSON, as the type hints of wukongs/protocol say: what nodes tell each other, and the
entries of the log on disk.

* A dataclass is an object of its fields; those that have their default are left out. One of a union also says which one
  it is, under "is". A NamedTuple is a list of its fields, an enum its value, a frozenset a list in sorted order.
* A mapping from texts is an object; any other one a list of pairs.
* What comes in is checked by the same hints: a peer may lie. Fields that nobody knows, missing ones, other types,
  numbers beyond 64 bits and repeated members are refused by DataError with their place. Nothing else is checked here:
  what a peer may claim is the protocol's matter.

New fields of the dataclasses, and new messages and records, need nothing here.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from wukongs.errors import DataError
from wukongs.protocol.messages import Message
from wukongs.wire.packets import Packet

PROTOCOL = "protocol"
"""The kind of packets that carry one message of the protocol."""
_INT64_MAX = (1 << 63) - 1


class _Codec(NamedTuple):
    """encode: value -> JSON value. decode: (JSON value, its place) -> value, or DataError."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any, str], Any]


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
    return _codec(kind).encode(value)


def decode(found: Any, kind: Any, place: str) -> Any:
    """Return the value of this type that the JSON values stand for; place: what they are called in errors.

    Raises: DataError."""
    return _codec(kind).decode(found, place)


@cache
def _codec(kind: Any) -> _Codec:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(_codec(arguments[0]))
    if origin is tuple:
        return _fixed(list(arguments), tuple)
    if origin is frozenset:
        return _set(_codec(arguments[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _object(_codec(arguments[1])) if arguments[0] is str else _pairs(*map(_codec, arguments))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _fixed(list(get_type_hints(kind).values()), lambda values: kind(*values))
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind)
    raise TypeError(f"no wire form for {kind}")


def _wrong(place: str, expected: str, found: object) -> DataError:
    text = repr(found)
    return DataError(f"{place}: expected {expected}, found {text if len(text) <= 60 else text[:57] + '...'}")


def _same(value: Any) -> Any:
    return value


def _plain(kind: type, expected: str) -> _Codec:
    def decode(found: Any, place: str) -> Any:
        if type(found) is not kind or (isinstance(found, int) and not -_INT64_MAX <= found <= _INT64_MAX):
            raise _wrong(place, expected, found)
        return found

    return _Codec(_same, decode)


_PLAIN: dict[Any, _Codec] = {
    int: _plain(int, "an integer of 64 bits"),
    str: _plain(str, "a text"),
    bool: _plain(bool, "true or false"),
    type(None): _plain(type(None), "null"),
    Hashable: _plain(str, "a text"),  # a host's payload: JSON, as a text
}


def _list(found: Any, place: str, length: int | None = None) -> list[Any]:
    if not isinstance(found, list) or (length is not None and len(found) != length):
        raise _wrong(place, "a list" if length is None else f"a list of {length}", found)
    return found


def _sequence(member: _Codec) -> _Codec:
    return _Codec(
        lambda value: [member.encode(one) for one in value],
        lambda found, place: tuple(
            member.decode(one, f"{place}[{index}]") for index, one in enumerate(_list(found, place))
        ),
    )


def _fixed(kinds: list[Any], make: Callable[[Any], Any]) -> _Codec:
    """A tuple with a type for each place."""
    codecs = [_codec(kind) for kind in kinds]

    def decode(found: Any, place: str) -> Any:
        listed = _list(found, place, len(codecs))
        return make(
            [
                codec.decode(one, f"{place}[{index}]")
                for index, (codec, one) in enumerate(zip(codecs, listed, strict=True))
            ]
        )

    return _Codec(
        lambda value: [codec.encode(one) for codec, one in zip(codecs, value, strict=True)],
        decode,
    )


def _set(member: _Codec) -> _Codec:
    def decode(found: Any, place: str) -> frozenset[Any]:
        members = [member.decode(one, f"{place}[{index}]") for index, one in enumerate(_list(found, place))]
        distinct = frozenset(members)
        if len(distinct) != len(members):
            raise _wrong(place, "different members", found)
        return distinct

    return _Codec(lambda value: sorted(map(member.encode, value)), decode)


def _object(of: _Codec) -> _Codec:
    def decode(found: Any, place: str) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise _wrong(place, "an object", found)
        return {name: of.decode(one, f"{place}[{name!r}]") for name, one in found.items()}

    return _Codec(lambda value: {name: of.encode(one) for name, one in value.items()}, decode)


def _pairs(key: _Codec, of: _Codec) -> _Codec:
    def decode(found: Any, place: str) -> dict[Any, Any]:
        pairs = [_list(pair, place, 2) for pair in _list(found, place)]
        decoded = {key.decode(name, place): of.decode(one, f"{place}[{name!r}]") for name, one in pairs}
        if len(decoded) != len(pairs):
            raise _wrong(place, "different keys", found)
        return decoded

    return _Codec(lambda value: [[key.encode(name), of.encode(one)] for name, one in value.items()], decode)


def _enum(kind: type[Enum]) -> _Codec:
    members = {member.value: member for member in kind}

    def decode(found: Any, place: str) -> Enum:
        if not isinstance(found, str | int) or found not in members:
            raise _wrong(place, f"one of {', '.join(map(repr, members))}", found)
        return members[found]

    return _Codec(lambda value: value.value, decode)


def _dataclass(kind: type) -> _Codec:
    hints = get_type_hints(kind)
    codecs = {field.name: _codec(hints[field.name]) for field in fields(kind)}
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}

    def encode(value: Any) -> dict[str, Any]:
        made = {}
        for name, codec in codecs.items():
            one = getattr(value, name)
            if name not in defaults or one != defaults[name]:
                made[name] = codec.encode(one)
        return made

    def decode(found: Any, place: str) -> Any:
        if not isinstance(found, dict):
            raise _wrong(place, f"an object, {kind.__name__}", found)
        if strange := found.keys() - codecs.keys():
            raise _wrong(place, f"fields of {kind.__name__} among {', '.join(codecs)}", sorted(strange)[0])
        if missing := codecs.keys() - found.keys() - defaults.keys():
            raise _wrong(place, f"{sorted(missing)[0]} of {kind.__name__}", sorted(found))
        return kind(**{name: codecs[name].decode(one, f"{place}.{name}") for name, one in found.items()})

    return _Codec(encode, decode)


def _union(kinds: tuple[Any, ...]) -> _Codec:
    others = tuple(kind for kind in kinds if kind is not type(None))
    inner = _codec(others[0]) if len(others) == 1 else _tagged(others)
    if len(others) == len(kinds):
        return inner
    return _Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda found, place: None if found is None else inner.decode(found, place),
    )


def _tagged(kinds: tuple[type, ...]) -> _Codec:
    """One of several dataclasses."""
    codecs = {kind.__name__: _codec(kind) for kind in kinds}
    assert all(map(is_dataclass, kinds)), kinds

    def encode(value: Any) -> dict[str, Any]:
        name = type(value).__name__
        return {"is": name, **codecs[name].encode(value)}

    def decode(found: Any, place: str) -> Any:
        name = found.get("is") if isinstance(found, dict) else None
        if not isinstance(name, str) or name not in codecs:
            raise _wrong(place, f"an object that is one of {', '.join(codecs)}", found)
        return codecs[name].decode({key: one for key, one in found.items() if key != "is"}, place)

    return _Codec(encode, decode)
