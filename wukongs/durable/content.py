"""Content: the stored graph of a data folder with the definitions of its streams and queries, apart from an engine.

It is read from the folder of an embedded engine, or from a backup, to fill another engine or a cluster. And it is
written to a new folder by a cluster that is backed up: `NewFolder` is whole at its place, or not there at all. Such a
folder is a data folder like any other.

Windows, tuples that wait, and the positions of readers are not part of it.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wukongs.csparql.terms import iri
from wukongs.durable.recovery import has_data, open_folder, read_folder
from wukongs.errors import StorageError
from wukongs.live.continuous import ContinuousQuery
from wukongs.live.core import Core
from wukongs.live.definitions import Definitions
from wukongs.live.embedded import EmbeddedBackend
from wukongs.live.injector import Injector
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.journal import NoJournal
from wukongs.live.made_streams import MADE
from wukongs.live.views.kept_views import view_definition
from wukongs.query.execution.prepared import PreparedQueries
from wukongs.settings import Settings
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import build_batch
from wukongs.store.batch_set import BatchSet
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.disk import FOLDER_MODE, Disk, storage_errors
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI, UNBOUND, BoolArray, Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.quads import Quads, joined
from wukongs.store.term_registry import TermRegistry, encode_quads

BACKUP = "backup"
"""The place of a cluster's backup in its manifest that tells its origin."""
ROWS_AT_A_TIME = 1 << 17


@dataclass(frozen=True, slots=True)
class Content:
    """load_count: loads and updates that have named blank nodes in it by their numbers."""

    definitions: Definitions
    load_count: int
    _stored: BatchSet
    _registry: TermRegistry
    _default_graph: int

    def chunks(self) -> Iterator[Encoded]:
        """Yield the stored triples with the texts of their terms; blank nodes have the labels that they had."""
        for quads in gathered(self._stored):
            yield from encode_quads(self._registry, quads, self._default_graph)


def read_content(folder: Path, settings: Settings) -> Content:
    """Read a data folder that no engine uses. Raises StorageError (no data folder, in use, hash_bits, no access),
    CorruptionError."""
    if not has_data(folder):
        raise StorageError(
            f"{folder}: expected a data folder, such as Engine.backup writes, and found "
            + ("neither MANIFEST nor log in it" if folder.is_dir() else "no such folder")
        )
    core = Core(settings, NoJournal())
    injector = Injector(core)
    queries = JoinedQueries(core, injector)
    views = read_folder(folder, core, injector, queries)
    with core.lock:
        streams = {state.iri: state.options for state in core.streams.values() if MADE not in state.options}
        found = sorted(queries.registered(), key=lambda query: query.lsn)
        sources = {
            query.name: (query.source, isinstance(query, ContinuousQuery) and query.is_paused) for query in found
        }
        stored = core.arrangement.trace.read(core.sn)
        kept = [view_definition(core, state) for state in views.states.values()]
        views.release()
    rules = list(core.inference.ruleset.rules.values())
    return Content(
        Definitions(streams, sources, rules, kept), core.load_count, stored, core.registry, core.default_graph
    )


def gathered(stored: BatchSet, wanted: Callable[[Int64Array], BoolArray] | None = None) -> Iterator[Quads]:
    """Yield stored quads but for those that rules have inferred, some 131,072 at a time. wanted: tells those that are,
    by their subjects; None: all."""
    parts: list[Quads] = []
    count = 0
    for graph in stored.graphs.tolist():
        for subjects, predicate, objects in stored.without_inferred(graph).triples(graph):
            for first in range(0, len(subjects), ROWS_AT_A_TIME):
                some, ends = subjects[first : first + ROWS_AT_A_TIME], objects[first : first + ROWS_AT_A_TIME]
                if wanted is not None:
                    rows = np.flatnonzero(wanted(some))
                    some, ends = some[rows], ends[rows]
                graphs, predicates = (np.full(len(some), each, np.int64) for each in (graph, predicate))
                parts.append((graphs, some, predicates, ends))
                count += len(some)
                if count >= ROWS_AT_A_TIME:
                    yield joined(parts)
                    parts, count = [], 0
    if count:
        yield joined(parts)


class NewFolder:
    """A data folder that is being written beside its place; a context manager. It is removed unless it was completed.

    Raises StorageError (a folder with files is there already, no room)."""

    def __init__(self, target: Path, settings: Settings, disk: Disk | None = None) -> None:
        self._target, self._settings, self._disk = target, settings, disk or Disk()
        self._registry = TermRegistry(settings.hash_bits)
        self._default_graph = int(self._registry.reserve([iri(DEFAULT_GRAPH_IRI).text])[0][0])
        self._arrangement = Arrangement("backup")
        with storage_errors(f"cannot write to {target}", "Name an empty folder with enough room"):
            if target.exists() and (not target.is_dir() or any(target.iterdir())):
                raise StorageError(f"{target}: expected a folder that is empty or not there, found files in it")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folder = target.absolute().with_name(f".{target.absolute().name}-{secrets.token_hex(4)}")
            self._folder.mkdir(FOLDER_MODE)

    def __enter__(self) -> NewFolder:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def __len__(self) -> int:
        return len(self._arrangement)

    def add(self, chunk: Encoded, exceptions: Iterable[tuple[int, str]] = ()) -> None:
        """Add tuples. exceptions: terms whose ids in them are no hashes, with their texts."""
        self._registry.restore_exceptions(exceptions)
        confirmed, _ = self._registry.confirm(chunk)
        graphs = np.where(confirmed.graphs == UNBOUND, self._default_graph, confirmed.graphs)
        batch = build_batch(graphs, confirmed.subjects, confirmed.predicates, confirmed.objects)
        self._arrangement.absorb_batch(max(self._arrangement.trace.upper, 1), batch)

    def complete(self, definitions: Definitions, origin: Mapping[str, Any]) -> None:
        """Write everything to the disk, and put the folder in its place. origin: said in its manifest, as JSON."""
        trace = self._arrangement.trace
        with CheckpointStore(self._folder, self._disk) as store:
            store.open()
            store.commit(trace.entries(), trace.upper, self._registry, {BACKUP: dict(origin)})
        self._define(definitions)
        with storage_errors(f"cannot write to {self._target}", "Name an empty folder with enough room"):
            self._disk.rename(self._folder, self._target)
            self._disk.fsync_folder(self._target.absolute().parent)

    def _define(self, definitions: Definitions) -> None:
        """Let an engine of this folder have the streams and queries."""
        core = Core(self._settings, NoJournal())
        injector = Injector(core)
        queries = JoinedQueries(core, injector)
        opened = open_folder(self._folder, core, injector, queries, self._disk)
        backend = EmbeddedBackend(core, injector, queries, PreparedQueries(1), opened)
        try:
            core.load_count = time.time_ns() // 1_000_000  # no load before has named blank nodes by such a number
            definitions.declare_at(backend)
            backend.checkpoint()
        finally:
            backend.close()
