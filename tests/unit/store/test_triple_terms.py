"""store/triple_terms.py: triple terms out of files, to the letter; blank nodes inside; what is malformed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.unit.store.test_encoder import rows_of
from wukongs.store.canonical import to_ntriples, triple_parts
from wukongs.store.encoded import MalformedLine
from wukongs.store.rdf_files import read_rdf
from wukongs.store.term_ids import hash_id
from wukongs.store.terms import blank_node
from wukongs.store.triple_terms import encode_lines_with_triples, with_blanks

SCOPE = b"load:1"
BLANK = blank_node(SCOPE, "b")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("<<( <a:s> <a:p> <a:o> )>>", "(<a:s> <a:p> <a:o>)"),
        ("<<(<a:s><a:p><a:o>)>>", "(<a:s> <a:p> <a:o>)"),
        ("<<(\t_:b  <a:p> _:b )>>", f"({BLANK} <a:p> {BLANK})"),
        ('<<( <a:s> <a:p> "x )>> \\"y\\\\" )>>', '(<a:s> <a:p> "x )>> "y\\")'),
        ('<<( <a:s> <a:p> "<<( \\u00e9" )>>', '(<a:s> <a:p> "<<( é")'),
        ('<<( <a:s> <a:p> "x"@EN--ltr )>>', '(<a:s> <a:p> "x"@en--ltr)'),
        (
            '<<( <a:s> <a:p> "01"^^<http://www.w3.org/2001/XMLSchema#integer> )>>',
            '(<a:s> <a:p> "01"^^<http://www.w3.org/2001/XMLSchema#integer>)',
        ),
        ('<<( <a:s> <a:p> "x"^^<http://www.w3.org/2001/XMLSchema#string> )>>', '(<a:s> <a:p> "x")'),
        ("<<( <a:s> <a:p> <<( <a:s> <a:\\u0070> <<(<a:s><a:p>_:b)>> )>> )>>",
         f"(<a:s> <a:p> (<a:s> <a:p> (<a:s> <a:p> {BLANK})))"),
    ],
)  # fmt: skip
def test_canonical_forms(written: str, canonical: str) -> None:
    text = f"<a:s> <a:p> {written} .\n<a:s> <a:p> <a:o> <a:g> .\n<a:s> <a:p> {written} <a:g> . # end\n"
    encoded, malformed, _ = encode_lines_with_triples(text.encode(), SCOPE, True, 62)
    assert not malformed
    expected = ("<a:s>", "<a:p>", canonical)
    assert rows_of(encoded) == [(*expected, None), ("<a:s>", "<a:p>", "<a:o>", "<a:g>"), (*expected, "<a:g>")]
    row = encoded.terms.find(canonical)
    assert row is not None
    assert encoded.terms.ids[row] == hash_id(canonical.encode())


def test_a_canonical_form_is_written_and_taken_apart() -> None:
    inner = '(<a:s> <a:p> "a "b" c"@en--ltr)'
    assert triple_parts(f"({BLANK} <a:p> {inner})") == (BLANK, "<a:p>", inner)
    assert to_ntriples(f"({BLANK} <a:p> {inner})") == f'<<( {BLANK} <a:p> <<( <a:s> <a:p> "a \\"b\\" c"@en--ltr )>> )>>'
    assert with_blanks(f'({BLANK} <a:p> (_:c <a:p> "_:d"))', str.upper) == f'({BLANK.upper()} <a:p> (_:C <a:p> "_:d"))'
    with pytest.raises(ValueError, match="not a triple term in canonical form: '<a:s>'"):
        triple_parts("<a:s>")


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("<a:s> <a:p> <<( <a:s> <a:p> 5 )>> .", 13, "this is not a valid triple term"),
        ('<a:s> <a:p> <<( "a" <a:p> <a:o> )>> .', 13, "this is not a valid triple term"),
        ("<a:s> <a:p> <<( <a:s> _:b <a:o> )>> .", 13, "this is not a valid triple term"),
        ("<a:s> <a:p> <<( <<( <a:s> <a:p> <a:o> )>> <a:p> <a:o> )>> .", 13, "this is not a valid triple term"),
        ("<a:s> <a:p> <<( <a:s> <a:p> <a:o> .", 13, "this is not a valid triple term"),
        ("<a:s> <a:p> <<( <a:s> <a:p> <rel> )>> .", 13, "this is not a valid triple term"),
        ("<a:s> <a:p> <<( <a:s> <a:p> <a:o> )>> !", 39, "expected '.' at the end of the statement"),
        ("<<( <a:s> <a:p> <a:o> )>> <a:p> <a:o> .", 1, "this is not a valid triple term"),
    ],
)
def test_malformed_lines_are_shown_as_they_stand(line: str, column: int, reason: str) -> None:
    text = f"<a:s> <a:p> <<( <a:s> <a:p> <a:o> )>> .\n{line}\n<a:s> <a:p> <a:o> .\n"
    encoded, malformed, _ = encode_lines_with_triples(text.encode(), SCOPE, True, 62)
    assert len(encoded) == 2
    assert malformed == [MalformedLine(2, column, reason, line)]


@pytest.mark.parametrize("chunk_quads", [1, 2, 100])
def test_anonymous_blank_nodes_inside_get_the_same_labels_each_time(chunk_quads: int) -> None:
    data = b"<< <a:s> <a:p> [] >> <a:q> [] . [] <a:q> <<( _:x <a:p> [] )>> , <<( _:x <a:p> _:x )>> ."

    def read() -> list[tuple[str | None, ...]]:
        pieces = read_rdf(io.BytesIO(data), "ttl", None, SCOPE, on_malformed=None, chunk_quads=chunk_quads)
        return [row for piece in pieces for row in rows_of(piece)]

    first = read()
    assert first == read()
    labels = {part for row in first for term in row for part in (term or "").strip("()").split() if part[:1] == "_"}
    assert labels == {blank_node(SCOPE, label) for label in ("x", ".0", ".1", ".2", ".3", ".4")}


def test_files_in_lines_and_in_turtle_say_the_same(tmp_path: Path) -> None:
    turtle = "PREFIX : <a:> :a :b :c ~ :r {| :q 'x'@en--rtl |} . :r :q <<( :a :b <<( :a :b 1.50 )>> )>> ."
    (tmp_path / "x.ttl").write_text(turtle)
    (read,) = read_rdf(tmp_path / "x.ttl", None, None, SCOPE, on_malformed=None)
    rows = rows_of(read)
    (tmp_path / "x.nt").write_text("".join(f"{' '.join(to_ntriples(term) for term in row[:3])} .\n" for row in rows))
    (again,) = read_rdf(tmp_path / "x.nt", None, None, SCOPE, on_malformed=None)
    assert rows_of(again) == rows
    assert ("<a:r>", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>", "(<a:a> <a:b> <a:c>)", None) in rows


@pytest.mark.parametrize("tag", ["en--ltr", "ar-eg--rtl"])
def test_base_directions(tag: str) -> None:
    encoded, malformed, _ = encode_lines_with_triples(f'<a:s> <a:p> "x"@{tag} .\n'.encode(), SCOPE, True, 62)
    assert not malformed
    assert rows_of(encoded) == [("<a:s>", "<a:p>", f'"x"@{tag}', None)]


@pytest.mark.parametrize("tag", ["en--", "en--lt", "en--rtr", "en--LTR", "en---ltr", "--ltr", "en-"])
def test_other_directions_are_malformed(tag: str) -> None:
    encoded, malformed, _ = encode_lines_with_triples(f'<a:s> <a:p> "x"@{tag} .\n'.encode(), SCOPE, True, 62)
    assert len(encoded) == 0
    assert malformed[0].reason == "this is not a valid language tag"
