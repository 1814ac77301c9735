"""Loading files into a data folder: `wukongs load`, without an engine.

Runs are sealed one by one, each under an SN of its own, while the next ones are read. They are committed now and then:
the batches, the dictionary, and, in the manifest's `about`, how far each file has come. So an interrupted load goes on
behind its last commit when it is begun again. A file that was loaded is known by its path, size, time and first bytes.
The scope of its blank nodes is recorded, and so stays the same over an interruption. A pipe or a device, which is no
regular file, is only read once.

A file that is not in N-Triples or N-Quads has no place to go on from: it is sealed as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any

from wukongs.csparql.terms import iri
from wukongs.durable.loaded_files import FileState, LoadedFiles
from wukongs.errors import StorageError
from wukongs.query.terms.names import written_graph
from wukongs.store.arrangement import Arrangement
from wukongs.store.batch import Batch
from wukongs.store.bulk import RUNS_AHEAD, BulkPlan, FilePart, InTurn, RunStack, read_runs
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.disk import Disk
from wukongs.store.dtypes import DEFAULT_GRAPH_IRI
from wukongs.store.json_ld_text import Contexts
from wukongs.store.merge import listed
from wukongs.store.rdf_files import RdfReader
from wukongs.store.term_registry import TermRegistry

COMMIT_SECONDS = 15.0
_LOG = "log"


class FolderLoad:
    """A data folder under load, locked; a context manager. Call commit() at the end: what was not committed is gone."""

    def __init__(
        self,
        folder: Path,
        plan: BulkPlan,
        hash_bits: int,
        disk: Disk | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        """contexts: files for contexts of JSON-LD.

        Raises StorageError (in use, no permission, a log with what is not in the graph yet), CorruptionError."""
        self._plan = plan
        self._contexts = contexts
        self._registry = TermRegistry(hash_bits)
        self._registry.reserve([iri(DEFAULT_GRAPH_IRI).text])
        self._arrangement = Arrangement("stored graph")
        self._sealing = InTurn("wukongs-seal")
        self._committer = ThreadPoolExecutor(1, "wukongs-commit")
        self._committing: Future[Any] | None = None
        self._committed_at_s = time.monotonic()
        self._store = CheckpointStore(folder, disk)
        try:
            restored = self._store.open()
            self._about: dict[str, Any] = {}
            if restored is not None:
                restored.into(self._arrangement.trace, self._registry)
                self._about = dict(restored.about)
            if has_log(folder):
                raise StorageError(f"{folder}: an engine has used it, and its log may hold more: load through one")
        except BaseException:
            self._store.close()
            raise
        self._files = LoadedFiles(self._about)

    def __enter__(self) -> FolderLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._sealing.close()
        self._committer.shutdown()
        self._store.close()

    def __len__(self) -> int:
        return len(self._arrangement)

    def known(self, path: Path, graph: str | None) -> FileState | None:
        """Return how far a file had come when it was loaded into this graph, None if it never was, or has changed."""
        return self._files.known(path, graph)

    def load(
        self,
        source: Path | IO[bytes],
        graph: str | None = None,
        base: str | None = None,
        format: str | None = None,
        *,
        strict: bool = False,
        again: bool = False,
        on_run: Callable[[FileState, FilePart, int], bool],
    ) -> FileState:
        """Add the tuples of a file, from where it had come; return how far it is now. again: from its beginning, with
        blank nodes of its own. on_run: called with each run and the size of the file (0: unknown); if it returns True,
        reading stops there.

        Raises DataError (what was read before that stays if the file has lines), StorageError."""
        state = self._begin(source, graph, again)
        scope = f"bulk:{state.scope}".encode()
        into, stack, read_count = self._graph_id(graph), RunStack(), 0
        reader = RdfReader(source, format, base, scope, hash_bits=self._registry.hash_bits, contexts=self._contexts)
        with reader:
            runs = read_runs(reader, self._registry, into, self._plan, strict, state.offset, state.line)
            with contextlib.closing(runs):
                for run in runs:
                    read_count += run.read_count
                    seal = partial(self._seal_run, state, run) if reader.is_lines else partial(stack.add_run, run)
                    self._sealing.add(seal)
                    if on_run(state, run, reader.size_bytes):
                        return state
                if not reader.is_lines:
                    self._sealing.add(lambda: self._seal(state, stack.to_batch(), read_count, 0))
        self._sealing.add(partial(setattr, state, "is_done", True), RUNS_AHEAD + 1)
        return state

    def commit(self) -> int:
        """See what was read to the disk; return the folder's bytes. Raises StorageError: the last commit stands."""
        self._sealing.finish()
        self._start_commit()
        return self._wait_for_commit()

    def _begin(self, source: Path | IO[bytes], graph: str | None, again: bool) -> FileState:
        """Return the state of a file, a new one if it is not known or is to be loaded again."""
        known = self.known(source, graph) if isinstance(source, Path) else None
        if known is not None and not again:
            return known
        self._files.scopes += 1
        state = FileState.of(source, graph, self._files.scopes)
        if state.is_named:
            self._files.add(state)
        return state

    def _graph_id(self, graph: str | None) -> int:
        """Return the id of a graph."""
        if graph is None:
            return int(self._registry.reserve([iri(DEFAULT_GRAPH_IRI).text])[0][0])
        return self._registry.keep(written_graph(graph).text)

    def _seal_run(self, state: FileState, run: FilePart) -> None:
        self._seal(state, listed(run.batch), run.read_count, len(run.malformed))
        state.offset, state.line = run.stop, run.next_line
        if time.monotonic() - self._committed_at_s > COMMIT_SECONDS:
            self._start_commit()

    def _seal(self, state: FileState, batch: Batch, read: int, malformed: int) -> None:
        sn = max(self._arrangement.trace.upper, 1)
        state.new += len(self._arrangement.absorb_batch(sn, batch))
        state.read += read
        state.malformed += malformed

    def _start_commit(self) -> None:
        """Begin to write what there is now, once the commit before is done; loading goes on meanwhile."""
        self._wait_for_commit()
        trace = self._arrangement.trace
        about = self._files.into(self._about)
        self._committing = self._committer.submit(
            self._store.commit, trace.entries(), trace.upper, self._registry, about
        )
        self._committed_at_s = time.monotonic()

    def _wait_for_commit(self) -> int:
        committing, self._committing = self._committing, None
        return 0 if committing is None else committing.result().size_bytes


def has_log(folder: Path) -> bool:
    """Tell whether an engine has used a data folder: its log may hold what is not in the graph yet."""
    return any(path.stat().st_size for path in folder.glob(f"{_LOG}/*.log"))
