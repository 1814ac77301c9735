"""The engines of this process: wukongs, pyoxigraph and rdflib."""

from __future__ import annotations

import importlib.metadata
import io
import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

import wukongs
from wukongs.bench.peers import WUKONGS, PeerMissing, Rows
from wukongs.query.output.row_formats import ntriples_terms
from wukongs.query.terms.rdf_terms import canonical_of, to_ntriples
from wukongs.store.dtypes import UNBOUND, Int64Array

OXIGRAPH, RDFLIB = "pyoxigraph", "rdflib"
RDFLIB_PATIENCE_S, RDFLIB_LOAD_S = 5.0, 120.0
"""How long rdflib may take for one answer or one window, and for the stored triples."""


class Wukongs:
    """Our engine, in memory, for questions about stored triples. Its windows are not set from outside."""

    name = WUKONGS
    version = wukongs.__version__

    def __init__(self, engine: wukongs.Engine | None = None) -> None:
        self.engine = engine or wukongs.Engine()

    def load(self, ntriples: bytes) -> None:
        self.engine.load(io.BytesIO(ntriples), format="nt")

    def window(self, graphs: Mapping[str, bytes]) -> None:
        raise AssertionError("windows of wukongs are made of streams")

    def select(self, text: str) -> Rows:
        found = self.engine.query(text)
        rows: Rows = []
        for columns, _ in found.id_chunks():
            rows += zip(*[_terms(ids, found.reader) for ids in columns], strict=True)
        return rows

    def close(self) -> None:
        self.engine.close()


class Oxigraph:
    """pyoxigraph's store in memory: each window is loaded anew into named graphs, and asked by plain SPARQL."""

    name = OXIGRAPH

    def __init__(self) -> None:
        try:
            import pyoxigraph
        except ImportError:
            raise PeerMissing('pyoxigraph: pip install "pyoxigraph>=0.5"') from None
        self.version = importlib.metadata.version(OXIGRAPH)
        self._of: Any = pyoxigraph
        self._store = pyoxigraph.Store()
        self._names: list[str] = []

    def load(self, ntriples: bytes) -> None:
        self._store.bulk_load(ntriples, format=self._of.RdfFormat.N_TRIPLES)
        self._store.optimize()

    def window(self, graphs: Mapping[str, bytes]) -> None:
        for name in self._names:
            self._store.remove_graph(self._of.NamedNode(name))
        for name, lines in graphs.items():
            graph = self._of.NamedNode(name)
            self._store.add_graph(graph)
            self._store.bulk_load(lines, format=self._of.RdfFormat.N_TRIPLES, to_graph=graph)
        self._names = list(graphs)

    def select(self, text: str) -> Rows:
        found: Any = self._store.query(text)
        return [tuple(None if term is None else str(term) for term in row) for row in found]

    def close(self) -> None:
        self._store = self._of.Store()


class Rdflib:
    """rdflib's dataset in memory, the floor: right, and slow."""

    name = RDFLIB

    def __init__(self) -> None:
        try:
            import rdflib
        except ImportError:
            raise PeerMissing('rdflib: pip install "rdflib>=7.1"') from None
        self.version = importlib.metadata.version(RDFLIB)
        rdflib.NORMALIZE_LITERALS = False
        logging.getLogger("rdflib").setLevel(logging.ERROR)  # what it says of literals that are no dates
        self._of: Any = rdflib
        self._dataset = rdflib.Dataset()
        self._default: Any = (
            self._dataset.default_graph if hasattr(self._dataset, "default_graph") else self._dataset.default_context
        )

    def load(self, ntriples: bytes) -> None:
        self._default.parse(data=ntriples, format="nt")

    def window(self, graphs: Mapping[str, bytes]) -> None:
        for graph in list(self._dataset.graphs()):
            if graph.identifier != self._default.identifier:
                self._dataset.remove_graph(graph)
        for name, lines in graphs.items():
            self._dataset.graph(self._of.URIRef(name)).parse(data=lines, format="nt")

    def select(self, text: str) -> Rows:
        found: Any = self._dataset.query(text)
        return [tuple(None if term is None else _written(term) for term in row) for row in found]

    def close(self) -> None:
        self._dataset = self._of.Dataset()


def _terms(ids: Int64Array, reader: Any) -> list[str | None]:
    """Return the terms of a column as the engine writes N-Triples."""
    bound = np.flatnonzero(ids != UNBOUND)
    text, offsets = ntriples_terms(ids[bound], reader)
    whole, ends = text.tobytes(), offsets.tolist()
    written = [whole[start:end].decode() for start, end in pairwise(ends)]
    if len(bound) == len(ids):
        return list(written)
    terms: list[str | None] = [None] * len(ids)
    for place, term in zip(bound.tolist(), written, strict=True):
        terms[place] = term
    return terms


def _written(term: Any) -> str:
    """Return a term of rdflib as N-Triples. Its own way to write one breaks lines as Turtle does."""
    text: str = term.n3()
    return to_ntriples(canonical_of(term)) if "\n" in text else text
