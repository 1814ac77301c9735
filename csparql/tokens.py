"""The tokenizer: query text to tokens, by one regular expression.

A token's kind is what the parser asks for: a word's kind is the word in upper case (keywords ignore case), the kind of
punctuation is its text, and all else has a lower-case name: iri pname blank var string lang integer decimal double end.
Tokens keep offsets; lines and columns are worked out only when an error needs them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from wukongs.errors import QuerySyntaxError


class Token(NamedTuple):
    """A piece of the query text: text[start:start + len(token.text)]."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


# Character classes of the SPARQL grammar (productions PN_CHARS_BASE, PN_CHARS_U, PN_CHARS, VARNAME, PLX, IRIREF).
_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_START = f"{_BASE}_0-9"
_CHARS = f"{_START}\u00b7\u0300-\u036f\u203f-\u2040-"
_ESCAPED = r"(?:%[0-9A-Fa-f]{2}|\\[-_~.!$&'()*+,;=/?#@%])"
_LOCAL_REST = rf"[{_CHARS}:]*(?:(?:{_ESCAPED}|\.+(?=[{_CHARS}:]|{_ESCAPED}))[{_CHARS}:]*)*"
_IRI_CHARS = r"""[^<>"{}|^`\\\x00-\x20]*"""
_EXPONENT = r"[eE][+-]?[0-9]+"

_SHAPES = {
    "iri": rf"<{_IRI_CHARS}(?:\\(?:u[0-9A-Fa-f]{{4}}|U[0-9A-Fa-f]{{8}}){_IRI_CHARS})*>",
    "var": rf"[?$][{_START}][{_START}\u00b7\u0300-\u036f\u203f-\u2040]*",
    "pname": rf"(?:[{_BASE}](?:[{_CHARS}.]*[{_CHARS}])?)?:(?:(?:[{_START}:]|{_ESCAPED}){_LOCAL_REST})?",
    "blank": rf"_:[{_START}](?:[{_CHARS}.]*[{_CHARS}])?",
    "word": r"[A-Za-z][A-Za-z0-9_]*",
    # `<<` opens a triple term, unless it is a comparison with an IRI written without a blank between.
    "punctuation": (
        rf"<<(?!{_IRI_CHARS}>)|>>|\{{\||\|\}}|\^\^|&&|\|\||!=|<=|>="
        r"|[{}()\[\],;=<>!+*/|^?~-]|\.(?![0-9])"
    ),
    "double": rf"(?:[0-9]+\.[0-9]*|\.?[0-9]+){_EXPONENT}",
    "decimal": r"[0-9]*\.[0-9]+",
    "integer": r"[0-9]+",
    "string": (
        r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
        r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
        r'|"(?!"")[^"\\\n\r]*(?:\\.[^"\\\n\r]*)*"'
        r"|'(?!'')[^'\\\n\r]*(?:\\.[^'\\\n\r]*)*'"
    ),
    "lang": r"@[A-Za-z]+(?:-[A-Za-z0-9]+)*(?:--[A-Za-z]+)?",
    "end": r"\Z",
}
_KINDS = ("", *_SHAPES)
_TOKEN = re.compile(
    r"(?:[ \t\r\n]+|#[^\r\n]*)*(?:" + "|".join(f"({shape})" for shape in _SHAPES.values()) + ")", re.DOTALL
)
_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANKS = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")


def tokenize(text: str, source: str = "query") -> list[Token]:
    """Cut a query into tokens; the last one has the kind "end".

    Raises QuerySyntaxError: a string without closing quotes, a character that begins no token.
    """
    tokens = []
    kinds = _KINDS
    for match in iter(_TOKEN.scanner(text).match, None):  # type: ignore[attr-defined]
        index = match.lastindex
        piece = match[index]
        kind = kinds[index]
        if kind == "punctuation":
            kind = piece
        elif kind == "word":
            kind = piece.upper()
        tokens.append(Token(kind, piece, match.start(index)))
        if kind == "end":
            return tokens
    reached = tokens[-1].end if tokens else 0
    blanks = _BLANKS.match(text, reached)
    raise _malformed(text, blanks.end() if blanks else reached, source)


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, both from 1, of a character; columns count characters."""
    line, line_start = 1, 0
    for match in _LINE_END.finditer(text, 0, offset):
        line, line_start = line + 1, match.end()
    return line, offset - line_start + 1


def _malformed(text: str, offset: int, source: str) -> QuerySyntaxError:
    line, column = place(text, offset)
    found = text[offset]
    if found in "\"'":
        quotes = found * 3 if text.startswith(found * 3, offset) else found
        where = "before the end of the query" if len(quotes) == 3 else "on the same line"
        head = _LINE_END.split(text[offset : offset + 30], maxsplit=1)[0]
        return QuerySyntaxError(f"a string closed by {quotes} {where}", f"the unclosed {head}", line, column, source)
    shown = f"'{found}'" if found.isprintable() else f"the character U+{ord(found):04X}"
    return QuerySyntaxError("a term, a keyword or punctuation", shown, line, column, source)
