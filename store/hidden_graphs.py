"""Hidden graphs: what rules have inferred in a stored graph, and the names under which that is read.

A stored graph holds all of its triples, stated or inferred. Those that are inferred only stand a second time in its
hidden graph. The id of that is `~id`, with the id of the graph: negative, as no term's is. So whatever goes by the
names of graphs leaves hidden graphs out, and in a directory their rows come first among those of a predicate.

Two views of a graph have names. <urn:x-wukongs:inferred> is the hidden graph of the default graph;
<urn:x-wukongs:explicit> is the default graph without the triples of that. With `:IRI` behind them, they are those of
the graph of that IRI. Views are read, and never written.

The arguments of a live view (incremental/arguments.py) are triples of one more hidden graph, which stands in no stored
graph. No text can name it: an IRI has no space.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wukongs.errors import DataError
from wukongs.store.batch_set import BatchSet
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, EXPLICIT_IRI, INFERRED_IRI, NO_MATCH, UNBOUND
from wukongs.store.encoded import Encoded
from wukongs.store.term_ids import integer_ids

ARGUMENTS_IRI = "arguments of a view"
ARGUMENTS_GRAPH = ~int(integer_ids(np.zeros(1, np.int64))[0])
"""The id of their graph: no stored graph has a literal for its name."""
_MARKS = tuple(f"<{name}{end}".encode() for name in (INFERRED_IRI, EXPLICIT_IRI) for end in (">", ":"))


class View(NamedTuple):
    """graph: the IRI of the graph of which it is a part."""

    is_explicit: bool
    graph: str

    def of(self, stored: BatchSet, graph: int) -> tuple[BatchSet, int]:
        """Return the batches and the graph id by which it is read. graph: the id of its graph, NO_MATCH if no data can
        have it."""
        if graph == NO_MATCH:
            return stored, NO_MATCH
        return (stored.without_inferred(graph), graph) if self.is_explicit else (stored, ~graph)


def view_of(name: str) -> View | None:
    """Return the view that an IRI names, None for any other graph."""
    for view, is_explicit in ((INFERRED_IRI, False), (EXPLICIT_IRI, True)):
        if name == view:
            return View(is_explicit, DEFAULT_GRAPH_IRI)
        if name.startswith(f"{view}:"):
            return View(is_explicit, name.removeprefix(f"{view}:"))
    return None


def inferred_view(graph: str) -> str:
    """Return the IRI of the view of what is inferred in the graph of an IRI."""
    return INFERRED_IRI if graph == DEFAULT_GRAPH_IRI else f"{INFERRED_IRI}:{graph}"


def check_written(name: str) -> None:
    """Raise DataError if the IRI of a graph that is to be written names a view."""
    view = view_of(name)
    if view is None:
        return
    graph = "the default graph" if view.graph == DEFAULT_GRAPH_IRI else f"graph <{view.graph}>"
    what = "without what rules have inferred" if view.is_explicit else "as far as rules have inferred it"
    raise DataError(
        f"<{name}> cannot be written: it is {graph} {what}, and can only be read. Write to {graph}, or change the rules"
    )


def check_graphs_written(encoded: Encoded) -> None:
    """Raise DataError if the graph of a tuple is a view."""
    graphs = encoded.graphs[encoded.graphs != UNBOUND]
    if not len(graphs):
        return
    for table in (encoded.terms, encoded.clashes):
        data = table.text.tobytes()
        if any(mark in data for mark in _MARKS):
            for text in table.texts():
                if text.encode().startswith(_MARKS) and np.isin(graphs, encoded.codes_of([text])).any():
                    check_written(text[1:-1])
