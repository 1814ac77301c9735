"""Ways in, and what of a stream joins the stored graph, one behaviour each."""

from __future__ import annotations

import io

import pytest
import rdflib
from rdflib.namespace import XSD

import wukongs
from tests.engine_helpers import EX, A, B, at, names, node, register_text, rows, subjects, windows


def test_timeless_tuples_join_the_stored_graph_and_timing_ones_do_not(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=[EX + "ga"], batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("stays", 50), at("goes", 60, predicate="ga")])
    engine.settle(timeout_s=60)
    assert subjects(engine) == []  # their stream batch is open
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["stays"]
    assert windows(query) == {100: ["goes", "stays"]}


def test_timing_true_stores_nothing(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100)
    stream.push([at("a", 50)])
    stream.advance(100_000)
    engine.settle(timeout_s=60)
    assert subjects(engine) == []


def test_into_names_the_graph_that_takes_the_tuples(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100, into=EX + "g")
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert subjects(engine) == []
    assert rows(engine.query("SELECT ?g ?s { GRAPH ?g { ?s ?p ?o } }")) == [("g", "a")]


def test_a_firing_reads_the_stored_graph_of_its_own_time(engine: wukongs.Engine) -> None:
    """Stored patterns and windows of one firing see one snapshot, also when both streams have moved on by then."""
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    one.advance(0)
    two.advance(0)
    query = engine.register(
        f"REGISTER QUERY q AS SELECT ?s FROM <urn:x-wukongs:default> FROM NAMED STREAM <{A}> [RANGE 100ms STEP 100ms] "
        "WHERE { ?s ?p ?o }"
    )
    one.push([at("a100", 100), at("a200", 200), at("a300", 300)])
    two.push([at("b150", 150), at("b250", 250)])
    two.advance(300)
    one.advance(300)
    engine.settle(timeout_s=60)
    assert windows(query) == {
        100: ["a100"],
        200: ["a100", "a200", "b150"],
        300: ["a100", "a200", "a300", "b150", "b250"],
    }


def test_a_load_is_seen_by_the_firings_after_it(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, timing=True, batch_ms=100)
    text = register_text("RANGE 100ms STEP 100ms").replace("WHERE", "FROM <urn:x-wukongs:default> WHERE")
    query = engine.register(text)
    stream.push([at("a", 100)])
    stream.advance(100)
    engine.load(io.BytesIO(b"<http://ex/loaded> <http://ex/p> <http://ex/o> .\n"), format="nt")
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["loaded"]}


def test_drop_stream_keeps_what_it_stored(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    stream.push([at("a", 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    engine.drop_stream(A)
    assert subjects(engine) == ["a"]
    with pytest.raises(wukongs.StreamError, match="streamA"):
        engine.register(register_text("RANGE 100ms STEP 100ms"))


def test_a_dropped_stream_holds_nobody_back(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    one.push([at("a", 50)])
    two.push([at("b", 50)])
    engine.drop_stream(B)
    one.advance(100)
    engine.settle(timeout_s=60)
    assert "a" in subjects(engine)


def test_a_stream_that_is_closed_before_it_began_holds_nobody_back(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    two.close()
    two.close()
    one.push([at("a", 50)])
    one.advance(100)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["a"]
    engine.drop_stream(B)
    again = engine.stream(B, batch_ms=100)
    again.push([at("b", 150)])
    one.advance(200)
    again.advance(200)
    engine.settle(timeout_s=60)
    assert subjects(engine) == ["a", "b"]


def test_push_takes_rdflib_terms(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    literal = rdflib.Literal("01", datatype=XSD.integer, normalize=False)
    stream.push([(rdflib.URIRef(EX + "s"), rdflib.URIRef(EX + "p"), literal, 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    ((term,),) = list(engine.query("SELECT ?o { ?s ?p ?o }"))
    assert (str(term), term.datatype) == ("01", XSD.integer)


@pytest.mark.parametrize(
    "text",
    [
        '"01"^^<http://www.w3.org/2001/XMLSchema#integer>',
        '"1.50"^^<http://www.w3.org/2001/XMLSchema#decimal>',
        '"+1e0"^^<http://www.w3.org/2001/XMLSchema#double>',
        '"2021-03-04T05:06:07.000+00:00"^^<http://www.w3.org/2001/XMLSchema#dateTime>',
        '"1"^^<http://www.w3.org/2001/XMLSchema#boolean>',
        '"no number"^^<http://www.w3.org/2001/XMLSchema#integer>',
        '"123456789012345678901234567890"^^<http://www.w3.org/2001/XMLSchema#integer>',
        '"say \\"é\\"\\n\\\\ \\u00e9"@en-GB',
        '""',
    ],
)
def test_a_lexical_form_comes_back_to_the_letter(engine: wukongs.Engine, text: str) -> None:
    from pyoxigraph import RdfFormat, parse

    (quad,) = list(parse(f"<http://ex/s> <http://ex/p> {text} .", format=RdfFormat.N_TRIPLES))
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms", select="?o"))
    stream.push([(node("s"), node("p"), text, 50)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    (window,) = list(query.results(timeout_s=0))
    for ((term,),) in (list(window), list(engine.query("SELECT ?o { ?s ?p ?o }"))):
        assert str(term) == quad.object.value
        assert (term.language or "") == (text.rpartition("@")[2] if quad.object.language else "")
        if term.datatype is not None:
            assert str(term.datatype) == quad.object.datatype.value


def test_different_lexical_forms_are_different_terms(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    forms = ['"1"', '"01"', '"+1"']
    stream.push([(node("s"), node("p"), f"{form}^^<{XSD.integer}>", 50) for form in forms])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert names(engine.query("SELECT ?o { ?s ?p ?o }")) == ["+1", "01", "1"]
    assert names(engine.query("SELECT ?o { ?s ?p ?o FILTER (?o = 1) }")) == ["+1", "01", "1"]
    assert rows(engine.query("SELECT ?s { ?s ?p 1 }")) == [("s",)]


def test_push_arrow(engine: wukongs.Engine) -> None:
    import pyarrow as pa

    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    columns = {
        "subject": [node("a"), node("b")],
        "predicate": [node("p"), node("p")],
        "object": ['"x"@en', node("o")],
        "timestamp_ms": pa.array([50, 150], pa.int64()),
    }
    stream.push_arrow(pa.table(columns))
    stream.advance(200)
    engine.settle(timeout_s=60)
    assert windows(query) == {100: ["a"], 200: ["b"]}


def test_a_blank_node_label_means_the_same_node_in_each_push_of_a_stream(engine: wukongs.Engine) -> None:
    one, two = engine.stream(A, batch_ms=100), engine.stream(B, batch_ms=100)
    one.push([("_:x", node("p"), node("a"), 50)])
    one.push([("_:x", node("q"), node("b"), 60)])
    two.push([("_:x", node("q"), node("c"), 50)])
    engine.load(io.BytesIO(b"_:x <http://ex/q> <http://ex/d> .\n"), format="nt")
    one.advance(100)
    two.advance(100)
    engine.settle(timeout_s=60)
    joined = engine.query(f"SELECT ?o ?v {{ ?x {node('p')} ?o . ?x {node('q')} ?v }}")
    assert rows(joined) == [("a", "b")]
    assert len(list(engine.query("SELECT DISTINCT ?x { ?x ?p ?o }"))) == 3


def test_timestamp_zero_belongs_to_the_stream_batch_that_ends_there(engine: wukongs.Engine) -> None:
    stream = engine.stream(A, batch_ms=100)
    query = engine.register(register_text("RANGE 100ms STEP 100ms"))
    stream.push([at("zero", 0), at("one", 1)])
    stream.advance(100)
    engine.settle(timeout_s=60)
    assert windows(query) == {0: ["zero"], 100: ["one"]}
