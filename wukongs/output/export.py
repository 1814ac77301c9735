"""Reads whole stored graphs back out: as names, as rdflib graphs, as N-Triples files."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from store.disk import storage_errors
from store.terms import to_ntriples
from wukongs.core import Core
from wukongs.errors import DataError
from wukongs.terms.names import graph_term

if TYPE_CHECKING:
    import rdflib

ROWS_AT_A_TIME = 65_536
_OTHER_CONTENT = frozenset((".rdf", ".owl", ".xml", ".jsonld", ".json", ".gz", ".zst"))


def graph_names(core: Core) -> list[str]:
    """Return the IRIs of the stored named graphs."""
    with core.lock:
        graphs = core.arrangement.trace.read(core.sn).graphs
        texts = core.registry.texts(graphs[graphs != core.default_graph])
    return sorted(text[1:-1] if text.startswith("<") else text for text in texts)


def triples(core: Core, name: str | None) -> Iterator[tuple[str, str, str]]:
    """Iterate over a stored graph (None: the default graph) at the newest snapshot, as canonical texts."""
    with core.lock:
        core.check_is_open()
        graph = core.default_graph if name is None else core.registry.resolve(graph_term(name).text)
        stored = core.arrangement.trace.read(core.sn)
        reader = core.registry.snapshot_reader()
    for all_subjects, predicate, all_objects in stored.triples(graph):
        for first in range(0, len(all_subjects), ROWS_AT_A_TIME):
            subjects, objects = (
                reader.texts(column[first : first + ROWS_AT_A_TIME]) for column in (all_subjects, all_objects)
            )
            (text,) = reader.texts(np.array([predicate], np.int64))
            yield from ((subject, text, object_) for subject, object_ in zip(subjects, objects, strict=True))


def as_rdflib(core: Core, name: str | None) -> rdflib.Graph:
    """Return a stored graph as an rdflib.Graph of its own."""
    import rdflib

    from wukongs.terms.rdf_terms import to_rdflib

    found = rdflib.Graph()
    for subject, predicate, object_ in triples(core, name):
        found.add((to_rdflib(subject), to_rdflib(predicate), to_rdflib(object_)))
    return found


def dump(core: Core, path: str | PathLike[str], name: str | None) -> int:
    """Write a stored graph to a file as N-Triples; return how many triples. Raises DataError for a name whose
    extension promises what N-Triples is not, StorageError (no such folder, a full disk)."""
    extension = Path(path).suffix.lower()
    if extension in _OTHER_CONTENT:
        raise DataError(
            f"dump writes N-Triples: expected a name such as graph.nt, found the extension {extension}", str(path)
        )
    count = 0
    advice = "What was written is incomplete: make room, or dump to a file that can be written"
    with storage_errors(f"cannot write {path}", advice), open(path, "w", encoding="utf-8", newline="\n") as file:
        for triple in triples(core, name):
            file.write(" ".join(to_ntriples(text) for text in triple) + " .\n")
            count += 1
    return count
