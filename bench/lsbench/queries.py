"""L1-L6: the six continuous queries of LSBench in the form in which the Wukong+S paper runs them.

Each pattern is matched where the benchmark says: in the window of its stream, or in the stored graph. A stored pattern
names the default graph by FROM, a window is only reached by GRAPH, so that streams that join the stored graph do not
change an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.bench.lsbench.data import IRI

_PREFIXES = """PREFIX sioc: <http://rdfs.org/sioc/ns#>
PREFIX foaf: <http://xmlns.com/foaf/0.1/>
PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/>
PREFIX sibp: <http://www.ins.cwi.nl/sib/person/>
PREFIX sibu: <http://www.ins.cwi.nl/sib/user/>
"""
STORED_GRAPH = "FROM <urn:x-wukongs:default>\n"


@dataclass(frozen=True, slots=True)
class BenchQuery:
    """variables and where: the SELECT; streams: whose windows it reads; is_stored: whether it reads the stored graph.

    `where` names streams as {PO}, {PO-L}, ... and its constants as {user} and {person}.
    """

    name: str
    variables: str
    where: str
    streams: tuple[str, ...]
    is_stored: bool

    def register_text(self, range_: str, step: str, user: str, person: str) -> str:
        """Return the text to register; range_ and step with their units, as `1s`."""
        windows = "".join(f"FROM NAMED STREAM <{IRI[name]}> [RANGE {range_} STEP {step}]\n" for name in self.streams)
        return (
            f"REGISTER QUERY {self.name} AS\n{_PREFIXES}SELECT {self.variables}\n"
            f"{STORED_GRAPH if self.is_stored else ''}{windows}WHERE {{ {self._where(user, person)} }}"
        )

    def select_text(self, user: str, person: str) -> str:
        """Return the same as plain SPARQL, with the windows as named graphs."""
        return f"{_PREFIXES}SELECT {self.variables} WHERE {{ {self._where(user, person)} }}"

    def _where(self, user: str, person: str) -> str:
        text = self.where.replace("{user}", user).replace("{person}", person)
        for name, stream in IRI.items():
            text = text.replace(f"{{{name}}}", f"<{stream}>")
        return text


QUERIES = (
    BenchQuery("L1", "?p ?o", "GRAPH {PO} { sibu:{user} ?p ?o }", ("PO",), False),
    BenchQuery(
        "L2", "?post", "?user sioc:account_of sibp:{person} . GRAPH {PO} { ?user sioc:creator_of ?post }", ("PO",), True
    ),
    BenchQuery(
        "L3",
        "?friend ?post",
        "?user sioc:account_of sibp:{person} ; foaf:knows ?friend . GRAPH {PO} { ?friend sioc:creator_of ?post }",
        ("PO",),
        True,
    ),
    BenchQuery(
        "L4",
        "?post1 ?post2 ?tag",
        "GRAPH {PO} { ?user sioc:creator_of ?post1 , ?post2 . ?post1 sib:hashtag ?tag . ?post2 sib:hashtag ?tag }",
        ("PO",),
        False,
    ),
    BenchQuery(
        "L5",
        "?photo ?friend1 ?friend2",
        "GRAPH {PH} { ?photo sib:usertag ?friend1 } ?friend1 foaf:knows ?friend2 . "
        "GRAPH {PH-L} { ?friend2 sib:like ?photo }",
        ("PH", "PH-L"),
        True,
    ),
    BenchQuery(
        "L6",
        "?user ?friend ?post ?channel",
        "GRAPH {PO} { ?channel sioc:container_of ?post } ?user sioc:subscriber_of ?channel ; foaf:knows ?friend . "
        "GRAPH {PO-L} { ?friend sib:like ?post }",
        ("PO", "PO-L"),
        True,
    ),
)
