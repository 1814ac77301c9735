"""Rows as text: the SPARQL 1.1 results formats JSON, XML, CSV and TSV, and N-Triples for the rows of a graph.

A `RowFormat` says how a cell is written and what stands around cells and rows; `RowFormat.chunks` writes any number of
rows through it, a chunk at a time. An ask in CSV or TSV, which the recommendations leave open, is the one word true or
false. What XML 1.0 cannot hold at all (U+0000 to U+001F but for tab and line ends, U+FFFE, U+FFFF) is refused by name:
no escape stands for it. Triple terms and base directions are written as SPARQL 1.2 has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring

from store.canonical import triple_parts
from wukongs.errors import DataError
from wukongs.rdf_terms import split_literal, to_ntriples

Cell = Callable[[str], str]
"""Canonical text -> the cell that stands for it."""
Chunk = Sequence[Sequence[str | None]]
"""Columns of cells, None where unbound."""

_RESULTS_NAMESPACE = "http://www.w3.org/2005/sparql-results#"
_ITS_NAMESPACE = "http://www.w3.org/2005/11/its"
_XML_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
_XML_UNFIT = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_XML_SPECIAL = re.compile(f'[&<>"\r{_XML_UNFIT}]')
_XML_SPECIAL_IN_ATTRIBUTE = re.compile(f'[&<>"\r\n\t{_XML_UNFIT}]')
_CSV_SPECIAL = re.compile('[,"\r\n]')


@dataclass(frozen=True, slots=True)
class RowFormat:
    """cells: one for each column; unbound: what stands for an unbound cell, None if the cell is left out.

    head, tail: around all rows; opening, between, closing: around a row and between its cells; separator: between
    rows."""

    head: str
    cells: Sequence[Cell]
    unbound: str | None
    opening: str
    between: str
    closing: str
    separator: str
    tail: str

    def chunks(self, columns: Iterable[tuple[Chunk, int]]) -> Iterator[str]:
        """Write rows that come as (columns of cells, number of rows)."""
        yield self.head
        line_end = self.closing + self.separator + self.opening
        separator = ""
        for chunk, count in columns:
            if count:
                yield separator + self.opening + line_end.join(self._rows(chunk, count)) + self.closing
                separator = self.separator
        yield self.tail

    def _rows(self, chunk: Chunk, count: int) -> Iterable[str]:
        if not chunk:
            return [""] * count
        if self.unbound is None and any(None in column for column in chunk):
            return (self.between.join(filter(None, row)) for row in zip(*chunk, strict=True))
        unbound = self.unbound
        full = [
            [unbound if cell is None else cell for cell in column] if None in column else column for column in chunk
        ]
        return map(self.between.join, zip(*full, strict=True))


def row_format(format: str, variables: Sequence[str]) -> RowFormat:
    """Return how json, xml, csv, tsv write rows with these variables, and nt triples."""
    return {"json": _json, "xml": _xml, "csv": _csv, "tsv": _tsv, "nt": _ntriples}[format](variables)


def ask_text(format: str, answer: bool) -> str:
    """Return the answer of an ask as json, xml, csv, tsv or table."""
    word = str(answer).lower()
    if format == "json":
        return f'{{"head": {{}}, "boolean": {word}}}\n'
    if format == "xml":
        return _xml_document("", f"<boolean>{word}</boolean>")
    return word + ("\r\n" if format == "csv" else "\n")


# --- SPARQL 1.1 Query Results JSON Format -----------------------------------------------------------------------------


def _json(variables: Sequence[str]) -> RowFormat:
    keys = [encode_basestring(name) for name in variables]
    head = f'{{"head": {{"vars": [{", ".join(keys)}]}}, "results": {{"bindings": [\n'
    return RowFormat(head, [_json_cell(key) for key in keys], None, "{", ", ", "}", ",\n", "\n]}}\n")


def _json_cell(key: str) -> Cell:
    def cell(text: str) -> str:
        if text.startswith("<"):
            return f'{key}: {{"type": "uri", "value": {encode_basestring(text[1:-1])}}}'
        return f"{key}: {_json_term(text)}"

    return cell


def _json_term(text: str) -> str:
    if text.startswith("<"):
        return f'{{"type": "uri", "value": {encode_basestring(text[1:-1])}}}'
    if text.startswith("_:"):
        return f'{{"type": "bnode", "value": {encode_basestring(text[2:])}}}'
    if text.startswith("("):
        subject, predicate, object_ = map(_json_term, triple_parts(text))
        parts = f'"subject": {subject}, "predicate": {predicate}, "object": {object_}'
        return f'{{"type": "triple", "value": {{{parts}}}}}'
    lexical, datatype, language = split_literal(text)
    value = f'{{"type": "literal", "value": {encode_basestring(lexical)}'
    if datatype is not None:
        return f'{value}, "datatype": {encode_basestring(datatype)}}}'
    if language is None:
        return value + "}"
    tag, _, direction = language.partition("--")
    value = f'{value}, "xml:lang": "{tag}"'
    return f'{value}, "its:dir": "{direction}"}}' if direction else value + "}"


# --- SPARQL Query Results XML Format ----------------------------------------------------------------------------------


def _xml(variables: Sequence[str]) -> RowFormat:
    names = [_xml_attribute(name) for name in variables]
    head, tail = _xml_document(
        "".join(f'<variable name="{name}"/>' for name in names), "<results>\n\0</results>"
    ).split("\0")
    return RowFormat(head, [_xml_cell(name) for name in names], None, "<result>", "", "</result>\n", "", tail)


def _xml_document(head: str, body: str) -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<sparql xmlns="{_RESULTS_NAMESPACE}">\n'
        f"<head>{head}</head>\n{body}\n</sparql>\n"
    )


def _xml_cell(name: str) -> Cell:
    def cell(text: str) -> str:
        return f'<binding name="{name}">{_xml_term(text)}</binding>'

    return cell


def _xml_term(text: str) -> str:
    if text.startswith("<"):
        return f"<uri>{_xml_text(text[1:-1])}</uri>"
    if text.startswith("_:"):
        return f"<bnode>{text[2:]}</bnode>"
    if text.startswith("("):
        subject, predicate, object_ = map(_xml_term, triple_parts(text))
        parts = f"<subject>{subject}</subject><predicate>{predicate}</predicate><object>{object_}</object>"
        return f"<triple>{parts}</triple>"
    lexical, datatype, language = split_literal(text)
    attribute = ""
    if datatype is not None:
        attribute = f' datatype="{_xml_attribute(datatype)}"'
    elif language is not None:
        tag, _, direction = language.partition("--")
        attribute = f' xml:lang="{tag}"'
        if direction:
            attribute += f' xmlns:its="{_ITS_NAMESPACE}" its:version="2.0" its:dir="{direction}"'
    return f"<literal{attribute}>{_xml_text(lexical)}</literal>"


def _xml_text(text: str) -> str:
    return _XML_SPECIAL.sub(_xml_escape, text)


def _xml_attribute(text: str) -> str:
    return _XML_SPECIAL_IN_ATTRIBUTE.sub(_xml_escape, text)


def _xml_escape(match: re.Match[str]) -> str:
    escape = _XML_ESCAPES.get(match[0])
    if escape is None:
        raise DataError(
            f"the result holds the character U+{ord(match[0]):04X}, which XML cannot hold: choose json, csv or tsv"
        )
    return escape


# --- SPARQL 1.1 Query Results CSV and TSV Formats, N-Triples ----------------------------------------------------------


def _csv(variables: Sequence[str]) -> RowFormat:
    head = ",".join(_csv_field(name) for name in variables) + "\r\n"
    return RowFormat(head, [_csv_cell] * len(variables), "", "", ",", "\r\n", "", "")


def _csv_cell(text: str) -> str:
    if text.startswith("<"):
        return _csv_field(text[1:-1])
    if text.startswith("_:"):
        return text
    if text.startswith("("):
        return _csv_field(to_ntriples(text))
    return _csv_field(split_literal(text)[0])


def _csv_field(value: str) -> str:
    if _CSV_SPECIAL.search(value):
        return '"' + value.replace('"', '""') + '"'
    return value


def _tsv(variables: Sequence[str]) -> RowFormat:
    head = "\t".join(f"?{name}" for name in variables) + "\n"
    return RowFormat(head, [to_ntriples] * len(variables), "", "", "\t", "\n", "", "")


def _ntriples(variables: Sequence[str]) -> RowFormat:
    return RowFormat("", [to_ntriples] * len(variables), "", "", " ", " .\n", "", "")
