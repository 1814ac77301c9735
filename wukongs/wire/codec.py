"""Packet <-> frames: a JSON header, and one frame per array, its bytes as they lie in memory.

header: {"wukongs": version, "way": "ask" | "tell" | "answer", "kind", "seq", "from", "token", "fields": {...},
"arrays": [[name, type, length], ...]}; "from" and "token" where there are such. An array's frame is what Arrow
calls the data buffer of a primitive array: little endian, contiguous, bools a byte each.

A sent array is not copied. A received one is, once: kernels are compiled for arrays that are aligned, writable and
their own, and what lies inside of a received message is none of these. Nothing is unpickled or evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wukongs.errors import DataError
from wukongs.live.grants import ALL, Grant
from wukongs.live.header import Frame, MessageError, read_header, write_header
from wukongs.wire.packets import Array, Packet

MESSAGE_BYTES_MAX = 1 << 30
ARRAYS_MAX = 256
NAME_LENGTH_MAX = 256
_INT64_MAX = (1 << 63) - 1

ASK, TELL, ANSWER = "ask", "tell", "answer"
_WAYS = (ASK, TELL, ANSWER)
_TYPES = {name: np.dtype(code) for name, code in (("int64", "<i8"), ("int32", "<i4"), ("uint8", "u1"), ("bool", "?"))}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}  # dtype.name makes its text each time
_BOOL = _TYPES["bool"]

Sender = tuple[int, int, int] | str
"""The sender of a message. A node: its number and the generation and boot of its disk. A client: a name of its own."""


class Header(NamedTuple):
    """A message without its arrays. way: a question, a message that asks for no answer, or an answer; sequence: from 1
    on, rises with each message of a sender to one node; an answer repeats its question's; grant: as Packet has it."""

    way: str
    kind: str
    sequence: int
    sender: Sender | None
    token: str | None
    fields: dict[str, Any]
    arrays: list[tuple[str, npt.DTypeLike, int]]
    grant: Grant = ALL


def to_frames(
    packet: Packet, way: str, sequence: int, sender: Sender | None = None, token: str | None = None
) -> list[Frame]:
    """Return the frames of a packet. Raises: DataError (more than can be sent in one message)."""
    header: dict[str, Any] = {"way": way, "kind": packet.kind, "seq": sequence}
    if sender is not None:
        header["from"] = sender
    if token is not None:
        header["token"] = token
    if packet.fields:
        header["fields"] = packet.fields
    frames: list[Frame] = []
    if packet.arrays:
        frames = [_array_frame(name, array) for name, array in packet.arrays.items()]
        header["arrays"] = [[name, _NAMES[array.dtype], len(array)] for name, array in packet.arrays.items()]
    size = sum(map(len, frames))
    if size > MESSAGE_BYTES_MAX or len(frames) > ARRAYS_MAX:
        raise DataError(
            f"packet '{packet.kind}': {len(frames)} arrays of {size} bytes, at most {ARRAYS_MAX} of "
            f"{MESSAGE_BYTES_MAX} bytes can be sent. Send less at a time"
        )
    return [write_header(header), *frames]


def _array_frame(name: str, array: Array) -> Frame:
    assert array.dtype in _NAMES, (name, array.dtype)
    assert array.ndim == 1, (name, array.shape)
    return np.ascontiguousarray(array).view(np.uint8).data


def read_packet_header(frames: Sequence[Frame], bytes_max: int = MESSAGE_BYTES_MAX) -> Header:
    """Return the header of a message, after a check that the frames fit its arrays. Their content is not looked at.

    Raises: MessageError (too big, another version, torn, or anything else that is no packet)."""
    if not frames:
        raise MessageError("message: expected a header frame, found no frame")
    return packet_header(read_header(frames[0]), frames, bytes_max)


def packet_header(raw: dict[str, Any], frames: Sequence[Frame], bytes_max: int = MESSAGE_BYTES_MAX) -> Header:
    """Return the header of a message whose first frame holds these fields. Raises: MessageError."""
    sequence = sequence_in(raw)
    try:
        check_size(frames, bytes_max)
        return _read(raw, sequence, frames)
    except MessageError as error:
        error.sequence = sequence
        raise


def check_size(frames: Sequence[Frame], bytes_max: int) -> None:
    """Raises: MessageError (a message of more bytes)."""
    size = sum(map(len, frames))
    if size > bytes_max:
        raise MessageError(f"message: expected at most {bytes_max} bytes, found {size}", "oversized")


def sequence_in(raw: dict[str, Any]) -> int:
    """Return the number of a message, which its answer repeats; 0: it has none that could be one."""
    found = raw.get("seq")
    return found if type(found) is int and 0 < found <= _INT64_MAX else 0


def _read(raw: dict[str, Any], sequence: int, frames: Sequence[Frame]) -> Header:
    kind, way, token = raw.get("kind"), raw.get("way"), raw.get("token")
    if not isinstance(kind, str) or not 0 < len(kind) <= NAME_LENGTH_MAX:
        raise MessageError(f"packet: expected a kind, found {_shown(kind)}")
    if way not in _WAYS:
        raise MessageError(f"packet '{kind}': expected a way among {', '.join(_WAYS)}, found {_shown(way)}")
    if sequence == 0:
        raise MessageError(f"packet '{kind}': expected seq to be an integer from 1 on, found {_shown(raw.get('seq'))}")
    if token is not None and not isinstance(token, str):
        raise MessageError(f"packet '{kind}': expected a token as a text, found another type")
    fields = raw.get("fields", {})
    if not isinstance(fields, dict):
        raise MessageError(f"packet '{kind}': expected fields as an object, found {_shown(fields)}")
    arrays = _read_arrays(kind, raw.get("arrays", []), frames[1:])
    return Header(way, kind, sequence, _read_sender(kind, raw.get("from")), token, fields, arrays)


def _read_sender(kind: str, sender: object) -> Sender | None:
    if sender is None or (isinstance(sender, str) and 0 < len(sender) <= NAME_LENGTH_MAX):
        return sender
    if isinstance(sender, list) and len(sender) == 3:
        node, disk, boot = sender
        if _is_number(node) and _is_number(disk) and _is_number(boot):
            return node, disk, boot
    raise MessageError(f"packet '{kind}': expected a sender as a text or as node, disk, boot, found {_shown(sender)}")


def _read_arrays(kind: str, named: object, frames: Sequence[Frame]) -> list[tuple[str, npt.DTypeLike, int]]:
    if not isinstance(named, list) or len(named) > ARRAYS_MAX:
        raise MessageError(f"packet '{kind}': expected a list of at most {ARRAYS_MAX} arrays, found {_shown(named)}")
    if not named and not frames:
        return []
    if len(named) != len(frames):
        raise MessageError(f"packet '{kind}': expected {len(named)} frames of arrays, found {len(frames)}")
    arrays = [_read_array(kind, one, frame) for one, frame in zip(named, frames, strict=True)]
    if len({name for name, _, _ in arrays}) != len(arrays):
        raise MessageError(f"packet '{kind}': expected arrays with different names, found one twice")
    return arrays


def _read_array(kind: str, described: object, frame: Frame) -> tuple[str, npt.DTypeLike, int]:
    if not (isinstance(described, list) and len(described) == 3):
        raise MessageError(f"packet '{kind}': expected an array as name, type, length, found {_shown(described)}")
    name, type_name, length = described
    dtype = _TYPES.get(type_name) if isinstance(type_name, str) else None
    if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX or dtype is None:
        raise MessageError(
            f"packet '{kind}': expected an array's name and a type among {', '.join(_TYPES)}, found {_shown(described)}"
        )
    if type(length) is not int or length < 0 or length * dtype.itemsize != len(frame):
        raise MessageError(
            f"packet '{kind}': expected array {_shown(name)} as {type_name}[{_shown(length)}], found {len(frame)} bytes"
        )
    return name, dtype, length


def packet_of(header: Header, frames: Sequence[Frame], copies: bool = True) -> Packet:
    """Return the packet of a header that was read from these frames. copies: whether its arrays are its own; else the
    frames have to be writable and aligned. Raises: MessageError (a bool that is none)."""
    arrays: dict[str, Array] = {}
    for (name, dtype, _), frame in zip(header.arrays, frames[1:], strict=True):
        raw = np.frombuffer(frame, np.uint8)
        if dtype is _BOOL and len(raw) and raw.max() > 1:
            raise MessageError(
                f"packet '{header.kind}': expected array '{name}' of bools as bytes 0 and 1, found {raw.max()}",
                sequence=header.sequence,
            )
        arrays[name] = (np.array(raw) if copies else raw).view(dtype)
    return Packet(header.kind, header.fields, arrays, header.grant)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _INT64_MAX


def _shown(value: object) -> str:
    """Return a value of a peer for a message: short, whatever it is."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
