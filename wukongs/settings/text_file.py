"""Texts that a user writes (queries, updates, TOML) as they come: bytes, in whatever encoding."""

from __future__ import annotations

from wukongs.errors import DataError


def decode_text(content: bytes, kind: str, file: str) -> str:
    """Return the text of a file, without its byte order mark. kind: its kind in errors, such as `a query`.

    Raises DataError, with line and column, unless it is in UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        found = f"found the byte 0x{error.object[error.start]:02X}"
        raise DataError(f"column {column}: expected {kind} in UTF-8, {found}; convert the file", file, line) from None
