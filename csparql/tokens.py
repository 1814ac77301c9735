"""The tokenizer: query text to tokens, by one regular expression.

The parser asks for tokens by their kind. A word's kind is the word in upper case (keywords ignore case), the kind of
punctuation is its text, and other kinds have lower-case names: iri pname blank var string lang integer decimal double
end. Tokens keep offsets; lines and columns are worked out only when an error needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from contextlib import suppress
from typing import NamedTuple

from wukongs.csparql.clock import look
from wukongs.csparql.places import excerpt, place
from wukongs.errors import DataError, QuerySyntaxError


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

REGEXES = {
    "iri": rf"<{_IRI_CHARS}(?:\\(?:u[0-9A-Fa-f]{{4}}|U[0-9A-Fa-f]{{8}}){_IRI_CHARS})*>",
    "var": rf"[?$][{_START}][{_START}\u00b7\u0300-\u036f\u203f-\u2040]*",
    "pname": rf"(?:[{_BASE}](?:[{_CHARS}.]*[{_CHARS}])?)?:(?:(?:[{_START}:]|{_ESCAPED}){_LOCAL_REST})?",
    "blank": rf"_:[{_START}](?:[{_CHARS}.]*[{_CHARS}])?",
    "word": r"[A-Za-z][A-Za-z0-9_]*",
    # `<<` and `<<(` open a triple, unless it is a comparison with an IRI written without a blank between.
    "punctuation": (
        rf"<<\(?(?!{_IRI_CHARS}>(?!>))|\)>>|>>|\{{\||\|\}}|\^\^|&&|\|\||!=|<=|>="
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
_KINDS = ("", *REGEXES)
# Possessive: blanks that were read stay read. Else a wrong character after n blanks would be tried 2**n times.
SKIPPED = r"(?:[ \t\r\n]++|#[^\r\n]*+)*+"
_TOKEN = re.compile(f"{SKIPPED}(?:{'|'.join(f'({regex})' for regex in REGEXES.values())})", re.DOTALL)
_CODEPOINTS = re.compile(
    rf"{REGEXES['string']}|{REGEXES['iri']}|#[^\r\n]*|\\u([0-9A-Fa-f]{{4}})|\\U([0-9A-Fa-f]{{8}})", re.DOTALL
)
_LINE_END = re.compile(r"\r\n|\n|\r")
_CURLY_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb`\u00b4"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_OTHER_CHARACTERS = {
    "&": "write && for a logical and",
    "%": "there is no operator %: write ?a - ?b * FLOOR(?a / ?b)",
    "$": "a variable needs a name, such as $x",
    "\\": "a backslash stands only in strings, IRIs and local names",
    "@": "a language tag is made of letters, such as 'chat'@fr",
    "\ufeff": "remove the byte order mark",
    "\u00a0": "this is a no-break space: write a plain blank",
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANKS = re.compile(SKIPPED)
_TO_END = frozenset(("end",))


def check_text(text: object, base: object = None, source: str = "query") -> None:
    """Raise QuerySyntaxError for a query or update that is no text, DataError for a base that is none."""
    if not isinstance(text, str):
        raise QuerySyntaxError("the text of a query or an update as a str", type(text).__name__, 1, 1, source)
    if base is not None and not isinstance(base, str):
        raise DataError(f"base: expected an IRI as a str, or None, found {base!r:.100}")


_TOKENS_A_LOOK = (1 << 12) - 1


def tokenize(text: str, source: str = "query") -> list[Token]:
    """Cut a query into tokens; the last one has the kind "end".

    Raises QuerySyntaxError: a string without closing quotes, a character that begins no token.
    """
    tokens: list[Token] = []
    read_tokens(text, 0, tokens, _TO_END, source)
    return tokens


def read_tokens(text: str, start: int, tokens: list[Token], last: Set[str] | None, source: str) -> int:
    """Read tokens from text[start:] up to one whose kind is in `last` (None: one token); return where it ends.

    Raises as tokenize."""
    match = None
    kinds, new = _KINDS, tuple.__new__  # Token(...) takes twice as long
    for match in iter(_TOKEN.scanner(text, start).match, None):  # type: ignore[attr-defined]
        index = match.lastindex
        piece = match[index]
        kind = kinds[index]
        if kind == "punctuation":
            kind = piece
        elif kind == "word":
            kind = piece.upper()
        tokens.append(new(Token, (kind, piece, match.start(index))))
        if not len(tokens) & _TOKENS_A_LOOK:
            look()
        if last is None or kind in last:
            return match.end()  # type: ignore[no-any-return]
    reached = start if match is None else match.end()
    blanks = _BLANKS.match(text, reached)
    raise _malformed(text, blanks.end() if blanks else reached, source)


def tokenize_decoded(
    text: str, source: str = "query", read: Callable[[str, str], list[Token]] = tokenize
) -> tuple[str, list[Token]]:
    r"""Cut a query into tokens; return them with the text that they are pieces of.

    \uXXXX may stand anywhere (SPARQL 1.1, 19.2). Strings and IRIs decode their own; others are decoded here, and only
    where the text makes no sense without, so that places in errors are those of the text as it was given.
    read: the function that cuts the text, such as `tokenize`.
    """
    if not text.isascii() and (surrogate := _SURROGATE.search(text)):
        raise _malformed(text, surrogate.start(), source)
    try:
        return text, read(text, source)
    except QuerySyntaxError:
        decoded = _CODEPOINTS.sub(_decoded, text)
        if decoded != text:
            with suppress(QuerySyntaxError):
                return decoded, read(decoded, source)
        raise


def _decoded(match: re.Match[str]) -> str:
    digits = match[1] or match[2]
    if digits is None or int(digits, 16) > 0x10FFFF or 0xD800 <= int(digits, 16) <= 0xDFFF:
        return match[0]
    return chr(int(digits, 16))


def _malformed(text: str, offset: int, source: str) -> QuerySyntaxError:
    line, column = place(text, offset)
    found, length, suggestion = text[offset], 1, ""
    if found in "\"'":
        quotes = found * 3 if text.startswith(found * 3, offset) else found
        where = "before the end of the query" if len(quotes) == 3 else "on the same line"
        head = _LINE_END.split(text[offset : offset + 30], maxsplit=1)[0]
        expected, shown, length = f"a string closed by {quotes} {where}", f"the unclosed {head}", len(head)
        if len(quotes) == 1 and text.find(found, offset + 1) > 0:
            suggestion = f"a string of several lines stands in {found * 3}"
    else:
        expected = "a term, a keyword or punctuation"
        shown = f"'{found}'" if found.isprintable() else f"the character U+{ord(found):04X}"
        suggestion = _about_character(found)
    return QuerySyntaxError(expected, shown, line, column, source, excerpt(text, offset, length), suggestion)


def _about_character(character: str) -> str:
    """Say what may have been meant by a character that begins no token."""
    if character in _CURLY_QUOTES:
        return "write straight quotes, \" or '"
    if character in _DASHES:
        return "write a plain minus sign, -"
    return _OTHER_CHARACTERS.get(character, "")
