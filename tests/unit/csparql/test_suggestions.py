"""Suggestions of errors; one text per message."""

from __future__ import annotations

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.suggestions import WELL_KNOWN
from wukongs.errors import QuerySyntaxError

DECLARED = "PREFIX people: <http://ex/> "


def suggestion(text: str) -> str:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    error = caught.value
    if error.suggestion:
        assert str(error).endswith(f"; {error.suggestion}")
        assert "\n" not in str(error)
    return error.suggestion


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELCT ?x { ?x ?y ?z }", "SELECT"),
        ("SELECT ?x WEHRE { ?x ?y ?z }", "WHERE"),
        ("PREFX ex: <http://ex/> ASK {}", "PREFIX"),
        ("ASK { OPTINAL { ?x ?y ?z } }", "OPTIONAL"),
        ("ASK { ?x ?y ?z . FILTR(?x > 1) }", "FILTER"),
        ("ASK { { ?x ?y 1 } UNOIN { ?x ?y 2 } }", "UNION"),
        ("SELECT ?x { ?x ?y ?z } ORDR BY ?x", "ORDER"),
        ("SELECT ?x { ?x ?y ?z } GRUOP BY ?x", "GROUP"),
        ("SELECT ?x { ?x ?y ?z } LIMT 3", "LIMIT"),
        ("ASK { FILTER(isLitteral(?x)) }", "ISLITERAL"),
        ("ASK { FILTER(strlenght(?x) > 3) }", "STRLEN"),
        ("ASK { FILTER(dataype(?x) = ?y) }", "DATATYPE"),
        ("REGISTR QUERY q AS SELECT * FROM STREAM <s> [RANGE 1s STEP 1s] {}", "REGISTER"),
        ("SELECT * FROM STREAM <s> [RNAGE 1s STEP 1s] {}", "RANGE"),
        ("SELECT * FROM STREAM <s> [RANGE 1s STPE 1s] {}", "STEP"),
        ("SELECT * FROM STREAM <s> [RANGE 1s TUMBLNG] {}", "TUMBLING"),
    ],
)
def test_a_misspelt_word(text: str, word: str) -> None:
    assert suggestion(text) == f"did you mean {word}?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DECLARED + "ASK { ?s poeple:age ?o }", "did you mean people:age?"),
        (DECLARED + "ASK { ?s zebra:age ?o }", "add PREFIX zebra: <...> at the start"),
        ("ASK { ?s :age ?o }", "add PREFIX : <...> at the start"),
        ("ASK { ?s http://ex/p ?o }", "an IRI stands in angle brackets, such as <http://example.org/>"),
        ("PREFIX ex: http://ex/ ASK {}", "an IRI stands in angle brackets, such as <http://example.org/>"),
        ("PREFIX ex <http://ex/> ASK {}", "write ex: with its colon"),
        ("SELECT * FROM STREAM <s> [RANGE 10 STEP 1s] {}", "10s is 10 seconds, 10ms milliseconds"),
        ("ASK { FILTER(?x == 1) }", "write = for equality, once"),
        ("ASK { FILTER(?x <> 1) }", "write != for inequality"),
        ("ASK { FILTER(?x = 1 & ?y = 2) }", "write && for a logical and"),
        ("ASK { FILTER(?x = 1 | ?y = 2) }", "write || for a logical or"),
        ("ASK { FILTER(?x = 1 AND ?y = 2) }", "write && for a logical and"),
        ("ASK { FILTER(?x = 1 or ?y = 2) }", "write || for a logical or"),
        ("ASK { FILTER(?x LIKE 'a') }", "write REGEX(?x, 'pattern') or CONTAINS(?x, 'part')"),
        ("ASK { FILTER(?x % 2 = 0) }", "there is no operator %: write ?a - ?b * FLOOR(?a / ?b)"),
        ("ASK { ? ?p ?o }", "a variable needs a name right behind its mark, such as ?x"),
        ("ASK { ?s ?p $ }", "a variable needs a name, such as $x"),
        ("SELECT ?a, ?b {}", "variables after SELECT stand side by side, without commas"),
        ("SELECT COUNT(?x) AS ?n {}", "write (COUNT(...) AS ?name), in parentheses"),
        ("ASK { ?s ?p \u201cx\u201d }", "write straight quotes, \" or '"),
        ("ASK { ?s ?p \u2018x\u2019 }", "write straight quotes, \" or '"),
        ("ASK { FILTER(?x = \u22121) }", "write a plain minus sign, -"),
        ("ASK {\u00a0}", "this is a no-break space: write a plain blank"),
        ("ASK { ?s ?p 'two\nlines' }", "a string of several lines stands in '''"),
        ("ASK { ?s ?p 'x'@ }", "a language tag is made of letters, such as 'chat'@fr"),
        ("ASK { ?s ?p 'x' \\ }", "a backslash stands only in strings, IRIs and local names"),
        ("\ufeffASK {}", "remove the byte order mark"),
        ("ASK { ?s ?p John }", "a name is written ?name, prefix:name or 'name'"),
        ("ASK {\n  ?s ?p ?o\n  { ?a ?b ?c\n}", "the '{' of line 1, column 5 is not closed"),
        ("ASK { FILTER(?x = (1 + 2) }", "the '(' of line 1, column 13 is not closed"),
        ("ASK { ?s ?p [ ?q 1 }", "the '[' of line 1, column 13 is not closed"),
        ("ASK { ?s ?p ?o } }", "no '{' is open here"),
        ("ASK { ?s ?p }", ""),
        ("", ""),
    ],
)
def test_what_may_help(text: str, expected: str) -> None:
    assert suggestion(text) == expected


@pytest.mark.parametrize("prefix", sorted(WELL_KNOWN))
def test_a_well_known_prefix_that_is_not_declared(prefix: str) -> None:
    line = f"PREFIX {prefix}: <{WELL_KNOWN[prefix]}>"
    assert suggestion(f"ASK {{ ?s {prefix}:p ?o }}") == f"add {line} at the start"
    parse_query(f"{line} ASK {{ ?s {prefix}:p ?o }}")


def test_a_missing_full_stop_is_what_was_expected() -> None:
    with pytest.raises(QuerySyntaxError, match=r"expected '\.', ';' or ',' before what follows the triple"):
        parse_query("ASK { ?s <p> <o> <s> <p> <o> }")


@pytest.mark.parametrize(
    ("text", "column", "suggestion"),
    [
        ("INSRT DATA { <a> <b> <c> }", 1, "did you mean INSERT?"),
        ("CLEAR ALL ; DELET WHERE { ?s ?p ?o }", 13, "did you mean DELETE?"),
        ("DELETE { ?s ?p ?o } WERE { ?s ?p ?o }", 21, "did you mean WHERE?"),
        ("CLEAR ALLL", 7, "did you mean ALL?"),
        ("TRUNCATE <g>", 1, "CLEAR GRAPH <g> empties a graph"),
        ("UPDATE <g>", 1, "write DELETE { ... } INSERT { ... } WHERE { ... }"),
        ("INSERT INTO <g> { <a> <b> <c> }", 8, "write INSERT DATA { GRAPH <g> { ... } }, or WITH <g> INSERT"),
        ("DELETE FROM <g> { <a> <b> <c> }", 8, "write DELETE DATA { GRAPH <g> { ... } }, or WITH <g> DELETE"),
        ("INSERT DATA { e:a <b> <c> }", 15, "add PREFIX e: <...> at the start"),
        ("INSERT DATA { <a> <b> <c>", 26, "the '{' of line 1, column 13 is not closed"),
    ],
)
def test_updates_are_helped_as_queries_are(text: str, column: int, suggestion: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_update(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert f"; {suggestion}" in str(caught.value)
    assert caught.value.excerpt.startswith(f"1 | {text}")


def test_operations_without_a_semicolon_between() -> None:
    with pytest.raises(QuerySyntaxError, match="column 29: expected ';' before the next operation"):
        parse_update("INSERT DATA { <a> <b> <c> } INSERT DATA { <a> <b> <d> }")
