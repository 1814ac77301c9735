"""The life of a data folder: a name by which clients know that they are with the data that they were with before.

It is made once, and not copied into a backup: who goes on from a backup has lost what came after it.
"""

from __future__ import annotations

import errno
import secrets
from pathlib import Path

from wukongs.store.disk import Disk, storage_errors

NAME = "LIFE"


def life_of(folder: Path, disk: Disk | None = None) -> str:
    """Return the life of a data folder that this process has locked, begun now if it has none; "", which nobody
    compares, for one that has none and may only be read.

    Raises StorageError."""
    path = folder / NAME
    with storage_errors(f"cannot use {path}", "Mend the disk or the permissions, then retry"):
        if path.exists():
            return path.read_text("ascii").strip()
        life, disk = secrets.token_hex(8), disk or Disk()
        temporary = path.with_suffix(".new")
        try:
            file = disk.create(temporary)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
                return ""
            raise
        with file:
            disk.write(file, f"{life}\n".encode())
            disk.fsync(file)
        disk.rename(temporary, path)
        disk.fsync_folder(folder)
        return life
