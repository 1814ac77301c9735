"""Rows of text: the tables and kernels of each format beside its own function, term by term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.query.result_rows import columns_of
from wukongs.csparql.terms import XSD
from wukongs.errors import DataError
from wukongs.query.output import row_text
from wukongs.query.output.row_formats import row_format
from wukongs.query.output.row_text import RowFormat

FORMATS = ["json", "xml", "csv", "tsv", "nt"]

_TEXT = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.sampled_from("\t\n\r\x00\x01\x7f\"\\',<>&^@-\uf000\ufffd\ufffe\uffff"),
    max_size=12,
)
_IRI = st.sampled_from(["<http://ex/a>", "<>", "<http://ex/é{x}|`>"]) | _TEXT.map(lambda text: f"<{text}>")
_LITERAL = (
    _TEXT.map(lambda text: f'"{text}"')
    | st.builds(lambda text, tag: f'"{text}"@{tag}', _TEXT, st.sampled_from(["en", "de-AT", "ar--rtl", "x-a-b--ltr"]))
    | st.builds(lambda text, name: f'"{text}"^^<{name}>', _TEXT, st.sampled_from([f"{XSD}integer", "http://ex/&t"]))
)
_NODE = st.sampled_from(["_:b0", "_:s0123456789abcdefxb", "_:é,"])
_TERM = _IRI | _NODE | _LITERAL | st.builds("({} <http://ex/p> {})".format, _NODE, _LITERAL)
_ROW = st.tuples(st.none() | _TERM, st.none() | _TERM, st.none() | _TERM)


def by_term(rows: RowFormat, cells: Sequence[Sequence[str | None]]) -> str:
    """Write rows cell by cell."""
    written = []
    for row in cells:
        parts = [
            prefix + ("" if text is None else rows.term(text)) + rows.cell_end
            for prefix, text in zip(rows.prefixes, row, strict=True)
            if text is not None or not rows.leaves_out
        ]
        written.append(rows.opening + rows.between.join(parts) + rows.closing)
    return rows.separator.join(written)


@pytest.mark.parametrize("format", FORMATS)
@given(st.lists(_ROW, max_size=8), st.sampled_from([0, 64]))
def test_what_the_kernels_write_is_what_the_format_writes_of_each_term(
    format: str, table: list[tuple[str | None, str | None, str | None]], few: int
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(row_text, "FEW_CELLS", few)
        check(format, table)


def check(format: str, table: list[tuple[str | None, str | None, str | None]]) -> None:
    rows = row_format(format, ("x", 'y"', "é"))
    reader, columns = columns_of(table, 3)
    try:
        expected = by_term(rows, table)
    except DataError:
        with pytest.raises(DataError, match="which XML cannot hold"):
            rows.rows(columns, len(table), reader)
        return
    assert rows.rows(columns, len(table), reader).tobytes().decode() == expected


@pytest.mark.nojit
@pytest.mark.parametrize("format", FORMATS)
def test_each_kind_of_term_and_each_character_of_ascii(format: str) -> None:
    rows = row_format(format, ("x", "y"))
    characters = [chr(byte) for byte in range(128)] + ["é", "\ufffd", "\U0001f600", "\uf8ff"]
    if format == "xml":
        characters = [c for c in characters if c in "\t\n\r" or ord(c) >= 32]
    terms = []
    for text in ["", *characters, '""', "a" * 100, "long " + '"' * 300]:
        datatype = text.replace('"', "")
        terms += [f"<{text}>", f'"{text}"', f'"{text}"@en', f'"{text}"^^<{datatype}>', f'("{text}" <p> "{text}")']
    table = [
        *((term, None) for term in terms),
        *((None, term) for term in terms),
        *zip(terms, reversed(terms), strict=True),
    ]
    reader, columns = columns_of(table, 2)
    assert rows.rows(columns, len(table), reader).tobytes().decode() == by_term(rows, table)
    tables = rows.forms.tables
    text, offsets = reader.gather(np.arange(len(reader.terms)))
    assert len(rows.rows([columns[0][:0], columns[1][:0]], 0, reader)) == 0
    from wukongs.query.output.row_text_kernels import write_terms

    _, _, odd = write_terms(text, offsets, *tables)
    assert {reader.terms[at][0] for at in np.flatnonzero(odd)} <= {"("} | ({"<", '"'} if format == "xml" else set()), (
        "the tables write all others"
    )


@pytest.mark.parametrize("format", FORMATS)
def test_rows_without_a_column_are_rows(format: str) -> None:
    rows = row_format(format, ())
    reader, _ = columns_of([], 0)
    assert rows.rows([], 3, reader).tobytes().decode() == by_term(rows, [()] * 3)
