"""Escapes in strings, IRIs and local names, decoded."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_CODEPOINT = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_FORBIDDEN_IN_IRI = re.compile(r"""[<>"{}|^`\\\x00-\x20]""")
_LOCAL = re.compile(r"\\(.)")
_SHORT = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


class EscapeError(Exception):
    """An escape that stands for nothing: its offset in the given text, and the escape."""

    def __init__(self, offset: int, escape: str) -> None:
        super().__init__(f"{escape} at {offset}")
        self.offset = offset
        self.escape = escape


def unescape_string(text: str) -> str:
    r"""Decode \t \n \r \b \f \" \' \\ \uXXXX and \UXXXXXXXX. Raises EscapeError."""
    return _ESCAPE.sub(_string_character, text) if "\\" in text else text


def unescape_iri(text: str) -> str:
    r"""Decode \uXXXX and \UXXXXXXXX. The characters must be allowed in an IRI. Raises EscapeError."""
    return _CODEPOINT.sub(_iri_character, text) if "\\" in text else text


def unescape_local(text: str) -> str:
    """Drop the backslashes before punctuation in a local name; percent escapes stay."""
    return _LOCAL.sub(r"\1", text) if "\\" in text else text


def _string_character(match: re.Match[str]) -> str:
    short = match[3]
    if short is None:
        return _codepoint(match)
    if short not in _SHORT:
        raise EscapeError(match.start(), match[0])
    return _SHORT[short]


def _iri_character(match: re.Match[str]) -> str:
    character = _codepoint(match)
    if _FORBIDDEN_IN_IRI.match(character):
        raise EscapeError(match.start(), match[0])
    return character


def _codepoint(match: re.Match[str]) -> str:
    number = int(match[1] or match[2], 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise EscapeError(match.start(), match[0])
    return chr(number)
