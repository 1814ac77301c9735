"""Keywords without a blank between them: the longest terminal that matches comes next (SPARQL 1.1, 19.8)."""

from __future__ import annotations

import pyoxigraph
import pytest

from wukongs.csparql.data_runs import CHARACTERS_MIN
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.errors import QuerySyntaxError

P = "PREFIX : <http://e/> PREFIX ex: <http://e/> "
JOINED = [  # a text, and the same with blanks
    (P + "SELECT * { ?x :p ?v FILTERsameTerm(?x, :x) }", P + "SELECT * { ?x :p ?v FILTER sameTerm(?x, :x) }"),
    ("SELECT*{?s?p?o}", "SELECT * { ?s ?p ?o }"),
    ("SELECT(1AS?x){}", "SELECT (1 AS ?x) {}"),
    ("SELECT(trueAS?x){}", "SELECT (true AS ?x) {}"),
    ("SELECT ?s{?s ?p ?o}ORDER BY?s", "SELECT ?s { ?s ?p ?o } ORDER BY ?s"),
    ("SELECT ?s{?s ?p ?o}ORDERBYDESC(?s)", "SELECT ?s { ?s ?p ?o } ORDER BY DESC(?s)"),
    ("SELECT ?s{?s ?p ?o}LIMIT 1OFFSET 1", "SELECT ?s { ?s ?p ?o } LIMIT 1 OFFSET 1"),
    ("SELECT ?s{?s ?p ?o}LIMIT1OFFSET1", "SELECT ?s { ?s ?p ?o } LIMIT 1 OFFSET 1"),
    ("ASK{FILTERNOT EXISTS{?s ?p ?o}}", "ASK { FILTER NOT EXISTS { ?s ?p ?o } }"),
    ("ASK{FILTERNOTEXISTS{?s ?p ?o}}", "ASK { FILTER NOT EXISTS { ?s ?p ?o } }"),
    ("ASK{FILTER(1 NOTIN(2))}", "ASK { FILTER(1 NOT IN (2)) }"),
    ("SELECTDISTINCT?s{?s ?p ?o}", "SELECT DISTINCT ?s { ?s ?p ?o }"),
    ("SELECT ?x{VALUES?x{1 2}}", "SELECT ?x { VALUES ?x { 1 2 } }"),
    ("SELECT ?x{VALUES?x{UNDEF1UNDEF}}", "SELECT ?x { VALUES ?x { UNDEF 1 UNDEF } }"),
    ("SELECT ?x{BIND(1 AS?x)}", "SELECT ?x { BIND(1 AS ?x) }"),
    ("SELECT (COUNT(*)AS?c){?s a?o}", "SELECT (COUNT(*) AS ?c) { ?s a ?o }"),
    ("SELECT ?s{?s a1}", "SELECT ?s { ?s a 1 }"),
    ('SELECT ?s {?s ?p "x"@en,"y"}', 'SELECT ?s { ?s ?p "x"@en , "y" }'),
    ("SELECT ?s {?s ?p 1.}", "SELECT ?s { ?s ?p 1 . }"),
    ("SELECT ?s {GRAPH?g{?s ?p ?o}}", "SELECT ?s { GRAPH ?g { ?s ?p ?o } }"),
    ("SELECT ?s FROMNAMED<http://g>WHERE{?s ?p ?o}", "SELECT ?s FROM NAMED <http://g> WHERE { ?s ?p ?o }"),
    (
        "SELECT ?s {{?s ?p ?o}UNION{?s ?p ?o}MINUS{?s ?p 1}}",
        "SELECT ?s { { ?s ?p ?o } UNION { ?s ?p ?o } MINUS { ?s ?p 1 } }",
    ),
]


@pytest.mark.parametrize(("joined", "apart"), JOINED)
def test_joined_keywords_are_the_keywords_apart(joined: str, apart: str) -> None:
    assert parse_query(joined) == parse_query(apart)
    pyoxigraph.Store().query(joined)  # raises for a text that is no SPARQL


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?s {?s ?p 1.,2}",  # SPARQL 1.1's DECIMAL has a digit behind the point, so this is `1 . , 2`
        "SELECT ?s{?s ?p ?o}GROUP BY ?s HAVINGCOUNT(*)>1",  # HAVING asks for brackets
        "SELECT ?s{?s A ?o}",  # `a` is the keyword whose case counts (19.8, note 1)
        "SELECT ?s{?s A1}",
        "SELECT (STR(1)ASc){}",
        "SELECT ?s{?s ?p 1.0AS}",
        P + "ASK{FILTERex:f(1)}",  # longer than FILTER: a prefixed name
        P + "ASK{?s aex:f}",
        "PREFIX:<http://e/>ASK{:a :b :c}",  # `PREFIX:` is a prefix, which nothing declares
        P + "ASK{?s ?p :oFILTER(true)}",
        "ASK{?s ?p ?oFILTER(true)}",
    ],
)
def test_texts_that_the_longest_match_refuses(text: str) -> None:
    with pytest.raises(QuerySyntaxError):
        parse_query(text)


def test_updates() -> None:
    apart = parse_update("INSERT DATA { <a> <b> 1 } ; DELETE WHERE { ?s a ?o } ; CLEAR SILENT GRAPH <g>")
    assert parse_update("INSERTDATA{<a><b>1};DELETEWHERE{?s a?o};CLEARSILENTGRAPH<g>") == apart


@pytest.mark.parametrize("behind", ["CLEARSILENTGRAPH<g>", "CLEAR SILENT GRAPH <g>"])
def test_long_data_before_a_joined_keyword(behind: str) -> None:
    rows = "".join(f"<http://e/s{number}> <http://e/p> {number} .\n" for number in range(CHARACTERS_MIN // 20))
    text = f"INSERT DATA {{ {rows} _:b <http://e/p> [] . {rows} }} ;"
    found, wanted = (parse_update(text + end) for end in (behind, "CLEAR SILENT GRAPH <g>"))
    assert found.operations[1:] == wanted.operations[1:]
    assert found.operations[0] == wanted.operations[0]


def test_names_of_registered_queries_and_units_stay_whole() -> None:
    text = (
        "REGISTER QUERY filtered-askers COMPUTED EVERY 5mins AS SELECT ?s "
        "FROM STREAM <s> [RANGE 10mins STEP 5mins] WHERE { ?s ?p ?o FILTERNOT EXISTS { ?s ?p 1 } }"
    )
    found = parse_query(text)
    assert found.registration is not None
    assert found.registration.name == "filtered-askers"
    assert found == parse_query(text.replace("FILTERNOT", "FILTER NOT"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECTS ?s { ?s ?p ?o }", "found 'SELECTS'"),
        ("SELECT ?s { ?s ?p ?o OPTIONALLY { ?s ?p 1 } }", "found 'OPTIONALLY'.*did you mean OPTIONAL"),
        ("SELECT ?s { ?s ?p ?o } LIMITS 10", "found 'LIMITS'"),
    ],
)
def test_errors_are_about_the_whole_word(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError, match=message):
        parse_query(text)
