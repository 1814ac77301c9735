"""Rows as text: the SPARQL 1.1 results formats JSON, XML, CSV and TSV, and N-Triples for the rows of a graph.

For each format there is a function from a term to its cell, and the same as tables for the kernels that write most
cells (row_text.py). An ask in CSV or TSV, which the recommendations leave open, is the one word true or false.
Characters that XML 1.0 cannot hold at all (U+0000 to U+001F but for tab and line ends, U+FFFE, U+FFFF) are refused by
name: they have no escape. Triple terms and base directions are written as SPARQL 1.2 has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from json.encoder import encode_basestring

from wukongs.errors import DataError
from wukongs.query.output.row_text import Form, Forms, RowFormat, written_terms
from wukongs.query.output.row_text_kernels import BODY_THEN_TAIL, TAIL_THEN_BODY
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.query.terms.rdf_terms import split_literal, to_ntriples
from wukongs.store.canonical import triple_parts
from wukongs.store.dtypes import Int64Array, UInt8Array

_RESULTS_NAMESPACE = "http://www.w3.org/2005/sparql-results#"
_ITS_NAMESPACE = "http://www.w3.org/2005/11/its"
_XML_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
_XML_UNFIT = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_XML_UNFIT_FIRST_BYTE = 0xEF
"""The first byte of U+FFFE and U+FFFF in UTF-8."""
_XML_SPECIAL = re.compile(f'[&<>"\r{_XML_UNFIT}]')
_XML_SPECIAL_IN_ATTRIBUTE = re.compile(f'[&<>"\r\n\t{_XML_UNFIT}]')
_CSV_SPECIAL = re.compile('[,"\r\n]')


@lru_cache(maxsize=64)
def row_format(format: str, variables: tuple[str, ...]) -> RowFormat:
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
    prefixes = [f"{key}: " for key in keys]
    return RowFormat(
        head, prefixes, json_term, _json_forms(), True, "", "{", ", ", "}", separator=",\n", tail="\n]}}\n"
    )


@cache
def _json_forms() -> Forms:
    literal = '{"type": "literal", "value": "'
    return Forms(
        [
            Form('{"type": "uri", "value": "', '"}', _json_escape),
            Form('{"type": "bnode", "value": "', '"}', _json_escape),
            Form(literal, '"}', _json_escape),
            Form(literal, '"}', _json_escape, '", "datatype": "', _json_escape, BODY_THEN_TAIL),
            Form(literal, '"}', _json_escape, '", "xml:lang": "', None, BODY_THEN_TAIL),
        ]
    )


def _json_escape(character: str) -> str:
    return encode_basestring(character)[1:-1]


def json_term(text: str) -> str:
    """Return a canonical text as SPARQL JSON results write the term."""
    if text.startswith("<"):
        return f'{{"type": "uri", "value": {encode_basestring(text[1:-1])}}}'
    if text.startswith("_:"):
        return f'{{"type": "bnode", "value": {encode_basestring(text[2:])}}}'
    if text.startswith("("):
        subject, predicate, object_ = map(json_term, triple_parts(text))
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
    prefixes = [f'<binding name="{name}">' for name in names]
    return RowFormat(
        head, prefixes, _xml_term, _xml_forms(), True, "</binding>", "<result>", "", "</result>\n", "", tail
    )


@cache
def _xml_forms() -> Forms:
    forms = Forms(
        [
            Form("<uri>", "</uri>", _xml_text),
            Form("<bnode>", "</bnode>"),
            Form("<literal>", "</literal>", _xml_text),
            Form('<literal datatype="', "</literal>", _xml_text, '">', _xml_attribute, TAIL_THEN_BODY),
            Form('<literal xml:lang="', "</literal>", _xml_text, '">', None, TAIL_THEN_BODY),
        ]
    )
    forms.sizes[:, _XML_UNFIT_FIRST_BYTE] = 0
    return forms


def _xml_document(head: str, body: str) -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<sparql xmlns="{_RESULTS_NAMESPACE}">\n'
        f"<head>{head}</head>\n{body}\n</sparql>\n"
    )


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
    prefixes = [""] * len(variables)
    return RowFormat(head, prefixes, _csv_cell, _csv_forms(), False, "", "", ",", "\r\n", "", "")


@cache
def _csv_forms() -> Forms:
    field = Form("", "", _csv_escape, quoted=True)
    return Forms([field, Form("_:", ""), field, field, field])


def _csv_escape(character: str) -> str:
    return '""' if character == '"' else character


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
    prefixes = [""] * len(variables)
    return RowFormat(head, prefixes, to_ntriples, _ntriples_forms(), False, "", "", "\t", "\n", "", "")


def _ntriples(variables: Sequence[str]) -> RowFormat:
    prefixes = [""] * len(variables)
    return RowFormat("", prefixes, to_ntriples, _ntriples_forms(), False, "", "", " ", " .\n", "", "")


def ntriples_terms(ids: Int64Array, reader: Utf8Reader) -> tuple[UInt8Array, Int64Array]:
    """Return each term as N-Triples writes it: (text uint8[n_bytes], offsets int64[n + 1])."""
    return written_terms(ids, reader, _ntriples_forms(), to_ntriples)


@cache
def _ntriples_forms() -> Forms:
    return Forms(
        [
            Form("<", ">", _iri_escape),
            Form("_:", ""),
            Form('"', '"', _text_escape),
            Form('"', ">", _text_escape, '"^^<', _iri_escape, BODY_THEN_TAIL),
            Form('"', "", _text_escape, '"@', None, BODY_THEN_TAIL),
        ]
    )


def _iri_escape(character: str) -> str:
    return to_ntriples(f"<{character}>")[1:-1]


def _text_escape(character: str) -> str:
    return to_ntriples(f'"{character}"')[1:-1]
