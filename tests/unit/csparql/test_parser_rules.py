"""Rule files: names, prologues and texts of rules, and what no rule may say, by its place."""

from __future__ import annotations

import pickle

import pytest

from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_rules import ParsedRule, parse_rules
from wukongs.errors import QuerySyntaxError, RuleError, WukongsError

CONSTRUCT = "CONSTRUCT { ?x <h> ?y } WHERE { ?x <p> ?y }"
FILE = """# Families.
PREFIX : <http://e/>
RULE ancestor: CONSTRUCT { ?x :ancestor ?y } WHERE { ?x :parent ?y }   # a RULE that is none: CONSTRUCT
BASE <http://f/>
PREFIX q: <q#>
rule 2nd.of-all_1 : construct { ?x <r> q:v } where { ?x :ancestor "RULE x: " }
"""


def one(pattern: str, head: str = "?x <h> ?y") -> ParsedRule:
    [rule] = parse_rules(f"RULE r: CONSTRUCT {{ {head} }} WHERE {{ {pattern} }}")
    return rule


def refusal(text: str) -> RuleError:
    with pytest.raises(RuleError) as caught:
        parse_rules(text, file="r.rules")
    return caught.value


def test_a_file_of_rules() -> None:
    first, second = parse_rules(FILE, file="f.rules")
    assert (first.name, first.line, first.column, first.source) == ("ancestor", 3, 6, "f.rules")
    assert (second.name, second.line, second.column) == ("2nd.of-all_1", 6, 6)
    assert first.text == "RULE ancestor: CONSTRUCT { ?x :ancestor ?y } WHERE { ?x :parent ?y }"
    assert first.query == parse_query("CONSTRUCT { ?x <http://e/ancestor> ?y } WHERE { ?x <http://e/parent> ?y }")
    assert second.query == parse_query(
        'CONSTRUCT { ?x <http://f/r> <http://f/q#v> } WHERE { ?x <http://e/ancestor> "RULE x: " }'
    )


def test_a_rule_stands_alone_behind_its_prologue() -> None:
    for rule in parse_rules(FILE):
        [again] = parse_rules(rule.prologue + rule.text)
        assert (again.name, again.query, again.text) == (rule.name, rule.query, rule.text)


def test_the_base_that_is_given_goes_into_the_prologue() -> None:
    [rule] = parse_rules(f"RULE r: {CONSTRUCT}", base="http://b/")
    [again] = parse_rules(rule.prologue + rule.text)
    assert again.query == rule.query == parse_query(CONSTRUCT, "http://b/")


def test_names_of_variables_do_not_depend_on_the_rules_before() -> None:
    text = "CONSTRUCT { ?x <h> ?n } WHERE { SELECT ?x (COUNT(?y) AS ?n) WHERE { ?x <p>/<q> ?y } GROUP BY ?x }"
    first, second = parse_rules(f"RULE a: {text} RULE b:{text}")
    assert first.query == second.query


@pytest.mark.parametrize("text", ["", "# nothing\n", "PREFIX : <http://e/>"])
def test_a_text_without_rules_has_none(text: str) -> None:
    assert parse_rules(text) == ()


@pytest.mark.parametrize(
    ("text", "expected", "found", "line", "column"),
    [
        (CONSTRUCT, "RULE and a name, PREFIX, BASE", "'CONSTRUCT'", 1, 1),
        (f"RULE {CONSTRUCT}", "':' after the name of the rule", "'{'", 1, 16),
        (f"RULE : {CONSTRUCT}", "a name of letters, digits", "':'", 1, 6),
        (f"RULE <a>: {CONSTRUCT}", "a name of letters, digits", "'<a>'", 1, 6),
        (f"RULE a {CONSTRUCT}", "':' after the name", "'CONSTRUCT'", 1, 8),
        ("RULE a:", "CONSTRUCT { template } WHERE { pattern } after the name", "the end", 1, 8),
        ("RULE a: SELECT ?x WHERE { ?x <p> ?y }", "CONSTRUCT { template } WHERE", "'SELECT'", 1, 9),
        (f"RULE a: {CONSTRUCT[:-1]}\nRULE b: {CONSTRUCT}", "or '}'", "'RULE'", 2, 1),
        (f"RULE a: {CONSTRUCT} }}", "the end of the rule", "'}'", 1, 53),
        (f"RULE a: {CONSTRUCT}\nRULE b: CONSTRUCT {{ ?x z:h ?y }} WHERE {{ }}", "a prefix", "'z:h'", 2, 24),
        ("RULE a: CONSTRUCT { 'a' <p> ?x } WHERE { ?x <p> ?y }", "a subject that RDF can have", "''a''", 1, 21),
        ("RULE a: CONSTRUCT { ?x <p> ?y } WHERE { 1 <p> ?x, ?y }", "a subject that RDF can have", "'1'", 1, 41),
        ("RULE a: CONSTRUCT { ?x 'p' ?y } WHERE { ?x <p> ?y }", "a predicate", "''p''", 1, 24),
        ("RULE a: CONSTRUCT { ?x <p>/<q> ?y } WHERE { ?x <p> ?y }", "as the predicate of a template", "path", 1, 24),
        ("RULE a: CONSTRUCT { GRAPH <g> { ?x <p> ?y } } WHERE { ?x <p> ?y }", "triples only", "'GRAPH'", 1, 21),
    ],
)
def test_what_is_no_rule_file_is_refused_with_its_place(
    text: str, expected: str, found: str, line: int, column: int
) -> None:
    with pytest.raises(QuerySyntaxError, match=rf"^r\.rules, line {line}, column {column}: expected") as caught:
        parse_rules(text, file="r.rules")
    assert expected in caught.value.expected
    assert found in caught.value.found


def test_a_name_stands_once_in_a_file() -> None:
    error = refusal(f"RULE a: {CONSTRUCT}\nRULE b: {CONSTRUCT}\n RULE a: {CONSTRUCT}")
    assert (error.file, error.line, error.column) == ("r.rules", 3, 7)
    assert error.found == "'a', which line 1 has"


@pytest.mark.parametrize(
    ("pattern", "at", "hint"),
    [
        ("SERVICE <s> { ?x <p> ?y }", "SERVICE", "load what"),
        ("WINDOW <w> { ?x <p> ?y }", "WINDOW", "stored graphs"),
        ("GRAPH ?g { ?x <p> ?y }", "?g", "a rule for each graph"),
        ("?x <p> ?y FILTER(RAND() < 0.5)", "RAND", "a stored triple"),
        ("?x <p> ?z BIND(NOW() AS ?y)", "NOW", "a stored triple"),
        ("?x <p> ?z BIND(UUID() AS ?y)", "UUID", "a stored triple"),
        ("?x <p> ?z BIND(STRUUID() AS ?y)", "STRUUID", "a stored triple"),
        ("?x <p> ?z BIND(BNODE(?z) AS ?y)", "BNODE", "a stored triple"),
        ("?x <p> ?y FILTER(TIMESTAMP(?x) > 1)", "TIMESTAMP", "a stored triple"),
        ("<< ?x <p> ?y >> <q> ?z", "<<", "the triples themselves"),
        ("?x <p> <<( <a> <b> ?y )>>", "<<(", "the triples themselves"),
        ("?x <p> ?y {| <q> ?z |}", "{|", "the triples themselves"),
        ("{ SELECT ?x ?y WHERE { ?x <p> ?y } }", "SELECT", "a rule of their own"),
        ("?x <p> ?y { SELECT ?x WHERE { ?x <p> ?y } }", "SELECT", "a rule of their own"),
        ("SELECT ?x (SAMPLE(?z) AS ?y) WHERE { ?x <p> ?z } GROUP BY ?x", "SAMPLE", "MIN or MAX"),
        ("SELECT ?x (GROUP_CONCAT(?z) AS ?y) WHERE { ?x <p> ?z } GROUP BY ?x", "GROUP_CONCAT", "order of the rows"),
        ("SELECT ?x ?y WHERE { ?x <p> ?y } ORDER BY ?x", "ORDER", "no order"),
        ("SELECT ?x ?y WHERE { ?x <p> ?y } LIMIT 3", "LIMIT", "all solutions"),
        ("SELECT ?x ?y WHERE { ?x <p> ?y } OFFSET 3", "OFFSET", "all solutions"),
        ("SELECT ?x (COUNT(?z) AS ?y) WHERE { ?x <p> ?z } GROUP BY ?x HAVING(?y > 1)", "?y > 1", "write COUNT(?z)"),
    ],
)
def test_what_no_rule_may_say_is_refused_where_it_stands(pattern: str, at: str, hint: str) -> None:
    text = f"# a\nRULE r: CONSTRUCT {{ ?x <h> ?y }} WHERE {{ {pattern} }}"
    error = refusal(text)
    assert (error.file, error.line) == ("r.rules", 2)
    assert error.column - 1 == text.splitlines()[1].index(at, 30)
    assert hint in error.suggestion
    assert f"{error.line} | RULE r:" in error.excerpt or "…" in error.excerpt
    assert str(error).startswith(f"r.rules, line 2, column {error.column}: expected {error.expected}, found ")


@pytest.mark.parametrize("head", ["?x <h> []", "?x <h> _:b", "_:b <h> ?x", "?x <h> [ <i> ?y ]", "?x <h> ( ?y )"])
def test_blank_nodes_in_the_template_are_refused(head: str) -> None:
    error = refusal(f"RULE r: CONSTRUCT {{ {head} }} WHERE {{ ?x <p> ?y }}")
    assert "no blank node in the template" in error.expected
    assert "BIND" in error.suggestion


def test_from_is_refused() -> None:
    error = refusal("RULE r: CONSTRUCT { ?x <h> ?y } FROM <g> WHERE { ?x <p> ?y }")
    assert "GRAPH <iri>" in error.suggestion


@pytest.mark.parametrize(
    ("pattern", "head"),
    [
        ("?x <p> ?y FILTER NOT EXISTS { ?y <q> ?z FILTER(?z > 1) }", "?x <h> ?y, ()"),
        ("GRAPH <g> { ?x <p> [ <q> ?y ] } _:b <p> ( ?x )", "?x <h> ?y"),
        ("{ ?x <p> ?y } UNION { ?x ^<p>|!<q> ?y } VALUES ?x { <a> } BIND(?y + 1 AS ?z)", "?x ?z ?y"),
        ("?x <p> ?y OPTIONAL { ?y <q> ?z MINUS { ?z <r> ?v FILTER(EXISTS { ?v <r> ?z } || ?v > 1) } }", "?x <h> ?y"),
        ("?x <p>+ ?y . ?x <q>/(<p>*) ?y . ?x <p>{2,3} ?y . ?x (<p>+ AS ?n) ?y", "?x <h> ?y"),
        ("VALUES (?x ?y) { (UNDEF 1) } ?x <p> ?y", "?x <h> ?y"),
        ("SELECT DISTINCT ?x (MAX(DISTINCT ?z) AS ?y) { ?x <p> ?z } GROUP BY ?x HAVING(MIN(?z) > 1)", "?x <h> ?y"),
    ],
)
def test_what_a_rule_may_say_is_the_query(pattern: str, head: str) -> None:
    assert one(pattern, head).query == parse_query(f"CONSTRUCT {{ {head} }} WHERE {{ {pattern} }}")


def test_the_short_form_is_a_rule() -> None:
    [rule] = parse_rules("RULE r: CONSTRUCT WHERE { ?x <p> ?y }")
    assert rule.query == parse_query("CONSTRUCT WHERE { ?x <p> ?y }")


def test_errors_of_rules_travel_between_processes() -> None:
    error = refusal("RULE r: CONSTRUCT { ?x <h> ?y } WHERE { ?x <p> ?y } LIMIT 3")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert isinstance(again, WukongsError)


def test_an_error_without_a_place_has_no_line() -> None:
    error = RuleError("the name of a rule", "'b'", suggestion="did you mean 'a'?")
    assert str(error) == "expected the name of a rule, found 'b'; did you mean 'a'?"
    assert str(RuleError("a rule file", "none", "f.rules")) == "f.rules: expected a rule file, found none"


def test_a_text_that_is_none_is_refused() -> None:
    with pytest.raises(QuerySyntaxError, match="as a str, found bytes"):
        parse_rules(b"RULE")  # type: ignore[arg-type]
