"""Reads whole stored graphs back out: as names, as rdflib graphs, as N-Triples files."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from store.terms import to_ntriples
from wukongs.core import Core
from wukongs.names import graph_term

if TYPE_CHECKING:
    import rdflib

ROWS_AT_A_TIME = 65_536


def graph_names(core: Core) -> list[str]:
    """Return the IRIs of the stored named graphs."""
    with core.lock:
        batches = core.arrangement.trace.read(core.sn).batches
        found = {int(graph) for batch in batches for graph in batch.graphs} - {core.default_graph}
        texts = core.registry.texts(np.array(sorted(found), np.int64))
    return sorted(text[1:-1] if text.startswith("<") else text for text in texts)


def triples(core: Core, name: str | None) -> Iterator[tuple[str, str, str]]:
    """Iterate over a stored graph (None: the default graph) at the newest snapshot, as canonical texts."""
    with core.lock:
        core.check_is_open()
        graph = core.default_graph if name is None else core.registry.resolve(graph_term(name).text)
        batches = core.arrangement.trace.read(core.sn).batches
        reader = core.registry.snapshot_reader()
    for batch in batches:
        graphs, *columns = batch.triples()
        rows = np.flatnonzero(graphs == graph)
        for first in range(0, len(rows), ROWS_AT_A_TIME):
            some = rows[first : first + ROWS_AT_A_TIME]
            subjects, predicates, objects = (reader.texts(column[some]) for column in columns)
            yield from zip(subjects, predicates, objects, strict=True)


def as_rdflib(core: Core, name: str | None) -> rdflib.Graph:
    """Return a stored graph as an rdflib.Graph of its own."""
    import rdflib

    from wukongs.rdf_terms import to_rdflib

    found = rdflib.Graph()
    for subject, predicate, object_ in triples(core, name):
        found.add((to_rdflib(subject), to_rdflib(predicate), to_rdflib(object_)))
    return found


def dump(core: Core, path: str | PathLike[str], name: str | None) -> int:
    """Write a stored graph to a file as N-Triples; return how many triples."""
    count = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for triple in triples(core, name):
            file.write(" ".join(to_ntriples(text) for text in triple) + " .\n")
            count += 1
    return count
