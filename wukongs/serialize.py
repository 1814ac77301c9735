"""Results as text: the SPARQL 1.1 results formats (JSON, XML, CSV, TSV), N-Triples, Turtle, tables, Arrow IPC.

Each writer renders a distinct term once. An ask in CSV or TSV, which the recommendations leave open, is the one word
true or false.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from csparql.terms import RDF
from wukongs.errors import DataError, SettingsError
from wukongs.rdf_terms import split_literal, to_ntriples
from wukongs.text_table import render_table

if TYPE_CHECKING:
    from wukongs.results import Result

ROW_FORMATS = ("json", "xml", "csv", "tsv")
GRAPH_FORMATS = ("ttl", "nt")
FORMATS = ("table", *ROW_FORMATS, *GRAPH_FORMATS, "arrow")

_RESULTS_NAMESPACE = "http://www.w3.org/2005/sparql-results#"
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_XML_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
_XML_SPECIAL = re.compile('[&<>"\r]')
_XML_SPECIAL_IN_ATTRIBUTE = re.compile('[&<>"\r\n\t]')
_LOCAL_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")


def serialize(result: Result, format: str, prefixes: Mapping[str, str] | None = None, width: int | None = None) -> str:
    """Return the result as text. prefixes shorten IRIs in ttl and table; width: columns of the terminal, for table.

    Raises: SettingsError (unknown format, or not one for this kind of result); DataError (text that XML cannot hold).
    """
    check_format(format, result.kind)
    if format == "arrow":
        raise SettingsError("format = 'arrow': expected a text format; Result.arrow() gives the table")
    if format == "table":
        return _table(result, prefixes or {}, width)
    if format == "ttl":
        return _turtle(result, prefixes or {})
    writers: dict[str, Callable[[Result], str]] = {
        "json": _json,
        "xml": _xml,
        "csv": _csv,
        "tsv": _tsv,
        "nt": _ntriples,
    }
    return writers[format](result)


def check_format(format: str, kind: str) -> None:
    """Raise SettingsError unless results of this kind can be written in this format."""
    if format not in FORMATS:
        raise SettingsError(f"format = {format!r}: expected one of {', '.join(FORMATS)}")
    is_graph = kind in ("construct", "describe")
    if (format in ROW_FORMATS and is_graph) or (format in GRAPH_FORMATS and not is_graph):
        fitting = GRAPH_FORMATS if is_graph else ROW_FORMATS
        raise SettingsError(
            f"format = {format!r}: expected one of table, {', '.join(fitting)}, arrow for the result of "
            f"{'an ' if kind == 'ask' else 'a '}{kind} query"
        )


def arrow_stream(result: Result) -> bytes:
    """Return Result.arrow() as the bytes of an Arrow IPC stream."""
    import pyarrow

    table = result.arrow()
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


class _Memo(dict[str, str]):
    """Canonical text -> what one writer makes of it, each made once."""

    def __init__(self, render: Callable[[str], str]) -> None:
        super().__init__()
        self._render = render

    def __missing__(self, text: str) -> str:
        rendered = self[text] = self._render(text)
        return rendered


# --- SPARQL 1.1 Query Results JSON Format -----------------------------------------------------------------------------


def _json_term(text: str) -> str:
    if text.startswith("<"):
        return json.dumps({"type": "uri", "value": text[1:-1]}, ensure_ascii=False)
    if text.startswith("_:"):
        return json.dumps({"type": "bnode", "value": text[2:]}, ensure_ascii=False)
    lexical, datatype, language = split_literal(text)
    term = {"type": "literal", "value": lexical}
    if datatype is not None:
        term["datatype"] = datatype
    if language is not None:
        term["xml:lang"] = language
    return json.dumps(term, ensure_ascii=False)


def _json(result: Result) -> str:
    if result.kind == "ask":
        return json.dumps({"head": {}, "boolean": bool(result.boolean)}) + "\n"
    memo = _Memo(_json_term)
    keys = [json.dumps(name, ensure_ascii=False) for name in result.vars]
    rows = (
        "{" + ", ".join(f"{key}: {memo[text]}" for key, text in zip(keys, row, strict=True) if text is not None) + "}"
        for row in result.texts()
    )
    bindings = ",\n".join(rows)
    return f'{{"head": {{"vars": [{", ".join(keys)}]}}, "results": {{"bindings": [\n{bindings}\n]}}}}\n'


# --- SPARQL Query Results XML Format ----------------------------------------------------------------------------------


def _xml_text(text: str, special: re.Pattern[str] = _XML_SPECIAL) -> str:
    unfit = _NOT_IN_XML.search(text)
    if unfit:
        raise DataError(
            f"the result holds the character U+{ord(unfit[0]):04X}, which XML cannot hold: choose json, csv or tsv"
        )
    return special.sub(lambda match: _XML_ESCAPES[match[0]], text)


def _xml_attribute(text: str) -> str:
    return _xml_text(text, _XML_SPECIAL_IN_ATTRIBUTE)


def _xml_term(text: str) -> str:
    if text.startswith("<"):
        return f"<uri>{_xml_text(text[1:-1])}</uri>"
    if text.startswith("_:"):
        return f"<bnode>{_xml_text(text[2:])}</bnode>"
    lexical, datatype, language = split_literal(text)
    attribute = ""
    if datatype is not None:
        attribute = f' datatype="{_xml_attribute(datatype)}"'
    elif language is not None:
        attribute = f' xml:lang="{language}"'
    return f"<literal{attribute}>{_xml_text(lexical)}</literal>"


def _xml(result: Result) -> str:
    head = "".join(f'<variable name="{_xml_attribute(name)}"/>' for name in result.vars)
    if result.kind == "ask":
        body = f"<boolean>{str(bool(result.boolean)).lower()}</boolean>"
        head = ""
    else:
        memo = _Memo(_xml_term)
        names = [_xml_attribute(name) for name in result.vars]
        rows = (
            "".join(
                f'<binding name="{name}">{memo[text]}</binding>'
                for name, text in zip(names, row, strict=True)
                if text is not None
            )
            for row in result.texts()
        )
        body = "<results>\n" + "".join(f"<result>{row}</result>\n" for row in rows) + "</results>"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<sparql xmlns="{_RESULTS_NAMESPACE}">\n'
        f"<head>{head}</head>\n{body}\n</sparql>\n"
    )


# --- SPARQL 1.1 Query Results CSV and TSV Formats ---------------------------------------------------------------------


def _csv_field(value: str) -> str:
    if any(mark in value for mark in ',"\r\n'):
        return '"' + value.replace('"', '""') + '"'
    return value


def _csv_term(text: str) -> str:
    if text.startswith("<"):
        return _csv_field(text[1:-1])
    if text.startswith("_:"):
        return _csv_field(text)
    return _csv_field(split_literal(text)[0])


def _lines(rows: Iterable[tuple[str | None, ...]], memo: _Memo, between: str, end: str) -> str:
    return "".join(between.join("" if text is None else memo[text] for text in row) + end for row in rows)


def _csv(result: Result) -> str:
    if result.kind == "ask":
        return f"{str(bool(result.boolean)).lower()}\r\n"
    head = ",".join(_csv_field(name) for name in result.vars)
    return head + "\r\n" + _lines(result.texts(), _Memo(_csv_term), ",", "\r\n")


def _tsv(result: Result) -> str:
    if result.kind == "ask":
        return f"{str(bool(result.boolean)).lower()}\n"
    head = "\t".join(f"?{name}" for name in result.vars)
    return head + "\n" + _lines(result.texts(), _Memo(to_ntriples), "\t", "\n")


# --- graphs -----------------------------------------------------------------------------------------------------------


def _ntriples(result: Result) -> str:
    return _lines(result.texts(), _Memo(to_ntriples), " ", " .\n")


def _shortener(prefixes: Mapping[str, str]) -> Callable[[str], str | None]:
    """Return a function from an IRI to `prefix:local`, or None where no prefix leaves a plain local name."""
    longest_first = sorted(prefixes.items(), key=lambda item: -len(item[1]))

    def shorten(iri: str) -> str | None:
        for prefix, start in longest_first:
            if start and iri.startswith(start) and _LOCAL_NAME.fullmatch(iri, len(start)):
                return f"{prefix}:{iri[len(start) :]}"
        return None

    return shorten


def _with_short_iris(text: str, shorten: Callable[[str], str | None]) -> str:
    if text.startswith("<"):
        return shorten(text[1:-1]) or to_ntriples(text)
    written = to_ntriples(text)
    datatype = split_literal(text)[1] if text.startswith('"') else None
    short = shorten(datatype) if datatype is not None else None
    return written if short is None else written[: written.rindex('"^^<') + 3] + short


def _turtle(result: Result, prefixes: Mapping[str, str]) -> str:
    shorten = _shortener(prefixes)
    memo = _Memo(lambda text: _with_short_iris(text, shorten))
    by_subject: dict[str, dict[str, list[str]]] = {}
    for subject, predicate, object_ in result.triples():
        verb = "a" if predicate == f"<{RDF}type>" else memo[predicate]
        by_subject.setdefault(memo[subject], {}).setdefault(verb, []).append(memo[object_])
    head = "".join(f"@prefix {prefix}: {to_ntriples(f'<{start}>')} .\n" for prefix, start in prefixes.items())
    body = "".join(
        f"\n{subject} " + " ;\n    ".join(f"{verb} {', '.join(objects)}" for verb, objects in verbs.items()) + " .\n"
        for subject, verbs in by_subject.items()
    )
    return head + body if head else body.lstrip("\n")


# --- terminals --------------------------------------------------------------------------------------------------------


def _table(result: Result, prefixes: Mapping[str, str], width: int | None) -> str:
    if result.kind == "ask":
        return f"{str(bool(result.boolean)).lower()}\n"
    shorten = _shortener(prefixes)
    memo = _Memo(lambda text: _with_short_iris(text, shorten))
    head = ["subject", "predicate", "object"] if result.is_graph else [f"?{name}" for name in result.vars]
    rows = [["" if text is None else memo[text] for text in row] for row in result.texts()]
    return render_table(head, rows, width)
