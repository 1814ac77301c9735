"""The results formats, byte for byte on small cases and read back by rdflib and pyoxigraph on random ones."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Sequence

import pyarrow
import pyoxigraph
import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st
from rdflib.query import Result as RdflibResult

from tests.unit.query.result_rows import ask, construct, select
from wukongs.csparql.terms import XSD
from wukongs.errors import DataError, SettingsError
from wukongs.query.output.results import Result
from wukongs.query.output.serialize import arrow_stream, serialize
from wukongs.query.output.table_cells import declared_prefixes
from wukongs.query.terms.rdf_terms import canonical_of, to_ntriples

INTEGER = f"{XSD}integer"
ROWS: list[tuple[str | None, str | None]] = [
    ("<http://ex/a&b>", f'"01"^^<{INTEGER}>'),
    ("_:b0", None),
    ('"a "q", <x>\t\\\n"', '"é\r"@en-gb'),
    (None, None),
]


def test_json() -> None:
    assert json.loads(serialize(select("x y", ROWS), "json")) == {
        "head": {"vars": ["x", "y"]},
        "results": {
            "bindings": [
                {
                    "x": {"type": "uri", "value": "http://ex/a&b"},
                    "y": {"type": "literal", "value": "01", "datatype": INTEGER},
                },
                {"x": {"type": "bnode", "value": "b0"}},
                {
                    "x": {"type": "literal", "value": 'a "q", <x>\t\\\n'},
                    "y": {"type": "literal", "value": "é\r", "xml:lang": "en-GB"},
                },
                {},
            ]
        },
    }
    assert json.loads(serialize(ask(False), "json")) == {"head": {}, "boolean": False}
    assert json.loads(serialize(select("x", []), "json")) == {"head": {"vars": ["x"]}, "results": {"bindings": []}}


def test_xml() -> None:
    assert serialize(select("x y", ROWS), "xml") == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<sparql xmlns="http://www.w3.org/2005/sparql-results#">\n'
        '<head><variable name="x"/><variable name="y"/></head>\n'
        "<results>\n"
        '<result><binding name="x"><uri>http://ex/a&amp;b</uri></binding>'
        f'<binding name="y"><literal datatype="{INTEGER}">01</literal></binding></result>\n'
        '<result><binding name="x"><bnode>b0</bnode></binding></result>\n'
        '<result><binding name="x"><literal>a &quot;q&quot;, &lt;x&gt;\t\\\n</literal></binding>'
        '<binding name="y"><literal xml:lang="en-GB">é&#13;</literal></binding></result>\n'
        "<result></result>\n"
        "</results>\n"
        "</sparql>\n"
    )
    assert "<boolean>true</boolean>" in serialize(ask(True), "xml")


def test_csv_quotes_by_its_rules_and_ends_lines_with_crlf() -> None:
    assert serialize(select("x y", ROWS), "csv") == (
        'x,y\r\nhttp://ex/a&b,01\r\n_:b0,\r\n"a ""q"", <x>\t\\\n","é\r"\r\n,\r\n'
    )
    assert serialize(select("x", [('"a,b"',), ('""',)]), "csv") == 'x\r\n"a,b"\r\n\r\n'
    assert serialize(ask(True), "csv") == "true\r\n"


def test_tsv_escapes_terms() -> None:
    assert serialize(select("x y", ROWS), "tsv") == (
        f'?x\t?y\n<http://ex/a&b>\t"01"^^<{INTEGER}>\n_:b0\t\n"a \\"q\\", <x>\\t\\\\\\n"\t"é\\r"@en-GB\n\t\n'
    )
    assert serialize(ask(False), "tsv") == "false\n"


TRIPLES = [
    ("<http://ex/a>", "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>", "<http://ex/T>"),
    ("<http://ex/a>", "<http://ex/p>", f'"01"^^<{INTEGER}>'),
    ("<http://ex/a>", "<http://ex/p>", '"two\nlines"'),
    ("_:b0", "<http://ex/p/q>", "<http://other/>"),
]


def test_ntriples() -> None:
    assert serialize(construct(TRIPLES[1:]), "nt") == (
        f'<http://ex/a> <http://ex/p> "01"^^<{INTEGER}> .\n'
        '<http://ex/a> <http://ex/p> "two\\nlines" .\n'
        "_:b0 <http://ex/p/q> <http://other/> .\n"
    )
    assert serialize(construct([]), "nt") == ""


def test_turtle() -> None:
    assert serialize(construct(TRIPLES), "ttl", {"ex": "http://ex/", "xsd": XSD}) == (
        f"@prefix ex: <http://ex/> .\n@prefix xsd: <{XSD}> .\n"
        '\nex:a a ex:T ;\n    ex:p "01"^^xsd:integer, "two\\nlines" .\n'
        "\n_:b0 <http://ex/p/q> <http://other/> .\n"
    )
    assert serialize(construct(TRIPLES[3:]), "ttl") == "_:b0 <http://ex/p/q> <http://other/> .\n"


@pytest.mark.parametrize("prefixes", [{}, {"": "http://ex/", "xsd": XSD}])
def test_turtle_is_read_back_by_both_libraries(prefixes: dict[str, str]) -> None:
    text = serialize(construct(TRIPLES), "ttl", prefixes)
    read = {
        tuple(_oxigraph_term(term) for term in (triple.subject, triple.predicate, triple.object))
        for triple in pyoxigraph.parse(text, format=pyoxigraph.RdfFormat.TURTLE)
    }
    # A parser may give a blank node another label.
    assert {row[1:] for row in read} == {row[1:] for row in TRIPLES}
    assert len(rdflib.Graph().parse(data=text, format="turtle")) == len(TRIPLES)


# --- read back by others ----------------------------------------------------------------------------------------------

_XML_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from(
    "\t\n\r\"',<>&\\"
)
_LEXICAL = st.text(_XML_CHARACTERS, max_size=8)
_TERMS = (
    st.sampled_from(["<http://ex/a>", "<http://ex/é?x=1&y=2>"])
    | _LEXICAL.map(lambda lexical: f'"{lexical}"')
    | st.builds(lambda lexical, tag: f'"{lexical}"@{tag}', _LEXICAL, st.sampled_from(["en", "de-at"]))
    | st.builds(lambda lexical, name: f'"{lexical}"^^<{name}>', _LEXICAL, st.sampled_from([INTEGER, "http://ex/type"]))
)
_TABLES = st.lists(st.tuples(st.none() | _TERMS, st.none() | _TERMS), max_size=5)


def _oxigraph_term(term: object) -> str:
    if isinstance(term, pyoxigraph.Literal):
        if term.language:
            return f'"{term.value}"@{term.language}'
        datatype = term.datatype.value
        return f'"{term.value}"' if datatype == f"{XSD}string" else f'"{term.value}"^^<{datatype}>'
    assert isinstance(term, pyoxigraph.NamedNode | pyoxigraph.BlankNode), term
    return str(term)


def _oxigraph_rows(text: str, format: pyoxigraph.QueryResultsFormat) -> Counter[tuple[str | None, ...]]:
    solutions = pyoxigraph.parse_query_results(text, format=format)
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    return Counter(tuple(None if term is None else _oxigraph_term(term) for term in row) for row in solutions)


@pytest.mark.parametrize("format", ["json", "xml", "tsv"])
@given(rows=_TABLES)
def test_pyoxigraph_reads_the_same_rows(format: str, rows: Sequence[tuple[str | None, str | None]]) -> None:
    formats = {
        "json": pyoxigraph.QueryResultsFormat.JSON,
        "xml": pyoxigraph.QueryResultsFormat.XML,
        "tsv": pyoxigraph.QueryResultsFormat.TSV,
    }
    if format == "xml":
        # Its XML reader drops blanks at both ends of a literal; rdflib's, below, keeps them.
        rows = [tuple(text and _without_outer_blanks(text) for text in row) for row in rows]  # type: ignore[misc]
    assert _oxigraph_rows(serialize(select("x y", rows), format), formats[format]) == Counter(rows)


def _without_outer_blanks(text: str) -> str:
    if text.startswith("<"):
        return text
    lexical, tail = text[1 : text.rindex('"')], text[text.rindex('"') :]
    return f'"{lexical.strip()}{tail}'


@pytest.mark.parametrize("format", ["json", "xml"])
@given(rows=_TABLES)
def test_rdflib_reads_the_same_rows(format: str, rows: Sequence[tuple[str | None, str | None]]) -> None:
    text = serialize(select("x y", rows), format)
    read = RdflibResult.parse(io.BytesIO(text.encode()), format=format)
    assert read.vars is not None
    assert [str(name) for name in read.vars] == ["x", "y"]
    found = Counter(
        tuple(None if (term := row.get(name)) is None else canonical_of(term) for name in read.vars)
        for row in read.bindings
    )
    # rdflib's readers normalise integers: the lexical forms are compared by pyoxigraph's reader above.
    assert found == Counter(tuple(_as_rdflib_reads(text) for text in row) for row in rows)


def _as_rdflib_reads(text: str | None) -> str | None:
    if text is None or not text.endswith(f"^^<{INTEGER}>"):
        return text
    return canonical_of(rdflib.Literal(text[1 : text.rindex('"')], datatype=rdflib.XSD.integer))


@given(rows=_TABLES)
def test_csv_is_read_back_as_strings(rows: Sequence[tuple[str | None, str | None]]) -> None:
    import csv

    text = serialize(select("x y", rows), "csv")
    expected = [["" if term is None else _plain(term) for term in row] for row in rows]
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["x", "y"], *expected]


def _plain(text: str) -> str:
    return text[1:-1] if text.startswith("<") else text[1 : text.rindex('"')]


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("format", ["json", "xml", "tsv"])
def test_the_answer_of_an_ask_is_read_back(format: str, answer: bool) -> None:
    formats = {
        "json": pyoxigraph.QueryResultsFormat.JSON,
        "xml": pyoxigraph.QueryResultsFormat.XML,
        "tsv": pyoxigraph.QueryResultsFormat.TSV,
    }
    read = pyoxigraph.parse_query_results(serialize(ask(answer), format), format=formats[format])
    assert bool(read) is answer


@given(st.lists(st.tuples(st.sampled_from(["<http://ex/a>", "<http://ex/b>"]), _TERMS), max_size=5))
def test_ntriples_and_turtle_are_read_back_to_the_letter(pairs: Sequence[tuple[str, str]]) -> None:
    triples = [(subject, "<http://ex/p>", term) for subject, term in pairs]
    for format, syntax in (("nt", pyoxigraph.RdfFormat.N_TRIPLES), ("ttl", pyoxigraph.RdfFormat.TURTLE)):
        text = serialize(construct(triples), format, {"ex": "http://ex/"})
        read = {
            (_oxigraph_term(triple.subject), _oxigraph_term(triple.object))
            for triple in pyoxigraph.parse(text, format=syntax)
        }
        assert read == set(pairs)


def test_control_characters_pass_through_all_formats_that_can_hold_them() -> None:
    term = '"\x00\x01\x1f\x7f\ufffe"'
    result = select("x", [(term,)])
    assert json.loads(serialize(result, "json"))["results"]["bindings"][0]["x"]["value"] == term[1:-1]
    assert serialize(result, "tsv") == f"?x\n{to_ntriples(term)}\n"
    assert to_ntriples(term) == '"\\u0000\\u0001\\u001F\\u007F\ufffe"'


@pytest.mark.parametrize(("character", "name"), [("\x01", "U+0001"), ("\uffff", "U+FFFF"), ("\x0b", "U+000B")])
def test_a_character_that_xml_cannot_hold_is_refused(character: str, name: str) -> None:
    with pytest.raises(DataError) as caught:
        serialize(select("x", [(f'"a{character}"',)]), "xml")
    assert str(caught.value) == f"the result holds the character {name}, which XML cannot hold: choose json, csv or tsv"


def test_arrow_stream_is_read_back() -> None:
    result = select("x y", ROWS)
    assert pyarrow.ipc.open_stream(arrow_stream(result)).read_all() == result.arrow()


# --- tables and refusals ----------------------------------------------------------------------------------------------


def test_table_shortens_iris_and_aligns() -> None:
    rows = [("<http://ex/a>", f'"1"^^<{INTEGER}>'), ("<http://ex/long/b>", None), ('"日本"', '"\x1b[31m\n\u2028"')]
    assert serialize(select("x y", rows), "table", {"ex": "http://ex/", "xsd": XSD}) == (
        "?x                  ?y\n"
        "──────────────────  ────────────────────\n"
        "ex:a                1\n"
        "<http://ex/long/b>\n"
        '日本                "\\u001B[31m\\n\\u2028"\n'
    )


def test_a_column_of_numbers_is_aligned_at_its_right() -> None:
    rows = [(f'"{number}"^^<{INTEGER}>', f'"{number}"') for number in (5, 1000)]
    text = serialize(select("n s", [*rows, (None, None)]), "table")
    assert text == '  ?n  ?s\n────  ──────\n   5  "5"\n1000  "1000"\n\n'


@pytest.mark.parametrize(
    ("term", "cell"),
    [
        (f'"-5"^^<{INTEGER}>', "-5"),
        (f'"007"^^<{XSD}unsignedInt>', "007"),
        (f'"five"^^<{INTEGER}>', '"five"^^xsd:integer'),
        (f'"2.50"^^<{XSD}decimal>', "2.50"),
        (f'"1e6"^^<{XSD}double>', "1e6"),
        (f'"-INF"^^<{XSD}double>', "-INF"),
        (f'"1e6"^^<{XSD}decimal>', '"1e6"^^xsd:decimal'),
        (f'"true"^^<{XSD}boolean>', "true"),
        (f'"1"^^<{XSD}boolean>', '"1"^^xsd:boolean'),
        (f'"2014-08-01T00:00:00.5Z"^^<{XSD}dateTime>', "2014-08-01T00:00:00.5Z"),
        (f'"2014-08-01"^^<{XSD}date>', "2014-08-01"),
        (f'"P1D"^^<{XSD}duration>', '"P1D"^^xsd:duration'),
        ('"1"^^<http://ex/unit>', '"1"^^ex:unit'),
        ('"some words, and "more""', 'some words, and "more"'),
        ('"chat"@fr', '"chat"@fr'),
        ('""', '""'),
        ('" a"', '" a"'),
        ('"5"', '"5"'),
        ('"true"', '"true"'),
        ('"2014-08-01"', '"2014-08-01"'),
        ('"<http://ex/a>"', '"<http://ex/a>"'),
        ('"_:b"', '"_:b"'),
        ('"ex:a"', '"ex:a"'),
        ('"note: a"', "note: a"),
        ("<http://ex/a.1>", "ex:a.1"),
        ("<http://ex/1>", "ex:1"),
        ("<http://ex/a/b>", "<http://ex/a/b>"),
        ("<http://ex/>", "<http://ex/>"),
        (f"<{XSD}integer>", "xsd:integer"),
        ("<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>", "rdf:type"),
        ("<http://www.w3.org/2000/01/rdf-schema#label>", "name:label"),
        ("<http://www.w3.org/2002/07/owl#sameAs>", "<http://www.w3.org/2002/07/owl#sameAs>"),
        ("_:b0", "_:b0"),
        (f'(<http://ex/a> <http://ex/p> "1"^^<{INTEGER}>)', "<<( ex:a ex:p 1 )>>"),
        ('(<http://ex/a> <http://ex/p> "a b")', '<<( ex:a ex:p "a b" )>>'),
    ],
)
def test_terms_as_people_read_them(term: str, cell: str) -> None:
    """A term keeps the marks that tell it from others. `owl` is the query's own; rdfs has two names."""
    text = "prefix ex:<http://ex/> PREFIX owl: <http://birds/> prefix\nname: <http://www.w3.org/2000/01/rdf-schema#>"
    written = serialize(select("x", [(term,)]), "table", declared_prefixes(f"{text} ASK {{}}"))
    assert written.splitlines()[2] == cell


def test_table_of_a_graph_and_of_an_ask() -> None:
    assert serialize(ask(True), "table") == "true\n"
    lines = serialize(construct(TRIPLES[3:]), "table").splitlines()
    assert lines[0].split() == ["subject", "predicate", "object"]
    assert lines[2].split() == ["_:b0", "<http://ex/p/q>", "<http://other/>"]


def test_table_is_cut_to_the_width_it_is_given_only() -> None:
    result = select("x y", [(f'"{"a" * 100}"', '"short"')])
    assert max(map(len, serialize(result, "table").splitlines())) > 100
    lines = serialize(result, "table", None, 40).splitlines()
    assert max(map(len, lines)) == 40
    assert lines[2] == f"{'a' * 32}…  short"


@pytest.mark.parametrize(
    ("result", "format", "message"),
    [
        (select("x", []), "yaml", "format = 'yaml': expected one of table, json, xml, csv, tsv, ttl, nt, arrow"),
        (
            select("x", []),
            "ttl",
            "format = 'ttl': expected one of table, json, xml, csv, tsv, arrow for the result of a select query",
        ),
        (
            ask(True),
            "nt",
            "format = 'nt': expected one of table, json, xml, csv, tsv, arrow for the result of an ask query",
        ),
        (
            construct([]),
            "json",
            "format = 'json': expected one of table, ttl, nt, arrow for the result of a construct query",
        ),
    ],
)
def test_a_format_that_does_not_go_with_the_result_is_refused(result: Result, format: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        result.serialize(format)
    assert str(caught.value) == message
