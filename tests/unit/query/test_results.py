from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas
import pyarrow
import pytest
import rdflib
from rdflib import BNode, Literal, URIRef

from tests.unit.query.result_rows import ListReader, ask, columns_of, construct, select
from wukongs.csparql.terms import XSD
from wukongs.query.output.results import Result, WindowResult
from wukongs.query.terms.decoding import terms_of_ids
from wukongs.query.terms.rdf_terms import canonical_of, from_ntriples, terms_of, to_ntriples
from wukongs.store.dtypes import UNBOUND

ROWS: list[tuple[str | None, str | None]] = [
    ("<http://ex/a>", f'"01"^^<{XSD}integer>'),
    ("_:s0123456789abcdefxb", None),
    ("<http://ex/a>", '"line\none "two""@en'),
    (None, None),
]


def test_rows_are_rdflib_terms_with_their_lexical_forms() -> None:
    result = select("who what", ROWS)
    assert result.kind == "select"
    assert result.vars == ["who", "what"]
    assert result.snapshot == 7
    assert result.boolean is None
    assert len(result) == 4
    assert list(result) == [
        (URIRef("http://ex/a"), Literal("01", datatype=rdflib.XSD.integer, normalize=False)),
        (BNode("s0123456789abcdefxb"), None),
        (URIRef("http://ex/a"), Literal('line\none "two"', lang="en")),
        (None, None),
    ]
    assert str(next(iter(result))[1]) == "01"
    assert result.texts() == ROWS


def test_nothing_is_decoded_until_it_is_asked_and_each_id_of_a_chunk_once() -> None:
    reader = ListReader(["<http://ex/a>", "<http://ex/b>", "<http://ex/c>"])
    result = Result("select", ("x", "y"), (np.array([2, 0, 2]), np.array([0, UNBOUND, 0])), reader, 1)
    assert len(result) == 3
    assert repr(result)
    assert reader.asked == []
    first, _, third = list(result)
    assert sorted(reader.asked) == [0, 2]
    assert first[0] is third[0]
    result.serialize("json")
    assert sorted(reader.asked) == [0, 0, 2, 2]


def test_the_first_rows_of_a_long_result_do_not_decode_the_rest() -> None:
    reader = ListReader([f"<http://ex/{number}>" for number in range(100_000)])
    result = Result("select", ("x",), (np.arange(100_000),), reader, 1)
    assert next(iter(result)) == (URIRef("http://ex/0"),)
    assert len(reader.asked) < 10_000
    reader.asked.clear()
    assert result.texts() == [(text,) for text in reader.terms]
    assert len(reader.asked) == 100_000


@pytest.mark.parametrize("odd", ["http://ex/plain", "a><b", ">", "<", "", "é\U0001f600"])
@pytest.mark.parametrize("place", [0, 39, 79])
def test_terms_are_the_same_in_runs_of_iris_as_one_by_one(odd: str, place: int) -> None:
    iris = [f"<http://ex/{number}>" for number in range(80)]
    iris[place] = f"<{odd}>"
    literals = [f'"{number}><"' for number in range(20)]
    for texts in (iris, literals, [*iris, *literals], [*literals, *iris, *literals, "_:b"], [*iris, '"é"', *iris[:5]]):
        made = terms_of_ids(np.arange(len(texts)), ListReader(texts))
        assert list(map(canonical_of, made)) == texts
        assert list(map(type, made)) == list(map(type, terms_of(texts)))
        rows = list(select("x", [(text,) for text in texts]))
        assert rows == [(term,) for term in made]
    mixed = [term for pair in zip(iris, literals * 4, strict=True) for term in pair]
    assert list(map(canonical_of, terms_of_ids(np.arange(len(mixed)), ListReader(mixed)))) == mixed


def test_truth_is_the_boolean_of_an_ask_and_whether_others_have_a_row() -> None:
    assert ask(True)
    assert not ask(False)
    assert ask(False).boolean is False
    assert select("x", [("<http://ex/a>",)])
    assert not select("x", [])
    assert not construct([])


def test_a_select_of_no_variable_counts_its_rows() -> None:
    assert list(select("", [(), ()])) == [(), ()]


GRAPH = [
    ("<http://ex/a>", "<http://ex/p>", f'"01"^^<{XSD}integer>'),
    ("_:s0123456789abcdefxb", "<http://ex/p>", "<http://ex/a>"),
    ("<http://ex/a>", "<http://ex/p>", f'"01"^^<{XSD}integer>'),
]


def test_a_construct_is_a_graph_that_holds_each_triple_once() -> None:
    result = construct(GRAPH)
    assert len(result) == 2
    graph = result.graph()
    assert isinstance(graph, rdflib.Graph)
    assert set(graph) == {
        (URIRef("http://ex/a"), URIRef("http://ex/p"), Literal("01", datatype=rdflib.XSD.integer, normalize=False)),
        (BNode("s0123456789abcdefxb"), URIRef("http://ex/p"), URIRef("http://ex/a")),
    }
    assert {str(o) for o in graph.objects(URIRef("http://ex/a"))} == {"01"}
    assert set(result) == set(graph)
    assert result.triples() == GRAPH[:2]


@pytest.mark.parametrize(("result", "kind"), [(select("x", []), "a select"), (ask(True), "an ask")])
def test_only_a_construct_has_a_graph(result: Result, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^{kind} result has no graph; only CONSTRUCT and DESCRIBE make one"):
        result.graph()


def test_arrow_holds_ntriples_and_nulls() -> None:
    table = select("who what", ROWS).arrow()
    assert table.schema == pyarrow.schema([("who", pyarrow.string()), ("what", pyarrow.string())])
    assert table.to_pydict() == {
        "who": ["<http://ex/a>", "_:s0123456789abcdefxb", "<http://ex/a>", None],
        "what": [f'"01"^^<{XSD}integer>', None, r'"line\none \"two\""@en', None],
    }
    assert [from_ntriples(text) for text in table["what"].to_pylist() if text] == [b for _, b in ROWS if b]


def test_arrow_of_a_graph_and_of_an_ask() -> None:
    table = construct(GRAPH).arrow()
    assert table.column_names == ["subject", "predicate", "object"]
    assert table.num_rows == 2
    assert ask(True).arrow().to_pydict() == {"ask": [True]}
    assert select("a b", []).arrow().schema.names == ["a", "b"]


ODD = [
    '(<http://ex/a> <http://ex/p> "x\ny")',
    '"right"@ar--rtl',
    '"tab\tand \\ and "',
    "<http://ex/\u00e9>",
    '"\U0001f600"',
]


@pytest.mark.parametrize("rows", [ROWS, [(one, two) for one in ODD for two in (None, "<http://ex/a>")], []])
def test_arrow_dictionaries_hold_each_term_once(rows: list[tuple[str | None, str | None]]) -> None:
    result = select("who what", rows)
    table = result.arrow(dictionary=True)
    assert [field.type for field in table.schema] == [pyarrow.dictionary(pyarrow.int32(), pyarrow.string())] * 2
    texts = [[None if cell is None else to_ntriples(cell) for cell in row] for row in rows]
    assert table.to_pydict() == {"who": [one for one, _ in texts], "what": [two for _, two in texts]}
    assert table.to_pydict() == result.arrow().to_pydict()
    if rows:
        dictionary = table.column(0).chunk(0).dictionary
        assert sorted(dictionary.to_pylist()) == sorted({cell for row in texts for cell in row if cell is not None})
        assert table.column(1).chunk(0).dictionary.equals(dictionary)


def test_a_result_is_an_arrow_stream() -> None:
    result = select("who what", ROWS)
    assert pyarrow.table(result).equals(result.arrow())
    assert pyarrow.table(ask(True)).to_pydict() == {"ask": [True]}
    asked = pyarrow.schema([("who", pyarrow.large_string()), ("what", pyarrow.large_string())])
    assert pyarrow.RecordBatchReader.from_stream(result, asked).schema == asked


def test_pandas_holds_python_values() -> None:
    rows = [
        ("<http://ex/a>", f'"1"^^<{XSD}integer>', f'"9007199254740993"^^<{XSD}integer>', f'"1.50"^^<{XSD}decimal>'),
        ('"text"@en', f'"2"^^<{XSD}integer>', None, f'"2020-01-02"^^<{XSD}date>'),
    ]
    frame = select("a b c d", rows).to_pandas()
    assert list(frame.columns) == ["a", "b", "c", "d"]
    assert list(frame["a"]) == ["http://ex/a", "text"]
    assert frame["b"].dtype == np.int64
    assert list(frame["b"]) == [1, 2]
    # A column with a gap stays exact: a float could not hold this integer.
    assert frame["c"].iloc[0] == 9007199254740993
    assert type(frame["c"].iloc[0]) is int
    assert frame["c"].iloc[1] is None
    assert list(frame["d"]) == [Decimal("1.50"), datetime.date(2020, 1, 2)]


def test_pandas_of_the_other_shapes() -> None:
    assert list(construct(GRAPH).to_pandas().columns) == ["subject", "predicate", "object"]
    assert ask(False).to_pandas().to_dict("list") == {"ask": [False]}
    assert select("a", []).to_pandas().shape == (0, 1)
    assert select("", [(), ()]).to_pandas().shape == (2, 0)
    assert isinstance(select("a b", []).to_pandas(), pandas.DataFrame)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (select("who what", ROWS), "<Result select ?who ?what: 4 rows, snapshot 7>"),
        (select("who", [("<http://ex/a>",)]), "<Result select ?who: 1 row, snapshot 7>"),
        (ask(True), "<Result ask: true, snapshot 7>"),
        (construct(GRAPH), "<Result construct: 2 triples, snapshot 7>"),
    ],
)
def test_repr(result: Result, text: str) -> None:
    assert repr(result) == text


def test_a_window_result_says_which_window_it_is() -> None:
    reader, columns = columns_of([("<http://ex/a>",)], 1)
    windows = {"http://ex/s": (0, 10_000), "http://ex/t": (5_000, 10_000)}
    window = WindowResult(
        "select",
        ("x",),
        columns,
        reader,
        12,
        query="Q_C",
        start_ms=0,
        end_ms=10_000,
        windows=windows,
        partial=True,
        latency_us=41.5,
    )
    assert (window.query, window.start_ms, window.end_ms, window.partial) == ("Q_C", 0, 10_000, True)
    assert window.windows == windows
    assert window.latency_us == 41.5
    assert list(window) == [(URIRef("http://ex/a"),)]
    assert repr(window) == "<WindowResult Q_C (0, 10000] ms, partial, select ?x: 1 row, snapshot 12>"
