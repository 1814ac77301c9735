"""One-shot queries over LSBench data: S1-S6 of the Wukong+S paper, and one for each other operator of SPARQL.

S6 is the repaired form: as printed it asks accounts for what only persons have, and has no answer on any LSBench data.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIXES = """PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX sioc: <http://rdfs.org/sioc/ns#>
PREFIX foaf: <http://xmlns.com/foaf/0.1/>
PREFIX dc: <http://purl.org/dc/elements/1.1/>
PREFIX dbp: <http://dbpedia.org/resource/>
PREFIX dbpprop: <http://dbpedia.org/property/>
PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/>
PREFIX sibp: <http://www.ins.cwi.nl/sib/person/>
PREFIX sibu: <http://www.ins.cwi.nl/sib/user/>
PREFIX sibg: <http://www.ins.cwi.nl/sib/group/>
"""


@dataclass(frozen=True, slots=True)
class OneShotQuery:
    """body: the query without its prefixes, with its constants as {user}, {person}, {other} and {group}.

    is_cut: LIMIT without ORDER BY, so that only the number of rows is the same everywhere."""

    name: str
    body: str
    is_cut: bool = False

    def text(self, constants: dict[str, str]) -> str:
        """Return the whole query."""
        body = self.body
        for name, value in constants.items():
            body = body.replace(f"{{{name}}}", value)
        return PREFIXES + body


CONSTANTS = {"user": "u984", "person": "p781", "other": "p984", "group": "g1"}
"""Those of the paper's sample."""

S_QUERIES = (
    OneShotQuery("S1", "SELECT ?p ?o WHERE { sibu:{user} ?p ?o }"),
    OneShotQuery("S2", "SELECT ?post WHERE { ?user sioc:account_of sibp:{person} . ?user sioc:creator_of ?post }"),
    OneShotQuery(
        "S3",
        "SELECT ?friend ?post WHERE { ?user sioc:account_of sibp:{other} . ?user foaf:knows ?friend . "
        "?friend sioc:creator_of ?post }",
    ),
    OneShotQuery(
        "S4",
        "SELECT ?user1 ?photo ?album ?user2 WHERE { sibg:{group} sioc:has_member ?user1 . ?photo sib:usertag ?user1 . "
        "?album sioc:container_of ?photo . ?user2 sioc:creator_of ?album }",
    ),
    OneShotQuery(
        "S5",
        "SELECT ?user ?gender ?day ?email WHERE { sibu:{user} foaf:knows ?user . ?user sioc:account_of ?profile . "
        "?profile foaf:gender ?gender ; foaf:birthday ?day ; sioc:email ?email }",
    ),
    OneShotQuery(
        "S6",
        "SELECT ?user1 ?post ?user2 ?tag WHERE { ?user1 sioc:account_of ?p1 . "
        "?p1 foaf:based_near dbp:Peoples_Republic_of_China . ?user1 sioc:creator_of ?post . ?user2 sib:like ?post . "
        "?user2 sioc:account_of ?p2 . ?p2 foaf:based_near dbp:United_States . ?post sib:hashtag ?tag }",
    ),
)

OTHER_QUERIES = (
    OneShotQuery(
        "OPTIONAL",
        "SELECT ?p ?name ?where ?year WHERE { ?p a foaf:Person ; foaf:lastName ?name "
        "OPTIONAL { ?p foaf:organization ?where } OPTIONAL { ?p sib:class_year ?year } }",
    ),
    OneShotQuery("path+", "SELECT ?other WHERE { sibu:{user} foaf:knows+ ?other }"),
    OneShotQuery("path/", "SELECT ?post WHERE { sibu:{user} foaf:knows/foaf:knows/sioc:creator_of ?post }"),
    OneShotQuery(
        "GROUP BY",
        "SELECT ?post (COUNT(?u) AS ?n) WHERE { ?u sib:like ?post } GROUP BY ?post ORDER BY DESC(?n) ?post LIMIT 10",
    ),
    OneShotQuery(
        "MIN MAX",
        "SELECT ?country (MIN(?lat) AS ?south) (MAX(?lat) AS ?north) (COUNT(*) AS ?n) WHERE "
        "{ ?p foaf:based_near ?country ; dbpprop:latd ?lat FILTER(isIRI(?country)) } GROUP BY ?country",
    ),
    OneShotQuery(
        "UNION",
        "SELECT ?u ?x WHERE { ?p foaf:based_near dbp:United_States . ?u sioc:account_of ?p . "
        "{ ?u sib:like ?x } UNION { ?u sioc:creator_of ?x } }",
    ),
    OneShotQuery("MINUS", "SELECT ?u WHERE { ?u a sib:User MINUS { ?u sib:like ?x } }"),
    OneShotQuery(
        "NOT EXISTS",
        "SELECT ?u ?f WHERE { ?u sioc:account_of sibp:{other} . ?u foaf:knows ?f "
        "FILTER NOT EXISTS { ?f sib:like ?x . ?x sib:usertag ?u } }",
    ),
    OneShotQuery(
        "FILTER",
        "SELECT ?u ?lat WHERE { ?u sioc:account_of ?p . ?p dbpprop:latd ?lat . ?u foaf:knows ?f FILTER(?lat > 60) }",
    ),
    OneShotQuery("FILTER text", 'SELECT ?p ?name WHERE { ?p foaf:lastName ?name FILTER(STRSTARTS(?name, "M")) }'),
    OneShotQuery("DISTINCT", "SELECT DISTINCT ?tag WHERE { ?post sib:hashtag ?tag }"),
    OneShotQuery("ORDER BY", "SELECT ?u ?f ?d WHERE { ?u foaf:knows ?f . ?f dc:date ?d } ORDER BY ?d ?u ?f LIMIT 100"),
    OneShotQuery(
        "LIMIT", "SELECT ?u ?post ?tag WHERE { ?u sioc:creator_of ?post . ?post sib:hashtag ?tag } LIMIT 1000", True
    ),
)
