"""Triple terms (RDF 1.2) in N-Quads text: taken out before the kernel reads it, and put in again as terms.

The kernel knows IRIs, blank nodes and literals. So a triple term becomes an IRI that stands for it, which no
file has, and the encoded term gets its canonical form `(subject predicate object)` afterwards. Only text in which the
kernel has met `<<(` is read here, a line at a time.
"""

from __future__ import annotations

import re
import secrets
from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from wukongs.errors import DataError
from wukongs.store.canonical import to_ntriples, triple_parts
from wukongs.store.encoded import Encoded, MalformedLine
from wukongs.store.encoder import canonical_term, encode_lines, rename_terms

_LITERAL = r'"(?:[^"\\\n\r]|\\.)*"(?:[ \t]*@[A-Za-z0-9-]+|[ \t]*\^\^[ \t]*<[^<>]*>)?'
_TOKEN = re.compile(rf"""[ \t]*(<<\(|\)>>|<[^<>]*>|_:[^\s<>"()]+|{_LITERAL})""".encode())
_MARK = b"<<("
_LINE_END = re.compile(rb"(\r\n|\n|\r)")
DEPTH_MAX = 100
"""So deeply triple terms may nest."""


def encode_lines_with_triples(
    text: bytes | memoryview, scope: bytes, graphs: bool, hash_bits: int
) -> tuple[Encoded, list[MalformedLine], int]:
    """Encode N-Triples, or with graphs N-Quads, without times and with triple terms as objects.

    Returns what store.encoder.encode_lines returns."""
    found = encode_lines(text, scope, "none", graphs, hash_bits, 1)
    if not any("<<(" in line.text for line in found[1]):
        return found
    texts: list[str] = []
    stands_for = f"<triple-term:{secrets.token_hex(16)}/"
    lines = _LINE_END.split(bytes(text).removeprefix(BOM_UTF8))
    lines[::2] = [_taken_out(line, scope, stands_for, texts) for line in lines[::2]]
    encoded, malformed, behind = encode_lines(b"".join(lines), scope, "none", graphs, hash_bits, 1)
    malformed = [_put_back(line, stands_for, texts) for line in malformed]
    rows, names = [], []
    for row, name in enumerate((*encoded.terms.texts(), *encoded.clashes.texts())):
        if name.startswith(stands_for):
            rows.append(row)
            names.append(texts[int(name[len(stands_for) : -1])])
    return rename_terms(encoded, np.array(rows, np.int64), names, hash_bits) if rows else encoded, malformed, behind


def _put_back(line: MalformedLine, stands_for: str, texts: list[str]) -> MalformedLine:
    """Show the triple term of a malformed line as N-Triples has it, and the column to the right of it moved."""
    start = line.text.find(stands_for)
    if start < 0:
        is_it = line.text.startswith("<<(", line.column - 2)
        return replace(line, column=line.column - 1, reason="this is not a valid triple term") if is_it else line
    stop = line.text.index(">", start) + 1
    written = to_ntriples(texts[int(line.text[start + len(stands_for) : stop - 1])])
    moved = len(written) - (stop - start) if line.column > start else 0
    return replace(line, column=line.column + moved, text=line.text[:start] + written + line.text[stop:])


def with_blanks(text: str, change: Callable[[str], str]) -> str:
    """Return a blank node, or a triple term with the blank nodes inside of it, changed; other terms as they are."""
    if text.startswith("("):
        return f"({' '.join(with_blanks(part, change) for part in triple_parts(text))})"
    return change(text) if text.startswith("_") else text


def _taken_out(line: bytes, scope: bytes, stands_for: str, texts: list[str]) -> bytes:
    """Put an IRI in the place of the object of a line, if that is a triple term; append its canonical form to texts."""
    if _MARK not in line:
        return line
    at = 0
    for _ in range(2):
        token = _TOKEN.match(line, at)
        if token is None or token[1] == _MARK:
            return line
        at = token.end()
    try:
        made = _read(line, at, scope)
    except (DataError, UnicodeDecodeError):  # which a part of it has: the kernel finds the line malformed
        made = None
    if made is None:
        return line
    text, stop = made
    texts.append(text)
    return b"%b %b%d>%b" % (line[:at], stands_for.encode(), len(texts) - 1, line[stop:])


def _read(line: bytes, at: int, scope: bytes, depth: int = 1) -> tuple[str, int] | None:
    """Read the triple term at a place of a line; return its canonical form and the place behind it, None if there is
    none that is right: the kernel then says so of the line."""
    opening = _TOKEN.match(line, at)
    if opening is None or opening[1] != _MARK or depth > DEPTH_MAX:
        return None
    at = opening.end()
    parts: list[str] = []
    for kinds in (b"<_", b"<", b'<_"'):
        token = _TOKEN.match(line, at)
        if token is None or token[1] == b")>>":
            return None
        if token[1] == _MARK:
            inner = _read(line, at, scope, depth + 1) if len(parts) == 2 else None
            if inner is None:
                return None
            parts.append(inner[0])
            at = inner[1]
        elif token[1][:1] in kinds:
            parts.append(canonical_term(token[1].decode(), scope))
            at = token.end()
        else:
            return None
    closing = _TOKEN.match(line, at)
    if closing is None or closing[1] != b")>>":
        return None
    return f"({' '.join(parts)})", closing.end()
