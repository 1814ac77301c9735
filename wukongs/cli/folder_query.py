"""An engine in memory over the content of a data folder: for one query, and to write nothing."""

from __future__ import annotations

from pathlib import Path

from wukongs.durable.recovery import has_data, read_folder
from wukongs.engine import Engine, engine_over
from wukongs.errors import DataError
from wukongs.live.core import Core
from wukongs.live.embedded import EmbeddedBackend
from wukongs.live.injector import Injector
from wukongs.live.joined_queries import JoinedQueries
from wukongs.live.journal import NoJournal
from wukongs.query.plans.prepared import PreparedQueries
from wukongs.settings import Settings


def open_folder(folder: Path, settings: Settings | None = None) -> Engine:
    """Return an engine with the content of a data folder, its log included. Additions to it are not written there.

    Raises DataError (no such folder), StorageError (in use), CorruptionError."""
    if not has_data(folder):
        found = "no data folder, though a folder" if folder.is_dir() else "no such data folder"
        raise DataError(f"{found}: `wukongs load --data-dir` makes one", str(folder))
    core = Core(settings or Settings.from_environment(), NoJournal())
    injector, prepared = Injector(core), PreparedQueries(core.settings.prepared_queries_max)
    joined = JoinedQueries(core, injector)
    engine = engine_over(core, injector, prepared, EmbeddedBackend(core, injector, joined, prepared))
    read_folder(folder, core, injector, joined)
    return engine
