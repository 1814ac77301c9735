"""Reads whole stored graphs back out: as names, as rdflib graphs, as N-Triples files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from wukongs.errors import DataError
from wukongs.live.core import Core
from wukongs.query.terms.names import graph_term
from wukongs.store.batch_set import BatchSet
from wukongs.store.disk import storage_errors
from wukongs.store.dtypes import NO_MATCH, Int64Array
from wukongs.store.hidden_graphs import view_of
from wukongs.store.quads import graph_quads
from wukongs.store.terms import to_ntriples

if TYPE_CHECKING:
    import rdflib

Columns: TypeAlias = tuple[Int64Array, Int64Array, Int64Array]
"""Subjects, predicates, objects."""
ROWS_AT_A_TIME = 65_536
_OTHER_CONTENT = frozenset((".rdf", ".owl", ".xml", ".jsonld", ".json", ".gz", ".zst"))


def graph_names(core: Core) -> list[str]:
    """Return the names of the stored named graphs: IRIs, and the labels of blank nodes."""
    with core.lock:
        core.finish_tick()
        stored = core.arrangement.trace.read(core.sn)
        divided = None if core.reach is None else core.reach.graph(stored, core.sn)
        reader = core.registry.snapshot_reader()
    graphs = stored.graphs if divided is None else divided.graph_names()
    readable = reader if core.reach is None else core.reach.reader(reader)
    texts = readable.texts(graphs[graphs != core.default_graph])
    return sorted(text[1:-1] if text.startswith("<") else text for text in texts)


def triples(core: Core, name: str | None) -> Iterator[tuple[str, str, str]]:
    """Iterate over a stored graph (None: the default graph) at the newest snapshot, as canonical texts."""
    terms = core.registry if core.reach is None else core.reach.ids
    view = None if name is None else view_of(graph_term(name).name)
    if view is not None:
        name = view.graph
    graph = core.default_graph if name is None else terms.resolve(graph_term(name).text)
    with core.lock:
        core.check_is_open()
        core.finish_tick()
        stored = core.arrangement.trace.read(core.sn)
        divided = None if core.reach is None else core.reach.graph(stored, core.sn)
        reader = core.registry.snapshot_reader()
    if graph == NO_MATCH:
        return
    if view is not None:
        if divided is not None:
            divided.fetch_all(None, (graph,))
            divided.fetch_all(None, (~graph,))
            stored = divided.stored
        stored, graph = view.of(stored, graph)
    parts: Iterable[Columns] = _of_one(stored, graph)
    if divided is not None:
        parts = divided.triples(graph) if view is None else [graph_quads(stored, graph)[1:]]
    for columns in parts:
        for first in range(0, len(columns[0]), ROWS_AT_A_TIME):
            # What it fetches of a divided graph is kept for these rows only.
            readable = reader if core.reach is None else core.reach.reader(reader)
            some = (readable.texts(column[first : first + ROWS_AT_A_TIME]) for column in columns)
            yield from zip(*some, strict=True)


def _of_one(stored: BatchSet, graph: int) -> Iterator[Columns]:
    for subjects, predicate, objects in stored.triples(graph):
        yield subjects, np.full(len(subjects), predicate, np.int64), objects


def as_rdflib(core: Core, name: str | None) -> rdflib.Graph:
    """Return a stored graph as an rdflib.Graph of its own."""
    import rdflib

    from wukongs.query.terms.rdf_terms import to_rdflib

    found = rdflib.Graph()
    for subject, predicate, object_ in triples(core, name):
        found.add((to_rdflib(subject), to_rdflib(predicate), to_rdflib(object_)))
    return found


def check_dump_name(path: str | PathLike[str]) -> None:
    """Raise DataError for a name whose extension promises what N-Triples is not."""
    extension = Path(path).suffix.lower()
    if extension in _OTHER_CONTENT:
        raise DataError(
            f"dump writes N-Triples: expected a name such as graph.nt, found the extension {extension}", str(path)
        )


def dump(core: Core, path: str | PathLike[str], name: str | None) -> int:
    """Write a stored graph to a file as N-Triples; return how many triples. Raises DataError for a name whose
    extension promises what N-Triples is not, StorageError (no such folder, a full disk)."""
    check_dump_name(path)
    count = 0
    advice = "What was written is incomplete: make room, or dump to a file that can be written"
    with storage_errors(f"cannot write {path}", advice), open(path, "w", encoding="utf-8", newline="\n") as file:
        for triple in triples(core, name):
            file.write(" ".join(to_ntriples(text) for text in triple) + " .\n")
            count += 1
    return count
