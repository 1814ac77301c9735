"""Texts of terms, by columns: what a term map makes of the cells of many entries, in N-Triples form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wukongs.adapters.mapping.mapping import XSD
from wukongs.adapters.mapping.numbers import NumberFormat
from wukongs.adapters.mapping.tables import Table
from wukongs.adapters.mapping.templates import TermMap, encoded_cell
from wukongs.query.terms.arrow_texts import TEXT
from wukongs.store.dtypes import BoolArray, Int64Array

_LEXICAL = {
    **dict.fromkeys(("integer", "int", "long", "short", "byte"), r"^[+-]?\d+$"),
    **dict.fromkeys(
        ("nonNegativeInteger", "unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte"), r"^\+?\d+$"
    ),
    "positiveInteger": r"^\+?0*[1-9]\d*$",
    "nonPositiveInteger": r"^(-\d+|\+?0+)$",
    "negativeInteger": r"^-0*[1-9]\d*$",
    "decimal": r"^[+-]?(\d+(\.\d*)?|\.\d+)$",
    **dict.fromkeys(("double", "float"), r"^([+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?INF|NaN)$"),
    "boolean": r"^(true|false|1|0)$",
    "dateTime": r"^-?\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$",
    "date": r"^-?\d{4,}-\d\d-\d\d(Z|[+-]\d\d:\d\d)?$",
}
"""The texts that a value of an XML Schema type may have. Such values are trimmed and checked."""
_NUMERIC = _LEXICAL.keys() - {"boolean", "dateTime", "date"}
_OF_IRIS = r'^[^\x00-\x20<>"{}|\\^`]*$'
_IRI = r'^[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|\\^`]*$'
_URI = r"^[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~]*$"
_OF_URIS = r"^[!#-;=?-\[\]_a-z~]*$"
_SCHEME = r"^[A-Za-z][A-Za-z0-9+.-]*:"
_OF_TAGS = "^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$"
LANGUAGE_TAG = (
    r"^((?i:[a-z]{2,3}(-[a-z]{3}){0,3}|[a-z]{4,8})(?i:-[a-z]{4})?(?i:-([a-z]{2}|[0-9]{3}))?"
    r"(?i:-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*(?i:-[a-wyz0-9](-[a-z0-9]{2,8})+)*(?i:-x(-[a-z0-9]{1,8})+)?"
    r"|(?i:[xi](-[a-z0-9]{1,8})+))$"
)
"""The well-formed language tags of BCP 47 (RFC 5646, 2.1), without those irregular ones that begin otherwise."""


class Rows(Protocol):
    """A table from which the texts of terms are made, and how numbers are written in its columns."""

    @property
    def table(self) -> Table: ...

    def number_format(self, name: str) -> NumberFormat | None: ...


def term_texts(
    term: TermMap,
    cells: Mapping[str, pa.Array],
    rows: Rows,
    of_rows: Int64Array,
    wanted: BoolArray,
    datatypes: pa.Array | pa.Scalar | None = None,
    tags: Mapping[str, pa.Array] | None = None,
) -> pa.Array | pa.Scalar:
    """Return a term in N-Triples form for each entry; null where one of its cells is.

    cells: by name, one text per entry.
    of_rows : int64[n_entries]      The row of each entry, for reports.
    wanted : bool[n_entries]        Entries whose faults count.
    datatypes: the datatype's IRI of each entry, in place of the term's own.
    tags: the cells of the language tag, which then has to be one of BCP 47 (None: they are among the others)."""
    table, parts = rows.table, term.template.parts
    pieces: list[pa.Array | pa.Scalar] = []
    for part in parts:
        if isinstance(part, str):
            pieces.append(pa.scalar(_escaped(part) if term.kind == "literal" else part, TEXT))
        elif term.kind == "literal":
            cell = cells[part.name]
            if len(parts) == 1:
                cell = _checked(cell, term, part.name, rows, of_rows, wanted, datatypes)
            pieces.append(_escaped_cells(cell))
        elif part.is_raw:
            pieces.append(cells[part.name])
            is_whole = not pieces[:-1] and term.base is None
            pattern, expected = (_IRI, "an IRI") if is_whole else (_OF_IRIS, "an IRI")
            if term.is_uri:
                pattern, expected = (_URI, "a URI") if is_whole else (_OF_URIS, "a URI")
            check_cells(cells[part.name], pattern, expected, part.name, table, of_rows, wanted)
        else:
            pieces.append(_encoded_cells(cells[part.name], term))
    if term.kind == "iri":
        if term.base is not None and not isinstance(parts[0], str):
            pieces = [_absolute(_joined([*pieces]), term.base)]
        return _joined(["<", *pieces, ">"])
    if term.kind == "blank":
        return _joined(["_:", *pieces])
    if datatypes is not None:
        return _joined(['"', *pieces, *_typed_ends(datatypes)])
    if term.datatype is not None:
        return _joined(['"', *pieces, '"^^', term_texts(term.datatype, cells, rows, of_rows, wanted)])
    if term.language is not None:
        pattern = _OF_TAGS if tags is None else LANGUAGE_TAG
        tags = cells if tags is None else tags
        ends = [part if isinstance(part, str) else tags[part.name] for part in term.language.parts]
        tag = _joined([*ends])
        for name in term.language.names[:1]:
            check_cells(tag, pattern, "a language tag", name, table, of_rows, wanted)
        return _joined(['"', *pieces, '"@', tag])
    return _joined(['"', *pieces, '"'])


def _absolute(iris: pa.Array | pa.Scalar, base: str) -> pa.Array:
    """Return IRIs with the base before each one that has no scheme (RML-Core, term generation rules: prepended)."""
    based = pc.binary_join_element_wise(pa.scalar(base, TEXT), iris, pa.scalar("", TEXT))
    return pc.if_else(pc.match_substring_regex(iris, _SCHEME), iris, based)


def _typed_ends(datatypes: pa.Array | pa.Scalar) -> list[pa.Array | pa.Scalar | str]:
    """Return what stands behind the text of literals of these datatypes; strings have no datatype there."""
    marked = pc.binary_join_element_wise(pa.scalar('"^^<', TEXT), datatypes, pa.scalar(">", TEXT), pa.scalar("", TEXT))
    return [pc.if_else(pc.equal(datatypes, XSD + "string"), pa.scalar('"', TEXT), marked)]


def _joined(pieces: list[pa.Array | pa.Scalar | str]) -> pa.Array | pa.Scalar:
    parts = [pa.scalar(piece, TEXT) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*parts, pa.scalar("", TEXT))


def _checked(
    cells: pa.Array,
    term: TermMap,
    name: str,
    rows: Rows,
    of_rows: Int64Array,
    wanted: BoolArray,
    datatypes: pa.Array | pa.Scalar | None,
) -> pa.Array:
    """Return values of a type that is known trimmed, numbers in plain form, natural ones in canonical form; a row with
    a text that is none of that type is a bad one."""
    if datatypes is None:
        if term.datatype is None:
            return cells
        return _checked_as(cells, term.datatype.template.text, name, rows, of_rows, wanted)
    if isinstance(datatypes, pa.Scalar):
        return _typed_values(cells, term, str(datatypes.as_py()), name, rows, of_rows, wanted)
    for datatype in pc.unique(datatypes).to_pylist():
        if datatype is not None and datatype != XSD + "string":
            own = pc.fill_null(pc.equal(datatypes, datatype), False)
            values = _typed_values(cells, term, datatype, name, rows, of_rows, wanted & np.asarray(own))
            cells = pc.if_else(own, values, cells)
    return cells


def _typed_values(
    cells: pa.Array, term: TermMap, datatype: str, name: str, rows: Rows, of_rows: Int64Array, wanted: BoolArray
) -> pa.Array:
    if not term.is_natural:
        return _checked_as(cells, datatype, name, rows, of_rows, wanted)
    if datatype == XSD + "integer":
        return pc.if_else(pc.equal(cells, "-0"), pa.scalar("0", TEXT), cells)
    if datatype != XSD + "double":
        return cells
    doubles = _canonical_doubles(cells)
    blame_cells(cells, pc.is_valid(doubles), "a number that xsd:double can hold", name, rows.table, of_rows, wanted)
    return doubles


def _canonical_doubles(cells: pa.Array) -> pa.Array:
    """Return numbers as XML Schema 1.1 part 2 maps doubles to texts, `1.5E0`; null for a text that is no finite one."""
    unique = pc.dictionary_encode(cells)
    return pa.array([_canonical_double(text) for text in unique.dictionary.to_pylist()], TEXT).take(unique.indices)


def _canonical_double(text: str) -> str | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    digits, _, exponent = f"{Decimal(repr(value)):E}".partition("E")
    whole, _, fraction = digits.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}E{int(exponent) if value else 0}"


def _checked_as(
    cells: pa.Array, datatype: str, name: str, rows: Rows, of_rows: Int64Array, wanted: BoolArray
) -> pa.Array:
    if not datatype.startswith(XSD):
        return cells
    kind = datatype.removeprefix(XSD)
    pattern = _LEXICAL.get(kind)
    if pattern is None:
        return cells
    cells = pc.utf8_trim_whitespace(cells)
    format = rows.number_format(name) if kind in _NUMERIC else None
    if format is None:
        check_cells(cells, pattern, f"xsd:{kind}", name, rows.table, of_rows, wanted)
        return cells
    plain = format.plain(cells)
    fits = pc.fill_null(pc.match_substring_regex(plain, pattern), False)
    blame_cells(cells, fits, f"xsd:{kind} with {format}", name, rows.table, of_rows, wanted)
    return pc.if_else(fits, plain, cells)


def check_cells(
    cells: pa.Array, pattern: str, expected: str, name: str, table: Table, of_rows: Int64Array, wanted: BoolArray
) -> None:
    """Make rows bad whose cell has not the wanted shape."""
    blame_cells(
        cells, pc.fill_null(pc.match_substring_regex(cells, pattern), True), expected, name, table, of_rows, wanted
    )


def blame_cells(
    cells: pa.Array, fits: pa.Array, expected: str, name: str, table: Table, of_rows: Int64Array, wanted: BoolArray
) -> None:
    wrong = ~np.asarray(fits) & wanted
    for entry in np.flatnonzero(wrong).tolist():
        table.blame(int(of_rows[entry]), name, f"expected {expected} in {name}, found {shown(cells[entry].as_py())}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def _escaped_cells(cells: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(cells, r'[\\"\n\r]')).as_py():
        return cells
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        cells = pc.replace_substring(cells, sign, escape)
    return cells


def _encoded_cells(cells: pa.Array, term: TermMap) -> pa.Array:
    """Return cells that cannot change the shape of an IRI or a label: few texts are looked at one by one."""
    pattern, encode = encoded_cell("iri" if term.kind == "iri" else "blank", term.is_uri)
    plain = r"^[A-Za-z0-9._~-]*$" if term.kind == "iri" else r"^[A-Za-z0-9]*$"
    if pc.all(pc.match_substring_regex(cells, plain)).as_py() is not False:
        return cells
    unique = pc.dictionary_encode(cells)
    texts = [text if pattern.search(text) is None else encode(text) for text in unique.dictionary.to_pylist()]
    return pa.array(texts, TEXT).take(unique.indices)


def shown(text: object) -> str:
    return "nothing" if text is None else repr(str(text)[:80])
