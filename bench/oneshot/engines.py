"""The engines that answer the same texts: ours, pyoxigraph and rdflib, each with its own terms or as JSON.

`rows` walks over everything: each row as a tuple of the engine's own term objects (each triple of a graph), so nothing
is left to be computed. `text` writes the answer as the engine does it itself: JSON of rows, N-Triples of a graph.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import pyoxigraph
import rdflib
from rdflib.term import Literal

import wukongs
from wukongs.csparql.terms import XSD
from wukongs.query.terms.rdf_terms import canonical_of

Row = tuple[Any, ...]
Answer = list[tuple[str, ...]]
_NUMERIC = frozenset(f"{XSD}{name}" for name in ("double", "float", "decimal"))
DIGITS = 11
"""Significant digits to which sums and means of doubles are compared: engines add in different orders."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine with the data in it. canonical: one of its terms (or None) -> text that all engines share."""

    name: str
    rows: Callable[[str], list[Row]]
    text: Callable[[str], str | bytes | None]
    canonical: Callable[[Any], str]

    def answer(self, query: str) -> Answer:
        """Return the rows of a query as texts that can be compared."""
        return [tuple(map(self.canonical, row)) for row in self.rows(query)]


def ours(lines: bytes) -> tuple[Peer, wukongs.Engine]:
    """Load N-Triples; return the peer, and the engine behind it."""
    engine = wukongs.Engine()
    engine.load(io.BytesIO(lines), format="nt")

    def rows(query: str) -> list[Row]:
        result = engine.query(query)
        return [(result.boolean,)] if result.kind == "ask" else list(result)

    def text(query: str) -> str:
        result = engine.query(query)
        return result.serialize("nt" if result.is_graph else "json")

    return Peer("wukongs", rows, text, _of_rdflib), engine


def oxigraph(lines: bytes) -> Peer:
    """Load N-Triples into an optimised in-memory store."""
    store = pyoxigraph.Store()
    store.bulk_load(lines, format=pyoxigraph.RdfFormat.N_TRIPLES)
    store.optimize()

    def rows(query: str) -> list[Row]:
        found = store.query(query)
        if isinstance(found, pyoxigraph.QueryBoolean):
            return [(bool(found),)]
        if isinstance(found, pyoxigraph.QueryTriples):
            return [(triple.subject, triple.predicate, triple.object) for triple in found]
        return [tuple(row) for row in found]

    def text(query: str) -> bytes | None:
        found = store.query(query)
        if isinstance(found, pyoxigraph.QueryTriples):
            return found.serialize(format=pyoxigraph.RdfFormat.N_TRIPLES)
        return found.serialize(format=pyoxigraph.QueryResultsFormat.JSON)

    return Peer("pyoxigraph", rows, text, _of_oxigraph)


def rdflib_graph(lines: bytes) -> Peer:
    """Parse N-Triples, lexical forms kept."""
    rdflib.NORMALIZE_LITERALS = False
    graph = rdflib.Graph()
    graph.parse(data=lines, format="nt")

    def rows(query: str) -> list[Row]:
        found = graph.query(query)
        return [(found.askAnswer,)] if found.type == "ASK" else [tuple(row) for row in cast("Iterable[Row]", found)]

    def text(query: str) -> bytes | None:
        found = graph.query(query)
        return found.serialize(format="json" if found.type in ("SELECT", "ASK") else "nt")

    return Peer("rdflib", rows, text, _of_rdflib)


def _of_rdflib(term: Any) -> str:
    if term is None or isinstance(term, bool):
        return str(term)
    if isinstance(term, Literal):
        return _literal(str(term), None if term.datatype is None else str(term.datatype), canonical_of(term))
    return canonical_of(term)


def _of_oxigraph(term: Any) -> str:
    if term is None or isinstance(term, bool):
        return str(term)
    if isinstance(term, pyoxigraph.NamedNode):
        return f"<{term.value}>"
    if isinstance(term, pyoxigraph.BlankNode):
        return f"_:{term.value}"
    if term.language:
        return f'"{term.value}"@{term.language}'
    datatype = term.datatype.value
    plain = f'"{term.value}"' if datatype == XSD + "string" else f'"{term.value}"^^<{datatype}>'
    return _literal(term.value, datatype, plain)


def _literal(lexical: str, datatype: str | None, plain: str) -> str:
    """Return a text that does not depend on how a number is written: pyoxigraph does not keep that."""
    return f"{float(lexical):.{DIGITS}g} {datatype}" if datatype in _NUMERIC else plain
