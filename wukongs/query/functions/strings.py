"""Functions on strings (SPARQL 1.1, 17.4.3) and hashes (17.4.6). REGEX and REPLACE are in patterns.py.

A string literal is a simple or a language-tagged string; anything else is an error. Two are compatible if the second is
simple or has the tag of the first (17.4.3.1.2). A result that is a part of the first argument has its tag; other
results are simple. Positions and lengths count characters (code points).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from urllib.parse import quote

from wukongs.query.limits import CHARACTER_BYTES, current
from wukongs.query.terms.value_operators import from_truth
from wukongs.query.terms.values import Kind, Value, computed, string, tagged

DIGESTS = ("MD5", "SHA1", "SHA256", "SHA384", "SHA512")
PIECE_CHARACTERS = 1 << 18
"""So much of a long text is worked on between two looks at the clock."""


def text(value: Value) -> str | None:
    """Return the characters of a string literal, None for any other term."""
    return str(value.data) if value.kind in (Kind.STRING, Kind.LANG_STRING) else None


def simple(value: Value) -> str | None:
    """Return the characters of a simple string, None for any other term."""
    return str(value.data) if value.kind == Kind.STRING else None


def like(model: Value, lexical: str) -> Value:
    """Make a string with the language tag of another one, or without if that has none."""
    return tagged(lexical, model.language) if model.kind == Kind.LANG_STRING else string(lexical)


def _compatible(first: Value, second: Value) -> tuple[str, str] | None:
    """Return the characters of two compatible string literals."""
    one, other = text(first), text(second)
    is_fitting = second.kind == Kind.STRING or first.language == second.language
    return (one, other) if one is not None and other is not None and is_fitting else None


def _strlen(value: Value) -> Value | None:
    held = text(value)
    return None if held is None else computed(Kind.INTEGER, len(held))


def _substr(value: Value, start: Value, length: Value | None = None) -> Value | None:
    """Take the characters at positions p with start <= p < start + length, the first one being 1."""
    held = text(value)
    if held is None or start.kind != Kind.INTEGER or (length is not None and length.kind != Kind.INTEGER):
        return None
    first = int(start.number) - 1
    stop = len(held) if length is None else max(first + int(length.number), 0)
    return like(value, held[max(first, 0) : stop])


def _pieces(held: str) -> Iterator[str]:
    """Cut a text, looking at the clock before each piece; a short one is one piece."""
    for start in range(0, len(held), PIECE_CHARACTERS):
        current().check()
        yield held[start : start + PIECE_CHARACTERS]


def _changed(held: str, change: Callable[[str], str], name: str) -> str:
    """Change a text character by character."""
    if len(held) <= PIECE_CHARACTERS:
        return change(held)
    made, size = [], 0
    for piece in _pieces(held):
        made.append(change(piece))
        size += len(made[-1])
        current().expect(CHARACTER_BYTES * size, name)
    return "".join(made)


def upper_case(held: str) -> str:
    """UCASE, of any length."""
    return _changed(held, str.upper, "UCASE")


def lower_case(held: str) -> str:
    """LCASE, of any length.

    A capital sigma in lower case depends on the characters around it: a text with one is changed as a whole."""
    return held.lower() if "Σ" in held else _changed(held, str.lower, "LCASE")


def uri_encoded(held: str) -> str:
    """ENCODE_FOR_URI, of any length."""
    return _changed(held, lambda piece: quote(piece, safe=""), "ENCODE_FOR_URI")


def digest_of(held: str, algorithm: str) -> str:
    """One of the DIGESTS, as hashlib calls them, of a text of any length."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    for piece in _pieces(held):
        digest.update(piece.encode())
    return digest.hexdigest()


def _mapped(change: Callable[[str], str]) -> Callable[[Value], Value | None]:
    def apply(value: Value) -> Value | None:
        held = text(value)
        return None if held is None else like(value, change(held))

    return apply


def _test(holds: Callable[[str, str], bool]) -> Callable[[Value, Value], Value | None]:
    def apply(value: Value, part: Value) -> Value | None:
        pair = _compatible(value, part)
        return None if pair is None else from_truth(holds(*pair))

    return apply


def _strbefore(value: Value, part: Value) -> Value | None:
    pair = _compatible(value, part)
    if pair is None:
        return None
    before, found, _ = pair[0].partition(pair[1]) if pair[1] else ("", True, "")
    return like(value, before) if found else string("")


def _strafter(value: Value, part: Value) -> Value | None:
    pair = _compatible(value, part)
    if pair is None:
        return None
    _, found, after = pair[0].partition(pair[1]) if pair[1] else ("", True, pair[0])
    return like(value, after) if found else string("")


def _encode_for_uri(value: Value) -> Value | None:
    held = text(value)
    return None if held is None else string(uri_encoded(held))


def _concat(*values: Value) -> Value | None:
    """Join strings; the result has a language tag if all of them have this one."""
    parts = [text(value) for value in values]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    current().expect(CHARACTER_BYTES * sum(map(len, known)), "CONCAT")
    languages = {value.language for value in values}
    language = languages.pop() if len(languages) == 1 else ""
    return tagged("".join(known), language) if language else string("".join(known))


def _langmatches(tag: Value, language_range: Value) -> Value | None:
    held, wanted = simple(tag), simple(language_range)
    return None if held is None or wanted is None else from_truth(language_fits(held, wanted))


def language_fits(tag: str, language_range: str) -> bool:
    """Tell whether a language tag is in a range: basic filtering of RFC 4647, 3.3.1."""
    if language_range == "*":
        return tag != ""
    return f"{tag.lower()}-".startswith(f"{language_range.lower()}-")


def _digest(algorithm: str) -> Callable[[Value], Value | None]:
    def apply(value: Value) -> Value | None:
        held = simple(value)
        return None if held is None else string(digest_of(held, algorithm))

    return apply


FUNCTIONS: dict[str, Callable[..., Value | None]] = {
    "STRLEN": _strlen,
    "SUBSTR": _substr,
    "UCASE": _mapped(upper_case),
    "LCASE": _mapped(lower_case),
    "STRSTARTS": _test(str.startswith),
    "STRENDS": _test(str.endswith),
    "CONTAINS": _test(str.__contains__),
    "STRBEFORE": _strbefore,
    "STRAFTER": _strafter,
    "ENCODE_FOR_URI": _encode_for_uri,
    "CONCAT": _concat,
    "LANGMATCHES": _langmatches,
    **{name: _digest(name.lower()) for name in DIGESTS},
}
