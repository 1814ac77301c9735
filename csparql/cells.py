"""How text looks on a terminal: in cells, two for a wide character and none for a combining one."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """Return the text with some characters as \\uXXXX: those that would move the cursor, end the line or not print
    (controls, line separators, lone surrogates)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(character):04X}" if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") else character
        for character in text
    )


def display_width(text: str) -> int:
    """Return the terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    return sum(cell_count(character) for character in text)


def cell_count(character: str) -> int:
    """Return the terminal cells that one character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("F", "W") else 1
