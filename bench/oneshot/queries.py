"""The one-shot queries: LSBench's S1-S6, and one or more for each operator of the language.

They run over the stored triples with the streams PO, PO-L, PH and PH-L absorbed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wukongs.bench.lsbench.queries import one_shot_bodies, with_constants

PREFIXES = """PREFIX sioc: <http://rdfs.org/sioc/ns#>
PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/>
PREFIX foaf: <http://xmlns.com/foaf/0.1/>
PREFIX dc: <http://purl.org/dc/elements/1.1/>
PREFIX dcterms: <http://purl.org/dc/terms/>
PREFIX dbp: <http://dbpedia.org/resource/>
PREFIX dbo: <http://dbpedia.org/ontology/>
PREFIX dbprop: <http://dbpedia.org/property/>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
PREFIX sibp: <http://www.ins.cwi.nl/sib/person/>
PREFIX sibu: <http://www.ins.cwi.nl/sib/user/>
PREFIX sibg: <http://www.ins.cwi.nl/sib/group/>
"""

Comparison = Literal["bag", "sequence", "count"]
"""How answers are compared: by their rows; by rows and order; or, if the query leaves open which rows it gives, by
number."""


@dataclass(frozen=True, slots=True)
class OneShotQuery:
    """body: the query without its prefixes, with its constants as {user}, {person}, {other} and {group}.

    wrong: system -> why its answer is not compared, and so not timed."""

    name: str
    about: str
    body: str
    compared: Comparison = "bag"
    wrong: Mapping[str, str] = field(default_factory=dict)

    def text(self, constants: dict[str, str]) -> str:
        """Return the whole query."""
        return PREFIXES + with_constants(self.body, constants)


S_QUERIES = tuple(OneShotQuery(name, about, body) for name, (about, body) in one_shot_bodies().items())

OTHER_QUERIES = (
    OneShotQuery(
        "optional",
        "OPTIONAL beside a selective pattern",
        "SELECT ?friend ?status { sibu:{user} foaf:knows ?friend OPTIONAL { ?friend sib:status ?status } }",
    ),
    OneShotQuery(
        "optional-wide",
        "OPTIONAL for all posts",
        "SELECT ?post ?tag ?liker { ?forum sioc:container_of ?post . ?post sioc:content ?text "
        "OPTIONAL { ?post sib:hashtag ?tag } OPTIONAL { ?liker sib:like ?post } }",
    ),
    OneShotQuery(
        "optional-nested",
        "OPTIONAL in OPTIONAL, with a FILTER over both",
        "SELECT ?user ?post ?reply ?liker { ?user sioc:creator_of ?post . ?post sib:hashtag ?tag "
        "OPTIONAL { ?reply sioc:reply_of ?post OPTIONAL { ?liker sib:like ?post FILTER(?liker != ?user) } } "
        "FILTER(!BOUND(?liker) || STRSTARTS(?tag, 'A')) }",
    ),
    OneShotQuery(
        "union",
        "UNION of two kinds of likes of friends",
        "SELECT ?friend ?thing { sibu:{user} foaf:knows ?friend "
        "{ ?friend sib:like ?thing . ?thing sib:hashtag ?tag } "
        "UNION { ?friend sib:like ?thing . ?thing dbo:location ?where } }",
    ),
    OneShotQuery(
        "minus",
        "MINUS: users without an e-mail address",
        "SELECT ?user ?person { ?user sioc:account_of ?person MINUS { ?person sioc:email ?email } }",
    ),
    OneShotQuery(
        "not-exists",
        "NOT EXISTS: photos that nobody likes",
        "SELECT ?photo ?where { ?photo dbo:location ?where FILTER NOT EXISTS { ?user sib:like ?photo } }",
    ),
    OneShotQuery(
        "filter-number",
        "FILTER on doubles",
        "SELECT ?photo ?lat ?long { ?photo dbprop:latd ?lat ; dbprop:longd ?long "
        "FILTER(?lat > 40.0 && ?lat < 45.0 && ?long < 0) }",
    ),
    OneShotQuery(
        "filter-date",
        "FILTER on date-times",
        "SELECT ?post ?when { ?post sioc:content ?text ; dc:created ?when "
        "FILTER(?when >= '2010-02-10T00:00:00Z'^^xsd:dateTime && ?when < '2010-02-12T00:00:00Z'^^xsd:dateTime) }",
    ),
    OneShotQuery(
        "filter-regex",
        "REGEX over the texts of posts",
        "SELECT ?post ?text { ?post sioc:content ?text FILTER REGEX(?text, '^the .*(music|album)', 'i') }",
    ),
    OneShotQuery(
        "filter-string",
        "CONTAINS and STRLEN over the texts of posts",
        "SELECT ?post ?text { ?post sioc:content ?text FILTER(CONTAINS(?text, 'is a') && STRLEN(?text) < 40) }",
    ),
    OneShotQuery("distinct", "DISTINCT of a small column", "SELECT DISTINCT ?where { ?photo dbo:location ?where }"),
    OneShotQuery(
        "distinct-wide",
        "DISTINCT of a large join",
        "SELECT DISTINCT ?liker ?creator { ?creator sioc:creator_of ?post . ?liker sib:like ?post }",
    ),
    OneShotQuery(
        "limit", "LIMIT of a large join", "SELECT ?a ?c { ?a foaf:knows ?b . ?b foaf:knows ?c } LIMIT 1000", "count"
    ),
    OneShotQuery(
        "distinct-limit",
        "DISTINCT and LIMIT of a large join",
        "SELECT DISTINCT ?a ?c { ?a foaf:knows ?b . ?b foaf:knows ?c } LIMIT 100",
        "count",
    ),
    OneShotQuery(
        "top-ten",
        "GROUP BY, COUNT, HAVING, ORDER BY, LIMIT: the most used hashtags",
        "SELECT ?tag (COUNT(?post) AS ?posts) { ?post sib:hashtag ?tag } GROUP BY ?tag HAVING (COUNT(?post) > 5) "
        "ORDER BY DESC(?posts) ?tag LIMIT 10",
        "sequence",
    ),
    OneShotQuery(
        "count",
        "COUNT of everything liked",
        "SELECT (COUNT(*) AS ?all) (COUNT(DISTINCT ?what) AS ?things) { ?who sib:like ?what }",
    ),
    OneShotQuery(
        "group-numbers",
        "AVG, MIN, MAX, SUM of doubles by place",
        "SELECT ?where (AVG(?lat) AS ?avg) (MIN(?lat) AS ?min) (MAX(?lat) AS ?max) (COUNT(*) AS ?n) "
        "{ ?photo dbo:location ?where ; dbprop:latd ?lat } GROUP BY ?where",
    ),
    OneShotQuery(
        "order-limit",
        "ORDER BY of many rows, LIMIT",
        "SELECT ?photo ?lat { ?photo dbprop:latd ?lat } ORDER BY DESC(?lat) ?photo LIMIT 20",
        "sequence",
    ),
    OneShotQuery(
        "order-all",
        "ORDER BY of many rows",
        "SELECT ?post ?when { ?post sioc:content ?text ; dc:created ?when } ORDER BY ?when ?post",
        "sequence",
    ),
    OneShotQuery(
        "path-sequence",
        "foaf:knows/foaf:knows of one user",
        "SELECT ?other { sibu:{user} foaf:knows/foaf:knows ?other }",
    ),
    OneShotQuery("path-plus", "foaf:knows+ of one user", "SELECT ?other { sibu:{user} foaf:knows+ ?other }"),
    OneShotQuery(
        "path-star",
        "an inverse and an alternative, any number of times",
        "SELECT ?other { sibu:{user} "
        "(^sib:Engaged_with|sib:Engaged_with|sib:Married_with|^sib:Married_with)*/foaf:knows ?other }",
    ),
    OneShotQuery(
        "path-inverse",
        "^reply_of and alternatives from all posts",
        "SELECT ?user ?thing { ?user sioc:creator_of/(^sioc:reply_of|sib:hashtag) ?thing }",
    ),
    OneShotQuery(
        "subquery",
        "an aggregate joined back: the friends with the most posts, and their names",
        "SELECT ?friend ?name ?posts { sibu:{user} foaf:knows ?friend . "
        "?friend sioc:account_of ?p . ?p foaf:firstName ?name "
        "{ SELECT ?friend (COUNT(?post) AS ?posts) { ?friend sioc:creator_of ?post } GROUP BY ?friend } }",
        wrong={"rdflib": "puts outer bindings into a subquery, so that one without a post counts 0"},
    ),
    OneShotQuery(
        "values",
        "VALUES of three countries",
        "SELECT ?country ?user ?post { VALUES ?country { dbp:Germany dbp:France dbp:United_States } "
        "?person foaf:based_near ?country . ?user sioc:account_of ?person ; sioc:creator_of ?post }",
    ),
    OneShotQuery(
        "bind",
        "BIND of a text and a number",
        "SELECT ?post ?length ?key { ?post sib:hashtag ?tag BIND(STRLEN(?tag) AS ?length) BIND(LCASE(?tag) AS ?key) }",
    ),
    OneShotQuery(
        "construct",
        "CONSTRUCT a graph of who likes whom",
        "CONSTRUCT { ?liker foaf:interest ?creator } { ?creator sioc:creator_of ?post . ?post sib:hashtag ?tag . "
        "?liker sib:like ?post }",
    ),
    OneShotQuery("ask", "ASK for a triangle", "ASK { ?a foaf:knows ?b . ?b foaf:knows ?c . ?c foaf:knows ?a }"),
    OneShotQuery("describe", "DESCRIBE one user", "DESCRIBE sibu:{user}"),
    OneShotQuery(
        "join-large",
        "three patterns, many rows",
        "SELECT ?user ?photo ?where { ?photo sib:usertag ?user ; dbo:location ?where . ?user sib:status ?status }",
    ),
    OneShotQuery(
        "join-four",
        "four patterns, a triangle among them",
        "SELECT ?user ?friend ?photo { ?photo sib:usertag ?user . ?user foaf:knows ?friend . "
        "?friend sib:like ?photo . ?photo dbo:location 'Germany' }",
    ),
)
