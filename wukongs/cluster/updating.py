"""Evaluates a SPARQL Update at one node of a cluster. The quads that go and come have the texts of all terms, so that
every node can be given its share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from wukongs.csparql.updates import Operation
from wukongs.live.core import Core
from wukongs.live.reading import terms_of
from wukongs.live.update import evaluated
from wukongs.query.limits import Limits
from wukongs.store.dtypes import INLINE_MARK, Int64Array
from wukongs.store.encoded import Encoded, TermTable
from wukongs.store.quads import Quads

_NO_TIMES: Int64Array = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Graphs of which everything goes (IRIs, None: the default graph), quads that go, and quads that come, in this
    order; read_sn: the snapshot that was read."""

    cleared: tuple[str | None, ...]
    gone: Encoded
    come: Encoded
    read_sn: int


@contextmanager
def evaluate(core: Core, operations: Sequence[Operation], limits: Limits) -> Iterator[Evaluated]:
    """Evaluate the operations of a request over the newest snapshot, each also over what those before it change. The
    snapshot is held until the block ends: the other nodes are asked to hold it, too, before that.

    Raises as Engine.update."""
    with core.lock:
        core.check_is_open()
        core.load_count += 1
        number = core.load_count
        handle = core.arrangement.open(core.sn, f"update {number}", expires=False)
    try:
        change = evaluated(core, handle, number, operations, limits)
        with limits:
            gone, come = change.gone, change.come
            cleared = _names(core, change.cleared)
            texts = terms_of(core).texts
            found = Evaluated(cleared, with_texts(gone, texts), with_texts(come, texts), handle.sn)
        yield found
    finally:
        with core.lock:
            handle.close()


def _names(core: Core, graphs: Int64Array) -> tuple[str | None, ...]:
    named = graphs[graphs != core.default_graph]
    names: list[str | None] = [text[1:-1] for text in terms_of(core).texts(named)]
    return (*([None] if core.default_graph in graphs else []), *names)


def with_texts(quads: Quads, texts: Callable[[Int64Array], Sequence[str]]) -> Encoded:
    """Return quads with the texts of their terms, all of them in their graphs. texts: gives those of ids."""
    graphs, subjects, predicates, objects = quads
    distinct = np.unique(np.concatenate(quads))
    distinct = distinct[distinct & INLINE_MARK == 0]
    table = TermTable.of(distinct, [text.encode() for text in texts(distinct)])
    return Encoded(subjects, predicates, objects, graphs, _NO_TIMES, table)
