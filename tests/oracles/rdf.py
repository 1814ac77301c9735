"""RDF terms as the oracles hold them: a plain tuple, lexical forms to the letter, with ways to and from both libraries.

The canonical form of DESIGN.md section 3: xsd:string dropped, language tag in lower case, everything else untouched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

XSD = "http://www.w3.org/2001/XMLSchema#"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Term(NamedTuple):
    """kind is 'iri', 'bnode' or 'literal'; value an IRI, a label or a lexical form."""

    kind: str
    value: str
    datatype: str = ""
    language: str = ""

    def __repr__(self) -> str:
        return ntriples(self)


Triple = tuple[Term, Term, Term]


def iri(value: str) -> Term:
    return Term("iri", value)


def bnode(label: str) -> Term:
    return Term("bnode", label)


def literal(lexical: str, datatype: str = "", language: str = "") -> Term:
    return Term("literal", lexical, "" if datatype == XSD + "string" else datatype, language.lower())


def ntriples(term: Term) -> str:
    """The term as N-Triples (which is SPARQL and Turtle too)."""
    if term.kind == "iri":
        return f"<{term.value}>"
    if term.kind == "bnode":
        return f"_:{term.value}"
    quoted = '"' + "".join(_ESCAPES.get(letter, letter) for letter in term.value) + '"'
    if term.language:
        return f"{quoted}@{term.language}"
    return f"{quoted}^^<{term.datatype}>" if term.datatype else quoted


def nquad(triple: Triple, graph: Term | None = None) -> str:
    return " ".join([*map(ntriples, triple), *([ntriples(graph)] if graph else []), "."]) + "\n"


def to_rdflib(term: Term) -> Any:
    import rdflib

    if term.kind == "iri":
        return rdflib.URIRef(term.value)
    if term.kind == "bnode":
        return rdflib.BNode(term.value)
    if "--" in term.language:  # rdflib has no base directions: any term that is no other's will do to compare graphs
        return rdflib.Literal(term.value, datatype=rdflib.URIRef(f"http://oracle.example/{term.language}"))
    datatype = rdflib.URIRef(term.datatype) if term.datatype else None
    return rdflib.Literal(term.value, lang=term.language or None, datatype=datatype, normalize=False)


def from_rdflib(term: Any) -> Term:
    import rdflib

    if isinstance(term, rdflib.URIRef):
        return iri(str(term))
    if isinstance(term, rdflib.BNode):
        return bnode(str(term))
    assert isinstance(term, rdflib.Literal), f"not a term of rdflib: {term!r}"
    return literal(str(term), str(term.datatype or ""), term.language or "")


def to_oxigraph(term: Term) -> Any:
    import pyoxigraph

    if term.kind == "iri":
        return pyoxigraph.NamedNode(term.value)
    if term.kind == "bnode":
        return pyoxigraph.BlankNode(term.value)
    if term.language:
        language, _, direction = term.language.partition("--")
        directions = {"ltr": pyoxigraph.BaseDirection.LTR, "rtl": pyoxigraph.BaseDirection.RTL}
        return pyoxigraph.Literal(term.value, language=language, direction=directions.get(direction))
    return pyoxigraph.Literal(term.value, datatype=pyoxigraph.NamedNode(term.datatype or XSD + "string"))


def from_oxigraph(term: Any) -> Term:
    import pyoxigraph

    if isinstance(term, pyoxigraph.NamedNode):
        return iri(term.value)
    if isinstance(term, pyoxigraph.BlankNode):
        return bnode(term.value)
    direction = getattr(term, "direction", None)  # of RDF 1.2: stands behind the tag, as in the canonical form
    language = (term.language or "") + (f"--{direction.value}" if direction else "")
    return literal(term.value, "" if language else term.datatype.value, language)
