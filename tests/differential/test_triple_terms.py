"""Queries of SPARQL 1.2 over random data with triple terms and base directions: our rows beside pyoxigraph's.

pyoxigraph evaluates SPARQL 1.2 and shares no code with our parser of queries, our functions and our operators. (Both
read Turtle with its parser; tests/unit/store/test_triple_terms.py looks at what we make of that.)
"""

from __future__ import annotations

import io
import random
from contextlib import suppress

import pyoxigraph as ox
import pytest

import wukongs
from tests.oracles.compare import cell, same_graph, same_rows
from tests.oracles.rdf import Triple
from tests.oracles.triple_terms import spread_graph, spread_row
from tests.oracles.values import Undefined
from tests.oracles.w3c import Rows, read_result

pytestmark = pytest.mark.nojit

PREFIX = "PREFIX : <http://e/>\n"
PLAIN = (":a", ":b", ":c", "_:n", "_:m")
DECIMAL = '"1"^^<http://www.w3.org/2001/XMLSchema#decimal>'  # pyoxigraph's store keeps no other form of it
LITERALS = ("1", "2", DECIMAL, '"x"', '"x"@en', '"x"@en--ltr', '"x"@en--rtl', '"y"@ar--rtl')


def random_object(rng: random.Random, depth: int = 0) -> str:
    draw = rng.random()
    if draw < 0.3 and depth < 3:
        return f"<<( {rng.choice(PLAIN)} {rng.choice((':p', ':q'))} {random_object(rng, depth + 1)} )>>"
    return rng.choice(LITERALS if draw < 0.55 else PLAIN)


def random_data(seed: int) -> str:
    rng = random.Random(seed)
    lines = []
    for _ in range(rng.randrange(25)):
        triple = f"{rng.choice(PLAIN)} {rng.choice((':p', ':q', ':r'))} {random_object(rng)}"
        draw = rng.random()
        if draw < 0.2:
            triple += " {| :r 1 |}"
        elif draw < 0.3:
            triple += " ~ :a ~ _:n {| :q :b ; :p <<( :a :p 1 )>> |}"
        elif draw < 0.4:
            triple = f"<< {triple} ~ :c >> :q {random_object(rng)}"
        lines.append(triple + " .")
    return PREFIX + "\n".join(lines)


PATTERNS = (
    "?s ?p <<( ?x ?y ?z )>>",
    "?s ?p <<( ?s ?y ?z )>>",
    "?s ?p <<( ?x :p ?x )>>",
    "?s :q <<( :a ?y ?z )>>",
    "?s ?p <<( :a :p 1 )>>",
    "?s ?p <<( ?x ?y <<( ?z ?v ?w )>> )>>",
    "?s ?p <<( ?x ?y <<( ?x ?y ?w )>> )>>",
    "?s ?p <<( ?x ?y [] )>> . ?x ?p ?o",
    "?s ?p ?o . ?r ?q <<( ?s ?p ?o )>>",
    "?s ?p ?o ~ ?r",
    "?s ?p ?o {| ?q ?x |}",
    "?s ?p ?o ~ ?r {| ?q ?x |} ~ :a",
    "?s :p ?o {| :r ?x |} {| :q ?y |}",
    "<< ?s ?p ?o >> ?q ?x",
    ":a ?p ?o {| ?q ?x |}",
    "?s :p ?o {| :r 1 |} FILTER(?s != :b)",
    "?s ?p ?o {| ?q ?x |} FILTER(sameTerm(?x, ?o) || ?p = :q)",
    "?s ?p ?o {| ?q ?x |} . ?x ?y ?z FILTER(?x != ?s)",
    "?s ?p ?o . ?r ?q <<( ?s ?p <<( ?s ?p ?o )>> )>>",
    "VALUES (?s ?o) { (:a UNDEF) (UNDEF :b) (:b 1) (UNDEF UNDEF) } ?s ?p ?o {| ?q ?x |}",
    "VALUES (?s ?p ?o) { (:a :p 1) (:b UNDEF 1) } << ?s ?p ?o >> ?q ?x",
    "OPTIONAL { :a :p ?o } OPTIONAL { :b :q ?s } << ?s ?p ?o >> ?q ?x",
    "?s ?p ?o OPTIONAL { ?s ?p ?o {| ?q ?x |} FILTER(?x != ?o) }",
    "?s ?p ?o OPTIONAL { ?s :p ?y } { << ?s ?p ?o >> ?q ?x } UNION { ?x ?q <<( ?s ?p ?y )>> }",
    "?s ?p ?o FILTER EXISTS { << ?s ?p ?o >> ?q ?x FILTER(?x != ?o) }",
    "?s ?p ?o FILTER EXISTS { ?s ?p ?o {| ?q ?x |} }",
    "{ SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o {| ?q ?x |} } GROUP BY ?s } ?s ?y ?z",
    "<< ?s ?p ?o ~ ?r >> :r ?x . ?s ?y ?z",
    "?s ?p << ?x ?y ?z >>",
    "?s (:p|:q) <<( ?x ?y ?z )>>",
    "?s :q* <<( ?x ?y ?z )>>",
    "?s ?p ?o OPTIONAL { ?o ?x ?y . ?r ?z <<( ?o ?x ?y )>> }",
    "?s ?p ?o FILTER NOT EXISTS { ?r ?q <<( ?s ?p ?o )>> }",
    "?s ?p ?o MINUS { ?x ?q <<( ?s ?p ?o )>> }",
    "{ ?s :p <<( ?x ?y ?z )>> } UNION { ?s :q <<( ?z ?y ?x )>> }",
    "{ ?s :p ?y } UNION { ?x :q ?s } ?a ?q <<( ?s :p ?y )>>",
    "?s ?p ?t FILTER(isTriple(?t)) BIND(SUBJECT(?t) AS ?x) BIND(PREDICATE(?t) AS ?y) BIND(OBJECT(?t) AS ?z)",
    "?s ?p ?o BIND(TRIPLE(?s, ?p, ?o) AS ?t) BIND(<<( ?s :p <<( :a :b 1 )>> )>> AS ?u)",
    "?s ?p ?o BIND(TRIPLE(?o, ?p, ?s) AS ?t)",
    "?s :p ?o . ?x :q ?o2 FILTER(?o = ?o2)",
    "?s :p ?o . ?x :q ?o2 FILTER(?o != ?o2)",
    "?s :p ?o . ?x :q ?o2 FILTER(sameTerm(?o, ?o2))",
    "?s ?p ?o VALUES ?o { <<( :a :p 1 )>> <<( :b :q :a )>> 1 'x'@en--ltr }",
    "?s ?p ?o FILTER(?o IN (<<( :a :p 1.0 )>>, 2))",
    "?s ?p ?o BIND(LANG(?o) AS ?x) BIND(LANGDIR(?o) AS ?y) BIND(DATATYPE(?o) AS ?z) BIND(hasLANGDIR(?o) AS ?w)",
    "?s ?p ?o BIND(hasLANG(?o) AS ?x) BIND(STRLANGDIR(STR(?o), 'en', 'rtl') AS ?y) BIND(isLITERAL(?o) AS ?z)",
    "?s ?p ?o BIND(isIRI(?o) AS ?x) BIND(isBLANK(?o) AS ?y) BIND(isNUMERIC(?o) AS ?z)",
)


def both(data: str) -> tuple[wukongs.Engine, ox.Store]:
    engine, store = wukongs.Engine(), ox.Store()
    engine.load(io.BytesIO(data.encode()), format="ttl")
    store.load(data.encode(), format=ox.RdfFormat.TURTLE)
    return engine, store


@pytest.mark.parametrize("seed", range(4))
def test_rows(seed: int) -> None:
    engine, store = both(random_data(seed))
    with engine:
        for pattern in PATTERNS:
            text = f"{PREFIX}SELECT * {{ {pattern} }}"
            theirs = store.query(text)
            assert isinstance(theirs, ox.QuerySolutions)
            names = tuple(variable.value for variable in theirs.variables)
            ours = engine.query(text).serialize("json")
            assert isinstance(ours, str)
            read = read_result(ours.encode(), "srj", names)
            assert isinstance(read, Rows)
            made = [tuple(cell(term, True) for term in row) for row in read.rows]
            expected = [tuple(cell(term, True) for term in spread_row(row[name] for name in names)) for row in theirs]
            with suppress(Undefined):  # too many blank nodes that look alike
                assert same_rows(made, expected), f"{text}\n{made}\ninstead of\n{expected}"


@pytest.mark.parametrize(
    ("pattern", "condition"),
    [
        ("?s ?p ?o . ?r ?q <<( ?o ?p ?s )>>", "isIRI(?o) || isBLANK(?o)"),
        ("?s ?p ?o . ?r ?q <<( ?s ?o ?p )>>", "isIRI(?o)"),
        ("VALUES (?s ?p ?o) { (1 :p :a) (:a 1 1) (:a :p 1) } ?r ?q <<( ?s ?p ?o )>>", "isIRI(?s) && isIRI(?p)"),
    ],
)
def test_what_is_no_triple_of_rdf_has_no_triple_term(pattern: str, condition: str) -> None:
    """pyoxigraph ends such a query with an error."""
    engine, _ = both(random_data(0) + "\n:r :q <<( :a :p 1 )>> , <<( :b :p :a )>> . :a :p :b .")
    with engine:
        rows = [engine.query(f"{PREFIX}SELECT * {{ {pattern} {also} }}") for also in ("", f"FILTER({condition})")]
        assert sorted(map(str, rows[0])) == sorted(map(str, rows[1]))
        assert len(rows[0]) > 0 or "?o ?p" in pattern.split("<<(")[1].replace("?s ?o ?p", "?o ?p")


TEMPLATES = (
    ("?s :made <<( ?s ?p ?o )>>", "?s ?p ?o"),
    ("?s ?p ?o {| :by :me |}", "?s ?p ?o"),
    ("?s ?p ?o ~ _:r ~ ?s {| :by <<( ?s :p 1 )>> |}", "?s ?p ?o FILTER(isIRI(?s))"),
    ("?o :made <<( ?s ?p <<( ?s ?p ?o )>> )>>", "?s ?p ?o"),
    ("?s ?p ?o", "?s ?p <<( ?x ?y ?o )>>"),
)


@pytest.mark.parametrize(("template", "pattern"), TEMPLATES)
def test_graphs(template: str, pattern: str) -> None:
    engine, store = both(random_data(11))
    with engine:
        text = f"{PREFIX}CONSTRUCT {{ {template} }} WHERE {{ {pattern} }}"
        theirs = store.query(text)
        assert isinstance(theirs, ox.QueryTriples)
        assert same_graph(nt_graph(engine.query(text).serialize("nt")), spread_graph(theirs))


@pytest.mark.parametrize(("template", "pattern"), TEMPLATES)
def test_updates(template: str, pattern: str) -> None:
    engine, store = both(random_data(12))
    with engine:
        text = f"{PREFIX}INSERT {{ {template} }} WHERE {{ {pattern} }} ; DELETE WHERE {{ ?s :q <<( ?x ?y ?z )>> }}"
        engine.update(text)
        store.update(text)
        made = engine.query("CONSTRUCT WHERE { ?s ?p ?o }").serialize("nt")
        assert same_graph(nt_graph(made), spread_graph(store))


def nt_graph(text: str | bytes) -> set[Triple]:
    data = text.encode() if isinstance(text, str) else text
    return spread_graph(ox.parse(data, format=ox.RdfFormat.N_TRIPLES))
