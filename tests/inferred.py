"""Seals hidden graphs by hand, as rules do: what is inferred stands in its graph, and once more in the hidden one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wukongs import Engine
from wukongs.store.batch import build_batch
from wukongs.store.quads import Quads, is_held, joined, taken
from wukongs.store.tombstones import Difference

Triple = tuple[str, str, str]
"""Canonical texts."""


def infer(engine: Engine, come: Iterable[Triple] = (), gone: Iterable[Triple] = (), graph: str | None = None) -> None:
    """Let inferred triples of a graph (None: the default graph) come, none of which is there, and others go."""
    core = engine._core
    with core.lock:
        core.finish_tick()
        held = core.default_graph if graph is None else core.registry.keep(f"<{graph}>")
        added, removed = (_twice(core.registry.keep, held, triples) for triples in (come, gone))
        read = core.arrangement.trace.read(core.arrangement.trace.upper)
        assert not is_held(read, added).any()
        assert is_held(read, removed).all()
        tombstones = build_batch(*removed) if len(removed[0]) else None
        core.arrangement.apply_difference(core.next_sn, Difference(build_batch(*added), tombstones))


def _twice(keep: object, graph: int, triples: Iterable[Triple]) -> Quads:
    assert callable(keep)
    ids = np.array([[keep(text) for text in triple] for triple in triples], np.int64).reshape(-1, 3)
    both = [(np.full(len(ids), one), *ids.T) for one in (graph, ~graph)]
    return taken(joined(both), np.ones(2 * len(ids), np.bool_))
