"""store/rdf_files.py: every syntax, compressed or not, to the letter; and what cannot be read."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.oracles.ntriples import XSD
from tests.unit.store.test_encoder import rows_of
from wukongs.errors import DataError
from wukongs.store.encoded import Encoded, MalformedLine
from wukongs.store.rdf_files import RdfReader, find_format, read_rdf
from wukongs.store.terms import blank_node

SHARED = Path(__file__).parents[4] / "shared" / "data"
SCOPE = b"load:1"
LEXICALS = [("01", "integer"), ("+1", "integer"), ("1.00", "decimal"), ("1e0", "double"), ("1", "boolean")]
LEXICALS += [("2014-01-01T00:00:00.10Z", "dateTime"), ("abc", "integer"), ("0.1", "float")]
EXPECTED = {("<http://e/s>", "<http://e/p>", f'"{lexical}"^^<{XSD}{name}>', None) for lexical, name in LEXICALS}
EXPECTED |= {("<http://e/s>", "<http://e/p>", text, None) for text in ('"Ä\n"@de-at', '"plain"', "<http://base/d/rel>")}
_LITERALS = ", ".join(f'"{lexical}"^^xsd:{name}' for lexical, name in LEXICALS)
_TURTLE = (
    f'@prefix : <http://e/> . @prefix xsd: <{XSD}> .\n:s :p {_LITERALS},\n"Ä\\n"@de-AT, "plain"^^xsd:string, <rel> .\n'
)
_XML_VALUES = "".join(f'<e:p rdf:datatype="{XSD}{name}">{lexical}</e:p>' for lexical, name in LEXICALS)
_JSON_VALUES = ",".join(f'{{"@value":"{lexical}","@type":"{XSD}{name}"}}' for lexical, name in LEXICALS)
DOCUMENTS = {
    "nt": "".join(f'<http://e/s> <http://e/p> "{lexical}"^^<{XSD}{name}> .\n' for lexical, name in LEXICALS)
    + '<http://e/s> <http://e/p> "Ä\\n"@de-AT .\n<http://e/s> <http://e/p> "plain" .\n'
    "<http://e/s> <http://e/p> <http://base/d/rel> .",
    "ttl": _TURTLE,
    "trig": _TURTLE,
    "n3": _TURTLE,
    "rdf": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
    f'<rdf:Description rdf:about="http://e/s">{_XML_VALUES}<e:p xml:lang="de-AT">Ä\n</e:p><e:p>plain</e:p>'
    '<e:p rdf:resource="rel"/></rdf:Description></rdf:RDF>',
    "jsonld": f'{{"@id":"http://e/s","http://e/p":[{_JSON_VALUES},{{"@value":"Ä\\n","@language":"de-AT"}},'
    '"plain",{"@id":"rel"}]}',
}
DOCUMENTS["nq"] = DOCUMENTS["nt"]


def read(source: object, *args: object, **options: object) -> list[tuple[str | None, ...]]:
    options.setdefault("on_malformed", None)
    return [row for piece in read_rdf(source, *args, scope=SCOPE, **options) for row in rows_of(piece)]  # type: ignore[arg-type]


@pytest.mark.parametrize("syntax", sorted(DOCUMENTS))
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_byte_order_mark_is_no_part_of_the_data(syntax: str, compress: Callable[[bytes], bytes]) -> None:
    data = io.BytesIO(compress(b"\xef\xbb\xbf" + DOCUMENTS[syntax].encode()))
    assert set(read(data, syntax, "http://base/d/")) == EXPECTED


def test_what_is_no_file_is_said_before_what_its_name_lacks(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the file: Is a directory"):
        read(tmp_path)
    with pytest.raises(DataError, match="cannot read the file: No such file"):
        read(tmp_path / "nothing")


@pytest.mark.parametrize("syntax", sorted(DOCUMENTS))
@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_lexical_forms_come_through_every_syntax(tmp_path: Path, syntax: str, compression: str) -> None:
    data = DOCUMENTS[syntax].encode()
    if compression == ".gz":
        data = gzip.compress(data)
    elif compression == ".zst":
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path = tmp_path / f"x.{syntax}{compression}"
    path.write_bytes(data)
    assert set(read(path, base="http://base/d/f")) == EXPECTED
    assert set(read(io.BytesIO(data), syntax, "http://base/d/f")) == EXPECTED


def test_relative_iris_are_resolved_by_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.ttl"
    path.write_text("<a> <b> <> .")
    folder = tmp_path.as_uri()
    assert read(path) == [(f"<{folder}/a>", f"<{folder}/b>", f"<{folder}/x.ttl>", None)]


def test_named_graphs() -> None:
    trig = b"<a:g> { <a:s> <a:p> <a:o> } _:h { <a:s> <a:p> <a:o> } <a:s> <a:p> <a:o> ."
    expected = {"<a:g>", blank_node(SCOPE, "h"), None}
    assert {row[3] for row in read(io.BytesIO(trig), "trig")} == expected
    nq = b"<a:s> <a:p> <a:o> <a:g> .\n<a:s> <a:p> <a:o> _:h .\n<a:s> <a:p> <a:o> ."
    assert {row[3] for row in read(io.BytesIO(nq), "nq")} == expected


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("format", ["nt", "nq"])
def test_a_file_has_the_terms_that_its_format_allows(tmp_path: Path, format: str, compression: str) -> None:
    """RDF 1.1 N-Triples, 2: three terms; N-Quads, 2: three or four. A file's name, or `format`, says which it is."""
    data = b"<a:s> <a:p> 'x' .\n<a:s> <a:p> <a:o> <a:g> .\n<a:s> <a:p> <a:o> _:g .\n<a:s> <a:p> <a:o> .\n"
    packed = {"": bytes, ".gz": gzip.compress, ".zst": lambda text: pa.Codec("zstd").compress(text, asbytes=True)}
    path, other = tmp_path / f"x.{format}{compression}", tmp_path / f"y.dat{compression}"
    path.write_bytes(packed[compression](data))
    other.write_bytes(path.read_bytes())
    bad: list[int] = []
    rows = read(path, on_malformed=lambda file, line: bad.append(line.line))
    assert ([row[3] is not None for row in rows], bad) == (
        ([False], [1, 2, 3]) if format == "nt" else ([True, True, False], [1])
    )
    assert read(other, format, on_malformed=lambda file, line: None) == rows
    if format == "nt":
        with pytest.raises(DataError, match=r"line 1, column 19: expected '\.' after three terms: N-Triples has no"):
            read(io.BytesIO(packed[compression](data[data.index(b"\n") + 1 :])), "nt", strict=True)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_triple_terms_behind_any_line_end_and_a_byte_order_mark(end: bytes) -> None:
    line = b"<a:s> <a:p> <<( <a:s> <a:p> 'x' )>> .".replace(b"'x'", b'"x"\t@EN')
    bad = b'<a:s> <a:p> <<( <a:s> <a:p> "a\xff" )>> .'
    found: list[MalformedLine] = []
    data = b"\xef\xbb\xbf" + end.join([line, bad, line, b'VERSION "1.2"', line])
    rows = read(io.BytesIO(data), "nt", on_malformed=lambda file, line: found.append(line))
    assert [row[2].lower() for row in rows if row[2]] == ['(<a:s> <a:p> "x"@en)'] * 3
    assert [(one.line, one.column, one.reason) for one in found] == [(2, 31, "this is not valid UTF-8: byte 0xFF")]


@pytest.mark.parametrize("chunk_quads", [1, 3, 1000])
def test_anonymous_blank_nodes_get_the_same_labels_each_time(chunk_quads: int) -> None:
    turtle = b"<a:s> <a:p> [ <a:q> _:b ], [ <a:q> 1 ] . _:b <a:p> ( 1 2 ) . <a:s> <a:p> '_:abcdef0123456789' ."
    whole = read(io.BytesIO(turtle), "ttl")
    assert read(io.BytesIO(turtle), "ttl", chunk_quads=chunk_quads) == whole
    blanks = {term for row in whole for term in row if term is not None and term.startswith("_:")}
    assert blanks == {blank_node(SCOPE, label) for label in ("b", ".0", ".1", ".2", ".3")}
    assert '"_:abcdef0123456789"' in {row[2] for row in whole}
    # The generated labels are random, and with them what collides in two bits: try often.
    for _ in range(30):
        pieces = read_rdf(
            io.BytesIO(turtle), "ttl", scope=SCOPE, on_malformed=None, hash_bits=2, chunk_quads=chunk_quads
        )
        assert [row for piece in pieces for row in rows_of(piece)] == whole


@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 40, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_cut_anywhere(chunk_bytes: int, end: str) -> None:
    lines = ["<a:s> <a:p> <a:1> .", "# é", "", "bad", "<a:s> <a:p> '3' .", "<a:s> <a:p> <a:4> ."]
    bad: list[tuple[str, MalformedLine]] = []
    data = b"\xef\xbb\xbf" + end.join(lines).encode()
    rows = read(
        io.BytesIO(data), "nt", chunk_bytes=chunk_bytes, on_malformed=lambda file, line: bad.append((file, line))
    )
    assert [row[2] for row in rows] == ["<a:1>", "<a:4>"]
    assert [(file, line.line, line.text) for file, line in bad] == [("<stream>", 4, "bad"), ("<stream>", 5, lines[4])]


@pytest.mark.parametrize(
    ("name", "format", "expected"),
    [
        ("a/b.nt", None, "nt"),
        ("b.NT.GZ", None, "nt"),
        ("b.x.ttl.zst", None, "ttl"),
        ("b.owl", None, "rdf"),
        ("b.nt", "turtle", "ttl"),
        ("b", "JSON-LD", "jsonld"),
        ("b", ".n3", "n3"),
    ],
)
def test_formats(name: str, format: str | None, expected: str) -> None:
    assert find_format(name, format) == expected


KNOWN = "expected one of nt, nq, ttl, trig, n3, rdf, jsonld"
_GZIPPED = gzip.compress(b"<a:s> <a:p> <a:o> .\n" * 500, mtime=0)
_ZSTD = pa.Codec("zstd").compress(b"<a:s> <a:p> <a:o> .\n" * 500, asbytes=True)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.foo", b"", f"x.foo: unknown RDF format 'foo': {KNOWN}"),
        ("x.gz", b"", f"x.gz: no RDF format given, and the name has no extension: {KNOWN}"),
        ("x.nt", None, "x.nt: cannot read the file: No such file or directory"),
        ("x.nt.gz", _GZIPPED[:-20], "x.nt.gz: the compressed file is damaged or cut short: Compressed file ended"),
        ("x.ttl.gz", _GZIPPED[:-20], "x.ttl.gz: the compressed file is damaged or cut short: Compressed file ended"),
        ("x.nt.gz", _GZIPPED[:20] + b"junk" + _GZIPPED[24:], "x.nt.gz: the compressed file is damaged or cut short: "),
        ("x.nt.zst", _ZSTD[:-3], "x.nt.zst: cannot read the file: "),
        ("x.nt", "<a:s>".encode("utf-16"), "x.nt, line 1: the file is in UTF-16: expected UTF-8"),
        ("x.nt", b"# c\n<a:s> <a:p> <o> .", "x.nt, line 2, column 13: this IRI is relative: it has to begin with a"),
        ("x.nt", b'<a:s> <a:p> "\xe9" .', "x.nt, line 1, column 14: this is not valid UTF-8: byte 0xE9, found '<a:s>"),
        ("x.ttl", b'<a:s> <a:p>\n "\xe9" .', "x.ttl, line 2: this is not valid UTF-8: byte 0xE9"),
        ("x.trig", b"<a:s> <a:p> 1 .\r\n# \xed\xa0\x80", "x.trig, line 2: this is not valid UTF-8: byte 0xED"),
        ("x.n3", b"<a:s> <a:p> 1 .\n# \xe9", "x.n3, line 2: this is not valid UTF-8: byte 0xE9"),
        ("x.rdf", b"<a>\n<!-- \xe9 -->", "x.rdf, line 2: this is not valid UTF-8: byte 0xE9"),
        ("x.jsonld", b'{"@id":\n"a:\xc0\x80"}', "x.jsonld, line 2: this is not valid UTF-8: byte 0xC0"),
        ("x.ttl", b"<a:s> <a:p>\n <a:o b> .", "x.ttl, line 2, between columns 2 and 9: "),
        ("x.ttl", b"x:s <a:p> 1 .", "x.ttl, line 1, "),
        ("x.ttl", b'<a:s> <a:p> <<( "a" <a:p> <a:o> )>> .', "x.ttl, line 1, between columns 17 and 20: "),
        ("x.n3", b"<a:s> _:b <a:o> .", "x.n3: blank nodes are not allowed in regular RDF predicates"),
        ("x.n3", b"?x <a:p> <a:o> .", "x.n3: variables are not allowed in regular RDF subjects"),
        ("x.rdf", b"<a>", "x.rdf: "),
        (
            "x.jsonld",
            b'{"@context":"http://schema.org/","@id":"a:x"}',
            "x.jsonld, line 1: the @context <http://schema.org/> is ",
        ),
        ("x.jsonld", b'{"@id":\n', "x.jsonld, line 2, "),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read(path, strict=True)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the file: Is a directory"):
        read(tmp_path, "nt")


def test_file_objects_without_a_name_or_base() -> None:
    with pytest.raises(DataError, match="<stream>: no RDF format given"):
        read(io.BytesIO(b""))
    with pytest.raises(DataError, match="give a base IRI to resolve relative ones"):
        read(io.BytesIO(b"<a> <b> <c> ."), "ttl")
    with pytest.raises(DataError, match="<stream>: base IRI 'x y': "):
        read(io.BytesIO(b"<a> <b> <c> ."), "ttl", "x y")
    with pytest.raises(DataError, match="expected a file opened in binary mode"):
        read(io.StringIO("<a:s>"), "nt")


def test_a_file_object_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "x.nt"
    path.write_bytes(_GZIPPED)
    with path.open("rb") as file:
        assert len(read(file)) == 500
        assert not file.closed


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the real data is not here")
def test_citybench_repository() -> None:
    def load(name: str) -> list[Encoded]:
        return list(read_rdf(SHARED / "citybench" / "stored" / name, scope=SCOPE, on_malformed=None))

    pieces = load("SensorRepository.n3.gz")
    assert sum(map(len, pieces)) == 44_213
    again = load("SensorRepository.n3.gz")
    for name in ("subjects", "predicates", "objects"):
        np.testing.assert_array_equal(getattr(pieces[0], name), getattr(again[0], name))
    assert sum(map(len, load("stored.nt.gz"))) == 68_928


def test_the_length_of_a_text_is_known_where_nothing_has_to_be_read_for_it(tmp_path: Path) -> None:
    text = b"<http://ex/a> <http://ex/p> 1 .\n" * 10
    plain, packed = tmp_path / "a.ttl", tmp_path / "b.ttl.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    lines = tmp_path / "c.nt"
    lines.write_bytes(text)
    part = io.BytesIO(b"x" * 7 + text)
    part.seek(7)
    with tempfile.TemporaryFile() as spooled, plain.open("rb") as opened, gzip.open(packed) as unpacked:
        spooled.write(text)
        spooled.seek(0)
        sources: list[object] = [plain, lines, packed, io.BytesIO(text), part, spooled, opened, unpacked]
        found = []
        for source in sources:
            with RdfReader(source, "ttl" if source is not lines else None) as reader:  # type: ignore[arg-type]
                found.append(reader.text_bytes)
    assert found == [320, 320, None, 320, 320, 320, 320, None]
