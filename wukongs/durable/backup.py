"""Backup: a data folder's files as of one checkpoint, in another folder, which is a data folder itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wukongs.durable import life
from wukongs.errors import StorageError
from wukongs.store.disk import Disk, storage_errors

LOG_FOLDER = "log"
NODE_FILE = "NODE"
"""A folder that has this file belongs to a node of a cluster."""
_NEVER_CHANGED = ".arrow"
_NOT_COPIED = ("LOCK", "MANIFEST", life.NAME)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a data folder in which no checkpoint is made meanwhile; the log may grow. Files that never change are hard
    links where the system allows it. Raises StorageError (target in use, no room)."""
    with storage_errors(f"cannot copy {source} to {target}", "Name an empty folder with enough room"):
        if target.exists() and any(target.iterdir()):
            raise StorageError(f"{target}: expected a folder that is empty or not there, found files in it")
        Disk().make_folder(target / LOG_FOLDER)
        # The manifest last: files without it are known to be no whole copy. A log alone would be taken for one.
        for path in source.iterdir():
            if path.is_file() and path.name not in _NOT_COPIED:
                make = _link if path.suffix == _NEVER_CHANGED else _copy
                make(path, target / path.name)
        for path in sorted((source / LOG_FOLDER).glob("*.log")):
            _copy(path, target / LOG_FOLDER / path.name)
        _copy(source / "MANIFEST", target / "MANIFEST")
        for folder in (target / LOG_FOLDER, target, target.parent):
            Disk().fsync_folder(folder)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        _copy(source, target)
