"""The header frame with which every message begins: one JSON object with the version of the wire format.

It is read with json and nothing else. Any bytes of a peer give an object, or a DataError that names the fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from wukongs.errors import DataError

PROTOCOL_VERSION = 4
"""The version of the frames, in each header. It stays while a header can be read."""
SPOKEN = (4, 4)
"""The oldest and the newest version of what messages mean that this release speaks: docs/wire.md has the rule."""
_SAYS_NOTHING = (4, 4)
OLDEST_LOGGED_VERSION = 1
"""Messages that a data folder's log holds are the same in all versions from this one on."""
HEADER_BYTES_MAX = 16 << 20

Frame: TypeAlias = bytes | memoryview


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Made once: json.dumps and json.loads would make them for each message, which takes longer than most messages do.
_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_from_text = json.JSONDecoder(parse_constant=_refuse_constant).decode


def version_with(told: object, spoken: tuple[int, int] = SPOKEN) -> int | None:
    """Return the version of messages that two sides use: the newest that both speak; None: there is none.

    told: the oldest and the newest that the other side speaks; None: it is of a release that does not say so."""
    told = _SAYS_NOTHING if told is None else told
    if not isinstance(told, list | tuple) or [type(version) for version in told] != [int, int]:
        return None
    newest = min(told[1], spoken[1])
    return newest if newest >= max(told[0], spoken[0]) else None


class MessageError(DataError):
    """A message that cannot be taken. reason: what it is counted under; sequence: the message's own number, which the
    answer repeats, 0 where it cannot be found. Told to the peer as a DataError."""

    def __init__(self, message: str, reason: str = "malformed", sequence: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.sequence = sequence


def write_header(fields: Mapping[str, Any]) -> bytes:
    """Return the header frame of a message: its fields, and the version.

    Raises: DataError (more than HEADER_BYTES_MAX, or a text with half of a surrogate pair)."""
    try:
        raw = _to_text({"wukongs": PROTOCOL_VERSION, **fields}).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"message: expected texts of whole characters, found {error.object[error.start]!r}") from None
    if len(raw) > HEADER_BYTES_MAX:
        raise DataError(
            f"message: {len(raw)} bytes of plain fields, at most {HEADER_BYTES_MAX} can be sent. Send less at a time"
        )
    return raw


def read_header(frame: Frame, oldest_version: int = PROTOCOL_VERSION) -> dict[str, Any]:
    """Return the fields of a header frame of our version, or of one since the oldest. Raises: MessageError."""
    if len(frame) > HEADER_BYTES_MAX:
        raise MessageError(
            f"message: expected a header of at most {HEADER_BYTES_MAX} bytes, found {len(frame)}", "oversized"
        )
    raw = bytes(frame)
    try:
        header = _from_text(raw.decode())
        if b"\\u" in raw:
            _to_text(header).encode()
    except (ValueError, RecursionError):
        raise MessageError(f"message: expected a JSON header, found {raw[:60]!r}") from None
    if not isinstance(header, dict) or "wukongs" not in header:
        raise MessageError(f"message: expected a header with a 'wukongs' version, found {raw[:60]!r}")
    version = header["wukongs"]
    if type(version) is not int or not oldest_version <= version <= PROTOCOL_VERSION:
        raise MessageError(
            f"message: expected protocol version {PROTOCOL_VERSION}, found {version!r}. "
            "Run the same version of wukongs on both sides",
            "wrong version",
        )
    return header
