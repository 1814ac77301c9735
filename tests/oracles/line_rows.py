"""Rows of the line sources by plain Python: where they begin, when they happen, and prefixed names spelt out."""

from __future__ import annotations

import re

NO_TIME = -(1 << 62)
_ROW = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_STATEMENT = re.compile(rb'[ \t]*<h:\w+>[ \t]*<h:\w+>[ \t]*(?:<h:\w+>|"\w*")[ \t]*\.[ \t]*(-?\d{1,18})[ \t]*(?:#.*)?')


def rows_of(data: bytes) -> list[bytes]:
    """The rows with their line ends; LF, CRLF and CR end one."""
    return _ROW.findall(data)


def time_of(row: bytes) -> int:
    """The suffix time of a statement made of <h:name> IRIs and "word" literals, NO_TIME for anything else."""
    match = _STATEMENT.fullmatch(row.rstrip(b"\r\n"))
    return int(match[1]) if match else NO_TIME


def expand(row: bytes, prefixes: dict[bytes, bytes]) -> bytes | None:
    """The N-Triples line of an LSBench line, None for one that is bad or blank."""
    line = row.rstrip(b"\r\n").rstrip(b" \t")
    parts = line.split(b" ", 2)
    if len(parts) < 3 or not parts[0] or not parts[1] or not parts[2].endswith(b" .") or len(parts[2]) < 3:
        return None
    subject, predicate, value = parts[0], parts[1], parts[2][:-2]
    names = [_name(subject, prefixes)]
    rdf_type = b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
    names.append(rdf_type if predicate == b"a" else _name(predicate, prefixes))
    if value.startswith(b'"'):
        lexical, quote, tail = value.rpartition(b'"')
        if not lexical:
            return None
        if tail.startswith(b"^^") and len(tail) > 2:
            datatype = _name(tail[2:], prefixes)
            tail = b"^^" + datatype if datatype else None  # type: ignore[assignment]
        names.append(None if tail is None else lexical + quote + tail)
    else:
        names.append(_name(value, prefixes))
    return None if None in names else b" ".join(name for name in names if name) + b" ."


def _name(text: bytes, prefixes: dict[bytes, bytes]) -> bytes | None:
    if text.startswith(b"<") or (text.startswith(b"_:") and len(text) > 2):
        return text
    prefix, colon, local = text.partition(b":")
    return b"<" + prefixes[prefix] + local + b">" if colon and prefix in prefixes else None
