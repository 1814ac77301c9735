"""Another reading of N-Triples and N-Quads, by regular expressions taken from the grammar, and of inlined values.

Written from the W3C grammar and the canonical form of ARCHITECTURE.md, not from the kernels.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import xxhash

XSD = "http://www.w3.org/2001/XMLSchema#"

_ESCAPED = r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}"
_IRI = rf"<[A-Za-z][A-Za-z0-9+.\-]*:(?:[^\x00-\x20<>\"{{}}|^`\\]|{_ESCAPED})*>"
_START = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff_0-9"
)
_INNER = _START + "\\-\u00b7\u0300-\u036f\u203f\u2040"
_BLANK = rf"_:[{_START}](?:[{_INNER}.]*[{_INNER}])?"
_TAG = r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*"  # RDF 1.1 Concepts 3.3 with RFC 5646, 2.1
_QUOTED = rf'"(?:[^"\\\n\r]|\\[tbnrf"\'\\]|{_ESCAPED})*"'
_LITERAL = rf"{_QUOTED}(?:[ \t]*@{_TAG}(?:--ltr|--rtl)?|[ \t]*\^\^[ \t]*(?P<datatype>{_IRI}))?"
_VERSION = re.compile(rf"[ \t]*VERSION[ \t]*{_QUOTED}[ \t]*(?:#.*)?")  # RDF 1.2 N-Triples, versionDirective
_LINE = re.compile(
    rf"[ \t]*(?:(?P<s>{_IRI}|{_BLANK})[ \t]*(?P<p>{_IRI})[ \t]*(?P<o>{_IRI}|{_BLANK}|{_LITERAL})[ \t]*"
    rf"(?:(?P<g>{_IRI}|{_BLANK})[ \t]*)?\.[ \t]*)?(?:#.*)?"
)
_NEEDS_A_TAG = {f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}>" for name in ("langString", "dirLangString")}
_SIMPLE = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


def _decode(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        body = match.group(1)
        return chr(int(body[1:], 16)) if body[0] in "uU" else _SIMPLE[body]

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", one, text)


def canonical(term: str, scope: bytes) -> str:
    """Return the canonical form of a well-formed N-Triples term."""
    if term.startswith("_:"):
        return f"_:s{xxhash.xxh64_hexdigest(scope, 42)}x{term[2:]}"
    if term.startswith("<"):
        return _decode(term)
    quote = term.rindex('"')
    lexical, tail = _decode(term[:quote]) + '"', term[quote + 1 :].replace(" ", "").replace("\t", "")
    if tail.startswith("@"):
        return lexical + tail.lower()
    return lexical + (_decode(tail) if _decode(tail) != f"^^<{XSD}string>" else "")


def read_line(line: str, scope: bytes, graphs: bool = True) -> tuple[str, ...] | None:
    """Return the canonical terms of a line: three, four, none for a blank line, comment or directive; None if it is
    malformed. graphs: whether it is N-Quads, which may name a graph."""
    if _VERSION.fullmatch(line):
        return ()
    match = _LINE.fullmatch(line)
    if match is None or (match["g"] is not None and not graphs):
        return None
    if match["datatype"] is not None and _decode(match["datatype"]) in _NEEDS_A_TAG:
        return None
    return tuple(canonical(match[name], scope) for name in "spog" if match[name] is not None)


def value_of(lexical: str, datatype: str) -> Decimal | bool | datetime | date:
    """Return the Python value of a lexical form; a time without a zone is taken as UTC."""
    name = datatype.removeprefix(XSD)
    if name == "boolean":
        return lexical in ("true", "1")
    if name == "dateTime":
        found = datetime.fromisoformat(lexical)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    if name == "date":
        zone = datetime.fromisoformat("2000-01-01T00:00:00" + lexical[10:]).tzinfo or UTC
        day = date.fromisoformat(lexical[:10])
        return datetime(day.year, day.month, day.day, tzinfo=zone)
    return Decimal(lexical)
