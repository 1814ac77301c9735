"""Terms as people read them in a table: numbers bare, strings without quotes, IRIs with a prefix.

A cell still says which term it is. A string keeps its quotes where it would read as another term: as a number, a time,
an IRI, a blank node, or nothing. A literal keeps its quotes and its datatype if its text is none of the datatype.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from wukongs.csparql.terms import RDF, XSD
from wukongs.query.output.row_text import Cell
from wukongs.query.terms.rdf_terms import split_literal, to_ntriples
from wukongs.query.terms.values import INTEGER_BOUNDS
from wukongs.store.canonical import triple_parts

WELL_KNOWN = {
    "rdf": RDF,
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": XSD,
    "owl": "http://www.w3.org/2002/07/owl#",
}
"""Prefixes of a table that a query does not have to declare, unless it gives their names to other IRIs."""

TRIPLE_COLUMNS = ("subject", "predicate", "object")

_DECLARED = re.compile(r"\bPREFIX\s+([^\W\d_][\w.-]*|):\s*<([^<>\s]+)>", re.IGNORECASE)
_LOCAL_NAME = re.compile(r"\w(?:[\w.-]*[\w-])?")
_INTEGER = r"[+-]?[0-9]+"
_DECIMAL = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_DOUBLE = rf"(?:{_DECIMAL}(?:[eE][+-]?[0-9]+)?|[+-]?INF|NaN)"
_DATE = r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_ZONE = r"(?:Z|[+-][0-9]{2}:[0-9]{2})?"
_BARE = {
    **dict.fromkeys(INTEGER_BOUNDS, re.compile(_INTEGER)),
    "decimal": re.compile(_DECIMAL),
    **dict.fromkeys(("double", "float"), re.compile(_DOUBLE)),
    "boolean": re.compile("true|false"),
    "date": re.compile(_DATE + _ZONE),
    "dateTime": re.compile(rf"{_DATE}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]+)?{_ZONE}"),
}
"""Datatypes of XML Schema whose literals are written bare, and the texts that show what they are."""
_AMBIGUOUS = re.compile(rf'["<].*|_:.*|true|false|{_DOUBLE}|{_BARE["date"].pattern}|{_BARE["dateTime"].pattern}|', re.S)
_IS_NUMBER = re.compile(f"true|false|{_DOUBLE}")


def declared_prefixes(text: str) -> dict[str, str]:
    """Return the prefixes that the text of a query declares: name -> IRI."""
    return dict(_DECLARED.findall(text))


def is_number(cell: str) -> bool:
    """Tell whether a cell is a number or a boolean: a column of them is aligned at its right."""
    return _IS_NUMBER.fullmatch(cell) is not None


def cell_writer(prefixes: Mapping[str, str]) -> Cell:
    """Return a function from a canonical text to its cell. prefixes: those of the query."""
    known = {**prefixes, **{name: start for name, start in WELL_KNOWN.items() if name not in prefixes}}
    longest_first = sorted(known.items(), key=lambda item: -len(item[1]))
    named = re.compile("(?:" + "|".join(map(re.escape, known)) + r"):\w.*", re.S)

    def short_iri(iri: str) -> str | None:
        for prefix, start in longest_first:
            if start and iri.startswith(start) and _LOCAL_NAME.fullmatch(iri, len(start)):
                return f"{prefix}:{iri[len(start) :]}"
        return None

    def quoted(text: str) -> str:
        """Write a literal with quotes."""
        written, datatype = to_ntriples(text), split_literal(text)[1]
        name = None if datatype is None else short_iri(datatype)
        return written if name is None else written[: written.rindex('"^^<') + 3] + name

    def inner(text: str) -> str:
        """Write a part of a triple term."""
        return quoted(text) if text.startswith('"') and split_literal(text)[1] is None else cell(text)

    def cell(text: str) -> str:
        if text.startswith("<"):
            return short_iri(text[1:-1]) or to_ntriples(text)
        if text.startswith("("):
            return f"<<( {' '.join(map(inner, triple_parts(text)))} )>>"
        if not text.startswith('"'):
            return text
        lexical, datatype, language = split_literal(text)
        if language is not None:
            return quoted(text)
        if datatype is not None:
            bare = _BARE.get(datatype.removeprefix(XSD)) if datatype.startswith(XSD) else None
            return lexical if bare is not None and bare.fullmatch(lexical) else quoted(text)
        is_plain = lexical.isprintable() and lexical == lexical.strip()
        if not is_plain or _AMBIGUOUS.fullmatch(lexical) or named.fullmatch(lexical):
            return quoted(text)
        return lexical

    return cell
