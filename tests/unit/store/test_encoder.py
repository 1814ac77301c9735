"""store/encoder.py: N-Triples and N-Quads, lines and columns."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tests.fuzz import SEED
from tests.oracles.ntriples import XSD, read_line
from wukongs.errors import DataError
from wukongs.live.pieces import timing_mask
from wukongs.store import encode_kernels, encoder
from wukongs.store.dtypes import CLASH_FIRST, UNBOUND, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.encoder import (
    REASONS,
    columns_of_lines,
    encode_columns,
    encode_ntriples,
    encode_term_column,
    rename_terms,
)
from wukongs.store.terms import blank_node, is_inlined, term_id, unpack

SCOPE = b"scope"


def texts_of(encoded: Encoded, column: Int64Array) -> list[str | None]:
    """Return the canonical forms in a column that has not been confirmed; None where there is none."""
    known = dict(zip(encoded.terms.ids.tolist(), encoded.terms.texts(), strict=True))
    known.update((CLASH_FIRST - k, text) for k, text in enumerate(encoded.clashes.texts()))
    inlined = column[is_inlined(column)]
    data, offsets = unpack(inlined)
    known.update(
        (term, data[offsets[i] : offsets[i + 1]].tobytes().decode()) for i, term in enumerate(inlined.tolist())
    )
    return [None if term == UNBOUND else known[term] for term in column.tolist()]


def rows_of(encoded: Encoded) -> list[tuple[str | None, ...]]:
    columns = (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs)
    return list(zip(*(texts_of(encoded, column) for column in columns), strict=True))


@pytest.mark.nojit
def test_lines_of_all_kinds() -> None:
    data = (
        "\ufeff<http://e/s> <http://e/p> <http://e/o> .\n"
        "\n"
        "  # a comment\r\n"
        '\t_:b1\t<http://e/p>\t"tab\\tquote\\""@EN-us <http://e/g> . # said\r\n'
        f'<http://e/s><http://e/p>"05"^^<{XSD}integer>.\r'
        f'<http://e/s> <http://e/p> "5"^^<{XSD}integer> _:g .\n'
        f'<http://e/\\u00e9> <http://e/p> "é"^^<{XSD}string> .'
    )
    encoded, malformed = encode_ntriples(data.encode(), SCOPE)
    assert malformed == []
    assert rows_of(encoded) == [
        ("<http://e/s>", "<http://e/p>", "<http://e/o>", None),
        (blank_node(SCOPE, "b1"), "<http://e/p>", '"tab\tquote""@en-us', "<http://e/g>"),
        ("<http://e/s>", "<http://e/p>", f'"05"^^<{XSD}integer>', None),
        ("<http://e/s>", "<http://e/p>", f'"5"^^<{XSD}integer>', blank_node(SCOPE, "g")),
        ("<http://e/é>", "<http://e/p>", '"é"', None),
    ]
    assert len(encoded.timestamps) == 0
    assert len(set(encoded.terms.ids.tolist())) == len(encoded.terms) == 10


@pytest.mark.nojit
def test_nothing() -> None:
    for data in (b"", b"\n", b"\xef\xbb\xbf", b"# only a comment"):
        encoded, malformed = encode_ntriples(data, SCOPE)
        assert (len(encoded), len(encoded.terms), malformed) == (0, 0, [])


RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
NO_TAG = "expected a language tag: this datatype is that of literals which have one"
NO_VERSION = "expected a version in double quotes after VERSION, and the end of the line"
FOURTH = "expected '.' after three terms: N-Triples has no graphs, N-Quads (nq) has"
# Labels: W3C's N-Triples tests nt-syntax-bad-bnode-01 and -02. Tags: RFC 5646, 2.1; ntriples-langdir-bad-4 of RDF 1.2.
# rdf:langString: RDF 1.1 Concepts, 3.3. VERSION: ntriples-version-bad-1 to -4 of RDF 1.2.
MALFORMED = [
    ("", 'x <http://p> "o" .', 1, "expected a subject: an IRI in <> or a blank node"),
    ("", '"s" <http://p> "o" .', 1, "a literal cannot be a subject"),
    ("", "<http://s> _:p <http://o> .", 12, "expected a predicate: an IRI in <>"),
    ("", '<http://s> "p" <http://o> .', 12, "expected a predicate: an IRI in <>"),
    (
        "",
        "<http://s> <http://p> .",
        23,
        "expected an object: an IRI in <>, a blank node or a literal in double quotes",
    ),
    (
        "",
        "<http://s> <http://p> 'o' .",
        23,
        "expected an object: an IRI in <>, a blank node or a literal in double quotes",
    ),
    ("", "<http://s> <http://p> <http://o> _g .", 34, "this is not a valid blank node label"),
    ("", '<http://s> <http://p> <http://o> "g" .', 34, "expected '.' at the end of the statement"),
    ("", "<http://s> <http://p> <http://o>", 33, "expected '.' at the end of the statement"),
    ("", "<http://s> <http://p> <http://o> <http://g> <http://h> .", 45, "expected '.' at the end of the statement"),
    ("", "<http://s> <http://p> <http://o> . more", 36, "expected the end of the line after the statement"),
    ("", "<http://s> <http://p> _:b.. ", 27, "expected the end of the line after the statement"),
    ("", "<http://s <http://p> <http://o> .", 10, "this character cannot stand in an IRI"),
    ("", r"<http://s\u0020> <http://p> <http://o> .", 10, "this character cannot stand in an IRI"),
    ("", "<http://s> <http://p> <http://o", 23, "this IRI has no closing '>' on its line"),
    ("", "<s> <http://p> <http://o> .", 1, "this IRI is relative: it has to begin with a scheme such as http:"),
    ("", "<> <http://p> <http://o> .", 1, "this IRI is relative: it has to begin with a scheme such as http:"),
    ("", '<http://s> <http://p> "o .', 23, "this literal has no closing quote on its line"),
    ("", r'<http://s> <http://p> "o\x" .', 25, "this is not a valid escape"),
    ("", r'<http://s> <http://p> "o\u12" .', 25, "this is not a valid escape"),
    ("", r'<http://s> <http://p> "\uD800" .', 24, "this is not a valid escape"),
    ("", r'<http://s> <http://p> "\U00110000" .', 24, "this is not a valid escape"),
    ("", r"<http://\n> <http://p> <http://o> .", 9, "this is not a valid escape"),
    ("", '<http://s> <http://p> "é"@ .', 27, "this is not a valid language tag"),
    ("", '<http://s> <http://p> "o"@en- .', 30, "this is not a valid language tag"),
    ("", '<http://s> <http://p> "o"^^xsd:integer .', 28, "expected a datatype IRI in <> after '^^'"),
    (
        "",
        '<http://s> <http://p> "o"^^<integer> .',
        28,
        "this IRI is relative: it has to begin with a scheme such as http:",
    ),
    ("", "_:-a <http://p> <http://o> .", 3, "this is not a valid blank node label"),
    ("", "_::a <http://p> <http://o> .", 3, "this is not a valid blank node label"),
    ("", "_:a:b <http://p> <http://o> .", 4, "this is not a valid blank node label"),
    ("", "_:é: <http://p> <http://o> .", 4, "this is not a valid blank node label"),
    ("", '<http://s> <http://p> "o"@abcdefghi .', 35, "this is not a valid language tag"),
    ("", '<http://s> <http://p> "o"@en-abcdefghi-x .', 38, "this is not a valid language tag"),
    ("", '<http://s> <http://p> "o"@ en .', 27, "this is not a valid language tag"),
    ("", f'<http://s> <http://p> "o"^^<{RDF}langString> .', 28, NO_TAG),
    ("", f'<http://s> <http://p> "o" ^^\t<{RDF}dirLangString> .', 30, NO_TAG),
    ("", f'<http://s> <http://p> "o"^^<{RDF}l\\u0061ngString> .', 28, NO_TAG),
    ("", "VERSION 1.2", 9, NO_VERSION),
    ("", "VERSION <http://version/1.2>", 9, NO_VERSION),
    ("", "VERSION '1.2'", 9, NO_VERSION),
    ("", 'VERSION "1.2" .', 15, NO_VERSION),
    ("", 'VERSION "1.2"@en', 14, NO_VERSION),
    ("", "VERSION", 8, NO_VERSION),
    ("", 'VERSION "1.2', 9, "this literal has no closing quote on its line"),
    ("", 'version "1.2"', 1, "expected a subject: an IRI in <> or a blank node"),
    ("", '@version "1.2" .', 1, "expected a subject: an IRI in <> or a blank node"),
    ("", "_a <http://p> <http://o> .", 1, "this is not a valid blank node label"),
    ("suffix", "<http://s> <http://p> <http://o> .", 35, "expected a timestamp, an integer in milliseconds"),
    ("suffix", "<http://s> <http://p> <http://o> . 1.5", 37, "expected the end of the line after the statement"),
    ("suffix", f"<http://s> <http://p> <http://o> . {10**18}", 36, "expected a timestamp, an integer in milliseconds"),
    ("suffix", f"<http://s> <http://p> <http://o> . {1 << 42}", 36, "expected a timestamp, an integer in milliseconds"),
    ("prefix", f"{-1 << 40}\t<h:s> <h:p> <h:o> .", 1, "expected a timestamp, an integer in milliseconds"),
    ("prefix", "<http://s> <http://p> <http://o> .", 1, "expected a timestamp, an integer in milliseconds"),
    ("prefix", "5<http://s> <http://p> <http://o> .", 2, "expected a tab between timestamp and subject"),
]


@pytest.mark.nojit
@pytest.mark.parametrize(("timestamps", "line", "column", "reason"), MALFORMED)
def test_a_malformed_line_is_set_aside_alone(timestamps: str, line: str, column: int, reason: str) -> None:
    good = {"": "{}", "suffix": "{} 7", "prefix": "7\t{}"}[timestamps].format("<http://s> <http://p> <http://o> .")
    data = f"{good}\n{line}\r\n{good}\n".encode()
    mode = timestamps or "none"
    encoded, malformed = encode_ntriples(data, SCOPE, timestamps=mode, first_line=11)  # type: ignore[arg-type]
    assert [(bad.line, bad.column, bad.reason, bad.text) for bad in malformed] == [(12, column, reason, line)]
    assert len(encoded) == 2
    assert encoded.terms.texts() == ["<http://s>", "<http://p>", "<http://o>"]
    assert encoded.timestamps.tolist() == ([7, 7] if timestamps else [])


def test_every_reason_has_a_test() -> None:
    only_in_columns = {"expected the end of the term", "a value is missing (null)"}
    only_in_bytes = {"this is not valid UTF-8"}
    only_in_ntriples = {FOURTH}
    # A fourth term that can be no graph reads as a missing dot, so this one is met in columns only.
    only_in_columns.add("expected a graph name: an IRI in <> or a blank node")
    assert (
        set(REASONS.values())
        == {reason for _, _, _, reason in MALFORMED} | only_in_columns | only_in_bytes | only_in_ntriples
    )


@pytest.mark.nojit
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_bytes_that_are_not_utf8(bad: bytes) -> None:
    for before, after in (
        (b'<http://s> <http://p> "\xc3\xa9', b'" .'),
        (b"<http://s> <http://p> <http:\xc3\xa9", b"> ."),
    ):
        encoded, malformed = encode_ntriples(before + bad + after + b"\n<http://s> <http://p> <http://o> .", SCOPE)
        column = len(before.decode()) + 1
        reason = f"this is not valid UTF-8: byte 0x{bad[0]:02X}"
        assert [(line.column, line.reason) for line in malformed] == [(column, reason)]
        assert len(encoded) == 1


@pytest.mark.nojit
@pytest.mark.parametrize(
    "line",
    [
        b"# caf\xe9",
        b"<http://s> <http://p> <http://o> . # caf\xe9",
        b'<http://s> <http://p> "a"@e\xff .',
        b"_:a\xff <http://p> <http://o> .",
        b"<http://s> <http://p> <http://o> <http://g\xff> .",
        b"<http://s> <http://p> <http://o> _:g\xff .",
        b'<http://s> <http://p> "a"^^<http://d\xff> .',
        b'<http://s> <http://p> <<( <http://s> <http://p> "a\xff" )>> .',
        b'VERSION "1.\xff"',
        b'VERSION "1.2" # \xff',
        b"\xff",
        b"no statement, and behind it \xff",
    ],
)
def test_a_byte_that_is_not_utf8_is_named_wherever_it_stands(line: bytes) -> None:
    """A document of N-Triples or N-Quads is in UTF-8 (RDF 1.1 N-Triples, 6.1), comments included."""
    good = b"<http://s> <http://p> <http://o> ."
    encoded, malformed = encode_ntriples(good + b"\n" + line + b"\n" + good, SCOPE)
    at = next(place for place, byte in enumerate(line) if byte > 127)
    reason = f"this is not valid UTF-8: byte 0x{line[at]:02X}"
    assert [(bad.line, bad.column, bad.reason) for bad in malformed] == [(2, at + 1, reason)]
    assert len(encoded) == 2
    assert encode_ntriples(line, SCOPE)[1] == [replace(malformed[0], line=1)], "without a line end"


@pytest.mark.nojit
@pytest.mark.parametrize("graph", ["<http://g>", "_:g"])
def test_n_triples_has_three_terms(graph: str) -> None:
    """RDF 1.1 N-Triples, 2: a triple ends behind its object; N-Quads, 2: a statement may name a graph."""
    lines = f'<http://s> <http://p> "o" {graph} .\n<http://s> <http://p> "o" .\n'.encode()
    encoded, malformed = encode_ntriples(lines, SCOPE, graphs=False)
    assert [(bad.line, bad.column, bad.reason) for bad in malformed] == [(1, 27, FOURTH)]
    assert rows_of(encoded) == [("<http://s>", "<http://p>", '"o"', None)]
    quads, none = encode_ntriples(lines, SCOPE, graphs=True)
    assert ([row[3] is None for row in rows_of(quads)], none) == ([False, True], [])


@pytest.mark.nojit
def test_space_may_stand_before_a_tag_and_a_datatype() -> None:
    """RDF 1.1 N-Triples, 7: white space may stand between two terminals; LANGTAG is one, '^^' is one."""
    tight = ['"a"@en', '"5"^^<http://d>', f'"5"^^<{XSD}integer>', f'"a"^^<{XSD}string>', '"a\\n"@en--ltr', '"a"', '""']
    wide = ['"a" \t@en', '"5" ^^\t<http://d>', f'"5" ^^<{XSD}integer>', f'"a"^^ <{XSD}string>', '"a\\n" @en--ltr']
    wide += ['"a"\t', '"" ']
    found = [
        rows_of(encode_ntriples("".join(f"<http://s> <http://p> {term} .\n" for term in terms).encode(), SCOPE)[0])
        for terms in (tight, wide)
    ]
    assert found[0] == found[1]
    assert [row[2] for row in found[0]][:3] == ['"a"@en', '"5"^^<http://d>', f'"5"^^<{XSD}integer>']
    assert encode_columns(S, P, ['"a" @en'], scope=SCOPE).terms.texts()[2] == '"a"@en'


@pytest.mark.nojit
@pytest.mark.parametrize("line", ['VERSION "1.2"', ' \tVERSION\t"1.2-basic" # c', 'VERSION"\\u0031.1"', 'VERSION "é"'])
def test_a_version_line_is_a_directive(line: str) -> None:
    """RDF 1.2 N-Triples, versionDirective; W3C's ntriples-version-1. It may stand on any line and has no time."""
    for timestamps, statement in (("none", "{}"), ("suffix", "{} 5"), ("prefix", "5\t{}")):
        one = statement.format("<http://s> <http://p> <http://o> .")
        data = f"{one}\n{line}\r\n{one}\n{line}".encode()
        encoded, malformed = encode_ntriples(data, SCOPE, timestamps=timestamps)  # type: ignore[arg-type]
        assert (len(encoded), malformed) == (2, [])


TERMS = ["<http://s>", "_:b.c", '"x" @en', '"1"^^<http://d>', '"a\\tb"', "<http://\\u00e9>", "_:g"]


@pytest.mark.nojit
def test_lines_are_cut_into_columns_of_terms_as_they_stand() -> None:
    body = "\ufeff# c\r\n" + "".join(
        f"<http://s>\t<http://p>{term}{graph}. {at}\r"
        for at, (term, graph) in enumerate(zip(TERMS, ([" ", " _:g"] * 4)[:7], strict=True))
    )
    columns, times = columns_of_lines(body.encode(), timestamps="suffix", graphs=True, name="the body")
    subjects, predicates, objects, graphs = (column.to_pylist() for column in columns)
    count = len(TERMS)
    assert (subjects, predicates, objects) == (["<http://s>"] * count, ["<http://p>"] * count, TERMS)
    assert (graphs, times.tolist()) == ((["", "_:g"] * 4)[:count], list(range(count)))
    with pytest.raises(DataError, match=r"the body, line 3, column 28: expected '\.' after three terms"):
        columns_of_lines(body.encode(), timestamps="suffix", graphs=False, name="the body")
    assert [len(column) for column in columns_of_lines(b"", timestamps="suffix", graphs=True, name="x")[0]] == [0] * 4


@pytest.mark.nojit
def test_timestamps() -> None:
    suffix = b"<http://s> <http://p> <http://o> . 12 # c\n<http://s> <http://p> <http://o> <http://g> .\t-5\n"
    assert encode_ntriples(suffix, SCOPE, timestamps="suffix")[0].timestamps.tolist() == [12, -5]
    prefix = b"12\t<http://s> <http://p> <http://o> .\n# c\n1407754800000 <http://s> <http://p> _:o . # c"
    assert encode_ntriples(prefix, SCOPE, timestamps="prefix")[0].timestamps.tolist() == [12, 1407754800000]


def _random_lines(count: int) -> list[str]:
    random_lines = random.Random(3)
    terms = [f"<http://example.org/vertex/{i}>" for i in range(count // 2)] + [f"_:b{i}" for i in range(50)]
    literals = [f'"text number {i} é"@EN' for i in range(200)] + [f'"{i}"^^<{XSD}integer>' for i in range(200)]
    return [
        f"{random_lines.choice(terms)} <http://p/{random_lines.randrange(9)}> {random_lines.choice(terms + literals)} ."
        for _ in range(count)
    ]


def test_many_lines_grow_all_tables_and_equal_the_oracle() -> None:
    lines = _random_lines(4000)
    # Short lines need more rows than expected, long ones more text; broken ones more places for malformed lines.
    lines += ["<a:> <a:> <a:>."] * 5000 + ["no"] * 100 + [f'<a:> <a:> "{"x" * 100_000}{i}".' for i in range(3)]
    encoded, malformed = encode_ntriples("\n".join(lines).encode(), SCOPE)
    expected = [read_line(line, SCOPE) for line in lines]
    assert rows_of(encoded) == [(*terms, None) for terms in expected if terms]
    assert len(malformed) == 100
    assert len(set(encoded.terms.ids.tolist())) == len(encoded.terms)


def test_two_texts_with_one_id_in_a_message_are_both_kept() -> None:
    lines = _random_lines(3000)
    encoded, _ = encode_ntriples("\n".join(lines).encode(), SCOPE, hash_bits=8)
    assert len(encoded.terms) <= 257
    assert len(encoded.clashes) > 1000
    assert rows_of(encoded) == [(*(read_line(line, SCOPE) or ()), None) for line in lines]
    assert set(encoded.clashes.ids.tolist()) <= set(encoded.terms.ids.tolist())


@pytest.mark.nojit
def test_columns_of_strings() -> None:
    encoded = encode_columns(
        ["<http://s>", "_:b"],
        ["<http://p>"] * 2,
        ['"x"@EN', f'"5"^^<{XSD}integer>'],
        [5, 6],
        ["<http://g>", None],
        scope=SCOPE,
    )
    assert rows_of(encoded) == [
        ("<http://s>", "<http://p>", '"x"@en', "<http://g>"),
        (blank_node(SCOPE, "b"), "<http://p>", f'"5"^^<{XSD}integer>', None),
    ]
    assert encoded.timestamps.tolist() == [5, 6]
    assert encoded.subjects[0] == term_id("<http://s>")
    assert len(encode_columns([], [], [], scope=SCOPE)) == 0


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_arrow_columns_with_offsets_and_chunks(kind: pa.DataType) -> None:
    subjects = [f"<http://s/{i}>" for i in range(100)]
    objects = [f'"é{i}"' for i in range(100)]
    plain = encode_columns(subjects[10:90], ["<http://p>"] * 80, objects[10:90], scope=SCOPE)
    array = pa.array(subjects).cast(kind)
    chunked = pa.chunked_array([pa.array(objects[:33]).cast(kind), pa.array(objects[33:]).cast(kind)])
    graphs = pa.array([None] * 79 + ["<http://g>"], pa.string())
    found = encode_columns(
        array.slice(10, 80),
        pa.array(["<http://p>"] * 80),
        chunked.slice(10, 80),
        pa.array(range(80)),
        graphs,
        scope=SCOPE,
    )
    assert found.subjects.tolist() == plain.subjects.tolist()
    assert found.objects.tolist() == plain.objects.tolist()
    assert found.graphs.tolist() == [UNBOUND] * 79 + [term_id("<http://g>")]
    assert found.timestamps.tolist() == list(range(80))


_INDICES = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]


@pytest.mark.parametrize("width", _INDICES, ids=str)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_graphs_of_a_dictionary_are_null_by_index_or_by_value(width: pa.DataType, kind: pa.DataType) -> None:
    names = pa.array(["<http://no>", "<http://é/漢>", None, "<http://b>", "<http://b>", "not a term"]).cast(kind)[1:]
    column = pa.DictionaryArray.from_arrays(pa.array([4, 0, None, 1, 3, 2, 0, 4], width), names)[1:7]
    other = pa.DictionaryArray.from_arrays(pa.array([0], width), pa.array(["<http://c>"]).cast(kind))
    graphs = pa.chunked_array([column[:2], column[:0], column[2:], other])
    found = encode_columns(["<a:>"] * 7, ["<a:>"] * 7, ["<a:>"] * 7, graphs=graphs, scope=SCOPE)
    first, second, third = (term_id(f"<http://{name}>") for name in ("é/漢", "b", "c"))
    assert found.graphs.tolist() == [first, UNBOUND, UNBOUND, second, second, first, third]


def test_nulls_beside_a_long_text_do_not_copy_it_for_each_row() -> None:
    rows, size = 2_100, 1 << 20
    assert rows * size > 1 << 31, "more than a column of strings may have"
    name = f"<a:{'a' * size}>"
    graphs = pa.DictionaryArray.from_arrays(pa.array([0] * rows + [None], pa.int32()), pa.array([name]))
    plain = ["<a:>"] * (rows + 1)
    found = encode_columns(plain, plain, plain, graphs=graphs, scope=SCOPE)
    assert found.graphs.tolist() == [term_id(name)] * rows + [UNBOUND]


@pytest.mark.parametrize(("index", "shown"), [(-1, "-1 to 0"), (1, "0 to 1")])
def test_an_index_without_a_value_is_refused(index: int, shown: str) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, index], pa.int8()), pa.array(["<a:>"]), safe=False)
    with pytest.raises(DataError, match=f"column 'object': its indices are {shown}, its dictionary has 1 values"):
        encode_columns(["<a:>"] * 2, ["<a:>"] * 2, column, scope=SCOPE)


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.null()], ids=str)
def test_a_dictionary_without_values_has_nulls_alone(kind: pa.DataType) -> None:
    column = pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int8()), pa.array([], kind))
    assert encode_columns(["<a:>"] * 2, ["<a:>"] * 2, ["<a:>"] * 2, graphs=column, scope=SCOPE).graphs.tolist() == [
        -1,
        -1,
    ]
    with pytest.raises(DataError, match="row 0, column 'object': a value is missing"):
        encode_columns(["<a:>"] * 2, ["<a:>"] * 2, column, scope=SCOPE)


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_signs_may_be_views(is_dictionary: bool) -> None:
    ops = pa.array(["+", "-"]).cast(pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ops) if is_dictionary else ops
    assert encode_columns(["<a:>"] * 2, ["<a:>"] * 2, ["<a:>"] * 2, ops=column, scope=SCOPE).goes.tolist() == [
        False,
        True,
    ]


def test_arrow_column_of_nulls_among_graphs() -> None:
    found = encode_columns(["<a:>"], ["<a:>"], ["<a:>"], graphs=pa.nulls(1), scope=SCOPE)
    assert found.graphs.tolist() == [UNBOUND]


S, P, OBJ = ["<http://s>"], ["<http://p>"], ["<http://o>"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            (S, P, ['"x']),
            "row 0, column 'object', character 1: this literal has no closing quote on its line, found '\"x'",
        ),
        ((S, P, ["é x"]), "row 0, column 'object', character 1: expected an object: an IRI in <>, a blank node or a"),
        ((['"s"'], P, OBJ), "row 0, column 'subject', character 1: a literal cannot be a subject, found '\"s\"'"),
        ((S, ["_:p"], OBJ), "row 0, column 'predicate', character 1: expected a predicate: an IRI in <>, found '_:p'"),
        ((S, P, ["<http://é> "]), "row 0, column 'object', character 11: expected the end of the term"),
        ((S, P, ['"a\nb"']), "row 0, column 'object', character 1: this literal has no closing quote on its line"),
        (
            (S, P, OBJ, None, ['"g"']),
            "row 0, column 'graph', character 1: expected a graph name: an IRI in <> or a blank",
        ),
        (([*S, None], P * 2, OBJ * 2), "row 1, column 'subject': a value is missing (null)"),
        ((S, P, pa.array([None], pa.string())), "row 0, column 'object': a value is missing (null)"),
        ((S, P, [5]), "row 0, column 'object': expected an N-Triples term as str, found 5"),
        ((S, P, ["\ud800"]), "row 0, column 'object': expected an N-Triples term as str, found '\\ud800'"),
        ((S, P, pa.array([5])), "column 'object': expected strings, found int64"),
        ((S, P, OBJ * 2), "column 'object' has 2 rows, column 'subject' has 1"),
        ((S, P, OBJ, [1, 2]), "column 'timestamp_ms' has 2 rows, column 'subject' has 1"),
        ((S, P, OBJ, [1.5]), "column 'timestamp_ms': expected integers in milliseconds, found float64"),
        (
            (S, P, OBJ, pa.array([1 << 63], pa.uint64())),
            f"column 'timestamp_ms': expected integers of 64 bits with a sign, found {1 << 63}",
        ),
        ((S, P, OBJ, pa.array([None], pa.int64())), "column 'timestamp_ms': a value is missing (null)"),
    ],
)
def test_columns_that_cannot_be_encoded(columns: tuple[object, ...], message: str) -> None:
    with pytest.raises(DataError) as caught:
        encode_columns(*columns, scope=SCOPE)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_terms_renamed() -> None:
    encoded = encode_columns(S * 3, P * 3, ["_:a", "_:b", '"1"'], scope=SCOPE, hash_bits=2)
    names = encoded.terms.texts() + encoded.clashes.texts()
    rows = np.array([names.index(blank_node(SCOPE, "a")), names.index(blank_node(SCOPE, "b"))])
    renamed = rename_terms(encoded, rows, ["_:x", "_:y"], hash_bits=2)
    assert texts_of(renamed, renamed.objects) == ["_:x", "_:y", '"1"']
    assert texts_of(renamed, renamed.subjects) == S * 3


@pytest.mark.nojit
def test_kernels_equal_their_py_funcs(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (
        b'_:a <http://p> "x\\n"@EN .\n<b> <c> <d> .\n<http://s> <http://p> "5"^^<%sdouble> <http://g> .' % XSD.encode()
    )
    compiled, bad = encode_ntriples(data, SCOPE, hash_bits=1)
    column = encode_columns(S, P, OBJ, scope=SCOPE)
    for name in ("encode_lines", "encode_terms", "intern_terms"):
        kernel = getattr(encode_kernels, name)
        monkeypatch.setattr(encode_kernels, name, getattr(kernel, "py_func", kernel))
    plain, also_bad = encode_ntriples(data, SCOPE, hash_bits=1)
    assert bad == also_bad
    assert rows_of(plain) == rows_of(compiled)
    for name in ("subjects", "predicates", "objects", "graphs"):
        assert getattr(plain, name).tolist() == getattr(compiled, name).tolist()
    assert encode_columns(S, P, OBJ, scope=SCOPE).objects.tolist() == column.objects.tolist()


def test_the_code_of_a_term_is_found_by_its_text_whatever_its_hash() -> None:
    """With 4 bits many terms share a hash; only one of them can have it as its code."""
    names = [f"<http://p/{number}>" for number in range(64)]
    objects = [f'"in a literal: {name}"' for name in names]
    encoded = encode_columns(["<http://s>"] * 64, names, objects, scope=b"", hash_bits=4)
    assert len(encoded.clashes) > 60
    for row, name in enumerate(names):
        assert np.flatnonzero(encoded.predicates == encoded.codes_of([name])).tolist() == [row]
    assert encoded.codes_of(["<http://p/64>", "<http://p/6", names[3]]).tolist() == [encoded.predicates[3]]


def test_only_the_named_predicates_are_timing_whatever_the_hashes() -> None:
    names = [f"<http://p/{number}>" for number in range(64)]
    encoded = encode_columns(["<http://s>"] * 64, names, names, scope=b"", hash_bits=4)
    for timing, rows in ((("http://p/5", "http://p/9"), [5, 9]), (True, list(range(64))), (False, []), ((), [])):
        assert np.flatnonzero(timing_mask(encoded, timing)).tolist() == rows


@pytest.mark.nojit
def test_one_column_of_terms_of_any_kind() -> None:
    terms = ["<http://a>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', '"longer than inlined"@EN', "<http://a>"]
    encoded = encode_term_column("x", pa.array(terms, pa.large_string()), scope=SCOPE)
    canonical = [terms[0], terms[1], '"longer than inlined"@en', terms[0]]
    assert rows_of(encoded) == [(term, term, term, None) for term in canonical]
    with pytest.raises(DataError, match=r"row 1, column 'x', character 1: expected an object"):
        encode_term_column("x", ["<http://a>", "a"], scope=SCOPE)
    with pytest.raises(DataError, match=r"row 0, column 'x': a value is missing"):
        encode_term_column("x", [None], scope=SCOPE)


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("distinct", [1, 7, 400])
def test_terms_that_repeat_are_read_once_and_give_the_same(distinct: int, chunks: int) -> None:
    """Texts, dictionaries and dictionaries with values that nobody has, or twice, or that are no terms."""
    rng = np.random.default_rng(SEED)
    rows = 3 * encoder.ROWS_MIN
    forms = ["<http://e/%d>", '"%d"', '"%d"^^<http://www.w3.org/2001/XMLSchema#integer>', '"t%d"@EN', "_:b%d"]
    values = [forms[at % len(forms)] % at for at in range(distinct)]
    numbers = rng.integers(0, distinct, rows)
    objects = [values[number] for number in numbers]
    plain = encode_columns(["<http://s>"] * rows, ["<http://p>"] * rows, objects, scope=SCOPE)
    more = ["no term", *values, "<nor this", *values[:1]]
    cuts = np.linspace(0, rows, chunks + 1).astype(int)
    for kind in ("texts", "dictionary", "spare"):
        parts = []
        for lo, hi in pairwise(cuts.tolist()):
            part = pa.array(objects[lo:hi])
            if kind == "dictionary":
                part = part.dictionary_encode()
            elif kind == "spare":
                part = pa.DictionaryArray.from_arrays(pa.array(numbers[lo:hi] + 1), pa.array(more))
            parts.append(part)
        once = pa.array(["<http://s>"] * rows)
        found = encode_columns(once, pa.array(["<http://p>"] * rows), pa.chunked_array(parts), scope=SCOPE)
        assert found.objects.tolist() == plain.objects.tolist(), kind
        assert found.subjects.tolist() == plain.subjects.tolist()
        assert dict(zip(found.terms.ids.tolist(), found.terms.texts(), strict=True)) == dict(
            zip(plain.terms.ids.tolist(), plain.terms.texts(), strict=True)
        )


@pytest.mark.parametrize("kind", ["texts", "dictionary"])
@pytest.mark.parametrize("bad", ["<http://e/ >", None])
def test_the_first_bad_row_of_terms_that_repeat_is_named(kind: str, bad: str | None) -> None:
    rows = 2 * encoder.ROWS_MIN
    objects: list[str | None] = ["<http://e/a>", "<http://e/b>"] * (rows // 2)
    objects[1700], objects[1500], objects[1900] = "<nothing", bad, bad
    column = pa.array(objects)
    if kind == "dictionary":
        column = pa.DictionaryArray.from_arrays(
            pa.array([["<nothing", bad, "<http://e/a>", "<http://e/b>"].index(one) for one in objects]),
            pa.array(["<nothing", bad, "<http://e/a>", "<http://e/b>"]),
        )
    chunked = pa.chunked_array([column[:100], column[100:]])
    with pytest.raises(DataError, match="row 1500, column 'object'"):
        encode_columns(["<http://s>"] * rows, ["<http://p>"] * rows, chunked, scope=SCOPE)


def test_a_large_dictionary_of_few_rows_is_read_by_rows() -> None:
    values = [f"<http://e/{at}>" for at in range(100)]
    column = pa.DictionaryArray.from_arrays(pa.array([99, 3, 99]), pa.array(values))
    plain = [values[99], values[3], values[99]]
    found = encode_columns(column, ["<http://p>"] * 3, column, scope=SCOPE)
    assert found.objects.tolist() == encode_columns(plain, ["<http://p>"] * 3, plain, scope=SCOPE).objects.tolist()
