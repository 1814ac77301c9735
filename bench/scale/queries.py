"""S1 to S6: the six one-shot queries of the Wukong+S paper (table 8), for a user, a person and a group.

S6 asks for the country of a user's person: as the paper prints it, of the user, no data of LSBench has an answer.
"""

from __future__ import annotations

_PREFIXES = """PREFIX sioc: <http://rdfs.org/sioc/ns#>
PREFIX foaf: <http://xmlns.com/foaf/0.1/>
PREFIX dbp: <http://dbpedia.org/resource/>
PREFIX sib: <http://www.ins.cwi.nl/sib/vocabulary/>
PREFIX sibp: <http://www.ins.cwi.nl/sib/person/>
PREFIX sibu: <http://www.ins.cwi.nl/sib/user/>
PREFIX sibg: <http://www.ins.cwi.nl/sib/group/>
"""


def one_shot_queries(user: int, group: int) -> dict[str, str]:
    """Return the texts, by name."""
    wheres = {
        "S1": f"sibu:u{user} ?p ?o",
        "S2": f"?user sioc:account_of sibp:p{user} ; sioc:creator_of ?post",
        "S3": f"?user sioc:account_of sibp:p{user} ; foaf:knows ?friend . ?friend sioc:creator_of ?post",
        "S4": f"sibg:g{group} sioc:has_member ?user1 . ?photo sib:usertag ?user1 . ?album sioc:container_of ?photo . "
        "?user2 sioc:creator_of ?album",
        "S5": f"sibu:u{user} foaf:knows ?user . ?user sioc:account_of ?profile . ?profile foaf:gender ?gender ; "
        "foaf:birthday ?day ; sioc:email ?email",
        "S6": "?user1 sioc:account_of ?p1 . ?p1 foaf:based_near dbp:Peoples_Republic_of_China . "
        "?user1 sioc:creator_of ?post . ?user2 sib:like ?post . ?user2 sioc:account_of ?p2 . "
        "?p2 foaf:based_near dbp:United_States . ?post sib:hashtag ?tag",
    }
    return {name: f"{_PREFIXES}SELECT * WHERE {{ {where} }}" for name, where in wheres.items()}
