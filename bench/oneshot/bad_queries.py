"""Queries and updates that would never end, one or more for each operator: budgets have to stop them.

The data are NODES in a ring (:p), all of them in one hub (:in), each with edges to others (:to), a number (:n) and a
text (:text). The queries multiply out, visit nearly all pairs, or make texts that double: with two thousand nodes, none
has an answer in the time that a person waits. The updates have one, after a while, and are here for what they do after
their pattern.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "PREFIX : <http://ex/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit")


@dataclass(frozen=True, slots=True)
class BadQuery:
    """text: without its prefix."""

    name: str
    text: str
    is_update: bool = False


def _chain(call: str, first: str, count: int) -> str:
    """Return BINDs of ?x0 = first, then each ?x of a call on the one before, written {x}."""
    steps = (f"BIND({call.replace('{x}', f'?x{step}')} AS ?x{step + 1})" for step in range(count))
    return f"BIND({first} AS ?x0) {' '.join(steps)}"


_TWO = "?a :p ?b . ?c :p ?d ."
_THREE = f"{_TWO} ?e :p ?f ."
_PRODUCT = f"{_THREE} ?g :p ?h . ?i :p ?j ."
_LISTED = " ".join(f'"{number}"' for number in range(2000))
_SUBQUERIES = " ".join(f"{{ SELECT ?x{number} {{ ?x{number} :p ?y{number} }} }}" for number in range(5))
_NESTED = (
    "?a :p ?b OPTIONAL { { SELECT ?c ?d { ?c :p ?d } } OPTIONAL { { SELECT ?e ?f { ?e :p ?f } } OPTIONAL { "
    "{ SELECT ?g ?h { ?g :p ?h } } OPTIONAL { { SELECT ?i ?j { ?i :p ?j } } } } } }"
)
_ABC, _EIGHTFOLD = "'abc'", "REPLACE({x}, '.', '$0$0$0$0$0$0$0$0')"
_DOUBLED = _chain("CONCAT({x}, {x})", "'lorem ipsum dolor sit äö'", 21)
_LONG = f"?a :p ?b {_DOUBLED} BIND(CONCAT(STR(?a), ?x21) AS ?long)"
"""?long: another one for each node, of some 50 million characters."""
_TEMPLATE = " ".join(f"?a :t{number} ?c ." for number in range(6))

QUERIES = (
    BadQuery("product", f"SELECT * {{ {_PRODUCT} }}"),
    BadQuery("count of a product", f"SELECT (COUNT(*) AS ?count) {{ {_PRODUCT} }}"),
    BadQuery("self-join", "SELECT * { ?a :in ?hub . ?b :in ?hub . ?c :in ?hub . ?d :in ?hub . ?e :in ?hub }"),
    BadQuery("paths", "SELECT * { ?a :p+ ?b . ?b :p+ ?c . ?c :p+ ?d }"),
    BadQuery("paths through a hub", "SELECT * { ?a (:p|^:p|:in|^:in)+ ?b . ?b (:to|^:to|:in|^:in)* ?c }"),
    BadQuery(
        "paths in paths", "ASK { ?a ((:to/:p)*/(:in/^:in)*)+ ?b . ?b (:to|:p)+ ?c . ?c ^:to+ ?d FILTER(?d = :x) }"
    ),
    BadQuery("OPTIONAL", f"SELECT * {{ {_NESTED} }}"),
    BadQuery("MINUS", f"SELECT * {{ {_THREE} MINUS {{ ?a :to ?c . ?e :to ?f . ?x :p ?y . ?z :p ?w }} }}"),
    BadQuery("EXISTS", f"SELECT * {{ {_TWO} FILTER EXISTS {{ ?a :to ?x . ?y :p ?z . ?u :p ?v FILTER(?y != ?c) }} }}"),
    BadQuery("UNION", f"SELECT * {{ {{ {_PRODUCT} }} UNION {{ {_THREE} ?g :to ?h }} }}"),
    BadQuery("VALUES", f"SELECT * {{ VALUES ?x {{ {_LISTED} }} VALUES ?y {{ {_LISTED} }} VALUES ?z {{ {_LISTED} }} }}"),
    BadQuery("subqueries", f"SELECT * {{ {_SUBQUERIES} }}"),
    BadQuery("DISTINCT", f"SELECT DISTINCT ?a ?c ?e {{ {_TWO} ?e :to ?f }}"),
    BadQuery("DISTINCT of DISTINCT", f"SELECT DISTINCT ?a {{ {{ SELECT DISTINCT ?a ?c ?n {{ {_TWO} ?e :n ?n }} }} }}"),
    BadQuery("ORDER BY", f"SELECT * {{ {_TWO} ?e :n ?n }} ORDER BY ?n ?a DESC(?c)"),
    BadQuery("ORDER BY of texts", f"SELECT * {{ {_TWO} BIND(CONCAT(STR(?c), STR(?a)) AS ?key) }} ORDER BY ?key"),
    BadQuery(
        "GROUP BY", f"SELECT ?a ?c (SUM(?n) AS ?sum) (MAX(?f) AS ?max) {{ {_TWO} ?e :n ?n ; :to ?f }} GROUP BY ?a ?c"
    ),
    BadQuery("GROUP_CONCAT", f"SELECT (GROUP_CONCAT(STR(?a)) AS ?all) {{ {_TWO} ?e :to ?f }}"),
    BadQuery("COUNT DISTINCT", f"SELECT (COUNT(DISTINCT *) AS ?count) {{ {_TWO} ?e :to ?f }}"),
    BadQuery(
        "arithmetic", f"SELECT * {{ {_TWO} ?a :n ?n . ?c :n ?m BIND(?n * 3 + ?m / 7 AS ?x) FILTER(?x * ?x < 0) }}"
    ),
    BadQuery("FILTER of terms", f"SELECT * {{ {_TWO} FILTER(STRLEN(CONCAT(STR(?a), STR(?c))) < 3) }}"),
    BadQuery("REGEX", f"ASK {{ {_TWO} FILTER REGEX(CONCAT(STR(?a), STR(?c)), '(a|b)+[^/]x$') }}"),
    BadQuery("REPLACE", f"ASK {{ {_TWO} FILTER(REPLACE(CONCAT(STR(?a), STR(?c)), '(.)(.)', '$2$1') = '') }}"),
    BadQuery("CONSTRUCT", f"CONSTRUCT {{ {_TEMPLATE} }} {{ {_TWO} ?e :to ?f }}"),
    BadQuery("DESCRIBE", f"DESCRIBE * {{ {_TWO} ?e :to ?f }}"),
    BadQuery("text: CONCAT", f"SELECT * {{ {_chain('CONCAT({x}, {x})', _ABC, 40)} }}"),
    BadQuery("text: REPLACE", f"SELECT * {{ {_chain(_EIGHTFOLD, _ABC, 14)} }}"),
    *(
        BadQuery(f"long text: {call.partition('(')[0]}", f"ASK {{ {_LONG} FILTER({call} = {never}) }}")
        for call, never in (
            ("STRLEN(?long)", "3"),
            ("UCASE(?long)", "'x'"),
            ("LCASE(?long)", "'x'"),
            ("SHA512(?long)", "'x'"),
            ("ENCODE_FOR_URI(?long)", "'x'"),
            ("STRAFTER(?long, 'sit amet')", "'x'"),
            ("CONTAINS(?long, SUBSTR(?long, 7, 100000))", "2"),
            ("REGEX(?long, '(ipsum|dolor)+[^ ]x$')", "2"),
            ("REPLACE(?long, '[aeiou]', '$0$0')", "'x'"),
        )
    ),
    BadQuery(
        "heavy pattern",
        f"ASK {{ {_TWO} BIND(CONCAT(STR(?a), STR(?c), 'ababab') AS ?x) FILTER REGEX(?x, '(.|b)*a(.|b){{400}}c') }}",
    ),
    BadQuery("heavy pattern, long text", f"ASK {{ {_LONG} FILTER REGEX(?long, '((((.|b){{0,9}}){{0,9}}){{0,9}})c') }}"),
    BadQuery("back-references", f"ASK {{ {_TWO} FILTER REGEX(CONCAT(STR(?a), STR(?c)), '((.+)+)+\\\\1x$') }}"),
    BadQuery("back-references, long text", f"ASK {{ {_LONG} FILTER(REPLACE(?long, '(.)\\\\1', '$1') = 'x') }}"),
)

UPDATES = (
    BadQuery("INSERT WHERE", f"INSERT {{ {_TEMPLATE} }} WHERE {{ {_PRODUCT} }}", True),
    BadQuery("INSERT of many", f"INSERT {{ {_TEMPLATE} }} WHERE {{ {_TWO} }}", True),
    BadQuery(
        "INSERT of computed terms",
        f"INSERT {{ ?a :t ?x }} WHERE {{ {_TWO} BIND(CONCAT(STR(?a), STR(?c)) AS ?x) }}",
        True,
    ),
    BadQuery("INSERT of blank nodes", f"INSERT {{ ?a :t _:new . _:new :t ?c }} WHERE {{ {_TWO} }}", True),
    BadQuery("DELETE and INSERT", f"DELETE {{ ?a :p ?c }} INSERT {{ ?c :q ?a }} WHERE {{ {_TWO} }}", True),
    BadQuery(
        "many operations", " ; ".join(f"INSERT {{ ?a :t{step} ?c }} WHERE {{ {_TWO} }}" for step in range(40)), True
    ),
)
