"""Loading files into a data folder that an engine has used: `wukongs load` where there is a log.

The log may hold records behind the checkpoint, since windows that nobody has read hold the checkpoint back. So the
engine is recovered, and it logs and joins each file as a whole or not at all. The record that commits a file names the
file, so that it is skipped the next time, whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO

from wukongs.durable.durability import DurableJournal
from wukongs.durable.folder_load import FolderLoad, has_log
from wukongs.durable.loaded_files import FileState, LoadedFiles
from wukongs.durable.recovery import check_is_ours
from wukongs.engine import Engine
from wukongs.errors import StorageError
from wukongs.live import bulk_load
from wukongs.query.terms.names import written_graph
from wukongs.settings import Settings
from wukongs.store.bulk import BulkPlan, FilePart
from wukongs.store.json_ld_text import Contexts


def open_load(folder: Path, settings: Settings) -> FolderLoad | EngineLoad:
    """Return a loader of files into a data folder; a context manager. Raises StorageError (also a folder with other
    files), CorruptionError."""
    check_is_ours(folder)
    if has_log(folder):
        return EngineLoad(folder, settings)
    plan = BulkPlan.of(settings.load_bytes_max, settings.load_workers)
    return FolderLoad(folder, plan, settings.hash_bits, contexts=Contexts(settings.contexts))


class _Stopped(Exception):
    """on_run wants no more of the file."""


class EngineLoad:
    """A FolderLoad through an engine that is open as long as this is."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._engine = Engine(folder, settings=settings)
        journal = self._engine._core.journal
        if not isinstance(journal, DurableJournal):
            self._engine.close()
            raise StorageError(f"{folder}: this user may only read it: nothing can be loaded into it")
        self._journal = journal

    def __enter__(self) -> EngineLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def __len__(self) -> int:
        """The triples that somebody has stated: each that rules have inferred is held twice."""
        trace = self._engine._core.arrangement.trace
        return len(trace) - 2 * trace.read(trace.upper).hidden_count

    def known(self, path: Path, graph: str | None) -> FileState | None:
        """Return the state of a file that was loaded into this graph, None if it was not as a whole, or has changed."""
        state = LoadedFiles(self._journal.about).known(path, graph)
        return state if state is not None and state.is_done else None

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
        """Add the tuples of a file. As FolderLoad.load, but if on_run returns True, or with an error, nothing is added.

        Raises DataError, StorageError."""
        known = self.known(source, graph) if isinstance(source, Path) and not again else None
        if known is not None:
            return known
        state = FileState.of(source, graph, 0)
        done = replace(state, is_done=True)

        def see(run: FilePart) -> None:
            if on_run(state, run, reader.size_bytes):
                raise _Stopped

        core, injector = self._engine._core, self._engine._injector
        file = asdict(done) if done.is_named else None
        try:
            into = None if graph is None else written_graph(graph)
            number, reader = bulk_load.open_file(core, source, base, format)
            with reader:
                bulk_load.load(core, injector, number, reader, into, strict=strict, on_run=see, file=file)
        except _Stopped:
            return state
        return done

    def commit(self) -> int:
        """Write a checkpoint, as far as unread windows let it go; return the folder's bytes. Raises StorageError."""
        self._engine.checkpoint()
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
