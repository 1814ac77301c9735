"""RDF 1.2's triple terms as the oracles see them: spread out, since a term is a plain tuple there.

A row with a triple term has, in the place of its cell, a mark and the cells of its parts. A graph has a node in its
place, and three triples that say of the node what its parts are. Both keep apart what differs, and let blank nodes
inside be renamed with all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.oracles.rdf import Term, Triple, bnode, from_oxigraph, iri

_MARK = Term("triple", "")
_PARTS = tuple(iri(f"http://oracle.example/{name}") for name in ("subject", "predicate", "object"))


def is_triple(term: Any) -> bool:
    import pyoxigraph as ox

    return isinstance(term, ox.Triple)


def spread_row(row: Iterable[Any]) -> tuple[Term | None, ...]:
    """The cells of a row of pyoxigraph's terms."""
    cells: list[Term | None] = []
    for term in row:
        if is_triple(term):
            cells += (_MARK, *spread_row((term.subject, term.predicate, term.object)))
        else:
            cells.append(None if term is None else from_oxigraph(term))
    return tuple(cells)


def spread_graph(triples: Iterable[Any]) -> set[Triple]:
    """The triples of a graph of pyoxigraph's triples or quads."""
    found: set[Triple] = set()

    def node(term: Any) -> Term:
        if not is_triple(term):
            return from_oxigraph(term)
        made = bnode(f"triple{str(term).encode().hex()}")
        for part, inner in zip(_PARTS, (term.subject, term.predicate, term.object), strict=True):
            found.add((made, part, node(inner)))
        return made

    for triple in triples:
        found.add((from_oxigraph(triple.subject), from_oxigraph(triple.predicate), node(triple.object)))
    return found
