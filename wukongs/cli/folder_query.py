"""An engine in memory over the content of a data folder: for one query, and to write nothing."""

from __future__ import annotations

from pathlib import Path

from wukongs.durable.recovery import has_data, read_folder
from wukongs.engine import Engine
from wukongs.errors import DataError
from wukongs.live.embedded import EmbeddedBackend
from wukongs.settings import Settings


def open_folder(folder: Path, settings: Settings | None = None) -> Engine:
    """Return an engine with the content of a data folder, its log included. Additions to it are not written there.

    Raises DataError (no such folder), StorageError (in use), CorruptionError."""
    if not has_data(folder):
        found = "no data folder, though a folder" if folder.is_dir() else "no such data folder"
        raise DataError(f"{found}: `wukongs load --data-dir` makes one", str(folder))
    engine = Engine(settings=settings or Settings.from_environment())
    backend = engine._backend
    assert isinstance(backend, EmbeddedBackend), folder
    read_folder(folder, engine._core, engine._injector, backend.joined)
    return engine
