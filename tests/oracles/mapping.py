"""docs/run-file.md, section Mappings, in plain Python: one record at a time, one triple at a time.

A record is a dictionary of texts, lists of texts, or None. Its triples are N-Triples lines, in the order of the
mapping; None stands for a bad record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Cell = str | list[str | None] | None
PREFIXES = {
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
}
NUMBERS = {
    "integer": r"[+-]?[0-9]+",
    "decimal": r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)",
    "double": r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?INF|NaN",
}
_CELL = re.compile(r"\{\{|\}\}|\{(\+?)([^{}]+)\}")


class BadRecord(Exception):
    """The record makes no triple, and is reported."""


def triples(mapping: Mapping[str, Any], record: Mapping[str, Cell]) -> list[str] | None:
    """Return the lines of one record. mapping: as TOML has it."""
    prefixes = PREFIXES | mapping.get("prefixes", {})
    cells: dict[str, Cell] = {}
    for name, cell in record.items():
        cells[name] = _known(cell, mapping)
    try:
        if not _passes(mapping, cells):
            return []
        lines = []
        for triple in mapping["triple"]:
            lines += _triple(mapping, triple, cells, prefixes)
        return lines
    except BadRecord:
        return None


def _known(cell: Cell, mapping: Mapping[str, Any]) -> Cell:
    if isinstance(cell, list):
        return cell or None
    return None if cell in mapping.get("empty", [""]) else cell


def _passes(table: Mapping[str, Any], cells: Mapping[str, Cell]) -> bool:
    for key, wanted in (("when", True), ("unless", False)):
        condition = table.get(key)
        if condition is None:
            continue
        if isinstance(condition, str):
            cell = cells[condition]
            if (cell is not None) != wanted:
                return False
            continue
        for column, values in condition.items():
            values = [values] if isinstance(values, str) else values
            if ((cells[column] or "") in values) != wanted:
                return False
    return True


def _triple(
    mapping: Mapping[str, Any], triple: Mapping[str, Any], cells: dict[str, Cell], prefixes: dict[str, str]
) -> list[str]:
    if not _passes(triple, cells):
        return []
    subject = triple.get("subject", mapping.get("subject"))
    texts = [subject, triple["predicate"], triple.get("object", triple.get("value")), triple.get("language", "")]
    names = {match[2].strip() for text in texts for match in _CELL.finditer(text) if match[2]}
    lists = {name: cells[name] for name in names if isinstance(cells[name], list)}
    if any(cells[name] is None for name in names):
        if triple.get("if_empty") == "bad":
            raise BadRecord
        return []
    lengths = {len(cell or []) for cell in lists.values()}
    if len(lengths) > 1:
        raise BadRecord
    lines = []
    for place in range(lengths.pop() if lists else 1):
        row = {name: _known(lists[name][place], mapping) if name in lists else cells[name] for name in names}  # type: ignore[index]
        if any(cell is None for cell in row.values()):
            if triple.get("if_empty") == "bad":
                raise BadRecord
            continue
        lines.append(_line(mapping, triple, subject, {name: str(cell) for name, cell in row.items()}, prefixes))
    return lines


def _line(
    mapping: Mapping[str, Any], triple: Mapping[str, Any], subject: str, row: dict[str, str], prefixes: dict[str, str]
) -> str:
    terms = [_resource(subject, row, prefixes), _resource(triple["predicate"], row, prefixes)]
    if "object" in triple:
        terms.append(_resource(triple["object"], row, prefixes))
    else:
        terms.append(_literal(mapping, triple, row, prefixes))
    return " ".join(terms) + " ."


def _literal(
    mapping: Mapping[str, Any], triple: Mapping[str, Any], row: dict[str, str], prefixes: dict[str, str]
) -> str:
    template, datatype = triple["value"], triple.get("datatype")
    text = _CELL.sub(lambda match: row[match[2].strip()] if match[2] else match[0][0], template)
    iri = None if datatype is None else _expanded(datatype, prefixes)
    lexical = NUMBERS.get((iri or "").removeprefix(PREFIXES["xsd"]))
    whole = re.fullmatch(r"\{([^{}]+)\}", template)
    if lexical and whole:
        text = text.strip(" \t\n\r\u00a0\u2003")
        marks = mapping.get("number", {})
        marks = marks.get("column", {}).get(whole[1], marks)
        if "decimal" in marks or "thousands" in marks:
            text = plain_number(text, marks.get("decimal", "."), marks.get("thousands", ""))
        if not re.fullmatch(lexical, text):
            raise BadRecord
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r") + '"'
    if iri is not None:
        return f"{quoted}^^<{iri}>"
    if "language" in triple:
        return quoted + "@" + _CELL.sub(lambda match: row[match[2].strip()], triple["language"])
    return quoted


def plain_number(text: str, decimal: str, thousands: str) -> str:
    """Read a number character by character: sign, groups of digits, fraction, exponent."""
    if text.removeprefix("+").removeprefix("-") == "INF" or text == "NaN":
        return text
    sign = text[:1] if text[:1] in ("+", "-") else ""
    rest = text[len(sign) :]
    mantissa, e, exponent = rest.partition("E" if "E" in rest else "e")
    whole, mark, fraction = mantissa.partition(decimal)
    first, *groups = re.split(f"[{re.escape(thousands)}]", whole) if thousands else [whole]
    if groups and not (1 <= len(first) <= 3 and all(len(group) == 3 for group in groups)):
        raise BadRecord
    power = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    digits = "".join([first, *groups, fraction, power])
    if any(sign not in "0123456789" for sign in digits) or not (first or fraction) or (e and not power):
        raise BadRecord
    return sign + first + "".join(groups) + ("." if mark else "") + fraction + e + exponent


def _resource(text: str, row: dict[str, str], prefixes: dict[str, str]) -> str:
    if text == "a":
        return "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
    if text.startswith("_:"):
        return "_:" + _CELL.sub(lambda match: _label(row[match[2].strip()]), text[2:])
    whole = re.fullmatch(r"\{\+?([^{}]+)\}", text)
    if whole:
        iri = row[whole[1].strip()]
    else:
        iri = _CELL.sub(
            lambda match: (
                row[match[2].strip()] if match[1] else _encoded(row[match[2].strip()]) if match[2] else match[0][0]
            ),
            _expanded(text, prefixes),
        )
    if not re.fullmatch(r'[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|\\^`]*', iri):
        raise BadRecord
    return f"<{iri}>"


def _expanded(text: str, prefixes: dict[str, str]) -> str:
    prefix, colon, rest = text.partition(":")
    return prefixes[prefix] + rest if colon and prefix in prefixes else text


def _encoded(text: str) -> str:
    """Percent-encode all but RFC 3987's iunreserved."""
    return "".join(
        sign
        if sign.isascii() and (sign.isalnum() or sign in "-._~")
        else sign
        if _is_ucschar(ord(sign))
        else "".join(f"%{byte:02X}" for byte in sign.encode())
        for sign in text
    )


def _is_ucschar(code: int) -> bool:
    if 0xA0 <= code <= 0xD7FF or 0xF900 <= code <= 0xFDCF or 0xFDF0 <= code <= 0xFFEF:
        return True
    return 0x10000 <= code <= 0xEFFFD and (code & 0xFFFF) <= 0xFFFD and not 0xE0000 <= code < 0xE1000


def _label(text: str) -> str:
    return "".join(
        sign if sign.isascii() and sign.isalnum() else "".join(f"_{byte:02X}" for byte in sign.encode())
        for sign in text
    )
