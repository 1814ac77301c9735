"""Disagreements with pyoxigraph 0.5.13 that SPARQL 1.1 settles, or leaves open: the smallest case of each class.

The fuzzer (tests/fuzzing) counts a disagreement under such a class only if the engine agrees with the definitions. Of
rdflib only a sample is asked; where it alone differs, the definitions and pyoxigraph both stand against it.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.fuzzing.trees import Tree, tree

P, Q, N, T = "<http://e/p>", "<http://e/q>", "<http://e/n>", "<http://e/t>"
A, B, C, G1, G2 = "<http://e/a>", "<http://e/b>", "<http://e/c>", "<http://e/g1>", "<http://e/g2>"
XSD = "http://www.w3.org/2001/XMLSchema#"
EARLY, LATE = f'"2019-12-31T23:59:59"^^<{XSD}dateTime>', f'"2020-01-01T00:00:00Z"^^<{XSD}dateTime>'
DAY = f'"2020-01-01"^^<{XSD}date>'


class Disagreement(NamedTuple):
    """fault: its class in tests/fuzzing/faults.py; quads: the data; rows: the right answer, as canonical texts."""

    fault: str
    reason: str
    query: Tree
    quads: str
    rows: list[tuple[str | None, ...]]


def asked(*parts: str | Tree) -> Tree:
    return tree("query", "SELECT", *parts)


def leaf(*parts: str) -> Tree:
    return tree("expression", "", *parts)


def path(subject: str, steps: Tree, object_: str) -> Tree:
    return tree("element", "PATH", tree("more", "", subject, steps, object_, "."))


SUBQUERY = tree("element", "SUBQUERY", "{ SELECT ( 1 AS ?n ) WHERE { } }")
EXISTS = tree("expression", "EXISTS", "EXISTS {", tree("element", "MINUS", "MINUS { }"), "}")
FILTERED_OPTIONAL = tree(
    "element", "OPTIONAL", "OPTIONAL { ?c :p ?a .", tree("element", "FILTER", "FILTER ( ?c NOT IN ( ?b ) )"), "}"
)

DISAGREEMENTS = [
    Disagreement(
        "refuses GROUP BY (?variable AS ?name)",
        "19.8, GroupCondition: '(' Expression ( 'AS' Var )? ')', and a variable is an expression.",
        asked("SELECT ?k WHERE { ?a :p ?b } GROUP BY", tree("more", "GROUP BY AS", "(", leaf("?a"), "AS ?k )")),
        f"{A} {P} {B} . {A} {P} {C} .",
        [(A,)],
    ),
    Disagreement(
        "counts equal solutions of | and !() once",
        "18.4: an alternative is a union, which keeps duplicates; a negated set has a solution for each triple.",
        asked("SELECT ?b WHERE {", path(":a", tree("path", "|", "( :p | :q )"), "?b"), "}"),
        f"{A} {P} {B} . {A} {Q} {B} .",
        [(B,), (B,)],
    ),
    Disagreement(
        "counts equal solutions of | and !() once",
        "18.4, NegatedPropertySet: one solution for each triple, also between two known ends.",
        asked("SELECT ?b WHERE {", path(A, tree("path", "!()", "!( :n )"), B), "}"),
        f"{A} {P} {B} . {A} {Q} {B} .",
        [(None,), (None,)],
    ),
    Disagreement(
        "an empty path from an unknown constant leads nowhere",
        "18.4, ZeroLengthPath of a term and a variable: the term itself, whether the graph knows it or not.",
        asked("SELECT ?x WHERE {", path(C, tree("path", "path ?", "( :q )?"), "?x"), "}"),
        f"{A} {P} {B} .",
        [(C,)],
    ),
    Disagreement(
        "triples of several FROM graphs count twice",
        "13.2.1: the default graph is the RDF merge of the graphs, so a set.",
        asked("SELECT ?x", tree("dataset", "FROM", f"FROM {G1} FROM {G2}"), "WHERE { :a :p ?x }"),
        f"{A} {P} {B} {G1} . {A} {P} {B} {G2} .",
        [(B,)],
    ),
    Disagreement(
        "COUNT of an error is an error",
        "18.5.1.2: Count takes error elements away.",
        asked(
            "SELECT (", tree("expression", "COUNT", "COUNT(", leaf("?b", "+", "1"), ")"), "AS ?n ) WHERE { :a :p ?b }"
        ),
        f"{A} {P} {B} .",
        [(f'"0"^^<{XSD}integer>',)],
    ),
    Disagreement(
        "COUNT(DISTINCT *) counts blank nodes, and what lies within the sequence of a path",
        "18.5.1.2 counts distinct solutions, and blank nodes of a pattern are no part of a solution (18.3).",
        asked("SELECT (", tree("expression", "COUNT DISTINCT *", "COUNT( DISTINCT * )"), "AS ?n ) WHERE { ?a :p [] }"),
        f"{A} {P} {B} . {A} {P} {C} .",
        [(f'"1"^^<{XSD}integer>',)],
    ),
    Disagreement(
        "IN () is an error",
        "17.4.1.9: with an empty list there is nothing to be equal to: false.",
        asked("SELECT (", tree("expression", "IN", "( 'a'@en IN ( ) )"), "AS ?x ) WHERE { }"),
        "",
        [(f'"false"^^<{XSD}boolean>',)],
    ),
    Disagreement(
        "GRAPH of an absent graph is not empty",
        "18.6: the pattern of GRAPH <iri> is evaluated only if the dataset has a graph of that name.",
        asked("SELECT ?n WHERE { GRAPH <http://e/none> { SELECT ( COUNT( * ) AS ?n ) WHERE { } } }"),
        "",
        [],
    ),
    Disagreement(
        "GRAPH ?g without triple patterns loses its name; ?g is known in filters and subqueries",
        "18.6: for each named graph its name is joined with the solutions of the pattern.",
        asked("SELECT * WHERE {", tree("element", "GRAPH ?g", "GRAPH ?g {", SUBQUERY, "}"), "}"),
        f"{A} {P} {B} {G1} .",
        [(G1, f'"1"^^<{XSD}integer>')],
    ),
    Disagreement(
        "knows the name of GRAPH ?g within its OPTIONAL",
        "18.6: OPTIONAL finds a triple, and what it binds ?g to is no name of the graph: no solution is left.",
        asked(
            "SELECT ?g WHERE {",
            tree("element", "GRAPH ?g", "GRAPH ?g {", tree("element", "OPTIONAL", "OPTIONAL { ?g :p ?b }"), "}"),
            "}",
        ),
        f"{A} {P} {B} {G1} .",
        [],
    ),
    Disagreement(
        "joins the row to an EXISTS from the left",
        "18.6: EXISTS asks whether the substituted pattern has a solution; MINUS { } takes nothing away from the empty "
        "group's one solution.",
        asked("SELECT ?a WHERE { ?a :p ?b FILTER", EXISTS, "}"),
        f"{A} {P} {B} .",
        [(A,)],
    ),
    Disagreement(
        "a filter of an OPTIONAL inside of another knows the variables around both",
        "18.2.2.6: the inner group is translated by itself. ?b is unbound there, so its filter fails for every row; if "
        "?b were known, two rows would be found.",
        asked(
            "SELECT ?b WHERE { ?b :n ?x . ?b :q ?d .",
            tree("element", "OPTIONAL", "OPTIONAL {", FILTERED_OPTIONAL, "}"),
            "?b :q ?d . }",
        ),
        f"{B} {Q} {C} . {C} {P} {C} . {B} {N} {A} . {A} {P} {C} .",
        [(B,)],
    ),
    Disagreement(
        "reading: 0 divided by a decimal with a fraction is an error",
        "op:numeric-divide: only a division by zero is an error.",
        asked("SELECT (0 / 2.5 AS ?x) { }"),
        "",
        [(f'"0"^^<{XSD}decimal>',)],
    ),
    Disagreement(
        "reading: < compares language-tagged strings, and any term with itself",
        "17.3 has no < of IRIs: a type error. 17.3.1 lets systems have one, as pyoxigraph does.",
        asked("SELECT ?a { ?a :p ?b FILTER(?a >= ?a) }"),
        f"{A} {P} {B} .",
        [],
    ),
    Disagreement(
        "reading: a dateTime without zone has no fixed order to one with it",
        "op:dateTime-less-than takes the implicit timezone, here UTC; pyoxigraph has none.",
        asked("SELECT ?a { ?a :t ?x , ?y FILTER(?x < ?y) }"),
        f"{A} {T} {EARLY} . {A} {T} {LATE} .",
        [(A,)],
    ),
    Disagreement(
        "loses the sum of a constant moment and a duration",
        "op:add-dayTimeDuration-to-dateTime (9.7.6); pyoxigraph has it of ?t, but turns the sum of a constant around.",
        asked("SELECT", tree("expression", "TIME +", f"( {LATE} + 'PT1H'^^<{XSD}dayTimeDuration>"), "AS ?x ) { }"),
        "",
        [(f'"2020-01-01T01:00:00Z"^^<{XSD}dateTime>',)],
    ),
    Disagreement(
        "reading: less arithmetic of times and durations, more comparisons of durations",
        "op:multiply-dayTimeDuration (8.4.8); pyoxigraph has no product.",
        asked(f"SELECT ('PT1H'^^<{XSD}dayTimeDuration> * 2 AS ?x) {{ }}"),
        "",
        [(f'"PT2H"^^<{XSD}dayTimeDuration>',)],
    ),
    Disagreement(
        "reading: less arithmetic of times and durations, more comparisons of durations",
        "XPath's < is for two durations of one of the subtypes (8.2); XML Schema has a partial order of all.",
        asked(f"SELECT ('P1M'^^<{XSD}yearMonthDuration> > 'P1D'^^<{XSD}dayTimeDuration> AS ?x) {{ }}"),
        "",
        [(None,)],
    ),
    Disagreement(
        "reading: less arithmetic of times and durations, more comparisons of durations",
        "fn:sum takes durations (14.4.5); pyoxigraph's SUM does not.",
        asked(
            f"SELECT (SUM(?d) AS ?x) {{ VALUES ?d {{ 'P1D'^^<{XSD}dayTimeDuration> 'PT1H'^^<{XSD}dayTimeDuration> }} }}"
        ),
        "",
        [(f'"P1DT1H"^^<{XSD}dayTimeDuration>',)],
    ),
    Disagreement(
        "reading: LANG gives lower case",
        "17.4.2.6 gives the tag; RDF 1.1 compares tags without case, and RFC 5646, 2.1.1 recommends this one.",
        asked("SELECT (LANG('a'@en-us) AS ?x) { }"),
        "",
        [('"en-US"',)],
    ),
    Disagreement(
        "reading: computed doubles are written without exponent",
        "STR gives the lexical form, and that of a computed double is XML Schema's canonical one.",
        asked("SELECT (STR(1e0 - 2) AS ?x) { }"),
        "",
        [('"-1.0E0"',)],
    ),
    Disagreement(
        "reading: language-tagged strings and ill-typed literals can be cast",
        "17.5 has no cast from a language-tagged string.",
        asked("SELECT (xsd:string('ab'@en) AS ?x) { }"),
        "",
        [(None,)],
    ),
    Disagreement(
        "reading: language-tagged strings and ill-typed literals can be cast",
        "17.5 casts values, and an ill-typed literal has none.",
        asked("SELECT (xsd:string('x'^^xsd:integer) AS ?x) { }"),
        "",
        [(None,)],
    ),
    Disagreement(
        "reading: < compares language-tagged strings, and any term with itself",
        "17.3: < is defined for simple literals; 17.3.1 lets systems have more.",
        asked("SELECT ('a'@en < 'b'@en AS ?x) { }"),
        "",
        [(None,)],
    ),
    Disagreement(
        "open in SPARQL 1.1: the order of literals of different kinds",
        "15.1 orders what < orders; a date and a dateTime it does not. Here dateTimes are before dates.",
        asked("SELECT ?x WHERE { ?a :t ?x } ORDER BY ?x", tree("modifier", "LIMIT", "LIMIT 1")),
        f"{A} {T} {DAY} . {A} {T} {LATE} .",
        [(LATE,)],
    ),
]
