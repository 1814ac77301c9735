"""A stored graph with its dictionary, as texts: what a data folder has to give back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.store.arrangement import Arrangement
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.disk import Disk
from wukongs.store.encoder import encode_columns
from wukongs.store.manifest import Manifest
from wukongs.store.term_ids import HASH_BITS
from wukongs.store.term_registry import TermRegistry

Row = tuple[str, str, str]
"""Subject, predicate, object in canonical form."""


class StoredGraph:
    """The default graph of an engine, without the engine."""

    def __init__(self, hash_bits: int = HASH_BITS) -> None:
        self.registry = TermRegistry(hash_bits)
        self.graph, _ = self.registry.reserve(["<urn:g>"])
        self.arrangement = Arrangement("g")

    @property
    def trace(self) -> Any:
        return self.arrangement.trace

    def absorb(self, rows: Iterable[Row], sn: int | None = None) -> None:
        subjects, predicates, objects = zip(*rows, strict=True)
        encoded = encode_columns(subjects, predicates, objects, scope=b"s", hash_bits=self.registry.hash_bits)
        encoded, _ = self.registry.confirm(encoded)
        graphs = np.full(len(encoded), self.graph[0], np.int64)
        sn = self.trace.upper if sn is None else sn
        self.arrangement.absorb(sn, graphs, encoded.subjects, encoded.predicates, encoded.objects)

    def texts(self, sn: int | None = None) -> list[Row]:
        """All triples at an SN (default: the newest), sorted, repeats kept. Raises CompactedError."""
        found: list[Row] = []
        for batch in self.trace.read(self.trace.upper if sn is None else sn).batches:
            _, *columns = batch.triples()
            found += zip(*(self.registry.texts(column) for column in columns), strict=True)
        return sorted(found)

    def commit(self, store: CheckpointStore, about: Mapping[str, Any] | None = None) -> Manifest:
        return store.commit(self.trace.entries(), self.trace.upper, self.registry, about or {})


def reopen(folder: Path, hash_bits: int = HASH_BITS, disk: Disk | None = None) -> tuple[StoredGraph, Mapping[str, Any]]:
    """Return what the folder holds, read as a process would that starts now: (the graph, `about`)."""
    graph = StoredGraph(hash_bits)
    assert graph.texts() == [], "an engine may have been asked before"
    with CheckpointStore(folder, disk) as store:
        restored = store.open()
        if restored is None:
            return graph, {}
        restored.into(graph.trace, graph.registry)
        return graph, restored.about
