"""Canonical form taken apart, and written as N-Triples. Plain Python: this module loads nothing heavy."""

from __future__ import annotations

import re
from functools import lru_cache

_IN_TEXT = re.compile(r'["\\\x00-\x1f\x7f]')
_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_SHORT_ESCAPES = {"\t": "\\t", "\b": "\\b", "\n": "\\n", "\r": "\\r", "\f": "\\f", '"': '\\"', "\\": "\\\\"}


def split_literal(canonical: str) -> tuple[str, str | None, str | None]:
    """Return (lexical form, datatype IRI without brackets or None, language or None) of a literal in canonical form."""
    if not canonical.startswith('"'):
        raise ValueError(f"not a literal in canonical form: {canonical!r}")
    quote = canonical.rindex('"')
    lexical, tail = canonical[1:quote], canonical[quote + 1 :]
    if tail.startswith("^^"):
        return lexical, tail[3:-1], None
    return lexical, None, tail[1:] or None


def triple_parts(canonical: str) -> tuple[str, str, str]:
    """Return subject, predicate and object of a triple term: the first two hold no blank."""
    if not canonical.startswith("("):
        raise ValueError(f"not a triple term in canonical form: {canonical!r}")
    subject, predicate, object_ = canonical[1:-1].split(" ", 2)
    return subject, predicate, object_


def _escape(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"


def _escape_in_iri(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04X}"


@lru_cache(maxsize=4096)
def shown_tag(tag: str) -> str:
    """Return a language tag with the case that RFC 5646, 2.1.1 recommends: en-GB, zh-Hant-TW, en-GB-x-ab.

    All is in lower case but for subtags of two letters, in upper case, and of four, with a capital. Those at the start
    and behind a singleton stay as they are. A base direction stays behind the tag: ar-EG--rtl."""
    language, dashes, direction = tag.partition("--")
    first, *others = language.lower().split("-")
    parts, is_plain = [first], len(first) > 1
    for part in others:
        is_plain = is_plain and len(part) > 1
        changed = {2: part.upper(), 4: part.capitalize()} if is_plain else {}
        parts.append(changed.get(len(part), part))
    return "-".join(parts) + dashes + direction


def to_ntriples(canonical: str) -> str:
    """Return a term as N-Triples writes it: quotes, backslashes and control characters escaped, the rest in UTF-8.
    Language tags have the case of `shown_tag`."""
    if canonical.startswith("<"):
        return f"<{_IN_IRI.sub(_escape_in_iri, canonical[1:-1])}>"
    if canonical.startswith("("):
        return f"<<( {' '.join(map(to_ntriples, triple_parts(canonical)))} )>>"
    if not canonical.startswith('"'):
        return canonical
    lexical, datatype, language = split_literal(canonical)
    quoted = f'"{_IN_TEXT.sub(_escape, lexical)}"'
    if datatype is not None:
        return f"{quoted}^^<{_IN_IRI.sub(_escape_in_iri, datatype)}>"
    return quoted if language is None else f"{quoted}@{shown_tag(language)}"
