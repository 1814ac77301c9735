"""Protocol values <-> plain JSON, as the type hints of wukongs/protocol say: what nodes tell each other.

* A record or message is an object of its fields; those that have their default are left out. One of a union also says
  which one it is, under "is". A NamedTuple is a list of its fields, an enum its value, a frozenset a sorted list.
* A mapping is an object; the keys of one from numbers are written as texts.
* Received values are checked by the same hints: a peer may lie. Unknown fields, missing ones, other types and
  numbers beyond 64 bits are refused by DataError with their place. A repeated member of a set counts once. Inside of a
  Control, unknown fields are passed over. Nothing else is checked here: the protocol decides which claims of a peer it
  believes.

New fields, messages and records need nothing here: msgspec reads the hints (decision 0030).
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from msgspec import ValidationError, convert, to_builtins

from wukongs.errors import DataError
from wukongs.protocol.messages import Message
from wukongs.wire.packets import Packet

T = TypeVar("T")

_preparing = threading.Lock()
_prepared: set[object] = set()
"""The types whose hints msgspec has read. When two threads have it read the same hints at a time, it may crash."""
PROTOCOL = "protocol"
"""The kind of packets that carry one message of the protocol."""


def message_packet(message: Message) -> Packet:
    return Packet(PROTOCOL, encode(message))


def message_in(packet: Packet) -> Message:
    """Return the message that a packet carries. Raises: DataError (a packet without one)."""
    if packet.kind != PROTOCOL:
        raise DataError(f"expected a packet of kind '{PROTOCOL}', found '{packet.kind}'")
    return decode(packet.fields, Message, "message")


def encode(value: Any) -> Any:
    """Return a value as JSON values."""
    return to_builtins(value, str_keys=True, order="deterministic")


def decode(found: Any, kind: type[T], place: str) -> T:
    """Return the value of this type that the JSON values stand for; place: what they are called in errors.

    Raises: DataError."""
    try:
        if kind in _prepared:
            return convert(found, kind, str_keys=True)
        with _preparing:
            try:
                return convert(found, kind, str_keys=True)
            finally:
                _prepared.add(kind)
    except ValidationError as error:
        raise DataError(f"{place}: {error}") from None
