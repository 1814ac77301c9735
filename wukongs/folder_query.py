"""An engine in memory over what a data folder holds: for one query, and to write nothing."""

from __future__ import annotations

from pathlib import Path

from store.checkpoint import CheckpointStore
from wukongs.engine import Engine
from wukongs.errors import DataError
from wukongs.folder_load import check_log
from wukongs.settings import Settings


def open_folder(folder: Path) -> Engine:
    """Return an engine with the stored graph of a data folder; what is added to it is not written there.

    Raises DataError (no such folder), StorageError (in use), CorruptionError."""
    if not folder.is_dir():
        raise DataError("no such data folder: `wukongs load --data-dir` makes one", str(folder))
    settings = Settings.from_environment()
    engine = Engine(settings=settings)
    with CheckpointStore(folder) as store:
        check_log(folder)
        restored = store.open()
    if restored is not None:
        restored.into(engine._core.arrangement.trace, engine._core.registry)
    return engine
